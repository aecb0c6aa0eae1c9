//! What the server serves: the traits [`Exports`] and [`Export`], which a space implements, and what goes through them.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;

use dolmen_block_io::Durability;
use dolmen_buffer::{Buffer, Shared};
use dolmen_units::{BLOCK_BYTES, Bytes, SECTOR_BYTES};

use crate::reply::EXTENDED_EXTENT_BYTES;
use crate::wire::{Errno, STATE_HOLE, STATE_ZERO, Writer};

/// The most that one call of [`Export::read`] or [`Export::write`] is asked for. Longer requests come in pieces, so that
/// a request never needs more memory than this at a time.
pub const PIECE_BYTES_MAX: u64 = 1 << 20;
/// The longest block that the protocol lets a server prefer.
const PREFERRED_BYTES_MAX: u32 = 32 << 20;
/// Extents in one answer to block status.
pub const EXTENTS_MAX: usize = 480;
/// Bytes of an extent in a structured reply.
const EXTENT_BYTES: usize = 8;
/// Memory for a whole answer to block status: one small frame.
pub(crate) const EXTENTS_BYTES_MAX: usize = 4096;

/// Extents in one extended answer.
const WIDE_EXTENTS_MAX: usize = EXTENTS_MAX / 2;

const _: () = assert!(EXTENTS_MAX * EXTENT_BYTES <= EXTENTS_BYTES_MAX, "an answer fits its memory");
const _: () =
    assert!(WIDE_EXTENTS_MAX * EXTENDED_EXTENT_BYTES <= EXTENTS_BYTES_MAX, "so does an extended one");
const _: () = assert!(PIECE_BYTES_MAX <= dolmen_buffer::FRAME_BYTES_MAX as u64, "a piece fits a frame");

/// Whether an export takes changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads and changes.
    ReadWrite,
    /// Reads alone; everything else is answered with `EPERM`.
    ReadOnly,
}

/// What the medium is like to seek on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Seeks cost nothing.
    Flash,
    /// Seeks cost time.
    Rotational,
}

/// What a client is told of an export. A session takes it once, when the client chooses the export; a space that grows
/// is seen at its new size by the next connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The name.
    pub name: String,
    /// A sentence for people; may be empty.
    pub description: String,
    /// The size; a multiple of `block_bytes_min`.
    pub size: Bytes,
    /// The logical sector, 512 or 4096, which clients that ask are told to keep to. Others are served at any byte.
    pub block_bytes_min: u32,
    /// The length from which on requests are cheap, such as the interleave: a power of two, 4 KiB to 32 MiB.
    pub block_bytes_preferred: u32,
    /// Whether it takes changes.
    pub access: Access,
    /// What seeks cost.
    pub medium: Medium,
}

impl Profile {
    /// Panics where an implementor breaks the rules of the fields above; the protocol would be broken by them.
    pub(crate) fn assert_valid(&self) {
        let smallest = u64::from(self.block_bytes_min);
        assert!(
            smallest == SECTOR_BYTES || smallest == BLOCK_BYTES,
            "a sector has 512 or 4096 bytes, not {smallest}"
        );
        assert!(self.block_bytes_preferred.is_power_of_two(), "the preferred block is a power of two");
        assert!(self.block_bytes_preferred >= 4096, "the preferred block holds a block of the engine");
        assert!(
            self.block_bytes_preferred <= PREFERRED_BYTES_MAX,
            "the preferred block is not above what the protocol allows"
        );
        assert!(self.size.0.is_multiple_of(smallest), "the size is a whole number of sectors");
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self {
            name: "sample".to_owned(),
            description: String::new(),
            size: Bytes::mib(1),
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            access: Access::ReadWrite,
            medium: Medium::Flash,
        }
    }
}

/// Whether zeroing may give memory back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holes {
    /// The range may become unallocated.
    Allowed,
    /// The range stays, or becomes, allocated: a later write there does not fail for want of space.
    Forbidden,
}

/// Whether zeroing may take as long as writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroMode {
    /// However long it takes.
    Any,
    /// Only if it is faster than writing zeros; else [`ExportError::NotFast`], at once and without effect.
    OnlyFast,
}

/// What to zero, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zeroing {
    /// Which range.
    pub range: Range<u64>,
    /// Whether it may become unallocated.
    pub holes: Holes,
    /// Whether it may take long.
    pub zero_mode: ZeroMode,
    /// What completion promises.
    pub durability: Durability,
}

/// Why an export did not do what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportError {
    /// No copy of the content can be read, or the change could not be made redundant.
    Failed,
    /// The pool is full.
    NoSpace,
    /// The export takes no changes (any more).
    ReadOnly,
    /// The range is not in the export (any more).
    OutOfRange,
    /// Zeroing would not be fast.
    NotFast,
    /// The export is being closed.
    Stopping,
}

impl ExportError {
    /// The error number that answers it.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Failed => Errno::Io,
            Self::NoSpace => Errno::NoSpace,
            Self::ReadOnly => Errno::Permission,
            Self::OutOfRange => Errno::Invalid,
            Self::NotFast => Errno::NotSupported,
            Self::Stopping => Errno::Shutdown,
        }
    }

    /// The text for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Failed => "the content could not be read or written; see the status of the pool",
            Self::NoSpace => "the pool has no space left; free some or add a disk",
            Self::ReadOnly => "the export takes no changes",
            Self::OutOfRange => "the range is not in the export any more",
            Self::NotFast => "zeroing here would not be faster than writing",
            Self::Stopping => "the export is being closed",
        }
    }
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for ExportError {}

/// A read that failed at some place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("reading at byte {at}: {error}")]
pub struct ReadError {
    /// The first byte, as an offset in the export, that could not be read.
    pub at: u64,
    /// Why.
    pub error: ExportError,
}

/// A part of what was read.
#[derive(Debug)]
pub enum Segment {
    /// Bytes, sent to the client from where they are.
    Data(Shared),
    /// So many zeros, for which nothing is stored. Never 0.
    Zeros(u64),
}

impl Segment {
    /// The length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        match self {
            Self::Data(bytes) => bytes.len() as u64,
            Self::Zeros(length) => *length,
        }
    }
}

/// What was read: segments that follow each other without a gap. The list is used again for the next read, so that in
/// the steady state nothing is allocated.
#[derive(Debug, Default)]
pub struct Segments {
    list: VecDeque<Segment>,
    length: u64,
}

impl Segments {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends bytes.
    pub fn push_data(&mut self, bytes: Shared) {
        self.length += bytes.len() as u64;
        self.list.push_back(Segment::Data(bytes));
    }

    /// Appends zeros, joined to zeros before them. A length of 0 changes nothing.
    pub fn push_zeros(&mut self, length: u64) {
        self.length += length;
        match self.list.back_mut() {
            Some(Segment::Zeros(before)) => *before += length,
            _ if length == 0 => {}
            _ => self.list.push_back(Segment::Zeros(length)),
        }
    }

    /// The length of all segments together.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The segments, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Segment> + '_ {
        self.list.iter()
    }

    /// Takes the first segment out.
    pub(crate) fn pop(&mut self) -> Option<Segment> {
        let segment = self.list.pop_front()?;
        self.length -= segment.length();
        Some(segment)
    }

    /// Drops what lies behind the first `length` bytes.
    pub fn truncate(&mut self, length: u64) {
        while self.length > length {
            let Some(last) = self.list.pop_back() else { return };
            self.length -= last.length();
            let keep = length.saturating_sub(self.length);
            match last {
                _ if keep == 0 => {}
                Segment::Zeros(_) => self.push_zeros(keep),
                Segment::Data(bytes) => {
                    self.push_data(
                        bytes.slice(0..usize::try_from(keep).unwrap_or(usize::MAX).min(bytes.len())),
                    );
                    return;
                }
            }
        }
    }
}

/// What is stored for a stretch of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockState {
    /// Content, or not known.
    Data,
    /// Allocated, and reads as zeros.
    Zeros,
    /// Not allocated, and reads as zeros.
    Hole,
}

impl BlockState {
    const fn bits(self) -> u32 {
        match self {
            Self::Data => 0,
            Self::Zeros => STATE_ZERO,
            Self::Hole => STATE_HOLE | STATE_ZERO,
        }
    }
}

/// How long an extent's fields are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// 32 bits each, in structured replies.
    Narrow,
    /// 64 bits each, in extended ones.
    Wide,
}

impl Width {
    const fn extent_bytes(self) -> usize {
        match self {
            Self::Narrow => EXTENT_BYTES,
            Self::Wide => EXTENDED_EXTENT_BYTES,
        }
    }

    const fn extents_max(self) -> usize {
        match self {
            Self::Narrow => EXTENTS_MAX,
            Self::Wide => WIDE_EXTENTS_MAX,
        }
    }
}

/// What an export answers to block status: extents that follow each other from the start of the range. It is written
/// in the form of the wire, into memory of the arena.
#[derive(Debug)]
pub struct Extents {
    buffer: Buffer,
    used: usize,
    count_max: usize,
    /// Bytes of the range that no extent covers yet.
    left: u64,
    last: Option<(BlockState, u64)>,
    width: Width,
}

impl Extents {
    pub(crate) fn new(buffer: Buffer, length: u64, count_max: usize, width: Width) -> Self {
        assert!(buffer.len() >= EXTENTS_BYTES_MAX, "memory for the longest answer");
        let count_max = count_max.clamp(1, width.extents_max());
        Self { buffer, used: 0, count_max, left: length, last: None, width }
    }

    /// Appends an extent, joined to the one before when the state is the same and cut at the end of the range.
    /// Returns how many bytes of the range are still wanted: at 0 the answer is complete, or full, and further calls
    /// change nothing. An incomplete answer is allowed, an empty one is not.
    pub fn push(&mut self, length: u64, state: BlockState) -> u64 {
        let length = length.min(self.left);
        if length == 0 {
            return self.left;
        }
        match self.last {
            Some((before, sum)) if before == state => self.last = Some((state, sum + length)),
            Some(_) if self.stored_count() + 1 >= self.count_max => {
                self.left = 0;
                return 0;
            }
            _ => {
                self.store();
                self.last = Some((state, length));
            }
        }
        self.left -= length;
        self.left
    }

    /// The state of the first extent, for as long as there is one alone.
    pub(crate) fn first_state(&self) -> Option<BlockState> {
        self.last.filter(|_| self.used == 0).map(|(state, _)| state)
    }

    fn stored_count(&self) -> usize {
        self.used / self.width.extent_bytes()
    }

    fn store(&mut self) {
        if let Some((state, length)) = self.last.take() {
            let mut writer = Writer::new(self.buffer.get_mut(self.used..).unwrap_or_default());
            match self.width {
                Width::Narrow => {
                    // A range has at most 2^32 - 1 bytes in a compact request, so a part of one fits.
                    let Ok(length) = u32::try_from(length) else {
                        panic!("{length} bytes exceed any compact request")
                    };
                    writer.put(&length.to_be_bytes()).put(&state.bits().to_be_bytes());
                }
                Width::Wide => {
                    writer.put(&length.to_be_bytes()).put(&u64::from(state.bits()).to_be_bytes());
                }
            }
            self.used += writer.used();
        }
    }

    /// The extents in the form of the wire; `None` when there is none.
    pub(crate) fn finish(mut self) -> Option<Shared> {
        self.store();
        (self.used > 0).then(|| {
            self.buffer.truncate(self.used);
            self.buffer.freeze()
        })
    }
}

/// Something that is served, open for one connection.
///
/// The contract:
/// - The session checks ranges: they lie in the size that [`profile`](Self::profile) told, are multiples of its smallest
///   block and not empty. Reads and writes come in pieces of at most [`PIECE_BYTES_MAX`].
/// - Calls run side by side, up to [`IN_FLIGHT_MAX`](crate::IN_FLIGHT_MAX) for each connection, and take effect in any
///   order; overlapping writes leave each block at one of them.
/// - A change that was acknowledged is seen by every later read, *on every connection to this export*.
/// - A flush makes durable every change that was acknowledged before the flush began, *on whichever connection*; so does
///   a change asked to be [`Durable`](Durability::Durable) for itself. Clients are told so (`CAN_MULTI_CONN`), and use
///   several connections only because of it. After a failed flush, no later flush takes the failure back.
/// - A call takes the memory that it needs from the arena in one go, and waits for no more while it holds some: calls of
///   all connections run side by side, and would else wait for each other.
/// - No future is dropped before it is ready; the session waits even when its client is gone.
pub trait Export {
    /// What clients are told. Constant for the life of the object.
    fn profile(&self) -> &Profile;

    /// Appends the content of `range`, which begins and ends at any byte, to `into`, which is empty: without a gap, and as long as the range. After an
    /// error, what was appended is sent as far as it lies before the place of the error.
    fn read(&self, range: Range<u64>, into: &mut Segments) -> impl Future<Output = Result<(), ReadError>>;

    /// Waits until it will take a write of so many bytes. Asked before memory for them is taken, so that an export that holds its
    /// clients back holds nothing meanwhile that others need; the connection is not read in that time.
    fn admit(&self, _bytes: u64) -> impl Future<Output = ()> {
        std::future::ready(())
    }

    /// Writes the bytes to offset `at` on, which may be any byte. Their memory begins at a multiple of 4096. Bytes around the
    /// range stay as they are, also while others write them.
    fn write(
        &self,
        at: u64,
        from: Shared,
        durability: Durability,
    ) -> impl Future<Output = Result<(), ExportError>>;

    /// Makes acknowledged changes durable.
    fn flush(&self) -> impl Future<Output = Result<(), ExportError>>;

    /// Forgets the content of the range, as far as that is possible: of parts of blocks it is not. It reads as it did, or as zeros.
    fn discard(
        &self,
        range: Range<u64>,
        durability: Durability,
    ) -> impl Future<Output = Result<(), ExportError>>;

    /// Makes the range read as zeros.
    fn write_zeroes(&self, zeroing: Zeroing) -> impl Future<Output = Result<(), ExportError>>;

    /// Tells what is stored, from the start of the range on; at least one extent.
    fn block_status(
        &self,
        range: Range<u64>,
        into: &mut Extents,
    ) -> impl Future<Output = Result<(), ExportError>>;

    /// Reads ahead, as far as that is useful.
    fn cache(&self, range: Range<u64>) -> impl Future<Output = Result<(), ExportError>>;
}

/// Why an export is not opened or not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is none of that name.
    #[error("there is no export of that name")]
    Unknown,
    /// There is, and this client may not have it.
    #[error("access to the export is not allowed")]
    NotAllowed,
    /// The server is about to stop.
    #[error("the server is stopping")]
    Stopping,
}

/// One line of the list of exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: String,
    /// A sentence for people; may be empty.
    pub description: String,
}

/// All that a server serves.
pub trait Exports {
    /// What is served.
    type Export: Export + 'static;
    /// Who a connection is from, as far as the caller of [`Server::serve`](crate::Server::serve) knows: what an export is
    /// opened or withheld by.
    type Visitor: 'static;

    /// Opens the export called `name`, for one connection, until the handle is dropped. The empty name asks for the
    /// default export, if there is one.
    fn open(
        &self,
        visitor: &Self::Visitor,
        name: &str,
    ) -> impl Future<Output = Result<Rc<Self::Export>, Refusal>>;

    /// The exports that this client may see.
    fn list(&self, visitor: &Self::Visitor) -> impl Future<Output = Result<Vec<Listed>, Refusal>>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use dolmen_buffer::{Arena, ArenaConfig};
    use proptest::prelude::*;

    fn arena() -> Arena {
        Arena::new(ArenaConfig { small_count: 32, medium_count: 0, large_count: 0 })
    }

    fn state() -> impl Strategy<Value = BlockState> {
        prop_oneof![Just(BlockState::Data), Just(BlockState::Zeros), Just(BlockState::Hole)]
    }

    proptest! {
        // Segments cut at any place are the beginning of the bytes that they stand for.
        #[test]
        fn cut_segments_are_the_beginning(parts in proptest::collection::vec((any::<bool>(), 1u64..50), 0..12), keep in 0u64..700) {
            let arena = arena();
            let mut segments = Segments::new();
            let mut model = Vec::new();
            for (number, (data, length)) in (1u8..).zip(parts) {
                let len = usize::try_from(length).unwrap();
                if data {
                    let mut buffer = arena.try_take(len).unwrap();
                    buffer.fill(number);
                    segments.push_data(buffer.freeze());
                } else {
                    segments.push_zeros(length);
                }
                model.resize(model.len() + len, if data { number } else { 0 });
            }
            segments.truncate(keep);
            model.truncate(usize::try_from(keep).unwrap());
            prop_assert_eq!(segments.length(), model.len() as u64);
            let mut found = Vec::new();
            while let Some(segment) = segments.pop() {
                match segment {
                    Segment::Data(bytes) => found.extend_from_slice(&bytes),
                    Segment::Zeros(length) => found.resize(found.len() + usize::try_from(length).unwrap(), 0),
                }
            }
            prop_assert_eq!(found, model);
            prop_assert_eq!((segments.length(), arena.lent_count()), (0, 0));
        }

        // Extents are the beginning of the states pushed, neighbours joined, within count and length.
        #[test]
        fn extents_are_joined_and_bounded(
            pushes in proptest::collection::vec((0u64..40, state()), 0..40),
            length in 1u64..400,
            count_max in 1usize..20,
            is_wide: bool,
        ) {
            let width = if is_wide { Width::Wide } else { Width::Narrow };
            let memory = arena().try_take(EXTENTS_BYTES_MAX).unwrap();
            let mut extents = Extents::new(memory, length, count_max, width);
            let mut model = Vec::new();
            let mut wanted = length;
            for (length, state) in pushes {
                model.resize(model.len() + usize::try_from(length).unwrap(), state.bits());
                wanted = extents.push(length, state);
            }
            let bytes = extents.finish();
            let word = |word: &[u8]| word.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
            let words: Vec<u64> = bytes.iter().flat_map(|bytes| bytes.chunks(width.extent_bytes() / 2)).map(word).collect();
            let mut found = Vec::new();
            for pair in words.chunks(2) {
                let state = u32::try_from(pair[1]).unwrap();
                prop_assert!(pair[0] > 0 && found.last() != Some(&state));
                found.resize(found.len() + usize::try_from(pair[0]).unwrap(), state);
            }
            prop_assert!(words.len() / 2 <= count_max && found.len() as u64 <= length);
            prop_assert!(model.starts_with(&found));
            prop_assert_eq!(found.is_empty(), model.is_empty());
            // It stops early only when it is full or complete.
            let all = model.len().min(usize::try_from(length).unwrap());
            prop_assert!(found.len() == all || (words.len() / 2 == count_max && wanted == 0));
        }
    }
}
