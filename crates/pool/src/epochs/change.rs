//! Changes of the epoch of an open pool: pending on every voter, then the arbiter, then settled on every voter.
//!
//! Invariant: nothing is committed before every voter holds it; a voter that does not answer is voted out first.

use std::future::poll_fn;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::Poll;

use dolmen_block_io::sync::{AsyncMutex, Notify};
use dolmen_causes::in_one_line;
use dolmen_disk::{Generation, Member, MemberState};
use dolmen_epoch::{EpochRecord, Kind, Owner, SPANS_MAX, Successor, next};
use dolmen_future_pool::pooled;
use dolmen_journal::LogCopy;
use dolmen_units::{DiskId, DiskSlot, Epoch, EpochId, Lsn};

use crate::arbiter::{Arbiter, HostRecord};
use crate::epochs::labels::PoolLabels;
use crate::error::PoolError;
use crate::log::pool_log::PoolLog;
use crate::members::entries::labels_of;
use crate::members::identity::Identity;
use crate::members::table::Members;
use crate::metadata::map::MetadataMap;
use crate::ranks;

/// Disks that carry log and metadata when there are enough of them: more than the largest redundancy of any space
/// (four copies survive three losses), so that no loss that a space survives takes them all.
pub(crate) const VOTERS_WANTED: usize = 4;
/// Stretches of the log that an open pool leaves in its labels for openings: were all taken, it could never be opened again.
const SPANS_FOR_OPENINGS: usize = 3;
/// Stretches up to which people may ask for an epoch: one more would stop the pool.
pub(crate) const SPANS_FOR_REQUESTS: usize = SPANS_MAX - SPANS_FOR_OPENINGS;

/// Why a disk is excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExcludeReason {
    /// It failed, or did not answer, while data was written.
    MissedWrite,
    /// It failed while its log or metadata was written.
    MissedCommit,
    /// A flush failed: what it holds since the last good one is unknown.
    FailedFlush,
    /// A person said so.
    Asked,
}

/// What the next epoch is to be.
pub(crate) struct Plan {
    pub(crate) voters: Vec<DiskId>,
    pub(crate) members: Vec<Member>,
    pub(crate) owner: Owner,
}

/// Changes the epoch of an open pool.
pub struct Epochs {
    pub(crate) identity: Rc<Identity>,
    pub(crate) members: Rc<Members>,
    pub(crate) map: Rc<MetadataMap>,
    pub(crate) log: Rc<PoolLog>,
    pub(crate) labels: Rc<PoolLabels>,
    pub(crate) arbiter: Rc<dyn Arbiter>,
    /// The turn to change the epoch.
    pub(crate) mutex: AsyncMutex,
    /// Rings when there may be too few voters.
    pub(crate) voters_notify: Rc<Notify>,
}

impl Epochs {
    pub(crate) fn new(
        identity: &Rc<Identity>,
        members: &Rc<Members>,
        map: &Rc<MetadataMap>,
        log: &Rc<PoolLog>,
        labels: &Rc<PoolLabels>,
        arbiter: &Rc<dyn Arbiter>,
    ) -> Rc<Self> {
        Rc::new(Self {
            identity: Rc::clone(identity),
            members: Rc::clone(members),
            map: Rc::clone(map),
            log: Rc::clone(log),
            labels: Rc::clone(labels),
            arbiter: Rc::clone(arbiter),
            mutex: AsyncMutex::ranked(ranks::EPOCH.single()),
            voters_notify: Rc::default(),
        })
    }

    /// Lets a disk leave, before anything is acknowledged that it missed. Nothing to do when it has left already.
    ///
    /// # Errors
    /// When it was the last voter, or the pool cannot be written: the pool is latched then.
    #[pooled]
    pub async fn exclude(self: &Rc<Self>, slot: DiskSlot, reason: ExcludeReason) -> Result<(), PoolError> {
        let _exclusive = self.mutex.take().await;
        // One that has left may have done so in a change that failed, and with it the pool.
        self.log.writable().inspect_err(|error| self.note_failed(slot, error))?;
        let Some(disk) = self.members.disk(slot).filter(|disk| disk.is_present()) else { return Ok(()) };
        tracing::warn!(pool = %self.identity.name, disk = %disk.name(), ?reason, "the disk leaves the pool");
        disk.unseat(Epoch(u64::MAX));
        self.change(|generation, number| {
            let mut plan = plan_of(generation);
            plan.voters.retain(|voter| *voter != disk.id());
            mark_absent(&mut plan.members, disk.id(), number);
            plan
        })
        .await
    }

    /// As [`exclude`](Self::exclude), by identity.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn exclude_id(
        self: &Rc<Self>,
        id: DiskId,
        reason: ExcludeReason,
    ) -> Result<(), PoolError> {
        let slot = self.members.disks().iter().find(|disk| disk.id() == id).map(|disk| disk.slot());
        match slot {
            Some(slot) => self.exclude(slot, reason).await,
            None => Ok(()),
        }
    }

    /// Installs the epoch that `plan` makes of the one in force: pending on every voter, then the arbiter, then settled on
    /// every voter, then the log goes on under it. A voter whose label cannot be written is left out by a further epoch.
    /// The caller holds the epoch turn.
    pub(crate) async fn change(
        self: &Rc<Self>,
        plan: impl Fn(&Generation, Epoch) -> Plan,
    ) -> Result<(), PoolError> {
        let log = Rc::clone(self.log.writable()?);
        let result = log.change_epoch(async |first: Lsn| self.install(&plan, first).await).await;
        if let Err(error) = &result {
            self.log.latch(in_one_line(error));
        }
        self.members.changed.notify_all();
        self.voters_notify.notify_all();
        // Epochs fill the labels until a checkpoint says which of their stretches of the log are needed.
        self.log.checkpoint_notify.notify_all();
        result
    }

    async fn install(
        self: &Rc<Self>,
        plan: &impl Fn(&Generation, Epoch) -> Plan,
        first: Lsn,
    ) -> Result<(EpochId, Epoch, Vec<LogCopy>), PoolError> {
        let mut lost: Vec<DiskId> = Vec::new();
        loop {
            let current = self.members.now.borrow().clone();
            let number = self.labels.highest.get().max(current.epoch.number()).next();
            let mut plan = plan(&current, number);
            for id in &lost {
                plan.voters.retain(|voter| voter != id);
                mark_absent(&mut plan.members, *id, number);
            }
            let has_room = |voter: &DiskId| {
                let disk = self.members.disks().into_iter().find(|disk| disk.id() == *voter);
                disk.is_none_or(|disk| disk.extent().is_none() || self.identity.has_metadata_room(&disk))
            };
            assert!(plan.voters.iter().all(has_room), "every voter has room for log and pages");
            let record = self.successor(&current, &plan, first)?;
            self.labels.highest.set(record.number());
            let generation = Generation { epoch: record, members: plan.members };
            if let Err(id) = self.pend(&current, &generation).await {
                self.members.note_failed_id(id);
                lost.push(id);
                continue;
            }
            let entered = self.enter(generation, plan.owner).await?;
            match self.commit_labels().await {
                Ok(()) => return Ok(entered),
                Err(id) => {
                    self.members.note_failed_id(id);
                    lost.push(id);
                }
            }
        }
    }

    /// Notes of a disk that it failed, where it cannot leave because the pool has stopped: nothing else says so.
    fn note_failed(&self, slot: DiskSlot, why: &PoolError) {
        if matches!(why, PoolError::Latched { .. }) {
            self.members.disk(slot).iter().for_each(|disk| disk.absence().note_failed());
        }
    }

    /// Writes the epoch that is on record as the one in force to all its voters; the voter that failed otherwise. Before
    /// this, nothing is acknowledged under it.
    async fn commit_labels(&self) -> Result<(), DiskId> {
        let now = self.members.now.borrow().clone();
        for voter in now.epoch.voters() {
            let disk = self.members.disks().into_iter().find(|disk| disk.id() == *voter).ok_or(*voter)?;
            self.labels.write_one_label(&disk, &now, None).await.map_err(|_| *voter)?;
        }
        Ok(())
    }

    fn successor(&self, current: &Generation, plan: &Plan, first: Lsn) -> Result<EpochRecord, PoolError> {
        let found = self.log.spans_needed() + 1;
        if found > SPANS_MAX - SPANS_FOR_OPENINGS {
            let source = dolmen_epoch::ChangeError::SpansFull { found };
            return Err(PoolError::Epoch { name: self.identity.name.clone(), source });
        }
        let successor = Successor {
            highest: self.labels.highest.get(),
            owner: plan.owner,
            voters: plan.voters.clone(),
            nonce: self.identity.seams.entropy.next_u64(),
            oldest: self.log.tail.get().lsn.min(first),
            first,
            present: self
                .members
                .disks()
                .iter()
                .filter(|disk| disk.is_present())
                .map(|disk| disk.id())
                .collect(),
            kind: Kind::Change,
        };
        next(&current.epoch, successor)
            .map_err(|source| PoolError::Epoch { name: self.identity.name.clone(), source })
    }

    /// Writes the pending epoch to all its voters, new ones' logs first; the voter that failed otherwise.
    #[pooled]
    async fn pend(&self, current: &Generation, pending: &Generation) -> Result<(), DiskId> {
        for voter in pending.epoch.voters() {
            let disk = self.members.disks().into_iter().find(|disk| disk.id() == *voter).ok_or(*voter)?;
            let device = disk.device().ok_or(*voter)?;
            if !current.epoch.voters().contains(voter) {
                let log = self.log.journal.as_ref().ok_or(*voter)?;
                let copy = LogCopy { disk: *voter, device: Rc::clone(&device) };
                log.copy_to(&copy).await.map_err(|_| *voter)?;
            }
            disk.note_other_write();
            self.labels.write_one_label(&disk, current, Some(pending)).await.map_err(|_| *voter)?;
        }
        Ok(())
    }

    #[pooled]
    async fn enter(
        self: &Rc<Self>,
        generation: Generation,
        owner: Owner,
    ) -> Result<(EpochId, Epoch, Vec<LogCopy>), PoolError> {
        let id = generation.epoch.id();
        if let Owner::Host(_) = owner {
            let labels = labels_of(generation.epoch.voters(), &self.labels.named.borrow());
            let recorded = self.arbiter.record(self.identity.id, HostRecord { epoch: id, labels }).await;
            recorded.map_err(|source| PoolError::Arbiter { name: self.identity.name.clone(), source })?;
        }
        for disk in self.members.disks() {
            if let Some(member) = generation.members.iter().find(|member| member.disk == disk.id()) {
                disk.set_member(*member);
                if member.is_away() {
                    disk.unseat(Epoch(u64::MAX));
                }
            }
            disk.set_token(id.number);
        }
        let voters = generation.epoch.voters().to_vec();
        *self.members.now.borrow_mut() = generation;
        let (copies, replicas) = self.members.copies_of(&voters);
        self.map.store.set_replicas(id.number, replicas);
        tracing::info!(pool = %self.identity.name, epoch = %id, voters = voters.len(), "a new epoch is in force");
        Ok((id, id.number, copies))
    }

    /// Starts the task that lets voters leave whose log fails.
    pub(crate) fn start_guardian(self: &Rc<Self>) {
        self.identity.seams.spawner.spawn("log guardian", Box::pin(guardian(Rc::downgrade(self))));
    }
}

async fn guardian(weak: Weak<Epochs>) {
    let Some((log, notify)) = weak
        .upgrade()
        .and_then(|epochs| Some((epochs.log.journal.clone()?, Rc::clone(&epochs.log.stop_notify))))
    else {
        return;
    };
    loop {
        let mut trouble = pin!(log.trouble());
        let mut stopped = pin!(notify.wait());
        let failed = poll_fn(|cx| match trouble.as_mut().poll(cx) {
            Poll::Ready(disk) => Poll::Ready(Some(disk)),
            Poll::Pending => stopped.as_mut().poll(cx).map(|()| None),
        });
        let Some(failed) = failed.await else { return };
        // Also while the pool is being closed: its last checkpoint waits for every copy.
        let Some(epochs) = weak.upgrade() else { return };
        let excluded = epochs.exclude_id(failed, ExcludeReason::MissedCommit).await;
        if excluded.is_err() || log.failures().iter().any(|failure| failure.disk == failed) {
            epochs
                .log
                .latch(format!("the log on disk {failed} failed, and no epoch without it came into force"));
            return;
        }
    }
}

pub(crate) fn plan_of(generation: &Generation) -> Plan {
    Plan {
        voters: generation.epoch.voters().to_vec(),
        members: generation.members.clone(),
        owner: generation.epoch.owner(),
    }
}

pub(crate) fn retire(members: &mut [Member], disk: Option<DiskId>, successor: DiskSlot) {
    let Some(slot) = members.iter().find(|member| Some(member.disk) == disk).map(|member| member.slot) else {
        return;
    };
    // Who was to be replaced by the one that is replaced itself goes to the last of them: the number of that one is free soon.
    for member in members.iter_mut().filter(|member| member.successor == Some(slot)) {
        member.successor = Some(successor);
    }
    for member in members.iter_mut().filter(|member| member.slot == slot) {
        member.state = MemberState::Retired;
        member.successor = Some(successor);
    }
}

/// Notes that a member is not there from epoch `number` on; one that left earlier stays with the earlier number.
pub(crate) fn mark_absent(members: &mut [Member], disk: DiskId, number: Epoch) {
    for member in members.iter_mut().filter(|member| member.disk == disk) {
        if !member.is_away() {
            member.left = number;
        }
    }
}
