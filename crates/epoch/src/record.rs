//! The record of one epoch, as labels keep it.

use std::fmt;

use dolmen_units::{DiskId, Epoch, EpochId, HostId, Lsn};

/// Voters of an epoch, at most: more than the largest redundancy of any space, twice over, and few enough that
/// a label block holds two records.
pub const VOTERS_MAX: usize = 9;
/// Stretches of the log that a record can tell apart, at most.
pub const SPANS_MAX: usize = 16;

/// Who may open a pool whose disks are not all there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// This host, when its arbiter agrees.
    Host(HostId),
    /// Nobody in particular: whoever has a majority of the voters.
    Exported,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => write!(f, "host {host}"),
            Self::Exported => f.write_str("nobody (exported)"),
        }
    }
}

/// A stretch of the log: records from `first` up to the next span's `first` count only if `epoch` wrote them.
/// What a stale disk holds at the same place was written by another epoch, and was never served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogSpan {
    /// The writer.
    pub epoch: EpochId,
    /// The first place of the stretch.
    pub first: Lsn,
}

/// Where a confirmed opening left the line of history that others may have continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fork {
    /// The latest forced epoch in this record's past (or this record): the name of its line.
    pub forced: EpochId,
    /// The last number that this line surely shares with the line that was never forced. Later confirmed
    /// openings keep the first one's value.
    pub root: Epoch,
}

/// The fields of a record, unchecked: what a label is decoded into and encoded from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordParts {
    /// Number and random bits.
    pub id: EpochId,
    /// The epoch built on; all zeros for a pool's first.
    pub predecessor: EpochId,
    /// Who may open an incomplete set.
    pub owner: Owner,
    /// The disks that carry this record and the log, 1 to [`VOTERS_MAX`], ascending, each once.
    pub voters: Vec<DiskId>,
    /// The line of history, if it was ever forced.
    pub fork: Option<Fork>,
    /// Which epoch wrote which stretch of the log, oldest first, 1 to [`SPANS_MAX`]; the last is this epoch's.
    pub spans: Vec<LogSpan>,
}

/// The record of one epoch, checked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct EpochRecord(RecordParts);

/// Fields that no epoch can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Too few or too many voters.
    #[error("epoch {id} names {found} voters; expected 1 to {VOTERS_MAX}")]
    VoterCount {
        /// The epoch.
        id: EpochId,
        /// How many it names.
        found: usize,
    },
    /// Voters out of order, twice or nameless.
    #[error("epoch {id} names voter {disk} out of ascending order, twice, or without an id")]
    VoterOrder {
        /// The epoch.
        id: EpochId,
        /// The first offender.
        disk: DiskId,
    },
    /// Too few or too many spans.
    #[error("epoch {id} has {found} log spans; expected 1 to {SPANS_MAX}")]
    SpanCount {
        /// The epoch.
        id: EpochId,
        /// How many it has.
        found: usize,
    },
    /// A span that does not follow the one before it, in place and in number.
    #[error("epoch {id}: the log span of epoch {span} does not follow the span before it")]
    SpanOrder {
        /// The epoch.
        id: EpochId,
        /// The epoch that the offending span names.
        span: EpochId,
    },
    /// The last span is another epoch's.
    #[error("epoch {id}: the last log span belongs to epoch {found}; expected its own")]
    LastSpan {
        /// The epoch.
        id: EpochId,
        /// The epoch that the last span names.
        found: EpochId,
    },
    /// A predecessor that is not older.
    #[error("epoch {id} follows epoch {predecessor}, which is not older")]
    Predecessor {
        /// The epoch.
        id: EpochId,
        /// The predecessor it names.
        predecessor: EpochId,
    },
    /// A fork that lies in the future, or before the first epoch.
    #[error("epoch {id}: forced epoch {forced} with root {root} is not in its past")]
    Fork {
        /// The epoch.
        id: EpochId,
        /// The forced epoch it names.
        forced: EpochId,
        /// The root it names.
        root: Epoch,
    },
    /// An owner without an id.
    #[error("epoch {id} is owned by a host without an id")]
    NamelessOwner {
        /// The epoch.
        id: EpochId,
    },
}

impl EpochRecord {
    /// Checks the fields that came from a label or from a change of epoch.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn new(parts: RecordParts) -> Result<Self, RecordError> {
        let id = parts.id;
        if parts.predecessor.number >= id.number {
            return Err(RecordError::Predecessor { id, predecessor: parts.predecessor });
        }
        if parts.owner == Owner::Host(HostId::NONE) {
            return Err(RecordError::NamelessOwner { id });
        }
        check_voters(id, &parts.voters)?;
        check_spans(id, &parts.spans)?;
        if let Some(fork) = parts.fork {
            check_fork(id, fork)?;
        }
        Ok(Self(parts))
    }

    /// The first epoch of a new pool.
    ///
    /// # Errors
    /// Voters that are none, too many or nameless; a nameless owner.
    pub fn first(nonce: u64, owner: Owner, voters: Vec<DiskId>, log: Lsn) -> Result<Self, RecordError> {
        let id = EpochId { number: Epoch(1), nonce };
        Self::new(RecordParts {
            id,
            predecessor: EpochId::default(),
            owner,
            voters: ascending(voters),
            fork: None,
            spans: vec![LogSpan { epoch: id, first: log }],
        })
    }

    /// The fields, to be encoded.
    #[must_use]
    pub fn parts(&self) -> &RecordParts {
        &self.0
    }

    /// Number and random bits.
    #[must_use]
    pub fn id(&self) -> EpochId {
        self.0.id
    }

    /// The number, which orders epochs of one line.
    #[must_use]
    pub fn number(&self) -> Epoch {
        self.0.id.number
    }

    /// The epoch built on.
    #[must_use]
    pub fn predecessor(&self) -> EpochId {
        self.0.predecessor
    }

    /// Who may open an incomplete set.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.0.owner
    }

    /// The voters, ascending.
    #[must_use]
    pub fn voters(&self) -> &[DiskId] {
        &self.0.voters
    }

    /// The line of history, if it was ever forced.
    #[must_use]
    pub fn fork(&self) -> Option<Fork> {
        self.0.fork
    }

    /// Whether this very epoch began with a confirmation.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        self.0.fork.is_some_and(|fork| fork.forced == self.0.id)
    }

    /// Which epoch wrote which stretch of the log, oldest first.
    #[must_use]
    pub fn spans(&self) -> &[LogSpan] {
        &self.0.spans
    }

    /// The epoch whose record at `lsn` counts, or none for what was trimmed before the oldest span.
    #[must_use]
    pub fn writer_of(&self, lsn: Lsn) -> Option<EpochId> {
        self.0.spans.iter().rev().find(|span| span.first <= lsn).map(|span| span.epoch)
    }

    /// Whether `other` is surely this epoch or in its past. False also when that is merely unknown.
    #[must_use]
    pub fn continues(&self, other: &Self) -> bool {
        let same_line = self.fork() == other.fork() && other.number() <= self.number();
        let before_the_fork =
            other.fork().is_none() && self.fork().is_some_and(|fork| other.number() <= fork.root);
        let named = self.predecessor() == other.id() || self.spans().iter().any(|s| s.epoch == other.id());
        self.id() == other.id() || same_line || before_the_fork || named
    }
}

/// Sorted, each once.
pub(crate) fn ascending(mut voters: Vec<DiskId>) -> Vec<DiskId> {
    voters.sort_unstable();
    voters.dedup();
    voters
}

fn check_voters(id: EpochId, voters: &[DiskId]) -> Result<(), RecordError> {
    if voters.is_empty() || voters.len() > VOTERS_MAX {
        return Err(RecordError::VoterCount { id, found: voters.len() });
    }
    // No disk has the id of all zeros, so every voter has to be above it.
    let mut before = DiskId::NONE;
    for &disk in voters {
        if disk <= before {
            return Err(RecordError::VoterOrder { id, disk });
        }
        before = disk;
    }
    Ok(())
}

fn check_spans(id: EpochId, spans: &[LogSpan]) -> Result<(), RecordError> {
    let Some(last) = spans.last().filter(|_| spans.len() <= SPANS_MAX) else {
        return Err(RecordError::SpanCount { id, found: spans.len() });
    };
    if last.epoch != id {
        return Err(RecordError::LastSpan { id, found: last.epoch });
    }
    for (before, span) in spans.iter().zip(spans.iter().skip(1)) {
        if span.first <= before.first || span.epoch.number <= before.epoch.number {
            return Err(RecordError::SpanOrder { id, span: span.epoch });
        }
    }
    Ok(())
}

fn check_fork(id: EpochId, fork: Fork) -> Result<(), RecordError> {
    let is_own = fork.forced == id;
    let is_past = fork.forced.number < id.number;
    if (is_own || is_past) && fork.root < fork.forced.number && fork.root > Epoch(0) {
        return Ok(());
    }
    Err(RecordError::Fork { id, forced: fork.forced, root: fork.root })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(index: u8) -> DiskId {
        DiskId([index; 16])
    }

    fn parts() -> RecordParts {
        let id = EpochId { number: Epoch(3), nonce: 5 };
        let before = EpochId { number: Epoch(2), nonce: 4 };
        let spans = vec![LogSpan { epoch: before, first: Lsn(1) }, LogSpan { epoch: id, first: Lsn(9) }];
        let owner = Owner::Host(HostId([1; 16]));
        RecordParts { id, predecessor: before, owner, voters: vec![disk(1), disk(2)], fork: None, spans }
    }

    /// Parts that were checked once are accepted again, as a label gives them back.
    #[test]
    fn a_record_survives_its_label() {
        let record = EpochRecord::new(parts()).unwrap();
        assert_eq!(EpochRecord::new(record.parts().clone()), Ok(record));
    }

    /// Each rule of a record refuses the fields that break it.
    #[test]
    fn malformed_fields_are_refused() {
        type Break = fn(&mut RecordParts);
        type Expect = fn(&RecordError) -> bool;
        let breaks: [(Break, Expect); 12] = [
            (|p| p.voters.clear(), |e| matches!(e, RecordError::VoterCount { found: 0, .. })),
            (|p| p.voters = (1..=10).map(disk).collect(), |e| matches!(e, RecordError::VoterCount { .. })),
            (|p| p.voters.reverse(), |e| matches!(e, RecordError::VoterOrder { .. })),
            (|p| p.voters = vec![disk(1), disk(1)], |e| matches!(e, RecordError::VoterOrder { .. })),
            (|p| p.voters = vec![disk(0)], |e| matches!(e, RecordError::VoterOrder { .. })),
            (|p| p.spans.clear(), |e| matches!(e, RecordError::SpanCount { .. })),
            (|p| p.spans.reverse(), |e| matches!(e, RecordError::LastSpan { .. })),
            (|p| p.spans[0].first = Lsn(9), |e| matches!(e, RecordError::SpanOrder { .. })),
            (|p| p.spans[0].epoch = p.id, |e| matches!(e, RecordError::SpanOrder { .. })),
            (|p| p.predecessor = p.id, |e| matches!(e, RecordError::Predecessor { .. })),
            (|p| p.owner = Owner::Host(HostId::NONE), |e| matches!(e, RecordError::NamelessOwner { .. })),
            (
                |p| p.fork = Some(Fork { forced: p.id, root: Epoch(3) }),
                |e| matches!(e, RecordError::Fork { .. }),
            ),
        ];
        for (index, (break_it, is_expected)) in breaks.into_iter().enumerate() {
            let mut broken = parts();
            break_it(&mut broken);
            let error = EpochRecord::new(broken).unwrap_err();
            assert!(is_expected(&error), "{index}: {error:?}");
        }
    }
}
