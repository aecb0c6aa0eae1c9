//! Bounds of folders as file systems keep them, and their records.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_mutation::mutation;
use dolmen_space::Space;
use dolmen_volume::record::QuotaRecord;
use dolmen_worker::protocol::long::SkippedFiles;
use dolmen_worker::protocol::{Operation, Outcome, QuotaUsage};

use crate::answer::Answer;
use crate::volumes::locks::{Lane, VolumeLocks};
use crate::volumes::numbered::{self, Numbered, QUOTA, attribute};
use crate::volumes::volume::Volume;
use crate::volumes::workers::{Wait, Workers};

/// Bounds of folders that file systems keep.
pub(super) struct QuotaBounds {
    workers: Rc<Workers>,
    locks: Rc<VolumeLocks>,
}

impl QuotaBounds {
    pub(super) fn new(workers: &Rc<Workers>, locks: &Rc<VolumeLocks>) -> Self {
        Self { workers: Rc::clone(workers), locks: Rc::clone(locks) }
    }

    /// Has a file system take a bound, and notes on record that it did.
    pub(super) async fn apply(
        &self,
        volume: &Volume,
        device: &Path,
        (number, record): (u64, &QuotaRecord),
        wait: Wait,
    ) -> Answer<SkippedFiles> {
        let operation =
            Operation::QuotaSet { volume: volume.for_worker(device.to_owned()), quota: record.clone() };
        match self.workers.run(volume.key, &volume.name, operation, wait).await? {
            Outcome::QuotaSet { project_id, skipped } => {
                let taken =
                    QuotaRecord { project_id, is_pending: false, is_being_removed: false, ..record.clone() };
                if let Some(first) = skipped.first.first() {
                    let (count, folder) = (skipped.count, record.folder.as_str());
                    tracing::warn!(
                        volume = volume.name,
                        folder,
                        count,
                        first,
                        "files are not counted by their quota"
                    );
                }
                put_record(volume, number, &taken).await.map(|()| skipped)
            }
            other => {
                let message = format!("the change of a quota was answered with {other:?}");
                Err(ErrorBody::new(ErrorCode::Internal, message))
            }
        }
    }

    /// Has a file system drop a bound.
    pub(super) async fn remove(
        &self,
        volume: &Volume,
        device: PathBuf,
        quota: QuotaRecord,
        wait: Wait,
    ) -> Answer<()> {
        let operation = Operation::QuotaRemove { volume: volume.for_worker(device), quota };
        self.workers.run(volume.key, &volume.name, operation, wait).await.map(drop)
    }

    /// Counts what folders hold, and reads their bounds.
    pub(super) async fn count(
        &self,
        volume: &Volume,
        device: &Path,
        quotas: Vec<QuotaRecord>,
        wait: Wait,
    ) -> Answer<Vec<QuotaUsage>> {
        let operation = Operation::QuotaList { volume: volume.for_worker(device.to_owned()), quotas };
        match self.workers.run(volume.key, &volume.name, operation, wait).await? {
            Outcome::Quotas { quotas } => Ok(quotas),
            other => {
                let message = format!("the count of quotas was answered with {other:?}");
                Err(ErrorBody::new(ErrorCode::Internal, message))
            }
        }
    }

    /// Sets the bounds of a volume that was mounted, as far as its file system does not have them, and ends removals. A start of
    /// the daemon calls it for volumes that are mounted already. Failures are logged, and
    /// `dolmen volume quota list` shows them.
    ///
    /// The caller holds the lock of changes of the volume.
    pub(super) async fn reapply(&self, volume: &Volume, device: &Path, wait: Wait) {
        let mutex = self.locks.of(volume.key, Lane::Quotas);
        let _exclusive = mutex.take().await;
        let applied = async {
            let records = quotas_of(&volume.space).await?;
            let known = records.into_iter().filter_map(|one| Some((one.number, one.record.ok()?)));
            let (leaving, staying): (Vec<_>, Vec<_>) = known.partition(|(_, record)| record.is_being_removed);
            for (number, record) in leaving {
                let folder = record.folder.as_str().to_owned();
                match self.remove(volume, device.to_owned(), record, wait).await {
                    Ok(()) => numbered::delete(&volume.space, QUOTA, number, &volume.name).await?,
                    Err(error) => {
                        tracing::error!(volume = volume.name, folder, %error, "a removed quota may still bound its folder");
                    }
                }
            }
            let (pending, taken): (Vec<_>, Vec<_>) =
                staying.into_iter().partition(|(_, record)| record.is_pending);
            for (number, record) in &pending {
                if !mutation!(PendingQuotaForgotten) {
                    self.apply(volume, device, (*number, record), wait).await?;
                }
            }
            if taken.is_empty() {
                return Ok(());
            }
            let asked = taken.iter().map(|(_, record)| record.clone()).collect();
            let found = self.count(volume, device, asked, wait).await?;
            for (number, record) in &taken {
                let usage = found.iter().find(|found| found.folder == record.folder);
                // A mount brings no folder back that people deleted.
                if usage.is_some_and(|usage| usage.is_gone) && !mutation!(DeletedFolderRemade) {
                    let folder = record.folder.as_str();
                    tracing::info!(volume = volume.name, folder, "a folder with a quota is gone");
                    continue;
                }
                if usage.is_none_or(|usage| !is_as_recorded(record, usage)) {
                    self.apply(volume, device, (*number, record), wait).await?;
                }
            }
            Answer::Ok(())
        };
        if let Err(error) = applied.await {
            tracing::error!(volume = volume.name, %error, "a quota of the volume does not bound its folder");
        }
    }
}

/// Lists the quotas of a space.
pub(super) async fn quotas_of(space: &Space) -> Answer<Vec<Numbered<QuotaRecord>>> {
    numbered::list(space, QUOTA, QuotaRecord::decode).await
}

/// Writes the record of a quota.
pub(super) async fn put_record(volume: &Volume, number: u64, record: &QuotaRecord) -> Answer<()> {
    let put = attribute(QUOTA, number, record.encode(), &volume.name)?;
    numbered::put(&volume.space, vec![put], &volume.name).await
}

/// Returns whether a file system bounds a folder as its record says.
pub(super) fn is_as_recorded(record: &QuotaRecord, found: &QuotaUsage) -> bool {
    (record.limit_bytes, record.limit_files) == (found.limit_bytes, found.limit_files)
}
