//! Growth of volumes over kills and restarts. It needs what the tests of volumes need.

use serde_json::json;

use crate::client::eventually;
use crate::mounts;
use crate::volumes::{Rig, SHOW};

/// Scenario: the daemon is killed while a file system grows, and started twice. The first start ends the growth; the second has none.
#[test]
fn a_growth_that_is_killed_is_ended_by_the_next_daemon() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = Rig::new() else { return };
    rig.ended(rig.create());
    rig.mounted();
    assert_eq!(rig.orders("grow"), 0, "a file system grew that nobody asked to grow");
    // A container may not grow ext4.
    let done = json!({"say": "done", "outcome": {"is": "done"}}).to_string();
    std::fs::write(rig.control.join("answer-grow"), done + "\n").unwrap();
    rig.plant("before-grow");
    let client = rig.send(&format!("{SHOW}/grow"), &json!({"size_bytes": 96 << 20}));
    rig.is_held();
    rig.world.kill();
    drop(client);
    rig.lift("before-grow");
    rig.start();
    eventually("the growth goes on", || (rig.orders("grow") == 2).then_some(()));
    rig.mounted();
    rig.stop();
    rig.start();
    rig.mounted();
    assert_eq!(rig.orders("grow"), 2, "a growth that has ended began again");
    rig.stop();
}
