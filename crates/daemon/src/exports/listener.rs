//! Listeners with TLS: the threads in front of the engine's. The engine's side of listeners is in `listeners`.
//!
//! | file | what |
//! |---|---|
//! | `keys`, `der` | the files of certificates and keys, checked |
//! | `authorities` | who signed a client, and whether that counts today |
//! | `pending` | who waits to be let in, bounded |
//! | `tls_acceptor` | greeting, STARTTLS, TLS handshake |
//! | `proxy` | deciphers and enciphers for those who are in |
//! | `thread` | how both run |

mod authorities;
mod der;
pub(crate) mod keys;
pub(crate) mod pending;
pub(crate) mod proxy;
mod thread;
pub(crate) mod tls_acceptor;
