//! What a request carries, and how it goes on after a part was done.

use std::ops::Range;
use std::ptr;

use dolmen_block_io::{DeviceError, Durability, Payload};
use dolmen_buffer::{Arena, Buffer, Shared};

use crate::driver::{Allocate, Memory, Request, Sync, Target};

/// Pieces of memory that one send takes; longer lists are sent one after the other.
pub(crate) const SEND_PARTS_MAX: usize = 16;

/// How a range is discarded or zeroed. Where the first way is not supported, the next is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeMethod {
    /// The block layer's discard.
    Discard,
    /// Zeros that keep their space.
    Zero,
    /// A hole: reads as zeros in a file, and on a disk that can forget and then reads zeros.
    Punch,
}

impl RangeMethod {
    fn next(self) -> Option<Self> {
        match self {
            Self::Discard | Self::Zero => Some(Self::Punch),
            Self::Punch => None,
        }
    }
}

/// What is asked of a file, with the memory that the kernel may touch until it has answered.
pub(crate) enum Work {
    Read {
        at: u64,
        into: Buffer,
    },
    Write {
        at: u64,
        from: Shared,
        durability: Durability,
    },
    Flush,
    Range {
        at: u64,
        length: u64,
        method: RangeMethod,
    },
    Accept,
    /// Into a part of the memory, until at least so many bytes have come.
    Receive {
        into: Buffer,
        part: Range<usize>,
        least: usize,
    },
    Send {
        message: Box<Message>,
    },
}

/// A list of pieces to send, with the header that the kernel reads. Boxed, so that the header's address is stable, and
/// used again, so that a send allocates nothing.
pub(crate) struct Message {
    parts: [Option<Shared>; SEND_PARTS_MAX],
    vectors: [libc::iovec; SEND_PARTS_MAX],
    header: libc::msghdr,
}

impl Message {
    pub(crate) fn new() -> Box<Self> {
        let vector = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };
        // SAFETY: the header is a plain C structure of numbers and pointers, for which all zeros mean "nothing".
        let header = unsafe { std::mem::zeroed() };
        Box::new(Self { parts: [const { None }; SEND_PARTS_MAX], vectors: [vector; SEND_PARTS_MAX], header })
    }

    /// Takes handles to the pieces.
    pub(crate) fn load(&mut self, parts: &[Shared]) {
        assert!(
            parts.len() <= SEND_PARTS_MAX,
            "a send takes {SEND_PARTS_MAX} pieces at most, not {}",
            parts.len()
        );
        for (place, part) in self.parts.iter_mut().zip(parts) {
            *place = Some(part.clone());
        }
    }

    /// Gives the pieces up.
    pub(crate) fn unload(&mut self) {
        self.parts.fill_with(|| None);
    }

    fn len(&self) -> usize {
        self.parts.iter().flatten().map(|part| part.len()).sum()
    }

    /// Points the header to what is left after `done` bytes.
    fn prepare(&mut self, done: usize) -> *const libc::msghdr {
        let mut skip = done;
        let mut count = 0;
        for part in self.parts.iter().flatten() {
            let rest = part.get(skip.min(part.len())..).unwrap_or_default();
            skip = skip.saturating_sub(part.len());
            if let Some(vector) = self.vectors.get_mut(count).filter(|_| !rest.is_empty()) {
                *vector = libc::iovec { iov_base: rest.as_ptr().cast_mut().cast(), iov_len: rest.len() };
                count += 1;
            }
        }
        self.header.msg_iov = self.vectors.as_mut_ptr();
        self.header.msg_iovlen = count;
        &raw const self.header
    }
}

/// What follows from an answer of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Ask again, for what is left.
    Again,
    /// It is over: a count, or a negated error number.
    Over(i32),
}

impl Work {
    /// The next request for what is left after `done` bytes.
    pub(crate) fn request(
        &mut self,
        file: Target,
        done: usize,
        region: impl Fn(usize, usize) -> Option<u16>,
    ) -> Request {
        let memory = |address: *mut u8, len: usize| {
            let left = len - done;
            let address = address.wrapping_add(done);
            let Ok(len) = u32::try_from(left) else { panic!("a buffer of {left} bytes fits 32 bits") };
            Memory { address, len, region: region(address.addr(), left) }
        };
        match self {
            Self::Read { at, into } => {
                let len = into.len();
                Request::Read { file, at: *at + done as u64, memory: memory(into.as_mut_ptr(), len) }
            }
            Self::Write { at, from, durability } => {
                let sync = match durability {
                    Durability::Cached => Sync::No,
                    Durability::Durable => Sync::Data,
                };
                let memory = memory(from.as_ptr().cast_mut(), from.len());
                Request::Write { file, at: *at + done as u64, memory, sync }
            }
            Self::Flush => Request::Flush { file },
            Self::Range { at, length, method } => range_request(file, *at, *length, *method),
            Self::Accept => Request::Accept { file },
            Self::Receive { into, part, .. } => {
                let address = into.as_mut_ptr().wrapping_add(part.start);
                Request::Receive { file, memory: memory(address, part.len()) }
            }
            Self::Send { message } => Request::Send { file, message: message.prepare(done) },
        }
    }

    /// Takes an answer into account. `done` counts the bytes of earlier answers; `unit_bytes` is what a transfer that
    /// stopped in the middle may be continued at.
    pub(crate) fn advance(&mut self, done: &mut usize, answer: i32, unit_bytes: usize) -> Step {
        let Ok(count) = usize::try_from(answer) else { return self.failed(answer) };
        let whole = match self {
            Self::Read { into, .. } => into.len(),
            Self::Receive { least, .. } => *least,
            Self::Write { from, .. } => from.len(),
            Self::Send { message } => message.len(),
            Self::Accept | Self::Flush | Self::Range { .. } => {
                return Step::Over(answer);
            }
        };
        let before = *done;
        *done += count;
        if *done >= whole {
            return Step::Over(i32::try_from(*done).unwrap_or(i32::MAX));
        }
        match self {
            Self::Receive { .. } if count == 0 => Step::Over(i32::try_from(*done).unwrap_or(i32::MAX)),
            Self::Receive { .. } => Step::Again,
            Self::Send { .. } if count == 0 => Step::Over(-libc::EPIPE),
            Self::Send { .. } => Step::Again,
            Self::Read { .. } | Self::Write { .. } | Self::Accept | Self::Flush | Self::Range { .. } => {
                // Direct I/O goes on only at a block. No progress at all means that the file ends before its size.
                *done -= *done % unit_bytes;
                if *done == before { Step::Over(-libc::ENODATA) } else { Step::Again }
            }
        }
    }

    fn failed(&mut self, answer: i32) -> Step {
        let errno = -answer;
        match self {
            // A flush is never asked twice: the second would succeed without the data that the first has lost.
            Self::Flush => Step::Over(answer),
            Self::Range { method, .. } if [libc::EOPNOTSUPP, libc::ENOTTY, libc::EINVAL].contains(&errno) => {
                match method.next() {
                    Some(next) => {
                        *method = next;
                        Step::Again
                    }
                    None => Step::Over(-libc::EOPNOTSUPP),
                }
            }
            _ if [libc::EINTR, libc::EAGAIN].contains(&errno) => Step::Again,
            _ => Step::Over(answer),
        }
    }

    /// Whether the end of the wait may cancel the request: nothing that reaches a disk is ever recalled.
    pub(crate) fn is_recallable(&self) -> bool {
        match self {
            Self::Accept | Self::Receive { .. } => true,
            Self::Read { .. } | Self::Write { .. } | Self::Flush | Self::Range { .. } | Self::Send { .. } => {
                false
            }
        }
    }

    /// The memory on its way back to the caller.
    pub(crate) fn into_payload(self) -> Payload {
        match self {
            Self::Read { into, .. } | Self::Receive { into, .. } => Payload::Buffer(into),
            Self::Write { from, .. } => Payload::Shared(from),
            Self::Flush | Self::Range { .. } | Self::Accept | Self::Send { .. } => Payload::None,
        }
    }

    /// What a caller gets back while the kernel still holds the memory: for a read another buffer of the same length,
    /// because the caller was promised one and must not see the kernel write to it; of an arena of its own when every frame is lent,
    /// as a disk that hangs may hold them all.
    pub(crate) fn replacement_memory(&self, arena: &Arena) -> Payload {
        match self {
            Self::Read { into, .. } => Payload::Buffer(arena.take_or_make(into.len())),
            Self::Write { from, .. } => Payload::Shared(from.clone()),
            Self::Receive { .. } | Self::Flush | Self::Range { .. } | Self::Accept | Self::Send { .. } => {
                Payload::None
            }
        }
    }
}

fn range_request(file: Target, at: u64, length: u64, method: RangeMethod) -> Request {
    match method {
        RangeMethod::Discard => Request::Discard { file, at, length },
        RangeMethod::Zero => Request::Allocate { file, how: Allocate::Zero, at, length },
        RangeMethod::Punch => Request::Allocate { file, how: Allocate::Punch, at, length },
    }
}

/// The result of a disk's command from the kernel's last answer.
pub(crate) fn device_result(answer: i32) -> Result<(), DeviceError> {
    if answer < 0 { Err(crate::errno::device_error(-answer)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dolmen_block_io::fixed_entropy;
    use dolmen_buffer::ArenaConfig;

    const FILE: Target = Target { fd: 0, slot: None };

    fn arena() -> Arena {
        Arena::new(ArenaConfig { small_count: 4, medium_count: 4, large_count: 0 })
    }

    /// Drives a transfer with a kernel that does a drawn part of each request; where each byte went, by its offset.
    fn transfer(
        work: &mut Work,
        unit_bytes: usize,
        draw: &mut dyn FnMut(u64) -> u64,
    ) -> (Vec<(u64, usize)>, Step) {
        let (mut done, mut parts) = (0, Vec::new());
        loop {
            let request = work.request(FILE, done, |_, _| None);
            let (Request::Read { at, memory, .. } | Request::Write { at, memory, .. }) = request else {
                panic!("a transfer asks for transfers")
            };
            let count = 1 + draw(u64::from(memory.len));
            parts.push((at, memory.address.addr()));
            match work.advance(&mut done, i32::try_from(count).unwrap(), unit_bytes) {
                // A part within the first block is no progress, and ends the transfer.
                step @ Step::Over(_) => return (parts, step),
                Step::Again => {}
            }
        }
    }

    #[test]
    fn a_transfer_in_any_parts_goes_on_at_a_block_and_ends_whole() {
        // Scenario: 10,000 drawn transfers. Each part starts at a block, memory and disk keep step, and the end is the
        // whole length, unless the kernel did less than a block.
        let arena = arena();
        let entropy = fixed_entropy(1);
        for _ in 0..10_000 {
            let into = arena.try_take(65536).unwrap();
            let start = into.as_ptr().addr();
            let mut work = Work::Read { at: 8192, into };
            let mut least = u64::MAX;
            let mut draw = |len: u64| {
                let drawn = entropy.next_u64() % len;
                least = least.min(if drawn + 1 == len { u64::MAX } else { drawn + 1 });
                drawn
            };
            let (parts, step) = transfer(&mut work, 512, &mut draw);
            for (at, address) in parts {
                assert!(at.is_multiple_of(512));
                assert_eq!(at - 8192, (address - start) as u64);
            }
            let expected = if least < 512 { Step::Over(-libc::ENODATA) } else { Step::Over(65536) };
            assert_eq!(step, expected, "the smallest part had {least} bytes");
        }
    }

    #[test]
    fn a_flush_that_failed_is_never_asked_again() {
        for errno in [libc::EIO, libc::EINTR, libc::EAGAIN, libc::ENOSPC] {
            assert_eq!(Work::Flush.advance(&mut 0, -errno, 512), Step::Over(-errno));
        }
    }

    #[test]
    fn zeroing_and_discarding_try_the_next_way_once() {
        let mut work = Work::Range { at: 0, length: 4096, method: RangeMethod::Zero };
        assert_eq!(work.advance(&mut 0, -libc::EOPNOTSUPP, 512), Step::Again);
        assert!(matches!(work, Work::Range { method: RangeMethod::Punch, .. }));
        assert_eq!(work.advance(&mut 0, -libc::EOPNOTSUPP, 512), Step::Over(-libc::EOPNOTSUPP));
        let mut work = Work::Range { at: 0, length: 4096, method: RangeMethod::Discard };
        assert_eq!(work.advance(&mut 0, -libc::EIO, 512), Step::Over(-libc::EIO));
    }

    #[test]
    fn a_message_sends_the_rest_of_its_pieces_from_any_byte() {
        // Scenario: three pieces of different lengths; from each byte on, the vectors hold exactly what is left.
        let arena = arena();
        let pieces: Vec<Shared> =
            [3usize, 1, 5].iter().map(|len| arena.try_take(*len).unwrap().freeze()).collect();
        let all: Vec<usize> =
            pieces.iter().flat_map(|piece| (0..piece.len()).map(|i| piece.as_ptr().addr() + i)).collect();
        let mut message = Message::new();
        message.load(&pieces);
        for done in 0..all.len() {
            message.prepare(done);
            let vectors = message.vectors.iter().take(message.header.msg_iovlen);
            let left: Vec<usize> =
                vectors.flat_map(|v| (0..v.iov_len).map(|i| v.iov_base.addr() + i)).collect();
            assert_eq!(left, all[done..]);
        }
        message.unload();
        drop(pieces);
        assert_eq!(arena.lent_count(), 0);
    }
}
