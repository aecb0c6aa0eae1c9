//! Scan: which files take part, which of them changed since the former run, and the hashes of their pieces.
//!
//! Files are listed, filtered and sorted by inode, then joined with the former index. The pieces of an unchanged file are
//! copied from there. The state of a file is taken before its content is read; a file whose state is another one when its
//! pieces are to be shared takes no part.

use crate::index::{Entry, Former, Index, Known, Table};
use crate::piece::{DataPieces, Piece, Place, hash, pieces};
use crate::policy::Policy;
use crate::run::{Counts, Environment, RunError};
use crate::seam::{Control, Extent, FileError, Files, Phase, Scratch, Skipped};
use crate::sort::{Buffers, Sorted, Sorter, Writer, length_of};

/// Bytes that one call reads.
pub(crate) const READ_BYTES: usize = 1 << 20;
/// Extents of a file that a run holds in memory.
pub const EXTENTS_MAX: usize = 1 << 16;

/// Result of a scan.
pub(crate) struct Scanned<S: Scratch> {
    pub(crate) pieces: Sorted<S, Piece>,
    pub(crate) table: Table<S>,
    pub(crate) files: u32,
    /// `true` if the caller stopped it: the index is kept, and nothing is to be shared.
    pub(crate) stopped: bool,
}

/// Lists the files that take part, sorted by inode; `None` if the caller stopped it.
pub(crate) fn listed<F: Files, S: Scratch, C: Control>(
    environment: &mut Environment<'_, F, S, C>,
    policy: &Policy,
    buffers: Buffers,
) -> Result<Option<Sorted<S, Entry>>, RunError> {
    let mut sorter = Sorter::new(buffers);
    let mut batch = Vec::new();
    environment.files.rewind().map_err(RunError::List)?;
    let mut more = true;
    while more {
        batch.clear();
        more = environment.files.list(&mut batch).map_err(RunError::List)?;
        for info in &batch {
            let young = info.modified_ns > policy.now_ns.saturating_sub(policy.age_min_ns);
            if info.links > 0 && !young && info.size >= policy.size_min.max(1) {
                sorter.push(environment.scratch, Entry::of(info))?;
            }
        }
        if environment.stops(Phase::Scan, sorter.records(), 0, 0) {
            return Ok(None);
        }
    }
    Ok(Some(sorter.finish(environment.scratch)?))
}

/// Buffers for one file at a time.
pub(crate) struct FileBuffers {
    pub(crate) extents: Vec<Extent>,
    pub(crate) content: Vec<u8>,
    path: Vec<u8>,
}

impl FileBuffers {
    pub(crate) fn new() -> Self {
        Self { extents: Vec::new(), content: vec![0; READ_BYTES], path: Vec::new() }
    }
}

/// Opens a file and compares its state with that of the scan.
pub(crate) fn open_same<F: Files, S: Scratch, C: Control>(
    environment: &mut Environment<'_, F, S, C>,
    entry: &Entry,
) -> Result<F::Handle, Skipped> {
    let handle = environment.files.open(entry.id())?;
    if Entry::of(&environment.files.info(&handle)?) == *entry { Ok(handle) } else { Err(Skipped::Changed) }
}

/// Opens a file, compares its state with that of the scan and maps all of it.
pub(crate) fn open_unchanged<F: Files, S: Scratch, C: Control>(
    environment: &mut Environment<'_, F, S, C>,
    entry: &Entry,
    extents: &mut Vec<Extent>,
) -> Result<F::Handle, Skipped> {
    let handle = open_same(environment, entry)?;
    extents.clear();
    if environment.files.extents(&handle, 0..entry.size, EXTENTS_MAX, extents)? {
        Ok(handle)
    } else {
        Err(Skipped::TooManyExtents { limit: EXTENTS_MAX })
    }
}

/// Returns `true` if a policy excludes the file by its path. A file without a readable path is excluded.
pub(crate) fn is_excluded<F: Files, S: Scratch, C: Control>(
    environment: &mut Environment<'_, F, S, C>,
    policy: &Policy,
    entry: &Entry,
    buffers: &mut FileBuffers,
) -> bool {
    if policy.excluded.is_empty() {
        return false;
    }
    match environment.files.path(entry.id(), &mut buffers.path) {
        Ok(()) => policy.excluded.iter().any(|exclusion| exclusion.covers(&buffers.path)),
        Err(FileError::Deleted { .. }) => true,
        Err(error) => {
            environment.control.skipped(entry.id(), error.into());
            true
        }
    }
}

struct Scan<S: Scratch> {
    former: Former<S>,
    index: Index<S>,
    sorter: Sorter<S, Piece>,
    table: Writer<S, Entry>,
    buffers: FileBuffers,
    files: u32,
    bytes_read: u64,
    stopped: bool,
}

/// Scans and hashes.
pub(crate) fn scan<F: Files, S: Scratch, C: Control>(
    environment: &mut Environment<'_, F, S, C>,
    policy: &Policy,
    counts: &mut Counts,
) -> Result<Option<Scanned<S>>, RunError> {
    let buffers = Buffers::of(policy.memory_bytes());
    let Some(mut entries) = listed(environment, policy, buffers)? else { return Ok(None) };
    let mut scan = Scan {
        former: Former::open(environment.scratch, buffers)?,
        index: Index::create(environment.scratch, buffers)?,
        sorter: Sorter::new(buffers),
        table: Writer::new(environment.scratch, buffers)?,
        buffers: FileBuffers::new(),
        files: 0,
        bytes_read: 0,
        stopped: false,
    };
    let mut inode = None;
    while let Some(entry) = entries.next(environment.scratch)? {
        if inode.replace(entry.inode) == Some(entry.inode)
            || is_excluded(environment, policy, &entry, &mut scan.buffers)
        {
            continue;
        }
        scan.file(environment, &entry, counts)?;
        if scan.files == u32::MAX {
            break;
        }
    }
    drop(entries);
    scan.index.keep(environment.scratch)?;
    counts.files = scan.files.into();
    counts.bytes_read = scan.bytes_read;
    Ok(Some(Scanned {
        pieces: scan.sorter.finish(environment.scratch)?,
        table: Table::new(scan.table.finish(environment.scratch)?),
        files: scan.files,
        stopped: scan.stopped,
    }))
}

impl<S: Scratch> Scan<S> {
    fn file<F: Files, C: Control>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        entry: &Entry,
        counts: &mut Counts,
    ) -> Result<(), RunError> {
        self.stopped |= environment.stops(Phase::Hash, self.files.into(), self.bytes_read, 0);
        let mut known = self.former.seek(environment.scratch, entry)?;
        while let Known::Unchanged { touched } = known {
            self.index.file(environment.scratch, entry)?;
            self.copy(environment, entry, touched)?;
            if !self.former.is_void() {
                break;
            }
            self.index.void(environment.scratch)?;
            known = self.former.seek(environment.scratch, entry)?;
        }
        if known == Known::Unknown {
            if self.stopped {
                return Ok(());
            }
            self.index.file(environment.scratch, entry)?;
            counts.files_read = counts.files_read.saturating_add(1);
            if let Err(reason) = self.read(environment, entry)? {
                self.index.void(environment.scratch)?;
                // A stop in the midst of a file is no failure of it.
                if !self.stopped {
                    counts.files_skipped = counts.files_skipped.saturating_add(1);
                    environment.control.skipped(entry.id(), reason);
                }
            }
        }
        self.table.push(environment.scratch, *entry)?;
        self.files = self.files.saturating_add(1);
        Ok(())
    }

    /// Copies the pieces of an unchanged file, and maps them again if the former run was about to share them.
    fn copy<F: Files, C: Control>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        entry: &Entry,
        touched: bool,
    ) -> Result<(), RunError> {
        let map = touched && open_unchanged(environment, entry, &mut self.buffers.extents).is_ok();
        while let Some(mut piece) = self.former.piece(environment.scratch, self.files)? {
            if map {
                let start = u64::from(piece.block).saturating_mul(crate::piece::PIECE_BYTES);
                piece.place = Place::of(&self.buffers.extents, start, piece.place.length());
            }
            self.index.piece(environment.scratch, &piece)?;
            self.sorter.push(environment.scratch, piece)?;
        }
        Ok(())
    }

    fn read<F: Files, C: Control>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        entry: &Entry,
    ) -> Result<Result<(), Skipped>, RunError> {
        let handle = match open_unchanged(environment, entry, &mut self.buffers.extents) {
            Ok(handle) => handle,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut ranges = DataPieces::new(&self.buffers.extents, entry.size);
        while let Some(range) = ranges.next_range(length_of(&self.buffers.content)) {
            let wanted = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0);
            let Some(content) = self.buffers.content.get_mut(..wanted) else { break };
            match environment.files.read(&handle, range.start, content) {
                Ok(read) if read == wanted => {}
                Ok(_) => return Ok(Err(Skipped::Changed)),
                Err(error) => return Ok(Err(error.into())),
            }
            for (block, start, content) in pieces(range.start, content) {
                let Some(hash) = hash(content) else { continue };
                let place = Place::of(&self.buffers.extents, start, length_of(content));
                let piece = Piece { hash, place, file: self.files, block };
                self.index.piece(environment.scratch, &piece)?;
                self.sorter.push(environment.scratch, piece)?;
            }
            self.bytes_read = self.bytes_read.saturating_add(length_of(content));
            if environment.stops(Phase::Hash, self.files.into(), self.bytes_read, 0) {
                self.stopped = true;
                return Ok(Err(Skipped::Changed));
            }
        }
        Ok(Ok(()))
    }
}
