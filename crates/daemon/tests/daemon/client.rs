//! A daemon in a folder of its own, and small clients of its API and of NBD.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::mount::UnmountFlags;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::declared::check_declared;

/// Polls of something that should happen soon, a twentieth of a second apart.
const POLLS_MAX: u32 = 400;

pub(crate) fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    for _ in 0..POLLS_MAX {
        if let Some(value) = ready() {
            return value;
        }
        #[allow(clippy::disallowed_methods, reason = "the daemon under test lives in real time")]
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("waited in vain: {what}");
}

/// How `unshare` runs a program that sees no other processes, and dies with `unshare`.
pub(crate) const IN_A_CONTAINER: [&str; 4] = ["--pid", "--fork", "--kill-child", "--mount-proc"];

pub(crate) struct World {
    pub(crate) folder: TempDir,
    daemon: Option<Child>,
    numbering: Numbering,
}

/// Which processes a daemon sees, and who sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// Those that the tests see.
    Shared,
    /// Itself alone, as in a container.
    Own,
}

impl World {
    /// A folder with `disks` sparse files of 256 MiB, `d0` and so on, and a running daemon.
    pub(crate) fn new(disks: usize) -> Self {
        Self::numbered(disks, Numbering::Shared)
    }

    pub(crate) fn numbered(disks: usize, numbering: Numbering) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("disks")).unwrap();
        let mut world = Self { folder, daemon: None, numbering };
        for index in 0..disks {
            world.make_disk(&format!("d{index}"), 256 << 20);
        }
        world.start();
        world
    }

    pub(crate) fn disk(&self, name: &str) -> String {
        self.folder.path().join("disks").join(name).display().to_string()
    }

    pub(crate) fn make_disk(&self, name: &str, bytes: u64) -> String {
        std::fs::File::create(self.disk(name)).unwrap().set_len(bytes).unwrap();
        self.disk(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("run/dolmen.sock")
    }

    pub(crate) fn command(&self, state: &str, run: &str) -> Command {
        let path = |name: &str| self.folder.path().join(name);
        let program = env!("CARGO_BIN_EXE_dolmend");
        let mut command = match self.numbering {
            Numbering::Shared => Command::new(program),
            Numbering::Own => Command::new("unshare"),
        };
        if self.numbering == Numbering::Own {
            command.args(IN_A_CONTAINER).arg(program);
        }
        command.arg("--state").arg(path(state)).arg("--run").arg(path(run)).arg("--links").arg(path("dev"));
        command.arg("--named-only").env("DOLMEN_LOG", "warn").stdin(Stdio::null());
        command
    }

    pub(crate) fn start(&mut self) {
        let command = self.command("state", "run");
        self.begin(command);
    }

    /// Starts one in its place that leaves disks which come back to commands.
    pub(crate) fn leave_returned_disks(&mut self) {
        self.kill();
        let mut command = self.command("state", "run");
        command.env("DOLMEN_RETURNED", "left");
        self.begin(command);
    }

    /// Starts one that keeps spaces in the trash for so long.
    pub(crate) fn start_with_trash_after(&mut self, seconds: u64) {
        let mut command = self.command("state", "run");
        command.arg("--trash-after-s").arg(seconds.to_string());
        self.begin(command);
    }

    /// Starts a daemon by a command, and waits until it answers and has nothing to do.
    pub(crate) fn begin(&mut self, command: Command) {
        self.begin_at_once(command);
        eventually("the daemon answers", || {
            let (status, body) = self.try_ask("GET", "/v1/status", b"")?;
            (status == 200 && body["doing"] == json!([])).then_some(())
        });
    }

    /// Starts a daemon by a command, and waits for nothing.
    pub(crate) fn begin_at_once(&mut self, mut command: Command) {
        assert!(self.daemon.is_none());
        self.daemon = Some(command.spawn().unwrap());
    }

    pub(crate) fn is_running(&self) -> bool {
        self.daemon.is_some()
    }

    /// Kills it, as the system might.
    pub(crate) fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Kills it, and has another one in its place.
    pub(crate) fn replace(&mut self, next: Child) {
        self.kill();
        self.daemon = Some(next);
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut daemon = self.daemon.take().unwrap();
        eventually("the daemon ends", || daemon.try_wait().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.daemon.as_ref().unwrap().id()
    }

    /// One request; `None` when nobody answers.
    pub(crate) fn try_ask(&self, method: &str, path: &str, body: &[u8]) -> Option<(u16, Value)> {
        let mut stream = UnixStream::connect(self.socket()).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(30))).ok()?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: d\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).ok()?;
        // A daemon that refuses a long body answers before it has read it.
        let _ = stream.write_all(body);
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text);
        let text = String::from_utf8(text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let answer = serde_json::from_str(body).ok()?;
        check_declared(method, path, status, &answer);
        Some((status, answer))
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, body) = self.try_ask("GET", path, b"").unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        assert_eq!(body["schema"], 1, "{path}");
        body
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.try_ask("POST", path, body.to_string().as_bytes()).unwrap();
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    }

    /// The error that a request meets.
    pub(crate) fn refused(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.try_ask("POST", path, body.to_string().as_bytes()).unwrap();
        assert!(status >= 400, "{path} {body}: {answer}");
        assert_eq!(answer["schema"], 1);
        let error = answer["error"].clone();
        let message = error["message"].as_str().unwrap();
        assert!(!message.is_empty() && !message.ends_with('.'), "{message}");
        error
    }

    /// A pool `tank` of these disks, and a mirror `m` of 32 MiB in rows of 1 MiB, served.
    pub(crate) fn make_tank(&self, disks: &[&str]) {
        let disks: Vec<String> = disks.iter().map(|name| self.disk(name)).collect();
        self.post("/v1/pools", &json!({"name": "tank", "disks": disks}));
        let space =
            json!({"name": "m", "size_bytes": 32 << 20, "resiliency": "mirror", "row_bytes": 1 << 20});
        self.post("/v1/pools/tank/spaces", &space);
        self.post("/v1/pools/tank/spaces/m/serve", &json!({}));
    }

    pub(crate) fn nbd(&self) -> Nbd {
        Nbd::connect(&self.folder.path().join("run/nbd.sock"), "tank/m")
    }

    /// Waits until no job runs or waits for the slot, and returns the last.
    pub(crate) fn last_job(&self) -> Value {
        eventually("jobs end", || {
            let jobs = self.get("/v1/jobs")["jobs"].as_array().unwrap().clone();
            let is_put_off = |job: &Value| job.get("waits_for").is_some_and(|what| !what.is_null());
            let is_at_it = |job: &Value| job["state"] == "running" || job["state"] == "waiting";
            let running = jobs.iter().any(|job| is_at_it(job) && !is_put_off(job));
            if running { None } else { jobs.last().cloned() }
        })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            // A test that failed may have a space attached. Whoever waits for it gets an error now, the daemon's own threads included,
            // which would keep the wait below from its end.
            let attached = self.folder.path().join("run/attached");
            let _ = rustix::mount::unmount(&attached, UnmountFlags::FORCE);
            let _ = rustix::mount::unmount(&attached, UnmountFlags::DETACH);
            let _ = daemon.wait();
        }
    }
}

/// The least of an NBD client: one request at a time, simple replies.
pub(crate) struct Nbd<S = UnixStream> {
    pub(crate) stream: S,
    pub(crate) size: u64,
}

impl Nbd {
    pub(crate) fn connect(socket: &Path, name: &str) -> Self {
        let stream = eventually("the NBD socket answers", || UnixStream::connect(socket).ok());
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self::greeted(stream, name)
    }
}

/// An option of the handshake, as a client sends it.
pub(crate) fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap();
    [b"IHAVEOPT", &number.to_be_bytes()[..], &length.to_be_bytes(), data].concat()
}

impl<S: Read + Write> Nbd<S> {
    /// Takes the greeting and chooses an export.
    pub(crate) fn greeted(mut stream: S, name: &str) -> Self {
        take_greeting(&mut stream);
        stream.write_all(&3u32.to_be_bytes()).unwrap();
        Self::chosen(stream, name).unwrap()
    }

    /// Chooses an export, the old way.
    pub(crate) fn chosen(mut stream: S, name: &str) -> std::io::Result<Self> {
        stream.write_all(&option(1, name.as_bytes()))?;
        let mut answer = [0; 10];
        stream.read_exact(&mut answer)?;
        Ok(Self { stream, size: u64::from_be_bytes(answer[..8].try_into().unwrap()) })
    }

    /// As [`read`](Self::read), with the error that it may meet.
    pub(crate) fn try_read(&mut self, at: u64, length: usize) -> Result<Vec<u8>, u32> {
        let mut data = vec![0; length];
        match self.ask(0, at, length, &[], &mut data) {
            0 => Ok(data),
            error => Err(error),
        }
    }

    fn ask(&mut self, kind: u16, at: u64, length: usize, payload: &[u8], into: &mut [u8]) -> u32 {
        self.asked(kind, at, length, payload, into).unwrap()
    }

    /// One request, with what becomes of it where the connection ends.
    pub(crate) fn asked(
        &mut self,
        kind: u16,
        at: u64,
        length: usize,
        payload: &[u8],
        into: &mut [u8],
    ) -> std::io::Result<u32> {
        let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
        request.extend(0u16.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(7u64.to_be_bytes());
        request.extend(at.to_be_bytes());
        request.extend(u32::try_from(length).unwrap().to_be_bytes());
        request.extend(payload);
        self.stream.write_all(&request)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        let error = u32::from_be_bytes(reply[4..8].try_into().unwrap());
        if error == 0 {
            self.stream.read_exact(into)?;
        }
        Ok(error)
    }

    pub(crate) fn write(&mut self, at: u64, data: &[u8]) {
        assert_eq!(self.ask(1, at, data.len(), data, &mut []), 0, "writing at {at}");
    }

    /// As [`write`](Self::write), with the error that it may meet.
    pub(crate) fn try_write(&mut self, at: u64, data: &[u8]) -> u32 {
        self.ask(1, at, data.len(), data, &mut [])
    }

    pub(crate) fn read(&mut self, at: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        assert_eq!(self.ask(0, at, length, &[], &mut data), 0, "reading at {at}");
        data
    }

    pub(crate) fn flush(&mut self) {
        assert_eq!(self.try_flush(), 0);
    }

    /// As [`flush`](Self::flush), with the error that it may meet.
    pub(crate) fn try_flush(&mut self) -> u32 {
        self.ask(3, 0, 0, &[], &mut [])
    }

    pub(crate) fn trim(&mut self, at: u64, length: usize) {
        assert_eq!(self.try_trim(at, length), 0);
    }

    /// As [`trim`](Self::trim), with the error that it may meet.
    pub(crate) fn try_trim(&mut self, at: u64, length: usize) -> u32 {
        self.ask(4, at, length, &[], &mut [])
    }
}

pub(crate) fn take_greeting(stream: &mut impl Read) {
    let mut hello = [0; 18];
    stream.read_exact(&mut hello).unwrap();
    assert_eq!(&hello[..16], b"NBDMAGICIHAVEOPT");
}

/// Content that differs in every block.
pub(crate) fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| seed ^ u8::try_from((at / 4096 * 31 + at % 251) % 256).unwrap()).collect()
}
