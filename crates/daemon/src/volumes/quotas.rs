//! Quotas: bounds of folders of volumes (docs/design/0035, *Quotas*).
//!
//! Steps of a new quota: the volume is mounted so that it counts projects, the record is written as *pending*, the file system takes
//! the bound, the record is written as taken. Steps of a removal: the record is written as *removing*, the file system drops the
//! bound, the record is deleted. A bound that a file system takes in part is removed by the same steps, and the bound of before
//! is set again.
//!
//! Invariant: a folder with a bound has a record. A kill between two steps leaves a record that is pending or removing. The next
//! start of the daemon and the next mount go on with it. File systems keep bounds themselves, so a mount compares and sets only
//! those that differ.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, Quota, Quotas, RemoveQuota, SCHEMA, SetQuota, shell_word};
use dolmen_mutation::mutation;
use dolmen_units::Bytes;
use dolmen_volume::file_system::FileSystem;
use dolmen_volume::mount_point::Folder;
use dolmen_volume::record::{MountOption, QuotaRecord, Unknown};
use dolmen_worker::protocol::QuotaUsage;
use dolmen_worker::protocol::long::SkippedFiles;

use crate::answer::Answer;
use crate::plan::{Undo, made, planned};
use crate::volumes::locks::Lane;
use crate::volumes::numbered::{self, Numbered, QUOTA};
use crate::volumes::quota_bounds::{is_as_recorded, put_record, quotas_of};
use crate::volumes::service::{Volumes, pool_to_change};
use crate::volumes::volume::Volume;
use crate::volumes::workers::Wait;

/// Quotas of one volume, at most: its attributes have to hold its shares too.
const QUOTAS_MAX: usize = 128;
/// Option with which XFS and ext4 count projects.
const COUNTS_PROJECTS: &str = "prjquota";
/// Spellings of it.
const SPELLINGS: [&str; 3] = [COUNTS_PROJECTS, "pquota", "pqnoenforce"];

fn bad(name: &str, error: &dyn std::fmt::Display) -> ErrorBody {
    ErrorBody::new(ErrorCode::BadRequest, format!("volume {name}: {error}; nothing was changed")).on(name)
}

fn folder_of(name: &str, text: &str) -> Answer<Folder> {
    text.parse().map_err(|error: dolmen_volume::mount_point::PathError| bad(name, &error))
}

/// Reads the record of a new bound.
fn record_of(name: &str, request: &SetQuota) -> Answer<QuotaRecord> {
    if [request.limit_bytes, request.limit_files].contains(&Some(0)) {
        let hint = "leave a limit out that is not wanted";
        return Err(bad(name, &"a limit of 0 would be no limit").hint(hint));
    }
    Ok(QuotaRecord {
        folder: folder_of(name, &request.folder)?,
        limit_bytes: request.limit_bytes,
        limit_files: request.limit_files,
        project_id: NonZeroU32::MIN,
        is_pending: true,
        is_being_removed: false,
        unknown: Unknown::new(),
    })
}

/// Returns a folder for people.
fn shown_folder(folder: &Folder) -> String {
    if folder.is_root() { "all of it".to_owned() } else { format!("folder {:?}", folder.as_str()) }
}

fn bound_of(record: &QuotaRecord) -> String {
    let bytes = record.limit_bytes.map(|bytes| Bytes(bytes).to_string());
    let files = record.limit_files.map(|files| format!("{files} files"));
    let bounds: Vec<String> = bytes.into_iter().chain(files).collect();
    if bounds.is_empty() { "no bound, counted only".to_owned() } else { bounds.join(" and ") }
}

/// Returns whether a volume has to be mounted otherwise before it counts folders.
fn needs_option(volume: &Volume) -> bool {
    let has = |option: &MountOption| SPELLINGS.contains(&option.to_string().as_str());
    match volume.record.file_system {
        FileSystem::Btrfs => false,
        FileSystem::Xfs | FileSystem::Ext4 => !volume.record.mount_options.iter().any(has),
    }
}

/// Quotas of folders of volumes, as requests ask for them.
pub(crate) struct VolumeQuotas {
    volumes: Rc<Volumes>,
}

impl VolumeQuotas {
    pub(crate) fn new(volumes: &Rc<Volumes>) -> Self {
        Self { volumes: Rc::clone(volumes) }
    }

    pub(crate) async fn list_quotas(&self, pool: String, space: String) -> Answer<Quotas> {
        let pool = self.volumes.pools.pool(&pool)?;
        let volume = self.volumes.find(&pool, &space).await?;
        let records = quotas_of(&volume.space).await?;
        let known: Vec<QuotaRecord> = records.iter().filter_map(|one| one.record.clone().ok()).collect();
        let counted = match known.is_empty() {
            true => Ok(Vec::new()),
            false => self.count(&volume, known).await,
        };
        let mut quotas: Vec<Quota> = Vec::new();
        for one in &records {
            let record = match &one.record {
                Ok(record) => record,
                Err(why) => {
                    quotas.push(not_understood(one.number, why));
                    continue;
                }
            };
            let is_it = |found: &&QuotaUsage| found.folder == record.folder;
            let found = counted.as_ref().ok().and_then(|counted| counted.iter().find(is_it));
            quotas.push(shown(record, found));
        }
        quotas.sort_by(|one, other| one.folder.cmp(&other.folder));
        let unavailable = counted.err().map(|error| error.message);
        Ok(Quotas { schema: SCHEMA, quotas, unavailable })
    }

    pub(crate) async fn set_quota(&self, pool: String, space: String, request: SetQuota) -> Answer<Change> {
        let pool = pool_to_change(&self.volumes.pools, &pool)?;
        let volume = self.volumes.find(&pool, &space).await?;
        let name = volume.name.clone();
        volume.check_whole()?;
        self.mounted_device(&volume).await?;
        let record = record_of(&name, &request)?;
        check_countable(&volume, &record)?;
        let what = shown_folder(&record.folder);
        let mut steps = Vec::new();
        if needs_option(&volume) {
            let at = &volume.record.mount_point;
            steps.push(format!(
                "take the shares of {name} off, unmount it, and mount it at {at} with {COUNTS_PROJECTS}"
            ));
            self.volumes.check_no_job(&volume)?;
            self.volumes.check_unused(&volume).await?;
        }
        steps.push(format!("bound {what} of volume {name} by {}", bound_of(&record)));
        let undo = format!("dolmen volume quota remove {name} {}", shell_word(record.folder.as_str()));
        let plan = pool.plan(Undo::By(undo), steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{what} of volume {name} would be bounded")));
        }
        if needs_option(&volume) {
            self.mount_otherwise(&volume).await?;
        }
        let mutex = self.volumes.locks.of(volume.key, Lane::Quotas);
        let _exclusive = self.volumes.workers.turn_in(Lane::Quotas, &mutex, volume.key, &name).await?;
        let volume = self.volumes.again(volume).await?;
        let bound = bound_of(&record);
        if let Some(skipped) = self.bound_folder(&volume, record).await? {
            let mut change = made(plan, format!("{what} of volume {name} is bounded by {bound}"));
            change.warnings.extend(not_counted(&skipped));
            return Ok(change);
        }
        let plan = pool.plan(Undo::NotNeeded, Vec::new());
        Ok(planned(plan, format!("{what} of volume {name} is bounded by {bound} already")))
    }

    /// Takes the steps of a new bound, and returns the files that it does not count; none if nothing was changed.
    async fn bound_folder(&self, volume: &Volume, mut record: QuotaRecord) -> Answer<Option<SkippedFiles>> {
        let records = quotas_of(&volume.space).await?;
        let mut known = records.iter().filter_map(|one| Some((one.number, one.record.as_ref().ok()?)));
        let former = known.find(|(_, other)| other.folder == record.folder);
        if former.is_none() && records.len() >= QUOTAS_MAX {
            let finding = format!("it has {QUOTAS_MAX} quotas already");
            return Err(bad(&volume.name, &finding).hint("remove one first"));
        }
        let limits = |record: &QuotaRecord| (record.limit_bytes, record.limit_files);
        if former.is_some_and(|(_, former)| is_taken(former) && limits(former) == limits(&record)) {
            return Ok(None);
        }
        let number = match former {
            Some((number, former)) => {
                record.project_id = former.project_id;
                record.unknown.clone_from(&former.unknown);
                number
            }
            None => {
                let drawn = numbered::draw(self.volumes.seams.entropy.as_ref(), &records);
                record.project_id = NonZeroU32::new(drawn).unwrap_or(record.project_id);
                drawn.into()
            }
        };
        put_record(volume, number, &record).await?;
        let error = match self.apply(volume, number, &record).await {
            Ok(skipped) => return Ok(Some(skipped)),
            Err(error) => error,
        };
        // A process that goes on ends as the pending record says.
        if error.code == ErrorCode::Busy {
            return Err(error);
        }
        let taken_back = match former {
            Some((_, former)) if !former.is_being_removed => {
                self.set_former(volume, number, former.clone()).await
            }
            Some(_) | None => self.take_back(volume, number, record, &error).await,
        };
        Err(error_after(error, taken_back))
    }

    /// Sets the bound of before again, after another one failed.
    async fn set_former(&self, volume: &Volume, number: u64, former: QuotaRecord) -> Answer<()> {
        let former = QuotaRecord { is_pending: true, ..former };
        put_record(volume, number, &former).await?;
        self.apply(volume, number, &former).await.map(drop)
    }

    /// Removes a new bound that its file system may have taken in part. Where that fails, its record stays as *removing*.
    async fn take_back(
        &self,
        volume: &Volume,
        number: u64,
        record: QuotaRecord,
        error: &ErrorBody,
    ) -> Answer<()> {
        // A file system that does not count folders has no bound.
        if error.code != ErrorCode::Unsupported && !mutation!(HalfSetQuotaForgotten) {
            return self.remove_bound(volume, number, record).await;
        }
        numbered::delete(&volume.space, QUOTA, number, &volume.name).await
    }

    /// Takes the steps of a removal.
    async fn remove_bound(&self, volume: &Volume, number: u64, record: QuotaRecord) -> Answer<()> {
        let leaving = QuotaRecord { is_being_removed: true, ..record };
        if !mutation!(QuotaRemovalUnrecorded) {
            put_record(volume, number, &leaving).await?;
        }
        let device = self.mounted_device(volume).await?;
        self.volumes.quotas.remove(volume, device, leaving, Wait::Request).await?;
        numbered::delete(&volume.space, QUOTA, number, &volume.name).await
    }

    pub(crate) async fn remove_quota(
        &self,
        pool: String,
        space: String,
        request: RemoveQuota,
    ) -> Answer<Change> {
        let pool = pool_to_change(&self.volumes.pools, &pool)?;
        let volume = self.volumes.find(&pool, &space).await?;
        let name = volume.name.clone();
        volume.check_whole()?;
        let folder = folder_of(&name, &request.folder)?;
        let what = shown_folder(&folder);
        let found = |records: Vec<Numbered<QuotaRecord>>| {
            let mut known = records.into_iter().filter_map(|one| Some((one.number, one.record.ok()?)));
            known.find(|(_, record)| record.folder == folder).ok_or_else(|| {
                let message = format!("{what} of volume {name} has no quota; nothing was changed");
                let hint = format!("`dolmen volume quota list {name}` shows its quotas");
                ErrorBody::new(ErrorCode::NoSuchObject, message).on(&name).hint(hint)
            })
        };
        let (_, record) = found(quotas_of(&volume.space).await?)?;
        let size = record.limit_bytes.map_or_else(|| "none".to_owned(), |bytes| bytes.to_string());
        let files = record.limit_files.map(|files| format!(" --files {files}")).unwrap_or_default();
        let undo = format!("dolmen volume quota set {name} {} {size}{files}", shell_word(folder.as_str()));
        let steps = vec![format!("take the bound off {what} of volume {name}; its content stays")];
        let plan = pool.plan(Undo::By(undo), steps);
        self.mounted_device(&volume).await?;
        if request.dry_run {
            return Ok(planned(plan, format!("{what} of volume {name} would have no quota")));
        }
        let mutex = self.volumes.locks.of(volume.key, Lane::Quotas);
        let _exclusive = self.volumes.workers.turn_in(Lane::Quotas, &mutex, volume.key, &name).await?;
        let volume = self.volumes.again(volume).await?;
        let (number, record) = found(quotas_of(&volume.space).await?)?;
        self.remove_bound(&volume, number, record).await.map_err(|error| {
            let message = format!("{}; the removal goes on at the next mount of {name}", error.message);
            ErrorBody { message, ..error }
        })?;
        Ok(made(plan, format!("{what} of volume {name} has no quota any more")))
    }

    /// Returns the device of a mounted volume.
    async fn mounted_device(&self, volume: &Volume) -> Answer<PathBuf> {
        if let (Some(device), Some(_)) = self.volumes.mount_of(volume.key).await? {
            return Ok(device);
        }
        let name = &volume.name;
        let message = format!("volume {name} is not mounted, and its quotas are kept by its file system");
        Err(ErrorBody::new(ErrorCode::Busy, message)
            .on(name)
            .hint(format!("`dolmen volume mount {name}` first")))
    }

    /// Mounts a volume again so that it counts projects, unless it does.
    async fn mount_otherwise(&self, volume: &Volume) -> Answer<()> {
        let mutex = self.volumes.mutex_of(volume.key);
        let _exclusive = self.volumes.turn(&mutex, volume.key, &volume.name).await?;
        let mut volume = self.volumes.find(&volume.pool, volume.space.name().as_str()).await?;
        if needs_option(&volume) {
            self.mount_counting(&mut volume).await?;
        }
        Ok(())
    }

    /// Mounts a volume again so that it counts projects; as before where its file system cannot.
    async fn mount_counting(&self, volume: &mut Volume) -> Answer<()> {
        let before = volume.record.mount_options.clone();
        let option: MountOption =
            COUNTS_PROJECTS.parse().map_err(|error: dolmen_volume::record::MountOptionError| {
                ErrorBody::new(ErrorCode::Internal, error.to_string())
            })?;
        self.volumes.unmount_now(volume).await?;
        volume.record.mount_options.push(option);
        let error = match self.volumes.mount_now(volume, Wait::Request).await {
            Ok(()) => return volume.put().await,
            // The mount goes on with the option, or another process has the volume: nothing is known of the kernel yet. The record
            // gets the option when a mount has shown that it takes it; else no later mount would succeed.
            Err(error) if error.code == ErrorCode::Busy => {
                self.volumes.note(volume.key, Some(error.clone()));
                return Err(error);
            }
            Err(error) => error,
        };
        volume.record.mount_options = before;
        let again = self.volumes.mount_now(volume, Wait::Request).await;
        self.volumes.note(volume.key, again.as_ref().err().cloned());
        let state = again.err().map_or_else(
            || "it is mounted as before".to_owned(),
            |again| format!("it is not mounted now: {}", again.message),
        );
        let name = &volume.name;
        let kind = volume.record.file_system;
        tracing::warn!(volume = name, %error, "the volume was not mounted with {COUNTS_PROJECTS}");
        let message = format!(
            "volume {name} cannot count folders: the kernel does not mount its {kind} with {COUNTS_PROJECTS}; {state}"
        );
        let hint = match kind {
            FileSystem::Ext4 => {
                "ext4 counts folders if it was made with `-O quota,project`; use a volume on XFS or btrfs"
            }
            FileSystem::Xfs | FileSystem::Btrfs => {
                "boot a kernel with CONFIG_XFS_QUOTA (`grep XFS_QUOTA /boot/config-*` shows it), or use a volume on btrfs"
            }
        };
        Err(ErrorBody::new(ErrorCode::Unsupported, message).on(name).hint(hint))
    }

    async fn apply(&self, volume: &Volume, number: u64, record: &QuotaRecord) -> Answer<SkippedFiles> {
        let device = self.mounted_device(volume).await?;
        self.volumes.quotas.apply(volume, &device, (number, record), Wait::Request).await
    }

    async fn count(&self, volume: &Volume, quotas: Vec<QuotaRecord>) -> Answer<Vec<QuotaUsage>> {
        let device = self.mounted_device(volume).await?;
        self.volumes.quotas.count(volume, &device, quotas, Wait::Request).await
    }
}

/// Returns whether the file system was seen to have the bound of a record, and is to keep it.
fn is_taken(record: &QuotaRecord) -> bool {
    !record.is_pending && !record.is_being_removed
}

/// Returns what is to be known of files that a bound does not count.
fn not_counted(skipped: &SkippedFiles) -> Option<String> {
    let first = skipped.first.first()?;
    let count = skipped.count;
    Some(format!("{count} files are not counted, since they could not be changed, such as {first}"))
}

/// Adds to a refusal that the state of before could not be restored.
fn error_after(error: ErrorBody, taken_back: Answer<()>) -> ErrorBody {
    let Err(second) = taken_back else { return error };
    let message = format!(
        "{}; what was changed before that is taken back at the next mount, since it could not be now: {}",
        error.message, second.message
    );
    ErrorBody { message, ..error }
}

/// Refuses a bound of all of a btrfs: its root would be bounded without the subvolumes in it, and other quotas make those.
fn check_countable(volume: &Volume, record: &QuotaRecord) -> Answer<()> {
    if volume.record.file_system != FileSystem::Btrfs || !record.folder.is_root() {
        return Ok(());
    }
    let finding = "btrfs would bound its root without the subvolumes in it, such as folders with quotas";
    let hint = "the size of the volume bounds all of it; set quotas of its folders";
    Err(ErrorBody { code: ErrorCode::Unsupported, ..bad(&volume.name, &finding) }.hint(hint))
}

fn not_understood(number: u64, why: &str) -> Quota {
    Quota {
        folder: String::new(),
        limit_bytes: None,
        limit_files: None,
        project_id: None,
        used_bytes: None,
        used_files: None,
        why: vec![format!("record {number} is not understood: {why}")],
    }
}

fn shown(record: &QuotaRecord, found: Option<&QuotaUsage>) -> Quota {
    let mut why = Vec::new();
    if record.is_being_removed {
        why.push(
            "its removal was begun, and the next mount or `dolmen volume quota remove` ends it".to_owned(),
        );
    } else if record.is_pending {
        why.push("its file system has not taken it yet; the next mount asks it again".to_owned());
    } else if found.is_some_and(|found| found.is_gone) {
        why.push(
            "its folder is gone; `dolmen volume quota set` makes it again, and `quota remove` forgets it"
                .to_owned(),
        );
    } else if found.is_some_and(|found| !is_as_recorded(record, found)) {
        why.push("its file system has another bound; the next mount sets this one".to_owned());
    }
    Quota {
        folder: record.folder.as_str().to_owned(),
        limit_bytes: record.limit_bytes,
        limit_files: record.limit_files,
        project_id: Some(record.project_id.get()),
        used_bytes: found.and_then(|found| found.bytes),
        used_files: found.and_then(|found| found.files),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(is_pending: bool) -> QuotaRecord {
        QuotaRecord {
            folder: "docs".parse().unwrap(),
            limit_bytes: Some(1 << 30),
            limit_files: Some(10),
            project_id: NonZeroU32::MIN,
            is_pending,
            is_being_removed: false,
            unknown: Unknown::new(),
        }
    }

    fn usage(limit_bytes: Option<u64>) -> QuotaUsage {
        QuotaUsage {
            folder: "docs".parse().unwrap(),
            project_id: NonZeroU32::MIN,
            bytes: Some(5),
            files: Some(1),
            limit_bytes,
            limit_files: Some(10),
            is_gone: false,
        }
    }

    /// Scenario: as recorded, another bound in the file system, not mounted, pending.
    #[test]
    fn a_quota_that_does_not_bound_its_folder_has_its_reason() {
        let fine = shown(&record(false), Some(&usage(Some(1 << 30))));
        assert_eq!((fine.used_bytes, fine.used_files, fine.why.len()), (Some(5), Some(1), 0));
        let other = shown(&record(false), Some(&usage(None)));
        assert!(other.why[0].contains("another bound"), "{:?}", other.why);
        let gone = shown(&record(false), Some(&QuotaUsage { is_gone: true, ..usage(None) }));
        assert!(gone.why[0].contains("its folder is gone"), "{:?}", gone.why);
        assert_eq!(shown(&record(false), None).why.len(), 0);
        assert!(shown(&record(true), None).why[0].contains("has not taken it"));
        let leaving = QuotaRecord { is_being_removed: true, ..record(true) };
        assert!(shown(&leaving, None).why[0].contains("removal was begun"));
        assert!(is_taken(&record(false)) && !is_taken(&record(true)) && !is_taken(&leaving));
        assert_eq!(bound_of(&record(false)), "1 GiB and 10 files");
    }
}
