//! The host's own record of which epoch of each pool is in force.
//!
//! One small file for each pool (`epoch_record`), synced before the change counts. A change needs no room on the file system
//! below, so that a full one keeps no disk from leaving. A file that cannot be read is an error and never "no record": a
//! pool must not be taken for a stranger's because of a bad sector.

use std::path::PathBuf;
use std::rc::Rc;

use dolmen_pool::{Arbiter, ArbiterError, LocalFuture};
use dolmen_units::{EpochId, HostId, PoolId};

use crate::epoch_record;
use crate::files::remove_durably;
use crate::io_worker::IoWorker;

/// The records of this host.
#[derive(Debug)]
pub(crate) struct FileArbiter {
    host: HostId,
    folder: PathBuf,
    file_worker: Rc<IoWorker>,
}

impl FileArbiter {
    pub(crate) fn new(host: HostId, folder: PathBuf, file_worker: Rc<IoWorker>) -> Self {
        Self { host, folder, file_worker }
    }

    fn path(&self, pool: PoolId) -> PathBuf {
        self.folder.join(pool.to_string())
    }
}

impl Arbiter for FileArbiter {
    fn host(&self) -> HostId {
        self.host
    }

    fn named(&self, pool: PoolId) -> LocalFuture<'_, Result<Option<EpochId>, ArbiterError>> {
        let path = self.path(pool);
        let failed = move |cause: String| ArbiterError { doing: "reading", pool, cause };
        Box::pin(async move {
            let shown = path.display().to_string();
            let read = self.file_worker.run(move || Ok(epoch_record::read(&path, pool))).await;
            let read = read.map_err(|error| failed(format!("{shown}: {error}")))?;
            read.map_err(|error| failed(format!("{shown}: {error}")))
        })
    }

    fn record(&self, pool: PoolId, epoch: EpochId) -> LocalFuture<'_, Result<(), ArbiterError>> {
        let path = self.path(pool);
        Box::pin(async move {
            let written = self.file_worker.run(move || epoch_record::write(&path, pool, epoch)).await;
            written.map_err(|error| ArbiterError { doing: "writing", pool, cause: error.to_string() })
        })
    }

    fn withdraw(&self, pool: PoolId) -> LocalFuture<'_, Result<(), ArbiterError>> {
        let path = self.path(pool);
        Box::pin(async move {
            let removed = self.file_worker.run(move || remove_durably(&path)).await;
            removed.map_err(|error| ArbiterError { doing: "removing", pool, cause: error.to_string() })
        })
    }
}
