//! The answer to "am I fine?", on one screen: a sentence, why, what is being done, what to do; then pools and spaces.

use dolmen_api::{DiskState, Health, Pool, Status, Version};

use crate::terminal::out::Out;
use crate::terminal::paint::Paint;
use crate::terminal::table::Table;
use crate::views::tables::{disk_table, errors, pool_table, space_table};
use crate::views::words::health_tone;

/// Reasons, doings and advices shown, at most, each.
const LINES_MAX: usize = 4;
/// Pools shown, at most.
const POOLS_MAX: usize = 4;
/// Disks shown, at most, of those that are not as they should be.
const DISKS_MAX: usize = 3;
/// Spaces shown, at most.
const SPACES_MAX: usize = 6;
/// Lines of a screen. All parts at their most, with headings and blank lines, stay on it.
const SCREEN_LINES: usize = 36;
const _: () = assert!(
    1 + 3 * (LINES_MAX + 1) + (POOLS_MAX + 3) + (DISKS_MAX + 3) + (SPACES_MAX + 3) <= SCREEN_LINES + 2,
    "the status stays on one screen"
);

/// Shows the state of everything.
pub(crate) fn show_status(status: &Status, out: &mut Out<'_>) {
    let paint = out.paint_results;
    out.line(headline(status, paint));
    for (label, lines) in [("why", &status.why), ("doing", &status.doing), ("to do", &status.todo)] {
        labelled(label, lines, out);
    }
    out.show(&version_note(&status.version));
    let failing = failing_disks(&status.pools);
    let parts = [
        some_of(
            pool_table,
            &worst_first(&status.pools, |pool| pool.health),
            POOLS_MAX,
            "pools",
            "dolmen pool list",
            out,
        ),
        some_of(disk_table, &failing, DISKS_MAX, "disks", "dolmen disk list", out),
        some_of(
            space_table,
            &worst_first(&status.spaces, |space| space.health),
            SPACES_MAX,
            "spaces",
            "dolmen space list",
            out,
        ),
    ];
    for part in parts.iter().filter(|part| !part.is_empty()) {
        out.show(&format!("\n{part}"));
    }
}

/// The word for the health, then the daemon's sentence unless that begins with the word itself.
fn headline(status: &Status, paint: Paint) -> String {
    let word = crate::views::words::health(status.health);
    let painted = paint.tone(word, health_tone(status.health));
    let rest = status.summary.strip_prefix(word).unwrap_or(&status.summary);
    let rest = rest.trim_start_matches([':', ',', ' ']);
    if rest.is_empty() { painted } else { format!("{painted}: {rest}") }
}

/// Lines behind a label that stands in front of the first; beyond the limit, how many more there are.
fn labelled(label: &str, lines: &[String], out: &mut Out<'_>) {
    // That there is one more takes as much room as the line itself.
    let shown = if lines.len() == LINES_MAX + 1 { lines.len() } else { LINES_MAX };
    for (at, line) in lines.iter().take(shown).enumerate() {
        let label = if at == 0 { label } else { "" };
        out.labelled(&format!("  {label:<5}  "), line);
    }
    if lines.len() > shown {
        out.line(format_args!("         and {} more; -o json has all", lines.len() - shown));
    }
}

/// A daemon of another version is worth a line: an upgrade may wait for its restart.
fn version_note(version: &Version) -> String {
    let own = env!("CARGO_PKG_VERSION");
    if version.daemon == own {
        return String::new();
    }
    format!(
        "  note   the daemon is version {}, this command {own}; restart the daemon after an upgrade\n",
        version.daemon
    )
}

fn worst_first<T>(all: &[T], health: impl Fn(&T) -> Health) -> Vec<&T> {
    let mut sorted: Vec<&T> = all.iter().collect();
    // Stable: among equals the order of the daemon, by name, stays.
    sorted.sort_by_key(|one| std::cmp::Reverse(health(one)));
    sorted
}

/// The first of many, and how to see the others.
fn some_of<T: Copy>(
    table: impl Fn(&[T]) -> Table,
    all: &[T],
    limit: usize,
    nouns: &str,
    command: &str,
    out: &Out<'_>,
) -> String {
    let shown = all.get(..limit.min(all.len())).unwrap_or_default();
    let table = table(shown);
    if table.is_empty() {
        return String::new();
    }
    let mut text = out.rendered(0, &table);
    if all.len() > limit {
        text.push_str(&format!("and {} more {nouns}: {command}\n", all.len() - limit));
    }
    text
}

/// Disks that are away, being emptied, or make mistakes.
fn failing_disks(pools: &[Pool]) -> Vec<(&Pool, &dolmen_api::Disk)> {
    let all = pools.iter().flat_map(|pool| pool.disks.iter().map(move |disk| (pool, disk)));
    let says_so = |disk: &dolmen_api::Disk| {
        disk.smart.as_ref().is_some_and(|smart| smart.is_failing() || smart.defects() > 0)
    };
    let is_failing =
        |disk: &dolmen_api::Disk| errors(disk) > 0 || disk.times_slower.is_some() || says_so(disk);
    all.filter(|(_, disk)| disk.state != DiskState::Present || is_failing(disk)).collect()
}
