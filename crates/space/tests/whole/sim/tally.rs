//! What lives went through, counted for the report: how much of everything, and how often each rare state.

/// What takes its time, so that something may happen within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    Checkpoint,
    Resync,
    Replacement,
    Rejoin,
    Removal,
    Conversion,
    Rebalance,
    Scrub,
    Reserve,
    Emptying,
}

/// How often each rare state was met.
#[derive(Clone, Copy)]
struct Met([u64; Rare::ALL.len()]);

/// How many there were: each has a line of its own elsewhere.
impl std::fmt::Debug for Met {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.0.iter().filter(|times| **times > 0).count(), self.0.len())
    }
}

impl Default for Met {
    fn default() -> Self {
        Self([0; Rare::ALL.len()])
    }
}

/// What happened, for the report.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    pub operations: u64,
    pub runs: u64,
    pub kills: u64,
    pub power_cuts: u64,
    pub recoveries_cut: u64,
    pub losses: u64,
    pub returned_old: u64,
    pub rejoins: u64,
    pub replacements: u64,
    pub removals: u64,
    pub conversions: u64,
    pub rebalances: u64,
    pub resizes: u64,
    pub decided: u64,
    pub rewritten: u64,
    pub accepted_unverified: u64,
    pub mixtures: u64,
    pub blocks_checked: u64,
    pub resynced_blocks: u64,
    pub healed_blocks: u64,
    pub refused: u64,
    rare: Met,
}

/// States that few lives come through, so that somebody has to see to it that some do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rare {
    /// A recovery was cut short.
    RecoveryCut,
    /// So was the recovery after it.
    RecoveryCutAgain,
    /// The daemon ended while a member was away.
    CrashWithoutADisk,
    /// The pool was opened without a member.
    OpenedWithoutADisk,
    /// The daemon ended while a disk was taken back in.
    RejoinCut,
    /// The daemon ended while stale slabs were refilled.
    ResyncCut,
    /// The daemon ended while a disk was replaced.
    ReplacementCut,
    /// A replacement that the daemon before had begun was brought to its end.
    ReplacementResumed,
    /// Clients went on during a checkpoint.
    CheckpointUnderLoad,
    /// The log had gone round when a pool was closed.
    LogWrapped,
    /// A flush failed because an only copy had left with unflushed blocks, whose claims were relogged.
    CandidatesRelogged,
    /// Recovery left blocks in doubt because their disks were absent.
    InDoubt,
    /// Recovery went back to an earlier state of a block.
    Reverted,
    /// Power failed after a flush that had kept nothing.
    DroppedFlushExposed,
    /// A full pool refused a write.
    NoRoom,
    /// A disk left while a checkpoint was under way.
    DetachedInCheckpoint,
    /// One came back while a checkpoint was under way.
    BackInCheckpoint,
    /// One left and came back within one resync.
    FlappedInResync,
    /// One left and came back within one replacement.
    FlappedInReplacement,
    /// One left while another, or the same, was being taken back in.
    DetachedInRejoin,
    /// A disk left again within 20 ms of its return.
    DetachedAgainAtOnce,
    /// More disks were away at once than a space had copies to spare.
    TooManyAway,
    /// A disk that took the place of another was replaced itself.
    ReplacementReplaced,
    /// A disk came back that had been replaced in the meantime, or was being so.
    ReplacedCameBack,
    /// Two daemons' worth of operators brought the same replacement to its end at once.
    ReplacementTwice,
    /// A space was deleted while a checkpoint, a resync or a replacement was under way.
    DeletedAtWork,
    /// A space was taken out of the trash while clients were served.
    Restored,
    /// One was found in the trash behind an opening.
    FoundInTrash,
    /// What was being deleted when the daemon ended was purged behind the next opening.
    PurgedAfterOpening,
    /// Whole rows were given back while one was.
    DiscardedAtWork,
    /// A space was made smaller while one was.
    ShrunkAtWork,
    /// Somebody held the turn of changes of the map for some time.
    MapHeld,
    /// The daemon ended within a checkpoint, a resync, a rejoin or a replacement that somebody had begun.
    CrashAtWork,
    /// A space has more than one table page for each column.
    SeveralPages,
    /// Power failed, or the daemon died, while spaces had rows and an interleave that nobody had chosen.
    CrashOnUsualRows,
    /// The pool was compared with each of its disks left out.
    IntactWithoutEach,
    /// Recovery found enough of a line with parity that was in flight.
    StripeKept,
    /// Recovery found too little of one, and took it back.
    StripeReverted,
    /// A row had a shadow row.
    ShadowMade,
    /// One was promoted.
    ShadowPromoted,
    /// Lines were copied to one that its stream had left out.
    ShadowStripesCopied,
    /// The pool was opened with one.
    OpenedWithShadow,
    /// Power failed while a disk was leaving without another in its place.
    RemovalCut,
    /// A removal that a daemon before had begun went on.
    RemovalResumed,
    /// A removal was called off while it was under way.
    RemovalCalledOff,
    /// A disk that was leaving so was to be replaced.
    RemovalReplaced,
    /// A removal was not begun, because what it would move had nowhere to go.
    RemovalRefused,
    /// A lost disk was declared lost, and what it alone had was exchanged.
    DeclaredLost,
    /// Rows that a disk could not leave as they were became narrower.
    Narrowed,
    /// A removal left something for later.
    RemovalWaited,
    /// A disk was struck so while it was away.
    RemovedWhileAway,
    /// A disk left so that had rows of a write cache.
    RemovedWithCacheRows,
    /// One that had left so was added again.
    RemovedIsBack,
    /// The disk that was leaving so failed, or went, while it was being emptied.
    LeavingDetached,
    /// Another one did.
    DetachedInRemoval,
    /// One left and came back within one removal.
    FlappedInRemoval,
    /// A space was on its way to another layout when the operator came to it.
    ConversionResumed,
    /// A conversion was turned round.
    ConversionReversed,
    /// One was not begun, because there was no room.
    ConversionRefused,
    /// One left rows for later.
    ConversionWaited,
    /// Power failed while a space was converted.
    ConversionCut,
    /// A disk left while one was.
    DetachedInConversion,
    /// One left while slabs were evened out.
    DetachedInRebalance,
    /// Power failed while they were.
    RebalanceCut,
    /// Clients went on while everything was verified.
    ScrubUnderLoad,
    /// A job that was held stood, and went on.
    JobHeld,
    /// A job was ended in its midst.
    JobStopped,
    /// Room was reserved for a space.
    ReserveSet,
    /// So much could not be.
    ReserveRefused,
    /// Power failed while it was.
    ReserveCut,
    /// A pool was set to keep room for repair.
    RoomKept,
    /// A disk became a spare, or stays empty.
    RoleGiven,
    /// The others could not have taken what it has.
    RoleRefused,
    /// One takes rows again.
    RoleTaken,
    /// One came to hold nothing.
    EmptiedByRole,
    /// So did one that is failing.
    FailingEmptied,
    /// One that is failing kept what nobody else could take.
    FailingKeepsSome,
    /// What an absent disk had of spaces that can do without it was rebuilt on the others.
    RebuiltWithout,
    /// Power failed while a disk was emptied.
    EmptyingCut,
}

impl Rare {
    pub const ALL: [Self; 79] = [
        Self::RecoveryCut,
        Self::RecoveryCutAgain,
        Self::CrashWithoutADisk,
        Self::OpenedWithoutADisk,
        Self::RejoinCut,
        Self::ResyncCut,
        Self::ReplacementCut,
        Self::ReplacementResumed,
        Self::CheckpointUnderLoad,
        Self::LogWrapped,
        Self::CandidatesRelogged,
        Self::InDoubt,
        Self::Reverted,
        Self::DroppedFlushExposed,
        Self::NoRoom,
        Self::DetachedInCheckpoint,
        Self::BackInCheckpoint,
        Self::FlappedInResync,
        Self::FlappedInReplacement,
        Self::DetachedInRejoin,
        Self::DetachedAgainAtOnce,
        Self::TooManyAway,
        Self::ReplacementReplaced,
        Self::ReplacedCameBack,
        Self::ReplacementTwice,
        Self::DeletedAtWork,
        Self::Restored,
        Self::FoundInTrash,
        Self::PurgedAfterOpening,
        Self::DiscardedAtWork,
        Self::ShrunkAtWork,
        Self::MapHeld,
        Self::CrashAtWork,
        Self::SeveralPages,
        Self::CrashOnUsualRows,
        Self::IntactWithoutEach,
        Self::StripeKept,
        Self::StripeReverted,
        Self::ShadowMade,
        Self::ShadowPromoted,
        Self::ShadowStripesCopied,
        Self::OpenedWithShadow,
        Self::RemovalCut,
        Self::RemovalResumed,
        Self::RemovalCalledOff,
        Self::RemovalReplaced,
        Self::RemovalRefused,
        Self::DeclaredLost,
        Self::Narrowed,
        Self::RemovalWaited,
        Self::RemovedWhileAway,
        Self::RemovedWithCacheRows,
        Self::RemovedIsBack,
        Self::LeavingDetached,
        Self::DetachedInRemoval,
        Self::FlappedInRemoval,
        Self::ConversionResumed,
        Self::ConversionReversed,
        Self::ConversionRefused,
        Self::ConversionWaited,
        Self::ConversionCut,
        Self::DetachedInConversion,
        Self::DetachedInRebalance,
        Self::RebalanceCut,
        Self::ScrubUnderLoad,
        Self::JobHeld,
        Self::JobStopped,
        Self::ReserveSet,
        Self::ReserveRefused,
        Self::ReserveCut,
        Self::RoomKept,
        Self::RoleGiven,
        Self::RoleRefused,
        Self::RoleTaken,
        Self::EmptiedByRole,
        Self::FailingEmptied,
        Self::FailingKeepsSome,
        Self::RebuiltWithout,
        Self::EmptyingCut,
    ];
}

impl Tally {
    pub fn saw(&mut self, state: Rare) {
        self.rare.0[state as usize] += 1;
    }

    pub fn of(&self, state: Rare) -> u64 {
        self.rare.0[state as usize]
    }

    pub fn add(&mut self, other: &Self) {
        self.rare.0.iter_mut().zip(other.rare.0).for_each(|(mine, more)| *mine += more);
        let fields: [(&mut u64, u64); 21] = [
            (&mut self.operations, other.operations),
            (&mut self.runs, other.runs),
            (&mut self.kills, other.kills),
            (&mut self.power_cuts, other.power_cuts),
            (&mut self.recoveries_cut, other.recoveries_cut),
            (&mut self.losses, other.losses),
            (&mut self.returned_old, other.returned_old),
            (&mut self.rejoins, other.rejoins),
            (&mut self.replacements, other.replacements),
            (&mut self.removals, other.removals),
            (&mut self.conversions, other.conversions),
            (&mut self.rebalances, other.rebalances),
            (&mut self.resizes, other.resizes),
            (&mut self.decided, other.decided),
            (&mut self.rewritten, other.rewritten),
            (&mut self.accepted_unverified, other.accepted_unverified),
            (&mut self.mixtures, other.mixtures),
            (&mut self.blocks_checked, other.blocks_checked),
            (&mut self.resynced_blocks, other.resynced_blocks),
            (&mut self.healed_blocks, other.healed_blocks),
            (&mut self.refused, other.refused),
        ];
        fields.into_iter().for_each(|(mine, more)| *mine += more);
    }
}
