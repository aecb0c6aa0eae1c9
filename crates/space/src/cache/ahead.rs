//! What a row of the write cache holds comes into memory in large pieces before it is put in place, where it is not kept there
//! anyway.
//!
//! Stripes go to their places in the order of addresses, which is none in the cache: one after another, each block would cost a
//! read of its own.
//!
//! Invariant: nothing depends on it. What was read is what is kept, and counts only with the checksum of its mapping; what
//! could not be read is read again, by the task that needs it, and reported then.

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_buffer::Buffer;

use crate::cache::segments::CacheIndex;
use crate::layout::BLOCK;
use crate::resources::locks::Range;
use crate::row_io::read_hedging::Hedging;
use crate::table::row::Row;
use crate::table::space::Cache;

/// Blocks that are read at once, at most: a frame.
const PIECE_BLOCKS: u32 = 16;
/// Such pieces under way at the same time: others want frames as well.
const DEPTH: usize = 4;

/// Cached blocks that are read ahead of their destage.
#[derive(Clone, Copy)]
pub(crate) struct ReadAhead<'a> {
    cache: &'a Rc<Cache>,
}

impl<'a> ReadAhead<'a> {
    /// Returns the service for a write cache.
    pub(crate) fn of(cache: &'a Rc<Cache>) -> Self {
        Self { cache }
    }
}

impl ReadAhead<'_> {
    /// Brings into memory what a row holds and is not kept there, as far as there is room. Called by whoever puts in place.
    pub(crate) async fn read_ahead(self, at: usize) {
        let Some(row) = self.cache.row_at(at).filter(|row| !self.cache.shared().is_deferred(row)) else {
            return;
        };
        let mut wanted = CacheIndex::of(self.cache).places_held(at);
        wanted.retain(|block| !self.cache.kept.has((&row, *block)));
        let wanted: Vec<u32> = wanted.into_iter().take(self.cache.kept.room()).collect();
        for together in pieces(&wanted).chunks(DEPTH) {
            let read = together.iter().map(|piece| self.read_piece(&row, *piece));
            let read = join_all(read).await;
            // What has died meanwhile has no use, and nobody would forget it.
            let held = CacheIndex::of(self.cache).places_held(at);
            for (piece, content) in together.iter().zip(&read) {
                self.keep_piece(&row, *piece, content, &held);
            }
        }
    }

    /// A piece of a row from one copy, as it lies there; in as many parts as it has on the disk, `None` where one was not had.
    async fn read_piece(self, row: &Rc<Row>, piece: Range) -> Vec<(usize, Option<Buffer>)> {
        let Some((disk, places)) = Hedging::of(&self.cache.space().shared).choose_copy(row, 0, piece) else {
            return Vec::new();
        };
        let parts = places.into_iter().map(|(place, length)| {
            let buffer = self.cache.shared().pool.seams().metadata.try_take(length);
            let read = buffer.map(|buffer| disk.read(place, buffer));
            async move {
                let Some(read) = read else { return (length, None) };
                let (buffer, result) = read.await;
                (length, result.ok().map(|()| buffer))
            }
        });
        join_all(parts).await
    }

    /// Keeps what was read of blocks that are held still.
    fn keep_piece(self, row: &Row, piece: Range, content: &[(usize, Option<Buffer>)], held: &BTreeSet<u32>) {
        let mut first = piece.first;
        for (length, buffer) in content {
            let blocks = buffer.iter().flat_map(|buffer| buffer.chunks_exact(BLOCK));
            let of_held = (first..).zip(blocks).filter(|(block, _)| held.contains(block));
            of_held.for_each(|(block, bytes)| self.cache.kept.put_read((row, block), bytes));
            first += u32::try_from(length / BLOCK).unwrap_or(0);
        }
    }
}

/// Blocks, in ascending order, as pieces that have two of them at least. One that is alone costs a read either way.
fn pieces(blocks: &[u32]) -> Vec<Range> {
    let mut pieces = Vec::new();
    let mut rest = blocks;
    while let Some(first) = rest.first() {
        let (piece, after) = rest.split_at(rest.partition_point(|block| *block < first + PIECE_BLOCKS));
        if let [first, .., last] = piece {
            pieces.push(Range { first: *first, count: last - first + 1 });
        }
        rest = after;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_every_block_that_is_not_alone() {
        let range = |first, count| Range { first, count };
        assert_eq!(pieces(&[]), []);
        assert_eq!(pieces(&[7]), []);
        assert_eq!(pieces(&[0, 1, 15, 16, 40]), [range(0, 16)]);
        assert_eq!(pieces(&[3, 18, 19, 20]), [range(3, 16), range(19, 2)]);
    }
}
