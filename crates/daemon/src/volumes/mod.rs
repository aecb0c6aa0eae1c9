//! Volumes: file systems on spaces (docs/design/0035).
//!
//! | file | content |
//! |---|---|
//! | `host`, `mounts`, `looks`, `places`, `control_group` | what the host has, where volumes are and can be mounted, and who uses them |
//! | `records`, `words` | records in the map of the pool, and how the API names their values |
//! | `workers`, `locks` | processes of `dolmen-worker`, and the lanes in which orders of a volume go |
//! | `volume` | a volume of an open pool, with its record |
//! | `service`, `view` | the service, what it knows of each volume, and how it is shown |
//! | `create`, `create_job`, `make` | creation: its plan, its job, and its steps |
//! | `transition` | steps between mounted and unmounted, and requests that wait for their end |
//! | `unit_files` | mount units of systemd |
//! | `changes`, `grow`, `adopt` | mount, unmount, deletion and restoration; growth and trim; adoption |
//! | `check`, `check_scrub`, `check_report` | check, repair and scrub, a job; what they found |
//! | `dedup`, `dedup_policy`, `dedup_schedule` | deduplication and compaction: requests, policies, and runs that are due |
//! | `dedup_task`, `dedup_job`, `dedup_run`, `compaction_run` | orders, their jobs, and their steps |
//! | `steer`, `yielding` | commands to a long operation, and when it yields to clients |
//! | `numbered`, `shares` | records under numbers; shares on servers |
//! | `quotas`, `quota_bounds` | quotas of folders: requests, and bounds that file systems keep |
//! | `damage` | files at damaged ranges |
//! | `claims`, `claiming` | mount points that changes want, and that volumes have |
//! | `held`, `accepting` | volumes whose mount points another host chose, and their acceptance |
//! | `health` | what is the matter with volumes |
//! | `opening` | volumes of pools that are opened and closed |
//!
//! Invariant: nothing here calls into a file system of a volume. A worker does.

mod accepting;
mod adopt;
mod changes;
mod check;
mod check_report;
mod check_scrub;
mod claiming;
mod claims;
mod compaction_run;
mod control_group;
mod create;
mod create_job;
mod damage;
mod dedup;
mod dedup_job;
mod dedup_policy;
mod dedup_run;
mod dedup_schedule;
mod dedup_task;
mod grow;
mod grow_job;
mod health;
mod held;
mod host;
mod locks;
mod looks;
mod make;
mod mounts;
mod numbered;
mod opening;
mod places;
mod pool_room;
mod quota_bounds;
mod quotas;
mod records;
mod service;
mod shares;
mod steer;
mod transition;
mod unit_files;
mod view;
mod volume;
mod words;
mod workers;
mod yielding;

use std::rc::Rc;

use crate::attaching::SpaceAttachments;
use crate::base::Base;
use crate::spaces::{Deletions, SpaceChanges};

pub(crate) use accepting::{accept, held};
pub(crate) use adopt::Adoptions;
pub(crate) use check::{VolumeCheckJob, VolumeChecks};
pub(crate) use control_group::Bounds;
pub(crate) use create::VolumeCreations;
pub(crate) use create_job::VolumeCreateJob;
pub(crate) use damage::Damage;
pub(crate) use dedup::Dedups;
pub(crate) use dedup_schedule::DedupSchedule;
pub(crate) use dedup_task::{COMPACT, DEDUP, ESTIMATE, UNDO};
pub(crate) use grow::VolumeGrowth;
pub(crate) use grow_job::VolumeGrowJob;
pub(crate) use health::{VolumeWatch, volume_advice};
pub(crate) use opening::{Closing, await_mounts, remove_unmounted_shares};
pub(crate) use quotas::VolumeQuotas;
pub(crate) use records::check_carries_none;
pub(crate) use service::Volumes;
pub(crate) use shares::VolumeShares;
pub(crate) use view::VolumeViews;

/// Services of volumes.
pub(crate) struct VolumeServices {
    pub(crate) all: Rc<Volumes>,
    pub(crate) views: Rc<VolumeViews>,
    pub(crate) creations: Rc<VolumeCreations>,
    pub(crate) growth: Rc<VolumeGrowth>,
    pub(crate) checks: Rc<VolumeChecks>,
    pub(crate) adoptions: Rc<Adoptions>,
    pub(crate) dedups: Rc<Dedups>,
    pub(crate) dedup_schedule: Rc<DedupSchedule>,
    pub(crate) watch: Rc<VolumeWatch>,
    pub(crate) damage: Rc<Damage>,
    pub(crate) shares: Rc<VolumeShares>,
    pub(crate) quotas: Rc<VolumeQuotas>,
}

impl VolumeServices {
    pub(crate) fn new(
        base: &Base,
        attachments: &Rc<SpaceAttachments>,
        spaces: &Rc<SpaceChanges>,
        deletions: &Rc<Deletions>,
    ) -> Self {
        let all = Rc::new(Volumes::new(base, attachments, deletions, &VolumeCreateJob));
        let dedups = Rc::new(Dedups::new(&all));
        Self {
            views: Rc::new(VolumeViews::new(&all)),
            creations: Rc::new(VolumeCreations::new(&all)),
            growth: Rc::new(VolumeGrowth::new(&all, spaces)),
            checks: Rc::new(VolumeChecks::new(&all)),
            adoptions: Rc::new(Adoptions::new(&all)),
            watch: Rc::new(VolumeWatch::new(&all)),
            dedup_schedule: Rc::new(DedupSchedule::new(&dedups)),
            dedups,
            damage: Rc::new(Damage::new(&all)),
            shares: Rc::new(VolumeShares::new(base, &all)),
            quotas: Rc::new(VolumeQuotas::new(&all)),
            all,
        }
    }
}
