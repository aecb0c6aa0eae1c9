//! Signals that end a run in order: what lies in files that stand for disks goes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::error::BenchError;

/// Whether a signal came, and which. Clones are handles to the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signals {
    came: Arc<AtomicBool>,
    which: Arc<AtomicUsize>,
}

impl Signals {
    /// Takes them from now on. A second one ends the process at once.
    pub(crate) fn heed() -> Result<Self, BenchError> {
        let signals = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            let number = usize::try_from(signal).unwrap_or(0);
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&signals.came))
                .and_then(|_| signal_hook::flag::register_usize(signal, Arc::clone(&signals.which), number))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&signals.came)))
                .map_err(|source| BenchError::Signals { source })?;
        }
        Ok(signals)
    }

    /// Fails once a signal has come.
    pub(crate) fn check(&self) -> Result<(), BenchError> {
        if self.came.load(Ordering::Relaxed) { Err(BenchError::Interrupted) } else { Ok(()) }
    }

    /// Ends the process by the signal that came, as its caller expects.
    pub(crate) fn pass_on(&self) {
        let which = i32::try_from(self.which.load(Ordering::Relaxed)).unwrap_or(0);
        if which != 0 {
            let _ = signal_hook::low_level::emulate_default_handler(which);
        }
    }
}
