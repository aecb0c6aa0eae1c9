//! What spaces get that have limits, and what others leave to them: exact, in virtual time (docs/design/0017).
//! `cargo test -p dolmen-space --test spaces -- --nocapture limits::` prints what each got.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{Durability, Instant, sleep};
use dolmen_buffer::ArenaConfig;
use dolmen_sim::Random;
use dolmen_space::{Limits, Progress, Resiliency, Space, SpaceError, Spaces};
use dolmen_units::Bytes;

use crate::harness::slow_disks::{Both, Modelled};
use crate::harness::{Bench, Lab, Outcome, pattern};

const CAPACITY: Bytes = Bytes::gib(2);
const SIZE: u64 = 64 << 20;
const LARGE: u64 = 1 << 20;
const ARENA: ArenaConfig = ArenaConfig { small_count: 8192, medium_count: 192, large_count: 48 };

/// What a client asks for, and how much of it at a time.
#[derive(Clone, Copy)]
struct Work {
    length: u64,
    queue: u64,
    /// Of ten requests, so many are writes.
    writes: u64,
}

const READS: Work = Work { length: 4096, queue: 1, writes: 0 };

/// When each request of a space ended.
type Ends = RefCell<Vec<Instant>>;

async fn filled(lab: &Lab, spaces: &Spaces, name: &str) -> Result<Space, Box<dyn Error>> {
    let space = lab.space(spaces, name, Bytes(SIZE), Resiliency::Simple).await?;
    let mut buffer = lab.seams.data.take(usize::try_from(LARGE)?).await;
    pattern(0, 1, &mut buffer);
    let data = buffer.freeze();
    for nth in 0..SIZE / LARGE {
        space.write(nth * LARGE, &data, Durability::Cached).await?;
    }
    drop(data);
    spaces.flush().await?;
    spaces.pool().checkpoint().await?;
    Ok(space)
}

/// Requests at random places, each as soon as one before it has ended, until it is over.
async fn client(lab: &Lab, space: &Space, work: Work, is_over: &Cell<bool>, ends: &Ends) -> Outcome {
    let one = |seed| async move {
        let mut random = Random::new(seed);
        while !is_over.get() {
            let at = random.below(SIZE / work.length) * work.length;
            if random.below(10) < work.writes {
                let mut buffer = lab.seams.data.take(usize::try_from(work.length).unwrap()).await;
                pattern(at, 2, &mut buffer);
                space.write(at, &buffer.freeze(), Durability::Cached).await?;
            } else {
                space.read(at, usize::try_from(work.length).unwrap()).await?;
            }
            ends.borrow_mut().push(lab.seams.clock.now());
        }
        Ok(())
    };
    let all = join_all((0..work.queue).map(one)).await;
    Ok(all.into_iter().collect::<Result<(), SpaceError>>()?)
}

/// Runs a body on one disk, and closes what it leaves behind.
fn on_a_disk<F>(disk: Modelled, body: impl FnOnce(Lab, Rc<Spaces>) -> F + 'static)
where
    F: Future<Output = Outcome>,
{
    let disk = RefCell::new(Some(disk));
    let bench = Bench::with_profile(1, 1, || disk.take().unwrap().profile(CAPACITY));
    bench.world.set_arenas(ARENA, ARENA);
    let run = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        body(lab.clone(), Rc::clone(&spaces)).await?;
        lab.check_and_close(spaces).await
    });
    run.unwrap();
}

/// One space at work for so many seconds; when its requests ended, counted from the beginning.
async fn alone(lab: &Lab, space: &Space, work: Work, seconds: u64) -> Result<Vec<Duration>, Box<dyn Error>> {
    let (is_over, ends) = (Cell::new(false), Ends::default());
    let clock = lab.seams.clock.as_ref();
    let began = clock.now();
    let over = async {
        sleep(clock, Duration::from_secs(seconds)).await;
        is_over.set(true);
        Ok(())
    };
    let tasks: [Both<'_>; 2] = [Box::pin(over), Box::pin(client(lab, space, work, &is_over, &ends))];
    join_all(tasks).await.into_iter().collect::<Outcome>()?;
    Ok(ends.take().into_iter().map(|end| end.since(began)).collect())
}

/// Of every stretch of time since the limit was set, no more than the rate gives, a tenth of a second's worth, and one request;
/// and of the whole time no less than the rate gives, since the disk gives more.
fn expect_rate(ends: &[Duration], cost: u64, rate: u64, seconds: u64, title: &str) {
    let sum = |until: Duration| ends.iter().filter(|end| **end <= until).count() as u64 * cost;
    for tenths in 1..=seconds * 10 {
        let got = sum(Duration::from_millis(tenths * 100));
        let most = rate * tenths / 10 + rate / 10 + cost;
        assert!(got <= most, "{title}: {got} in {tenths} tenths of a second, at most {most}");
    }
    let got = sum(Duration::from_secs(seconds));
    println!("{title:40} {:8} a second of {rate}", got / seconds);
    assert!(got * 100 >= rate * seconds * 99, "{title}: {got} in {seconds} seconds");
}

/// Scenario: a fast disk, a space that may have so many requests or bytes in a second, clients with short and long queues that
/// read, write and do both. Each gets what it may have, and no more in any tenth of a second.
#[test]
fn a_space_with_a_maximum_gets_that_and_no_more_whatever_its_queue() {
    on_a_disk(Modelled::solid(), async |lab, spaces| {
        let space = filled(&lab, &spaces, "data").await?;
        let iops = |max| Limits { iops_max: Some(max), ..Limits::default() };
        let rate = |max| Limits { rate_max: Some(max), ..Limits::default() };
        for (queue, writes) in [(1, 0), (4, 10), (32, 5), (64, 0)] {
            spaces.changes().set_limits(&space, iops(1000)).await?;
            let work = Work { queue, writes, ..READS };
            let ends = alone(&lab, &space, work, 2).await?;
            expect_rate(&ends, 1, 1000, 2, &format!("1000 I/Os, queue {queue}, writes {writes}/10"));
            spaces.changes().set_limits(&space, Limits::default()).await?;
        }
        for (queue, length) in [(2, 4096), (16, 64 << 10), (8, 1 << 20)] {
            let limit = Bytes::mib(20);
            spaces.changes().set_limits(&space, rate(limit)).await?;
            let ends = alone(&lab, &space, Work { queue, length, writes: 3 }, 2).await?;
            expect_rate(&ends, length, limit.0, 2, &format!("20 MiB, queue {queue}, {length} bytes each"));
            spaces.changes().set_limits(&space, Limits::default()).await?;
        }
        let free = alone(&lab, &space, Work { queue: 32, ..READS }, 1).await?;
        assert!(free.len() > 20_000, "without a limit the disk gives {} a second", free.len());
        Ok(())
    });
}

/// Scenario: a hundred requests wait for their turn at one a second. A flush does not wait with them; another limit counts for
/// all of them at once, and none lets them go.
#[test]
fn limits_are_changed_while_requests_wait_and_no_flush_waits_with_them() {
    on_a_disk(Modelled::solid(), async |lab, spaces| {
        let space = filled(&lab, &spaces, "data").await?;
        let clock = lab.seams.clock.as_ref();
        spaces.changes().set_limits(&space, Limits { iops_max: Some(1), ..Limits::default() }).await?;
        let began = clock.now();
        let ended = Cell::new(0);
        let waiting = (0..100).map(async |nth| {
            space.read(nth * 4096, 4096).await?;
            ended.set(ended.get() + 1);
            Ok::<(), SpaceError>(())
        });
        let after = async |millis: u64| {
            let at = began + Duration::from_millis(millis);
            sleep(clock, at.since(clock.now())).await;
        };
        let extra = async {
            after(2500).await;
            assert_eq!(ended.get(), 3, "one at once, and one a second");
            let seen = space.figures();
            assert_eq!((seen.under_way, seen.reads.latency.count()), (97, 3));
            space.flush().await?;
            assert!(clock.now().since(began) < Duration::from_millis(2600), "a flush does not wait");
            spaces.changes().set_limits(&space, Limits { iops_max: Some(10), ..Limits::default() }).await?;
            let set = clock.now().since(began);
            let before = ended.get();
            after(u64::try_from(set.as_millis())? + 1000).await;
            let more = ended.get() - before;
            assert!((9..=11).contains(&more), "{more} in the second behind that");
            spaces.changes().set_limits(&space, Limits::default()).await?;
            let freed = clock.now();
            after(u64::try_from(freed.since(began).as_millis())? + 150).await;
            assert_eq!(ended.get(), 100, "nobody waits any more");
            Ok(())
        };
        let waiting = async {
            let all = join_all(waiting).await.into_iter().collect::<Result<(), SpaceError>>();
            Ok(all?)
        };
        let tasks: [Both<'_>; 2] = [Box::pin(extra), Box::pin(waiting)];
        join_all(tasks).await.into_iter().collect::<Outcome>()
    });
}

/// What two spaces got in a second, one of which may have a minimum, while the other hammers and jobs may be at work.
struct Shared {
    guarded: u64,
    other: u64,
}

async fn share(
    lab: &Lab,
    spaces: &Rc<Spaces>,
    (guarded, other): (&Space, &Space),
    works: (Work, Work),
    with_job: bool,
) -> Result<Shared, Box<dyn Error>> {
    const SECONDS: u64 = 20;
    let (is_over, ends, other_ends) = (Cell::new(false), Ends::default(), Ends::default());
    let clock = lab.seams.clock.as_ref();
    let began = clock.now();
    let over = async {
        sleep(clock, Duration::from_secs(SECONDS)).await;
        is_over.set(true);
        Ok(())
    };
    let job = async {
        while with_job && !is_over.get() {
            spaces.scrubs().verify(&Progress::default()).await?;
        }
        Ok(())
    };
    let tasks: [Both<'_>; 4] = [
        Box::pin(over),
        Box::pin(job),
        Box::pin(client(lab, guarded, works.0, &is_over, &ends)),
        Box::pin(client(lab, other, works.1, &is_over, &other_ends)),
    ];
    join_all(tasks).await.into_iter().collect::<Outcome>()?;
    let in_time = |ends: &Ends| {
        let of = |end: &&Instant| end.since(began) <= Duration::from_secs(SECONDS);
        ends.borrow().iter().filter(of).count() as u64 / SECONDS
    };
    Ok(Shared { guarded: in_time(&ends), other: in_time(&other_ends) })
}

/// Scenario: a disk with heads gives about 125 requests a second. One space reads with a short queue, another hammers with a long
/// one. Without a minimum the first gets what its queue is worth; with one it gets that, and the other the rest. Twenty seconds
/// each, those in which it is found out among them.
#[test]
fn a_space_gets_its_minimum_while_another_one_hammers() {
    on_a_disk(Modelled::spinning(), async |lab, spaces| {
        let guarded = filled(&lab, &spaces, "guarded").await?;
        let other = filled(&lab, &spaces, "other").await?;
        let both = (&guarded, &other);
        let works = (Work { queue: 4, ..READS }, Work { queue: 32, ..READS });
        let report = |title: &str, seen: &Shared| {
            println!("{title:40} {:4} a second beside {:4}", seen.guarded, seen.other);
        };
        let without = share(&lab, &spaces, both, works, false).await?;
        report("no minimum", &without);
        for min in [60, 30] {
            spaces
                .changes()
                .set_limits(&guarded, Limits { iops_min: Some(min), ..Limits::default() })
                .await?;
            let with = share(&lab, &spaces, both, works, false).await?;
            report(&format!("a minimum of {min}"), &with);
            assert!(with.guarded * 10 >= min * 9, "{} of {min}", with.guarded);
            assert!(without.guarded * 10 < min * 9, "{} without a minimum", without.guarded);
            let all = without.guarded + without.other;
            assert!(with.other * 2 >= all - min, "{} of {all} are left to the other", with.other);
        }
        // A minimum in bytes, of longer reads.
        let limits = Limits { rate_min: Some(Bytes::mib(4)), ..Limits::default() };
        spaces.changes().set_limits(&guarded, limits).await?;
        let works = (Work { queue: 2, length: 128 << 10, writes: 0 }, Work { queue: 32, ..READS });
        let with = share(&lab, &spaces, both, works, false).await?;
        report("a minimum of 4 MiB, 32 reads", &with);
        assert!(with.guarded * 10 >= 32 * 9, "{}", with.guarded);
        // One that its own maximum keeps from its minimum takes nothing from anybody for that.
        let limits = Limits { iops_max: Some(10), rate_min: Some(Bytes::mib(4)), ..Limits::default() };
        spaces.changes().set_limits(&guarded, limits).await?;
        let queued = (Work { queue: 8, ..works.0 }, works.1);
        let held = share(&lab, &spaces, both, queued, false).await?;
        report("a maximum of 10 below a minimum", &held);
        let all = without.guarded + without.other;
        assert!(
            held.guarded >= 9 && held.other * 10 >= (all - 10) * 9,
            "{} and {}",
            held.guarded,
            held.other
        );
        spaces.changes().set_limits(&guarded, Limits { iops_min: Some(60), ..Limits::default() }).await?;
        // Whoever has a minimum and wants nothing takes nothing from anybody.
        let idle = share(&lab, &spaces, both, (Work { queue: 0, ..READS }, works.1), false).await?;
        report("a minimum, and nothing wanted", &idle);
        assert!(idle.other * 100 >= (without.guarded + without.other) * 95, "{}", idle.other);
        spaces.changes().set_limits(&guarded, Limits::default()).await?;
        Ok(())
    });
}

/// Scenario: a verification that takes all that it can get, and a space with a minimum; nobody else.
#[test]
fn jobs_leave_a_space_its_minimum() {
    on_a_disk(Modelled::spinning(), async |lab, spaces| {
        let guarded = filled(&lab, &spaces, "guarded").await?;
        let other = filled(&lab, &spaces, "other").await?;
        let both = (&guarded, &other);
        let works = (Work { queue: 1, ..READS }, Work { queue: 0, ..READS });
        let without = share(&lab, &spaces, both, works, true).await?;
        spaces.changes().set_limits(&guarded, Limits { iops_min: Some(80), ..Limits::default() }).await?;
        let with = share(&lab, &spaces, both, works, true).await?;
        println!("beside a job {}, and {} with a minimum of 80", without.guarded, with.guarded);
        assert!(with.guarded * 10 >= 80 * 9, "{}", with.guarded);
        assert!(without.guarded * 10 < 80 * 9, "{}", without.guarded);
        Ok(())
    });
}

/// Scenario: a minimum that the disk cannot give. The other space goes on all the same.
#[test]
fn a_minimum_that_no_disk_can_give_leaves_something_to_others() {
    on_a_disk(Modelled::spinning(), async |lab, spaces| {
        let guarded = filled(&lab, &spaces, "guarded").await?;
        let other = filled(&lab, &spaces, "other").await?;
        spaces
            .changes()
            .set_limits(&guarded, Limits { iops_min: Some(100_000), ..Limits::default() })
            .await?;
        let works = (Work { queue: 4, ..READS }, Work { queue: 32, ..READS });
        let seen = share(&lab, &spaces, (&guarded, &other), works, false).await?;
        println!("of 100000 it gets {}, the other {}", seen.guarded, seen.other);
        assert!(seen.guarded >= 60 && seen.other >= 1, "{} and {}", seen.guarded, seen.other);
        Ok(())
    });
}

/// Scenario: limits are set, and the pool is closed and opened twice; a name is changed in between. Then they are taken away.
#[test]
fn limits_are_kept() {
    let bench = Bench::with_profile(1, 2, || Modelled::solid().profile(CAPACITY));
    bench.world.set_arenas(ARENA, ARENA);
    let limits = Limits {
        iops_max: Some(500),
        iops_min: Some(20),
        rate_max: Some(Bytes::mib(8)),
        rate_min: Some(Bytes::kib(3)),
    };
    let first = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = lab.space(&spaces, "data", Bytes(SIZE), Resiliency::Mirror { copies: 2 }).await?;
        let crossed = Limits { iops_min: Some(501), ..limits };
        let refused = spaces.changes().set_limits(&space, crossed).await.unwrap_err();
        assert!(matches!(refused, SpaceError::Limit { .. }), "{refused}");
        assert_eq!(space.limits(), Limits::default());
        lab.write(&space, 0, 4096, 1).await?;
        spaces.changes().set_limits(&space, limits).await?;
        assert_eq!((space.limits(), space.spec().limits), (limits, limits));
        spaces.changes().rename(&space, "other".parse()?).await?;
        drop(space);
        lab.check_and_close(spaces).await
    });
    first.unwrap();
    let second = bench.run(async move |lab| {
        let spaces = lab.open().await?;
        let space = spaces.find("other")?;
        assert_eq!((space.limits(), space.spec().limits), (limits, limits));
        let ends = alone(&lab, &space, READS, 1).await?;
        assert!(ends.len() <= 551, "{} in a second", ends.len());
        lab.expect(&space, 0, 4096, 1).await?;
        spaces.changes().set_limits(&space, Limits::default()).await?;
        drop(space);
        lab.check_and_close(spaces).await
    });
    second.unwrap();
    let third = bench.run(async move |lab| {
        let spaces = lab.open().await?;
        assert_eq!(spaces.find("other")?.limits(), Limits::default());
        lab.check_and_close(spaces).await
    });
    third.unwrap();
}

/// Scenario: known requests to a mirror. What the space counts is exactly that, and so is what its disks were asked to read.
#[test]
fn figures_are_what_was_asked_for() {
    let bench = Bench::with_profile(1, 2, || Modelled::spinning().profile(CAPACITY));
    bench.world.set_arenas(ARENA, ARENA);
    let run = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = lab.space(&spaces, "data", Bytes(SIZE), Resiliency::Mirror { copies: 2 }).await?;
        let meters: Vec<_> = lab.devices.iter().map(|device| device.meter().unwrap()).collect();
        let seen = || meters.iter().map(|meter| meter.look()).collect::<Vec<_>>();
        let before = seen();
        for nth in 0..8 {
            lab.write(&space, nth * 65_536, 65_536, 1).await?;
        }
        space.flush().await?;
        let wrote = seen();
        for (before, after) in before.iter().zip(&wrote) {
            let bytes = after.writes.bytes - before.writes.bytes;
            assert!((8 * 65_536..9 * 65_536).contains(&bytes), "each copy, and the log: {bytes}");
            assert!(after.flushes.latency.count() > before.flushes.latency.count());
        }
        for nth in 0..16 {
            lab.expect(&space, nth * 4096, 4096, 1).await?;
        }
        let reads = |all: &[dolmen_block_io::Figures]| {
            let of = |one: &dolmen_block_io::Figures| (one.reads.bytes, one.reads.latency.count());
            all.iter().map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
        };
        let ((bytes, count), (bytes_before, count_before)) = (reads(&seen()), reads(&wrote));
        assert_eq!((bytes - bytes_before, count - count_before), (16 * 4096, 16), "one copy of each");
        space.discard(0, 131_072).await?;
        space.write_zeroes(131_072, 4096).await?;
        assert!(space.read(SIZE, 4096).await.is_err(), "what is refused is no request");
        let seen = space.figures();
        let of = |stripe: &dolmen_block_io::IoFigures| (stripe.latency.count(), stripe.bytes);
        assert_eq!((of(&seen.writes), of(&seen.reads)), ((8, 8 * 65_536), (16, 16 * 4096)));
        assert_eq!((of(&seen.discards), of(&seen.flushes)), ((2, 131_072 + 4096), (1, 0)));
        assert_eq!((seen.under_way, seen.errors), (0, 0));
        // One after another: what they took together is the time for which one was under way.
        let all = [&seen.reads, &seen.writes, &seen.discards, &seen.flushes];
        let total: u64 = all.iter().map(|stripe| stripe.latency.total_us()).sum();
        assert_eq!(seen.queue, seen.busy);
        assert!(u64::try_from(seen.busy.as_micros())?.abs_diff(total) <= 4, "{:?} and {total} µs", seen.busy);
        assert!(seen.reads.latency.percentile_us(1000).unwrap() <= 17_000, "{:?}", seen.reads);
        drop(space);
        lab.check_and_close(spaces).await
    });
    run.unwrap();
}
