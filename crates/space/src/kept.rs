//! Content of the write cache that is kept in memory until it is in place, so that it need not be read again.
//!
//! Invariant: nothing depends on it. What is kept is compared with the checksum of its mapping, and what is not is read.

use std::cell::RefCell;
use std::collections::BTreeMap;

use dolmen_buffer::{Arena, ArenaConfig, Buffer};
use dolmen_checksum::crc32c;

use crate::layout::BLOCK;
use crate::record::Place;

/// Blocks by their place in the cache.
pub(crate) struct Kept {
    memory: Arena,
    blocks: RefCell<BTreeMap<(u32, u32), Buffer>>,
}

impl Kept {
    /// With room for so many blocks.
    pub(crate) fn new(blocks: usize) -> Self {
        let config = ArenaConfig { small_count: blocks, medium_count: 0, large_count: 0 };
        Self { memory: Arena::new(config), blocks: RefCell::default() }
    }

    /// Keeps blocks that follow each other, as many of them as there is room for.
    pub(crate) fn put(&self, place: Place, data: &[u8]) {
        let mut blocks = self.blocks.borrow_mut();
        for (number, bytes) in (0..).zip(data.chunks_exact(BLOCK)) {
            let at = place.plus(number);
            blocks.remove(&(at.index, at.block));
            let Some(mut memory) = self.memory.try_take(BLOCK) else { return };
            memory.copy_from_slice(bytes);
            blocks.insert((at.index, at.block), memory);
        }
    }

    /// Copies what is kept of a place, if that has the checksum.
    pub(crate) fn copy(&self, place: Place, checksum: u32, into: &mut [u8]) -> bool {
        let blocks = self.blocks.borrow();
        let found = blocks.get(&(place.index, place.block)).filter(|bytes| crc32c(bytes) == checksum);
        found.inspect(|bytes| into.copy_from_slice(bytes)).is_some()
    }

    /// Forgets a place.
    pub(crate) fn forget(&self, place: Place) {
        self.blocks.borrow_mut().remove(&(place.index, place.block));
    }
}
