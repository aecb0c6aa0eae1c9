//! Disks of pools: looked for, taken in, replaced, removed, emptied, and judged.

mod absent;
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
mod system_devices;
#[cfg(test)]
mod test_lists;

pub(crate) use absent::Rebuilds;
pub(crate) use below::check_own_folder;
pub(crate) use devices::{Devices, allocate_metadata};
pub(crate) use drain_job::DrainJob;
pub(crate) use empty_job::{EmptyJob, outlook_of_failing};

pub(crate) use find::find_disk;
pub(crate) use locate::Locator;
pub(crate) use membership::{Membership, stopped};
pub(crate) use names::follow;
pub(crate) use removal::Drains;
pub(crate) use replace_job::ReplaceJob;
pub(crate) use replacement::Replacements;
pub(crate) use slow::{score_of, tend_slow_disks};
pub(crate) use smart::{acknowledge_defects, follow_smart, smart_advice, smart_findings, unseen_defects_of};
