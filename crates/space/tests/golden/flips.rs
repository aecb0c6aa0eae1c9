//! Bits that turn on the disks of an image: what of it may be lost, and that nothing wrong is believed.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::rc::Rc;

use dolmen_pool::OpenMode;
use dolmen_sim::Random;
use dolmen_space::{Progress, Spaces};
use dolmen_units::SpaceId;

use super::content::Content;
use super::places::{Place, Structure, places};
use super::read::{Report, read_all};
use super::{BLOCK, Golden};
use crate::harness::Lab;

/// Numbers of hidden spaces begin behind this.
const HIDDEN: u64 = u64::MAX - 255;

/// A bit of a disk.
#[derive(Debug, Clone)]
pub struct Flip {
    pub place: Place,
    pub byte: usize,
    pub bit: u8,
}

impl Golden {
    /// What stands where, by structure.
    pub fn structures(&self) -> BTreeMap<Structure, Vec<Place>> {
        let bench = self.bench(3);
        let golden = self.clone();
        let found = Rc::new(std::cell::RefCell::new(Vec::new()));
        let tell = Rc::clone(&found);
        bench
            .run(async move |lab| {
                let spaces = lab.open_as(OpenMode::Read).await?;
                *tell.borrow_mut() = places(&golden, &spaces).await?;
                Ok(())
            })
            .unwrap();
        let mut structures: BTreeMap<Structure, Vec<Place>> = BTreeMap::new();
        for place in found.take() {
            structures.entry(place.structure).or_default().push(place);
        }
        structures
    }

    /// The image with one bit turned.
    pub fn with(&self, flip: &Flip) -> Self {
        let mut flipped = self.clone();
        let image = &mut flipped.disks[flip.place.disk].image;
        let mut block = vec![0; BLOCK];
        image.read(flip.place.at, &mut block);
        block[flip.byte] ^= 1 << flip.bit;
        image.write(flip.place.at, &block);
        flipped
    }
}

/// A bit somewhere in a place of a structure.
pub fn draw(places: &[Place], random: &mut Random) -> Flip {
    let place = places[random.index(places.len())].clone();
    Flip { place, byte: random.index(BLOCK), bit: random.below(8) as u8 }
}

/// Opens what is left and reads all of it, verifies it, and reads it again: nothing wrong is ever read, and nothing is lost
/// but what had no other copy. What was lost.
pub async fn judge(lab: Lab, content: Content, flip: Flip) -> Result<usize, Box<dyn Error>> {
    let spaces = lab.open().await?;
    let may_be_lost = MayBeLost::of(&spaces, &content, &flip.place)?;
    let first = read_all(&spaces, &content).await?;
    may_be_lost.judge(&first)?;
    spaces.verify(&Progress::default()).await?;
    let verified = read_all(&spaces, &content).await?;
    may_be_lost.judge(&verified)?;
    if let Some(block) = verified.errors.difference(&first.errors).next() {
        return Err(
            format!("{block:?} could be read before everything was verified, and not behind that").into()
        );
    }
    spaces.close().await?;
    Ok(verified.errors.len())
}

/// What may be lost with a place, by number of the space.
struct MayBeLost {
    blocks: BTreeSet<(u8, u64)>,
    /// Blocks of a write cache: whose they are is not known here, but only spaces with parity have any.
    cached: usize,
    with_parity: BTreeSet<u8>,
}

impl MayBeLost {
    fn of(spaces: &Spaces, content: &Content, place: &Place) -> Result<Self, Box<dyn Error>> {
        let mut numbers: BTreeMap<SpaceId, u8> = BTreeMap::new();
        for space in &content.spaces {
            numbers.insert(spaces.find(&space.name)?.id(), space.number);
        }
        let is_hidden = |id: &SpaceId| id.0 > HIDDEN;
        let of_cache = place.at_stake.iter().filter(|(id, _)| is_hidden(id));
        let of_spaces = place.at_stake.iter().filter_map(|(id, blocks)| Some((numbers.get(id)?, blocks)));
        let with_parity = content.spaces.iter().filter(|space| space.kind.starts_with("parity"));
        Ok(Self {
            blocks: of_spaces
                .flat_map(|(number, blocks)| blocks.iter().map(|block| (*number, *block)))
                .collect(),
            cached: of_cache.map(|(_, blocks)| blocks.len()).sum(),
            with_parity: with_parity.map(|space| space.number).collect(),
        })
    }

    fn judge(&self, report: &Report) -> Result<(), String> {
        if !report.wrong.is_empty() {
            return Err(format!("something wrong was believed: {:?}", report.wrong));
        }
        let beyond: Vec<_> = report.errors.iter().filter(|block| !self.blocks.contains(block)).collect();
        let is_cached = |block: &&(u8, u64)| self.with_parity.contains(&block.0);
        if beyond.len() <= self.cached && beyond.iter().all(is_cached) {
            return Ok(());
        }
        Err(format!("lost although there was another copy, or parity: {beyond:?}"))
    }
}
