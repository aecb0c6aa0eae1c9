//! Doors with TLS: the threads in front of the engine's. The engine's side of doors is in `doors`.
//!
//! | file | what |
//! |---|---|
//! | `keys`, `der` | the files of certificates and keys, checked |
//! | `authorities` | who signed a client, and whether that counts today |
//! | `lobby` | who waits to be let in, bounded |
//! | `porter` | greeting, STARTTLS, TLS handshake |
//! | `carrier` | deciphers and enciphers for those who are in |
//! | `thread` | how both run |

mod authorities;
pub(crate) mod carrier;
mod der;
pub(crate) mod keys;
pub(crate) mod lobby;
pub(crate) mod porter;
mod thread;
