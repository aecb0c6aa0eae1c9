//! Undo: gives a file bytes of its own, in place of those that it shares.
//!
//! Shared ranges are copied into a pack of at most [`UNDO_BYTES`], and the file is pointed to the pack. The file is changed by
//! nothing but a request to share; a writer meanwhile makes the file system refuse it, and that range stays shared. The state of
//! the file stays the same, so [`mark_moved`](crate::mark_moved) comes first: else the index would name the former places.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::pack::{Move, Pack};
use crate::scan::EXTENTS_MAX;
use crate::seam::{
    Control, Extent, ExtentKind, FileError, FileId, Files, Next, Phase, Progress, Scratch, ScratchError,
};
use crate::share::Union;
use crate::sort::{Buffers, Sorter};

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

/// A shared range of the device.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
struct Place {
    physical: u64,
    /// Length in bytes as files read it, plus 1 if it is compressed.
    length: u64,
}

/// Bytes that some files share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedBytes {
    /// Sum over all files.
    pub read: u64,
    /// The same, where each place on the device counts once.
    pub stored: u64,
}

/// Sum of the bytes that files share: the room that an undo of these files needs.
pub struct SharedSum<S: Scratch> {
    places: Sorter<S, Place>,
    read: u64,
    map: Vec<Extent>,
}

impl<S: Scratch> SharedSum<S> {
    /// Begins without a file, with buffers of some memory.
    #[must_use]
    pub fn new(memory_bytes: usize) -> Self {
        Self { places: Sorter::new(Buffers::of(memory_bytes)), read: 0, map: Vec::new() }
    }

    /// Adds a file; the inner error is that of the file.
    ///
    /// # Errors
    /// The scratch folder fails.
    pub fn add<F: Files>(
        &mut self,
        files: &mut F,
        scratch: &mut S,
        file: FileId,
    ) -> Result<Result<(), FileError>, ScratchError> {
        let opened = files.open(file).and_then(|handle| Ok((files.info(&handle)?.size, handle)));
        let (size, handle) = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };
        let (mut from, mut more) = (0, true);
        while more {
            self.map.clear();
            match files.extents(&handle, from..size, EXTENTS_MAX, &mut self.map) {
                Ok(whole) => more = !whole,
                Err(error) => return Ok(Err(error)),
            }
            for extent in self.map.iter().filter(|extent| extent.shared && extent.end() > from) {
                self.read = self.read.saturating_add(extent.length);
                let encoded = u64::from(extent.kind == ExtentKind::Encoded);
                let place = Place { physical: extent.physical, length: extent.length & !1 | encoded };
                self.places.push(scratch, place)?;
            }
            from = self.map.last().map_or(size, Extent::end);
        }
        Ok(Ok(()))
    }

    /// Returns the sums.
    ///
    /// # Errors
    /// The scratch folder fails.
    pub fn finish(self, scratch: &mut S) -> Result<SharedBytes, ScratchError> {
        let mut places = self.places.finish(scratch)?;
        // Compressed extents lie closer than the lengths that files read, so each counts by its first byte.
        let (mut plain, mut encoded) = (Union::default(), 0u64);
        let mut last = Place { physical: 0, length: 0 };
        while let Some(place) = places.next(scratch)? {
            let length = place.length & !1;
            if place.length & 1 == 0 {
                plain.add(place.physical, length);
            } else {
                let counted = if last.physical == place.physical { last.length & !1 } else { 0 };
                encoded = encoded.saturating_add(length.saturating_sub(counted));
                last = place;
            }
        }
        Ok(SharedBytes { read: self.read, stored: plain.bytes.saturating_add(encoded) })
    }
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
