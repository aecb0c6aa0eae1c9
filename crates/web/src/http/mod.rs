//! What clients may ask for over HTTP, and what every request has to fulfil before.

mod account;
mod alerts;
mod app;
mod guard;
mod identity;
mod metrics;
mod pages;
mod passwords;
mod plan;
mod refusal;
mod stream;
mod users;
mod verbs;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;

pub(crate) use app::{App, Shared};
pub(crate) use guard::Client;

/// Returns all routes. Each request passes the guard.
pub(crate) fn routes(app: Shared) -> Router {
    Router::new()
        .merge(pages::routes())
        .merge(account::routes())
        .merge(users::routes())
        .merge(verbs::routes())
        .merge(alerts::routes())
        .merge(metrics::routes())
        .merge(plan::routes())
        .route(stream::PATH, get(stream::listen))
        .fallback(refusal::no_such_route)
        .method_not_allowed_fallback(refusal::no_such_method)
        .layer(from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}
