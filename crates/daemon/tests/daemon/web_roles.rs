//! Callers with a role: what the console's process may ask for, on whose behalf, and what is refused.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use dolmen_api::{CallerRole, VerbId, VerbKind};
use rustix::process::{Gid, Uid};
use serde_json::{Value, json};

use crate::client::{World, eventually};

/// A user that every system has, in place of `dolmen-web`, and its number.
const WEB_USER: (&str, u32) = ("nobody", 65534);

/// One request with headers; the status and the answer.
fn ask(socket: PathBuf, request: &str, headers: &str, body: &str) -> (u16, Value) {
    use std::io::{Read, Write};
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\nhost: d\r\nconnection: close\r\ncontent-length: {length}\r\n");
    write!(stream, "{head}{headers}\r\n{body}").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
}

fn of(role: &str) -> String {
    format!("Dolmen-Role: {role}\r\nDolmen-User: anna\r\n")
}

/// Scenario: each verb of the table is asked for with each role, by the daemon's own user. A verb above the role is refused by name,
/// with both roles; no other verb is refused for the role.
#[test]
fn every_verb_is_refused_below_its_role() {
    let world = World::new(0);
    for verb in VerbId::ALL.iter().map(|verb| verb.declaration()) {
        let path = verb.path_of(&vec!["4000"; verb.parameters.len()]);
        for role in CallerRole::ALL {
            let request = format!("{} {path}", verb.kind.method());
            // A question has no body, and nobody reads one.
            let body = if verb.kind == VerbKind::Change { r#"{"dry_run":true}"# } else { "" };
            let (status, answer) = ask(world.socket(), &request, &of(role.word()), body);
            let is_refused = answer["error"]["code"] == "permission";
            assert_eq!(is_refused, role < verb.role, "{} as {role:?}: {status} {answer}", verb.name);
            if is_refused {
                assert_eq!(status, 403);
                let message = answer["error"]["message"].as_str().unwrap();
                for word in [verb.name, verb.role.word(), role.word()] {
                    assert!(message.contains(word), "{message}");
                }
            }
        }
    }
}

/// Scenario: a change is made for a user of the console. The event of it names that user.
#[test]
fn the_event_of_a_change_names_the_user_of_the_console() {
    let world = World::new(3);
    world.make_tank(&["d0", "d1", "d2"]);
    let (status, answer) =
        ask(world.socket(), "POST /v1/pools/tank/alert_at", &of("operator"), r#"{"percents":[60]}"#);
    assert_eq!(status, 200, "{answer}");
    eventually("the event is listed", || {
        let events = world.get("/v1/events");
        let mut events = events["events"].as_array().unwrap().iter();
        events.find(|event| event["text"].as_str().unwrap().ends_with("(by user anna of the console)"))?;
        Some(())
    });
}

/// Scenario: a process of the user that dolmen-web runs as asks the daemon of root. It reaches the socket that is made for it and no
/// other one, names a role or is refused, and gets no more than the daemon's settings grant.
#[test]
fn the_user_of_the_console_needs_a_role_and_is_bounded() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut world = World::new(0);
    world.kill();
    let mut command = world.command("state", "run");
    command.args(["--web-user", WEB_USER.0, "--web-role-max", "operator"]);
    world.begin(command);
    // A folder for tests is its owner's alone, and the run folder in it is what this is about.
    std::fs::set_permissions(world.folder.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let [main, web] = ["dolmen.sock", "web.sock"].map(|name| world.folder.path().join("run").join(name));
    let of_user = std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            rustix::thread::set_thread_groups(&[]).unwrap();
            let gid = Gid::from_raw(gid_of(WEB_USER.0));
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            let uid = Uid::from_raw(WEB_USER.1);
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            assert!(UnixStream::connect(&main).is_err(), "the socket of root is open to another user");
            assert!(std::fs::read_dir(web.parent().unwrap()).is_err(), "the run folder can be listed");
            [
                ask(web.clone(), "GET /v1/status", "", ""),
                ask(web.clone(), "GET /v1/status", &of("viewer"), ""),
                ask(web.clone(), "POST /v1/pools/none/scrub", &of("viewer"), "{}"),
                ask(web.clone(), "POST /v1/pools/none/scrub", &of("operator"), "{}"),
                ask(web.clone(), "POST /v1/shutdown", &of("admin"), "{}"),
                ask(web.clone(), "GET /v1/status", &of("root"), ""),
            ]
        });
        asked.join().unwrap()
    });
    let found = of_user.map(|(status, answer)| (status, answer["error"]["code"].clone()));
    let refused = json!("permission");
    let expected = [
        (403, refused.clone()),
        (200, Value::Null),
        (403, refused.clone()),
        (404, json!("no_such_pool")),
        (403, refused),
        (400, json!("bad_request")),
    ];
    assert_eq!(found, expected);
    assert_eq!(ask(web, "GET /v1/status", "", "").0, 200, "root is admitted on either socket");
    world.get("/v1/status");
}

fn gid_of(name: &str) -> u32 {
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = users.lines().find(|line| line.split(':').next() == Some(name)).unwrap();
    line.split(':').nth(3).unwrap().parse().unwrap()
}
