//! Two hosts at the same disks (docs/design/0009): an open pool is not opened by another, of two that open at once one goes on
//! at most, and an owner that stood still stops.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::{Notify, join_all};
use dolmen_block_io::{
    Action, BlockDevice, Command, Completions, Geometry, Instant, IoCounters, Outcome, Seams, Submission,
    sleep,
};
use dolmen_buffer::ArenaConfig;
use dolmen_disk::{Contents, look, write_label};
use dolmen_pool::{
    Arbiter, CreateOptions, HOLD, MemoryArbiter, OpenError, OpenMode, OpenOptions, Opened, Pool, PoolState,
    Purpose, WATCH, create, discover, keys, name_of, open,
};
use dolmen_sim::{DiskProfile, FaultKind, FaultRates, Rate, SimDisk, World};
use dolmen_units::{Bytes, Epoch, HostId};

const ARENAS: ArenaConfig = ArenaConfig { small_count: 256, medium_count: 32, large_count: 12 };
const DISKS: usize = 3;
/// The allocation unit of the offsets at which the second host begins.
const STEP: Duration = Duration::from_millis(500);
/// The same where they cross each other.
const CROSSING: Duration = Duration::from_micros(50);

/// At least as many writes as an opening gives to its disks before it serves.
const WRITES_OF_AN_OPENING: u64 = 16;

/// A host: its record, and its own way to the disks.
#[derive(Clone)]
struct Host {
    seams: Seams,
    arbiter: Rc<MemoryArbiter>,
    devices: Vec<Rc<dyn BlockDevice>>,
}

impl Host {
    async fn open(&self, mode: OpenMode) -> Result<Opened, OpenError> {
        let found = discover(&self.seams, &self.devices).await;
        let candidates = found.pools.into_values().next().unwrap();
        open(&self.seams, Rc::clone(&self.arbiter) as Rc<dyn Arbiter>, candidates, &OpenOptions { mode })
            .await
    }

    async fn create(&self) -> Rc<Pool> {
        let options =
            CreateOptions { name: "tank".parse().unwrap(), overwrite: Vec::new(), fault_domains: Vec::new() };
        create(&self.seams, Rc::clone(&self.arbiter) as Rc<dyn Arbiter>, &self.devices, &options)
            .await
            .unwrap()
            .pool
    }

    /// Commands that its devices were given and that change something.
    fn written(&self) -> u64 {
        self.devices
            .iter()
            .map(|device| device.counters())
            .map(|counters| counters.writes + counters.discards)
            .sum()
    }
}

/// Whether a host stands still, and when it begins to.
#[derive(Default)]
struct Standstill {
    present: Cell<bool>,
    /// The write of this number, counted from 0 over all disks, makes it stand still.
    at_write: Cell<Option<u64>>,
    begun: Notify,
    over: Notify,
}

impl Standstill {
    fn begin(&self) {
        self.present.set(true);
        self.begun.notify_all();
    }

    fn end(&self) {
        self.present.set(false);
        self.over.notify_all();
    }

    /// Counts a command that is submitted.
    fn count(&self, command: &Command) {
        if !matches!(command.action, Action::Write { .. }) {
            return;
        }
        let left = self.at_write.take();
        if left == Some(0) {
            self.begin();
        }
        self.at_write.set(left.and_then(|left| left.checked_sub(1)));
    }
}

/// A device of a host that can stand still: it takes commands, and passes them on when it goes on.
struct Halting {
    inner: Rc<dyn BlockDevice>,
    completions: Rc<Completions>,
    standstill: Rc<Standstill>,
    waiting: RefCell<Vec<(dolmen_block_io::CompletionKey, Command)>>,
}

impl BlockDevice for Halting {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn submit(&self, command: Command) -> Submission {
        self.standstill.count(&command);
        if !self.standstill.present.get() {
            return self.inner.submit(command);
        }
        let (key, submission) = self.completions.begin();
        self.waiting.borrow_mut().push((key, command));
        submission
    }

    fn fence(&self, epoch: Epoch) {
        self.inner.fence(epoch);
    }

    fn counters(&self) -> IoCounters {
        self.inner.counters()
    }
}

impl Halting {
    /// Passes on what came while it stood still.
    async fn pass_on(self: Rc<Self>) {
        loop {
            let next = self.standstill.over.wait();
            let waiting = self.waiting.take();
            for (key, command) in waiting {
                let Outcome { result, payload } = self.inner.submit(command).await;
                self.completions.complete(key, Outcome { result, payload });
            }
            next.await;
        }
    }
}

/// Two hosts at shareable disks, which can stand still.
struct Scene {
    world: World,
    disks: Vec<Rc<SimDisk>>,
    hosts: [Host; 2],
    standstills: [Rc<Standstill>; 2],
}

fn scene(seed: u64, profile: impl Fn() -> DiskProfile) -> Scene {
    scene_of(seed, DISKS, profile)
}

fn scene_of(seed: u64, count: usize, profile: impl Fn() -> DiskProfile) -> Scene {
    let world = World::new(seed);
    world.set_arenas(ARENAS, ARENAS);
    world.set_steps_max(20_000_000);
    let disks: Vec<Rc<SimDisk>> =
        (0..count).map(|number| world.add_disk(&format!("disk{number}"), profile())).collect();
    let standstills = [Rc::<Standstill>::default(), Rc::default()];
    let halting = |disk: &Rc<SimDisk>, standstill: &Rc<Standstill>| {
        let halting = Rc::new(Halting {
            inner: disk.attach(&world),
            completions: Completions::new(),
            standstill: Rc::clone(standstill),
            waiting: RefCell::default(),
        });
        world.seams().spawner.spawn("what stood still", Box::pin(Rc::clone(&halting).pass_on()));
        halting as Rc<dyn BlockDevice>
    };
    let host = |number: u8, standstill: &Rc<Standstill>| Host {
        seams: world.seams(),
        arbiter: MemoryArbiter::new(HostId([number; 16])),
        devices: disks.iter().map(|disk| halting(disk, standstill)).collect(),
    };
    let hosts = [host(1, &standstills[0]), host(2, &standstills[1])];
    Scene { world, disks, hosts, standstills }
}

fn shared(seed: u64) -> Scene {
    scene(seed, || DiskProfile::new(Bytes::mib(64)).shareable())
}

/// Commits something, as whoever serves clients does all the time.
async fn commit(pool: &Rc<Pool>) -> bool {
    let mut change = pool.change(Purpose::Release).await;
    change.put(keys::space(dolmen_units::SpaceId(9)), vec![1]);
    change.commit().await.is_ok()
}

fn is_open_elsewhere(opened: &Result<Opened, OpenError>) -> bool {
    matches!(opened, Err(OpenError::OpenElsewhere { .. }))
}

#[test]
fn an_open_pool_is_not_opened_by_another_host() {
    // Scenario: a pool is open and idle on one host; the other sees all of its disks and tries to open it, also with a word of
    // confirmation. It is refused, has written nothing, and the first goes on.
    let scene = shared(1);
    let [first, second] = scene.hosts.clone();
    let body = async move {
        let pool = first.create().await;
        for mode in [OpenMode::Write, OpenMode::Confirmed] {
            sleep(first.seams.clock.as_ref(), Duration::from_secs(7)).await;
            let opened = second.open(mode).await;
            assert!(is_open_elsewhere(&opened), "opened on two hosts");
            let said = opened.err().unwrap().to_string();
            assert!(said.contains("tank") && said.contains(&HostId([1; 16]).to_string()), "{said}");
            assert_eq!(second.written(), 0, "an opening that was refused wrote something");
        }
        assert!(commit(&pool).await);
        pool.close().await.unwrap();
        let opened = second.open(OpenMode::Write).await.unwrap();
        assert_eq!(opened.pool.state(), PoolState::Writable);
        // Known to the host that has it: no wait.
        opened.pool.close().await.unwrap();
        let begun = second.seams.clock.now();
        second.open(OpenMode::Write).await.unwrap().pool.close().await.unwrap();
        assert!(second.seams.clock.now() < begun + Duration::from_secs(1), "the owner waited");
    };
    scene.world.run(body).unwrap();
}

#[test]
fn of_two_hosts_that_open_at_once_one_goes_on_at_most() {
    // Scenario: an exported pool; both hosts want it, the second at some moment after the first. At most one gets it, whichever;
    // who has got it keeps it; and when neither has, the next try brings it.
    let coarse = (0..).map(|step| STEP * step).take_while(|offset| *offset <= WATCH + HOLD + HOLD);
    // Labels take a fraction of a millisecond to be written: the two cross each other in there.
    let fine = (1..40).map(|step| CROSSING * step);
    let (mut first_has, mut second_has, mut nobody_has) = (0, 0, 0);
    for (seed, offset) in (10..).zip(fine.chain(coarse)) {
        let scene = shared(seed);
        let hosts = scene.hosts.clone();
        let body = async move {
            let pool = hosts[0].create().await;
            pool.export().await.unwrap();
            let begins = [Duration::ZERO, offset];
            let tries = hosts.iter().zip(begins).map(async |(host, begin)| {
                sleep(host.seams.clock.as_ref(), begin).await;
                host.open(OpenMode::Write).await
            });
            let opened: Vec<_> = join_all(tries).await;
            assert!(opened.iter().all(|one| one.is_ok() || is_open_elsewhere(one)), "{opened:?}");
            let open: Vec<(usize, Opened)> =
                opened.into_iter().enumerate().filter_map(|(host, one)| Some((host, one.ok()?))).collect();
            assert!(open.len() <= 1, "two hosts have it open, the second {offset:?} behind the first");
            let Some((host, one)) = open.first() else {
                let clock = hosts[0].seams.clock.as_ref();
                sleep(clock, WATCH).await;
                let opened = hosts[1].open(OpenMode::Write).await.unwrap();
                assert!(commit(&opened.pool).await);
                return None;
            };
            sleep(hosts[0].seams.clock.as_ref(), WATCH + HOLD).await;
            assert!(commit(&one.pool).await, "{:?}", one.pool.state());
            Some(*host)
        };
        match scene.world.run(body).unwrap() {
            Some(0) => first_has += 1,
            Some(_) => second_has += 1,
            None => nobody_has += 1,
        }
    }
    println!("first {first_has}, second {second_has}, nobody {nobody_has}");
    assert!(first_has > 0, "no offset at which anybody gets it");
}

#[test]
fn of_two_hosts_that_stand_still_while_they_open_one_goes_on_at_most() {
    // Scenario: an exported pool; both hosts want it at once. Each stands still, for less than the time that an opening holds, at
    // some write of its opening, so that it acts on labels that it read before the other wrote.
    let (mut opened_by_one, mut opened_by_none) = (0, 0);
    let writes = (0..WRITES_OF_AN_OPENING)
        .flat_map(|first| (0..WRITES_OF_AN_OPENING).map(move |second| [first, second]));
    for (seed, writes) in (3000..).zip(writes) {
        let scene = shared(seed);
        let hosts = scene.hosts.clone();
        for standstill in &scene.standstills {
            let (standstill, seams) = (Rc::clone(standstill), scene.world.seams());
            scene.world.seams().spawner.spawn(
                "ending a standstill",
                Box::pin(async move {
                    standstill.begun.wait().await;
                    sleep(seams.clock.as_ref(), STEP * 2).await;
                    standstill.end();
                }),
            );
        }
        let standstills = scene.standstills.clone();
        let body = async move {
            hosts[0].create().await.export().await.unwrap();
            let tries = hosts.iter().zip(&standstills).zip([Duration::ZERO, STEP]).zip(writes);
            let opened = join_all(tries.map(async |(((host, standstill), begin), write)| {
                sleep(host.seams.clock.as_ref(), begin).await;
                standstill.at_write.set(Some(write));
                host.open(OpenMode::Write).await
            }))
            .await;
            assert!(opened.iter().all(|one| one.is_ok() || is_open_elsewhere(one)), "{opened:?}");
            let open: Vec<Opened> = opened.into_iter().filter_map(Result::ok).collect();
            assert!(open.len() <= 1, "two hosts have it open, which stood still at their writes {writes:?}");
            let Some(one) = open.first() else { return false };
            sleep(hosts[0].seams.clock.as_ref(), WATCH + HOLD).await;
            assert!(commit(&one.pool).await, "{:?}", one.pool.state());
            true
        };
        if scene.world.run(body).unwrap() { opened_by_one += 1 } else { opened_by_none += 1 }
    }
    println!("opened by one {opened_by_one}, by none {opened_by_none}");
    assert!(opened_by_one > 0, "no moment at which anybody gets it");
}

#[test]
fn a_disk_that_takes_no_label_is_not_taken_for_another_host() {
    // Scenario: an exported pool is moved to another host. One disk can be read and not written, with a vote or without. The
    // opening writes and holds; the label of that disk differs, although no other host writes. The pool opens without waiting
    // for a repair, and serves.
    for (seed, failing) in (0..16).flat_map(|seed| [(2000 + seed, 0), (2000 + seed, 6)]) {
        let scene = scene_of(seed, 7, || DiskProfile::new(Bytes::mib(64)).shareable());
        let [first, second] = scene.hosts.clone();
        let disk = Rc::clone(&scene.disks[failing]);
        let body = async move {
            first.create().await.export().await.unwrap();
            disk.set_rates(FaultRates::NONE.with(FaultKind::WriteError, Rate::one_in(1)));
            let opened = second.open(OpenMode::Write).await;
            let opened = opened.unwrap_or_else(|error| panic!("seed {seed}, {failing} fails: {error}"));
            assert!(commit(&opened.pool).await, "{:?}", opened.pool.state());
        };
        scene.world.run(body).unwrap();
    }
}

#[test]
fn an_owner_that_was_suspended_stops() {
    // Scenario: a host stands still, with its disks' commands under way, for as long as another takes the pool over. When it goes
    // on its late heartbeat lands, it finds the other's label, and stops; the other keeps the pool.
    for late in 0..8 {
        let scene = shared(100 + late);
        let standstill = Rc::clone(&scene.standstills[0]);
        let [first, second] = scene.hosts.clone();
        let body = async move {
            let clock = first.seams.clock.as_ref();
            let pool = first.create().await;
            sleep(clock, Duration::from_secs(5) + STEP * u32::try_from(late).unwrap()).await;
            standstill.begin();
            let opened = loop {
                match second.open(OpenMode::Write).await {
                    Ok(opened) => break opened,
                    Err(error) => assert!(matches!(error, OpenError::OpenElsewhere { .. }), "{error}"),
                }
            };
            sleep(clock, STEP * u32::try_from(late).unwrap()).await;
            standstill.end();
            sleep(clock, WATCH).await;
            assert!(matches!(pool.state(), PoolState::Latched(_)), "{:?}", pool.state());
            assert!(!commit(&pool).await, "acknowledged on a pool that another host has");
            assert!(commit(&opened.pool).await, "{:?}", opened.pool.state());
        };
        scene.world.run(body).unwrap();
    }
}

#[test]
fn disks_that_no_other_host_reaches_are_left_alone() {
    // Scenario: an idle pool on disks of this machine, and one on disks that others may see. The first writes nothing for an
    // hour; the second counts on.
    let idle_for = Duration::from_secs(3600);
    let writes_of = |scene: Scene| {
        let [first, _] = scene.hosts.clone();
        let body = async move {
            let pool = first.create().await;
            sleep(first.seams.clock.as_ref(), WATCH).await;
            let before = first.written();
            sleep(first.seams.clock.as_ref(), idle_for).await;
            assert_eq!(pool.state(), PoolState::Writable);
            let after = first.written();
            pool.close().await.unwrap();
            after - before
        };
        scene.world.run(body).unwrap()
    };
    assert_eq!(writes_of(scene(1, || DiskProfile::new(Bytes::mib(64)))), 0);
    let beats = idle_for.as_secs() / 2;
    let written = writes_of(shared(1));
    let expected = beats * 2 * DISKS as u64;
    assert!((expected * 9 / 10..=expected).contains(&written), "{written} of {expected} writes");
}

#[test]
fn a_pool_is_whole_wherever_its_heartbeat_is_cut() {
    // Scenario: power fails at any moment of an idle pool with a heartbeat. Its host opens it again, at once; nothing is lost.
    for seed in 0..60 {
        let scene = shared(1000 + seed);
        let [first, _] = scene.hosts.clone();
        let until = Instant::default() + Duration::from_secs(6) + Duration::from_millis(seed * 67);
        let host = first.clone();
        let made = async move {
            let pool = host.create().await;
            assert!(commit(&pool).await);
            std::future::pending::<()>().await;
        };
        scene.world.spawn("owner", Box::pin(made));
        scene.world.run_until(|world| world.now() >= until).unwrap();
        scene.world.power_cut();
        let devices = scene.disks.iter().map(|disk| disk.attach(&scene.world)).collect();
        let host = Host { seams: scene.world.seams(), arbiter: first.arbiter.snapshot(), devices };
        let body = async move {
            let opened = host.open(OpenMode::Write).await.unwrap();
            let kept = opened.pool.map().get(&keys::space(dolmen_units::SpaceId(9))).await.unwrap();
            assert_eq!(kept, Some(vec![1]));
        };
        scene.world.run(body).unwrap();
    }
}

/// Writes the label of a disk as another host would, and returns its number.
async fn write_as_another(seams: &Seams, device: &dyn BlockDevice) -> u64 {
    let Contents::Member { mut label, .. } = look(seams, device).await.unwrap() else { panic!("no label") };
    label.sequence += 1;
    label.heartbeat += 1000;
    write_label(seams, device, Epoch(u64::MAX), &label).await.unwrap();
    label.heartbeat
}

async fn heartbeat_of(seams: &Seams, device: &dyn BlockDevice) -> u64 {
    let Contents::Member { label, .. } = look(seams, device).await.unwrap() else { panic!("no label") };
    label.heartbeat
}

#[test]
fn a_stamp_leaves_the_label_of_another_host() {
    // Scenario: another host writes the label of a voter between two heartbeats, and the owner closes the pool at once, which
    // stamps. The owner stops, and the label of the other host stays as it is.
    let scene = shared(300);
    let [first, second] = scene.hosts.clone();
    let body = async move {
        let (seams, device) = (&second.seams, second.devices[0].as_ref());
        let pool = first.create().await;
        assert!(commit(&pool).await);
        sleep(seams.clock.as_ref(), Duration::from_millis(700)).await;
        let written = write_as_another(seams, device).await;
        let _ = pool.close().await;
        let PoolState::Latched(cause) = pool.state() else { panic!("{:?}", pool.state()) };
        assert!(cause.contains("has opened it while this host stood still"), "no host was seen: {cause}");
        assert_eq!(heartbeat_of(seams, device).await, written, "a stamp went over the label of another host");
    };
    scene.world.run(body).unwrap();
}

/// A device that passes writes on after a while.
struct Late {
    inner: Rc<dyn BlockDevice>,
    completions: Rc<Completions>,
    seams: Seams,
    by: Duration,
}

impl BlockDevice for Late {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn submit(&self, command: Command) -> Submission {
        if !matches!(command.action, Action::Write { .. }) {
            return self.inner.submit(command);
        }
        let (key, submission) = self.completions.begin();
        let (inner, completions) = (Rc::clone(&self.inner), Rc::clone(&self.completions));
        let (clock, by) = (Rc::clone(&self.seams.clock), self.by);
        let pass_on = async move {
            sleep(clock.as_ref(), by).await;
            let Outcome { result, payload } = inner.submit(command).await;
            completions.complete(key, Outcome { result, payload });
        };
        self.seams.spawner.spawn("late write", Box::pin(pass_on));
        submission
    }

    fn fence(&self, epoch: Epoch) {
        self.inner.fence(epoch);
    }

    fn counters(&self) -> IoCounters {
        self.inner.counters()
    }
}

#[test]
fn an_opening_that_was_slow_after_its_watch_looks_again() {
    // Scenario: a pool is opened on another host. After the watch, a disk without a vote takes long for its label, and meanwhile
    // the first host writes the label of a voter. The opening is refused, and that label stays as it is. Without another host,
    // it succeeds.
    for is_taken in [true, false] {
        let scene = scene_of(301, 7, || DiskProfile::new(Bytes::mib(64)).shareable());
        let [first, mut second] = scene.hosts.clone();
        let inner = Rc::clone(&second.devices[6]);
        let (seams, by) = (second.seams.clone(), Duration::from_secs(60));
        second.devices[6] = Rc::new(Late { inner, completions: Completions::new(), seams, by });
        let devices = first.devices.clone();
        let body = async move {
            first.create().await.export().await.unwrap();
            let (seams, clock) = (first.seams.clone(), Rc::clone(&first.seams.clock));
            let written = Rc::new(Cell::new(None));
            if is_taken {
                let (written, clock) = (Rc::clone(&written), Rc::clone(&clock));
                let voter = Rc::clone(&devices[0]);
                let taking = async move {
                    sleep(clock.as_ref(), WATCH + Duration::from_secs(5)).await;
                    written.set(Some(write_as_another(&seams, voter.as_ref()).await));
                };
                first.seams.spawner.spawn("another host", Box::pin(taking));
            }
            let opened = second.open(OpenMode::Write).await;
            assert_eq!(
                is_open_elsewhere(&opened),
                is_taken,
                "opened over the label of another host: {opened:?}"
            );
            assert_eq!(opened.is_ok(), !is_taken, "{opened:?}");
            if let Some(written) = written.get() {
                let found = heartbeat_of(&first.seams, devices[0].as_ref()).await;
                assert_eq!(found, written, "an opening went over the label of another host");
            }
        };
        scene.world.run(body).unwrap();
    }
}

#[test]
fn a_pool_that_is_open_elsewhere_is_read_with_labels_of_one_stamp() {
    // Scenario: the label of a disk without a vote is read, the owner gives that disk a later one and names it, and then the
    // labels of the others are read. An opening for reading reads them once more, and no sound disk is called old.
    let scene = scene_of(302, 7, || DiskProfile::new(Bytes::mib(64)).shareable());
    let [first, second] = scene.hosts.clone();
    let body = async move {
        let pool = first.create().await;
        let found =
            async || discover(&second.seams, &second.devices).await.pools.into_values().next().unwrap();
        let before = found().await;
        // More than the time between two stamps.
        sleep(first.seams.clock.as_ref(), Duration::from_secs(700)).await;
        assert!(commit(&pool).await);
        sleep(first.seams.clock.as_ref(), Duration::from_secs(5)).await;
        let mut mixed = found().await;
        mixed[6] = before[6].clone();
        assert!(mixed[6].label.sequence < found().await[6].label.sequence, "it got no later label");
        let arbiter = Rc::clone(&second.arbiter) as Rc<dyn Arbiter>;
        let options = OpenOptions { mode: OpenMode::Read };
        let opened = open(&second.seams, arbiter, mixed, &options).await.unwrap();
        let old: Vec<String> = opened
            .pool
            .disks()
            .iter()
            .filter(|disk| disk.absence().is_left_out_as_old())
            .map(|disk| disk.name())
            .collect();
        assert!(old.is_empty(), "sound disks are called old: {old:?}");
    };
    scene.world.run(body).unwrap();
}

#[test]
fn the_name_of_a_pool_is_that_of_a_voter_of_its_newest_epoch() {
    // Scenario: labels of one pool with different names: an absent disk has the name of before, and may come first.
    let scene = scene_of(303, 6, || DiskProfile::new(Bytes::mib(64)));
    let [first, _] = scene.hosts.clone();
    let body = async move {
        let pool = first.create().await;
        let found = async || discover(&first.seams, &first.devices).await.pools.into_values().next().unwrap();
        let mut before = found().await;
        before[0].label.pool_name = "before".parse().unwrap();
        pool.exclude(dolmen_units::DiskSlot(0), dolmen_pool::ExcludeReason::Asked).await.unwrap();
        pool.close().await.unwrap();
        let mut candidates = found().await;
        candidates[0] = before[0].clone();
        // Members without a vote say less than voters.
        candidates[5].label.pool_name = "other".parse().unwrap();
        for _ in 0..candidates.len() {
            assert_eq!(name_of(&candidates).map(ToString::to_string), Some("tank".to_owned()));
            candidates.rotate_left(1);
        }
    };
    scene.world.run(body).unwrap();
}
