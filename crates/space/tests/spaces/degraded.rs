//! A pool with too few disks, or bad ones: what it still takes, and what a replacement makes of it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_pool::ExcludeReason;
use dolmen_sim::{CommandKind, DiskProfile, FaultKind, LatencyModel, Random, Request, SimpleLatency};
use dolmen_space::{Progress, Resiliency, Space, failed_reads};
use dolmen_units::{Bytes, DiskSlot};

use crate::harness::slow_disks::{Slow, extra, text};
use crate::harness::{Bench, check};

const MIRROR: Resiliency = Resiliency::Mirror { copies: 2 };

/// A disk with bad sectors is replaced where nothing else has what is on them: the replacement ends, those blocks are known as
/// lost, and everything else is there. Where a disk can read next to nothing, the replacement waits, and nothing is declared lost.
#[test]
fn bad_sectors_keep_no_replacement_waiting() {
    for (bad, ends) in [(3, true), (30, false)] {
        let bench = Rc::new(Bench::new(77, 1, Bytes::mib(96)));
        let spare = bench.world.add_disk("spare", crate::harness::file(Bytes::mib(96)));
        let (device, inside) = (spare.attach(&bench.world), Rc::clone(&bench));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.space(&spaces, "data", Bytes::mib(2), Resiliency::Simple).await?;
                for row in 0..2 {
                    lab.write(&space, row << 20, 1 << 20, 1).await?;
                }
                spaces.flush().await?;
                for at in crate::harness::places_of(&inside.disks[0], 0..bad, 1) {
                    inside.disks[0].make_unreadable(at);
                }
                let old = spaces.pool().members().find_disk("disk0")?;
                spaces.moves().replace(&old, device, &[], &Progress::default()).await?;
                assert_eq!(spaces.pool().members().replacements().is_empty(), ends, "{bad} bad sectors");
                let lost: u64 = spaces.data_loss_events().iter().map(|one| one.length.0 >> 12).sum();
                assert_eq!(lost, if ends { bad } else { 0 });
                for block in 0..512 {
                    let found = lab.expect(&space, block << 12, 4096, 1).await;
                    assert_eq!(found.is_ok(), block >= bad, "block {block}: {found:?}");
                }
                spaces.close().await?;
                Ok(())
            })
            .unwrap();
    }
}

/// A client reads blocks whose only disk has bad sectors. Each is listed at once, with the cause, until it was written again or can
/// be read; a mirror whose other disk has the blocks lists nothing.
#[test]
fn what_a_client_cannot_read_is_listed_until_it_can() {
    let bench = Rc::new(Bench::new(79, 2, Bytes::mib(96)));
    let inside = Rc::clone(&bench);
    let outcome = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let simple = lab.space(&spaces, "simple", Bytes::mib(1), Resiliency::Simple).await?;
        let mirror = lab.space(&spaces, "mirror", Bytes::mib(1), MIRROR).await?;
        lab.write(&simple, 0, 65536, 1).await?;
        lab.write(&mirror, 0, 65536, 2).await?;
        spaces.flush().await?;
        let bad = |disk: usize, blocks: std::ops::Range<u64>, fill: u8| {
            let places = crate::harness::places_of(&inside.disks[disk], blocks, fill);
            places.into_iter().for_each(|at| inside.disks[disk].make_unreadable(at));
        };
        (0..2).for_each(|disk| bad(disk, 3..5, 1));
        bad(0, 0..16, 2);
        let listed = |space: &Space| {
            let failed = failed_reads(space);
            assert!(failed.iter().all(|one| one.why.to_string().contains("the disks that hold it fail")));
            failed.iter().map(|one| (one.at >> 12, one.length.0)).collect::<Vec<_>>()
        };
        assert_eq!((listed(&simple), listed(&mirror)), (vec![], vec![]));
        lab.expect(&mirror, 0, 65536, 2).await?;
        for _ in 0..2 {
            assert!(lab.expect(&simple, 0, 65536, 1).await.is_err());
            assert!(lab.expect(&simple, 4 << 12, 4096, 1).await.is_err());
        }
        assert_eq!((listed(&simple), listed(&mirror)), (vec![(3, 4096), (4, 4096)], vec![]));
        lab.write(&simple, 3 << 12, 4096, 3).await?;
        assert_eq!(listed(&simple), [(4, 4096)]);
        lab.write(&simple, 4 << 12, 4096, 3).await?;
        lab.expect(&simple, 3 << 12, 8192, 3).await?;
        assert_eq!(listed(&simple), []);
        drop((simple, mirror));
        lab.check_and_close(spaces).await
    });
    outcome.unwrap();
}

/// A thin mirror on as many disks as it has copies loses one, and is written where it has no row yet: with the copies that are
/// left, also after the daemon has been started again. When the disk is back it gets what it missed, and stands by itself.
#[test]
fn a_mirror_that_lost_a_disk_takes_new_rows() {
    for copies in [2, 3] {
        let bench = Rc::new(Bench::new(91, copies, Bytes::mib(96)));
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let mirror = Resiliency::Mirror { copies: u8::try_from(copies)? };
                let space = lab.space(&spaces, "data", Bytes::mib(16), mirror).await?;
                lab.write(&space, 0, 1 << 20, 1).await?;
                spaces.flush().await?;
                outside.disks[0].vanish();
                lab.write(&space, 1 << 20, 1 << 20, 2).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
        bench
            .run_in(bench.lab_with(|disk| disk != 0), async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                lab.expect(&space, 1 << 20, 1 << 20, 2).await?;
                lab.write(&space, 5 << 20, 1 << 20, 3).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
        let back = Rc::clone(&bench);
        bench.disks[0].come_back();
        bench
            .run_in(bench.lab_with(|disk| disk != 0), async move |lab| {
                let spaces = lab.open().await?;
                assert!(!spaces.members().is_stale().await?, "what is stale is on a disk that is away");
                spaces.members().rejoin(back.disks[0].attach(&back.world)).await?;
                assert!(spaces.members().is_stale().await?);
                let done = spaces.members().resync(&Progress::default()).await?;
                assert_eq!(
                    (done.blocks, done.waiting, spaces.members().stale_rows().await?.len()),
                    (512, 0, 0)
                );
                assert!(!spaces.members().is_stale().await?);
                lab.check_and_close(spaces).await
            })
            .unwrap();
        let ranges = [(0, 1 << 20, 1), (1 << 20, 1 << 20, 2), (5 << 20, 1 << 20, 3)];
        bench.is_complete_alone(0, &ranges).unwrap();
    }
}

/// The same, and the disk is replaced instead of coming back: the new one gets all of it.
#[test]
fn what_was_claimed_without_a_disk_goes_to_the_one_that_replaces_it() {
    let bench = Rc::new(Bench::new(92, 2, Bytes::mib(96)));
    let spare = bench.world.add_disk("spare", crate::harness::file(Bytes::mib(96)));
    let (device, outside) = (spare.attach(&bench.world), Rc::clone(&bench));
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(16), MIRROR).await?;
            lab.write(&space, 0, 1 << 20, 1).await?;
            outside.disks[0].vanish();
            lab.write(&space, 4 << 20, 1 << 20, 2).await?;
            spaces.flush().await?;
            let freed = spaces.pool().disk(DiskSlot(0)).ok_or("it is a member")?;
            spaces.moves().replace(&freed, device, &[], &Progress::default()).await?;
            assert_eq!(spaces.members().stale_rows().await?, vec![]);
            check(&spaces).await?;
            outside.disks[1].vanish();
            lab.expect(&space, 0, 1 << 20, 1).await?;
            lab.expect(&space, 4 << 20, 1 << 20, 2).await?;
            lab.hold((spaces, space));
            Ok(())
        })
        .unwrap();
}

/// A disk comes back to where there is no room for what it missed, for content of a row that it had: the slab
/// waits, the disk does not leave, one that was claimed without it is not kept waiting, and the next resync goes on.
#[test]
fn what_finds_no_room_below_waits_and_its_disk_stays() {
    let bench = Rc::new(Bench::new(93, 2, Bytes::mib(96)));
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(16), MIRROR).await?;
            lab.write(&space, 0, 256 * 1024, 1).await?;
            spaces.flush().await?;
            outside.disks[0].vanish();
            lab.write(&space, 512 * 1024, 64 * 1024, 2).await?;
            lab.write(&space, 4 << 20, 64 * 1024, 3).await?;
            spaces.flush().await?;
            outside.disks[0].come_back();
            let disk = spaces.members().rejoin(outside.disks[0].attach(&outside.world)).await?;
            for (slabs, backing_full) in [(1, 1), (0, 1), (1, 0)] {
                if backing_full > 0 {
                    outside.disks[0].arm(FaultKind::NoSpace);
                }
                let done = spaces.members().resync(&Progress::default()).await?;
                assert_eq!(
                    (done.slabs, done.backing_full, done.waiting),
                    (slabs, backing_full, backing_full)
                );
                assert!(disk.is_present(), "a disk leaves for lack of room");
            }
            assert!(!spaces.members().is_stale().await?);
            drop(space);
            lab.check_and_close(spaces).await
        })
        .unwrap();
    bench
        .is_complete_alone(0, &[(0, 256 * 1024, 1), (512 * 1024, 64 * 1024, 2), (4 << 20, 64 * 1024, 3)])
        .unwrap();
}

/// Notes where a disk was written in long pieces.
#[derive(Clone, Default)]
struct Noted(Rc<RefCell<Vec<u64>>>);

impl LatencyModel for Noted {
    fn latency(&self, request: Request, random: &mut Random) -> Duration {
        if request.kind == CommandKind::Write && request.length > 4096 {
            self.0.borrow_mut().push(request.at);
        }
        SimpleLatency::FAST.latency(request, random)
    }
}

/// What has one copy left is restored before what has two, whichever was made first.
#[test]
fn what_has_the_least_redundancy_left_is_restored_first() {
    let noted = Noted::default();
    // Disks with heads, of which each takes part in one row at a time.
    let profile = |noted: &Noted| {
        let mut profile =
            DiskProfile { latency: Rc::new(noted.clone()), ..crate::harness::file(Bytes::mib(96)) };
        profile.geometry.rotational = true;
        profile
    };
    let bench = Rc::new(Bench::with_profile(3, 3, || profile(&noted)));
    let (outside, seen) = (Rc::clone(&bench), noted.clone());
    let run = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let three = lab.space(&spaces, "three", Bytes::mib(8), Resiliency::Mirror { copies: 3 }).await?;
        let two = lab.space(&spaces, "two", Bytes::mib(8), Resiliency::Mirror { copies: 2 }).await?;
        for row in 0..6 {
            lab.write(&three, row << 20, 512 << 10, 3).await?;
            lab.write(&two, row << 20, 512 << 10, 2).await?;
        }
        spaces.flush().await?;
        let lost = spaces.pool().members().find_disk("disk0")?;
        outside.disks[0].vanish();
        for space in [&three, &two] {
            lab.write(space, 0, 4096, 9).await?;
        }
        spaces.flush().await?;
        let spare = outside.world.add_disk("spare", profile(&seen));
        let new = spaces.pool().membership().add_instead_of(&lost, spare.attach(&outside.world), &[]).await?;
        seen.0.borrow_mut().clear();
        assert!(spaces.moves().finish_replacing(&lost, &new, &Progress::default()).await?);
        let blocks = || (0..6u64).flat_map(|row| row << 8..(row << 8) + 128);
        let of_two = crate::harness::places_of(&spare, 0..6 << 8, 2);
        let of_three = crate::harness::places_of(&spare, 0..6 << 8, 3);
        assert!(
            of_two.len() > 300 && of_three.len() > 600,
            "{} and {} of {}",
            of_two.len(),
            of_three.len(),
            blocks().count()
        );
        let order: Vec<bool> = seen
            .0
            .borrow()
            .iter()
            .filter_map(|at| match (of_two.contains(at), of_three.contains(at)) {
                (true, _) => Some(true),
                (_, true) => Some(false),
                _ => None,
            })
            .collect();
        let first_of_three = order.iter().position(|of_two| !of_two).unwrap_or(order.len());
        assert!(order[first_of_three..].iter().all(|of_two| !of_two), "{order:?}");
        drop((three, two));
        lab.check_and_close(spaces).await
    });
    run.unwrap();
}

/// Scenario: a space is deleted whose only disk is away, while a client reads it. Each read ends, with an error, also while its row is
/// being freed: one that asked for the row again and again would be alone on the daemon's thread, for ever. (So is this test then.)
#[test]
fn reads_of_what_cannot_be_read_end_while_it_is_freed() {
    let bench = Bench::with_profile(94, 2, || Slow::WRITES.profile());
    let verified = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = lab.space(&spaces, "data", Bytes::mib(2), Resiliency::Span).await?;
        lab.write(&space, 0, 1 << 20, 1).await?;
        spaces.flush().await?;
        let pool = spaces.pool();
        let disk =
            pool.disks().into_iter().find(|disk| !spaces.moves().has_nothing_on(disk, space.id())).unwrap();
        pool.exclude(disk.slot(), ExcludeReason::Asked).await?;
        let is_deleted = Cell::new(false);
        let mut refused = 0;
        let delete = async {
            spaces.changes().delete(&space).await.map_err(text)?;
            is_deleted.set(true);
            Ok(())
        };
        let read = async {
            while !is_deleted.get() {
                refused += u32::from(space.read_kept(0, 4096).await.is_err());
                sleep(lab.seams.clock.as_ref(), Duration::from_micros(50)).await;
            }
            Ok(())
        };
        extra(vec![Box::pin(delete), Box::pin(read)]).await?;
        assert!(refused > 10, "{refused} reads while it was deleted");
        drop(space);
        lab.check_and_close(spaces).await
    });
    verified.unwrap();
}
