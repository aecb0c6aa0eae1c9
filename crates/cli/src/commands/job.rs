//! `dolmen jobs` and `dolmen job`.

use dolmen_api::{JobPriority, SetJob, Simple, verb};

use crate::arguments::job::{JobChange, JobCommand, JobSet, JobsArguments, PriorityWord};
use crate::arguments::values::LatencyLimit;
use crate::error::CliError;
use crate::session::change::Session;
use crate::session::client::call;
use crate::session::job_watch::watch;
use crate::views::jobs::{show_job, show_jobs};

/// `dolmen jobs`
pub(crate) fn jobs(session: &mut Session<'_, '_>, arguments: &JobsArguments) -> Result<(), CliError> {
    match arguments.job {
        Some(job) if arguments.wait => watch(session, job, None)?,
        Some(job) => {
            let document = session.client.look(&call::<verb::ShowJob>([&job.to_string()]))?;
            session.show(&document, show_job);
        }
        None => {
            let document = session.client.look(&call::<verb::ListJobs>([]))?;
            session.show(&document, show_jobs);
        }
    }
    Ok(())
}

/// `dolmen job`
pub(crate) fn job(session: &mut Session<'_, '_>, command: &JobCommand) -> Result<(), CliError> {
    let request = Simple::default();
    match command {
        JobCommand::Pause(JobChange { job, dry }) => {
            session.change(&call::<verb::PauseJob>([&job.to_string()]), &request, dry.intent())
        }
        JobCommand::Resume(JobChange { job, dry }) => {
            session.change(&call::<verb::ResumeJob>([&job.to_string()]), &request, dry.intent())
        }
        JobCommand::Stop(JobChange { job, dry }) => {
            session.change(&call::<verb::StopJob>([&job.to_string()]), &request, dry.intent())
        }
        JobCommand::Set(arguments) => return job_set(session, arguments),
    }
    .map(drop)
}

fn job_set(session: &mut Session<'_, '_>, arguments: &JobSet) -> Result<(), CliError> {
    let request = SetJob {
        priority: arguments.priority.map(|priority| match priority {
            PriorityWord::Low => JobPriority::Low,
            PriorityWord::Normal => JobPriority::Normal,
            PriorityWord::High => JobPriority::High,
        }),
        latency_limit_ms: arguments.latency_limit.map(LatencyLimit::ms),
        dry_run: false,
    };
    session
        .change(&call::<verb::SetJob>([&arguments.job.to_string()]), &request, arguments.dry.intent())
        .map(drop)
}
