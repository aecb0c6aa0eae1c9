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
        let seams = self.base.seams.clone();
        let spaces = &self.spaces;
        seams.spawner.spawn("kernel", Box::pin(Rc::clone(&spaces.kernel).serve_kernel(kernel)));
        seams.spawner.spawn("arrivals", Box::pin(Rc::clone(&spaces.network).serve_arrivals(arrivals)));
        let (opening, events) = (Rc::clone(&self.pools.opening), Rc::clone(&self.events));
        let watch = Rc::clone(&self.spaces.volumes.watch);
        let disks = Rc::clone(&self.pools.arrivals);
        let dedup_schedule = Rc::clone(&self.spaces.volumes.dedup_schedule);
        let started = Rc::new((Cell::new(false), Notify::new()));
        let ring = Rc::clone(&started);
        let start = async move {
            opening.start().await;
            watch.keep_looking();
            disks.keep_looking();
            drop(disks);
            dedup_schedule.keep_looking();
            ring.0.set(true);
            ring.1.notify_all();
            drop(opening);
            // What is not opened yet is not gone.
            events.follow_events().await;
        };
        seams.spawner.spawn("start", Box::pin(start));
        let ticking = Rc::downgrade(&self.base.jobs);
        let clock = Rc::clone(&seams.clock);
        let ticker = async move {
            while let Some(jobs) = ticking.upgrade() {
                jobs.tick(clock.now()).await;
                drop(jobs);
                sleep(clock.as_ref(), TICK).await;
            }
        };
        seams.spawner.spawn("tick", Box::pin(ticker));
        // Nobody is told that there is no such pool while it is being opened. A disk that hangs does not hold up answers.
        let limit = seams.clock.now() + START_LIMIT;
        let _ =
            within(seams.clock.as_ref(), limit, started.1.wait_for(|| started.0.get().then_some(()))).await;
        while let Some(work) = inbox.receive().await {
            seams.spawner.spawn("request", work(Rc::clone(&self)));
        }
        // Where nobody has asked for a good end: what is not answered is left to the next daemon, and does not fail.
        self.base.transports.makers.borrow().let_go();
    }
}
