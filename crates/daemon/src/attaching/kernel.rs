//! Requests of the kernel's for attached spaces, from either kind of device, and how the engine carries them out.
//!
//! The threads that talk with the kernel post them to the engine's mailbox; the engine answers them from its own thread.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::PoisonError;

use dolmen_attach::{Fault, SpaceKey};
use dolmen_block_linux::Inbox;

use crate::attach::{Asked, Job, WorkerIndex, WorkerPool, ZEROS_BYTES, carry_out};
use crate::attaching::transports::KernelTransports;
use crate::open_pool::key_of;

impl KernelTransports {
    /// Answers the kernel's requests until nobody is left who could make one.
    pub(crate) async fn serve_kernel(self: Rc<Self>, mut inbox: Inbox<Asked>) {
        let zeros: Rc<[u8]> = vec![0; ZEROS_BYTES].into();
        let worker_pool = Rc::new(WorkerPool::new());
        while let Some(asked) = inbox.receive().await {
            let key = asked.space();
            let pool = self.pools.open.borrow().get(&key.pool).cloned();
            let found = pool.and_then(|pool| {
                let space = pool.spaces.get(key.space)?;
                Some((Rc::clone(&pool.spaces), space))
            });
            match found {
                Some((spaces, space)) => {
                    self.transports.under_way.set(self.transports.under_way.get() + 1);
                    worker_pool.assign(Job { spaces, space, asked }, |worker| {
                        let work = Rc::clone(&self).work(Rc::clone(&worker_pool), worker, Rc::clone(&zeros));
                        self.seams.spawner.spawn("attached", Box::pin(work));
                    });
                }
                // After the end of a pool in good order its requests wait for the next daemon.
                None if self.pools.is_stopping.get() => drop(asked),
                None if self.waits_for_pool(key) => self.transports.park(asked),
                None => asked.fail(Fault::Invalid),
            }
        }
    }

    /// Whether requests for a space wait, because its pool should be open and is not: file systems on it go on when it is, as behind
    /// a restart of the daemon. They fail where a person gave up what waits.
    fn waits_for_pool(&self, key: SpaceKey) -> bool {
        self.pools.closed.borrow().contains_key(&key.pool) && !self.transports.is_excluded(key)
    }

    /// Carries out one request after another.
    async fn work(self: Rc<Self>, worker_pool: Rc<WorkerPool<Job>>, worker: WorkerIndex, zeros: Rc<[u8]>) {
        loop {
            let Job { spaces, space, asked } = worker_pool.next_job(worker).await;
            carry_out(&spaces, &space, asked, &zeros).await;
            drop((spaces, space));
            worker_pool.rest(worker);
            self.transports.under_way.set(self.transports.under_way.get() - 1);
            if self.transports.under_way.get() == 0 {
                self.transports.notify.notify_all();
            }
        }
    }

    /// Tells FUSE's threads how long each space is.
    pub(crate) fn report_sizes(&self) {
        let mut sizes = BTreeMap::new();
        for pool in self.pools.open.borrow().values() {
            sizes.extend(pool.spaces.list().iter().map(|space| (key_of(pool, space), space.size())));
        }
        *self.transports.host.sizes.lock().unwrap_or_else(PoisonError::into_inner) = sizes;
    }
}
