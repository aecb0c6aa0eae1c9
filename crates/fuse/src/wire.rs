//! The part of the kernel's FUSE protocol that a folder of fixed-size files needs, in the machine's byte order.
//!
//! Each struct mirrors one of `linux/fuse.h`; the kernel never changes their layout, it only appends. Requests that are
//! not named here are answered with "not implemented", after which the kernel does without them.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol's major version.
pub(crate) const MAJOR: u32 = 7;
/// The oldest minor version that is served: Linux 4.20, the first in which one request carries more than 128 KiB.
pub(crate) const MINOR_OLDEST: u32 = 28;
/// The minor version of the structs here.
pub(crate) const MINOR: u32 = 40;
/// The folder that is mounted.
pub(crate) const ROOT_NODE: u64 = 1;

/// Bytes of a request that come before the payload of a write: a head, and the longest fixed body.
pub(crate) const FRONT_BYTES: usize = size_of::<InHead>() + size_of::<WriteIn>();

/// Operations, as numbered by the kernel.
pub(crate) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
}

/// What the kernel offers and we take up in `INIT`, both words as one.
pub(crate) mod flag {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    /// The kernel can be asked to hand out again what was read and not answered.
    pub(crate) const HAS_RESEND: u64 = 1 << 39;
    /// Requests can come over rings of io_uring (Linux 6.14, where it is switched on). Once it is taken up, requests wait
    /// until the rings are there.
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
    /// What is taken up when offered.
    pub(crate) const WANTED: u64 =
        ASYNC_READ | BIG_WRITES | ASYNC_DIO | PARALLEL_DIROPS | MAX_PAGES | INIT_EXT | HAS_RESEND;
    /// The same where requests are to come over rings, of which the kernel resends none.
    pub(crate) const WANTED_OVER_RINGS: u64 = WANTED & !HAS_RESEND | OVER_IO_URING;
}

/// Reads and writes go past the page cache.
pub(crate) const OPEN_DIRECT_IO: u32 = 1 << 0;
/// Nothing needs to be done when a descriptor is closed.
pub(crate) const OPEN_NO_FLUSH: u32 = 1 << 5;
/// Writes that do not extend the file may run beside each other.
pub(crate) const OPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
/// The notification that asks for what was read and not answered.
pub(crate) const NOTIFY_RESEND: i32 = 7;
/// The bit that marks a request that is handed out again.
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;

/// The head of each request.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct InHead {
    /// Of the whole request. Zero means that no request is there.
    pub(crate) len: u32,
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    pub(crate) extension_words: u16,
    pub(crate) padding: u16,
}

/// The head of each answer, and of each notification.
#[derive(Clone, Copy, Debug, IntoBytes, FromBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct OutHead {
    pub(crate) len: u32,
    /// Zero or a negative error number; a notification's code where `unique` is zero.
    pub(crate) error: i32,
    pub(crate) unique: u64,
}

/// The body of READ and of READDIR.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct ReadIn {
    pub(crate) file: u64,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) read_flags: u32,
    pub(crate) lock_owner: u64,
    pub(crate) flags: u32,
    pub(crate) padding: u32,
}

/// The body of WRITE, before the payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct WriteIn {
    pub(crate) file: u64,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) write_flags: u32,
    pub(crate) lock_owner: u64,
    pub(crate) flags: u32,
    pub(crate) padding: u32,
}

/// The answer to WRITE.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct WriteOut {
    pub(crate) size: u32,
    pub(crate) padding: u32,
}

/// The body of FALLOCATE, by which a loop device passes on discards and zeroes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct FallocateIn {
    pub(crate) file: u64,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) mode: u32,
    pub(crate) padding: u32,
}

/// The part of INIT that every kernel sends.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct InitIn {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) readahead_bytes_max: u32,
    pub(crate) flags: u32,
}

/// The answer to INIT.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct InitOut {
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) readahead_bytes_max: u32,
    pub(crate) flags: u32,
    pub(crate) background_max: u16,
    pub(crate) congestion_threshold: u16,
    pub(crate) write_bytes_max: u32,
    pub(crate) time_granularity_ns: u32,
    pub(crate) pages_max: u16,
    pub(crate) map_alignment: u16,
    pub(crate) flags_high: u32,
    pub(crate) stack_depth_max: u32,
    pub(crate) request_timeout_s: u16,
    pub(crate) unused: [u16; 11],
}

/// What the kernel knows of a file.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Attributes {
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) sectors: u64,
    pub(crate) times: [u64; 3],
    pub(crate) times_ns: [u32; 3],
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) device: u32,
    pub(crate) block_bytes: u32,
    pub(crate) flags: u32,
}

/// The answer to LOOKUP. The time for which it may be believed is zero: it is asked for rarely and must be right after
/// a resize.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct EntryOut {
    pub(crate) node: u64,
    pub(crate) generation: u64,
    pub(crate) valid_s: [u64; 2],
    pub(crate) valid_ns: [u32; 2],
    pub(crate) attributes: Attributes,
}

/// The answer to GETATTR.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct AttributesOut {
    pub(crate) valid_s: u64,
    pub(crate) valid_ns: u32,
    pub(crate) padding: u32,
    pub(crate) attributes: Attributes,
}

/// The answer to OPEN and OPENDIR.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct OpenOut {
    pub(crate) file: u64,
    pub(crate) flags: u32,
    pub(crate) backing: i32,
}

/// The answer to STATFS. A loop device takes its discard granularity from `block_bytes`.
#[derive(Clone, Copy, Debug, Default, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct StatfsOut {
    pub(crate) blocks: u64,
    pub(crate) blocks_free: u64,
    pub(crate) blocks_available: u64,
    pub(crate) files: u64,
    pub(crate) files_free: u64,
    pub(crate) block_bytes: u32,
    pub(crate) name_bytes_max: u32,
    pub(crate) fragment_bytes: u32,
    pub(crate) padding: u32,
    pub(crate) spare: [u32; 6],
}

/// The head of a name in the answer to READDIR; the name follows, padded to eight bytes.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct Dirent {
    pub(crate) inode: u64,
    pub(crate) next_offset: u64,
    pub(crate) name_bytes: u32,
    pub(crate) kind: u32,
}

/// Commands of io_uring to a FUSE connection.
pub(crate) mod ring {
    /// Gives the kernel an entry's memory; completes with the first request in it.
    pub(crate) const REGISTER: u32 = 1;
    /// Answers the request in an entry; completes with the next one.
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
}

/// The argument of a command, at the beginning of the 80 bytes of a long submission.
#[derive(Clone, Copy, Debug, IntoBytes, Immutable)]
#[repr(C)]
pub(crate) struct RingCommand {
    pub(crate) flags: u64,
    /// The request that is answered; zero to register.
    pub(crate) commit_id: u64,
    pub(crate) queue: u16,
    pub(crate) padding: [u8; 6],
}

/// What accompanies a request in an entry, and its answer.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct RingPart {
    pub(crate) flags: u64,
    /// Names the request when it is answered.
    pub(crate) commit_id: u64,
    /// What is in the payload: of the request, then of the answer.
    pub(crate) payload_bytes: u32,
    pub(crate) padding: u32,
    pub(crate) reserved: u64,
}

/// The head of an entry. The payload, of a write for instance, and the content of the answer lie elsewhere.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct RingHead {
    /// Begins with an [`InHead`]; an [`OutHead`] in the answer.
    pub(crate) in_out: [u8; 128],
    /// The fixed body of the request.
    pub(crate) body: [u8; 128],
    pub(crate) part: RingPart,
}

const _: () = assert!(size_of::<RingCommand>() == 24 && size_of::<RingPart>() == 32);
const _: () = assert!(size_of::<RingHead>() == 288);
const _: () = assert!(size_of::<InHead>() == 40 && size_of::<OutHead>() == 16);
const _: () = assert!(size_of::<ReadIn>() == 40 && size_of::<WriteIn>() == 40 && size_of::<WriteOut>() == 8);
const _: () =
    assert!(size_of::<FallocateIn>() == 32 && size_of::<InitIn>() == 16 && size_of::<InitOut>() == 64);
const _: () = assert!(size_of::<Attributes>() == 88 && size_of::<EntryOut>() == 128);
const _: () = assert!(size_of::<AttributesOut>() == 104 && size_of::<OpenOut>() == 16);
const _: () = assert!(size_of::<StatfsOut>() == 80 && size_of::<Dirent>() == 24);

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn what_goes_over_rings_lies_where_the_kernel_has_it() {
        // Scenario: each field against `include/uapi/linux/fuse.h` of Linux 6.14, in which rings came: fuse_uring_cmd_req,
        // fuse_uring_ent_in_out, fuse_uring_req_header.
        let command = [
            offset_of!(RingCommand, flags),
            offset_of!(RingCommand, commit_id),
            offset_of!(RingCommand, queue),
            size_of::<RingCommand>(),
        ];
        assert_eq!(command, [0, 8, 16, 24]);
        let part = [
            offset_of!(RingPart, flags),
            offset_of!(RingPart, commit_id),
            offset_of!(RingPart, payload_bytes),
            offset_of!(RingPart, reserved),
            size_of::<RingPart>(),
        ];
        assert_eq!(part, [0, 8, 16, 24, 32]);
        let head = [
            offset_of!(RingHead, in_out),
            offset_of!(RingHead, body),
            offset_of!(RingHead, part),
            size_of::<RingHead>(),
            align_of::<RingHead>(),
        ];
        assert_eq!(head, [0, 128, 256, 288, 8]);
        assert_eq!(flag::OVER_IO_URING, 0x200_0000_0000);
        assert_eq!([ring::REGISTER, ring::COMMIT_AND_FETCH], [1, 2]);
    }
}
