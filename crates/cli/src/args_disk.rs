//! `dolmen disk set`, `retire`, `forget` and `locate`.

use clap::Args;
use dolmen_units::Name;

use crate::args::{DestroyName, DryRun, Waiting};

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
#[command(group(clap::ArgGroup::new("setting").required(true).multiple(true).args(["spare", "member", "enclosure", "alone", "bay"])))]
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
    /// What its bay is called; '' for nothing. It is shown wherever somebody may have to take the disk in hand
    #[arg(long, value_name = "NAME")]
    pub bay: Option<String>,
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
    /// Declare lost what only this disk held, for which the name of the pool has to be typed: it cannot be read before it is written again
    #[arg(long)]
    pub accept_data_loss: bool,
    /// Consent to that.
    #[command(flatten)]
    pub consent: DestroyName,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}
