//! Arguments of `dolmen pool`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dolmen_api::SlabMapQuery;
use dolmen_units::{Bytes, Name};

use crate::arguments::common::{DestroyDisks, DestroyName, DryRun, PoolChange, PoolTarget, Waiting};
use crate::arguments::values::{AlertAt, Rate, RepairAfter, parse_fill, parse_size};

/// `dolmen pool …`
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// Make a pool of disks, partitions or files
    Create(PoolCreate),
    /// List pools
    List,
    /// Show a pool with its disks and spaces
    Show(PoolTarget),
    /// Show which space lies where on each disk of a pool, and what is free
    Map(PoolMap),
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
    /// Copy to disks what they have missed; a job does so by itself when a disk is back
    Resync(PoolResync),
    /// Change a setting of a pool
    Set(PoolSet),
    /// End the warnings about errors of its disks, until there are more, and about damage that is mended; `disk list` keeps what was counted
    Acknowledge(PoolChange),
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

/// `dolmen pool map`
#[derive(Debug, Args)]
pub(crate) struct PoolMap {
    /// The pool
    pub pool: Name,
    /// Cells of each disk, at most 512; usually as many as the terminal has room for, and 64 elsewhere
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=SlabMapQuery::CELLS_MAX))]
    pub cells: Option<u64>,
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

/// `dolmen pool resync`
#[derive(Debug, Args)]
pub(crate) struct PoolResync {
    /// The pool
    pub pool: Name,
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
    /// Accept what another host set: mount points of its volumes, and rights over NFS on its shares; without it such volumes and
    /// shares are held
    #[arg(long, conflicts_with = "read_only", requires = "which")]
    pub accept: bool,
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
