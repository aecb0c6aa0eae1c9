//! A global allocator that knows what the calling thread holds, and what it held at most. Far beyond what any input may hold it
//! gives nothing more, which ends the process: the machine would be next.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that a thread may hold.
const HELD_MAX: isize = 2 << 30;

fn note(difference: isize) {
    let held = HELD.get() + difference;
    HELD.set(held);
    MOST.set(MOST.get().max(held));
}

/// Whether a thread may have so many bytes more. Where it may not, the process is about to end, and this tells who wanted them.
fn has_room(bytes: usize) -> bool {
    let has_room = HELD.get().saturating_add_unsigned(bytes) < HELD_MAX;
    if !has_room {
        // To tell it takes memory.
        HELD.set(isize::MIN / 2);
        eprintln!("{bytes} bytes more are wanted by {}", std::backtrace::Backtrace::force_capture());
        HELD.set(HELD_MAX);
    }
    has_room
}

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract, or is answered that there is no
// memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !has_room(layout.size()) {
            return std::ptr::null_mut();
        }
        note(layout.size().cast_signed());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !has_room(layout.size()) {
            return std::ptr::null_mut();
        }
        note(layout.size().cast_signed());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !has_room(size) {
            return std::ptr::null_mut();
        }
        note(size.cast_signed() - layout.size().cast_signed());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(-layout.size().cast_signed());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// What the thread holds now; what it holds at most counts from here.
pub(crate) fn begin() -> isize {
    MOST.set(HELD.get());
    HELD.get()
}

/// What it held at most.
pub(crate) fn most() -> isize {
    MOST.get()
}
