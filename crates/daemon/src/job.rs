//! A job as its pool and its users see it: whether it goes on after a restart, how it resumes, and how it is called off.
//!
//! A job is one file, which implements [`Kind`], [`Job`] and [`JobWorker`], and one line of the table in `job_table`.

use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, JobState, Simple};
use dolmen_pool::{Disk, LocalFuture};
use dolmen_units::DiskId;

use crate::answer::Answer;
use crate::jobs::{Entry, Kind};
use crate::open_pool::OpenPool;
use crate::plan::Undo;

/// What a pool says of a job for which nothing works.
#[derive(Debug)]
pub(crate) enum Standing {
    /// It goes on.
    GoesOn,
    /// It has ended, and its end is not on record.
    Ended(JobState, &'static str),
}

impl Standing {
    /// Returns the end of a job that the pool knows nothing of any more.
    pub(crate) fn ended(is_done: bool) -> Self {
        match is_done {
            true => Self::Ended(JobState::Done, "it had ended when the daemon looked for it"),
            false => Self::Ended(JobState::CalledOff, "it is wanted no more"),
        }
    }
}

/// What stays of a job that is called off, and how it is begun again.
pub(crate) struct Ending {
    pub(crate) step: &'static str,
    pub(crate) undo: Undo,
}

/// What a kind of job says of itself to pools and users.
pub(crate) trait Job: Kind {
    /// Returns what an open pool says of a job of this kind for which nothing works.
    fn standing<'a>(&'a self, _pool: &'a OpenPool, _entry: &'a Entry) -> LocalFuture<'a, Standing> {
        Box::pin(async { Standing::GoesOn })
    }
}

/// Service that works on jobs of a kind.
pub(crate) trait JobWorker {
    /// Resumes a job for which nothing works: one that only the record knows, or, of a kind that its pool knows, whatever of
    /// that kind the pool needs.
    fn resume<'a>(self: Rc<Self>, pool: &'a Rc<OpenPool>, entry: &'a Rc<Entry>) -> LocalFuture<'a, ()>;

    /// Returns what stays when a job of this kind is called off.
    fn ending(&self, entry: &Entry) -> Ending;

    /// Notes that a user calls a job of this kind off, before it ends.
    fn note_stop<'a>(&'a self, _entry: &'a Entry) -> LocalFuture<'a, ()> {
        Box::pin(async {})
    }

    /// Calls a job of this kind off, or plans that.
    ///
    /// # Errors
    /// Why it cannot be called off.
    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>>;
}

/// Returns a disk of a pool.
pub(crate) fn disk_of(pool: &OpenPool, wanted: DiskId) -> Option<Rc<Disk>> {
    pool.spaces.pool().disks().into_iter().find(|disk| disk.id() == wanted)
}

/// Refuses a change of a job that ends already.
pub(crate) fn ending(entry: &Entry) -> ErrorBody {
    let message = format!("{} is ending already; nothing was changed", entry.what());
    let hint = format!("`dolmen jobs {}` shows what comes of it", entry.id);
    ErrorBody::new(ErrorCode::Busy, message).on(entry.id.to_string()).hint(hint)
}

/// Refuses a change of a job whose pool is not open.
pub(crate) fn not_open(entry: &Entry) -> ErrorBody {
    let message = format!("pool {} is not open; nothing was changed", entry.pool_name);
    let hint = format!("attach its disks, then `dolmen pool import --pool {}`", entry.pool_name);
    ErrorBody::new(ErrorCode::NoSuchPool, message).on(entry.id.to_string()).hint(hint)
}
