//! Room that is reserved for thin spaces (docs/design/0024): set, and what is lacking of it told.

use dolmen_api::{Change, Finding, FindingCode, Health, Object, SetReserve};
use dolmen_space::{Space, SpaceSpec};
use dolmen_units::Bytes;

use crate::advice::Advice;
use crate::answer::Answer;
use crate::fault;
use crate::finding::found;
use crate::open_pool::OpenPool;
use crate::plan::{Figures, Undo, made, planned, usual_room};
use crate::settings::service::Settings;

impl Settings {
    /// Reserves room for a space: so much of it can be written, however full its pool is.
    pub(crate) async fn set_reserve(
        &self,
        pool: String,
        space: String,
        request: SetReserve,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let space = pool.space(&space)?;
        pool.spaces.pool().check_writable().map_err(|error| fault::pool(&error))?;
        let name = format!("{}/{}", pool.name(), space.name());
        let refused = |error| fault::space(&error).on(name.as_str());
        let (before, after) = (space.reserve(), Bytes(request.bytes));
        if before == after && space.lacks_of_reserve() == Bytes::ZERO {
            let text = format!("{name} has {} already", in_words(after));
            return Ok(planned(pool.plan(Undo::NotNeeded, Vec::new()), text));
        }
        pool.spaces.check_reserve(&space, after).map_err(refused)?;
        let claimed = claimed_for(&pool, &space, after)?;
        let room = usual_room(&pool.offers());
        let figures = Figures::of_room(room, pool.room_with_free(pool.free().saturating_sub(claimed)));
        let mut steps = vec![match before == after {
            true => format!("complete what {name} lacks of {}", in_words(after)),
            false => format!("give {name} {}, where it has {}", in_words(after), in_words(before)),
        }];
        match (after >= before, claimed) {
            (true, 1..) => {
                steps.push(format!("claim {} on the disks of {} for it", Bytes(claimed), pool.name()))
            }
            (true, 0) => steps.push(format!("claim nothing: {name} has {} of rows", space.claimed())),
            (false, _) => {
                steps.push("give back rows that hold nothing, as far as they are not reserved".to_owned())
            }
        }
        let undo = match before {
            Bytes::ZERO => "none".to_owned(),
            before => before.0.to_string(),
        };
        let plan = figures.plan(Undo::By(format!("dolmen space set {name} --reserve {undo}")), steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{name} would have {}", in_words(after))));
        }
        pool.spaces.set_reserve(&space, after).await.map_err(refused)?;
        let mut change = made(plan, format!("{name} has {} now", in_words(after)));
        change.space = Some(self.views.view_space(&pool, &space).await?);
        Ok(change)
    }
}

fn in_words(reserve: Bytes) -> String {
    match reserve {
        Bytes::ZERO => "no reserve".to_owned(),
        reserve => format!("a reserve of {reserve}"),
    }
}

/// What disks lose to rows that a reserve takes and its space has not.
fn claimed_for(pool: &OpenPool, space: &Space, reserve: Bytes) -> Answer<u64> {
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
