//! A pool and its spaces under a list of actions: written, read, discarded, flushed, grown and made smaller, closed, killed and cut
//! off from power at any step, with a disk away and back, opened again and again.
//!
//! Oracle: an array that says of each block what it may hold (`oracle`). Every read is compared with it, and all of it at each
//! opening and in the end; nothing is lost as long as no more than one disk is away; the map is sound, and verification finds nothing.
//! The simulator of crate `space` draws far richer lives from a seed; here any bytes are a life, so that coverage can lead.

mod oracle;

use std::cell::RefCell;
use std::rc::Rc;

use dolmen_block_io::Durability;
use dolmen_pool::{Arbiter, OpenMode, PoolError};
use dolmen_sim::{Image, Ran, StopAt};
use dolmen_space::{Integrity, Progress, Resiliency, Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::{Bytes, EpochId, PoolId};

use crate::Reached;
use crate::content::{BLOCK, Tag};
use crate::lab::{Bench, Failure, Lab, Once, read_blocks};
use crate::script::Script;
use oracle::{Fill, Oracle};

/// Blocks of a space in the beginning, and at most.
const BLOCKS: u32 = 512;
const BLOCKS_MAX: u32 = 1024;
/// Blocks of one request, at most.
const COUNT_MAX: u64 = 40;
/// Lives of one input, and actions of one life, at most.
const RUNS_MAX: usize = 6;
const ACTIONS_MAX: usize = 24;
/// Steps of the world for one life.
const STEPS_MAX: u64 = 3_000_000;
const NAMES: [&str; 3] = ["mirror", "parity", "strict"];

/// Something that is done.
#[derive(Debug, Clone, Copy)]
enum Action {
    Write { space: usize, first: u32, count: u32, is_durable: bool },
    Discard { space: usize, first: u32, count: u32 },
    Read { space: usize, first: u32, count: u32 },
    Resize { space: usize, blocks: u32 },
    Flush,
    Destage,
    Resync,
}

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Killed,
    PowerCut,
}

/// One opening of the pool.
#[derive(Debug, Clone)]
struct Run {
    /// The disk that is away.
    away: Option<usize>,
    actions: Vec<Action>,
    /// Where it ends, if not behind all.
    stop: Option<StopAt>,
    end: End,
}

fn draw_action(script: &mut Script<'_>) -> Action {
    let kind = script.byte() % 16;
    let space = script.index(NAMES.len());
    // Ends of rows, interleaves and pages of tables are where things differ.
    let first = if script.seldom() {
        [15, 16, 255, 256, 503, 504][script.index(6)]
    } else {
        script.below(512) as u32
    };
    let count = 1 + script.below(COUNT_MAX) as u32;
    match kind {
        0..=5 => Action::Write { space, first, count, is_durable: kind == 5 },
        6 | 7 => Action::Discard { space, first, count },
        8 | 9 => Action::Read { space, first, count },
        10 | 11 => Action::Flush,
        12 => Action::Resize { space, blocks: BLOCKS / 2 + script.below(u64::from(BLOCKS)) as u32 },
        13 => Action::Destage,
        14 => Action::Resync,
        // A whole row.
        _ => Action::Write { space, first: first / 256 * 256, count: 256, is_durable: false },
    }
}

fn draw_run(script: &mut Script<'_>) -> Run {
    let how = script.byte();
    let end = [End::Closed, End::Killed, End::PowerCut][usize::from(how % 3)];
    let away = (how & 0x30 == 0x30).then(|| script.index(3));
    let count = script.index(ACTIONS_MAX);
    let actions = (0..count).map(|_| draw_action(script)).collect();
    let stop = (how & 0x80 != 0).then(|| match how & 0x40 {
        0 => StopAt::Commands(script.below(600)),
        _ => StopAt::Steps(script.below(40_000)),
    });
    Run { away, actions, stop, end: if stop.is_some() && end == End::Closed { End::Killed } else { end } }
}

/// What is known of the pool across its lives.
struct Known {
    oracles: Vec<Oracle>,
    fill: Fill,
    /// A change of size that was begun and not acknowledged: the space, and the size.
    resizing: Option<(usize, u32)>,
    /// A disk that missed something, until it was brought up to date.
    stale: Option<usize>,
    /// Whether it is away still.
    is_away: bool,
}

type Shared = Rc<RefCell<Known>>;

/// Opens the pool, compares all of it, and does what there is to do.
async fn live(bench: Bench, known: Shared, run: Run) -> Result<(), Failure> {
    let spaces = bench.open(OpenMode::Write).await?;
    let all: Vec<Space> = NAMES.iter().map(|name| spaces.find(name)).collect::<Result<_, _>>()?;
    resolve_sizes(&known, &all);
    compare_all(&known, &all).await?;
    for action in &run.actions {
        act(&bench, &spaces, &all, &known, *action).await?;
    }
    compare_all(&known, &all).await?;
    if run.away.is_none() {
        resync(&spaces, &known).await?;
    }
    let found = spaces.scrubs().check_map().await?;
    let verified = spaces.scrubs().verify(&Progress::default()).await?;
    if !found.is_empty() || !verified.lost.is_empty() || !spaces.data_loss_events().is_empty() {
        return Err(format!("{found:?}, {verified:?}, {:?}", spaces.data_loss_events()).into());
    }
    if run.end == End::Closed {
        spaces.close().await?;
        known.borrow_mut().oracles.iter_mut().for_each(Oracle::flush_ends);
    }
    Ok(())
}

/// A size that was about to change has changed or has not.
fn resolve_sizes(known: &Shared, all: &[Space]) {
    let mut known = known.borrow_mut();
    let resizing = known.resizing.take();
    for (index, (space, oracle)) in all.iter().zip(&mut known.oracles).enumerate() {
        let blocks = (space.size().0 / BLOCK as u64) as u32;
        let may = resizing.filter(|(of, _)| *of == index).map(|(_, blocks)| blocks);
        assert!(blocks == oracle.size() || may == Some(blocks), "{} has {blocks} blocks", space.name());
        oracle.resize(blocks);
    }
}

async fn compare(known: &Shared, space: &Space, index: usize, first: u32, count: u32) -> Result<(), Failure> {
    for (block, read) in (first..).zip(read_blocks(space, first, count).await) {
        known.borrow_mut().oracles[index].is_read(block, read?)?;
    }
    Ok(())
}

async fn compare_all(known: &Shared, all: &[Space]) -> Result<(), Failure> {
    for (index, space) in all.iter().enumerate() {
        let size = known.borrow().oracles[index].size();
        for first in (0..size).step_by(128) {
            compare(known, space, index, first, 128.min(size - first)).await?;
        }
    }
    Ok(())
}

async fn resync(spaces: &Spaces, known: &Shared) -> Result<(), Failure> {
    let resynced = spaces.members().resync(&Progress::default()).await?;
    if resynced.lost_blocks > 0 {
        return Err(format!("{resynced:?}").into());
    }
    let mut known = known.borrow_mut();
    if resynced.waiting == 0 && !known.is_away {
        known.stale = None;
    }
    Ok(())
}

async fn act(
    bench: &Bench,
    spaces: &Spaces,
    all: &[Space],
    known: &Shared,
    action: Action,
) -> Result<(), Failure> {
    let within = |space: usize, first: u32, count: u32| {
        let size = known.borrow().oracles[space].size();
        (first.min(size - 1), count.min(size - first.min(size - 1)))
    };
    match action {
        Action::Write { space, first, count, is_durable } => {
            let (first, count) = within(space, first, count);
            let fill = next_fill(known);
            known.borrow_mut().oracles[space].write_begins(first, count, fill);
            let durability = if is_durable { Durability::Durable } else { Durability::Cached };
            let tag = Tag { space: space as u8 + 1, block: first, fill };
            match bench.write(&all[space], tag, count, durability).await {
                Ok(()) => known.borrow_mut().oracles[space].write_ends(first, count, fill, is_durable),
                // A row with parity needs all of three disks when it is claimed; a part of the write may stand.
                Err(error) if is_no_room(&error) && known.borrow().stale.is_some() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Action::Discard { space, first, count } => {
            let (first, count) = within(space, first, count);
            known.borrow_mut().oracles[space].write_begins(first, count, 0);
            all[space].discard(u64::from(first) * BLOCK as u64, u64::from(count) * BLOCK as u64).await?;
            known.borrow_mut().oracles[space].write_ends(first, count, 0, false);
        }
        Action::Read { space, first, count } => {
            let (first, count) = within(space, first, count);
            compare(known, &all[space], space, first, count).await?;
        }
        Action::Resize { space, blocks } => {
            let blocks = blocks.min(BLOCKS_MAX);
            known.borrow_mut().resizing = Some((space, blocks));
            let resized = spaces.changes().resize(&all[space], Bytes(u64::from(blocks) * BLOCK as u64)).await;
            let mut known = known.borrow_mut();
            known.resizing = None;
            match resized {
                Ok(()) => known.oracles[space].resize(blocks),
                Err(error) => assert!(blocks < known.oracles[space].size(), "growing is refused: {error}"),
            }
        }
        Action::Flush => {
            spaces.flush().await?;
            known.borrow_mut().oracles.iter_mut().for_each(Oracle::flush_ends);
        }
        Action::Destage => spaces.caches().destage().await?,
        Action::Resync => resync(spaces, known).await?,
    }
    Ok(())
}

fn is_no_room(error: &SpaceError) -> bool {
    matches!(error, SpaceError::Pool(PoolError::NoSpace { .. }))
}

fn next_fill(known: &Shared) -> Fill {
    let mut known = known.borrow_mut();
    known.fill += 1;
    known.fill
}

/// A pool with its spaces, as it was made.
struct Made {
    images: Vec<Image>,
    named: Option<(PoolId, EpochId)>,
}

async fn make(bench: Bench) -> Result<Option<(PoolId, EpochId)>, Failure> {
    let spaces = bench.create().await?;
    let kinds = [
        Resiliency::Mirror { copies: 2 },
        Resiliency::Parity { parity: 1 },
        Resiliency::Mirror { copies: 2 },
    ];
    for (name, resiliency) in NAMES.iter().zip(kinds) {
        let mut spec = SpaceSpec::usual(name.parse()?, Bytes(u64::from(BLOCKS) * BLOCK as u64), resiliency);
        (spec.row, spec.interleave) = (Some(Bytes::mib(1)), Bytes::kib(64));
        if *name == "strict" {
            spec.integrity = Integrity::Strict;
        }
        spaces.create(spec).await?;
    }
    let pool = spaces.pool().id();
    spaces.close().await?;
    Ok(bench.arbiter.named(pool).await?.map(|record| (pool, record.epoch)))
}

fn made() -> Rc<Made> {
    thread_local!(static MADE: Once<Made> = const { Once::new() });
    MADE.with(|once| {
        once.get(|| {
            let lab = Lab::new(5, vec![Image::new(); 3]);
            let named = lab.run(|bench| async move { make(bench).await.expect("a pool is made") });
            lab.world.kill();
            Made { images: lab.images(), named }
        })
    })
}

/// Lives one life, to its end or to where it is stopped.
fn execute_run(lab: &Lab, known: &Shared, run: &Run) {
    let bench = lab.bench(|disk| run.away != Some(disk));
    let living = live(bench, Rc::clone(known), run.clone());
    let ran = match run.stop {
        Some(stop) => lab.world.run_to(stop, living),
        None => lab.world.run(living).map(Ran::Finished),
    };
    match ran {
        Ok(Ran::Finished(Ok(())) | Ran::Stopped) => {}
        Ok(Ran::Finished(Err(failure))) => panic!("{failure}; in {run:?}"),
        Err(stuck) => panic!("the engine does not come to an end: {stuck}; in {run:?}"),
    }
    if run.end == End::PowerCut {
        lab.world.power_cut();
        known.borrow_mut().oracles.iter_mut().for_each(Oracle::power_fails);
    } else {
        lab.world.kill();
    }
    lab.disks.iter().for_each(|disk| disk.outlast_the_dead());
}

/// One input.
pub(crate) fn run(input: &[u8]) -> Reached {
    let mut script = Script::new(input);
    let seed = u64::from(script.byte());
    let made = made();
    let lab = Lab::new(seed, made.images.clone()).on_record(made.named);
    lab.world.set_steps_max(STEPS_MAX);
    let oracles = (0..NAMES.len()).map(|index| Oracle::new(index as u8 + 1, BLOCKS)).collect();
    let known =
        Rc::new(RefCell::new(Known { oracles, fill: 0, resizing: None, stale: None, is_away: false }));
    let mut count = 0;
    while !script.is_over() && count < RUNS_MAX {
        let mut run = draw_run(&mut script);
        // One disk at a time: another leaves when the one before has everything again.
        let stale = known.borrow().stale;
        run.away = run.away.filter(|disk| stale.is_none_or(|stale| stale == *disk));
        known.borrow_mut().is_away = run.away.is_some();
        if run.away.is_some() {
            known.borrow_mut().stale = run.away;
        }
        execute_run(&lab, &known, &run);
        count += 1;
    }
    known.borrow_mut().is_away = false;
    let last = Run { away: None, actions: Vec::new(), stop: None, end: End::Closed };
    execute_run(&lab, &known, &last);
    if count > 0 { Reached::Held } else { Reached::Refused }
}

/// Inputs to begin with.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![]];
    for how in [0, 1, 2, 0x81, 0x82, 0xc1, 0xc2, 0x31, 0x32] {
        let mut seed = vec![how, how, 8];
        for action in [0, 1, 2, 10, 0, 6, 15, 1] {
            seed.extend([action, action % 3, 1, action * 17, 0, 12]);
        }
        seed.extend([90, 1, how ^ 1, 3, 8, 1, 0, 0, 9, 0, 14, 0, 0, 0, 0, 0]);
        seeds.push(seed);
    }
    seeds
}
