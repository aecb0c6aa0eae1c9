//! An open pool: the services that it is made of, lowest first; each knows those before it alone.
//!
//! ```text
//! Identity ─ Members ─ MetadataMap ─ PoolLog ─ FreeSpace ─ PoolLabels ─ Epochs ─ Flusher ─ Checkpoints ─ Changes
//!   ─ Heartbeat ─ Stamps ─ VoterTender ─ Membership ─ PoolSettings
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::rc::Rc;

use dolmen_block_io::Seams;
use dolmen_disk::Generation;
use dolmen_epoch::Owner;
use dolmen_future_pool::pooled;
use dolmen_journal::{Log, Place};
use dolmen_store::Store;
use dolmen_units::{DiskSlot, EpochId, Name, PoolId};

use crate::arbiter::Arbiter;
use crate::changes::change::{Change, Changes};
use crate::changes::checkpoints::Checkpoints;
use crate::disks::disk::Disk;
use crate::epochs::change::plan_of;
use crate::epochs::change::{Epochs, ExcludeReason, Plan};
use crate::epochs::flusher::Flusher;
use crate::epochs::heartbeat::Heartbeat;
use crate::epochs::labels::{KnownLabels, PoolLabels};
use crate::epochs::stamps::{STAMP_EVERY, Stamps};
use crate::error::PoolError;
use crate::log::pool_log::{PoolLog, PoolState};
use crate::members::identity::Identity;
use crate::members::table::Members;
use crate::membership::requests::Membership;
use crate::membership::settings::PoolSettings;
use crate::membership::voter_tender::VoterTender;
use crate::metadata::map::{MetadataMap, Purpose};
use crate::room::free_space::FreeSpace;

/// An open pool. Shared by reference; everything runs on one thread.
pub struct Pool {
    pub(super) identity: Rc<Identity>,
    pub(super) members: Rc<Members>,
    pub(super) map: Rc<MetadataMap>,
    pub(super) log: Rc<PoolLog>,
    pub(super) free_space: Rc<FreeSpace>,
    pub(super) labels: Rc<PoolLabels>,
    pub(super) epochs: Rc<Epochs>,
    pub(super) flusher: Rc<Flusher>,
    pub(super) checkpoints: Rc<Checkpoints>,
    pub(super) changes: Rc<Changes>,
    pub(super) heartbeat: Rc<Heartbeat>,
    pub(super) stamps: Rc<Stamps>,
    pub(super) voter_tender: Rc<VoterTender>,
    pub(super) membership: Rc<Membership>,
    pub(super) settings: Rc<PoolSettings>,
}

impl Pool {
    /// Returns its identity.
    #[must_use]
    pub fn id(&self) -> PoolId {
        self.identity.id
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.identity.name
    }

    /// Returns the seams that it runs on.
    #[must_use]
    pub fn seams(&self) -> &Seams {
        &self.identity.seams
    }

    /// Returns what stays the same of it.
    #[must_use]
    pub fn identity(&self) -> &Rc<Identity> {
        &self.identity
    }

    /// Returns its members and the epoch in force.
    #[must_use]
    pub fn members(&self) -> &Rc<Members> {
        &self.members
    }

    /// Returns its metadata map.
    #[must_use]
    pub fn map(&self) -> &Rc<MetadataMap> {
        &self.map
    }

    /// Returns its log.
    #[must_use]
    pub fn log(&self) -> &Rc<PoolLog> {
        &self.log
    }

    /// Returns the free allocation units of its members.
    #[must_use]
    pub fn free_space(&self) -> &Rc<FreeSpace> {
        &self.free_space
    }

    /// Returns what writes the labels of its members.
    #[must_use]
    pub fn labels(&self) -> &Rc<PoolLabels> {
        &self.labels
    }

    /// Returns what changes its epoch.
    #[must_use]
    pub fn epochs(&self) -> &Rc<Epochs> {
        &self.epochs
    }

    /// Returns what flushes its disks.
    #[must_use]
    pub fn flusher(&self) -> &Rc<Flusher> {
        &self.flusher
    }

    /// Returns what empties its log.
    #[must_use]
    pub fn checkpoints(&self) -> &Rc<Checkpoints> {
        &self.checkpoints
    }

    /// Returns what begins changes of its metadata.
    #[must_use]
    pub fn changes(&self) -> &Rc<Changes> {
        &self.changes
    }

    /// Returns what gives its members later labels.
    #[must_use]
    pub fn stamps(&self) -> &Rc<Stamps> {
        &self.stamps
    }

    /// Returns what keeps up the number of its voters.
    #[must_use]
    pub fn voter_tender(&self) -> &Rc<VoterTender> {
        &self.voter_tender
    }

    /// Returns what changes its members on request.
    #[must_use]
    pub fn membership(&self) -> &Rc<Membership> {
        &self.membership
    }

    /// Returns its settings.
    #[must_use]
    pub fn settings(&self) -> &Rc<PoolSettings> {
        &self.settings
    }

    /// Returns whether it can be written.
    #[must_use]
    pub fn state(&self) -> PoolState {
        self.log.state()
    }

    /// Returns the epoch in force.
    #[must_use]
    pub fn epoch(&self) -> EpochId {
        self.members.epoch()
    }

    /// Returns all members, present or not, by slot.
    #[must_use]
    pub fn disks(&self) -> Vec<Rc<Disk>> {
        self.members.disks()
    }

    /// Returns a member.
    #[must_use]
    pub fn disk(&self, slot: DiskSlot) -> Option<Rc<Disk>> {
        self.members.disk(slot)
    }

    /// Begins a change of the metadata: [`Changes::begin`].
    pub fn change(&self, purpose: Purpose) -> impl Future<Output = Change<'_>> {
        self.changes.begin(purpose)
    }

    /// Empties the log: [`Checkpoints::checkpoint`].
    ///
    /// # Errors
    /// As there.
    pub fn checkpoint(&self) -> impl Future<Output = Result<(), PoolError>> {
        self.checkpoints.checkpoint()
    }

    /// Lets a disk leave: [`Epochs::exclude`].
    ///
    /// # Errors
    /// As there.
    pub fn exclude(
        &self,
        slot: DiskSlot,
        reason: ExcludeReason,
    ) -> impl Future<Output = Result<(), PoolError>> {
        self.epochs.exclude(slot, reason)
    }

    /// Closes the pool: the log is emptied as far as can be, and the disks are flushed.
    ///
    /// # Errors
    /// When something could not be written. The next opening recovers then, as after a crash.
    #[pooled]
    pub async fn close(self: &Rc<Self>) -> Result<(), PoolError> {
        let written = match self.log.writable() {
            Ok(_) => {
                async {
                    self.checkpoints.checkpoint().await?;
                    self.flusher.flush_disks().await?;
                    self.stamps.stamp().await;
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

    /// Gives the pool up, so that any host may open it: the host's record is withdrawn first, then the disks say so.
    ///
    /// # Errors
    /// When it could not be written; then this host has to open it again and try once more.
    #[pooled]
    pub async fn export(self: &Rc<Self>) -> Result<(), PoolError> {
        self.checkpoints.checkpoint().await?;
        self.flusher.flush_disks().await?;
        self.stamps.stamp().await;
        let mutex = self.epochs.mutex.take().await;
        let withdrawn = self.epochs.arbiter.withdraw(self.identity.id).await;
        withdrawn.map_err(|source| PoolError::Arbiter { name: self.identity.name.clone(), source })?;
        let exported =
            self.epochs.change(|generation, _| Plan { owner: Owner::Exported, ..plan_of(generation) }).await;
        Rc::clone(&self.labels).write_labels_without_vote().await;
        drop(mutex);
        self.stop().await;
        exported
    }

    /// Stops the background tasks, so that the pool can be dropped.
    pub(crate) async fn stop(&self) {
        self.log.stopping.set(true);
        // A disk that is becoming a voter becomes one first.
        let _checkpoint = self.checkpoints.mutex.take().await;
        let _stamp = self.stamps.mutex.take().await;
        self.epochs.voters_notify.notify_all();
        self.log.checkpoint_notify.notify_all();
        self.members.changed.notify_all();
        if let Some(log) = &self.log.journal {
            log.stop().await;
        }
        // Until here the guardian was needed: the log ends only when its copies have answered or left.
        self.log.end();
        self.log.stop_notify.notify_all();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({}, {}, {:?})", self.name(), self.epoch(), self.state())
    }
}

/// State of a pool as an opening found it.
pub(super) struct FoundState {
    pub(super) disks: BTreeMap<DiskSlot, Rc<Disk>>,
    pub(super) generation: Generation,
    pub(super) store: Rc<Store>,
    pub(super) journal: Option<Rc<Log>>,
    pub(super) state: PoolState,
    pub(super) tail: Place,
    pub(super) labels: KnownLabels,
    pub(super) arbiter: Rc<dyn Arbiter>,
}

impl Pool {
    /// Puts the services together.
    pub(super) fn assemble(identity: Identity, found: FoundState) -> Rc<Self> {
        let stamp_due = identity.seams.clock.now() + STAMP_EVERY;
        let identity = Rc::new(identity);
        let members = Members::new(&identity, found.disks, found.generation);
        let map = MetadataMap::new(&identity, &found.store);
        let log = PoolLog::new(&identity, &members, &map, found.journal, found.state, found.tail, stamp_due);
        let free_space = FreeSpace::new(&members);
        let labels = PoolLabels::new(&identity, &members, found.labels);
        let epochs = Epochs::new(&identity, &members, &map, &log, &labels, &found.arbiter);
        let flusher = Flusher::new(&identity, &members, &log, &epochs);
        let checkpoints = Checkpoints::new(&identity, &members, &map, &log, &epochs);
        let changes = Changes::new(&identity, &members, &map, &log, &free_space);
        let heartbeat = Heartbeat::new(&identity, &members, &log, &labels, &epochs);
        let stamps = Stamps::new(&identity, &members, &log, &labels, &epochs, &heartbeat);
        let voter_tender = VoterTender::new(&identity, &members, &map, &log, &epochs, &checkpoints);
        let membership = Rc::new(Membership {
            identity: Rc::clone(&identity),
            members: Rc::clone(&members),
            log: Rc::clone(&log),
            free_space: Rc::clone(&free_space),
            labels: Rc::clone(&labels),
            epochs: Rc::clone(&epochs),
            checkpoints: Rc::clone(&checkpoints),
            changes: Rc::clone(&changes),
            voter_tender: Rc::clone(&voter_tender),
        });
        let settings = PoolSettings::new(&identity, &members, &map, &free_space, &changes);
        Rc::new(Self {
            identity,
            members,
            map,
            log,
            free_space,
            labels,
            epochs,
            flusher,
            checkpoints,
            changes,
            heartbeat,
            stamps,
            voter_tender,
            membership,
            settings,
        })
    }
}
