//! Library of images of disks on a volume, and clones of them.
//!
//! ```text
//! VOLUME/images/NAME      an image: read only, as large as its disk
//! VOLUME/machines/NAME    a clone: shares the extents of its image, and belongs to its user
//! ```
//!
//! An image and a clone are made in a file without a name (`O_TMPFILE`). It is written to disk and then linked to its name, which
//! replaces nothing. So a name has all of the image or none of it. What ends the process or the machine before leaves nothing: the
//! file system drops a file without a name.
//!
//! Invariants:
//! - Every folder is opened beneath the root of the volume and through no symbolic link.
//! - An image that names another file is refused before a program opens it.
//! - A clone is no smaller than its image.

mod clone;
mod error;
mod format;
mod source;

pub use clone::Clones;
pub use error::ImageError;
pub use format::{Content, ImageFormat, recognise};
pub use source::{Progress, Source, Watch};

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use dolmen_mutation::mutation;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags};
use rustix::io::Errno;

use crate::copy::content::{cannot_share, share_all};
use crate::copy::place::names_in;
use source::{CopyFailure, kind_in_words};

/// Folder of the images of a volume.
pub const IMAGES: &str = "images";
/// Folder of the clones of a volume whose names are no paths.
pub const MACHINES: &str = "machines";
/// Bytes of the name of an image, at most.
const NAME_BYTES_MAX: usize = 200;
/// Size that the kernel counts blocks of files in.
const STAT_BLOCK_BYTES: u64 = 512;
/// Part of a volume that images leave free, and the bytes of that at most.
const LEFT_PART: u64 = 64;
const LEFT_BYTES_MAX: u64 = 1 << 30;

/// Name of an image, or of a clone beside others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageName(String);

/// A text that names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseImageNameError {
    /// Nothing, or too much.
    #[error("the name of an image has 1 to {NAME_BYTES_MAX} bytes, not {found}")]
    Length {
        /// Number of bytes.
        found: usize,
    },
    /// A first character that tools take for an option, or that hides a file.
    #[error("the name {found:?} of an image begins with {first:?}; begin with a letter or a digit")]
    First {
        /// The name.
        found: String,
        /// Its first character.
        first: char,
    },
    /// A character that a name cannot have.
    #[error(
        "the name {found:?} of an image contains {character:?}; choose one without slashes and control characters"
    )]
    Character {
        /// The name.
        found: String,
        /// The character.
        character: char,
    },
}

impl FromStr for ImageName {
    type Err = ParseImageNameError;

    fn from_str(text: &str) -> Result<Self, ParseImageNameError> {
        let found = text.to_owned();
        if text.is_empty() || text.len() > NAME_BYTES_MAX {
            return Err(ParseImageNameError::Length { found: text.len() });
        }
        // A name with a dot in front is hidden; `.` and `..` are among these.
        if let Some(first) = text.chars().next().filter(|first| ['-', '.'].contains(first)) {
            return Err(ParseImageNameError::First { found, first });
        }
        match text.chars().find(|character| *character == '/' || character.is_control()) {
            Some(character) => Err(ParseImageNameError::Character { found, character }),
            None => Ok(Self(found)),
        }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<Path> for ImageName {
    fn as_ref(&self) -> &Path {
        Path::new(&self.0)
    }
}

/// An image of a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Its name.
    pub name: ImageName,
    /// Bytes of its disk.
    pub size_bytes: u64,
    /// Bytes that it takes on the volume; clones share them.
    pub room_bytes: u64,
    /// Time at which it was added, in seconds since 1970.
    pub added_s: u64,
}

/// Way in which an image came into a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// It shares the extents of its source.
    Shared,
    /// So many bytes were written.
    Written(u64),
}

/// Library of a mounted volume.
#[derive(Debug)]
pub struct Library {
    root: File,
    path: PathBuf,
}

impl Library {
    /// Opens the library of the volume that is mounted at a path.
    ///
    /// # Errors
    /// [`ImageError::NotMounted`] if no file system begins there: its folder would take images in the volume's stead.
    pub fn of_volume(mount_point: &Path) -> Result<Self, ImageError> {
        let library = Self::of_folder(mount_point)?;
        let found = rustix::fs::statx(&library.root, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
            .map_err(ImageError::at("look at", mount_point))?;
        if found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) || mutation!(UnmountedLibraryOpened) {
            return Ok(library);
        }
        Err(ImageError::NotMounted { path: mount_point.to_owned() })
    }

    /// Opens the library of a folder, which need not be a volume.
    ///
    /// # Errors
    /// [`ImageError::Call`].
    pub fn of_folder(path: &Path) -> Result<Self, ImageError> {
        let root = open(CWD, path, ResolveFlags::empty()).map_err(ImageError::at("open", path))?;
        Ok(Self { root, path: path.to_owned() })
    }

    /// Returns the path of its root.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of an image.
    #[must_use]
    pub fn path_of(&self, name: &ImageName) -> PathBuf {
        self.path.join(IMAGES).join(name)
    }

    /// Returns the bytes that are free on the volume.
    ///
    /// # Errors
    /// [`ImageError::Call`].
    pub fn free_bytes(&self) -> Result<u64, ImageError> {
        let found = rustix::fs::fstatvfs(&self.root).map_err(ImageError::at("look at", &self.path))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    /// Returns the free bytes that an image may take; the rest is left to the machines that run on the volume.
    fn room(&self) -> Result<u64, ImageError> {
        let found = rustix::fs::fstatvfs(&self.root).map_err(ImageError::at("look at", &self.path))?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        let left = (bytes(found.f_blocks) / LEFT_PART).min(LEFT_BYTES_MAX);
        Ok(bytes(found.f_bavail).saturating_sub(left))
    }

    /// Returns the images, by their names. Entries that are no images are left out.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn images(&self) -> Result<Vec<Image>, ImageError> {
        let path = self.path.join(IMAGES);
        let folder = match self.folder(Path::new(IMAGES)) {
            Ok(folder) => folder,
            Err(ImageError::Missing { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let names = names_in(&folder, &path).map_err(|error| match error {
            crate::copy::CopyError::Call { step, path, source } => ImageError::Call { step, path, source },
            error => ImageError::Call { step: "list", path: path.clone(), source: io::Error::other(error) },
        })?;
        let mut images = Vec::new();
        for name in names.iter().filter_map(|name| name.to_str()?.parse::<ImageName>().ok()) {
            match image_in(&folder, &path, &name) {
                Ok(image) => images.push(image),
                // Deleted meanwhile, or no image.
                Err(ImageError::Missing { .. } | ImageError::Kind { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(images)
    }

    /// Returns an image.
    ///
    /// # Errors
    /// [`ImageError::Missing`] if there is none of this name.
    pub fn image(&self, name: &ImageName) -> Result<Image, ImageError> {
        let folder = self.folder(Path::new(IMAGES)).map_err(|error| match error {
            ImageError::Missing { .. } => ImageError::Missing { path: self.path_of(name) },
            error => error,
        })?;
        image_in(&folder, &self.path.join(IMAGES), name)
    }

    /// Fails if an image has this name.
    ///
    /// # Errors
    /// [`ImageError::Exists`].
    pub fn require_free(&self, name: &ImageName) -> Result<(), ImageError> {
        match self.image(name) {
            Err(ImageError::Missing { .. }) => Ok(()),
            Ok(image) => Err(ImageError::Exists { path: self.path_of(&image.name) }),
            // An entry of another kind has the name; its folder may be of another kind, too.
            Err(ImageError::Kind { path, .. }) if path == self.path_of(name) => {
                Err(ImageError::Exists { path })
            }
            Err(error) => Err(error),
        }
    }

    /// Begins an image of a name that is free.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn begin(&self, name: &ImageName) -> Result<NewImage<'_>, ImageError> {
        self.require_free(name)?;
        let folder = self.made_folder(IMAGES)?;
        let path = self.path_of(name);
        let file = unnamed(&folder, &path)?;
        let new = NewImage { library: self, folder, file, path, name: name.clone() };
        if mutation!(ImageNamedEarly) {
            new.link()?;
        }
        Ok(new)
    }

    /// Deletes an image. Clones keep the bytes that they share.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn delete(&self, name: &ImageName) -> Result<(), ImageError> {
        self.image(name)?;
        let (folder, path) = (self.folder(Path::new(IMAGES))?, self.path_of(name));
        rustix::fs::unlinkat(&folder, name.as_ref(), AtFlags::empty())
            .map_err(ImageError::at("delete", &path))?;
        folder.sync_all().map_err(ImageError::io("write to disk", &path))
    }

    /// Opens an image to read it.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn open(&self, name: &ImageName) -> Result<Source, ImageError> {
        // Its kind first: the open of a device has effects.
        self.image(name)?;
        Source::open_at(&self.folder(Path::new(IMAGES))?, name.as_ref(), &self.path_of(name))
    }

    /// Writes the bytes of an image to a device that reads as zeros, and flushes it. Returns how many bytes were written.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn write_to(
        &self,
        name: &ImageName,
        device: &File,
        path: &Path,
        watch: &mut Watch<'_>,
    ) -> Result<u64, ImageError> {
        let source = self.open(name)?;
        let written =
            source.copy_to(device, source.data_bytes()?, watch).map_err(|failure| match failure {
                CopyFailure::Read(error) => ImageError::io("read", source.path())(error),
                CopyFailure::Write(error, _) => ImageError::io("write", path)(error),
            })?;
        source.require_unchanged()?;
        device.sync_all().map_err(ImageError::io("flush", path))?;
        Ok(written)
    }

    /// Opens a folder beneath the root.
    fn folder(&self, below: &Path) -> Result<File, ImageError> {
        let path = self.path.join(below);
        // The root itself is no path beneath itself.
        if below.as_os_str().is_empty() {
            return self.root.try_clone().map_err(ImageError::io("open", &path));
        }
        let resolve = match mutation!(ImageLinkFollowed) {
            true => ResolveFlags::empty(),
            false => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV,
        };
        open(&self.root, below, resolve).map_err(|error| match error {
            Errno::NOENT => ImageError::Missing { path: path.clone() },
            Errno::LOOP => {
                ImageError::Kind { path: path.clone(), found: "behind a symbolic link", expected: "a folder" }
            }
            Errno::NOTDIR => {
                ImageError::Kind { path: path.clone(), found: "no folder", expected: "a folder" }
            }
            Errno::XDEV => ImageError::Outside { path: path.clone(), root: self.path.clone() },
            error => ImageError::at("open", &path)(error),
        })
    }

    /// Opens a folder of the root, and makes it first where it is missing.
    fn made_folder(&self, name: &str) -> Result<File, ImageError> {
        let path = self.path.join(name);
        match rustix::fs::mkdirat(&self.root, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => self.root.sync_all().map_err(ImageError::io("write to disk", &self.path))?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(ImageError::at("make", &path)(error)),
        }
        self.folder(Path::new(name))
    }

    /// Returns the error of a write to a file without a name: a full volume says how much is missing.
    fn write_error(&self, file: &File, path: &Path, error: io::Error, missing_bytes: u64) -> ImageError {
        let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        // The file is dropped with the error.
        let taken_bytes = file.metadata().map_or(0, |found| found.blocks().saturating_mul(STAT_BLOCK_BYTES));
        match self.free_bytes() {
            Ok(free_bytes) if is_full => {
                let free_bytes = free_bytes.saturating_add(taken_bytes);
                ImageError::Full { path: path.to_owned(), missing_bytes, free_bytes }
            }
            Ok(_) | Err(_) => ImageError::io("write", path)(error),
        }
    }
}

/// An image that has no name yet. Nothing of it is left if it is dropped.
#[derive(Debug)]
pub struct NewImage<'a> {
    library: &'a Library,
    folder: File,
    file: File,
    path: PathBuf,
    name: ImageName,
}

impl NewImage<'_> {
    /// Returns the file of the image, for a program that fills it.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Fills it with a raw source: by its extents where they can be shared, else by its bytes.
    ///
    /// # Errors
    /// [`ImageError::Full`], [`ImageError::Changed`] and others.
    pub fn fill(&self, source: &Source, watch: &mut Watch<'_>) -> Result<Filled, ImageError> {
        if source.can_share() {
            match share_all(source.file(), &self.file) {
                Ok(()) => return Ok(Filled::Shared),
                Err(error) if cannot_share(&error) => {}
                Err(error) => {
                    return Err(self.library.write_error(
                        &self.file,
                        &self.path,
                        error.source,
                        source.data_bytes()?,
                    ));
                }
            }
        }
        self.set_size(source.size_bytes())?;
        copy_bytes(self.library, source, &self.file, &self.path, watch).map(Filled::Written)
    }

    /// Returns what it was filled with as a source that no other process can change, because it has no name. The path is shown in
    /// errors.
    ///
    /// # Errors
    /// [`ImageError::Call`].
    pub fn into_source(self, path: &Path) -> Result<Source, ImageError> {
        Source::of(self.file, path)
    }

    /// Returns whether writers beside it have room: a volume that is filled to its last byte fails the machines on it.
    #[must_use]
    pub fn leaves_room(&self) -> bool {
        self.library.room().is_ok_and(|room| room > 0)
    }

    /// Sets the size, before a program fills it.
    ///
    /// # Errors
    /// [`ImageError::Call`].
    pub fn set_size(&self, size_bytes: u64) -> Result<(), ImageError> {
        self.file.set_len(size_bytes).map_err(ImageError::io("set the size of", &self.path))
    }

    /// Returns the error of a program that could not write the image, of which so many bytes may be missing.
    #[must_use]
    pub fn full(&self, size_bytes: u64) -> Option<ImageError> {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        match self.library.write_error(&self.file, &self.path, full, size_bytes) {
            error @ ImageError::Full { .. } => Some(error),
            _ => None,
        }
    }

    /// Gives the image its name, once all of it is on disk.
    ///
    /// # Errors
    /// [`ImageError::Size`] if it has not the bytes that its source says, [`ImageError::Exists`] if the name is taken by now.
    pub fn finish(self, expected_bytes: u64) -> Result<Image, ImageError> {
        let found_bytes = self.file.metadata().map_err(ImageError::io("look at", &self.path))?.len();
        if found_bytes != expected_bytes {
            return Err(ImageError::Size { path: self.path, found_bytes, expected_bytes });
        }
        // Its source may have been private: a guest's keys and passwords lie in it.
        rustix::fs::fchmod(&self.file, Mode::RUSR).map_err(ImageError::at("protect", &self.path))?;
        sync(self.library, &self.file, &self.path)?;
        if !mutation!(ImageNamedEarly) {
            self.link()?;
        }
        self.folder.sync_all().map_err(ImageError::io("write to disk", &self.path))?;
        image_in(&self.folder, &self.library.path.join(IMAGES), &self.name)
    }

    fn link(&self) -> Result<(), ImageError> {
        link(&self.file, &self.folder, self.name.as_ref(), &self.path)
    }
}

/// Copies the bytes of a source to a file of the volume.
fn copy_bytes(
    library: &Library,
    source: &Source,
    target: &File,
    path: &Path,
    watch: &mut Watch<'_>,
) -> Result<u64, ImageError> {
    let (total_bytes, free_bytes) = (source.data_bytes()?, library.room()?);
    if total_bytes > free_bytes && !mutation!(LastRoomTaken) {
        let missing_bytes = total_bytes - free_bytes;
        return Err(ImageError::Full { path: path.to_owned(), missing_bytes, free_bytes });
    }
    let copied = source.copy_to(target, total_bytes, watch).map_err(|failure| match failure {
        CopyFailure::Read(error) => ImageError::io("read", source.path())(error),
        CopyFailure::Write(error, missing_bytes) => library.write_error(target, path, error, missing_bytes),
    })?;
    source.require_unchanged()?;
    Ok(copied)
}

/// Writes a file to disk. A file system that delays its choice of blocks may find only here that it is full.
fn sync(library: &Library, file: &File, path: &Path) -> Result<(), ImageError> {
    let size_bytes = file.metadata().map_or(0, |found| found.len());
    file.sync_all().map_err(|error| library.write_error(file, path, error, size_bytes))
}

/// Opens a folder.
fn open(at: impl std::os::fd::AsFd, path: &Path, resolve: ResolveFlags) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(at, path, flags, Mode::empty(), resolve).map(File::from)
}

/// Makes a file without a name on the file system of a folder. Its user alone can read it.
fn unnamed(folder: &File, path: &Path) -> Result<File, ImageError> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, c".", flags, Mode::RUSR | Mode::WUSR);
    file.map(File::from).map_err(ImageError::at("make", path))
}

/// Gives a file its name, which replaces nothing.
fn link(file: &File, folder: &File, name: &Path, path: &Path) -> Result<(), ImageError> {
    let this = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(CWD, this, folder, name, AtFlags::SYMLINK_FOLLOW).map_err(|error| match error {
        Errno::EXIST => ImageError::Exists { path: path.to_owned() },
        error => ImageError::at("give the name to", path)(error),
    })
}

fn image_in(folder: &File, path: &Path, name: &ImageName) -> Result<Image, ImageError> {
    let path = path.join(name);
    let stat =
        rustix::fs::statat(folder, name.as_ref(), AtFlags::SYMLINK_NOFOLLOW).map_err(
            |error| match error {
                Errno::NOENT => ImageError::Missing { path: path.clone() },
                error => ImageError::at("look at", &path)(error),
            },
        )?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::RegularFile {
        return Err(ImageError::Kind { path, found: kind_in_words(kind), expected: "an image" });
    }
    let number = |number: i64| u64::try_from(number).unwrap_or_default();
    Ok(Image {
        name: name.clone(),
        size_bytes: number(stat.st_size),
        room_bytes: number(stat.st_blocks).saturating_mul(STAT_BLOCK_BYTES),
        added_s: number(stat.st_mtime),
    })
}
