//! Arguments of `dolmen disk`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dolmen_units::Name;

use crate::arguments::common::{DestroyDisks, DestroyName, DryRun, PoolFilter, Waiting};

/// `dolmen disk …`
#[derive(Debug, Subcommand)]
pub(crate) enum DiskCommand {
    /// List the disks of a pool, or of all pools and the devices that belong to none
    List(PoolFilter),
    /// Put a disk in the place of another, and restore redundancy
    Replace(DiskReplace),
    /// Take a disk back in that was away, and bring it up to date
    Online(DiskOnline),
    /// Take a disk offline, to carry it elsewhere or look at it; it stays a disk of the pool
    Offline(DiskOffline),
    /// Use the room that a disk has gained whose device was made larger
    Grow(DiskGrow),
    /// Have a disk show where it is: by the light of its place in the enclosure, or else by its own, which blinks
    Locate(DiskLocate),
    /// Make a disk a spare, or one that takes data; say what it is in, or what its bay is called
    Set(DiskSet),
    /// Stop using a disk for data and empty it; it stays a disk of the pool, until `dolmen pool remove`
    Retire(DiskRetire),
    /// Do without a disk that is gone for good: what it had is rebuilt on the others, unless something was on it alone
    Forget(DiskForget),
}

/// `dolmen disk replace`
#[derive(Debug, Args)]
#[command(
    override_usage = "dolmen disk replace [OPTIONS] <POOL> <OLD> <NEW>\n       dolmen disk replace [OPTIONS] --cancel <POOL> <OLD>"
)]
pub(crate) struct DiskReplace {
    /// The pool
    pub pool: Name,
    /// The disk to be replaced: its path, its id (the first digits will do) or its number in the pool
    #[arg(value_name = "OLD")]
    pub old: String,
    /// The disk, partition or file that takes its place
    #[arg(value_name = "NEW", required_unless_present = "cancel", conflicts_with = "cancel")]
    pub new: Option<PathBuf>,
    /// Call a replacement of OLD off that has not ended: what was moved goes back, and the new disk leaves the pool
    #[arg(long, conflicts_with = "destroy")]
    pub cancel: bool,
    /// What may be overwritten.
    #[command(flatten)]
    pub consent: DestroyDisks,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen disk online`
#[derive(Debug, Args)]
pub(crate) struct DiskOnline {
    /// The pool
    pub pool: Name,
    /// The disk: its path, its id (the first digits will do) or its number in the pool
    pub disk: String,
    /// Where the disk is now, if that is not where it was
    #[arg(long, value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Let spaces show old content, where only this disk holds it and has missed what was written last
    #[arg(long)]
    pub accept_old_content: bool,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen disk offline`
#[derive(Debug, Args)]
pub(crate) struct DiskOffline {
    /// The pool
    pub pool: Name,
    /// The disk: its path, its id (the first digits will do) or its number in the pool
    pub disk: String,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen disk grow`
#[derive(Debug, Args)]
pub(crate) struct DiskGrow {
    /// The pool
    pub pool: Name,
    /// The disk: its path, its id (the first digits will do) or its number in the pool
    pub disk: String,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

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
