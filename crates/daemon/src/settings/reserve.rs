//! Room that is reserved for thin spaces (docs/design/0024): set, and what is lacking of it told.

use dolmen_api::{Finding, FindingCode, Health, Object};
use dolmen_space::{Space, SpaceSpec};
use dolmen_units::Bytes;

use crate::advice::Advice;
use crate::answer::Answer;
use crate::finding::found;
use crate::open_pool::OpenPool;

pub(super) fn in_words(reserve: Bytes) -> String {
    match reserve {
        Bytes::ZERO => "no reserve".to_owned(),
        reserve => format!("a reserve of {reserve}"),
    }
}

/// What disks lose to rows that a reserve takes and its space has not.
pub(super) fn claimed_for(pool: &OpenPool, space: &Space, reserve: Bytes) -> Answer<u64> {
    let (row, spec) = (Bytes(space.row_bytes()), space.spec());
    let taken_by = |size: Bytes| match size {
        Bytes::ZERO => Ok(0),
        size => pool.full_size(&SpaceSpec { size: size.align_up(row.0), row: Some(row), ..spec.clone() }),
    };
    Ok(taken_by(reserve)?.saturating_sub(taken_by(space.claimed())?))
}

/// That something of what is reserved for a space is not there.
pub(crate) fn lacks_reserve(open: &OpenPool, space: &Space) -> Option<Finding> {
    let lacks = space.lacks_of_reserve();
    if lacks == Bytes::ZERO {
        return None;
    }
    let name = Object::space(open.name(), space.name().to_string());
    let text = format!("of {} that are reserved for space {name}, {lacks} are not claimed", space.reserve());
    Some(found(FindingCode::SpaceLacksReserve, Health::Warning, name, text))
}

/// What to do about that.
pub(crate) fn reserve_advice(open: &OpenPool) -> Vec<Advice> {
    let spaces = open.spaces.list();
    let lacking = spaces.iter().filter_map(|space| Some((space, lacks_reserve(open, space)?)));
    let advice = lacking.map(|(space, finding)| {
        let name = &finding.object;
        let text = format!(
            "add a disk to pool {}, or purge or trim something; then `dolmen space set {name} --reserve {}` claims the rest",
            open.name(),
            space.reserve().0
        );
        Advice::new(finding.code, finding.object.clone(), text)
    });
    advice.collect()
}
