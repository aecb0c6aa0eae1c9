//! What a set of present disks allows a host to do.

use std::collections::BTreeMap;

use dolmen_mutation::mutation;
use dolmen_units::{DiskId, Epoch, EpochId, HostId};

use crate::record::{EpochRecord, Owner};

/// What the label of one present disk says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskView {
    /// The disk.
    pub disk: DiskId,
    /// The newest epoch that this disk knows to have been in force.
    pub base: EpochRecord,
    /// A successor that was written here and may or may not have come into force.
    pub pending: Option<EpochRecord>,
}

/// What may be done with the present disks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Open for writing, by a new epoch.
    Write {
        /// The epoch whose voters' logs are recovered and that the new one follows.
        build_on: EpochRecord,
        /// The new epoch is numbered above this.
        highest: Epoch,
    },
    /// Open read-only, with the log applied in memory, until a person confirms.
    ReadOnly {
        /// The epoch that a confirmed opening would build on.
        newest: EpochRecord,
        /// A confirmed epoch is numbered above this.
        highest: Epoch,
        /// Why it is not opened, and what confirming would risk.
        reason: ReadOnlyReason,
    },
    /// No disk is present.
    Nothing,
}

/// Why a set of disks may not be written to. The text says what a confirmation would risk.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadOnlyReason {
    /// Another host owns the pool and some voters are not here.
    #[error("the pool's newest epoch {epoch} belongs to host {owner}, with {} of the {voters} disks that carry its metadata absent; it may only be read. Attach them, or confirm; confirming risks that everything written through the absent disks since is lost here, and that both halves go on apart", absent.len())]
    Foreign {
        /// The newest epoch.
        epoch: EpochId,
        /// Its owner.
        owner: HostId,
        /// Its voters.
        voters: usize,
        /// Those that are not here.
        absent: Vec<DiskId>,
    },
    /// This host's arbiter names another epoch: the pool went on without these disks.
    #[error(
        "this host's record names epoch {arbiter}, and the disks here know only epoch {epoch}; it may only be read. Attach the disks of epoch {arbiter}, or confirm; confirming loses everything written in epoch {arbiter} and since"
    )]
    ArbiterElsewhere {
        /// The newest epoch here.
        epoch: EpochId,
        /// The epoch that the arbiter names.
        arbiter: EpochId,
    },
    /// This host owns the pool, its record is gone, and some voters are not here.
    #[error("this host owns the pool's newest epoch {epoch} but its record is missing, with {} of the disks that carry its metadata absent; it may only be read. Attach them, or confirm; confirming risks that writes made through the absent disks since are lost", absent.len())]
    ArbiterUnresponsive {
        /// The newest epoch here.
        epoch: EpochId,
        /// Voters that are not here.
        absent: Vec<DiskId>,
    },
    /// The pool was exported and half or more of its voters are not here.
    #[error("the pool was exported in epoch {epoch}, with {} of the {voters} disks that carry its metadata absent, so another host may have opened it with those; it may only be read. Attach a majority, or confirm; confirming risks that both halves go on apart", absent.len())]
    ExportedWithoutMajority {
        /// The exported epoch.
        epoch: EpochId,
        /// Its voters.
        voters: usize,
        /// Those that are not here.
        absent: Vec<DiskId>,
    },
    /// Disks here know an epoch, and none of them carries its log.
    #[error(
        "epoch {epoch} is carried by {voters} voters, none of which is here; it may only be read, and without its log. Attach one of them; without, nothing written since the last checkpoint can be read"
    )]
    NoVoterPresent {
        /// The newest epoch here.
        epoch: EpochId,
        /// Its voters.
        voters: usize,
    },
    /// A voter does not know an epoch that was in force.
    #[error(
        "epoch {epoch} was in force, and its voter disk {disk} does not know it, so that disk was rolled back or lost a write; it may only be read. Detach disk {disk}, or confirm; confirming takes the log of the other voters"
    )]
    VoterStale {
        /// The epoch in force.
        epoch: EpochId,
        /// The disk that does not know it.
        disk: DiskId,
    },
    /// A successor is complete here, and nobody here can tell whether it came into force.
    #[error(
        "epoch {epoch} reached all its voters, but whether it came into force only {owner} knows, who may have gone on from epoch {base} instead; it may only be read. Attach the other disks of epoch {base}, or open it there, or confirm; confirming risks that both sides go on apart"
    )]
    Unflushed {
        /// The epoch that is complete here.
        epoch: EpochId,
        /// The epoch before it, which may have gone on elsewhere.
        base: EpochId,
        /// Who may have gone on from that.
        owner: Owner,
    },
    /// Two sides of the pool were opened apart, by a confirmation, and both may have been written to.
    #[error(
        "disk {disk} belongs to epoch {other}, which went on apart from epoch {epoch} after a confirmed opening; it may only be read, from epoch {epoch}. Detach one side to open the other, or confirm; confirming keeps epoch {epoch} and loses what only the other side holds. Halves are never merged"
    )]
    Diverged {
        /// The epoch that would be kept.
        epoch: EpochId,
        /// The other side's epoch.
        other: EpochId,
        /// A disk of the other side.
        disk: DiskId,
    },
    /// The labels of all voters here are older than those that this host's record names: the disks were put back together.
    #[error(
        "this host's record names label {recorded} of disk {disk} in epoch {epoch}, and that disk and all others here that carry the metadata have older labels (disk {disk} has {label}), so they are as they were earlier; it may only be read. Attach the disks that have the newer labels, or confirm; confirming loses everything written since the older labels"
    )]
    LabelsBeforeRecord {
        /// The epoch in force.
        epoch: EpochId,
        /// A voter that is here.
        disk: DiskId,
        /// Sequence of its newest label.
        label: u64,
        /// Sequence of the label that the record names.
        recorded: u64,
    },
}

/// How far an epoch's record reached, as far as the present disks tell.
enum Reach {
    /// No voter is here to tell.
    Unseen,
    /// A present voter lacks it and has not gone past it: it did not reach all voters, or was lost again there. `missing`
    /// adds those that are absent.
    Short { lacking: DiskId, missing: Vec<DiskId> },
    /// Every voter is here and holds it or went past it.
    Full,
    /// All present voters hold it or went past it, and some are absent.
    Part { absent: Vec<DiskId> },
}

/// What to do about one record that may be the epoch in force.
enum Verdict {
    /// Build on it.
    Build,
    /// It was never in force; look at the one before it.
    NeverInForce,
    /// It may be in force, and this set may not continue it.
    Refuse(ReadOnlyReason),
}

/// What `host`, whose arbiter names `arbiter`, may do with the `present` disks of one pool.
///
/// Nothing older than the newest `base` is ever built on. A pending record above it counts when the arbiter
/// names it, when its voters are all here and nobody elsewhere can go on from the epoch before it, or,
/// exported, when a majority is here; it is passed over when it provably never came into force; else the set
/// stays read-only.
#[must_use]
pub fn decide(host: HostId, arbiter: Option<EpochId>, present: &[DiskView]) -> Decision {
    let bases = || present.iter().map(|view| &view.base);
    let Some(mut in_force) = bases().max_by_key(|record| record.id()) else { return Decision::Nothing };
    if mutation!(StaleDiskWins) {
        in_force = bases().min_by_key(|record| record.id()).unwrap_or(in_force);
    }
    let arbiter = if mutation!(ArbiterNotAsked) { Some(in_force.id()) } else { arbiter };
    // Of sides that went on apart, each host is told of its own, which may have reached its disks as pending only.
    let is_own_side = |record: &EpochRecord| {
        Some(record.id()) == arbiter && !record.continues(in_force) && !in_force.continues(record)
    };
    let is_pending = |view: &&DiskView| view.pending.as_ref().is_some_and(is_own_side);
    let own = bases().find(|base| is_own_side(base));
    let own = own.or_else(|| present.iter().find(is_pending).map(|view| &view.base));
    let is_chosen = own.is_some();
    in_force = own.unwrap_or(in_force);
    let verify = Question { host, arbiter, present };
    let highest = verify.highest(in_force.number());
    let decision = |record: &EpochRecord, refusal: Option<ReadOnlyReason>| match refusal {
        None => Decision::Write { build_on: record.clone(), highest },
        Some(reason) => Decision::ReadOnly { newest: record.clone(), highest, reason },
    };
    // Beside the side that was chosen, what may be in force on another one is no more than a rival.
    let is_of_side = |record: &&EpochRecord| !is_chosen || record.fork() == in_force.fork();
    for record in verify.pending_above(in_force.id()).into_iter().filter(is_of_side) {
        match verify.pending(record, in_force) {
            Verdict::NeverInForce => {}
            Verdict::Build => return decision(record, verify.contradiction(record)),
            Verdict::Refuse(reason) => return decision(record, Some(reason)),
        }
    }
    decision(in_force, verify.in_force(in_force).or_else(|| verify.contradiction(in_force)))
}

/// Returns the reason to open read-only when every voter here has a label older than the one that the host's record names for
/// it. `labels` are the newest labels of the voters here that hold `epoch`. Where one of them is as new as its record, that
/// one has the metadata, and the older ones are old disks (docs/design/0027).
#[must_use]
pub fn labels_before_record(
    epoch: EpochId,
    labels: &[(DiskId, u64)],
    recorded: &BTreeMap<DiskId, u64>,
) -> Option<ReadOnlyReason> {
    let before = |(disk, label): &(DiskId, u64)| {
        let recorded = recorded.get(disk).copied().filter(|recorded| label < recorded)?;
        Some(ReadOnlyReason::LabelsBeforeRecord { epoch, disk: *disk, label: *label, recorded })
    };
    let all: Option<Vec<ReadOnlyReason>> = labels.iter().map(before).collect();
    all?.into_iter().next()
}

/// The question, so that its parts need not be handed around one by one.
struct Question<'a> {
    host: HostId,
    arbiter: Option<EpochId>,
    present: &'a [DiskView],
}

impl<'a> Question<'a> {
    /// The highest number seen anywhere: also in records that never came into force, so that a number is not
    /// given twice in one line.
    fn highest(&self, floor: Epoch) -> Epoch {
        let pending = self.present.iter().filter_map(|view| view.pending.as_ref());
        let seen = self.present.iter().map(|view| &view.base).chain(pending).map(EpochRecord::number);
        seen.chain(self.arbiter.map(|id| id.number)).fold(floor, Epoch::max)
    }

    /// Distinct pending records above `floor`, newest first.
    fn pending_above(&self, floor: EpochId) -> Vec<&'a EpochRecord> {
        let mut records: Vec<_> =
            self.present.iter().filter_map(|view| view.pending.as_ref()).filter(|r| r.id() > floor).collect();
        if mutation!(StaleDiskWins) {
            records.clear();
        }
        records.sort_unstable_by_key(|record| std::cmp::Reverse(record.id()));
        records.dedup_by_key(|record| record.id());
        records
    }

    fn reach(&self, record: &EpochRecord) -> Reach {
        let id = record.id();
        let knows = |view: &DiskView| {
            view.base.id() == id
                || view.base.number() > id.number
                || view.pending.as_ref().is_some_and(|pending| pending.id() == id)
        };
        let view_of = |voter: &DiskId| self.present.iter().find(|view| view.disk == *voter);
        let voters = record.voters();
        let missing: Vec<DiskId> =
            voters.iter().copied().filter(|voter| !view_of(voter).is_some_and(knows)).collect();
        match (missing.iter().find(|voter| view_of(voter).is_some()), missing.len()) {
            (Some(&lacking), _) => Reach::Short { lacking, missing },
            (None, 0) => Reach::Full,
            (None, count) if count == voters.len() => Reach::Unseen,
            (None, _) => Reach::Part { absent: missing },
        }
    }

    /// A record that only `pending` places hold, above the newest that was surely `in_force`.
    fn pending(&self, record: &EpochRecord, in_force: &EpochRecord) -> Verdict {
        // The disk that holds it settled its predecessor in the same write, so if that is not the newest in
        // force of the line, something else followed it and this did not.
        if record.fork() == in_force.fork() && record.predecessor() != in_force.id() {
            return Verdict::NeverInForce;
        }
        let own = record.owner() == Owner::Host(self.host);
        let arbiter_differs = own && self.arbiter.is_some_and(|id| id != record.id());
        let is_named = own && self.arbiter == Some(record.id());
        let refusal = match self.reach(record) {
            // The arbiter names it when every voter has it: one that lacks it lost what it had written.
            Reach::Short { missing, .. } if is_named && missing.len() < record.voters().len() => None,
            Reach::Short { .. } => return Verdict::NeverInForce,
            // The arbiter is written before an epoch is in force, so what it does not name never was.
            Reach::Unseen | Reach::Part { .. } | Reach::Full if arbiter_differs => {
                return Verdict::NeverInForce;
            }
            Reach::Unseen => Some(unseen(record)),
            Reach::Part { absent } => self.part(record, absent),
            Reach::Full if is_named => None,
            Reach::Full => self.is_rivalled(record, in_force).then(|| ReadOnlyReason::Unflushed {
                epoch: record.id(),
                base: in_force.id(),
                owner: in_force.owner(),
            }),
        };
        refusal.map_or(Verdict::Build, Verdict::Refuse)
    }

    /// Whether a host elsewhere could go on from the epoch before `record`, or from another successor of it.
    fn is_rivalled(&self, record: &EpochRecord, in_force: &EpochRecord) -> bool {
        let is_open_elsewhere = |rival: &EpochRecord| {
            rival.id() != record.id() && matches!(self.reach(rival), Reach::Unseen | Reach::Part { .. })
        };
        self.continuable_elsewhere(in_force)
            || self.pending_above(in_force.id()).into_iter().any(is_open_elsewhere)
    }

    /// Whether another host could go on from `record` with the voters that are not here. If so, a successor
    /// that is complete here, but not known to be in force, must not be built on: both would be.
    fn continuable_elsewhere(&self, record: &EpochRecord) -> bool {
        let missing = match self.reach(record) {
            Reach::Full => return false,
            Reach::Unseen => record.voters().len(),
            Reach::Short { missing, .. } | Reach::Part { absent: missing } => missing.len(),
        };
        match record.owner() {
            // This host's arbiter does not name the older epoch, or the successor would have been passed over.
            Owner::Host(owner) => owner != self.host,
            Owner::Exported => missing * 2 > record.voters().len(),
        }
    }

    /// The newest record that some disk knows to have been in force: it cannot be passed over. A voter that
    /// lacks it is as good as absent: one that an export did not reach, or that was rolled back.
    fn in_force(&self, record: &EpochRecord) -> Option<ReadOnlyReason> {
        match self.reach(record) {
            Reach::Full => None,
            Reach::Unseen => Some(unseen(record)),
            Reach::Short { missing, .. } if missing.len() == record.voters().len() => Some(unseen(record)),
            Reach::Short { lacking, missing } => self
                .part(record, missing)
                .map(|_| ReadOnlyReason::VoterStale { epoch: record.id(), disk: lacking }),
            Reach::Part { absent } => self.part(record, absent),
        }
    }

    /// Some voters are absent, and none of those present contradicts the record.
    fn part(&self, record: &EpochRecord, absent: Vec<DiskId>) -> Option<ReadOnlyReason> {
        let epoch = record.id();
        let voters = record.voters().len();
        match (record.owner(), self.arbiter) {
            (Owner::Exported, _) if absent.len() * 2 < voters => None,
            (Owner::Exported, _) => Some(ReadOnlyReason::ExportedWithoutMajority { epoch, voters, absent }),
            (Owner::Host(owner), _) if owner != self.host => {
                let refusal = ReadOnlyReason::Foreign { epoch, owner, voters, absent };
                (!mutation!(ForeignHalfWrites)).then_some(refusal)
            }
            (Owner::Host(_), None) => Some(ReadOnlyReason::ArbiterUnresponsive { epoch, absent }),
            (Owner::Host(_), Some(arbiter)) if arbiter != epoch => {
                Some(ReadOnlyReason::ArbiterElsewhere { epoch, arbiter })
            }
            (Owner::Host(_), Some(_)) => {
                mutation!(AllOrNothing).then_some(ReadOnlyReason::ArbiterUnresponsive { epoch, absent })
            }
        }
    }

    /// What forbids to build on a record although its voters would allow it: a history that went on elsewhere.
    fn contradiction(&self, record: &EpochRecord) -> Option<ReadOnlyReason> {
        let epoch = record.id();
        // The voters of two epochs that follow each other overlap, so a set that is complete and of one line
        // with the arbiter's epoch knows it or a later one.
        if let Some(arbiter) = self.arbiter.filter(|id| *id != epoch && id.number >= epoch.number) {
            return Some(ReadOnlyReason::ArbiterElsewhere { epoch, arbiter });
        }
        self.present.iter().find_map(|view| {
            let other = self.rivals_of(record, view).find(|claim| !record.continues(claim))?;
            Some(ReadOnlyReason::Diverged { epoch, other: other.id(), disk: view.disk })
        })
    }

    /// What a disk says was in force, or may have been. A pending record of the very line that is built on is
    /// either older or was passed over as never in force; one of another line may have been served elsewhere.
    fn rivals_of(&self, record: &EpochRecord, view: &'a DiskView) -> impl Iterator<Item = &'a EpochRecord> {
        let pending = view.pending.as_ref().filter(|pending| {
            pending.fork() != record.fork() && !matches!(self.reach(pending), Reach::Short { .. })
        });
        std::iter::once(&view.base).chain(pending)
    }
}

fn unseen(record: &EpochRecord) -> ReadOnlyReason {
    ReadOnlyReason::NoVoterPresent { epoch: record.id(), voters: record.voters().len() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Successor, next};
    use dolmen_units::Lsn;

    const THIS_HOST: HostId = HostId([1; 16]);
    const AWAY: HostId = HostId([2; 16]);

    fn disk(index: u8) -> DiskId {
        DiskId([index; 16])
    }

    fn first() -> EpochRecord {
        EpochRecord::first(7, Owner::Host(THIS_HOST), (1..=3).map(disk).collect(), Lsn(1)).unwrap()
    }

    fn after(build_on: &EpochRecord, voters: &[u8], owner: Owner, kind: Kind) -> EpochRecord {
        let voters: Vec<DiskId> = voters.iter().copied().map(disk).collect();
        let present = voters.clone();
        let highest = build_on.number();
        let nonce = if kind == Kind::Forced { 11 } else { 9 };
        let (oldest, first) = (Lsn(1), Lsn(1));
        next(build_on, Successor { highest, owner, voters, present, nonce, oldest, first, kind }).unwrap()
    }

    fn durable(disks: &[u8], base: &EpochRecord) -> Vec<DiskView> {
        disks.iter().map(|&index| DiskView { disk: disk(index), base: base.clone(), pending: None }).collect()
    }

    /// Labels of voters here, compared with the record: only where all are older, the set may not be written.
    #[test]
    fn labels_are_before_the_record_only_where_all_voters_here_are() {
        let epoch = first().id();
        let recorded: BTreeMap<DiskId, u64> = [(disk(1), 5), (disk(2), 7)].into();
        let found = |labels: &[(u8, u64)]| {
            let labels: Vec<(DiskId, u64)> =
                labels.iter().map(|(index, label)| (disk(*index), *label)).collect();
            labels_before_record(epoch, &labels, &recorded)
        };
        for labels in
            [&[][..], &[(1, 5)], &[(1, 6), (2, 7)], &[(1, 4), (2, 7)], &[(2, 6), (1, 5)], &[(1, 4), (3, 0)]]
        {
            assert_eq!(found(labels), None, "{labels:?}");
        }
        let reason = ReadOnlyReason::LabelsBeforeRecord { epoch, disk: disk(1), label: 4, recorded: 5 };
        assert_eq!(found(&[(1, 4)]), Some(reason.clone()));
        assert_eq!(found(&[(1, 4), (2, 6)]), Some(reason));
    }

    fn reason(host: HostId, arbiter: Option<&EpochRecord>, present: &[DiskView]) -> ReadOnlyReason {
        match decide(host, arbiter.map(EpochRecord::id), present) {
            Decision::ReadOnly { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }

    fn writes_on(
        host: HostId,
        arbiter: Option<&EpochRecord>,
        present: &[DiskView],
        record: &EpochRecord,
    ) -> bool {
        let decision = decide(host, arbiter.map(EpochRecord::id), present);
        matches!(decision, Decision::Write { build_on, .. } if build_on == *record)
    }

    /// Two sides that went on apart meet: neither is chosen by being newer, and each host is told of its own.
    #[test]
    fn each_host_sees_its_own_side() {
        let epoch = first();
        let forced = after(&epoch, &[1, 2], Owner::Host(AWAY), Kind::Forced);
        let own = after(&epoch, &[3], Owner::Host(THIS_HOST), Kind::Opening);
        let mut present = durable(&[1, 2], &forced);
        present.extend(durable(&[3], &own));
        for (host, named, other) in [(THIS_HOST, &own, &forced), (AWAY, &forced, &own)] {
            let found = reason(host, Some(named), &present);
            assert!(
                matches!(&found, ReadOnlyReason::Diverged { epoch, other: side, .. } if *epoch == named.id() && *side == other.id()),
                "{found}"
            );
        }
    }

    /// The same, and one side was cut short in a change of its epoch: a host is told of its own, whichever epoch is newer.
    #[test]
    fn each_host_sees_its_own_side_within_a_change_of_epoch() {
        let epoch = first();
        let forced = after(&epoch, &[1, 2], Owner::Host(AWAY), Kind::Forced);
        let own = after(&epoch, &[3], Owner::Host(THIS_HOST), Kind::Opening);
        let later = |record: &EpochRecord, voters: &[u8], owner: Owner| {
            (0..3).fold(record.clone(), |record, _| after(&record, voters, owner, Kind::Change))
        };
        let pending = |disks: &[u8], base: &EpochRecord| {
            let next = after(base, disks, base.owner(), Kind::Change);
            let mut views = durable(disks, base);
            views.iter_mut().for_each(|view| view.pending = Some(next.clone()));
            (views, next)
        };
        let verified = |named: &EpochRecord, own: EpochId, here: Vec<DiskView>, there: Vec<DiskView>| {
            let found = reason(THIS_HOST, Some(named), &[here, there].concat());
            assert!(matches!(&found, ReadOnlyReason::Diverged { epoch, .. } if *epoch == own), "{found}");
        };
        // The other side's change has reached its disks, and nobody knows whether it was in force.
        let (there, _) = pending(&[1, 2], &later(&forced, &[1, 2], Owner::Host(AWAY)));
        verified(&own, own.id(), durable(&[3], &own), there);
        // This host's record names what its disks have only as pending.
        let (here, next) = pending(&[3], &own);
        let far = later(&forced, &[1, 2], Owner::Host(AWAY));
        verified(&next, next.id(), here.clone(), durable(&[1, 2], &far));
        let (there, _) = pending(&[1, 2], &far);
        verified(&next, next.id(), here, there);
    }

    /// The last disk goes on alone at home; elsewhere only the whole set does.
    #[test]
    fn a_set_opens_alone_at_home_and_whole_anywhere() {
        let epoch = first();
        assert_eq!(decide(THIS_HOST, None, &[]), Decision::Nothing);
        assert!(writes_on(THIS_HOST, Some(&epoch), &durable(&[3], &epoch), &epoch));
        assert!(writes_on(AWAY, None, &durable(&[1, 2, 3], &epoch), &epoch));
        assert!(matches!(reason(AWAY, None, &durable(&[1, 2], &epoch)), ReadOnlyReason::Foreign { .. }));
        assert!(matches!(
            reason(THIS_HOST, None, &durable(&[1, 2], &epoch)),
            ReadOnlyReason::ArbiterUnresponsive { .. }
        ));
    }

    /// A disk that was voted out never opens, at home neither, and does not disturb the others.
    #[test]
    fn a_stale_disk_never_wins() {
        let newer = after(&first(), &[1, 2], Owner::Host(THIS_HOST), Kind::Change);
        let stale = durable(&[3], &first());
        assert!(matches!(reason(THIS_HOST, Some(&newer), &stale), ReadOnlyReason::ArbiterElsewhere { .. }));
        let all = [durable(&[1, 2], &newer), stale].concat();
        assert!(writes_on(AWAY, None, &all, &newer));
    }

    /// An export opens anywhere with a majority.
    #[test]
    fn an_export_opens_with_a_majority() {
        let exported = after(&first(), &[1, 2, 3], Owner::Exported, Kind::Change);
        assert!(writes_on(AWAY, None, &durable(&[1, 3], &exported), &exported));
        let minority = reason(THIS_HOST, None, &durable(&[2], &exported));
        assert!(matches!(minority, ReadOnlyReason::ExportedWithoutMajority { .. }));
    }

    /// A set that is complete by every label is refused if this host's arbiter knows of a later epoch: all of
    /// its disks were rolled back.
    #[test]
    fn a_set_older_than_the_arbiter_is_refused() {
        let newer = after(&first(), &[1, 2, 3], Owner::Host(THIS_HOST), Kind::Change);
        let old = durable(&[1, 2, 3], &first());
        assert!(matches!(reason(THIS_HOST, Some(&newer), &old), ReadOnlyReason::ArbiterElsewhere { .. }));
    }

    /// A voter that fell behind an epoch in force is named, and the owner goes on without it.
    #[test]
    fn a_voter_that_was_rolled_back_is_named() {
        let newer = after(&first(), &[1, 2, 3], Owner::Host(THIS_HOST), Kind::Change);
        let present = [durable(&[1, 2], &newer), durable(&[3], &first())].concat();
        assert!(writes_on(THIS_HOST, Some(&newer), &present, &newer));
        let expected = ReadOnlyReason::VoterStale { epoch: newer.id(), disk: disk(3) };
        assert_eq!(reason(AWAY, None, &present), expected);
    }

    /// An epoch that the arbiter names had reached all its voters: where one lost that again, before any of them knew that it was in force,
    /// the owner goes on with the others.
    #[test]
    fn a_voter_that_lost_an_epoch_that_is_named_does_not_undo_it() {
        let small = after(&first(), &[1, 2], Owner::Host(THIS_HOST), Kind::Change);
        let newer = after(&small, &[1, 2, 3], Owner::Host(THIS_HOST), Kind::Change);
        let holds = |index| DiskView { disk: disk(index), base: small.clone(), pending: Some(newer.clone()) };
        let present = [vec![holds(1), holds(2)], durable(&[3], &first())].concat();
        assert!(writes_on(THIS_HOST, Some(&newer), &present, &newer));
        // Where nobody says that it was complete, it was not.
        assert!(writes_on(THIS_HOST, Some(&small), &present, &small));
        assert!(writes_on(AWAY, None, &present, &small));
    }

    /// A smaller successor that reached all its voters and no further may have been given up at home.
    #[test]
    fn a_successor_not_known_in_force_waits_for_the_others() {
        let pending = after(&first(), &[1], Owner::Host(THIS_HOST), Kind::Change);
        let lone = DiskView { disk: disk(1), base: first(), pending: Some(pending.clone()) };
        assert!(matches!(reason(AWAY, None, std::slice::from_ref(&lone)), ReadOnlyReason::Unflushed { .. }));
        assert!(writes_on(THIS_HOST, Some(&pending), std::slice::from_ref(&lone), &pending));
        assert!(writes_on(THIS_HOST, Some(&first()), std::slice::from_ref(&lone), &first()));
        assert!(writes_on(AWAY, None, &[vec![lone], durable(&[2, 3], &first())].concat(), &pending));
    }

    /// Two sides that went apart by a confirmation are not opened together until one is chosen; then the
    /// chosen side's new epoch covers both.
    #[test]
    fn sides_that_went_apart_are_named() {
        let forced = after(&first(), &[3], Owner::Host(AWAY), Kind::Forced);
        let home = after(&first(), &[1, 2], Owner::Host(THIS_HOST), Kind::Change);
        let home = after(&home, &[1, 2], Owner::Host(THIS_HOST), Kind::Opening);
        let all = [durable(&[1, 2], &home), durable(&[3], &forced)].concat();
        let text = reason(THIS_HOST, Some(&home), &all).to_string();
        assert!(text.contains("never merged") && text.contains(&forced.id().to_string()), "{text}");
        let chosen = after(&home, &[1, 2, 3], Owner::Host(THIS_HOST), Kind::Forced);
        assert!(writes_on(THIS_HOST, Some(&chosen), &durable(&[1, 2, 3], &chosen), &chosen));
        // A side that did nothing since is merely stale.
        let idle = [durable(&[1, 2], &first()), durable(&[3], &forced)].concat();
        assert!(writes_on(AWAY, Some(&forced), &idle, &forced));
    }

    /// A successor that was given up while its disk was away is neither built on beside the one that went on,
    /// whatever their random bits say, nor taken where that one may be open with disks that are not here.
    #[test]
    fn an_abandoned_successor_never_displaces_the_one_that_went_on() {
        let base = after(&first(), &[1, 2, 3], Owner::Host(THIS_HOST), Kind::Change);
        let abandoned = after(&base, &[1], Owner::Host(THIS_HOST), Kind::Change);
        let mut parts = abandoned.parts().clone();
        parts.id.nonce = 1;
        parts.voters = vec![disk(2), disk(3)];
        parts.spans[0].epoch = parts.id;
        let went_on = EpochRecord::new(parts).unwrap();
        let lone = DiskView { disk: disk(1), base: base.clone(), pending: Some(abandoned) };
        let all = [vec![lone.clone()], durable(&[2, 3], &went_on)].concat();
        for host in [THIS_HOST, AWAY] {
            assert!(writes_on(host, None, &all, &went_on));
        }
        let small = after(&first(), &[1, 2], Owner::Host(THIS_HOST), Kind::Change);
        let discarded = DiskView {
            base: small.clone(),
            pending: Some(after(&small, &[1], Owner::Host(THIS_HOST), Kind::Change)),
            ..lone
        };
        let mut parts = after(&small, &[2, 3], Owner::Host(THIS_HOST), Kind::Change).parts().clone();
        parts.id.nonce = 1;
        parts.spans[0].epoch = parts.id;
        let rival = EpochRecord::new(parts).unwrap();
        let half = DiskView { disk: disk(2), base: small, pending: Some(rival) };
        assert!(matches!(reason(AWAY, None, &[discarded, half]), ReadOnlyReason::Unflushed { .. }));
    }

    /// Disks that carry no log cannot be opened on their own.
    #[test]
    fn without_a_voter_there_is_nothing_to_write_on() {
        let present = durable(&[9], &first());
        assert!(matches!(reason(THIS_HOST, Some(&first()), &present), ReadOnlyReason::NoVoterPresent { .. }));
    }
}
