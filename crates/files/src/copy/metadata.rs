//! Owner, mode, extended attributes, access lists and times.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;

use dolmen_mutation::mutation;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags};
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

/// Gives an entry that is not opened for its content (a symbolic link or a special file) owner, mode and times.
///
/// A descriptor of the entry stands for it, since its name may lead elsewhere a moment later.
pub(super) fn keep_of_name(
    stat: &Stat,
    folder: &File,
    name: &OsStr,
    path: &Path,
    copied: &mut Copied,
) -> Result<(), CopyError> {
    let entry =
        rustix::fs::openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let entry = entry.map(File::from).map_err(CopyError::at("open", path))?;
    require_made(&entry, stat, path)?;
    let (owner, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    if let Err(error) = rustix::fs::chownat(&entry, c"", Some(owner), Some(group), AtFlags::EMPTY_PATH) {
        if error != Errno::PERM {
            return Err(CopyError::at("give its owner to", path)(error));
        }
        copied.note_unkept(path, "owner", &error);
    }
    if !FileType::from_raw_mode(stat.st_mode).is_symlink() {
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        let given = if mutation!(CopyModeThroughLink) {
            rustix::fs::chmodat(folder, name, mode, AtFlags::empty())
        } else {
            // Only the newest kernels take a mode for a descriptor of this kind; all take it for its name in /proc.
            rustix::fs::chmod(format!("/proc/self/fd/{}", entry.as_raw_fd()), mode)
        };
        given.map_err(CopyError::at("give its mode to", path))?;
    }
    rustix::fs::utimensat(&entry, c"", &times_of(stat), AtFlags::EMPTY_PATH)
        .map_err(CopyError::at("give its times to", path))
}

/// Fails if an entry is not the one that was made like a source: of its kind, and with one name.
fn require_made(entry: &File, stat: &Stat, path: &Path) -> Result<(), CopyError> {
    let now = rustix::fs::fstat(entry).map_err(CopyError::at("look at", path))?;
    let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
    let is_device = kind(stat).is_char_device() || kind(stat).is_block_device();
    let is_made =
        kind(&now) == kind(stat) && now.st_nlink == 1 && (!is_device || now.st_rdev == stat.st_rdev);
    if is_made || mutation!(CopyModeThroughLink) {
        return Ok(());
    }
    Err(CopyError::Exchanged { path: path.to_owned() })
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    /// Scenario: a pipe was copied, and before it gets its mode a link to a file of another user has its name, then a second name
    /// of that file, then a pipe with two names. The file keeps its mode and its times, and the copy is dropped.
    #[test]
    fn a_link_in_the_place_of_a_copied_pipe_gets_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (source, other) = (folder.path().join("source"), folder.path().join("other"));
        let make = |path: &Path| {
            rustix::fs::mknodat(rustix::fs::CWD, path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        };
        make(&source);
        rustix::fs::chmod(&source, Mode::from_raw_mode(0o666)).unwrap();
        std::fs::write(&other, "secret").unwrap();
        std::fs::set_permissions(&other, PermissionsExt::from_mode(0o600)).unwrap();
        let before = std::fs::metadata(&other).unwrap();
        let stat = rustix::fs::stat(&source).unwrap();
        let opened = File::open(folder.path()).unwrap();
        let copy = folder.path().join("copy");
        let keep = || keep_of_name(&stat, &opened, OsStr::new("copy"), &copy, &mut Copied::default());
        let unchanged = |led: &str| {
            let now = std::fs::metadata(&other).unwrap();
            let of = |found: &std::fs::Metadata| (found.mode(), found.mtime(), found.mtime_nsec());
            assert_eq!(of(&now), of(&before), "{led} led to the mode of another file");
        };
        symlink(&other, &copy).unwrap();
        let refused = keep();
        unchanged("a symbolic link");
        assert!(matches!(refused, Err(CopyError::Exchanged { .. })), "{refused:?}");
        std::fs::remove_file(&copy).unwrap();
        std::fs::hard_link(&other, &copy).unwrap();
        let refused = keep();
        unchanged("a second name");
        assert!(matches!(refused, Err(CopyError::Exchanged { .. })), "{refused:?}");
        std::fs::remove_file(&copy).unwrap();
        make(&copy);
        std::fs::hard_link(&copy, folder.path().join("second")).unwrap();
        assert!(matches!(keep(), Err(CopyError::Exchanged { .. })), "a pipe with two names was taken");
        std::fs::remove_file(folder.path().join("second")).unwrap();
        keep().unwrap();
        assert_eq!(std::fs::metadata(&copy).unwrap().mode() & 0o7777, 0o666);
    }
}
