//! Room that is reserved for a thin space (docs/design/0024): it can be written however full the pool is.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_pool::{ExcludeReason, PoolError};
use dolmen_sim::{Ran, StopAt};
use dolmen_space::{Progress, Provisioning, Resiliency, Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::slow_disks::{Slow, extra, text};
use crate::harness::{Bench, Lab, Outcome, ROW};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };
const PARITY: Resiliency = Resiliency::Parity { parity: 1 };
const MIB: u64 = 1 << 20;

type Failed = Box<dyn std::error::Error>;

async fn thin(spaces: &Spaces, name: &str, resiliency: Resiliency) -> Result<Space, Failed> {
    let mut spec = SpaceSpec::usual(name.parse()?, Bytes::gib(1), resiliency);
    (spec.row, spec.interleave) = (Some(ROW), Bytes::kib(64));
    Ok(spaces.create(spec).await?)
}

/// Writes a block of a row; whether there was room for it.
async fn put(lab: &Lab, space: &Space, row: u64) -> Result<bool, Failed> {
    match lab.write(space, row * MIB, 4096, 1).await {
        Ok(()) => Ok(true),
        Err(error) => match error.downcast::<SpaceError>().map(|error| *error) {
            Ok(SpaceError::Pool(PoolError::NoSpace { .. })) => Ok(false),
            Ok(error) => Err(error.into()),
            Err(error) => Err(error),
        },
    }
}

/// Writes to rows from `from` on until there is no room; the first one that found none.
async fn fill(lab: &Lab, space: &Space, from: u64) -> Result<u64, Failed> {
    for row in from.. {
        if !put(lab, space, row).await? {
            return Ok(row);
        }
    }
    Ok(0)
}

fn refusal(error: &SpaceError) -> (Bytes, &'static str) {
    match error {
        SpaceError::Reserve { most, why, .. } => (*most, *why),
        other => panic!("{other}"),
    }
}

/// Scenario: room for 24 rows is reserved for a space, and another one is written until the pool is full. 24 rows of the first can
/// be written, wherever they are, and no more; what is discarded of them is nobody else's and can be written again, elsewhere
/// too; all of that over openings in between. Once nothing is reserved any more, others have what it does not use.
#[test]
fn what_is_reserved_can_be_written_however_full_the_pool_is() {
    for kind in [Resiliency::Simple, Resiliency::Span, MIRROR, PARITY] {
        let bench = Bench::new(9300, 4, Bytes::mib(96));
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let (space, other) = (thin(&spaces, "kept", kind).await?, thin(&spaces, "other", kind).await?);
            put(&lab, &space, 7).await?;
            spaces.changes().set_reserve(&space, Bytes::mib(24)).await?;
            assert_eq!((space.claimed(), space.lacks_of_reserve()), (Bytes::mib(24), Bytes::ZERO));
            let full = fill(&lab, &other, 0).await?;
            lab.check_and_close(spaces).await?;

            let spaces = lab.open().await?;
            let (space, other) = (spaces.find("kept")?, spaces.find("other")?);
            assert_eq!(space.reserve(), Bytes::mib(24), "it is on record");
            assert_eq!(fill(&lab, &other, full).await?, full, "the pool is full");
            // Below the rows that are claimed, and far behind them.
            let mut written: BTreeSet<u64> = BTreeSet::from([7]);
            for row in (0..11).map(|nth| nth * 90).chain(0..40) {
                if put(&lab, &space, row).await? {
                    written.insert(row);
                }
            }
            assert_eq!((written.len(), space.claimed()), (24, Bytes::mib(24)), "{written:?}");
            for row in &written {
                lab.expect(&space, row * MIB, 4096, 1).await?;
            }
            for row in [0, 7, 90, 180, 270] {
                space.discard(row * MIB, MIB).await?;
                written.remove(&row);
            }
            spaces.caches().destage().await?;
            assert_eq!(space.claimed(), Bytes::mib(24), "it stays as large as it is to be");
            assert_eq!(fill(&lab, &other, full).await?, full, "it is nobody else's");
            lab.check_and_close(spaces).await?;

            let spaces = lab.open().await?;
            let (space, other) = (spaces.find("kept")?, spaces.find("other")?);
            for row in 1000..1005 {
                assert!(put(&lab, &space, row).await?, "row {row} finds what was discarded");
                written.insert(row);
            }
            assert!(!put(&lab, &space, 1005).await?, "there is no more");
            for row in &written {
                lab.expect(&space, row * MIB, 4096, 1).await?;
            }
            for row in 1000..1005 {
                space.discard(row * MIB, MIB).await?;
            }
            spaces.changes().set_reserve(&space, Bytes::ZERO).await?;
            assert_eq!(space.claimed(), Bytes::mib(19), "what holds nothing is given back");
            assert!(fill(&lab, &other, full).await? >= full + 4, "others have it");
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// What cannot be reserved is refused with what could be, and nothing is claimed. A space that becomes smaller, larger or fixed
/// keeps what is reserved for it, and one that is deleted leaves nothing behind.
#[test]
fn a_reserve_is_refused_or_kept_whatever_becomes_of_the_space() {
    let bench = Bench::new(9301, 4, Bytes::mib(96));
    let verified = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = thin(&spaces, "kept", MIRROR).await?;
        let (most, why) = refusal(&spaces.changes().set_reserve(&space, Bytes::gib(2)).await.unwrap_err());
        assert_eq!((most, why), (Bytes::gib(1), "it is no larger"));
        let (most, why) = refusal(&spaces.changes().set_reserve(&space, Bytes::gib(1)).await.unwrap_err());
        assert_eq!(why, "nothing more is free for it");
        assert_eq!((space.reserve(), space.claimed()), (Bytes::ZERO, Bytes::ZERO));
        spaces.changes().set_reserve(&space, most).await?;
        assert_eq!(space.claimed(), most, "what it could have, it can");
        spaces.changes().set_reserve(&space, Bytes::mib(16)).await?;
        assert_eq!(space.claimed(), Bytes::mib(16));

        spaces.changes().resize(&space, Bytes::mib(8)).await?;
        assert_eq!((space.claimed(), space.lacks_of_reserve()), (Bytes::mib(8), Bytes::ZERO));
        spaces.changes().resize(&space, Bytes::mib(64)).await?;
        assert_eq!((space.claimed(), space.reserve()), (Bytes::mib(16), Bytes::mib(16)));
        // Its last rows are the only ones that are written, and go with its end.
        for row in 40..56 {
            assert!(put(&lab, &space, row).await?);
        }
        space.discard(40 * MIB, 16 * MIB).await?;
        spaces.changes().resize(&space, Bytes::mib(32)).await?;
        assert_eq!((space.claimed(), space.lacks_of_reserve()), (Bytes::mib(16), Bytes::ZERO));

        assert!(spaces.changes().provision(&space, Provisioning::Fixed, &Progress::default()).await?);
        assert_eq!(space.claimed(), Bytes::mib(32));
        let (_, why) = refusal(&spaces.changes().set_reserve(&space, Bytes::mib(8)).await.unwrap_err());
        assert_eq!(why, "it is fixed, and has room for all of its blocks");
        assert!(spaces.changes().provision(&space, Provisioning::Thin, &Progress::default()).await?);
        assert_eq!(space.claimed(), Bytes::mib(16), "thin again, it has what is reserved");
        spaces.changes().delete(&space).await?;
        let space = thin(&spaces, "kept", MIRROR).await?;
        assert_eq!(space.reserve(), Bytes::ZERO);
        lab.check_and_close(spaces).await
    });
    verified.unwrap();
}

/// Reserves, writes all over, discards, and gives the reserve back.
async fn change_a_reserve(lab: Lab, kind: Resiliency) -> Outcome {
    let spaces = lab.open().await?;
    let space = spaces.find("kept")?;
    spaces.changes().set_reserve(&space, Bytes::mib(6)).await?;
    for row in [100, 3, 200, 50, 60, 70, 80] {
        put(&lab, &space, row).await?;
    }
    spaces.flush().await?;
    for row in [100, 50, 60, 70, 80] {
        space.discard(row * MIB, MIB).await?;
    }
    if kind == PARITY {
        spaces.caches().destage().await?;
    }
    put(&lab, &space, 300).await?;
    spaces.flush().await?;
    spaces.changes().set_reserve(&space, Bytes::mib(2)).await?;
    spaces.close().await?;
    Ok(())
}

/// The daemon is killed at any step of a reserve's life: the next opening finds as much claimed as is reserved, what a flush has
/// covered, and a sound map.
#[test]
fn a_reserve_that_was_cut_short_is_whole() {
    for kind in [MIRROR, PARITY] {
        let mut reserves = BTreeSet::new();
        for steps in (0..).step_by(29) {
            let bench = Bench::new(9302 + steps, 3, Bytes::mib(256));
            let made = bench.run(async move |lab| {
                let spaces = lab.create().await?;
                let space = thin(&spaces, "kept", kind).await?;
                lab.write(&space, 11 * MIB, 4096, 9).await?;
                Ok(spaces.close().await?)
            });
            made.unwrap();
            let body = change_a_reserve(bench.lab(), kind);
            let ran = bench.world.run_to(StopAt::Steps(steps), body).unwrap();
            if let Ran::Finished(outcome) = ran {
                outcome.unwrap();
                break;
            }
            bench.world.kill();
            let found = Rc::new(Cell::new(Bytes::ZERO));
            let report = Rc::clone(&found);
            let verified = bench.run(async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("kept")?;
                assert_eq!(space.lacks_of_reserve(), Bytes::ZERO);
                report.set(space.reserve());
                lab.expect(&space, 11 * MIB, 4096, 9).await?;
                for row in 400..406 {
                    assert!(put(&lab, &space, row).await?);
                    lab.expect(&space, row * MIB, 4096, 1).await?;
                }
                lab.check_and_close(spaces).await
            });
            verified.unwrap_or_else(|error| panic!("{kind:?}, killed after {steps} steps: {error}"));
            reserves.insert(found.get());
        }
        assert_eq!(reserves, BTreeSet::from([Bytes::ZERO, Bytes::mib(6), Bytes::mib(2)]), "{kind:?}");
    }
}

/// Scenario: the pool is full, a disk goes, and what was written of what is reserved is discarded meanwhile. All of it can be
/// written again without the disk, and is on all disks when that is back.
#[test]
fn what_is_reserved_can_be_written_while_a_disk_is_away() {
    for kind in [MIRROR, PARITY] {
        let bench = Rc::new(Bench::new(9303, 4, Bytes::mib(96)));
        let outside = Rc::clone(&bench);
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let (space, other) = (thin(&spaces, "kept", kind).await?, thin(&spaces, "other", kind).await?);
            spaces.changes().set_reserve(&space, Bytes::mib(12)).await?;
            fill(&lab, &other, 0).await?;
            for row in 100..104 {
                assert!(put(&lab, &space, row).await?);
            }
            let freed = spaces.pool().members().find_disk("disk0")?;
            spaces.pool().exclude(freed.slot(), ExcludeReason::Asked).await?;
            for row in 100..104 {
                space.discard(row * MIB, MIB).await?;
            }
            spaces.caches().destage().await?;
            let mut written = 0;
            for row in 200..220 {
                written += u64::from(put(&lab, &space, row).await?);
            }
            assert_eq!((written, space.claimed()), (12, Bytes::mib(12)));
            spaces.members().rejoin(outside.disks[0].attach(&outside.world)).await?;
            spaces.members().resync(&Progress::default()).await?;
            for row in 200..212 {
                lab.expect(&space, row * MIB, 4096, 1).await?;
            }
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// Scenario: power fails while what is reserved is written, and the next opening is without two disks, so that nobody can tell what some
/// rows hold. Nothing is reserved any more when that is asked for; those rows stay until the disks are back.
#[test]
fn unreadable_rows_do_not_block_the_release_of_a_reserve() {
    let bench = Bench::new(9360, 4, Bytes::mib(96));
    let written = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = thin(&spaces, "kept", MIRROR).await?;
        spaces.changes().set_reserve(&space, Bytes::mib(24)).await?;
        for row in 0..16 {
            assert!(put(&lab, &space, row).await?);
        }
        lab.hold((spaces, space));
        Ok(())
    });
    written.unwrap();
    bench.world.power_cut();
    let kept = Rc::new(Cell::new(Bytes::ZERO));
    let into = Rc::clone(&kept);
    let without = bench.run_in(bench.lab_with(|disk| disk >= 2), async move |lab| {
        let spaces = lab.open().await?;
        let space = spaces.find("kept")?;
        spaces.changes().set_reserve(&space, Bytes::ZERO).await?;
        assert_eq!(space.reserve(), Bytes::ZERO);
        into.set(space.claimed());
        drop(space);
        Ok(spaces.close().await?)
    });
    without.unwrap();
    let whole = bench.run(async move |lab| {
        let spaces = lab.open().await?;
        let space = spaces.find("kept")?;
        assert_eq!(space.reserve(), Bytes::ZERO);
        spaces.members().resync(&Progress::default()).await?;
        spaces.changes().set_reserve(&space, Bytes::ZERO).await?;
        assert!(kept.get() >= space.claimed(), "{} were kept, {} are left", kept.get(), space.claimed());
        assert!(space.claimed() > Bytes::ZERO, "what was written is there");
        drop(space);
        lab.check_and_close(spaces).await
    });
    whole.unwrap();
}

/// Scenario: a space of which a part is reserved becomes fixed, and is made larger by another daemon. All of its rows are claimed
/// each time: none of those that hold nothing is moved to where one is missing, which would leave another one missing.
#[test]
fn a_space_with_a_reserve_that_becomes_fixed_has_all_of_its_rows() {
    for kind in [Resiliency::Simple, MIRROR, PARITY] {
        let bench = Bench::new(9340, 4, Bytes::mib(96));
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "kept", Bytes::mib(32), kind).await?;
            spaces.changes().set_reserve(&space, Bytes::mib(16)).await?;
            assert!(spaces.changes().provision(&space, Provisioning::Fixed, &Progress::default()).await?);
            assert_eq!(space.claimed(), Bytes::mib(32), "it was made fixed");
            drop(space);
            spaces.close().await?;
            let spaces = lab.open().await?;
            let space = spaces.find("kept")?;
            spaces.changes().resize(&space, Bytes::mib(40)).await?;
            assert_eq!(space.claimed(), Bytes::mib(40), "it grew");
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// Scenario: a disk is replaced that has rows which hold nothing, and clients write to new places meanwhile, which those rows take.
/// All of them leave the disk, wherever they have got to.
#[test]
fn a_disk_with_reserved_rows_is_replaced_while_they_are_written() {
    for kind in [MIRROR, PARITY] {
        let bench = Rc::new(Bench::new(9350, 4, Bytes::mib(96)));
        let spare = bench.world.add_disk("spare", crate::harness::file(Bytes::mib(96)));
        let device = spare.attach(&bench.world);
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = thin(&spaces, "kept", kind).await?;
            spaces.changes().set_reserve(&space, Bytes::mib(24)).await?;
            let written = Rc::new(Cell::new(0));
            let (writer, into, at) = (lab.clone(), space.clone(), Rc::clone(&written));
            let write_on = async move {
                for row in 100..124 {
                    writer.write(&into, row * MIB, 4096, 1).await.unwrap();
                    at.set(at.get() + 1);
                }
            };
            let old = spaces.pool().members().find_disk("disk0")?;
            let new = spaces.pool().membership().add_instead_of(&old, device, &[]).await?;
            lab.seams.spawner.spawn("writer", Box::pin(write_on));
            assert!(
                spaces.moves().finish_replacing(&old, &new, &Progress::default()).await?,
                "not all of it has moved"
            );
            assert!(written.get() > 0, "nothing was written meanwhile");
            assert!(spaces.pool().members().find_disk("disk0").is_err(), "it has left");
            while written.get() < 24 {
                dolmen_block_io::sleep(lab.seams.clock.as_ref(), std::time::Duration::from_millis(1)).await;
            }
            for row in 100..124 {
                lab.expect(&space, row * MIB, 4096, 1).await?;
            }
            drop(space);
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// Scenario: a row that is reserved is discarded while its space is deleted and purged, or ends in front of it: it is kept as another
/// row in the same place then. Nothing is left of it, whichever comes first.
#[test]
fn a_row_that_is_kept_while_its_space_is_deleted_is_freed() {
    for (goes, offset) in [true, false].into_iter().flat_map(|goes| (0..40).map(move |at| (goes, at))) {
        let bench = Bench::with_profile(9370, 2, || Slow::BRIEFLY.profile());
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = thin(&spaces, "kept", MIRROR).await?;
            spaces.changes().set_reserve(&space, Bytes::mib(3)).await?;
            let other = thin(&spaces, "other", MIRROR).await?;
            for _ in 0..2 {
                // Its tables are on the disks the first time, and are about to be the second time.
                spaces.pool().checkpoint().await?;
                for row in 0..3 {
                    put(&lab, &space, row).await?;
                    put(&lab, &other, row).await?;
                }
            }
            space.flush().await?;
            // The discard waits for that before it keeps the row.
            let checkpoint = async { spaces.pool().checkpoint().await.map_err(text) };
            let discard = async { space.discard(2 * MIB, MIB).await.map_err(text) };
            let end = async {
                sleep(lab.seams.clock.as_ref(), Duration::from_micros(500 * offset)).await;
                if !goes {
                    spaces.changes().set_reserve(&space, Bytes::mib(2)).await.map_err(text)?;
                    // As long as something is there, it is refused.
                    return match spaces.changes().resize(&space, Bytes::mib(2)).await {
                        Ok(()) | Err(SpaceError::NotEmpty { .. }) => Ok(()),
                        Err(error) => Err(text(error)),
                    };
                }
                spaces.trash().condemn(&space).await.map_err(text)?;
                let is_all_lost = spaces.trash().purge(&Progress::default()).await.map_err(text)?;
                if is_all_lost { Ok(()) } else { Err("something is left".to_owned()) }
            };
            extra(vec![Box::pin(checkpoint), Box::pin(discard), Box::pin(end)]).await?;
            drop((space, other));
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("it goes: {goes}, after {offset}: {error}"));
    }
}
