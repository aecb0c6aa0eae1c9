//! Attaching, resizing and detaching spaces.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dolmen_attach::{Access, Holder, SpaceKey, Wanted, holders, lasting_holders, list};
use dolmen_units::{Bytes, SECTOR_BYTES};
use rustix::fs::{Mode, OFlags};

use crate::descriptor_holder::{DescriptorHolder, DescriptorHolderError, DescriptorHolderProgram};
use crate::ledger::{Attachment, Ledger, LedgerError, Made};
use crate::loop_device::{Cleared, LoopDevice, LoopError, Plan, Tag};
use crate::mount::{self, MountError, Mounted};
use crate::nodes::File;
use crate::session::{Readers, SessionCounters, Shared};

/// How an attached space lives through the death of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survival {
    /// What becomes of requests that the daemon had read.
    pub unanswered: Unanswered,
    /// How long the daemon may be away before the kernel fails the requests, where the host limits that
    /// (`fs.fuse.default_request_timeout` and `max_request_timeout`, Linux 6.15).
    pub absence_s_max: Option<u64>,
}

/// What becomes of requests that a daemon had read and not answered when it died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unanswered {
    /// The kernel hands them out again (Linux 6.9).
    Resent,
    /// The next daemon finds them in the slots that the descriptor holder holds.
    Replayed,
    /// They fail, and so does all I/O after them: the attachment ends with its daemon ([`Channel::Rings`]).
    ///
    /// [`Channel::Rings`]: crate::Channel::Rings
    Failed,
}

impl Survival {
    /// Whether what is attached survives the daemon.
    #[must_use]
    pub fn survives_daemon(&self) -> bool {
        self.unanswered != Unanswered::Failed
    }
}

impl fmt::Display for Survival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.unanswered {
            Unanswered::Resent => "resent by the kernel",
            Unanswered::Replayed => {
                "replayed from the descriptor holder's memory, for this kernel cannot resend"
            }
            Unanswered::Failed => {
                return f.write_str("this attachment does not survive its daemon: when the daemon ends, is killed or upgraded, what is under way fails, and all I/O after it; the device is gone then and has to be attached again");
            }
        };
        write!(f, "I/O waits while the daemon is away and goes on after; requests under way are {how}")?;
        match self.absence_s_max {
            Some(limit) => write!(
                f,
                "; this host's fs.fuse request time-out fails them after {limit} s; set it to 0 to wait without limit"
            ),
            None => Ok(()),
        }
    }
}

/// An attached space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// What was recorded of it.
    pub attachment: Attachment,
    /// Its stable name, `/dev/dolmen/POOL/SPACE`.
    pub link: PathBuf,
    /// The device that the link leads to now.
    pub device: PathBuf,
    /// How it lives through a restart of the daemon.
    pub survival: Survival,
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
    /// The connection to the kernel has ended.
    #[error("attaching {name}: the connection of attached spaces to the kernel has ended; begin a new one")]
    Ended {
        /// What was to be attached.
        name: String,
    },
    /// The folder was unmounted by somebody else, and cannot be mounted again.
    #[error(
        "attaching {name}: the folder of attached spaces was unmounted, and cannot be mounted again while spaces are attached: {source}"
    )]
    PutBack {
        /// What was to be attached.
        name: String,
        /// Why not.
        source: MountError,
    },
    /// The file of the space could not be opened.
    #[error("attaching {name}: opening {}: {source}", path.display())]
    Open {
        /// What was to be attached.
        name: String,
        /// Its file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
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
    /// The loop device.
    #[error(transparent)]
    Loop(#[from] LoopError),
    /// The record.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
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
    /// What the kernel holds of it could not be written.
    #[error("detaching {}: what was written to it last cannot be written out; it stays attached", link.display())]
    Unwritten {
        /// Its link.
        link: PathBuf,
        /// What the kernel said.
        source: LoopError,
    },
    /// The loop device.
    #[error(transparent)]
    Loop(#[from] LoopError),
    /// The record.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// What becomes of a space of which the kernel holds what cannot be written out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unwritten {
    /// It stays attached.
    Kept,
    /// That is lost, and the space is detached.
    Abandoned,
}

/// Why the folder was not closed. It stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// Spaces are attached.
    #[error("closing the folder of attached spaces: {count} are attached, {} among them; detach them first", first.display())]
    Attached {
        /// How many.
        count: usize,
        /// One of them.
        first: PathBuf,
    },
    /// It could not be unmounted.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The descriptor holder did not end.
    #[error(transparent)]
    DescriptorHolder(#[from] DescriptorHolderError),
    /// The record.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

pub(crate) struct Inner {
    pub(crate) made: Made,
    pub(crate) ledger: Box<dyn Ledger>,
    pub(crate) descriptor_holder: Option<DescriptorHolder>,
    pub(crate) readers: Option<Readers>,
}

/// The attached spaces of this host.
///
/// The methods ask the kernel, which asks the reading threads and the engine: call them on a thread that neither needs,
/// and never on the engine's own. Dropping it leaves all attached spaces in place for the next daemon.
pub struct Files {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inner: Mutex<Inner>,
    pub(crate) at: PathBuf,
    pub(crate) links: PathBuf,
    pub(crate) read_ahead_kib: u64,
    pub(crate) descriptor_holder_program: DescriptorHolderProgram,
    pub(crate) survival: Survival,
}

/// What [`Files::tend`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DescriptorHolderHealth {
    /// It lives.
    Alive,
    /// It had died; there is a new one.
    Replaced,
    /// The folder is closed or was unmounted: there is nothing to keep.
    NotNeeded,
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files").field("at", &self.at).finish_non_exhaustive()
    }
}

/// The name of a space's file. A colon is in no name of a pool or space, so no two spaces share one.
pub(crate) fn file_name(attachment: &Attachment) -> String {
    format!("{}:{}", attachment.pool_name, attachment.space_name)
}

pub(crate) fn node_of(attachment: &Attachment) -> Arc<File> {
    Arc::new(File {
        node: attachment.node,
        name: file_name(attachment),
        space: attachment.space,
        access: attachment.access,
        size: AtomicU64::new(attachment.size_bytes),
    })
}

pub(crate) fn link_of(links: &Path, attachment: &Attachment) -> PathBuf {
    links.join(attachment.pool_name.as_str()).join(attachment.space_name.as_str())
}

/// The device that shows the attachment's file in the folder at `at`, if it does.
pub(crate) fn device_of(attachment: &Attachment, at: &Path) -> Option<LoopDevice> {
    let device = LoopDevice { number: attachment.loop_number? };
    device.carries(Tag::of(attachment, at), &at.join(file_name(attachment))).then_some(device)
}

impl Inner {
    fn position(&self, space: SpaceKey) -> Option<usize> {
        self.made.attachments.iter().position(|one| one.space == space)
    }

    fn get(&self, space: SpaceKey) -> Result<Attachment, DetachError> {
        let found = self.made.attachments.iter().find(|one| one.space == space);
        found.cloned().ok_or(DetachError::NotAttached { space })
    }

    /// Replaces or adds what is recorded of an attachment.
    fn record(&mut self, attachment: &Attachment) -> Result<(), LedgerError> {
        let mut made = self.made.clone();
        made.attachments.retain(|one| one.space != attachment.space);
        made.attachments.push(attachment.clone());
        made.attachments.sort_by_key(|one| one.node);
        made.node_last = made.node_last.max(attachment.node);
        self.ledger.store(&made)?;
        self.made = made;
        Ok(())
    }

    fn forget(&mut self, space: SpaceKey) -> Result<(), LedgerError> {
        if let Some(position) = self.position(space) {
            self.made.attachments.remove(position);
        }
        self.ledger.store(&self.made)
    }
}

impl Files {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> SessionCounters {
        self.shared.counters()
    }

    /// How attached spaces live through a restart of the daemon on this host.
    #[must_use]
    pub fn survival(&self) -> Survival {
        self.survival
    }

    /// The descriptor holder's process.
    #[must_use]
    pub fn descriptor_holder_pid(&self) -> Option<i32> {
        self.lock().descriptor_holder.as_ref().and_then(DescriptorHolder::pid)
    }

    /// What is attached.
    #[must_use]
    pub fn attached(&self) -> Vec<Attached> {
        self.lock().made.attachments.iter().map(|one| self.describe(one)).collect()
    }

    /// Who uses an attached space.
    ///
    /// # Errors
    /// [`DetachError::NotAttached`].
    pub fn holders(&self, space: SpaceKey) -> Result<Vec<Holder>, DetachError> {
        let attachment = self.lock().get(space)?;
        Ok(self.describe(&attachment).holders())
    }

    pub(crate) fn describe(&self, attachment: &Attachment) -> Attached {
        let device = attachment.loop_number.map(|number| LoopDevice { number }.path()).unwrap_or_default();
        let link = link_of(&self.links, attachment);
        Attached { attachment: attachment.clone(), link, device, survival: self.survival }
    }

    /// Attaches a space. One that is attached in the same way stays so, and is described.
    ///
    /// # Errors
    /// [`AttachError`]; nothing is left behind then.
    pub fn attach(&self, wanted: &Wanted) -> Result<Attached, AttachError> {
        let mut inner = self.lock();
        let name = format!("{}/{}", wanted.pool_name, wanted.space_name);
        if !self.shared.is_alive() {
            return Err(AttachError::Ended { name });
        }
        if let Err(source) = self.put_folder_back() {
            return Err(AttachError::PutBack { name, source });
        }
        if let Some(attached) = self.find_attached(&inner, wanted, &name)? {
            return Ok(attached);
        }
        let attachment = self.plan(&inner, wanted, &name)?;
        inner.record(&attachment)?;
        self.shared.nodes.insert(node_of(&attachment));
        match self.connect(&mut inner, attachment, &name) {
            Ok(attachment) => Ok(self.describe(&attachment)),
            Err(error) => {
                self.undo(&mut inner, wanted.space);
                Err(error)
            }
        }
    }

    /// Mounts the folder again where somebody has unmounted it; whether it was so. What is attached holds the connection, which
    /// the kernel mounts a second time since Linux 5.15.
    fn put_folder_back(&self) -> Result<bool, MountError> {
        match mount::mounted(&self.at) {
            Mounted::Ours => Ok(false),
            Mounted::Other { kind } => Err(MountError::Occupied { at: self.at.clone(), found: kind }),
            Mounted::Nothing => {
                let mounted = mount::mount(self.shared.fuse(), &self.at);
                if mounted.as_ref().is_err_and(MountError::is_of_ended) {
                    // The last mount went, and the connection with it; those that read from it see that later.
                    self.shared.note_ended();
                }
                mounted.map(|()| true)
            }
        }
    }

    /// Whether the connection to the kernel has ended: nothing can be attached any more, and I/O on what is attached fails.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        !self.shared.is_alive()
    }

    /// Puts back what somebody else has taken away while spaces are attached: the descriptor holder, the mount of the folder,
    /// links. To be called now and then; what was put back, or cannot be, in words.
    pub fn put_back(&self) -> Vec<String> {
        let mut told = Vec::new();
        if self.has_ended() {
            return told;
        }
        match self.tend() {
            Ok(DescriptorHolderHealth::Replaced) => {
                told.push("the descriptor holder had ended, and there is a new one".to_owned())
            }
            Ok(DescriptorHolderHealth::Alive | DescriptorHolderHealth::NotNeeded) => {}
            Err(error) => told.push(error.to_string()),
        }
        let inner = self.lock();
        if inner.made.attachments.is_empty() {
            return told;
        }
        match self.put_folder_back() {
            Ok(true) => told.push(format!("{} had been unmounted, and is mounted again", self.at.display())),
            Ok(false) => {}
            Err(error) => told.push(error.to_string()),
        }
        for one in inner.made.attachments.iter().map(|one| self.describe(one)) {
            let is_closed =
                fs::symlink_metadata(&one.link).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
            if !is_closed || one.device.as_os_str().is_empty() {
                continue;
            }
            let link = one.link.display();
            told.push(match dolmen_attach::link(&one.link, &one.device) {
                Ok(()) => format!("the link {link} had been removed, and is there again"),
                Err(error) => format!("the link {link} was removed, and cannot be made again: {error}"),
            });
        }
        told
    }

    fn find_attached(
        &self,
        inner: &Inner,
        wanted: &Wanted,
        name: &str,
    ) -> Result<Option<Attached>, AttachError> {
        for one in &inner.made.attachments {
            let link = link_of(&self.links, one);
            let same_name = one.pool_name == wanted.pool_name && one.space_name == wanted.space_name;
            let name = || name.to_owned();
            if one.space != wanted.space {
                if same_name {
                    return Err(AttachError::NameTaken { name: name(), other: one.space, link });
                }
            } else if (one.access, one.sector_bytes) == (wanted.access, wanted.sector_bytes) {
                return Ok(Some(self.describe(one)));
            } else {
                let (access, sector_bytes) = (one.access, one.sector_bytes);
                return Err(AttachError::Attached { name: name(), access, sector_bytes, link });
            }
        }
        Ok(None)
    }

    fn plan(&self, inner: &Inner, wanted: &Wanted, name: &str) -> Result<Attachment, AttachError> {
        let Wanted { space, pool_name, space_name, access, sector_bytes } = wanted.clone();
        let size = self.shared.host.size(space);
        let size = size.ok_or_else(|| AttachError::NoSpace { name: name.to_owned() })?;
        let known = u64::from(sector_bytes) == SECTOR_BYTES || sector_bytes == 4096;
        if !known || size.0 == 0 || !size.0.is_multiple_of(u64::from(sector_bytes)) {
            return Err(AttachError::Shape { name: name.to_owned(), size, sector_bytes });
        }
        Ok(Attachment {
            space,
            pool_name,
            space_name,
            access,
            sector_bytes,
            size_bytes: size.0,
            node: inner.made.node_last + 1,
            loop_number: None,
        })
    }

    /// Puts a loop device over the file and a link to the device.
    fn connect(
        &self,
        inner: &mut Inner,
        mut attachment: Attachment,
        name: &str,
    ) -> Result<Attachment, AttachError> {
        let path = self.at.join(file_name(&attachment));
        let mode = if attachment.access == Access::ReadOnly { OFlags::RDONLY } else { OFlags::RDWR };
        let opened = rustix::fs::open(&path, mode | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty());
        let file = opened.map_err(|error| {
            let (name, path) = (name.to_owned(), path.clone());
            AttachError::Open { name, path, source: error.into() }
        })?;
        let plan = Plan {
            file: std::os::fd::AsFd::as_fd(&file),
            tag: Tag::of(&attachment, &self.at),
            access: attachment.access,
            sector_bytes: attachment.sector_bytes,
            read_ahead_kib: self.read_ahead_kib,
        };
        let device = LoopDevice::configure(&plan, |device| {
            attachment.loop_number = Some(device.number);
            inner.record(&attachment).map_err(AttachError::from)
        })?;
        let link = link_of(&self.links, &attachment);
        dolmen_attach::link(&link, &device.path()).map_err(|source| {
            let (name, link) = (name.to_owned(), link.clone());
            AttachError::Link { name, link, source }
        })?;
        Ok(attachment)
    }

    /// Takes away what an attachment that failed has left. What cannot be taken away stays recorded.
    fn undo(&self, inner: &mut Inner, space: SpaceKey) {
        let Ok(attachment) = inner.get(space) else { return };
        let cleared = device_of(&attachment, &self.at).map_or(Ok(Cleared::Done), LoopDevice::clear);
        match cleared {
            Ok(Cleared::Done) => {}
            Ok(Cleared::InUse) | Err(_) => {
                tracing::warn!(%space, ?cleared, "undoing an attachment that failed: its loop device stays; detach it later");
                return;
            }
        }
        self.shared.nodes.remove(attachment.node);
        if let Err(error) = inner.forget(space) {
            tracing::warn!(%space, %error, "undoing an attachment that failed: its record stays until the next start");
        }
    }

    /// Tells the kernel the space's length after a resize, and returns it. File systems on it are the caller's business.
    ///
    /// # Errors
    /// [`DetachError`]; the device keeps its length then.
    pub fn resize(&self, space: SpaceKey) -> Result<Bytes, DetachError> {
        let mut inner = self.lock();
        let mut attachment = inner.get(space)?;
        let not_attached = || DetachError::NotAttached { space };
        let size = self.shared.host.size(space).ok_or_else(not_attached)?;
        let device = device_of(&attachment, &self.at).ok_or_else(not_attached)?;
        attachment.size_bytes = size.0;
        inner.record(&attachment)?;
        let file = self.shared.nodes.get(attachment.node).ok_or_else(not_attached)?;
        file.size.store(size.0, Ordering::Relaxed);
        if let Err(error) = self.put_folder_back() {
            tracing::debug!(%space, %error, "the folder of a space that was resized is not mounted");
        }
        // The kernel caches attributes for no time at all: looking at the file makes it learn the new length.
        let looked = fs::metadata(self.at.join(file_name(&attachment)));
        if let Err(error) = looked {
            tracing::debug!(%space, %error, "looking at the file of a space that was resized");
        }
        device.refresh_capacity()?;
        Ok(Bytes(device.size_bytes().unwrap_or(size.0)))
    }

    /// Detaches a space that nobody uses.
    ///
    /// # Errors
    /// [`DetachError`]; it stays attached then.
    pub fn detach(&self, space: SpaceKey) -> Result<(), DetachError> {
        self.take_away(space, Unwritten::Kept)
    }

    /// As [`detach`](Self::detach), also where the kernel holds what cannot be written out: what can be is, and the rest is
    /// lost. The kernel is answered with errors meanwhile, so that it waits for nothing.
    ///
    /// # Errors
    /// [`DetachError`]; it stays attached then.
    pub fn abandon(&self, space: SpaceKey) -> Result<(), DetachError> {
        self.take_away(space, Unwritten::Abandoned)
    }

    fn take_away(&self, space: SpaceKey, unwritten: Unwritten) -> Result<(), DetachError> {
        let mut inner = self.lock();
        let attachment = inner.get(space)?;
        let attached = self.describe(&attachment);
        if let Some(device) = device_of(&attachment, &self.at) {
            attached.refuse_if_used()?;
            match (device.write_out(), unwritten) {
                (Ok(()), _) => {}
                (Err(source), Unwritten::Kept) => {
                    return Err(DetachError::Unwritten { link: attached.link, source });
                }
                (Err(error), Unwritten::Abandoned) => {
                    tracing::warn!(link = %attached.link.display(), %error, "unflushed writes are discarded, as requested");
                }
            }
            if device.clear()? == Cleared::InUse {
                return Err(attached.busy(attached.holders()));
            }
        }
        dolmen_attach::unlink(&attached.link, &attached.device);
        self.shared.nodes.remove(attachment.node);
        inner.forget(space)?;
        Ok(())
    }

    /// Looks whether the descriptor holder lives, and starts another if it does not: cheap, to be called now and then. Until the
    /// new one holds the connection, the death of the daemon would fail all I/O on attached spaces.
    ///
    /// # Errors
    /// [`DescriptorHolderError`] when there is none and none could be started.
    pub fn tend(&self) -> Result<DescriptorHolderHealth, DescriptorHolderError> {
        let mut inner = self.lock();
        let Inner { made, descriptor_holder, .. } = &mut *inner;
        let Some(socket) = made.descriptor_holder.as_ref().filter(|_| self.shared.is_alive()) else {
            return Ok(DescriptorHolderHealth::NotNeeded);
        };
        if let Some(before) = descriptor_holder.as_ref()
            && before.get()?.is_some()
        {
            return Ok(DescriptorHolderHealth::Alive);
        }
        if let Some(before) = descriptor_holder.take() {
            before.end()?;
        }
        let fresh = DescriptorHolder::start(&self.descriptor_holder_program, socket)?;
        fresh.put(self.shared.fuse(), self.shared.region.file())?;
        fresh.watch()?;
        *descriptor_holder = Some(fresh);
        Ok(DescriptorHolderHealth::Replaced)
    }

    /// Unmounts the folder and ends the descriptor holder, once nothing is attached.
    ///
    /// # Errors
    /// [`CloseError`]; what was not done can be tried again.
    pub fn close(&self) -> Result<(), CloseError> {
        let mut inner = self.lock();
        if let Some(one) = inner.made.attachments.first() {
            let (count, first) = (inner.made.attachments.len(), link_of(&self.links, one));
            return Err(CloseError::Attached { count, first });
        }
        if !self.survival.survives_daemon() {
            // Nothing is attached, and the thread of the rings waits for the end of the connection.
            mount::abort(&self.at);
        }
        mount::unmount(&self.at)?;
        self.shared.note_unmounted();
        if let Some(descriptor_holder) = inner.descriptor_holder.take() {
            descriptor_holder.end()?;
        }
        self.stop(&mut inner);
        (inner.made.mount, inner.made.descriptor_holder) = (None, None);
        inner.ledger.store(&inner.made)?;
        Ok(())
    }

    /// Ends this daemon's service and leaves everything in place for the next: from now on I/O waits. Requests that the
    /// engine still has may be answered; those that it drops are left for the next daemon, which must not start to serve
    /// before this one has ended.
    pub fn let_go(&self) {
        let mut inner = self.lock();
        self.stop(&mut inner);
    }

    fn stop(&self, inner: &mut Inner) {
        self.shared.let_go();
        if let Some(readers) = inner.readers.take() {
            readers.join();
        }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
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
}
