//! Changes of spaces that are cut short or refused.
#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_pool::{OpenMode, keys};
use dolmen_sim::{Ran, StopAt};
use dolmen_space::{Provisioning, Resiliency, SpaceSpec};
use dolmen_units::{Bytes, SpaceId};

use crate::harness::slow_disks::{Slow, pause};
use crate::harness::{Bench, Lab, Outcome};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };
const PARITY: Resiliency = Resiliency::Parity { parity: 1 };

/// What the daemon does in a test of changes that are cut short: a fixed space is made, grown, shrunk and deleted.
async fn change_a_fixed_space(lab: Lab) -> Outcome {
    let spaces = lab.open().await?;
    let mut spec = SpaceSpec::usual("fixed".parse()?, Bytes::mib(24), MIRROR);
    (spec.row, spec.provisioning) = (Some(crate::harness::ROW), Provisioning::Fixed);
    let space = spaces.create(spec).await?;
    spaces.flush().await?;
    spaces.changes().resize(&space, Bytes::mib(40)).await?;
    spaces.flush().await?;
    spaces.changes().resize(&space, Bytes::mib(8)).await?;
    spaces.flush().await?;
    spaces.changes().delete(&space).await?;
    spaces.close().await?;
    Ok(())
}

/// The daemon is killed in the middle of making, growing, shrinking and deleting a fixed space: after the next opening the
/// space is there with all of its rows and no others, or not at all, and the map is sound.
#[test]
fn a_change_of_a_space_that_was_cut_short_is_whole_or_nothing() {
    let (mut freed, mut sizes) = (0, BTreeSet::new());
    for steps in (0..).step_by(13) {
        let bench = Bench::new(steps, 3, Bytes::mib(96));
        bench.run(async move |lab| Ok(lab.create().await?.close().await?)).unwrap();
        let body = change_a_fixed_space(bench.lab());
        let ran = bench.world.run_to(StopAt::Steps(steps), body).unwrap();
        if let Ran::Finished(outcome) = ran {
            outcome.unwrap();
            break;
        }
        bench.world.kill();
        let found = Rc::new(Cell::new(None));
        let report = Rc::clone(&found);
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                if let Ok(space) = spaces.find("fixed") {
                    assert_eq!(space.claimed(), space.size(), "killed after {steps} steps");
                    report.set(Some(space.size()));
                }
                lab.check_and_close(spaces).await
            })
            .unwrap();
        match found.get() {
            None => freed += 1,
            Some(size) => drop(sizes.insert(size)),
        }
    }
    assert!(freed > 1 && sizes.len() > 1, "gone {freed} times, found with {sizes:?}");
}

/// A pool that is open for reading refuses to delete a space, and goes on reading it.
#[test]
fn a_refused_delete_leaves_the_space_as_it_was() {
    let bench = Bench::new(9, 2, Bytes::mib(72));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), MIRROR).await?;
            lab.write(&space, 0, 1 << 20, 1).await?;
            spaces.export().await?;
            Ok(())
        })
        .unwrap();
    bench
        .run(async move |lab| {
            let spaces = lab.open_as(OpenMode::Read).await?;
            let space = spaces.find("data")?;
            let refused = spaces.changes().delete(&space).await.unwrap_err().to_string();
            assert!(refused.contains("read-only"), "{refused}");
            lab.expect(&space, 0, 1 << 20, 1).await
        })
        .unwrap();
}

/// A space is deleted while somebody gives it one name after another: it stays deleted, and so does the write cache that
/// went with it. Otherwise a pool would be left that nobody can open.
#[test]
fn a_deleted_space_stays_deleted_whoever_renames_it() {
    let bench = Bench::new(11, 3, Bytes::mib(96));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), Resiliency::Parity { parity: 1 }).await?;
            let renamed = async {
                for number in 0..100 {
                    spaces.changes().rename(&space, format!("name{number}").parse()?).await?;
                }
                Outcome::Ok(())
            };
            let deleted = async { Ok(spaces.changes().delete(&space).await?) };
            let [renamed, deleted] = together([Box::pin(renamed), Box::pin(deleted)]).await;
            deleted?;
            let refused = renamed.unwrap_err().to_string();
            assert!(refused.contains("is gone"), "{refused}");
            Ok(spaces.close().await?)
        })
        .unwrap();
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            assert_eq!(spaces.list().len(), 0, "a deleted space is there again");
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// A space gets another name while it is found too full to be made smaller: it keeps its size, also for who opens it next.
#[test]
fn a_refused_shrink_is_not_stored_by_who_renames_the_space() {
    let bench = Bench::new(12, 3, Bytes::mib(96));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(16), MIRROR).await?;
            lab.write(&space, 15 << 20, 1 << 20, 1).await?;
            // Making it smaller waits for this, and finds then that it cannot be.
            let written = lab.write(&space, 15 << 20, 1 << 20, 2);
            let shrunk = async { Ok(spaces.changes().resize(&space, Bytes::mib(8)).await?) };
            let renamed = async { Ok(spaces.changes().rename(&space, "renamed".parse()?).await?) };
            let [written, shrunk, renamed] =
                together([Box::pin(written), Box::pin(shrunk), Box::pin(renamed)]).await;
            written?;
            renamed?;
            let refused = shrunk.unwrap_err().to_string();
            assert!(refused.contains("8 MiB"), "{refused}");
            Ok(spaces.close().await?)
        })
        .unwrap();
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("renamed")?;
            assert_eq!(space.size(), Bytes::mib(16));
            lab.expect(&space, 15 << 20, 1 << 20, 2).await?;
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// The last space with parity is deleted while somebody holds it still, and another one is made: there is one write cache, the
/// new one's.
#[test]
fn a_deleted_space_that_is_held_keeps_no_write_cache_among_the_others() {
    let bench = Bench::new(13, 4, Bytes::mib(256));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let held = lab.space(&spaces, "held", Bytes::mib(16), PARITY).await?;
            lab.write(&held, 0, 1 << 20, 1).await?;
            spaces.changes().delete(&held).await?;
            assert!(spaces.caches().write_caches().await?.is_empty());
            let other = lab.space(&spaces, "other", Bytes::mib(16), PARITY).await?;
            lab.write(&other, 0, 4096, 2).await?;
            let caches = spaces.caches().write_caches().await?;
            assert_eq!(caches.iter().map(|cache| cache.waiting).collect::<Vec<_>>(), [Bytes::kib(4)]);
            lab.expect(&other, 0, 4096, 2).await?;
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Somebody else takes the name of a space while the write cache that it needs is made: it is not made, and leaves no cache.
#[test]
fn a_space_that_cannot_be_made_leaves_no_write_cache() {
    let bench = Bench::new(14, 4, Bytes::mib(256));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let make = async |resiliency| {
                lab.space(&spaces, "data", Bytes::mib(16), resiliency).await?;
                Outcome::Ok(())
            };
            let [first, second] = together([Box::pin(make(PARITY)), Box::pin(make(MIRROR))]).await;
            second?;
            let refused = first.unwrap_err().to_string();
            assert!(refused.contains("data"), "{refused}");
            assert!(spaces.caches().write_caches().await?.is_empty());
            let used: u64 =
                spaces.pool().free_space().room().iter().map(|room| room.data.0 - room.free.0).sum();
            assert_eq!(used, 0);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// A space is deleted by two, the second of whom begins while the first is at it: it is gone, once, and nothing is on record.
#[test]
fn a_space_that_is_deleted_twice_does_not_exist() {
    for offset in 0..40 {
        let bench = Bench::with_profile(15 + offset, 2, || Slow::WRITES.profile());
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(16), MIRROR).await?;
                for row in 0..8 {
                    lab.write(&space, row << 20, 4096, 1).await?;
                }
                let delete = async |millis| {
                    pause(&lab, millis).await;
                    Ok(spaces.changes().delete(&space).await?)
                };
                let [first, second] = together([Box::pin(delete(0)), Box::pin(delete(10 * offset))]).await;
                first?;
                second?;
                let (from, to) = (keys::space(SpaceId(0)), keys::space(SpaceId(u64::MAX)));
                let left = spaces.pool().map().scan(from..to, 1).await?;
                assert!(left.is_empty(), "deleted again after {} ms, it is on record", 10 * offset);
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}

/// What each of them says, all under way beside each other.
async fn together<const N: usize>(all: [Pin<Box<dyn Future<Output = Outcome> + '_>>; N]) -> [Outcome; N] {
    join_all(all).await.try_into().unwrap()
}
