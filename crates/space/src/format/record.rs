//! Records of blocks: what the log says was written where.

use dolmen_mutation::mutation;
use dolmen_units::{Epoch, Lsn, RowId};
use smallvec::SmallVec;
use zerocopy::{FromBytes, IntoBytes};

use crate::format::raw::{
    BLOCKS_MAX, RECORD_CACHED, RECORD_DISCARDED, RECORD_DONE, RECORD_REDO, RawBlockExtent, RawMapping,
    RawOwner, RawPlace, RawRedo, STATE_DAMAGED, STATE_NEVER, STATE_VALID,
};

/// Bytes of the head of an extent.
pub(crate) const EXTENT_HEAD_BYTES: usize = size_of::<RawBlockExtent>();
/// Bytes of the head of a mapping.
pub(crate) const MAPPING_HEAD_BYTES: usize = EXTENT_HEAD_BYTES + size_of::<RawMapping>();
/// Bytes of the checksum of a block.
pub(crate) const CHECKSUM_BYTES: usize = 4;
/// Bytes of a block that is stated alone: the head of an extent and a checksum.
pub(crate) const BLOCK_STATED_BYTES: u64 = 28;
const _: () = assert!(BLOCK_STATED_BYTES == (EXTENT_HEAD_BYTES + CHECKSUM_BYTES) as u64);
/// Bits of `intent` that entries have.
const INTENT_BITS: u8 = 15;
/// The bit of `intent` that is reserved for entries that carry the content of their blocks: nothing writes it, and a reader that
/// passed over it would take content for the next entry.
const INTENT_CARRIES: u8 = 16;
/// Bits of an epoch that an entry keeps.
const STAMP_BITS: u32 = 24;

/// The low bits of the epoch in which a block was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stamp(pub(crate) [u8; 3]);

impl Stamp {
    /// The stamp of an epoch.
    pub(crate) fn of(epoch: Epoch) -> Self {
        let bytes = epoch.0.to_le_bytes();
        Self([bytes[0], bytes[1], bytes[2]])
    }

    /// The later one of two stamps that are less than half of the range apart, as those in one log are.
    pub(crate) fn latest(self, other: Self) -> Self {
        let number = |stamp: Self| u32::from_le_bytes([stamp.0[0], stamp.0[1], stamp.0[2], 0]);
        let ahead = number(self).wrapping_sub(number(other)) % (1 << STAMP_BITS);
        if ahead < 1 << (STAMP_BITS - 1) { self } else { other }
    }

    /// Whether a block with this stamp was written in epoch `since` or later, `now` being the latest. A disk that stayed
    /// away for more epochs than stamps can tell apart missed everything.
    pub(crate) fn is_since(self, since: Epoch, now: Epoch) -> bool {
        let range = 1u64 << STAMP_BITS;
        if now.0.saturating_sub(since.0) >= range - 1 {
            return true;
        }
        let stamp = u64::from(u32::from_le_bytes([self.0[0], self.0[1], self.0[2], 0]));
        // How many epochs ago, which is less than the range by what was just checked.
        let ago = (now.0 % range + range - stamp) % range;
        ago <= now.0 - since.0
    }
}

/// What is known of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum BlockState {
    /// Reads as zeros.
    #[default]
    Never,
    /// Reads as data with this CRC-32C.
    Valid(u32),
    /// Reads fail.
    Damaged,
}

impl BlockState {
    /// The state of an entry; an unknown one is damage.
    pub(crate) fn from_parts(state: u8, checksum: u32) -> Self {
        match state {
            STATE_NEVER => Self::Never,
            STATE_VALID => Self::Valid(checksum),
            _ => Self::Damaged,
        }
    }

    /// The state as an entry has it.
    pub(crate) fn parts(self) -> (u8, u32) {
        match self {
            Self::Never => (STATE_NEVER, 0),
            Self::Valid(checksum) => (STATE_VALID, checksum),
            Self::Damaged => (STATE_DAMAGED, 0),
        }
    }
}

/// An extent of blocks of one column with one state, as a record says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockExtent {
    pub(crate) row: RowId,
    pub(crate) column: u8,
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) stamp: Stamp,
    pub(crate) state: u8,
    pub(crate) intent: bool,
    /// Whether it is not durable, whatever its place in the log: nobody could decide it yet.
    pub(crate) in_doubt: bool,
    /// Whether it takes the place of all that the log says earlier of these blocks.
    pub(crate) supersedes: bool,
    /// Whether a flush had covered it before it was said, so that it needs no mark of the log.
    pub(crate) covered: bool,
    /// Low bits of the generation that the page of these blocks has on its disks for certain.
    pub(crate) generation: u16,
}

impl BlockExtent {
    fn of(raw: &RawBlockExtent) -> Self {
        Self {
            row: RowId(raw.row.get()),
            column: raw.column,
            first: raw.first.get(),
            count: raw.count.get(),
            stamp: Stamp(raw.stamp),
            state: raw.state,
            intent: raw.intent & 1 != 0,
            in_doubt: raw.intent & 2 != 0,
            supersedes: raw.intent & 4 != 0,
            covered: raw.intent & 8 != 0,
            generation: raw.generation.get(),
        }
    }

    /// The head of the extent; a valid one is followed by `count` checksums of four bytes.
    pub(crate) fn head(&self) -> [u8; EXTENT_HEAD_BYTES] {
        let raw = RawBlockExtent {
            row: self.row.0.into(),
            first: self.first.into(),
            count: self.count.into(),
            stamp: self.stamp.0,
            state: self.state,
            column: self.column,
            intent: u8::from(self.intent)
                | u8::from(self.in_doubt) << 1
                | u8::from(self.supersedes) << 2
                | u8::from(self.covered) << 3,
            generation: self.generation.into(),
        };
        let mut bytes = [0; EXTENT_HEAD_BYTES];
        bytes.copy_from_slice(raw.as_bytes());
        bytes
    }
}

/// An extent that was read from the log, with its checksums.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadBlockExtent<'a> {
    pub(crate) extent: BlockExtent,
    checksums: &'a [u8],
    /// The first byte of its head in the record.
    pub(crate) at: usize,
}

impl ReadBlockExtent<'_> {
    /// The state of block `index` of the extent.
    pub(crate) fn state(&self, index: u32) -> BlockState {
        BlockState::from_parts(self.extent.state, checksum_at(self.checksums, index))
    }
}

/// A block of the write cache, as records name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub(crate) row: RowId,
    pub(crate) block: u32,
}

impl Place {
    fn of(raw: RawPlace) -> Self {
        Self { row: RowId(raw.row.get()), block: raw.block.get() }
    }

    fn raw(self) -> RawPlace {
        RawPlace { row: self.row.0.into(), block: self.block.into() }
    }

    /// The block so many places behind it.
    pub(crate) fn plus(self, blocks: u32) -> Self {
        Self { block: self.block.saturating_add(blocks), ..self }
    }
}

/// Where blocks of a row that follow each other lie in the write cache, as a record says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) row: RowId,
    /// First block of the row, and how many.
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// Where the first is; `None` where they were discarded.
    pub(crate) place: Option<Place>,
    /// The record that said so first, if it is another one.
    pub(crate) since: Option<Lsn>,
    /// Whether it counts as not covered by a flush, whatever its place in the log.
    pub(crate) in_doubt: bool,
    /// Whether a flush had covered it before it was said.
    pub(crate) covered: bool,
    /// Whether it came to nothing, whatever was said of it before: the write failed.
    pub(crate) void: bool,
}

impl Mapping {
    /// The head of the record; checksums of four bytes for each block follow where there is a place.
    pub(crate) fn head(&self) -> [u8; MAPPING_HEAD_BYTES] {
        let raw = RawBlockExtent {
            row: self.row.0.into(),
            first: self.first.into(),
            count: self.count.into(),
            stamp: [0; 3],
            state: if self.place.is_some() { RECORD_CACHED } else { RECORD_DISCARDED },
            column: 0,
            intent: u8::from(self.in_doubt) << 1 | u8::from(self.void) << 2 | u8::from(self.covered) << 3,
            generation: 0.into(),
        };
        let mapping = RawMapping {
            place: self.place.unwrap_or_default().raw(),
            since: self.since.unwrap_or_default().0.into(),
        };
        let mut bytes = [0; MAPPING_HEAD_BYTES];
        let all = raw.as_bytes().iter().chain(mapping.as_bytes());
        bytes.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
        bytes
    }
}

/// A mapping that was read from the log, with its checksums.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadMapping<'a> {
    pub(crate) mapping: Mapping,
    checksums: &'a [u8],
}

impl ReadMapping<'_> {
    /// The checksum of block `index` of the mapping.
    pub(crate) fn checksum(&self, index: u32) -> u32 {
        checksum_at(self.checksums, index)
    }
}

/// A stripe that is about to be written in place, as a record says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RedoHead {
    pub(crate) row: RowId,
    /// The row whose blocks the stripe has, if `row` is a shadow row.
    pub(crate) owner: Option<RowId>,
    /// Block of each column.
    pub(crate) stripe: u32,
    /// Whether a flush had covered it before it was said.
    pub(crate) covered: bool,
    /// Whether it came to nothing, whatever was said of it before: nothing was written in place.
    pub(crate) void: bool,
}

/// A block of a stripe that is about to be written in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RedoBlock {
    pub(crate) column: usize,
    pub(crate) state: BlockState,
    /// Where its content is, if it will be valid.
    pub(crate) place: Place,
    /// The first record of the version that this is, which ends with it, and all before it; none of parity.
    pub(crate) since: Option<Lsn>,
}

/// Adds the record of a stripe to a body.
pub(crate) fn push_redo(body: &mut impl Extend<u8>, head: RedoHead, blocks: &[RedoBlock]) {
    let count = u32::try_from(blocks.len()).unwrap_or(0);
    body.extend(head.bytes(RECORD_REDO, count));
    for block in blocks {
        let (state, checksum) = block.state.parts();
        let raw = RawRedo {
            column: u8::try_from(block.column).unwrap_or(0),
            state,
            reserved: [0; 2],
            checksum: checksum.into(),
            place: block.place.raw(),
            since: block.since.unwrap_or_default().0.into(),
        };
        body.extend(raw.as_bytes().iter().copied());
    }
}

/// Bytes of the record of a stripe of which so many columns change, at most.
pub(crate) const fn redo_bytes(columns: usize) -> u64 {
    (EXTENT_HEAD_BYTES + size_of::<RawOwner>() + columns * size_of::<RawRedo>()) as u64
}

/// The same redos, each of which came to nothing.
pub(crate) fn void_redos(body: &[u8]) -> Vec<u8> {
    let mut void = Vec::with_capacity(body.len());
    for entry in entries(body).flatten() {
        if let Entry::Redo(read) = entry {
            let blocks: Vec<RedoBlock> = read.blocks().collect();
            push_redo(&mut void, RedoHead { void: true, ..read.head }, &blocks);
        }
    }
    void
}

/// The record of a stripe that is in place: what is recorded of it before is over.
pub(crate) fn done(head: RedoHead) -> RedoHeadBytes {
    head.bytes(RECORD_DONE, 1)
}

/// Bytes of the head of a redo or of a *done*.
pub(crate) type RedoHeadBytes = SmallVec<[u8; EXTENT_HEAD_BYTES + size_of::<RawOwner>()]>;

impl RedoHead {
    fn of(raw: &RawBlockExtent, owner: Option<RowId>) -> Self {
        Self {
            row: RowId(raw.row.get()),
            owner,
            stripe: raw.first.get(),
            covered: raw.intent & 8 != 0,
            void: raw.intent & 4 != 0,
        }
    }

    fn bytes(self, state: u8, count: u32) -> RedoHeadBytes {
        let owner = self.owner.filter(|_| !mutation!(OwnerNotNamed));
        let raw = RawBlockExtent {
            row: self.row.0.into(),
            first: self.stripe.into(),
            count: count.into(),
            stamp: [0; 3],
            state,
            column: u8::from(owner.is_some()),
            intent: u8::from(self.void) << 2 | u8::from(self.covered) << 3,
            generation: 0.into(),
        };
        let mut bytes = RedoHeadBytes::from_slice(raw.as_bytes());
        if let Some(owner) = owner {
            bytes.extend_from_slice(RawOwner { owner: owner.0.into() }.as_bytes());
        }
        bytes
    }
}

/// A redo that was read from the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadRedo<'a> {
    pub(crate) head: RedoHead,
    blocks: &'a [RawRedo],
}

impl ReadRedo<'_> {
    /// The blocks that are written.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = RedoBlock> + '_ {
        self.blocks.iter().map(|raw| RedoBlock {
            column: usize::from(raw.column),
            state: BlockState::from_parts(raw.state, raw.checksum.get()),
            place: Place::of(raw.place),
            since: Some(Lsn(raw.since.get())).filter(|lsn| lsn.0 > 0),
        })
    }
}

fn checksum_at(checksums: &[u8], index: u32) -> u32 {
    let at = index as usize * 4;
    let bytes = checksums.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

/// What a record consists of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Entry<'a> {
    BlockExtent(ReadBlockExtent<'a>),
    Mapping(ReadMapping<'a>),
    Redo(ReadRedo<'a>),
    Done(RedoHead),
}

impl Entry<'_> {
    /// The row that it names first.
    pub(crate) fn row(&self) -> RowId {
        match self {
            Self::BlockExtent(read) => read.extent.row,
            Self::Mapping(read) => read.mapping.row,
            Self::Redo(ReadRedo { head, .. }) | Self::Done(head) => head.row,
        }
    }
}

/// The extent that begins at byte `at` of a record.
pub(crate) fn extent_at(body: &[u8], at: usize) -> Option<ReadBlockExtent<'_>> {
    match next_entry(&mut body.get(at..)?, at)? {
        Entry::BlockExtent(read) => Some(read),
        Entry::Mapping(_) | Entry::Redo(_) | Entry::Done(_) => None,
    }
}

/// The extents of a record; `None` in place of the rest when it makes no sense.
pub(crate) fn extents(body: &[u8]) -> impl Iterator<Item = Option<ReadBlockExtent<'_>>> {
    entries(body).filter_map(|entry| match entry {
        Some(Entry::BlockExtent(read)) => Some(Some(read)),
        Some(Entry::Mapping(_) | Entry::Redo(_) | Entry::Done(_)) => None,
        None => Some(None),
    })
}

/// All that a record consists of; `None` in place of the rest when it makes no sense.
pub(crate) fn entries(body: &[u8]) -> impl Iterator<Item = Option<Entry<'_>>> {
    let mut rest = body;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let at = body.len() - rest.len();
        let entry = next_entry(&mut rest, at);
        if entry.is_none() {
            rest = &[];
        }
        Some(entry)
    })
}

fn next_entry<'a>(rest: &mut &'a [u8], at: usize) -> Option<Entry<'a>> {
    let (raw, after) = RawBlockExtent::read_from_prefix(rest).ok()?;
    let (first, count) = (raw.first.get(), raw.count.get());
    // Whoever reads an entry goes through its blocks one by one: no row has more, so no entry may.
    let end = match raw.state {
        RECORD_REDO | RECORD_DONE => u64::from(first) + 1,
        _ => u64::from(first) + u64::from(count),
    };
    let carries = raw.intent & INTENT_CARRIES != 0 && !mutation!(CarriesRead);
    if carries || raw.intent & !(INTENT_BITS | INTENT_CARRIES) != 0 || count == 0 || end > BLOCKS_MAX {
        return None;
    }
    let (entry, after) = match raw.state {
        STATE_NEVER | STATE_VALID | STATE_DAMAGED => {
            let (checksums, after) = after.split_at_checked(checksum_bytes(&raw, STATE_VALID)?)?;
            (Entry::BlockExtent(ReadBlockExtent { extent: BlockExtent::of(&raw), checksums, at }), after)
        }
        RECORD_CACHED | RECORD_DISCARDED => {
            let (tail, after) = RawMapping::read_from_prefix(after).ok()?;
            let (checksums, after) = after.split_at_checked(checksum_bytes(&raw, RECORD_CACHED)?)?;
            let place = Place::of(tail.place);
            place.block.checked_add(count)?;
            let mapping = Mapping {
                row: RowId(raw.row.get()),
                first,
                count,
                place: (raw.state == RECORD_CACHED).then_some(place),
                since: Some(Lsn(tail.since.get())).filter(|lsn| lsn.0 > 0),
                in_doubt: raw.intent & 2 != 0,
                covered: raw.intent & 8 != 0,
                void: raw.intent & 4 != 0,
            };
            (Entry::Mapping(ReadMapping { mapping, checksums }), after)
        }
        RECORD_REDO | RECORD_DONE => {
            let (owner, after) = match raw.column {
                0 => (None, after),
                1 => RawOwner::read_from_prefix(after)
                    .ok()
                    .map(|(raw, after)| (Some(RowId(raw.owner.get())), after))?,
                _ => return None,
            };
            let head = RedoHead::of(&raw, owner);
            if owner == Some(RowId(0)) {
                return None;
            }
            if raw.state == RECORD_DONE {
                *rest = after;
                return Some(Entry::Done(head));
            }
            let count = usize::try_from(count).ok()?;
            let (blocks, after) = <[RawRedo]>::ref_from_prefix_with_elems(after, count).ok()?;
            (Entry::Redo(ReadRedo { head, blocks }), after)
        }
        _ => return None,
    };
    *rest = after;
    Some(entry)
}

/// Bytes of checksums that follow a head if it has this state.
fn checksum_bytes(raw: &RawBlockExtent, state: u8) -> Option<usize> {
    if raw.state == state { usize::try_from(raw.count.get()).ok()?.checked_mul(4) } else { Some(0) }
}

/// Appends an extent with the states of its blocks to a record. All states are alike but for checksums, and all blocks are
/// of one page, whose durable generation is given.
pub(crate) fn push_extent(
    body: &mut Vec<u8>,
    mut extent: BlockExtent,
    states: &[BlockState],
    generation: u64,
) {
    let (state, _) = states.first().copied().unwrap_or_default().parts();
    extent.state = state;
    let [low, high, ..] = generation.to_le_bytes();
    extent.generation = u16::from_le_bytes([low, high]);
    body.extend_from_slice(&extent.head());
    if state == STATE_VALID {
        for state in states {
            body.extend_from_slice(&state.parts().1.to_le_bytes());
        }
    }
}

/// Bytes of a record of many blocks, at most.
pub(crate) const RECORD_BYTES_MAX: usize = 64 * 1024;

/// Bytes of the rows that are changed together: they go into one record of the log.
pub(crate) const ROWS_BYTES_MAX: usize = 96 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stamps_order_epochs_across_their_wrap(now in 1u64..1 << 40, since in 0u64..1 << 24, written in 0u64..1 << 24) {
            let (since, written) = (now.saturating_sub(since), now.saturating_sub(written));
            let missed = Stamp::of(Epoch(written)).is_since(Epoch(since), Epoch(now));
            if now - since < (1 << 24) - 1 && now - written < 1 << 24 {
                prop_assert_eq!(missed, written >= since);
            } else {
                prop_assert!(missed || written < since);
            }
        }

        #[test]
        fn the_later_stamp_is_that_of_the_later_epoch(first in 1u64..1 << 40, after in 0u64..1 << 23) {
            let (one, other) = (Stamp::of(Epoch(first)), Stamp::of(Epoch(first + after)));
            prop_assert_eq!((one.latest(other), other.latest(one)), (other, other));
        }

        #[test]
        fn nonsense_in_a_record_does_no_harm(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            for entry in entries(&body).flatten() {
                match entry {
                    Entry::BlockExtent(read) => drop(read.state(read.extent.count - 1)),
                    Entry::Mapping(read) => drop(read.checksum(read.mapping.count - 1)),
                    Entry::Redo(read) => drop(read.blocks().last()),
                    Entry::Done(_) => {}
                }
            }
        }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let extent = BlockExtent {
            row: RowId(3),
            column: 1,
            first: 7,
            count: 2,
            stamp: Stamp::of(Epoch(0x0102_0304)),
            state: STATE_VALID,
            intent: true,
            in_doubt: true,
            supersedes: true,
            covered: false,
            generation: 0x1234,
        };
        let mut body = extent.head().to_vec();
        body.extend([1, 0, 0, 0, 2, 0, 0, 0]);
        let freed = BlockExtent { state: STATE_NEVER, count: 500, ..extent };
        body.extend(freed.head());
        let read: Vec<_> = extents(&body).map(Option::unwrap).collect();
        assert_eq!((read[0].extent, read[1].extent), (extent, freed));
        assert_eq!((read[0].state(1), read[1].state(3)), (BlockState::Valid(2), BlockState::Never));
        assert_eq!((read[0].at, read[1].at), (0, 32));
        assert_eq!(extent_at(&body, 32).unwrap().extent, freed);
    }

    /// Scenario: an entry says that the content of its blocks follows, which nothing writes or reads yet, or has a bit that no
    /// version has. It is refused, whatever it is about.
    #[test]
    fn an_entry_that_carries_data_is_refused() {
        for state in [STATE_NEVER, STATE_DAMAGED, RECORD_DISCARDED, RECORD_DONE] {
            let mut body =
                vec![0; if state == RECORD_DISCARDED { MAPPING_HEAD_BYTES } else { EXTENT_HEAD_BYTES }];
            (body[12], body[19]) = (1, state);
            assert!(entries(&body).all(|entry| entry.is_some()));
            for bit in [4, 5, 6, 7] {
                body[21] = 1 << bit;
                assert!(entries(&body).all(|entry| entry.is_none()), "an entry with bit {bit} is read");
            }
        }
    }

    /// Scenario: a redo or a *done* says that an owner follows and has none, or row 0, or has another number in place of that bit.
    #[test]
    fn an_owner_is_a_row() {
        let head = RedoHead { row: RowId(3), owner: Some(RowId(2)), stripe: 5, covered: true, void: false };
        let sound = done(head).to_vec();
        assert!(entries(&sound).all(|entry| entry.is_some()));
        let changed = |at: usize, to: u8| {
            let mut body = sound.clone();
            body[at] = to;
            body
        };
        let bad = [sound[..sound.len() - 1].to_vec(), changed(20, 2), changed(EXTENT_HEAD_BYTES, 0)];
        for body in bad {
            assert!(entries(&body).any(|entry| entry.is_none()), "{body:?}");
        }
    }

    /// Scenario: an entry without checksums, so of any length, is about more blocks than any row has.
    #[test]
    fn an_entry_is_about_no_more_blocks_than_a_row_has() {
        let blocks_max = u32::try_from(BLOCKS_MAX).unwrap();
        let head = |state: u8, first: u32, count: u32| {
            let mut body = vec![0; EXTENT_HEAD_BYTES];
            body[8..12].copy_from_slice(&first.to_le_bytes());
            body[12..16].copy_from_slice(&count.to_le_bytes());
            body[19] = state;
            body.resize(if state == RECORD_DISCARDED { MAPPING_HEAD_BYTES } else { EXTENT_HEAD_BYTES }, 0);
            body
        };
        for state in [STATE_NEVER, STATE_DAMAGED, RECORD_DISCARDED] {
            assert!(entries(&head(state, 0, blocks_max)).all(|entry| entry.is_some()));
            for (first, count) in
                [(0, blocks_max + 1), (1, blocks_max), (blocks_max, 1), (u32::MAX, u32::MAX)]
            {
                assert!(entries(&head(state, first, count)).all(|entry| entry.is_none()), "{first}, {count}");
            }
        }
        assert!(entries(&head(RECORD_DONE, blocks_max, 1)).all(|entry| entry.is_none()));
    }

    #[test]
    fn mappings_and_redos_read_back_with_extents() {
        let place = Place { row: RowId(9), block: 100 };
        let cached = Mapping {
            row: RowId(3),
            first: 7,
            count: 2,
            place: Some(place),
            since: None,
            in_doubt: false,
            covered: true,
            void: false,
        };
        let mut body = cached.head().to_vec();
        body.extend([1, 0, 0, 0, 2, 0, 0, 0]);
        let discarded = Mapping {
            place: None,
            since: Some(Lsn(77)),
            in_doubt: true,
            covered: false,
            void: true,
            ..cached
        };
        body.extend(discarded.head());
        let head = RedoHead { row: RowId(3), owner: None, stripe: 5, covered: true, void: true };
        let of_shadow = RedoHead { owner: Some(RowId(2)), void: false, ..head };
        let blocks = [
            RedoBlock { column: 0, state: BlockState::Valid(8), place, since: Some(Lsn(9)) },
            RedoBlock { column: 3, state: BlockState::Never, place: Place::default(), since: None },
        ];
        push_redo(&mut body, head, &blocks);
        body.extend(done(head));
        push_redo(&mut body, of_shadow, &blocks);
        body.extend(done(of_shadow));
        let found: Vec<_> = entries(&body).map(Option::unwrap).collect();
        let [
            Entry::Mapping(first),
            Entry::Mapping(second),
            Entry::Redo(redo),
            Entry::Done(ended),
            Entry::Redo(redo_of_shadow),
            Entry::Done(ended_of_shadow),
        ] = found[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!((first.mapping, first.checksum(1)), (cached, 2));
        assert_eq!((second.mapping, ended), (discarded, head));
        assert_eq!((redo.head, redo.blocks().collect::<Vec<_>>()), (head, blocks.to_vec()));
        assert_eq!((redo_of_shadow.head, ended_of_shadow), (of_shadow, of_shadow));
        assert_eq!(redo_of_shadow.blocks().collect::<Vec<_>>(), blocks.to_vec());
        assert_eq!(extents(&body).count(), 0);
    }
}
