//! Looks at the host that may hang: each on a thread of its own, and awaited for a limited time.
//!
//! A look at the memory of a process waits for a page fault of that process, and so for the device of one volume. A tool may hang as
//! well. No other look waits for it.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use dolmen_block_io::{Seams, within};
use dolmen_block_linux::reply;

/// Looks that have not ended, at most: each takes a thread.
const LOOKS_MAX: usize = 16;
/// Stack of a thread.
const STACK_BYTES: usize = 256 * 1024;
/// Time that a caller waits for a look: a starved host needs it for the versions of some ten tools.
const LIMIT: Duration = Duration::from_secs(30);

/// Looks at the host.
pub(super) struct Looks {
    seams: Seams,
    under_way: Rc<Cell<usize>>,
    limit: Duration,
}

impl Looks {
    pub(super) fn new(seams: &Seams) -> Self {
        Self { seams: seams.clone(), under_way: Rc::default(), limit: LIMIT }
    }

    /// Has a look done, and waits for it for a while. One that takes longer goes on without its caller.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        look: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        if self.under_way.get() >= LOOKS_MAX {
            return Err(io::Error::other(format!("{LOOKS_MAX} looks at this host have not ended")));
        }
        let (ended, awaited) = reply();
        let thread = thread::Builder::new().name("dolmen look".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || ended.send(look()))?;
        self.under_way.set(self.under_way.get() + 1);
        let (told, outcome) = reply();
        let under_way = Rc::clone(&self.under_way);
        let waiting = async move {
            let found = awaited.await.unwrap_or_else(|lost| Err(io::Error::other(lost)));
            under_way.set(under_way.get().saturating_sub(1));
            told.send(found);
        };
        self.seams.spawner.spawn("look", Box::pin(waiting));
        let clock = self.seams.clock.as_ref();
        match within(clock, clock.now() + self.limit, outcome).await {
            Some(found) => found.unwrap_or_else(|lost| Err(io::Error::other(lost))),
            None => {
                let seconds = self.limit.as_secs();
                Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("it did not end within {seconds} seconds"),
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use dolmen_block_linux::{Runtime, RuntimeConfig};

    use super::*;

    /// Scenario: looks hang, up to as many as there may be. Each caller is told so, another look is done meanwhile, and one too many is
    /// refused. They end, and there is room again.
    #[test]
    fn a_look_that_hangs_holds_neither_its_caller_nor_other_looks() {
        let runtime = Runtime::new(RuntimeConfig::MODEST).unwrap();
        let patient = Looks { limit: Duration::from_secs(60), ..Looks::new(&runtime.seams()) };
        let under_way = Rc::clone(&patient.under_way);
        let looks = Looks { seams: runtime.seams(), under_way, limit: Duration::from_millis(20) };
        runtime.run(async move {
            let mut hanging = Vec::new();
            for _ in 0..LOOKS_MAX {
                assert_eq!(patient.run(|| Ok(7)).await.unwrap(), 7);
                let (end, held) = channel::<()>();
                hanging.push(end);
                let found = looks.run(move || held.recv().map_err(io::Error::other)).await;
                assert_eq!(found.unwrap_err().kind(), io::ErrorKind::TimedOut);
            }
            let refused = looks.run(|| Ok(7)).await.unwrap_err().to_string();
            assert!(refused.contains("16 looks at this host have not ended"), "{refused}");
            drop(hanging);
            let mut tries = 0;
            while looks.under_way.get() > 0 {
                tries += 1;
                assert!(tries < 10_000, "looks that ended are counted");
                dolmen_block_io::sleep(looks.seams.clock.as_ref(), Duration::from_millis(1)).await;
            }
        });
    }
}
