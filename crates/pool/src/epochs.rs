//! Changes of the epoch of an open pool: a disk leaves, a disk comes, the pool is exported.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::Poll;

use dolmen_block_io::BlockDevice;
use dolmen_block_io::sync::{Permit, join_all};
use dolmen_causes::in_one_line;
use dolmen_disk::{Extent, Generation, Label, Member, MemberState, renew_label, write_label};
use dolmen_epoch::{EpochRecord, Kind, Owner, SPANS_MAX, Successor, next, next_sequence};
use dolmen_future_pool::pooled;
use dolmen_journal::LogCopy;
use dolmen_mutation::mutation;
use dolmen_placement::DomainId;
use dolmen_store::Replica;
use dolmen_units::{Bytes, DISKS_MAX, DiskId, DiskSlot, Epoch, EpochId, Lsn};

use crate::arbiter::HostRecord;
use crate::change::Purpose;
use crate::create::metadata_needed;
use crate::disk::Disk;
use crate::error::PoolError;
use crate::free::FreeMap;
use crate::keys;
use crate::members::{labels_of, raised, sequence_after};
use crate::pool::{ExcludeReason, Pool, domain_of};

/// Disks that carry log and metadata when there are enough of them: more than the largest redundancy of any space
/// (four copies survive three losses), so that no loss that a space survives takes them all.
pub(crate) const VOTERS_WANTED: usize = 4;

/// Stretches of the log that an open pool leaves in its labels for openings: were all taken, it could never be opened again.
const SPANS_FOR_OPENINGS: usize = 3;
/// Stretches up to which people may ask for an epoch: one more would stop the pool.
pub(crate) const SPANS_FOR_REQUESTS: usize = SPANS_MAX - SPANS_FOR_OPENINGS;

/// Why a disk that was retired is none any more.
const CALLED_OFF: &str = "its replacement was called off";

/// What a device is to the pool that takes it in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Joining<'a> {
    /// It was prepared just now, and was never a member.
    New,
    /// It is a member that was away, with this label.
    Back(&'a Label),
}

/// What the next epoch is to be.
pub(crate) struct Plan {
    voters: Vec<DiskId>,
    pub(crate) members: Vec<Member>,
    owner: Owner,
}

impl Pool {
    /// Lets a disk leave, before anything is acknowledged that it missed. Nothing to do when it has left already.
    ///
    /// # Errors
    /// When it was the last voter, or the pool cannot be written: the pool is latched then.
    #[pooled]
    pub async fn exclude(self: &Rc<Self>, slot: DiskSlot, reason: ExcludeReason) -> Result<(), PoolError> {
        let _exclusive = self.epoch_mutex.take().await;
        // One that has left may have done so in a change that failed, and with it the pool.
        self.writable_log().inspect_err(|error| self.note_failed(slot, error))?;
        let Some(disk) = self.disk(slot).filter(|disk| disk.is_present()) else { return Ok(()) };
        tracing::warn!(pool = %self.name, disk = %disk.name(), ?reason, "the disk leaves the pool");
        disk.unseat(Epoch(u64::MAX));
        self.change_epoch(|generation, number| {
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
        let slot = self.disks().iter().find(|disk| disk.id() == id).map(|disk| disk.slot());
        match slot {
            Some(slot) => self.exclude(slot, reason).await,
            None => Ok(()),
        }
    }

    /// Takes a device with a label of this pool back in, or a new one that was prepared for it. The member that it is to
    /// replace is retired by the same epoch, so that no new row ever lies on both.
    ///
    /// # Errors
    /// When the pool cannot be written or the device fails, [`PoolError::NoSuchDisk`] when a member was struck before it was
    /// back; the pool is as before then.
    #[pooled]
    pub(crate) async fn admit(
        self: &Rc<Self>,
        device: Rc<dyn BlockDevice>,
        extent: Extent,
        (mut member, joining): (Member, Joining<'_>),
        retires: Option<DiskId>,
    ) -> Result<Rc<Disk>, PoolError> {
        let mutex = self.epoch_mutex.take().await;
        self.writable_log()?;
        member.left = Epoch(0);
        let known = self.disk(member.slot);
        let disk = match known {
            Some(disk) if disk.id() == member.disk && !disk.is_present() => {
                disk.attachment(device, extent);
                if let Err(error) = self.renew_returning(&disk, joining).await {
                    disk.unseat(Epoch(u64::MAX));
                    return Err(error);
                }
                disk
            }
            Some(_) => return Err(PoolError::Full { name: self.name.clone(), why: "its place is taken" }),
            // Its slabs are elsewhere, and what it holds is of the past.
            None if matches!(joining, Joining::Back(_)) => {
                return Err(PoolError::NoSuchDisk { name: self.name.clone(), what: device.name() });
            }
            None => {
                let disk = Disk::new(member, Some((device, extent)), self.epoch().number);
                // Before the epoch that counts it in: a member without a label could never be told from a disk of nobody, and
                // would be missed for ever.
                let now = self.now.borrow().clone();
                self.write_one_label(&disk, &now, None).await?;
                disk
            }
        };
        let changed = self
            .change_epoch(|generation, _| {
                let mut plan = plan_of(generation);
                // What it is by now: it may have been retired since it was looked at.
                let known = plan.members.iter().find(|other| other.disk == member.disk).copied();
                plan.members.retain(|other| other.disk != member.disk);
                plan.members.push(Member { left: Epoch(0), ..known.unwrap_or(member) });
                plan.members.sort_by_key(|member| member.slot);
                retire(&mut plan.members, retires, member.slot);
                plan
            })
            .await;
        if let Err(error) = changed {
            disk.unseat(Epoch(u64::MAX));
            return Err(error);
        }
        let entry = self.now.borrow().members.iter().find(|other| other.disk == member.disk).copied();
        disk.set_member(entry.unwrap_or(member));
        if matches!(joining, Joining::New) {
            // What is known of free allocation units under its number is of who had that before.
            self.free.borrow_mut().remove(&member.slot);
        }
        self.disks.borrow_mut().insert(member.slot, Rc::clone(&disk));
        self.write_other_labels().await;
        drop(mutex);
        self.changed.notify_all();
        Ok(disk)
    }

    /// Gives a disk that comes back a later label before it counts, so that the epoch that counts it in names that label: else
    /// it would be called old behind a crash, or an image from while it was away would not be. What the label says of epochs stays
    /// as it is: until that epoch, the disk is absent.
    async fn renew_returning(&self, disk: &Disk, joining: Joining<'_>) -> Result<(), PoolError> {
        let Joining::Back(label) = joining else { return Ok(()) };
        let sequence = self.count_returning(label);
        if mutation!(ReturnUnstamped) {
            return Ok(());
        }
        let Some(device) = disk.device() else { return Ok(()) };
        let _exclusive = disk.label_mutex.take().await;
        disk.note_other_write();
        let label = Label { sequence, ..label.clone() };
        let written = write_label(&self.seams, device.as_ref(), self.highest.get(), &label).await;
        written.map_err(|source| PoolError::Label { name: self.name.clone(), source })?;
        self.name_label(&label);
        Ok(())
    }

    /// Whether a disk is a member, and not only of the number of one.
    #[must_use]
    pub fn is_member(&self, disk: &Disk) -> bool {
        self.disk(disk.slot()).is_some_and(|other| other.id() == disk.id())
    }

    /// Strikes a retired disk that holds nothing any more from the members, if it still is one. Its label is wiped by the caller.
    ///
    /// # Errors
    /// When the pool cannot be written; [`PoolError::NotReplaced`] when the disk is not retired any more, or something lies on it;
    /// [`PoolError::Full`] when it alone carries the metadata, and none that stays has room for it.
    #[pooled]
    pub async fn evict(self: &Rc<Self>, disk: &Rc<Disk>) -> Result<(), PoolError> {
        // Its number may be another one's by now.
        let is_member = || self.is_member(disk);
        let votes_alone = || self.voters() == [disk.id()];
        if !is_member() {
            return Ok(());
        }
        if self.voters().contains(&disk.id()) {
            // Before it goes, so that there are no fewer at any time than others can be.
            self.tend_voters_without(Some(disk.id())).await?;
        }
        let why = "no other disk has room for the metadata that the one to be struck carries";
        let last = || PoolError::Full { name: self.name.clone(), why };
        if votes_alone() {
            return Err(last());
        }
        self.forget_room(disk).await?;
        let mutex = self.epoch_mutex.take().await;
        if !is_member() {
            return Ok(());
        }
        let stays = match disk.member().state {
            _ if votes_alone() => Some(last()),
            MemberState::Active => Some(self.not_replaced(disk, CALLED_OFF)),
            MemberState::Retired => None,
        };
        if let Some(why) = stays {
            // All of its room is its own again.
            drop(mutex);
            self.give_room(disk).await?;
            // So is what it is for: that was forgotten with its room.
            if let Some(role) = self.role_of(disk) {
                self.set_role(disk, Some(role)).await?;
            }
            return Err(why);
        }
        self.change_epoch(|generation, _| {
            let mut plan = plan_of(generation);
            plan.voters.retain(|voter| *voter != disk.id());
            plan.members.retain(|member| member.disk != disk.id());
            plan
        })
        .await?;
        disk.unseat(Epoch(u64::MAX));
        self.disks.borrow_mut().remove(&disk.slot());
        drop(mutex);
        self.changed.notify_all();
        // It may have come back in between, and have been given all of its room.
        if self.free.borrow().contains_key(&disk.slot()) { self.forget_room(disk).await } else { Ok(()) }
    }

    pub(crate) fn not_replaced(&self, disk: &Disk, why: &'static str) -> PoolError {
        PoolError::NotReplaced { name: self.name.clone(), disk: disk.name(), why }
    }

    /// Turns a replacement round, by one epoch: `old` takes data again, and `new` is retired in its place. What lies on
    /// `new` goes to `old` from then on as in any replacement, and so does what lies on others that `new` was to stand for.
    ///
    /// # Errors
    /// [`PoolError::NotReplaced`] when `new` does not take the place of `old`, or has taken it all but for the last word; what
    /// the pool says when it cannot be written.
    #[pooled]
    pub async fn reverse_replacement(self: &Rc<Self>, old: &Disk, new: &Disk) -> Result<(), PoolError> {
        let is_so = |(one, other): &(Rc<Disk>, Rc<Disk>)| one.id() == old.id() && other.id() == new.id();
        if self.replacements().iter().any(is_so) {
            self.forget_declared_lost(old).await?;
        }
        let mutex = self.mutex_for_request(SPANS_FOR_REQUESTS).await?;
        self.writable_log()?;
        let refused = |why| self.not_replaced(old, why);
        if !self.replacements().iter().any(is_so) {
            return Err(refused("no replacement of it is under way"));
        }
        // Whoever strikes a disk forgets its room first.
        if !self.free.borrow().contains_key(&old.slot()) {
            return Err(refused("it holds nothing any more, and is being removed from the pool"));
        }
        let (old, new) = (old.id(), new.id());
        self.change_epoch(|generation, _| {
            let mut plan = plan_of(generation);
            let back = plan.members.iter_mut().find(|member| member.disk == old);
            let slot = back.map(|member| {
                (member.state, member.successor) = (MemberState::Active, None);
                member.slot
            });
            if let Some(slot) = slot {
                retire(&mut plan.members, Some(new), slot);
            }
            plan
        })
        .await?;
        self.write_other_labels().await;
        drop(mutex);
        self.changed.notify_all();
        Ok(())
    }

    /// Forgets what is free on a retired disk that holds nothing any more: whoever gets its slot next has allocation units of its
    /// own. A crash behind this finds a member without a record of its room, all of which is free.
    #[pooled]
    async fn forget_room(self: &Rc<Self>, disk: &Disk) -> Result<(), PoolError> {
        let mut change = self.change(Purpose::Release).await;
        let slot = disk.slot();
        if self.disk(slot).is_some_and(|other| other.id() != disk.id()) {
            return Ok(());
        }
        // With the change in hand, so that nobody takes any of it meanwhile.
        if self.is_member(disk) && disk.member().state != MemberState::Retired {
            return Err(self.not_replaced(disk, CALLED_OFF));
        }
        let known = self.free.borrow().get(&slot).map(FreeMap::total);
        if known.is_some_and(|free| free < unit_count(disk)) && !mutation!(EvictedWhileNamed) {
            return Err(self.not_replaced(disk, "something lies on it still"));
        }
        self.free.borrow_mut().remove(&slot);
        // What is all free is one run.
        change.delete(keys::free(slot, 0));
        change.delete(keys::free_total(slot));
        keys::of_member(slot).into_iter().for_each(|key| change.delete(key));
        change.commit().await
    }

    /// Gives the pool up, so that any host may open it: the host's record is withdrawn first, then the disks say so.
    ///
    /// # Errors
    /// When it could not be written; then this host has to open it again and try once more.
    #[pooled]
    pub async fn export(self: &Rc<Self>) -> Result<(), PoolError> {
        self.checkpoint().await?;
        self.flush_disks().await?;
        self.stamp().await;
        let mutex = self.epoch_mutex.take().await;
        let withdrawn = self.arbiter.withdraw(self.id).await;
        withdrawn.map_err(|source| PoolError::Arbiter { name: self.name.clone(), source })?;
        let exported =
            self.change_epoch(|generation, _| Plan { owner: Owner::Exported, ..plan_of(generation) }).await;
        self.write_other_labels().await;
        drop(mutex);
        self.stop().await;
        exported
    }

    /// Closes the pool: the log is emptied as far as can be, and the disks are flushed.
    ///
    /// # Errors
    /// When something could not be written. The next opening recovers then, as after a crash.
    #[pooled]
    pub async fn close(self: &Rc<Self>) -> Result<(), PoolError> {
        let written = match self.writable_log() {
            Ok(_) => {
                async {
                    self.checkpoint().await?;
                    self.flush_disks().await?;
                    self.stamp().await;
                    Ok(())
                }
                .await
            }
            Err(PoolError::ReadOnly { .. }) => Ok(()),
            Err(error) => Err(error),
        };
        self.stop().await;
        written
    }

    /// The turn for an epoch that nothing is wrong without: where labels are half full of such that the log names, a checkpoint
    /// comes first. A change for which there is no room stops the pool; so where as many as `spans_max` were named nevertheless,
    /// it is refused.
    ///
    /// # Errors
    /// What the pool says when it cannot be written; [`PoolError::Epoch`] when others came in between, and it can be tried again.
    pub(crate) async fn mutex_for_request(
        self: &Rc<Self>,
        spans_max: usize,
    ) -> Result<Permit<'_>, PoolError> {
        let found = || self.spans_needed() + 1;
        if found() > SPANS_MAX / 2 {
            self.checkpoint().await?;
        }
        let mutex = self.epoch_mutex.take().await;
        if found() > spans_max {
            let source = dolmen_epoch::ChangeError::SpansFull { found: found() };
            return Err(PoolError::Epoch { name: self.name.clone(), source });
        }
        Ok(mutex)
    }

    /// Brings the number of voters up to what is wanted, one disk at a time: pages and log are copied first.
    ///
    /// # Errors
    /// When the pool cannot be written.
    #[pooled]
    pub async fn tend_voters(self: &Rc<Self>) -> Result<(), PoolError> {
        self.tend_voters_without(None).await
    }

    /// As [`tend_voters`](Self::tend_voters), not counting one that is about to leave.
    async fn tend_voters_without(self: &Rc<Self>, leaving: Option<DiskId>) -> Result<(), PoolError> {
        loop {
            let voters = self.voters();
            let staying = voters.iter().filter(|voter| Some(**voter) != leaving).count();
            let missing = staying < VOTERS_WANTED && !self.stopping.get();
            let Some(disk) = self.best_candidate(&voters).filter(|_| missing) else {
                self.warn_of_few_voters();
                return Ok(());
            };
            if !self.make_voter(&disk).await? {
                return Ok(());
            }
        }
    }

    /// Says, each time that there are others, which disks cannot vote although they are missed.
    fn warn_of_few_voters(&self) {
        let small = self.too_small_to_vote();
        let slots: Vec<DiskSlot> = small.iter().map(|disk| disk.slot()).collect();
        let is_new = *self.reported_small.borrow() != slots;
        self.reported_small.replace(slots);
        if !small.is_empty() && is_new {
            let (voters, needed) = (self.voters().len(), self.voter_metadata_min());
            let disks: Vec<String> = small.iter().map(|disk| disk.name()).collect();
            tracing::warn!(pool = %self.name, voters, ?disks, %needed, "the metadata has fewer copies than wanted: these disks have no room for it");
        }
    }

    /// The disk that should become a voter: one that shares no fault domain with a voter, if there is one.
    fn best_candidate(&self, voters: &[DiskId]) -> Option<Rc<Disk>> {
        let disks = self.disks();
        let taken: Vec<DomainId> = disks
            .iter()
            .filter(|disk| voters.contains(&disk.id()))
            .map(|disk| domain_of(&disk.member()))
            .collect();
        let may_vote = |disk: &Rc<Disk>| !voters.contains(&disk.id()) && self.has_metadata_room(disk);
        let candidates = self.claimable().into_iter().filter(may_vote);
        candidates.min_by_key(|disk| {
            let domain = domain_of(&disk.member());
            (taken.iter().filter(|other| **other == domain).count(), disk.slot())
        })
    }

    /// The least metadata area of a disk that carries log and pages.
    #[must_use]
    pub fn voter_metadata_min(&self) -> Bytes {
        metadata_needed(self.log_bytes, self.page_bytes)
    }

    /// Whether log and pages end before the disk's data begins. Everything that lets a disk vote asks this: on one where they
    /// do not, each would overwrite the other.
    fn has_metadata_room(&self, disk: &Disk) -> bool {
        disk.extent().is_some_and(|extent| extent.metadata >= self.voter_metadata_min())
    }

    /// Present disks that take data and cannot vote, because their metadata area is too small for this pool, while there are
    /// fewer voters than wanted.
    #[must_use]
    pub fn too_small_to_vote(&self) -> Vec<Rc<Disk>> {
        if self.voters().len() >= VOTERS_WANTED {
            return Vec::new();
        }
        self.claimable().into_iter().filter(|disk| !self.has_metadata_room(disk)).collect()
    }

    /// Starts the task that brings the number of voters up after one has left.
    pub fn start_voter_tender(self: &Rc<Self>) {
        self.seams.spawner.spawn("voter tender", Box::pin(voter_tender(Rc::downgrade(self))));
    }

    /// Whether the disk became a voter; when it failed on the way, it is excluded instead.
    #[pooled]
    async fn make_voter(self: &Rc<Self>, disk: &Rc<Disk>) -> Result<bool, PoolError> {
        let Some(device) = disk.device() else { return Ok(false) };
        assert!(self.has_metadata_room(disk), "{} has no room for the log and pages of a voter", disk.name());
        // No checkpoint may come between copying the pages and counting the disk in.
        let _checkpoint = self.checkpoint_mutex.take().await;
        if self.stopping.get() || self.voters().contains(&disk.id()) {
            return Ok(!self.stopping.get());
        }
        let replica = Replica { disk: disk.id(), device: Rc::clone(&device) };
        let copied = self.store.copy_to(&replica).await;
        disk.note_other_write();
        if copied.is_err() {
            self.exclude(disk.slot(), ExcludeReason::MissedCommit).await?;
            return Ok(false);
        }
        let _exclusive = self.epoch_mutex.take().await;
        let id = disk.id();
        self.change_epoch(|generation, _| {
            let mut plan = plan_of(generation);
            plan.voters.push(id);
            plan
        })
        .await?;
        Ok(self.voters().contains(&id))
    }

    /// Installs the epoch that `plan` makes of the one in force: pending on every voter, then the arbiter, then settled on
    /// every voter, then the log goes on under it. A voter whose label cannot be written is left out by a further epoch.
    /// The caller holds the epoch turn.
    pub(crate) async fn change_epoch(
        self: &Rc<Self>,
        plan: impl Fn(&Generation, Epoch) -> Plan,
    ) -> Result<(), PoolError> {
        let log = Rc::clone(self.writable_log()?);
        let result = log.change_epoch(async |first: Lsn| self.install(&plan, first).await).await;
        if let Err(error) = &result {
            self.latch(in_one_line(error));
        }
        self.changed.notify_all();
        self.voters_notify.notify_all();
        // Epochs fill the labels until a checkpoint says which of their stretches of the log are needed.
        self.checkpoint_notify.notify_all();
        result
    }

    async fn install(
        self: &Rc<Self>,
        plan: &impl Fn(&Generation, Epoch) -> Plan,
        first: Lsn,
    ) -> Result<(EpochId, Epoch, Vec<LogCopy>), PoolError> {
        let mut lost: Vec<DiskId> = Vec::new();
        loop {
            let current = self.now.borrow().clone();
            let number = self.highest.get().max(current.epoch.number()).next();
            let mut plan = plan(&current, number);
            for id in &lost {
                plan.voters.retain(|voter| voter != id);
                mark_absent(&mut plan.members, *id, number);
            }
            let has_room = |voter: &DiskId| {
                let disk = self.disks().into_iter().find(|disk| disk.id() == *voter);
                disk.is_none_or(|disk| disk.extent().is_none() || self.has_metadata_room(&disk))
            };
            assert!(plan.voters.iter().all(has_room), "every voter has room for log and pages");
            let record = self.successor(&current, &plan, first)?;
            self.highest.set(record.number());
            let generation = Generation { epoch: record, members: plan.members };
            if let Err(id) = self.pend(&current, &generation).await {
                self.note_failed_id(id);
                lost.push(id);
                continue;
            }
            let entered = self.enter(generation, plan.owner).await?;
            match self.commit_labels().await {
                Ok(()) => return Ok(entered),
                Err(id) => {
                    self.note_failed_id(id);
                    lost.push(id);
                }
            }
        }
    }

    /// Notes of a disk that it failed, where it cannot leave because the pool has stopped: nothing else says so.
    fn note_failed(&self, slot: DiskSlot, why: &PoolError) {
        if matches!(why, PoolError::Latched { .. }) {
            self.disk(slot).iter().for_each(|disk| disk.note_failed());
        }
    }

    pub(crate) fn note_failed_id(&self, id: DiskId) {
        self.disks().iter().filter(|disk| disk.id() == id).for_each(|disk| disk.note_failed());
    }

    /// Writes the epoch that is on record as the one in force to all its voters; the voter that failed otherwise. Before
    /// this, nothing is acknowledged under it.
    async fn commit_labels(&self) -> Result<(), DiskId> {
        let now = self.now.borrow().clone();
        for voter in now.epoch.voters() {
            let disk = self.disks().into_iter().find(|disk| disk.id() == *voter).ok_or(*voter)?;
            self.write_one_label(&disk, &now, None).await.map_err(|_| *voter)?;
        }
        Ok(())
    }

    fn successor(&self, current: &Generation, plan: &Plan, first: Lsn) -> Result<EpochRecord, PoolError> {
        let found = self.spans_needed() + 1;
        if found > SPANS_MAX - SPANS_FOR_OPENINGS {
            let source = dolmen_epoch::ChangeError::SpansFull { found };
            return Err(PoolError::Epoch { name: self.name.clone(), source });
        }
        let successor = Successor {
            highest: self.highest.get(),
            owner: plan.owner,
            voters: plan.voters.clone(),
            nonce: self.seams.entropy.next_u64(),
            oldest: self.tail.get().lsn.min(first),
            first,
            present: self.disks().iter().filter(|disk| disk.is_present()).map(|disk| disk.id()).collect(),
            kind: Kind::Change,
        };
        next(&current.epoch, successor).map_err(|source| PoolError::Epoch { name: self.name.clone(), source })
    }

    /// Writes the pending epoch to all its voters, new ones' logs first; the voter that failed otherwise.
    #[pooled]
    async fn pend(&self, current: &Generation, pending: &Generation) -> Result<(), DiskId> {
        for voter in pending.epoch.voters() {
            let disk = self.disks().into_iter().find(|disk| disk.id() == *voter).ok_or(*voter)?;
            let device = disk.device().ok_or(*voter)?;
            if !current.epoch.voters().contains(voter) {
                let log = self.log.as_ref().ok_or(*voter)?;
                let copy = LogCopy { disk: *voter, device: Rc::clone(&device) };
                log.copy_to(&copy).await.map_err(|_| *voter)?;
            }
            disk.note_other_write();
            self.write_one_label(&disk, current, Some(pending)).await.map_err(|_| *voter)?;
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
            let labels = labels_of(generation.epoch.voters(), &self.named.borrow());
            let recorded = self.arbiter.record(self.id, HostRecord { epoch: id, labels }).await;
            recorded.map_err(|source| PoolError::Arbiter { name: self.name.clone(), source })?;
        }
        for disk in self.disks() {
            if let Some(member) = generation.members.iter().find(|member| member.disk == disk.id()) {
                disk.set_member(*member);
                if member.is_away() {
                    disk.unseat(Epoch(u64::MAX));
                }
            }
            disk.set_token(id.number);
        }
        let voters = generation.epoch.voters().to_vec();
        *self.now.borrow_mut() = generation;
        let (copies, replicas) = self.copies_of(&voters);
        self.store.set_replicas(id.number, replicas);
        tracing::info!(pool = %self.name, epoch = %id, voters = voters.len(), "a new epoch is in force");
        Ok((id, id.number, copies))
    }

    /// Log copies and replicas of the metadata on the disks named.
    pub(crate) fn copies_of(&self, voters: &[DiskId]) -> (Vec<LogCopy>, Vec<Replica>) {
        let devices = self.disks().into_iter().filter(|disk| voters.contains(&disk.id()));
        let devices: Vec<_> = devices.filter_map(|disk| Some((disk.id(), disk.device()?))).collect();
        let copies =
            devices.iter().map(|(disk, device)| LogCopy { disk: *disk, device: Rc::clone(device) }).collect();
        let replicas = devices.into_iter().map(|(disk, device)| Replica { disk, device }).collect();
        (copies, replicas)
    }

    #[pooled]
    async fn write_one_label(
        &self,
        disk: &Rc<Disk>,
        base: &Generation,
        pending: Option<&Generation>,
    ) -> Result<(), PoolError> {
        let _exclusive = disk.label_mutex.take().await;
        let (device, label) = self.next_label(disk, base, pending)?;
        pending.iter().for_each(|pending| disk.begin_pending(pending.epoch.number()));
        let written = write_label(&self.seams, device.as_ref(), self.highest.get(), &label).await;
        written.map_err(|source| PoolError::Label { name: self.name.clone(), source })?;
        self.name_label(&label);
        Ok(())
    }

    /// Notes that a label is durable.
    fn name_label(&self, label: &Label) {
        let mut named = self.named.borrow_mut();
        let newest = named.entry(label.disk).or_default();
        *newest = label.sequence.max(*newest);
    }

    /// The number of the next label of a disk.
    fn count_label(&self, disk: &Disk) -> u64 {
        let mut sequences = self.sequences.borrow_mut();
        let sequence = sequences.entry(disk.id()).or_insert(0);
        *sequence = sequence_after(*sequence, disk.id(), &self.named.borrow());
        *sequence
    }

    /// The number of the next label of a disk that comes back: above the label that it has and those that the pool knows of, and
    /// for the other slot than the one that it has.
    fn count_returning(&self, label: &Label) -> u64 {
        let named = self.named.borrow().get(&label.disk).copied();
        let mut sequences = self.sequences.borrow_mut();
        let known = sequences.get(&label.disk).copied().max(named).unwrap_or(0);
        let sequence = next_sequence(label.sequence, known);
        sequences.insert(label.disk, sequence);
        sequence
    }

    /// Writes the label of a disk that says what it said before, and is of another time. The caller holds the epoch turn.
    pub(crate) async fn renew_one_label(&self, disk: &Rc<Disk>, now: &Generation) -> Result<(), PoolError> {
        let _exclusive = disk.label_mutex.take().await;
        self.renew_exclusively(disk, now).await
    }

    /// As [`renew_one_label`](Self::renew_one_label). The caller holds the mutex of the label, and knows that the label holds no
    /// pending epoch that is still to come into force.
    pub(crate) async fn renew_exclusively(&self, disk: &Rc<Disk>, now: &Generation) -> Result<(), PoolError> {
        let (device, label) = self.next_label(disk, now, None)?;
        let written = renew_label(&self.seams, device.as_ref(), self.highest.get(), &label).await;
        written.map_err(|source| PoolError::Label { name: self.name.clone(), source })?;
        self.name_label(&label);
        Ok(())
    }

    /// The next label of a disk, and the device that it goes to.
    fn next_label(
        &self,
        disk: &Disk,
        base: &Generation,
        pending: Option<&Generation>,
    ) -> Result<(Rc<dyn BlockDevice>, Label), PoolError> {
        let (Some(device), Some(extent)) = (disk.device(), disk.extent()) else {
            return Err(PoolError::NoSuchDisk { name: self.name.clone(), what: disk.name() });
        };
        let sequence = self.count_label(disk);
        let named = self.named.borrow();
        let label = Label {
            pool: self.id,
            pool_name: self.name.clone(),
            disk: disk.id(),
            sequence,
            extent,
            log: self.log_bytes,
            pages: self.page_bytes,
            heartbeat: self.heartbeat.get(),
            base: raised(base, &named),
            pending: pending.map(|pending| raised(pending, &named)),
        };
        Ok((device, label))
    }

    /// Brings the labels of the disks that do not vote up to date, all at once: a pool may have hundreds. They decide nothing, so a failure is no more than a
    /// reason to look at that disk; its next write will tell.
    pub(crate) async fn write_other_labels(self: &Rc<Self>) {
        let now = self.now.borrow().clone();
        let mut others = self.disks();
        others.retain(|disk| disk.device().is_some() && !now.epoch.voters().contains(&disk.id()));
        let write = async |disk: &Rc<Disk>| {
            disk.note_other_write();
            if let Err(error) = self.write_one_label(disk, &now, None).await {
                tracing::warn!(pool = %self.name, disk = %disk.name(), %error, "the label of a disk is out of date");
            }
        };
        join_all(others.iter().map(write)).await;
    }

    /// Starts the task that lets voters leave whose log fails.
    pub(crate) fn start_guardian(self: &Rc<Self>) {
        self.seams.spawner.spawn("log guardian", Box::pin(guardian(Rc::downgrade(self))));
    }

    /// A slot for a new member.
    ///
    /// # Errors
    /// [`PoolError::Full`].
    pub fn free_slot(&self) -> Result<DiskSlot, PoolError> {
        let disks = self.disks.borrow();
        let slots = (0..DISKS_MAX).filter_map(|slot| u16::try_from(slot).ok()).map(DiskSlot);
        let why = "it has as many as a pool can have";
        slots
            .filter(|slot| !disks.contains_key(slot))
            .min()
            .ok_or(PoolError::Full { name: self.name.clone(), why })
    }
}

async fn guardian(weak: Weak<Pool>) {
    let Some((log, notify)) =
        weak.upgrade().and_then(|pool| Some((pool.log.clone()?, Rc::clone(&pool.stop_notify))))
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
        let Some(pool) = weak.upgrade() else { return };
        let excluded = pool.exclude_id(failed, ExcludeReason::MissedCommit).await;
        if excluded.is_err() || log.failures().iter().any(|failure| failure.disk == failed) {
            pool.latch(format!("the log on disk {failed} failed, and no epoch without it came into force"));
            return;
        }
    }
}

#[pooled]
async fn voter_tender(weak: Weak<Pool>) {
    let Some(notify) = weak.upgrade().map(|pool| Rc::clone(&pool.voters_notify)) else { return };
    loop {
        let next = notify.wait();
        let Some(pool) = weak.upgrade().filter(|pool| !pool.stopping.get()) else { return };
        if let Err(error) = pool.tend_voters().await {
            tracing::warn!(pool = %pool.name, %error, "the metadata has too few copies");
        }
        drop(pool);
        next.await;
    }
}

pub(crate) fn plan_of(generation: &Generation) -> Plan {
    Plan {
        voters: generation.epoch.voters().to_vec(),
        members: generation.members.clone(),
        owner: generation.epoch.owner(),
    }
}

/// Allocation units of a disk, whether it is here or not.
fn unit_count(disk: &Disk) -> u64 {
    let extent = disk.extent().or_else(|| Extent::of(disk.member().capacity).ok());
    extent.map_or(0, |extent| extent.unit_count())
}

fn retire(members: &mut [Member], disk: Option<DiskId>, successor: DiskSlot) {
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
