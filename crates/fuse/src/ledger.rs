//! What was made on this host, recorded before it was made, so that a later start can take it up or clear it away.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use dolmen_attach::{Access, SpaceKey};
use dolmen_units::{Name, PoolId, SpaceId};
use serde::{Deserialize, Serialize};

/// An attached space, or one that was about to be attached or detached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Which space.
    pub space: SpaceKey,
    /// Its pool's name when it was attached; part of the link.
    pub pool_name: Name,
    /// Its own name when it was attached; part of the link.
    pub space_name: Name,
    /// Whether it may be written.
    pub access: Access,
    /// The logical sector, 512 or 4096.
    pub sector_bytes: u32,
    /// Its length when it was last looked at.
    pub size_bytes: u64,
    /// The file's number in the mounted folder.
    pub node: u64,
    /// The loop device's number, once one was chosen.
    pub loop_number: Option<u32>,
}

/// Everything that was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// The start of the machine during which it was made. After another one nothing of it exists.
    pub boot_id: String,
    /// Where the folder is mounted.
    pub mount: Option<PathBuf>,
    /// The descriptor holder's socket.
    pub descriptor_holder: Option<PathBuf>,
    /// The last node that was given; nodes are never given twice.
    pub node_last: u64,
    /// What is attached.
    pub attachments: Vec<Attachment>,
    /// Loop devices of a folder that is gone, still in use when they were last looked at.
    pub stranded: Vec<Attachment>,
}

/// Where the record is kept, across the death of the daemon. One writer.
pub trait Ledger: Send {
    /// Reads the record; an empty one when there is none yet.
    ///
    /// # Errors
    /// [`LedgerError`]. A record that cannot be read is never taken for an empty one.
    fn load(&self) -> Result<Made, LedgerError>;
    /// Replaces the record, all or nothing. It is durable against the death of the daemon when this returns.
    ///
    /// # Errors
    /// [`LedgerError`]; what was to be made is not made then.
    fn store(&self, made: &Made) -> Result<(), LedgerError>;
}

/// Why the record could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The system refused.
    #[error("{doing} the record of attached spaces at {}: {source}; check the file system that holds it", path.display())]
    Io {
        /// "reading" or "writing".
        doing: &'static str,
        /// The record.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The content makes no sense.
    #[error("reading the record of attached spaces at {}: {reason}; nothing was changed; detach everything by hand and remove the file", path.display())]
    Malformed {
        /// The record.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// The record as a JSON file: replaced by a rename, synced before and after.
#[derive(Debug)]
pub struct LedgerFile {
    path: PathBuf,
}

/// The version of the file.
const SCHEMA: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredMade {
    schema: u32,
    boot_id: String,
    mount: Option<PathBuf>,
    descriptor_holder: Option<PathBuf>,
    node_last: u64,
    attachments: Vec<StoredAttachment>,
    stranded: Vec<StoredAttachment>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredAttachment {
    pool: String,
    space: u64,
    pool_name: String,
    space_name: String,
    access: Access,
    sector_bytes: u32,
    size_bytes: u64,
    node: u64,
    loop_number: Option<u32>,
}

impl From<&Attachment> for StoredAttachment {
    fn from(one: &Attachment) -> Self {
        Self {
            pool: one.space.pool.to_string(),
            space: one.space.space.0,
            pool_name: one.pool_name.to_string(),
            space_name: one.space_name.to_string(),
            access: one.access,
            sector_bytes: one.sector_bytes,
            size_bytes: one.size_bytes,
            node: one.node,
            loop_number: one.loop_number,
        }
    }
}

impl StoredAttachment {
    fn parse(self) -> Result<Attachment, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let pool: PoolId = self.pool.parse().map_err(|e| text(&e))?;
        if !matches!(self.sector_bytes, 512 | 4096) {
            return Err(format!("a sector has 512 or 4096 bytes, not {}", self.sector_bytes));
        }
        Ok(Attachment {
            space: SpaceKey { pool, space: SpaceId(self.space) },
            pool_name: self.pool_name.parse().map_err(|e| text(&e))?,
            space_name: self.space_name.parse().map_err(|e| text(&e))?,
            access: self.access,
            sector_bytes: self.sector_bytes,
            size_bytes: self.size_bytes,
            node: self.node,
            loop_number: self.loop_number,
        })
    }
}

impl StoredMade {
    fn parse(self) -> Result<Made, String> {
        if self.schema != SCHEMA {
            return Err(format!("it has schema {}, this daemon knows {SCHEMA}", self.schema));
        }
        let all = |stored: Vec<StoredAttachment>| {
            stored.into_iter().map(StoredAttachment::parse).collect::<Result<Vec<_>, _>>()
        };
        let made = Made {
            boot_id: self.boot_id,
            mount: self.mount,
            descriptor_holder: self.descriptor_holder,
            node_last: self.node_last,
            attachments: all(self.attachments)?,
            stranded: all(self.stranded)?,
        };
        let mut nodes: Vec<u64> = made.attachments.iter().map(|one| one.node).collect();
        nodes.sort_unstable();
        let sound = nodes.windows(2).all(|pair| matches!(pair, [a, b] if a < b))
            && nodes.first().is_none_or(|first| *first > 1)
            && nodes.last().is_none_or(|last| *last <= made.node_last);
        if sound { Ok(made) } else { Err(format!("its nodes {nodes:?} repeat or are out of order")) }
    }
}

impl LedgerFile {
    /// The record at `path`; its folder must exist.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }

    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let new = self.path.with_extension("new");
        let mut file = File::create(&new)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        File::open(folder)?.sync_all()
    }
}

impl Ledger for LedgerFile {
    fn load(&self) -> Result<Made, LedgerError> {
        let path = || self.path.clone();
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Made::default()),
            Err(source) => return Err(LedgerError::Io { doing: "reading", path: path(), source }),
        };
        let parsed = serde_json::from_str::<StoredMade>(&text).map_err(|error| error.to_string());
        parsed.and_then(StoredMade::parse).map_err(|reason| LedgerError::Malformed { path: path(), reason })
    }

    fn store(&self, made: &Made) -> Result<(), LedgerError> {
        let all = |attachments: &[Attachment]| attachments.iter().map(StoredAttachment::from).collect();
        let stored = StoredMade {
            schema: SCHEMA,
            boot_id: made.boot_id.clone(),
            mount: made.mount.clone(),
            descriptor_holder: made.descriptor_holder.clone(),
            node_last: made.node_last,
            attachments: all(&made.attachments),
            stranded: all(&made.stranded),
        };
        let failed = |source| LedgerError::Io { doing: "writing", path: self.path.clone(), source };
        let text = serde_json::to_vec_pretty(&stored).map_err(|error| failed(error.into()))?;
        self.replace(&text).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(node: u64) -> Attachment {
        Attachment {
            space: SpaceKey { pool: PoolId([7; 16]), space: SpaceId(3) },
            pool_name: "tank".parse().unwrap(),
            space_name: "vm-1".parse().unwrap(),
            access: Access::ReadWrite,
            sector_bytes: 4096,
            size_bytes: 1 << 30,
            node,
            loop_number: Some(9),
        }
    }

    fn made() -> Made {
        Made {
            boot_id: "b".to_owned(),
            mount: Some("/run/x".into()),
            descriptor_holder: Some("/run/y".into()),
            node_last: 5,
            attachments: vec![attachment(2), attachment(5)],
            stranded: vec![attachment(4)],
        }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = LedgerFile::new(folder.path().join("attached.json"));
        assert_eq!(ledger.load().unwrap(), Made::default());
        ledger.store(&made()).unwrap();
        assert_eq!(ledger.load().unwrap(), made());
    }

    #[test]
    fn a_damaged_record_is_refused_and_not_taken_for_an_empty_one() {
        // Scenario: the file cut short at any length, nodes that repeat, an unknown schema.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("attached.json");
        let ledger = LedgerFile::new(path.clone());
        ledger.store(&made()).unwrap();
        let whole = fs::read(&path).unwrap();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            assert!(ledger.load().is_err(), "cut at {len}");
        }
        let text = String::from_utf8(whole).unwrap();
        let swaps = [
            ("\"node\": 5", "\"node\": 2"),
            ("\"node\": 2", "\"node\": 1"),
            ("\"node\": 5", "\"node\": 6"),
            ("\"schema\": 1", "\"schema\": 2"),
            ("vm-1", "vm/1"),
            ("\"sector_bytes\": 4096", "\"sector_bytes\": 0"),
        ];
        for (from, to) in swaps {
            assert!(text.contains(from), "{from}");
            fs::write(&path, text.replacen(from, to, 1)).unwrap();
            assert!(matches!(ledger.load(), Err(LedgerError::Malformed { .. })), "{from} -> {to}");
        }
    }
}
