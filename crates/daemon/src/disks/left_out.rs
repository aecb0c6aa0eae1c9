//! Why disks that came back are left out, in words.

use std::path::Path;

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_mutation::mutation;
use dolmen_pool::{AbsentMember, Disk};

use crate::answer::Answer;
use crate::disks::standing::{FLAPPING_WINDOW, RETURNS_MAX};
use crate::open_pool::OpenPool;

/// Refuses what only a command takes in: old content, and a disk of which something else has written over a label.
pub(super) fn check_as_left(
    pool: &OpenPool,
    absent: &AbsentMember,
    lost_labels: usize,
    path: &Path,
) -> Answer<()> {
    let (name, slot, path) = (pool.name(), absent.disk.slot().0, path.display());
    let why = match &absent.old {
        Some(_) if mutation!(OldTakenIn) => return Ok(()),
        Some(old) => old.to_string(),
        None if lost_labels == 0 => return Ok(()),
        None => "some of its labels are damaged or missing, as in a file that is being copied".to_owned(),
    };
    let message =
        format!("{path} is disk {slot} of pool {name}, and is left out: {why}; nothing was changed");
    let hint = format!("`dolmen disk online {name} {slot}` takes it in as it is, and verifies it");
    Err(ErrorBody::new(ErrorCode::NeedsConfirmation, message).on(format!("{name}/{slot}")).hint(hint))
}

/// Returns why a disk is left out of which there are copies.
pub(crate) fn is_copied<'a>(
    pool: &OpenPool,
    disk: &Disk,
    copies: impl IntoIterator<Item = &'a Path>,
) -> ErrorBody {
    let (name, slot) = (pool.name(), disk.slot().0);
    let paths: Vec<String> = copies.into_iter().map(|path| path.display().to_string()).collect();
    let message = format!(
        "{} each have the label of disk {slot} of pool {name}, so one of them is a copy, and none is taken in; nothing was changed",
        paths.join(" and ")
    );
    let hint =
        format!("take the copy away, or name the disk: `dolmen disk online {name} {slot} --path PATH`");
    ErrorBody::new(ErrorCode::UnfitDevice, message).on(format!("{name}/{slot}")).hint(hint)
}

/// Returns why a device is left out that has the label of a disk that takes part.
pub(crate) fn is_copy_of(pool: &OpenPool, disk: &Disk, path: &Path) -> ErrorBody {
    let (name, slot, path) = (pool.name(), disk.slot().0, path.display());
    let message = format!(
        "{path} has the label of disk {slot} of pool {name}, which takes part as {}: it is a copy, and is left out; nothing was \
         changed",
        disk.name()
    );
    let hint = format!("take {path} away: the next start refuses pool {name} while both are here");
    ErrorBody::new(ErrorCode::UnfitDevice, message).on(format!("{name}/{slot}")).hint(hint)
}

/// Returns why a disk is left out that came and went.
pub(crate) fn comes_and_goes(pool: &OpenPool, disk: &Disk, path: &Path) -> ErrorBody {
    let (name, slot, path) = (pool.name(), disk.slot().0, path.display());
    let message = format!(
        "{path}, disk {slot} of pool {name}, came back more than {RETURNS_MAX} times within {} minutes, and is left out; nothing \
         was changed",
        FLAPPING_WINDOW.as_secs() / 60
    );
    let hint = format!("see to its cable, power or controller, then `dolmen disk online {name} {slot}`");
    ErrorBody::new(ErrorCode::NeedsConfirmation, message).on(format!("{name}/{slot}")).hint(hint)
}
