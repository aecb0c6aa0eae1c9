//! Writing: see docs/design/0002 for the three classes and why their orders differ.

use dolmen_block_io::{Durability, IoKind};
use dolmen_buffer::{Shared as Bytes_, is_zeros};
use dolmen_future_pool::pooled;
use dolmen_units::BLOCK_BYTES;

use crate::format::error::SpaceError;
use crate::layout::Unit;
use crate::resolution::decided_rows::DecidedRows;
use crate::resolution::space_doubt::SpaceDoubt;
use crate::row_io::flusher::Flusher;
use crate::row_io::write_executor::PARTS_BYTES_MAX;
use crate::space_io::discard::Discards;
use crate::space_io::full_stripe::StripeWriter;
use crate::space_io::request::{Request, Requests};
use crate::space_io::row_write::RowWriter;
use crate::table::space::SpaceRows;

/// Bytes of zeros that are written at a time.
const ZEROS_BYTES: usize = 64 * 1024;
/// Bytes of the future of a write, whatever it waits for.
const WRITE_BYTES_MAX: usize = 1280;
const _: () = assert!(WRITE_BYTES_MAX + PARTS_BYTES_MAX <= 4096, "a write to a mirror holds 4 KiB at most");

/// Writes to a space.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    space: &'a SpaceRows,
}

impl<'a> Writer<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl Writer<'_> {
    /// Writes `data` from byte `at` on. Acknowledged data survives the death of the daemon; durable data, and what a
    /// later flush covers, the loss of power.
    #[pooled(WRITE_BYTES_MAX)]
    pub(crate) async fn write(
        self,
        at: u64,
        data: &Bytes_,
        durability: Durability,
    ) -> Result<(), SpaceError> {
        self.space.check_range(at, data.len() as u64)?;
        let request = Requests::of(self.space).asked(IoKind::Write, data.len() as u64).await;
        let written = self.write_range(&request, at, data, durability).await;
        request.ended(written)
    }

    /// As [`write`](Self::write), behind [`wait_to_write`](crate::Space::wait_to_write).
    #[pooled(WRITE_BYTES_MAX)]
    pub(crate) async fn write_waited(
        self,
        at: u64,
        data: &Bytes_,
        durability: Durability,
    ) -> Result<(), SpaceError> {
        self.space.check_range(at, data.len() as u64)?;
        let request = Requests::of(self.space).asked_after_wait(IoKind::Write, data.len() as u64);
        let written = self.write_range(&request, at, data, durability).await;
        request.ended(written)
    }

    /// As [`write`](Self::write), of a request that has begun.
    #[pooled(WRITE_BYTES_MAX)]
    pub(crate) async fn write_admitted(
        self,
        request: Request<'_>,
        at: u64,
        data: &Bytes_,
        durability: Durability,
    ) -> Result<(), SpaceError> {
        let written = self.write_range(&request, at, data, durability).await;
        request.ended(written)
    }

    async fn write_range(
        self,
        request: &Request<'_>,
        at: u64,
        data: &Bytes_,
        durability: Durability,
    ) -> Result<(), SpaceError> {
        // It may have been made smaller while this waited for its turn.
        self.space.check_range(at, data.len() as u64)?;
        if self.space.is_thin() && is_zeros(data) {
            // What is forgotten reads the same and takes no room: file systems fill their journals and tables so.
            self.zero_range(at, data.len() as u64).await?;
        } else {
            self.store(at, data).await?;
        }
        self.space.failed_reads.succeeded(at, data.len() as u64);
        if durability == Durability::Durable {
            request.is_stored();
            SpaceDoubt::of(self.space).flush_all().await?;
        }
        Ok(())
    }

    /// Makes a range read as zeros and take room, in a thin space too: whoever writes there later finds it.
    #[pooled]
    pub(crate) async fn write_allocated_zeroes(self, at: u64, length: u64) -> Result<(), SpaceError> {
        self.space.check_range(at, length)?;
        let request = Requests::of(self.space).asked(IoKind::Write, length).await;
        let written = self.allocate_range(at, length).await;
        request.ended(written)
    }

    #[pooled]
    async fn allocate_range(self, at: u64, length: u64) -> Result<(), SpaceError> {
        let mut zeros = self.space.shared.pool.seams().data.take(ZEROS_BYTES).await;
        zeros.fill(0);
        let zeros = zeros.freeze();
        let (mut from, end) = (at, at + length);
        while from < end {
            // Up to the next multiple, so that later pieces are whole blocks.
            let room = ZEROS_BYTES as u64 - from % ZEROS_BYTES as u64;
            let piece = usize::try_from(room.min(end - from)).unwrap_or(ZEROS_BYTES);
            self.store(from, &zeros.slice(0..piece)).await?;
            from += piece as u64;
        }
        Ok(())
    }

    /// Writes `data`, whatever it is, from byte `at` on. The caller has checked the range.
    pub(crate) async fn store(self, at: u64, data: &Bytes_) -> Result<(), SpaceError> {
        if self.has_stripes() {
            return StripeWriter::of(self.space).store_with_parity(at, data).await;
        }
        Flusher::of(&self.space.shared).gate().await?;
        let mut done = 0;
        while done < data.len() {
            let (index, within) =
                ((at + done as u64) / self.space.row_bytes(), (at + done as u64) % self.space.row_bytes());
            let room = usize::try_from(self.space.row_bytes() - within).unwrap_or(usize::MAX);
            let part = data.slice(done..done + room.min(data.len() - done));
            done += part.len();
            RowWriter::of(self.space).write_in_row(index, within, part).await?;
        }
        Ok(())
    }

    /// Whether some of its rows are written in stripes.
    fn has_stripes(self) -> bool {
        [0, 1].into_iter().any(|layout| self.space.resiliency_of(layout).layout().unit() == Unit::Stripe)
    }

    /// Makes a range read as zeros: whole blocks are forgotten, parts of blocks are written.
    #[pooled]
    pub(crate) async fn write_zeroes(self, at: u64, length: u64) -> Result<(), SpaceError> {
        self.space.check_range(at, length)?;
        let request = Requests::of(self.space).asked(IoKind::Discard, length).await;
        let zeroed = self.zero_range(at, length).await;
        request.ended(zeroed)
    }

    /// Returns whether a byte lies where no row is, and so reads as zero: what is zeroed there claims no room.
    async fn is_without_row(self, at: u64) -> Result<bool, SpaceError> {
        Ok(DecidedRows::of(self.space).row(at / self.space.row_bytes()).await?.is_none())
    }

    /// Makes a range read as zeros. The caller has checked it.
    pub(crate) async fn zero_range(self, at: u64, length: u64) -> Result<(), SpaceError> {
        let end = at + length;
        let (head_end, tail_start) =
            (end.min(at.next_multiple_of(BLOCK_BYTES)), end / BLOCK_BYTES * BLOCK_BYTES);
        for (from, to) in [(at, head_end), (tail_start.max(head_end), end)] {
            if from < to && !self.is_without_row(from).await? {
                let size = usize::try_from(to - from).unwrap_or(0);
                let mut zeros = self.space.shared.pool.seams().metadata.take(size).await;
                zeros.fill(0);
                self.store(from, &zeros.freeze()).await?;
            }
        }
        Discards::of(self.space).discard_range(at, length).await
    }
}
