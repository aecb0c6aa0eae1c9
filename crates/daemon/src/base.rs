//! What several services need: state of the host in memory and on record, exports, transports, and the small services of pools.
//!
//! Each service takes from it by constructor what it works with, and keeps no more.

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
use crate::pool_jobs::PoolJobs;
use crate::pools::HistoryReads;
use crate::records::Records;
use crate::state::{EventFile, Events, Histories, Ledger, Locates, Members, Tails, TrashAges, VolumeUses};
use crate::views::Views;

/// Services that threads of their own stand behind.
pub(crate) struct Threaded {
    pub(crate) transports: Transports,
    pub(crate) listeners: Listeners,
    pub(crate) locates: Locates,
    pub(crate) jobs: Rc<Jobs>,
    /// Reads the table of mounts and files of settings for the service of volumes.
    pub(crate) volume_looker: IoWorker,
    /// Looks at files and devices that are disks, or were.
    pub(crate) watcher: Rc<IoWorker>,
    /// Computes what takes long.
    pub(crate) computer: Rc<IoWorker>,
}

/// What services are made of.
pub(crate) struct Base {
    pub(crate) handle: Handle,
    pub(crate) seams: Seams,
    pub(crate) config: Rc<Config>,
    pub(crate) arbiter: Rc<dyn Arbiter>,
    pub(crate) ledger: Rc<Ledger>,
    pub(crate) histories: Rc<Histories>,
    pub(crate) tails: Rc<Tails>,
    pub(crate) history_reads: Rc<HistoryReads>,
    pub(crate) jobs: Rc<Jobs>,
    pub(crate) events: Rc<Events>,
    pub(crate) trash_ages: Rc<TrashAges>,
    pub(crate) members: Rc<Members>,
    pub(crate) nbd: Rc<NbdServer>,
    pub(crate) listeners: Rc<Listeners>,
    pub(crate) transports: Rc<Transports>,
    pub(crate) volume_uses: Rc<VolumeUses>,
    pub(crate) volume_looker: Rc<IoWorker>,
    pub(crate) watcher: Rc<IoWorker>,
    pub(crate) locates: Rc<Locates>,
    pub(crate) began: Instant,
    pub(crate) pools: Rc<OpenPools>,
    pub(crate) records: Rc<Records>,
    pub(crate) pool_jobs: Rc<PoolJobs>,
    pub(crate) views: Rc<Views>,
}

impl Base {
    pub(crate) fn new(
        handle: Handle,
        config: Rc<Config>,
        host: HostId,
        file_worker: &Rc<IoWorker>,
        threaded: Threaded,
    ) -> Self {
        let seams = handle.seams();
        let pools = Rc::new(OpenPools::default());
        let ledger = Rc::new(Ledger::new(config.pools_folder(), Rc::clone(file_worker)));
        let histories = Rc::new(Histories::new(config.history_folder(), Rc::clone(file_worker)));
        let nbd = Rc::new(NbdServer::new(&seams, config.nbd_socket()));
        let listeners = Rc::new(threaded.listeners);
        let transports = Rc::new(threaded.transports);
        let jobs = threaded.jobs;
        let records = Records {
            pools: Rc::clone(&pools),
            seams: seams.clone(),
            ledger: Rc::clone(&ledger),
            histories: Rc::clone(&histories),
            nbd: Rc::clone(&nbd),
        };
        let pool_jobs = PoolJobs { pools: Rc::clone(&pools), seams: seams.clone(), jobs: Rc::clone(&jobs) };
        let views = Views {
            pools: Rc::clone(&pools),
            nbd: Rc::clone(&nbd),
            listeners: Rc::clone(&listeners),
            transports: Rc::clone(&transports),
        };
        Self {
            began: seams.clock.now(),
            members: Rc::new(Members::new(Rc::clone(&seams.clock))),
            events: Rc::new(Events::new(EventFile::new(config.state.clone(), Rc::clone(file_worker)))),
            trash_ages: Rc::new(TrashAges::new(&config.state, Rc::clone(file_worker))),
            arbiter: Rc::new(FileArbiter::new(host, config.arbiter_folder(), Rc::clone(file_worker))),
            tails: Rc::new(Tails::new(config.run.clone(), Rc::clone(file_worker))),
            history_reads: Rc::new(HistoryReads::new(threaded.computer)),
            volume_uses: Rc::default(),
            volume_looker: Rc::new(threaded.volume_looker),
            watcher: threaded.watcher,
            locates: Rc::new(threaded.locates),
            records: Rc::new(records),
            pool_jobs: Rc::new(pool_jobs),
            views: Rc::new(views),
            ledger,
            histories,
            jobs,
            nbd,
            listeners,
            transports,
            handle,
            seams,
            config,
            pools,
        }
    }
}
