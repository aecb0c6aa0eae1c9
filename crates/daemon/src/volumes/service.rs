//! The service of volumes, and what it knows of each of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use dolmen_api::{AttachSpace, DetachSpace, ErrorBody, ErrorCode, ImportMode};
use dolmen_attach::SpaceKey;
use dolmen_block_io::Seams;
use dolmen_block_io::sync::{AsyncMutex, Permit};
use dolmen_mutation::mutation;
use dolmen_space::Space;
use dolmen_units::PoolId;
use dolmen_worker::protocol::Usage;

use crate::answer::Answer;
use crate::attach::Transports;
use crate::attaching::SpaceAttachments;
use crate::base::Base;
use crate::fault;
use crate::io_worker::IoWorker;
use crate::jobs::{Jobs, Kind};
use crate::open_pool::{OpenPool, key_of};
use crate::open_pools::OpenPools;
use crate::pool_jobs::PoolJobs;
use crate::spaces::Deletions;
use crate::state::VolumeUses;
use crate::views::Views;
use crate::volumes::claims::Claims;
use crate::volumes::locks::{Lane, VolumeLocks};
use crate::volumes::looks::Looks;
use crate::volumes::mounts;
use crate::volumes::quota_bounds::QuotaBounds;
use crate::volumes::records::{self, Found};
use crate::volumes::shares::ShareServers;
use crate::volumes::steer::{Searches, Steer};
use crate::volumes::transition::Transitions;
use crate::volumes::unit_files::UnitFiles;
use crate::volumes::volume::Volume;
use crate::volumes::workers::Workers;

/// Knowledge of a volume in addition to its record.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    /// Failure of the last step that the daemon took by itself.
    pub(super) trouble: Option<ErrorBody>,
    /// How its file system was when it was looked at last.
    pub(super) usage: Option<Usage>,
}

/// Volumes of open pools.
pub(crate) struct Volumes {
    pub(super) pools: Rc<OpenPools>,
    pub(super) seams: Seams,
    pub(super) jobs: Rc<Jobs>,
    pub(super) pool_jobs: Rc<PoolJobs>,
    pub(super) views: Rc<Views>,
    pub(super) links: PathBuf,
    pub(super) attachments: Rc<SpaceAttachments>,
    pub(super) deletions: Rc<Deletions>,
    pub(super) uses: Rc<VolumeUses>,
    pub(super) transports: Rc<Transports>,
    pub(super) workers: Rc<Workers>,
    /// Reads the table of mounts and files of settings, which does not wait for a volume.
    pub(super) looker: Rc<IoWorker>,
    /// Looks at processes and tools, which may hang.
    pub(super) looks: Looks,
    pub(super) claims: Rc<Claims>,
    pub(super) known: RefCell<BTreeMap<SpaceKey, Known>>,
    pub(super) shares: Rc<ShareServers>,
    pub(super) quotas: QuotaBounds,
    pub(super) transitions: Transitions,
    pub(super) unit_files: UnitFiles,
    pub(super) locks: Rc<VolumeLocks>,
    /// Long operations that jobs steer.
    pub(super) steered: RefCell<BTreeMap<SpaceKey, Rc<Steer>>>,
    /// Searches for names, each of which holds the lock of its volume.
    pub(super) searches: Searches,
}

impl Volumes {
    pub(crate) fn new(
        base: &Base,
        attachments: &Rc<SpaceAttachments>,
        deletions: &Rc<Deletions>,
        creation: &'static dyn Kind,
    ) -> Self {
        let (known, steered, searches) = Default::default();
        let locks = Rc::<VolumeLocks>::default();
        let workers = Workers::new(&base.seams, base.config.worker.clone(), base.config.volumes_folder());
        Self {
            pools: Rc::clone(&base.pools),
            seams: base.seams.clone(),
            jobs: Rc::clone(&base.jobs),
            pool_jobs: Rc::clone(&base.pool_jobs),
            views: Rc::clone(&base.views),
            links: base.config.links.clone(),
            attachments: Rc::clone(attachments),
            deletions: Rc::clone(deletions),
            uses: Rc::clone(&base.volume_uses),
            transports: Rc::clone(&base.transports),
            looker: Rc::clone(&base.volume_looker),
            looks: Looks::new(&base.seams),
            shares: Rc::new(ShareServers::new(base, &workers, &locks)),
            quotas: QuotaBounds::new(&workers, &locks),
            transitions: Transitions::new(base, &workers, creation),
            workers,
            unit_files: UnitFiles::new(base.config.units.clone(), base.arbiter.host(), &base.volume_looker),
            claims: Rc::default(),
            known,
            locks,
            steered,
            searches,
        }
    }

    /// Returns the lock of changes of a volume, for a caller that takes it. A search for names ends for that: changes go first.
    pub(super) fn mutex_of(&self, volume: SpaceKey) -> Rc<AsyncMutex> {
        self.searches.interrupt(volume);
        self.locks.of(volume, Lane::Volume)
    }

    /// Takes the turn to change a volume, for a request.
    pub(super) async fn turn<'a>(
        &self,
        mutex: &'a AsyncMutex,
        volume: SpaceKey,
        name: &str,
    ) -> Answer<Permit<'a>> {
        self.workers.turn_in(Lane::Volume, mutex, volume, name).await
    }

    /// Returns the volume on a space of a pool.
    pub(super) async fn find(&self, pool: &Rc<OpenPool>, space: &str) -> Answer<Volume> {
        let space = pool.space(space)?;
        let name = format!("{}/{}", pool.name(), space.name());
        match records::read(&space).await? {
            Some(Found::Known(record)) => {
                let key = key_of(pool, &space);
                Ok(Volume { pool: Rc::clone(pool), space, key, name, record: *record })
            }
            Some(Found::NotUnderstood(why)) => {
                let message = format!("volume {name} is not understood: {why}; nothing was changed");
                Err(ErrorBody::new(ErrorCode::Unsupported, message).on(name))
            }
            None => {
                let message = format!("space {name} carries no volume; nothing was changed");
                let hint = "`dolmen volume list` shows all volumes";
                Err(ErrorBody::new(ErrorCode::NoSuchSpace, message).on(name).hint(hint))
            }
        }
    }

    /// Reads the record of a volume again, once its turn has come.
    pub(super) async fn again(&self, volume: Volume) -> Answer<Volume> {
        let is_same = |space: &Space| space.id() == volume.space.id();
        let space = volume.pool.spaces.list().into_iter().find(is_same);
        let Some(space) = space else {
            let message = format!("volume {} was deleted meanwhile", volume.name);
            return Err(ErrorBody::new(ErrorCode::NoSuchSpace, message).on(volume.name));
        };
        self.find(&volume.pool, space.name().as_str()).await
    }

    /// Returns the device of a space, which is attached if it is not.
    pub(super) async fn attach(&self, pool: &OpenPool, space: &Space) -> Answer<PathBuf> {
        let key = key_of(pool, space);
        if let Some(shown) = self.transports.find(key) {
            return Ok(shown.device().clone());
        }
        let (pool, space) = (pool.name(), space.name().to_string());
        self.attachments.attach_space(pool, space, AttachSpace::default()).await?;
        let shown = self.transports.find(key);
        let device = shown.map(|shown| shown.device().clone());
        device
            .ok_or_else(|| ErrorBody::new(ErrorCode::Internal, "the space that was attached is not attached"))
    }

    /// Detaches the space of a volume that is not mounted.
    pub(super) async fn detach(&self, volume: &Volume) -> Answer<()> {
        let (pool, space) = (volume.pool.name(), volume.space.name().to_string());
        self.attachments.detach_space(pool, space, DetachSpace::default()).await.map(drop)
    }

    /// Returns where attached volumes are mounted.
    pub(super) async fn mounted(&self, devices: Vec<PathBuf>) -> Answer<BTreeMap<PathBuf, String>> {
        if devices.is_empty() {
            return Ok(BTreeMap::new());
        }
        let found = self.looker.run(move || mounts::mounted(&devices)).await;
        found.map_err(|error| {
            ErrorBody::new(ErrorCode::Io, format!("the table of mounts cannot be read: {error}"))
        })
    }

    /// Returns the device of a volume and the path that it is mounted at, as far as it is.
    pub(super) async fn mount_of(&self, volume: SpaceKey) -> Answer<(Option<PathBuf>, Option<String>)> {
        let Some(shown) = self.transports.find(volume) else { return Ok((None, None)) };
        let device = shown.device().clone();
        let path = self.mounted(vec![device.clone()]).await?.remove(&device);
        Ok((Some(device), path))
    }

    /// Notes what came of a step that the daemon took by itself.
    pub(super) fn note(&self, volume: SpaceKey, trouble: Option<ErrorBody>) {
        self.known.borrow_mut().entry(volume).or_default().trouble = trouble;
    }

    /// Forgets a volume that is no volume of an open pool any more.
    pub(super) fn forget(&self, volume: SpaceKey) {
        self.known.borrow_mut().remove(&volume);
        self.shares.known.forget_volume(volume);
        self.uses.note(volume, None);
    }

    /// Forgets the volumes of a pool that is no pool of this host any more.
    pub(crate) async fn forget_pool(&self, pool: PoolId) {
        self.unit_files.forget(pool).await;
        let keys: Vec<SpaceKey> =
            self.known.borrow().keys().copied().filter(|key| key.pool == pool).collect();
        keys.into_iter().for_each(|key| self.forget(key));
        self.locks.forget_pool(pool);
    }
}

/// Returns a pool whose volumes take changes.
///
/// # Errors
/// There is no such pool, it is being closed, or it is open for reading.
pub(super) fn pool_to_change(pools: &OpenPools, name: &str) -> Answer<Rc<OpenPool>> {
    let pool = pools.pool_to_change(name)?;
    if pool.mode != ImportMode::Read || mutation!(ReadOnlyVolumeChanged) {
        return Ok(pool);
    }
    let name = pool.name();
    let message = format!("pool {name} is open for reading, and so are its volumes; nothing was changed");
    let hint = fault::to_write(&name);
    Err(ErrorBody::new(ErrorCode::ReadOnly, message).on(name).hint(hint))
}
