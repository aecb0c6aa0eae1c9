//! One HTTP/1.1 request over a Unix socket, and its answer.
//!
//! The daemon stands on the same machine and is ours, but it may be of another version, stopped in mid-sentence, or not
//! the daemon at all. So everything that is read has a limit, and every answer that is not HTTP is an error that says
//! what was found. A connection carries one request: commands ask a few questions and end.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of the status line and all headers, at most.
const HEAD_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of an answer's body, at most: the largest listing of a pool of 240 disks is far below it.
const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Bytes of an answer that an error message repeats.
const SHOWN_CHARS_MAX: usize = 80;

/// What to do with a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    /// Look.
    Get,
    /// Do.
    Post,
}

impl Method {
    /// As HTTP writes it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}

/// An answer: the status and what came with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The status, such as 200.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    /// Nobody listens.
    #[error("the dolmen daemon does not run: nothing listens at {}", socket.display())]
    NoDaemon {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// This user may not.
    #[error("no permission to use the daemon's socket {}", socket.display())]
    Denied {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path cannot be one of a socket.
    #[error("{} cannot be used as the daemon's socket", socket.display())]
    Socket {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It took too long.
    #[error("the daemon at {} did not answer within {} s; what was asked may still be done", socket.display(), limit.as_secs_f32())]
    Timeout {
        /// The socket.
        socket: PathBuf,
        /// How long was waited.
        limit: Duration,
    },
    /// It hung up.
    #[error("the daemon at {} ended the connection in the middle of its answer; what was asked may have been done", socket.display())]
    HungUp {
        /// The socket.
        socket: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It speaks something else.
    #[error("what listens at {} does not speak the daemon's protocol: expected {expected}, found {found:?}", socket.display())]
    Malformed {
        /// The socket.
        socket: PathBuf,
        /// What belongs there.
        expected: &'static str,
        /// The beginning of what stood there.
        found: String,
    },
    /// It speaks without end.
    #[error("the answer from {} has more than {limit_bytes} bytes of {what}, and was not read further", socket.display())]
    TooLong {
        /// The socket.
        socket: PathBuf,
        /// Which part.
        what: &'static str,
        /// How many are allowed.
        limit_bytes: u64,
    },
}

/// Where the daemon listens, and how patient to be.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// The socket.
    pub socket: PathBuf,
    /// How long the daemon may be silent.
    pub limit: Duration,
}

impl Peer {
    /// Sends a request and waits for the answer.
    pub(crate) fn ask(&self, method: Method, path: &str, body: Option<&[u8]>) -> Result<Answer, HttpError> {
        let stream = self.connect()?;
        self.send(&stream, method, path, body)?;
        let mut reader = Reader { from: BufReader::new(&stream), peer: self };
        reader.answer()
    }

    fn connect(&self) -> Result<UnixStream, HttpError> {
        let socket = || self.socket.clone();
        let stream = UnixStream::connect(&self.socket).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                HttpError::NoDaemon { socket: socket(), source }
            }
            io::ErrorKind::PermissionDenied => HttpError::Denied { socket: socket(), source },
            _ => HttpError::Socket { socket: socket(), source },
        })?;
        let limits = stream
            .set_read_timeout(Some(self.limit))
            .and_then(|()| stream.set_write_timeout(Some(self.limit)));
        limits.map_err(|source| HttpError::Socket { socket: socket(), source })?;
        Ok(stream)
    }

    fn send(
        &self,
        mut stream: &UnixStream,
        method: Method,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<(), HttpError> {
        let mut text = format!("{} {path} HTTP/1.1\r\n", method.word());
        text.push_str("Host: dolmen\r\nConnection: close\r\nAccept: application/json\r\n");
        if let Some(body) = body {
            text.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(body.unwrap_or_default());
        match stream.write_all(&bytes) {
            // A daemon that refuses early may close before it read everything; its answer says more than the error.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent.map_err(|error| self.broken(error)),
        }
    }

    fn broken(&self, error: io::Error) -> HttpError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                HttpError::Timeout { socket: self.socket.clone(), limit: self.limit }
            }
            _ => HttpError::HungUp { socket: self.socket.clone(), source: error },
        }
    }

    fn malformed(&self, expected: &'static str, found: &[u8]) -> HttpError {
        let found = String::from_utf8_lossy(found).trim_end().chars().take(SHOWN_CHARS_MAX).collect();
        HttpError::Malformed { socket: self.socket.clone(), expected, found }
    }
}

/// How the end of a body is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(u64),
    InPieces,
    UntilClosed,
}

struct Reader<'a> {
    from: BufReader<&'a UnixStream>,
    peer: &'a Peer,
}

impl Reader<'_> {
    fn answer(&mut self) -> Result<Answer, HttpError> {
        let mut head_bytes = HEAD_BYTES_MAX;
        loop {
            let status = self.status(&mut head_bytes)?;
            let framing = self.headers(&mut head_bytes)?;
            // 100 Continue and its like announce the answer; they are not it.
            if (100..200).contains(&status) {
                continue;
            }
            let body = match framing {
                _ if matches!(status, 204 | 304) => Vec::new(),
                Framing::Length(bytes) => self.body_of(bytes)?,
                Framing::InPieces => self.body_in_pieces(&mut head_bytes)?,
                Framing::UntilClosed => self.body_until_closed()?,
            };
            return Ok(Answer { status, body });
        }
    }

    /// One line without its end.
    fn line(&mut self, left_bytes: &mut u64, expected: &'static str) -> Result<Vec<u8>, HttpError> {
        let mut line = Vec::new();
        let read = self.from.by_ref().take(*left_bytes).read_until(b'\n', &mut line);
        let read = read.map_err(|error| self.peer.broken(error))?;
        *left_bytes = left_bytes.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
        if line.pop() != Some(b'\n') {
            if *left_bytes == 0 {
                return Err(self.too_long("headers", HEAD_BYTES_MAX));
            }
            let cut = io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the answer ends where {expected} was expected"),
            );
            return Err(self.peer.broken(cut));
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(line)
    }

    fn status(&mut self, left_bytes: &mut u64) -> Result<u16, HttpError> {
        const EXPECTED: &str = "HTTP/1.1 and a status";
        let line = self.line(left_bytes, EXPECTED)?;
        let text = std::str::from_utf8(&line).unwrap_or("");
        let status = text.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
        let status = status.filter(|digits| digits.len() == 3).and_then(|digits| digits.parse().ok());
        status
            .filter(|status| (100..600).contains(status))
            .ok_or_else(|| self.peer.malformed(EXPECTED, &line))
    }

    fn headers(&mut self, left_bytes: &mut u64) -> Result<Framing, HttpError> {
        let mut framing = Framing::UntilClosed;
        loop {
            let line = self.line(left_bytes, "a header or an empty line")?;
            if line.is_empty() {
                return Ok(framing);
            }
            let text = std::str::from_utf8(&line).unwrap_or("");
            let (name, value) = text.split_once(':').ok_or_else(|| self.peer.malformed("a header", &line))?;
            let value = value.trim();
            if name.eq_ignore_ascii_case("transfer-encoding") {
                if !value.eq_ignore_ascii_case("chunked") {
                    return Err(self.peer.malformed("a body of known length", &line));
                }
                framing = Framing::InPieces;
            } else if name.eq_ignore_ascii_case("content-length") && framing != Framing::InPieces {
                let length = value.parse().map_err(|_| self.peer.malformed("a length in bytes", &line))?;
                framing = Framing::Length(length);
            }
        }
    }

    fn body_of(&mut self, length_bytes: u64) -> Result<Vec<u8>, HttpError> {
        let mut body = Vec::new();
        self.append(&mut body, length_bytes)?;
        Ok(body)
    }

    fn append(&mut self, body: &mut Vec<u8>, length_bytes: u64) -> Result<(), HttpError> {
        let before_bytes = u64::try_from(body.len()).unwrap_or(u64::MAX);
        if before_bytes.saturating_add(length_bytes) > BODY_BYTES_MAX {
            return Err(self.too_long("body", BODY_BYTES_MAX));
        }
        let read = self.from.by_ref().take(length_bytes).read_to_end(body);
        let read = read.map_err(|error| self.peer.broken(error))?;
        if u64::try_from(read).ok() != Some(length_bytes) {
            let what = format!("{read} of {length_bytes} bytes came");
            return Err(self.peer.broken(io::Error::new(io::ErrorKind::UnexpectedEof, what)));
        }
        Ok(())
    }

    fn body_in_pieces(&mut self, left_bytes: &mut u64) -> Result<Vec<u8>, HttpError> {
        const EXPECTED: &str = "the length of a piece in hexadecimal digits";
        let mut body = Vec::new();
        loop {
            // Each piece has a line of its own; a body of many pieces must not use up the room for headers.
            let mut line_bytes = (*left_bytes).min(HEAD_BYTES_MAX);
            let line = self.line(&mut line_bytes, EXPECTED)?;
            let text = std::str::from_utf8(&line).unwrap_or("");
            let digits = text.split(';').next().unwrap_or("").trim();
            let length_bytes =
                u64::from_str_radix(digits, 16).map_err(|_| self.peer.malformed(EXPECTED, &line))?;
            if length_bytes == 0 {
                self.headers(left_bytes)?;
                return Ok(body);
            }
            self.append(&mut body, length_bytes)?;
            if !self.line(&mut line_bytes, "the end of a piece")?.is_empty() {
                return Err(self.peer.malformed("the end of a piece", b"more bytes"));
            }
        }
    }

    fn body_until_closed(&mut self) -> Result<Vec<u8>, HttpError> {
        let mut body = Vec::new();
        let read = self.from.by_ref().take(BODY_BYTES_MAX + 1).read_to_end(&mut body);
        read.map_err(|error| self.peer.broken(error))?;
        if u64::try_from(body.len()).unwrap_or(u64::MAX) > BODY_BYTES_MAX {
            return Err(self.too_long("body", BODY_BYTES_MAX));
        }
        Ok(body)
    }

    fn too_long(&self, what: &'static str, limit_bytes: u64) -> HttpError {
        HttpError::TooLong { socket: self.peer.socket.clone(), what, limit_bytes }
    }
}
