//! Scrubs that are cut short: they resume at their last checkpoint, and nothing is left out or read twice.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_block_io::sync::{Either, either};
use dolmen_space::{Progress, Resiliency, Scrub, ScrubPosition, Spaces, Verification};
use dolmen_units::Bytes;

use crate::harness::slow_disks::Slow;
use crate::harness::{Bench, Lab, Outcome, places_of};

const ROWS: u64 = 6;
const SPACES: [&str; 2] = ["a", "b"];

type Any = Box<dyn std::error::Error>;

async fn make(lab: &Lab) -> Result<Rc<Spaces>, Any> {
    let spaces = lab.create().await?;
    for (fill, name) in (1..).zip(SPACES) {
        let space = lab.space(&spaces, name, Bytes::mib(ROWS), Resiliency::Mirror { copies: 2 }).await?;
        for row in 0..ROWS {
            lab.write(&space, row << 20, 1 << 20, fill).await?;
        }
    }
    spaces.flush().await?;
    Ok(spaces)
}

/// Reads for a few rows more, and stops; what it has seen meanwhile, and whether it came to the end.
async fn a_while(lab: &Lab, spaces: &Spaces, scrub: &Scrub) -> Result<(Verification, bool), Any> {
    let (progress, seen) = (Progress::default(), RefCell::new(Verification::default()));
    let work = spaces.scrubs().scrub(scrub, &progress, |more| {
        let mut seen = seen.borrow_mut();
        (seen.blocks, seen.healed) = (seen.blocks + more.blocks, seen.healed + more.healed);
    });
    let mut work = std::pin::pin!(work);
    let begun = Cell::new(None);
    let some_rows = async {
        loop {
            sleep(lab.seams.clock.as_ref(), Duration::from_micros(500)).await;
            let done = progress.done.get();
            if done > 0 && begun.get().is_none() {
                begun.set(Some(done));
            }
            if begun.get().is_some_and(|begun| done > begun + 1) {
                return;
            }
        }
    };
    let is_at_end = match either(work.as_mut(), some_rows).await {
        Either::First(is_at_end) => is_at_end?,
        Either::Second(()) => {
            progress.stop();
            work.await?
        }
    };
    let seen = seen.borrow().clone();
    Ok((seen, is_at_end))
}

fn bench(seed: u64) -> Rc<Bench> {
    Rc::new(Bench::with_profile(seed, 2, || Slow::BRIEFLY.profile()))
}

/// Scenario: a scrub is stopped again and again, and resumes each time at its checkpoint, as a new process would. All laps together
/// have read each block once.
#[test]
fn a_scrub_that_resumes_reads_each_block_once() {
    bench(81)
        .run(async |lab| {
            let spaces = make(&lab).await?;
            let whole = spaces.scrubs().verify(&Progress::default()).await?;
            let (mut blocks, mut parts) = (0, 0);
            let mut position = ScrubPosition::default();
            loop {
                let scrub = Scrub::at(position);
                let (seen, is_at_end) = a_while(&lab, &spaces, &scrub).await?;
                (blocks, parts) = (blocks + seen.blocks, parts + 1);
                if is_at_end {
                    break;
                }
                assert!(scrub.checkpoint().next > position.next, "it has read nothing");
                position = scrub.checkpoint();
            }
            assert!(parts > 2, "it was never stopped");
            assert_eq!(blocks, whole.blocks);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}

/// Scenario: in the midst of a scrub, what it has read already is damaged, and everything is to be read again; it is stopped and
/// resumed at its checkpoint in each lap. It heals the damage, and reads what is behind the place once.
#[test]
fn a_scrub_that_is_to_read_all_again_reads_what_was_before_it() {
    for is_resumed in [false, true] {
        let bench = bench(82);
        let disk = Rc::clone(&bench.disks[0]);
        bench
            .run(async move |lab| {
                let spaces = make(&lab).await?;
                let mut scrub = Scrub::default();
                let (before, is_at_end) = a_while(&lab, &spaces, &scrub).await?;
                assert!(!is_at_end && before.blocks > 0);
                let damaged = places_of(&disk, 0..256, 1);
                damaged.iter().for_each(|at| disk.rot(at + 77, 3));
                scrub.read_all_again();
                let (mut blocks, mut healed) = (0, 0);
                loop {
                    if is_resumed {
                        scrub = Scrub::at(scrub.checkpoint());
                    }
                    let (seen, is_at_end) = a_while(&lab, &spaces, &scrub).await?;
                    (blocks, healed) = (blocks + seen.blocks, healed + seen.healed);
                    if is_at_end {
                        break;
                    }
                }
                let whole = spaces.scrubs().verify(&Progress::default()).await?;
                assert_eq!((healed, whole.healed), (damaged.len() as u64, 0));
                // The row at the place may have been under way, and is read twice.
                assert!((whole.blocks..=whole.blocks + 512).contains(&blocks), "{blocks}");
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}

/// Scenario: everything is to be read again three times while a scrub runs: before its first row is read, in its first lap and in its
/// second. Rows are claimed after the lap began, and everything is damaged before the last request. The scrub heals all of it.
#[test]
fn a_second_request_to_read_all_again_is_met_in_the_second_lap() {
    let bench = bench(84);
    let disk = Rc::clone(&bench.disks[0]);
    bench
        .run(async move |lab| {
            let spaces = make(&lab).await?;
            let (scrub, progress) = (Scrub::default(), Progress::default());
            let until = async |is_reached: &dyn Fn() -> bool| {
                while !is_reached() {
                    sleep(lab.seams.clock.as_ref(), Duration::from_micros(200)).await;
                }
            };
            let mut work = std::pin::pin!(spaces.scrubs().scrub(&scrub, &progress, |_| {}));
            let requests = async {
                until(&|| progress.total.get() > 0).await;
                scrub.read_all_again();
                until(&|| progress.done.get() > 2).await;
                scrub.read_all_again();
                until(&|| scrub.checkpoint().last.is_some()).await;
                let late =
                    lab.space(&spaces, "late", Bytes::mib(2), Resiliency::Mirror { copies: 2 }).await?;
                lab.write(&late, 0, 1 << 20, 3).await?;
                spaces.flush().await?;
                assert!(scrub.checkpoint().last.is_some(), "the second lap has ended");
                for fill in 1..=3 {
                    places_of(&disk, 0..1536, fill).iter().for_each(|at| disk.rot(at + 77, 3));
                }
                scrub.read_all_again();
                Ok::<(), Any>(())
            };
            match either(work.as_mut(), requests).await {
                Either::First(is_at_end) => panic!("it ended before the requests: {is_at_end:?}"),
                Either::Second(requested) => requested?,
            }
            assert!(!scrub.is_complete());
            assert!(work.await? && scrub.is_complete());
            assert_eq!(spaces.scrubs().verify(&Progress::default()).await?.healed, 0, "damage was left out");
            scrub.read_all_again();
            assert!(!scrub.is_complete(), "a request after the end is lost");
            lab.check_and_close(Rc::clone(&spaces)).await
        })
        .unwrap();
}

/// Scenario: a bit of each block turns on one disk, and a scrub mends that on its way. At each of its checkpoints everything that was
/// mended before is flushed: a scrub that resumes there after a power cut does not read it again.
#[test]
fn what_was_mended_before_a_checkpoint_is_flushed() {
    let bench = bench(83);
    let disk = Rc::clone(&bench.disks[0]);
    bench
        .run(async move |lab| -> Outcome {
            let spaces = make(&lab).await?;
            places_of(&disk, 0..1536, 1).iter().for_each(|at| disk.rot(at + 77, 3));
            let scrub = Scrub::default();
            let mut checkpoints = 0;
            loop {
                let progress = Progress::default();
                let pending = RefCell::new(Vec::new());
                let stop = async {
                    sleep(lab.seams.clock.as_ref(), Duration::from_millis(200)).await;
                    progress.stop();
                    std::future::pending::<()>().await;
                };
                let work = spaces.scrubs().scrub(&scrub, &progress, |seen| {
                    pending.borrow_mut().push((seen.healed, disk.pending_writes().len()));
                });
                let Either::First(is_at_end) = either(work, stop).await else { unreachable!() };
                for (healed, pending) in pending.borrow().iter() {
                    checkpoints += u64::from(*healed > 0);
                    assert_eq!(*pending, 0, "writes that a power cut may take, of {healed} blocks mended");
                }
                if is_at_end? {
                    break;
                }
            }
            assert!(checkpoints > 2, "{checkpoints} checkpoints");
            assert_eq!(spaces.scrubs().verify(&Progress::default()).await?.healed, 0);
            lab.check_and_close(spaces).await
        })
        .unwrap();
}
