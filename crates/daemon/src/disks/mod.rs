//! Disks of pools: looked for, taken in, replaced, removed, emptied, and judged.

mod absent;
mod appeared;
mod backing_state;
mod below;
mod declared_lost;
mod devices;
mod drain_job;
mod empty_job;
mod emptying;
mod find;
mod folders;
mod forget;
mod growth;
mod image_files;
mod leaving;
mod left_out;
mod locate;
mod membership;
mod names;
mod offline;
mod provider;
mod providers;
mod removal;
mod replace_job;
mod replacement;
mod roles;
mod slow;
mod smart;
mod smart_parse;
mod standing;
mod system_devices;
#[cfg(test)]
mod test_lists;

pub(crate) use absent::Rebuilds;
pub(crate) use appeared::{Appeared, PlacesToWatch};
pub(crate) use below::{check_own_folder, is_on_space};
pub(crate) use devices::{Devices, allocate_metadata};
pub(crate) use drain_job::DrainJob;
pub(crate) use empty_job::{EmptyJob, outlook_of_failing};

pub(crate) use find::find_disk;
pub(crate) use left_out::{comes_and_goes, is_copied, is_copy_of};
pub(crate) use locate::Locator;
pub(crate) use membership::{Membership, has_left, stopped};
pub(crate) use names::follow;
pub(crate) use removal::Drains;
pub(crate) use replace_job::ReplaceJob;
pub(crate) use replacement::Replacements;
pub(crate) use slow::{score_of, tend_slow_disks};
pub(crate) use smart::{acknowledge_defects, follow_smart, smart_advice, smart_findings, unseen_defects_of};
pub(crate) use standing::{
    Arrival, Standing, awaited, connected_absent, decide_on_arrival, note_connections, note_ended,
    note_return, standing,
};
