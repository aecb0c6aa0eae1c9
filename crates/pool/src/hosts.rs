//! Disks that two hosts can see at once: whoever has a pool open shows it by a heartbeat, and whoever opens one looks for
//! that first (docs/design/0009).
//!
//! Order of an opening that does not know itself alone: it *watches* the labels, and writes nothing while they change; then it
//! writes its pending epoch; then it *holds*, and goes on only if nobody has written over that.
//!
//! Invariant: a host that opens a pool, or has it open for writing, writes to each label that others may see at least once in
//! [`WATCH`], and looks at what is there before it writes a heartbeat.
//!
//! Left to others: disks that no other host can reach, of which nothing is asked (`Geometry::shareable`).

use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{Seams, sleep, within};
use dolmen_disk::{Contents, Generation, Label, look};
use dolmen_epoch::Owner;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_units::{DiskId, DiskSlot, EpochId};

use crate::discover::Candidate;
use crate::disk::Disk;
use crate::error::OpenError;
use crate::pool::{ExcludeReason, Pool};

/// How often an open pool writes its labels again where another host may see them.
pub(crate) const BEAT: Duration = Duration::from_secs(2);
/// How long an opening that does not know itself alone looks on before it writes.
pub const WATCH: Duration = Duration::from_secs(10);
/// How long what it wrote has to stand before it goes on.
pub const HOLD: Duration = Duration::from_secs(4);

const _: () = assert!(
    HOLD.as_secs() >= 2 * BEAT.as_secs(),
    "whoever wrote in the same moment is seen, also if it was slow"
);
const _: () = assert!(
    WATCH.as_secs() >= HOLD.as_secs() + 2 * BEAT.as_secs(),
    "whoever began to open while this looked has held and written again before this writes"
);

/// What a label says that another host changes when it writes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OwnerFields {
    sequence: u64,
    base: EpochId,
    pending: Option<EpochId>,
}

impl OwnerFields {
    fn of(label: &Label) -> Self {
        let pending = label.pending.as_ref().map(|generation| generation.epoch.id());
        Self { sequence: label.sequence, base: label.base.epoch.id(), pending }
    }
}

/// Who wrote a label, as far as it says so: the host that is about to own the pool, or does.
fn writer(label: &Label) -> String {
    let epoch = label.pending.as_ref().map_or(&label.base.epoch, |generation| &generation.epoch);
    match epoch.owner() {
        Owner::Host(host) => format!("host {host}"),
        Owner::Exported => "another host".to_owned(),
    }
}

/// Whether another host may reach a disk that was found.
pub(crate) fn is_shareable(candidate: &Candidate) -> bool {
    candidate.device.geometry().shareable
}

/// Fails if the label of a disk is not what it was when that was found: another host writes to it.
async fn check_unchanged(seams: &Seams, candidate: &Candidate) -> Result<(), OpenError> {
    let known = OwnerFields::of(&candidate.label);
    let by = match look(seams, candidate.device.as_ref()).await {
        Ok(Contents::Member { label, .. }) if OwnerFields::of(&label) != known => writer(&label),
        Ok(Contents::Empty | Contents::Foreign(_)) => "another host".to_owned(),
        // A disk that fails will do so when the pool is opened; a label that is just being written leaves the one before.
        Ok(Contents::Member { .. } | Contents::Unusable(_)) | Err(_) => return Ok(()),
    };
    let name = candidate.label.pool_name.clone();
    Err(OpenError::OpenElsewhere { name, disk: candidate.device.name(), by })
}

/// Fails if the label of a shareable disk is not what this host knows; disks in `unlabelled` may have either of two labels.
///
/// # Errors
/// [`OpenError::OpenElsewhere`].
pub(crate) async fn check_labelled(
    seams: &Seams,
    candidates: &[Candidate],
    unlabelled: &BTreeSet<DiskId>,
) -> Result<(), OpenError> {
    let is_labelled =
        |candidate: &&Candidate| mutation!(HoldOfUnlabelled) || !unlabelled.contains(&candidate.label.disk);
    check_all_unchanged(seams, candidates.iter().filter(is_labelled)).await
}

async fn check_all_unchanged<'a>(
    seams: &Seams,
    candidates: impl Iterator<Item = &'a Candidate>,
) -> Result<(), OpenError> {
    let shared = candidates.filter(|candidate| is_shareable(candidate));
    let checked = join_all(shared.map(|candidate| check_unchanged(seams, candidate))).await;
    checked.into_iter().collect()
}

/// Looks on for as long as an owner that lives needs to show itself.
///
/// # Errors
/// [`OpenError::OpenElsewhere`] as soon as somebody writes.
pub(crate) async fn watch(seams: &Seams, candidates: &[Candidate]) -> Result<(), OpenError> {
    if mutation!(NoWatch) || !candidates.iter().any(is_shareable) {
        return Ok(());
    }
    tracing::info!(seconds = WATCH.as_secs(), "watching whether another host has the pool open");
    let end = seams.clock.now() + WATCH;
    while seams.clock.now() < end {
        sleep(seams.clock.as_ref(), BEAT).await;
        check_all_unchanged(seams, candidates.iter()).await?;
    }
    Ok(())
}

/// Waits until whoever began to open the pool in the same moment has written its labels too. A disk in `unlabelled` did not take
/// the label that this host wrote, so its label differs without another host; the voters that took theirs are compared.
///
/// # Errors
/// [`OpenError::OpenElsewhere`] if a label is not what this host wrote.
pub(crate) async fn hold(
    seams: &Seams,
    candidates: &[Candidate],
    unlabelled: &BTreeSet<DiskId>,
) -> Result<(), OpenError> {
    if mutation!(NoHold) || !candidates.iter().any(is_shareable) {
        return Ok(());
    }
    sleep(seams.clock.as_ref(), HOLD).await;
    check_labelled(seams, candidates, unlabelled).await
}

impl Pool {
    /// Starts the heartbeat.
    pub(crate) fn start_heartbeat(self: &Rc<Self>) {
        self.seams.spawner.spawn("heartbeat", Box::pin(heart(Rc::downgrade(self))));
    }

    /// Voters that are here and that another host may reach.
    fn shared_voters(&self) -> Vec<Rc<Disk>> {
        let voters = self.voters();
        let mut disks = self.disks();
        let is_shared = |disk: &Disk| disk.geometry().is_some_and(|geometry| geometry.shareable);
        disks.retain(|disk| voters.contains(&disk.id()) && disk.is_present() && is_shared(disk));
        disks
    }

    /// Looks at the labels that others may see, and writes them again. The reason to stop if another host has written one.
    #[pooled]
    async fn beat(self: &Rc<Self>) -> Result<(), String> {
        let mutex = self.epoch_mutex.take().await;
        if self.stopping.get() || self.writable_log().is_err() {
            return Ok(());
        }
        let now = self.now.borrow().clone();
        let disks = self.shared_voters();
        // All of them before any is written: a heartbeat would wipe out what the other host has written to the next.
        if let Some(cause) = self.foreign_writer().await.filter(|_| !mutation!(BlindHeartbeat)) {
            return Err(cause);
        }
        self.heartbeat.set(self.heartbeat.get() + 1);
        let failed = join_all(disks.iter().map(|disk| self.renew(disk, &now))).await;
        drop(mutex);
        for slot in failed.into_iter().flatten() {
            // Should that fail, the pool is latched already.
            let _ = self.exclude(slot, ExcludeReason::MissedCommit).await;
        }
        Ok(())
    }

    /// Returns the reason to stop, if another host has written the label of a voter. The caller holds the turn for epochs.
    pub(crate) async fn foreign_writer(&self) -> Option<String> {
        let now = self.now.borrow().clone();
        let disks = self.shared_voters();
        let looked = join_all(disks.iter().map(|disk| self.who_else_wrote(disk, &now))).await;
        let by = looked.into_iter().flatten().next()?;
        Some(format!("{by} has opened it while this host stood still or was cut off"))
    }

    /// Whoever wrote the label of a disk, if it was not this host.
    async fn who_else_wrote(&self, disk: &Rc<Disk>, now: &Generation) -> Option<String> {
        let device = disk.device()?;
        let (clock, own) = (self.seams.clock.as_ref(), self.sequences.borrow().get(&disk.id()).copied());
        // One that does not answer is looked at by the next heartbeat.
        let looked = within(clock, clock.now() + BEAT, look(&self.seams, device.as_ref())).await?;
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
        let renewed = self.renew_one_label(disk, now).await;
        renewed.err().map(|error| {
            tracing::warn!(pool = %self.name, disk = %disk.name(), %error, "the heartbeat could not be written");
            disk.slot()
        })
    }
}

/// Beats for as long as the pool is open. Where no other host may see a voter it sleeps until that may have changed.
#[pooled]
async fn heart(weak: Weak<Pool>) {
    loop {
        let Some(pool) = weak.upgrade() else { return };
        let clock = Rc::clone(&pool.seams.clock);
        let (stopped, voters) = (Rc::clone(&pool.stop_notify), Rc::clone(&pool.voters_notify));
        let (stop, other_voters) = (stopped.wait(), voters.wait());
        if pool.stopping.get() {
            return;
        }
        let is_unseen = pool.shared_voters().is_empty();
        drop(pool);
        if is_unseen {
            other_voters.await;
            continue;
        }
        if within(clock.as_ref(), clock.now() + BEAT, stop).await.is_some() {
            return;
        }
        let Some(pool) = weak.upgrade() else { return };
        if let Err(cause) = pool.beat().await {
            pool.latch(cause);
            return;
        }
    }
}
