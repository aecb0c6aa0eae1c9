//! What disks are called while they are in use: a file that is renamed stays the disk that it is.
//!
//! Looking asks file systems, one of which may hang; it is done on a thread of its own, on which nothing else waits.

use std::path::Path;
use std::rc::{Rc, Weak};
use std::time::Duration;
use std::{fs, io};

use dolmen_block_io::{Clock, sleep};

use crate::devices::{Identity, identity};
use crate::engine::Engine;
use crate::scribe::Scribe;

/// How often it is looked whether disks are where they were.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const OWN_FILES: &str = "/proc/self/fd";

/// A disk in use: what it is called, and what it is.
pub(crate) type Held = (String, Identity);

/// A new name in the place of an old one.
type Renamed = (String, String);

/// Follows renamed disks for as long as the engine lives.
pub(crate) async fn follow(engine: Weak<Engine>, looker: Scribe, clock: Rc<dyn Clock>) {
    loop {
        sleep(clock.as_ref(), LOOK_EVERY).await;
        let Some(held) = engine.upgrade().map(|engine| engine.members.held()) else { return };
        let looked = looker.run(move || renamed(&held)).await;
        let Some(engine) = engine.upgrade() else { return };
        // Where it cannot be told, they keep their names.
        for (old, new) in looked.unwrap_or_default() {
            tracing::info!(old, new, "a disk was renamed");
            engine.members.rename(&old, &new);
            for pool in engine.open_pools() {
                if pool.spaces.pool().disks().iter().any(|disk| disk.name() == new) {
                    engine.remember(&pool).await;
                }
            }
        }
    }
}

/// Those that are not where they were, and where they are: this process has them open.
fn renamed(held: &[Held]) -> io::Result<Vec<Renamed>> {
    let is_elsewhere = |(name, is): &&Held| identity(Path::new(name)) != Some(*is);
    let missed: Vec<&Held> = held.iter().filter(is_elsewhere).collect();
    let mut found: Vec<Renamed> = Vec::new();
    if missed.is_empty() {
        return Ok(found);
    }
    for entry in fs::read_dir(OWN_FILES)? {
        let link = entry?.path();
        let Some(is) = identity(&link) else { continue };
        let Some((old, _)) = missed.iter().find(|(_, other)| *other == is) else { continue };
        // One that was deleted has no name any more, and is not what this says.
        let new = fs::read_link(&link).ok().filter(|path| identity(path) == Some(is));
        let Some(new) = new.and_then(|path| path.into_os_string().into_string().ok()) else { continue };
        if !found.iter().any(|(other, _)| other == old) {
            found.push((old.clone(), new));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One is renamed, one deleted, one stays, and one gives its name to another file: only what has a new name gets it.
    #[test]
    fn an_open_file_is_found_under_its_new_name_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let shown = |name: &str| path(name).display().to_string();
        let names = ["moved", "deleted", "stays", "usurped"];
        let files: Vec<_> = names.iter().map(|name| fs::File::create(path(name)).unwrap()).collect();
        let held: Vec<Held> =
            names.iter().map(|name| (shown(name), identity(&path(name)).unwrap())).collect();
        assert_eq!(renamed(&held).unwrap(), []);
        fs::rename(path("moved"), path("here")).unwrap();
        fs::remove_file(path("deleted")).unwrap();
        fs::rename(path("usurped"), path("there")).unwrap();
        fs::write(path("usurped"), "another").unwrap();
        let mut found = renamed(&held).unwrap();
        found.sort();
        assert_eq!(found, [(shown("moved"), shown("here")), (shown("usurped"), shown("there"))]);
        drop(files);
    }
}
