//! The one definition of the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// What is said below the help of every command.
pub(crate) const EXIT_CODES: &str = "Exit codes: 0 all of it, 1 some of it is missing, bad or doubtful and named, 2 a command line that makes no \
                                     sense, 73 refused (a file is there already), 74 input or output failed, or nothing can be had like that, 77 \
                                     permission denied.";

/// A way back: what the disks of a damaged pool still hold, read without a daemon and without a write.
///
/// Begin with scan. Then list shows the spaces, and export writes one of them to a file on another disk.
#[derive(Debug, Parser)]
#[command(name = "dolmen-rescue", version, disable_help_subcommand = true, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// How to write answers
    #[arg(short, long, global = true, value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: Format,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How answers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs: one document a line
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Tell what is there: labels, members, checkpoints, the log, spaces
    Scan(ScanArguments),
    /// List the spaces that can be had
    List(ListArguments),
    /// Write a space to a file, with a list of what is bad
    Export(ExportArguments),
    /// Print what stands on disks: labels, checkpoints, the log, the map, slabs, tables
    Dump(DumpArguments),
}

/// `dolmen-rescue scan`
#[derive(Debug, Args)]
pub(crate) struct ScanArguments {
    /// Disks, partitions or files of a pool
    #[arg(required = true, value_name = "DISK")]
    pub disks: Vec<PathBuf>,
    /// Read the whole disks too, for what slabs say of themselves
    #[arg(long)]
    pub whole: bool,
}

/// How a pool is opened.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(crate) struct ModeArguments {
    /// Open it at this checkpoint, with the log if all of it is there; scan lists them
    #[arg(long, value_name = "CHECKPOINT")]
    pub at: Option<u64>,
    /// Open it at its newest checkpoint, without the log
    #[arg(long)]
    pub without_log: bool,
    /// Put the map together from what slabs say of themselves; reads the whole disks
    #[arg(long)]
    pub from_slabs: bool,
}

/// `dolmen-rescue list`
#[derive(Debug, Args)]
pub(crate) struct ListArguments {
    /// Disks, partitions or files of the pool
    #[arg(required = true, value_name = "DISK")]
    pub disks: Vec<PathBuf>,
    /// How to open it.
    #[command(flatten)]
    pub mode: ModeArguments,
    /// Which pool, by name or id, if the disks are of several
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
}

/// `dolmen-rescue export`
#[derive(Debug, Args)]
pub(crate) struct ExportArguments {
    /// The space, by name or number
    #[arg(value_name = "SPACE")]
    pub space: String,
    /// Disks, partitions or files of the pool
    #[arg(required = true, value_name = "DISK")]
    pub disks: Vec<PathBuf>,
    /// The file to write, which must not be there yet; - for the standard output
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// Where to write the list of bad ranges; as a document where its name ends in .json, else as text; usually beside the file, with .bad behind its name
    #[arg(long, value_name = "FILE")]
    pub bad_ranges: Option<PathBuf>,
    /// Write zeros where content is bad; else such a range is a hole of the file
    #[arg(long)]
    pub zero_bad: bool,
    /// How to open it.
    #[command(flatten)]
    pub mode: ModeArguments,
    /// Which pool, by name or id, if the disks are of several
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    /// Tell what would be written, and write nothing
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// What to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Structure {
    /// Labels, with the epochs that they name
    Label,
    /// Epochs, which stand in labels
    Epoch,
    /// Checkpoint blocks
    Checkpoint,
    /// Batches of the log
    Log,
    /// What the log says of the write cache
    Cache,
    /// All keys and values of the map
    Map,
    /// Spaces of the map
    Space,
    /// Rows of the map
    Row,
    /// Headers of slabs; reads the whole disks
    Slab,
    /// A page of a table, at --address
    Table,
    /// A page of the map, at --address
    Page,
    /// Whatever stands at --address
    Block,
}

/// `dolmen-rescue dump`
#[derive(Debug, Args)]
pub(crate) struct DumpArguments {
    /// What to print
    #[arg(value_enum, value_name = "WHAT")]
    pub what: Structure,
    /// Disks, partitions or files
    #[arg(required = true, value_name = "DISK")]
    pub disks: Vec<PathBuf>,
    /// Where on the disk, in bytes
    #[arg(long, value_name = "BYTES", required_if_eq_any = [("what", "table"), ("what", "page"), ("what", "block")])]
    pub address: Option<u64>,
    /// The number of the space whose rows are printed
    #[arg(long, value_name = "NUMBER")]
    pub space: Option<u64>,
    /// The checkpoint whose map is printed; the newest if none is given
    #[arg(long, value_name = "CHECKPOINT")]
    pub at: Option<u64>,
}
