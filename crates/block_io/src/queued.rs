//! Whether a task waits for its turn already: it is queued once, however often it is woken.

use super::cores::{AtomicBool, Ordering};

/// Whether somebody has asked for a turn that has not begun.
#[derive(Debug, Default)]
pub(crate) struct Queued(AtomicBool);

impl Queued {
    /// Asks for a turn; whether it is for the caller to see to it, because nobody has before.
    pub(crate) fn ask(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// The turn begins. Whoever asks from here on has to see to another one; what was written before somebody asked in vain is
    /// seen behind this. A mere store would not do: that one's writes might come to light behind the turn.
    pub(crate) fn begin(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }
}
