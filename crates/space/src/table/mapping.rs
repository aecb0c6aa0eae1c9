//! Where blocks of a row of a strict space are while they are not in place: in the write cache (docs/design/0004).
//!
//! A block has versions, oldest first: each is what a record in the log says of it. The newest is what it reads as. An older
//! one is kept until a flush has covered one behind it, since until then a power cut may bring it back.

use std::cell::RefCell;
use std::collections::BTreeMap;

use dolmen_units::Lsn;
use smallvec::{SmallVec, smallvec};

use crate::format::record::Place;
use crate::resources::locks::Range;
use crate::resources::tickets::Ticket;

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing: it was discarded.
    Discarded,
    /// What lies in a block of the write cache, with this CRC-32C.
    Cached {
        /// Which block.
        place: Place,
        /// Its checksum.
        checksum: u32,
    },
}

impl Content {
    /// The cache block, if there is one.
    pub(crate) fn place(self) -> Option<Place> {
        match self {
            Self::Discarded => None,
            Self::Cached { place, .. } => Some(place),
        }
    }
}

/// A version of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) content: Content,
    /// The record that said so first: the order of versions is that of these.
    pub(crate) since: Lsn,
    /// The record that said so last.
    pub(crate) relogged: Lsn,
    /// The write that made it; `None` when a flush has covered it since before the pool was opened.
    pub(crate) ticket: Option<Ticket>,
}

/// The ticket of a version of which nobody could tell whether it is whole: its copies left before a flush had covered it, or
/// were away when the pool was opened.
pub(crate) const IN_DOUBT: Ticket = Ticket(u64::MAX - 1);

/// The versions of one block; mostly it is one.
pub(crate) type Versions = SmallVec<[Version; 1]>;

/// What of a row is in the write cache, by block of the row.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    blocks: RefCell<BTreeMap<u32, Versions>>,
}

impl Mappings {
    /// Whether all of the row is in place.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.borrow().is_empty()
    }

    /// The versions of a block.
    pub(crate) fn versions(&self, block: u32) -> Versions {
        self.blocks.borrow().get(&block).cloned().unwrap_or_default()
    }

    /// The newest version of a block.
    pub(crate) fn newest(&self, block: u32) -> Option<Version> {
        self.blocks.borrow().get(&block)?.last().copied()
    }

    /// Whether there are versions of any of these blocks.
    pub(crate) fn has_any_of(&self, range: Range) -> bool {
        self.blocks.borrow().range(range.first..range.first + range.count).next().is_some()
    }

    /// Adds a version.
    pub(crate) fn add(&self, block: u32, version: Version) {
        let mut blocks = self.blocks.borrow_mut();
        let versions = blocks.entry(block).or_default();
        let at = versions.iter().rposition(|other| other.since <= version.since).map_or(0, |at| at + 1);
        versions.insert(at, version);
    }

    /// Forgets the versions of a block before its newest one that is covered; those forgotten.
    pub(crate) fn prune(&self, block: u32, is_covered: impl Fn(&Version) -> bool) -> Versions {
        let mut blocks = self.blocks.borrow_mut();
        let Some(versions) = blocks.get_mut(&block) else { return smallvec![] };
        let covered = versions.iter().rposition(is_covered).unwrap_or(0);
        versions.drain(..covered).collect()
    }

    /// Forgets the version of a block that a record said first, and all before it: they were put in place. Those forgotten.
    pub(crate) fn end(&self, block: u32, since: Lsn) -> Versions {
        let mut blocks = self.blocks.borrow_mut();
        let Some(versions) = blocks.get_mut(&block) else { return smallvec![] };
        let ended = versions.iter().take_while(|version| version.since <= since).count();
        let forgotten = versions.drain(..ended).collect();
        if versions.is_empty() {
            blocks.remove(&block);
        }
        forgotten
    }

    /// Forgets one version of a block, which came to nothing.
    pub(crate) fn void(&self, block: u32, since: Lsn) -> Versions {
        let mut blocks = self.blocks.borrow_mut();
        let Some(versions) = blocks.get_mut(&block) else { return smallvec![] };
        let (void, kept): (Versions, Versions) =
            versions.drain(..).partition(|version| version.since == since);
        *versions = kept;
        if versions.is_empty() {
            blocks.remove(&block);
        }
        void
    }

    /// Forgets everything; what that was.
    pub(crate) fn clear(&self) -> Vec<Version> {
        std::mem::take(&mut *self.blocks.borrow_mut()).into_values().flatten().collect()
    }

    /// All versions, by block and oldest first.
    pub(crate) fn all(&self) -> Vec<(u32, Version)> {
        let blocks = self.blocks.borrow();
        blocks.iter().flat_map(|(block, versions)| versions.iter().map(|one| (*block, *one))).collect()
    }

    /// Blocks with versions in a range.
    pub(crate) fn in_range(&self, range: std::ops::Range<u32>) -> Vec<u32> {
        self.blocks.borrow().range(range).map(|(block, _)| *block).collect()
    }

    /// Notes that nobody can tell whether a version is whole.
    pub(crate) fn note_in_doubt(&self, block: u32, since: Lsn) {
        if let Some(versions) = self.blocks.borrow_mut().get_mut(&block) {
            let meant = versions.iter_mut().filter(|version| version.since == since);
            meant.for_each(|version| version.ticket = Some(IN_DOUBT));
        }
    }

    /// Notes that a version of which nobody could tell whether it is whole was found to be so, durably.
    pub(crate) fn note_decided(&self, block: u32, since: Lsn) {
        if let Some(versions) = self.blocks.borrow_mut().get_mut(&block) {
            let in_doubt =
                |version: &&mut Version| version.since == since && version.ticket == Some(IN_DOUBT);
            versions.iter_mut().filter(in_doubt).for_each(|version| version.ticket = None);
        }
    }

    /// Notes that a version was relogged.
    pub(crate) fn note_relogged(&self, block: u32, since: Lsn, relogged: Lsn) {
        if let Some(versions) = self.blocks.borrow_mut().get_mut(&block) {
            let version = versions.iter_mut().find(|version| version.since == since);
            version.into_iter().for_each(|version| version.relogged = relogged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(since: u64) -> Version {
        Version { content: Content::Discarded, since: Lsn(since), relogged: Lsn(since), ticket: None }
    }

    fn left(mappings: &Mappings) -> Vec<u64> {
        mappings.versions(5).iter().map(|version| version.since.0).collect()
    }

    #[test]
    fn versions_are_ordered_by_first_record_and_end_when_a_later_one_counts() {
        let mappings = Mappings::default();
        for since in [20, 10, 40, 30] {
            mappings.add(5, version(since));
        }
        assert_eq!((left(&mappings), mappings.newest(5)), (vec![10, 20, 30, 40], Some(version(40))));
        assert_eq!(mappings.prune(5, |version| version.since <= Lsn(20)).len(), 1);
        assert_eq!(left(&mappings), [20, 30, 40]);
        assert_eq!(mappings.end(5, Lsn(30)).len(), 2);
        assert_eq!(left(&mappings), [40]);
        mappings.add(5, version(50));
        assert_eq!(mappings.void(5, Lsn(50)).len(), 1);
        assert_eq!(mappings.end(5, Lsn(40)).len(), 1);
        assert!(mappings.is_empty());
    }
}
