//! Bits that turn on the disks of an image: what of it may be lost, and that nothing wrong is served.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::rc::Rc;

use dolmen_pool::OpenMode;
use dolmen_sim::{Random, SimDisk};
use dolmen_space::{Integrity, Progress, Spaces, Verification};
use dolmen_units::SpaceId;

use super::content::Content;
use super::places::{Place, places};
use super::read::{Report, read_all};
use super::unused::{Stored, in_flight};
use super::{BLOCK, Disk, Golden};
use crate::harness::{Bench, Lab};

/// The first number of a write cache's hidden space.
const CACHES: u64 = u64::MAX - 255;

/// A bit of a disk.
#[derive(Debug, Clone)]
pub struct BitFlip {
    pub place: Place,
    pub byte: usize,
    pub bit: u8,
    /// Whether it is in a block that no flush had covered.
    pub is_in_flight: bool,
}

impl BitFlip {
    /// Where it is.
    pub fn text(&self) -> String {
        let Place { structure, disk, at, holds, .. } = &self.place;
        let Self { byte, bit, .. } = self;
        format!(
            "bit {bit} of byte {byte} of the block at {at} of disk {disk}, {structure:?}, which holds {holds:?}"
        )
    }
}

impl Golden {
    /// Blocks of spaces, in their places, that the log names and that no flush had covered.
    pub fn in_flight(&self) -> BTreeSet<(SpaceId, u64)> {
        let (bench, golden) = (self.bench(3), self.clone());
        let found = Rc::new(RefCell::new(BTreeSet::new()));
        let report = Rc::clone(&found);
        let looked = bench.run(async move |lab| {
            let spaces = lab.open_as(OpenMode::Read).await?;
            *report.borrow_mut() = in_flight(&golden, &spaces).await?;
            Ok(())
        });
        looked.unwrap();
        found.take()
    }

    /// What stands where.
    pub fn places(&self) -> Vec<Place> {
        let bench = self.bench(3);
        let golden = self.clone();
        let found = Rc::new(RefCell::new(Vec::new()));
        let report = Rc::clone(&found);
        bench
            .run(async move |lab| {
                let spaces = lab.open_as(OpenMode::Read).await?;
                *report.borrow_mut() = places(&golden, &spaces).await?;
                Ok(())
            })
            .unwrap();
        found.take()
    }

    /// The image with one bit turned.
    pub fn with(&self, flip: &BitFlip) -> Self {
        let mut switched = self.clone();
        let image = &mut switched.disks[flip.place.disk].image;
        let mut block = vec![0; BLOCK];
        image.read(flip.place.at, &mut block);
        block[flip.byte] ^= 1 << flip.bit;
        image.write(flip.place.at, &block);
        switched
    }
}

/// A bit somewhere in a place of a structure.
pub fn draw(places: &[Place], random: &mut Random) -> BitFlip {
    let place = places[random.index(places.len())].clone();
    BitFlip { place, byte: random.index(BLOCK), bit: random.below(8) as u8, is_in_flight: false }
}

/// What became of a bit that turned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// It is what it was.
    Healed,
    /// What stood there was rewritten, and reads right.
    Rewritten,
    /// It took something along, which is named.
    Named,
    /// It was in the only copy of what no flush had covered. Nobody can tell that from a write that never came: the block is what it
    /// was before.
    TakenBack,
    /// Nobody needs what stands there, by the documents of the format.
    Unused(&'static str),
}

/// What a verification of all tells, and what cannot be read, by number of the space.
#[derive(Debug, Default, Clone)]
pub struct Findings {
    pub errors: BTreeSet<(u8, u64)>,
    named: BTreeSet<(u8, u64)>,
    older: BTreeSet<(u8, u64)>,
}

/// Opens what is left and reads all of it, verifies it, and reads it again: nothing wrong is ever read, and nothing is lost
/// but what had no other copy, and is named. What lacks something is brought up to date, and all of it verified once more.
pub async fn verify(lab: Lab, content: Content, flip: BitFlip) -> Result<Findings, Box<dyn Error>> {
    let spaces = lab.open().await?;
    let may_be_lost = MayBeLost::of(&spaces, &content, &flip)?;
    let first = read_all(&spaces, &content).await?;
    may_be_lost.verify(&first)?;
    let mut seen = spaces.scrubs().verify(&Progress::default()).await?;
    let verified = read_all(&spaces, &content).await?;
    may_be_lost.verify(&verified)?;
    if let Some(block) = verified.errors.difference(&first.errors).next() {
        return Err(
            format!("{block:?} could be read before everything was verified, and not behind that").into()
        );
    }
    if !spaces.members().stale_rows().await?.is_empty() {
        spaces.members().resync(&Progress::default()).await?;
        seen = spaces.scrubs().verify(&Progress::default()).await?;
    }
    let findings =
        Findings { named: named(&spaces, &content, &seen)?, errors: verified.errors, older: verified.older };
    if let Some(block) = findings.errors.difference(&findings.named).next() {
        return Err(format!("{block:?} is lost, and nobody says so").into());
    }
    spaces.close().await?;
    Ok(findings)
}

/// Blocks that are said to be lost or out of reach.
fn named(
    spaces: &Spaces,
    content: &Content,
    seen: &Verification,
) -> Result<BTreeSet<(u8, u64)>, Box<dyn Error>> {
    let mut named = BTreeSet::new();
    let data_loss_events = spaces.data_loss_events();
    for expected in &content.spaces {
        let space = spaces.find(&expected.name)?;
        let ranges = seen.unreadable().filter(|range| range.space == space.name());
        let ranges = ranges.map(|range| (range.at, range.length.0));
        let data_loss_events = data_loss_events.iter().filter(|data_loss| data_loss.space == space.id());
        for (at, length) in ranges.chain(data_loss_events.map(|data_loss| (data_loss.at, data_loss.length.0)))
        {
            named.extend(
                (at / BLOCK as u64..(at + length) / BLOCK as u64).map(|block| (expected.number, block)),
            );
        }
    }
    Ok(named)
}

/// What became of a bit on the disks that it was left on.
///
/// # Errors
/// Where it is neither healed nor named, and somebody may need what stands there.
pub fn fate(golden: &Golden, flip: &BitFlip, bench: &Bench, findings: &Findings) -> Result<Fate, String> {
    let left = golden.left_on(bench);
    let block = |golden: &Golden| {
        let mut block = vec![0; BLOCK];
        golden.disks[flip.place.disk].image.read(flip.place.at, &mut block);
        block
    };
    let now = block(&left);
    if !findings.older.is_empty() {
        return Ok(Fate::TakenBack);
    }
    if now == block(golden) {
        return Ok(Fate::Healed);
    }
    let halted = now == block(&golden.with(flip));
    if halted && is_named(flip, findings) {
        return Ok(Fate::Named);
    }
    let unused = left.look_again(&flip.place).map_err(|error| error.to_string())?;
    match (halted, unused) {
        (false, _) => Ok(Fate::Rewritten),
        (true, Some(why)) => Ok(Fate::Unused(why)),
        (true, None) => {
            Err("the bit is neither healed nor named, and is not where nobody needs it".to_owned())
        }
    }
}

/// Whether what was lost and named may have been lost by this bit.
fn is_named(flip: &BitFlip, findings: &Findings) -> bool {
    let lost: BTreeSet<u64> = findings.errors.iter().map(|(_, block)| *block).collect();
    flip.place.at_stake.iter().any(|(id, blocks)| match id.0 >= CACHES {
        true => !lost.is_empty(),
        false => !blocks.is_disjoint(&lost),
    })
}

impl Golden {
    /// The disks of a bench as they are now.
    fn left_on(&self, bench: &Bench) -> Self {
        let disk =
            |(disk, golden): (&Rc<SimDisk>, &Disk)| Disk { capacity: golden.capacity, image: disk.truth() };
        Self { disks: bench.disks.iter().zip(&self.disks).map(disk).collect(), content: self.content.clone() }
    }

    /// Opens what a closed pool left, and verifies it where a place is in a slab: no disk has anything that does not match. Why
    /// nobody needs the place, if that is so.
    fn look_again(&self, place: &Place) -> Result<Option<&'static str>, Box<dyn Error>> {
        let bench = self.bench(5);
        let (golden, place) = (self.clone(), place.clone());
        let found = Rc::new(Cell::new(None));
        let report = Rc::clone(&found);
        bench.run(async move |lab| {
            let spaces = lab.open_as(OpenMode::Read).await?;
            let stored = Stored::of(&golden, &spaces).await?;
            report.set(stored.is_unused(place.disk, place.at));
            if !stored.is_of_slabs(place.disk, place.at) {
                return Ok(());
            }
            let seen = spaces.scrubs().verify(&Progress::default()).await?;
            let disks = spaces.pool().disks();
            let bad =
                disks.iter().map(|disk| disk.counters().checksum_errors).sum::<u64>() + seen.header_count;
            if bad > 0 { Err(format!("{bad} blocks that do not match were left").into()) } else { Ok(()) }
        })?;
        Ok(found.get())
    }
}

/// What may be lost with a place, by number of the space.
struct MayBeLost {
    blocks: BTreeSet<(u8, u64)>,
    /// Whether they may be what they were before.
    is_in_flight: bool,
    /// Blocks of a write cache: whose they are is not known here, but only strict spaces have any.
    cached: usize,
    strict: BTreeSet<u8>,
}

impl MayBeLost {
    fn of(spaces: &Spaces, content: &Content, flip: &BitFlip) -> Result<Self, Box<dyn Error>> {
        let place = &flip.place;
        let mut numbers: BTreeMap<SpaceId, u8> = BTreeMap::new();
        let mut strict = BTreeSet::new();
        for expected in &content.spaces {
            let space = spaces.find(&expected.name)?;
            numbers.insert(space.id(), expected.number);
            strict.extend((space.spec().integrity == Integrity::Strict).then_some(expected.number));
        }
        let is_hidden = |id: &SpaceId| id.0 >= CACHES;
        let of_cache = place.at_stake.iter().filter(|(id, _)| is_hidden(id));
        let of_spaces = place.at_stake.iter().filter_map(|(id, blocks)| Some((numbers.get(id)?, blocks)));
        Ok(Self {
            blocks: of_spaces
                .flat_map(|(number, blocks)| blocks.iter().map(|block| (*number, *block)))
                .collect(),
            is_in_flight: flip.is_in_flight,
            cached: of_cache.map(|(_, blocks)| blocks.len()).sum(),
            strict,
        })
    }

    fn verify(&self, report: &Report) -> Result<(), String> {
        if !report.wrong.is_empty() {
            return Err(format!("something wrong was believed: {:?}", report.wrong));
        }
        let is_at_stake = |block: &(u8, u64)| {
            self.blocks.contains(block) || (self.cached > 0 && self.strict.contains(&block.0))
        };
        let may_be_older = self.is_in_flight && report.older.len() <= self.blocks.len() + self.cached;
        if let Some(block) = report.older.iter().find(|block| !may_be_older || !is_at_stake(block)) {
            return Err(format!("something older was believed: {block:?}"));
        }
        let beyond: Vec<_> = report.errors.iter().filter(|block| !self.blocks.contains(block)).collect();
        let is_cached = |block: &&(u8, u64)| self.strict.contains(&block.0);
        if beyond.len() <= self.cached && beyond.iter().all(is_cached) {
            return Ok(());
        }
        Err(format!("lost although there was another copy, or parity: {beyond:?}"))
    }
}
