//! Metrics for Prometheus: one look at the daemon for all who scrape within a second.
//!
//! A scrape asks questions that the daemon answers from memory, one look at a time, and ends after [`SCRAPE_LIMIT`]: what was not
//! answered by then is absent from the page.

use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use dolmen_api::{CallerRole, Df, PoolState, Status, Verb, verb};
use dolmen_metrics::{CONTENT_TYPE, Certificate, Looks, exposition};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::app::{App, Shared};
use super::identity::Identity;
use super::refusal::Refusal;
use crate::clock;

/// Path of the page.
const PATH: &str = "/metrics";
/// How long a look may take: less than Prometheus waits for.
const SCRAPE_LIMIT: Duration = Duration::from_secs(8);
/// How old a page may be that is given again.
const PAGE_AGE_MS: u64 = 1000;
/// Name of the looks in the daemon's record.
const LOOKER: &str = "console/metrics";
/// Purpose of the certificate.
const CERTIFICATE: &str = "web";

/// The page that was made last, and when, in milliseconds since the system was started.
#[derive(Debug, Default)]
pub(super) struct LastPage(Mutex<Option<(u64, String)>>);

pub(super) fn routes() -> Router<Shared> {
    Router::new().route(PATH, get(show))
}

async fn show(
    State(app): State<Shared>,
    Extension(identity): Extension<Identity>,
) -> Result<Response, Refusal> {
    identity.with_role(CallerRole::Viewer)?;
    let mut last = app.metrics.0.lock().await;
    let fresh = last.as_ref().filter(|(at_ms, _)| clock::boot_ms().saturating_sub(*at_ms) < PAGE_AGE_MS);
    let page = match fresh {
        Some((_, page)) => page.clone(),
        None => {
            let page = look(&app).await;
            *last = Some((clock::boot_ms(), page.clone()));
            page
        }
    };
    drop(last);
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], page).into_response())
}

/// Looks at the daemon, and returns the page.
async fn look(app: &App) -> String {
    let end = Instant::now() + SCRAPE_LIMIT;
    let (status, figures, counters, jobs, volumes) = tokio::join!(
        ask::<verb::ShowStatus>(app, &[], end),
        ask::<verb::ShowFigures>(app, &[], end),
        ask::<verb::ShowCounters>(app, &[], end),
        ask::<verb::ListJobs>(app, &[], end),
        ask::<verb::ListAllVolumes>(app, &[], end),
    );
    let rooms = rooms(app, status.as_ref(), end).await;
    let expires_s = app.certificates.facts().until_s;
    exposition(&Looks {
        status: status.as_ref(),
        findings: status.as_ref().map(|status| status.findings.as_slice()),
        figures: figures.as_ref(),
        counters: counters.as_ref(),
        jobs: jobs.as_ref(),
        volumes: volumes.as_ref(),
        rooms: &rooms,
        certificates: &[Certificate { name: CERTIFICATE, expires_s }],
    })
}

async fn rooms(app: &App, status: Option<&Status>, end: Instant) -> Vec<Df> {
    let mut rooms = Vec::new();
    let is_open = |pool: &&dolmen_api::Pool| !matches!(pool.state, PoolState::Closed | PoolState::Stopped);
    for pool in status.iter().flat_map(|status| &status.pools).filter(is_open) {
        rooms.extend(ask::<verb::ShowRoom>(app, &[&pool.name], end).await);
    }
    rooms
}

/// Asks a question; none where it is not answered in time.
async fn ask<V: Verb>(app: &App, values: &[&str], end: Instant) -> Option<V::Answer> {
    let path = V::DECLARATION.path_of(values);
    match timeout_at(end, app.daemon.look(&path, LOOKER, SCRAPE_LIMIT)).await {
        Ok(Ok(body)) => {
            let read = serde_json::from_slice(&body);
            read.inspect_err(|error| tracing::warn!(%error, path, "an answer of the daemon cannot be read"))
                .ok()
        }
        Ok(Err(error)) => {
            tracing::debug!(error = error.message, path, "the daemon gave no answer for the metrics");
            None
        }
        Err(_) => None,
    }
}
