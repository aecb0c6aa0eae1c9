//! Spaces with parity: written, put in place, reopened, with every disk gone in turn.
//!
//! `DOLMEN_PARITY=2` takes spaces with so many parity columns alone.

use std::cell::Cell;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_pool::{Disk, ExcludeReason};
use dolmen_sim::{FaultKind, FaultRates, Random, Rate};
use dolmen_space::{Progress, Provisioning, Resiliency, SpaceError, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::{Bench, Lab, Outcome};

/// Parity columns and disks.
const KINDS: [(u8, usize); 4] = [(1, 3), (1, 5), (2, 4), (2, 6)];

/// Those of kinds that are asked for.
fn asked(kinds: impl IntoIterator<Item = (u8, usize)>) -> impl Iterator<Item = (u8, usize)> {
    let only = std::env::var("DOLMEN_PARITY").ok().and_then(|parity| parity.parse::<u8>().ok());
    kinds.into_iter().filter(move |(parity, _)| only.is_none_or(|only| only == *parity))
}

/// Each choice of as many disks as parity makes up for.
fn losses(parity: u8, disks: usize) -> Vec<Vec<usize>> {
    let alone = (0..disks).map(|disk| vec![disk]);
    let two = (0..disks).flat_map(|first| (first + 1..disks).map(move |second| vec![first, second]));
    if parity == 1 { alone.collect() } else { two.collect() }
}

/// What the tests below write, in order: first byte, bytes, fill.
const WRITES: [(u64, usize, u8); 7] = [
    (0, 4096, 1),
    (1 << 20, 256 * 1024, 2),
    (5 * 1024 * 1024 + 4096, 1 << 20, 3),
    (1 << 20, 4096, 9),
    (8 << 20, 1 << 20, 4),
    ((8 << 20) + 12288, 4096, 5),
    ((5 << 20) + 65536, 131_072, 6),
];

/// What should be read after them: first byte, bytes, fill.
const READS: [(u64, usize, u8); 9] = [
    (0, 4096, 1),
    (4096, 8192, 0),
    (1 << 20, 4096, 9),
    ((1 << 20) + 4096, 252 * 1024, 2),
    ((5 << 20) + 4096, 61440, 3),
    ((5 << 20) + 65536, 131_072, 6),
    ((5 << 20) + 196_608, 851_968, 3),
    (8 << 20, 12288, 4),
    ((8 << 20) + 12288, 4096, 5),
];

async fn write_all(lab: &Lab, spaces: &Spaces, parity: u8) -> Outcome {
    let space = lab.space(spaces, "data", Bytes::mib(24), Resiliency::Parity { parity }).await?;
    for (at, length, fill) in WRITES {
        lab.write(&space, at, length, fill).await?;
    }
    Ok(())
}

async fn expect_all(lab: &Lab, spaces: &Spaces) -> Outcome {
    let space = spaces.find("data")?;
    for (at, length, fill) in READS {
        lab.expect(&space, at, length, fill).await?;
    }
    Ok(())
}

/// What was written is read: from the cache, after the pool was opened again, after it was put in place, and again.
#[test]
fn what_was_written_is_read_from_the_cache_and_in_place() {
    for (parity, disks) in asked(KINDS) {
        let bench = Bench::new(1, disks, Bytes::mib(192));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                write_all(&lab, &spaces, parity).await?;
                expect_all(&lab, &spaces).await?;
                spaces.flush().await?;
                spaces.close().await?;
                drop(spaces);
                let spaces = lab.open().await?;
                expect_all(&lab, &spaces).await?;
                spaces.caches().destage().await?;
                expect_all(&lab, &spaces).await?;
                crate::harness::check(&spaces).await?;
                spaces.close().await?;
                drop(spaces);
                let spaces = lab.open().await?;
                expect_all(&lab, &spaces).await?;
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("{parity} of {disks}: {error}"));
    }
}

/// As many disks as there is parity are gone: everything is there, cached or in place, and can be written.
#[test]
fn every_loss_that_parity_survives_loses_nothing() {
    for (parity, disks) in asked(KINDS) {
        for is_in_place in [false, true] {
            for first in 0..disks {
                let bench = Rc::new(Bench::new(2, disks, Bytes::mib(192)));
                bench
                    .run(async move |lab| {
                        let spaces = lab.create().await?;
                        write_all(&lab, &spaces, parity).await?;
                        if is_in_place {
                            spaces.caches().destage().await?;
                        }
                        spaces.flush().await?;
                        spaces.close().await?;
                        Ok(())
                    })
                    .unwrap();
                let is_deleting = move |disk: usize| (disk + disks - first) % disks < usize::from(parity);
                bench
                    .run_in(bench.lab_with(|disk| !is_deleting(disk)), async move |lab| {
                        let spaces = lab.open().await?;
                        expect_all(&lab, &spaces).await?;
                        let space = spaces.find("data")?;
                        lab.write(&space, 0, 8192, 7).await?;
                        lab.write(&space, 5 << 20, 65536, 8).await?;
                        spaces.caches().destage().await?;
                        lab.expect(&space, 0, 8192, 7).await?;
                        lab.expect(&space, 5 << 20, 65536, 8).await?;
                        lab.expect(&space, (5 << 20) + 65536, 131_072, 6).await?;
                        drop(space);
                        lab.check_and_close(spaces).await
                    })
                    .unwrap_or_else(|error| {
                        panic!("{parity} of {disks}, {first} gone, {is_in_place}: {error}")
                    });
                // They come back, get what they missed, and others leave.
                let back = Rc::clone(&bench);
                bench
                    .run_in(bench.lab_with(|disk| !is_deleting(disk)), async move |lab| {
                        let spaces = lab.open().await?;
                        for disk in (0..disks).filter(|disk| is_deleting(*disk)) {
                            spaces.members().rejoin(back.disks[disk].attach(&back.world)).await?;
                        }
                        let done = spaces.members().resync(&Progress::default()).await?;
                        assert_eq!(
                            (done.waiting, done.lost_blocks, spaces.members().stale_rows().await?.len()),
                            (0, 0, 0)
                        );
                        lab.check_and_close(spaces).await
                    })
                    .unwrap_or_else(|error| {
                        panic!("{parity} of {disks}, {first} back, {is_in_place}: {error}")
                    });
                let others = move |disk: usize| (disk + disks - first - 1) % disks < usize::from(parity);
                bench
                    .run_in(bench.lab_with(|disk| !others(disk)), async move |lab| {
                        let spaces = lab.open().await?;
                        let space = spaces.find("data")?;
                        lab.expect(&space, 0, 8192, 7).await?;
                        lab.expect(&space, 5 << 20, 65536, 8).await?;
                        lab.expect(&space, (5 << 20) + 65536, 131_072, 6).await?;
                        lab.expect(&space, (8 << 20) + 12288, 4096, 5).await?;
                        drop(space);
                        lab.check_and_close(spaces).await
                    })
                    .unwrap_or_else(|error| panic!("{parity} of {disks}, others than {first} gone: {error}"));
            }
        }
    }
}

/// More is written than the cache holds, again and again, at places all over the space.
#[test]
fn a_full_cache_is_emptied_as_it_fills() {
    for (parity, disks) in asked(KINDS) {
        let bench = Bench::new(3, disks, Bytes::mib(192));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(32), Resiliency::Parity { parity }).await?;
                let mut last = [0u8; 8192];
                let mut number: u64 = 12345;
                for step in 0..12_000u64 {
                    number = number
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let (block, fill) = ((number >> 33) % 8192, u8::try_from(step % 250 + 1)?);
                    lab.write(&space, block * 4096, 4096, fill).await?;
                    last[usize::try_from(block)?] = fill;
                }
                for (block, fill) in (0..).zip(last) {
                    lab.expect(&space, block * 4096, 4096, fill).await?;
                }
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("{parity} of {disks}: {error}"));
    }
}

/// What is discarded reads as zeros, parity follows, and rows in which nothing is left go back to the pool.
#[test]
fn discarded_blocks_read_as_zeros_and_rows_go_back() {
    for (parity, disks) in asked(KINDS) {
        let bench = Rc::new(Bench::new(4, disks, Bytes::mib(192)));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                write_all(&lab, &spaces, parity).await?;
                let space = spaces.find("data")?;
                spaces.caches().destage().await?;
                space.discard((5 << 20) + 65536, 65536).await?;
                space.write_zeroes(8 << 20, 20480).await?;
                lab.expect(&space, (5 << 20) + 65536, 65536, 0).await?;
                lab.expect(&space, 8 << 20, 20480, 0).await?;
                spaces.caches().destage().await?;
                lab.expect(&space, (5 << 20) + 65536, 65536, 0).await?;
                lab.expect(&space, (5 << 20) + 131_072, 65536, 6).await?;
                lab.expect(&space, 8 << 20, 20480, 0).await?;
                lab.expect(&space, (8 << 20) + 20480, 65536, 4).await?;
                spaces.close().await?;
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{parity} of {disks}: {error}"));
        bench
            .run_in(bench.lab_with(|disk| disk >= usize::from(parity)), async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                lab.expect(&space, (5 << 20) + 65536, 65536, 0).await?;
                lab.expect(&space, (5 << 20) + 131_072, 65536, 6).await?;
                lab.expect(&space, (8 << 20) + 20480, 65536, 4).await?;
                space.discard(0, 24 << 20).await?;
                assert_eq!(space.claimed(), Bytes(0));
                spaces.changes().delete(&space).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("{parity} of {disks}: {error}"));
    }
}

/// A block of a stripe is discarded and the others are not: whichever disk is gone afterwards, they are made of what is left.
#[test]
fn the_stripe_of_a_discarded_block_is_whole_without_any_disk() {
    for (parity, disks) in asked([(1, 5), (2, 7)]) {
        let bench = Rc::new(Bench::new(9, disks, Bytes::mib(192)));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let mut spec =
                    SpaceSpec::usual("data".parse()?, Bytes::mib(8), Resiliency::Parity { parity });
                (spec.columns, spec.interleave) = (Some(4), Bytes::kib(16));
                let space = spaces.create(spec).await?;
                for at in 0..4 {
                    lab.write(&space, at << 18, 1 << 18, 3).await?;
                }
                spaces.caches().destage().await?;
                for at in 0..4 {
                    space.discard(at * (1 << 18) + 8192, 4096).await?;
                }
                spaces.caches().destage().await?;
                spaces.close().await?;
                Ok(())
            })
            .unwrap();
        for freed in losses(parity, disks) {
            bench
                .run_in(bench.lab_with(|disk| !freed.contains(&disk)), async move |lab| {
                    let spaces = lab.open().await?;
                    let space = spaces.find("data")?;
                    for at in 0..4 {
                        lab.expect(&space, at << 18, 8192, 3).await?;
                        lab.expect(&space, (at << 18) + 8192, 4096, 0).await?;
                        lab.expect(&space, (at << 18) + 12288, (1 << 18) - 12288, 3).await?;
                    }
                    spaces.close().await?;
                    Ok(())
                })
                .unwrap_or_else(|error| panic!("{parity} of {disks}, {freed:?} gone: {error}"));
        }
    }
}

/// Of stripes that are in place, one block of four changes, and later another one: parity is made of what it was and of what
/// changes, and whichever disks are gone then, as many as there is parity, all blocks are made of what is left.
#[test]
fn stripes_with_small_changes_are_whole_without_the_disks_that_parity_covers() {
    const STRIPE: u64 = 4 * (16 << 10);
    const STRIPES: u64 = 8;
    for (parity, disks) in asked([(1, 5), (2, 6)]) {
        let bench = Rc::new(Bench::new(10, disks, Bytes::mib(192)));
        let changed = |stripe: u64, round: u64| stripe * STRIPE + (stripe + round) % 4 * (16 << 10) + 4096;
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let mut spec =
                    SpaceSpec::usual("data".parse()?, Bytes::mib(8), Resiliency::Parity { parity });
                (spec.columns, spec.interleave) = (Some(4), Bytes::kib(16));
                let space = spaces.create(spec).await?;
                lab.write(&space, 0, usize::try_from(STRIPES * STRIPE)?, 3).await?;
                spaces.flush().await?;
                spaces.caches().destage().await?;
                for round in 0..2 {
                    for stripe in 0..STRIPES {
                        lab.write(&space, changed(stripe, round), 4096, 4).await?;
                    }
                    spaces.caches().destage().await?;
                }
                spaces.close().await?;
                Ok(())
            })
            .unwrap();
        for freed in losses(parity, disks) {
            bench
                .run_in(bench.lab_with(|disk| !freed.contains(&disk)), async move |lab| {
                    let spaces = lab.open().await?;
                    let space = spaces.find("data")?;
                    for at in (0..STRIPES * STRIPE).step_by(4096) {
                        let is_changed = (0..2).any(|round| changed(at / STRIPE, round) == at);
                        lab.expect(&space, at, 4096, if is_changed { 4 } else { 3 }).await?;
                    }
                    spaces.close().await?;
                    Ok(())
                })
                .unwrap_or_else(|error| panic!("{parity} of {disks}, {freed:?} gone: {error}"));
        }
    }
}

/// Many writers at once to spaces of both kinds, as attached file systems are, until what is cached comes to what the log can
/// relog: all of them come to an end, and what they wrote is there.
#[test]
fn many_writers_at_once_come_to_an_end() {
    for seed in 1..4 {
        let bench = Bench::new(seed, 5, Bytes::gib(2));
        let outcome = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let mut both = Vec::new();
            for parity in [1, 2] {
                let name = format!("data{parity}").parse()?;
                let spec = SpaceSpec::usual(name, Bytes::mib(512), Resiliency::Parity { parity });
                both.push(spaces.create(spec).await?);
            }
            let writers = (0..16).map(|writer| {
                let (lab, space) = (lab.clone(), both[writer % 2].clone());
                let mut random = Random::new(seed * 100 + writer as u64);
                async move {
                    for nth in 0..800 {
                        let at = (random.below(512) * 8 + (writer / 2) as u64) * 8192;
                        lab.write(&space, at, 8192, 2).await.map_err(|error| error.to_string())?;
                        if nth % 100 == writer {
                            space.flush().await.map_err(|error| error.to_string())?;
                        }
                    }
                    Ok::<(), String>(())
                }
            });
            for outcome in join_all(writers).await {
                outcome?;
            }
            drop(both);
            lab.check_and_close(spaces).await
        });
        outcome.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// All of a fixed space is discarded, which the log has to say of each block until that is in place: no more of it is said than
/// the log can relog.
#[test]
fn a_space_that_is_discarded_in_whole_leaves_room_in_the_log() {
    let bench = Bench::new(1, 4, Bytes::mib(512));
    let outcome = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let size = Bytes::mib(128);
        let mut spec = SpaceSpec::usual("data".parse()?, size, Resiliency::Parity { parity: 1 });
        spec.provisioning = Provisioning::Fixed;
        let space = spaces.create(spec).await?;
        for at in (0..size.0).step_by(1 << 20) {
            lab.write(&space, at, 1 << 20, 1).await?;
        }
        spaces.flush().await?;
        spaces.caches().destage().await?;
        space.discard(0, size.0).await?;
        lab.write(&space, 0, 4096, 2).await?;
        spaces.close().await?;
        drop((space, spaces));
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        lab.expect(&space, 0, 4096, 2).await?;
        lab.expect(&space, 64 << 20, 1 << 20, 0).await?;
        drop(space);
        lab.check_and_close(spaces).await
    });
    outcome.unwrap();
}

/// Scenario: a disk that is a file has no room for what is put in place there. It is sound, and stays; what it lacks stays cached
/// and is read from there, and goes in place when there is room.
#[test]
fn what_finds_no_room_below_stays_cached() {
    let waiting = Rc::new(Cell::new(0));
    for backing_full in 0..12 {
        let bench = Rc::new(Bench::new(6, 12, Bytes::mib(96)));
        let (outside, waited) = (Rc::clone(&bench), Rc::clone(&waiting));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space =
                    lab.space(&spaces, "data", Bytes::mib(8), Resiliency::Parity { parity: 1 }).await?;
                lab.write(&space, 0, 16 << 10, 2).await?;
                space.flush().await?;
                let pool = spaces.pool();
                let is_it = |disk: &Rc<Disk>| usize::from(disk.slot().0) == backing_full;
                let disk = pool.disks().into_iter().find(is_it).ok_or("no such disk")?;
                // Whoever carries the log has to have room.
                if pool.members().voters().contains(&disk.id()) {
                    return Ok(());
                }
                let set = |rates| {
                    outside.disks.get(backing_full).into_iter().for_each(|disk| disk.set_rates(rates))
                };
                set(FaultRates::NONE.with(FaultKind::NoSpace, Rate::ALWAYS));
                let put = spaces.caches().destage().await;
                assert!(disk.is_present(), "{backing_full}: {put:?}");
                if matches!(put, Err(SpaceError::NoSpaceBelow { .. })) {
                    waited.set(waited.get() + 1);
                } else {
                    put?;
                }
                lab.expect(&space, 0, 16 << 10, 2).await?;
                set(FaultRates::NONE);
                lab.write(&space, 8192, 4096, 3).await?;
                spaces.caches().destage().await?;
                lab.expect(&space, 0, 8192, 2).await?;
                lab.expect(&space, 8192, 4096, 3).await?;
                crate::harness::check(&spaces).await?;
                lab.check_and_close(spaces).await
            })
            .unwrap_or_else(|error| panic!("{backing_full}: {error}"));
    }
    assert!(waiting.get() >= 2, "{} disks were in the way", waiting.get());
}

/// What was on a disk that is away is computed from the others, read in pieces as long as those that were written, and not block
/// by block.
#[test]
fn what_is_away_is_computed_from_large_pieces() {
    const SIZE: u64 = 8 << 20;
    const PIECE: u64 = 64 << 10;
    for (parity, disks) in asked(KINDS) {
        let bench = Rc::new(Bench::new(1, disks, Bytes::mib(192)));
        let outside = Rc::clone(&bench);
        let run = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes(SIZE), Resiliency::Parity { parity }).await?;
            for at in (0..SIZE).step_by(1 << 20) {
                lab.write(&space, at, 1 << 20, 1).await?;
            }
            spaces.flush().await?;
            spaces.caches().destage().await?;
            outside.disks[0].vanish();
            let reads = || lab.devices.iter().map(|device| device.counters().reads).sum::<u64>();
            let before = reads();
            for at in (0..SIZE).step_by(1 << 20) {
                lab.expect(&space, at, 1 << 20, 1).await?;
            }
            let of_each = (reads() - before) as f64 / (SIZE / PIECE) as f64;
            // One in so many pieces is computed from all others; the rest are read once.
            assert!(of_each <= 2.5, "{of_each} reads for each piece of {disks} disks, parity {parity}");
            drop(space);
            Ok(spaces.close().await?)
        });
        run.unwrap();
    }
}

/// A disk that is back is filled from others on one of which blocks have rotted: with two parities each of them is found out, block
/// by block, and what it is of is computed without it.
#[test]
fn what_has_rotted_is_not_what_others_are_computed_from() {
    const SIZE: u64 = 8 << 20;
    let bench = Rc::new(Bench::new(5, 4, Bytes::mib(192)));
    let outside = Rc::clone(&bench);
    let run = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = lab.space(&spaces, "data", Bytes(SIZE), Resiliency::Parity { parity: 2 }).await?;
        let away = spaces.pool().members().find_disk("disk0")?;
        for fill in [1, 2] {
            for at in (0..SIZE).step_by(1 << 20) {
                lab.write(&space, at, 1 << 20, fill).await?;
            }
            spaces.flush().await?;
            spaces.caches().destage().await?;
            spaces.pool().exclude(away.slot(), ExcludeReason::Asked).await?;
        }
        let rotting = crate::harness::places_of(&outside.disks[1], 0..SIZE / 4096, 2);
        assert!(rotting.len() > 500, "{}", rotting.len());
        for (nth, at) in rotting.iter().enumerate().step_by(5) {
            outside.disks[1].rot(*at, u8::try_from(nth % 8)?);
        }
        spaces.members().rejoin(outside.disks[0].attach(&outside.world)).await?;
        let done = spaces.members().resync(&Progress::default()).await?;
        assert_eq!((done.waiting, done.lost_blocks), (0, 0));
        for at in (0..SIZE).step_by(1 << 20) {
            lab.expect(&space, at, 1 << 20, 2).await?;
        }
        drop(space);
        lab.check_and_close(spaces).await
    });
    run.unwrap();
}
