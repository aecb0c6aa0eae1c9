//! Jobs as people see them.

use dolmen_api::{Eta, Job, JobDocument, JobPriority, JobState, Jobs, duration};
use dolmen_units::Bytes;

use crate::terminal::out::Out;
use crate::terminal::paint::Tone;
use crate::terminal::table::{Align, Cell, Table};
use crate::views::words::count;

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
        ("RESULT", Align::Sentence),
    ])
    .dropping(&["ENDED", "POOL", "RATE", "STILL TAKES"]);
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
