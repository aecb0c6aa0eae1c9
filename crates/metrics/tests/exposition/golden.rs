//! The page about the metrics and the sample that `promtool` checks, as they are in the repository.

use std::path::Path;

use dolmen_metrics::{Family, Kind, metrics_page};

use crate::documents::host;

/// Compares a file of the repository with what it is to be. DOLMEN_UPDATE_GOLDEN=1 writes it.
fn compare(path: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("DOLMEN_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{}: DOLMEN_UPDATE_GOLDEN=1 writes it again", path.display());
}

#[test]
fn the_page_about_the_metrics_is_made_of_their_table() {
    compare("../../docs/metrics.md", &metrics_page());
}

/// Scenario: a host with names that have quotes, backslashes and line feeds. `promtool check metrics` reads the same file.
#[test]
fn the_sample_for_promtool_is_what_the_crate_writes() {
    compare("tests/golden/sample.prom", &host("tank \"1\"", "a\\b\nc").exposition());
}

/// Scenario: rules, their tests and the dashboard, as they are in the repository. They name no metric that there is not.
#[test]
fn rules_and_dashboard_name_only_metrics_that_exist() {
    let is_part = |name: &str| {
        let histograms = Family::ALL.iter().filter(|family| family.kind() == Kind::Histogram);
        let parts = ["_bucket", "_sum", "_count"];
        histograms
            .flat_map(|family| parts.map(|part| format!("{}{part}", family.name())))
            .any(|part| part == name)
    };
    for file in ["prometheus_rules.yml", "prometheus_rules_test.yml", "grafana_dashboard.json"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let names: std::collections::BTreeSet<&str> =
            words.filter(|word| word.starts_with("dolmen_")).collect();
        assert!(names.len() > 10, "{file}: {names:?}");
        for name in names {
            assert!(
                Family::ALL.iter().any(|family| family.name() == name) || is_part(name),
                "{file}: {name}"
            );
        }
    }
}
