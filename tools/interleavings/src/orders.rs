//! In every order of steps, on cores that see each other at once.

/// As `cores` of the crates `attach`, `fuse` and `block_linux`.
mod cores {
    pub(super) use shuttle::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
    pub(super) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
}

/// As `region` of the crate `fuse`.
mod region {
    pub(super) const SLOTS_MAX: usize = 64;
}

/// As `runtime` of the crate `block_linux`.
mod runtime {
    use super::cores::Arc;
    use super::park::Parker;

    pub(super) struct Handle {
        pub(super) parker: Arc<Parker>,
    }
}

#[path = "../../../crates/attach/src/board.rs"]
#[allow(dead_code, unreachable_pub)]
mod board;
#[path = "../../../crates/block_linux/src/mailbox.rs"]
#[allow(dead_code, unreachable_pub)]
mod mailbox;
#[path = "../../../crates/block_linux/src/park.rs"]
#[allow(dead_code)]
mod park;
#[path = "../../../crates/fuse/src/slots.rs"]
#[allow(dead_code)]
mod slots;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use rustix::event::{PollFd, PollFlags, Timespec};
use shuttle::thread;

use board::Board;
use cores::{Arc, AtomicBool, AtomicUsize, Ordering};
use park::Parker;
use runtime::Handle;
use slots::Slots;

fn is_notified(event: rustix::fd::BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut [PollFd::from_borrowed_fd(event, PollFlags::IN)], Some(&now)).unwrap() > 0
}

/// Three threads want the one slot there is, each twice: it is one's at a time, and nobody waits for ever.
pub fn share_a_slot() {
    let (slots, held) = (Arc::new(Slots::new(1)), Arc::new(AtomicUsize::new(0)));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (slots, held) = (Arc::clone(&slots), Arc::clone(&held));
            thread::spawn(move || {
                for _ in 0..2 {
                    let index = slots.take().unwrap();
                    assert_eq!(held.fetch_add(1, Ordering::SeqCst), 0, "it is one's at a time");
                    held.fetch_sub(1, Ordering::SeqCst);
                    slots.return_slot(index);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The slots are closed while somebody waits for one, and somebody else returns one.
pub fn close_slots() {
    let slots = Arc::new(Slots::new(1));
    let first = slots.take().unwrap();
    let waiting = {
        let slots = Arc::clone(&slots);
        thread::spawn(move || slots.take())
    };
    let closing = {
        let slots = Arc::clone(&slots);
        thread::spawn(move || slots.close())
    };
    slots.return_slot(first);
    closing.join().unwrap();
    if let Some(taken) = waiting.join().unwrap() {
        slots.return_slot(taken);
    }
}

/// Two threads post results while the thread of the ring takes what is there and lies down: whatever it has not taken then wakes it.
pub fn post_and_sleep() {
    let board = Arc::new(Board::<1>::new().unwrap());
    let posting: Vec<_> = [(3, 30), (7, 70)]
        .into_iter()
        .map(|(tag, result)| {
            let board = Arc::clone(&board);
            thread::spawn(move || board.post(tag, result))
        })
        .collect();
    let mut taken = Vec::new();
    board.take(|tag, result| taken.push((tag, result)));
    let sleeps = board.lie_down(|| false);
    posting.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(!sleeps || board.is_empty() || is_notified(board.event()), "it sleeps on");
    board.take(|tag, result| taken.push((tag, result)));
    taken.sort_unstable();
    assert_eq!(taken, [(3, 30), (7, 70)], "each is taken once");
}

/// A runtime of one task: woken from wherever, it notes so and is unparked.
struct TaskNotify {
    is_ready: cores::Mutex<bool>,
    parker: Arc<Parker>,
}

impl Wake for TaskNotify {
    fn wake(self: std::sync::Arc<Self>) {
        *self.is_ready.lock().unwrap() = true;
        self.parker.unpark();
    }
}

/// A message is posted, and the mailbox dropped, while the runtime looks for one and goes to rest: it sees them, or is woken.
pub fn post_and_rest() {
    let parker = Parker::new().unwrap();
    let (mailbox, mut inbox) = Handle { parker: Arc::clone(&parker) }.mailbox();
    let notify =
        std::sync::Arc::new(TaskNotify { is_ready: cores::Mutex::new(false), parker: Arc::clone(&parker) });
    let poster = thread::spawn(move || mailbox.post(5).unwrap());
    let waker = Waker::from(std::sync::Arc::clone(&notify));
    let poll = |inbox: &mut mailbox::Inbox<i32>| pin!(inbox.receive()).poll(&mut Context::from_waker(&waker));
    let mut found = Vec::new();
    let mut look = |inbox: &mut mailbox::Inbox<i32>| match poll(inbox) {
        Poll::Ready(Some(message)) => found.push(message),
        Poll::Ready(None) | Poll::Pending => {}
    };
    look(&mut inbox);
    parker.park();
    let rests = !*notify.is_ready.lock().unwrap();
    if !rests {
        parker.awake();
    }
    poster.join().unwrap();
    let waits = *notify.is_ready.lock().unwrap();
    assert!(!rests || !waits || is_notified(parker.event()), "it rests on");
    look(&mut inbox);
    look(&mut inbox);
    assert_eq!(found, [5]);
}

/// What [`share_a_slot`] would be if it were asked who waits before the slot is returned: somebody waits for ever.
pub fn ask_who_waits_first() {
    let (is_free, waits) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (turn, notify) = (Arc::new(cores::Mutex::new(())), Arc::new(cores::Condvar::new()));
    let waiting = {
        let (is_free, waits) = (Arc::clone(&is_free), Arc::clone(&waits));
        let (turn, notify) = (Arc::clone(&turn), Arc::clone(&notify));
        thread::spawn(move || {
            let mut turn = turn.lock().unwrap();
            waits.store(true, Ordering::SeqCst);
            while !is_free.swap(false, Ordering::SeqCst) {
                turn = notify.wait(turn).unwrap();
            }
        })
    };
    let is_waited_for = waits.load(Ordering::SeqCst);
    is_free.store(true, Ordering::SeqCst);
    if is_waited_for {
        drop(turn.lock().unwrap());
        notify.notify_all();
    }
    waiting.join().unwrap();
}
