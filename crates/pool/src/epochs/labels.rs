//! Labels of the members of an open pool: their numbers, and the newest that are durable.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::BlockDevice;
use dolmen_block_io::sync::join_all;
use dolmen_block_io::within;
use dolmen_disk::{
    Contents, Extent, Generation, Label, LabelError, clear_back_labels, look, renew_label, write_label,
};
use dolmen_epoch::next_sequence;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_units::{DiskId, Epoch};

use crate::arbiter::HostRecord;
use crate::disks::disk::Disk;
use crate::error::PoolError;
use crate::members::entries::{Named, labels_of, raised, sequence_after};
use crate::members::identity::Identity;
use crate::members::table::Members;

/// How long a change of the epoch, or an opening, waits for the labels of members without a vote.
const OTHER_LABELS_MAX: Duration = Duration::from_secs(2);

/// What a device is to the pool that takes it in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Joining<'a> {
    /// It was prepared just now, and was never a member.
    New,
    /// It is a member that was away, with this label.
    Back(&'a Label),
}

/// A disk with copies of its label that were damaged.
#[derive(Debug)]
pub struct DamagedLabels {
    /// The disk.
    pub disk: Rc<Disk>,
    /// What was found, one for each copy; empty where no copy was found at all.
    pub damage: Vec<LabelError>,
    /// Whether all copies have been rewritten.
    pub is_mended: bool,
}

/// Writes and reads the labels of the members of an open pool.
pub struct PoolLabels {
    pub(crate) identity: Rc<Identity>,
    pub(crate) members: Rc<Members>,
    pub(crate) highest: Cell<Epoch>,
    pub(crate) sequences: RefCell<BTreeMap<DiskId, u64>>,
    /// Labels that are known to be durable.
    pub(crate) named: RefCell<Named>,
    /// Heartbeats written since the pool was made, as far as its labels tell.
    pub(crate) heartbeat: Cell<u64>,
}

impl PoolLabels {
    pub(crate) fn new(identity: &Rc<Identity>, members: &Rc<Members>, known: KnownLabels) -> Rc<Self> {
        Rc::new(Self {
            identity: Rc::clone(identity),
            members: Rc::clone(members),
            highest: Cell::new(known.highest),
            sequences: RefCell::new(known.sequences),
            named: RefCell::new(known.named),
            heartbeat: Cell::new(known.heartbeat),
        })
    }

    #[pooled]
    pub(crate) async fn write_one_label(
        &self,
        disk: &Rc<Disk>,
        base: &Generation,
        pending: Option<&Generation>,
    ) -> Result<(), PoolError> {
        let _exclusive = disk.labels().mutex.take().await;
        let (device, label) = self.next_label(disk, base, pending)?;
        pending.iter().for_each(|pending| disk.labels().begin_pending(pending.epoch.number()));
        let written = write_label(&self.identity.seams, device.as_ref(), self.highest.get(), &label).await;
        written.map_err(|source| PoolError::Label { name: self.identity.name.clone(), source })?;
        self.name_label(&label);
        Ok(())
    }

    /// Writes the label of a disk that says what it said before, and is of another time. The caller holds the epoch turn.
    pub(crate) async fn renew_one_label(&self, disk: &Rc<Disk>, now: &Generation) -> Result<(), PoolError> {
        let _exclusive = disk.labels().mutex.take().await;
        self.renew_exclusively(disk, now).await
    }

    /// As [`renew_one_label`](Self::renew_one_label). The caller holds the mutex of the label, and knows that the label holds no
    /// pending epoch that is still to come into force.
    pub(crate) async fn renew_exclusively(&self, disk: &Rc<Disk>, now: &Generation) -> Result<(), PoolError> {
        let (device, label) = self.next_label(disk, now, None)?;
        let written = renew_label(&self.identity.seams, device.as_ref(), self.highest.get(), &label).await;
        written.map_err(|source| PoolError::Label { name: self.identity.name.clone(), source })?;
        self.name_label(&label);
        Ok(())
    }

    /// Writes two labels with another cut of a device that has grown, so that each slot says it. The caller holds the epoch turn.
    ///
    /// The place of the labels at the new end is written first: a device that takes no writes there keeps its cut. Those at the old end
    /// stay: [`clear_old_end`](Self::clear_old_end) removes them.
    pub(crate) async fn move_labels(
        &self,
        disk: &Rc<Disk>,
        now: &Generation,
        grown: Extent,
    ) -> Result<(), PoolError> {
        let _exclusive = disk.labels().mutex.take().await;
        let failed = |source| PoolError::Label { name: self.identity.name.clone(), source };
        let seams = &self.identity.seams;
        let (Some(device), Some(extent)) = (disk.device(), disk.extent()) else {
            return Err(PoolError::NoSuchDisk { name: self.identity.name.clone(), what: disk.name() });
        };
        let (device, token) = (device.as_ref(), self.highest.get());
        disk.note_other_write();
        clear_back_labels(seams, device, token, &grown).await.map_err(failed)?;
        disk.size().set_extent(grown);
        for _slot in 0..2 {
            let (_, label) = self.next_label(disk, now, None)?;
            if let Err(source) = write_label(seams, device, token, &label).await {
                disk.size().set_extent(extent);
                return Err(failed(source));
            }
            self.name_label(&label);
        }
        Ok(())
    }

    /// Writes zeros where a device that has grown had its labels when it held so many allocation units: no label of before stays where
    /// data is to lie. The caller knows that nothing lies behind those units.
    pub(crate) async fn clear_old_end(&self, disk: &Disk, now: Extent, units: u64) -> Result<(), PoolError> {
        let Some((device, before)) = disk.device().zip(now.before_growth(units)) else { return Ok(()) };
        disk.note_other_write();
        let (seams, token) = (&self.identity.seams, self.highest.get());
        let cleared = clear_back_labels(seams, device.as_ref(), token, &before).await;
        cleared.map_err(|source| PoolError::Label { name: self.identity.name.clone(), source })
    }

    /// Gives a disk that comes back a later label before it counts, so that the epoch that counts it in names that label: else
    /// it would be called old behind a crash, or an image from while it was away would not be. What the label says of epochs stays
    /// as it is: until that epoch, the disk is absent.
    pub(crate) async fn renew_returning(&self, disk: &Disk, joining: Joining<'_>) -> Result<(), PoolError> {
        let Joining::Back(label) = joining else { return Ok(()) };
        let sequence = self.count_returning(label);
        if mutation!(ReturnUnstamped) {
            return Ok(());
        }
        let Some(device) = disk.device() else { return Ok(()) };
        let _exclusive = disk.labels().mutex.take().await;
        disk.note_other_write();
        let extent = disk.extent().unwrap_or(label.extent);
        if extent.unit_count() > label.extent.unit_count() {
            // An image of before a growth: data may lie where its labels at the end are, and all that it has is stale.
            let (seams, token) = (&self.identity.seams, self.highest.get());
            let cleared = clear_back_labels(seams, device.as_ref(), token, &label.extent).await;
            cleared.map_err(|source| PoolError::Label { name: self.identity.name.clone(), source })?;
        }
        let label = Label { sequence, extent, ..label.clone() };
        let written = write_label(&self.identity.seams, device.as_ref(), self.highest.get(), &label).await;
        written.map_err(|source| PoolError::Label { name: self.identity.name.clone(), source })?;
        self.name_label(&label);
        Ok(())
    }

    /// Brings the labels of the disks that do not vote up to date, all at once: a pool may have hundreds. They decide nothing, so a
    /// failure is no more than a reason to look at that disk; its next write will tell.
    ///
    /// A disk that hangs is waited for no longer than [`OTHER_LABELS_MAX`]: the caller holds the turn for epochs, or is an opening.
    /// The writes go on in a task, which holds the mutexes of those labels, so that no later label is overtaken by them.
    pub(crate) async fn write_other_labels(self: &Rc<Self>) {
        let mut writing = Box::pin(Rc::clone(self).write_labels_without_vote());
        let clock = self.identity.seams.clock.as_ref();
        if within(clock, clock.now() + OTHER_LABELS_MAX, &mut writing).await.is_none() {
            tracing::warn!(pool = %self.identity.name, "a disk does not answer; the labels of disks without a vote are written later");
            self.identity.seams.spawner.spawn("late labels", writing);
        }
    }

    /// As [`write_other_labels`](Self::write_other_labels), however long it takes: for an export, behind which nothing is written.
    pub(crate) async fn write_labels_without_vote(self: Rc<Self>) {
        let now = self.members.now.borrow().clone();
        let mut others = self.members.disks();
        others.retain(|disk| disk.device().is_some() && !now.epoch.voters().contains(&disk.id()));
        let write = async |disk: &Rc<Disk>| {
            disk.note_other_write();
            if let Err(error) = self.write_one_label(disk, &now, None).await {
                tracing::warn!(pool = %self.identity.name, disk = %disk.name(), %error, "the label of a disk is out of date");
            }
        };
        join_all(others.iter().map(write)).await;
    }

    /// The next label of a disk, and the device that it goes to.
    fn next_label(
        &self,
        disk: &Disk,
        base: &Generation,
        pending: Option<&Generation>,
    ) -> Result<(Rc<dyn BlockDevice>, Label), PoolError> {
        let (Some(device), Some(extent)) = (disk.device(), disk.extent()) else {
            return Err(PoolError::NoSuchDisk { name: self.identity.name.clone(), what: disk.name() });
        };
        let sequence = self.count_label(disk);
        let named = self.named.borrow();
        let label = Label {
            pool: self.identity.id,
            pool_name: self.identity.name.clone(),
            disk: disk.id(),
            sequence,
            extent,
            log: self.identity.log_bytes,
            pages: self.identity.page_bytes,
            heartbeat: self.heartbeat.get(),
            base: raised(base, &named),
            pending: pending.map(|pending| raised(pending, &named)),
        };
        Ok((device, label))
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

    /// Returns the epoch in force and the labels of its voters that are known to be durable.
    pub(crate) fn voter_labels(&self) -> HostRecord {
        let now = self.members.now.borrow();
        let labels = labels_of(now.epoch.voters(), &self.named.borrow());
        HostRecord { epoch: now.epoch.id(), labels }
    }

    /// The mutant: the next labels of disks count as durable.
    pub(crate) fn name_ahead(&self, disks: &[Rc<Disk>]) {
        let sequences = self.sequences.borrow();
        let ahead = disks.iter().map(|disk| (disk.id(), sequences.get(&disk.id()).copied().unwrap_or(0) + 1));
        self.named.borrow_mut().extend(ahead);
    }

    /// Returns which of the disks have a damaged copy. A copy that is written at the same time may look damaged.
    pub(crate) async fn damaged_labels(&self, disks: &[Rc<Disk>]) -> Vec<DamagedLabels> {
        let look_at = async |disk: &Rc<Disk>| {
            let device = disk.device()?;
            let damage = match look(&self.identity.seams, device.as_ref()).await {
                Ok(Contents::Member { label, damage, .. }) if label.disk == disk.id() => damage,
                Ok(Contents::Unusable(error)) => return Some((Rc::clone(disk), vec![error])),
                Ok(Contents::Empty | Contents::Foreign(_)) => return Some((Rc::clone(disk), Vec::new())),
                Ok(Contents::Member { .. }) => return None,
                Err(error) => {
                    tracing::warn!(pool = %self.identity.name, disk = %disk.name(), %error, "the labels of a disk cannot be read");
                    return None;
                }
            };
            (!damage.is_empty()).then(|| (Rc::clone(disk), damage))
        };
        let looked = join_all(disks.iter().map(look_at)).await;
        let damaged = |(disk, damage)| DamagedLabels { disk, damage, is_mended: false };
        looked.into_iter().flatten().map(damaged).collect()
    }
}

/// Labels as an opening leaves them.
pub(crate) struct KnownLabels {
    pub(crate) highest: Epoch,
    pub(crate) sequences: BTreeMap<DiskId, u64>,
    pub(crate) named: Named,
    pub(crate) heartbeat: u64,
}
