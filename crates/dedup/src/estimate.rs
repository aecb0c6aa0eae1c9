//! Estimate: the part of the bytes that sharing would free, from a sample, with an interval.
//!
//! A sample of files, or of pieces, would miss most copies: both would have to be drawn. So units are drawn that a copy shares
//! with its original: the number of a piece, together with the size of its file where that is below 16 MiB. All files with a
//! drawn unit are read there. Copies at other offsets, in files of other sizes, are missed; the estimate is a lower bound then.
//!
//! Units are dealt to [`GROUPS`] groups; the interval is that of a jackknife over the groups, at 95 %, for the undrawn part.

use crate::index::Entry;
use crate::piece::{DataPieces, PIECE_BYTES, Piece, Place, hash, pieces};
use crate::policy::Policy;
use crate::run::{Environment, RunError};
use crate::scan::{FileBuffers, is_excluded, listed, open_unchanged};
use crate::seam::{Control, Files, Phase, Scratch};
use crate::share::LARGE_FILE_BYTES;
use crate::sort::{Buffers, Sorted, Sorter, Writer, length_of};

/// Groups of the jackknife.
const GROUPS: usize = 64;
/// Standard errors from the middle to an end of the interval: 95 % for 63 degrees of freedom.
const ERRORS: f64 = 2.0;

/// Size of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Part of the bytes that is read, from 0 to 1.
    pub part: f64,
    /// Bytes that are read at least, if the volume has them.
    pub bytes_min: u64,
}

impl Default for Sample {
    fn default() -> Self {
        Self { part: 0.01, bytes_min: 256 << 20 }
    }
}

/// Estimate of what sharing would free.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Files that would take part.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Bytes that were read.
    pub sample_bytes: u64,
    /// Part of the bytes that would be freed, from 0 to 1.
    pub saving: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Estimates; `None` if the caller stopped it.
///
/// # Errors
/// The scratch folder fails, or the file system does not list its files.
pub fn estimate<F: Files, S: Scratch, C: Control>(
    files: &mut F,
    scratch: &mut S,
    control: &mut C,
    policy: &Policy,
    sample: Sample,
) -> Result<Option<Estimate>, RunError> {
    let mut environment = Environment { files, scratch, control };
    let buffers = Buffers::of(policy.memory_bytes());
    let Some(mut entries) = listed(&mut environment, policy, buffers)? else { return Ok(None) };
    let mut kept = Writer::new(environment.scratch, buffers)?;
    let (mut count, mut bytes, mut inode) = (0u64, 0u64, None);
    let mut file = FileBuffers::new();
    while let Some(entry) = entries.next(environment.scratch)? {
        if inode.replace(entry.inode) == Some(entry.inode)
            || is_excluded(&mut environment, policy, &entry, &mut file)
        {
            continue;
        }
        (count, bytes) = (count.saturating_add(1), bytes.saturating_add(entry.size));
        kept.push(environment.scratch, entry)?;
    }
    drop(entries);
    let part = sample.part.max(sample.bytes_min as f64 / bytes.max(1) as f64).clamp(0.0, 1.0);
    let mut drawing =
        Drawing { part, totals: [0.0; GROUPS], sample_bytes: 0, sorter: Sorter::new(buffers), file };
    let mut reader = crate::sort::Reader::<S, Entry>::new(kept.finish(environment.scratch)?, buffers);
    while let Some(entry) = reader.next(environment.scratch)? {
        if environment.stops(Phase::Estimate, 0, drawing.sample_bytes, (bytes as f64 * part).round_to_bytes())
        {
            return Ok(None);
        }
        drawing.read(&mut environment, &entry)?;
    }
    let drawn = drawing.sorter.finish(environment.scratch)?;
    let saved = saved(environment.scratch, drawn)?;
    let (saving, error) = jackknife(&saved, &drawing.totals);
    let error = ERRORS * error * (1.0 - part).sqrt();
    Ok(Some(Estimate {
        files: count,
        bytes,
        sample_bytes: drawing.sample_bytes,
        saving,
        low: (saving - error).max(0.0),
        high: (saving + error).min(1.0),
    }))
}

/// Conversion of a count that arithmetic of floating point gave.
trait RoundToBytes {
    fn round_to_bytes(self) -> u64;
}

impl RoundToBytes for f64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // the cast saturates, and the count is for display
    fn round_to_bytes(self) -> u64 {
        self.max(0.0) as u64
    }
}

/// Returns a number that looks random, the same for the same unit in every run.
const fn unit(size: u64, block: u64) -> u64 {
    let size = if size < LARGE_FILE_BYTES { size } else { 0 };
    let mut mixed = size.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ block.wrapping_mul(0xd1b5_4a32_d192_ed03)
        ^ 0x5851_f42d_4c95_7f2d;
    mixed = (mixed ^ mixed >> 32).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ mixed >> 29).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    mixed ^ mixed >> 32
}

/// Returns `true` if the unit of a piece belongs to a sample of this part.
fn draws(part: f64, size: u64, block: u64) -> bool {
    part >= 1.0 || (unit(size, block) >> 11) as f64 / (1u64 << 53) as f64 <= part
}

struct Drawing<S: Scratch> {
    part: f64,
    totals: [f64; GROUPS],
    sample_bytes: u64,
    /// Drawn pieces, with the group in place of the file.
    sorter: Sorter<S, Piece>,
    file: FileBuffers,
}

impl<S: Scratch> Drawing<S> {
    fn read<F: Files, C: Control>(
        &mut self,
        environment: &mut Environment<'_, F, S, C>,
        entry: &Entry,
    ) -> Result<(), RunError> {
        if !(0..entry.size.div_ceil(PIECE_BYTES)).any(|block| draws(self.part, entry.size, block)) {
            return Ok(());
        }
        let handle = match open_unchanged(environment, entry, &mut self.file.extents) {
            Ok(handle) => handle,
            Err(reason) => {
                environment.control.skipped(entry.id(), reason);
                return Ok(());
            }
        };
        let mut ranges = DataPieces::new(&self.file.extents, entry.size);
        while let Some(range) = ranges.next_range(PIECE_BYTES) {
            let block = range.start / PIECE_BYTES;
            let drawn = draws(self.part, entry.size, block);
            let wanted = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0);
            let Some(content) = self.file.content.get_mut(..wanted).filter(|_| drawn) else { continue };
            match environment.files.read(&handle, range.start, content) {
                Ok(read) if read == wanted => {}
                Ok(_) => break,
                Err(error) => {
                    environment.control.skipped(entry.id(), error.into());
                    break;
                }
            }
            let group = unit(entry.size, block).rotate_left(21) % GROUPS as u64;
            let group = u32::try_from(group).unwrap_or(0);
            if let Some(total) = self.totals.get_mut(usize::try_from(group).unwrap_or(0)) {
                *total += wanted as f64;
            }
            self.sample_bytes = self.sample_bytes.saturating_add(length_of(content));
            for (block, start, content) in pieces(range.start, content) {
                let Some(hash) = hash(content) else { continue };
                let place = Place::of(&self.file.extents, start, length_of(content));
                self.sorter.push(environment.scratch, Piece { hash, place, file: group, block })?;
            }
        }
        Ok(())
    }
}

/// Returns the bytes of copies after the first, by group.
fn saved<S: Scratch>(scratch: &mut S, mut drawn: Sorted<S, Piece>) -> Result<[f64; GROUPS], RunError> {
    let mut saved = [0.0; GROUPS];
    let mut last: Option<Piece> = None;
    while let Some(piece) = drawn.next(scratch)? {
        let is_copy = last.is_some_and(|last| last.hash == piece.hash && last.place != piece.place);
        if is_copy && let Some(sum) = saved.get_mut(usize::try_from(piece.file).unwrap_or(0)) {
            *sum += piece.place.length() as f64;
        }
        last = Some(piece);
    }
    Ok(saved)
}

/// Returns the ratio of two sums and its standard error.
fn jackknife(saved: &[f64; GROUPS], totals: &[f64; GROUPS]) -> (f64, f64) {
    let (sum, total): (f64, f64) = (saved.iter().sum(), totals.iter().sum());
    if total <= 0.0 {
        return (0.0, 0.0);
    }
    let ratio = sum / total;
    let squares: f64 = saved
        .iter()
        .zip(totals)
        .filter(|(_, group)| total > **group)
        .map(|(saved, group)| ((sum - saved) / (total - group) - ratio).powi(2))
        .sum();
    (ratio, (squares * (GROUPS as f64 - 1.0) / GROUPS as f64).sqrt())
}
