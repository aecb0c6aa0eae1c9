//! How fast redundancy is restored when nobody else wants the disks, held against what these can do, in virtual time.
//! `cargo test -p dolmen-space --test spaces -- --nocapture repair_speed::` prints the table.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::cast_precision_loss)]

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;

use dolmen_block_io::Durability;
use dolmen_block_io::sync::join_all;
use dolmen_buffer::ArenaConfig;
use dolmen_space::{Progress, Resiliency, Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::slow_disks::Modelled;
use crate::harness::{Bench, Lab, pattern};

const CAPACITY: Bytes = Bytes::gib(4);
/// What a disk that is replaced has, or somewhat more.
const OF_ONE: Bytes = Bytes::mib(384);
/// Columns of data in rows with parity.
const PARITY_COLUMNS: u8 = 4;
const LARGE: u64 = 1 << 20;
/// Of what the disks can do, at least.
const SHARE_MIN: f64 = 0.7;
const SHARE_OF_DUAL_PARITY_MIN: f64 = 0.6;
/// Eight disks restore so many times as fast as one can be filled, at least.
const EIGHT_SOLID_MIN: f64 = 3.0;
/// The slots of labels decide where heads stand between two rows: 2.20 with one order of slots, 2.197 with the other.
const EIGHT_SPINNING_MIN: f64 = 2.19;
/// Memory as the daemon has it.
const ARENA: ArenaConfig = ArenaConfig { small_count: 8192, medium_count: 192, large_count: 48 };
/// Spaces, and the disks that they are on.
const KINDS: [(Resiliency, usize); 4] = [
    (Resiliency::Mirror { copies: 2 }, 2),
    (Resiliency::Mirror { copies: 3 }, 4),
    (Resiliency::Parity { parity: 1 }, 5),
    (Resiliency::Parity { parity: 2 }, 7),
];

/// Disks of a kind, and the length of rows on them.
#[derive(Clone, Copy)]
struct Disks {
    name: &'static str,
    model: fn() -> Modelled,
    row: Bytes,
}

/// With the longest rows that spaces below 1 TiB have: what heads lose on the way from one to the next is little beside them.
const SPINNING: Disks = Disks { name: "spinning", model: Modelled::spinning, row: Bytes::mib(64) };
const SOLID: Disks = Disks { name: "solid", model: Modelled::solid, ..SPINNING };
/// With rows as short as those of thin spaces.
const SPINNING_SHORT: Disks = Disks { name: "spinning, short rows", row: Bytes::mib(8), ..SPINNING };
const SOLID_SHORT: Disks = Disks { name: "solid, short rows", row: Bytes::mib(8), ..SOLID };

/// A pool whose redundancy is restored.
#[derive(Clone, Copy)]
struct Case {
    kind: Disks,
    resiliency: Resiliency,
    /// Bytes of clients.
    size: Bytes,
    /// Disks that it begins with; the first is lost.
    disks: usize,
    /// Whether another disk takes its place, or the others take what it had.
    is_replaced: bool,
}

impl Case {
    fn to_a_new_disk(kind: Disks, (resiliency, disks): (Resiliency, usize)) -> Self {
        let columns = if resiliency.parity_columns() > 0 { PARITY_COLUMNS.into() } else { 1 };
        Self { kind, resiliency, size: Bytes(OF_ONE.0 * columns), disks, is_replaced: true }
    }

    async fn filled(&self, lab: &Lab, spaces: &Spaces) -> Result<Space, Box<dyn Error>> {
        let mut spec = SpaceSpec::usual("data".parse()?, self.size, self.resiliency);
        let columns = if self.resiliency.parity_columns() > 0 { Some(PARITY_COLUMNS) } else { None };
        (spec.columns, spec.row) = (columns, Some(self.kind.row));
        let space = spaces.create(spec).await?;
        let mut buffer = lab.seams.data.take(usize::try_from(LARGE)?).await;
        pattern(0, 1, &mut buffer);
        // The same everywhere, for it takes longer to make than to write.
        let data = buffer.freeze();
        let places: Vec<u64> = (0..self.size.0 / LARGE).map(|nth| nth * LARGE).collect();
        for together in places.chunks(16) {
            let writes = together.iter().map(|at| space.write(*at, &data, Durability::Cached));
            join_all(writes).await.into_iter().collect::<Result<(), SpaceError>>()?;
        }
        drop(data);
        spaces.flush().await?;
        spaces.caches().destage().await?;
        spaces.pool().checkpoint().await?;
        Ok(space)
    }

    /// Restores redundancy; how many bytes that were, and how many seconds it took.
    async fn restore(self, bench: &Bench, lab: Lab) -> Result<(f64, f64), Box<dyn Error>> {
        let spare = lab.devices.last().cloned().ok_or("there is a disk to spare")?;
        let lab = Lab { devices: lab.devices.split_last().map(|(_, all)| all.to_vec()).unwrap(), ..lab };
        let spaces = lab.create().await?;
        let space = self.filled(&lab, &spaces).await?;
        let lost = spaces.pool().disks().into_iter().find(|disk| disk.name() == "disk0").unwrap();
        bench.disks.first().unwrap().vanish();
        lab.write(&space, 0, 4096, 2).await?;
        spaces.flush().await?;
        let (progress, clock) = (Progress::default(), Rc::clone(&lab.seams.clock));
        let new = match self.is_replaced {
            true => Some(spaces.pool().membership().add_instead_of(&lost, spare, &[]).await?),
            false => spaces.pool().membership().retire(&lost).await.map(|()| None)?,
        };
        let begun = clock.now();
        if let Some(new) = new {
            assert!(spaces.moves().finish_replacing(&lost, &new, &progress).await?, "everything is moved");
        } else {
            assert!(spaces.moves().drain_disk(&lost, &progress).await?, "everything finds a place");
            spaces.pool().membership().evict(&lost).await?;
        }
        let took = clock.now().since(begun).as_secs_f64();
        lab.expect(&space, 4096, 8192, 1).await?;
        drop(space);
        lab.check_and_close(spaces).await?;
        Ok((progress.bytes.get() as f64, took))
    }

    fn run(self) -> (f64, f64) {
        let model = self.kind.model;
        let bench = Rc::new(Bench::with_profile(1, self.disks + 1, || model().profile(CAPACITY)));
        bench.world.set_arenas(ARENA, ARENA);
        let found = Rc::new(Cell::default());
        let (inner, into) = (Rc::clone(&bench), Rc::clone(&found));
        let run = bench.run(async move |lab| {
            into.set(self.restore(&inner, lab).await?);
            Ok(())
        });
        run.unwrap();
        found.get()
    }

    /// At what rate three quarters of it are restored, as a share of what one disk takes: the rest goes for how such a thing
    /// begins and ends, which it does once.
    fn measure(self) -> f64 {
        let (few_bytes, few_seconds) = Self { size: Bytes(self.size.0 / 4), ..self }.run();
        let (bytes, seconds) = self.run();
        let rate = (bytes - few_bytes) / (seconds - few_seconds);
        let of_one = rate / (self.kind.model)().bytes_per_s as f64;
        let (name, disks, resiliency) = (self.kind.name, self.disks, self.resiliency.to_string());
        let how = if self.is_replaced { "to a new disk" } else { "to the others" };
        let rate = rate / 1e6;
        println!(
            "{name:22} {resiliency:18} {disks} disks, {how}: {rate:7.1} MB/s, {of_one:.2} of what one takes"
        );
        of_one
    }
}

#[test]
fn a_new_disk_is_filled_about_as_fast_as_it_takes_data() {
    for (kind, of_space) in
        [SPINNING, SOLID].into_iter().flat_map(|kind| KINDS.map(|of_space| (kind, of_space)))
    {
        let share = Case::to_a_new_disk(kind, of_space).measure();
        // Of rows with two parities the tables of three columns are with each slab, and heads go to all of them twice.
        let has_many_tables = kind.name == SPINNING.name && of_space.0.parity_columns() > 1;
        let least = if has_many_tables { SHARE_OF_DUAL_PARITY_MIN } else { SHARE_MIN };
        assert!(share >= least, "{} {}: {share}", kind.name, of_space.0);
    }
}

#[test]
#[ignore = "prints figures alone, of rows so short that heads are on their way half of the time"]
fn a_new_disk_is_filled_from_short_rows() {
    for (kind, of_space) in
        [SPINNING_SHORT, SOLID_SHORT].into_iter().flat_map(|kind| KINDS.map(|of_space| (kind, of_space)))
    {
        Case::to_a_new_disk(kind, of_space).measure();
    }
}

#[test]
fn what_a_lost_disk_had_is_restored_by_all_others_together() {
    // Each byte is read from one disk and written to another, so that eight do four times what one takes at most. Of disks with
    // heads each is at one end of one row at a time, and some wait until one at the other end is free.
    for (kind, times) in [(SPINNING, EIGHT_SPINNING_MIN), (SOLID, EIGHT_SOLID_MIN)] {
        let resiliency = Resiliency::Mirror { copies: 2 };
        let case = Case { kind, resiliency, size: Bytes::gib(2), disks: 9, is_replaced: false };
        let of_one = case.measure();
        assert!(of_one >= times, "{}: {of_one}", kind.name);
    }
}
