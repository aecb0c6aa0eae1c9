//! Verification of the rows of a space.

use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_pool::Disk;
use dolmen_units::BLOCK_BYTES;

use crate::cache::cached_blocks::CachedBlocks;
use crate::cache::stripe_read::StripeReads;
use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::record::BlockState;
use crate::layout::BLOCK;
use crate::layout::shape::RUN_BLOCKS;
use crate::resolution::decided_rows::DecidedRows;
use crate::resources::hedge_delay::{HedgeDelay, is_silence};
use crate::resources::locks::Range;
use crate::row_io::copies::{RowCopies, matches_state};
use crate::row_io::header::{HeaderStore, WrongHeader};
use crate::row_io::stripe_places::StripePlaces;
use crate::table::pages::TableStore;
use crate::table::row::{Row, Slab};
use crate::table::space::SpaceRows;

/// Verification of the rows of a space.
#[derive(Clone, Copy)]
pub(crate) struct RowVerify<'a> {
    space: &'a SpaceRows,
}

impl<'a> RowVerify<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl RowVerify<'_> {
    /// Whether nothing of a row may be had from disks that are away and from nobody else: every block is verified for it.
    ///
    /// # Errors
    /// [`SpaceError`] when the metadata cannot be read, or the pool has stopped.
    pub(crate) async fn can_do_without_absent(self, index: u64) -> Result<bool, SpaceError> {
        Ok(self.verify_row(index).await?.out_of_reach.is_empty())
    }

    /// Reads and verifies every copy of every block of a row and of its tables, and the headers of its slabs; heals what differs.
    #[pooled]
    pub(crate) async fn verify_row(self, index: u64) -> Result<RowVerdict, SpaceError> {
        let mut verdict = RowVerdict::default();
        let row = match DecidedRows::of(self.space).row(index).await {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(verdict),
            // What the log says of it waits for disks.
            Err(error @ SpaceError::Unreadable { .. }) => {
                let (first, end) = (
                    index * self.space.row_bytes(),
                    self.space.size().0.min((index + 1) * self.space.row_bytes()),
                );
                let blocks = (first..end).step_by(BLOCK);
                blocks.into_iter().try_for_each(|at| verdict.note(at, error.clone()))?;
                return Ok(verdict);
            }
            Err(error) => return Err(error),
        };
        let clock = &self.space.shared.pool.seams().clock;
        for column in 0..row.shape.columns() {
            let blocks = row.shape.column_blocks(column);
            for first in (0..blocks).step_by(RUN_BLOCKS as usize) {
                let run = Range { first, count: RUN_BLOCKS.min(blocks - first) };
                let began = clock.now();
                self.verify_run(&row, column, run, &mut verdict).await?;
                self.space.shared.throttle.rest(clock.as_ref(), began).await;
            }
            for index in 0..row.map(column).pages() {
                TableStore::of(&self.space.shared).verify_page(&row, column, index).await?;
            }
        }
        verdict.headers = HeaderStore::of(&self.space.shared).verify_headers(&row).await;
        if verdict.lost.is_empty() && verdict.out_of_reach.is_empty() {
            self.space.failed_reads.succeeded(index * self.space.row_bytes(), self.space.row_bytes());
        }
        verdict.lost.sort_unstable();
        verdict.out_of_reach.sort_unstable();
        Ok(verdict)
    }

    #[pooled]
    async fn verify_run(
        self,
        row: &Rc<Row>,
        column: usize,
        run: Range,
        verdict: &mut RowVerdict,
    ) -> Result<(), SpaceError> {
        let place_of =
            |block| row.index * row.bytes() + u64::from(row.shape.row_block(column, block)) * BLOCK_BYTES;
        let _guard = row.locks.lock(row.shape.lock_range(column, run)).await;
        if row.freed.get() {
            return Ok(());
        }
        let states = match RowCopies::of(self.space).states(row, column, run).await {
            Ok(states) => states,
            Err(error @ SpaceError::Unreadable { .. }) => {
                let mut blocks = run.first..run.first + run.count;
                return blocks.try_for_each(|block| match self.is_needed(row, column, block) {
                    true => verdict.note(place_of(block), error.clone()),
                    false => Ok(()),
                });
            }
            Err(error) => return Err(error),
        };
        if states.iter().all(|state| *state == BlockState::Never) {
            return Ok(());
        }
        let suspect = self.suspects(row, column, run, &states).await;
        for ((block, state), suspect) in (run.first..).zip(&states).zip(suspect) {
            if *state == BlockState::Never
                || CachedBlocks::of(self.space).is_superseded(row, row.shape.row_block(column, block))
            {
                continue;
            }
            let mut read = Ok(());
            if suspect {
                let mut buffer = self.space.shared.pool.seams().metadata.take(BLOCK).await;
                read = match row.shape.is_computable() {
                    true => {
                        StripeReads::of(self.space)
                            .read_main(row, (column, block), HedgeDelay::Long, &mut buffer)
                            .await
                    }
                    false => {
                        RowCopies::of(self.space)
                            .read_copied_block(
                                row,
                                row.shape.row_block(column, block),
                                HedgeDelay::Long,
                                &mut buffer,
                            )
                            .await
                    }
                };
            }
            match read {
                // Nothing is lost with parity, nor with what is about to be replaced by what is in the cache, nor with what the
                // row's shadow row has.
                Err(SpaceError::Unreadable { .. }) if !self.is_needed(row, column, block) => {}
                Err(SpaceError::Unreadable { .. })
                    if !StripePlaces::of(self.space).is_in_row(row, block).await? => {}
                Ok(()) => verdict.blocks += 1,
                Err(error) => verdict.note(place_of(block), error)?,
            }
        }
        Ok(())
    }

    /// Whether a block in place is what its space reads there.
    fn is_needed(self, row: &Row, column: usize, block: u32) -> bool {
        column < row.shape.data_columns() && row.mappings.newest(row.shape.row_block(column, block)).is_none()
    }

    /// Reads all copies of blocks; which of them have a bad copy, or none that is here and whole.
    #[pooled]
    async fn suspects(self, row: &Row, column: usize, run: Range, states: &[BlockState]) -> Vec<bool> {
        let copies = row.with_slabs(column, |slabs| {
            let readable =
                slabs.iter().filter_map(|slab| Some((slab.readable(&self.space.shared.pool)?, slab.clone())));
            readable.collect::<Vec<(Rc<Disk>, Slab)>>()
        });
        let mut suspect = vec![copies.is_empty(); states.len()];
        for (disk, slab) in copies {
            let mut blocks = suspect.iter_mut().zip(states);
            for piece in slab.pieces(u64::from(run.first) * BLOCK_BYTES, states.len() * BLOCK) {
                let buffer = self.space.shared.pool.seams().metadata.take(piece.length).await;
                let (buffer, read) = disk.read(piece.at, buffer).await;
                for (bytes, (suspect, state)) in buffer.chunks_exact(BLOCK).zip(&mut blocks) {
                    *suspect |= read.is_err() || !matches_state(bytes, *state);
                }
            }
        }
        suspect
    }
}

impl RowVerdict {
    /// Notes why a block cannot be read.
    ///
    /// # Errors
    /// The error, when it is about more than this block.
    fn note(&mut self, at: u64, error: SpaceError) -> Result<(), SpaceError> {
        match error {
            // Nothing may be concluded from the silence of a disk that has just left.
            SpaceError::Unreadable {
                why: UnreadableReason::Absent | UnreadableReason::CorruptHere, ..
            } => self.out_of_reach.push(at),
            SpaceError::Unreadable { why: UnreadableReason::Device(error), .. } if is_silence(error) => {
                self.out_of_reach.push(at);
            }
            SpaceError::Unreadable { .. } => self.lost.push(at),
            error => return Err(error),
        }
        Ok(())
    }
}

/// What was seen of a row; blocks are named by their first byte in the space.
#[derive(Default)]
pub(crate) struct RowVerdict {
    pub(crate) blocks: u64,
    pub(crate) lost: Vec<u64>,
    pub(crate) out_of_reach: Vec<u64>,
    pub(crate) headers: Vec<WrongHeader>,
}
