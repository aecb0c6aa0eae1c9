//! Labels of an open pool and of an opening (docs/design/0027): which slot each goes to, and what it waits for.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{
    Action, BlockDevice, Command, Completions, DeviceError, Durability, Geometry, IoCounters, Outcome,
    Payload, Seams, Submission, sleep,
};
use dolmen_buffer::ArenaConfig;
use dolmen_pool::{
    Arbiter, CreateOptions, ExcludeReason, MemoryArbiter, OpenMode, OpenOptions, Pool, PoolState, Purpose,
    create, discover, keys, open,
};
use dolmen_sim::{DiskProfile, SimDisk, World};
use dolmen_units::{Bytes, DiskSlot, Epoch, HostId, SpaceId};

const ARENAS: ArenaConfig = ArenaConfig { small_count: 256, medium_count: 32, large_count: 12 };
const DISKS: usize = 7;
/// Where the two slots of labels stand at the front of a disk (docs/format/label.md).
const SLOTS_AT: [u64; 2] = [64 << 10, 128 << 10];

/// More than the labels at the back of a disk take.
const BACK_BYTES: u64 = 1 << 20;

/// What a command does to a label, as far as its address says.
#[derive(Clone, Copy)]
enum Written {
    /// It writes the label of this slot at the front; the back follows.
    Front(usize),
    /// It writes that label at the back, durably by itself or with the next flush.
    Back {
        is_durable: bool,
    },
    Flush,
    Other,
}

/// A device that passes all on, and compares each label with the slot of the newest durable one.
struct Observed {
    inner: Rc<dyn BlockDevice>,
    completions: Rc<Completions>,
    seams: Seams,
    /// The slot of the newest durable label, as far as it was seen.
    durable: Rc<Cell<Option<usize>>>,
    /// The slot of a label that was written at the front, and not at the back yet.
    front: Rc<Cell<Option<usize>>>,
    /// The slot of a later label than the durable one that is durable at the front alone.
    half: Rc<Cell<Option<usize>>>,
    /// The slot of a label that the next flush makes durable.
    cached: Rc<Cell<Option<usize>>>,
    /// Writes of labels that went over the newest durable one.
    over: Rc<Cell<usize>>,
    /// Whether the next label fails, and nothing of it is written.
    fails: Rc<Cell<bool>>,
    /// Whether labels are never answered.
    hangs: Rc<Cell<bool>>,
}

impl BlockDevice for Observed {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn submit(&self, command: Command) -> Submission {
        let end = self.inner.geometry().capacity.0;
        let written = match &command.action {
            Action::Write { at, durability, .. } => {
                let front = SLOTS_AT.iter().position(|slot| slot == at);
                let is_durable = *durability == Durability::Durable;
                match front {
                    Some(slot) => Written::Front(slot),
                    None if at + BACK_BYTES >= end => Written::Back { is_durable },
                    None => Written::Other,
                }
            }
            Action::Flush => Written::Flush,
            _ => Written::Other,
        };
        if let Written::Front(slot) = written {
            let is_over = self.durable.get() == Some(slot) && self.half.get().is_none();
            self.over.set(self.over.get() + usize::from(is_over));
        }
        let (key, submission) = self.completions.begin();
        if matches!(written, Written::Front(_)) && self.fails.replace(false) {
            let result = Err(DeviceError::Medium { errno: 5 });
            self.completions.complete(key, Outcome { result, payload: Payload::None });
            return submission;
        }
        if matches!(written, Written::Front(_)) && self.hangs.get() {
            return submission;
        }
        let passed = self.inner.submit(command);
        let (completions, durable) = (Rc::clone(&self.completions), Rc::clone(&self.durable));
        let (front, half, cached) = (Rc::clone(&self.front), Rc::clone(&self.half), Rc::clone(&self.cached));
        let observe = async move {
            let Outcome { result, payload } = passed.await;
            let is_done = result.is_ok();
            match written {
                Written::Front(slot) => {
                    front.set(is_done.then_some(slot));
                    half.set(None);
                }
                Written::Back { is_durable: true } if is_done => durable.set(front.take().or(durable.get())),
                Written::Back { is_durable: false } if is_done => cached.set(front.take()),
                Written::Flush if is_done => match cached.take() {
                    Some(slot) => durable.set(Some(slot)),
                    None => half.set(front.take().or(half.get())),
                },
                Written::Back { .. } | Written::Flush => {}
                Written::Other => {}
            }
            completions.complete(key, Outcome { result, payload });
        };
        self.seams.spawner.spawn("observer", Box::pin(observe));
        submission
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
    durable: Vec<Slots>,
    over: Rc<Cell<usize>>,
}

/// The slots of a disk's newest durable label, and of a later one that is durable at the front alone; and whether the next fails.
#[derive(Clone, Default)]
struct Slots {
    durable: Rc<Cell<Option<usize>>>,
    half: Rc<Cell<Option<usize>>>,
    fails: Rc<Cell<bool>>,
    /// Whether labels are never answered.
    hangs: Rc<Cell<bool>>,
}

#[derive(Clone)]
struct Lab {
    seams: Seams,
    arbiter: Rc<MemoryArbiter>,
    devices: Vec<Rc<dyn BlockDevice>>,
    slots: Vec<Slots>,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let world = World::new(seed);
        world.set_arenas(ARENAS, ARENAS);
        world.set_steps_max(20_000_000);
        let profile = || DiskProfile::new(Bytes::mib(64));
        let disks = (0..DISKS).map(|number| world.add_disk(&format!("disk{number}"), profile())).collect();
        let arbiter = MemoryArbiter::new(HostId([1; 16]));
        let durable = (0..DISKS).map(|_| Slots::default()).collect();
        Self { world, disks, arbiter, durable, over: Rc::default() }
    }

    fn run<T: 'static>(&self, body: impl AsyncFnOnce(Lab) -> T + 'static) -> T {
        let seams = self.world.seams();
        let devices = self.disks.iter().zip(&self.durable).map(|(disk, slots)| {
            let (seams, over) = (seams.clone(), Rc::clone(&self.over));
            let Slots { durable, half, fails, hangs } = slots.clone();
            let (inner, completions) = (disk.attach(&self.world), Completions::new());
            Rc::new(Observed {
                inner,
                completions,
                seams,
                durable,
                front: Rc::default(),
                half,
                cached: Rc::default(),
                over,
                fails,
                hangs,
            }) as Rc<dyn BlockDevice>
        });
        let devices = devices.collect();
        let lab = Lab { seams, arbiter: Rc::clone(&self.arbiter), devices, slots: self.durable.clone() };
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

    async fn open(&self) -> Rc<Pool> {
        let found = discover(&self.seams, &self.devices).await;
        let candidates = found.pools.into_values().next().unwrap();
        let arbiter = Rc::clone(&self.arbiter) as Rc<dyn Arbiter>;
        let options = OpenOptions { mode: OpenMode::Write };
        open(&self.seams, arbiter, candidates, &options).await.unwrap().pool
    }

    async fn pause(&self, time: Duration) {
        sleep(self.seams.clock.as_ref(), time).await;
    }
}

async fn commit(pool: &Rc<Pool>) -> bool {
    let mut change = pool.change(Purpose::Release).await;
    change.put(keys::space(SpaceId(9)), vec![1]);
    change.commit().await.is_ok()
}

#[test]
fn a_label_never_goes_over_the_newest_durable_one() {
    // Scenario: a label of a member without a vote, or with one, cannot be written, in an open pool or in an opening. Further labels
    // follow, in that pool and after it was opened again. None goes over the newest durable label of its disk: torn at both
    // ends, it would leave the one before, and a sound disk would be called old.
    for seed in 0..12 {
        let bench = Bench::new(seed);
        let failing = if seed % 2 == 0 { 6 } else { 1 };
        bench.run(async move |lab| lab.create().await.close().await.unwrap());
        // A disk that is claimed is wiped first.
        bench.over.set(0);
        bench.run(async move |lab| {
            let pool = lab.open().await;
            for slot in [4, 5] {
                lab.slots[failing].fails.set(true);
                pool.exclude(DiskSlot(slot), ExcludeReason::Asked).await.unwrap();
                assert!(commit(&pool).await);
            }
            pool.close().await.unwrap();
        });
        for _ in 0..3 {
            bench.run(async move |lab| {
                lab.slots[failing].fails.set(true);
                let pool = lab.open().await;
                assert!(commit(&pool).await, "{:?}", pool.state());
                lab.pause(Duration::from_secs(700)).await;
                assert!(commit(&pool).await, "{:?}", pool.state());
                lab.pause(Duration::from_secs(2)).await;
                assert_eq!(pool.state(), PoolState::Writable);
            });
        }
        assert_eq!(bench.over.get(), 0, "seed {seed}: labels went over the newest durable one");
        assert!(bench.durable.iter().all(|slots| slots.durable.get().is_some()), "no label was seen");
    }
}

#[test]
fn a_voter_that_hangs_while_it_is_stamped_can_leave_at_once() {
    // Scenario: a voter hangs when it is to be stamped. It leaves as soon as that is asked for, long before its command is given
    // up, and the pool goes on: the stamp does not hold the turn for epochs.
    let bench = Bench::new(50);
    bench.run(async move |lab| {
        let pool = lab.create().await;
        lab.pause(Duration::from_secs(700)).await;
        // The log of the other voters says that the stamp is due; the label is the next that this one gets.
        lab.slots[1].hangs.set(true);
        assert!(commit(&pool).await);
        lab.pause(Duration::from_millis(100)).await;
        let begun = lab.seams.clock.now();
        pool.exclude(DiskSlot(1), ExcludeReason::Asked).await.unwrap();
        assert!(
            lab.seams.clock.now().since(begun) < Duration::from_secs(5),
            "a stamp held the turn for epochs"
        );
        assert!(commit(&pool).await, "{:?}", pool.state());
    });
}

#[test]
fn a_member_without_a_vote_that_hangs_holds_up_no_opening_and_no_epoch() {
    // Scenario: a member without a vote never answers a label. The pool opens all the same, members change while it hangs, and a
    // voter leaves at once: the label is waited for no longer than a bound.
    let bench = Bench::new(60);
    bench.run(async move |lab| lab.create().await.close().await.unwrap());
    bench.run(async move |lab| {
        lab.slots[6].hangs.set(true);
        let begun = lab.seams.clock.now();
        let pool = lab.open().await;
        let took = lab.seams.clock.now().since(begun);
        assert!(took < Duration::from_secs(15), "the opening took {took:?}");
        let begun = lab.seams.clock.now();
        pool.membership().retire(&pool.disk(DiskSlot(5)).unwrap()).await.unwrap();
        pool.exclude(DiskSlot(1), ExcludeReason::Asked).await.unwrap();
        let took = lab.seams.clock.now().since(begun);
        assert!(took < Duration::from_secs(5), "two epochs took {took:?}");
        assert!(commit(&pool).await, "{:?}", pool.state());
    });
}
