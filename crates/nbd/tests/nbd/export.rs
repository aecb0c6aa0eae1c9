//! Exports in memory, which fail where they are told to and take their time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

use dolmen_block_io::Durability;
use dolmen_block_io::sync::Notify;
use dolmen_buffer::{Arena, Shared};
use dolmen_nbd::{
    Access, BlockState, Export, ExportError, Exports, Extents, Holes, Listed, Medium, PIECE_BYTES_MAX,
    Profile, ReadError, Refusal, Segments, ZeroMode, Zeroing,
};
use dolmen_units::Bytes;

use crate::world::Dice;

pub(crate) const UNIT: u64 = 512;

/// One export: content, and which sectors are allocated.
pub(crate) struct MemoryExport {
    profile: Profile,
    arena: Arena,
    dice: Rc<Dice>,
    pub(crate) content: RefCell<Vec<u8>>,
    allocated: RefCell<Vec<bool>>,
    /// Sectors that cannot be read.
    pub(crate) bad: RefCell<BTreeSet<u64>>,
    /// What the next change fails with.
    pub(crate) fails: Cell<Option<ExportError>>,
    /// Requests wait while this is set.
    pub(crate) held: Cell<bool>,
    pub(crate) notify: Notify,
    pub(crate) durable_changes: Cell<usize>,
    pub(crate) flushes: Cell<usize>,
    pub(crate) cached: Cell<u64>,
    /// The range of each change.
    pub(crate) parts: RefCell<Vec<Range<u64>>>,
    pub(crate) under_way: Cell<usize>,
    pub(crate) under_way_most: Cell<usize>,
}

impl MemoryExport {
    async fn begin(&self) {
        self.under_way.set(self.under_way.get() + 1);
        self.under_way_most.set(self.under_way_most.get().max(self.under_way.get()));
        for _ in 0..self.dice.roll(4) {
            let mut asked = false;
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if std::mem::replace(&mut asked, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        self.notify.wait_for(|| (!self.held.get()).then_some(())).await;
    }

    fn end(&self) {
        self.under_way.set(self.under_way.get() - 1);
    }

    fn check(&self, range: &Range<u64>) {
        assert!(!range.is_empty() && range.end <= self.profile.size.0, "{range:?} was checked");
    }

    fn change(&self, range: &Range<u64>, durability: Durability) -> Result<(), ExportError> {
        self.check(range);
        assert_eq!(self.profile.access, Access::ReadWrite, "changes were refused before");
        if durability == Durability::Durable {
            self.durable_changes.set(self.durable_changes.get() + 1);
        }
        self.fails.take().map_or(Ok(()), Err)
    }

    fn fill(&self, range: &Range<u64>, zero: bool, allocate: bool) {
        self.parts.borrow_mut().push(range.clone());
        if self.content.borrow().is_empty() {
            return;
        }
        let bounds = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        if zero {
            self.content.borrow_mut()[bounds].fill(0);
        }
        // A part of a sector has room as the rest of it has, and gets some where it is to have it.
        let changed = if allocate { sectors(range) } else { whole_sectors(range) };
        self.allocated.borrow_mut()[changed].fill(allocate);
    }

    fn run(&self, start: u64, end: u64) -> (u64, bool) {
        if self.content.borrow().is_empty() {
            return (end - start, false);
        }
        let allocated = &self.allocated.borrow()[sectors(&(start..end))];
        let state = allocated[0];
        let run = allocated.iter().position(|other| *other != state).unwrap_or(allocated.len());
        (((start / UNIT + run as u64) * UNIT).min(end) - start, state)
    }
}

/// Sectors that a range touches.
pub(crate) fn sectors(range: &Range<u64>) -> Range<usize> {
    usize::try_from(range.start / UNIT).unwrap()..usize::try_from(range.end.div_ceil(UNIT)).unwrap()
}

/// Sectors that lie in a range.
pub(crate) fn whole_sectors(range: &Range<u64>) -> Range<usize> {
    let first = usize::try_from(range.start.div_ceil(UNIT)).unwrap();
    first..usize::try_from(range.end / UNIT).unwrap().max(first)
}

impl Export for MemoryExport {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn read(&self, range: Range<u64>, into: &mut Segments) -> Result<(), ReadError> {
        self.check(&range);
        assert!(range.end - range.start <= PIECE_BYTES_MAX && into.length() == 0);
        self.begin().await;
        // All memory is taken in one go, as the contract asks, and split along the runs.
        let mut rest = Some(self.arena.take(usize::try_from(range.end - range.start).unwrap()).await);
        let mut at = range.start;
        while at < range.end {
            let (length, allocated) = self.run(at, range.end);
            let length = length.min(16384 * (1 + self.dice.roll(8) as u64));
            if let Some(sector) = self.bad.borrow().range(at / UNIT..(at + length).div_ceil(UNIT)).next() {
                // Nothing of this run, or what lies before the bad sector and garbage behind it.
                let good = usize::try_from((sector * UNIT).saturating_sub(at)).unwrap();
                if self.dice.roll(2) == 0 && good > 0 {
                    let mut part = rest.take().unwrap();
                    part.truncate(good);
                    let from = usize::try_from(at).unwrap();
                    part.copy_from_slice(&self.content.borrow()[from..from + good]);
                    into.push_data(part.freeze());
                    into.push_zeros(self.dice.roll(3) as u64 * UNIT);
                }
                self.end();
                return Err(ReadError { at: sector * UNIT, error: ExportError::Failed });
            }
            let mut part = rest.take().unwrap();
            let bytes = usize::try_from(length).unwrap();
            rest = (bytes < part.len()).then(|| part.split_off(bytes));
            if allocated {
                let from = usize::try_from(at).unwrap();
                part.copy_from_slice(&self.content.borrow()[from..from + bytes]);
                into.push_data(part.freeze());
            } else {
                into.push_zeros(length);
            }
            at += length;
        }
        self.end();
        Ok(())
    }

    async fn write(&self, at: u64, from: Shared, durability: Durability) -> Result<(), ExportError> {
        let range = at..at + from.len() as u64;
        assert!(from.len() as u64 <= PIECE_BYTES_MAX && from.as_ptr().addr().is_multiple_of(4096));
        self.begin().await;
        let result = self.change(&range, durability);
        if result.is_ok() {
            let start = usize::try_from(at).unwrap();
            self.content.borrow_mut()[start..start + from.len()].copy_from_slice(&from);
            self.fill(&range, false, true);
        }
        self.end();
        result
    }

    async fn flush(&self) -> Result<(), ExportError> {
        self.begin().await;
        self.flushes.set(self.flushes.get() + 1);
        self.end();
        self.fails.take().map_or(Ok(()), Err)
    }

    async fn discard(&self, range: Range<u64>, durability: Durability) -> Result<(), ExportError> {
        self.begin().await;
        let result = self.change(&range, durability);
        if result.is_ok() {
            self.fill(&range, true, false);
        }
        self.end();
        result
    }

    async fn write_zeroes(&self, zeroing: Zeroing) -> Result<(), ExportError> {
        self.begin().await;
        let result = self.change(&zeroing.range, zeroing.durability);
        let slow = zeroing.zero_mode == ZeroMode::OnlyFast && zeroing.holes == Holes::Forbidden;
        let result = if slow { Err(ExportError::NotFast) } else { result };
        if result.is_ok() {
            self.fill(&zeroing.range, true, zeroing.holes == Holes::Forbidden);
        }
        self.end();
        result
    }

    async fn block_status(&self, range: Range<u64>, into: &mut Extents) -> Result<(), ExportError> {
        self.check(&range);
        self.begin().await;
        let mut at = range.start;
        loop {
            let (length, allocated) = self.run(at, range.end);
            let state = if allocated { BlockState::Data } else { BlockState::Hole };
            at += length;
            if into.push(length, state) == 0 {
                break;
            }
        }
        self.end();
        Ok(())
    }

    async fn cache(&self, range: Range<u64>) -> Result<(), ExportError> {
        self.check(&range);
        self.cached.set(self.cached.get() + range.end - range.start);
        Ok(())
    }
}

/// The exports `disk` (also the default), `sealed` (read-only, 4096-byte sectors), `vast` (no content, and far more of it
/// than 32 bits count), a name of 4096 bytes, and one that
/// nobody may have.
pub(crate) struct MemoryExports {
    pub(crate) disk: Rc<MemoryExport>,
    pub(crate) sealed: Rc<MemoryExport>,
    pub(crate) vast: Rc<MemoryExport>,
}

pub(crate) const DISK_BYTES: u64 = 80 << 20;
pub(crate) const VAST_BYTES: u64 = 1 << 60;
pub(crate) const SEALED_BYTES: u64 = 1 << 20;

pub(crate) fn longest_name() -> String {
    "n".repeat(4096)
}

/// Everybody may have what there is.
pub(crate) struct Visitor;

impl MemoryExports {
    pub(crate) fn new(arena: &Arena, dice: &Rc<Dice>) -> Self {
        let disk = Profile {
            name: "disk".to_owned(),
            description: "a disk in memory".to_owned(),
            size: Bytes(DISK_BYTES),
            block_bytes_min: 512,
            block_bytes_preferred: 65536,
            access: Access::ReadWrite,
            medium: Medium::Flash,
        };
        let sealed = Profile {
            name: "sealed".to_owned(),
            description: String::new(),
            size: Bytes(SEALED_BYTES),
            block_bytes_min: 4096,
            access: Access::ReadOnly,
            medium: Medium::Rotational,
            ..disk.clone()
        };
        let vast = Profile { name: "vast".to_owned(), size: Bytes(VAST_BYTES), ..disk.clone() };
        let export = |profile: Profile| {
            let has_content = profile.size.0 < VAST_BYTES;
            let size = if has_content { usize::try_from(profile.size.0).unwrap() } else { 0 };
            Rc::new(MemoryExport {
                profile,
                arena: arena.clone(),
                dice: Rc::clone(dice),
                content: RefCell::new(vec![0; size]),
                allocated: RefCell::new(vec![false; size / 512]),
                bad: RefCell::default(),
                fails: Cell::default(),
                held: Cell::default(),
                notify: Notify::new(),
                durable_changes: Cell::default(),
                flushes: Cell::default(),
                cached: Cell::default(),
                parts: RefCell::default(),
                under_way: Cell::default(),
                under_way_most: Cell::default(),
            })
        };
        Self { disk: export(disk), sealed: export(sealed), vast: export(vast) }
    }
}

impl Exports for MemoryExports {
    type Export = MemoryExport;
    type Visitor = Visitor;

    async fn open(&self, _visitor: &Visitor, name: &str) -> Result<Rc<MemoryExport>, Refusal> {
        match name {
            "" | "disk" => Ok(Rc::clone(&self.disk)),
            "sealed" => Ok(Rc::clone(&self.sealed)),
            "vast" => Ok(Rc::clone(&self.vast)),
            "secret" => Err(Refusal::NotAllowed),
            name if name == longest_name() => Ok(Rc::clone(&self.disk)),
            _ => Err(Refusal::Unknown),
        }
    }

    async fn list(&self, _visitor: &Visitor) -> Result<Vec<Listed>, Refusal> {
        let list = [&self.disk, &self.sealed];
        Ok(list
            .map(|export| Listed {
                name: export.profile.name.clone(),
                description: export.profile.description.clone(),
            })
            .to_vec())
    }
}
