//! Opening pools: those that were open when the daemon ended, and those that a person names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{Change, ErrorBody, ErrorCode, EventCode, ImportMode, ImportPool};
use dolmen_block_io::{Seams, sleep};
use dolmen_block_linux::{Handle, Listener};
use dolmen_causes::in_one_line;
use dolmen_mutation::mutation;
use dolmen_nbd::Access;
use dolmen_pool::{
    Arbiter, Candidate, Found, OpenError, OpenMode, OpenOptions, Opened, PoolState, Purpose, foresee,
    name_of, open, owner_of,
};
use dolmen_space::{Clients, Spaces};
use dolmen_units::{Name, PoolId};

use crate::api::JobControl;
use crate::attach::Transports;
use crate::attaching::KernelTransports;
use crate::base::Base;
use crate::caller::Answer;
use crate::disks::{Devices, note_connections, stopped};
use crate::exports::NbdServer;
use crate::fault;
use crate::health::without_labels;
use crate::jobs::Jobs;
use crate::open_pool::{ClosedBy, ClosedPool, OpenPool, parse_name};
use crate::open_pools::OpenPools;
use crate::plan::{Figures, Undo, made, planned, usual_room};
use crate::pools::ends::{PoolEnds, is_unmade};
use crate::pools::recording::Recordings;
use crate::pools::watch::Tending;
use crate::records::Records;
use crate::spaces::NetworkListeners;
use crate::state::{Events, Ledger, Members, Remembered, ServedSpace, TrashAges};
use crate::views::Views;
use crate::volumes::{Volumes, accept, await_mounts, held, remove_unmounted_shares};
use crate::words::counted;

/// How long a disk may be in the hands of another process while a daemon that starts opens its pools: one that is ending,
/// or one that looks at all disks that appear.
const REOPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// The same while a person waits for the answer.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(1);
/// How often it is looked whether the socket for NBD is there.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often the socket for NBD is made again, at most: each keeps a listener.
const SOCKETS_MAX: u32 = 16;

/// How a pool is opened.
#[derive(Debug, Clone)]
struct How {
    mode: ImportMode,
    clients: Clients,
    /// How long its disks may be in other hands.
    timeout: Duration,
    /// The name that it gets, whatever its labels say.
    rename: Option<Name>,
}

fn open_mode(mode: ImportMode) -> OpenMode {
    match mode {
        ImportMode::Write => OpenMode::Write,
        ImportMode::Read => OpenMode::Read,
        ImportMode::Confirmed => OpenMode::Confirmed,
    }
}

/// What a pool is opened for, where that is not everything.
fn for_what(mode: ImportMode) -> &'static str {
    match mode {
        ImportMode::Write | ImportMode::Confirmed => "",
        ImportMode::Read => ", for reading only",
    }
}

/// Refuses to open by itself what belongs to nobody any more: whoever exported it, and it was not this daemon or it ended in the midst
/// of that, may have changed it, or given it to somebody who did.
fn check_not_released(labels: &[Candidate], mode: ImportMode, name: &str) -> Answer<()> {
    if mode == ImportMode::Read || owner_of(labels).is_some() || mutation!(ExportedOpened) {
        return Ok(());
    }
    let message = format!("pool {name} was exported since it was open here, and is not opened by itself");
    Err(ErrorBody::new(ErrorCode::NeedsConfirmation, message).on(name).hint(format!(
        "`dolmen pool import --pool {name}` opens it; `dolmen pool export {name}` has it forgotten here"
    )))
}

/// That spaces are served again which were when their pool was open last.
fn step_of_serving(served: &[ServedSpace]) -> Option<String> {
    let count = u64::try_from(served.len()).unwrap_or(u64::MAX);
    (count > 0).then(|| format!("serve {} over NBD again", counted(count, "space", "spaces")))
}

/// Returns the steps of an import after the opening, in words.
fn steps_after_opening(served: &[ServedSpace], request: &ImportPool) -> Vec<String> {
    let step =
        "accept the mount points of its volumes and the rights over NFS on its shares that another host set";
    let is_accepting = request.accept && request.mode != ImportMode::Read;
    step_of_serving(served).into_iter().chain(is_accepting.then(|| step.to_owned())).collect()
}

/// What a pool is opened for, and from how much of it.
fn opened_from(mode: ImportMode, used: usize, members: usize) -> String {
    let comma = if mode == ImportMode::Read { "," } else { "" };
    format!("{}{comma} from {used} of its {members} disks", for_what(mode))
}

/// Labels of a device that belong to no pool wanted, in words.
fn unusable(found: &Found) -> Vec<String> {
    let damaged = found.unusable.iter().map(|(name, error)| format!("{name}: {error}"));
    damaged.chain(found.unreadable.iter().map(ToString::to_string)).collect()
}

/// Devices that a person named, by themselves or with their folder, and that hold labels which cannot be used, in words.
fn unusable_at(named: &[PathBuf], found: &Found) -> Vec<String> {
    let is_named = |name: &str| named.iter().any(|path| Path::new(name).starts_with(path));
    let damaged = found.unusable.iter().filter(|(name, _)| is_named(name));
    damaged.map(|(name, error)| format!("{name} has labels of a pool, and is left out: {error}")).collect()
}

/// Pools opened at the start, and those that users import.
pub(crate) struct Opening {
    pools: Rc<OpenPools>,
    records: Rc<Records>,
    views: Rc<Views>,
    devices: Rc<Devices>,
    kernel: Rc<KernelTransports>,
    network: Rc<NetworkListeners>,
    job_control: Rc<JobControl>,
    pool_ends: Rc<PoolEnds>,
    tending: Rc<Tending>,
    volumes: Rc<Volumes>,
    recordings: Rc<Recordings>,
    handle: Handle,
    seams: Seams,
    arbiter: Rc<dyn Arbiter>,
    ledger: Rc<Ledger>,
    jobs: Rc<Jobs>,
    events: Rc<Events>,
    trash_ages: Rc<TrashAges>,
    members: Rc<Members>,
    nbd: Rc<NbdServer>,
    transports: Rc<Transports>,
}

impl Opening {
    pub(crate) fn new(
        base: &Base,
        devices: &Rc<Devices>,
        kernel: &Rc<KernelTransports>,
        network: &Rc<NetworkListeners>,
        job_control: &Rc<JobControl>,
        pool_ends: &Rc<PoolEnds>,
        tending: &Rc<Tending>,
    ) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            records: Rc::clone(&base.records),
            views: Rc::clone(&base.views),
            devices: Rc::clone(devices),
            kernel: Rc::clone(kernel),
            network: Rc::clone(network),
            job_control: Rc::clone(job_control),
            pool_ends: Rc::clone(pool_ends),
            tending: Rc::clone(tending),
            volumes: Rc::clone(&pool_ends.volumes),
            recordings: Rc::clone(&pool_ends.recordings),
            handle: base.handle.clone(),
            seams: base.seams.clone(),
            arbiter: Rc::clone(&base.arbiter),
            ledger: Rc::clone(&base.ledger),
            jobs: Rc::clone(&base.jobs),
            events: Rc::clone(&base.events),
            trash_ages: Rc::clone(&base.trash_ages),
            members: Rc::clone(&base.members),
            nbd: Rc::clone(&base.nbd),
            transports: Rc::clone(&base.transports),
        }
    }
}

impl Opening {
    /// Opens what was open when the daemon ended, and listens for clients.
    pub(crate) async fn start(self: &Rc<Self>) {
        let _changes = self.pools.changes.take().await;
        self.job_control.recall_jobs().await;
        self.trash_ages.recall().await;
        self.events.recall(&self.jobs.on_record()).await;
        let remembered = match self.ledger.all().await {
            Ok(remembered) => remembered,
            Err(error) => {
                tracing::error!(%error, "the list of pools cannot be read; import them by hand");
                Vec::new()
            }
        };
        for (id, remembered) in remembered {
            let _note = self.pools.note(format!("opening pool {}", remembered.name));
            if let Err(cause) = self.reopen(id, &remembered, REOPEN_TIMEOUT).await {
                tracing::error!(pool = remembered.name, %cause, "the pool could not be opened");
                self.pools
                    .closed
                    .borrow_mut()
                    .insert(id, ClosedPool { remembered, cause, by: ClosedBy::Start });
            }
        }
        self.job_control.end_jobs_of_lost_pools().await;
        self.kernel.take_up_attached().await;
        self.kernel.keep_taking_up();
        self.kernel.keep_putting_back();
        // Clients that were cut off when the last daemon ended come back, and find everything as it was.
        self.listen();
        for pool in self.pools.open_pools() {
            self.volumes.opened(&pool).await;
        }
        // Volumes that a daemon before left mounted are known by now.
        remove_unmounted_shares(&self.volumes);
    }

    fn listen(self: &Rc<Self>) {
        let path = self.nbd.socket.clone();
        // The run folder is locked, so a socket that is there belongs to a daemon that is gone.
        let _ = fs::remove_file(&path);
        match Listener::bind_unix(&self.handle, &path) {
            Ok(listener) => {
                let listening = NbdServer::listen(self.nbd.server(), listener, self.seams.clone());
                self.network.keep_listeners_open();
                self.seams.spawner.spawn("nbd listener", Box::pin(listening));
                self.keep_socket(path);
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "spaces cannot be served: no socket")
            }
        }
    }

    /// Makes the socket for NBD again where somebody removes it. The one before goes on with whoever has it.
    fn keep_socket(self: &Rc<Self>, path: PathBuf) {
        let service = Rc::downgrade(self);
        let clock = Rc::clone(&self.seams.clock);
        let keeping = async move {
            let mut made_again = 0;
            while made_again < SOCKETS_MAX {
                sleep(clock.as_ref(), LOOK_EVERY).await;
                let Some(service) = service.upgrade() else { return };
                let is_gone = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
                if service.pools.is_stopping.get() || !fs::symlink_metadata(&path).is_err_and(is_gone) {
                    continue;
                }
                made_again += 1;
                match Listener::bind_unix(&service.handle, &path) {
                    Ok(listener) => {
                        tracing::warn!(path = %path.display(), "the socket had been removed, and is there again");
                        let listening =
                            NbdServer::listen(service.nbd.server(), listener, service.seams.clone());
                        service.seams.spawner.spawn("nbd listener", Box::pin(listening));
                    }
                    Err(error) => {
                        tracing::error!(path = %path.display(), %error, "the socket was removed, and cannot be made again");
                    }
                }
            }
        };
        self.seams.spawner.spawn("nbd socket", Box::pin(keeping));
    }

    /// Opens a pool that the start could not open, as the start does, and has its volumes and shares back.
    pub(crate) async fn open_late(&self, id: PoolId) -> Answer<()> {
        let changes = self.pools.changes.take().await;
        self.pools.check_running()?;
        // A command may have imported or forgotten it meanwhile.
        let closed = self
            .pools
            .closed
            .borrow()
            .get(&id)
            .filter(|one| one.opens_by_itself())
            .map(|one| one.remembered.clone());
        let Some(remembered) = closed else { return Ok(()) };
        let name = remembered.name.as_str();
        let _note = self.pools.note(format!("opening pool {name}"));
        self.check_name_is_free(id, name)?;
        if let Err(cause) = self.reopen(id, &remembered, IMPORT_TIMEOUT).await {
            if let Some(closed) = self.pools.closed.borrow_mut().get_mut(&id) {
                closed.cause = cause.clone();
            }
            return Err(cause);
        }
        let Some(pool) = self.pools.open_pool_of(id) else { return Ok(()) };
        self.kernel.take_up_waiting().await;
        self.volumes.opened(&pool).await;
        drop(changes);
        tracing::info!(pool = pool.name(), "the pool is open: its disks have appeared");
        for warning in await_mounts(&self.volumes, &pool).await {
            tracing::warn!(pool = pool.name(), warning, "a volume is not mounted");
        }
        Ok(())
    }

    async fn reopen(&self, id: PoolId, remembered: &Remembered, timeout: Duration) -> Answer<()> {
        if remembered.is_being_destroyed {
            return self.go_on_destroying(id, remembered).await;
        }
        let found = self.devices.look_at(&self.devices.places(&remembered.paths)).await?;
        let labels = found.pools.get(&id).map_or(&[][..], Vec::as_slice);
        if remembered.is_being_made && is_unmade(labels) {
            return self.abandon_creation(id, remembered, &paths_of(labels)).await;
        }
        // A confirmation was for once: from then on this host owns the pool, and the rule of epochs decides again.
        let mode = match remembered.mode {
            ImportMode::Read => ImportMode::Read,
            ImportMode::Write | ImportMode::Confirmed => ImportMode::Write,
        };
        let paths = paths_of(labels);
        let copies = duplicate_devices(labels, &remembered.paths);
        if paths.is_empty() {
            let message = format!("none of the disks of pool {} is here", remembered.name);
            let mut error = ErrorBody::new(ErrorCode::NoSuchPool, message);
            error.causes = self.devices.on_spaces(remembered.paths.iter().map(PathBuf::as_path));
            error.causes.extend(unusable(&found));
            return Err(error);
        }
        for cause in self.devices.on_spaces(remembered.paths.iter().map(PathBuf::as_path)) {
            tracing::warn!(pool = remembered.name, cause, "a disk of the pool is not opened");
        }
        check_not_released(labels, mode, &remembered.name)?;
        self.check_not_out_of_date(id, &remembered.name, labels)?;
        // Labels of a pool that is read only do not say what it is called here.
        let rename = if mode == ImportMode::Read { remembered.name.parse().ok() } else { None };
        let how = How { mode, clients: remembered.clients(), timeout, rename };
        let opened = self.open_pool(id, &remembered.name, &paths, how).await;
        let pool = opened.map_err(|error| match copies.as_slice() {
            [] => error,
            copies => error.hint(format!(
                "take {} away, which is a copy of a disk of pool {name} and not the one that it used, then `dolmen pool import --pool {name}`",
                copies.join(", "),
                name = remembered.name
            )),
        })?;
        self.serve_again(&pool, &remembered.served);
        self.records.remember(&pool).await;
        Ok(())
    }

    /// Wipes the labels that a daemon that ended while it made a pool has left: so nothing is in the way of making it.
    async fn abandon_creation(&self, id: PoolId, remembered: &Remembered, paths: &[PathBuf]) -> Answer<()> {
        let name = &remembered.name;
        let (found, _) = self.devices.take_members(id, name, paths, REOPEN_TIMEOUT).await?;
        let labels = found.pools.get(&id).map_or(&[][..], Vec::as_slice);
        if is_unmade(labels) {
            self.pool_ends.unmake(id, labels).await;
            tracing::warn!(pool = name, disks = ?paths, "the pool was being made when the last daemon ended, and is not: its labels are wiped; make it again");
        }
        Ok(())
    }

    /// Wipes what a daemon that ended in the middle of it has left of a pool's labels.
    async fn go_on_destroying(&self, id: PoolId, remembered: &Remembered) -> Answer<()> {
        let found = self.devices.look_at(&self.devices.places(&remembered.paths)).await?;
        let mut paths = paths_of(found.pools.get(&id).map_or(&[], Vec::as_slice));
        // What lies beside them was not named: a copy that somebody made before.
        paths.retain(|path| remembered.paths.contains(path));
        drop(found);
        let (mut found, _) = self.devices.take_members(id, &remembered.name, &paths, REOPEN_TIMEOUT).await?;
        let candidates = found.pools.remove(&id).unwrap_or_default();
        let devices: Vec<_> = candidates.iter().map(|candidate| Rc::clone(&candidate.device)).collect();
        for warning in self.pool_ends.wipe_and_forget(id, &devices).await {
            tracing::warn!(pool = remembered.name, warning, "not all of the pool could be destroyed");
        }
        tracing::info!(pool = remembered.name, "the pool is destroyed, which the last daemon had begun");
        let text = format!("pool {} is destroyed, which the last daemon had begun", remembered.name);
        self.events.report_unknown(id, &remembered.name, EventCode::PoolDestroyed, text).await;
        Ok(())
    }

    fn serve_again(&self, pool: &Rc<OpenPool>, served: &[ServedSpace]) {
        for entry in served {
            let space = pool.spaces.list().into_iter().find(|space| space.id().0 == entry.space);
            let Some(space) = space else { continue };
            let is_read_only = entry.read_only || pool.mode == ImportMode::Read;
            let access = if is_read_only { Access::ReadOnly } else { Access::ReadWrite };
            let name = format!("{}/{}", pool.name(), space.name());
            let served = self.nbd.add(name, &pool.spaces, &space, access);
            served.network.replace(entry.network.clone());
        }
    }

    /// Opens a pool whose disks are at the paths, recovers its spaces, and begins what has to be brought up to date.
    async fn open_pool(&self, id: PoolId, name: &str, paths: &[PathBuf], how: How) -> Answer<Rc<OpenPool>> {
        self.pools.check_pool_count(name)?;
        let (mut found, refused) = self.devices.take_members(id, name, paths, how.timeout).await?;
        let mut candidates = found.pools.remove(&id).unwrap_or_default();
        // An opening for writing writes labels of a new epoch, with the name that it has found.
        for (candidate, name) in candidates.iter_mut().zip(how.rename.iter().cycle()) {
            candidate.label.pool_name = name.clone();
        }
        if candidates.is_empty() {
            let mut error = ErrorBody::new(
                ErrorCode::DeviceInUse,
                format!("none of the disks of pool {name} could be opened"),
            );
            error.causes = refused;
            return Err(error.on(name));
        }
        let options = OpenOptions { mode: open_mode(how.mode) };
        let opened = open(&self.seams, Rc::clone(&self.arbiter), candidates, &options).await;
        let pool = match opened {
            Ok(opened) => self.adopt(opened, how.mode, how.clients).await,
            Err(error) => Err(fault::open(&error)),
        };
        if pool.is_err() {
            self.members.release_all_of(id);
        }
        pool
    }

    /// Recovers the spaces of a pool that was opened, and takes it into the list.
    pub(crate) async fn adopt(
        &self,
        opened: Opened,
        mode: ImportMode,
        clients: Clients,
    ) -> Answer<Rc<OpenPool>> {
        let spaces = Spaces::start_among(opened, clients).await.map_err(|error| fault::space(&error))?;
        let recovery = spaces.recovery();
        let pool = OpenPool::new(spaces, mode);
        let has_lost_labels = !without_labels(&pool).is_empty();
        self.records.recall(&pool).await;
        pool.recall_bays().await;
        if has_lost_labels {
            // The labels that the opening has written do not say it any more.
            self.records.keep_history(&pool).await;
        }
        tracing::info!(pool = pool.name(), epoch = %pool.spaces.pool().epoch(), ?recovery, "the pool is open");
        // A disk that fails before the first look did not go away.
        note_connections(&pool, &self.members);
        self.pools.open.borrow_mut().insert(pool.id(), Rc::clone(&pool));
        // It reads all rows: clients do not wait for it.
        let counted = Rc::clone(&pool);
        let count = async move { counted.count_badly_laid().await };
        self.seams.spawner.spawn("rows laid badly", Box::pin(count));
        self.pools.closed.borrow_mut().remove(&pool.id());
        self.transports.go_on(pool.id());
        self.recordings.begin(&pool);
        if mode != ImportMode::Read {
            self.tending.go_on_with_jobs(&pool).await;
            if has_lost_labels {
                self.tending.verify_after_loss(&pool).await;
            }
            self.tending.begin_to_watch(&pool);
        }
        Ok(pool)
    }

    /// Opens a pool that a person names.
    pub(crate) async fn import_pool(&self, request: ImportPool) -> Answer<Change> {
        let changes = self.pools.changes.take().await;
        self.pools.check_running()?;
        let mut hints =
            request.paths.iter().map(|path| self.devices.canonical(path)).collect::<Answer<Vec<_>>>()?;
        let named = self.devices.places_named(&hints);
        let asked = hints.clone();
        hints.extend(self.paths_on_record(request.pool.as_deref()));
        let passed_over = self.of_open_pools(&named);
        let found = self.devices.look_at(&self.devices.places(&hints)).await?;
        let (id, candidates) = self.choose(&request, &named, &found)?;
        let paths = paths_of(candidates);
        let left_out = unusable_at(&asked, &found);
        let own = name_of(candidates).map(ToString::to_string).unwrap_or_default();
        let rename = request.rename.as_deref().map(parse_name).transpose()?;
        let name = rename.as_ref().map_or_else(|| own.clone(), ToString::to_string);
        self.check_name_is_free(id, &name)?;
        self.check_may_be_renamed(id, &own, &name)?;
        self.pools.check_pool_count(&name)?;
        self.check_not_out_of_date(id, &name, candidates)?;
        let members =
            candidates.iter().map(|candidate| candidate.label.base.members.len()).max().unwrap_or(0);
        let from = opened_from(request.mode, paths.len(), members);
        let served = self.served_before(id);
        let mut steps = vec![format!("open pool {own}{from}")];
        steps.extend(step_of_renaming(&own, &name, request.mode));
        steps.extend(paths.iter().map(|path| format!("use {}", path.display())));
        steps.extend(steps_after_opening(&served, &request));
        let undo = match request.mode {
            ImportMode::Write | ImportMode::Read => Undo::By(format!("dolmen pool export {name}")),
            // From then on the other side, if there is one, went on apart.
            ImportMode::Confirmed => Undo::ByNothing,
        };
        if request.dry_run {
            let mut found = found;
            let candidates = found.pools.remove(&id).unwrap_or_default();
            let mut change = self.plan_import(&own, candidates, request.mode, undo).await?;
            change.plan.steps.extend(step_of_renaming(&own, &name, request.mode));
            change.plan.steps.extend(steps_after_opening(&served, &request));
            change.warnings.extend(passed_over);
            change.warnings.extend(left_out);
            return Ok(change);
        }
        drop(found);
        let clients = self.clients_of(id);
        let how = How { mode: request.mode, clients, timeout: IMPORT_TIMEOUT, rename };
        let pool = self.open_pool(id, &name, &paths, how).await?;
        self.serve_again(&pool, &served);
        self.records.remember(&pool).await;
        self.kernel.take_up_waiting().await;
        let not_accepted = self.accept_as_asked(&pool, &request).await;
        self.volumes.opened(&pool).await;
        // Other pools are changed meanwhile.
        drop(changes);
        let unmounted = await_mounts(&self.volumes, &pool).await;
        let room = usual_room(&pool.offers());
        let plan = Figures::of_room(0, room).plan(undo, steps);
        let mut change = made(plan, format!("pool {name} is open{}", for_what(request.mode)));
        change.warnings.extend(passed_over);
        change.warnings.extend(left_out);
        change.warnings.extend(unmounted);
        change.warnings.extend(not_accepted);
        change.warnings.extend(held(&self.volumes, &pool).await);
        let away = pool.spaces.pool().disks().iter().filter(|disk| !disk.is_present()).count();
        if away > 0 {
            change.warnings.push(format!(
                "{away} of its {members} disks are not here; `dolmen` says what that means, and what to do"
            ));
        }
        change.pool = Some(self.views.view_pool(&pool).await?);
        Ok(change)
    }

    /// Accepts what another host set on the volumes and shares of a pool, if that was asked for. Returns what was not accepted, in
    /// words.
    async fn accept_as_asked(&self, pool: &Rc<OpenPool>, request: &ImportPool) -> Vec<String> {
        if !request.accept {
            return Vec::new();
        }
        accept(&self.volumes, pool)
            .await
            .unwrap_or_else(|error| vec![format!("not all of its volumes and shares were accepted: {error}")])
    }

    /// Refuses a name that another pool has.
    fn check_name_is_free(&self, id: PoolId, name: &str) -> Answer<()> {
        let is_open = self.pools.open.borrow().values().any(|pool| pool.name() == name);
        if !is_open {
            return Ok(());
        }
        let message = format!("another pool named {name} is open already; nothing was changed");
        let hint = format!(
            "`dolmen pool import --pool {id} --as NAME` opens this one under another name; or export that one first"
        );
        Err(ErrorBody::new(ErrorCode::NameTaken, message).on(name).hint(hint))
    }

    /// Refuses another name for a pool whose spaces stayed attached: their devices are called by the one that it had.
    fn check_may_be_renamed(&self, id: PoolId, own: &str, name: &str) -> Answer<()> {
        if own == name {
            return Ok(());
        }
        let attached = self.transports.all();
        let Some(first) = attached.iter().find(|one| one.space().pool == id) else { return Ok(()) };
        let (space, device) = (first.name(), first.device().display());
        let message = format!(
            "pool {own} cannot be opened as {name}: space {space} is attached here as {device}; nothing was changed"
        );
        let hint = "import it under its own name, and detach the space first";
        Err(ErrorBody::new(ErrorCode::Busy, message).on(own).hint(hint))
    }

    /// Refuses to open a pool that others may have had while spaces of it stayed attached here: what file systems on these have in
    /// memory is out of date, and would be written over what is there by now.
    fn check_not_out_of_date(&self, id: PoolId, name: &str, labels: &[Candidate]) -> Answer<()> {
        if owner_of(labels) == Some(self.arbiter.host()) {
            return Ok(());
        }
        let attached = self.transports.all();
        let Some(first) = attached.iter().find(|one| one.space().pool == id) else { return Ok(()) };
        let (space, device) = (first.name(), first.device().display());
        let message = format!(
            "space {space} is attached here as {device}, and pool {name} was exported or opened elsewhere since: what its users have in \
             memory is out of date; nothing was changed"
        );
        Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(format!(
            "unmount it; {} lets what waits fail, and detaches it; then import the pool and attach the space again",
            first.transport_of()
        )))
    }

    /// Disks among those that a person names that are in use already, in words, by the pool that has them.
    fn of_open_pools(&self, named: &[PathBuf]) -> Vec<String> {
        let mut of_pools: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for path in named {
            if let Some(pool) = self.devices.pool_with(path) {
                of_pools.entry(pool).or_default().push(path.display().to_string());
            }
        }
        let reported = |(pool, paths): (String, Vec<String>)| match paths.as_slice() {
            [path] => format!("{path} is a disk of pool {pool}, which is open here already"),
            paths => format!("{} are disks of pool {pool}, which is open here already", paths.join(", ")),
        };
        of_pools.into_iter().map(reported).collect()
    }

    /// What an import would come to.
    async fn plan_import(
        &self,
        name: &str,
        candidates: Vec<Candidate>,
        mode: ImportMode,
        undo: Undo,
    ) -> Answer<Change> {
        let options = OpenOptions { mode: open_mode(mode) };
        let foreseen = foresee(&*self.arbiter, candidates.clone(), &options).await;
        let foreseen = foreseen.map_err(|error| fault::open(&error))?;
        let from = opened_from(mode, foreseen.used.len(), foreseen.members);
        let mut steps = vec![format!("open pool {name}{from}")];
        steps.extend(foreseen.used.iter().map(|disk| format!("use {disk}")));
        steps.extend(foreseen.left_out.iter().map(|(disk, why)| format!("leave {disk} out: {why}")));
        let room = self.room_foreseen(candidates).await.unwrap_or_else(|error| {
            steps.push(format!(
                "see how much room it has, which cannot be told before: {}",
                in_one_line(&error)
            ));
            0
        });
        let plan = Figures::of_room(0, room).plan(undo, steps);
        Ok(planned(plan, format!("pool {name} would be opened{from}")))
    }

    /// The room of a pool that is not open, from its map. Nothing is written.
    async fn room_foreseen(&self, candidates: Vec<Candidate>) -> Result<u64, OpenError> {
        let options = OpenOptions { mode: OpenMode::Read };
        let opened = open(&self.seams, Rc::clone(&self.arbiter), candidates, &options).await?;
        Ok(usual_room(&opened.pool.free_space().offers(Purpose::Claim)))
    }

    /// What was served of a pool that should be open and is not.
    fn served_before(&self, id: PoolId) -> Vec<ServedSpace> {
        self.pools.closed.borrow().get(&id).map(|closed| closed.remembered.served.clone()).unwrap_or_default()
    }

    /// Who may still be there of the clients of a pool that is not open: none of one that was given back in order.
    fn clients_of(&self, id: PoolId) -> Clients {
        self.pools.closed.borrow().get(&id).map_or(Clients::Ended, |closed| closed.remembered.clients())
    }

    /// Where the disks of pools were that should be open and are not: of one, or of all where none is named.
    fn paths_on_record(&self, pool: Option<&str>) -> Vec<PathBuf> {
        let closed = self.pools.closed.borrow();
        let is_meant = |(id, closed): &(&PoolId, &ClosedPool)| {
            pool.is_none_or(|pool| closed.remembered.name == pool || id.to_string() == pool)
        };
        closed.iter().filter(is_meant).flat_map(|(_, closed)| closed.remembered.paths.clone()).collect()
    }

    /// The pool that is meant, among those found: the one of that name or identity, or the one that has one of the disks that
    /// are named, or the only one.
    fn choose<'a>(
        &self,
        request: &ImportPool,
        named: &[PathBuf],
        found: &'a Found,
    ) -> Answer<(PoolId, &'a [Candidate])> {
        let is_open = |id: &PoolId| self.pools.open.borrow().contains_key(id);
        let is_named = |candidates: &[Candidate]| {
            request.paths.is_empty() || paths_of(candidates).iter().any(|path| named.contains(path))
        };
        let is_meant = |(id, candidates): &(&PoolId, &Vec<Candidate>)| match &request.pool {
            None => is_named(candidates),
            Some(wanted) => {
                id.to_string() == *wanted
                    || candidates.iter().any(|candidate| candidate.label.pool_name.as_str() == wanted)
            }
        };
        let meant: Vec<_> = found.pools.iter().filter(is_meant).collect();
        let (open, closed): (Vec<_>, Vec<_>) = meant.into_iter().partition(|(id, _)| is_open(id));
        match closed.as_slice() {
            [(id, candidates)] if open.is_empty() || request.pool.is_none() => {
                Ok((**id, candidates.as_slice()))
            }
            [] if !open.is_empty() => Err(self.all_open(open.into_iter().map(|(id, _)| id))),
            [] => Err(none_found(request, found)),
            several => {
                let all = several.iter().chain(&open);
                let names: Vec<String> = all.map(|(id, candidates)| named_by_id(**id, candidates)).collect();
                let message = format!("several pools match: {}", names.join(", "));
                let hint = "choose one by its identity: `dolmen pool import --pool ID`, with the same paths";
                Err(ErrorBody::new(ErrorCode::BadRequest, message).hint(hint))
            }
        }
    }
}

/// What another name means.
fn step_of_renaming(own: &str, name: &str, mode: ImportMode) -> Option<String> {
    let on_disks =
        if mode == ImportMode::Read { "here; its disks are not written" } else { "also on its disks" };
    (own != name).then(|| format!("call it {name} from now on, {on_disks}"))
}

/// A pool by its name and identity, for people who have several of one name.
fn named_by_id(id: PoolId, candidates: &[Candidate]) -> String {
    let name = name_of(candidates).map(ToString::to_string).unwrap_or_default();
    format!("{name} ({id})")
}

/// The error where no pool is found that could be meant.
fn none_found(request: &ImportPool, found: &Found) -> ErrorBody {
    let elsewhere: Vec<String> =
        found.pools.iter().map(|(id, candidates)| named_by_id(*id, candidates)).collect();
    let no_disk = |what: String| ErrorBody::new(ErrorCode::NoSuchPool, format!("no disk of a pool {what}"));
    let mut error = match (&request.pool, request.paths.join(", ")) {
        (Some(wanted), _) => no_disk(format!("{wanted} was found")).on(wanted.clone()),
        (None, paths) if paths.is_empty() => no_disk("was found".to_owned()),
        (None, paths) => no_disk(format!("was found at {paths}")).on(paths),
    };
    error.causes = unusable(found);
    error.hint(match elsewhere.as_slice() {
        [] => "name the disks, or the folder of files that they are in".to_owned(),
        pools => format!("elsewhere there is {}: `dolmen pool import --pool ID`", pools.join(", ")),
    })
}

impl Opening {
    /// The error for disks whose pools are open here already.
    fn all_open<'a>(&self, found: impl Iterator<Item = &'a PoolId>) -> ErrorBody {
        let pools = self.pools.open.borrow();
        let open: Vec<_> = found.filter_map(|id| pools.get(id)).collect();
        let names: Vec<String> = open.iter().map(|pool| pool.name()).collect();
        let names = names.join(", ");
        let has_stopped = |pool: &&Rc<OpenPool>| match pool.spaces.pool().state() {
            PoolState::Latched(cause) => Some(stopped(pool, cause)),
            PoolState::Writable | PoolState::ReadOnly(_) => None,
        };
        if let Some(error) = open.iter().find_map(has_stopped) {
            return error;
        }
        let is_read = open.iter().any(|pool| pool.mode == ImportMode::Read);
        let (how, hint) = if is_read {
            (", for reading only", fault::to_write(&names))
        } else {
            ("", "`dolmen` shows how it is".to_owned())
        };
        let message = format!("pool {names} is open here already{how}; nothing was changed");
        ErrorBody::new(ErrorCode::NameTaken, message).on(names).hint(hint)
    }
}

/// Devices that say that they are a disk which another one is as well, and that the pool did not use.
fn duplicate_devices(candidates: &[Candidate], used: &[PathBuf]) -> Vec<String> {
    let twins =
        |one: &&Candidate| candidates.iter().filter(|other| other.label.disk == one.label.disk).count() > 1;
    let doubled = candidates.iter().filter(twins).map(|one| one.device.name());
    doubled.filter(|name| !used.iter().any(|path| path.as_os_str() == name.as_str())).collect()
}

fn paths_of(candidates: &[Candidate]) -> Vec<PathBuf> {
    candidates.iter().map(|candidate| PathBuf::from(candidate.device.name())).collect()
}
