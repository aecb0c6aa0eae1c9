//! Volumes mounted, unmounted, deleted, and restored from the trash.

use std::path::PathBuf;
use std::rc::Rc;

use dolmen_api::{Change, DeleteSpace, ErrorBody, ErrorCode, ImportMode, MountVolume, RestoreSpace, Simple};
use dolmen_attach::SpaceKey;
use dolmen_block_io::within;
use dolmen_mutation::mutation;
use dolmen_volume::record::{DesiredVolume, VolumeRecord, VolumeState};
use dolmen_worker::protocol::Operation;

use crate::answer::Answer;
use crate::open_pool::{OpenPool, key_of};
use crate::plan::{Undo, made, planned};
use crate::state::VolumeUse;
use crate::volumes::claiming::claim_place;
use crate::volumes::claims::Claim;
use crate::volumes::create::parse_mount_point;
use crate::volumes::grow::end_growth;
use crate::volumes::held::check_not_held;
use crate::volumes::locks::Lane;
use crate::volumes::mounts;
use crate::volumes::records::{self, Found};
use crate::volumes::service::{Volumes, pool_to_change};
use crate::volumes::shares::but_servers;
use crate::volumes::steer::Steer;
use crate::volumes::transition::Toward;
use crate::volumes::view::shown;
use crate::volumes::volume::{Volume, is_leaving};
use crate::volumes::workers::{TURN_LIMIT, Wait};

impl Volumes {
    pub(crate) async fn mount_volume(
        self: &Rc<Self>,
        pool: String,
        space: String,
        request: MountVolume,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let volume = self.find(&pool, &space).await?;
        let name = volume.name.clone();
        let mut wanted = volume.record.clone();
        wanted.desired = DesiredVolume::Mounted;
        if let Some(path) = &request.mount_point {
            wanted.mount_point = parse_mount_point(path, &name)?;
        }
        let is_placed = request.mount_point.is_some();
        if is_placed {
            // A plan shows the refusal too. The place is claimed again in the turn of this volume.
            claim_place(self, &wanted.mount_point, &name).await?;
        }
        let is_known = wanted == volume.record && volume.record.state != VolumeState::Making;
        if !is_known {
            pool_to_change(&self.pools, &pool.name())?;
        }
        match request.mount_point {
            // Who names the place has accepted it.
            Some(_) => wanted.accept(self.shares.host),
            None => check_not_held(self, &volume)?,
        }
        match volume.record.state {
            VolumeState::Ready | VolumeState::Foreign => {}
            VolumeState::Making if request.dry_run => {}
            VolumeState::Making => {
                if wanted.mount_point != volume.record.mount_point
                    || wanted.placed_by != volume.record.placed_by
                {
                    self.place_unmade(&volume, &wanted).await?;
                }
                let job = self.start_making(&pool, &volume.space, None).await;
                let plan = pool.plan(Undo::NotNeeded, Vec::new());
                let mut change = planned(plan, format!("volume {name} is being made, job {}", job.id));
                change.job = Some(job);
                return Ok(change);
            }
            VolumeState::Deleting => return Err(is_leaving(&name)),
        }
        let at = wanted.mount_point.to_string();
        if let Some(change) = mounted_already(self, &pool, &volume, &wanted, request.dry_run).await? {
            return Ok(change);
        }
        let undo = Undo::By(format!("dolmen volume unmount {name}"));
        let steps = vec![format!("mount {name} at {at} with {}", wanted.options_for_mount())];
        let plan = pool.plan(undo, steps);
        if request.dry_run {
            return Ok(planned(plan, format!("volume {name} would be mounted at {at}")));
        }
        let step = self.transitions.begin(volume.key, Toward::Mounted);
        let mutex = self.mutex_of(volume.key);
        let _exclusive = self.turn(&mutex, volume.key, &name).await?;
        let mut volume = self.again(volume).await?;
        let before = volume.record.clone();
        let mut claim = None;
        if is_placed {
            claim = Some(claim_place(self, &wanted.mount_point, &name).await?);
            place(&mut volume.record, wanted);
        } else {
            volume.record.desired = wanted.desired;
        }
        // The record of a pool that is open for reading says what it said.
        let before = if pool.mode == ImportMode::Read { volume.record.clone() } else { before };
        mount_on_record(self, &mut volume, before, claim).await?;
        let filled = end_growth(self, &mut volume, Wait::Request).await;
        let mut change = made(plan, format!("volume {name} is mounted at {at}"));
        change.warnings.extend(filled.err().map(|error| error.to_string()));
        drop(step);
        change.volume = Some(shown(self, &volume).await?);
        Ok(change)
    }

    /// Gives a volume that is not made yet, and that no job is at, another place.
    async fn place_unmade(&self, volume: &Volume, wanted: &VolumeRecord) -> Answer<()> {
        self.check_no_job(volume)?;
        let mutex = self.mutex_of(volume.key);
        let _exclusive = self.turn(&mutex, volume.key, &volume.name).await?;
        let mut volume = self.find(&volume.pool, volume.space.name().as_str()).await?;
        let _claim = claim_place(self, &wanted.mount_point, &volume.name).await?;
        place(&mut volume.record, wanted.clone());
        volume.put().await
    }

    pub(crate) async fn unmount_volume(
        &self,
        pool: String,
        space: String,
        request: Simple,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let volume = self.find(&pool, &space).await?;
        let name = volume.name.clone();
        self.transitions.end(volume.key, &name).await?;
        let volume = self.again(volume).await?;
        self.check_made(&volume)?;
        let (device, mounted) = self.mount_of(volume.key).await?;
        let is_wanted = volume.record.desired == DesiredVolume::Mounted;
        if device.is_none() && !is_wanted {
            let plan = pool.plan(Undo::NotNeeded, Vec::new());
            return Ok(planned(plan, format!("volume {name} is not mounted")));
        }
        let from = mounted.map(|path| format!("unmount {name} from {path}"));
        let steps = self.shares.steps_of_withdrawal(&volume).await?.into_iter().chain(from);
        let steps = steps.chain([format!("detach space {name}")]).collect();
        let plan = pool.plan(Undo::By(format!("dolmen volume mount {name}")), steps);
        self.check_unused(&volume).await?;
        if request.dry_run {
            return Ok(planned(plan, format!("volume {name} would be unmounted")));
        }
        let step = self.transitions.begin(volume.key, Toward::Unmounted);
        let mutex = self.mutex_of(volume.key);
        let _exclusive = self.turn(&mutex, volume.key, &name).await?;
        let mut volume = self.again(volume).await?;
        self.unmount_now(&volume).await?;
        // A pool that is open for reading mounts no volume by itself.
        if pool.mode != ImportMode::Read {
            volume.record.desired = DesiredVolume::Unmounted;
            volume.put().await?;
        }
        self.note(volume.key, None);
        let mut change = made(plan, format!("volume {name} is unmounted"));
        change.warnings.extend(self.detach(&volume).await.err().map(|error| error.to_string()));
        drop(step);
        change.volume = Some(shown(self, &volume).await?);
        Ok(change)
    }

    pub(crate) async fn delete_volume(&self, pool: String, space: String, request: Simple) -> Answer<Change> {
        let pool = pool_to_change(&self.pools, &pool)?;
        let volume = self.find(&pool, &space).await?;
        let name = volume.name.clone();
        self.transitions.end(volume.key, &name).await?;
        let volume = self.again(volume).await?;
        self.check_no_job(&volume)?;
        let check_not_served = || match mutation!(ServedSpaceUnmounted) {
            true => Ok(()),
            false => self.deletions.check_not_served(&volume.pool, &volume.space),
        };
        check_not_served()?;
        self.check_unused(&volume).await?;
        let into_trash = DeleteSpace { purge: false, destroy: None, dry_run: true };
        if request.dry_run {
            let (_, mounted) = self.mount_of(volume.key).await?;
            let from = mounted.map(|path| format!("unmount {name} from {path}"));
            let steps = self.shares.steps_of_withdrawal(&volume).await?.into_iter().chain(from).chain([
                format!("detach space {name}"),
                format!("move space {name} into the trash, with the record of its volume"),
            ]);
            let undo = Undo::By(format!("dolmen trash restore {}/{}", pool.name(), volume.space.id().0));
            return Ok(planned(
                pool.plan(undo, steps.collect()),
                format!("volume {name} would be moved into the trash"),
            ));
        }
        let _step = self.transitions.begin(volume.key, Toward::Unmounted);
        let mutex = self.mutex_of(volume.key);
        let _exclusive = self.turn(&mutex, volume.key, &name).await?;
        check_not_served()?;
        let mut volume = self.again(volume).await?;
        self.unmount_now(&volume).await?;
        // A record that is `making` stays so through the trash: a restore makes the volume.
        if volume.record.state != VolumeState::Making || mutation!(RestoredUnmadeAsReady) {
            volume.record.state = VolumeState::Deleting;
            volume.put().await?;
        }
        self.end_deletion(&volume, DeleteSpace { dry_run: false, ..into_trash }).await.map(|mut change| {
            change.message = format!("volume {name}: {}", change.message);
            change
        })
    }

    /// Detaches a volume that is to be deleted, and moves its space into the trash.
    pub(super) async fn end_deletion(&self, volume: &Volume, request: DeleteSpace) -> Answer<Change> {
        self.detach(volume).await?;
        self.uses.note(volume.key, None);
        let (pool, space) = (volume.pool.name(), volume.space.name().to_string());
        let change = self.deletions.delete_space(pool, space, request).await?;
        self.forget(volume.key);
        // It holds hashes of files, which a volume that is restored gets again by its next run.
        let index = self.workers.state_folder(volume.key);
        let removed = self.looker.run(move || std::fs::remove_dir_all(index)).await;
        if let Err(error) = removed
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(volume = volume.name, %error, "the index of a deleted volume stays in the state folder");
        }
        Ok(change)
    }

    /// Takes a space out of the trash, and the volume on it, if there is one, into use.
    ///
    /// The record says that the volume is whole before the space leaves the trash: a volume outside the trash that is `deleting`
    /// is one whose deletion was cut short.
    pub(crate) async fn restore_space(
        self: &Rc<Self>,
        pool: String,
        space: String,
        request: RestoreSpace,
    ) -> Answer<Change> {
        let dry = RestoreSpace { dry_run: true, ..request.clone() };
        let planned = self.deletions.restore_space(pool.clone(), space.clone(), dry).await?;
        if request.dry_run {
            return Ok(planned);
        }
        let owner = self.pools.pool_to_change(&pool)?;
        let meant = self.deletions.trashed(&owner, &space)?;
        let name = format!("{}/{}", owner.name(), meant.name());
        let mut lost = None;
        // One that was never made is `making`, and is made.
        if let Some(Found::Known(mut record)) = records::read(&meant).await?
            && record.state == VolumeState::Deleting
            && !mutation!(RestoredAsDeleting)
        {
            // One without a purpose was adopted.
            let is_own = record.purpose.is_some();
            record.state = if is_own { VolumeState::Ready } else { VolumeState::Foreign };
            let claim = claim_place(self, &record.mount_point, &name).await;
            if record.desired == DesiredVolume::Mounted && !mutation!(PlaceTakenTwice) {
                lost = claim.as_ref().err().cloned();
            }
            if lost.is_some() {
                record.desired = DesiredVolume::Unmounted;
            }
            records::put(&meant, &record, &name).await?;
        }
        let mut change = self.deletions.restore_space(pool, meant.id().0.to_string(), request).await?;
        self.take_up(&owner, &meant).await;
        if let Some(error) = lost {
            let elsewhere = format!("`dolmen volume mount --mount PATH {name}` mounts it elsewhere");
            let why = error.message.trim_end_matches("; nothing was changed");
            let message = format!("volume {name} is restored, and not mounted: {why}; {elsewhere}");
            change.warnings.push(message.clone());
            self.note(key_of(&owner, &meant), Some(ErrorBody { message, ..error }));
        }
        Ok(change)
    }

    /// Unmounts a volume that is mounted.
    pub(super) async fn unmount_now(&self, volume: &Volume) -> Answer<()> {
        self.check_unused(volume).await?;
        let unmounted = self.unmount_unshared(volume).await;
        if unmounted.is_err() {
            self.shares.serve(volume, Wait::Request).await;
        }
        unmounted
    }

    /// Takes the shares of a volume off, and unmounts it. No share is put and no quota is set meanwhile.
    async fn unmount_unshared(&self, volume: &Volume) -> Answer<()> {
        let [quotas, shares] = [Lane::Quotas, Lane::Shares].map(|lane| self.locks.of(volume.key, lane));
        let _no_quota = self.workers.turn_in(Lane::Quotas, &quotas, volume.key, &volume.name).await?;
        let _no_share = self.workers.turn_in(Lane::Shares, &shares, volume.key, &volume.name).await?;
        self.shares.withdraw(volume, async || self.users_of(volume).await).await?;
        let (device, mounted) = self.mount_of(volume.key).await?;
        let (Some(device), Some(path)) = (device, mounted) else {
            self.uses.note(volume.key, None);
            return Ok(());
        };
        let at = volume.record.mount_point.as_str();
        if path != at {
            let message = format!(
                "volume {} is mounted at {path}, where another program mounted it, and belongs at {at}; it stays there",
                volume.name
            );
            return Err(ErrorBody::new(ErrorCode::Busy, message)
                .on(&volume.name)
                .hint(format!("umount {path}")));
        }
        let operation = Operation::Unmount { volume: volume.for_worker(device) };
        self.workers.run(volume.key, &volume.name, operation, Wait::Request).await?;
        tracing::info!(volume = volume.name, path, "the volume is unmounted");
        self.uses.note(volume.key, None);
        Ok(())
    }

    /// Returns the processes that use a mounted volume, in words.
    pub(super) async fn users_of(&self, volume: &Volume) -> Answer<Vec<String>> {
        let (_, Some(path)) = self.mount_of(volume.key).await? else { return Ok(Vec::new()) };
        // A process of a worker would be taken for a user. A long operation ends before its volume is unmounted.
        let steered = steer_of(self, volume.key).is_some_and(|steer| !steer.is_interrupted());
        if !steered {
            let limit = self.seams.clock.now() + TURN_LIMIT;
            let _ = within(self.seams.clock.as_ref(), limit, self.workers.idle(volume.key)).await;
        }
        let own = self.workers.at_work(volume.key).filter(|_| steered).map(|worker| worker.pid);
        let at = PathBuf::from(&path);
        let found = self.looks.run(move || Ok(mounts::users(&at, own))).await;
        Ok(found.unwrap_or_else(|error| {
            // The kernel refuses to unmount what is in use, and names nobody.
            tracing::warn!(volume = volume.name, %error, "the processes that use the volume are not known");
            Vec::new()
        }))
    }

    /// Refuses to unmount a volume that processes use, and names them.
    pub(super) async fn check_unused(&self, volume: &Volume) -> Answer<()> {
        let (_, Some(path)) = self.mount_of(volume.key).await? else { return Ok(()) };
        let users = but_servers(volume, self.users_of(volume).await?).await?;
        if users.is_empty() {
            return Ok(());
        }
        let name = &volume.name;
        let message = format!("volume {name} is in use at {path} by {}; it stays mounted", users.join(", "));
        Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint("end them, or have them leave the folder"))
    }

    /// Refuses a change of a volume that is being made.
    pub(super) fn check_made(&self, volume: &Volume) -> Answer<()> {
        self.check_no_job(volume)?;
        volume.check_whole()
    }

    /// Refuses a change of a volume whose job is at work.
    pub(super) fn check_no_job(&self, volume: &Volume) -> Answer<()> {
        let unfinished = self.jobs.unfinished_of(volume.key.pool);
        let aim = crate::jobs::Aim::Volume(volume.key.space);
        let Some(entry) = unfinished.iter().find(|entry| entry.aim == aim && entry.is_taken()) else {
            return Ok(());
        };
        let message = format!("{} is at volume {}; nothing was changed", entry.what(), volume.name);
        let hint = format!("wait for it, or `dolmen job stop {}`", entry.id);
        Err(ErrorBody::new(ErrorCode::Busy, message).on(&volume.name).hint(hint))
    }

    /// Notes that a volume is mounted, where it is found to be.
    pub(super) async fn note_mounted(&self, pool: &OpenPool, key: SpaceKey) {
        if let Ok((_, Some(path))) = self.mount_of(key).await {
            tracing::debug!(pool = pool.name(), path, "a volume is mounted already");
            self.uses.note(key, Some(VolumeUse::Mounted(path)));
        }
    }
}

/// Gives a record the desired state and the place of another one.
fn place(record: &mut VolumeRecord, wanted: VolumeRecord) {
    record.desired = wanted.desired;
    record.mount_point = wanted.mount_point;
    record.placed_by = wanted.placed_by;
}

/// Writes the record of a volume and mounts it. A refusal takes the record of before back.
///
/// A mount at a place that is not on record could not be undone after a kill: unmount, export and deletion look at the place on
/// record.
async fn mount_on_record(
    volumes: &Volumes,
    volume: &mut Volume,
    before: VolumeRecord,
    claim: Option<Claim>,
) -> Answer<()> {
    if mutation!(MountedBeforeRecord) {
        volumes.mount_now(volume, Wait::Request).await?;
        return volume.put().await;
    }
    if volume.record != before {
        volume.put().await?;
    }
    drop(claim);
    let Err(error) = volumes.mount_now(volume, Wait::Request).await else { return Ok(()) };
    // A process that goes on mounts the volume as its record says.
    if volume.record == before || volumes.workers.at_work(volume.key).is_some() {
        return Err(error);
    }
    let wanted = std::mem::replace(&mut volume.record, before);
    let Err(second) = volume.put().await else { return Err(error) };
    let message = format!(
        "{}; its record names {} now, and could not be taken back: {second}",
        error.message, wanted.mount_point
    );
    Err(ErrorBody { message, ..error })
}

/// Returns what steers the long operation on a volume: that of its job, or a search for names.
fn steer_of(volumes: &Volumes, volume: SpaceKey) -> Option<Rc<Steer>> {
    let steered = volumes.steered.borrow().get(&volume).cloned();
    steered.or_else(|| volumes.searches.of(volume))
}

/// What a mount answers where the volume is mounted as it is wanted, `None` where it is not mounted so. Its shares are served
/// then, unless this is a plan.
///
/// # Errors
/// When it is mounted at another place.
async fn mounted_already(
    volumes: &Rc<Volumes>,
    pool: &Rc<OpenPool>,
    volume: &Volume,
    wanted: &VolumeRecord,
    is_plan: bool,
) -> Answer<Option<Change>> {
    let (name, at) = (&volume.name, wanted.mount_point.to_string());
    let (_, Some(there)) = volumes.mount_of(volume.key).await? else { return Ok(None) };
    if there != at {
        let message = format!("volume {name} is mounted at {there}; nothing was changed");
        let hint = format!("`dolmen volume unmount {name}`, then mount it at {at}");
        return Err(ErrorBody::new(ErrorCode::Busy, message).on(name.clone()).hint(hint));
    }
    let is_as_wanted =
        volume.record.desired == DesiredVolume::Mounted && volume.record.placed_by == wanted.placed_by;
    if !is_as_wanted {
        return Ok(None);
    }
    if !is_plan {
        volumes.uses.note(volume.key, Some(VolumeUse::Mounted(there)));
        volumes.shares.serve(volume, Wait::Request).await;
    }
    let plan = pool.plan(Undo::NotNeeded, Vec::new());
    Ok(Some(planned(plan, format!("volume {name} is mounted at {at} already"))))
}
