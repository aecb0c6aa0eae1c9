//! Arguments of `dolmen job` and `dolmen jobs`.

use clap::{Args, Subcommand, ValueEnum};

use crate::arguments::common::DryRun;
use crate::arguments::values::LatencyLimit;

/// `dolmen job …`
#[derive(Debug, Subcommand)]
pub(crate) enum JobCommand {
    /// Hold a job until it is resumed, also over restarts; other jobs of its pool go on
    Pause(JobChange),
    /// Let a job that was paused go on
    Resume(JobChange),
    /// End a job before it is done; a replacement and a removal as --cancel of their commands does
    Stop(JobChange),
    /// Set how a job shares the disks with clients
    Set(JobSet),
}

/// `dolmen job set`
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("setting").required(true).multiple(true).args(["priority", "latency_limit"])))]
pub(crate) struct JobSet {
    /// The number of the job, as `dolmen jobs` shows it
    pub job: u64,
    /// How much of the disks' time it takes at most while clients use the pool; usually normal, and low for a scrub and a
    /// rebalance
    #[arg(long, value_enum, value_name = "PRIORITY")]
    pub priority: Option<PriorityWord>,
    /// How long one in twenty of the clients' reads and writes may take before it takes less, such as 50ms or 2s, 60s at most;
    /// or none. Usually none, and 50ms for a scrub and a rebalance
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub latency_limit: Option<LatencyLimit>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// How much of the disks' time a job takes at most while clients use the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PriorityWord {
    /// An eighth
    Low,
    /// Half
    Normal,
    /// All that it can get
    High,
}

/// A job to be changed
#[derive(Debug, Args)]
pub(crate) struct JobChange {
    /// The number of the job, as `dolmen jobs` shows it
    pub job: u64,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen jobs`
#[derive(Debug, Args)]
pub(crate) struct JobsArguments {
    /// The number of a job; all of them when left out
    pub job: Option<u64>,
    /// Watch the job until it ends
    #[arg(short, long, requires = "job")]
    pub wait: bool,
}
