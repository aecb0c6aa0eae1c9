//! Table pages: read when needed, written back before the log is trimmed.

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::{DeviceError, Durability};
use dolmen_buffer::Buffer;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_pool::Disk;
use dolmen_units::{ALLOCATION_UNIT_BYTES, BLOCK_BYTES, Bytes, DiskSlot};
use smallvec::SmallVec;

use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::raw::PAGE_BYTES;
use crate::format::record::BlockState;
use crate::in_doubt::pages::{PAGES, PageCopies, PageDecision, PageFacts, TrustedHolders};
use crate::layout::Unit;
use crate::layout::shape::ranges_of_page;
use crate::resources::events::{DataLossEvent, DataLossKind};
use crate::resources::hedge_delay::{HedgeDelay, hedge_delay, is_silence};
use crate::table::page::{Page, PageName, place_in_page};
use crate::table::row::{Row, Slab, TablePlace};
use crate::table::row_store::RowStore;

/// Pages in memory above which idle ones are dropped: 64 MiB.
const PAGES_MAX: usize = 16 * 1024;
/// Table pages of a row that are written at once, at most: each holds a small frame of the metadata arena.
pub(crate) const TABLE_WRITES_MAX: usize = 64;
/// Pages that differ from what their disks have, and so cannot be dropped, above which tables are written back although the log
/// has room. Fewer would be written back again and again by whoever writes all over a space: each time with both its copies.
const DIRTY_PAGES_MAX: usize = PAGES_MAX;

/// A page that was given to its disks in a write-back.
pub(crate) struct GivenPage {
    pub(crate) row: Rc<Row>,
    pub(crate) column: usize,
    pub(crate) index: usize,
    pub(crate) page: Rc<Page>,
}

/// A slab that has a page, whose disk is here.
struct Holder {
    disk: Rc<Disk>,
    slab: Slab,
    place: TablePlace,
}

/// What the two slots of a copy of a page hold.
#[derive(Default)]
struct FoundSlots {
    /// The newer of the valid ones, with its generation.
    newest: Option<(Page, u64)>,
    valid_count: u32,
    /// Whether the disk gave no answer.
    is_silent: bool,
}

impl FoundSlots {
    /// Notes the bytes of a slot.
    fn note(&mut self, bytes: &[u8], name: PageName) {
        let Some(generation) = Page::generation_in(bytes, name) else { return };
        self.valid_count += 1;
        if self.newest.as_ref().is_none_or(|(_, newest)| *newest < generation) {
            self.newest = Page::of_sound(bytes, generation).map(|page| (page, generation));
        }
    }
}

/// A copy of a page as it was found on a disk.
struct FoundPage {
    disk: Rc<Disk>,
    slab: Slab,
    place: TablePlace,
    /// The newer of its valid slots.
    newest: Option<(Page, u64)>,
    /// Whether both slots are valid. One that is not was either being written when power failed, or has rotted; and if it
    /// was the newer one, the other is out of date.
    whole: bool,
}

impl FoundPage {
    fn new(Holder { disk, slab, place }: Holder, slots: FoundSlots) -> Self {
        Self { disk, slab, place, newest: slots.newest, whole: slots.valid_count == 2 }
    }

    fn generation(&self) -> Option<u64> {
        self.newest.as_ref().map(|(_, generation)| *generation)
    }

    /// Whether it says something else than another copy of the same number.
    fn contradicts(&self, other: &Self) -> bool {
        matches!((&self.newest, &other.newest), (Some((one, generation)), Some((another, of_other)))
            if generation == of_other && !one.is_same(another))
    }

    /// Whether its newest slot can be believed to be the newest that was ever flushed.
    fn is_believed(&self, knowledge: Knowledge) -> bool {
        match (knowledge, self.generation()) {
            (_, None) => false,
            (Knowledge::Quiet, Some(_)) => self.whole,
            // Low bits are enough: a page is not written 32,768 times between two trims of the log.
            (Knowledge::AtLeast(minimum), Some(found)) => {
                let [low, high, ..] = found.to_le_bytes();
                u16::from_le_bytes([low, high]).wrapping_sub(minimum) < 1 << 15
            }
        }
    }
}

/// A page of a table, as far as disks that hold everything tell.
pub(crate) enum PageOnDisk {
    /// None of them answers.
    Away,
    /// None was written yet.
    Blank,
    /// No copy can be believed.
    Lost,
    Found(Box<Page>),
}

impl PageOnDisk {
    /// What it says of a block; `None` where nobody answers.
    pub(crate) fn state(&self, entry: usize) -> Option<BlockState> {
        match self {
            Self::Away => None,
            Self::Blank => Some(BlockState::Never),
            Self::Lost => Some(BlockState::Damaged),
            Self::Found(page) => Some(page.state(entry)),
        }
    }
}

/// What is known of a page beside its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// No write-back was under way when the pool was opened: a slot that is not valid has rotted.
    Quiet,
    /// The log speaks of the page, which has at least the generation with these low bits: a slot that is not valid may be
    /// one that was being written.
    AtLeast(u16),
}

/// Returns how many of the trusted slabs that should have a page have answered, of which these copies were found.
fn trusted_holders(row: &Row, column: usize, found: &[FoundPage]) -> TrustedHolders {
    let was_read = |slab: &Slab| found.iter().any(|copy| copy.slab.disk == slab.disk);
    if row.has_table_on(column, |slab| slab.stale.is_none() && !was_read(slab)) {
        return TrustedHolders::SomeSilent;
    }
    match found.iter().any(|copy| copy.slab.stale.is_none()) {
        true => TrustedHolders::AllAnswered,
        false => TrustedHolders::None,
    }
}

/// The slot that a generation of a page is written to.
pub(crate) fn slot_of(page: &Page, generation: u64) -> u64 {
    let main_location = !page.is_unpaired() && mutation!(PageInPlace);
    if main_location { 0 } else { generation }
}

/// Pages of the tables of rows: loads, verifies and trims them.
#[derive(Clone, Copy)]
pub(crate) struct TableStore<'a> {
    store: &'a RowStore,
}

impl<'a> TableStore<'a> {
    /// Returns the service for the rows of a pool.
    pub(crate) fn of(store: &'a RowStore) -> Self {
        Self { store }
    }
}

impl TableStore<'_> {
    pub(crate) fn page_name(self, row: &Row, column: usize, index: usize) -> PageName {
        PageName {
            pool: self.store.pool.id(),
            row: row.id,
            column: u16::try_from(column).unwrap_or(0),
            index: u32::try_from(index).unwrap_or(0),
        }
    }

    /// A page of a row's tables. If no copy of it can be believed, a page that calls every block damaged.
    ///
    /// # Errors
    /// [`SpaceError::Unreadable`] when the disks that hold it are absent.
    pub(crate) async fn page(
        self,
        row: &Rc<Row>,
        column: usize,
        index: usize,
    ) -> Result<Rc<Page>, SpaceError> {
        self.page_knowing(row, column, index, Knowledge::Quiet).await
    }

    /// As [`page`](Self::page), with what recovery knows of it.
    pub(crate) async fn page_knowing(
        self,
        row: &Rc<Row>,
        column: usize,
        index: usize,
        knowledge: Knowledge,
    ) -> Result<Rc<Page>, SpaceError> {
        loop {
            if let Some(page) = row.page(column, index) {
                return Ok(page);
            }
            // A turn that comes to nothing is one in which somebody else had the page or wrote it.
            if let Some(page) = self.load_page(row, column, index, knowledge).await? {
                return Ok(page);
            }
        }
    }

    /// A page from its disks, whose copies are the same afterwards; `None` when it came into memory or was written meanwhile.
    /// What was read may then be of the past, though every slot of it is sound: believed, it would bring an older table back,
    /// and given to other copies, it would take the place of what a flush has covered.
    #[pooled]
    async fn load_page(
        self,
        row: &Rc<Row>,
        column: usize,
        index: usize,
        knowledge: Knowledge,
    ) -> Result<Option<Rc<Page>>, SpaceError> {
        let seals = row.seals.get();
        let is_overtaken = || row.seals.get() != seals || row.page(column, index).is_some();
        let believed = |copy: &FoundPage| copy.slab.stale.is_none() && copy.is_believed(knowledge);
        let mut facts = PageFacts {
            is_formatted: row.is_formatted(),
            is_overtaken: false,
            is_detached: false,
            copies: PageCopies::Unread,
        };
        let mut found = Vec::new();
        let (rule, decision) = loop {
            match crate::in_doubt::decide(PAGES, &facts) {
                (_, PageDecision::ReadCopies) => {
                    // A recovery wants all that there is.
                    found = match knowledge {
                        Knowledge::Quiet => self.find_page_soon(row, column, index, believed).await,
                        Knowledge::AtLeast(_) => self.find_page(row, column, index, HedgeDelay::Long).await.0,
                    };
                    facts.is_overtaken = is_overtaken();
                    facts.is_detached = row.freed.get();
                    facts.copies = match found.iter().any(believed) {
                        true => PageCopies::Current,
                        false => PageCopies::NoneCurrent(trusted_holders(row, column, &found)),
                    };
                }
                decided => break decided,
            }
        };
        tracing::trace!(rule, row = row.index, column, index, "a page");
        let newest = match decision {
            PageDecision::Blank => return Ok(Some(self.keep(row, column, index, Page::blank()))),
            PageDecision::Again => return Ok(None),
            PageDecision::ReadCopies | PageDecision::Away => {
                let first = crate::format::raw::PAGE_ENTRIES * index;
                return Err(self.unreadable(row, column, first, UnreadableReason::Absent));
            }
            PageDecision::Lost => return Ok(Some(self.lost_page(row, column, index, &found))),
            PageDecision::Newest => {
                found.iter_mut().filter(|copy| believed(copy)).max_by_key(|copy| copy.generation())
            }
        };
        let Some((page, generation)) =
            newest.and_then(|copy| copy.newest.take().inspect(|_| copy.whole = true))
        else {
            unreachable!("a page that is believed has a generation");
        };
        // Its own copy has given its page away. The others are as good if they have the same one and both slots; a copy
        // that was torn in a write-back is mended by the next one, which recovery asks for.
        let quiet = knowledge == Knowledge::Quiet;
        let chosen = |copy: &FoundPage| copy.whole && copy.newest.is_none();
        let as_good = |copy: &FoundPage| copy.generation() == Some(generation) && (copy.whole || !quiet);
        found.retain(|copy| !chosen(copy) && !as_good(copy));
        if !found.is_empty() {
            let _exclusive = self.store.table_mutex.take().await;
            // Whoever had the turn before may have been a write-back of this very page.
            if is_overtaken() {
                return Ok(None);
            }
            if !row.freed.get() {
                // A crash in a write-back leaves copies of which one is newer, or that have one slot: no fault of a disk.
                let is_error = |copy: &FoundPage| quiet || copy.newest.is_none();
                self.heal_page(&found, (row, column, index), &page, is_error).await;
            }
        }
        Ok(Some(self.keep(row, column, index, page)))
    }

    /// A page of a table as it is on the disks, beside the one in memory.
    #[pooled]
    pub(crate) async fn page_on_disk(
        self,
        row: &Rc<Row>,
        (column, index): (usize, usize),
        in_memory: &Page,
    ) -> PageOnDisk {
        let [low, high, ..] = in_memory.durable_generation().to_le_bytes();
        let knowledge = Knowledge::AtLeast(u16::from_le_bytes([low, high]));
        let believed = |copy: &FoundPage| copy.slab.stale.is_none() && copy.is_believed(knowledge);
        let mut facts = PageFacts {
            is_formatted: row.is_formatted(),
            is_overtaken: false,
            is_detached: false,
            copies: PageCopies::Unread,
        };
        let mut found = Vec::new();
        let decision = loop {
            match crate::in_doubt::decide(PAGES, &facts).1 {
                PageDecision::ReadCopies => {
                    found = self.find_page(row, column, index, HedgeDelay::Long).await.0;
                    facts.copies = match found.iter().any(believed) {
                        true => PageCopies::Current,
                        false => PageCopies::NoneCurrent(trusted_holders(row, column, &found)),
                    };
                }
                decision => break decision,
            }
        };
        match decision {
            PageDecision::Blank => PageOnDisk::Blank,
            PageDecision::ReadCopies | PageDecision::Again | PageDecision::Away => PageOnDisk::Away,
            PageDecision::Lost => PageOnDisk::Lost,
            PageDecision::Newest => {
                let newest = found.into_iter().filter(believed).filter_map(|copy| copy.newest);
                let newest = newest.max_by_key(|(_, generation)| *generation);
                newest.map_or(PageOnDisk::Lost, |(page, _)| PageOnDisk::Found(Box::new(page)))
            }
        }
    }

    /// Looks at all copies of a page, also of one that is in memory: what is believed only while nobody reads it from a disk
    /// is lost with the next copy. Copies that lack something are given what a whole one has; where none is, the page is
    /// rewritten.
    #[pooled]
    pub(crate) async fn verify_page(
        self,
        row: &Rc<Row>,
        column: usize,
        index: usize,
    ) -> Result<(), SpaceError> {
        let page = match self.page(row, column, index).await {
            Ok(page) => page,
            Err(SpaceError::Unreadable { why: UnreadableReason::Absent, .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        // No write-back comes between, so that what is durable is what should be there.
        let _exclusive = self.store.table_mutex.take().await;
        if row.freed.get() || !row.is_formatted() {
            return Ok(());
        }
        let (found, _) = self.find_page(row, column, index, HedgeDelay::Long).await;
        let is_good = |copy: &FoundPage| copy.whole && copy.generation() == Some(page.sealed_generation());
        let trusted = |copy: &&FoundPage| copy.slab.stale.is_none();
        if found.iter().filter(trusted).all(is_good) {
            let first = found.iter().find(trusted);
            if self.store.may_write()
                && found.iter().filter(trusted).zip(first).any(|(copy, first)| copy.contradicts(first))
            {
                // One of them has the number of a write-back that came to nothing.
                page.write_again(true);
                self.store.note_dirty(row);
            }
            return Ok(());
        }
        let (mut good, lacking): (Vec<FoundPage>, Vec<FoundPage>) =
            found.into_iter().filter(|copy| copy.slab.stale.is_none()).partition(is_good);
        match good.first_mut().and_then(|copy| copy.newest.take()) {
            Some((whole, _)) => self.heal_page(&lacking, (row, column, index), &whole, |_| true).await,
            None if self.store.may_write() && !lacking.is_empty() => {
                // The next generation goes to the slot that is bad. Both are written only where both are.
                let known = |copy: &FoundPage| {
                    copy.generation().is_some_and(|generation| generation >= page.durable_generation())
                };
                page.write_again(!lacking.iter().any(known));
                self.store.note_dirty(row);
            }
            None => {}
        }
        Ok(())
    }

    /// Returns a page that calls all its blocks damaged, and notes that: no copy of it can be believed.
    fn lost_page(self, row: &Rc<Row>, column: usize, index: usize, found: &[FoundPage]) -> Rc<Page> {
        let generation = found.iter().filter_map(FoundPage::generation).max().unwrap_or(0);
        self.store.count(|counters| counters.lost_pages += 1);
        for blocks in ranges_of_page(&row.shape, column, index) {
            let at = row.index * row.bytes() + blocks.start * BLOCK_BYTES;
            let length = Bytes((blocks.end - blocks.start) * BLOCK_BYTES);
            self.store.note_data_loss(DataLossEvent {
                space: row.owner(),
                at,
                length,
                kind: DataLossKind::TableLost,
            });
        }
        self.store.note_dirty(row);
        self.keep(row, column, index, Page::lost(generation))
    }

    fn keep(self, row: &Rc<Row>, column: usize, index: usize, page: Page) -> Rc<Page> {
        let (page, added) = row.keep_page(column, index, page);
        // Those of a row that is gone end with whoever holds it.
        if added && !row.freed.get() {
            self.store.page_count.set(self.store.page_count.get() + 1);
        }
        page
    }

    /// As [`find_page`](Self::find_page), without those copies that take long, if one of the others can be believed. Slabs that
    /// hold everything have the page by themselves; one that is being filled is given it by whoever loads it, and waited for.
    async fn find_page_soon(
        self,
        row: &Rc<Row>,
        column: usize,
        index: usize,
        believed: impl Fn(&FoundPage) -> bool,
    ) -> Vec<FoundPage> {
        let is_filling = row.has_table_on(column, |slab| slab.stale.is_some());
        if is_filling {
            return self.find_page(row, column, index, HedgeDelay::Long).await.0;
        }
        let (found, is_timed_out) = self.find_page(row, column, index, HedgeDelay::Short).await;
        if is_timed_out && !found.iter().any(believed) {
            return self.find_page(row, column, index, HedgeDelay::Long).await.0;
        }
        found
    }

    /// Reads both slots of a page from every slab whose disk is here; and whether one of them took too long. Where none of them
    /// holds everything nothing could be told from what they have, and nothing is read: who asks for blocks that are out of reach
    /// asks for each of them.
    #[pooled]
    async fn find_page(
        self,
        row: &Rc<Row>,
        column: usize,
        index: usize,
        wait: HedgeDelay,
    ) -> (Vec<FoundPage>, bool) {
        if !row.has_table_on(column, |slab| slab.readable(&self.store.pool).is_some()) {
            return (Vec::new(), false);
        }
        self.store.count(|counters| counters.page_reads += 1);
        let name = self.page_name(row, column, index);
        let mut holders = SmallVec::<[Holder; 2]>::new();
        row.for_each_table(column, |slab, place| {
            let disk = slab.present(&self.store.pool);
            holders.extend(disk.map(|disk| Holder { disk, slab: slab.clone(), place }));
        });
        let fastest = holders.iter().map(|holder| holder.disk.read_latency()).min().unwrap_or_default();
        let within = (wait == HedgeDelay::Short).then(|| hedge_delay(fastest));
        let mut pairs = self.memory_for_pairs(row, &holders, index);
        let mut reads = SmallVec::<[_; 2]>::new();
        for holder in holders {
            let at = row.page_at(holder.place, index, 0);
            let mut slots = SmallVec::<[_; 2]>::new();
            match pairs.pop() {
                Some(both) => {
                    let pieces = holder.slab.pieces(at, both.len());
                    slots.extend(pieces.first().map(|piece| holder.disk.read_within(piece.at, both, within)));
                }
                None => {
                    for at in [at, at + PAGE_BYTES as u64] {
                        let buffer = self.store.pool.seams().metadata.take(PAGE_BYTES).await;
                        let pieces = holder.slab.pieces(at, PAGE_BYTES);
                        slots.extend(
                            pieces.first().map(|piece| holder.disk.read_within(piece.at, buffer, within)),
                        );
                    }
                }
            }
            reads.push((holder, slots));
        }
        let mut found = Vec::with_capacity(reads.len());
        let mut is_timed_out = false;
        for (holder, slots) in reads {
            let mut slots_found = FoundSlots::default();
            for slot in slots {
                let (bytes, result) = slot.await;
                is_timed_out |= wait == HedgeDelay::Short && result == Err(DeviceError::TimedOut);
                match result {
                    Ok(()) => bytes.chunks_exact(PAGE_BYTES).for_each(|slot| slots_found.note(slot, name)),
                    // One of the two may be good.
                    Err(error) if bytes.len() > PAGE_BYTES && !is_silence(error) => {
                        self.read_slots(row, &holder, name, &mut slots_found).await;
                    }
                    Err(error) => slots_found.is_silent |= is_silence(error),
                }
            }
            // Nothing may be concluded from the silence of a disk that has just left.
            if !slots_found.is_silent {
                found.push(FoundPage::new(holder, slots_found));
            }
        }
        (found, is_timed_out)
    }

    /// Memory for both slots of a page on each of its slabs, if they lie together on all of them and there is enough; else none.
    /// Nobody waits for it: it only saves reads.
    fn memory_for_pairs(self, row: &Row, holders: &[Holder], index: usize) -> SmallVec<[Buffer; 2]> {
        let mut pairs = SmallVec::new();
        for holder in holders {
            let at = row.page_at(holder.place, index, 0);
            let lie_together = holder.slab.pieces(at, 2 * PAGE_BYTES).len() == 1;
            let memory = &self.store.pool.seams().metadata;
            match lie_together.then(|| memory.try_take_fitting(2 * PAGE_BYTES)).flatten() {
                Some(pair) => pairs.push(pair),
                None => return SmallVec::new(),
            }
        }
        pairs
    }

    /// Reads the slots of a page on a slab, each by itself.
    #[pooled]
    async fn read_slots(self, row: &Row, holder: &Holder, name: PageName, into: &mut FoundSlots) {
        for slot in 0..2 {
            let at = row.page_at(holder.place, name.index as usize, slot);
            for piece in holder.slab.pieces(at, PAGE_BYTES) {
                let buffer = self.store.pool.seams().metadata.take(PAGE_BYTES).await;
                let (bytes, result) = holder.disk.read(piece.at, buffer).await;
                match result {
                    Ok(()) => into.note(&bytes, name),
                    Err(error) => into.is_silent |= is_silence(error),
                }
            }
        }
    }

    /// Gives a page to copies that lack it: same content, same generation, and the one before, so that both slots are
    /// sound again. Counted as errors of their disks are those that are meant.
    async fn heal_page(
        self,
        lacking: &[FoundPage],
        (row, column, index): (&Rc<Row>, usize, usize),
        page: &Page,
        is_error: impl Fn(&FoundPage) -> bool,
    ) {
        if !self.store.may_write() {
            return;
        }
        for copy in lacking {
            if copy.slab.stale.is_none() && is_error(copy) {
                copy.disk.note(|counters| counters.checksum_errors += 1);
            }
            for back in [1, 0] {
                let mut buffer = self.store.pool.seams().metadata.take(PAGE_BYTES).await;
                let generation = page.copy_sealed(self.page_name(row, column, index), back, &mut buffer);
                let at = row.page_at(copy.place, index, generation);
                let frozen = buffer.freeze();
                for piece in copy.slab.pieces(at, PAGE_BYTES) {
                    if copy.disk.write(piece.at, frozen.clone(), Durability::Cached).await.is_ok() {
                        copy.disk.note(|counters| counters.healed_blocks += 1);
                    }
                }
            }
        }
    }

    /// Whether a page is where it was written, as its disk said, if that slab alone has it. Of several copies one that missed a
    /// write is told by its generation; an only one would be believed with what it had before.
    #[pooled]
    pub(crate) async fn is_only_copy_there(self, given: &GivenPage) -> bool {
        let GivenPage { row, column, index, page } = given;
        let mut holders = SmallVec::<[(Rc<Disk>, Slab, TablePlace); 2]>::new();
        row.for_each_table(*column, |slab, place| {
            let disk = slab.present(&self.store.pool).filter(|_| slab.stale.is_none());
            holders.extend(disk.map(|disk| (disk, slab.clone(), place)));
        });
        let [(disk, slab, place)] = holders.as_slice() else { return true };
        if mutation!(SoleTableTrusted) {
            return true;
        }
        let name = self.page_name(row, *column, *index);
        // Nobody may have written the other slot, which then got the same.
        for back in 0..1 + u64::from(page.is_unpaired()) {
            let generation = page.sealed_generation().saturating_sub(back);
            let at = row.page_at(*place, *index, slot_of(page, generation));
            for piece in slab.pieces(at, PAGE_BYTES) {
                let buffer = self.store.pool.seams().metadata.take(PAGE_BYTES).await;
                let (bytes, result) = disk.read(piece.at, buffer).await;
                let found = result.ok().and_then(|()| Page::generation_in(&bytes, name));
                // What stood there before may have the same number, of a write-back that came to nothing.
                if found == Some(generation) && page.is_as_sealed(&bytes, generation) {
                    continue;
                }
                // Of a row that was freed meanwhile, whoever has its place now has written there.
                let is_deleting = row.freed.get();
                if found.is_some() && !is_deleting {
                    disk.note(|counters| counters.checksum_errors += 1);
                }
                return is_deleting;
            }
        }
        true
    }

    /// Pages that one slab alone has without those on a disk, and that it has not got as they were written last: its disk said that
    /// it wrote them, and did not. Nobody could tell once that slab is all that there is. Nothing where its disk does not answer. A
    /// write-back of a page of the row overtakes this.
    #[pooled]
    pub(crate) async fn tables_lacking_without(
        self,
        row: &Rc<Row>,
        from: DiskSlot,
    ) -> Option<Vec<(usize, usize)>> {
        let mut lacking = Vec::new();
        if !row.is_formatted() {
            return Some(lacking);
        }
        for column in 0..row.shape.columns() {
            let (mut is_there, mut others_count) = (false, 0_u32);
            row.for_each_table(column, |slab, _| {
                is_there |= slab.disk == from;
                others_count += u32::from(slab.disk != from && slab.stale.is_none());
            });
            if !is_there || others_count != 1 {
                continue;
            }
            for index in 0..row.map(column).pages() {
                let (found, _) = self.find_page(row, column, index, HedgeDelay::Long).await;
                let trusted = || found.iter().filter(|copy| copy.slab.stale.is_none());
                let newest = trusted().filter_map(FoundPage::generation).max();
                let last = trusted().find(|copy| copy.slab.disk != from)?;
                // A write-back that came to nothing may have given the same number to what is older.
                let differs = trusted().any(|copy| copy.slab.disk == from && copy.contradicts(last));
                if !last.whole || last.generation() != newest || differs {
                    lacking.push((column, index));
                }
            }
        }
        Some(lacking)
    }

    /// Whether the blocks of a column can be had from slabs that hold everything and are here.
    pub(crate) fn is_in_reach(self, row: &Row, column: usize) -> bool {
        row.has_blocks_on(column, |slab| slab.present(&self.store.pool).is_some())
    }

    /// Whether it can be told what became of blocks of a column that no flush has covered. With parity that takes as many
    /// columns as there are of data: what was written in place there was written in whole stripes.
    pub(crate) fn is_decidable(self, row: &Row, column: usize) -> bool {
        let is_here = |slab: &Slab| slab.stale.is_none() && slab.present(&self.store.pool).is_some();
        match row.shape.unit() {
            Unit::Stripe => row.is_decodable_from(is_here),
            Unit::Block => row.with_slabs(column, |slabs| slabs.iter().any(is_here)),
        }
    }

    /// Whether some slab that has the table of a column, and holds everything, is here.
    pub(crate) fn is_table_in_reach(self, row: &Row, column: usize) -> bool {
        row.has_table_on(column, |slab| slab.stale.is_none() && slab.present(&self.store.pool).is_some())
    }

    /// Whether a page of the table of a column that was given to these disks counts: some slab that holds everything has it,
    /// and every one that lacks it will be called stale. With parity that is not so where too many columns are away: they keep
    /// what they have, and would be believed with an older page.
    pub(crate) fn is_table_held_by(row: &Row, column: usize, disks: &BTreeSet<DiskSlot>) -> bool {
        let is_there = |slab: &Slab| disks.contains(&slab.disk);
        let mut is_believed = false;
        row.for_each_table(column, |slab, place| {
            let lacks_it = slab.stale.is_none() && !is_there(slab);
            is_believed |= lacks_it && !row.has_blocks_on(place.holder(), is_there);
        });
        !is_believed && row.has_table_on(column, |slab| slab.stale.is_none() && is_there(slab))
    }

    /// Says which pages of a row a write-back takes, with what they say now: those that are dirty; of a row without tables on
    /// its disks, all.
    pub(crate) fn gather_pages(self, row: &Rc<Row>) {
        row.dirty.set(false);
        let formatting = !row.is_formatted();
        for (column, index) in row.places_of_pages().filter(|_| formatting) {
            if row.page(column, index).is_none() {
                self.keep(row, column, index, Page::blank());
            }
        }
        let taken = row.pages().into_iter().filter(|(_, _, page)| formatting || page.is_dirty());
        taken.for_each(|(_, _, page)| page.await_seal());
    }

    /// Keeps the number of pages in memory in bounds: rows given are asked to drop what is idle.
    pub(crate) fn trim_pages<'a>(self, rows: impl Iterator<Item = &'a Rc<Row>>) {
        let dropped: usize = rows.map(|row| row.drop_pages()).sum();
        self.store.page_count.set(self.store.page_count.get().saturating_sub(dropped));
    }

    /// Notes that the pages of a row that is gone are none any more.
    pub(crate) fn forget_pages(self, row: &Row) {
        self.store.page_count.set(self.store.page_count.get().saturating_sub(row.page_count()));
    }

    /// Whether pages should be dropped.
    pub(crate) fn has_many_pages(self) -> bool {
        self.store.page_count.get() > PAGES_MAX
    }

    /// Whether tables should be written back although the log has room.
    pub(crate) fn has_many_dirty_pages(self) -> bool {
        let dirty_rows = self.store.dirty_rows.borrow();
        dirty_rows.iter().map(|row| row.dirty_page_count()).sum::<usize>() > DIRTY_PAGES_MAX
    }

    /// The error for a block of a column that cannot be read.
    pub(crate) fn unreadable(
        self,
        row: &Row,
        column: usize,
        block: usize,
        why: UnreadableReason,
    ) -> SpaceError {
        let block = row.shape.row_block(column, u32::try_from(block).unwrap_or(0));
        SpaceError::Unreadable {
            name: self.store.name_of(row.space),
            at: row.index * row.bytes() + u64::from(block) * BLOCK_BYTES,
            length: Bytes(BLOCK_BYTES),
            why,
        }
    }

    /// What the tables say of a stripe.
    #[pooled]
    pub(crate) async fn stripe_states(self, row: &Rc<Row>, stripe: u32) -> Result<StripeStates, SpaceError> {
        let mut states = StripeStates::new();
        for column in 0..row.shape.columns() {
            if stripe >= row.shape.column_blocks(column) {
                states.push(BlockState::Never);
                continue;
            }
            let (index, entry) = place_in_page(stripe);
            states.push(self.page(row, column, index).await?.state(entry));
        }
        // Of a shadow row that does not know what parity says of a stripe, nobody knows whose its blocks are that it lacks.
        if row.is_shadow() && states.get(row.shape.data_columns()) == Some(&BlockState::Damaged) {
            let lacks = |(column, state): &(usize, &mut BlockState)| {
                **state == BlockState::Never && stripe < row.shape.column_blocks(*column)
            };
            states.iter_mut().enumerate().filter(lacks).for_each(|(_, state)| *state = BlockState::Damaged);
        }
        Ok(states)
    }
}

const _: () = assert!(
    ALLOCATION_UNIT_BYTES.is_multiple_of(PAGE_BYTES as u64),
    "a page never straddles two runs of a slab"
);

/// What the tables say of the blocks of a stripe, by column; one that a shorter column does not have was never written.
pub(crate) type StripeStates = SmallVec<[BlockState; 16]>;
