//! The numbers of the NBD protocol (NetworkBlockDevice/nbd, `doc/proto.md`) and the reading of big-endian fields.
//!
//! Everything on the wire is big-endian and packed. Nothing here does I/O, and nothing here trusts a length.

/// What a server says first: `NBDMAGIC`.
pub const MAGIC_SERVER: u64 = 0x4e42_444d_4147_4943;
/// Begins the handshake's second field and every option of a client: `IHAVEOPT`.
pub const MAGIC_OPTION: u64 = 0x4948_4156_454f_5054;
/// Begins every reply to an option.
pub const MAGIC_OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// Begins every request.
pub const MAGIC_REQUEST: u32 = 0x2560_9513;
/// Begins an extended request.
pub const MAGIC_EXTENDED_REQUEST: u32 = 0x21e4_1c71;
/// Begins a simple reply.
pub const MAGIC_SIMPLE_REPLY: u32 = 0x6744_6698;
/// Begins a chunk of a structured reply.
pub const MAGIC_CHUNK: u32 = 0x668e_33ef;
/// Begins a chunk of an extended reply.
pub const MAGIC_EXTENDED_CHUNK: u32 = 0x6e8a_278c;

/// Handshake and client flag: options are answered (fixed newstyle).
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake and client flag: the answer to an export name carries no padding.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;
/// The zeros after the answer to an export name, for clients that did not ask to go without.
pub const PADDING_BYTES: usize = 124;

/// Transmission flags: what a client may do once it is through the handshake.
pub mod transmission {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flush is understood.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Forced unit access is understood.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Seeks cost time.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// Trim is understood.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Write-zeroes is understood.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// Reads may ask for one content chunk.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers what was acknowledged on all of them.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// Cache is understood.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// Write-zeroes may be told to fail rather than be slow.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Numbers of options.
pub mod option {
    /// Enter transmission, the old way, without an answer on failure.
    pub const EXPORT_NAME: u32 = 1;
    /// Leave.
    pub const ABORT: u32 = 2;
    /// Name all exports.
    pub const LIST: u32 = 3;
    /// Go on encrypted.
    pub const STARTTLS: u32 = 5;
    /// Describe an export.
    pub const INFO: u32 = 6;
    /// Describe an export and enter transmission.
    pub const GO: u32 = 7;
    /// Answer in chunks.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Name the metadata contexts of an export.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
    /// Use 64-bit lengths.
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Numbers of replies to options.
pub mod option_reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One piece of information.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in all errors.
    pub const ERROR: u32 = 1 << 31;
}

/// Numbers of information items.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The export's name as the server calls it.
    pub const NAME: u16 = 1;
    /// A description for people.
    pub const DESCRIPTION: u16 = 2;
    /// Smallest, preferred and largest block.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Numbers of commands.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write; the payload follows.
    pub const WRITE: u16 = 1;
    /// Leave; not answered.
    pub const DISC: u16 = 2;
    /// Make acknowledged writes durable.
    pub const FLUSH: u16 = 3;
    /// Forget a range.
    pub const TRIM: u16 = 4;
    /// Read ahead.
    pub const CACHE: u16 = 5;
    /// Make a range read as zeros.
    pub const WRITE_ZEROES: u16 = 6;
    /// Say what is allocated.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of commands.
pub mod command_flag {
    /// Durable before it is acknowledged.
    pub const FUA: u16 = 1 << 0;
    /// Keep the range allocated.
    pub const NO_HOLE: u16 = 1 << 1;
    /// At most one content chunk.
    pub const DF: u16 = 1 << 2;
    /// At most one extent.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail rather than write zeros one by one.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// Extended requests alone: the length is that of a payload which follows.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Types of chunks.
pub mod chunk {
    /// Nothing more.
    pub const NONE: u16 = 0;
    /// Offset and data.
    pub const OFFSET_DATA: u16 = 1;
    /// Offset and length of zeros.
    pub const OFFSET_HOLE: u16 = 2;
    /// Context and extents.
    pub const BLOCK_STATUS: u16 = 5;
    /// Context, count and extents of 64 bits.
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// Error and message.
    pub const ERROR: u16 = (1 << 15) + 1;
    /// Error, message and offset.
    pub const ERROR_OFFSET: u16 = (1 << 15) + 2;
    /// The flag of the last chunk of a reply.
    pub const FLAG_DONE: u16 = 1;
}

/// The one metadata context that is served.
pub const CONTEXT_ALLOCATION: &str = "base:allocation";
/// The namespace of that context, which a client may ask to have listed as a whole.
pub const CONTEXT_NAMESPACE: &str = "base:";
/// The number by which replies name that context.
pub const CONTEXT_ALLOCATION_ID: u32 = 1;
/// State of an extent: not allocated.
pub const STATE_HOLE: u32 = 1;
/// State of an extent: reads as zeros.
pub const STATE_ZERO: u32 = 2;

/// The longest string that the protocol allows.
pub const STRING_BYTES_MAX: usize = 4096;

/// An error number of a reply. The protocol fixes the values, whatever the system's own are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Errno {
    /// `EPERM`: the export is read-only.
    Permission,
    /// `EIO`: the content could not be read or written.
    Io,
    /// `EINVAL`: the request makes no sense.
    Invalid,
    /// `ENOSPC`: no room, or beyond the end.
    NoSpace,
    /// `EOVERFLOW`: too long for one chunk.
    Overflow,
    /// `ENOTSUP`: not possible fast.
    NotSupported,
    /// `ESHUTDOWN`: the server is stopping.
    Shutdown,
}

impl Errno {
    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Permission => 1,
            Self::Io => 5,
            Self::Invalid => 22,
            Self::NoSpace => 28,
            Self::Overflow => 75,
            Self::NotSupported => 95,
            Self::Shutdown => 108,
        }
    }
}

/// Reads fields off the front of some bytes. What is not there is `None`, never a panic.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*first)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// `len` bytes; a length beyond what is there is `None` and takes nothing.
    pub(crate) fn bytes(&mut self, len: u32) -> Option<&'a [u8]> {
        let (first, rest) = self.rest.split_at_checked(usize::try_from(len).ok()?)?;
        self.rest = rest;
        Some(first)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
}

/// Writes fields one after the other into memory that is known to be long enough.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    into: &'a mut [u8],
    used: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(into: &'a mut [u8]) -> Self {
        Self { into, used: 0 }
    }

    /// Appends the bytes. Callers size the memory by a named maximum, so bytes that do not fit are a broken invariant.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> &mut Self {
        let space = self.into.len();
        let end = self.used + bytes.len();
        let Some(to) = self.into.get_mut(self.used..end) else {
            panic!("a message of {end} bytes exceeds {space}")
        };
        to.copy_from_slice(bytes);
        self.used = end;
        self
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }
}
