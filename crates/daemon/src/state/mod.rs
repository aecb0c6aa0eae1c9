//! What the engine keeps in memory and on record, of all pools and of each: types that know neither the engine nor an open pool.

mod absences;
mod backing;
mod connection;
mod emptyings;
mod event_record;
mod events;
mod failing;
mod filling;
mod history;
mod identity;
mod latencies;
mod ledger;
mod locates;
mod member;
mod places;
mod recording;
mod smarts;
mod tail;
mod trash_age;
mod volume_uses;

pub(crate) use absences::Absences;
pub(crate) use backing::Backing;
pub(crate) use connection::{Connection, is_unplugged};
pub(crate) use emptyings::Emptyings;
#[cfg(test)]
pub(crate) use event_record::ReportedJob;
pub(crate) use event_record::{EventFile, ReportedDisk, ReportedPool, ReportedSpace};
pub(crate) use events::{Asked, Events, change};
#[cfg(test)]
pub(crate) use events::{Change, SeenJob, of_disks, of_jobs, of_spaces, of_troubles};
pub(crate) use failing::{FAILING_ERRORS, is_here};
#[cfg(test)]
pub(crate) use filling::{DAY_S, LOOKS_MAX, WEEK_S};
pub(crate) use filling::{DAYS_REPORTED, Filling, HOUR_S, VolumeFillings, percent_used, reached};
#[cfg(test)]
pub(crate) use history::RANGES_MAX;
pub(crate) use history::{
    Histories, History, LABELS, LOOK_BYTES, PATH_BYTES_MAX, Recorded, RecordedDisk, RecordedRange, VERSION,
    add, is_unreadable,
};
pub(crate) use identity::{Identity, identity, is_immutable};
pub(crate) use latencies::{DiskLatencies, Slow};
#[cfg(test)]
pub(crate) use latencies::{Lately, classify};
pub(crate) use ledger::{Ledger, Remembered, ServedSpace};
#[cfg(test)]
pub(crate) use locates::light_of;
pub(crate) use locates::{Locates, is_block_device};
pub(crate) use member::Members;
pub(crate) use places::{Held, Occupant};
pub(crate) use recording::{PoolRoom, Recording, Seen, kib, object_of};
pub(crate) use smarts::{Defects, NAMED_LIMIT, SmartState, Smarts};
pub(crate) use tail::{Tail, TailLoss, Tails};
pub(crate) use trash_age::TrashAges;
pub(crate) use volume_uses::{VolumeUse, VolumeUses};
