//! Table pages: read when needed, written back before the log is trimmed.

use std::rc::Rc;

use dolmen_block_io::Durability;
use dolmen_buffer::Buffer;
use dolmen_pool::{Disk, ExcludeReason, LocalFuture, PoolError, TableOwner};
use dolmen_units::{BLOCK_BYTES, DiskSlot, GRAIN_BYTES, Lsn};
use zerocopy::{FromZeros, IntoBytes};

use dolmen_checksum::crc64;

use crate::error::{SpaceError, UnreadableReason};
use crate::format::{PAGE_BYTES, RawRun, RawSlabHeader, SLAB_MAGIC, VERSION};
use crate::row::{Row, Slab};
use crate::shared::Shared;
use crate::table::{Page, PageName};

/// Pages in memory above which idle ones are dropped: 64 MiB.
const PAGES_MAX: usize = 16 * 1024;
/// Dirty rows above which tables are written back although the log has room.
const DIRTY_ROWS_MAX: usize = 512;

/// Both slots of a page, as they are on a disk.
struct Slots {
    bytes: Buffer,
}

impl Slots {
    /// The newer of the two valid slots.
    fn newest(&self, name: PageName) -> Option<(Page, u64)> {
        let (a, b) = self.bytes.split_at(PAGE_BYTES);
        let pages = [Page::parse(a, name), Page::parse(b, name)];
        pages.into_iter().flatten().max_by_key(|(_, generation)| *generation)
    }
}

impl Shared {
    pub(crate) fn page_name(&self, row: &Row, column: usize, index: usize) -> PageName {
        PageName {
            pool: self.pool.id(),
            row: row.id,
            column: u16::try_from(column).unwrap_or(0),
            index: u32::try_from(index).unwrap_or(0),
        }
    }

    /// A page of a row's tables.
    ///
    /// # Errors
    /// [`SpaceError::Unreadable`] when no copy of it can be read.
    pub(crate) async fn page(&self, row: &Rc<Row>, column: usize, index: usize) -> Result<Rc<Page>, SpaceError> {
        if let Some(page) = row.page(column, index) {
            return Ok(page);
        }
        if !row.is_formatted() {
            return Ok(self.keep(row, column, index, Page::blank()));
        }
        let slabs = row.with_slabs(column, <[Slab]>::to_vec);
        let name = self.page_name(row, column, index);
        let mut bad: Vec<(DiskSlot, Slab)> = Vec::new();
        let mut absent = true;
        for slab in slabs {
            let Some(disk) = slab.readable(&self.pool) else { continue };
            absent = false;
            if let Some((page, _)) = self.read_slots(&disk, &slab, row, column, index).await.newest(name) {
                if !bad.is_empty() {
                    let _turn = self.table_turn.take().await;
                    if !row.gone.get() {
                        self.heal_page(&bad, row, column, index, &page).await;
                    }
                }
                return Ok(self.keep(row, column, index, page));
            }
            bad.push((disk.slot(), slab));
        }
        let why = if absent { UnreadableReason::Absent } else { UnreadableReason::NoTable };
        Err(self.unreadable(row, column, crate::format::PAGE_ENTRIES * index, why))
    }

    fn keep(&self, row: &Rc<Row>, column: usize, index: usize, page: Page) -> Rc<Page> {
        let (page, added) = row.keep_page(column, index, page);
        if added {
            self.page_count.set(self.page_count.get() + 1);
        }
        page
    }

    /// Reads both slots of a page; zeros where the disk fails, which no page looks like.
    async fn read_slots(&self, disk: &Rc<Disk>, slab: &Slab, row: &Row, column: usize, index: usize) -> Slots {
        self.count(|counters| counters.page_reads += 1);
        let mut bytes = self.pool.seams().metadata.take(2 * PAGE_BYTES).await;
        bytes.fill(0);
        // Two slots never straddle runs: both are 4 KiB, and 16 pairs fill a grain, but data may end off a pair's border.
        for generation in 0..2 {
            let at = row.map(column).page_at(index, generation);
            for piece in slab.pieces(at, PAGE_BYTES) {
                let buffer = self.pool.seams().metadata.take(PAGE_BYTES).await;
                let (buffer, result) = disk.read(piece.at, buffer).await;
                let start = if generation == 0 { 0 } else { PAGE_BYTES };
                if let (Ok(()), Some(into)) = (result, bytes.get_mut(start..start + PAGE_BYTES)) {
                    into.copy_from_slice(&buffer);
                }
            }
        }
        Slots { bytes }
    }

    /// Gives a page to copies that had none. It is not sealed anew: same content, same generation, same slot.
    async fn heal_page(&self, bad: &[(DiskSlot, Slab)], row: &Rc<Row>, column: usize, index: usize, page: &Page) {
        for (slot, slab) in bad {
            let Some(disk) = self.pool.disk(*slot) else { continue };
            disk.note(|counters| counters.checksum_errors += 1);
            let mut buffer = self.pool.seams().metadata.take(PAGE_BYTES).await;
            let generation = page.copy_sealed(self.page_name(row, column, index), &mut buffer);
            let at = row.map(column).page_at(index, generation);
            let frozen = buffer.freeze();
            for piece in slab.pieces(at, PAGE_BYTES) {
                if disk.write(piece.at, frozen.clone(), Durability::Cached).await.is_ok() {
                    disk.note(|counters| counters.healed_blocks += 1);
                }
            }
        }
    }

    /// A page for recovery: the newest that any trusted copy has, given to all copies that are here and lack it, so that
    /// the next generation never overwrites the only good slot of a copy.
    pub(crate) async fn page_for_recovery(
        &self,
        row: &Rc<Row>,
        column: usize,
        index: usize,
    ) -> Result<Rc<Page>, SpaceError> {
        if row.page(column, index).is_some() || !row.is_formatted() {
            return self.page(row, column, index).await;
        }
        let name = self.page_name(row, column, index);
        let mut newest: Option<(Page, u64)> = None;
        let mut found = Vec::new();
        for slab in row.with_slabs(column, <[Slab]>::to_vec) {
            let Some(disk) = slab.present(&self.pool) else { continue };
            let read = self.read_slots(&disk, &slab, row, column, index).await.newest(name);
            let generation = read.as_ref().map(|(_, generation)| *generation);
            let trusted = slab.stale.is_none();
            found.push((disk.slot(), slab, generation));
            if trusted && generation > newest.as_ref().map(|(_, generation)| *generation) {
                newest = read;
            }
        }
        let Some((page, generation)) = newest else {
            let why = if found.is_empty() { UnreadableReason::Absent } else { UnreadableReason::NoTable };
            return Err(self.unreadable(row, column, crate::format::PAGE_ENTRIES * index, why));
        };
        let lacking: Vec<(DiskSlot, Slab)> = found
            .into_iter()
            .filter(|(_, _, found)| *found != Some(generation))
            .map(|(slot, slab, _)| (slot, slab))
            .collect();
        self.heal_page(&lacking, row, column, index, &page).await;
        Ok(self.keep(row, column, index, page))
    }

    /// Writes a buffer to one place of every slab of a column whose disk is here. A disk that fails is excluded.
    pub(crate) async fn write_to_slabs(
        &self,
        row: &Rc<Row>,
        column: usize,
        at: u64,
        buffer: Buffer,
    ) -> Result<(), SpaceError> {
        let frozen = buffer.freeze();
        let mut writes = Vec::new();
        row.with_slabs(column, |slabs| {
            for slab in slabs {
                let Some(disk) = slab.present(&self.pool) else { continue };
                for piece in slab.pieces(at, frozen.len()) {
                    let part = frozen.slice(piece.offset..piece.offset + piece.length);
                    writes.push((disk.slot(), disk.write(piece.at, part, Durability::Cached)));
                }
            }
        });
        let mut failed = Vec::new();
        for (slot, write) in writes {
            if write.await.is_err() {
                failed.push(slot);
            }
        }
        for slot in failed {
            self.pool.exclude(slot, ExcludeReason::MissedWrite).await?;
        }
        Ok(())
    }

    /// Writes every dirty page of a row; of a row without tables on its disks, every page and the slabs' headers.
    async fn write_row_tables(&self, row: &Rc<Row>) -> Result<(), SpaceError> {
        let formatting = !row.is_formatted();
        if formatting {
            for column in 0..row.shape.columns() {
                for index in 0..row.map(column).pages() {
                    self.page(row, column, index).await?.await_seal();
                }
            }
            self.write_headers(row).await?;
        }
        for (column, index, page) in row.pages() {
            if !page.is_dirty() && !formatting {
                continue;
            }
            let mut buffer = self.pool.seams().metadata.take(PAGE_BYTES).await;
            let generation = page.seal(self.page_name(row, column, index), &mut buffer);
            page.sealed();
            if page.is_dirty() {
                self.note_dirty(row);
            }
            self.count(|counters| counters.page_writes += 1);
            self.write_to_slabs(row, column, row.map(column).page_at(index, generation), buffer).await?;
        }
        Ok(())
    }

    /// Writes the block at the end of every slab that says what it is.
    pub(crate) async fn write_headers(&self, row: &Rc<Row>) -> Result<(), SpaceError> {
        let mut headers = Vec::new();
        row.for_each_slab(|column, slab| {
            if let Some(disk) = slab.present(&self.pool) {
                headers.push((disk, column, slab.clone()));
            }
        });
        for (disk, column, slab) in headers {
            let mut raw = RawSlabHeader::new_zeroed();
            raw.magic = SLAB_MAGIC;
            raw.pool = self.pool.id().0;
            raw.disk = disk.id().0;
            raw.space = row.space.0.into();
            raw.row_index = row.index.into();
            raw.row = row.id.0.into();
            raw.epoch = self.pool.epoch().number.0.into();
            raw.row_length = row.bytes().into();
            raw.interleave = u32::try_from(row.shape.interleave().0).unwrap_or(0).into();
            raw.version = VERSION.into();
            raw.column = u8::try_from(column).unwrap_or(0);
            raw.columns = u8::try_from(row.shape.columns()).unwrap_or(0);
            for (to, run) in raw.runs.iter_mut().zip(&slab.runs) {
                *to = RawRun { first: run.first.into(), count: u32::try_from(run.count).unwrap_or(0).into() };
            }
            raw.checksum = crc64(raw.as_bytes()).into();
            let mut buffer = self.pool.seams().metadata.take(PAGE_BYTES).await;
            buffer.copy_in(raw.as_bytes());
            let frozen = buffer.freeze();
            for piece in slab.pieces(row.map(column).header_at(), PAGE_BYTES) {
                if disk.write(piece.at, frozen.clone(), Durability::Cached).await.is_err() {
                    self.pool.exclude(disk.slot(), ExcludeReason::MissedWrite).await?;
                }
            }
        }
        Ok(())
    }

    /// Writes back and flushes what is dirty, so that the log need not keep it.
    async fn write_back_all(&self) -> Result<(), SpaceError> {
        let limit = self.tickets.next();
        self.frozen.set(Some(limit));
        let flushed = self.flush().await;
        if let Err(error) = flushed {
            self.frozen.set(None);
            return Err(error);
        }
        let rows = std::mem::take(&mut *self.dirty_rows.borrow_mut());
        for row in &rows {
            row.dirty.set(false);
            row.pages().iter().filter(|(_, _, page)| page.is_dirty()).for_each(|(_, _, page)| page.await_seal());
        }
        self.frozen.set(None);
        let epoch = self.pool.epoch();
        for row in &rows {
            let _turn = self.table_turn.take().await;
            if !row.gone.get() {
                self.write_row_tables(row).await?;
            }
        }
        if !cfg!(feature = "bug-table-not-flushed") {
            self.pool.flush_disks().await?;
        }
        for row in rows.iter().filter(|row| !row.gone.get()) {
            if self.pool.epoch() != epoch {
                // A disk left on the way and lacks pages: its slabs are stale from here on.
                self.settle_absences(row).await?;
            }
            if !row.is_formatted() {
                let mut record = row.record();
                record.formatted = true;
                self.commit_row(row, record).await?;
            }
        }
        Ok(())
    }

    /// Keeps the number of pages in memory in bounds: rows given are asked to drop what is idle.
    pub(crate) fn trim_pages<'a>(&self, rows: impl Iterator<Item = &'a Rc<Row>>) {
        let dropped: usize = rows.map(|row| row.drop_pages()).sum();
        self.page_count.set(self.page_count.get().saturating_sub(dropped));
    }

    /// Whether pages should be dropped.
    pub(crate) fn has_many_pages(&self) -> bool {
        self.page_count.get() > PAGES_MAX
    }

    /// Whether tables should be written back although the log has room.
    pub(crate) fn has_many_dirty_rows(&self) -> bool {
        self.dirty_rows.borrow().len() > DIRTY_ROWS_MAX
    }

    /// The error for a block of a column that cannot be read.
    pub(crate) fn unreadable(&self, row: &Row, column: usize, block: usize, why: UnreadableReason) -> SpaceError {
        let block = row.shape.row_block(column, u32::try_from(block).unwrap_or(0));
        SpaceError::Unreadable {
            name: self.pool_name().clone(),
            at: row.index * row.bytes() + u64::from(block) * BLOCK_BYTES,
            length: dolmen_units::Bytes(BLOCK_BYTES),
            why,
        }
    }
}

const _: () = assert!(GRAIN_BYTES.is_multiple_of(PAGE_BYTES as u64), "a page never straddles two runs of a slab");

impl TableOwner for Shared {
    fn write_back(&self, _below: Lsn) -> LocalFuture<'_, Result<(), PoolError>> {
        Box::pin(async move {
            self.write_back_all().await.map_err(|error| match error {
                SpaceError::Pool(error) => error,
                other => PoolError::Corrupt { name: self.pool_name().clone(), what: other.to_string() },
            })
        })
    }
}
