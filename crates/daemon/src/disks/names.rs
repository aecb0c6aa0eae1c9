//! What disks are called while they are in use, and whether what they lie on is there: a file that is renamed stays the disk
//! that it is, and one that is removed has no name any more.
//!
//! Looking asks file systems, one of which may hang; it is done on a thread of its own, on which nothing else waits.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::time::Duration;
use std::{fs, io};

use dolmen_block_io::{Clock, sleep};
use dolmen_block_linux::{name_of, path_of};
use dolmen_units::Bytes;

use crate::disks::below::is_on_space;
use crate::io_worker::IoWorker;
use crate::open_pools::OpenPools;
use crate::records::Records;
use crate::state::{Backing, Held, Members, Occupant, identity, is_unplugged};

/// How often it is looked whether disks are where they were.
const LOOK_EVERY: Duration = Duration::from_secs(2);
const OWN_FILES: &str = "/proc/self/fd";

/// A new name in the place of an old one.
type Renamed = (String, String);

/// What was seen of disks in use.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    renamed: Vec<Renamed>,
    /// By the names that they had until now.
    backing_states: Vec<(String, Backing)>,
}

/// Follows disks for as long as the engine lives.
pub(crate) async fn follow(
    records: Weak<Records>,
    members: Rc<Members>,
    watch_worker: Rc<IoWorker>,
    clock: Rc<dyn Clock>,
) {
    loop {
        sleep(clock.as_ref(), LOOK_EVERY).await;
        let held = members.held();
        let Some(places) = records.upgrade().map(|records| places_of_absent(&records.pools)) else { return };
        let looked = watch_worker.run(move || Ok((look_at(&held)?, look_for_absent(places)))).await;
        let Some(records) = records.upgrade() else { return };
        // Where it is unknown, they keep their names, and are what they were.
        let Ok((seen, places)) = looked else { continue };
        records.pools.open_pools().iter().for_each(|pool| {
            pool.note_backing_states(&seen.backing_states);
            pool.note_places(&places);
        });
        for (old, new) in seen.renamed {
            tracing::info!(old, new, "a disk was renamed");
            members.rename(&old, &new);
            for pool in records.pools.open_pools() {
                if pool.spaces.pool().disks().iter().any(|disk| disk.name() == new) {
                    records.remember(&pool).await;
                }
            }
        }
    }
}

fn places_of_absent(pools: &OpenPools) -> Vec<PathBuf> {
    pools.open_pools().iter().flat_map(|pool| pool.places_of_absent()).collect()
}

fn look_for_absent(places: Vec<PathBuf>) -> BTreeMap<PathBuf, Occupant> {
    places.into_iter().map(|place| (place.clone(), occupant_of(&place))).collect()
}

fn occupant_of(place: &Path) -> Occupant {
    // What lies on a space is no disk, and to look at it may wait for a pool that is not open.
    if is_on_space(place) {
        return Occupant::Nothing;
    }
    match fs::metadata(path_of(place)) {
        Ok(status) if status.is_file() => Occupant::File(Bytes(status.len())),
        Ok(_) => Occupant::Other,
        Err(_) => Occupant::Nothing,
    }
}

fn look_at(held: &[Held]) -> io::Result<Seen> {
    let mut seen = Seen::default();
    let mut missed = Vec::new();
    for disk in held {
        if is_unplugged(disk.identity) {
            seen.backing_states.push((disk.name.clone(), Backing::Unplugged));
        } else if identity(Path::new(&disk.name)) == Some(disk.identity) {
            let status = fs::metadata(path_of(Path::new(&disk.name)));
            let cut = status.ok().and_then(|status| cut_short(disk, &status));
            seen.backing_states.extend(cut.map(|cut| (disk.name.clone(), cut)));
        } else {
            missed.push(disk);
        }
    }
    if !missed.is_empty() {
        look_for(&missed, &mut seen)?;
    }
    Ok(seen)
}

/// Those that are not where they were, and where they are: this process has them open.
fn look_for(missed: &[&Held], seen: &mut Seen) -> io::Result<()> {
    for entry in fs::read_dir(OWN_FILES)? {
        let link = entry?.path();
        let Some(is) = identity(&link) else { continue };
        let Some(disk) = missed.iter().find(|disk| disk.identity == is) else { continue };
        let Ok(status) = fs::metadata(&link) else { continue };
        let is_removed = status.is_file() && status.nlink() == 0;
        let backing_state = if is_removed { Some(Backing::Removed) } else { cut_short(disk, &status) };
        if let Some(backing_state) =
            backing_state.filter(|_| !seen.backing_states.iter().any(|(name, _)| *name == disk.name))
        {
            seen.backing_states.push((disk.name.clone(), backing_state));
        }
        // One that was deleted has no name any more, and is not what this says.
        let new = fs::read_link(&link).ok().filter(|path| identity(path) == Some(is));
        let Some(new) = new.map(|path| name_of(&path)) else { continue };
        if !seen.renamed.iter().any(|(old, _)| *old == disk.name) {
            seen.renamed.push((disk.name.clone(), new));
        }
    }
    Ok(())
}

fn cut_short(disk: &Held, status: &Metadata) -> Option<Backing> {
    let is_cut = status.is_file() && status.len() < disk.capacity.0;
    is_cut.then_some(Backing::CutTo(Bytes(status.len())))
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
        let held = names.map(|name| Held {
            name: shown(name),
            identity: identity(&path(name)).unwrap(),
            capacity: Bytes::ZERO,
        });
        assert_eq!(look_at(&held).unwrap(), Seen::default());
        fs::rename(path("moved"), path("here")).unwrap();
        fs::remove_file(path("deleted")).unwrap();
        fs::rename(path("usurped"), path("there")).unwrap();
        fs::write(path("usurped"), "another").unwrap();
        let mut found = look_at(&held).unwrap();
        found.renamed.sort();
        assert_eq!(found.backing_states, [(shown("deleted"), Backing::Removed)]);
        assert_eq!(found.renamed, [(shown("moved"), shown("here")), (shown("usurped"), shown("there"))]);
        drop(files);
    }

    /// Neither a file nor a device that is there; numbers that no device has.
    #[test]
    fn a_device_that_the_system_does_not_have_is_unplugged() {
        assert!(is_unplugged((true, rustix::fs::makedev(0xffe, 0xffe), 0)));
        assert!(!is_unplugged((false, rustix::fs::makedev(0xffe, 0xffe), 1)));
        let disk = |entry: fs::DirEntry| {
            let size = fs::read_to_string(entry.path().join("size")).ok()?;
            let (major, minor) =
                entry.file_name().to_str()?.split_once(':').map(|(a, b)| (a.parse(), b.parse()))?;
            (size.trim() != "0").then_some(rustix::fs::makedev(major.ok()?, minor.ok()?))
        };
        let devices = fs::read_dir("/sys/dev/block").into_iter().flatten().flatten();
        let all: Vec<u64> = devices.filter_map(disk).collect();
        assert!(!all.iter().any(|number| is_unplugged((true, *number, 0))), "{all:?}");
    }

    /// One that was cut is told wherever it is by now; one that grew is what it was.
    #[test]
    fn a_truncated_file_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let shown = |name: &str| path(name).display().to_string();
        let names = ["cut", "cut and moved", "grown"];
        let files = names.map(|name| fs::File::create(path(name)).unwrap());
        files.iter().for_each(|file| file.set_len(100).unwrap());
        let held = names.map(|name| Held {
            name: shown(name),
            identity: identity(&path(name)).unwrap(),
            capacity: Bytes(100),
        });
        files.iter().zip([99, 0, 101]).for_each(|(file, length)| file.set_len(length).unwrap());
        fs::rename(path("cut and moved"), path("here")).unwrap();
        let found = look_at(&held).unwrap();
        let cut = |name: &str, to| (shown(name), Backing::CutTo(Bytes(to)));
        assert_eq!(found.backing_states, [cut("cut", 99), cut("cut and moved", 0)]);
        assert_eq!(found.renamed, [(shown("cut and moved"), shown("here"))]);
    }
}
