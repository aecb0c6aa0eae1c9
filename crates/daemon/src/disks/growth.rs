//! Disks whose device has grown, taken into use on request (docs/design/0034).

use std::path::PathBuf;

use dolmen_api::{Change, ErrorBody, ErrorCode, Simple};
use dolmen_pool::PoolState;
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes};

use crate::answer::Answer;
use crate::disks::devices::allocate_metadata;
use crate::disks::find::find_disk;
use crate::disks::membership::{Membership, stopped};
use crate::fault;
use crate::plan::{Figures, Undo, made, planned, usual_room};

impl Membership {
    /// Takes the room into use that the device of a disk has gained.
    pub(crate) async fn grow_disk(&self, name: String, what: String, request: Simple) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let disk = find_disk(&pool, &what)?;
        if let PoolState::Latched(cause) = pool.spaces.pool().state() {
            return Err(stopped(&pool, cause));
        }
        let called = pool.called(&disk);
        let attached = disk.device().zip(disk.extent()).filter(|_| disk.is_present());
        let Some((device, extent)) = attached else {
            let message = format!("{called} is absent, so its size is unknown; nothing was changed");
            let hint = format!("attach it, and `dolmen disk online {name} {}` first", disk.slot().0);
            return Err(ErrorBody::new(ErrorCode::NoSuchDevice, message).on(what).hint(hint));
        };
        let gained = disk.size().gained();
        if gained == Bytes::ZERO {
            let text = format!("{called} has not grown: all of its {} are in use", extent.capacity);
            return Ok(planned(pool.plan(Undo::NotNeeded, vec![format!("leave it: {text}")]), text));
        }
        // The labels of a growth before this one may be at the new end already.
        let grown = extent.grown_to(device.size_now()).unwrap_or(extent);
        let mut offers = pool.offers();
        let before = usual_room(&offers);
        for offer in offers.iter_mut().filter(|offer| offer.slot == disk.slot()) {
            offer.free_units += gained.0 / ALLOCATION_UNIT_BYTES;
            offer.size_units += gained.0 / ALLOCATION_UNIT_BYTES;
        }
        let steps = vec![
            format!("write the labels of {called} at the new end of its device"),
            format!("use {gained} more of it for data; do not make the device smaller again afterwards"),
        ];
        let plan = Figures::of_room(before, usual_room(&offers)).plan(Undo::ByNothing, steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{gained} more of {called} would be used")));
        }
        allocate_metadata(&[PathBuf::from(disk.name())], &[grown])?;
        let done = pool.spaces.pool().membership().grow(&disk).await;
        let gained = done.map_err(|error| fault::pool(&error).on(what))?;
        let mut change = made(plan, format!("{gained} more of {called} are used"));
        change.pool = Some(self.views.view_pool(&pool).await?);
        Ok(change)
    }
}
