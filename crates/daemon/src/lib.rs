//! The daemon: owns the pools of this host, serves their spaces, and answers the API.
//!
//! ```text
//! clients of the API ─ control thread (HTTP, tokio) ─ mailbox ─┐
//! NBD clients ─────────────────────────────────────────────────┤
//! NBD clients with TLS ─ TLS acceptor ─ proxy ─ socket pairs ──┤ engine thread (io_uring): pools, spaces, jobs
//! kernel ─ /dev/fuse ─ reading threads ─ mailbox ──────────────┤
//! kernel ─ ublk devices ─ threads ─ mailbox ──────────────────┘     │ awaited
//!                                      file worker (own files) · device worker (devices) · watcher (files of disks) · SMART worker (smartctl) · locator (lights) · rooms (room of pools, points of history) · volumes (`/proc`, tools), a thread for each process of a worker
//! ```
//!
//! | folder or file | what |
//! |---|---|
//! | `config`, `arguments`, `error`, `process`, `files`, `log`, `io_worker`, `supervisor` | settings and the command line that gives them, reasons not to run, the process, locks and own files, what is logged, threads for what blocks, notes to systemd |
//! | `answer`, `fault`, `finding`, `advice`, `resiliency`, `words`, `ranks` | answers and errors of the API, findings and their advice, words of documents and sentences, ranks of locks |
//! | `arbiter`, `epoch_record` | which epoch is in force |
//! | `jobs` | the service of jobs: numbers, order, throttling, progress, record |
//! | `exports`, `attach` | the services of exports and of attached spaces |
//! | `state` | what the engine keeps of all pools and of each; it knows neither the engine nor an open pool |
//! | `open_pool`, `open_pools`, `plan`, `rooms` | a pool that is open, the list of pools, what changes would do, and the room of pools |
//! | `job`, `pool_jobs`, `records`, `views` | services that several folders take: jobs of open pools, records for the next daemon, documents of pools and spaces |
//! | `base` | what services are made of |
//! | `settings`, `health` | what is set of a pool, what is the matter with it, and what to do |
//! | `spaces`, `disks`, `pools`, `attaching`, `volumes` | services of what can be asked for, and of what is done without a request |
//! | `job_table` | the table of jobs |
//! | `api` | routes, documents, requests for jobs, events, and what carries requests out |
//! | `engine`, `caller` | the composition root, which makes the services in one order, and messages to it |
//!
//! Invariant: a folder's face is its `mod.rs`, and modules form no cycles. Imports point from the later lines of this table to the
//! earlier ones, but for some in `api`, `health`, `pools`, `settings` and `views`, which no check counts.
//!
//! Invariant: the engine's thread never waits for another thread of the daemon; it awaits.
//!
//! Invariant: nothing is told to be done before what has to survive the daemon is on record.

mod advice;
mod answer;
mod api;
mod arbiter;
mod arguments;
mod attach;
mod attaching;
mod base;
mod benchmarks;
mod caller;
mod config;
mod disks;
mod engine;
mod epoch_record;
mod error;
mod exports;
mod fault;
mod files;
mod finding;
mod health;
mod io_worker;
mod job;
mod job_table;
mod jobs;
mod log;
mod open_pool;
mod open_pools;
mod plan;
mod pool_jobs;
mod pools;
mod process;
mod ranks;
mod records;
mod resiliency;
mod rooms;
mod settings;
mod spaces;
mod state;
mod supervisor;
#[cfg(test)]
mod test_job;
mod views;
mod volumes;
mod words;

use std::fs::{self, FileType};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dolmen_api::socket_lock;
use dolmen_block_linux::Runtime;
use dolmen_units::HostId;
use tokio::signal::unix::{SignalKind, signal};

pub use arguments::{HELP, SettingError, read_settings};
pub use config::{Config, DESCRIPTOR_HOLDER_COMMAND, LINKS_FOLDER, Returned, Scan, TRASH_AFTER};
pub use dolmen_fuse::{DescriptorHolderProgram, keep};
pub use error::DaemonError;
pub use log::{LogEnd, init_logging};

use crate::api::{ApiSocket, WebUser};
use crate::attach::EngineHost;
use crate::attach::Transports;
use crate::base::{Base, Threaded};
use crate::caller::Caller;
use crate::disks::follow;
use crate::disks::follow_smart;
use crate::engine::Engine;
use crate::exports::Listeners;
use crate::files::Deadline;
use crate::files::Lock;
use crate::files::host_id;
use crate::files::make_folder;
use crate::io_worker::IoWorker;
use crate::job_table::kind_of;
use crate::jobs::JobFiles;
use crate::jobs::Jobs;
use crate::rooms::Rooms;
use crate::state::Locates;
use crate::supervisor::Supervisor;

/// The setting in the environment that says what is logged, as `tracing-subscriber` reads it.
pub const LOG_VARIABLE: &str = "DOLMEN_LOG";
/// How long a daemon waits for the end of the one before, which may have been killed a moment ago: locked memory and I/O
/// under way take their time.
const PREDECESSOR_TIMEOUT: Duration = Duration::from_secs(5);
/// The stack of the engine's thread; locked whole.
const ENGINE_STACK_BYTES: usize = 4 << 20;

/// Runs the daemon in the calling process, until it is told to end.
///
/// # Errors
/// [`DaemonError`]: why it did not start, or ended by itself. Nothing of what clients were told is lost by that.
pub fn run(config: &Config) -> Result<(), DaemonError> {
    process::abort_on_panic();
    process::prepare();
    let web_socket = config.web_socket();
    for (socket, option) in
        [(&config.nbd_socket(), "--run"), (&web_socket, "--run"), (&config.socket, "--socket")]
    {
        check_socket(socket, option)?;
    }
    for (folder, option) in [(&config.state, "--state"), (&config.run, "--run")] {
        disks::check_own_folder(folder, &config.run, option)?;
    }
    let folders = [
        config.state.clone(),
        config.run.clone(),
        config.arbiter_folder(),
        config.pools_folder(),
        config.history_folder(),
        config.volumes_folder(),
    ];
    for folder in &folders {
        make_folder(folder)?;
    }
    let socket_lock = socket_lock(&config.socket);
    let deadline = Deadline::after(PREDECESSOR_TIMEOUT);
    let _locks = [
        Lock::take(&config.state.join("lock"), &deadline)?,
        Lock::take(&config.run.join("lock"), &deadline)?,
        Lock::take(&socket_lock, &deadline)?,
    ];
    let host = host_id(&config.state)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| DaemonError::Thread { name: "control", source })?;
    let listener = bind(&config.socket)?;
    let (caller, engine) = start_engine(config.clone(), host)?;
    tracing::info!(%host, socket = %config.socket.display(), version = env!("CARGO_PKG_VERSION"), "the daemon is running");
    let ended = runtime.block_on(control(listener, config, caller));
    // Everything of the API is gone now, and the engine ends by itself.
    drop(runtime);
    for socket in [&config.socket, &web_socket] {
        let _ = fs::remove_file(socket);
    }
    engine.join().map_err(|_| DaemonError::EngineLost)?;
    ended.map_err(|source| DaemonError::Thread { name: "control", source })
}

/// The longest path of a socket: `sun_path` of unix(7), less the zero at its end.
const SOCKET_PATH_MAX: usize = 107;

fn check_socket(path: &Path, option: &'static str) -> Result<(), DaemonError> {
    let found = path.as_os_str().len();
    if found <= SOCKET_PATH_MAX {
        return Ok(());
    }
    Err(DaemonError::SocketPath { path: path.to_path_buf(), found, max: SOCKET_PATH_MAX, option })
}

/// Listens on the socket. One that is there already belongs to a daemon that has ended: its lock is held here. What is no socket is
/// no file of a daemon, and stays.
fn bind(path: &Path) -> Result<StdListener, DaemonError> {
    if let Some(found) =
        fs::symlink_metadata(path).ok().and_then(|found| other_than_socket(found.file_type()))
    {
        return Err(DaemonError::NoSocket { path: path.to_path_buf(), found });
    }
    let _ = fs::remove_file(path);
    let listener = StdListener::bind(path).map_err(DaemonError::file("listening on", path))?;
    listener.set_nonblocking(true).map_err(DaemonError::file("listening on", path))?;
    Ok(listener)
}

/// Returns the kind of a file that is no socket.
fn other_than_socket(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_socket() => None,
        kind if kind.is_dir() => Some("a folder"),
        kind if kind.is_symlink() => Some("a symbolic link"),
        kind if kind.is_file() => Some("a file"),
        _ => Some("a device or pipe"),
    }
}

async fn control(listener: StdListener, config: &Config, caller: Caller) -> std::io::Result<()> {
    let web_user = Arc::new(WebUser::new(config.web_user.clone(), config.web_role_max));
    let mut sockets = vec![ApiSocket::new(listener, config.socket.clone())?];
    // A daemon whose own socket has that name serves its own user alone.
    if config.socket != config.web_socket() {
        sockets.push(ApiSocket::for_web(config.web_socket(), Arc::clone(&web_user)));
    }
    let (asked, signals) = tokio::sync::mpsc::channel(4);
    for (kind, name) in [(SignalKind::terminate(), "SIGTERM"), (SignalKind::interrupt(), "SIGINT")] {
        let (mut stream, asked) = (signal(kind)?, asked.clone());
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                // A signal while another is being looked at says nothing new.
                let _ = asked.try_send(name);
            }
        });
    }
    let supervisor = Supervisor::of_environment();
    let (ready, answering) = (supervisor.clone(), caller.clone());
    tokio::spawn(async move {
        // The engine answers when it has opened its pools, or when that takes too long to wait for.
        if answering.ask(async |_| Ok(())).await.is_ok() {
            ready.note_ready();
        }
    });
    api::serve(sockets, web_user, caller, signals, &supervisor).await;
    Ok(())
}

/// Starts the engine's thread, and waits until it takes requests.
fn start_engine(config: Config, host: HostId) -> Result<(Caller, JoinHandle<()>), DaemonError> {
    let (ready, started) = sync_channel(1);
    let thread = thread::Builder::new().name("dolmen engine".to_owned()).stack_size(ENGINE_STACK_BYTES);
    let thread = thread.spawn(move || engine_thread(config, host, &ready));
    let thread = thread.map_err(|source| DaemonError::Thread { name: "engine", source })?;
    let caller = started.recv().map_err(|_| DaemonError::EngineLost)??;
    Ok((caller, thread))
}

fn engine_thread(config: Config, host: HostId, ready: &SyncSender<Result<Caller, DaemonError>>) {
    let made = Runtime::new(config.runtime).map_err(DaemonError::from);
    let made = made.and_then(|runtime| {
        let [file_worker, device_worker, watch_worker] =
            ["file I/O", "rejoin disks", "watcher"].map(IoWorker::start);
        let [smart_worker, locator, rooms, volumes] =
            ["SMART", "locator", "rooms", "volumes"].map(IoWorker::start);
        Ok((runtime, file_worker?, device_worker?, watch_worker?, smart_worker?, locator?, rooms?, volumes?))
    });
    let (runtime, file_worker, device_worker, watch_worker, smart_worker, locator, rooms, volumes) =
        match made {
            Ok(made) => made,
            Err(error) => {
                let _ = ready.send(Err(error));
                return;
            }
        };
    let rooms = Rc::new(rooms);
    Rooms::new(Rc::clone(&rooms)).serve_this_thread();
    let handle = runtime.handle();
    let (mailbox, inbox) = handle.mailbox();
    let (kernel, asked) = handle.mailbox();
    let (admitted, arrivals) = handle.mailbox();
    let transports = Transports::new(EngineHost::new(kernel), device_worker);
    let listeners = Listeners::new(admitted);
    let file_worker = Rc::new(file_worker);
    let job_files = JobFiles::new(config.state.clone(), Rc::clone(&file_worker), kind_of);
    let jobs = Rc::new(Jobs::new(job_files));
    let locates = Locates::new(locator);
    let watcher = Rc::new(watch_worker);
    let threaded = Threaded {
        transports,
        listeners,
        locates,
        jobs,
        volume_looker: volumes,
        watcher: Rc::clone(&watcher),
        computer: rooms,
    };
    let engine = Engine::new(Base::new(handle, Rc::new(config), host, &file_worker, threaded));
    let following = follow(
        Rc::downgrade(&engine.base.records),
        Rc::clone(&engine.base.members),
        watcher,
        runtime.seams().clock,
    );
    runtime.seams().spawner.spawn("names", Box::pin(following));
    let smartctl = engine.base.config.smartctl.clone();
    let asking =
        follow_smart(Rc::downgrade(&engine.base.pools), smartctl, smart_worker, runtime.seams().clock);
    runtime.seams().spawner.spawn("smart", Box::pin(asking));
    if ready.send(Ok(Caller::new(mailbox))).is_ok() {
        runtime.run(engine.serve(inbox, asked, arrivals));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a file, a folder and a link are where the socket is to be. Each stays; a socket of an ended daemon is replaced.
    #[test]
    fn the_socket_of_the_api_replaces_sockets_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "content").unwrap();
        fs::create_dir(path("folder")).unwrap();
        std::os::unix::fs::symlink(path("file"), path("link")).unwrap();
        for (name, kind) in [("file", "a file"), ("folder", "a folder"), ("link", "a symbolic link")] {
            let error = bind(&path(name)).unwrap_err();
            assert!(matches!(error, DaemonError::NoSocket { .. }), "{error}");
            assert!(error.to_string().contains(kind), "{error}");
        }
        assert_eq!(fs::read_to_string(path("file")).unwrap(), "content");
        assert!(path("link").is_symlink() && path("folder").is_dir());
        drop(bind(&path("socket")).unwrap());
        drop(bind(&path("socket")).unwrap());
    }
}
