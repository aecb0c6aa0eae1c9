use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{ErrorCode, ImportMode};
use dolmen_block_io::sync::join_all;
use dolmen_block_io::{BlockDevice, Durability, Seams};
use dolmen_buffer::ArenaConfig;
use dolmen_checksum::crc32c;
use dolmen_history::{
    Gauge, HISTORY_BYTES_MAX, Latencies, Level, Object, Point, Points, Question, Requests, parse_slot,
};
use dolmen_pool::{CreateOptions, MemoryArbiter, create};
use dolmen_sim::{DiskProfile, World};
use dolmen_space::{Resiliency, SpaceSpec, Spaces};
use dolmen_units::{Bytes, HostId};

use super::*;
use crate::pools::HistoryReads;

const BEGIN_S: u64 = 1_700_000_000;

async fn open_pool(seams: Seams, devices: Vec<Rc<dyn BlockDevice>>) -> Rc<OpenPool> {
    let name = "tank".parse().unwrap();
    let options = CreateOptions { name, overwrite: Vec::new(), fault_domains: Vec::new() };
    let opened = create(&seams, MemoryArbiter::new(HostId([7; 16])), &devices, &options).await.unwrap();
    OpenPool::new(Spaces::start(opened).await.unwrap(), ImportMode::Write)
}

fn in_a_world<F: Future<Output = ()> + 'static>(body: impl FnOnce(Seams, Vec<Rc<dyn BlockDevice>>) -> F) {
    in_a_world_of(Bytes::mib(256), body);
}

fn in_a_world_of<F: Future<Output = ()> + 'static>(
    size: Bytes,
    body: impl FnOnce(Seams, Vec<Rc<dyn BlockDevice>>) -> F,
) {
    let world = World::new(1);
    world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
    let profile = || DiskProfile::new(size);
    let devices = ["a", "b"].map(|name| world.add_disk(name, profile()).attach(&world)).into();
    assert!(world.run(body(world.seams(), devices)).is_ok());
}

fn points(used: u64) -> Points {
    let of = |used: u64| Point { samples: 1, seconds: 10, used: Gauge::sampled(used), ..Point::default() };
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
    pool.recording.recorder.borrow_mut().as_mut().unwrap().note(BEGIN_S + step * 10, &points(step * 7919));
}

async fn save(pool: &OpenPool) -> Result<(), PoolError> {
    assert_eq!(super::save(pool, || true).await?, Saved::All);
    Ok(())
}

async fn points_of(pool: &OpenPool, object: Object, level: Level) -> BTreeMap<u64, Point> {
    HistoryReads::here().points_of(pool, Question::of_all(object, level)).await.unwrap()
}

/// Loads as the next daemon does that has room for all of it.
async fn load_large(pool: &OpenPool) {
    let recorder = recorder_within(pool, HISTORY_BYTES_MAX).await.unwrap();
    pool.recording.is_swept.set(false);
    pool.recording.recorder.replace(Some(recorder));
}

/// Compares points without showing thousands of them.
#[track_caller]
fn assert_same(found: &[BTreeMap<u64, Point>], expected: &[BTreeMap<u64, Point>], when: &str) {
    let counts = |all: &[BTreeMap<u64, Point>]| all.iter().map(BTreeMap::len).collect::<Vec<_>>();
    assert!(found == expected, "{when}: {:?} points and not {:?}", counts(found), counts(expected));
}

async fn load(pool: &OpenPool) {
    let recorder = saved_recorder(pool).await.unwrap();
    pool.recording.is_swept.set(false);
    pool.recording.recorder.replace(Some(recorder));
}

async fn all(pool: &OpenPool) -> Vec<BTreeMap<u64, Point>> {
    let mut all = Vec::new();
    for object in [Object::Pool, Object::Disk(3)] {
        for level in Level::all() {
            all.push(points_of(pool, object, level).await);
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
        assert_eq!(points_of(&pool, Object::Pool, Level::FINEST).await.len(), 240);
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
        let spec = SpaceSpec::usual("x".parse().unwrap(), Bytes::gib(4), Resiliency::Mirror { copies: 2 });
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
        assert_eq!(points_of(&pool, Object::Pool, Level::FINEST).await.len(), 120);
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

/// A point of a busy object: forty buckets of latencies each way.
fn busy(seed: u64) -> Point {
    let requests = |seed: u64| {
        let times =
            (0..40).map(|nth| (1_u64 << (nth / 4)) * (4 + nth % 4) + 3).zip((1..).map(|nth| nth * 97 + seed));
        let count = 1_000_000 + seed;
        Requests::sampled(10, count, count << 16, count * 700, Latencies::of(times))
    };
    Point { samples: 1, seconds: 10, reads: requests(seed), writes: requests(seed + 1), ..Point::default() }
}

/// Notes samples of thirty busy disks; returns them, as the file in the run folder has them.
fn note_busy(pool: &OpenPool, steps: std::ops::Range<u64>) -> Vec<(u64, Points)> {
    let disks = |step: u64| (0..30).map(move |disk| (Object::Disk(disk), busy(disk * 31 + step)));
    let of = |step: u64| disks(step).chain([(Object::Pool, busy(step))]).collect();
    let samples: Vec<(u64, Points)> = steps.map(|step| (BEGIN_S + step * 10, of(step))).collect();
    replay(pool, &samples);
    samples
}

fn replay(pool: &OpenPool, samples: &[(u64, Points)]) {
    with(pool, |recorder| samples.iter().for_each(|(at_s, points)| recorder.note(*at_s, points)));
}

/// Whether the map has slots that the index does not name.
async fn has_leftovers(pool: &OpenPool) -> bool {
    let slot = |key: SlotKey| keys::history_slot(key.ring, key.sequence);
    for (from, to) in with(pool, |recorder| recorder.gaps()).unwrap() {
        let range = slot(from)..to.map_or(keys::history_slots().end, slot);
        if !pool.spaces.pool().map().scan(range, 1).await.unwrap().is_empty() {
            return true;
        }
    }
    false
}

/// Scenario: what ten busy minutes leave takes several changes to save. The log has room for none of them, for one, for two …: each save
/// is broken off there. Whenever a daemon is killed then, the next one finds all that was saved, and the rest in the file of samples.
/// A save that is not killed goes on where it was, while samples are taken, and ends.
#[test]
fn a_save_that_is_broken_off_goes_on_and_loses_nothing_where_it_is_killed() {
    in_a_world_of(Bytes::gib(64), |seams, devices| async move {
        let pool = open_pool(seams, devices).await;
        load_large(&pool).await;
        note_busy(&pool, 0..7);
        save(&pool).await.unwrap();
        let mut samples = note_busy(&pool, 7..67);
        let (mut is_killed, mut broken_off) = (true, 0_u64);
        for step in 67.. {
            let before = all(&pool).await;
            let left = Cell::new(broken_off);
            let has_room = || left.replace(left.get().saturating_sub(1)) > 0;
            let saved = super::save(&pool, has_room).await.unwrap();
            assert_same(&all(&pool).await, &before, "after a part of a save");
            if saved == Saved::All {
                break;
            }
            if is_killed {
                load_large(&pool).await;
                let saves = with(&pool, |recorder| recorder.saves()).unwrap();
                assert_eq!(saves, 1, "a save that was cut short counts as none");
                replay(&pool, &samples);
                assert_same(&all(&pool).await, &before, "what the next daemon finds");
                broken_off += 1;
                is_killed = broken_off < 3;
            } else {
                // Each goes on with the room of one change, and the sample of its time.
                broken_off = 1;
                samples.extend(note_busy(&pool, step..step + 1));
            }
        }
        assert_eq!(broken_off, 1);
        let before = all(&pool).await;
        load_large(&pool).await;
        assert_eq!(with(&pool, |recorder| recorder.saves()), Some(2));
        assert_same(&all(&pool).await, &before, "after a load");
        pool.spaces.close().await.unwrap();
    });
}

/// Scenario: a save is killed behind a change, and the file of samples is lost too, as with a power cut. The next daemon knows what was
/// saved before. With its first save all that the other one has left is deleted, and so are three thousand slots of rings that there are
/// not.
#[test]
fn slots_that_no_index_names_are_deleted_before_the_first_save() {
    in_a_world_of(Bytes::gib(64), |seams, devices| async move {
        let pool = open_pool(seams, devices).await;
        load_large(&pool).await;
        note_busy(&pool, 0..7);
        save(&pool).await.unwrap();
        load_large(&pool).await;
        let before = all(&pool).await;
        note_busy(&pool, 7..67);
        let left = Cell::new(1_u64);
        let has_room = || left.replace(0) > 0;
        assert_eq!(super::save(&pool, has_room).await.unwrap(), Saved::InPart);
        for ring in [40, 200, 255] {
            let mut change = pool.spaces.pool().change(Purpose::Claim).await;
            (0..1000).for_each(|sequence| change.put(keys::history_slot(ring, sequence * 7), vec![ring]));
            change.commit().await.unwrap();
        }
        load_large(&pool).await;
        assert_same(&all(&pool).await, &before, "after a load");
        assert!(has_leftovers(&pool).await);
        save(&pool).await.unwrap();
        assert!(!has_leftovers(&pool).await, "slots that nothing names stay in the map");
        assert_same(&all(&pool).await, &before, "after a load");
        pool.spaces.close().await.unwrap();
    });
}

/// Scenario: an index names three thousand slots of a ring, which is far more than this map has room for, and a few of them are there.
/// The next save drops nearly all of them, in changes that delete a thousand each: none of those that were there stays. Where the log has
/// room for the first of these changes alone, the others follow later.
#[test]
fn a_save_deletes_all_that_it_drops() {
    for has_much_room in [true, false] {
        in_a_world(move |seams, devices| async move {
            const RING: usize = 6;
            let pool = open_pool(seams, devices).await;
            let mut index = Index::default().encode();
            for at in [1, 2] {
                let at = 56 + RING * 24 + at * 8;
                index[at..at + 8].copy_from_slice(&3000_u64.to_le_bytes());
            }
            index[4..8].fill(0);
            let checksum = crc32c(&index);
            index[4..8].copy_from_slice(&checksum.to_le_bytes());
            assert!(Index::parse(&index).is_some());
            let there =
                [0, 1023, 1024, 1500, 2047, 2048, 2900].map(|sequence| keys::history_slot(6, sequence));
            let mut change = pool.spaces.pool().change(Purpose::Claim).await;
            change.put(keys::history_index(), index);
            there.iter().for_each(|key| change.put(*key, vec![1; 100]));
            change.commit().await.unwrap();
            load(&pool).await;
            note(&pool, 0);
            let left = Cell::new(2_u64);
            let saved =
                super::save(&pool, || has_much_room || left.replace(left.get().saturating_sub(1)) > 1).await;
            assert_eq!(saved.unwrap(), Saved::All);
            if !has_much_room {
                assert!(has_leftovers(&pool).await);
                left.set(9);
                delete_rest(&pool, || true).await.unwrap();
            }
            for key in &there {
                let found = pool.spaces.pool().map().get(key).await.unwrap();
                assert!(found.is_none(), "old slots stay in the map: {key:?}");
            }
            pool.spaces.close().await.unwrap();
        });
    }
}

/// Scenario: forty questions at once. Those that wait are bounded: the others are refused as busy, and all others have their answer.
#[test]
fn questions_are_answered_one_at_a_time_and_a_bounded_number_waits() {
    in_a_world(|seams, devices| async move {
        let pool = open_pool(seams, devices).await;
        load(&pool).await;
        record(&pool, 0..60).await;
        let reads = HistoryReads::here();
        let question = Question::of_all(Object::Disk(3), Level::FINEST);
        let answers = join_all((0..40).map(|_| reads.answer(&pool, question, |at_s, _| at_s))).await;
        let (answered, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        assert_eq!((answered.len(), refused.len()), (33, 7));
        assert!(answered.iter().all(|one| one.as_ref().unwrap().len() == 60));
        assert!(refused.into_iter().all(|one| one.unwrap_err().code == ErrorCode::Busy));
        pool.spaces.close().await.unwrap();
    });
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// Returns what a future gives, its longest step on this thread and the sum of all.
async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration, Duration) {
    let (mut future, mut longest, mut sum) = (pin!(future), Duration::ZERO, Duration::ZERO);
    let value = poll_fn(|cx| {
        let before = processor_time();
        let polled = future.as_mut().poll(cx);
        let took = processor_time().saturating_sub(before);
        (longest, sum) = (longest.max(took), sum + took);
        polled
    });
    (value.await, longest, sum)
}

/// Scenario: the ring of minutes is as full as it gets. A question about an hour reads the whole ring once, and then what it asks for.
/// Prints how long the thread of the question was at it without a break, beside what reading and folding all slots there takes.
#[test]
fn a_question_of_a_full_ring_reads_its_hour_alone() {
    in_a_world_of(Bytes::gib(256), |seams, devices| async move {
        const LEVEL: u8 = 1;
        let pool = open_pool(seams, devices).await;
        pool.recording.recorder.replace(Some(Recorder::load(&Index::default(), HISTORY_BYTES_MAX)));
        let (mut now_s, level) = (BEGIN_S, Level::of(LEVEL).unwrap());
        for minute in 0..700 {
            now_s += 60;
            let points: Points = (0..60).map(|disk| (Object::Disk(disk), busy(disk * 31 + minute))).collect();
            with(&pool, |recorder| recorder.note(now_s, &points));
            if minute % 20 == 19 {
                save(&pool).await.unwrap();
            }
        }
        let object = Object::Disk(7);
        let (ring, saved) = with(&pool, |recorder| recorder.saved_slots(object, level)).unwrap();
        assert!(saved.end - saved.start > 3000, "{saved:?}");
        let whole = async {
            let mut from = saved.start;
            let mut points = BTreeMap::<u64, Point>::new();
            while from < saved.end {
                let range = keys::history_slot(ring, from)..keys::history_slot(ring, saved.end);
                let slots = pool.spaces.pool().map().scan(range, 32).await.unwrap();
                let Some((last, _)) = slots.last() else { break };
                from = keys::parts(last).2 + 1;
                for (key, slot) in slots {
                    let key = SlotKey { ring, sequence: keys::parts(&key).2 };
                    let entries = parse_slot(&slot, key).into_iter().flatten();
                    entries.filter(|one| one.object == object).for_each(|one| {
                        points.entry(one.at_s).or_default().add(&one.point);
                    });
                }
                yield_now().await;
            }
            points.len()
        };
        let (count, longest, sum) = timed(whole).await;
        println!("{count} points, all slots folded here: longest step {longest:?}, in all {sum:?}");
        let reads = HistoryReads::apart();
        let question = Question { object, level, from_s: now_s - 3600, to_s: now_s };
        for nth in ["first", "second"] {
            reads.slots_read.set(0);
            let (points, longest, sum) = timed(reads.answer(&pool, question, |at_s, _| at_s)).await;
            let slots = reads.slots_read.get();
            println!("{nth} question: {slots} slots, longest step {longest:?}, in all {sum:?}");
            assert!((60..=62).contains(&points.unwrap().len()));
        }
        assert!((1..500).contains(&reads.slots_read.get()), "{} of {saved:?}", reads.slots_read.get());
        pool.spaces.close().await.unwrap();
    });
}
