//! Recovery: what counts, what it writes, and what is read afterwards.

use std::collections::BTreeMap;

use super::engine::{NEVER, xor};
use super::{Body, COLUMNS, DATA, Disks, Entries, Entry, Mutant, PARITY, Place, Steps, Value, World};
use crate::media::Step;
use crate::walk::{Content, Mask, Protocol, Read, Recovered, Span};

/// All live logs as one, by number.
struct Log {
    records: BTreeMap<u8, Body>,
    tail: u8,
    /// Pages of this version are there, whether or not their announcement is still in the log.
    written: u8,
    durable: u8,
    /// Below this an earlier recovery has said which records are missing for ever.
    recovered: u8,
}

impl Log {
    /// Takes what the newest epoch's spans accept: the first epoch's records before `span`, the second's from
    /// there on.
    fn read(world: World, media: &Disks, live: Mask, span: Span) -> Self {
        // The map says where the copies are, which is on more disks than any of them.
        let disks: Vec<usize> = world.disks_of(live).collect();
        let tails = disks.iter().filter_map(|disk| match media.read(*disk, Place::Tail)?[0] {
            Value::Tail { up_to, version } => Some((up_to, version)),
            _ => None,
        });
        let (tail, written) = tails.max().unwrap_or((0, 0));
        let (mut records, mut durable) = (BTreeMap::new(), 0);
        for disk in disks {
            for address in media.addresses(disk) {
                let Place::Log { lsn, epoch } = address else { continue };
                let Some(Value::Record { body, mark }) = media.read(disk, address).map(|parts| parts[0])
                else {
                    continue;
                };
                if (epoch == 2) == (lsn >= span.second) && lsn > tail {
                    records.insert(lsn, body);
                    durable = durable.max(mark);
                    if let Body::Mark { durable: mark } = body {
                        durable = durable.max(mark);
                    }
                }
            }
        }
        let recovered = if span == Span::FIRST_ONLY { 0 } else { span.second };
        let written = if world.has(Mutant::AnnouncedForEver) { 0 } else { written };
        Self { records, tail, written, durable, recovered }
    }

    /// The last number below the mark whose record no log holds. What it settled is unknown, and with it
    /// whatever was durable before.
    fn hole(&self) -> Option<u8> {
        (self.recovered.max(self.tail + 1)..=self.durable).rfind(|lsn| !self.records.contains_key(lsn))
    }

    fn announces(&self, page: u8) -> bool {
        page > self.written && self.records.values().any(|body| *body == Body::Announce { version: page })
    }
}

/// A column's entry: from the newest page that any live copy has whole; damaged when a newer one may be lost.
fn table(world: World, media: &Disks, live: Mask, log: &Log, column: usize) -> Entry {
    let disks: Vec<usize> = world.tables(column).filter(|disk| live & (1 << disk) != 0).collect();
    let slot = |disk: usize, slot| {
        let parts = media.read(disk, Place::Page { column, slot })?;
        Some(if parts[0] == parts[1] { parts[0] } else { Value::Flipped })
    };
    let mut newest = (0, Entry::Damaged);
    for value in disks.iter().flat_map(|disk| [slot(*disk, 0), slot(*disk, 1)]) {
        if let Some(Value::Page { version, entry }) = value
            && version > newest.0
        {
            newest = (version, entry);
        }
    }
    // The other slot holds the version before or the one behind. If no copy can tell which, and no write-back
    // of the one behind was announced, the newest table may be the one that is lost.
    let others: Vec<_> = disks.iter().filter_map(|disk| slot(*disk, (newest.0 + 1) % 2)).collect();
    let is_unreadable = !others.is_empty() && others.iter().all(|value| *value == Value::Flipped);
    if is_unreadable && !log.announces(newest.0 + 1) { Entry::Damaged } else { newest.1 }
}

/// The stripe as the log and the tables tell it.
struct Stripe {
    /// What is, or is to be, in place.
    entries: Entries,
    /// The newest content that is in the log alone.
    cached: [Option<Entry>; 2],
    /// What is to be put in place, because nothing says that it is.
    redo: Option<[Option<Content>; COLUMNS]>,
    /// The stripe was written in place, and no flush says that it is there.
    is_open: bool,
}

impl Stripe {
    fn read(world: World, media: &Disks, live: Mask, log: &Log) -> Self {
        let mut entries = [0, 1, 2].map(|column| table(world, media, live, log, column));
        if log.hole().is_some() {
            entries = [Entry::Damaged; COLUMNS];
        }
        let mut cached: [Vec<(u8, Entry)>; 2] = Default::default();
        let mut redo = None;
        let mut is_open = false;
        let hole = log.hole().unwrap_or(0);
        if hole > 0 {
            // What is missing may have been data of either block. A redo record behind it takes older data out of the log
            // and says nothing of that.
            cached = DATA.map(|_| vec![(hole, Entry::Damaged)]);
        }
        for (lsn, body) in log.records.iter().filter(|(lsn, _)| **lsn > hole) {
            match *body {
                Body::Data { column, entry } => cached[column].push((*lsn, entry)),
                Body::Stripe { entries: new } => {
                    is_open = *lsn > log.durable && new[PARITY] != Entry::Never;
                    entries = new;
                    cached = Default::default();
                    redo = None;
                }
                Body::Redo { data, parity, entries: new } => {
                    entries = new;
                    is_open = false;
                    let content = |column: usize| match log.records.get(&data[column]?)? {
                        Body::Data { entry: Entry::Valid(content), .. } => Some(*content),
                        _ => None,
                    };
                    redo = Some((*lsn, [content(0), content(1), parity]));
                    for column in DATA {
                        cached[column].retain(|(lsn, _)| data[column].is_none_or(|up_to| *lsn > up_to));
                    }
                }
                Body::Done { redo: lsn } => redo = redo.filter(|(pending, _)| *pending != lsn),
                Body::Decided { entries: new } => {
                    entries = new;
                    redo = None;
                    is_open = false;
                }
                Body::Mark { .. } | Body::Announce { .. } => {}
            }
        }
        if world.has(Mutant::MarkMeansDone) {
            redo = redo.filter(|(lsn, _)| *lsn > log.durable);
        }
        Self {
            entries,
            cached: cached.map(|cached| cached.last().map(|(_, entry)| *entry)),
            redo: redo.map(|(_, contents)| contents),
            is_open,
        }
    }
}

/// What can be read of the columns' places.
struct Places {
    found: [Option<Content>; COLUMNS],
    is_trusting: bool,
}

impl Places {
    fn read(world: World, media: &Disks, live: Mask) -> Self {
        let of_column = |column: usize| {
            let parts = media.read(column, world.block()).filter(|_| live & (1 << column) != 0)?;
            let half = |index: usize| match parts[index.min(parts.len() - 1)] {
                Value::Content(content) => Some(content[index]),
                _ => None,
            };
            Some([half(0)?, half(1)?])
        };
        Self { found: [0, 1, 2].map(of_column), is_trusting: world.has(Mutant::UnverifiedInputs) }
    }

    /// A column's content as it was found, if that is what its entry says.
    fn verified(&self, entries: &Entries, column: usize) -> Option<Content> {
        let content = entries[column].content()?;
        let is_there = entries[column] == Entry::Never || self.found[column] == Some(content);
        is_there.then_some(content)
    }

    /// The same, or made of the others.
    fn content(&self, entries: &Entries, column: usize) -> Option<Content> {
        let input = |column: usize| match entries[column] {
            Entry::Valid(_) if self.is_trusting => self.found[column],
            _ => self.verified(entries, column),
        };
        self.verified(entries, column).or_else(|| {
            let made = xor(input((column + 1) % COLUMNS)?, input((column + 2) % COLUMNS)?);
            (self.is_trusting || entries[column] == Entry::Valid(made)).then_some(made)
        })
    }
}

/// Recovers with the `live` disks, all of which belong to the newest epoch.
pub(super) fn recover(world: World, media: &Disks, live: Mask, span: Span) -> Recovered<World> {
    let log = Log::read(world, media, live, span);
    let stripe = Stripe::read(world, media, live, &log);
    let mut entries = stripe.entries;
    let mut places = Places::read(world, media, live);
    let found = places.found;
    if let Some(contents) = stripe.redo {
        put_again(world, &mut places, &entries, contents);
    }
    if stripe.is_open {
        close(world, &mut places, &mut entries);
    }
    let in_place = [0, 1, 2].map(|column| places.content(&entries, column));
    let reads = DATA.map(|column| {
        let content = match stripe.cached[column] {
            Some(entry) => entry.content(),
            None => in_place[column],
        };
        content.map_or(Read::Error, Read::Content)
    });
    let mut puts = Steps::new();
    for disk in world.disks_of(live) {
        let Some(content) = in_place[disk].filter(|_| entries[disk] != Entry::Never) else { continue };
        if found[disk] != Some(content) {
            puts.push(Step::Write { disk, address: world.block(), value: Value::Content(content) });
        }
    }
    let (second, steps) = decide(world, media, live, &log, (entries, puts));
    Recovered { reads: reads.into(), span: Span { second }, steps }
}

/// What a redo record says is what is in place, whatever the disks have.
fn put_again(world: World, places: &mut Places, entries: &Entries, contents: [Option<Content>; COLUMNS]) {
    for (found, content) in places.found.iter_mut().zip(contents) {
        *found = content.or(*found);
    }
    if world.has(Mutant::RedoWithoutParity)
        && let [Some(a), Some(b)] =
            DATA.map(|column| places.verified(entries, column).or(places.found[column]))
    {
        places.found[PARITY] = Some(xor(a, b));
    }
}

/// Decides a stripe that was written in place and that no flush has covered: if enough of it is there to make the rest of, it
/// stands; else all of it was never written, parity too.
fn close(world: World, places: &mut Places, entries: &mut Entries) {
    let data = DATA.map(|column| match places.content(entries, column) {
        Some(_) => entries[column],
        None => Entry::Never,
    });
    if world.has(Mutant::StripeInParts) {
        *entries = [data[0], data[1], entries[PARITY]];
    } else if data != [entries[0], entries[1]] {
        *entries = NEVER;
    }
}

/// The disks that are to have the log: where one that had it is away, another takes its place.
///
/// Without, what is put in place would stand against a log that the next loss takes, while the disk that comes back has
/// neither the one nor the other.
fn copies(world: World, live: Mask) -> Vec<usize> {
    let is_live = |disk: &usize| live & (1 << disk) != 0;
    let wanted = world.logs().count();
    let here = world.logs().filter(is_live);
    if world.has(Mutant::CopyNotReplaced) {
        return here.collect();
    }
    let others = world.disks_of(live).filter(|disk| !world.logs().any(|log| log == *disk));
    here.chain(others).take(wanted).collect()
}

/// Gives every log what the others have, puts the stripe in place, then records the decision, in the epoch that comes into
/// force with the last step, and settles it.
fn decide(
    world: World,
    media: &Disks,
    live: Mask,
    log: &Log,
    (entries, puts): (Entries, Steps),
) -> (u8, Steps) {
    let logs = copies(world, live);
    let mut heal = Steps::new();
    if log.tail > 0 {
        let lacking = logs.iter().filter(|disk| media.read(**disk, Place::Tail).is_none());
        let value = Value::Tail { up_to: log.tail, version: log.written };
        heal.extend(lacking.map(|disk| Step::Write { disk: *disk, address: Place::Tail, value }));
    }
    for (lsn, body) in &log.records {
        let address = Place::Log { lsn: *lsn, epoch: 1 };
        let value = Value::Record { body: *body, mark: log.durable };
        let lacking = logs.iter().filter(|disk| media.read(**disk, address).is_none());
        heal.extend(lacking.map(|disk| Step::Write { disk: *disk, address, value }));
    }
    heal.extend([Step::Wait, Step::Flush]);
    let puts = puts.into_iter().chain([Step::Wait, Step::Flush]);
    let mut steps: Steps = match world.has(Mutant::ReplayBeforeHealing) {
        false => heal.into_iter().chain(puts).collect(),
        true => puts.chain(heal).collect(),
    };
    let last = log.records.keys().next_back().copied().unwrap_or(0).max(log.tail).max(log.durable);
    let decided = Body::Decided { entries };
    for (lsn, body) in [(last + 1, decided), (last + 2, Body::Mark { durable: last + 1 })] {
        let (address, value) = (Place::Log { lsn, epoch: 2 }, Value::Record { body, mark: log.durable });
        steps.extend(logs.iter().map(|disk| Step::WriteThrough { disk: *disk, address, value }));
        steps.push(Step::Wait);
    }
    (last + 1, steps)
}
