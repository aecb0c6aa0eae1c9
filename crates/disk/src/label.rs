//! The label as checked values, and its way to bytes and back.

use dolmen_block_io::Geometry;
use dolmen_checksum::crc64;
use dolmen_epoch::{EpochRecord, Fork, LogSpan, Owner, RecordError, RecordParts, SPANS_MAX, VOTERS_MAX};
use dolmen_mutation::mutation;
use dolmen_units::{Bytes, DISKS_MAX, DiskId, DiskSlot, Epoch, EpochId, HostId, Lsn, Name, PoolId};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::extent::{Extent, ExtentError, LOG_BYTES_MAX, LOG_BYTES_MIN, MEBIBYTE};
use crate::format::{
    EPOCH_EXPORTED, EPOCH_FORKED, EPOCH_PRESENT, FORMAT_VERSION, HEADER_BYTES, LABEL_BYTES_MAX, LABEL_MAGIC,
    MEMBER_BYTES, RawEpoch, RawLabel, RawMember, RawSpan,
};

/// The largest sequence of a label: half of what its field holds. No disk ever gets as many labels, and the numbers after it exist.
pub const SEQUENCE_MAX: u64 = u64::MAX / 2;

/// What a pool does with a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemberState {
    /// It takes new slabs while it is here.
    Active,
    /// It is to be emptied and gets nothing new, also when it was away and comes back.
    Retired,
}

/// What a disk keeps its bytes on, as far as it said when it was taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Medium {
    /// Nothing is known of it.
    #[default]
    Unknown,
    /// Seeks cost time.
    Rotational,
    /// Flash.
    SolidState,
    /// Memory that keeps its content without power.
    PersistentMemory,
}

impl Medium {
    /// What the geometry of a device says.
    #[must_use]
    pub fn of(geometry: &Geometry) -> Self {
        if geometry.rotational { Self::Rotational } else { Self::SolidState }
    }

    /// Whether seeks are known to cost no time.
    #[must_use]
    pub fn is_fast(self) -> bool {
        match self {
            Self::Unknown | Self::Rotational => false,
            Self::SolidState | Self::PersistentMemory => true,
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Rotational => 1,
            Self::SolidState => 2,
            Self::PersistentMemory => 3,
        }
    }

    fn of_number(number: u8) -> Option<Self> {
        let all = [Self::Unknown, Self::Rotational, Self::SolidState, Self::PersistentMemory];
        all.into_iter().find(|medium| medium.number() == number)
    }
}

/// A member of a pool, as every label lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Identity.
    pub disk: DiskId,
    /// Size of the device when it was claimed.
    pub capacity: Bytes,
    /// Place in the table of members, by which slabs name it.
    pub slot: DiskSlot,
    /// What the pool does with it.
    pub state: MemberState,
    /// Disks with the same number may fail as one; 0 means alone.
    pub fault_domain: u32,
    /// The first epoch without it, because it was not there or missed a write; 0 while it takes part.
    pub left: Epoch,
    /// Of a retired disk, the one that gets its slabs: so whoever opens the pool knows what a replacement has left to do.
    pub successor: Option<DiskSlot>,
    /// What it keeps its bytes on: known also while it is absent.
    pub medium: Medium,
    /// The least `sequence` that its newest label has, as far as whoever wrote this knew; 0 for a pool that nobody has opened since
    /// labels say it. With an older label it is as it was before (docs/design/0027).
    pub sequence: u64,
}

impl Member {
    /// Whether it is not there, or missed a write and has not come back.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.left != Epoch(0)
    }
}

/// An epoch and the members that it knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generation {
    /// Who may write.
    pub epoch: EpochRecord,
    /// Everybody who belongs to the pool, present or not, by slot.
    pub members: Vec<Member>,
}

/// What a disk says of itself and its pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The pool.
    pub pool: PoolId,
    /// The pool's name.
    pub pool_name: Name,
    /// This disk.
    pub disk: DiskId,
    /// Counts the updates of this disk's label.
    pub sequence: u64,
    /// How the device is cut.
    pub extent: Extent,
    /// Bytes of the log on every voter.
    pub log: Bytes,
    /// Bytes of metadata pages on every voter.
    pub pages: Bytes,
    /// Counts while the owner has the pool open.
    pub heartbeat: u64,
    /// The epoch that was in force when the label was written.
    pub base: Generation,
    /// The epoch that was about to be.
    pub pending: Option<Generation>,
}

/// Bytes that are no label of this disk, or none that this build may use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// No label was ever written here.
    #[error("no label")]
    Absent,
    /// Nothing that looks like a label, where one was written together with that at the other end.
    #[error("the label at byte {at} is gone: something else was written over it")]
    Lost {
        /// Where it was looked for.
        at: u64,
    },
    /// A label whose checksum does not match: rot, or a torn write.
    #[error("the label at byte {at} is damaged: its checksum is {found:016x} instead of {expected:016x}")]
    Checksum {
        /// Where it was read.
        at: u64,
        /// Computed.
        expected: u64,
        /// Stored.
        found: u64,
    },
    /// A sound label that belongs somewhere else.
    #[error("the label at byte {at} was written for byte {found}")]
    Misplaced {
        /// Where it was read.
        at: u64,
        /// Where it says it is.
        found: u64,
    },
    /// Written by a later build, which may use the disk in another way.
    #[error(
        "the disk has format version {found}, and this build knows {FORMAT_VERSION}; nothing was changed, use a newer dolmen"
    )]
    Version {
        /// Stored.
        found: u32,
    },
    /// Written by an earlier build. Nothing reads that format any more.
    #[error(
        "the disk belongs to {}, which has format {found}; this build reads format {known}; nothing was changed; copy the data \
         out with an older dolmen, or give the disk to a new pool with `dolmen pool create --destroy`",
        pool_of(pool_name.as_ref())
    )]
    OldFormat {
        /// Name of the pool as the label has it, read without its checksum; none if that is no valid name.
        pool_name: Option<Name>,
        /// Stored.
        found: u32,
        /// The only version that this build reads.
        known: u32,
    },
    /// Needs features that this build lacks.
    #[error("the disk uses features {missing:#x} that this build does not know; use a newer dolmen")]
    Features {
        /// Bits that are set and unknown.
        missing: u64,
    },
    /// Lengths that cannot be.
    #[error("the label at byte {at} has {field} {found}, at most {limit} is possible")]
    Limit {
        /// Where it was read.
        at: u64,
        /// Which field.
        field: &'static str,
        /// Stored.
        found: u64,
        /// The most that is possible.
        limit: u64,
    },
    /// A field with a value that no build writes.
    #[error("the label at byte {at} has {found} in {field}, which no version writes there")]
    Value {
        /// Where it was read.
        at: u64,
        /// Which field.
        field: &'static str,
        /// Stored.
        found: u64,
    },
    /// The cut of the disk contradicts itself.
    #[error("the label describes an impossible disk")]
    Extent {
        /// Why.
        #[from]
        source: ExtentError,
    },
    /// The epoch contradicts itself.
    #[error("the label describes an impossible epoch")]
    Epoch {
        /// Why.
        #[from]
        source: RecordError,
    },
}

/// The words for a pool whose name may not be known.
fn pool_of(name: Option<&Name>) -> String {
    name.map_or_else(|| "a pool whose name cannot be read".to_owned(), |name| format!("pool {name}"))
}

/// Name of the pool, if the field holds a valid one.
fn parse_pool_name(field: &[u8; 64]) -> Option<Name> {
    let text: Vec<u8> = field.iter().copied().take_while(|byte| *byte != 0).collect();
    String::from_utf8(text).ok()?.parse().ok()
}

impl Label {
    /// The member entry of this disk in a generation.
    #[must_use]
    pub fn member(&self) -> Option<&Member> {
        self.base.members.iter().find(|member| member.disk == self.disk)
    }

    /// The label as bytes for the slot at `at`, a multiple of 4 KiB.
    ///
    /// # Panics
    /// With more members than a pool can have: the pool checks before.
    #[must_use]
    pub fn encode(&self, at: u64) -> Vec<u8> {
        let none = Vec::new();
        let pending_members = self.pending.as_ref().map_or(&none, |generation| &generation.members);
        let count = self.base.members.len() + pending_members.len();
        let length = (HEADER_BYTES + count * MEMBER_BYTES).next_multiple_of(4096);
        assert!(length <= LABEL_BYTES_MAX, "{count} entries of members do not fit a label");
        let raw = self.raw(at, length, pending_members.len());
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(raw.as_bytes());
        for member in self.base.members.iter().chain(pending_members) {
            bytes.extend_from_slice(RawMember::of(member).as_bytes());
        }
        bytes.resize(length, 0);
        let checksum = crc64(&bytes).to_le_bytes();
        if let Some(field) = bytes.get_mut(HEADER_BYTES - 8..HEADER_BYTES) {
            field.copy_from_slice(&checksum);
        }
        bytes
    }

    fn raw(&self, at: u64, length: usize, pending_count: usize) -> RawLabel {
        let mut raw = RawLabel::new_zeroed();
        raw.magic = LABEL_MAGIC;
        raw.version = FORMAT_VERSION.into();
        raw.length = u32::try_from(length).unwrap_or(0).into();
        raw.pool = self.pool.0;
        raw.disk = self.disk.0;
        raw.at = at.into();
        raw.sequence = self.sequence.into();
        for (to, from) in raw.pool_name.iter_mut().zip(self.pool_name.as_str().bytes()) {
            *to = from;
        }
        raw.capacity = self.extent.capacity.0.into();
        raw.metadata_length = self.extent.metadata.0.into();
        raw.data_start = self.extent.data_start.into();
        raw.data_end = self.extent.data_end.into();
        raw.log_length = self.log.0.into();
        raw.pages_length = self.pages.0.into();
        raw.heartbeat = self.heartbeat.into();
        raw.base_member_count = u16::try_from(self.base.members.len()).unwrap_or(0).into();
        raw.pending_member_count = u16::try_from(pending_count).unwrap_or(0).into();
        raw.base = RawEpoch::of(&self.base.epoch);
        if let Some(pending) = &self.pending {
            raw.pending = RawEpoch::of(&pending.epoch);
        }
        raw
    }

    /// Reads a label from the bytes of the slot at `at`.
    ///
    /// # Errors
    /// Whatever is wrong with it. [`LabelError::Absent`] when nothing in it looks like a label.
    pub fn parse(bytes: &[u8], at: u64) -> Result<Self, LabelError> {
        let (raw, _) = RawLabel::ref_from_prefix(bytes).map_err(|_| LabelError::Absent)?;
        if raw.magic != LABEL_MAGIC {
            return Err(LabelError::Absent);
        }
        // The version comes before the checksum: another one may put it elsewhere.
        let found = raw.version.get();
        if found > FORMAT_VERSION {
            return Err(LabelError::Version { found });
        }
        if found < FORMAT_VERSION && !mutation!(OldFormatOpened) {
            let pool_name = parse_pool_name(&raw.pool_name);
            return Err(LabelError::OldFormat { pool_name, found, known: FORMAT_VERSION });
        }
        let whole = checked_bytes(raw, bytes, at)?;
        if raw.at.get() != at {
            return Err(LabelError::Misplaced { at, found: raw.at.get() });
        }
        let missing = raw.features_compat.get() | raw.features_ro_compat.get() | raw.features_incompat.get();
        if missing != 0 {
            return Err(LabelError::Features { missing });
        }
        let label = Self::from_raw(raw, whole.get(HEADER_BYTES..).unwrap_or_default(), at)?;
        if !mutation!(LabelSpareTrusted) {
            label.check_spare(raw, whole, at)?;
        }
        Ok(label)
    }

    /// Whether all that no field of it says is zero: behind names, voters, spans and members, and whatever is reserved.
    fn check_spare(&self, raw: &RawLabel, whole: &[u8], at: u64) -> Result<(), LabelError> {
        let mut again = self.encode(at);
        if let Ok((own, _)) = RawLabel::mut_from_prefix(&mut again) {
            own.checksum = raw.checksum;
        }
        let differs = again.iter().zip(whole).position(|(expected, found)| expected != found);
        match differs.and_then(|place| whole.get(place)) {
            Some(byte) => Err(LabelError::Value { at, field: "reserved bytes", found: u64::from(*byte) }),
            None if again.len() != whole.len() => {
                let found = u64::from(raw.pending_member_count.get());
                Err(LabelError::Value { at, field: "members of a pending epoch that is none", found })
            }
            None => Ok(()),
        }
    }

    fn from_raw(raw: &RawLabel, tables: &[u8], at: u64) -> Result<Self, LabelError> {
        let value = |field, found: u64| LabelError::Value { at, field, found };
        let pool_name = parse_pool_name(&raw.pool_name);
        let extent = Extent {
            capacity: Bytes(raw.capacity.get()),
            metadata: Bytes(raw.metadata_length.get()),
            data_start: raw.data_start.get(),
            data_end: raw.data_end.get(),
        };
        extent.check()?;
        let (log, pages) = (raw.log_length.get(), raw.pages_length.get());
        if !log.is_multiple_of(MEBIBYTE) || !(LOG_BYTES_MIN..=LOG_BYTES_MAX).contains(&log) {
            return Err(value("log length", log));
        }
        if !pages.is_multiple_of(MEBIBYTE) || pages == 0 || pages > extent.capacity.0 {
            return Err(value("pages length", pages));
        }
        let base_count = usize::from(raw.base_member_count.get());
        let base_bytes = base_count * MEMBER_BYTES;
        let members = |bytes: Option<&[u8]>| parse_members(bytes.unwrap_or_default(), at);
        let base = Generation {
            epoch: raw.base.parse(at)?.ok_or(value("flags of the epoch", 0))?,
            members: members(tables.get(..base_bytes))?,
        };
        let pending_end = base_bytes + usize::from(raw.pending_member_count.get()) * MEMBER_BYTES;
        let pending = raw.pending.parse(at)?;
        let pending = pending
            .map(|epoch| {
                Ok::<_, LabelError>(Generation {
                    epoch,
                    members: members(tables.get(base_bytes..pending_end))?,
                })
            })
            .transpose()?;
        Ok(Self {
            pool: PoolId(raw.pool),
            pool_name: pool_name.ok_or(value("name of the pool", 0))?,
            disk: DiskId(raw.disk),
            sequence: checked_sequence(raw.sequence.get(), at)?,
            extent,
            log: Bytes(log),
            pages: Bytes(pages),
            heartbeat: raw.heartbeat.get(),
            base,
            pending,
        })
    }
}

/// Checks the number of a label. After the largest one there is no next, and the disk could get no label any more.
fn checked_sequence(found: u64, at: u64) -> Result<u64, LabelError> {
    match found <= SEQUENCE_MAX {
        true => Ok(found),
        false => Err(LabelError::Limit { at, field: "sequence", found, limit: SEQUENCE_MAX }),
    }
}

/// The whole label, once length and checksum are right.
fn checked_bytes<'a>(raw: &RawLabel, bytes: &'a [u8], at: u64) -> Result<&'a [u8], LabelError> {
    let count = u64::from(raw.base_member_count.get()) + u64::from(raw.pending_member_count.get());
    for members in [raw.base_member_count.get(), raw.pending_member_count.get()] {
        let found = u64::from(members);
        if usize::from(members) > DISKS_MAX {
            return Err(LabelError::Limit { at, field: "member count", found, limit: DISKS_MAX as u64 });
        }
    }
    let length = raw.length.get() as usize;
    let expected_length =
        (HEADER_BYTES + usize::try_from(count).unwrap_or(0) * MEMBER_BYTES).next_multiple_of(4096);
    let whole = bytes.get(..length).filter(|_| length == expected_length);
    let limit = expected_length.min(bytes.len()) as u64;
    let whole = whole.ok_or(LabelError::Limit { at, field: "length", found: length as u64, limit })?;
    let mut copy = whole.to_vec();
    if let Some(field) = copy.get_mut(HEADER_BYTES - 8..HEADER_BYTES) {
        field.fill(0);
    }
    let expected = crc64(&copy);
    if raw.checksum.get() != expected {
        return Err(LabelError::Checksum { at, expected, found: raw.checksum.get() });
    }
    Ok(whole)
}

fn parse_members(bytes: &[u8], at: u64) -> Result<Vec<Member>, LabelError> {
    let mut members: Vec<Member> = Vec::new();
    for entry in bytes.chunks_exact(MEMBER_BYTES) {
        let raw = RawMember::ref_from_bytes(entry).map_err(|_| LabelError::Absent)?;
        let member = raw.parse(at)?;
        if members.iter().any(|other| other.slot == member.slot || other.disk == member.disk) {
            return Err(LabelError::Value {
                at,
                field: "slot of a member, given twice",
                found: u64::from(member.slot.0),
            });
        }
        members.push(member);
    }
    Ok(members)
}

impl RawMember {
    fn of(member: &Member) -> Self {
        let state = match member.state {
            MemberState::Active => 1,
            MemberState::Retired => 2,
        };
        Self {
            disk: member.disk.0,
            capacity: member.capacity.0.into(),
            slot: member.slot.0.into(),
            state: state.into(),
            fault_domain: member.fault_domain.into(),
            left: member.left.0.into(),
            successor: member.successor.map_or(0, |slot| slot.0 + 1).into(),
            medium: member.medium.number(),
            reserved: [0; 5],
            sequence: member.sequence.into(),
            reserved_tail: [0; 8],
        }
    }

    fn parse(&self, at: u64) -> Result<Member, LabelError> {
        let state = match self.state.get() {
            1 => MemberState::Active,
            2 => MemberState::Retired,
            other => {
                return Err(LabelError::Value { at, field: "state of a member", found: u64::from(other) });
            }
        };
        let slot = self.slot.get();
        if usize::from(slot) >= DISKS_MAX {
            let limit = DISKS_MAX as u64 - 1;
            return Err(LabelError::Limit { at, field: "slot of a member", found: u64::from(slot), limit });
        }
        let medium = Medium::of_number(self.medium);
        let found = u64::from(self.medium);
        let medium = medium.ok_or(LabelError::Value { at, field: "medium of a member", found })?;
        Ok(Member {
            disk: DiskId(self.disk),
            capacity: Bytes(self.capacity.get()),
            slot: DiskSlot(slot),
            state,
            fault_domain: self.fault_domain.get(),
            left: Epoch(self.left.get()),
            successor: self.successor.get().checked_sub(1).map(DiskSlot),
            medium,
            sequence: checked_sequence(self.sequence.get(), at)?,
        })
    }
}

/// The bits of so many voters, at most [`VOTERS_MAX`].
fn every_voter(count: usize) -> u32 {
    (0..count).fold(0, |bits, voter| bits | 1 << voter)
}

impl RawEpoch {
    fn of(epoch: &EpochRecord) -> Self {
        let mut raw = Self::new_zeroed();
        raw.number = epoch.id().number.0.into();
        raw.nonce = epoch.id().nonce.into();
        raw.predecessor_number = epoch.predecessor().number.0.into();
        raw.predecessor_nonce = epoch.predecessor().nonce.into();
        let mut flags = EPOCH_PRESENT;
        match epoch.owner() {
            Owner::Host(host) => raw.owner = host.0,
            Owner::Exported => flags |= EPOCH_EXPORTED,
        }
        if let Some(fork) = epoch.fork() {
            flags |= EPOCH_FORKED;
            raw.fork_number = fork.forced.number.0.into();
            raw.fork_nonce = fork.forced.nonce.into();
            raw.fork_root = fork.root.0.into();
        }
        raw.flags = flags.into();
        raw.voter_count = u16::try_from(epoch.voters().len()).unwrap_or(0).into();
        raw.log_voters = every_voter(epoch.voters().len()).into();
        raw.span_count = u16::try_from(epoch.spans().len()).unwrap_or(0).into();
        for (to, from) in raw.voters.iter_mut().zip(epoch.voters()) {
            *to = from.0;
        }
        for (to, from) in raw.spans.iter_mut().zip(epoch.spans()) {
            let LogSpan { epoch, first } = *from;
            *to = RawSpan { number: epoch.number.0.into(), nonce: epoch.nonce.into(), first: first.0.into() };
        }
        raw
    }

    /// The epoch, or `None` where none was written.
    fn parse(&self, at: u64) -> Result<Option<EpochRecord>, LabelError> {
        let flags = self.flags.get();
        if flags == 0 && self.as_bytes().iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if flags & EPOCH_PRESENT == 0 || flags & !(EPOCH_PRESENT | EPOCH_FORKED | EPOCH_EXPORTED) != 0 {
            return Err(LabelError::Value { at, field: "flags of an epoch", found: u64::from(flags) });
        }
        let limit = |field, found: u16, limit: usize| LabelError::Limit {
            at,
            field,
            found: u64::from(found),
            limit: limit as u64,
        };
        let (voters, spans) = (self.voter_count.get(), self.span_count.get());
        if usize::from(voters) > VOTERS_MAX {
            return Err(limit("voters", voters, VOTERS_MAX));
        }
        if usize::from(spans) > SPANS_MAX {
            return Err(limit("log spans", spans, SPANS_MAX));
        }
        let log_voters = self.log_voters.get();
        if log_voters != every_voter(usize::from(voters)) {
            let found = u64::from(log_voters);
            return Err(LabelError::Value { at, field: "voters with the log", found });
        }
        let id = |number: u64, nonce: u64| EpochId { number: Epoch(number), nonce };
        let owner =
            if flags & EPOCH_EXPORTED == 0 { Owner::Host(HostId(self.owner)) } else { Owner::Exported };
        let fork = Fork {
            forced: id(self.fork_number.get(), self.fork_nonce.get()),
            root: Epoch(self.fork_root.get()),
        };
        let span = |span: &RawSpan| LogSpan {
            epoch: id(span.number.get(), span.nonce.get()),
            first: Lsn(span.first.get()),
        };
        let record = EpochRecord::new(RecordParts {
            id: id(self.number.get(), self.nonce.get()),
            predecessor: id(self.predecessor_number.get(), self.predecessor_nonce.get()),
            owner,
            voters: self.voters.iter().take(usize::from(voters)).map(|voter| DiskId(*voter)).collect(),
            fork: (flags & EPOCH_FORKED != 0).then_some(fork),
            spans: self.spans.iter().take(usize::from(spans)).map(span).collect(),
        })?;
        Ok(Some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(members: u16, pending: bool) -> Label {
        let disk = |number: u16| {
            DiskId([u8::try_from(number % 256).unwrap(), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15])
        };
        let epoch =
            EpochRecord::first(77, Owner::Host(HostId([9; 16])), vec![disk(0), disk(1)], Lsn(1)).unwrap();
        let member = |number: u16| Member {
            disk: disk(number),
            capacity: Bytes::gib(1),
            slot: DiskSlot(number),
            state: if number == 1 { MemberState::Retired } else { MemberState::Active },
            fault_domain: 0,
            left: Epoch(u64::from(number == 1)),
            successor: (number == 1).then_some(DiskSlot(0)),
            medium: Medium::of_number((number % 4) as u8).unwrap(),
            sequence: 3 * u64::from(number),
        };
        let generation = Generation { epoch, members: (0..members).map(member).collect() };
        Label {
            pool: PoolId([3; 16]),
            pool_name: "tank".parse().unwrap(),
            disk: disk(0),
            sequence: 12,
            extent: Extent::of(Bytes::gib(1)).unwrap(),
            log: Bytes::mib(4),
            pages: Bytes::mib(4),
            heartbeat: 5,
            pending: pending.then(|| generation.clone()),
            base: generation,
        }
    }

    #[test]
    fn a_label_reads_back_as_it_was_written() {
        for (members, pending) in [(1, false), (2, true), (240, true)] {
            let label = sample(members, pending);
            let bytes = label.encode(65536);
            assert!(bytes.len() <= LABEL_BYTES_MAX && bytes.len().is_multiple_of(4096));
            assert_eq!(Label::parse(&bytes, 65536), Ok(label));
        }
    }

    /// Scenario: a sealed label, or an entry in it, has a number after which there is none. It is refused by the name of the field.
    #[test]
    fn a_label_whose_number_leaves_none_for_the_next_is_refused() {
        let largest = Label { sequence: SEQUENCE_MAX, ..sample(2, false) };
        assert_eq!(Label::parse(&largest.encode(65536), 65536), Ok(largest));
        let found = u64::MAX;
        let refused = Err(LabelError::Limit { at: 65536, field: "sequence", found, limit: SEQUENCE_MAX });
        let label = Label { sequence: found, ..sample(2, false) };
        assert_eq!(Label::parse(&label.encode(65536), 65536), refused);
        let mut label = sample(2, false);
        label.base.members[1].sequence = found;
        assert_eq!(Label::parse(&label.encode(65536), 65536), refused);
    }

    /// Scenario: the version is another one, with a checksum that fits and without. A later one is refused with its number, an
    /// older one with the name of its pool, where that is a name.
    #[test]
    fn another_version_is_refused_by_name() {
        let sound = sample(2, false).encode(65536);
        let with = |version: u32, name: &[u8], is_sealed: bool| {
            let mut bytes = sound.clone();
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
            bytes[88..88 + name.len()].copy_from_slice(name);
            if is_sealed {
                bytes[4088..4096].fill(0);
                let checksum = crc64(&bytes);
                bytes[4088..4096].copy_from_slice(&checksum.to_le_bytes());
            }
            Label::parse(&bytes, 65536)
        };
        let known = FORMAT_VERSION;
        for is_sealed in [true, false] {
            let found = FORMAT_VERSION + 1;
            assert_eq!(with(found, b"tank", is_sealed), Err(LabelError::Version { found }));
            for found in 0..FORMAT_VERSION {
                for (name, pool_name) in
                    [(&b"tank"[..], "tank".parse().ok()), (b"t\x1bnk", None), (b"\xff", None)]
                {
                    let expected = LabelError::OldFormat { pool_name, found, known };
                    assert_eq!(with(found, name, is_sealed), Err(expected));
                }
            }
        }
        let refused = with(2, b"tank", true).unwrap_err().to_string();
        let says = format!("belongs to pool tank, which has format 2; this build reads format {known}");
        assert!(refused.contains(&says), "{refused}");
    }

    #[test]
    fn a_label_at_another_address_is_refused() {
        let bytes = sample(2, false).encode(65536);
        assert!(matches!(
            Label::parse(&bytes, 131072),
            Err(LabelError::Misplaced { at: 131072, found: 65536 })
        ));
    }

    /// Scenario: a sealed label has a feature, of any of the three kinds. It is refused with the number of the feature.
    #[test]
    fn a_label_with_a_feature_is_refused_by_number() {
        let sound = sample(1, false).encode(65536);
        for place in 64..88 {
            let mut bytes = sound.clone();
            bytes[place] = 1;
            bytes[4088..4096].fill(0);
            let checksum = crc64(&bytes);
            bytes[4088..4096].copy_from_slice(&checksum.to_le_bytes());
            let missing = 1 << (8 * (place % 8));
            assert_eq!(Label::parse(&bytes, 65536), Err(LabelError::Features { missing }));
        }
    }

    /// Scenario: a sealed label says that fewer voters, or more, carry the log than vote; or that a member is of a medium that
    /// there is not.
    #[test]
    fn other_voters_with_the_log_and_other_media_are_refused() {
        let sound = sample(1, false).encode(65536);
        let with = |place: usize, byte: u8| {
            let mut bytes = sound.clone();
            bytes[place] = byte;
            bytes[4088..4096].fill(0);
            let checksum = crc64(&bytes);
            bytes[4088..4096].copy_from_slice(&checksum.to_le_bytes());
            Label::parse(&bytes, 65536)
        };
        let (log_voters, medium) = (248 + 608, 4096 + 42);
        assert_eq!(sound[log_voters..log_voters + 4], [3, 0, 0, 0], "both voters carry the log");
        for found in [0, 1, 2, 7, 255] {
            let field = "voters with the log";
            let expected = LabelError::Value { at: 65536, field, found: found.into() };
            assert_eq!(with(log_voters, found), Err(expected));
        }
        for found in 0..=255 {
            let field = "medium of a member";
            let expected = LabelError::Value { at: 65536, field, found: found.into() };
            assert_eq!(with(medium, found).err(), (found > 3).then_some(expected));
        }
    }

    /// Scenario: something stands, sealed, where no field is: behind the name, the voters, the members, or in what is reserved.
    #[test]
    fn what_no_field_says_is_zero() {
        let sound = sample(1, false).encode(65536);
        let (name_end, voter, span, member, padding) =
            (88 + 63, 248 + 56 + 2 * 16, 248 + 200 + 24, 4096 + 43, 4096 + 64);
        for place in [name_end, voter, span, 248 + 612, 888 + 9, 240, 2000, member, padding, 8191] {
            let mut bytes = sound.clone();
            bytes[place] = 7;
            bytes[4088..4096].fill(0);
            let checksum = crc64(&bytes);
            bytes[4088..4096].copy_from_slice(&checksum.to_le_bytes());
            assert!(
                matches!(Label::parse(&bytes, 65536), Err(LabelError::Value { .. })),
                "byte {place} is believed"
            );
        }
    }

    /// Scenario: a sealed label tells of a log or of pages that nobody makes; whoever reads them would take memory for them.
    #[test]
    fn areas_that_nobody_makes_are_refused() {
        let mut label = sample(1, false);
        for (log, pages) in [(0, 4), (1, 4), (65, 4), (1 << 30, 4), (4, 0), (4, 1025)] {
            (label.log, label.pages) = (Bytes::mib(log), Bytes::mib(pages));
            let parsed = Label::parse(&label.encode(65536), 65536);
            assert!(matches!(parsed, Err(LabelError::Value { .. })), "{log} and {pages} MiB: {parsed:?}");
        }
        (label.log, label.pages) = (Bytes(u64::MAX), Bytes(u64::MAX));
        assert!(Label::parse(&label.encode(65536), 65536).is_err());
    }

    proptest! {
        // Every single flipped bit is noticed: the label is damaged, absent or of another version, never believed.
        #[test]
        fn no_flipped_bit_is_believed(bit in 0usize..8 * 8192) {
            let mut bytes = sample(40, true).encode(65536);
            let bit = bit % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Label::parse(&bytes, 65536).is_err());
        }

        // An attacker can seal any content: parsing it is an error or a value, never a panic.
        #[test]
        fn sealed_nonsense_does_no_harm(edits in proptest::collection::vec((8usize..8192, any::<u8>()), 1..40)) {
            let mut bytes = sample(40, true).encode(65536);
            for (at, value) in edits {
                if at < bytes.len() {
                    bytes[at] = value;
                }
            }
            bytes[4088..4096].fill(0);
            let checksum = crc64(&bytes);
            bytes[4088..4096].copy_from_slice(&checksum.to_le_bytes());
            let _ = Label::parse(&bytes, 65536);
        }

        #[test]
        fn a_cut_label_is_refused(length in 0usize..8192) {
            let bytes = sample(40, true).encode(65536);
            if length < bytes.len() {
                prop_assert!(Label::parse(&bytes[..length], 65536).is_err());
            }
        }
    }
}
