//! A global allocator that counts what the calling thread asks of the system's, and tells where it was asked from.
//!
//! Counts are per thread, so that kernel workers and other threads of the process do not blur them. The place of an
//! allocation is found by walking the stack, which itself allocates: while that goes on, nothing is counted.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Frames of the project that identify a place, the innermost first.
const FRAMES_MAX: usize = 6;

/// What a thread asked of the allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Heap {
    pub(crate) allocations: u64,
    pub(crate) bytes: u64,
}

thread_local! {
    static HEAP: Cell<Heap> = const { Cell::new(Heap { allocations: 0, bytes: 0 }) };
    /// Allocations whose place is not reported yet.
    static WANTED: Cell<u64> = const { Cell::new(0) };
    static LOOKING: Cell<bool> = const { Cell::new(false) };
    static PLACES: RefCell<BTreeMap<String, Heap>> = const { RefCell::new(BTreeMap::new()) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Counts an allocation. A thread that is about to end may have given its counters up: then nobody asks for them.
fn note(size: usize) {
    if LOOKING.try_with(Cell::get).unwrap_or(true) {
        return;
    }
    let counted = HEAP.try_with(|heap| {
        let Heap { allocations, bytes } = heap.get();
        heap.set(Heap { allocations: allocations + 1, bytes: bytes + size as u64 });
    });
    if counted.is_ok() && WANTED.try_with(Cell::get).unwrap_or(0) > 0 {
        look(size as u64);
    }
}

fn look(size: u64) {
    LOOKING.set(true);
    WANTED.set(WANTED.get() - 1);
    let place = frames_of(&Backtrace::force_capture().to_string());
    PLACES.with_borrow_mut(|places| {
        let heap = places.entry(place).or_default();
        heap.allocations += 1;
        heap.bytes += size;
    });
    LOOKING.set(false);
}

/// The frames of a stack that lie in the project, without this file, as `file:line` from the innermost out.
fn frames_of(stack: &str) -> String {
    let places = stack.lines().filter_map(|line| line.trim().strip_prefix("at "));
    let ours = places.filter_map(|place| {
        let below = place.split_once("crates/").or_else(|| place.split_once("tools/"));
        below.map(|(_, rest)| rest)
    });
    let frames = ours.filter(|place| !place.contains("bench_io/src/heap.rs") && place.contains("/src/"));
    // A registry's sources stand in folders of versions, which no crate of the project has.
    let frames = frames.filter(|place| place.split('/').nth(1) == Some("src"));
    let frames: Vec<&str> =
        frames.map(|place| place.rsplit_once(':').map_or(place, |(line, _)| line)).collect();
    let mut reported = frames.clone();
    reported.dedup();
    reported.truncate(FRAMES_MAX);
    reported.join(" < ")
}

/// What the calling thread has asked for so far.
pub(crate) fn heap() -> Heap {
    HEAP.get()
}

/// Tells the places of the next `count` allocations of this thread.
pub(crate) fn trace(count: u64) {
    WANTED.set(count);
}

/// Ends the tracing, and gives the places found, most frequent first.
pub(crate) fn take_places() -> Vec<(String, Heap)> {
    WANTED.set(0);
    let mut places: Vec<_> = PLACES.with_borrow_mut(std::mem::take).into_iter().collect();
    places.sort_by_key(|(_, heap)| std::cmp::Reverse(heap.allocations));
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_thread_allocates_is_counted_for_it_alone() {
        let before = heap();
        let kept = vec![0u8; 1000];
        std::thread::scope(|scope| {
            scope.spawn(|| drop(vec![0u8; 5_000_000]));
        });
        let after = heap();
        assert!(after.allocations > before.allocations && after.bytes - before.bytes < 100_000);
        drop(kept);
        assert_eq!(heap(), after, "giving memory back is no allocation");
    }

    #[test]
    fn a_traced_allocation_reports_its_place() {
        trace(1);
        let kept = std::hint::black_box(vec![1u8; 100]);
        let places = take_places();
        drop(kept);
        assert_eq!(places.len(), 1);
        assert_eq!(places[0].1, Heap { allocations: 1, bytes: 100 });
    }

    #[test]
    fn only_frames_of_the_project_are_reported() {
        let stack = "0: a\n at /r/tools/bench_io/src/heap.rs:70:5\n 1: b\n at ./crates/space/src/write.rs:120:9\n \
                     2: c\n at /reg/smallvec-1.0/src/lib.rs:3:1\n 3: d\n at ./crates/space/src/write.rs:60:1";
        assert_eq!(frames_of(stack), "space/src/write.rs:120 < space/src/write.rs:60");
    }
}
