//! The messages of the handshake: options of the client, replies of the server.

use crate::wire::{
    CONTEXT_ALLOCATION, CONTEXT_ALLOCATION_ID, CONTEXT_NAMESPACE, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES,
    Fields, MAGIC_OPTION, MAGIC_OPTION_REPLY, MAGIC_SERVER, PADDING_BYTES, STRING_BYTES_MAX, info, option,
    option_reply,
};
use crate::{HANDSHAKE_BYTES_MAX, PRELUDE_BYTES_MAX};

/// What a server sends first.
pub const GREETING_BYTES: usize = 18;
/// The client's flags.
pub const CLIENT_FLAGS_BYTES: usize = 4;
/// Magic, number and length of an option.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Queries that one option may carry, and information items that one may ask for.
pub const LIST_COUNT_MAX: usize = 64;

/// Bytes of a handshake that break the protocol so that no answer is possible or useful.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// The client set flags that it was not offered.
    #[error(
        "reading the client's flags: {found:#x} holds bits that were not offered ({offered:#x}); closing"
    )]
    UnknownFlags {
        /// What the client sent.
        found: u32,
        /// What it may send.
        offered: u16,
    },
    /// An option does not begin with its magic, so the stream is out of step.
    #[error("reading an option: magic {found:#018x} instead of {MAGIC_OPTION:#018x}; closing")]
    BadMagic {
        /// What was found.
        found: u64,
    },
    /// A client that did not ask for answers to options sent one that needs an answer.
    #[error("option {option} from a client without fixed newstyle, which may only name an export; closing")]
    NotFixed {
        /// The option.
        option: u32,
    },
    /// More options than one handshake may hold.
    #[error("more than {options_max} options; closing")]
    TooManyOptions {
        /// How many there may be here.
        options_max: usize,
    },
    /// More data of options than one handshake may hold.
    #[error("a handshake whose options carry {found} bytes, above {HANDSHAKE_BYTES_MAX}; closing")]
    TooManyBytes {
        /// What the client has announced so far.
        found: u64,
    },
    /// More than a client may say before TLS.
    #[error("{found} bytes or more before TLS, above {PRELUDE_BYTES_MAX}; closing")]
    PreludeTooLong {
        /// What the client has announced so far.
        found: u64,
    },
    /// The export could not be opened, and the old option has no way to say so.
    #[error("the export asked for with the old option cannot be served: {refusal}; closing")]
    NoExport {
        /// Why.
        refusal: RefusedOption,
    },
}

/// Why an option is answered with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefusedOption {
    /// Not known here.
    #[error("this server does not know the option")]
    Unsupported,
    /// Known, and not offered.
    #[error("this server does not offer TLS on this socket")]
    NoTls,
    /// Nothing else is answered before TLS.
    #[error("this address is served over TLS alone; begin with STARTTLS")]
    TlsRequired,
    /// TLS stands already.
    #[error("TLS was negotiated already")]
    TlsTwice,
    /// No place for another connection.
    #[error("the server has {connections_max} connections already, which is its limit; try again later")]
    Full {
        /// The limit.
        connections_max: usize,
    },
    /// No place for another connection from this address.
    #[error(
        "the server has {connections_max} connections from your address already, which is its limit; try again later"
    )]
    FullForAddress {
        /// The limit.
        connections_max: usize,
    },
    /// Known, and not allowed.
    #[error("access to the export is not allowed")]
    Policy,
    /// Data where none belongs, or lengths that contradict each other.
    #[error("the option's data is malformed")]
    Malformed,
    /// A string that is too long, no UTF-8 or holds a NUL.
    #[error("a name must be UTF-8 without NUL and at most 4096 bytes long")]
    BadString,
    /// Metadata contexts need structured replies.
    #[error("negotiate structured replies or extended headers first")]
    NeedsStructured,
    /// Asked for twice.
    #[error("that was negotiated already")]
    Repeated,
    /// There is no way back from extended headers.
    #[error("extended headers were negotiated, which go before structured replies")]
    Extended,
    /// The old option after extended headers, which the protocol forbids.
    #[error("extended headers were negotiated; choose the export with GO")]
    NeedsGo,
    /// No such export.
    #[error("there is no export of that name")]
    UnknownExport,
    /// The server is stopping.
    #[error("the server is stopping")]
    Stopping,
    /// More data than is read.
    #[error("the option's data is too long")]
    TooBig,
}

impl RefusedOption {
    /// The reply type on the wire.
    #[must_use]
    pub const fn reply_type(self) -> u32 {
        option_reply::ERROR
            + match self {
                Self::Unsupported | Self::NoTls => 1,
                Self::Policy | Self::Full { .. } | Self::FullForAddress { .. } => 2,
                Self::Malformed
                | Self::BadString
                | Self::NeedsStructured
                | Self::Repeated
                | Self::NeedsGo
                | Self::TlsTwice => 3,
                Self::TlsRequired => 5,
                Self::UnknownExport => 6,
                Self::Stopping => 7,
                Self::TooBig => 9,
                Self::Extended => 10,
            }
    }
}

/// What the client's flags agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientFlags {
    /// Options are answered.
    pub fixed_newstyle: bool,
    /// No padding after the answer to an export name.
    pub no_zeroes: bool,
}

impl ClientFlags {
    /// Reads the client's flags.
    ///
    /// # Errors
    /// [`HandshakeError::UnknownFlags`]: the protocol demands that the connection is dropped.
    pub fn parse(bytes: [u8; CLIENT_FLAGS_BYTES]) -> Result<Self, HandshakeError> {
        let found = u32::from_be_bytes(bytes);
        let offered = FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES;
        if found & !u32::from(offered) != 0 {
            return Err(HandshakeError::UnknownFlags { found, offered });
        }
        let has = |flag: u16| found & u32::from(flag) != 0;
        Ok(Self { fixed_newstyle: has(FLAG_FIXED_NEWSTYLE), no_zeroes: has(FLAG_NO_ZEROES) })
    }
}

/// The head of an option, before its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionHeader {
    /// Which option.
    pub option: u32,
    /// Bytes of data that follow, as claimed.
    pub data_bytes: u32,
}

impl OptionHeader {
    /// Reads the head of an option.
    ///
    /// # Errors
    /// [`HandshakeError::BadMagic`].
    pub fn parse(bytes: &[u8; OPTION_HEADER_BYTES]) -> Result<Self, HandshakeError> {
        let mut fields = Fields::new(bytes);
        let found = fields.u64().unwrap_or(0);
        if found != MAGIC_OPTION {
            return Err(HandshakeError::BadMagic { found });
        }
        Ok(Self { option: fields.u32().unwrap_or(0), data_bytes: fields.u32().unwrap_or(0) })
    }
}

/// An option that was understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Enter transmission without an answer on failure.
    ExportName {
        /// The export.
        name: &'a str,
    },
    /// Leave.
    Abort,
    /// Name all exports.
    List,
    /// Go on encrypted.
    StartTls,
    /// Describe an export.
    Info {
        /// The export.
        name: &'a str,
        /// What the client wants to know.
        wanted: Wanted,
    },
    /// Describe an export and enter transmission.
    Go {
        /// The export.
        name: &'a str,
        /// What the client wants to know.
        wanted: Wanted,
    },
    /// Answer in chunks.
    StructuredReply,
    /// Ask and answer with lengths of 64 bits.
    ExtendedHeaders,
    /// Name the contexts that match.
    ListContexts {
        /// The export.
        name: &'a str,
        /// Whether `base:allocation` is among them.
        allocation: bool,
    },
    /// Select the contexts that match, and no others.
    SetContexts {
        /// The export.
        name: &'a str,
        /// Whether `base:allocation` is among them.
        allocation: bool,
    },
}

/// Information that a client asked for beyond what it always gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// The export's own name.
    pub name: bool,
    /// The description.
    pub description: bool,
}

impl<'a> Request<'a> {
    /// Reads the data of an option.
    ///
    /// # Errors
    /// The error to answer with; the stream stays in step, because the data was read by its length.
    pub fn parse(option: u32, data: &'a [u8]) -> Result<Self, RefusedOption> {
        let bare = |request| if data.is_empty() { Ok(request) } else { Err(RefusedOption::Malformed) };
        match option {
            option::EXPORT_NAME => Ok(Self::ExportName { name: string(data)? }),
            // Data with an abort is wrong, but whoever wants to leave is let go.
            option::ABORT => Ok(Self::Abort),
            option::LIST => bare(Self::List),
            option::STARTTLS => bare(Self::StartTls),
            option::STRUCTURED_REPLY => bare(Self::StructuredReply),
            option::EXTENDED_HEADERS => bare(Self::ExtendedHeaders),
            option::INFO => parse_info(data).map(|(name, wanted)| Self::Info { name, wanted }),
            option::GO => parse_info(data).map(|(name, wanted)| Self::Go { name, wanted }),
            option::LIST_META_CONTEXT => {
                let (name, queries) = parse_contexts(data)?;
                Ok(Self::ListContexts { name, allocation: queries.lists_allocation() })
            }
            option::SET_META_CONTEXT => {
                let (name, queries) = parse_contexts(data)?;
                Ok(Self::SetContexts { name, allocation: queries.allocation })
            }
            _ => Err(RefusedOption::Unsupported),
        }
    }
}

fn string(bytes: &[u8]) -> Result<&str, RefusedOption> {
    let text = std::str::from_utf8(bytes).map_err(|_| RefusedOption::BadString)?;
    if bytes.len() > STRING_BYTES_MAX || bytes.contains(&0) {
        return Err(RefusedOption::BadString);
    }
    Ok(text)
}

/// A string that follows its own length, which is checked against what is there before it is used.
fn counted_string<'a>(fields: &mut Fields<'a>) -> Result<&'a str, RefusedOption> {
    let len = fields.u32().ok_or(RefusedOption::Malformed)?;
    string(fields.bytes(len).ok_or(RefusedOption::Malformed)?)
}

fn parse_info(data: &[u8]) -> Result<(&str, Wanted), RefusedOption> {
    let mut fields = Fields::new(data);
    let name = counted_string(&mut fields)?;
    let count = fields.u16().ok_or(RefusedOption::Malformed)?;
    let mut wanted = Wanted::default();
    for _ in 0..count {
        match fields.u16().ok_or(RefusedOption::Malformed)? {
            info::NAME => wanted.name = true,
            info::DESCRIPTION => wanted.description = true,
            // Size and block sizes are sent in any case; unknown items are to be ignored.
            _ => {}
        }
    }
    if fields.is_empty() { Ok((name, wanted)) } else { Err(RefusedOption::Malformed) }
}

/// What the queries of a context option match.
#[derive(Debug, Default)]
struct Queries {
    none: bool,
    namespace: bool,
    allocation: bool,
}

impl Queries {
    /// A list without queries names everything; a namespace names what is in it.
    fn lists_allocation(&self) -> bool {
        self.none || self.namespace || self.allocation
    }
}

fn parse_contexts(data: &[u8]) -> Result<(&str, Queries), RefusedOption> {
    let mut fields = Fields::new(data);
    let name = counted_string(&mut fields)?;
    let count = fields.u32().ok_or(RefusedOption::Malformed)?;
    if usize::try_from(count).map_or(true, |count| count > LIST_COUNT_MAX) {
        return Err(RefusedOption::TooBig);
    }
    let mut queries = Queries { none: count == 0, ..Queries::default() };
    for _ in 0..count {
        let query = counted_string(&mut fields)?;
        queries.namespace |= query == CONTEXT_NAMESPACE;
        queries.allocation |= query == CONTEXT_ALLOCATION;
    }
    if fields.is_empty() { Ok((name, queries)) } else { Err(RefusedOption::Malformed) }
}

/// What the server says first.
#[must_use]
pub fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    let flags = FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES;
    let mut writer = crate::wire::Writer::new(&mut bytes);
    writer.put(&MAGIC_SERVER.to_be_bytes()).put(&MAGIC_OPTION.to_be_bytes()).put(&flags.to_be_bytes());
    bytes
}

/// Size, transmission flags and block sizes of an export, as the handshake tells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bits of [`transmission`](crate::wire::transmission).
    pub flags: u16,
    /// Smallest, preferred and largest block, in bytes.
    pub block_bytes: [u32; 3],
}

/// Appends the server's messages of the handshake to a vector.
#[derive(Debug)]
pub struct Replies<'a> {
    /// Where they go.
    pub into: &'a mut Vec<u8>,
    /// The option that they answer.
    pub option: u32,
}

impl Replies<'_> {
    fn reply(&mut self, reply_type: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let Ok(len) = u32::try_from(len) else {
            panic!("a reply of {len} bytes was made of bounded strings")
        };
        self.into.extend_from_slice(&MAGIC_OPTION_REPLY.to_be_bytes());
        for field in [self.option, reply_type, len] {
            self.into.extend_from_slice(&field.to_be_bytes());
        }
        for part in parts {
            self.into.extend_from_slice(part);
        }
    }

    /// Done.
    pub fn ack(&mut self) {
        self.reply(option_reply::ACK, &[]);
    }

    /// Not done, and why.
    pub fn error(&mut self, refusal: RefusedOption) {
        self.reply(refusal.reply_type(), &[refusal.to_string().as_bytes()]);
    }

    /// One export of a list.
    pub fn server(&mut self, name: &str, description: &str) {
        let name = clipped(name);
        let len = u32::try_from(name.len()).unwrap_or(0);
        self.reply(
            option_reply::SERVER,
            &[&len.to_be_bytes(), name.as_bytes(), clipped(description).as_bytes()],
        );
    }

    /// A metadata context under its number.
    pub fn context(&mut self) {
        let id = CONTEXT_ALLOCATION_ID.to_be_bytes();
        self.reply(option_reply::META_CONTEXT, &[&id, CONTEXT_ALLOCATION.as_bytes()]);
    }

    /// Size, flags and block sizes.
    pub fn facts(&mut self, facts: &Facts) {
        let (size, flags) = (facts.size_bytes.to_be_bytes(), facts.flags.to_be_bytes());
        self.reply(option_reply::INFO, &[&info::EXPORT.to_be_bytes(), &size, &flags]);
        let [smallest, preferred, largest] = facts.block_bytes.map(u32::to_be_bytes);
        self.reply(option_reply::INFO, &[&info::BLOCK_SIZE.to_be_bytes(), &smallest, &preferred, &largest]);
    }

    /// A text: [`info::NAME`] or [`info::DESCRIPTION`].
    pub fn text(&mut self, item: u16, text: &str) {
        self.reply(option_reply::INFO, &[&item.to_be_bytes(), clipped(text).as_bytes()]);
    }

    /// The answer to an export name, which has a form of its own.
    pub fn export_name(&mut self, facts: &Facts, no_zeroes: bool) {
        self.into.extend_from_slice(&facts.size_bytes.to_be_bytes());
        self.into.extend_from_slice(&facts.flags.to_be_bytes());
        if !no_zeroes {
            self.into.extend_from_slice(&[0; PADDING_BYTES]);
        }
    }
}

/// The longest beginning of a text that the protocol can carry.
fn clipped(text: &str) -> &str {
    let end = text.floor_char_boundary(STRING_BYTES_MAX);
    text.get(..end).unwrap_or_default()
}
