//! Which disks are the members that the pool takes them for: labels and entries of members, compared (docs/design/0027).
//!
//! An *entry* names the newest label of a member that is known to be durable. It only goes up: whoever writes a label of a voter
//! puts the newest that it knows into the table of members.
//!
//! The decision itself is crate `epoch`'s.

use std::collections::BTreeMap;

use dolmen_disk::{Generation, Label, Member};
use dolmen_epoch::{Claim, Entry, EpochRecord, LabelAge, Standing, next_sequence, standing};
use dolmen_mutation::mutation;
use dolmen_units::DiskId;

use crate::error::StrayReason;

/// Labels that are known to be durable, by their disks: the sequence of the newest one.
pub(crate) type Named = BTreeMap<DiskId, u64>;

/// Returns the sequence of a disk's next label, after the last that was given out. Its slot is not the one of the newest durable
/// label: after a write that failed, one more would go over the only good label.
pub(crate) fn sequence_after(last: u64, disk: DiskId, named: &Named) -> u64 {
    if mutation!(LabelOverDurable) {
        return last + 1;
    }
    next_sequence(named.get(&disk).copied().unwrap_or_default(), last)
}

/// What a label says of an epoch.
pub(crate) fn generation_of<'a>(label: &'a Label, epoch: &EpochRecord) -> Option<&'a Generation> {
    generations_of(label).find(|generation| generation.epoch.id() == epoch.id())
}

fn generations_of(label: &Label) -> impl Iterator<Item = &Generation> {
    label.pending.iter().chain([&label.base])
}

/// The members of an epoch, each with the newest label that any disk at hand names for it: a crash within a stamp leaves voters
/// that name different ones, and each of them was durable when it was named.
#[must_use]
pub fn members_of<'a>(labels: impl Iterator<Item = &'a Label> + Clone, epoch: &EpochRecord) -> Vec<Member> {
    let first = labels.clone().find_map(|label| generation_of(label, epoch));
    let mut members = first.map(|generation| generation.members.clone()).unwrap_or_default();
    let of_epoch = labels.flat_map(generations_of).filter(|generation| generation.epoch.id() == epoch.id());
    let mut named = Named::new();
    for other in of_epoch.flat_map(|generation| &generation.members) {
        let newest = named.entry(other.disk).or_default();
        *newest = other.sequence.max(*newest);
    }
    raise(&mut members, &named);
    members
}

/// Returns the labels of voters that are known to be durable, for the record of the host.
pub(crate) fn labels_of(voters: &[DiskId], named: &Named) -> Named {
    voters.iter().filter_map(|voter| Some((*voter, named.get(voter).copied()?))).collect()
}

/// Has entries name labels that are known to be durable.
pub(crate) fn raise(members: &mut [Member], named: &Named) {
    for member in members {
        let newest = named.get(&member.disk).copied().unwrap_or_default();
        member.sequence = member.sequence.max(newest);
    }
}

/// A generation whose entries name labels that are known to be durable.
pub(crate) fn raised(generation: &Generation, named: &Named) -> Generation {
    let mut raised = generation.clone();
    raise(&mut raised.members, named);
    raised
}

/// Why a disk is not what its entry takes it for, compared with the epoch that is built on or in force.
#[must_use]
pub fn stray_reason(label: &Label, epoch: &EpochRecord, entry: Option<&Member>) -> Option<StrayReason> {
    let claim = Claim {
        disk: label.disk,
        base: &label.base.epoch,
        pending: label.pending.as_ref().map(|generation| &generation.epoch),
        sequence: label.sequence,
        entry: entry.map(|member| Entry { left: member.left, sequence: member.sequence }),
    };
    let facts = claim.facts(epoch);
    let (decided, rule) = standing(facts);
    let known = label.base.epoch.id();
    let why = match decided {
        Standing::TakesPart => return None,
        Standing::Apart => StrayReason::Apart { epoch: known },
        Standing::Old if facts.label == LabelAge::After => {
            let newest = entry.map_or(0, |member| member.sequence);
            StrayReason::OldLabel { epoch: known, label: label.sequence, newest }
        }
        Standing::Old => StrayReason::Old { epoch: known, newest: epoch.id() },
    };
    tracing::info!(disk = %label.disk, rule, "a disk is not what the pool takes it for");
    Some(why)
}
