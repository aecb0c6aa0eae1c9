//! Jobs: listed, and watched until they end.

use std::time::Duration;

use dolmen_api::{Eta, Job, JobDocument, JobPriority, JobState, Jobs, duration, verb};
use dolmen_units::Bytes;

use crate::change::Session;
use crate::client::call;
use crate::error::CliError;
use crate::out::{Kind, Out};
use crate::paint::Tone;
use crate::table::{Align, Cell, Table};
use crate::words::count;

/// Lines of progress that are not on a terminal come this many per cent apart, so that a log stays short.
const LINE_PERCENT: u64 = 5;
/// Looks at a job between two lines of progress that are not on a terminal, at most: silence looks like a hang.
const LOOKS_BETWEEN_LINES_MAX: u32 = 20;

/// How often a job is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PollInterval {
    /// The pause between two looks.
    pub pause: Duration,
}

impl PollInterval {
    /// Twice a second: a line that moves, and nothing to notice for the daemon.
    pub(crate) const USUAL: Self = Self { pause: Duration::from_millis(500) };

    /// Waits for one pause.
    // There is nothing to wait for but time, and this process has no other work.
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn wait(self) {
        std::thread::sleep(self.pause);
    }
}

/// Shows all jobs.
pub(crate) fn show_jobs(jobs: &Jobs, out: &mut Out<'_>) {
    if jobs.jobs.is_empty() {
        return out.line("no jobs");
    }
    let mut table = Table::new(&[
        ("JOB", Align::Right),
        ("POOL", Align::Left),
        ("WHAT", Align::Left),
        ("STATE", Align::Left),
        ("DONE", Align::Right),
        ("RATE", Align::Right),
        ("STILL TAKES", Align::Left),
        ("ENDED", Align::Left),
        ("RESULT", Align::Left),
    ]);
    for job in &jobs.jobs {
        table.row(vec![
            job.id.to_string().into(),
            job.pool.as_str().into(),
            what(job).into(),
            state_cell(job),
            job.done_percent().map(|done| format!("{done} %")).unwrap_or_default().into(),
            rate(job).into(),
            job.eta.map(Eta::words).unwrap_or_default().into(),
            job.ended_s.map(|at| ago(jobs.now_s, at)).unwrap_or_default().into(),
            job.result.clone().unwrap_or_default().into(),
        ]);
    }
    out.table(0, &table);
}

/// Shows one job.
pub(crate) fn show_job(document: &JobDocument, out: &mut Out<'_>) {
    let JobDocument { job, now_s, .. } = document;
    out.line(format_args!("job {} of pool {}: {}", job.id, job.pool, what(job)));
    out.line(progress(job));
    if let Some(priority) = job.priority {
        let limit =
            job.latency_limit_ms.map_or("no latency limit".to_owned(), |ms| format!("latency limit {ms} ms"));
        out.line(format_args!("priority {}, {limit}", priority_word(priority)));
    }
    let began = job.began_s.map(|at| format!("began {}", ago(*now_s, at)));
    let ended = job.ended_s.map(|at| format!("ended {}", ago(*now_s, at)));
    let times: Vec<String> = began.into_iter().chain(ended).collect();
    if !times.is_empty() {
        out.line(times.join(", "));
    }
    if let Some(result) = &job.result {
        out.line(result);
    }
}

/// Watches a job until it ends. Who knows its pool already knows that there is such a job, too.
pub(crate) fn watch(session: &mut Session<'_, '_>, id: u64, pool: Option<&str>) -> Result<(), CliError> {
    let number = id.to_string();
    let asked = call::<verb::ShowJob>([&number]);
    let mut teller = Teller::default();
    let mut pool = pool.map(str::to_owned);
    loop {
        let document = session.client.look(&asked);
        let document = document.map_err(|error| {
            teller.end_line(session.out);
            match pool.clone() {
                Some(pool) => CliError::JobUnseen { id, pool, source: Box::new(error) },
                None => error,
            }
        })?;
        let job = &document.value.job;
        pool = Some(job.pool.clone());
        teller.print(job, session.out);
        if let Some(waits_for) = job.waits_for.clone() {
            teller.end_line(session.out);
            let result = job.result.clone().unwrap_or_else(|| format!("it waits for {waits_for}"));
            return Err(CliError::JobPutOff { id, what: what(job), pool: job.pool.clone(), result });
        }
        let result = || job.result.clone().unwrap_or_else(|| "it does not say why".to_owned());
        match job.state {
            JobState::Waiting | JobState::Running => session.poll_interval.wait(),
            JobState::Done => {
                teller.end_line(session.out);
                session.show(&document, |shown, out| {
                    shown.job.result.iter().for_each(|result| out.line(result));
                });
                return Ok(());
            }
            JobState::Paused => {
                teller.end_line(session.out);
                return Err(CliError::JobPaused { id, what: what(job), pool: job.pool.clone() });
            }
            JobState::CalledOff => {
                teller.end_line(session.out);
                let (what, pool, result) = (what(job), job.pool.clone(), result());
                return Err(CliError::JobCalledOff { id, what, pool, result });
            }
            JobState::Failed => {
                teller.end_line(session.out);
                let (what, pool, result) = (what(job), job.pool.clone(), result());
                return Err(CliError::JobFailed { id, what, pool, result });
            }
        }
    }
}

/// Tells progress: one line that moves on a terminal, a line now and then elsewhere.
#[derive(Default)]
struct Teller {
    shown_step: Option<(JobState, u64)>,
    looks: u32,
    is_line_open: bool,
}

impl Teller {
    fn print(&mut self, job: &Job, out: &mut Out<'_>) {
        let line = format!("{}: {}", what(job), progress(job));
        if out.messages_kind == Kind::Terminal {
            out.overwrite_line(&line);
            self.is_line_open = true;
            return;
        }
        let step = (job.state, job.done_percent().unwrap_or_default() / LINE_PERCENT);
        self.looks += 1;
        if self.shown_step != Some(step) || self.looks > LOOKS_BETWEEN_LINES_MAX {
            self.shown_step = Some(step);
            self.looks = 0;
            out.print(line);
        }
    }

    fn end_line(&mut self, out: &mut Out<'_>) {
        if std::mem::take(&mut self.is_line_open) {
            out.print("");
        }
    }
}

/// What a job does, in words.
pub(crate) fn what(job: &Job) -> String {
    let verb = job.verb();
    if job.subject.is_empty() { verb.to_owned() } else { format!("{verb} {}", job.subject) }
}

fn priority_word(priority: JobPriority) -> &'static str {
    match priority {
        JobPriority::Low => "low",
        JobPriority::Normal => "normal",
        JobPriority::High => "high",
    }
}

fn state_cell(job: &Job) -> Cell {
    match job.state {
        JobState::Waiting if job.waits_for.is_some() => Cell::toned("put off", Tone::Caution),
        JobState::Waiting => "waiting".into(),
        JobState::Running if job.is_stopping => Cell::toned("stopping", Tone::Caution),
        JobState::Running if job.is_pausing => Cell::toned("pausing", Tone::Caution),
        JobState::Running => "running".into(),
        JobState::Paused => Cell::toned("paused", Tone::Caution),
        JobState::Done => Cell::toned("done", Tone::Good),
        JobState::CalledOff => Cell::toned("called off", Tone::Caution),
        JobState::Failed => Cell::toned("failed", Tone::Bad),
    }
}

/// What was done of a job: bytes, or rows of one that copies none.
fn done(job: &Job) -> String {
    match job.total_bytes == 0 && job.done_bytes == 0 && job.rows_done > 0 {
        true => format!("{} of {}", job.rows_done, count(job.rows_total, "row", "rows")),
        false => Bytes(job.done_bytes).to_string(),
    }
}

/// Bytes, rate and remaining time of a job as one line.
pub(crate) fn progress(job: &Job) -> String {
    let mut line = format!("{:>3} %  {}", job.done_percent().unwrap_or_default(), done(job));
    if job.total_bytes > job.done_bytes && job.state != JobState::Done {
        line.push_str(&format!(" of about {}", Bytes(job.total_bytes)));
    }
    match (job.state, &job.waits_for) {
        (_, Some(waits_for)) => line.push_str(&format!(", waiting for {waits_for}")),
        (JobState::Waiting, None) => line.push_str(", waiting for another job of the pool"),
        (JobState::Running, None) => {
            if job.rate_bytes_per_s > 0 {
                line.push_str(&format!(", {}", rate(job)));
            }
            if let Some(range) = job.eta {
                line.push_str(&format!(", {} left", range.words()));
            }
            match (job.is_stopping, job.is_pausing) {
                (true, _) => line.push_str(", ends when what is under way is done"),
                (false, true) => line.push_str(", pauses when what is under way is done"),
                (false, false) => {}
            }
        }
        (JobState::Paused, None) => {
            line.push_str(&format!(", paused: `dolmen job resume {}` goes on with it", job.id));
        }
        (JobState::Done, None) => line.push_str(&format!(", done in {}", duration(job.elapsed_s))),
        (JobState::CalledOff, None) => line.push_str(", called off"),
        (JobState::Failed, None) => line.push_str(", failed"),
    }
    line
}

fn rate(job: &Job) -> String {
    if job.rate_bytes_per_s == 0 { String::new() } else { format!("{}/s", Bytes(job.rate_bytes_per_s)) }
}

/// How long ago something was; clocks may have been set since.
pub(crate) fn ago(now_s: u64, at_s: u64) -> String {
    format!("{} ago", duration(now_s.saturating_sub(at_s)))
}
