//! Members that come back as they were before, whether they vote or not: what stood on them then is never read as if it were
//! current, and no disk that kept what it was given is called old (docs/design/0027).
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_pool::ExcludeReason;
use dolmen_sim::{CrashState, Cut, Fate, FaultKind, Image, SimDisk, StateOptions};
use dolmen_space::{Progress, Resiliency, Space, Spaces};
use dolmen_units::{Bytes, DiskSlot};

use crate::harness::slow_disks::{CAPACITY, pause};
use crate::harness::{Bench, Lab, NotedHost, Outcome, read};

/// Four of them vote: those with the lowest numbers.
const DISKS: usize = 7;
const FIRST_WITHOUT_VOTE: usize = 4;
const ROWS: u64 = 6;
const PIECE: usize = 64 << 10;
const SPACES: [(&str, Resiliency); 2] =
    [("m", Resiliency::Mirror { copies: 2 }), ("p", Resiliency::Parity { parity: 1 })];
/// More than the time between two stamps.
const LONG_MS: u64 = 700_000;

fn slot(disk: usize) -> DiskSlot {
    DiskSlot(u16::try_from(disk).unwrap())
}

async fn fill(lab: &Lab, spaces: &Spaces, fill: u8) -> Outcome {
    for (name, _) in SPACES {
        let space = spaces.find(name)?;
        for row in 0..ROWS {
            lab.write(&space, row << 20, PIECE, fill).await?;
        }
    }
    spaces.flush().await?;
    Ok(())
}

async fn create(lab: &Lab) -> Result<Rc<Spaces>, Box<dyn std::error::Error>> {
    let spaces = lab.create().await?;
    for (name, resiliency) in SPACES {
        lab.space(&spaces, name, Bytes::mib(8), resiliency).await?;
    }
    Ok(spaces)
}

/// Writes everything, in a new pool or in the one that is there, and closes it.
async fn write_all(lab: Lab, what: u8) -> Outcome {
    let spaces = if what == 1 { create(&lab).await? } else { lab.open().await? };
    fill(&lab, &spaces, what).await?;
    spaces.close().await?;
    Ok(())
}

/// A closed pool of seven disks that was filled three times, and images of its disks from behind the first time.
fn filled(seed: u64) -> (Bench, Vec<Image>) {
    let bench = Bench::new(seed, DISKS, CAPACITY);
    bench.run(|lab| write_all(lab, 1)).unwrap();
    bench.world.kill();
    let images = bench.disks.iter().map(|disk| disk.truth()).collect();
    for what in 2..=3 {
        bench.run(|lab| write_all(lab, what)).unwrap();
        bench.world.kill();
    }
    (bench, images)
}

/// The same disks in a world of their own, with other content where an image is given.
fn copy_of(bench: &Bench, old: &[(usize, &Image)]) -> Rc<Bench> {
    let copy = Bench::new(12, 0, CAPACITY);
    let add = |(number, disk): (usize, &Rc<SimDisk>)| {
        let image = old.iter().find(|(old, _)| *old == number).map(|(_, image)| (*image).clone());
        copy.world.add_disk_with(disk.name(), disk.profile().clone(), image.unwrap_or_else(|| disk.truth()))
    };
    let disks = bench.disks.iter().enumerate().map(add).collect();
    Rc::new(Bench { arbiter: bench.arbiter.snapshot(), disks, ..copy })
}

/// Reads what was written last, or an error; how many pieces could be read.
async fn nothing_else_is_read(lab: &Lab, spaces: &Spaces, fills: &[u8]) -> Result<usize, String> {
    let mut count = 0;
    for (name, _) in SPACES {
        let space = spaces.find(name).map_err(|error| error.to_string())?;
        for row in 0..ROWS {
            if read(&space, row << 20, PIECE).await.is_ok() {
                is_one_of(lab, &space, row, fills).await?;
                count += 1;
            }
        }
    }
    Ok(count)
}

async fn is_one_of(lab: &Lab, space: &Space, row: u64, fills: &[u8]) -> Result<(), String> {
    let mut last = String::new();
    for what in fills {
        match lab.expect(space, row << 20, PIECE, *what).await {
            Ok(()) => return Ok(()),
            Err(error) => last = error.to_string(),
        }
    }
    Err(format!("{last}, and none of {fills:?}"))
}

/// The disks that do not take part, and that each of them is called old.
fn called_old(spaces: &Spaces) -> Result<BTreeSet<usize>, String> {
    let mut old = BTreeSet::new();
    for disk in spaces.pool().disks().into_iter().filter(|disk| !disk.is_present()) {
        if let Some(why) = disk.absence().unfit() {
            if !why.contains("as it was in epoch") {
                return Err(format!("{}: {why}", disk.name()));
            }
            old.insert(usize::from(disk.slot().0));
        }
    }
    Ok(old)
}

/// Opens the pool without the disk that is gone: those that are old are called so, and nothing of before is read.
fn verify(
    left: &Rc<Bench>,
    old: &[usize],
    freed: Option<usize>,
    fills: &'static [u8],
) -> Result<usize, String> {
    let expected: BTreeSet<usize> = old.iter().copied().collect();
    let pieces = Rc::new(Cell::new(0));
    let counted = Rc::clone(&pieces);
    let outcome = left.run_in(left.lab_with(|disk| Some(disk) != freed), async move |lab| {
        let spaces = lab.open().await?;
        let found = called_old(&spaces)?;
        if found != expected {
            return Err(format!("{found:?} are called old instead of {expected:?}").into());
        }
        counted.set(nothing_else_is_read(&lab, &spaces, fills).await?);
        lab.hold(spaces);
        Ok(())
    });
    left.world.kill();
    outcome.map(|()| pieces.get()).map_err(|error| error.to_string())
}

/// Scenario: while the pool is closed, some of its disks are put back as they were before it was opened the last two times: one,
/// two at once, all that have no vote, and one while another is gone. They are named, and nothing of before is read.
#[test]
fn whatever_disks_are_old_nothing_of_before_is_read() {
    let (bench, images) = filled(21);
    let cases: [(&[usize], Option<usize>); 12] = [
        (&[], None),
        (&[0], None),
        (&[6], None),
        (&[4, 5], None),
        (&[5, 6], None),
        (&[1, 4], None),
        (&[2, 3], None),
        (&[4, 5, 6], None),
        (&[4], Some(5)),
        (&[6], Some(4)),
        (&[6], Some(0)),
        (&[1], Some(6)),
    ];
    for (old, freed) in cases {
        let put: Vec<(usize, &Image)> = old.iter().map(|disk| (*disk, &images[*disk])).collect();
        let read = verify(&copy_of(&bench, &put), old, freed, &[3]);
        let read = read.unwrap_or_else(|error| panic!("{old:?} are old, {freed:?} is gone: {error}"));
        let lost = old.len() + usize::from(freed.is_some());
        let all = SPACES.len() * usize::try_from(ROWS).unwrap();
        assert!(read == all || lost > 1 && read > 0, "{read} of {all} with {old:?} old and {freed:?} gone");
    }
}

/// Scenario: an old disk without a vote stays left out by further openings, until somebody takes it back in. Then it gets
/// everything, takes part in the opening behind that, and any other disk may go.
#[test]
fn an_old_member_gets_all_of_it_when_it_is_taken_back_in() {
    let (bench, images) = filled(22);
    let old = 5;
    let bench = copy_of(&bench, &[(old, &images[old])]);
    for _ in 0..2 {
        assert_eq!(verify(&bench, &[old], None, &[3]), Ok(12));
    }
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            spaces.members().rejoin(outside.disks[old].attach(&outside.world)).await?;
            spaces.members().resync(&Progress::default()).await?;
            assert!(spaces.members().stale_rows().await?.is_empty());
            lab.check_and_close(spaces).await
        })
        .unwrap();
    bench.world.kill();
    for freed in (0..DISKS).filter(|disk| *disk != old) {
        let read = verify(&copy_of(&bench, &[]), &[], Some(freed), &[3]);
        assert_eq!(read, Ok(12), "{freed} is gone");
    }
}

/// Scenario: two disks are put back as they were at different times, the second one older, and are left out. They are taken back
/// in one after the other. Rows of which only these two have copies keep the content of the first: the second counted as a
/// holder while it was absent, and the first was overwritten with its content.
#[test]
fn of_two_old_disks_the_one_taken_back_in_first_is_kept() {
    let bench = Bench::new(29, DISKS, CAPACITY);
    let mut images = Vec::new();
    for what in 1..=3 {
        bench.run(|lab| write_all(lab, what)).unwrap();
        bench.world.kill();
        images.push(bench.disks.iter().map(|disk| disk.truth()).collect::<Vec<Image>>());
    }
    let pairs = (0..DISKS).flat_map(|second| (0..second).map(move |first| (first, second)));
    let kept = Rc::new(Cell::new(0));
    for (first, second) in pairs {
        let put = [(first, &images[1][first]), (second, &images[0][second])];
        let (left, count) = (copy_of(&bench, &put), Rc::clone(&kept));
        let outside = Rc::clone(&left);
        let outcome = left.run(async move |lab| {
            let spaces = lab.open().await?;
            assert_eq!(called_old(&spaces)?, BTreeSet::from([first, second]));
            for disk in [first, second] {
                spaces.members().rejoin(outside.disks[disk].attach(&outside.world)).await?;
                spaces.members().resync(&Progress::default()).await?;
            }
            let space = spaces.find("m")?;
            for row in 0..ROWS {
                is_one_of(&lab, &space, row, &[3, 2]).await?;
                count.set(count.get() + u64::from(lab.expect(&space, row << 20, PIECE, 2).await.is_ok()));
            }
            drop(space);
            lab.hold(spaces);
            Ok(())
        });
        left.world.kill();
        outcome.unwrap_or_else(|error| panic!("{first} and {second} are old: {error}"));
    }
    assert_eq!(kept.get(), ROWS, "each row has both copies on one pair of disks");
}

/// Leaves an open pool, which is written to without the disk, and comes back with what `content` makes of it; is filled then. The
/// pool as the crash leaves it.
fn back_while_open(old: usize, content: impl Fn(&SimDisk) -> Image + 'static) -> Rc<Bench> {
    let (bench, _) = filled(23);
    let bench = Rc::new(bench);
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            outside.disks[old].vanish();
            spaces.pool().exclude(slot(old), ExcludeReason::Asked).await?;
            // Some of it, so that a disk that was only absent is given this and no more.
            let space = spaces.find("m")?;
            lab.write(&space, 0, 4096, 3).await?;
            spaces.flush().await?;
            outside.disks[old].come_back();
            outside.disks[old].replace_content(content(&outside.disks[old]));
            spaces.members().rejoin(outside.disks[old].attach(&outside.world)).await?;
            spaces.members().resync(&Progress::default()).await?;
            assert!(spaces.members().stale_rows().await?.is_empty());
            drop(space);
            lab.hold(spaces);
            Ok(())
        })
        .unwrap();
    bench.world.kill();
    bench
}

/// Scenario: a disk leaves an open pool, and comes back older than it left. All of it is brought up to date: then any other
/// disk may go.
#[test]
fn a_disk_that_comes_back_older_than_it_left_gets_all_of_it() {
    for old in [1, 5] {
        let (_, images) = filled(23);
        let image = images[old].clone();
        let bench = back_while_open(old, move |_| image.clone());
        for freed in (0..DISKS).filter(|disk| *disk != old) {
            let read = verify(&copy_of(&bench, &[]), &[], Some(freed), &[3]);
            assert_eq!(read, Ok(12), "{old} was old, {freed} is gone");
        }
    }
}

/// Scenario: an image of a disk is taken while it is absent. The disk is back, and gets what it missed; the daemon is killed, and
/// the image is put back. It has the epoch and the label with which the disk left, and is told from the disk nevertheless.
#[test]
fn an_image_from_while_a_disk_was_absent_is_not_the_disk_that_came_back() {
    for old in [1, 5] {
        let taken = Rc::new(RefCell::new(None));
        let image = Rc::clone(&taken);
        let bench = back_while_open(old, move |disk| {
            *image.borrow_mut() = Some(disk.truth());
            disk.truth()
        });
        let image = taken.take().unwrap();
        assert_eq!(verify(&copy_of(&bench, &[(old, &image)]), &[old], None, &[3]), Ok(12));
        assert_eq!(verify(&copy_of(&bench, &[]), &[], None, &[3]), Ok(12));
    }
}

/// States that a crash at each step of a recording may have left, with the host's record of then: all that was in flight lost, and
/// all of it landed, or every other write.
fn states_of(host: &NotedHost, bench: &Bench, from: Cut) -> Vec<(CrashState, Rc<Bench>)> {
    let mut states = Vec::new();
    for cut in host.recorder().cuts().into_iter().filter(|cut| *cut >= from) {
        let count = host.recorder().pending(cut).len();
        // In turn, so that neighbours differ.
        let others = if cut.0 % 2 == 0 { [Fate::Landed, Fate::Landed] } else { [Fate::Landed, Fate::Lost] };
        for fates in [[Fate::Lost, Fate::Lost], others].into_iter().take(if count == 0 { 1 } else { 2 }) {
            let fates: Vec<Fate> = fates.into_iter().cycle().take(count).collect();
            let state = host.recorder().state(cut, &fates, &StateOptions::default());
            let left = Rc::new(host.left(&state, cut, bench));
            states.push((state, left));
        }
    }
    states
}

/// Opens what a crash has left, as it is and with old disks put back: none is called old but those.
fn verify_states(host: &NotedHost, bench: &Bench, from: Cut, old: &[(usize, Image)], fills: &'static [u8]) {
    let states = states_of(host, bench, from);
    assert!(states.len() > 20, "{} states are too few to tell", states.len());
    for (number, (state, left)) in states.iter().enumerate() {
        let sound = verify(&copy_of(left, &[]), &[], None, fills);
        sound.unwrap_or_else(|error| panic!("state {number}: {error}\n{state}"));
        for (disk, image) in old.iter().filter(|_| number % 3 == 0) {
            let verified = verify(&copy_of(left, &[(*disk, image)]), &[*disk], None, fills);
            verified.unwrap_or_else(|error| panic!("state {number}, {disk} is old: {error}\n{state}"));
        }
    }
}

/// Scenario: power fails at each step of an opening, and of the closing behind it. No disk is called old that has what it
/// was given, whichever labels have landed; and one from before the opening before that is called so in each of these states.
#[test]
fn power_cut_within_an_opening_or_its_end_calls_no_sound_disk_old_and_believes_no_old_one() {
    let (bench, images) = filled(24);
    let host = NotedHost::new(&bench);
    let from = host.recorder().now();
    let lab = Lab { noted: Some(Rc::clone(&host)), ..bench.lab() };
    bench
        .run_in(lab, async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("m")?;
            lab.write(&space, 0, PIECE, 4).await?;
            drop(space);
            spaces.close().await?;
            Ok(())
        })
        .unwrap();
    bench.world.kill();
    let old: Vec<(usize, Image)> =
        [FIRST_WITHOUT_VOTE].iter().map(|disk| (*disk, images[*disk].clone())).collect();
    verify_states(&host, &bench, from, &old, &[3, 4]);
}

/// Scenario: the pool is open for long, and images are taken of two disks meanwhile. They are put back behind a crash: a stamp has
/// come since. Without it, nothing would tell them from their disks. Power fails at each step of the stamp: no disk is called
/// old that has what it was given.
#[test]
fn a_stamp_distinguishes_images_taken_while_the_pool_is_open() {
    let (bench, _) = filled(25);
    let bench = Rc::new(bench);
    let host = NotedHost::new(&bench);
    let (outside, recorded) = (Rc::clone(&bench), Rc::clone(&host));
    let taken = Rc::new(RefCell::new((Vec::new(), Cut(0))));
    let note = Rc::clone(&taken);
    let lab = Lab { noted: Some(Rc::clone(&host)), ..bench.lab() };
    bench
        .run_in(lab, async move |lab| {
            let spaces = lab.open().await?;
            fill(&lab, &spaces, 4).await?;
            let images: Vec<(usize, Image)> =
                [1, 5].into_iter().map(|disk| (disk, outside.disks[disk].truth())).collect();
            fill(&lab, &spaces, 5).await?;
            pause(&lab, LONG_MS).await;
            *note.borrow_mut() = (images, recorded.recorder().now());
            let space = spaces.find("m")?;
            lab.write(&space, 7 << 20, 4096, 5).await?;
            // The stamp goes on beside whatever else is done.
            pause(&lab, 2000).await;
            drop(space);
            lab.hold(spaces);
            Ok(())
        })
        .unwrap();
    bench.world.kill();
    let (images, from) = taken.borrow().clone();
    for (disk, image) in &images {
        assert_eq!(verify(&copy_of(&bench, &[(*disk, image)]), &[*disk], None, &[5]), Ok(12));
    }
    verify_states(&host, &bench, from, &[], &[5]);
}

/// Scenario: a daemon is killed at each of many moments of its opening, again and again, and never comes to its end in between.
/// No disk is called old.
#[test]
fn openings_that_are_killed_again_and_again_call_no_disk_old() {
    let (bench, _) = filled(26);
    let bench = Rc::new(bench);
    for millis in (1..60).step_by(3) {
        let opening = bench.run(async move |lab| {
            let opener = lab.clone();
            let begun = async move {
                if let Ok(spaces) = opener.open().await {
                    opener.hold(spaces);
                }
            };
            lab.seams.spawner.spawn("opening", Box::pin(begun));
            pause(&lab, millis).await;
            Ok(())
        });
        opening.unwrap();
        bench.world.kill();
    }
    assert_eq!(verify(&bench, &[], None, &[3]), Ok(12));
}

/// Scenario: a disk without a vote fails while labels are written, at the end of a pool or in its midst. The pool goes on
/// without it, and no other disk is called old.
#[test]
fn a_stamp_that_fails_on_one_disk_stops_nothing() {
    for (disk, kind) in [(5, FaultKind::WriteError), (1, FaultKind::WriteError)] {
        let (bench, _) = filled(27);
        let bench = Rc::new(bench);
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.open().await?;
                fill(&lab, &spaces, 3).await?;
                pause(&lab, LONG_MS).await;
                outside.disks[disk].arm(kind);
                let space = spaces.find("m")?;
                lab.write(&space, 7 << 20, 4096, 3).await?;
                pause(&lab, 40_000).await;
                lab.write(&space, 7 << 20, 4096, 3).await?;
                drop(space);
                spaces.close().await?;
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{disk}, {kind:?}: {error}"));
        bench.world.kill();
        let read = verify(&copy_of(&bench, &[]), &[], None, &[3]);
        assert_eq!(read, Ok(12), "{disk}, {kind:?}");
    }
}

/// Scenario: a disk without a vote hangs when it is to be stamped. Meanwhile another disk leaves: that waits for no stamp.
#[test]
fn a_stamp_that_hangs_on_a_disk_holds_up_no_change_of_epoch() {
    let (bench, _) = filled(29);
    let bench = Rc::new(bench);
    let outside = Rc::clone(&bench);
    bench
        .run(async move |lab| {
            let spaces = lab.open().await?;
            fill(&lab, &spaces, 3).await?;
            pause(&lab, LONG_MS).await;
            outside.disks[5].arm(FaultKind::Hung);
            // Something for the log, and nothing for disk 5.
            lab.space(&spaces, "x", Bytes::mib(8), SPACES[0].1).await?;
            pause(&lab, 100).await;
            let before = lab.seams.clock.now();
            spaces.pool().exclude(slot(0), ExcludeReason::Asked).await?;
            assert!(lab.seams.clock.now().since(before).as_millis() < 1000);
            outside.disks[5].vanish();
            lab.hold(spaces);
            Ok(())
        })
        .unwrap();
}

/// Scenario: power fails at each step in which an old disk is taken back in. Until it counts it is called old; when it takes part,
/// it counts where it has what it lacked, and nowhere else, also when another disk is gone.
#[test]
fn power_cut_while_an_old_member_is_taken_back_in_believes_nothing_of_before() {
    let (bench, images) = filled(28);
    let old = 5;
    let bench = copy_of(&bench, &[(old, &images[old])]);
    let host = NotedHost::new(&bench);
    let (outside, recorded) = (Rc::clone(&bench), Rc::clone(&host));
    let begun = Rc::new(Cell::new(Cut(0)));
    let note = Rc::clone(&begun);
    let lab = Lab { noted: Some(Rc::clone(&host)), ..bench.lab() };
    bench
        .run_in(lab, async move |lab| {
            let spaces = lab.open().await?;
            note.set(recorded.recorder().now());
            spaces.members().rejoin(outside.disks[old].attach(&outside.world)).await?;
            lab.hold(spaces);
            Ok(())
        })
        .unwrap();
    bench.world.kill();
    let mut halted = [0; 2];
    for (number, (state, left)) in states_of(&host, &bench, begun.get()).iter().enumerate() {
        let is_old = verify(&copy_of(left, &[]), &[old], None, &[3]).is_ok();
        halted[usize::from(is_old)] += 1;
        let expected: &[usize] = if is_old { &[old] } else { &[] };
        for freed in [None, Some(4)] {
            let verified = verify(&copy_of(left, &[]), expected, freed, &[3]);
            verified.unwrap_or_else(|error| panic!("state {number}, {freed:?} is gone: {error}\n{state}"));
        }
    }
    assert!(halted.iter().all(|count| *count > 0), "{halted:?}");
}
