//! A file system that somebody else made becomes a volume. Nothing is written to its space; the record is written before the mount.

use std::path::PathBuf;
use std::rc::Rc;

use dolmen_api::{AdoptVolume, Change, ErrorBody, ErrorCode};
use dolmen_mutation::mutation;
use dolmen_volume::file_system::{FileSystem, FileSystemUuid};
use dolmen_volume::mount_point::MountPoint;
use dolmen_volume::record::{DesiredVolume, Schedules, Unknown, VolumeRecord, VolumeState};
use dolmen_worker::protocol::{Content, Operation, Outcome};

use crate::answer::Answer;
use crate::open_pool::key_of;
use crate::plan::{Undo, made, planned};
use crate::volumes::claiming::claim_place;
use crate::volumes::claims::Claim;
use crate::volumes::create::{MOUNT_FOLDER, parse_mount_point};
use crate::volumes::records;
use crate::volumes::service::{Volumes, pool_to_change};
use crate::volumes::transition::Toward;
use crate::volumes::view::shown;
use crate::volumes::volume::Volume;
use crate::volumes::workers::Wait;

/// Adoption of file systems.
pub(crate) struct Adoptions {
    volumes: Rc<Volumes>,
}

impl Adoptions {
    pub(crate) fn new(volumes: &Rc<Volumes>) -> Self {
        Self { volumes: Rc::clone(volumes) }
    }

    pub(crate) async fn adopt_volume(
        &self,
        pool: String,
        space: String,
        request: AdoptVolume,
    ) -> Answer<Change> {
        let pool = pool_to_change(&self.volumes.pools, &pool)?;
        let space = pool.space(&space)?;
        let (key, name) = (key_of(&pool, &space), format!("{}/{}", pool.name(), space.name()));
        let mutex = self.volumes.mutex_of(key);
        let _exclusive = self.volumes.turn(&mutex, key, &name).await?;
        if records::read(&space).await?.is_some() {
            let message = format!("space {name} carries a volume already; nothing was changed");
            let hint = format!("`dolmen volume show {name}` shows it");
            return Err(ErrorBody::new(ErrorCode::NameTaken, message).on(name).hint(hint));
        }
        let usual = format!("{MOUNT_FOLDER}/{name}");
        let mount_point = parse_mount_point(request.mount_point.as_deref().unwrap_or(&usual), &name)?;
        let claim = claim_place(&self.volumes, &mount_point, &name).await?;
        let was_attached = self.volumes.transports.find(key).is_some();
        let device = self.volumes.attach(&pool, &space).await?;
        let adopted = self.content_of(key, &name, device).await.and_then(|content| known(&name, &content));
        let detach = |volume: Volume| async move {
            if !was_attached {
                let _ = self.volumes.detach(&volume).await;
            }
        };
        let (file_system, uuid, label) = match adopted {
            Ok(adopted) => adopted,
            Err(error) => {
                if !was_attached {
                    let (pool, space) = (pool.name(), space.name().to_string());
                    let _ = self
                        .volumes
                        .attachments
                        .detach_space(pool, space, dolmen_api::DetachSpace::default())
                        .await;
                }
                return Err(error);
            }
        };
        let mut record = record_of(file_system, uuid, label, mount_point);
        record.accept(self.volumes.shares.host);
        let volume = Volume { pool: Rc::clone(&pool), space, key, name: name.clone(), record };
        let at = volume.record.mount_point.to_string();
        let steps = vec![
            format!("put the {file_system} on space {name}, UUID {uuid}, on record as a volume"),
            format!("mount it at {at} with {}", volume.record.options_for_mount()),
        ];
        let plan = pool.plan(Undo::By(format!("dolmen volume unmount {name}")), steps);
        if request.dry_run {
            detach(volume).await;
            return Ok(planned(
                plan,
                format!("space {name} would be adopted, {file_system} mounted at {at}"),
            ));
        }
        let step = self.volumes.transitions.begin(key, Toward::Mounted);
        if let Err(error) = self.put_and_mount(&volume, claim).await {
            detach(volume).await;
            return Err(error);
        }
        drop(step);
        let mut change = made(plan, format!("space {name} is adopted, {file_system} mounted at {at}"));
        change.volume = Some(shown(&self.volumes, &volume).await?);
        Ok(change)
    }

    /// Writes the record of a volume that is adopted, and mounts it. A refusal takes the record back.
    ///
    /// A file system that is mounted without a record has no command that unmounts it.
    async fn put_and_mount(&self, volume: &Volume, claim: Claim) -> Answer<()> {
        if mutation!(AdoptedBeforeRecord) {
            self.volumes.mount_now(volume, Wait::Request).await?;
            return volume.put().await;
        }
        volume.put().await?;
        drop(claim);
        let Err(error) = self.volumes.mount_now(volume, Wait::Request).await else { return Ok(()) };
        // A process that goes on mounts the volume as its record says.
        if self.volumes.workers.at_work(volume.key).is_some() {
            return Err(error);
        }
        let Err(second) = records::delete(&volume.space, &volume.name).await else { return Err(error) };
        let message = format!("{}; its record could not be taken back: {second}", error.message);
        let hint = format!("`dolmen volume mount {}` tries it again", volume.name);
        Err(ErrorBody { message, ..error }.hint(hint))
    }

    /// Returns what a worker finds on a device.
    async fn content_of(&self, key: dolmen_attach::SpaceKey, name: &str, device: PathBuf) -> Answer<Content> {
        match self.volumes.workers.run(key, name, Operation::Probe { device }, Wait::Request).await? {
            Outcome::Content(content) => Ok(content),
            other => Err(ErrorBody::new(ErrorCode::Internal, format!("a probe was answered with {other:?}"))),
        }
    }
}

/// Returns the record of an adopted volume.
fn record_of(
    file_system: FileSystem,
    uuid: FileSystemUuid,
    label: Option<String>,
    mount_point: MountPoint,
) -> VolumeRecord {
    VolumeRecord {
        state: VolumeState::Foreign,
        desired: DesiredVolume::Mounted,
        file_system,
        uuid,
        label,
        purpose: None,
        mkfs_options: Vec::new(),
        is_mkfs_begun: false,
        is_growing: false,
        mount_options: ["noatime"].iter().filter_map(|option| option.parse().ok()).collect(),
        mount_point,
        placed_by: None,
        oldest_kernel: None,
        schedules: Schedules::default(),
        deduplication: None,
        unknown: Unknown::new(),
    }
}

/// Returns the file system that a content is, if it is one that a volume may have.
fn known(name: &str, content: &Content) -> Answer<(FileSystem, FileSystemUuid, Option<String>)> {
    let kind = content.kind.as_deref().unwrap_or(if content.is_zero { "zeros" } else { "unknown data" });
    let file_system = kind.parse::<FileSystem>().ok();
    let uuid = content.uuid.as_deref().and_then(|uuid| uuid.parse().ok());
    match (file_system, uuid) {
        (Some(file_system), Some(uuid)) => Ok((file_system, uuid, content.label.clone())),
        (Some(_), None) | (None, _) => {
            let message = format!(
                "space {name} has {kind}, and a volume is xfs, btrfs or ext4 with a UUID; nothing was changed"
            );
            let hint =
                "a space without content is made a volume by `dolmen volume create`, which makes its own";
            Err(ErrorBody::new(ErrorCode::ForeignData, message).on(name).hint(hint))
        }
    }
}
