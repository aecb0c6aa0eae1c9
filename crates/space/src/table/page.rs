//! Tables in memory: what is known of each block of a column, page by page.
//!
//! A page on disk must say only what a flush has covered; else, after a power cut, it would promise data that never
//! arrived and the record of what was there before would be gone. Writes go on while pages are written back, so a
//! write-back begins with a ticket: writes with earlier tickets count in, a later one first leaves the page as it was
//! behind as a *snapshot*. When all earlier writes have ended and were flushed, snapshot or page is what goes to disk.

use std::cell::{Cell, RefCell};
use std::mem::offset_of;

use dolmen_checksum::{crc64, crc64_of_parts};
use dolmen_units::{PoolId, RowId};
use zerocopy::{FromBytes, IntoBytes};

use crate::format::raw::{PAGE_BYTES, PAGE_ENTRIES, PAGE_MAGIC, RawEntry, RawPage, VERSION};
use crate::format::record::{BlockState, Stamp};
use crate::layout::plan::WriteClass;
use crate::resources::locks::Range;
use crate::resources::tickets::Ticket;

const WORDS: usize = PAGE_ENTRIES.div_ceil(64);

type Entries = [RawEntry; PAGE_ENTRIES];

/// Blocks of a page that are special until a flush has covered them.
#[derive(Default)]
struct Unflushed {
    /// The latest interval in which something was noted.
    interval: u64,
    /// Written in that interval, with nothing flushed below.
    written: [u64; WORDS],
    /// Discarded in that interval or an earlier one that no flush had covered, with flushed content below.
    discarded: [u64; WORDS],
    /// The latest interval before that in which blocks were discarded, and which: its flush may be under way while the next ones are.
    before: u64,
    discarded_before: [u64; WORDS],
}

/// A page of a table.
pub(crate) struct Page {
    entries: RefCell<Box<Entries>>,
    snapshot: RefCell<Option<Box<Entries>>>,
    generation: Cell<u64>,
    /// The generation that a flush has covered.
    durable: Cell<u64>,
    /// Checksums of the bytes that were given to the two slots last: a generation that came to nothing is given again.
    sealed: Cell<[u64; 2]>,
    /// Whether both slots have to be written, because nobody knows what the other one holds.
    unpaired: Cell<bool>,
    dirty: Cell<bool>,
    /// A write-back has all that it waits for and is about to take the page: from now on every change leaves a snapshot.
    awaiting_seal: Cell<bool>,
    unflushed: RefCell<Unflushed>,
    used: Cell<bool>,
}

/// Which page this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageName {
    pub(crate) pool: PoolId,
    pub(crate) row: RowId,
    pub(crate) column: u16,
    pub(crate) index: u32,
}

impl Page {
    /// A page of blocks that were never written.
    pub(crate) fn blank() -> Self {
        Self::with(Box::new([RawEntry::default(); PAGE_ENTRIES]), 0)
    }

    fn with(entries: Box<Entries>, generation: u64) -> Self {
        Self {
            entries: RefCell::new(entries),
            snapshot: RefCell::new(None),
            generation: Cell::new(generation),
            durable: Cell::new(generation),
            sealed: Cell::default(),
            unpaired: Cell::new(generation == 0),
            dirty: Cell::new(false),
            awaiting_seal: Cell::new(false),
            unflushed: RefCell::default(),
            used: Cell::new(true),
        }
    }

    /// A page of which nothing is known any more: every block is damaged until it is written. `generation` is the highest
    /// that was seen of it.
    pub(crate) fn lost(generation: u64) -> Self {
        let entry = RawEntry { state: crate::format::raw::STATE_DAMAGED, ..RawEntry::default() };
        let page = Self::with(Box::new([entry; PAGE_ENTRIES]), generation);
        page.unpaired.set(true);
        page.dirty.set(true);
        page
    }

    /// The generation of the page in the bytes of a slot, if they hold this very page.
    pub(crate) fn generation_in(bytes: &[u8], name: PageName) -> Option<u64> {
        let raw = RawPage::ref_from_bytes(bytes).ok()?;
        let ours = raw.magic == PAGE_MAGIC
            && raw.version.get() == VERSION
            && raw.pool == name.pool.0
            && raw.row.get() == name.row.0
            && raw.column.get() == name.column
            && raw.index.get() == name.index
            && raw.reserved == [0; 12];
        // The checksum counts as zeros in itself.
        let front = bytes.get(..offset_of!(RawPage, checksum))?;
        let zeros = [0; size_of::<u64>()];
        let is_sound = || crc64_of_parts(&[front, &zeros, raw.entries.as_bytes()]) == raw.checksum.get();
        (ours && is_sound()).then(|| raw.generation.get())
    }

    /// The page in the bytes of a slot in which [`generation_in`](Self::generation_in) found this generation.
    pub(crate) fn of_sound(bytes: &[u8], generation: u64) -> Option<Self> {
        let raw = RawPage::ref_from_bytes(bytes).ok()?;
        Some(Self::with(Box::new(raw.entries), generation))
    }

    /// The bytes to write for the next generation, and that generation: the snapshot if there is one.
    pub(crate) fn seal(&self, name: PageName, into: &mut [u8]) -> u64 {
        let generation = self.generation.get() + 1;
        self.generation.set(generation);
        let snapshot = self.snapshot.borrow();
        let live = self.entries.borrow();
        encode(snapshot.as_ref().unwrap_or(&live), generation, name, into);
        let mut sealed = self.sealed.get();
        if let Some(slot) = sealed.get_mut(slot_index(generation)) {
            *slot = checksum_in(into);
        }
        self.sealed.set(sealed);
        generation
    }

    /// Whether the bytes of a slot are those that were given to it last, as this generation.
    pub(crate) fn is_as_sealed(&self, bytes: &[u8], generation: u64) -> bool {
        self.sealed.get().get(slot_index(generation)) == Some(&checksum_in(bytes))
    }

    /// The bytes for a slot of a copy that lost them, `back` generations ago. Only for a page that was just read.
    pub(crate) fn copy_sealed(&self, name: PageName, back: u64, into: &mut [u8]) -> u64 {
        let generation = self.generation.get().saturating_sub(back);
        encode(&self.entries.borrow(), generation, name, into);
        generation
    }

    /// The bytes for both slots of a copy that has nothing, as they lie beside each other on disk.
    pub(crate) fn copy_slots(&self, name: PageName, into: &mut [u8]) {
        let newest = self.generation.get();
        for (slot, bytes) in into.chunks_exact_mut(PAGE_BYTES).enumerate() {
            let back = u64::from(slot != slot_index(newest));
            encode(&self.entries.borrow(), newest.saturating_sub(back), name, bytes);
        }
    }

    /// Whether it says the same of every block.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.entries.borrow().as_bytes() == other.entries.borrow().as_bytes()
    }

    /// Whether any slot was ever written from it, or it was read from one.
    pub(crate) fn was_sealed(&self) -> bool {
        self.generation.get() > 0
    }

    /// Notes that what [`seal`](Self::seal) gave is on its way to the disks. Whatever came later is still dirty.
    pub(crate) fn sealed(&self) {
        self.awaiting_seal.set(false);
        let newer = self.snapshot.borrow_mut().take().is_some();
        self.dirty.set(newer);
    }

    /// Notes that a write-back has all that it waits for: what the page or its snapshot says now is to be written.
    pub(crate) fn await_seal(&self) {
        self.awaiting_seal.set(true);
    }

    /// Whether its disks have for certain all that it says.
    pub(crate) fn is_durable(&self) -> bool {
        !self.dirty.get() && !self.awaiting_seal.get() && self.durable.get() == self.generation.get()
    }

    /// Whether a write-back that is under way takes it.
    pub(crate) fn is_awaiting_seal(&self) -> bool {
        self.awaiting_seal.get()
    }

    /// Notes that the page stays in memory this time: the next write-back takes all that it says.
    pub(crate) fn keep_back(&self) {
        self.awaiting_seal.set(false);
        *self.snapshot.borrow_mut() = None;
    }

    /// Whether [`seal`](Self::seal) has to be called twice in a row, for both slots.
    pub(crate) fn is_unpaired(&self) -> bool {
        self.unpaired.get()
    }

    /// Has the next write-back write it although nothing changed: to both slots, or only to the one whose turn it is.
    pub(crate) fn write_again(&self, both: bool) {
        self.unpaired.set(self.unpaired.get() || both);
        self.dirty.set(true);
    }

    /// The generation that was given to its disks last.
    pub(crate) fn sealed_generation(&self) -> u64 {
        self.generation.get()
    }

    /// Notes that a flush has covered what was sealed.
    pub(crate) fn note_durable(&self) {
        self.durable.set(self.generation.get());
        self.unpaired.set(false);
    }

    /// Notes that nobody knows what became of what was sealed. The next attempt goes to the same slot: the other one has
    /// what a flush has covered.
    pub(crate) fn note_unwritten(&self) {
        self.dirty.set(true);
        self.generation.set(self.durable.get());
    }

    /// The generation that its disks have for certain.
    pub(crate) fn durable_generation(&self) -> u64 {
        self.durable.get()
    }

    /// Whether it says more than its disks.
    pub(crate) fn is_dirty(&self) -> bool {
        self.dirty.get()
    }

    /// Whether it was used since the last call.
    pub(crate) fn take_used(&self) -> bool {
        self.used.replace(false)
    }

    /// What is known of a block.
    pub(crate) fn state(&self, index: usize) -> BlockState {
        self.used.set(true);
        let entry = self.entries.borrow().get(index).copied().unwrap_or_default();
        BlockState::from_parts(entry.state, entry.checksum.get())
    }

    /// Returns whether this is known of a block, without counting as a use of the page.
    pub(crate) fn has_state(&self, index: usize, state: BlockState) -> bool {
        let entry = self.entries.borrow().get(index).copied().unwrap_or_default();
        BlockState::from_parts(entry.state, entry.checksum.get()) == state
    }

    /// When a block was written.
    pub(crate) fn stamp(&self, index: usize) -> Stamp {
        Stamp(self.entries.borrow().get(index).copied().unwrap_or_default().stamp)
    }

    /// Blocks that hold data or damage.
    pub(crate) fn used_count(&self) -> usize {
        self.entries.borrow().iter().filter(|entry| entry.state != 0).count()
    }

    /// How a block may be written.
    ///
    /// A flush that has begun may cover what was written before, or may not, until it has ended: a write of that time is
    /// taken for flushed, and a discard for not flushed.
    pub(crate) fn class(&self, index: usize, now: Now) -> WriteClass {
        let unflushed = self.unflushed.borrow();
        let written = unflushed.interval == now.interval && bit(&unflushed.written, index);
        let discarded = unflushed.has_discarded(index, now.covered);
        match self.state(index) {
            BlockState::Never if discarded => WriteClass::Overwrite,
            BlockState::Never => WriteClass::Fresh,
            _ if written => WriteClass::Rewrite,
            _ => WriteClass::Overwrite,
        }
    }

    /// Changes what is known of a block. `frozen` is the ticket of a write-back in progress: a write that began later
    /// leaves a snapshot behind, one that began earlier counts in.
    pub(crate) fn set(&self, index: usize, state: BlockState, stamp: Stamp, now: Now) {
        self.note_unflushed(index, state, now);
        let (state, checksum) = state.parts();
        let entry = RawEntry { checksum: checksum.into(), stamp: stamp.0, state };
        self.put(index, entry, now.ticket, now.frozen);
    }

    /// As [`set`](Self::set), for what was put in place of a block and flushed there: what a flush has covered stood in for it
    /// until now.
    pub(crate) fn set_destaged(&self, index: usize, state: BlockState, stamp: Stamp, now: Now) {
        self.set(index, state, stamp, now);
        set_bit(&mut self.unflushed.borrow_mut().written, index, false);
    }

    /// Changes when a block was written, and nothing else.
    pub(crate) fn restamp(&self, index: usize, stamp: Stamp, ticket: Ticket, frozen: Option<Ticket>) {
        let entry = self.entries.borrow().get(index).copied().unwrap_or_default();
        self.put(index, RawEntry { stamp: stamp.0, ..entry }, ticket, frozen);
    }

    fn put(&self, index: usize, entry: RawEntry, ticket: Ticket, frozen: Option<Ticket>) {
        let mut snapshot = self.snapshot.borrow_mut();
        if self.awaiting_seal.get() || frozen.is_some_and(|limit| ticket >= limit) {
            snapshot.get_or_insert_with(|| self.entries.borrow().clone());
        } else if let Some(place) = snapshot.as_mut().and_then(|snapshot| snapshot.get_mut(index)) {
            *place = entry;
        }
        drop(snapshot);
        if let Some(place) = self.entries.borrow_mut().get_mut(index) {
            *place = entry;
        }
        self.dirty.set(true);
        self.used.set(true);
    }

    fn note_unflushed(&self, index: usize, state: BlockState, now: Now) {
        let class = self.class(index, now);
        let mut unflushed = self.unflushed.borrow_mut();
        unflushed.go_on_to(now);
        let nothing_below = class != WriteClass::Overwrite;
        let never = state == BlockState::Never;
        let in_time = unflushed.interval == now.interval;
        set_bit(&mut unflushed.written, index, nothing_below && !never && in_time);
        set_bit(&mut unflushed.discarded, index, !nothing_below && never);
        set_bit(&mut unflushed.discarded_before, index, false);
    }
}

impl Unflushed {
    /// Whether a block was discarded and no flush has covered that, the latest that was covered being this.
    fn has_discarded(&self, index: usize, covered: Option<u64>) -> bool {
        let is_open = |interval: u64| covered.is_none_or(|covered| covered < interval);
        (bit(&self.discarded, index) && is_open(self.interval))
            || (bit(&self.discarded_before, index) && is_open(self.before))
    }

    /// Forgets what a flush has covered, and begins the interval of a change if that is a new one.
    fn go_on_to(&mut self, now: Now) {
        if now.has_covered(self.before) {
            self.discarded_before = [0; WORDS];
        }
        if now.has_covered(self.interval) {
            self.discarded = [0; WORDS];
        }
        if self.interval < now.interval {
            if self.discarded != [0; WORDS] {
                self.before = self.interval;
                for (all, more) in self.discarded_before.iter_mut().zip(self.discarded) {
                    *all |= more;
                }
            }
            self.discarded = [0; WORDS];
            self.interval = now.interval;
            self.written = [0; WORDS];
        }
    }
}

/// Which of the two slots a generation goes to.
fn slot_index(generation: u64) -> usize {
    usize::from(!generation.is_multiple_of(2))
}

/// What stands for the checksum in the bytes of a slot.
fn checksum_in(bytes: &[u8]) -> u64 {
    RawPage::ref_from_bytes(bytes).map_or(0, |raw| raw.checksum.get())
}

fn encode(entries: &Entries, generation: u64, name: PageName, into: &mut [u8]) {
    let mut raw = RawPage {
        magic: PAGE_MAGIC,
        version: VERSION.into(),
        column: name.column.into(),
        pool: name.pool.0,
        row: name.row.0.into(),
        generation: generation.into(),
        index: name.index.into(),
        reserved: [0; 12],
        checksum: 0.into(),
        entries: *entries,
    };
    raw.checksum = crc64(raw.as_bytes()).into();
    into.copy_from_slice(raw.as_bytes());
}

/// The circumstances of a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    /// The ticket of the write.
    pub(crate) ticket: Ticket,
    /// The flush interval in which it began: counts the flushes that have begun.
    pub(crate) interval: u64,
    /// The latest interval that a flush has covered to its end.
    pub(crate) covered: Option<u64>,
    /// The first ticket that a write-back in progress leaves out.
    pub(crate) frozen: Option<Ticket>,
}

impl Now {
    fn has_covered(&self, interval: u64) -> bool {
        self.covered.is_some_and(|covered| covered >= interval)
    }
}

fn bit(words: &[u64; WORDS], index: usize) -> bool {
    words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
}

fn set_bit(words: &mut [u64; WORDS], index: usize, value: bool) {
    if let Some(word) = words.get_mut(index / 64) {
        let mask = 1 << (index % 64);
        *word = if value { *word | mask } else { *word & !mask };
    }
}

/// The page of a block of a column, and its entry there.
pub(crate) fn place_in_page(block: u32) -> (usize, usize) {
    let block = block as usize;
    (block / crate::format::raw::PAGE_ENTRIES, block % crate::format::raw::PAGE_ENTRIES)
}

/// Cuts a range of a column where its table pages end.
pub(crate) fn by_page(range: Range) -> impl Iterator<Item = Range> {
    let end = range.first + range.count;
    let mut first = range.first;
    std::iter::from_fn(move || {
        if first == end {
            return None;
        }
        let entries = u32::try_from(crate::format::raw::PAGE_ENTRIES).unwrap_or(1);
        let to = end.min((first / entries + 1) * entries);
        let part = Range { first, count: to - first };
        first = to;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dolmen_units::Epoch;

    const NAME: PageName = PageName { pool: PoolId([1; 16]), row: RowId(5), column: 2, index: 3 };

    fn now(ticket: u64, interval: u64, frozen: Option<u64>) -> Now {
        Now { ticket: Ticket(ticket), interval, covered: None, frozen: frozen.map(Ticket) }
    }

    fn parsed(bytes: &[u8], name: PageName) -> Option<(Page, u64)> {
        let generation = Page::generation_in(bytes, name)?;
        Some((Page::of_sound(bytes, generation)?, generation))
    }

    fn sealed(page: &Page) -> Page {
        let mut bytes = vec![0; 4096];
        page.seal(NAME, &mut bytes);
        parsed(&bytes, NAME).unwrap().0
    }

    #[test]
    fn a_page_is_believed_only_where_it_belongs() {
        let page = Page::blank();
        page.set(7, BlockState::Valid(9), Stamp::of(Epoch(3)), now(0, 1, None));
        let mut bytes = vec![0; 4096];
        assert_eq!(page.seal(NAME, &mut bytes), 1);
        let (read, generation) = parsed(&bytes, NAME).unwrap();
        assert_eq!((read.state(7), generation), (BlockState::Valid(9), 1));
        assert!(parsed(&bytes, PageName { row: RowId(6), ..NAME }).is_none());
        assert!(parsed(&bytes, PageName { index: 2, ..NAME }).is_none());
        for bit in (0..4096 * 8).step_by(37) {
            let mut torn = bytes.clone();
            torn[bit / 8] ^= 1 << (bit % 8);
            assert!(parsed(&torn, NAME).is_none(), "bit {bit}");
        }
    }

    #[test]
    fn a_write_back_takes_earlier_writes_and_leaves_later_ones() {
        let page = Page::blank();
        let stamp = Stamp::of(Epoch(1));
        page.set(0, BlockState::Valid(1), stamp, now(1, 1, None));
        page.set(0, BlockState::Valid(2), stamp, now(6, 1, Some(5)));
        page.set(1, BlockState::Valid(3), stamp, now(4, 1, Some(5)));
        let on_disk = sealed(&page);
        assert_eq!((on_disk.state(0), on_disk.state(1)), (BlockState::Valid(1), BlockState::Valid(3)));
        page.sealed();
        assert!(page.is_dirty(), "the later write is still to be written back");
        assert_eq!(sealed(&page).state(0), BlockState::Valid(2));
        page.sealed();
        assert!(!page.is_dirty());
    }

    #[test]
    fn the_class_of_a_write_follows_what_a_flush_covered() {
        let page = Page::blank();
        let stamp = Stamp::of(Epoch(1));
        let covered = |interval, covered| Now { covered: Some(covered), ..now(9, interval, None) };
        assert_eq!(page.class(0, now(1, 1, None)), WriteClass::Fresh);
        page.set(0, BlockState::Valid(1), stamp, now(1, 1, None));
        assert_eq!(page.class(0, now(2, 1, None)), WriteClass::Rewrite);
        assert_eq!(page.class(0, now(2, 2, None)), WriteClass::Overwrite, "a flush has begun");
        page.set(0, BlockState::Valid(2), stamp, now(2, 2, None));
        assert_eq!(page.class(0, now(3, 2, None)), WriteClass::Overwrite, "something flushed is below");
        page.set(0, BlockState::Never, stamp, now(3, 2, None));
        assert_eq!(page.class(0, now(4, 2, None)), WriteClass::Overwrite, "the discard is not flushed");
        assert_eq!(page.class(0, now(4, 3, None)), WriteClass::Overwrite, "a flush has begun, and may fail");
        assert_eq!(page.class(0, covered(3, 2)), WriteClass::Fresh, "the discard is flushed");
        page.set(4, BlockState::Never, stamp, now(3, 3, None));
        assert_eq!(page.class(0, covered(4, 2)), WriteClass::Fresh, "whatever was discarded since");
        page.set(5, BlockState::Valid(1), stamp, covered(3, 2));
        page.set(5, BlockState::Never, stamp, covered(4, 3));
        page.set(6, BlockState::Never, stamp, covered(5, 3));
        assert_eq!(
            page.class(5, covered(5, 3)),
            WriteClass::Overwrite,
            "discarded while a flush was under way"
        );
        assert_eq!(page.class(5, covered(5, 4)), WriteClass::Fresh, "the next one has covered it");
        page.set(2, BlockState::Valid(1), stamp, covered(6, 2));
        page.set(1, BlockState::Valid(2), stamp, covered(5, 2));
        assert_eq!(
            page.class(1, covered(6, 2)),
            WriteClass::Overwrite,
            "it began before the flush that began"
        );
    }
}
