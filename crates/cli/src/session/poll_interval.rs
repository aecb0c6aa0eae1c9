//! The pause between two looks at something that goes on.

use std::time::Duration;

/// How often a job is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PollInterval {
    /// The pause between two looks.
    pub pause: Duration,
}

impl PollInterval {
    /// Twice a second: a line that moves, and nothing to notice for the daemon.
    pub(crate) const USUAL: Self = Self { pause: Duration::from_millis(500) };

    /// Waits for one pause.
    // There is nothing to wait for but time, and this process has no other work.
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn wait(self) {
        std::thread::sleep(self.pause);
    }
}
