//! Blocks whose content follows from their number and from how often they were written, so that each can be told from
//! every other one and from its own past.

use std::cell::RefCell;

use dolmen_units::BLOCK_BYTES;

use crate::case::scatter;

/// Bytes of a block in memory.
pub(crate) const BLOCK: usize = 4096;
const _: () = assert!(BLOCK as u64 == BLOCK_BYTES, "what is drawn are blocks of the engine");

/// All blocks of a span.
pub(crate) struct Blocks {
    /// How often each was overwritten.
    versions: RefCell<Vec<u32>>,
    /// Those that are being written: two writes of one block at once have no order.
    under_way: RefCell<Vec<u64>>,
}

impl Blocks {
    /// Blocks that were written once each.
    pub(crate) fn new(count: u64) -> Self {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Self { versions: RefCell::new(vec![0; count]), under_way: RefCell::default() }
    }

    pub(crate) fn count(&self) -> u64 {
        self.versions.borrow().len() as u64
    }

    /// The version of a block that was written last.
    pub(crate) fn version(&self, block: u64) -> u32 {
        let versions = self.versions.borrow();
        usize::try_from(block).ok().and_then(|at| versions.get(at).copied()).unwrap_or_default()
    }

    /// Draws a block that nobody is writing, for the write with this number, and the version that it gets.
    pub(crate) fn draw(&self, number: u64) -> (u64, u32) {
        let mut under_way = self.under_way.borrow_mut();
        let count = self.count().max(1);
        let drawn = scatter(number) % count;
        let block = (0..count).map(|step| (drawn + step) % count).find(|block| !under_way.contains(block));
        let block = block.unwrap_or(drawn);
        under_way.push(block);
        (block, self.version(block).wrapping_add(1))
    }

    /// Notes that a block was written.
    pub(crate) fn note_written(&self, block: u64, version: u32) {
        self.under_way.borrow_mut().retain(|other| *other != block);
        let place = usize::try_from(block).unwrap_or(usize::MAX);
        if let Some(known) = self.versions.borrow_mut().get_mut(place) {
            *known = version;
        }
    }
}

/// Makes up the content of blocks that follow each other, each of which has the same version.
pub(crate) fn make_up(into: &mut [u8], first: u64, version: u32) {
    for (block, bytes) in (first..).zip(into.chunks_exact_mut(BLOCK)) {
        words(block, version).zip(bytes.chunks_exact_mut(8)).for_each(|(word, to)| to.copy_from_slice(&word));
    }
}

/// Whether a block has the content of a version.
pub(crate) fn is_version(bytes: &[u8], block: u64, version: u32) -> bool {
    bytes.len() == BLOCK
        && words(block, version).zip(bytes.chunks_exact(8)).all(|(word, found)| word == found)
}

/// The content of a block, eight bytes at a time (xorshift, from a seed that no other block and version has).
fn words(block: u64, version: u32) -> impl Iterator<Item = [u8; 8]> {
    let mut state = scatter((u64::from(version) << 40) ^ block) | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_differs_from_its_neighbours_and_from_its_past() {
        let mut bytes = vec![0; 2 * BLOCK];
        make_up(&mut bytes, 7, 3);
        let (seventh, eighth) = bytes.split_at(BLOCK);
        assert!(is_version(seventh, 7, 3) && is_version(eighth, 8, 3));
        assert!(!is_version(seventh, 8, 3) && !is_version(seventh, 7, 2) && !is_version(&bytes, 7, 3));
        let mut turned = seventh.to_vec();
        turned[BLOCK - 1] ^= 1;
        assert!(!is_version(&turned, 7, 3));
    }

    #[test]
    fn nobody_draws_a_block_that_is_being_written() {
        let blocks = Blocks::new(4);
        let mut drawn: Vec<u64> = (0..4).map(|number| blocks.draw(number).0).collect();
        drawn.sort_unstable();
        assert_eq!(drawn, [0, 1, 2, 3]);
        blocks.note_written(2, 1);
        assert_eq!(blocks.draw(9), (2, 2));
    }
}
