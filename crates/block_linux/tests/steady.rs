//! The steady path of a small I/O: no allocation, and one call into the kernel per batch.
#![allow(unsafe_code, clippy::unwrap_used, clippy::print_stdout)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs::File;

use dolmen_block_io::{BlockDevice, Durability, read, write};
use dolmen_block_linux::{DriverChoice, LinuxDevice, OpenOptions, Runtime, RuntimeConfig};
use dolmen_units::Epoch;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, with a count of what the calling thread asks of it.
struct Counting;

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const TOKEN: Epoch = Epoch(1);
const BATCH: usize = 32;

/// Allocations and kernel entries of 50 batches of 32 commands, after as many to warm up.
fn measure(driver: DriverChoice) -> Option<(u64, u64, bool)> {
    let runtime = match Runtime::new(RuntimeConfig { driver, ..RuntimeConfig::MODEST }) {
        Ok(runtime) => runtime,
        Err(error) => {
            println!("skipped: {error}");
            return None;
        }
    };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = folder.path().join("disk");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let handle = runtime.handle();
    let registered = handle.has_registered_buffers();
    let measured = runtime.run(async move {
        let device = LinuxDevice::open(&handle, &path, OpenOptions::default()).unwrap();
        let arena = handle.seams().data;
        let mut writes = Vec::with_capacity(BATCH);
        let mut before = (0, 0);
        for round in 0..100 {
            if round == 50 {
                before = (ALLOCATIONS.get(), handle.counters().driver.enters);
            }
            for at in (0..BATCH as u64).map(|index| index * 4096) {
                let from = arena.try_take(4096).unwrap().freeze();
                writes.push(write(device.as_ref(), TOKEN, at, from, Durability::Cached));
            }
            for one in writes.drain(..) {
                assert_eq!(one.await, Ok(()));
            }
            let (_, result) = read(device.as_ref(), TOKEN, 0, arena.try_take(4096).unwrap()).await;
            assert_eq!(result, Ok(()));
        }
        assert_eq!(device.counters().errors, 0);
        (ALLOCATIONS.get() - before.0, handle.counters().driver.enters - before.1)
    });
    Some((measured.0, measured.1, registered))
}

#[test]
fn a_small_command_allocates_nothing_and_shares_its_kernel_call() {
    let Some((allocations, enters, registered)) = measure(DriverChoice::Uring) else { return };
    println!(
        "io_uring: {allocations} allocations, {enters} enters for {} commands, registered: {registered}",
        50 * 33
    );
    assert_eq!(allocations, 0);
    // One call hands a batch over; the rest wait for answers, which come one by one from a real disk.
    assert!(enters <= 50 * 33 + 100, "{enters} calls for 50 batches");
}
