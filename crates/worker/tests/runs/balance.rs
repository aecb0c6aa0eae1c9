//! Compaction of btrfs on loop devices: its content, its rows, commands, kills, and what stands in its way.

use dolmen_files::balance::{Standing, standing};
use dolmen_files::block_groups::{BlockGroup, block_groups};
use dolmen_worker::protocol::long::{Compacted, KeptReason, POOL_ROOM_BYTES_MIN, Step};

use super::*;

const ROW: u64 = 1 << 20;

fn root(rig: &Rig) -> File {
    File::open(rig.path("home")).unwrap()
}

/// Bytes of block groups that hold data.
fn data_bytes(rig: &Rig) -> u64 {
    let mut groups: Vec<BlockGroup> = Vec::new();
    sync(rig);
    block_groups(&root(rig), &mut groups).unwrap();
    groups.iter().filter(|group| group.is_data).map(|group| group.length).sum()
}

fn remove(rig: &Rig, model: &mut Model, path: &str) {
    fs::remove_file(rig.path("home").join(path)).unwrap();
    model.remove(path);
}

/// Fills a volume with files of up to so many bytes, deletes 60 % of them at random, and clones some of the others.
fn aged(rig: &Rig, files: u64, file_bytes: u64) -> Model {
    let (mut draw, mut model) = (Draw(11), Model::new());
    let noise = draw.bytes(2 * MIB);
    for number in 0..files {
        let (length, from) = (4096 + draw.below(file_bytes), draw.below(MIB) as usize);
        let mut content = noise[from..from + length as usize].to_vec();
        content[..8].copy_from_slice(&number.to_le_bytes());
        write(rig, &mut model, &format!("f{}/{number}", number % 20), content);
        if number % 100 == 99 {
            sync(rig);
        }
    }
    sync(rig);
    let all: Vec<String> = model.keys().cloned().collect();
    for path in all {
        match draw.below(20) {
            0..12 => remove(rig, &mut model, &path),
            12 => {
                let clone = format!("{path}-clone");
                let [from, to] = [&path, &clone].map(|path| rig.path("home").join(path));
                assert!(
                    Command::new("cp").arg("--reflink=always").args([from, to]).status().unwrap().success()
                );
                model.insert(clone, model[&path].clone());
            }
            _ => {}
        }
    }
    used(rig);
    model
}

/// Places of the extents of each clone and of its source; they are the same where the bytes are shared.
fn places_of_clones(rig: &Rig, model: &Model) -> Vec<[Vec<(u64, u64, u64)>; 2]> {
    let places = |path: &str| {
        let mut found = Vec::new();
        let file = File::open(rig.path("home").join(path)).unwrap();
        dolmen_files::extents::extents(&file, 0, u64::MAX, &mut found).unwrap();
        found.iter().map(|extent| (extent.logical, extent.physical, extent.length)).collect()
    };
    let sources = model.keys().filter_map(|path| Some((path.strip_suffix("-clone")?, path)));
    sources.map(|(source, clone)| [places(source), places(clone)]).collect()
}

fn order(rig: &Rig, row_bytes: u64, budget: Option<u64>, pool_room: Option<u64>) -> Operation {
    Operation::Compact {
        volume: rig.volume(),
        occupancy: occupancy(rig, row_bytes),
        budget_bytes: budget,
        load: load(),
        state: rig.path("state"),
        pool_room_bytes: pool_room,
    }
}

fn compacted(rig: &Rig, budget: Option<u64>) -> Compacted {
    match rig.run(order(rig, ROW, budget, None)) {
        Ok(Outcome::Compacted(counts)) => counts,
        other => panic!("{other:?}"),
    }
}

/// Unmounts a volume, checks it, and mounts it again.
fn check(rig: &Rig) {
    assert_eq!(rig.run(Operation::Unmount { volume: rig.volume() }), Ok(Outcome::Done));
    let checked = rig.run(Operation::Check { volume: rig.volume(), repair: false, drop_log: false });
    assert!(matches!(checked, Ok(Outcome::Checked { code: 0, .. })), "{checked:?}");
    assert_eq!(rig.run(Operation::Mount { volume: rig.volume() }), Ok(Outcome::Done));
}

fn an_aged_volume_is_compacted(rig: &Rig) {
    let model = aged(rig, 900, 350_000);
    let before = places_of_clones(rig, &model);
    assert!(before.len() > 10 && before.iter().all(|[source, clone]| source == clone && !source.is_empty()));
    rig.run(Operation::Trim { volume: rig.volume(), minimum: 0 }).unwrap();
    let (rows, allocated, live) = (rows_at_rest(rig, ROW), data_bytes(rig), used(rig));
    let counts = compacted(rig, None);
    let (rows_after, allocated_after) = (rows_at_rest(rig, ROW), data_bytes(rig));
    println!(
        "{live} bytes live; rows {rows}, then {rows_after}; groups {allocated}, then {allocated_after}; {counts:?}"
    );
    verify(rig, &model, "after the compaction");
    let after = places_of_clones(rig, &model);
    for [source, clone] in &after {
        assert_eq!(source, clone, "a clone has bytes of its own");
    }
    assert_ne!(before, after, "no clone was moved");
    assert!(allocated_after < allocated, "{allocated_after} bytes of groups are left of {allocated}");
    assert!(rows_after * ROW * 100 <= live * 140, "{rows_after} rows for {live} bytes");
    let expected = rows + counts.rows_taken - counts.rows_emptied - counts.rows_empty;
    assert!(rows_after.abs_diff(expected) <= 4, "{rows_after} rows stay, and {expected} were to: {counts:?}");
    assert!(counts.bytes_moved > 0 && counts.bytes_moved <= live, "{counts:?}");
    // Rows that hold enough stay where they are.
    let again = compacted(rig, None);
    assert!(again.bytes_moved * 4 <= counts.bytes_moved, "{again:?} after {counts:?}");
    check(rig);
    verify(rig, &model, "after a check");
}

#[test]
fn a_compaction_of_an_aged_btrfs_keeps_content_and_shared_extents() {
    // Scenario: files and clones fill a volume, and 60 % of them are deleted at random. Expected: block groups and rows of the image are
    // fewer after a compaction, as many as it says; files are equal, and share what they shared. A second one moves little.
    let Some(rig) = mounted("btrfs") else { return };
    an_aged_volume_is_compacted(&rig);
}

#[test]
fn a_btrfs_whose_block_groups_hold_both_kinds_is_compacted() {
    // Scenario: the same, where data and metadata share block groups.
    let Some(rig) = Rig::new("btrfs") else { return };
    let mut mkfs = Command::new("mkfs.btrfs");
    assert!(mkfs.args(["-q", "--mixed", "-U", &rig.uuid]).arg(&rig.device).status().unwrap().success());
    assert_eq!(rig.run(Operation::Mount { volume: rig.volume() }), Ok(Outcome::Done));
    let mut groups = Vec::new();
    block_groups(&root(&rig), &mut groups).unwrap();
    assert!(groups.iter().any(|group| group.is_mixed), "{groups:?}");
    an_aged_volume_is_compacted(&rig);
}

/// Waits until the worker of a rig has the kernel move a group; `false` if it has ended before.
fn is_amid(rig: &Rig, worker: &mut Running) -> bool {
    let root = root(rig);
    loop {
        match standing(&root).unwrap() {
            Standing::OneGroup => return true,
            other => assert_eq!(other, Standing::Idle),
        }
        if worker.child.try_wait().unwrap().is_some() {
            return false;
        }
    }
}

#[test]
fn a_stop_or_a_kill_amid_a_balance_loses_no_byte_and_the_next_one_goes_on() {
    // Scenario: while the kernel moves a block group, the worker is told to stop, is killed, or loses its daemon. Expected: it ends within
    // seconds, no balance is left, files are equal, and a later compaction comes to its end.
    let Some(rig) = mounted("btrfs") else { return };
    let model = aged(&rig, 3000, 60_000);
    let (allocated, mut cancelled) = (data_bytes(&rig), 0);
    for end in ["stop", "kill", "input"] {
        let mut worker = Running::new(&rig, order(&rig, ROW, None, None));
        assert!(is_amid(&rig, &mut worker), "{end}: it had ended before");
        let asked = Instant::now();
        match end {
            "kill" => worker.kill(),
            end => {
                if end == "stop" {
                    worker.say("stop");
                } else {
                    drop(worker.input.take());
                }
                let counts = match worker.end() {
                    Ok(Outcome::Compacted(counts)) => counts,
                    other => panic!("{other:?}"),
                };
                assert!(counts.stopped, "{end}: {counts:?}");
                cancelled += u32::from(counts.bytes_moved == 0);
                println!("{end}: {counts:?} after {:?}", asked.elapsed());
            }
        }
        assert!(asked.elapsed() < Duration::from_secs(20), "{end}: {:?}", asked.elapsed());
        let root = root(&rig);
        while standing(&root).unwrap() != Standing::Idle {
            assert!(asked.elapsed() < Duration::from_secs(20), "{end}: a balance is left");
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(root);
        verify(&rig, &model, end);
    }
    // One may come when a group has just ended, but not both.
    assert!(cancelled > 0, "each stop waited for the end of a block group");
    let counts = compacted(&rig, None);
    assert!(!counts.stopped && data_bytes(&rig) < allocated, "{counts:?}");
    verify(&rig, &model, "after the last one");
    check(&rig);
    verify(&rig, &model, "after a check");
}

#[test]
fn a_pause_holds_the_next_block_group_and_a_resume_goes_on() {
    // Scenario: a worker finds a pause behind its order, and is resumed; another one is paused while the kernel moves a group, and resumed
    // when it stands. Expected: while it stands no group is moved; both come to their ends.
    let Some(rig) = mounted("btrfs") else { return };
    let model = aged(&rig, 900, 350_000);
    let mut worker =
        Running::with_lines(&rig, order(&rig, ROW, Some(40 * MIB), None), "{\"do\":\"pause\"}\n");
    while !worker.progress().paused {}
    assert_eq!(standing(&root(&rig)).unwrap(), Standing::Idle);
    worker.say("resume");
    let Ok(Outcome::Compacted(first)) = worker.end() else { panic!() };
    assert!(!first.stopped && first.bytes_moved > 0, "{first:?}");
    let mut worker = Running::new(&rig, order(&rig, ROW, None, None));
    assert!(is_amid(&rig, &mut worker), "it had ended before");
    worker.say("pause");
    let held = loop {
        let progress = worker.progress();
        if progress.paused {
            break progress;
        }
    };
    assert_eq!(standing(&root(&rig)).unwrap(), Standing::Idle, "{held:?}");
    assert!(held.step == Step::Compact && held.total > held.done, "{held:?}");
    worker.say("resume");
    let Ok(Outcome::Compacted(second)) = worker.end() else { panic!() };
    assert!(!second.stopped && second.bytes_moved >= held.done, "{second:?} {held:?}");
    verify(&rig, &model, "after the end");
}

#[test]
fn a_compaction_moves_no_more_than_its_budget() {
    // Scenario: budgets of one byte, and of one and a half block groups. Expected: nothing, and a block group at least, are moved, and no
    // byte more than the budget; rows stay for want of it.
    let Some(rig) = mounted("btrfs") else { return };
    let model = aged(&rig, 900, 350_000);
    let stays =
        |counts: &Compacted| counts.kept.iter().any(|kept| kept.why == KeptReason::Fitting && kept.rows > 0);
    let none = compacted(&rig, Some(1));
    assert!(none.bytes_moved == 0 && stays(&none), "{none:?}");
    let budget = 24 * MIB;
    let some = compacted(&rig, Some(budget));
    assert!(some.bytes_moved > 0 && some.bytes_moved <= budget && stays(&some), "{some:?}");
    let rest = compacted(&rig, None);
    assert!(rest.bytes_moved > 0 && !stays(&rest), "{rest:?}");
    verify(&rig, &model, "after the budgets");
}

#[test]
fn a_balance_of_somebody_else_is_left_as_it_is() {
    // Scenario: a person has paused a balance of the whole file system. Expected: a compaction is refused with the reason, and that balance
    // is paused as before; when it is cancelled, a compaction is done.
    let Some(rig) = mounted("btrfs") else { return };
    let model = aged(&rig, 900, 350_000);
    let balance = |words: &[&str]| {
        let ended = Command::new("btrfs").arg("balance").args(words).arg(rig.path("home")).output().unwrap();
        (ended.status.success(), String::from_utf8_lossy(&ended.stdout).into_owned())
    };
    let root = root(&rig);
    std::thread::scope(|scope| {
        scope.spawn(|| balance(&["start", "--full-balance"]));
        while standing(&root).unwrap() == Standing::Idle {}
        assert!(balance(&["pause"]).0, "it had ended before");
    });
    assert_eq!(standing(&root).unwrap(), Standing::Paused);
    let failure = rig.run(order(&rig, ROW, None, None)).expect_err("a compaction passed over a balance");
    assert_eq!(failure.code, FailureCode::InUse, "{failure:?}");
    assert!(failure.message.contains("paused") && failure.hint.contains("balance cancel"), "{failure:?}");
    assert_eq!(standing(&root).unwrap(), Standing::Paused);
    assert!(balance(&["status"]).1.contains("paused"));
    assert!(balance(&["cancel"]).0);
    compacted(&rig, None);
    verify(&rig, &model, "after the compaction");
}

#[test]
fn a_compaction_without_room_changes_nothing_and_says_so() {
    // Scenario: a pool without room for a block group; then a volume whose only free ranges are shorter than its extents, with rows as
    // large as groups. Expected: both are refused for want of room, and files are equal.
    let Some(rig) = mounted("btrfs") else { return };
    let mut model = aged(&rig, 500, 350_000);
    let moved = data_bytes(&rig);
    for pool_room in [0, POOL_ROOM_BYTES_MIN] {
        let failure =
            rig.run(order(&rig, ROW, None, Some(pool_room))).expect_err("it took the last of its pool");
        assert!(failure.code == FailureCode::NoRoom && failure.message.contains("no room"), "{failure:?}");
    }
    assert_eq!(data_bytes(&rig), moved);
    let Ok(Outcome::Compacted(counts)) =
        rig.run(order(&rig, ROW, None, Some(POOL_ROOM_BYTES_MIN + 200 * MIB)))
    else {
        panic!()
    };
    assert!(counts.bytes_moved > 0, "{counts:?}");
    verify(&rig, &model, "after room in the pool");
    let all: Vec<String> = model.keys().cloned().collect();
    all.iter().for_each(|path| remove(&rig, &mut model, path));
    used(&rig);
    // Extents of 1 MiB and gaps of half of one, up to the end of the room.
    let mut gaps = Vec::new();
    for number in 0.. {
        let length = if number % 2 == 0 { MIB } else { MIB / 2 };
        let path = rig.path("home").join(format!("large{number}"));
        let file = File::create(&path).unwrap();
        let reserved = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length);
        if reserved.is_err() {
            fs::remove_file(path).unwrap();
            break;
        }
        gaps.extend((number % 2 == 1).then_some(path));
    }
    gaps.iter().for_each(|path| fs::remove_file(path).unwrap());
    used(&rig);
    let outcome = rig.run(order(&rig, 256 * MIB, None, None));
    println!("without room: {outcome:?}");
    match outcome {
        Err(failure) => assert_eq!(failure.code, FailureCode::NoRoom, "{failure:?}"),
        Ok(Outcome::Compacted(counts)) => {
            assert!(counts.kept.iter().any(|kept| kept.why == KeptReason::NoRoom), "{counts:?}");
        }
        Ok(other) => panic!("{other:?}"),
    }
    check(&rig);
}

/// Attaches an image to a loop device, and mounts it.
fn attached(image: &Path, at: &Path) -> PathBuf {
    let made = Command::new("losetup").args(["-f", "--show"]).arg(image).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let device = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim());
    assert!(Command::new("mount").args(["-t", "btrfs"]).arg(&device).arg(at).status().unwrap().success());
    device
}

#[test]
fn a_power_cut_amid_a_balance_leaves_one_group_to_the_next_mount() {
    // Scenario: the image of a volume lies on an XFS, which clones it at one instant while the kernel moves a block group; the volume ends,
    // and the clone takes its place. Expected: its mount goes on with a balance of one group at most, a compaction waits for that and comes
    // to its end, and files are equal.
    let Some(outer) = mounted("xfs") else { return };
    let Some(mut rig) = Rig::made_in("btrfs", Some(&outer.path("home"))) else { return };
    assert_eq!(rig.run(Operation::Mount { volume: rig.volume() }), Ok(Outcome::Done));
    let model = aged(&rig, 3000, 60_000);
    let cut = outer.path("home/cut");
    let mut worker = Running::new(&rig, order(&rig, ROW, None, None));
    assert!(is_amid(&rig, &mut worker), "it had ended before");
    std::thread::sleep(Duration::from_millis(30));
    let cloned = Command::new("cp").arg("--reflink=always").args([&rig.image, &cut]).status().unwrap();
    let was_amid = standing(&root(&rig)).unwrap() == Standing::OneGroup;
    assert!(cloned.success());
    worker.kill();
    assert_eq!(rig.run(Operation::Unmount { volume: rig.volume() }), Ok(Outcome::Done));
    assert!(Command::new("losetup").arg("-d").arg(&rig.device).status().unwrap().success());
    fs::rename(&cut, &rig.image).unwrap();
    rig.device = attached(&rig.image, &rig.path("home"));
    let first = standing(&root(&rig)).unwrap();
    println!("the cut was amid a balance: {was_amid}; the mount found {first:?}");
    assert!(matches!(first, Standing::Idle | Standing::OneGroup), "{first:?}");
    let counts = compacted(&rig, None);
    assert!(!counts.stopped, "{counts:?}");
    assert_eq!(standing(&root(&rig)).unwrap(), Standing::Idle);
    verify(&rig, &model, "after the next compaction");
    check(&rig);
}
