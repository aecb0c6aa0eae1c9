//! An NBD server: the protocol and its sessions, free of the operating system.
//!
//! NBD carries a block device over a stream of bytes: a handshake in which the client chooses an export, then requests
//! with payloads one way and replies the other. [`Server`] serves [`Exports`] over [`Connection`]s; an EDGE crate brings
//! the sockets, the space brings the exports. Spoken is the fixed newstyle handshake with simple or structured replies or
//! extended headers, and block status. Where TLS is demanded, a [`Prelude`] speaks until it stands, and the session begins behind it.
//!
//! | file | what |
//! |---|---|
//! | `wire`, `option`, `request`, `reply` | the messages, read and written on plain bytes, without I/O |
//! | `connection`, `export` | the seams to client and space |
//! | `prelude`, `handshake`, `session`, `perform` | what happens, in this order |
//! | `intake`, `outbox`, `worker_pool`, `budget`, `guard` | receiving, sending, workers, bounds, time |
//!
//! Invariant: no length from the wire is used before it was checked against a bound, and nothing a client sends makes
//! the server panic, wait for ever with something in its hands, or hold more memory than its [`Limits`].
//!
//! Invariant: a reply leaves only after what it acknowledges has happened, each request has exactly one reply, and
//! replies are never mixed.
//!
//! Invariant: in the steady state a request allocates nothing. Payloads go from the connection to the export and back in
//! the buffers that they were first received or read into; the exception, a bounded and counted one, is in `intake`.

mod budget;
pub mod conformance;
mod connection;
mod export;
mod guard;
mod handshake;
mod intake;
pub mod option;
mod outbox;
mod perform;
mod prelude;
pub mod reply;
pub mod request;
mod session;
pub mod wire;
mod worker_pool;

pub use connection::{Connection, ConnectionError, Receive};
pub use export::{
    Access, BlockState, EXTENTS_MAX, Export, ExportError, Exports, Extents, Holes, Listed, Medium,
    PIECE_BYTES_MAX, Profile, ReadError, Refusal, Segment, Segments, ZeroMode, Zeroing,
};
pub use guard::{Cut, Timeouts};
pub use handshake::Entrance;
pub use intake::StreamEnd;
pub use prelude::{Prelude, PreludeStep};
pub use session::{Farewell, Limits, Means, Server, SessionError};

/// Requests of one connection that are under way at a time; the next one is received when one of them was answered.
pub const IN_FLIGHT_MAX: usize = 128;
/// Options in one handshake.
pub const OPTIONS_MAX: usize = 64;
/// Data of one option that is looked at, in bytes; more is skipped.
pub const OPTION_BYTES_MAX: u32 = 64 * 1024;
/// Data of all options of one handshake, in bytes.
pub const HANDSHAKE_BYTES_MAX: u64 = 1 << 20;
/// What a client may say before TLS, in bytes.
pub const PRELUDE_BYTES_MAX: u64 = 16 * 1024;
/// Options before TLS.
pub const PRELUDE_OPTIONS_MAX: usize = 16;
/// Clients that are told at a time why they are not served; more are closed without a word.
pub const REFUSED_MAX: usize = 16;

const _: () = assert!(OPTION_BYTES_MAX as u64 <= HANDSHAKE_BYTES_MAX, "one option fits a handshake");
