//! What spaces and disks are doing: reckoned from two looks at the figures, which the daemon only ever adds to.
//!
//! Invariant: nothing is reckoned from looks at two different counts. Where the daemon was started again in between, a pool opened
//! again or a disk exchanged, all that is counted since then is what came in between.

use std::collections::BTreeMap;

use dolmen_api::{Figures, IoFigures, Load};
use dolmen_latency::Distribution;
use dolmen_units::Bytes;
use serde::Serialize;

use crate::terminal::table::{Align, Cell, Table};

/// What an object is, and what came of it between two looks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    /// The pool.
    pub pool: String,
    /// What people call it: POOL/SPACE, or of a disk its path.
    pub name: String,
    /// The place of a disk in its pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot: Option<u16>,
    /// The identity of a disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The time that this is about.
    pub seconds: f64,
    /// Reads.
    pub reads: Rate,
    /// Writes.
    pub writes: Rate,
    /// Discards.
    pub discards: Rate,
    /// Flushes.
    pub flushes: Rate,
    /// Requests that failed.
    pub errors: u64,
    /// Requests under way, on average.
    pub queue: f64,
    /// Of the time, the part in which there was one at least.
    pub busy: f64,
    /// Requests under way at the end.
    pub under_way: u32,
}

/// Requests of one kind in a stretch of time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Rate {
    /// How many.
    pub count: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// How many in a second.
    pub per_s: f64,
    /// Bytes in a second.
    pub bytes_per_s: f64,
    /// How long they took, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

/// How long requests took, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Latency {
    /// On average.
    pub average_us: u64,
    /// What half of them did not exceed.
    pub p50_us: u64,
    /// What 95 of 100 did not exceed.
    pub p95_us: u64,
    /// What 99 of 100 did not exceed.
    pub p99_us: u64,
    /// What 999 of 1000 did not exceed.
    pub p999_us: u64,
}

impl Latency {
    fn of(seen: &Distribution) -> Option<Self> {
        Some(Self {
            average_us: seen.average_us()?,
            p50_us: seen.percentile_us(500)?,
            p95_us: seen.percentile_us(950)?,
            p99_us: seen.percentile_us(990)?,
            p999_us: seen.percentile_us(999)?,
        })
    }
}

/// What came between two looks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Report {
    /// The schema of documents.
    pub schema: u32,
    /// When it was made, in seconds since 1970.
    pub at_s: u64,
    /// Spaces.
    pub spaces: Vec<Row>,
    /// Disks.
    pub disks: Vec<Row>,
}

/// An object that is counted, in one look.
#[derive(Debug, Clone)]
struct Seen {
    pool: String,
    name: String,
    slot: Option<u16>,
    id: Option<String>,
    load: Load,
}

/// A look at the figures.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    run: String,
    at_us: u64,
    /// By a key that no two have.
    seen: BTreeMap<String, Seen>,
    /// The keys, as the daemon has them in order: spaces, then disks.
    order: [Vec<String>; 2],
}

impl Look {
    /// Of all that the daemon has figures of.
    pub(crate) fn new(figures: &Figures) -> Self {
        let mut seen = BTreeMap::new();
        let mut order = [Vec::new(), Vec::new()];
        let [spaces, disks] = &mut order;
        for space in &figures.spaces {
            let name = format!("{}/{}", space.pool, space.name);
            spaces.push(name.clone());
            let (pool, load) = (space.pool.clone(), space.load.clone());
            seen.insert(name.clone(), Seen { pool, name, slot: None, id: None, load });
        }
        for disk in &figures.disks {
            let key = format!("{} {}", disk.pool, disk.id);
            disks.push(key.clone());
            let (pool, name, load) = (disk.pool.clone(), disk.name.clone(), disk.load.clone());
            seen.insert(key, Seen { pool, name, slot: Some(disk.slot), id: Some(disk.id.clone()), load });
        }
        Self { run: figures.run.clone(), at_us: figures.at_us, seen, order }
    }

    /// The first of some names that nothing here has.
    pub(crate) fn unknown<'a>(&self, names: &'a [String]) -> Option<&'a String> {
        names.iter().find(|name| !self.seen.values().any(|seen| seen.is_called(name)))
    }

    /// What came since an earlier look, of objects with these names; of all where there are none.
    pub(crate) fn since(&self, earlier: Option<&Self>, names: &[String], at_s: u64) -> Report {
        let earlier = earlier.filter(|earlier| earlier.run == self.run);
        let row = |key: &String| {
            let now = self.seen.get(key)?;
            let is_meant = names.is_empty() || names.iter().any(|name| now.is_called(name));
            let before = earlier.and_then(|earlier| Some((earlier.at_us, &earlier.seen.get(key)?.load)));
            is_meant.then(|| now.since(before, self.at_us))
        };
        let [spaces, disks] = &self.order;
        Report {
            schema: dolmen_api::SCHEMA,
            at_s,
            spaces: spaces.iter().filter_map(row).collect(),
            disks: disks.iter().filter_map(row).collect(),
        }
    }
}

impl Seen {
    fn is_called(&self, name: &str) -> bool {
        if name == self.pool || name == self.name {
            return true;
        }
        let slot = self.slot.map(|slot| format!("{}/{slot}", self.pool));
        // The first digits of an identity say enough, as everywhere; a few would match anything.
        let is_id = name.len() >= 4 && self.id.as_ref().is_some_and(|id| id.starts_with(name));
        slot.is_some_and(|slot| slot == name) || is_id
    }

    /// What came since an earlier moment and load, unless it has begun to be counted again.
    fn since(&self, before: Option<(u64, &Load)>, at_us: u64) -> Row {
        let nothing = Load::default();
        let before = before.filter(|(_, load)| load.since_us == self.load.since_us);
        let (from_us, before) = before.unwrap_or((self.load.since_us, &nothing));
        let now = &self.load;
        let us = at_us.saturating_sub(from_us).max(1);
        let seconds = float(us) / 1e6;
        let part = |now: u64, before: u64| float(now.saturating_sub(before)) / float(us);
        Row {
            pool: self.pool.clone(),
            name: self.name.clone(),
            slot: self.slot,
            id: self.id.clone(),
            seconds,
            reads: Rate::of(&now.reads, &before.reads, seconds),
            writes: Rate::of(&now.writes, &before.writes, seconds),
            discards: Rate::of(&now.discards, &before.discards, seconds),
            flushes: Rate::of(&now.flushes, &before.flushes, seconds),
            errors: now.errors.saturating_sub(before.errors),
            queue: part(now.queue_us, before.queue_us),
            busy: part(now.busy_us, before.busy_us).min(1.0),
            under_way: now.under_way,
        }
    }
}

#[allow(clippy::cast_precision_loss)] // shown with three digits
fn float(number: u64) -> f64 {
    number as f64
}

fn distribution(figures: &IoFigures) -> Distribution {
    let counts = figures.latency.iter().map(|bucket| (bucket.up_to_us, bucket.count));
    Distribution::new(counts, figures.total_us)
}

impl Rate {
    fn of(now: &IoFigures, before: &IoFigures, seconds: f64) -> Self {
        let seen = distribution(now).since(&distribution(before));
        let (count, bytes) = (now.count.saturating_sub(before.count), now.bytes.saturating_sub(before.bytes));
        Self {
            count,
            bytes,
            per_s: float(count) / seconds,
            bytes_per_s: float(bytes) / seconds,
            latency: Latency::of(&seen),
        }
    }
}

/// A number with as many digits as say something.
fn number(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 0.01 => "<0.01".to_owned(),
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// A time in the unit that suits it.
fn time(us: u64) -> String {
    match us {
        0..1000 => format!("{us} µs"),
        1000..1_000_000 => format!("{} ms", number(float(us) / 1e3)),
        _ => format!("{} s", number(float(us) / 1e6)),
    }
}

/// Bytes in a second.
fn rate(bytes_per_s: f64) -> String {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // no disk is that fast
    let bytes = Bytes(bytes_per_s.round() as u64);
    bytes.to_string()
}

fn times(of: &Rate, what: impl Fn(&Latency) -> u64) -> String {
    of.latency.as_ref().map(|latency| time(what(latency))).unwrap_or_default()
}

impl Row {
    /// How much is going on, for putting the busiest first.
    pub(crate) fn weight(&self) -> (f64, f64) {
        (self.queue, self.reads.bytes_per_s + self.writes.bytes_per_s)
    }

    fn cells(&self) -> Vec<Cell> {
        let flushes = if self.flushes.count > 0 { number(self.flushes.per_s) } else { String::new() };
        let errors = if self.errors > 0 { self.errors.to_string() } else { String::new() };
        vec![
            number(self.reads.per_s).into(),
            number(self.writes.per_s).into(),
            rate(self.reads.bytes_per_s).into(),
            rate(self.writes.bytes_per_s).into(),
            number(self.queue).into(),
            format!("{:.0} %", self.busy * 100.0).into(),
            times(&self.reads, |latency| latency.average_us).into(),
            times(&self.reads, |latency| latency.p99_us).into(),
            times(&self.writes, |latency| latency.average_us).into(),
            times(&self.writes, |latency| latency.p99_us).into(),
            flushes.into(),
            times(&self.flushes, |latency| latency.p99_us).into(),
            Cell::toned(errors, crate::terminal::paint::Tone::Bad),
        ]
    }
}

/// The figures of each row, behind these columns.
const FIGURES: [(&str, Align); 13] = [
    ("R/S", Align::Right),
    ("W/S", Align::Right),
    ("READ/S", Align::Right),
    ("WRITE/S", Align::Right),
    ("QUEUE", Align::Right),
    ("BUSY", Align::Right),
    ("R AVG", Align::Right),
    ("R P99", Align::Right),
    ("W AVG", Align::Right),
    ("W P99", Align::Right),
    ("F/S", Align::Right),
    ("F P99", Align::Right),
    ("ERRORS", Align::Right),
];

/// Spaces, one a line.
pub(crate) fn space_table(rows: &[Row]) -> Table {
    let columns: Vec<(&'static str, Align)> = [("SPACE", Align::Left)].into_iter().chain(FIGURES).collect();
    let mut table = Table::new(&columns);
    for row in rows {
        table.row([Cell::from(row.name.as_str())].into_iter().chain(row.cells()).collect());
    }
    table
}

/// Disks, one a line.
pub(crate) fn disk_table(rows: &[Row]) -> Table {
    let path = ("PATH", Align::Left);
    let columns: Vec<(&'static str, Align)> =
        [("DISK", Align::Left)].into_iter().chain(FIGURES).chain([path]).collect();
    let mut table = Table::new(&columns);
    for row in rows {
        let name = format!("{}/{}", row.pool, row.slot.unwrap_or_default());
        let path = Cell::from(row.name.as_str());
        table.row([name.into()].into_iter().chain(row.cells()).chain([path]).collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use dolmen_api::{DiskFigures, LatencyBucket, SpaceFigures};

    fn io(count: u64, up_to_us: u64) -> IoFigures {
        let latency = if count > 0 { vec![LatencyBucket { up_to_us, count }] } else { Vec::new() };
        IoFigures { count, bytes: count * 4096, total_us: count * up_to_us, latency }
    }

    /// A space that was read so often, and a disk that was written so often.
    fn figures(run: &str, at_s: u64, reads: u64, writes: u64) -> Figures {
        let load = Load { since_us: 1_000_000, ..Load::default() };
        let space = Load {
            reads: io(reads, 500),
            queue_us: at_s * 2_000_000,
            busy_us: at_s * 500_000,
            ..load.clone()
        };
        let disk = Load { writes: io(writes, 7), ..load };
        Figures {
            schema: 1,
            run: run.to_owned(),
            at_us: at_s * 1_000_000,
            spaces: vec![SpaceFigures { pool: "tank".into(), name: "x".into(), load: space }],
            disks: vec![DiskFigures {
                pool: "tank".into(),
                slot: 3,
                id: "abcdef".into(),
                name: "/d".into(),
                load: disk,
            }],
        }
    }

    fn looked(run: &str, at_s: u64, reads: u64, writes: u64) -> Look {
        Look::new(&figures(run, at_s, reads, writes))
    }

    #[test]
    #[allow(clippy::float_cmp)] // small whole numbers are exact
    fn rates_are_what_came_in_between_divided_by_the_time() {
        let report = looked("a", 21, 300, 50).since(Some(&looked("a", 11, 100, 50)), &[], 0);
        let [space] = &report.spaces[..] else { panic!("{report:?}") };
        assert_eq!((space.reads.count, space.reads.per_s, space.reads.bytes_per_s), (200, 20.0, 81_920.0));
        assert_eq!((space.queue, space.busy, space.seconds), (2.0, 0.5, 10.0));
        assert_eq!(space.reads.latency.unwrap().p99_us, 500);
        assert_eq!((report.disks[0].writes.count, report.disks[0].writes.latency), (0, None));
    }

    #[test]
    #[allow(clippy::float_cmp)]
    fn a_first_look_is_about_all_since_it_is_counted() {
        let report = looked("a", 21, 300, 50).since(None, &[], 0);
        assert_eq!((report.spaces[0].reads.per_s, report.spaces[0].seconds), (15.0, 20.0));
    }

    /// A daemon that was killed counts from nothing, and may have counted more than before by the time of the look.
    #[test]
    fn nothing_is_reckoned_from_the_counts_of_two_runs() {
        for reads in [40, 4000] {
            let report = looked("b", 5, reads, 50).since(Some(&looked("a", 11, 100, 50)), &[], 0);
            assert_eq!((report.spaces[0].reads.count, report.disks[0].writes.count), (reads, 50));
        }
        let mut again = figures("a", 21, 300, 70);
        again.disks[0].load.since_us = 20_000_000;
        let report = Look::new(&again).since(Some(&looked("a", 11, 100, 50)), &[], 0);
        assert_eq!(
            (report.spaces[0].reads.count, report.disks[0].writes.count),
            (200, 70),
            "a disk that is back"
        );
    }

    #[test]
    fn objects_are_found_by_what_people_call_them() {
        let look = looked("a", 21, 300, 50);
        let found = |name: &str| {
            let report = look.since(None, &[name.to_owned()], 0);
            (report.spaces.len(), report.disks.len())
        };
        for (name, expected) in
            [("tank", (1, 1)), ("tank/x", (1, 0)), ("tank/3", (0, 1)), ("/d", (0, 1)), ("abcd", (0, 1))]
        {
            assert_eq!(found(name), expected, "{name}");
        }
        let names: Vec<String> = ["tank", "tank/y", "ab"].map(str::to_owned).into();
        assert_eq!(look.unknown(&names), Some(&names[1]));
        assert_eq!(look.unknown(&names[2..]), Some(&names[2]), "two digits say too little");
    }

    #[test]
    fn figures_are_short() {
        let shown: Vec<String> = [0.0, 0.004, 0.1, 9.996, 99.96, 1234.4].into_iter().map(number).collect();
        assert_eq!(shown, ["0", "<0.01", "0.10", "10.0", "100", "1234"]);
        let shown: Vec<String> = [7, 999, 1000, 12_345, 1_500_000].into_iter().map(time).collect();
        assert_eq!(shown, ["7 µs", "999 µs", "1.00 ms", "12.3 ms", "1.50 s"]);
    }
}
