//! What the daemon and its worker say to each other: a line of JSON each on the worker's standard input and output.
//!
//! The first line of input is an [`Order`]. The end of the input means nothing: where the daemon dies, the operation goes on to its
//! end, and the next daemon asks for it again. The one line of output is a [`Message`]; a worker that ends without it was killed.

use std::path::PathBuf;

use dolmen_volume::making;
use dolmen_volume::record::VolumeRecord;
use serde::{Deserialize, Serialize};

use crate::shares::order::{ListedShare, LookAtShare, Probed, PutShare, RemoveShare, Servers, Session};

/// One operation, and what keeps it apart from others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// File that the worker locks while it works: one for each volume.
    pub lock: PathBuf,
    /// What is to be done.
    pub operation: Operation,
}

/// What a worker does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Operation {
    /// Looks at what is on a device. Answers with [`Outcome::Content`].
    Probe {
        /// The device.
        device: PathBuf,
    },
    /// Makes the file system of a record on a device, where [`next_making`](dolmen_volume::making::next_making) allows it.
    Make {
        /// The device and its record.
        volume: Volume,
    },
    /// Mounts a file system, and makes its mount point where there is none.
    Mount {
        /// The device and its record.
        volume: Volume,
    },
    /// Unmounts a file system by its mount point, if this device is mounted there.
    Unmount {
        /// The device and its record.
        volume: Volume,
    },
    /// Lets a mounted file system use all of its device.
    Grow {
        /// The device and its record.
        volume: Volume,
    },
    /// Discards free room of a mounted file system. Answers with [`Outcome::Trimmed`].
    Trim {
        /// The device and its record.
        volume: Volume,
        /// Bytes of the shortest run that is discarded.
        minimum: u64,
    },
    /// Shows how full a mounted file system is. Answers with [`Outcome::Usage`].
    Usage {
        /// The device and its record.
        volume: Volume,
    },
    /// Checks a file system that is not mounted. Answers with [`Outcome::Checked`].
    Check {
        /// The device and its record.
        volume: Volume,
        /// Whether it is repaired too.
        repair: bool,
    },
    /// Lets servers offer a share as its record says. Answers with [`Outcome::Shared`].
    SharePut(PutShare),
    /// Takes a share off the servers. Answers with [`Outcome::Shared`].
    ShareRemove(RemoveShare),
    /// Lists what the servers are configured to offer. Answers with [`Outcome::Shares`].
    ShareList {
        /// Servers of this host.
        servers: Servers,
    },
    /// Looks as a client whether servers offer a share. Answers with [`Outcome::Probed`].
    ShareProbe(LookAtShare),
    /// Lists the clients of a share. Answers with [`Outcome::Sessions`].
    ShareSessions(LookAtShare),
}

/// A device, and the record of the volume on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// The device.
    pub device: PathBuf,
    /// What the pool has on record.
    pub record: VolumeRecord,
}

/// What the worker says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum Message {
    /// It has ended well.
    Done {
        /// With this.
        outcome: Outcome,
    },
    /// It has ended with an error.
    Failed {
        /// The error.
        failure: Failure,
    },
}

/// What came of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Outcome {
    /// It is done.
    Done,
    /// It was done before; nothing was changed.
    WasDone,
    /// What is on a device.
    Content(Content),
    /// Bytes that were discarded.
    Trimmed {
        /// As the file system counts them.
        bytes: u64,
    },
    /// How full a file system is.
    Usage {
        /// Bytes that it can hold.
        total: u64,
        /// Bytes free.
        free: u64,
        /// Inodes that it can hold; 0 where that has no limit.
        inodes: u64,
        /// Inodes free.
        inodes_free: u64,
    },
    /// What a check found.
    Checked {
        /// Exit code of the tool.
        code: i32,
        /// What the tool wrote, its end if that is long.
        text: String,
    },
    /// The servers offer what the order says.
    Shared {
        /// Whether anything was changed.
        is_changed: bool,
        /// Sentences for people about what the share still lacks.
        notes: Vec<String>,
    },
    /// What servers are configured to offer.
    Shares {
        /// Shares of Dolmen and of others.
        shares: Vec<ListedShare>,
    },
    /// What a client sees of a share.
    Probed {
        /// One finding for each protocol of its record.
        protocols: Vec<Probed>,
    },
    /// The clients of a share.
    Sessions {
        /// One for each connection.
        sessions: Vec<Session>,
        /// Sentences about servers that do not list their clients.
        unavailable: Vec<String>,
    },
}

/// What is on a device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// Whether its first and last mebibyte are zeros.
    pub is_zero: bool,
    /// What `blkid` names it: the kind of a file system, or of what else is there.
    pub kind: Option<String>,
    /// UUID of the file system.
    pub uuid: Option<String>,
    /// Its label.
    pub label: Option<String>,
}

impl Content {
    /// Returns the content as the decisions about making and mounting take it.
    #[must_use]
    pub fn decided(&self) -> making::Content {
        let uuid = self.uuid.as_deref().and_then(|uuid| uuid.parse().ok());
        match (&self.kind, uuid) {
            (Some(kind), Some(uuid)) => making::Content::FileSystem { kind: kind.clone(), uuid },
            (Some(kind), None) => making::Content::Other { kind: kind.clone() },
            (None, _) if self.is_zero => making::Content::Zeros,
            (None, _) => making::Content::Other { kind: "data that no tool knows".to_owned() },
        }
    }
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Kind of failure.
    pub code: FailureCode,
    /// Object, expectation and finding, in a sentence.
    pub message: String,
    /// What to do; empty if that is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

/// Kinds of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureCode {
    /// Another worker has the volume.
    Busy,
    /// Something is there that Dolmen did not make.
    ForeignData,
    /// A program is not installed.
    MissingTool,
    /// A path cannot be used.
    BadPath,
    /// The mount point is in use.
    InUse,
    /// A tool or the kernel refused.
    Refused,
    /// A server is configured so that no share is put on it.
    ServerSettings,
    /// A user or a group is not known to this host.
    NoAccount,
    /// The order cannot be read.
    BadOrder,
}
