//! Shares over NFS, by the server of the kernel or by Ganesha.

mod client;
mod export;
mod listing;

pub use client::{Client, ClientError, HostName, Network, parse_grant};
pub use export::{ExportError, exports_file, ganesha_export};
pub use listing::{ListedExport, ListingError, parse_exportfs, parse_showmount};

#[cfg(test)]
pub(crate) use client::tests;
