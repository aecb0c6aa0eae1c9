//! The log: batches by themselves, and rings of them on two copies, with edits, sealed again or not.
//!
//! Oracle: `docs/format/journal.md`, written down once more. What the engine reads of a batch is written here again, to the same
//! bytes. What it recovers of two copies is what [`reference`](crate::log_reference) finds on them by that document: the same
//! batches in the same order, the same holes, and whether anything is damaged. So a log that is not forged is replayed as it was
//! written, but for what is named; and a forged one is read as any other reader would.

use std::rc::Rc;

use dolmen_block_io::{Executor, MemoryClock, MemoryDevice, Seams, Spawner, fixed_entropy};
use dolmen_buffer::{Arena, ArenaConfig};
use dolmen_journal::format::{Batch, Expected};
use dolmen_journal::{Damage, LogCopy, Owner, Place, RecoverError, Recovered, Ring, recover};
use dolmen_units::{Bytes, DiskId, Epoch, EpochId, Lsn, PoolId};

use crate::labels::first_difference;
use crate::log_reference::{self, Content};
use crate::script::Script;
use crate::{Reached, edits, named, seal};

pub(crate) const POOL: PoolId = PoolId([7; 16]);
pub(crate) const RING: Ring = Ring { at: 8192, length: 65536 };
/// Bytes of a copy.
const COPY_BYTES: u64 = 128 * 1024;
/// Batches of a ring, at most: more than it has room for.
const BATCHES_MAX: u64 = 20;

pub(crate) fn epoch(number: u64) -> EpochId {
    EpochId { number: Epoch(number), nonce: number * 1001 }
}

/// A batch, as the document has it. `head` has what is said beside the records.
pub(crate) fn batch_bytes(head: &Head, records: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    for (kind, body) in records {
        bytes.extend([*kind, 0, 0, 0]);
        bytes.extend((body.len() as u32).to_le_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    let used = bytes.len() as u32;
    bytes.resize(bytes.len().next_multiple_of(4096), 0);
    seal::put(&mut bytes, 0, b"DOLMNLOG");
    seal::put(&mut bytes, 16, &[1, 1]);
    seal::put(&mut bytes, 20, &(records.len() as u32).to_le_bytes());
    seal::put(&mut bytes, 24, &head.pool.0);
    let numbers = [head.epoch.number.0, head.epoch.nonce, head.lsn, head.position, head.address];
    for (place, number) in numbers.into_iter().enumerate() {
        seal::put(&mut bytes, 40 + 8 * place, &number.to_le_bytes());
    }
    let length = bytes.len() as u32;
    seal::put(&mut bytes, 80, &length.to_le_bytes());
    seal::put(&mut bytes, 84, &used.to_le_bytes());
    seal::put(&mut bytes, 88, &head.durable_mark.to_le_bytes());
    seal::put(&mut bytes, 96, &head.durable_before.to_le_bytes());
    seal::batch(&mut bytes);
    bytes
}

/// What the header of a batch says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) pool: PoolId,
    pub(crate) epoch: EpochId,
    pub(crate) lsn: u64,
    pub(crate) position: u64,
    pub(crate) address: u64,
    pub(crate) durable_mark: u64,
    pub(crate) durable_before: u64,
}

fn head_of(batch: &Batch) -> Head {
    let header = batch.header;
    Head {
        pool: PoolId(batch.bytes()[24..40].try_into().unwrap()),
        epoch: header.epoch,
        lsn: header.lsn.0,
        position: header.position,
        address: seal::number(batch.bytes(), 72, 8),
        durable_mark: header.durable_mark.0,
        durable_before: header.durable_before.0,
    }
}

/// A batch by itself.
fn verify_batch(bytes: &[u8], address: u64) -> Reached {
    let expected = Expected { pool: POOL, ring: RING, address };
    let (placed, alone) = (Batch::parse(bytes, &expected), Batch::parse_alone(bytes, address));
    if let Ok(batch) = &placed {
        assert_eq!(Ok(batch), alone.as_ref(), "a batch that counts in its place is one by itself");
    }
    match alone {
        Ok(batch) => {
            let records: Vec<(u8, Vec<u8>)> =
                batch.records().map(|record| (record.kind, record.body.to_vec())).collect();
            let again = batch_bytes(&head_of(&batch), &records);
            assert_eq!(first_difference(&again, batch.bytes()), None, "a field of a batch was passed over");
            assert_eq!(first_difference(batch.bytes(), &bytes[..again.len()]), None);
            Reached::Held
        }
        Err(error) => named(&error),
    }
}

/// What the script writes: batches one behind the other, round the ring.
fn written(script: &mut Script<'_>) -> Vec<(u64, Vec<u8>)> {
    let mut batches: Vec<(u64, Vec<u8>)> = Vec::new();
    let (mut position, mut durable_mark, mut durable) = (0, 0, 0);
    for lsn in 1..=script.below(BATCHES_MAX) {
        let shape = script.byte();
        let mut records: Vec<(u8, Vec<u8>)> =
            (0..shape & 3).map(|number| (1 + number, vec![lsn as u8; usize::from(shape) * 9])).collect();
        if shape & 4 != 0 && lsn > 2 {
            let holes = [lsn - 2, lsn - 1 - u64::from(shape >> 3 & 1)];
            records.push((0, holes.iter().flat_map(|lsn| lsn.to_le_bytes()).collect()));
        }
        if shape & 16 != 0 {
            durable_mark = lsn.saturating_sub(2);
        }
        let left = RING.length - position % RING.length;
        let mut head = Head {
            pool: POOL,
            epoch: epoch(1 + u64::from(lsn > 8)),
            lsn,
            position,
            address: RING.at + position % RING.length,
            durable_mark,
            durable_before: durable,
        };
        let length = batch_bytes(&head, &records).len() as u64;
        if length > left {
            position += left;
            (head.position, head.address) = (position, RING.at + position % RING.length);
        }
        if shape & 32 != 0 {
            durable = lsn;
        }
        position += length;
        batches.push((head.address, batch_bytes(&head, &records)));
    }
    batches
}

/// Which epoch wrote what of a log.
pub(crate) fn owners() -> Vec<Owner> {
    vec![Owner { epoch: epoch(1), first: Lsn(1) }, Owner { epoch: epoch(2), first: Lsn(9) }]
}

/// The content of two copies, as the script damages and forges it.
fn copies(script: &mut Script<'_>) -> [Vec<u8>; 2] {
    let mut both = [vec![0; COPY_BYTES as usize], vec![0; COPY_BYTES as usize]];
    let batches = written(script);
    for (address, bytes) in &batches {
        both.iter_mut().for_each(|copy| seal::put(copy, *address as usize, bytes));
    }
    while !script.is_over() && !batches.is_empty() {
        let how = script.byte();
        let (address, batch) = &batches[script.index(batches.len())];
        let (from, to) = (*address as usize, *address as usize + batch.len());
        let edit = edits::Edit::draw(script, batch.len());
        for copy in both.iter_mut().zip([1, 2]).filter(|(_, bit)| how & bit == 0).map(|(copy, _)| copy) {
            edit.apply(&mut copy[from..to]);
            if how & 4 != 0 {
                seal::batch(&mut copy[from..to]);
            }
        }
    }
    both
}

fn recovered(copies: &[Vec<u8>; 2], tail: Place) -> Result<Recovered, RecoverError> {
    let executor = Executor::new();
    let spawner: Rc<dyn Spawner> = Rc::clone(&executor) as _;
    let arena = Arena::new(ArenaConfig { small_count: 4, medium_count: 4, large_count: 2 });
    let seams = Seams {
        clock: MemoryClock::new(),
        entropy: fixed_entropy(1),
        spawner,
        data: arena.clone(),
        metadata: arena,
    };
    let logs: Vec<LogCopy> = copies
        .iter()
        .enumerate()
        .map(|(number, bytes)| {
            let device = MemoryDevice::new("copy", Bytes(COPY_BYTES));
            device.poke(0, bytes);
            LogCopy { disk: DiskId([number as u8 + 1; 16]), device: device as _ }
        })
        .collect();
    let reading = async move { recover(&seams, Epoch(99), POOL, RING, &logs, tail, &owners()).await };
    executor.block_on(reading).expect("devices in memory answer")
}

fn verify_copies(copies: &[Vec<u8>; 2], tail: Place) -> Reached {
    let expected = log_reference::read(copies, tail);
    let found = match recovered(copies, tail) {
        Ok(found) => found,
        Err(error) => {
            assert!(
                matches!(error, RecoverError::Version { .. }),
                "two copies that answer are not read: {error}"
            );
            assert!(expected.has_later_version, "no batch that counts is of a later version: {error}");
            return named(&error);
        }
    };
    assert!(!expected.has_later_version, "a log of a later version is read");
    let conflicts = found.damage().iter().filter(|damage| matches!(damage, Damage::Conflict { .. })).count();
    assert_eq!(conflicts > 0, expected.has_conflict, "two contents of one batch: {:?}", found.damage());
    if expected.has_conflict {
        // Which of the two is taken is the engine's to choose.
        return Reached::Held;
    }
    let records: Vec<Content> =
        found.records().map(|(lsn, record)| (lsn.0, record.kind, record.body.to_vec())).collect();
    let differs = records.iter().zip(&expected.records).position(|(found, expected)| found != expected);
    assert!(
        differs.is_none() && records.len() == expected.records.len(),
        "what is replayed is {:?} instead of {:?}; they differ from record {differs:?} on",
        numbers(&records),
        numbers(&expected.records)
    );
    let holes: Vec<(u64, u64)> = found.holes().iter().map(|range| (range.start().0, range.end().0)).collect();
    assert_eq!(holes, expected.holes, "what is missing");
    assert_eq!(found.durable_mark().0, expected.durable_mark, "the durable mark");
    assert_eq!(!found.damage().is_empty(), expected.is_damaged, "damage: {:?}", found.damage());
    Reached::Held
}

/// LSN and kind of records.
fn numbers(records: &[Content]) -> Vec<(u64, u8)> {
    records.iter().map(|(lsn, kind, _)| (*lsn, *kind)).collect()
}

/// One input.
pub(crate) fn run(input: &[u8]) -> Reached {
    let mut script = Script::new(input);
    let shape = script.byte();
    if shape & 1 != 0 {
        let tail = Place { lsn: Lsn(1 + script.below(6)), position: 4096 * script.below(8) };
        let tail = if shape & 2 != 0 { tail } else { Place::FIRST };
        return verify_copies(&copies(&mut script), tail);
    }
    let batches = written(&mut script);
    let Some((address, mut bytes)) = batches.into_iter().next_back() else { return Reached::Refused };
    edits::edit(&mut script, &mut bytes);
    if shape & 2 != 0 {
        seal::batch(&mut bytes);
    }
    verify_batch(&bytes, address)
}

/// Inputs to begin with.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let ten = [0, 10, 1, 2, 0x13, 0x23, 0x31, 7, 1, 0x12, 0x22, 3];
    let whole = |shape: u8| -> Vec<u8> {
        if shape & 1 != 0 { [&[shape, 0, 0][..], &ten[1..]].concat() } else { [&[shape], &ten[1..]].concat() }
    };
    let mut seeds = vec![whole(1), whole(2), whole(3)];
    for at in (16..104u8).step_by(4) {
        seeds.push([&whole(2)[..], &[3, at, 0, at % 24]].concat());
        seeds.push([&whole(1)[..], &[4, at % 10, 3, at, 0, at % 24]].concat());
        seeds.push([&whole(1)[..], &[at % 4, at % 7, 0, at, 0, 3]].concat());
    }
    seeds
}
