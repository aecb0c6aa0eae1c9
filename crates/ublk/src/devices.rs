//! Attaching, resizing and detaching spaces.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dolmen_attach::{Access, Holder, SpaceKey, Wanted, holders, lasting_holders, link, list, unlink};
use dolmen_units::{Bytes, SECTOR_BYTES};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::control::{Control, MARK_OF_OURS, Number};
use crate::queue::{Partitions, Queue, QueueCounters, Served};
use crate::record::{Attachment, Made, Record, RecordError};
use crate::request::{Host, IO_BYTES_MAX};
use crate::wire::{DeviceInfo, Parameters, State, attribute, feature, parameter};
use crate::{DEPTH, DEVICES_MAX};

/// How often a number is looked for when others take it first.
const TRIES_MAX: u32 = 64;
/// How often the end of a server before is looked for: with the pauses, ten seconds.
pub(crate) const LOOKS_MAX: u32 = 200;
pub(crate) const PAUSE: std::time::Duration = std::time::Duration::from_millis(50);
/// The block that the engine works in, as a power of two: smaller writes are read, changed and written.
const BLOCK_SHIFT: u8 = 12;
/// What one discard or zeroing takes at most, as with loop devices: just below 4 GiB.
const RANGE_SECTORS_MAX: u32 = (u32::MAX >> 9) & !7;

/// How ublk devices are offered.
#[derive(Debug, Clone)]
pub struct DevicesConfig {
    /// The daemon's run folder; what its devices carry depends on it.
    pub run: PathBuf,
    /// Where the links go; `/dev/dolmen`.
    pub links: PathBuf,
    /// How far the kernel reads ahead on the devices.
    pub read_ahead_kib: u64,
}

impl DevicesConfig {
    /// The defaults: 1 MiB of read-ahead, as for loop devices.
    #[must_use]
    pub fn new(run: PathBuf) -> Self {
        Self { run, links: PathBuf::from("/dev/dolmen"), read_ahead_kib: 1024 }
    }
}

/// An attached space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// What was recorded of it.
    pub attachment: Attachment,
    /// Its stable name, `/dev/dolmen/POOL/SPACE`.
    pub link: PathBuf,
    /// The device that the link leads to.
    pub device: PathBuf,
}

/// A step that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {}: {source}", device.display())]
pub struct DeviceError {
    /// What was done.
    pub doing: &'static str,
    /// The device.
    pub device: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Why a space was not attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The engine knows no such space.
    #[error("attaching {name}: the pool has no such space")]
    NoSpace {
        /// What was to be attached.
        name: String,
    },
    /// The length or the sector is not one that a disk can have.
    #[error(
        "attaching {name}: {size} in sectors of {sector_bytes} bytes make no disk; a disk has whole sectors of 512 or 4096 bytes"
    )]
    Shape {
        /// What was to be attached.
        name: String,
        /// The space's length.
        size: Bytes,
        /// The sector that was asked for.
        sector_bytes: u32,
    },
    /// It is attached in another way.
    #[error("attaching {name}: it is attached already, as {access:?} with sectors of {sector_bytes} bytes at {}; detach it first", link.display())]
    Attached {
        /// What was to be attached.
        name: String,
        /// How it is attached.
        access: Access,
        /// With which sector.
        sector_bytes: u32,
        /// Where.
        link: PathBuf,
    },
    /// Another space is attached under the name.
    #[error("attaching {name}: another space, {other}, is attached as {}; detach that first", link.display())]
    NameTaken {
        /// What was to be attached.
        name: String,
        /// The other space.
        other: SpaceKey,
        /// The link that both would have.
        link: PathBuf,
    },
    /// Others took every number that was free.
    #[error("attaching {name}: others took {TRIES_MAX} ublk devices first; try again")]
    Contended {
        /// What was to be attached.
        name: String,
    },
    /// There are as many as there may be.
    #[error(
        "attaching {name}: {DEVICES_MAX} spaces are attached by ublk already, which is as many as can be"
    )]
    TooMany {
        /// What was to be attached.
        name: String,
    },
    /// It was attached, somebody took its device away, and what is left of that stays.
    #[error("attaching {name}: {} is gone, and what is left of it cannot be taken away", device.display())]
    Remains {
        /// What was to be attached.
        name: String,
        /// The device that it had.
        device: PathBuf,
        /// Why it cannot.
        source: Box<DetachError>,
    },
    /// The link could not be made.
    #[error("attaching {name}: linking {}: {source}; nothing is attached", link.display())]
    Link {
        /// What was to be attached.
        name: String,
        /// The link.
        link: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The record.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Why a space was not detached or resized. It stays attached.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    /// It is not attached.
    #[error("{space} is not attached")]
    NotAttached {
        /// Which.
        space: SpaceKey,
    },
    /// Somebody uses it.
    #[error("detaching {}: {} is {}; unmount or close it first; it stays attached", link.display(), device.display(), list(by))]
    Busy {
        /// Its link.
        link: PathBuf,
        /// Its device.
        device: PathBuf,
        /// Who uses it.
        by: Vec<Holder>,
    },
    /// The kernel cannot resize ublk devices.
    #[error(
        "this kernel cannot resize ublk devices (Linux 6.16 and newer can); detach {} and attach it again, or attach it by a loop device (--transport loop), which can be resized", link.display()
    )]
    CannotResize {
        /// Its link.
        link: PathBuf,
    },
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The record.
    #[error(transparent)]
    Record(#[from] RecordError),
}

pub(crate) struct Inner {
    pub(crate) made: Made,
    pub(crate) record: Box<dyn Record>,
    /// By space; what is attached and has none waits for one.
    pub(crate) queues: BTreeMap<SpaceKey, Queue>,
}

/// The ublk devices of this daemon.
///
/// The methods ask the kernel, which asks the queues and the engine: call them on a thread that neither needs, and
/// never on the engine's own. Dropping it leaves all attached spaces in place for the next daemon.
pub struct Devices {
    pub(crate) control: Control,
    pub(crate) config: DevicesConfig,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) inner: Mutex<Inner>,
}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Devices").field("control", &self.control).finish_non_exhaustive()
    }
}

impl Attachment {
    pub(crate) fn device(&self) -> Number {
        Number(self.number)
    }

    pub(crate) fn failed(&self, doing: &'static str, error: Errno) -> DeviceError {
        DeviceError { doing, device: self.device().device(), source: error.into() }
    }

    fn parameters(&self) -> Parameters {
        let shift = if self.sector_bytes == 4096 { BLOCK_SHIFT } else { 9 };
        let read_only = if self.access == Access::ReadOnly { attribute::READ_ONLY } else { 0 };
        Parameters {
            len: u32::try_from(size_of::<Parameters>()).unwrap_or(0),
            kinds: parameter::BASIC | parameter::DISCARD,
            attributes: attribute::VOLATILE_CACHE | attribute::FUA | read_only,
            logical_block_shift: shift,
            physical_block_shift: BLOCK_SHIFT,
            io_optimal_shift: BLOCK_SHIFT,
            io_least_shift: BLOCK_SHIFT,
            sectors_max: IO_BYTES_MAX / 512,
            device_sectors: self.size_bytes / SECTOR_BYTES,
            discard_granularity: 1 << BLOCK_SHIFT,
            discard_sectors_max: RANGE_SECTORS_MAX,
            zeroes_sectors_max: RANGE_SECTORS_MAX,
            discard_segments_max: 1,
            ..Parameters::default()
        }
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            queue_count: 1,
            queue_depth: DEPTH,
            io_bytes_max: IO_BYTES_MAX,
            device: self.number,
            features: feature::NEEDED,
            mark: self.mark,
            ..DeviceInfo::default()
        }
    }
}

/// The hash of Fowler, Noll and Vo; nothing depends on its being hard to forge.
fn fnv_1a(bytes: &[u8], seed: u32) -> u32 {
    bytes.iter().fold(seed, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// What the device of an attachment carries: that it is ours, whose, and which.
fn mark_of(space: SpaceKey, run: &Path, count: u64) -> u64 {
    let folder = fnv_1a(std::os::unix::ffi::OsStrExt::as_bytes(run.as_os_str()), 0x811c_9dc5);
    let of_space = fnv_1a(&space.space.0.to_le_bytes(), fnv_1a(&space.pool.0, folder));
    MARK_OF_OURS << 32 | u64::from(fnv_1a(&count.to_le_bytes(), of_space))
}

impl Inner {
    pub(crate) fn get(&self, space: SpaceKey) -> Result<Attachment, DetachError> {
        let found = self.made.attachments.iter().find(|one| one.space == space);
        found.cloned().ok_or(DetachError::NotAttached { space })
    }

    /// Replaces or adds what is recorded of an attachment.
    fn note(&mut self, attachment: &Attachment) -> Result<(), RecordError> {
        let mut made = self.made.clone();
        made.attachments.retain(|one| one.space != attachment.space);
        made.attachments.push(attachment.clone());
        self.record.store(&made)?;
        self.made = made;
        Ok(())
    }

    fn forget(&mut self, space: SpaceKey) -> Result<(), RecordError> {
        self.made.attachments.retain(|one| one.space != space);
        self.record.store(&self.made)
    }
}

/// Opens a device's channel, which one process at a time may: who served it before may take a moment to be gone, and
/// its name a moment to appear.
fn open_channel(number: Number) -> Result<OwnedFd, Errno> {
    let mut looks = 0;
    loop {
        let opened = rustix::fs::open(number.channel(), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        match opened {
            Err(Errno::BUSY | Errno::NOENT) if looks < LOOKS_MAX => {
                looks += 1;
                dolmen_attach::pause(PAUSE);
            }
            other => return other,
        }
    }
}

impl Devices {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is attached.
    #[must_use]
    pub fn attached(&self) -> Vec<Attached> {
        self.lock().made.attachments.iter().map(|one| self.describe(one)).collect()
    }

    /// What was asked of an attached space; `None` while nobody serves it.
    #[must_use]
    pub fn counters(&self, space: SpaceKey) -> Option<QueueCounters> {
        self.lock().queues.get(&space).map(Queue::counters)
    }

    /// Whether an attached device can learn that its space has another size.
    #[must_use]
    pub fn can_resize(&self) -> bool {
        self.control.can_resize()
    }

    /// Whether the kernel shows partitions of attached devices.
    #[must_use]
    pub fn shows_partitions(&self) -> bool {
        self.control.scans_apart()
    }

    pub(crate) fn describe(&self, attachment: &Attachment) -> Attached {
        let link = self.config.links.join(attachment.pool_name.as_str()).join(attachment.space_name.as_str());
        Attached { attachment: attachment.clone(), link, device: attachment.device().device() }
    }

    /// Attaches a space. One that is attached in the same way stays so, and is described; if nobody serves it, it is
    /// tried to. If somebody took its device away, it gets another.
    ///
    /// # Errors
    /// [`AttachError`]; what could not be taken back of a failed attempt is in [`attached`](Self::attached) then.
    pub fn attach(&self, wanted: &Wanted) -> Result<Attached, AttachError> {
        let mut inner = self.lock();
        let name = format!("{}/{}", wanted.pool_name, wanted.space_name);
        if let Some(attachment) = self.find_attached(&inner, wanted, &name)? {
            if self.state(&attachment)?.is_some_and(|state| state != State::Dead) {
                self.serve_again(&mut inner, &attachment)?;
                return Ok(self.describe(&attachment));
            }
            self.delete(&mut inner, &attachment).map_err(|source| {
                let (name, device) = (name.clone(), attachment.device().device());
                AttachError::Remains { name, device, source: Box::new(source) }
            })?;
        }
        if inner.made.attachments.len() >= DEVICES_MAX {
            return Err(AttachError::TooMany { name });
        }
        let attachment = self.plan(&mut inner, wanted, &name)?;
        match self.make(&mut inner, attachment, &name) {
            Ok(attachment) => Ok(self.describe(&attachment)),
            Err(error) => {
                self.undo(&mut inner, wanted.space);
                Err(error)
            }
        }
    }

    fn find_attached(
        &self,
        inner: &Inner,
        wanted: &Wanted,
        name: &str,
    ) -> Result<Option<Attachment>, AttachError> {
        for one in &inner.made.attachments {
            let link = self.describe(one).link;
            let same_name = one.pool_name == wanted.pool_name && one.space_name == wanted.space_name;
            let name = || name.to_owned();
            if one.space != wanted.space {
                if same_name {
                    return Err(AttachError::NameTaken { name: name(), other: one.space, link });
                }
            } else if (one.access, one.sector_bytes) == (wanted.access, wanted.sector_bytes) {
                return Ok(Some(one.clone()));
            } else {
                let (access, sector_bytes) = (one.access, one.sector_bytes);
                return Err(AttachError::Attached { name: name(), access, sector_bytes, link });
            }
        }
        Ok(None)
    }

    fn plan(&self, inner: &mut Inner, wanted: &Wanted, name: &str) -> Result<Attachment, AttachError> {
        let Wanted { space, pool_name, space_name, access, sector_bytes } = wanted.clone();
        let size = self.host.size(space).ok_or_else(|| AttachError::NoSpace { name: name.to_owned() })?;
        let known = u64::from(sector_bytes) == SECTOR_BYTES || sector_bytes == 4096;
        if !known || size.0 == 0 || !size.0.is_multiple_of(u64::from(sector_bytes)) {
            return Err(AttachError::Shape { name: name.to_owned(), size, sector_bytes });
        }
        inner.made.count += 1;
        let mark = mark_of(space, &self.config.run, inner.made.count);
        let size_bytes = size.0;
        Ok(Attachment { space, pool_name, space_name, access, sector_bytes, size_bytes, number: 0, mark })
    }

    /// Records a number, makes the device with it, has it served, shows it.
    fn make(
        &self,
        inner: &mut Inner,
        mut attachment: Attachment,
        name: &str,
    ) -> Result<Attachment, AttachError> {
        self.add(inner, &mut attachment, name)?;
        let number = attachment.device();
        let set = self.control.set_parameters(number, attachment.parameters());
        set.map_err(|error| attachment.failed("describing", error))?;
        let queue = self.queue(&attachment)?;
        // Kept before it is started, so that whatever happens its thread is found and ended.
        inner.queues.insert(attachment.space, queue);
        self.control.start(number).map_err(|error| attachment.failed("starting", error))?;
        number.set("queue/read_ahead_kb", self.config.read_ahead_kib);
        let attached = self.describe(&attachment);
        link(&attached.link, &attached.device).map_err(|source| {
            let (name, link) = (name.to_owned(), attached.link.clone());
            AttachError::Link { name, link, source }
        })?;
        Ok(attachment)
    }

    fn add(&self, inner: &mut Inner, attachment: &mut Attachment, name: &str) -> Result<(), AttachError> {
        let recorded: Vec<u32> = inner.made.attachments.iter().map(|one| one.number).collect();
        let is_free = |number: &u32| !recorded.contains(number) && !Number(*number).is_taken();
        let mut from = 0;
        for _ in 0..TRIES_MAX {
            let Some(number) = (from..=u32::MAX).find(is_free) else { break };
            attachment.number = number;
            inner.note(attachment)?;
            match self.control.add(attachment.info()) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => from = number + 1,
                Err(error) => return Err(attachment.failed("adding", error).into()),
            }
        }
        Err(AttachError::Contended { name: name.to_owned() })
    }

    /// A thread that serves a device.
    pub(crate) fn queue(&self, attachment: &Attachment) -> Result<Queue, DeviceError> {
        let number = attachment.device();
        let failed = |doing, source| DeviceError { doing, device: number.channel(), source };
        let channel = open_channel(number).map_err(|error| failed("opening", error.into()))?;
        let Attachment { space, access, sector_bytes, size_bytes, .. } = *attachment;
        let partitions = if self.control.scans_apart() { Partitions::Shown } else { Partitions::Hidden };
        let served = Served { space, access, sector_bytes, size_bytes, partitions };
        Queue::start(channel, served, Arc::clone(&self.host)).map_err(|error| failed("serving", error))
    }

    /// Whether the device is there and ours, and where it stands.
    pub(crate) fn state(&self, attachment: &Attachment) -> Result<Option<State>, DeviceError> {
        let info = self.control.info(attachment.device());
        let info = info.map_err(|error| attachment.failed("looking at", error))?;
        Ok(info.filter(|info| info.mark == attachment.mark).map(|info| info.state()))
    }

    /// Takes away what an attachment that failed has left. What cannot be taken away stays recorded.
    fn undo(&self, inner: &mut Inner, space: SpaceKey) {
        let Ok(attachment) = inner.get(space) else { return };
        if let Err(error) = self.delete(inner, &attachment) {
            tracing::warn!(%space, %error, "undoing an attachment that failed: its device stays; detach it later");
        }
    }

    /// Stops and deletes a device, if it is ours, and forgets it. Nobody may use it.
    pub(crate) fn delete(&self, inner: &mut Inner, attachment: &Attachment) -> Result<(), DetachError> {
        let number = attachment.device();
        let state = self.state(attachment)?;
        if state.is_some_and(|state| state != State::Dead) {
            self.control.stop(number).map_err(|error| attachment.failed("stopping", error))?;
        }
        if let Some(queue) = inner.queues.remove(&attachment.space) {
            // A device that was not started does not tell its queue that it is stopped.
            queue.let_go();
            queue.join();
        }
        if state.is_some() {
            self.control.delete(number).map_err(|error| attachment.failed("deleting", error))?;
        }
        let attached = self.describe(attachment);
        unlink(&attached.link, &attached.device);
        inner.forget(attachment.space)?;
        Ok(())
    }

    /// Tells the kernel the space's length after a resize, and returns it. File systems on it are the caller's business.
    ///
    /// # Errors
    /// [`DetachError`]; the device keeps its length then.
    pub fn resize(&self, space: SpaceKey) -> Result<Bytes, DetachError> {
        let mut inner = self.lock();
        let mut attachment = inner.get(space)?;
        if !self.control.can_resize() {
            return Err(DetachError::CannotResize { link: self.describe(&attachment).link });
        }
        if self.state(&attachment)?.is_none_or(|state| state == State::Dead) {
            // Another program may have its number by now.
            return Err(DetachError::NotAttached { space });
        }
        let size = self.host.size(space).ok_or(DetachError::NotAttached { space })?;
        let grows = size.0 > attachment.size_bytes;
        attachment.size_bytes = size.0;
        inner.note(&attachment)?;
        let report =
            |inner: &Inner| inner.queues.get(&space).into_iter().for_each(|queue| queue.set_size(size.0));
        // Requests are never refused for a length that the kernel has.
        if grows {
            report(&inner);
        }
        let resized = self.control.resize(attachment.device(), size.0 / SECTOR_BYTES);
        resized.map_err(|error| attachment.failed("resizing", error))?;
        report(&inner);
        Ok(size)
    }

    /// Detaches a space that nobody uses. The kernel has written out what it remembered of the device when its last
    /// user closed it; that this is durable is for the caller to see to, who has the engine.
    ///
    /// It is not done here, with an `fsync`, because this process would wait for itself: killed while it does, it would
    /// not be gone before its request is answered, which the next daemon cannot do before it is gone.
    ///
    /// # Errors
    /// [`DetachError`]; it stays attached then.
    pub fn detach(&self, space: SpaceKey) -> Result<(), DetachError> {
        let mut inner = self.lock();
        let attachment = inner.get(space)?;
        let attached = self.describe(&attachment);
        match self.state(&attachment)? {
            None | Some(State::Dead) => {}
            Some(State::Live | State::Quiesced | State::Other(_)) => {
                // What waits in it is carried out first.
                self.serve_again(&mut inner, &attachment)?;
                attached.refuse_if_used()?;
                let claim = attached.claim()?;
                // Who opened it meanwhile without a claim is seen here; who mounts it now is refused.
                attached.refuse_if_used()?;
                let stopped = self.control.stop(attachment.device());
                stopped.map_err(|error| attachment.failed("stopping", error))?;
                // It is released here: until no process has the device open any more, its number is not free.
                drop(claim);
            }
        }
        self.delete(&mut inner, &attachment)
    }

    /// Ends this daemon's service and leaves everything in place for the next: from now on I/O waits. Requests that the
    /// engine still has may be answered; those that it drops are left for the next daemon.
    pub fn let_go(&self) {
        self.lock().queues.values().for_each(Queue::let_go);
    }

    /// Waits until what the engine had is answered or dropped, and closes the devices.
    pub fn finish(&self) {
        let queues = std::mem::take(&mut self.lock().queues);
        queues.values().for_each(Queue::let_go);
        queues.into_values().for_each(Queue::join);
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        // Whoever drops it may be who has to answer: the threads end by themselves.
        self.let_go();
    }
}

impl Attached {
    /// Who uses the device now.
    #[must_use]
    pub fn holders(&self) -> Vec<Holder> {
        holders(&self.device)
    }

    fn busy(&self, by: Vec<Holder>) -> DetachError {
        DetachError::Busy { link: self.link.clone(), device: self.device.clone(), by }
    }

    fn refuse_if_used(&self) -> Result<(), DetachError> {
        let by = lasting_holders(&self.device);
        if by.is_empty() { Ok(()) } else { Err(self.busy(by)) }
    }

    /// Opens the device so that nobody can mount it meanwhile; refused when it is.
    fn claim(&self) -> Result<OwnedFd, DetachError> {
        let mode = if self.attachment.access == Access::ReadOnly { OFlags::RDONLY } else { OFlags::RDWR };
        match rustix::fs::open(&self.device, mode | OFlags::EXCL | OFlags::CLOEXEC, Mode::empty()) {
            Ok(claim) => Ok(claim),
            Err(Errno::BUSY) => Err(self.busy(self.holders())),
            Err(error) => Err(self.attachment.failed("claiming", error).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dolmen_units::{PoolId, SpaceId};

    #[test]
    fn no_two_attachments_carry_the_same() {
        let key = |pool, space| SpaceKey { pool: PoolId([pool; 16]), space: SpaceId(space) };
        let here = Path::new("/run/dolmen");
        let mark = mark_of(key(1, 1), here, 1);
        assert_eq!(mark >> 32, MARK_OF_OURS);
        assert_eq!(mark, mark_of(key(1, 1), here, 1));
        let others = [
            (key(2, 1), here, 1),
            (key(1, 2), here, 1),
            (key(1, 1), Path::new("/run/other"), 1),
            (key(1, 1), here, 2),
        ];
        for (space, run, count) in others {
            assert_ne!(mark, mark_of(space, run, count));
        }
    }

    #[test]
    fn a_disk_is_described_as_the_loop_device_would_be() {
        let attachment = Attachment {
            space: SpaceKey { pool: PoolId([1; 16]), space: SpaceId(1) },
            pool_name: "tank".parse().expect("a name"),
            space_name: "vm".parse().expect("a name"),
            access: Access::ReadOnly,
            sector_bytes: 512,
            size_bytes: 3 << 20,
            number: 4,
            mark: 0,
        };
        let reported = attachment.parameters();
        assert_eq!((reported.logical_block_shift, reported.physical_block_shift), (9, 12));
        assert_eq!((reported.device_sectors, reported.sectors_max), (6144, 1024));
        assert_eq!(reported.discard_granularity, 4096);
        assert!(reported.discard_sectors_max.is_multiple_of(8));
        assert_eq!(reported.attributes, 0b1101);
        assert_eq!(Parameters { attributes: 0, ..reported }.kinds, 3);
        let writable = Attachment { access: Access::ReadWrite, sector_bytes: 4096, ..attachment };
        assert_eq!(
            (writable.parameters().logical_block_shift, writable.parameters().attributes),
            (12, 0b1100)
        );
    }
}
