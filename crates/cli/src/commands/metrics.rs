//! `dolmen metrics`: the metrics of this host, as dolmen-web serves them.

use dolmen_api::{PoolState, verb};
use dolmen_metrics::{Looks, exposition};

use crate::error::CliError;
use crate::session::change::Session;
use crate::session::client::call;

/// Prints the metrics. A daemon that does not answer is a metric, too, and an error.
pub(crate) fn metrics(session: &mut Session<'_, '_>) -> Result<(), CliError> {
    let status = match session.client.look(&call::<verb::ShowStatus>([])) {
        Ok(status) => status.value,
        Err(error) => {
            session.out.show(&exposition(&Looks::default()));
            return Err(error);
        }
    };
    let figures = session.client.look(&call::<verb::ShowFigures>([]))?.value;
    let counters = session.client.look(&call::<verb::ShowCounters>([]))?.value;
    let jobs = session.client.look(&call::<verb::ListJobs>([]))?.value;
    let volumes = session.client.look(&call::<verb::ListAllVolumes>([]))?.value;
    let mut rooms = Vec::new();
    for pool in &status.pools {
        // A pool may be closed or stop between two questions: its room is absent then.
        if !matches!(pool.state, PoolState::Closed | PoolState::Stopped)
            && let Ok(room) = session.client.look(&call::<verb::ShowRoom>([&pool.name]))
        {
            rooms.push(room.value);
        }
    }
    session.out.show(&exposition(&Looks {
        status: Some(&status),
        findings: Some(&status.findings),
        figures: Some(&figures),
        counters: Some(&counters),
        jobs: Some(&jobs),
        volumes: Some(&volumes),
        rooms: &rooms,
        certificates: &[],
    }));
    Ok(())
}
