//! History as people see it: graphs in a line, and a table.

use dolmen_api::{History, HistoryPoint, HistoryRequests, duration};
use dolmen_units::Bytes;

use crate::terminal::out::Out;
use crate::terminal::table::{Align, Table};
use crate::views::words::date;

/// Lines of the table, at most.
const ROWS_MAX: u64 = 24;
/// Characters of a graph.
const GRAPH_WIDTH: u64 = 60;
/// Heights of a character, from nothing on.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Stands where nothing was recorded.
const GAP: char = ' ';

/// Points in a stretch of time, added up.
#[derive(Debug, Clone, Default)]
struct Slice {
    at_s: u64,
    covered_s: u64,
    reads: Requests,
    writes: Requests,
    used: u64,
    size: u64,
    waiting: u64,
}

#[derive(Debug, Clone, Default)]
struct Requests {
    count: u64,
    bytes: u64,
    p99_us: Option<u64>,
}

impl Requests {
    fn add(&mut self, requests: &HistoryRequests) {
        self.count = self.count.saturating_add(requests.count);
        self.bytes = self.bytes.saturating_add(requests.bytes);
        self.p99_us = self.p99_us.max(requests.p99_us);
    }
}

impl Slice {
    fn add(&mut self, point: &HistoryPoint) {
        self.covered_s = self.covered_s.saturating_add(point.covered_s);
        self.reads.add(&point.reads);
        self.writes.add(&point.writes);
        (self.used, self.size) = (point.used.mean, point.size_bytes);
        self.waiting = self.waiting.max(point.waiting.max);
    }

    fn per_s(&self, sum: u64) -> u64 {
        sum / self.covered_s.max(1)
    }
}

/// Cuts history into so many slices, at most. One in which nothing was recorded covers no time.
fn slices(history: &History, count_max: u64) -> Vec<Slice> {
    let step_s = history.step_s.max(1);
    let first_s = history.from_s - history.from_s % step_s;
    let steps = (history.to_s.saturating_sub(first_s) / step_s + 1).div_ceil(count_max).max(1);
    let slice_s = steps * step_s;
    let count = history.to_s.saturating_sub(first_s) / slice_s + 1;
    let mut slices: Vec<Slice> =
        (0..count).map(|nth| Slice { at_s: first_s + nth * slice_s, ..Slice::default() }).collect();
    for point in &history.points {
        let nth = usize::try_from(point.at_s.saturating_sub(first_s) / slice_s).ok();
        if let Some(slice) = nth.and_then(|nth| slices.get_mut(nth)) {
            slice.add(point);
        }
    }
    slices
}

/// Draws values in a line; what is known is at least one eighth high, so that a gap is seen as one.
fn graph(values: &[Option<u64>]) -> String {
    let most = values.iter().flatten().copied().max().unwrap_or(0).max(1);
    let height = |value: &Option<u64>| {
        let value = value.as_ref()?;
        let eighth = u128::from(*value) * (HEIGHTS.len() as u128 - 1) / u128::from(most);
        usize::try_from(eighth).ok().and_then(|at| HEIGHTS.get(at)).copied()
    };
    values.iter().map(|value| height(value).unwrap_or(GAP)).collect()
}

fn show_graphs(history: &History, out: &mut Out<'_>) {
    let slices = slices(history, GRAPH_WIDTH);
    let values = |of: &dyn Fn(&Slice) -> u64| -> Vec<Option<u64>> {
        slices.iter().map(|slice| (slice.covered_s > 0).then(|| of(slice))).collect()
    };
    let mut facts = Table::facts();
    let most = |values: &[Option<u64>]| Bytes(values.iter().flatten().copied().max().unwrap_or(0));
    for (name, of) in [
        ("read", &(|slice: &Slice| slice.per_s(slice.reads.bytes)) as &dyn Fn(&Slice) -> u64),
        ("written", &|slice: &Slice| slice.per_s(slice.writes.bytes)),
    ] {
        let values = values(of);
        facts.row(vec![name.into(), format!("{}  {}/s at most", graph(&values), most(&values)).into()]);
    }
    let used = values(&|slice: &Slice| slice.used);
    facts.row(vec!["used".into(), format!("{}  {} at most", graph(&used), most(&used)).into()]);
    out.facts(2, &facts);
}

fn time(us: Option<u64>) -> String {
    match us {
        None => String::new(),
        Some(us) if us < 1000 => format!("{us} µs"),
        Some(us) if us < 1_000_000 => format!("{}.{} ms", us / 1000, us % 1000 / 100),
        Some(us) => format!("{}.{} s", us / 1_000_000, us % 1_000_000 / 100_000),
    }
}

/// Shows the history of a pool, a space or a disk.
pub(crate) fn show_history(history: &History, out: &mut Out<'_>) {
    let object = match history.of.as_str() {
        "space" => format!("space {}/{}", history.pool, history.name),
        "disk" => format!("disk {} of pool {}", history.name, history.pool),
        _ => format!("pool {}", history.pool),
    };
    let span = duration(history.to_s.saturating_sub(history.from_s));
    out.line(format_args!("{object}: the last {span}, in points of {}", duration(history.step_s)));
    if let Some(problem) = &history.problem {
        out.line(format_args!("  nothing is recorded now: {problem}"));
    }
    if history.points.is_empty() {
        return out.line("  nothing was recorded in that time");
    }
    show_graphs(history, out);
    let mut table = Table::new(&[
        ("FROM", Align::Left),
        ("R/S", Align::Right),
        ("W/S", Align::Right),
        ("READ/S", Align::Right),
        ("WRITE/S", Align::Right),
        ("R P99", Align::Right),
        ("W P99", Align::Right),
        ("USED", Align::Right),
        ("WAITING", Align::Right),
    ]);
    for slice in slices(history, ROWS_MAX).iter().filter(|slice| slice.covered_s > 0) {
        let bytes = |sum: u64| Bytes(slice.per_s(sum)).to_string();
        table.row(vec![
            date(slice.at_s).into(),
            slice.per_s(slice.reads.count).to_string().into(),
            slice.per_s(slice.writes.count).to_string().into(),
            bytes(slice.reads.bytes).into(),
            bytes(slice.writes.bytes).into(),
            time(slice.reads.p99_us).into(),
            time(slice.writes.p99_us).into(),
            Bytes(slice.used).to_string().into(),
            if slice.waiting > 0 { Bytes(slice.waiting).to_string().into() } else { "".into() },
        ]);
    }
    out.line("");
    out.table(0, &table);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: nothing, a half, all, and a gap.
    #[test]
    fn a_graph_has_the_height_of_its_values_and_a_gap_where_none_is_known() {
        assert_eq!(graph(&[Some(0), Some(50), None, Some(100)]), "▁▄ █");
        assert_eq!(graph(&[Some(0), Some(0)]), "▁▁");
        assert_eq!(graph(&[]), "");
    }

    /// Scenario: an hour in points of ten seconds, of which twenty minutes are not recorded, in six lines. Each has what its points
    /// add up to, divided by the time that they cover.
    #[test]
    fn slices_add_up_what_their_points_have() {
        let point = |at_s: u64| HistoryPoint {
            at_s,
            covered_s: 10,
            reads: HistoryRequests {
                count: 20,
                bytes: 40_960,
                p99_us: Some(at_s),
                ..HistoryRequests::default()
            },
            ..HistoryPoint::default()
        };
        let from_s = 7200;
        let points =
            (0..360).filter(|nth| !(120..240).contains(nth)).map(|nth| point(from_s + nth * 10)).collect();
        let history = History {
            schema: 1,
            pool: "tank".to_owned(),
            of: "pool".to_owned(),
            name: "tank".to_owned(),
            from_s,
            to_s: from_s + 3599,
            step_s: 10,
            points,
            problem: None,
        };
        let six = slices(&history, 6);
        let found: Vec<_> = six.iter().map(|one| (one.covered_s, one.per_s(one.reads.count))).collect();
        assert_eq!(found, [(600, 2), (600, 2), (0, 0), (0, 0), (600, 2), (600, 2)]);
        assert_eq!(six[1].reads.p99_us, Some(from_s + 1190), "the worst");
        assert!(slices(&history, 24).len() <= 24);
    }
}
