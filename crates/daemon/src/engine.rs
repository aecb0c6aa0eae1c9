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

use crate::api::Reports;
use crate::attach::Transports;
use crate::base::Base;
use crate::config::Config;
use crate::disks::Devices;
use crate::exports::{Listeners, NbdServer};
use crate::jobs::Jobs;
use crate::open_pools::OpenPools;
use crate::pool_jobs::PoolJobs;
use crate::records::Records;
use crate::state::{Events, Histories, Ledger, Locates, Members, TrashAges};
use crate::views::Views;

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
    pub(crate) records: Rc<Records>,
    pub(crate) pool_jobs: Rc<PoolJobs>,
    pub(crate) views: Rc<Views>,
    pub(crate) devices: Rc<Devices>,
    pub(crate) reports: Rc<Reports>,
    pub(crate) began: Instant,
}

impl Engine {
    pub(crate) fn new(base: Base) -> Rc<Self> {
        let devices = Rc::new(Devices::new(&base));
        let reports = Rc::new(Reports::new(&base));
        let Base {
            handle,
            seams,
            config,
            arbiter,
            ledger,
            histories,
            pools,
            jobs,
            events,
            trash_ages,
            members,
            nbd,
            listeners,
            transports,
            locates,
            records,
            pool_jobs,
            views,
            began,
        } = base;
        Rc::new(Self {
            handle,
            seams,
            config,
            arbiter,
            ledger,
            histories,
            pools,
            jobs,
            events,
            trash_ages,
            members,
            nbd,
            listeners,
            transports,
            locates,
            records,
            pool_jobs,
            views,
            began,
            devices,
            reports,
        })
    }
}
