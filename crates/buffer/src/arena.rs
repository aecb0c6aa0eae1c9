//! The arena: a region of memory cut into frames of four sizes, each with a count of its handles.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::handle::Buffer;
use crate::{ALIGN_BYTES, FRAME_BYTES_MAX};

const CLASS_BYTES: [usize; 4] = [4096, 2 * 4096, 64 * 1024, FRAME_BYTES_MAX];
/// Frames of 4 KiB for which an arena has one of 8 KiB.
const SMALL_PER_DOUBLE: usize = 16;

/// How many frames of each size an arena holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaConfig {
    /// Frames of 4 KiB; beside them there is a sixteenth as many of 8 KiB.
    pub small_count: usize,
    /// Frames of 64 KiB.
    pub medium_count: usize,
    /// Frames of 1 MiB.
    pub large_count: usize,
}

impl ArenaConfig {
    /// Enough for tests and tools: about 20 MiB.
    pub const MODEST: Self = Self { small_count: 512, medium_count: 32, large_count: 16 };

    fn counts(&self) -> [usize; 4] {
        [self.small_count, self.small_count / SMALL_PER_DOUBLE, self.medium_count, self.large_count]
    }

    /// The memory that an arena of this configuration takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.counts().iter().zip(CLASS_BYTES).map(|(count, bytes)| count * bytes).sum()
    }
}

/// What an arena has done since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArenaCounters {
    /// Buffers lent.
    pub takes: u64,
    /// Times that a taker found no free frame.
    pub waits: u64,
    /// Bytes copied by [`Buffer::copy_in`], the one way to copy that is counted.
    pub copied_bytes: u64,
}

struct Class {
    frame_bytes: usize,
    /// Offset of the first frame in the region.
    base: usize,
    free: RefCell<Vec<u32>>,
    handles: Box<[Cell<u32>]>,
}

pub(crate) struct Region {
    memory: NonNull<u8>,
    layout: Layout,
    classes: [Class; CLASS_BYTES.len()],
    waiting: RefCell<Vec<Waker>>,
    counters: Cell<ArenaCounters>,
}

impl Region {
    /// The address of byte `start` of a frame.
    pub(crate) fn address(&self, place: Place) -> *mut u8 {
        let class = self.class(place.class);
        let offset = class.base + place.frame as usize * class.frame_bytes + place.start as usize;
        assert!(offset < self.layout.size(), "a handle points into its own region");
        // SAFETY: the offset is inside the one allocation that `memory` starts, as just asserted.
        unsafe { self.memory.as_ptr().add(offset) }
    }

    #[allow(clippy::indexing_slicing)] // a class number is made in `take` alone, from the length of this array
    fn class(&self, class: u8) -> &Class {
        &self.classes[usize::from(class)]
    }

    #[allow(clippy::indexing_slicing)] // a frame number comes from the class's own free list
    fn handles(&self, place: Place) -> &Cell<u32> {
        &self.class(place.class).handles[place.frame as usize]
    }

    pub(crate) fn frame_bytes(&self, place: Place) -> usize {
        self.class(place.class).frame_bytes
    }

    pub(crate) fn retain(&self, place: Place) {
        let handles = self.handles(place);
        handles.set(handles.get() + 1);
    }

    pub(crate) fn is_only_handle(&self, place: Place) -> bool {
        self.handles(place).get() == 1
    }

    pub(crate) fn release(&self, place: Place) {
        let handles = self.handles(place);
        assert!(handles.get() > 0, "a frame is released as often as it was retained");
        handles.set(handles.get() - 1);
        if handles.get() > 0 {
            return;
        }
        self.class(place.class).free.borrow_mut().push(place.frame);
        let mut waiting = self.waiting.borrow_mut();
        for waker in waiting.drain(..) {
            waker.wake();
        }
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut ArenaCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: allocated in `Arena::new` with this very layout; every handle holds the region alive, so none is left.
        unsafe { dealloc(self.memory.as_ptr(), self.layout) }
    }
}

/// Where a handle's bytes are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) class: u8,
    pub(crate) frame: u32,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// A pool of frames. Clones are handles to the same pool.
#[derive(Clone)]
pub struct Arena {
    pub(crate) region: Rc<Region>,
}

impl Arena {
    /// Takes the memory, zeroed, from the system, once.
    ///
    /// # Panics
    /// When the configuration asks for nothing at all, or for more than the address space holds.
    #[must_use]
    pub fn new(config: ArenaConfig) -> Self {
        let bytes = config.bytes();
        assert!(bytes > 0, "an arena lends at least one frame");
        let layout = Layout::from_size_align(bytes, ALIGN_BYTES);
        let Ok(layout) = layout else { panic!("an arena of {bytes} bytes does not fit the address space") };
        // SAFETY: the layout's size is not zero, as just asserted.
        let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        let mut base = 0;
        let mut index = 0;
        let counts = config.counts();
        let classes = CLASS_BYTES.map(|frame_bytes| {
            let count = counts.get(index).copied().unwrap_or(0);
            let Ok(frames) = u32::try_from(count) else { panic!("{count} frames are too many") };
            let class = Class {
                frame_bytes,
                base,
                free: RefCell::new((0..frames).rev().collect()),
                handles: (0..count).map(|_| Cell::new(0)).collect(),
            };
            base += count * frame_bytes;
            index += 1;
            class
        });
        let waiting = RefCell::new(Vec::with_capacity(64));
        Self { region: Rc::new(Region { memory, layout, classes, waiting, counters: Cell::default() }) }
    }

    /// Lends `len` contiguous bytes, or `None` when every frame that is large enough is in use. The content is
    /// whatever the last borrower left.
    ///
    /// # Panics
    /// When `len` is zero or above [`FRAME_BYTES_MAX`]: callers cut larger transfers into pieces.
    #[must_use]
    pub fn try_take(&self, len: usize) -> Option<Buffer> {
        assert!(len > 0 && len <= FRAME_BYTES_MAX, "a buffer has 1 to {FRAME_BYTES_MAX} bytes, not {len}");
        let len_stored = u32::try_from(len).ok()?;
        let mut of_size = self.region.classes.iter().zip(0u8..).filter(|(class, _)| class.frame_bytes >= len);
        of_size.find_map(|(class, index)| self.lend(class, index, len_stored))
    }

    /// Lends `len` contiguous bytes of the frames that fit them best, or `None` when all of those are in use. For memory that saves
    /// work and that nobody has to have: it keeps no larger frame from those who wait for one.
    ///
    /// # Panics
    /// As [`try_take`](Self::try_take).
    #[must_use]
    pub fn try_take_fitting(&self, len: usize) -> Option<Buffer> {
        assert!(len > 0 && len <= FRAME_BYTES_MAX, "a buffer has 1 to {FRAME_BYTES_MAX} bytes, not {len}");
        let len_stored = u32::try_from(len).ok()?;
        let (class, index) =
            self.region.classes.iter().zip(0u8..).find(|(class, _)| class.frame_bytes >= len)?;
        self.lend(class, index, len_stored)
    }

    fn lend(&self, class: &Class, index: u8, len: u32) -> Option<Buffer> {
        let frame = class.free.borrow_mut().pop()?;
        let place = Place { class: index, frame, start: 0, len };
        self.region.retain(place);
        self.region.count(|counters| counters.takes += 1);
        Some(Buffer::from_place(Rc::clone(&self.region), place))
    }

    /// Lends `len` contiguous bytes, of an arena of their own where every frame is in use. For memory that has to be had at once and
    /// rarely: in the place of what a disk that hangs still holds.
    ///
    /// # Panics
    /// As [`try_take`](Self::try_take).
    #[must_use]
    pub fn take_or_make(&self, len: usize) -> Buffer {
        self.try_take(len).unwrap_or_else(|| Self::made(len))
    }

    /// `len` contiguous bytes of an arena of their own.
    ///
    /// # Panics
    /// As [`try_take`](Self::try_take).
    #[must_use]
    pub fn made(len: usize) -> Buffer {
        let fits = CLASS_BYTES.map(|frame_bytes| frame_bytes >= len);
        let [small, _, medium, _] = fits;
        let one = |is_it: bool| usize::from(is_it);
        let config = ArenaConfig {
            small_count: one(small),
            medium_count: one(medium && !small),
            large_count: one(!medium && !small),
        };
        let Some(buffer) = Self::new(config).try_take(len) else { panic!("a fresh arena lends {len} bytes") };
        buffer
    }

    /// Lends `len` contiguous bytes as soon as a frame is free.
    ///
    /// A task that holds buffers while it waits for another can deadlock with its like; so whoever needs several takes
    /// them in one go, and metadata has an arena of its own.
    #[must_use]
    pub fn take(&self, len: usize) -> Take {
        Take { arena: self.clone(), len, waited: false }
    }

    /// The whole region, for registration with the kernel: address and length.
    #[must_use]
    pub fn region(&self) -> (*mut u8, usize) {
        (self.region.memory.as_ptr(), self.region.layout.size())
    }

    /// What was done since the arena was made.
    #[must_use]
    pub fn counters(&self) -> ArenaCounters {
        self.region.counters.get()
    }

    /// Frames that a piece of `len` bytes fits best, lent ones included.
    #[must_use]
    pub fn frame_count(&self, len: usize) -> usize {
        let fits = |class: &&Class| class.frame_bytes >= len;
        self.region.classes.iter().find(fits).map_or(0, |class| class.handles.len())
    }

    /// Frames that are lent now.
    #[must_use]
    pub fn lent_count(&self) -> usize {
        self.region.classes.iter().map(|class| class.handles.len() - class.free.borrow().len()).sum()
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arena")
            .field("bytes", &self.region.layout.size())
            .field("lent", &self.lent_count())
            .finish()
    }
}

/// A wait for a buffer; see [`Arena::take`].
#[derive(Debug)]
pub struct Take {
    arena: Arena,
    len: usize,
    waited: bool,
}

impl Future for Take {
    type Output = Buffer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Buffer> {
        if let Some(buffer) = self.arena.try_take(self.len) {
            return Poll::Ready(buffer);
        }
        if !self.waited {
            self.arena.region.count(|counters| counters.waits += 1);
            self.waited = true;
        }
        self.arena.region.waiting.borrow_mut().push(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_aligned_and_come_back() {
        let arena = Arena::new(ArenaConfig { small_count: 2, medium_count: 1, large_count: 1 });
        let buffers: Vec<Buffer> =
            [1, 4096, 65536, 1 << 20].iter().map(|len| arena.try_take(*len).unwrap()).collect();
        for buffer in &buffers {
            assert!(buffer.as_ptr().addr().is_multiple_of(ALIGN_BYTES));
        }
        assert!(arena.try_take(1).is_none());
        drop(buffers);
        assert_eq!(arena.lent_count(), 0);
        assert!(arena.try_take(1 << 20).is_some());
    }

    #[test]
    fn a_small_request_takes_a_larger_frame_when_it_must() {
        let arena = Arena::new(ArenaConfig { small_count: 0, medium_count: 0, large_count: 1 });
        let buffer = arena.try_take(10).unwrap();
        assert_eq!(buffer.len(), 10);
    }
}
