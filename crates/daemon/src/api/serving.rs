//! The engine at work: requests, the kernel, connections, and the clock of jobs, until no caller is left.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::sync::Notify;
use dolmen_block_io::{sleep, within};
use dolmen_block_linux::Inbox;

use crate::attach::Asked;
use crate::caller::Work;
use crate::engine::Engine;
use crate::exports::Arrival;

/// How often the progress of jobs is looked at.
const TICK: Duration = Duration::from_secs(1);
/// How long requests wait for the pools that are opened at the start.
const START_LIMIT: Duration = Duration::from_secs(20);

impl Engine {
    /// Carries out requests until nobody is left who could make one.
    pub(crate) async fn serve(
        self: Rc<Self>,
        mut inbox: Inbox<Work>,
        kernel: Inbox<Asked>,
        arrivals: Inbox<Arrival>,
    ) {
        self.seams.spawner.spawn("kernel", Box::pin(Rc::clone(&self.kernel).serve_kernel(kernel)));
        self.seams.spawner.spawn("arrivals", Box::pin(Rc::clone(&self.network).serve_arrivals(arrivals)));
        let starting = Rc::clone(&self);
        let started = Rc::new((Cell::new(false), Notify::new()));
        let ring = Rc::clone(&started);
        let start = async move {
            starting.start().await;
            ring.0.set(true);
            ring.1.notify_all();
            // What is not opened yet is not gone.
            starting.follow_events().await;
        };
        self.seams.spawner.spawn("start", Box::pin(start));
        let ticking = Rc::downgrade(&self);
        let clock = Rc::clone(&self.seams.clock);
        let ticker = async move {
            while let Some(engine) = ticking.upgrade() {
                engine.jobs.tick(clock.now()).await;
                drop(engine);
                sleep(clock.as_ref(), TICK).await;
            }
        };
        self.seams.spawner.spawn("tick", Box::pin(ticker));
        // Nobody is told that there is no such pool while it is being opened. A disk that hangs does not hold up answers.
        let limit = self.seams.clock.now() + START_LIMIT;
        let _ =
            within(self.seams.clock.as_ref(), limit, started.1.wait_for(|| started.0.get().then_some(())))
                .await;
        while let Some(work) = inbox.receive().await {
            self.seams.spawner.spawn("request", work(Rc::clone(&self)));
        }
        // Where nobody has asked for a good end: what is not answered is left to the next daemon, and does not fail.
        self.transports.makers.borrow().let_go();
    }
}
