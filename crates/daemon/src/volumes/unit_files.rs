//! Mount units of systemd, as files: one for each volume of an open pool (docs/design/0035, *At boot*).
//!
//! The files stay while a pool is absent, so units that require a volume of it fail instead of starting without it. The export of a
//! pool removes them.
//!
//! Invariant: a volume is mounted also where its file cannot be written, which is a warning.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dolmen_api::ImportMode;
use dolmen_units::{HostId, PoolId};
use dolmen_volume::record::{DesiredVolume, VolumeRecord};
use dolmen_volume::unit::{Boot, FoundFile, Unit, WANTS_FOLDER, changes, mount_unit};

use crate::files::{remove_durably, write_durably};
use crate::io_worker::IoWorker;
use crate::open_pool::OpenPool;
use crate::volumes::records::{self, Found};
use crate::volumes::volume::Volume;

/// Bytes of a file that are read, at most: more than a unit of Dolmen has.
const UNIT_BYTES_MAX: u64 = 64 << 10;

/// Files of mount units.
pub(super) struct UnitFiles {
    folder: Option<PathBuf>,
    host: HostId,
    worker: Rc<IoWorker>,
    /// Units of pools as they were written last.
    written: RefCell<BTreeMap<PoolId, Vec<Unit>>>,
}

impl UnitFiles {
    /// Returns the files below a folder; without one, none are written.
    pub(super) fn new(folder: Option<PathBuf>, host: HostId, worker: &Rc<IoWorker>) -> Self {
        Self { folder, host, worker: Rc::clone(worker), written: RefCell::default() }
    }

    /// Makes the files those of the volumes of an open pool, where its records differ from the files written last.
    pub(super) async fn follow(&self, pool: &OpenPool) {
        // Volumes of a pool that is open for reading are not mounted.
        if self.folder.is_none() || pool.mode == ImportMode::Read {
            return;
        }
        let (mut units, mut unread) = (Vec::new(), Vec::new());
        for space in pool.spaces.list() {
            let name = format!("{}/{}", pool.name(), space.name());
            match records::read(&space).await {
                // A unit at a place that another host chose would be asked for by other units of this one.
                Ok(Some(Found::Known(record))) if record.is_held(self.host) => {}
                Ok(Some(Found::Known(record))) => units.extend(unit_of(pool.id(), &name, &record)),
                Ok(None) => {}
                // Services that require the mount would be started without it.
                Ok(Some(Found::NotUnderstood(_))) | Err(_) => unread.push(name),
            }
        }
        self.make(pool.id(), units, unread).await;
    }

    /// Writes the file of a volume that is about to be mounted: systemd looks for it when the mount appears.
    pub(super) async fn announce(&self, volume: &Volume) {
        let Some(unit) = unit_of(volume.key.pool, &volume.name, &volume.record) else { return };
        let mut units = self.written.borrow().get(&volume.key.pool).cloned().unwrap_or_default();
        if self.folder.is_none() || units.contains(&unit) {
            return;
        }
        units.retain(|other| other.name != unit.name);
        units.push(unit);
        // What other volumes of the pool have is looked up by `follow`.
        let unread = volume.pool.spaces.list().into_iter();
        let unread = unread.map(|space| format!("{}/{}", volume.pool.name(), space.name()));
        let unread = unread.filter(|name| *name != volume.name).collect();
        self.make(volume.key.pool, units, unread).await;
    }

    /// Removes the files of a pool that is no pool of this host any more.
    pub(super) async fn forget(&self, pool: PoolId) {
        if self.folder.is_some() {
            self.make(pool, Vec::new(), Vec::new()).await;
        }
        self.written.borrow_mut().remove(&pool);
    }

    /// Writes the units of a pool; files of volumes that are `unread` stay.
    async fn make(&self, pool: PoolId, units: Vec<Unit>, unread: Vec<String>) {
        let Some(folder) = self.folder.clone() else { return };
        if self.written.borrow().get(&pool) == Some(&units) {
            return;
        }
        let (id, wanted) = (pool.to_string(), units.clone());
        match self.worker.run(move || write(&folder, &id, &wanted, &unread)).await {
            Ok(foreign) => {
                for name in foreign {
                    tracing::warn!(
                        unit = name,
                        "a unit of another origin has the name of a volume's mount unit, and stays"
                    );
                }
                self.written.borrow_mut().insert(pool, units);
            }
            Err(error) => tracing::warn!(%pool, %error, "the mount units of a pool could not be written"),
        }
    }
}

/// Returns the unit of a volume; none, with a warning, where no unit can hold its place.
fn unit_of(pool: PoolId, name: &str, record: &VolumeRecord) -> Option<Unit> {
    let boot = match record.desired {
        DesiredVolume::Mounted => Boot::Mounted,
        DesiredVolume::Unmounted => Boot::Left,
    };
    match mount_unit(&pool.to_string(), name, &record.mount_point, boot) {
        Ok(unit) => Some(unit),
        Err(error) => {
            tracing::warn!(volume = name, %error, "a volume has no mount unit");
            None
        }
    }
}

/// Makes the files of a folder those of a pool; returns the names that units of another origin have.
fn write(folder: &Path, pool: &str, wanted: &[Unit], unread: &[String]) -> io::Result<Vec<String>> {
    let changes = changes(pool, &found(folder)?, wanted, unread);
    let links = folder.join(WANTS_FOLDER);
    for name in &changes.remove {
        remove_durably(&links.join(name))?;
        remove_durably(&folder.join(name))?;
    }
    for unit in &changes.write {
        let path = folder.join(&unit.name);
        if !fs::read_to_string(&path).is_ok_and(|text| text == unit.text) {
            write_durably(&path, unit.text.as_bytes())?;
            // Units are no secret, and systemd warns of one that others cannot read.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        }
        let link = links.join(&unit.name);
        match unit.boot {
            Boot::Left => remove_durably(&link)?,
            Boot::Mounted if fs::symlink_metadata(&link).is_ok() => {}
            Boot::Mounted => {
                fs::create_dir_all(&links)?;
                fs::set_permissions(&links, fs::Permissions::from_mode(0o755))?;
                symlink(Path::new("..").join(&unit.name), &link)?;
                fs::File::open(&links)?.sync_all()?;
            }
        }
    }
    Ok(changes.foreign)
}

/// Returns the mount units of a folder.
fn found(folder: &Path) -> io::Result<Vec<FoundFile>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        if !name.ends_with(".mount") {
            continue;
        }
        // A link, or one that cannot be read, is of another origin.
        let path = folder.join(&name);
        let is_file = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
        let (mut first_line, mut source) = (String::new(), String::new());
        if is_file {
            let file = BufReader::new(fs::File::open(&path)?.take(UNIT_BYTES_MAX));
            let mut lines = file.lines().map_while(Result::ok);
            first_line = lines.next().unwrap_or_default();
            source = lines.find_map(|line| line.strip_prefix("What=").map(str::to_owned)).unwrap_or_default();
        }
        found.push(FoundFile { name, first_line, source });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(path: &str, boot: Boot) -> Unit {
        mount_unit("0f", "tank/v", &path.parse().unwrap(), boot).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Scenario: a volume moves to another mount point, is unmounted, and its pool is exported, beside a unit of the host.
    #[test]
    fn files_and_links_follow_the_volumes_of_a_pool() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let links = folder.join(WANTS_FOLDER);
        fs::write(folder.join("home.mount"), "[Mount]\n").unwrap();
        assert!(write(folder, "0f", &[unit("/srv/v", Boot::Mounted)], &[]).unwrap().is_empty());
        assert_eq!(names(folder), [WANTS_FOLDER, "home.mount", "srv-v.mount"]);
        assert!(fs::read_to_string(links.join("srv-v.mount")).unwrap().contains("What=dolmen:tank/v"));
        let moved = [unit("/srv/w", Boot::Left), unit("/home", Boot::Mounted)];
        assert_eq!(write(folder, "0f", &moved, &[]).unwrap(), ["home.mount"]);
        assert_eq!(names(folder), [WANTS_FOLDER, "home.mount", "srv-w.mount"]);
        assert!(names(&links).is_empty());
        assert_eq!(fs::read_to_string(folder.join("home.mount")).unwrap(), "[Mount]\n");
        write(folder, "0f", &[unit("/srv/w", Boot::Mounted)], &[]).unwrap();
        write(folder, "1e", &[], &[]).unwrap();
        assert_eq!((names(folder).len(), names(&links)), (3, vec!["srv-w.mount".to_owned()]));
        write(folder, "0f", &[], &["tank/v".to_owned()]).unwrap();
        assert_eq!(
            names(&links),
            ["srv-w.mount"],
            "the unit of a volume whose record is not known was removed"
        );
        write(folder, "0f", &[], &["tank/w".to_owned()]).unwrap();
        assert_eq!((names(folder).len(), names(&links).len()), (2, 0));
    }
}
