//! Devices that become members, or come back.

use std::rc::Rc;

use dolmen_block_io::BlockDevice;
use dolmen_disk::{Contents, Extent, Label, Medium, Member, MemberState, look};
use dolmen_future_pool::pooled;
use dolmen_units::{DiskId, Epoch};

use crate::disks::discover::lost_labels;
use crate::disks::disk::Disk;
use crate::disks::prepare::check_device;
use crate::disks::prepare::prepare;
use crate::epochs::change::{plan_of, retire};
use crate::epochs::labels::Joining;
use crate::error::{CreateError, PoolError, StrayReason};
use crate::members::entries::{raise, stray_reason};
use crate::membership::growth::extent_with;
use crate::membership::requests::Membership;
use crate::metadata::map::Purpose;
use crate::room::free_map::FreeMap;

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

impl Membership {
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
        let join = |source: CreateError| PoolError::Join {
            name: self.identity.name.clone(),
            source: Rc::new(source),
        };
        let known = self.members.disks().iter().any(|disk| disk.is_present() && disk.name() == device.name());
        if known {
            return Err(join(CreateError::Twice { name: device.name() }));
        }
        let overwrites = overwrite.contains(&device.name()) || self.was_never_taken_in(device.as_ref()).await;
        let extent = check_device(&self.identity.seams, device.as_ref(), overwrites).await.map_err(join)?;
        let slot = self.members.free_slot()?;
        prepare(&self.identity.seams, device.as_ref(), self.identity.log_bytes).await.map_err(join)?;
        let disk = DiskId(self.identity.seams.entropy.next_id());
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
        let Ok(Contents::Member { label, .. }) = look(&self.identity.seams, device).await else {
            return false;
        };
        let is_known = self.members.disks().iter().any(|disk| disk.id() == label.disk);
        label.pool == self.identity.id && label.member().is_none() && label.pending.is_none() && !is_known
    }

    /// Gives a member whose free allocation units are on no record all of its allocation units.
    pub(crate) async fn give_room(self: &Rc<Self>, disk: &Disk) -> Result<(), PoolError> {
        let Some(extent) = disk.extent() else { return Ok(()) };
        let is_known = self.free_space.maps.borrow().contains_key(&disk.slot());
        if !is_known {
            self.free_space.maps.borrow_mut().insert(disk.slot(), FreeMap::whole(extent.unit_count()));
            // The record of its free allocation units rides on this change.
            self.changes.begin(Purpose::Release).await.commit().await?;
            return Ok(());
        }
        self.complete_growth(disk, extent).await
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
            return Err(PoolError::Stray { name: self.identity.name.clone(), disk: device.name(), why });
        }
        // Those that are written now stand where they stood.
        known.labels().note_lost(&lost_labels);
        let joining = Joining::Back(&label);
        let extent = extent_with(known.size().on_record(), label.extent, device.geometry().capacity);
        let extent = extent.map_err(|source| PoolError::Stray {
            name: self.identity.name.clone(),
            disk: device.name(),
            why: StrayReason::CutShort { source },
        })?;
        let disk = self.admit(device, extent, (known.member(), joining), None).await?;
        // It may have left before its room was on record.
        self.give_room(&disk).await?;
        self.take_back_returned().await?;
        self.voter_tender.tend().await?;
        Ok(disk)
    }

    /// The absent member that a device is.
    ///
    /// # Errors
    /// [`PoolError::NoSuchDisk`] when it is none, [`PoolError::Label`] when it cannot be read, [`PoolError::Stray`] when it has
    /// gone on elsewhere, or was cut short.
    #[pooled]
    pub async fn absent_member(&self, device: &dyn BlockDevice) -> Result<AbsentMember, PoolError> {
        let stranger = || PoolError::NoSuchDisk { name: self.identity.name.clone(), what: device.name() };
        let looked = look(&self.identity.seams, device).await;
        let looked =
            looked.map_err(|source| PoolError::Label { name: self.identity.name.clone(), source })?;
        let Contents::Member { label, damage, .. } = looked else { return Err(stranger()) };
        let known =
            self.members.disks().into_iter().find(|disk| disk.id() == label.disk && !disk.is_present());
        let known = known.filter(|_| label.pool == self.identity.id).ok_or_else(stranger)?;
        let stray = |why| PoolError::Stray { name: self.identity.name.clone(), disk: device.name(), why };
        let reason = {
            let now = self.members.now.borrow();
            let mut entry = now.members.iter().find(|member| member.disk == label.disk).copied();
            entry
                .iter_mut()
                .for_each(|entry| raise(std::slice::from_mut(entry), &self.labels.named.borrow()));
            stray_reason(&label, &now.epoch, entry.as_ref())
        };
        let old = match reason {
            Some(why) if !why.is_old() => return Err(stray(why)),
            old => old,
        };
        // It would leave with the first flush, as it did before, and slabs may lie beyond its end.
        let capacity = device.geometry().capacity;
        let fits = label.extent.fits(capacity);
        let fits =
            fits.and_then(|()| extent_with(known.size().on_record(), label.extent, capacity).map(drop));
        fits.map_err(|source| stray(StrayReason::CutShort { source }))?;
        Ok(AbsentMember { disk: known, label, old, lost_labels: lost_labels(&damage) })
    }

    /// Takes a device with a label of this pool back in, or a new one that was prepared for it. The member that it is to
    /// replace is retired by the same epoch, so that no new row ever lies on both.
    ///
    /// # Errors
    /// When the pool cannot be written or the device fails, [`PoolError::NoSuchDisk`] when a member was struck before it was
    /// back; the pool is as before then.
    #[pooled]
    pub(crate) async fn admit(
        self: &Rc<Self>,
        device: Rc<dyn BlockDevice>,
        extent: Extent,
        (mut member, joining): (Member, Joining<'_>),
        retires: Option<DiskId>,
    ) -> Result<Rc<Disk>, PoolError> {
        let mutex = self.epochs.mutex.take().await;
        self.log.writable()?;
        member.left = Epoch(0);
        let known = self.members.disk(member.slot);
        let disk = match known {
            Some(disk) if disk.id() == member.disk && !disk.is_present() => {
                disk.attachment(device, extent);
                if let Err(error) = self.labels.renew_returning(&disk, joining).await {
                    disk.unseat(Epoch(u64::MAX));
                    return Err(error);
                }
                disk
            }
            Some(_) => {
                return Err(PoolError::Full { name: self.identity.name.clone(), why: "its place is taken" });
            }
            // Its slabs are elsewhere, and what it holds is of the past.
            None if matches!(joining, Joining::Back(_)) => {
                return Err(PoolError::NoSuchDisk { name: self.identity.name.clone(), what: device.name() });
            }
            None => {
                let disk = Disk::new(member, Some((device, extent)), self.members.epoch().number);
                // Before the epoch that counts it in: a member without a label could never be told from a disk of nobody, and
                // would be missed for ever.
                let now = self.members.now.borrow().clone();
                self.labels.write_one_label(&disk, &now, None).await?;
                disk
            }
        };
        let changed = self
            .epochs
            .change(|generation, _| {
                let mut plan = plan_of(generation);
                // What it is by now: it may have been retired since it was looked at.
                let known = plan.members.iter().find(|other| other.disk == member.disk).copied();
                plan.members.retain(|other| other.disk != member.disk);
                plan.members.push(Member { left: Epoch(0), ..known.unwrap_or(member) });
                plan.members.sort_by_key(|member| member.slot);
                retire(&mut plan.members, retires, member.slot);
                plan
            })
            .await;
        if let Err(error) = changed {
            disk.unseat(Epoch(u64::MAX));
            return Err(error);
        }
        let entry = self.members.now.borrow().members.iter().find(|other| other.disk == member.disk).copied();
        disk.set_member(entry.unwrap_or(member));
        if matches!(joining, Joining::New) {
            // What is known of free allocation units under its number is of who had that before.
            self.free_space.maps.borrow_mut().remove(&member.slot);
        }
        self.members.disks.borrow_mut().insert(member.slot, Rc::clone(&disk));
        self.labels.write_other_labels().await;
        drop(mutex);
        self.members.changed.notify_all();
        Ok(disk)
    }
}
