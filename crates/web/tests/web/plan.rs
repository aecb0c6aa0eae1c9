//! The planner.

use crate::client::Web;

/// Scenario: a viewer plans disks, with one to add and a resiliency, without a daemon. It gets the figures of the planner; lists and
/// resiliencies that make no sense are refused by name, and strangers get nothing.
#[test]
fn a_viewer_plans_disks_without_a_daemon() {
    let web = Web::alone();
    let viewer = web.token("t", "viewer");
    let plan = |query: &str| web.get(&format!("/plan?{query}"), &viewer);
    let answer = plan("disk=2x4G&disk=8G&add=8G&resiliency=mirror%3A2");
    assert_eq!(answer.status, 200, "{answer:?}");
    let found = answer.json();
    assert_eq!(found["raw_bytes"], 16u64 << 30);
    let [mirror] = &found["answers"].as_array().unwrap()[..] else { panic!("{found}") };
    assert!(mirror["room"]["usable_bytes"].as_u64().unwrap() > 6 << 30, "{mirror}");
    assert!(mirror["additions"][0]["gain_bytes"].as_u64().unwrap() > 0, "{mirror}");
    assert!(plan("disk=2x4G").json()["answers"].as_array().unwrap().len() > 2);
    for (query, word) in [
        ("", "disk"),
        ("disk=", "disk"),
        ("disk=8X", "8X"),
        ("disk=241x1T", "240"),
        ("disk=8G&resiliency=mirror%3A9", "mirror:9"),
        ("disk=8G&size=1", "size"),
        (&format!("disk=8G{}", "&add=8G".repeat(9)), "9 disks to add"),
    ] {
        let answer = plan(query);
        let message = answer.json()["error"]["message"].to_string();
        assert!(answer.status == 400 && message.contains(word), "{query}: {answer:?}");
    }
    assert_eq!(web.get("/plan?disk=8G", "").status, 401);
}
