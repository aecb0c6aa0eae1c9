//! Jobs watched until they end.

use dolmen_api::{Change, Job, JobState, verb};

use crate::arguments::common::{Format, Waiting};
use crate::error::CliError;
use crate::session::change::Session;
use crate::session::client::call;
use crate::terminal::out::{Kind, Out};
use crate::views::jobs::{progress, what};

/// Lines of progress that are not on a terminal come this many per cent apart, so that a log stays short.
const LINE_PERCENT: u64 = 5;
/// Looks at a job between two lines of progress that are not on a terminal, at most: silence looks like a hang.
const LOOKS_BETWEEN_LINES_MAX: u32 = 20;

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

impl Session<'_, '_> {
    /// Waits for the job that carries a change on, unless an option forbids it.
    pub(crate) fn wait_for(&mut self, change: &Change, waiting: &Waiting) -> Result<(), CliError> {
        let Some(job) = &change.job else { return Ok(()) };
        if waiting.no_wait {
            if self.format == Format::Text {
                self.out.print(goes_on(job, &change.further_jobs));
            }
            return Ok(());
        }
        watch(self, job.id, Some(&job.pool))
    }
}

/// Which jobs go on with a change, and how they are watched.
fn goes_on(first: &Job, further: &[Job]) -> String {
    let Some((last, between)) = further.split_last() else {
        return format!("job {0} goes on with it; `dolmen jobs {0} --wait` watches it", first.id);
    };
    let ids: Vec<String> = std::iter::once(first).chain(between).map(|job| job.id.to_string()).collect();
    format!(
        "jobs {} and {} go on with it; `dolmen jobs` shows them, and `dolmen jobs {} --wait` watches the last one",
        ids.join(", "),
        last.id,
        last.id
    )
}
