//! The golden images: pools that come through everything the format has. Until 1.0 each run makes them.
//!
//! `DOLMEN_GOLDEN_FOLDER` writes them into a folder, for other readers. A bit turns in each structure of each image,
//! and `DOLMEN_GOLDEN_BITS` more anywhere in what is stored on each; with `all`, one in each block in which anything is stored, and
//! one in each byte with which a block of each structure begins. `DOLMEN_GOLDEN_SEED` draws others; `DOLMEN_GOLDEN_FLIP` takes one
//! of them alone, by the name that a failure tells, and `DOLMEN_GOLDEN_IMAGE` those of one image.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    clippy::disallowed_methods
)] // a test may fail, print its figures, and read its files

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dolmen_checksum::crc64;
use dolmen_pool::{OpenMode, keys};
use dolmen_sim::Random;
use dolmen_space::{Progress, Resiliency, Spaces};
use dolmen_units::Bytes;

use crate::golden::bit_flips::{BitFlip, Fate, Findings, draw, fate, verify};
use crate::golden::content::{Content, SpaceContent, attributes_of, fill_blocks};
use crate::golden::make::{EVERY_KIND, SHADOWS, SLOTS, STRICT, Set, StoredSet};
use crate::golden::places::{Place, Structure, row_of, stale_disks, used};
use crate::golden::read::{expect_all, expect_spaces, read_all};
use crate::golden::{BLOCK, Disk, Golden, stored};
use crate::harness::{Bench, Lab, Outcome};

/// What a block says first, where its version stands, in how many bytes, and which that is in format 3.
const VERSIONS: [(&[u8], usize, usize, u64); 6] = [
    (b"DOLMENLB", 8, 4, 4),
    (b"DOLMENCP", 8, 4, 1),
    (b"DOLMENPG", 16, 4, 1),
    (b"DOLMNLOG", 17, 1, 1),
    (b"DOLMENSL", 84, 2, 1),
    (b"DTAB", 4, 2, 1),
];
/// The sets of images.
static SETS: [&Set; 4] = [&EVERY_KIND, &STRICT, &SHADOWS, &SLOTS];
/// Bits that turn on each image beside those in each structure.
const BITS: u64 = 8;
/// Bytes with which a structure says what it is: each of them has its turn where all bits are asked for.
const HEAD_BYTES: usize = 128;
/// Content of blocks that tests write, unlike that of any image.
const NEW: u16 = 60_000;

/// All images, with their names.
fn images() -> Vec<(String, Golden)> {
    SETS.iter().flat_map(|set| set.images()).collect()
}

/// Images as an earlier build made them, which the repository keeps.
fn kept() -> Vec<(String, Golden)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/images");
    let read = |file: String| {
        let hint = "crates/space/tests/golden/README.md says how the images are made";
        std::fs::read(folder.join(&file)).unwrap_or_else(|error| panic!("{file}: {error}; {hint}"))
    };
    let of_set = |set: &&Set| {
        let set = set.name;
        stored::unpack(&read(format!("{set}.images"))).into_iter().map(move |(image, disks)| {
            let content = String::from_utf8(read(format!("{set}-{image}.content"))).unwrap();
            (format!("kept {set}-{image}"), Golden { disks, content: Content::parse(&content) })
        })
    };
    SETS.iter().flat_map(of_set).collect()
}

/// Writes images for other readers, where there are none. What is there stays as it is.
#[test]
fn images_are_made_only_where_there_are_none() {
    let Some(folder) = std::env::var_os("DOLMEN_GOLDEN_FOLDER").map(PathBuf::from) else { return };
    std::fs::create_dir_all(&folder).unwrap();
    let files = SETS.iter().flat_map(|set| {
        let StoredSet { images, contents } = set.stored();
        let contents = contents
            .iter()
            .map(|(name, content)| (format!("{}-{name}.content", set.name), content.as_bytes()));
        contents.chain([(format!("{}.images", set.name), images.as_slice())])
    });
    for (name, bytes) in files {
        println!("(\"{name}\", 0x{:016x}), {} bytes", crc64(bytes), bytes.len());
        match std::fs::OpenOptions::new().write(true).create_new(true).open(folder.join(&name)) {
            Ok(mut file) => std::io::Write::write_all(&mut file, bytes).unwrap(),
            Err(error) => println!("{name} is left as it is: {error}"),
        }
    }
}

/// Each image is opened without each of its disks: what survives that, beside disks that miss something already, is all there,
/// and nothing is wrong of the rest.
#[test]
fn every_image_can_be_read_without_any_one_of_its_disks() {
    for (name, golden) in images() {
        for freed in 0..golden.disks.len() {
            let bench = golden.bench(4);
            let content = golden.content.clone();
            let lab = bench.lab_with(|disk| disk != freed);
            let run = bench.run_in(lab, async move |lab| {
                let spaces = lab.open().await?;
                let mut lacking = stale_disks(&spaces).await?;
                lacking.insert(freed);
                let report = read_all(&spaces, &content).await?;
                assert_eq!((report.wrong, report.older), Default::default());
                for expected in &content.spaces {
                    let redundancy = spaces.find(&expected.name)?.spec().resiliency.redundancy();
                    let lost = report.errors.iter().filter(|(number, _)| *number == expected.number).count();
                    assert!(
                        lost == 0 || usize::from(redundancy) < lacking.len(),
                        "{lost} blocks of {} are lost without disks {lacking:?}",
                        expected.name
                    );
                }
                spaces.close().await?;
                Ok(())
            });
            run.unwrap_or_else(|error| panic!("{name} without disk {freed}: {error}"));
        }
    }
}

/// Whole number in the environment.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().map_or(usual, |number| number.parse().unwrap())
}

/// A bit to turn on an image, by its place among them, and how a failure names it.
struct FlippedBit {
    image: usize,
    name: String,
    flip: BitFlip,
}

/// Bits of all images: in each structure of each, and so many more in all that is stored on each, or, without a count, in each
/// block of that and in each byte of a head of each structure.
fn bits(count: Option<u64>, seed: u64) -> Vec<FlippedBit> {
    let mut bits = Vec::new();
    let only = std::env::var("DOLMEN_GOLDEN_IMAGE").ok();
    let is_wanted = |name: &String| only.as_ref().is_none_or(|only| only == name);
    for (image, (name, golden)) in images().into_iter().enumerate().filter(|(_, (name, _))| is_wanted(name)) {
        let places = golden.places();
        let in_flight = golden.in_flight();
        let mut add = |of: String, places: &[Place], byte: Option<usize>, seed: u64| {
            let mut flip = draw(places, &mut Random::new(seed));
            flip.byte = byte.unwrap_or(flip.byte);
            flip.is_in_flight = flip.place.holds.is_some_and(|block| in_flight.contains(&block));
            bits.push(FlippedBit { image, name: format!("{name}-{of}"), flip });
        };
        for structure in Structure::ALL {
            let is_of = |place: &&Place| place.structure == structure;
            let of: Vec<Place> = places.iter().filter(is_of).cloned().collect();
            if of.is_empty() {
                continue;
            }
            let seed = seed ^ (structure as u64) << 32;
            add(format!("{structure:?}"), &of, None, seed);
            for byte in 0..if count.is_none() { HEAD_BYTES } else { 0 } {
                add(format!("{structure:?}-{byte}"), &of, Some(byte), seed ^ byte as u64);
            }
        }
        let used = used(&golden, &places);
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match count {
            Some(count) => (0..count).for_each(|nth| add(nth.to_string(), &used, None, seed ^ nth)),
            None => (0..).zip(&used).for_each(|(nth, place)| {
                add(format!("block-{nth}"), std::slice::from_ref(place), None, seed ^ nth);
            }),
        }
    }
    bits
}

/// What became of bits that turned, and what is wrong with it.
#[derive(Default)]
struct Outcomes {
    fates: Vec<(Structure, Fate)>,
    wrong: Vec<String>,
}

/// Flips each of some bits by itself, and checks the outcome.
fn check_each<'a>(bits: impl Iterator<Item = &'a FlippedBit>, seed: u64) -> Outcomes {
    let images = images();
    let mut outcomes = Outcomes::default();
    for FlippedBit { image, name, flip } in bits {
        let (_, golden) = &images[*image];
        let bench = golden.with(flip).bench(seed);
        let (content, findings) = (golden.content.clone(), Rc::new(RefCell::new(Findings::default())));
        let (note, flipped_bit) = (Rc::clone(&findings), flip.clone());
        let run = bench.run(async move |lab| {
            *note.borrow_mut() = verify(lab, content, flipped_bit).await?;
            Ok(())
        });
        let run = run.map_err(|error| error.to_string());
        match run.and_then(|()| fate(golden, flip, &bench, &findings.borrow())) {
            Ok(fate) => outcomes.fates.push((flip.place.structure, fate)),
            Err(error) => {
                let again = format!("DOLMEN_GOLDEN_SEED={seed} DOLMEN_GOLDEN_FLIP={name}");
                outcomes.wrong.push(format!("{again}: {error}; {}", flip.text()));
            }
        }
    }
    outcomes
}

/// Scenario: a bit turns somewhere on a disk: in every kind of structure in turn, and anywhere in what is stored. The pool opens,
/// nothing wrong is believed, before and behind a verification, and nothing is lost of which there is another copy, or parity.
/// In the end the bit is healed, or what it took along is named, or it is where nobody needs what stands there.
#[test]
fn a_bit_flip_anywhere_is_healed_or_named() {
    let is_all = std::env::var("DOLMEN_GOLDEN_BITS").is_ok_and(|bits| bits == "all");
    let count = (!is_all).then(|| number("DOLMEN_GOLDEN_BITS", BITS));
    let seed = number("DOLMEN_GOLDEN_SEED", 1);
    let only = std::env::var("DOLMEN_GOLDEN_FLIP").ok();
    println!("DOLMEN_GOLDEN_SEED={seed}");
    let bits = bits(count, seed);
    let meant: Vec<&FlippedBit> =
        bits.iter().filter(|one| only.as_ref().is_none_or(|only| *only == one.name)).collect();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let work = |worker: usize| check_each(meant.iter().copied().skip(worker).step_by(workers), seed);
    let all: Vec<Outcomes> = std::thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let mut fates: BTreeMap<(Structure, Fate), u64> = BTreeMap::new();
    all.iter().flat_map(|one| &one.fates).for_each(|fate| *fates.entry(fate.clone()).or_default() += 1);
    fates.iter().for_each(|((structure, fate), count)| println!("{count} {structure:?}: {fate:?}"));
    let wrong: Vec<&String> = all.iter().flat_map(|one| &one.wrong).collect();
    assert!(wrong.is_empty(), "{} bits: {wrong:#?}", wrong.len());
    if only.is_none() && std::env::var_os("DOLMEN_GOLDEN_IMAGE").is_none() {
        let seen: BTreeSet<Structure> = fates.into_keys().map(|(structure, _)| structure).collect();
        assert_eq!(seen, Structure::ALL.into_iter().collect(), "every structure is on some image");
    }
}

/// Each image is opened to look at it only: every byte of every space is what was written, and nothing is written.
#[test]
fn every_image_can_be_looked_at() {
    for (name, golden) in images() {
        let bench = golden.bench(1);
        let content = golden.content.clone();
        bench
            .run(async move |lab| {
                let spaces = lab.open_as(OpenMode::Read).await?;
                expect_all(&spaces, &content).await
            })
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        for (disk, golden) in bench.disks.iter().zip(&golden.disks) {
            let difference = disk.truth().first_difference(&golden.image, golden.capacity);
            assert_eq!(difference, None, "{name}: {} was written", disk.name());
        }
    }
}

/// Each image, of this build and of an earlier one, is opened, all of it read and verified, written to, brought up to date, closed,
/// and opened again. What the engine wrote is of one version of the format.
#[test]
fn every_image_can_be_read_and_written_for_ever() {
    for (name, golden) in images().into_iter().chain(kept()) {
        let bench = Rc::new(golden.bench(2));
        let content = golden.content.clone();
        let written = bench.run(async move |lab| {
            let mut content = content;
            let spaces = lab.open().await?;
            expect_all(&spaces, &content).await?;
            crate::harness::check(&spaces).await?;
            write_to(&lab, &spaces, &mut content).await?;
            expect_all(&spaces, &content).await?;
            let resynced = spaces.members().resync(&Progress::default()).await?;
            assert_eq!((resynced.waiting, resynced.lost_blocks), (0, 0));
            spaces.caches().destage().await?;
            expect_all(&spaces, &content).await?;
            lab.check_and_close(spaces).await?;
            let spaces = lab.open().await?;
            expect_all(&spaces, &content).await?;
            assert_eq!((spaces.data_loss_events().len(), spaces.members().stale_rows().await?.len()), (0, 0));
            expect_versions_of_values(&spaces).await?;
            lab.check_and_close(spaces).await
        });
        written.unwrap_or_else(|error| panic!("{name}: {error}"));
        expect_versions(&name, &bench);
    }
}

/// Writes over what is there, beside it, and discards, in every space, and makes another one.
async fn write_to(lab: &Lab, spaces: &Spaces, content: &mut Content) -> Outcome {
    let new = lab.space(spaces, "new", Bytes::mib(2), Resiliency::Mirror { copies: 2 }).await?;
    new.attributes().change(attributes_of(100, "new"), Vec::new()).await?;
    let kind = crate::golden::content::kind_of(&new.spec());
    content.spaces.push(SpaceContent {
        number: 100,
        name: "new".to_owned(),
        kind,
        size: 2 << 20,
        blocks: Default::default(),
    });
    expect_spaces(spaces, content)?;
    for expected in &mut content.spaces {
        let space = spaces.find(&expected.name)?;
        let last = expected.size / BLOCK as u64 - 8;
        for (first, count, fill) in [(2, 6, NEW), (12, 30, NEW + 1), (last, 8, NEW + 2), (16, 3, 0)] {
            let (at, length) = (first * BLOCK as u64, count * BLOCK);
            if fill == 0 {
                space.discard(at, length as u64).await?;
            } else {
                let mut buffer = lab.seams.data.take(length).await;
                fill_blocks(expected.number, first, fill, &mut buffer);
                space.write(at, &buffer.freeze(), dolmen_block_io::Durability::Cached).await?;
            }
            for block in first..first + count as u64 {
                expected.blocks.insert(block, vec![fill]);
            }
        }
        space.flush().await?;
    }
    Ok(())
}

const OTHER_VERSION: &str =
    "the structure has another version now: change this test together with docs/format";

/// All that the engine left on the disks is of one version of the format.
fn expect_versions(name: &str, bench: &Bench) {
    let mut seen = BTreeSet::new();
    for disk in &bench.disks {
        let disk = Disk { capacity: disk.profile().geometry.capacity.0, image: disk.truth() };
        for (block, bytes) in stored::blocks_of(&disk) {
            let Some(kind) = VERSIONS.iter().find(|(magic, ..)| bytes.starts_with(magic)) else { continue };
            let (magic, at, count, expected) = kind;
            let found = bytes[*at..at + count].iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            let what = String::from_utf8_lossy(magic);
            assert_eq!(found, *expected, "{name}: version of {what} in block {block}: {OTHER_VERSION}");
            seen.insert(*magic);
        }
    }
    assert_eq!(seen.len(), VERSIONS.len(), "{name}: every structure was looked at");
}

/// The same of values of the map.
async fn expect_versions_of_values(spaces: &Rc<Spaces>) -> Outcome {
    for space in spaces.list() {
        let mut values = vec![spaces.pool().map().get(&keys::space(space.id())).await?.unwrap_or_default()];
        let rows = spaces.pool().map().scan(keys::places(space.id(), 0..u64::MAX), 1000).await?;
        assert!(!rows.is_empty(), "{} has rows", space.name());
        for (_, place) in rows {
            values.push(row_of(spaces, &place).await?);
        }
        for value in values {
            assert_eq!(value[..2], [2, 0], "version of {} or of a row of it: {OTHER_VERSION}", space.name());
        }
    }
    Ok(())
}
