//! From how much on write caches are emptied, and how fast.
#![allow(clippy::unwrap_used)]

use std::rc::Rc;

use dolmen_block_io::Instant;
use dolmen_space::{DrainLimit, Resiliency, Space, SpaceError, Spaces, WriteCache, WriteCacheDrain};
use dolmen_units::Bytes;

use crate::harness::slow_disks::pause;
use crate::harness::{Bench, Lab, Outcome};

const PARITY: Resiliency = Resiliency::Parity { parity: 1 };
const CAPACITY: Bytes = Bytes::mib(96);
/// Milliseconds: longer than a cache takes that nobody holds back.
const LONG: u64 = 10_000;

/// What is put in place between two pauses, at most: a block of each stripe.
const ROUND_BYTES: f64 = 128.0 * 4096.0;

async fn cache(spaces: &Spaces) -> Result<WriteCache, Box<dyn std::error::Error>> {
    spaces.caches().write_caches().await?.pop().ok_or_else(|| "there is no write cache".into())
}

/// Percent of the cache that wait.
async fn fill(spaces: &Spaces) -> Result<u64, Box<dyn std::error::Error>> {
    let cache = cache(spaces).await?;
    Ok(cache.waiting.0 * 100 / cache.size.0)
}

fn drain(fill: u8, rate: Option<u64>) -> WriteCacheDrain {
    WriteCacheDrain { fill, rate: rate.map(Bytes::mib) }
}

/// Puts blocks into the cache until so much of it waits, none of them beside another: parts of stripes are cached.
async fn write_until(lab: &Lab, spaces: &Spaces, space: &Space, percent: u64) -> Outcome {
    let mut block = 0;
    while fill(spaces).await? < percent {
        lab.write(space, block * 8192, 4096, 1).await?;
        block += 1;
        if block.is_multiple_of(64) {
            space.flush().await?;
        }
    }
    space.flush().await?;
    Ok(())
}

fn seconds(from: Instant, to: Instant) -> f64 {
    (to.0 - from.0) as f64 / 1e9
}

/// What is below the part that is set stays cached; what is above goes until it is below.
#[test]
fn a_cache_is_emptied_from_the_part_on_that_is_set() {
    for (set, written, least) in [(40, 35, 35), (40, 48, 15), (8, 6, 6), (8, 20, 0)] {
        Bench::new(1, 5, CAPACITY)
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(48), PARITY).await?;
                spaces.caches().set_write_cache_drain(1, drain(90, None)).await?;
                write_until(&lab, &spaces, &space, written).await?;
                spaces.caches().set_write_cache_drain(1, drain(set, None)).await?;
                pause(&lab, LONG).await;
                let left = fill(&spaces).await?;
                assert!(left <= written.min(u64::from(set)), "{left} of {written} at {set}");
                assert!(left >= least, "{left} of {written} at {set}");
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}

/// It is emptied no faster than was set, but for what one round takes, and not much slower; and without a pause for whoever waits
/// for room.
#[test]
fn a_cache_is_emptied_at_the_rate_that_is_set_but_not_for_those_who_wait() {
    Bench::new(2, 5, Bytes::mib(256))
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(192), PARITY).await?;
            spaces.caches().set_write_cache_drain(1, drain(50, Some(1))).await?;
            write_until(&lab, &spaces, &space, 15).await?;
            let (begun, before) = (lab.seams.clock.now(), cache(&spaces).await?.destaged.bytes);
            assert_eq!(before, 0);
            spaces.caches().set_write_cache_drain(1, drain(5, Some(1))).await?;
            // Clients that find room end no pause.
            for block in 0..200 {
                pause(&lab, 5).await;
                lab.write(&space, (160 << 20) + block * 8192, 4096, 2).await?;
            }
            let put = cache(&spaces).await?.destaged.bytes;
            let most = seconds(begun, lab.seams.clock.now()) * f64::from(1 << 20) + ROUND_BYTES;
            assert!((put as f64) < most && put as f64 > most / 4.0, "{put} bytes in place, {most} may be");
            let begun = lab.seams.clock.now();
            for block in 0..20_000 {
                lab.write(&space, block * 8192, 4096, 2).await?;
                if block % 64 == 0 {
                    space.flush().await?;
                }
            }
            let put = cache(&spaces).await?.destaged.bytes - put;
            let rate = put as f64 / seconds(begun, lab.seams.clock.now()) / f64::from(1 << 20);
            assert!(rate > 4.0, "{rate} MiB a second");
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// It is there when the pool is opened again, and gone with the cache. What cannot be is refused, and changes nothing.
#[test]
fn what_is_set_stays_until_the_cache_goes() {
    Bench::new(3, 5, CAPACITY)
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let none = spaces.caches().set_write_cache_drain(1, drain(25, None)).await;
            assert!(matches!(none, Err(SpaceError::NoWriteCache { redundancy: 1 })));
            let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
            assert_eq!(cache(&spaces).await?.drain, WriteCacheDrain::default());
            assert_eq!(WriteCacheDrain::default(), drain(25, None));
            spaces.caches().set_write_cache_drain(1, drain(60, Some(3))).await?;
            for percent in [0, 4, 91, 255] {
                let refused = spaces.caches().set_write_cache_drain(1, drain(percent, None)).await;
                assert!(matches!(refused, Err(SpaceError::CacheDrain(DrainLimit::Fill(_)))), "{refused:?}");
            }
            let refused = spaces.caches().set_write_cache_drain(1, drain(60, Some(0))).await;
            assert!(matches!(refused, Err(SpaceError::CacheDrain(DrainLimit::Rate(_)))), "{refused:?}");
            drop(space);
            spaces.close().await?;
            drop(spaces);
            let spaces = lab.open().await?;
            assert_eq!(cache(&spaces).await?.drain, drain(60, Some(3)));
            spaces.caches().set_write_cache_drain(1, drain(60, None)).await?;
            spaces.close().await?;
            drop(spaces);
            let spaces = lab.open().await?;
            assert_eq!(cache(&spaces).await?.drain, drain(60, None));
            let space = spaces.find("data")?;
            spaces.changes().delete(&space).await?;
            drop(space);
            let space = lab.space(&spaces, "data", Bytes::mib(8), PARITY).await?;
            assert_eq!(cache(&spaces).await?.drain, WriteCacheDrain::default());
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: the pool is closed in a pause of emptying at a low rate. Nothing holds it: it is opened again at once.
#[test]
fn a_pause_holds_no_pool() {
    Bench::new(4, 5, Bytes::mib(256))
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(192), PARITY).await?;
            spaces.caches().set_write_cache_drain(1, drain(50, Some(1))).await?;
            write_until(&lab, &spaces, &space, 15).await?;
            spaces.caches().set_write_cache_drain(1, drain(5, Some(1))).await?;
            pause(&lab, 1000).await;
            let before = cache(&spaces).await?.waiting;
            assert!(before > Bytes::mib(1));
            let pool = Rc::downgrade(spaces.pool());
            drop(space);
            spaces.export().await?;
            drop(spaces);
            // A round that was under way hears that the pool is closed.
            pause(&lab, 20).await;
            assert!(pool.upgrade().is_none());
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            lab.expect(&space, 0, 4096, 1).await?;
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}
