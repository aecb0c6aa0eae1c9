//! A bench for tests of spaces: a simulated world, a host's record, disks, and shorthands for what tests do.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{BlockDevice, Durability, Seams};
use dolmen_buffer::ArenaConfig;
use dolmen_disk::Extent;
use dolmen_pool::{
    Arbiter, ArbiterError, CreateOptions, HostRecord, LocalFuture, MemoryArbiter, OpenMode, OpenOptions,
    Opened, create, discover, open,
};
use dolmen_sim::{CrashState, Cut, DiskProfile, Recorder, SimDisk, World};
use dolmen_space::{Clients, Integrity, Resiliency, Segment, Space, SpaceSpec, Spaces};
use dolmen_units::{Bytes, HostId, PoolId};

pub mod slow_disks;

/// What a test's body returns.
pub type Outcome = Result<(), Box<dyn Error>>;

/// The resiliencies that every test should hold for.
pub const RESILIENCIES: [Resiliency; 5] = [
    Resiliency::Simple,
    Resiliency::Span,
    Resiliency::Mirror { copies: 2 },
    Resiliency::Mirror { copies: 3 },
    Resiliency::Mirror { copies: 4 },
];

/// How a space survives the loss of disks, and how it is written over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    pub resiliency: Resiliency,
    pub integrity: Integrity,
}

impl Kind {
    /// As a space is when nobody asks for more.
    pub const fn usual(resiliency: Resiliency) -> Self {
        Self { resiliency, integrity: Integrity::usual(resiliency) }
    }

    /// Written over through a write cache.
    pub const fn strict(resiliency: Resiliency) -> Self {
        Self { resiliency, integrity: Integrity::Strict }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_usual = *self == Self::usual(self.resiliency);
        write!(f, "{}{}", if is_usual { "" } else { "strict " }, self.resiliency)
    }
}

/// Length of rows in tests: small, so that small disks hold many.
pub const ROW: Bytes = Bytes::mib(1);

/// A world with disks and a host.
pub struct Bench {
    pub world: World,
    pub disks: Vec<Rc<SimDisk>>,
    pub arbiter: Rc<MemoryArbiter>,
}

/// What the body of a test works with.
#[derive(Clone)]
pub struct Lab {
    pub seams: Seams,
    pub devices: Vec<Rc<dyn BlockDevice>>,
    pub arbiter: Rc<MemoryArbiter>,
    /// Stands before the host's record, and keeps its history.
    pub noted: Option<Rc<NotedHost>>,
}

/// A host whose record is kept with its history: what it said at each point of what is recorded of the disks.
pub struct NotedHost {
    inner: Rc<MemoryArbiter>,
    recorder: Recorder,
    relogged: RefCell<Vec<(Cut, Rc<MemoryArbiter>)>>,
}

/// A disk that is a file, as the daemon makes one: what is not data has its room from the beginning.
pub fn file(capacity: Bytes) -> DiskProfile {
    let Ok(extent) = Extent::of(capacity) else { panic!("{capacity} are enough for a disk") };
    DiskProfile::new(capacity).thin_within(extent.data_start..extent.data_end)
}

impl Bench {
    /// So many disks of one size.
    pub fn new(seed: u64, count: usize, capacity: Bytes) -> Self {
        Self::with_profile(seed, count, || file(capacity))
    }

    /// So many disks with the profile given.
    pub fn with_profile(seed: u64, count: usize, profile: impl Fn() -> DiskProfile) -> Self {
        let world = World::new(seed);
        world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
        let disks = (0..count).map(|number| world.add_disk(&format!("disk{number}"), profile())).collect();
        Self { world, disks, arbiter: MemoryArbiter::new(HostId([7; 16])) }
    }

    /// A lab with every disk attached.
    pub fn lab(&self) -> Lab {
        self.lab_with(|_| true)
    }

    /// A lab with the disks that `here` names attached.
    pub fn lab_with(&self, here: impl Fn(usize) -> bool) -> Lab {
        let devices = self.disks.iter().enumerate().filter(|(number, _)| here(*number));
        let devices = devices.map(|(_, disk)| disk.attach(&self.world)).collect();
        Lab { seams: self.world.seams(), devices, arbiter: Rc::clone(&self.arbiter), noted: None }
    }

    /// Runs a body in a lab with every disk.
    pub fn run<F>(&self, body: impl FnOnce(Lab) -> F) -> Outcome
    where
        F: Future<Output = Outcome> + 'static,
    {
        self.run_in(self.lab(), body)
    }

    /// Runs a body in the lab given.
    pub fn run_in<F>(&self, lab: Lab, body: impl FnOnce(Lab) -> F) -> Outcome
    where
        F: Future<Output = Outcome> + 'static,
    {
        match self.world.run(body(lab)) {
            Ok(outcome) => outcome,
            Err(stuck) => Err(format!("{stuck:?}").into()),
        }
    }
}

impl Bench {
    /// Opens the pool with one disk alone: the space `data` has lost nothing, and holds `fill` in each range (first byte,
    /// bytes, fill).
    pub fn is_complete_alone(&self, disk: usize, ranges: &[(u64, usize, u8)]) -> Outcome {
        let ranges = ranges.to_vec();
        self.run_in(self.lab_with(|number| number == disk), async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            for (at, length, fill) in ranges {
                lab.expect(&space, at, length, fill).await?;
            }
            let (data_loss_events, counters) = (spaces.data_loss_events(), spaces.counters());
            if !data_loss_events.is_empty() || counters.lost_pages > 0 {
                return Err(format!("{data_loss_events:?}, {} pages lost", counters.lost_pages).into());
            }
            drop(space);
            lab.check_and_close(spaces).await
        })
    }
}

impl NotedHost {
    /// The host of a bench, from now on.
    pub fn new(bench: &Bench) -> Rc<Self> {
        let relogged = RefCell::new(vec![(Cut(0), bench.arbiter.snapshot())]);
        Rc::new(Self { inner: Rc::clone(&bench.arbiter), recorder: bench.world.record(), relogged })
    }

    /// What is recorded of the disks.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// What a crash leaves, with what the host's record said then.
    pub fn left(&self, state: &CrashState, cut: Cut, bench: &Bench) -> Bench {
        let relogged = self.relogged.borrow();
        let then =
            relogged.iter().rev().find(|(since, _)| *since <= cut).map(|(_, arbiter)| arbiter.snapshot());
        let left = slow_disks::opened(state, bench);
        Bench { arbiter: then.unwrap_or_else(|| Rc::clone(&left.arbiter)), ..left }
    }

    fn note(&self) {
        self.relogged.borrow_mut().push((self.recorder.now(), self.inner.snapshot()));
    }
}

impl Arbiter for NotedHost {
    fn host(&self) -> HostId {
        self.inner.host()
    }

    fn named(&self, pool: PoolId) -> LocalFuture<'_, Result<Option<HostRecord>, ArbiterError>> {
        self.inner.named(pool)
    }

    fn record(&self, pool: PoolId, record: HostRecord) -> LocalFuture<'_, Result<(), ArbiterError>> {
        let recorded = self.inner.record(pool, record);
        self.note();
        recorded
    }

    fn withdraw(&self, pool: PoolId) -> LocalFuture<'_, Result<(), ArbiterError>> {
        let withdrawn = self.inner.withdraw(pool);
        self.note();
        withdrawn
    }
}

impl Lab {
    pub fn arbiter(&self) -> Rc<dyn Arbiter> {
        match &self.noted {
            Some(noted) => Rc::clone(noted) as Rc<dyn Arbiter>,
            None => Rc::clone(&self.arbiter) as Rc<dyn Arbiter>,
        }
    }

    /// Makes a pool of all devices.
    pub async fn create(&self) -> Result<Rc<Spaces>, Box<dyn Error>> {
        let options =
            CreateOptions { name: "tank".parse()?, overwrite: Vec::new(), fault_domains: Vec::new() };
        let opened = create(&self.seams, self.arbiter(), &self.devices, &options).await?;
        Ok(Spaces::start(opened).await?)
    }

    /// Opens the pool that is on the devices.
    pub async fn open(&self) -> Result<Rc<Spaces>, Box<dyn Error>> {
        self.open_as(OpenMode::Write).await
    }

    pub async fn open_as(&self, mode: OpenMode) -> Result<Rc<Spaces>, Box<dyn Error>> {
        Ok(Spaces::start(self.open_pool(mode).await?).await?)
    }

    /// As [`open`](Self::open), where clients of the daemon before may live.
    pub async fn open_among(&self, clients: Clients) -> Result<Rc<Spaces>, Box<dyn Error>> {
        Ok(Spaces::start_among(self.open_pool(OpenMode::Write).await?, clients).await?)
    }

    async fn open_pool(&self, mode: OpenMode) -> Result<Opened, Box<dyn Error>> {
        let found = discover(&self.seams, &self.devices).await;
        let candidates = found.pools.into_values().next().ok_or("no pool was found")?;
        Ok(open(&self.seams, self.arbiter(), candidates, &OpenOptions { mode }).await?)
    }

    /// Makes a space with short rows.
    pub async fn space(
        &self,
        spaces: &Spaces,
        name: &str,
        size: Bytes,
        resiliency: Resiliency,
    ) -> Result<Space, Box<dyn Error>> {
        self.space_of_kind(spaces, name, size, Kind::usual(resiliency)).await
    }

    /// Makes a space with short rows.
    pub async fn space_of_kind(
        &self,
        spaces: &Spaces,
        name: &str,
        size: Bytes,
        kind: Kind,
    ) -> Result<Space, Box<dyn Error>> {
        let mut spec = SpaceSpec::usual(name.parse()?, size, kind.resiliency);
        spec.integrity = kind.integrity;
        spec.row = Some(ROW);
        spec.interleave = Bytes::kib(64);
        Ok(spaces.create(spec).await?)
    }

    /// Writes bytes that tell their place and `fill`.
    pub async fn write(&self, space: &Space, at: u64, length: usize, fill: u8) -> Outcome {
        self.write_as(space, at, length, fill, Durability::Cached).await
    }

    pub async fn write_as(
        &self,
        space: &Space,
        at: u64,
        length: usize,
        fill: u8,
        durability: Durability,
    ) -> Outcome {
        let mut buffer = self.seams.data.take(length).await;
        pattern(at, fill, &mut buffer);
        Ok(space.write(at, &buffer.freeze(), durability).await?)
    }

    /// Reads and compares; `fill` 0 stands for zeros.
    pub async fn expect(&self, space: &Space, at: u64, length: usize, fill: u8) -> Outcome {
        let found = read(space, at, length).await?;
        let mut expected = vec![0; length];
        pattern(at, fill, &mut expected);
        match found.iter().zip(&expected).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(index) => Err(format!(
                "byte {} of {} is {} instead of {}",
                at + index as u64,
                space.name(),
                found[index],
                expected[index]
            )
            .into()),
        }
    }

    /// Makes a space with parity, of short rows and so many columns with data.
    pub async fn parity_space(
        &self,
        spaces: &Spaces,
        (columns, parity): (u8, u8),
    ) -> Result<Space, Box<dyn Error>> {
        let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(8), Resiliency::Parity { parity });
        (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(columns), Bytes::kib(16));
        Ok(spaces.create(spec).await?)
    }

    /// Writes a range by requests of 64 KiB that are under way together, which makes them a stream.
    pub async fn stream(&self, space: &Space, range: std::ops::Range<u64>, fill: u8) -> Outcome {
        let requests = range.step_by(64 << 10).map(|at| self.write(space, at, 64 << 10, fill));
        join_all(requests).await.into_iter().collect()
    }

    /// Makes a space whose first row holds fill 1, and has a shadow row that a stream of fill 2 has brought up to a byte.
    pub async fn with_shadow(&self, spaces: &Spaces, end: u64) -> Result<Space, Box<dyn Error>> {
        let space = self.parity_space(spaces, (2, 1)).await?;
        self.stream(&space, 0..ROW.0, 1).await?;
        spaces.flush().await?;
        spaces.caches().destage().await?;
        spaces.pool().checkpoint().await?;
        self.stream(&space, 0..end, 2).await?;
        spaces.flush().await?;
        if spaces.counters().shadows_made != 1 {
            return Err("the row has no shadow row".into());
        }
        Ok(space)
    }

    /// Keeps what a daemon has open until it dies with its world: nothing of it is closed.
    pub fn hold(&self, open: impl Any) {
        self.seams.spawner.spawn(
            "held",
            Box::pin(async move {
                let _open = open;
                std::future::pending::<()>().await;
            }),
        );
    }

    /// Verifies every block and the map, and closes.
    pub async fn check_and_close(&self, spaces: Rc<Spaces>) -> Outcome {
        check(&spaces).await?;
        spaces.close().await?;
        Ok(())
    }
}

/// Verifies every block, the map, and the headers of slabs.
pub async fn check(spaces: &Spaces) -> Outcome {
    let findings = spaces.scrubs().check_map().await?;
    if !findings.is_empty() {
        return Err(findings.join("; ").into());
    }
    let seen = spaces.scrubs().verify(&dolmen_space::Progress::default()).await?;
    if seen.header_count > 0 {
        return Err(format!("headers of slabs that are wrong: {:?}", seen.headers).into());
    }
    if seen.is_sound() { Ok(()) } else { Err(format!("blocks without a good copy: {seen:?}").into()) }
}

/// All bytes of a range.
pub async fn read(space: &Space, at: u64, length: usize) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut bytes = Vec::with_capacity(length);
    for segment in space.read(at, length).await? {
        match segment {
            // Byte by byte, which `resize` does where it is not optimised, most of a test would be this.
            Segment::Zeros(count) => bytes.append(&mut vec![0; count]),
            Segment::Data(data) => bytes.extend_from_slice(&data),
        }
    }
    Ok(bytes)
}

/// Where a disk has these blocks of a space, by what [`pattern`] put there.
pub fn places_of(disk: &SimDisk, blocks: std::ops::Range<u64>, fill: u8) -> Vec<u64> {
    let beginning = |block: u64| {
        let mut bytes = vec![0; 16];
        pattern(block * 4096, fill, &mut bytes);
        bytes
    };
    let ours: BTreeSet<Vec<u8>> = blocks.map(beginning).collect();
    let mut found = vec![0; 16];
    let holds = |at: &u64| disk.show(*at, &mut found) && ours.contains(&found);
    (0..disk.profile().geometry.capacity.0).step_by(4096).filter(holds).collect()
}

/// Bytes that tell their place: no two blocks of a space are alike, and none is alike for two fills.
pub fn pattern(at: u64, fill: u8, into: &mut [u8]) {
    if fill == 0 {
        into.fill(0);
        return;
    }
    let word = |place: u64| {
        let mixed = (place / 8).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ u64::from(fill).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed.to_le_bytes()
    };
    // Word by word: byte by byte, where it is not optimised, most of a test would be this.
    let skipped = (at % 8) as usize;
    let (head, rest) = into.split_at_mut(((8 - skipped) % 8).min(into.len()));
    head.copy_from_slice(&word(at)[skipped..][..head.len()]);
    let mut place = at + head.len() as u64;
    for piece in rest.chunks_mut(8) {
        piece.copy_from_slice(&word(place)[..piece.len()]);
        place += 8;
    }
}

/// A future of this thread.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T>>>;
