//! Arguments that several commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use dolmen_units::Name;

use crate::arguments::values::parse_seconds;

/// Stands above the options that every command has, apart from its own.
const COMMON: &str = "Options of every command";

/// How answers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// The documents of the API as they are, one a line
    Json,
}

/// What goes for every command.
#[derive(Debug, Args)]
pub(crate) struct Common {
    /// How to write answers
    #[arg(short, long, global = true, help_heading = COMMON, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: Format,
    /// The daemon's socket; usually what DOLMEN_SOCKET says, or else /run/dolmen/dolmen.sock
    // Were it read by the parser, lines of usage in errors would show the option as one that is needed.
    #[arg(long, global = true, help_heading = COMMON, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Seconds that the daemon may take for an answer
    #[arg(long, global = true, help_heading = COMMON, default_value = "120", value_name = "SECONDS", value_parser = parse_seconds, hide_short_help = true)]
    pub timeout: Duration,
}

/// Whether a change is meant, or only its plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Change it.
    Act,
    /// Only tell what would happen.
    DryRun,
}

/// Whether to change anything.
#[derive(Debug, Args)]
pub(crate) struct DryRun {
    /// Change nothing; print usable space before and after, bytes moved, and whether it can be undone
    #[arg(short = 'n', long = "dry-run")]
    pub dry_run: bool,
}

impl DryRun {
    /// What is meant.
    pub(crate) fn intent(&self) -> Intent {
        if self.dry_run { Intent::DryRun } else { Intent::Act }
    }
}

/// The consent to destroy something that has a name.
#[derive(Debug, Args)]
pub(crate) struct DestroyName {
    /// The name of what is to be lost, again; without it, it is asked for at the terminal
    #[arg(long, value_name = "NAME")]
    pub destroy: Option<String>,
    /// Accepted and without effect: no command asks for a yes, and the loss of data wants the name, by --destroy
    #[arg(short, long, hide_short_help = true)]
    pub yes: bool,
}

/// The consent to overwrite disks.
#[derive(Debug, Args)]
pub(crate) struct DestroyDisks {
    /// A disk, named as among the disks, whose present content may be lost; may be repeated
    #[arg(long, value_name = "DISK")]
    pub destroy: Vec<PathBuf>,
    /// Accepted and without effect: no command asks for a yes, and the loss of data wants the disk's name, by --destroy
    #[arg(short, long, hide_short_help = true)]
    pub yes: bool,
}

/// Whether to wait for a job.
#[derive(Debug, Args)]
pub(crate) struct Waiting {
    /// Do not wait for the job to end
    #[arg(long)]
    pub no_wait: bool,
}

/// A pool.
#[derive(Debug, Args)]
pub(crate) struct PoolTarget {
    /// The pool
    pub pool: Name,
}

/// A pool, or all.
#[derive(Debug, Args)]
pub(crate) struct PoolFilter {
    /// The pool; all of them when left out
    pub pool: Option<Name>,
}

/// A change of a pool that says no more.
#[derive(Debug, Args)]
pub(crate) struct PoolChange {
    /// The pool
    pub pool: Name,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}
