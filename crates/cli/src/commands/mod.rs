//! Each command as what it asks of the daemon.

pub(crate) mod bench;
pub(crate) mod check;
pub(crate) mod clear;
pub(crate) mod complete;
pub(crate) mod copy;
pub(crate) mod daemon;
pub(crate) mod dedup;
pub(crate) mod disk;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod figures;
pub(crate) mod history;
pub(crate) mod image;
pub(crate) mod job;
pub(crate) mod manual;
pub(crate) mod metrics;
pub(crate) mod plan;
pub(crate) mod pool;
pub(crate) mod quota;
pub(crate) mod reports;
pub(crate) mod service;
pub(crate) mod service_mount;
pub(crate) mod share;
mod share_files;
pub(crate) mod space;
pub(crate) mod status;
pub(crate) mod stop;
pub(crate) mod trash;
pub(crate) mod volume;

use dolmen_api::{ExitCode, Simple, verb};

use crate::arguments::Command;
use crate::arguments::service::ServiceCommand;
use crate::error::CliError;
use crate::session::change::Session;
use crate::session::client::call;

/// Carries out a command that needs the daemon.
pub(crate) fn run(session: &mut Session<'_, '_>, command: Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Status(arguments) => return status::status(session, arguments),
        Command::Pool(command) => pool::pool(session, command)?,
        Command::Disk(command) => disk::disk(session, command)?,
        Command::Space(command) => space::space(session, command)?,
        Command::Volume(command) => volume::volume(session, command)?,
        Command::Dedup(command) => dedup::dedup(session, command)?,
        Command::Image(command) => image::image(session, command)?,
        Command::Share(command) => share::share(session, command)?,
        Command::Trash(command) => trash::trash(session, command)?,
        Command::Serve(arguments) => space::serve(session, &arguments)?,
        Command::Unserve(arguments) => {
            let asked = call::<verb::UnserveSpace>(space::space_words(&arguments.space));
            session.change(&asked, &Simple::default(), arguments.dry.intent())?;
        }
        Command::Df(filter) => status::df(session, &filter)?,
        Command::Jobs(arguments) => job::jobs(session, &arguments)?,
        Command::Job(command) => job::job(session, &command)?,
        Command::Why(arguments) => status::why(session, &arguments)?,
        Command::Events(arguments) => events::run(session, &arguments)?,
        Command::Iostat(arguments) => figures::iostat(session, &arguments)?,
        Command::Metrics => metrics::metrics(session)?,
        Command::Top(arguments) => figures::top(session, &arguments)?,
        Command::History(arguments) => history::run(session, &arguments)?,
        Command::Scrub(arguments) => pool::scrub(session, &arguments)?,
        Command::Stop(arguments) => stop::stop(session, &arguments)?,
        Command::Service(ServiceCommand::Mount(arguments)) => service_mount::mount(session, &arguments)?,
        Command::Version => return status::version(session),
        Command::Check(_)
        | Command::Plan(_)
        | Command::Bench(_)
        | Command::Copy(_)
        | Command::Daemon(_)
        | Command::Service(_)
        | Command::Completion(_)
        | Command::Explain(_)
        | Command::Man(_) => {
            unreachable!("commands that need no daemon are carried out before there is a session")
        }
    }
    Ok(ExitCode::Ok)
}
