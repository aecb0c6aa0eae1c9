//! `dolmen bench`: what targets do under load. The load is made by `fio`; what is asked of it and what its answers mean
//! is the business of crate `bench`. Here targets are found and looked at, consent is asked for, `fio` is started.
//!
//! Nothing is written before every target has been looked at and everything on the command line makes sense.

mod consent;
mod error;
mod file;
mod generator;
mod kept;
mod machine;
mod nbd;
mod progress;
mod target;
mod view;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicUsize, Ordering};

use dolmen_api::ExitCode;
use dolmen_bench::{
    Ending, Engine, Facts, Halt, Loads, Outcome, Plan, Profile, Report, Settings, Target, TargetPath, page,
    profiles_named, read_profiles, step_job, table,
};
use dolmen_block_linux::{DriverChoice, Runtime, RuntimeConfig};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use self::consent::consent;
pub(crate) use self::error::BenchError;
use self::generator::{Fio, Installed};
use self::machine::{command, machine, seconds_since_1970};
use self::progress::{Progress, Telling};
use self::target::{Prepared, TargetInspector};
use self::view::{PlanDocument, show_plan, show_report};
use crate::arguments::bench::BenchArguments;
use crate::arguments::common::Format;
use crate::commands::reports::{Rehearsal, ReportError, Reports, leads_to_results, paths_of};
use crate::confirm::Refusal;
use crate::error::CliError;
use crate::session::client::Client;
use crate::terminal::out::{Kind, Out};
use dolmen_causes::in_one_line;

/// Rounds where nobody says otherwise: enough for a median, and with several targets enough for a verdict.
const ROUNDS_OF_ONE: u32 = 3;
const ROUNDS_OF_SEVERAL: u32 = 5;
/// The usual profiles.
const USUAL: &str = "load";
/// A longer file lists no profiles.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Measures, and shows it.
pub(crate) fn run(
    arguments: &BenchArguments,
    client: &Client,
    format: Format,
    out: &mut Out<'_>,
) -> Result<ExitCode, CliError> {
    if arguments.reports || arguments.report.is_some() {
        return kept::run(arguments.report, client, format, out);
    }
    let profiles = profiles_of(arguments)?;
    let rehearsal = if arguments.dry_run { Rehearsal::Ask } else { Rehearsal::Make };
    let reports = Reports::check(&paths_of(&[&arguments.json, &arguments.csv, &arguments.html]), rehearsal)?;
    let installed = Installed::ask()?;
    let runtime = Runtime::new(RuntimeConfig::MODEST)?;
    let inspector = TargetInspector { arguments, profiles: &profiles, runtime: &runtime, client };
    let mut prepared = look_at(&inspector, arguments)?;
    let mut plan =
        Plan { targets: targets(&prepared), profiles: profiles.clone(), settings: settings(arguments) };
    spare(&reports, &plan.targets)?;
    check(&plan, &installed)?;
    if arguments.dry_run {
        match format {
            Format::Json => out.line(text_of(&PlanDocument::new(&plan, &prepared))?),
            Format::Text => show_plan(&plan, &prepared, out),
        }
        return Ok(ExitCode::Ok);
    }
    consent(&prepared, &arguments.destroy, out)?;
    // From here on a signal has something to clear away, and nobody is asked any more.
    let signals = Signals::heed()?;
    prepared.iter_mut().try_for_each(Prepared::make)?;
    plan.targets = targets(&prepared);
    check(&plan, &installed)?;
    let filled = plan.targets.iter().enumerate().filter(|(_, target)| target.is_filled);
    let fill: Vec<usize> = filled.map(|(at, _)| at).collect();
    let progress = Progress::new(&plan, if arguments.steps { Telling::Steps } else { Telling::Words });
    let (report, halted) = measured(&plan, &fill, &signals, progress, out)?;
    // The files that were made go away before anything else is said or done.
    drop(prepared);
    show(&report, arguments, format, out)?;
    match halted {
        None => Ok(ExitCode::Ok),
        Some(halt) => Err(ended_by(halt, &signals).into()),
    }
}

/// Whether no report would be written over a target.
fn spare(reports: &Reports<'_>, targets: &[Target]) -> Result<(), BenchError> {
    for target in targets {
        let TargetPath::File { path } = &target.path else { continue };
        let over = reports.over(Path::new(path));
        let over = over.map_err(|source| BenchError::Look { target: target.name.clone(), source })?;
        if let Some(report) = over {
            let what = format!("the target {}", target.name);
            return Err(ReportError::Over { path: report.to_path_buf(), what }.into());
        }
    }
    Ok(())
}

fn targets(prepared: &[Prepared]) -> Vec<Target> {
    prepared.iter().map(|prepared| prepared.target.clone()).collect()
}

fn profiles_of(arguments: &BenchArguments) -> Result<Vec<Profile>, BenchError> {
    let mut own = Vec::new();
    for path in &arguments.profiles {
        let shown = path.display().to_string();
        let text = read_file(path).map_err(|source| BenchError::Read { path: shown.clone(), source })?;
        own.extend(read_profiles(&shown, &text)?);
    }
    let mut profiles: Vec<Profile> = Vec::new();
    if arguments.profile.is_empty() && !own.is_empty() {
        profiles.extend(own);
    } else {
        let usual = [USUAL.to_owned()];
        let names = if arguments.profile.is_empty() { usual.as_slice() } else { &arguments.profile };
        for name in names {
            let named = profiles_named(name, &own)?;
            let is_new = |profile: &Profile| profiles.iter().all(|other| other.name != profile.name);
            let new: Vec<Profile> = named.into_iter().filter(is_new).collect();
            profiles.extend(new);
        }
    }
    for profile in &mut profiles {
        change(profile, arguments)?;
    }
    Ok(profiles)
}

fn read_file(path: &Path) -> std::io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// What the command line says against a profile.
fn change(profile: &mut Profile, arguments: &BenchArguments) -> Result<(), BenchError> {
    if let (Loads::Outstanding(list), false) = (&mut profile.loads, arguments.outstanding.is_empty()) {
        list.clone_from(&arguments.outstanding);
    }
    if let (Loads::Outstanding(_), Some(workers)) = (&profile.loads, arguments.workers) {
        profile.workers = workers;
    }
    profile.check().map_err(|fault| BenchError::Nonsense { name: profile.name.clone(), fault })
}

fn settings(arguments: &BenchArguments) -> Settings {
    let usual = if arguments.targets.len() > 1 { ROUNDS_OF_SEVERAL } else { ROUNDS_OF_ONE };
    Settings {
        runtime_s: arguments.runtime,
        ramp_s: arguments.ramp,
        rounds: arguments.rounds.unwrap_or(usual),
        flush: arguments.flush,
        engine: arguments.engine.engine(),
        buffered: buffered_engine(),
    }
}

/// Through the page cache libaio does one I/O after another, so that io_uring carries them wherever the system allows it.
fn buffered_engine() -> Engine {
    match Runtime::new(RuntimeConfig { driver: DriverChoice::Uring, ..RuntimeConfig::MODEST }) {
        Ok(_) => Engine::IoUring,
        Err(_) => Engine::Libaio,
    }
}

fn look_at(inspector: &TargetInspector<'_>, arguments: &BenchArguments) -> Result<Vec<Prepared>, CliError> {
    let mut all: Vec<Prepared> = Vec::new();
    if let Some(found) = arguments.destroy.iter().find(|name| !arguments.targets.contains(name)) {
        return Err(Refusal::NoneOfThese { found: found.clone() }.into());
    }
    for name in &arguments.targets {
        if let Some(first) = all.iter().find(|earlier| earlier.target.name == *name) {
            let (first, second) = (first.target.name.clone(), name.clone());
            return Err(BenchError::Twice { first, second }.into());
        }
        let prepared = inspector.prepare(name, all.len() + 1)?;
        if let Some(first) = all.iter().find(|earlier| earlier.identity == prepared.identity) {
            let (first, second) = (first.target.name.clone(), name.clone());
            return Err(BenchError::Twice { first, second }.into());
        }
        all.push(prepared);
    }
    Ok(all)
}

/// Whether the plan can be carried out by the `fio` that is there.
fn check(plan: &Plan, installed: &Installed) -> Result<(), BenchError> {
    plan.check()?;
    for target in &plan.targets {
        installed.check(plan.settings.engine_for(target.access), &target.name)?;
    }
    for step in plan.steps().iter().take(plan.targets.len()) {
        step_job(plan, step)?;
    }
    Ok(())
}

/// Signals that end a run in order.
struct Signals {
    came: Arc<AtomicBool>,
    which: Arc<AtomicUsize>,
}

impl Signals {
    fn heed() -> Result<Self, BenchError> {
        let signals = Self { came: Arc::default(), which: Arc::default() };
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            let number = usize::try_from(signal).unwrap_or(0);
            signal_hook::flag::register_usize(signal, Arc::clone(&signals.which), number)
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&signals.came)))
                .map_err(|source| BenchError::Spawn { doing: "heeding signals for", source })?;
        }
        Ok(signals)
    }

    /// The one that came.
    fn which(&self) -> Option<i32> {
        i32::try_from(self.which.load(Ordering::Relaxed)).ok().filter(|number| *number != 0)
    }
}

fn measured(
    plan: &Plan,
    fill: &[usize],
    signals: &Signals,
    mut progress: Progress<'_>,
    out: &mut Out<'_>,
) -> Result<(Report, Option<Halt<BenchError>>), BenchError> {
    let mut fio = Fio::new(Arc::clone(&signals.came))?;
    let started_s = seconds_since_1970();
    let Outcome { runs, idle, halted } =
        dolmen_bench::measure(plan, fill, &mut fio, &mut |event| progress.print(&event, out));
    if out.messages_kind == Kind::Terminal {
        out.overwrite_line("");
    }
    let ending = match &halted {
        None => Ending::Complete,
        Some(Halt::Interrupted) => Ending::Interrupted,
        Some(halt) => Ending::Failed { why: in_one_line(halt) },
    };
    let facts = Facts { ending, started_s, command: command(), machine: machine(), idle };
    Ok((Report::new(plan, runs, facts), halted))
}

/// After everything was kept and cleared away, the process ends by the signal that came, as its caller expects.
fn ended_by(halt: Halt<BenchError>, signals: &Signals) -> BenchError {
    match halt {
        Halt::Interrupted => {
            if let Some(signal) = signals.which() {
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
            BenchError::Interrupted
        }
        Halt::Failed(error) => {
            BenchError::Halted { what: "making the load".to_owned(), why: in_one_line(&error) }
        }
        Halt::Answer { .. } | Halt::Job(_) => {
            let why = std::error::Error::source(&halt).map(in_one_line).unwrap_or_default();
            BenchError::Halted { what: halt.to_string(), why }
        }
    }
}

fn text_of(document: &impl serde::Serialize) -> Result<String, CliError> {
    let unwritable = |source| CliError::Request { asked: "the report".to_owned(), source };
    serde_json::to_string(document).map_err(unwritable)
}

/// Shows a report, and writes the files that were asked for.
fn show(
    report: &Report,
    arguments: &BenchArguments,
    format: Format,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let document = text_of(report)?;
    match format {
        Format::Json => out.line(&document),
        Format::Text => show_report(report, out),
    }
    let table = || table::render(report).map_err(|source| CliError::Table { source });
    write(arguments.json.as_deref(), "the document", || Ok(format!("{document}\n")), out)?;
    write(arguments.csv.as_deref(), "the table", table, out)?;
    write(arguments.html.as_deref(), "the page", || Ok(page::render(report)), out)
}

fn write(
    path: Option<&Path>,
    what: &str,
    make: impl FnOnce() -> Result<String, CliError>,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    let Some(path) = path else { return Ok(()) };
    let text = make()?;
    if leads_to_results(path) {
        // Opened again, a file would lose what the results have put into it.
        out.show(&text);
        return Ok(());
    }
    let written = std::fs::write(path, text);
    written.map_err(|source| CliError::Write { path: path.to_path_buf(), source })?;
    out.print(format_args!("{what} is in {}", path.display()));
    Ok(())
}
