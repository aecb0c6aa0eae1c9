//! Requests, and what they are answered with: an array in memory, and the protocol's document as a second reader of both streams.

use std::collections::BTreeMap;

use super::handshake::Form;
use super::server::DISK_BYTES;

const READ: u16 = 0;
pub(super) const WRITE: u16 = 1;
pub(super) const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const CACHE: u16 = 5;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;
const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const DF: u16 = 4;
const REQ_ONE: u16 = 8;
const FAST_ZERO: u16 = 16;
pub(super) const PAYLOAD: u16 = 32;
/// Bytes of a payload, at most.
pub(super) const PAYLOAD_BYTES_MAX: u64 = 32 << 20;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) length: u64,
}

fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

impl Request {
    /// As it is said in this form.
    pub(super) fn bytes(&self, form: Form) -> Vec<u8> {
        let magic: u32 = if form == Form::Extended { 0x21e4_1c71 } else { 0x2560_9513 };
        let mut bytes = magic.to_be_bytes().to_vec();
        bytes.extend(self.flags.to_be_bytes());
        bytes.extend(self.kind.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(self.offset.to_be_bytes());
        match form {
            Form::Extended => bytes.extend(self.length.to_be_bytes()),
            Form::Simple | Form::Structured => bytes.extend((self.length as u32).to_be_bytes()),
        }
        bytes
    }

    /// The request at the front of a stream, and its bytes; an error if that is none. `None`: it is not all there.
    pub(super) fn parse(stream: &[u8], form: Form) -> Option<Result<(Self, usize), ()>> {
        let length = if form == Form::Extended { 32 } else { 28 };
        let head = stream.get(..length)?;
        let cookie = be(&head[8..16]);
        let (flags, kind) = (be(&head[4..6]) as u16, be(&head[6..8]) as u16);
        let of = Self { kind, flags, cookie, offset: be(&head[16..24]), length: be(&head[24..]) };
        let is_sound = head == of.bytes(form);
        Some(if is_sound { Ok((of, length)) } else { Err(()) })
    }

    /// Bytes that follow it.
    pub(super) fn payload(&self, form: Form) -> u64 {
        let has = self.kind == WRITE || form == Form::Extended && self.flags & PAYLOAD != 0;
        if has { self.length } else { 0 }
    }

    /// Whether neither can change what the other finds.
    pub(super) fn is_apart(&self, other: &Self) -> bool {
        let reads = |of: &Self| matches!(of.kind, READ | BLOCK_STATUS | CACHE | FLUSH);
        let end = |of: &Self| of.offset.saturating_add(of.length);
        (reads(self) && reads(other)) || end(self) <= other.offset || end(other) <= self.offset
    }
}

/// What a request is answered with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Error(u32),
    Done,
    Content(Vec<u8>),
    States(Vec<bool>),
}

/// The disk as a person would describe it.
pub(super) struct Model {
    pub(super) form: Form,
    pub(super) has_status: bool,
    pub(super) content: Vec<u8>,
    pub(super) allocated: Vec<bool>,
}

impl Model {
    pub(super) fn new(form: Form, has_status: bool) -> Self {
        let bytes = DISK_BYTES as usize;
        Self { form, has_status, content: vec![0; bytes], allocated: vec![false; bytes] }
    }

    /// The number of the error that a request is, if it is one.
    pub(super) fn error(&self, request: &Request) -> Option<u32> {
        let Request { kind, flags, offset, length, .. } = *request;
        let allowed = match kind {
            READ if self.form != Form::Simple => DF,
            WRITE if self.form == Form::Extended => PAYLOAD,
            WRITE_ZEROES => NO_HOLE | FAST_ZERO,
            BLOCK_STATUS => REQ_ONE,
            READ | WRITE | FLUSH | TRIM | CACHE => 0,
            _ => return Some(22),
        };
        let is_flush = kind == FLUSH;
        if flags & !(allowed | FUA) != 0 || is_flush != (length == 0) || (is_flush && offset > 0) {
            return Some(22);
        }
        if is_flush {
            return None;
        }
        if matches!(kind, READ | WRITE) && length > PAYLOAD_BYTES_MAX {
            return Some(if kind == READ && self.form == Form::Extended { 75 } else { 22 });
        }
        if offset.checked_add(length).is_none_or(|end| end > DISK_BYTES) {
            return Some(if matches!(kind, WRITE | WRITE_ZEROES) { 28 } else { 22 });
        }
        match kind {
            WRITE_ZEROES if flags & NO_HOLE != 0 && flags & FAST_ZERO != 0 => Some(95),
            BLOCK_STATUS if !self.has_status => Some(22),
            _ => None,
        }
    }

    /// Does what is asked for.
    pub(super) fn apply(&mut self, request: &Request, payload: &[u8]) -> Expected {
        if let Some(error) = self.error(request) {
            return Expected::Error(error);
        }
        let end = request.offset + request.length;
        let bytes = request.offset as usize..end as usize;
        match request.kind {
            READ => Expected::Content(self.content[bytes].to_vec()),
            WRITE => {
                self.content[bytes.clone()].copy_from_slice(payload);
                self.allocated[bytes].fill(true);
                Expected::Done
            }
            TRIM | WRITE_ZEROES => {
                self.content[bytes.clone()].fill(0);
                self.allocated[bytes].fill(request.flags & NO_HOLE != 0);
                Expected::Done
            }
            BLOCK_STATUS => Expected::States(self.allocated[bytes].to_vec()),
            _ => Expected::Done,
        }
    }
}

/// What came back of one request so far.
#[derive(Debug, Default)]
struct Coming {
    error: Option<u32>,
    content: BTreeMap<u64, Vec<u8>>,
    extents: Vec<(u64, bool)>,
}

/// What the server said, reply by reply: the cookie of each, and what it says.
pub(super) struct Replies<'a> {
    rest: &'a [u8],
    form: Form,
    coming: BTreeMap<u64, Coming>,
}

impl<'a> Replies<'a> {
    pub(super) fn new(sent: &'a [u8], form: Form) -> Self {
        Self { rest: sent, form, coming: BTreeMap::new() }
    }

    fn take(&mut self, length: usize) -> &'a [u8] {
        assert!(length <= self.rest.len(), "a reply of {length} bytes is cut off: {:02x?}", self.rest);
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    /// The next reply that is whole, of a request that is looked up by its cookie; `None` behind the last.
    pub(super) fn next(&mut self, asked: impl Fn(u64) -> Option<Request>) -> Option<(u64, Expected)> {
        while !self.rest.is_empty() {
            let magic = be(self.take(4));
            let (cookie, is_whole) = match magic {
                0x6744_6698 if self.form != Form::Extended => (self.simple(&asked), true),
                0x668e_33ef if self.form == Form::Structured => self.chunk(16, &asked),
                0x6e8a_278c if self.form == Form::Extended => self.chunk(28, &asked),
                _ => panic!("{magic:#x} begins no reply"),
            };
            if is_whole {
                let coming = self.coming.remove(&cookie).unwrap_or_default();
                let request = asked(cookie).expect("a reply is to what was asked");
                return Some((cookie, whole(&request, coming)));
            }
        }
        assert!(self.coming.is_empty(), "replies without an end: {:?}", self.coming);
        None
    }

    fn simple(&mut self, asked: impl Fn(u64) -> Option<Request>) -> u64 {
        let head = self.take(12);
        let (error, cookie) = (be(&head[..4]) as u32, be(&head[4..]));
        let request = asked(cookie).unwrap_or_else(|| panic!("{cookie} was not asked"));
        let is_chunked = self.form == Form::Structured && matches!(request.kind, READ | BLOCK_STATUS);
        assert!(!is_chunked, "{request:?} is answered in chunks");
        let content =
            if request.kind == READ && error == 0 { self.take(request.length as usize) } else { &[] };
        let coming = self.coming.entry(cookie).or_default();
        coming.error = (error != 0).then_some(error);
        if !content.is_empty() {
            coming.content.insert(request.offset, content.to_vec());
        }
        cookie
    }

    fn chunk(&mut self, head: usize, asked: impl Fn(u64) -> Option<Request>) -> (u64, bool) {
        let head = self.take(head);
        let (flags, kind, cookie) = (be(&head[..2]), be(&head[2..4]), be(&head[4..12]));
        let request = asked(cookie).unwrap_or_else(|| panic!("{cookie} was not asked"));
        let length = if self.form == Form::Extended { be(&head[20..]) } else { be(&head[12..]) };
        if self.form == Form::Extended {
            assert_eq!(be(&head[12..20]), request.offset, "a chunk repeats the offset of its request");
        }
        let data = self.take(length as usize);
        let coming = self.coming.entry(cookie).or_default();
        match kind {
            0 => assert!(data.is_empty() && flags == 1, "a chunk of nothing is the last one"),
            1 => _ = coming.content.insert(be(&data[..8]), data[8..].to_vec()),
            2 => _ = coming.content.insert(be(&data[..8]), vec![0; be(&data[8..]) as usize]),
            5 | 6 => {
                let (front, each) = if kind == 6 { (8, 16) } else { (4, 8) };
                assert_eq!(
                    (kind == 6, be(&data[..4])),
                    (self.form == Form::Extended, 1),
                    "the context that was chosen"
                );
                let extents = data[front..].chunks(each);
                coming.extents = extents.map(|of| (be(&of[..each / 2]), be(&of[each / 2..]) == 0)).collect();
            }
            0x8001 | 0x8002 => coming.error = Some(be(&data[..4]) as u32),
            _ => panic!("a chunk of kind {kind:#x}"),
        }
        (cookie, flags & 1 != 0)
    }
}

/// A reply as what was expected of it can be compared with.
fn whole(request: &Request, coming: Coming) -> Expected {
    if let Some(error) = coming.error {
        return Expected::Error(error);
    }
    match request.kind {
        READ => {
            let mut content = Vec::new();
            for (at, part) in coming.content {
                assert_eq!(at, request.offset + content.len() as u64, "content without gaps, and none twice");
                content.extend(part);
            }
            Expected::Content(content)
        }
        BLOCK_STATUS => {
            let is_one = request.flags & REQ_ONE != 0;
            assert!(!coming.extents.is_empty() && (!is_one || coming.extents.len() == 1), "{coming:?}");
            let states = coming
                .extents
                .iter()
                .flat_map(|(length, is_data)| std::iter::repeat_n(*is_data, *length as usize));
            Expected::States(states.collect())
        }
        _ => Expected::Done,
    }
}

/// Whether a reply says what it should: of states it may say fewer than were asked for.
pub(super) fn is_as_expected(found: &Expected, expected: &Expected) -> bool {
    match (found, expected) {
        (Expected::States(found), Expected::States(expected)) => {
            !found.is_empty() && expected.starts_with(found)
        }
        _ => found == expected,
    }
}
