//! Kinds of jobs, as the service of jobs sees them: words, order, throttling, subject and state of their own.
//!
//! Invariant: nothing in this folder names a kind. A kind is one file that implements [`Kind`] and `Job`, and one line of the
//! table in `job_table`.

use std::any::Any;
use std::rc::Rc;

use dolmen_api::JobKind;
use dolmen_space::JobShare;
use serde_json::Value;

use crate::jobs::aim::Aim;
use crate::jobs::share;

/// Order of jobs: a job yields to those of a higher rank, and waits for those of its own that came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Reads everything, and takes days: nothing is at risk while it waits.
    Background,
    /// Moves what could stay where it is.
    Spread,
    /// Asked for by a person.
    Asked,
    /// Redundancy is whole, and at risk, or a part of it comes back.
    Pressing,
    /// Redundancy is not whole before it has ended, or a disk cannot leave.
    Urgent,
}

/// State that a job keeps in addition to its progress, over restarts as well, such as the position of a scrub.
pub(crate) trait OwnState: Any {
    /// Returns the number of checkpoints taken. A job with another number than at the last look goes on record.
    fn checkpoints(&self) -> u64;

    /// Returns what goes on record, under the word of the kind. Its text is at most
    /// [`OWN_TEXT_MAX`](crate::jobs::record::OWN_TEXT_MAX) bytes long.
    fn recorded(&self) -> Value;

    /// Returns the state of the same job after its pool was closed: it resumes at its last checkpoint.
    fn resumed(&self) -> Rc<dyn OwnState>;
}

/// What a kind of job says of itself to the service of jobs.
pub(crate) trait Kind: Sync {
    /// Returns the word of the kind in the API and on record; no other kind has it, and it never changes.
    fn word(&self) -> &'static str;

    /// Returns what a job of this kind is to do, in a word in front of its subject.
    fn verb(&self) -> &'static str {
        self.word()
    }

    /// Returns what a job of this kind is doing, in words in front of its subject.
    fn doing(&self) -> &'static str;

    /// Returns its place in the order of jobs; none for one that takes no slot, because it reads and writes no slabs.
    fn rank(&self) -> Option<Rank>;

    /// Returns whether a job of this kind is held while one of a higher rank waits.
    fn yields(&self) -> bool {
        true
    }

    /// Returns how a job of this kind shares the disks with clients, unless a request has set that.
    fn usual_share(&self) -> JobShare {
        share::NORMAL
    }

    /// Returns whether the pool itself knows that it needs the job: a job that was left over is found by its subject, and
    /// its pool begins it again. Otherwise only the record of jobs knows that it goes on.
    fn is_known_to_pool(&self) -> bool {
        false
    }

    /// Returns whether a job of this kind can be about such a subject. A record that says otherwise is refused.
    fn is_about(&self, aim: Aim) -> bool;

    /// Returns whether a job of this kind ends with a disk out of the pool, or empty for good.
    fn takes_disk_out(&self) -> bool {
        false
    }

    /// Returns whether a job of this kind verifies all that its pool holds.
    fn verifies_all(&self) -> bool {
        false
    }

    /// Returns whether slabs that a running job of this kind fills look stale until it is done with them.
    fn fills_slabs(&self) -> bool {
        false
    }

    /// Returns the state of a job that begins; none for kinds without one.
    fn own_state(&self) -> Option<Rc<dyn OwnState>> {
        None
    }

    /// Returns the state of a job from its record; none where this version does not know the record, so that the job
    /// begins again.
    fn recalled_state(&self, _recorded: &Value) -> Option<Rc<dyn OwnState>> {
        None
    }
}

impl dyn Kind + '_ {
    /// Returns the kind as documents of the API name it.
    pub(crate) fn wire(&self) -> JobKind {
        JobKind::new(self.word())
    }

    /// Returns its verb for the API, where that differs from its word.
    pub(crate) fn wire_verb(&self) -> Option<String> {
        (self.verb() != self.word()).then(|| self.verb().to_owned())
    }
}

impl std::fmt::Debug for dyn Kind + '_ {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// How a kind is found by its word.
pub(crate) type Lookup = fn(&JobKind) -> Option<&'static dyn Kind>;
