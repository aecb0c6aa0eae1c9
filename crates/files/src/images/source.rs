//! Source of an image: a file or a block device that is read, and may be in use by others.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use dolmen_mutation::mutation;
use rustix::fs::{CWD, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use super::error::ImageError;
use super::format::{Content, recognise};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes that are left out where all of them are zero: a block of the usual file systems.
const BLOCK_BYTES: usize = 4096;

/// How far a copy is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of data that were read.
    pub done_bytes: u64,
    /// Bytes of data of the source; holes do not count.
    pub total_bytes: u64,
}

/// Something that is shown how far a copy is.
pub type Watch<'a> = dyn FnMut(Progress) + 'a;

/// Failure of a copy of bytes.
pub(super) enum CopyFailure {
    Read(io::Error),
    /// With the bytes of data that were still to be written.
    Write(io::Error, u64),
}

/// An open file or block device.
#[derive(Debug)]
pub struct Source {
    file: File,
    path: PathBuf,
    size_bytes: u64,
    is_device: bool,
    /// Size and time of the last change; of a device these say nothing.
    stamp: Stamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    size_bytes: i64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        let nanoseconds = i64::try_from(stat.st_ctime_nsec).unwrap_or_default();
        Self { size_bytes: stat.st_size, changed: (stat.st_ctime, nanoseconds) }
    }

    fn in_words(self) -> String {
        format!("{} bytes at {}.{:09} s", self.size_bytes, self.changed.0, self.changed.1)
    }
}

impl Source {
    /// Opens a file or a block device to read it.
    ///
    /// # Errors
    /// [`ImageError::Kind`] for others, [`ImageError::Empty`] without content.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        Self::open_with(CWD, path, path, OFlags::empty())
    }

    /// Opens a file of a folder, which is no symbolic link.
    pub(super) fn open_at(folder: &File, name: &Path, path: &Path) -> Result<Self, ImageError> {
        Self::open_with(folder.as_fd(), name, path, OFlags::NOFOLLOW)
    }

    fn open_with(at: BorrowedFd<'_>, name: &Path, path: &Path, flags: OFlags) -> Result<Self, ImageError> {
        // A pipe would wait for its other end.
        let flags = flags | OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(at, name, flags, Mode::empty()).map(File::from);
        let file = file.map_err(|error| match error {
            Errno::NOENT => ImageError::Missing { path: path.to_owned() },
            error => ImageError::at("open", path)(error),
        })?;
        Self::of(file, path)
    }

    /// Returns an open file or block device as a source. The path is shown in errors.
    pub(super) fn of(file: File, path: &Path) -> Result<Self, ImageError> {
        let stat = rustix::fs::fstat(&file).map_err(ImageError::at("look at", path))?;
        let is_device = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => false,
            FileType::BlockDevice => true,
            kind => {
                let (path, found) = (path.to_owned(), kind_in_words(kind));
                return Err(ImageError::Kind { path, found, expected: "a file or a block device" });
            }
        };
        let size_bytes =
            rustix::fs::seek(&file, SeekFrom::End(0)).map_err(ImageError::at("look at", path))?;
        if size_bytes == 0 {
            return Err(ImageError::Empty { path: path.to_owned() });
        }
        Ok(Self { file, path: path.to_owned(), size_bytes, is_device, stamp: Stamp::of(&stat) })
    }

    /// Returns the open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the path that it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bytes from its beginning to its end, holes included.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Recognises what it holds. A block device is raw, whatever its first bytes are: a guest may have written them.
    ///
    /// # Errors
    /// [`ImageError`] for what cannot become an image: part of one, an encrypted or a compressed one.
    pub fn content(&self) -> Result<Content, ImageError> {
        if self.is_device {
            return Ok(Content::Raw);
        }
        let path = self.path.clone();
        match recognise(&self.file, self.size_bytes).map_err(ImageError::io("read", &self.path))? {
            Content::NotWhole { format, needs } => Err(ImageError::NotWhole { path, format, needs }),
            Content::Encrypted { format } => Err(ImageError::Encrypted { path, format }),
            Content::Other { kind: found } => Err(ImageError::Unsuitable { path, found }),
            content @ (Content::Raw | Content::Image { .. }) => Ok(content),
        }
    }

    /// Fails if the file changed since it was opened, as far as its time of change tells: kernels before 6.13 move that once in some
    /// milliseconds, and a write through a mapping later.
    ///
    /// # Errors
    /// [`ImageError::Changed`].
    pub fn require_unchanged(&self) -> Result<(), ImageError> {
        let stat = rustix::fs::fstat(&self.file).map_err(ImageError::at("look at", &self.path))?;
        let after = Stamp::of(&stat);
        if self.is_device || after == self.stamp || mutation!(ChangedSourceKept) {
            return Ok(());
        }
        let (before, after) = (self.stamp.in_words(), after.in_words());
        Err(ImageError::Changed { path: self.path.clone(), before, after })
    }

    /// Returns whether it may share its extents.
    pub(super) fn can_share(&self) -> bool {
        !self.is_device
    }

    /// Returns the bytes of its data, without its holes.
    ///
    /// # Errors
    /// [`ImageError::Call`].
    pub fn data_bytes(&self) -> Result<u64, ImageError> {
        let (mut at, mut data_bytes) = (0, 0);
        while let Some((start, end)) = self.next_data(at).map_err(ImageError::io("read", &self.path))? {
            data_bytes += end - start;
            at = end;
        }
        Ok(data_bytes)
    }

    /// Copies the bytes to a file that reads as zeros; holes and zeros are not written. Returns the bytes that were written.
    pub(super) fn copy_to(
        &self,
        target: &File,
        total_bytes: u64,
        watch: &mut Watch<'_>,
    ) -> Result<u64, CopyFailure> {
        let mut buffer = vec![0; PIECE_BYTES];
        let mut progress = Progress { done_bytes: 0, total_bytes };
        let (mut at, mut written_bytes) = (0, 0);
        while let Some((start, end)) = self.next_data(at).map_err(CopyFailure::Read)? {
            let mut place = start;
            while place < end {
                let wanted = usize::try_from(end - place).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
                let piece = buffer.get_mut(..wanted).unwrap_or_default();
                let read = match self.file.read_at(piece, place) {
                    // The file became shorter; its change is noticed at the end.
                    Ok(0) => return Ok(written_bytes),
                    Ok(read) => read,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(CopyFailure::Read(error)),
                };
                let left = total_bytes.saturating_sub(progress.done_bytes);
                let wrote = write_without_zeros(target, piece.get(..read).unwrap_or_default(), place);
                written_bytes += wrote.map_err(|error| CopyFailure::Write(error, left))?;
                let read = u64::try_from(read).unwrap_or_default();
                place += read;
                progress.done_bytes += read;
                watch(progress);
            }
            at = end;
        }
        Ok(written_bytes)
    }

    /// Returns the next run of data from a place on; `None` if only a hole follows.
    fn next_data(&self, from: u64) -> io::Result<Option<(u64, u64)>> {
        if self.is_device {
            return Ok((from < self.size_bytes).then_some((from, self.size_bytes)));
        }
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(from)) {
            Ok(start) => start.min(self.size_bytes),
            Err(Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // What was appended since the file was opened is no part of the image.
        let end = rustix::fs::seek(&self.file, SeekFrom::Hole(start))?.min(self.size_bytes);
        Ok((end > start).then_some((start, end)))
    }
}

/// Writes each run of blocks that are not all zero. Returns how many bytes were written.
fn write_without_zeros(target: &File, piece: &[u8], place: u64) -> io::Result<u64> {
    let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
    let blocks: Vec<&[u8]> = piece.chunks(BLOCK_BYTES).collect();
    let (mut at, mut offset, mut written_bytes) = (place, 0, 0);
    for run in blocks.chunk_by(|one, next| is_zero(one) == is_zero(next)) {
        let length: usize = run.iter().map(|block| block.len()).sum();
        let bytes = piece.get(offset..offset + length).unwrap_or_default();
        let step = u64::try_from(length).unwrap_or_default();
        if !run.first().is_some_and(|block| is_zero(block)) {
            target.write_all_at(bytes, at)?;
            written_bytes += step;
        }
        at += step;
        offset += length;
    }
    Ok(written_bytes)
}

/// Returns a kind of entry with its article.
pub(super) fn kind_in_words(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice => "a character device",
        FileType::BlockDevice => "a block device",
        FileType::Unknown => "an entry of unknown kind",
    }
}
