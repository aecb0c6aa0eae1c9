//! Headers of slabs: the last block of a slab says what the slab is, so that the map can be rebuilt from the slabs when all else
//! is gone (docs/format/space.md, `RawSlabHeader`).
//!
//! The map decides; nothing is ever decided by a header while there is one. So a header that is wrong costs nothing today, and
//! a slab on the day on which the map is lost. A verification reads all of them, holds them against the map, and writes those
//! again that say another thing.
//!
//! Invariant: a slab of a row with tables, that holds everything, has its header. It is written
//! - before a commit says that the tables of a row are there, flushed with them; a disk that was not there for all of that is
//!   stale by then, or the row is not called one with tables;
//! - behind all else that a slab was given by a resync or a move, and flushed before a commit trusts the slab.
//!
//! There is one place for it, so power that fails while it is rewritten may tear it. Nobody writes the header of a slab that
//! is trusted, therefore, but for a shadow row that is promoted, and a verification that found it wrong. One that was torn
//! so is found and healed by the next verification.
//!
//! So there is nothing to be looked for in slabs of rows without tables, where an earlier owner's header may stand, nor in slabs
//! that are stale, which get one before they are trusted.
//!
//! What else may differ from the map, and is no damage:
//! - **The space of a shadow row that was promoted.** Headers are written behind that change of the map, and not flushed, nor
//!   given to disks that are away. Until then they name the space of shadow rows; all else is the same, for the row keeps its
//!   number and its slabs. Such a header is *old*: it is rewritten, and not called wrong.
//! - **The epoch.** It is the one in which the header was written, which nobody else has noted.
//!
//! Who writes a header holds the turn of those who write tables: all who give allocation units away take it first, so that nothing
//! is written over what has another owner. A header that seems wrong is read once more under it.

use std::fmt;
use std::rc::Rc;

use dolmen_block_io::{DeviceError, Durability};
use dolmen_checksum::crc64;
use dolmen_future_pool::pooled;
use dolmen_pool::{Disk, ExcludeReason};
use dolmen_units::{DiskSlot, Name, SpaceId};
use smallvec::SmallVec;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::format::error::SpaceError;
use crate::format::ids::{conversion_shadows_of, is_hidden, shadows_of};
use crate::format::raw::{PAGE_BYTES, RawRun, RawSlabHeader, SLAB_MAGIC, VERSION};
use crate::resources::hedge_delay::is_silence;
use crate::table::row::{Row, Slab};
use crate::table::row_store::RowStore;

/// What is the matter with the header of a slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderFault {
    /// The disk cannot read it.
    Unreadable(DeviceError),
    /// Its checksum is wrong: bits have turned, or it was never written.
    Corrupt,
    /// It is whole, and of another slab than the map has there.
    Foreign,
}

impl fmt::Display for HeaderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(error) => write!(f, "it cannot be read: {error}"),
            Self::Corrupt => f.write_str("its checksum is wrong"),
            Self::Foreign => f.write_str("it is of another slab"),
        }
    }
}

/// A header that was not what the map says of its slab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongHeader {
    /// The space of the row; of rows that no client sees, the hidden one.
    pub space: Name,
    /// Index of the row in the space.
    pub row: u64,
    /// The column that the slab serves.
    pub column: usize,
    /// The disk that the slab is on.
    pub disk: String,
    /// What was found.
    pub fault: HeaderFault,
    /// Whether it was rewritten.
    pub is_healed: bool,
}

/// What stands where a header should.
enum Found {
    Sound,
    /// What a shadow row had before it was promoted.
    Old,
    Wrong(HeaderFault),
    /// The disk keeps silent: it leaves, and nothing may be concluded from that.
    Unresponsive,
}

/// A slab whose header should be there.
struct Headed {
    disk: Rc<Disk>,
    column: usize,
    slab: Slab,
}

/// Headers of slabs: writes and verifies them.
#[derive(Clone, Copy)]
pub(crate) struct HeaderStore<'a> {
    store: &'a RowStore,
}

impl<'a> HeaderStore<'a> {
    /// Returns the service for the rows of a pool.
    pub(crate) fn of(store: &'a RowStore) -> Self {
        Self { store }
    }
}

impl HeaderStore<'_> {
    /// Writes the headers of those slabs of a row that are meant and whose disks are here. The caller has the turn of those who
    /// write tables.
    pub(crate) async fn write_headers(
        self,
        row: &Rc<Row>,
        is_meant: impl Fn(&Slab) -> bool,
    ) -> Result<(), SpaceError> {
        for headed in self.headed(row, is_meant) {
            if self.write_header(row, &headed).await.is_err() {
                self.store.pool.exclude(headed.disk.slot(), ExcludeReason::MissedWrite).await?;
            }
        }
        Ok(())
    }

    /// Writes the headers of slabs that are about to be a row's, with their columns; the disks that failed.
    pub(crate) async fn write_headers_ahead(
        self,
        row: &Row,
        slabs: &[(usize, Slab)],
    ) -> SmallVec<[DiskSlot; 2]> {
        let mut failed = SmallVec::new();
        for (column, slab) in slabs {
            let Some(disk) = slab.present(&self.store.pool) else { continue };
            let headed = Headed { disk, column: *column, slab: slab.clone() };
            if self.write_header(row, &headed).await.is_err() {
                failed.push(slab.disk);
            }
        }
        failed
    }

    /// Holds the headers of a row's slabs against the map, and writes again those that differ. Those that were wrong.
    #[pooled]
    pub(crate) async fn verify_headers(self, row: &Rc<Row>) -> Vec<WrongHeader> {
        let mut wrong = Vec::new();
        if self.has_sound_headers(row).await {
            return wrong;
        }
        let _exclusive = self.store.table_mutex.take().await;
        for headed in self.expected(row) {
            let fault = match self.find_header(row, &headed).await {
                Found::Sound | Found::Unresponsive => continue,
                Found::Old => None,
                Found::Wrong(fault) => Some(fault),
            };
            let is_healed = self.store.may_write() && self.write_header(row, &headed).await.is_ok();
            if let Some(fault) = fault {
                wrong.push(self.note_wrong(row, &headed, fault, is_healed));
            }
        }
        wrong
    }

    /// Whether all headers that should be there are, as far as is known now.
    async fn has_sound_headers(self, row: &Rc<Row>) -> bool {
        for headed in self.expected(row) {
            if !matches!(self.find_header(row, &headed).await, Found::Sound | Found::Unresponsive) {
                return false;
            }
        }
        true
    }

    /// Slabs that have a header now, if the map is right.
    fn expected(self, row: &Row) -> Vec<Headed> {
        if row.freed.get() || !row.is_formatted() {
            return Vec::new();
        }
        self.headed(row, |slab| slab.stale.is_none())
    }

    fn headed(self, row: &Row, is_meant: impl Fn(&Slab) -> bool) -> Vec<Headed> {
        let mut found = Vec::new();
        row.for_each_slab(|column, slab| {
            if let Some(disk) = slab.present(&self.store.pool).filter(|_| is_meant(slab)) {
                found.push(Headed { disk, column, slab: slab.clone() });
            }
        });
        found
    }

    fn note_wrong(self, row: &Row, headed: &Headed, fault: HeaderFault, is_healed: bool) -> WrongHeader {
        let (space, disk) = (self.store.name_of(row.space), headed.disk.name());
        headed.disk.note(|counters| {
            counters.checksum_errors += 1;
            counters.healed_blocks += u64::from(is_healed);
        });
        tracing::warn!(space = %space, disk = %disk, row = row.index, column = headed.column, fault = %fault, is_healed,
            "the header of a slab is wrong");
        WrongHeader { space, row: row.index, column: headed.column, disk, fault, is_healed }
    }

    async fn find_header(self, row: &Row, headed: &Headed) -> Found {
        let mut found = RawSlabHeader::new_zeroed();
        // It is one block, and no block lies in two runs.
        for piece in headed.slab.pieces(row.map(headed.column).header_at(), PAGE_BYTES) {
            let buffer = self.store.pool.seams().metadata.take(piece.length).await;
            let (bytes, read) = headed.disk.read(piece.at, buffer).await;
            match (read, RawSlabHeader::read_from_bytes(&bytes)) {
                (Err(error), _) if is_silence(error) => return Found::Unresponsive,
                (Err(error), _) => return Found::Wrong(HeaderFault::Unreadable(error)),
                (Ok(()), Ok(raw)) => found = raw,
                (Ok(()), Err(_)) => return Found::Wrong(HeaderFault::Corrupt),
            }
        }
        let is_as_in =
            |space| self.header(row, headed, (space, found.epoch.get())).as_bytes() == found.as_bytes();
        if is_as_in(row.space) {
            return Found::Sound;
        }
        if !is_hidden(row.space)
            && (is_as_in(shadows_of(row.space)) || is_as_in(conversion_shadows_of(row.space)))
        {
            return Found::Old;
        }
        let is_whole = found.magic == SLAB_MAGIC && found.checksum.get() == checksum(&found);
        Found::Wrong(if is_whole { HeaderFault::Foreign } else { HeaderFault::Corrupt })
    }

    async fn write_header(self, row: &Row, headed: &Headed) -> Result<(), DeviceError> {
        let raw = self.header(row, headed, (row.space, self.store.pool.epoch().number.0));
        let mut buffer = self.store.pool.seams().metadata.take(PAGE_BYTES).await;
        buffer.copy_in(raw.as_bytes());
        let frozen = buffer.freeze();
        for piece in headed.slab.pieces(row.map(headed.column).header_at(), PAGE_BYTES) {
            headed.disk.write(piece.at, frozen.clone(), Durability::Cached).await?;
        }
        Ok(())
    }

    /// The header of a slab, as of this space and epoch.
    fn header(self, row: &Row, headed: &Headed, (space, epoch): (SpaceId, u64)) -> RawSlabHeader {
        let mut raw = RawSlabHeader::new_zeroed();
        raw.magic = SLAB_MAGIC;
        raw.pool = self.store.pool.id().0;
        raw.disk = headed.disk.id().0;
        raw.space = space.0.into();
        raw.row_index = row.index.into();
        raw.row = row.id.0.into();
        raw.epoch = epoch.into();
        raw.row_length = row.bytes().into();
        raw.interleave = u32::try_from(row.shape.interleave().0).unwrap_or(0).into();
        raw.version = VERSION.into();
        raw.column = u8::try_from(headed.column).unwrap_or(0);
        raw.columns = u8::try_from(row.shape.data_columns()).unwrap_or(0);
        raw.parity = u8::try_from(row.shape.parity_columns()).unwrap_or(0);
        for (to, run) in raw.runs.iter_mut().zip(&headed.slab.runs) {
            *to = RawRun { first: run.first.into(), count: u32::try_from(run.count).unwrap_or(0).into() };
        }
        raw.checksum = checksum(&raw).into();
        raw
    }
}

fn checksum(raw: &RawSlabHeader) -> u64 {
    let mut bare = *raw;
    bare.checksum = 0.into();
    crc64(bare.as_bytes())
}
