//! The table of verbs against the daemon: every verb is routed, and answers as its declaration says.

use dolmen_api::{Repeat, VerbId, VerbKind};
use serde_json::json;

use crate::client::{World, eventually};
use crate::declared::{check_declared, declaration_of};
use crate::jobs::{full, scrub};

/// Scenario: each verb of the table is asked for something that is not there, changes as dry runs. The daemon knows them all, and
/// refuses with declared errors.
#[test]
fn every_verb_of_the_table_is_routed() {
    let world = World::new(0);
    for verb in VerbId::ALL {
        let declaration = verb.declaration();
        let values = vec!["4000"; declaration.parameters.len()];
        let (method, path) = (declaration.kind.method(), declaration.path_of(&values));
        let (status, answer) = world.try_ask(method, &path, br#"{"dry_run":true}"#).unwrap();
        assert!(
            status == 200 || answer["error"]["code"].is_string(),
            "{}: {status} {answer}",
            declaration.name
        );
        assert!(
            status != 405 && answer["error"]["code"] != "no_such_route",
            "{}: {answer}",
            declaration.name
        );
        check_declared(method, &path, status, &answer);
    }
}

/// Repeatable changes that take a volume, with the tests that ask for them twice.
const REPEATED_ELSEWHERE: [(&str, &str); 4] = [
    ("SetQuota", "a_quota_that_a_kill_cut_short_is_taken_by_the_next_daemon"),
    ("GrantShare", "a_refusal_of_a_server_leaves_no_right_that_is_not_on_record"),
    ("AcceptShare", "rights_of_another_host_over_nfs_are_held_until_they_are_accepted"),
    ("RevokeShare", "a_refusal_of_a_server_leaves_no_right_that_is_not_on_record"),
];

/// Scenario: each change that the table declares to be repeatable is asked for twice. The second time succeeds and changes nothing.
#[test]
fn a_repeatable_change_succeeds_twice_and_changes_something_once() {
    let mut world = full(&["d0", "d1", "d2"]);
    world
        .post("/v1/pools/tank/spaces", &json!({"name": "p", "size_bytes": 64 << 20, "resiliency": "parity"}));
    let grown = std::fs::OpenOptions::new().write(true).open(world.disk("d0")).unwrap();
    grown.set_len(grown.metadata().unwrap().len() + (256 << 20)).unwrap();
    let job = scrub(&mut world);
    let pause = format!("/v1/jobs/{job}/pause");
    let set = format!("/v1/jobs/{job}/set");
    let stop = format!("/v1/jobs/{job}/stop");
    let requests = [
        (pause.as_str(), json!({})),
        (&set, json!({"priority": "high"})),
        (&stop, json!({})),
        ("/v1/pools/tank/acknowledge", json!({})),
        ("/v1/pools/tank/write_cache/drain", json!({"fill_percent": 50})),
        ("/v1/pools/tank/repair_after", json!({"seconds": 3600})),
        ("/v1/pools/tank/keep_room", json!({"losses": 0})),
        ("/v1/pools/tank/alert_at", json!({"percents": [70]})),
        ("/v1/pools/tank/disks/0/set", json!({"bay": "left"})),
        ("/v1/pools/tank/disks/0/enclosure", json!({"name": "shelf"})),
        ("/v1/pools/tank/disks/0/grow", json!({})),
        ("/v1/pools/tank/disks/0/offline", json!({})),
        ("/v1/pools/tank/disks/0/online", json!({})),
        ("/v1/pools/tank/spaces/m/resize", json!({"size_bytes": 128 << 20})),
        ("/v1/pools/tank/spaces/m/limits", json!({"iops_max": 100})),
        ("/v1/pools/tank/spaces/p/reserve", json!({"bytes": 8 << 20})),
        ("/v1/pools/tank/spaces/p/serve", json!({})),
        ("/v1/pools/tank/spaces/p/unserve", json!({})),
        ("/v1/pools/tank/disks/0/role", json!({"role": "member"})),
    ];
    for (path, body) in &requests {
        let first = world.post(path, body);
        if let Some(job) = first["job"]["id"].as_u64().filter(|_| path.ends_with("/online")) {
            let state = || world.get(&format!("/v1/jobs/{job}"))["job"]["state"].clone();
            eventually("the disk is up to date", || (state() == "done").then_some(()));
        }
        let again = world.post(path, body);
        assert_eq!(again["is_changed"], false, "{path}: {first} and then {again}");
    }
    let repeatable = VerbId::ALL.iter().map(|verb| verb.declaration());
    let repeatable = repeatable.filter(|verb| verb.kind == VerbKind::Change && verb.repeat == Repeat::Same);
    let untried: Vec<&str> = repeatable
        .map(|verb| verb.name)
        .filter(|name| !requests.iter().any(|(path, _)| declaration_of("POST", path).unwrap().name == *name))
        .filter(|name| !REPEATED_ELSEWHERE.iter().any(|(elsewhere, _)| elsewhere == name))
        .collect();
    assert!(untried.is_empty(), "declared repeatable, and not asked for twice: {untried:?}");
}
