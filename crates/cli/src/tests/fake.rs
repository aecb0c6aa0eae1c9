//! A daemon that is played, and a person at a terminal, or none.

use std::io::{BufRead, BufReader, Cursor, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dolmen_api::ExitCode;
use serde_json::{Value, json};

use crate::session::poll_interval::PollInterval;
use crate::terminal::out::{Kind, Out};
use crate::terminal::paint::Paint;

/// What a played daemon says to a question: bytes, and whether it hangs up behind them.
pub(crate) enum Reply {
    /// These bytes, then nothing more.
    Bytes(Vec<u8>),
    /// These bytes, then silence until the other side gives up.
    Silence(Vec<u8>),
}

/// A question that came in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Question {
    pub line: String,
    pub body: Value,
}

pub(crate) struct Fake {
    pub socket: PathBuf,
    asked: Arc<Mutex<Vec<Question>>>,
    _folder: tempfile::TempDir,
}

impl Fake {
    /// Plays a daemon that answers each question by a function of method and path, and the body.
    pub(crate) fn play(answer: impl Fn(&str, &Value) -> Reply + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("api");
        let listener = UnixListener::bind(&socket).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let question = read_question(&stream);
                noted.lock().unwrap().push(question.clone());
                match answer(&question.line, &question.body) {
                    Reply::Bytes(bytes) => drop(stream.write_all(&bytes)),
                    Reply::Silence(bytes) => {
                        drop(stream.write_all(&bytes));
                        drop(stream.read(&mut [0; 1]));
                    }
                }
            }
        });
        Self { socket, asked, _folder: folder }
    }

    /// The questions so far.
    pub(crate) fn asked(&self) -> Vec<Question> {
        self.asked.lock().unwrap().clone()
    }

    /// The questions that would change something.
    pub(crate) fn acts(&self) -> Vec<Question> {
        let asked = self.asked();
        asked.into_iter().filter(|q| q.line.starts_with("POST") && q.body["dry_run"] != json!(true)).collect()
    }

    /// Runs a command against it.
    pub(crate) fn run(&self, line: &str, person: &Person) -> Ended {
        let socket = self.socket.to_str().unwrap();
        let words = ["dolmen", "--socket", socket].into_iter().chain(line.split_whitespace());
        run(&words.collect::<Vec<_>>(), person)
    }
}

fn read_question(stream: &UnixStream) -> Question {
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    reader.read_line(&mut line).unwrap();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("Content-Length: ") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let line = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    Question { line, body: serde_json::from_slice(&body).unwrap_or(Value::Null) }
}

/// Who sits in front of the command.
pub(crate) struct Person {
    pub kind: Kind,
    pub types: &'static str,
}

/// Nobody: a script.
pub(crate) const NOBODY: Person = Person { kind: Kind::Plain, types: "" };

/// Somebody who types this.
pub(crate) fn somebody(types: &'static str) -> Person {
    Person { kind: Kind::Terminal, types }
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct Ended {
    pub code: ExitCode,
    pub results: String,
    pub messages: String,
}

pub(crate) fn run(words: &[&str], person: &Person) -> Ended {
    let arguments = crate::arguments::parse::parse(words).unwrap();
    let (mut results, mut messages) = (Vec::new(), Vec::new());
    let mut out = Out {
        results: &mut results,
        results_kind: person.kind,
        messages: &mut messages,
        messages_kind: person.kind,
        answers: &mut Cursor::new(person.types.as_bytes()),
        answers_kind: person.kind,
        paint_results: Paint::Never,
        columns: None,
        is_unread: false,
        unwritten: None,
    };
    let code = crate::run(arguments, &mut out, PollInterval { pause: Duration::from_millis(1) });
    Ended {
        code,
        results: String::from_utf8(results).unwrap(),
        messages: String::from_utf8(messages).unwrap(),
    }
}

/// An answer in JSON.
pub(crate) fn answer(status: u16, body: &Value) -> Reply {
    let body = body.to_string();
    Reply::Bytes(
        format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes(),
    )
}

/// An error of the daemon.
pub(crate) fn refuse(status: u16, code: &str, message: &str, object: &str) -> Reply {
    answer(status, &json!({"schema": 1, "error": {"code": code, "message": message, "object": object}}))
}

/// What a daemon answers that does what it is asked for.
pub(crate) fn obey(body: &Value) -> Reply {
    let is_dry = body["dry_run"] == json!(true);
    answer(200, &change(!is_dry))
}

/// The answer to a change.
pub(crate) fn change(is_changed: bool) -> Value {
    json!({
        "schema": 1, "is_changed": is_changed, "message": "it is done",
        "plan": {"usable_before_bytes": 1 << 30, "usable_after_bytes": 3u64 << 29, "moved_bytes": 4096,
                 "is_reversible": false, "steps": ["forget everything", "rest"]},
    })
}
