//! `dolmen volume quota` and its commands.

use std::str::FromStr;

use clap::{Args, Subcommand};
use dolmen_units::Bytes;

use crate::arguments::common::DryRun;
use crate::arguments::space::SpaceTarget;
use crate::arguments::values::{SizeError, SpaceName, parse_size};

/// `dolmen volume quota …`
#[derive(Debug, Subcommand)]
pub(crate) enum QuotaCommand {
    /// Bound a folder; one that is missing is made
    Set(QuotaSet),
    /// List the quotas of a volume, with what its folders hold
    List(SpaceTarget),
    /// Remove the bound of a folder; its content stays
    Remove(QuotaRemove),
}

/// A limit of bytes, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotaLimit(pub Option<u64>);

impl FromStr for QuotaLimit {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        match text {
            "none" => Ok(Self(None)),
            size => parse_size(size).map(|Bytes(bytes)| Self(Some(bytes))),
        }
    }
}

/// `dolmen volume quota set`
#[derive(Debug, Args)]
pub(crate) struct QuotaSet {
    /// The volume, by the name of its space
    #[arg(value_name = "POOL/SPACE")]
    pub volume: SpaceName,
    /// The folder in the volume, such as docs/2026; . for all of it
    #[arg(value_name = "FOLDER")]
    pub folder: String,
    /// The most that it may hold, such as 100G; none for no limit of bytes
    #[arg(value_name = "SIZE|none")]
    pub size: QuotaLimit,
    /// The most files and folders that it may hold; usually no limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub files: Option<u64>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen volume quota remove`
#[derive(Debug, Args)]
pub(crate) struct QuotaRemove {
    /// The volume, by the name of its space
    #[arg(value_name = "POOL/SPACE")]
    pub volume: SpaceName,
    /// The folder in the volume; . for all of it
    #[arg(value_name = "FOLDER")]
    pub folder: String,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// Returns a folder as the daemon calls it: no text is all of the volume.
pub(crate) fn folder_word(folder: &str) -> String {
    if matches!(folder, "." | "/") { String::new() } else { folder.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_size_or_none() {
        assert_eq!("none".parse(), Ok(QuotaLimit(None)));
        assert_eq!("1G".parse(), Ok(QuotaLimit(Some(1 << 30))));
        assert!("much".parse::<QuotaLimit>().is_err());
        assert_eq!((folder_word("."), folder_word("a/b")), (String::new(), "a/b".to_owned()));
    }
}
