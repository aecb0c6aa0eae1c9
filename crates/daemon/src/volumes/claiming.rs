//! Places claimed for volumes: against the claims of other changes, and against what other volumes have.

use dolmen_mutation::mutation;
use dolmen_volume::mount_point::MountPoint;

use crate::answer::Answer;
use crate::open_pool::key_of;
use crate::volumes::claims::{Claim, do_overlap, taken};
use crate::volumes::held::is_held;
use crate::volumes::records::{self, Found};
use crate::volumes::service::Volumes;

/// Claims a place that a volume is to have on record.
///
/// # Errors
/// Another volume has or wants the place, one above or one below.
pub(super) async fn claim_place(volumes: &Volumes, place: &MountPoint, name: &str) -> Answer<Claim> {
    let claim = volumes.claims.claim(place, name)?;
    for pool in volumes.pools.open_pools() {
        for space in pool.spaces.list() {
            let other = format!("{}/{}", pool.name(), space.name());
            let Some(Found::Known(record)) = records::read(&space).await? else { continue };
            // Nothing is mounted where another host wants a volume, and that takes no place here.
            if other == name || is_held(volumes, &record) {
                continue;
            }
            if do_overlap(record.mount_point.as_str(), place.as_str()) {
                return Err(taken(name, place, &other, record.mount_point.as_str()));
            }
        }
    }
    Ok(claim)
}

/// Claims the place on record of a volume that is to be mounted. Of volumes that came back with one place, the first one gets it.
///
/// # Errors
/// Another volume is mounted or being mounted there, above or below.
pub(super) fn claim_mount(volumes: &Volumes, place: &MountPoint, name: &str) -> Answer<Claim> {
    let claim = volumes.claims.claim(place, name)?;
    for pool in volumes.pools.open_pools() {
        for space in pool.spaces.list() {
            let other = format!("{}/{}", pool.name(), space.name());
            let Some(at) = volumes.uses.mounted_at(key_of(&pool, &space)) else { continue };
            if other != name && do_overlap(&at, place.as_str()) && !mutation!(PlaceTakenTwice) {
                return Err(taken(name, place, &other, &at));
            }
        }
    }
    Ok(claim)
}
