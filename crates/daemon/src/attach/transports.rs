//! Attached spaces of this host, by their transports.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use dolmen_api::{AttachedBy, Attachment, ErrorBody, ErrorCode};
use dolmen_attach::{Holder, SpaceKey};
use dolmen_block_io::sync::{AsyncMutex, Notify};
use dolmen_fuse::{DetachError, Files};
use dolmen_ublk::Devices;
use dolmen_units::PoolId;

use crate::answer::Answer;
use crate::attach::kernel_host::{Asked, EngineHost};
use crate::io_worker::IoWorker;
use crate::ranks;

/// How often it is tried to take up devices that are busy with the daemon before, and the pause between. Each try waits for ten
/// seconds by itself.
pub(crate) const TRIES_MAX: u32 = 8;

/// A space that is attached, in one way or the other.
#[derive(Debug, Clone)]
pub(crate) enum Shown {
    Loop(dolmen_fuse::Attached),
    Ublk(dolmen_ublk::Attached, Limits),
}

/// What the kernel cannot do with ublk devices.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) keeps_size: bool,
    pub(crate) hides_partitions: bool,
}

impl Limits {
    pub(crate) fn of(devices: &Devices) -> Self {
        Self { keeps_size: !devices.can_resize(), hides_partitions: !devices.shows_partitions() }
    }

    pub(crate) fn in_words(self) -> Vec<String> {
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
    pub(crate) fn is_kept_loop(&self) -> bool {
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
        dolmen_attach::holders(self.device())
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

    pub(crate) fn all_files(&self) -> impl Iterator<Item = &Arc<Files>> {
        self.files.iter().chain(&self.ringed)
    }

    /// The files that an attached space is one of.
    pub(crate) fn files_of(&self, one: &dolmen_fuse::Attached) -> Result<&Arc<Files>, Refused> {
        let files = if one.survival.survives_daemon() { &self.files } else { &self.ringed };
        let space = one.attachment.space;
        files.as_ref().ok_or(Refused::Loop(DetachError::NotAttached { space }))
    }

    pub(crate) fn devices_of(&self, one: &dolmen_ublk::Attached) -> Result<&Arc<Devices>, Refused> {
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
    pub(crate) fn close(&self, files: Option<&Arc<Files>>) -> Option<String> {
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
    pub(crate) device_worker: IoWorker,
    pub(crate) makers: RefCell<Makers>,
    /// To start one of them: it takes up what is there, once.
    pub(crate) starting: AsyncMutex,
    pub(crate) attached: RefCell<Vec<Shown>>,
    /// What was attached over io_uring and ended with the daemon before, as `POOL/SPACE`, until it is attached again.
    pub(crate) ended: RefCell<BTreeMap<SpaceKey, String>>,
    /// Requests that wait for their pool to be opened.
    pub(crate) parked: RefCell<Vec<Asked>>,
    /// Spaces of pools that are not open of which a person gave up what waits, until their pools are.
    pub(crate) excluded: RefCell<BTreeSet<SpaceKey>>,
    /// How often it is still tried to take up devices that the kernel had not put back yet.
    pub(crate) tries_left: Cell<u32>,
    /// Requests of the kernel's that the engine is at.
    pub(crate) under_way: Cell<u64>,
    /// Rung when there is none left.
    pub(crate) notify: Notify,
}

impl Transports {
    pub(crate) fn new(host: Arc<EngineHost>, device_worker: IoWorker) -> Self {
        let (makers, attached, ended) = Default::default();
        let (starting, under_way, notify) =
            (AsyncMutex::ranked(ranks::TRANSPORTS.single()), Cell::new(0), Notify::new());
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
    pub(crate) fn unpark(&self) {
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
