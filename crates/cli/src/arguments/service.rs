//! Arguments of `dolmen service`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::arguments::common::DryRun;
use crate::arguments::daemon::DaemonArguments;

/// `dolmen service`
#[derive(Debug, Subcommand)]
pub(crate) enum ServiceCommand {
    /// Write the unit of the daemon, so that every boot starts it, and mount units for volumes
    Install(Box<ServiceInstall>),
    /// Remove the unit of the daemon and the mount units of volumes
    Remove(ServiceRemove),
    /// Show the files of the service
    Show(ServiceShow),
    /// Mount a volume, as mount(8) asks for it on behalf of a mount unit
    Mount(ServiceMount),
}

/// `dolmen service install`
#[derive(Debug, Args)]
pub(crate) struct ServiceInstall {
    /// Settings of the daemon.
    #[command(flatten)]
    pub daemon: DaemonArguments,
    /// Where the files lie.
    #[command(flatten)]
    pub place: Place,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen service remove`
#[derive(Debug, Args)]
pub(crate) struct ServiceRemove {
    /// Where the files lie.
    #[command(flatten)]
    pub place: Place,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen service show`
#[derive(Debug, Args)]
pub(crate) struct ServiceShow {
    /// Where the files lie.
    #[command(flatten)]
    pub place: Place,
}

/// Place of the files.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The root of the system whose files are meant; systemd is not notified of changes in another one
    #[arg(long, value_name = "FOLDER", default_value = "/", hide_short_help = true)]
    pub root: PathBuf,
}

/// `dolmen service mount`
#[derive(Debug, Args)]
pub(crate) struct ServiceMount {
    /// The volume, as dolmen:POOL/SPACE
    pub source: String,
    /// The mount point
    pub folder: String,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}
