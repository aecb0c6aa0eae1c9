//! `dolmen dedup` and its commands.

use clap::{Args, Subcommand, ValueEnum};
use dolmen_api::DedupMode;
use dolmen_units::Bytes;

use crate::arguments::common::{DryRun, Waiting};
use crate::arguments::space::SpaceTarget;
use crate::arguments::values::{SpaceName, parse_size};

/// `dolmen dedup …`
#[derive(Debug, Subcommand)]
pub(crate) enum DedupCommand {
    /// Estimate from a sample of its files what a deduplication of a volume would save
    Estimate(DedupEstimate),
    /// Set the policy of the deduplication of a volume, or end it
    Enable(DedupEnable),
    /// Share equal bytes of the files of a volume, and give what becomes free back to its pool
    Run(DedupRunArguments),
    /// Show policy, last run and work under way of a volume
    Status(SpaceTarget),
    /// Give files of a volume bytes of their own again
    Undo(DedupUndo),
}

/// Load that a deduplication may cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeWord {
    /// It yields to clients
    Background,
    /// It runs as fast as it can
    Throughput,
}

impl ModeWord {
    /// Returns the mode as the daemon calls it.
    pub(crate) fn mode(self) -> DedupMode {
        match self {
            Self::Background => DedupMode::Background,
            Self::Throughput => DedupMode::Throughput,
        }
    }
}

/// `dolmen dedup estimate`
#[derive(Debug, Args)]
pub(crate) struct DedupEstimate {
    /// The volume, by the name of its space
    #[arg(value_name = "POOL/SPACE")]
    pub volume: SpaceName,
    /// Bytes that are read at least; usually a hundredth of the files and 256M at least
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub sample: Option<Bytes>,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen dedup enable`
#[derive(Debug, Args)]
pub(crate) struct DedupEnable {
    /// The volume, by the name of its space
    #[arg(value_name = "POOL/SPACE")]
    pub volume: SpaceName,
    /// End deduplication; bytes that are shared stay shared
    #[arg(long, conflicts_with_all = ["mode", "min_age", "min_size", "exclude", "exclude_name", "memory", "schedule"])]
    pub off: bool,
    /// Load that it may cause; usually background
    #[arg(long, value_enum, value_name = "MODE")]
    pub mode: Option<ModeWord>,
    /// Days since the last change of a file, at least; usually 3
    #[arg(long, value_name = "DAYS")]
    pub min_age: Option<u32>,
    /// Size of a file, at least; usually 32K
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub min_size: Option<Bytes>,
    /// A folder within the volume that it leaves out; may be repeated, and replaces those before
    #[arg(long, value_name = "FOLDER")]
    pub exclude: Vec<String>,
    /// A pattern of names that it leaves out, such as '*.iso'; may be repeated, and replaces those before
    #[arg(long, value_name = "PATTERN")]
    pub exclude_name: Vec<String>,
    /// Memory that it may take, 40M at least; usually 256M
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub memory: Option<Bytes>,
    /// Times of runs: never, hourly, 'daily 03:00' or 'weekly sunday 02:00', which is usual
    #[arg(long, value_name = "WHEN")]
    pub schedule: Option<String>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen dedup run`
#[derive(Debug, Args)]
pub(crate) struct DedupRunArguments {
    /// The volume, by the name of its space
    #[arg(value_name = "POOL/SPACE")]
    pub volume: SpaceName,
    /// Load that it may cause; usually that of the policy
    #[arg(long, value_enum, value_name = "MODE")]
    pub mode: Option<ModeWord>,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen dedup undo`
#[derive(Debug, Args)]
pub(crate) struct DedupUndo {
    /// The volume, by the name of its space
    #[arg(value_name = "POOL/SPACE")]
    pub volume: SpaceName,
    /// Files and folders, within the volume or below its mount point; usually all of the volume
    #[arg(value_name = "PATH")]
    pub paths: Vec<String>,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}
