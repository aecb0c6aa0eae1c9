//! Entries of a source, counted.

use std::ffi::OsStr;

use rustix::fs::{AtFlags, FileType, OFlags};

use super::place::{Place, folder_at, names_in};
use super::{CopyError, Planned};

/// Counts an entry, and what is in it.
pub(super) fn count(
    from: &Place<'_>,
    name: &OsStr,
    device: u64,
    planned: &mut Planned,
) -> Result<(), CopyError> {
    let path = from.path_of(name);
    let stat = rustix::fs::statat(from.folder, name, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(CopyError::at("look at", &path))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => {
            planned.folders += 1;
            let folder =
                folder_at(from.folder, name, OFlags::RDONLY).map_err(CopyError::at("open", &path))?;
            for name in names_in(&folder, &path)? {
                count(&Place::top(&folder, &path), &name, device, planned)?;
            }
        }
        FileType::RegularFile => {
            let bytes = u64::try_from(stat.st_size).unwrap_or(0);
            planned.files += 1;
            planned.bytes += bytes;
            planned.other_device_bytes += if stat.st_dev == device { 0 } else { bytes };
        }
        _ => planned.others += 1,
    }
    Ok(())
}
