//! A pool that is open, and one that should be.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_api::{ErrorBody, ErrorCode, ImportMode};
use dolmen_attach::SpaceKey;
use dolmen_block_io::sync::AsyncMutex;
use dolmen_space::{Space, Spaces};
use dolmen_units::{DiskId, DiskSlot, Name, PoolId};

use crate::answer::Answer;
use crate::fault;
use crate::jobs::JobSlot;
use crate::ranks;
use crate::state::{
    Absences, Backing, DiskLatencies, Emptyings, Filling, History, Recording, Remembered, Smarts,
    VolumeFillings,
};

/// A pool that is open.
pub(crate) struct OpenPool {
    pub(crate) spaces: Rc<Spaces>,
    pub(crate) mode: ImportMode,
    /// Changes of this pool, one at a time.
    pub(crate) mutex: AsyncMutex,
    /// Jobs of this pool, one at a time.
    pub(crate) job_slot: Rc<JobSlot>,
    pub(crate) is_closing: Cell<bool>,
    /// Errors and damage that this host has seen.
    pub(crate) history: History,
    /// Figures over time, which the pool itself keeps.
    pub(crate) recording: Recording,
    pub(crate) absences: Absences,
    pub(crate) filling: Filling,
    pub(crate) volume_fillings: VolumeFillings,
    /// Rows that lie badly, as they were counted last.
    pub(crate) laid_badly: Cell<u64>,
    pub(crate) latencies: DiskLatencies,
    pub(crate) emptyings: Emptyings,
    pub(crate) smarts: Smarts,
    /// What people call the bays of disks.
    pub(crate) bays: RefCell<BTreeMap<DiskId, String>>,
    /// What has become of what disks lie on, as it was seen last.
    pub(crate) backing_states: RefCell<BTreeMap<DiskSlot, Backing>>,
}

impl OpenPool {
    pub(crate) fn new(spaces: Rc<Spaces>, mode: ImportMode) -> Rc<Self> {
        let (mutex, job_slot) =
            (AsyncMutex::ranked(ranks::POOL.single()), Rc::new(JobSlot::new(Rc::clone(&spaces))));
        let (history, absences) = (History::default(), Absences::default());
        let (is_closing, backing_states) = (Cell::new(false), RefCell::default());
        let latencies = DiskLatencies::default();
        let (emptyings, smarts) = (Emptyings::default(), Smarts::default());
        Rc::new(Self {
            spaces,
            mode,
            mutex,
            job_slot,
            is_closing,
            history,
            recording: Recording::default(),
            absences,
            laid_badly: Cell::new(0),
            filling: Filling::default(),
            volume_fillings: VolumeFillings::default(),
            latencies,
            emptyings,
            smarts,
            bays: RefCell::default(),
            backing_states,
        })
    }

    pub(crate) fn id(&self) -> PoolId {
        self.spaces.pool().id()
    }

    pub(crate) fn name(&self) -> String {
        self.spaces.pool().name().to_string()
    }

    pub(crate) fn space(&self, name: &str) -> Answer<Space> {
        self.spaces.find(name).map_err(|error| {
            let is_in_trash = self.spaces.in_trash().iter().any(|space| space.name().as_str() == name);
            let hint = match is_in_trash {
                true => format!(
                    "one of that name is in the trash: `dolmen trash restore {}/{name}` brings it back",
                    self.name()
                ),
                false => "`dolmen space list` shows all spaces".to_owned(),
            };
            let body = self.of_a_name(&error).unwrap_or_else(|| fault::space(&error));
            body.on(format!("{}/{name}", self.name())).hint(hint)
        })
    }
}

/// A pool that should be open and is not.
pub(crate) struct ClosedPool {
    pub(crate) remembered: Remembered,
    pub(crate) cause: ErrorBody,
    pub(crate) by: ClosedBy,
}

/// Event that left a pool closed which should be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClosedBy {
    /// The start of the daemon could not open it.
    Start,
    /// Its export failed on the way: it is to stay closed.
    Export,
}

impl ClosedPool {
    /// Returns whether it is opened when its disks appear. What was being made or destroyed is left to the next start.
    pub(crate) fn opens_by_itself(&self) -> bool {
        let is_whole = !self.remembered.is_being_made && !self.remembered.is_being_destroyed;
        is_whole && self.by == ClosedBy::Start
    }
}

/// A name that a pool or a space can have.
pub(crate) fn parse_name(text: &str) -> Answer<Name> {
    text.parse().map_err(|error: dolmen_units::ParseNameError| {
        ErrorBody::new(ErrorCode::BadName, error.to_string()).on(text.chars().take(80).collect::<String>())
    })
}

pub(crate) fn key_of(pool: &OpenPool, space: &Space) -> SpaceKey {
    SpaceKey { pool: pool.id(), space: space.id() }
}
