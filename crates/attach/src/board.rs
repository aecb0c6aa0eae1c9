//! Results on their way from whoever carried a request out to the thread of a ring: a place for each tag, no lock; and the
//! way into the kernel.
//!
//! Invariant: a result is stored before its tag's bit is set, and read after the bit was taken; a sleeper has said that
//! it sleeps before it looked at the bits for the last time. So no result is lost, and none waits for a wake-up that
//! does not come.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::{fmt, io};

use io_uring::{IoUring, cqueue, squeue};
use rustix::event::EventfdFlags;
use rustix::io::Errno;

use super::cores::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// Tags for each word.
const WORD_BITS: u16 = 64;

/// The results of `WORDS` times 64 tags.
pub struct Board<const WORDS: usize> {
    results: [[AtomicI32; WORD_BITS as usize]; WORDS],
    done: [AtomicU64; WORDS],
    sleeps: AtomicBool,
    event: OwnedFd,
}

impl<const WORDS: usize> fmt::Debug for Board<WORDS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").field("done", &self.done).finish_non_exhaustive()
    }
}

impl<const WORDS: usize> Board<WORDS> {
    /// An empty board.
    ///
    /// # Errors
    /// What the system says when it gives no event.
    pub fn new() -> Result<Self, Errno> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            results: [const { [const { AtomicI32::new(0) }; WORD_BITS as usize] }; WORDS],
            done: [const { AtomicU64::new(0) }; WORDS],
            sleeps: AtomicBool::new(false),
            event,
        })
    }

    /// Readable when there is something to look at.
    #[must_use]
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Notes the result of a tag. One that the board has no place for is nobody's.
    pub fn post(&self, tag: u16, result: i32) {
        let (at, bit) = (usize::from(tag / WORD_BITS), tag % WORD_BITS);
        let place = self.results.get(at).and_then(|of_word| of_word.get(usize::from(bit)));
        let (Some(place), Some(word)) = (place, self.done.get(at)) else { return };
        place.store(result, Ordering::Relaxed);
        word.fetch_or(1 << bit, Ordering::SeqCst);
        self.wake();
    }

    /// Wakes the ring's thread if it sleeps.
    pub fn wake(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // A full counter wakes as well.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }

    /// Takes all results that were noted.
    pub fn take(&self, mut each: impl FnMut(u16, i32)) {
        let of_words = self.done.iter().zip(&self.results);
        for (first, (word, results)) in (0u16..).step_by(usize::from(WORD_BITS)).zip(of_words) {
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                let bit = u16::try_from(bits.trailing_zeros()).unwrap_or(0);
                bits &= bits - 1;
                let result = results.get(usize::from(bit)).map_or(0, |place| place.load(Ordering::Relaxed));
                each(first + bit, result);
            }
        }
    }

    /// Whether no result waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.done.iter().all(|word| word.load(Ordering::SeqCst) == 0)
    }

    /// Says that the ring's thread will sleep; false when there is something to do instead.
    #[must_use]
    pub fn lie_down(&self, is_needed: impl FnOnce() -> bool) -> bool {
        self.sleeps.store(true, Ordering::SeqCst);
        let something = !self.is_empty() || is_needed();
        if something {
            self.sleeps.store(false, Ordering::SeqCst);
        }
        !something
    }

    /// Says that it does not sleep any more.
    pub fn get_up(&self) {
        self.sleeps.store(false, Ordering::SeqCst);
    }

    /// Makes the event unreadable until the next wake-up.
    pub fn drain(&self) {
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }
}

/// Whether to wait for the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// Until there is one answer at least.
    ForOne,
}

/// Gives the kernel the commands that are in a ring. Where a signal came, or answers have to be taken first, nothing is wrong: the
/// next round of whoever reads the board mends it.
///
/// # Errors
/// What the kernel says of the ring otherwise.
pub fn enter<S: squeue::EntryMarker, C: cqueue::EntryMarker>(
    ring: &IoUring<S, C>,
    wait: Wait,
) -> io::Result<()> {
    let entered = match wait {
        Wait::No => ring.submit(),
        Wait::ForOne => ring.submit_and_wait(1),
    };
    match entered {
        Err(error)
            if ![libc::EINTR, libc::EBUSY, libc::EAGAIN].contains(&error.raw_os_error().unwrap_or(0)) =>
        {
            Err(error)
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec};
    use std::sync::Arc;

    const DEPTH: u16 = 128;
    type Board = super::Board<2>;

    fn is_notified(board: &Board) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut [PollFd::from_borrowed_fd(board.event(), PollFlags::IN)], Some(&now))
            .unwrap()
            > 0
    }

    #[test]
    fn a_result_is_taken_once_with_its_tag() {
        let board = Board::new().unwrap();
        for tag in [0, 63, 64, DEPTH - 1] {
            board.post(tag, i32::from(tag) - 5);
        }
        let mut taken = Vec::new();
        board.take(|tag, result| taken.push((tag, result)));
        assert_eq!(taken, [(0, -5), (63, 58), (64, 59), (DEPTH - 1, i32::from(DEPTH) - 6)]);
        board.take(|tag, _| panic!("{tag} is taken twice"));
        assert!(!is_notified(&board), "nobody slept");
    }

    #[test]
    fn a_sleeping_runtime_is_woken_or_stays_awake() {
        let board = Board::new().unwrap();
        board.post(7, 1);
        assert!(!board.lie_down(|| false), "a result waits");
        board.take(|_, _| {});
        assert!(!board.lie_down(|| true), "something else waits");
        assert!(board.lie_down(|| false));
        board.post(7, 1);
        board.post(8, 1);
        assert!(is_notified(&board));
        board.drain();
        board.get_up();
        assert!(!is_notified(&board));
    }

    #[test]
    fn no_result_is_lost_between_threads() {
        // Scenario: results are posted by one thread and taken by another, which sleeps whenever it may, for as long as
        // nobody wakes it. Each tag is posted again only after it was taken, as the kernel has it.
        const ROUNDS: i32 = 20_000;
        let board = Arc::new(Board::new().unwrap());
        let (free, to_use) = std::sync::mpsc::channel();
        (0..DEPTH).for_each(|tag| free.send((tag, 0)).unwrap());
        let poster = Arc::clone(&board);
        let thread = std::thread::Builder::new()
            .spawn(move || {
                while let Ok((tag, round)) = to_use.recv() {
                    poster.post(tag, round);
                }
            })
            .unwrap();
        let mut left = u32::from(DEPTH);
        let mut rounds = [0; DEPTH as usize];
        while left > 0 {
            board.take(|tag, result| {
                let expected = &mut rounds[usize::from(tag)];
                assert_eq!(result, *expected, "tag {tag}");
                *expected += 1;
                if *expected < ROUNDS / i32::from(DEPTH) {
                    free.send((tag, *expected)).unwrap();
                } else {
                    left -= 1;
                }
            });
            if left > 0 && board.lie_down(|| false) {
                let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
                let fds = &mut [PollFd::from_borrowed_fd(board.event(), PollFlags::IN)];
                assert!(rustix::event::poll(fds, Some(&limit)).unwrap() > 0, "woken in time");
                board.drain();
                board.get_up();
            }
        }
        drop(free);
        thread.join().unwrap();
    }
}
