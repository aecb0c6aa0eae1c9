//! Shares, quotas and names of damage, with answers of servers that the tests plant. They need what those of volumes need.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::attached::run;
use crate::client::eventually;
use crate::medium::place_of;
use crate::mounts;
use crate::volumes::{Rig, SHOW};

const SHARES: &str = "/v1/pools/tank/volumes/v/shares";
const QUOTAS: &str = "/v1/pools/tank/volumes/v/quotas";

/// A rig with a mounted volume, whose shares a client sees over SMB and NFS.
fn rig() -> Option<Rig> {
    let rig = Rig::new()?;
    rig.ended(rig.create());
    rig.mounted();
    let up = json!([{"protocol": "smb", "state": "up"}, {"protocol": "nfs", "state": "up"}]);
    answer(&rig, "share_probe", &json!({"is": "probed", "protocols": up}));
    Some(rig)
}

fn answer(rig: &Rig, operation: &str, outcome: &Value) {
    let said = json!({"say": "done", "outcome": outcome}).to_string();
    std::fs::write(rig.control.join(format!("answer-{operation}")), said + "\n").unwrap();
}

fn docs() -> Value {
    json!({"name": "docs", "protocols": ["smb", "nfs"],
           "accounts": [{"to": "user", "name": "alice", "access": "read_write"}],
           "networks": [{"client": "10.0.0.0/8", "access": "read_only"}]})
}

/// The operations since the last look, and forgets them.
fn orders(rig: &Rig) -> Vec<String> {
    let path = rig.control.join("orders");
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, "").unwrap();
    text.lines().filter(|name| *name != "usage").map(str::to_owned).collect()
}

fn at(orders: &[String], name: &str) -> usize {
    orders.iter().position(|order| order == name).unwrap_or_else(|| panic!("no {name} in {orders:?}"))
}

fn shares(rig: &Rig) -> Vec<Value> {
    rig.world.get(SHARES)["shares"].as_array().unwrap().clone()
}

fn share_is_up(rig: &Rig) {
    eventually("the share is up", || {
        let all = shares(rig);
        all.first().is_some_and(|share| share["protocols"][0]["state"] == "up").then_some(())
    });
}

/// Scenario: a share is created; its volume is unmounted and mounted; the daemon is killed; the pool is exported and imported. Each
/// mount puts the share, each unmount takes it off before, and the record stays.
#[test]
fn a_share_is_offered_while_its_volume_is_mounted_and_only_then() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig() else { return };
    let plan = rig.world.post(SHARES, &{
        let mut request = docs();
        request["dry_run"] = true.into();
        request
    });
    assert!(plan["plan"]["steps"].to_string().contains("user alice read-write"), "{plan}");
    assert!(plan["warnings"].to_string().contains("neither encrypted nor authenticated"), "{plan}");
    assert_eq!((shares(&rig).len(), rig.orders("share_put")), (0, 0));
    let made = rig.world.post(SHARES, &docs());
    assert_eq!(made["share"]["health"], "healthy", "{made}");
    let number = made["share"]["number"].clone();
    let taken = rig.world.refused(SHARES, &docs());
    assert_eq!(taken["code"], "name_taken");
    orders(&rig);
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    let seen = orders(&rig);
    assert!(at(&seen, "share_remove") < at(&seen, "unmount"), "clients write beside the volume: {seen:?}");
    assert_eq!(shares(&rig)[0]["protocols"][0]["state"], "off");
    rig.world.post(&format!("{SHOW}/mount"), &json!({}));
    let seen = orders(&rig);
    assert!(at(&seen, "mount") < at(&seen, "share_put"), "{seen:?}");
    share_is_up(&rig);
    rig.world.kill();
    rig.start();
    rig.mounted();
    share_is_up(&rig);
    let seen = orders(&rig);
    assert!(at(&seen, "share_list") < at(&seen, "share_put"), "{seen:?}");
    rig.world.post("/v1/pools/tank/export", &json!({}));
    let seen = orders(&rig);
    assert!(at(&seen, "share_remove") < at(&seen, "unmount"), "{seen:?}");
    let look_in = [rig.world.disk("d0"), rig.world.disk("d1")];
    rig.world.post("/v1/pools/import", &json!({"pool": "tank", "paths": look_in}));
    rig.mounted();
    share_is_up(&rig);
    assert_eq!(shares(&rig)[0]["number"], number);
    rig.stop();
}

/// Exports the pool, and lets the next daemon run as another host.
pub(crate) fn move_to_host(rig: &mut Rig, digit: char) {
    rig.world.post("/v1/pools/tank/export", &json!({}));
    rig.stop();
    let host = rig.world.folder.path().join("state/host-id");
    std::fs::write(host, digit.to_string().repeat(32)).unwrap();
    rig.start();
}

/// Imports the pool, and returns the answer and the order of its share to the servers.
fn import(rig: &Rig, accept: bool) -> (Value, Value) {
    let look_in = [rig.world.disk("d0"), rig.world.disk("d1")];
    let request = json!({"pool": "tank", "paths": look_in, "accept": accept});
    let imported = rig.world.post("/v1/pools/import", &request);
    if rig.volume()["is_held"] == true {
        rig.world.post(&format!("{SHOW}/mount"), &json!({"mount_point": rig.mount()}));
    }
    rig.mounted();
    share_is_up(rig);
    (imported, last_order(rig, "share_put"))
}

fn last_order(rig: &Rig, operation: &str) -> Value {
    let text = std::fs::read_to_string(rig.control.join(format!("order-{operation}"))).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Scenario: a pool with a share over SMB and NFS moves to another host, and to a third one by an import that accepts its shares. The
/// rights over NFS are held on the second host until they are accepted there; SMB is offered.
#[test]
fn rights_of_another_host_over_nfs_are_held_until_they_are_accepted() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig() else { return };
    let made = rig.world.post(SHARES, &docs());
    assert_eq!(made["share"]["is_held"], false, "{made}");
    move_to_host(&mut rig, '2');
    let (imported, order) = import(&rig, false);
    assert!(!order.to_string().contains("10.0.0.0/8"), "a right of another host is offered: {order}");
    assert!(order.to_string().contains("alice"), "{order}");
    assert!(imported["warnings"].to_string().contains("dolmen share accept tank/v"), "{imported}");
    let held = shares(&rig)[0].clone();
    assert_eq!((&held["is_held"], &held["protocols"][1]["state"]), (&json!(true), &json!("off")), "{held}");
    assert_eq!(held["networks"][0]["client"], "10.0.0.0/8", "{held}");
    let other = json!({"networks": [{"client": "192.0.2.1", "access": "read_only"}]});
    let refused = rig.world.refused(&format!("{SHARES}/docs/grant"), &other);
    assert_eq!(refused["code"], "needs_confirmation", "{refused}");
    let accept = format!("{SHARES}/docs/accept");
    let plan = rig.world.post(&accept, &json!({"dry_run": true}));
    assert_eq!((&plan["is_changed"], &shares(&rig)[0]["is_held"]), (&json!(false), &json!(true)), "{plan}");
    let accepted = rig.world.post(&accept, &json!({}));
    assert_eq!(accepted["share"]["is_held"], false, "{accepted}");
    assert!(last_order(&rig, "share_put").to_string().contains("10.0.0.0/8"));
    assert_eq!(rig.world.post(&accept, &json!({}))["is_changed"], false);
    rig.world.post(&format!("{SHARES}/docs/grant"), &other);
    // The same host again: nothing is held.
    rig.world.post("/v1/pools/tank/export", &json!({}));
    let (again, order) = import(&rig, false);
    assert!(order.to_string().contains("10.0.0.0/8"), "{order}");
    assert_eq!(again["warnings"], json!([]), "{again}");
    move_to_host(&mut rig, '3');
    let (imported, order) = import(&rig, true);
    assert!(order.to_string().contains("10.0.0.0/8"), "{order}");
    assert_eq!((&imported["warnings"], &shares(&rig)[0]["is_held"]), (&json!([]), &json!(false)));
    rig.stop();
}

/// Scenario: a server refuses a creation, a grant, a revocation and a deletion. The first two leave what was; the revocation stays on
/// record; the deletion keeps the record, and the next one ends.
#[test]
fn a_refusal_of_a_server_leaves_no_right_that_is_not_on_record() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig() else { return };
    rig.plant("fails-share_put");
    let refused = rig.world.refused(SHARES, &docs());
    assert!(refused["message"].as_str().unwrap().contains("planted"), "{refused}");
    assert!(shares(&rig).is_empty() && rig.orders("share_remove") == 1);
    rig.lift("fails-share_put");
    rig.world.post(SHARES, &docs());
    rig.plant("fails-share_put");
    let bob = json!({"accounts": [{"to": "user", "name": "bob", "access": "read_only"}]});
    rig.world.refused(&format!("{SHARES}/docs/grant"), &bob);
    assert_eq!(shares(&rig)[0]["accounts"].as_array().unwrap().len(), 1);
    let alice = json!({"accounts": [{"to": "user", "name": "alice"}]});
    let refused = rig.world.refused(&format!("{SHARES}/docs/revoke"), &alice);
    assert!(refused["message"].as_str().unwrap().contains("may still give them"), "{refused}");
    let share = shares(&rig)[0].clone();
    assert_eq!((&share["accounts"], &share["health"]), (&json!([]), &json!("warning")));
    assert!(share["why"].to_string().contains("change of the server"), "{share}");
    rig.lift("fails-share_put");
    let again = rig.world.post(&format!("{SHARES}/docs/revoke"), &alice);
    assert_eq!((&again["is_changed"], &again["share"]["health"]), (&json!(true), &json!("healthy")));
    let same = rig.world.post(&format!("{SHARES}/docs/revoke"), &alice);
    assert_eq!(same["is_changed"], false);
    for (verb, body) in [("grant", &bob), ("revoke", &alice), ("delete", &json!({}))] {
        let mut planned = body.clone();
        planned["dry_run"] = true.into();
        let before = shares(&rig);
        let plan = rig.world.post(&format!("{SHARES}/docs/{verb}"), &planned);
        assert_eq!(
            (&plan["is_changed"], shares(&rig)),
            (&json!(false), before),
            "a dry run of {verb}: {plan}"
        );
    }
    for is_changed in [true, false] {
        let granted = rig.world.post(&format!("{SHARES}/docs/grant"), &bob);
        assert_eq!(granted["is_changed"], is_changed, "{granted}");
    }
    rig.plant("fails-share_remove");
    rig.world.refused(&format!("{SHARES}/docs/delete"), &json!({}));
    let share = shares(&rig)[0].clone();
    assert_eq!(share["is_to_be_served"], false, "a share that servers may offer has no record: {share}");
    rig.lift("fails-share_remove");
    rig.world.post(&format!("{SHARES}/docs/delete"), &json!({}));
    assert!(shares(&rig).is_empty());
    rig.stop();
}

/// Scenario: a deletion waits for a grant that a server refuses, and is refused itself. The right of the grant is on record no more.
#[test]
fn a_deletion_that_waits_brings_back_no_right() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig() else { return };
    rig.world.post(SHARES, &docs());
    rig.plant("before-share_put");
    let bob = json!({"accounts": [{"to": "user", "name": "bob", "access": "read_write"}]});
    let granting = rig.send(&format!("{SHARES}/docs/grant"), &bob);
    rig.is_held();
    assert_eq!(shares(&rig)[0]["accounts"].as_array().unwrap().len(), 2);
    rig.plant("fails-share_put");
    rig.plant("fails-share_remove");
    let deleting = rig.send(&format!("{SHARES}/docs/delete"), &json!({}));
    // Answers to requests that came later: the deletion waits by now.
    for _ in 0..3 {
        rig.world.get("/v1/volumes");
    }
    rig.lift("before-share_put");
    eventually("the deletion is refused", || (rig.orders("share_remove") > 0).then_some(()));
    eventually("it is on record", || (shares(&rig)[0]["is_to_be_served"] == false).then_some(()));
    let share = shares(&rig)[0].clone();
    assert_eq!(
        share["accounts"].as_array().unwrap().len(),
        1,
        "a right that was taken back is on record: {share}"
    );
    drop((granting, deleting));
    rig.lift("fails-share_put");
    rig.lift("fails-share_remove");
    rig.world.post(&format!("{SHARES}/docs/delete"), &json!({}));
    rig.stop();
}

/// Scenario: a server refuses a deletion, and the daemon is killed. The next one takes the share off the servers and deletes its record.
#[test]
fn a_deletion_that_is_cut_short_is_ended_by_the_next_daemon() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig() else { return };
    rig.world.post(SHARES, &docs());
    rig.plant("fails-share_remove");
    rig.world.refused(&format!("{SHARES}/docs/delete"), &json!({}));
    assert_eq!(shares(&rig)[0]["is_to_be_served"], false);
    rig.world.kill();
    rig.lift("fails-share_remove");
    orders(&rig);
    rig.start();
    eventually("the record is deleted", || shares(&rig).is_empty().then_some(()));
    // An order that finds the share off takes it off.
    at(&orders(&rig), "share_put");
    rig.world.post(SHARES, &docs());
    rig.stop();
}

/// Scenario: servers list a share of the mounted volume that has no record, one of a volume that is not mounted, and one of others.
/// The start takes off the first two. A probe that finds a share down names the step.
#[test]
fn an_opening_takes_off_shares_without_a_record() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig() else { return };
    let made = rig.world.post(SHARES, &docs());
    let number = made["share"]["number"].as_u64().unwrap();
    let order = std::fs::read_to_string(rig.control.join("order-share_put")).unwrap();
    let order: Value = serde_json::from_str(&order).unwrap();
    let mark = order["operation"]["mark"].as_str().unwrap();
    let parts: Vec<&str> = mark.split('/').collect();
    let (pool, space): (&str, u64) = (parts[0], parts[1].parse().unwrap());
    assert_eq!(parts[2], number.to_string());
    let listed = |mark: Value| json!({"protocol": "smb", "name": "x", "path": "/x", "mark": mark, "is_available": true});
    let marks = [
        json!(format!("{pool}/{space}/{number}")),
        json!(format!("{pool}/{space}/{}", number ^ 1)),
        json!(format!("{pool}/{}/5", space + 1)),
        Value::Null,
    ];
    answer(&rig, "share_list", &json!({"is": "shares", "shares": marks.map(listed)}));
    rig.world.kill();
    orders(&rig);
    let down = json!([{"protocol": "smb", "state": "down", "step": "connection", "finding": "refused"}]);
    answer(&rig, "share_probe", &json!({"is": "probed", "protocols": down}));
    rig.start();
    rig.mounted();
    eventually("the share is down", || {
        (shares(&rig)[0]["why"] == json!(["SMB is down, connection: refused"])).then_some(())
    });
    eventually("two shares are taken off", || (rig.orders("share_remove") == 2).then_some(()));
    rig.stop();
}

/// Scenario: a host crashed, and the servers kept a share whose volume is not to be mounted, and one of a pool that is not here. The
/// start of the daemon takes both off; a mount puts the share again.
#[test]
fn a_start_takes_off_shares_whose_volumes_are_not_mounted() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig() else { return };
    rig.world.post(SHARES, &docs());
    let order = std::fs::read_to_string(rig.control.join("order-share_put")).unwrap();
    let order: Value = serde_json::from_str(&order).unwrap();
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    rig.world.kill();
    let marks = [order["operation"]["mark"].clone(), json!("01020304-0506-0708-090a-0b0c0d0e0f10/2/3")];
    let listed =
        |mark| json!({"protocol": "smb", "name": "x", "path": "/x", "mark": mark, "is_available": true});
    answer(&rig, "share_list", &json!({"is": "shares", "shares": marks.map(listed)}));
    orders(&rig);
    rig.start();
    eventually("servers offer no share of a volume that is not mounted", || {
        (rig.orders("share_remove") == 2).then_some(())
    });
    rig.world.post(&format!("{SHOW}/mount"), &json!({}));
    share_is_up(&rig);
    rig.stop();
}

/// Scenario: somebody unmounts a volume by hand. Its share is taken off, and a mount offers it again.
#[test]
fn a_share_whose_volume_somebody_unmounted_is_taken_off() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig() else { return };
    rig.world.post(SHARES, &docs());
    share_is_up(&rig);
    orders(&rig);
    assert!(run("umount", &[&rig.mount()]));
    eventually("servers offer no folder below the mount point", || {
        (rig.orders("share_remove") > 0).then_some(())
    });
    eventually("the share is off", || (shares(&rig)[0]["protocols"][0]["state"] == "off").then_some(()));
    rig.world.post(&format!("{SHOW}/mount"), &json!({}));
    share_is_up(&rig);
    rig.stop();
}

/// Scenario: a look finds a link in the place of a shared folder, and takes the share off. The next look puts it on the servers again,
/// and so does none after that.
#[test]
fn a_share_that_a_look_took_off_is_put_again_by_the_next_one() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig() else { return };
    rig.world.post(SHARES, &docs());
    share_is_up(&rig);
    let planted = std::fs::read(rig.control.join("answer-share_probe")).unwrap();
    let off = json!({"state": "down", "step": "configuration", "finding": "a symbolic link"});
    let off = ["smb", "nfs"].map(|protocol| {
        let mut one = off.clone();
        one["protocol"] = protocol.into();
        one
    });
    answer(&rig, "share_probe", &json!({"is": "probed", "protocols": off, "is_taken_off": true}));
    let show = || rig.world.get(&format!("{SHARES}/docs"))["share"]["protocols"][0]["state"].clone();
    assert_eq!(show(), "down");
    std::fs::write(rig.control.join("answer-share_probe"), planted).unwrap();
    orders(&rig);
    assert_eq!(show(), "up");
    let seen = orders(&rig);
    assert!(at(&seen, "share_put") < at(&seen, "share_probe"), "{seen:?}");
    assert_eq!(show(), "up");
    assert!(!orders(&rig).iter().any(|order| order == "share_put"));
    rig.stop();
}

/// Scenario: a process has the file system of a volume and does not end. Meanwhile a share is created, granted, revoked, shown and
/// deleted. A share that is being looked at is shown at once, with what is known.
#[test]
#[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
fn rights_are_revoked_while_a_process_has_the_volume() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig() else { return };
    rig.plant("before-trim");
    let trim = rig.send(&format!("{SHOW}/trim"), &json!({}));
    rig.is_held();
    let began = Instant::now();
    let created = rig.world.try_ask("POST", SHARES, docs().to_string().as_bytes());
    let (status, created) = created.expect("a share waits for the file system of its volume");
    assert_eq!(status, 200, "a share waits for the file system of its volume: {created}");
    let bob = json!({"accounts": [{"to": "user", "name": "bob", "access": "read_only"}]});
    rig.world.post(&format!("{SHARES}/docs/grant"), &bob);
    rig.world.post(&format!("{SHARES}/docs/revoke"), &json!({"accounts": [{"to": "user", "name": "alice"}]}));
    let share = rig.world.get(&format!("{SHARES}/docs"))["share"].clone();
    assert_eq!(
        (&share["health"], &share["accounts"][0]["name"]),
        (&json!("healthy"), &json!("bob")),
        "{share}"
    );
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "revocation waits for the volume: {:?}",
        began.elapsed()
    );
    std::fs::remove_file(rig.control.join("held")).unwrap();
    rig.plant("before-share_probe");
    let look = rig.send_get(&format!("{SHARES}/docs"));
    rig.is_held();
    let began = Instant::now();
    let share = rig.world.get(&format!("{SHARES}/docs"))["share"].clone();
    assert_eq!(
        (&share["health"], &share["protocols"][0]["state"]),
        (&json!("healthy"), &json!("up")),
        "{share}"
    );
    assert!(began.elapsed() < Duration::from_secs(30), "a look waits for another: {:?}", began.elapsed());
    rig.lift("before-share_probe");
    drop(look);
    rig.world.post(&format!("{SHARES}/docs/delete"), &json!({}));
    rig.lift("before-trim");
    drop(trim);
    rig.stop();
}

/// Scenario: a job checks a volume for long. A right is revoked meanwhile, on record; the next mount offers what is left.
#[test]
fn rights_are_revoked_while_a_job_has_the_volume() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig() else { return };
    rig.world.post(SHARES, &docs());
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    rig.plant("before-check");
    let job = rig.world.post(&format!("{SHOW}/check"), &json!({}))["job"]["id"].as_u64().unwrap();
    rig.is_held();
    let alice = json!({"accounts": [{"to": "user", "name": "alice"}]});
    let revoked = rig.world.post(&format!("{SHARES}/docs/revoke"), &alice);
    assert_eq!(revoked["share"]["accounts"], json!([]), "{revoked}");
    rig.lift("before-check");
    assert_eq!(rig.ended(job)["state"], "done");
    rig.stop();
}

/// Scenario: ext4 without counts of projects. The quota is refused, no record stays, and the volume is mounted as it was.
#[test]
fn a_quota_that_a_file_system_cannot_keep_is_refused_and_the_volume_stays_mounted() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig() else { return };
    let set = json!({"folder": "docs", "limit_bytes": 1 << 20});
    let refused = rig.world.refused(QUOTAS, &set);
    assert_eq!(refused["code"], "unsupported", "{refused}");
    assert!(refused["message"].as_str().unwrap().contains("mounted as before"), "{refused}");
    let volume = rig.mounted();
    assert!(!volume["mount_options"].to_string().contains("prjquota"), "{volume}");
    assert_eq!(rig.world.get(QUOTAS)["quotas"], json!([]));
    let zero = rig.world.refused(QUOTAS, &json!({"folder": "docs", "limit_bytes": 0}));
    assert_eq!(zero["code"], "bad_request");
    let none = rig.world.refused(&format!("{QUOTAS}/remove"), &json!({"folder": "docs"}));
    assert_eq!(none["code"], "no_such_object");
    rig.stop();
}

/// Scenario: the mount that is to count folders does not end in time. The refusal says that and nothing of the kernel, no other mount is
/// begun, and the next mount is as before.
#[test]
fn a_slow_mount_for_a_quota_is_no_lack_of_the_kernel() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig() else { return };
    let failure = json!({"code": "busy", "message": "another worker has the volume"});
    let said = json!({"say": "failed", "failure": failure}).to_string();
    std::fs::write(rig.control.join("answer-mount"), said + "\n").unwrap();
    let refused = rig.world.refused(QUOTAS, &json!({"folder": "docs", "limit_bytes": 1 << 20}));
    assert_eq!(refused["code"], "busy", "{refused}");
    assert!(!refused["message"].as_str().unwrap().contains("kernel"), "{refused}");
    assert_eq!(rig.orders("mount"), 2, "a mount that goes on is not followed by another");
    std::fs::remove_file(rig.control.join("answer-mount")).unwrap();
    rig.world.post(&format!("{SHOW}/mount"), &json!({}));
    assert!(!rig.mounted()["mount_options"].to_string().contains("prjquota"), "{}", rig.volume());
    rig.stop();
}

/// A rig with a mounted volume on btrfs, whose quotas the test answers for; none where this machine cannot make it.
fn rig_with_quotas() -> Option<Rig> {
    let mut rig = Rig::new()?;
    // More room than the two disks of the rig have: btrfs asks for it.
    let added = ["d2", "d3"].map(|name| rig.world.make_disk(name, 768 << 20));
    rig.world.post("/v1/pools/tank/disks", &json!({"disks": added, "destroy": added}));
    let mut request = rig.request(false);
    (request["file_system"], request["size_bytes"]) = ("btrfs".into(), (320 << 20).into());
    let made = rig.world.try_ask("POST", "/v1/pools/tank/volumes", request.to_string().as_bytes()).unwrap();
    if made.0 != 200 {
        assert_eq!(made.1["error"]["code"], "missing", "{}", made.1);
        println!("skipped: {}", made.1["error"]["message"]);
        rig.stop();
        return None;
    }
    rig.mounted();
    answer(&rig, "quota_set", &json!({"is": "quota_set", "project_id": 257}));
    answer(&rig, "quota_remove", &json!({"is": "done"}));
    let usage = json!({"folder": "docs", "project_id": 257, "bytes": 4096, "limit_bytes": 1 << 20});
    answer(&rig, "quota_list", &json!({"is": "quotas", "quotas": [usage]}));
    Some(rig)
}

fn quotas(rig: &Rig) -> Value {
    rig.world.get(QUOTAS)["quotas"].clone()
}

/// Scenario: a file system fails at a new bound, and its bound is removed. The removal fails too: the record says so, and the next
/// daemon removes the bound. A bound of all of a btrfs is refused.
#[test]
fn a_bound_that_failed_half_way_is_removed() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig_with_quotas() else { return };
    let set = json!({"folder": "docs", "limit_bytes": 1 << 20});
    let all = rig.world.refused(QUOTAS, &json!({"folder": "", "limit_bytes": 1 << 20}));
    assert_eq!(all["code"], "unsupported");
    assert!(all["message"].as_str().unwrap().contains("without the subvolumes"), "{all}");
    rig.plant("fails-quota_set");
    rig.world.refused(QUOTAS, &set);
    assert_eq!((rig.orders("quota_remove"), quotas(&rig)), (1, json!([])), "a bound without a record");
    rig.plant("fails-quota_remove");
    let refused = rig.world.refused(QUOTAS, &set);
    assert!(refused["message"].as_str().unwrap().contains("taken back at the next mount"), "{refused}");
    assert!(quotas(&rig)[0]["why"].to_string().contains("removal was begun"), "{}", quotas(&rig));
    rig.lift("fails-quota_set");
    rig.lift("fails-quota_remove");
    rig.world.kill();
    rig.start();
    rig.mounted();
    eventually("the next daemon removes the bound", || (quotas(&rig) == json!([])).then_some(()));
    assert_eq!(rig.orders("quota_remove"), 3);
    // Another bound fails in the place of one that is there: the former one is set again.
    rig.world.post(QUOTAS, &set);
    rig.plant("fails-quota_set");
    rig.world.refused(QUOTAS, &json!({"folder": "docs", "limit_bytes": 2 << 20}));
    rig.lift("fails-quota_set");
    let former = quotas(&rig)[0].clone();
    assert_eq!(former["limit_bytes"], 1 << 20, "{former}");
    assert!(former["why"].to_string().contains("has not taken it"), "{former}");
    rig.stop();
}

/// Scenario: the daemon is killed while the file system drops a bound. The next one drops it, and no bound comes back.
#[test]
fn a_removal_of_a_quota_that_a_kill_cut_short_is_ended_by_the_next_daemon() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig_with_quotas() else { return };
    rig.world.post(QUOTAS, &json!({"folder": "docs", "limit_bytes": 1 << 20}));
    rig.plant("before-quota_remove");
    let client = rig.send(&format!("{QUOTAS}/remove"), &json!({"folder": "docs"}));
    rig.is_held();
    rig.world.kill();
    drop(client);
    rig.lift("before-quota_remove");
    rig.start();
    rig.mounted();
    eventually("the removal goes on", || (quotas(&rig) == json!([])).then_some(()));
    assert_eq!(rig.orders("quota_set"), 1);
    rig.stop();
}

/// Scenario: people delete a folder with a quota, and btrfs drops its bound with it. A mount does not make the folder again, and the quota
/// says that it is gone.
#[test]
fn a_folder_with_a_quota_that_people_deleted_stays_deleted() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig_with_quotas() else { return };
    rig.world.post(QUOTAS, &json!({"folder": "docs", "limit_bytes": 1 << 20}));
    let gone = json!({"folder": "docs", "project_id": 257, "is_gone": true});
    answer(&rig, "quota_list", &json!({"is": "quotas", "quotas": [gone]}));
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    orders(&rig);
    rig.world.post(&format!("{SHOW}/mount"), &json!({}));
    let seen = orders(&rig);
    assert!(seen.iter().any(|order| order == "quota_list"), "{seen:?}");
    assert!(!seen.iter().any(|order| order == "quota_set"), "a mount made the folder again: {seen:?}");
    assert!(quotas(&rig)[0]["why"].to_string().contains("its folder is gone"), "{}", quotas(&rig));
    rig.stop();
}

/// Scenario: the daemon is killed while the file system takes a bound. The next one asks for it again, and notes the number that
/// btrfs gives.
#[test]
fn a_quota_that_a_kill_cut_short_is_taken_by_the_next_daemon() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig_with_quotas() else { return };
    rig.plant("before-quota_set");
    let body = json!({"folder": "docs", "limit_bytes": 1 << 20}).to_string();
    let length = body.len();
    let mut client = UnixStream::connect(rig.world.socket()).unwrap();
    let head = format!("POST {QUOTAS} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    client.write_all((head + &body).as_bytes()).unwrap();
    rig.is_held();
    rig.world.kill();
    rig.lift("before-quota_set");
    rig.start();
    rig.mounted();
    let quota = eventually("the file system has taken the quota", || {
        let quota = rig.world.get(QUOTAS)["quotas"][0].clone();
        (quota["why"] == json!([])).then_some(quota)
    });
    assert_eq!((&quota["project_id"], &quota["used_bytes"]), (&json!(257), &json!(4096)), "{quota}");
    assert_eq!(rig.orders("quota_set"), 2);
    let same: Value = serde_json::from_str(&body).unwrap();
    let again = rig.world.post(QUOTAS, &same);
    assert_eq!(again["is_changed"], false, "a bound that is there is set again: {again}");
    for (path, body) in [
        (QUOTAS.to_owned(), json!({"folder": "docs", "limit_bytes": 2 << 20, "dry_run": true})),
        (format!("{QUOTAS}/remove"), json!({"folder": "docs", "dry_run": true})),
    ] {
        let plan = rig.world.post(&path, &body);
        let bound = rig.world.get(QUOTAS)["quotas"][0]["limit_bytes"].clone();
        assert_eq!((&plan["is_changed"], bound), (&json!(false), json!(1 << 20)), "a dry run: {plan}");
    }
    // A bound goes although a process has the file system of the volume.
    rig.plant("before-trim");
    let trim = rig.send(&format!("{SHOW}/trim"), &json!({}));
    rig.is_held();
    rig.world.post(&format!("{QUOTAS}/remove"), &json!({"folder": "docs"}));
    rig.lift("before-trim");
    drop(trim);
    rig.stop();
}

/// Scenario: both copies of a block of a file are overwritten, and a read of it fails. The search for names does not end by itself. It
/// is a long operation, and a change of the volume ends it.
#[test]
fn a_search_for_names_ends_for_a_change_of_the_volume() {
    let _mounts = mounts::mounting();
    let Some(mut rig) = rig() else { return };
    let content: Vec<u8> = (0..4096).map(|at| u8::try_from(at * 7 / 3 % 253).unwrap()).collect();
    let path = rig.mount().join("file");
    std::fs::write(&path, &content).unwrap();
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    for disk in ["d0", "d1"].map(|name| rig.world.disk(name)) {
        let place = place_of(Path::new(&disk), &content);
        File::options().write(true).open(&disk).unwrap().write_all_at(&[0xff; 4096], place).unwrap();
    }
    rig.world.post(&format!("{SHOW}/mount"), &json!({}));
    assert!(std::fs::read(&path).is_err(), "a block without a copy was read");
    rig.plant("reads-names");
    let why = rig.send_get("/v1/why/tank%2Fv");
    eventually("files are searched for", || (rig.orders("names") == 1).then_some(()));
    let worker = rig.volume()["worker"].clone();
    assert_eq!((&worker["operation"], &worker["is_long"]), (&json!("the search for names"), &json!(true)));
    rig.world.post(&format!("{SHOW}/unmount"), &json!({}));
    let command = std::fs::read_to_string(rig.control.join("command")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&command).unwrap(), json!({"do": "stop"}));
    rig.lift("reads-names");
    drop(why);
    rig.stop();
}
