//! Disks that come back as they were before, in a pool with more disks than carry its metadata (docs/design/0027).

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::client::{World, pattern};
use crate::jobs::idle;

const DISKS: [&str; 7] = ["d0", "d1", "d2", "d3", "d4", "d5", "d6"];
const PART: usize = 1 << 20;
const PARTS: u64 = 32;

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args(["-a", "--sparse=always", "-T"]).arg(from).arg(to).status().unwrap();
    assert!(copied.success(), "{} to {}", from.display(), to.display());
}

fn write_all(world: &World, fill: u8) {
    let mut nbd = world.nbd();
    for part in 0..PARTS {
        nbd.write(part * PART as u64, &pattern(fill, PART));
    }
    nbd.flush();
}

/// How much of it can be read: all that can has this content.
fn readable(world: &World, fill: u8) -> u64 {
    let mut nbd = world.nbd();
    let expected = pattern(fill, PART);
    let mut count = 0;
    for part in 0..PARTS {
        if let Ok(found) = nbd.try_read(part * PART as u64, PART) {
            assert!(found == expected, "part {part} is of before");
            count += 1;
        }
    }
    count
}

fn state_of(world: &World, name: &str) -> String {
    let disks = world.get("/v1/pools/tank/disks")["disks"].as_array().unwrap().clone();
    let path = world.disk(name);
    let is_it = |disk: &&Value| disk.to_string().contains(&path);
    disks.iter().find(is_it).map_or_else(|| format!("{disks:?}"), |disk| disk["state"].to_string())
}

#[test]
fn old_disks_of_a_pool_with_many_are_named_and_never_read() {
    // Scenario: some of seven disks, of which four carry the metadata, are put back as they were before the daemon was started the last
    // two times, while it is down: two at once, and one while another is gone. They are named with what to do, and nothing that stood
    // there then is read.
    let mut world = World::new(DISKS.len());
    world.make_tank(&DISKS);
    write_all(&world, 1);
    let folder = world.folder.path().to_owned();
    let of = |name: &str| folder.join(name);
    world.kill();
    copy(&of("disks"), &of("old"));
    for fill in 2..=3 {
        world.start();
        write_all(&world, fill);
        world.kill();
    }
    copy(&of("disks"), &of("new"));
    copy(&of("state"), &of("state.new"));
    for (old, gone) in
        [(&["d5", "d6"][..], None), (&["d2", "d4"], None), (&["d5"], Some("d6")), (&["d4"], None)]
    {
        std::fs::remove_dir_all(of("disks")).unwrap();
        std::fs::remove_dir_all(of("state")).unwrap();
        copy(&of("new"), &of("disks"));
        copy(&of("state.new"), &of("state"));
        old.iter().for_each(|name| copy(&of("old").join(name), &of("disks").join(name)));
        gone.iter().for_each(|name| std::fs::remove_file(of("disks").join(name)).unwrap());
        world.start();
        let count = readable(&world, 3);
        assert!(
            count == PARTS || old.len() + gone.iter().len() > 1 && count > 0,
            "{old:?}, {gone:?}: {count}"
        );
        let status = world.get("/v1/status");
        assert_ne!(status["health"], "healthy");
        for name in old {
            assert!(state_of(&world, name).contains("absent"), "{name}: {}", state_of(&world, name));
            let reported = status.to_string();
            assert!(
                reported.contains(&world.disk(name)) && reported.contains("as it was in epoch"),
                "{reported}"
            );
        }
        match (old, gone) {
            ([name], None) => take_back(&world, name),
            ([name, _], None) if count < PARTS => {
                let path = format!("/v1/pools/tank/disks/{}/online", name.trim_start_matches('d'));
                let asked = world.post(&path, &json!({"dry_run": true}));
                assert!(asked["plan"]["steps"].to_string().contains("has of m is as old as"), "{asked}");
                take_back_with_a_word(&world, name, &path);
            }
            _ => {}
        }
        world.kill();
    }
}

/// Takes the one old disk back in: all of it is copied, which the plan says.
fn take_back(world: &World, name: &str) {
    let slot = name.trim_start_matches('d');
    let path = format!("/v1/pools/tank/disks/{slot}/online");
    let asked = world.post(&path, &json!({"dry_run": true}));
    let steps = asked["plan"]["steps"].to_string();
    assert!(steps.contains("copy all that lies on it") && steps.contains("as it was in epoch"), "{steps}");
    assert!(asked["plan"]["moved_bytes"].as_u64().unwrap() > 0, "{asked}");
    world.post(&path, &json!({}));
    idle(world);
    assert_eq!(state_of(world, name), "\"present\"");
    assert_eq!(readable(world, 3), PARTS);
    assert_eq!(world.get("/v1/status")["health"], "healthy");
}

/// Takes an old disk that alone holds content of a space back in, which needs a word of its own and is refused without it.
fn take_back_with_a_word(world: &World, name: &str, path: &str) {
    let error = world.refused(path, &json!({}));
    let (message, hint) = (error["message"].as_str().unwrap(), error["hint"].as_str().unwrap());
    assert_eq!(error["code"], "needs_confirmation", "{error}");
    assert!(message.contains("has of m is as old as") && message.contains("nothing was changed"), "{error}");
    assert!(hint.contains("--accept-old-content"), "{error}");
    assert!(state_of(world, name).contains("absent"), "{}", state_of(world, name));
    let done = world.post(path, &json!({"accept_old_content": true}));
    assert!(done["warnings"].to_string().contains("has of m is as old as"), "{done}");
    idle(world);
    assert_eq!(state_of(world, name), "\"present\"");
}
