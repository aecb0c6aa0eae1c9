//! Bytes that are put together and thrown away again, in memory that is used again.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Bytes that a new vector has room for: a record of a write of 1 MiB.
const FIRST_BYTES: usize = 1088;
/// Vectors with more room than this go to the allocator.
const KEPT_BYTES_MAX: usize = 4096;
/// Vectors that a thread keeps, at most.
const KEPT_MAX: usize = 256;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A vector of bytes whose memory the next one of its thread uses again: three words, however long it is.
pub struct Scratch {
    bytes: Vec<u8>,
}

impl Scratch {
    /// Creates an empty one.
    #[must_use]
    pub fn new() -> Self {
        let kept = KEPT.try_with(|kept| kept.borrow_mut().pop());
        // None is kept at first, and none can be while the thread ends.
        let bytes = kept.ok().flatten().unwrap_or_else(|| Vec::with_capacity(FIRST_BYTES));
        Self { bytes }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Scratch {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() == 0 || bytes.capacity() > KEPT_BYTES_MAX {
            return;
        }
        bytes.clear();
        let keep = |kept: &RefCell<Vec<Vec<u8>>>| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_MAX {
                kept.push(bytes);
            }
        };
        // Where the thread ends, the allocator has them.
        KEPT.try_with(keep).unwrap_or_default();
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scratch({} bytes)", self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second vector has the memory of the first, and none of its bytes.
    #[test]
    fn memory_is_used_again_and_its_content_is_not() {
        let mut first = Scratch::new();
        first.extend_from_slice(&[7; 1000]);
        let address = first.as_ptr();
        drop(first);
        let second = Scratch::new();
        assert_eq!((second.as_ptr(), second.len()), (address, 0));
    }

    /// A thread keeps so many vectors and none that is long.
    #[test]
    fn a_thread_keeps_no_more_than_its_limits() {
        let mut long = Scratch::new();
        long.resize(KEPT_BYTES_MAX + 1, 0);
        drop(long);
        drop((0..2 * KEPT_MAX).map(|_| Scratch::new()).collect::<Vec<_>>());
        KEPT.with(|kept| {
            assert_eq!(kept.borrow().len(), KEPT_MAX);
            assert!(kept.borrow().iter().all(|bytes| bytes.capacity() <= KEPT_BYTES_MAX));
        });
    }
}
