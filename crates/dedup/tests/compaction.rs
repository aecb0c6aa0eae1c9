//! Compaction and undo on a modelled file system: content, rows, order of sync, kills, power cuts and writers.
//!
//! The seed of a failing round is in its message; a round runs alone with `DOLMEN_SEED`.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::cast_possible_truncation)]

mod model;

use dolmen_dedup::{
    CompactPolicy, Compacted, MEMORY_MIN, Policy, RowKept, SharedBytes, SharedSum, THROUGHPUT_CALL_BYTES,
    compact, deduplicate, undo,
};
use model::{BLOCK, Draw, Memory, Model, Steer, seeds};

const ROW: u64 = 256 << 10;
const ROW_BLOCKS: u64 = ROW / BLOCK;
const ROWS: u64 = 24;

fn policy(model: &Model) -> CompactPolicy {
    CompactPolicy {
        row_bytes: ROW,
        claimed: model.claimed(ROW).iter().map(|row| *row..row + 1).collect(),
        budget_bytes: u64::MAX,
        memory_bytes: MEMORY_MIN,
        call_bytes: THROUGHPUT_CALL_BYTES,
    }
}

fn run(model: &mut Model) -> Compacted {
    let policy = policy(model);
    let compacted = compact(model, &mut Memory::default(), &mut Steer::on(), &policy).unwrap();
    model.free_packs();
    compacted
}

/// Runs until a run moves nothing: each one before it has left fewer rows.
fn run_until_nothing_moves(model: &mut Model) -> Compacted {
    loop {
        let before = model.claimed(ROW).len();
        let compacted = run(model);
        if compacted.bytes_moved == 0 {
            return compacted;
        }
        assert!(model.claimed(ROW).len() < before, "moved, and freed nothing: {compacted:?}");
    }
}

/// A volume that was used for a while: files over many rows, three of four deleted again, clones of parts among the rest.
fn aged(seed: u64) -> Model {
    let mut draw = Draw::new(seed);
    let mut model = Model::new(ROWS * ROW_BLOCKS);
    for inode in 1..=90 {
        let length = 1 + draw.below(60_000);
        let content = draw.bytes(length);
        model.create(inode, &content);
    }
    for inode in 1..=90 {
        if draw.below(4) > 0 {
            model.delete(inode);
        }
    }
    let inodes = model.inodes();
    for inode in inodes {
        match draw.below(4) {
            0 => model.clone_file(inode + 100, inode),
            1 => {
                model.clone_file(inode + 100, inode);
                let length = 1 + draw.below(9000);
                let content = draw.bytes(length);
                model.write(inode, draw.below(4000), &content);
            }
            _ => {}
        }
    }
    model
}

/// Scenario: an aged volume, no writers. Expected: content is the same, as many rows are freed as reported, none of those that
/// could be freed stays, and runs end with one that moves nothing.
#[test]
fn rows_are_emptied_until_a_run_moves_nothing() {
    let (mut emptied, mut tails) = (0, 0);
    for seed in seeds(80) {
        let mut model = aged(seed);
        let used = model.used_bytes();
        let before = model.claimed(ROW).len() as u64;
        let compacted = run(&mut model);
        model.verify(seed);
        let after = model.claimed(ROW).len() as u64;
        assert_eq!(model.used_bytes(), used, "seed {seed}: sharing is as before");
        assert_eq!(
            before + compacted.rows_taken - compacted.rows_emptied,
            after,
            "seed {seed}: {compacted:?}"
        );
        // Each of four passes at most moves a byte once.
        assert!(compacted.bytes_moved <= 4 * used, "seed {seed}: {compacted:?}");
        let changed = compacted.kept.iter().find(|(why, ..)| *why == RowKept::Changed);
        assert_eq!(changed, None, "seed {seed}: a row stays without a writer");
        emptied += compacted.rows_emptied;
        let end = run_until_nothing_moves(&mut model);
        model.verify(seed);
        let (rows, least) = (model.claimed(ROW).len() as u64, (used / 3 * 4).div_ceil(ROW));
        assert!(rows <= least + 1, "seed {seed}: {rows} rows for {used} bytes: {compacted:?} {end:?}");
        tails += model.inodes().iter().filter(|inode| !model.size(**inode).is_multiple_of(BLOCK)).count();
    }
    assert!(emptied > 5 && tails > 5, "{emptied} rows, {tails} files that end in a part of a block");
}

/// Scenario: every third row of an aged volume holds a block of metadata, and some of the room that a pack is led to is not given.
/// Expected: content is the same, and the volume has as many rows as reported. Packs are led into rows that stay: where these have
/// room for all, no unclaimed row is taken.
#[test]
fn packs_fill_rows_that_stay_before_they_claim_others() {
    let mut whole = 0;
    for (seed, strays) in seeds(40).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut model = aged(seed);
        for row in (0..ROWS).step_by(3) {
            let free =
                (0..ROW_BLOCKS).map(|block| row * ROW_BLOCKS + block).find(|block| model.is_free(*block));
            free.into_iter().for_each(|block| model.fix(block));
        }
        if strays {
            model.stray(seed, 3);
        }
        let before = model.claimed(ROW).len() as u64;
        let (pinned, movable): (Vec<u64>, Vec<u64>) =
            model.claimed(ROW).into_iter().partition(|row| row.is_multiple_of(3));
        let room: u64 = pinned.iter().map(|row| model.hole_bytes_in(*row, ROW)).sum();
        let moved: u64 = movable.iter().map(|row| model.live_in(*row, ROW)).sum();
        let compacted = run(&mut model);
        model.verify(seed);
        let after = model.claimed(ROW).len() as u64;
        assert_eq!(
            before + compacted.rows_taken - compacted.rows_emptied,
            after,
            "seed {seed}: {compacted:?}"
        );
        assert!(after <= before, "seed {seed}: {compacted:?}");
        // Best fit may leave a part of the room unused.
        if !strays && moved * 2 <= room {
            whole += 1;
            assert_eq!(
                compacted.rows_taken, 0,
                "seed {seed}: a row was claimed beside room in rows that stay"
            );
            assert_eq!(after, pinned.len() as u64, "seed {seed}: {compacted:?}");
        }
    }
    assert!(whole > 3, "{whole} volumes had the room");
}

/// Scenario: the rows to be emptied hold more than half of the free room, of which the file system keeps a part for itself or none.
/// Expected: packs hold half of what writers can take at most at a time, so writers find the rest.
#[test]
fn packs_leave_half_of_the_free_room_to_writers() {
    for (seed, kept_part) in seeds(20).flat_map(|seed| [(seed, 0), (seed, 3), (seed, 4)]) {
        let mut model = aged(seed);
        model.fill_until_free(seed, ROW_BLOCKS);
        model.reserve = model.free_bytes() / 4 * kept_part;
        let free = model.free_bytes() - model.reserve;
        run_until_nothing_moves(&mut model);
        model.verify(seed);
        assert!(
            model.packed_max <= free / 2,
            "seed {seed}: packs held {} bytes of {free} for writers",
            model.packed_max
        );
    }
}

/// Scenario: runs of several passes, of which some end early because their scratch folder fails. Expected: what a pass freed is
/// trimmed before the next one claims rows, and before an error ends the run.
#[test]
fn each_pass_frees_its_rows() {
    let (mut passes, mut failed) = (0, 0);
    for seed in seeds(40) {
        let mut model = aged(seed);
        run(&mut model);
        assert_eq!(
            (model.untrimmed_lists, model.packs_since_trim),
            (0, 0),
            "seed {seed}: rows were not given back"
        );
        for fail_after in (0..400).step_by(20) {
            let mut model = aged(seed);
            let policy = policy(&model);
            let mut scratch = Memory::default();
            scratch.fail_after = Some(fail_after);
            let ended = compact(&mut model, &mut scratch, &mut Steer::on(), &policy);
            let moved = model.packs_made > 0;
            model.free_packs();
            model.verify(seed);
            assert_eq!(
                (model.untrimmed_lists, model.packs_since_trim),
                (0, 0),
                "seed {seed}: rows were not given back"
            );
            failed += u64::from(ended.is_err() && moved);
            passes += u64::from(ended.is_ok());
        }
    }
    assert!(failed > 5 && passes > 5, "{failed} runs failed behind packs, {passes} ended well");
}

/// Scenario: writers change, cut, clone and replace files between any two calls. Expected: what was written last is read.
#[test]
fn writers_between_any_two_calls_of_a_compaction_keep_their_content() {
    for seed in seeds(100) {
        let mut model = aged(seed);
        model.write_between(seed, 3 + seed % 40);
        if seed % 2 == 0 {
            model.stray(seed, 4);
        }
        run(&mut model);
        model.verify(seed);
    }
}

/// Scenario: a compaction is killed by a power cut at every so many calls, and started again until it ends. Expected: content is
/// the same after each cut, and it ends with as few rows as without cuts.
#[test]
fn a_power_cut_in_a_compaction_loses_no_byte() {
    for seed in seeds(12) {
        let mut whole = aged(seed);
        run_until_nothing_moves(&mut whole);
        let mut model = aged(seed);
        let mut step = 5 + seed;
        loop {
            model.kill_at = model.calls + step;
            step += 11;
            let ended = model.until_killed(run);
            model.power_cut();
            model.verify(seed);
            if ended.is_some() {
                break;
            }
        }
        model.kill_at = u64::MAX;
        let end = run_until_nothing_moves(&mut model);
        model.verify(seed);
        let (rows, limit) = (model.claimed(ROW).len(), whole.claimed(ROW).len());
        assert!(rows <= limit + 1, "seed {seed}: {rows} rows, {limit} without cuts: {end:?}");
    }
}

/// Scenario: rows hold metadata, room that was not written, and more than the budget. Expected: they stay, and the reasons say so.
#[test]
fn rows_that_cannot_be_emptied_stay_and_are_named() {
    let mut draw = Draw::new(7);
    let mut model = Model::new(ROWS * ROW_BLOCKS);
    let small = draw.bytes(20_000);
    for row in 0..6 {
        model.place_from(row * ROW_BLOCKS);
        model.create(row + 1, &small);
    }
    model.fix(10);
    model.place_from(ROW_BLOCKS + 20);
    model.preallocate(2, 20_480, 8192);
    let policy = CompactPolicy { budget_bytes: 50_000, ..policy(&model) };
    let compacted = compact(&mut model, &mut Memory::default(), &mut Steer::on(), &policy).unwrap();
    model.verify(7);
    assert_eq!(
        compacted.kept,
        [(RowKept::Fixed, 1, 0), (RowKept::Unmovable, 1, 1), (RowKept::Fitting, 2, 4)]
    );
    assert_eq!((compacted.rows_emptied, compacted.bytes_moved), (2, 40_000), "{compacted:?}");
    assert_eq!(model.claimed(ROW), [0, 1, 4, 5]);
}

/// Scenario: the rows of a space are no power of two, or too many for the memory. Expected: typed errors, and nothing changes.
#[test]
fn unusable_rows_are_refused() {
    let mut model = aged(1);
    for (row_bytes, claimed, words) in
        [(3 << 20, 0..4, "no power of two"), (1 << 20, 0..1 << 30, "rows need")]
    {
        let policy =
            CompactPolicy { row_bytes, claimed: std::iter::once(claimed).collect(), ..policy(&model) };
        let error = compact(&mut model, &mut Memory::default(), &mut Steer::on(), &policy).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
    model.verify(1);
}

/// Sums what files share.
fn sum(model: &mut Model, inodes: &[u64]) -> SharedBytes {
    let (mut scratch, mut sum) = (Memory::default(), SharedSum::new(MEMORY_MIN));
    for inode in inodes {
        let id = model.id(*inode);
        sum.add(model, &mut scratch, id).unwrap().unwrap();
    }
    sum.finish(&mut scratch).unwrap()
}

/// Scenario: files share after a run; one is undone, with writers and power cuts between any two calls. Expected: content is the
/// same, and without writers the file owns all its bytes alone.
#[test]
fn an_undone_file_owns_its_bytes() {
    for seed in seeds(40) {
        let mut draw = Draw::new(seed);
        let size = 1 + draw.below(400_000);
        let content = draw.bytes(size);
        let shared = || {
            let mut model = Model::new(2000);
            (1..=4).for_each(|inode| model.create(inode, &content));
            let policy = Policy { age_min_ns: 0, size_min: 1, ..Policy::background(i64::MAX) };
            deduplicate(&mut model, &mut Memory::default(), &mut Steer::on(), &policy).unwrap();
            model
        };
        let mut model = shared();
        let (id, rounded) = (model.id(3), size.next_multiple_of(BLOCK));
        assert_eq!(sum(&mut model, &[3]), SharedBytes { read: rounded, stored: rounded });
        assert_eq!(sum(&mut model, &[1, 2, 3, 4]), SharedBytes { read: 4 * rounded, stored: rounded });
        let used = model.used_bytes();
        let undone = undo(&mut model, &mut Steer::on(), id, 1 << 16).unwrap();
        model.verify(seed);
        assert_eq!((undone.bytes, model.used_bytes() - used), (size, rounded), "seed {seed}");
        assert_eq!(sum(&mut model, &[3]), SharedBytes::default(), "seed {seed}");
        let mut model = shared();
        model.write_between(seed, 3);
        let _ = undo(&mut model, &mut Steer::on(), id, 1 << 16);
        model.verify(seed);
        for step in 1..30 {
            let mut model = shared();
            model.kill_at = model.calls + step;
            let _ = model.until_killed(|model| undo(model, &mut Steer::on(), id, 1 << 16).unwrap());
            model.power_cut();
            model.verify(seed);
        }
    }
}

/// Scenario: one call on a file in so many fails. Expected: compaction ends, content is the same, and rows stay for that reason; a
/// run without failures empties them.
#[test]
fn a_failing_call_keeps_its_row() {
    let mut kept = 0;
    for seed in seeds(20) {
        let mut model = aged(seed);
        model.fail_calls(seed, 12);
        let compacted = run(&mut model);
        model.verify(seed);
        kept += compacted.kept.iter().filter(|(why, ..)| *why == RowKept::Changed).count();
        model.failing = None;
        let used = model.used_bytes();
        run_until_nothing_moves(&mut model);
        model.verify(seed);
        assert!(model.claimed(ROW).len() as u64 <= (used / 3 * 4).div_ceil(ROW) + 1, "seed {seed}");
    }
    assert!(kept > 0, "no failure met a row");
}
