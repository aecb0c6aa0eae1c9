//! The steps of a creation after its record is written (docs/design/0035, *Steps and crashes*): attach, mkfs, ready, mount.
//!
//! Each step asks first whether its result is there, so a daemon that finds the record `making` takes all of them again.
//!
//! Invariants:
//! - The record says that mkfs was begun before its order is given, if the device read as zeros.
//! - The record says `ready` only after mkfs ended with 0 and the worker found the UUID of the record on the device.
//! - A creation that is called off before the record says `ready` deletes the space; afterwards the volume stays.

use std::path::Path;
use std::rc::Rc;

use dolmen_api::{DeleteSpace, ErrorBody, ErrorCode, ImportMode};
use dolmen_mutation::mutation;
use dolmen_space::Space;
use dolmen_volume::making::Content;
use dolmen_volume::record::{DesiredVolume, VolumeState};
use dolmen_worker::protocol::{Operation, Outcome as Done};

use crate::answer::Answer;
use crate::jobs::{Aim, Course, Entry, Outcome, Start};
use crate::open_pool::{OpenPool, key_of};
use crate::state::VolumeUse;
use crate::volumes::claiming::claim_mount;
use crate::volumes::create_job::VolumeCreateJob;
use crate::volumes::held::check_not_held;
use crate::volumes::records::{self, Found};
use crate::volumes::service::Volumes;
use crate::volumes::volume::Volume;
use crate::volumes::workers::{Wait, Workers};

impl Volumes {
    /// Starts the job that makes a volume; the one that is at it, if there is one.
    pub(super) async fn start_making(
        self: &Rc<Self>,
        pool: &Rc<OpenPool>,
        space: &Space,
        again: Option<Rc<Entry>>,
    ) -> dolmen_api::Job {
        let aim = Aim::Volume(space.id());
        let unfinished = self.jobs.unfinished_of(pool.id());
        let is_at_it =
            |entry: &&Rc<Entry>| entry.is(&VolumeCreateJob) && entry.aim == aim && entry.is_taken();
        if let Some(entry) = unfinished.iter().find(is_at_it) {
            return entry.view(self.seams.clock.now());
        }
        self.uses.note(key_of(pool, space), Some(VolumeUse::Making));
        let subject = format!("volume {}/{}", pool.name(), space.name());
        let start = Start { kind: &VolumeCreateJob, subject, aim, again };
        let (volumes, owner, made) = (Rc::clone(self), Rc::clone(pool), space.clone());
        self.pool_jobs
            .start_job(pool, start, move |course| async move {
                let done = volumes.make(&owner, &made, &course).await;
                if done.is_err() && volumes.uses.is_being_made(key_of(&owner, &made)) {
                    volumes.uses.note(key_of(&owner, &made), Some(VolumeUse::Unmade));
                }
                volumes.note(key_of(&owner, &made), done.as_ref().err().cloned());
                done
            })
            .await
    }

    async fn make(&self, pool: &Rc<OpenPool>, space: &Space, course: &Course) -> Answer<Outcome> {
        let key = key_of(pool, space);
        let mutex = self.mutex_of(key);
        let _exclusive = mutex.take().await;
        let name = format!("{}/{}", pool.name(), space.name());
        let mut volume = match records::read(space).await? {
            Some(Found::Known(record)) => {
                let (pool, space) = (Rc::clone(pool), space.clone());
                Volume { pool, space, key, name, record: *record }
            }
            Some(Found::NotUnderstood(why)) => {
                return Err(ErrorBody::new(ErrorCode::Unsupported, why).on(name));
            }
            None => return Ok(Outcome::CalledOff(format!("{name} carries no volume any more"))),
        };
        let is_called_off = || course.progress.is_to_stop();
        if volume.record.state == VolumeState::Making {
            if !is_called_off() {
                check_not_held(self, &volume)?;
            }
            if is_called_off() {
                return self.take_back(&volume).await;
            }
            let device = self.attach(pool, space).await?;
            if is_called_off() {
                return self.take_back(&volume).await;
            }
            begin_mkfs(&self.workers, &mut volume, &device).await?;
            if mutation!(ReadyBeforeMkfs) {
                let ready = dolmen_volume::record::VolumeRecord {
                    state: VolumeState::Ready,
                    ..volume.record.clone()
                };
                records::put(space, &ready, &volume.name).await?;
            }
            let operation = Operation::Make { volume: volume.for_worker(device) };
            self.workers.run(key, &volume.name, operation, Wait::UntilDone).await?;
            if is_called_off() {
                return self.take_back(&volume).await;
            }
            volume.record.state = VolumeState::Ready;
            volume.record.is_mkfs_begun = false;
            volume.put().await?;
        }
        self.uses.note(key, None);
        if volume.record.desired == DesiredVolume::Mounted {
            self.mount_now(&volume, Wait::UntilDone).await?;
        }
        let (kind, at) = (volume.record.file_system, &volume.record.mount_point);
        Ok(Outcome::Done(format!("volume {} is made, {kind} mounted at {at}", volume.name)))
    }

    /// Attaches a volume if it is not attached, and mounts it if it is not mounted.
    pub(super) async fn mount_now(&self, volume: &Volume, wait: Wait) -> Answer<()> {
        check_not_held(self, volume)?;
        let _claim = claim_mount(self, &volume.record.mount_point, &volume.name)?;
        self.unit_files.announce(volume).await;
        let device = self.attach(&volume.pool, &volume.space).await?;
        let operation = Operation::Mount { volume: volume.for_worker(device.clone()) };
        self.workers.run(volume.key, &volume.name, operation, wait).await?;
        let path = volume.record.mount_point.to_string();
        tracing::info!(volume = volume.name, path, "the volume is mounted");
        self.uses.note(volume.key, Some(VolumeUse::Mounted(path)));
        self.note(volume.key, None);
        if volume.pool.mode != ImportMode::Read {
            self.quotas.reapply(volume, &device, wait).await;
        }
        self.shares.serve(volume, wait).await;
        Ok(())
    }

    /// Deletes the space of a volume that was not made.
    async fn take_back(&self, volume: &Volume) -> Answer<Outcome> {
        self.uses.note(volume.key, None);
        self.detach(volume).await?;
        let (pool, space) = (volume.pool.name(), volume.space.name().to_string());
        let request = DeleteSpace { purge: true, destroy: Some(space.clone()), dry_run: false };
        self.deletions.delete_space(pool, space, request).await?;
        self.forget(volume.key);
        Ok(Outcome::CalledOff(format!("the space of volume {} is deleted", volume.name)))
    }
}

/// Puts on record that mkfs is about to write to a device that reads as zeros: what it leaves when it is cut short is its own.
async fn begin_mkfs(workers: &Rc<Workers>, volume: &mut Volume, device: &Path) -> Answer<()> {
    if volume.record.is_mkfs_begun {
        return Ok(());
    }
    let operation = Operation::Probe { device: device.to_owned() };
    let found = workers.run(volume.key, &volume.name, operation, Wait::UntilDone).await?;
    match found {
        Done::Content(content) if content.decided() == Content::Zeros => {
            volume.record.is_mkfs_begun = true;
            volume.put().await
        }
        // The order for mkfs decides on anything else.
        _ => Ok(()),
    }
}
