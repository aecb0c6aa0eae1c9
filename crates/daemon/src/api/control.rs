//! The API: HTTP/1.1 on a Unix socket, on a thread of its own. Every request becomes a message to the engine.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::serve::IncomingStream;
use dolmen_api::{
    AddDisks, AttachSpace, Attachments, Change, ConvertSpace, Counters, CreatePool, CreateSpace, DeleteSpace,
    Destroy, DetachSpace, Devices, Df, Disks, DrainWriteCache, ErrorBody, ErrorCode, ErrorDocument, Events,
    Exports, Figures, ForgetDisk, ImportPool, JobDocument, Jobs, LocateDisk, OnlineDisk, PoolDocument, Pools,
    PurgeTrash, REQUEST_BYTES_MAX, RenameSpace, ReplaceDisk, ResizeSpace, ResizeWriteCache, RestoreSpace,
    ServeSpace, SetAlertAt, SetDisk, SetDiskRole, SetEnclosure, SetJob, SetKeepRoom, SetLimits,
    SetRepairAfter, SetReserve, Shutdown, Simple, SpaceDocument, Spaces, Status, Trash, Version, Why,
    read_request,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::api::api_socket::ApiSocket;
use crate::caller::{Answer, Caller};
use crate::health::version;

/// Requests that are carried out at a time; more wait.
const REQUESTS_MAX: usize = 64;
/// How long answers under way may take to leave at the end.
const GOODBYE: Duration = Duration::from_secs(3);

#[derive(Clone)]
struct App {
    caller: Caller,
    end: Arc<Notify>,
    requests: Arc<Semaphore>,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy)]
struct Peer {
    uid: Option<u32>,
}

impl axum::extract::connect_info::Connected<IncomingStream<'_, ApiSocket>> for Peer {
    fn connect_info(stream: IncomingStream<'_, ApiSocket>) -> Self {
        Self { uid: stream.io().peer_cred().ok().map(|credentials| credentials.uid()) }
    }
}

/// An error on its way out.
struct Failure(ErrorBody);

impl From<ErrorBody> for Failure {
    fn from(error: ErrorBody) -> Self {
        Self(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, Json(ErrorDocument::from(self.0))).into_response()
    }
}

type Out<T> = Result<Json<T>, Failure>;

fn out<T>(answer: Answer<T>) -> Out<T> {
    answer.map(Json).map_err(Failure)
}

/// The document in a body.
fn parse<T: DeserializeOwned + Serialize>(body: &Bytes) -> Result<T, Failure> {
    read_request(body).map_err(|error| {
        let message = format!("the request cannot be read: {error}; nothing was changed");
        Failure(ErrorBody::new(ErrorCode::BadRequest, message))
    })
}

macro_rules! asked {
    ($(#[$doc:meta])* $name:ident, $path:literal, $answer:ty, $method:ident $(, $text:literal $part:ident: $kind:ty)*) => {
        $(#[$doc])*
        #[utoipa::path(get, path = $path, $(params(($text = $kind, Path)),)*
            responses((status = 200, body = $answer), (status = "default", body = ErrorDocument)))]
        async fn $name(State(app): State<App> $(, Path($part): Path<$kind>)*) -> Out<$answer> {
            out(app.caller.question(move |engine| engine.$method($($part),*)).await)
        }
    };
}

macro_rules! change {
    ($(#[$doc:meta])* $name:ident, $path:literal, $request:ty, $method:ident) => {
        $(#[$doc])*
        #[utoipa::path(post, path = $path, request_body = $request,
            responses((status = 200, body = Change), (status = "default", body = ErrorDocument)))]
        async fn $name(State(app): State<App>, body: Bytes) -> Out<Change> {
            let request: $request = parse(&body)?;
            out(app.caller.change(move |engine| engine.$method(request)).await)
        }
    };
    ($(#[$doc:meta])* $name:ident, $path:literal, $request:ty, $method:ident, $ta:literal $a:ident) => {
        $(#[$doc])*
        #[utoipa::path(post, path = $path, request_body = $request, params(($ta = String, Path)),
            responses((status = 200, body = Change), (status = "default", body = ErrorDocument)))]
        async fn $name(State(app): State<App>, Path($a): Path<String>, body: Bytes) -> Out<Change> {
            let request: $request = parse(&body)?;
            out(app.caller.change(move |engine| engine.$method($a, request)).await)
        }
    };
    ($(#[$doc:meta])* $name:ident, $path:literal, $request:ty, $method:ident, $ta:literal $a:ident, $tb:literal $b:ident) => {
        $(#[$doc])*
        #[utoipa::path(post, path = $path, request_body = $request,
            params(($ta = String, Path), ($tb = String, Path)),
            responses((status = 200, body = Change), (status = "default", body = ErrorDocument)))]
        async fn $name(State(app): State<App>, Path(($a, $b)): Path<(String, String)>, body: Bytes) -> Out<Change> {
            let request: $request = parse(&body)?;
            out(app.caller.change(move |engine| engine.$method($a, $b, request)).await)
        }
    };
}

asked!(
    /// The state of everything.
    get_status, "/v1/status", Status, status);
asked!(
    /// All pools.
    get_pools, "/v1/pools", Pools, pools);
asked!(
    /// One pool.
    get_pool, "/v1/pools/{pool}", PoolDocument, show_pool, "pool" pool: String);
asked!(
    /// The disks of a pool.
    get_disks, "/v1/pools/{pool}/disks", Disks, disks, "pool" pool: String);
asked!(
    /// Where the bytes of a pool are.
    get_df, "/v1/pools/{pool}/df", Df, df, "pool" pool: String);
asked!(
    /// The spaces of a pool.
    get_spaces, "/v1/pools/{pool}/spaces", Spaces, spaces, "pool" pool: String);
asked!(
    /// What is in the trash of a pool.
    get_trash, "/v1/pools/{pool}/trash", Trash, trash, "pool" pool: String);
asked!(
    /// What is in the trash of all pools.
    get_all_trash, "/v1/trash", Trash, all_trash);
asked!(
    /// All spaces.
    get_all_spaces, "/v1/spaces", Spaces, all_spaces);
asked!(
    /// Devices that belong to no open pool.
    get_devices, "/v1/devices", Devices, devices);
asked!(
    /// Spaces that are attached as block devices.
    get_attachments, "/v1/attachments", Attachments, attachments);
asked!(
    /// Spaces that are served over NBD.
    get_exports, "/v1/exports", Exports, exports);
asked!(
    /// Jobs that run, wait, or ended lately.
    get_jobs, "/v1/jobs", Jobs, jobs);
asked!(
    /// One job.
    get_job, "/v1/jobs/{id}", JobDocument, job, "id" id: u64);
asked!(
    /// Why a pool, a disk, a space or a job is as it is.
    get_why, "/v1/why/{object}", Why, why, "object" object: String);

/// Which events are asked for.
#[derive(Debug, Deserialize)]
struct EventQuery {
    #[serde(default)]
    since: u64,
    pool: Option<String>,
}

/// What has happened, behind an event that is known already.
#[utoipa::path(get, path = "/v1/events", params(
    ("since" = Option<u64>, Query, description = "the number of the last event that is known; from the first on without it"),
    ("pool" = Option<String>, Query, description = "only of this pool")),
    responses((status = 200, body = Events), (status = "default", body = ErrorDocument)))]
async fn get_events(State(app): State<App>, query: Result<Query<EventQuery>, QueryRejection>) -> Out<Events> {
    let Query(EventQuery { since, pool }) = query.map_err(|rejection| {
        let message = format!("the request cannot be read: {}", rejection.body_text());
        Failure(ErrorBody::new(ErrorCode::BadRequest, message))
    })?;
    out(app.caller.ask(move |engine| engine.list_events(since, pool)).await)
}

asked!(
    /// What was counted since the daemon was started.
    get_counters, "/v1/counters", Counters, counters);
asked!(
    /// What was asked of spaces and disks since they are counted, and how long it took.
    get_figures, "/v1/figures", Figures, figures);

change!(
    /// Has a job stand until it is resumed.
    post_job_pause, "/v1/jobs/{id}/pause", Simple, pause_job, "id" id);
change!(
    /// Lets a job that was paused go on.
    post_job_resume, "/v1/jobs/{id}/resume", Simple, resume_job, "id" id);
change!(
    /// Ends a job before it is done.
    post_job_stop, "/v1/jobs/{id}/stop", Simple, stop_job, "id" id);
change!(
    /// Sets how a job shares the disks with clients.
    post_job_set, "/v1/jobs/{id}/set", SetJob, set_job, "id" id);
change!(
    /// Makes a pool.
    post_pool, "/v1/pools", CreatePool, create_pool);
change!(
    /// Opens a pool that is not open here.
    post_import, "/v1/pools/import", ImportPool, import_pool);
change!(
    /// Gives a pool up, so that any host may open it.
    post_export, "/v1/pools/{pool}/export", Simple, export_pool, "pool" pool);
change!(
    /// Destroys a pool.
    post_destroy, "/v1/pools/{pool}/destroy", Destroy, destroy_pool, "pool" pool);
change!(
    /// Reads and verifies everything in a pool.
    post_scrub, "/v1/pools/{pool}/scrub", Simple, scrub, "pool" pool);
change!(
    /// Moves slabs from full disks to emptier ones.
    post_rebalance, "/v1/pools/{pool}/rebalance", Simple, rebalance, "pool" pool);
change!(
    /// Calls a rebalance off.
    post_rebalance_cancel, "/v1/pools/{pool}/rebalance/cancel", Simple, cancel_rebalance, "pool" pool);
change!(
    /// Ends the warning about errors of disks that somebody has seen.
    post_acknowledge, "/v1/pools/{pool}/acknowledge", Simple, acknowledge, "pool" pool);
change!(
    /// Copies what disks have missed.
    post_resync, "/v1/pools/{pool}/resync", Simple, resync, "pool" pool);
change!(
    /// Gives a write cache another size.
    post_write_cache, "/v1/pools/{pool}/write_cache/resize", ResizeWriteCache, resize_write_cache, "pool" pool);
change!(
    /// Sets from how much on a write cache is emptied, and how fast.
    post_write_cache_drain, "/v1/pools/{pool}/write_cache/drain", DrainWriteCache, drain_write_cache, "pool" pool);
change!(
    /// Sets how long a disk may be absent before what it had is rebuilt on the others.
    post_repair_after, "/v1/pools/{pool}/repair_after", SetRepairAfter, set_repair_after, "pool" pool);
change!(
    /// Says what a disk is in: an enclosure, a shelf, whatever may fail as one.
    post_enclosure, "/v1/pools/{pool}/disks/{disk}/enclosure", SetEnclosure, set_enclosure, "pool" pool, "disk" disk);
change!(
    /// Does without a disk that is gone for good; what was on it alone is given up only when that is asked for.
    post_forget, "/v1/pools/{pool}/disks/{disk}/forget", ForgetDisk, forget_disk, "pool" pool, "disk" disk);
change!(
    /// Sets what a disk is to its pool: a member that takes rows, a spare, or one that stays empty.
    post_disk_role, "/v1/pools/{pool}/disks/{disk}/role", SetDiskRole, set_disk_role, "pool" pool, "disk" disk);
change!(
    /// Sets the percents of fullness at which a pool warns.
    post_alert_at, "/v1/pools/{pool}/alert_at", SetAlertAt, set_alert_at, "pool" pool);
change!(
    /// Sets for how many lost disks a pool keeps room.
    post_keep_room, "/v1/pools/{pool}/keep_room", SetKeepRoom, set_keep_room, "pool" pool);
change!(
    /// Adds disks to a pool.
    post_disks, "/v1/pools/{pool}/disks", AddDisks, add_disks, "pool" pool);
change!(
    /// Puts another disk in the place of one.
    post_replace, "/v1/pools/{pool}/disks/{disk}/replace", ReplaceDisk, replace_disk, "pool" pool, "disk" disk);
change!(
    /// Calls a replacement off.
    post_cancel, "/v1/pools/{pool}/disks/{disk}/replace/cancel", Simple, cancel_replace, "pool" pool, "disk" disk);
change!(
    /// Moves everything off a disk, to the others, and strikes it from the pool.
    post_remove, "/v1/pools/{pool}/disks/{disk}/remove", Simple, remove_disk, "pool" pool, "disk" disk);
change!(
    /// Calls the removal of a disk off.
    post_remove_cancel, "/v1/pools/{pool}/disks/{disk}/remove/cancel", Simple, cancel_remove, "pool" pool, "disk" disk);
change!(
    /// Takes a disk that was away back in.
    post_online, "/v1/pools/{pool}/disks/{disk}/online", OnlineDisk, online_disk, "pool" pool, "disk" disk);
change!(
    /// Lets go of a disk that stays a member.
    post_offline, "/v1/pools/{pool}/disks/{disk}/offline", Simple, offline_disk, "pool" pool, "disk" disk);
change!(
    /// Has a disk show where it is, or ends that.
    post_locate, "/v1/pools/{pool}/disks/{disk}/locate", LocateDisk, locate_disk, "pool" pool, "disk" disk);
change!(
    /// Changes what people note of a disk.
    post_set_disk, "/v1/pools/{pool}/disks/{disk}/set", SetDisk, set_disk, "pool" pool, "disk" disk);
change!(
    /// Makes a space.
    post_space, "/v1/pools/{pool}/spaces", CreateSpace, create_space, "pool" pool);
change!(
    /// Changes the size of a space.
    post_resize, "/v1/pools/{pool}/spaces/{space}/resize", ResizeSpace, resize_space, "pool" pool, "space" space);
change!(
    /// Converts a space while it is used.
    post_convert, "/v1/pools/{pool}/spaces/{space}/convert", ConvertSpace, convert_space, "pool" pool, "space" space);
change!(
    /// Gives a space another name.
    post_rename, "/v1/pools/{pool}/spaces/{space}/rename", RenameSpace, rename_space, "pool" pool, "space" space);
change!(
    /// Sets what a space may have of its pool's disks, and what others leave to it.
    post_limits, "/v1/pools/{pool}/spaces/{space}/limits", SetLimits, set_limits, "pool" pool, "space" space);
change!(
    /// Reserves room for a thin space.
    post_reserve, "/v1/pools/{pool}/spaces/{space}/reserve", SetReserve, set_reserve, "pool" pool, "space" space);
change!(
    /// Deletes a space: into the trash, or for good.
    post_delete, "/v1/pools/{pool}/spaces/{space}/delete", DeleteSpace, delete_space, "pool" pool, "space" space);
change!(
    /// Takes a space out of the trash.
    post_restore, "/v1/pools/{pool}/trash/{space}/restore", RestoreSpace, restore_space, "pool" pool, "space" space);
change!(
    /// Deletes spaces in the trash for good.
    post_purge, "/v1/pools/{pool}/trash/purge", PurgeTrash, purge_trash, "pool" pool);
change!(
    /// Attaches a space as a block device.
    post_attach, "/v1/pools/{pool}/spaces/{space}/attach", AttachSpace, attach_space, "pool" pool, "space" space);
change!(
    /// Detaches a space.
    post_detach, "/v1/pools/{pool}/spaces/{space}/detach", DetachSpace, detach_space, "pool" pool, "space" space);
change!(
    /// Serves a space over NBD.
    post_serve, "/v1/pools/{pool}/spaces/{space}/serve", ServeSpace, serve_space, "pool" pool, "space" space);
change!(
    /// Serves a space no more.
    post_unserve, "/v1/pools/{pool}/spaces/{space}/unserve", Simple, unserve_space, "pool" pool, "space" space);

/// Who answers.
#[utoipa::path(get, path = "/v1/version", responses((status = 200, body = Version)))]
async fn get_version() -> Json<Version> {
    Json(version())
}

/// One space.
#[utoipa::path(get, path = "/v1/pools/{pool}/spaces/{space}",
    params(("pool" = String, Path), ("space" = String, Path)),
    responses((status = 200, body = SpaceDocument), (status = "default", body = ErrorDocument)))]
async fn get_space(
    State(app): State<App>,
    Path((pool, space)): Path<(String, String)>,
) -> Out<SpaceDocument> {
    out(app.caller.ask(move |engine| engine.show_space(pool, space)).await)
}

/// Ends the daemon, or says what stands in the way.
#[utoipa::path(post, path = "/v1/shutdown", request_body = Shutdown,
    responses((status = 200, body = Change), (status = "default", body = ErrorDocument)))]
async fn post_shutdown(State(app): State<App>, body: Bytes) -> Out<Change> {
    let request: Shutdown = parse(&body)?;
    let answer = app.caller.ask(move |engine| engine.shutdown(request)).await;
    if answer.is_ok() && !request.dry_run {
        app.end.notify_one();
    }
    out(answer)
}

async fn no_such_route(request: Request) -> Failure {
    let path: String = request.uri().path().chars().take(200).collect();
    let message = format!("{} {path} is not in this version of the API", request.method());
    let error = ErrorBody::new(ErrorCode::NoSuchRoute, message);
    Failure(error.hint(format!(
        "this daemon is version {} and speaks version {} of the API; use a command line of the same version",
        version().daemon,
        version().api
    )))
}

/// Lets in whom the daemon belongs to, and root; bounds what is under way; and gives every refusal the form of an error
/// document, those of the HTTP library included.
async fn gate(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let own = rustix::process::geteuid().as_raw();
    if peer.uid.is_none_or(|uid| uid != 0 && uid != own) {
        let message = "only root, and the user whose daemon this is, may use it";
        return Failure(ErrorBody::new(ErrorCode::Permission, message)).into_response();
    }
    let line = format!("{} {}", request.method(), request.uri().path());
    let Ok(_permit) = app.requests.acquire().await else {
        return Failure(ErrorBody::new(ErrorCode::Stopping, "the daemon is ending")).into_response();
    };
    let response = next.run(request).await;
    let status = response.status();
    tracing::debug!(line, status = status.as_u16(), "answered");
    let is_document = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if status.is_success() || is_document {
        return response;
    }
    let message = format!("{line:.200} was refused: {status}; nothing was changed");
    let mut refused = Failure(ErrorBody::new(ErrorCode::BadRequest, message)).into_response();
    *refused.status_mut() = status;
    refused
}

/// What `openapi.json` says of the whole.
#[derive(OpenApi)]
#[openapi(info(
    title = "Dolmen",
    description = "Pools, disks and spaces of this host. JSON over HTTP/1.1 on a Unix socket."
))]
struct Description;

fn router() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(get_version))
        .routes(routes!(get_status))
        .routes(routes!(get_pools, post_pool))
        .routes(routes!(post_import))
        .routes(routes!(get_pool))
        .routes(routes!(post_export))
        .routes(routes!(post_destroy))
        .routes(routes!(post_scrub))
        .routes(routes!(post_resync))
        .routes(routes!(post_rebalance))
        .routes(routes!(post_rebalance_cancel))
        .routes(routes!(post_acknowledge))
        .routes(routes!(post_write_cache))
        .routes(routes!(post_write_cache_drain))
        .routes(routes!(post_repair_after))
        .routes(routes!(post_keep_room))
        .routes(routes!(post_alert_at))
        .routes(routes!(post_disk_role))
        .routes(routes!(post_forget))
        .routes(routes!(post_enclosure))
        .routes(routes!(get_disks, post_disks))
        .routes(routes!(post_replace))
        .routes(routes!(post_cancel))
        .routes(routes!(post_remove))
        .routes(routes!(post_remove_cancel))
        .routes(routes!(post_online))
        .routes(routes!(post_offline))
        .routes(routes!(post_locate))
        .routes(routes!(post_set_disk))
        .routes(routes!(get_df))
        .routes(routes!(get_spaces, post_space))
        .routes(routes!(get_space))
        .routes(routes!(post_resize))
        .routes(routes!(post_convert))
        .routes(routes!(post_rename))
        .routes(routes!(post_limits))
        .routes(routes!(post_reserve))
        .routes(routes!(post_delete))
        .routes(routes!(get_trash))
        .routes(routes!(post_restore))
        .routes(routes!(post_purge))
        .routes(routes!(get_all_trash))
        .routes(routes!(post_attach))
        .routes(routes!(post_detach))
        .routes(routes!(post_serve))
        .routes(routes!(post_unserve))
        .routes(routes!(get_all_spaces))
        .routes(routes!(get_devices))
        .routes(routes!(get_attachments))
        .routes(routes!(get_exports))
        .routes(routes!(get_jobs))
        .routes(routes!(get_job))
        .routes(routes!(post_job_pause))
        .routes(routes!(post_job_resume))
        .routes(routes!(post_job_stop))
        .routes(routes!(post_job_set))
        .routes(routes!(get_why))
        .routes(routes!(get_events))
        .routes(routes!(get_counters))
        .routes(routes!(get_figures))
        .routes(routes!(post_shutdown))
}

/// The OpenAPI description of the API, as JSON.
#[must_use]
pub fn openapi() -> String {
    router().into_openapi().to_json().unwrap_or_default()
}

/// Answers requests until somebody has ended the engine. `signals` completes each time the system asks for the end.
pub(crate) async fn serve(
    listener: ApiSocket,
    caller: Caller,
    mut signals: tokio::sync::mpsc::Receiver<&'static str>,
) {
    let end = Arc::new(Notify::new());
    let app = App {
        caller: caller.clone(),
        end: Arc::clone(&end),
        requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
    };
    let (routes, description) = router().split_for_parts();
    let description = description.to_json().unwrap_or_default();
    let described =
        axum::routing::get(
            move || async move { ([(header::CONTENT_TYPE, "application/json")], description) },
        );
    let routes = routes
        .route("/v1/openapi.json", described)
        .fallback(no_such_route)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .layer(middleware::from_fn_with_state(app.clone(), gate))
        .with_state(app);
    let ending = Arc::new(Notify::new());
    let goodbye = Arc::clone(&ending);
    let server = axum::serve(listener, routes.into_make_service_with_connect_info::<Peer>())
        .with_graceful_shutdown(async move { goodbye.notified().await })
        .into_future();
    let server = tokio::spawn(server);
    loop {
        tokio::select! {
            () = end.notified() => break,
            Some(name) = signals.recv() => {
                tracing::info!(signal = name, "asked to end");
                match caller.ask(|engine| engine.shutdown(Shutdown::default())).await {
                    Ok(_) => break,
                    Err(error) => tracing::error!(%error, hint = error.hint, "the daemon goes on"),
                }
            }
        }
    }
    ending.notify_one();
    let _ = tokio::time::timeout(GOODBYE, server).await;
}
