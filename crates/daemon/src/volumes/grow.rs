//! Volumes grown and trimmed.
//!
//! A growth is put on record, and is that of the space, its device and its file system, in this order; each is skipped if its size is
//! there. A growth that is cut short goes on at the next mount.
//!
//! Invariant: a file system grows because people asked for that. An adopted one may be smaller than its space on purpose.

use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, ImportMode, JobState, ResizeSpace, Simple};
use dolmen_mutation::mutation;
use dolmen_units::Bytes;
use dolmen_worker::protocol::{Operation, Outcome};

use crate::answer::Answer;
use crate::plan::{Undo, made, planned};
use crate::spaces::SpaceChanges;
use crate::volumes::health::count_held;
use crate::volumes::records::{self, Found};
use crate::volumes::service::{Volumes, pool_to_change};
use crate::volumes::view::shown;
use crate::volumes::volume::Volume;
use crate::volumes::workers::{Unanswered, Wait};

/// Growth and trim of volumes.
pub(crate) struct VolumeGrowth {
    pub(super) volumes: Rc<Volumes>,
    spaces: Rc<SpaceChanges>,
}

impl VolumeGrowth {
    pub(crate) fn new(volumes: &Rc<Volumes>, spaces: &Rc<SpaceChanges>) -> Self {
        Self { volumes: Rc::clone(volumes), spaces: Rc::clone(spaces) }
    }

    /// Resizes a space. One that carries a volume grows with its file system.
    pub(crate) async fn resize_space(
        &self,
        pool: String,
        space: String,
        request: ResizeSpace,
    ) -> Answer<Change> {
        let owner = self.volumes.pools.pool_to_change(&pool)?;
        let found = owner.space(&space)?;
        let grows = Bytes(request.size_bytes) > found.size() && !mutation!(SpaceGrownAlone);
        match records::read(&found).await? {
            Some(Found::Known(_)) if grows => self.grow_volume(pool, space, request).await,
            Some(Found::Known(_) | Found::NotUnderstood(_)) | None => {
                self.spaces.resize_space(pool, space, request).await
            }
        }
    }

    pub(crate) async fn grow_volume(
        &self,
        pool: String,
        space: String,
        request: ResizeSpace,
    ) -> Answer<Change> {
        let owner = pool_to_change(&self.volumes.pools, &pool)?;
        let volume = self.volumes.find(&owner, &space).await?;
        let name = volume.name.clone();
        self.volumes.check_made(&volume)?;
        let (had, wanted) = (volume.space.size(), Bytes(request.size_bytes));
        if wanted < had {
            let message =
                format!("volume {name} has {had}, and cannot shrink to {wanted}; nothing was changed");
            let hint = "make a smaller volume, and copy the files";
            return Err(ErrorBody::new(ErrorCode::BadSize, message).on(name).hint(hint));
        }
        self.volumes.pool_jobs.check_job_room(&owner)?;
        let mutex = self.volumes.mutex_of(volume.key);
        let _exclusive = self.volumes.turn(&mutex, volume.key, &name).await?;
        let mut volume = self.volumes.again(volume).await?;
        let (_, mounted) = self.volumes.mount_of(volume.key).await?;
        let mut change = self.resize_on_record(&mut volume, (pool, space), &request).await?;
        change.plan.steps.push(match &mounted {
            Some(path) => format!("grow {} at {path} to all of it", volume.record.file_system),
            None => format!("grow {} to all of it at the next mount", volume.record.file_system),
        });
        (change.plan.is_reversible, change.plan.undo) = (false, None);
        if request.dry_run || mounted.is_none() {
            change.message = format!("volume {}", change.message);
            return Ok(change);
        }
        let job = self.grow_by_job(&volume).await?;
        change.message = match job.state {
            JobState::Done => format!("volume {name} has {wanted} now"),
            _ => format!("volume {name} is being grown to {wanted}, job {}", job.id),
        };
        // A job that goes on leaves this to the next mount: others may have the turn when it ends.
        if job.state == JobState::Done {
            volume.record.is_growing = false;
            volume.put().await?;
        }
        change.is_changed = true;
        change.job = Some(job);
        change.volume = Some(shown(&self.volumes, &volume).await?);
        Ok(change)
    }

    /// Puts on record that a volume grows, and resizes its space. A refusal takes the record back.
    async fn resize_on_record(
        &self,
        volume: &mut Volume,
        (pool, space): (String, String),
        request: &ResizeSpace,
    ) -> Answer<Change> {
        let was_growing = volume.record.is_growing;
        if !request.dry_run && !was_growing {
            volume.record.is_growing = true;
            volume.put().await?;
        }
        let resized = self.spaces.resize_space(pool, space, request.clone()).await;
        if resized.is_err() && volume.record.is_growing != was_growing {
            volume.record.is_growing = was_growing;
            volume.put().await?;
        }
        resized
    }

    pub(crate) async fn trim_volume(&self, pool: String, space: String, request: Simple) -> Answer<Change> {
        let pool = pool_to_change(&self.volumes.pools, &pool)?;
        let volume = self.volumes.find(&pool, &space).await?;
        let name = volume.name.clone();
        self.volumes.check_made(&volume)?;
        let (Some(device), Some(path)) = self.volumes.mount_of(volume.key).await? else {
            let message =
                format!("volume {name} is not mounted, so its free room is not known; nothing was changed");
            let hint = format!("`dolmen volume mount {name}` first");
            return Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint));
        };
        let plan = pool.plan(Undo::NotNeeded, vec![format!("discard the free room of {name} at {path}")]);
        if request.dry_run {
            return Ok(planned(plan, format!("volume {name} would be trimmed")));
        }
        let mutex = self.volumes.mutex_of(volume.key);
        let _exclusive = self.volumes.turn(&mutex, volume.key, &name).await?;
        let claimed = volume.space.claimed();
        let operation = Operation::Trim { volume: volume.for_worker(device), minimum: 0 };
        let trimmed = match self.volumes.workers.run(volume.key, &name, operation, Wait::Request).await? {
            Outcome::Trimmed { bytes } => Bytes(bytes),
            other => {
                let message = format!("a trim was answered with {other:?}");
                return Err(ErrorBody::new(ErrorCode::Internal, message).on(name));
            }
        };
        let given_back = Bytes(claimed.0.saturating_sub(volume.space.claimed().0));
        let message = format!(
            "{trimmed} of volume {name} were discarded, which gave {given_back} back to pool {}",
            pool.name()
        );
        let mut change = made(plan, message);
        change.volume = Some(shown(&self.volumes, &volume).await?);
        Ok(change)
    }
}

/// Goes on with a growth that is on record, once the volume is mounted.
pub(super) async fn end_growth(volumes: &Volumes, volume: &mut Volume, wait: Wait) -> Answer<()> {
    if !volume.record.is_growing && !mutation!(GrownUnasked) {
        return Ok(());
    }
    let (_, mounted) = volumes.mount_of(volume.key).await?;
    if mounted.is_none() || volume.pool.mode == ImportMode::Read {
        return Ok(());
    }
    volumes.fill_space(volume, wait).await?;
    volume.record.is_growing = false;
    volume.put().await
}

impl Volumes {
    /// Lets the mounted file system of a volume use all of its space.
    pub(super) async fn fill_space(&self, volume: &Volume, wait: Wait) -> Answer<()> {
        grow_file_system(self, volume, wait).await.map_err(Unanswered::body)
    }
}

/// As [`Volumes::fill_space`], for a caller that shows what the tool printed.
pub(super) async fn grow_file_system(
    volumes: &Volumes,
    volume: &Volume,
    wait: Wait,
) -> Result<(), Unanswered> {
    if volume.pool.mode == ImportMode::Read {
        return Ok(());
    }
    let found = volumes.mount_of(volume.key).await.map_err(Unanswered::Failed)?;
    let (Some(device), Some(_)) = found else { return Ok(()) };
    let operation = Operation::Grow { volume: volume.for_worker(device) };
    volumes.workers.ask(volume.key, &volume.name, operation, wait).await?;
    // What was counted before is of the size before. A count that fails leaves none, and the watch counts again.
    if let Some(known) = volumes.known.borrow_mut().get_mut(&volume.key) {
        known.usage = None;
    }
    count_held(volumes, volume).await;
    Ok(())
}
