//! Limits of the attributes of a space, and reasons why an attribute is refused.
//!
//! The limits bound the map, and the one change that deletes a space.

use dolmen_store::VALUE_BYTES_MAX;
use dolmen_units::Bytes;

/// Length of the value of an attribute, at most.
pub const ATTRIBUTE_BYTES_MAX: usize = VALUE_BYTES_MAX;
/// Number of attributes of a space, at most.
pub const ATTRIBUTES_MAX: usize = 256;
/// Bytes of values that one change puts, at most.
pub const ATTRIBUTES_CHANGE_BYTES_MAX: usize = 128 << 10;

const EDIT_BYTES_MAX: usize = 32;
const _: () = assert!(
    ATTRIBUTES_CHANGE_BYTES_MAX + 2 * ATTRIBUTES_MAX * EDIT_BYTES_MAX <= 160 << 10,
    "one change of the map, 192 KiB, holds the values, as many deletions, and the entry of the space"
);

/// Reason why an attribute is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AttributeFault {
    /// It has no value.
    #[error("has an empty value, and needs 1 byte at least; delete it instead")]
    Empty,
    /// Its value is too long.
    #[error("has a value of {found} bytes, and {ATTRIBUTE_BYTES_MAX} at most fit; make it shorter")]
    TooLong {
        /// Length of the value.
        found: usize,
    },
    /// The change names it twice.
    #[error("is in one change twice, and one put or deletion of it is expected; name it once")]
    Repeated,
    /// The space would have too many.
    #[error("would be one of {found}, and a space has {ATTRIBUTES_MAX} at most; delete others first")]
    TooMany {
        /// Number of attributes after the change.
        found: usize,
    },
    /// The values of the change are too long together.
    #[error("is put with others of {found} in one change, which takes {limit} at most; put them in several", limit = Bytes(ATTRIBUTES_CHANGE_BYTES_MAX as u64))]
    TooMuch {
        /// Bytes of all values.
        found: Bytes,
    },
}
