//! A space as its clients see it.

use std::fmt;
use std::ops::Deref;
use std::rc::Rc;

use dolmen_block_io::{Durability, Figures};
use dolmen_buffer::Shared as Bytes_;
use dolmen_units::Bytes;

use crate::format::error::SpaceError;
use crate::format::limits::Limits;
use crate::policy::attributes::Attributes;
use crate::policy::claimed_rows::{ClaimedRows, claimed_rows};
use crate::policy::reserve::Reserves;
use crate::resolution::space_doubt::SpaceDoubt;
use crate::row_io::segments::Segments;
use crate::space_io::discard::{Discards, Extent};
use crate::space_io::read::Reader;
use crate::space_io::request::Request;
use crate::space_io::request::Requests;
use crate::space_io::write::Writer;
use crate::table::space::SpaceRows;

/// A space: addresses of its own, laid on the disks of a pool. A clone is the same space.
#[derive(Clone)]
pub struct Space {
    rows: Rc<SpaceRows>,
}

impl From<Rc<SpaceRows>> for Space {
    fn from(rows: Rc<SpaceRows>) -> Self {
        Self { rows }
    }
}

impl Deref for Space {
    type Target = Rc<SpaceRows>;

    fn deref(&self) -> &Rc<SpaceRows> {
        &self.rows
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rows.fmt(f)
    }
}

impl Space {
    /// Attributes that other layers keep with the space.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes::of(&self.rows)
    }

    /// Returns its claimed rows from an index on, in at most `ranges_max` ranges. Rows that are claimed or freed between two pages may be
    /// in neither or in both.
    ///
    /// # Errors
    /// [`SpaceError`] when the map cannot be read.
    pub fn claimed_rows(
        &self,
        from: u64,
        ranges_max: usize,
    ) -> impl Future<Output = Result<ClaimedRows, SpaceError>> {
        claimed_rows(&self.rows, from, ranges_max)
    }

    /// Bytes of its rows that its reserve takes and that are not claimed: zero, but while it is filled, or where room for it was
    /// lost.
    #[must_use]
    pub fn lacks_of_reserve(&self) -> Bytes {
        Reserves::of(&self.rows).lacks_of_reserve()
    }

    /// What can be written of what is reserved, as far as is known without reading tables.
    #[must_use]
    pub fn blank_bytes(&self) -> Bytes {
        Reserves::of(&self.rows).blank_bytes()
    }

    /// Whether acknowledged blocks are only on disks that left, so that no flush can succeed before those are back. Asking
    /// changes nothing, and no client misses an error by it.
    #[must_use]
    pub fn waits_for_disks(&self) -> bool {
        SpaceDoubt::of(&self.rows).waits_for_disks()
    }

    /// Whether the next flush has to tell that acknowledged blocks are not there any more. Asking changes nothing.
    #[must_use]
    pub fn has_reverted(&self) -> bool {
        SpaceDoubt::of(&self.rows).has_reverted()
    }

    /// Forgets whole blocks of a range; parts of blocks at its ends stay as they are. Forgotten blocks read as zeros.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub fn discard(&self, at: u64, length: u64) -> impl Future<Output = Result<(), SpaceError>> {
        Discards::of(&self.rows).discard(at, length)
    }

    /// What is where in a range, coarsened to rows that were never claimed and blocks that hold data; at most
    /// `extents_max` extents, fewer bytes than asked for if need be.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub fn block_status(
        &self,
        at: u64,
        length: u64,
        extents_max: usize,
    ) -> impl Future<Output = Result<Vec<Extent>, SpaceError>> {
        Discards::of(&self.rows).block_status(at, length, extents_max)
    }

    /// The end of the last block that holds anything at or behind byte `from`; `None` when there is none.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub fn used_end(&self, from: u64) -> impl Future<Output = Result<Option<u64>, SpaceError>> {
        Discards::of(&self.rows).used_end(from)
    }

    /// Reads `length` bytes from byte `at` on, at most [`READ_BYTES_MAX`](crate::READ_BYTES_MAX).
    ///
    /// # Errors
    /// [`SpaceError`]; a block that no copy can give fails the whole read.
    pub fn read(&self, at: u64, length: usize) -> impl Future<Output = Result<Segments, SpaceError>> {
        Reader::of(&self.rows).read(at, length)
    }

    /// As [`read`](Self::read), also of a space in the trash, for whoever gets data out of a pool that nobody uses: limits do not
    /// count.
    ///
    /// # Errors
    /// As there.
    pub fn read_kept(&self, at: u64, length: usize) -> impl Future<Output = Result<Segments, SpaceError>> {
        Reader::of(&self.rows).read_kept(at, length)
    }

    /// Waits until the limits let a write of so much through, which [`write_waited`](Self::write_waited) then does: for ways in
    /// that cannot hold a request while they take in what is to be written.
    pub fn wait_to_write(&self, length: u64) -> impl Future<Output = ()> {
        Requests::of(&self.rows).wait_to_write(length)
    }

    /// What it may have of its pool's disks, and what it is to get.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Requests::of(&self.rows).limits()
    }

    /// A request to write so much begins, as soon as the limits of the space let it: for [`write_admitted`](Self::write_admitted).
    /// Whoever takes memory for what is to be written takes it behind this, so that a space that has to wait holds none that others
    /// need.
    pub fn admit_write(&self, length: u64) -> impl Future<Output = Request<'_>> {
        Requests::of(&self.rows).admit_write(length)
    }

    /// What clients asked of it since the pool was opened, or it was made, and how long that took.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Requests::of(&self.rows).figures()
    }

    /// Makes everything that was acknowledged before durable.
    ///
    /// # Errors
    /// [`SpaceError::Unflushed`] while acknowledged blocks are on disks that left, and once if some of them are not there any
    /// more when the disks are back; and what the pool says.
    pub fn flush(&self) -> impl Future<Output = Result<(), SpaceError>> {
        Requests::of(&self.rows).flush()
    }

    /// Writes `data` from byte `at` on. Acknowledged data survives the death of the daemon; durable data, and what a
    /// later flush covers, the loss of power.
    ///
    /// # Errors
    /// [`SpaceError`]; each block of the range then has its old or its new content.
    pub fn write(
        &self,
        at: u64,
        data: &Bytes_,
        durability: Durability,
    ) -> impl Future<Output = Result<(), SpaceError>> {
        Writer::of(&self.rows).write(at, data, durability)
    }

    /// As [`write`](Self::write), behind [`wait_to_write`](Self::wait_to_write).
    ///
    /// # Errors
    /// As there.
    pub fn write_waited(
        &self,
        at: u64,
        data: &Bytes_,
        durability: Durability,
    ) -> impl Future<Output = Result<(), SpaceError>> {
        Writer::of(&self.rows).write_waited(at, data, durability)
    }

    /// As [`write`](Self::write), of a request that has begun.
    ///
    /// # Errors
    /// As there.
    pub fn write_admitted(
        &self,
        request: Request<'_>,
        at: u64,
        data: &Bytes_,
        durability: Durability,
    ) -> impl Future<Output = Result<(), SpaceError>> {
        Writer::of(&self.rows).write_admitted(request, at, data, durability)
    }

    /// Makes a range read as zeros and take room, in a thin space too: whoever writes there later finds it.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub fn write_allocated_zeroes(
        &self,
        at: u64,
        length: u64,
    ) -> impl Future<Output = Result<(), SpaceError>> {
        Writer::of(&self.rows).write_allocated_zeroes(at, length)
    }

    /// Makes a range read as zeros: whole blocks are forgotten, parts of blocks are written.
    ///
    /// # Errors
    /// [`SpaceError`].
    pub fn write_zeroes(&self, at: u64, length: u64) -> impl Future<Output = Result<(), SpaceError>> {
        Writer::of(&self.rows).write_zeroes(at, length)
    }
}
