//! What two copies of a log say, by `docs/format/journal.md`: a second reader, slow and plain, that the engine's is compared with.

use std::collections::BTreeMap;

use dolmen_checksum::crc64;
use dolmen_journal::Place;

use crate::log::{POOL, RING, owners};
use crate::seal;

/// A record: its LSN, kind and body.
pub(crate) type Content = (u64, u8, Vec<u8>);

/// What a log says.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// Records in their order, lists of holes included or not as the engine has them: without.
    pub(crate) records: Vec<Content>,
    /// LSNs that no batch has: first and last of each stretch.
    pub(crate) holes: Vec<(u64, u64)>,
    /// The durable mark.
    pub(crate) durable_mark: u64,
    /// Whether something is missing that must not be.
    pub(crate) is_damaged: bool,
    /// Whether two batches that count have one LSN and differ.
    pub(crate) has_conflict: bool,
    /// Whether a batch that would count is of a later version.
    pub(crate) has_later_version: bool,
}

/// A batch that is whole.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Batch {
    lsn: u64,
    position: u64,
    length: u64,
    durable_mark: u64,
    durable_before: u64,
    is_of_this_version: bool,
    records: Vec<(u8, Vec<u8>)>,
    bytes: Vec<u8>,
}

/// The batch at an address, whatever its LSN: whole, or of another version.
fn batch_at(copy: &[u8], address: u64) -> Option<Batch> {
    let at = address as usize;
    let header = &copy[at..at + 128];
    let field = |place: usize| seal::number(header, place, 8);
    let (length, used) = (seal::number(header, 80, 4), seal::number(header, 84, 4));
    let (position, end) = (field(64), RING.at + RING.length);
    let is_placed = header.starts_with(b"DOLMNLOG")
        && header[24..40] == POOL.0
        && field(72) == address
        && RING.at + position % RING.length == address
        && length.is_multiple_of(4096)
        && length <= RING.batch_bytes_max()
        && address + length <= end
        && position.checked_add(length).is_some()
        && used <= length
        && used >= 128;
    if !is_placed {
        return None;
    }
    let bytes = copy[at..at + length as usize].to_vec();
    let mut bare = bytes.clone();
    seal::put(&mut bare, 8, &[0; 8]);
    if crc64(&bare) != seal::number(&bytes, 8, 8) {
        return None;
    }
    let is_of_this_version = header[16..18] == [1, 1];
    let records = records_of(&bytes[128..used as usize]);
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let is_sound = is_zero(&header[18..20]) && is_zero(&header[104..128]) && is_zero(&bytes[used as usize..]);
    let count = seal::number(header, 20, 4) as usize;
    let records = records.filter(|records| is_sound && records.len() == count);
    if is_of_this_version && records.is_none() {
        return None;
    }
    Some(Batch {
        lsn: field(56),
        position,
        length,
        durable_mark: field(88),
        durable_before: field(96),
        is_of_this_version,
        records: records.unwrap_or_default(),
        bytes,
    })
}

fn records_of(mut bytes: &[u8]) -> Option<Vec<(u8, Vec<u8>)>> {
    let mut records = Vec::new();
    while !bytes.is_empty() {
        let header = bytes.get(..8)?;
        let length = seal::number(header, 4, 4) as usize;
        let body = bytes.get(8..8 + length)?;
        let padding = bytes.get(8 + length..8 + length.next_multiple_of(8))?;
        let is_list = header[0] != 0 || length.is_multiple_of(16);
        if !is_list || header[1..4] != [0; 3] || padding.iter().any(|byte| *byte != 0) {
            return None;
        }
        records.push((header[0], body.to_vec()));
        bytes = &bytes[8 + length.next_multiple_of(8)..];
    }
    Some(records)
}

/// Whether a batch counts: not before the tail, within a lap of it, and of the epoch that owned its LSN.
fn counts(batch: &Batch, tail: Place) -> bool {
    let owner = owners().into_iter().rev().find(|owner| owner.first.0 <= batch.lsn);
    let of = |place: usize| seal::number(&batch.bytes, place, 8);
    let is_owned = owner.is_some_and(|owner| (owner.epoch.number.0, owner.epoch.nonce) == (of(40), of(48)));
    is_owned
        && (tail.lsn.0..u64::MAX).contains(&batch.lsn)
        && batch.position >= tail.position
        && batch.position + batch.length <= tail.position + RING.length
}

/// The LSNs that a batch lists as holes, below its own.
fn listed(batch: &Batch) -> Vec<(u64, u64)> {
    let lists = batch.records.iter().filter(|(kind, _)| *kind == 0);
    lists
        .flat_map(|(_, body)| body.chunks_exact(16))
        .map(|range| (seal::number(range, 0, 8), seal::number(range, 8, 8).min(batch.lsn - 1)))
        .collect()
}

/// Reads two copies from a tail on.
#[must_use]
pub(crate) fn read(copies: &[Vec<u8>; 2], tail: Place) -> Log {
    let mut log = Log::default();
    let mut found: BTreeMap<u64, Batch> = BTreeMap::new();
    for copy in copies {
        let mut address = RING.at;
        while address < RING.at + RING.length {
            let batch = batch_at(copy, address);
            // Inside of a batch that is whole, none begins.
            let is_whole = |batch: &&Batch| batch.is_of_this_version && batch.length > 0;
            address += batch.as_ref().filter(is_whole).map_or(4096, |batch| batch.length);
            let Some(batch) = batch.filter(|batch| counts(batch, tail)) else { continue };
            if !batch.is_of_this_version {
                log.has_later_version = true;
                continue;
            }
            let before = found.entry(batch.lsn).or_insert_with(|| batch.clone());
            log.has_conflict |= before.bytes != batch.bytes;
        }
    }
    let mut kept: Vec<Batch> = Vec::new();
    for batch in found.into_values().rev() {
        let is_listed =
            |above: &Batch| listed(above).iter().any(|(first, last)| (*first..=*last).contains(&batch.lsn));
        let is_covered = |above: &Batch| above.position < batch.position + batch.length;
        if !kept.iter().any(|above| is_listed(above) || is_covered(above)) {
            kept.push(batch);
        }
    }
    kept.reverse();
    conclude(log, &kept, tail)
}

fn conclude(mut log: Log, kept: &[Batch], tail: Place) -> Log {
    log.durable_mark = kept.iter().map(|batch| batch.durable_mark).max().unwrap_or(0);
    let there: Vec<(u64, u64)> = kept.iter().map(|batch| (batch.lsn, batch.lsn)).collect();
    let begun = owners().last().map_or(0, |owner| owner.first.0);
    let stale = there.last().map_or(tail.lsn.0, |(_, last)| last + 1);
    log.holes = gaps(&there, tail.lsn.0, stale.max(begun));
    let mut known: Vec<(u64, u64)> =
        kept.iter().flat_map(listed).filter(|(first, last)| first <= last).collect();
    known.extend(&there);
    known.sort_unstable();
    let is_missing = |lsn: u64| !known.iter().any(|(first, last)| (*first..=*last).contains(&lsn));
    let mut durable = kept.iter().map(|batch| batch.durable_before).filter(|lsn| *lsn >= tail.lsn.0);
    let is_durable_missing = !gaps(&known, tail.lsn.0, log.durable_mark.saturating_add(1)).is_empty();
    log.is_damaged = is_durable_missing || durable.any(is_missing);
    for batch in kept {
        let records = batch.records.iter().filter(|(kind, _)| *kind != 0);
        log.records.extend(records.map(|(kind, body)| (batch.lsn, *kind, body.clone())));
    }
    log
}

/// The stretches from `from` up to `end`, first and last, that are in none of these, which are sorted by their first.
fn gaps(known: &[(u64, u64)], from: u64, end: u64) -> Vec<(u64, u64)> {
    let (mut next, mut gaps) = (from, Vec::new());
    for (first, last) in known.iter().copied().chain([(end, end)]) {
        if first > next && next < end {
            gaps.push((next, first.min(end) - 1));
        }
        next = next.max(last.saturating_add(1));
    }
    gaps
}
