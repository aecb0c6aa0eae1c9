//! Growth of volumes, cut short. They need what those of volumes need, and btrfs: a container may not grow ext4.

use serde_json::{Value, json};

use crate::client::eventually;
use crate::mounts;
use crate::volumes::{Rig, SHOW};

const MIB: u64 = 1 << 20;
const HAD: u64 = 320 * MIB;
const WANTED: u64 = 384 * MIB;

/// A rig with a mounted btrfs; none where this machine cannot make it.
fn rig() -> Option<Rig> {
    let mut rig = Rig::new()?;
    // More room than the two disks of the rig have: btrfs asks for it.
    let added = ["d2", "d3"].map(|name| rig.world.make_disk(name, 768 << 20));
    rig.world.post("/v1/pools/tank/disks", &json!({"disks": added, "destroy": added}));
    let mut request = rig.request(false);
    (request["file_system"], request["size_bytes"]) = ("btrfs".into(), HAD.into());
    let made = rig.world.try_ask("POST", "/v1/pools/tank/volumes", request.to_string().as_bytes()).unwrap();
    if made.0 != 200 {
        assert_eq!(made.1["error"]["code"], "missing", "{}", made.1);
        println!("skipped: {}", made.1["error"]["message"]);
        rig.stop();
        return None;
    }
    rig.mounted();
    Some(rig)
}

/// Returns the volume once its file system has been counted with all of its space.
fn grown(rig: &Rig, step: &str) -> Value {
    let what = format!("{step}: the file system has all of its space");
    eventually(&what, || {
        let volume = rig.volume();
        let is_whole = volume["size_bytes"] == WANTED && volume["total_bytes"].as_u64() > Some(HAD);
        is_whole.then_some(volume)
    })
}

/// Scenario: the daemon is killed in front of the growth of the file system, behind it, in front of it with a worker that dies as well, and
/// when its answer is given. Expected: the next daemon ends with space and file system of the new size, mounted, with its file, and the same
/// growth again changes nothing.
#[test]
fn a_growth_that_is_killed_at_any_step_has_one_end() {
    let _mounts = mounts::mounting();
    for step in ["before-grow", "after-grow", "dies-grow", ""] {
        let Some(mut rig) = rig() else { return };
        std::fs::write(rig.mount().join("file"), step).unwrap();
        let size = json!({"size_bytes": WANTED});
        let grow = format!("{SHOW}/grow");
        match step {
            "" => drop(rig.world.post(&grow, &size)),
            _ => {
                let held = if step == "dies-grow" { "before-grow" } else { step };
                rig.plant(held);
                if held != step {
                    rig.plant(step);
                }
                let client = rig.send(&grow, &size);
                rig.is_held();
                rig.world.kill();
                drop(client);
                rig.lift(held);
                if held != step {
                    // The process reads that it is to die when it is let go.
                    eventually("the worker has died", || (!is_alive(&rig)).then_some(()));
                    rig.lift(step);
                }
            }
        }
        if step.is_empty() {
            rig.world.kill();
        }
        rig.start();
        rig.mounted();
        grown(&rig, step);
        assert_eq!(std::fs::read_to_string(rig.mount().join("file")).unwrap(), step);
        let again = rig.world.post(&grow, &size);
        assert_eq!(again["volume"]["size_bytes"], WANTED, "{step}: {again}");
        rig.stop();
    }
}

/// Returns whether the script that stands in for the worker runs.
fn is_alive(rig: &Rig) -> bool {
    let name = rig.control.join("worker").display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .any(|command| String::from_utf8_lossy(&command).contains(&name))
}
