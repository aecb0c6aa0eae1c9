//! Commands to a long operation, and its progress.

use std::error::Error;
use std::io::{BufRead, Read, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use dolmen_dedup::{Control, FileId, Next, Phase, Skipped};
use rustix::time::{ClockId, clock_gettime};

use crate::protocol::long::{COMMAND_BYTES_MAX, Command, Progress, SkippedFiles, Step};
use crate::protocol::{Failure, FailureCode, Message};

/// Nanoseconds between two lines of progress, at least.
const PROGRESS_NS: i128 = 1_000_000_000;
/// Commands that wait to be taken up.
const COMMANDS_MAX: usize = 16;
/// Bytes of the stack of the thread that reads commands.
const STACK_BYTES: usize = 128 << 10;
/// Skipped files that are named.
const NAMED_MAX: usize = 8;

/// A line of input after the order.
enum Line {
    Command(Command),
    NoCommand(String),
}

/// Effect of the end of the input, which comes with the end of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// A stop in good order: no daemon pauses the operation for clients any more, and the next daemon orders it again.
    Stop,
    /// The operation goes on, and a pause ends.
    GoOn,
}

/// The caller of an operation, at the other end of two pipes.
pub(crate) struct Steering<'a> {
    lines: Receiver<Line>,
    at_end: AtEnd,
    output: &'a mut dyn Write,
    reported_ns: Option<i128>,
    paused: bool,
    stopped: bool,
    /// Bytes that files before this one have done, and those that all of them have to do.
    whole: Option<(u64, u64)>,
    skipped: SkippedFiles,
}

impl<'a> Steering<'a> {
    /// Begins to read commands.
    pub(crate) fn new(
        input: impl BufRead + Send + 'static,
        at_end: AtEnd,
        output: &'a mut dyn Write,
    ) -> Result<Self, Failure> {
        let (sender, lines) = sync_channel(COMMANDS_MAX);
        // It ends with the input or with the process.
        std::thread::Builder::new()
            .name("commands".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || read(input, &sender))
            .map_err(|error| Failure {
                code: FailureCode::Refused,
                message: format!("no thread reads commands: {error}"),
                hint: String::new(),
            })?;
        Ok(Self {
            lines,
            at_end,
            output,
            reported_ns: None,
            paused: false,
            stopped: false,
            whole: None,
            skipped: SkippedFiles::default(),
        })
    }

    /// Sets what files before the next one have done, and what all of them have to do.
    pub(crate) fn set_whole(&mut self, done: u64, total: u64) {
        self.whole = Some((done, total));
    }

    /// Returns whether a command or the end of the input asks for a pause or a stop, without a wait for either.
    pub(crate) fn is_to_halt(&mut self) -> bool {
        self.take_up_all();
        self.paused || self.stopped
    }

    /// Returns whether a command or the end of the input asks for a stop.
    pub(crate) fn is_to_stop(&mut self) -> bool {
        self.take_up_all();
        self.stopped
    }

    /// Writes progress, at most once a second, without a wait for the end of a pause.
    pub(crate) fn show(&mut self, progress: &dolmen_dedup::Progress) {
        self.report(progress);
    }

    fn take_up_all(&mut self) {
        loop {
            match self.lines.try_recv() {
                Ok(line) => self.take_up(line),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.end();
                    break;
                }
            }
        }
    }

    /// Returns the files that took no part.
    pub(crate) fn take_skipped(&mut self) -> SkippedFiles {
        std::mem::take(&mut self.skipped)
    }

    /// Takes up the end of the input.
    fn end(&mut self) {
        self.paused = false;
        self.stopped |= self.at_end == AtEnd::Stop;
    }

    fn take_up(&mut self, line: Line) {
        match line {
            Line::Command(Command::Pause) => self.paused = true,
            Line::Command(Command::Resume) => self.paused = false,
            Line::Command(Command::Stop) => self.stopped = true,
            Line::NoCommand(message) => {
                let failure = Failure { code: FailureCode::BadOrder, message, hint: String::new() };
                self.say(&Message::Ignored { failure });
            }
        }
    }

    /// Writes a line. A daemon that is no more reads nothing; the operation goes on.
    fn say(&mut self, message: &Message) {
        if let Ok(mut line) = serde_json::to_vec(message) {
            line.push(b'\n');
            let _ = self.output.write_all(&line).and_then(|()| self.output.flush());
        }
    }

    /// Writes progress if the last line is a second ago, and returns whether it did.
    fn report(&mut self, progress: &dolmen_dedup::Progress) -> bool {
        let now = clock_gettime(ClockId::Monotonic);
        let now = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        if self.reported_ns.is_some_and(|before| now - before < PROGRESS_NS) {
            return false;
        }
        self.reported_ns = Some(now);
        let (before, total) = self.whole.unwrap_or((0, progress.bytes_planned));
        let progress = Progress {
            step: step(progress.phase),
            done: before.saturating_add(progress.bytes),
            total,
            files: progress.files,
            saved: progress.bytes_saved,
            paused: self.paused,
        };
        self.say(&Message::Progress { progress });
        true
    }
}

impl Control for Steering<'_> {
    fn next(&mut self, progress: &dolmen_dedup::Progress) -> Next {
        self.take_up_all();
        let mut is_reported = self.report(progress) || !self.paused;
        while self.paused && !self.stopped {
            let wait = if is_reported { Duration::from_secs(3600) } else { Duration::from_millis(100) };
            match self.lines.recv_timeout(wait) {
                Ok(line) => self.take_up(line),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.end(),
            }
            is_reported = is_reported || self.paused && self.report(progress);
        }
        if self.stopped { Next::Stop } else { Next::Go }
    }

    fn skipped(&mut self, file: FileId, reason: Skipped) {
        self.skipped.count = self.skipped.count.saturating_add(1);
        if self.skipped.first.len() < NAMED_MAX {
            self.skipped.first.push(format!("inode {}: {}", file.inode, with_causes(&reason)));
        }
    }
}

/// Returns the words of an error and of what caused it.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        // An error whose message holds its cause is not followed by it.
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

fn step(phase: Phase) -> Step {
    match phase {
        Phase::Scan => Step::Scan,
        Phase::Hash => Step::Hash,
        Phase::Plan => Step::Plan,
        Phase::Share => Step::Share,
        Phase::Map => Step::Map,
        Phase::Compact => Step::Compact,
        Phase::Undo => Step::Undo,
        Phase::Estimate => Step::Estimate,
    }
}

/// Reads commands until the input or the operation ends.
fn read(mut input: impl BufRead, lines: &SyncSender<Line>) {
    loop {
        let mut text = Vec::new();
        match (&mut input).take(COMMAND_BYTES_MAX).read_until(b'\n', &mut text) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if text.trim_ascii().is_empty() {
            continue;
        }
        let line = match serde_json::from_slice(&text) {
            Ok(command) => Line::Command(command),
            Err(error) => Line::NoCommand(format!("a line of input is no command: {error}")),
        };
        if lines.send(line).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress() -> dolmen_dedup::Progress {
        dolmen_dedup::Progress { phase: Phase::Hash, files: 1, bytes: 2, bytes_planned: 3, bytes_saved: 4 }
    }

    #[test]
    fn a_pause_ends_with_the_input_and_a_stop_ends_a_pause() {
        // Scenario: pause, then the end of the input; pause, then stop; no command at all. The end of the input is a stop, or is not.
        for (input, at_end, expected) in [
            ("{\"do\":\"pause\"}\n", AtEnd::GoOn, Next::Go),
            ("{\"do\":\"pause\"}\n", AtEnd::Stop, Next::Stop),
            ("{\"do\":\"pause\"}\n{\"do\":\"stop\"}\n", AtEnd::GoOn, Next::Stop),
            ("", AtEnd::GoOn, Next::Go),
            ("", AtEnd::Stop, Next::Stop),
        ] {
            let mut output = Vec::new();
            let mut steering = Steering::new(input.as_bytes(), at_end, &mut output).unwrap();
            let mut next = Next::Go;
            let began = clock_gettime(ClockId::Monotonic).tv_sec;
            for _ in 0..200 {
                next = steering.next(&progress());
                std::thread::park_timeout(Duration::from_millis(1));
            }
            let seconds = clock_gettime(ClockId::Monotonic).tv_sec - began;
            assert_eq!(next, expected, "{input}");
            let lines = output.iter().filter(|byte| **byte == b'\n').count();
            assert!(i64::try_from(lines).unwrap() <= 2 + seconds, "{lines} lines within {seconds} s");
        }
    }

    #[test]
    fn a_line_that_is_no_command_is_reported_and_changes_nothing() {
        let input = "{\"do\":\"format\"}\n".repeat(2) + &"x".repeat(10_000) + "\n\n";
        let mut output = Vec::new();
        let mut steering =
            Steering::new(std::io::Cursor::new(input.into_bytes()), AtEnd::GoOn, &mut output).unwrap();
        for _ in 0..100 {
            assert_eq!(steering.next(&progress()), Next::Go);
            std::thread::park_timeout(Duration::from_millis(1));
        }
        let text = String::from_utf8(output).unwrap();
        assert_eq!(text.matches("\"ignored\"").count(), 5, "{text}");
        assert!(text.contains("\"progress\""), "{text}");
    }
}
