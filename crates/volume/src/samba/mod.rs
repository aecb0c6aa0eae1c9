//! Shares over SMB, which Samba serves from its registry.
//!
//! Dolmen writes one section for each share and marks it by the end of its comment. Values pass as arguments of `net conf`;
//! no file of Samba is written.

mod configuration;
mod name;
mod section;

pub use configuration::{
    Configuration, ConfigurationError, Section, ServerFault, listed_shares, server_faults,
};
pub use name::{AccountName, NameError, ShareName};
pub use section::{SAMBA_MIN, SectionError, SmbShare, delete_command, sections_of};
