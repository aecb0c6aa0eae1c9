//! The entries of rings: memory in which the kernel leaves requests and finds their answers.
//!
//! The kernel wants a queue of entries for each processor that there may be, and puts a request into one of the queue of
//! the processor on which it is made. An entry is a head, whose place the kernel prescribes, and a payload; both are given
//! to it once, when the entry is registered, and stay where they are.
//!
//! Each entry is always in one of three hands: the kernel's (its command waits for a request), the host's (a ticket
//! lives), or on the board, answered. Only who has it touches its memory.
//!
//! Invariant: the memory survives the connection. The kernel may write to an entry that is in its hands at any time, so the
//! ring's thread keeps the memory until every entry has come back for good; the end of the process does the rest.

use std::io;
use std::ptr::NonNull;

use dolmen_attach::Board;
use rustix::mm::{MapFlags, ProtFlags};
use zerocopy::{FromBytes, IntoBytes};

use crate::wire::{FRONT_BYTES, InHead, OutHead, RingHead};

/// Entries of all queues, at most.
pub const ENTRIES_MAX: usize = 256;
/// Entries of all queues, where each can have one.
const ENTRIES_WANTED: usize = 128;
/// Words of the board.
const WORDS: usize = ENTRIES_MAX / 64;
const _: () = assert!(WORDS * 64 == ENTRIES_MAX, "each entry has a place on the board");
const _: () = assert!(ENTRIES_WANTED <= ENTRIES_MAX, "what is wanted is allowed");
/// The unit of everything here.
const PAGE_BYTES: usize = 4096;
/// Where, on an entry's first page, the addresses lie that the kernel is shown when it is registered.
const PARTS_AT: usize = 512;
const _: () = assert!(size_of::<RingHead>() <= PARTS_AT, "the head ends before them");
/// Parts of an entry: head, payload.
pub(crate) const PARTS: usize = 2;

/// How many entries, and how large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntriesShape {
    pub(crate) queue_count: usize,
    pub(crate) depth: usize,
    pub(crate) payload_bytes: usize,
}

impl EntriesShape {
    /// For so many queues; `None` where that is more than can be served.
    pub(crate) fn of_queues(queue_count: usize, payload_bytes: usize) -> Option<Self> {
        let fits = (1..=ENTRIES_MAX).contains(&queue_count);
        fits.then(|| Self { queue_count, depth: (ENTRIES_WANTED / queue_count).max(1), payload_bytes })
    }

    fn entry_bytes(self) -> usize {
        PAGE_BYTES + self.payload_bytes
    }

    fn entry_count(self) -> usize {
        self.queue_count * self.depth
    }

    fn bytes(self) -> usize {
        self.entry_count() * self.entry_bytes()
    }
}

/// The mapped entries, by tag: those of the first queue, then those of the next.
pub(crate) struct Entries {
    memory: NonNull<u8>,
    shape: EntriesShape,
    pub(crate) board: Board<WORDS>,
}

// SAFETY: the memory is plain bytes at a fixed address until the value is dropped, and every byte belongs to the one holder
// of its entry.
unsafe impl Send for Entries {}
// SAFETY: as above.
unsafe impl Sync for Entries {}

impl Entries {
    /// Maps entries that nobody holds yet. All pages are there from the start, and locked, for the same reason as the
    /// slots of [`crate::region`].
    pub(crate) fn map(shape: EntriesShape) -> io::Result<Self> {
        assert!(shape.entry_count() <= ENTRIES_MAX, "{shape:?} has a place for each entry on the board");
        let board = Board::new()?;
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let mapped =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), shape.bytes(), protection, flags) }?;
        let memory = NonNull::new(mapped.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::EFAULT))?;
        // SAFETY: the range was just mapped.
        if let Err(error) = unsafe { rustix::mm::mlock(mapped, shape.bytes()) } {
            tracing::warn!(
                bytes = shape.bytes(),
                %error,
                "locking the entries of rings in memory failed; under memory pressure an attached space may stall; \
                 run the daemon as root or raise its limit of locked memory"
            );
        }
        Ok(Self { memory, shape, board })
    }

    pub(crate) fn count(&self) -> u16 {
        u16::try_from(self.shape.entry_count()).unwrap_or(0)
    }

    /// The queue that an entry belongs to.
    pub(crate) fn queue_of(&self, tag: u16) -> u16 {
        u16::try_from(usize::from(tag) / self.shape.depth).unwrap_or(0)
    }

    fn entry(&self, tag: u16) -> NonNull<u8> {
        assert!(tag < self.count(), "entry {tag} of {}", self.count());
        // SAFETY: the offset is inside the mapping, by the assertion and `EntriesShape::bytes`.
        unsafe { self.memory.add(usize::from(tag) * self.shape.entry_bytes()) }
    }

    fn head_at(&self, tag: u16) -> *mut RingHead {
        self.entry(tag).cast().as_ptr()
    }

    /// Where the payload of an entry lies, aligned to a page.
    pub(crate) fn payload(&self, tag: u16) -> *mut u8 {
        // SAFETY: an entry is one page and its payload, both mapped.
        unsafe { self.entry(tag).add(PAGE_BYTES).as_ptr() }
    }

    /// Writes down where an entry's parts lie, and returns where that stands, for the kernel.
    pub(crate) fn parts(&self, tag: u16) -> *const [libc::iovec; PARTS] {
        let parts = [
            libc::iovec { iov_base: self.head_at(tag).cast(), iov_len: size_of::<RingHead>() },
            libc::iovec { iov_base: self.payload(tag).cast(), iov_len: self.shape.payload_bytes },
        ];
        // SAFETY: the place is inside the entry's first page and aligned; the entry is not registered yet, so nobody else
        // touches it.
        unsafe {
            let at = self.entry(tag).add(PARTS_AT).cast::<[libc::iovec; PARTS]>();
            at.write(parts);
            at.as_ptr()
        }
    }

    fn head(&self, tag: u16) -> RingHead {
        // SAFETY: the entry is mapped and aligned, and the caller's, into which the kernel wrote before it gave it.
        unsafe { self.head_at(tag).read() }
    }

    /// The front of the request in an entry, as `/dev/fuse` would have given it.
    pub(crate) fn front(&self, tag: u16) -> [u8; FRONT_BYTES] {
        let head = self.head(tag);
        let mut front = [0; FRONT_BYTES];
        let parts = head.in_out.iter().take(size_of::<InHead>()).chain(&head.body);
        front.iter_mut().zip(parts).for_each(|(to, from)| *to = *from);
        front
    }

    /// How much of the payload the request fills.
    pub(crate) fn payload_len(&self, tag: u16) -> usize {
        (self.head(tag).part.payload_bytes as usize).min(self.shape.payload_bytes)
    }

    /// What names the request in an entry when it is answered.
    pub(crate) fn commit_id(&self, tag: u16) -> u64 {
        self.head(tag).part.commit_id
    }

    /// Writes the answer into an entry and puts it on the board. What the pieces have in all must fit its payload.
    pub(crate) fn answer(&self, tag: u16, error: i32, pieces: &[&[u8]]) {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        assert!(len <= self.shape.payload_bytes, "{len} bytes are more than an entry holds");
        let mut head = self.head(tag);
        let unique = InHead::read_from_prefix(&head.in_out).map_or(0, |(front, _)| front.unique);
        let length = u32::try_from(size_of::<OutHead>() + len).unwrap_or(u32::MAX);
        let out = OutHead { len: length, error, unique };
        head.in_out.iter_mut().zip(out.as_bytes()).for_each(|(to, from)| *to = *from);
        head.part.payload_bytes = u32::try_from(len).unwrap_or(0);
        // SAFETY: the caller has the entry, with no reference to its payload; the pieces lie elsewhere, because the ticket
        // that lends the payload is used up by the answer. They fit, by the assertion.
        unsafe {
            let mut to = self.payload(tag);
            for piece in pieces {
                std::ptr::copy_nonoverlapping(piece.as_ptr(), to, piece.len());
                to = to.add(piece.len());
            }
            self.head_at(tag).write(head);
        }
        self.board.post(tag, error);
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and every access borrows the entries; that the kernel has none of them any
        // more is what the ring's thread waits for before it lets go of them.
        let _ = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), self.shape.bytes()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{RingPart, WriteIn};

    #[test]
    fn every_processor_has_a_queue_and_no_queue_is_empty() {
        // Scenario: 1 to 256 processors; more are refused.
        for queues in 1..=ENTRIES_MAX {
            let shape = EntriesShape::of_queues(queues, 4096).unwrap();
            assert!(shape.depth >= 1 && (queues..=ENTRIES_MAX).contains(&shape.entry_count()), "{shape:?}");
        }
        assert_eq!(EntriesShape::of_queues(2, 4096).unwrap().depth, 64);
        assert!(EntriesShape::of_queues(0, 4096).is_none());
        assert!(EntriesShape::of_queues(ENTRIES_MAX + 1, 4096).is_none());
    }

    #[test]
    fn a_request_is_read_where_the_kernel_left_it_and_answered_there() {
        // Scenario: the last entry of the second queue gets a write of 8 bytes; the entry before it stays as it is.
        let entries = Entries::map(EntriesShape::of_queues(2, 8192).unwrap()).unwrap();
        let tag = entries.count() - 1;
        assert_eq!((entries.queue_of(63), entries.queue_of(64), entries.queue_of(tag)), (0, 1, 1));
        let asked = InHead { len: 88, opcode: 16, unique: 77, node: 5, ..InHead::default() };
        let body =
            WriteIn { file: 5, offset: 4096, size: 8, write_flags: 0, lock_owner: 0, flags: 0, padding: 0 };
        let mut head = RingHead {
            in_out: [0xee; 128],
            body: [0xdd; 128],
            part: RingPart { commit_id: 77, payload_bytes: 8, ..RingPart::default() },
        };
        head.in_out[..40].copy_from_slice(asked.as_bytes());
        head.body[..40].copy_from_slice(body.as_bytes());
        // SAFETY: the entry is mapped, and only this test uses it.
        unsafe { entries.head_at(tag).write(head) };

        let front = entries.front(tag);
        assert_eq!(&front[..40], asked.as_bytes());
        assert_eq!(&front[40..], body.as_bytes());
        assert_eq!((entries.payload_len(tag), entries.commit_id(tag)), (8, 77));
        assert_eq!(entries.payload(tag).addr() % 4096, 0);

        entries.answer(tag, 0, &[b"ab", b"cde"]);
        let answered = entries.head(tag);
        assert_eq!(answered.in_out[..16], *OutHead { len: 21, error: 0, unique: 77 }.as_bytes());
        assert_eq!((answered.part.payload_bytes, answered.part.commit_id), (5, 77));
        // SAFETY: as above.
        assert_eq!(unsafe { std::slice::from_raw_parts(entries.payload(tag), 6) }, b"abcde\0");
        let mut taken = Vec::new();
        entries.board.take(|tag, error| taken.push((tag, error)));
        assert_eq!(taken, [(tag, 0)]);
        assert_eq!(entries.commit_id(tag - 1), 0);
    }

    #[test]
    fn the_kernel_is_shown_both_parts_of_an_entry() {
        let entries = Entries::map(EntriesShape::of_queues(2, 8192).unwrap()).unwrap();
        // SAFETY: the parts were just written into mapped memory.
        let parts = unsafe { *entries.parts(1) };
        assert_eq!(parts[0].iov_base.addr(), entries.head_at(1).addr());
        assert_eq!(parts[1].iov_base.addr(), entries.payload(1).addr());
        assert_eq!((parts[0].iov_len, parts[1].iov_len), (288, 8192));
    }
}
