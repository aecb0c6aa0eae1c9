//! Reports of benchmarks that the daemon has run.

use dolmen_api::{ExitCode, verb};

use crate::arguments::common::Format;
use crate::error::CliError;
use crate::session::client::{Client, call};
use crate::terminal::out::Out;
use crate::views::benchmarks::{show_benchmark, show_benchmarks};

/// Lists the reports, or shows the one of a job.
pub(super) fn run(
    job: Option<u64>,
    client: &Client,
    format: Format,
    out: &mut Out<'_>,
) -> Result<ExitCode, CliError> {
    match job {
        None => {
            let document = client.look(&call::<verb::ListBenchmarks>([]))?;
            match format {
                Format::Json => out.line(document.raw.trim_end()),
                Format::Text => show_benchmarks(&document.value, out),
            }
        }
        Some(job) => {
            let document = client.look(&call::<verb::ShowBenchmark>([&job.to_string()]))?;
            match format {
                Format::Json => out.line(document.raw.trim_end()),
                Format::Text => show_benchmark(&document.value.figures, out),
            }
        }
    }
    Ok(ExitCode::Ok)
}
