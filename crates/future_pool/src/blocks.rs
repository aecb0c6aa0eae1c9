//! Blocks of memory in sizes of 256 bytes each, and for each thread and size a list of free ones.
//!
//! A free block holds the address of the next one in its first word, so a list needs no memory of its own.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::NonNull;

/// Sizes of blocks are multiples of this.
pub(crate) const STEP_BYTES: usize = 256;
/// How many sizes there are.
pub(crate) const CLASSES: usize = 64;
/// Alignment of every block.
pub(crate) const BLOCK_ALIGN: usize = 16;
/// Bytes that all lists of a thread keep together: enough for 512 futures of the largest size.
pub const FREE_BYTES_MAX: usize = 8 << 20;

/// The number of a size: one less than its steps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Class(usize);

/// What the pool of this thread has done and holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Figures {
    /// Blocks that the allocator was asked for.
    pub made: u64,
    /// Bytes of blocks that futures are in now.
    pub lent_bytes: usize,
    /// The most that `lent_bytes` was since the thread began, or since [`reset_peak`].
    pub peak_bytes: usize,
    /// Bytes of free blocks.
    pub free_bytes: usize,
}

struct Free {
    next: Option<NonNull<Free>>,
}

/// The free blocks of one size.
struct List {
    first: Cell<Option<NonNull<Free>>>,
    bytes: Cell<usize>,
}

struct Lists {
    lists: [List; CLASSES],
    figures: Cell<Figures>,
}

thread_local! {
    static LISTS: Lists = const {
        Lists {
            lists: [const { List { first: Cell::new(None), bytes: Cell::new(0) } }; CLASSES],
            figures: Cell::new(Figures { made: 0, lent_bytes: 0, peak_bytes: 0, free_bytes: 0 }),
        }
    };
}

/// The smallest size that holds so many bytes. The caller has excluded more than the largest holds.
pub(crate) const fn class_for(bytes: usize) -> Class {
    assert!(bytes <= CLASSES * STEP_BYTES, "no block is as large");
    match bytes.div_ceil(STEP_BYTES) {
        0 => Class(0),
        steps => Class(steps - 1),
    }
}

impl Class {
    fn bytes(self) -> usize {
        (self.0 + 1) * STEP_BYTES
    }

    #[allow(clippy::indexing_slicing)] // `class_for` makes classes below the length of this array
    fn list(self, lists: &Lists) -> &List {
        &lists.lists[self.0]
    }

    fn layout(self) -> Layout {
        let Ok(layout) = Layout::from_size_align(self.bytes(), BLOCK_ALIGN) else {
            unreachable!("sizes of blocks are small, and their alignment is a power of two")
        };
        layout
    }
}

/// Takes a block: the one that was returned last, or a new one.
pub(crate) fn take(class: Class) -> NonNull<u8> {
    // Not there any more while the thread ends.
    LISTS.try_with(|lists| lists.take(class)).unwrap_or_else(|_| make(class))
}

/// Returns a block.
///
/// # Safety
/// `block` came from [`take`] with this class, and the caller does not use it again.
pub(crate) unsafe fn release(block: NonNull<u8>, class: Class) {
    // SAFETY: the caller's promise.
    if LISTS.try_with(|lists| unsafe { lists.release(block, class) }).is_err() {
        // SAFETY: the caller's promise, and no list took the block.
        unsafe { dealloc(block.as_ptr(), class.layout()) };
    }
}

#[cold]
#[inline(never)]
fn make(class: Class) -> NonNull<u8> {
    let layout = class.layout();
    // SAFETY: no size is zero.
    let Some(block) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
    block
}

impl List {
    fn pop(&self, class: Class) -> Option<NonNull<u8>> {
        let free = self.first.get()?;
        // SAFETY: a block in a list is free, and holds a `Free` since `release` wrote it.
        self.first.set(unsafe { free.as_ref() }.next);
        self.bytes.set(self.bytes.get() - class.bytes());
        Some(free.cast())
    }
}

impl Lists {
    fn take(&self, class: Class) -> NonNull<u8> {
        let mut figures = self.figures.get();
        figures.lent_bytes += class.bytes();
        figures.peak_bytes = figures.peak_bytes.max(figures.lent_bytes);
        let list = class.list(self);
        let block = match list.pop(class) {
            Some(block) => {
                figures.free_bytes -= class.bytes();
                block
            }
            None => {
                figures.made += 1;
                make(class)
            }
        };
        self.figures.set(figures);
        block
    }

    /// # Safety
    /// As [`release`].
    unsafe fn release(&self, block: NonNull<u8>, class: Class) {
        let mut figures = self.figures.get();
        // A future may end on another thread than the one that it was made on, as tests of tasks do.
        figures.lent_bytes = figures.lent_bytes.saturating_sub(class.bytes());
        let list = class.list(self);
        let free = block.cast::<Free>();
        // SAFETY: the block is aligned and large enough for a `Free`, and nothing else uses it.
        unsafe { free.write(Free { next: list.first.get() }) };
        list.first.set(Some(free));
        list.bytes.set(list.bytes.get() + class.bytes());
        figures.free_bytes += class.bytes();
        while figures.free_bytes > FREE_BYTES_MAX {
            figures.free_bytes -= self.shrink_longest();
        }
        self.figures.set(figures);
    }

    /// Returns one block of the list with the most bytes to the allocator, and its length. So a size that was in use once makes
    /// room for the sizes in use now, which find their blocks in their lists again.
    #[cold]
    #[inline(never)]
    fn shrink_longest(&self) -> usize {
        let longest = self.lists.iter().enumerate().max_by_key(|(_, list)| list.bytes.get());
        let Some((number, list)) = longest else { return 0 };
        let class = Class(number);
        let Some(block) = list.pop(class) else { unreachable!("lists over their limit hold a block") };
        // SAFETY: `make` allocated the block with this layout, and it is in no list any more.
        unsafe { dealloc(block.as_ptr(), class.layout()) };
        class.bytes()
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        for (number, list) in self.lists.iter().enumerate() {
            let class = Class(number);
            while let Some(block) = list.pop(class) {
                // SAFETY: `make` allocated the block with this layout, and it is in no list any more.
                unsafe { dealloc(block.as_ptr(), class.layout()) };
            }
        }
    }
}

/// What the pool of this thread has done and holds.
#[must_use]
pub fn figures() -> Figures {
    LISTS.try_with(|lists| lists.figures.get()).unwrap_or_default()
}

/// Lets [`Figures::peak_bytes`] begin again at what is lent now.
pub fn reset_peak() {
    let reset = |lists: &Lists| {
        let figures = lists.figures.get();
        lists.figures.set(Figures { peak_bytes: figures.lent_bytes, ..figures });
    };
    // Nothing to reset where the thread ends.
    LISTS.try_with(reset).unwrap_or_default();
}

const _: () = assert!(
    size_of::<Free>() <= STEP_BYTES && align_of::<Free>() <= BLOCK_ALIGN,
    "a free block holds its link"
);
const _: () = assert!(FREE_BYTES_MAX == 512 * CLASSES * STEP_BYTES, "as the constant says");
