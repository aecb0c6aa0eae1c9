//! How far a job is, and what is wished of it: told to the loops of the engine, which ask between two lots of rows
//! (docs/design/0011).
//!
//! Invariant: whoever asks holds no turn and no lock that others need, and writes nothing until it is answered.

use std::cell::Cell;

use dolmen_block_io::sync::{Notify, either};

/// What is wished of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum JobCommand {
    #[default]
    GoOn,
    Hold,
    Stop,
}

/// How far a job has come, and whether it is to go on. Shared with whoever shows it.
#[derive(Debug, Default)]
pub struct Progress {
    /// Rows to look at.
    pub total: Cell<u64>,
    /// Rows done.
    pub done: Cell<u64>,
    /// Bytes copied or verified.
    pub bytes: Cell<u64>,
    command: Cell<JobCommand>,
    /// Whether the job stands where it was held.
    halted: Cell<bool>,
    notify: Notify,
}

impl Progress {
    /// Holds the job: it ends the lot that is under way, and stands until it is released. One that was stopped stays so.
    pub fn hold(&self) {
        self.change(JobCommand::GoOn, JobCommand::Hold);
    }

    /// Lets a job that was held go on.
    pub fn release(&self) {
        self.change(JobCommand::Hold, JobCommand::GoOn);
    }

    /// Ends the job behind the lot that is under way, also one that is held. What it has done stays done.
    pub fn stop(&self) {
        self.command.set(JobCommand::Stop);
        self.notify.notify_all();
    }

    /// Whether it is to end before it is done.
    #[must_use]
    pub fn is_to_stop(&self) -> bool {
        self.command.get() == JobCommand::Stop
    }

    /// Waits until the job is held and stands: nothing is written for it from then on until it is released.
    pub async fn halted(&self) {
        self.notify.wait_for(|| (self.is_held() && self.halted.get()).then_some(())).await;
    }

    /// Waits until it is wished that the job does not simply go on.
    pub(crate) async fn asked_otherwise(&self) {
        self.notify.wait_for(|| (self.command.get() != JobCommand::GoOn).then_some(())).await;
    }

    /// Whether nothing else is wished of it.
    pub(crate) fn goes_on(&self) -> bool {
        self.command.get() == JobCommand::GoOn
    }

    /// Whether it is held: it is to stand until it is released.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.command.get() == JobCommand::Hold
    }

    /// Notes whether the job stands, for work that the loops of the engine do not carry out.
    pub fn set_halted(&self, is_halted: bool) {
        self.halted.set(is_halted);
        self.notify.notify_all();
    }

    fn change(&self, from: JobCommand, to: JobCommand) {
        if self.command.get() == from {
            self.command.set(to);
            self.notify.notify_all();
        }
    }

    /// Whether the job goes on: not when it is to stop, or its spaces close. Waits while it is held.
    pub(crate) async fn may_go_on(&self, closing: &Closing) -> bool {
        if self.is_held() && !closing.is_closing() {
            self.halted.set(true);
            self.notify.notify_all();
            let released = self.notify.wait_for(|| (!self.is_held()).then_some(()));
            either(released, closing.begins()).await;
            self.halted.set(false);
        }
        !self.is_to_stop() && !closing.is_closing()
    }
}

/// Whether spaces are being closed.
#[derive(Debug, Default)]
pub(crate) struct Closing {
    has_begun: Cell<bool>,
    notify: Notify,
}

impl Closing {
    pub(crate) fn begin(&self) {
        self.has_begun.set(true);
        self.notify.notify_all();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.has_begun.get()
    }

    /// Waits until they are.
    async fn begins(&self) {
        self.notify.wait_for(|| self.is_closing().then_some(())).await;
    }
}
