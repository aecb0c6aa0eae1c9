//! Messages that say one thing once: failed jobs, hints, plans of volumes, room without absent disks.

use serde_json::json;

use super::fake::{Fake, NOBODY, answer, change, refuse};
use crate::error::CliError;

/// Scenario: jobs fail whose results say what is left, and one whose result does not. Each message says it once.
#[test]
fn a_failed_job_says_once_what_is_left_of_it() {
    let text = |result: &str| {
        let (what, pool) = ("deduplicate volume tank/home".to_owned(), "tank".to_owned());
        CliError::JobFailed { id: 7, what, pool, result: result.to_owned() }.to_string()
    };
    for result in [
        "the volume is not mounted; nothing was changed",
        "a disk failed; what was moved stays where it is",
        "the kernel refused it; it is mounted as before",
    ] {
        let told = text(result);
        assert!(told.ends_with(result), "{told}");
    }
    assert!(text("a disk failed").ends_with("failed: a disk failed; what it had done stays done"));
}

/// Scenario: a disk holds something, and no terminal is there. The option that destroys it is named once, by daemon or command.
#[test]
fn the_option_that_destroys_is_named_once() {
    for message in ["/a holds ext4", "/a holds ext4; nothing was written. Confirm with --destroy=/a"] {
        let fake = Fake::play(move |_, _| refuse(412, "foreign_data", message, "/a"));
        let ended = fake.run("pool create tank /a", &NOBODY);
        assert_eq!(ended.messages.matches("--destroy=/a").count(), 1, "{}", ended.messages);
    }
}

/// Scenario: a dry run of a new volume. Steps have numbers, and reasons follow them without.
#[test]
fn a_plan_of_a_volume_tells_its_reasons_apart_from_its_steps() {
    let fake = Fake::play(|_, _| {
        let mut planned = change(false);
        planned["volume_plan"] = json!({"file_system": "xfs", "mkfs": ["mkfs.xfs"], "mount_options": ["noatime"],
            "mount_point": "/srv/tank/x", "reasons": ["XFS suits files.", "It is a mirror."], "missing": []});
        answer(200, &planned)
    });
    let ended = fake.run("volume create tank/x --for files --size 1G -n", &NOBODY);
    let expected = "  2. rest\nchosen because:\n  - XFS suits files.\n  - It is a mirror.\nusable before";
    assert!(ended.results.contains(expected), "{}", ended.results);
}

/// Scenario: a pool without one of its disks. Its room is that of the others, and the absent disk is named.
#[test]
fn room_without_absent_disks_names_them() {
    let of = |absent: &[&str]| {
        json!({"schema": 1, "pool": "tank", "raw_bytes": 100, "metadata_bytes": 1, "tail_bytes": 1, "data_bytes": 98,
            "used_bytes": 8, "claimed_bytes": 8, "redundancy_bytes": 0, "tables_bytes": 0, "free_bytes": 90,
            "reserve_bytes": 2, "promised_bytes": 0, "disks": [], "absent_disks": absent,
            "fits": [{"resiliency": "simple", "copies": 1, "survives": 0, "usable_bytes": 55}]})
    };
    let shown = |absent: &'static [&'static str]| {
        Fake::play(move |_, _| answer(200, &of(absent))).run("df tank", &NOBODY).results
    };
    let text = shown(&["/disks/b"]);
    let expected = "\n  /disks/b is absent: raw, data, used and free count the other disks, and what still fits does so without it; ";
    assert!(text.contains(expected) && text.contains("`dolmen why tank`"), "{text}");
    assert!(shown(&["/disks/b", "/disks/c"]).contains("/disks/b, /disks/c are absent: raw, data"));
    assert!(!shown(&[]).contains("absent"));
}
