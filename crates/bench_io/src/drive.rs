//! The client: keeps so many I/Os under way, and counts between the first behind the warm-up and the last.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::Notify;
use dolmen_block_io::{Moment, Seams};
use dolmen_block_linux::Handle;
use dolmen_buffer::Shared;

use crate::case::Case;
use crate::error::BenchError;
use crate::heap;
use crate::tally::{self, Tally};

/// What is written to and read from.
pub(crate) trait Target {
    fn write(&self, at: u64, data: &Shared) -> impl Future<Output = Result<(), BenchError>>;
    fn read(&self, at: u64, length: usize) -> impl Future<Output = Result<(), BenchError>>;
    fn flush(&self) -> impl Future<Output = Result<(), BenchError>>;
    /// `tally` with what the disks, and the spaces if there are any, count.
    fn count(&self, tally: Tally) -> Tally;
}

/// Which I/Os of a case are carried out in one go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) operations_max: Option<u64>,
    pub(crate) warmup: u64,
    pub(crate) time_max: Duration,
    /// Allocations whose places are to be told.
    pub(crate) traced: u64,
}

struct Drive<T> {
    target: T,
    case: Case,
    span: Span,
    handle: Handle,
    seams: Seams,
    payload: Shared,
    next: Cell<u64>,
    done: Cell<u64>,
    deadline: Cell<Moment>,
    before: Cell<Option<Tally>>,
    after: Cell<Option<Tally>>,
    error: RefCell<Option<BenchError>>,
    running: Cell<u64>,
    bell: Notify,
}

/// Carries out the I/Os of a case and gives what was counted behind the warm-up. `payload` has the size of one I/O.
///
/// # Errors
/// The first error of any I/O.
///
/// # Panics
/// When the span ends before it has warmed up.
pub(crate) async fn drive<T: Target + 'static>(
    handle: &Handle,
    target: T,
    case: Case,
    span: Span,
    payload: Shared,
) -> Result<Tally, BenchError> {
    let seams = handle.seams();
    let drive = Rc::new(Drive {
        target,
        case,
        span,
        handle: handle.clone(),
        // Warming up is bounded by its count: a slow disk must not use the time up before anything was counted.
        deadline: Cell::new(Moment(u64::MAX)),
        payload,
        next: Cell::new(0),
        done: Cell::new(0),
        before: Cell::new(None),
        after: Cell::new(None),
        error: RefCell::new(None),
        running: Cell::new(case.depth),
        bell: Notify::new(),
        seams: seams.clone(),
    });
    for _ in 0..case.depth {
        let drive = Rc::clone(&drive);
        seams.spawner.spawn("client", Box::pin(async move { drive.work().await }));
    }
    if span.warmup == 0 {
        drive.begin();
    }
    drive.bell.wait_for(|| (drive.running.get() == 0).then_some(())).await;
    if let Some(error) = drive.error.take() {
        return Err(error);
    }
    let (Some(before), Some(after)) = (drive.before.get(), drive.after.get()) else {
        panic!("a span has more I/Os than it warms up with")
    };
    Ok(after.since(before))
}

impl<T: Target> Drive<T> {
    async fn work(&self) {
        while let Some(number) = self.turn() {
            if let Err(error) = self.operate(number).await {
                self.error.borrow_mut().get_or_insert(error);
            }
            self.finish();
        }
        self.running.set(self.running.get() - 1);
        self.bell.notify_all();
    }

    /// The number of the next I/O, unless there is to be none.
    fn turn(&self) -> Option<u64> {
        let number = self.next.get();
        let over = self.span.operations_max.is_some_and(|max| number >= max);
        if over || self.after.get().is_some() || self.error.borrow().is_some() {
            return None;
        }
        self.next.set(number + 1);
        Some(number)
    }

    async fn operate(&self, number: u64) -> Result<(), BenchError> {
        let at = self.case.place(number);
        if !self.case.kind.is_write() {
            return self.target.read(at, self.payload.len()).await;
        }
        self.target.write(at, &self.payload).await?;
        if self.case.flushes_after(number) {
            self.target.flush().await?;
        }
        Ok(())
    }

    fn finish(&self) {
        let done = self.done.get() + 1;
        self.done.set(done);
        if done == self.span.warmup {
            self.begin();
        }
        let last = self.span.operations_max == Some(done);
        let began = self.before.get().is_some();
        if began && self.after.get().is_none() && (last || self.seams.clock.now() >= self.deadline.get()) {
            self.after.set(Some(self.count()));
            heap::trace(0);
        }
    }

    fn begin(&self) {
        self.deadline.set(self.seams.clock.now() + self.span.time_max);
        self.before.set(Some(self.count()));
        heap::trace(self.span.traced);
    }

    fn count(&self) -> Tally {
        let now = tally::now(&self.handle, &self.seams);
        Tally { operations: self.done.get(), ..self.target.count(now) }
    }
}
