//! Which bytes of a device serve what.

use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes};

/// The smallest device that can be a member.
pub const DISK_BYTES_MIN: Bytes = Bytes::mib(64);
/// The log of a pool has at least this: below, batches do not fit.
pub const LOG_BYTES_MIN: u64 = 2 * MEBIBYTE;
/// The log of a pool has at most this: above, recovery would read for longer than it should.
pub const LOG_BYTES_MAX: u64 = 64 * MEBIBYTE;
/// Where the metadata area begins.
pub const METADATA_AT: u64 = 1 << 20;
/// What is left unused in front of the back labels, so that a device may lose a few megabytes at its end.
pub const TAIL_BYTES: u64 = 8 << 20;

pub(crate) const MEBIBYTE: u64 = 1 << 20;
const METADATA_BYTES_MIN: u64 = 8 << 20;
/// One thousandth of the device holds metadata.
const METADATA_SHARE: u64 = 1000;
/// Address of the first front slot.
pub(crate) const FRONT_AT: u64 = 64 * 1024;
/// Length of a slot.
pub(crate) const SLOT_BYTES: u64 = 64 * 1024;
/// How far from the end the back labels are looked for.
pub(crate) const BACK_SEARCH_BYTES: u64 = 16 << 20;

const _: () =
    assert!(FRONT_AT + 2 * SLOT_BYTES <= METADATA_AT, "both front slots lie in front of the metadata");
const _: () = assert!(
    DISK_BYTES_MIN.0 > METADATA_AT + METADATA_BYTES_MIN + TAIL_BYTES + 2 * MEBIBYTE,
    "the smallest disk has allocation units"
);

/// The cut of a device, fixed when it was claimed; later it grows at its end alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Size of the device when it was claimed, or when its growth was taken into use.
    pub capacity: Bytes,
    /// Length of the metadata area, which begins at [`METADATA_AT`].
    pub metadata: Bytes,
    /// First byte of the first allocation unit.
    pub data_start: u64,
    /// First byte behind the last allocation unit.
    pub data_end: u64,
}

/// A cut that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ExtentError {
    /// The device is smaller than [`DISK_BYTES_MIN`].
    #[error("the device has {found}; a disk of a pool has at least {DISK_BYTES_MIN}")]
    TooSmall {
        /// Its size.
        found: Bytes,
    },
    /// The fields of a label contradict each other.
    #[error(
        "metadata of {metadata} and allocation units from byte {data_start} to {data_end} do not fit {capacity}"
    )]
    Contradiction {
        /// Size in the label.
        capacity: Bytes,
        /// Metadata length in the label.
        metadata: Bytes,
        /// First allocation unit in the label.
        data_start: u64,
        /// End of the allocation units in the label.
        data_end: u64,
    },
    /// The device ends before its last allocation unit: an image cut short.
    #[error(
        "the device has {found}, but its label says that data reaches to byte {data_end}; the image was cut short"
    )]
    CutShort {
        /// Size now.
        found: Bytes,
        /// End of the allocation units in the label.
        data_end: u64,
    },
}

impl Extent {
    /// The cut for a device of this size.
    ///
    /// # Errors
    /// [`ExtentError::TooSmall`].
    pub fn of(capacity: Bytes) -> Result<Self, ExtentError> {
        if capacity < DISK_BYTES_MIN {
            return Err(ExtentError::TooSmall { found: capacity });
        }
        let metadata = Bytes(capacity.0 / METADATA_SHARE).align_up(MEBIBYTE).max(Bytes(METADATA_BYTES_MIN));
        let data_start = METADATA_AT + metadata.0;
        let data_end = Bytes(back_at(capacity) - TAIL_BYTES).align_down(ALLOCATION_UNIT_BYTES).0;
        Ok(Self { capacity, metadata, data_start, data_end })
    }

    /// Returns the cut of a device that has grown to `capacity`: what lies on it stays where it is. `None` where it has gained
    /// no allocation unit.
    #[must_use]
    pub fn grown_to(&self, capacity: Bytes) -> Option<Self> {
        let data_end =
            Bytes(back_at(capacity).saturating_sub(TAIL_BYTES)).align_down(ALLOCATION_UNIT_BYTES).0;
        let has_gained = data_end > self.data_end && capacity > self.capacity && capacity <= Bytes::MAX;
        has_gained.then_some(Self { capacity, data_end, ..*self })
    }

    /// Returns the cut that the device had when it had so many allocation units, with the least size that gives it. `None` where
    /// the labels at that end would be those at this end.
    #[must_use]
    pub fn before_growth(&self, units: u64) -> Option<Self> {
        let data_end =
            units.checked_mul(ALLOCATION_UNIT_BYTES).and_then(|bytes| self.data_start.checked_add(bytes))?;
        let capacity = Bytes(data_end.checked_add(TAIL_BYTES + MEBIBYTE)?);
        let lies_before = data_end < self.data_end && back_at(capacity) + MEBIBYTE <= back_at(self.capacity);
        lies_before.then_some(Self { capacity, data_end, ..*self })
    }

    /// Checks a cut that was read from a label against itself.
    ///
    /// # Errors
    /// [`ExtentError::Contradiction`].
    pub fn check(&self) -> Result<(), ExtentError> {
        let units_aligned = self.data_start.is_multiple_of(ALLOCATION_UNIT_BYTES)
            && self.data_end.is_multiple_of(ALLOCATION_UNIT_BYTES);
        let ordered = METADATA_AT.checked_add(self.metadata.0).is_some_and(|end| end <= self.data_start)
            && self.data_start < self.data_end
            && self.data_end <= self.capacity.0;
        if units_aligned && ordered && self.metadata.0 >= METADATA_BYTES_MIN && self.capacity <= Bytes::MAX {
            return Ok(());
        }
        let Self { capacity, metadata, data_start, data_end } = *self;
        Err(ExtentError::Contradiction { capacity, metadata, data_start, data_end })
    }

    /// Checks that a device of `found` bytes still holds every allocation unit.
    ///
    /// # Errors
    /// [`ExtentError::CutShort`].
    pub fn fits(&self, found: Bytes) -> Result<(), ExtentError> {
        if found.0 < self.data_end {
            return Err(ExtentError::CutShort { found, data_end: self.data_end });
        }
        Ok(())
    }

    /// Allocation units of the disk.
    #[must_use]
    pub fn unit_count(&self) -> u64 {
        (self.data_end - self.data_start) / ALLOCATION_UNIT_BYTES
    }

    /// Address of an allocation unit.
    #[must_use]
    pub fn unit_at(&self, unit: u64) -> u64 {
        self.data_start + unit * ALLOCATION_UNIT_BYTES
    }
}

/// Address of the first back slot on a device of this size.
pub(crate) fn back_at(capacity: Bytes) -> u64 {
    capacity.align_down(MEBIBYTE).0.saturating_sub(MEBIBYTE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_disk_of_128_gb_loses_less_than_a_fifth_of_a_percent() {
        let capacity = Bytes(128_000_000_000);
        let extent = Extent::of(capacity).unwrap();
        let used = extent.unit_count() * ALLOCATION_UNIT_BYTES;
        assert!((capacity.0 - used) * 500 < capacity.0, "{extent:?}");
    }

    proptest! {
        #[test]
        fn every_cut_is_sound_and_survives_a_few_lost_megabytes(bytes in DISK_BYTES_MIN.0..(1u64 << 50), lost in 0u64..(7 << 20)) {
            let extent = Extent::of(Bytes(bytes)).unwrap();
            prop_assert_eq!(extent.check(), Ok(()));
            prop_assert_eq!(extent.fits(Bytes(bytes - lost)), Ok(()));
            prop_assert!(extent.data_end + TAIL_BYTES <= back_at(Bytes(bytes)));
            prop_assert!(extent.fits(Bytes(extent.data_end - 1)).is_err());
        }

        #[test]
        fn a_device_that_grows_keeps_what_lies_on_it(bytes in DISK_BYTES_MIN.0..(1u64 << 50), more in 0u64..(1 << 50)) {
            let extent = Extent::of(Bytes(bytes)).unwrap();
            let Some(grown) = extent.grown_to(Bytes(bytes + more)) else {
                prop_assert!(more < ALLOCATION_UNIT_BYTES + MEBIBYTE, "{more} bytes more bring nothing");
                return Ok(());
            };
            prop_assert_eq!(grown.check(), Ok(()));
            prop_assert_eq!((grown.metadata, grown.data_start), (extent.metadata, extent.data_start));
            prop_assert!(grown.unit_count() > extent.unit_count() && grown.data_end + TAIL_BYTES <= back_at(grown.capacity));
            prop_assert!(back_at(grown.capacity) >= back_at(extent.capacity) + MEBIBYTE, "the labels at the end lie elsewhere");
            prop_assert_eq!(grown.grown_to(Bytes(bytes)), None);
            let before = grown.before_growth(extent.unit_count()).unwrap();
            prop_assert_eq!((before.data_end, back_at(before.capacity)), (extent.data_end, back_at(extent.capacity)));
            prop_assert_eq!(grown.before_growth(grown.unit_count()), None);
        }

        #[test]
        fn nonsense_from_a_label_is_noticed(metadata in any::<u64>(), start in any::<u64>(), end in any::<u64>(), capacity in any::<u64>()) {
            let extent = Extent { capacity: Bytes(capacity), metadata: Bytes(metadata), data_start: start, data_end: end };
            if extent.check().is_ok() {
                prop_assert!(start < end && end <= capacity);
            }
        }
    }
}
