//! The log: lines for standard error, written by a thread of their own.
//!
//! What takes the lines may hang, fill up or go away, and nothing about that stops or slows what the lines are about. A line
//! goes into a queue of fixed length and never waits: where the queue is full, or the line cannot be written, it is
//! dropped and counted. The first line that can be written again says how many are missing.
//!
//! Invariant: no thread but the one of the log writes to standard error while the daemon runs.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use dolmen_mutation::mutation;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};

use crate::LOG_VARIABLE;

/// Lines that wait to be written, at most.
const LINES_MAX: usize = 4096;
/// Bytes of a line that are kept, at most; so the queue holds 32 MiB at most.
const LINE_BYTES_MAX: usize = 8192;
/// How long the end of the process waits for the last lines.
const LAST_LINES_LIMIT: Duration = Duration::from_secs(1);
/// The pause between two looks whether the last lines are written.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
/// The stack is locked into memory whole, so it is no larger than it needs to be.
const STACK_BYTES: usize = 256 * 1024;

static LOG: OnceLock<Log> = OnceLock::new();

/// What is known of lines, shared with the thread that writes them.
#[derive(Debug, Default)]
struct Counts {
    /// Lines in the queue, or being written.
    waiting: AtomicU64,
    /// Lines that were dropped since the last one that could be written.
    dropped: AtomicU64,
}

/// The end of the queue that lines go into.
#[derive(Debug, Clone)]
struct Log {
    lines: SyncSender<Vec<u8>>,
    counts: Arc<Counts>,
}

/// Waits for the last lines when it goes, for a second at most.
#[derive(Debug)]
#[must_use]
pub struct LogEnd(());

impl Drop for LogEnd {
    fn drop(&mut self) {
        if let Some(log) = LOG.get() {
            log.wait_for_last_lines();
        }
    }
}

/// Logs to standard error what happens, from `info` on unless [`LOG_VARIABLE`] says otherwise. Once per process. Where the
/// thread of the log cannot be started nothing is logged.
pub fn init_logging() -> LogEnd {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    if LOG.get().is_none()
        && let Ok(log) = Log::start(io::stderr())
    {
        let log = LOG.get_or_init(|| log);
        // Its own errors it would write to standard error by itself.
        let logging = tracing_subscriber::fmt().with_env_filter(filter).log_internal_errors(false);
        // A program that has set its own logging up keeps it.
        let _ = logging.with_writer(log.clone()).with_ansi(false).try_init();
    }
    LogEnd(())
}

/// Logs a panic, and waits until that is written, for a second at most; whether there is a log.
pub(crate) fn log_panic(what: &PanicHookInfo<'_>) -> bool {
    let Some(log) = LOG.get() else { return false };
    let thread = thread::current();
    let mut text = format!("\nthread '{}' {what}\n", thread.name().unwrap_or("<unnamed>"));
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        text.push_str(&format!("stack backtrace:\n{backtrace}\n"));
    }
    for line in text.split_inclusive('\n') {
        log.put(line.as_bytes());
    }
    log.wait_for_last_lines();
    true
}

impl Log {
    /// Starts the thread that writes lines to `to`.
    fn start(to: impl AsFd + Send + 'static) -> io::Result<Self> {
        let (lines, queue) = sync_channel(if mutation!(LogWaits) { 0 } else { LINES_MAX });
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        let thread = thread::Builder::new().name("dolmen log".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || write_lines(&queue, &shared, to.as_fd()))?;
        Ok(Self { lines, counts })
    }

    /// Puts a line into the queue, or counts it as dropped.
    fn put(&self, line: &[u8]) {
        let line = line.get(..LINE_BYTES_MAX).map_or_else(|| line.to_vec(), |cut| [cut, b"\n"].concat());
        self.counts.waiting.fetch_add(1, Ordering::AcqRel);
        let is_lost = match mutation!(LogWaits) {
            true => self.lines.send(line).is_err(),
            false => self.lines.try_send(line).is_err(),
        };
        if is_lost {
            self.counts.dropped.fetch_add(1, Ordering::AcqRel);
            self.counts.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn wait_for_last_lines(&self) {
        let pauses = LAST_LINES_LIMIT.as_nanos() / u128::from(PAUSE.tv_nsec.unsigned_abs());
        for _ in 0..pauses {
            if self.counts.waiting.load(Ordering::Acquire) == 0 {
                return;
            }
            let _ = poll(&mut [], Some(&PAUSE));
        }
    }
}

/// One line: what `tracing` has put together goes on as a whole.
impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// How the last write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Whole,
    /// Not at all.
    Nothing,
    /// The end of the line is missing.
    Part,
}

fn write_lines(queue: &Receiver<Vec<u8>>, counts: &Counts, to: BorrowedFd<'_>) {
    let mut is_torn = false;
    for line in queue {
        let mut text = if is_torn { b"\n".to_vec() } else { Vec::new() };
        let missing = counts.dropped.swap(0, Ordering::AcqRel);
        if missing > 0 {
            text.extend(missing_line(missing).bytes());
        }
        text.extend(&line);
        let written = write_whole(to, &text);
        if written != Written::Whole {
            counts.dropped.fetch_add(missing.saturating_add(1), Ordering::AcqRel);
        }
        is_torn = written == Written::Part || (is_torn && written == Written::Nothing);
        counts.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Says of lines that they are missing, in the form of all other lines.
fn missing_line(count: u64) -> String {
    let mut time = String::new();
    // Without the time it says what matters.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    format!(
        "{time}  WARN dolmen_daemon::log: the log could not be written, or was not read in time: lines are missing before this one lines={count}\n"
    )
}

fn write_whole(to: BorrowedFd<'_>, text: &[u8]) -> Written {
    let mut rest = text;
    while !rest.is_empty() {
        match rustix::io::write(to, rest) {
            Ok(length) if length > 0 => rest = rest.get(length..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                // A pipe that is not read may be set not to wait: this thread waits in its place.
                if poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None).is_err() {
                    break;
                }
            }
            Ok(_) | Err(_) => break,
        }
    }
    match rest.len() {
        0 => Written::Whole,
        left if left == text.len() => Written::Nothing,
        _ => Written::Part,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use super::*;

    fn pipe() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe().unwrap()
    }

    /// Scenario: a pipe that nobody reads, and far more lines than it and the queue take. No line waits; what is read later
    /// says how many are missing, and lines and missing ones together are all.
    #[test]
    fn a_log_that_is_not_read_drops_lines_and_counts_them() {
        let (read, write) = pipe();
        let log = Log::start(write).unwrap();
        let count = 4 * LINES_MAX;
        (0..count).for_each(|number| log.put(format!("line {number}\n").as_bytes()));
        let reader = thread::Builder::new().spawn(move || {
            let mut text = String::new();
            File::from(read).read_to_string(&mut text).unwrap();
            text
        });
        log.wait_for_last_lines();
        log.put(b"the last\n");
        log.wait_for_last_lines();
        drop(log);
        let text = reader.unwrap().join().unwrap();
        assert!(text.ends_with("the last\n"), "{}", &text[text.len().saturating_sub(200)..]);
        let missing: usize =
            text.lines().filter_map(|line| line.split_once("lines=")?.1.parse::<usize>().ok()).sum();
        let whole = text.lines().filter(|line| line.starts_with("line ")).count();
        assert!(missing > 0, "the pipe took all");
        assert_eq!(whole + missing, count);
    }

    /// Scenario: the reader of a pipe is gone, and a device that is always full. Lines are dropped, and the log goes on.
    #[test]
    fn a_log_that_cannot_be_written_drops_lines() {
        let (read, write) = pipe();
        drop(read);
        let full = OwnedFd::from(File::options().write(true).open("/dev/full").unwrap());
        for to in [write, full] {
            let log = Log::start(to).unwrap();
            (0..10).for_each(|_| log.put(b"lost\n"));
            log.wait_for_last_lines();
            assert_eq!(log.counts.dropped.load(Ordering::Acquire), 10);
        }
    }

    #[test]
    fn a_long_line_is_cut() {
        let (read, write) = pipe();
        let log = Log::start(write).unwrap();
        log.put(&[b'x'; LINE_BYTES_MAX + 1]);
        log.wait_for_last_lines();
        drop(log);
        let mut text = Vec::new();
        File::from(read).read_to_end(&mut text).unwrap();
        assert_eq!((text.len(), text.last()), (LINE_BYTES_MAX + 1, Some(&b'\n')));
    }
}
