//! The history of a pool in its map: loaded, saved, and made again where its index is damaged.
//!
//! A save is as many changes of the map as its slots take:
//!
//! | change | what | a daemon that is killed behind it |
//! |---|---|---|
//! | any number | full slots that no index names | has lost nothing: the next one deletes them, and reads the samples from their file |
//! | one, if need be | slots with room, that no index names | the same |
//! | one | the index, and slots that the former one names and that have changed | has lost nothing: all is saved |
//! | any number | deletes of what the index does not name any more | has lost nothing: the next one deletes them |
//!
//! Before each of them the log is looked at. Where it has no room, the save is broken off, and goes on with the next sample: what is in
//! the map already is not put again.

use std::collections::VecDeque;
use std::sync::Arc;

use dolmen_block_io::sync::yield_now;
use dolmen_history::{Index, REWRITES_MAX, Rebuilding, Recorder, SLOT_BYTES_MAX, SlotKey, budget_of};
use dolmen_mutation::mutation;
use dolmen_pool::{Change, PoolError, Purpose, keys};

use crate::open_pool::OpenPool;

#[cfg(test)]
mod tests;

/// Values of one change of the map, at most. The index and the names of slots come on top.
const CHANGE_BYTES_MAX: usize = 128 << 10;
/// Slots that one change deletes, at most: a key and a length each.
const DELETES_MAX: usize = 1024;
/// Slots that one read of the map brings, at most.
const STEP: usize = 32;
/// Changes that delete what nothing names, of one save at most: a pool from elsewhere may have any number of such slots.
const SWEEPS_MAX: usize = 16;

const _: () =
    assert!(REWRITES_MAX * SLOT_BYTES_MAX <= CHANGE_BYTES_MAX, "a change holds what goes with the index");
const _: () = assert!(DELETES_MAX >= REWRITES_MAX, "and what it withdraws");

/// The part of the log up to which history is saved, in sixteenths: from half on a checkpoint empties it, and claims wait from twelve.
const LOG_SIXTEENTHS_MAX: u64 = 10;

/// Outcome of a save that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Saved {
    /// All is saved. Slots may be left that are to be deleted.
    All,
    /// The log had no room for more: it is to go on later.
    InPart,
}

/// Returns whether the log has room for a change of history without keeping a claim from it.
pub(super) fn has_log_room(pool: &OpenPool) -> bool {
    let usage = pool.spaces.pool().log().usage();
    usage.is_some_and(|(used, capacity)| used.0 <= capacity.0 / 16 * LOG_SIXTEENTHS_MAX)
}

/// Returns a recorder that goes on behind what was saved.
///
/// # Errors
/// [`PoolError`] when the map cannot be read.
pub(super) async fn saved_recorder(pool: &OpenPool) -> Result<Recorder, PoolError> {
    recorder_within(pool, budget_of(pool.spaces.pool().map().pages_bytes().0)).await
}

async fn recorder_within(pool: &OpenPool, budget: u64) -> Result<Recorder, PoolError> {
    let map = pool.spaces.pool().map();
    let index = match map.get(&keys::history_index()).await? {
        None => Index::default(),
        Some(bytes) => match Index::parse(&bytes) {
            Some(index) => index,
            None => rebuilt(pool).await?,
        },
    };
    let mut recorder = Recorder::load(&index, budget);
    while let Some(key) = recorder.wanted() {
        // What cannot be read is history that is lost.
        let slot = map.get(&keys::history_slot(key.ring, key.sequence)).await.ok().flatten();
        recorder.recall(key, slot.as_deref());
        yield_now().await;
    }
    Ok(recorder)
}

/// Finds the slots of a pool whose index is damaged.
async fn rebuilt(pool: &OpenPool) -> Result<Index, PoolError> {
    tracing::warn!(
        pool = pool.name(),
        "the index of the pool's history is damaged; it is made again of the slots"
    );
    let (mut range, mut rebuilding) = (keys::history_slots(), Rebuilding::default());
    loop {
        let slots = pool.spaces.pool().map().scan_aside(range.clone(), STEP).await?;
        let last = slots.last().and_then(|(key, _)| key.next()).filter(|_| slots.len() == STEP);
        for (key, _) in slots {
            let (_, ring, sequence) = keys::parts(&key);
            if let Some(ring) = ring.checked_sub(1).and_then(|ring| u8::try_from(ring).ok()) {
                rebuilding.note(SlotKey { ring, sequence });
            }
        }
        match last {
            Some(next) => range.start = next,
            None => return Ok(rebuilding.index()),
        }
        yield_now().await;
    }
}

/// Begins a change of the map. It waits for nothing: whoever closes the pool waits for it.
async fn begin(pool: &OpenPool) -> Result<Change<'_>, PoolError> {
    let engine = pool.spaces.pool();
    if !engine.map().has_room_for_claims() {
        return Err(PoolError::MetadataFull { name: engine.name().clone() });
    }
    Ok(engine.change(Purpose::Move).await)
}

type Puts = VecDeque<(SlotKey, Arc<[u8]>)>;

fn bytes_of(puts: &Puts) -> usize {
    puts.iter().map(|(_, slot)| slot.len()).sum()
}

/// Moves slots into a change, up to so many bytes; returns their names.
fn put(change: &mut Change<'_>, puts: &mut Puts, bytes_max: usize) -> Vec<SlotKey> {
    let (mut bytes, mut names) = (0, Vec::new());
    while let Some((key, slot)) = puts.pop_front_if(|(_, slot)| bytes + slot.len() <= bytes_max) {
        bytes += slot.len();
        change.put(keys::history_slot(key.ring, key.sequence), slot.to_vec());
        names.push(key);
    }
    names
}

fn delete(change: &mut Change<'_>, names: &mut Vec<SlotKey>) {
    for key in names.drain(..names.len().min(DELETES_MAX)) {
        change.delete(keys::history_slot(key.ring, key.sequence));
    }
}

/// Does something with the recorder of a pool, if it has one.
fn with<T>(pool: &OpenPool, act: impl FnOnce(&mut Recorder) -> T) -> Option<T> {
    pool.recording.recorder.borrow_mut().as_mut().map(act)
}

/// Saves what is not saved, as far as `has_room` says before each change that the log has room for it. Nothing may be noted meanwhile.
///
/// # Errors
/// [`PoolError`] when the pool cannot be written, or its map has no room for claims. Then what was saved before stands.
pub(super) async fn save(pool: &OpenPool, has_room: impl Fn() -> bool) -> Result<Saved, PoolError> {
    let saved = save_as_far(pool, &has_room).await;
    if saved.is_err() {
        // What the index does not name is to go before another save puts slots.
        pool.recording.is_swept.set(false);
        with(pool, Recorder::forget_placed);
    }
    saved
}

async fn save_as_far(pool: &OpenPool, has_room: &impl Fn() -> bool) -> Result<Saved, PoolError> {
    if !pool.recording.is_swept.get() {
        if sweep(pool, has_room).await? == Saved::InPart {
            return Ok(Saved::InPart);
        }
        pool.recording.is_swept.set(true);
    }
    let Some(saving) = with(pool, |recorder| recorder.save()) else { return Ok(Saved::All) };
    let (mut full, mut open): (Puts, Puts) = (saving.full.into(), saving.open.into());
    let mut rewrites: Puts = saving.rewrites.into();
    let in_the_end = bytes_of(&rewrites);
    let mut early = mutation!(HistoryIndexFirst).then(|| saving.index.encode());
    while !full.is_empty() && bytes_of(&full) + bytes_of(&open) + in_the_end > CHANGE_BYTES_MAX {
        if !has_room() {
            return Ok(Saved::InPart);
        }
        let mut change = begin(pool).await?;
        early.take().into_iter().for_each(|index| change.put(keys::history_index(), index));
        let placed = put(&mut change, &mut full, CHANGE_BYTES_MAX);
        change.commit().await?;
        with(pool, |recorder| placed.into_iter().for_each(|key| recorder.note_placed(key)));
    }
    // The next save has other slots with room: from here on it is not broken off.
    if !has_room() {
        return Ok(Saved::InPart);
    }
    if bytes_of(&full) + bytes_of(&open) + in_the_end > CHANGE_BYTES_MAX {
        let mut change = begin(pool).await?;
        put(&mut change, &mut open, CHANGE_BYTES_MAX);
        change.commit().await?;
    }
    let mut change = begin(pool).await?;
    change.put(keys::history_index(), saving.index.encode());
    for puts in [&mut full, &mut open, &mut rewrites] {
        put(&mut change, puts, CHANGE_BYTES_MAX);
    }
    let mut deletes: Vec<SlotKey> = saving.withdrawn.into_iter().chain(saving.deletes).collect();
    delete(&mut change, &mut deletes);
    change.commit().await?;
    with(pool, |recorder| recorder.note_saved(&saving.index, deletes));
    delete_rest(pool, has_room).await?;
    Ok(Saved::All)
}

/// Deletes slots that no index names any more, as far as the log has room for that.
///
/// # Errors
/// As [`save`].
pub(super) async fn delete_rest(pool: &OpenPool, has_room: impl Fn() -> bool) -> Result<(), PoolError> {
    loop {
        let mut names = with(pool, |recorder| recorder.undeleted().to_vec()).unwrap_or_default();
        if names.is_empty() || !has_room() {
            return Ok(());
        }
        let mut change = begin(pool).await?;
        delete(&mut change, &mut names);
        change.commit().await?;
        with(pool, |recorder| recorder.note_undeleted(names));
    }
}

/// Deletes slots that the index does not name: a daemon that was killed has left them, or nobody of ours.
async fn sweep(pool: &OpenPool, has_room: &impl Fn() -> bool) -> Result<Saved, PoolError> {
    if mutation!(HistoryLeftoversKept) {
        return Ok(Saved::All);
    }
    let map = pool.spaces.pool().map();
    let slot = |key: SlotKey| keys::history_slot(key.ring, key.sequence);
    let (mut found, mut changes) = (Vec::new(), 0);
    let mut gaps: VecDeque<_> = with(pool, |recorder| recorder.gaps()).unwrap_or_default().into();
    while let Some((from, to)) = gaps.pop_front() {
        let mut range = slot(from)..to.map_or(keys::history_slots().end, slot);
        loop {
            let slots = map.scan_aside(range.clone(), STEP).await?;
            let next = slots.last().and_then(|(key, _)| key.next()).filter(|_| slots.len() == STEP);
            found.extend(slots.into_iter().map(|(key, _)| key));
            let is_last = next.is_none() && gaps.is_empty();
            if found.len() >= DELETES_MAX || (is_last && !found.is_empty()) {
                if !has_room() || changes == SWEEPS_MAX {
                    return Ok(Saved::InPart);
                }
                changes += 1;
                let mut change = begin(pool).await?;
                found.drain(..).for_each(|key| change.delete(key));
                change.commit().await?;
            }
            match next {
                Some(next) => range.start = next,
                None => break,
            }
            yield_now().await;
        }
    }
    Ok(Saved::All)
}
