//! The messages of the transmission phase that a server sends.

use dolmen_buffer::Shared;

use crate::request::ReplyForm;
use crate::wire::{
    CONTEXT_ALLOCATION_ID, Errno, MAGIC_CHUNK, MAGIC_EXTENDED_CHUNK, MAGIC_SIMPLE_REPLY, Writer, chunk,
};

/// The longest text that an error carries.
pub const TEXT_BYTES_MAX: usize = 96;
/// The longest head of a message: an extended chunk's header, and an error with text and offset.
pub(crate) const HEAD_BYTES_MAX: usize = 32 + 6 + TEXT_BYTES_MAX + 8;
/// Bytes of an extent as extended replies have it.
pub(crate) const EXTENDED_EXTENT_BYTES: usize = 16;

/// Which request is answered, and in which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct To {
    /// The client's name for the request.
    pub cookie: u64,
    /// The offset that the request has, which extended replies repeat.
    pub offset: u64,
    /// The form agreed on.
    pub form: ReplyForm,
}

/// Whether more chunks follow for the same request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// They do.
    Middle,
    /// They do not.
    Last,
}

/// The part of a message that is not payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Head {
    /// Nothing: more payload of the message before.
    Continued,
    /// Done, without a payload; in the form that is shortest where there is a choice.
    Done {
        /// What is answered.
        to: To,
    },
    /// A simple reply; content follows if it answers a read and `errno` is none.
    Simple {
        /// What is answered.
        to: To,
        /// What went wrong.
        errno: Option<Errno>,
    },
    /// A chunk of content.
    Data {
        /// What is answered.
        to: To,
        /// Where the content is, in bytes.
        offset: u64,
        /// How long it is, in bytes.
        length: u32,
        /// Whether it is the last chunk.
        place: Place,
    },
    /// A chunk of zeros.
    Hole {
        /// What is answered.
        to: To,
        /// Where the zeros are, in bytes.
        offset: u64,
        /// How many they are.
        length: u32,
        /// Whether it is the last chunk.
        place: Place,
    },
    /// The only chunk of an answer to block status; the extents follow.
    Status {
        /// What is answered.
        to: To,
        /// Bytes of the extents.
        extents_bytes: u32,
    },
    /// The last chunk: an error.
    Error {
        /// What is answered.
        to: To,
        /// What went wrong.
        errno: Errno,
        /// The same for people, at most [`TEXT_BYTES_MAX`] bytes.
        text: &'static str,
        /// Where, if it was at one place.
        at: Option<u64>,
    },
}

impl Head {
    /// The error of a request, in the form agreed on.
    #[must_use]
    pub fn error(to: To, errno: Errno, text: &'static str) -> Self {
        match to.form {
            ReplyForm::Simple => Self::Simple { to, errno: Some(errno) },
            ReplyForm::Structured | ReplyForm::Extended => Self::Error { to, errno, text, at: None },
        }
    }

    /// Writes the head to the front of `into` and returns its length.
    ///
    /// # Panics
    /// When `into` is too short; a head has at most 142 bytes.
    pub fn write(&self, into: &mut [u8]) -> usize {
        let mut out = Writer::new(into);
        match self {
            Self::Continued => {}
            Self::Done { to } => match to.form {
                // Structured replies may be mixed with simple ones for whatever has no payload, and those are shorter.
                ReplyForm::Simple | ReplyForm::Structured => put_simple(&mut out, *to, None),
                ReplyForm::Extended => put_chunk(&mut out, *to, Place::Last, chunk::NONE, 0),
            },
            Self::Simple { to, errno } => put_simple(&mut out, *to, *errno),
            Self::Data { to, offset, length, place } => {
                put_chunk(&mut out, *to, *place, chunk::OFFSET_DATA, 8 + length);
                out.put(&offset.to_be_bytes());
            }
            Self::Hole { to, offset, length, place } => {
                put_chunk(&mut out, *to, *place, chunk::OFFSET_HOLE, 12);
                out.put(&offset.to_be_bytes()).put(&length.to_be_bytes());
            }
            Self::Status { to, extents_bytes } => put_status(&mut out, *to, *extents_bytes),
            Self::Error { to, errno, text, at } => put_error(&mut out, *to, *errno, text, *at),
        }
        out.used()
    }
}

fn put_simple(out: &mut Writer<'_>, to: To, errno: Option<Errno>) {
    let number = errno.map_or(0, Errno::number);
    out.put(&MAGIC_SIMPLE_REPLY.to_be_bytes()).put(&number.to_be_bytes()).put(&to.cookie.to_be_bytes());
}

fn put_chunk(out: &mut Writer<'_>, to: To, place: Place, kind: u16, length: u32) {
    let flags = match place {
        Place::Middle => 0,
        Place::Last => chunk::FLAG_DONE,
    };
    let is_extended = to.form == ReplyForm::Extended;
    let magic = if is_extended { MAGIC_EXTENDED_CHUNK } else { MAGIC_CHUNK };
    out.put(&magic.to_be_bytes()).put(&flags.to_be_bytes()).put(&kind.to_be_bytes());
    out.put(&to.cookie.to_be_bytes());
    if is_extended {
        out.put(&to.offset.to_be_bytes()).put(&u64::from(length).to_be_bytes());
    } else {
        out.put(&length.to_be_bytes());
    }
}

fn put_status(out: &mut Writer<'_>, to: To, extents_bytes: u32) {
    if to.form == ReplyForm::Extended {
        put_chunk(out, to, Place::Last, chunk::BLOCK_STATUS_EXT, 8 + extents_bytes);
        // The constant is far below what the field holds.
        let count = extents_bytes / u32::try_from(EXTENDED_EXTENT_BYTES).unwrap_or(u32::MAX);
        out.put(&CONTEXT_ALLOCATION_ID.to_be_bytes()).put(&count.to_be_bytes());
    } else {
        put_chunk(out, to, Place::Last, chunk::BLOCK_STATUS, 4 + extents_bytes);
        out.put(&CONTEXT_ALLOCATION_ID.to_be_bytes());
    }
}

fn put_error(out: &mut Writer<'_>, to: To, errno: Errno, text: &str, at: Option<u64>) {
    let text = text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default();
    // At most `TEXT_BYTES_MAX`, which fits both fields.
    let text_bytes = u16::try_from(text.len()).unwrap_or(0);
    let (kind, offset_bytes) = if at.is_some() { (chunk::ERROR_OFFSET, 8) } else { (chunk::ERROR, 0) };
    put_chunk(out, to, Place::Last, kind, 6 + u32::from(text_bytes) + offset_bytes);
    out.put(&errno.number().to_be_bytes()).put(&text_bytes.to_be_bytes()).put(text.as_bytes());
    if let Some(at) = at {
        out.put(&at.to_be_bytes());
    }
}

/// The payload of a message.
#[derive(Debug)]
pub(crate) enum Body {
    None,
    Data(Shared),
    Zeros(u64),
}

/// What becomes free once a message has left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct After {
    /// Bytes of payload that the connection may take again.
    pub(crate) payload_bytes: u64,
    /// How many requests this answers, 0 or 1.
    pub(crate) requests: usize,
    /// How many holds of the gate this ends, 0 or 1.
    pub(crate) holds: usize,
    /// How many holds of the gate that were taken alone this ends, 0 or 1.
    pub(crate) holds_alone: usize,
}

/// A message on its way out.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) head: Head,
    pub(crate) body: Body,
    pub(crate) after: After,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(head: &Head) -> Vec<u8> {
        let mut bytes = [0; HEAD_BYTES_MAX];
        let used = head.write(&mut bytes);
        bytes[..used].to_vec()
    }

    #[test]
    fn heads_have_the_bytes_of_the_protocol() {
        let to = |cookie, form| To { cookie, offset: 0x1000, form };
        let simple = to(0x0102_0304_0506_0708, ReplyForm::Simple);
        let simple = Head::Simple { to: simple, errno: Some(Errno::Io) };
        assert_eq!(written(&simple), [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8]);
        let structured = to(9, ReplyForm::Structured);
        let hole = Head::Hole { to: structured, offset: 512, length: 4096, place: Place::Last };
        let expected = [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 12];
        assert_eq!(written(&hole)[..20], expected);
        assert_eq!(written(&hole)[20..], [0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 16, 0]);
        let extended = to(9, ReplyForm::Extended);
        let head = |kind: u8, length: u8| {
            let start =
                [0x6e, 0x8a, 0x27, 0x8c, 0, 1, 0, kind, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0x10, 0];
            [&start[..], &[0, 0, 0, 0, 0, 0, 0, length]].concat()
        };
        assert_eq!(written(&Head::Done { to: extended }), head(0, 0));
        let hole = Head::Hole { to: extended, offset: 512, length: 4096, place: Place::Last };
        assert_eq!(written(&hole), [&head(2, 12)[..], &[0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 16, 0]].concat());
        let status = Head::Status { to: extended, extents_bytes: 48 };
        assert_eq!(written(&status), [&head(6, 56)[..], &[0, 0, 0, 1, 0, 0, 0, 3]].concat());
    }

    #[test]
    fn the_longest_error_fits_its_memory() {
        let text = "ä".repeat(TEXT_BYTES_MAX).leak();
        let to = To { cookie: 1, offset: 0, form: ReplyForm::Extended };
        let head = Head::Error { to, errno: Errno::Io, text, at: Some(7) };
        assert_eq!(written(&head).len(), HEAD_BYTES_MAX);
    }
}
