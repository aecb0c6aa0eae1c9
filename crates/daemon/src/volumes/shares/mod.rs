//! Shares: folders of volumes that servers of this host offer (docs/design/0035, *Shares*).
//!
//! | file | content |
//! |---|---|
//! | `host` | servers of this host |
//! | `book` | findings about each share that was put or looked at |
//! | `serving` | the service of servers: shares put on them and taken off, with their volumes |
//! | `changes` | creation, rights and deletion |
//! | `commands` | commands about shares, as texts name them |
//! | `view`, `words` | the service of requests, and shares as the API shows them |
//!
//! Invariants:
//! - The record is written before a server is changed, and deleted after the servers have forgotten the share. A daemon that
//!   starts between the two finds the record and goes on from it.
//! - No server offers a share whose volume is not mounted: an unmount takes the shares off first.

mod book;
mod changes;
mod commands;
mod host;
mod serving;
mod view;
mod words;

pub(super) use serving::{ShareServers, but_servers};
pub(crate) use view::VolumeShares;
