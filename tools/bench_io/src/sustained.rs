//! Random small writes to a space with parity that go on and on: what each costs at the disks while the write cache is full,
//! and when everything is in place.
//!
//! Order: a pool and a space are made and filled in order; blocks are overwritten at random, first until the write cache was
//! filled once, then for as long as is counted; all is put in place and the log emptied; the pool is opened again and blocks are
//! compared with what was written last.
//!
//! Two windows are counted. The *sustained* one begins when the cache has been filled and ends with the last client write. *All of
//! it* begins before the first overwrite and ends when everything is in place and the log is empty: nothing is left out of it, and
//! nothing in it belongs to writes of before.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::{Notify, join_all};
use dolmen_block_io::{BlockDevice, Durability, Instant, Seams, sleep};
use dolmen_block_linux::Handle;
use dolmen_pool::{
    Arbiter, CreateOptions, MemoryArbiter, OpenMode, OpenOptions, Opened, create, discover, open,
};
use dolmen_space::{Provisioning, Resiliency, Segment, Space, SpaceError, SpaceSpec, Spaces, WriteCache};
use dolmen_units::{BLOCK_BYTES, Bytes, HostId, Name};
use serde::Serialize;

use crate::areas::{Asked, Watched};
use crate::blocks::{BLOCK, Blocks, is_version, make_up};
use crate::case::scatter;
use crate::disks::Disks;
use crate::error::BenchError;
use crate::run::in_runtime;

/// The shortest span.
pub(crate) const SPAN_MIN: Bytes = Bytes::mib(64);
/// Bytes of a request that fills the span, at most.
const FILL_BYTES: u64 = 1 << 20;
/// Such requests under way at the same time.
const FILL_DEPTH: u64 = 8;
/// Reads under way at the same time when blocks are compared.
const COMPARE_DEPTH: u64 = 32;
/// How often it is looked at how far everything is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The name of the space.
const SPACE: &str = "sustained";
/// What errors call the layout.
const LAYOUT: &str = "sustained writes";
/// What tells the draw of blocks that are compared from that of blocks that are written.
const COMPARED: u64 = 1 << 63;

/// What is to be measured.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Load {
    pub(crate) span_bytes: u64,
    /// Data columns, and parity columns beside them.
    pub(crate) columns: u8,
    pub(crate) parity: u8,
    pub(crate) is_fixed: bool,
    pub(crate) depth: u64,
    /// Writes between two flushes; 0 for none.
    pub(crate) flush_every: u64,
    /// What is written while it is counted, at most.
    pub(crate) bytes: u64,
    pub(crate) time_max: Option<Duration>,
    /// Blocks that are compared at the end.
    pub(crate) compared: u64,
}

/// What was counted between two moments.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Window {
    pub(crate) writes: u64,
    pub(crate) nanoseconds: u64,
    pub(crate) asked: Asked,
    pub(crate) page_reads: u64,
    pub(crate) page_writes: u64,
    pub(crate) destaged_bytes: u64,
}

impl Window {
    fn since(self, earlier: Self) -> Self {
        Self {
            writes: self.writes - earlier.writes,
            nanoseconds: self.nanoseconds - earlier.nanoseconds,
            asked: self.asked.since(earlier.asked),
            page_reads: self.page_reads - earlier.page_reads,
            page_writes: self.page_writes - earlier.page_writes,
            destaged_bytes: self.destaged_bytes - earlier.destaged_bytes,
        }
    }
}

/// How it was at a moment.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Look {
    pub(crate) nanoseconds: u64,
    pub(crate) writes: u64,
    /// Bytes in the cache that were not in place.
    pub(crate) waiting_bytes: u64,
}

/// What came of it.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Outcome {
    pub(crate) load: Load,
    pub(crate) disks: usize,
    pub(crate) disk_bytes: u64,
    pub(crate) log_bytes: u64,
    pub(crate) cache_bytes: u64,
    pub(crate) fill_nanoseconds: u64,
    pub(crate) quiesce_nanoseconds: u64,
    pub(crate) sustained: Window,
    pub(crate) all: Window,
    /// Of the sustained window, once a second.
    pub(crate) looks: Vec<Look>,
    pub(crate) compared: u64,
}

/// Measures it.
pub(crate) fn run(disks: &Rc<Disks>, load: &Load) -> Result<Outcome, BenchError> {
    let arbiter = MemoryArbiter::new(HostId([1; 16]));
    let blocks = Rc::new(Blocks::new(load.span_bytes / BLOCK_BYTES));
    let part = Part { disks: Rc::clone(disks), load: load.clone(), blocks, arbiter };
    let (first, second) = (part.clone(), part);
    let mut outcome = in_runtime(move |handle| async move { first.write(&handle).await })?;
    outcome.compared = in_runtime(move |handle| async move { second.compare(&handle).await })?;
    Ok(outcome)
}

fn named(name: &'static str) -> Name {
    let Ok(name) = name.parse() else { panic!("{name} is a name") };
    name
}

fn refused(source: SpaceError) -> BenchError {
    BenchError::Space { layout: LAYOUT, source }
}

/// What both halves know: that which writes, and that which opens again and compares.
#[derive(Clone)]
struct Part {
    disks: Rc<Disks>,
    load: Load,
    blocks: Rc<Blocks>,
    arbiter: Rc<MemoryArbiter>,
}

/// The disks, each watched; as the pool takes them.
fn watched(disks: &Disks, handle: &Handle) -> Result<Vec<Rc<Watched>>, BenchError> {
    let devices = disks.open(handle)?.into_iter();
    Ok(devices.filter_map(|device| Watched::new(device as Rc<dyn BlockDevice>)).collect())
}

fn seen(devices: &[Rc<Watched>]) -> Vec<Rc<dyn BlockDevice>> {
    devices.iter().map(|device| Rc::<Watched>::clone(device) as Rc<dyn BlockDevice>).collect()
}

impl Part {
    fn arbiter(&self) -> Rc<dyn Arbiter> {
        Rc::<MemoryArbiter>::clone(&self.arbiter)
    }

    fn spec(&self) -> SpaceSpec {
        let resiliency = Resiliency::Parity { parity: self.load.parity };
        let mut spec = SpaceSpec::usual(named(SPACE), Bytes(self.load.span_bytes), resiliency);
        spec.columns = Some(self.load.columns);
        if self.load.is_fixed {
            spec.provisioning = Provisioning::Fixed;
        }
        spec
    }

    async fn make(&self, handle: &Handle, devices: &[Rc<Watched>]) -> Result<Opened, BenchError> {
        let needed = usize::from(self.load.columns + self.load.parity);
        if devices.len() < needed {
            return Err(BenchError::TooFewDisks { layout: LAYOUT, needed, found: devices.len() });
        }
        let overwrite = devices.iter().map(|device| device.name()).collect();
        let options = CreateOptions { name: named("bench"), overwrite, fault_domains: Vec::new() };
        Ok(create(&handle.seams(), self.arbiter(), &seen(devices), &options).await?)
    }

    /// Fills, overwrites, and puts all in place.
    async fn write(self, handle: &Handle) -> Result<Outcome, BenchError> {
        let devices = watched(&self.disks, handle)?;
        let opened = self.make(handle, &devices).await?;
        let spaces = Spaces::start(opened).await.map_err(refused)?;
        let (log, _) = spaces.pool().identity().metadata_bytes();
        devices.iter().for_each(|device| device.set_log(log));
        let space = spaces.create(self.spec()).await.map_err(refused)?;
        let disk_bytes = devices.first().map_or(0, |device| device.geometry().capacity.0);
        let count = devices.len();
        let client = Rc::new(Client::new(self, handle.seams(), Rc::clone(&spaces), space, devices));
        let outcome = client.measure().await?;
        drop(client);
        spaces.close().await.map_err(refused)?;
        Ok(Outcome { disks: count, disk_bytes, log_bytes: log.0, ..outcome })
    }

    /// Opens the pool that was closed, and compares blocks that are drawn with what was written last; how many.
    async fn compare(self, handle: &Handle) -> Result<u64, BenchError> {
        let devices = watched(&self.disks, handle)?;
        let seams = handle.seams();
        let found = discover(&seams, &seen(&devices)).await;
        let candidates = found.pools.into_values().next().ok_or(BenchError::Vanished)?;
        let opened = open(&seams, self.arbiter(), candidates, &OpenOptions { mode: OpenMode::Write }).await?;
        let spaces = Spaces::start(opened).await.map_err(refused)?;
        let found = spaces.scrubs().check_map().await.map_err(refused)?;
        if !found.is_empty() {
            return Err(BenchError::Check { layout: LAYOUT, found: found.join("; ") });
        }
        let space = spaces.find(SPACE).map_err(refused)?;
        let (all, next) = (self.blocks.count(), Cell::new(0));
        let count = self.load.compared.min(all);
        let compare = async |_: u64| {
            while next.get() < count {
                let number = next.replace(next.get() + 1);
                let block = if count == all { number } else { scatter(number | COMPARED) % all };
                self.disks.check_wanted()?;
                self.compare_block(&space, block).await?;
            }
            Ok(())
        };
        join_all((0..COMPARE_DEPTH).map(compare)).await.into_iter().collect::<Result<(), BenchError>>()?;
        drop(space);
        spaces.close().await.map_err(refused)?;
        Ok(count)
    }

    async fn compare_block(&self, space: &Space, block: u64) -> Result<(), BenchError> {
        let version = self.blocks.version(block);
        let segments = space.read(block * BLOCK_BYTES, BLOCK).await.map_err(refused)?;
        // A block is one piece, of bytes that nobody writes as zeros.
        let is_it = |segment: &Segment| match segment {
            Segment::Data(bytes) => is_version(bytes, block, version),
            Segment::Zeros(_) => false,
        };
        if segments.iter().all(is_it) { Ok(()) } else { Err(BenchError::Wrong { block, version }) }
    }
}

/// Whoever writes.
struct Client {
    part: Part,
    seams: Seams,
    spaces: Rc<Spaces>,
    space: Space,
    devices: Vec<Rc<Watched>>,
    /// The number of the next write, and the first that is not to be.
    next: Cell<u64>,
    end: Cell<u64>,
    deadline: Cell<Instant>,
    done: Cell<u64>,
    running: Cell<u64>,
    notify: Notify,
    error: RefCell<Option<BenchError>>,
    /// How it was when the cache had been filled.
    full: Cell<Option<Window>>,
    looks: RefCell<Vec<Look>>,
}

impl Client {
    fn new(part: Part, seams: Seams, spaces: Rc<Spaces>, space: Space, devices: Vec<Rc<Watched>>) -> Self {
        Self {
            part,
            seams,
            spaces,
            space,
            devices,
            next: Cell::new(0),
            end: Cell::new(u64::MAX),
            deadline: Cell::new(Instant(u64::MAX)),
            done: Cell::new(0),
            running: Cell::new(0),
            notify: Notify::new(),
            error: RefCell::default(),
            full: Cell::default(),
            looks: RefCell::default(),
        }
    }

    async fn measure(self: &Rc<Self>) -> Result<Outcome, BenchError> {
        let began = self.seams.clock.now();
        self.fill().await?;
        self.quiesce().await?;
        let before = self.count().await?;
        self.overwrite().await?;
        let written = self.count().await?;
        self.quiesce().await?;
        let all_ended = self.count().await?;
        let cache = self.cache().await?;
        // The clients go on until it is.
        let full = self.full.get().unwrap_or(before);
        Ok(Outcome {
            load: self.part.load.clone(),
            cache_bytes: cache.size.0,
            fill_nanoseconds: before.nanoseconds - began.0,
            quiesce_nanoseconds: all_ended.nanoseconds - written.nanoseconds,
            sustained: written.since(full),
            all: all_ended.since(before),
            looks: self.looks.take(),
            ..Outcome::default()
        })
    }

    async fn cache(&self) -> Result<WriteCache, BenchError> {
        let caches = self.spaces.caches().write_caches().await.map_err(refused)?;
        let cache = caches.into_iter().find(|cache| cache.redundancy == self.part.load.parity);
        Ok(cache.unwrap_or_else(|| panic!("a space with parity has a write cache")))
    }

    /// Everything that is counted now.
    async fn count(&self) -> Result<Window, BenchError> {
        let cache = self.cache().await?;
        let spaces = self.spaces.counters();
        Ok(Window {
            writes: self.done.get(),
            nanoseconds: self.seams.clock.now().0,
            asked: self.devices.iter().fold(Asked::default(), |sum, device| sum.plus(device.asked())),
            page_reads: spaces.page_reads,
            page_writes: spaces.page_writes,
            destaged_bytes: cache.destaged.bytes,
        })
    }

    /// Writes the span from its beginning to its end, whole stripes at a time.
    async fn fill(&self) -> Result<(), BenchError> {
        let span = self.part.load.span_bytes;
        let stripe = u64::from(self.part.load.columns) * self.space.spec().interleave.0;
        let length = (FILL_BYTES / stripe).max(1) * stripe;
        let next = Cell::new(0);
        let fill = async |_: u64| {
            while next.get() < span {
                let at = next.replace(next.get() + length);
                self.part.disks.check_wanted()?;
                let bytes = usize::try_from(length.min(span - at)).unwrap_or(BLOCK);
                let mut buffer = self.seams.data.take(bytes).await;
                make_up(&mut buffer, at / BLOCK_BYTES, 0);
                self.space.write(at, &buffer.freeze(), Durability::Cached).await.map_err(refused)?;
            }
            Ok(())
        };
        join_all((0..FILL_DEPTH).map(fill)).await.into_iter().collect()
    }

    /// Puts everything in place and empties the log.
    async fn quiesce(&self) -> Result<(), BenchError> {
        self.spaces.flush().await.map_err(refused)?;
        self.spaces.caches().destage().await.map_err(refused)?;
        self.spaces.pool().checkpoint().await.map_err(|source| refused(source.into()))
    }

    /// Overwrites blocks until enough was counted.
    async fn overwrite(self: &Rc<Self>) -> Result<(), BenchError> {
        let depth = self.part.load.depth;
        self.running.set(depth);
        for _ in 0..depth {
            self.spawn(|client| async move { client.write_on().await });
        }
        self.watch().await?;
        self.notify.wait_for(|| (self.running.get() == 0).then_some(())).await;
        self.error.take().map_or(Ok(()), Err)
    }

    fn spawn<F: Future<Output = ()> + 'static>(self: &Rc<Self>, body: impl FnOnce(Rc<Self>) -> F) {
        self.seams.spawner.spawn("client", Box::pin(body(Rc::clone(self))));
    }

    async fn write_on(&self) {
        while let Some(number) = self.next_number() {
            if let Err(error) = self.overwrite_one(number).await {
                self.error.borrow_mut().get_or_insert(error);
            }
        }
        self.running.set(self.running.get() - 1);
        self.notify.notify_all();
    }

    /// The number of the next write, unless there is to be none.
    fn next_number(&self) -> Option<u64> {
        let number = self.next.get();
        let over = number >= self.end.get() || self.seams.clock.now() >= self.deadline.get();
        if over || self.error.borrow().is_some() {
            return None;
        }
        self.next.set(number + 1);
        Some(number)
    }

    async fn overwrite_one(&self, number: u64) -> Result<(), BenchError> {
        self.part.disks.check_wanted()?;
        let (block, version) = self.part.blocks.draw(number);
        let mut buffer = self.seams.data.take(BLOCK).await;
        make_up(&mut buffer, block, version);
        let written = self.space.write(block * BLOCK_BYTES, &buffer.freeze(), Durability::Cached).await;
        written.map_err(refused)?;
        self.part.blocks.note_written(block, version);
        self.done.set(self.done.get() + 1);
        let every = self.part.load.flush_every;
        if every > 0 && (number + 1).is_multiple_of(every) {
            self.spaces.flush().await.map_err(refused)?;
        }
        Ok(())
    }

    /// Looks every second how far it is, and begins to count when the cache has been filled.
    async fn watch(&self) -> Result<(), BenchError> {
        let before = self.cache().await?.filled.bytes;
        while self.running.get() > 0 {
            sleep(self.seams.clock.as_ref(), LOOK_EVERY).await;
            let cache = self.cache().await?;
            let now = self.seams.clock.now();
            if self.full.get().is_none() {
                if cache.filled.bytes - before < cache.size.0 {
                    continue;
                }
                self.full.set(Some(self.count().await?));
                self.end.set(self.next.get() + self.part.load.bytes / BLOCK_BYTES);
                let until = self.part.load.time_max.map(|time| now + time);
                self.deadline.set(until.unwrap_or(Instant(u64::MAX)));
            }
            let look = Look { nanoseconds: now.0, writes: self.done.get(), waiting_bytes: cache.waiting.0 };
            self.looks.borrow_mut().push(look);
        }
        Ok(())
    }
}
