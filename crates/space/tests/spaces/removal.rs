//! A disk leaves the pool without another in its place: what it has goes to those that stay (docs/design/0010).
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::ranks::scoped;
use dolmen_block_io::sleep;
use dolmen_block_io::sync::join_all;
use dolmen_pool::{ExcludeReason, PoolError, Purpose};
use dolmen_space::{Progress, Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::slow_disks::{ROWS, Slow, expect_all, extra, pause, text, write_on};
use crate::harness::{Bench, Lab, Outcome, ROW};

const SIZE: Bytes = Bytes::mib(16);

/// Something that goes on beside other things.
type Task<'a> = Pin<Box<dyn Future<Output = Result<(), PoolError>> + 'a>>;

/// Every kind of space that four or five disks carry with one to spare: columns where rows must not be as wide as there are disks.
const KINDS: [(Resiliency, Option<u8>); 6] = [
    (Resiliency::Simple, None),
    (Resiliency::Span, None),
    (Resiliency::Mirror { copies: 2 }, None),
    (Resiliency::Mirror { copies: 3 }, None),
    (Resiliency::Parity { parity: 1 }, Some(3)),
    (Resiliency::Parity { parity: 2 }, Some(2)),
];

async fn space_of(
    lab: &Lab,
    spaces: &Spaces,
    (resiliency, columns): (Resiliency, Option<u8>),
) -> Result<Space, Box<dyn std::error::Error>> {
    match columns {
        None => lab.space(spaces, "data", SIZE, resiliency).await,
        Some(_) => {
            let mut spec = SpaceSpec::usual("data".parse()?, SIZE, resiliency);
            (spec.row, spec.columns, spec.interleave) = (Some(ROW), columns, Bytes::kib(64));
            Ok(spaces.create(spec).await?)
        }
    }
}

/// A disk on which such a space has something.
fn leaving(resiliency: Resiliency) -> &'static str {
    if resiliency == Resiliency::Span { "disk0" } else { "disk1" }
}

/// What is written before the disk leaves: the beginning of each row.
async fn fill(lab: &Lab, spaces: &Spaces, space: &Space) -> Outcome {
    for row in 0..ROWS {
        lab.write(space, row << 20, 512 << 10, 1).await?;
    }
    Ok(spaces.flush().await?)
}

/// As many disks are lost as the space survives, and everything is there; the pool is closed.
async fn lose_others(lab: &Lab, spaces: &Rc<Spaces>, space: &Space, resiliency: Resiliency) -> Outcome {
    let pool = spaces.pool();
    for lost in ["disk0", "disk4"].iter().take(usize::from(resiliency.redundancy())) {
        pool.exclude(pool.members().find_disk(lost)?.slot(), ExcludeReason::Asked).await?;
        expect_all(lab, space).await?;
    }
    Ok(spaces.close().await?)
}

/// Scenario: a disk leaves while clients write, spaces of every kind on it. Everything is there, the disk is no member, the map
/// is sound, and as many disks may be lost as before.
#[test]
fn a_disk_leaves_and_redundancy_stays() {
    for kind in KINDS {
        let bench = Bench::with_profile(6000, 5, || Slow::BRIEFLY.profile());
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = space_of(&lab, &spaces, kind).await?;
            fill(&lab, &spaces, &space).await?;
            let pool = spaces.pool();
            let disk = pool.members().find_disk(leaving(kind.0))?;
            let forecast = spaces.moves().forecast_removal(disk.slot()).await?;
            assert!(forecast.rows > 0 && forecast.moved > Bytes::ZERO, "{forecast:?}");
            assert!(forecast.stuck.is_empty(), "{forecast:?}");
            pool.membership().retire(&disk).await?;
            let progress = Progress::default();
            let drain = async {
                assert!(
                    spaces.moves().drain_disk(&disk, &progress).await.map_err(text)?,
                    "something is left"
                );
                pool.membership().evict(&disk).await.map_err(text)
            };
            extra(vec![Box::pin(drain), Box::pin(write_on(&lab, &space))]).await?;
            assert!(!pool.members().is_member(&disk) && pool.disks().len() == 4);
            assert_eq!((progress.done.get(), progress.total.get()), (forecast.rows, forecast.rows));
            spaces.flush().await?;
            expect_all(&lab, &space).await?;
            crate::harness::check(&spaces).await?;
            lose_others(&lab, &spaces, &space, kind.0).await
        });
        verified.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// Scenario: the disk that is to leave is not here. What it had is rebuilt on the others; a space with one copy waits for it.
#[test]
fn a_disk_that_is_lost_is_rebuilt_on_the_others() {
    for kind in KINDS {
        let bench = Bench::new(6100, 5, Bytes::mib(96));
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = space_of(&lab, &spaces, kind).await?;
            fill(&lab, &spaces, &space).await?;
            let pool = spaces.pool();
            let disk = pool.members().find_disk(leaving(kind.0))?;
            pool.exclude(disk.slot(), ExcludeReason::Asked).await?;
            pool.membership().retire(&disk).await?;
            let free = || pool.free_space().room().iter().map(|room| room.free.0).sum::<u64>();
            let before = free();
            let all = spaces.moves().drain_disk(&disk, &Progress::default()).await?;
            assert_eq!(all, kind.0.redundancy() > 0);
            if !all {
                assert_eq!(free(), before, "what nobody can give claims nothing");
                let left = spaces.left_on(disk.id()).unwrap_or_default();
                assert_eq!(left.iter().map(|space| space.name().to_string()).collect::<Vec<_>>(), ["data"]);
                assert!(matches!(pool.membership().evict(&disk).await, Err(PoolError::NotReplaced { .. })));
                spaces.close().await?;
                return Ok(());
            }
            pool.membership().evict(&disk).await?;
            write_on(&lab, &space).await?;
            spaces.flush().await?;
            crate::harness::check(&spaces).await?;
            lose_others(&lab, &spaces, &space, kind.0).await
        });
        verified.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// Scenario: power fails somewhere while a disk leaves under writes. The next opening goes on; all that was flushed is there,
/// whichever other disk is gone, and the map is sound.
#[test]
fn a_removal_that_power_cuts_short_goes_on() {
    let mut cuts = [0, 0];
    for (kind, offset) in KINDS.into_iter().skip(2).flat_map(|kind| (0..8).map(move |offset| (kind, offset)))
    {
        let bench = Bench::with_profile(6200 + offset, 5, || Slow::BRIEFLY.profile());
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = space_of(&lab, &spaces, kind).await?;
                fill(&lab, &spaces, &space).await?;
                let disk = spaces.pool().members().find_disk("disk1")?;
                let (draining, inner) = (Rc::clone(&spaces), Rc::clone(&disk));
                let drain = async move {
                    draining.pool().membership().retire(&inner).await.unwrap();
                    if draining.moves().drain_disk(&inner, &Progress::default()).await.unwrap() {
                        draining.pool().membership().evict(&inner).await.unwrap();
                    }
                };
                lab.seams.spawner.spawn("drain", Box::pin(drain));
                pause(&lab, 3 + 8 * offset * offset).await;
                lab.hold(spaces);
                Ok(())
            })
            .unwrap();
        bench.world.power_cut();
        let freed = usize::try_from(offset % 5).unwrap();
        let is_left = bench
            .run_in(bench.lab_with(|number| number != freed), async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                for row in 0..ROWS {
                    lab.expect(&space, row << 20, 512 << 10, 1).await?;
                }
                spaces.close().await?;
                Ok(())
            })
            .map_err(|error| format!("{kind:?}, cut {offset}: {error}"));
        is_left.unwrap();
        let seen = Rc::new(Cell::new(false));
        let reported = Rc::clone(&seen);
        let verified = bench.run(async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            spaces.members().resync(&Progress::default()).await?;
            reported.set(!spaces.moves().drains().is_empty());
            for disk in spaces.moves().drains() {
                assert!(spaces.moves().drain_disk(&disk, &Progress::default()).await?, "something is left");
                spaces.pool().membership().evict(&disk).await?;
            }
            for row in 0..ROWS {
                lab.expect(&space, row << 20, 512 << 10, 1).await?;
            }
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("{kind:?}, cut {offset}: {error}"));
        cuts[usize::from(seen.get())] += 1;
    }
    assert!(cuts[0] > 3 && cuts[1] > 8, "before or behind it all, and within: {cuts:?}");
}

/// Scenario: rows are as wide as there are disks, or the others are full. Nothing is begun that cannot end: it is said beforehand,
/// by the name of the space, and the disk stays what it was.
#[test]
fn what_has_nowhere_to_go_is_named_beforehand() {
    let bench = Bench::new(6300, 4, Bytes::mib(96));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let wide = space_of(&lab, &spaces, (Resiliency::Parity { parity: 1 }, Some(3))).await?;
            fill(&lab, &spaces, &wide).await?;
            let disk = spaces.pool().members().find_disk("disk1")?;
            let stuck = async || -> Result<Vec<(String, u64)>, Box<dyn std::error::Error>> {
                let stuck = spaces.moves().forecast_removal(disk.slot()).await?.stuck;
                Ok(stuck.into_values().map(|stuck| (stuck.name.to_string(), stuck.rows)).collect())
            };
            let data = ("data".to_owned(), ROWS);
            assert_eq!(stuck().await?, std::slice::from_ref(&data));
            // One in the trash has a name that another one may have by then.
            spaces.trash().move_to_trash(&wide, 1).await?;
            let other = space_of(&lab, &spaces, (Resiliency::Parity { parity: 1 }, Some(3))).await?;
            fill(&lab, &spaces, &other).await?;
            assert_eq!(stuck().await?, [data.clone(), data]);
            drop((wide, other));
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: the removal is called off anywhere. The disk takes data again, has what was not moved, and nothing is lost; and what
/// is part of a replacement, or the only disk, does not leave.
#[test]
fn a_removal_that_is_called_off_leaves_a_disk_like_any_other() {
    for offset in 0..20 {
        let bench = Bench::with_profile(6400 + offset, 4, || Slow::BRIEFLY.profile());
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = space_of(&lab, &spaces, (Resiliency::Mirror { copies: 2 }, None)).await?;
            fill(&lab, &spaces, &space).await?;
            let pool = spaces.pool();
            let disk = pool.members().find_disk("disk1")?;
            assert!(pool.membership().reinstate(&disk).await.is_err(), "it is not about to leave");
            pool.membership().retire(&disk).await?;
            pool.membership().retire(&disk).await?;
            let progress = Progress::default();
            let drain = async { spaces.moves().drain_disk(&disk, &progress).await.map(drop).map_err(text) };
            let call_off = async {
                pause(&lab, 10 * offset).await;
                pool.membership().reinstate(&disk).await.map_err(text)
            };
            extra(vec![Box::pin(drain), Box::pin(call_off), Box::pin(write_on(&lab, &space))]).await?;
            assert!(pool.members().is_member(&disk) && spaces.moves().drains().is_empty());
            assert!(matches!(pool.membership().evict(&disk).await, Err(PoolError::NotReplaced { .. })));
            spaces.flush().await?;
            expect_all(&lab, &space).await?;
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("called off after {} ms: {error}", 10 * offset));
    }
}

/// Scenario: somebody retires a disk and lets it stay after all, over and over, each an epoch, with writes in between; meanwhile a
/// checkpoint is held up, so that the log keeps the stretches of all of them. The pool goes on, and so does who waited.
#[test]
fn a_removal_that_is_called_off_over_and_over_stops_no_pool() {
    let bench = Bench::with_profile(6450, 4, || Slow::BRIEFLY.profile());
    let verified = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = space_of(&lab, &spaces, (Resiliency::Mirror { copies: 2 }, None)).await?;
        fill(&lab, &spaces, &space).await?;
        let pool = spaces.pool();
        let disk = pool.members().find_disk("disk1")?;
        // A row without tables, of which a checkpoint has to tell the map, which is kept from it for now.
        lab.write(&space, SIZE.0 - ROW.0, 4096, 1).await?;
        let change = scoped(pool.change(Purpose::Release)).await;
        let waver = async {
            for _ in 0..12 {
                pool.membership().retire(&disk).await.map_err(text)?;
                lab.write(&space, 0, 4096, 1).await.map_err(text)?;
                pool.membership().reinstate(&disk).await.map_err(text)?;
                lab.write(&space, 0, 4096, 1).await.map_err(text)?;
            }
            Ok(())
        };
        let let_go = async {
            pause(&lab, 5000).await;
            drop(change);
            Ok(())
        };
        extra(vec![Box::pin(waver), Box::pin(let_go)]).await?;
        assert!(pool.members().is_member(&disk) && spaces.moves().drains().is_empty());
        lab.expect(&space, 0, 512 << 10, 1).await?;
        lab.check_and_close(spaces).await
    });
    verified.unwrap();
}

/// Scenario: a disk is wrongly added, takes new rows, and leaves again: the pool has the room that it had.
#[test]
fn a_disk_that_was_wrongly_added_leaves_the_room_as_it_was() {
    let bench = Bench::new(6500, 5, Bytes::mib(96));
    let added = bench.disks[4].attach(&bench.world);
    bench
        .run_in(bench.lab_with(|number| number < 4), async move |lab| {
            let spaces = lab.create().await?;
            let space = space_of(&lab, &spaces, (Resiliency::Mirror { copies: 2 }, None)).await?;
            let room = |spaces: &Spaces| {
                spaces.pool().free_space().room().iter().map(|room| room.free.0).sum::<u64>()
            };
            fill(&lab, &spaces, &space).await?;
            let before = room(&spaces);
            let disk = spaces.members().add(added, &[]).await?;
            lab.write(&space, ROWS << 20, 512 << 10, 1).await?;
            spaces.pool().membership().retire(&disk).await?;
            assert!(spaces.moves().drain_disk(&disk, &Progress::default()).await?);
            spaces.pool().membership().evict(&disk).await?;
            space.discard(ROWS << 20, 1 << 20).await?;
            spaces.flush().await?;
            assert_eq!(room(&spaces), before);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a disk is away, and missed a write. What it has of a block that has rotted on the only other copy is the last that
/// is whole: neither a removal nor a replacement gives it up, however often they are tried; and when the disk is back, nothing is
/// lost, and they end.
#[test]
fn sole_copies_on_an_absent_disk_are_not_declared_lost() {
    for is_replaced in [false, true] {
        let bench = Bench::new(6600, 4, Bytes::mib(96));
        let (rotting, away) = (Rc::clone(&bench.disks[0]), Rc::clone(&bench.disks[1]));
        let (back, spare) = (away.attach(&bench.world), bench.disks[3].attach(&bench.world));
        // The mirror lies on two disks; the third comes when one of them is gone.
        let third = bench.disks[2].attach(&bench.world);
        let verified = bench.run_in(bench.lab_with(|number| number < 2), async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", SIZE, Resiliency::Mirror { copies: 2 }).await?;
            fill(&lab, &spaces, &space).await?;
            let pool = spaces.pool();
            spaces.members().add(third, &[]).await?;
            let disk = pool.members().find_disk("disk1")?;
            pool.exclude(disk.slot(), ExcludeReason::Asked).await?;
            write_on(&lab, &space).await?;
            spaces.flush().await?;
            // Block 4 of row 3 was not written since.
            let corrupt = crate::harness::places_of(&rotting, (3 << 8) + 4..(3 << 8) + 5, 1);
            assert_eq!(corrupt.len(), 1);
            rotting.rot(corrupt[0] + 77, 3);
            let new = match is_replaced {
                true => Some(pool.membership().add_instead_of(&disk, spare, &[]).await?),
                false => None,
            };
            if new.is_none() {
                pool.membership().retire(&disk).await?;
            }
            let progress = Progress::default();
            let end = async || match &new {
                Some(new) => spaces.moves().finish_replacing(&disk, new, &progress).await,
                None => spaces.moves().drain_disk(&disk, &progress).await,
            };
            for _ in 0..2 {
                assert!(!end().await?, "what nobody else has is left");
                let left = spaces.left_on(disk.id()).unwrap_or_default();
                assert_eq!(left.len(), 1, "its space is named");
            }
            assert!(pool.members().is_member(&disk));
            spaces.members().rejoin(back).await?;
            spaces.members().resync(&progress).await?;
            assert!(end().await?, "all is to be had");
            if new.is_none() {
                pool.membership().evict(&disk).await?;
            }
            expect_all(&lab, &space).await?;
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("replaced: {is_replaced}: {error}"));
    }
}

/// The map is looked at while rows are claimed and given back, and a disk joins: what is looked at is of one time.
#[test]
fn the_map_is_sound_while_rows_come_and_go() {
    let bench = Bench::new(5, 4, Bytes::mib(96));
    let spare = bench.disks[3].attach(&bench.world);
    bench
        .run_in(bench.lab_with(|disk| disk < 3), async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(16), Resiliency::Mirror { copies: 2 }).await?;
            let is_over = Cell::new(false);
            let change = async {
                for round in 1..12 {
                    for row in 0..16 {
                        lab.write(&space, row << 20, 4096, round).await?;
                    }
                    if round == 4 {
                        spaces.members().add(Rc::clone(&spare), &[]).await?;
                    }
                    space.discard(0, 16 << 20).await?;
                    spaces.flush().await?;
                }
                is_over.set(true);
                Ok(())
            };
            let look = async {
                let mut looks = 0;
                while !is_over.get() {
                    let findings = spaces.scrubs().check_map().await?;
                    assert!(findings.is_empty(), "after {looks} looks: {findings:?}");
                    looks += 1;
                    sleep(lab.seams.clock.as_ref(), Duration::from_micros(50)).await;
                }
                assert!(looks > 20, "{looks}");
                Ok(())
            };
            let both: [Pin<Box<dyn Future<Output = Outcome> + '_>>; 2] = [Box::pin(change), Box::pin(look)];
            join_all(both).await.into_iter().collect::<Outcome>()?;
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a disk that carries the metadata leaves, with others beside it that could. At no time do fewer disks carry it.
#[test]
fn another_carries_the_metadata_before_a_disk_that_leaves_stops_to() {
    let verified = Bench::new(77, 7, Bytes::mib(160)).run(async move |lab| {
        let spaces = lab.create().await?;
        let space = space_of(&lab, &spaces, KINDS[2]).await?;
        fill(&lab, &spaces, &space).await?;
        let pool = spaces.pool();
        let count = pool.members().voters().len();
        assert!(count < 7, "all {count} disks carry the metadata, and no other can");
        let disk =
            pool.disks().into_iter().find(|disk| pool.members().voters().contains(&disk.id())).unwrap();
        pool.membership().retire(&disk).await?;
        while !spaces.moves().drain_disk(&disk, &Progress::default()).await? {}
        let (evicted, fewest) = (Cell::new(false), Cell::new(count));
        let evict = async {
            let done = pool.membership().evict(&disk).await;
            evicted.set(true);
            done
        };
        let watch = async {
            while !evicted.get() {
                fewest.set(fewest.get().min(pool.members().voters().len()));
                sleep(lab.seams.clock.as_ref(), Duration::from_micros(10)).await;
            }
            Ok(())
        };
        let all: [Task<'_>; 2] = [Box::pin(evict), Box::pin(watch)];
        join_all(all).await.into_iter().collect::<Result<(), PoolError>>()?;
        assert_eq!((fewest.get(), pool.members().voters().len()), (count, count));
        assert!(!pool.members().voters().contains(&disk.id()));
        drop(space);
        lab.check_and_close(spaces).await
    });
    verified.unwrap();
}
