//! The messages of the transmission phase that a client sends, and the check that turns one into a command.
//!
//! [`RequestHeader`] is unchecked bytes in fields; [`Command`] is what the server is willing to do. Between the two
//! stands [`check`], a pure function, so that every rule about ranges and flags is in one place.

use std::fmt;
use std::ops::Range;

use dolmen_block_io::Durability;

use crate::export::{Access, Holes, Profile, ZeroMode};
use crate::wire::{Errno, Fields, MAGIC_EXTENDED_REQUEST, MAGIC_REQUEST, command, command_flag};

/// Bytes of a compact request without its payload.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of an extended request without its payload.
pub const EXTENDED_REQUEST_BYTES: usize = 32;
/// The largest payload of a read or write, told to clients as the largest block.
pub const PAYLOAD_BYTES_MAX: u32 = 64 << 20;
/// The largest payload of a refused write that is read and thrown away; above it the connection is closed.
pub const DRAIN_BYTES_MAX: u64 = 128 << 20;
/// Reads up to this length are answered in one content chunk when asked to. The protocol demands 64 KiB.
pub const UNFRAGMENTED_BYTES_MAX: u64 = 1 << 20;

const _: () =
    assert!(DRAIN_BYTES_MAX >= PAYLOAD_BYTES_MAX as u64, "whatever is accepted could also be drained");
const _: () = assert!(UNFRAGMENTED_BYTES_MAX >= 65536, "the protocol's least length of an unfragmented read");

/// A request that leaves the stream out of step: there is no telling where the next one begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The request does not begin with its magic.
    #[error("reading a request: magic {found:#010x} instead of {expected:#010x}; closing")]
    BadMagic {
        /// What was found.
        found: u32,
        /// What was agreed on.
        expected: u32,
    },
    /// A refused request has more payload than is thrown away.
    #[error(
        "a request with a payload of {length} bytes at {offset} was refused, which are more than are skipped; closing"
    )]
    PayloadTooLong {
        /// Where it should have gone.
        offset: u64,
        /// Its length in bytes.
        length: u64,
    },
}

/// Which form a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Headers {
    /// Lengths of 32 bits; writes alone have a payload.
    Compact,
    /// Lengths of 64 bits; a flag says whether they are those of a payload.
    Extended,
}

impl Headers {
    /// The largest payload of a refused request that is read and thrown away; above it the connection is closed. The
    /// protocol wants it so for extended requests: nobody who announces that much means well.
    #[must_use]
    pub const fn drain_bytes_max(self) -> u64 {
        match self {
            Self::Compact => DRAIN_BYTES_MAX,
            Self::Extended => PAYLOAD_BYTES_MAX as u64,
        }
    }
}

/// A request as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// Bits of [`command_flag`].
    pub flags: u16,
    /// A number of [`command`], or an unknown one.
    pub kind: u16,
    /// The client's name for the request, sent back with the reply.
    pub cookie: u64,
    /// Start of the range, in bytes.
    pub offset: u64,
    /// Length of the range or of the payload, in bytes.
    pub length: u64,
    /// The form that it came in.
    pub headers: Headers,
}

impl RequestHeader {
    /// Reads a compact request.
    ///
    /// # Errors
    /// [`RequestError::BadMagic`].
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Result<Self, RequestError> {
        Self::parse_fields(&mut Fields::new(bytes), Headers::Compact)
    }

    /// Reads an extended request.
    ///
    /// # Errors
    /// [`RequestError::BadMagic`].
    pub fn parse_extended(bytes: &[u8; EXTENDED_REQUEST_BYTES]) -> Result<Self, RequestError> {
        Self::parse_fields(&mut Fields::new(bytes), Headers::Extended)
    }

    fn parse_fields(fields: &mut Fields<'_>, headers: Headers) -> Result<Self, RequestError> {
        let found = fields.u32().unwrap_or(0);
        let expected = match headers {
            Headers::Compact => MAGIC_REQUEST,
            Headers::Extended => MAGIC_EXTENDED_REQUEST,
        };
        if found != expected {
            return Err(RequestError::BadMagic { found, expected });
        }
        let (flags, kind) = (fields.u16().unwrap_or(0), fields.u16().unwrap_or(0));
        let (cookie, offset) = (fields.u64().unwrap_or(0), fields.u64().unwrap_or(0));
        let length = match headers {
            Headers::Compact => u64::from(fields.u32().unwrap_or(0)),
            Headers::Extended => fields.u64().unwrap_or(0),
        };
        Ok(Self { flags, kind, cookie, offset, length, headers })
    }

    /// Bytes that follow the request, whatever else is wrong with it.
    #[must_use]
    pub fn payload_bytes(&self) -> u64 {
        let has_payload = match self.headers {
            Headers::Compact => self.kind == command::WRITE,
            // QEMU's client (seen with 10.0) leaves the flag out of writes, which always have a payload.
            Headers::Extended => self.kind == command::WRITE || self.has(command_flag::PAYLOAD_LEN),
        };
        if has_payload { self.length } else { 0 }
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    fn durability(&self) -> Durability {
        if self.has(command_flag::FUA) { Durability::Durable } else { Durability::Cached }
    }
}

/// How many content chunks the answer to a read may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragments {
    /// Any number.
    Many,
    /// One at most.
    One,
}

/// A request that was checked: its range lies in the export and is not empty. It may begin and end at any byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read {
        /// What to read.
        range: Range<u64>,
        /// How to answer.
        fragments: Fragments,
    },
    /// Write; the payload follows.
    Write {
        /// Where to.
        range: Range<u64>,
        /// What the acknowledgement promises.
        durability: Durability,
    },
    /// Leave.
    Disconnect,
    /// Make acknowledged writes durable.
    Flush,
    /// Forget a range.
    Trim {
        /// What to forget.
        range: Range<u64>,
        /// What the acknowledgement promises.
        durability: Durability,
    },
    /// Make a range read as zeros.
    WriteZeroes {
        /// Which range.
        range: Range<u64>,
        /// Whether it may become unallocated.
        holes: Holes,
        /// Whether it may take long.
        zero_mode: ZeroMode,
        /// What the acknowledgement promises.
        durability: Durability,
    },
    /// Read ahead.
    Cache {
        /// What to read.
        range: Range<u64>,
    },
    /// Say what is allocated.
    BlockStatus {
        /// Where.
        range: Range<u64>,
        /// How many extents to answer with at most.
        extents_max: usize,
    },
}

/// A request that is answered with an error. The texts go to clients that take them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedRequest {
    /// No such command.
    UnknownCommand,
    /// A flag that does not belong to the command, or was not negotiated.
    BadFlags,
    /// A change of an export that takes none.
    ReadOnly,
    /// An empty range.
    Empty,
    /// A range where none belongs.
    RangeOfFlush,
    /// A read or write above the largest block.
    TooLong,
    /// As `TooLong`, for a read with extended headers: there a client is told to ask for less.
    TooLongToRead,
    /// A payload that does not belong to the command.
    Payload,
    /// A range beyond the end.
    OutOfRange,
    /// As `OutOfRange`, for what would need space there.
    NoSpace,
    /// A read that must not be fragmented and is too long for that.
    TooLongForOneChunk,
    /// Block status without a context.
    NoContext,
    /// The server is stopping.
    Stopping,
}

impl fmt::Display for RefusedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for RefusedRequest {}

impl RefusedRequest {
    /// The error number that answers it.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::ReadOnly => Errno::Permission,
            Self::NoSpace => Errno::NoSpace,
            Self::TooLongForOneChunk | Self::TooLongToRead => Errno::Overflow,
            Self::Stopping => Errno::Shutdown,
            Self::UnknownCommand
            | Self::BadFlags
            | Self::Empty
            | Self::RangeOfFlush
            | Self::TooLong
            | Self::Payload
            | Self::OutOfRange
            | Self::NoContext => Errno::Invalid,
        }
    }

    /// The text for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::UnknownCommand => "unknown command",
            Self::BadFlags => "a flag that does not belong to the command",
            Self::ReadOnly => "the export is read-only",
            Self::Empty => "the length is zero",
            Self::RangeOfFlush => "offset and length of a flush must be zero",
            Self::TooLong | Self::TooLongToRead => "the length is above the largest block",
            Self::Payload => "a payload that does not belong to the command",
            Self::OutOfRange => "the range ends beyond the export",
            Self::NoSpace => "the range to write ends beyond the export",
            Self::TooLongForOneChunk => "too long to be answered in one chunk",
            Self::NoContext => "no metadata context was negotiated",
            Self::Stopping => "the server is stopping",
        }
    }
}

/// How replies look, as negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyForm {
    /// One simple reply per request.
    #[default]
    Simple,
    /// Chunks; simple replies where there is no payload.
    Structured,
    /// Chunks alone, with lengths of 64 bits, to requests with such lengths.
    Extended,
}

impl ReplyForm {
    /// Whether a reply may come in several parts.
    #[must_use]
    pub const fn has_chunks(self) -> bool {
        match self {
            Self::Simple => false,
            Self::Structured | Self::Extended => true,
        }
    }
}

/// What the handshake agreed on, as far as requests depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// How replies look.
    pub form: ReplyForm,
    /// Whether `base:allocation` was selected for this export.
    pub allocation: bool,
}

/// Turns a request into a command, or says why not.
///
/// # Errors
/// The refusal to answer with. A write's payload follows all the same.
pub fn check(header: &RequestHeader, profile: &Profile, agreed: Agreed) -> Result<Command, RefusedRequest> {
    if header.kind == command::DISC {
        // It is not answered, so what is wrong with it cannot be said; leaving is what the client wants.
        return Ok(Command::Disconnect);
    }
    check_payload(header)?;
    check_flags(header, agreed)?;
    if header.kind == command::FLUSH {
        let bare = header.offset == 0 && header.length == 0;
        return if bare { Ok(Command::Flush) } else { Err(RefusedRequest::RangeOfFlush) };
    }
    let writes = matches!(header.kind, command::WRITE | command::TRIM | command::WRITE_ZEROES);
    if writes && profile.access == Access::ReadOnly {
        return Err(RefusedRequest::ReadOnly);
    }
    let range = check_range(header, profile)?;
    command(header, agreed, range)
}

fn command(header: &RequestHeader, agreed: Agreed, range: Range<u64>) -> Result<Command, RefusedRequest> {
    let durability = header.durability();
    match header.kind {
        command::READ => {
            let fragments = if header.has(command_flag::DF) { Fragments::One } else { Fragments::Many };
            if fragments == Fragments::One && header.length > UNFRAGMENTED_BYTES_MAX {
                return Err(RefusedRequest::TooLongForOneChunk);
            }
            Ok(Command::Read { range, fragments })
        }
        command::WRITE => Ok(Command::Write { range, durability }),
        command::TRIM => Ok(Command::Trim { range, durability }),
        command::CACHE => Ok(Command::Cache { range }),
        command::WRITE_ZEROES => {
            let holes = if header.has(command_flag::NO_HOLE) { Holes::Forbidden } else { Holes::Allowed };
            let zero_mode =
                if header.has(command_flag::FAST_ZERO) { ZeroMode::OnlyFast } else { ZeroMode::Any };
            Ok(Command::WriteZeroes { range, holes, zero_mode, durability })
        }
        command::BLOCK_STATUS if !agreed.allocation => Err(RefusedRequest::NoContext),
        command::BLOCK_STATUS => {
            let extents_max = if header.has(command_flag::REQ_ONE) { 1 } else { usize::MAX };
            Ok(Command::BlockStatus { range, extents_max })
        }
        _ => Err(RefusedRequest::UnknownCommand),
    }
}

/// Whether an extended request has no payload where none belongs.
fn check_payload(header: &RequestHeader) -> Result<(), RefusedRequest> {
    let is_extended = header.headers == Headers::Extended;
    let has_payload = header.has(command_flag::PAYLOAD_LEN) && header.kind != command::WRITE;
    if is_extended && has_payload { Err(RefusedRequest::Payload) } else { Ok(()) }
}

fn check_flags(header: &RequestHeader, agreed: Agreed) -> Result<(), RefusedRequest> {
    let own = match header.kind {
        command::READ if agreed.form.has_chunks() => command_flag::DF,
        command::WRITE if header.headers == Headers::Extended => command_flag::PAYLOAD_LEN,
        command::READ | command::WRITE | command::FLUSH | command::TRIM | command::CACHE => 0,
        command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
        command::BLOCK_STATUS => command_flag::REQ_ONE,
        _ => return Err(RefusedRequest::UnknownCommand),
    };
    // Clients are known to set FUA on anything, and the protocol has servers accept that.
    if header.flags & !(own | command_flag::FUA) == 0 { Ok(()) } else { Err(RefusedRequest::BadFlags) }
}

fn check_range(header: &RequestHeader, profile: &Profile) -> Result<Range<u64>, RefusedRequest> {
    if header.length == 0 {
        return Err(RefusedRequest::Empty);
    }
    let carries_payload = matches!(header.kind, command::READ | command::WRITE);
    if carries_payload && header.length > u64::from(PAYLOAD_BYTES_MAX) {
        return Err(match (header.headers, header.kind) {
            (Headers::Extended, command::READ) => RefusedRequest::TooLongToRead,
            _ => RefusedRequest::TooLong,
        });
    }
    match header.offset.checked_add(header.length) {
        Some(end) if end <= profile.size.0 => Ok(header.offset..end),
        _ if matches!(header.kind, command::WRITE | command::WRITE_ZEROES) => Err(RefusedRequest::NoSpace),
        _ => Err(RefusedRequest::OutOfRange),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dolmen_units::Bytes;

    const STRUCTURED: Agreed = Agreed { form: ReplyForm::Structured, allocation: true };
    const SIMPLE: Agreed = Agreed { form: ReplyForm::Simple, allocation: false };

    fn profile() -> Profile {
        Profile { size: Bytes::gib(1), ..Profile::sample() }
    }

    fn header(kind: u16, flags: u16, offset: u64, length: u64) -> RequestHeader {
        RequestHeader { flags, kind, cookie: 7, offset, length, headers: Headers::Compact }
    }

    fn errno(header: RequestHeader, profile: &Profile, agreed: Agreed) -> Option<u32> {
        check(&header, profile, agreed).err().map(|refusal| refusal.errno().number())
    }

    #[test]
    fn every_wrong_request_has_its_error_number() {
        let end = 1u64 << 30;
        let (fua, no_hole, df, one, fast) = (1, 2, 4, 8, 16);
        let cases = [
            (header(0, 0, 0, 4096), None),
            (header(0, fua | df, 0, 65536), None),
            (header(0, df, 0, 2 << 20), Some(75)),
            (header(0, no_hole, 0, 4096), Some(22)),
            (header(0, one, 0, 4096), Some(22)),
            (header(0, 1 << 15, 0, 4096), Some(22)),
            (header(0, 0, 0, 0), Some(22)),
            (header(0, 0, 1, 512), None),
            (header(0, 0, 512, 511), None),
            (header(0, 0, end - 1, 1), None),
            (header(0, 0, end - 1, 2), Some(22)),
            (header(0, 0, end - 512, 512), None),
            (header(0, 0, end - 512, 1024), Some(22)),
            (header(0, 0, u64::MAX - 511, 512), Some(22)),
            (header(0, 0, 0, 64 << 20), None),
            (header(0, 0, 0, (64 << 20) + 1), Some(22)),
            (header(1, fua, 0, 512), None),
            (header(1, 0, end, 512), Some(28)),
            (header(1, 0, u64::MAX - 511, 512), Some(28)),
            (header(1, 0, 0, 0), Some(22)),
            (header(1, 0, 7, 64 << 20), None),
            (header(1, 0, 0, (64 << 20) + 1), Some(22)),
            (header(3, 0, 0, 0), None),
            (header(3, fua, 0, 0), None),
            (header(3, 0, 512, 0), Some(22)),
            (header(3, 0, 0, 512), Some(22)),
            (header(4, fua, 0, 1 << 30), None),
            (header(4, 0, 512, 1 << 30), Some(22)),
            (header(4, no_hole, 0, 512), Some(22)),
            (header(5, 0, 0, 1 << 30), None),
            (header(6, fua | no_hole | fast, 0, 1 << 30), None),
            (header(6, df, 0, 512), Some(22)),
            (header(6, 0, 512, 1 << 30), Some(28)),
            (header(7, one, 0, 1 << 30), None),
            (header(7, df, 0, 512), Some(22)),
            (header(7, 0, end, 512), Some(22)),
            (header(8, 0, 0, 512), Some(22)),
            (header(u16::MAX, 0, 0, 512), Some(22)),
        ];
        for (header, expected) in cases {
            assert_eq!(errno(header, &profile(), STRUCTURED), expected, "{header:?}");
        }
    }

    #[test]
    fn what_was_not_negotiated_is_invalid() {
        assert_eq!(errno(header(0, 4, 0, 512), &profile(), SIMPLE), Some(22));
        assert_eq!(errno(header(7, 0, 0, 512), &profile(), SIMPLE), Some(22));
    }

    #[test]
    fn changes_of_a_read_only_export_are_not_permitted() {
        let profile = Profile { access: Access::ReadOnly, ..profile() };
        for kind in [1, 4, 6] {
            assert_eq!(errno(header(kind, 0, 0, 512), &profile, STRUCTURED), Some(1));
        }
        assert_eq!(errno(header(3, 0, 0, 0), &profile, STRUCTURED), None);
    }

    #[test]
    fn requests_below_the_sector_are_taken_with_every_command() {
        let profile = Profile { block_bytes_min: 4096, ..profile() };
        for kind in [0, 1, 4, 5, 6, 7] {
            for (offset, length) in [(0, 512), (512, 4096), (4095, 1), (1, 8190)] {
                assert_eq!(errno(header(kind, 0, offset, length), &profile, STRUCTURED), None, "{kind}");
            }
        }
    }
}
