//! Clients: tasks that read, write and change spaces, each judged by the oracle.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{Durability, sleep};
use dolmen_causes::in_one_line;
use dolmen_pool::PoolError;
use dolmen_sim::Random;
use dolmen_space::{Progress, Provisioning, Segment, Space, SpaceError};
use dolmen_units::Bytes;

use super::daemon_run::DaemonRun;
use super::oracle::{self, BLOCK};
use super::settings::Shrinking;
use super::tally::{Rare, Work};

/// Spaces that exist at once, at most.
const SPACES_MAX: usize = 4;
/// Bytes of a request of a stream, and how many of them are under way together.
const STREAM_REQUEST: u64 = 128 * 1024;
const STREAM_DEPTH: u64 = 4;
/// Bytes of a column that one page of its table speaks of.
const PAGE_REACH: u64 = 504 * 4096;

/// Works until the life's operations are used up or something went wrong.
pub async fn client(run: Rc<DaemonRun>, mut random: Random, number: u64) {
    while run.take_operation() {
        if let Err(cause) = step(&run, &mut random, number).await {
            run.fail(cause);
        }
        if random.below(8) == 0 {
            let pause = Duration::from_micros(random.below(3000));
            sleep(run.clock.as_ref(), pause).await;
        }
    }
    run.doing.borrow_mut().remove(&number);
    run.client_done();
}

async fn step(run: &Rc<DaemonRun>, random: &mut Random, number: u64) -> Result<(), String> {
    let choice = random.below(1000);
    run.doing.borrow_mut().insert(number, format!("operation {choice} of 1000"));
    match choice {
        0..=3 => return delete_or_make(run, random).await,
        4..=9 => return checkpoint(run).await,
        10..=69 => return flush(run).await,
        _ => {}
    }
    let Some((uid, space)) = run.pick(random) else { return delete_or_make(run, random).await };
    match choice {
        70..=79 => resize(run, uid, &space, random).await,
        80..=399 => read(run, uid, &space, random).await,
        400..=469 => zero(run, uid, &space, random, Zeroing::Discard).await,
        470..=539 => zero(run, uid, &space, random, Zeroing::Write).await,
        540..=599 => write(run, uid, &space, random, Durability::Durable).await,
        600..=611 if space.spec().resiliency.parity_columns() > 0 => stream(run, uid, &space, random).await,
        _ => write(run, uid, &space, random, Durability::Cached).await,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Zeroing {
    Discard,
    Write,
}

/// A range of whole sectors: mostly short, half of the time in a corner that others use too.
fn range(run: &DaemonRun, uid: u64, random: &mut Random) -> Option<(u64, u64)> {
    let (size, sector) = run.oracle.borrow().models.get(&uid).map(|model| (model.size, model.sector))?;
    let longest = match random.below(40) {
        0 => 1 << 20,
        1..=5 => 128 * 1024,
        6..=15 => 32 * 1024,
        _ => 3 * 4096,
    };
    let unit = if random.below(3) == 0 { sector } else { BLOCK as u64 };
    let reach = if random.coin() { size.min(192 * 1024) } else { size };
    let at = random.below(reach / unit) * unit;
    let length = (1 + random.below(longest / unit)) * unit;
    Some((at, length.min(size - at).max(unit)))
}

async fn write(
    run: &Rc<DaemonRun>,
    uid: u64,
    space: &Space,
    random: &mut Random,
    durability: Durability,
) -> Result<(), String> {
    let Some((at, length)) = range(run, uid, random) else { return Ok(()) };
    write_range(run, uid, space, (at, length), durability).await
}

/// Requests one after another, some of them under way together, over a row or so; at times again when it has a shadow row, and at
/// times nobody comes for so long that this is promoted.
async fn stream(run: &Rc<DaemonRun>, uid: u64, space: &Space, random: &mut Random) -> Result<(), String> {
    let row = space.row_bytes();
    for _ in 0..1 + random.below(2) {
        let Some(size) = run.size_of(uid) else { return Ok(()) };
        let start = random.below(2) * row + if random.below(4) == 0 { random.below(row / 2) } else { 0 };
        let start = start / BLOCK as u64 * BLOCK as u64;
        let end = size.min(start + row / 3 + random.below(row)) / BLOCK as u64 * BLOCK as u64;
        let next = Cell::new(start);
        let write_on = async |_: u64| {
            while next.get() < end {
                let at = next.get();
                next.set(end.min(at + STREAM_REQUEST));
                write_range(run, uid, space, (at, next.get() - at), Durability::Cached).await?;
            }
            Ok::<_, String>(())
        };
        join_all((0..STREAM_DEPTH).map(write_on)).await.into_iter().collect::<Result<(), String>>()?;
        if random.below(3) == 0 {
            // Longer than a shadow row waits for its stream.
            run.world.jump_clock(Duration::from_secs(61));
        }
    }
    Ok(())
}

async fn write_range(
    run: &Rc<DaemonRun>,
    uid: u64,
    space: &Space,
    (at, length): (u64, u64),
    durability: Durability,
) -> Result<(), String> {
    if !run.oracle.borrow().may_begin(uid, at, length) {
        return Ok(());
    }
    let mut buffer = run.seams.data.take(usize::try_from(length).unwrap()).await;
    if !run.oracle.borrow().may_begin(uid, at, length) {
        return Ok(());
    }
    let op = run.oracle.borrow_mut().begin(uid, at, length, false);
    oracle::fill(uid, at, op.stamp(), &mut buffer);
    let since = run.clock.now();
    match space.write(at, &buffer.freeze(), durability).await {
        Ok(()) => run.oracle.borrow_mut().done(&op, durability == Durability::Durable),
        Err(error) => {
            run.oracle.borrow_mut().failed(&op);
            run.accept(&error, since, (uid, at, length))
                .map_err(|cause| format!("writing {length} bytes at {at}: {cause}"))?;
        }
    }
    Ok(())
}

async fn zero(
    run: &Rc<DaemonRun>,
    uid: u64,
    space: &Space,
    random: &mut Random,
    zeroing: Zeroing,
) -> Result<(), String> {
    let Some((mut at, mut length)) = range(run, uid, random) else { return Ok(()) };
    if random.below(12) == 0 {
        // A whole row, so that it is given back.
        at = at / space.row_bytes() * space.row_bytes();
        length = space.row_bytes().min(run.size_of(uid).unwrap_or(at) - at);
    }
    let (mut from, mut to) = (at, at + length);
    if zeroing == Zeroing::Discard {
        (from, to) = (from.next_multiple_of(BLOCK as u64), to / BLOCK as u64 * BLOCK as u64);
    }
    if from >= to || !run.oracle.borrow().may_begin(uid, from, to - from) {
        return Ok(());
    }
    let op = run.oracle.borrow_mut().begin(uid, from, to - from, true);
    let since = run.clock.now();
    let done = match zeroing {
        Zeroing::Discard => space.discard(at, length).await,
        // Half of them say what they want, half just write zeros.
        Zeroing::Write if at.is_multiple_of(2 * BLOCK as u64) => space.write_zeroes(at, length).await,
        Zeroing::Write => write_zeros(run, space, at, length).await,
    };
    match done {
        Ok(()) => run.oracle.borrow_mut().done(&op, false),
        Err(error) => {
            run.oracle.borrow_mut().failed(&op);
            run.accept(&error, since, (uid, at, length))
                .map_err(|cause| format!("zeroing {length} bytes at {at}: {cause}"))?;
        }
    }
    Ok(())
}

async fn write_zeros(run: &DaemonRun, space: &Space, at: u64, length: u64) -> Result<(), SpaceError> {
    let mut buffer = run.seams.data.take(usize::try_from(length).unwrap()).await;
    buffer.fill(0);
    space.write(at, &buffer.freeze(), Durability::Cached).await
}

async fn read(run: &Rc<DaemonRun>, uid: u64, space: &Space, random: &mut Random) -> Result<(), String> {
    let Some((at, length)) = range(run, uid, random) else { return Ok(()) };
    read_range(run, uid, space, at, length).await
}

/// Reads a range and has it judged.
pub async fn read_range(
    run: &Rc<DaemonRun>,
    uid: u64,
    space: &Space,
    at: u64,
    length: u64,
) -> Result<(), String> {
    let Some(reading) = run.oracle.borrow().read_begins(uid, at, length) else { return Ok(()) };
    let since = run.clock.now();
    let found = match space.read(at, usize::try_from(length).unwrap()).await {
        Ok(segments) => segments,
        Err(error) => {
            let accepted = run.accept(&error, since, (uid, at, length));
            return accepted
                .map_err(|cause| format!("reading {length} bytes at {at} of {}: {cause}", space.name()));
        }
    };
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap());
    for segment in found {
        match segment {
            Segment::Zeros(count) => bytes.resize(bytes.len() + count, 0),
            Segment::Data(data) => bytes.extend_from_slice(&data),
        }
    }
    run.notice();
    let verified = run.oracle.borrow_mut().read_ends(&reading, &bytes);
    verified.or_else(|_| {
        run.hear();
        run.oracle.borrow_mut().read_ends(&reading, &bytes)
    })
}

async fn flush(run: &Rc<DaemonRun>) -> Result<(), String> {
    let began = run.oracle.borrow_mut().flush_begins();
    for space in run.spaces.list() {
        match space.flush().await {
            Ok(()) => run.oracle.borrow_mut().flushed(began, Some(space.name().as_str()), &[]),
            Err(SpaceError::Unflushed { .. }) if !run.redundant || run.hard.get() => {
                let copies_max = if run.hard.get() { u8::MAX } else { 1 };
                run.oracle.borrow_mut().unflushed(space.name().as_str(), copies_max);
                run.note(|tally| {
                    tally.refused += 1;
                    tally.saw(Rare::CandidatesRelogged);
                });
            }
            Err(error) => return Err(format!("flushing: {}", in_one_line(&error))),
        }
    }
    Ok(())
}

async fn checkpoint(run: &Rc<DaemonRun>) -> Result<(), String> {
    let before = run.tally.get().operations;
    let done = run.during(Work::Checkpoint, run.spaces.pool().checkpoint()).await;
    if run.tally.get().operations > before {
        run.note(|tally| tally.saw(Rare::CheckpointUnderLoad));
    }
    done.map_err(|error| format!("a checkpoint: {}", in_one_line(&error)))
}

async fn resize(run: &Rc<DaemonRun>, uid: u64, space: &Space, random: &mut Random) -> Result<(), String> {
    let size = run.setup.borrow().drawn_size(random);
    {
        let mut oracle = run.oracle.borrow_mut();
        let Some(model) = oracle.models.get_mut(&uid).filter(|model| model.resizing.is_none()) else {
            return Ok(());
        };
        // Whoever writes behind the new end meanwhile would have to be told apart.
        if size < model.size {
            return Ok(());
        }
        model.resizing = Some(size);
    }
    let since = run.clock.now();
    let done = run.spaces.changes().resize(space, Bytes(size)).await;
    let size_now = space.size().0;
    run.oracle.borrow_mut().resized(uid, size_now);
    match done {
        Ok(()) => Ok(()),
        Err(SpaceError::Size { .. } | SpaceError::TooLarge { .. } | SpaceError::NotEmpty { .. }) => Ok(()),
        Err(error) => run
            .accept(&error, since, (uid, 0, 0))
            .map_err(|cause| format!("resizing {}: {cause}", space.name())),
    }
}

/// Makes a space smaller, once what is behind its new end was discarded. Whether it was.
pub async fn shrink(
    run: &Rc<DaemonRun>,
    uid: u64,
    space: &Space,
    random: &mut Random,
) -> Result<bool, String> {
    let Some(before) = run.size_of(uid) else { return Ok(false) };
    let size = ((1 << 20) + random.below(before - (1 << 20) + 1)) / BLOCK as u64 * BLOCK as u64;
    // Nobody begins anything behind the new end from here on.
    if size >= before || !run.oracle.borrow_mut().shrink_begins(uid, size) {
        return Ok(false);
    }
    while run.oracle.borrow().is_busy_after(uid, size) {
        sleep(run.clock.as_ref(), Duration::from_micros(100)).await;
    }
    let mut done = Ok(());
    let since = run.clock.now();
    if run.size_of(uid).is_some() {
        let op = run.oracle.borrow_mut().begin(uid, size, before - size, true);
        done = space.discard(size, before - size).await;
        match &done {
            Ok(()) => run.oracle.borrow_mut().done(&op, false),
            Err(_) => run.oracle.borrow_mut().failed(&op),
        }
    }
    if done.is_ok() {
        let _shrinking = Shrinking::begin(run, space);
        done = run.spaces.changes().resize(space, Bytes(size)).await;
    }
    let size_now = space.size().0;
    run.oracle.borrow_mut().resized(uid, size_now);
    match done {
        Ok(()) => Ok(true),
        Err(SpaceError::Size { .. } | SpaceError::TooLarge { .. } | SpaceError::NotEmpty { .. }) => Ok(false),
        Err(error) => {
            let accepted = run.accept(&error, since, (uid, 0, 0));
            accepted.map_err(|cause| format!("shrinking {}: {cause}", space.name()))?;
            Ok(false)
        }
    }
}

/// Gives some rows back, one by one.
pub async fn discard_rows(
    run: &Rc<DaemonRun>,
    uid: u64,
    space: &Space,
    random: &mut Random,
) -> Result<(), String> {
    let row = space.row_bytes();
    for _ in 0..=random.below(3) {
        let Some(size) = run.size_of(uid) else { return Ok(()) };
        let at = random.below(size.div_ceil(row)) * row;
        discard(run, uid, space, at, row.min(size - at)).await?;
    }
    Ok(())
}

/// Discards whole blocks, unless somebody is at them.
async fn discard(run: &Rc<DaemonRun>, uid: u64, space: &Space, at: u64, length: u64) -> Result<(), String> {
    if !run.oracle.borrow().may_begin(uid, at, length) {
        return Ok(());
    }
    let op = run.oracle.borrow_mut().begin(uid, at, length, true);
    let since = run.clock.now();
    match space.discard(at, length).await {
        Ok(()) => run.oracle.borrow_mut().done(&op, false),
        Err(error) => {
            run.oracle.borrow_mut().failed(&op);
            let accepted = run.accept(&error, since, (uid, at, length));
            accepted.map_err(|cause| format!("discarding {length} bytes at {at}: {cause}"))?;
        }
    }
    Ok(())
}

async fn delete_or_make(run: &Rc<DaemonRun>, random: &mut Random) -> Result<(), String> {
    let count = run.oracle.borrow().models.len();
    if count >= SPACES_MAX || (count > 1 && random.coin()) {
        let Some((uid, space)) = run.pick(random) else { return Ok(()) };
        return delete(run, uid, &space).await;
    }
    make(run, random).await
}

/// How long a space is in the trash, at most.
const TRASHED_US_MAX: u64 = 20_000;

/// Deletes a space; clients that are at it may find it gone. By its number, a third of them is deleted at once, and the others go by
/// way of the trash, from which half of them come back.
pub async fn delete(run: &Rc<DaemonRun>, uid: u64, space: &Space) -> Result<(), String> {
    if let Some(model) = run.oracle.borrow_mut().models.get_mut(&uid) {
        if model.leaving {
            return Ok(());
        }
        model.leaving = true;
    }
    let number = space.id().0;
    let is_trashed = !number.is_multiple_of(3) && trash(run, space).await?;
    if is_trashed && number % 3 == 1 {
        let restored = run.spaces.trash().restore(space, None).await;
        restored.map_err(|error| format!("restoring {}: {}", space.name(), in_one_line(&error)))?;
        run.oracle.borrow_mut().models.get_mut(&uid).into_iter().for_each(|model| {
            model.leaving = false;
            model.restored = Some(run.clock.now());
        });
        run.note(|tally| tally.saw(Rare::Restored));
        return Ok(());
    }
    run.spaces
        .changes()
        .delete(space)
        .await
        .map_err(|error| format!("deleting {}: {}", space.name(), in_one_line(&error)))?;
    run.oracle.borrow_mut().remove(uid);
    Ok(())
}

/// Moves a space into the trash for a while; whether it is there.
async fn trash(run: &Rc<DaemonRun>, space: &Space) -> Result<bool, String> {
    match run.spaces.trash().move_to_trash(space, space.id().0).await {
        Ok(()) => {}
        // Others changed the epoch at the same time.
        Err(SpaceError::Pool(PoolError::Epoch { .. })) => return Ok(false),
        Err(error) => return Err(format!("moving {} into the trash: {}", space.name(), in_one_line(&error))),
    }
    let pause = Random::derived(space.id().0, 3).below(TRASHED_US_MAX);
    sleep(run.clock.as_ref(), Duration::from_micros(pause)).await;
    Ok(true)
}

/// Goes on with what was being deleted when the daemon before ended, while clients are served.
pub async fn purge(run: Rc<DaemonRun>) {
    match run.spaces.trash().purge(&Progress::default()).await {
        Ok(true) => run.note(|tally| tally.saw(Rare::PurgedAfterOpening)),
        Ok(false) => run.fail("a purge that nobody stopped has left something".to_owned()),
        Err(error) => run.fail(format!("purging: {}", in_one_line(&error))),
    }
    run.helper_done();
}

/// Makes a space of a drawn kind.
pub async fn make(run: &Rc<DaemonRun>, random: &mut Random) -> Result<(), String> {
    let spec = run.setup.borrow_mut().space(random);
    let name = spec.name.clone();
    run.log_note(format!("{spec:?}"));
    let (size, copies) = (spec.size.0, spec.resiliency.redundancy() + 1);
    let (sector, thin) = (spec.sector.0, spec.provisioning == Provisioning::Thin);
    run.making.borrow_mut().push(name.as_str().to_owned());
    let made = run.spaces.create(spec).await;
    run.making.borrow_mut().retain(|other| other != name.as_str());
    match made {
        Ok(space) => {
            let spec = space.spec();
            let column = space.row_bytes() / u64::from(spec.columns.unwrap_or(4));
            if column > PAGE_REACH {
                run.note(|tally| tally.saw(Rare::SeveralPages));
            }
            run.oracle.borrow_mut().add(name.as_str(), size, copies, sector, thin);
            Ok(())
        }
        Err(
            SpaceError::TooFewDisks { .. }
            | SpaceError::TooFewVoters { .. }
            | SpaceError::Size { .. }
            | SpaceError::Request(_),
        ) => Ok(()),
        Err(SpaceError::Pool(PoolError::NoSpace { .. } | PoolError::Fragmented { .. })) => Ok(()),
        // A file system below is full: then there is no such space.
        Err(SpaceError::NoSpaceBelow { .. }) if run.spaces.find(name.as_str()).is_err() => Ok(()),
        Err(error) => Err(format!("making {name}: {}", in_one_line(&error))),
    }
}
