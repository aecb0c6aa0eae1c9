//! Disks that become slow, or answer nothing any more, while clients read (docs/design/0021), in virtual time.
//! `cargo test -p dolmen-space --test spaces -- --nocapture slow::` prints the table.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss)]

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{Durability, Instant};
use dolmen_buffer::ArenaConfig;
use dolmen_sim::{CommandKind, DiskProfile, LatencyModel, Random, Request};
use dolmen_space::{Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::{Bench, Lab, Outcome, pattern, places_of, read};

const CAPACITY: Bytes = Bytes::mib(512);
const SIZE: Bytes = Bytes::mib(96);
const ROW: Bytes = Bytes::mib(4);
const LARGE: u64 = 1 << 20;
const READ_BYTES: u64 = 16 * 1024;
const SECOND: Duration = Duration::from_secs(1);
/// How long each part of a run is: before a disk turns, until reads have to be back, and behind that.
const PARTS: [Duration; 3] = [Duration::from_secs(3), Duration::from_secs(5), Duration::from_secs(3)];
/// What a disk does that turns slow, and one that answers nothing.
const SLOW: u32 = 50;
const HANGS: u32 = 1 << 30;
/// What is left of the reads when a disk is slow, at least.
const SHARE_MIN: f64 = 0.8;
const ARENA: ArenaConfig = ArenaConfig { small_count: 4096, medium_count: 128, large_count: 24 };

/// A disk that does one thing after another, each as slowly as is said at the moment.
#[derive(Clone)]
struct Turning {
    service: Duration,
    times: Rc<Cell<u32>>,
    free_at: Rc<Cell<Instant>>,
}

impl Turning {
    fn new(service: Duration) -> Self {
        Self { service, times: Rc::new(Cell::new(0)), free_at: Rc::default() }
    }

    fn profile(&self) -> DiskProfile {
        let mut profile = DiskProfile::new(CAPACITY);
        profile.geometry.thin = false;
        DiskProfile { latency: Rc::new(self.clone()), hang_limit: Some(30 * SECOND), ..profile }
    }
}

impl LatencyModel for Turning {
    fn latency(&self, request: Request, _: &mut Random) -> Duration {
        let service = match request.kind {
            CommandKind::Discard | CommandKind::WriteZeroes => Duration::ZERO,
            _ => self.service.saturating_mul(self.times.get()),
        };
        let end = request.now.max(self.free_at.get()) + service;
        if self.times.get() < HANGS {
            self.free_at.set(end);
        }
        end.since(request.now)
    }
}

/// A pool of which one disk turns.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    service: Duration,
    resiliency: Resiliency,
    disks: usize,
    clients: usize,
}

const HARD: Duration = Duration::from_millis(8);
const SOLID: Duration = Duration::from_millis(1);
const MIRROR: Case =
    Case { name: "hard", service: HARD, resiliency: Resiliency::Mirror { copies: 2 }, disks: 2, clients: 1 };
const PARITY: Case = Case { resiliency: Resiliency::Parity { parity: 1 }, disks: 5, ..MIRROR };
const CASES: [Case; 6] = [
    MIRROR,
    Case { name: "solid", service: SOLID, ..MIRROR },
    Case { disks: 8, clients: 16, ..MIRROR },
    PARITY,
    Case { name: "solid", service: SOLID, ..PARITY },
    Case { resiliency: Resiliency::Parity { parity: 2 }, disks: 8, ..PARITY },
];

const THREE: Case = Case { resiliency: Resiliency::Mirror { copies: 3 }, disks: 3, ..MIRROR };
const DUAL: Case = Case { resiliency: Resiliency::Parity { parity: 2 }, disks: 8, ..PARITY };

/// What was seen of reads that ended within a part.
#[derive(Clone, Copy, Default)]
struct Seen {
    reads: u64,
    longest: Duration,
    /// Blocks that were healed by then.
    healed: u64,
}

/// Clients that read one place after another until a moment comes.
async fn read_until(lab: &Lab, space: &Space, case: Case, until: Instant) -> Result<Seen, Box<dyn Error>> {
    let seen = RefCell::new(Seen::default());
    let clock = &lab.seams.clock;
    let client = async |number: usize| -> Outcome {
        let mut random = Random::new(until.0 ^ number as u64);
        while clock.now() < until {
            let (began, at) = (clock.now(), random.below(SIZE.0 / READ_BYTES) * READ_BYTES);
            let bytes = read(space, at, usize::try_from(READ_BYTES)?).await?;
            let mut expected = vec![0; bytes.len()];
            pattern(at, 1, &mut expected);
            assert!(bytes == expected, "what is read is what was written at {at}");
            let mut seen = seen.borrow_mut();
            seen.reads += 1;
            seen.longest = seen.longest.max(clock.now().since(began));
        }
        Ok(())
    };
    let all = join_all((0..case.clients).map(client)).await;
    all.into_iter().collect::<Outcome>()?;
    Ok(seen.into_inner())
}

impl Case {
    async fn filled(&self, lab: &Lab, spaces: &Spaces) -> Result<Space, Box<dyn Error>> {
        let mut spec = SpaceSpec::usual("data".parse()?, SIZE, self.resiliency);
        spec.row = Some(ROW);
        let space = spaces.create(spec).await?;
        for at in (0..SIZE.0 / LARGE).map(|nth| nth * LARGE) {
            let mut buffer = lab.seams.data.take(usize::try_from(LARGE)?).await;
            pattern(at, 1, &mut buffer);
            space.write(at, &buffer.freeze(), Durability::Cached).await?;
        }
        space.flush().await?;
        spaces.caches().destage().await?;
        Ok(space)
    }

    /// What is seen before a disk turns, in the seconds behind that, and in those that follow.
    async fn live(
        self,
        lab: Lab,
        disks: Vec<Turning>,
        change: impl Fn(),
    ) -> Result<[Seen; 3], Box<dyn Error>> {
        let spaces = lab.create().await?;
        let space = self.filled(&lab, &spaces).await?;
        disks.iter().for_each(|disk| disk.times.set(1));
        let mut parts = [Seen::default(); 3];
        for (number, (part, lasts)) in parts.iter_mut().zip(PARTS).enumerate() {
            if number == 1 {
                change();
            }
            *part = read_until(&lab, &space, self, lab.seams.clock.now() + lasts).await?;
            part.healed = spaces.counters().healed_blocks;
        }
        disks.iter().for_each(|disk| disk.times.set(0));
        drop(space);
        lab.check_and_close(spaces).await?;
        Ok(parts)
    }

    /// One disk turns slower.
    fn run(self, times: u32) -> [Seen; 3] {
        let parts = self.run_where(move |disks, _| disks.first().unwrap().times.set(times));
        self.print(&parts, &format!("one {times} times slower"));
        parts
    }

    /// What is seen where this happens to the disks.
    fn run_where(self, change: impl Fn(&[Turning], &Bench) + 'static) -> [Seen; 3] {
        let disks: Vec<Turning> = (0..self.disks).map(|_| Turning::new(self.service)).collect();
        let next = Cell::new(0);
        let bench = Bench::with_profile(1, self.disks, || {
            next.set(next.get() + 1);
            disks.get(next.get() - 1).unwrap().profile()
        });
        bench.world.set_arenas(ARENA, ARENA);
        let bench = Rc::new(bench);
        let found = Rc::new(Cell::default());
        let (into, inside) = (Rc::clone(&found), Rc::clone(&bench));
        let run = bench.run(async move |lab| {
            let flipped_bit = disks.clone();
            into.set(self.live(lab, disks, || change(&flipped_bit, &inside)).await?);
            Ok(())
        });
        run.unwrap();
        found.get()
    }

    fn print(&self, parts: &[Seen; 3], what: &str) {
        let of = |part: Seen| {
            format!("{:6} reads, longest {:6.1} ms", part.reads, part.longest.as_secs_f64() * 1e3)
        };
        let (kind, clients) = (self.resiliency.to_string(), self.clients);
        let [before, turning, after] = parts.map(of);
        println!(
            "{:6} {kind:17} {} disks, {clients:2} clients, {what}: {before} | {turning} | {after}",
            self.name, self.disks
        );
    }
}

/// A disk turns fifty times slower: five seconds later clients read four fifths of what they did, at least.
#[test]
fn reads_go_round_a_disk_that_has_become_slow() {
    for case in CASES {
        let [before, _, after] = case.run(SLOW);
        let share = after.reads as f64 / before.reads as f64;
        assert!(share >= SHARE_MIN, "{}, {}: {share:.2} of the reads", case.name, case.resiliency);
    }
}

/// A disk answers nothing any more: no read takes longer than a second.
#[test]
fn no_read_waits_for_a_disk_that_hangs() {
    for case in CASES {
        let parts = case.run(HANGS);
        for part in parts {
            let (name, kind) = (case.name, case.resiliency);
            assert!(part.longest <= SECOND, "{name}, {kind}: a read took {:?}", part.longest);
            assert!(part.reads > 0, "clients read on");
        }
    }
}

/// A disk answers nothing any more while another has damaged blocks: reads that heal these take no longer than a second either.
#[test]
fn no_read_that_heals_waits_for_a_disk_that_hangs() {
    for case in [THREE, Case { clients: 16, ..THREE }, DUAL, Case { name: "solid", service: SOLID, ..DUAL }] {
        let parts = case.run_where(|disks, bench| {
            disks.first().unwrap().times.set(HANGS);
            let corrupt = bench.disks.last().unwrap();
            let places = places_of(corrupt, 0..SIZE.0 / 4096, 1);
            assert!(places.len() > 1000, "{} places", places.len());
            places.into_iter().step_by(5).for_each(|at| corrupt.rot(at + 77, 3));
        });
        case.print(&parts, "one hangs, one has corrupt blocks");
        let [before, _, after] = parts;
        assert!(before.healed == 0 && after.healed > 50, "{} blocks are healed", after.healed);
        expect_within(case, parts, SECOND);
    }
}

fn expect_within(case: Case, parts: [Seen; 3], most: Duration) {
    for part in parts {
        let (name, kind) = (case.name, case.resiliency);
        assert!(part.longest <= most, "{name}, {kind}: a read took {:?}", part.longest);
    }
}

/// Two disks answer nothing any more, and others have what they have: each delays a read by a second at most, also where reads take
/// long on all of them.
#[test]
fn no_read_waits_for_two_disks_that_hang() {
    let slow = Duration::from_millis(40);
    for case in [DUAL, Case { name: "solid", service: SOLID, ..DUAL }, Case { service: slow, ..DUAL }, THREE]
    {
        for first in 0..3 {
            let hang = [first, (first + 1) % 3];
            let parts = case.run_where(move |disks, _| {
                hang.iter().for_each(|disk| disks.get(*disk).unwrap().times.set(HANGS));
            });
            case.print(&parts, &format!("{hang:?} hang"));
            expect_within(case, parts, 2 * SECOND);
        }
    }
}

/// With one parity, a disk is so slow that what it has is computed, and another one answers nothing: it is asked itself then.
#[test]
fn a_slow_disk_is_asked_where_what_it_has_is_to_be_computed_from_one_that_hangs() {
    for case in [PARITY, Case { name: "solid", service: SOLID, ..PARITY }] {
        let parts = case.run_where(|disks, _| {
            disks.first().unwrap().times.set(20);
            disks.get(1).unwrap().times.set(HANGS);
        });
        case.print(&parts, "one 20 times slower, one hangs");
        // What the one that hangs has cannot be had without the slow one.
        expect_within(case, parts, 2 * SECOND);
    }
}

/// Scenario: what a mirror holds lies in many pieces on all disks, and all of them but one answer nothing any more: reads that go
/// over the ends of pieces take no longer than a second for each of those.
#[test]
fn no_read_waits_for_disks_that_hang_where_the_other_copies_are_in_pieces() {
    read_in_pieces(MIRROR);
    read_in_pieces(THREE);
}

fn read_in_pieces(case: Case) {
    let count = case.disks;
    let disks: Vec<Turning> = (0..count).map(|_| Turning::new(SOLID)).collect();
    let next = Cell::new(0);
    let bench = Bench::with_profile(3, count, || {
        next.set(next.get() + 1);
        disks.get(next.get() - 1).unwrap().profile()
    });
    bench.world.set_arenas(ARENA, ARENA);
    let run = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let mut spec = SpaceSpec::usual("crowd".parse()?, Bytes::gib(1), case.resiliency);
        spec.row = Some(Bytes::mib(1));
        let crowd = spaces.create(spec).await?;
        let mut rows = 0;
        while lab.write(&crowd, rows * LARGE, 4096, 1).await.is_ok() {
            rows += 1;
        }
        for row in (0..rows).step_by(2) {
            crowd.discard(row * LARGE, LARGE).await?;
        }
        let space = case.filled(&lab, &spaces).await?;
        disks.iter().for_each(|disk| disk.times.set(1));
        disks.iter().skip(1).for_each(|disk| disk.times.set(HANGS));
        let clock = &lab.seams.clock;
        // Together: once one of them has waited for the disk, nobody else asks it.
        let read_one = async |nth: u64| -> Outcome {
            let (at, began) = (nth * 6 * LARGE + LARGE / 2, clock.now());
            lab.expect(&space, at, usize::try_from(LARGE)?, 1).await?;
            let took = clock.now().since(began);
            let most = SECOND * u32::try_from(disks.len() - 1)?;
            assert!(took <= most, "a read at {at} took {took:?}");
            Ok(())
        };
        join_all((0..12).map(read_one)).await.into_iter().collect::<Outcome>()?;
        disks.iter().for_each(|disk| disk.times.set(0));
        drop((space, crowd));
        lab.check_and_close(spaces).await
    });
    run.unwrap();
}
