//! What a simulated disk is like: geometry, speed, and the habits that decide what a crash leaves.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{Geometry, Instant, Zoning};
use dolmen_units::Bytes;

use crate::fault::FaultRates;
use crate::random::{Random, Rate};
use crate::trace::CommandKind;

/// What a latency model knows of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// When it is submitted.
    pub now: Instant,
    /// What it is.
    pub kind: CommandKind,
    /// Where it begins, in bytes.
    pub at: u64,
    /// How long it is, in bytes.
    pub length: u64,
    /// Where the command before it ended, in bytes.
    pub previous_end: u64,
    /// Commands under way on the disk, without this one.
    pub under_way: usize,
}

/// How long commands take.
///
/// The contract: the answer depends on the arguments and on earlier calls only, and all chance comes from `random`; so
/// a run repeats. The disk adds nothing to it but the faults that make it slow.
pub trait LatencyModel {
    /// The time from submission to completion.
    fn latency(&self, request: Request, random: &mut Random) -> Duration;
}

/// A fixed part, a part for each byte, and a random part up to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimpleLatency {
    /// Every command, in nanoseconds.
    pub fixed_ns: u64,
    /// Every KiB, in nanoseconds.
    pub per_kib_ns: u64,
    /// The largest random part, in nanoseconds. It is what lets commands overtake each other.
    pub jitter_ns: u64,
}

impl SimpleLatency {
    /// About as an NVMe disk, with jitter enough to reorder freely.
    pub const FAST: Self = Self { fixed_ns: 20_000, per_kib_ns: 300, jitter_ns: 60_000 };
}

impl LatencyModel for SimpleLatency {
    fn latency(&self, request: Request, random: &mut Random) -> Duration {
        let transfer = self.per_kib_ns.saturating_mul(request.length.div_ceil(1024));
        Duration::from_nanos(
            self.fixed_ns.saturating_add(transfer).saturating_add(random.below(self.jitter_ns)),
        )
    }
}

/// Who remembers a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceScope {
    /// The handle alone, as a driver does: writes that another handle left under way still land, however late.
    Handle,
    /// The disk, as persistent reservations do: delayed writes with an older token are refused.
    Disk,
}

/// What a simulated disk is like.
#[derive(Clone)]
pub struct DiskProfile {
    /// Size and promises. `atomic_write_bytes` is 512 or 4096.
    pub geometry: Geometry,
    /// Speed.
    pub latency: Rc<dyn LatencyModel>,
    /// Faults drawn from the seed.
    pub rates: FaultRates,
    /// Who remembers a fence.
    pub fence_scope: FenceScope,
    /// The longest that a delayed write waits after the disk was attached again.
    pub delayed_by_max: Duration,
    /// After how long a hung command is answered as timed out; `None` leaves it until it is released.
    pub hang_limit: Option<Duration>,
    /// After how long a disk that vanished by its rate comes back; `None` leaves it away.
    pub absence: Option<Duration>,
    /// How many earlier flushes the disk can return to.
    pub flushes_remembered: usize,
    /// Bytes that take room from a file system below as they are written first; what lies beside has its room.
    pub thin: Range<u64>,
}

impl DiskProfile {
    /// A fast disk with 512-byte logical blocks that writes 4 KiB atomically, has a volatile cache and forced unit
    /// access, and never fails.
    #[must_use]
    pub fn new(capacity: Bytes) -> Self {
        let geometry = Geometry {
            capacity,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            optimal_io_bytes: 0,
            atomic_write_bytes: 4096,
            volatile_cache: true,
            fua: true,
            discard_granularity_bytes: Some(4096),
            thin: true,
            rotational: false,
            zoning: Zoning::None,
            shareable: false,
        };
        Self {
            geometry,
            latency: Rc::new(SimpleLatency::FAST),
            rates: FaultRates::NONE,
            fence_scope: FenceScope::Handle,
            delayed_by_max: Duration::from_millis(50),
            hang_limit: None,
            absence: None,
            flushes_remembered: 4,
            thin: 0..u64::MAX,
        }
    }

    /// The same, with room below for everything but these bytes.
    #[must_use]
    pub fn thin_within(mut self, thin: Range<u64>) -> Self {
        self.thin = thin;
        self
    }

    /// The same disk, which writes only single sectors atomically: a power cut may tear a block.
    #[must_use]
    pub fn tearing(mut self) -> Self {
        self.geometry.atomic_write_bytes = 512;
        self
    }

    /// The same disk, where another host may reach it.
    #[must_use]
    pub fn shareable(mut self) -> Self {
        self.geometry.shareable = true;
        self
    }

    /// The same disk, addressed in 4 KiB blocks only.
    #[must_use]
    pub fn native_4k(mut self) -> Self {
        self.geometry.logical_block_bytes = 4096;
        self
    }

    /// The same disk without a volatile cache: what completed is durable.
    #[must_use]
    pub fn without_cache(mut self) -> Self {
        self.geometry.volatile_cache = false;
        self
    }

    /// The same disk without forced unit access: a durable write costs a flush.
    #[must_use]
    pub fn without_fua(mut self) -> Self {
        self.geometry.fua = false;
        self
    }

    /// The same disk with these faults.
    #[must_use]
    pub fn with_rates(mut self, rates: FaultRates) -> Self {
        self.rates = rates;
        self
    }

    /// The same disk, on which each write in flight at a kill lands late with this likelihood.
    #[must_use]
    pub fn with_delayed_writes(mut self, rate: Rate) -> Self {
        self.rates = self.rates.with(crate::fault::FaultKind::DelayedWrite, rate);
        self
    }
}

impl fmt::Debug for DiskProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskProfile").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}
