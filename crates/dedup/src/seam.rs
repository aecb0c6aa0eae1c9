//! The seams: the file system, the scratch folder and the caller that steers a run.
//!
//! All calls block. A run belongs to a process of its own, so a file system that hangs delays nothing but that process.

use std::error::Error;

/// Inode number and generation: together they name one file for the life of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// Number of the inode.
    pub inode: u64,
    /// Count that changes when the inode number is used for another file.
    pub generation: u32,
}

/// State of a regular file. Two equal states mean that the content is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileInfo {
    /// Name of the file.
    pub id: FileId,
    /// Length in bytes.
    pub size: u64,
    /// Time of the last change of content or attributes, in nanoseconds since 1970.
    pub changed_ns: i64,
    /// Time of the last change of content, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// Number of names. A file without a name is left out.
    pub links: u32,
}

/// Form in which an extent holds its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtentKind {
    /// Bytes as they are read.
    Plain,
    /// Allocated room that reads as zeros.
    Unwritten,
    /// Compressed or encrypted bytes: an offset in the file is no offset on the device.
    Encoded,
    /// Bytes inside metadata.
    Inline,
}

impl ExtentKind {
    /// Returns `true` if the device stores the bytes in room of their own.
    pub(crate) const fn has_data(self) -> bool {
        matches!(self, Self::Plain | Self::Encoded)
    }
}

/// A run of a file that is contiguous on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub logical: u64,
    /// First byte on the device.
    pub physical: u64,
    /// Length in bytes, a multiple of the allocation unit.
    pub length: u64,
    /// Form of the bytes.
    pub kind: ExtentKind,
    /// `true` if the file system counts more than one owner.
    pub shared: bool,
}

impl Extent {
    /// Returns the first byte of the file after this extent.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.logical.saturating_add(self.length)
    }
}

/// A range of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceRange {
    /// First byte.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
}

impl DeviceRange {
    /// Returns the first byte after this range.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }
}

/// Where the bytes of a request to share stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareRange {
    /// First byte in the source.
    pub source_offset: u64,
    /// First byte in the target.
    pub target_offset: u64,
    /// Length in bytes: whole allocation units, but for a last part that ends both files.
    pub length: u64,
}

/// Answer of the file system to a request to share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// So many bytes from the start on are shared now.
    Bytes(u64),
    /// The bytes were compared and are not equal. Nothing changed.
    Differs,
    /// The range lies no longer inside both files. Nothing changed.
    Changed,
}

/// What a call on one file was to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// List the files of the volume.
    List,
    /// Open a file by its inode.
    Open,
    /// Read state or path.
    Inspect,
    /// Read the content.
    Read,
    /// Read the map of extents.
    Map,
    /// Share a range.
    Share,
    /// Make, write, cut or sync an unnamed file.
    Pack,
    /// Discard what is free.
    Trim,
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::List => "listing",
            Self::Open => "opening",
            Self::Inspect => "inspecting",
            Self::Read => "reading",
            Self::Map => "mapping",
            Self::Share => "sharing",
            Self::Pack => "packing",
            Self::Trim => "trimming",
        })
    }
}

/// Failure of a call on a file. It costs that file its part in the run, and nothing else.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The inode is free, or belongs to another file.
    #[error("{action} inode {inode} found no such file: it was deleted since the scan and is left out")]
    Deleted {
        /// What the call was to do.
        action: Action,
        /// Number of the inode.
        inode: u64,
    },
    /// The file system refused or failed.
    #[error("{action} inode {inode} failed at byte {offset}; the file is left as it is; check the volume")]
    Failed {
        /// What the call was to do.
        action: Action,
        /// Number of the inode.
        inode: u64,
        /// Byte of the file.
        offset: u64,
        /// Answer of the file system.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The volume is too full for a copy.
    #[error(
        "an unnamed file of {bytes} bytes found no room on the volume; free some or use a smaller budget"
    )]
    NoRoom {
        /// Length that was asked for.
        bytes: u64,
    },
}

/// Failure of the scratch folder. It ends the run; what was shared stays shared.
#[derive(Debug, thiserror::Error)]
#[error("scratch file, {action} at byte {offset}: failed; the run ends and may be started again")]
pub struct ScratchError {
    /// What the call was to do.
    pub action: ScratchAction,
    /// Byte of the scratch file.
    pub offset: u64,
    /// Answer of the file system.
    pub source: Box<dyn Error + Send + Sync>,
}

/// What a call on scratch was to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScratchAction {
    /// Make an unnamed file.
    Create,
    /// Write at the end.
    Append,
    /// Read.
    Read,
    /// Give a file its name, or open it by name.
    Name,
}

impl std::fmt::Display for ScratchAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Create => "creating",
            Self::Append => "appending",
            Self::Read => "reading",
            Self::Name => "naming",
        })
    }
}

/// A file system on one device.
///
/// An implementation answers for one device alone: other mounts, and snapshots of subvolumes, are not listed. Every call
/// may find the volume changed by others since the call before.
pub trait Files {
    /// An open file. To drop it closes it; an unnamed file is freed with it.
    type Handle;

    /// Returns the allocation unit in bytes.
    fn block_bytes(&self) -> u64;

    /// Begins to list from the first file.
    ///
    /// # Errors
    /// The file system does not list its files.
    fn rewind(&mut self) -> Result<(), FileError>;

    /// Appends the next regular files, at most a few thousand, and returns `false` after the last. A file may be listed twice.
    ///
    /// # Errors
    /// The list cannot be continued; single files that cannot be read are left out of it.
    fn list(&mut self, into: &mut Vec<FileInfo>) -> Result<bool, FileError>;

    /// Replaces `into` with one path of the file from the root of the volume on, without a leading slash.
    ///
    /// # Errors
    /// The file was deleted, or its path cannot be read.
    fn path(&mut self, file: FileId, into: &mut Vec<u8>) -> Result<(), FileError>;

    /// Opens a file.
    ///
    /// # Errors
    /// The file was deleted, or refuses.
    fn open(&mut self, file: FileId) -> Result<Self::Handle, FileError>;

    /// Returns the present state of an open file.
    ///
    /// # Errors
    /// The file system does not answer.
    fn info(&mut self, handle: &Self::Handle) -> Result<FileInfo, FileError>;

    /// Reads from `offset` on and returns the number of bytes, fewer than asked for at the end of the file alone.
    ///
    /// # Errors
    /// The bytes cannot be read.
    fn read(&mut self, handle: &Self::Handle, offset: u64, into: &mut [u8]) -> Result<usize, FileError>;

    /// Appends the extents that touch the range, in order and without overlap, and returns `false` if `limit` ended the list.
    ///
    /// # Errors
    /// The file system has no map of the file.
    fn extents(
        &mut self,
        handle: &Self::Handle,
        range: std::ops::Range<u64>,
        limit: usize,
        into: &mut Vec<Extent>,
    ) -> Result<bool, FileError>;

    /// Shares a range after comparing both sides under locks that keep writers out.
    ///
    /// A length that is no multiple of the allocation unit is rounded down, unless the range ends source and target.
    ///
    /// # Errors
    /// The file system refuses; nothing changed.
    fn share(
        &mut self,
        source: &Self::Handle,
        target: &Self::Handle,
        range: ShareRange,
    ) -> Result<Shared, FileError>;

    /// Makes an unnamed file of length 0 with room for `bytes`.
    ///
    /// # Errors
    /// There is no room.
    fn pack(&mut self, bytes: u64) -> Result<Self::Handle, FileError>;

    /// Makes an unnamed file with room in those of the ranges where the file system gives it, and appends these to `into`.
    ///
    /// The ranges come in their order, and do not overlap. Byte `n` of the file lies at address `n` of the device, and the file ends
    /// with the last range of `into`. Each of these is whole.
    ///
    /// # Errors
    /// There is no room, or the file system cannot be led.
    fn pack_at(
        &mut self,
        ranges: &[DeviceRange],
        into: &mut Vec<DeviceRange>,
    ) -> Result<Self::Handle, FileError>;

    /// Copies a range of a file into a pack and returns the bytes copied, fewer at the end of the file alone.
    ///
    /// # Errors
    /// Read or write failed.
    fn copy(
        &mut self,
        source: &Self::Handle,
        pack: &Self::Handle,
        range: ShareRange,
    ) -> Result<u64, FileError>;

    /// Cuts a pack to a length that is not above its own.
    ///
    /// # Errors
    /// The file system refuses.
    fn cut(&mut self, pack: &Self::Handle, bytes: u64) -> Result<(), FileError>;

    /// Returns when the content of a pack is durable.
    ///
    /// # Errors
    /// The content may be lost; the pack must not be shared.
    fn sync(&mut self, pack: &Self::Handle) -> Result<(), FileError>;

    /// Appends ranges of the device that hold what belongs to no file, as far as the file system tells.
    ///
    /// # Errors
    /// The file system does not answer.
    fn fixed(&mut self, into: &mut Vec<DeviceRange>) -> Result<(), FileError>;

    /// Shows the free ranges of the device, in their order.
    ///
    /// # Errors
    /// The file system does not answer.
    fn free(&mut self, each: &mut dyn FnMut(DeviceRange)) -> Result<(), FileError>;

    /// Returns the bytes that writers can take now. Of what [`free`](Self::free) shows, a file system keeps a part for itself.
    ///
    /// # Errors
    /// The file system does not answer.
    fn available(&mut self) -> Result<u64, FileError>;

    /// Discards what is free, so that the pool has it back. Returns its bytes.
    ///
    /// # Errors
    /// The device or the file system refuses.
    fn trim(&mut self) -> Result<u64, FileError>;
}

/// A folder for sorted runs and the index.
pub trait Scratch {
    /// An open scratch file. To drop it frees it, unless it was kept.
    type File;

    /// Makes an unnamed file.
    ///
    /// # Errors
    /// The folder is full or cannot be written.
    fn create(&mut self) -> Result<Self::File, ScratchError>;

    /// Writes at the end.
    ///
    /// # Errors
    /// The folder is full or cannot be written.
    fn append(&mut self, file: &mut Self::File, bytes: &[u8]) -> Result<(), ScratchError>;

    /// Reads from `offset` on and returns the number of bytes, fewer than asked for at the end alone.
    ///
    /// # Errors
    /// The file cannot be read.
    fn read(&mut self, file: &Self::File, offset: u64, into: &mut [u8]) -> Result<usize, ScratchError>;

    /// Gives a file a name in one step, in place of the file that has it.
    ///
    /// # Errors
    /// The folder cannot be written; the former file keeps the name.
    fn keep(&mut self, file: Self::File, name: &'static str) -> Result<(), ScratchError>;

    /// Opens a kept file, if there is one.
    ///
    /// # Errors
    /// The file is there and cannot be opened.
    fn kept(&mut self, name: &'static str) -> Result<Option<Self::File>, ScratchError>;
}

/// Part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Lists files.
    Scan,
    /// Reads and hashes new and changed files.
    Hash,
    /// Finds equal pieces.
    Plan,
    /// Asks the file system to share.
    Share,
    /// Maps the owners of rows.
    Map,
    /// Moves live bytes out of rows.
    Compact,
    /// Gives files bytes of their own.
    Undo,
    /// Reads a sample.
    Estimate,
}

/// Progress of the present phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Files that the phase has passed.
    pub files: u64,
    /// Bytes that the phase has read, shared or moved.
    pub bytes: u64,
    /// Bytes that the phase has to do, 0 where that is unknown.
    pub bytes_planned: u64,
    /// Bytes that the run has freed so far.
    pub bytes_saved: u64,
}

/// Decision of the caller before the next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Continue.
    Go,
    /// End in good order.
    Stop,
}

/// Reason why a file took no part.
#[derive(Debug, thiserror::Error)]
pub enum Skipped {
    /// Its state is not that of the scan.
    #[error("the file changed since the scan; the next run takes it up")]
    Changed,
    /// Its map is longer than the run holds in memory.
    #[error("the file has more than {limit} extents; defragment it first")]
    TooManyExtents {
        /// Number of extents that a run holds.
        limit: usize,
    },
    /// A call failed.
    #[error(transparent)]
    Failed(#[from] FileError),
}

/// The caller of a run: it throttles, stops and listens.
pub trait Control {
    /// Returns before the next piece of work is to begin; a pause is a late return.
    fn next(&mut self, progress: &Progress) -> Next;

    /// Takes a file that took no part, and why.
    fn skipped(&mut self, file: FileId, reason: Skipped);
}
