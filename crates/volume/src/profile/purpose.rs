//! Purposes of a volume, so that people need to know no file system.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a volume is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// Files of any kind.
    Files,
    /// Documents, which compress well.
    Documents,
    /// Images of virtual machines, written in place.
    Vms,
    /// Files of a database, written in place.
    Database,
    /// Copies that are seldom read, which compress well.
    Backup,
}

impl Purpose {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 5] = [Self::Files, Self::Documents, Self::Vms, Self::Database, Self::Backup];

    /// Name on the command line and in records.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Documents => "documents",
            Self::Vms => "vms",
            Self::Database => "database",
            Self::Backup => "backup",
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no purpose.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no purpose of a volume; choose files, documents, vms, database or backup")]
pub struct ParsePurposeError {
    /// Text that was given, cut to 80 characters.
    pub text: String,
}

impl FromStr for Purpose {
    type Err = ParsePurposeError;

    fn from_str(text: &str) -> Result<Self, ParsePurposeError> {
        let error = || ParsePurposeError { text: text.chars().take(80).collect() };
        Self::ALL.into_iter().find(|known| known.name() == text).ok_or_else(error)
    }
}
