//! Where the daemon keeps what it has to remember, where it listens, and what it may use.

use std::path::PathBuf;
use std::time::Duration;

use dolmen_api::{CallerRole, RUN_FOLDER, STATE_FOLDER, WEB_SOCKET_NAME, WEB_USER};
use dolmen_block_linux::{CLOSE_LIMIT, DriverChoice, RuntimeConfig};
use dolmen_buffer::ArenaConfig;
use dolmen_fuse::DescriptorHolderProgram;

/// Where the kernel shows devices.
pub(crate) const SYS_FOLDER: &str = "/sys";

/// Where attached spaces get their stable names, when nobody says otherwise.
pub const LINKS_FOLDER: &str = "/dev/dolmen";
/// The hidden command by which the daemon's own program becomes the descriptor holder.
pub const DESCRIPTOR_HOLDER_COMMAND: &str = "descriptor-holder";

/// Setting in the environment that names the program that works on file systems.
const WORKER_VARIABLE: &str = "DOLMEN_WORKER";
/// Setting in the environment that names the command line, which runs benchmarks.
const COMMAND_VARIABLE: &str = "DOLMEN_COMMAND";
/// Setting in the environment that names a file about the servers of this host.
const SERVERS_VARIABLE: &str = "DOLMEN_SERVERS";
/// Setting in the environment that keeps disks that come back out until a command takes them in.
const RETURNED_VARIABLE: &str = "DOLMEN_RETURNED";
/// Name of that program.
const WORKER_PROGRAM: &str = "dolmen-worker";
/// Name of the command line.
const COMMAND_PROGRAM: &str = "dolmen";

/// How long spaces stay in the trash when nobody says otherwise.
pub const TRASH_AFTER: Duration = Duration::from_secs(7 * 86_400);

/// Memory for payloads: 8 MiB of blocks, 16 MiB of middling pieces, 96 MiB of large ones. Bounded, and locked.
const DATA_ARENA: ArenaConfig = ArenaConfig { small_count: 2048, medium_count: 256, large_count: 96 };
/// Memory for metadata, beside the payloads so that neither waits for the other.
const METADATA_ARENA: ArenaConfig = ArenaConfig {
    small_count: 8192,
    medium_count: MEDIUM,
    large_count: LARGE_FOR_ALL + LARGE_FOR_POOL * POOLS_MAX,
};

/// Middling pieces of it: parity of stripes that are being written, and slabs that are being filled, 64 KiB at a time.
const MEDIUM: usize = 192;

/// Pools that one daemon has open, at most: each holds memory for as long as it is open.
pub(crate) const POOLS_MAX: usize = 16;
/// Large pieces of metadata memory that an open pool keeps: the two batches of its log.
const LARGE_FOR_POOL: usize = 2;
/// The same for what comes and goes: looking at disks, opening, making.
const LARGE_FOR_ALL: usize = 8;

/// How the daemon runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// What has to be remembered over restarts: the host's identity, the epoch of each pool, pools to open.
    pub state: PathBuf,
    /// Sockets and mounts, gone after a restart of the system.
    pub run: PathBuf,
    /// The socket of the API.
    pub socket: PathBuf,
    /// User of the system that `dolmen-web` runs as.
    pub web_user: String,
    /// The highest role of its requests.
    pub web_role_max: CallerRole,
    /// Folders of files, and single disks or files, that are looked at for members of pools beside all disks of the
    /// system.
    pub look_in: Vec<PathBuf>,
    /// Whether the block devices of the system are looked at for members of pools.
    pub scan: Scan,
    /// Treatment of disks that come back while the daemon runs.
    pub returned: Returned,
    /// Memory and driver of the engine's thread.
    pub runtime: RuntimeConfig,
    /// Where attached spaces get their stable names.
    pub links: PathBuf,
    /// How long spaces stay in the trash before they are purged by themselves; none for ever.
    pub trash_after: Option<Duration>,
    /// Folder for the mount units of volumes; none are written without it.
    pub units: Option<PathBuf>,
    /// Where the kernel shows devices, and their lights; another folder stands for it in tests.
    pub sys: PathBuf,
    /// A program that speaks of disks as `smartctl` does, in its place, and is asked about all of them, files as well.
    pub smartctl: Option<PathBuf>,
    /// The program that keeps attached spaces waiting while the daemon is away; it calls [`keep`](crate::keep).
    pub descriptor_holder: DescriptorHolderProgram,
    /// The program that works on file systems of volumes, one operation for each process.
    pub worker: PathBuf,
    /// The command line, which runs benchmarks.
    pub command: PathBuf,
    /// File about the servers that offer shares, as JSON; those that this host usually has without one.
    pub servers: Option<PathBuf>,
}

/// Returns the worker that a setting in the environment names, or else the one beside the program of this process.
fn usual_worker() -> PathBuf {
    std::env::var_os(WORKER_VARIABLE).filter(|path| !path.is_empty()).map_or_else(
        || std::env::current_exe().unwrap_or_default().with_file_name(WORKER_PROGRAM),
        PathBuf::from,
    )
}

/// Returns the command line that a setting in the environment names, or else the one beside the program of this process, or else that of
/// the system: packages have daemon and command in folders of their own.
fn usual_command() -> PathBuf {
    let named = std::env::var_os(COMMAND_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    named.unwrap_or_else(|| {
        let sibling = std::env::current_exe().unwrap_or_default().with_file_name(COMMAND_PROGRAM);
        if sibling.is_file() { sibling } else { PathBuf::from(COMMAND_PROGRAM) }
    })
}

/// Whether the block devices of the system are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scan {
    /// All of them that nobody uses.
    System,
    /// Only what is named: for tests and for daemons beside another one.
    NamedOnly,
}

/// Treatment of disks that come back while the daemon runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returned {
    /// They are taken in, and pools that wait for them are opened.
    TakenIn,
    /// They are left to commands.
    Left,
}

impl Returned {
    /// Returns what the environment says: they are left where it says so.
    fn of_environment() -> Self {
        match std::env::var_os(RETURNED_VARIABLE) {
            Some(value) if value == "left" => Self::Left,
            Some(_) | None => Self::TakenIn,
        }
    }
}

impl Config {
    /// As on a system where nobody said otherwise.
    #[must_use]
    pub fn usual() -> Self {
        let run = PathBuf::from(RUN_FOLDER);
        Self {
            state: PathBuf::from(STATE_FOLDER),
            run,
            socket: PathBuf::from(dolmen_api::SOCKET_PATH),
            web_user: WEB_USER.to_owned(),
            web_role_max: CallerRole::Admin,
            look_in: Vec::new(),
            scan: Scan::System,
            returned: Returned::of_environment(),
            runtime: RuntimeConfig {
                data: DATA_ARENA,
                metadata: METADATA_ARENA,
                driver: DriverChoice::Automatic,
                close_limit: CLOSE_LIMIT,
            },
            links: PathBuf::from(LINKS_FOLDER),
            trash_after: Some(TRASH_AFTER),
            smartctl: None,
            units: None,
            sys: PathBuf::from(SYS_FOLDER),
            descriptor_holder: DescriptorHolderProgram {
                path: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe")),
                arguments: vec![DESCRIPTOR_HOLDER_COMMAND.into()],
            },
            worker: usual_worker(),
            command: usual_command(),
            servers: std::env::var_os(SERVERS_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from),
        }
    }

    /// The socket on which spaces are served.
    #[must_use]
    pub fn nbd_socket(&self) -> PathBuf {
        self.run.join("nbd.sock")
    }

    /// The socket on which the API answers `dolmen-web`.
    #[must_use]
    pub fn web_socket(&self) -> PathBuf {
        self.run.join(WEB_SOCKET_NAME)
    }

    /// Where the host's records of epochs are.
    #[must_use]
    pub fn arbiter_folder(&self) -> PathBuf {
        self.state.join("epochs")
    }

    /// Where pools are remembered.
    #[must_use]
    pub fn pools_folder(&self) -> PathBuf {
        self.state.join("pools")
    }

    /// What is remembered of errors and damage of pools.
    #[must_use]
    pub fn history_folder(&self) -> PathBuf {
        self.state.join("history")
    }

    /// Lock files of volumes.
    #[must_use]
    pub fn volumes_folder(&self) -> PathBuf {
        self.state.join("volumes")
    }

    /// Reports of benchmarks.
    #[must_use]
    pub fn benchmarks_folder(&self) -> PathBuf {
        self.state.join("benchmarks")
    }

    /// What is attached, on record.
    #[must_use]
    pub fn attached_record(&self) -> PathBuf {
        self.state.join("attached.json")
    }

    /// What is attached over io_uring, on record.
    #[must_use]
    pub fn uring_record(&self) -> PathBuf {
        self.state.join("attached_uring.json")
    }

    /// What is attached as ublk devices, on record.
    #[must_use]
    pub fn ublk_record(&self) -> PathBuf {
        self.state.join("attached_ublk.json")
    }
}
