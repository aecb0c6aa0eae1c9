//! Starting: taking up what a daemon before has left.
//!
//! | found | done |
//! |---|---|
//! | another start of the machine | nothing is left; what was attached is reported as lost |
//! | no device with that number and mark | forgotten, reported as lost |
//! | ours, dead: made and never started, or stopped and not deleted | deleted, reported as lost |
//! | ours, quiesced | served again: every request goes on |
//! | ours, and the engine does not know the space: its pool is not open | reported as waiting, and so are its requests, until it does |
//! | ours, and its server is not gone | waited for; after ten seconds reported as waiting, and tried again later |

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex};

use dolmen_attach::{SpaceKey, link};
use rustix::io::Errno;

use crate::control::{Control, Unusable};
use crate::devices::{Attached, DeviceError, Devices, DevicesConfig, Inner, LOOKS_MAX, PAUSE};
use crate::record::{Attachment, Made, Record, RecordError};
use crate::request::Host;
use crate::wire::State;

/// Why a device is not served though it could be.
const UNKNOWN: &str = "the pool of its space is not open; its I/O waits until the pool is imported";

/// A device that nobody serves. Its I/O waits.
#[derive(Debug)]
pub struct Waiting {
    /// What it is.
    pub attached: Attached,
    /// Why it is not served.
    pub error: DeviceError,
}

impl Waiting {
    /// Whether the kernel has not put back yet what the server before had of it, which passes.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.error.source.raw_os_error() == Some(Errno::BUSY.raw_os_error())
    }
}

/// What a start has found.
#[derive(Debug, Default)]
pub struct TakenUp {
    /// Attached spaces that go on.
    pub resumed: Vec<Attached>,
    /// Attached spaces that could not be taken up, and stay.
    pub waiting: Vec<Waiting>,
    /// Those that were attached, or about to be, and are not any more.
    pub lost: Vec<Attachment>,
}

/// Why ublk devices cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// This host cannot.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// The system refused something basic.
    #[error("offering ublk devices: {doing}: {source}")]
    System {
        /// What.
        doing: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The record.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl Devices {
    /// Takes up what a daemon before has left. The engine must be ready to serve the recorded spaces; those that it does
    /// not know wait for [`take_up_waiting`](Self::take_up_waiting).
    ///
    /// At most one process of the host may do this for one run folder: the caller holds a lock.
    ///
    /// # Errors
    /// [`StartError`]. What a daemon before has left is still there then, and may be taken up later.
    pub fn start(
        config: DevicesConfig,
        host: Arc<dyn Host>,
        record: Box<dyn Record>,
    ) -> Result<(Self, TakenUp), StartError> {
        let mut made = record.load()?;
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_err(|source| StartError::System { doing: "reading the id of this start", source })?;
        let boot_id = boot_id.trim().to_owned();
        let mut taken_up = TakenUp::default();
        if made.boot_id != boot_id {
            taken_up.lost = std::mem::take(&mut made.attachments);
            made = Made { boot_id, ..made };
        }
        record.store(&made)?;
        let control = Control::open().inspect_err(|_| {
            for one in &taken_up.lost {
                tracing::warn!(pool = %one.pool_name, space = %one.space_name, "was attached, and is not any more");
            }
        })?;
        let inner = Inner { made, record, queues: BTreeMap::new() };
        let devices = Self { control, config, host, inner: Mutex::new(inner) };
        devices.take_up(&mut taken_up)?;
        Ok((devices, taken_up))
    }

    /// Whether a daemon before has left something: else nothing has to be started before it is needed.
    ///
    /// # Errors
    /// [`RecordError`], when the record cannot be read.
    pub fn are_remaining(record: &dyn Record) -> Result<bool, RecordError> {
        record.load().map(|made| !made.attachments.is_empty())
    }

    /// Whether a space is on record, whoever serves it now: another device on it would be a second writer.
    ///
    /// # Errors
    /// [`RecordError`], when the record cannot be read.
    pub fn is_on_record(record: &dyn Record, space: SpaceKey) -> Result<bool, RecordError> {
        record.load().map(|made| made.attachments.iter().any(|one| one.space == space))
    }

    fn take_up(&self, taken_up: &mut TakenUp) -> Result<(), RecordError> {
        let mut inner = self.lock();
        for attachment in inner.made.attachments.clone() {
            match self.take_up_one(&mut inner, &attachment) {
                Ok(true) => {
                    let attached = self.describe(&attachment);
                    if let Err(error) = link(&attached.link, &attached.device) {
                        tracing::warn!(link = %attached.link.display(), %error, "renewing the link to an attached space failed; use the device");
                    }
                    taken_up.resumed.push(attached);
                }
                Ok(false) => taken_up.lost.push(attachment),
                Err(error) => {
                    taken_up.waiting.push(Waiting { attached: self.describe(&attachment), error });
                }
            }
        }
        inner.record.store(&inner.made)
    }

    /// Whether it goes on; false when nothing is left of it.
    fn take_up_one(&self, inner: &mut Inner, attachment: &Attachment) -> Result<bool, DeviceError> {
        match self.state(attachment)? {
            None | Some(State::Dead) => {
                // What cannot be deleted now is tried by the next start.
                match self.delete(inner, attachment) {
                    Ok(()) => {}
                    Err(error) => {
                        tracing::warn!(device = %attachment.device().device().display(), %error, "a device that was never shown could not be deleted; the next start tries again");
                    }
                }
                Ok(false)
            }
            Some(State::Live | State::Quiesced | State::Other(_)) => {
                self.serve_again(inner, attachment)?;
                Ok(true)
            }
        }
    }

    /// Takes up those that nobody serves and whose spaces the engine knows by now: of a pool that was opened.
    #[must_use]
    pub fn take_up_waiting(&self) -> TakenUp {
        let mut inner = self.lock();
        let mut taken_up = TakenUp::default();
        for attachment in inner.made.attachments.clone() {
            let is_served = inner.queues.contains_key(&attachment.space);
            if is_served || self.host.size(attachment.space).is_none() {
                continue;
            }
            let attached = self.describe(&attachment);
            match self.serve_again(&mut inner, &attachment) {
                Ok(()) => taken_up.resumed.push(attached),
                Err(error) => taken_up.waiting.push(Waiting { attached, error }),
            }
        }
        taken_up
    }

    /// Serves a device that a daemon before, or a failure, has left without a server. Not one of a space that the engine
    /// does not know: each of its requests would fail, and they can wait.
    pub(crate) fn serve_again(&self, inner: &mut Inner, attachment: &Attachment) -> Result<(), DeviceError> {
        if inner.queues.contains_key(&attachment.space) {
            return Ok(());
        }
        if self.host.size(attachment.space).is_none() {
            let (device, source) = (attachment.device().device(), io::Error::other(UNKNOWN));
            return Err(DeviceError { doing: "serving", device, source });
        }
        self.wait_quiesced(attachment)?;
        let queue = self.queue(attachment)?;
        match self.control.end_recovery(attachment.device()) {
            Ok(()) => {
                inner.queues.insert(attachment.space, queue);
                Ok(())
            }
            Err(error) => {
                queue.let_go();
                queue.join();
                Err(attachment.failed("taking over", error))
            }
        }
    }

    /// Waits until the kernel has noticed that the server before is gone, and has put its requests back.
    fn wait_quiesced(&self, attachment: &Attachment) -> Result<(), DeviceError> {
        let mut looks = 0;
        loop {
            let state = self.state(attachment)?;
            let begun = match state {
                Some(State::Quiesced) => self.control.begin_recovery(attachment.device()),
                Some(State::Live) => Err(Errno::BUSY),
                None | Some(State::Dead | State::Other(_)) => Err(Errno::INVAL),
            };
            match begun {
                Ok(()) => return Ok(()),
                Err(Errno::BUSY) if looks < LOOKS_MAX => {
                    looks += 1;
                    dolmen_attach::pause(PAUSE);
                }
                Err(error) => return Err(attachment.failed("taking over", error)),
            }
        }
    }
}
