//! What the daemon and its worker say to each other: a line of JSON each on the worker's standard input and output.
//!
//! The first line of input is an [`Order`]. Where the daemon dies, a short operation goes on to its end; the end of the input stops a
//! long one in good order. The next daemon asks for both again. The last line of output is a [`Message`] that is `done` or `failed`; a worker that
//! ends without it was killed. Long operations have more to say and to read: see [`long`].

pub mod long;

/// Bytes of a message, at most.
pub const MESSAGE_BYTES_MAX: u64 = 4 << 20;

use std::num::NonZeroU32;
use std::path::PathBuf;

use dolmen_volume::making;
use dolmen_volume::mount_point::Folder;
use dolmen_volume::record::{QuotaRecord, VolumeRecord};
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
        /// Whether the repair drops a log that no mount replays, with the changes in it.
        #[serde(default)]
        drop_log: bool,
    },
    /// Compares all content of a mounted btrfs with its checksums. Long; answers with [`Outcome::Scrubbed`].
    Scrub {
        /// The device and its record.
        volume: Volume,
    },
    /// Shares equal content of files. Long; answers with [`Outcome::Deduplicated`].
    Dedup {
        /// The device and its record.
        volume: Volume,
        /// Files that take part.
        selection: long::Selection,
        /// Load and memory.
        load: long::Load,
        /// Folder for the index and scratch files of this volume, on another file system.
        state: PathBuf,
        /// Undos of the volume that were begun, on any host.
        #[serde(default)]
        undos: u64,
    },
    /// Estimates what a deduplication would free; changes nothing. Long; answers with [`Outcome::Estimated`].
    Estimate {
        /// The device and its record.
        volume: Volume,
        /// Files that would take part.
        selection: long::Selection,
        /// Load and memory.
        load: long::Load,
        /// Folder for scratch files.
        state: PathBuf,
        /// Sample; none for one hundredth and at least 256 MiB.
        #[serde(default)]
        sample: Option<long::SampleSize>,
    },
    /// Gives files bytes of their own, in place of those that they share. Long; answers with [`Outcome::Undone`].
    Undo {
        /// The device and its record.
        volume: Volume,
        /// Files and folders; none for the whole volume.
        #[serde(default)]
        paths: Vec<Folder>,
        /// Load and memory.
        load: long::Load,
        /// Folder with the index of deduplication; the next run maps its files again.
        state: PathBuf,
        /// Bytes that the space can still take from its pool; none if the space has all its room.
        #[serde(default)]
        pool_room_bytes: Option<u64>,
    },
    /// Moves what lies in rows that hold little, and discards what is free then: files on XFS, block groups on btrfs. Long; answers with
    /// [`Outcome::Compacted`].
    Compact {
        /// The device and its record.
        volume: Volume,
        /// Rows of the space.
        occupancy: long::Occupancy,
        /// Bytes that may be moved; none for no bound.
        #[serde(default)]
        budget_bytes: Option<u64>,
        /// Load and memory.
        load: long::Load,
        /// Folder for scratch files.
        state: PathBuf,
        /// Bytes that the space can still take from its pool; none if the space has all its room. A block group of btrfs is copied before
        /// its rows come back.
        #[serde(default)]
        pool_room_bytes: Option<u64>,
    },
    /// Names what lies at ranges of the device. Long; answers with [`Outcome::Names`].
    Names {
        /// The device and its record.
        volume: Volume,
        /// Ranges, at most 1,024.
        ranges: Vec<long::ByteRange>,
        /// Owners of a range that are named; at most 256.
        names_max: usize,
    },
    /// Bounds a folder, which is made where it is missing: on btrfs as a subvolume. Answers with [`Outcome::QuotaSet`].
    QuotaSet {
        /// The device and its record.
        volume: Volume,
        /// The folder and its bounds. On btrfs the project id is that of the answer.
        quota: QuotaRecord,
    },
    /// Shows what folders hold. Answers with [`Outcome::Quotas`].
    QuotaList {
        /// The device and its record.
        volume: Volume,
        /// The folders.
        quotas: Vec<QuotaRecord>,
    },
    /// Looks which of some paths the volume does not have. Answers with [`Outcome::Missing`].
    Missing {
        /// The device and its record.
        volume: Volume,
        /// Paths of files or folders.
        paths: Vec<Folder>,
    },
    /// Takes the bounds off a folder; its content stays.
    QuotaRemove {
        /// The device and its record.
        volume: Volume,
        /// The folder.
        quota: QuotaRecord,
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
    /// Incarnation of the device that is meant, by [`incarnation_of`](crate::incarnation_of); none for a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    /// What the pool has on record.
    pub record: VolumeRecord,
}

/// How full a file system is, and what the kernel found wrong with it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes that it can hold; 0 if it does not answer.
    pub total: u64,
    /// Bytes free.
    pub free: u64,
    /// Inodes that it can hold; 0 where that has no limit.
    pub inodes: u64,
    /// Inodes free.
    pub inodes_free: u64,
    /// Errors that the kernel found, a sentence each.
    pub errors: Vec<String>,
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
    /// A long operation is under way; more lines follow.
    Progress {
        /// Where it is.
        progress: long::Progress,
    },
    /// A line of input was no command and changed nothing; more lines follow.
    Ignored {
        /// What was wrong with it.
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
    /// How a file system is.
    Usage(Usage),
    /// What a check found.
    Checked {
        /// Exit code of the tool.
        code: i32,
        /// What the tool wrote, its end if that is long.
        text: String,
    },
    /// All content was compared with its checksums.
    Scrubbed(long::Scrubbed),
    /// Equal content is shared.
    Deduplicated(long::Deduplicated),
    /// What a deduplication would free.
    Estimated(long::Estimated),
    /// Files have bytes of their own.
    Undone(long::Undone),
    /// Rows are emptied.
    Compacted(long::Compacted),
    /// What lies at each range, in the order of the ranges.
    Names {
        /// One for each.
        ranges: Vec<long::RangeNames>,
    },
    /// A folder is bounded.
    QuotaSet {
        /// Number that counts the folder, for its record: a project, or a subvolume of btrfs.
        project_id: NonZeroU32,
        /// Files that were there before and are not counted, since they could not be changed.
        #[serde(default)]
        skipped: long::SkippedFiles,
    },
    /// What folders hold, in the order in which they were asked for.
    Quotas {
        /// One for each.
        quotas: Vec<QuotaUsage>,
    },
    /// What the volume does not have.
    Missing {
        /// Of the paths of the order.
        paths: Vec<Folder>,
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
        /// Whether the look took the share off its servers.
        #[serde(default)]
        is_taken_off: bool,
    },
    /// The clients of a share.
    Sessions {
        /// One for each connection.
        sessions: Vec<Session>,
        /// Sentences about servers that do not list their clients.
        unavailable: Vec<String>,
    },
    /// A command ended the operation before it had a result. Nothing was changed.
    Stopped,
}

/// What a folder with a quota holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaUsage {
    /// The folder.
    pub folder: Folder,
    /// Number that counts it.
    pub project_id: NonZeroU32,
    /// Bytes that it holds; none if they are not counted. btrfs counts what was written since its first quota was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Files and folders in it; none if they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<u64>,
    /// Bytes that it may hold; none for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Files and folders that it may hold; none for no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_files: Option<u64>,
    /// Whether nothing is at its path any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_gone: bool,
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
            (None, _) => making::Content::Unknown,
        }
    }
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Kind of failure.
    pub code: FailureCode,
    /// Object, expectation and finding, in a sentence. Lines behind the first are the output of a tool, for the log.
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
    /// The mount point, or the file system, is in use by somebody else.
    InUse,
    /// A tool or the kernel refused.
    Refused,
    /// A server is configured so that no share is put on it.
    ServerSettings,
    /// A user or a group is not known to this host.
    NoAccount,
    /// The order cannot be read, or asks for what cannot be.
    BadOrder,
    /// The file system or the kernel does not have the call.
    Unsupported,
    /// The volume has too little free room.
    NoRoom,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_a_line_that_reads_back() {
        let range = long::ByteRange { start: 1, length: 2 };
        let name = long::Name { kind: long::NameKind::Free, path: None, inode: None, offset: None, bytes: 2 };
        let estimated = long::Estimated {
            files: 1,
            bytes: 2,
            sample_bytes: 3,
            saving_ppm: 4,
            low_ppm: 5,
            high_ppm: 6,
            skipped: long::SkippedFiles { count: 1, first: vec!["one\ntwo".to_owned()] },
        };
        let quota = QuotaUsage {
            folder: Folder::default(),
            project_id: NonZeroU32::MIN,
            bytes: Some(1),
            files: None,
            limit_bytes: Some(u64::MAX),
            limit_files: None,
            is_gone: false,
        };
        let outcomes = [
            Outcome::Done,
            Outcome::WasDone,
            Outcome::Content(Content::default()),
            Outcome::Trimmed { bytes: 1 },
            Outcome::Usage(Usage {
                total: 1,
                free: 2,
                inodes: 3,
                inodes_free: 4,
                errors: vec!["x".to_owned()],
            }),
            Outcome::Checked { code: 1, text: "a\nb".to_owned() },
            Outcome::Deduplicated(long::Deduplicated::default()),
            Outcome::Estimated(estimated),
            Outcome::Undone(long::Undone::default()),
            Outcome::Compacted(long::Compacted::default()),
            Outcome::Names { ranges: vec![long::RangeNames { range, names: vec![name], more: 1 }] },
            Outcome::QuotaSet { project_id: NonZeroU32::MIN, skipped: long::SkippedFiles::default() },
            Outcome::Quotas { quotas: vec![quota] },
            Outcome::Missing { paths: vec![Folder::default()] },
            Outcome::Stopped,
        ];
        for outcome in outcomes {
            let message = Message::Done { outcome };
            let line = serde_json::to_string(&message).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Message>(&line).unwrap(), message);
        }
    }
}
