//! Changes of spaces that are cut short or refused.
#![allow(clippy::unwrap_used)]

mod harness;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_pool::OpenMode;
use dolmen_sim::{Ran, StopAt};
use dolmen_space::{Provisioning, Resiliency, SpaceSpec};
use dolmen_units::Bytes;
use harness::{Bench, Lab, Outcome};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

/// What the daemon does in a test of changes that are cut short: a fixed space is made, grown, shrunk and deleted.
async fn change_a_fixed_space(lab: Lab) -> Outcome {
    let spaces = lab.open().await?;
    let mut spec = SpaceSpec::usual("fixed".parse()?, Bytes::mib(24), MIRROR);
    (spec.row, spec.provisioning) = (Some(harness::ROW), Provisioning::Fixed);
    let space = spaces.create(spec).await?;
    spaces.flush().await?;
    spaces.resize(&space, Bytes::mib(40)).await?;
    spaces.flush().await?;
    spaces.resize(&space, Bytes::mib(8)).await?;
    spaces.flush().await?;
    spaces.delete(&space).await?;
    spaces.close().await?;
    Ok(())
}

/// The daemon is killed in the middle of making, growing, shrinking and deleting a fixed space: after the next opening the
/// space is there with all of its rows and no others, or not at all, and the map is sound.
#[test]
fn a_change_of_a_space_that_was_cut_short_is_whole_or_nothing() {
    let (mut gone, mut sizes) = (0, BTreeSet::new());
    for steps in (0..).map(|turn| turn * 37) {
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
        let tell = Rc::clone(&found);
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                if let Ok(space) = spaces.find("fixed") {
                    assert_eq!(space.claimed(), space.size(), "killed after {steps} steps");
                    tell.set(Some(space.size()));
                }
                lab.check_and_close(spaces).await
            })
            .unwrap();
        match found.get() {
            None => gone += 1,
            Some(size) => drop(sizes.insert(size)),
        }
    }
    assert!(gone > 1 && sizes.len() > 1, "gone {gone} times, found with {sizes:?}");
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
            let refused = spaces.delete(&space).await.unwrap_err().to_string();
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
                    spaces.rename(&space, format!("name{number}").parse()?).await?;
                }
                Outcome::Ok(())
            };
            let deleted = async { Ok(spaces.delete(&space).await?) };
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
            let shrunk = async { Ok(spaces.resize(&space, Bytes::mib(8)).await?) };
            let renamed = async { Ok(spaces.rename(&space, "renamed".parse()?).await?) };
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

/// What each of them says, all under way beside each other.
async fn together<const N: usize>(all: [Pin<Box<dyn Future<Output = Outcome> + '_>>; N]) -> [Outcome; N] {
    join_all(all).await.try_into().unwrap()
}
