//! The planner: what a list of disks would give. It asks no daemon and opens no disk.
//!
//! A plan is computed on a thread of its own, one at a time: it takes processors, and nothing of the daemon.

use axum::extract::{Extension, Query, State};
use axum::routing::get;
use axum::{Json, Router};
use dolmen_api::CallerRole;
use dolmen_plan::{DiskList, Layout, ListError, Plan, PlanRequest};

use super::app::Shared;
use super::identity::Identity;
use super::refusal::Refusal;

/// Path of the plan.
const PATH: &str = "/plan";
/// Resiliencies that are planned at once, at most.
const LAYOUTS_MAX: usize = 8;
/// Disks that are added, at most.
const ADDED_MAX: usize = 8;

pub(super) fn routes() -> Router<Shared> {
    Router::new().route(PATH, get(plan))
}

/// Answers with the plan of `disk=4x8TB&disk=4TB&add=8TB&resiliency=mirror:2`; each may be given several times.
async fn plan(
    State(app): State<Shared>,
    Extension(identity): Extension<Identity>,
    query: Result<Query<Vec<(String, String)>>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Plan>, Refusal> {
    identity.with_role(CallerRole::Viewer)?;
    let Query(pairs) = query.map_err(|rejection| Refusal::unreadable(&rejection.body_text()))?;
    let request = request(&pairs)?;
    let Ok(turn) = app.plans.clone().acquire_owned().await else {
        return Err(Refusal::internal("the planner has ended"));
    };
    // A caller that does not wait any more leaves the thread its turn: no second one begins beside it.
    let made = tokio::task::spawn_blocking(move || {
        let plan = Plan::make(&request);
        drop(turn);
        plan
    });
    made.await.map(Json).map_err(|_| Refusal::internal("the plan was cut short"))
}

fn request(pairs: &[(String, String)]) -> Result<PlanRequest, Refusal> {
    if let Some((name, _)) =
        pairs.iter().find(|(name, _)| !["disk", "add", "resiliency"].contains(&name.as_str()))
    {
        return Err(Refusal::unreadable(&format!("a plan takes disk, add and resiliency; found {name:?}")));
    }
    let of = |name: &'static str| {
        pairs.iter().filter(move |(found, _)| found == name).map(|(_, text)| text.as_str())
    };
    let refused = |error: ListError| Refusal::unreadable(&error);
    let mut list = DiskList::new();
    for text in of("disk") {
        list.add_typed(text).map_err(refused)?;
    }
    let disks = list.finish().map_err(refused)?;
    let mut added = DiskList::after(&disks);
    for text in of("add") {
        added.add_typed(text).map_err(refused)?;
    }
    let added = added.into_disks().split_off(disks.list().len());
    let layouts: Result<Vec<Layout>, _> = of("resiliency").map(str::parse).collect();
    let layouts = layouts.map_err(|error| Refusal::unreadable(&error))?;
    for (what, found, most) in
        [("resiliencies", layouts.len(), LAYOUTS_MAX), ("disks to add", added.len(), ADDED_MAX)]
    {
        if found > most {
            return Err(Refusal::unreadable(&format!(
                "{found} {what} are given; {most} are planned at once"
            )));
        }
    }
    Ok(PlanRequest { layouts, added, ..PlanRequest::usual(disks) })
}
