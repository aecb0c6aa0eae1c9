//! Open folders with their paths, and names of file systems for messages.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags};

use super::CopyError;

/// An open folder of a source or of a copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) folder: &'a File,
    pub(crate) path: &'a Path,
}

impl<'a> Place<'a> {
    pub(crate) fn top(folder: &'a File, path: &'a Path) -> Self {
        Self { folder, path }
    }

    pub(crate) fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }
}

/// Opens a folder within another one, through no symbolic link.
pub(crate) fn folder_at(folder: &File, name: &OsStr, flags: OFlags) -> rustix::io::Result<File> {
    let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(folder, name, flags, Mode::empty()).map(File::from)
}

/// Names in a folder, in their order.
pub(crate) fn names_in(folder: &File, path: &Path) -> Result<Vec<OsString>, CopyError> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder).map_err(CopyError::at("list", path))? {
        let entry = entry.map_err(CopyError::at("list", path))?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    names.sort();
    Ok(names)
}

/// Kind of the file system of a path, and the place that it is mounted on.
pub(crate) fn file_system_of(path: &Path) -> String {
    let kind = rustix::fs::statfs(path).map_or("an unknown file system".to_owned(), |found| {
        match u64::try_from(found.f_type).unwrap_or(0) {
            0x5846_5342 => "XFS".to_owned(),
            0x9123_683e => "btrfs".to_owned(),
            0xef53 => "ext4".to_owned(),
            0x0102_1994 => "tmpfs".to_owned(),
            0x794c_7630 => "overlay".to_owned(),
            0x6969 => "NFS".to_owned(),
            0x6573_5546 => "FUSE".to_owned(),
            0xff53_4d42 | 0xfe53_4d42 => "SMB".to_owned(),
            number => format!("a file system of kind {number:#x}"),
        }
    });
    let device = |path: &Path| fs::symlink_metadata(path).ok().map(|found| found.dev());
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let own = device(&whole);
    let root = whole.ancestors().take_while(|above| device(above) == own).last().unwrap_or(&whole);
    format!("{kind} at {}", root.display())
}
