//! The two kinds of handle to bytes of an arena.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::rc::Rc;

use crate::arena::{Place, Region};

/// The counted hold on a frame that both kinds of handle share.
struct Hold {
    region: Rc<Region>,
    place: Place,
}

impl Hold {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the place lies in the region (checked when it was made), the memory was zeroed when it was allocated,
        // and this hold keeps the frame from being lent again. Writers: a `Buffer` owns its range alone, and a range
        // under a `Shared` has none; in both cases nobody can write while this borrow lives.
        unsafe { std::slice::from_raw_parts(self.region.address(self.place), self.place.len as usize) }
    }

    fn part(&self, start: u32, len: u32) -> Self {
        let place = Place { start: self.place.start + start, len, ..self.place };
        self.region.retain(place);
        Self { region: Rc::clone(&self.region), place }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.region.release(self.place);
    }
}

/// The only handle to some bytes: they may be read, written, split, joined and, once frozen, shared.
pub struct Buffer {
    hold: Hold,
}

impl Buffer {
    pub(crate) fn from_place(region: Rc<Region>, place: Place) -> Self {
        Self { hold: Hold { region, place } }
    }

    /// Splits off the bytes from `at` on.
    ///
    /// # Panics
    /// When `at` is not strictly inside the buffer.
    #[must_use]
    pub fn split_off(&mut self, at: usize) -> Self {
        let len = self.hold.place.len;
        assert!(at > 0 && at < len as usize, "a buffer of {len} bytes is split inside, not at {at}");
        let at = u32::try_from(at).unwrap_or(len);
        let tail = self.hold.part(at, len - at);
        self.hold.place.len = at;
        Self { hold: tail }
    }

    /// Undoes [`split_off`](Self::split_off).
    ///
    /// # Errors
    /// Both handles, unchanged, when `tail` does not begin where this one ends.
    pub fn join(mut self, tail: Self) -> Result<Self, (Self, Self)> {
        let (a, b) = (self.hold.place, tail.hold.place);
        let same_region = Rc::ptr_eq(&self.hold.region, &tail.hold.region);
        if !same_region || (a.class, a.frame) != (b.class, b.frame) || a.start + a.len != b.start {
            return Err((self, tail));
        }
        self.hold.place.len += b.len;
        Ok(self)
    }

    /// Shortens the buffer to `len` bytes; the rest of the frame rests until the buffer is dropped.
    ///
    /// # Panics
    /// When `len` is zero or larger than the buffer.
    pub fn truncate(&mut self, len: usize) {
        assert!(len > 0 && len <= self.len(), "a buffer of {} bytes cannot be cut to {len}", self.len());
        self.hold.place.len = u32::try_from(len).unwrap_or(self.hold.place.len);
    }

    /// Drops the right to write, for handles that can be cloned.
    #[must_use]
    pub fn freeze(self) -> Shared {
        Shared { hold: self.hold }
    }

    /// Copies `from` to the front of the buffer and counts the bytes; the counted way to copy.
    ///
    /// # Panics
    /// When `from` is longer than the buffer.
    pub fn copy_in(&mut self, from: &[u8]) {
        let len = self.len();
        let Some(front) = self.get_mut(..from.len()) else { panic!("{} bytes do not fit {len}", from.len()) };
        front.copy_from_slice(from);
        self.hold.region.count(|counters| counters.copied_bytes += from.len() as u64);
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.hold.bytes()
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let hold = &mut self.hold;
        // SAFETY: as in `Hold::bytes`; and this is the only handle to the range, borrowed for writing, so no other
        // reference to these bytes exists.
        unsafe { std::slice::from_raw_parts_mut(hold.region.address(hold.place), hold.place.len as usize) }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}

/// One of any number of handles to bytes that nobody may write any more.
pub struct Shared {
    hold: Hold,
}

impl Shared {
    /// A handle to a part of the bytes.
    ///
    /// # Panics
    /// When the range is empty or not inside the bytes.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Self {
        let len = self.len();
        assert!(range.start < range.end && range.end <= len, "{range:?} is no part of {len} bytes");
        let start = u32::try_from(range.start).unwrap_or(0);
        let part = u32::try_from(range.end - range.start).unwrap_or(0);
        Self { hold: self.hold.part(start, part) }
    }

    /// The right to write again, when this is the last handle to its frame.
    ///
    /// # Errors
    /// The handle, unchanged, while others exist.
    pub fn thaw(self) -> Result<Buffer, Self> {
        if self.hold.region.is_only_handle(self.hold.place) {
            Ok(Buffer { hold: self.hold })
        } else {
            Err(self)
        }
    }

    /// Bytes of the frame that this handle's memory was taken from: what it keeps from being lent again.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.hold.region.frame_bytes(self.hold.place)
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        Self { hold: self.hold.part(0, self.hold.place.len) }
    }
}

impl Deref for Shared {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.hold.bytes()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use crate::{Arena, ArenaConfig};
    use proptest::prelude::*;

    fn arena() -> Arena {
        Arena::new(ArenaConfig { small_count: 2, medium_count: 1, large_count: 0 })
    }

    #[test]
    fn parts_of_a_buffer_are_written_apart_and_joined_again() {
        let arena = arena();
        let mut head = arena.try_take(100).unwrap();
        let mut tail = head.split_off(40);
        head.fill(1);
        tail.fill(2);
        let whole = head.join(tail).unwrap();
        assert_eq!(whole.iter().filter(|b| **b == 1).count(), 40);
        assert_eq!(whole.len(), 100);
        drop(whole);
        assert_eq!(arena.lent_count(), 0);
    }

    #[test]
    fn strangers_are_not_joined() {
        let arena = arena();
        let (a, b) = (arena.try_take(10).unwrap(), arena.try_take(10).unwrap());
        assert!(a.join(b).is_err());
    }

    #[test]
    fn frozen_bytes_are_writable_again_only_for_the_last_handle() {
        let arena = arena();
        let shared = arena.try_take(4096).unwrap().freeze();
        let part = shared.slice(10..20);
        let shared = shared.thaw().unwrap_err();
        drop(shared);
        let mut part = part.thaw().unwrap();
        part.fill(7);
        assert_eq!(part.len(), 10);
    }

    #[test]
    fn a_waiting_taker_is_served_when_a_frame_returns() {
        let arena = Arena::new(ArenaConfig { small_count: 1, medium_count: 0, large_count: 0 });
        let first = arena.try_take(1).unwrap();
        let mut wait = std::pin::pin!(arena.take(1));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        drop(first);
        assert!(wait.as_mut().poll(&mut cx).is_ready());
        assert_eq!(arena.counters().waits, 1);
    }

    proptest! {
        // Any tree of splits covers its frame without overlap: each leaf writes its own number and reads it back
        // after all the others have written theirs.
        #[test]
        fn splits_never_overlap(cuts in proptest::collection::vec((0usize..8, 1usize..4096), 1..8)) {
            let arena = arena();
            let mut parts = vec![arena.try_take(4096).unwrap()];
            for (index, at) in cuts {
                let index = index % parts.len();
                if at < parts[index].len() {
                    let tail = parts[index].split_off(at);
                    parts.push(tail);
                }
            }
            for (number, part) in parts.iter_mut().enumerate() {
                part.fill(u8::try_from(number).unwrap());
            }
            for (number, part) in parts.iter().enumerate() {
                prop_assert!(part.iter().all(|byte| usize::from(*byte) == number));
            }
            prop_assert_eq!(parts.iter().map(|part| part.len()).sum::<usize>(), 4096);
        }
    }

    use std::future::Future;
}
