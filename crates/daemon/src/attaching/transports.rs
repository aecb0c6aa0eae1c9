//! The attached spaces as the engine knows them, and the threads that make and unmake their devices.
//!
//! What makes and unmakes devices asks the kernel, which may ask the engine: it runs on a thread of its own, the *device worker*,
//! and the engine awaits it. The engine never calls [`Files`] or [`Devices`] itself, and knows what is attached from its
//! own list.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_block_io::{Seams, sleep};
use dolmen_fuse::{Files, FilesConfig, Host, LedgerFile};
use dolmen_ublk::{Devices, DevicesConfig, RecordFile, TakenUp, Waiting};

use crate::answer::Answer;
use crate::attach::{EngineHost, Limits, Makers, Shown, TRIES_MAX, Transports, start_fault};
use crate::base::Base;
use crate::config::Config;
use crate::open_pools::OpenPools;

const TRY_AGAIN: Duration = Duration::from_secs(5);
/// How often it is looked whether what attached spaces need is there.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Transports of attached spaces, and requests of the kernel.
pub(crate) struct KernelTransports {
    pub(super) pools: Rc<OpenPools>,
    pub(super) seams: Seams,
    config: Rc<Config>,
    pub(super) transports: Rc<Transports>,
}

impl KernelTransports {
    pub(crate) fn new(base: &Base) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            seams: base.seams.clone(),
            config: Rc::clone(&base.config),
            transports: Rc::clone(&base.transports),
        }
    }
}

impl KernelTransports {
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

impl KernelTransports {
    /// Looks now and then whether somebody else has taken away what attached spaces need, and puts it back.
    pub(crate) fn keep_putting_back(self: &Rc<Self>) {
        let service = Rc::downgrade(self);
        let clock = Rc::clone(&self.seams.clock);
        let keeping = async move {
            // What cannot be put back is told once.
            let mut reported_before = Vec::new();
            loop {
                sleep(clock.as_ref(), LOOK_EVERY).await;
                let Some(service) = service.upgrade() else { return };
                let is_idle = service.transports.makers.borrow().all_files().next().is_none();
                if is_idle || service.pools.is_stopping.get() {
                    continue;
                }
                let Ok(reported) = service.transports.with(Makers::put_back).await else { continue };
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
        let service = Rc::downgrade(self);
        let clock = Rc::clone(&self.seams.clock);
        let keeping = async move {
            while let Some(service) = service.upgrade() {
                let tries = service.transports.tries_left.get();
                if tries > 0 && !service.pools.is_stopping.get() {
                    let is_busy = service.take_up_devices().await;
                    service.transports.tries_left.set(if is_busy { tries - 1 } else { 0 });
                }
                drop(service);
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
