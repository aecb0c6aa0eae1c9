//! The two streams that everything shown goes through, and the one that answers come from.
//!
//! Text that comes from elsewhere (names of devices, messages of a daemon) may hold control characters that would drive
//! a terminal; they are made visible here, in one place.

use std::fmt::Display;
use std::io::{self, BufRead, IsTerminal, Write};

use crate::terminal::paint::Paint;
use crate::terminal::table::Table;
use crate::terminal::wrap::{columns_of, cut, hanging};

/// Puts the cursor in the first place of the screen.
const CURSOR_HOME: &str = "\x1b[H";
/// Clears what is behind the cursor on its line.
const CLEAR_LINE: &str = "\x1b[K";
/// Clears what is behind the cursor on the screen.
const CLEAR_BELOW: &str = "\x1b[J";

/// Whether a stream is a terminal with a person in front of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A person reads or types.
    Terminal,
    /// A file, a pipe, another program.
    Plain,
}

impl Kind {
    fn of(stream: &impl IsTerminal) -> Self {
        if stream.is_terminal() { Self::Terminal } else { Self::Plain }
    }
}

/// Where things are shown and asked.
pub(crate) struct Out<'a> {
    /// Results.
    pub results: &'a mut dyn Write,
    /// Whether results go to a terminal.
    pub results_kind: Kind,
    /// Messages, questions and progress.
    pub messages: &'a mut dyn Write,
    /// Whether messages go to a terminal.
    pub messages_kind: Kind,
    /// Answers to questions.
    pub answers: &'a mut dyn BufRead,
    /// Whether answers come from a terminal.
    pub answers_kind: Kind,
    /// Columns of the terminal that results and messages go to; none elsewhere.
    pub columns: Option<usize>,
    /// Whether the environment forbids colour.
    pub paint_results: Paint,
    /// Set once the reader of the results has gone: what is shown from then on has nobody to see it.
    pub is_unread: bool,
    /// Why results could not be written, where their reader has not just gone.
    pub unwritten: Option<io::Error>,
}

impl Out<'_> {
    /// Runs something with the streams of this process. They are not locked: a daemon in this process logs to one of
    /// them from its other threads.
    pub(crate) fn with_process_streams<T>(run: impl FnOnce(&mut Out<'_>) -> T) -> T {
        let (mut stdout, mut stderr, stdin) = (io::stdout(), io::stderr(), io::stdin());
        let forbids_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
        let results_kind = Kind::of(&stdout);
        let paint = results_kind == Kind::Terminal && !forbids_colour && !dumb;
        let columns = |size: rustix::io::Result<rustix::termios::Winsize>| columns_of(size.ok()?.ws_col);
        let columns = columns(rustix::termios::tcgetwinsize(&stdout))
            .or_else(|| columns(rustix::termios::tcgetwinsize(&stderr)));
        let mut out = Out {
            results_kind,
            columns,
            messages_kind: Kind::of(&stderr),
            answers_kind: Kind::of(&stdin),
            results: &mut stdout,
            messages: &mut stderr,
            answers: &mut stdin.lock(),
            paint_results: if paint { Paint::Always } else { Paint::Never },
            is_unread: false,
            unwritten: None,
        };
        run(&mut out)
    }

    /// Shows a result, which ends its own lines.
    pub(crate) fn show(&mut self, text: &str) {
        let shown = self.results.write_all(harmless(text, self.results_kind, self.paint_results).as_bytes());
        let shown = shown.and_then(|()| self.results.flush());
        self.note(shown);
    }

    /// Shows a table with spaces in front; at a terminal, within its columns.
    pub(crate) fn table(&mut self, indent: usize, table: &Table) {
        self.show(&self.rendered(indent, table));
    }

    /// Shows names and values, one pair a line; at a terminal, long values go on below their beginning.
    pub(crate) fn facts(&mut self, indent: usize, table: &Table) {
        for (label, value) in table.facts_in_lines(indent, self.paint_results) {
            self.labelled(&label, &value);
        }
    }

    /// Returns what `table` would show.
    pub(crate) fn rendered(&self, indent: usize, table: &Table) -> String {
        let columns = self.columns.filter(|_| self.results_kind == Kind::Terminal);
        match columns {
            Some(columns) => table.within(columns.saturating_sub(indent)).render(indent, self.paint_results),
            None => table.render(indent, self.paint_results),
        }
    }

    /// Notes what became of results. `dolmen … | head` is no mistake of anybody's: who stopped reading has seen enough. A file
    /// that takes no more has not got what a script will look for in it.
    fn note(&mut self, shown: io::Result<()>) {
        let Err(error) = shown else { return };
        self.is_unread = true;
        if error.kind() != io::ErrorKind::BrokenPipe {
            self.unwritten.get_or_insert(error);
        }
    }

    /// Shows a line of results.
    pub(crate) fn line(&mut self, text: impl Display) {
        self.show(&format!("{text}\n"));
    }

    /// Runs something and returns what it would have shown as results.
    pub(crate) fn gather<T>(&mut self, run: impl FnOnce(&mut Out<'_>) -> T) -> (T, String) {
        let mut results = Vec::new();
        let mut inner = Out {
            results: &mut results,
            results_kind: self.results_kind,
            messages: &mut *self.messages,
            messages_kind: self.messages_kind,
            answers: &mut *self.answers,
            answers_kind: self.answers_kind,
            columns: self.columns,
            paint_results: self.paint_results,
            is_unread: false,
            unwritten: None,
        };
        let ended = run(&mut inner);
        (ended, String::from_utf8_lossy(&results).into_owned())
    }

    /// Looks how wide the terminal is by now.
    pub(crate) fn measure(&mut self) {
        if let Ok(size) = rustix::termios::tcgetwinsize(io::stdout()) {
            self.columns = columns_of(size.ws_col);
        }
    }

    /// Shows this in the place of all that the terminal shows, as much of it as there are lines. Nothing is cleared before it is
    /// written over, so nothing flickers.
    pub(crate) fn repaint(&mut self, text: &str) {
        let lines = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_row));
        let text = harmless(text, self.results_kind, self.paint_results);
        let mut screen = String::from(CURSOR_HOME);
        for line in text.lines().take(if lines > 1 { lines - 1 } else { usize::MAX }) {
            screen.push_str(&cut_painted(line, self.columns));
            screen.push_str(CLEAR_LINE);
            screen.push('\n');
        }
        screen.push_str(CLEAR_BELOW);
        let shown = self.results.write_all(screen.as_bytes());
        let shown = shown.and_then(|()| self.results.flush());
        self.note(shown);
    }

    /// Shows a line of results behind a label; on a terminal broken between words.
    pub(crate) fn labelled(&mut self, label: &str, text: &str) {
        let columns = self.columns.filter(|_| self.results_kind == Kind::Terminal);
        self.show(&hanging(label, text, columns));
    }

    /// Shows a line of messages. Where even that fails, there is nobody left to tell.
    pub(crate) fn print(&mut self, text: impl Display) {
        let text = harmless(&format!("{text}\n"), self.messages_kind, Paint::Never);
        let _ = self.messages.write_all(text.as_bytes());
        let _ = self.messages.flush();
    }

    /// Replaces the last line of the terminal by this one.
    pub(crate) fn overwrite_line(&mut self, text: &str) {
        let text = harmless(&cut(text, self.columns), self.messages_kind, Paint::Never);
        let _ = write!(self.messages, "\r\x1b[K{text}");
        let _ = self.messages.flush();
    }

    /// Asks a question and reads one line; `None` when there is none to read.
    pub(crate) fn ask(&mut self, question: &str) -> Option<String> {
        let _ = write!(self.messages, "{}", harmless(question, self.messages_kind, Paint::Never));
        let _ = self.messages.flush();
        let mut line = String::new();
        let mut limited = io::Read::take(&mut *self.answers, ANSWER_BYTES_MAX);
        limited.read_line(&mut line).ok().filter(|read| *read > 0)?;
        Some(line.trim_end_matches(['\n', '\r']).to_owned())
    }

    /// Whether a person can be asked: there is one to read the question and one to answer it.
    pub(crate) fn can_ask(&self) -> bool {
        self.answers_kind == Kind::Terminal && self.messages_kind == Kind::Terminal
    }
}

/// Bytes of an answer that are read, at most.
const ANSWER_BYTES_MAX: u64 = 4096;

/// The text with control characters made visible where they could drive a terminal; colour of our own stays.
fn harmless(text: &str, kind: Kind, paint: Paint) -> String {
    let is_kept = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    if kind == Kind::Plain || text.chars().all(is_kept) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let own = own_colour(rest).filter(|_| paint == Paint::Always);
        let (piece, after) = rest.split_at(own.unwrap_or(c.len_utf8()));
        if own.is_some() || is_kept(c) {
            shown.push_str(piece);
        } else {
            shown.extend(c.escape_default());
        }
        rest = after;
    }
    shown
}

/// What fits on one line of the terminal, colour not counted; a line that went on below would shift all that follows.
fn cut_painted(line: &str, columns: Option<usize>) -> String {
    let Some(columns) = columns else { return line.to_owned() };
    let (mut shown, mut width, mut rest) = (String::with_capacity(line.len()), 0, line);
    while let Some(c) = rest.chars().next() {
        let colour = own_colour(rest);
        let (piece, after) = rest.split_at(colour.unwrap_or(c.len_utf8()));
        width += usize::from(colour.is_none());
        // Colour behind the end is kept: it may be what ends one before.
        if colour.is_some() || width <= columns {
            shown.push_str(piece);
        }
        rest = after;
    }
    shown
}

/// The length of one of our own colour sequences at the beginning of a text.
fn own_colour(text: &str) -> Option<usize> {
    let digits = text.strip_prefix("\x1b[")?;
    let end = digits.find('m').filter(|end| *end <= 2)?;
    digits.chars().take(end).all(|c| c.is_ascii_digit()).then_some(end + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device may be called anything; a terminal shows the characters instead of obeying them.
    #[test]
    fn foreign_control_characters_do_not_reach_a_terminal() {
        let bad = "disk\x1b]0;title\x07\x1b[2J\n";
        assert_eq!(harmless(bad, Kind::Terminal, Paint::Always), "disk\\u{1b}]0;title\\u{7}\\u{1b}[2J\n");
        assert_eq!(harmless(bad, Kind::Plain, Paint::Never), bad);
    }

    #[test]
    fn a_line_that_is_written_over_is_cut_where_the_terminal_ends() {
        let red = Paint::Always.tone("größer", crate::terminal::paint::Tone::Bad);
        assert_eq!(cut_painted(&format!("a {red} b"), Some(5)), "a \x1b[31mgrö\x1b[0m");
        assert_eq!(cut_painted(&format!("a {red} b"), Some(10)), format!("a {red} b"));
        assert_eq!(cut_painted("abc", None), "abc");
    }

    #[test]
    fn own_colour_stays() {
        let text = Paint::Always.tone("healthy", crate::terminal::paint::Tone::Good);
        assert_eq!(harmless(&text, Kind::Terminal, Paint::Always), text);
        assert_ne!(harmless(&text, Kind::Terminal, Paint::Never), text);
    }
}
