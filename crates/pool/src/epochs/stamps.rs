//! Stamps: while a pool is open, its members get a later label now and then, so that an image from before is told (docs/design/0027).
//!
//! Order of a stamp: (1) members without a vote that were written to get a later label each, (2) so do the voters, and (3) the
//! voters once more. The second and third round name, in the members' table, what the rounds before have made durable. (4) The
//! host's record names the voters' labels of the second round, so that images of all voters of one moment are told as well.
//!
//! | crash | what is found |
//! |---|---|
//! | within (1) | labels that are later than the entries name: nothing is called old |
//! | within (2) or (3) | voters that name different labels; each was durable before, so the latest one counts |
//! | before or within (4) | a record that names earlier labels, which the voters have or have overwritten with later ones |
//!
//! A member whose label cannot be written is named as before, and stays: its next write tells. A voter leaves, as with a heartbeat.
//!
//! Invariant: a stamp of a member never replaces a label with a pending epoch that may still come into force.
//!
//! Invariant: a stamp writes no label of a pool that another host has taken, as far as the voters' labels tell.
//!
//! Invariant: nothing waits for a stamp but the next one and the end of the pool. The turn for epochs is held for the voters alone,
//! and no longer than [`EPOCH_MUTEX_MAX`] while they are written.

use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::sync::AsyncMutex;
use dolmen_block_io::sync::join_all;
use dolmen_block_io::within;
use dolmen_causes::in_one_line;
use dolmen_epoch::Owner;
use dolmen_mutation::mutation;
use dolmen_units::DiskSlot;

use crate::arbiter::HostRecord;
use crate::disks::disk::Disk;
use crate::epochs::change::{Epochs, ExcludeReason};
use crate::epochs::heartbeat::Heartbeat;
use crate::epochs::labels::PoolLabels;
use crate::log::pool_log::PoolLog;
use crate::members::identity::Identity;
use crate::members::table::Members;
use crate::ranks;

/// How often members are stamped, at most. What a disk was given since is not told from an image that was taken since.
pub(crate) const STAMP_EVERY: Duration = Duration::from_secs(600);
/// How long a stamp of voters holds the turn for epochs: a voter that leaves because it hangs needs that turn.
const EPOCH_MUTEX_MAX: Duration = Duration::from_secs(2);
/// How long a stamp waits for the host's record.
const RECORD_TIMEOUT: Duration = Duration::from_secs(10);

/// Gives the members of an open pool later labels now and then.
pub struct Stamps {
    pub(crate) identity: Rc<Identity>,
    pub(crate) members: Rc<Members>,
    pub(crate) log: Rc<PoolLog>,
    pub(crate) labels: Rc<PoolLabels>,
    pub(crate) epochs: Rc<Epochs>,
    pub(crate) heartbeat: Rc<Heartbeat>,
    pub(crate) mutex: AsyncMutex,
}

impl Stamps {
    pub(crate) fn new(
        identity: &Rc<Identity>,
        members: &Rc<Members>,
        log: &Rc<PoolLog>,
        labels: &Rc<PoolLabels>,
        epochs: &Rc<Epochs>,
        heartbeat: &Rc<Heartbeat>,
    ) -> Rc<Self> {
        Rc::new(Self {
            identity: Rc::clone(identity),
            members: Rc::clone(members),
            log: Rc::clone(log),
            labels: Rc::clone(labels),
            epochs: Rc::clone(epochs),
            heartbeat: Rc::clone(heartbeat),
            mutex: AsyncMutex::ranked(ranks::STAMP.single()),
        })
    }

    /// Starts the task that stamps.
    pub(crate) fn start_stamper(self: &Rc<Self>) {
        self.identity.seams.spawner.spawn("stamper", Box::pin(stamper(Rc::downgrade(self))));
    }

    /// Gives the members that are here a later label each, and names those in the labels of the voters.
    pub(crate) async fn stamp(self: &Rc<Self>) {
        let _stamp = self.mutex.take().await;
        self.log.stamp_due.set(self.identity.seams.clock.now() + STAMP_EVERY);
        if self.log.writable().is_err() {
            return;
        }
        if self.is_taken().await {
            return;
        }
        let voters = self.members.voters();
        let mut others = self.members.disks();
        others
            .retain(|disk| disk.is_present() && !voters.contains(&disk.id()) && disk.activity.needs_stamp());
        if mutation!(StampBeforeLabels) {
            self.labels.name_ahead(&others);
            self.stamp_voters().await;
        }
        join_all(others.iter().map(|disk| self.stamp_member(disk))).await;
        if mutation!(LabelsRecordedEarly) {
            self.labels.name_ahead(&self.members.disks());
            self.record_labels(self.labels.voter_labels()).await;
        }
        self.stamp_voters().await;
        // The labels of this round: where those of the next one rot, these are there still.
        let durable = self.labels.voter_labels();
        self.stamp_voters().await;
        self.record_labels(durable).await;
    }

    /// Has the host's record name labels of the voters. A record that cannot be written names those of before, which stays true.
    /// A folder that does not answer holds up the end of the pool for [`RECORD_TIMEOUT`], and no I/O.
    async fn record_labels(&self, record: HostRecord) {
        let mutex = self.epochs.mutex.take().await;
        // A later epoch has its own record, which must not be replaced with this one.
        let is_owner = matches!(self.members.now.borrow().epoch.owner(), Owner::Host(_));
        if self.log.writable().is_err() || !is_owner || self.members.now.borrow().epoch.id() != record.epoch {
            return;
        }
        // Begun with the turn for epochs in hand, and waited for without: records are written in the order of the calls.
        let recording = self.epochs.arbiter.record(self.identity.id, record);
        drop(mutex);
        let clock = self.identity.seams.clock.as_ref();
        let why = match within(clock, clock.now() + RECORD_TIMEOUT, recording).await {
            Some(Ok(())) => return,
            Some(Err(error)) => in_one_line(&error),
            None => format!("it took longer than {} s", RECORD_TIMEOUT.as_secs()),
        };
        tracing::warn!(pool = %self.identity.name, why, "the host's record names older labels of the disks than it could; the next stamp writes it again");
    }

    /// Looks whether another host has written a voter's label, and stops the pool if so: a stamp would wipe out what that host
    /// wrote, and both would go on.
    async fn is_taken(self: &Rc<Self>) -> bool {
        let _exclusive = self.epochs.mutex.take().await;
        self.latch_if_taken().await
    }

    /// As [`is_taken`](Self::is_taken). The caller holds the turn for epochs.
    async fn latch_if_taken(&self) -> bool {
        if mutation!(BlindStamp) {
            return false;
        }
        let taken = self.heartbeat.foreign_writer().await;
        taken.iter().for_each(|cause| self.log.latch(cause.clone()));
        taken.is_some()
    }

    async fn stamp_member(&self, disk: &Rc<Disk>) {
        let _exclusive = disk.labels().mutex.take().await;
        // From here on nothing else writes this label. A change of epoch that elects the disk writes its pending label first,
        // under the same mutex: a stamp over that would leave a voter without the epoch that comes into force.
        let now = self.members.now.borrow().clone();
        let is_elected =
            now.epoch.voters().contains(&disk.id()) || disk.labels().is_pending_after(now.epoch.number());
        if is_elected {
            return;
        }
        let stamped = disk.activity.begin_stamp();
        match self.labels.renew_exclusively(disk, &now).await {
            Ok(()) => disk.activity.end_stamp(stamped),
            Err(error) => {
                disk.note(|counters| counters.write_errors += 1);
                tracing::warn!(pool = %self.identity.name, disk = %disk.name(), %error, "a disk could not be stamped");
            }
        }
    }

    async fn stamp_voters(self: &Rc<Self>) {
        let mutex = self.epochs.mutex.take().await;
        if self.log.writable().is_err() || self.latch_if_taken().await {
            return;
        }
        let voters = self.members.voters();
        let voters: Vec<Rc<Disk>> = self
            .members
            .disks()
            .into_iter()
            .filter(|disk| disk.is_present() && voters.contains(&disk.id()))
            .collect();
        let mut stamping = pin!(join_all(voters.iter().map(|disk| self.stamp_voter(disk))));
        // A voter that hangs keeps its label's mutex, and the others theirs no longer than their labels take.
        let clock = self.identity.seams.clock.as_ref();
        let in_time = within(clock, clock.now() + EPOCH_MUTEX_MAX, &mut stamping).await;
        drop(mutex);
        let failed = match in_time {
            Some(failed) => failed,
            None => stamping.await,
        };
        let failed: Vec<DiskSlot> = failed.into_iter().flatten().collect();
        for slot in failed {
            // Should that fail, the pool is latched already.
            let _ = self.epochs.exclude(slot, ExcludeReason::MissedCommit).await;
        }
    }

    /// Gives a voter a later label; its slot if that failed.
    async fn stamp_voter(&self, disk: &Rc<Disk>) -> Option<DiskSlot> {
        let _exclusive = disk.labels().mutex.take().await;
        // The turn for epochs may have gone on to a change of epoch, while this waited for a label that hung.
        let now = self.members.now.borrow().clone();
        let is_voter = disk.is_present() && now.epoch.voters().contains(&disk.id());
        if !is_voter || disk.labels().is_pending_after(now.epoch.number()) {
            return None;
        }
        disk.note_other_write();
        let renewed = self.labels.renew_exclusively(disk, &now).await;
        renewed.err().map(|error| {
            tracing::warn!(pool = %self.identity.name, disk = %disk.name(), %error, "a stamp could not be written");
            disk.slot()
        })
    }
}

async fn stamper(weak: Weak<Stamps>) {
    loop {
        let Some(stamps) = weak.upgrade() else { return };
        let notify = stamps.log.checkpoint_notify.wait();
        if stamps.log.stopping.get() {
            return;
        }
        if stamps.log.is_stamp_due() {
            stamps.stamp().await;
        }
        notify.await;
    }
}
