//! Dry runs: they change nothing, and what they say comes true.

use std::fs;
use std::os::unix::fs::MetadataExt;

use dolmen_units::Bytes;
use serde_json::{Value, json};

use crate::client::{World, eventually};

/// What is written on a disk, told by what the sparse file takes.
fn blocks(world: &World, name: &str) -> u64 {
    fs::metadata(world.disk(name)).unwrap().blocks()
}

fn room(world: &World) -> Value {
    let fits = world.get("/v1/pools/tank/df")["fits"].clone();
    fits.as_array().unwrap().iter().find(|one| one["copies"] == 2).unwrap()["usable_bytes"].clone()
}

fn dry(mut body: Value) -> Value {
    body["dry_run"] = json!(true);
    body
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_then_happens() {
    let world = World::new(4);
    let make = json!({"name": "tank", "disks": [world.disk("d0"), world.disk("d1"), world.disk("d2")]});
    let before = blocks(&world, "d0");
    let plan = world.post("/v1/pools", &dry(make.clone()));
    assert_eq!(plan["is_changed"], false);
    assert_eq!(blocks(&world, "d0"), before, "nothing was written");
    assert_eq!(world.get("/v1/pools")["pools"], json!([]));
    let made = world.post("/v1/pools", &make);
    assert_eq!(made["is_changed"], true);
    assert_eq!(plan["plan"], made["plan"]);
    assert_eq!(made["plan"]["usable_after_bytes"], room(&world));

    let add = json!({"disks": [world.disk("d3")]});
    let plan = world.post("/v1/pools/tank/disks", &dry(add.clone()));
    assert_eq!(plan["plan"]["usable_before_bytes"], room(&world));
    let added = world.post("/v1/pools/tank/disks", &add);
    assert_eq!(added["message"], "1 disk was added to pool tank");
    assert_eq!(plan["plan"]["usable_after_bytes"], room(&world));
}

/// An empty space has no row that a conversion would move; the plan still says what becomes of it.
#[test]
fn the_conversion_of_an_empty_space_has_a_plan() {
    let world = World::new(3);
    let disks: Vec<_> = ["d0", "d1", "d2"].map(|name| world.disk(name)).into();
    world.post("/v1/pools", &json!({"name": "tank", "disks": disks}));
    world
        .post("/v1/pools/tank/spaces", &json!({"name": "m", "size_bytes": 64 << 20, "resiliency": "mirror"}));
    let to_three = json!({"resiliency": "mirror", "copies": 3});
    let plan = world.post("/v1/pools/tank/spaces/m/convert", &dry(to_three));
    let steps = plan["plan"]["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step.as_str().unwrap().contains("mirror")), "{plan}");
}

/// A fixed space takes whole rows, and says so where that is more than its size.
#[test]
fn a_fixed_space_says_why_it_takes_more_than_its_size() {
    let world = World::new(2);
    world.post("/v1/pools", &json!({"name": "tank", "disks": [world.disk("d0"), world.disk("d1")]}));
    let asked = |mib: u64| {
        let spec = json!({
            "name": "x", "size_bytes": mib << 20, "resiliency": "mirror", "row_bytes": 4 << 20, "provisioning": "fixed"
        });
        world.post("/v1/pools/tank/spaces", &dry(spec))["plan"]["steps"][0].as_str().unwrap().to_owned()
    };
    let (six, eight) = (asked(6), asked(8));
    assert!(six.ends_with(" now, in whole rows of 4 MiB"), "{six}");
    assert!(eight.ends_with(" now"), "{eight}");
}

/// Changes that this pool has nothing for, with the tests that ask for their plans.
const PLANNED_ELSEWHERE: [(&str, &str); 34] = [
    ("/v1/pools/{pool}/disks/{disk}/grow", "a_disk_that_has_grown_is_reported_and_used_on_request"),
    (
        "/v1/pools/{pool}/keep_room",
        "what_df_says_fits_beside_the_room_that_is_kept_and_a_lost_disk_heals_into_it",
    ),
    ("/v1/pools/{pool}/disks/{disk}/forget", "a_ghost_is_forgotten_only_where_nothing_was_on_it_alone"),
    ("/v1/pools/{pool}/acknowledge", "healed_errors_are_a_warning_until_somebody_has_seen_them"),
    ("/v1/jobs/{job}/pause", "a_job_that_is_paused_stands_in_nobodys_way_and_goes_on_when_it_is_resumed"),
    ("/v1/jobs/{job}/resume", "a_job_that_is_paused_stands_in_nobodys_way_and_goes_on_when_it_is_resumed"),
    ("/v1/jobs/{job}/stop", "a_job_that_is_stopped_is_called_off_and_stays_so"),
    ("/v1/jobs/{job}/set", "what_a_job_leaves_to_clients_is_set_and_survives_a_restart"),
    ("/v1/pools/{pool}/rebalance", "disks_that_are_added_are_filled_unless_rows_are_to_stay"),
    ("/v1/pools/{pool}/rebalance/cancel", "a_rebalance_is_paused_over_a_kill_resumed_and_called_off"),
    ("/v1/pools/import", "a_dry_run_of_an_import_is_refused_as_the_import_is"),
    (
        "/v1/pools/{pool}/disks/{disk}/replace/cancel",
        "a_replacement_is_called_off_while_it_runs_and_with_the_next_daemon",
    ),
    (
        "/v1/pools/{pool}/disks/{disk}/remove/cancel",
        "a_removal_is_called_off_and_one_without_an_end_is_not_begun",
    ),
    ("/v1/pools/{pool}/volumes", "a_dry_run_shows_the_plan_of_a_volume_and_makes_nothing"),
    ("/v1/pools/{pool}/volumes/{space}/mount", "a_dry_run_shows_the_plan_of_a_volume_and_makes_nothing"),
    ("/v1/pools/{pool}/volumes/{space}/unmount", "a_dry_run_shows_the_plan_of_a_volume_and_makes_nothing"),
    ("/v1/pools/{pool}/volumes/{space}/grow", "a_dry_run_shows_the_plan_of_a_volume_and_makes_nothing"),
    ("/v1/pools/{pool}/volumes/{space}/trim", "a_dry_run_shows_the_plan_of_a_volume_and_makes_nothing"),
    ("/v1/pools/{pool}/volumes/{space}/delete", "a_dry_run_shows_the_plan_of_a_volume_and_makes_nothing"),
    ("/v1/pools/{pool}/volumes/{space}/check", "a_volume_is_checked_and_a_foreign_file_system_is_adopted"),
    ("/v1/pools/{pool}/volumes/{space}/adopt", "a_volume_is_checked_and_a_foreign_file_system_is_adopted"),
    ("/v1/pools/{pool}/spaces/{space}/bench", "a_benchmark_is_a_job_and_its_report_is_kept"),
    ("/v1/pools/{pool}/volumes/{space}/compact", "a_dry_run_of_a_deduplication_begins_nothing"),
    ("/v1/pools/{pool}/volumes/{space}/dedup/estimate", "a_dry_run_of_a_deduplication_begins_nothing"),
    ("/v1/pools/{pool}/volumes/{space}/dedup/enable", "a_dry_run_of_a_deduplication_begins_nothing"),
    ("/v1/pools/{pool}/volumes/{space}/dedup/run", "a_dry_run_of_a_deduplication_begins_nothing"),
    ("/v1/pools/{pool}/volumes/{space}/dedup/undo", "a_dry_run_of_a_deduplication_begins_nothing"),
    ("/v1/pools/{pool}/volumes/{space}/quotas", "a_quota_that_a_kill_cut_short_is_taken_by_the_next_daemon"),
    (
        "/v1/pools/{pool}/volumes/{space}/quotas/remove",
        "a_quota_that_a_kill_cut_short_is_taken_by_the_next_daemon",
    ),
    (
        "/v1/pools/{pool}/volumes/{space}/shares",
        "a_share_is_offered_while_its_volume_is_mounted_and_only_then",
    ),
    (
        "/v1/pools/{pool}/volumes/{space}/shares/{share}/delete",
        "a_refusal_of_a_server_leaves_no_right_that_is_not_on_record",
    ),
    (
        "/v1/pools/{pool}/volumes/{space}/shares/{share}/accept",
        "rights_of_another_host_over_nfs_are_held_until_they_are_accepted",
    ),
    (
        "/v1/pools/{pool}/volumes/{space}/shares/{share}/grant",
        "a_refusal_of_a_server_leaves_no_right_that_is_not_on_record",
    ),
    (
        "/v1/pools/{pool}/volumes/{space}/shares/{share}/revoke",
        "a_refusal_of_a_server_leaves_no_right_that_is_not_on_record",
    ),
];

/// Every kind of change that makes sense for a pool with a served space, one that is not, and one in the trash.
fn requests(free: &str) -> Vec<(&'static str, Value)> {
    let space = json!({"name": "n", "size_bytes": 8 << 20, "resiliency": "simple", "provisioning": "fixed", "row_bytes": 1 << 20});
    vec![
        ("/v1/pools", json!({"name": "other", "disks": [free]})),
        ("/v1/pools/tank/disks", json!({"disks": [free]})),
        ("/v1/pools/tank/disks/0/replace", json!({"with": free})),
        ("/v1/pools/tank/disks/0/remove", json!({})),
        ("/v1/pools/tank/disks/0/online", json!({})),
        ("/v1/pools/tank/disks/0/offline", json!({})),
        ("/v1/pools/tank/disks/0/locate", json!({"seconds": 5})),
        ("/v1/pools/tank/disks/0/set", json!({"bay": "left"})),
        ("/v1/pools/tank/scrub", json!({})),
        ("/v1/pools/tank/resync", json!({})),
        ("/v1/pools/tank/write_cache/resize", json!({"size_bytes": 5 << 20})),
        ("/v1/pools/tank/write_cache/drain", json!({"fill_percent": 50})),
        ("/v1/pools/tank/repair_after", json!({"seconds": 3600})),
        ("/v1/pools/tank/alert_at", json!({"percents": [70]})),
        ("/v1/pools/tank/disks/0/role", json!({"role": "spare"})),
        ("/v1/pools/tank/disks/0/enclosure", json!({"name": "shelf"})),
        ("/v1/pools/tank/export", json!({})),
        ("/v1/pools/tank/spaces", space),
        ("/v1/pools/tank/spaces/m/resize", json!({"size_bytes": 64 << 20})),
        ("/v1/pools/tank/spaces/m/resize", json!({"size_bytes": 4096})),
        ("/v1/pools/tank/spaces/m/convert", json!({"resiliency": "parity", "provisioning": "fixed"})),
        ("/v1/pools/tank/spaces/m/unserve", json!({})),
        ("/v1/pools/tank/spaces/aside/rename", json!({"name": "elsewhere"})),
        ("/v1/pools/tank/spaces/m/limits", json!({"iops_max": 100, "bytes_per_s_min": 1 << 20})),
        ("/v1/pools/tank/spaces/m/reserve", json!({"bytes": 8 << 20})),
        ("/v1/pools/tank/spaces/aside/delete", json!({})),
        ("/v1/pools/tank/spaces/aside/delete", json!({"purge": true})),
        ("/v1/pools/tank/trash/old/restore", json!({})),
        ("/v1/pools/tank/trash/old/restore", json!({"name": "new"})),
        ("/v1/pools/tank/trash/purge", json!({"spaces": ["old"]})),
        ("/v1/pools/tank/trash/purge", json!({"all": true})),
        ("/v1/pools/tank/spaces/aside/serve", json!({})),
        ("/v1/pools/tank/spaces/aside/attach", json!({})),
        ("/v1/pools/tank/spaces/m/detach", json!({})),
        ("/v1/shutdown", json!({})),
    ]
}

#[test]
fn no_request_with_dry_run_changes_the_state() {
    // Scenario: every kind of change that makes sense for a pool with a served space and one that is not, each as a dry run;
    // there is none in the description of the API that is not among them.
    let world = World::new(4);
    world.make_tank(&["d0", "d1", "d3"]);
    let aside = json!({"name": "aside", "size_bytes": 8 << 20, "resiliency": "parity"});
    world.post("/v1/pools/tank/spaces", &aside);
    let old = json!({"name": "old", "size_bytes": 8 << 20, "resiliency": "simple"});
    world.post("/v1/pools/tank/spaces", &old);
    world.post("/v1/pools/tank/spaces/old/delete", &json!({}));
    let free = world.disk("d2");
    // Files have no SMART, which the daemon finds out some seconds behind the creation: no later look differs by that.
    for slot in 0..3 {
        let silence = || world.get("/v1/pools/tank/disks")["disks"][slot]["smart_silence"].is_string();
        eventually("it is known that a file has no SMART", || silence().then_some(()));
    }
    let state = || {
        let mut status = world.get("/v1/status");
        status["uptime_s"] = json!(0);
        (
            status,
            world.get("/v1/exports"),
            world.get("/v1/attachments"),
            world.get("/v1/jobs")["jobs"].clone(),
            blocks(&world, "d2"),
        )
    };
    let before = state();
    let requests = requests(&free);
    for (path, body) in &requests {
        let answer = world.post(path, &dry(body.clone()));
        assert_eq!(answer["is_changed"], false, "{path}");
        assert!(!answer["plan"]["steps"].as_array().unwrap().is_empty(), "{path}");
    }
    assert_eq!(state(), before);
    // What is served is not destroyed, and a dry run says so.
    world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    let before = state();
    world.post("/v1/pools/tank/destroy", &dry(json!({})));
    assert_eq!(state(), before);
    let tried: Vec<&str> = requests.iter().map(|(path, _)| *path).chain(["/v1/pools/tank/destroy"]).collect();
    let described: Value = serde_json::from_str(&dolmen_api::openapi()).unwrap();
    let changes =
        described["paths"].as_object().unwrap().iter().filter(|(_, verbs)| verbs["post"].is_object());
    let untried: Vec<&String> = changes
        .map(|(path, _)| path)
        .filter(|path| !tried.iter().any(|tried| fits(path, tried)))
        .filter(|path| !PLANNED_ELSEWHERE.iter().any(|(elsewhere, _)| elsewhere == path))
        .collect();
    assert!(untried.is_empty(), "changes whose dry run nobody has tried: {untried:?}");
}

/// Whether a path is one of those that a description stands for.
fn fits(described: &str, path: &str) -> bool {
    let (described, path): (Vec<&str>, Vec<&str>) =
        (described.split('/').collect(), path.split('/').collect());
    described.len() == path.len()
        && described.iter().zip(&path).all(|(one, other)| one.starts_with('{') || one == other)
}

#[test]
fn a_dry_run_of_a_new_size_says_what_the_change_then_says() {
    // Scenario: a fixed space is to become larger than the pool, larger and smaller within it; a thin one larger than anything.
    let world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    let fixed = json!({"name": "f", "size_bytes": 64 << 20, "resiliency": "mirror", "provisioning": "fixed"});
    world.post("/v1/pools/tank/spaces", &fixed);
    let resize = "/v1/pools/tank/spaces/f/resize";
    let to = |bytes: u64| json!({"size_bytes": bytes});
    let [planned, refused] = [dry(to(100 << 30)), to(100 << 30)].map(|body| world.refused(resize, &body));
    assert_eq!(planned, refused);
    assert_eq!((&refused["code"], &refused["object"]), (&json!("bad_size"), &json!("f")));
    let message = refused["message"].as_str().unwrap();
    assert!(message.starts_with("space f cannot have 100 GiB: it is fixed"), "{message}");
    assert_eq!(world.get("/v1/pools/tank/spaces/f")["space"]["size_bytes"], json!(64 << 20));
    for (mib, word) in [(128, "claiming"), (64, "giving")] {
        let (free_before, room_before) = (free(&world), room(&world));
        let plan = world.post(resize, &dry(to(mib << 20)))["plan"].clone();
        assert_eq!((free(&world), &plan["usable_before_bytes"]), (free_before, &room_before), "{plan}");
        let made = world.post(resize, &to(mib << 20));
        assert_eq!(made["plan"], plan);
        let moved = Bytes(free(&world).abs_diff(free_before)).to_string();
        let steps = plan["steps"].to_string();
        assert!(steps.contains(&format!("{word} {moved}")), "{moved}: {steps}");
        let is_less = plan["usable_after_bytes"].as_u64() < plan["usable_before_bytes"].as_u64();
        assert_eq!(is_less, word == "claiming", "{plan}");
    }
    // A thin one may be as large as anybody likes; that it cannot be filled is told before and behind.
    for body in [dry(to(1 << 44)), to(1 << 44)] {
        let change = world.post("/v1/pools/tank/spaces/m/resize", &body);
        assert!(change["warnings"].to_string().contains("when it is full, it takes"), "{change}");
    }
    let change = world.post("/v1/pools/tank/spaces/m/resize", &to(32 << 20));
    assert_eq!(change["warnings"], json!([]));
}

fn free(world: &World) -> u64 {
    world.get("/v1/pools/tank/df")["free_bytes"].as_u64().unwrap()
}

#[test]
fn reversible_changes_name_the_command_that_reverses_them() {
    // Scenario: every kind of change, and some that change nothing. Nothing brings a purged space back.
    let mut world = World::new(3);
    world.make_tank(&["d0", "d1"]);
    let aside = json!({"name": "aside", "size_bytes": 8 << 20, "resiliency": "simple"});
    let (free, nbd) = (world.disk("d2"), "tank/m");
    let undo = |world: &World, path: &str, body: Value| {
        let plan = world.post(path, &dry(body))["plan"].clone();
        (plan["is_reversible"].as_bool().unwrap(), plan["undo"].as_str().map(str::to_owned))
    };
    let by = |command: String| (true, Some(command));
    let cases = [
        ("/v1/pools", json!({"name": "x", "disks": [free]}), by("dolmen pool destroy x".to_owned())),
        ("/v1/pools/tank/disks", json!({"disks": [free]}), by(format!("dolmen pool remove tank {free}"))),
        (
            "/v1/pools/tank/disks/0/replace",
            json!({"with": free}),
            by(format!(
                "dolmen disk replace tank 0 --cancel, or, when it has ended, dolmen disk replace tank {free} {}",
                world.disk("d0")
            )),
        ),
        ("/v1/pools/tank/scrub", json!({}), (true, None)),
        ("/v1/pools/tank/export", json!({}), by("dolmen pool import --pool tank".to_owned())),
        ("/v1/pools/tank/spaces", aside, by("dolmen space delete tank/aside".to_owned())),
        (
            "/v1/pools/tank/spaces/m/resize",
            json!({"size_bytes": 64 << 20}),
            by(format!("dolmen space resize {nbd} {}", 32 << 20)),
        ),
        ("/v1/pools/tank/spaces/m/resize", json!({"size_bytes": 32 << 20}), (true, None)),
        ("/v1/pools/tank/spaces/m/convert", json!({"resiliency": "mirror"}), (true, None)),
        ("/v1/pools/tank/spaces/m/serve", json!({}), (true, None)),
        ("/v1/pools/tank/spaces/m/unserve", json!({}), by(format!("dolmen serve {nbd}"))),
        ("/v1/shutdown", json!({}), by("dolmen daemon".to_owned())),
    ];
    for (path, body, expected) in cases {
        assert_eq!(undo(&world, path, body), expected, "{path}");
    }
    world.post("/v1/pools/tank/spaces/m/unserve", &json!({}));
    assert_eq!(undo(&world, "/v1/pools/tank/spaces/m/unserve", json!({})), (true, None));
    let renamed = undo(&world, "/v1/pools/tank/spaces/m/rename", json!({"name": "n"}));
    assert_eq!(renamed, by("dolmen space set tank/n --name m".to_owned()));
    assert_eq!(undo(&world, "/v1/pools/tank/spaces/m/delete", json!({"purge": true})), (false, None));
    let (_, deleted) = undo(&world, "/v1/pools/tank/spaces/m/delete", json!({}));
    let deleted = deleted.unwrap();
    assert!(deleted.starts_with("dolmen trash restore tank/"), "{deleted}");
    let number = deleted.rsplit('/').next().unwrap().to_owned();
    world.post("/v1/pools/tank/spaces/m/delete", &json!({}));
    let restore = format!("/v1/pools/tank/trash/{number}/restore");
    assert_eq!(undo(&world, &restore, json!({})), by("dolmen space delete tank/m".to_owned()));
    assert_eq!(undo(&world, "/v1/pools/tank/trash/purge", json!({"all": true})), (false, None));
    world.post(&restore, &json!({}));
    assert_eq!(undo(&world, "/v1/pools/tank/destroy", json!({})), (false, None));
    world.kill();
    fs::rename(world.disk("d1"), world.folder.path().join("away")).unwrap();
    world.start();
    assert_eq!(undo(&world, "/v1/pools/tank/disks/1/replace", json!({"with": free})), (false, None));
    fs::rename(world.folder.path().join("away"), world.disk("d1")).unwrap();
    assert_eq!(
        undo(&world, "/v1/pools/tank/disks/1/online", json!({})),
        by("dolmen disk offline tank 1".to_owned())
    );
    world.post("/v1/pools/tank/export", &json!({}));
    let folder = world.folder.path().join("disks");
    let import = |mode: &str| json!({"paths": [&folder], "mode": mode});
    assert_eq!(undo(&world, "/v1/pools/import", import("write")), by("dolmen pool export tank".to_owned()));
    assert_eq!(undo(&world, "/v1/pools/import", import("confirmed")), (false, None));
}

#[test]
fn a_fixed_space_gets_what_df_says_and_no_more() {
    // Scenario: at each level of protection that fits, the largest fixed space that df speaks of is made, and a block more is
    // refused.
    let world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    world.nbd().write(0, &crate::client::pattern(1, 5 << 20));
    let all = world.get("/v1/pools/tank/df")["fits"].as_array().unwrap().clone();
    let mut made = 0;
    for fits in all {
        let (fixed, thin) =
            (fits["usable_fixed_bytes"].as_u64().unwrap(), fits["usable_bytes"].as_u64().unwrap());
        assert!(fixed <= thin, "{fits}");
        let space = |size: u64| {
            let parity = fits["parity"].as_u64().filter(|parity| *parity > 0);
            json!({"name": "f", "size_bytes": size, "resiliency": fits["resiliency"], "copies": fits["copies"],
                "parity": parity, "provisioning": "fixed"})
        };
        let error = world.refused("/v1/pools/tank/spaces", &space(fixed + 4096));
        assert!(["bad_size", "too_few_disks"].contains(&error["code"].as_str().unwrap()), "{fits}: {error}");
        if error["code"] == "bad_size" {
            let message = error["message"].as_str().unwrap();
            assert!(
                message.starts_with("space tank/f of ") && message.contains(" fit pool tank, where "),
                "{error}"
            );
            assert!(error["hint"].as_str().unwrap().contains("`dolmen df tank`"), "{error}");
        }
        if fixed > 0 {
            world.post("/v1/pools/tank/spaces", &space(fixed));
            world.post("/v1/pools/tank/spaces/f/delete", &json!({"purge": true, "destroy": "f"}));
            made += 1;
        }
    }
    assert!(made >= 5, "{made} kinds fit");
}

#[test]
fn df_has_room_for_what_can_be_made_and_for_nothing_else() {
    // Scenario: four disks in two fault domains, then in one. Where copies or parity want more domains than there are, a space
    // is refused, and df says that nothing fits; what it says fits is made. Plans speak of room that there is.
    for (domains, kinds) in [([1, 1, 2, 2], 3), ([1, 1, 1, 1], 2)] {
        let world = World::new(4);
        let disks: Vec<String> = (0..4).map(|index| world.disk(&format!("d{index}"))).collect();
        let pool = json!({"name": "tank", "disks": disks, "fault_domains": domains});
        assert_ne!(world.post("/v1/pools", &pool)["plan"]["usable_after_bytes"], 0);
        let mut made = 0;
        for fits in world.get("/v1/pools/tank/df")["fits"].as_array().unwrap() {
            let parity = fits["parity"].as_u64().filter(|parity| *parity > 0);
            let space = json!({"name": "f", "size_bytes": 1 << 20, "resiliency": fits["resiliency"],
                "copies": fits["copies"], "parity": parity});
            if fits["usable_bytes"] == 0 {
                assert_eq!(fits["usable_fixed_bytes"], 0, "{fits}");
                assert_eq!(world.refused("/v1/pools/tank/spaces", &space)["code"], "too_few_disks", "{fits}");
            } else {
                world.post("/v1/pools/tank/spaces", &space);
                world.post("/v1/pools/tank/spaces/f/delete", &json!({"purge": true, "destroy": "f"}));
                made += 1;
            }
        }
        assert_eq!(made, kinds, "kinds fit in {domains:?}");
    }
}

#[test]
fn every_byte_of_a_pool_is_accounted_for() {
    let world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    world.nbd().write(0, &crate::client::pattern(1, 5 << 20));
    let df = world.get("/v1/pools/tank/df");
    let bytes = |name: &str| df[format!("{name}_bytes")].as_u64().unwrap();
    assert_eq!(bytes("raw"), 3 * (256 << 20));
    assert_eq!(bytes("raw"), bytes("metadata") + bytes("tail") + bytes("data"));
    assert_eq!(bytes("data"), bytes("used") + bytes("free"));
    assert_eq!(bytes("claimed"), 5 << 20);
    assert_eq!(bytes("redundancy"), 5 << 20);
    assert_eq!(bytes("used"), bytes("claimed") + bytes("redundancy") + bytes("tables"));
    let space = world.get("/v1/pools/tank/spaces/m");
    assert_eq!(space["space"]["footprint_bytes"], df["used_bytes"]);
    // With parity there is a write cache beside.
    let parity =
        json!({"name": "p", "size_bytes": 64 << 20, "resiliency": "parity", "provisioning": "fixed"});
    let made = world.post("/v1/pools/tank/spaces", &parity);
    let df = world.get("/v1/pools/tank/df");
    let bytes = |name: &str| df[format!("{name}_bytes")].as_u64().unwrap();
    assert_eq!(bytes("claimed"), (5 + 64) << 20);
    assert_eq!(bytes("redundancy"), (5 + 32) << 20);
    let cache = &world.get("/v1/pools/tank")["pool"]["write_caches"][0];
    assert_eq!((&cache["survives"], &cache["footprint_bytes"]), (&json!(1), &df["write_cache_bytes"]));
    let [space, first] =
        [&made["space"], &space["space"]].map(|space| space["footprint_bytes"].as_u64().unwrap());
    assert_eq!(bytes("used"), first + space + bytes("write_cache"));
    assert_eq!(
        bytes("used"),
        bytes("claimed") + bytes("redundancy") + bytes("write_cache") + bytes("tables")
    );
}

#[test]
fn the_description_of_the_api_names_every_path_of_its_documents_page() {
    let world = World::new(0);
    let (status, described) = world.try_ask("GET", "/v1/openapi.json", b"").unwrap();
    assert_eq!(status, 200);
    assert_eq!(described, serde_json::from_str::<Value>(&dolmen_api::openapi()).unwrap());
    for path in [
        "/v1/version",
        "/v1/status",
        "/v1/pools",
        "/v1/pools/import",
        "/v1/pools/{pool}/destroy",
        "/v1/pools/{pool}/rebalance",
        "/v1/pools/{pool}/rebalance/cancel",
        "/v1/pools/{pool}/disks/{disk}/replace",
        "/v1/pools/{pool}/disks/{disk}/replace/cancel",
        "/v1/pools/{pool}/spaces/{space}/resize",
        "/v1/jobs/{job}",
        "/v1/jobs/{job}/set",
        "/v1/attachments",
        "/v1/exports",
        "/v1/counters",
        "/v1/shutdown",
    ] {
        assert!(described["paths"][path].is_object(), "{path}");
    }
}

#[test]
fn a_write_cache_is_shown_and_gets_the_size_that_is_asked_for() {
    let world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    let resize = "/v1/pools/tank/write_cache/resize";
    let size = |mib: u64| json!({"size_bytes": mib << 20});
    let none = world.refused(resize, &size(8));
    assert!(none["message"].to_string().contains("pool tank has no write cache"), "{none}");
    for parity in [1, 2] {
        if parity == 2 {
            world.post("/v1/pools/tank/disks", &json!({"disks": [world.make_disk("d3", 256 << 20)]}));
        }
        let name = format!("p{parity}");
        let space = json!({"name": name, "size_bytes": 64 << 20, "resiliency": "parity", "parity": parity});
        world.post("/v1/pools/tank/spaces", &space);
    }
    let cache = |nth: usize| world.get("/v1/pools/tank")["pool"]["write_caches"][nth].clone();
    let first = cache(0);
    assert_eq!(
        (&first["survives"], &first["copies"], &first["waiting_bytes"]),
        (&json!(1), &json!(2), &json!(0))
    );
    assert_eq!(first["disks"], json!([0, 1, 2]));
    for name in ["filled_bytes", "filled_bytes_per_s", "destaged_bytes", "destaged_bytes_per_s"] {
        assert_eq!(first[name], json!(0), "{name}");
    }
    // There are two.
    let which = world.refused(resize, &size(8));
    assert!(which["hint"].to_string().contains("--survives and one of 1, 2"), "{which}");
    let of = |parity: u64, mib: u64| json!({"size_bytes": mib << 20, "survives": parity});
    let small = world.refused(resize, &of(2, 4));
    assert_eq!(small["code"], "bad_size");
    assert!(small["message"].to_string().contains("it needs 5 MiB at least"), "{small}");
    let large = world.refused(resize, &of(1, 4096));
    assert!(large["message"].to_string().contains("a sixteenth of the pool, so it may have"), "{large}");
    let before = first["size_bytes"].as_u64().unwrap();
    let free = || world.get("/v1/pools/tank/df")["free_bytes"].as_u64().unwrap();
    let free_before = free();
    for (mib, word) in [(4, "smaller"), (7, "larger")] {
        let plan = world.post(resize, &dry(of(1, mib)));
        assert_eq!(plan["is_changed"], false);
        let steps = plan["plan"]["steps"].to_string();
        let reported = if word == "larger" { "claim 6." } else { "give" };
        assert!(steps.contains(reported) && steps.contains(&format!("to {mib} MiB")), "{steps}");
        let made = world.post(resize, &of(1, mib));
        assert!(
            made["message"].to_string().contains(&format!("is being made {word}, to {mib} MiB")),
            "{made}"
        );
        assert_eq!(plan["plan"], made["plan"]);
        let job = world.last_job();
        assert_eq!((&job["kind"], &job["state"]), (&json!("write_cache"), &json!("done")), "{job}");
        assert_eq!(cache(0)["size_bytes"], json!(mib << 20));
        assert_eq!(job["rows_done"], job["rows_total"]);
    }
    assert!(free() > free_before);
    let undo = world.post(resize, &dry(of(1, 5)))["plan"]["undo"].clone();
    assert_eq!(undo, json!(format!("dolmen pool set tank --write-cache {} --survives 1", 7 << 20)));
    assert_eq!(world.post(resize, &of(1, 7))["is_changed"], false);
    assert!(before > 7 << 20);
}

#[test]
fn a_dry_run_of_an_import_is_refused_as_the_import_is() {
    // Scenario: a copy of a disk lies beside it; then most disks are away, and what is left needs a confirmation. Each is refused
    // by the dry run already; what it counts are disks, and not copies.
    let world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    world.post("/v1/pools/tank/export", &json!({}));
    let folder = world.folder.path().join("disks");
    let import = |mode: &str, dry_run: bool| json!({"pool": "tank", "paths": [folder], "mode": mode, "dry_run": dry_run});
    let refused_both = |mode: &str| {
        let [dry, real] =
            [true, false].map(|dry_run| world.refused("/v1/pools/import", &import(mode, dry_run)));
        assert_eq!(dry, real);
        dry
    };
    fs::copy(world.disk("d1"), world.disk("a-copy")).unwrap();
    assert!(refused_both("write").to_string().contains("a-copy"));
    fs::remove_file(world.disk("a-copy")).unwrap();
    let away = world.folder.path().join("away");
    fs::create_dir(&away).unwrap();
    for name in ["d1", "d2"] {
        fs::rename(world.disk(name), away.join(name)).unwrap();
    }
    assert!(!refused_both("write").is_null());
    let confirmed = world.post("/v1/pools/import", &import("confirmed", true));
    assert!(confirmed.to_string().contains("1 of its 3 disks"), "{confirmed}");
    for name in ["d1", "d2"] {
        fs::rename(away.join(name), world.disk(name)).unwrap();
    }
    let planned = world.post("/v1/pools/import", &import("write", true));
    assert!(planned.to_string().contains("3 of its 3 disks"), "{planned}");
    world.post("/v1/pools/import", &import("write", false));
}
