//! The number of voters: brought up to what is wanted, one disk at a time.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use dolmen_future_pool::pooled;
use dolmen_placement::DomainId;
use dolmen_store::Replica;
use dolmen_units::{DiskId, DiskSlot};

use crate::changes::checkpoints::Checkpoints;
use crate::disks::disk::Disk;
use crate::epochs::change::{Epochs, ExcludeReason, VOTERS_WANTED, plan_of};
use crate::error::PoolError;
use crate::log::pool_log::PoolLog;
use crate::members::identity::Identity;
use crate::members::table::{Members, domain_of};
use crate::metadata::map::MetadataMap;

/// Brings the number of voters of an open pool up to what is wanted.
pub struct VoterTender {
    pub(crate) identity: Rc<Identity>,
    pub(crate) members: Rc<Members>,
    pub(crate) map: Rc<MetadataMap>,
    pub(crate) log: Rc<PoolLog>,
    pub(crate) epochs: Rc<Epochs>,
    pub(crate) checkpoints: Rc<Checkpoints>,
    /// Disks that were said to be too small to vote.
    pub(crate) reported_small: RefCell<Vec<DiskSlot>>,
}

impl VoterTender {
    pub(crate) fn new(
        identity: &Rc<Identity>,
        members: &Rc<Members>,
        map: &Rc<MetadataMap>,
        log: &Rc<PoolLog>,
        epochs: &Rc<Epochs>,
        checkpoints: &Rc<Checkpoints>,
    ) -> Rc<Self> {
        Rc::new(Self {
            identity: Rc::clone(identity),
            members: Rc::clone(members),
            map: Rc::clone(map),
            log: Rc::clone(log),
            epochs: Rc::clone(epochs),
            checkpoints: Rc::clone(checkpoints),
            reported_small: RefCell::default(),
        })
    }

    /// Brings the number of voters up to what is wanted, one disk at a time: pages and log are copied first.
    ///
    /// # Errors
    /// When the pool cannot be written.
    #[pooled]
    pub async fn tend(self: &Rc<Self>) -> Result<(), PoolError> {
        self.tend_without(None).await
    }

    /// As [`tend`](Self::tend), not counting one that is about to leave.
    pub(crate) async fn tend_without(self: &Rc<Self>, leaving: Option<DiskId>) -> Result<(), PoolError> {
        loop {
            let voters = self.members.voters();
            let staying = voters.iter().filter(|voter| Some(**voter) != leaving).count();
            let missing = staying < VOTERS_WANTED && !self.log.stopping.get();
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
            let (voters, needed) = (self.members.voters().len(), self.identity.voter_metadata_min());
            let disks: Vec<String> = small.iter().map(|disk| disk.name()).collect();
            tracing::warn!(pool = %self.identity.name, voters, ?disks, %needed, "the metadata has fewer copies than wanted: these disks have no room for it");
        }
    }

    /// The disk that should become a voter: one that shares no fault domain with a voter, if there is one.
    fn best_candidate(&self, voters: &[DiskId]) -> Option<Rc<Disk>> {
        let disks = self.members.disks();
        let taken: Vec<DomainId> = disks
            .iter()
            .filter(|disk| voters.contains(&disk.id()))
            .map(|disk| domain_of(&disk.member()))
            .collect();
        let may_vote =
            |disk: &Rc<Disk>| !voters.contains(&disk.id()) && self.identity.has_metadata_room(disk);
        let candidates = self.members.claimable().into_iter().filter(may_vote);
        candidates.min_by_key(|disk| {
            let domain = domain_of(&disk.member());
            (taken.iter().filter(|other| **other == domain).count(), disk.slot())
        })
    }

    /// Present disks that take data and cannot vote, because their metadata area is too small for this pool, while there are
    /// fewer voters than wanted.
    #[must_use]
    pub fn too_small_to_vote(&self) -> Vec<Rc<Disk>> {
        if self.members.voters().len() >= VOTERS_WANTED {
            return Vec::new();
        }
        self.members.claimable().into_iter().filter(|disk| !self.identity.has_metadata_room(disk)).collect()
    }

    /// Starts the task that brings the number of voters up after one has left.
    pub fn start(self: &Rc<Self>) {
        self.identity.seams.spawner.spawn("voter tender", Box::pin(voter_tender(Rc::downgrade(self))));
    }

    /// Whether the disk became a voter; when it failed on the way, it is excluded instead.
    #[pooled]
    async fn make_voter(self: &Rc<Self>, disk: &Rc<Disk>) -> Result<bool, PoolError> {
        let Some(device) = disk.device() else { return Ok(false) };
        assert!(
            self.identity.has_metadata_room(disk),
            "{} has no room for the log and pages of a voter",
            disk.name()
        );
        // No checkpoint may come between copying the pages and counting the disk in.
        let _checkpoint = self.checkpoints.mutex.take().await;
        if self.log.stopping.get() || self.members.voters().contains(&disk.id()) {
            return Ok(!self.log.stopping.get());
        }
        let replica = Replica { disk: disk.id(), device: Rc::clone(&device) };
        let copied = self.map.store.copy_to(&replica).await;
        disk.note_other_write();
        if copied.is_err() {
            self.epochs.exclude(disk.slot(), ExcludeReason::MissedCommit).await?;
            return Ok(false);
        }
        let _exclusive = self.epochs.mutex.take().await;
        let id = disk.id();
        self.epochs
            .change(|generation, _| {
                let mut plan = plan_of(generation);
                plan.voters.push(id);
                plan
            })
            .await?;
        Ok(self.members.voters().contains(&id))
    }
}

#[pooled]
async fn voter_tender(weak: Weak<VoterTender>) {
    let Some(notify) = weak.upgrade().map(|tender| Rc::clone(&tender.epochs.voters_notify)) else { return };
    loop {
        let next = notify.wait();
        let Some(tender) = weak.upgrade().filter(|tender| !tender.log.stopping.get()) else { return };
        if let Err(error) = tender.tend().await {
            tracing::warn!(pool = %tender.identity.name, %error, "the metadata has too few copies");
        }
        drop(tender);
        next.await;
    }
}
