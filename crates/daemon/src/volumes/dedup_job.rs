//! Jobs of deduplication, compaction, undo and estimate, as users and restarts see them.

use std::rc::Rc;

use dolmen_api::{Change, Simple};
use dolmen_pool::LocalFuture;

use crate::answer::Answer;
use crate::job::{Ending, JobWorker};
use crate::jobs::Entry;
use crate::open_pool::OpenPool;
use crate::plan::Undo;
use crate::volumes::dedup::Dedups;
use crate::volumes::dedup_task::{COMPACT, DEDUP, ESTIMATE, UNDO};

impl JobWorker for Dedups {
    fn resume<'a>(self: Rc<Self>, pool: &'a Rc<OpenPool>, entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        Box::pin(async move { self.go_on(pool, entry).await })
    }

    fn ending(&self, entry: &Entry) -> Ending {
        let all = [&DEDUP, &COMPACT, &UNDO, &ESTIMATE];
        let kind = all.into_iter().find(|kind| entry.is(*kind));
        Ending { step: kind.map_or("its process ends", |kind| kind.stays), undo: Undo::NotNeeded }
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move { self.volumes.pool_jobs.stop_asked(self.as_ref(), entry, request).await })
    }
}
