//! Making a pool of devices, and preparing a device for a pool.
//!
//! Write order: every device is looked at before any is written. Then old signatures go, the log's ring is zeroed, the
//! empty map is written to the voters and flushed, and only then do labels say that there is a pool: the voters' last.
//! A crash before the last label leaves disks of a pool that never was; `create` names them and wants to be told to
//! overwrite them.

use std::rc::Rc;

use dolmen_block_io::{BlockDevice, DeviceError, Durability, Seams, Zoning, flush, write};
use dolmen_disk::{
    Contents, Extent, Generation, LOG_BYTES_MAX, LOG_BYTES_MIN, Label, METADATA_AT, Medium, Member,
    MemberState, look, wipe, write_label,
};
use dolmen_epoch::{EpochRecord, Owner};
use dolmen_future_pool::pooled;
use dolmen_journal::Ring;
use dolmen_store::{Area, Replica, Store};
use dolmen_units::{Bytes, DISKS_MAX, DiskId, DiskSlot, Epoch, Lsn, Name, PoolId};

use crate::arbiter::Arbiter;
use crate::change::Purpose;
use crate::checkpoint::LogNeed;
use crate::discover::{Candidate, lost_labels};
use crate::disk::Disk;
use crate::epochs::{Joining, VOTERS_WANTED};
use crate::error::{CreateError, PoolError, StrayReason};
use crate::free::FreeMap;
use crate::members::{raise, stray_reason};
use crate::open::{Opened, open_new};
use crate::pool::Pool;

/// A device that is an absent member.
#[derive(Debug)]
pub struct AbsentMember {
    /// The member.
    pub disk: Rc<Disk>,
    /// Its label.
    pub label: Box<Label>,
    /// Why all of it is stale, if it is as it was before.
    pub old: Option<StrayReason>,
    /// Where labels stood that something else was written over.
    pub(crate) lost_labels: Vec<u64>,
}

const MEBIBYTE: u64 = 1 << 20;
/// Length of the checkpoint slots between the beginning of the metadata area and the log.
pub const CHECKPOINT_BYTES: u64 = 64 * 1024;

/// For so many bytes of disks, a voter has a byte of metadata: 8 MiB for a TiB.
const METADATA_WANTED_SHARE: u64 = 128 * 1024;
/// So many voters at least, if there are as many disks, even if one of them makes the map small: all layouts with two
/// copies or one parity, and those with three copies or two parities, lose data before they lose all of these.
const VOTERS_ENOUGH: usize = 3;
const _: () = assert!(VOTERS_ENOUGH <= VOTERS_WANTED, "the least is no more than the usual");

/// How a pool is to be made.
#[derive(Debug, Clone)]
pub struct CreateOptions {
    /// Its name.
    pub name: Name,
    /// Names of devices whose content may be overwritten, whatever it is.
    pub overwrite: Vec<String>,
    /// A fault domain for each device, 0 for alone; missing ones are alone.
    pub fault_domains: Vec<u32>,
}

/// Where log and pages stand on every voter.
#[must_use]
pub fn areas(log: Bytes, pages: Bytes) -> (Ring, Area) {
    let log_at = METADATA_AT + CHECKPOINT_BYTES;
    let ring = Ring { at: log_at, length: log.0 };
    let area = Area { checkpoint_at: METADATA_AT, pages_at: log_at + log.0, pages_length: pages.0 };
    (ring, area)
}

/// The least metadata area of a voter with such a log and such pages.
pub(crate) fn metadata_needed(log: Bytes, pages: Bytes) -> Bytes {
    Bytes(CHECKPOINT_BYTES + log.0 + pages.0)
}

/// Makes a pool of the devices and opens it.
///
/// # Errors
/// [`CreateError`]; whatever is found before the first write is found on all devices before the first write.
#[pooled]
pub async fn create(
    seams: &Seams,
    arbiter: Rc<dyn Arbiter>,
    devices: &[Rc<dyn BlockDevice>],
    options: &CreateOptions,
) -> Result<Opened, CreateError> {
    let pool = PoolId(seams.entropy.next_id());
    create_as(seams, arbiter, devices, options, pool).await
}

/// As [`create`], under an identity that was drawn before, so that it can be on record before the first write.
///
/// # Errors
/// As there.
#[pooled]
pub async fn create_as(
    seams: &Seams,
    arbiter: Rc<dyn Arbiter>,
    devices: &[Rc<dyn BlockDevice>],
    options: &CreateOptions,
    pool: PoolId,
) -> Result<Opened, CreateError> {
    let extents = check_devices(seams, devices, &options.overwrite).await?;
    let members: Vec<Member> = (0u16..)
        .zip(devices)
        .zip(&extents)
        .map(|((slot, device), extent)| Member {
            disk: DiskId(seams.entropy.next_id()),
            capacity: extent.capacity,
            slot: DiskSlot(slot),
            state: MemberState::Active,
            fault_domain: options.fault_domains.get(usize::from(slot)).copied().unwrap_or(0),
            left: Epoch(0),
            successor: None,
            medium: Medium::of(&device.geometry()),
            sequence: 0,
        })
        .collect();
    let voters = choose_voters(devices, &members, &extents);
    let smallest = voters.iter().filter_map(|index| extents.get(*index)).map(|extent| extent.metadata).min();
    let (log, pages) = metadata_lengths(smallest.unwrap_or_default());
    let voter_ids: Vec<DiskId> =
        voters.iter().filter_map(|index| members.get(*index)).map(|m| m.disk).collect();
    let nonce = seams.entropy.next_u64();
    let epoch = EpochRecord::first(nonce, Owner::Host(arbiter.host()), voter_ids.clone(), Lsn(1))?;
    for (device, member) in devices.iter().zip(&members) {
        prepare(seams, device.as_ref(), log).await?;
        tracing::debug!(device = %device.name(), disk = %member.disk, "prepared");
    }
    let replicas: Vec<Replica> = devices
        .iter()
        .zip(&members)
        .filter(|(_, member)| voter_ids.contains(&member.disk))
        .map(|(device, member)| Replica { disk: member.disk, device: Rc::clone(device) })
        .collect();
    let (_, area) = areas(log, pages);
    Store::format(seams, Epoch(1), pool, area, &replicas, LogNeed::ALL.to_anchor()).await?;
    let generation = Generation { epoch: epoch.clone(), members: members.clone() };
    let label = |extent: &Extent, member: &Member| Label {
        pool,
        pool_name: options.name.clone(),
        disk: member.disk,
        sequence: 1,
        extent: *extent,
        log,
        pages,
        heartbeat: 0,
        base: generation.clone(),
        pending: None,
    };
    let mut candidates = Vec::new();
    for voting in [false, true] {
        for ((device, extent), member) in devices.iter().zip(&extents).zip(&members) {
            if voter_ids.contains(&member.disk) == voting {
                let label = label(extent, member);
                write_label(seams, device.as_ref(), Epoch(1), &label).await?;
                candidates.push(Candidate { device: Rc::clone(device), label, lost_labels: Vec::new() });
            }
        }
    }
    open_new(seams, arbiter, candidates).await.map_err(|error| CreateError::Open(Box::new(error)))
}

/// Looks at every device, and writes to none.
///
/// # Errors
/// The first reason not to make a pool of them.
#[pooled]
pub async fn check_devices(
    seams: &Seams,
    devices: &[Rc<dyn BlockDevice>],
    overwrite: &[String],
) -> Result<Vec<Extent>, CreateError> {
    if devices.is_empty() {
        return Err(CreateError::NoDisks);
    }
    if devices.len() > DISKS_MAX {
        return Err(CreateError::TooMany { found: devices.len(), limit: DISKS_MAX });
    }
    let mut extents = Vec::with_capacity(devices.len());
    for (index, device) in devices.iter().enumerate() {
        let name = device.name();
        if devices.iter().take(index).any(|other| other.name() == name) {
            return Err(CreateError::Twice { name });
        }
        extents.push(check_device(seams, device.as_ref(), overwrite.contains(&name)).await?);
    }
    Ok(extents)
}

#[pooled]
async fn check_device(
    seams: &Seams,
    device: &dyn BlockDevice,
    overwrite: bool,
) -> Result<Extent, CreateError> {
    let name = device.name();
    if device.geometry().zoning == Zoning::HostManaged {
        return Err(CreateError::Zoned { name });
    }
    let extent = Extent::of(device.geometry().capacity);
    let extent = extent.map_err(|source| CreateError::Extent { name: name.clone(), source })?;
    match look(seams, device).await? {
        _ if overwrite => Ok(extent),
        Contents::Empty => Ok(extent),
        Contents::Foreign(what) => Err(CreateError::Foreign { name, what }),
        Contents::Member { label, .. } => {
            Err(CreateError::Member { name, pool_name: label.pool_name.clone(), pool: label.pool })
        }
        Contents::Unusable(source) => Err(CreateError::Unusable { name, source }),
    }
}

/// The least metadata area that is enough for a pool of these disks, or for one that grows from them as far as its largest
/// disk suggests.
///
/// The smallest first voter decides for good how many pages the map has, so one small disk, however fast, must not: with a
/// disk of 32 GB beside others of 8 TB, rows of a few TB would fill the map. Rows of 64 MiB with two copies take some
/// 100 bytes for each 128 MiB of disks, free runs as much again, and claims use half of the pages: 4 MiB for a TiB. Twice
/// that is asked for. An area of a quarter of the largest disk's is enough in any case.
fn metadata_wanted(extents: &[Extent]) -> Bytes {
    let total: u64 = extents.iter().map(|extent| extent.capacity.0).sum();
    let largest = extents.iter().map(|extent| extent.metadata.0).max().unwrap_or(0);
    Bytes((largest / 4).min(total / METADATA_WANTED_SHARE))
}

/// Indices of the devices that carry the metadata: those with room for it first, then fast ones, then large ones, no two of
/// one fault domain while there are others. Those without room are taken only where there would be too few voters:
/// that all copies of the metadata are lost before the data is worse than a map that is full early.
fn choose_voters(devices: &[Rc<dyn BlockDevice>], members: &[Member], extents: &[Extent]) -> Vec<usize> {
    let wanted = metadata_wanted(extents);
    let is_small = |index: &usize| extents.get(*index).is_none_or(|extent| extent.metadata < wanted);
    let mut order: Vec<usize> = (0..members.len()).collect();
    let rank = |index: &usize| {
        let rotational = devices.get(*index).is_some_and(|device| device.geometry().rotational);
        let capacity = members.get(*index).map_or(Bytes::ZERO, |member| member.capacity);
        (is_small(index), rotational, std::cmp::Reverse(capacity), *index)
    };
    order.sort_by_key(rank);
    let ample = order.iter().filter(|index| !is_small(index)).count();
    order.truncate(ample.max(VOTERS_ENOUGH));
    let domain = |index: &usize| members.get(*index).map_or(0, |member| member.fault_domain);
    let mut chosen: Vec<usize> = Vec::new();
    for alone in [true, false] {
        for index in &order {
            let shares = domain(index) != 0 && chosen.iter().any(|other| domain(other) == domain(index));
            if chosen.len() < VOTERS_WANTED && !chosen.contains(index) && (!alone || !shares) {
                chosen.push(*index);
            }
        }
    }
    chosen
}

/// Lengths of log and pages for the smallest metadata area of any voter.
#[must_use]
pub fn metadata_lengths(smallest: Bytes) -> (Bytes, Bytes) {
    // A quarter of the smallest voter's metadata area, within bounds.
    let log = Bytes(smallest.0 / 4).align_down(MEBIBYTE).0.clamp(LOG_BYTES_MIN, LOG_BYTES_MAX);
    let pages = Bytes(smallest.0 - CHECKPOINT_BYTES - log).align_down(MEBIBYTE);
    (Bytes(log), pages)
}

/// Wipes old signatures and zeroes checkpoint slots and log, so that nothing of an earlier owner is taken for ours.
pub(crate) async fn prepare(seams: &Seams, device: &dyn BlockDevice, log: Bytes) -> Result<(), CreateError> {
    let token = Epoch(1);
    wipe(seams, device, token).await?;
    let failed = |source: DeviceError| CreateError::Device { name: device.name(), source };
    let mut buffer = seams.metadata.take(dolmen_buffer::FRAME_BYTES_MAX).await;
    buffer.fill(0);
    let zeros = buffer.freeze();
    let end = METADATA_AT + CHECKPOINT_BYTES + log.0;
    for at in (METADATA_AT..end).step_by(zeros.len()) {
        let length = usize::try_from((end - at).min(MEBIBYTE)).unwrap_or(0);
        write(device, token, at, zeros.slice(0..length), Durability::Cached).await.map_err(failed)?;
    }
    flush(device, token).await.map_err(failed)
}

impl Pool {
    /// Adds a device that is no member of any pool.
    ///
    /// # Errors
    /// [`PoolError::Join`] before anything is written, or what the pool says.
    #[pooled]
    pub async fn add_device(
        self: &Rc<Self>,
        device: Rc<dyn BlockDevice>,
        overwrite: &[String],
        fault_domain: u32,
    ) -> Result<Rc<Disk>, PoolError> {
        self.join(device, overwrite, fault_domain, None).await
    }

    /// Adds a device that is to get all that `old` has. It stands where that disk stood, and that one gets nothing new
    /// from now on.
    ///
    /// # Errors
    /// As [`add_device`](Self::add_device).
    #[pooled]
    pub async fn add_instead_of(
        self: &Rc<Self>,
        old: &Disk,
        device: Rc<dyn BlockDevice>,
        overwrite: &[String],
    ) -> Result<Rc<Disk>, PoolError> {
        if old.member().state == MemberState::Active {
            // Whoever wrote it off did so for another time.
            self.forget_declared_lost(old).await?;
        }
        self.join(device, overwrite, old.member().fault_domain, Some(old.id())).await
    }

    #[pooled]
    async fn join(
        self: &Rc<Self>,
        device: Rc<dyn BlockDevice>,
        overwrite: &[String],
        fault_domain: u32,
        retires: Option<DiskId>,
    ) -> Result<Rc<Disk>, PoolError> {
        let join = |source: CreateError| PoolError::Join { name: self.name.clone(), source: Rc::new(source) };
        let known = self.disks().iter().any(|disk| disk.is_present() && disk.name() == device.name());
        if known {
            return Err(join(CreateError::Twice { name: device.name() }));
        }
        let overwrites = overwrite.contains(&device.name()) || self.was_never_taken_in(device.as_ref()).await;
        let extent = check_device(&self.seams, device.as_ref(), overwrites).await.map_err(join)?;
        let slot = self.free_slot()?;
        prepare(&self.seams, device.as_ref(), self.log_bytes).await.map_err(join)?;
        let disk = DiskId(self.seams.entropy.next_id());
        let member = Member {
            disk,
            capacity: extent.capacity,
            slot,
            state: MemberState::Active,
            fault_domain,
            left: Epoch(0),
            successor: None,
            medium: Medium::of(&device.geometry()),
            sequence: 0,
        };
        let disk = self.admit(device, extent, (member, Joining::New), retires).await?;
        self.give_room(&disk).await?;
        Ok(disk)
    }

    /// Whether a device was prepared for this pool by a daemon that ended before it counted: its label names an epoch of
    /// which it is no member. Nothing was ever stored on it.
    async fn was_never_taken_in(&self, device: &dyn BlockDevice) -> bool {
        let Ok(Contents::Member { label, .. }) = look(&self.seams, device).await else { return false };
        let is_known = self.disks().iter().any(|disk| disk.id() == label.disk);
        label.pool == self.id && label.member().is_none() && label.pending.is_none() && !is_known
    }

    /// Whether a label is that of a disk that was a member of this pool and is none any more. One that belongs to a line that
    /// went on apart is not.
    #[must_use]
    pub fn is_former_member(&self, label: &Label) -> bool {
        let is_member = self.disks().iter().any(|disk| disk.id() == label.disk);
        label.pool == self.id && !is_member && self.now.borrow().epoch.continues(&label.base.epoch)
    }

    /// Gives a member whose free allocation units are on no record all of its allocation units.
    pub(crate) async fn give_room(self: &Rc<Self>, disk: &Disk) -> Result<(), PoolError> {
        let Some(extent) = disk.extent() else { return Ok(()) };
        let is_known = self.free.borrow().contains_key(&disk.slot());
        if !is_known {
            self.free.borrow_mut().insert(disk.slot(), FreeMap::whole(extent.unit_count()));
            // The record of its free allocation units rides on this change.
            self.change(Purpose::Release).await.commit().await?;
        }
        Ok(())
    }

    /// Takes a device back that is a member and was away. `seen` is what the caller found on it, and has acted upon: all of an
    /// old disk is stale by now.
    ///
    /// # Errors
    /// [`PoolError::NoSuchDisk`] when it is no absent member, [`PoolError::Stray`] when it is an old disk and was none when it was
    /// seen, or what the pool says.
    #[pooled]
    pub async fn readmit(
        self: &Rc<Self>,
        device: Rc<dyn BlockDevice>,
        seen: &AbsentMember,
    ) -> Result<Rc<Disk>, PoolError> {
        let AbsentMember { disk: known, label, lost_labels, old } =
            self.absent_member(device.as_ref()).await?;
        if let (Some(why), None) = (old, &seen.old) {
            return Err(PoolError::Stray { name: self.name.clone(), disk: device.name(), why });
        }
        // Those that are written now stand where they stood.
        known.note_lost_labels(&lost_labels);
        let joining = Joining::Back(&label);
        let disk = self.admit(device, label.extent, (known.member(), joining), None).await?;
        // It may have left before its room was on record.
        self.give_room(&disk).await?;
        self.take_back_returned().await?;
        self.tend_voters().await?;
        Ok(disk)
    }

    /// The absent member that a device is.
    ///
    /// # Errors
    /// [`PoolError::NoSuchDisk`] when it is none, [`PoolError::Label`] when it cannot be read, [`PoolError::Stray`] when it has
    /// gone on elsewhere, or was cut short.
    #[pooled]
    pub async fn absent_member(&self, device: &dyn BlockDevice) -> Result<AbsentMember, PoolError> {
        let stranger = || PoolError::NoSuchDisk { name: self.name.clone(), what: device.name() };
        let looked = look(&self.seams, device).await;
        let looked = looked.map_err(|source| PoolError::Label { name: self.name.clone(), source })?;
        let Contents::Member { label, damage, .. } = looked else { return Err(stranger()) };
        let known = self.disks().into_iter().find(|disk| disk.id() == label.disk && !disk.is_present());
        let known = known.filter(|_| label.pool == self.id).ok_or_else(stranger)?;
        let stray = |why| PoolError::Stray { name: self.name.clone(), disk: device.name(), why };
        let reason = {
            let now = self.now.borrow();
            let mut entry = now.members.iter().find(|member| member.disk == label.disk).copied();
            entry.iter_mut().for_each(|entry| raise(std::slice::from_mut(entry), &self.named.borrow()));
            stray_reason(&label, &now.epoch, entry.as_ref())
        };
        let old = match reason {
            Some(why) if !why.is_old() => return Err(stray(why)),
            old => old,
        };
        // It would leave with the first flush, as it did before.
        let fits = label.extent.fits(device.geometry().capacity);
        fits.map_err(|source| stray(StrayReason::CutShort { source }))?;
        Ok(AbsentMember { disk: known, label, old, lost_labels: lost_labels(&damage) })
    }
}
