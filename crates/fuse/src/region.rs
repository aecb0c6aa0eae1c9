//! The slots in which requests arrive: memory that survives the daemon.
//!
//! A slot holds one request from the moment it is read until it is answered. The slots lie in a memory file that the
//! descriptor holder holds too, so that a daemon that takes over after a kill finds each request that its predecessor had read.
//! Three states are enough, and each is written before the step that it covers:
//!
//! | state | found after a kill | taken up by |
//! |---|---|---|
//! | free | answered, or never used | nothing |
//! | armed, length 0 | waiting for a request | nothing |
//! | armed, length > 0 | read; perhaps carried out, never answered | serving it again: nothing newer can have overtaken it, because its sender still waits |
//! | answering | carried out, perhaps answered | answering again with the recorded result, and *not* carrying it out again: its sender may have been told and may have written newer content since. The kernel ignores an answer to what was answered |
//!
//! The copy of a request into a slot cannot be cut short by a kill: it happens inside one system call, into pages that
//! are present and locked.
//!
//! All pages are locked, and everything has its size from the start: no request makes the daemon allocate memory, which
//! it might get only by writing to the very device that the request is for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};
use zerocopy::{FromBytes, IntoBytes};

use crate::wire::{FRONT_BYTES, InHead};

/// Slots, at most; the free ones are the bits of four words.
pub const SLOTS_MAX: usize = 256;
/// The payload of a slot, at most: what the largest request of the kernel carries.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// The unit of everything in the region.
const PAGE_BYTES: usize = 4096;
/// Marks the first page.
const MAGIC: u64 = u64::from_le_bytes(*b"DOLMENfu");
/// The version of the layout. A daemon takes over regions of its own version only.
const VERSION: u32 = 1;

const FREE: u32 = 0;
const ARMED: u32 = 1;
const ANSWERING: u32 = 2;

/// The first page of the region.
#[repr(C)]
struct Head {
    magic: u64,
    version: u32,
    slot_count: u32,
    payload_bytes: u32,
    /// 1 once the connection was negotiated.
    negotiated: AtomicU32,
    /// What was negotiated: the protocol's minor version.
    minor: AtomicU32,
    /// 1 if the kernel resends.
    resends: AtomicU32,
}

/// The first page of a slot; its payload follows on the next.
#[repr(C)]
struct SlotHead {
    state: AtomicU32,
    error: AtomicI32,
    front: [u8; FRONT_BYTES],
}

const _: () = assert!(size_of::<Head>() <= PAGE_BYTES && size_of::<SlotHead>() <= PAGE_BYTES);

/// Why a region cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// The system did not give or map the memory.
    #[error("mapping {bytes} bytes of request slots: {source}")]
    Map {
        /// The length.
        bytes: usize,
        /// What the system said.
        source: io::Error,
    },
    /// Not a region, or one of another version of Dolmen.
    #[error(
        "taking over the request slots of the daemon before: found layout version {found}, this daemon knows {VERSION}; start the version of dolmen that ran before, or detach all spaces with it first"
    )]
    Version {
        /// The version found; 0 when it is no region at all.
        found: u32,
    },
    /// Sizes that do not fit each other.
    #[error(
        "taking over the request slots of the daemon before: {slot_count} slots of {payload_bytes} bytes do not fit a file of {file_bytes} bytes"
    )]
    Shape {
        /// Slots by the first page.
        slot_count: u32,
        /// Their payload by the first page.
        payload_bytes: u32,
        /// The memory file's length.
        file_bytes: u64,
    },
}

/// How many slots, and how large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) slot_count: usize,
    pub(crate) payload_bytes: usize,
}

impl Shape {
    fn slot_bytes(self) -> usize {
        PAGE_BYTES + self.payload_bytes
    }

    fn bytes(self) -> usize {
        PAGE_BYTES + self.slot_count * self.slot_bytes()
    }

    fn is_sound(self) -> bool {
        (1..=SLOTS_MAX).contains(&self.slot_count)
            && (PAGE_BYTES..=PAYLOAD_BYTES_MAX).contains(&self.payload_bytes)
            && self.payload_bytes.is_multiple_of(PAGE_BYTES)
    }
}

/// What was found in a slot of a daemon that died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// Read and not answered.
    Unanswered,
    /// Carried out with this result, perhaps answered.
    Answering {
        error: i32,
    },
}

/// The mapped slots. It hands out raw access by slot number; that one slot has one user at a time is the business of
/// [`crate::slots`].
pub(crate) struct Region {
    memory: NonNull<u8>,
    shape: Shape,
    file: OwnedFd,
}

// SAFETY: the memory is plain bytes at a fixed address until the region is dropped; states are atomics, and every other
// byte belongs to the one holder of its slot.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Makes a region of free slots.
    pub(crate) fn create(shape: Shape) -> Result<Self, RegionError> {
        assert!(shape.is_sound(), "{shape:?} is out of bounds");
        let bytes = shape.bytes();
        let map_error = |source: rustix::io::Errno| RegionError::Map { bytes, source: source.into() };
        let file = rustix::fs::memfd_create("dolmen-slots", MemfdFlags::CLOEXEC).map_err(map_error)?;
        rustix::fs::ftruncate(&file, bytes as u64).map_err(map_error)?;
        let region = Self::map(file, shape)?;
        let word = |count: usize| u32::try_from(count).unwrap_or(0);
        // SAFETY: the first page is mapped, aligned, and nobody else knows it yet.
        unsafe {
            region.memory.cast::<Head>().write(Head {
                magic: MAGIC,
                version: VERSION,
                slot_count: word(shape.slot_count),
                payload_bytes: word(shape.payload_bytes),
                negotiated: AtomicU32::new(0),
                minor: AtomicU32::new(0),
                resends: AtomicU32::new(0),
            });
        }
        Ok(region)
    }

    /// Maps the region of a daemon that died. Nothing in it counts before it was checked.
    pub(crate) fn adopt(file: OwnedFd) -> Result<Self, RegionError> {
        let mut head = [0u8; 20];
        let read = rustix::io::pread(&file, &mut head, 0).unwrap_or(0);
        let word =
            |at: usize| head.get(at..at + 4).and_then(|word| u32::read_from_bytes(word).ok()).unwrap_or(0);
        let magic = u64::read_from_bytes(head.get(..8).unwrap_or_default()).unwrap_or(0);
        if read < head.len() || magic != MAGIC {
            return Err(RegionError::Version { found: 0 });
        }
        let (version, slot_count, payload_bytes) = (word(8), word(12), word(16));
        if version != VERSION {
            return Err(RegionError::Version { found: version });
        }
        let shape = Shape { slot_count: slot_count as usize, payload_bytes: payload_bytes as usize };
        let file_bytes =
            rustix::fs::fstat(&file).map(|status| u64::try_from(status.st_size).unwrap_or(0)).unwrap_or(0);
        if !shape.is_sound() || file_bytes != shape.bytes() as u64 {
            return Err(RegionError::Shape { slot_count, payload_bytes, file_bytes });
        }
        Self::map(file, shape)
    }

    fn map(file: OwnedFd, shape: Shape) -> Result<Self, RegionError> {
        let bytes = shape.bytes();
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let mapped = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, &file, 0) };
        let memory = mapped.map_err(|source| RegionError::Map { bytes, source: source.into() })?;
        let Some(memory) = NonNull::new(memory.cast::<u8>()) else {
            panic!("the kernel mapped address zero")
        };
        // SAFETY: the range was just mapped.
        if let Err(error) = unsafe { rustix::mm::mlock(memory.as_ptr().cast(), bytes) } {
            tracing::warn!(
                bytes,
                %error,
                "locking the request slots in memory failed; under memory pressure an attached space may stall; \
                 run the daemon as root or raise its limit of locked memory"
            );
        }
        Ok(Self { memory, shape, file })
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    fn head(&self) -> &Head {
        // SAFETY: the first page holds a `Head` since `create`, or was checked by `adopt`; all bit patterns are
        // valid, and what changes is atomic.
        unsafe { self.memory.cast::<Head>().as_ref() }
    }

    /// What was negotiated with the kernel: the minor version and whether it resends; `None` before.
    pub(crate) fn negotiated(&self) -> Option<(u32, bool)> {
        let head = self.head();
        (head.negotiated.load(Ordering::Acquire) == 1)
            .then(|| (head.minor.load(Ordering::Relaxed), head.resends.load(Ordering::Relaxed) == 1))
    }

    pub(crate) fn set_negotiated(&self, minor: u32, resends: bool) {
        let head = self.head();
        head.minor.store(minor, Ordering::Relaxed);
        head.resends.store(u32::from(resends), Ordering::Relaxed);
        head.negotiated.store(1, Ordering::Release);
    }

    fn slot(&self, index: usize) -> NonNull<SlotHead> {
        assert!(index < self.shape.slot_count, "slot {index} of {}", self.shape.slot_count);
        // SAFETY: the offset is inside the mapping, by the assertion and `Shape::bytes`.
        unsafe { self.memory.add(PAGE_BYTES + index * self.shape.slot_bytes()).cast() }
    }

    fn state(&self, index: usize) -> &AtomicU32 {
        // SAFETY: the slot is mapped and aligned to a page; the state is only ever accessed as an atomic.
        unsafe { &(*self.slot(index).as_ptr()).state }
    }

    fn error(&self, index: usize) -> &AtomicI32 {
        // SAFETY: as in `state`.
        unsafe { &(*self.slot(index).as_ptr()).error }
    }

    /// Where the front of a request goes.
    pub(crate) fn front(&self, index: usize) -> *mut [u8; FRONT_BYTES] {
        // SAFETY: the slot is mapped; the address is taken without a reference.
        unsafe { &raw mut (*self.slot(index).as_ptr()).front }
    }

    /// Where the rest of a request goes: on a page of its own, so that the payload of a write is aligned.
    pub(crate) fn payload(&self, index: usize) -> *mut u8 {
        // SAFETY: a slot is one page and its payload, both mapped.
        unsafe { self.slot(index).cast::<u8>().add(PAGE_BYTES).as_ptr() }
    }

    /// Makes a slot ready to receive. Its front is cleared first: a length that is not zero means a request.
    pub(crate) fn arm(&self, index: usize) {
        // SAFETY: the caller holds the slot, so nobody else touches its front.
        unsafe { self.front(index).write([0; FRONT_BYTES]) };
        self.state(index).store(ARMED, Ordering::Release);
    }

    /// Records the result, before it is answered.
    pub(crate) fn note_answer(&self, index: usize, error: i32) {
        self.error(index).store(error, Ordering::Relaxed);
        self.state(index).store(ANSWERING, Ordering::Release);
    }

    /// The request needs nothing more.
    pub(crate) fn release(&self, index: usize) {
        self.state(index).store(FREE, Ordering::Release);
    }

    /// What a daemon that died left in a slot.
    pub(crate) fn found(&self, index: usize) -> Found {
        // SAFETY: the daemon before is dead and this one has not begun to use the slot.
        let front = unsafe { self.front(index).read() };
        let head = InHead::read_from_prefix(front.as_bytes()).map(|(head, _)| head).unwrap_or_default();
        match self.state(index).load(Ordering::Acquire) {
            ARMED if head.len > 0 => Found::Unanswered,
            ANSWERING => Found::Answering { error: self.error(index).load(Ordering::Relaxed) },
            _ => Found::Nothing,
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `map`, and every access borrows the region.
        let unmapped = unsafe { rustix::mm::munmap(self.memory.as_ptr().cast(), self.shape.bytes()) };
        // It cannot fail for a range that was mapped; if it did, memory would be lost and nothing else.
        let _ = unmapped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { slot_count: 4, payload_bytes: 8192 };

    fn receive(region: &Region, index: usize, unique: u64) {
        let head = InHead { len: 40, unique, ..InHead::default() };
        // SAFETY: the slot is mapped, and only this test uses it.
        unsafe { region.front(index).cast::<InHead>().write_unaligned(head) };
    }

    #[test]
    fn a_successor_finds_each_slot_in_the_state_in_which_it_was_left() {
        let region = Region::create(SHAPE).unwrap();
        region.arm(1);
        region.arm(2);
        receive(&region, 2, 77);
        region.arm(3);
        receive(&region, 3, 78);
        region.note_answer(3, -5);
        region.set_negotiated(40, true);
        let file = rustix::io::dup(region.file()).unwrap();
        drop(region);

        let region = Region::adopt(file).unwrap();
        let found: Vec<_> = (0..4).map(|index| region.found(index)).collect();
        let expected = [Found::Nothing, Found::Nothing, Found::Unanswered, Found::Answering { error: -5 }];
        assert_eq!(found, expected);
        assert_eq!(region.negotiated(), Some((40, true)));
        region.release(3);
        region.arm(2);
        assert_eq!((region.found(2), region.found(3)), (Found::Nothing, Found::Nothing));
    }

    #[test]
    fn what_is_no_region_is_refused() {
        let file = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 1 << 16).unwrap();
        assert!(matches!(Region::adopt(file), Err(RegionError::Version { found: 0 })));

        let region = Region::create(SHAPE).unwrap();
        let file = rustix::io::dup(region.file()).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        assert!(matches!(Region::adopt(file), Err(RegionError::Shape { slot_count: 4, .. })));
        let file = rustix::io::dup(region.file()).unwrap();
        rustix::io::pwrite(&file, &9u32.to_ne_bytes(), 8).unwrap();
        assert!(matches!(Region::adopt(file), Err(RegionError::Version { found: 9 })));
        // Unmapping pages that the file no longer has is fine; touching them is not, so the region goes untouched.
    }
}
