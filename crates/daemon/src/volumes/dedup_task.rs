//! Orders of deduplication, compaction, undo and estimate of a volume, and what their jobs keep on record.
//!
//! The order of a job and what it reached are on record, so the next daemon gives the same order again. A worker that goes on behind
//! a daemon that was killed holds the lock of its volume until then.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dolmen_api::JobState;
use dolmen_pool::LocalFuture;
use dolmen_space::JobShare;
use dolmen_volume::mount_point::Folder;
use dolmen_volume::record::DeduplicationMode;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::{Job, Standing};
use crate::jobs::{Aim, Entry, Kind, OwnState, Rank, VOLUME_TEXT_MAX, share};
use crate::open_pool::OpenPool;

/// Bytes of the paths of an undo on record, at most; the rest is for counts.
pub(super) const PATHS_TEXT_MAX: usize = VOLUME_TEXT_MAX - 512;

/// Order of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(super) enum Task {
    /// Shares equal bytes, compacts and trims.
    Dedup {
        /// Load; that of the policy if there is none.
        mode: Option<DeduplicationMode>,
    },
    /// Compacts and trims.
    Compact {
        /// Bytes that may be moved; none for no bound.
        budget_bytes: Option<u64>,
    },
    /// Gives files bytes of their own.
    Undo {
        /// Files and folders; none for all.
        paths: Vec<Folder>,
    },
    /// Reads a sample.
    Estimate {
        /// Bytes that are read at least.
        sample_bytes: Option<u64>,
    },
}

impl Task {
    /// Returns the kind of its job.
    pub(super) fn kind(&self) -> &'static LongVolumeJob {
        match self {
            Self::Dedup { .. } => &DEDUP,
            Self::Compact { .. } => &COMPACT,
            Self::Undo { .. } => &UNDO,
            Self::Estimate { .. } => &ESTIMATE,
        }
    }
}

/// What a job reached, as it is on record.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Reached {
    /// Order.
    pub(super) task: Option<Task>,
    /// Seconds from 1970 to its beginning.
    pub(super) began_s: u64,
    /// Claimed bytes of the space when it began.
    pub(super) claimed_before: Option<u64>,
    /// Bytes saved in the volume by processes that have ended.
    pub(super) saved: u64,
    /// The same of the process at work, as it was reported last.
    pub(super) saving: u64,
    /// Part of the saved bytes that was compressed.
    pub(super) encoded: u64,
    /// Bytes by which the free room of the volume grew.
    pub(super) freed: u64,
    /// Whether a daemon ended while a process saved bytes: what that one saved after the last checkpoint is not known.
    pub(super) is_lower_bound: bool,
    /// Bytes held elsewhere.
    pub(super) held: u64,
    /// Whether all equal bytes are shared, and compaction is left.
    pub(super) is_shared: bool,
}

/// State of a job of a volume.
#[derive(Debug, Default)]
pub(super) struct LongState {
    pub(super) reached: RefCell<Reached>,
    checkpoints: Cell<u64>,
    /// Whether it stands so that clients get the disks.
    pub(super) is_yielding: Cell<bool>,
    /// Whether it was ended because its pool has too little room for the rest.
    pub(super) lacks_pool_room: Cell<bool>,
    /// Whether its process moves block groups of btrfs.
    pub(super) is_balancing: Cell<bool>,
}

impl LongState {
    /// Changes what goes on record.
    pub(super) fn note(&self, change: impl FnOnce(&mut Reached)) {
        change(&mut self.reached.borrow_mut());
        self.checkpoints.set(self.checkpoints.get().wrapping_add(1));
    }

    /// Notes the bytes that the process at work has saved; one that shares nothing saves none.
    pub(super) fn note_saving(&self, saving: u64) {
        if self.shares() && saving > self.reached.borrow().saving {
            self.note(|reached| reached.saving = saving);
        }
    }

    /// Returns whether its process takes room of the pool for copies, before it gives any back.
    pub(super) fn takes_pool_room(&self) -> bool {
        self.is_balancing.get() || matches!(self.reached.borrow().task, Some(Task::Undo { .. }))
    }

    /// Returns whether its process shares bytes, now or next.
    pub(super) fn shares(&self) -> bool {
        let reached = self.reached.borrow();
        matches!(reached.task, Some(Task::Dedup { .. })) && !reached.is_shared
    }
}

impl OwnState for LongState {
    fn checkpoints(&self) -> u64 {
        self.checkpoints.get()
    }

    fn recorded(&self) -> Value {
        serde_json::to_value(&*self.reached.borrow()).unwrap_or_default()
    }

    /// A process that nothing waits for any more has ended, or ends by itself.
    fn resumed(&self) -> Rc<dyn OwnState> {
        Rc::new(continued(self.reached.borrow().clone()))
    }
}

/// Returns the state of a job that another process goes on with.
fn continued(mut reached: Reached) -> LongState {
    reached.is_lower_bound |= matches!(reached.task, Some(Task::Dedup { .. })) && !reached.is_shared;
    reached.saved = reached.saved.saturating_add(std::mem::take(&mut reached.saving));
    LongState { reached: RefCell::new(reached), ..LongState::default() }
}

/// A kind of job whose work is a long operation on a volume.
pub(crate) struct LongVolumeJob {
    word: &'static str,
    verb: &'static str,
    doing: &'static str,
    /// What stays when it is called off.
    pub(super) stays: &'static str,
}

/// Shares equal bytes of files.
pub(crate) static DEDUP: LongVolumeJob = LongVolumeJob {
    word: "dedup",
    verb: "deduplicate",
    doing: "deduplicating",
    stays: "bytes that are shared stay shared, and the next run goes on",
};
/// Empties rows.
pub(crate) static COMPACT: LongVolumeJob = LongVolumeJob {
    word: "compact",
    verb: "compact",
    doing: "compacting",
    stays: "rows that are empty are given back",
};
/// Gives files bytes of their own.
pub(crate) static UNDO: LongVolumeJob = LongVolumeJob {
    word: "dedup_undo",
    verb: "undo the deduplication of",
    doing: "undoing the deduplication of",
    stays: "files that have bytes of their own keep them",
};
/// Reads a sample.
pub(crate) static ESTIMATE: LongVolumeJob = LongVolumeJob {
    word: "estimate",
    verb: "estimate the deduplication of",
    doing: "estimating the deduplication of",
    stays: "nothing was changed",
};

impl Kind for LongVolumeJob {
    fn word(&self) -> &'static str {
        self.word
    }

    fn verb(&self) -> &'static str {
        self.verb
    }

    fn doing(&self) -> &'static str {
        self.doing
    }

    /// It takes no slot: it reads and writes one space, as a client does.
    fn rank(&self) -> Option<Rank> {
        None
    }

    /// Its latency limit decides when it yields to clients of its volume.
    fn usual_share(&self) -> JobShare {
        share::PATIENT
    }

    fn is_about(&self, aim: Aim) -> bool {
        matches!(aim, Aim::Volume(_))
    }

    fn own_state(&self) -> Option<Rc<dyn OwnState>> {
        Some(Rc::new(LongState::default()))
    }

    fn recalled_state(&self, recorded: &Value) -> Option<Rc<dyn OwnState>> {
        let reached = serde_json::from_value(recorded.clone()).ok()?;
        Some(Rc::new(continued(reached)))
    }
}

impl Job for LongVolumeJob {
    fn standing<'a>(&'a self, pool: &'a OpenPool, entry: &'a Entry) -> LocalFuture<'a, Standing> {
        let is_there = match entry.aim {
            Aim::Volume(space) => pool.spaces.get(space).is_some(),
            Aim::Pool | Aim::Disk(_) | Aim::WriteCache { .. } | Aim::Space { .. } => false,
        };
        let has_task =
            entry.course().own::<LongState>().is_some_and(|state| state.reached.borrow().task.is_some());
        Box::pin(async move {
            match (is_there, has_task) {
                (true, true) => Standing::GoesOn,
                (true, false) => {
                    Standing::Ended(JobState::CalledOff, "the daemon ended before the job had begun")
                }
                (false, _) => Standing::Ended(JobState::CalledOff, "its volume does not exist any more"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: the daemon is killed while a process has saved bytes that no answer counted yet. The next one keeps them.
    #[test]
    fn a_recorded_job_goes_on_with_its_order_and_counts() {
        let state = LongState::default();
        let task = Task::Dedup { mode: Some(DeduplicationMode::Throughput) };
        state.note(|reached| {
            reached.task = Some(task.clone());
            (reached.claimed_before, reached.saved, reached.saving) = (Some(7), 10, 5);
        });
        assert_eq!(state.checkpoints(), 1);
        let recalled = DEDUP.recalled_state(&state.recorded()).unwrap();
        let again = DEDUP.recalled_state(&recalled.recorded()).unwrap();
        let text = again.recorded();
        let reached: Reached = serde_json::from_value(text).unwrap();
        assert_eq!((reached.task, reached.claimed_before), (Some(task), Some(7)));
        assert_eq!((reached.saved, reached.saving), (15, 0), "a second restart counts nothing twice");
        assert!(reached.is_lower_bound, "what was saved after the last checkpoint is not known");
    }

    /// Scenario: the process of a compaction reports bytes after those of the sharing were counted. They count for nothing.
    #[test]
    fn bytes_count_as_saved_while_a_process_shares_and_only_then() {
        let state = LongState::default();
        state.note_saving(3);
        assert_eq!(state.reached.borrow().saving, 0, "no order");
        state.note(|reached| reached.task = Some(Task::Dedup { mode: None }));
        [3, 2].into_iter().for_each(|saving| state.note_saving(saving));
        assert_eq!(state.reached.borrow().saving, 3);
        state.note(|reached| (reached.saved, reached.saving, reached.is_shared) = (3, 0, true));
        state.note_saving(9);
        assert_eq!(state.reached.borrow().saving, 0);
    }

    /// A record of a later version, or a damaged one, begins the job again instead of stopping the daemon.
    #[test]
    fn a_record_that_is_not_understood_is_no_state() {
        for text in ["7", "{\"task\":{\"do\":\"fold\"}}", "{\"saved\":-1}"] {
            assert!(DEDUP.recalled_state(&serde_json::from_str(text).unwrap()).is_none(), "{text}");
        }
    }

    /// The longest order fits the room that the file of jobs has for it.
    #[test]
    fn the_longest_record_fits() {
        let long = vec!["x".repeat(249); 4].join("/");
        let rest = "x".repeat(PATHS_TEXT_MAX - 2 - 2 * (long.len() + 3) - 2);
        let paths: Vec<Folder> = [long.clone(), long, rest].map(|path| path.parse().unwrap()).into();
        assert_eq!(serde_json::to_string(&paths).unwrap().len(), PATHS_TEXT_MAX);
        let state = LongState::default();
        state.note(|reached| {
            *reached = Reached {
                task: Some(Task::Undo { paths }),
                began_s: u64::MAX,
                claimed_before: Some(u64::MAX),
                saved: u64::MAX,
                saving: u64::MAX,
                encoded: u64::MAX,
                freed: u64::MAX,
                is_lower_bound: true,
                held: u64::MAX,
                is_shared: true,
            };
        });
        assert!(state.recorded().to_string().len() <= VOLUME_TEXT_MAX);
    }
}
