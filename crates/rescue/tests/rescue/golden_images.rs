//! The golden images, rescued in every way: nothing that comes out is wrong.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods
)]

use crate::golden::content::SpaceContent;
use crate::golden::make::{EVERY_KIND, SHADOWS, STRICT, Set};
use crate::golden::{BLOCK, Golden};
use dolmen_rescue::{BadRange, Options, Piece, RescueMode, Rescued, open};
use dolmen_space::{Progress, Segment};

/// The images that pools with every kind of space left, each in another way.
fn images() -> Vec<(String, Golden)> {
    let sets: [&'static Set; 3] = [&EVERY_KIND, &STRICT, &SHADOWS];
    sets.iter().flat_map(|set| set.images()).collect()
}

/// How many blocks of a space came out right, as they were once, and not at all. None is wrong.
async fn compare(rescued: &Rescued, name: &str, expected: &SpaceContent) -> (u64, u64, u64) {
    let mut export = rescued.export(name).await.unwrap();
    let mut bytes = vec![0; (export.size().0).max(expected.size) as usize];
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
    let bad = export.bad();
    let is_bad =
        |at: u64| bad.iter().any(|range: &BadRange| range.at <= at && at < range.at + range.length.0);
    let (mut right, mut older, mut named) = (0, 0, 0);
    for (block, found) in (0u64..).zip(bytes.chunks(BLOCK)).take((expected.size / BLOCK as u64) as usize) {
        if is_bad(block * BLOCK as u64) {
            named += 1;
        } else if expected.fill_of(block, found).is_some() {
            right += 1;
        } else {
            let is_older = found.iter().all(|byte| *byte == 0) || expected.is_some_fill(block, found);
            assert!(is_older, "block {block} of {name} is wrong");
            older += 1;
        }
    }
    (right, older, named)
}

fn rescued_by(mode: RescueMode) {
    for (image, golden) in images() {
        let bench = golden.bench(1);
        let content = golden.content.clone();
        let report = image.clone();
        bench
            .run(async move |lab| {
                let options = Options { pool: None, mode, space: None };
                let rescued = open(&lab.seams, &lab.devices, &options, &Progress::default()).await?;
                let found = rescued.list().await;
                for expected in &content.spaces {
                    // A space that is not at this moment is no fault.
                    let Some(space) = found.iter().find(|space| space.name == expected.name) else {
                        assert_ne!(mode, RescueMode::Present, "{report}: {} is not there", expected.name);
                        continue;
                    };
                    let (right, older, named) = compare(&rescued, &space.name, expected).await;
                    if mode == RescueMode::Present {
                        assert_eq!((older, named), (0, 0), "{report}: {}, {right} right", expected.name);
                    }
                }
                rescued.close().await;
                Ok(())
            })
            .unwrap_or_else(|error| panic!("{image}: {error}"));
        for (disk, golden) in bench.disks.iter().zip(&golden.disks) {
            let changed = disk.truth().first_difference(&golden.image, golden.capacity);
            assert_eq!(changed, None, "{image}: {} was written", disk.name());
        }
    }
}

#[test]
fn every_image_comes_out_as_it_was() {
    rescued_by(RescueMode::Present);
}

#[test]
fn without_the_log_nothing_that_comes_out_is_wrong() {
    rescued_by(RescueMode::WithoutLog);
}

#[test]
fn of_slabs_nothing_that_comes_out_is_wrong() {
    rescued_by(RescueMode::Slabs);
}
