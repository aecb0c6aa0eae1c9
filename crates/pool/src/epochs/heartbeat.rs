//! The heartbeat: an open pool shows itself in the labels that another host may see (docs/design/0009).
//!
//! Invariant: a host that has a pool open for writing writes to each label that others may see at least once in
//! [`WATCH`](crate::WATCH), and looks at what is there before it writes a heartbeat.

use std::rc::{Rc, Weak};

use dolmen_block_io::sync::join_all;
use dolmen_block_io::within;
use dolmen_disk::{Contents, Generation, look};
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_units::DiskSlot;

use crate::disks::disk::Disk;
use crate::epochs::change::{Epochs, ExcludeReason};
use crate::epochs::labels::PoolLabels;
use crate::epochs::watch::BEAT;
use crate::epochs::watch::writer;
use crate::log::pool_log::PoolLog;
use crate::members::identity::Identity;
use crate::members::table::Members;

/// Writes the heartbeat of an open pool, and looks for that of another host.
pub struct Heartbeat {
    pub(crate) identity: Rc<Identity>,
    pub(crate) members: Rc<Members>,
    pub(crate) log: Rc<PoolLog>,
    pub(crate) labels: Rc<PoolLabels>,
    pub(crate) epochs: Rc<Epochs>,
}

impl Heartbeat {
    pub(crate) fn new(
        identity: &Rc<Identity>,
        members: &Rc<Members>,
        log: &Rc<PoolLog>,
        labels: &Rc<PoolLabels>,
        epochs: &Rc<Epochs>,
    ) -> Rc<Self> {
        Rc::new(Self {
            identity: Rc::clone(identity),
            members: Rc::clone(members),
            log: Rc::clone(log),
            labels: Rc::clone(labels),
            epochs: Rc::clone(epochs),
        })
    }

    /// Starts the heartbeat.
    pub(crate) fn start_heartbeat(self: &Rc<Self>) {
        self.identity.seams.spawner.spawn("heartbeat", Box::pin(heart(Rc::downgrade(self))));
    }

    /// Voters that are here and that another host may reach.
    fn shared_voters(&self) -> Vec<Rc<Disk>> {
        let voters = self.members.voters();
        let mut disks = self.members.disks();
        let is_shared = |disk: &Disk| disk.geometry().is_some_and(|geometry| geometry.shareable);
        disks.retain(|disk| voters.contains(&disk.id()) && disk.is_present() && is_shared(disk));
        disks
    }

    /// Looks at the labels that others may see, and writes them again. The reason to stop if another host has written one.
    #[pooled]
    async fn beat(self: &Rc<Self>) -> Result<(), String> {
        let mutex = self.epochs.mutex.take().await;
        if self.log.stopping.get() || self.log.writable().is_err() {
            return Ok(());
        }
        let now = self.members.now.borrow().clone();
        let disks = self.shared_voters();
        // All of them before any is written: a heartbeat would wipe out what the other host has written to the next.
        if let Some(cause) = self.foreign_writer().await.filter(|_| !mutation!(BlindHeartbeat)) {
            return Err(cause);
        }
        self.labels.heartbeat.set(self.labels.heartbeat.get() + 1);
        let failed = join_all(disks.iter().map(|disk| self.renew(disk, &now))).await;
        drop(mutex);
        for slot in failed.into_iter().flatten() {
            // Should that fail, the pool is latched already.
            let _ = self.epochs.exclude(slot, ExcludeReason::MissedCommit).await;
        }
        Ok(())
    }

    /// Returns the reason to stop, if another host has written the label of a voter. The caller holds the turn for epochs.
    pub(crate) async fn foreign_writer(&self) -> Option<String> {
        let now = self.members.now.borrow().clone();
        let disks = self.shared_voters();
        let looked = join_all(disks.iter().map(|disk| self.who_else_wrote(disk, &now))).await;
        let by = looked.into_iter().flatten().next()?;
        Some(format!("{by} has opened it while this host stood still or was cut off"))
    }

    /// Whoever wrote the label of a disk, if it was not this host.
    async fn who_else_wrote(&self, disk: &Rc<Disk>, now: &Generation) -> Option<String> {
        let device = disk.device()?;
        let (clock, own) =
            (self.identity.seams.clock.as_ref(), self.labels.sequences.borrow().get(&disk.id()).copied());
        // One that does not answer is looked at by the next heartbeat.
        let looked = within(clock, clock.now() + BEAT, look(&self.identity.seams, device.as_ref())).await?;
        let Ok(Contents::Member { label, .. }) = looked else { return None };
        let is_other = label.base.epoch.id() != now.epoch.id() || label.pending.is_some();
        let is_foreign = match label.sequence.cmp(&own.unwrap_or(0)) {
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => is_other,
            // What this host wrote before its last label, which rotted.
            std::cmp::Ordering::Less => false,
        };
        is_foreign.then(|| writer(&label))
    }

    /// Writes the label of a disk again; its slot if that failed.
    async fn renew(&self, disk: &Rc<Disk>, now: &Generation) -> Option<DiskSlot> {
        disk.note_other_write();
        let renewed = self.labels.renew_one_label(disk, now).await;
        renewed.err().map(|error| {
            tracing::warn!(pool = %self.identity.name, disk = %disk.name(), %error, "the heartbeat could not be written");
            disk.slot()
        })
    }
}

/// Beats for as long as the pool is open. Where no other host may see a voter it sleeps until that may have changed.
#[pooled]
async fn heart(weak: Weak<Heartbeat>) {
    loop {
        let Some(heartbeat) = weak.upgrade() else { return };
        let clock = Rc::clone(&heartbeat.identity.seams.clock);
        let (stopped, voters) =
            (Rc::clone(&heartbeat.log.stop_notify), Rc::clone(&heartbeat.epochs.voters_notify));
        let (stop, other_voters) = (stopped.wait(), voters.wait());
        if heartbeat.log.stopping.get() {
            return;
        }
        let is_unseen = heartbeat.shared_voters().is_empty();
        drop(heartbeat);
        if is_unseen {
            other_voters.await;
            continue;
        }
        if within(clock.as_ref(), clock.now() + BEAT, stop).await.is_some() {
            return;
        }
        let Some(heartbeat) = weak.upgrade() else { return };
        if let Err(cause) = heartbeat.beat().await {
            heartbeat.log.latch(cause);
            return;
        }
    }
}
