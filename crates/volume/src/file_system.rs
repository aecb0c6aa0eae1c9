//! File systems that a volume may have, their labels and their UUIDs.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A file system of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileSystem {
    /// XFS: the default.
    Xfs,
    /// btrfs: compression.
    Btrfs,
    /// ext4: compatibility.
    Ext4,
}

impl FileSystem {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Xfs, Self::Btrfs, Self::Ext4];

    /// Name for `mount`, for records and for people.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Ext4 => "ext4",
        }
    }

    /// Package with the tools, as Debian names it.
    #[must_use]
    pub const fn package(self) -> &'static str {
        match self {
            Self::Xfs => "xfsprogs",
            Self::Btrfs => "btrfs-progs",
            Self::Ext4 => "e2fsprogs",
        }
    }

    /// Bytes of a label, at most.
    #[must_use]
    pub const fn label_bytes_max(self) -> usize {
        match self {
            Self::Xfs => 12,
            Self::Btrfs => 255,
            Self::Ext4 => 16,
        }
    }

    /// Bytes of the smallest space that a volume of this kind is made on.
    ///
    /// XFS: the bound of `mkfs.xfs` since 5.19. btrfs: room for its first block groups and for work. ext4: room for its journal.
    #[must_use]
    pub const fn bytes_min(self) -> u64 {
        match self {
            Self::Xfs => 300 << 20,
            Self::Btrfs => 256 << 20,
            Self::Ext4 => 32 << 20,
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no file system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no file system of a volume; choose xfs, btrfs or ext4")]
pub struct ParseFileSystemError {
    /// Text that was given.
    pub text: String,
}

impl FromStr for FileSystem {
    type Err = ParseFileSystemError;

    fn from_str(text: &str) -> Result<Self, ParseFileSystemError> {
        let error = || ParseFileSystemError { text: text.chars().take(80).collect() };
        Self::ALL.into_iter().find(|known| known.name() == text).ok_or_else(error)
    }
}

/// The UUID of a file system, drawn before it is made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FileSystemUuid(pub [u8; 16]);

/// A text that is no UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no UUID of a file system; expected 8-4-4-4-12 hexadecimal digits")]
pub struct ParseUuidError {
    /// Text that was given, cut to 80 characters.
    pub text: String,
}

impl fmt::Display for FileSystemUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for FileSystemUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileSystemUuid({self})")
    }
}

impl FromStr for FileSystemUuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, ParseUuidError> {
        let error = || ParseUuidError { text: text.chars().take(80).collect() };
        let lengths: Vec<usize> = text.split('-').map(str::len).collect();
        if lengths != [8, 4, 4, 4, 12] {
            return Err(error());
        }
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        if !digits.chars().all(|c| c.is_ascii_hexdigit()) {
            return Err(error());
        }
        u128::from_str_radix(&digits, 16).map(|number| Self(number.to_be_bytes())).map_err(|_| error())
    }
}

impl From<FileSystemUuid> for String {
    fn from(uuid: FileSystemUuid) -> Self {
        uuid.to_string()
    }
}

impl TryFrom<String> for FileSystemUuid {
    type Error = ParseUuidError;

    fn try_from(text: String) -> Result<Self, ParseUuidError> {
        text.parse()
    }
}

/// A label that one file system can carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label(String);

/// A text that cannot be a label.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// No character.
    #[error("a label has at least one character; leave the option out for none")]
    Empty,
    /// More bytes than the file system stores.
    #[error("the label {text:?} has {found} bytes, and {file_system} stores {most}; shorten it")]
    TooLong {
        /// Text that was given, cut to 80 characters.
        text: String,
        /// Its bytes.
        found: usize,
        /// File system of the volume.
        file_system: FileSystem,
        /// Bytes that it stores.
        most: usize,
    },
    /// A control character, or a slash, which no entry of `/dev/disk/by-label` can hold.
    #[error("the label {text:?} has {character:?} in it; leave it out")]
    Character {
        /// Text that was given, cut to 80 characters.
        text: String,
        /// First such character.
        character: char,
    },
}

impl Label {
    /// Checks a text against the rules of a file system.
    ///
    /// # Errors
    /// Fails if it is empty or too long, or holds a control character or a slash.
    pub fn new(text: &str, file_system: FileSystem) -> Result<Self, LabelError> {
        let shown = || text.chars().take(80).collect();
        if text.is_empty() {
            return Err(LabelError::Empty);
        }
        if let Some(character) = text.chars().find(|c| c.is_control() || *c == '/') {
            return Err(LabelError::Character { text: shown(), character });
        }
        let most = file_system.label_bytes_max();
        if text.len() > most {
            return Err(LabelError::TooLong { text: shown(), found: text.len(), file_system, most });
        }
        Ok(Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_that_is_no_uuid_is_refused() {
        let good = "00010203-0405-0607-0809-0a0b0c0d0eff";
        assert_eq!(good.parse::<FileSystemUuid>().unwrap().to_string(), good);
        for text in [
            "",
            "000102030405060708090a0b0c0d0eff",
            "+0010203-0405-0607-0809-0a0b0c0d0eff",
            "00010203-0405-0607-0809-0a0b0c0d0efg",
        ] {
            assert!(text.parse::<FileSystemUuid>().is_err(), "{text}");
        }
    }

    #[test]
    fn labels_keep_to_the_bytes_of_their_file_system() {
        assert!(Label::new("twelve bytes", FileSystem::Xfs).is_ok());
        let error = Label::new("ä twelve bytes", FileSystem::Xfs).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the label \"ä twelve bytes\" has 15 bytes, and xfs stores 12; shorten it"
        );
        assert!(Label::new("sixteen bytes ok", FileSystem::Ext4).is_ok());
        for text in ["", "a\nb", "a/b", "a\0"] {
            assert!(Label::new(text, FileSystem::Btrfs).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_uuid_reads_back_as_it_was_written(bytes: [u8; 16]) {
            let uuid = FileSystemUuid(bytes);
            prop_assert_eq!(uuid.to_string().parse(), Ok(uuid));
        }

        #[test]
        fn no_text_stops_the_parsers(text in ".*") {
            let _ = text.parse::<FileSystemUuid>();
            let _ = text.parse::<FileSystem>();
            let _ = Label::new(&text, FileSystem::Btrfs);
        }
    }
}
