//! A daemon's socket that records what it is asked, and answers with documents of a test.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

/// A request that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Method and path.
    pub(crate) line: String,
    pub(crate) role: String,
    pub(crate) user: String,
    pub(crate) body: String,
}

/// Returns the status and the document for a path.
type Answers = Arc<dyn Fn(&str) -> (u16, String) + Send + Sync>;

pub(crate) struct FakeDaemon {
    folder: TempDir,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl FakeDaemon {
    pub(crate) fn new() -> Self {
        Self::answering(|_| (200, r#"{"schema":1}"#.to_owned()))
    }

    pub(crate) fn answering(answers: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("web.sock")).unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (record, answers): (_, Answers) = (Arc::clone(&seen), Arc::new(answers));
        #[allow(clippy::disallowed_methods, reason = "the daemon of a test has threads of its own")]
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (record, answers) = (Arc::clone(&record), Arc::clone(&answers));
                std::thread::spawn(move || serve(&stream, &record, &answers));
            }
        });
        Self { folder, seen }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("web.sock")
    }

    /// What has arrived since the last call.
    pub(crate) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn serve(stream: &UnixStream, record: &Mutex<Vec<Seen>>, answers: &Answers) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        if let Some(found) = line.to_lowercase().strip_prefix("content-length: ") {
            length = found.parse().unwrap();
        }
        head.push(line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let of = |name: &str| {
        let mut found = head.iter().filter_map(|line| line.split_once(": "));
        let found = found.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map_or(String::new(), |(_, value)| value.to_owned())
    };
    let line = head[0].trim_end_matches(" HTTP/1.1").to_owned();
    let path = line.split(' ').nth(1).unwrap().to_owned();
    let seen = Seen {
        line,
        role: of("dolmen-role"),
        user: of("dolmen-user"),
        body: String::from_utf8(body).unwrap(),
    };
    // The looks of alerts come by themselves; no client has asked for them.
    if seen.user != "console/alerts" {
        record.lock().unwrap().push(seen);
    }
    let (status, document) = answers(&path);
    let length = document.len();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n"
    );
    let mut stream = stream;
    let _ = stream.write_all(format!("{head}\r\n{document}").as_bytes());
}
