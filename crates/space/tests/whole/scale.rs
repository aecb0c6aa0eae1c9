//! A large pool whose log is full of what a space wrote, after a crash: how long it takes to open, what is read, and what is
//! held in memory meanwhile.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::disallowed_methods,
    clippy::print_stdout
)]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::harness::{self, Bench, Outcome};
use dolmen_block_io::ranks::scoped;
use dolmen_block_io::sync::join_all;
use dolmen_block_io::{BlockDevice, Durability};
use dolmen_buffer::ArenaConfig;
use dolmen_pool::{MemoryArbiter, Pool, Purpose, keys};
use dolmen_sim::{DiskProfile, LatencyModel, Random, Request, World};
use dolmen_space::{Provisioning, Resiliency, Space, SpaceSpec, Spaces, slab_units};
use dolmen_units::{Bytes, HostId, SpaceId};

const DISKS: usize = 240;
/// 240 of them hold 4 PiB.
const CAPACITY: Bytes = Bytes::gib(17_477);
/// The longest that an opening may take on the clock of the disks, and in work of this machine.
const LIMIT: Duration = Duration::from_secs(10);
/// Memory that an opening may take, and in it what the disks of the model keep of the tables that it writes.
const MEMORY_MAX: Bytes = Bytes::mib(512);

/// Rows that are on the map unless `DOLMEN_SCALE_ROWS` asks for others.
const MAPPED_ROWS: u64 = 1 << 14;

/// How long a disk takes to begin with what does not follow its last request. It transfers 200 MB/s.
const FLASH: Duration = Duration::from_micros(100);
const ROTATING: Duration = Duration::from_millis(10);

/// Where a disk's last request ended.
struct Head {
    seek: Duration,
    end: Cell<u64>,
}

impl LatencyModel for Head {
    fn latency(&self, request: Request, _: &mut Random) -> Duration {
        let seek = if request.at == self.end.get() { Duration::ZERO } else { self.seek };
        self.end.set(request.at + request.length);
        seek + Duration::from_nanos(request.length * 5)
    }
}

/// What is on the map beside the space that is written: rows of a space that is not there. They are claimed, so that free runs
/// are what real ones would leave, and have records as long as those of real ones. Headers and tables, which no opening reads
/// unless the log names the row, are left out: the disks of the model would have to keep them in memory.
const MAPPED: SpaceId = SpaceId(999);
/// Rows put on the map by one change.
const ROWS_OF_A_CHANGE: u64 = 64;

/// How many rows are on the map: of 256 MiB, which a space of 2 PiB has when nobody says otherwise. 4 PiB of mirrored slabs have
/// 8,388,608 of them.
fn mapped_rows() -> u64 {
    std::env::var("DOLMEN_SCALE_ROWS").ok().map_or(MAPPED_ROWS, |rows| rows.parse().unwrap())
}

/// Claims so many rows and puts them on the map, with records of 48 bytes, 16 for each slab and 12 for each of its runs
/// (docs/format).
async fn fill_the_map(pool: &Rc<Pool>, rows: u64) -> Outcome {
    let mut spec = SpaceSpec::usual("mapped".parse()?, Bytes::gib(2 << 20), Resiliency::Mirror { copies: 2 });
    spec.provisioning = Provisioning::Fixed;
    let (request, units) = (spec.check()?, slab_units(spec.interleave, 0));
    let begun = Instant::now();
    let mut length = 0;
    for first in (0..rows).step_by(ROWS_OF_A_CHANGE as usize) {
        let mut change = pool.change(Purpose::Claim).await;
        for row in first..rows.min(first + ROWS_OF_A_CHANGE) {
            let (_, claims) = change.place(&request, units, |_| 0)?;
            length = 48 + claims.len() * 16 + claims.iter().map(|claim| claim.runs.len() * 12).sum::<usize>();
            change.put(keys::place(MAPPED, row), vec![7; length]);
        }
        change.commit().await?;
    }
    pool.checkpoint().await?;
    println!("{rows} rows of {} on the map, {length} bytes each, in {:?}", spec.row_bytes(), begun.elapsed());
    Ok(())
}

/// How a space is written until the log is full.
#[derive(Debug, Clone, Copy)]
struct Load {
    size: Bytes,
    piece: usize,
    /// How far apart pieces are that follow each other, in pieces; prime to their number.
    stride: u64,
    /// Writes that are under way at once.
    depth: u64,
}

impl Load {
    /// Where the write with this number goes.
    fn place(&self, number: u64) -> u64 {
        let pieces = self.size.0 / self.piece as u64;
        (number * self.stride) % pieces * self.piece as u64
    }
}

fn bench(seek: Duration) -> Bench {
    let world = World::new(1);
    let arenas = ArenaConfig { small_count: 4096, medium_count: 256, large_count: 64 };
    world.set_arenas(arenas, arenas);
    let profile = || {
        let head = Head { seek, end: Cell::new(0) };
        let mut profile = DiskProfile { latency: Rc::new(head), ..DiskProfile::new(CAPACITY) };
        profile.geometry.rotational = seek == ROTATING;
        profile
    };
    let disks = (0..DISKS).map(|number| world.add_disk(&format!("disk{number}"), profile())).collect();
    Bench { world, disks, arbiter: MemoryArbiter::new(HostId([7; 16])) }
}

/// A value of this process in bytes, as the kernel has it.
fn of_process(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let stripe = status.lines().find_map(|stripe| stripe.strip_prefix(name)).unwrap();
    let kib: u64 = stripe.trim_start_matches(':').trim_end_matches("kB").trim().parse().unwrap();
    kib * 1024
}

/// How long this thread has worked: other work on the machine does not count, that of the modelled disks does.
fn worked() -> Duration {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(schedule.split_whitespace().next().unwrap().parse().unwrap())
}

fn used_sixteenths(spaces: &Spaces) -> u64 {
    let (used, capacity) = spaces.pool().log().usage().unwrap();
    used.0 * 16 / capacity.0
}

/// Writes until eleven sixteenths of the log are in use; writes wait at twelve.
async fn fill(spaces: &Rc<Spaces>, space: &Space, load: Load) -> u64 {
    let next = Rc::new(Cell::new(0));
    // Zeros take no memory in the model; in a space that is not thin they are data like any other.
    let mut zeros = spaces.pool().seams().data.take(load.piece).await;
    zeros.fill(0);
    let zeros = zeros.freeze();
    join_all((0..load.depth).map(|_| async {
        while used_sixteenths(spaces) < 11 {
            let number = next.replace(next.get() + 1);
            space.write(load.place(number), &zeros, Durability::Cached).await.unwrap();
        }
    }))
    .await;
    next.get()
}

/// What an opening took.
struct Opening {
    worked: Duration,
    on_disks: Duration,
}

/// Memory is counted for the whole process: one opening at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Fills the log of a pool, kills the daemon, and opens the pool again.
fn opening_after(load: Load, seek: Duration) -> Result<Opening, Box<dyn std::error::Error>> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let bench = bench(seek);
    bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let mut spec = SpaceSpec::usual("tank".parse()?, load.size, Resiliency::Mirror { copies: 2 });
        spec.provisioning = Provisioning::Fixed;
        let space = spaces.create(spec).await?;
        fill_the_map(spaces.pool(), mapped_rows()).await?;
        // A change that is not made keeps tables from being committed, so that the log is not trimmed and fills.
        let waiting = scoped(spaces.pool().change(Purpose::Release)).await;
        let writes = fill(&spaces, &space, load).await;
        drop(waiting);
        let (used, capacity) = spaces.pool().log().usage().unwrap();
        println!("{load:?}: {writes} writes; {used} of a log of {capacity} in use");
        assert_eq!(capacity, Bytes::mib(64));
        Ok(())
    })?;
    bench.world.kill();
    let lab = bench.lab();
    let devices: Vec<Rc<dyn BlockDevice>> = lab.devices.clone();
    // What the process held at most is counted from here on.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let (held, begun, modelled) = (of_process("VmRSS"), (Instant::now(), worked()), bench.world.now());
    bench.run_in(lab, async |lab| {
        let spaces = lab.open().await?;
        println!("{:?}", spaces.recovery());
        assert_eq!((spaces.recovery().damaged, spaces.recovery().out_of_reach), (0, 0));
        Ok(())
    })?;
    let (took, worked) = (begun.0.elapsed(), worked() - begun.1);
    let on_disks = Duration::from_nanos(bench.world.now().0 - modelled.0);
    let most = Bytes(of_process("VmHWM").saturating_sub(held));
    let counters: Vec<_> = devices.iter().map(|device| device.counters()).collect();
    println!(
        "disks that take {seek:?}: opened in {took:?} here, of which {worked:?} were work, and {on_disks:?} on the disks; {} reads of {}, {} writes of {}; {most} held at most",
        counters.iter().map(|of| of.reads).sum::<u64>(),
        Bytes(counters.iter().map(|of| of.read_bytes).sum()),
        counters.iter().map(|of| of.writes).sum::<u64>(),
        Bytes(counters.iter().map(|of| of.write_bytes).sum()),
    );
    assert!(most < MEMORY_MAX, "opening took {most} of memory");
    Ok(Opening { worked, on_disks })
}

fn assert_in_time(opening: &Opening) {
    // Disks are busy while the processor works; the time it gets depends on what else the machine does.
    let Opening { worked, on_disks } = opening;
    assert!(*worked < LIMIT, "opening was {worked:?} of work");
    assert!(*on_disks < LIMIT, "opening took {on_disks:?} on the disks");
}

/// Many blocks for each byte of the log.
const SEQUENTIAL: Load = Load { size: Bytes::gib(64), piece: 1 << 20, stride: 1, depth: 32 };
/// A record, and a look at a table and at the block, for each write.
const SCATTERED: Load = Load { size: Bytes::gib(16), piece: 4096, stride: 8_191, depth: 256 };

/// 240 disks of 4 PiB in all, without moving parts, killed with a log full of records of large sequential writes.
#[test]
#[cfg_attr(debug_assertions, ignore = "writes tens of gigabytes; see docs/promises.md")]
fn a_log_full_of_sequential_writes_is_recovered_in_ten_seconds() -> Outcome {
    assert_in_time(&opening_after(SEQUENTIAL, FLASH)?);
    Ok(())
}

/// The same with small scattered writes.
#[test]
#[cfg_attr(debug_assertions, ignore = "writes gigabytes in small pieces; see docs/promises.md")]
fn a_log_full_of_scattered_writes_is_recovered_in_ten_seconds() -> Outcome {
    assert_in_time(&opening_after(SCATTERED, FLASH)?);
    Ok(())
}

/// Both on disks that seek.
#[test]
#[cfg_attr(debug_assertions, ignore = "writes tens of gigabytes; see docs/promises.md")]
fn full_logs_on_disks_that_seek_are_recovered_in_ten_seconds() -> Outcome {
    for load in [SEQUENTIAL, SCATTERED] {
        assert_in_time(&opening_after(load, ROTATING)?);
    }
    Ok(())
}

/// Rows that a pool has when further ones are claimed.
const POOLS: [u64; 3] = [64, 2048, 1 << 14];
/// Rows that are claimed, and a block of each written.
const CLAIMED: u64 = 64;

/// What claiming rows took on all disks: for each, the claim and a first block on two disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cost {
    writes: u64,
    bytes: u64,
    reads: u64,
}

impl Cost {
    fn so_far(devices: &[Rc<dyn BlockDevice>]) -> Self {
        let each = devices.iter().map(|device| device.counters());
        let zero = Self { writes: 0, bytes: 0, reads: 0 };
        each.fold(zero, |sum, of| Self {
            writes: sum.writes + of.writes,
            bytes: sum.bytes + of.write_bytes,
            reads: sum.reads + of.reads,
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            writes: self.writes - before.writes,
            bytes: self.bytes - before.bytes,
            reads: self.reads - before.reads,
        }
    }
}

/// What it costs to claim rows of a thin space in a pool that has so many; and the checkpoint behind that, which takes the claims
/// from the log to the map.
fn cost_of_claims(rows: u64) -> Result<(Cost, Cost), Box<dyn std::error::Error>> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let costs = Rc::new(Cell::new(None));
    let report = Rc::clone(&costs);
    bench(FLASH).run(async move |lab| {
        let spaces = lab.create().await?;
        let mirror = Resiliency::Mirror { copies: 2 };
        let space = spaces.create(SpaceSpec::usual("thin".parse()?, Bytes::gib(1 << 10), mirror)).await?;
        fill_the_map(spaces.pool(), rows).await?;
        lab.write(&space, 0, 4096, 1).await?;
        spaces.flush().await?;
        spaces.pool().checkpoint().await?;
        let before = Cost::so_far(&lab.devices);
        for row in 1..=CLAIMED {
            lab.write(&space, row * space.row_bytes(), 4096, 1).await?;
        }
        let claimed = Cost::so_far(&lab.devices);
        spaces.pool().checkpoint().await?;
        let after = Cost::so_far(&lab.devices);
        report.set(Some((claimed.since(before), after.since(claimed))));
        lab.hold((spaces, space));
        Ok(())
    })?;
    Ok(costs.get().ok_or("the pool was not measured")?)
}

/// Claiming a slab takes as many writes in a large pool as in a small one: the same to the byte. So does the checkpoint that
/// takes the claims to the map, but for the pages above a leaf, of which there is one more for every hundredfold of rows.
#[test]
fn a_claim_costs_the_same_however_many_rows_there_are() -> Outcome {
    let costs = POOLS.map(|rows| cost_of_claims(rows).map(|cost| (rows, cost)));
    let costs: Vec<_> = costs.into_iter().collect::<Result<_, _>>()?;
    for (rows, (claims, checkpoint)) in &costs {
        println!("{rows} rows, {CLAIMED} more: {claims:?}; the checkpoint behind them: {checkpoint:?}");
    }
    let claims: Vec<Cost> = costs.iter().map(|(_, (claims, _))| *claims).collect();
    assert!(claims.iter().all(|claim| *claim == claims[0]), "{claims:?}");
    Ok(())
}

/// A space is deleted, and what it had comes back, in a few writes for many of its rows: an opening that finds a deletion cut short
/// finishes it before anything is served.
#[test]
fn many_rows_are_freed_in_one_change() -> Outcome {
    const ROWS: u64 = 2048;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    bench(FLASH).run(async move |lab| {
        let spaces = lab.create().await?;
        let mirror = Resiliency::Mirror { copies: 2 };
        let usual = SpaceSpec::usual("fixed".parse()?, Bytes(ROWS * (8 << 20)), mirror);
        let (row, provisioning) = (Some(Bytes::mib(8)), Provisioning::Fixed);
        let free = || spaces.pool().free_space().room().iter().map(|room| room.free.0).sum::<u64>();
        let before = free();
        let space = spaces.create(SpaceSpec { row, provisioning, ..usual }).await?;
        spaces.pool().checkpoint().await?;
        assert!(free() < before - ROWS * (16 << 20));
        let (begun, clock) = (Cost::so_far(&lab.devices), Instant::now());
        spaces.changes().delete(&space).await?;
        let took = clock.elapsed();
        let cost = Cost::so_far(&lab.devices).since(begun);
        println!("{ROWS} rows of a mirror of two are deleted: {cost:?}, {took:?} of work");
        assert!(cost.writes < ROWS / 8, "{cost:?}");
        assert_eq!(free(), before);
        harness::check(&spaces).await
    })
}
