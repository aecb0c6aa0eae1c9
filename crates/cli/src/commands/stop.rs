//! `dolmen stop`.

use std::time::Duration;

use dolmen_api::{Shutdown, verb};

use crate::arguments::common::Intent;
use crate::arguments::daemon::StopArguments;
use crate::commands::daemon::daemon_at;
use crate::error::CliError;
use crate::session::change::Session;
use crate::session::client::call;

/// How long a daemon that said that it ends may take for it.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// `dolmen stop`
pub(crate) fn stop(session: &mut Session<'_, '_>, arguments: &StopArguments) -> Result<(), CliError> {
    let request = Shutdown { hand_over: arguments.hand_over, dry_run: false };
    let daemon = daemon_at(session.client.socket());
    session.change(&call::<verb::StopDaemon>([]), &request, arguments.dry.intent())?;
    if arguments.dry.intent() == Intent::DryRun {
        return Ok(());
    }
    // It answers before it has let go of its locks, and the next one would find them taken.
    let looks = STOP_TIMEOUT.as_millis() / session.poll_interval.pause.as_millis().max(1);
    for _ in 0..looks {
        if daemon.is_none() || daemon_at(session.client.socket()) != daemon {
            break;
        }
        session.poll_interval.wait();
    }
    Ok(())
}
