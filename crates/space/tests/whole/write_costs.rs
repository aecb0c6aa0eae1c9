//! What client writes cost at the disks: reads, writes, flushes and bytes for each class of write, everything included until
//! it is in place and the log is empty. `cargo test --release -p dolmen-space --test whole -- --nocapture write_costs::` prints the table.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss, clippy::indexing_slicing)]

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_block_io::sync::join_all;
use dolmen_buffer::ArenaConfig;
use dolmen_sim::{DiskProfile, Random, SimpleLatency};
use dolmen_space::{Progress, Provisioning, Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::{Bench, Kind, Lab, Outcome, file};

/// Disks of the size at which a log has what a usual pool has.
const CAPACITY: Bytes = Bytes::gib(64);
const SIZE: u64 = 192 << 20;
/// Requests that are under way together.
const DEPTH: usize = 32;
/// Small requests between two flushes.
const FLUSHED_AFTER: usize = 1024;
/// What lies in one column before the next has its turn.
const INTERLEAVE: u64 = 64 << 10;
const SMALL: usize = 4096;
const LARGE: u64 = 1 << 20;
/// How often each place is written, on an average, where stripes are written again and again.
const AGAIN: u64 = 6;
/// Commands for a small write with one parity, at most.
const SMALL_COMMANDS_MAX: f64 = 5.5;

/// A space that is written to all over, in rows so short that there are more of them than one writes between two looks.
const SUSTAINED_SIZE: u64 = 640 << 20;
const SUSTAINED_ROW: Bytes = Bytes::mib(1);
/// A write cache that is small beside it, and the writes that go through it: twice as many as it holds.
const SUSTAINED_CACHE: Bytes = Bytes::mib(64);
const SUSTAINED_WRITES: usize = 32 * 1024;
/// Reads for each of them, at most. Old content and old parity are two, fewer where writes meet in a line; what is read of the
/// cache in pieces is hardly any more, and would be a quarter block by block.
const SUSTAINED_READS_MAX: f64 = 1.8;
/// Disks so slow that the engine looks after its tables many times while it is written to.
const SLOW: SimpleLatency = SimpleLatency { fixed_ns: 15_000_000, per_kib_ns: 0, jitter_ns: 5_000_000 };

/// Disks about as fast as those of flash on a bus of their own.
const QUICK: SimpleLatency = SimpleLatency { fixed_ns: 100_000, per_kib_ns: 1_000, jitter_ns: 50_000 };

/// How a space is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Fixed, with these columns.
    Given,
    /// As it is where nobody says anything: thin, as wide as there are disks, with rows of the length that such a space gets.
    Usual,
}

/// Who is measured: columns of data, and disks.
const KINDS: [(Kind, Shape, u8, usize); 8] = [
    (Kind::usual(Resiliency::Simple), Shape::Given, 4, 4),
    (Kind::usual(Resiliency::Mirror { copies: 2 }), Shape::Given, 2, 4),
    (Kind::strict(Resiliency::Mirror { copies: 2 }), Shape::Given, 2, 4),
    (Kind::usual(Resiliency::Mirror { copies: 3 }), Shape::Given, 2, 6),
    (Kind::usual(Resiliency::Parity { parity: 1 }), Shape::Given, 4, 6),
    (Kind::usual(Resiliency::Parity { parity: 2 }), Shape::Given, 6, 9),
    (Kind::usual(Resiliency::Parity { parity: 1 }), Shape::Usual, 8, 9),
    (Kind::usual(Resiliency::Parity { parity: 2 }), Shape::Usual, 12, 14),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Nothing was ever written there; requests of whole stripes in order, up to 1 MiB.
    Fresh,
    /// The same over flushed content: a stream over three rows.
    Whole,
    /// Whole stripes in no order, over flushed content: they belong to no stream. Each once; until all shadow rows have their rows'
    /// places.
    Scattered,
    /// The same, drawn again and again: lines alternate between rows and shadow rows, which stay.
    Again,
    /// A block of each line, all over it, over flushed content, with a flush for every thousand. As in a space so large that
    /// no two of them meet in a line.
    Small,
}

/// What the disks were asked for, of which this is the sum.
#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    reads: u64,
    writes: u64,
    flushes: u64,
    written: u64,
}

impl Asked {
    fn of(lab: &Lab) -> Self {
        lab.devices.iter().map(|device| device.counters()).fold(Self::default(), |sum, one| Self {
            reads: sum.reads + one.reads,
            writes: sum.writes + one.writes,
            flushes: sum.flushes + one.flushes,
            written: sum.written + one.write_bytes,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            writes: self.writes - before.writes,
            flushes: self.flushes - before.flushes,
            written: self.written - before.written,
        }
    }
}

/// The first bytes of requests of a class, in the order in which they are made, and their length.
fn requests(class: Class, columns: u64, row_bytes: u64) -> (Vec<u64>, usize) {
    if class != Class::Small {
        let stripe = columns * INTERLEAVE;
        let length = LARGE / stripe * stripe;
        let of_row = |row: u64| (0..row_bytes / length).map(move |nth| row * row_bytes + nth * length);
        let mut places: Vec<u64> = match class {
            // Stripes begin again in each row, and only in order do parts of them come together.
            Class::Scattered | Class::Again => (0..SIZE / row_bytes).flat_map(of_row).collect(),
            _ => (0..SIZE / length).map(|nth| nth * length).collect(),
        };
        match class {
            Class::Scattered => shuffle(&mut places),
            Class::Again => {
                let (mut random, all) = (Random::new(9), places.clone());
                places = (0..AGAIN * all.len() as u64).map(|_| all[random.index(all.len())]).collect();
            }
            Class::Fresh | Class::Whole | Class::Small => {}
        }
        return (places, usize::try_from(length).unwrap());
    }
    let small = SMALL as u64;
    let of_column = INTERLEAVE / small;
    let mut places: Vec<u64> = (0..SIZE / columns / small)
        .map(|block_stripe| {
            let stripe = block_stripe / of_column * columns * INTERLEAVE;
            stripe + block_stripe % columns * INTERLEAVE + block_stripe % of_column * small
        })
        .collect();
    shuffle(&mut places);
    (places, SMALL)
}

fn shuffle(places: &mut [u64]) {
    let mut random = Random::new(7);
    for last in (1..places.len()).rev() {
        let other = usize::try_from(random.below(last as u64 + 1)).unwrap();
        places.swap(last, other);
    }
}

/// Writes a class from its beginning to its end; how many requests, and how many bytes.
async fn write_class(
    lab: &Lab,
    spaces: &Spaces,
    space: &Space,
    (class, columns): (Class, u8),
) -> Result<(u64, u64), Box<dyn Error>> {
    let row_bytes = space.spec().row_bytes().0;
    let (places, length) = requests(class, columns.into(), row_bytes);
    let flushed_after = if class == Class::Small { FLUSHED_AFTER } else { places.len() };
    write_at(lab, spaces, space, (&places, length), flushed_after).await?;
    let (mut count, mut bytes) = (places.len() as u64, (places.len() * length) as u64);
    let left = row_bytes % length as u64;
    if class == Class::Scattered && left > 0 {
        // The ends of rows, in which as many stripes do not fit.
        let ends: Vec<u64> = (1..=SIZE / row_bytes).map(|row| row * row_bytes - left).collect();
        write_at(lab, spaces, space, (&ends, usize::try_from(left)?), ends.len()).await?;
        count += ends.len() as u64;
        bytes += ends.len() as u64 * left;
    }
    Ok((count, bytes))
}

/// Writes requests of one length in their order, many at a time, with a flush after so many; but not after the last ones where
/// those are all.
async fn write_at(
    lab: &Lab,
    spaces: &Spaces,
    space: &Space,
    (places, length): (&[u64], usize),
    flushed_after: usize,
) -> Outcome {
    for some in places.chunks(flushed_after) {
        write_together(lab, space, (some, length), DEPTH).await?;
        if flushed_after < places.len() {
            spaces.flush().await?;
        }
    }
    Ok(())
}

/// Writes requests of one length in their order, so many at a time.
async fn write_together(
    lab: &Lab,
    space: &Space,
    (places, length): (&[u64], usize),
    depth: usize,
) -> Outcome {
    let next = Cell::new(places);
    let write_on = async |_: usize| {
        while let Some((at, rest)) = next.get().split_first() {
            next.set(rest);
            lab.write(space, *at, length, 1).await?;
        }
        Ok::<_, Box<dyn Error>>(())
    };
    join_all((0..depth).map(write_on)).await.into_iter().collect()
}

/// Waits until there are no shadow rows: what that costs is of what has filled them.
async fn shadows_end(lab: &Lab, spaces: &Spaces) {
    let is_over = || {
        let counters = spaces.counters();
        counters.shadows_promoted + counters.shadows_dropped == counters.shadows_made
    };
    while !is_over() {
        sleep(lab.seams.clock.as_ref(), Duration::from_millis(100)).await;
    }
}

async fn measure(lab: Lab, kind: Kind, shape: Shape, columns: u8) -> Outcome {
    let resiliency = kind.resiliency;
    let spaces = lab.create().await?;
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes(SIZE), resiliency);
    spec.integrity = kind.integrity;
    if shape == Shape::Given {
        (spec.columns, spec.provisioning) = (Some(columns), Provisioning::Fixed);
        spec.interleave = Bytes(INTERLEAVE);
    }
    assert_eq!(spec.interleave, Bytes(INTERLEAVE));
    let space = spaces.create(spec).await?;
    spaces.flush().await?;
    spaces.pool().checkpoint().await?;
    for class in [Class::Fresh, Class::Whole, Class::Scattered, Class::Again, Class::Small] {
        shadows_end(&lab, &spaces).await;
        spaces.pool().checkpoint().await?;
        let before = Asked::of(&lab);
        let (count, length) = write_class(&lab, &spaces, &space, (class, columns)).await?;
        spaces.flush().await?;
        spaces.caches().destage().await?;
        if class != Class::Again {
            shadows_end(&lab, &spaces).await;
        }
        spaces.pool().checkpoint().await?;
        let asked = Asked::of(&lab).since(before);
        let per_request = |sum: u64| sum as f64 / count as f64;
        let bytes = asked.written as f64 / length as f64;
        println!(
            "{:36} {:9} {:>8.2} {:>8.2} {:>8.3} {:>8.3}",
            match shape {
                Shape::Given => format!("{kind}, {columns} columns"),
                Shape::Usual => format!("{kind}, thin, {columns} columns"),
            },
            format!("{class:?}"),
            per_request(asked.reads),
            per_request(asked.writes),
            per_request(asked.flushes),
            bytes
        );
        if class == Class::Small && resiliency == (Resiliency::Parity { parity: 1 }) {
            let commands = per_request(asked.reads + asked.writes + asked.flushes);
            assert!(commands <= SMALL_COMMANDS_MAX, "{commands} commands for each small write");
        }
        let has_bar = class != Class::Small && resiliency.parity_columns() > 0;
        if has_bar {
            let stripe = u64::from(columns) + u64::from(resiliency.parity_columns());
            let more = match (class, shape) {
                (Class::Whole, Shape::Usual) => STREAM_ON_FILES_MAX,
                (Class::Scattered | Class::Again, Shape::Usual) => SINGLE_ON_FILES_MAX,
                _ => STREAM_MAX,
            };
            let most = more * stripe as f64 / f64::from(columns);
            assert!(bytes <= most, "whole stripes are written {bytes} times, {most} at most");
        }
    }
    drop(space);
    lab.check_and_close(spaces).await
}

#[test]
fn what_each_class_of_write_costs() {
    println!("{:36} {:9} {:>8} {:>8} {:>8} {:>8}", "space", "class", "reads", "writes", "flushes", "bytes");
    for (kind, shape, columns, disks) in KINDS {
        let bench = Bench::new(1, disks, CAPACITY);
        let arena = ArenaConfig { small_count: 8192, medium_count: 64, large_count: 48 };
        bench.world.set_arenas(arena, arena);
        bench.run(async move |lab| measure(lab, kind, shape, columns).await).unwrap();
    }
}

/// A thin space as people make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Thin {
    parity: u8,
    /// Of data, as many as there are disks for.
    columns: u8,
    /// Its row where it is not what such a space of this size gets.
    row: Option<Bytes>,
    /// Whether disks are files, on which tables ask for their room.
    on_files: bool,
}

const fn thin(columns: u8, parity: u8) -> Thin {
    Thin { parity, columns, row: None, on_files: false }
}

/// Those that are measured.
const THIN: [Thin; 6] = [
    thin(2, 1),
    thin(4, 1),
    thin(8, 1),
    // As 8 TiB have it.
    Thin { row: Some(Bytes::mib(32)), ..thin(8, 1) },
    thin(4, 2),
    thin(12, 2),
];
/// How much more than data and parity a stream over old content costs, at most.
const STREAM_MAX: f64 = 1.05;
/// The same on files.
const STREAM_ON_FILES_MAX: f64 = 1.06;
/// The same for single stripes in short rows: tables of the row are written as well.
const SINGLE_ON_FILES_MAX: f64 = 1.08;
/// The same for two streams at once.
const TWO_STREAMS_MAX: f64 = 1.08;
/// Bytes for each byte of a stream and of small writes beside it, at most.
const CONCURRENT_MAX: f64 = 4.5;
/// Small writes beside a stream.
const CONCURRENT_WRITES: usize = 4096;

/// What writes to old content, and how many requests of it are under way together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Load {
    /// A stream of whole stripes.
    Stripes(usize),
    /// A stream of requests of 1 MiB, wherever stripes begin.
    Mebibytes(usize),
    /// Two of these at once, in the halves of the space.
    Two(usize),
    /// One of these, and small writes all over the space.
    WithSmall(usize),
}

impl Load {
    /// Bytes for each byte that is written, at most, if data with parity is so much of it.
    fn most(self, stripe: f64, on_files: bool) -> Option<f64> {
        match self {
            // Where few requests are under way, the write cache takes the beginning of each stream.
            Self::Stripes(..8) | Self::Mebibytes(..8) | Self::Two(..8) | Self::WithSmall(..8) => None,
            Self::Stripes(_) | Self::Mebibytes(_) if on_files => Some(STREAM_ON_FILES_MAX * stripe),
            Self::Stripes(_) | Self::Mebibytes(_) => Some(STREAM_MAX * stripe),
            Self::Two(_) => Some(TWO_STREAMS_MAX * stripe),
            Self::WithSmall(_) => Some(CONCURRENT_MAX),
        }
    }
}

/// Writes a load over a space; how many bytes it has.
async fn write_load(lab: &Lab, space: &Space, load: Load, columns: u8) -> Result<u64, Box<dyn Error>> {
    let large: Vec<u64> = (0..SIZE / LARGE).map(|nth| nth * LARGE).collect();
    let of_large = usize::try_from(LARGE)?;
    match load {
        Load::Stripes(depth) => {
            let (places, length) = requests(Class::Whole, columns.into(), SIZE);
            write_together(lab, space, (&places, length), depth).await?;
        }
        Load::Mebibytes(depth) => write_together(lab, space, (&large, of_large), depth).await?,
        Load::Two(depth) => {
            let (first, second) = large.split_at(large.len() / 2);
            let both = [first, second].map(|half| write_together(lab, space, (half, of_large), depth));
            join_all(both).await.into_iter().collect::<Outcome>()?;
        }
        Load::WithSmall(depth) => {
            let (mut random, blocks) = (Random::new(7), SIZE / SMALL as u64);
            let small: Vec<u64> =
                (0..CONCURRENT_WRITES).map(|_| random.below(blocks) * SMALL as u64).collect();
            let both = [(&large, of_large, depth), (&small, SMALL, 4)];
            let both =
                both.map(|(places, length, depth)| write_together(lab, space, (places, length), depth));
            join_all(both).await.into_iter().collect::<Outcome>()?;
            return Ok(SIZE + (CONCURRENT_WRITES * SMALL) as u64);
        }
    }
    Ok(SIZE)
}

/// A load over the old content of a space; bytes that disks were given for each that was written, until all shadow rows have their
/// rows' places, and how long clients waited.
async fn write_over(lab: Lab, thin: Thin, load: Load) -> Result<(f64, Duration), Box<dyn Error>> {
    let spaces = lab.create().await?;
    let resiliency = Resiliency::Parity { parity: thin.parity };
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes(SIZE), resiliency);
    spec.row = thin.row;
    let space = spaces.create(spec).await?;
    write_load(&lab, &space, Load::Stripes(DEPTH), thin.columns).await?;
    destage_everything(&spaces).await?;
    let (before, begun) = (Asked::of(&lab), lab.seams.clock.now());
    let length = write_load(&lab, &space, load, thin.columns).await?;
    let took = lab.seams.clock.now().since(begun);
    spaces.flush().await?;
    spaces.caches().destage().await?;
    shadows_end(&lab, &spaces).await;
    spaces.pool().checkpoint().await?;
    let bytes = Asked::of(&lab).since(before).written as f64 / length as f64;
    drop(space);
    lab.check_and_close(spaces).await?;
    Ok((bytes, took))
}

fn measure_over(thin: Thin, load: Load) {
    let profile = || {
        let mut profile = DiskProfile { latency: Rc::new(QUICK), ..file(CAPACITY) };
        profile.geometry.thin = thin.on_files;
        profile
    };
    let bench = Bench::with_profile(1, usize::from(thin.columns + thin.parity), profile);
    let arena = ArenaConfig { small_count: 8192, medium_count: 64, large_count: 48 };
    bench.world.set_arenas(arena, arena);
    let measured = Rc::new(Cell::new(None));
    let into = Rc::clone(&measured);
    let run = bench.run(async move |lab| {
        into.set(Some(write_over(lab, thin, load).await?));
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{thin:?}, {load:?}: {error}"));
    let (bytes, took) = measured.get().unwrap();
    let stripe = f64::from(thin.columns + thin.parity) / f64::from(thin.columns);
    let most = load.most(stripe, thin.on_files);
    let what =
        format!("{} + {}, {}", thin.columns, thin.parity, if thin.on_files { "files" } else { "disks" });
    let row = thin.row.map_or_else(String::new, |row| format!(", rows of {row}"));
    let of_most = most.map_or_else(String::new, |most| format!(" of {most:.3}"));
    println!("{:36} {:14} {bytes:.3}{of_most} in {} ms", what + &row, format!("{load:?}"), took.as_millis());
    assert!(most.is_none_or(|most| bytes <= most), "{thin:?}, {load:?}: written {bytes} times");
}

#[test]
fn a_stream_over_old_content_of_a_thin_space_costs_data_and_parity() {
    // Scenario: spaces of which nothing was given but parity, filled, and written over in order. What is one stream, of whole
    // stripes or of requests that files bring, meets the bar with many requests under way and with few.
    for thin in THIN {
        for load in [Load::Stripes(32), Load::Stripes(8), Load::Mebibytes(32), Load::Mebibytes(8)] {
            measure_over(thin, load);
        }
        measure_over(Thin { on_files: true, ..thin }, Load::Stripes(32));
        measure_over(thin, Load::Stripes(1));
    }
}

#[test]
fn concurrent_streams_cost_little_more() {
    // Scenario: as before, with two streams at once, and with small writes beside one.
    for thin in [thin(8, 1), thin(12, 2)] {
        for load in [Load::Two(32), Load::Two(4), Load::WithSmall(32), Load::WithSmall(4)] {
            measure_over(thin, load);
        }
    }
}

/// Fills a space in order, writes blocks all over it, and puts everything in place; what was asked of the disks for the latter two.
async fn sustain(lab: &Lab) -> Result<Asked, Box<dyn Error>> {
    let spaces = lab.create().await?;
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes(SUSTAINED_SIZE), Resiliency::Parity { parity: 1 });
    (spec.columns, spec.row) = (Some(4), Some(SUSTAINED_ROW));
    let space = spaces.create(spec).await?;
    spaces.caches().resize_write_cache(1, SUSTAINED_CACHE, &Progress::default()).await?;
    let in_order: Vec<u64> = (0..SUSTAINED_SIZE / LARGE).map(|nth| nth * LARGE).collect();
    let large = usize::try_from(LARGE)?;
    write_at(lab, &spaces, &space, (&in_order, large), in_order.len()).await?;
    destage_everything(&spaces).await?;
    let before = Asked::of(lab);
    let mut random = Random::new(7);
    let blocks = SUSTAINED_SIZE / SMALL as u64;
    let places: Vec<u64> = (0..SUSTAINED_WRITES).map(|_| random.below(blocks) * SMALL as u64).collect();
    write_at(lab, &spaces, &space, (&places, SMALL), FLUSHED_AFTER).await?;
    destage_everything(&spaces).await?;
    let asked = Asked::of(lab).since(before);
    drop(space);
    lab.check_and_close(spaces).await?;
    Ok(asked)
}

async fn destage_everything(spaces: &Spaces) -> Outcome {
    spaces.flush().await?;
    spaces.caches().destage().await?;
    Ok(spaces.pool().checkpoint().await?)
}

#[test]
fn small_writes_that_go_on_cost_no_more_than_those_that_a_cache_takes() {
    // Scenario: blocks all over a space with parity of 4 + 1 are written, twice as many as the write cache holds, on disks so
    // slow that this takes minutes. Tables are written back when the log wants that, not each time that somebody looks; what is in
    // the cache is read in large pieces. `dolmen-bench-io sustained` does the same to files, over 16 GiB.
    let bench = Bench::with_profile(1, 6, || DiskProfile { latency: Rc::new(SLOW), ..file(CAPACITY) });
    let arena = ArenaConfig { small_count: 8192, medium_count: 64, large_count: 48 };
    bench.world.set_arenas(arena, arena);
    let run = bench.run(async |lab| {
        let asked = sustain(&lab).await?;
        let per_write = |sum: u64| sum as f64 / SUSTAINED_WRITES as f64;
        let (reads, writes, flushes) =
            (per_write(asked.reads), per_write(asked.writes), per_write(asked.flushes));
        println!("sustained: {reads:.2} reads, {writes:.2} writes, {flushes:.3} flushes");
        let commands = reads + writes + flushes;
        assert!(commands <= SMALL_COMMANDS_MAX, "{commands} commands for each small write");
        assert!(reads <= SUSTAINED_READS_MAX, "{reads} reads for each small write");
        Ok(())
    });
    run.unwrap();
}
