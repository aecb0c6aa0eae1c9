//! Arguments of `dolmen daemon` and `dolmen stop`.

use std::path::PathBuf;

use clap::Args;
use dolmen_api::STATE_FOLDER;

use crate::arguments::common::DryRun;
use crate::arguments::values::RepairAfter;

/// `dolmen daemon`
#[derive(Debug, Args)]
pub(crate) struct DaemonArguments {
    /// Where the daemon keeps what it has to remember
    #[arg(long, value_name = "FOLDER", default_value = STATE_FOLDER)]
    pub state: PathBuf,
    /// Where it keeps sockets and locks; usually /run/dolmen, or the folder `run` in another --state
    #[arg(long, value_name = "FOLDER")]
    pub run: Option<PathBuf>,
    /// A file, or a folder of files, to look at for disks of pools beside all disks of the system; may be repeated
    #[arg(long, value_name = "PATH")]
    pub look_in: Vec<PathBuf>,
    /// Do not look at the disks of the system, only at what is named
    #[arg(long, hide_short_help = true)]
    pub named_only: bool,
    /// How long a deleted space stays in the trash before it is purged by itself: a time from 1s to 365d in which the daemon runs
    /// and its pool is open, or never; usually 7d
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub trash_after: Option<RepairAfter>,
    /// A program that speaks of disks as smartctl does, to be asked in its place, about files as well
    #[arg(long, value_name = "PROGRAM", hide_short_help = true)]
    pub smartctl: Option<PathBuf>,
    /// Where attached spaces get their names; usually /dev/dolmen
    #[arg(long, value_name = "FOLDER", hide_short_help = true)]
    pub links: Option<PathBuf>,
}

/// `dolmen stop`
#[derive(Debug, Args)]
pub(crate) struct StopArguments {
    /// Leave attached spaces for the next daemon: their I/O pauses, and goes on with it
    #[arg(long)]
    pub hand_over: bool,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}
