//! Replacements that are called off: the old disk takes data again, and the new one leaves.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dolmen_pool::{DiskState, ExcludeReason, PoolError, Purpose};
use dolmen_space::{Progress, Resiliency};
use dolmen_units::Bytes;

use crate::harness::slow_disks::{CAPACITY, Slow, Task, extra, pause, text};
use crate::harness::{Bench, Lab, Outcome};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };
const ROWS: u64 = 12;

/// Scenario: a disk is being replaced while a client writes; somewhere on the way that is called off, in the middle of adding
/// slabs, of filling them, of giving the old ones up, or in the moment in which the old disk is struck. Either it is refused
/// and the replacement ends, or the old disk is a member as before and the new one is none. Everything is there, the map is
/// sound, and the copy on the old disk stands by itself when the pool is opened without the other.
#[test]
fn a_replacement_that_is_called_off_anywhere_leaves_all_as_it_was() {
    let mut ends = [0, 0];
    for offset in 0..60 {
        let bench = Bench::with_profile(4000 + offset, 2, || Slow::WRITES.profile());
        let spare = bench.world.add_disk("spare", Slow::WRITES.profile());
        let device = spare.attach(&bench.world);
        let stays = Rc::new(RefCell::new(None));
        let reported = Rc::clone(&stays);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(32), MIRROR).await?;
                for row in 0..ROWS {
                    lab.write(&space, row << 20, 8192, 1).await?;
                }
                spaces.flush().await?;
                let old = spaces.pool().members().find_disk("disk0")?;
                let new = spaces.pool().membership().add_instead_of(&old, device, &[]).await?;
                let progress = Progress::default();
                let replace = async {
                    let ended = spaces.moves().finish_replacing(&old, &new, &progress).await;
                    // One that is called off in its last moment says so.
                    let called_off =
                        spaces.pool().members().replacements().iter().any(|(one, _)| one.id() == new.id());
                    ended.map(drop).or_else(|error| if called_off { Ok(()) } else { Err(text(error)) })
                };
                let called_off = RefCell::new(None);
                let call_off = async {
                    pause(&lab, 25 * offset).await;
                    *called_off.borrow_mut() = Some(spaces.moves().call_off(&old, &new).await.is_ok());
                    Ok(())
                };
                let write = async {
                    for row in 0..ROWS {
                        pause(&lab, 400).await;
                        lab.write(&space, (row << 20) + 4096, 4096, 2).await.map_err(text)?;
                        lab.write(&space, (ROWS + row) << 20, 4096, 3).await.map_err(text)?;
                    }
                    spaces.flush().await.map_err(text)
                };
                extra(vec![Box::pin(replace), Box::pin(call_off), Box::pin(write)]).await?;
                let called_off = called_off.take().ok_or("nobody answered")?;
                let pool = spaces.pool();
                assert_eq!(pool.members().replacements().len(), usize::from(called_off), "after {offset}");
                for (new, old) in pool.members().replacements() {
                    assert!(
                        spaces.moves().finish_replacing(&new, &old, &progress).await?,
                        "after {offset}: something is left"
                    );
                }
                let (there, freed) = if called_off { (&old, &new) } else { (&new, &old) };
                assert!(
                    pool.members().is_member(there) && !pool.members().is_member(freed),
                    "after {offset}"
                );
                assert_eq!(there.state(), DiskState::Present);
                *reported.borrow_mut() = Some(called_off);
                lab.check_and_close(spaces).await
            })
            .unwrap();
        let called_off = stays.take().unwrap();
        ends[usize::from(called_off)] += 1;
        let mut lab = bench.lab_with(|number| called_off && number == 0);
        if !called_off {
            lab.devices.push(spare.attach(&bench.world));
        }
        let verified = all_is_there(&bench, lab);
        verified.unwrap_or_else(|error| panic!("after {offset}, called off: {called_off}: {error}"));
    }
    assert!(ends[0] > 5 && ends[1] > 5, "both ends were to be seen: {ends:?}");
}

/// Whether everything that was written is on these disks alone.
fn all_is_there(bench: &Bench, lab: Lab) -> Outcome {
    bench.run_in(lab, async move |lab| {
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        for row in 0..ROWS {
            lab.expect(&space, row << 20, 4096, 1).await?;
            lab.expect(&space, (row << 20) + 4096, 4096, 2).await?;
            lab.expect(&space, (ROWS + row) << 20, 4096, 3).await?;
        }
        spaces.close().await?;
        Ok(())
    })
}

/// Scenario: the old disk holds nothing any more and is struck in the same moment in which its replacement is called off.
/// Whoever is first: a disk that stays has all of its room, one that is struck is no member, and the map is sound.
#[test]
fn a_disk_evicted_while_its_replacement_is_called_off_has_all_of_its_room_or_none() {
    let mut ends = [0, 0];
    for offset in 0..80 {
        let bench = Bench::with_profile(4500 + offset, 2, || Slow::WRITES.profile());
        let spare = bench.world.add_disk("spare", Slow::WRITES.profile());
        let device = spare.attach(&bench.world);
        let stays = Rc::new(RefCell::new(None));
        let reported = Rc::clone(&stays);
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let pool = spaces.pool();
            let old = pool.members().find_disk("disk0")?;
            let new = pool.membership().add_instead_of(&old, device, &[]).await?;
            let called_off = RefCell::new(None);
            let call_off = async {
                pause(&lab, 200).await;
                *called_off.borrow_mut() = Some(spaces.moves().call_off(&old, &new).await.is_ok());
                Ok(())
            };
            let evict = async {
                pause(&lab, 5 * offset).await;
                let is_called_off =
                    || pool.members().replacements().iter().any(|(one, _)| one.id() == new.id());
                if is_called_off() {
                    return Ok(());
                }
                let ended = pool.membership().evict(&old).await;
                ended.or_else(|error| if is_called_off() { Ok(()) } else { Err(text(error)) })
            };
            extra(vec![Box::pin(call_off), Box::pin(evict)]).await?;
            let called_off = called_off.take().ok_or("nobody answered")?;
            *reported.borrow_mut() = Some(called_off);
            assert_eq!(pool.members().is_member(&old), called_off);
            if called_off {
                let free = pool
                    .free_space()
                    .room()
                    .into_iter()
                    .find(|room| room.slot == old.slot())
                    .map(|room| room.free);
                assert_eq!(free, Some(old.data_bytes()), "all of its room is its own");
                let space = lab.space(&spaces, "data", Bytes::mib(4), Resiliency::Simple).await?;
                assert!(spaces.moves().finish_replacing(&new, &old, &Progress::default()).await?);
                lab.write(&space, 0, 8192, 1).await?;
            }
            let findings = spaces.scrubs().check_map().await?;
            if !findings.is_empty() {
                return Err(findings.join("; ").into());
            }
            spaces.close().await?;
            Ok(())
        });
        verified.unwrap_or_else(|error| panic!("struck after {} ms: {error}", 5 * offset));
        ends[usize::from(stays.take().unwrap())] += 1;
    }
    assert!(ends[0] > 5 && ends[1] > 5, "both ends were to be seen: {ends:?}");
}

/// Scenario: a replacement begins, or is called off before anything lies on the new disk, and in that moment a client writes to
/// rows that nobody has claimed yet. Wherever these land, what was written is there, on members, and the map is sound.
#[test]
fn a_row_that_is_claimed_while_disks_change_places_lies_on_members() {
    let mut wrong = Vec::new();
    for (offset, is_called_off) in (0..80).flat_map(|offset| [(offset, false), (offset, true)]) {
        let bench = Bench::with_profile(4700 + offset, 2, || Slow::WRITES.profile());
        let spare = bench.world.add_disk("spare", Slow::WRITES.profile());
        let device = spare.attach(&bench.world);
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(32), Resiliency::Simple).await?;
            let pool = spaces.pool();
            let old = pool.members().find_disk("disk0")?;
            let change = async {
                if !is_called_off {
                    pause(&lab, 300).await;
                }
                let new = pool.membership().add_instead_of(&old, device, &[]).await.map_err(text)?;
                let mut ends = (Rc::clone(&old), new);
                if is_called_off {
                    pause(&lab, 300).await;
                    spaces.moves().call_off(&ends.0, &ends.1).await.map_err(text)?;
                    ends = (ends.1, ends.0);
                }
                let (goes, stays) = ends;
                assert!(
                    spaces
                        .moves()
                        .finish_replacing(&goes, &stays, &Progress::default())
                        .await
                        .map_err(text)?
                );
                assert!(pool.members().is_member(&stays) && !pool.members().is_member(&goes));
                Ok(())
            };
            let write = async {
                pause(&lab, 12 * offset).await;
                for row in 0..4 {
                    lab.write(&space, row << 20, 4096, 1).await.map_err(text)?;
                }
                Ok(())
            };
            extra(vec![Box::pin(change), Box::pin(write)]).await?;
            for row in 0..4 {
                lab.expect(&space, row << 20, 4096, 1).await?;
            }
            lab.check_and_close(spaces).await
        });
        if let Err(error) = verified {
            wrong.push(format!("called off: {is_called_off}, written after {} ms: {error}", 12 * offset));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Scenario: the pool is busy with a change while a client's claim, the strike of an empty disk and the call that it stays wait
/// in this order. The claim may get room on the disk that stays, which nobody takes for free afterwards.
#[test]
fn a_disk_that_is_kept_at_the_last_instant_keeps_its_claims() {
    let bench = Bench::with_profile(4900, 2, || Slow::WRITES.profile());
    let spare = bench.world.add_disk("spare", Slow::WRITES.profile());
    let device = spare.attach(&bench.world);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(32), MIRROR).await?;
            let pool = spaces.pool();
            let old = pool.members().find_disk("disk0")?;
            let new = pool.membership().add_instead_of(&old, device, &[]).await?;
            let busy = async {
                let change = pool.change(Purpose::Release).await;
                pause(&lab, 1000).await;
                drop(change);
                Ok(())
            };
            let write = async |row: u64| {
                pause(&lab, 10).await;
                lab.write(&space, row << 20, 4096, 1).await.map_err(text)
            };
            let evict = async {
                pause(&lab, 20).await;
                assert!(pool.membership().evict(&old).await.is_err(), "it is kept");
                Ok(())
            };
            let call_off = async {
                pause(&lab, 30).await;
                spaces.moves().call_off(&old, &new).await.map_err(text)
            };
            let writes = (0..4).map(|row| Box::pin(write(row)) as Task<'_>);
            let others: [Task<'_>; 3] = [Box::pin(busy), Box::pin(evict), Box::pin(call_off)];
            extra(writes.chain(others).collect()).await?;
            assert!(pool.members().is_member(&old));
            for row in 4..12 {
                lab.write(&space, row << 20, 4096, 1).await?;
            }
            for row in 0..12 {
                lab.expect(&space, row << 20, 4096, 1).await?;
            }
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: somebody wants to strike a disk on which something lies, or one that is not being replaced. It is refused, and
/// the disk stays with what it has.
#[test]
fn a_disk_that_holds_data_is_not_evicted() {
    let bench = Bench::new(4901, 2, CAPACITY);
    let spare = bench.world.add_disk("spare", crate::harness::file(CAPACITY));
    let device = spare.attach(&bench.world);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), MIRROR).await?;
            lab.write(&space, 0, 1 << 20, 1).await?;
            let pool = spaces.pool();
            let old = pool.members().find_disk("disk0")?;
            assert!(matches!(pool.membership().evict(&old).await, Err(PoolError::NotReplaced { .. })));
            let new = pool.membership().add_instead_of(&old, device, &[]).await?;
            assert!(matches!(pool.membership().evict(&old).await, Err(PoolError::NotReplaced { .. })));
            assert!(pool.members().is_member(&old));
            assert!(spaces.moves().finish_replacing(&old, &new, &Progress::default()).await?);
            lab.expect(&space, 0, 1 << 20, 1).await?;
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: a replacement is called off, and the pool is closed before anything was moved back. The next opening knows where
/// it was going, and ends it.
#[test]
fn a_called_off_replacement_is_reversed_by_the_next_opening() {
    let bench = Bench::new(31, 2, CAPACITY);
    let spare = bench.world.add_disk("spare", crate::harness::file(CAPACITY));
    let device = spare.attach(&bench.world);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), MIRROR).await?;
            lab.write(&space, 0, 1 << 20, 1).await?;
            spaces.flush().await?;
            let pool = spaces.pool();
            let old = pool.members().find_disk("disk0")?;
            let new = pool.membership().add_instead_of(&old, device, &[]).await?;
            // Two new rows: the old disk takes none.
            lab.write(&space, 2 << 20, 1 << 20, 2).await?;
            lab.write(&space, 3 << 20, 1 << 20, 2).await?;
            let back = spaces.moves().bytes_to_move(new.slot(), old.slot()).await?;
            assert!(back >= Bytes::mib(2) && back < Bytes::mib(3), "{back}");
            spaces.moves().call_off(&old, &new).await?;
            assert!(spaces.moves().call_off(&old, &new).await.is_err(), "it is none any more");
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
    let mut lab = bench.lab();
    lab.devices.push(spare.attach(&bench.world));
    bench
        .run_in(lab, async move |lab| {
            let spaces = lab.open().await?;
            for (new, old) in spaces.pool().members().replacements() {
                assert!(spaces.moves().finish_replacing(&new, &old, &Progress::default()).await?);
            }
            assert!(spaces.pool().members().replacements().is_empty());
            assert_eq!(spaces.pool().disks().len(), 2);
            lab.check_and_close(spaces).await
        })
        .unwrap();
    bench
        .run_in(bench.lab_with(|number| number == 0), async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            lab.expect(&space, 0, 1 << 20, 1).await?;
            lab.expect(&space, 2 << 20, 1 << 20, 2).await?;
            lab.expect(&space, 3 << 20, 1 << 20, 2).await?;
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
}

/// Scenario: the new disk is gone with rows that only the client's writes put there. Called off, the old disk is a member as
/// before, what both had is whole, and the new one waits in the list only for what it shares with nobody here.
#[test]
fn a_replacement_whose_new_disk_is_lost_is_called_off() {
    let bench = Bench::new(32, 2, CAPACITY);
    let spare = bench.world.add_disk("spare", crate::harness::file(CAPACITY));
    let device = spare.attach(&bench.world);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(8), MIRROR).await?;
            lab.write(&space, 0, 1 << 20, 1).await?;
            spaces.flush().await?;
            let pool = spaces.pool();
            let old = pool.members().find_disk("disk0")?;
            let new = pool.membership().add_instead_of(&old, device, &[]).await?;
            lab.write(&space, 2 << 20, 1 << 20, 2).await?;
            spare.vanish();
            pool.exclude(new.slot(), ExcludeReason::Asked).await?;
            spaces.moves().call_off(&old, &new).await?;
            assert!(spaces.moves().finish_replacing(&new, &old, &Progress::default()).await?);
            assert!(!pool.members().is_member(&new) && pool.members().is_member(&old));
            lab.expect(&space, 0, 1 << 20, 1).await?;
            lab.expect(&space, 2 << 20, 1 << 20, 2).await?;
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: while an empty disk is struck, all others leave that carry the metadata, so that it has to stay. Whenever they do, the
/// replacement can be called off.
#[test]
fn a_disk_that_has_to_stay_because_it_votes_alone_can_be_kept() {
    let (mut wrong, mut kept) = (Vec::new(), 0);
    for offset in 0..12 {
        let bench = Bench::with_profile(4950 + offset, 2, || Slow::WRITES.profile());
        let spare = bench.world.add_disk("spare", Slow::WRITES.profile());
        let device = spare.attach(&bench.world);
        let stays = Rc::new(Cell::new(false));
        let report = Rc::clone(&stays);
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let pool = spaces.pool();
            let old = pool.members().find_disk("disk0")?;
            let new = pool.membership().add_instead_of(&old, device, &[]).await?;
            let evict = async {
                report.set(matches!(pool.membership().evict(&old).await, Err(PoolError::Full { .. })));
                Ok(())
            };
            let leave = async {
                pause(&lab, 5 * offset).await;
                for disk in pool.disks().iter().filter(|disk| disk.id() != old.id()) {
                    // The last one cannot leave, once the old disk is struck.
                    let _ = pool.exclude(disk.slot(), ExcludeReason::Asked).await;
                }
                Ok(())
            };
            extra(vec![Box::pin(leave), Box::pin(evict)]).await?;
            if report.get() {
                pool.membership().reverse_replacement(&old, &new).await?;
            }
            Ok(())
        });
        kept += u64::from(stays.get());
        if let Err(error) = verified {
            wrong.push(format!("left after {} ms: {error}", 5 * offset));
        }
    }
    assert!(wrong.is_empty() && kept > 0, "kept {kept} times, {wrong:#?}");
}
