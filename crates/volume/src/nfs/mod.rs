//! NFS.

mod client;

pub use client::{Client, ClientError, HostName, Network, parse_grant};

#[cfg(test)]
pub(crate) use client::tests;
