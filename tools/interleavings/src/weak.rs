//! On cores that see each other's writes later.

/// As `cores` of the crate `block_io`.
mod cores {
    pub(super) use loom::sync::atomic::{AtomicBool, Ordering};
}

#[path = "../../../crates/block_io/src/queued.rs"]
mod queued;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use queued::Queued;

/// Something is written, and a task that waits for its turn is woken for it, while that turn begins: the turn sees it, or there is
/// another one.
fn wake_and_begin<Q: Default + Send + Sync + 'static>(ask: fn(&Q) -> bool, begin: fn(&Q)) {
    loom::model(move || {
        let (queued, written) = (Arc::new(Q::default()), Arc::new(AtomicUsize::new(0)));
        let turns = Arc::new(AtomicUsize::new(0));
        assert!(ask(&queued), "it waits for its turn");
        let waker = {
            let (queued, written, turns) = (Arc::clone(&queued), Arc::clone(&written), Arc::clone(&turns));
            loom::thread::spawn(move || {
                written.store(1, Ordering::Relaxed);
                if ask(&queued) {
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        begin(&queued);
        let seen = written.load(Ordering::Relaxed);
        waker.join().unwrap();
        assert!(seen == 1 || turns.load(Ordering::Relaxed) == 1, "woken in vain");
    });
}

/// As tasks of an executor are woken.
pub fn wake_a_task() {
    wake_and_begin(Queued::ask, Queued::begin);
}

/// What [`wake_a_task`] would be if turns began with a mere store: a wake-up is lost.
pub fn begin_with_a_store() {
    let ask = |flag: &AtomicBool| !flag.swap(true, Ordering::AcqRel);
    wake_and_begin(ask, |flag: &AtomicBool| flag.store(false, Ordering::Release));
}
