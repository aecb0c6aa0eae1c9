//! Planted bugs: each breaks one rule of the engine on purpose, and the tests have to find it (`scripts/bugs.sh`,
//! `scripts/accidents.sh`).
//!
//! Invariant: without the feature `switch`, [`is_planted`] is a constant `false`, and no build that ships asks for that
//! feature; so what a bug would do is never compiled into it. With the feature, one build of the tests holds all bugs, and
//! the environment variable `DOLMEN_BUG` names the one that is awake in a process.

/// A rule that can be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// The log says *settled* before the disks were flushed.
    MarkBeforeFlush,
    /// A flush leaves one disk out.
    FlushSkipsADisk,
    /// A flush does not wait for writes that began before it.
    FlushWaitsForNobody,
    /// A flush counts for a write whose record it has not marked.
    LateRecordUnmarked,
    /// Flushed content is overwritten before the intent is durable.
    IntentNotWaited,
    /// Acknowledged content is overwritten before the new record is written.
    RewriteInParallel,
    /// What a read brings is not compared with its checksum.
    ChecksumNotChecked,
    /// A bad copy is "healed" with what it holds.
    HealFromBadCopy,
    /// Nobody commits that a slab misses what was written without its disk.
    AbsenceNotCommitted,
    /// A resync leaves out what was written last.
    ResyncSkipsNewest,
    /// A refilled slab is trusted before its content was flushed.
    TrustBeforeFlush,
    /// Blocks of a column are counted wrongly at the end of a stretch.
    RowOffByOne,
    /// Tables go to their disks before a flush covered what they say.
    TableBeforeFlush,
    /// The log is trimmed before the tables that take its place were flushed.
    TableNotFlushed,
    /// A table page that one slab alone has is believed to be there because its disk said so.
    OnlyTableBelieved,
    /// A table page is always written to the same slot, over the one that stands.
    PageInPlace,
    /// Recovery lets the oldest state of a block win.
    OldestStateWins,
    /// What recovery decided is marked settled before it is durable.
    RecoveryNotFinal,
    /// Grains are handed out again before the commit that freed them is durable.
    FreeBeforeCommit,
    /// A checkpoint trims what was logged while it was being made.
    TrimAhead,
    /// A slab whose disk was away while tables were written back counts as having them.
    MissedTables,
    /// A checkpoint trims changes of the map that are durable and not in the map yet.
    TrimUnapplied,
    /// A batch of the log counts when one voter has it.
    OneVoterIsEnough,
    /// A durable batch of the log stays in the disks' caches.
    DurableIsCached,
    /// An opening reads the log of one voter only.
    OneLogIsEnough,
    /// The block of a checkpoint is written before its pages were flushed.
    BlockBeforePages,
    /// A checkpoint in parts says with its first part that it has all changes.
    PartAnchoredAsWhole,
    /// A page that a checkpoint gives up is used again by that same checkpoint.
    PageReusedEarly,
    /// A commit counts when a majority of the voters holds it.
    CommitByMajority,
    /// An export writes the disks first and withdraws the host's record last.
    ExportRecordLast,
    /// An opening does not look whether another host has the pool open.
    NoWatch,
    /// An opening does not look whether another host began one in the same moment.
    NoHold,
    /// A heartbeat does not look whether another host has the pool by now.
    BlindHeartbeat,
    /// A disk that was away decides what is in force.
    StaleDiskWins,
    /// A member whose label is older than its entry takes part.
    OldMemberTrusted,
    /// An opening names labels of members before they are durable.
    MemberNamedEarly,
    /// A stamp is committed before the labels that it names are durable.
    StampBeforeLabels,
    /// A disk that comes back to an open pool as it was long ago is filled as if it had only been absent.
    OldImageAsAbsent,
    /// A disk that is taken back in counts before its label says so.
    ReturnUnstamped,
    /// Some of the disks can be written on a host that does not own them.
    ForeignHalfWrites,
    /// A line that was left half in place is finished without the parity that it had recorded.
    RedoOfNewDataOnly,
    /// The difference of parity is applied twice.
    DifferenceTwice,
    /// Parity is computed from whatever the disks have.
    InputsNotVerified,
    /// A discarded block becomes *never* and the parity of its line stays as it was.
    NeverOnOneColumn,
    /// A flush that marks the record of lines about to be written in place counts as their end.
    RedoEndsWithMark,
    /// Lines are written in place before a flush has covered their record.
    RedoNotFlushed,
    /// What is in flight of a line is decided block by block.
    LineInParts,
    /// The second parity is computed with the factors of the first.
    SecondParityAsFirst,
    /// The second parity of a line stays as it was when parity is carried on.
    SecondParityNotCarried,
    /// A line that was left half in place is finished without its second parity.
    SecondParityNotRedone,
    /// A strict space is written over in place, as a relaxed one.
    StrictInPlace,
    /// Copies are put in place before a flush has covered what is cached of them.
    CopiesBeforeFlush,
    /// What the cache had of copies ends before they were flushed in their place.
    CopiesNotFlushed,
    /// An heir takes the place of its row before what it holds was flushed.
    HeirBeforeFlush,
    /// An heir takes the place of its row before its tables are on its disks.
    HeirBeforeTables,
    /// An heir takes the place of its row while something of that is cached.
    HeirBeforeCached,
    /// A discard that waited for a row that was moved meanwhile finds nothing to discard.
    DiscardOfGoneRow,
    /// The parity of a line of an heir in which everything was discarded becomes *never*.
    HeirForgetsLines,
    /// What is cached is put in place of the row, also where its heir has the line.
    HeirPassedOver,
    /// A draft takes the place of its row before what it holds was flushed.
    DraftBeforeFlush,
    /// A draft takes the place of its row before its tables are on its disks.
    DraftBeforeTables,
    /// A draft takes the place of its row while something of it is cached.
    DraftWhileCached,
    /// A draft takes the place of its row without what clients have written meanwhile.
    DraftMissesWrites,
    /// What nobody can read becomes whatever was read, in the draft of its row.
    DraftOfDamage,
    /// A copy on a disk that has become slow is asked like any other.
    SlowIsAsked,
    /// A read waits for a disk that does not answer although another has what it wants.
    HungIsWaitedFor,
    /// What a disk that leaves has is given up before what takes its place is trusted.
    GivenUpUntrusted,
    /// What a disk that leaves has is given up although it may be the last good copy.
    LastCopyGivenUp,
    /// A disk is struck although something lies on it.
    StruckWhileNamed,
    /// Whatever stands in a label where no field is, is passed over.
    LabelSpareBelieved,
    /// A batch of the log counts although it is more than a lap ahead of the tail.
    BatchBeyondLap,
    /// Where the slabs of a row end is the map's word alone.
    SlabBehindItsDisk,
    /// A write that finds no room for its row is acknowledged.
    NoRoomAcknowledged,
    /// A pool that is full takes no change that gives room back.
    ReleaseNeedsRoom,
    /// A host opens its own pool only with all of its disks.
    AllOrNothing,
    /// An opening does not ask the host's record how far the pool had come.
    ArbiterNotAsked,
    /// A disk that was absent already when its pool was opened is told of to nobody.
    AbsentUntold,
    /// A resync copies what a disk has, whether it has missed it or not.
    ResyncCopiesAll,
    /// A write cache has one copy, whatever its spaces survive.
    CacheOfOneCopy,
    /// Something is destroyed whatever name was typed.
    AnyNameDestroys,
    /// A disk is emptied only while it is here itself.
    DrainNeedsItsDisk,
    /// A disk that is sick keeps what it has.
    SickDiskKeepsAll,
    /// New rows are laid on disks that are slow or sick as on others.
    NewRowsAnywhere,
    /// Claims take the room that is kept for the repair of lost disks.
    KeptRoomIsClaimed,
    /// A row of a space that it needs for what is reserved for it is given back.
    ReserveGivenBack,
    /// A row that holds something takes the place of another, as one that is reserved.
    ReserveTakesWritten,
    /// Rows are laid on spares.
    SpareTakesRows,
    /// A row that became another one while it was to be freed counts as freed.
    RenewedPassedOver,
    /// What another owner left on the disk that takes a lost one's place is taken for what was being written.
    WrittenOffAsFound,
    /// Tables that stood where a slab takes a lost one's place are believed.
    WrittenOffTablesKept,
    /// A row is written while what the log says of it is being read, because it cannot be decided.
    LeftWhileWritten,
    /// Nobody says of blocks that were lost with a disk that they are.
    WrittenOffUnsaid,
    /// A recovery takes for what it was a block that is said to be lost.
    LossForgotten,
    /// What a slab has that was not filled to its end is lost with the only other one.
    PartFilledGivenUp,
    /// A line is not where it was, whether or not it is where it should have gone.
    FlipByHalves,
    /// A line goes to the slot that it has left before a flush has covered that it left.
    SlotBeforeFlush,
    /// Nobody keeps where a line was, of which nobody can tell whether it is where it went.
    SourceNotLeft,
    /// An heir is given back before what came from it was flushed.
    GivenBackBeforeFlush,
    /// Nobody says that a line is where it was, when it could not go elsewhere.
    FailedFlipKeeps,
    /// A recovery writes tables that lack a line before others say where it is.
    SourceGoneEarly,
    /// A file that lies on a space may become a disk of a pool.
    DiskOnSpace,
    /// A line of the log waits until the one before it was read.
    LogWaits,
    /// The host's record of an epoch is written over the one in force.
    RecordOverInForce,
    /// A disk that the system does not let the daemon open, for want of descriptors, counts as absent.
    UnopenedIsAbsent,
}

impl Bug {
    /// All of them.
    pub const ALL: [Self; 104] = [
        Self::MarkBeforeFlush,
        Self::FlushSkipsADisk,
        Self::FlushWaitsForNobody,
        Self::IntentNotWaited,
        Self::RewriteInParallel,
        Self::LateRecordUnmarked,
        Self::PartAnchoredAsWhole,
        Self::ChecksumNotChecked,
        Self::HealFromBadCopy,
        Self::AbsenceNotCommitted,
        Self::ResyncSkipsNewest,
        Self::TrustBeforeFlush,
        Self::RowOffByOne,
        Self::TableBeforeFlush,
        Self::TableNotFlushed,
        Self::OnlyTableBelieved,
        Self::PageInPlace,
        Self::OldestStateWins,
        Self::RecoveryNotFinal,
        Self::FreeBeforeCommit,
        Self::TrimAhead,
        Self::MissedTables,
        Self::TrimUnapplied,
        Self::OneVoterIsEnough,
        Self::DurableIsCached,
        Self::OneLogIsEnough,
        Self::BlockBeforePages,
        Self::PageReusedEarly,
        Self::CommitByMajority,
        Self::ExportRecordLast,
        Self::NoWatch,
        Self::NoHold,
        Self::BlindHeartbeat,
        Self::StaleDiskWins,
        Self::OldMemberTrusted,
        Self::MemberNamedEarly,
        Self::StampBeforeLabels,
        Self::OldImageAsAbsent,
        Self::ReturnUnstamped,
        Self::ForeignHalfWrites,
        Self::RedoOfNewDataOnly,
        Self::DifferenceTwice,
        Self::InputsNotVerified,
        Self::NeverOnOneColumn,
        Self::RedoEndsWithMark,
        Self::RedoNotFlushed,
        Self::LineInParts,
        Self::SecondParityAsFirst,
        Self::SecondParityNotCarried,
        Self::SecondParityNotRedone,
        Self::StrictInPlace,
        Self::CopiesBeforeFlush,
        Self::CopiesNotFlushed,
        Self::HeirBeforeFlush,
        Self::HeirBeforeTables,
        Self::HeirBeforeCached,
        Self::DiscardOfGoneRow,
        Self::HeirForgetsLines,
        Self::HeirPassedOver,
        Self::DraftBeforeFlush,
        Self::DraftBeforeTables,
        Self::DraftWhileCached,
        Self::DraftMissesWrites,
        Self::DraftOfDamage,
        Self::SlowIsAsked,
        Self::HungIsWaitedFor,
        Self::GivenUpUntrusted,
        Self::LastCopyGivenUp,
        Self::StruckWhileNamed,
        Self::LabelSpareBelieved,
        Self::BatchBeyondLap,
        Self::SlabBehindItsDisk,
        Self::NoRoomAcknowledged,
        Self::ReleaseNeedsRoom,
        Self::AllOrNothing,
        Self::ArbiterNotAsked,
        Self::AbsentUntold,
        Self::ResyncCopiesAll,
        Self::CacheOfOneCopy,
        Self::AnyNameDestroys,
        Self::DrainNeedsItsDisk,
        Self::SickDiskKeepsAll,
        Self::NewRowsAnywhere,
        Self::KeptRoomIsClaimed,
        Self::ReserveGivenBack,
        Self::ReserveTakesWritten,
        Self::SpareTakesRows,
        Self::RenewedPassedOver,
        Self::WrittenOffAsFound,
        Self::WrittenOffTablesKept,
        Self::LeftWhileWritten,
        Self::WrittenOffUnsaid,
        Self::LossForgotten,
        Self::PartFilledGivenUp,
        Self::FlipByHalves,
        Self::SlotBeforeFlush,
        Self::SourceNotLeft,
        Self::GivenBackBeforeFlush,
        Self::FailedFlipKeeps,
        Self::SourceGoneEarly,
        Self::DiskOnSpace,
        Self::LogWaits,
        Self::RecordOverInForce,
        Self::UnopenedIsAbsent,
    ];

    /// What `DOLMEN_BUG`, `scripts/bugs.txt` and `scripts/accidents.txt` call it.
    #[must_use]
    #[allow(clippy::too_many_lines, reason = "a line for each bug")]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MarkBeforeFlush => "mark-before-flush",
            Self::FlushSkipsADisk => "flush-skips-a-disk",
            Self::FlushWaitsForNobody => "flush-waits-for-nobody",
            Self::IntentNotWaited => "intent-not-waited",
            Self::RewriteInParallel => "rewrite-in-parallel",
            Self::LateRecordUnmarked => "late-record-unmarked",
            Self::PartAnchoredAsWhole => "part-anchored-as-whole",
            Self::ChecksumNotChecked => "checksum-not-checked",
            Self::HealFromBadCopy => "heal-from-bad-copy",
            Self::AbsenceNotCommitted => "absence-not-committed",
            Self::ResyncSkipsNewest => "resync-skips-newest",
            Self::TrustBeforeFlush => "trust-before-flush",
            Self::RowOffByOne => "row-off-by-one",
            Self::TableBeforeFlush => "table-before-flush",
            Self::TableNotFlushed => "table-not-flushed",
            Self::OnlyTableBelieved => "only-table-believed",
            Self::PageInPlace => "page-in-place",
            Self::OldestStateWins => "oldest-state-wins",
            Self::RecoveryNotFinal => "recovery-not-final",
            Self::FreeBeforeCommit => "free-before-commit",
            Self::TrimAhead => "trim-ahead",
            Self::MissedTables => "missed-tables",
            Self::TrimUnapplied => "trim-unapplied",
            Self::OneVoterIsEnough => "one-voter-is-enough",
            Self::DurableIsCached => "durable-is-cached",
            Self::OneLogIsEnough => "one-log-is-enough",
            Self::BlockBeforePages => "block-before-pages",
            Self::PageReusedEarly => "page-reused-early",
            Self::CommitByMajority => "commit-by-majority",
            Self::ExportRecordLast => "export-record-last",
            Self::NoWatch => "no-watch",
            Self::NoHold => "no-hold",
            Self::BlindHeartbeat => "blind-heartbeat",
            Self::StaleDiskWins => "stale-disk-wins",
            Self::OldMemberTrusted => "old-member-trusted",
            Self::MemberNamedEarly => "member-named-early",
            Self::StampBeforeLabels => "stamp-before-labels",
            Self::OldImageAsAbsent => "old-image-as-absent",
            Self::ReturnUnstamped => "return-unstamped",
            Self::ForeignHalfWrites => "foreign-half-writes",
            Self::RedoOfNewDataOnly => "redo-of-new-data-only",
            Self::DifferenceTwice => "difference-twice",
            Self::InputsNotVerified => "inputs-not-verified",
            Self::NeverOnOneColumn => "never-on-one-column",
            Self::RedoEndsWithMark => "redo-ends-with-mark",
            Self::RedoNotFlushed => "redo-not-flushed",
            Self::LineInParts => "line-in-parts",
            Self::SecondParityAsFirst => "second-parity-as-first",
            Self::SecondParityNotCarried => "second-parity-not-carried",
            Self::SecondParityNotRedone => "second-parity-not-redone",
            Self::StrictInPlace => "strict-in-place",
            Self::CopiesBeforeFlush => "copies-before-flush",
            Self::CopiesNotFlushed => "copies-not-flushed",
            Self::HeirBeforeFlush => "heir-before-flush",
            Self::HeirBeforeTables => "heir-before-tables",
            Self::HeirBeforeCached => "heir-before-cached",
            Self::DiscardOfGoneRow => "discard-of-gone-row",
            Self::HeirForgetsLines => "heir-forgets-lines",
            Self::HeirPassedOver => "heir-passed-over",
            Self::DraftBeforeFlush => "draft-before-flush",
            Self::DraftBeforeTables => "draft-before-tables",
            Self::DraftWhileCached => "draft-while-cached",
            Self::DraftMissesWrites => "draft-misses-writes",
            Self::DraftOfDamage => "draft-of-damage",
            Self::SlowIsAsked => "slow-is-asked",
            Self::HungIsWaitedFor => "hung-is-waited-for",
            Self::GivenUpUntrusted => "given-up-untrusted",
            Self::LastCopyGivenUp => "last-copy-given-up",
            Self::StruckWhileNamed => "struck-while-named",
            Self::LabelSpareBelieved => "label-spare-believed",
            Self::BatchBeyondLap => "batch-beyond-lap",
            Self::SlabBehindItsDisk => "slab-behind-its-disk",
            Self::NoRoomAcknowledged => "no-room-acknowledged",
            Self::ReleaseNeedsRoom => "release-needs-room",
            Self::AllOrNothing => "all-or-nothing",
            Self::ArbiterNotAsked => "arbiter-not-asked",
            Self::AbsentUntold => "absent-untold",
            Self::ResyncCopiesAll => "resync-copies-all",
            Self::CacheOfOneCopy => "cache-of-one-copy",
            Self::AnyNameDestroys => "any-name-destroys",
            Self::DrainNeedsItsDisk => "drain-needs-its-disk",
            Self::SickDiskKeepsAll => "sick-disk-keeps-all",
            Self::NewRowsAnywhere => "new-rows-anywhere",
            Self::KeptRoomIsClaimed => "kept-room-is-claimed",
            Self::ReserveGivenBack => "reserve-given-back",
            Self::ReserveTakesWritten => "reserve-takes-written",
            Self::SpareTakesRows => "spare-takes-rows",
            Self::RenewedPassedOver => "renewed-passed-over",
            Self::WrittenOffAsFound => "written-off-as-found",
            Self::WrittenOffTablesKept => "written-off-tables-kept",
            Self::LeftWhileWritten => "left-while-written",
            Self::WrittenOffUnsaid => "written-off-unsaid",
            Self::LossForgotten => "loss-forgotten",
            Self::PartFilledGivenUp => "part-filled-given-up",
            Self::FlipByHalves => "flip-by-halves",
            Self::SlotBeforeFlush => "slot-before-flush",
            Self::SourceNotLeft => "source-not-left",
            Self::GivenBackBeforeFlush => "given-back-before-flush",
            Self::FailedFlipKeeps => "failed-flip-keeps",
            Self::SourceGoneEarly => "source-gone-early",
            Self::DiskOnSpace => "disk-on-space",
            Self::LogWaits => "log-waits",
            Self::RecordOverInForce => "record-over-in-force",
            Self::UnopenedIsAbsent => "unopened-is-absent",
        }
    }
}

/// Whether a bug is planted in this process.
#[cfg(not(feature = "switch"))]
#[must_use]
#[inline(always)]
pub const fn is_planted(_bug: Bug) -> bool {
    false
}

/// Whether a bug is planted in this process.
///
/// # Panics
/// When `DOLMEN_BUG` names no bug: a run that plants nothing must not look like one that found nothing.
#[cfg(feature = "switch")]
#[must_use]
pub fn is_planted(bug: Bug) -> bool {
    static AWAKE: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
    *AWAKE.get_or_init(|| {
        let name = std::env::var("DOLMEN_BUG").ok()?;
        let found = Bug::ALL.into_iter().find(|bug| bug.name() == name);
        assert!(found.is_some(), "DOLMEN_BUG is '{name}', which is no bug that can be planted");
        found
    }) == Some(bug)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn lines_of(table: &str) -> Vec<Vec<&str>> {
        let lines = table.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines.map(|line| line.split('|').map(str::trim).collect()).collect()
    }

    /// Scenario: a bug is planted that nobody looks for, a line names one that is not there, or two lines are alike. A bug may have
    /// several lines, where it has to be found in more than one kind of space.
    #[test]
    fn every_bug_has_its_lines_in_a_table() {
        let lines = lines_of(include_str!("../../../scripts/bugs.txt"));
        let accidents = lines_of(include_str!("../../../scripts/accidents.txt"));
        let named = lines.iter().filter_map(|fields| fields.get(1).copied());
        let named: BTreeSet<&str> =
            named.chain(accidents.iter().filter_map(|fields| fields.get(2).copied())).collect();
        let known: BTreeSet<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        assert_eq!(named, known);
        let runs: BTreeSet<_> = lines.iter().map(|fields| fields.get(1..4)).collect();
        assert_eq!(runs.len(), lines.len(), "a bug is looked for twice by one test with the same settings");
        let runs: BTreeSet<_> = accidents.iter().map(|fields| fields.get(1..3)).collect();
        assert_eq!(runs.len(), accidents.len(), "a bug is looked for twice by one accident");
    }
}
