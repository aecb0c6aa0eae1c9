//! What the engine costs per I/O, measured in one process: the shipping crates on files, beside the same files without
//! a pool. docs/bench_io.md says how to read the figures.
//!
//! Invariant: nothing is allocated by the benchmark itself between the first counted I/O and the last.

mod case;
mod disks;
mod drive;
mod error;
mod heap;
mod pool;
mod raw;
mod report;
mod run;
mod tally;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::Parser;
use dolmen_causes::in_one_line;
use dolmen_units::{BLOCK_BYTES, Bytes};

use crate::case::{Choice, Kind, Layout};
use crate::disks::{Disks, FILLED_BYTES};
use crate::error::BenchError;
use crate::run::{Effort, Measured};

/// How many allocations of each case to tell the places of.
const TRACE_VARIABLE: &str = "DOLMEN_TRACE_ALLOC";
/// What a setting of the variable that is no number stands for.
const TRACED_USUALLY: u64 = 200;

/// Measures what the engine costs per I/O, beside the same disks without it.
#[derive(Debug, Parser)]
#[command(name = "dolmen-bench-io", version)]
struct Arguments {
    /// Where to put the files that stand for disks; they are removed at the end
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// How many disks
    #[arg(long, default_value = "3", value_name = "COUNT")]
    disks: usize,
    /// Apparent size of each disk; 640 MiB of it are really used
    #[arg(long, default_value = "64G", value_name = "SIZE")]
    disk_size: Bytes,
    /// Seconds that each case is measured, at most
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Duration,
    /// Layouts to measure
    #[arg(long, value_enum, value_delimiter = ',', default_value = "simple,mirror2,mirror3")]
    layout: Vec<Layout>,
    /// What to do
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fresh,rewrite,overwrite,warm,cold")]
    kind: Vec<Kind>,
    /// Sizes of I/Os
    #[arg(long, value_delimiter = ',', default_value = "4K,64K,1M", value_parser = parse_size)]
    size: Vec<Bytes>,
    /// I/Os under way at the same time
    #[arg(long, value_delimiter = ',', default_value = "1,32", value_parser = clap::value_parser!(u64).range(1..=64))]
    depth: Vec<u64>,
    /// Write one JSON document instead of tables
    #[arg(long)]
    json: bool,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number of seconds"))?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|error| format!("{text:?}: {error}"))?;
    if duration.is_zero() { Err("nothing is measured in no time".to_owned()) } else { Ok(duration) }
}

fn parse_size(text: &str) -> Result<Bytes, String> {
    let size: Bytes = text.parse().map_err(|error: dolmen_units::ParseBytesError| error.to_string())?;
    let fits = size.0 >= BLOCK_BYTES && size.0 <= dolmen_space::READ_BYTES_MAX as u64;
    if fits && size.0.is_power_of_two() {
        Ok(size)
    } else {
        Err(format!("{size}: a power of two from 4K to 1M"))
    }
}

/// Zero when nothing is to be traced.
fn traced() -> u64 {
    let Some(value) = std::env::var_os(TRACE_VARIABLE) else { return 0 };
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(0) => 0,
        Some(1) | None => TRACED_USUALLY,
        Some(count) => count,
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match measure(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "dolmen-bench-io: {}", in_one_line(&error));
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) -> Result<(), BenchError> {
    writeln!(std::io::stdout(), "{text}").map_err(|source| BenchError::Output { source })
}

fn measure(arguments: &Arguments) -> Result<(), BenchError> {
    let temporary = tempfile::tempdir();
    let folder = match (&arguments.folder, &temporary) {
        (Some(folder), _) => folder.clone(),
        (None, Ok(folder)) => folder.path().to_owned(),
        (None, Err(error)) => {
            let source = std::io::Error::new(error.kind(), error.to_string());
            return Err(BenchError::File { path: std::env::temp_dir(), source });
        }
    };
    let disks = Rc::new(Disks::make(&folder, arguments.disks, arguments.disk_size, Bytes(FILLED_BYTES))?);
    let result = measure_on(&disks, arguments);
    disks.remove();
    result
}

fn measure_on(disks: &Rc<Disks>, arguments: &Arguments) -> Result<(), BenchError> {
    let choice = Choice {
        layouts: arguments.layout.clone(),
        kinds: arguments.kind.clone(),
        sizes: arguments.size.clone(),
        depths: arguments.depth.clone(),
    };
    let effort = Effort { time_max: arguments.seconds, operations_max: None, traced: traced() };
    let mut all: Vec<Measured> = Vec::new();
    let setting = run::run(disks, &choice, effort, |measured| {
        all.extend_from_slice(measured);
        if arguments.json { Ok(()) } else { print(report::table(measured).trim_end()) }
    })?;
    if arguments.json {
        let text =
            report::json(&all, &setting).map_err(|error| BenchError::Output { source: error.into() })?;
        return print(&text);
    }
    print(&format!(
        "\n{} build, driver {}, buffers registered: {}, files grew by {} while pools were measured",
        report::profile(),
        setting.driver,
        setting.has_registered_buffers,
        Bytes(setting.grown_bytes)
    ))
}
