//! What the daemon remembers of its pools over restarts: which were open, where their disks were, and what was served.
//!
//! Nothing in here decides anything about data: identities stand on the disks, the epoch in force in the arbiter's
//! record. Paths are hints; a pool whose remembered file is lost is found again by `import`.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dolmen_api::ImportMode;
use dolmen_space::Clients;
use dolmen_units::PoolId;
use serde::{Deserialize, Serialize};

use crate::exports::Network;
use crate::files::{boot_id, read_if_any, remove_durably, write_durably};
use crate::io_worker::IoWorker;

/// The version of the files.
const VERSION: u32 = 1;

/// A space that was served, or attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServedSpace {
    /// Its number, which a new name does not change.
    pub(crate) space: u64,
    pub(crate) read_only: bool,
    /// Where on a network as well. Of the keys the paths alone are remembered.
    #[serde(default)]
    pub(crate) network: Option<Network>,
}

/// A pool, as it is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    version: u32,
    pub(crate) id: String,
    pub(crate) name: String,
    /// What it is to be opened for.
    pub(crate) mode: ImportMode,
    /// Where its disks were.
    pub(crate) paths: Vec<PathBuf>,
    #[serde(default)]
    pub(crate) served: Vec<ServedSpace>,
    /// Whether its labels are being wiped: the next daemon goes on with that, and opens nothing.
    #[serde(default)]
    pub(crate) is_being_destroyed: bool,
    /// Whether it is being made. The next daemon opens it if it has all of its labels, and wipes them if it has not.
    #[serde(default)]
    pub(crate) is_being_made: bool,
    /// Which start of the system it was open in last: clients survive a daemon, and end with their host.
    #[serde(default)]
    boot: Option<String>,
}

impl Remembered {
    pub(crate) fn new(id: PoolId, name: &str, mode: ImportMode, paths: Vec<PathBuf>) -> Self {
        let (id, name) = (id.to_string(), name.to_owned());
        let (is_being_destroyed, is_being_made) = (false, false);
        Self {
            version: VERSION,
            id,
            name,
            mode,
            paths,
            served: Vec::new(),
            is_being_destroyed,
            is_being_made,
            boot: boot_id(),
        }
    }

    /// Who may still be there of the clients whose writes were acknowledged while it was open.
    pub(crate) fn clients(&self) -> Clients {
        match self.boot.is_some() && self.boot == boot_id() {
            true => Clients::MayLive,
            false => Clients::Ended,
        }
    }
}

/// The files.
#[derive(Debug)]
pub(crate) struct Ledger {
    folder: PathBuf,
    file_worker: Rc<IoWorker>,
}

impl Ledger {
    pub(crate) fn new(folder: PathBuf, file_worker: Rc<IoWorker>) -> Self {
        Self { folder, file_worker }
    }

    /// The thread that reads and writes files.
    pub(crate) fn file_worker(&self) -> &IoWorker {
        &self.file_worker
    }

    fn path(&self, pool: PoolId) -> PathBuf {
        self.folder.join(format!("{pool}.json"))
    }

    /// Remembers a pool, durably.
    pub(crate) async fn put(&self, pool: PoolId, what: &Remembered) -> io::Result<()> {
        let (path, mut text) = (self.path(pool), serde_json::to_vec_pretty(what).map_err(io::Error::other)?);
        text.push(b'\n');
        self.file_worker.run(move || write_durably(&path, &text)).await
    }

    /// Forgets a pool, durably.
    pub(crate) async fn remove(&self, pool: PoolId) -> io::Result<()> {
        let path = self.path(pool);
        self.file_worker.run(move || remove_durably(&path)).await
    }

    /// All pools that were open. A file that cannot be read is logged, and passed over.
    pub(crate) async fn all(&self) -> io::Result<Vec<(PoolId, Remembered)>> {
        let folder = self.folder.clone();
        self.file_worker.run(move || read_all(&folder)).await
    }
}

fn read_all(folder: &Path) -> io::Result<Vec<(PoolId, Remembered)>> {
    let mut pools = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let parsed = read_if_any(&path)?.map(|text| serde_json::from_str::<Remembered>(&text));
        match parsed {
            Some(Ok(what)) if what.version == VERSION => match what.id.parse() {
                Ok(id) => pools.push((id, what)),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a remembered pool makes no sense")
                }
            },
            Some(Ok(what)) => {
                tracing::warn!(path = %path.display(), found = what.version, expected = VERSION, "a later version remembered this pool; import it by hand");
            }
            Some(Err(error)) => {
                tracing::warn!(path = %path.display(), %error, "a remembered pool cannot be read; import it by hand");
            }
            None => {}
        }
    }
    pools.sort_by_key(|(id, _)| *id);
    Ok(pools)
}
