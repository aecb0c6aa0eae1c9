//! How the rows of a space are laid: one layout for all of them, or two while the space is converted (docs/design/0020).
//!
//! Invariants:
//! - Rows say with a number, 0 or 1, which of the two they have; a row never changes what its number means.
//! - What is claimed is of the layout that the space has now; the other one only becomes less.
//!
//! Left to others: moving rows from one to the other (`convert`).

use dolmen_units::Bytes;

use crate::format::raw::RawSpace;
use crate::format::resiliency::{Integrity, Resiliency};

/// How rows are laid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// How they survive the loss of disks.
    pub resiliency: Resiliency,
    /// Data columns, or automatic.
    pub columns: Option<u8>,
    /// Bytes written to one column before the next.
    pub interleave: Bytes,
    /// How flushed content is written over.
    pub integrity: Integrity,
}

impl Layout {
    /// The redundancy of the write cache that such rows need, if they need one.
    #[must_use]
    pub fn write_cache(self) -> Option<u8> {
        self.integrity.write_cache(self.resiliency)
    }
}

/// Which layouts the rows of a space have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Layouts {
    /// The number of rows that are laid as the space says.
    pub(crate) now: u8,
    /// What rows with the other number have, while there may be any.
    pub(crate) before: Option<Layout>,
}

impl Layouts {
    /// Writes them into the record of a space.
    pub(crate) fn write(&self, raw: &mut RawSpace) {
        raw.round = self.now;
        let Some(before) = self.before else { return };
        raw.before_resiliency = before.resiliency.number();
        raw.before_copies = before.resiliency.copies();
        raw.before_parity = before.resiliency.parity_columns();
        raw.before_columns = before.columns.unwrap_or(0);
        raw.before_integrity = before.integrity.number();
        raw.before_interleave_shift = u8::try_from(before.interleave.0.trailing_zeros()).unwrap_or(0);
    }

    /// Those in the record of a space; `None` for what no version writes.
    pub(crate) fn read(raw: &RawSpace) -> Option<Self> {
        let all = [
            raw.before_resiliency,
            raw.before_copies,
            raw.before_parity,
            raw.before_columns,
            raw.before_integrity,
            raw.before_interleave_shift,
        ];
        if raw.round > 1 {
            return None;
        }
        if all == [0; 6] {
            return Some(Self { now: raw.round, before: None });
        }
        let before = Layout {
            resiliency: Resiliency::of((raw.before_resiliency, raw.before_copies, raw.before_parity))?,
            columns: (raw.before_columns != 0).then_some(raw.before_columns),
            interleave: Bytes(1u64.checked_shl(raw.before_interleave_shift.into())?),
            integrity: Integrity::of(raw.before_integrity)?,
        };
        Some(Self { now: raw.round, before: Some(before) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::spec::SpaceSpec;
    use crate::format::spec::Standing;

    #[test]
    fn both_layouts_of_a_space_read_back_as_they_were_written() {
        let spec = SpaceSpec::usual("data".parse().unwrap(), Bytes::gib(1), Resiliency::Parity { parity: 2 });
        let mirror = Layout {
            resiliency: Resiliency::Mirror { copies: 3 },
            columns: Some(4),
            interleave: Bytes::kib(256),
            integrity: Integrity::Relaxed,
        };
        for now in [0, 1] {
            for before in [None, Some(mirror), Some(spec.layout())] {
                let layouts = Layouts { now, before };
                let read = SpaceSpec::parse(&spec.encode(Standing::Whole, layouts)).unwrap();
                assert_eq!((read.0.layout(), read.2), (spec.layout(), layouts));
            }
        }
        assert_eq!(spec.laid(mirror).laid(spec.layout()), spec);
    }
}
