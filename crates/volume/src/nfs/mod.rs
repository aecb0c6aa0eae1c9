//! Shares over NFS, by the server of the kernel or by Ganesha.

mod client;
mod export;
mod ganesha_blocks;
mod listing;

pub use client::{Client, ClientError, HostName, Network, parse_grant};
pub use export::{
    ExportError, clients_of_exports, exportfs_target, exports_file, ganesha_export, kernel_options,
    path_of_exports,
};
pub use ganesha_blocks::{GaneshaBlock, ganesha_blocks, ganesha_folder_line, reads_folder};
pub use listing::{ListedExport, ListingError, parse_exportfs, parse_showmount};

#[cfg(test)]
pub(crate) use client::tests;
