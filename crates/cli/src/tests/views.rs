//! Fixed documents as text.

use dolmen_api::ExitCode;
use serde_json::{Value, json};

use super::fake::{Ended, Fake, NOBODY, answer};

fn disk(slot: u16, state: &str, path: Value, checksum_errors: u64) -> Value {
    let last_path = if path.is_null() { json!("/disks/b") } else { Value::Null };
    json!({"slot": slot, "last_path": last_path, "backing_state": null, "id": format!("{slot}a0b0c0d-0405-0607-0809-0a0b0c0d0e0f"), "path": path, "state": state,
        "size_bytes": 4u64 << 30, "data_bytes": 4000u64 << 20, "free_bytes": 1u64 << 30, "fault_domain": 0,
        "is_voter": true, "read_errors": 0, "write_errors": 0, "checksum_errors": checksum_errors})
}

fn pool(name: &str, health: &str) -> Value {
    let disks = match health {
        "healthy" => {
            json!([disk(0, "present", json!("/disks/a"), 0), disk(1, "present", json!("/disks/b"), 0)])
        }
        _ => json!([disk(0, "present", json!("/disks/a"), 2), disk(1, "absent", Value::Null, 0)]),
    };
    json!({"name": name, "id": "00010203-0405-0607-0809-0a0b0c0d0eff", "health": health,
        "why": if health == "healthy" { json!([]) } else { json!(["disk 1 is absent"]) },
        "state": "writable", "epoch": "3:00000000000000aa", "data_bytes": 8000u64 << 20, "used_bytes": 5952u64 << 20,
        "free_bytes": 2u64 << 30, "space_count": 1, "disks": disks})
}

fn space(name: &str, attached_at: Value) -> Value {
    json!({"pool": "tank", "name": name, "health": "healthy", "why": [], "size_bytes": 10u64 << 30,
        "resiliency": "mirror", "copies": 2, "columns": null, "interleave_bytes": 262_144, "row_bytes": 64 << 20,
        "provisioning": "thin", "integrity": "relaxed", "sector_bytes": 4096, "claimed_bytes": 3u64 << 30,
        "footprint_bytes": 6u64 << 30, "attached_at": attached_at, "served_at": null})
}

fn status(health: &str, pools: Vec<Value>, spaces: Vec<Value>) -> Value {
    let failing = health != "healthy";
    let lines = |text: &str| if failing { json!([text]) } else { json!([]) };
    json!({"schema": 1, "health": health,
        "summary": if failing { "pool tank has no redundancy left" } else { "all is well" },
        "why": lines("disk 1 of pool tank is absent"), "doing": lines("nothing"),
        "todo": lines("put a disk in its place: dolmen disk replace tank 1 NEW"),
        "version": {"schema": 1, "daemon": "0.1.0", "api": 1}, "uptime_s": 5, "pid": 1, "pools": pools, "spaces": spaces})
}

fn shown(line: &str, document: Value) -> Ended {
    Fake::play(move |_, _| answer(200, &document)).run(line, &NOBODY)
}

#[test]
fn a_healthy_system_says_so_first() {
    let document =
        status("healthy", vec![pool("tank", "healthy")], vec![space("x", json!("/dev/dolmen/tank/x"))]);
    let ended = shown("", document);
    assert_eq!((ended.code, ended.messages.as_str()), (ExitCode::Ok, ""));
    assert_eq!(
        ended.results,
        "\
healthy: all is well

POOL  HEALTH   STATE         SIZE      USED   FREE   USE  DISKS  SPACES
tank  healthy  writable  7.81 GiB  5.81 GiB  2 GiB  74 %  2           1

SPACE   HEALTH     SIZE  CLAIMED  RESILIENCY   PROVISIONING  IN USE AS
tank/x  healthy  10 GiB    3 GiB  mirror of 2  thin          /dev/dolmen/tank/x
"
    );
}

#[test]
fn trouble_comes_with_cause_activity_and_advice() {
    let ended = shown("status", status("unhealthy", vec![pool("tank", "unhealthy")], vec![]));
    assert_eq!(ended.code, ExitCode::Unhealthy);
    assert_eq!(
        ended.results,
        "\
unhealthy: pool tank has no redundancy left
  why    disk 1 of pool tank is absent
  doing  nothing
  to do  put a disk in its place: dolmen disk replace tank 1 NEW

POOL  HEALTH     STATE         SIZE      USED   FREE   USE  DISKS        SPACES
tank  unhealthy  writable  7.81 GiB  5.81 GiB  2 GiB  74 %  2, 1 absent       1

DISK  POOL  STATE     SIZE   FREE  ID        ERRORS      PATH
   0  tank  present  4 GiB  1 GiB  0a0b0c0d  2 checksum  /disks/a
   1  tank  absent   4 GiB  1 GiB  1a0b0c0d              was /disks/b
"
    );
}

/// A warning is worth a look, and no failure of the command.
#[test]
fn a_warning_ends_well() {
    assert_eq!(shown("", status("warning", vec![], vec![])).code, ExitCode::Ok);
}

/// However many pools, disks and spaces there are, and however much is wrong: the worst on one screen.
#[test]
fn the_status_stays_on_one_screen_with_the_worst_first() {
    let mut pools: Vec<Value> = (0..30).map(|at| pool(&format!("p{at}"), "healthy")).collect();
    pools.extend((0..30).map(|at| pool(&format!("q{at}"), "unhealthy")));
    let spaces = (0..64).map(|at| space(&format!("s{at}"), Value::Null)).collect();
    let mut document = status("unhealthy", pools, spaces);
    for field in ["why", "doing", "todo"] {
        document[field] = (0..40).map(|at| format!("line {at}")).collect();
    }
    document["version"]["daemon"] = json!("0.0.9");
    let ended = shown("", document);
    assert!(ended.results.lines().count() <= 40, "{}", ended.results);
    assert!(ended.results.contains("\nq0 "), "{}", ended.results);
    assert!(!ended.results.contains("\np0 "));
    for more in [
        "and 56 more pools: dolmen pool list",
        "and 57 more disks: dolmen disk list",
        "and 58 more spaces: dolmen space list",
        "and 36 more; -o json has all",
    ] {
        assert!(ended.results.contains(more), "{more}: {}", ended.results);
    }
    assert!(ended.results.contains("note   the daemon is version 0.0.9, this command 0.1.0"));
}

#[test]
fn the_backing_state_of_a_disk_is_shown_next_to_its_path() {
    for (backing_state, reported) in [
        ("removed", "/disks/a (removed)"),
        ("cut_short", "/disks/a (cut short)"),
        ("unplugged", "/disks/a (unplugged)"),
    ] {
        let mut tank = pool("tank", "warning");
        tank["disks"][0]["backing_state"] = json!(backing_state);
        let ended = shown("status", status("warning", vec![tank], vec![]));
        assert!(ended.results.contains(reported), "{reported}: {}", ended.results);
    }
}

/// A bay stands beside the path, and what a disk says of itself among its errors, also in the status.
#[test]
fn a_disk_is_shown_with_its_bay_and_what_it_says_of_itself() {
    let mut tank = pool("tank", "warning");
    tank["disks"][0]["bay"] = json!("left 3");
    tank["disks"][0]["smart"] = json!({"passed": false, "pending_sectors": 4, "media_errors": 1});
    let ended = shown("status", status("warning", vec![tank], vec![]));
    for reported in ["/disks/a (bay left 3)", "says it fails, 5 bad places"] {
        assert!(ended.results.contains(reported), "{reported}: {}", ended.results);
    }
}

#[test]
fn a_pool_is_shown_with_disks_and_spaces() {
    let fake = Fake::play(|line, _| match line {
        "GET /v1/pools/tank" => answer(200, &json!({"schema": 1, "pool": pool("tank", "warning")})),
        _ => answer(200, &json!({"schema": 1, "spaces": [space("x", Value::Null)]})),
    });
    assert_eq!(
        fake.run("pool show tank", &NOBODY).results,
        "\
pool tank: warning
  why    disk 1 is absent
  id     00010203-0405-0607-0809-0a0b0c0d0eff
  state  writable
  epoch  3:00000000000000aa
  size   7.81 GiB on 2 disks
  used   5.81 GiB
  free   2 GiB

DISK  POOL  STATE     SIZE   FREE  ID        ERRORS      PATH
   0  tank  present  4 GiB  1 GiB  0a0b0c0d  2 checksum  /disks/a
   1  tank  absent   4 GiB  1 GiB  1a0b0c0d              was /disks/b

SPACE   HEALTH     SIZE  CLAIMED  RESILIENCY   PROVISIONING
tank/x  healthy  10 GiB    3 GiB  mirror of 2  thin
"
    );
}

/// The list promises nothing of a layout that rows do not have yet.
#[test]
fn a_space_that_is_converted_is_listed_with_both_layouts() {
    let converted = |kind: &str, copies: u8, columns: Value| {
        let mut space = space("x", Value::Null);
        space["converted_from"] = json!({"resiliency": kind, "copies": copies, "parity": 0, "columns": columns,
            "interleave_bytes": 65_536, "integrity": "relaxed"});
        shown("space list", json!({"schema": 1, "spaces": [space]})).results
    };
    let simple = converted("simple", 1, Value::Null);
    assert!(simple.contains("  simple -> mirror of 2  thin"), "{simple}");
    let narrower = converted("mirror", 2, json!(1));
    assert!(narrower.contains("  mirror of 2, other columns  thin"), "{narrower}");
}

#[test]
fn a_space_is_shown_with_all_its_settings() {
    assert_eq!(
        shown("space show tank/x", json!({"schema": 1, "space": space("x", Value::Null)})).results,
        "\
space tank/x: healthy
  size          10 GiB
  resiliency    mirror of 2
  columns       automatic
  interleave    256 KiB
  row           64 MiB
  provisioning  thin
  integrity     relaxed
  sector        4 KiB
  claimed       3 GiB, 30 % of its size
  on disks      6 GiB
  attached at   not attached
  served at     not served
"
    );
}

#[test]
fn disks_are_listed_with_devices_that_belong_to_none() {
    let fake = Fake::play(|line, _| match line {
        "GET /v1/pools" => answer(200, &json!({"schema": 1, "pools": [pool("tank", "healthy")]})),
        _ => answer(
            200,
            &json!({"schema": 1, "devices": [
                {"path": "/dev/sdx", "size_bytes": 1u64 << 40, "state": "foreign", "what": "an ext4 file system"},
                {"path": "/dev/sdy", "size_bytes": null, "state": "member", "what": "a disk of a pool", "pool": "old"},
                {"path": "/dev/sdz", "size_bytes": 1u64 << 40, "state": "member", "what": "was a disk of pool tank, and has left it",
                    "pool": "tank", "has_left": true},
            ]}),
        ),
    });
    assert_eq!(
        fake.run("disk list", &NOBODY).results,
        "\
DISK  POOL  STATE     SIZE   FREE  ID        PATH
   0  tank  present  4 GiB  1 GiB  0a0b0c0d  /disks/a
   1  tank  present  4 GiB  1 GiB  1a0b0c0d  /disks/b

OTHER DEVICE   SIZE  STATE        WHAT
/dev/sdx      1 TiB  holds data   an ext4 file system
/dev/sdy             of a pool    a disk of a pool (pool old)
/dev/sdz      1 TiB  left a pool  was a disk of pool tank, and has left it
"
    );
}

/// What can be restored, for how long, and what cannot any more.
#[test]
fn the_trash_is_listed_with_the_room_that_it_frees() {
    let space = |name: &str, id: u64, trashed_s: Value, stays_s: Value| {
        json!({"pool": "tank", "id": id, "name": name, "size_bytes": 10u64 << 30, "resiliency": "mirror", "copies": 2,
            "parity": 0, "footprint_bytes": 6u64 << 30, "can_be_restored": !trashed_s.is_null(), "trashed_s": trashed_s,
            "stays_s": stays_s})
    };
    let spaces = [
        space("home", 3, json!(10_000), json!(518_400)),
        space("home", 12, json!(90_000), Value::Null),
        space("old", 4, json!(10_000), json!(0)),
        space("gone", 5, Value::Null, Value::Null),
    ];
    assert_eq!(
        shown("trash list tank", json!({"schema": 1, "spaces": spaces, "now_s": 96_400})).results,
        "\
SPACE      ID    SIZE  GIVES BACK  RESILIENCY   DELETED         STAYS
tank/home   3  10 GiB       6 GiB  mirror of 2  1 d ago         6 d more
tank/home  12  10 GiB       6 GiB  mirror of 2  1 h 46 min ago  until it is purged
tank/old    4  10 GiB       6 GiB  mirror of 2  1 d ago         is about to be purged
tank/gone   5  10 GiB       6 GiB  mirror of 2                  is being purged
"
    );
    let nothing = shown("trash list", json!({"schema": 1, "spaces": [], "now_s": 96_400}));
    assert_eq!(nothing.results, "nothing is in the trash\n");
}

/// A pool with something in the trash says how much a purge would give back; others have no column for it.
#[test]
fn the_status_shows_the_trash_where_there_is_some() {
    let mut with = pool("tank", "healthy");
    (with["trash_count"], with["trash_bytes"]) = (json!(2), json!(3u64 << 30));
    let text = shown("", status("healthy", vec![with], vec![])).results;
    assert!(text.contains("SPACES  IN TRASH\n") && text.contains("3 GiB\n"), "{text}");
    let text = shown("", status("healthy", vec![pool("tank", "healthy")], vec![])).results;
    assert!(!text.contains("TRASH"), "{text}");
}

#[test]
fn df_lists_every_overhead_and_what_still_fits() {
    let gib = |count: u64| count << 30;
    let document = json!({"schema": 1, "pool": "tank", "raw_bytes": gib(100), "metadata_bytes": gib(1),
        "tail_bytes": 16 << 20, "data_bytes": gib(98), "used_bytes": gib(41), "claimed_bytes": gib(20),
        "redundancy_bytes": gib(19), "write_cache_bytes": gib(1), "tables_bytes": gib(1), "free_bytes": gib(57), "reserve_bytes": gib(2),
        "promised_bytes": gib(500),
        "fits": [
            {"resiliency": "simple", "copies": 1, "survives": 0, "usable_bytes": gib(55), "usable_fixed_bytes": gib(54)},
            {"resiliency": "mirror", "copies": 2, "survives": 1, "usable_bytes": gib(27), "usable_fixed_bytes": gib(26)},
            {"resiliency": "mirror", "copies": 3, "survives": 2, "usable_bytes": 0},
            {"resiliency": "parity", "copies": 1, "parity": 2, "survives": 2, "usable_bytes": gib(30)}],
        "disks": [{"slot": 0, "name": "/disks/a", "raw_bytes": gib(50), "data_bytes": gib(49), "free_bytes": gib(29),
            "reserve_bytes": gib(1)}]});
    assert_eq!(
        shown("df tank", document).results,
        "\
pool tank
  WHERE                BYTES  OF RAW  WHAT
  raw                100 GiB   100 %  the disks themselves
    metadata           1 GiB     1 %  labels, log and the pool's metadata
    tail              16 MiB     0 %  left empty, so that a disk may be a little smaller
    data              98 GiB    98 %  room for slabs
      used            41 GiB    41 %  taken by slabs
        claimed       20 GiB    20 %  addresses of spaces
        redundancy    19 GiB    19 %  their further copies and parity
        write cache    1 GiB     1 %  of strict spaces and parity, copies and tables included
        trash            0 B     0 %  deleted spaces, which a purge gives back
        tables         1 GiB     1 %  checksums, states and rounding up
      free            57 GiB    57 %  not used
        reserve        2 GiB     2 %  kept for moves and repairs
  promised           500 GiB   500 %  sizes of thin spaces beyond what is claimed

  STILL FITS   FIXED  AS           SURVIVES
      55 GiB  54 GiB  simple       no lost disk
      27 GiB  26 GiB  mirror of 2  1 lost disk
         0 B          mirror of 3  2 lost disks
      30 GiB          dual parity  2 lost disks

  DISK     RAW    DATA    FREE   USE  RESERVE  PATH
     0  50 GiB  49 GiB  29 GiB  40 %    1 GiB  /disks/a
"
    );
}

#[test]
fn jobs_are_listed() {
    let job = json!({"id": 7, "pool": "tank", "kind": "resync", "subject": "disk 3", "state": "running",
        "rows_total": 200, "rows_done": 33, "total_bytes": 0, "done_bytes": 0, "rate_bytes_per_s": 1 << 20,
        "elapsed_s": 9, "eta": {"earliest_s": 60, "latest_s": 90}, "result": null});
    assert_eq!(
        shown("jobs", json!({"schema": 1, "jobs": [job]})).results,
        "\
JOB  POOL  WHAT           STATE    DONE     RATE  STILL TAKES
  7  tank  resync disk 3  running  16 %  1 MiB/s  1 min to 1 min 30 s
"
    );
    assert_eq!(shown("jobs", json!({"schema": 1, "jobs": []})).results, "no jobs\n");
}

/// Jobs that stand, that are about to, and that have ended say so, and when.
#[test]
fn paused_and_ended_jobs_are_listed() {
    let job = |id: u64, state: &str, more: Value| {
        let mut job = json!({"id": id, "pool": "tank", "kind": "scrub", "subject": "pool tank", "state": state,
            "rows_total": 200, "rows_done": 50, "total_bytes": 0, "done_bytes": 0, "rate_bytes_per_s": 0,
            "elapsed_s": 9, "began_s": 1000});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        job
    };
    let jobs = [
        job(1, "done", json!({"ended_s": 1400, "result": "all sound"})),
        job(2, "called_off", json!({"ended_s": 4940, "result": "called off"})),
        job(3, "paused", json!({"priority": "low", "latency_limit_ms": 50})),
        job(4, "running", json!({"is_pausing": true, "priority": "normal", "latency_limit_ms": null})),
        job(5, "running", json!({"is_pausing": true, "is_stopping": true})),
    ];
    assert_eq!(
        shown("jobs", json!({"schema": 1, "now_s": 5000, "jobs": jobs})).results,
        "\
JOB  POOL  WHAT             STATE        DONE  ENDED      RESULT
  1  tank  scrub pool tank  done        100 %  1 h ago    all sound
  2  tank  scrub pool tank  called off   25 %  1 min ago  called off
  3  tank  scrub pool tank  paused       25 %
  4  tank  scrub pool tank  pausing      25 %
  5  tank  scrub pool tank  stopping     25 %
"
    );
    let one = |job: &Value| shown("jobs 3", json!({"schema": 1, "now_s": 5000, "job": job})).results;
    assert_eq!(
        jobs.each_ref().map(one),
        [
            "job 1 of pool tank: scrub pool tank\n100 %  50 of 200 rows, done in 9 s\nbegan 1 h 6 min ago, ended 1 h ago\nall sound\n",
            "job 2 of pool tank: scrub pool tank\n 25 %  50 of 200 rows, called off\nbegan 1 h 6 min ago, ended 1 min ago\ncalled off\n",
            "job 3 of pool tank: scrub pool tank\n 25 %  50 of 200 rows, paused: `dolmen job resume 3` goes on with it\npriority low, latency limit 50 ms\nbegan 1 h 6 min ago\n",
            "job 4 of pool tank: scrub pool tank\n 25 %  50 of 200 rows, pauses when what is under way is done\npriority normal, no latency limit\nbegan 1 h 6 min ago\n",
            "job 5 of pool tank: scrub pool tank\n 25 %  50 of 200 rows, ends when what is under way is done\nbegan 1 h 6 min ago\n",
        ]
    );
}

/// Disks that were moved here, or that a daemon left which was never told of them, belong to pools that nobody has opened.
#[test]
fn pools_that_can_be_imported_are_listed() {
    let of = |path: &str, state: &str, pool: Value, disks: Value| json!({"path": path, "size_bytes": 1 << 30, "state": state, "what": "x", "pool": pool, "pool_disk_count": disks});
    let device = |path: &str, state: &str, pool: Value| of(path, state, pool, Value::Null);
    let devices = json!({"schema": 1, "devices": [
        device("/a", "member", json!("bank")), device("/b", "member", json!("tank")),
        of("/e", "member", json!("part"), json!(3)), of("/f", "member", json!("part"), json!(4)),
        of("/g", "member", json!("snug"), json!(1)),
        device("/c", "empty", Value::Null), device("/d", "member", json!("bank"))]});
    let fake = Fake::play(move |line, _| match line {
        "GET /v1/devices" => answer(200, &devices),
        "GET /v1/pools" => answer(200, &json!({"schema": 1, "pools": [pool("tank", "healthy")]})),
        _ => answer(200, &status("healthy", vec![], vec![])),
    });
    let reported = "pool bank is on 2 disks here and not open; to open it: dolmen pool import --pool bank\n\
        pool part is on 2 of its 4 disks here and not open; to open it: dolmen pool import --pool part\n\
        pool snug is on 1 disk here and not open; to open it: dolmen pool import --pool snug\n";
    let listed = fake.run("pool list", &NOBODY).results;
    assert!(listed.ends_with(reported) && !listed.contains("--pool tank"), "{listed}");
    let ended = fake.run("status", &NOBODY);
    assert!(ended.results.contains(reported), "{} {}", ended.results, ended.messages);
    let json = fake.run("pool list -o json", &NOBODY).results;
    assert_eq!(json.lines().count(), 1, "programs get one document");
}

/// With nothing there yet, the lists say what to do first.
#[test]
fn empty_lists_say_how_to_begin() {
    let empty = json!({"schema": 1, "pools": [], "spaces": []});
    assert_eq!(
        shown("pool list", empty.clone()).results,
        "no pools; make one with: dolmen pool create NAME DISK...\n"
    );
    assert_eq!(
        shown("space list", empty.clone()).results,
        "no spaces; make one with: dolmen space create POOL/SPACE --size SIZE\n"
    );
    assert_eq!(shown("df", empty).results, "no pool is open\n");
}

#[test]
fn both_versions_are_printed() {
    let ended = shown("version", json!({"schema": 1, "daemon": "0.2.0", "api": 1}));
    assert_eq!(ended.results, "dolmen 0.1.0, API 1\ndaemon 0.2.0, API 1\n");
}

#[test]
fn a_write_cache_is_shown_with_what_goes_through_it() {
    let fake = Fake::play(|line, _| match line {
        "GET /v1/pools/tank" => {
            let mut pool = pool("tank", "healthy");
            pool["write_caches"] = json!([{"survives": 1, "size_bytes": 256 << 20, "waiting_bytes": 12 << 20,
                "footprint_bytes": 513 << 20, "copies": 2, "disks": [0, 1, 4], "fill_percent": 25,
                "drain_bytes_per_s_max": 100 << 20, "filled_bytes": 3u64 << 30,
                "filled_bytes_per_s": 0, "destaged_bytes": 1u64 << 30, "destaged_bytes_per_s": 7 << 20}]);
            answer(200, &json!({"schema": 1, "pool": pool}))
        }
        _ => answer(200, &json!({"schema": 1, "spaces": []})),
    });
    let shown = fake.run("pool show tank", &NOBODY).results;
    let expected = "
  write cache      256 MiB for spaces that survive the loss of 1 disk; 12 MiB of it wait to be put in place
    on disks       0, 1, 4; 2 copies of it
    emptied        from 25 % on, with 100 MiB a second at most
    written to it  3 GiB since the pool was opened, lately 0 B a second
    put in place   1 GiB since the pool was opened, lately 7 MiB a second
";
    assert!(shown.contains(expected), "{shown}");
}

#[test]
fn shares_and_quotas_are_shown_with_what_is_wrong() {
    let share = json!({"pool": "tank", "volume": "home", "number": 7, "name": "docs", "health": "warning",
        "why": ["NFS is down, connection: refused"], "folder": "a/b", "path": "/srv/home/a/b", "is_to_be_served": true,
        "protocols": [{"protocol": "smb", "state": "up", "step": null, "finding": null},
            {"protocol": "nfs", "state": "down", "step": "connection", "finding": "refused"}],
        "accounts": [{"to": "group", "name": "staff", "access": "read_write"}],
        "networks": [{"client": "10.0.0.0/8", "access": "read_only"}], "is_encryption_required": true,
        "time_machine_bytes": 1_u64 << 40});
    let list = shown("share list", json!({"schema": 1, "shares": [&share]}));
    assert_eq!(
        list.results,
        "\
VOLUME     SHARE  FOLDER  SMB  NFS   WHY
tank/home  docs   a/b     up   down  NFS is down, connection: refused
"
    );
    let one = shown("share show tank/home docs", json!({"schema": 1, "share": &share})).results;
    for part in [
        "share docs of volume tank/home: ",
        "@staff:rw",
        "10.0.0.0/8:ro",
        "down, connection: refused",
        "required",
        "1 TiB at most",
    ] {
        assert!(one.contains(part), "{part}: {one}");
    }
    let quota = json!({"folder": "", "limit_bytes": 1 << 30, "limit_files": null, "project_id": 5,
        "used_bytes": 4096, "used_files": 2, "why": []});
    let quotas =
        shown("volume quota list tank/home", json!({"schema": 1, "quotas": [quota], "unavailable": null}));
    let row: Vec<&str> = quotas.results.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row, [".", "4", "KiB", "1", "GiB", "2", "none"]);
    let none = shown(
        "share sessions tank/home docs",
        json!({"schema": 1, "sessions": [], "unavailable": ["NFS does not list"]}),
    );
    assert!(
        none.results.contains("no clients") && none.results.contains("NFS does not list"),
        "{}",
        none.results
    );
}
