//! The attached spaces as the engine knows them, and the threads that make and unmake their devices.
//!
//! What makes and unmakes devices asks the kernel, which may ask the engine: it runs on a thread of its own, the *device worker*,
//! and the engine awaits it. The engine never calls [`Files`] or [`Devices`] itself, and knows what is attached from its
//! own list.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dolmen_api::{AttachedBy, Attachment, ErrorBody, ErrorCode};
use dolmen_block_io::sleep;
use dolmen_block_io::sync::{AsyncMutex, Notify};
use dolmen_fuse::{DetachError, Files, FilesConfig, Holder, Host, LedgerFile, SpaceKey};
use dolmen_space::Space;
use dolmen_ublk::{Devices, DevicesConfig, RecordFile, TakenUp, Waiting};
use dolmen_units::PoolId;

use crate::answer::Answer;
use crate::attach::start_fault;
use crate::engine::{Engine, OpenPool};
use crate::io_worker::IoWorker;
use crate::kernel::{Asked, EngineHost};

/// How often it is tried to take up devices that are busy with the daemon before, and the pause between. Each try waits for ten
/// seconds by itself.
const TRIES_MAX: u32 = 8;
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// How often it is looked whether what attached spaces need is there.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A space that is attached, in one way or the other.
#[derive(Debug, Clone)]
pub(crate) enum Shown {
    Loop(dolmen_fuse::Attached),
    Ublk(dolmen_ublk::Attached, Limits),
}

/// What the kernel cannot do with ublk devices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    keeps_size: bool,
    hides_partitions: bool,
}

impl Limits {
    fn of(devices: &Devices) -> Self {
        Self { keeps_size: !devices.can_resize(), hides_partitions: !devices.shows_partitions() }
    }

    fn in_words(self) -> Vec<String> {
        let size = "on this kernel a ublk device keeps its size until it is attached again (Linux 6.16 and newer can resize it)";
        let partitions = "on this kernel partitions of a ublk device are not shown; a loop device (--transport loop) shows them";
        let stated = [(self.keeps_size, size), (self.hides_partitions, partitions)];
        stated.iter().filter(|(holds, _)| *holds).map(|(_, text)| (*text).to_owned()).collect()
    }
}

impl Shown {
    pub(crate) fn space(&self) -> SpaceKey {
        match self {
            Self::Loop(one) => one.attachment.space,
            Self::Ublk(one, _) => one.attachment.space,
        }
    }

    pub(crate) fn link(&self) -> &PathBuf {
        match self {
            Self::Loop(one) => &one.link,
            Self::Ublk(one, _) => &one.link,
        }
    }

    pub(crate) fn device(&self) -> &PathBuf {
        match self {
            Self::Loop(one) => &one.device,
            Self::Ublk(one, _) => &one.device,
        }
    }

    pub(crate) fn by(&self) -> AttachedBy {
        match self {
            Self::Loop(one) if one.survival.survives_daemon() => AttachedBy::Loop,
            Self::Loop(_) => AttachedBy::LoopUring,
            Self::Ublk(..) => AttachedBy::Ublk,
        }
    }

    /// Whether a descriptor holder holds its connection.
    fn is_kept_loop(&self) -> bool {
        matches!(self, Self::Loop(one) if one.survival.survives_daemon())
    }

    /// Whether the next daemon takes it up, so that its I/O only pauses in between.
    pub(crate) fn survives_daemon(&self) -> bool {
        match self {
            Self::Loop(one) => one.survival.survives_daemon(),
            Self::Ublk(..) => true,
        }
    }

    /// `POOL/SPACE`.
    pub(crate) fn name(&self) -> String {
        let (pool, space) = match self {
            Self::Loop(one) => (&one.attachment.pool_name, &one.attachment.space_name),
            Self::Ublk(one, _) => (&one.attachment.pool_name, &one.attachment.space_name),
        };
        format!("{pool}/{space}")
    }

    /// The command that detaches it also when it cannot be flushed.
    pub(crate) fn transport_of(&self) -> String {
        let name = self.name();
        format!("`dolmen space detach {name} --discard-unflushed={name}`")
    }

    /// That whoever uses it waits, because its pool is not open.
    pub(crate) fn waits_text(&self) -> String {
        let (name, device) = (self.name(), self.device().display());
        format!("space {name} is attached as {device}, and its pool is not open: what is asked of it waits")
    }

    /// How that ends.
    pub(crate) fn to_go_on(&self) -> String {
        format!(
            "open the pool of {}, and it goes on; {} discards what waits",
            self.name(),
            self.transport_of()
        )
    }

    /// Who uses the device now.
    pub(crate) fn holders(&self) -> Vec<Holder> {
        dolmen_fuse::holders(self.device())
    }

    /// How it is told.
    pub(crate) fn view(&self, by: &[Holder]) -> Attachment {
        let (pool, space, limits, survives) = match self {
            Self::Loop(one) => {
                let survives = one.survival.survives_daemon() && one.survival.absence_s_max.is_none();
                let limits = (!survives).then(|| one.survival.to_string()).into_iter().collect();
                (&one.attachment.pool_name, &one.attachment.space_name, limits, survives)
            }
            Self::Ublk(one, limits) => {
                (&one.attachment.pool_name, &one.attachment.space_name, limits.in_words(), true)
            }
        };
        Attachment {
            pool: pool.to_string(),
            space: space.to_string(),
            path: self.link().display().to_string(),
            device: self.device().display().to_string(),
            transport: self.by(),
            not_faster_because: None,
            used_by: by.iter().map(ToString::to_string).collect(),
            survives_daemon: survives,
            limits,
        }
    }
}

/// What makes devices, as far as it was started. Only for the device worker.
#[derive(Clone, Default)]
pub(crate) struct Makers {
    pub(crate) files: Option<Arc<Files>>,
    /// The files whose requests go over rings.
    pub(crate) ringed: Option<Arc<Files>>,
    pub(crate) devices: Option<Arc<Devices>>,
}

/// Why a space was not detached or resized.
pub(crate) enum Refused {
    Loop(DetachError),
    Ublk(dolmen_ublk::DetachError),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Loop(error) => error.fmt(f),
            Self::Ublk(error) => error.fmt(f),
        }
    }
}

impl Makers {
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_none() && self.ringed.is_none() && self.devices.is_none()
    }

    fn all_files(&self) -> impl Iterator<Item = &Arc<Files>> {
        self.files.iter().chain(&self.ringed)
    }

    /// The files that an attached space is one of.
    fn files_of(&self, one: &dolmen_fuse::Attached) -> Result<&Arc<Files>, Refused> {
        let files = if one.survival.survives_daemon() { &self.files } else { &self.ringed };
        let space = one.attachment.space;
        files.as_ref().ok_or(Refused::Loop(DetachError::NotAttached { space }))
    }

    fn devices_of(&self, one: &dolmen_ublk::Attached) -> Result<&Arc<Devices>, Refused> {
        let space = one.attachment.space;
        self.devices.as_ref().ok_or(Refused::Ublk(dolmen_ublk::DetachError::NotAttached { space }))
    }

    /// What is attached.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        let files = self.all_files().flat_map(|files| files.attached()).map(Shown::Loop);
        let devices = self.devices.iter().flat_map(|devices| {
            let limits = Limits::of(devices);
            devices.attached().into_iter().map(move |one| Shown::Ublk(one, limits))
        });
        files.chain(devices).collect()
    }

    pub(crate) fn detach(&self, shown: &Shown) -> Result<(), Refused> {
        let space = shown.space();
        match shown {
            Shown::Loop(one) => self.files_of(one)?.detach(space).map_err(Refused::Loop),
            Shown::Ublk(one, _) => self.devices_of(one)?.detach(space).map_err(Refused::Ublk),
        }
    }

    /// As [`detach`](Self::detach), also where the kernel holds what cannot be written. It writes what it holds of a ublk
    /// device when its last user closes it, so that there is nothing of these to give up.
    pub(crate) fn abandon(&self, shown: &Shown) -> Result<(), Refused> {
        match shown {
            Shown::Loop(one) => self.files_of(one)?.abandon(one.attachment.space).map_err(Refused::Loop),
            Shown::Ublk(..) => self.detach(shown),
        }
    }

    pub(crate) fn resize(&self, shown: &Shown) -> Result<(), Refused> {
        let space = shown.space();
        match shown {
            Shown::Loop(one) => self.files_of(one)?.resize(space).map(|_| ()).map_err(Refused::Loop),
            Shown::Ublk(one, _) => self.devices_of(one)?.resize(space).map(|_| ()).map_err(Refused::Ublk),
        }
    }

    /// Puts back what somebody else has taken away; in words, what that was.
    pub(crate) fn put_back(&self) -> Vec<String> {
        self.all_files().flat_map(|files| files.put_back()).collect()
    }

    /// Takes away what would end with this daemon; what stayed, in words.
    pub(crate) fn take_away_mortal(&self) -> Vec<String> {
        let shown = self.ringed.iter().flat_map(|files| files.attached()).map(Shown::Loop);
        let refused = shown.filter_map(|one| Some((self.detach(&one).err()?, one)));
        let mut left: Vec<String> = refused
            .map(|(error, one)| {
                format!("{error}; it ends with this daemon, and all I/O on {} fails", one.device().display())
            })
            .collect();
        left.extend(self.close(self.ringed.as_ref()));
        left
    }

    /// Closes files that have nothing attached; why not, in words.
    fn close(&self, files: Option<&Arc<Files>>) -> Option<String> {
        let files = files.filter(|files| files.attached().is_empty())?;
        files.close().err().map(|error| error.to_string())
    }

    /// Takes everything away that nobody uses; what stayed, in words.
    pub(crate) fn take_away(&self) -> Vec<String> {
        let shown = self.shown();
        let refused = shown.iter().filter_map(|one| Some((one, self.detach(one).err()?)));
        let mut left: Vec<String> = refused
            .map(|(one, error)| {
                let (device, transport_of) = (one.device().display(), one.transport_of());
                if one.survives_daemon() {
                    format!("{error}; {device} waits for the next daemon: start it, then {transport_of}")
                } else {
                    format!("{error}; it ends with this daemon, and all I/O on {device} fails")
                }
            })
            .collect();
        left.extend(self.close(self.files.as_ref()));
        left.extend(self.close(self.ringed.as_ref()));
        left
    }

    /// From now on requests are left for the next daemon, but for those that the engine has.
    pub(crate) fn let_go(&self) {
        self.all_files().for_each(|files| files.let_go());
        self.devices.iter().for_each(|devices| devices.let_go());
    }
}

/// The attached spaces, as the engine knows them.
pub(crate) struct Transports {
    pub(crate) host: Arc<EngineHost>,
    device_worker: IoWorker,
    pub(crate) makers: RefCell<Makers>,
    /// To start one of them: it takes up what is there, once.
    starting: AsyncMutex,
    attached: RefCell<Vec<Shown>>,
    /// What was attached over io_uring and ended with the daemon before, as `POOL/SPACE`, until it is attached again.
    ended: RefCell<BTreeMap<SpaceKey, String>>,
    /// Requests that wait for their pool to be opened.
    parked: RefCell<Vec<Asked>>,
    /// Spaces of pools that are not open of which a person gave up what waits, until their pools are.
    excluded: RefCell<BTreeSet<SpaceKey>>,
    /// How often it is still tried to take up devices that the kernel had not put back yet.
    tries_left: Cell<u32>,
    /// Requests of the kernel's that the engine is at.
    pub(crate) under_way: Cell<u64>,
    /// Rung when there is none left.
    pub(crate) notify: Notify,
}

impl Transports {
    pub(crate) fn new(host: Arc<EngineHost>, device_worker: IoWorker) -> Self {
        let (makers, attached, ended) = Default::default();
        let (starting, under_way, notify) = (AsyncMutex::default(), Cell::new(0), Notify::new());
        let (parked, excluded, tries_left) = Default::default();
        Self {
            host,
            device_worker,
            makers,
            starting,
            attached,
            ended,
            parked,
            excluded,
            tries_left,
            under_way,
            notify,
        }
    }

    /// Has something done with those who make devices, off the engine's thread, and looks at what is attached afterwards.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        action: impl FnOnce(&Makers) -> T + Send + 'static,
    ) -> Answer<T> {
        let makers = self.makers.borrow().clone();
        let done = self.device_worker.run(move || {
            let result = action(&makers);
            Ok((result, makers.shown()))
        });
        match done.await {
            Ok((result, attached)) => {
                self.ended.borrow_mut().retain(|key, _| attached.iter().all(|one| one.space() != *key));
                *self.attached.borrow_mut() = attached;
                Ok(result)
            }
            Err(error) => Err(ErrorBody::new(
                ErrorCode::Busy,
                format!("attached spaces cannot be changed now: {error}"),
            )),
        }
    }

    /// Whether the connection of the kept folder has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.makers.borrow().files.as_ref().is_some_and(|files| files.has_ended())
    }

    /// What is attached, with those who use it.
    pub(crate) async fn with_holders(&self) -> Answer<Vec<(Shown, Vec<Holder>)>> {
        if self.makers.borrow().is_empty() {
            return Ok(Vec::new());
        }
        self.with(|makers| makers.shown().into_iter().map(|one| (one.clone(), one.holders())).collect()).await
    }

    pub(crate) fn find(&self, key: SpaceKey) -> Option<Shown> {
        self.attached.borrow().iter().find(|one| one.space() == key).cloned()
    }

    /// All that are attached.
    pub(crate) fn all(&self) -> Vec<Shown> {
        self.attached.borrow().clone()
    }

    /// The one that was called `POOL/SPACE` when it was attached.
    pub(crate) fn called(&self, name: &str) -> Option<Shown> {
        self.attached.borrow().iter().find(|one| one.name() == name).cloned()
    }

    /// What ended with the daemon before and is not attached again, as `POOL/SPACE`.
    pub(crate) fn ended(&self) -> Vec<(SpaceKey, String)> {
        self.ended.borrow().iter().map(|(key, name)| (*key, name.clone())).collect()
    }

    /// Has a request wait for its pool.
    pub(crate) fn park(&self, asked: Asked) {
        self.parked.borrow_mut().push(asked);
    }

    /// Has all that wait looked at once more: a pool was opened, or what waits for one was given up.
    fn unpark(&self) {
        let parked = std::mem::take(&mut *self.parked.borrow_mut());
        parked.into_iter().for_each(|asked| self.host.post(asked));
    }

    pub(crate) fn is_excluded(&self, key: SpaceKey) -> bool {
        self.excluded.borrow().contains(&key)
    }

    /// Has what is asked of a space whose pool is not open fail from now on.
    pub(crate) fn fail_waiting(&self, key: SpaceKey) {
        self.excluded.borrow_mut().insert(key);
        self.unpark();
    }

    /// Lets requests go on that waited for a pool.
    pub(crate) fn go_on(&self, pool: PoolId) {
        self.excluded.borrow_mut().retain(|key| key.pool != pool);
        self.unpark();
    }

    /// Nobody is to attach it again.
    pub(crate) fn forget_ended(&self, key: SpaceKey) {
        self.ended.borrow_mut().remove(&key);
    }

    /// Those of a pool.
    pub(crate) fn of_pool(&self, pool: PoolId) -> Vec<Shown> {
        self.attached.borrow().iter().filter(|one| one.space().pool == pool).cloned().collect()
    }

    /// Another space that has this link.
    pub(crate) fn named(&self, link: &PathBuf, key: SpaceKey) -> Option<Shown> {
        self.attached.borrow().iter().find(|one| one.link() == link && one.space() != key).cloned()
    }
}

pub(crate) fn key_of(pool: &OpenPool, space: &Space) -> SpaceKey {
    SpaceKey { pool: pool.id(), space: space.id() }
}

impl Engine {
    /// Takes up what the daemon before has left attached.
    pub(crate) async fn take_up_attached(&self) {
        let record = RecordFile::new(self.config.ublk_record());
        match Devices::are_remaining(&record) {
            Ok(false) => {}
            Ok(true) => {
                if let Err(error) = self.ublk_devices().await {
                    tracing::error!(%error, "spaces that are attached as ublk devices could not be taken up; their I/O waits");
                }
            }
            Err(error) => {
                tracing::error!(%error, "spaces that are attached as ublk devices were not looked for")
            }
        }
        if self.config.uring_record().exists()
            && let Err(error) = self.clear_ended().await
        {
            tracing::error!(%error, "what was attached over io_uring, and ended with the daemon before, could not be cleared away");
        }
        if !self.config.attached_record().exists() {
            return;
        }
        if let Err(error) = self.fuse_files().await {
            tracing::error!(%error, "attached spaces could not be taken up; their I/O waits");
        }
    }

    /// The files of FUSE, made or taken up when they are first needed.
    pub(crate) async fn fuse_files(&self) -> Answer<Arc<Files>> {
        let _exclusive = self.transports.starting.take().await;
        let ended = self.transports.makers.borrow().files.clone();
        match ended {
            Some(files) if !files.has_ended() => return Ok(files),
            Some(ended) => {
                tracing::warn!(
                    "the folder of attached spaces was unmounted, and its connection has ended: a new one is begun"
                );
                self.transports.makers.borrow_mut().files = None;
                // Its threads end with it, and are waited for.
                let _ = self
                    .transports
                    .device_worker
                    .run(move || {
                        drop(ended);
                        Ok(())
                    })
                    .await;
                self.transports.attached.borrow_mut().retain(|one| !one.is_kept_loop());
            }
            None => {}
        }
        self.report_sizes();
        let mut config = FilesConfig::new(self.config.run.clone(), self.config.descriptor_holder.clone());
        config.links.clone_from(&self.config.links);
        let host: Arc<dyn Host> = Arc::<EngineHost>::clone(&self.transports.host);
        let ledger = Box::new(LedgerFile::new(self.config.attached_record()));
        let started = self.transports.device_worker.run(move || Ok(Files::start(config, host, ledger))).await;
        let started = started.map_err(|error| ErrorBody::new(ErrorCode::Io, error.to_string()))?;
        let (files, found) = started.map_err(|error| start_fault(&error))?;
        for lost in &found.lost {
            tracing::warn!(pool = %lost.pool_name, space = %lost.space_name, "was attached, and is not any more");
        }
        report_stranded(&found);
        for resumed in &found.resumed {
            tracing::info!(link = %resumed.link.display(), survival = %resumed.survival, "the attached space goes on");
        }
        let files = Arc::new(files);
        self.transports.makers.borrow_mut().files = Some(Arc::clone(&files));
        self.transports.attached.borrow_mut().extend(found.resumed.into_iter().map(Shown::Loop));
        Ok(files)
    }

    /// Clears what the daemon before had attached over io_uring.
    async fn clear_ended(&self) -> Answer<()> {
        let (config, ledger) = self.config_over_rings();
        let host: Arc<dyn Host> = Arc::<EngineHost>::clone(&self.transports.host);
        let cleared =
            self.transports.device_worker.run(move || Ok(Files::clear_rings(config, host, ledger))).await;
        let cleared = cleared.map_err(|error| ErrorBody::new(ErrorCode::Io, error.to_string()))?;
        self.report_ended(&cleared.map_err(|error| start_fault(&error))?);
        Ok(())
    }

    fn report_ended(&self, found: &dolmen_fuse::TakenUp) {
        for lost in &found.lost {
            let name = format!("{}/{}", lost.pool_name, lost.space_name);
            tracing::warn!(
                space = name,
                "was attached over io_uring, which ended with the daemon before: it is not attached any more; attach it again"
            );
            self.transports.ended.borrow_mut().insert(lost.space, name);
        }
        report_stranded(found);
    }

    fn config_over_rings(&self) -> (FilesConfig, Box<LedgerFile>) {
        let mut config =
            FilesConfig::over_rings(self.config.run.clone(), self.config.descriptor_holder.clone());
        config.links.clone_from(&self.config.links);
        (config, Box::new(LedgerFile::new(self.config.uring_record())))
    }

    /// The files of FUSE over io_uring, made when somebody first asks for them by name.
    pub(crate) async fn ring_files(&self) -> Answer<Arc<Files>> {
        let _exclusive = self.transports.starting.take().await;
        if let Some(files) = &self.transports.makers.borrow().ringed {
            return Ok(Arc::clone(files));
        }
        self.report_sizes();
        let (config, ledger) = self.config_over_rings();
        let host: Arc<dyn Host> = Arc::<EngineHost>::clone(&self.transports.host);
        let started = self.transports.device_worker.run(move || Ok(Files::start(config, host, ledger))).await;
        let started = started.map_err(|error| ErrorBody::new(ErrorCode::Io, error.to_string()))?;
        let (files, found) = started.map_err(|error| start_fault(&error))?;
        self.report_ended(&found);
        let files = Arc::new(files);
        self.transports.makers.borrow_mut().ringed = Some(Arc::clone(&files));
        Ok(files)
    }

    /// The ublk devices, taken up when they are first needed.
    pub(crate) async fn ublk_devices(&self) -> Answer<Arc<Devices>> {
        let _exclusive = self.transports.starting.take().await;
        if let Some(devices) = &self.transports.makers.borrow().devices {
            return Ok(Arc::clone(devices));
        }
        self.report_sizes();
        let mut config = DevicesConfig::new(self.config.run.clone());
        config.links.clone_from(&self.config.links);
        let host: Arc<dyn dolmen_ublk::Host> = Arc::<EngineHost>::clone(&self.transports.host);
        let record = Box::new(RecordFile::new(self.config.ublk_record()));
        let started =
            self.transports.device_worker.run(move || Ok(Devices::start(config, host, record))).await;
        let started = started.map_err(|error| ErrorBody::new(ErrorCode::Io, error.to_string()))?;
        let (devices, found) = started.map_err(|error| ublk_start_fault(&error))?;
        for lost in &found.lost {
            tracing::warn!(pool = %lost.pool_name, space = %lost.space_name, "was attached, and is not any more");
        }
        report_taken_up(&found);
        self.transports.tries_left.set(if found.waiting.iter().any(Waiting::is_busy) {
            TRIES_MAX
        } else {
            0
        });
        let devices = Arc::new(devices);
        self.transports.makers.borrow_mut().devices = Some(Arc::clone(&devices));
        let limits = Limits::of(&devices);
        let waiting = found.waiting.into_iter().map(|one| one.attached);
        let taken = found.resumed.into_iter().chain(waiting).map(|one| Shown::Ublk(one, limits));
        self.transports.attached.borrow_mut().extend(taken);
        Ok(devices)
    }
}

impl Engine {
    /// Looks now and then whether somebody else has taken away what attached spaces need, and puts it back.
    pub(crate) fn keep_putting_back(self: &Rc<Self>) {
        let engine = Rc::downgrade(self);
        let clock = Rc::clone(&self.seams.clock);
        let keeping = async move {
            // What cannot be put back is told once.
            let mut reported_before = Vec::new();
            loop {
                sleep(clock.as_ref(), LOOK_EVERY).await;
                let Some(engine) = engine.upgrade() else { return };
                let is_idle = engine.transports.makers.borrow().all_files().next().is_none();
                if is_idle || engine.is_stopping.get() {
                    continue;
                }
                let Ok(reported) = engine.transports.with(Makers::put_back).await else { continue };
                for what in reported.iter().filter(|what| !reported_before.contains(*what)) {
                    tracing::warn!(what, "somebody else has taken away what attached spaces need");
                }
                reported_before = reported;
            }
        };
        self.seams.spawner.spawn("attached spaces", Box::pin(keeping));
    }

    /// Tries again, for a while, to take up devices that were still busy with the daemon before: the kernel can take half a minute
    /// to put back what that one had.
    pub(crate) fn keep_taking_up(self: &Rc<Self>) {
        let engine = Rc::downgrade(self);
        let clock = Rc::clone(&self.seams.clock);
        let keeping = async move {
            while let Some(engine) = engine.upgrade() {
                let tries = engine.transports.tries_left.get();
                if tries > 0 && !engine.is_stopping.get() {
                    let is_busy = engine.take_up_devices().await;
                    engine.transports.tries_left.set(if is_busy { tries - 1 } else { 0 });
                }
                drop(engine);
                sleep(clock.as_ref(), TRY_AGAIN).await;
            }
        };
        self.seams.spawner.spawn("ublk devices", Box::pin(keeping));
    }

    /// Takes up ublk devices whose spaces are known by now: a pool was opened.
    pub(crate) async fn take_up_waiting(&self) {
        let is_busy = self.take_up_devices().await;
        self.transports.tries_left.set(if is_busy { TRIES_MAX } else { 0 });
    }

    /// Takes up what nobody serves; whether the kernel is still busy with any of it.
    async fn take_up_devices(&self) -> bool {
        let Some(devices) = self.transports.makers.borrow().devices.clone() else { return false };
        self.report_sizes();
        match self.transports.with(move |_| devices.take_up_waiting()).await {
            Ok(found) => {
                report_taken_up(&found);
                found.waiting.iter().any(Waiting::is_busy)
            }
            Err(error) => {
                tracing::error!(%error, "attached spaces of the pool could not be taken up; their I/O waits");
                false
            }
        }
    }
}

fn report_stranded(found: &dolmen_fuse::TakenUp) {
    for stranded in &found.stranded {
        let by: Vec<String> = stranded.by.iter().map(ToString::to_string).collect();
        tracing::error!(device = %stranded.device.display(), by = by.join(", "), "every request on this device fails: unmount it and detach it");
    }
}

fn report_taken_up(found: &TakenUp) {
    for waiting in &found.waiting {
        let (device, error) = (waiting.attached.device.display(), &waiting.error);
        tracing::error!(%device, %error, "the attached space could not be taken up; its I/O waits; attaching it again tries again");
    }
    for resumed in &found.resumed {
        tracing::info!(link = %resumed.link.display(), survival = "I/O waits while the daemon is away and goes on after; requests under way are given again by the kernel, as to any ublk device", "the attached space goes on");
    }
}

fn ublk_start_fault(error: &dolmen_ublk::StartError) -> ErrorBody {
    use dolmen_ublk::{StartError, Unusable};
    let code = match error {
        StartError::Unusable(Unusable::NotPermitted { .. }) => ErrorCode::Permission,
        StartError::Unusable(Unusable::Absent { .. } | Unusable::NoRing { .. } | Unusable::Lacks { .. }) => {
            ErrorCode::Missing
        }
        StartError::Unusable(Unusable::Failed { .. }) | StartError::System { .. } | StartError::Record(_) => {
            ErrorCode::Io
        }
    };
    ErrorBody::new(code, error.to_string()).caused_by(error).hint(
        "attach it by a loop device (--transport loop), or load the module ublk_drv and run the daemon as root",
    )
}
