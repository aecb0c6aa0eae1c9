//! What is done for each stripe allocates nothing, with every kernel and in the widest code.
#![allow(unsafe_code, clippy::unwrap_used, clippy::indexing_slicing)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use dolmen_erasure::{Change, Code, DATA_COUNT_MAX, Kernel, PARITY_COUNT_MAX, Shape};

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with its calls counted thread by thread.
struct Counting;

// SAFETY: everything is handed on to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        // SAFETY: the caller keeps what `alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `alloc` above, so from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn nothing_is_allocated_for_a_stripe() {
    const BYTES: usize = 4096;
    let shape = Shape { data_count: DATA_COUNT_MAX, parity_count: PARITY_COUNT_MAX };
    let data: Vec<u8> = (0..DATA_COUNT_MAX * BYTES).map(|at| at.to_le_bytes()[0] | 1).collect();
    let data: Vec<_> = data.chunks(BYTES).map(Some).collect();
    let mut parity = vec![0; PARITY_COUNT_MAX * BYTES];
    let changes: Vec<_> =
        (0..DATA_COUNT_MAX).map(|column| Change { column, old: data[column], new: data[0] }).collect();
    let lost: Vec<usize> = (0..PARITY_COUNT_MAX).collect();
    let given: Vec<usize> = (PARITY_COUNT_MAX..PARITY_COUNT_MAX + DATA_COUNT_MAX).collect();
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_available()) {
        let code = Code::with_kernel(shape, kernel).unwrap();
        let mut places: Vec<_> = parity.chunks_mut(BYTES).map(Some).collect();
        let before = CALLS.get();
        code.encode(&data, &mut places).unwrap();
        code.update(&changes, &mut places).unwrap();
        let after = CALLS.get();
        let mut targets: Vec<_> = parity.chunks_mut(BYTES).collect();
        let before_plan = CALLS.get();
        let plan = code.plan(&given, &lost).unwrap();
        plan.reconstruct(&data, &mut targets).unwrap();
        assert_eq!((after - before, CALLS.get() - before_plan), (0, 0), "{kernel}");
    }
    assert!(CALLS.get() > 0, "the allocator is not the counting one");
}
