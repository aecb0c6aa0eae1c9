//! Spaces: health, room and redundancy.

use dolmen_api::{Finding, Health, Object, Pool, PoolState, ResiliencyKind, Space, Status};

use crate::daemon::health_number;
use crate::family::Family;
use crate::pools::{absent_disks, is_reduction};
use crate::text::Text;

pub(crate) fn put(text: &mut Text, status: &Status, findings: Option<&[Finding]>) {
    for space in &status.spaces {
        let at = [space.pool.as_str(), space.name.as_str()];
        for (family, number) in [
            (Family::SpaceHealth, health_number(space.health)),
            (Family::SpaceSizeBytes, space.size_bytes),
            (Family::SpaceClaimedBytes, space.claimed_bytes),
            (Family::SpaceFootprintBytes, space.footprint_bytes),
            (Family::SpaceRedundancy, redundancy(space)),
        ] {
            text.put(family, &at, number);
        }
        let pool = status.pools.iter().find(|pool| pool.name == space.pool);
        let is_out_of_action =
            pool.is_none_or(|pool| matches!(pool.state, PoolState::Stopped | PoolState::Closed));
        let left = redundancy_left(space, pool, findings).filter(|_| !is_out_of_action);
        text.put_some(Family::SpaceRedundancyLeft, &at, left);
    }
}

/// Returns how many lost disks the rows of a space survive; while it is converted, the least of the two layouts.
fn redundancy(space: &Space) -> u64 {
    let of = |kind: ResiliencyKind, copies: u8, parity: u8| match kind {
        ResiliencyKind::Simple | ResiliencyKind::Span => 0,
        ResiliencyKind::Mirror => u64::from(copies.saturating_sub(1)),
        ResiliencyKind::Parity => u64::from(parity),
    };
    let now = of(space.resiliency, space.copies, space.parity);
    let former = space.converted_from.map(|former| of(former.resiliency, former.copies, former.parity));
    former.map_or(now, |former| former.min(now))
}

/// Returns how many lost disks a space still survives, at the least; nothing where the findings are not known and it is not healthy.
///
/// A document does not say how many of the absent disks have a part of a space. Where the daemon finds that some have, all count.
pub(crate) fn redundancy_left(
    space: &Space,
    pool: Option<&Pool>,
    findings: Option<&[Finding]>,
) -> Option<u64> {
    let redundancy = redundancy(space);
    let Some(findings) = findings else {
        return (space.health == Health::Healthy).then_some(redundancy);
    };
    let object = Object::space(space.pool.as_str(), space.name.as_str());
    let is_reduced = findings.iter().any(|one| is_reduction(one.code) && one.object == object);
    let absent = if is_reduced { pool.map_or(0, absent_disks).max(1) } else { 0 };
    Some(redundancy.saturating_sub(absent))
}
