//! The one definition of the command line: parser, help, manual pages and completion are made of it.

pub(crate) mod bench;
pub(crate) mod common;
pub(crate) mod copy;
pub(crate) mod daemon;
pub(crate) mod dedup;
pub(crate) mod disk;
pub(crate) mod habits;
pub(crate) mod history;
pub(crate) mod image;
pub(crate) mod job;
pub(crate) mod load;
pub(crate) mod parse;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod quota;
pub(crate) mod serve;
pub(crate) mod service;
pub(crate) mod share;
pub(crate) mod space;
pub(crate) mod trash;
pub(crate) mod values;
pub(crate) mod volume;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use dolmen_api::ExitCode;
use dolmen_units::Name;

use self::values::parse_seconds;

use crate::arguments::bench::BenchArguments;
use crate::arguments::common::{Common, DryRun, PoolFilter, Waiting};
use crate::arguments::copy::{COPY_HELP, CopyArguments};
use crate::arguments::daemon::{DaemonArguments, StopArguments};
use crate::arguments::dedup::DedupCommand;
use crate::arguments::disk::DiskCommand;
use crate::arguments::history::{HISTORY_HELP, HistoryArguments};
use crate::arguments::image::ImageCommand;
use crate::arguments::job::{JobCommand, JobsArguments};
use crate::arguments::load::{IOSTAT_HELP, IostatArguments, TopArguments};
use crate::arguments::plan::PlanArguments;
use crate::arguments::pool::PoolCommand;
use crate::arguments::serve::{SERVE_HELP, ServeArguments};
use crate::arguments::service::ServiceCommand;
use crate::arguments::share::ShareCommand;
use crate::arguments::space::{SpaceChange, SpaceCommand};
use crate::arguments::trash::TrashCommand;
use crate::arguments::volume::VolumeCommand;

/// Pooled, resilient storage: any mix of disks as one pool, spaces on it that survive the loss of disks.
///
/// Without a command: tells whether all is well, and if not, why and what to do.
#[derive(Debug, Parser)]
#[command(name = "dolmen", version, propagate_version = false, disable_help_subcommand = true)]
#[command(after_long_help = exit_codes())]
pub(crate) struct Arguments {
    /// What goes for every command.
    #[command(flatten)]
    pub common: Common,
    /// Without a command: tell it again and again
    #[command(flatten)]
    pub status: StatusArguments,
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Tell whether all is well, and if not, why and what to do
    Status(StatusArguments),
    /// Make, look at, move and destroy pools
    #[command(subcommand)]
    Pool(PoolCommand),
    /// Look at disks, exchange them, take them back in
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Make, look at, change, attach and delete spaces
    #[command(subcommand)]
    Space(SpaceCommand),
    /// Make, look at, mount, unmount and delete volumes: file systems on spaces
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Share equal bytes of the files of a volume, and see what that saves
    #[command(subcommand)]
    Dedup(DedupCommand),
    /// Keep images of virtual machines on a volume, and clone them in seconds
    #[command(subcommand)]
    Image(ImageCommand),
    /// Share folders of volumes over SMB and NFS, and grant rights
    #[command(subcommand)]
    Share(ShareCommand),
    /// Look at deleted spaces, restore them, or purge them for good
    #[command(subcommand)]
    Trash(TrashCommand),
    /// Serve a space over NBD, on this machine or over a network, and print its address
    #[command(after_help = SERVE_HELP)]
    Serve(ServeArguments),
    /// Stop serving a space
    Unserve(SpaceChange),
    /// Tell where the bytes of pools are, and what still fits at each protection level
    Df(PoolFilter),
    /// List jobs, or watch one
    Jobs(JobsArguments),
    /// Pause, resume and stop jobs, and set how they share the disks with clients
    #[command(subcommand)]
    Job(JobCommand),
    /// Tell what spaces and disks do and how long it takes, once or again and again
    #[command(after_help = IOSTAT_HELP)]
    Iostat(IostatArguments),
    /// Show the busiest spaces and disks on one screen, until interrupted
    Top(TopArguments),
    /// Print the metrics of this host in the text format of Prometheus
    #[command(after_help = METRICS_HELP)]
    Metrics,
    /// Show what a pool, a space or a disk did over time, as graphs and a table
    #[command(after_help = HISTORY_HELP)]
    History(HistoryArguments),
    /// List what has happened to pools, disks, spaces and jobs, or follow it
    Events(EventsArguments),
    /// Tell why a pool, a disk, a space or a job is as it is, down to what to do
    Why(WhyArguments),
    /// Tell what a code means that the status, events or errors show, and what to do
    Explain(ExplainArguments),
    /// Read and verify everything that a pool holds, and heal what can be healed
    Scrub(ScrubArguments),
    /// Check a pool on its disks, without the daemon and without changing anything
    Check(CheckArguments),
    /// Plan what disks will give, before any is bought or touched
    Plan(PlanArguments),
    /// Measure what a space, a device, a file, a folder or an NBD export does under load
    Bench(BenchArguments),
    /// Copy files and folders in such a way that copies share the bytes of their sources
    #[command(after_help = COPY_HELP)]
    Copy(CopyArguments),
    /// Run the daemon in the foreground
    Daemon(DaemonArguments),
    /// End the daemon; pools are closed, attached spaces in use keep it from ending
    Stop(StopArguments),
    /// Have systemd start the daemon at every boot, and mount volumes in order with other services
    #[command(subcommand)]
    Service(ServiceCommand),
    /// Print the completion script for a shell
    Completion(CompletionArguments),
    /// Write the manual pages into a folder
    Man(ManArguments),
    /// Print the versions of this command and of the daemon
    Version,
}

const METRICS_HELP: &str = "For the textfile collector of node_exporter, where no dolmen-web serves /metrics:\n  dolmen metrics > /var/lib/node_exporter/dolmen.prom.new; mv /var/lib/node_exporter/dolmen.prom.new /var/lib/node_exporter/dolmen.prom\nA daemon that does not answer is dolmen_up 0, and an exit code that is not 0.";

/// `dolmen status`
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct StatusArguments {
    /// Tell it again every so many seconds, two if none are given, until interrupted
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = parse_seconds)]
    pub watch: Option<Duration>,
}

/// `dolmen events`
#[derive(Debug, Args)]
pub(crate) struct EventsArguments {
    /// Go on with what happens from now on, until interrupted; a restart of the daemon is waited for
    #[arg(short, long)]
    pub follow: bool,
    /// Only events after this number; 0 for all that are kept
    #[arg(long, value_name = "NUMBER")]
    pub since: Option<u64>,
    /// Only events of this pool
    #[arg(long, value_name = "POOL")]
    pub pool: Option<Name>,
}

/// `dolmen why`
#[derive(Debug, Args)]
pub(crate) struct WhyArguments {
    /// A pool, POOL/SPACE, a disk by its path, its id or POOL/NUMBER, or the number of a job
    pub object: String,
}

/// `dolmen explain`
#[derive(Debug, Args)]
pub(crate) struct ExplainArguments {
    /// The code, such as disk_absent; all of them when left out
    pub code: Option<String>,
}

/// `dolmen scrub`
#[derive(Debug, Args)]
pub(crate) struct ScrubArguments {
    /// The pool
    pub pool: Name,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen check`
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// The disks of one pool: disks, partitions or files
    #[arg(required = true, value_name = "DISK")]
    pub disks: Vec<PathBuf>,
    /// Check labels, metadata and the map, and do not read the content of spaces
    #[arg(long)]
    pub quick: bool,
}

/// `dolmen completion`
#[derive(Debug, Args)]
pub(crate) struct CompletionArguments {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
    /// Print the names that may stand at the end of this line instead, as the script of the shell asks
    #[arg(last = true, hide = true, value_name = "WORDS", allow_hyphen_values = true)]
    pub line: Vec<String>,
}

/// `dolmen man`
#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// The folder; it is made if need be, in one that exists
    pub folder: PathBuf,
}

/// The exit codes, for the help and the manual.
pub(crate) fn exit_codes() -> String {
    let lines = ExitCode::ALL.iter().map(|code| format!("\n  {:>2}  {}", code.number(), code.meaning()));
    std::iter::once("Exit codes:".to_owned()).chain(lines).collect()
}
