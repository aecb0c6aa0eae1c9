//! A log or a map that is full, or becomes so: what gives room back goes on, nothing waits for ever, and the pool opens again.

use std::ops::Range;
use std::rc::Rc;

use dolmen_pool::{Pool, PoolError, Purpose, keys};
use dolmen_space::{Provisioning, Resiliency, Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::{Bytes, SpaceId};

use crate::harness::{Bench, Lab, Outcome, ROW};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };
/// A space of which the map has rows, and nothing else is there: they fill the map.
const FILLER: SpaceId = SpaceId(999);
/// More rows than the log of these disks has room for records of one row each.
const ROWS: u64 = 480;

/// Two disks whose log has 2 MiB.
fn bench(seed: u64) -> Bench {
    let bench = Bench::new(seed, 2, Bytes::mib(2048));
    bench.world.set_steps_max(20_000_000);
    bench
}

/// Puts rows of the filler on the map; whether there was room.
async fn fill(pool: &Rc<Pool>, purpose: Purpose, rows: Range<u64>) -> Result<bool, PoolError> {
    let mut change = pool.change(purpose).await;
    rows.for_each(|index| change.put(keys::place(FILLER, index), vec![7; 200]));
    match change.commit().await {
        Ok(()) => Ok(true),
        Err(PoolError::MetadataFull { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Fills the map until no checkpoint finds room; how many rows that took.
async fn fill_all(pool: &Rc<Pool>) -> Result<u64, PoolError> {
    let mut count = 0;
    loop {
        fill(pool, Purpose::Release, count..count + 100).await?;
        count += 100;
        match pool.checkpoint().await {
            Ok(()) => {}
            Err(PoolError::MetadataFull { .. }) => return Ok(count),
            Err(error) => return Err(error),
        }
    }
}

async fn fixed(spaces: &Spaces) -> Result<Space, Box<dyn std::error::Error>> {
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes(ROWS * ROW.0), MIRROR);
    (spec.row, spec.provisioning) = (Some(ROW), Provisioning::Fixed);
    Ok(spaces.create(spec).await?)
}

async fn write_all_over(lab: &Lab, space: &Space) -> Outcome {
    for row in 0..ROWS {
        lab.write(space, row * ROW.0, 4096, 1).await?;
    }
    Ok(())
}

/// One block in each of many new rows, in a thin space and in a fixed one: their tables are made and committed while the log
/// is half full, and the checkpoint that does it has room for what it says itself.
#[test]
fn a_checkpoint_of_many_new_rows_comes_to_its_end() {
    for provisioning in [Provisioning::Thin, Provisioning::Fixed] {
        bench(5)
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = match provisioning {
                    Provisioning::Thin => lab.space(&spaces, "data", Bytes(ROWS * ROW.0), MIRROR).await?,
                    Provisioning::Fixed => fixed(&spaces).await?,
                };
                write_all_over(&lab, &space).await?;
                spaces.pool().checkpoint().await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}

/// The same, and the daemon is killed before any checkpoint: the opening makes the tables of all rows, and comes to its end.
#[test]
fn a_pool_killed_with_many_new_rows_opens_again() {
    let bench = bench(6);
    bench
        .run(async |lab| {
            let spaces = lab.create().await?;
            let space = fixed(&spaces).await?;
            write_all_over(&lab, &space).await
        })
        .unwrap();
    bench.world.kill();
    bench
        .run(async |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            for row in 0..ROWS {
                lab.expect(&space, row * ROW.0, 4096, 1).await?;
            }
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// The map is full to its last page, and all that filled it is deleted: the next claim finds room by itself.
#[test]
fn claims_find_the_room_that_deletes_have_made() {
    bench(1)
        .run(async |lab| {
            let spaces = lab.create().await?;
            let pool = spaces.pool();
            let count = fill_all(pool).await?;
            for first in (0..count).step_by(500) {
                let mut change = pool.change(Purpose::Release).await;
                (first..count.min(first + 500)).for_each(|index| change.delete(keys::place(FILLER, index)));
                change.commit().await?;
            }
            assert!(fill(pool, Purpose::Claim, 0..1).await?, "nothing is left on the map");
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
}

/// Map and log are full, so that nothing can be written: rows are still discarded, which is how people make room.
#[test]
fn a_full_map_and_a_full_log_take_discards_of_rows() {
    bench(5)
        .run(async |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes(4 * ROW.0), MIRROR).await?;
            for row in 0..4 {
                lab.write(&space, row * ROW.0, 1 << 20, 1).await?;
            }
            let mut spec = SpaceSpec::usual("kept".parse()?, ROW, MIRROR);
            (spec.row, spec.provisioning) = (Some(ROW), Provisioning::Fixed);
            let kept = spaces.create(spec).await?;
            lab.write(&kept, 0, 1 << 20, 1).await?;
            spaces.flush().await?;
            fill_all(spaces.pool()).await?;
            let mut blocks = (0..1000).cycle();
            let refused = loop {
                let at = blocks.next().unwrap_or(0) * 4096;
                if let Err(error) = lab.write(&space, at, 4096, 2).await {
                    break error;
                }
            };
            let full = |error: &SpaceError| matches!(error, SpaceError::Pool(PoolError::MetadataFull { .. }));
            assert!(refused.downcast_ref().is_some_and(full), "{refused}");
            // What keeps its rows makes no room, and may not use up what is kept for those that do.
            for (refused, range) in [(&space, 0..ROW.0 / 2), (&kept, 0..ROW.0)] {
                let discarded = refused.discard(range.start, range.end).await;
                assert!(discarded.as_ref().is_err_and(full), "{discarded:?}");
            }
            let before = space.claimed();
            space.discard(0, ROW.0).await?;
            assert_eq!(space.claimed().0 + ROW.0, before.0);
            lab.expect(&space, 0, 4096, 0).await?;
            lab.expect(&space, 3 * ROW.0, 1 << 20, 1).await?;
            Ok(())
        })
        .unwrap();
}
