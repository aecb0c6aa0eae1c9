//! A short life of a pool that does everything once, recorded.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::ranks::scoped;
use dolmen_block_io::{BlockDevice, Seams, sleep};
use dolmen_buffer::ArenaConfig;
use dolmen_pool::{Arbiter, CreateOptions, OpenMode, Pool, PoolError, Purpose, create};
use dolmen_sim::{DiskProfile, SimDisk, World};
use dolmen_space::{Integrity, Layout, Progress, Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::{Bytes, PoolId};

use crate::crash_oracle::open_pool;
use crate::harness::{Kind, Outcome, ROW};
use crate::recording::{Entry, INTERLEAVE, NotingArbiter, Operation, OperationRecorder, Recording};

/// Disks of most pools.
pub const DISKS: usize = 3;
const CAPACITY: Bytes = Bytes::mib(64);
const SIZE: Bytes = Bytes::mib(4);
/// Of two rows of the usual length.
const SHIPPED_SIZE: Bytes = Bytes::mib(16);
/// Memory of every process: enough for an opening.
pub const ARENAS: ArenaConfig = ArenaConfig { small_count: 256, medium_count: 16, large_count: 6 };

/// Longer than a shadow row waits for its stream.
const IDLE: Duration = Duration::from_secs(65);
/// Longer than one waits whose lines alternate.
const LONG_IDLE: Duration = Duration::from_secs(660);

/// Writes of a life that rewrites.
const REWRITES: u64 = 8;

/// Rows that are deleted from a full map so that anything can be changed.
const LAST_ROWS: u64 = 200;
/// Rows that are changed and deleted then, nearly each in a leaf of its own.
const CHANGED_ROWS: u64 = 60;
const DELETED_ROWS: u64 = 60;

/// A recorded life.
pub struct RecordedRun {
    pub recording: Rc<Recording>,
    pub kind: Kind,
    pub scenario: Scenario,
    pub pool: PoolId,
    pub world: Rc<World>,
    /// Disks that the pool began with.
    pub disks: usize,
}

/// Who lives it.
#[derive(Clone)]
struct Driver {
    recorder: OperationRecorder,
    world: Rc<World>,
    disks: Vec<Rc<SimDisk>>,
    devices: Vec<Rc<dyn BlockDevice>>,
    arbiter: Rc<NotingArbiter>,
    kind: Kind,
    /// Rows of the filler on the map.
    rows: Rc<Cell<u64>>,
}

/// Disks that a pool begins with: more where rows need more.
pub fn disks_of(resiliency: Resiliency) -> usize {
    match resiliency {
        Resiliency::Mirror { copies: 4 } => 5,
        Resiliency::Parity { parity: 2 } => 6,
        _ => DISKS,
    }
}

/// Data columns that share parity on as many disks.
pub fn parity_of(resiliency: Resiliency) -> Option<u64> {
    let parity = usize::from(resiliency.parity_columns());
    (parity > 0).then_some((disks_of(resiliency) - parity) as u64)
}

/// The name of a disk.
pub fn name_of(number: usize) -> String {
    format!("disk{number}")
}

pub fn profile() -> DiskProfile {
    DiskProfile::new(CAPACITY).tearing()
}

/// Which life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// The pool is made, blocks go through all classes of writes, tables are written back, the pool is exported.
    Blocks,
    /// The same of a space as it is when only its size and resiliency are given.
    Shipped,
    /// A pool that exists: rows are discarded and deleted, their slabs get new owners, a disk leaves and is resynced.
    Owners,
    /// A pool that exists: a disk is added, one is replaced, one leaves under a write and comes back.
    Disks,
    /// A pool that exists: a disk is added, another one leaves under writes without another in its place, and one comes and goes.
    Removal,
    /// A pool that exists: blocks are cached and put in place, under writes and checkpoints, and with a disk gone.
    Destage,
    /// A pool that exists: whole stripes are written that were never written, or seem so, under checkpoints, with a disk gone,
    /// and written over.
    Stripes,
    /// A pool that exists: streams go over a row that is in place, whose shadow row takes its place, under writes, discards and
    /// checkpoints, and with a disk gone; one is left behind.
    ShadowRows,
    /// A pool that exists: single stripes of a row that is in place go to its shadow row and back, under small writes, discards and
    /// checkpoints, and with a disk gone; one shadow row gives its lines back, one is promoted, one is left behind.
    AlternatingSlots,
    /// A pool that exists: a space is converted under writes, turned round, and converted with a disk gone.
    Converted,
    /// A block is cached and flushed, and cached again.
    Cached,
    /// A pool that exists: a space is made, a row claimed, blocks written, flushed, written over, discarded, the space made
    /// larger and deleted, each once and with as few commands as it takes.
    Short,
    /// A pool whose map is full: rows of it are changed and deleted, and checkpoints are made in parts.
    FullMap,
}

impl Scenario {
    /// Disks that it needs beside those that the pool begins with.
    pub fn further_disks(self) -> usize {
        match self {
            Self::Blocks
            | Self::Shipped
            | Self::Owners
            | Self::Destage
            | Self::Stripes
            | Self::ShadowRows
            | Self::AlternatingSlots
            | Self::Converted
            | Self::Cached
            | Self::Short
            | Self::FullMap => 0,
            Self::Removal => 1,
            Self::Disks => 2,
        }
    }
}

impl RecordedRun {
    pub fn record(kind: Kind, scenario: Scenario, seed: u64) -> Self {
        let world = Rc::new(World::new(seed));
        world.set_arenas(ARENAS, ARENAS);
        let count = disks_of(kind.resiliency) + scenario.further_disks();
        let disks: Vec<_> = (0..count).map(|number| world.add_disk(&name_of(number), profile())).collect();
        let recording = Recording::new(None);
        let driver = Driver::new(&world, &disks, &recording, kind);
        let before = driver.clone();
        let before = async move { before.before(scenario).await.map_err(|error| error.to_string()) };
        world.run(before).unwrap().unwrap();
        recording.record(&world);
        let pool = Rc::clone(&driver.arbiter);
        world.run(driver.live(scenario)).unwrap().unwrap();
        Self { recording, kind, scenario, pool: pool.pool.get(), world, disks: disks_of(kind.resiliency) }
    }

    /// Data columns that share parity, of the space or of what it is converted to on the way.
    pub fn parity_of(&self) -> Option<u64> {
        let is_parity_meanwhile = self.scenario == Scenario::Converted
            && self.kind.resiliency == (Resiliency::Mirror { copies: 2 });
        if is_parity_meanwhile { Some(self.disks as u64 - 1) } else { parity_of(self.kind.resiliency) }
    }

    /// The names of steps under way at a cut.
    pub fn steps_at(&self, cut: usize) -> Vec<&'static str> {
        let entries = self.recording.entries.borrow();
        let steps = entries.iter().filter(|entry| matches!(entry.operation, Operation::Step));
        let under_way =
            |entry: &&Entry| entry.begun.cut <= cut && entry.acked.is_none_or(|acked| cut <= acked.cut);
        steps.filter(under_way).map(|entry| entry.name).collect()
    }
}

/// The life as a future, and the host that lives it.
pub fn body(
    world: &Rc<World>,
    disks: &[Rc<SimDisk>],
    recording: &Rc<Recording>,
    kind: Kind,
    scenario: Scenario,
) -> (impl Future<Output = Result<(), String>> + 'static, Rc<NotingArbiter>) {
    let driver = Driver::new(world, disks, recording, kind);
    let arbiter = Rc::clone(&driver.arbiter);
    (driver.live(scenario), arbiter)
}

/// A pool with one space of which some blocks are written, and none since a flush; and what writes those blocks again and
/// again.
pub fn rewriting(
    world: &Rc<World>,
    disks: &[Rc<SimDisk>],
    recording: &Rc<Recording>,
    kind: Kind,
) -> (impl Future<Output = Result<(), String>> + 'static, Rc<NotingArbiter>) {
    let driver = Driver::new(world, disks, recording, kind);
    let arbiter = Rc::clone(&driver.arbiter);
    let recorder = driver.recorder.clone();
    let ready = async move {
        let spaces = driver.create().await?;
        let a = driver.make(&spaces, "a").await?;
        driver.recorder.put("a", &a, 0, 2).await?;
        Ok::<_, Box<dyn Error>>((spaces, a))
    };
    let (spaces, a) = world.run(ready).unwrap().unwrap();
    let again = async move {
        for round in 0..REWRITES {
            recorder.put("a", &a, round % 2, 1).await.map_err(|error| error.to_string())?;
        }
        drop((a, spaces));
        Ok(())
    };
    (again, arbiter)
}

impl Driver {
    fn new(world: &Rc<World>, disks: &[Rc<SimDisk>], recording: &Rc<Recording>, kind: Kind) -> Self {
        Self {
            recorder: OperationRecorder { recording: Rc::clone(recording), seams: world.seams() },
            world: Rc::clone(world),
            disks: disks.to_vec(),
            devices: disks.iter().map(|disk| disk.attach(world)).collect(),
            arbiter: NotingArbiter::new(recording),
            kind,
            rows: Rc::default(),
        }
    }

    async fn live(self, scenario: Scenario) -> Result<(), String> {
        // Apart from each other: one frame for all of them would not fit the stack of a test.
        let result = match scenario {
            Scenario::Blocks => Box::pin(self.blocks(self.small("a"))).await,
            Scenario::Shipped => Box::pin(self.blocks(self.shipped("a"))).await,
            Scenario::Owners => Box::pin(self.owners()).await,
            Scenario::Disks => Box::pin(self.disks()).await,
            Scenario::Removal => Box::pin(self.removal()).await,
            Scenario::Destage => Box::pin(self.destage()).await,
            Scenario::Stripes => Box::pin(self.stripes()).await,
            Scenario::ShadowRows => Box::pin(self.shadows()).await,
            Scenario::AlternatingSlots => Box::pin(self.alternating_slots()).await,
            Scenario::Converted => Box::pin(self.converted()).await,
            Scenario::Cached => Box::pin(self.cached()).await,
            Scenario::Short => Box::pin(self.short()).await,
            Scenario::FullMap => Box::pin(self.full_map()).await,
        };
        result.map_err(|error| error.to_string())
    }

    /// What a life begins with, unrecorded.
    async fn before(&self, scenario: Scenario) -> Outcome {
        match scenario {
            Scenario::FullMap => self.fill().await,
            Scenario::Short => self.short_begins().await,
            _ => Ok(()),
        }
    }

    /// Disks that the pool begins with.
    fn disk_count(&self) -> usize {
        disks_of(self.kind.resiliency)
    }

    fn seams(&self) -> &Seams {
        &self.recorder.seams
    }

    async fn create(&self) -> Result<Rc<Spaces>, Box<dyn Error>> {
        let index = self.recorder.recording.begin("", Operation::Pool);
        let options =
            CreateOptions { name: "tank".parse()?, overwrite: Vec::new(), fault_domains: Vec::new() };
        let arbiter = Rc::clone(&self.arbiter) as Rc<dyn Arbiter>;
        let first: Vec<_> = self.devices.iter().take(self.disk_count()).cloned().collect();
        let opened = create(self.seams(), arbiter, &first, &options).await?;
        let spaces = Spaces::start(opened).await?;
        self.recorder.recording.ack(index);
        Ok(spaces)
    }

    async fn make(&self, spaces: &Spaces, name: &'static str) -> Result<Space, Box<dyn Error>> {
        Ok(self.recorder.make(spaces, name, self.small(name)).await?)
    }

    /// A space of short rows, of which small disks hold many.
    fn small(&self, name: &str) -> SpaceSpec {
        let mut spec = SpaceSpec::usual(name.parse().unwrap(), SIZE, self.kind.resiliency);
        spec.integrity = self.kind.integrity;
        spec.row = Some(ROW);
        spec.interleave = INTERLEAVE;
        spec
    }

    /// A space of which nothing was given but what has to be.
    fn shipped(&self, name: &str) -> SpaceSpec {
        SpaceSpec::usual(name.parse().unwrap(), SHIPPED_SIZE, self.kind.resiliency)
    }

    async fn blocks(&self, spec: SpaceSpec) -> Outcome {
        let recorder = &self.recorder;
        let size = spec.size;
        let spaces = recorder.step("create the pool", self.create()).await?;
        let a = recorder.step("create a space", recorder.make(&spaces, "a", spec)).await?;
        recorder.step("claim, fresh write", recorder.put("a", &a, 0, 3)).await?;
        recorder.step("flush", recorder.flush(&spaces)).await?;
        recorder
            .step("fresh write, rewrite", async {
                recorder.put("a", &a, 7, 4).await?;
                recorder.put("a", &a, 8, 2).await
            })
            .await?;
        recorder.step("overwrite", recorder.put("a", &a, 0, 2)).await?;
        recorder.step("overwrite again", recorder.put("a", &a, 0, 1)).await?;
        recorder.step("flush", recorder.flush(&spaces)).await?;
        recorder.step("discard", recorder.discard("a", &a, 1, 2)).await?;
        recorder.step("write after discard", recorder.put("a", &a, 1, 1)).await?;
        recorder.step("flush", recorder.flush(&spaces)).await?;
        recorder.step("discard", recorder.discard("a", &a, 8, 1)).await?;
        recorder.step("flush", recorder.flush(&spaces)).await?;
        recorder
            .step("rewrite after discard", async {
                recorder.put("a", &a, 8, 1).await?;
                recorder.put("a", &a, 8, 1).await
            })
            .await?;
        recorder.step("grow", recorder.resize("a", &spaces, &a, Bytes(2 * size.0))).await?;
        recorder.step("claim at the new end", recorder.put("a", &a, 2 * size.0 / 4096 - 2, 2)).await?;
        recorder.step("write back, checkpoint", async { spaces.pool().checkpoint().await }).await?;
        recorder.step("overwrite", recorder.put("a", &a, 0, 3)).await?;
        let (both, at_once) = (recorder.put("a", &a, 9, 1), async { spaces.pool().checkpoint().await });
        recorder.step("write under a checkpoint", async { together(both, at_once).await }).await;
        recorder.step("overwrite", recorder.put("a", &a, 9, 2)).await?;
        drop(a);
        let index = recorder.recording.begin("", Operation::Export);
        recorder.step("export", spaces.export()).await?;
        recorder.recording.ack(index);
        Ok(())
    }

    async fn owners(&self) -> Outcome {
        let recorder = &self.recorder;
        let spaces = self.create().await?;
        let a = self.make(&spaces, "a").await?;
        recorder.put("a", &a, 0, 2).await?;
        recorder.put("a", &a, 300, 2).await?;
        recorder.flush(&spaces).await?;
        recorder.put("a", &a, 0, 2).await?;
        recorder.step("discard a row, unflushed", recorder.discard("a", &a, 0, 256)).await?;
        let b = self.make(&spaces, "b").await?;
        recorder.step("a new owner of the slab", recorder.put("b", &b, 0, 3)).await?;
        recorder.step("flush", recorder.flush(&spaces)).await?;
        recorder.put("a", &a, 301, 1).await?;
        recorder.step("delete a space", recorder.delete("a", &spaces, &a)).await?;
        drop(a);
        recorder.step("a new owner of its slab", recorder.put("b", &b, 257, 3)).await?;
        recorder.flush(&spaces).await?;
        recorder.step("close", spaces.close()).await?;
        drop((b, spaces));
        let arbiter = Rc::clone(&self.arbiter) as Rc<dyn Arbiter>;
        let opening = open_pool(self.seams(), &self.devices, arbiter, OpenMode::Write);
        let spaces = recorder.step("open", opening).await.map_err(|error| format!("{error:?}"))?;
        let b = spaces.find("b")?;
        if self.kind.resiliency.redundancy() > 0 {
            self.lose_a_disk(&spaces, "b", &b, 0).await?;
        }
        recorder.put("b", &b, 0, 1).await?;
        recorder.flush(&spaces).await?;
        drop(b);
        spaces.close().await?;
        Ok(())
    }

    /// Disks come and go, one after another; every write and flush of that is under a step.
    async fn disks(&self) -> Outcome {
        let recorder = &self.recorder;
        let (added, old, new, lost) = (self.disk_count(), 0, self.disk_count() + 1, 1);
        let spaces = self.create().await?;
        let a = self.make(&spaces, "a").await?;
        recorder.put("a", &a, 0, 3).await?;
        recorder.put("a", &a, 257, 2).await?;
        recorder.flush(&spaces).await?;
        recorder.put("a", &a, 1, 1).await?;
        let index = recorder.recording.begin("", Operation::Join { disk: added });
        let device = Rc::clone(&self.devices[added]);
        recorder.step("add a disk", spaces.members().add(device, &[])).await?;
        recorder.recording.ack(index);
        recorder.put("a", &a, 513, 2).await?;
        recorder.flush(&spaces).await?;
        recorder.put("a", &a, 0, 1).await?;
        let leaving = spaces.pool().members().find_disk(&name_of(old))?;
        let index = recorder.recording.begin("", Operation::Replace { old, new });
        let (device, progress) = (Rc::clone(&self.devices[new]), Progress::default());
        recorder.step("replace a disk", spaces.moves().replace(&leaving, device, &[], &progress)).await?;
        recorder.recording.ack(index);
        recorder.put("a", &a, 514, 1).await?;
        recorder.flush(&spaces).await?;
        if self.kind.resiliency.redundancy() > 0 {
            self.lose_a_disk(&spaces, "a", &a, lost).await?;
        }
        recorder.flush(&spaces).await?;
        drop(a);
        spaces.close().await?;
        Ok(())
    }

    /// A disk that was there from the beginning leaves; what it has goes to one that was added, while blocks are written and flushed.
    async fn removal(&self) -> Outcome {
        let recorder = &self.recorder;
        let (added, removed, lost) = (self.disk_count(), 0, 1);
        let spaces = self.create().await?;
        let a = self.make(&spaces, "a").await?;
        recorder.put("a", &a, 0, 3).await?;
        recorder.put("a", &a, 257, 2).await?;
        recorder.put("a", &a, 514, 2).await?;
        recorder.flush(&spaces).await?;
        recorder.put("a", &a, 0, 1).await?;
        let index = recorder.recording.begin("", Operation::Join { disk: added });
        spaces.members().add(Rc::clone(&self.devices[added]), &[]).await?;
        recorder.recording.ack(index);
        let index = recorder.recording.begin("", Operation::Remove { disk: removed });
        let write_on = async {
            for block in [1, 257, 515, 2] {
                recorder.put("a", &a, block, 1).await?;
            }
            recorder.flush(&spaces).await?;
            recorder.put("a", &a, 258, 1).await
        };
        recorder.step("remove a disk", together(self.remove(&spaces, removed), write_on)).await;
        recorder.recording.ack(index);
        recorder.step("write without it", recorder.put("a", &a, 514, 1)).await?;
        recorder.flush(&spaces).await?;
        if self.kind.resiliency.redundancy() > 0 {
            self.lose_a_disk(&spaces, "a", &a, lost).await?;
        }
        recorder.flush(&spaces).await?;
        drop(a);
        spaces.close().await?;
        Ok(())
    }

    /// Moves everything off a disk, and strikes it.
    async fn remove(&self, spaces: &Spaces, removed: usize) -> Outcome {
        let recorder = &self.recorder;
        let disk = spaces.pool().members().find_disk(&name_of(removed))?;
        let forecast = spaces.moves().forecast_removal(disk.slot()).await?;
        assert!(forecast.rows > 0 && forecast.stuck.is_empty(), "{forecast:?}");
        recorder.step("retire it", spaces.pool().membership().retire(&disk)).await?;
        let all =
            recorder.step("move all off it", spaces.moves().drain_disk(&disk, &Progress::default())).await?;
        assert!(all, "something is left");
        recorder.step("strike it", spaces.pool().membership().evict(&disk)).await?;
        recorder.step("other voters", spaces.pool().voter_tender().tend()).await?;
        Ok(())
    }

    /// Lines are put in place: whole ones and parts, with writes, discards and checkpoints between and beside.
    async fn destage(&self) -> Outcome {
        let recorder = &self.recorder;
        let spaces = self.create().await?;
        let a = self.make(&spaces, "a").await?;
        recorder.put("a", &a, 0, 3).await?;
        recorder.put("a", &a, 6, 4).await?;
        recorder.flush(&spaces).await?;
        recorder.step("put in place", spaces.caches().destage()).await?;
        recorder.put("a", &a, 1, 1).await?;
        recorder.put("a", &a, 5, 2).await?;
        recorder.flush(&spaces).await?;
        recorder.put("a", &a, 1, 1).await?;
        recorder.step("carry a change, put in place", spaces.caches().destage()).await?;
        if self.kind.resiliency.parity_columns() == 0 {
            recorder.put("a", &a, 6, 1).await?;
            recorder.step("flush, put in place", spaces.caches().destage()).await?;
        }
        recorder.step("discard", recorder.discard("a", &a, 0, 2)).await?;
        recorder.put("a", &a, 8, 2).await?;
        recorder.flush(&spaces).await?;
        recorder.step("relog, checkpoint", async { spaces.pool().checkpoint().await }).await?;
        recorder.put("a", &a, 8, 1).await?;
        let (destage, checkpoint) = (spaces.caches().destage(), async { spaces.pool().checkpoint().await });
        recorder.step("put in place under a checkpoint", together(destage, checkpoint)).await;
        recorder.put("a", &a, 0, 1).await?;
        recorder.flush(&spaces).await?;
        let (put, destage) = (recorder.put("a", &a, 0, 2), spaces.caches().destage());
        recorder.step("write while lines are put in place", together(put, destage)).await;
        recorder.step("discard a row", recorder.discard("a", &a, 0, 256)).await?;
        recorder.put("a", &a, 2, 2).await?;
        recorder.flush(&spaces).await?;
        recorder.step("put in place, free", spaces.caches().destage()).await?;
        if self.kind.resiliency.redundancy() > 0 {
            Box::pin(self.destage_without_disks(&spaces, &a)).await?;
        }
        drop(a);
        spaces.close().await?;
        Ok(())
    }

    async fn destage_without_disks(&self, spaces: &Rc<Spaces>, a: &Space) -> Outcome {
        let recorder = &self.recorder;
        self.lose_a_disk(spaces, "a", a, 0).await?;
        recorder.step("put in place", spaces.caches().destage()).await?;
        recorder.put("a", a, 0, 1).await?;
        recorder.flush(spaces).await?;
        self.disks[1].vanish();
        let weak = recorder.recording.begin("", Operation::Weak { disk: 1 });
        recorder.step("put in place without a disk", spaces.caches().destage()).await?;
        recorder.put("a", a, 6, 1).await?;
        recorder.flush(spaces).await?;
        recorder.step("carry a change without a disk", spaces.caches().destage()).await?;
        self.disks[1].come_back();
        let device = self.disks[1].attach(&self.world);
        recorder.step("readmit", spaces.members().rejoin(device)).await?;
        recorder.step("resync", async { spaces.members().resync(&Progress::default()).await }).await?;
        recorder.recording.ack(weak);
        Ok(())
    }

    /// Each interleave has 4 blocks.
    async fn stripes(&self) -> Outcome {
        let recorder = &self.recorder;
        let stripe = 4 * parity_of(self.kind.resiliency).unwrap();
        let spaces = self.create().await?;
        let a = self.make(&spaces, "a").await?;
        recorder.step("a stripe", recorder.put("a", &a, 0, stripe)).await?;
        recorder.step("two stripes", recorder.put("a", &a, stripe, 2 * stripe)).await?;
        recorder.flush(&spaces).await?;
        recorder.step("a stripe", recorder.put("a", &a, 3 * stripe, stripe)).await?;
        recorder.step("a part of what is in flight", recorder.put("a", &a, 3 * stripe + 1, 2)).await?;
        recorder.put("a", &a, 4 * stripe, stripe).await?;
        recorder.flush(&spaces).await?;
        recorder.step("put in place", spaces.caches().destage()).await?;
        let (put, checkpoint) =
            (recorder.put("a", &a, 5 * stripe, 2 * stripe), async { spaces.pool().checkpoint().await });
        recorder.step("stripes under a checkpoint", together(put, checkpoint)).await;
        recorder
            .step("discard, write again", async {
                recorder.discard("a", &a, 0, stripe).await?;
                recorder.put("a", &a, 0, stripe).await
            })
            .await?;
        recorder.step("discard a stripe", recorder.discard("a", &a, stripe, stripe)).await?;
        recorder.flush(&spaces).await?;
        recorder.step("put in place", spaces.caches().destage()).await?;
        recorder.step("what was put in place just now", recorder.put("a", &a, stripe, stripe)).await?;
        recorder.discard("a", &a, 2 * stripe, stripe).await?;
        recorder.flush(&spaces).await?;
        spaces.caches().destage().await?;
        recorder.flush(&spaces).await?;
        recorder.step("what was discarded", recorder.put("a", &a, 2 * stripe, stripe)).await?;
        recorder.step("checkpoint", async { spaces.pool().checkpoint().await }).await?;
        self.disks[1].vanish();
        let weak = recorder.recording.begin("", Operation::Weak { disk: 1 });
        recorder.step("a stripe without a disk", recorder.put("a", &a, 8 * stripe, stripe)).await?;
        recorder.flush(&spaces).await?;
        recorder.put("a", &a, 9 * stripe, stripe).await?;
        self.disks[1].come_back();
        let device = self.disks[1].attach(&self.world);
        recorder.step("readmit", spaces.members().rejoin(device)).await?;
        let (put, resync) = (recorder.put("a", &a, 10 * stripe, 2 * stripe), async {
            spaces.members().resync(&Progress::default()).await
        });
        recorder.step("stripes while it is resynced", together(put, resync)).await;
        recorder.recording.ack(weak);
        recorder.put("a", &a, 12 * stripe, stripe).await?;
        drop(a);
        spaces.close().await?;
        Ok(())
    }

    /// Of rows of 32 stripes, or 16. A shadow row that nobody uses for a minute is promoted.
    async fn shadows(&self) -> Outcome {
        let recorder = &self.recorder;
        let stripe = 4 * parity_of(self.kind.resiliency).unwrap();
        let idle = || sleep(self.seams().clock.as_ref(), IDLE);
        let spaces = self.create().await?;
        let a = self.make(&spaces, "a").await?;
        let counters = || spaces.counters();
        recorder.put("a", &a, 0, 128).await?;
        recorder.put("a", &a, 128, 128).await?;
        recorder.flush(&spaces).await?;
        recorder.put("a", &a, 248, 2).await?;
        recorder.step("a shadow row, a stream", recorder.put("a", &a, 0, 96)).await?;
        recorder.step("the stream goes on", recorder.put("a", &a, 96, 32)).await?;
        recorder.flush(&spaces).await?;
        recorder
            .step("in the shadow row's lines and the row's", async {
                recorder.put("a", &a, 5, 2).await?;
                recorder.put("a", &a, 240, 1).await
            })
            .await?;
        recorder.step("discard stripes of the shadow row", recorder.discard("a", &a, 16, stripe)).await?;
        recorder.step("put in place", spaces.caches().destage()).await?;
        recorder.step("checkpoint", async { spaces.pool().checkpoint().await }).await?;
        let (put, checkpoint) = (recorder.put("a", &a, 128, 32), async { spaces.pool().checkpoint().await });
        recorder.step("the stream under a checkpoint", together(put, checkpoint)).await;
        recorder.put("a", &a, 244, 2).await?;
        recorder.flush(&spaces).await?;
        recorder.put("a", &a, 246, 1).await?;
        recorder.step("the shadow row is promoted", idle()).await;
        assert_eq!((counters().shadows_made, counters().shadows_promoted), (1, 1));
        recorder.step("write what was taken over", recorder.put("a", &a, 3, 4)).await?;
        recorder
            .step("once more, in whole", async {
                recorder.put("a", &a, 0, 128).await?;
                recorder.put("a", &a, 128, 128).await
            })
            .await?;
        recorder.flush(&spaces).await?;
        recorder.step("the shadow row is promoted", idle()).await;
        Box::pin(self.shadows_together(&spaces, &a)).await?;
        Box::pin(self.shadows_without_disks(&spaces, &a)).await?;
        drop(a);
        spaces.close().await?;
        Ok(())
    }

    /// Of two rows, one of which has something in the cache and lacks lines.
    async fn shadows_together(&self, spaces: &Rc<Spaces>, a: &Space) -> Outcome {
        let recorder = &self.recorder;
        let before = spaces.counters();
        for _ in 0..2 {
            for first in (256..768).step_by(128) {
                recorder.put("a", a, first, if first == 640 { 112 } else { 128 }).await?;
            }
            recorder.put("a", a, 752, 16).await?;
            recorder.flush(spaces).await?;
        }
        recorder.put("a", a, 700, 2).await?;
        recorder.put("a", a, 300, 1).await?;
        let idle = sleep(self.seams().clock.as_ref(), IDLE);
        recorder.step("two shadow rows are promoted together", idle).await;
        let after = spaces.counters();
        assert_eq!(after.shadows_made - before.shadows_made, 2);
        assert_eq!(after.shadows_promoted - before.shadows_promoted, 2);
        recorder.step("write what was taken over", recorder.put("a", a, 510, 4)).await
    }

    async fn shadows_without_disks(&self, spaces: &Rc<Spaces>, a: &Space) -> Outcome {
        let recorder = &self.recorder;
        recorder.put("a", a, 0, 112).await?;
        recorder.flush(spaces).await?;
        self.disks[1].vanish();
        let weak = recorder.recording.begin("", Operation::Weak { disk: 1 });
        recorder.step("the stream without a disk", recorder.put("a", a, 112, 32)).await?;
        recorder.put("a", a, 250, 1).await?;
        recorder.flush(spaces).await?;
        let idle = sleep(self.seams().clock.as_ref(), IDLE);
        recorder.step("the shadow row is promoted without a disk", idle).await;
        self.disks[1].come_back();
        let device = self.disks[1].attach(&self.world);
        recorder.step("readmit", spaces.members().rejoin(device)).await?;
        recorder.step("resync", async { spaces.members().resync(&Progress::default()).await }).await?;
        recorder.recording.ack(weak);
        recorder.step("a shadow row that is left behind", recorder.put("a", a, 0, 96)).await?;
        recorder.flush(spaces).await
    }

    /// Of stripes so short that none belongs to a stream.
    async fn alternating_slots(&self) -> Outcome {
        let recorder = &self.recorder;
        let stripe = 4 * parity_of(self.kind.resiliency).unwrap();
        let spaces = self.create().await?;
        let a = self.make(&spaces, "a").await?;
        recorder.put("a", &a, 0, 128).await?;
        recorder.put("a", &a, 128, 128).await?;
        recorder.flush(&spaces).await?;
        spaces.pool().checkpoint().await?;
        recorder.step("a stripe to a shadow row", recorder.put("a", &a, 3 * stripe, stripe)).await?;
        recorder.step("two more", recorder.put("a", &a, 8 * stripe, 2 * stripe)).await?;
        recorder.flush(&spaces).await?;
        recorder.step("back to the row", recorder.put("a", &a, 3 * stripe, stripe)).await?;
        recorder
            .step("and to the shadow row, behind a flush", recorder.put("a", &a, 3 * stripe, stripe))
            .await?;
        recorder.step("a small write beside it", recorder.put("a", &a, 8 * stripe + 1, 2)).await?;
        recorder.flush(&spaces).await?;
        recorder.step("put in place", spaces.caches().destage()).await?;
        recorder.step("what was put in place goes back", recorder.put("a", &a, 8 * stripe, stripe)).await?;
        recorder
            .step("discard a stripe of the shadow row", recorder.discard("a", &a, 9 * stripe, stripe))
            .await?;
        recorder.flush(&spaces).await?;
        spaces.caches().destage().await?;
        recorder.step("what was discarded", recorder.put("a", &a, 9 * stripe, stripe)).await?;
        let (put, checkpoint) =
            (recorder.put("a", &a, 3 * stripe, stripe), async { spaces.pool().checkpoint().await });
        recorder.step("back under a checkpoint", together(put, checkpoint)).await;
        recorder.flush(&spaces).await?;
        let both = async {
            recorder.put("a", &a, 3 * stripe, stripe).await?;
            recorder.put("a", &a, 12 * stripe, stripe).await
        };
        recorder.step("alternately while it is flushed", together(both, spaces.flush())).await;
        Box::pin(self.alternating_without_a_disk(&spaces, &a, stripe)).await?;
        recorder
            .step("the shadow row gives its lines back", sleep(self.seams().clock.as_ref(), LONG_IDLE))
            .await;
        assert_eq!((spaces.counters().shadows_made, spaces.counters().shadows_dropped), (1, 1));
        recorder.step("write what came back", recorder.put("a", &a, 3 * stripe, stripe + 1)).await?;
        recorder.put("a", &a, 256, 128).await?;
        recorder.put("a", &a, 384, 128).await?;
        recorder.flush(&spaces).await?;
        for nth in (256 / stripe..512 / stripe).filter(|nth| nth % 4 > 0) {
            recorder.put("a", &a, nth * stripe, stripe).await?;
        }
        recorder.flush(&spaces).await?;
        recorder.step("the shadow row is promoted", sleep(self.seams().clock.as_ref(), LONG_IDLE)).await;
        assert_eq!((spaces.counters().shadows_made, spaces.counters().shadows_promoted), (3, 1));
        recorder.step("one is left behind", recorder.put("a", &a, 512 - 2 * stripe, stripe)).await?;
        recorder.put("a", &a, 4 * stripe, 2 * stripe).await?;
        drop(a);
        spaces.close().await?;
        Ok(())
    }

    async fn alternating_without_a_disk(&self, spaces: &Rc<Spaces>, a: &Space, stripe: u64) -> Outcome {
        let recorder = &self.recorder;
        recorder.put("a", a, 14 * stripe, stripe).await?;
        recorder.flush(spaces).await?;
        self.disks[1].vanish();
        let weak = recorder.recording.begin("", Operation::Weak { disk: 1 });
        recorder.step("back without a disk", recorder.put("a", a, 14 * stripe, stripe)).await?;
        recorder.flush(spaces).await?;
        recorder.step("to the shadow row without a disk", recorder.put("a", a, 15 * stripe, stripe)).await?;
        self.disks[1].come_back();
        let device = self.disks[1].attach(&self.world);
        recorder.step("readmit", spaces.members().rejoin(device)).await?;
        let resync = async { spaces.members().resync(&Progress::default()).await };
        let put = async {
            recorder.put("a", a, 14 * stripe, stripe).await?;
            recorder.put("a", a, 13 * stripe, stripe).await
        };
        recorder.step("alternately while it is resynced", together(put, resync)).await;
        recorder.recording.ack(weak);
        recorder.flush(spaces).await?;
        recorder.step("back behind the resync", recorder.put("a", a, 13 * stripe, stripe)).await
    }

    /// To a layout of as much redundancy, and back.
    async fn converted(&self) -> Outcome {
        let recorder = &self.recorder;
        let spaces = self.create().await?;
        let a = self.make(&spaces, "a").await?;
        let (from, to) = (a.spec().layout(), self.other());
        recorder.put("a", &a, 0, 40).await?;
        recorder.put("a", &a, 300, 2).await?;
        recorder.discard("a", &a, 30, 2).await?;
        recorder.flush(&spaces).await?;
        recorder.put("a", &a, 1, 2).await?;
        recorder.step("begin a conversion", spaces.conversions().begin_conversion(&a, to)).await?;
        let convert = async || spaces.conversions().convert(&a, &Progress::default()).await;
        let writes = async {
            recorder.put("a", &a, 2, 2).await?;
            recorder.discard("a", &a, 5, 1).await?;
            recorder.put("a", &a, 301, 2).await?;
            recorder.put("a", &a, 513, 2).await
        };
        recorder.step("convert under writes", together(writes, convert())).await;
        recorder.step("write what was converted", recorder.put("a", &a, 2, 3)).await?;
        recorder.flush(&spaces).await?;
        recorder.put("a", &a, 6, 1).await?;
        recorder
            .step("convert back", async {
                spaces.conversions().begin_conversion(&a, from).await?;
                convert().await
            })
            .await?;
        recorder.put("a", &a, 300, 1).await?;
        recorder.flush(&spaces).await?;
        if self.kind.resiliency.redundancy() > 0 {
            Box::pin(self.converted_without_a_disk(&spaces, &a)).await?;
        }
        drop(a);
        spaces.close().await?;
        Ok(())
    }

    async fn converted_without_a_disk(&self, spaces: &Rc<Spaces>, a: &Space) -> Outcome {
        let (recorder, to) = (&self.recorder, self.other());
        self.disks[1].vanish();
        let weak = recorder.recording.begin("", Operation::Weak { disk: 1 });
        recorder.put("a", a, 7, 1).await?;
        recorder
            .step("begin without a disk", spaces.conversions().begin_conversion(a, to))
            .await
            .unwrap_or(());
        recorder.put("a", a, 8, 1).await?;
        recorder.flush(spaces).await?;
        self.disks[1].come_back();
        let device = self.disks[1].attach(&self.world);
        spaces.members().rejoin(device).await?;
        spaces.members().resync(&Progress::default()).await?;
        recorder.recording.ack(weak);
        recorder.put("a", a, 9, 1).await?;
        spaces.conversions().begin_conversion(a, to).await?;
        recorder.step("convert once more", spaces.conversions().convert(a, &Progress::default())).await?;
        recorder.put("a", a, 9, 2).await?;
        Ok(())
    }

    /// A layout of as much redundancy as the life's.
    fn other(&self) -> Layout {
        let resiliency = match self.kind.resiliency {
            Resiliency::Simple => Resiliency::Span,
            Resiliency::Span => Resiliency::Simple,
            Resiliency::Mirror { copies: 2 } => Resiliency::Parity { parity: 1 },
            Resiliency::Mirror { copies } => Resiliency::Mirror { copies },
            Resiliency::Parity { parity } => Resiliency::Mirror { copies: parity + 1 },
        };
        let integrity = Integrity::usual(resiliency);
        Layout { resiliency, columns: None, interleave: INTERLEAVE, integrity }
    }

    /// What is cached last is on no disk for certain. The row was put in place before, so that its tables are on its disks.
    async fn cached(&self) -> Outcome {
        let recorder = &self.recorder;
        let spaces = self.create().await?;
        let a = self.make(&spaces, "a").await?;
        recorder.put("a", &a, 0, 1).await?;
        recorder.flush(&spaces).await?;
        spaces.pool().checkpoint().await?;
        recorder.put("a", &a, 0, 1).await?;
        recorder.flush(&spaces).await?;
        recorder.put("a", &a, 0, 2).await?;
        drop(a);
        Ok(())
    }

    /// Everything once, and nothing beside it: few writes wait for a flush at a time, so that every subset can be tried. What is
    /// written over lies between blocks that were flushed.
    async fn short(&self) -> Outcome {
        let recorder = &self.recorder;
        let spaces = self.reopen().await?;
        let a = match spaces.find("a") {
            Ok(a) => a,
            Err(_) => recorder.step("create a space", self.make(&spaces, "a")).await?,
        };
        recorder.step("claim, fresh write", recorder.put("a", &a, 0, 3)).await?;
        recorder.step("flush", recorder.flush(&spaces)).await?;
        recorder.step("overwrite", recorder.put("a", &a, 1, 1)).await?;
        recorder.step("flush", recorder.flush(&spaces)).await?;
        recorder.step("discard", recorder.discard("a", &a, 0, 3)).await?;
        recorder.step("flush", recorder.flush(&spaces)).await?;
        recorder.step("grow", recorder.resize("a", &spaces, &a, Bytes(2 * SIZE.0))).await?;
        recorder.step("delete", recorder.delete("a", &spaces, &a)).await?;
        Ok(())
    }

    /// With parity the space is there, because with the first one a write cache is made, whose rows begin with more writes at
    /// once than there can be subsets of.
    async fn short_begins(&self) -> Outcome {
        let spaces = self.create().await?;
        if self.kind.resiliency.parity_columns() > 0 {
            self.make(&spaces, "a").await?;
        }
        Ok(spaces.close().await?)
    }

    /// The pool that exists.
    async fn reopen(&self) -> Result<Rc<Spaces>, Box<dyn Error>> {
        let arbiter = Rc::clone(&self.arbiter) as Rc<dyn Arbiter>;
        let opening = open_pool(self.seams(), &self.devices, arbiter, OpenMode::Write);
        Ok(opening.await.map_err(|error| format!("{error:?}"))?)
    }

    /// Fills the map to its last page, and gives back what it takes to go on.
    async fn fill(&self) -> Outcome {
        let recorder = &self.recorder;
        let spaces = self.create().await?;
        let pool = Rc::clone(spaces.pool());
        let a = self.make(&spaces, "a").await?;
        recorder.put("a", &a, 0, 3).await?;
        recorder.put("a", &a, 257, 2).await?;
        recorder.flush(&spaces).await?;
        let rows = self.fill_the_map(&pool).await?;
        recorder.map(&pool, Purpose::Release, (rows - LAST_ROWS..rows).collect(), None).await?;
        pool.checkpoint().await?;
        self.rows.set(rows - LAST_ROWS);
        drop((a, pool));
        spaces.close().await?;
        Ok(())
    }

    /// On a map without room, rows are changed that lie in as many leaves, and others deleted: both need a checkpoint in parts,
    /// the first one while blocks are written.
    async fn full_map(&self) -> Outcome {
        let recorder = &self.recorder;
        let spaces = self.reopen().await?;
        let (pool, a) = (Rc::clone(spaces.pool()), spaces.find("a")?);
        let scattered = |number: u64| (number * 7919) % self.rows.get();
        recorder.put("a", &a, 1, 1).await?;
        recorder.map(&pool, Purpose::Release, (0..CHANGED_ROWS).map(scattered).collect(), Some(8)).await?;
        let (put, parts) = (recorder.put("a", &a, 0, 1), async { pool.checkpoint().await });
        recorder.step("write under a checkpoint in parts", together(put, parts)).await;
        let deleted = CHANGED_ROWS..CHANGED_ROWS + DELETED_ROWS;
        recorder.map(&pool, Purpose::Release, deleted.map(scattered).collect(), None).await?;
        recorder.put("a", &a, 1, 2).await?;
        recorder.step("deletes, checkpoint in parts", pool.checkpoint()).await?;
        recorder.put("a", &a, 2, 1).await?;
        recorder.flush(&spaces).await?;
        drop((a, pool));
        spaces.close().await?;
        Ok(())
    }

    /// Puts rows on the map until no checkpoint finds room; how many that took.
    async fn fill_the_map(&self, pool: &Rc<Pool>) -> Result<u64, Box<dyn Error>> {
        let mut next = 0;
        loop {
            self.recorder.map(pool, Purpose::Release, (next..next + 100).collect(), Some(7)).await?;
            next += 100;
            match pool.checkpoint().await {
                Ok(()) => {}
                Err(PoolError::MetadataFull { .. }) => return Ok(next),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A disk goes under a write, comes back and is resynced.
    async fn lose_a_disk(&self, spaces: &Rc<Spaces>, name: &'static str, b: &Space, lost: usize) -> Outcome {
        let recorder = &self.recorder;
        recorder.put(name, b, 1, 1).await?;
        self.disks[lost].vanish();
        let weak = recorder.recording.begin("", Operation::Weak { disk: lost });
        recorder.step("exclude a disk under a write", recorder.put(name, b, 0, 1)).await?;
        recorder.step("flush after exclusion", recorder.flush(spaces)).await?;
        recorder.put(name, b, 2, 1).await?;
        self.disks[lost].come_back();
        let device = self.disks[lost].attach(&self.world);
        recorder.step("readmit", spaces.members().rejoin(device)).await?;
        recorder.put(name, b, 258, 1).await?;
        recorder.step("resync", async { spaces.members().resync(&Progress::default()).await }).await?;
        recorder.recording.ack(weak);
        Ok(())
    }
}

/// Runs two things at once, and unwraps both.
async fn together<A, B, E: std::fmt::Display, F: std::fmt::Display>(
    a: impl Future<Output = Result<A, E>>,
    b: impl Future<Output = Result<B, F>>,
) {
    let (mut a, mut b) = (Box::pin(scoped(a)), Box::pin(scoped(b)));
    let (a_done, b_done) = (Cell::new(false), Cell::new(false));
    std::future::poll_fn(move |context| {
        if !a_done.get()
            && let std::task::Poll::Ready(result) = a.as_mut().poll(context)
        {
            result.map_err(|error| error.to_string()).unwrap();
            a_done.set(true);
        }
        if !b_done.get()
            && let std::task::Poll::Ready(result) = b.as_mut().poll(context)
        {
            result.map_err(|error| error.to_string()).unwrap();
            b_done.set(true);
        }
        if a_done.get() && b_done.get() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
