//! The command line of `dolmen bench`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dolmen_bench::{Engine, Flush, GROUPS};
use dolmen_units::Bytes;

use crate::arguments::values::parse_size;

/// The working set where nobody says otherwise: as large as the file of the measurements that the profiles come from.
const SIZE: &str = "32G";

/// Targets of one run, at most.
const TARGETS_MAX: usize = 16;

/// `dolmen bench`
#[derive(Debug, Args)]
#[command(after_long_help = help())]
pub(crate) struct BenchArguments {
    /// What to measure: POOL/SPACE, or a path (which begins with / or .) of a block device, a file or a folder, or the
    /// address of an NBD export. Of several, each is compared with the first
    #[arg(required_unless_present_any = ["reports", "report"], value_name = "TARGET", num_args = 1..=TARGETS_MAX)]
    pub targets: Vec<String>,
    /// List the reports of benchmarks that the daemon has run, such as for its console
    #[arg(long, conflicts_with_all = ["targets", "report"])]
    pub reports: bool,
    /// Show the report of the benchmark that the daemon has run as this job
    #[arg(long, value_name = "JOB", conflicts_with = "targets")]
    pub report: Option<u64>,
    /// A profile or a group of them; may be repeated; usually `load`, or all those of --profiles
    #[arg(short, long, value_name = "NAME")]
    pub profile: Vec<String>,
    /// A file with profiles of your own; may be repeated
    #[arg(long, value_name = "FILE")]
    pub profiles: Vec<PathBuf>,
    /// How much of each target is used, and how large the file in a folder is
    #[arg(short, long, value_name = "SIZE", default_value = SIZE, value_parser = parse_size, allow_hyphen_values = true)]
    pub size: Bytes,
    /// Seconds that each load is measured
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub runtime: u32,
    /// Seconds that each load runs before it is measured
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    pub ramp: u32,
    /// How often everything is measured; usually 3, and 5 with several targets
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// What stands beside each write without flushes: one after every N writes, one at the `end`, or `none`
    #[arg(long, value_name = "N", default_value = "32", value_parser = parse_flush)]
    pub flush: Flush,
    /// Other numbers of outstanding I/Os than those of the profiles, such as 1,8,64
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub outstanding: Vec<u32>,
    /// Other workers than those of the profiles, each with its own part of the target and its own outstanding I/Os
    #[arg(long, value_name = "N")]
    pub workers: Option<u32>,
    /// Go through the page cache of this machine; I/Os are carried by io_uring then, and by libaio one after another where
    /// the system refuses it
    #[arg(long)]
    pub buffered: bool,
    /// What carries I/Os to devices and files past the page cache; with io_uring, fio 3.33 sends more flushes than it is asked for
    #[arg(long, value_enum, default_value = "libaio", hide_short_help = true, value_name = "ENGINE")]
    pub engine: EngineWord,
    /// Do not write the targets once before they are measured; reads of what was never written may cost nothing
    #[arg(long)]
    pub no_fill: bool,
    /// A target, named as among the targets, whose content may be lost; may be repeated
    #[arg(long, value_name = "NAME")]
    pub destroy: Vec<String>,
    /// Measure nothing and write nothing; print what would be done and how long it would take
    #[arg(short = 'n', long = "dry-run")]
    pub dry_run: bool,
    /// Print each step as a line of JSON among the messages, as the daemon reads them
    #[arg(long, hide = true)]
    pub steps: bool,
    /// Write everything that was measured as a JSON document
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the points as a table for spreadsheets
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write a page with curves
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// What carries I/Os.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineWord {
    /// The kernel's older asynchronous interface
    #[value(name = "libaio")]
    Libaio,
    /// Its newer one
    #[value(name = "io_uring")]
    IoUring,
}

impl EngineWord {
    /// As the plan has it.
    pub(crate) fn engine(self) -> Engine {
        match self {
            Self::Libaio => Engine::Libaio,
            Self::IoUring => Engine::IoUring,
        }
    }
}

/// A text that is no way to flush.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a number of writes, `end` or `none`")]
pub(crate) struct FlushError;

fn parse_flush(text: &str) -> Result<Flush, FlushError> {
    match text {
        "none" => Ok(Flush::Never),
        "end" => Ok(Flush::End),
        number => number.parse().map(Flush::Every).map_err(|_| FlushError),
    }
}

/// The profiles, and examples.
fn help() -> String {
    let mut text = "Profiles, in groups:\n".to_owned();
    for group in &GROUPS {
        text.push_str(&format!("  {:<10} {}\n", group.name, group.title));
        for profile in group.profiles() {
            text.push_str(&format!("    {:<15} {}\n", profile.name, profile.summary()));
        }
    }
    text.push_str(
        "
Profiles with writes overwrite their target. What holds data is refused unless it is named with --destroy; in a folder a \
file is made, and removed at the end.

Examples:
  dolmen bench /mnt/data --size 8G --html report.html
  dolmen bench tank/home /dev/sdc --destroy=/dev/sdc -p database --rounds 5
  dolmen bench nbd://server/export -p striping --json striping.json
  dolmen bench . -p load --outstanding 1,8,64 --runtime 3 --rounds 1 --size 1G",
    );
    text
}
