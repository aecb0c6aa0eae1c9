//! What the log says of the write cache is relogged before the log is trimmed (docs/design/0004).
//!
//! Invariants:
//! - A redo stands behind all that the log says of the versions that end with it, wherever the log begins.
//! - What is left in doubt is said to be that behind whatever was said of it before.
//!
//! Left to others: when, and how much at a time (`log_forward`).

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_journal::Wait;
use dolmen_units::Lsn;

use crate::cache::segments::{CacheIndex, RELOG_BYTES, mapping_of};
use crate::format::error::SpaceError;
use crate::format::record::{Mapping, Place, RECORD_BYTES_MAX, RedoHead, push_redo, redo_bytes};
use crate::row_io::block_log::BlockLog;
use crate::table::mapping::{Content, Version};
use crate::table::redo::Redo;
use crate::table::row::Row;
use crate::table::space::Cache;

/// More than the longest of what is relogged takes.
const RELOG_AT_ONCE_BYTES: usize = 2048;
/// Versions that one record calls void, at most.
const VOIDS_AT_ONCE: usize = RECORD_BYTES_MAX / 128;

/// Something that the log says of the cache and nothing else does, and the record that said so last.
pub(crate) struct Cached {
    row: Rc<Row>,
    what: What,
    pub(crate) relogged: Lsn,
}

/// In the order in which they are said if one record had both: a redo stands behind the versions that end with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The version of a block of the row that was said first by this record.
    Version { block: u32, since: Lsn },
    /// A stripe of the row that may be half in place.
    Redo { stripe: u32 },
}

impl Cached {
    /// Orders them as the log has them.
    pub(crate) fn order(&self) -> impl Ord + use<> {
        (self.relogged, matches!(self.what, What::Redo { .. }), self.row.space, self.row.index, self.what)
    }

    /// Bytes that saying it again takes, at most.
    pub(crate) fn bytes(&self) -> u64 {
        match self.what {
            What::Version { .. } => RELOG_BYTES,
            What::Redo { .. } => redo_bytes(self.row.shape.columns()),
        }
    }
}

/// Mappings of a write cache that are logged again.
#[derive(Clone, Copy)]
pub(crate) struct CacheRelog<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> CacheRelog<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl CacheRelog<'_> {
    /// What the log says of the cache before `cut` and not since.
    pub(crate) fn logged_below(self, cut: Lsn) -> Vec<Cached> {
        let mut found = Vec::new();
        for row in self.cache.rows.borrow().values() {
            let old = row.mappings.all().into_iter().filter(|(_, version)| version.relogged < cut);
            found.extend(old.map(|(block, Version { since, relogged, .. })| Cached {
                row: Rc::clone(row),
                what: What::Version { block, since },
                relogged,
            }));
        }
        let unfinished = self.cache.unfinished.borrow();
        // It goes behind what ends with it also where that alone is relogged.
        let is_old = |redo: &&Redo| {
            let versions = |block: u32| redo.row.mappings.versions(block);
            let mut ends = redo.ends.iter();
            redo.relogged < cut
                || ends.any(|(block, since)| {
                    versions(*block).iter().any(|version| version.since <= *since && version.relogged < cut)
                })
        };
        let old = unfinished.iter().filter(is_old);
        found.extend(old.map(|redo| Cached {
            row: Rc::clone(&redo.row),
            what: What::Redo { stripe: redo.stripe },
            relogged: redo.relogged,
        }));
        found
    }

    /// Says some of that again in its order, as far as it counts still. The caller holds the turn.
    pub(crate) async fn relog_again(self, some: impl Iterator<Item = &Cached>) -> Result<(), SpaceError> {
        let mut body: Vec<u8> = Vec::new();
        let mut relogged: Vec<(Rc<Row>, What)> = Vec::new();
        for Cached { row, what, .. } in some {
            match what {
                What::Version { block, since } => {
                    let versions = row.mappings.versions(*block);
                    let Some(version) = versions.iter().find(|version| version.since == *since) else {
                        continue;
                    };
                    let covered = CacheIndex::of(self.cache).is_covered(version);
                    // What this recovery found to be whole is so for good when it has ended: the flush behind it covers this.
                    let is_decided_now = self.cache.shared().recovering.get() && version.ticket.is_some();
                    push_version(&mut body, (row, *block), version, (covered && !is_decided_now, !covered));
                }
                What::Redo { stripe } => {
                    let unfinished = self.cache.unfinished.borrow();
                    let Some(redo) = unfinished.iter().find(|redo| redo.is_of(row, *stripe)) else {
                        continue;
                    };
                    push_redo(&mut body, RedoHead { covered: true, ..redo.head() }, &redo.blocks);
                }
            }
            relogged.push((Rc::clone(row), *what));
            if body.len() > RECORD_BYTES_MAX - RELOG_AT_ONCE_BYTES {
                self.relog(&mut body, &mut relogged).await?;
            }
        }
        if body.is_empty() { Ok(()) } else { self.relog(&mut body, &mut relogged).await }
    }

    #[pooled]
    async fn relog(self, body: &mut Vec<u8>, relogged: &mut Vec<(Rc<Row>, What)>) -> Result<(), SpaceError> {
        let lsn = BlockLog::of(self.cache.shared()).record_relogged(body).await?;
        body.clear();
        for (row, what) in relogged.drain(..) {
            match what {
                What::Version { block, since } => row.mappings.note_relogged(block, since, lsn),
                What::Redo { stripe } => {
                    let mut unfinished = self.cache.unfinished.borrow_mut();
                    unfinished
                        .iter_mut()
                        .filter(|redo| redo.is_of(&row, stripe))
                        .for_each(|redo| redo.relogged = lsn);
                }
            }
        }
        Ok(())
    }

    /// As [`leave_in_doubt`](Self::leave_in_doubt), for what was left before the blocks were known to be written.
    pub(crate) async fn defer_what_left(
        self,
        at: usize,
        (first, count): (u32, u32),
    ) -> Result<(), SpaceError> {
        let row = self.cache.row_at(at);
        let Some(row) = row.filter(|row| self.cache.shared().is_deferred(row)) else { return Ok(()) };
        let blocks = (first..first + count).filter(|block| self.cache.shared().is_in_doubt(&row, 0, *block));
        self.leave_in_doubt(&row, &blocks.map(|block| (0, block)).collect()).await
    }

    /// Notes that blocks of a row of the cache are left in doubt: what lies there is not covered by the flush that passes over
    /// them, and the log says so.
    #[pooled]
    pub(crate) async fn leave_in_doubt(
        self,
        at: &Row,
        blocks: &BTreeSet<(usize, u32)>,
    ) -> Result<(), SpaceError> {
        let is_there = |place: Place| place.row == at.id && blocks.contains(&(0, place.block));
        let rows: Vec<Rc<Row>> = self.cache.rows.borrow().values().cloned().collect();
        self.abandon_recorded(is_there).await?;
        let mut body: Vec<u8> = Vec::new();
        let mut relogged: Vec<(Rc<Row>, What)> = Vec::new();
        for row in rows {
            for (block, version) in row.mappings.all() {
                if version.content.place().is_some_and(is_there) {
                    row.mappings.note_in_doubt(block, version.since);
                    push_version(&mut body, (&row, block), &version, (false, true));
                    relogged.push((Rc::clone(&row), What::Version { block, since: version.since }));
                }
                if body.len() > RECORD_BYTES_MAX - RELOG_AT_ONCE_BYTES {
                    self.relog(&mut body, &mut relogged).await?;
                }
            }
        }
        if body.is_empty() { Ok(()) } else { self.relog(&mut body, &mut relogged).await }
    }

    /// Says that versions which came to nothing are void. Their places may be filled with the same content again, and by that the
    /// next opening would take them for whole.
    pub(crate) async fn log_abandoned(self) -> Result<(), SpaceError> {
        let declared_lost = self.cache.declared_lost.take();
        for some in declared_lost.chunks(VOIDS_AT_ONCE) {
            let mut body: Vec<u8> = Vec::new();
            for (void, checksum) in some {
                body.extend_from_slice(&void.head());
                body.extend_from_slice(&checksum.to_le_bytes());
            }
            BlockLog::of(self.cache.shared()).record(&body, Wait::Written).await?;
        }
        Ok(())
    }

    /// Abandons stripes that are recorded and that need what is at these places, and says that their records are void: before a
    /// flush marks these.
    pub(crate) async fn abandon_recorded(self, is_there: impl Fn(Place) -> bool) -> Result<(), SpaceError> {
        let is_left = |redo: &Redo| redo.own_places().any(&is_there);
        let (left, stand) = self.cache.recorded.take().into_iter().partition(is_left);
        *self.cache.recorded.borrow_mut() = stand;
        let left: Vec<Redo> = left;
        let mut body: Vec<u8> = Vec::new();
        for (nth, redo) in (1..).zip(&left) {
            push_redo(&mut body, RedoHead { void: true, ..redo.head() }, &redo.blocks);
            if nth == left.len() || body.len() > RECORD_BYTES_MAX - RELOG_AT_ONCE_BYTES {
                BlockLog::of(self.cache.shared()).record(&body, Wait::Written).await?;
                body.clear();
            }
        }
        Ok(())
    }
}

/// Adds to a record what was said of a version before: whether a flush has covered that, and whether it is in doubt.
fn push_version(
    body: &mut Vec<u8>,
    (row, block): (&Row, u32),
    version: &Version,
    (covered, in_doubt): (bool, bool),
) {
    let mapping = mapping_of(row, block, 1, version.content.place());
    let mapping = Mapping { since: Some(version.since), covered, in_doubt, ..mapping };
    body.extend_from_slice(&mapping.head());
    if let Content::Cached { checksum, .. } = version.content {
        body.extend_from_slice(&checksum.to_le_bytes());
    }
}
