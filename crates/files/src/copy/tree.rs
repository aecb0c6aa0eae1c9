//! One source, entry by entry.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use super::content::{cannot_share, copy_bytes, share_all};
use super::metadata::{keep, keep_of_name};
use super::place::{Place, file_system_of, folder_at, names_in};
use super::{Copied, CopyError, Fallback};

/// A copy under way.
pub(super) struct Tree {
    fallback: Fallback,
    /// Folder that the copy is made in.
    top: File,
    /// Files with several names that were copied, by device and inode, with the path of the copy below `top`.
    linked: BTreeMap<(u64, u64), PathBuf>,
    copied: Copied,
}

/// An entry of a source, and the place of its copy.
struct Entry<'a> {
    from: &'a Place<'a>,
    source_name: &'a OsStr,
    to: &'a Place<'a>,
    name: &'a OsStr,
    /// Path of the copy below the folder that it is made in.
    below: &'a Path,
}

impl Entry<'_> {
    fn source_path(&self) -> PathBuf {
        self.from.path_of(self.source_name)
    }

    fn path(&self) -> PathBuf {
        self.to.path_of(self.name)
    }

    fn stat(&self) -> Result<Stat, CopyError> {
        rustix::fs::statat(self.from.folder, self.source_name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(CopyError::at("look at", &self.source_path()))
    }
}

/// Fails if an entry that was opened is not the one that was looked at.
fn require_same(opened: &File, stat: &Stat, path: &Path) -> Result<(), CopyError> {
    let now = rustix::fs::fstat(opened).map_err(CopyError::at("look at", path))?;
    let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
    if (now.st_dev, now.st_ino, kind(&now)) == (stat.st_dev, stat.st_ino, kind(stat)) {
        return Ok(());
    }
    Err(CopyError::Exchanged { path: path.to_owned() })
}

impl Tree {
    pub(super) fn new(top: File, fallback: Fallback) -> Self {
        Self { fallback, top, linked: BTreeMap::new(), copied: Copied::default() }
    }

    /// Copies an entry of one folder into another one.
    pub(super) fn copy(
        mut self,
        from: &Place<'_>,
        source_name: &OsStr,
        to: &Place<'_>,
        name: &OsStr,
    ) -> Result<Copied, CopyError> {
        self.entry(&Entry { from, source_name, to, name, below: Path::new(name) })?;
        Ok(self.copied)
    }

    fn entry(&mut self, entry: &Entry<'_>) -> Result<(), CopyError> {
        let stat = entry.stat()?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind != FileType::Directory && stat.st_nlink > 1 {
            let inode = (stat.st_dev, stat.st_ino);
            if let Some(first) = self.linked.get(&inode) {
                rustix::fs::linkat(&self.top, first, entry.to.folder, entry.name, AtFlags::empty())
                    .map_err(CopyError::at("link", &entry.path()))?;
                self.copied.hard_links += 1;
                return Ok(());
            }
            self.linked.insert(inode, entry.below.to_owned());
        }
        match kind {
            FileType::Directory => self.folder(entry, &stat),
            FileType::RegularFile => self.file(entry, &stat),
            FileType::Symlink => self.symbolic_link(entry, &stat),
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => self.special(entry, &stat, kind),
        }
    }

    fn folder(&mut self, entry: &Entry<'_>, stat: &Stat) -> Result<(), CopyError> {
        let (source_path, path) = (entry.source_path(), entry.path());
        let source = folder_at(entry.from.folder, entry.source_name, OFlags::RDONLY)
            .map_err(CopyError::at("open", &source_path))?;
        require_same(&source, stat, &source_path)?;
        rustix::fs::mkdirat(entry.to.folder, entry.name, Mode::RWXU).map_err(CopyError::at("make", &path))?;
        let target =
            folder_at(entry.to.folder, entry.name, OFlags::RDONLY).map_err(CopyError::at("open", &path))?;
        let (from, to) =
            (Place { folder: &source, path: &source_path }, Place { folder: &target, path: &path });
        for name in names_in(&source, &source_path)? {
            let below = entry.below.join(&name);
            self.entry(&Entry { from: &from, source_name: &name, to: &to, name: &name, below: &below })?;
        }
        keep(&source, stat, &target, &path, &mut self.copied)?;
        self.copied.folders += 1;
        Ok(())
    }

    fn file(&mut self, entry: &Entry<'_>, stat: &Stat) -> Result<(), CopyError> {
        let (source_path, path) = (entry.source_path(), entry.path());
        // A pipe that took the place of the file would wait for its other end.
        let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let source = rustix::fs::openat(entry.from.folder, entry.source_name, read, Mode::empty());
        let source = source.map(File::from).map_err(CopyError::at("open", &source_path))?;
        require_same(&source, stat, &source_path)?;
        let write = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let target = rustix::fs::openat(entry.to.folder, entry.name, write, Mode::RUSR | Mode::WUSR);
        let target = target.map(File::from).map_err(CopyError::at("make", &path))?;
        match share_all(&source, &target) {
            Ok(()) => {
                let shared = target.metadata().map_err(CopyError::io("look at", &path))?.len();
                self.copied.shared_bytes += shared;
            }
            Err(error) if !cannot_share(&error) => {
                return Err(CopyError::io("share", &source_path)(error.source));
            }
            Err(error) if self.fallback == Fallback::Refuse => {
                return Err(CopyError::NotShared {
                    source_system: file_system_of(&source_path),
                    target_system: file_system_of(entry.to.path),
                    path: source_path,
                    why: error.source,
                });
            }
            Err(_) => {
                let bytes = copy_bytes(&source, &target).map_err(CopyError::io("copy", &source_path))?;
                self.copied.copied_bytes += bytes;
                self.copied.copied_files += 1;
            }
        }
        keep(&source, stat, &target, &path, &mut self.copied)?;
        self.copied.files += 1;
        Ok(())
    }

    fn symbolic_link(&mut self, entry: &Entry<'_>, stat: &Stat) -> Result<(), CopyError> {
        let (source_path, path) = (entry.source_path(), entry.path());
        let leads_to = rustix::fs::readlinkat(entry.from.folder, entry.source_name, Vec::new())
            .map_err(CopyError::at("read the link", &source_path))?;
        rustix::fs::symlinkat(&leads_to, entry.to.folder, entry.name)
            .map_err(CopyError::at("make", &path))?;
        keep_of_name(stat, entry.to.folder, entry.name, &path, &mut self.copied)?;
        self.copied.symbolic_links += 1;
        Ok(())
    }

    fn special(&mut self, entry: &Entry<'_>, stat: &Stat, kind: FileType) -> Result<(), CopyError> {
        let path = entry.path();
        rustix::fs::mknodat(entry.to.folder, entry.name, kind, Mode::RUSR | Mode::WUSR, stat.st_rdev)
            .map_err(CopyError::at("make", &path))?;
        keep_of_name(stat, entry.to.folder, entry.name, &path, &mut self.copied)?;
        self.copied.special_files += 1;
        Ok(())
    }
}
