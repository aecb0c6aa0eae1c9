//! Keys, values and anchors: bytes whose meaning is the caller's.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use crate::format::{ANCHOR_BYTES, KEY_BYTES};

/// A key. Keys are ordered as their bytes are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub [u8; KEY_BYTES]);

impl Key {
    /// The lowest key.
    pub const MIN: Self = Self([0; KEY_BYTES]);
    /// The highest key.
    pub const MAX: Self = Self([0xff; KEY_BYTES]);

    /// The key behind this one; `None` behind the highest.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        let mut bytes = self.0;
        for byte in bytes.iter_mut().rev() {
            let (sum, carried) = byte.overflowing_add(1);
            *byte = sum;
            if !carried {
                return Some(Self(bytes));
            }
        }
        None
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// A value, as it was put. Clones share the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Value(Rc<[u8]>);

impl Value {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(Rc::from(bytes))
    }
}

impl Deref for Value {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Value({} bytes)", self.len())
    }
}

/// What the caller keeps with a checkpoint: where its log begins, for example. Old or new together with the map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Anchor(pub [u8; ANCHOR_BYTES]);

impl fmt::Debug for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Anchor(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_key_is_the_least_that_is_greater() {
        let mut bytes = [7; KEY_BYTES];
        bytes[22] = 1;
        bytes[23] = 0xff;
        let next = Key(bytes).next().unwrap();
        assert_eq!((next.0[22], next.0[23]), (2, 0));
        assert_eq!(Key::MAX.next(), None);
        assert!(Key::MIN < Key::MIN.next().unwrap());
    }
}
