//! Progress of a command of images.

use dolmen_files::images::Progress;
use dolmen_units::Bytes;

use crate::terminal::out::{Kind, Out};
use crate::views::words::percent;

/// Lines of progress that are not on a terminal come this many per cent apart.
const LINE_PERCENT: u64 = 10;
/// Copies of fewer bytes tell no progress where there is no terminal.
const LINE_BYTES_MIN: u64 = 1 << 30;

/// Progress of a copy: one line that moves on a terminal, a line now and then elsewhere.
pub(super) struct Teller {
    what: String,
    shown: Option<u64>,
    is_line_open: bool,
}

impl Teller {
    pub(super) fn new(what: String) -> Self {
        Self { what, shown: None, is_line_open: false }
    }

    pub(super) fn print(&mut self, progress: Progress, out: &mut Out<'_>) {
        let Progress { done_bytes, total_bytes } = progress;
        let is_terminal = out.messages_kind == Kind::Terminal;
        let step = if is_terminal { 1 } else { LINE_PERCENT };
        let done = u128::from(done_bytes) * 100 / u128::from(total_bytes.max(1));
        let shown = u64::try_from(done).unwrap_or(100) / step;
        if self.shown == Some(shown) || (!is_terminal && total_bytes < LINE_BYTES_MIN) {
            return;
        }
        self.shown = Some(shown);
        let (done, total) = (Bytes(done_bytes), Bytes(total_bytes));
        let share = percent(done_bytes, total_bytes);
        self.line(&format!("{}: {done} of {total}, {share}", self.what), out);
    }

    /// Tells what was written where the whole is not known.
    pub(super) fn print_written(&mut self, written: Bytes, out: &mut Out<'_>) {
        let shown = written.0 / LINE_BYTES_MIN;
        if out.messages_kind == Kind::Terminal || self.shown.unwrap_or(0) != shown {
            self.shown = Some(shown);
            self.line(&format!("{}: {written} written", self.what), out);
        }
    }

    fn line(&mut self, line: &str, out: &mut Out<'_>) {
        if out.messages_kind == Kind::Terminal {
            out.overwrite_line(line);
            self.is_line_open = true;
        } else {
            out.print(line);
        }
    }

    pub(super) fn end_line(&mut self, out: &mut Out<'_>) {
        if std::mem::take(&mut self.is_line_open) {
            out.print("");
        }
    }
}
