//! What a check may find. Numbers are given once and never again.

use dolmen_units::{Bytes, DiskId, DiskSlot, Name};

/// One deviation from what should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The pool that it is about, where one is known.
    pub pool: Option<Name>,
    /// What it is.
    pub kind: FindingKind,
}

/// What deviates.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindingKind {
    /// A copy of a disk's label is damaged; another one is sound.
    #[error("{disk}: a copy of its label is damaged: {cause}; the other copies tell all of it")]
    LabelDamaged {
        /// Which disk.
        disk: String,
        /// What is wrong with the copy.
        cause: String,
    },
    /// No label of a disk can be used.
    #[error(
        "{disk}: it has labels of a pool, and none of them can be used: {cause}; its content is not reached"
    )]
    LabelsUnusable {
        /// Which disk.
        disk: String,
        /// What is wrong.
        cause: String,
    },
    /// A disk cannot be read.
    #[error("{disk}: it cannot be read: {cause}")]
    Unreadable {
        /// Which disk.
        disk: String,
        /// What the disk says.
        cause: String,
    },
    /// A device belongs to no pool.
    #[error("{disk}: it belongs to no pool: {what}; leave it out of the check")]
    NoMember {
        /// Which device.
        disk: String,
        /// What it holds.
        what: String,
    },
    /// A member is not among the disks given, or was away when the pool was used last.
    #[error("{slot} ({id}) is missing; what it holds was not checked")]
    Missing {
        /// Its place in the pool.
        slot: DiskSlot,
        /// Its identity.
        id: DiskId,
    },
    /// The pool cannot be opened.
    #[error("the pool cannot be opened: {cause}")]
    Unopenable {
        /// Why.
        cause: String,
    },
    /// The map contradicts itself.
    #[error("the map contradicts itself: {what}")]
    Map {
        /// Where and how.
        what: String,
    },
    /// The check of the metadata or of the content ended early.
    #[error("checking {what} ended early: {cause}")]
    Cut {
        /// What was being checked.
        what: &'static str,
        /// Why it ended.
        cause: String,
    },
    /// Rows have slabs that missed writes.
    #[error(
        "{rows} rows have less redundancy than they should: a disk missed writes, or a job was cut short; open the pool, a resync restores it"
    )]
    Stale {
        /// How many.
        rows: u64,
    },
    /// Copies on a disk do not match their checksums, or cannot be read; another copy of each is good.
    #[error(
        "{disk}: {blocks} blocks are damaged, {errors} reads failed; what another copy can give, `dolmen scrub` heals"
    )]
    Damaged {
        /// Which disk.
        disk: String,
        /// Blocks that did not match.
        blocks: u64,
        /// Reads that failed.
        errors: u64,
    },
    /// Content that no copy can give.
    #[error("space {space}: {length} from byte {at} on are lost: no copy matches its checksum")]
    Lost {
        /// Which space.
        space: Name,
        /// First byte.
        at: u64,
        /// How much.
        length: Bytes,
    },
    /// Content of a space whose copies are all on disks that were not given: all of it in one sum.
    #[error("space {space}: {length} are out of reach, {}: the disks that hold them are missing", where_is(*pieces, *at, *end))]
    OutOfReach {
        /// Which space.
        space: Name,
        /// How much.
        length: Bytes,
        /// In how many ranges.
        pieces: usize,
        /// The first byte of the first.
        at: u64,
        /// The first byte behind the last.
        end: u64,
    },
    /// Content whose table is lost.
    #[error(
        "space {space}: what {length} from byte {at} on held is unknown: no copy of the table can be believed"
    )]
    TableLost {
        /// Which space.
        space: Name,
        /// First byte.
        at: u64,
        /// How much.
        length: Bytes,
    },
    /// The header of a slab is not what the map says of it.
    #[error(
        "{disk}: the header of column {column} of row {row} of space {space} is wrong: {cause}; no content hangs on it, `dolmen scrub` writes it again"
    )]
    HeaderWrong {
        /// Which disk.
        disk: String,
        /// Which space; of rows that no client sees, the hidden one.
        space: Name,
        /// Which row of it.
        row: u64,
        /// Which column of the row.
        column: usize,
        /// What is wrong with it.
        cause: String,
    },
    /// Content that recovery takes as it is.
    #[error(
        "space {space}: {length} from byte {at} on were being overwritten when power failed, and lost their other copies in that instant; they are accepted unverified"
    )]
    AcceptedUnverified {
        /// Which space.
        space: Name,
        /// First byte.
        at: u64,
        /// How much.
        length: Bytes,
    },
}

impl FindingKind {
    /// Its number, the same in every version.
    #[must_use]
    pub const fn number(&self) -> u16 {
        match self {
            Self::LabelDamaged { .. } => 101,
            Self::LabelsUnusable { .. } => 102,
            Self::Unreadable { .. } => 103,
            Self::NoMember { .. } => 104,
            Self::Missing { .. } => 105,
            Self::Unopenable { .. } => 201,
            Self::Map { .. } => 202,
            Self::Cut { .. } => 203,
            Self::Stale { .. } => 301,
            Self::Damaged { .. } => 302,
            Self::Lost { .. } => 303,
            Self::TableLost { .. } => 304,
            Self::AcceptedUnverified { .. } => 305,
            Self::OutOfReach { .. } => 306,
            Self::HeaderWrong { .. } => 307,
        }
    }

    /// Its name, the same in every version.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::LabelDamaged { .. } => "label_damaged",
            Self::LabelsUnusable { .. } => "labels_unusable",
            Self::Unreadable { .. } => "unreadable",
            Self::NoMember { .. } => "no_member",
            Self::Missing { .. } => "missing",
            Self::Unopenable { .. } => "unopenable",
            Self::Map { .. } => "map",
            Self::Cut { .. } => "cut",
            Self::Stale { .. } => "stale",
            Self::Damaged { .. } => "damaged",
            Self::Lost { .. } => "lost",
            Self::TableLost { .. } => "table_lost",
            Self::AcceptedUnverified { .. } => "accepted_unverified",
            Self::OutOfReach { .. } => "out_of_reach",
            Self::HeaderWrong { .. } => "header_wrong",
        }
    }
}

/// Where ranges are: one of them by its beginning, several by where the first begins and the last ends.
fn where_is(pieces: usize, at: u64, end: u64) -> String {
    match pieces {
        1 => format!("from byte {at} on"),
        _ => format!("in {pieces} pieces between byte {at} and byte {end}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EXPLAINED;

    /// One of each.
    fn all() -> Vec<FindingKind> {
        let (disk, cause, what) = (String::new, String::new, String::new);
        let space: Name = "data".parse().unwrap();
        let (at, length) = (0, Bytes::ZERO);
        vec![
            FindingKind::LabelDamaged { disk: disk(), cause: cause() },
            FindingKind::LabelsUnusable { disk: disk(), cause: cause() },
            FindingKind::Unreadable { disk: disk(), cause: cause() },
            FindingKind::NoMember { disk: disk(), what: what() },
            FindingKind::Missing { slot: DiskSlot(0), id: DiskId::NONE },
            FindingKind::Unopenable { cause: cause() },
            FindingKind::Map { what: what() },
            FindingKind::Cut { what: "", cause: cause() },
            FindingKind::Stale { rows: 0 },
            FindingKind::Damaged { disk: disk(), blocks: 0, errors: 0 },
            FindingKind::Lost { space: space.clone(), at, length },
            FindingKind::TableLost { space: space.clone(), at, length },
            FindingKind::AcceptedUnverified { space: space.clone(), at, length },
            FindingKind::OutOfReach { space: space.clone(), length, pieces: 1, at, end: 0 },
            FindingKind::HeaderWrong { disk: disk(), space, row: 0, column: 0, cause: cause() },
        ]
    }

    #[test]
    fn every_kind_is_explained_under_its_own_number_and_name() {
        let kinds: Vec<(u16, &str)> = all().iter().map(|kind| (kind.number(), kind.name())).collect();
        let explained: Vec<(u16, &str)> = EXPLAINED.iter().map(|one| (one.number, one.name)).collect();
        assert_eq!(kinds, explained);
    }
}
