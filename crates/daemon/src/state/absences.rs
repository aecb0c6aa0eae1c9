//! What is known of the disks of a pool that stay away.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dolmen_api::{ErrorBody, duration};
use dolmen_block_io::Instant;
use dolmen_pool::{Disk, Pool, PoolState};
use dolmen_units::{DiskId, Epoch};

use crate::state::connection::Connection;
use crate::state::places::Occupant;

/// What this daemon has seen of absent disks of a pool.
#[derive(Default)]
pub(crate) struct Absences {
    pub(crate) since: RefCell<BTreeMap<DiskId, Instant>>,
    /// How long one may be away, as it was at the last look; `None` for ever.
    pub(crate) limit: Cell<Option<Duration>>,
    /// Members that the pool does without because they stayed away, and that no person removed.
    pub(crate) excluded: RefCell<BTreeSet<DiskId>>,
    /// Why those that have been away for too long were not given up, at the last try.
    pub(crate) refused: RefCell<BTreeMap<DiskId, ErrorBody>>,
    /// Those of which something was rebuilt although they were not given up.
    pub(crate) rebuilt: RefCell<BTreeSet<DiskId>>,
    /// Those of which something was left that could have been rebuilt, and the epoch in which that was tried.
    pub(crate) tried: RefCell<BTreeMap<DiskId, Epoch>>,
    /// Those of which somebody wants nothing rebuilt.
    pub(crate) stopped: RefCell<BTreeSet<DiskId>>,
    /// Disks that somebody let go of, as far as this daemon knows.
    pub(crate) let_go: RefCell<BTreeSet<DiskId>>,
    /// What is where absent disks were, as it was seen last.
    pub(crate) places: RefCell<BTreeMap<DiskId, Occupant>>,
    /// How disks are connected, or were when they left.
    pub(crate) connections: RefCell<BTreeMap<DiskId, Connection>>,
    /// When disks were taken back in without a command.
    pub(crate) returns: RefCell<BTreeMap<DiskId, Vec<Instant>>>,
    /// Disks that came and went too often.
    pub(crate) flapping: RefCell<BTreeSet<DiskId>>,
    /// When that is tried again, and how long the pause was.
    pub(crate) next: Cell<(Instant, Duration)>,
}

impl Absences {
    /// Whether the pool gave a disk up by itself.
    pub(crate) fn is_excluded(&self, disk: DiskId) -> bool {
        self.excluded.borrow().contains(&disk)
    }

    pub(crate) fn note_let_go(&self, disk: DiskId) {
        self.let_go.borrow_mut().insert(disk);
    }

    /// Whether somebody let go of it, and it has not been back since.
    pub(crate) fn is_let_go(&self, disk: DiskId) -> bool {
        self.let_go.borrow().contains(&disk)
    }

    /// Returns whether a disk came and went too often, and waits for a command.
    pub(crate) fn is_flapping(&self, disk: DiskId) -> bool {
        self.flapping.borrow().contains(&disk)
    }

    /// Whether anything is where an absent disk was; nothing where nobody has looked yet.
    pub(crate) fn is_something_at_its_path(&self, disk: DiskId) -> Option<bool> {
        self.places.borrow().get(&disk).map(|occupant| *occupant != Occupant::Nothing)
    }

    /// What is where an absent disk was; nothing where nobody has looked yet.
    pub(crate) fn at_place_of(&self, disk: DiskId) -> Option<Occupant> {
        self.places.borrow().get(&disk).copied()
    }

    /// Has nothing of a disk rebuilt before it has been back.
    pub(crate) fn note_stopped(&self, disk: DiskId) {
        self.stopped.borrow_mut().insert(disk);
    }

    /// Whether somebody wants that.
    pub(crate) fn is_stopped(&self, disk: DiskId) -> bool {
        self.stopped.borrow().contains(&disk)
    }

    /// Has what was refused tried again, at once.
    pub(crate) fn retry(&self) {
        self.refused.borrow_mut().clear();
        self.next.take();
    }

    pub(crate) fn abandon(&self, disk: DiskId) {
        self.excluded.borrow_mut().insert(disk);
    }

    pub(crate) fn take_back(&self, disk: DiskId) {
        self.excluded.borrow_mut().remove(&disk);
    }

    /// Returns in words what becomes of an absent disk without a command: a spare takes its place, or the others do.
    pub(crate) fn outlook(
        &self,
        pool: &Pool,
        disk: &Disk,
        spare: Option<&Disk>,
        now: Instant,
    ) -> Option<String> {
        let limit = self
            .limit
            .get()
            .filter(|_| pool.state() == PoolState::Writable && pool.members().is_active(disk))?;
        if let Some(why) = self.refused.borrow().get(&disk.id()) {
            let why = why.message.trim_end_matches("; nothing was changed");
            let what = match self.rebuilt.borrow().contains(&disk.id()) {
                true => "of what it had, some is rebuilt on other disks, and the rest is not",
                false => "what it had is not rebuilt on other disks",
            };
            return Some(format!("{what}: {why}"));
        }
        let away = self.since.borrow().get(&disk.id()).map(|since| now.since(*since)).unwrap_or_default();
        let when = match limit.saturating_sub(away).as_secs() {
            0 => "as soon as that can be begun".to_owned(),
            left => format!("in {}", duration(left)),
        };
        Some(match spare {
            Some(spare) => format!("else the spare {} takes its place {when}", spare.name()),
            None => format!("else what it had is rebuilt on the other disks {when}, if they have room"),
        })
    }
}
