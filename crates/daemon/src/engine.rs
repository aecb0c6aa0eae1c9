//! The engine's thread: owns the pools, and carries out what the other threads ask for.
//!
//! Everything in here runs on one thread. Requests are tasks of their own, so a long one keeps no other waiting; what
//! changes the set of pools takes [`OpenPools::changes`], what changes one pool takes that pool's mutex.
//!
//! Invariant: nothing here waits for the thread of the API, or for any client. Files of the daemon's own are written by
//! the file worker's thread and awaited.

use std::rc::Rc;

use dolmen_block_io::{Instant, Seams};
use dolmen_block_linux::Handle;
use dolmen_pool::Arbiter;
use dolmen_units::HostId;

use crate::arbiter::FileArbiter;
use crate::attach::Transports;
use crate::config::Config;
use crate::exports::{Listeners, NbdServer};
use crate::io_worker::IoWorker;
use crate::jobs::Jobs;
use crate::open_pools::OpenPools;
use crate::state::{EventFile, Events, Histories, Ledger, Locates, Members, TrashAges};

/// Services that are there before the engine.
pub(crate) struct Services {
    pub(crate) transports: Transports,
    pub(crate) listeners: Listeners,
    pub(crate) locates: Locates,
    pub(crate) jobs: Rc<Jobs>,
}

/// What the engine's thread owns.
pub(crate) struct Engine {
    pub(crate) handle: Handle,
    pub(crate) seams: Seams,
    pub(crate) config: Rc<Config>,
    pub(crate) arbiter: Rc<dyn Arbiter>,
    pub(crate) ledger: Rc<Ledger>,
    pub(crate) histories: Rc<Histories>,
    pub(crate) pools: Rc<OpenPools>,
    pub(crate) jobs: Rc<Jobs>,
    pub(crate) events: Rc<Events>,
    pub(crate) trash_ages: Rc<TrashAges>,
    pub(crate) members: Rc<Members>,
    pub(crate) nbd: Rc<NbdServer>,
    pub(crate) listeners: Rc<Listeners>,
    pub(crate) transports: Rc<Transports>,
    pub(crate) locates: Rc<Locates>,
    pub(crate) began: Instant,
}

impl Engine {
    pub(crate) fn new(
        handle: Handle,
        config: Rc<Config>,
        host: HostId,
        file_worker: Rc<IoWorker>,
        services: Services,
    ) -> Rc<Self> {
        let Services { transports, listeners, locates, jobs } = services;
        let seams = handle.seams();
        let arbiter = FileArbiter::new(host, config.arbiter_folder(), Rc::clone(&file_worker));
        Rc::new(Self {
            nbd: Rc::new(NbdServer::new(&seams, config.nbd_socket())),
            began: seams.clock.now(),
            members: Rc::new(Members::new(Rc::clone(&seams.clock))),
            ledger: Rc::new(Ledger::new(config.pools_folder(), Rc::clone(&file_worker))),
            histories: Rc::new(Histories::new(config.history_folder(), Rc::clone(&file_worker))),
            events: Rc::new(Events::new(EventFile::new(config.state.clone(), Rc::clone(&file_worker)))),
            trash_ages: Rc::new(TrashAges::new(&config.state, Rc::clone(&file_worker))),
            jobs,
            arbiter: Rc::new(arbiter),
            transports: Rc::new(transports),
            listeners: Rc::new(listeners),
            locates: Rc::new(locates),
            handle,
            seams,
            config,
            pools: Rc::new(OpenPools::default()),
        })
    }
}
