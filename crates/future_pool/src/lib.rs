//! Futures in recycled memory, behind a pointer.
//!
//! The compiler makes the body of an `async fn` part of whatever polls it: it compiles the body again in each program, and lays
//! its state inside the caller's. [`Pooled`] ends both. The crate that creates one compiles the future, all others call it
//! through a pointer (docs/design/0029). [`macro@pooled`] does that for an `async fn`.
//!
//! Memory comes from lists of free blocks, one list for each size and each thread. A block that is returned is
//! used again by the next future of its size, so the steady path asks the allocator for nothing. [`figures`] counts.
//!
//! Invariants:
//! - A future has at most [`FUTURE_BYTES_MAX`] bytes; the build of a larger one fails.
//! - A block belongs to one `Pooled` or to the list of one thread, never to both.
//! - The lists of a thread hold at most [`FREE_BYTES_MAX`] bytes; beyond them the longest list returns blocks to the allocator.
#![allow(unsafe_code)]

mod blocks;

// What the attribute makes names the crate from outside.
#[cfg(test)]
extern crate self as dolmen_future_pool;

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

pub use blocks::{FREE_BYTES_MAX, Figures, figures, reset_peak};
pub use dolmen_future_pool_attribute::pooled;

use blocks::{BLOCK_ALIGN, CLASSES, STEP_BYTES, class_for};

/// The largest future that the pool takes.
pub const FUTURE_BYTES_MAX: usize = 16 * 1024;

const _: () = assert!(CLASSES * STEP_BYTES == FUTURE_BYTES_MAX, "the largest block holds the largest future");

/// A future in a block of the pool: three words, whatever the size of the future.
///
/// The type names the future, so that it may borrow what the future borrows. The code behind the pointers is compiled where
/// [`new`](Self::new) is called.
pub struct Pooled<F: Future> {
    block: NonNull<u8>,
    poll: unsafe fn(NonNull<u8>, &mut Context<'_>) -> Poll<F::Output>,
    end: unsafe fn(NonNull<u8>),
    future: PhantomData<F>,
}

impl<F: Future> Pooled<F> {
    /// Moves a future to the pool.
    #[inline]
    #[must_use]
    pub fn new(future: F) -> Self {
        Self::within::<FUTURE_BYTES_MAX>(future)
    }

    /// Moves a future of at most `LIMIT` bytes to the pool. The build fails where it is larger.
    #[inline]
    #[must_use]
    pub fn within<const LIMIT: usize>(future: F) -> Self {
        const {
            assert!(
                size_of::<F>() <= LIMIT,
                "a future is larger than its limit: cut its slow paths off with `pooled`"
            );
            assert!(
                size_of::<F>() <= FUTURE_BYTES_MAX,
                "a future is larger than the largest block of the pool"
            );
            assert!(align_of::<F>() <= BLOCK_ALIGN, "a future needs a larger alignment than blocks have");
        }
        let block = blocks::take(const { class_for(size_of::<F>()) });
        // SAFETY: the block has the class of `F`, so it is large enough and aligned, as asserted above, and nothing else uses it.
        unsafe { block.cast::<F>().write(future) };
        Self { block, poll: F::poll_in_block, end: F::end_in_block, future: PhantomData }
    }
}

impl<F: Future> Future for Pooled<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: `block` holds the future from `new` to `drop`, `poll` is that of its type, and the exclusive borrow of `self` is
        // the only way to it.
        unsafe { (self.poll)(self.block, cx) }
    }
}

impl<F: Future> Drop for Pooled<F> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: as in `poll`; nobody uses the block after this.
        unsafe { (self.end)(self.block) }
    }
}

impl<F: Future> fmt::Debug for Pooled<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled").finish_non_exhaustive()
    }
}

/// What is called through the pointers. Methods of the future itself, because the compiler puts a method into the codegen unit of
/// its type: as functions of this crate, all futures of a crate would share one unit, and one thread would compile them.
trait InBlock: Future + Sized {
    /// # Safety
    /// `block` holds a future of this type, which was not dropped and which nothing else refers to.
    unsafe fn poll_in_block(block: NonNull<u8>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the caller's promise; the future does not move until `end_in_block` drops it in its place.
        unsafe { Pin::new_unchecked(block.cast::<Self>().as_mut()) }.poll(cx)
    }

    /// Drops the future and returns its block.
    ///
    /// # Safety
    /// As [`poll_in_block`](Self::poll_in_block), and the caller does not use the block again.
    unsafe fn end_in_block(block: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe { block.cast::<Self>().drop_in_place() };
        // SAFETY: `new` took the block with this class, and nothing is in it now.
        unsafe { blocks::release(block, const { class_for(size_of::<Self>()) }) };
    }
}

impl<F: Future> InBlock for F {}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::task::Waker;

    use super::*;

    fn poll_once<F: Future>(future: &mut Pin<Box<F>>) -> Poll<F::Output> {
        future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    /// Waits once, so that state lies in the block between two polls.
    async fn pause() {
        let mut is_second = false;
        std::future::poll_fn(|_| match std::mem::replace(&mut is_second, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    struct Noted(Rc<Cell<u32>>);

    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    struct Counter(Cell<u32>);

    impl Counter {
        #[pooled]
        async fn add(&self, by: &u32, mut more: u32, (a, b): (u32, u32), _kept: Noted) -> u32 {
            pause().await;
            more += 1;
            self.0.set(self.0.get() + by + more + a + b);
            self.0.get()
        }

        #[pooled(256)]
        async fn wait(&self) {
            pause().await;
        }
    }

    /// A pooled function borrows, waits, and gives what its body gives.
    #[test]
    fn a_pooled_function_does_what_its_body_says() {
        let (counter, drops) = (Counter(Cell::new(1)), Rc::new(Cell::new(0)));
        let by = 2;
        let mut future = Box::pin(counter.add(&by, 3, (10, 20), Noted(Rc::clone(&drops))));
        assert_eq!(poll_once(&mut future), Poll::Pending);
        assert_eq!(drops.get(), 0, "the future owns a parameter that its body does not use");
        assert_eq!(poll_once(&mut future), Poll::Ready(37));
        assert_eq!(poll_once(&mut Box::pin(counter.wait())), Poll::Pending);
    }

    /// A future that is dropped before its end, or before its first poll, drops what it owns once.
    #[test]
    fn a_dropped_future_drops_what_it_owns_once() {
        let (counter, drops) = (Counter(Cell::new(1)), Rc::new(Cell::new(0)));
        drop(counter.add(&1, 1, (1, 1), Noted(Rc::clone(&drops))));
        assert_eq!(drops.get(), 1);
        let mut future = Box::pin(counter.add(&1, 1, (1, 1), Noted(Rc::clone(&drops))));
        assert_eq!(poll_once(&mut future), Poll::Pending);
        drop(future);
        assert_eq!(drops.get(), 2);
    }

    /// The second future of a size takes the block of the first, and nothing is lent in the end.
    #[test]
    fn blocks_are_used_again() {
        let counter = Counter(Cell::new(0));
        drop(counter.wait());
        let before = figures();
        for _ in 0..1000 {
            drop(counter.wait());
        }
        let after = figures();
        assert_eq!(after.made, before.made, "the allocator was asked");
        assert_eq!(after.lent_bytes, before.lent_bytes);
    }

    /// The peak counts blocks that are lent at the same time, from the last reset on.
    #[test]
    fn the_peak_is_of_blocks_lent_together() {
        let counter = Counter(Cell::new(0));
        reset_peak();
        let before = figures().peak_bytes;
        let both = (counter.wait(), counter.wait());
        drop(both);
        drop(counter.wait());
        assert_eq!(figures().peak_bytes, before + 2 * 256);
    }

    /// Whatever is lent at once, lists keep no more than their limit.
    #[test]
    fn lists_keep_no_more_than_their_limit() {
        let counter = Counter(Cell::new(0));
        let lent: Vec<_> = (0..2 * FREE_BYTES_MAX / 256).map(|_| counter.wait()).collect();
        drop(lent);
        assert_eq!(figures().free_bytes, FREE_BYTES_MAX);
    }

    /// A size that was in use once gives way to one that is in use now, which then asks the allocator for nothing.
    #[test]
    fn a_size_in_use_finds_room_after_another_was_busy() {
        let counter = Counter(Cell::new(0));
        let past: Vec<_> = (0..2 * FREE_BYTES_MAX / 256).map(|_| counter.wait()).collect();
        drop(past);
        let large = || {
            Pooled::new(async {
                let kept = [0_u8; 4000];
                std::future::ready(()).await;
                std::hint::black_box(&kept);
            })
        };
        let lend = || drop((0..100).map(|_| large()).collect::<Vec<_>>());
        lend();
        let made = figures().made;
        for _ in 0..100 {
            lend();
        }
        assert_eq!(figures().made, made);
        assert!(figures().free_bytes <= FREE_BYTES_MAX);
    }

    /// A handle is three words, so that callers do not hold the state of what they call.
    #[test]
    fn a_handle_is_three_words() {
        let counter = Counter(Cell::new(0));
        assert_eq!(size_of_val(&counter.wait()), 3 * size_of::<usize>());
    }

    /// A future that is dropped while its thread ends, after the lists of that thread, returns its block to the allocator.
    #[test]
    fn a_future_may_be_dropped_while_its_thread_ends() {
        thread_local! {
            static LATE: Cell<Option<Pin<Box<dyn Future<Output = ()>>>>> = const { Cell::new(None) };
        }
        #[allow(clippy::disallowed_methods)] // what ends here is a thread
        std::thread::spawn(|| {
            // Registered first, so dropped last.
            LATE.set(None);
            LATE.set(Some(Box::pin(Pooled::new(pause()))));
        })
        .join()
        .unwrap();
    }
}
