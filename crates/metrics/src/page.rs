//! The page about the metrics, `docs/metrics.md`, made of their table.

use std::fmt::Write;

use crate::family::{Family, Kind};
use crate::histogram::BOUNDS_US;
use crate::text::Number;
use crate::{LABEL_BYTES_MAX, SERIES_MAX};

/// Text before the table.
const HEAD: &str = "\
# Metrics

`dolmen-web` answers `GET /metrics` in the text format 0.0.4 of Prometheus, to tokens and users of the role viewer; \
`dolmen metrics` prints the same on a host without it. Rules for alerts are in \
[prometheus_rules.yml](../monitoring/prometheus_rules.yml), a dashboard for Grafana in \
[grafana_dashboard.json](../monitoring/grafana_dashboard.json); `sh scripts/integration/monitoring.sh` checks both with `promtool`. \
A test compares this page with the table in `crates/metrics/src/family.rs`; `DOLMEN_UPDATE_GOLDEN=1 cargo test -p dolmen-metrics` writes \
it again.

- A document that the daemon did not give leaves its families out; `dolmen_up` is always there.
- Counters begin at 0 again when the daemon starts, a pool is opened, or (errors of disks) a pool is exported. `rate` and `increase` allow \
for that.
- No label is called `job` or `instance`: Prometheus sets these itself.
- `slot` is the place of a disk in its pool. `dolmen_disk_info` joins it to path, model and serial number: \
`dolmen_disk_temperature_celsius * on (pool, slot) group_left (path, model) dolmen_disk_info`.
- `severity` is `notice`, `warning` or `critical`, for findings that leave their object healthy, with a warning, or unhealthy.
- Redundancy left is a lower bound: where a space is degraded, every absent disk of its pool counts.
";

/// Returns the page.
#[must_use]
pub fn metrics_page() -> String {
    let mut page = HEAD.to_owned();
    let bounds: Vec<String> = BOUNDS_US.iter().map(|us| Number::Micros(*us).to_string()).collect();
    // Writing to a text cannot fail.
    let _ = write!(
        page,
        "- A family has at most {SERIES_MAX} label sets, and a label value at most {LABEL_BYTES_MAX} bytes. `dolmen_series_left_out` \
         counts what was left out.\n\
         - Histograms have the buckets {} s and `+Inf`. A request counts as slower than it was by a sixteenth at most, and never as faster.\n\n\
         | metric | type | labels | meaning |\n|---|---|---|---|\n",
        bounds.join(", ")
    );
    for family in Family::ALL {
        let mut labels: Vec<String> = family.labels().iter().map(|label| format!("`{label}`")).collect();
        if family.kind() == Kind::Histogram {
            labels.push("`le`".to_owned());
        }
        let (name, kind, labels, help) =
            (family.name(), family.kind().word(), labels.join(", "), family.help());
        let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {help} |");
    }
    page
}
