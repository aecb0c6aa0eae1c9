//! What each request means: names and attributes are answered here, content goes to the host.

use dolmen_attach::Access;
use zerocopy::{FromBytes, IntoBytes};

use crate::host::{FlushRequest, Place, RangeRequest, ReadRequest, WriteRequest};
use crate::nodes::{BLOCK_BYTES, File, folder_attributes};
use crate::session::Ticket;
use crate::wire::{
    AttributesOut, Dirent, EntryOut, FallocateIn, InitIn, InitOut, MAJOR, MINOR, MINOR_OLDEST,
    OPEN_DIRECT_IO, OPEN_NO_FLUSH, OPEN_PARALLEL_DIRECT_WRITES, OpenOut, ROOT_NODE, ReadIn, StatfsOut,
    WriteIn, flag, op,
};

/// Requests of loop devices that the kernel keeps outstanding, at most. It is what the default number of slots can hold,
/// so that a slot waits for a request and not a request for a slot.
pub(crate) const BACKGROUND_MAX: u16 = 128;
/// Where the kernel begins to think the device congested.
const CONGESTION_THRESHOLD: u16 = 96;
const _: () =
    assert!(CONGESTION_THRESHOLD < BACKGROUND_MAX, "congestion is noticed before it stops anything");

/// The kind of a folder's entry that is a regular file.
const DIRENT_FILE: u32 = 8;

/// Hands a request to whoever answers it.
pub(crate) fn dispatch(ticket: Ticket) {
    match ticket.head().opcode {
        op::READ => read(ticket),
        op::WRITE => write(ticket),
        op::FSYNC => flush(ticket),
        op::FALLOCATE => allocate(ticket),
        op::INIT => init(ticket),
        op::LOOKUP => look_up(ticket),
        op::GETATTR => attributes(ticket),
        op::OPEN => open(ticket),
        op::OPENDIR => answer(ticket, &OpenOut { file: ROOT_NODE, flags: 0, backing: 0 }),
        op::READDIR => list(ticket),
        op::STATFS => statfs(ticket),
        op::RELEASE | op::RELEASEDIR | op::FSYNCDIR | op::DESTROY => ticket.answer(&[]),
        // Files live as long as their spaces are attached, whether the kernel remembers them or not.
        op::FORGET | op::BATCH_FORGET => ticket.forget(),
        // Length, owner and times are not for others to set.
        op::SETATTR => ticket.fail(libc::EPERM),
        _ => ticket.fail(libc::ENOSYS),
    }
}

fn answer<T: IntoBytes + zerocopy::Immutable>(ticket: Ticket, body: &T) {
    ticket.answer(&[body.as_bytes()]);
}

fn file_of(ticket: &Ticket) -> Option<std::sync::Arc<File>> {
    ticket.shared().nodes.get(ticket.head().node)
}

/// Tells whether a range may be handed on: not empty, and inside the file. It may begin and end at any byte.
fn is_sound(file: &File, at: u64, len: u64) -> bool {
    len > 0 && at.checked_add(len).is_some_and(|end| end <= file.size())
}

fn read(ticket: Ticket) {
    let (Some(file), Some(body)) = (file_of(&ticket), ticket.body::<ReadIn>()) else {
        return ticket.fail(libc::ENOENT);
    };
    // What lies behind the end is not there; a reader gets fewer bytes, as from any file.
    let left = file.size().saturating_sub(body.offset);
    let len = u64::from(body.size).min(left);
    if len == 0 {
        return ticket.answer(&[]);
    }
    let fits = len <= ticket.shared().region.shape().payload_bytes as u64;
    if !fits || !is_sound(&file, body.offset, len) {
        return ticket.fail(libc::EINVAL);
    }
    let host = std::sync::Arc::clone(&ticket.shared().host);
    host.read(ReadRequest { ticket, place: Place { space: file.space, at: body.offset, len } });
}

fn write(ticket: Ticket) {
    let (Some(file), Some(body)) = (file_of(&ticket), ticket.body::<WriteIn>()) else {
        return ticket.fail(libc::ENOENT);
    };
    if file.access == Access::ReadOnly {
        return ticket.fail(libc::EROFS);
    }
    let len = u64::from(body.size);
    let fits = len <= ticket.shared().region.shape().payload_bytes as u64;
    if !fits || !is_sound(&file, body.offset, len) {
        return ticket.fail(libc::EINVAL);
    }
    let host = std::sync::Arc::clone(&ticket.shared().host);
    host.write(WriteRequest { ticket, place: Place { space: file.space, at: body.offset, len } });
}

fn flush(ticket: Ticket) {
    let Some(file) = file_of(&ticket) else { return ticket.fail(libc::ENOENT) };
    let host = std::sync::Arc::clone(&ticket.shared().host);
    host.flush(FlushRequest { ticket, place: Place { space: file.space, at: 0, len: 0 } });
}

/// A loop device's discards and zeroes.
fn allocate(ticket: Ticket) {
    let (Some(file), Some(body)) = (file_of(&ticket), ticket.body::<FallocateIn>()) else {
        return ticket.fail(libc::ENOENT);
    };
    if file.access == Access::ReadOnly {
        return ticket.fail(libc::EROFS);
    }
    if !is_sound(&file, body.offset, body.length) {
        return ticket.fail(libc::EINVAL);
    }
    const KEEP_SIZE: u32 = libc::FALLOC_FL_KEEP_SIZE.cast_unsigned();
    const PUNCH: u32 = libc::FALLOC_FL_PUNCH_HOLE.cast_unsigned();
    const ZERO: u32 = libc::FALLOC_FL_ZERO_RANGE.cast_unsigned();
    let host = std::sync::Arc::clone(&ticket.shared().host);
    let place = Place { space: file.space, at: body.offset, len: body.length };
    match body.mode & !KEEP_SIZE {
        PUNCH => host.discard(RangeRequest { ticket, place }),
        ZERO => host.write_zeroes(RangeRequest { ticket, place }),
        _ => ticket.fail(libc::EOPNOTSUPP),
    }
}

fn init(ticket: Ticket) {
    let (bytes, len) = ticket.body_bytes();
    let Ok((body, rest)) = InitIn::read_from_prefix(&bytes) else { return ticket.fail(libc::EPROTO) };
    if body.major != MAJOR || body.minor < MINOR_OLDEST {
        tracing::error!(
            major = body.major,
            minor = body.minor,
            "the kernel speaks a FUSE protocol that is not served; dolmen needs Linux 4.20 or newer"
        );
        return ticket.fail(libc::EPROTO);
    }
    let high = if len > size_of::<InitIn>() && u64::from(body.flags) & flag::INIT_EXT != 0 {
        u32::read_from_prefix(rest).map(|(high, _)| high).unwrap_or(0)
    } else {
        0
    };
    let goes_over_rings = ticket.shared().entries.is_some();
    let wanted = if goes_over_rings { flag::WANTED_OVER_RINGS } else { flag::WANTED };
    let flags = (u64::from(body.flags) | u64::from(high) << 32) & wanted;
    let low_word = |value: u64| u32::try_from(value & u64::from(u32::MAX)).unwrap_or(0);
    let shape = ticket.shared().region.shape();
    let minor = body.minor.min(MINOR);
    let reply = InitOut {
        major: MAJOR,
        minor,
        readahead_bytes_max: body.readahead_bytes_max,
        flags: low_word(flags),
        background_max: BACKGROUND_MAX,
        congestion_threshold: CONGESTION_THRESHOLD,
        write_bytes_max: u32::try_from(shape.payload_bytes).unwrap_or(0),
        time_granularity_ns: 1,
        pages_max: u16::try_from(shape.payload_bytes / 4096).unwrap_or(1),
        map_alignment: 0,
        flags_high: low_word(flags >> 32),
        stack_depth_max: 0,
        request_timeout_s: 0,
        unused: [0; 11],
    };
    let (shared, resends) = (std::sync::Arc::clone(ticket.shared()), flags & flag::HAS_RESEND != 0);
    if goes_over_rings {
        // Answered before it is recorded: the rings are registered then, which the kernel refuses before it has the answer.
        answer(ticket, &reply);
        shared.set_negotiated(minor, resends);
    } else {
        // Recorded before it is answered: a daemon that takes over must know it whenever the kernel does.
        shared.set_negotiated(minor, resends);
        answer(ticket, &reply);
    }
}

fn look_up(ticket: Ticket) {
    let (bytes, len) = ticket.body_bytes();
    let name = bytes.get(..len).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
    let found = if ticket.head().node == ROOT_NODE { ticket.shared().nodes.named(name) } else { None };
    let Some(file) = found else { return ticket.fail(libc::ENOENT) };
    let attributes = file.attributes();
    answer(
        ticket,
        &EntryOut { node: file.node, generation: 0, valid_s: [0; 2], valid_ns: [0; 2], attributes },
    );
}

fn attributes(ticket: Ticket) {
    let attributes = match ticket.head().node {
        ROOT_NODE => folder_attributes(),
        _ => match file_of(&ticket) {
            Some(file) => file.attributes(),
            None => return ticket.fail(libc::ENOENT),
        },
    };
    answer(ticket, &AttributesOut { valid_s: 0, valid_ns: 0, padding: 0, attributes });
}

fn open(ticket: Ticket) {
    let Some(file) = file_of(&ticket) else { return ticket.fail(libc::ENOENT) };
    let flags = OPEN_DIRECT_IO | OPEN_NO_FLUSH | OPEN_PARALLEL_DIRECT_WRITES;
    answer(ticket, &OpenOut { file: file.node, flags, backing: 0 });
}

/// Lists the names. An entry's offset is the next file's node, so that files that come and go meanwhile neither hide
/// nor repeat the others.
fn list(ticket: Ticket) {
    let Some(body) = ticket.body::<ReadIn>() else { return ticket.fail(libc::EINVAL) };
    let room_bytes = (body.size as usize).min(ticket.shared().region.shape().payload_bytes);
    let mut listing = Vec::new();
    for file in ticket.shared().nodes.all() {
        let name_bytes = file.name.len();
        let entry_bytes = (size_of::<Dirent>() + name_bytes).next_multiple_of(8);
        if file.node < body.offset {
            continue;
        }
        if listing.len() + entry_bytes > room_bytes {
            break;
        }
        let begin = listing.len();
        let head = Dirent {
            inode: file.node,
            next_offset: file.node + 1,
            name_bytes: u32::try_from(name_bytes).unwrap_or(0),
            kind: DIRENT_FILE,
        };
        listing.extend_from_slice(head.as_bytes());
        listing.extend_from_slice(file.name.as_bytes());
        listing.resize(begin + entry_bytes, 0);
    }
    ticket.answer(&[&listing]);
}

fn statfs(ticket: Ticket) {
    let files = ticket.shared().nodes.all();
    let bytes: u64 = files.iter().map(|file| file.size()).sum();
    let reply = StatfsOut {
        blocks: bytes / u64::from(BLOCK_BYTES),
        files: files.len() as u64,
        block_bytes: BLOCK_BYTES,
        name_bytes_max: 255,
        fragment_bytes: BLOCK_BYTES,
        ..StatfsOut::default()
    };
    answer(ticket, &reply);
}
