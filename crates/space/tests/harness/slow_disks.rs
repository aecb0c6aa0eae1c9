//! Disks that take their time, and what is done beside them.

use std::cell::Cell;
use std::error::Error;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{Instant, sleep};
use dolmen_buffer::ArenaConfig;
use dolmen_sim::{
    BitFlip, CommandKind, CrashState, Cut, DiskProfile, LatencyModel, Random, Recorder, Request,
    SimpleLatency, StateOptions,
};
use dolmen_space::Space;
use dolmen_units::Bytes;

use crate::harness::{Bench, Lab, Outcome, file};

/// The size of disks in tests of moments.
pub const CAPACITY: Bytes = Bytes::mib(96);

/// Something that is done beside something else.
pub type Task<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

/// One of two things that are done beside each other.
pub type Both<'a> = Pin<Box<dyn Future<Output = Result<(), Box<dyn Error>>> + 'a>>;

/// How long a disk takes; zero is as fast as any.
pub struct Slow {
    read: Duration,
    write: Duration,
    flush: Duration,
}

impl Slow {
    pub const FLUSHES: Self =
        Self { read: Duration::ZERO, write: Duration::ZERO, flush: Duration::from_millis(20) };
    pub const WRITES: Self =
        Self { read: Duration::ZERO, write: Duration::from_millis(10), flush: Duration::from_millis(20) };
    pub const READS: Self =
        Self { read: Duration::from_millis(40), write: Duration::ZERO, flush: Duration::ZERO };

    pub const BRIEFLY: Self =
        Self { read: Duration::ZERO, write: Duration::from_millis(1), flush: Duration::from_millis(1) };

    pub fn profile(self) -> DiskProfile {
        DiskProfile { latency: Rc::new(self), ..file(CAPACITY) }
    }
}

impl LatencyModel for Slow {
    fn latency(&self, request: Request, random: &mut Random) -> Duration {
        let fixed = match request.kind {
            CommandKind::Flush => self.flush,
            CommandKind::Read => self.read,
            _ => self.write,
        };
        if fixed > Duration::ZERO { fixed } else { SimpleLatency::FAST.latency(request, random) }
    }
}

/// A disk whose writes or flushes take as long as is said at the moment.
#[derive(Clone, Default)]
pub struct Dial {
    pub read: Rc<Cell<u64>>,
    pub write: Rc<Cell<u64>>,
    pub flush: Rc<Cell<u64>>,
}

impl Dial {
    pub fn profile(&self) -> DiskProfile {
        DiskProfile { latency: Rc::new(self.clone()), ..file(CAPACITY) }
    }
}

impl LatencyModel for Dial {
    fn latency(&self, request: Request, random: &mut Random) -> Duration {
        let millis = match request.kind {
            CommandKind::Flush => self.flush.get(),
            CommandKind::Read => self.read.get(),
            _ => self.write.get(),
        };
        if millis > 0 { Duration::from_millis(millis) } else { SimpleLatency::FAST.latency(request, random) }
    }
}

/// A disk whose commands go one after another, each at its place. One that does not follow the one before it costs a seek, or the
/// time in which what lies between passes below the head, if that is less; behind the head that is so for writes that the disk's
/// cache takes and puts in order.
pub struct Modelled {
    pub bytes_per_s: u64,
    seek: Duration,
    flush: Duration,
    /// Before anything begins, beside what else is under way.
    fixed: Duration,
    free_at: Cell<Instant>,
    head: Cell<u64>,
}

impl Modelled {
    /// About as a hard disk.
    pub fn spinning() -> Self {
        let seek = Duration::from_millis(8);
        Self::new(200_000_000, [seek, seek, Duration::ZERO])
    }

    /// About as a solid-state disk.
    pub fn solid() -> Self {
        Self::new(2_000_000_000, [Duration::ZERO, Duration::from_micros(500), Duration::from_micros(60)])
    }

    fn new(bytes_per_s: u64, [seek, flush, fixed]: [Duration; 3]) -> Self {
        Self { bytes_per_s, seek, flush, fixed, free_at: Cell::default(), head: Cell::default() }
    }

    /// A whole disk, of which no room has to be taken.
    pub fn profile(self, capacity: Bytes) -> DiskProfile {
        let mut profile = DiskProfile::new(capacity);
        (profile.geometry.thin, profile.geometry.rotational) = (false, self.seek > Duration::ZERO);
        DiskProfile { latency: Rc::new(self), ..profile }
    }

    fn passing(&self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / self.bytes_per_s)
    }

    fn reaching(&self, request: &Request) -> Duration {
        let is_sorted = request.at >= self.head.get() || request.kind == CommandKind::Write;
        let gap = self.passing(request.at.abs_diff(self.head.get()));
        if is_sorted { gap.min(self.seek) } else { self.seek }
    }
}

impl LatencyModel for Modelled {
    fn latency(&self, request: Request, _: &mut Random) -> Duration {
        let takes = match request.kind {
            CommandKind::Flush => self.flush,
            CommandKind::Discard | CommandKind::WriteZeroes => Duration::ZERO,
            CommandKind::Read | CommandKind::Write | CommandKind::DurableWrite => {
                let reaching = self.reaching(&request);
                self.head.set(request.at + request.length);
                reaching + self.passing(request.length)
            }
        };
        self.free_at.set(self.free_at.get().max(request.now) + takes);
        self.free_at.get().since(request.now) + self.fixed
    }
}

pub fn text(error: impl ToString) -> String {
    error.to_string()
}

pub async fn pause(lab: &Lab, millis: u64) {
    sleep(lab.seams.clock.as_ref(), Duration::from_millis(millis)).await;
}

/// Power that fails while a pool is in use, and what that leaves on the disks.
pub struct PowerCut {
    pub recorder: Rc<Recorder>,
    at: Cell<Option<Cut>>,
}

impl PowerCut {
    pub fn of(bench: &Bench) -> Rc<Self> {
        Rc::new(Self { recorder: Rc::new(bench.world.record()), at: Cell::new(None) })
    }

    /// Power fails now.
    pub fn now(&self) {
        self.at.set(Some(self.recorder.now()));
    }

    /// What is left, with a bit flipped in it or not, for whoever opens it next.
    pub fn left(&self, bench: &Bench, flip: Option<BitFlip>) -> Bench {
        let options = StateOptions { flip, ..StateOptions::default() };
        let state = self.at.get().and_then(|at| self.recorder.states(at, &options).next());
        let Some(state) = state else { panic!("nobody said when power fails") };
        Bench { arbiter: Rc::clone(&bench.arbiter), ..opened(&state, bench) }
    }

    /// All that may be left, each with a host's record of its own.
    pub fn all_left<'a>(&self, bench: &'a Bench) -> impl Iterator<Item = Bench> + use<'a> {
        let Some(at) = self.at.get() else { panic!("nobody said when power fails") };
        self.recorder.states(at, &StateOptions::default()).map(|state| opened(&state, bench))
    }
}

/// What a crash left, with a host's record of its own, for whoever opens it next.
pub fn opened(state: &CrashState, bench: &Bench) -> Bench {
    let left = state.reopen(1);
    left.world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
    let disks = left.disks.into_iter().flatten().collect();
    Bench { world: left.world, disks, arbiter: bench.arbiter.snapshot() }
}

pub async fn extra(tasks: Vec<Task<'_>>) -> Result<(), String> {
    join_all(tasks).await.into_iter().collect()
}

/// Rows that are written to while slabs move.
pub const ROWS: u64 = 12;

/// Overwrites the second block of each row, a while after each other.
pub async fn write_on(lab: &Lab, space: &Space) -> Result<(), String> {
    for row in 0..ROWS {
        pause(lab, 200).await;
        lab.write(space, (row << 20) + 4096, 4096, 2).await.map_err(text)?;
    }
    Ok(())
}

/// Each row begins with 512 KiB that were written before, and with what [`write_on`] wrote over it.
pub async fn expect_all(lab: &Lab, space: &Space) -> Outcome {
    for row in 0..ROWS {
        lab.expect(space, row << 20, 4096, 1).await?;
        lab.expect(space, (row << 20) + 4096, 4096, 2).await?;
        lab.expect(space, (row << 20) + 8192, 504 << 10, 1).await?;
    }
    Ok(())
}
