//! Volumes and shares as values: records, decisions, arguments of tools, and parsers of what tools print.
//!
//! A volume is a file system on a space. This crate decides how one is made, mounted, ordered by systemd and shared, and leaves
//! every act to its callers: nothing here opens a file, starts a process or reads a clock.
//!
//! Invariants:
//! - Text from people and from records reaches a tool as one argument, one value or one line, and comes back as itself: no
//!   second option, key or line can appear. A text that a target cannot carry is refused by name.
//! - Output that no parser knows is an error or a finding that shows it. Nothing is assumed of it.
//! - What Dolmen did not make, it never names for deletion or formatting.

pub mod file_system;
pub mod making;
pub mod mount_point;
pub mod mount_table;
pub mod nfs;
pub mod profile;
pub mod record;
pub mod samba;
pub mod schedule;
pub mod version;
