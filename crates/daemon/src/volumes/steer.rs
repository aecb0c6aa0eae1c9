//! Commands to a long operation of a worker, and its progress.
//!
//! The engine's thread writes commands and reads progress; the thread that waits for the process writes progress. Neither waits for
//! the other for longer than a copy of a few words takes, and no command waits for the process: what its pipe does not take is
//! written at the next look.
//!
//! Invariant: the process gets each change of its desired state, in order, or ends before.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ChildStdin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dolmen_attach::SpaceKey;
use dolmen_worker::protocol::long::{Command, Progress};
use rustix::fs::OFlags;

/// The ends of an operation's pipes that two threads share.
#[derive(Debug, Default)]
pub(super) struct Link {
    input: Mutex<Option<ChildStdin>>,
    progress: Mutex<Option<Progress>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Takes the input of a process that has its order. From here on a write to it does not wait.
    pub(super) fn open(&self, input: ChildStdin) -> io::Result<()> {
        let flags = rustix::fs::fcntl_getfl(&input)?;
        rustix::fs::fcntl_setfl(&input, flags | OFlags::NONBLOCK)?;
        *locked(&self.input) = Some(input);
        Ok(())
    }

    /// Closes the input of a process that has ended.
    pub(super) fn close(&self) {
        *locked(&self.input) = None;
    }

    /// Keeps the last progress.
    pub(super) fn note(&self, progress: Progress) {
        *locked(&self.progress) = Some(progress);
    }

    /// Writes a command. Returns whether the process has it, or needs it no more; one that is not begun has none.
    fn write(&self, command: Command) -> bool {
        let mut input = locked(&self.input);
        let Some(pipe) = input.as_mut() else { return false };
        let Ok(mut line) = serde_json::to_vec(&command) else { return true };
        line.push(b'\n');
        // A line is shorter than what a pipe takes as a whole. One that it took in part is ignored, and written again.
        match pipe.write(&line) {
            Ok(written) => written == line.len(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}

/// Desired state of a long operation, and what came of it so far.
#[derive(Debug, Default)]
pub(super) struct Steer {
    link: Arc<Link>,
    /// Whether it is to stand.
    is_held: Cell<bool>,
    /// Whether it is to end.
    is_stopped: Cell<bool>,
    /// Whether its end is for the daemon's own sake: the job goes on later.
    is_interrupted: Cell<bool>,
    sent: Cell<(bool, bool)>,
}

impl Steer {
    pub(super) fn new() -> Rc<Self> {
        Rc::default()
    }

    pub(super) fn link(&self) -> Arc<Link> {
        Arc::clone(&self.link)
    }

    /// Forgets what a process had: the next one has read no command.
    pub(super) fn begin(&self) {
        self.sent.set((false, false));
        *locked(&self.link.progress) = None;
    }

    /// Holds the operation, or lets it go on.
    pub(super) fn hold(&self, is_held: bool) {
        self.is_held.set(is_held);
        self.push();
    }

    /// Ends the operation in good order.
    pub(super) fn stop(&self) {
        self.is_stopped.set(true);
        self.push();
    }

    /// Ends the operation so that its volume can be unmounted.
    pub(super) fn interrupt(&self) {
        self.is_interrupted.set(true);
        self.stop();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }

    pub(super) fn is_interrupted(&self) -> bool {
        self.is_interrupted.get()
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held.get()
    }

    /// Returns the last progress.
    pub(super) fn progress(&self) -> Option<Progress> {
        *locked(&self.link.progress)
    }

    /// Writes the commands that the process has not read yet.
    pub(super) fn push(&self) {
        let (mut held, mut stopped) = self.sent.get();
        if held != self.is_held.get() {
            let command = if self.is_held.get() { Command::Pause } else { Command::Resume };
            if self.link.write(command) {
                held = self.is_held.get();
            }
        }
        if self.is_stopped.get() && !stopped {
            stopped = self.link.write(Command::Stop);
        }
        self.sent.set((held, stopped));
    }
}

/// Searches for names, each of which holds the lock of its volume.
#[derive(Debug, Default)]
pub(super) struct Searches {
    of: RefCell<BTreeMap<SpaceKey, Rc<Steer>>>,
}

impl Searches {
    /// Notes the search in a volume; none when it has ended.
    pub(super) fn note(&self, volume: SpaceKey, search: Option<Rc<Steer>>) {
        match search {
            Some(search) => drop(self.of.borrow_mut().insert(volume, search)),
            None => drop(self.of.borrow_mut().remove(&volume)),
        }
    }

    /// Returns what steers the search in a volume.
    pub(super) fn of(&self, volume: SpaceKey) -> Option<Rc<Steer>> {
        self.of.borrow().get(&volume).cloned()
    }

    /// Ends the search in a volume.
    pub(super) fn interrupt(&self, volume: SpaceKey) {
        self.of(volume).iter().for_each(|search| search.interrupt());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command as Process, Stdio};

    use super::*;

    /// Scenario: commands are given before there is a process, and after. `cat` is the process and gives back what it reads: each
    /// change once, in order.
    #[test]
    fn commands_that_were_given_early_reach_the_process() {
        let steer = Steer::new();
        steer.begin();
        steer.hold(true);
        let mut child = Process::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        steer.link().open(child.stdin.take().unwrap()).unwrap();
        steer.push();
        steer.push();
        steer.hold(false);
        steer.hold(false);
        steer.stop();
        steer.stop();
        steer.link().close();
        let lines: Vec<Command> = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
            .collect();
        assert_eq!(lines, [Command::Pause, Command::Resume, Command::Stop]);
        assert!(child.wait().unwrap().success());
    }

    /// Scenario: the process reads nothing. Its pipe takes commands until it is full; what it does not take does not wait.
    #[test]
    fn a_process_that_does_not_read_keeps_nobody_waiting() {
        let steer = Steer::new();
        let mut child =
            Process::new("sleep").arg("60").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        steer.link().open(child.stdin.take().unwrap()).unwrap();
        let taken = (0..20_000).take_while(|_| steer.link().write(Command::Pause)).count();
        assert!(taken < 20_000, "a pipe has an end");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(steer.link().write(Command::Pause), "a process that has ended needs no command");
    }
}
