//! The checkpoint block: where everything begins.

use dolmen_checksum::crc64;
use dolmen_units::{DiskId, PoolId};
use zerocopy::{FromBytes, IntoBytes};

use crate::Area;
use crate::error::Defect;
use crate::format::{
    BITMAPS_MAX, BLOCK_BYTES, BLOCK_CHECKED_BYTES, BLOCK_MAGIC, FORMAT_VERSION, RawCheckpoint, RawChild,
    RawPointer,
};
use crate::key::{Anchor, Key};
use crate::page::{Child, LEVELS_MAX, Pointer};

/// The root page and its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) child: Child,
    pub(crate) level: u8,
}

/// What a checkpoint block says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) sequence: u64,
    pub(crate) root: Option<Root>,
    pub(crate) entries: u64,
    pub(crate) used_pages: u64,
    pub(crate) bitmaps: Vec<Pointer>,
    pub(crate) anchor: Anchor,
}

/// Where and for whom a block stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockPlace {
    pub(crate) pool: PoolId,
    pub(crate) disk: DiskId,
    pub(crate) area: Area,
    /// Slot 0 or 1.
    pub(crate) slot: u64,
}

impl BlockPlace {
    pub(crate) fn at(&self) -> u64 {
        self.area.checkpoint_at + self.slot * BLOCK_BYTES as u64
    }
}

const NO_POINTER: Pointer = Pointer { page: 0, sequence: 0, checksum: 0 };

impl Checkpoint {
    /// The slot in which it stands.
    pub(crate) fn slot(&self) -> u64 {
        self.sequence % 2
    }

    pub(crate) fn encode(&self, place: &BlockPlace) -> RawCheckpoint {
        let mut bitmaps = [NO_POINTER.to_raw(); BITMAPS_MAX];
        for (to, from) in bitmaps.iter_mut().zip(&self.bitmaps) {
            *to = from.to_raw();
        }
        let none = Child { key: Key::MIN, at: NO_POINTER };
        let mut raw = RawCheckpoint {
            magic: BLOCK_MAGIC,
            version: FORMAT_VERSION.into(),
            length: u32::try_from(BLOCK_BYTES).unwrap_or(0).into(),
            pool: place.pool.0,
            disk: place.disk.0,
            at: place.at().into(),
            sequence: self.sequence.into(),
            pages_at: place.area.pages_at.into(),
            pages_length: place.area.pages_length.into(),
            root: self.root.map_or(none, |root| root.child).to_raw(),
            entry_count: self.entries.into(),
            used_pages: self.used_pages.into(),
            height: self.root.map_or(0, |root| u16::from(root.level) + 1).into(),
            bitmap_count: u16::try_from(self.bitmaps.len()).unwrap_or(u16::MAX).into(),
            reserved: [0; 4],
            anchor: self.anchor.0,
            bitmaps,
            reserved_tail: [0; 32],
            checksum: 0.into(),
        };
        raw.checksum = crc64(raw.as_bytes().get(..BLOCK_CHECKED_BYTES).unwrap_or_default()).into();
        raw
    }

    /// A block as it was read; `None` when the slot was never written.
    pub(crate) fn parse(bytes: &[u8], place: &BlockPlace) -> Result<Option<Self>, Defect> {
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let raw = RawCheckpoint::ref_from_bytes(bytes).map_err(|_| Defect::Magic)?;
        check_frame(raw, place)?;
        let root = parse_root(&raw.root, raw.height.get())?;
        let count = usize::from(raw.bitmap_count.get());
        let (used, spare) = raw.bitmaps.split_at_checked(count).ok_or(Defect::Entries { entry: count })?;
        if spare.iter().any(|spare| Pointer::from_raw(spare) != NO_POINTER) {
            return Err(Defect::Reserved);
        }
        Ok(Some(Self {
            sequence: raw.sequence.get(),
            root,
            entries: raw.entry_count.get(),
            used_pages: raw.used_pages.get(),
            bitmaps: used.iter().map(|raw: &RawPointer| Pointer::from_raw(raw)).collect(),
            anchor: Anchor(raw.anchor),
        }))
    }
}

fn parse_root(raw: &RawChild, height: u16) -> Result<Option<Root>, Defect> {
    let child = Child::from_raw(raw);
    let Some(level) = height.checked_sub(1) else {
        let empty = child.at == NO_POINTER && child.key == Key::MIN;
        return if empty { Ok(None) } else { Err(Defect::Reserved) };
    };
    match u8::try_from(level) {
        Ok(level) if usize::from(level) < LEVELS_MAX => Ok(Some(Root { child, level })),
        _ => Err(Defect::Entries { entry: usize::from(height) }),
    }
}

fn check_frame(raw: &RawCheckpoint, place: &BlockPlace) -> Result<(), Defect> {
    if raw.magic != BLOCK_MAGIC {
        return Err(Defect::Magic);
    }
    let found = crc64(raw.as_bytes().get(..BLOCK_CHECKED_BYTES).unwrap_or_default());
    if found != raw.checksum.get() {
        return Err(Defect::Checksum { found, expected: raw.checksum.get() });
    }
    if raw.version.get() != FORMAT_VERSION {
        return Err(Defect::Version { found: raw.version.get(), supported: FORMAT_VERSION });
    }
    if raw.pool != place.pool.0 {
        return Err(Defect::Pool { found: PoolId(raw.pool) });
    }
    if raw.disk != place.disk.0 {
        return Err(Defect::Disk { found: DiskId(raw.disk) });
    }
    if raw.at.get() != place.at() || raw.sequence.get() % 2 != place.slot {
        return Err(Defect::Place { found: raw.at.get(), expected: place.at() });
    }
    if (raw.pages_at.get(), raw.pages_length.get()) != (place.area.pages_at, place.area.pages_length) {
        return Err(Defect::Area {
            found_at: raw.pages_at.get(),
            found_length: raw.pages_length.get(),
            expected_at: place.area.pages_at,
            expected_length: place.area.pages_length,
        });
    }
    let length = usize::try_from(raw.length.get()).unwrap_or(0);
    if length != BLOCK_BYTES || raw.reserved != [0; 4] || raw.reserved_tail != [0; 32] {
        return Err(Defect::Reserved);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn place() -> BlockPlace {
        let area = Area { checkpoint_at: 1 << 20, pages_at: 2 << 20, pages_length: 8 << 20 };
        BlockPlace { pool: PoolId([1; 16]), disk: DiskId([2; 16]), area, slot: 1 }
    }

    fn sample() -> Checkpoint {
        let at = Pointer { page: 3, sequence: 7, checksum: 9 };
        let root = Some(Root { child: Child { key: Key([5; 24]), at }, level: 2 });
        Checkpoint {
            sequence: 7,
            root,
            entries: 4,
            used_pages: 6,
            bitmaps: vec![at],
            anchor: Anchor([3; 64]),
        }
    }

    proptest! {
        #[test]
        fn a_block_reads_back_and_no_flipped_bit_is_believed(bit in 0usize..BLOCK_BYTES * 8) {
            let raw = sample().encode(&place());
            prop_assert_eq!(Checkpoint::parse(raw.as_bytes(), &place()), Ok(Some(sample())));
            let mut bad = raw.as_bytes().to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Checkpoint::parse(&bad, &place()).is_err());
        }
    }

    #[test]
    fn a_block_of_another_place_pool_disk_or_area_is_named() {
        let raw = sample().encode(&place());
        let parse = |place: BlockPlace| Checkpoint::parse(raw.as_bytes(), &place).unwrap_err();
        assert!(matches!(parse(BlockPlace { slot: 0, ..place() }), Defect::Place { .. }));
        assert!(matches!(parse(BlockPlace { pool: PoolId([0; 16]), ..place() }), Defect::Pool { .. }));
        assert!(matches!(parse(BlockPlace { disk: DiskId([0; 16]), ..place() }), Defect::Disk { .. }));
        let area = Area { pages_length: 1, ..place().area };
        assert!(matches!(parse(BlockPlace { area, ..place() }), Defect::Area { .. }));
        assert_eq!(Checkpoint::parse(&[0; BLOCK_BYTES], &place()), Ok(None));
    }
}
