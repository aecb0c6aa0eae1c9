//! What a data sheet says of a disk, and what is assumed where it is silent.

use crate::error::{ParameterError, within};

/// How a disk chooses among the commands that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    /// In the order of arrival.
    InOrder,
    /// The nearest track in the direction in which the arm moves, then back. So did disks that knew the place of their
    /// arm but not the angle of their platters (until about 2001).
    Elevator,
    /// The shortest time to the first byte, seek and rotation together.
    ShortestAccess,
}

/// Whether writes are answered from the disk's own volatile memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCache {
    /// A write is answered when it is on the medium.
    Off,
    /// A write is answered when the disk's memory holds it.
    On,
}

/// Three seeks from which the whole curve follows, in nanoseconds, settling included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seeks {
    /// To the next track.
    pub single_ns: u64,
    /// The mean over all pairs of tracks.
    pub average_ns: u64,
    /// From the first track to the last.
    pub full_ns: u64,
}

/// A disk. Sheets tell some of it; which parts of each disk of the catalogue are assumed is in its `assumed` and in
/// `docs/device_models.md`. None tells `scheduler`: measurements chose it for some disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskParameters {
    /// Size, in bytes.
    pub capacity_bytes: u64,
    /// Revolutions in a minute.
    pub revolutions_per_minute: u64,
    /// Data of the outermost track, in bytes.
    pub outer_track_bytes: u64,
    /// Data of the innermost track, in bytes.
    pub inner_track_bytes: u64,
    /// Zones of one track length each.
    pub zones: u64,
    /// Surfaces, each with a head.
    pub heads: u64,
    /// From the end of one track to the start of the next in order, in nanoseconds.
    pub skew_ns: u64,
    /// Seeks before reads.
    pub read_seeks: Seeks,
    /// Seeks before writes.
    pub write_seeks: Seeks,
    /// What the electronics need for each command, in nanoseconds.
    pub command_ns: u64,
    /// The interface, in bytes a second.
    pub interface_bytes_per_second: u64,
    /// Memory for data, in bytes.
    pub buffer_bytes: u64,
    /// What one stream of reads gets of it, in bytes.
    pub segment_bytes: u64,
    /// Commands held at once; also the writes that the cache chooses among.
    pub queue_depth: usize,
    /// How the next command is chosen.
    pub scheduler: Scheduler,
    /// Whether writes are answered early.
    pub write_cache: WriteCache,
}

impl DiskParameters {
    /// The same disk with its write cache on or off.
    #[must_use]
    pub const fn with_write_cache(mut self, write_cache: WriteCache) -> Self {
        self.write_cache = write_cache;
        self
    }

    /// The same disk with another way to choose.
    #[must_use]
    pub const fn with_scheduler(mut self, scheduler: Scheduler) -> Self {
        self.scheduler = scheduler;
        self
    }

    /// One turn, in nanoseconds.
    #[must_use]
    pub const fn revolution_ns(&self) -> u64 {
        60_000_000_000 / if self.revolutions_per_minute == 0 { 1 } else { self.revolutions_per_minute }
    }

    /// Says what describes no disk.
    pub(crate) fn check(&self) -> Result<(), ParameterError> {
        within("capacity_bytes", self.capacity_bytes, 1 << 20, 1 << 50)?;
        within("revolutions_per_minute", self.revolutions_per_minute, 1_000, 30_000)?;
        within("inner_track_bytes", self.inner_track_bytes, 4_096, 1 << 30)?;
        within("outer_track_bytes", self.outer_track_bytes, self.inner_track_bytes, 1 << 30)?;
        within("zones", self.zones, 1, 1_000)?;
        within("heads", self.heads, 1, 64)?;
        within("skew_ns", self.skew_ns, 0, self.revolution_ns())?;
        within("command_ns", self.command_ns, 0, 1_000_000_000)?;
        within("interface_bytes_per_second", self.interface_bytes_per_second, 1_000_000, 1 << 40)?;
        within("buffer_bytes", self.buffer_bytes, 65_536, 1 << 40)?;
        within("segment_bytes", self.segment_bytes, 4_096, self.buffer_bytes)?;
        let depth = crate::time::wide(self.queue_depth);
        within("queue_depth", depth, 1, 1_024)?;
        let tracks = self.capacity_bytes / self.outer_track_bytes;
        let least = self.zones.saturating_mul(2);
        if tracks < least {
            return Err(ParameterError::new(
                "outer_track_bytes",
                self.outer_track_bytes,
                format!("a disk of {} bytes needs at least {least} such tracks", self.capacity_bytes),
            ));
        }
        Ok(())
    }
}
