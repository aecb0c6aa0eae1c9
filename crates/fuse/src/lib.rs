//! Attached spaces: `/dev/dolmen/POOL/SPACE`, an ordinary disk that survives the daemon behind it.
//!
//! A folder with one file per space is mounted over FUSE, and a loop device with direct I/O shows each file as a disk.
//! [`Files`] makes and unmakes all this; the engine is reached through [`Host`].
//!
//! ```text
//! file system on the space ─ /dev/loopN ─ file over FUSE ═ /dev/fuse ═ reading threads ─ Host ─ engine
//!                                                           ║
//!                                                         descriptor holder
//! ```
//!
//! # The death of the daemon
//! Three things must not die with it. The *connection*: a [descriptor holder](keep()) holds its descriptor, so the kernel queues
//! requests instead of failing them. The *requests that were read and not answered*: Linux 6.9 and newer hands them out
//! again when asked; before that the next daemon finds them in the slots, which lie in memory that the descriptor holder holds. And
//! *the numbers of files*, which the kernel remembers: they are recorded, with the loop devices, in a [`Ledger`] before
//! they are used. I/O waits meanwhile, without limit, unless the host sets one ([`Survival`]).
//!
//! Not survived: the death of the descriptor holder together with the daemon, and of the host. Then every request fails, as when a
//! disk is pulled; the next start clears what can be cleared and names the rest. Descriptors cloned per core are not used:
//! what was read through a clone fails when the process dies. Nor is FUSE over io_uring, unless somebody asks for it: what was
//! given to a ring is neither ended nor resent (`docs/kernels.md`).
//!
//! # Rings, for who asks for them
//! Files that were started with [`Channel::Rings`] have a folder and a connection of their own, whose requests go over
//! io_uring. No descriptor holder holds it: with the daemon it ends, every request fails, and the next start clears the loop
//! devices and the folder, which are recorded like all others. An attached space is never moved there from the other connection.
//!
//! # Memory, and why this does not lock up
//! The kernel frees memory by writing dirty pages, of file systems on our devices among others. If serving such a write
//! needed memory that only the write can free, both would wait for ever. The chain, link by link:
//!
//! - The loop device's worker runs with `PF_MEMALLOC_NOIO`, and so do its allocations of block and FUSE requests: none of
//!   them starts I/O to get memory.
//! - The request is read into a slot: mapped, populated and locked when the session began. Reading threads allocate
//!   nothing per request; slots bound what is in flight, and what finds none waits in the kernel.
//! - Kernel memory that a reading thread needs in a system call is taken without I/O, because each of them is an I/O
//!   flusher (`PR_SET_IO_FLUSHER`), which also exempts it from the throttling of those who dirty pages. The daemon does the
//!   same for its engine's thread, locks all its memory and keeps its members open with direct I/O.
//! - Between the slot and the disk there is the engine's arena: fixed, and larger than what one request needs.
//! - The answer is written from where the content lies, into pages that the kernel has allocated and pinned before it sent
//!   the request.
//! - Over rings the request comes into an entry and the answer is copied there; entries are mapped, populated and locked
//!   like the slots, and the ring's thread is an I/O flusher like the reading threads.
//! - The descriptor holder needs no memory at all after its start.
//!
//! What this leaves to others: members that are *files* in a file system that allocates memory to write them, so they are
//! opened with direct I/O and preallocated; and the daemon's own logs and state, which must not lie on an attached space.
//!
//! Invariant: a thread that holds a lock of this crate never waits for I/O on an attached space, except the caller of
//! [`Files`], whose lock no reading thread and no answer ever takes.
#![allow(unsafe_code)]

mod cores;
mod descriptor_holder;
mod dispatch;
mod entries;
mod files;
mod host;
mod ledger;
mod loop_device;
mod mount;
mod nodes;
mod region;
mod ring;
mod session;
mod slots;
mod start;
mod wire;

pub use descriptor_holder::{DescriptorHolderError, DescriptorHolderProgram, keep};
pub use entries::ENTRIES_MAX;
pub use files::{
    AttachError, Attached, CloseError, DescriptorHolderHealth, DetachError, Files, Survival, Unanswered,
};
pub use host::{FlushRequest, Host, RangeRequest, ReadRequest, WriteRequest};
pub use ledger::{Attachment, Ledger, LedgerError, LedgerFile, Made};
pub use loop_device::LoopError;
pub use mount::MountError;
pub use region::{PAYLOAD_BYTES_MAX, RegionError, SLOTS_MAX};
pub use ring::{RingsUnusable, rings_usable};
pub use session::SessionCounters;
pub use start::{Channel, FilesConfig, Recovery, StartError, Stranded, THREADS_MAX, TakenUp};
