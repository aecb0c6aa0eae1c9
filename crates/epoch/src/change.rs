//! Building the next epoch, and when it counts.

use dolmen_mutation::mutation;
use dolmen_units::{DiskId, Epoch, EpochId, Lsn};

use crate::record::{EpochRecord, Fork, LogSpan, Owner, RecordError, RecordParts, SPANS_MAX, ascending};

/// Why an epoch is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The epoch built on is open and in force on this host, which changes voters or exports.
    Change,
    /// A host opens a set that may write.
    Opening,
    /// A person confirmed the opening of a set that may not: a new line of history begins.
    Forced,
}

/// What the next epoch shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Successor {
    /// The highest number seen anywhere; the new one is above it.
    pub highest: Epoch,
    /// Who may open an incomplete set from now on.
    pub owner: Owner,
    /// The disks to carry record and log, in any order.
    pub voters: Vec<DiskId>,
    /// The disks that are here.
    pub present: Vec<DiskId>,
    /// Random bits.
    pub nonce: u64,
    /// The oldest place of the log that is still needed; equal to `first` when the log is empty.
    pub oldest: Lsn,
    /// The first place that the new epoch writes: right behind the last record that recovery took.
    pub first: Lsn,
    /// Why.
    pub kind: Kind,
}

/// A next epoch that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// None of the voters votes in the epoch built on, so nobody would know there that it is over.
    #[error(
        "no new voter carries epoch {built_on}; keep at least one of its {voters} voters, and drop it in a later epoch"
    )]
    NoVoterKept {
        /// The epoch built on.
        built_on: EpochId,
        /// How many voters it has.
        voters: usize,
    },
    /// A present voter of the epoch built on is dropped in an opening or an export.
    #[error(
        "disk {disk} carries epoch {built_on} and would not learn that it is over; keep it as a voter now, and drop it in a later epoch while the pool is open"
    )]
    VoterDropped {
        /// The epoch built on.
        built_on: EpochId,
        /// The voter that would be dropped.
        disk: DiskId,
    },
    /// Too many epochs wrote to the log since it was last empty.
    #[error(
        "the log would hold records of {found} epochs, and a label can tell {SPANS_MAX} apart, of which some are kept for disks that fail and for openings; wait until what is being written has ended and the log was trimmed, and try again"
    )]
    SpansFull {
        /// How many there would be.
        found: usize,
    },
    /// The log would begin before the stretch of the epoch built on.
    #[error(
        "the new epoch would write from {first}, before epoch {built_on} began to write at {began}; the log was not read to its end"
    )]
    LogBackwards {
        /// The epoch built on.
        built_on: EpochId,
        /// Where its stretch begins.
        began: Lsn,
        /// Where the new one would begin.
        first: Lsn,
    },
    /// More of the log is said to be unneeded than there is.
    #[error("the oldest needed log place {oldest} is behind the new epoch's first, {first}")]
    OldestAhead {
        /// The oldest needed place.
        oldest: Lsn,
        /// The first new place.
        first: Lsn,
    },
    /// Numbers are used up, or a label was made up.
    #[error(
        "no epoch can be numbered above {highest}; a label is forged or damaged in a way that its checksum hides"
    )]
    NumbersExhausted {
        /// The highest number seen.
        highest: Epoch,
    },
    /// The fields break a rule of records.
    #[error("the next epoch would be malformed")]
    Record(#[from] RecordError),
}

/// The record that follows `build_on`.
///
/// # Errors
/// See [`ChangeError`]; nothing has been changed then, and the epoch built on stays in force.
pub fn next(build_on: &EpochRecord, successor: Successor) -> Result<EpochRecord, ChangeError> {
    let highest = successor.highest.max(build_on.number());
    let number = highest.0.checked_add(1).map(Epoch).ok_or(ChangeError::NumbersExhausted { highest })?;
    let id = EpochId { number, nonce: successor.nonce };
    let voters = ascending(successor.voters.clone());
    check_kept(build_on, &voters, &successor)?;
    let spans = spans_for(id, build_on, successor.oldest, successor.first)?;
    let fork = match successor.kind {
        Kind::Change | Kind::Opening => build_on.fork(),
        Kind::Forced => {
            Some(Fork { forced: id, root: build_on.fork().map_or(build_on.number(), |fork| fork.root) })
        }
    };
    let predecessor = build_on.id();
    Ok(EpochRecord::new(RecordParts { id, predecessor, owner: successor.owner, voters, fork, spans })?)
}

/// Whether enough voters of the epoch built on will know that it is over.
///
/// While the pool is open one of them is enough: the arbiter closes the old epoch, and no disk holds any other
/// successor of it. An opening and an export have to reach every voter at hand: an old owner's arbiter may
/// still name the old epoch, and a half-written export may be waiting on just those disks for a majority.
fn check_kept(build_on: &EpochRecord, voters: &[DiskId], successor: &Successor) -> Result<(), ChangeError> {
    let built_on = build_on.id();
    if !voters.iter().any(|disk| build_on.voters().contains(disk)) {
        return Err(ChangeError::NoVoterKept { built_on, voters: build_on.voters().len() });
    }
    if successor.kind == Kind::Change && successor.owner == build_on.owner() {
        return Ok(());
    }
    let dropped = |disk: &&DiskId| successor.present.contains(disk) && !voters.contains(disk);
    match build_on.voters().iter().find(dropped) {
        Some(&disk) => Err(ChangeError::VoterDropped { built_on, disk }),
        None => Ok(()),
    }
}

/// The predecessor's spans without those that hold nothing needed, and the new epoch's own.
fn spans_for(
    id: EpochId,
    build_on: &EpochRecord,
    oldest: Lsn,
    first: Lsn,
) -> Result<Vec<LogSpan>, ChangeError> {
    if oldest > first {
        return Err(ChangeError::OldestAhead { oldest, first });
    }
    let own = LogSpan { epoch: id, first };
    let old = build_on.spans();
    if let Some(last) = old.last().filter(|last| last.first > first) {
        return Err(ChangeError::LogBackwards { built_on: build_on.id(), began: last.first, first });
    }
    let ends = old.iter().skip(1).map(|span| span.first).chain([first]);
    // An epoch that wrote nothing leaves no span; so a pool that is only opened and closed never fills them.
    let needed = old.iter().zip(ends).filter(|(span, end)| span.first < *end && *end > oldest);
    let mut spans: Vec<LogSpan> = needed.map(|(span, _)| *span).collect();
    spans.push(own);
    if spans.len() > SPANS_MAX {
        return Err(ChangeError::SpansFull { found: spans.len() });
    }
    Ok(spans)
}

/// Whether `record`, pended and flushed on the disks `holding`, counts: when every one of its voters holds it.
///
/// A majority is not enough: committed on two of three, both lost, the third knows nothing of it.
#[must_use]
pub fn commit_counts(holding: &[DiskId], record: &EpochRecord) -> bool {
    let count = record.voters().iter().filter(|disk| holding.contains(disk)).count();
    if mutation!(CommitByMajority) {
        return count * 2 > record.voters().len();
    }
    count == record.voters().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dolmen_units::HostId;

    fn disk(index: u8) -> DiskId {
        DiskId([index; 16])
    }

    fn host(index: u8) -> Owner {
        Owner::Host(HostId([index; 16]))
    }

    fn first() -> EpochRecord {
        EpochRecord::first(7, host(1), vec![disk(2), disk(1)], Lsn(1)).unwrap()
    }

    /// An epoch that wrote up to just before `first`.
    fn opening(build_on: &EpochRecord, first: u64) -> Successor {
        Successor {
            highest: build_on.number(),
            owner: host(1),
            voters: vec![disk(1), disk(2)],
            present: vec![disk(1), disk(2)],
            nonce: 9,
            oldest: Lsn(1),
            first: Lsn(first),
            kind: Kind::Opening,
        }
    }

    /// The next epoch is above every number seen, follows the one built on, and orders its voters.
    #[test]
    fn a_successor_is_above_all_and_names_its_predecessor() {
        let successor = Successor { highest: Epoch(5), ..opening(&first(), 3) };
        let record = next(&first(), successor).unwrap();
        assert_eq!((record.number(), record.predecessor()), (Epoch(6), first().id()));
        assert_eq!(record.voters(), [disk(1), disk(2)]);
        assert_eq!(record.writer_of(Lsn(2)), Some(first().id()));
        assert_eq!(record.writer_of(Lsn(3)), Some(record.id()));
        assert!(record.continues(&first()) && !first().continues(&record) && !record.is_forced());
    }

    /// A pool that is only opened and closed for ever never runs out of spans.
    #[test]
    fn epochs_that_wrote_nothing_leave_no_span() {
        let mut record = first();
        for _ in 0..3 * SPANS_MAX {
            record = next(&record, opening(&record, 1)).unwrap();
            assert_eq!(record.spans(), [LogSpan { epoch: record.id(), first: Lsn(1) }]);
        }
    }

    /// Sixteen writers fit; one more is refused until the log was emptied.
    #[test]
    fn full_spans_are_refused_until_the_log_is_empty() {
        let mut record = first();
        for place in 2..=16 {
            record = next(&record, opening(&record, place)).unwrap();
        }
        assert_eq!(record.spans().len(), SPANS_MAX);
        let refused = next(&record, opening(&record, 17));
        assert_eq!(refused, Err(ChangeError::SpansFull { found: SPANS_MAX + 1 }));
        let emptied = Successor { oldest: Lsn(17), ..opening(&record, 17) };
        assert_eq!(next(&record, emptied).unwrap().spans().len(), 1);
    }

    /// Only an open pool may drop a voter that is present, and never all voters at once.
    #[test]
    fn voters_are_dropped_only_while_the_pool_is_open() {
        let drop = Successor { voters: vec![disk(1)], ..opening(&first(), 1) };
        let error = ChangeError::VoterDropped { built_on: first().id(), disk: disk(2) };
        assert_eq!(next(&first(), drop.clone()), Err(error.clone()));
        let exported = Successor { kind: Kind::Change, owner: Owner::Exported, ..drop.clone() };
        assert_eq!(next(&first(), exported), Err(error));
        assert!(next(&first(), Successor { kind: Kind::Change, ..drop.clone() }).is_ok());
        assert!(next(&first(), Successor { present: vec![disk(1)], ..drop.clone() }).is_ok());
        let foreign = Successor { kind: Kind::Change, voters: vec![disk(3)], ..drop };
        let expected = ChangeError::NoVoterKept { built_on: first().id(), voters: 2 };
        assert_eq!(next(&first(), foreign), Err(expected));
    }

    /// The line of a forced epoch is inherited, with the root of the first confirmation.
    #[test]
    fn a_forced_line_is_inherited() {
        let forced = next(&first(), Successor { kind: Kind::Forced, ..opening(&first(), 2) }).unwrap();
        assert!(forced.is_forced() && forced.continues(&first()));
        let after = next(&forced, opening(&forced, 3)).unwrap();
        assert_eq!(after.fork(), forced.fork());
        assert!(!after.is_forced());
        let again = next(&after, Successor { kind: Kind::Forced, ..opening(&after, 4) }).unwrap();
        assert_eq!(again.fork().map(|fork| (fork.forced, fork.root)), Some((again.id(), Epoch(1))));
        // The other side, which went on from the first epoch, is no part of this history.
        let other = next(&first(), Successor { nonce: 8, ..opening(&first(), 2) }).unwrap();
        assert!(!again.continues(&other) && !other.continues(&again));
    }

    /// A log said to end before the present epoch's stretch, or trimmed past its end, was misread.
    #[test]
    fn a_log_that_runs_backwards_is_refused() {
        let record = next(&first(), opening(&first(), 5)).unwrap();
        assert!(matches!(next(&record, opening(&record, 4)), Err(ChangeError::LogBackwards { .. })));
        let ahead = Successor { oldest: Lsn(9), ..opening(&record, 6) };
        assert!(matches!(next(&record, ahead), Err(ChangeError::OldestAhead { .. })));
        let last = Successor { highest: Epoch(u64::MAX), ..opening(&record, 6) };
        assert!(matches!(next(&record, last), Err(ChangeError::NumbersExhausted { .. })));
    }

    /// A commit counts on every voter, whoever else holds it.
    #[test]
    fn a_commit_counts_on_every_voter() {
        assert!(commit_counts(&[disk(3), disk(2), disk(1)], &first()));
        assert!(!commit_counts(&[disk(2), disk(3)], &first()));
    }
}
