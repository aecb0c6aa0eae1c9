//! Disks whose device has grown (docs/design/0034): the room is taken into use, and a power cut at any write loses neither room nor
//! label.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::rc::Rc;

use dolmen_block_io::{
    Action, BlockDevice, Command, Durability, Geometry, IoCounters, Seams, Submission, flush, write,
};
use dolmen_buffer::ArenaConfig;
use dolmen_disk::{Contents, Extent, Label, look};
use dolmen_pool::{
    Arbiter, CreateOptions, Disk, MemoryArbiter, OpenMode, OpenOptions, Pool, PoolError, PoolState, Purpose,
    StrayReason, create, discover, keys, open,
};
use dolmen_sim::{DiskProfile, Fate, SimDisk, StateOptions, World};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskSlot, Epoch, HostId, SpaceId};

const ARENAS: ArenaConfig = ArenaConfig { small_count: 256, medium_count: 32, large_count: 12 };
const DISKS: usize = 6;
/// Size of each device when the pool is made.
const BEFORE: Bytes = Bytes::mib(64);
/// Size that each has grown to.
const AFTER: Bytes = Bytes::mib(128);
/// A disk with a vote, and one without.
const GROWING: [DiskSlot; 2] = [DiskSlot(0), DiskSlot(5)];
/// The two slots of labels in front, their length, and where those at the end begin (docs/format/label.md).
const SLOT_BYTES: u64 = 64 << 10;
const FRONT_AT: u64 = 64 << 10;

fn back_at(capacity: Bytes) -> u64 {
    capacity.0 - (1 << 20)
}

fn units(capacity: Bytes) -> u64 {
    Extent::of(capacity).unwrap().unit_count()
}

/// A device that was opened when it was smaller.
struct Opened {
    inner: Rc<dyn BlockDevice>,
    shown: Cell<Bytes>,
    has_grown: Rc<Cell<bool>>,
    refuses_at: Rc<Cell<Option<u64>>>,
}

impl BlockDevice for Opened {
    fn geometry(&self) -> Geometry {
        Geometry { capacity: self.shown.get(), ..self.inner.geometry() }
    }

    fn size_now(&self) -> Bytes {
        if self.has_grown.get() { self.inner.geometry().capacity } else { self.shown.get() }
    }

    fn extend(&self) {
        self.shown.set(self.size_now());
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn submit(&self, mut command: Command) -> Submission {
        if let Action::Write { at, .. } = &mut command.action
            && self.refuses_at.get() == Some(*at)
        {
            // Beyond the end: the disk refuses it.
            *at = 2 * AFTER.0;
        }
        self.inner.submit(command)
    }

    fn fence(&self, epoch: Epoch) {
        self.inner.fence(epoch);
    }

    fn counters(&self) -> IoCounters {
        self.inner.counters()
    }
}

struct Bench {
    world: World,
    disks: Vec<Rc<SimDisk>>,
    arbiter: Rc<MemoryArbiter>,
    has_grown: Rc<Cell<bool>>,
    /// Address at which devices take no write.
    refuses_at: Rc<Cell<Option<u64>>>,
}

#[derive(Clone)]
struct Lab {
    seams: Seams,
    arbiter: Rc<MemoryArbiter>,
    devices: Vec<Rc<dyn BlockDevice>>,
    has_grown: Rc<Cell<bool>>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let world = World::new(seed);
        world.set_arenas(ARENAS, ARENAS);
        let disks = (0..DISKS)
            .map(|number| world.add_disk(&format!("disk{number}"), DiskProfile::new(AFTER)))
            .collect();
        let (has_grown, refuses_at) = Default::default();
        Self { world, disks, arbiter: MemoryArbiter::new(HostId([1; 16])), has_grown, refuses_at }
    }

    fn run<T: 'static>(&self, body: impl AsyncFnOnce(Lab) -> T + 'static) -> T {
        let shown = if self.has_grown.get() { AFTER } else { BEFORE };
        let devices = self.disks.iter().map(|disk| {
            let (inner, has_grown) = (disk.attach(&self.world), Rc::clone(&self.has_grown));
            let refuses_at = Rc::clone(&self.refuses_at);
            Rc::new(Opened { inner, shown: Cell::new(shown), has_grown, refuses_at }) as Rc<dyn BlockDevice>
        });
        let lab = Lab {
            seams: self.world.seams(),
            arbiter: Rc::clone(&self.arbiter),
            devices: devices.collect(),
            has_grown: Rc::clone(&self.has_grown),
        };
        let done = self.world.run(async move { body(lab).await }).unwrap();
        self.world.kill();
        done
    }
}

impl Lab {
    async fn create(&self) -> Rc<Pool> {
        let options =
            CreateOptions { name: "tank".parse().unwrap(), overwrite: Vec::new(), fault_domains: Vec::new() };
        let arbiter = Rc::clone(&self.arbiter) as Rc<dyn Arbiter>;
        create(&self.seams, arbiter, &self.devices, &options).await.unwrap().pool
    }

    async fn open_of(&self, devices: &[Rc<dyn BlockDevice>], mode: OpenMode) -> Rc<Pool> {
        let candidates = discover(&self.seams, devices).await.pools.into_values().next().unwrap();
        let arbiter = Rc::clone(&self.arbiter) as Rc<dyn Arbiter>;
        open(&self.seams, arbiter, candidates, &OpenOptions { mode }).await.unwrap().pool
    }

    async fn open(&self, mode: OpenMode) -> Rc<Pool> {
        self.open_of(&self.devices, mode).await
    }

    fn device(&self, slot: DiskSlot) -> &dyn BlockDevice {
        self.devices[usize::from(slot.0)].as_ref()
    }

    async fn label(&self, slot: DiskSlot) -> Label {
        match look(&self.seams, self.device(slot)).await.unwrap() {
            Contents::Member { label, .. } => *label,
            other => panic!("{slot} has {other:?}"),
        }
    }

    /// Writes over the slot of a label at one end.
    async fn tear(&self, slot: DiskSlot, at: u64) {
        let mut buffer = self.seams.metadata.take(4096).await;
        buffer.fill(0xa5);
        write(self.device(slot), Epoch(u64::MAX), at, buffer.freeze(), Durability::Cached).await.unwrap();
        flush(self.device(slot), Epoch(u64::MAX)).await.unwrap();
    }
}

async fn commit(pool: &Rc<Pool>) {
    let mut change = pool.change(Purpose::Release).await;
    change.put(keys::space(SpaceId(9)), vec![1]);
    change.commit().await.unwrap();
}

fn disk(pool: &Pool, slot: DiskSlot) -> Rc<Disk> {
    pool.disk(slot).unwrap()
}

/// Allocation units that are free on a disk without rows, in one run from the first on.
fn free(pool: &Pool, slot: DiskSlot) -> u64 {
    let runs = pool.free_space().free_runs(slot).unwrap();
    assert!(runs.len() == 1 && runs[0].first == 0, "{slot}: {runs:?}");
    runs[0].count
}

/// Addresses of blocks of a disk that begin as a label does, other than those of its label slots.
fn strays(disk: &SimDisk, capacity: Bytes) -> Vec<u64> {
    let slots = [FRONT_AT, back_at(capacity)].map(|at| [at, at + SLOT_BYTES]).concat();
    let mut magic = [0; 8];
    let is_label = |at: &u64| disk.show(*at, &mut magic) && magic == *b"DOLMENLB";
    (0..AFTER.0).step_by(4096).filter(|at| !slots.contains(at)).filter(is_label).collect()
}

/// Grows the disks of an open pool whose devices have grown.
async fn grow(pool: &Rc<Pool>) {
    for slot in GROWING {
        let disk = disk(pool, slot);
        pool.membership().grow(&disk).await.unwrap();
        assert_eq!((free(pool, slot), disk.size().gained()), (units(AFTER), Bytes::ZERO), "{slot}");
    }
}

#[test]
fn room_that_a_device_gains_is_used_and_stays() {
    // Scenario: devices grow while their pool is open. Nothing changes before that is asked for. Then the room is there, for all that
    // ask, in later openings too, and where the disk is absent; a second growth finds nothing.
    let bench = Bench::new(1);
    bench.run(async move |lab| {
        let pool = lab.create().await;
        assert_eq!(disk(&pool, GROWING[0]).size().gained(), Bytes::ZERO);
        lab.has_grown.set(true);
        let more = Bytes((units(AFTER) - units(BEFORE)) * ALLOCATION_UNIT_BYTES);
        for slot in GROWING {
            let disk = disk(&pool, slot);
            assert_eq!((disk.size().gained(), free(&pool, slot)), (more, units(BEFORE)));
            assert_eq!(pool.membership().grow(&disk).await.unwrap(), more);
            assert_eq!(pool.membership().grow(&disk).await.unwrap(), Bytes::ZERO);
            assert_eq!((free(&pool, slot), pool.free_space().used()), (units(AFTER), Bytes::ZERO));
        }
        pool.close().await.unwrap();
    });
    bench.run(async move |lab| {
        let pool = lab.open(OpenMode::Write).await;
        for slot in GROWING {
            assert_eq!(free(&pool, slot), units(AFTER));
            assert_eq!(disk(&pool, slot).data_bytes().0, units(AFTER) * ALLOCATION_UNIT_BYTES);
        }
        pool.close().await.unwrap();
        let pool = lab.open_of(&lab.devices[..5], OpenMode::Write).await;
        let absent = disk(&pool, GROWING[1]);
        assert!(!absent.is_present());
        assert_eq!(absent.size().extent().unwrap().unit_count(), units(AFTER));
        assert!(!pool.free_space().holds_rows(&absent) && pool.free_space().used() == Bytes::ZERO);
        let seen = pool.membership().absent_member(lab.devices[5].as_ref()).await.unwrap();
        pool.membership().readmit(Rc::clone(&lab.devices[5]), &seen).await.unwrap();
        assert_eq!((free(&pool, GROWING[1]), absent.extent().unwrap().capacity), (units(AFTER), AFTER));
        pool.close().await.unwrap();
    });
}

#[test]
fn power_cut_at_any_write_of_a_growth_loses_neither_room_nor_label() {
    // Scenario: power fails at each step of a growth of a disk with a vote and of one without. The pool opens whole. What its map gives
    // is within the cut that the label says, also before anything is written; all room of that cut is free, and no label lies in it;
    // and the growth can be asked for again.
    let bench = Bench::new(2);
    let recorder = Rc::new(bench.world.record());
    let recorded = Rc::clone(&recorder);
    let (from, to, arbiter) = bench.run(async move |lab| {
        let pool = lab.create().await;
        commit(&pool).await;
        lab.has_grown.set(true);
        let (from, arbiter) = (recorded.now(), lab.arbiter.snapshot());
        grow(&pool).await;
        (from, recorded.now(), arbiter)
    });
    let (mut count, mut completed) = (0, 0);
    for cut in recorder.cuts().into_iter().filter(|cut| (from..=to).contains(cut)) {
        let pending = recorder.pending(cut).len();
        for fate in [Fate::Lost, Fate::Landed] {
            let state = recorder.state(cut, &vec![fate; pending], &StateOptions::default());
            let left = state.reopen(1);
            left.world.set_arenas(ARENAS, ARENAS);
            let disks = left.disks.into_iter().flatten().collect();
            let has_grown = Rc::new(Cell::new(true));
            let (arbiter, refuses_at) = (arbiter.snapshot(), Rc::default());
            let left = Bench { world: left.world, disks, arbiter, has_grown, refuses_at };
            let told = state.to_string();
            let disks = left.disks.clone();
            completed += left.run(async move |lab| {
                let pool = lab.open(OpenMode::Read).await;
                let mut said = Vec::new();
                for slot in GROWING {
                    let by_label = lab.label(slot).await.extent.unit_count();
                    assert_eq!(free(&pool, slot), by_label, "{slot}: the map and the label differ\n{told}");
                    said.push(by_label);
                }
                let pool = lab.open(OpenMode::Write).await;
                assert!(pool.disks().iter().all(|disk| disk.is_present()), "a disk is left out\n{told}");
                for (slot, by_label) in GROWING.into_iter().zip(&said) {
                    assert_eq!(free(&pool, slot), *by_label, "{slot}: room is lost\n{told}");
                    let capacity = lab.label(slot).await.extent.capacity;
                    let strays = strays(&disks[usize::from(slot.0)], capacity);
                    assert_eq!(strays, [0; 0], "{slot}: labels lie outside their slots\n{told}");
                }
                grow(&pool).await;
                commit(&pool).await;
                assert_eq!(pool.state(), PoolState::Writable);
                pool.close().await.unwrap();
                let pool = lab.open(OpenMode::Write).await;
                GROWING.into_iter().for_each(|slot| assert_eq!(free(&pool, slot), units(AFTER)));
                said.iter().filter(|units| **units > 20_000).count()
            });
            count += 1;
        }
    }
    assert!(count > 30 && completed > 0, "{count} states, {completed} with the new cut, are too few to tell");
}

#[test]
fn a_growth_that_its_disk_has_refused_in_part_is_asked_for_again() {
    // Scenario: the labels of a growth are at the new end, and the disk refuses to clear those at the old one. The room is not given,
    // and counts as gained still. Once the disk takes the write, a second growth gives all of it, and leaves no label in the data area.
    let bench = Bench::new(4);
    let refuses_at = Rc::clone(&bench.refuses_at);
    bench.run(async move |lab| {
        let pool = lab.create().await;
        lab.has_grown.set(true);
        let more = Bytes((units(AFTER) - units(BEFORE)) * ALLOCATION_UNIT_BYTES);
        refuses_at.set(Some(back_at(BEFORE)));
        for slot in GROWING {
            let disk = disk(&pool, slot);
            let refused = pool.membership().grow(&disk).await;
            assert!(matches!(refused, Err(PoolError::Label { .. })), "{refused:?}");
            assert_eq!((free(&pool, slot), disk.size().gained()), (units(BEFORE), more), "{slot}");
        }
        refuses_at.set(None);
        grow(&pool).await;
        pool.close().await.unwrap();
    });
    for slot in GROWING {
        assert_eq!(strays(&bench.disks[usize::from(slot.0)], AFTER), [0; 0], "{slot}");
    }
}

#[test]
fn each_label_of_a_device_that_has_grown_says_so() {
    // Scenario: right after a growth the newest label is damaged at both ends. The one before it says the new cut too: were it the old
    // one, rows could lie beyond it.
    let bench = Bench::new(3);
    bench.run(async move |lab| {
        let pool = lab.create().await;
        lab.has_grown.set(true);
        grow(&pool).await;
        for slot in GROWING {
            let newest = lab.label(slot).await;
            let at = newest.sequence % 2 * SLOT_BYTES;
            lab.tear(slot, FRONT_AT + at).await;
            lab.tear(slot, back_at(AFTER) + at).await;
            let before = lab.label(slot).await;
            assert!(before.sequence < newest.sequence, "{slot} has its newest label still");
            assert_eq!((newest.extent, before.extent.capacity), (before.extent, AFTER), "{slot}");
        }
    });
}

#[test]
fn labels_at_the_old_end_of_a_device_that_has_grown_are_found() {
    // Scenario: a device has grown, and its room is not in use. Its newest label in front is torn; the copy where its end was is in the
    // middle now. The newest label is found there, not the one before it.
    let bench = Bench::new(4);
    bench.run(async move |lab| lab.create().await.close().await.unwrap());
    bench.has_grown.set(true);
    bench.run(async move |lab| {
        for slot in (0..DISKS).map(|slot| DiskSlot(u16::try_from(slot).unwrap())) {
            let newest = lab.label(slot).await;
            lab.tear(slot, FRONT_AT + newest.sequence % 2 * SLOT_BYTES).await;
            assert_eq!(lab.label(slot).await.sequence, newest.sequence, "{slot}: an older label is taken");
        }
        let pool = lab.open(OpenMode::Write).await;
        assert!(pool.disks().iter().all(|disk| disk.is_present()));
        grow(&pool).await;
        pool.close().await.unwrap();
    });
}

#[test]
fn a_disk_from_before_its_growth_comes_back_with_its_new_cut() {
    // Scenario: a disk is put back as it was before its device grew and the room was used. It is called old. On a device that is
    // as short as it was then it is refused, for rows may lie beyond its end. Taken back in, it has its new cut, and no label of before
    // lies in its data area.
    let bench = Bench::new(5);
    bench.run(async move |lab| lab.create().await.close().await.unwrap());
    let old = bench.disks[5].truth();
    bench.has_grown.set(true);
    bench.run(async move |lab| {
        let pool = lab.open(OpenMode::Write).await;
        grow(&pool).await;
        pool.close().await.unwrap();
        lab.open(OpenMode::Write).await.close().await.unwrap();
    });
    let world = World::new(6);
    world.set_arenas(ARENAS, ARENAS);
    let disks = bench.disks.iter().enumerate().map(|(number, disk)| {
        let image = if number == 5 { old.clone() } else { disk.truth() };
        world.add_disk_with(disk.name(), disk.profile().clone(), image)
    });
    let disks = disks.collect();
    let left = Bench {
        world,
        disks,
        arbiter: bench.arbiter.snapshot(),
        has_grown: Rc::new(Cell::new(true)),
        refuses_at: Rc::default(),
    };
    let image = Rc::clone(&left.disks[5]);
    left.run(async move |lab| {
        let pool = lab.open(OpenMode::Write).await;
        assert!(disk(&pool, GROWING[1]).absence().is_left_out_as_old());
        let seen = pool.membership().absent_member(lab.devices[5].as_ref()).await.unwrap();
        assert!(seen.old.is_some() && seen.label.extent.capacity == BEFORE);
        let inner = Rc::clone(&lab.devices[5]);
        let short: Rc<dyn BlockDevice> = Rc::new(Opened {
            inner,
            shown: Cell::new(BEFORE),
            has_grown: Rc::new(Cell::new(false)),
            refuses_at: Rc::default(),
        });
        let refused = [
            pool.membership().absent_member(short.as_ref()).await.map(drop),
            pool.membership().readmit(short, &seen).await.map(drop),
        ];
        for refused in refused {
            let is_cut = matches!(&refused, Err(PoolError::Stray { why: StrayReason::CutShort { .. }, .. }));
            assert!(is_cut, "a device that is too short is taken: {refused:?}");
        }
        pool.membership().readmit(Rc::clone(&lab.devices[5]), &seen).await.unwrap();
        assert_eq!(free(&pool, GROWING[1]), units(AFTER));
        assert_eq!(lab.label(GROWING[1]).await.extent.capacity, AFTER);
        assert_eq!(strays(&image, AFTER), [0; 0], "labels of before the growth lie where data is to lie");
        pool.close().await.unwrap();
    });
}
