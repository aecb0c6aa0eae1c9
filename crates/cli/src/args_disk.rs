//! `dolmen disk set`, `retire` and `forget`.

use clap::Args;
use dolmen_units::Name;

use crate::args::{DryRun, Waiting};

/// `dolmen disk set`
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("setting").required(true).multiple(true).args(["spare", "member", "enclosure", "alone"])))]
pub(crate) struct DiskSet {
    /// The pool
    pub pool: Name,
    /// The disk: its path, its id (the first digits will do) or its number in the pool
    pub disk: String,
    /// Empty it, and keep it until a disk is lost, whose place it takes then by itself
    #[arg(long, conflicts_with = "member")]
    pub spare: bool,
    /// Let it take data: a spare, or a disk that was retired
    #[arg(long, alias = "no-spare")]
    pub member: bool,
    /// Say what it is in, such as an enclosure, which may fail as one: copies are laid on disks in different ones
    #[arg(long, value_name = "NAME", conflicts_with = "alone")]
    pub enclosure: Option<Name>,
    /// Say that it is in nothing that other disks are in
    #[arg(long)]
    pub alone: bool,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen disk retire`
#[derive(Debug, Args)]
pub(crate) struct DiskRetire {
    /// The pool
    pub pool: Name,
    /// The disk: its path, its id (the first digits will do) or its number in the pool
    pub disk: String,
    /// Let it take data again; what was moved stays where it is
    #[arg(long)]
    pub cancel: bool,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen disk forget`
#[derive(Debug, Args)]
pub(crate) struct DiskForget {
    /// The pool
    pub pool: Name,
    /// The disk: its path, its id (the first digits will do) or its number in the pool
    pub disk: String,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}
