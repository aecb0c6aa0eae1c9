//! Owner, mode, extended attributes, access lists and times.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::path::Path;

use dolmen_mutation::mutation;
use rustix::fs::{AtFlags, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::{Copied, CopyError};

/// Beginning of the attributes that are access lists: without them more may be allowed than by the source.
const ACCESS_LISTS: &[u8] = b"system.posix_acl_";
/// Beginning of the names under which XFS shows access lists once more; elsewhere they would be attributes without a meaning.
const ACCESS_LISTS_OF_XFS: &[u8] = b"trusted.SGI_ACL_";
/// Bytes of all names or of one value, at most: the bound of Linux.
const ATTRIBUTE_BYTES_MAX: usize = 64 * 1024;
/// Bits that give a program the rights of its owner or group.
const SET_ID: u32 = 0o6000;

/// Times of a file, as it is given them.
fn times_of(stat: &Stat) -> Timestamps {
    // There are fewer than a billion of them.
    let time = |tv_sec, nanoseconds| Timespec { tv_sec, tv_nsec: i64::try_from(nanoseconds).unwrap_or(0) };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// Gives an open file or folder what its source has. The times come last: each other step changes them.
pub(super) fn keep(
    source: &File,
    stat: &Stat,
    target: &File,
    path: &Path,
    copied: &mut Copied,
) -> Result<(), CopyError> {
    let mut mode = stat.st_mode;
    let (owner, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    let own = rustix::fs::fstat(target).map_err(CopyError::at("look at", path))?;
    if (own.st_uid, own.st_gid) != (stat.st_uid, stat.st_gid)
        && let Err(error) = rustix::fs::fchown(target, Some(owner), Some(group))
    {
        if error != Errno::PERM {
            return Err(CopyError::at("give its owner to", path)(error));
        }
        // A program that ran with the rights of its owner would run with those of another one.
        mode &= !SET_ID;
        copied.note_unkept(path, "owner", &error);
    }
    rustix::fs::fchmod(target, Mode::from_raw_mode(mode & 0o7777))
        .map_err(CopyError::at("give its mode to", path))?;
    keep_attributes(source, target, path, copied)?;
    rustix::fs::futimens(target, &times_of(stat)).map_err(CopyError::at("give its times to", path))
}

/// Gives an entry that is not opened (a symbolic link or a special file) owner, mode and times.
pub(super) fn keep_of_name(
    stat: &Stat,
    folder: &File,
    name: &OsStr,
    path: &Path,
    copied: &mut Copied,
) -> Result<(), CopyError> {
    let (owner, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    let no_follow = AtFlags::SYMLINK_NOFOLLOW;
    if let Err(error) = rustix::fs::chownat(folder, name, Some(owner), Some(group), no_follow) {
        if error != Errno::PERM {
            return Err(CopyError::at("give its owner to", path)(error));
        }
        copied.note_unkept(path, "owner", &error);
    }
    if !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink() {
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        rustix::fs::chmodat(folder, name, mode, AtFlags::empty())
            .map_err(CopyError::at("give its mode to", path))?;
    }
    rustix::fs::utimensat(folder, name, &times_of(stat), no_follow)
        .map_err(CopyError::at("give its times to", path))
}

/// Copies extended attributes. One that the target does not take is noted; an access list is an error.
fn keep_attributes(source: &File, target: &File, path: &Path, copied: &mut Copied) -> Result<(), CopyError> {
    let mut names = vec![0; ATTRIBUTE_BYTES_MAX];
    let length = match rustix::fs::flistxattr(source, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => return Ok(()),
        Err(error) => return Err(CopyError::at("list the attributes of", path)(error)),
    };
    let mut value = vec![0; ATTRIBUTE_BYTES_MAX];
    let list = names.get(..length).unwrap_or_default();
    let names =
        list.split_inclusive(|byte| *byte == 0).filter_map(|name| CStr::from_bytes_with_nul(name).ok());
    for name in names.filter(|name| !name.to_bytes().starts_with(ACCESS_LISTS_OF_XFS)) {
        let length = match rustix::fs::fgetxattr(source, name, &mut value[..]) {
            Ok(length) => length,
            // It was removed a moment ago.
            Err(Errno::NODATA) => continue,
            Err(error) => return Err(CopyError::at("read an attribute of", path)(error)),
        };
        let value = value.get(..length).unwrap_or_default();
        if name.to_bytes().starts_with(ACCESS_LISTS) && mutation!(CopyWithoutAccessList) {
            continue;
        }
        if let Err(error) = rustix::fs::fsetxattr(target, name, value, XattrFlags::empty()) {
            if name.to_bytes().starts_with(ACCESS_LISTS) {
                return Err(CopyError::at("give its access list to", path)(error));
            }
            let property = CString::from(name).to_string_lossy().into_owned();
            copied.note_unkept(path, &property, &error);
        }
    }
    Ok(())
}
