//! Stamps: while a pool is open, its members get a later label now and then, so that an image from before is told (docs/design/0027).
//!
//! Order of a stamp: (1) members without a vote that were written to get a later label each, (2) so do the voters, and (3) the
//! voters once more. The second and third round name, in the members' table, what the rounds before have made durable.
//!
//! | crash | what is found |
//! |---|---|
//! | within (1) | labels that are later than the entries name: nothing is called old |
//! | within (2) or (3) | voters that name different labels; each was durable before, so the latest one counts |
//!
//! A member whose label cannot be written is named as before, and stays: its next write tells. A voter leaves, as with a heartbeat.
//!
//! Invariant: a stamp of a member never replaces a label with a pending epoch that may still come into force.
//!
//! Invariant: nothing waits for a stamp but the next one and the end of the pool, and the turn for epochs is held for the voters alone.

use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::sync::join_all;
use dolmen_mutation::mutation;
use dolmen_units::DiskSlot;

use crate::disk::Disk;
use crate::pool::{ExcludeReason, Pool};

/// How often members are stamped, at most. What a disk was given since is not told from an image that was taken since.
pub(crate) const STAMP_EVERY: Duration = Duration::from_secs(600);

impl Pool {
    /// Whether the pool was written to, and the last stamp is long ago. Asked whenever the log was written.
    pub(crate) fn is_stamp_due(&self) -> bool {
        self.seams.clock.now() >= self.stamp_due.get()
    }

    /// Starts the task that stamps.
    pub(crate) fn start_stamper(self: &Rc<Self>) {
        self.seams.spawner.spawn("stamper", Box::pin(stamper(Rc::downgrade(self))));
    }

    /// Gives the members that are here a later label each, and names those in the labels of the voters.
    pub(crate) async fn stamp(self: &Rc<Self>) {
        let _stamp = self.stamp_mutex.take().await;
        self.stamp_due.set(self.seams.clock.now() + STAMP_EVERY);
        if self.writable_log().is_err() {
            return;
        }
        let voters = self.voters();
        let mut others = self.disks();
        others.retain(|disk| disk.is_present() && !voters.contains(&disk.id()) && disk.needs_stamp());
        if mutation!(StampBeforeLabels) {
            self.name_ahead(&others);
            self.stamp_voters().await;
        }
        join_all(others.iter().map(|disk| self.stamp_member(disk))).await;
        for _ in 0..2 {
            self.stamp_voters().await;
        }
    }

    /// The mutant: the next labels of disks count as durable.
    fn name_ahead(&self, disks: &[Rc<Disk>]) {
        let sequences = self.sequences.borrow();
        let ahead = disks.iter().map(|disk| (disk.id(), sequences.get(&disk.id()).copied().unwrap_or(0) + 1));
        self.named.borrow_mut().extend(ahead);
    }

    async fn stamp_member(&self, disk: &Rc<Disk>) {
        let _exclusive = disk.label_mutex.take().await;
        // From here on nothing else writes this label. A change of epoch that elects the disk writes its pending label first,
        // under the same mutex: a stamp over that would leave a voter without the epoch that comes into force.
        let now = self.now.borrow().clone();
        let is_elected = now.epoch.voters().contains(&disk.id()) || disk.is_pending_after(now.epoch.number());
        if is_elected {
            return;
        }
        let stamped = disk.begin_stamp();
        match self.renew_exclusively(disk, &now).await {
            Ok(()) => disk.end_stamp(stamped),
            Err(error) => {
                disk.note(|counters| counters.write_errors += 1);
                tracing::warn!(pool = %self.name, disk = %disk.name(), %error, "a disk could not be stamped");
            }
        }
    }

    async fn stamp_voters(self: &Rc<Self>) {
        let mutex = self.epoch_mutex.take().await;
        if self.writable_log().is_err() {
            return;
        }
        let now = self.now.borrow().clone();
        let voters = self.disks().into_iter().filter(|disk| now.epoch.voters().contains(&disk.id()));
        let voters: Vec<Rc<Disk>> = voters.filter(|disk| disk.is_present()).collect();
        let failed = join_all(voters.iter().map(async |disk| {
            disk.note_other_write();
            let renewed = self.renew_one_label(disk, &now).await;
            renewed.err().map(|error| {
                tracing::warn!(pool = %self.name, disk = %disk.name(), %error, "a stamp could not be written");
                disk.slot()
            })
        }))
        .await;
        drop(mutex);
        let failed: Vec<DiskSlot> = failed.into_iter().flatten().collect();
        for slot in failed {
            // Should that fail, the pool is latched already.
            let _ = self.exclude(slot, ExcludeReason::MissedCommit).await;
        }
    }
}

async fn stamper(weak: Weak<Pool>) {
    loop {
        let Some(pool) = weak.upgrade() else { return };
        let notify = pool.checkpoint_notify.wait();
        if pool.stopping.get() {
            return;
        }
        if pool.is_stamp_due() {
            pool.stamp().await;
        }
        notify.await;
    }
}
