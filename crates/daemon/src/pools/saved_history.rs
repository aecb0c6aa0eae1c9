//! The history of a pool in its map: read, written, and made again where its index is damaged.

use std::collections::BTreeMap;

use dolmen_history::{
    Index, Level, Object, Point, Recorder, SLOT_BYTES_MAX, Saving, SlotKey, budget_of, parse_slot,
};
use dolmen_pool::{PoolError, Purpose, keys};

use crate::open_pool::OpenPool;
use crate::rooms::yield_now;

/// Values of one change of the map, at most. The index and the names of slots come on top.
const CHANGE_BYTES_MAX: usize = 128 << 10;
/// Slots that one change deletes, at most: a key and a length each.
const DELETES_MAX: usize = 1024;
/// Slots that one read of the map brings, at most.
const STEP: usize = 32;

const _: () = assert!(CHANGE_BYTES_MAX > SLOT_BYTES_MAX, "a change holds a slot");

/// The part of the log up to which history is saved, in sixteenths: from half on a checkpoint empties it, and claims wait from twelve.
const LOG_SIXTEENTHS_MAX: u64 = 10;

/// Returns whether the log has room for a save without keeping a claim from it.
pub(super) fn has_log_room(pool: &OpenPool) -> bool {
    let usage = pool.spaces.pool().log().usage();
    usage.is_some_and(|(used, capacity)| used.0 <= capacity.0 / 16 * LOG_SIXTEENTHS_MAX)
}

/// Returns a recorder that goes on behind what was saved.
///
/// # Errors
/// [`PoolError`] when the map cannot be read.
pub(super) async fn saved_recorder(pool: &OpenPool) -> Result<Recorder, PoolError> {
    let map = pool.spaces.pool().map();
    let index = match map.get(&keys::history_index()).await? {
        None => Index::default(),
        Some(bytes) => match Index::parse(&bytes) {
            Some(index) => index,
            None => rebuilt(pool).await?,
        },
    };
    let mut recorder = Recorder::load(&index, budget_of(map.pages_bytes().0));
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
    let (mut range, mut found) = (keys::history_slots(), Vec::new());
    loop {
        let slots = pool.spaces.pool().map().scan(range.clone(), STEP).await?;
        let last = slots.last().and_then(|(key, _)| key.next()).filter(|_| slots.len() == STEP);
        for (key, _) in slots {
            let (_, ring, sequence) = keys::parts(&key);
            let ring = ring.checked_sub(1).and_then(|ring| u8::try_from(ring).ok());
            found.extend(ring.map(|ring| SlotKey { ring, sequence }));
        }
        match last {
            Some(next) => range.start = next,
            None => return Ok(Index::rebuilt(found)),
        }
        yield_now().await;
    }
}

/// Puts and deletes slots by as many changes of the map as that takes. The first has the index: what is cut short behind it is lost,
/// and not recorded twice.
pub(super) async fn write(pool: &OpenPool, saving: Saving) -> Result<(), PoolError> {
    let engine = pool.spaces.pool();
    let full = || PoolError::MetadataFull { name: engine.name().clone() };
    let mut puts = saving.puts.into_iter().peekable();
    let (mut index, mut deletes) = (Some(saving.index.encode()), saving.deletes);
    while index.is_some() || puts.peek().is_some() {
        if !engine.map().has_room_for_claims() {
            return Err(full());
        }
        // It waits for nothing: whoever closes the pool waits for it.
        let mut change = engine.change(Purpose::Move).await;
        let mut bytes = 0;
        index.take().into_iter().for_each(|index| change.put(keys::history_index(), index));
        deletes
            .drain(..deletes.len().min(DELETES_MAX))
            .for_each(|key| change.delete(keys::history_slot(key.ring, key.sequence)));
        while let Some((key, slot)) = puts.next_if(|(_, slot)| bytes + slot.len() <= CHANGE_BYTES_MAX) {
            bytes += slot.len();
            change.put(keys::history_slot(key.ring, key.sequence), slot);
        }
        change.commit().await?;
    }
    Ok(())
}

/// Reads the next slots of a ring, with their sequence numbers; none behind the last.
async fn slots_of(
    pool: &OpenPool,
    ring: u8,
    sequences: std::ops::Range<u64>,
) -> Result<Vec<(u64, Vec<u8>)>, PoolError> {
    let range = keys::history_slot(ring, sequences.start)..keys::history_slot(ring, sequences.end);
    let slots = pool.spaces.pool().map().scan(range, STEP).await?;
    Ok(slots.into_iter().map(|(key, slot)| (keys::parts(&key).2, slot)).collect())
}

/// Returns the points of an object, complete or not, by time.
///
/// # Errors
/// [`PoolError`] when the map cannot be read.
pub(crate) async fn points_of(
    pool: &OpenPool,
    object: Object,
    level: Level,
) -> Result<BTreeMap<u64, Point>, PoolError> {
    let recording = &pool.recording;
    let mut points = BTreeMap::<u64, Point>::new();
    let found = recording.recorder.borrow().as_ref().map(|recorder| {
        // Both at one moment: a save moves points from the one to the other.
        (recorder.saved_slots(object, level), recorder.unsaved(object, level))
    });
    let Some(((ring, saved), unsaved)) = found else { return Ok(points) };
    let mut from = saved.start;
    while from < saved.end {
        let slots = slots_of(pool, ring, from..saved.end).await?;
        let Some((last, _)) = slots.last() else { break };
        from = last + 1;
        for (sequence, slot) in slots {
            let entries = parse_slot(&slot, SlotKey { ring, sequence }).into_iter().flatten();
            for entry in entries.filter(|entry| entry.object == object) {
                points.entry(entry.at_s).or_default().add(&entry.point);
            }
        }
        // Other tasks of the engine's thread run between two reads.
        yield_now().await;
    }
    for (at_s, point) in unsaved {
        points.entry(at_s).or_default().add(&point);
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::rc::Rc;

    use dolmen_api::ImportMode;
    use dolmen_block_io::{BlockDevice, Durability, Seams};
    use dolmen_buffer::ArenaConfig;
    use dolmen_history::{Gauge, Points};
    use dolmen_pool::{CreateOptions, MemoryArbiter, create};
    use dolmen_sim::{DiskProfile, World};
    use dolmen_space::{Resiliency, SpaceSpec, Spaces};
    use dolmen_units::{Bytes, HostId};

    use super::*;

    const BEGIN_S: u64 = 1_700_000_000;

    async fn open_pool(seams: Seams, devices: Vec<Rc<dyn BlockDevice>>) -> Rc<OpenPool> {
        let name = "tank".parse().unwrap();
        let options = CreateOptions { name, overwrite: Vec::new(), fault_domains: Vec::new() };
        let opened = create(&seams, MemoryArbiter::new(HostId([7; 16])), &devices, &options).await.unwrap();
        OpenPool::new(Spaces::start(opened).await.unwrap(), ImportMode::Write)
    }

    fn in_a_world<F: Future<Output = ()> + 'static>(body: impl FnOnce(Seams, Vec<Rc<dyn BlockDevice>>) -> F) {
        let world = World::new(1);
        world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
        let profile = || DiskProfile::new(Bytes::mib(256));
        let devices = ["a", "b"].map(|name| world.add_disk(name, profile()).attach(&world)).into();
        assert!(world.run(body(world.seams(), devices)).is_ok());
    }

    fn points(used: u64) -> Points {
        let of =
            |used: u64| Point { samples: 1, seconds: 10, used: Gauge::sampled(used), ..Point::default() };
        let disks = (0..20).map(|disk| (Object::Disk(disk), of(used ^ disk << 30)));
        disks.chain([(Object::Pool, of(used))]).collect()
    }

    /// Notes samples for so long, and saves them each minute.
    async fn record(pool: &OpenPool, steps: std::ops::Range<u64>) {
        for step in steps {
            note(pool, step);
            if step % 6 == 5 {
                save(pool).await.unwrap();
            }
        }
        save(pool).await.unwrap();
    }

    fn note(pool: &OpenPool, step: u64) {
        pool.recording
            .recorder
            .borrow_mut()
            .as_mut()
            .unwrap()
            .note(BEGIN_S + step * 10, &points(step * 7919));
    }

    async fn save(pool: &OpenPool) -> Result<(), PoolError> {
        let saving = pool.recording.recorder.borrow().as_ref().unwrap().save();
        let index = saving.index.clone();
        write(pool, saving).await?;
        pool.recording.recorder.borrow_mut().as_mut().unwrap().note_saved(&index);
        Ok(())
    }

    async fn load(pool: &OpenPool) {
        let recorder = saved_recorder(pool).await.unwrap();
        pool.recording.recorder.replace(Some(recorder));
    }

    async fn all(pool: &OpenPool) -> Vec<BTreeMap<u64, Point>> {
        let mut all = Vec::new();
        for object in [Object::Pool, Object::Disk(3)] {
            for level in Level::all() {
                all.push(points_of(pool, object, level).await.unwrap());
            }
        }
        all
    }

    /// Scenario: half an hour is recorded, saved each minute, and loaded as the next daemon does. Then one slot of the disks is
    /// overwritten with nonsense, and one deleted: their ten-second points are gone, those of the pool and coarser ones are as they
    /// were. Then the index is damaged: nothing more is lost, and recording goes on.
    #[test]
    fn a_damaged_slot_of_the_map_loses_its_own_points_alone() {
        in_a_world(|seams, devices| async move {
            let pool = open_pool(seams, devices).await;
            load(&pool).await;
            record(&pool, 0..180).await;
            let before = all(&pool).await;
            assert_eq!(before[0].len(), 180);
            load(&pool).await;
            assert_eq!(all(&pool).await, before, "as the next daemon finds it");
            let (ring, saved) = {
                let recorder = pool.recording.recorder.borrow();
                recorder.as_ref().unwrap().saved_slots(Object::Disk(3), Level::FINEST)
            };
            assert!(saved.end - saved.start > 4, "{saved:?}");
            let mut change = pool.spaces.pool().change(Purpose::Claim).await;
            change.put(keys::history_slot(ring, saved.start + 1), vec![9; 3000]);
            change.delete(keys::history_slot(ring, saved.start + 3));
            change.commit().await.unwrap();
            load(&pool).await;
            let after = all(&pool).await;
            let lost: Vec<bool> = before.iter().zip(&after).map(|(before, after)| before != after).collect();
            assert_eq!(lost.iter().filter(|is| **is).count(), 1, "{lost:?}");
            let (whole, left) = (&before[5], &after[5]);
            assert!(left.iter().all(|(at_s, point)| whole.get(at_s) == Some(point)));
            assert!(
                left.len() < whole.len() && left.len() * 2 > whole.len(),
                "{} of {}",
                left.len(),
                whole.len()
            );
            let mut change = pool.spaces.pool().change(Purpose::Claim).await;
            change.put(keys::history_index(), vec![9; 100]);
            change.commit().await.unwrap();
            load(&pool).await;
            assert_eq!(all(&pool).await[..1], after[..1]);
            record(&pool, 180..240).await;
            load(&pool).await;
            assert_eq!(points_of(&pool, Object::Pool, Level::FINEST).await.unwrap().len(), 240);
            pool.spaces.close().await.unwrap();
        });
    }

    /// Scenario: a thin space takes all room of the pool, so that writes are refused; history is recorded all the same. Then the map
    /// is filled: history is refused, what it had stays, and writes to claimed rows go on. Once the map has room, it goes on.
    #[test]
    fn a_full_pool_is_recorded_and_a_full_map_is_not() {
        in_a_world(|seams, devices| async move {
            let pool = open_pool(seams.clone(), devices).await;
            load(&pool).await;
            let spec =
                SpaceSpec::usual("x".parse().unwrap(), Bytes::gib(4), Resiliency::Mirror { copies: 2 });
            let space = pool.spaces.create(SpaceSpec { row: Some(Bytes::mib(1)), ..spec }).await.unwrap();
            let mut block = seams.data.take(4096).await;
            block.fill(7);
            let block = block.freeze();
            let mut rows = 0;
            while space.write(rows << 20, &block, Durability::Cached).await.is_ok() {
                rows += 1;
            }
            assert!(rows > 50, "{rows}");
            record(&pool, 0..60).await;
            let mut filler = 0;
            while pool.spaces.pool().map().has_room_for_claims() {
                let mut change = pool.spaces.pool().change(Purpose::Claim).await;
                (0..32).for_each(|nth| change.put(keys::pool_setting(1000 + filler + nth), vec![1; 3000]));
                filler += 32;
                if change.commit().await.is_err() {
                    break;
                }
            }
            let before = all(&pool).await;
            note(&pool, 60);
            assert!(matches!(save(&pool).await, Err(PoolError::MetadataFull { .. })));
            space.write(0, &block, Durability::Cached).await.unwrap();
            load(&pool).await;
            assert_eq!(all(&pool).await, before);
            let mut change = pool.spaces.pool().change(Purpose::Release).await;
            (0..filler.min(1024)).for_each(|nth| change.delete(keys::pool_setting(1000 + nth)));
            change.commit().await.unwrap();
            pool.spaces.pool().checkpoint().await.unwrap();
            record(&pool, 60..120).await;
            assert_eq!(points_of(&pool, Object::Pool, Level::FINEST).await.unwrap().len(), 120);
            pool.spaces.close().await.unwrap();
        });
    }

    /// Scenario: two busy days, saved each minute, in a map of 6 MiB. Slots and index take a sixteenth of the map at most.
    #[test]
    fn history_takes_a_sixteenth_of_a_small_map() {
        in_a_world(|seams, devices| async move {
            let pool = open_pool(seams, devices).await;
            load(&pool).await;
            for day in 0..4 {
                for step in 0..2000 {
                    note(&pool, day * 4000 + step);
                }
                save(&pool).await.unwrap();
            }
            let map = pool.spaces.pool().map();
            let slots = map.scan(keys::history_slots(), usize::MAX).await.unwrap();
            let bytes: usize = slots.iter().map(|(_, slot)| slot.len() + 64).sum();
            let limit = map.pages_bytes().0 / 16;
            assert!(bytes as u64 <= limit && bytes as u64 > limit / 3, "{bytes} of {limit}");
            pool.spaces.close().await.unwrap();
        });
    }
}
