//! Labels in the host's record (docs/design/0027): voters that were all put back as they were earlier in one epoch are not
//! written to, no sound disk is called old, and a record that cannot be written stops nothing.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{BlockDevice, Seams, sleep};
use dolmen_buffer::ArenaConfig;
use dolmen_pool::{
    Arbiter, ArbiterError, CreateOptions, HostRecord, LocalFuture, MemoryArbiter, OpenError, OpenMode,
    OpenOptions, Opened, Pool, PoolState, Purpose, create, discover, keys, open,
};
use dolmen_sim::{Cut, DiskProfile, Fate, Image, Recorder, SimDisk, StateOptions, World};
use dolmen_units::{Bytes, HostId, PoolId, SpaceId};

const ARENAS: ArenaConfig = ArenaConfig { small_count: 256, medium_count: 32, large_count: 12 };
/// Four of them vote: those with the lowest numbers.
const DISKS: usize = 6;
const VOTERS: usize = 4;
/// More than the time between two stamps.
const LONG: Duration = Duration::from_secs(700);
/// More than a stamp takes.
const STAMPED: Duration = Duration::from_secs(2);

/// What the folder of the host's records does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Folder {
    Written,
    Refused,
    Hung,
}

/// A host whose record of each instant is kept, and whose folder can fail.
struct Host {
    inner: Rc<MemoryArbiter>,
    folder: Cell<Folder>,
    recorder: RefCell<Option<Recorder>>,
    then: RefCell<Vec<(Cut, Rc<MemoryArbiter>)>>,
}

impl Host {
    fn new(inner: Rc<MemoryArbiter>) -> Rc<Self> {
        let (recorder, then) = (RefCell::default(), RefCell::default());
        Rc::new(Self { inner, folder: Cell::new(Folder::Written), recorder, then })
    }

    /// Keeps the records from now on.
    fn keep(&self, recorder: Recorder) {
        *self.recorder.borrow_mut() = Some(recorder);
        self.note();
    }

    fn note(&self) {
        if let Some(recorder) = &*self.recorder.borrow() {
            self.then.borrow_mut().push((recorder.now(), self.inner.snapshot()));
        }
    }

    /// The record as it was at a cut.
    fn at(&self, cut: Cut) -> Rc<MemoryArbiter> {
        let then = self.then.borrow();
        then.iter().rev().find(|(since, _)| *since <= cut).unwrap().1.snapshot()
    }
}

impl Arbiter for Host {
    fn host(&self) -> HostId {
        self.inner.host()
    }

    fn named(&self, pool: PoolId) -> LocalFuture<'_, Result<Option<HostRecord>, ArbiterError>> {
        self.inner.named(pool)
    }

    fn record(&self, pool: PoolId, record: HostRecord) -> LocalFuture<'_, Result<(), ArbiterError>> {
        match self.folder.get() {
            Folder::Written => {
                let recorded = self.inner.record(pool, record);
                self.note();
                recorded
            }
            Folder::Refused => {
                let cause = "no space left".to_owned();
                Box::pin(async move { Err(ArbiterError { doing: "writing", pool, cause }) })
            }
            Folder::Hung => Box::pin(std::future::pending()),
        }
    }

    fn withdraw(&self, pool: PoolId) -> LocalFuture<'_, Result<(), ArbiterError>> {
        self.inner.withdraw(pool)
    }
}

/// Disks in a world, and the host that they are at.
struct Bench {
    world: World,
    disks: Vec<Rc<SimDisk>>,
    host: Rc<Host>,
}

/// What a test's body works with.
#[derive(Clone)]
struct Lab {
    seams: Seams,
    devices: Vec<Rc<dyn BlockDevice>>,
    disks: Vec<Rc<SimDisk>>,
    host: Rc<Host>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let world = world(seed);
        let profile = || DiskProfile::new(Bytes::mib(64));
        let disks = (0..DISKS).map(|number| world.add_disk(&format!("disk{number}"), profile())).collect();
        Self { world, disks, host: Host::new(MemoryArbiter::new(HostId([1; 16]))) }
    }

    /// The same disks in a world of their own, with other content where an image is given.
    fn with(&self, images: &[(usize, &Image)]) -> Self {
        let world = world(99);
        let content = |number: usize, disk: &SimDisk| {
            let image = images.iter().find(|(old, _)| *old == number).map(|(_, image)| (*image).clone());
            image.unwrap_or_else(|| disk.truth())
        };
        let disks = self.disks.iter().enumerate().map(|(number, disk)| {
            world.add_disk_with(disk.name(), disk.profile().clone(), content(number, disk))
        });
        Self { disks: disks.collect(), world, host: Host::new(self.host.inner.snapshot()) }
    }

    fn lab(&self) -> Lab {
        let devices = self.disks.iter().map(|disk| disk.attach(&self.world)).collect();
        let (disks, host) = (self.disks.clone(), Rc::clone(&self.host));
        Lab { seams: self.world.seams(), devices, disks, host }
    }

    fn run<T: 'static>(&self, body: impl AsyncFnOnce(Lab) -> T + 'static) -> T {
        let lab = self.lab();
        self.world.run(async move { body(lab).await }).unwrap()
    }

    /// Opens the pool, and returns the numbers of the disks that are called old, and what was committed last.
    fn opened(&self, mode: OpenMode) -> Result<(BTreeSet<usize>, u8, PoolState), OpenError> {
        let found = self.run(async move |lab| {
            let pool = lab.open(mode).await?.pool;
            let old = pool.disks().into_iter().filter(|disk| disk.absence().is_left_out_as_old());
            let old = old.map(|disk| usize::from(disk.slot().0)).collect();
            let kept = pool.map().get(&keys::space(SpaceId(9))).await.unwrap().unwrap();
            Ok((old, kept[0], pool.state()))
        });
        self.world.kill();
        found
    }
}

fn world(seed: u64) -> World {
    let world = World::new(seed);
    world.set_arenas(ARENAS, ARENAS);
    world.set_steps_max(20_000_000);
    world
}

impl Lab {
    fn arbiter(&self) -> Rc<dyn Arbiter> {
        Rc::clone(&self.host) as Rc<dyn Arbiter>
    }

    async fn create(&self) -> Rc<Pool> {
        let options =
            CreateOptions { name: "tank".parse().unwrap(), overwrite: Vec::new(), fault_domains: Vec::new() };
        create(&self.seams, self.arbiter(), &self.devices, &options).await.unwrap().pool
    }

    async fn open(&self, mode: OpenMode) -> Result<Opened, OpenError> {
        let found = discover(&self.seams, &self.devices).await;
        let candidates = found.pools.into_values().next().unwrap();
        open(&self.seams, self.arbiter(), candidates, &OpenOptions { mode }).await
    }

    async fn pause(&self, time: Duration) {
        sleep(self.seams.clock.as_ref(), time).await;
    }

    fn images(&self) -> Vec<Image> {
        self.disks.iter().map(|disk| disk.truth()).collect()
    }
}

async fn commit(pool: &Rc<Pool>, what: u8) -> bool {
    let mut change = pool.change(Purpose::Release).await;
    change.put(keys::space(SpaceId(9)), vec![what]);
    change.commit().await.is_ok()
}

/// How a pool ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The daemon is killed after a stamp.
    Killed,
    /// The pool is closed.
    Closed,
}

/// A pool in which something was committed twice in one epoch, and images of its disks from between.
fn written_twice(seed: u64, end: End) -> (Bench, Vec<Image>) {
    let bench = Bench::new(seed);
    let images = bench.run(async move |lab| {
        let pool = lab.create().await;
        assert!(commit(&pool, 1).await);
        let images = lab.images();
        assert!(commit(&pool, 2).await);
        match end {
            End::Killed => {
                lab.pause(LONG).await;
                // The log was written, and the last stamp is long ago.
                assert!(commit(&pool, 2).await);
                lab.pause(STAMPED).await;
            }
            End::Closed => pool.close().await.unwrap(),
        }
        images
    });
    bench.world.kill();
    (bench, images)
}

#[test]
fn voters_that_are_all_as_they_were_earlier_in_their_epoch_are_not_written_to() {
    // Scenario: all voters, or all disks, are put back as they were earlier in the epoch that the host's record names. The pool is
    // not opened for writing. It can be read, and a confirmation opens it; the record names its labels from then on.
    for end in [End::Killed, End::Closed] {
        let (bench, images) = written_twice(1, end);
        for count in [VOTERS, DISKS] {
            let put: Vec<(usize, &Image)> = images.iter().enumerate().take(count).collect();
            let left = bench.with(&put);
            let refused = left.opened(OpenMode::Write);
            assert!(
                matches!(refused, Err(OpenError::ReadOnly { .. })),
                "{end:?}: {refused:?} was written to"
            );
            let said = refused.unwrap_err();
            let said = std::error::Error::source(&said).map_or_else(|| said.to_string(), ToString::to_string);
            assert!(said.contains("older labels") && said.contains("confirm"), "{said}");
            let (_, kept, state) = left.opened(OpenMode::Read).unwrap();
            assert!(kept == 1 && matches!(state, PoolState::ReadOnly(_)), "{kept}, {state:?}");
            let (old, kept, state) = left.opened(OpenMode::Confirmed).unwrap();
            assert_eq!((old.range(..VOTERS).count(), kept, state), (0, 1, PoolState::Writable));
            let (_, kept, state) = left.opened(OpenMode::Write).unwrap();
            assert_eq!((kept, state), (1, PoolState::Writable), "confirmed once");
        }
    }
}

#[test]
fn voters_that_are_older_than_one_of_them_are_old_disks() {
    // Scenario: all voters but one are put back as they were earlier in the epoch. Those are old disks, and nothing of before is
    // read; which one was left makes no difference. Nothing is wrong where no disk was put back.
    let (bench, images) = written_twice(2, End::Killed);
    assert_eq!(bench.with(&[]).opened(OpenMode::Write).unwrap(), (BTreeSet::new(), 2, PoolState::Writable));
    for kept in 0..VOTERS {
        let put: Vec<(usize, &Image)> =
            images.iter().enumerate().take(VOTERS).filter(|(disk, _)| *disk != kept).collect();
        let expected: BTreeSet<usize> = (0..VOTERS).filter(|disk| *disk != kept).collect();
        let found = bench.with(&put).opened(OpenMode::Write).unwrap();
        assert_eq!(found, (expected, 2, PoolState::Writable), "disk {kept} is current");
    }
}

#[test]
fn power_cut_at_any_write_of_labels_and_record_calls_no_sound_disk_old() {
    // Scenario: power fails at each step of a stamp, of an end in good order, and of the opening after it, with the host's record of
    // then and with the one before it. The pool opens for writing, and no disk is called old.
    let bench = Bench::new(3);
    bench.host.keep(bench.world.record());
    let from = bench.run(async move |lab| {
        let pool = lab.create().await;
        assert!(commit(&pool, 1).await);
        lab.pause(LONG).await;
        let from = lab.host.recorder.borrow().as_ref().unwrap().now();
        assert!(commit(&pool, 1).await);
        lab.pause(STAMPED).await;
        assert!(commit(&pool, 1).await);
        pool.close().await.unwrap();
        lab.open(OpenMode::Write).await.unwrap();
        from
    });
    bench.world.kill();
    let (mut count, recorder) = (0, bench.host.recorder.borrow_mut().take().unwrap());
    for cut in recorder.cuts().into_iter().filter(|cut| *cut >= from) {
        let pending = recorder.pending(cut).len();
        for fate in [Fate::Lost, Fate::Landed] {
            let state = recorder.state(cut, &vec![fate; pending], &StateOptions::default());
            let left = state.reopen(1);
            left.world.set_arenas(ARENAS, ARENAS);
            let disks = left.disks.into_iter().flatten().collect();
            let left = Bench { world: left.world, disks, host: Host::new(bench.host.at(cut)) };
            let found = left.opened(OpenMode::Write);
            let (old, kept, _) =
                found.unwrap_or_else(|error| panic!("refused to open a sound pool: {error}\n{state}"));
            assert!(old.is_empty() && kept == 1, "{old:?} are called old\n{state}");
            count += 1;
        }
    }
    assert!(count > 100, "{count} states are too few to tell");
}

#[test]
fn a_record_that_cannot_be_written_holds_up_no_stamp_and_little_of_the_end() {
    // Scenario: the folder of the host's records refuses, or never answers, from some moment on. Stamps go on, commits take no
    // longer, and the end of the pool waits some seconds at most. The next opening finds an earlier record, which is true.
    for folder in [Folder::Refused, Folder::Hung] {
        let bench = Bench::new(4);
        bench.run(async move |lab| {
            let pool = lab.create().await;
            assert!(commit(&pool, 1).await);
            lab.host.folder.set(folder);
            let clock = lab.seams.clock.as_ref();
            for _ in 0..3 {
                lab.pause(LONG).await;
                let begun = clock.now();
                assert!(commit(&pool, 3).await);
                assert!(clock.now().since(begun) < Duration::from_secs(1), "a commit waited for the folder");
                lab.pause(STAMPED).await;
                let begun = clock.now();
                assert!(commit(&pool, 3).await);
                assert!(clock.now().since(begun) < Duration::from_secs(1), "a commit waited for the folder");
            }
            let begun = clock.now();
            pool.close().await.unwrap();
            assert!(clock.now().since(begun) < Duration::from_secs(30), "the end waited for the folder");
        });
        bench.world.kill();
        assert_eq!(
            bench.with(&[]).opened(OpenMode::Write).unwrap(),
            (BTreeSet::new(), 3, PoolState::Writable)
        );
    }
}
