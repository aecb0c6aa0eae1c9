//! What can go wrong, by operation. Everything names the pool, and the page and the disk where there is one.

use dolmen_block_io::DeviceError;
use dolmen_units::{DiskId, PoolId};

use crate::key::Key;

/// What is wrong with a page or a checkpoint block that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// It does not begin as such a thing does.
    #[error("it does not begin with the right magic")]
    Magic,
    /// A later build wrote it.
    #[error("its version is {found}, and this build knows {supported}")]
    Version {
        /// What it says.
        found: u32,
        /// What this build knows.
        supported: u32,
    },
    /// It does not have the checksum that it says itself.
    #[error("its checksum is {found:016x} and it says {expected:016x}")]
    Checksum {
        /// Of the bytes read.
        found: u64,
        /// What it says.
        expected: u64,
    },
    /// It is sound, but not what the parent speaks of.
    #[error("its checksum is {found:016x} and its parent names {expected:016x}")]
    NotNamed {
        /// What it says.
        found: u64,
        /// What the parent says.
        expected: u64,
    },
    /// Another pool wrote it.
    #[error("it belongs to pool {found}")]
    Pool {
        /// What it says.
        found: PoolId,
    },
    /// It was written for another disk.
    #[error("it belongs to disk {found}")]
    Disk {
        /// What it says.
        found: DiskId,
    },
    /// It was written for another place.
    #[error("it belongs to place {found} and was read at {expected}")]
    Place {
        /// What it says: a page number, or the address of a block in bytes.
        found: u64,
        /// Where it was read.
        expected: u64,
    },
    /// Another checkpoint wrote it.
    #[error("checkpoint {found} wrote it, not {expected}")]
    Sequence {
        /// What it says.
        found: u64,
        /// What the parent says.
        expected: u64,
    },
    /// The caller uses another area.
    #[error(
        "it describes {found_length} bytes of pages at {found_at}, not {expected_length} at {expected_at}"
    )]
    Area {
        /// Its address of page 0.
        found_at: u64,
        /// Its length of the pages.
        found_length: u64,
        /// The caller's address of page 0.
        expected_at: u64,
        /// The caller's length of the pages.
        expected_length: u64,
    },
    /// A page of another kind or level.
    #[error("it is of kind {found_kind} and level {found_level}, not {expected_kind} and {expected_level}")]
    Shape {
        /// The kind it says.
        found_kind: u8,
        /// The level it says.
        found_level: u8,
        /// The kind that belongs there.
        expected_kind: u8,
        /// The level that belongs there.
        expected_level: u8,
    },
    /// Its counts or offsets contradict each other.
    #[error("its entries do not fit together at entry {entry}")]
    Entries {
        /// The first entry that does not fit.
        entry: usize,
    },
    /// Its keys do not ascend, or begin elsewhere than its parent says.
    #[error("its keys are out of order at entry {entry}")]
    Order {
        /// The first entry out of order.
        entry: usize,
    },
    /// Bytes that have no meaning are not zero.
    #[error("reserved bytes are not zero")]
    Reserved,
}

/// What one disk answered when it was asked for a page or a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Answer {
    /// The device failed.
    #[error("the read failed")]
    Device(#[source] DeviceError),
    /// The device gave something that cannot be used.
    #[error("{0}")]
    Defect(Defect),
}

/// What one disk answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("disk {disk}: {answer}")]
pub struct Fault {
    /// Which disk.
    pub disk: DiskId,
    /// What it answered.
    #[source]
    pub answer: Answer,
}

fn list(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Why the map could not be read or made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No replica has a sound copy of a page.
    #[error(
        "reading metadata page {page} of pool {pool} failed on all {} replicas ({}); what it describes cannot be \
         reached until a disk with a sound copy is back",
        faults.len(), list(faults)
    )]
    PageLost {
        /// The pool.
        pool: PoolId,
        /// The page's number.
        page: u64,
        /// What each replica answered.
        faults: Vec<Fault>,
    },
    /// No replica has a sound checkpoint block.
    #[error(
        "opening the metadata of pool {pool} found no sound checkpoint ({}); bring a disk that has one",
        list(faults)
    )]
    NoCheckpoint {
        /// The pool.
        pool: PoolId,
        /// What each slot of each replica answered; empty slots are not listed.
        faults: Vec<Fault>,
    },
    /// A later build wrote the metadata.
    #[error(
        "the metadata of pool {pool} on disk {disk} has version {found} and this build knows {supported}; nothing was \
         changed, use a later build"
    )]
    TooNew {
        /// The pool.
        pool: PoolId,
        /// The disk.
        disk: DiskId,
        /// Version found.
        found: u32,
        /// Version known.
        supported: u32,
    },
    /// Two disks hold different checkpoints of one number.
    #[error(
        "disks {first} and {second} of pool {pool} hold different checkpoints {sequence}; nothing was changed, open \
         with the disks of one history only"
    )]
    Diverged {
        /// The pool.
        pool: PoolId,
        /// The number that both have.
        sequence: u64,
        /// One disk.
        first: DiskId,
        /// The other.
        second: DiskId,
    },
    /// An area that cannot hold a store, or a call without replicas.
    #[error(
        "the metadata area of pool {pool} has room for {pages} pages on {replicas} replicas; {PAGES_MIN} on 1 are needed"
    )]
    Area {
        /// The pool.
        pool: PoolId,
        /// Pages that fit.
        pages: u64,
        /// Replicas given.
        replicas: usize,
    },
    /// Pages are sound one by one and contradict each other.
    #[error(
        "metadata page {page} of pool {pool} was read soundly but does not fit its checkpoint: {defect}; run check"
    )]
    Unfit {
        /// The pool.
        pool: PoolId,
        /// The page's number.
        page: u64,
        /// What does not fit.
        defect: Defect,
    },
    /// A disk refused to be written.
    #[error("writing the metadata of pool {pool} failed ({})", failures(failed))]
    Write {
        /// The pool.
        pool: PoolId,
        /// Which disks, and how.
        failed: Vec<Failure>,
    },
}

/// The least pages that a store works with: a bitmap and a root, twice, and some to spare.
pub(crate) const PAGES_MIN: u64 = 16;

/// A disk that did not take a write or a flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("disk {disk}, {step}")]
pub struct Failure {
    /// Which disk.
    pub disk: DiskId,
    /// The command.
    pub step: Step,
    /// What it answered.
    pub source: DeviceError,
}

/// The command at which a replica failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Erase a checkpoint block that must not count.
    Erase,
    /// Write pages.
    Pages,
    /// Make the pages durable.
    PagesFlush,
    /// Write the checkpoint block.
    Block,
    /// Make the checkpoint block durable.
    BlockFlush,
    /// Rewrite a damaged page.
    Heal,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Erase => "erasing a checkpoint block",
            Self::Pages => "writing pages",
            Self::PagesFlush => "flushing pages",
            Self::Block => "writing the checkpoint block",
            Self::BlockFlush => "flushing the checkpoint block",
            Self::Heal => "rewriting a damaged page",
        })
    }
}

fn failures(failed: &[Failure]) -> String {
    let each = failed.iter().map(|failure| format!("{failure}: {}", failure.source));
    each.collect::<Vec<_>>().join("; ")
}

/// Why a checkpoint was not made. Nothing is lost: the old one stands and the changes are in memory as before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// Replicas that failed; go on without them, or try again.
    #[error(
        "a checkpoint of pool {pool} failed ({}); the old one stands, take these disks out or try again",
        failures(failed)
    )]
    Replicas {
        /// The pool.
        pool: PoolId,
        /// Which disks, and how.
        failed: Vec<Failure>,
    },
    /// The area is full.
    #[error(
        "a checkpoint of pool {pool} needs more than the {free} free of {total} metadata pages; the old one stands, \
         delete something or use disks with larger metadata areas"
    )]
    Full {
        /// The pool.
        pool: PoolId,
        /// Pages that were free at the beginning.
        free: u64,
        /// Pages of the area.
        total: u64,
    },
    /// The old tree could not be read, so it could not be merged with.
    #[error("a checkpoint of pool {pool} could not read the old one, which stands")]
    Read {
        /// The pool.
        pool: PoolId,
        /// Why not.
        source: Box<StoreError>,
    },
    /// The checkpoint stands, but disks that joined while it was made lack it: what it covers must not be forgotten
    /// (a log not be trimmed) before [`Store::heal_stale`](crate::Store::heal_stale) succeeded or they were taken out.
    #[error("checkpoint {sequence} of pool {pool} was made, but a disk that joined meanwhile lacks it")]
    JoinersLackIt {
        /// The pool.
        pool: PoolId,
        /// The checkpoint.
        sequence: u64,
        /// Why it was not copied.
        source: Box<StoreError>,
    },
    /// The tree would be higher than any that fits an area.
    #[error(
        "a checkpoint of pool {pool} would have more than {levels_max} levels; the old one stands, run check"
    )]
    TooHigh {
        /// The pool.
        pool: PoolId,
        /// The limit.
        levels_max: usize,
    },
}

/// One thing that `check` found. The number in front of its text never changes its meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Finding {
    /// A page cannot be used on one replica; others have it.
    #[error("S1: metadata page {page} of pool {pool} is bad on one replica: {fault}")]
    PageOnReplica {
        /// The pool.
        pool: PoolId,
        /// The page.
        page: u64,
        /// Disk and defect.
        fault: Fault,
    },
    /// A page cannot be used on any replica; what hangs below was not checked.
    #[error("S2: metadata page {page} of pool {pool} is lost")]
    PageLost {
        /// The pool.
        pool: PoolId,
        /// The page.
        page: u64,
    },
    /// A page that is sound by itself holds keys that belong elsewhere.
    #[error("S3: metadata page {page} of pool {pool} holds key {key} outside its place")]
    KeyOutOfPlace {
        /// The pool.
        pool: PoolId,
        /// The page.
        page: u64,
        /// The key.
        key: Key,
    },
    /// Two parents name one page.
    #[error("S4: metadata page {page} of pool {pool} is used twice")]
    UsedTwice {
        /// The pool.
        pool: PoolId,
        /// The page.
        page: u64,
    },
    /// A page in use is marked free: the next checkpoint could overwrite it.
    #[error("S5: metadata page {page} of pool {pool} is in use but marked free")]
    UsedButFree {
        /// The pool.
        pool: PoolId,
        /// The page.
        page: u64,
    },
    /// Pages that nothing uses are marked used: room is lost.
    #[error(
        "S6: {count} metadata pages of pool {pool} are marked used but nothing uses them, the first is {first}"
    )]
    Leaked {
        /// The pool.
        pool: PoolId,
        /// The lowest such page.
        first: u64,
        /// How many.
        count: u64,
    },
    /// The number of keys is not the one that the checkpoint says.
    #[error("S7: the metadata tree of pool {pool} has {found} keys and its checkpoint says {expected}")]
    EntryCount {
        /// The pool.
        pool: PoolId,
        /// Counted.
        found: u64,
        /// Said.
        expected: u64,
    },
    /// A page that is not the root holds less than a third of what fits: room is wasted, nothing is wrong.
    #[error("S9: metadata page {page} of pool {pool} holds only {used_bytes} bytes")]
    Thin {
        /// The pool.
        pool: PoolId,
        /// The page.
        page: u64,
        /// What it holds.
        used_bytes: usize,
    },
    /// A replica lacks the newest checkpoint.
    #[error("S8: disk {disk} of pool {pool} lacks the newest metadata checkpoint, {expected}")]
    Stale {
        /// The pool.
        pool: PoolId,
        /// The disk.
        disk: DiskId,
        /// The newest.
        expected: u64,
    },
}
