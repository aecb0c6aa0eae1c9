//! The page for Prometheus.

use std::time::Duration;

use serde_json::json;

use crate::client::{Web, eventually};
use crate::fake_daemon::FakeDaemon;
use crate::whole::Daemon;

/// Scenario: nobody, a token that does not hold, and a viewer ask. The page comes to the viewer alone, with the certificate of the server.
#[test]
fn the_page_is_for_viewers_and_says_that_the_daemon_is_away() {
    let web = Web::alone();
    assert_eq!(web.get("/metrics", "").status, 401);
    assert_eq!(web.get("/metrics", "Authorization: Bearer dolmen_0\r\n").status, 401);
    let viewer = web.token("prometheus", "viewer");
    let answer = web.get("/metrics", &viewer);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert!(answer.body.contains("\ndolmen_up 0\n"), "{}", answer.body);
    assert!(answer.body.contains("dolmen_certificate_expiry_timestamp_seconds{certificate=\"web\"} 1"));
    assert!(!answer.body.contains("dolmen_pool"), "{}", answer.body);
}

/// Scenario: a pool on a real daemon, one disk of which is removed. The page has its figures, and later the absent disk as a finding.
#[test]
fn the_page_has_figures_and_findings_of_the_daemon() {
    let daemon = Daemon::new(3);
    let web = Web::new(daemon.socket());
    let (admin, viewer) = (web.token("admin", "admin"), web.token("prometheus", "viewer"));
    let disks = ["d0", "d1", "d2"].map(|name| daemon.disk(name));
    assert_eq!(web.post("/api/v1/pools", &admin, &json!({"name": "tank", "disks": disks})).status, 200);
    let space = json!({"name": "m", "size_bytes": 32 << 20, "resiliency": "mirror"});
    assert_eq!(web.post("/api/v1/pools/tank/spaces", &admin, &space).status, 200);
    let page = || web.get("/metrics", &viewer).body;
    let page = eventually("the space is there", || Some(page()).filter(|page| page.contains("space=\"m\"")));
    for line in [
        "dolmen_up 1",
        "dolmen_pool_health{pool=\"tank\"} 0",
        "dolmen_pool_disks{pool=\"tank\",state=\"present\"} 3",
        "dolmen_pool_used_bytes{pool=\"tank\",part=\"tables\"}",
        "dolmen_findings{code=\"disk_absent\",severity=\"warning\"} 0",
        "dolmen_engine_info{",
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert_eq!(web.post("/api/v1/pools/tank/disks/1/offline", &admin, &json!({})).status, 200);
    let finding = "dolmen_finding{code=\"disk_absent\",severity=\"warning\",kind=\"disk\",pool=\"tank\",object=\"1\"} 1";
    eventually("the finding is there", || web.get("/metrics", &viewer).body.contains(finding).then_some(()));
}

/// Scenario: the daemon answers its status after half a minute, and everything else at once. The page comes within the time that
/// Prometheus waits, without the status, and scrapes at the same time ask once.
#[test]
fn a_scrape_is_bounded_in_time_and_shared() {
    let daemon = FakeDaemon::answering(|path| {
        if path == "/v1/status" {
            #[allow(clippy::disallowed_methods, reason = "the daemon of a test is slow in real time")]
            std::thread::sleep(Duration::from_secs(30));
        }
        let figures = r#"{"schema":1,"run":"a","at_us":1,"spaces":[],"disks":[]}"#;
        (200, if path == "/v1/figures" { figures } else { r#"{"schema":1}"# }.to_owned())
    });
    let web = Web::new(daemon.socket());
    let viewer = web.token("prometheus", "viewer");
    daemon.take();
    let (first, second) = std::thread::scope(|scope| {
        let [first, second] = [(); 2].map(|()| scope.spawn(|| web.get("/metrics", &viewer)));
        (first.join().unwrap(), second.join().unwrap())
    });
    assert_eq!((first.status, second.status), (200, 200));
    assert!(first.body.contains("\ndolmen_up 0\n") && first.body == second.body, "{}", first.body);
    let asked = daemon.take();
    let of_metrics: Vec<&str> =
        asked.iter().filter(|seen| seen.user == "console/metrics").map(|seen| seen.line.as_str()).collect();
    assert_eq!(of_metrics.iter().filter(|line| **line == "GET /v1/status").count(), 1, "{of_metrics:?}");
    assert!(asked.iter().all(|seen| seen.role == "viewer"), "{asked:?}");
}
