//! `dolmen status`, `df`, `why` and `version`.

use std::path::Path;

use dolmen_api::{ExitCode, Health, verb};

use crate::arguments::common::{Format, PoolFilter};
use crate::arguments::{StatusArguments, WhyArguments};
use crate::commands::pool::show_others;
use crate::error::CliError;
use crate::session::change::Session;
use crate::session::client::call;
use crate::session::disks::absolute;
use crate::views::room::show_df;
use crate::views::status::show_status;
use crate::views::why::show_why;

/// The exit code answers for scripts what the first word answers for people; a warning is no failure.
pub(crate) fn status(
    session: &mut Session<'_, '_>,
    arguments: StatusArguments,
) -> Result<ExitCode, CliError> {
    let Some(every) = arguments.watch else { return status_once(session) };
    crate::session::repeat::watch(session, every, |session| status_once(session).map(drop))?;
    Ok(ExitCode::Ok)
}

fn status_once(session: &mut Session<'_, '_>) -> Result<ExitCode, CliError> {
    let document = session.client.look(&call::<verb::ShowStatus>([]))?;
    session.show(&document, show_status);
    if document.value.pools.is_empty() {
        // Who has none at all may have just moved their disks here.
        show_others(session, &[]);
    }
    Ok(match document.value.health {
        Health::Healthy | Health::Warning => ExitCode::Ok,
        Health::Unhealthy => ExitCode::Unhealthy,
    })
}

/// `dolmen df`
pub(crate) fn df(session: &mut Session<'_, '_>, filter: &PoolFilter) -> Result<(), CliError> {
    let pools = match &filter.pool {
        Some(pool) => vec![pool.to_string()],
        None => {
            let document = session.client.look(&call::<verb::ListPools>([]))?;
            let open = document.value.pools.into_iter();
            open.filter(|pool| pool.state != dolmen_api::PoolState::Closed).map(|pool| pool.name).collect()
        }
    };
    if pools.is_empty() && session.format == Format::Text {
        session.out.line("no pool is open");
    }
    for (at, pool) in pools.iter().enumerate() {
        let document = session.client.look(&call::<verb::ShowRoom>([pool]))?;
        if at > 0 && session.format == Format::Text {
            session.out.line("");
        }
        session.show(&document, show_df);
    }
    Ok(())
}

/// `dolmen why`
pub(crate) fn why(session: &mut Session<'_, '_>, arguments: &WhyArguments) -> Result<(), CliError> {
    // A path means a file or a device here; all else is a name that the daemon knows.
    let path = Path::new(&arguments.object);
    let is_path = arguments.object.starts_with(['/', '.']);
    let object = if is_path { absolute(&path.to_path_buf())? } else { arguments.object.clone() };
    let document = session.client.look(&call::<verb::ExplainObject>([&object]))?;
    session.show(&document, show_why);
    Ok(())
}

/// The version of the command is told also when no daemon answers.
pub(crate) fn version(session: &mut Session<'_, '_>) -> Result<ExitCode, CliError> {
    if session.format == Format::Text {
        session.out.line(format_args!(
            "dolmen {}, API {}",
            env!("CARGO_PKG_VERSION"),
            dolmen_api::API_VERSION
        ));
    }
    let document = session.client.look(&call::<verb::ShowVersion>([]))?;
    session.show(&document, |version, out| {
        out.line(format_args!("daemon {}, API {}", version.daemon, version.api));
    });
    Ok(ExitCode::Ok)
}
