//! Starting: taking up what a daemon before has left, clearing what is dead, or beginning again.
//!
//! | found | done |
//! |---|---|
//! | another start of the machine | nothing is left; what was attached is reported as lost |
//! | a descriptor holder with a live connection | taken up: every request goes on |
//! | a descriptor holder without one (killed between two steps, or the folder was unmounted) | ended; begun again |
//! | no descriptor holder, the folder mounted; or a folder whose requests went over rings | every request on it has failed already; it is unmounted, unused loop devices are cleared, those in use are reported as stranded, with who uses them |

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, io};

use dolmen_attach::{Holder, holders};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::descriptor_holder::{DescriptorHolder, DescriptorHolderError, DescriptorHolderProgram, Kept};
use crate::dispatch::BACKGROUND_MAX;
use crate::entries::{Entries, EntriesShape};
use crate::files::{Attached, Files, Inner, Survival, Unanswered, device_of, file_name, link_of, node_of};
use crate::host::Host;
use crate::ledger::{Attachment, Ledger, LedgerError, Made};
use crate::loop_device::{Cleared, LoopDevice};
use crate::mount::{self, MountError, Mounted};
use crate::nodes::Nodes;
use crate::region::{PAYLOAD_BYTES_MAX, Region, RegionError, SLOTS_MAX, Shape};
use crate::ring::{self, RingsUnusable};
use crate::session::{Readers, Shared};
use crate::wire::ROOT_NODE;

/// How long the kernel may take to say hello.
const NEGOTIATION_LIMIT: Duration = Duration::from_secs(10);
/// Slots beside rings: few requests come another way.
const EXTRA_SLOTS: usize = 4;
/// Reading threads, at most.
pub const THREADS_MAX: usize = 8;

/// How requests under way are taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recovery {
    /// The kernel resends them where it can, else they are replayed.
    #[default]
    Best,
    /// They are replayed from the slots, whatever the kernel can: what happens on Linux before 6.9.
    Replay,
}

/// What carries the requests of attached spaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Channel {
    /// `/dev/fuse`, which a descriptor holder holds too: what is attached survives the daemon.
    #[default]
    Kept,
    /// Rings of io_uring, which end with the daemon, and what is attached with them. Only where somebody asked for just
    /// that.
    Rings,
}

/// How attached spaces are offered.
#[derive(Debug, Clone)]
pub struct FilesConfig {
    /// The daemon's run folder: the mounted folder and the descriptor holder's socket lie in it.
    pub run: PathBuf,
    /// Where the links go; `/dev/dolmen`.
    pub links: PathBuf,
    /// The program that keeps the connection while the daemon is away.
    pub descriptor_holder: DescriptorHolderProgram,
    /// Threads that read requests; 1 to [`THREADS_MAX`].
    pub thread_count: usize,
    /// Requests in flight, at most; 1 to [`SLOTS_MAX`].
    pub slot_count: usize,
    /// The largest request: a multiple of 4096, up to [`PAYLOAD_BYTES_MAX`]. So much memory per slot is locked.
    pub payload_bytes: usize,
    /// How far the kernel reads ahead on the devices.
    pub read_ahead_kib: u64,
    /// How requests under way are taken up.
    pub recovery: Recovery,
    /// What carries the requests.
    pub channel: Channel,
}

impl FilesConfig {
    /// The defaults: one thread, 128 requests of 256 KiB (32 MiB of locked memory), 1 MiB of read-ahead.
    #[must_use]
    pub fn new(run: PathBuf, descriptor_holder: DescriptorHolderProgram) -> Self {
        Self {
            run,
            links: PathBuf::from("/dev/dolmen"),
            descriptor_holder,
            thread_count: 1,
            slot_count: usize::from(BACKGROUND_MAX),
            payload_bytes: 256 * 1024,
            read_ahead_kib: 1024,
            recovery: Recovery::Best,
            channel: Channel::Kept,
        }
    }

    /// As [`new`](Self::new), with rings: nothing that is attached so survives the daemon.
    #[must_use]
    pub fn over_rings(run: PathBuf, descriptor_holder: DescriptorHolderProgram) -> Self {
        Self { channel: Channel::Rings, ..Self::new(run, descriptor_holder) }
    }

    /// Where the folder of attached spaces is mounted: each channel has its own, because a connection that has used rings
    /// never goes back.
    fn folder(&self) -> PathBuf {
        self.run.join(match self.channel {
            Channel::Kept => "attached",
            Channel::Rings => "attached-uring",
        })
    }
}

/// A loop device over a file whose connection has ended. All I/O on it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stranded {
    /// What it was.
    pub attachment: Attachment,
    /// The device.
    pub device: PathBuf,
    /// Who uses it, and must let go of it.
    pub by: Vec<Holder>,
}

/// What a start has found.
#[derive(Debug, Default)]
pub struct TakenUp {
    /// Attached spaces that go on.
    pub resumed: Vec<Attached>,
    /// Those that were attached, or about to be, and are not any more. Whether to attach them again is the caller's
    /// choice.
    pub lost: Vec<Attachment>,
    /// Remains that are still in use.
    pub stranded: Vec<Stranded>,
}

/// Why attached spaces cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is out of bounds.
    #[error("offering attached spaces: {setting} is {found}, and must be between {least} and {most}")]
    Setting {
        /// Which.
        setting: &'static str,
        /// Its value.
        found: usize,
        /// The least.
        least: usize,
        /// The most.
        most: usize,
    },
    /// The kernel did not begin to talk.
    #[error("offering attached spaces at {}: the kernel and dolmen found no common FUSE version; dolmen needs Linux 4.20 or newer; use `dolmen serve` instead", at.display())]
    NotNegotiated {
        /// The folder.
        at: PathBuf,
    },
    /// The system refused something basic.
    #[error("offering attached spaces: {doing}: {source}")]
    System {
        /// What.
        doing: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// FUSE over io_uring was asked for, and this host does not have it.
    #[error("offering attached spaces: {0}")]
    Rings(#[from] RingsUnusable),
    /// The folder.
    #[error(transparent)]
    Mount(#[from] MountError),
    /// The descriptor holder.
    #[error(transparent)]
    DescriptorHolder(#[from] DescriptorHolderError),
    /// The slots.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The record.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

impl FilesConfig {
    fn check(&self) -> Result<Shape, StartError> {
        let bounds = [
            ("the number of reading threads", self.thread_count, 1, THREADS_MAX),
            ("the number of request slots", self.slot_count, 1, SLOTS_MAX),
            ("the largest request in pages", self.payload_bytes / 4096, 1, PAYLOAD_BYTES_MAX / 4096),
        ];
        for (setting, found, least, most) in bounds {
            if !(least..=most).contains(&found) {
                return Err(StartError::Setting { setting, found, least, most });
            }
        }
        let payload_bytes = self.payload_bytes - self.payload_bytes % 4096;
        Ok(Shape { slot_count: self.slot_count, payload_bytes })
    }
}

/// What a start works with.
struct Starter {
    config: FilesConfig,
    shape: Shape,
    host: Arc<dyn Host>,
    ledger: Box<dyn Ledger>,
    made: Made,
    at: PathBuf,
    socket: PathBuf,
    taken_up: TakenUp,
}

impl Files {
    /// Takes up what a daemon before has left, or begins again. The engine must be ready to serve the recorded spaces.
    ///
    /// At most one process of the host may do this for one run folder: the caller holds a lock.
    ///
    /// # Errors
    /// [`StartError`]. What a daemon before has left is still there then, and may be taken up later.
    pub fn start(
        config: FilesConfig,
        host: Arc<dyn Host>,
        ledger: Box<dyn Ledger>,
    ) -> Result<(Self, TakenUp), StartError> {
        let shape = config.check()?;
        let made = ledger.load()?;
        // What exists lies where it was recorded, whatever the settings say now.
        let at = made.mount.clone().unwrap_or_else(|| config.folder());
        let socket = made.descriptor_holder.clone().unwrap_or_else(|| config.run.join("descriptor-holder"));
        let taken_up = TakenUp::default();
        Starter { config, shape, host, ledger, made, at, socket, taken_up }.run()
    }

    /// Clears what a daemon before has attached over rings, and begins nothing: what is reported as lost is attached no
    /// more, and this host need not have FUSE over io_uring any longer.
    ///
    /// At most one process of the host may do this for one run folder: the caller holds a lock.
    ///
    /// # Errors
    /// [`StartError`]. What is still there then may be cleared later.
    pub fn clear_rings(
        config: FilesConfig,
        host: Arc<dyn Host>,
        ledger: Box<dyn Ledger>,
    ) -> Result<TakenUp, StartError> {
        assert!(config.channel == Channel::Rings, "what survives its daemon is taken up, not cleared");
        let shape = config.check()?;
        let made = ledger.load()?;
        let at = made.mount.clone().unwrap_or_else(|| config.folder());
        let socket = PathBuf::new();
        let mut starter =
            Starter { config, shape, host, ledger, made, at, socket, taken_up: TakenUp::default() };
        starter.forget_other_boots()?;
        starter.clear_remains()?;
        starter.made.mount = None;
        starter.ledger.store(&starter.made)?;
        Ok(starter.taken_up)
    }
}

impl Starter {
    fn run(mut self) -> Result<(Files, TakenUp), StartError> {
        if self.config.channel == Channel::Rings {
            return self.run_over_rings();
        }
        self.forget_other_boots()?;
        let descriptor_holder = DescriptorHolder::find(&self.socket)?;
        let kept = descriptor_holder.as_ref().map_or(Ok(None), DescriptorHolder::get)?;
        match (descriptor_holder, kept) {
            (Some(descriptor_holder), Some(kept)) if is_connected(&kept.fuse) => {
                self.resume(descriptor_holder, kept)
            }
            (descriptor_holder, kept) => {
                drop(kept);
                if let Some(descriptor_holder) = descriptor_holder {
                    descriptor_holder.end()?;
                }
                self.clear_remains()?;
                self.begin()
            }
        }
    }

    fn forget_other_boots(&mut self) -> Result<(), StartError> {
        let path = "/proc/sys/kernel/random/boot_id";
        let boot_id = fs::read_to_string(path)
            .map_err(|source| StartError::System { doing: "reading the id of this start", source })?;
        let boot_id = boot_id.trim().to_owned();
        if self.made.boot_id != boot_id {
            let before = std::mem::replace(&mut self.made, Made { boot_id, ..Made::default() });
            self.taken_up.lost = before.attachments;
            self.at = self.config.folder();
            self.socket = self.config.run.join("descriptor-holder");
        }
        Ok(())
    }

    /// Takes up a live connection.
    fn resume(
        mut self,
        descriptor_holder: DescriptorHolder,
        kept: Kept,
    ) -> Result<(Files, TakenUp), StartError> {
        let region = Region::adopt(kept.slots)?;
        let nodes = Nodes::default();
        for attachment in &mut self.made.attachments {
            if let Some(size) = self.host.size(attachment.space) {
                attachment.size_bytes = size.0;
            }
            nodes.insert(node_of(attachment));
        }
        let shared = self.share(kept.fuse, region, None, nodes)?;
        let resent = self.unanswered(&shared) == Unanswered::Resent && shared.ask_to_resend().is_ok();
        if !resent {
            shared.replay();
        }
        let readers = self.read(&shared)?;
        if !shared.wait_negotiated(NEGOTIATION_LIMIT) {
            return Err(StartError::NotNegotiated { at: self.at });
        }
        descriptor_holder.watch()?;
        self.sort_attachments(&shared);
        self.retry_stranded();
        self.finish(shared, Some(descriptor_holder), readers)
    }

    /// Tells attachments that go on from those that were half made.
    fn sort_attachments(&mut self, shared: &Shared) {
        for attachment in std::mem::take(&mut self.made.attachments) {
            match device_of(&attachment, &self.at) {
                Some(device) => {
                    let link = link_of(&self.config.links, &attachment);
                    if let Err(error) = dolmen_attach::link(&link, &device.path()) {
                        tracing::warn!(link = %link.display(), %error, "renewing the link to an attached space failed; use the loop device");
                    }
                    self.made.attachments.push(attachment);
                }
                None => {
                    shared.nodes.remove(attachment.node);
                    self.taken_up.lost.push(attachment);
                }
            }
        }
    }

    /// Clears what a connection that has ended left behind.
    fn clear_remains(&mut self) -> Result<(), StartError> {
        if self.config.channel == Channel::Rings && mount::mounted(&self.at) == Mounted::Ours {
            // It has ended with its daemon; whoever held it open all the same is not to hold up who looks at its files.
            mount::abort(&self.at);
        }
        self.retry_stranded();
        for attachment in std::mem::take(&mut self.made.attachments) {
            self.strand_or_clear(attachment.clone());
            let link = link_of(&self.config.links, &attachment);
            if let Some(number) = attachment.loop_number {
                dolmen_attach::unlink(&link, &LoopDevice { number }.path());
            }
            self.taken_up.lost.push(attachment);
        }
        match mount::mounted(&self.at) {
            Mounted::Nothing => {}
            Mounted::Ours => mount::unmount_dead(&self.at)?,
            Mounted::Other { kind } => {
                return Err(MountError::Occupied { at: self.at.clone(), found: kind }.into());
            }
        }
        Ok(())
    }

    fn retry_stranded(&mut self) {
        for attachment in std::mem::take(&mut self.made.stranded) {
            self.strand_or_clear(attachment);
        }
    }

    fn strand_or_clear(&mut self, attachment: Attachment) {
        let Some(device) = device_of(&attachment, &self.at) else { return };
        let by = holders(&device.path());
        if by.is_empty() && matches!(device.clear(), Ok(Cleared::Done)) {
            return;
        }
        let device = device.path();
        tracing::warn!(device = %device.display(), file = file_name(&attachment), "a loop device of a daemon before is dead and still in use; unmount or close it");
        self.made.stranded.push(attachment.clone());
        self.taken_up.stranded.push(Stranded { attachment, device, by });
    }

    /// Begins again.
    fn begin(mut self) -> Result<(Files, TakenUp), StartError> {
        let fuse = mount::open_fuse()?;
        let region = Region::create(self.shape)?;
        (self.made.mount, self.made.descriptor_holder) = (Some(self.at.clone()), Some(self.socket.clone()));
        self.made.node_last = self.made.node_last.max(ROOT_NODE);
        self.ledger.store(&self.made)?;
        let descriptor_holder = DescriptorHolder::start(&self.config.descriptor_holder, &self.socket)?;
        match self.open(fuse, region, &descriptor_holder) {
            Ok((shared, readers)) => self.finish(shared, Some(descriptor_holder), readers),
            Err(error) => {
                // Nothing is attached yet, so nobody misses what is taken away here; what stays is recorded.
                let _ = mount::unmount_dead(&self.at);
                let _ = descriptor_holder.end();
                Err(error)
            }
        }
    }

    fn open(
        &self,
        fuse: OwnedFd,
        region: Region,
        descriptor_holder: &DescriptorHolder,
    ) -> Result<(Arc<Shared>, Readers), StartError> {
        descriptor_holder.put(fuse.as_fd(), region.file())?;
        mount::mount(&fuse, &self.at)?;
        let shared = self.share(fuse, region, None, Nodes::default())?;
        let readers = self.read(&shared)?;
        self.negotiate(&shared, readers, || descriptor_holder.watch().map_err(StartError::from))
    }

    /// Waits until the kernel and we agree, and does what comes then; without it the reading threads end.
    fn negotiate(
        &self,
        shared: &Arc<Shared>,
        readers: Readers,
        then: impl FnOnce() -> Result<(), StartError>,
    ) -> Result<(Arc<Shared>, Readers), StartError> {
        let agreed = if shared.wait_negotiated(NEGOTIATION_LIMIT) {
            then()
        } else {
            Err(StartError::NotNegotiated { at: self.at.clone() })
        };
        match agreed {
            Ok(()) => Ok((Arc::clone(shared), readers)),
            Err(error) => {
                shared.let_go();
                readers.join();
                Err(error)
            }
        }
    }

    /// Clears what is left of rings, which end with their daemon, and begins again.
    fn run_over_rings(mut self) -> Result<(Files, TakenUp), StartError> {
        let queue_count = ring::queue_count()?;
        self.forget_other_boots()?;
        self.clear_remains()?;
        let fuse = mount::open_fuse()?;
        let region = Region::create(Shape { slot_count: EXTRA_SLOTS, ..self.shape })?;
        let shape = EntriesShape::of_queues(queue_count, self.shape.payload_bytes)
            .ok_or(RingsUnusable::Processors { found: queue_count })?;
        let doing = "mapping the entries of rings";
        let entries = Entries::map(shape).map_err(|source| StartError::System { doing, source })?;
        (self.made.mount, self.made.descriptor_holder) = (Some(self.at.clone()), None);
        self.made.node_last = self.made.node_last.max(ROOT_NODE);
        self.ledger.store(&self.made)?;
        match self.open_over_rings(fuse, region, entries) {
            Ok((shared, readers)) => self.finish(shared, None, readers),
            Err(error) => {
                // Nothing is attached yet; what stays is recorded.
                mount::abort(&self.at);
                let _ = mount::unmount_dead(&self.at);
                Err(error)
            }
        }
    }

    fn open_over_rings(
        &self,
        fuse: OwnedFd,
        region: Region,
        entries: Entries,
    ) -> Result<(Arc<Shared>, Readers), StartError> {
        mount::mount(&fuse, &self.at)?;
        let shared = self.share(fuse, region, Some(entries), Nodes::default())?;
        let readers = self.read(&shared)?;
        let doing = "giving the entries of rings to the kernel";
        self.negotiate(&shared, readers, || {
            ring::start(&shared).map_err(|source| StartError::System { doing, source })
        })
    }

    fn share(
        &self,
        fuse: OwnedFd,
        region: Region,
        entries: Option<Entries>,
        nodes: Nodes,
    ) -> Result<Arc<Shared>, StartError> {
        let shared = Shared::new(fuse, region, entries, nodes, Arc::clone(&self.host));
        shared.map(Arc::new).map_err(|error| StartError::System {
            doing: "setting up the connection to the kernel",
            source: error.into(),
        })
    }

    fn read(&self, shared: &Arc<Shared>) -> Result<Readers, StartError> {
        Readers::start(shared, self.config.thread_count)
            .map_err(|source| StartError::System { doing: "starting the reading threads", source })
    }

    fn unanswered(&self, shared: &Shared) -> Unanswered {
        if self.config.channel == Channel::Rings {
            return Unanswered::Failed;
        }
        match (self.config.recovery, shared.region.negotiated()) {
            (Recovery::Best, Some((_, true))) => Unanswered::Resent,
            (Recovery::Best | Recovery::Replay, _) => Unanswered::Replayed,
        }
    }

    fn finish(
        mut self,
        shared: Arc<Shared>,
        descriptor_holder: Option<DescriptorHolder>,
        readers: Readers,
    ) -> Result<(Files, TakenUp), StartError> {
        let survival = Survival { unanswered: self.unanswered(&shared), absence_s_max: absence_s_max() };
        self.ledger.store(&self.made)?;
        let inner = Inner { made: self.made, ledger: self.ledger, descriptor_holder, readers: Some(readers) };
        let files = Files {
            shared,
            inner: Mutex::new(inner),
            at: self.at,
            links: self.config.links,
            read_ahead_kib: self.config.read_ahead_kib,
            descriptor_holder_program: self.config.descriptor_holder,
            survival,
        };
        self.taken_up.resumed = files.attached();
        Ok((files, self.taken_up))
    }
}

/// Whether the connection is mounted and has not ended.
fn is_connected(fuse: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fuse, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut fds, Some(&now)) {
        Ok(_) | Err(Errno::INTR) => fds.iter().all(|fd| !fd.revents().contains(PollFlags::ERR)),
        Err(_) => false,
    }
}

/// The host's limit on how long a request may wait, if it has one.
fn absence_s_max() -> Option<u64> {
    let read = |name: &str| {
        let text = fs::read_to_string(Path::new("/proc/sys/fs/fuse").join(name)).ok()?;
        text.trim().parse::<u64>().ok().filter(|limit| *limit > 0)
    };
    [read("default_request_timeout"), read("max_request_timeout")].into_iter().flatten().min()
}
