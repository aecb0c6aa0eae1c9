//! What client writes cost at the disks: reads, writes, flushes and bytes for each class of write, everything included until
//! it is in place and the log is empty. `cargo test --release -p dolmen-space --test figures -- --nocapture` prints the table.

mod harness;

use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_buffer::ArenaConfig;
use dolmen_sim::Random;
use dolmen_space::{Provisioning, Resiliency, Space, SpaceSpec, Spaces};
use dolmen_units::Bytes;
use harness::{Bench, Lab, Outcome};

/// Disks of the size at which a log has what a usual pool has.
const CAPACITY: Bytes = Bytes::gib(64);
const SIZE: u64 = 192 << 20;
/// Requests that are under way together.
const DEPTH: u64 = 32;
/// Random writes of a class.
const RANDOM: u64 = 16 * 1024;
const SMALL: usize = 4096;
const LARGE: usize = 1 << 20;

/// Who is measured: columns of data, and disks.
const KINDS: [(Resiliency, u8, usize); 5] = [
    (Resiliency::Simple, 4, 4),
    (Resiliency::Mirror { copies: 2 }, 2, 4),
    (Resiliency::Mirror { copies: 3 }, 2, 6),
    (Resiliency::Parity { parity: 1 }, 4, 6),
    (Resiliency::Parity { parity: 2 }, 6, 9),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Nothing was ever written there; requests of 1 MiB in order.
    Fresh,
    /// The same over flushed content.
    Whole,
    /// Blocks all over it, over flushed content, with a flush for every thousand.
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

/// Writes a class from its beginning to its end; how many requests, and of how many bytes.
async fn write_class(
    lab: &Lab,
    spaces: &Spaces,
    space: &Rc<Space>,
    class: Class,
) -> Result<(u64, usize), String> {
    let (count, length) = match class {
        Class::Fresh | Class::Whole => (SIZE / LARGE as u64, LARGE),
        Class::Small => (RANDOM, SMALL),
    };
    let mut random = Random::new(7);
    let mut at = 0;
    while at < count {
        let some = (at..(at + DEPTH).min(count)).map(|nth| match class {
            Class::Fresh | Class::Whole => nth * LARGE as u64,
            Class::Small => random.below(SIZE / SMALL as u64) * SMALL as u64,
        });
        let written =
            join_all(some.collect::<Vec<_>>().into_iter().map(|at| lab.write(space, at, length, 1))).await;
        written.into_iter().collect::<Outcome>().map_err(|error| error.to_string())?;
        at += DEPTH;
        if class == Class::Small && at % 1024 == 0 {
            spaces.flush().await.map_err(|error| error.to_string())?;
        }
    }
    Ok((count, length))
}

async fn measure(lab: Lab, resiliency: Resiliency, columns: u8) -> Outcome {
    let spaces = lab.create().await?;
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes(SIZE), resiliency);
    (spec.columns, spec.provisioning) = (Some(columns), Provisioning::Fixed);
    let space = spaces.create(spec).await?;
    spaces.flush().await?;
    spaces.pool().checkpoint().await?;
    for class in [Class::Fresh, Class::Whole, Class::Small] {
        let before = Asked::of(&lab);
        let (count, length) = write_class(&lab, &spaces, &space, class).await?;
        spaces.flush().await?;
        spaces.destage().await?;
        spaces.pool().checkpoint().await?;
        let asked = Asked::of(&lab).since(before);
        #[allow(clippy::cast_precision_loss, reason = "figures for people")]
        let (per, bytes) =
            (|sum: u64| sum as f64 / count as f64, asked.written as f64 / (count * length as u64) as f64);
        println!(
            "{:22} {:8} {:>8.2} {:>8.2} {:>8.3} {:>8.2}",
            format!("{resiliency}, {columns} columns"),
            format!("{class:?}"),
            per(asked.reads),
            per(asked.writes),
            per(asked.flushes),
            bytes
        );
    }
    drop(space);
    lab.check_and_close(spaces).await
}

#[test]
fn what_each_class_of_write_costs() {
    println!("{:22} {:8} {:>8} {:>8} {:>8} {:>8}", "space", "class", "reads", "writes", "flushes", "bytes");
    for (resiliency, columns, disks) in KINDS {
        let bench = Bench::new(1, disks, CAPACITY);
        let arena = ArenaConfig { small_count: 8192, medium_count: 64, large_count: 48 };
        bench.world.set_arenas(arena, arena);
        bench.run(async move |lab| measure(lab, resiliency, columns).await).unwrap();
    }
}
