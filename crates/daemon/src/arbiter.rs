//! The host's own record of which epoch of each pool is in force.
//!
//! One small file for each pool (`epoch_record`), synced before the change counts. A change needs no room on the file system
//! below, so that a full one keeps no disk from leaving. A file that cannot be read is an error and never "no record": a
//! pool must not be taken for a stranger's because of a bad sector.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;

use dolmen_block_linux::FileLimit;
use dolmen_pool::{Arbiter, ArbiterError, HostRecord, LocalFuture};
use dolmen_units::{HostId, PoolId};

use crate::epoch_record::{self, RecordError};
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

/// Returns the error of a record that could not be read, written or removed.
fn failed(doing: &'static str, pool: PoolId, cause: String, error: &io::Error) -> ArbiterError {
    let remedy = FileLimit::reached(error)
        .map_or_else(|| "make its folder writable".to_owned(), |limit| limit.to_string());
    ArbiterError { doing, pool, cause: format!("{cause}; {remedy}, then try again") }
}

impl Arbiter for FileArbiter {
    fn host(&self) -> HostId {
        self.host
    }

    fn named(&self, pool: PoolId) -> LocalFuture<'_, Result<Option<HostRecord>, ArbiterError>> {
        let path = self.path(pool);
        Box::pin(async move {
            let shown = path.display().to_string();
            let read = self.file_worker.run(move || Ok(epoch_record::read(&path, pool))).await;
            match read.unwrap_or_else(|error| Err(error.into())) {
                Ok(named) => Ok(named),
                Err(RecordError::System(error)) => {
                    Err(failed("reading", pool, format!("{shown}: {error}"), &error))
                }
                // Its text says what to do.
                Err(error) => {
                    Err(ArbiterError { doing: "reading", pool, cause: format!("{shown}: {error}") })
                }
            }
        })
    }

    fn record(&self, pool: PoolId, record: HostRecord) -> LocalFuture<'_, Result<(), ArbiterError>> {
        let path = self.path(pool);
        // Begun at the call: a record of a later epoch must not be overwritten with one that was asked for before it.
        let writing = self.file_worker.run(move || epoch_record::write(&path, pool, &record));
        Box::pin(async move {
            let written = writing.await;
            written.map_err(|error| failed("writing", pool, error.to_string(), &error))
        })
    }

    fn withdraw(&self, pool: PoolId) -> LocalFuture<'_, Result<(), ArbiterError>> {
        let path = self.path(pool);
        let removing = self.file_worker.run(move || remove_durably(&path));
        Box::pin(async move {
            let removed = removing.await;
            removed.map_err(|error| failed("removing", pool, error.to_string(), &error))
        })
    }
}
