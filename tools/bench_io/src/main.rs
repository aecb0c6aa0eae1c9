//! What the engine costs per I/O, measured in one process: the shipping crates on files, beside the same files without
//! a pool. docs/bench_io.md says how to read the figures.
//!
//! Invariant: nothing is allocated by the benchmark itself between the first counted I/O and the last.

mod areas;
mod blocks;
mod case;
mod disks;
mod drive;
mod error;
mod heap;
mod pool;
mod raw;
mod report;
mod run;
mod signals;
mod summary;
mod sustained;
mod tally;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use dolmen_causes::in_one_line;
use dolmen_units::{BLOCK_BYTES, Bytes};

use crate::case::{Choice, Kind, Layout};
use crate::disks::{Disks, FILLED_BYTES};
use crate::error::BenchError;
use crate::run::{Measured, Precision};
use crate::signals::Signals;
use crate::sustained::{Load, SPAN_MIN};

/// How many allocations of each case to tell the places of.
const TRACE_VARIABLE: &str = "DOLMEN_TRACE_ALLOC";
/// What a setting of the variable that is no number stands for.
const TRACED_USUALLY: u64 = 200;

/// Measures what the engine costs per I/O, beside the same disks without it.
#[derive(Debug, Parser)]
#[command(name = "dolmen-bench-io", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,
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

/// What is measured in another way.
#[derive(Debug, Subcommand)]
enum Other {
    /// Random 4K writes to a space with parity that go on and on: what each costs at the disks, all included
    Sustained(SustainedArguments),
}

#[derive(Debug, Args)]
struct SustainedArguments {
    /// Where to put the files that stand for disks; they are removed at the end
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// How many disks
    #[arg(long, default_value = "6", value_name = "COUNT")]
    disks: usize,
    /// Apparent size of each disk; together they really use what the span takes with its parity, and a write cache
    #[arg(long, default_value = "256G", value_name = "SIZE")]
    disk_size: Bytes,
    /// Size of the space, which is filled and then overwritten
    #[arg(long, default_value = "16G", value_name = "SIZE")]
    span: Bytes,
    /// Data columns
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u8).range(2..=8))]
    columns: u8,
    /// Parity columns
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u8).range(1..=2))]
    parity: u8,
    /// Claim all rows when the space is made, which are longer then
    #[arg(long)]
    fixed: bool,
    /// Writes under way at the same time
    #[arg(long, default_value = "32", value_parser = clap::value_parser!(u64).range(1..=64))]
    depth: u64,
    /// Writes between two flushes; 0 for none
    #[arg(long, default_value = "1024", value_name = "COUNT")]
    flush_every: u64,
    /// What is written while it is counted, behind the filling of the write cache; as much as the span when not given
    #[arg(long, value_name = "SIZE")]
    bytes: Option<Bytes>,
    /// Seconds that are counted, at most
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    seconds: Option<Duration>,
    /// Blocks that are compared with what was written, behind opening the pool again
    #[arg(long, default_value = "65536", value_name = "COUNT")]
    compared: u64,
    /// Fail if a write costs more disk I/Os than that
    #[arg(long, value_name = "COUNT")]
    limit: Option<f64>,
    /// Write one JSON document instead of text
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
    let signals = match Signals::heed() {
        Ok(signals) => signals,
        Err(error) => return failed(&error),
    };
    let measured = match &arguments.other {
        Some(Other::Sustained(arguments)) => sustain(arguments, &signals),
        None => measure(&arguments, &signals),
    };
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if matches!(error, BenchError::Interrupted) {
                signals.pass_on();
            }
            failed(&error)
        }
    }
}

fn failed(error: &BenchError) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "dolmen-bench-io: {}", in_one_line(error));
    ExitCode::FAILURE
}

fn print(text: &str) -> Result<(), BenchError> {
    writeln!(std::io::stdout(), "{text}").map_err(|source| BenchError::Output { source })
}

/// Does something with the path of a folder: the one that was named, or one that is there for it alone.
fn in_folder<T>(
    named: Option<&Path>,
    body: impl FnOnce(&Path) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    if let Some(folder) = named {
        return body(folder);
    }
    let folder =
        tempfile::tempdir().map_err(|source| BenchError::File { path: std::env::temp_dir(), source })?;
    body(folder.path())
}

/// Does something with disks, which are removed whatever comes of it.
fn on_disks<T>(
    folder: &Path,
    files: (usize, Bytes, Bytes),
    signals: &Signals,
    body: impl FnOnce(&Rc<Disks>) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    let disks = Rc::new(Disks::make(folder, files, signals)?);
    let result = body(&disks);
    disks.remove();
    result
}

fn sustain(arguments: &SustainedArguments, signals: &Signals) -> Result<(), BenchError> {
    let span = arguments.span;
    if span < SPAN_MIN || !span.0.is_multiple_of(1 << 20) {
        return Err(BenchError::Span { span, least: SPAN_MIN });
    }
    let load = Load {
        span_bytes: span.0,
        columns: arguments.columns,
        parity: arguments.parity,
        is_fixed: arguments.fixed,
        depth: arguments.depth,
        flush_every: arguments.flush_every,
        bytes: arguments.bytes.unwrap_or(span).0,
        time_max: arguments.seconds,
        compared: arguments.compared,
    };
    let outcome = in_folder(arguments.folder.as_deref(), |folder| {
        let files = (arguments.disks, arguments.disk_size, Bytes::ZERO);
        on_disks(folder, files, signals, |disks| sustained::run(disks, &load))
    })?;
    let text = match arguments.json {
        true => summary::json(&outcome).map_err(|error| BenchError::Output { source: error.into() })?,
        false => summary::text(&outcome),
    };
    print(text.trim_end())?;
    arguments.limit.map_or(Ok(()), |limit| summary::check(&outcome, limit))
}

fn measure(arguments: &Arguments, signals: &Signals) -> Result<(), BenchError> {
    in_folder(arguments.folder.as_deref(), |folder| {
        let files = (arguments.disks, arguments.disk_size, Bytes(FILLED_BYTES));
        on_disks(folder, files, signals, |disks| measure_on(disks, arguments))
    })
}

fn measure_on(disks: &Rc<Disks>, arguments: &Arguments) -> Result<(), BenchError> {
    let choice = Choice {
        layouts: arguments.layout.clone(),
        kinds: arguments.kind.clone(),
        sizes: arguments.size.clone(),
        depths: arguments.depth.clone(),
    };
    let precision = Precision { time_max: arguments.seconds, operations_max: None, traced: traced() };
    let mut all: Vec<Measured> = Vec::new();
    let setting = run::run(disks, &choice, precision, |measured| {
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
