//! The client: keeps so many I/Os under way, warms up, and counts.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::Notify;
use dolmen_block_io::{Instant, Seams};
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
    /// Allocations whose places are reported.
    pub(crate) traced: u64,
}

struct Drive<T> {
    target: T,
    case: Case,
    handle: Handle,
    seams: Seams,
    payload: Shared,
    /// The number of the next I/O, and the first that is not to be.
    next: Cell<u64>,
    end: Cell<u64>,
    done: Cell<u64>,
    deadline: Cell<Instant>,
    /// What was counted when the last client ended.
    last: Cell<Tally>,
    error: RefCell<Option<BenchError>>,
    running: Cell<u64>,
    notify: Notify,
}

/// Carries out the I/Os of a case and gives what was counted behind the warm-up. `payload` has the size of one I/O.
///
/// Counting begins and ends with nothing under way, so that every command counted belongs to an I/O counted. The rate
/// is a little low for it when I/Os are few and many are under way, because the last ones end alone.
///
/// # Errors
/// The first error of any I/O.
pub(crate) async fn drive<T: Target + 'static>(
    handle: &Handle,
    target: T,
    case: Case,
    span: Span,
    payload: Shared,
) -> Result<Tally, BenchError> {
    let drive = Rc::new(Drive {
        target,
        case,
        handle: handle.clone(),
        seams: handle.seams(),
        payload,
        next: Cell::new(0),
        end: Cell::new(span.warmup),
        done: Cell::new(0),
        deadline: Cell::new(Instant(u64::MAX)),
        last: Cell::default(),
        error: RefCell::new(None),
        running: Cell::new(0),
        notify: Notify::new(),
    });
    drive.spawn();
    drive.all_ended().await?;
    drive.end.set(span.operations_max.unwrap_or(u64::MAX));
    drive.spawn();
    // The clients are ready but have not run, so what it took to make them is not counted.
    drive.deadline.set(drive.seams.clock.now() + span.time_max);
    let before = drive.count();
    heap::trace(span.traced);
    drive.all_ended().await?;
    Ok(drive.last.get().since(before))
}

impl<T: Target + 'static> Drive<T> {
    fn spawn(self: &Rc<Self>) {
        self.running.set(self.case.depth);
        for _ in 0..self.case.depth {
            let drive = Rc::clone(self);
            self.seams.spawner.spawn("client", Box::pin(async move { drive.work().await }));
        }
    }

    /// Waits until every client has ended.
    async fn all_ended(&self) -> Result<(), BenchError> {
        self.notify.wait_for(|| (self.running.get() == 0).then_some(())).await;
        self.error.take().map_or(Ok(()), Err)
    }

    async fn work(&self) {
        while let Some(number) = self.next_number() {
            if let Err(error) = self.operate(number).await {
                self.error.borrow_mut().get_or_insert(error);
            }
            self.done.set(self.done.get() + 1);
        }
        self.running.set(self.running.get() - 1);
        if self.running.get() == 0 {
            self.last.set(self.count());
            heap::trace(0);
            self.notify.notify_all();
        }
    }

    /// The number of the next I/O, unless there is to be none.
    fn next_number(&self) -> Option<u64> {
        let number = self.next.get();
        let over = number >= self.end.get() || self.seams.clock.now() >= self.deadline.get();
        if over || self.error.borrow().is_some() {
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

    fn count(&self) -> Tally {
        let now = tally::now(&self.handle, &self.seams);
        Tally { operations: self.done.get(), ..self.target.count(now) }
    }
}
