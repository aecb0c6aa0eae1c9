//! Estimates on modelled volumes, compared with what a run saves.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod model;

use dolmen_dedup::{Estimate, MEMORY_MIN, Policy, Sample, deduplicate, estimate};
use model::{Draw, Memory, Model, Steer};

fn policy() -> Policy {
    Policy { age_min_ns: 0, size_min: 1, memory_bytes: MEMORY_MIN, ..Policy::background(i64::MAX) }
}

/// Returns an estimate and the part of the bytes that a run saves.
fn compare(model: &mut Model, part: f64) -> (Estimate, f64) {
    let sample = Sample { part, bytes_min: 0 };
    let guess =
        estimate(model, &mut Memory::default(), &mut Steer::on(), &policy(), sample).unwrap().unwrap();
    let counts = deduplicate(model, &mut Memory::default(), &mut Steer::on(), &policy()).unwrap();
    (guess, counts.saved_bytes as f64 / guess.bytes as f64)
}

/// Documents: sizes over three powers of ten, one owner (70 %), two (20 %) or four (10 %).
fn documents(seed: u64) -> Model {
    let mut draw = Draw::new(seed);
    let mut model = Model::new(24_000);
    let mut inode = 0;
    for _ in 0..300 {
        let length = 1500 + (draw.below(64) + 1) * (draw.below(64) + 1) * (draw.below(64) + 1) * 4;
        let content = draw.bytes(length);
        let owners = [1, 1, 1, 1, 1, 1, 1, 2, 2, 4][draw.below(10) as usize];
        for _ in 0..owners {
            inode += 1;
            model.create(inode, &content);
        }
    }
    model
}

/// Scenario: documents of which a third is read. Expected: within three points of what the run saves, counted in bytes of files,
/// on average, and inside the interval in four of five rounds.
#[test]
fn an_estimate_of_documents_is_within_three_points() {
    let (mut errors, mut inside, rounds) = (0.0, 0, 10);
    for seed in 0..rounds {
        let mut model = documents(seed);
        let (guess, truth) = compare(&mut model, 0.34);
        model.verify(seed);
        println!("seed {seed}: {guess:?}, saved {truth:.3}");
        errors += (guess.saving - truth).abs();
        inside += u64::from((guess.low..=guess.high).contains(&truth));
        assert!(guess.sample_bytes < guess.bytes / 2 && guess.low < guess.high);
    }
    assert!(errors / (rounds as f64) < 0.03, "{errors} in {rounds} rounds");
    assert!(inside >= rounds * 4 / 5, "{inside} of {rounds} intervals have the truth");
}

/// Scenario: four images of 17 MiB with a few changed spots; a quarter is read. Expected: within three points.
#[test]
fn an_estimate_of_images_is_within_three_points() {
    let mut draw = Draw::new(1);
    let mut model = Model::new(20_000);
    let mut image = draw.bytes(17 << 20);
    for inode in 1..=4 {
        for _ in 0..8 {
            let at = draw.below((17 << 20) - 16_384) as usize;
            let spot = draw.bytes(16_384);
            image[at..at + 16_384].copy_from_slice(&spot);
        }
        model.create(inode, &image);
    }
    let (guess, truth) = compare(&mut model, 0.25);
    model.verify(1);
    assert!((guess.saving - truth).abs() < 0.03 && truth > 0.5, "{guess:?}, saved {truth:.3}");
}

/// Scenario: all of a volume is the sample; a volume has no files. Expected: the estimate is exact; it is 0.
#[test]
fn a_whole_sample_is_exact() {
    let mut model = Model::new(200);
    let content = Draw::new(9).bytes(40_960);
    (1..=4).for_each(|inode| model.create(inode, &content));
    let (guess, truth) = compare(&mut model, 1.0);
    assert_eq!((guess.saving, guess.low, guess.high, truth), (0.75, 0.75, 0.75, 0.75));
    let (guess, _) = compare(&mut Model::new(1), 0.5);
    assert_eq!((guess.files, guess.saving), (0, 0.0));
}
