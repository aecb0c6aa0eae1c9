//! Jobs of a pool of modelled disks: their order, and what stays of them.

use std::cell::RefCell;
use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{ImportMode, JobState};
use dolmen_block_io::{BlockDevice, Durability, Seams, sleep, within};
use dolmen_buffer::ArenaConfig;
use dolmen_pool::{CreateOptions, MemoryArbiter, create};
use dolmen_sim::{DiskProfile, World};
use dolmen_space::{JobShare, Priority, Resiliency, SpaceSpec, Spaces};
use dolmen_units::{Bytes, HostId, PoolId};

use crate::answer::Answer;
use crate::disks::{DrainJob, EmptyJob};
use crate::health::doing;
use crate::io_worker::IoWorker;
use crate::job::Standing;
use crate::job_table::{job_of, kind_of};
use crate::jobs::aim::Aim;
use crate::jobs::course::Course;
use crate::jobs::entry::{Entry, Outcome, Start, Times};
use crate::jobs::kind::Kind;
use crate::jobs::limits::ENDED_MAX;
use crate::jobs::record::{JobFiles, Recorded, RecordedJob};
use crate::jobs::registry::Jobs;
use crate::open_pool::OpenPool;
use crate::pools::{RebalanceJob, ResyncJob, even_out};
use crate::spaces::{ConvertJob, ScrubJob, WriteCacheJob};
use crate::test_job::{Count, TestJob};

const HIGH: JobShare = JobShare { priority: Priority::High, latency_limit: Some(Duration::from_secs(2)) };

fn entry(id: u64, pool: &OpenPool, kind: &'static dyn Kind) -> Rc<Entry> {
    let start = Start { kind, subject: String::new(), aim: Aim::Pool, again: None };
    Rc::new(Entry::new(id, (pool.id(), pool.name()), start))
}

fn done() -> Answer<Outcome> {
    Ok(Outcome::Done(String::new()))
}

/// A pool of two disks, with a space that has rows.
async fn open_pool(seams: &Seams, devices: &[Rc<dyn BlockDevice>]) -> Rc<OpenPool> {
    let name = "tank".parse().unwrap();
    let options = CreateOptions { name, overwrite: Vec::new(), fault_domains: Vec::new() };
    let arbiter = MemoryArbiter::new(HostId([7; 16]));
    let opened = create(seams, arbiter, devices, &options).await.unwrap();
    let spaces = Spaces::start(opened).await.unwrap();
    let usual = SpaceSpec::usual("x".parse().unwrap(), Bytes::mib(96), Resiliency::Mirror { copies: 2 });
    let space = spaces.create(SpaceSpec { row: Some(Bytes::mib(1)), ..usual }).await.unwrap();
    for row in 0..96 {
        let mut block = seams.data.take(4096).await;
        block.fill(7);
        space.write(row << 20, &block.freeze(), Durability::Cached).await.unwrap();
    }
    OpenPool::new(spaces, ImportMode::Write)
}

/// Scenario: a job of days ends when as many are remembered as can be, all of which have higher numbers. The one that ended
/// first is forgotten, and not the one that has just ended.
#[test]
fn what_ended_first_is_forgotten_and_not_what_began_first() {
    let jobs = Jobs::new(JobFiles::new(PathBuf::new(), Rc::new(IoWorker::start("test").unwrap()), kind_of));
    let last = ENDED_MAX as u64 + 1;
    for id in 1..=last {
        let start = Start { kind: &ScrubJob, subject: String::new(), aim: Aim::Pool, again: None };
        let entry = Rc::new(Entry::new(id, (PoolId([1; 16]), "tank".to_owned()), start));
        entry.end(JobState::Done, String::new());
        let ended_s = Some(1000 + if id == 1 { last } else { id });
        entry.times.set(Times { ended_s, ..Times::default() });
        jobs.entries.borrow_mut().insert(id, entry);
    }
    jobs.forget_oldest();
    let left: Vec<u64> = jobs.all().iter().map(|entry| entry.id).collect();
    assert_eq!((left.len(), &left[..2]), (ENDED_MAX, &[1, 3][..]));
}

fn in_a_world<F>(body: impl FnOnce(Seams, Vec<Rc<dyn BlockDevice>>) -> F)
where
    F: Future<Output = ()> + 'static,
{
    let world = World::new(1);
    world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
    let profile = || DiskProfile::new(Bytes::mib(256));
    let names = ["a", "b", "c", "d"];
    let devices = names.map(|name| world.add_disk(name, profile()).attach(&world)).into();
    assert!(world.run(body(world.seams(), devices)).is_ok());
}

/// Begins a job that verifies everything, and notes its number when that is done.
fn verifies(seams: &Seams, pool: &Rc<OpenPool>, entry: &Rc<Entry>, order: &Rc<RefCell<Vec<u64>>>) {
    let (entry, pool, order) = (Rc::clone(entry), Rc::clone(pool), Rc::clone(order));
    let clock = Rc::clone(&seams.clock);
    let task = async move {
        let spaces = Rc::clone(&pool.spaces);
        let work = |course: Rc<Course>| async move {
            spaces.scrubs().verify(&course.progress).await.unwrap();
            done()
        };
        let outcome = entry.work(&pool.job_slot, clock.as_ref(), work).await;
        order.borrow_mut().push(entry.id);
        entry.conclude(outcome, clock.now());
    };
    seams.spawner.spawn("job", Box::pin(task));
}

/// Scenario: a scrub is at work, a rebalance and another scrub wait, and then a resync comes. It is done before all of them,
/// and each of them goes on behind it.
#[test]
fn what_can_wait_makes_way_for_what_restores_redundancy() {
    in_a_world(|seams, devices| async move {
        let pool = open_pool(&seams, &devices[..2]).await;
        let order = Rc::new(RefCell::new(Vec::new()));
        let kinds: [&'static dyn Kind; 3] = [&ScrubJob, &RebalanceJob, &ScrubJob];
        let entries: Vec<Rc<Entry>> = (1..).zip(kinds).map(|(id, kind)| entry(id, &pool, kind)).collect();
        for entry in &entries {
            verifies(&seams, &pool, entry, &order);
        }
        // The first of them is in the midst of it.
        let begun = || entries.iter().any(|entry| entry.course.progress.done.get() > 0).then_some(());
        while begun().is_none() {
            sleep(seams.clock.as_ref(), Duration::from_micros(100)).await;
        }
        assert!(order.borrow().is_empty());
        let resync = entry(4, &pool, &ResyncJob);
        verifies(&seams, &pool, &resync, &order);
        resync.ends().await;
        assert_eq!(*order.borrow(), [4]);
        for entry in &entries {
            entry.ends().await;
            assert_eq!(entry.state(), JobState::Done);
        }
        pool.spaces.close().await.unwrap();
    });
}

/// Scenario: a scrub is at work, and a failing disk is to be emptied; in the midst of that a resync comes. It is done first, then
/// the emptying, then the scrub.
#[test]
fn an_emptying_goes_before_what_can_wait_and_makes_way_for_what_restores_redundancy() {
    in_a_world(|seams, devices| async move {
        let pool = open_pool(&seams, &devices[..2]).await;
        let order = Rc::new(RefCell::new(Vec::new()));
        let [scrub, emptying, resync] =
            [entry(1, &pool, &ScrubJob), entry(2, &pool, &EmptyJob), entry(3, &pool, &ResyncJob)];
        for one in [&scrub, &emptying, &resync] {
            verifies(&seams, &pool, one, &order);
            while one.id < 3 && one.course.progress.done.get() == 0 {
                sleep(seams.clock.as_ref(), Duration::from_micros(100)).await;
            }
        }
        scrub.ends().await;
        assert_eq!(*order.borrow(), [3, 2, 1]);
        pool.spaces.close().await.unwrap();
    });
}

/// Scenario: a scrub is at work, then a rebalance comes, then a conversion, each in the midst of the one before; and another size
/// of a write cache behind the conversion. What a person asks for goes first, in the order of the requests, and the scrub last.
#[test]
fn what_a_person_asks_for_goes_before_what_goes_on_by_itself() {
    in_a_world(|seams, devices| async move {
        let pool = open_pool(&seams, &devices[..2]).await;
        let order = Rc::new(RefCell::new(Vec::new()));
        let kinds: [&'static dyn Kind; 4] = [&ScrubJob, &RebalanceJob, &ConvertJob, &WriteCacheJob];
        let all: Vec<Rc<Entry>> = (1..).zip(kinds).map(|(id, kind)| entry(id, &pool, kind)).collect();
        for one in &all {
            verifies(&seams, &pool, one, &order);
            while one.id < 4 && one.course.progress.done.get() == 0 {
                sleep(seams.clock.as_ref(), Duration::from_micros(100)).await;
            }
        }
        all[0].ends().await;
        assert_eq!(*order.borrow(), [3, 4, 2, 1]);
        pool.spaces.close().await.unwrap();
    });
}

/// Scenario: another size of a write cache is at work when a resync comes, and a scrub waits for longer than that. The write cache
/// keeps the slot, since rows that are to leave it are not filled meanwhile; then the resync goes first.
#[test]
fn another_size_of_a_write_cache_keeps_its_slot() {
    in_a_world(|seams, devices| async move {
        let pool = open_pool(&seams, &devices[..2]).await;
        let order = Rc::new(RefCell::new(Vec::new()));
        let kinds: [&'static dyn Kind; 3] = [&WriteCacheJob, &ScrubJob, &ResyncJob];
        let all: Vec<Rc<Entry>> = (1..).zip(kinds).map(|(id, kind)| entry(id, &pool, kind)).collect();
        for one in &all {
            verifies(&seams, &pool, one, &order);
            while all[0].course.progress.done.get() == 0 {
                sleep(seams.clock.as_ref(), Duration::from_micros(100)).await;
            }
        }
        all[1].ends().await;
        assert_eq!(*order.borrow(), [1, 3, 2]);
        pool.spaces.close().await.unwrap();
    });
}

/// Scenario: two failing disks of a pool are emptied at once, because one of the jobs was paused when the other began. The second
/// waits until the first is done, and both end.
#[test]
fn of_two_emptyings_none_holds_the_other() {
    in_a_world(|seams, devices| async move {
        let pool = open_pool(&seams, &devices[..2]).await;
        let order = Rc::new(RefCell::new(Vec::new()));
        let both = [1, 2].map(|id| entry(id, &pool, &EmptyJob));
        for one in &both {
            verifies(&seams, &pool, one, &order);
        }
        let limit = seams.clock.now() + Duration::from_secs(600);
        for one in &both {
            assert!(within(seams.clock.as_ref(), limit, one.ends()).await.is_some());
        }
        assert_eq!(order.borrow().len(), 2);
        pool.spaces.close().await.unwrap();
    });
}

/// Scenario: the pool of a job that is paused is let go of, and stays open after all. The job is paused as before.
#[test]
fn a_paused_job_that_is_let_go_of_stays_paused() {
    in_a_world(|seams, devices| async move {
        let pool = open_pool(&seams, &devices[..2]).await;
        let scrub = entry(1, &pool, &ScrubJob);
        scrub.pause();
        scrub.is_let_go.set(true);
        let outcome = scrub.work(&pool.job_slot, seams.clock.as_ref(), |_| async { done() }).await;
        scrub.conclude(outcome, seams.clock.now());
        assert_eq!((scrub.state(), scrub.is_in_hand()), (JobState::Paused, false));
        pool.spaces.close().await.unwrap();
    });
}

/// By how many bytes the fullest disk is fuller than the emptiest.
fn unevenness(pool: &OpenPool) -> u64 {
    let free = || pool.spaces.pool().free_space().room().into_iter().map(|room| room.free.0);
    free().max().unwrap() - free().min().unwrap()
}

/// Scenario: a rebalance comes to its end in the moment in which a disk begins to leave, of which the job is not begun yet. It
/// ends behind that one, and all is even.
#[test]
fn a_rebalance_ends_after_the_removal_that_is_about_to_begin() {
    in_a_world(|seams, devices| async move {
        let pool = open_pool(&seams, &devices[..2]).await;
        let inner = pool.spaces.pool();
        for device in &devices[2..] {
            inner.membership().add_device(Rc::clone(device), &[], 0).await.unwrap();
        }
        let disk = inner.disks().into_iter().next().unwrap();
        let (rebalance, removal) = (entry(1, &pool, &RebalanceJob), entry(2, &pool, &DrainJob));
        let coming = pool.job_slot.announce();
        inner.membership().retire(&disk).await.unwrap();
        let (one, owner, clock) = (Rc::clone(&rebalance), Rc::clone(&pool), Rc::clone(&seams.clock));
        let task = async move {
            let work = |course: Rc<Course>| {
                let owner = Rc::clone(&owner);
                async move { even_out(&owner, &course).await }
            };
            let outcome = one.work(&owner.job_slot, clock.as_ref(), work).await;
            one.conclude(outcome, clock.now());
        };
        seams.spawner.spawn("job", Box::pin(task));
        sleep(seams.clock.as_ref(), Duration::from_secs(30)).await;
        assert_eq!(rebalance.state(), JobState::Running, "it is not at its end");
        drop(coming);
        let (spaces, leaving) = (&pool.spaces, &disk);
        let drained = removal.work(&pool.job_slot, seams.clock.as_ref(), async move |course| {
            assert!(spaces.moves().drain_disk(leaving, &course.progress).await.unwrap());
            inner.membership().evict(leaving).await.unwrap();
            done()
        });
        let drained = drained.await;
        removal.conclude(drained, seams.clock.now());
        rebalance.ends().await;
        assert_eq!((rebalance.state(), removal.state()), (JobState::Done, JobState::Done));
        assert!(unevenness(&pool) <= 3 << 20, "{}", unevenness(&pool));
        pool.spaces.close().await.unwrap();
    });
}

/// Scenario: two jobs of a pool have their turns one after the other. The pool works with the effort of the one at work, also
/// when that is set meanwhile, and not with what is set of one that waits; between them with none of theirs.
#[test]
fn the_pool_works_with_the_priority_of_the_running_job() {
    in_a_world(|seams, devices| async move {
        let pool = open_pool(&seams, &devices[..2]).await;
        let (clock, before) = (seams.clock.as_ref(), pool.spaces.job_share());
        let (scrub, resync) = (entry(1, &pool, &ScrubJob), entry(2, &pool, &ResyncJob));
        let scrubbed = scrub.work(&pool.job_slot, clock, |_| async {
            assert_eq!(pool.spaces.job_share(), ScrubJob.usual_share());
            resync.set_job_share(Some(&pool.job_slot), JobShare { priority: Priority::Low, ..HIGH });
            assert_eq!(pool.spaces.job_share(), ScrubJob.usual_share());
            scrub.set_job_share(Some(&pool.job_slot), HIGH);
            assert_eq!(pool.spaces.job_share(), HIGH);
            done()
        });
        assert!(scrubbed.await.is_some_and(|outcome| outcome.is_ok()));
        assert_eq!(pool.spaces.job_share(), before);
        let resynced = resync.work(&pool.job_slot, clock, |_| async {
            assert_eq!(pool.spaces.job_share(), JobShare { priority: Priority::Low, ..HIGH });
            done()
        });
        assert!(resynced.await.is_some_and(|outcome| outcome.is_ok()));
        pool.spaces.close().await.unwrap();
    });
}

/// Scenario: a kind of job that only this program has comes while a scrub is at work. It goes before the scrub, its documents have its
/// words, and its record gives back what it had counted.
#[test]
fn a_job_of_another_kind_needs_only_its_file_and_its_line_of_the_table() {
    in_a_world(|seams, devices| async move {
        let pool = open_pool(&seams, &devices[..2]).await;
        let order = Rc::new(RefCell::new(Vec::new()));
        let (scrub, counting) = (entry(1, &pool, &ScrubJob), entry(2, &pool, &TestJob));
        for one in [&scrub, &counting] {
            verifies(&seams, &pool, one, &order);
            while scrub.course.progress.done.get() == 0 {
                sleep(seams.clock.as_ref(), Duration::from_micros(100)).await;
            }
        }
        counting.course.own::<Count>().unwrap().0.set(7);
        let text = serde_json::to_string(&Recorded::new(2, vec![counting.recorded()])).unwrap();
        assert!(text.contains(r#""test_only":7"#), "{text}");
        let RecordedJob { kind, .. } = counting.recorded();
        let kind = kind_of(&kind).unwrap();
        let recalled = Entry::recalled(kind, counting.recorded()).unwrap();
        assert_eq!(recalled.course.own::<Count>().unwrap().0.get(), 7);
        let view = counting.view(seams.clock.now());
        assert_eq!((view.kind.as_str(), view.verb()), ("test_only", "count"));
        assert_eq!(counting.what(), "job 2 (count )");
        assert!(
            doing(&counting.shown(seams.clock.now())).starts_with("counting  (job 2, "),
            "{}",
            doing(&counting.shown(seams.clock.now()))
        );
        let standing = job_of(&view.kind).unwrap().standing(&pool, &counting).await;
        assert!(matches!(standing, Standing::Ended(JobState::Done, "everything is counted")));
        scrub.ends().await;
        assert_eq!(*order.borrow(), [2, 1]);
        pool.spaces.close().await.unwrap();
    });
}
