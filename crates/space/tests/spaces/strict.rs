//! Strict spaces without parity: what a flush has covered is written over through a write cache.
//!
//! What a crash leaves of that, the crash tests show with lives of their own (`DOLMEN_CRASH_RUNS=strict`), and the simulator.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::rc::Rc;

use dolmen_space::{Integrity, Progress, Resiliency, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::{Bench, Kind, Outcome, RESILIENCIES};

const MIRROR: Kind = Kind::strict(Resiliency::Mirror { copies: 2 });
const KIB: u64 = 1024;

/// Bytes that are cached and not in place.
async fn waiting(spaces: &Spaces) -> Result<Bytes, Box<dyn std::error::Error>> {
    let caches = spaces.caches().write_caches().await?;
    Ok(Bytes(caches.iter().map(|cache| cache.waiting.0).sum()))
}

/// What is fresh, or was not flushed, goes in place; what was flushed goes to the cache, reads from there, after a restart as
/// well, and ends in its place, where every disk has it. The cache comes and goes with the space.
#[test]
fn what_was_flushed_is_written_over_through_the_cache() {
    for resiliency in RESILIENCIES {
        Bench::new(1, 5, Bytes::mib(96))
            .run(async move |lab| {
                let spaces = lab.create().await?;
                assert!(spaces.caches().write_caches().await?.is_empty());
                let kind = Kind::strict(resiliency);
                let space = lab.space_of_kind(&spaces, "data", Bytes::mib(8), kind).await?;
                let caches = spaces.caches().write_caches().await?;
                assert_eq!(caches.len(), 1);
                assert_eq!(caches[0].redundancy, resiliency.redundancy());
                lab.write(&space, 0, 256 << 10, 1).await?;
                lab.write(&space, 8 * KIB, 8 << 10, 2).await?;
                assert_eq!(waiting(&spaces).await?, Bytes::ZERO, "{kind}: nothing was flushed");
                space.flush().await?;
                let before = spaces.counters();
                lab.write(&space, 60 * KIB, 8 << 10, 3).await?;
                space.discard(128 * KIB, 4 * KIB).await?;
                lab.write(&space, 128 * KIB, 8 << 10, 4).await?;
                assert_eq!(waiting(&spaces).await?, Bytes::kib(16), "{kind}");
                assert_eq!(
                    spaces.counters().overwrites,
                    before.overwrites,
                    "{kind}: nothing was written over in place"
                );
                // Beside what is cached, in place: it is fresh. Over what is cached: cached as well.
                lab.write(&space, 512 * KIB, 4 << 10, 5).await?;
                lab.write(&space, 64 * KIB, 4 << 10, 6).await?;
                space.discard(132 * KIB, 4 * KIB).await?;
                drop(space);
                spaces.close().await?;
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                let expect = async || -> Outcome {
                    lab.expect(&space, 0, 8 << 10, 1).await?;
                    lab.expect(&space, 8 * KIB, 8 << 10, 2).await?;
                    lab.expect(&space, 16 * KIB, 44 << 10, 1).await?;
                    lab.expect(&space, 60 * KIB, 4 << 10, 3).await?;
                    lab.expect(&space, 64 * KIB, 4 << 10, 6).await?;
                    lab.expect(&space, 68 * KIB, 60 << 10, 1).await?;
                    lab.expect(&space, 128 * KIB, 4 << 10, 4).await?;
                    lab.expect(&space, 132 * KIB, 4 << 10, 0).await?;
                    lab.expect(&space, 136 * KIB, 120 << 10, 1).await?;
                    lab.expect(&space, 256 * KIB, 256 << 10, 0).await?;
                    lab.expect(&space, 512 * KIB, 4 << 10, 5).await
                };
                expect().await?;
                spaces.caches().destage().await?;
                assert_eq!(waiting(&spaces).await?, Bytes::ZERO, "{kind}");
                expect().await?;
                crate::harness::check(&spaces).await?;
                assert_eq!((spaces.data_loss_events().len(), spaces.counters().lost_blocks), (0, 0));
                spaces.changes().delete(&space).await?;
                drop(space);
                assert!(spaces.caches().write_caches().await?.is_empty());
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}

/// Sectors that are no whole blocks take content along that was flushed: they are cached.
#[test]
fn sectors_of_a_flushed_block_are_cached_with_the_rest_of_it() {
    Bench::new(2, 3, Bytes::mib(96))
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(4), MIRROR.resiliency);
            spec.integrity = Integrity::Strict;
            spec.sector = Bytes(512);
            let space = spaces.create(spec).await?;
            lab.write(&space, 0, 8192, 1).await?;
            space.flush().await?;
            lab.write(&space, 4096 - 512, 1024, 2).await?;
            assert_eq!(waiting(&spaces).await?, Bytes(8192));
            let expect = async || -> Outcome {
                lab.expect(&space, 0, 4096 - 512, 1).await?;
                lab.expect(&space, 4096 - 512, 1024, 2).await?;
                lab.expect(&space, 4096 + 512, 4096 - 512, 1).await
            };
            expect().await?;
            spaces.caches().destage().await?;
            expect().await
        })
        .unwrap();
}

/// One space is parity, one a strict mirror: both survive one disk, and share a cache, whatever people call theirs. It goes with
/// the last of them.
#[test]
fn spaces_of_one_redundancy_share_a_cache() {
    Bench::new(3, 4, Bytes::mib(96))
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let mirror = lab.space_of_kind(&spaces, "write-cache-1", Bytes::mib(8), MIRROR).await?;
            let parity =
                lab.space(&spaces, "parity", Bytes::mib(8), Resiliency::Parity { parity: 1 }).await?;
            let simple = Kind::strict(Resiliency::Simple);
            let simple = lab.space_of_kind(&spaces, "simple", Bytes::mib(8), simple).await?;
            spaces.caches().resize_write_cache(1, Bytes::mib(6), &Progress::default()).await?;
            assert_eq!(spaces.caches().write_caches().await?.len(), 2);
            for fill in 1..=2 {
                for space in [&mirror, &parity, &simple] {
                    lab.write(space, 12 * KIB, 40 << 10, fill).await?;
                }
                spaces.flush().await?;
            }
            spaces.caches().destage().await?;
            for space in [&mirror, &parity, &simple] {
                lab.expect(space, 12 * KIB, 40 << 10, 2).await?;
            }
            spaces.changes().delete(&mirror).await?;
            assert_eq!(spaces.caches().write_caches().await?.len(), 2);
            lab.expect(&parity, 12 * KIB, 40 << 10, 2).await?;
            spaces.changes().delete(&parity).await?;
            spaces.changes().delete(&simple).await?;
            assert!(spaces.caches().write_caches().await?.is_empty());
            drop((mirror, parity, simple));
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// A disk leaves while its blocks are cached, what is cached is put in place without it, it comes back: then either disk alone
/// has everything.
#[test]
fn a_disk_that_missed_what_was_put_in_place_is_brought_up_to_date() {
    let bench = Rc::new(Bench::new(4, 2, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space_of_kind(&spaces, "data", Bytes::mib(8), MIRROR).await?;
            lab.write(&space, 0, 64 << 10, 1).await?;
            space.flush().await?;
            lab.write(&space, 4096, 16 << 10, 2).await?;
            space.flush().await?;
            outside.disks[1].vanish();
            lab.write(&space, 32 * KIB, 4 << 10, 3).await?;
            space.flush().await?;
            spaces.caches().destage().await?;
            outside.disks[1].come_back();
            spaces.members().rejoin(outside.disks[1].attach(&outside.world)).await?;
            spaces.members().resync(&Progress::default()).await?;
            assert!(spaces.members().stale_rows().await?.is_empty());
            lab.write(&space, 40 * KIB, 4 << 10, 4).await?;
            space.flush().await?;
            outside.disks[0].vanish();
            lab.expect(&space, 0, 4 << 10, 1).await?;
            lab.expect(&space, 4096, 16 << 10, 2).await?;
            lab.expect(&space, 20 * KIB, 12 << 10, 1).await?;
            lab.expect(&space, 32 * KIB, 4 << 10, 3).await?;
            lab.expect(&space, 36 * KIB, 4 << 10, 1).await?;
            lab.expect(&space, 40 * KIB, 4 << 10, 4).await?;
            lab.expect(&space, 44 * KIB, 20 << 10, 1).await?;
            assert_eq!((spaces.data_loss_events().len(), spaces.counters().lost_blocks), (0, 0));
            drop(space);
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
}
