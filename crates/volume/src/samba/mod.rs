//! Shares over SMB, which Samba serves from its registry.
//!
//! Dolmen writes one section for each share and marks it by the end of its comment. Values pass as arguments of `net conf`;
//! no file of Samba is written.
//! Lines for a domain and files for discovery are texts, which people put in place.

mod configuration;
mod discovery;
mod domain;
mod name;
mod section;

pub use configuration::{
    Configuration, ConfigurationError, Section, ServerFault, listed_shares, server_faults,
};
pub use discovery::{TIME_MACHINES_MAX, avahi_service, quiet_server, wsdd_unit};
pub use domain::{DomainError, DomainMember, Realm, Workgroup, complaints};
pub use name::{AccountName, NameError, ShareName};
pub use section::{SAMBA_MIN, SectionError, SmbShare, delete_command, sections_of};
