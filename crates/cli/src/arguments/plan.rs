//! The command line of `dolmen plan`.

use std::path::PathBuf;

use clap::Args;
use dolmen_plan::Layout;
use dolmen_units::Bytes;

use crate::arguments::values::parse_size;

/// `dolmen plan`
#[derive(Debug, Args)]
#[command(after_long_help = "\
A disk is written [NAME=][COUNTx]SIZE[@DOMAIN]: 8TB, 3x4TB, bay1=8TB@shelf2. Disks with one DOMAIN may fail together; \
without, each stands alone. In a file there may be several to a line, and # begins a comment.

A resiliency is simple, span, mirror:COPIES, parity:COLUMNS, DATA+PARITY such as 8+3, mixed:PERCENT (that much of the \
data in mirror rows, the rest in dual parity), or mirror:COPIES/ANOTHER (copies on fault domains, each protected within).

Examples:
  dolmen plan 4x8TB
  dolmen plan 2x8TB 4TB --add 8TB --add 8TB
  dolmen plan 12x1TB@n1 12x1TB@n2 12x1TB@n3 -r mirror/parity -r mirror:3
  dolmen plan --file bays.txt --html plan.html")]
pub(crate) struct PlanArguments {
    /// Disks to plan for; none of them is touched
    #[arg(value_name = "DISK")]
    pub disks: Vec<String>,
    /// A file that lists disks; may be repeated
    #[arg(short, long, value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// The disks of this machine that nobody uses
    #[arg(long)]
    pub here: bool,
    /// A resiliency to plan for; may be repeated; the usual ones when left out
    #[arg(short, long, value_name = "KIND", allow_hyphen_values = true)]
    pub resiliency: Vec<Layout>,
    /// A disk to be added after the others; may be repeated. When left out, one more of each of the largest sizes is
    /// tried
    #[arg(long, value_name = "DISK", allow_hyphen_values = true)]
    pub add: Vec<String>,
    /// Data of the space whose footprint is shown; usually 1TB
    #[arg(short, long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    pub size: Option<Bytes>,
    /// Print all of it: failures that lose data, footprints, and what this version cannot make. Usual with --resiliency
    #[arg(long)]
    pub all: bool,
    /// Write the plan as a page with drawings
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
