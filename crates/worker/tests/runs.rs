//! Long operations on loop devices: content, gains, commands, kills and memory.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::disallowed_methods
)]

#[path = "runs/balance.rs"]
mod balance;
mod rig;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dolmen_volume::mount_point::Folder;
use dolmen_volume::record::DeduplicationMode;
use dolmen_worker::protocol::long::{
    ByteRange, Claimed, Deduplicated, Estimated, Load, MEMORY_BYTES_MIN, NameKind, Occupancy, Progress,
    RangeNames, SampleSize, Selection, Undone,
};
use dolmen_worker::protocol::{Failure, FailureCode, Message, Operation, Order, Outcome};
use rig::{MIB, Rig};

/// Numbers that look random, the same for one seed.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn bytes(&mut self, length: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        bytes.truncate(length as usize);
        bytes
    }
}

/// A volume that is mounted.
fn mounted(kind: &'static str) -> Option<Rig> {
    let rig = Rig::made(kind)?;
    assert_eq!(rig.run(Operation::Mount { volume: rig.volume() }), Ok(Outcome::Done));
    Some(rig)
}

fn load() -> Load {
    Load { mode: DeduplicationMode::Throughput, memory_bytes: 48 << 20 }
}

fn dedup(rig: &Rig) -> Operation {
    let (selection, state) = (Selection::default(), rig.path("state"));
    Operation::Dedup { volume: rig.volume(), selection, load: load(), state, undos: 0 }
}

fn deduplicated(rig: &Rig) -> Deduplicated {
    match rig.run(dedup(rig)) {
        Ok(Outcome::Deduplicated(counts)) => counts,
        other => panic!("{other:?}"),
    }
}

fn undo(rig: &Rig, paths: Vec<Folder>) -> Operation {
    let (volume, state) = (rig.volume(), rig.path("state"));
    Operation::Undo { volume, paths, load: load(), state, pool_room_bytes: None }
}

fn undone(rig: &Rig, paths: &[&str]) -> Undone {
    let paths = paths.iter().map(|path| path.parse().unwrap()).collect();
    match rig.run(undo(rig, paths)) {
        Ok(Outcome::Undone(counts)) => counts,
        other => panic!("{other:?}"),
    }
}

/// Content of each file, by its path in the volume.
type Model = BTreeMap<String, Vec<u8>>;

fn write(rig: &Rig, model: &mut Model, path: &str, content: Vec<u8>) {
    let at = rig.path("home").join(path);
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::write(at, &content).unwrap();
    model.insert(path.to_owned(), content);
}

fn verify(rig: &Rig, model: &Model, when: &str) {
    for (path, content) in model {
        let found = fs::read(rig.path("home").join(path)).unwrap();
        let differs = found.iter().zip(content).position(|(found, wanted)| found != wanted);
        assert!(
            found.len() == content.len() && differs.is_none(),
            "{when}: {path} has {} bytes of {}, and differs from byte {differs:?} on",
            found.len(),
            content.len()
        );
    }
}

fn sync(rig: &Rig) {
    rustix::fs::syncfs(File::open(rig.path("home")).unwrap()).unwrap();
}

/// Bytes that a volume uses, when that has come to rest.
fn used(rig: &Rig) -> u64 {
    let root = File::open(rig.path("home")).unwrap();
    let mut last = u64::MAX;
    loop {
        sync(rig);
        let usage = dolmen_files::volume::usage(&root).unwrap();
        if usage.total - usage.free == last {
            return last;
        }
        last = usage.total - usage.free;
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Bytes of a file that others have too.
fn shared(path: &Path) -> u64 {
    let mut found = Vec::new();
    dolmen_files::extents::extents(&File::open(path).unwrap(), 0, u64::MAX, &mut found).unwrap();
    found.iter().filter(|extent| extent.is_shared()).map(|extent| extent.length).sum()
}

/// A worker that is at work.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Running {
    fn new(rig: &Rig, operation: Operation) -> Self {
        Self::with_lines(rig, operation, "")
    }

    /// One that finds these lines behind its order, before it has begun.
    fn with_lines(rig: &Rig, operation: Operation, lines: &str) -> Self {
        let mut worker = Command::new(env!("CARGO_BIN_EXE_dolmen-worker"));
        let mut child = worker.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let order = Order { lock: rig.path("lock"), operation };
        let mut line = serde_json::to_vec(&order).unwrap();
        line.push(b'\n');
        line.extend_from_slice(lines.as_bytes());
        let mut input = child.stdin.take().unwrap();
        input.write_all(&line).unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input: Some(input), lines }
    }

    fn say(&mut self, command: &str) {
        writeln!(self.input.as_mut().unwrap(), "{{\"do\":\"{command}\"}}").unwrap();
    }

    fn next(&mut self) -> Message {
        serde_json::from_str(&self.lines.next().unwrap().unwrap()).unwrap()
    }

    fn progress(&mut self) -> Progress {
        match self.next() {
            Message::Progress { progress } => progress,
            other => panic!("{other:?}"),
        }
    }

    /// Reads to the end.
    fn end(mut self) -> Result<Outcome, Failure> {
        loop {
            match self.next() {
                Message::Done { outcome } => {
                    assert!(self.child.wait().unwrap().success());
                    return Ok(outcome);
                }
                Message::Failed { failure } => return Err(failure),
                Message::Progress { .. } => {}
                Message::Ignored { failure } => panic!("{failure}"),
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    /// A test that failed leaves no worker on its volume.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Files that share whole content, parts and tails with others; the bytes that sharing frees, and those of all files.
///
/// btrfs frees an extent when no byte of it has an owner, so parts of files free nothing there; they are left out for it.
fn corpus(rig: &Rig) -> (Model, u64, u64) {
    let (mut draw, mut model, mut gain) = (Draw(1), Model::new(), 0);
    for number in 0..40u64 {
        let whole = draw.bytes(MIB + draw.0 % 3 * 777);
        let copies = [0, 0, 1, 3][(number % 4) as usize];
        for copy in 0..=copies {
            write(rig, &mut model, &format!("whole/{number}/{copy}"), whole.clone());
        }
        gain += copies * (whole.len() as u64).next_multiple_of(4096);
        let part = draw.bytes(8 * 65536);
        for copy in 0..if rig.kind == "xfs" { 2 } else { 1 } {
            let mut content = draw.bytes(65536 * (1 + number % 3));
            content.extend_from_slice(&part);
            content.extend(draw.bytes(5000));
            write(rig, &mut model, &format!("part/{number}-{copy}"), content);
        }
        gain += if rig.kind == "xfs" { part.len() as u64 } else { 0 };
        write(rig, &mut model, &format!("small/{number}"), draw.bytes(10_000));
    }
    let bytes = model.values().map(|content| content.len() as u64).sum();
    sync(rig);
    (model, gain, bytes)
}

fn a_run_saves_what_the_corpus_shares_and_an_undo_takes_it_back(kind: &'static str) {
    // Scenario: an estimate, a run, a second run, an undo of a folder, an undo of all. Expected: the estimate is within three
    // points, the gain within two per cent as the volume counts it, content is the same, and nothing is shared in the end.
    let Some(rig) = mounted(kind) else { return };
    let (model, gain, bytes) = corpus(&rig);
    let before = used(&rig);
    let guess = rig.run(Operation::Estimate {
        volume: rig.volume(),
        selection: Selection::default(),
        load: load(),
        state: rig.path("state"),
        sample: Some(SampleSize { part_ppm: 500_000, bytes_min: 0 }),
    });
    let Ok(Outcome::Estimated(Estimated { saving_ppm, .. })) = guess else { panic!("{guess:?}") };
    let truth = gain as f64 / bytes as f64;
    assert!((f64::from(saving_ppm) / 1e6 - truth).abs() < 0.03, "{guess:?}, and {truth} is right");
    let guessed = used(&rig);
    assert!(guessed.abs_diff(before) < MIB, "an estimate changed the volume: {before}, then {guessed}");
    let counts = deduplicated(&rig);
    let freed = before - used(&rig);
    println!("{kind}: {gain} of {bytes} bytes are equal; {freed} freed, {counts:?}");
    assert!(freed.abs_diff(gain) * 50 <= gain, "{freed} bytes freed of {gain}: {counts:?}");
    assert!(counts.freed.abs_diff(freed) < MIB, "{freed} bytes freed: {counts:?}");
    assert!(
        counts.saved.abs_diff(gain) * 50 <= gain && counts.held == 0 && counts.skipped.count == 0,
        "{counts:?}"
    );
    verify(&rig, &model, "after the run");
    let again = deduplicated(&rig);
    assert_eq!((again.files_read, again.shared, again.files), (0, 0, counts.files), "{again:?}");
    let folder = undone(&rig, &["whole/3", "part/1-0"]);
    assert!(folder.bytes >= 3 * MIB && folder.skipped.count == 0, "{folder:?}");
    for path in ["whole/3/0", "whole/3/1", "whole/3/2", "whole/3/3", "part/1-0"] {
        assert_eq!(shared(&rig.path("home").join(path)), 0, "{path}");
    }
    assert!(shared(&rig.path("home/whole/7/0")) > 0);
    undone(&rig, &[]);
    verify(&rig, &model, "after the undo");
    let left: u64 = model.keys().map(|path| shared(&rig.path("home").join(path))).sum();
    assert_eq!(left, 0);
    assert!(used(&rig).abs_diff(before) * 50 <= gain, "{} bytes used, {before} before", used(&rig));
}

#[test]
fn a_run_on_xfs_saves_what_the_corpus_shares_and_an_undo_takes_it_back() {
    a_run_saves_what_the_corpus_shares_and_an_undo_takes_it_back("xfs");
}

#[test]
fn a_run_on_btrfs_saves_what_the_corpus_shares_and_an_undo_takes_it_back() {
    a_run_saves_what_the_corpus_shares_and_an_undo_takes_it_back("btrfs");
}

fn a_run_after_an_undo_saves_again(kind: &'static str) {
    // Scenario: a run, a second one that shares nothing, then twice an undo of all and a run. Expected: each run after an undo
    // saves what the first one saved, and reads no file again.
    let Some(rig) = mounted(kind) else { return };
    let (model, _, _) = corpus(&rig);
    let first = deduplicated(&rig);
    assert_eq!(deduplicated(&rig).shared, 0);
    for round in 0..2 {
        undone(&rig, &[]);
        let again = deduplicated(&rig);
        assert_eq!((again.files_read, again.bytes_read), (0, 0), "round {round}: {again:?}");
        assert!(
            again.saved.abs_diff(first.saved) * 50 <= first.saved,
            "round {round}: {again:?} and {first:?}"
        );
        verify(&rig, &model, "after a run that follows an undo");
    }
}

#[test]
fn a_run_on_xfs_after_an_undo_saves_again() {
    a_run_after_an_undo_saves_again("xfs");
}

#[test]
fn a_run_on_btrfs_after_an_undo_saves_again() {
    a_run_after_an_undo_saves_again("btrfs");
}

#[test]
fn an_undo_of_compressed_files_takes_what_the_run_freed() {
    // Scenario: a folder asks for compression, and has three equal files that shrink to a quarter; twice a run and an undo.
    // Expected: the run says that its bytes were compressed, and each undo leaves the volume as full as it was before.
    let Some(rig) = mounted("btrfs") else { return };
    let (mut draw, mut model) = (Draw(9), Model::new());
    let folder = rig.path("home/docs");
    fs::create_dir(&folder).unwrap();
    rustix::fs::setxattr(&folder, "btrfs.compression", b"zstd", rustix::fs::XattrFlags::empty()).unwrap();
    let mut content = Vec::new();
    while (content.len() as u64) < 24 * MIB {
        content.extend(draw.bytes(16 << 10));
        content.extend([7; 48 << 10]);
    }
    for name in ["one", "two", "three"] {
        write(&rig, &mut model, &format!("docs/{name}"), content.clone());
    }
    let before = used(&rig);
    for round in 0..2 {
        let counts = deduplicated(&rig);
        assert!(counts.encoded > 0 && counts.encoded == counts.saved, "round {round}: {counts:?}");
        assert!(counts.freed * 2 < counts.saved, "round {round}: {counts:?}");
        let counts = undone(&rig, &[]);
        let now = used(&rig);
        assert!(
            now.abs_diff(before) < 3 * MIB,
            "round {round}: {now} bytes are used, and {before} before the run: {counts:?}"
        );
        assert!(counts.taken < 20 * MIB && counts.bytes > 40 * MIB, "round {round}: {counts:?}");
        verify(&rig, &model, "after the undo");
    }
}

/// Rows of a sparse image that have room.
fn claimed_rows(rig: &Rig, row_bytes: u64) -> Vec<u64> {
    sync(rig);
    let mut found = Vec::new();
    let image = File::open(&rig.image).unwrap();
    dolmen_files::extents::extents(&image, 0, u64::MAX, &mut found).unwrap();
    let mut rows: Vec<u64> = found
        .iter()
        .flat_map(|extent| extent.logical / row_bytes..extent.end().div_ceil(row_bytes))
        .collect();
    rows.dedup();
    rows
}

/// Number of claimed rows when that has come to rest: XFS ends a trim before its discards have.
fn rows_at_rest(rig: &Rig, row_bytes: u64) -> u64 {
    let mut last = usize::MAX;
    loop {
        let now = claimed_rows(rig, row_bytes).len();
        if now == last {
            return now as u64;
        }
        last = now;
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Bytes of a volume that are not free, its log included.
fn live_bytes(rig: &Rig) -> u64 {
    let (root, mut live) = (File::open(rig.path("home")).unwrap(), 0);
    dolmen_files::space_map::space_map(&root, 0, u64::MAX, |used| {
        live += if used.owner == dolmen_files::space_map::Owner::Free { 0 } else { used.length };
        true
    })
    .unwrap();
    live
}

fn occupancy(rig: &Rig, row_bytes: u64) -> Occupancy {
    let claimed = claimed_rows(rig, row_bytes).into_iter().map(|row| (row, row + 1)).collect();
    Occupancy { row_bytes, claimed: Claimed::Ranges(claimed) }
}

fn compact(rig: &Rig, row_bytes: u64) -> Operation {
    Operation::Compact {
        volume: rig.volume(),
        occupancy: occupancy(rig, row_bytes),
        budget_bytes: None,
        load: load(),
        state: rig.path("state"),
        pool_room_bytes: None,
    }
}

#[test]
fn a_compaction_of_an_aged_volume_leaves_few_rows_more_than_live_bytes() {
    // Scenario: files and folders fill a volume, and 60 % of them are deleted at random. Expected: after compactions, the rows
    // that the image holds are at most 1.15 times the live bytes; each run gives back what it says.
    const ROW: u64 = 1 << 20;
    let Some(rig) = mounted("xfs") else { return };
    let (mut draw, mut model) = (Draw(7), Model::new());
    for number in 0..1200 {
        let length = 1 + draw.below(430_000);
        let folder = draw.below(60);
        write(&rig, &mut model, &format!("f{folder}/{number}"), draw.bytes(length));
        if number % 100 == 99 {
            // What is deleted before it is written has no place.
            sync(&rig);
        }
        // Names fill blocks of folders all over the volume.
        for name in 0..6 {
            fs::hard_link(
                rig.path("home").join(format!("f{folder}/{number}")),
                rig.path("home").join(format!("f{folder}/{name}-{number}-{}", "n".repeat(60))),
            )
            .unwrap();
        }
    }
    let all: Vec<String> = model.keys().cloned().collect();
    for path in all {
        if draw.below(10) < 6 {
            let (folder, number) = path.split_once('/').unwrap();
            fs::remove_file(rig.path("home").join(&path)).unwrap();
            for name in 0..6 {
                let link = format!("{folder}/{name}-{number}-{}", "n".repeat(60));
                fs::remove_file(rig.path("home").join(link)).unwrap();
            }
            model.remove(&path);
        }
    }
    used(&rig);
    let live = live_bytes(&rig);
    rig.run(Operation::Trim { volume: rig.volume(), minimum: 0 }).unwrap();
    let first = rows_at_rest(&rig, ROW);
    let mut rows = first;
    for round in 0..4 {
        let Ok(Outcome::Compacted(done)) = rig.run(compact(&rig, ROW)) else { panic!() };
        let after = rows_at_rest(&rig, ROW);
        println!("round {round}: {rows} rows, then {after}: {done:?}");
        let expected = rows + done.rows_taken - done.rows_emptied - done.rows_empty;
        assert!(after <= expected + 2, "{after} rows stay, {expected} were to: {done:?}");
        verify(&rig, &model, "after a compaction");
        rows = after;
        if done.bytes_moved == 0 {
            break;
        }
    }
    let allocated = rig.image.metadata().unwrap().blocks() * 512;
    println!("{live} bytes live, {allocated} allocated, {first} rows before, {rows} after");
    assert!(rows * ROW * 100 <= live * 115, "{rows} rows for {live} bytes");
    assert!(allocated * 100 <= live * 115, "{allocated} bytes for {live}");
}

/// One change of a file and of its model.
fn change(draw: &mut Draw, blocks: &[Vec<u8>], root: &Path, path: &str, content: &mut Vec<u8>) {
    let file = OpenOptions::new().write(true).open(root.join(path)).unwrap();
    let at = draw.below(content.len() as u64 + 1);
    let piece = match draw.below(3) {
        0 => blocks[draw.below(blocks.len() as u64) as usize].clone(),
        1 => {
            let length = 1 + draw.below(20_000);
            draw.bytes(length)
        }
        _ => {
            let length = draw.below(content.len() as u64 + 1).max(1000);
            file.set_len(length).unwrap();
            content.resize(length as usize, 0);
            return;
        }
    };
    let at = if draw.below(2) == 0 { at / 65536 * 65536 } else { at };
    file.write_all_at(&piece, at).unwrap();
    let end = at as usize + piece.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[at as usize..end].copy_from_slice(&piece);
    if content.len() > 3 * MIB as usize {
        file.set_len(MIB).unwrap();
        content.truncate(MIB as usize);
    }
}

fn kills_with_writers_lose_no_byte(kind: &'static str) {
    // Scenario: a writer changes files without pause; workers of each kind are killed at random points, `DOLMEN_KILLS` of them
    // (5 if it is not set). Expected: after each kill, and after an unmount, every file is equal to its model.
    let Some(rig) = mounted(kind) else { return };
    let kills: u64 = std::env::var("DOLMEN_KILLS").map_or(5, |text| text.parse().unwrap());
    let seed = std::env::var("DOLMEN_SEED").map_or(3, |text| text.parse().unwrap());
    println!("seed {seed}, {kills} kills");
    let mut draw = Draw(seed);
    let blocks: Vec<Vec<u8>> = (0..4).map(|_| draw.bytes(65536)).collect();
    let mut model = Model::new();
    for number in 0..30 {
        let count = 4 + draw.below(20);
        let mut content: Vec<u8> =
            (0..count).flat_map(|_| blocks[draw.below(4) as usize].iter().copied()).collect();
        let tail = draw.below(9000);
        content.extend(draw.bytes(tail));
        write(&rig, &mut model, &format!("d{}/{number}", number % 5), content);
    }
    let (model, ends) = (Arc::new(Mutex::new(model)), Arc::new(AtomicBool::new(false)));
    let writer = std::thread::spawn({
        let (model, ends, root, blocks) = (model.clone(), ends.clone(), rig.path("home"), blocks.clone());
        move || {
            let (mut draw, mut changes) = (Draw(seed + 1), 0u64);
            while !ends.load(Ordering::Relaxed) {
                let mut model = model.lock().unwrap();
                // Others stay as they are for a round, so that there is something to share.
                let at = draw.below(model.len() as u64 / 3) as usize * 3;
                let (path, content) = model.iter_mut().nth(at).unwrap();
                change(&mut draw, &blocks, &root, path, content);
                drop(model);
                changes += 1;
                std::thread::sleep(Duration::from_micros(1000 + draw.below(9000)));
            }
            changes
        }
    });
    let began = Instant::now();
    deduplicated(&rig);
    let whole_ms = began.elapsed().as_millis() as u64;
    for kill in 0..kills {
        for _ in 0..10 {
            let mut model = model.lock().unwrap();
            let at = draw.below(model.len() as u64) as usize;
            let (path, content) = model.iter_mut().nth(at).unwrap();
            change(&mut draw, &blocks, &rig.path("home"), path, content);
        }
        let operation = match kill % 4 {
            0 | 2 => dedup(&rig),
            1 if kind == "xfs" => compact(&rig, 1 << 18),
            _ => undo(&rig, Vec::new()),
        };
        let worker = Running::new(&rig, operation);
        std::thread::sleep(Duration::from_millis(3 + draw.below(whole_ms)));
        worker.kill();
        verify(&rig, &model.lock().unwrap(), &format!("after kill {kill}"));
    }
    let counts = deduplicated(&rig);
    ends.store(true, Ordering::Relaxed);
    println!("{} changes; then {counts:?}", writer.join().unwrap());
    verify(&rig, &model.lock().unwrap(), "after all kills");
    assert_eq!(rig.run(Operation::Unmount { volume: rig.volume() }), Ok(Outcome::Done));
    let checked = rig.run(Operation::Check { volume: rig.volume(), repair: false, drop_log: false });
    assert!(matches!(checked, Ok(Outcome::Checked { code: 0, .. })), "{checked:?}");
    assert_eq!(rig.run(Operation::Mount { volume: rig.volume() }), Ok(Outcome::Done));
    verify(&rig, &model.lock().unwrap(), "after an unmount");
    // An unnamed file of a worker that was killed holds no room.
    let counts = deduplicated(&rig);
    assert!(!counts.stopped);
}

#[test]
fn kills_of_workers_on_xfs_with_writers_lose_no_byte() {
    kills_with_writers_lose_no_byte("xfs");
}

#[test]
fn kills_of_workers_on_btrfs_with_writers_lose_no_byte() {
    kills_with_writers_lose_no_byte("btrfs");
}

#[test]
fn a_run_pauses_resumes_and_stops_and_the_next_one_goes_on() {
    // Scenario: pause, a second without progress, a line that is no command, resume, stop; then a run whose input ends during a
    // pause, as with the end of its daemon; then a run to the end. Expected: a stop within five seconds; of what was hashed, each
    // stop costs the file at hand at most.
    let Some(rig) = mounted("xfs") else { return };
    let (model, gain, bytes) = corpus(&rig);
    let mut worker = Running::new(&rig, dedup(&rig));
    worker.say("pause");
    let held = loop {
        let progress = worker.progress();
        if progress.paused {
            break progress;
        }
    };
    let at = Instant::now();
    writeln!(worker.input.as_mut().unwrap(), "{{\"do\":\"format\"}}").unwrap();
    assert!(matches!(worker.next(), Message::Ignored { .. }));
    std::thread::sleep(Duration::from_millis(1500));
    let asked = Instant::now();
    // In one piece: whatever the speed of this machine, it has not come to its end in between.
    worker.input.as_mut().unwrap().write_all(b"{\"do\":\"resume\"}\n{\"do\":\"stop\"}\n").unwrap();
    let Ok(Outcome::Deduplicated(first)) = worker.end() else { panic!() };
    assert!(
        first.stopped && asked.elapsed() < Duration::from_secs(5) && at.elapsed() < Duration::from_secs(8)
    );
    println!("held at {held:?}, stopped with {first:?}");
    verify(&rig, &model, "after a stop");
    // It finds the pause behind its order: the first one may have left it little to do.
    let mut worker = Running::with_lines(&rig, dedup(&rig), "{\"do\":\"pause\"}\n");
    while !worker.progress().paused {}
    drop(worker.input.take());
    let Ok(Outcome::Deduplicated(second)) = worker.end() else { panic!() };
    assert!(second.stopped, "a run went on without its daemon: {second:?}");
    let third = deduplicated(&rig);
    let runs = [first, second, third];
    let (read, saved) = (runs.iter().map(|run| run.bytes_read), runs.iter().map(|run| run.saved));
    // Each of the two stops may come when a file was read and before the next one is asked for: that file is read again.
    let largest = model.values().map(|content| content.len() as u64).max().unwrap();
    assert!(!runs[2].stopped && read.sum::<u64>() <= bytes + 2 * largest, "{runs:?}");
    let files_read: u64 = runs.iter().map(|run| run.files_read).sum();
    assert!(files_read <= model.len() as u64 + 2, "{runs:?}");
    assert!(saved.sum::<u64>().abs_diff(gain) * 50 <= gain, "{runs:?}");
    verify(&rig, &model, "after the end");
}

#[test]
fn a_run_stays_below_its_memory_and_yields_to_others() {
    // Scenario: many files in background mode with the smallest memory. Expected: the peak of the process is below the cap, the
    // class of its I/O is idle, and progress comes once a second at most.
    let Some(rig) = mounted("xfs") else { return };
    let mut draw = Draw(5);
    let content = draw.bytes(1000);
    for number in 0..20_000u32 {
        let path = rig.path("home").join(format!("{}/{number}", number % 100));
        if number < 100 {
            fs::create_dir(path.parent().unwrap()).unwrap();
        }
        let mut bytes = content.clone();
        bytes[..4].copy_from_slice(&(number / 2).to_le_bytes());
        fs::write(path, bytes).unwrap();
    }
    sync(&rig);
    let load = Load { mode: DeduplicationMode::Background, memory_bytes: MEMORY_BYTES_MIN };
    for operation in [
        Operation::Dedup {
            volume: rig.volume(),
            selection: Selection { excluded_names: vec!["*.none".to_owned()], ..Selection::default() },
            load,
            state: rig.path("state"),
            undos: 0,
        },
        Operation::Compact {
            volume: rig.volume(),
            occupancy: occupancy(&rig, 1 << 18),
            budget_bytes: None,
            load,
            state: rig.path("state"),
            pool_room_bytes: None,
        },
    ] {
        let began = Instant::now();
        let mut worker = Running::new(&rig, operation);
        let (status, id) = (PathBuf::from(format!("/proc/{}/status", worker.child.id())), worker.child.id());
        let mut peak = 0;
        let watch = std::thread::spawn(move || {
            while let Ok(text) = fs::read_to_string(&status) {
                let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                let Some(line) = line else { break };
                let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
                peak = peak.max(kib << 10);
                std::thread::sleep(Duration::from_millis(5));
            }
            peak
        });
        let (mut lines, mut nice) = (0, None);
        loop {
            match worker.next() {
                Message::Progress { .. } => lines += 1,
                Message::Done { outcome } => break println!("{outcome:?}"),
                other => panic!("{other:?}"),
            }
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
            nice = stat.rsplit(')').next().unwrap().split(' ').nth(17).map(str::to_owned);
        }
        worker.child.wait().unwrap();
        let peak = watch.join().unwrap();
        println!("peak {peak} bytes, {lines} lines of progress in {:?}", began.elapsed());
        assert!(peak > MIB && peak <= MEMORY_BYTES_MIN, "{peak}");
        assert!(lines <= began.elapsed().as_secs() + 1);
        assert_eq!(nice.as_deref(), Some("19"));
    }
}

#[test]
fn excluded_young_and_small_files_take_no_part() {
    // Scenario: four pairs of equal files: in an excluded folder, of an excluded type, below the least size, and two that take
    // part; then the same with a least age. Expected: only the last pair is shared; with the age, none.
    let Some(rig) = mounted("btrfs") else { return };
    let (mut draw, mut model) = (Draw(2), Model::new());
    for (name, bytes) in [("out/a", 300_000), ("in/b.tmp", 300_000), ("in/c", 50_000), ("in/d", 300_000)] {
        let content = draw.bytes(bytes);
        let (stem, kind) = name.split_once('.').map_or((name, ""), |(stem, _)| (stem, ".tmp"));
        for copy in 0..2 {
            write(&rig, &mut model, &format!("{stem}{copy}{kind}"), content.clone());
        }
    }
    sync(&rig);
    let run = |age_seconds_min| {
        let selection = Selection {
            age_seconds_min,
            file_bytes_min: 100_000,
            excluded_folders: vec!["out".parse().unwrap()],
            excluded_names: vec!["*.tmp".to_owned()],
        };
        let state = rig.path("state");
        match rig.run(Operation::Dedup { volume: rig.volume(), selection, load: load(), state, undos: 0 }) {
            Ok(Outcome::Deduplicated(counts)) => counts,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((run(3600).files, shared(&rig.path("home/in/d0"))), (0, 0));
    assert_eq!(run(0).files, 2);
    let all: Vec<&String> = model.keys().filter(|path| shared(&rig.path("home").join(path)) > 0).collect();
    assert_eq!(all, ["in/d0", "in/d1"]);
    verify(&rig, &model, "after the run");
}

#[test]
fn an_undo_without_room_changes_nothing() {
    // Scenario: two files share 100 MiB, and the volume has less free room than one copy needs, or its pool has. Expected: the undo of
    // one of them is refused with the numbers; with room again, it is done.
    let Some(rig) = mounted("xfs") else { return };
    let (mut draw, mut model) = (Draw(6), Model::new());
    write(&rig, &mut model, "one", draw.bytes(100 * MIB));
    let files = ["home/one", "home/two"].map(|name| rig.path(name));
    let cloned = Command::new("cp").arg("--reflink=always").args(files).status().unwrap();
    assert!(cloned.success());
    model.insert("two".to_owned(), model["one"].clone());
    let filler = File::create(rig.path("home/filler")).unwrap();
    let free = dolmen_files::volume::usage(&filler).unwrap().available;
    rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), 0, free - 50 * MIB).unwrap();
    let order = undo(&rig, vec!["two".parse().unwrap()]);
    let failure = rig.run(order).unwrap_err();
    assert!(failure.code == FailureCode::NoRoom && failure.message.contains("104857600"), "{failure:?}");
    assert_eq!(shared(&rig.path("home/two")), 100 * MIB);
    fs::remove_file(rig.path("home/filler")).unwrap();
    drop(filler);
    used(&rig);
    // The volume has the room, and its pool lacks one byte of it.
    let order = |bytes| {
        let Operation::Undo { volume, paths, load, state, .. } = undo(&rig, vec!["two".parse().unwrap()])
        else {
            panic!("an undo")
        };
        Operation::Undo { volume, paths, load, state, pool_room_bytes: Some(bytes) }
    };
    let refused = rig.run(order(100 * MIB - 1));
    let failure = refused.expect_err("an undo took more than its pool has");
    assert!(failure.code == FailureCode::NoRoom && failure.message.contains("its pool"), "{failure:?}");
    assert_eq!(shared(&rig.path("home/two")), 100 * MIB);
    assert_eq!(undone(&rig, &["two"]).bytes, 100 * MIB);
    assert_eq!((shared(&rig.path("home/one")), shared(&rig.path("home/two"))), (0, 0));
    verify(&rig, &model, "after the undo");
}

#[test]
fn orders_that_cannot_be_are_refused_by_name() {
    let Some(rig) = mounted("ext4") else { return };
    let refused = |operation| rig.run(operation).unwrap_err();
    let failure = refused(dedup(&rig));
    assert!(failure.code == FailureCode::Unsupported && failure.message.contains("ext4"), "{failure:?}");
    let Some(rig) = mounted("xfs") else { return };
    let refused = |operation| rig.run(operation).unwrap_err();
    let undo = |path: &str| undo(&rig, vec![path.parse().unwrap()]);
    let failure = refused(undo("none"));
    assert!(failure.code == FailureCode::BadPath && failure.message.contains("\"none\""), "{failure:?}");
    std::os::unix::fs::symlink("/etc", rig.path("home/link")).unwrap();
    assert_eq!(refused(undo("link")).code, FailureCode::BadPath);
    assert_eq!(refused(undo("link/passwd")).code, FailureCode::BadPath);
    let small = Load { memory_bytes: MEMORY_BYTES_MIN - 1, ..load() };
    let state = rig.path("state");
    let (volume, paths) = (rig.volume(), Vec::new());
    let order = Operation::Undo { volume, paths, load: small, state, pool_room_bytes: None };
    assert_eq!(refused(order).code, FailureCode::BadOrder);
    let rows = |row_bytes, claimed| Operation::Compact {
        volume: rig.volume(),
        occupancy: Occupancy { row_bytes, claimed },
        budget_bytes: None,
        load: load(),
        state: rig.path("state"),
        pool_room_bytes: None,
    };
    fs::write(rig.path("rows"), "[[1,2],[3").unwrap();
    for (order, words) in [
        (rows(1 << 20, Claimed::Ranges(vec![(5, 5)])), "from 5 to 5"),
        (rows(3 << 20, Claimed::Ranges(vec![(0, 1)])), "3145728"),
        (rows(1 << 20, Claimed::Ranges(vec![(0, u64::MAX)])), "memory"),
        (rows(1 << 20, Claimed::File(rig.path("rows"))), "rows"),
        (rows(1 << 20, Claimed::File(rig.path("no-rows"))), "no-rows"),
    ] {
        let failure = refused(order);
        assert!(failure.message.contains(words), "{failure:?}");
    }
    assert_eq!(rig.run(Operation::Unmount { volume: rig.volume() }), Ok(Outcome::Done));
    assert_eq!(refused(dedup(&rig)).code, FailureCode::InUse);
}

/// First byte of the image that holds a block, found by its content alone.
fn place_in_image(rig: &Rig, block: &[u8]) -> u64 {
    sync(rig);
    let image = fs::read(&rig.image).unwrap();
    let places = (0..image.len() - 4096).step_by(1024);
    let found: Vec<usize> = places.filter(|at| image[*at..*at + 8] == block[..8]).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0] as u64
}

fn names_of(rig: &Rig, ranges: &[(u64, u64)], names_max: usize) -> Vec<RangeNames> {
    let ranges = ranges.iter().map(|(start, length)| ByteRange { start: *start, length: *length }).collect();
    match rig.run(Operation::Names { volume: rig.volume(), ranges, names_max }) {
        Ok(Outcome::Names { ranges }) => ranges,
        other => panic!("{other:?}"),
    }
}

fn ranges_are_named_by_their_files(kind: &'static str) {
    // Scenario: one block of a file in a folder, which is found in the image by its content; a range over two files; the head of
    // the device; all of it with two names; the block after its file is deleted.
    let Some(rig) = mounted(kind) else { return };
    let (mut draw, mut model) = (Draw(4), Model::new());
    write(&rig, &mut model, "large", draw.bytes(24 << 20));
    let marked = draw.bytes(9 * 4096);
    write(&rig, &mut model, "a folder/\u{e4}b", marked.clone());
    if kind == "btrfs" {
        let made =
            Command::new("btrfs").args(["subvolume", "create"]).arg(rig.path("home/sub")).output().unwrap();
        assert!(made.status.success());
    }
    write(&rig, &mut model, "sub/last", draw.bytes(6 << 20));
    fs::hard_link(rig.path("home/sub/last"), rig.path("home/sub/linked")).unwrap();
    sync(&rig);
    let block = place_in_image(&rig, &marked[5 * 4096..6 * 4096]);
    let last = place_in_image(&rig, &model["sub/last"][MIB as usize..MIB as usize + 4096]);
    let found = names_of(&rig, &[(block, 4096), (last + 512, 1024), (block, 0), (65536, 4096)], 8);
    assert_eq!(found.len(), 4);
    let name = &found[0].names[0];
    assert_eq!(
        (found[0].names.len(), name.kind, name.bytes),
        (1, NameKind::File, 4096),
        "is not named: {found:?}"
    );
    assert_eq!((name.path.as_deref(), name.offset), (Some("a folder/\u{e4}b"), Some(5 * 4096)), "{found:?}");
    let name = &found[1].names[0];
    let is_last = matches!(name.path.as_deref(), Some("sub/last" | "sub/linked"));
    assert!(is_last, "sub/last is not named: {found:?}");
    let bytes = if kind == "xfs" { 1024 } else { name.bytes };
    assert_eq!((name.offset, name.bytes), (Some(MIB + 512), bytes));
    assert!(found[2].names.is_empty());
    assert!(found[3].names[0].kind != NameKind::File, "{found:?}");
    let all = &names_of(&rig, &[(0, 400 << 20)], 2)[0];
    assert!(all.names.len() == 2 && all.more > 0, "{all:?}");
    let all = &names_of(&rig, &[(0, 400 << 20)], 256)[0];
    let bytes = |kind: NameKind| -> u64 {
        all.names.iter().filter(|name| name.kind == kind).map(|name| name.bytes).sum()
    };
    println!("{kind}: {all:?}");
    assert!(bytes(NameKind::File) >= 30 << 20 && bytes(NameKind::Metadata) > 0);
    assert!(bytes(NameKind::Free) + bytes(NameKind::Unknown) > 100 << 20);
    assert_eq!(bytes(NameKind::Log) > 0, kind == "xfs", "ext4 does not name its own");
    fs::remove_file(rig.path("home/a folder/\u{e4}b")).unwrap();
    used(&rig);
    let found = names_of(&rig, &[(block, 4096)], 8);
    assert!(matches!(found[0].names[0].kind, NameKind::Free | NameKind::Unknown), "{found:?}");
}

#[test]
fn ranges_of_xfs_are_named_by_their_files() {
    ranges_are_named_by_their_files("xfs");
}

#[test]
fn ranges_of_btrfs_are_named_by_their_files() {
    ranges_are_named_by_their_files("btrfs");
}

#[test]
fn ranges_of_ext4_are_named_by_their_files() {
    ranges_are_named_by_their_files("ext4");
}
