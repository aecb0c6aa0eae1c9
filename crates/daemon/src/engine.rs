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
use crate::attaching::{KernelTransports, SpaceAttachments};
use crate::base::Base;
use crate::config::Config;
use crate::disks::Devices;
use crate::exports::NbdServer;
use crate::jobs::Jobs;
use crate::open_pools::OpenPools;
use crate::pool_jobs::PoolJobs;
use crate::records::Records;
use crate::settings::Settings;
use crate::spaces::{Conversions, Deletions, NetworkListeners, Purges, Scrubs, SpaceChanges, WriteCaches};
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
    pub(crate) transports: Rc<Transports>,
    pub(crate) locates: Rc<Locates>,
    pub(crate) records: Rc<Records>,
    pub(crate) pool_jobs: Rc<PoolJobs>,
    pub(crate) views: Rc<Views>,
    pub(crate) began: Instant,
    pub(crate) devices: Rc<Devices>,
    pub(crate) settings: Rc<Settings>,
    pub(crate) kernel: Rc<KernelTransports>,
    pub(crate) attachments: Rc<SpaceAttachments>,
    pub(crate) network: Rc<NetworkListeners>,
    pub(crate) purges: Rc<Purges>,
    pub(crate) spaces: Rc<SpaceChanges>,
    pub(crate) deletions: Rc<Deletions>,
    pub(crate) scrubs: Rc<Scrubs>,
    pub(crate) write_caches: Rc<WriteCaches>,
    pub(crate) conversions: Rc<Conversions>,
    pub(crate) reports: Rc<Reports>,
}

impl Engine {
    pub(crate) fn new(base: Base) -> Rc<Self> {
        let devices = Rc::new(Devices::new(&base));
        let settings = Rc::new(Settings::new(&base));
        let kernel = Rc::new(KernelTransports::new(&base));
        let attachments = Rc::new(SpaceAttachments::new(&base, &kernel));
        let network = Rc::new(NetworkListeners::new(&base));
        let purges = Rc::new(Purges::new(&base));
        let spaces = Rc::new(SpaceChanges::new(&base, &attachments, &network));
        let deletions = Rc::new(Deletions::new(&base, &purges, &spaces));
        let scrubs = Rc::new(Scrubs::new(&base));
        let write_caches = Rc::new(WriteCaches::new(&base));
        let conversions = Rc::new(Conversions::new(&base));
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
            transports,
            locates,
            records,
            pool_jobs,
            views,
            began,
            ..
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
            transports,
            locates,
            records,
            pool_jobs,
            views,
            began,
            devices,
            settings,
            kernel,
            attachments,
            network,
            purges,
            spaces,
            deletions,
            scrubs,
            write_caches,
            conversions,
            reports,
        })
    }
}
