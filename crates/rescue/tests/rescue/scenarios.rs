//! Pools that lived, were damaged, and are rescued: what comes out is what was written, or is named.
//!
//! `DOLMEN_RESCUE_SEEDS` says how many lives are drawn of each kind.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::harness::{Bench, Kind, ROW, pattern};
use dolmen_block_io::BlockDevice;
use dolmen_buffer::ArenaConfig;
use dolmen_disk::Extent;
use dolmen_rescue::{
    BadKind, BadRange, Depth, Options, Piece, PointInTime, RescueError, RescueMode, open, scan,
};
use dolmen_sim::{DiskProfile, Image, Random, World};
use dolmen_space::{Layout, Progress, Resiliency, Segment, Space, Spaces};
use dolmen_units::Bytes;

const BLOCK: u64 = 4096;
const SIZE: Bytes = Bytes::mib(4);
const CAPACITY: Bytes = Bytes::mib(96);

const KINDS: [(Kind, usize); 6] = [
    (Kind::usual(Resiliency::Simple), 3),
    (Kind::usual(Resiliency::Mirror { copies: 2 }), 3),
    (Kind::usual(Resiliency::Mirror { copies: 3 }), 4),
    (Kind::strict(Resiliency::Mirror { copies: 2 }), 3),
    (Kind::usual(Resiliency::Parity { parity: 1 }), 4),
    (Kind::usual(Resiliency::Parity { parity: 2 }), 5),
];

fn seeds() -> u64 {
    std::env::var("DOLMEN_RESCUE_SEEDS").ok().map_or(2, |count| count.parse().unwrap())
}

/// What each block of the space may hold: every fill that it had, the last one at the end; 0 stands for zeros.
type Fills = BTreeMap<u64, Vec<u8>>;

/// A pool as it was left, by its disks.
struct LeftPool {
    images: Vec<Image>,
    fills: Fills,
}

/// How a life ends.
#[derive(Clone, Copy, PartialEq)]
enum End {
    /// All is in place, and tables are written back.
    Destaged,
    /// Closed with whatever lies in cache and log.
    Closed,
    /// The same, and the space is in the trash.
    InTrash,
}

/// What becomes of a space in the middle of its life, half of which was written by then.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    None,
    /// It is to have another layout, in which its later rows are; the earlier ones have not been moved.
    InProgress(Kind),
    /// It was given another layout.
    Converted(Kind),
}

/// Writes, flushes, discards and makes checkpoints for a while.
fn live(kind: Kind, disks: usize, seed: u64, end: End) -> LeftPool {
    live_through(kind, Change::None, disks, seed, end)
}

/// Begins a conversion, and brings it to its end if that is wanted.
async fn convert_to(spaces: &Spaces, space: &Space, change: Change) -> crate::harness::Outcome {
    let (Change::InProgress(kind) | Change::Converted(kind)) = change else { return Ok(()) };
    let layout = Layout { resiliency: kind.resiliency, integrity: kind.integrity, ..space.spec().layout() };
    let columns = matches!(kind.resiliency, Resiliency::Parity { .. }).then_some(2);
    spaces.conversions().begin_conversion(space, Layout { columns, ..layout }).await?;
    if matches!(change, Change::Converted(_)) {
        assert!(
            spaces.conversions().convert(space, &Progress::default()).await?,
            "the conversion came to its end"
        );
    }
    Ok(())
}

fn live_through(kind: Kind, change: Change, disks: usize, seed: u64, end: End) -> LeftPool {
    let bench = Bench::new(seed, disks, CAPACITY);
    let fills: Rc<RefCell<Fills>> = Rc::default();
    let noted = Rc::clone(&fills);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space_of_kind(&spaces, "data", SIZE, kind).await?;
            let mut random = Random::new(seed);
            for fill in 1..=60u8 {
                if fill == 31 {
                    convert_to(&spaces, &space, change).await?;
                }
                let reach = if change != Change::None && fill < 31 { ALL / 2 } else { ALL };
                let at = random.below(reach);
                let count = [1, 1, 2, 16, 48, 64][random.below(6) as usize].min(reach - at);
                let (mut from, mut count, mut with) = (at, count, fill);
                match random.below(10) {
                    0 => {
                        spaces.flush().await?;
                        continue;
                    }
                    1 => {
                        space.discard(at * BLOCK, count * BLOCK).await?;
                        with = 0;
                    }
                    2 => {
                        spaces.caches().destage().await?;
                        continue;
                    }
                    3 => {
                        spaces.pool().checkpoint().await?;
                        continue;
                    }
                    4 => {
                        from = at * BLOCK / ROW.0 * ROW.0 / BLOCK;
                        count = ROW.0 / BLOCK;
                        lab.write(&space, from * BLOCK, ROW.0 as usize, fill).await?;
                    }
                    _ => lab.write(&space, at * BLOCK, (count * BLOCK) as usize, fill).await?,
                }
                let mut noted = noted.borrow_mut();
                (from..from + count).for_each(|block| noted.entry(block).or_default().push(with));
            }
            spaces.flush().await?;
            if end == End::InTrash {
                spaces.trash().move_to_trash(&space, 1_000_000).await?;
            }
            drop(space);
            if end == End::Destaged {
                spaces.caches().destage().await?;
                spaces.pool().checkpoint().await?;
                spaces.pool().checkpoint().await?;
            }
            spaces.close().await?;
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{kind}, seed {seed}: {error}"));
    let images = bench.disks.iter().map(|disk| disk.truth()).collect();
    drop(bench);
    LeftPool { images, fills: Rc::try_unwrap(fills).unwrap().into_inner() }
}

/// What came out.
#[derive(Debug)]
struct Rescue {
    point_in_time: PointInTime,
    bytes: Vec<u8>,
    bad: Vec<BadRange>,
    notes: Vec<String>,
}

impl Rescue {
    fn bad_kind(&self, block: u64) -> Option<BadKind> {
        let at = block * BLOCK;
        let holds = |range: &&BadRange| range.at <= at && at < range.at + range.length.0;
        self.bad.iter().find(holds).map(|range| range.kind)
    }
}

/// Rescues the space `name` from some of the disks. Nothing is written to any.
fn rescue(
    images: &[Image],
    here: impl Fn(usize) -> bool,
    mode: RescueMode,
    name: &str,
) -> Result<Rescue, RescueError> {
    let world = World::new(77);
    world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
    let disks: Vec<_> = images
        .iter()
        .enumerate()
        .filter(|(number, _)| here(*number))
        .map(|(number, image)| {
            (image, world.add_disk_with(&format!("disk{number}"), DiskProfile::new(CAPACITY), image.clone()))
        })
        .collect();
    let devices: Vec<Rc<dyn BlockDevice>> = disks.iter().map(|(_, disk)| disk.attach(&world)).collect();
    let (seams, name) = (world.seams(), name.to_owned());
    let rescued = world.run(async move {
        let options = Options { pool: None, mode, space: Some(name.clone()) };
        let rescued = open(&seams, &devices, &options, &Progress::default()).await?;
        let mut export = rescued.export(&name).await?;
        let mut bytes = vec![0; export.size().0 as usize];
        while let Some(piece) = export.next().await {
            let Piece::Data { at, segments } = piece else { continue };
            let mut at = at as usize;
            for segment in &segments {
                if let Segment::Data(data) = segment {
                    bytes[at..at + data.len()].copy_from_slice(data);
                }
                at += segment.len();
            }
        }
        let notes = rescued.notes.iter().map(|note| note.0.clone()).collect();
        let rescue = Rescue { point_in_time: rescued.point_in_time, bytes, bad: export.bad(), notes };
        drop(export);
        rescued.close().await;
        Ok(rescue)
    });
    for (image, disk) in &disks {
        assert_eq!(image.first_difference(&disk.truth(), CAPACITY.0), None, "{} was written", disk.name());
    }
    rescued.unwrap()
}

fn is_filled(block: u64, fill: u8, bytes: &[u8]) -> bool {
    let mut expected = vec![0; BLOCK as usize];
    pattern(block * BLOCK, fill, &mut expected);
    expected == bytes
}

/// How a block that was given, and is not called bad, compares with what was written.
#[derive(Debug, PartialEq)]
enum Verdict {
    Right,
    Older,
    Wrong,
}

fn compare(fills: &Fills, block: u64, bytes: &[u8]) -> Verdict {
    let all = fills.get(&block).cloned().unwrap_or_default();
    let last = all.last().copied().unwrap_or(0);
    if is_filled(block, last, bytes) {
        Verdict::Right
    } else if is_filled(block, 0, bytes) || all.iter().any(|fill| is_filled(block, *fill, bytes)) {
        Verdict::Older
    } else {
        Verdict::Wrong
    }
}

/// Blocks that were given: how many are right, older, and called bad. None is wrong.
fn verify(fills: &Fills, rescue: &Rescue, what: &str) -> (u64, u64, u64) {
    let (mut right, mut older, mut bad) = (0, 0, 0);
    for (block, bytes) in (0u64..).zip(rescue.bytes.chunks(BLOCK as usize)).take((SIZE.0 / BLOCK) as usize) {
        if rescue.bad_kind(block).is_some() {
            bad += 1;
            continue;
        }
        match compare(fills, block, bytes) {
            Verdict::Right => right += 1,
            Verdict::Older => older += 1,
            Verdict::Wrong => panic!("{what}: block {block} is wrong"),
        }
    }
    (right, older, bad)
}

/// Overwrites labels and metadata with zeros: everything but the allocation units.
fn without_metadata(images: &[Image]) -> Vec<Image> {
    let extent = Extent::of(CAPACITY).unwrap();
    let mut images = images.to_vec();
    for image in &mut images {
        zero(image, 0..extent.data_start);
        zero(image, extent.data_end..CAPACITY.0);
    }
    images
}

fn zero(image: &mut Image, range: std::ops::Range<u64>) {
    let zeros = vec![0; 64 * 1024];
    for at in range.clone().step_by(zeros.len()) {
        let length = (range.end - at).min(zeros.len() as u64) as usize;
        image.write(at, &zeros[..length]);
    }
}

fn redundancy(kind: Kind) -> usize {
    usize::from(kind.resiliency.redundancy())
}

const ALL: u64 = SIZE.0 / BLOCK;

#[test]
fn the_present_is_what_was_written_also_without_as_many_disks_as_may_be_lost() {
    // Scenario: a pool is closed with whatever lies in its cache and log. All of it comes out, with all disks, and without as
    // many as the space survives the loss of.
    for seed in 1..=seeds() {
        for (kind, disks) in KINDS {
            let left = live(kind, disks, seed, End::Closed);
            for gone in 0..=redundancy(kind) {
                let what = format!("{kind}, seed {seed}, without {gone}");
                let rescued =
                    rescue(&left.images, |number| number >= gone, RescueMode::Present, "data").unwrap();
                assert_eq!(rescued.point_in_time, PointInTime::Present);
                assert_eq!(verify(&left.fills, &rescued, &what), (ALL, 0, 0), "{what}: {:?}", rescued.bad);
            }
        }
    }
}

/// Layouts that a space with another one can be given on as many disks.
const CHANGES: [(Kind, Kind, usize); 4] = [
    (Kind::usual(Resiliency::Mirror { copies: 2 }), Kind::usual(Resiliency::Parity { parity: 1 }), 4),
    (Kind::usual(Resiliency::Parity { parity: 1 }), Kind::usual(Resiliency::Mirror { copies: 3 }), 4),
    (Kind::usual(Resiliency::Parity { parity: 2 }), Kind::strict(Resiliency::Mirror { copies: 2 }), 5),
    (Kind::usual(Resiliency::Simple), Kind::usual(Resiliency::Parity { parity: 2 }), 5),
];

#[test]
fn what_was_converted_or_is_on_its_way_is_what_was_written() {
    // Scenario: a space has rows of two layouts, or had, when its pool is closed. All of it comes out: by the map, also without as
    // many disks as both layouts survive the loss of, and from the slabs alone.
    for seed in 1..=seeds() {
        for (before, after, disks) in CHANGES {
            for change in [Change::InProgress(after), Change::Converted(after)] {
                let mode =
                    if matches!(change, Change::Converted(_)) { "converted to" } else { "on its way to" };
                let may_go = match change {
                    Change::Converted(_) => redundancy(after),
                    _ => redundancy(before).min(redundancy(after)),
                };
                let closed = live_through(before, change, disks, seed, End::Closed);
                let in_place = live_through(before, change, disks, seed, End::Destaged);
                let slabs = without_metadata(&in_place.images);
                for gone in 0..=may_go {
                    let what = format!("{before} {mode} {after}, seed {seed}, without {gone}");
                    let here = |number| number >= gone;
                    let present = rescue(&closed.images, here, RescueMode::Present, "data");
                    let present = present.unwrap_or_else(|error| panic!("{what}: {error:?}"));
                    assert_eq!(
                        verify(&closed.fills, &present, &what),
                        (ALL, 0, 0),
                        "{what}: {:?}",
                        present.bad
                    );
                    let found = rescue(&slabs, here, RescueMode::Slabs, "space-1");
                    let found = found.unwrap_or_else(|error| panic!("{what}, slabs: {error:?}"));
                    let verified = verify(&in_place.fills, &found, &what);
                    assert_eq!(verified, (ALL, 0, 0), "{what}, slabs: {:?}", found.bad);
                }
            }
        }
    }
}

#[test]
fn what_is_in_the_trash_is_what_was_written() {
    for (kind, disks) in KINDS {
        let left = live(kind, disks, 1, End::InTrash);
        for gone in 0..=redundancy(kind) {
            let what = format!("{kind}, without {gone}");
            let rescued = rescue(&left.images, |number| number >= gone, RescueMode::Present, "data");
            let rescued = rescued.unwrap_or_else(|error| panic!("{what}: {error:?}"));
            assert_eq!(verify(&left.fills, &rescued, &what), (ALL, 0, 0), "{what}: {:?}", rescued.bad);
        }
    }
}

#[test]
fn slabs_alone_give_all_that_was_in_place() {
    // Scenario: labels, map and log of every disk are zeros. What was in place with its tables written back comes out, with all
    // disks and without as many as may be lost. Nobody knows the name of the space.
    for seed in 1..=seeds() {
        for (kind, disks) in KINDS {
            let left = live(kind, disks, seed, End::Destaged);
            let images = without_metadata(&left.images);
            for gone in 0..=redundancy(kind) {
                let what = format!("{kind}, seed {seed}, without {gone}");
                let rescued = rescue(&images, |number| number >= gone, RescueMode::Slabs, "space-1");
                let rescued = rescued.unwrap_or_else(|error| panic!("{what}: {error:?}"));
                assert_eq!(rescued.point_in_time, PointInTime::Slabs);
                assert_eq!(
                    verify(&left.fills, &rescued, &what),
                    (ALL, 0, 0),
                    "{what}: {rescued_bad:?}",
                    rescued_bad = rescued.bad
                );
            }
        }
    }
}

#[test]
fn slabs_alone_without_too_many_disks_name_what_is_lost() {
    for (kind, disks) in KINDS {
        let left = live(kind, disks, 5, End::Destaged);
        let images = without_metadata(&left.images);
        let gone = redundancy(kind) + 1;
        let what = format!("{kind} without {gone}");
        // Where all that was left is nothing, it says so.
        if let Ok(rescued) = rescue(&images, |number| number >= gone, RescueMode::Slabs, "space-1") {
            let (right, older, bad) = verify(&left.fills, &rescued, &what);
            assert_eq!(older, 0, "{what}: {right} are right, {bad} bad");
        }
    }
}

#[test]
fn slabs_with_bits_turned_give_nothing_wrong() {
    // Scenario: all metadata is gone, and bits have turned anywhere in what is stored. Each block is what was written or is named.
    for seed in 1..=2 * seeds() {
        for (kind, disks) in KINDS {
            let left = live(kind, disks, 3, End::Destaged);
            let mut images = without_metadata(&left.images);
            let mut random = Random::new(seed);
            let data = Extent::of(CAPACITY).unwrap();
            // What is stored lies at the front of the allocation units.
            let used = 8 << 20;
            for _ in 0..4 + 40 * (seed % 2) {
                let image = &mut images[random.below(disks as u64) as usize];
                image.flip_bit(data.data_start + random.below(used), random.below(8) as u8);
            }
            let what = format!("{kind}, seed {seed}");
            let rescued = rescue(&images, |_| true, RescueMode::Slabs, "space-1");
            let rescued = rescued.unwrap_or_else(|error| panic!("{what}: {error:?}"));
            let (right, older, bad) = verify(&left.fills, &rescued, &what);
            assert_eq!(older, 0, "{what}: {right} right, {bad} bad: {:?}", rescued.notes);
        }
    }
}

/// The numbers of the checkpoints that the disks have.
fn checkpoints(images: &[Image]) -> Vec<(u64, bool)> {
    let world = World::new(78);
    world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
    let disks: Vec<_> = images
        .iter()
        .map(|image| world.add_disk_with("disk", DiskProfile::new(CAPACITY), image.clone()))
        .collect();
    let devices: Vec<Rc<dyn BlockDevice>> = disks.iter().map(|disk| disk.attach(&world)).collect();
    let seams = world.seams();
    let scanned = world
        .run(async move { scan(&seams, &devices, Depth::Metadata, &Progress::default()).await })
        .unwrap();
    let of = |pool: &dolmen_rescue::PoolScan| {
        let checkpoints = pool.checkpoints.iter();
        checkpoints.map(|one| (one.sequence, one.is_whole)).collect::<Vec<_>>()
    };
    scanned.pools.iter().flat_map(of).collect()
}

/// Where log and pages are on every disk of these sizes.
fn areas() -> (std::ops::Range<u64>, std::ops::Range<u64>) {
    let (log, pages) = dolmen_pool::metadata_lengths(Extent::of(CAPACITY).unwrap().metadata);
    let (ring, area) = dolmen_pool::areas(log, pages);
    (ring.at..ring.at + ring.length, area.pages_at..area.pages_at + area.pages_length)
}

#[test]
fn an_older_checkpoint_gives_the_present_with_the_log_and_its_own_time_without() {
    // Scenario: a pool has two checkpoints. At either, with all of the log from there, all that was written comes out. Without
    // the log, each block is what it was at some time, or is named.
    let mut replayed = 0;
    for seed in 1..=seeds() {
        for (kind, disks) in KINDS {
            let left = live(kind, disks, seed, End::Closed);
            let found = checkpoints(&left.images);
            assert!(found.iter().all(|(_, is_whole)| *is_whole), "{kind}, seed {seed}: {found:?}");
            let (ring, _) = areas();
            let mut cut = left.images.clone();
            cut.iter_mut().for_each(|image| zero(image, ring.clone()));
            for (sequence, _) in &found {
                let what = format!("{kind}, seed {seed}, at {sequence} of {found:?}");
                let rescued = rescue(&left.images, |_| true, RescueMode::At(*sequence), "data").unwrap();
                let verified = verify(&left.fills, &rescued, &what);
                if rescued.point_in_time == (PointInTime::Replayed { sequence: *sequence }) {
                    assert_eq!(verified, (ALL, 0, 0), "{what}: {:?}", rescued.notes);
                    replayed += u64::from(*sequence < found.last().unwrap().0);
                }
                // The space may have been made since.
                match rescue(&cut, |_| true, RescueMode::At(*sequence), "data") {
                    Ok(rescued) => {
                        verify(&left.fills, &rescued, &what);
                    }
                    Err(RescueError::NoSuchSpace { .. }) => {}
                    Err(error) => panic!("{what}: {error:?}"),
                }
            }
            if let Ok(rescued) = rescue(&cut, |_| true, RescueMode::WithoutLog, "data") {
                assert_eq!(
                    rescued.point_in_time,
                    PointInTime::Checkpoint { sequence: found.last().unwrap().0 }
                );
                verify(&left.fills, &rescued, &format!("{kind}, seed {seed}, without log"));
            }
        }
    }
    assert!(replayed > 0, "no older checkpoint had all of its log");
}

#[test]
fn a_map_that_rotted_everywhere_gives_way_to_an_older_one() {
    // Scenario: all pages that the newest checkpoint wrote have rotted on every disk. The pool does not open, and says what may do.
    let mut rescued_count = 0;
    for (kind, disks) in KINDS {
        let mut left = live(kind, disks, 2, End::Closed);
        let found = checkpoints(&left.images);
        let (older, newest) = (found[0].0, found[1].0);
        let (_, pages) = areas();
        for image in &mut left.images {
            for at in pages.clone().step_by(16 * 1024) {
                let mut head = [0; 64];
                image.read(at, &mut head);
                if head.starts_with(b"DOLMENPG") && head[48..56] == newest.to_le_bytes() {
                    image.flip_bit(at + 100, 3);
                }
            }
        }
        match rescue(&left.images, |_| true, RescueMode::Present, "data") {
            Err(RescueError::Open { advice, .. }) => assert!(advice.contains("--at"), "{kind}: {advice}"),
            other => panic!("{kind}: {:?}", other.map(|rescued| rescued.point_in_time)),
        }
        assert_eq!(checkpoints(&left.images), [(older, true), (newest, false)], "{kind}");
        let rescued = rescue(&left.images, |_| true, RescueMode::At(older), "data").unwrap();
        let verified = verify(&left.fills, &rescued, &kind.to_string());
        if rescued.point_in_time == (PointInTime::Replayed { sequence: older }) {
            assert_eq!(verified, (ALL, 0, 0), "{kind}");
            rescued_count += 1;
        }
        let newer = rescue(&left.images, |_| true, RescueMode::At(newest), "data");
        assert!(matches!(newer, Err(RescueError::Map { .. })), "{kind}");
    }
    assert!(rescued_count > 0, "nothing came out whole");
}

#[test]
fn a_slab_that_missed_writes_is_not_believed_although_no_map_says_so() {
    // Scenario: a disk of a mirror is away while blocks are written over and their tables written back. Then all metadata is lost.
    // With all disks, what was written last comes out; with bits turned in the tables of the disk that has it, nothing older does.
    let kind = Kind::usual(Resiliency::Mirror { copies: 2 });
    let bench = Bench::new(9, 2, CAPACITY);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space_of_kind(&spaces, "data", SIZE, kind).await?;
            for at in (0..SIZE.0).step_by(1 << 20) {
                lab.write(&space, at, 1 << 20, 1).await?;
            }
            spaces.flush().await?;
            spaces.pool().checkpoint().await?;
            drop(space);
            Ok(spaces.close().await?)
        })
        .unwrap();
    bench
        .run_in(bench.lab_with(|disk| disk == 1), async move |lab| {
            let spaces = lab.open().await?;
            let space = spaces.find("data")?;
            for fill in [2, 3] {
                lab.write(&space, 0, 1 << 20, fill).await?;
                spaces.flush().await?;
                spaces.pool().checkpoint().await?;
            }
            drop(space);
            Ok(spaces.close().await?)
        })
        .unwrap();
    let images: Vec<Image> = bench.disks.iter().map(|disk| disk.truth()).collect();
    let fills: Fills =
        (0..ALL).map(|block| (block, if block < 256 { vec![1, 2, 3] } else { vec![1] })).collect();
    let bare = without_metadata(&images);
    let rescued = rescue(&bare, |_| true, RescueMode::Slabs, "space-1").unwrap();
    assert_eq!(verify(&fills, &rescued, "both"), (ALL, 0, 0), "{:?}", rescued.bad);
    let mut torn = bare.clone();
    let mut tables = 0;
    let data = Extent::of(CAPACITY).unwrap();
    for at in (data.data_start..data.data_start + (8 << 20)).step_by(4096) {
        let mut head = [0; 64];
        torn[1].read(at, &mut head);
        if head.starts_with(b"DTAB") {
            torn[1].flip_bit(at + 80, 0);
            tables += 1;
        }
    }
    assert!(tables > 0);
    let rescued = rescue(&torn, |_| true, RescueMode::Slabs, "space-1").unwrap();
    let (right, older, bad) = verify(&fills, &rescued, "torn");
    assert_eq!(older, 0, "{right} right, {bad} bad or doubtful of {tables} torn table pages");
    assert!(rescued.bad_kind(0).is_some(), "nobody can tell that what is left is the newest");
}

#[test]
fn a_label_lost_on_one_disk_is_made_up_from_its_checkpoint() {
    // Scenario: one disk of a simple space has lost its labels, and nothing else. The others tell who it must be.
    let kind = Kind::usual(Resiliency::Simple);
    let left = live(kind, 3, 1, End::Closed);
    let mut images = left.images.clone();
    let extent = Extent::of(CAPACITY).unwrap();
    zero(&mut images[1], 0..1 << 20);
    zero(&mut images[1], extent.data_end..CAPACITY.0);
    let rescued = rescue(&images, |_| true, RescueMode::Present, "data").unwrap();
    assert_eq!(verify(&left.fills, &rescued, "adopted"), (ALL, 0, 0), "{:?}", rescued.notes);
    assert!(rescued.notes.iter().any(|note| note.contains("is taken for that")), "{:?}", rescued.notes);
}

#[test]
fn garbage_is_no_pool() {
    // Scenario: disks of noise, of zeros, and of structures with wrong checksums: an error in words, for every way.
    let mut random = Random::new(4);
    let left = live(Kind::usual(Resiliency::Simple), 2, 1, End::Destaged);
    for round in 0..3 {
        let mut images = vec![Image::new(), Image::new()];
        for image in &mut images {
            let mut bytes = vec![0; 4 << 20];
            if round == 1 {
                bytes.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
            }
            image.write(0, &bytes);
        }
        if round == 2 {
            images = left.images.clone();
            for image in &mut images {
                for at in (0..CAPACITY.0).step_by(4096) {
                    let mut head = [0; 8];
                    image.read(at, &mut head);
                    if head.starts_with(b"DOLM") {
                        image.flip_bit(at + 1000, 1);
                    }
                }
            }
        }
        for mode in [RescueMode::Present, RescueMode::At(1), RescueMode::WithoutLog, RescueMode::Slabs] {
            let rescued = rescue(&images, |_| true, mode, "data");
            assert!(matches!(rescued, Err(RescueError::Nothing { .. })), "{round}, {mode:?}: {rescued:?}");
        }
        assert_eq!(checkpoints(&images), []);
    }
}

#[test]
fn of_two_incarnations_of_a_row_the_later_counts() {
    // Scenario: a row is discarded as a whole and rewritten elsewhere, so that headers of both are on the disks. Slabs alone
    // give what was written last.
    let kind = Kind::usual(Resiliency::Simple);
    let bench = Bench::new(11, 3, CAPACITY);
    bench
        .run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space_of_kind(&spaces, "data", ROW, kind).await?;
            for fill in 1..=4 {
                lab.write(&space, 0, ROW.0 as usize, fill).await?;
                spaces.flush().await?;
                spaces.pool().checkpoint().await?;
                if fill < 4 {
                    space.discard(0, ROW.0).await?;
                    spaces.flush().await?;
                    spaces.pool().checkpoint().await?;
                }
            }
            drop(space);
            Ok(spaces.close().await?)
        })
        .unwrap();
    let images: Vec<Image> = bench.disks.iter().map(|disk| disk.truth()).collect();
    let mut incarnations = std::collections::BTreeSet::new();
    for image in &images {
        for at in (0..CAPACITY.0).step_by(4096) {
            let mut head = [0; 64];
            image.read(at, &mut head);
            if head.starts_with(b"DOLMENSL") {
                incarnations.insert(head[56..64].to_vec());
            }
        }
    }
    assert!(incarnations.len() > 1, "no header of an earlier incarnation is left");
    let rescued = rescue(&without_metadata(&images), |_| true, RescueMode::Slabs, "space-1").unwrap();
    assert!(rescued.bad.is_empty(), "{:?}", rescued.bad);
    for (block, bytes) in (0u64..).zip(rescued.bytes.chunks(BLOCK as usize)) {
        assert!(is_filled(block, 4, bytes), "block {block} is not what was written last");
    }
}
