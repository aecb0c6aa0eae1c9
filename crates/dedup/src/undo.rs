//! Undo: gives a file bytes of its own, in place of those that it shares.
//!
//! Shared ranges are copied into a pack of at most [`UNDO_BYTES`], and the file is pointed to the pack. The file is changed by
//! nothing but a request to share; a writer meanwhile makes the file system refuse it, and that range stays shared. The state of
//! the file stays the same, so [`mark_moved`](crate::mark_moved) comes first: else the index would name the former places.

use crate::pack::{Move, Pack};
use crate::scan::EXTENTS_MAX;
use crate::seam::{Control, Extent, FileError, FileId, Files, Next, Phase, Progress};

/// Bytes that are copied at a time.
pub const UNDO_BYTES: u64 = 64 << 20;

/// What an undo did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Undone {
    /// Bytes that the file owns alone now.
    pub bytes: u64,
    /// Ranges that a writer changed meanwhile; they stay shared.
    pub differing: u64,
    /// `true` if the caller stopped it.
    pub stopped: bool,
}

/// Returns the bytes of a file that are shared: the room that an undo needs.
///
/// # Errors
/// The file was deleted or cannot be mapped.
pub fn shared_bytes<F: Files>(files: &mut F, file: FileId) -> Result<u64, FileError> {
    let handle = files.open(file)?;
    let size = files.info(&handle)?.size;
    let (mut from, mut bytes, mut more) = (0, 0u64, true);
    let mut map = Vec::new();
    while more {
        map.clear();
        more = !files.extents(&handle, from..size, EXTENTS_MAX, &mut map)?;
        let shared = map.iter().filter(|extent| extent.shared && extent.end() > from);
        bytes = shared.fold(bytes, |sum, extent| sum.saturating_add(extent.length));
        from = map.last().map_or(size, Extent::end);
    }
    Ok(bytes)
}

/// Gives a file bytes of its own.
///
/// # Errors
/// The file was deleted, the volume is full, or a call fails. What was done until then stays done.
pub fn undo<F: Files, C: Control>(
    files: &mut F,
    control: &mut C,
    file: FileId,
    call_bytes: u64,
) -> Result<Undone, FileError> {
    let handle = files.open(file)?;
    let mut undone = Undone::default();
    let mut map = Vec::new();
    let mut from = 0;
    loop {
        let size = files.info(&handle)?.size;
        if from >= size {
            return Ok(undone);
        }
        let end = from.saturating_add(UNDO_BYTES);
        map.clear();
        let whole = files.extents(&handle, from..end.min(size), EXTENTS_MAX, &mut map)?;
        let moves = moves(&map, from, end, size);
        let reserved = moves.last().map_or(0, |last| last.offset.saturating_add(last.bytes));
        if reserved > 0 {
            let mut pack = Pack::new(files.pack(reserved)?);
            let mut stops = |bytes: u64| {
                let progress =
                    Progress { phase: Phase::Undo, files: 0, bytes, bytes_planned: size, bytes_saved: 0 };
                control.next(&progress) == Next::Stop
            };
            for range in &moves {
                if stops(undone.bytes) {
                    return Ok(Undone { stopped: true, ..undone });
                }
                pack.fill(files, &handle, range)?;
            }
            pack.seal(files)?;
            for range in &moves {
                if stops(undone.bytes) {
                    return Ok(Undone { stopped: true, ..undone });
                }
                if pack.point(files, &handle, range, call_bytes.max(1 << 16))? {
                    undone.bytes = undone.bytes.saturating_add(range.bytes);
                } else {
                    undone.differing = undone.differing.saturating_add(1);
                }
            }
        }
        from = if whole { end } else { map.last().map_or(end, Extent::end).max(from.saturating_add(1)) };
    }
}

/// Returns the shared ranges between two bytes of a file, one after the other in a pack.
fn moves(map: &[Extent], from: u64, to: u64, size: u64) -> Vec<Move> {
    let mut offset: u64 = 0;
    let mut moves = Vec::new();
    for extent in map.iter().filter(|extent| extent.shared) {
        let start = extent.logical.max(from);
        let end = extent.end().min(to);
        let bytes = end.min(size).saturating_sub(start);
        if bytes > 0 {
            moves.push(Move { file: 0, row: 0, logical: start, bytes, offset, fresh: bytes });
            offset = offset.saturating_add(end.saturating_sub(start));
        }
    }
    moves
}
