//! Dry runs change nothing, nothing is destroyed whose name was not typed, and jobs are waited for.

use clap::CommandFactory;
use dolmen_api::ExitCode;
use serde_json::{Value, json};

use super::fake::{Ended, Fake, NOBODY, Reply, answer, change, obey, refuse, somebody};
use crate::arguments::Arguments;

/// Every command that changes something, without its consent.
const CHANGES: [&str; 77] = [
    "pool create tank /a /b",
    "pool export tank",
    "pool import /a --confirmed",
    "pool import /a --accept",
    "pool destroy tank",
    "pool add tank /c",
    "pool remove tank 3",
    "pool remove tank 3 --cancel",
    "pool rebalance tank",
    "pool rebalance tank --cancel",
    "pool resync tank",
    "disk replace tank 3 /d",
    "disk replace tank 3 --cancel",
    "pool set tank --write-cache 1G",
    "pool set tank --repair-after 1h",
    "pool set tank --keep-room-for 1",
    "pool set tank --alert-at 70,85%",
    "pool acknowledge tank",
    "disk online tank 3",
    "disk offline tank 3",
    "disk grow tank 3",
    "pool add tank /c --spare",
    "disk set tank 3 --spare",
    "disk set tank 3 --member",
    "pool add tank /c@shelf --spare",
    "disk set tank 3 --enclosure shelf",
    "disk retire tank 3",
    "disk retire tank 3 --cancel",
    "disk forget tank 3",
    "disk forget tank 3 --accept-data-loss",
    "disk locate tank 3 --seconds 5",
    "disk locate tank 3 --off",
    "disk set tank 3 --bay left",
    "space create tank/x --size 1G",
    "space set tank/x --name y",
    "space set tank/x --iops-max 100 --rate-min none",
    "space set tank/x --reserve 1G",
    "space resize tank/x 2G",
    "space convert tank/x --resiliency parity --columns auto",
    "space delete tank/x",
    "space delete tank/x --purge",
    "volume create tank/x --size 1G --for files",
    "volume create tank/x --size 1G --for vms --fs ext4 --mount /srv/x --label x",
    "volume mount tank/x --mount /srv/y",
    "volume unmount tank/x",
    "volume grow tank/x 2G",
    "volume trim tank/x",
    "volume check tank/x",
    "volume check tank/x --repair",
    "volume adopt tank/x",
    "volume delete tank/x",
    "volume quota set tank/x docs 1G --files 7",
    "volume quota remove tank/x docs",
    "share create tank/x --smb docs --grant alice:rw --grant @staff:ro",
    "share create tank/x --path docs/2026 --nfs 10.0.0.0/8:ro",
    "share grant tank/x docs bob:ro --nfs host.example:rw",
    "share accept tank/x docs",
    "share revoke tank/x docs bob",
    "share delete tank/x docs",
    "trash restore tank/x --as y",
    "trash purge tank/x tank/7",
    "trash purge --all tank",
    "space attach tank/x",
    "space detach tank/x",
    "serve tank/x",
    "unserve tank/x",
    "scrub tank",
    "job pause 7",
    "job resume 7",
    "job stop 7",
    "job set 7 --priority high --latency-limit 5ms",
    "volume compact tank/x --budget 1G",
    "dedup estimate tank/x",
    "dedup enable tank/x --off",
    "dedup run tank/x",
    "dedup undo tank/x a",
    "stop",
];

/// What is imported is given by a name or by paths; a word without a slash, at which nothing is, is a name.
#[test]
fn an_import_takes_a_name_or_paths() {
    for (words, pool, paths) in [
        ("tank-of-nobody", json!("tank-of-nobody"), json!([])),
        ("--pool tank", json!("tank"), json!([])),
        ("tank-of-nobody /a", json!("tank-of-nobody"), json!(["/a"])),
        ("/tank-of-nobody", Value::Null, json!(["/tank-of-nobody"])),
    ] {
        let fake = Fake::play(|_, body| obey(body));
        let ended = fake.run(&format!("pool import {words}"), &NOBODY);
        assert_eq!(ended.code, ExitCode::Ok, "{words}: {}", ended.messages);
        let [asked] = fake.acts().try_into().unwrap();
        assert_eq!((&asked.body["pool"], &asked.body["paths"]), (&pool, &paths), "{words}");
    }
    let fake = Fake::play(|_, body| obey(body));
    for path in ["./tank-of-nobody", "src"] {
        assert_eq!(fake.run(&format!("pool import {path}"), &NOBODY).code, ExitCode::Ok, "{path}");
        assert_eq!(fake.acts().last().unwrap().body["pool"], Value::Null, "{path}");
    }
    // One pool at a time.
    let fake = Fake::play(|_, body| obey(body));
    for words in ["--pool tank disk-of-nobody", "tank-of-nobody disk-of-nobody"] {
        let ended = fake.run(&format!("pool import {words}"), &NOBODY);
        assert_eq!(ended.code, ExitCode::Usage, "{words}");
        assert!(ended.messages.contains("disk-of-nobody here, and pool tank"), "{}", ended.messages);
    }
    assert_eq!(fake.asked().len(), 0);
}

/// An import that names nothing asks for no change: it lists what could be imported, also one that was closed here.
#[test]
fn an_import_of_nothing_lists_pools_and_changes_nothing() {
    let device = |path: &str, pool: &str| json!({"path": path, "size_bytes": 1 << 30, "state": "member", "what": "x", "pool": pool, "pool_disk_count": 1});
    let here = json!({"schema": 1, "devices": [device("/a", "bank")]});
    let fake = Fake::play(move |line, body| match line {
        "GET /v1/devices" => answer(200, &here),
        "GET /v1/pools" => answer(200, &json!({"schema": 1, "pools": []})),
        _ => obey(body),
    });
    for line in ["pool import", "pool import -n"] {
        let ended = fake.run(line, &NOBODY);
        assert_eq!(
            (ended.code, ended.results.as_str()),
            (
                ExitCode::Ok,
                "pool bank is on 1 disk here and not open; to open it: dolmen pool import --pool bank\n"
            )
        );
    }
    let document: Value = serde_json::from_str(&fake.run("pool import -o json", &NOBODY).results).unwrap();
    assert_eq!(document["devices"][0]["pool"], "bank");
    assert_eq!(fake.acts().len(), 0);
    let nothing = Fake::play(|line, _| match line {
        "GET /v1/devices" => answer(200, &json!({"schema": 1, "devices": []})),
        _ => answer(200, &json!({"schema": 1, "pools": []})),
    });
    let ended = nothing.run("pool import", &NOBODY);
    assert!(ended.results.starts_with("no pool can be imported"), "{}", ended.results);
    // What says how to open a pool says which.
    for option in ["--read-only", "--confirmed", "--as bank"] {
        assert!(
            crate::arguments::parse::parse(format!("dolmen pool import {option}").split_whitespace())
                .is_err(),
            "{option}"
        );
    }
}

/// With -n, each command that changes something asks for a dry run, once, and shows the plan; also at a terminal, where
/// nobody is asked anything.
#[test]
fn a_dry_run_asks_for_nothing_but_the_plan() {
    for line in CHANGES {
        for person in [NOBODY, somebody("tank\n")] {
            let fake = Fake::play(|_, body| obey(body));
            let ended = fake.run(&format!("{line} -n"), &person);
            assert_eq!(ended.code, ExitCode::Ok, "{line}: {}", ended.messages);
            assert_eq!(fake.acts(), [], "{line}");
            assert_eq!(fake.asked().len(), 1, "{line}");
            assert_eq!(
                ended.results,
                "dry run, nothing was changed; this would happen:\n  1. forget everything\n  2. rest\nusable before  1 GiB\nusable after   1.50 GiB\nbytes moved    4 KiB at most\ncan be undone  no\n",
                "{line}"
            );
        }
    }
}

/// Of several settings that one command asks for none is made where any is refused; else all are, in their order.
#[test]
fn of_several_settings_none_is_made_where_one_is_refused() {
    for (line, paths) in [
        ("space set tank/x --iops-max 5 --name y --reserve 1G", &["reserve", "limits", "rename"][..]),
        ("disk set tank 3 --spare --bay left --enclosure shelf", &["enclosure", "set", "role"]),
        (
            "pool set tank --write-cache 1G --keep-room-for 1 --repair-after 1h --alert-at 70",
            &["repair_after", "keep_room", "alert_at", "write_cache/resize"],
        ),
    ] {
        let made = |fake: &Fake| -> Vec<String> { fake.acts().into_iter().map(|asked| asked.line).collect() };
        let fake = Fake::play(|_, body| obey(body));
        assert_eq!(fake.run(line, &NOBODY).code, ExitCode::Ok, "{line}");
        let (all, count) = (made(&fake), paths.len());
        assert!(
            all.iter().zip(paths).all(|(line, path)| line.ends_with(path)) && all.len() == count,
            "{all:?}"
        );
        for bad in paths {
            let fake = Fake::play(move |asked, body| match asked.ends_with(bad) {
                true => refuse(409, "busy", "it cannot be", "tank"),
                false => obey(body),
            });
            assert_ne!(fake.run(line, &NOBODY).code, ExitCode::Ok, "{line}, {bad}");
            let others = made(&fake).into_iter().filter(|line| !line.ends_with(bad)).count();
            assert_eq!(others, 0, "{line}: {bad} is refused before anything is done");
        }
    }
}

/// Commands that change nothing of a pool, a space or a disk, and so have no dry run.
const READERS: [&str; 34] = [
    "status",
    "pool list",
    "pool show",
    "pool map",
    "disk list",
    "space list",
    "space show",
    "volume list",
    "volume show",
    "volume quota list",
    "share files",
    "share list",
    "share show",
    "share sessions",
    "image list",
    "trash list",
    "dedup status",
    "df",
    "jobs",
    "events",
    "iostat",
    "history",
    "metrics",
    "top",
    "explain",
    "why",
    "check",
    "plan",
    "daemon",
    "service show",
    "completion",
    "man",
    "version",
    "",
];

/// Those that have no daemon to ask for a plan; what their dry runs do, tests of their own show.
const BY_THEMSELVES: [&str; 9] = [
    "bench",
    "copy",
    "image add",
    "image clone",
    "image delete",
    "space clear",
    "service install",
    "service remove",
    "service mount",
];

/// The commands that a person can give, as they are typed, each with whether it has a dry run.
fn commands_of(command: &clap::Command, before: &str, all: &mut Vec<(String, bool)>) {
    if command.get_subcommands().next().is_none() || !command.is_subcommand_required_set() {
        let dry_run = command.get_arguments().find(|argument| argument.get_long() == Some("dry-run"));
        assert!(dry_run.is_none_or(|argument| argument.get_short() == Some('n')), "{before}");
        all.push((before.to_owned(), dry_run.is_some()));
    }
    for one in command.get_subcommands() {
        commands_of(one, format!("{before} {}", one.get_name()).trim(), all);
    }
}

/// A command that is added is either known to change nothing, or has -n and is tried with it above.
#[test]
fn every_command_that_changes_something_has_a_dry_run() {
    let mut all = Vec::new();
    commands_of(&Arguments::command(), "", &mut all);
    for (command, has_dry_run) in &all {
        let is_tried = CHANGES.iter().any(|line| line.starts_with(&format!("{command} ")) || line == command);
        let is_known = is_tried || BY_THEMSELVES.contains(&command.as_str());
        assert_eq!(*has_dry_run, is_known, "'dolmen {command}' has a dry run, and is among those tried");
        assert_eq!(!*has_dry_run, READERS.contains(&command.as_str()), "'dolmen {command}' changes nothing");
    }
    assert_eq!(all.iter().filter(|(_, has_dry_run)| !has_dry_run).count(), READERS.len());
}

/// A daemon that changes something although only the plan was wanted is found out.
#[test]
fn a_dry_run_that_changed_something_is_an_error() {
    let fake = Fake::play(|_, _| answer(200, &change(true)));
    let ended = fake.run("space resize tank/x 2G -n", &NOBODY);
    assert_eq!(ended.code, ExitCode::Internal);
    assert!(ended.messages.contains("answers that it changed something"), "{}", ended.messages);
}

/// The matrix of consent: terminal or not, flag right, wrong or missing, name typed right or wrong; `--yes` never helps.
#[test]
fn nothing_is_destroyed_whose_name_was_not_typed() {
    let right = somebody("tank\n");
    let wrong = somebody("tonk\n");
    let unresponsive = somebody("");
    for (person, flag, expected) in [
        (&NOBODY, "", ExitCode::Refused),
        (&NOBODY, "--yes", ExitCode::Refused),
        (&NOBODY, "--destroy=tonk", ExitCode::Refused),
        (&NOBODY, "--destroy=", ExitCode::Refused),
        (&NOBODY, "--destroy=tank", ExitCode::Ok),
        (&right, "", ExitCode::Ok),
        (&right, "--destroy=tonk", ExitCode::Refused),
        (&right, "--destroy=tank", ExitCode::Ok),
        (&wrong, "", ExitCode::Refused),
        (&wrong, "--yes", ExitCode::Refused),
        (&wrong, "--destroy=tank", ExitCode::Ok),
        (&unresponsive, "", ExitCode::Refused),
    ] {
        let fake = Fake::play(|_, body| obey(body));
        let ended = fake.run(&format!("pool destroy tank {flag}"), person);
        assert_eq!(ended.code, expected, "{flag} {:?}: {}", person.types, ended.messages);
        let acts = fake.acts();
        if expected == ExitCode::Refused {
            assert_eq!(acts, [], "{flag} {:?}", person.types);
            assert!(ended.messages.contains("hint: if nobody needs that data any more, say --destroy=tank"));
        } else {
            assert_eq!(acts.len(), 1, "{flag} {:?}", person.types);
            assert_eq!(acts[0].line, "POST /v1/pools/tank/destroy");
            assert_eq!(acts[0].body, json!({"destroy": "tank", "dry_run": false}));
        }
    }
}

/// Without a terminal and without the flag no change is asked for, and a name that is wrong is so for a dry run as well.
#[test]
fn a_refusal_comes_before_any_change() {
    for line in [
        "pool destroy tank",
        "pool destroy tank --destroy=x",
        "space delete tank/x --purge --destroy=tank",
        "trash purge tank/x",
        "trash purge tank/x --destroy=tank",
        "trash purge tank/x tank/y --destroy=x",
        "trash purge --all tank --destroy=x",
    ] {
        let fake = Fake::play(trash_or_obey);
        assert_eq!(fake.run(line, &NOBODY).code, ExitCode::Refused, "{line}");
        let expected = if line.contains("--destroy") { ExitCode::Refused } else { ExitCode::Ok };
        assert_eq!(fake.run(&format!("{line} -n"), &NOBODY).code, expected, "{line} -n");
        assert_eq!(fake.acts(), [], "{line}");
    }
}

/// Nobody is asked to confirm the loss of what is not there, or of what is lost already.
#[test]
fn what_is_not_there_is_refused_before_its_name_is_asked_for() {
    for (line, path) in [
        ("pool destroy none", "POST /v1/pools/none/destroy"),
        ("space delete tank/none --purge", "POST /v1/pools/tank/spaces/none/delete"),
        ("trash purge tank/9", "POST /v1/pools/tank/trash/purge"),
    ] {
        for person in [NOBODY, somebody("")] {
            let fake = Fake::play(move |asked, body| match asked == path {
                true => refuse(404, "no_such_space", "there is none", "x"),
                false => trash_or_obey(asked, body),
            });
            let ended = fake.run(line, &person);
            assert_eq!(ended.code, ExitCode::Usage, "{line}: {}", ended.messages);
            assert_eq!(ended.messages, "dolmen: there is none\n", "{line}");
        }
    }
    let fake = Fake::play(|line, body| match line.starts_with("POST") {
        true => {
            let mut gone = change(body["dry_run"] != json!(true));
            gone["plan"]["is_reversible"] = json!(true);
            answer(200, &gone)
        }
        false => trash_or_obey(line, body),
    });
    assert_eq!(fake.run("trash purge tank/8", &NOBODY).code, ExitCode::Ok);
    assert_eq!(fake.acts()[0].body["destroy"], Value::Null);
}

/// A daemon with the spaces x and y, number 7, in the trash, and one more that is being purged; it does all that it is asked for.
fn trash_or_obey(line: &str, body: &Value) -> Reply {
    let space = |id: u64, name: &str, stays: bool| {
        json!({"pool": "tank", "id": id, "name": name, "size_bytes": 1 << 20, "resiliency": "mirror", "copies": 2, "parity": 0,
            "footprint_bytes": 4096, "can_be_restored": stays})
    };
    match line {
        "GET /v1/pools/tank/trash" => {
            let spaces = [space(3, "x", true), space(7, "y", true), space(8, "gone", false)];
            answer(200, &json!({"schema": 1, "now_s": 0, "spaces": spaces}))
        }
        _ => obey(body),
    }
}

/// A person sees what would be lost before the question.
#[test]
fn the_plan_is_above_the_question() {
    let fake = Fake::play(|_, body| obey(body));
    let ended = fake.run("space delete tank/x --purge", &somebody("tank/x\n"));
    assert_eq!(ended.code, ExitCode::Ok);
    assert_eq!(
        ended.messages,
        "  forget everything\n  rest\nThis destroys the data of space tank/x. Type tank/x to go on: "
    );
    assert_eq!(ended.results, "it is done\n");
}

/// A space may be named with or without its pool; the daemon gets the name that the space has.
#[test]
fn a_space_is_deleted_by_either_name() {
    for name in ["x", "tank/x"] {
        let fake = Fake::play(|_, body| obey(body));
        let line = format!("space delete tank/x --purge --destroy={name}");
        assert_eq!(fake.run(&line, &NOBODY).code, ExitCode::Ok);
        assert_eq!(fake.acts()[0].body, json!({"purge": true, "destroy": "x", "dry_run": false}));
    }
}

/// Nothing is lost by moving a space into the trash, nor by taking it out: nobody is asked, with a terminal or without.
#[test]
fn the_trash_asks_for_nothing_before_it_is_purged() {
    for person in [NOBODY, somebody("")] {
        for (line, path, body) in [
            (
                "space delete tank/x",
                "spaces/x/delete",
                json!({"purge": false, "destroy": null, "dry_run": false}),
            ),
            ("trash restore tank/7", "trash/7/restore", json!({"name": null, "dry_run": false})),
            ("trash restore tank/x --as y", "trash/x/restore", json!({"name": "y", "dry_run": false})),
        ] {
            let fake = Fake::play(|_, body| obey(body));
            let ended = fake.run(line, &person);
            assert_eq!((ended.code, ended.messages.as_str()), (ExitCode::Ok, ""), "{line}");
            assert_eq!(fake.acts()[0].line, format!("POST /v1/pools/tank/{path}"));
            assert_eq!(fake.acts()[0].body, body, "{line}");
        }
    }
}

/// A purge wants the name of the one space, with its pool or without, also where the space is meant by its number, which is no
/// name; of several or all, that of the pool.
#[test]
fn a_purge_wants_the_name_of_what_is_lost() {
    let one = json!({"spaces": ["x"], "all": false, "destroy": "x", "dry_run": false});
    let by_number = json!({"spaces": ["7"], "all": false, "destroy": "y", "dry_run": false});
    let two = json!({"spaces": ["x", "7"], "all": false, "destroy": "tank", "dry_run": false});
    let all = json!({"spaces": [], "all": true, "destroy": "tank", "dry_run": false});
    for (line, body) in [
        ("trash purge tank/x --destroy=x", &one),
        ("trash purge tank/x --destroy=tank/x", &one),
        ("trash purge tank/7 --destroy=tank/y", &by_number),
        ("trash purge tank/x tank/7 --destroy=tank", &two),
        ("trash purge --all tank --destroy=tank", &all),
    ] {
        let fake = Fake::play(trash_or_obey);
        let ended = fake.run(line, &NOBODY);
        assert_eq!(ended.code, ExitCode::Ok, "{line}: {}", ended.messages);
        assert_eq!(fake.acts()[0].line, "POST /v1/pools/tank/trash/purge");
        assert_eq!(&fake.acts()[0].body, body, "{line}");
    }
    let fake = Fake::play(trash_or_obey);
    let ended = fake.run("trash purge tank/7", &somebody("tank/7\n"));
    assert_eq!((ended.code, fake.acts()), (ExitCode::Refused, vec![]));
    let question = "This destroys the data of space tank/y (number 7) in the trash. Type tank/y to go on: ";
    assert!(ended.messages.contains(question), "{}", ended.messages);
    for line in [
        "trash purge tank/x other/y --destroy=tank",
        "space delete tank/x --destroy=x",
        "trash purge",
        "trash purge tank/x --all tank",
    ] {
        let fake = Fake::play(|_, body| obey(body));
        assert_eq!(run_or_refuse(&fake, line), ExitCode::Usage, "{line}");
        assert_eq!(fake.asked(), [], "{line}");
    }
}

/// As [`Fake::run`], of lines that may be none.
fn run_or_refuse(fake: &Fake, line: &str) -> ExitCode {
    let words = ["dolmen"].into_iter().chain(line.split_whitespace());
    if crate::arguments::parse::parse(words).is_err() {
        ExitCode::Usage
    } else {
        fake.run(line, &NOBODY).code
    }
}

/// A daemon with foreign data on both disks, which refuses until both are named.
fn guarded(line: &str, body: &Value) -> Reply {
    let consent = |disk: &str| body["destroy"].as_array().unwrap().contains(&json!(disk));
    match ["/a", "/b"].into_iter().find(|disk| !consent(disk)) {
        Some(disk) if line.starts_with("POST") => {
            refuse(412, "foreign_data", &format!("{disk} holds an ext4 file system"), disk)
        }
        _ => obey(body),
    }
}

/// Every disk that holds something is asked about by its own name; one wrong answer ends it, and nothing was made.
#[test]
fn disks_that_hold_something_are_asked_about_one_by_one() {
    for (person, flags, expected, questions) in [
        (NOBODY, "", ExitCode::Refused, 1),
        (NOBODY, "--yes", ExitCode::Refused, 1),
        (NOBODY, "--destroy=/a", ExitCode::Refused, 1),
        (NOBODY, "--destroy=/c", ExitCode::Refused, 0),
        (NOBODY, "--destroy=/a --destroy=/b", ExitCode::Ok, 1),
        (somebody("/a\n/b\n"), "", ExitCode::Ok, 3),
        (somebody("/b\n"), "--destroy=/a", ExitCode::Ok, 2),
        (somebody("/a\n/a\n"), "", ExitCode::Refused, 2),
        (somebody("y\n"), "--yes", ExitCode::Refused, 1),
    ] {
        let fake = Fake::play(guarded);
        let ended = fake.run(&format!("pool create tank /a /b {flags}"), &person);
        assert_eq!(ended.code, expected, "{flags} {:?}: {}", person.types, ended.messages);
        assert_eq!(fake.asked().len(), questions, "{flags} {:?}", person.types);
        assert_eq!(ended.results.is_empty(), expected != ExitCode::Ok);
    }
}

/// Paths reach the daemon from the root, because it has another working folder.
#[test]
fn paths_are_made_absolute() {
    let fake = Fake::play(|_, body| obey(body));
    fake.run("pool create tank some/a /b --destroy=some/a", &NOBODY);
    let here = std::env::current_dir().unwrap().join("some/a");
    let here = here.to_str().unwrap();
    let expected = json!({"name": "tank", "disks": [here, "/b"], "destroy": [here], "fault_domains": [], "dry_run": false});
    assert_eq!(fake.acts()[0].body, expected);
    fake.run("disk online tank /dev/disk/by-id/a%b", &NOBODY);
    assert_eq!(fake.acts()[1].line, "POST /v1/pools/tank/disks/%2Fdev%2Fdisk%2Fby-id%2Fa%25b/online");
}

#[test]
fn the_options_of_a_space_reach_the_daemon() {
    let fake = Fake::play(|_, body| obey(body));
    fake.run("space create tank/x --size 1.5G", &NOBODY);
    let line = "space create tank/x --size 10G --resiliency mirror --copies 3 --columns 2 --interleave 64K --row 4M --provisioning fixed --sector 512 --strict";
    fake.run(line, &NOBODY);
    let usual = json!({"name": "x", "size_bytes": 3u64 << 29, "resiliency": "mirror", "copies": null, "parity": null, "columns": null,
        "interleave_bytes": null, "row_bytes": null, "provisioning": "thin", "integrity": null,
        "sector_bytes": null, "dry_run": false});
    let asked = fake.acts();
    assert_eq!((asked[0].line.as_str(), &asked[0].body), ("POST /v1/pools/tank/spaces", &usual));
    assert_eq!(asked[1].body["copies"], 3);
    assert_eq!(asked[1].body["columns"], 2);
    assert_eq!(asked[1].body["interleave_bytes"], 65536);
    assert_eq!(asked[1].body["row_bytes"], 4194304);
    assert_eq!(asked[1].body["provisioning"], "fixed");
    assert_eq!(asked[1].body["sector_bytes"], 512);
    assert_eq!(asked[1].body["integrity"], "strict");
    fake.run("space create tank/x --size 1G -r parity --parity 2", &NOBODY);
    let asked = fake.acts();
    assert_eq!((&asked[2].body["resiliency"], &asked[2].body["parity"]), (&json!("parity"), &json!(2)));
    for misfit in
        ["-r parity --copies 2", "-r mirror --parity 1", "-r parity --parity 3", "-r simple --parity 1"]
    {
        let line = format!("dolmen space create tank/x --size 1G {misfit}");
        assert!(crate::arguments::parse::parse(line.split(' ')).is_err(), "{misfit}");
    }
}

/// What can be undone is said together with the command that does it.
#[test]
fn a_dry_run_says_how_it_is_undone() {
    for (undo, reported) in [
        (json!("dolmen pool destroy tank"), "can be undone  yes: dolmen pool destroy tank\n"),
        (Value::Null, "can be undone  there is nothing to undo\n"),
    ] {
        let fake = Fake::play(move |_, _| {
            let mut stated = change(false);
            stated["plan"]["is_reversible"] = json!(true);
            stated["plan"]["undo"] = undo.clone();
            answer(200, &stated)
        });
        let results = fake.run("pool create tank /a -n", &NOBODY).results;
        assert!(results.ends_with(reported), "{results}");
    }
}

/// Scripts read the path and the address from the only line of the results.
#[test]
fn attach_and_serve_print_what_scripts_need_and_nothing_else() {
    let fake = Fake::play(|line, _| {
        let mut stated = change(true);
        stated["warnings"] = json!(["the kernel is old"]);
        if line.ends_with("/attach") {
            stated["attachment"] = json!({"pool": "tank", "space": "x", "path": "/dev/dolmen/tank/x",
                "device": "/dev/loop0", "used_by": [], "survives_daemon": false,
                "not_faster_because": "there is none", "limits": ["a killed daemon ends its I/O"]});
        } else {
            stated["export"] = json!({"pool": "tank", "space": "x", "name": "tank/x", "socket": "/run/n",
                "uri": "nbd+unix:///tank/x?socket=/run/n", "is_read_only": false, "client_count": 0});
        }
        answer(200, &stated)
    });
    let ended = fake.run("space attach tank/x", &NOBODY);
    assert_eq!(ended.results, "/dev/dolmen/tank/x\n");
    assert_eq!(
        ended.messages,
        "warning: the kernel is old\nattached by a loop device over FUSE, as /dev/loop0; not by ublk: there is none\n\
         warning: a killed daemon ends its I/O\n"
    );
    assert_eq!(fake.run("serve tank/x", &NOBODY).results, "nbd+unix:///tank/x?socket=/run/n\n");
}

/// What is no device of a space is left alone, whatever was typed, and no daemon is asked.
#[test]
fn clear_leaves_what_is_no_ublk_device_alone() {
    let fake = Fake::play(|line, _| panic!("asked: {line}"));
    for device in ["/dev/null", "/nowhere", "/dev/ublkb4000000"] {
        let ended = fake.run(&format!("space clear {device} --destroy {device}"), &NOBODY);
        assert_eq!(ended.code, ExitCode::Usage, "{}", ended.messages);
        assert!(ended.messages.contains(&format!("{device} is no ublk device")), "{}", ended.messages);
    }
}

/// The way is asked for only where somebody did, and told as it was taken.
#[test]
fn attach_says_which_way_it_took() {
    for (arguments, asked) in [
        ("", Value::Null),
        (" --transport auto", Value::Null),
        (" --transport loop", json!("loop")),
        (" --transport ublk", json!("ublk")),
        (" --transport loop-uring", json!("loop_uring")),
    ] {
        let expected = asked.clone();
        let fake = Fake::play(move |_, body| {
            assert_eq!(body["transport"], expected);
            let mut stated = change(true);
            stated["attachment"] = json!({"pool": "tank", "space": "x", "path": "/dev/dolmen/tank/x",
                "device": "/dev/ublkb3", "transport": "ublk", "used_by": [], "survives_daemon": true});
            answer(200, &stated)
        });
        let ended = fake.run(&format!("space attach tank/x{arguments}"), &NOBODY);
        assert_eq!(ended.results, "/dev/dolmen/tank/x\n");
        assert_eq!(ended.messages, "attached by ublk, as /dev/ublkb3\n");
    }
}

/// What does not survive its daemon is attached so only where it is asked for, and the answer says what that means.
#[test]
fn attach_over_io_uring_says_that_it_ends_with_the_daemon() {
    let fake = Fake::play(|_, body| {
        assert_eq!(body["transport"], "loop_uring");
        let mut stated = change(true);
        stated["attachment"] = json!({"pool": "tank", "space": "x", "path": "/dev/dolmen/tank/x",
            "device": "/dev/loop4", "transport": "loop_uring", "used_by": [], "survives_daemon": false,
            "limits": ["it ends with its daemon"]});
        answer(200, &stated)
    });
    let ended = fake.run("space attach --transport loop-uring tank/x", &NOBODY);
    assert_eq!(ended.results, "/dev/dolmen/tank/x\n");
    assert_eq!(
        ended.messages,
        "attached by a loop device over FUSE by io_uring, as /dev/loop4\nwarning: it ends with its daemon\n"
    );
}

fn job(state: &str, done: u64, result: Value) -> Value {
    json!({"id": 7, "pool": "tank", "kind": "replace", "subject": "3 by /d", "state": state, "rows_total": 10,
        "rows_done": done, "total_bytes": 10u64 << 30, "done_bytes": done << 30, "rate_bytes_per_s": 512u64 << 20,
        "elapsed_s": 2 * done, "eta": {"earliest_s": 20 - 2 * done, "latest_s": 65}, "result": result})
}

/// Plays a job that is looked at three times.
fn working(end: &'static str) -> Fake {
    let looks = std::sync::atomic::AtomicU64::new(0);
    Fake::play(move |line, body| {
        let mut stated = change(true);
        stated["job"] = job("waiting", 0, Value::Null);
        match line {
            "GET /v1/jobs/7" => {
                let job = match looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
                    0 => job("running", 0, Value::Null),
                    1 => job("running", 5, Value::Null),
                    _ => job(end, 9, json!("10 rows moved")),
                };
                answer(200, &json!({"schema": 1, "job": job}))
            }
            _ if body["dry_run"] == json!(true) => obey(body),
            _ => answer(200, &stated),
        }
    })
}

#[test]
fn a_job_is_waited_for_with_lines_of_progress() {
    let ended = working("done").run("disk replace tank 3 /d", &NOBODY);
    assert_eq!(ended.code, ExitCode::Ok);
    assert_eq!(ended.results, "it is done\n10 rows moved\n");
    assert_eq!(
        ended.messages,
        "replace 3 by /d:   0 %  0 B of about 10 GiB, 512 MiB/s, 20 s to 1 min 5 s left\n\
         replace 3 by /d:  50 %  5 GiB of about 10 GiB, 512 MiB/s, 10 s to 1 min 5 s left\n\
         replace 3 by /d: 100 %  9 GiB, done in 18 s\n"
    );
}

/// What is added may set several jobs going: all are named.
#[test]
fn all_jobs_that_go_on_with_a_change_are_named() {
    let reported = |further: &[u64]| {
        let further: Vec<Value> = further
            .iter()
            .map(|id| {
                let mut job = job("waiting", 0, Value::Null);
                job["id"] = json!(id);
                job
            })
            .collect();
        let fake = Fake::play(move |_, _| {
            let mut stated = change(true);
            stated["job"] = job("running", 0, Value::Null);
            stated["further_jobs"] = json!(further);
            answer(200, &stated)
        });
        fake.run("pool add tank /c", &NOBODY).messages
    };
    assert_eq!(reported(&[]), "job 7 goes on with it; `dolmen jobs 7 --wait` watches it\n");
    assert_eq!(
        reported(&[8, 9]),
        "jobs 7, 8 and 9 go on with it; `dolmen jobs` shows them, and `dolmen jobs 9 --wait` watches the last one\n"
    );
}

#[test]
fn on_a_terminal_one_line_of_progress_moves() {
    let ended = working("done").run("disk replace tank 3 /d", &somebody(""));
    assert_eq!(ended.messages.matches("\r\x1b[K").count(), 3, "{:?}", ended.messages);
    assert_eq!(ended.messages.matches('\n').count(), 1);
}

#[test]
fn a_job_that_fails_ends_the_command_with_an_error() {
    let ended = working("failed").run("disk replace tank 3 /d", &NOBODY);
    assert_eq!(ended.code, ExitCode::Io);
    assert!(ended.messages.contains("dolmen: job 7 (replace 3 by /d) of pool tank failed: 10 rows moved"));
}

/// What is paused may be so for ever, and what was called off is not done: the command says so, and ends.
#[test]
fn a_job_that_is_paused_or_called_off_ends_the_command_and_says_so() {
    let ended = working("paused").run("scrub tank", &NOBODY);
    assert_eq!(ended.code, ExitCode::Busy);
    assert!(ended.messages.contains("job 7 (replace 3 by /d) of pool tank is paused"), "{}", ended.messages);
    assert!(ended.messages.contains("hint: `dolmen job resume 7` goes on with it"), "{}", ended.messages);
    let ended = working("called_off").run("scrub tank", &NOBODY);
    assert_eq!(ended.code, ExitCode::Busy);
    assert!(ended.messages.contains("of pool tank was called off: 10 rows moved"), "{}", ended.messages);
}

#[test]
fn jobs_are_paused_resumed_and_stopped_by_their_numbers() {
    let fake = Fake::play(|_, body| obey(body));
    for verb in ["pause", "resume", "stop"] {
        assert_eq!(fake.run(&format!("job {verb} 7"), &NOBODY).code, ExitCode::Ok);
    }
    let asked: Vec<String> = fake.asked().into_iter().map(|asked| asked.line).collect();
    assert_eq!(asked, ["pause", "resume", "stop"].map(|verb| format!("POST /v1/jobs/7/{verb}")));
    for line in ["job pause", "job stop tank", "job resume -1", "job"] {
        assert!(crate::arguments::parse::parse(format!("dolmen {line}").split(' ')).is_err(), "{line}");
    }
}

#[test]
fn what_a_job_leaves_to_clients_reaches_the_daemon() {
    let fake = Fake::play(|_, body| obey(body));
    for line in ["--priority low", "--latency-limit 2s -n", "--priority high --latency-limit none"] {
        assert_eq!(fake.run(&format!("job set 7 {line}"), &NOBODY).code, ExitCode::Ok);
    }
    let asked = fake.asked();
    assert_eq!(asked[0].line, "POST /v1/jobs/7/set");
    let body = |priority: Value, limit: Value, dry_run: bool| json!({"priority": priority, "latency_limit_ms": limit, "dry_run": dry_run});
    assert_eq!(
        asked.into_iter().map(|asked| asked.body).collect::<Vec<_>>(),
        [
            body(json!("low"), Value::Null, false),
            body(Value::Null, json!(2000), true),
            body(json!("high"), json!(0), false)
        ]
    );
    for (line, reported) in [
        ("7", "--priority <PRIORITY>"),
        ("7 --priority urgent", "--priority <PRIORITY>"),
        ("7 --latency-limit 0ms", "--latency-limit <TIME>"),
        ("7 --latency-limit -1ms", "--latency-limit <TIME>"),
        ("7 --latency-limit 61s", "--latency-limit <TIME>"),
        ("tank --priority low", "<JOB>"),
    ] {
        let error = crate::arguments::parse::parse(format!("dolmen job set {line}").split(' '))
            .unwrap_err()
            .to_string();
        assert!(error.contains(reported), "{line}: {error}");
    }
}

/// What is there goes on moving behind the adding of disks: the command says so, and does not wait. A rebalance is waited for.
#[test]
fn disks_are_added_without_waiting_and_a_rebalance_is_waited_for() {
    let fake = working("done");
    let ended = fake.run("pool add tank /c", &NOBODY);
    assert_eq!((ended.code, ended.results.as_str()), (ExitCode::Ok, "it is done\n"));
    assert_eq!(ended.messages, "job 7 goes on with it; `dolmen jobs 7 --wait` watches it\n");
    fake.run("pool add tank /c --stays", &NOBODY);
    let asked: Vec<Value> = fake.acts().into_iter().map(|asked| asked.body).collect();
    let usual = json!({"disks": ["/c"], "destroy": [], "dry_run": false});
    let mut stays = usual.clone();
    stays["stays"] = Value::Bool(true);
    assert_eq!(asked, [usual, stays]);
    let fake = working("done");
    let ended = fake.run("pool rebalance tank", &NOBODY);
    assert_eq!(ended.results, "it is done\n10 rows moved\n");
    fake.run("pool rebalance tank --cancel", &NOBODY);
    let lines: Vec<String> = fake.acts().into_iter().map(|asked| asked.line).collect();
    assert_eq!(lines, ["POST /v1/pools/tank/rebalance", "POST /v1/pools/tank/rebalance/cancel"]);
}

/// What waits for an absent disk may do so for ever: the command says for what, and ends.
#[test]
fn a_job_that_is_put_off_ends_the_command_and_says_what_it_waits_for() {
    let mut put_off = job("waiting", 9, json!("/d has all that could be read; the rest waits for 3"));
    put_off["waits_for"] = json!("3");
    let shown = put_off.clone();
    let fake = Fake::play(move |line, _| match line {
        "GET /v1/jobs/7" => answer(200, &json!({"schema": 1, "job": put_off})),
        "GET /v1/jobs" => answer(200, &json!({"schema": 1, "jobs": [put_off]})),
        _ => {
            let mut stated = change(true);
            stated["job"] = job("waiting", 0, Value::Null);
            answer(200, &stated)
        }
    });
    let ended = fake.run("disk replace tank 3 /d", &NOBODY);
    assert_eq!(ended.code, ExitCode::Busy);
    let stated = "job 7 (replace 3 by /d) of pool tank is put off: /d has all that could be read; the rest waits for 3";
    assert!(ended.messages.contains(stated) && !ended.messages.contains("failed"), "{}", ended.messages);
    let listed = fake.run("jobs", &NOBODY).results;
    assert!(listed.contains("put off") && listed.contains(shown["result"].as_str().unwrap()), "{listed}");
    let one = fake.run("jobs 7", &NOBODY).results;
    assert!(one.contains("9 GiB of about 10 GiB, waiting for 3\n"), "{one}");
}

#[test]
fn a_job_need_not_be_waited_for() {
    let fake = working("done");
    let ended = fake.run("disk replace tank 3 /d --no-wait", &NOBODY);
    assert_eq!((ended.code, fake.asked().len()), (ExitCode::Ok, 1));
    assert_eq!(ended.messages, "job 7 goes on with it; `dolmen jobs 7 --wait` watches it\n");
}

/// Programs get the documents as they are, one a line, with fields of later versions.
#[test]
fn json_is_the_daemons_own() {
    let ended = working("done").run("disk replace tank 3 /d -o json", &NOBODY);
    let lines: Vec<Value> = ended.results.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1]["job"]["state"], "done");
    let fake = Fake::play(|_, _| answer(200, &json!({"schema": 1, "pools": [], "later": 5})));
    assert_eq!(fake.run("pool list -o json", &NOBODY).results, "{\"later\":5,\"pools\":[],\"schema\":1}\n");
}

/// The daemon dies while a job is watched.
#[test]
fn losing_sight_of_a_job_says_that_it_needs_nobody() {
    let fake = Fake::play(|line, _| match line {
        "GET /v1/jobs/7" => Reply::Bytes(Vec::new()),
        _ => {
            let mut stated = change(true);
            stated["job"] = job("running", 1, Value::Null);
            answer(200, &stated)
        }
    });
    let Ended { code, messages, .. } = fake.run("scrub tank", &NOBODY);
    assert_eq!(code, ExitCode::Io);
    assert!(messages.contains("lost sight of job 7 of pool tank"), "{messages}");
}

#[test]
fn the_size_of_a_write_cache_reaches_the_daemon() {
    let fake = Fake::play(|_, body| obey(body));
    fake.run("pool set tank --write-cache 1.5G", &NOBODY);
    fake.run("pool set tank --write-cache 64M --survives 2 -n", &NOBODY);
    let asked = fake.asked();
    assert_eq!(asked[0].line, "POST /v1/pools/tank/write_cache/resize");
    assert_eq!(asked[0].body, json!({"size_bytes": 3u64 << 29, "survives": null, "dry_run": false}));
    assert_eq!(asked[1].body, json!({"size_bytes": 64 << 20, "survives": 2, "dry_run": true}));
    fake.run("pool set tank --write-cache-fill 50%", &NOBODY);
    fake.run("pool set tank --write-cache-drain 100M --write-cache 1G", &NOBODY);
    fake.run("pool set tank --write-cache-drain max --survives 1 -n", &NOBODY);
    fake.run("pool set tank --repair-after 2h -n", &NOBODY);
    let asked = fake.asked();
    assert_eq!(asked[7].line, "POST /v1/pools/tank/repair_after");
    assert_eq!(asked[7].body, json!({"seconds": 7200, "dry_run": true}));
    fake.run("pool set tank --keep-room-for 2 -n", &NOBODY);
    let last = fake.asked().pop().unwrap();
    assert_eq!(last.line, "POST /v1/pools/tank/keep_room");
    assert_eq!(last.body, json!({"losses": 2, "dry_run": true}));
    let drain = |fill: Option<u8>, rate: Option<u64>, survives: Option<u8>, dry_run: bool| json!({"fill_percent": fill, "bytes_per_s_max": rate, "survives": survives, "dry_run": dry_run});
    assert_eq!(asked[2].line, "POST /v1/pools/tank/write_cache/drain");
    assert_eq!(asked[2].body, drain(Some(50), None, None, false));
    let size = |dry_run: bool| json!({"size_bytes": 1 << 30, "survives": null, "dry_run": dry_run});
    assert_eq!(asked[3].body, size(true), "what cannot be is refused first");
    assert_eq!(asked[4].body, drain(None, Some(100 << 20), None, false));
    assert_eq!(asked[5].body, size(false));
    assert_eq!(asked[6].body, drain(None, Some(0), Some(1), true));
    for line in [
        "pool set tank",
        "pool set tank --survives 1",
        "pool set tank --write-cache 0",
        "pool set tank --write-cache 1G --survives 4",
        "pool set tank --write-cache-fill 4",
        "pool set tank --write-cache-fill 91%",
        "pool set tank --write-cache-fill -1",
        "pool set tank --write-cache-drain 0",
        "pool set tank --write-cache-drain fast",
        "pool set tank --repair-after 0",
        "pool set tank --repair-after -1s",
        "pool set tank --alert-at 0",
        "pool set tank --alert-at 1,2,3,4,5",
        "pool set tank --keep-room-for 9",
    ] {
        assert!(crate::arguments::parse::parse(format!("dolmen {line}").split(' ')).is_err(), "{line}");
    }
}

#[test]
fn the_settings_of_a_deduplication_reach_the_daemon() {
    let fake = Fake::play(|_, body| obey(body));
    fake.run("dedup enable tank/home --min-age 7 --min-size 1M --exclude a/b --exclude c -n", &NOBODY);
    let asked = fake.asked().pop().unwrap();
    assert_eq!(asked.line, "POST /v1/pools/tank/volumes/home/dedup/enable");
    assert_eq!(
        asked.body,
        json!({"mode": null, "min_age_days": 7, "min_file_bytes": 1 << 20, "excluded_folders": ["a/b", "c"],
               "excluded_names": null, "memory_bytes": null, "schedule": null, "off": false, "dry_run": true})
    );
    for (line, path, body) in [
        (
            "dedup run tank/home --mode throughput -n",
            "dedup/run",
            json!({"mode": "throughput", "dry_run": true}),
        ),
        (
            "dedup estimate tank/home --sample 1G -n",
            "dedup/estimate",
            json!({"sample_bytes": 1 << 30, "dry_run": true}),
        ),
        ("dedup undo tank/home a b/c -n", "dedup/undo", json!({"paths": ["a", "b/c"], "dry_run": true})),
        (
            "volume compact tank/home --budget 64M -n",
            "compact",
            json!({"budget_bytes": 64 << 20, "dry_run": true}),
        ),
    ] {
        fake.run(line, &NOBODY);
        let asked = fake.asked().pop().unwrap();
        assert_eq!(asked.line, format!("POST /v1/pools/tank/volumes/home/{path}"), "{line}");
        assert_eq!(asked.body, body, "{line}");
    }
    for line in
        ["dedup enable tank/home --off --min-age 1", "dedup run home", "dedup run tank/home --mode fast"]
    {
        assert!(crate::arguments::parse::parse(format!("dolmen {line}").split(' ')).is_err(), "{line}");
    }
}
