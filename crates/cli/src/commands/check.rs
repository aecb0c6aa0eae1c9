//! `dolmen check`: a pool checked on its disks, while no daemon has them.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{ExitCode, SCHEMA};
use dolmen_block_io::{BlockDevice, within};
use dolmen_block_linux::{Handle, LinuxDevice, OpenError, OpenOptions, Runtime, RuntimeConfig};
use dolmen_check::{CheckError, CheckOptions, Depth, Finding, PoolReport, Report, check};
use dolmen_space::Progress;
use dolmen_units::Bytes;
use serde::Serialize;

use crate::arguments::CheckArguments;
use crate::arguments::common::Format;
use crate::error::CliError;
use crate::session::poll_interval::PollInterval;
use crate::terminal::out::{Kind, Out};
use crate::terminal::paint::Tone;
use crate::views::words::{count, percent};

/// How often a disk is tried that is locked, and the pause between: the kernel lets go of the disks of a process that
/// ended a moment after that, so that a command right behind another would be refused for no reason that anybody sees.
const LOCKED_TRIES: u32 = 40;
const LOCKED_PAUSE: PollInterval = PollInterval { pause: Duration::from_millis(50) };
/// How often progress is shown on a terminal.
const TICK: Duration = Duration::from_millis(500);
/// Ticks between two lines of progress elsewhere.
const TICKS_PER_LINE: u32 = 20;

/// The result of a check for programs.
#[derive(Debug, Serialize)]
struct CheckDocument<'a> {
    schema: u32,
    is_clean: bool,
    pools: Vec<PoolDocument<'a>>,
    findings: Vec<FindingDocument<'a>>,
    more_findings: u64,
}

#[derive(Debug, Serialize)]
struct PoolDocument<'a> {
    name: &'a str,
    id: String,
    disk_count: usize,
    space_count: usize,
    verified_bytes: u64,
    replayed_records: usize,
}

#[derive(Debug, Serialize)]
struct FindingDocument<'a> {
    number: u16,
    name: &'static str,
    pool: Option<&'a str>,
    message: String,
}

/// Checks the pools on the disks named.
pub(crate) fn run(
    arguments: &CheckArguments,
    format: Format,
    out: &mut Out<'_>,
) -> Result<ExitCode, CliError> {
    let runtime = Runtime::new(RuntimeConfig::MODEST)?;
    let devices = open_disks(&runtime, &arguments.disks)?;
    let depth = if arguments.quick { Depth::Map } else { Depth::Content };
    let report = wait_for(&runtime, devices, CheckOptions { depth }, out)?;
    match format {
        Format::Json => out.line(document(&report)?),
        Format::Text => show(&report, depth, out),
    }
    Ok(if report.is_clean() { ExitCode::Ok } else { ExitCode::Unhealthy })
}

/// Opens the disks for reading; the lock keeps a daemon from changing them meanwhile, and is refused if one has them.
fn open_disks(runtime: &Runtime, paths: &[PathBuf]) -> Result<Vec<Rc<dyn BlockDevice>>, CliError> {
    let handle = runtime.handle();
    let mut devices: Vec<Rc<dyn BlockDevice>> = Vec::new();
    let mut tries = LOCKED_TRIES;
    for path in paths {
        devices.push(open_disk(&handle, path, &mut tries)?);
    }
    Ok(devices)
}

fn open_disk(handle: &Handle, path: &Path, tries: &mut u32) -> Result<Rc<LinuxDevice>, OpenError> {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    loop {
        match LinuxDevice::open(handle, path, options) {
            Err(OpenError::Locked { .. }) if *tries > 0 => {
                *tries -= 1;
                LOCKED_PAUSE.wait();
            }
            opened => return opened,
        }
    }
}

type Checking = Pin<Box<dyn Future<Output = Result<Report, CheckError>>>>;

/// Runs the check, and looks up from it now and then to tell how far it is.
fn wait_for(
    runtime: &Runtime,
    devices: Vec<Rc<dyn BlockDevice>>,
    options: CheckOptions,
    out: &mut Out<'_>,
) -> Result<Report, CliError> {
    let progress = Rc::new(Progress::default());
    let checking: Checking = Box::pin(check(runtime.seams(), devices, options, Rc::clone(&progress)));
    let checking = Rc::new(RefCell::new(checking));
    let mut ticks = 0;
    loop {
        let (clock, checking) = (runtime.seams().clock, Rc::clone(&checking));
        let step = async move {
            let poll = poll_fn(|cx| checking.borrow_mut().as_mut().poll(cx));
            within(clock.as_ref(), clock.now() + TICK, poll).await
        };
        if let Some(ended) = runtime.run(step) {
            if ticks > 0 && out.messages_kind == Kind::Terminal {
                out.overwrite_line("");
            }
            return Ok(ended?);
        }
        ticks += 1;
        let line = format!(
            "check: {} of rows, {} verified",
            percent(progress.done.get(), progress.total.get().max(1)),
            Bytes(progress.bytes.get())
        );
        match out.messages_kind {
            Kind::Terminal => out.overwrite_line(&line),
            Kind::Plain if ticks % TICKS_PER_LINE == 0 => out.print(line),
            Kind::Plain => {}
        }
    }
}

fn document(report: &Report) -> Result<String, CliError> {
    let pool = |pool: &PoolReport| pool.id.to_string();
    let document = CheckDocument {
        schema: SCHEMA,
        is_clean: report.is_clean(),
        pools: report
            .pools
            .iter()
            .map(|of| PoolDocument {
                name: of.name.as_str(),
                id: pool(of),
                disk_count: of.disk_count,
                space_count: of.space_count,
                verified_bytes: of.verified.0,
                replayed_records: of.replayed_count,
            })
            .collect(),
        findings: report.findings.iter().map(finding).collect(),
        more_findings: report.more_count,
    };
    let unwritable = |source| CliError::Request { asked: "the result of the check".to_owned(), source };
    serde_json::to_string(&document).map_err(unwritable)
}

fn finding(of: &Finding) -> FindingDocument<'_> {
    FindingDocument {
        number: of.kind.number(),
        name: of.kind.name(),
        pool: of.pool.as_ref().map(dolmen_units::Name::as_str),
        message: of.kind.to_string(),
    }
}

fn show(report: &Report, depth: Depth, out: &mut Out<'_>) {
    for pool in &report.pools {
        let verified = match depth {
            Depth::Content => format!("{} verified", pool.verified),
            Depth::Map => "content not read".to_owned(),
        };
        let disks = count_of(pool.disk_count, "disk", "disks");
        let spaces = count_of(pool.space_count, "space", "spaces");
        out.line(format_args!("pool {} ({}): {disks}, {spaces}, {verified}", pool.name, pool.id));
        if pool.replayed_count > 0 {
            out.line("  it was not closed; writes under way were decided in memory, as the daemon will on the disks");
        }
    }
    let paint = out.paint_results;
    for finding in &report.findings {
        let number = paint.tone(&format!("D{}", finding.kind.number()), Tone::Bad);
        match &finding.pool {
            Some(pool) => out.line(format_args!("{number} {pool}: {}", finding.kind)),
            None => out.line(format_args!("{number} {}", finding.kind)),
        }
    }
    if report.more_count > 0 {
        out.line(format_args!("and {}", count(report.more_count, "more finding", "more findings")));
    }
    let total = report.more_count.saturating_add(u64::try_from(report.findings.len()).unwrap_or(u64::MAX));
    if total == 0 {
        out.line(paint.tone("clean: no findings", Tone::Good));
    } else {
        out.line(count(total, "finding", "findings"));
    }
}

fn count_of(number: usize, one: &str, many: &str) -> String {
    count(u64::try_from(number).unwrap_or(u64::MAX), one, many)
}
