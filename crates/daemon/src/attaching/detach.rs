//! Detaching spaces, also those that cannot be flushed.
//!
//! A space whose acknowledged writes are only on disks that are away stays attached, so that whoever flushes it is told.
//! Where those disks do not come back, a person discards unflushed writes, by the name of the space; nothing else does, and not
//! while somebody uses the device. What can be written is written first, and the kernel gets errors for the rest, so that
//! ending the device waits for nothing.

use dolmen_api::{Change, DetachSpace, ErrorBody, ErrorCode, Plan};
use dolmen_pool::PoolState;
use dolmen_space::Space;
use dolmen_units::{BLOCK_BYTES, Bytes};

use crate::answer::Answer;
use crate::attach::Shown;
use crate::attaching::attach::{Leave, SpaceAttachments, detach_fault, refusal};
use crate::fault;
use crate::health::{absent_names, to_attach_absent};
use crate::open_pool::{OpenPool, key_of};
use crate::plan::{Figures, Undo, made, planned};

/// What stands in the way of a flush.
struct Obstacle {
    /// Why it cannot succeed.
    why: String,
    /// What would be lost.
    loss: String,
    /// What helps instead.
    instead: String,
}

impl Obstacle {
    fn refuse(&self, attached: &Shown) -> ErrorBody {
        let name = attached.name();
        let message = format!("space {name} stays attached, because it cannot be flushed: {}", self.why);
        ErrorBody::new(ErrorCode::Io, message).on(name).hint(self.transports_of(attached))
    }

    fn transports_of(&self, attached: &Shown) -> String {
        format!("{}; or {} discards unflushed writes, -n says which", self.instead, attached.transport_of())
    }
}

impl SpaceAttachments {
    pub(crate) async fn detach_space(
        &self,
        pool: String,
        space: String,
        request: DetachSpace,
    ) -> Answer<Change> {
        let name = format!("{pool}/{space}");
        if let Some(typed) = request.discard_unflushed.as_deref()
            && typed != name
            && typed != space
        {
            let message = format!(
                "{typed:?} was typed to discard unflushed writes of {name}: not the same; nothing was changed"
            );
            return Err(ErrorBody::new(ErrorCode::NeedsConfirmation, message).on(name));
        }
        if self.pools.pool(&pool).is_err()
            && let Some(attached) = self.transports.called(&name)
        {
            return self.detach_of_closed(&pool, attached, request).await;
        }
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let space = pool.space(&space)?;
        let name = format!("{}/{}", pool.name(), space.name());
        let undo = Undo::By(format!("dolmen space attach {name}"));
        let plan = pool.plan(undo, vec![format!("show {name} no more")]);
        self.volume_uses.check_detachable(key_of(&pool, &space), &name)?;
        let Some(attached) = self.transports.find(key_of(&pool, &space)) else {
            if !request.dry_run {
                self.transports.forget_ended(key_of(&pool, &space));
            }
            return Ok(planned(plan, format!("{name} is not attached")));
        };
        let obstacle = obstacle(&pool, &space).await;
        if request.dry_run {
            return self.plan_to_detach(plan, &attached, obstacle, &request).await;
        }
        let is_excluded = request.discard_unflushed.is_some();
        // Of a pool that is only looked at nothing was written.
        let is_looked_at = matches!(pool.spaces.pool().state(), PoolState::ReadOnly(_));
        let flushed = if is_looked_at { Ok(()) } else { space.flush().await };
        match (&flushed, &obstacle) {
            (Err(_), Some(obstacle)) if !is_excluded => return Err(obstacle.refuse(&attached)),
            (Err(error), None) if !is_excluded => {
                let found = fault::space(error).on(name.as_str());
                return Err(
                    found.hint(format!("try again; {} discards unflushed writes", attached.transport_of()))
                );
            }
            (Ok(()) | Err(_), _) => {}
        }
        self.end_device(&attached, &request).await?;
        let mut change = made(plan, format!("{name} is detached"));
        change.warnings.extend(
            flushed.err().filter(|_| is_excluded).map(|error| discarded_text(&name, &error.to_string())),
        );
        Ok(change)
    }

    /// A space of a pool that is not open: every request of the kernel's waits. Once a person gives that up they fail, also where
    /// the device is in use: only so can it be unmounted.
    async fn detach_of_closed(&self, pool: &str, attached: Shown, request: DetachSpace) -> Answer<Change> {
        let _changes = self.pools.changes.take().await;
        self.pools.check_running()?;
        let name = attached.name();
        let obstacle = Obstacle {
            why: format!("pool {pool} is not open"),
            loss: format!("what the kernel still holds of {name} and has not written"),
            instead: format!("attach its disks, and `dolmen pool import --pool {pool}`"),
        };
        let plan = Figures::of_room(0, 0).plan(Undo::ByNothing, vec![format!("show {name} no more")]);
        if request.dry_run {
            return self.plan_to_detach(plan, &attached, Some(obstacle), &request).await;
        }
        if request.discard_unflushed.is_none() {
            return Err(obstacle.refuse(&attached));
        }
        self.transports.fail_waiting(attached.space());
        self.end_device(&attached, &request).await.map_err(|error| match error.code {
            ErrorCode::Busy => error.hint(
                "what is asked of it fails from now on, until its pool is open: unmount it, then ask for this again",
            ),
            _ => error,
        })?;
        let mut change = made(plan, format!("{name} is detached"));
        change.warnings.push(discarded_text(&name, &obstacle.why));
        Ok(change)
    }

    async fn plan_to_detach(
        &self,
        mut plan: Plan,
        attached: &Shown,
        obstacle: Option<Obstacle>,
        request: &DetachSpace,
    ) -> Answer<Change> {
        let name = attached.name();
        self.refuse_used(attached).await?;
        let Some(obstacle) = obstacle else {
            return Ok(planned(plan, format!("{name} would be detached")));
        };
        if request.discard_unflushed.is_none() {
            return Err(obstacle.refuse(attached));
        }
        plan.steps.insert(0, format!("lose {}", obstacle.loss));
        (plan.is_reversible, plan.undo) = (false, None);
        let mut change = planned(plan, format!("{name} would be detached, and unflushed writes discarded"));
        change.warnings.push(format!("{}; nothing is lost if you {} first", obstacle.why, obstacle.instead));
        Ok(change)
    }

    async fn refuse_used(&self, attached: &Shown) -> Answer<()> {
        let looked_at = attached.clone();
        let by = self.transports.with(move |_| looked_at.holders()).await?;
        if !by.is_empty() {
            let (link, device) = (attached.link().clone(), attached.device().clone());
            return Err(
                detach_fault(&dolmen_fuse::DetachError::Busy { link, device, by }).on(attached.name())
            );
        }
        Ok(())
    }

    async fn end_device(&self, attached: &Shown, request: &DetachSpace) -> Answer<()> {
        let (one, is_excluded) = (attached.clone(), request.discard_unflushed.is_some());
        let ended = self
            .transports
            .with(move |makers| if is_excluded { makers.abandon(&one) } else { makers.detach(&one) });
        ended.await?.map_err(|error| {
            let found = refusal(&error).on(attached.name());
            if found.code == ErrorCode::Busy {
                return found;
            }
            found.hint(format!(
                "`dolmen` says which disks are missing; {} discards what cannot be written",
                attached.transport_of()
            ))
        })
    }

    /// Returns the command that detaches an attached space. A mounted volume is unmounted, which detaches its space.
    pub(crate) fn to_detach(&self, pool: &OpenPool, attached: &Shown) -> String {
        let plain = match self.volume_uses.mounted_at(attached.space()) {
            Some(_) => format!("`dolmen volume unmount {}`", attached.name()),
            None => format!("`dolmen space detach {}`", attached.name()),
        };
        match pool.spaces.get(attached.space().space) {
            Some(space) if is_stuck(pool, &space) => format!(
                "{}, then {plain}; or {} discards unflushed writes",
                to_attach_absent(pool),
                attached.transport_of()
            ),
            Some(_) | None => plain,
        }
    }

    /// Refuses to end while attached spaces that would not live on cannot be flushed: their devices would stay, and hang.
    pub(crate) async fn check_all_flushable(&self, leave: Leave) -> Answer<()> {
        let mut stuck = Vec::new();
        for attached in self.transports.all() {
            if leave == Leave::ForTheNext && attached.survives_daemon() {
                continue;
            }
            let pool = self.pools.open.borrow().get(&attached.space().pool).cloned();
            let space = pool.as_ref().and_then(|pool| pool.spaces.get(attached.space().space));
            let why = match pool.as_ref().zip(space) {
                Some((pool, space)) => obstacle(pool, &space).await.map(|obstacle| obstacle.why),
                None => Some("its pool is not open".to_owned()),
            };
            stuck.extend(why.map(|why| (attached, why)));
        }
        let Some((first, _)) = stuck.first() else { return Ok(()) };
        let reported: Vec<String> = stuck
            .iter()
            .map(|(one, why)| format!("{} at {} ({why})", one.name(), one.device().display()))
            .collect();
        let message = format!(
            "the daemon does not end while attached spaces cannot be flushed, because whoever asks for their devices would hang: {}",
            reported.join("; ")
        );
        let hint = format!(
            "bring the disks back; or {} discards unflushed writes, for each of them; or hand them over to the next daemon (--hand-over)",
            first.transport_of()
        );
        Err(ErrorBody::new(ErrorCode::Busy, message).hint(hint))
    }
}

/// Whether no flush of the space can succeed now.
fn is_stuck(pool: &OpenPool, space: &Space) -> bool {
    matches!(pool.spaces.pool().state(), PoolState::Latched(_)) || space.waits_for_disks()
}

/// What a flush of the space would meet, without asking for one.
async fn obstacle(pool: &OpenPool, space: &Space) -> Option<Obstacle> {
    let name = format!("{}/{}", pool.name(), space.name());
    if !is_stuck(pool, space) {
        return None;
    }
    let is_stopped = matches!(pool.spaces.pool().state(), PoolState::Latched(_));
    let in_doubt = pool.spaces.in_doubt_blocks().await.unwrap_or_default();
    let count = in_doubt.iter().filter(|(of, _)| of.id() == space.id()).count();
    let size = match u64::try_from(count).unwrap_or(u64::MAX).saturating_mul(BLOCK_BYTES) {
        0 => String::new(),
        bytes => format!(", {} of it only there", Bytes(bytes)),
    };
    let absent = absent_names(pool).join(", ");
    let why = match (is_stopped, absent.is_empty()) {
        (true, _) => format!("pool {} has stopped", pool.name()),
        (false, true) => "what was written last is on disks that left".to_owned(),
        (false, false) => format!("what was written last is on {absent}, which is absent"),
    };
    Some(Obstacle {
        why,
        loss: format!(
            "what was written to {name} last, acknowledged and never flushed{size}, unless its disks come back"
        ),
        instead: to_attach_absent(pool),
    })
}

fn discarded_text(name: &str, why: &str) -> String {
    format!("unflushed writes to {name} are discarded: {why}")
}
