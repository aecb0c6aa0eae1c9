//! Commands about where a disk is.

use clap::Args;
use dolmen_units::Name;

use crate::args::DryRun;

/// `dolmen disk locate`
#[derive(Debug, Args)]
pub(crate) struct DiskLocate {
    /// The pool
    pub pool: Name,
    /// The disk: its path, its id (the first digits will do) or its number in the pool
    pub disk: String,
    /// End it
    #[arg(long, conflicts_with = "seconds")]
    pub off: bool,
    /// How long, from 1 to 3600; usually 60
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen disk set`
#[derive(Debug, Args)]
pub(crate) struct DiskSet {
    /// The pool
    pub pool: Name,
    /// The disk: its path, its id (the first digits will do) or its number in the pool
    pub disk: String,
    /// What its bay is called; '' for nothing. It is shown wherever somebody may have to take the disk in hand
    #[arg(long, value_name = "NAME")]
    pub bay: String,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}
