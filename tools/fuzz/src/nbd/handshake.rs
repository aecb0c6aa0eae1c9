//! The handshake as the protocol's document has it: what each option of a client is answered with. It is a second reader of the
//! client's bytes, which the server's answers are compared with.

use super::server::{DESCRIPTION, DISK_BYTES, NAME, SECRET};

/// What the server says first.
pub(super) const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";
/// Options of one handshake, at most.
const OPTIONS_MAX: usize = 64;
/// Bytes of data that one option may have, and all of them together.
const OPTION_BYTES_MAX: usize = 64 << 10;
const ALL_BYTES_MAX: usize = 1 << 20;
const STRING_BYTES_MAX: usize = 4096;
/// Queries of one option, at most.
const QUERIES_MAX: u32 = 64;

/// How replies are said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Form {
    #[default]
    Simple,
    Structured,
    Extended,
}

/// Where a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Flags are to come.
    Flags,
    Options,
    Transmission,
    /// The server closes the connection, or the client has left.
    Over,
}

/// A message of the server to an option: its type, and its data where that is told in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Option {
        kind: u32,
        data: Option<Vec<u8>>,
    },
    /// The answer to the old option.
    Export {
        bytes: Vec<u8>,
    },
}

/// What was agreed on so far.
#[derive(Debug, Clone)]
pub(super) struct Handshake {
    pub(super) stage: Stage,
    pub(super) form: Form,
    /// Metadata contexts were chosen for this name.
    allocation_of: Option<String>,
    /// Whether block status is understood.
    pub(super) has_status: bool,
    is_fixed: bool,
    has_padding: bool,
    options: usize,
    bytes: usize,
}

fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

fn ack() -> Reply {
    Reply::Option { kind: 1, data: Some(Vec::new()) }
}

fn refusal(number: u32) -> Reply {
    Reply::Option { kind: 1 << 31 | number, data: None }
}

/// A string, if it may be one.
fn text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (bytes.len() <= STRING_BYTES_MAX && !bytes.contains(&0)).then_some(text)
}

/// A string behind its length, and what follows it.
fn counted(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_at_checked(4)?;
    let (string, rest) = rest.split_at_checked(be(length) as usize)?;
    Some((text(string)?, rest))
}

/// Whether an export of this name is given: the number of the error else.
fn opened(name: &str) -> Result<(), u32> {
    match name {
        "" | NAME => Ok(()),
        SECRET => Err(2),
        _ => Err(6),
    }
}

impl Handshake {
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Flags,
            form: Form::Simple,
            allocation_of: None,
            has_status: false,
            is_fixed: false,
            has_padding: true,
            options: 0,
            bytes: 0,
        }
    }

    /// Takes the next message off the front of a stream: how many bytes it has, and what is answered. `None`: it is not all
    /// there.
    pub(super) fn take(&mut self, stream: &[u8]) -> Option<(usize, Vec<Reply>)> {
        if self.stage == Stage::Flags {
            let flags = be(stream.get(..4)?);
            (self.is_fixed, self.has_padding) = (flags & 1 != 0, flags & 2 == 0);
            self.stage = if flags > 3 { Stage::Over } else { Stage::Options };
            return Some((4, Vec::new()));
        }
        if self.options == OPTIONS_MAX {
            self.stage = Stage::Over;
            return Some((stream.len(), Vec::new()));
        }
        let head = stream.get(..16)?;
        let (number, length) = (be(&head[8..12]) as u32, be(&head[12..]) as usize);
        if &head[..8] != b"IHAVEOPT" || (!self.is_fixed && number != 1) {
            self.stage = Stage::Over;
            return Some((16, Vec::new()));
        }
        if length > OPTION_BYTES_MAX && number == 1 {
            self.stage = Stage::Over;
            return Some((16, Vec::new()));
        }
        if self.bytes + length > ALL_BYTES_MAX {
            self.stage = Stage::Over;
            return Some((16, vec![refusal(9)]));
        }
        let data = stream.get(16..16 + length)?;
        self.bytes += length;
        self.options += 1;
        let replies = if length > OPTION_BYTES_MAX {
            vec![refusal(9)]
        } else {
            self.option(number, data).unwrap_or_else(|number| vec![refusal(number)])
        };
        Some((16 + length, replies))
    }

    /// What an option is answered with: replies, or the number of an error.
    fn option(&mut self, number: u32, data: &[u8]) -> Result<Vec<Reply>, u32> {
        let bare = if data.is_empty() { Ok(()) } else { Err(3u32) };
        match number {
            1 => return Ok(self.export_name(data)),
            2 => self.stage = Stage::Over,
            3 => {
                bare?;
                let length = (NAME.len() as u32).to_be_bytes();
                let of = [&length[..], NAME.as_bytes(), DESCRIPTION.as_bytes()].concat();
                return Ok(vec![Reply::Option { kind: 2, data: Some(of) }, ack()]);
            }
            5 => {
                bare?;
                return Err(1);
            }
            6 | 7 => return self.describe(number, data),
            8 => {
                bare?;
                match self.form {
                    Form::Simple => self.form = Form::Structured,
                    Form::Structured => return Err(3),
                    Form::Extended => return Err(10),
                }
            }
            9 | 10 => return self.contexts(number, data),
            11 => {
                bare?;
                if self.form == Form::Extended {
                    return Err(3);
                }
                self.form = Form::Extended;
            }
            _ => return Err(1),
        }
        Ok(vec![ack()])
    }

    fn flags(&self) -> u16 {
        // Flush, durable writes, trim, zeroes, several connections, cache, fast zeroes.
        let all = 1 | 4 | 8 | 32 | 64 | 256 | 1024 | 2048;
        if self.form == Form::Simple { all } else { all | 128 }
    }

    fn enter(&mut self, name: &str) {
        self.stage = Stage::Transmission;
        self.has_status = self.form != Form::Simple && self.allocation_of.as_deref() == Some(name);
    }

    fn export_name(&mut self, data: &[u8]) -> Vec<Reply> {
        let name = text(data).filter(|name| opened(name).is_ok() && self.form != Form::Extended);
        let Some(name) = name else {
            self.stage = Stage::Over;
            return Vec::new();
        };
        self.enter(name);
        let mut bytes = [&DISK_BYTES.to_be_bytes()[..], &self.flags().to_be_bytes()].concat();
        bytes.resize(bytes.len() + if self.has_padding { 124 } else { 0 }, 0);
        vec![Reply::Export { bytes }]
    }

    fn describe(&mut self, number: u32, data: &[u8]) -> Result<Vec<Reply>, u32> {
        let (name, rest) = counted(data).ok_or(3u32)?;
        let (count, items) = rest.split_at_checked(2).ok_or(3u32)?;
        if items.len() as u64 != 2 * be(count) {
            return Err(3);
        }
        opened(name)?;
        let has = |item| items.chunks(2).any(|chunk| be(chunk) == item);
        let info = |item: u16, data: &[u8]| Reply::Option {
            kind: 3,
            data: Some([&item.to_be_bytes()[..], data].concat()),
        };
        let export = [&DISK_BYTES.to_be_bytes()[..], &self.flags().to_be_bytes()].concat();
        let sizes: Vec<u8> = [512u32, 4096, 64 << 20].iter().flat_map(|size| size.to_be_bytes()).collect();
        let mut replies = vec![info(0, &export), info(3, &sizes)];
        if has(1) {
            replies.push(info(1, NAME.as_bytes()));
        }
        if has(2) {
            replies.push(info(2, DESCRIPTION.as_bytes()));
        }
        replies.push(ack());
        if number == 7 {
            self.enter(name);
        }
        Ok(replies)
    }

    fn contexts(&mut self, number: u32, data: &[u8]) -> Result<Vec<Reply>, u32> {
        if number == 10 {
            // A new choice takes the place of the one before, also when it comes to nothing.
            self.allocation_of = None;
        }
        let (name, rest) = counted(data).ok_or(3u32)?;
        let (count, mut rest) = rest.split_at_checked(4).ok_or(3u32)?;
        let count = be(count) as u32;
        if count > QUERIES_MAX {
            return Err(9);
        }
        let (mut is_exact, mut is_space) = (false, false);
        for _ in 0..count {
            let (query, after) = counted(rest).ok_or(3u32)?;
            is_exact |= query == "base:allocation";
            is_space |= query == "base:";
            rest = after;
        }
        if !rest.is_empty() {
            return Err(3);
        }
        if self.form == Form::Simple {
            return Err(3);
        }
        opened(name)?;
        let is_meant = is_exact || number == 9 && (is_space || count == 0);
        if number == 10 {
            self.allocation_of = is_meant.then(|| name.to_owned());
        }
        let context = Reply::Option { kind: 4, data: Some([&[0, 0, 0, 1][..], b"base:allocation"].concat()) };
        Ok(if is_meant { vec![context, ack()] } else { vec![ack()] })
    }
}

/// Compares what the server said with what it should have.
pub(super) fn expect_sent(sent: &[u8], option: Option<u32>, expected: &[Reply]) {
    let mut rest = sent;
    for reply in expected {
        match reply {
            Reply::Export { bytes } => {
                assert!(rest.starts_with(bytes), "the export is told as {rest:02x?} instead of {bytes:02x?}");
                rest = &rest[bytes.len()..];
            }
            Reply::Option { kind, data } => {
                assert!(rest.len() >= 20, "{reply:?} is missing, what is said is {rest:02x?}");
                let (head, after) = rest.split_at(20);
                assert_eq!(
                    head[..8],
                    0x0003_e889_0455_65a9u64.to_be_bytes(),
                    "a reply begins with its magic"
                );
                assert_eq!(Some(be(&head[8..12]) as u32), option, "a reply names its option");
                assert_eq!(be(&head[12..16]) as u32, *kind, "the type of a reply; its data are {after:02x?}");
                let (found, after) = after.split_at(be(&head[16..]) as usize);
                match data {
                    Some(data) => assert_eq!(found, data, "the data of a reply of type {kind:#x}"),
                    None => {
                        assert!(text(found).is_some_and(|text| !text.is_empty()), "a refusal has a reason")
                    }
                }
                rest = after;
            }
        }
    }
    assert!(rest.is_empty(), "the server says more than it should: {rest:02x?}");
}
