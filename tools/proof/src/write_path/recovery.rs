//! Recovery: what counts, what it writes, and what is read afterwards.

use std::collections::BTreeMap;

use super::{Disks, Entry, Kind, Mutant, Place, Steps, Value, World, X, Y};
use crate::media::Step;
use crate::walk::{Content, Mask, Protocol, Read, Recovered, Span};

/// All live logs as one, by place.
struct Log {
    records: BTreeMap<u8, Value>,
    tail: u8,
    durable: u8,
    /// Below this an earlier recovery has said which records are missing for ever.
    recovered: u8,
}

impl Log {
    /// Takes what the newest epoch's spans accept: the first epoch's records before `span`, the second's from
    /// there on.
    fn read(world: World, media: &Disks, live: Mask, span: Span) -> Self {
        let tails = world.disks_of(live).filter_map(|disk| match media.read(disk, Place::Tail)?[0] {
            Value::Tail(tail) => Some(tail),
            _ => None,
        });
        let tail = tails.max().unwrap_or(0);
        let mut records = BTreeMap::new();
        for disk in world.disks_of(live) {
            for address in media.addresses(disk) {
                let Place::Log { lsn, epoch } = address else { continue };
                let value = media.read(disk, address).unwrap()[0];
                let is_accepted =
                    world.mutant == Some(Mutant::SpansIgnored) || (epoch == 2) == (lsn >= span.second);
                if is_accepted && lsn > tail && value != Value::Flipped {
                    records.insert(lsn, value);
                }
            }
        }
        let marks = records.values().filter_map(|value| match value {
            Value::Mark { durable } | Value::Record { mark: durable, .. } => Some(*durable),
            _ => None,
        });
        let durable = marks.max().unwrap_or(0);
        let recovered = if span == Span::FIRST_ONLY { 0 } else { span.second };
        Self { records, tail, durable, recovered }
    }

    /// The last place below the mark whose record no log holds. What it settled is unknown, and with it
    /// whatever was durable before.
    fn hole(&self) -> Option<u8> {
        (self.recovered.max(self.tail + 1)..=self.durable).rfind(|lsn| !self.records.contains_key(lsn))
    }

    fn announces(&self, page: u8) -> bool {
        self.records.values().any(|value| *value == Value::Announce { version: page })
    }

    /// Entries that records give to a block, oldest first, and whether they are durable; none from before a hole.
    fn entries(&self, of: u8) -> impl Iterator<Item = (bool, Entry, Kind)> {
        let hole = self.hole().unwrap_or(0);
        self.records.iter().filter(move |(lsn, _)| **lsn > hole).filter_map(move |(lsn, value)| match value {
            Value::Record { block, entry, kind, .. } if *block == of => {
                Some((*lsn <= self.durable, *entry, *kind))
            }
            _ => None,
        })
    }
}

/// The table entries: from the newest page that any live copy has whole; damaged when a newer one may be lost.
fn table(world: World, media: &Disks, live: Mask, log: &Log) -> [Entry; 2] {
    let mut newest = (0, [Entry::Damaged; 2]);
    let slot = |disk, slot| {
        let parts = media.read(disk, Place::Page { slot })?;
        Some(if parts[0] == parts[1] { parts[0] } else { Value::Flipped })
    };
    for value in world.disks_of(live).flat_map(|disk| [slot(disk, 0), slot(disk, 1)]) {
        if let Some(Value::Page { version, entries }) = value
            && version > newest.0
        {
            newest = (version, entries);
        }
    }
    // The other slot holds the version before or the one behind. If no copy can tell which, and no write-back
    // of the one behind was announced, the newest table may be the one that is lost.
    let others: Vec<_> = world.disks_of(live).filter_map(|disk| slot(disk, (newest.0 + 1) % 2)).collect();
    let is_unreadable = !others.is_empty() && others.iter().all(|value| *value == Value::Flipped);
    if is_unreadable && !log.announces(newest.0 + 1) {
        return [Entry::Damaged; 2];
    }
    newest.1
}

/// The block as a disk returns it.
fn stored(world: World, media: &Disks, disk: usize, block: u8) -> Option<Content> {
    let parts = media.read(disk, world.block(block))?;
    let half = |index: usize| match parts[index.min(parts.len() - 1)] {
        Value::Content(content) => Some(content[index]),
        _ => None,
    };
    Some([half(0)?, half(1)?])
}

/// Reads a block by its entry: any copy that verifies.
fn verified(world: World, media: &Disks, live: Mask, block: u8, entry: Entry) -> Option<Content> {
    match entry {
        Entry::Never => Some([0; 2]),
        Entry::Damaged => None,
        Entry::Valid(crc) => world
            .disks_of(live)
            .find_map(|disk| stored(world, media, disk, block).filter(|found| *found == crc)),
    }
}

/// Recovers with the `live` disks, all of which belong to the newest epoch.
pub(super) fn recover(world: World, media: &Disks, live: Mask, span: Span) -> Recovered<World> {
    let log = Log::read(world, media, live, span);
    let mut entries = table(world, media, live, &log);
    if log.hole().is_some() {
        entries = [Entry::Damaged; 2];
    }
    let mut candidates = vec![entries[0]];
    let mut has_intent = false;
    for (is_durable, entry, kind) in log.entries(X) {
        if is_durable {
            candidates.clear();
        }
        candidates.push(entry);
        has_intent |= !is_durable && kind == Kind::Intent;
    }
    let best =
        candidates.iter().rev().find_map(|entry| Some((*entry, verified(world, media, live, X, *entry)?)));
    // Unverified content may be older than anything that was flushed, so it is not for a block whose settled entry is lost.
    let may_be_unverified = has_intent && candidates.first() != Some(&Entry::Damaged);
    let unverified = || world.disks_of(live).find_map(|disk| stored(world, media, disk, X));
    let (x, entry) = match best {
        Some((entry, content)) => (Read::Content(content), entry),
        None => match unverified().filter(|_| may_be_unverified) {
            Some(content) => (Read::Unverified(content), Entry::Valid(content)),
            None => (Read::Error, Entry::Damaged),
        },
    };
    let y = verified(world, media, live, Y, entries[1]).map_or(Read::Error, Read::Content);
    let (second, steps) = decide(world, media, live, &log, entry);
    Recovered { reads: vec![x, y], span: Span { second }, steps }
}

/// Gives every log what the others have, and the decided content to every copy; then records the decision, in the epoch
/// that comes into force with the last step, and settles it.
fn decide(world: World, media: &Disks, live: Mask, log: &Log, entry: Entry) -> (u8, Steps) {
    let mut steps = Steps::new();
    for (lsn, value) in &log.records {
        let address = Place::Log { lsn: *lsn, epoch: 1 };
        let lacking = world.disks_of(live).filter(|disk| media.read(*disk, address).is_none());
        steps.extend(lacking.map(|disk| Step::Write { disk, address, value: *value }));
    }
    steps.extend([Step::Wait, Step::Flush]);
    if let Entry::Valid(content) = entry {
        for disk in world.disks_of(live).filter(|disk| stored(world, media, *disk, X) != Some(content)) {
            steps.push(Step::Write { disk, address: world.block(X), value: Value::Content(content) });
        }
    }
    steps.extend([Step::Wait, Step::Flush]);
    let last = log.records.keys().next_back().copied().unwrap_or(0).max(log.tail).max(log.durable);
    let decision = Value::Record { block: X, entry, kind: Kind::Plain, mark: log.durable };
    for (lsn, value) in [(last + 1, decision), (last + 2, Value::Mark { durable: last + 1 })] {
        for disk in world.disks_of(live) {
            steps.push(Step::WriteThrough { disk, address: Place::Log { lsn, epoch: 2 }, value });
        }
        steps.push(Step::Wait);
    }
    (last + 1, steps)
}
