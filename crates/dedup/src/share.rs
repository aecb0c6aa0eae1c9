//! Share: asks the file system to share the ranges of the plan, largest gain first.
//!
//! Before each file, its state is compared with that of the scan; before each range, both sides are mapped, and what is one
//! copy already is left out. The file system compares the bytes. Gains are counted by the map of the target from before:
//! an extent of one owner is freed, one of several loses an owner. A range that the cap of extents leaves out is tried again by
//! the next run.

use dolmen_mutation::mutation;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::index::{Entry, Table};
use crate::piece::PIECE_BYTES;
use crate::plan::{Plan, RANGES_MAX, Range};
use crate::policy::Policy;
use crate::run::{Counts, Environment, RunError};
use crate::scan::{EXTENTS_MAX, open_unchanged};
use crate::seam::{
    Control, Extent, ExtentKind, FileError, Files, Phase, Progress, Scratch, ShareRange, Shared,
};
use crate::sort::{Buffers, Sorter};

/// Size from which on a file is kept sequential: a range shorter than a piece is not shared.
pub const LARGE_FILE_BYTES: u64 = 16 << 20;
/// Extents for each MiB of a file that sharing may lead to.
pub const EXTENTS_PER_MIB_MAX: u64 = 4;

/// A range of the device that a file no longer owns.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
struct Released {
    physical: u64,
    /// Length in bytes, plus 1 if the file was the last owner.
    length: u64,
}

/// An open file of the plan.
struct Opened<H> {
    number: u32,
    entry: Entry,
    handle: H,
    extents: usize,
}

struct Share<'a, S: Scratch> {
    table: &'a Table<S>,
    call_bytes: u64,
    released: Sorter<S, Released>,
    map: Vec<Extent>,
    source_map: Vec<Extent>,
    target_map: Vec<Extent>,
    pieces: Vec<ShareRange>,
}

/// Shares the ranges of a plan.
pub(crate) fn share<F: Files, S: Scratch, C: Control>(
    environment: &mut Environment<'_, F, S, C>,
    plan: Plan<S>,
    table: &Table<S>,
    policy: &Policy,
    counts: &mut Counts,
) -> Result<(), RunError> {
    let mut ranges = plan.ranges;
    let mut share = Share {
        table,
        call_bytes: policy.call_bytes(),
        released: Sorter::new(Buffers::of(policy.memory_bytes())),
        map: Vec::new(),
        source_map: Vec::new(),
        target_map: Vec::new(),
        pieces: Vec::new(),
    };
    let mut file: Vec<Range> = Vec::with_capacity(RANGES_MAX);
    let mut source = None;
    while !counts.stopped {
        let range = ranges.next(environment.scratch)?;
        let ends = file.first().is_some_and(|first| range.is_none_or(|range| range.target != first.target));
        if ends || file.len() == RANGES_MAX {
            share.file(environment, &mut file, &mut source, counts)?;
            file.clear();
        }
        match range {
            Some(range) => file.push(range),
            None => break,
        }
    }
    counts.held_bytes = held(environment.scratch, share.released)?;
    Ok(())
}

/// Returns the bytes that lost an owner and never their last one.
fn held<S: Scratch>(scratch: &mut S, released: Sorter<S, Released>) -> Result<u64, RunError> {
    let mut released = released.finish(scratch)?;
    let (mut all, mut freed) = (Union::default(), Union::default());
    while let Some(range) = released.next(scratch)? {
        let length = range.length & !1;
        all.add(range.physical, length);
        if range.length & 1 == 1 {
            freed.add(range.physical, length);
        }
    }
    Ok(all.bytes.saturating_sub(freed.bytes))
}

/// Bytes that ranges cover together, added in the order of their starts.
#[derive(Default)]
pub(crate) struct Union {
    pub(crate) bytes: u64,
    end: u64,
}

impl Union {
    /// Adds a range and returns the bytes that no range covered before.
    pub(crate) fn add(&mut self, start: u64, length: u64) -> u64 {
        let end = start.saturating_add(length);
        let new = end.saturating_sub(start.max(self.end));
        self.bytes = self.bytes.saturating_add(new);
        self.end = self.end.max(end);
        new
    }
}

impl<S: Scratch> Share<'_, S> {
    fn open<F: Files, C: Control>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        number: u32,
    ) -> Result<Option<Opened<F::Handle>>, RunError> {
        let Some(mut entry) = self.table.get(environment.scratch, number)? else {
            return Err(RunError::Scratch(crate::seam::ScratchError {
                action: crate::seam::ScratchAction::Read,
                offset: u64::from(number).saturating_mul(32),
                source: "the table of files ends before".into(),
            }));
        };
        if mutation!(ChangedFileShared)
            && let Ok(handle) = environment.files.open(entry.id())
            && let Ok(info) = environment.files.info(&handle)
        {
            entry = Entry::of(&info);
        }
        match open_unchanged(environment, &entry, &mut self.map) {
            Ok(handle) => Ok(Some(Opened { number, entry, handle, extents: runs(&self.map) })),
            Err(reason) => {
                environment.control.skipped(entry.id(), reason);
                Ok(None)
            }
        }
    }

    /// Shares the ranges of one file, the longest first.
    fn file<F: Files, C: Control>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        ranges: &mut [Range],
        source: &mut Option<Opened<F::Handle>>,
        counts: &mut Counts,
    ) -> Result<(), RunError> {
        let Some(first) = ranges.first() else { return Ok(()) };
        let Some(mut target) = self.open(environment, first.target)? else {
            counts.files_skipped = counts.files_skipped.saturating_add(1);
            return Ok(());
        };
        ranges.sort_unstable_by_key(|range| (std::cmp::Reverse(range.length), range.target_block));
        for range in ranges.iter() {
            if target.entry.size > LARGE_FILE_BYTES && range.length < PIECE_BYTES {
                counts.left_out_bytes = counts.left_out_bytes.saturating_add(range.gain_bytes());
                continue;
            }
            if source.as_ref().is_none_or(|source| source.number != range.source) {
                *source = self.open(environment, range.source)?;
            }
            if let Some(source) = source {
                let done = self.range(environment, source, &mut target, range, counts)?;
                if let Err(error) = done {
                    counts.files_skipped = counts.files_skipped.saturating_add(1);
                    environment.control.skipped(target.entry.id(), error.into());
                    return Ok(());
                }
            }
            if counts.stopped {
                break;
            }
        }
        Ok(())
    }

    fn range<F: Files, C: Control>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        source: &Opened<F::Handle>,
        target: &mut Opened<F::Handle>,
        range: &Range,
        counts: &mut Counts,
    ) -> Result<Result<(), FileError>, RunError> {
        let (from, to) = (range.source_offset(), range.target_offset());
        let (from_end, to_end) = (from.saturating_add(range.length), to.saturating_add(range.length));
        self.source_map.clear();
        self.target_map.clear();
        let mapped = environment
            .files
            .extents(&source.handle, from..from_end, EXTENTS_MAX, &mut self.source_map)
            .and_then(|whole| {
                let rest =
                    environment.files.extents(&target.handle, to..to_end, EXTENTS_MAX, &mut self.target_map);
                rest.map(|rest| whole && rest)
            });
        match mapped {
            Ok(true) => {}
            Ok(false) => return Ok(Ok(())),
            Err(error) => return Ok(Err(error)),
        }
        self.pieces.clear();
        let whole = ShareRange { source_offset: from, target_offset: to, length: range.length };
        differing(&self.source_map, &self.target_map, whole, &mut self.pieces);
        if self.pieces.is_empty() {
            return Ok(Ok(()));
        }
        let after =
            extents_after(target.extents, &self.source_map, &self.target_map, whole, target.entry.size);
        let limit = target.entry.size.div_ceil(1 << 20).saturating_mul(EXTENTS_PER_MIB_MAX);
        if after > target.extents && length_of_count(after) > limit {
            counts.left_out_bytes = counts.left_out_bytes.saturating_add(range.gain_bytes());
            return Ok(Ok(()));
        }
        for at in 0..self.pieces.len() {
            let Some(piece) = self.pieces.get(at).copied() else { break };
            if let Err(error) = self.piece(environment, source, target, piece, counts)? {
                return Ok(Err(error));
            }
        }
        target.extents = after;
        Ok(Ok(()))
    }

    fn piece<F: Files, C: Control>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        source: &Opened<F::Handle>,
        target: &Opened<F::Handle>,
        mut piece: ShareRange,
        counts: &mut Counts,
    ) -> Result<Result<(), FileError>, RunError> {
        while piece.length > 0 {
            let progress = Progress {
                phase: Phase::Share,
                files: 0,
                bytes: counts.shared_bytes,
                bytes_planned: counts.planned_bytes,
                bytes_saved: counts.saved_bytes,
            };
            if environment.ends(&progress) {
                counts.stopped = true;
                return Ok(Ok(()));
            }
            let length = piece.length.min(self.call_bytes);
            counts.calls = counts.calls.saturating_add(1);
            let call = ShareRange { length, ..piece };
            let done = match environment.files.share(&source.handle, &target.handle, call) {
                Ok(Shared::Bytes(bytes)) if bytes > 0 => bytes.min(length),
                Ok(Shared::Bytes(_) | Shared::Differs | Shared::Changed) => {
                    counts.differing = counts.differing.saturating_add(1);
                    return Ok(Ok(()));
                }
                Err(error) => return Ok(Err(error)),
            };
            counts.shared_bytes = counts.shared_bytes.saturating_add(done);
            self.release(environment, piece.target_offset, done, counts)?;
            piece.source_offset = piece.source_offset.saturating_add(done);
            piece.target_offset = piece.target_offset.saturating_add(done);
            piece.length = piece.length.saturating_sub(done);
        }
        Ok(Ok(()))
    }

    /// Counts what the target owned in a range that it shares now.
    fn release<F: Files, C: Control>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        start: u64,
        length: u64,
        counts: &mut Counts,
    ) -> Result<(), RunError> {
        let end = start.saturating_add(length.next_multiple_of(environment.files.block_bytes().max(1)));
        for extent in &self.target_map {
            let (from, to) = (extent.logical.max(start), extent.end().min(end));
            if from < to {
                let length = to.saturating_sub(from);
                let last = u64::from(!extent.shared);
                let saved = length.saturating_mul(last);
                counts.saved_bytes = counts.saved_bytes.saturating_add(saved);
                if extent.kind == ExtentKind::Encoded {
                    counts.encoded_bytes = counts.encoded_bytes.saturating_add(saved);
                }
                let physical = extent.physical.saturating_add(from.saturating_sub(extent.logical));
                self.released.push(environment.scratch, Released { physical, length: length & !1 | last })?;
            }
        }
        Ok(())
    }
}

fn length_of_count(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Collects the parts of a range whose bytes are two copies.
fn differing(source: &[Extent], target: &[Extent], range: ShareRange, into: &mut Vec<ShareRange>) {
    let mut done: u64 = 0;
    while done < range.length {
        let from = place_at(source, range.source_offset.saturating_add(done));
        let to = place_at(target, range.target_offset.saturating_add(done));
        let step = from.1.min(to.1).min(range.length.saturating_sub(done)).max(1);
        let source_offset = range.source_offset.saturating_add(done);
        let target_offset = range.target_offset.saturating_add(done);
        if from.0 != to.0 {
            match into.last_mut() {
                Some(last) if last.target_offset.saturating_add(last.length) == target_offset => {
                    last.length = last.length.saturating_add(step);
                }
                _ => into.push(ShareRange { source_offset, target_offset, length: step }),
            }
        }
        done = done.saturating_add(step);
    }
}

/// Returns the place of a byte on the device, nothing for zeros that are not stored, and the bytes for which it goes on.
fn place_at(map: &[Extent], offset: u64) -> (Option<(u64, u64)>, u64) {
    match map.get(map.partition_point(|extent| extent.end() <= offset)) {
        Some(extent) if extent.logical <= offset => {
            let inside = offset.saturating_sub(extent.logical);
            let place = if extent.kind == ExtentKind::Encoded {
                (extent.physical, inside.saturating_add(1))
            } else {
                (extent.physical.saturating_add(inside), 0)
            };
            (extent.kind.has_data().then_some(place), extent.length.saturating_sub(inside))
        }
        Some(extent) => (None, extent.logical.saturating_sub(offset)),
        None => (None, u64::MAX),
    }
}

/// Returns the number of extents; those that follow each other on the device count once, whoever shares them.
fn runs(map: &[Extent]) -> usize {
    let follows = |one: &Extent, other: &Extent| {
        one.end() == other.logical && one.physical.saturating_add(one.length) == other.physical
    };
    let joined = map.iter().zip(map.iter().skip(1)).filter(|(one, other)| follows(one, other)).count();
    map.len().saturating_sub(joined)
}

/// Returns the extents of a file after it shares a range: those inside go, those across its ends are cut.
fn extents_after(
    extents: usize,
    source: &[Extent],
    target: &[Extent],
    range: ShareRange,
    size: u64,
) -> usize {
    let start = range.target_offset;
    let end = start.saturating_add(range.length);
    let before = target.iter().filter(|extent| extent.logical < start && extent.end() > start).count();
    let after = target.iter().filter(|extent| extent.logical < end && extent.end() > end).count();
    let cut = before.saturating_add(if end >= size { 0 } else { after });
    extents.saturating_sub(runs(target)).saturating_add(cut).saturating_add(runs(source))
}

const _: () = assert!(RANGES_MAX <= EXTENTS_MAX);
