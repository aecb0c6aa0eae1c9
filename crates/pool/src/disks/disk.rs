//! A member of an open pool: its device while it is there, and what has become of it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{
    BlockDevice, DeviceError, Durability, Geometry, Meter, discard, flush, read_within, write,
};
use dolmen_buffer::{Buffer, Shared};
use dolmen_disk::{Extent, Member};
use dolmen_mutation::mutation;
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskId, DiskSlot, Epoch};

use crate::disks::condition::{Absence, Activity, LabelState};

/// Whether a member can be used now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskState {
    /// It is here, and takes part.
    Present,
    /// It is not here, or left because it missed a write.
    Absent,
}

/// What is known against a disk that is here. Whoever finds that out says so ([`Disk::set_ailment`]); the pool decides nothing by
/// itself.
///
/// The order is that in which disks are done without: a failing one before a slow one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ailment {
    /// It takes much longer than the others.
    Slow,
    /// It makes errors, or says that it will fail.
    Failing,
}

/// What was seen of a disk since the pool was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounters {
    /// Reads that failed.
    pub read_errors: u64,
    /// Reads that were not answered in time, and asked of somebody else.
    pub timed_out_reads: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Of them, writes for which the file, or the thin device, found no room below.
    pub backing_full_writes: u64,
    /// Blocks whose content did not match their checksum.
    pub checksum_errors: u64,
    /// Blocks that were rewritten from another copy.
    pub healed_blocks: u64,
}

struct Attachment {
    device: Rc<dyn BlockDevice>,
    extent: Extent,
    /// How long its commands take, where that is measured.
    meter: Option<Rc<Meter>>,
}

impl Attachment {
    fn new(device: Rc<dyn BlockDevice>, extent: Extent) -> Self {
        let meter = device.meter();
        Self { device, extent, meter }
    }
}

/// A member of an open pool.
///
/// Commands to a disk that is absent complete at once with [`DeviceError::Detached`], so callers treat "left already" and
/// "fails now" alike.
pub struct Disk {
    slot: DiskSlot,
    id: DiskId,
    member: Cell<Member>,
    attachment: RefCell<Option<Attachment>>,
    /// Allocation units that its free runs and slabs make up, where its device has grown since it was claimed.
    units_on_record: Cell<Option<u64>>,
    /// What its device was called while it was here.
    last_name: RefCell<String>,
    absence: Absence,
    token: Cell<Epoch>,
    /// How often it was seated.
    seating: Cell<u64>,
    pub(crate) activity: Activity,
    labels: LabelState,
    under_way: Cell<u32>,
    counters: Cell<DiskCounters>,
    /// Whether a read was late, and nothing was answered since.
    unresponsive: Cell<bool>,
    /// Why it is asked only where nobody else has what it has, and gets new slabs last.
    ailment: Cell<Option<Ailment>>,
}

impl Disk {
    pub(crate) fn new(
        member: Member,
        attachment: Option<(Rc<dyn BlockDevice>, Extent)>,
        token: Epoch,
    ) -> Rc<Self> {
        let last_name = attachment.as_ref().map(|(device, _)| device.name()).unwrap_or_default();
        Rc::new(Self {
            last_name: RefCell::new(last_name),
            units_on_record: Cell::default(),
            absence: Absence::default(),
            slot: member.slot,
            id: member.disk,
            member: Cell::new(member),
            attachment: RefCell::new(attachment.map(|(device, extent)| Attachment::new(device, extent))),
            token: Cell::new(token),
            activity: Activity::default(),
            labels: LabelState::default(),
            seating: Cell::new(1),
            under_way: Cell::new(0),
            counters: Cell::default(),
            unresponsive: Cell::default(),
            ailment: Cell::default(),
        })
    }

    /// Its place in the table of members.
    #[must_use]
    pub fn slot(&self) -> DiskSlot {
        self.slot
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> DiskId {
        self.id
    }

    /// Its entry in the table of members.
    #[must_use]
    pub fn member(&self) -> Member {
        self.member.get()
    }

    /// Returns the state of its label.
    #[must_use]
    pub fn labels(&self) -> &LabelState {
        &self.labels
    }

    /// Returns why it is not used.
    #[must_use]
    pub fn absence(&self) -> &Absence {
        &self.absence
    }

    pub(crate) fn set_member(&self, member: Member) {
        self.member.set(member);
    }

    pub(crate) fn set_token(&self, token: Epoch) {
        self.token.set(token);
    }

    /// Whether it takes part now.
    #[must_use]
    pub fn state(&self) -> DiskState {
        let attached = self.attachment.borrow().is_some();
        if attached && !self.member.get().is_away() { DiskState::Present } else { DiskState::Absent }
    }

    /// Whether it takes part now.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.state() == DiskState::Present
    }

    /// The device, while it is here.
    #[must_use]
    pub fn device(&self) -> Option<Rc<dyn BlockDevice>> {
        self.attachment.borrow().as_ref().map(|attachment| Rc::clone(&attachment.device))
    }

    /// How the device is cut, while it is here.
    #[must_use]
    pub fn extent(&self) -> Option<Extent> {
        self.attachment.borrow().as_ref().map(|attachment| attachment.extent)
    }

    /// Returns its size, and what is known of its growth.
    #[must_use]
    pub fn size(&self) -> DiskSize<'_> {
        DiskSize(self)
    }

    /// What the device is called here; while it is not here, what it was called when it was, or else its identity.
    #[must_use]
    pub fn name(&self) -> String {
        let last = || Some(self.last_name.borrow().clone()).filter(|name| !name.is_empty());
        let name = self.device().map(|device| device.name()).or_else(last);
        name.unwrap_or_else(|| format!("disk {}", self.id.short()))
    }

    /// What it was called where it was seen last, as whoever opened the pool before remembers it. Of one that is here, or was
    /// seen since, nothing is changed.
    pub fn note_last_name(&self, name: String) {
        let mut last = self.last_name.borrow_mut();
        if last.is_empty() {
            *last = name;
        }
    }

    pub(crate) fn note_unfit(&self, name: String, why: &dyn std::error::Error) {
        *self.last_name.borrow_mut() = name;
        self.absence.note_unfit(why.to_string());
    }

    /// The device's geometry, while it is here.
    #[must_use]
    pub fn geometry(&self) -> Option<Geometry> {
        self.device().map(|device| device.geometry())
    }

    /// What was seen of it since the pool was opened.
    #[must_use]
    pub fn counters(&self) -> DiskCounters {
        self.counters.get()
    }

    /// Counts something that was seen.
    pub fn note(&self, change: impl FnOnce(&mut DiskCounters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    /// Gives the device up: nothing more is sent to it. Commands under way are its own business.
    pub(crate) fn unseat(&self, fence: Epoch) {
        if let Some(attachment) = self.attachment.borrow_mut().take() {
            // It may have been renamed since it was seated.
            *self.last_name.borrow_mut() = attachment.device.name();
            attachment.device.fence(fence);
        }
    }

    pub(crate) fn attachment(&self, device: Rc<dyn BlockDevice>, extent: Extent) {
        *self.last_name.borrow_mut() = device.name();
        self.absence.clear();
        *self.attachment.borrow_mut() = Some(Attachment::new(device, extent));
        self.seating.set(self.seating.get() + 1);
        self.activity.note();
    }

    /// Changes whenever the device was away and is back.
    #[must_use]
    pub fn seating(&self) -> u64 {
        self.seating.get()
    }

    /// Bytes of data area.
    #[must_use]
    pub fn data_bytes(&self) -> Bytes {
        self.extent().map_or(Bytes::ZERO, |extent| Bytes(extent.unit_count() * ALLOCATION_UNIT_BYTES))
    }

    /// Writes and reads under way: how busy it is, for choosing a copy.
    #[must_use]
    pub fn load(&self) -> u32 {
        self.under_way.get()
    }

    /// How long a read of it takes these days, whatever it reads; zero where nobody measures or knows.
    #[must_use]
    pub fn read_latency(&self) -> Duration {
        self.attachment
            .borrow()
            .as_ref()
            .and_then(|attachment| Some(attachment.meter.as_ref()?.read_latency()))
            .unwrap_or_default()
    }

    /// Whether a read of it was late, and it has answered nothing since: it may hang.
    #[must_use]
    pub fn is_unresponsive(&self) -> bool {
        self.unresponsive.get()
    }

    /// What is known against it.
    #[must_use]
    pub fn ailment(&self) -> Option<Ailment> {
        self.ailment.get()
    }

    /// Whether reads ask it only where nobody else has what it has.
    #[must_use]
    pub fn is_shunned(&self) -> bool {
        self.ailment.get().is_some()
    }

    /// Has reads ask others, and new slabs go to others, as far as they can.
    pub fn set_ailment(&self, ailment: Option<Ailment>) {
        self.ailment.set(ailment);
    }

    /// Whether a completed write may rest in the device's cache.
    #[must_use]
    pub fn needs_flush(&self) -> bool {
        self.activity.needs_flush()
    }

    fn begin(self: &Rc<Self>, wrote: bool) -> UnderWay {
        self.under_way.set(self.under_way.get() + 1);
        if wrote {
            self.activity.note();
        }
        UnderWay { disk: Rc::clone(self), wrote }
    }

    fn attached(&self) -> Option<Rc<dyn BlockDevice>> {
        let present = !self.member.get().is_away();
        self.attachment.borrow().as_ref().filter(|_| present).map(|attachment| Rc::clone(&attachment.device))
    }

    /// The device, and where on it the bytes from `at` on of the data area are. Behind that area there are labels.
    fn attached_for(&self, at: u64, length: u64) -> Result<(Rc<dyn BlockDevice>, u64), DeviceError> {
        let attachment = self.attachment.borrow();
        let attachment =
            attachment.as_ref().filter(|_| !self.member.get().is_away()).ok_or(DeviceError::Detached)?;
        let (device, extent) = (Rc::clone(&attachment.device), attachment.extent);
        if mutation!(SlabBeyondItsDisk) {
            return Ok((device, extent.data_start + at));
        }
        let start = extent.data_start.checked_add(at).ok_or(DeviceError::OutOfRange)?;
        let end = start.checked_add(length).ok_or(DeviceError::OutOfRange)?;
        if end > extent.data_end { Err(DeviceError::OutOfRange) } else { Ok((device, start)) }
    }

    /// Reads from byte `at` of the data area. Submitted at the call.
    pub fn read(
        self: &Rc<Self>,
        at: u64,
        into: Buffer,
    ) -> impl Future<Output = (Buffer, Result<(), DeviceError>)> + use<> {
        self.read_within(at, into, None)
    }

    /// As [`read`](Self::read). One that takes longer than `within` is answered with [`DeviceError::TimedOut`] and another
    /// buffer, for somebody else to fill; that is no error of the disk.
    pub fn read_within(
        self: &Rc<Self>,
        at: u64,
        into: Buffer,
        within: Option<Duration>,
    ) -> impl Future<Output = (Buffer, Result<(), DeviceError>)> + use<> {
        let guard = self.begin(false);
        let started = match self.attached_for(at, into.len() as u64) {
            Ok((device, start)) => Ok(read_within(device.as_ref(), self.token.get(), (start, within), into)),
            Err(error) => Err((into, error)),
        };
        async move {
            let (buffer, result) = match started {
                Ok(reading) => reading.await,
                Err((buffer, error)) => (buffer, Err(error)),
            };
            match result {
                Ok(()) => guard.disk.unresponsive.set(false),
                Err(DeviceError::TimedOut) if within.is_some() => {
                    guard.disk.unresponsive.set(true);
                    guard.disk.note(|counters| counters.timed_out_reads += 1);
                }
                Err(_) => guard.disk.note(|counters| counters.read_errors += 1),
            }
            (buffer, result)
        }
    }

    /// Writes to byte `at` of the data area. Submitted at the call.
    pub fn write(
        self: &Rc<Self>,
        at: u64,
        from: Shared,
        durability: Durability,
    ) -> impl Future<Output = Result<(), DeviceError>> + use<> {
        let guard = self.begin(true);
        let started = self
            .attached_for(at, from.len() as u64)
            .map(|(device, start)| write(device.as_ref(), self.token.get(), start, from, durability));
        async move {
            let result = match started {
                Ok(writing) => writing.await,
                Err(error) => Err(error),
            };
            if result.is_ok() {
                guard.disk.unresponsive.set(false);
            }
            if let Err(error) = result {
                guard.disk.note(|counters| {
                    counters.write_errors += 1;
                    counters.backing_full_writes += u64::from(error == DeviceError::NoSpace);
                });
            }
            result
        }
    }

    /// Tells the device that a range of its data area is not needed. Submitted at the call. A device that cannot forget
    /// loses nothing by that.
    pub fn discard(self: &Rc<Self>, at: u64, length: u64) -> impl Future<Output = ()> + use<> {
        let guard = self.begin(true);
        let able = |device: &Rc<dyn BlockDevice>| device.geometry().discard_granularity_bytes.is_some();
        let started = self
            .attached_for(at, length)
            .ok()
            .filter(|(device, _)| able(device))
            .map(|(device, start)| discard(device.as_ref(), self.token.get(), start, length));
        async move {
            if let Some(started) = started {
                let _ = started.await;
            }
            drop(guard);
        }
    }

    /// Makes every completed write durable; nothing is sent when nothing was written since the last good flush.
    /// Submitted at the call.
    pub fn flush(self: &Rc<Self>) -> impl Future<Output = Result<(), DeviceError>> + use<> {
        let disk = Rc::clone(self);
        let covered = disk.activity.covered();
        let needed = disk.needs_flush();
        let started = self.attached().map(|device| needed.then(|| flush(device.as_ref(), self.token.get())));
        async move {
            let result = match started {
                None => Err(DeviceError::Detached),
                Some(None) => Ok(()),
                Some(Some(flushing)) => flushing.await,
            };
            match result {
                Ok(()) => disk.activity.note_flushed(covered),
                Err(_) => disk.note(|counters| counters.write_errors += 1),
            }
            result
        }
    }

    /// Notes a write that went to the device beside [`write`](Self::write): label, log or metadata page.
    pub(crate) fn note_other_write(&self) {
        self.activity.note();
    }
}

/// Size of a member, also while it is not here.
#[derive(Clone, Copy)]
pub struct DiskSize<'a>(&'a Disk);

impl DiskSize<'_> {
    /// Size of the device as far as it is used.
    #[must_use]
    pub fn capacity(self) -> Bytes {
        self.extent().map_or(self.0.member().capacity, |extent| extent.capacity)
    }

    /// How the device is cut; while it is not here, by its size when it was claimed, and by what the map says of growth since.
    #[must_use]
    pub fn extent(self) -> Option<Extent> {
        self.0.extent().or_else(|| {
            let claimed = Extent::of(self.0.member().capacity).ok()?;
            let units = self.on_record().unwrap_or_default();
            let more = units.saturating_sub(claimed.unit_count()) * ALLOCATION_UNIT_BYTES;
            let capacity = Bytes(claimed.capacity.0 + more);
            Some(Extent { capacity, data_end: claimed.data_end + more, ..claimed })
        })
    }

    /// Data area that its device has gained and that is not used: since its label was written, or by a growth that has ended between
    /// its labels and the map.
    #[must_use]
    pub fn gained(self) -> Bytes {
        let attachment = self.0.attachment.borrow();
        let Some(Attachment { device, extent, .. }) = attachment.as_ref() else { return Bytes::ZERO };
        let grown = extent.grown_to(device.size_now()).unwrap_or(*extent);
        let used = self.on_record().unwrap_or_else(|| extent.unit_count());
        Bytes(grown.unit_count().saturating_sub(used).saturating_mul(ALLOCATION_UNIT_BYTES))
    }

    /// Allocation units that its free runs and slabs make up.
    pub(crate) fn units(self) -> u64 {
        let by_extent = || self.extent().map_or(0, |extent| extent.unit_count());
        self.on_record().unwrap_or_else(by_extent)
    }

    /// As [`units`](Self::units), where the map says so: its device has grown.
    pub(crate) fn on_record(self) -> Option<u64> {
        self.0.units_on_record.get()
    }

    pub(crate) fn set_on_record(self, units: Option<u64>) {
        self.0.units_on_record.set(units);
    }

    /// Changes the cut of the device: what lies on it stays where it is.
    pub(crate) fn set_extent(self, extent: Extent) {
        if let Some(attachment) = self.0.attachment.borrow_mut().as_mut() {
            attachment.extent = extent;
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk({}, {}, {:?})", self.slot, self.name(), self.state())
    }
}

/// A command under way; its end is counted even if nobody waits for it any more.
struct UnderWay {
    disk: Rc<Disk>,
    wrote: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.disk.under_way.set(self.disk.under_way.get() - 1);
        if self.wrote {
            self.disk.activity.note();
        }
    }
}
