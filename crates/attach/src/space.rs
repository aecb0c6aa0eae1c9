//! A space to be attached: its key, how it may be used, and how its requests fail.

use std::fmt;

use dolmen_units::{Name, PoolId, SpaceId};
use serde::{Deserialize, Serialize};

/// A space among all pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpaceKey {
    /// Its pool.
    pub pool: PoolId,
    /// The space in that pool.
    pub space: SpaceId,
}

impl fmt::Display for SpaceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of pool {}", self.space, self.pool)
    }
}

/// How a request may fail. The file system above sees the error number of the same meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The content cannot be read or written.
    Io,
    /// The pool has no room for the content.
    NoRoom,
    /// The space may not be written.
    ReadOnly,
    /// The range or the space does not exist.
    Invalid,
}

impl Fault {
    /// The error number.
    #[must_use]
    pub fn errno(self) -> i32 {
        match self {
            Self::Io => libc::EIO,
            Self::NoRoom => libc::ENOSPC,
            Self::ReadOnly => libc::EROFS,
            Self::Invalid => libc::EINVAL,
        }
    }
}

/// Whether an attachment may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// It may.
    ReadWrite,
    /// It may not: the pool is open read-only, or somebody asked for this.
    ReadOnly,
}

/// What to attach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Which space.
    pub space: SpaceKey,
    /// Its pool's name.
    pub pool_name: Name,
    /// Its own name.
    pub space_name: Name,
    /// Whether it may be written.
    pub access: Access,
    /// Its logical sector: 512 or 4096.
    pub sector_bytes: u32,
}
