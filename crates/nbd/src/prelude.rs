//! What is said before TLS: the greeting, the client's flags, and options until `STARTTLS`, all others refused.
//!
//! It has no exports, knows no names and agrees on nothing, so there is nothing that could survive it: behind TLS a
//! session begins that was told the two flags alone. That is FORCEDTLS of the protocol's document. The same words, with
//! another refusal, turn a client away for whom there is no place.
//!
//! Nothing here does I/O, and no length from the wire makes it hold more than a header.

use crate::handshake::Entrance;
use crate::option::{
    CLIENT_FLAGS_BYTES, ClientFlags, HandshakeError, OPTION_HEADER_BYTES, OptionHeader, RefusedOption,
    Replies,
};
use crate::wire::option;
use crate::{PRELUDE_BYTES_MAX, PRELUDE_OPTIONS_MAX};

/// What a part of the client's stream has led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreludeStep {
    /// All of it was taken; more is to come.
    More,
    /// TLS begins with the first byte that was not taken, once the replies have left.
    StartTls(ClientFlags),
    /// The client leaves.
    Left,
}

/// What comes next in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Flags,
    Header(ClientFlags),
    /// Data of an option that is looked at by nobody: so many bytes are still to come.
    Data(ClientFlags, OptionHeader, u32),
}

/// A client's words before TLS.
#[derive(Debug)]
pub struct Prelude {
    next: Next,
    /// Whether `STARTTLS` is granted.
    offers_tls: bool,
    /// What answers everything else.
    refusal: RefusedOption,
    head: [u8; OPTION_HEADER_BYTES],
    head_bytes: usize,
    sent_bytes: u64,
    options: usize,
}

impl Prelude {
    /// For an address where nothing is served without TLS. The greeting is the caller's to send.
    #[must_use]
    pub fn before_tls() -> Self {
        Self::new(Next::Flags, true, RefusedOption::TlsRequired)
    }

    /// For a client that is not served, from where it has come to.
    #[must_use]
    pub fn turning_away(entrance: Entrance, refusal: RefusedOption) -> Self {
        let next = match entrance {
            Entrance::Greeting => Next::Flags,
            Entrance::AfterTls(flags) => Next::Header(flags),
        };
        Self::new(next, false, refusal)
    }

    fn new(next: Next, offers_tls: bool, refusal: RefusedOption) -> Self {
        let head = [0; OPTION_HEADER_BYTES];
        Self { next, offers_tls, refusal, head, head_bytes: 0, sent_bytes: 0, options: 0 }
    }

    /// Takes what has come, and appends what is to be sent to `replies`, also before an error. Returns how many bytes
    /// were taken: all of them, or those up to the end of `STARTTLS` or of an abort.
    ///
    /// # Errors
    /// [`HandshakeError`]: the connection is to be closed.
    pub fn take(
        &mut self,
        input: &[u8],
        replies: &mut Vec<u8>,
    ) -> Result<(usize, PreludeStep), HandshakeError> {
        let mut rest = input;
        loop {
            let step = match self.next {
                Next::Flags => match self.fill::<CLIENT_FLAGS_BYTES>(&mut rest) {
                    Some(head) => {
                        self.next = Next::Header(ClientFlags::parse(head)?);
                        continue;
                    }
                    None => PreludeStep::More,
                },
                Next::Header(flags) => match self.fill::<OPTION_HEADER_BYTES>(&mut rest) {
                    Some(head) => {
                        let header = self.admit(flags, &head, replies)?;
                        self.next = Next::Data(flags, header, header.data_bytes);
                        continue;
                    }
                    None => PreludeStep::More,
                },
                Next::Data(flags, header, left) => {
                    let now = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    rest = rest.get(now..).unwrap_or_default();
                    let left = left.saturating_sub(u32::try_from(now).unwrap_or(u32::MAX));
                    self.next = Next::Data(flags, header, left);
                    if left > 0 {
                        return Ok((input.len(), PreludeStep::More));
                    }
                    self.next = Next::Header(flags);
                    self.answer(flags, header, replies)
                }
            };
            match step {
                PreludeStep::More if !rest.is_empty() => {}
                step => return Ok((input.len() - rest.len(), step)),
            }
        }
    }

    /// Collects `N` bytes over as many calls as it takes.
    fn fill<const N: usize>(&mut self, rest: &mut &[u8]) -> Option<[u8; N]> {
        const { assert!(N <= OPTION_HEADER_BYTES, "what is collected fits its memory") }
        let now = (N - self.head_bytes).min(rest.len());
        let (taken, left) = rest.split_at(now);
        let into = self.head.iter_mut().skip(self.head_bytes);
        into.zip(taken).for_each(|(to, from)| *to = *from);
        *rest = left;
        self.head_bytes += now;
        if self.head_bytes < N {
            return None;
        }
        self.head_bytes = 0;
        self.head.first_chunk::<N>().copied()
    }

    /// Checks an option's head against what may be said at all.
    fn admit(
        &mut self,
        flags: ClientFlags,
        head: &[u8; OPTION_HEADER_BYTES],
        replies: &mut Vec<u8>,
    ) -> Result<OptionHeader, HandshakeError> {
        let header = OptionHeader::parse(head)?;
        if header.option == option::EXPORT_NAME {
            return Err(HandshakeError::NoExport { refusal: self.refusal });
        }
        if !flags.fixed_newstyle {
            return Err(HandshakeError::NotFixed { option: header.option });
        }
        self.options += 1;
        if self.options > PRELUDE_OPTIONS_MAX {
            return Err(HandshakeError::TooManyOptions { options_max: PRELUDE_OPTIONS_MAX });
        }
        self.sent_bytes += OPTION_HEADER_BYTES as u64 + u64::from(header.data_bytes);
        if self.sent_bytes > PRELUDE_BYTES_MAX {
            Replies { into: replies, option: header.option }.error(self.refusal);
            return Err(HandshakeError::PreludeTooLong { found: self.sent_bytes });
        }
        Ok(header)
    }

    fn answer(&self, flags: ClientFlags, header: OptionHeader, replies: &mut Vec<u8>) -> PreludeStep {
        let OptionHeader { option, data_bytes } = header;
        let mut reply = Replies { into: replies, option };
        match option {
            option::ABORT => {
                reply.ack();
                PreludeStep::Left
            }
            option::STARTTLS if self.offers_tls && data_bytes == 0 => {
                reply.ack();
                PreludeStep::StartTls(flags)
            }
            option::STARTTLS if self.offers_tls => {
                reply.error(RefusedOption::Malformed);
                PreludeStep::More
            }
            _ => {
                reply.error(self.refusal);
                PreludeStep::More
            }
        }
    }
}
