//! Records of a volume: the values that the map of its pool keeps beside its space (`docs/format/volume.md`).
//!
//! A value is JSON, because people repair it and fields come and go; it is read once for each opening. Invariants:
//! - `"version"` comes first. A value of a later version, or one that is no record, is a typed error: nothing is done with it.
//! - Fields that this version does not know survive when it writes the value. So an older build may change a newer record of
//!   the same version without loss. Numbers in such fields are 64-bit integers; others are texts.
//! - A value has at most [`RECORD_BYTES_MAX`] bytes. A longer one is refused before it is written.
//! - Each field was checked when it was read: a record in memory holds no mount point, name or option that a tool cannot carry.

mod deduplication_run;
mod host_id;
mod quota;
mod share;
#[cfg(test)]
pub(crate) mod tests;
mod volume;

pub use deduplication_run::DeduplicationRun;
pub use quota::QuotaRecord;
pub use share::{
    Access, AccountGrant, AccountKind, DesiredShare, Encryption, NetworkGrant, Protocol, ShareRecord,
};
pub use volume::{
    Deduplication, DeduplicationMode, DesiredVolume, MountOption, MountOptionError, Schedules, VolumeRecord,
    VolumeState,
};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Version of the records that this build reads and writes.
pub const RECORD_VERSION: u64 = 1;
/// Bytes of a value, at most: a value of the map fits a page with its neighbours.
pub const RECORD_BYTES_MAX: usize = 3072;

/// Fields that this version does not know.
pub type Unknown = Map<String, Value>;

/// A value that is no record, or a record that cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The record was written by a later version.
    #[error(
        "the {record} record has version {found}, and this build reads version {RECORD_VERSION}; use the build that wrote it, or a later one"
    )]
    Later {
        /// Kind of the record.
        record: &'static str,
        /// Its version.
        found: u64,
    },
    /// No version that any build wrote.
    #[error(
        "the {record} record begins {begin:?} and has no version from 1 on; restore the record, or adopt the volume again"
    )]
    NoVersion {
        /// Kind of the record.
        record: &'static str,
        /// First characters of the value.
        begin: String,
    },
    /// A field is missing, repeated or wrong, or the value is no JSON.
    #[error("the {record} record is not understood: {fault}; correct that field, or restore the record")]
    Field {
        /// Kind of the record.
        record: &'static str,
        /// Field and place, as the reader of JSON reports them.
        fault: String,
    },
    /// More bytes than the map keeps.
    #[error(
        "the {record} record has {found} bytes, and the map keeps {RECORD_BYTES_MAX}; shorten its names, or take entries out"
    )]
    TooLong {
        /// Kind of the record.
        record: &'static str,
        /// Bytes of the value.
        found: usize,
    },
}

#[derive(Deserialize)]
struct VersionAlone {
    version: u64,
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u64,
    #[serde(flatten)]
    record: T,
}

/// Reads a value.
fn decode<T: DeserializeOwned>(record: &'static str, bytes: &[u8]) -> Result<T, RecordError> {
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(RecordError::TooLong { record, found: bytes.len() });
    }
    let begin = || String::from_utf8_lossy(bytes).chars().take(40).collect();
    let version = serde_json::from_slice::<VersionAlone>(bytes).map(|alone| alone.version);
    match version {
        Ok(RECORD_VERSION) => {}
        Ok(found) if found > RECORD_VERSION => return Err(RecordError::Later { record, found }),
        Ok(_) | Err(_) => return Err(RecordError::NoVersion { record, begin: begin() }),
    }
    serde_json::from_slice::<Versioned<T>>(bytes)
        .map(|versioned| versioned.record)
        .map_err(|error| RecordError::Field { record, fault: error.to_string() })
}

/// Writes a value.
fn encode<T: Serialize>(record: &'static str, value: &T) -> Result<Vec<u8>, RecordError> {
    let versioned = Versioned { version: RECORD_VERSION, record: value };
    let bytes = serde_json::to_vec(&versioned)
        .map_err(|error| RecordError::Field { record, fault: error.to_string() })?;
    if bytes.len() > RECORD_BYTES_MAX {
        return Err(RecordError::TooLong { record, found: bytes.len() });
    }
    Ok(bytes)
}

macro_rules! value_of_the_map {
    ($name:ident, $record:literal) => {
        impl $name {
            /// Reads the value of the map.
            ///
            /// # Errors
            /// Fails if it is too long, of a later version, or no such record.
            pub fn decode(bytes: &[u8]) -> Result<Self, super::RecordError> {
                super::decode($record, bytes)
            }

            /// Writes the value of the map.
            ///
            /// # Errors
            /// Fails if it would be longer than the map keeps.
            pub fn encode(&self) -> Result<Vec<u8>, super::RecordError> {
                super::encode($record, self)
            }
        }
    };
}
pub(crate) use value_of_the_map;
