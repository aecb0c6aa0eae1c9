//! Mail, webhook and ntfy.

use dolmen_alerts::{
    Envelope, Kind, MESSAGE_BYTES_MAX, MailError, Notification, SUBJECT_BYTES_MAX, mail, ntfy, webhook,
};
use dolmen_api::{FindingCode, Object};
use proptest::prelude::*;

use crate::host::{Host, disk_absent, finding, policy, space_degraded};

fn envelope() -> Envelope {
    Envelope { from: "dolmen@store1.example".to_owned(), to: vec!["root@localhost".to_owned()] }
}

fn notifications(findings: &[dolmen_api::Finding]) -> Vec<Notification> {
    let mut host = Host::new(policy());
    host.look_for(600, findings);
    host.look_for(600, &[]);
    host.arrived
}

/// Headers of a mail, unfolded, and its body.
fn parsed(mail: &str) -> (Vec<(String, String)>, String) {
    let (head, body) = mail.split_once("\r\n\r\n").unwrap();
    let unfolded = head.replace("\r\n ", " ");
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?}"));
        (name.to_owned(), value.to_owned())
    };
    (unfolded.split("\r\n").map(header).collect(), body.to_owned())
}

const HEADERS: [&str; 9] = [
    "From",
    "To",
    "Date",
    "Message-ID",
    "Subject",
    "Auto-Submitted",
    "MIME-Version",
    "Content-Type",
    "Content-Transfer-Encoding",
];

/// Scenario: the mails of an opening and its all-clear. They are one thread, and say what to do.
#[test]
fn a_mail_has_its_headers_and_answers_to_its_opening() {
    let all = notifications(&[disk_absent(3), space_degraded("home")]);
    let mails: Vec<_> = all.iter().map(|one| parsed(&mail(one, &envelope()).unwrap())).collect();
    let of = |index: usize, name: &str| {
        let found = mails[index].0.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.clone())
    };
    let names: Vec<&str> = mails[0].0.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, HEADERS);
    assert_eq!(of(0, "Subject").unwrap(), "warning on store1: /dev/sd3 of pool tank is absent");
    assert_eq!(of(1, "In-Reply-To"), of(0, "Message-ID"));
    assert!(mails[0].1.contains("What to do: Attach it and `dolmen disk online tank 3`"), "{}", mails[0].1);
    assert!(mails[1].1.starts_with("This alert is over"), "{}", mails[1].1);
    for (_, body) in &mails {
        assert!(body.split("\r\n").all(|line| line.len() <= 76 && !line.contains(['\r', '\n'])));
    }
}

#[test]
fn an_address_with_a_header_in_it_is_refused() {
    let one = notifications(&[disk_absent(3)]).remove(0);
    let wrong = Envelope { to: vec!["a@b\r\nBcc: c@d".to_owned()], ..envelope() };
    assert!(matches!(mail(&one, &wrong), Err(MailError::Address { .. })));
    assert!(matches!(
        mail(&one, &Envelope { to: vec![], ..envelope() }),
        Err(MailError::Recipients { found: 0 })
    ));
}

/// All keys of a JSON value.
fn keys(value: &serde_json::Value, found: &mut std::collections::BTreeSet<String>) {
    match value {
        serde_json::Value::Object(map) => map.iter().for_each(|(key, value)| {
            found.insert(key.clone());
            keys(value, found);
        }),
        serde_json::Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

/// `docs/alerts.md` links to this JSON, and explains each of its fields. DOLMEN_UPDATE_GOLDEN=1 writes it.
#[test]
fn the_page_about_alerts_explains_each_field_of_a_webhook() {
    let one = notifications(&[disk_absent(3), space_degraded("home")]).remove(0);
    let json = serde_json::to_string_pretty(&webhook(&one)).unwrap();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let golden = folder.join("tests/golden/webhook.json");
    if std::env::var_os("DOLMEN_UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, format!("{json}\n")).unwrap();
    }
    let found = std::fs::read_to_string(&golden).unwrap();
    assert_eq!(found.trim_end(), json, "{}: DOLMEN_UPDATE_GOLDEN=1 writes it again", golden.display());
    let page = std::fs::read_to_string(folder.join("../../docs/alerts.md")).unwrap();
    let mut all = std::collections::BTreeSet::new();
    keys(&serde_json::from_str(&json).unwrap(), &mut all);
    for key in all {
        assert!(page.contains(&format!("`{key}`")), "the page does not explain {key}");
    }
    for kind in Kind::ALL {
        assert!(page.contains(&format!("`{}`", kind.word())), "the page does not explain {}", kind.word());
    }
}

/// Scenario: many spaces with long texts. A message for ntfy stays below what its servers take.
#[test]
fn a_message_for_ntfy_is_bounded() {
    let long = |number: usize| {
        let text = "ä".repeat(1000);
        finding(FindingCode::SpaceDegraded, Object::space("tank", number.to_string()), &text)
    };
    let mut findings: Vec<_> = (0..100).map(long).collect();
    findings.push(disk_absent(1));
    let one = ntfy(&notifications(&findings)[0]);
    assert!(one.message.len() <= MESSAGE_BYTES_MAX && one.message.ends_with('…'));
    assert_eq!((one.priority, one.tags), (4, vec!["warning", "warning", "opened"]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Names, texts and hosts of any characters: a mail has the headers that it should have and no other, each once.
    #[test]
    fn no_name_reaches_the_headers(
        pool in "[a\r\n\u{85}\u{2028}: \"ü]{0,12}|\r\nBcc: x@y\r\n\r\nhi",
        text in "(?s).{0,300}",
        host in "(?s).{0,20}|a\r\nBcc: x@y",
        why in any::<String>(),
    ) {
        let mut policy = policy();
        policy.host = host;
        let mut caller = Host::new(policy);
        let disk = finding(FindingCode::DiskErrors, Object::disk(pool.clone(), 1), &text);
        caller.look_for(600, &[disk, finding(FindingCode::SpaceFull, Object::space(pool, why), &text)]);
        caller.look_for(600, &[]);
        prop_assert_eq!(caller.arrived.len(), 4);
        for one in &caller.arrived {
            let sent = mail(one, &envelope()).unwrap();
            prop_assert!(sent.is_ascii());
            prop_assert!(!sent.replace("\r\n", "").contains(['\r', '\n']));
            let (headers, _) = parsed(&sent);
            let mut names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
            names.retain(|name| one.kind != Kind::Closed || !["In-Reply-To", "References"].contains(name));
            prop_assert_eq!(names, HEADERS);
            prop_assert!(sent.split("\r\n").all(|line| line.len() <= 998));
            prop_assert!(!one.subject.contains(['\r', '\n']) && one.subject.len() <= SUBJECT_BYTES_MAX);
            prop_assert!(!ntfy(one).title.contains(['\r', '\n']));
            let json = serde_json::to_string(&webhook(one)).unwrap();
            prop_assert!(!json.contains('\n'));
        }
    }
}
