//! Which devices were made on this host, recorded before they are made, so that a later start can take them up or
//! delete them.

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
    /// The length that the device has.
    pub size_bytes: u64,
    /// The device's number: N of `/dev/ublkbN`.
    pub number: u32,
    /// What the device carries, so that it is not mistaken for another with that number.
    pub mark: u64,
}

/// Everything that was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// The start of the machine during which it was made. After another one nothing of it exists.
    pub boot_id: String,
    /// Attachments that were begun; part of each one's mark, so that no two are alike.
    pub count: u64,
    /// What is attached.
    pub attachments: Vec<Attachment>,
}

/// Where the record is kept, across the death of the daemon. One writer.
pub trait Record: Send {
    /// Reads the record; an empty one when there is none yet.
    ///
    /// # Errors
    /// [`RecordError`]. A record that cannot be read is never taken for an empty one.
    fn load(&self) -> Result<Made, RecordError>;
    /// Replaces the record, all or nothing. It is durable against the death of the daemon when this returns.
    ///
    /// # Errors
    /// [`RecordError`]; what was to be made is not made then.
    fn store(&self, made: &Made) -> Result<(), RecordError>;
}

/// Why the record could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The system refused.
    #[error("{doing} the record of ublk devices at {}: {source}; check the file system that holds it", path.display())]
    Io {
        /// "reading" or "writing".
        doing: &'static str,
        /// The record.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The content makes no sense.
    #[error("reading the record of ublk devices at {}: {reason}; nothing was changed; delete the devices by hand and remove the file", path.display())]
    Malformed {
        /// The record.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// The record as a JSON file: replaced by a rename, synced before and after.
#[derive(Debug)]
pub struct RecordFile {
    path: PathBuf,
}

/// The version of the file.
const SCHEMA: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredMade {
    schema: u32,
    boot_id: String,
    count: u64,
    attachments: Vec<StoredAttachment>,
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
    number: u32,
    /// In sixteen digits of base 16: numbers of JSON are not good for 64 bits everywhere.
    mark: String,
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
            number: one.number,
            mark: format!("{:016x}", one.mark),
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
            number: self.number,
            mark: u64::from_str_radix(&self.mark, 16).map_err(|e| text(&e))?,
        })
    }
}

impl StoredMade {
    fn parse(self) -> Result<Made, String> {
        if self.schema != SCHEMA {
            return Err(format!("it has schema {}, this daemon knows {SCHEMA}", self.schema));
        }
        let attachments = self.attachments.into_iter().map(StoredAttachment::parse);
        let attachments = attachments.collect::<Result<Vec<_>, _>>()?;
        let mut numbers: Vec<u32> = attachments.iter().map(|one| one.number).collect();
        numbers.sort_unstable();
        if !numbers.windows(2).all(|pair| matches!(pair, [a, b] if a < b)) {
            return Err(format!("its devices {numbers:?} repeat"));
        }
        Ok(Made { boot_id: self.boot_id, count: self.count, attachments })
    }
}

impl RecordFile {
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

impl Record for RecordFile {
    fn load(&self) -> Result<Made, RecordError> {
        let path = || self.path.clone();
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Made::default()),
            Err(source) => return Err(RecordError::Io { doing: "reading", path: path(), source }),
        };
        let parsed = serde_json::from_str::<StoredMade>(&text).map_err(|error| error.to_string());
        parsed.and_then(StoredMade::parse).map_err(|reason| RecordError::Malformed { path: path(), reason })
    }

    fn store(&self, made: &Made) -> Result<(), RecordError> {
        let stored = StoredMade {
            schema: SCHEMA,
            boot_id: made.boot_id.clone(),
            count: made.count,
            attachments: made.attachments.iter().map(StoredAttachment::from).collect(),
        };
        let failed = |source| RecordError::Io { doing: "writing", path: self.path.clone(), source };
        let text = serde_json::to_vec_pretty(&stored).map_err(|error| failed(error.into()))?;
        self.replace(&text).map_err(failed)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    fn attachment(number: u32) -> Attachment {
        Attachment {
            space: SpaceKey { pool: PoolId([7; 16]), space: SpaceId(3) },
            pool_name: "tank".parse().unwrap(),
            space_name: "vm-1".parse().unwrap(),
            access: Access::ReadWrite,
            sector_bytes: 4096,
            size_bytes: 1 << 30,
            number,
            mark: 0x444c_4d4e_0000_0001,
        }
    }

    fn made() -> Made {
        Made { boot_id: "b".to_owned(), count: 5, attachments: vec![attachment(2), attachment(0)] }
    }

    #[test]
    fn a_record_reads_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let record = RecordFile::new(folder.path().join("ublk.json"));
        assert_eq!(record.load().unwrap(), Made::default());
        record.store(&made()).unwrap();
        assert_eq!(record.load().unwrap(), made());
    }

    #[test]
    fn a_damaged_record_is_refused_and_not_taken_for_an_empty_one() {
        // Scenario: the file cut short at any length, a device twice, an unknown schema, words that are none.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ublk.json");
        let record = RecordFile::new(path.clone());
        record.store(&made()).unwrap();
        let whole = fs::read(&path).unwrap();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            assert!(record.load().is_err(), "cut at {len}");
        }
        let text = String::from_utf8(whole).unwrap();
        let swaps = [
            ("\"number\": 2", "\"number\": 0"),
            ("\"schema\": 1", "\"schema\": 2"),
            ("vm-1", "vm/1"),
            ("\"sector_bytes\": 4096", "\"sector_bytes\": 0"),
            ("444c4d4e00000001", "444c4d4e0000000x"),
        ];
        for (from, to) in swaps {
            assert!(text.contains(from), "{from}");
            fs::write(&path, text.replacen(from, to, 1)).unwrap();
            assert!(matches!(record.load(), Err(RecordError::Malformed { .. })), "{from} -> {to}");
        }
    }
}
