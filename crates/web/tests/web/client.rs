//! A server in a folder of its own, and a small client of it over TLS.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Polls of something that should happen soon, a twentieth of a second apart.
const POLLS_MAX: u32 = 600;
/// The password of every user.
pub(crate) const PASSWORD: &str = "correct horse battery";

pub(crate) fn eventually<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    for _ in 0..POLLS_MAX {
        if let Some(value) = ready() {
            return value;
        }
        #[allow(clippy::disallowed_methods, reason = "the server under test lives in real time")]
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("waited in vain: {what}");
}

pub(crate) struct Web {
    pub(crate) folder: TempDir,
    socket: PathBuf,
    server: Option<Child>,
    pub(crate) port: u16,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("no document: {self:?}"))
    }

    /// The secret of the cookie that it sets.
    pub(crate) fn cookie(&self) -> String {
        let cookie = self.header("set-cookie").unwrap_or_else(|| panic!("no cookie: {self:?}"));
        let (pair, attributes) = cookie.split_once("; ").unwrap();
        assert!(attributes.starts_with("Path=/; Secure; HttpOnly; SameSite=Strict"), "{cookie}");
        pair.strip_prefix("__Host-dolmen=").unwrap().to_owned()
    }
}

pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

impl Web {
    /// A server before a daemon's socket.
    pub(crate) fn new(socket: impl Into<PathBuf>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut web = Self { folder, socket: socket.into(), server: None, port: 0 };
        web.start();
        web
    }

    /// A server with settings of alerts.
    pub(crate) fn with_alerts(socket: impl Into<PathBuf>, settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut web = Self { folder, socket: socket.into(), server: None, port: 0 };
        std::fs::write(web.alerts(), settings).unwrap();
        web.start();
        web
    }

    /// Its settings of alerts.
    pub(crate) fn alerts(&self) -> PathBuf {
        self.folder.path().join("alerts.toml")
    }

    /// A server without a daemon.
    pub(crate) fn alone() -> Self {
        Self::new("/nonexistent/web.sock")
    }

    pub(crate) fn accounts(&self) -> PathBuf {
        self.folder.path().join("accounts.json")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dolmen-web"));
        command.args(arguments).env("DOLMEN_WEB_STATE", self.folder.path()).env_remove("DOLMEN_SOCKET");
        command.env("DOLMEN_LOG", "warn").env_remove("DOLMEN_WEB_ALERTS").stdin(Stdio::null());
        if self.alerts().exists() {
            command.env("DOLMEN_WEB_ALERTS", self.alerts());
        }
        command
    }

    fn serving(&self) -> Command {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0", "--socket"]);
        command.arg(&self.socket).stdout(Stdio::piped());
        command
    }

    pub(crate) fn start(&mut self) {
        let mut server = self.serving().spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.port = line.trim().strip_prefix("https://127.0.0.1:").unwrap().parse().unwrap();
        self.server = Some(server);
    }

    /// Starts a server that is expected to refuse; its messages.
    pub(crate) fn refuses_to_start(&self) -> String {
        let output = self.serving().output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let id = self.server.as_ref().unwrap().id();
        kill_process(Pid::from_raw(id.cast_signed()).unwrap(), signal).unwrap();
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut server = self.server.take().unwrap();
        eventually("the server ends", || server.try_wait().unwrap())
    }

    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        assert_eq!(self.ended().signal(), Some(9));
    }

    /// Runs a command on the host, with standard input.
    pub(crate) fn host(&self, arguments: &[&str], input: &str) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that needs none may have ended.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// Runs a command on the host that succeeds; its results.
    pub(crate) fn run(&self, arguments: &[&str], input: &str) -> String {
        let output = self.host(arguments, input);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command on the host that is refused; its messages.
    pub(crate) fn refused(&self, arguments: &[&str], input: &str) -> String {
        let output = self.host(arguments, input);
        assert!(!output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn add_user(&self, name: &str, role: &str) {
        self.run(&["user", "add", name, "--role", role], &format!("{PASSWORD}\n"));
    }

    /// Makes a token, and returns its header.
    pub(crate) fn token(&self, name: &str, role: &str) -> String {
        let token = self.run(&["token", "create", name, "--role", role], "");
        format!("Authorization: Bearer {}\r\n", token.trim())
    }

    /// A connection whose certificate was checked.
    pub(crate) fn connect(&self) -> Tls {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
        let mut roots = RootCertStore::empty();
        let certificate = self.folder.path().join("certificate.pem");
        roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
        let connection = ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap();
        StreamOwned::new(connection, stream)
    }

    /// Sends bytes, and returns the answer.
    pub(crate) fn send(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        // A server that refuses early may not read the rest.
        let _ = stream.write_all(bytes);
        let _ = stream.flush();
        Answer::parse(&rest_of(&mut stream))
    }

    /// One request with headers, each with its line end.
    pub(crate) fn ask(&self, line: &str, headers: &str, body: &str) -> Answer {
        let (port, length) = (self.port, body.len());
        let length =
            if line.starts_with("GET") { String::new() } else { format!("content-length: {length}\r\n") };
        let head = format!(
            "{line} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n{length}{headers}\r\n"
        );
        self.send(format!("{head}{body}").as_bytes())
    }

    pub(crate) fn get(&self, path: &str, headers: &str) -> Answer {
        self.ask(&format!("GET {path}"), headers, "")
    }

    /// A change, as the console sends it.
    pub(crate) fn post(&self, path: &str, headers: &str, body: &Value) -> Answer {
        let headers = format!(
            "{headers}content-type: application/json\r\ndolmen-request: 1\r\norigin: https://127.0.0.1:{}\r\n",
            self.port
        );
        self.ask(&format!("POST {path}"), &headers, &body.to_string())
    }

    /// Signs in, and returns the header of the session.
    pub(crate) fn sign_in(&self, user: &str) -> String {
        let answer = self.post("/account/sign-in", "", &json!({"user": user, "password": PASSWORD}));
        assert_eq!(answer.status, 200, "{answer:?}");
        cookie_header(&answer.cookie())
    }

    /// Changes the file of accounts by hand.
    pub(crate) fn edit(&self, edit: impl FnOnce(&mut Value)) {
        let mut accounts: Value = serde_json::from_slice(&std::fs::read(self.accounts()).unwrap()).unwrap();
        edit(&mut accounts);
        std::fs::write(self.accounts(), accounts.to_string()).unwrap();
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

pub(crate) fn cookie_header(secret: &str) -> String {
    format!("cookie: __Host-dolmen={secret}\r\n")
}

/// Everything until the end of a connection, however it ends.
pub(crate) fn rest_of(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        bytes.extend(&piece[..count]);
    }
    bytes
}
