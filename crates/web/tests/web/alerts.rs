//! Alerts: looks at a daemon of the test, a webhook of the test, routes and commands.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::client::{Web, eventually};
use crate::fake_daemon::FakeDaemon;

/// A server that takes JSON, or refuses it.
struct Hook {
    port: u16,
    taken: Arc<Mutex<Vec<Value>>>,
    is_refusing: Arc<Mutex<bool>>,
}

impl Hook {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (taken, is_refusing) = (Arc::<Mutex<Vec<Value>>>::default(), Arc::<Mutex<bool>>::default());
        let (record, refusing) = (Arc::clone(&taken), Arc::clone(&is_refusing));
        #[allow(clippy::disallowed_methods, reason = "the server of a test has a thread of its own")]
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut line, mut length) = (String::new(), 0);
                while reader.read_line(&mut line).unwrap_or(0) > 2 {
                    if let Some(found) = line.to_lowercase().strip_prefix("content-length:") {
                        length = found.trim().parse().unwrap();
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let status = if *refusing.lock().unwrap() { "503 no" } else { "204 taken" };
                if status.starts_with('2') {
                    record.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
                }
                let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
            }
        });
        Self { port, taken, is_refusing }
    }

    fn refuse(&self, refusing: bool) {
        *self.is_refusing.lock().unwrap() = refusing;
    }

    /// Kinds of what arrived, without repetitions of a number.
    fn kinds(&self) -> Vec<String> {
        let mut all = self.taken.lock().unwrap().clone();
        all.dedup_by_key(|one| one["id"].clone());
        all.iter().map(|one| one["kind"].as_str().unwrap().to_owned()).collect()
    }
}

/// A daemon whose status has as many findings as are set: a disk that is absent, and spaces that it degrades.
fn daemon_with(findings: &Arc<AtomicUsize>) -> FakeDaemon {
    let findings = Arc::clone(findings);
    FakeDaemon::answering(move |_| {
        let count = findings.load(Ordering::SeqCst);
        let finding = |number: usize| {
            let (code, object) = match number {
                0 => ("disk_absent", json!({"kind": "disk", "pool": "tank", "name": "1"})),
                _ => ("space_degraded", json!({"kind": "space", "pool": "tank", "name": number.to_string()})),
            };
            json!({"code": code, "health": "warning", "object": object, "text": format!("{code} {number}")})
        };
        let health = if count == 0 { "healthy" } else { "warning" };
        let status = json!({"schema": 1, "health": health, "summary": "", "why": [], "doing": [], "todo": [],
            "findings": (0..count).map(finding).collect::<Vec<_>>(),
            "version": {"schema": 1, "daemon": "0.1.0", "api": 1}, "uptime_s": 1, "pid": 1, "pools": [], "spaces": []});
        (200, status.to_string())
    })
}

fn settings(hook: &Hook) -> String {
    format!(
        "host = \"store1\"\n[delays]\nwarning_s = 0\nclose_s = 0\nreminder_s = 0\nretry_s = 1\nretry_max_s = 1\n\
         [[webhook]]\nname = \"hook\"\nurl = \"http://127.0.0.1:{}/secret\"\n",
        hook.port
    )
}

/// Scenario: a disk is absent under eight spaces while the webhook refuses, the server is killed, and the webhook is back. One opening
/// arrives, and one all-clear; the console lists cause, evidence and command; a silence of a command holds over a restart.
#[test]
fn a_cause_is_sent_once_over_a_kill_and_a_silence_holds() {
    let (hook, findings) = (Hook::new(), Arc::new(AtomicUsize::new(0)));
    let daemon = daemon_with(&findings);
    hook.refuse(true);
    let mut web = Web::with_alerts(daemon.socket(), &settings(&hook));
    let viewer = web.token("viewer", "viewer");
    let report = |web: &Web| web.get("/alerts", &viewer).json();
    findings.store(9, Ordering::SeqCst);
    let refused = eventually("the alert waits", || {
        let found = report(&web);
        found["channels"][0]["why"].as_str().map(str::to_owned)
    });
    assert!(refused.contains("503") && !refused.contains("secret"), "{refused}");
    let alert = report(&web)["alerts"][0].clone();
    assert_eq!((&alert["cause"], &alert["is_open"]), (&json!("redundancy"), &json!(true)), "{alert}");
    assert_eq!(alert["evidence"].as_array().unwrap().len(), 9);
    assert!(alert["commands"].to_string().contains("dolmen disk online tank 1"), "{alert}");
    web.kill();
    web.start();
    hook.refuse(false);
    eventually("the opening arrives", || (hook.kinds() == ["opened"]).then_some(()));
    findings.store(0, Ordering::SeqCst);
    eventually("the all-clear arrives", || (hook.kinds() == ["opened", "closed"]).then_some(()));
    let id = web.run(&["alert", "silence", "--code", "disk_*", "--for", "1h"], "");
    web.kill();
    web.start();
    assert_eq!(report(&web)["silences"][0]["id"].to_string(), id.trim());
    findings.store(9, Ordering::SeqCst);
    eventually("it is silenced", || (report(&web)["alerts"][0]["is_silenced"] == true).then_some(()));
    assert_eq!(hook.kinds(), ["opened", "closed"]);
    web.run(&["alert", "unsilence", id.trim()], "");
    eventually("it opens", || (hook.kinds() == ["opened", "closed", "opened"]).then_some(()));
}

/// Scenario: each role asks for each route; silences that are wrong, of an alert that is not there, and too long.
#[test]
fn operators_set_silences_and_send_tests_and_viewers_look() {
    let (hook, findings) = (Hook::new(), Arc::new(AtomicUsize::new(2)));
    let daemon = daemon_with(&findings);
    let web = Web::with_alerts(daemon.socket(), &settings(&hook));
    let [viewer, operator] = ["viewer", "operator"].map(|role| web.token(role, role));
    assert_eq!(web.get("/alerts", "").status, 401);
    let pattern = json!({"code": "disk_*", "object": "*", "for_s": 60});
    for path in ["/alerts/silences", "/alerts/silences/1/end", "/alerts/test"] {
        assert_eq!(web.post(path, "", &json!({})).status, 401, "{path}");
        assert_eq!(web.post(path, &viewer, &json!({})).status, 403, "{path}");
    }
    let alert =
        eventually("the alert is there", || web.get("/alerts", &viewer).json()["alerts"][0]["id"].as_u64());
    for (body, status) in [
        (json!({"for_s": 60}), 400),
        (json!({"code": "", "object": "*", "for_s": 60}), 400),
        (json!({"code": "a", "object": "*", "for_s": 0}), 400),
        (json!({"code": "a", "object": "*", "for_s": 99_999_999_999u64}), 400),
        (json!({"code": "a", "object": "*", "for_s": 60, "more": 1}), 400),
        (json!({"alert": alert, "code": "a", "for_s": 60}), 400),
        (json!({"alert": 99, "for_s": 60}), 404),
        (json!({"alert": alert, "for_s": 60, "comment": "on its way"}), 200),
        (pattern, 200),
    ] {
        assert_eq!(web.post("/alerts/silences", &operator, &body).status, status, "{body}");
    }
    let silences = web.get("/alerts", &viewer).json()["silences"].clone();
    assert_eq!(
        (&silences[0]["object"], &silences[0]["author"]),
        (&json!("disk 1 of tank"), &json!("token/operator"))
    );
    let path = format!("/alerts/silences/{}/end", silences[0]["id"]);
    assert_eq!(web.post(&path, &operator, &json!({})).status, 200);
    assert_eq!(web.post(&path, &operator, &json!({})).status, 404);
    assert_eq!(web.post("/alerts/test", &operator, &json!({"channel": "none"})).status, 404);
    let tested = web.post("/alerts/test", &operator, &json!({})).json();
    assert_eq!(tested["results"], json!([{"channel": "hook", "sent": true, "why": null}]), "{tested}");
    hook.refuse(true);
    let tested = web.post("/alerts/test", &operator, &json!({"channel": "hook"})).json();
    assert!(tested["results"][0]["why"].as_str().unwrap().contains("503"), "{tested}");
    assert!(hook.kinds().contains(&"test".to_owned()));
}

/// Scenario: settings with a wrong value at the start, and at SIGHUP. The start is refused by name; the running server keeps its channels.
#[test]
fn settings_that_do_not_fit_are_refused_by_name() {
    let hook = Hook::new();
    let web = Web::with_alerts("/nonexistent/web.sock", &settings(&hook));
    let viewer = web.token("viewer", "viewer");
    std::fs::write(web.alerts(), "least = \"loud\"\n").unwrap();
    let refused = web.refuses_to_start();
    assert!(refused.contains("alerts.toml") && refused.contains("`loud`"), "{refused}");
    assert!(web.refused(&["alert", "check"], "").contains("line 1"));
    web.signal(rustix::process::Signal::HUP);
    let channels = web.get("/alerts", &viewer).json()["channels"].clone();
    assert_eq!(channels[0]["name"], "hook", "{channels}");
    eventually("the daemon does not answer", || {
        let report = web.get("/alerts", &viewer).json();
        (report["alerts"][0]["cause"] == "daemon").then_some(())
    });
}
