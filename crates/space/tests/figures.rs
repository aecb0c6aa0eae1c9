//! What client writes cost at the disks: reads, writes, flushes and bytes for each class of write, everything included until
//! it is in place and the log is empty. `cargo test --release -p dolmen-space --test figures -- --nocapture` prints the table.

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss)]

mod harness;

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sleep;
use dolmen_block_io::sync::join_all;
use dolmen_buffer::ArenaConfig;
use dolmen_sim::Random;
use dolmen_space::{Provisioning, Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::Bytes;
use harness::{Bench, Kind, Lab, Outcome};

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

/// Who is measured: columns of data, and disks.
const KINDS: [(Kind, u8, usize); 6] = [
    (Kind::usual(Resiliency::Simple), 4, 4),
    (Kind::usual(Resiliency::Mirror { copies: 2 }), 2, 4),
    (Kind::strict(Resiliency::Mirror { copies: 2 }), 2, 4),
    (Kind::usual(Resiliency::Mirror { copies: 3 }), 2, 6),
    (Kind::usual(Resiliency::Parity { parity: 1 }), 4, 6),
    (Kind::usual(Resiliency::Parity { parity: 2 }), 6, 9),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Nothing was ever written there; requests of whole stripes in order, up to 1 MiB.
    Fresh,
    /// The same over flushed content: a stream over three rows.
    Whole,
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
fn requests(class: Class, columns: u64) -> (Vec<u64>, usize) {
    if class != Class::Small {
        let stripe = columns * INTERLEAVE;
        let length = LARGE / stripe * stripe;
        return ((0..SIZE / length).map(|nth| nth * length).collect(), usize::try_from(length).unwrap());
    }
    let small = SMALL as u64;
    let of_column = INTERLEAVE / small;
    let mut random = Random::new(7);
    let mut places: Vec<u64> = (0..SIZE / columns / small)
        .map(|line| {
            let stripe = line / of_column * columns * INTERLEAVE;
            stripe + line % columns * INTERLEAVE + line % of_column * small
        })
        .collect();
    for last in (1..places.len()).rev() {
        let other = usize::try_from(random.below(last as u64 + 1)).unwrap();
        places.swap(last, other);
    }
    (places, SMALL)
}

/// Writes a class from its beginning to its end; how many requests, and of how many bytes.
async fn write_class(
    lab: &Lab,
    spaces: &Spaces,
    space: &Rc<Space>,
    (class, columns): (Class, u8),
) -> Result<(u64, usize), Box<dyn Error>> {
    let (places, length) = requests(class, columns.into());
    for some in places.chunks(if class == Class::Small { FLUSHED_AFTER } else { places.len() }) {
        let next = Cell::new(some);
        let write_on = async |_: usize| {
            while let Some((at, rest)) = next.get().split_first() {
                next.set(rest);
                lab.write(space, *at, length, 1).await?;
            }
            Ok::<_, Box<dyn Error>>(())
        };
        join_all((0..DEPTH).map(write_on)).await.into_iter().collect::<Outcome>()?;
        if class == Class::Small {
            spaces.flush().await?;
        }
    }
    Ok((places.len() as u64, length))
}

/// Waits until all heirs have their rows' places: what that costs is of the stream that has filled them.
async fn heirs_take_over(lab: &Lab, spaces: &Spaces) {
    let is_over = || spaces.counters().heirs_taken_over == spaces.counters().heirs_made;
    while !is_over() {
        sleep(lab.seams.clock.as_ref(), Duration::from_millis(1)).await;
    }
}

async fn measure(lab: Lab, kind: Kind, columns: u8) -> Outcome {
    let resiliency = kind.resiliency;
    let spaces = lab.create().await?;
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes(SIZE), resiliency);
    spec.integrity = kind.integrity;
    (spec.columns, spec.provisioning) = (Some(columns), Provisioning::Fixed);
    spec.interleave = Bytes(INTERLEAVE);
    let space = spaces.create(spec).await?;
    spaces.flush().await?;
    spaces.pool().checkpoint().await?;
    for class in [Class::Fresh, Class::Whole, Class::Small] {
        let before = Asked::of(&lab);
        let (count, length) = write_class(&lab, &spaces, &space, (class, columns)).await?;
        spaces.flush().await?;
        spaces.destage().await?;
        heirs_take_over(&lab, &spaces).await;
        spaces.pool().checkpoint().await?;
        let asked = Asked::of(&lab).since(before);
        let per_request = |sum: u64| sum as f64 / count as f64;
        let bytes = asked.written as f64 / (count * length as u64) as f64;
        println!(
            "{:36} {:8} {:>8.2} {:>8.2} {:>8.3} {:>8.3}",
            format!("{kind}, {columns} columns"),
            format!("{class:?}"),
            per_request(asked.reads),
            per_request(asked.writes),
            per_request(asked.flushes),
            bytes
        );
        if class == Class::Small && resiliency == (Resiliency::Parity { parity: 1 }) {
            let commands = per_request(asked.reads + asked.writes + asked.flushes);
            assert!(commands <= 5.5, "{commands} commands for each small write");
        }
        let has_bar = match class {
            Class::Fresh | Class::Whole => resiliency.parity_columns() > 0,
            Class::Small => false,
        };
        if has_bar {
            let stripe = u64::from(columns) + u64::from(resiliency.parity_columns());
            let most = 1.05 * stripe as f64 / f64::from(columns);
            assert!(bytes <= most, "whole stripes are written {bytes} times, {most} at most");
        }
    }
    drop(space);
    lab.check_and_close(spaces).await
}

#[test]
fn what_each_class_of_write_costs() {
    println!("{:36} {:8} {:>8} {:>8} {:>8} {:>8}", "space", "class", "reads", "writes", "flushes", "bytes");
    for (kind, columns, disks) in KINDS {
        let bench = Bench::new(1, disks, CAPACITY);
        let arena = ArenaConfig { small_count: 8192, medium_count: 64, large_count: 48 };
        bench.world.set_arenas(arena, arena);
        bench.run(async move |lab| measure(lab, kind, columns).await).unwrap();
    }
}
