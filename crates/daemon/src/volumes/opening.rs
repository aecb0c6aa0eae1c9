//! Volumes of pools that are opened and closed.
//!
//! An opening ends what an earlier daemon began: it makes what is `making`, deletes what is `deleting`, and mounts what is to be
//! mounted. A closing unmounts all volumes, or none.

use std::rc::Rc;

use dolmen_api::{DeleteSpace, ImportMode};
use dolmen_attach::SpaceKey;
use dolmen_space::Space;
use dolmen_volume::record::{DesiredVolume, VolumeState};

use crate::answer::Answer;
use crate::attach::Transports;
use crate::open_pool::{OpenPool, key_of};
use crate::state::VolumeUse;
use crate::volumes::grow::end_growth;
use crate::volumes::held::{held_text, is_held};
use crate::volumes::locks::Lane;
use crate::volumes::records::{self, Found};
use crate::volumes::service::Volumes;
use crate::volumes::transition::Toward;
use crate::volumes::view::view_volumes;
use crate::volumes::volume::Volume;
use crate::volumes::workers::Wait;

/// What a closing does with volumes.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    /// Its steps, in words.
    pub(crate) steps: Vec<String>,
    /// Spaces that it detaches.
    pub(crate) spaces: Vec<SpaceKey>,
}

impl Volumes {
    /// Takes up the volumes of a pool that was opened. What takes long goes on after this returns.
    pub(crate) async fn opened(self: &Rc<Self>, pool: &Rc<OpenPool>) {
        if pool.mode == ImportMode::Read {
            // One that was mounted on request stays so while the daemon is away.
            for space in pool.spaces.list() {
                if let Ok(Some(Found::Known(_))) = records::read(&space).await {
                    self.note_mounted(pool, key_of(pool, &space)).await;
                }
            }
            return;
        }
        self.unit_files.follow(pool).await;
        for space in pool.spaces.list() {
            self.take_up(pool, &space).await;
        }
    }

    /// Takes up the volume on a space, if there is one.
    pub(super) async fn take_up(self: &Rc<Self>, pool: &Rc<OpenPool>, space: &Space) {
        let (key, name) = (key_of(pool, space), format!("{}/{}", pool.name(), space.name()));
        let record = match records::read(space).await {
            Ok(None) => return,
            Ok(Some(Found::Known(record))) => *record,
            Ok(Some(Found::NotUnderstood(why))) => {
                tracing::error!(
                    volume = name,
                    why,
                    "the record of a volume is not understood: it is not mounted"
                );
                return;
            }
            Err(error) => {
                tracing::error!(space = name, %error, "it is not known whether the space carries a volume");
                return;
            }
        };
        if is_held(self, &record) {
            tracing::warn!(volume = name, "{}", held_text(&name, &record));
            self.note_mounted(pool, key).await;
            return;
        }
        match record.state {
            VolumeState::Making => {
                self.uses.note(key, Some(VolumeUse::Making));
                self.start_making(pool, space, None).await;
            }
            VolumeState::Ready | VolumeState::Foreign if record.desired == DesiredVolume::Unmounted => {
                self.note_mounted(pool, key).await;
            }
            VolumeState::Ready | VolumeState::Foreign | VolumeState::Deleting => {
                let toward = match record.state {
                    VolumeState::Deleting => Toward::Unmounted,
                    _ => Toward::Mounted,
                };
                let step = self.transitions.begin(key, toward);
                self.note_mounted(pool, key).await;
                let volume = Volume { pool: Rc::clone(pool), space: space.clone(), key, name, record };
                let volumes = Rc::clone(self);
                let going_on = async move {
                    volumes.go_on(volume).await;
                    drop(step);
                };
                self.seams.spawner.spawn("volume", Box::pin(going_on));
            }
        }
    }

    /// Mounts a volume that is to be mounted, or deletes one that is to be deleted.
    async fn go_on(&self, volume: Volume) {
        let (key, name) = (volume.key, volume.name.clone());
        let mutex = self.mutex_of(key);
        let _exclusive = mutex.take().await;
        let Ok(mut volume) = self.again(volume).await else { return };
        let done = match (volume.record.state, volume.record.desired) {
            (VolumeState::Ready | VolumeState::Foreign, DesiredVolume::Mounted) => {
                match self.mount_now(&volume, Wait::UntilDone).await {
                    // A growth that was cut short ends here.
                    Ok(()) => end_growth(self, &mut volume, Wait::UntilDone).await,
                    Err(error) => Err(error),
                }
            }
            (VolumeState::Deleting, _) => self.delete_now(&volume).await,
            (VolumeState::Ready | VolumeState::Foreign, DesiredVolume::Unmounted)
            | (VolumeState::Making, _) => Ok(()),
        };
        if let Err(error) = &done {
            tracing::error!(volume = name, %error, "the volume could not be taken up");
        }
        self.note(key, done.err());
    }

    async fn delete_now(&self, volume: &Volume) -> Answer<()> {
        self.unmount_now(volume).await?;
        self.end_deletion(volume, DeleteSpace::default()).await?;
        tracing::info!(volume = volume.name, "the volume is deleted, which an earlier daemon had begun");
        Ok(())
    }

    /// Unmounts and detaches the volumes of pools that are about to be closed: all of them, or none.
    ///
    /// # Errors
    /// A volume is in use, or could not be unmounted; those that were are mounted again.
    pub(crate) async fn close(self: &Rc<Self>, pools: &[Rc<OpenPool>]) -> Answer<()> {
        let volumes = attached(&self.transports, pools).await?;
        for volume in &volumes {
            // Its job goes on when the volume is mounted again.
            self.searches.interrupt(volume.key);
            let steered = self.steered.borrow().get(&volume.key).cloned();
            steered.iter().for_each(|steer| steer.interrupt());
            self.check_unused(volume).await?;
        }
        for volume in &volumes {
            let _step = self.transitions.begin(volume.key, Toward::Unmounted);
            let mutex = self.mutex_of(volume.key);
            let closed = async {
                let _exclusive = self.turn(&mutex, volume.key, &volume.name).await?;
                self.unmount_now(volume).await?;
                self.detach(volume).await
            };
            if let Err(error) = closed.await {
                self.reopened(pools).await;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Mounts the volumes of pools again that were not closed after all.
    pub(crate) async fn reopened(self: &Rc<Self>, pools: &[Rc<OpenPool>]) {
        for pool in pools {
            self.opened(pool).await;
        }
    }

    /// Returns what [`close`](Self::close) would do, or why it would be refused.
    pub(crate) async fn closing(&self, pools: &[Rc<OpenPool>]) -> Answer<Closing> {
        self.transitions.end_all(pools).await?;
        let Closing { mut steps, mut spaces } = Closing::default();
        for volume in attached(&self.transports, pools).await? {
            self.check_unused(&volume).await?;
            let (_, mounted) = self.mount_of(volume.key).await?;
            steps.extend(self.shares.steps_of_withdrawal(&volume).await?);
            steps.extend(mounted.map(|path| format!("unmount {} from {path}", volume.name)));
            steps.push(format!("detach {}", volume.name));
            spaces.push(volume.key);
        }
        Ok(Closing { steps, spaces })
    }
}

/// Returns the volumes of pools whose spaces are attached, except those that are being made.
async fn attached(transports: &Transports, pools: &[Rc<OpenPool>]) -> Answer<Vec<Volume>> {
    let mut volumes = Vec::new();
    for pool in pools {
        for space in pool.spaces.list() {
            let key = key_of(pool, &space);
            if transports.find(key).is_none() {
                continue;
            }
            if let Some(Found::Known(record)) = records::read(&space).await?
                && record.state != VolumeState::Making
            {
                let name = format!("{}/{}", pool.name(), space.name());
                volumes.push(Volume { pool: Rc::clone(pool), space, key, name, record: *record });
            }
        }
    }
    Ok(volumes)
}

/// Waits for the mounts of a pool that was opened. Returns which of its volumes are to be mounted and are not, in words.
pub(crate) async fn await_mounts(volumes: &Volumes, pool: &Rc<OpenPool>) -> Vec<String> {
    if pool.mode == ImportMode::Read {
        return Vec::new();
    }
    volumes.transitions.end_opening(pool.id()).await;
    let shown = view_volumes(volumes, pool).await.unwrap_or_default();
    let waiting = shown.iter().filter(|one| one.is_to_be_mounted && one.mounted_at.is_none() && !one.is_held);
    let in_words = |one: &dolmen_api::Volume| {
        let name = format!("{}/{}", one.pool, one.name);
        format!("volume {name} is not mounted yet: `dolmen volume show {name}` says why")
    };
    waiting.map(in_words).collect()
}

/// Takes shares off the servers whose volumes are not mounted, at the start of the daemon. It goes on after this returns.
pub(crate) fn remove_unmounted_shares(volumes: &Volumes) {
    let shares = Rc::clone(&volumes.shares);
    let removing = async move { shares.remove_unmounted().await };
    volumes.seams.spawner.spawn("unmounted shares", Box::pin(removing));
}

/// Follows an unmount by hand: the space of the volume is free, and its shares are taken off. Servers would offer the folder below
/// the mount point.
pub(super) async fn follow_unmount(volumes: &Volumes, volume: SpaceKey, name: &str) {
    let is_noted = || volumes.uses.mounted_at(volume).is_some() || volumes.shares.is_offered(volume);
    let is_mounted = async || !matches!(volumes.mount_of(volume).await, Ok((_, None)));
    if !is_noted() || is_mounted().await {
        return;
    }
    // A change that is under way notes itself what it does.
    let mutex = volumes.locks.of(volume, Lane::Volume);
    let Some(_exclusive) = mutex.try_take() else { return };
    if !is_noted() || is_mounted().await {
        return;
    }
    if let Some(path) = volumes.uses.mounted_at(volume) {
        tracing::warn!(volume = name, path, "the volume was unmounted, and not by this daemon");
        volumes.uses.note(volume, None);
    }
    volumes.shares.remove_offered(volume, name).await;
}
