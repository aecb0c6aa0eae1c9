//! The API: HTTP/1.1 on Unix sockets, on a thread of its own. Every request becomes a message to the engine.
//!
//! Method and path of each verb, its request and its answer stand in the table of `dolmen_api`; here is what the engine does for it.

use std::future::{Future, IntoFuture};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::connect_info::ConnectInfo;
use axum::extract::rejection::QueryRejection;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Query, RawPathParams, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Json, Router};
use dolmen_api::{
    Change, ErrorBody, ErrorCode, ErrorDocument, OPENAPI_PATH, REQUEST_BYTES_MAX, Shutdown, Verb, VerbId,
    openapi, read_request, verb,
};
use serde::Serialize;
use tokio::sync::{Notify, Semaphore, watch};

use crate::api::admission::{Admitted, Peer};
use crate::api::api_socket::ApiSocket;
use crate::api::web_user::WebUser;
use crate::caller::{Answer, Caller};
use crate::engine::Engine;
use crate::health::version;
use crate::state::Asked;
use crate::supervisor::Supervisor;

/// Requests that are carried out at a time; more wait.
const REQUESTS_MAX: usize = 64;
/// How long answers under way may take to leave at the end.
const GOODBYE: Duration = Duration::from_secs(3);
/// Pause before an end that a supervisor asked for, and that was refused, is tried again.
const END_AGAIN: Duration = Duration::from_secs(1);
/// Longest wait for the body of a request that is refused.
const REFUSED_BODY_MAX: Duration = Duration::from_secs(5);

#[derive(Clone)]
struct App {
    caller: Caller,
    end: Arc<Notify>,
    requests: Arc<Semaphore>,
    web_user: Arc<WebUser>,
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

/// Puts the answer of the engine into a response.
fn out<T: Serialize>(answer: Answer<T>) -> Result<Json<T>, Failure> {
    answer.map(Json).map_err(Failure)
}

fn unreadable(why: &dyn std::fmt::Display) -> Failure {
    let message = format!("the request cannot be read: {why}; nothing was changed");
    Failure(ErrorBody::new(ErrorCode::BadRequest, message))
}

/// Values of the parameters of a verb's path.
struct Values<T>(T);

impl<T: TryFrom<Vec<String>>> FromRequestParts<App> for Values<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Failure> {
        let found = RawPathParams::from_request_parts(parts, app).await;
        let found = found.map_err(|rejection| unreadable(&rejection.body_text()))?;
        let values: Vec<String> = found.iter().map(|(_, value)| value.to_owned()).collect();
        let count = values.len();
        let values = T::try_from(values);
        values
            .map(Values)
            .map_err(|_| unreadable(&format!("its path has {count} parameters, which do not fit the verb")))
    }
}

/// Answers a question on the engine's thread, which abandons it when the client has gone.
fn question<V, F, A>(make: F) -> MethodRouter<App>
where
    V: Verb,
    F: Fn(Rc<Engine>, V::Owned, V::Request) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer<V::Answer>> + 'static,
{
    get(
        async move |State(app): State<App>,
                    Values(values): Values<V::Owned>,
                    query: Result<Query<V::Request>, QueryRejection>| {
            let Query(request) = query.map_err(|rejection| unreadable(&rejection.body_text()))?;
            out(app.caller.question(move |engine| make(engine, values, request)).await)
        },
    )
}

/// Answers a question without the engine.
fn at_once<V, F, A>(make: F) -> MethodRouter<App>
where
    V: Verb,
    F: Fn() -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer<V::Answer>> + Send + 'static,
{
    get(async move || out(make().await))
}

/// Carries out a change on the engine's thread, whether or not the client waits for it.
fn change<V, F, A>(verb: VerbId, make: F) -> MethodRouter<App>
where
    V: Verb<Answer = Change, Owned: AsRef<[String]>>,
    F: Fn(Rc<Engine>, V::Owned, V::Request) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer<Change>> + 'static,
{
    post(
        async move |State(app): State<App>,
                    ConnectInfo(peer): ConnectInfo<Peer>,
                    Extension(admitted): Extension<Admitted>,
                    Values(values): Values<V::Owned>,
                    body: Bytes| {
            let request: V::Request = read_request(&body).map_err(|error| unreadable(&error))?;
            let asked = Asked { uid: peer.uid, user: admitted.user, verb, values: values.as_ref().to_vec() };
            out(app.caller.change(asked, move |engine| make(engine, values, request)).await)
        },
    )
}

/// Ends the daemon behind a change that has succeeded.
fn ending<V, F, A>(make: F) -> MethodRouter<App>
where
    V: Verb<Answer = Change, Request = Shutdown>,
    F: Fn(Rc<Engine>, V::Owned, Shutdown) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Answer<Change>> + 'static,
{
    post(async move |State(app): State<App>, Values(values): Values<V::Owned>, body: Bytes| {
        let request: Shutdown = read_request(&body).map_err(|error| unreadable(&error))?;
        let answer = app.caller.ask(move |engine| make(engine, values, request)).await;
        if answer.is_ok() && !request.dry_run {
            app.end.notify_one();
        }
        out(answer)
    })
}

/// Returns the number of a job.
fn number_of_job(text: &str) -> Answer<u64> {
    text.parse().map_err(|_| {
        let message = format!("the number of a job was expected, and {text:?} was found");
        ErrorBody::new(ErrorCode::BadRequest, message).on(text).hint("`dolmen jobs` shows all of them")
    })
}

/// Chooses the handler of a verb by its id. The compiler refuses a verb without one, and one of other types.
macro_rules! handlers {
    (@change $verb:ident $make:expr) => {
        change::<verb::$verb, _, _>(VerbId::$verb, $make)
    };
    (@$kind:ident $verb:ident $make:expr) => {
        $kind::<verb::$verb, _, _>($make)
    };
    ($id:expr; $($verb:ident: $kind:ident($make:expr);)*) => {
        match $id {
            $(VerbId::$verb => handlers!(@$kind $verb $make),)*
        }
    };
}

#[rustfmt::skip] // one line for each verb
#[allow(clippy::too_many_lines)] // of a table
fn handler(id: VerbId) -> MethodRouter<App> {
    handlers! { id;
        ShowVersion: at_once(async || Ok(version()));
        ShowStatus: question(async |engine, [], _| engine.diagnosis.status().await);
        ExplainObject: question(async |engine, [object], _| engine.explainer.why(object).await);
        ListEvents: question(async |engine, [], query| engine.events.list_events(query.since, query.pool).await);
        ShowCounters: question(async |engine, [], _| engine.reports.counters().await);
        ShowFigures: question(async |engine, [], _| engine.reports.figures().await);
        StopDaemon: ending(async |engine, [], request| engine.stopping.shutdown(request).await);

        ListDevices: question(async |engine, [], _| engine.disks.devices.devices().await);
        ListAttachments: question(async |engine, [], _| engine.spaces.attachments.attachments().await);
        ListExports: question(async |engine, [], _| engine.reports.exports().await);

        ListPools: question(async |engine, [], _| engine.pools.changes.pools().await);
        CreatePool: change(async |engine, [], request| engine.pools.changes.create_pool(request).await);
        ImportPool: change(async |engine, [], request| engine.pools.opening.import_pool(request).await);
        ShowPool: question(async |engine, [pool], _| engine.pools.changes.show_pool(pool).await);
        ShowHistory: question(async |engine, [pool], query| engine.reports.history(pool, query).await);
        ShowRoom: question(async |engine, [pool], _| engine.reports.df(pool).await);
        ShowSlabMap: question(async |engine, [pool], query| engine.reports.slab_map(pool, query).await);
        ExportPool: change(async |engine, [pool], request| engine.pools.ends.export_pool(pool, request).await);
        DestroyPool: change(async |engine, [pool], request| engine.pools.ends.destroy_pool(pool, request).await);
        ScrubPool: change(async |engine, [pool], request| engine.spaces.scrubs.scrub(pool, request).await);
        ResyncPool: change(async |engine, [pool], request| engine.pools.changes.resync(pool, request).await);
        RebalancePool: change(async |engine, [pool], request| engine.disks.rebalances.rebalance(pool, request).await);
        CancelRebalance: change(async |engine, [pool], request| engine.pools.job_control.cancel_rebalance(pool, request).await);
        AcknowledgeErrors: change(async |engine, [pool], request| engine.pools.changes.acknowledge(pool, request).await);
        ResizeWriteCache: change(async |engine, [pool], request| engine.spaces.write_caches.resize_write_cache(pool, request).await);
        DrainWriteCache: change(async |engine, [pool], request| engine.spaces.write_caches.drain_write_cache(pool, request).await);
        SetRepairAfter: change(async |engine, [pool], request| engine.disks.rebuilds.set_repair_after(pool, request).await);
        SetKeepRoom: change(async |engine, [pool], request| engine.pools.settings.set_keep_room(pool, request).await);
        SetAlertAt: change(async |engine, [pool], request| engine.pools.settings.set_alert_at(pool, request).await);

        ListDisks: question(async |engine, [pool], _| engine.disks.membership.disks(pool).await);
        AddDisks: change(async |engine, [pool], request| engine.pools.changes.add_disks(pool, request).await);
        ReplaceDisk: change(async |engine, [pool, disk], request| engine.disks.membership.replace_disk(pool, disk, request).await);
        CancelReplace: change(async |engine, [pool, disk], request| engine.disks.replacements.cancel_replace(pool, disk, request).await);
        RemoveDisk: change(async |engine, [pool, disk], request| engine.disks.drains.remove_disk(pool, disk, request).await);
        CancelRemove: change(async |engine, [pool, disk], request| engine.disks.drains.cancel_remove(pool, disk, request).await);
        OnlineDisk: change(async |engine, [pool, disk], request| engine.disks.membership.online_disk(pool, disk, request).await);
        OfflineDisk: change(async |engine, [pool, disk], request| engine.disks.membership.offline_disk(pool, disk, request).await);
        GrowDisk: change(async |engine, [pool, disk], request| engine.disks.membership.grow_disk(pool, disk, request).await);
        LocateDisk: change(async |engine, [pool, disk], request| engine.disks.locator.locate_disk(pool, disk, request).await);
        SetDisk: change(async |engine, [pool, disk], request| engine.pools.settings.set_disk(pool, disk, request).await);
        SetDiskRole: change(async |engine, [pool, disk], request| engine.disks.drains.set_disk_role(pool, disk, request).await);
        SetEnclosure: change(async |engine, [pool, disk], request| engine.pools.settings.set_enclosure(pool, disk, request).await);
        ForgetDisk: change(async |engine, [pool, disk], request| engine.disks.drains.forget_disk(pool, disk, request).await);

        ListAllSpaces: question(async |engine, [], _| engine.spaces.changes.all_spaces().await);
        ListSpaces: question(async |engine, [pool], _| engine.spaces.changes.spaces(pool).await);
        ShowSpace: question(async |engine, [pool, space], _| engine.spaces.changes.show_space(pool, space).await);
        CreateSpace: change(async |engine, [pool], request| engine.spaces.changes.create_space(pool, request).await);
        ResizeSpace: change(async |engine, [pool, space], request| engine.spaces.volumes.growth.resize_space(pool, space, request).await);
        ConvertSpace: change(async |engine, [pool, space], request| engine.spaces.conversions.convert_space(pool, space, request).await);
        RenameSpace: change(async |engine, [pool, space], request| engine.spaces.changes.rename_space(pool, space, request).await);
        SetLimits: change(async |engine, [pool, space], request| engine.pools.settings.set_limits(pool, space, request).await);
        SetReserve: change(async |engine, [pool, space], request| engine.pools.settings.set_reserve(pool, space, request).await);
        DeleteSpace: change(async |engine, [pool, space], request| engine.spaces.deletions.delete_space(pool, space, request).await);
        AttachSpace: change(async |engine, [pool, space], request| engine.spaces.attachments.attach_space(pool, space, request).await);
        DetachSpace: change(async |engine, [pool, space], request| engine.spaces.attachments.detach_space(pool, space, request).await);
        ServeSpace: change(async |engine, [pool, space], request| engine.spaces.changes.serve_space(pool, space, request).await);
        UnserveSpace: change(async |engine, [pool, space], request| engine.spaces.changes.unserve_space(pool, space, request).await);

        BenchSpace: change(async |engine, [pool, space], request| engine.spaces.benchmarks.bench_space(pool, space, request).await);
        ListBenchmarks: question(async |engine, [], _| engine.spaces.benchmarks.list().await);
        ShowBenchmark: question(async |engine, [job], _| engine.spaces.benchmarks.show(number_of_job(&job)?).await);

        ListAllVolumes: question(async |engine, [], _| engine.spaces.volumes.views.all_volumes().await);
        ListVolumes: question(async |engine, [pool], _| engine.spaces.volumes.views.volumes(pool).await);
        ShowVolume: question(async |engine, [pool, space], _| engine.spaces.volumes.views.show_volume(pool, space).await);
        CreateVolume: change(async |engine, [pool], request| engine.spaces.volumes.creations.create_volume(pool, request).await);
        MountVolume: change(async |engine, [pool, space], request| engine.spaces.volumes.all.mount_volume(pool, space, request).await);
        UnmountVolume: change(async |engine, [pool, space], request| engine.spaces.volumes.all.unmount_volume(pool, space, request).await);
        GrowVolume: change(async |engine, [pool, space], request| engine.spaces.volumes.growth.grow_volume(pool, space, request).await);
        TrimVolume: change(async |engine, [pool, space], request| engine.spaces.volumes.growth.trim_volume(pool, space, request).await);
        ShowVolumeCheck: question(async |engine, [pool, space], _| engine.spaces.volumes.checks.show_check(pool, space).await);
        CheckVolume: change(async |engine, [pool, space], request| engine.spaces.volumes.checks.check_volume(pool, space, request).await);
        AdoptVolume: change(async |engine, [pool, space], request| engine.spaces.volumes.adoptions.adopt_volume(pool, space, request).await);
        DeleteVolume: change(async |engine, [pool, space], request| engine.spaces.volumes.all.delete_volume(pool, space, request).await);

        CompactVolume: change(async |engine, [pool, space], request| engine.spaces.volumes.dedups.compact_volume(pool, space, request).await);

        ShowDedup: question(async |engine, [pool, space], _| engine.spaces.volumes.dedups.show_dedup(pool, space).await);
        EstimateDedup: change(async |engine, [pool, space], request| engine.spaces.volumes.dedups.estimate_dedup(pool, space, request).await);
        EnableDedup: change(async |engine, [pool, space], request| engine.spaces.volumes.dedups.enable_dedup(pool, space, request).await);
        RunDedup: change(async |engine, [pool, space], request| engine.spaces.volumes.dedups.run_dedup(pool, space, request).await);
        UndoDedup: change(async |engine, [pool, space], request| engine.spaces.volumes.dedups.undo_dedup(pool, space, request).await);

        ListAllShares: question(async |engine, [], _| engine.spaces.volumes.shares.all_shares().await);
        ListShares: question(async |engine, [pool, space], _| engine.spaces.volumes.shares.list_shares(pool, space).await);
        ShowShare: question(async |engine, [pool, space, share], _| engine.spaces.volumes.shares.show_share(pool, space, share).await);
        ListShareSessions: question(async |engine, [pool, space, share], _| engine.spaces.volumes.shares.share_sessions(pool, space, share).await);
        CreateShare: change(async |engine, [pool, space], request| engine.spaces.volumes.shares.create_share(pool, space, request).await);
        GrantShare: change(async |engine, [pool, space, share], request| engine.spaces.volumes.shares.grant_share(pool, space, share, request).await);
        AcceptShare: change(async |engine, [pool, space, share], request| engine.spaces.volumes.shares.accept_share(pool, space, share, request).await);
        RevokeShare: change(async |engine, [pool, space, share], request| engine.spaces.volumes.shares.revoke_share(pool, space, share, request).await);
        DeleteShare: change(async |engine, [pool, space, share], request| engine.spaces.volumes.shares.delete_share(pool, space, share, request).await);
        ListQuotas: question(async |engine, [pool, space], _| engine.spaces.volumes.quotas.list_quotas(pool, space).await);
        SetQuota: change(async |engine, [pool, space], request| engine.spaces.volumes.quotas.set_quota(pool, space, request).await);
        RemoveQuota: change(async |engine, [pool, space], request| engine.spaces.volumes.quotas.remove_quota(pool, space, request).await);

        ListAllTrash: question(async |engine, [], _| engine.spaces.deletions.all_trash().await);
        ListTrash: question(async |engine, [pool], _| engine.spaces.deletions.trash(pool).await);
        RestoreSpace: change(async |engine, [pool, space], request| engine.spaces.volumes.all.restore_space(pool, space, request).await);
        PurgeTrash: change(async |engine, [pool], request| engine.spaces.deletions.purge_trash(pool, request).await);

        ListJobs: question(async |engine, [], _| engine.pools.job_control.jobs().await);
        ShowJob: question(async |engine, [job], _| engine.pools.job_control.job(number_of_job(&job)?).await);
        PauseJob: change(async |engine, [job], request| engine.pools.job_control.pause_job(job, request).await);
        ResumeJob: change(async |engine, [job], request| engine.pools.job_control.resume_job(job, request).await);
        StopJob: change(async |engine, [job], request| engine.pools.job_control.stop_job(job, request).await);
        SetJob: change(async |engine, [job], request| engine.pools.job_control.set_job(job, request).await);
    }
}

/// Returns the routes of all verbs, which the table of the API names. Each refuses callers of a lower role.
fn router() -> Router<App> {
    VerbId::ALL.iter().fold(Router::new(), |router, verb| {
        let declaration = verb.declaration();
        let check = async move |Extension(admitted): Extension<Admitted>, request: Request, next: Next| {
            match admitted.check(declaration) {
                Ok(()) => next.run(request).await,
                Err(error) => refuse(request, error).await,
            }
        };
        router.route(&declaration.route(), handler(*verb).route_layer(middleware::from_fn(check)))
    })
}

/// Refuses a request unread. Its body is taken in first: a close before that would fail the caller's write, or drop the answer.
async fn refuse(request: Request, error: ErrorBody) -> Response {
    let body = axum::body::to_bytes(request.into_body(), REQUEST_BYTES_MAX);
    // A caller that sends no more gets the answer then.
    drop(tokio::time::timeout(REFUSED_BODY_MAX, body).await);
    Failure(error).into_response()
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

/// Admits root, the user that the daemon runs as and `dolmen-web`; bounds what is under way; and gives every refusal the form of
/// an error document, those of the HTTP library included.
async fn gate(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    match peer.admit(&app.web_user, request.headers()) {
        Ok(admitted) => drop(request.extensions_mut().insert(admitted)),
        Err(error) => return refuse(request, error).await,
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

/// Answers requests until somebody has ended the engine. `signals` completes each time the system asks for the end.
///
/// A supervisor that asks does not withdraw that, and other services that use volumes end meanwhile: a refused end is tried again.
pub(crate) async fn serve(
    sockets: Vec<ApiSocket>,
    web_user: Arc<WebUser>,
    caller: Caller,
    mut signals: tokio::sync::mpsc::Receiver<&'static str>,
    supervisor: &Supervisor,
) {
    let end = Arc::new(Notify::new());
    let app = App {
        caller: caller.clone(),
        end: Arc::clone(&end),
        requests: Arc::new(Semaphore::new(REQUESTS_MAX)),
        web_user,
    };
    let description = openapi();
    let described = get(async move || ([(header::CONTENT_TYPE, "application/json")], description));
    let routes = router()
        .route(OPENAPI_PATH, described)
        .fallback(no_such_route)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .layer(middleware::from_fn_with_state(app.clone(), gate))
        .with_state(app);
    let (ending, _) = watch::channel(false);
    let servers: Vec<_> = sockets
        .into_iter()
        .map(|socket| {
            let mut goodbye = ending.subscribe();
            let served = routes.clone().into_make_service_with_connect_info::<Peer>();
            let server = axum::serve(socket, served).with_graceful_shutdown(async move {
                drop(goodbye.wait_for(|is_ending| *is_ending).await);
            });
            tokio::spawn(server.into_future())
        })
        .collect();
    let mut is_refused = false;
    loop {
        tokio::select! {
            () = end.notified() => break,
            Some(name) = signals.recv() => tracing::info!(signal = name, "asked to end"),
            () = tokio::time::sleep(END_AGAIN), if is_refused => {}
        }
        supervisor.note_stopping();
        match caller.ask(async |engine| engine.stopping.shutdown(Shutdown::default()).await).await {
            Ok(_) => break,
            Err(error) if is_refused => supervisor.note_refusal(&error.message),
            Err(error) => {
                is_refused = supervisor.is_present();
                supervisor.note_refusal(&error.message);
                tracing::error!(%error, hint = error.hint, is_tried_again = is_refused, "the daemon goes on");
            }
        }
    }
    ending.send_replace(true);
    let ended = async {
        for server in servers {
            let _ = server.await;
        }
    };
    let _ = tokio::time::timeout(GOODBYE, ended).await;
}
