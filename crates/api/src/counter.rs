//! What was counted since the daemon was started.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What was counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Counters {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// How requests reach the kernel: `io_uring` or `threads`.
    pub driver: String,
    /// Messages from other threads to the engine's.
    pub messages: u64,
    /// Times that another thread had to wake it.
    pub unparks: u64,
    /// Times that a task was polled.
    pub polls: u64,
    /// Simulated fillings of a pool on the engine's thread, for which clients waited.
    #[serde(default)]
    pub fillings: u64,
    /// By pool.
    pub pools: Vec<PoolTally>,
}

/// What was counted of a pool since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolTally {
    /// Its name.
    pub pool: String,
    /// Over all its spaces.
    pub spaces: SpaceTally,
    /// Its disks, by slot.
    pub disks: Vec<DiskTally>,
}

/// What the spaces of a pool did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct SpaceTally {
    /// Writes of blocks never written.
    pub fresh_writes: u64,
    /// Writes of blocks not flushed yet.
    pub rewrites: u64,
    /// Writes over flushed content.
    pub overwrites: u64,
    /// Flushes that reached the disks.
    pub flushes: u64,
    /// Flushes that another one covered.
    pub shared_flushes: u64,
    /// Table pages read.
    pub page_reads: u64,
    /// Table pages written.
    pub page_writes: u64,
    /// Blocks that did not match their checksum on one copy.
    pub checksum_errors: u64,
    /// Blocks rewritten from another copy.
    pub healed_blocks: u64,
    /// Blocks accepted unverified after a crash.
    pub accepted_unverified_blocks: u64,
    /// Blocks that no copy could give.
    pub lost_blocks: u64,
    /// Blocks copied to a disk that had missed them.
    pub resynced_blocks: u64,
}

/// What was asked of a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DiskTally {
    /// Its place in the pool.
    pub slot: u16,
    /// Where it is, or its identity.
    pub name: String,
    /// Reads.
    pub reads: u64,
    /// Bytes of reads.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of writes.
    pub write_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Writes that had to be durable by themselves.
    pub durable_writes: u64,
    /// Discards and zeroings.
    pub discards: u64,
    /// Commands that failed.
    pub errors: u64,
}
