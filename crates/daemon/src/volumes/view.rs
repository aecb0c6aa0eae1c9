//! Volumes as the API shows them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use dolmen_api::{Health, ImportMode, MountState, SCHEMA, VolumeDocument, VolumeState};
use dolmen_space::Space;
use dolmen_volume::record::{DesiredVolume, VolumeRecord};

use crate::answer::Answer;
use crate::health::reduction_of;
use crate::jobs::seconds_now;
use crate::open_pool::{OpenPool, key_of};
use crate::state::DAYS_REPORTED;
use crate::volumes::held::{held_text, is_held};
use crate::volumes::records::{self, Found};
use crate::volumes::service::Volumes;
use crate::volumes::volume::Volume;
use crate::volumes::words::{kind_of, shown_purpose, shown_state};

/// Seconds after which an operation is named as slow.
pub(super) const SLOW_S: u64 = 60;
/// What `why` of a volume says that is to be mounted, and is not.
pub(super) const NOT_MOUNTED: &str = "it is to be mounted, and is not";
/// What `why` of a volume says whose pool is open for reading.
const READ_ONLY: &str =
    "its pool is open for reading: it is mounted when asked for, read-only, and its shares are not offered";
/// Percent of a file system that is used when it is named as nearly full.
pub(super) const NEARLY_FULL_PERCENT: u64 = 90;

/// Volumes as requests ask for them.
pub(crate) struct VolumeViews {
    volumes: Rc<Volumes>,
}

impl VolumeViews {
    pub(crate) fn new(volumes: &Rc<Volumes>) -> Self {
        Self { volumes: Rc::clone(volumes) }
    }

    pub(crate) async fn all_volumes(&self) -> Answer<dolmen_api::Volumes> {
        let mut volumes = Vec::new();
        for pool in self.volumes.pools.open_pools() {
            volumes.extend(view_volumes(&self.volumes, &pool).await?);
        }
        Ok(dolmen_api::Volumes { schema: SCHEMA, volumes })
    }

    pub(crate) async fn volumes(&self, pool: String) -> Answer<dolmen_api::Volumes> {
        let pool = self.volumes.pools.pool(&pool)?;
        Ok(dolmen_api::Volumes { schema: SCHEMA, volumes: view_volumes(&self.volumes, &pool).await? })
    }

    pub(crate) async fn show_volume(&self, pool: String, space: String) -> Answer<VolumeDocument> {
        let pool = self.volumes.pools.pool(&pool)?;
        let found = pool.space(&space)?;
        let volume = match records::read(&found).await? {
            Some(record) => view(&self.volumes, &pool, &found, record).await?,
            None => return Err(self.volumes.find(&pool, &space).await.err().unwrap_or_else(unreadable)),
        };
        Ok(VolumeDocument { schema: SCHEMA, volume })
    }
}

/// Returns the volumes of a pool as they are shown.
pub(super) async fn view_volumes(volumes: &Volumes, pool: &Rc<OpenPool>) -> Answer<Vec<dolmen_api::Volume>> {
    let mut found = Vec::new();
    for space in pool.spaces.list() {
        if let Some(record) = records::read(&space).await? {
            found.push((space, record));
        }
    }
    found.sort_by_key(|(space, _)| space.name());
    let device = |(space, _): &(Space, Found)| {
        volumes.transports.find(key_of(pool, space)).map(|shown| shown.device().clone())
    };
    let mounted = volumes.mounted(found.iter().filter_map(device).collect()).await?;
    Ok(found.into_iter().map(|(space, record)| view_with(volumes, pool, &space, record, &mounted)).collect())
}

/// Returns a volume as it is shown.
pub(super) async fn view(
    volumes: &Volumes,
    pool: &OpenPool,
    space: &Space,
    record: Found,
) -> Answer<dolmen_api::Volume> {
    let device = volumes.transports.find(key_of(pool, space)).map(|shown| shown.device().clone());
    let mounted = volumes.mounted(device.into_iter().collect()).await?;
    Ok(view_with(volumes, pool, space, record, &mounted))
}

fn view_with(
    volumes: &Volumes,
    pool: &OpenPool,
    space: &Space,
    record: Found,
    mounted: &BTreeMap<PathBuf, String>,
) -> dolmen_api::Volume {
    let key = key_of(pool, space);
    let device = volumes.transports.find(key).map(|shown| shown.device().clone());
    let path = device.as_ref().and_then(|device| mounted.get(device)).cloned();
    let known = volumes.known.borrow().get(&key).cloned().unwrap_or_default();
    let usage = known.usage.as_ref();
    let answered = usage.filter(|usage| usage.total > 0);
    let mut volume = dolmen_api::Volume {
        pool: pool.name(),
        name: space.name().to_string(),
        health: Health::Healthy,
        why: Vec::new(),
        state: VolumeState::NotUnderstood,
        size_bytes: space.size().0,
        claimed_bytes: space.claimed().0,
        file_system: None,
        uuid: None,
        label: None,
        purpose: None,
        oldest_kernel: None,
        mkfs_options: Vec::new(),
        mount_options: Vec::new(),
        mount_point: None,
        is_to_be_mounted: false,
        is_held: false,
        mount_state: volumes.transitions.state(key, path.is_some()),
        mounted_at: None,
        device: device.map(|device| device.display().to_string()),
        total_bytes: answered.map(|usage| usage.total),
        free_bytes: answered.map(|usage| usage.free),
        inodes: answered.map(|usage| usage.inodes).filter(|inodes| *inodes > 0),
        free_inodes: answered.filter(|usage| usage.inodes > 0).map(|usage| usage.inodes_free),
        days_until_full: answered.and_then(|usage| {
            let used = usage.total.saturating_sub(usage.free);
            pool.volume_fillings.of(space.id()).days_left(seconds_now(), used, usage.free)
        }),
        errors: usage.map(|usage| usage.errors.clone()).unwrap_or_default(),
        worker: volumes.workers.shown(key),
    };
    describe_found(volumes, &mut volume, record);
    if volume.state == VolumeState::Making {
        volume.mount_state = MountState::Making;
    }
    volume.mounted_at = path.filter(|_| volume.mount_state == MountState::Mounted);
    volume.why.extend(known.trouble.map(|trouble| trouble.message));
    if pool.data_loss_events().iter().any(|event| event.space == space.id()) {
        let text =
            format!("its space has lost data: `dolmen why {}/{}` names the files", volume.pool, volume.name);
        volume.why.push(text);
        volume.health = Health::Unhealthy;
    }
    if pool.mode == ImportMode::Read {
        volume.why.push(READ_ONLY.to_owned());
    }
    volume.why.extend(findings(&volume));
    // A file system on fewer copies than it was made with is no healthy volume.
    if let Some(finding) = reduction_of(pool, space) {
        let name = format!("space {}/{}", volume.pool, volume.name);
        volume.why.push(finding.text.replacen(&name, "its space", 1));
        volume.health = volume.health.max(finding.health);
    }
    if !volume.why.is_empty() && volume.health == Health::Healthy {
        volume.health = Health::Warning;
    }
    if !volume.errors.is_empty() {
        volume.health = Health::Unhealthy;
    }
    volume
}

/// Returns a volume as it is shown, with the record that it has in memory.
pub(super) async fn shown(volumes: &Volumes, volume: &Volume) -> Answer<dolmen_api::Volume> {
    let record = Found::Known(Box::new(volume.record.clone()));
    view(volumes, &volume.pool, &volume.space, record).await
}

/// Adds what the record of a volume says.
fn describe_found(volumes: &Volumes, volume: &mut dolmen_api::Volume, record: Found) {
    match record {
        Found::Known(record) => {
            describe(volume, &record);
            if is_held(volumes, &record) {
                volume.is_held = true;
                let name = format!("{}/{}", volume.pool, volume.name);
                volume.why.push(held_text(&name, &record));
            }
        }
        Found::NotUnderstood(why) => volume.why.push(format!("its record is not understood: {why}")),
    }
}

fn describe(volume: &mut dolmen_api::Volume, record: &VolumeRecord) {
    volume.state = shown_state(record.state);
    volume.file_system = Some(kind_of(record.file_system));
    volume.uuid = Some(record.uuid.to_string());
    volume.label.clone_from(&record.label);
    volume.purpose = record.purpose.map(shown_purpose);
    volume.oldest_kernel = record.oldest_kernel.map(|kernel| kernel.to_string());
    volume.mkfs_options.clone_from(&record.mkfs_options);
    volume.mount_options = record.options_for_mount().split(',').map(str::to_owned).collect();
    volume.mount_point = Some(record.mount_point.to_string());
    volume.is_to_be_mounted = record.desired == DesiredVolume::Mounted;
}

/// Returns what is the matter with a volume apart from its record and the last failure, in words.
fn findings(volume: &dolmen_api::Volume) -> Vec<String> {
    let mut why = Vec::new();
    if is_missing(volume) && !volume.is_held {
        why.push(NOT_MOUNTED.to_owned());
    }
    if let Some(worker) =
        volume.worker.as_ref().filter(|worker| worker.elapsed_s >= SLOW_S && !worker.is_long)
    {
        let (operation, pid, seconds) = (&worker.operation, worker.pid, worker.elapsed_s);
        why.push(format!("{operation} takes {seconds} seconds so far (process {pid})"));
    }
    if let (Some(total), Some(free)) = (volume.total_bytes, volume.free_bytes)
        && let Some(percent) = percent_used(total, free)
        && percent > NEARLY_FULL_PERCENT
    {
        why.push(format!("its file system is {percent} % full"));
    }
    if let Some(days) = volume.days_until_full.filter(|days| *days < DAYS_REPORTED) {
        why.push(format!("its file system is full in {} at the rate of the last week", days_text(days)));
    }
    if has_few_inodes(volume) {
        why.push(format!("more than {NEARLY_FULL_PERCENT} % of its inodes are used"));
    }
    why.extend(volume.errors.iter().map(|error| format!("its file system: {error}")));
    why
}

/// Returns whether few inodes of a volume are free.
pub(super) fn has_few_inodes(volume: &dolmen_api::Volume) -> bool {
    let percent = volume.inodes.zip(volume.free_inodes).and_then(|(all, free)| percent_used(all, free));
    percent.is_some_and(|percent| percent > NEARLY_FULL_PERCENT)
}

pub(super) fn days_text(days: u64) -> String {
    if days == 1 { "about 1 day".to_owned() } else { format!("about {days} days") }
}

/// Returns whether a volume is to be mounted, is not, and no step toward it is under way.
pub(super) fn is_missing(volume: &dolmen_api::Volume) -> bool {
    let is_whole = matches!(volume.state, VolumeState::Ready | VolumeState::Foreign);
    let is_at_rest = volume.mount_state == MountState::Unmounted && volume.worker.is_none();
    is_whole && volume.is_to_be_mounted && volume.mounted_at.is_none() && is_at_rest
}

pub(super) fn percent_used(total: u64, free: u64) -> Option<u64> {
    let used = u128::from(total.saturating_sub(free));
    let percent = (used * 100).checked_div(u128::from(total))?;
    u64::try_from(percent).ok()
}

fn unreadable() -> dolmen_api::ErrorBody {
    dolmen_api::ErrorBody::new(
        dolmen_api::ErrorCode::Io,
        "the record of the volume changed while it was read",
    )
}
