//! Errors of libraries of images.

use std::io;
use std::path::{Path, PathBuf};

use dolmen_units::Bytes;

use super::format::ImageFormat;

/// An image that was not added, cloned, listed or deleted.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The path of a volume leads to no file system of its own.
    #[error(
        "{} is not mounted: the folder belongs to another file system; nothing was changed",
        path.display()
    )]
    NotMounted {
        /// Mount point of the volume.
        path: PathBuf,
    },
    /// The library has no such image.
    #[error("{} is not there; nothing was changed", path.display())]
    Missing {
        /// Path of the image.
        path: PathBuf,
    },
    /// The name is taken.
    #[error("{} exists and would be replaced; nothing was changed", path.display())]
    Exists {
        /// The name, with its folder.
        path: PathBuf,
    },
    /// One clone is named several times.
    #[error("{} is named twice; nothing was changed", path.display())]
    NamedTwice {
        /// The name, with its folder.
        path: PathBuf,
    },
    /// The kind of an entry is another one.
    #[error("{} is {found}, expected {expected}; nothing was changed", path.display())]
    Kind {
        /// The entry.
        path: PathBuf,
        /// Kind of the entry.
        found: &'static str,
        /// Kind that is needed.
        expected: &'static str,
    },
    /// The path leads out of the volume.
    #[error("{} is not on the volume at {}; nothing was changed", path.display(), root.display())]
    Outside {
        /// Path that was given.
        path: PathBuf,
        /// Mount point of the volume.
        root: PathBuf,
    },
    /// There is nothing in the file.
    #[error("{} is empty, expected an image; nothing was changed", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The volume has no room left.
    #[error(
        "the volume is full: {} more are needed for {}, of which nothing is left, and {} are free again",
        Bytes(*missing_bytes), path.display(), Bytes(*free_bytes)
    )]
    Full {
        /// The image or the clone.
        path: PathBuf,
        /// Bytes of data that were still to be written, at most.
        missing_bytes: u64,
        /// Bytes that are free when nothing of it is left.
        free_bytes: u64,
    },
    /// The source changed while it was read.
    #[error("{} changed while it was copied ({before}, then {after}); nothing of it is left", path.display())]
    Changed {
        /// The source.
        path: PathBuf,
        /// Size and time of the change before.
        before: String,
        /// Size and time of the change afterwards.
        after: String,
    },
    /// The size of the image is another one than its source has.
    #[error(
        "{} has {found_bytes} bytes after the copy, expected {expected_bytes}; nothing of it is left",
        path.display()
    )]
    Size {
        /// The image.
        path: PathBuf,
        /// Bytes of the image.
        found_bytes: u64,
        /// Bytes of the disk in the source.
        expected_bytes: u64,
    },
    /// A clone would be smaller than its image.
    #[error(
        "a clone of {} has {} at least, and {} were asked for; nothing was changed",
        path.display(), Bytes(*image_bytes), Bytes(*asked_bytes)
    )]
    Shrinks {
        /// The image.
        path: PathBuf,
        /// Bytes of the image.
        image_bytes: u64,
        /// Bytes that were asked for.
        asked_bytes: u64,
    },
    /// The file system shares no extents.
    #[error(
        "{} cannot be cloned: it lies on {source_system}, the clone on {target_system} ({why}); nothing was changed",
        path.display()
    )]
    NotShared {
        /// The image.
        path: PathBuf,
        /// Kind of its file system, and its mount point.
        source_system: String,
        /// The same of the clone.
        target_system: String,
        /// Answer of the kernel.
        why: io::Error,
    },
    /// The image needs another file, which may be any file of this host.
    #[error(
        "{} is {format} and takes data from another file, {}; nothing was changed",
        path.display(), needs.as_deref().unwrap_or("which it does not name")
    )]
    NotWhole {
        /// The source.
        path: PathBuf,
        /// Its format.
        format: ImageFormat,
        /// Name of the other file, as the image has it.
        needs: Option<String>,
    },
    /// The image is encrypted.
    #[error("{} is {format} and encrypted; nothing was changed", path.display())]
    Encrypted {
        /// The source.
        path: PathBuf,
        /// Its format.
        format: ImageFormat,
    },
    /// The file is an image in another format, which is not converted.
    #[error("{} is {found}; nothing was changed", path.display())]
    Unsuitable {
        /// The source.
        path: PathBuf,
        /// Content that was recognised.
        found: &'static str,
    },
    /// A call failed.
    #[error("cannot {step} {}: {source}", path.display())]
    Call {
        /// What was tried, as a verb.
        step: &'static str,
        /// Path that it was tried on.
        path: PathBuf,
        /// Answer of the kernel.
        source: io::Error,
    },
}

impl ImageError {
    pub(crate) fn at(step: &'static str, path: &Path) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |error| Self::io(step, path)(error.into())
    }

    pub(crate) fn io(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Call { step, path: path.to_owned(), source }
    }
}
