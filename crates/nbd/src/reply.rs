//! The messages of the transmission phase that a server sends.

use dolmen_buffer::Shared;

use crate::request::ReplyForm;
use crate::wire::{CONTEXT_ALLOCATION_ID, Errno, MAGIC_CHUNK, MAGIC_SIMPLE_REPLY, Writer, chunk};

/// The longest text that an error carries.
pub const TEXT_BYTES_MAX: usize = 96;
/// The longest head of a message: a chunk's header, and an error with text and offset.
pub(crate) const HEAD_BYTES_MAX: usize = 20 + 6 + TEXT_BYTES_MAX + 8;

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
    /// A simple reply; content follows if it answers a read and `errno` is none.
    Simple {
        /// The client's name for the request.
        cookie: u64,
        /// What went wrong.
        errno: Option<Errno>,
    },
    /// A chunk of content.
    Data {
        /// The client's name for the request.
        cookie: u64,
        /// Where the content is, in bytes.
        offset: u64,
        /// How long it is, in bytes.
        length: u32,
        /// Whether it is the last chunk.
        place: Place,
    },
    /// A chunk of zeros.
    Hole {
        /// The client's name for the request.
        cookie: u64,
        /// Where the zeros are, in bytes.
        offset: u64,
        /// How many they are.
        length: u32,
        /// Whether it is the last chunk.
        place: Place,
    },
    /// The only chunk of an answer to block status; the extents follow.
    Status {
        /// The client's name for the request.
        cookie: u64,
        /// Bytes of the extents.
        extents_bytes: u32,
    },
    /// The last chunk: an error.
    Error {
        /// The client's name for the request.
        cookie: u64,
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
    pub fn error(form: ReplyForm, cookie: u64, errno: Errno, text: &'static str) -> Self {
        match form {
            ReplyForm::Simple => Self::Simple { cookie, errno: Some(errno) },
            ReplyForm::Structured => Self::Error { cookie, errno, text, at: None },
        }
    }

    /// Writes the head to the front of `into` and returns its length.
    ///
    /// # Panics
    /// When `into` is too short; a head has at most 130 bytes.
    pub fn write(&self, into: &mut [u8]) -> usize {
        let mut out = Writer::new(into);
        match self {
            Self::Continued => {}
            Self::Simple { cookie, errno } => {
                let number = errno.map_or(0, Errno::number);
                out.put(&MAGIC_SIMPLE_REPLY.to_be_bytes())
                    .put(&number.to_be_bytes())
                    .put(&cookie.to_be_bytes());
            }
            Self::Data { cookie, offset, length, place } => {
                put_chunk(&mut out, *place, chunk::OFFSET_DATA, *cookie, 8 + length);
                out.put(&offset.to_be_bytes());
            }
            Self::Hole { cookie, offset, length, place } => {
                put_chunk(&mut out, *place, chunk::OFFSET_HOLE, *cookie, 12);
                out.put(&offset.to_be_bytes()).put(&length.to_be_bytes());
            }
            Self::Status { cookie, extents_bytes } => {
                put_chunk(&mut out, Place::Last, chunk::BLOCK_STATUS, *cookie, 4 + extents_bytes);
                out.put(&CONTEXT_ALLOCATION_ID.to_be_bytes());
            }
            Self::Error { cookie, errno, text, at } => put_error(&mut out, *cookie, *errno, text, *at),
        }
        out.used()
    }
}

fn put_chunk(out: &mut Writer<'_>, place: Place, kind: u16, cookie: u64, length: u32) {
    let flags = match place {
        Place::Middle => 0,
        Place::Last => chunk::FLAG_DONE,
    };
    out.put(&MAGIC_CHUNK.to_be_bytes()).put(&flags.to_be_bytes()).put(&kind.to_be_bytes());
    out.put(&cookie.to_be_bytes()).put(&length.to_be_bytes());
}

fn put_error(out: &mut Writer<'_>, cookie: u64, errno: Errno, text: &str, at: Option<u64>) {
    let text = text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default();
    // At most `TEXT_BYTES_MAX`, which fits both fields.
    let text_bytes = u16::try_from(text.len()).unwrap_or(0);
    let (kind, offset_bytes) = if at.is_some() { (chunk::ERROR_OFFSET, 8) } else { (chunk::ERROR, 0) };
    put_chunk(out, Place::Last, kind, cookie, 6 + u32::from(text_bytes) + offset_bytes);
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
    /// Bytes of payload that the connection may take anew.
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
        let simple = Head::Simple { cookie: 0x0102_0304_0506_0708, errno: Some(Errno::Io) };
        assert_eq!(written(&simple), [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 5, 1, 2, 3, 4, 5, 6, 7, 8]);
        let hole = Head::Hole { cookie: 9, offset: 512, length: 4096, place: Place::Last };
        let expected = [0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 12];
        assert_eq!(written(&hole)[..20], expected);
        assert_eq!(written(&hole)[20..], [0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 16, 0]);
    }

    #[test]
    fn the_longest_error_fits_its_memory() {
        let text = "ä".repeat(TEXT_BYTES_MAX).leak();
        let head = Head::Error { cookie: 1, errno: Errno::Io, text, at: Some(7) };
        assert_eq!(written(&head).len(), HEAD_BYTES_MAX);
    }
}
