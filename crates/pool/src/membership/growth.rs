//! Members whose device has grown (docs/design/0034).
//!
//! Order: the map notes how many allocation units its free runs and slabs make up; two labels with the new cut are durable at
//! both ends; those at the old end are cleared; then one change of the map gives the units that were gained, and counts them. A
//! crash before that change leaves a label that says more than the map: the next opening, or return of the disk, clears the old
//! end and gives what is missing.
//!
//! Invariant: the newest label of a disk says at least as much as the map has given.

use std::rc::Rc;

use dolmen_disk::{Extent, ExtentError};
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskId};

use crate::disks::disk::Disk;
use crate::error::PoolError;
use crate::keys;
use crate::membership::requests::Membership;
use crate::metadata::map::Purpose;
use crate::room::free_map::Run;

impl Membership {
    /// Takes the room into use that the device of a member has gained. Returns how much that is.
    ///
    /// # Errors
    /// [`PoolError::NoSuchDisk`] for a disk that is absent, [`PoolError::Label`] where the device does not take its labels at its new
    /// end, or what the pool says when it cannot be written. The room is not given then; growing again gives it.
    #[pooled]
    pub async fn grow(self: &Rc<Self>, disk: &Rc<Disk>) -> Result<Bytes, PoolError> {
        self.log.writable()?;
        let absent = || PoolError::NoSuchDisk { name: self.identity.name.clone(), what: disk.name() };
        if !disk.is_present() || !self.members.is_member(disk) {
            return Err(absent());
        }
        let before = disk.size().units();
        if disk.size().gained() != Bytes::ZERO {
            self.note_units(disk).await?;
            let grown = disk.extent().zip(disk.device());
            let grown = grown.and_then(|(extent, device)| extent.grown_to(device.size_now()));
            if let Some(grown) = grown.filter(|_| mutation!(RoomBeforeLabels)) {
                self.give_gained(disk, grown).await?;
            }
            let mutex = self.epochs.mutex.take().await;
            self.log.writable()?;
            let attached = disk.device().zip(disk.extent()).filter(|_| disk.is_present());
            let (device, extent) = attached.ok_or_else(absent)?;
            device.extend();
            if let Some(grown) = extent.grown_to(device.geometry().capacity) {
                let now = self.members.now.borrow().clone();
                self.labels.move_labels(disk, &now, grown).await?;
                // A growth before this one may have left its labels, where it could not clear what was before them.
                if disk.size().on_record().is_some_and(|units| units < extent.unit_count()) {
                    self.labels.clear_old_end(disk, grown, extent.unit_count()).await?;
                }
            }
            drop(mutex);
        }
        // Also where a growth before this one ended between the labels and the map.
        let extent = disk.extent().ok_or_else(absent)?;
        self.give_gained(disk, extent).await?;
        self.members.changed.notify_all();
        Ok(Bytes(disk.size().units().saturating_sub(before) * ALLOCATION_UNIT_BYTES))
    }

    /// Notes in the map how many allocation units of a disk it accounts for, before a label says more.
    async fn note_units(self: &Rc<Self>, disk: &Disk) -> Result<(), PoolError> {
        if disk.size().on_record().is_some() {
            return Ok(());
        }
        let units = disk.size().units();
        let mut change = self.changes.begin(Purpose::Release).await;
        change.put(keys::member_setting(disk.slot(), keys::UNITS), encode_units(disk.id(), units));
        change.commit().await?;
        disk.size().set_on_record(Some(units));
        Ok(())
    }

    /// Completes a growth that a crash has cut short. Where the device does not take the zeros, the room is given later.
    ///
    /// # Errors
    /// What the pool says when it cannot be written.
    pub(crate) async fn complete_growth(
        self: &Rc<Self>,
        disk: &Disk,
        extent: Extent,
    ) -> Result<(), PoolError> {
        match self.give_gained(disk, extent).await {
            Err(error @ PoolError::Label { .. }) => {
                tracing::warn!(pool = %self.identity.name, disk = %disk.name(), %error, "the room that a disk has gained is given later");
                Ok(())
            }
            given => given,
        }
    }

    /// Gives the allocation units that a cut has more than the map accounts for, if any. The labels at the end that the disk had with
    /// the units of before are cleared first: no slab lies behind these units.
    async fn give_gained(self: &Rc<Self>, disk: &Disk, extent: Extent) -> Result<(), PoolError> {
        let units = extent.unit_count();
        let gained = || disk.size().on_record().filter(|known| *known < units);
        // Nobody waits for a change of the map while this disk is written: it may answer late.
        let Some(before) = gained() else { return Ok(()) };
        if !mutation!(OldEndNotCleared) {
            self.labels.clear_old_end(disk, extent, before).await?;
        }
        let mut change = self.changes.begin(Purpose::Release).await;
        // Another growth of the disk may have given them meanwhile, all or some: it has cleared as much.
        let Some(known) = gained() else { return Ok(()) };
        if let Some(map) = self.free_space.maps.borrow_mut().get_mut(&disk.slot()) {
            map.extend(units);
        }
        change.release(disk.slot(), &[Run { first: known, count: units - known }]);
        change.put(keys::member_setting(disk.slot(), keys::UNITS), encode_units(disk.id(), units));
        change.commit().await?;
        disk.size().set_on_record(Some(units));
        Ok(())
    }
}

/// Returns the cut of a device by its label, or a larger one where the map has given more than that: an old label does not know
/// of growth.
///
/// # Errors
/// [`ExtentError::CutShort`] where the device ends before what the map has given.
pub(crate) fn extent_with(units: Option<u64>, label: Extent, capacity: Bytes) -> Result<Extent, ExtentError> {
    let Some(units) = units.filter(|units| *units > label.unit_count()) else { return Ok(label) };
    let grown = label.grown_to(capacity).unwrap_or(label);
    if grown.unit_count() < units && !mutation!(ShorterThanMap) {
        let data_end = units.saturating_mul(ALLOCATION_UNIT_BYTES).saturating_add(label.data_start);
        return Err(ExtentError::CutShort { found: capacity, data_end });
    }
    Ok(grown)
}

/// The identity of the disk, then its allocation units.
fn encode_units(disk: DiskId, units: u64) -> Vec<u8> {
    disk.0.into_iter().chain(units.to_le_bytes()).collect()
}

/// Returns the allocation units on record of a disk; `None` where the record is of another disk, or no number.
pub(crate) fn decode_units(disk: DiskId, value: &[u8]) -> Option<u64> {
    let (id, units) = value.split_first_chunk::<16>()?;
    let units = u64::from_le_bytes(units.try_into().ok()?);
    (*id == disk.0).then_some(units)
}
