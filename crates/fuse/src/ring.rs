//! FUSE over io_uring: the one thread that speaks with the rings of a connection, and whether this host has any.
//!
//! Only this thread gives commands to the kernel. One command waits in each entry; it completes with a request in the
//! entry's memory, the host answers, and the next command brings the answer and fetches the next request. What the kernel
//! wants to be told apart, a queue for each processor, goes over one ring of ours.
//!
//! A connection that has used rings is the daemon's alone: when its process ends the kernel takes back every command and
//! ends the connection, and every request fails, now and later. That is why nothing here is kept by a descriptor holder, and why
//! nobody gets it who has not asked for it by name ([`Channel::Rings`](crate::Channel)).

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::{fs, io};

use dolmen_attach::{Wait, enter};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use zerocopy::IntoBytes;

use crate::entries::{ENTRIES_MAX, Entries, PARTS};
use crate::mount::{self, MountError};
use crate::session::{AbortOnPanic, Shared};
use crate::wire::{RingCommand, ring};

/// Where the kernel says whether it offers rings. Nothing here ever writes to it.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";
/// Places of the ring: a command for each entry, and the poll on the board.
const RING_ENTRIES: u32 = 512;
const _: () = assert!(RING_ENTRIES as usize > ENTRIES_MAX, "every entry's command fits");
/// User data of the poll on the board; tags are below.
const WAKE: u64 = u64::MAX;
/// Where the length of what the address leads to stands in a submission, in bytes from its beginning.
const LENGTH_AT: usize = 24;

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;
const _: () = assert!(size_of::<squeue::Entry128>() == 128);

/// Why this host has no FUSE over io_uring.
#[derive(Debug, thiserror::Error)]
pub enum RingsUnusable {
    /// The kernel does not know it.
    #[error("FUSE over io_uring is not in this kernel, which has no {SWITCH}; it came with Linux 6.14")]
    Absent,
    /// It is switched off.
    #[error(
        "FUSE over io_uring is switched off in this kernel; an administrator switches it on with `echo 1 > {SWITCH}`, and for good with the line `options fuse enable_uring=1` in /etc/modprobe.d (`fuse.enable_uring=1` for the kernel itself); dolmen does not do that by itself"
    )]
    Off,
    /// It cannot be asked.
    #[error("reading {SWITCH}: {source}")]
    Switch {
        /// What the system said.
        source: io::Error,
    },
    /// The kernel gives no rings.
    #[error(
        "FUSE over io_uring: the kernel gives this process no ring: {source}; allow io_uring (sysctl kernel.io_uring_disabled, seccomp)"
    )]
    NoRing {
        /// What the system said.
        source: io::Error,
    },
    /// There may be more processors than are served.
    #[error(
        "FUSE over io_uring wants a queue for each processor that there may be; here {found} are possible, and up to {ENTRIES_MAX} are served"
    )]
    Processors {
        /// How many there may be.
        found: usize,
    },
    /// There is no FUSE at all.
    #[error(transparent)]
    Fuse(#[from] MountError),
}

/// Whether this host has FUSE over io_uring. Changes nothing, but that the kernel may load its module for FUSE.
///
/// # Errors
/// [`RingsUnusable`], which says what is missing.
pub fn rings_usable() -> Result<(), RingsUnusable> {
    queue_count().map(|_| ())
}

/// How many queues the kernel wants, where it has FUSE over io_uring.
pub(crate) fn queue_count() -> Result<usize, RingsUnusable> {
    // Whoever opens this has the module loaded.
    drop(mount::open_fuse()?);
    match fs::read_to_string(SWITCH) {
        Ok(text) if text.trim() == "Y" => {}
        Ok(_) => return Err(RingsUnusable::Off),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(RingsUnusable::Absent),
        Err(source) => return Err(RingsUnusable::Switch { source }),
    }
    try_ring().map_err(|source| RingsUnusable::NoRing { source })?;
    let possible = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let found = processors_in(&possible);
    if (1..=ENTRIES_MAX).contains(&found) { Ok(found) } else { Err(RingsUnusable::Processors { found }) }
}

/// How many processors a list of the kernel's names, such as `0-3,8`.
fn processors_in(list: &str) -> usize {
    let of_part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    list.trim().split(',').filter_map(of_part).sum()
}

/// Whether the kernel gives this process a ring; on a thread of its own, because the end of a ring interrupts, some
/// milliseconds later, what the thread that made it waits for in the kernel.
fn try_ring() -> io::Result<()> {
    let thread = std::thread::Builder::new().name("fuse-ring-try".to_owned());
    let tried = thread.spawn(|| new_ring(1).map(drop))?.join();
    tried.unwrap_or_else(|_| Err(io::Error::from_raw_os_error(libc::ECANCELED)))
}

fn new_ring(entries: u32) -> io::Result<Ring> {
    Ring::builder().setup_single_issuer().setup_coop_taskrun().build(entries)
}

/// Gives all entries of the session to the kernel, which must have been told in its `INIT` that they come, and begins to
/// serve them. The thread ends when the connection has ended.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let (begun, begins) = sync_channel(1);
    let of_thread = Arc::clone(shared);
    std::thread::Builder::new().name("fuse-ring".to_owned()).spawn(move || {
        let _guard = AbortOnPanic;
        // Allocations of the kernel on this thread's behalf must not wait for our own device. Without the privilege the
        // daemon has warned already, for its engine's thread needs the same.
        let _ = rustix::process::configure_io_flusher_behavior(true);
        serve(&of_thread, &begun);
    })?;
    begins.recv().unwrap_or_else(|_| Err(io::Error::from_raw_os_error(libc::ECANCELED)))
}

fn serve(shared: &Arc<Shared>, begun: &SyncSender<io::Result<()>>) {
    let Some(entries) = shared.entries.as_ref() else { return };
    let ring = match new_ring(RING_ENTRIES) {
        Ok(ring) => ring,
        Err(error) => {
            let _ = begun.send(Err(error));
            return;
        }
    };
    let mut talk = Talk { shared, entries, ring, dead_count: 0, armed: false };
    // Where some were refused, the others stay with the kernel until the connection has ended, and so does their memory.
    let _ = begun.send(talk.register_all());
    if let Err(error) = talk.go_on() {
        tracing::error!(%error, "the ring of attached spaces failed; their I/O stands still until the daemon is restarted");
        // The kernel still has entries: their memory is never to be used for anything else.
        std::mem::forget(Arc::clone(shared));
    }
}

/// The thread's side of the conversation.
struct Talk<'a> {
    shared: &'a Arc<Shared>,
    entries: &'a Entries,
    ring: Ring,
    /// Entries that the kernel has given back for good.
    dead_count: u16,
    /// Whether a poll on the board is under way.
    armed: bool,
}

impl Talk<'_> {
    fn push(&mut self, entry: &squeue::Entry128) {
        // SAFETY: what a command points to are the parts of an entry, in memory that survives the ring, as do the files of
        // the connection and the board: all of them belong to the shared part.
        let pushed = unsafe { self.ring.submission().push(entry) };
        assert!(pushed.is_ok(), "the ring has room for a command of each entry");
    }

    fn command(&self, number: u32, tag: u16, commit_id: u64) -> opcode::UringCmd80 {
        let command = RingCommand { flags: 0, commit_id, queue: self.entries.queue_of(tag), padding: [0; 6] };
        let mut bytes = [0; 80];
        bytes.iter_mut().zip(command.as_bytes()).for_each(|(to, from)| *to = *from);
        opcode::UringCmd80::new(types::Fd(self.shared.fuse().as_raw_fd()), number).cmd(bytes)
    }

    /// Gives every entry to the kernel. One that it refuses comes back at once.
    fn register_all(&mut self) -> io::Result<()> {
        for tag in 0..self.entries.count() {
            let parts = self.entries.parts(tag);
            let command = self.command(ring::REGISTER, tag, 0).addr(Some(parts.expose_provenance() as u64));
            let entry = with_length(command.build(), PARTS).user_data(u64::from(tag));
            self.push(&entry);
        }
        enter(&self.ring, Wait::No)?;
        let refused = self.reap();
        if self.dead_count == 0 {
            return Ok(());
        }
        Err(io::Error::from_raw_os_error(-refused.unwrap_or(-libc::ENOTCONN)))
    }

    /// Until every entry has come back for good.
    fn go_on(&mut self) -> io::Result<()> {
        loop {
            self.commit();
            self.reap();
            if self.dead_count == self.entries.count() {
                return Ok(());
            }
            if !self.armed {
                let file = types::Fd(self.entries.board.event().as_raw_fd());
                let events = u32::from(libc::POLLIN.unsigned_abs());
                let poll = opcode::PollAdd::new(file, events).build().user_data(WAKE);
                self.push(&poll.into());
                self.armed = true;
            }
            let sleeps = self.entries.board.lie_down(|| false);
            let entered = enter(&self.ring, if sleeps { Wait::ForOne } else { Wait::No });
            self.entries.board.get_up();
            entered?;
        }
    }

    /// Hands answers to the kernel, with the command for the entry's next request.
    fn commit(&mut self) {
        let entries = self.entries;
        entries.board.take(|tag, _| {
            let command = self.command(ring::COMMIT_AND_FETCH, tag, entries.commit_id(tag));
            let entry = command.build().user_data(u64::from(tag));
            self.push(&entry);
        });
    }

    /// Takes what has completed: requests, and entries that come back for good. The result of one that came back for
    /// another reason than the end of the connection is returned.
    fn reap(&mut self) -> Option<i32> {
        let mut refused = None;
        // As many as there are places: what comes meanwhile is for the next round.
        for _ in 0..=RING_ENTRIES {
            let Some(done) = self.ring.completion().next() else { break };
            match (u16::try_from(done.user_data()), done.result()) {
                (Ok(tag), 0) => self.shared.take_from_ring(tag),
                (Ok(tag), result) => {
                    self.dead_count += 1;
                    if ![-libc::ENOTCONN, -libc::ECONNABORTED].contains(&result) {
                        let error = io::Error::from_raw_os_error(-result);
                        tracing::error!(tag, %error, "the kernel refused a command of attached spaces over io_uring");
                        refused = Some(result);
                    }
                }
                (Err(_), _) => {
                    self.armed = false;
                    self.entries.board.drain();
                }
            }
        }
        refused
    }
}

/// A command whose address leads to so many parts, which the crate for rings has no word for.
fn with_length(mut entry: squeue::Entry128, parts: usize) -> squeue::Entry128 {
    let length = u32::try_from(parts).unwrap_or(0);
    // SAFETY: the entry is plain bytes in the kernel's layout, 128 of them, in which a 32-bit length stands at byte 24.
    unsafe { (&raw mut entry).cast::<u8>().add(LENGTH_AT).cast::<u32>().write(length) };
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_as_the_kernel_lists_them() {
        for (list, count) in
            [("0\n", 1), ("0-1\n", 2), ("0-3,8\n", 5), ("0-255", 256), ("", 0), ("x-y", 0), ("3-1", 0)]
        {
            assert_eq!(processors_in(list), count, "{list:?}");
        }
    }

    #[test]
    fn a_command_to_register_carries_address_and_length() {
        // Scenario: the bytes of a submission against `struct io_uring_sqe`: opcode at 0, file at 4, command at 8, address at
        // 16, length at 24, user data at 32, the command's own bytes from 48.
        let command = opcode::UringCmd80::new(types::Fd(7), ring::REGISTER)
            .cmd([0xab; 80])
            .addr(Some(0x1234_5678_9abc));
        let entry = with_length(command.build(), PARTS).user_data(9);
        // SAFETY: an entry is 128 bytes without padding.
        let bytes: [u8; 128] = unsafe { std::mem::transmute(entry) };
        assert_eq!(bytes[0], 46);
        assert_eq!(bytes[4..12], [7, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[16..24], 0x1234_5678_9abc_u64.to_ne_bytes());
        assert_eq!(bytes[24..28], 2u32.to_ne_bytes());
        assert_eq!(bytes[32..40], 9u64.to_ne_bytes());
        assert!(bytes[48..].iter().all(|byte| *byte == 0xab));
    }
}
