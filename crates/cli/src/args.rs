//! The one definition of the command line: parser, help, manual pages and completion are made of it.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use dolmen_api::STATE_FOLDER;
use dolmen_units::{Bytes, Name};

use crate::args_bench::BenchArguments;
use crate::args_disk::{DiskForget, DiskLocate, DiskRetire, DiskSet};
use crate::args_load::{IOSTAT_HELP, IostatArguments, TopArguments};
use crate::args_plan::PlanArguments;
use crate::args_serve::{SERVE_HELP, ServeArguments};
use crate::args_space::{SpaceChange, SpaceCommand};
use crate::client::Intent;
use crate::values::{
    AlertAt, LatencyLimit, Rate, RepairAfter, SpaceName, parse_fill, parse_seconds, parse_size,
};

/// Stands above the options that every command has, apart from its own.
const COMMON: &str = "Options of every command";

/// Pooled, resilient storage: any mix of disks as one pool, spaces on it that survive the loss of disks.
///
/// Without a command: tells whether all is well, and if not, why and what to do.
#[derive(Debug, Parser)]
#[command(name = "dolmen", version, propagate_version = false, disable_help_subcommand = true)]
#[command(after_long_help = crate::manual::exit_codes())]
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
    /// Run the daemon in the foreground
    Daemon(DaemonArguments),
    /// End the daemon; pools are closed, attached spaces in use keep it from ending
    Stop(StopArguments),
    /// Print the completion script for a shell
    Completion(CompletionArguments),
    /// Write the manual pages into a folder
    Man(ManArguments),
    /// Print the versions of this command and of the daemon
    Version,
}

/// `dolmen status`
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct StatusArguments {
    /// Tell it again every so many seconds, two if none are given, until interrupted
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = parse_seconds)]
    pub watch: Option<Duration>,
}

/// `dolmen pool …`
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Make a pool of disks, partitions or files
    Create(PoolCreate),
    /// List pools
    List,
    /// Show a pool with its disks and spaces
    Show(PoolTarget),
    /// Close a pool and give it up, so that any host may import it
    Export(PoolChange),
    /// Open a pool that is on disks of this host; without a name or a path, list those that could be opened
    Import(PoolImport),
    /// Destroy a pool and all that it holds
    Destroy(PoolDestroy),
    /// Add disks to a pool, and move data to them after that
    Add(PoolAdd),
    /// Move everything off a disk, to the others, and let it leave the pool
    Remove(PoolRemove),
    /// Move data from full disks to emptier ones, until they are as even as can be
    Rebalance(PoolRebalance),
    /// Change a setting of a pool
    Set(PoolSet),
    /// End the warnings about errors of its disks, until there are more, and about damage that is mended; `disk list` keeps what was counted
    Acknowledge(PoolChange),
}

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
    /// Have a disk show where it is: by the light of its place in the enclosure, or else by its own, which blinks
    Locate(DiskLocate),
    /// Make a disk a spare, or one that takes data; say what it is in, or what its bay is called
    Set(DiskSet),
    /// Stop using a disk for data and empty it; it stays a disk of the pool, until `dolmen pool remove`
    Retire(DiskRetire),
    /// Do without a disk that is gone for good: what it had is rebuilt on the others, unless something was on it alone
    Forget(DiskForget),
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

/// `dolmen pool create`
#[derive(Debug, Args)]
pub(crate) struct PoolCreate {
    /// The name of the pool
    pub pool: Name,
    /// Disks, partitions or files; all that they hold is lost
    #[arg(required = true, value_name = "DISK")]
    pub disks: Vec<PathBuf>,
    /// A number for each disk, in order: disks with the same one may fail together; 0 for a disk by itself
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", hide_short_help = true)]
    pub fault_domains: Vec<u32>,
    /// What all these disks are in, such as an enclosure, which may fail as one; DISK@NAME says it of one disk
    #[arg(long, value_name = "NAME", conflicts_with = "fault_domains")]
    pub enclosure: Option<Name>,
    /// What may be overwritten.
    #[command(flatten)]
    pub consent: DestroyDisks,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen pool add`
#[derive(Debug, Args)]
pub(crate) struct PoolAdd {
    /// The pool
    pub pool: Name,
    /// Disks, partitions or files; all that they hold is lost
    #[arg(required = true, value_name = "DISK")]
    pub disks: Vec<PathBuf>,
    /// Leave data that is there where it is; the disks take new data only, and `dolmen pool rebalance` evens out later
    #[arg(long)]
    pub stays: bool,
    /// Keep them empty until a disk is lost, whose place one of them takes then by itself
    #[arg(long)]
    pub spare: bool,
    /// What all these disks are in, such as an enclosure, which may fail as one; DISK@NAME says it of one disk
    #[arg(long, value_name = "NAME")]
    pub enclosure: Option<Name>,
    /// What may be overwritten.
    #[command(flatten)]
    pub consent: DestroyDisks,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen pool remove`
#[derive(Debug, Args)]
pub(crate) struct PoolRemove {
    /// The pool
    pub pool: Name,
    /// The disk that is to leave: its path, its id (the first digits will do) or its number in the pool
    #[arg(value_name = "DISK")]
    pub disk: String,
    /// Call a removal off that has not ended: the disk takes data again, and what was moved stays where it is
    #[arg(long)]
    pub cancel: bool,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen pool rebalance`
#[derive(Debug, Args)]
pub(crate) struct PoolRebalance {
    /// The pool
    pub pool: Name,
    /// Call a rebalance off that has not ended: what was moved stays where it is
    #[arg(long)]
    pub cancel: bool,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen pool set`
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("setting").required(true).multiple(true).args(["write_cache", "write_cache_fill", "write_cache_drain", "repair_after", "keep_room_for", "alert_at"])))]
pub(crate) struct PoolSet {
    /// The pool
    pub pool: Name,
    /// The size of the write cache of strict spaces, those with parity among them, without its further copies; it is made
    /// larger or smaller while clients go on
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub write_cache: Option<Bytes>,
    /// How full it may be before it is emptied, in percent; more makes fewer writes of what is written over often, less leaves
    /// more room for a burst
    #[arg(long, value_name = "PERCENT", value_parser = parse_fill, allow_hyphen_values = true)]
    pub write_cache_fill: Option<u8>,
    /// How much of it is put in place in a second at most, while nobody waits for room: a size, or max for as much as the
    /// disks take
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub write_cache_drain: Option<Rate>,
    /// Which write cache, where the pool has several: that of spaces that survive the loss of so many disks
    #[arg(long, value_name = "DISKS", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub survives: Option<u8>,
    /// How long a disk may be absent before what it had is rebuilt on the other disks: a time from 1s to 365d, or never; usually
    /// 30m. Where all of it finds a place there, the disk leaves the pool
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub repair_after: Option<RepairAfter>,
    /// For how many lost disks, the largest first, room is kept: writes find the pool full before it could not repair their loss
    /// on the others without a new disk; 0 keeps none, as a new pool does
    #[arg(long, value_name = "DISKS", value_parser = clap::value_parser!(u32).range(0..=8))]
    pub keep_room_for: Option<u32>,
    /// From how full on the status tells that the pool fills up: up to four percents, or never; usually 80,90
    #[arg(long, value_name = "PERCENTS")]
    pub alert_at: Option<AlertAt>,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen pool import`
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("which").multiple(true).args(["paths", "pool"])))]
pub(crate) struct PoolImport {
    /// The pool by name, or disks, files, or folders of them, that a disk of it is among; the others may be anywhere on the
    /// system
    #[arg(value_name = "POOL|PATH")]
    pub paths: Vec<PathBuf>,
    /// The pool, by name or id, when there is more than one
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    /// Open it under another name, which it keeps: for a second pool of a name that is taken
    #[arg(long = "as", value_name = "NAME", requires = "which")]
    pub rename: Option<Name>,
    /// Open it for reading only
    #[arg(long, conflicts_with = "confirmed", requires = "which")]
    pub read_only: bool,
    /// Open it for writing although disks are missing and another host used it last: whoever says so knows that those
    /// disks are not in use elsewhere
    #[arg(long, requires = "which")]
    pub confirmed: bool,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen pool destroy`
#[derive(Debug, Args)]
pub(crate) struct PoolDestroy {
    /// The pool
    pub pool: Name,
    /// The name again.
    #[command(flatten)]
    pub consent: DestroyName,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
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

/// `dolmen trash …`
#[derive(Debug, Subcommand)]
pub(crate) enum TrashCommand {
    /// List what is in the trash
    List(PoolFilter),
    /// Take a space out of the trash, with all that it holds
    Restore(TrashRestore),
    /// Delete spaces in the trash for good, and give their room back
    Purge(TrashPurge),
}

/// `dolmen trash restore`
#[derive(Debug, Args)]
pub(crate) struct TrashRestore {
    /// The space, by the name that it had or by its number
    #[arg(value_name = "POOL/SPACE")]
    pub space: SpaceName,
    /// The name that it is to have, where the one that it had is another's by now
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<Name>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen trash purge`
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["spaces", "all"])))]
pub(crate) struct TrashPurge {
    /// The spaces, all of one pool, by the names that they had or by their numbers
    #[arg(value_name = "POOL/SPACE")]
    pub spaces: Vec<SpaceName>,
    /// All that is in the trash of this pool
    #[arg(long, value_name = "POOL")]
    pub all: Option<Name>,
    /// The name again.
    #[command(flatten)]
    pub consent: DestroyName,
    /// Whether to wait.
    #[command(flatten)]
    pub waiting: Waiting,
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
    /// The folder; it is made if need be
    pub folder: PathBuf,
}
