//! The file that is made where a target has none of its own, and that goes away again.

use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dolmen_units::{Bytes, SECTOR_BYTES};
use rustix::fs::{AtFlags, CWD, FallocateFlags, OFlags, StatxFlags, fallocate, statvfs, statx};
use rustix::io::Errno;

use super::error::BenchError;

/// A file that is removed when this goes away, whatever the reason.
#[derive(Debug)]
pub(crate) struct OwnFile {
    /// Where it is.
    pub path: PathBuf,
}

impl OwnFile {
    /// Makes a file of this size with all its room allocated. It must not be there yet.
    pub(crate) fn make(path: PathBuf, size: Bytes, target: &str) -> Result<Self, BenchError> {
        let folder = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        check_room(&folder, size, target)?;
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = made.map_err(|source| BenchError::Make { path: path.clone(), source })?;
        // From here on it is removed again.
        let own = Self { path };
        match fallocate(&file, FallocateFlags::empty(), 0, size.0) {
            Ok(()) => Ok(own),
            // A file system that cannot allocate ahead gets the bytes when the file is filled.
            Err(Errno::OPNOTSUPP) => {
                let sized = file.set_len(size.0);
                sized.map_err(|source| BenchError::Make { path: own.path.clone(), source })?;
                Ok(own)
            }
            Err(Errno::NOSPC) => Err(no_room(&folder, size, target)?),
            Err(error) => Err(BenchError::Make { path: own.path.clone(), source: error.into() }),
        }
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        // Whoever removed it before did no harm.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether a file of this size fits.
pub(crate) fn check_room(folder: &Path, size: Bytes, target: &str) -> Result<(), BenchError> {
    match free(folder)? {
        free if free < size => Err(no_room(folder, size, target)?),
        _ => Ok(()),
    }
}

/// Whether what a file does not have yet of its first bytes fits: blocks of a sparse file are allocated when they are
/// written.
pub(crate) fn check_growth(path: &Path, used: Bytes, target: &str) -> Result<(), BenchError> {
    let looked = std::fs::metadata(path);
    let status = looked.map_err(|source| BenchError::Look { target: target.to_owned(), source })?;
    let allocated = status.blocks().saturating_mul(SECTOR_BYTES);
    check_room(path.parent().unwrap_or(Path::new("/")), Bytes(used.0.saturating_sub(allocated)), target)
}

fn free(folder: &Path) -> Result<Bytes, BenchError> {
    let looked = statvfs(folder);
    let status = looked
        .map_err(|error| BenchError::Look { target: folder.display().to_string(), source: error.into() })?;
    Ok(Bytes(status.f_bavail.saturating_mul(status.f_frsize)))
}

fn no_room(folder: &Path, wanted: Bytes, target: &str) -> Result<BenchError, BenchError> {
    let (folder, free) = (folder.display().to_string(), free(folder)?);
    Ok(BenchError::NoRoom { folder, target: target.to_owned(), free, wanted })
}

/// Whether a file can be read and written past the page cache.
pub(crate) fn takes_direct(path: &Path) -> Result<bool, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, rustix::fs::Mode::empty()) {
        Ok(_) => Ok(true),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What reads and writes of a file past the page cache have to be whole multiples of; one byte where the kernel is too old
/// to tell (statx(2), `stx_dio_offset_align`).
pub(crate) fn direct_unit(path: &Path) -> Result<Bytes, Errno> {
    let status = statx(CWD, path, AtFlags::empty(), StatxFlags::DIOALIGN)?;
    let is_reported = status.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    Ok(Bytes(if is_reported { u64::from(status.stx_dio_offset_align.max(1)) } else { 1 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sparse file larger than its file system has room to grow only as far as there is room.
    #[test]
    fn a_sparse_file_needs_room_for_what_it_does_not_have() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        std::fs::write(&path, [7; 8192]).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 43).unwrap();
        check_growth(&path, Bytes(8192), "x").unwrap();
        let error = check_growth(&path, Bytes(1 << 60), "x").unwrap_err();
        assert!(matches!(error, BenchError::NoRoom { .. }), "{error}");
    }

    #[test]
    fn an_own_file_goes_away_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let own = OwnFile::make(path.clone(), Bytes::mib(1), "x").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 20);
        let second = OwnFile::make(path.clone(), Bytes::mib(1), "x").unwrap_err();
        assert!(matches!(second, BenchError::Make { .. }), "{second}");
        assert!(path.exists(), "what somebody else made stays");
        drop(own);
        assert!(!path.exists());
        let huge = OwnFile::make(path.clone(), Bytes(1 << 60), "x").unwrap_err();
        assert!(huge.to_string().contains("free, and the file for x needs 1 EiB"), "{huge}");
        assert!(!path.exists());
    }
}
