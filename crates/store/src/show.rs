//! Checkpoint blocks and pages by themselves, for whoever prints them or looks for what is left of a map (docs/design/0019).
//!
//! In a map that is whole a block and a page count because something else names them. Here nothing does: they are sound by
//! their own word, and whether they are of the map that counts, the caller has to tell.

use dolmen_units::{DiskId, PoolId};
use zerocopy::FromBytes;

use crate::block::{BlockPlace, Checkpoint};
use crate::error::Defect;
use crate::format::{
    BLOCK_BYTES, BLOCK_MAGIC, KIND_BITMAP, PAGE_BYTES, PAGE_MAGIC, RawCheckpoint, RawPageHeader,
};
use crate::key::{Anchor, Key};
use crate::page::{Expect, Page, Pointer, Shape};
use crate::replica::Area;

/// Bytes of a checkpoint block.
pub const CHECKPOINT_BLOCK_BYTES: usize = BLOCK_BYTES;

/// A page as its parent names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageName {
    /// Its number.
    pub page: u64,
    /// The checkpoint that wrote it.
    pub sequence: u64,
    /// Its checksum.
    pub checksum: u64,
}

impl From<Pointer> for PageName {
    fn from(at: Pointer) -> Self {
        Self { page: at.page, sequence: at.sequence, checksum: at.checksum }
    }
}

/// What a checkpoint block says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointBlock {
    /// The pool.
    pub pool: PoolId,
    /// The disk.
    pub disk: DiskId,
    /// The address for which it was written.
    pub at: u64,
    /// Where it says that slots and pages are.
    pub area: Area,
    /// Counts the checkpoints.
    pub sequence: u64,
    /// The root of the tree and its level; none of an empty map.
    pub root: Option<(PageName, u8)>,
    /// Keys in the tree.
    pub entries: u64,
    /// Pages in use.
    pub used_pages: u64,
    /// The pages that say which are in use.
    pub bitmaps: Vec<PageName>,
    /// What the caller kept with it.
    pub anchor: Anchor,
}

impl CheckpointBlock {
    /// Whether a block begins as one does.
    #[must_use]
    pub fn is_likely(block: &[u8]) -> bool {
        block.starts_with(&BLOCK_MAGIC)
    }

    /// The block in these bytes, taken by its own word.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, Defect> {
        let raw = RawCheckpoint::ref_from_bytes(bytes).map_err(|_| Defect::Magic)?;
        let slot = raw.sequence.get() % 2;
        let place = Defect::Place { found: raw.at.get(), expected: slot * BLOCK_BYTES as u64 };
        let area = Area {
            checkpoint_at: raw.at.get().checked_sub(slot * BLOCK_BYTES as u64).ok_or(place)?,
            pages_at: raw.pages_at.get(),
            pages_length: raw.pages_length.get(),
        };
        let (pool, disk) = (PoolId(raw.pool), DiskId(raw.disk));
        let parsed = Checkpoint::parse(bytes, &BlockPlace { pool, disk, area, slot })?;
        let Checkpoint { sequence, root, entries, used_pages, bitmaps, anchor } =
            parsed.ok_or(Defect::Magic)?;
        let root = root.map(|root| (root.child.at.into(), root.level));
        let bitmaps = bitmaps.into_iter().map(PageName::from).collect();
        Ok(Self { pool, disk, at: raw.at.get(), area, sequence, root, entries, used_pages, bitmaps, anchor })
    }
}

/// What a page holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageContent {
    /// Keys and their values.
    Leaf(Vec<(Key, Vec<u8>)>),
    /// First keys below children, and the children.
    Inner(Vec<(Key, PageName)>),
    /// Which part of the bits, and how many pages it calls used.
    Bitmap {
        /// Which part.
        index: u16,
        /// Pages in use.
        used: u64,
    },
}

/// A page of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapPage {
    /// The pool.
    pub pool: PoolId,
    /// What it calls itself.
    pub name: PageName,
    /// Distance from the leaves.
    pub level: u8,
    /// What it holds.
    pub content: PageContent,
}

impl MapPage {
    /// Whether a page begins as one does.
    #[must_use]
    pub fn is_likely(bytes: &[u8]) -> bool {
        bytes.starts_with(&PAGE_MAGIC)
    }

    /// The page in these bytes, taken by its own word.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<Self, Defect> {
        let bytes = bytes.get(..PAGE_BYTES).ok_or(Defect::Magic)?;
        let (raw, _) = RawPageHeader::ref_from_prefix(bytes).map_err(|_| Defect::Magic)?;
        let at = Pointer { page: raw.page.get(), sequence: raw.sequence.get(), checksum: raw.checksum.get() };
        let shape = match raw.kind {
            KIND_BITMAP => Shape::Bitmap { index: raw.count.get() },
            _ => Shape::Tree { level: raw.level },
        };
        let pool = PoolId(raw.pool);
        let page = Page::parse(bytes, &Expect { pool, at, shape, key: None })?;
        let content = match shape {
            Shape::Bitmap { index } => {
                let used = page.body().iter().map(|byte| u64::from(byte.count_ones())).sum();
                PageContent::Bitmap { index, used }
            }
            Shape::Tree { level: 0 } => {
                let entries = (0..page.count()).filter_map(|entry| page.entry(entry));
                PageContent::Leaf(entries.map(|(key, value)| (key, value.to_vec())).collect())
            }
            Shape::Tree { .. } => {
                let children = (0..page.count()).filter_map(|child| page.child(child));
                PageContent::Inner(children.map(|child| (child.key, child.at.into())).collect())
            }
        };
        Ok(Self { pool, name: at.into(), level: page.level(), content })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::UnplacedPage;
    use proptest::prelude::*;

    #[test]
    fn a_page_shows_what_was_put_into_it() {
        let value: &[u8] = b"a value";
        let page = UnplacedPage::leaf([(Key([3; 24]), value)].into_iter()).seal(PoolId([1; 16]), 9, 4);
        let shown = MapPage::parse(page.bytes()).unwrap();
        assert_eq!((shown.name.page, shown.name.sequence, shown.level), (9, 4, 0));
        assert_eq!(shown.content, PageContent::Leaf(vec![(Key([3; 24]), value.to_vec())]));
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_shown(mut bytes in proptest::collection::vec(any::<u8>(), 4096), like in 0usize..3) {
            let magic: &[u8] = [&BLOCK_MAGIC[..], &PAGE_MAGIC, &[]][like];
            bytes[..magic.len()].copy_from_slice(magic);
            prop_assert!(CheckpointBlock::parse(&bytes).is_err());
            bytes.resize(PAGE_BYTES, 0);
            prop_assert!(MapPage::parse(&bytes).is_err());
        }
    }
}
