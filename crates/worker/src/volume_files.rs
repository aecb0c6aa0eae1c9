//! The files of a mounted volume, as deduplication and compaction take them.
//!
//! Files are opened for reading alone, packs excepted: a request to share needs no more from the super-user, and no step writes
//! to a file of a user.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use dolmen_dedup::{
    Action, DeviceRange, Exclusion, Extent, ExtentKind, FileError, FileId, FileInfo, Files, ShareRange,
    Shared,
};
use dolmen_files::FilesError;
use dolmen_files::extents::extents_at_most;
use dolmen_files::handle::{Access, Handle};
use dolmen_files::inodes::{Inode, Inodes};
use dolmen_files::space_map::{Owner, space_map};
use dolmen_files::walk::Walk;
use dolmen_mutation::mutation;
use rustix::fs::{FallocateFlags, Mode, OFlags};

use crate::free_room::{free_at_rest, trim_at_rest};
use crate::leading::{Leaders, Led};

/// Bytes that one call copies.
const COPY_BYTES: usize = 1 << 20;
/// Files of a walk that one call lists.
const LIST_MAX: usize = 1024;
/// Attribute of btrfs that names the compression of a file.
const COMPRESSION: &str = "btrfs.compression";
/// Bits of the filter of inodes that hold folders and the like; a power of two.
const FILTER_BITS: u64 = 1 << 25;

/// An open file.
#[derive(Debug)]
pub(crate) struct Opened {
    file: File,
    id: FileId,
}

/// Gives a pack the compression that a file of btrfs asks for. A copy without it costs room, and no byte.
fn compress_like(source: &File, pack: &File) {
    let mut value = [0u8; 32];
    if let Ok(length) = rustix::fs::fgetxattr(source, COMPRESSION, &mut value[..])
        && let Some(value) = value.get(..length)
    {
        let _ = rustix::fs::fsetxattr(pack, COMPRESSION, value, rustix::fs::XattrFlags::empty());
    }
}

/// How files are listed.
enum List {
    Inodes(Inodes),
    Walk(Box<Walk>),
    Ended,
}

/// A mounted volume.
pub(crate) struct VolumeFiles {
    root: File,
    /// Handle of the root: those of all files are formed like it.
    form: Handle,
    has_inode_list: bool,
    block_bytes: u64,
    /// Folder that is listed, and its path; none for the whole volume.
    folder: Option<(File, Vec<u8>)>,
    excluded: Vec<Exclusion>,
    list: List,
    inodes: Vec<Inode>,
    buffer: Vec<u8>,
    leaders: Leaders,
    left_out: u64,
}

/// Wraps an answer of the file system.
fn failed(action: Action, inode: u64, offset: u64, error: FilesError) -> FileError {
    if error.is_deleted() {
        return FileError::Deleted { action, inode };
    }
    FileError::Failed { action, inode, offset, source: Box::new(error) }
}

fn failed_io(action: Action, inode: u64, offset: u64, error: io::Error) -> FileError {
    FileError::Failed { action, inode, offset, source: Box::new(error) }
}

/// Returns the error of a pack of some bytes that finds no room in the file system, below its quota or in the pool.
fn no_room(error: &io::Error, bytes: u64) -> Option<FileError> {
    let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    is_full.then_some(FileError::NoRoom { bytes })
}

/// Wraps the answer to a request for room.
fn refused(error: rustix::io::Errno, bytes: u64) -> FileError {
    let error = io::Error::from(error);
    no_room(&error, bytes).unwrap_or_else(|| failed_io(Action::Pack, 0, 0, error))
}

/// Returns a time as runs count it.
fn nanoseconds(time: i128) -> i64 {
    i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX })
}

impl VolumeFiles {
    /// Takes the root of a volume that is mounted. Excluded files are not listed; a file with a name elsewhere is.
    pub(crate) fn new(root: File, excluded: Vec<Exclusion>) -> Result<Self, FileError> {
        let listing = |error| failed(Action::List, 0, 0, error);
        let form = Handle::of_entry(&root, ".".as_ref()).map_err(listing)?;
        let status =
            rustix::fs::fstatvfs(&root).map_err(|error| failed_io(Action::List, 0, 0, error.into()))?;
        let has_inode_list = dolmen_files::volume::xfs_geometry(&root).is_ok();
        Ok(Self {
            root,
            form,
            has_inode_list,
            block_bytes: status.f_frsize.max(512),
            folder: None,
            excluded,
            list: List::Ended,
            inodes: Vec::new(),
            buffer: vec![0; COPY_BYTES],
            leaders: Leaders::new(),
            left_out: 0,
        })
    }

    /// Returns the root of the volume.
    pub(crate) fn root(&self) -> &File {
        &self.root
    }

    /// Sets the folder of the volume whose files are listed, or gives the one file that the path names.
    pub(crate) fn select(&mut self, path: &Path) -> Result<Option<FileId>, FileError> {
        let listing = |error: rustix::io::Errno| failed_io(Action::List, 0, 0, error.into());
        let resolve = rustix::fs::ResolveFlags::BENEATH
            | rustix::fs::ResolveFlags::NO_SYMLINKS
            | rustix::fs::ResolveFlags::NO_XDEV;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let found = rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve).map_err(listing)?;
        let found = File::from(found);
        let kind = found.metadata().map_err(|error| failed_io(Action::List, 0, 0, error))?.file_type();
        if kind.is_dir() {
            use std::os::unix::ffi::OsStrExt;
            self.folder = Some((found, path.as_os_str().as_bytes().to_vec()));
            return Ok(None);
        }
        let none = || failed_io(Action::List, 0, 0, io::ErrorKind::InvalidInput.into());
        let (Some(name), true) = (path.file_name(), kind.is_file()) else { return Err(none()) };
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECTORY;
        let above = rustix::fs::openat2(&self.root, above, flags, Mode::empty(), resolve).map_err(listing)?;
        let handle =
            Handle::of_entry(&File::from(above), name).map_err(|error| failed(Action::List, 0, 0, error))?;
        let (inode, generation) = handle.identity().ok_or_else(none)?;
        Ok(Some(FileId { inode, generation }))
    }

    /// Returns the number of folders that were left out: other mounts, subvolumes, and what could not be read.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Makes an unnamed file for a pack of so many bytes.
    fn unnamed(&self, bytes: u64) -> Result<Opened, FileError> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let pack = rustix::fs::openat(&self.root, ".", flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| refused(error, bytes))?;
        Ok(Opened { file: File::from(pack), id: FileId { inode: 0, generation: 0 } })
    }

    /// Lists inodes that hold no content of a file with a name: their blocks cannot be moved.
    fn unmovable(&self) -> Result<Filter, FileError> {
        let mut filter = Filter::new();
        dolmen_files::inodes::inodes(&self.root, |inode| {
            if inode.links == 0 || !inode.is_file() {
                filter.add(inode.number);
            }
            true
        })
        .map_err(|error| failed(Action::List, 0, 0, error))?;
        Ok(filter)
    }
}

/// Set of numbers that may also hold some that were not added.
struct Filter(Vec<u64>);

impl Filter {
    fn new() -> Self {
        Self(vec![0; usize::try_from(FILTER_BITS / 64).unwrap_or(0)])
    }

    fn bits(number: u64) -> [u64; 2] {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [mixed % FILTER_BITS, (mixed >> 32 ^ mixed.rotate_left(11)) % FILTER_BITS]
    }

    fn add(&mut self, number: u64) {
        for bit in Self::bits(number) {
            if let Some(word) = self.0.get_mut(usize::try_from(bit / 64).unwrap_or(usize::MAX)) {
                *word |= 1 << (bit % 64);
            }
        }
    }

    fn has(&self, number: u64) -> bool {
        Self::bits(number).into_iter().all(|bit| {
            let word = self.0.get(usize::try_from(bit / 64).unwrap_or(usize::MAX));
            word.is_some_and(|word| word >> (bit % 64) & 1 == 1)
        })
    }
}

impl Files for VolumeFiles {
    type Handle = Opened;

    fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    fn rewind(&mut self) -> Result<(), FileError> {
        let listing = |error| failed(Action::List, 0, 0, error);
        self.list = match &self.folder {
            Some((folder, path)) => List::Walk(Box::new(Walk::new(folder, path).map_err(listing)?)),
            None if self.has_inode_list && self.excluded.is_empty() => List::Inodes(Inodes::new()),
            None => List::Walk(Box::new(Walk::new(&self.root, b"").map_err(listing)?)),
        };
        Ok(())
    }

    fn list(&mut self, into: &mut Vec<FileInfo>) -> Result<bool, FileError> {
        let listing = |error| failed(Action::List, 0, 0, error);
        match &mut self.list {
            List::Ended => Ok(false),
            List::Inodes(list) => {
                self.inodes.clear();
                let more = list.next(&self.root, &mut self.inodes).map_err(listing)?;
                let files = self.inodes.iter().filter(|inode| inode.is_file() && !inode.is_sick);
                into.extend(files.map(|inode| FileInfo {
                    id: FileId { inode: inode.number, generation: inode.generation },
                    size: inode.size,
                    changed_ns: nanoseconds(inode.changed),
                    modified_ns: nanoseconds(inode.modified),
                    links: inode.links,
                }));
                Ok(more)
            }
            List::Walk(walk) => {
                for _ in 0..LIST_MAX {
                    let covers = |path: &[u8]| self.excluded.iter().any(|excluded| excluded.covers(path));
                    let found = walk.next(|folder, _| !covers(folder)).map_err(listing)?;
                    let Some(found) = found else {
                        self.left_out = walk.left_out();
                        self.list = List::Ended;
                        return Ok(false);
                    };
                    let Some((inode, generation)) = found.handle.identity().filter(|_| !covers(walk.path()))
                    else {
                        continue;
                    };
                    into.push(FileInfo {
                        id: FileId { inode, generation },
                        size: found.size,
                        changed_ns: nanoseconds(found.changed),
                        modified_ns: nanoseconds(found.modified),
                        links: u32::try_from(found.links).unwrap_or(u32::MAX),
                    });
                }
                Ok(true)
            }
        }
    }

    fn path(&mut self, file: FileId, _into: &mut Vec<u8>) -> Result<(), FileError> {
        // The list leaves excluded files out, so no run asks.
        Err(failed_io(Action::Inspect, file.inode, 0, io::ErrorKind::Unsupported.into()))
    }

    fn open(&mut self, file: FileId) -> Result<Opened, FileError> {
        let handle = self
            .form
            .sibling(file.inode, file.generation)
            .ok_or(FileError::Deleted { action: Action::Open, inode: file.inode })?;
        let opened = handle.open(&self.root, Access::Read);
        let opened = opened.map_err(|error| failed(Action::Open, file.inode, 0, error))?;
        Ok(Opened { file: opened, id: file })
    }

    fn info(&mut self, handle: &Opened) -> Result<FileInfo, FileError> {
        use std::os::unix::fs::MetadataExt;
        let status =
            handle.file.metadata().map_err(|error| failed_io(Action::Inspect, handle.id.inode, 0, error))?;
        let time = |seconds: i64, nanosecond: i64| {
            nanoseconds(i128::from(seconds) * 1_000_000_000 + i128::from(nanosecond))
        };
        Ok(FileInfo {
            id: handle.id,
            size: status.size(),
            changed_ns: time(status.ctime(), status.ctime_nsec()),
            modified_ns: time(status.mtime(), status.mtime_nsec()),
            links: u32::try_from(status.nlink()).unwrap_or(u32::MAX),
        })
    }

    fn read(&mut self, handle: &Opened, offset: u64, into: &mut [u8]) -> Result<usize, FileError> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset.saturating_add(u64::try_from(done).unwrap_or(u64::MAX));
            match handle.file.read_at(rest, at) {
                Ok(0) => break,
                Ok(read) => done = done.saturating_add(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed_io(Action::Read, handle.id.inode, at, error)),
            }
        }
        Ok(done)
    }

    fn extents(
        &mut self,
        handle: &Opened,
        range: Range<u64>,
        limit: usize,
        into: &mut Vec<Extent>,
    ) -> Result<bool, FileError> {
        let mut found = Vec::new();
        let length = range.end.saturating_sub(range.start);
        let whole = extents_at_most(&handle.file, range.start, length, limit, &mut found)
            .map_err(|error| failed(Action::Map, handle.id.inode, range.start, error))?;
        into.extend(found.iter().map(|extent| Extent {
            logical: extent.logical,
            physical: extent.physical,
            length: extent.length,
            kind: if extent.is_encoded() {
                ExtentKind::Encoded
            } else if !extent.has_place() {
                // Also what a writer has added meanwhile, which has no place on the device.
                ExtentKind::Inline
            } else if extent.is_unwritten() {
                ExtentKind::Unwritten
            } else {
                ExtentKind::Plain
            },
            shared: extent.is_shared(),
        }));
        Ok(whole)
    }

    fn share(&mut self, source: &Opened, target: &Opened, range: ShareRange) -> Result<Shared, FileError> {
        let ShareRange { source_offset, target_offset, length } = range;
        match dolmen_files::share::share(&source.file, source_offset, &target.file, target_offset, length) {
            Ok(dolmen_files::share::Shared::Bytes(bytes)) => Ok(Shared::Bytes(bytes)),
            Ok(dolmen_files::share::Shared::Differs) => Ok(Shared::Differs),
            // One of them is shorter than it was.
            Err(error) if error.source.kind() == io::ErrorKind::InvalidInput => Ok(Shared::Changed),
            Err(error) => Err(failed(Action::Share, target.id.inode, target_offset, error)),
        }
    }

    // btrfs writes into reserved room without compressing, so there the room is found when the pack is written.
    fn pack(&mut self, bytes: u64) -> Result<Opened, FileError> {
        let pack = self.unnamed(bytes)?;
        if self.has_inode_list || mutation!(PackUncompressed) {
            rustix::fs::fallocate(&pack.file, FallocateFlags::KEEP_SIZE, 0, bytes)
                .map_err(|error| refused(error, bytes))?;
        }
        Ok(pack)
    }

    fn pack_at(&mut self, ranges: &[DeviceRange], into: &mut Vec<DeviceRange>) -> Result<Opened, FileError> {
        let packing = |error| failed(Action::Pack, 0, 0, error);
        let geometry = dolmen_files::volume::xfs_geometry(&self.root).map_err(packing)?;
        let pack = self.unnamed(0)?;
        let led = Led { root: &self.root, form: &self.form, geometry, pack: &pack.file };
        led.reserve(ranges, &mut self.leaders, into).map_err(packing)?;
        Ok(pack)
    }

    fn copy(&mut self, source: &Opened, pack: &Opened, range: ShareRange) -> Result<u64, FileError> {
        if range.target_offset == 0 && !self.has_inode_list {
            compress_like(&source.file, &pack.file);
        }
        // A copy by the file system would share the bytes where they lie.
        let mut buffer = std::mem::take(&mut self.buffer);
        let wanted = usize::try_from(range.length).unwrap_or(usize::MAX).min(buffer.len());
        let copied = match buffer.get_mut(..wanted) {
            Some(part) => self.read(source, range.source_offset, part).and_then(|read| {
                let part = part.get(..read).unwrap_or_default();
                let written = pack.file.write_all_at(part, range.target_offset);
                written.map_err(|error| {
                    let failed = |error| failed_io(Action::Pack, source.id.inode, range.source_offset, error);
                    no_room(&error, range.length).unwrap_or_else(|| failed(error))
                })?;
                Ok(u64::try_from(read).unwrap_or(0))
            }),
            None => Ok(0),
        };
        self.buffer = buffer;
        copied
    }

    fn cut(&mut self, pack: &Opened, bytes: u64) -> Result<(), FileError> {
        pack.file.set_len(bytes).map_err(|error| {
            no_room(&error, bytes).unwrap_or_else(|| failed_io(Action::Pack, 0, bytes, error))
        })
    }

    fn sync(&mut self, pack: &Opened) -> Result<(), FileError> {
        // A thin space says at the write-back that its pool has no room, and quotas of btrfs are counted there.
        let bytes = pack.file.metadata().map_or(0, |found| found.len());
        pack.file
            .sync_all()
            .map_err(|error| no_room(&error, bytes).unwrap_or_else(|| failed_io(Action::Pack, 0, 0, error)))
    }

    fn fixed(&mut self, into: &mut Vec<DeviceRange>) -> Result<(), FileError> {
        // What packs held counts as theirs until the file system has freed it.
        free_at_rest(&self.root).map_err(|error| failed(Action::List, 0, 0, error))?;
        let unmovable = self.unmovable()?;
        space_map(&self.root, 0, u64::MAX, |used| {
            let is_fixed = match used.owner {
                Owner::Free => false,
                Owner::File { inode, .. } => unmovable.has(inode),
                Owner::OfInode(_) | Owner::Metadata(_) | Owner::Unknown => true,
            };
            match into.last_mut() {
                _ if !is_fixed => {}
                Some(last) if last.start.saturating_add(last.length) == used.physical => {
                    last.length = last.length.saturating_add(used.length);
                }
                _ => into.push(DeviceRange { start: used.physical, length: used.length }),
            }
            true
        })
        .map_err(|error| failed(Action::List, 0, 0, error))
    }

    fn free(&mut self, each: &mut dyn FnMut(DeviceRange)) -> Result<(), FileError> {
        space_map(&self.root, 0, u64::MAX, |used| {
            if used.owner == Owner::Free {
                each(DeviceRange { start: used.physical, length: used.length });
            }
            true
        })
        .map_err(|error| failed(Action::List, 0, 0, error))
    }

    fn available(&mut self) -> Result<u64, FileError> {
        let usage = dolmen_files::volume::usage(&self.root);
        usage.map(|usage| usage.available).map_err(|error| failed(Action::List, 0, 0, error))
    }

    fn trim(&mut self) -> Result<u64, FileError> {
        trim_at_rest(&self.root, 0).map_err(|error| failed(Action::Trim, 0, 0, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: the answers of a write, a reservation and a write-back where the volume, a quota or the pool is full, and others.
    #[test]
    fn a_pack_without_room_differs_from_one_that_failed() {
        use rustix::io::Errno;
        let has_room = |errno: Errno| no_room(&io::Error::from(errno), 7).is_none();
        assert!(matches!(no_room(&io::Error::from(Errno::NOSPC), 7), Some(FileError::NoRoom { bytes: 7 })));
        assert_eq!(
            [Errno::NOSPC, Errno::DQUOT, Errno::IO, Errno::ROFS].map(has_room),
            [false, false, true, true]
        );
        assert!(matches!(refused(Errno::DQUOT, 7), FileError::NoRoom { bytes: 7 }));
        assert!(matches!(refused(Errno::IO, 7), FileError::Failed { action: Action::Pack, .. }));
    }
}
