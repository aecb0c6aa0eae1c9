//! The engine's thread: owns the pools, and carries out what the other threads ask for.
//!
//! Everything in here runs on one thread. Requests are tasks of their own, so a long one keeps no other waiting; what
//! changes the set of pools takes [`Engine::changes`], what changes one pool takes that pool's turn.
//!
//! Invariant: nothing here waits for the thread of the API, or for any client. Files of the daemon's own are written by
//! the file worker's thread and awaited.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_api::{ErrorBody, ErrorCode, ImportMode};
use dolmen_block_io::sync::{AsyncMutex, Permit};
use dolmen_block_io::{Instant, Seams};
use dolmen_block_linux::Handle;
use dolmen_pool::Arbiter;
use dolmen_space::{Space, Spaces};
use dolmen_units::{DiskId, DiskSlot, HostId, Name, PoolId};

use crate::answer::Answer;
use crate::arbiter::FileArbiter;
use crate::attach::Transports;
use crate::config::{Config, POOLS_MAX};
use crate::exports::{Listeners, NbdServer};
use crate::fault;
use crate::io_worker::IoWorker;
use crate::jobs::{JobSlot, Jobs};
use crate::ranks;
use crate::state::{
    Absences, Backing, DiskLatencies, Emptyings, EventFile, Events, Filling, Histories, History, Ledger,
    Locates, Members, Remembered, Smarts, TrashAges,
};

/// A pool that is open.
pub(crate) struct OpenPool {
    pub(crate) spaces: Rc<Spaces>,
    pub(crate) mode: ImportMode,
    /// Changes of this pool, one at a time.
    pub(crate) mutex: AsyncMutex,
    /// Jobs of this pool, one at a time.
    pub(crate) job_slot: Rc<JobSlot>,
    pub(crate) is_closing: Cell<bool>,
    pub(crate) history: History,
    pub(crate) absences: Absences,
    pub(crate) filling: Filling,
    /// Rows that lie badly, as they were counted last.
    pub(crate) laid_badly: Cell<u64>,
    pub(crate) latencies: DiskLatencies,
    pub(crate) emptyings: Emptyings,
    pub(crate) smarts: Smarts,
    /// What people call the bays of disks.
    pub(crate) bays: RefCell<BTreeMap<DiskId, String>>,
    /// What has become of what disks lie on, as it was seen last.
    pub(crate) backing_states: RefCell<BTreeMap<DiskSlot, Backing>>,
}

impl OpenPool {
    pub(crate) fn new(spaces: Rc<Spaces>, mode: ImportMode) -> Rc<Self> {
        let (mutex, job_slot) =
            (AsyncMutex::ranked(ranks::POOL.single()), Rc::new(JobSlot::new(Rc::clone(&spaces))));
        let (history, absences) = (History::default(), Absences::default());
        let (is_closing, backing_states) = (Cell::new(false), RefCell::default());
        let latencies = DiskLatencies::default();
        let (emptyings, smarts) = (Emptyings::default(), Smarts::default());
        Rc::new(Self {
            spaces,
            mode,
            mutex,
            job_slot,
            is_closing,
            history,
            absences,
            laid_badly: Cell::new(0),
            filling: Filling::default(),
            latencies,
            emptyings,
            smarts,
            bays: RefCell::default(),
            backing_states,
        })
    }

    pub(crate) fn id(&self) -> PoolId {
        self.spaces.pool().id()
    }

    pub(crate) fn name(&self) -> String {
        self.spaces.pool().name().to_string()
    }

    pub(crate) fn space(&self, name: &str) -> Answer<Rc<Space>> {
        self.spaces.find(name).map_err(|error| {
            let is_in_trash = self.spaces.trash().iter().any(|space| space.name().as_str() == name);
            let hint = match is_in_trash {
                true => format!(
                    "one of that name is in the trash: `dolmen trash restore {}/{name}` brings it back",
                    self.name()
                ),
                false => "`dolmen space list` shows all spaces".to_owned(),
            };
            let body = self.of_a_name(&error).unwrap_or_else(|| fault::space(&error));
            body.on(format!("{}/{name}", self.name())).hint(hint)
        })
    }
}

/// A pool that should be open and is not.
pub(crate) struct ClosedPool {
    pub(crate) remembered: Remembered,
    pub(crate) cause: ErrorBody,
}

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
    pub(crate) ledger: Ledger,
    pub(crate) histories: Histories,
    pub(crate) pools: RefCell<BTreeMap<PoolId, Rc<OpenPool>>>,
    pub(crate) closed: RefCell<BTreeMap<PoolId, ClosedPool>>,
    pub(crate) jobs: Rc<Jobs>,
    pub(crate) events: Events,
    pub(crate) trash_ages: TrashAges,
    pub(crate) members: Members,
    pub(crate) nbd: NbdServer,
    pub(crate) listeners: Listeners,
    pub(crate) transports: Transports,
    pub(crate) locates: Locates,
    /// Changes of the set of pools, one at a time.
    pub(crate) changes: AsyncMutex,
    pub(crate) began: Instant,
    /// What is going on that is no job, in words.
    pub(crate) doing: RefCell<Vec<String>>,
    pub(crate) is_stopping: Cell<bool>,
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
            nbd: NbdServer::new(&seams, config.nbd_socket()),
            began: seams.clock.now(),
            members: Members::new(Rc::clone(&seams.clock)),
            ledger: Ledger::new(config.pools_folder(), Rc::clone(&file_worker)),
            histories: Histories::new(config.history_folder(), Rc::clone(&file_worker)),
            events: Events::new(EventFile::new(config.state.clone(), Rc::clone(&file_worker))),
            trash_ages: TrashAges::new(&config.state, Rc::clone(&file_worker)),
            jobs,
            arbiter: Rc::new(arbiter),
            transports,
            listeners,
            locates,
            handle,
            seams,
            config,
            pools: RefCell::default(),
            closed: RefCell::default(),
            changes: AsyncMutex::ranked(ranks::CHANGES.single()),
            doing: RefCell::default(),
            is_stopping: Cell::new(false),
        })
    }

    /// Refuses changes while the daemon is ending.
    pub(crate) fn check_running(&self) -> Answer<()> {
        if self.is_stopping.get() {
            let error = ErrorBody::new(ErrorCode::Stopping, "the daemon is ending; nothing was changed");
            return Err(error.hint("ask again when it has been started again"));
        }
        Ok(())
    }

    /// Refuses one pool more than there is memory for.
    pub(crate) fn check_pool_count(&self, name: &str) -> Answer<()> {
        if self.pools.borrow().len() < POOLS_MAX {
            return Ok(());
        }
        let message = format!(
            "{POOLS_MAX} pools are open, which is the most that a daemon has; {name} was not touched"
        );
        let hint =
            "export one of the others first; or put disks together into fewer pools, whose spaces they share";
        Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint))
    }

    /// The open pool with this name or identity.
    pub(crate) fn pool(&self, name: &str) -> Answer<Rc<OpenPool>> {
        let pools = self.pools.borrow();
        let found = pools.values().find(|pool| pool.name() == name || pool.id().to_string() == name);
        if let Some(pool) = found {
            return Ok(Rc::clone(pool));
        }
        let closed = self.closed.borrow();
        if let Some(closed) = closed.values().find(|closed| closed.remembered.name == name) {
            let message = format!("pool {name} is not open: {}", closed.cause.message);
            let mut error = ErrorBody::new(ErrorCode::NoSuchPool, message).on(name);
            error.causes.clone_from(&closed.cause.causes);
            return Err(error.hint(format!("attach its disks, then `dolmen pool import --pool {name}`; `dolmen pool export {name}` has it forgotten here")));
        }
        let message = format!("there is no pool {name} here");
        Err(ErrorBody::new(ErrorCode::NoSuchPool, message)
            .on(name)
            .hint("`dolmen pool list` shows all pools"))
    }

    /// A pool that takes changes.
    pub(crate) fn pool_to_change(&self, name: &str) -> Answer<Rc<OpenPool>> {
        let pool = self.pool(name)?;
        self.check_changing(&pool)?;
        Ok(pool)
    }

    /// The turn to change a pool, which takes changes still when that comes.
    pub(crate) async fn lock_for_change<'a>(&self, pool: &'a OpenPool) -> Answer<Permit<'a>> {
        let mutex = pool.mutex.take().await;
        self.check_changing(pool)?;
        Ok(mutex)
    }

    fn check_changing(&self, pool: &OpenPool) -> Answer<()> {
        self.check_running()?;
        if pool.is_closing.get() {
            let name = pool.name();
            let message = format!("pool {name} is being closed; nothing was changed");
            return Err(ErrorBody::new(ErrorCode::Busy, message).on(name));
        }
        Ok(())
    }

    /// All open pools, by name.
    pub(crate) fn open_pools(&self) -> Vec<Rc<OpenPool>> {
        let mut pools: Vec<_> = self.pools.borrow().values().cloned().collect();
        pools.sort_by_key(|pool| pool.name());
        pools
    }

    /// Says what is going on as long as the returned note lives.
    pub(crate) fn note(self: &Rc<Self>, what: String) -> Note {
        self.doing.borrow_mut().push(what.clone());
        Note { engine: Rc::clone(self), what }
    }
}

/// Something that goes on.
pub(crate) struct Note {
    engine: Rc<Engine>,
    what: String,
}

impl Drop for Note {
    fn drop(&mut self) {
        let mut doing = self.engine.doing.borrow_mut();
        if let Some(at) = doing.iter().position(|what| *what == self.what) {
            doing.remove(at);
        }
    }
}

/// A name that a pool or a space can have.
pub(crate) fn parse_name(text: &str) -> Answer<Name> {
    text.parse().map_err(|error: dolmen_units::ParseNameError| {
        ErrorBody::new(ErrorCode::BadName, error.to_string()).on(text.chars().take(80).collect::<String>())
    })
}
