//! A space, piece by piece, with what cannot be given named.
//!
//! Rows that the map does not have are zeros, and are passed over. What cannot be read is asked for again in smaller pieces, down
//! to single blocks. Where the map itself cannot be read, nothing is known of a row, which is bad as a whole and never zeros.

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_future_pool::pooled;
use dolmen_pool::keys;
use dolmen_space::{READ_BYTES_MAX, Segment, Segments, Space, SpaceError, Spaces, UnreadableReason};
use dolmen_units::{BLOCK_BYTES, Bytes};

use crate::open::Rescued;
use crate::point_in_time::PointInTime;

/// Reads that are under way at once.
const READS: usize = 4;
/// Pieces that are tried where a whole one fails, from the longest to the shortest.
const SMALLER: [usize; 2] = [64 * 1024, BLOCK];
const BLOCK: usize = 4096;

const _: () = assert!(BLOCK as u64 == BLOCK_BYTES, "a block is a block, in memory and on disks");

/// Why a range cannot be given, or not without saying so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BadKind {
    /// No copy matches its checksum, and parity does not make up for it.
    NoGoodCopy,
    /// The disks that may have it are not here, or give nothing.
    Absent,
    /// Nothing is known of it: no copy of its table counts.
    TableLost,
    /// Nothing is known of it: its part of the map cannot be read.
    MapLost,
    /// It was lost before, and the pool had noted that.
    Damaged,
    /// It was given, and may be older than what was there: a table that said so is torn on one of its copies.
    Doubtful,
    /// No slab of its row was found, where nothing but slabs tells: it is zeros, which is right only if it was never written.
    NoSlab,
}

impl BadKind {
    /// Its name for programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoGoodCopy => "no_good_copy",
            Self::Absent => "absent",
            Self::TableLost => "table_lost",
            Self::MapLost => "map_lost",
            Self::Damaged => "damaged",
            Self::Doubtful => "doubtful",
            Self::NoSlab => "no_slab",
        }
    }

    /// Whether the range was not given.
    #[must_use]
    pub const fn is_missing(self) -> bool {
        !matches!(self, Self::Doubtful | Self::NoSlab)
    }
}

impl fmt::Display for BadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoGoodCopy => "no copy matches its checksum",
            Self::Absent => "the disks that hold it are missing",
            Self::TableLost => "no copy of its table can be believed",
            Self::MapLost => "its part of the map cannot be read",
            Self::Damaged => "it was lost before",
            Self::Doubtful => "it was given, and may be older than what was there",
            Self::NoSlab => "no slab of it was found; it is right only if it was never written",
        })
    }
}

/// A range that cannot be given, or not without saying so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadRange {
    /// First byte of the space.
    pub at: u64,
    /// Its length.
    pub length: Bytes,
    /// Why.
    pub kind: BadKind,
}

/// What an export gives next. What lies between two pieces is zeros.
#[derive(Debug)]
pub enum Piece {
    /// Content.
    Data {
        /// First byte of the space.
        at: u64,
        /// What stands there, in order.
        segments: Segments,
    },
    /// A range that cannot be given.
    Bad(BadRange),
}

/// A row that is to be read.
#[derive(Debug, Clone, Copy)]
enum Next {
    Row(u64),
    /// A row of which the map cannot be asked.
    Unknown(u64),
}

/// A space that is being given.
pub struct Export {
    space: Space,
    spaces: Rc<Spaces>,
    row: u64,
    rows: VecDeque<Next>,
    /// Where the next read of the row in front begins.
    within: u64,
    ready: VecDeque<Piece>,
    bad: Vec<BadRange>,
}

impl Export {
    #[pooled]
    pub(crate) async fn new(rescued: &Rescued, space: Space) -> Self {
        let row = space.spec().row_bytes().0;
        let size = space.size().0;
        let doubts = rescued.doubts.iter().filter(|doubt| doubt.space == space.id());
        let mut bad = Vec::new();
        for bytes in doubts.map(|doubt| doubt.bytes.clone()) {
            let end = bytes.end.min(size);
            if bytes.start < end {
                note(
                    &mut bad,
                    BadRange { at: bytes.start, length: Bytes(end - bytes.start), kind: BadKind::Doubtful },
                );
            }
        }
        let mut this = Self {
            space,
            spaces: Rc::clone(&rescued.spaces),
            row,
            rows: VecDeque::new(),
            within: 0,
            ready: VecDeque::new(),
            bad,
        };
        this.find_rows(size).await;
        if rescued.point_in_time == PointInTime::Slabs {
            this.note_gaps(size);
        }
        this
    }

    /// Bytes of the space.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.space.size()
    }

    /// Rows that are still to be read.
    #[must_use]
    pub fn rows_left(&self) -> usize {
        self.rows.len()
    }

    /// All ranges so far that cannot be given, or not without saying so, in order.
    #[must_use]
    pub fn bad(&self) -> Vec<BadRange> {
        let mut bad = self.bad.clone();
        bad.sort_by_key(|range| (range.at, range.kind));
        bad
    }

    /// The rows that the space has.
    async fn find_rows(&mut self, size: u64) {
        let count = size.div_ceil(self.row);
        let pool = self.spaces.pool();
        if let Ok(found) = pool.map().scan(keys::places(self.space.id(), 0..count), usize::MAX).await {
            self.rows = found.iter().map(|(key, _)| Next::Row(keys::parts(key).2)).collect();
            return;
        }
        // A part of the map is lost: each row is asked for by itself.
        for index in 0..count {
            match pool.map().get(&keys::place(self.space.id(), index)).await {
                Ok(Some(_)) => self.rows.push_back(Next::Row(index)),
                Ok(None) => {}
                Err(_) => self.rows.push_back(Next::Unknown(index)),
            }
        }
    }

    /// Names the rows of which nothing was found: they were never written, or their slabs are gone.
    fn note_gaps(&mut self, size: u64) {
        let mut from = 0;
        let found = self.rows.iter().map(|next| match next {
            Next::Row(index) | Next::Unknown(index) => *index,
        });
        for index in found.chain([size.div_ceil(self.row)]) {
            let (at, end) = (from * self.row, (index * self.row).min(size));
            if at < end {
                self.bad.push(BadRange { at, length: Bytes(end - at), kind: BadKind::NoSlab });
            }
            from = index + 1;
        }
    }

    /// The next piece; `None` at the end.
    #[allow(clippy::should_implement_trait)] // what it returns is a future
    #[pooled]
    pub async fn next(&mut self) -> Option<Piece> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Some(piece);
            }
            let next = *self.rows.front()?;
            let size = self.space.size().0;
            match next {
                Next::Unknown(index) => {
                    self.rows.pop_front();
                    let at = index * self.row;
                    self.give_bad(at, self.row.min(size - at), BadKind::MapLost);
                }
                Next::Row(index) => {
                    let (start, end) = (index * self.row, ((index + 1) * self.row).min(size));
                    let at = start + self.within;
                    let lengths = pieces(at, end, READ_BYTES_MAX);
                    let lengths: Vec<(u64, usize)> = lengths.take(READS).collect();
                    let read = lengths.last().map_or(end, |(at, length)| at + *length as u64);
                    self.read(&lengths).await;
                    self.within = read - start;
                    if read >= end {
                        self.within = 0;
                        self.rows.pop_front();
                    }
                }
            }
        }
    }

    async fn read(&mut self, lengths: &[(u64, usize)]) {
        let space = self.space.clone();
        let reads = lengths.iter().map(|(at, length)| space.read_kept(*at, *length));
        let answers = join_all(reads).await;
        for ((at, length), answer) in lengths.iter().zip(answers) {
            match answer {
                Ok(segments) => self.give(*at, segments),
                Err(_) => self.read_smaller(*at, *length).await,
            }
        }
    }

    /// Reads what could not be read as a whole.
    async fn read_smaller(&mut self, at: u64, length: usize) {
        let space = self.space.clone();
        let end = at + length as u64;
        for (at, length) in pieces(at, end, SMALLER[0]) {
            if let Ok(segments) = space.read_kept(at, length).await {
                self.give(at, segments);
                continue;
            }
            for (at, length) in pieces(at, at + length as u64, SMALLER[1]) {
                match space.read_kept(at, length).await {
                    Ok(segments) => self.give(at, segments),
                    Err(error) => self.give_bad(at, length as u64, kind_of(&error)),
                }
            }
        }
    }

    fn give(&mut self, at: u64, segments: Segments) {
        if segments.iter().any(|segment| matches!(segment, Segment::Data(_))) {
            self.ready.push_back(Piece::Data { at, segments });
        }
    }

    fn give_bad(&mut self, at: u64, length: u64, kind: BadKind) {
        let range = BadRange { at, length: Bytes(length), kind };
        note(&mut self.bad, range);
        self.ready.push_back(Piece::Bad(range));
    }
}

/// A range in pieces of at most so many bytes.
fn pieces(from: u64, end: u64, most: usize) -> impl Iterator<Item = (u64, usize)> {
    let starts = (from..end).step_by(most);
    starts.map(move |at| (at, usize::try_from(end - at).unwrap_or(usize::MAX).min(most)))
}

/// Adds a range to a list, joined to the one before it where that goes on.
fn note(bad: &mut Vec<BadRange>, range: BadRange) {
    match bad.last_mut() {
        Some(last) if last.kind == range.kind && last.at + last.length.0 == range.at => {
            last.length.0 += range.length.0;
        }
        _ => bad.push(range),
    }
}

fn kind_of(error: &SpaceError) -> BadKind {
    match error {
        SpaceError::Unreadable { why, .. } => match why {
            UnreadableReason::Damaged => BadKind::Damaged,
            UnreadableReason::NoGoodCopy => BadKind::NoGoodCopy,
            UnreadableReason::CorruptHere | UnreadableReason::Absent | UnreadableReason::Device(_) => {
                BadKind::Absent
            }
            UnreadableReason::NoTable => BadKind::TableLost,
        },
        _ => BadKind::MapLost,
    }
}
