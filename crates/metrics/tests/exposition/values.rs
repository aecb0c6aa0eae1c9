//! Values of single families.

use dolmen_api::{DiskState, FindingCode, Health, PoolState};
use dolmen_metrics::{Family, Looks, exposition};

use crate::documents::{disk, host};
use crate::parser::parse;

fn value(text: &str, series: &str) -> Option<String> {
    let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == series));
    line.and_then(|line| line.rsplit_once(' ')).map(|(_, value)| value.to_owned())
}

/// Scenario: the daemon does not answer. The exposition says so, and nothing else of it.
#[test]
fn a_daemon_that_does_not_answer_is_down() {
    let text = exposition(&Looks::default());
    assert_eq!(value(&text, "dolmen_up").as_deref(), Some("0"));
    assert_eq!(parse(&text).unwrap().len(), 2, "{text}");
}

/// Scenario: a mirror of three copies with one disk away, then two, then three; then no finding says so any more.
#[test]
fn redundancy_left_is_what_absent_disks_leave() {
    let series = [
        "dolmen_space_redundancy_left_disks{pool=\"p\",space=\"s\"}",
        "dolmen_pool_redundancy_left_disks{pool=\"p\"}",
    ];
    let mut documents = host("p", "s");
    let left = |documents: &crate::documents::Documents| {
        let text = documents.exposition();
        series.map(|series| value(&text, series))
    };
    let both = |left: &str| [Some(left.to_owned()), Some(left.to_owned())];
    assert_eq!(left(&documents), both("1"));
    documents.status.pools[0].disks[0].state = DiskState::Absent;
    assert_eq!(left(&documents), both("0"));
    documents.findings[1].code = FindingCode::SpaceOutOfReach;
    documents.status.pools[0].disks[2].state = DiskState::Absent;
    assert_eq!(left(&documents), both("0"));
    documents.findings.clear();
    assert_eq!(left(&documents), both("2"));
    documents.status.pools[0].state = PoolState::Stopped;
    assert_eq!(left(&documents), [None, None]);
}

/// Scenario: a pool that is closed has no disks, no room and no redundancy, and its state says so.
#[test]
fn a_closed_pool_has_its_state_alone() {
    let mut documents = host("p", "s");
    documents.status.pools[0].state = PoolState::Closed;
    documents.status.spaces.clear();
    let text = documents.exposition();
    assert_eq!(value(&text, "dolmen_pool_state{pool=\"p\",state=\"closed\"}").as_deref(), Some("1"));
    assert_eq!(value(&text, "dolmen_pool_state{pool=\"p\",state=\"writable\"}").as_deref(), Some("0"));
    assert_eq!(value(&text, "dolmen_pool_bytes{pool=\"p\",state=\"free\"}"), None);
    assert_eq!(value(&text, "dolmen_disk_size_bytes{pool=\"p\",slot=\"0\"}"), None);
}

/// Scenario: two findings of one code on one object, and one of another severity. Each is counted; the series of an object is one.
#[test]
fn findings_are_counted_by_code_and_severity() {
    let mut documents = host("p", "s");
    let mut second = documents.findings[1].clone();
    second.health = Health::Unhealthy;
    documents.findings.extend([documents.findings[1].clone(), second]);
    let text = documents.exposition();
    let count = |code: &str, severity: &str| {
        value(&text, &format!("dolmen_findings{{code=\"{code}\",severity=\"{severity}\"}}"))
    };
    assert_eq!(count("space_degraded", "warning").as_deref(), Some("2"));
    assert_eq!(count("space_degraded", "critical").as_deref(), Some("1"));
    assert_eq!(count("pool_stopped", "critical").as_deref(), Some("0"));
    let of_object =
        "dolmen_finding{code=\"space_degraded\",severity=\"warning\",kind=\"space\",pool=\"p\",object=\"s\"}";
    assert_eq!(value(&text, of_object).as_deref(), Some("1"));
    assert_eq!(value(&text, "dolmen_series_left_out").as_deref(), Some("1"));
}

/// Scenario: jobs that have ended are counted, and have no series of their own: their numbers would never end.
#[test]
fn only_jobs_that_have_not_ended_have_series() {
    let text = host("p", "s").exposition();
    assert_eq!(
        value(&text, "dolmen_job_progress_ratio{pool=\"p\",job_id=\"7\",kind=\"resync\"}").as_deref(),
        Some("0.3")
    );
    assert_eq!(value(&text, "dolmen_job_progress_ratio{pool=\"p\",job_id=\"6\",kind=\"resync\"}"), None);
    assert_eq!(value(&text, "dolmen_jobs{pool=\"p\",state=\"done\"}").as_deref(), Some("1"));
}

/// Scenario: a full host. All families occur in it with the type, text and labels of the table, and no others.
#[test]
fn all_families_are_as_declared() {
    let mut documents = host("p", "s");
    let mut slow = disk(3, DiskState::Present);
    slow.times_slower = Some(9);
    let smart = slow.smart.as_mut().unwrap();
    (smart.pending_sectors, smart.uncorrectable_sectors, smart.media_errors) = (Some(1), Some(2), Some(3));
    documents.status.pools[0].disks.push(slow);
    let parsed = parse(&documents.exposition()).unwrap();
    for family in Family::ALL {
        let found = parsed.get(family.name()).unwrap_or_else(|| panic!("{} is absent", family.name()));
        assert_eq!((found.kind.as_str(), found.help.as_str()), (family.kind().word(), family.help()));
        for (_, labels, _) in &found.samples {
            let names: Vec<&str> = labels.keys().map(String::as_str).filter(|name| *name != "le").collect();
            let mut declared = family.labels().to_vec();
            declared.sort_unstable();
            assert_eq!(names, declared, "{}", family.name());
        }
    }
    assert_eq!(parsed.len(), Family::ALL.len());
}

#[test]
fn no_two_families_share_a_name_and_each_has_the_suffix_of_its_type() {
    let names: std::collections::BTreeSet<&str> = Family::ALL.iter().map(|family| family.name()).collect();
    assert_eq!(names.len(), Family::ALL.len());
    for family in Family::ALL {
        let is_counter = family.kind() == dolmen_metrics::Kind::Counter;
        assert_eq!(family.name().ends_with("_total"), is_counter, "{}", family.name());
        assert!(family.help().ends_with('.') && family.name().starts_with("dolmen_"), "{}", family.name());
    }
}
