//! What each block of a space may hold: an array of sets.
//!
//! | event | what a block may hold now | what a power cut may leave of it |
//! |---|---|---|
//! | a write begins | as before, or the new content | as before, or the new content |
//! | it is acknowledged | the new content | as when it began |
//! | a durable write is acknowledged | the new content | the new content |
//! | a flush is acknowledged | as before | what it holds now |
//! | the engine dies | as before | as before |
//! | power fails | what that may leave | the same |
//! | it is read | what was read | as before |

use std::collections::BTreeSet;

use crate::content::{Read, Tag};

/// Content, by the number of its write; 0 is zeros.
pub(super) type Fill = u16;

#[derive(Debug, Clone, Default)]
struct Block {
    now: BTreeSet<Fill>,
    after_cut: BTreeSet<Fill>,
}

/// A space as it should be.
#[derive(Debug, Clone)]
pub(super) struct Oracle {
    /// What tells its content from that of others.
    number: u8,
    blocks: Vec<Block>,
}

impl Oracle {
    /// A space of so many blocks, never written.
    pub(super) fn new(number: u8, blocks: u32) -> Self {
        let zeros = BTreeSet::from([0]);
        let block = Block { now: zeros.clone(), after_cut: zeros };
        Self { number, blocks: vec![block; blocks as usize] }
    }

    /// Its blocks.
    pub(super) fn size(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// It has so many blocks from now on; new ones were never written.
    pub(super) fn resize(&mut self, blocks: u32) {
        let zeros = BTreeSet::from([0]);
        self.blocks.resize(blocks as usize, Block { now: zeros.clone(), after_cut: zeros });
    }

    fn range(&mut self, first: u32, count: u32) -> impl Iterator<Item = &mut Block> {
        self.blocks.iter_mut().skip(first as usize).take(count as usize)
    }

    pub(super) fn write_begins(&mut self, first: u32, count: u32, fill: Fill) {
        for block in self.range(first, count) {
            block.now.insert(fill);
            block.after_cut.insert(fill);
        }
    }

    pub(super) fn write_ends(&mut self, first: u32, count: u32, fill: Fill, is_durable: bool) {
        for block in self.range(first, count) {
            block.now = BTreeSet::from([fill]);
            if is_durable {
                block.after_cut = BTreeSet::from([fill]);
            }
        }
    }

    pub(super) fn flush_ends(&mut self) {
        for block in &mut self.blocks {
            block.after_cut.clone_from(&block.now);
        }
    }

    pub(super) fn power_fails(&mut self) {
        for block in &mut self.blocks {
            block.now.clone_from(&block.after_cut);
        }
    }

    /// A block was read: whether it may be that.
    pub(super) fn is_read(&mut self, block: u32, read: Read) -> Result<(), String> {
        let fill = match read {
            Read::Zeros => Some(0),
            Read::Content(Tag { space, block: of, fill }) => {
                (space == self.number && of == block).then_some(fill)
            }
            Read::Other => None,
        };
        let Some(may) = self.blocks.get_mut(block as usize) else {
            return Err(format!("block {block} is behind the end"));
        };
        match fill.filter(|fill| may.now.contains(fill)) {
            Some(fill) => {
                may.now = BTreeSet::from([fill]);
                Ok(())
            }
            None => Err(format!(
                "block {block} of space {} is {read:?} instead of one of {:?}",
                self.number, may.now
            )),
        }
    }
}
