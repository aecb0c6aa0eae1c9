//! What the disks of a pool say of themselves.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::Smart;
use dolmen_block_io::Instant;
use dolmen_pool::Disk;
use dolmen_units::DiskId;

/// How often a disk is asked.
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(30 * 60);

/// The same for a program that somebody named, which is there to speak for others.
pub(crate) const NAMED_LIMIT: Duration = Duration::from_secs(2);

/// What is known of what a disk says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SmartState {
    This(Smart),
    /// Why nothing is known.
    Nothing(String),
}

/// What is known of a disk, and since when.
pub(crate) struct Known {
    pub(crate) asked: Instant,
    /// The name by which it was asked.
    pub(crate) name: String,
    /// The last that it said.
    pub(crate) smart: Option<Smart>,
    /// Why it said nothing when it was asked last.
    pub(crate) silence: Option<String>,
}

/// Defects of a disk.
pub(crate) struct Defects {
    pub(crate) disk: Rc<Disk>,
    /// Those that nobody has acknowledged.
    pub(crate) unseen: u64,
    pub(crate) all: u64,
}

/// What the disks of a pool have said.
#[derive(Default)]
pub(crate) struct Smarts {
    pub(crate) known: RefCell<BTreeMap<DiskId, Known>>,
    /// Disks that said that they fail, and nothing else since; also to a daemon before.
    pub(crate) failing: RefCell<BTreeSet<DiskId>>,
    /// How many defects of a disk somebody has acknowledged.
    pub(crate) acknowledged: RefCell<BTreeMap<DiskId, u64>>,
}

impl Smarts {
    /// What a disk has said of itself, though it may be silent by now.
    pub(crate) fn of(&self, disk: DiskId) -> Option<Smart> {
        self.known.borrow().get(&disk)?.smart.clone()
    }

    /// Why nothing was said when it was asked last.
    pub(crate) fn silence_of(&self, disk: DiskId) -> Option<String> {
        self.known.borrow().get(&disk)?.silence.clone()
    }

    /// Whether it said that it fails, and has not said otherwise since.
    pub(crate) fn is_failing(&self, disk: DiskId) -> bool {
        self.failing.borrow().contains(&disk)
    }

    /// Takes over that a disk had said so to a daemon before.
    pub(crate) fn recall_failing(&self, disk: DiskId) {
        self.failing.borrow_mut().insert(disk);
    }

    pub(crate) fn defects(&self, disk: DiskId) -> u64 {
        self.of(disk).map_or(0, |smart| smart.defects())
    }

    /// Defects that nobody has acknowledged.
    pub(crate) fn unseen_defects(&self, disk: DiskId) -> u64 {
        self.defects(disk).saturating_sub(self.acknowledged(disk))
    }

    pub(crate) fn acknowledged(&self, disk: DiskId) -> u64 {
        self.acknowledged.borrow().get(&disk).copied().unwrap_or_default()
    }

    /// Counts so many defects as seen.
    pub(crate) fn acknowledge(&self, disk: DiskId, defects: u64) {
        self.acknowledged.borrow_mut().insert(disk, defects);
    }

    pub(crate) fn note(&self, disk: DiskId, at: Instant, name: String, stated: SmartState) {
        let mut known = self.known.borrow_mut();
        let before = known.remove(&disk);
        let (smart, silence) = match stated {
            SmartState::This(smart) => {
                self.note_failing(disk, &name, &smart);
                // Of those that are gone, as many more are new.
                if let Some(acknowledged) = self.acknowledged.borrow_mut().get_mut(&disk) {
                    *acknowledged = smart.defects().min(*acknowledged);
                }
                (Some(smart), None)
            }
            SmartState::Nothing(why) => {
                if before.as_ref().is_none_or(|before| before.silence.as_ref() != Some(&why)) {
                    tracing::info!(disk = name, why, "no SMART");
                }
                // What it said before stands until it says otherwise.
                (before.and_then(|before| before.smart), Some(why))
            }
        };
        known.insert(disk, Known { asked: at, name, smart, silence });
    }

    pub(crate) fn note_failing(&self, disk: DiskId, name: &str, smart: &Smart) {
        let mut failing = self.failing.borrow_mut();
        match smart.is_failing() {
            true if failing.insert(disk) => tracing::warn!(disk = name, ?smart, "a disk says that it fails"),
            true => {}
            false => drop(failing.remove(&disk)),
        }
    }

    pub(crate) fn is_due(&self, disk: &Disk, now: Instant) -> bool {
        let known = self.known.borrow();
        let is_due = |known: &Known| now.since(known.asked) >= ASK_EVERY || known.name != disk.name();
        known.get(&disk.id()).is_none_or(is_due)
    }
}
