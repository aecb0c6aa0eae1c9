//! Power that fails while a pool is changed.

use serde_json::{Value, json};

use crate::bench::{
    Content, MIB, client, disks, ended, expect_sound, health, idle, job, make_pool, make_space, mirror,
    parity, slot_of,
};
use crate::client::World;
use crate::power::{Machine, wait};
use std::time::Duration;

/// When power fails, behind the beginning of a change and behind the boot before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// As soon as some of what is to be moved was.
    Moved,
    /// So many milliseconds later, wherever it is then.
    After(u64),
}

/// When power fails while one change is made.
const CUTS: [When; 4] = [When::Moved, When::After(0), When::After(60), When::Moved];
/// Looks at a job, a few milliseconds apart, until some of what it moves was moved.
const LOOKS_MAX: u32 = 1000;
/// Of the changes, so many have to be cut in their midst for the test to have shown anything.
const IN_THE_MIDST_MIN: u32 = 6;

fn is_at_it(job: &Value) -> bool {
    job["state"] == "running" || job["state"] == "waiting"
}

/// Three spaces, what they hold, and how often power failed while a change was at work.
struct Bench {
    machine: Machine,
    contents: [Content; 3],
    round: u8,
    in_the_midst: u32,
}

const NAMES: [&str; 3] = ["m", "s", "p"];

impl Bench {
    fn new() -> Self {
        let mut machine = Machine::new(8);
        let paths: Vec<String> = (0..7).map(|nth| machine.disk(&format!("d{nth}"))).collect();
        let _ = machine.make_disk("n0", 256 << 20);
        make_pool(&machine.world, &paths);
        let narrow = |mut spec: Value| {
            spec["columns"] = json!(2);
            spec
        };
        make_space(&machine.world, "m", 64, mirror());
        // One copy alone: whatever counts too early is missed.
        make_space(&machine.world, "s", 64, json!({"resiliency": "simple", "columns": 1}));
        make_space(&machine.world, "p", 32, narrow(parity()));
        let mut contents = [Content::new("m", 64), Content::new("s", 64), Content::new("p", 32)];
        contents.iter_mut().for_each(|content| {
            let mib = content.len() / MIB;
            content.fill(&machine.world, mib, 1);
        });
        Self { machine, contents, round: 1, in_the_midst: 0 }
    }

    fn world(&self) -> &World {
        &self.machine.world
    }

    /// Writes a little to each space, all of it flushed.
    fn write(&mut self) {
        self.round += 1;
        for (content, name) in self.contents.iter_mut().zip(NAMES) {
            let mut client = client(&self.machine.world, name);
            for nth in 0..4 {
                let at = (nth * 11 + usize::from(self.round) * 7) * 64 % (content.len() >> 10);
                content.write(&mut client, at << 10, 64 << 10, self.round);
            }
            client.flush();
        }
    }

    fn expect(&self, when: &str) {
        self.contents.iter().for_each(|content| content.expect(self.world(), when));
    }

    /// Waits for the moment in which power is to fail; the job by then.
    fn cut_at(&self, id: &Value, when: When) -> Value {
        let mut at = job(self.world(), id);
        match when {
            When::After(ms) => {
                wait(Duration::from_millis(ms));
                at = job(self.world(), id);
            }
            When::Moved => {
                for _ in 0..LOOKS_MAX {
                    if at["rows_done"] != 0 || !is_at_it(&at) {
                        break;
                    }
                    wait(Duration::from_millis(4));
                    at = job(self.world(), id);
                }
            }
        }
        at
    }

    /// Makes a change, cuts the power again and again while it is made, and sees that it is made in the end.
    fn changed(&mut self, what: &str, path: &str, request: &Value) {
        self.write();
        let begun = self.world().post(path, request);
        let id = begun["job"]["id"].clone();
        assert!(id.is_u64(), "{what}: {begun}");
        for (cut, when) in CUTS.into_iter().enumerate() {
            let at = self.cut_at(&id, when);
            let is_at_it = is_at_it(&at);
            println!("{what}: cut {cut} at row {} of {}", at["rows_done"], at["rows_total"]);
            self.in_the_midst += u32::from(is_at_it);
            self.machine.cut();
            let pool = self.machine.boot_at_once();
            assert_eq!(pool["state"], "writable", "{what}, cut {cut}: it does not open unaided: {pool}");
            if !is_at_it {
                break;
            }
            if cut % 2 == 1 {
                // Clients go on.
                self.write();
            }
        }
        self.expect(&format!("{what}, cut: not all is as it was"));
        let done = ended(self.world(), &id);
        assert_eq!(done["state"], "done", "{what}: {done}");
        idle(self.world());
        assert_eq!(
            health(self.world()).0,
            "healthy",
            "{what}: not all is as it was: {:?}",
            health(self.world())
        );
    }
}

/// The incident: power fails while a disk is added, while one is removed, while rows become wider, and while a mirror becomes
/// parity. Here it does up to four times in each, at moments that differ; each write and flush of such a change is tried by the
/// crash tests of crate `space` (`a_cut_while_disks_come_and_go_leaves_a_member_or_all_of_it_elsewhere`, and their lives in which
/// spaces are converted). Expected: the pool opens unaided, what was flushed is there, the job goes on under its number, and is
/// done.
#[test]
fn incident_07_power_cut_in_mid_change() {
    let mut bench = Bench::new();
    let new = bench.machine.disk("n0");
    bench.changed("adding a disk", "/v1/pools/tank/disks", &json!({"disks": [new]}));
    let leaves = slot_of(bench.world(), &bench.machine.disk("d1"));
    bench.changed("removing a disk", &format!("/v1/pools/tank/disks/{leaves}/remove"), &json!({}));
    assert_eq!(disks(bench.world()).len(), 7);
    let convert = |space: &str| format!("/v1/pools/tank/spaces/{space}/convert");
    bench.changed("widening", &convert("p"), &json!({"columns": 4}));
    bench.changed("converting", &convert("m"), &json!({"resiliency": "parity", "columns": 3}));
    println!("{} cuts were in the midst of a change", bench.in_the_midst);
    assert!(bench.in_the_midst >= IN_THE_MIDST_MIN, "{} cuts were", bench.in_the_midst);
    bench.expect("all is changed");
    expect_sound(bench.world());
}
