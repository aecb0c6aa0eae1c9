//! Deleted spaces: moved into the trash, listed, restored, purged (docs/design/0018).
//!
//! Invariants:
//! - What is purged is condemned, durably, before anybody is told so; the job only gives the room back.
//! - Nothing is purged by itself before this host has seen it in the trash for the whole period.

use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{
    Change, DeleteSpace, ErrorBody, ErrorCode, Job, PurgeTrash, RestoreSpace, SCHEMA, Trash, TrashedSpace,
};
use dolmen_block_io::{Seams, within};
use dolmen_pool::{PoolError, PoolState};
use dolmen_space::{Space, SpaceError};
use dolmen_units::Bytes;

use crate::answer::Answer;
use crate::base::Base;
use crate::config::Config;
use crate::fault;
use crate::jobs::{Jobs, seconds_now};
use crate::open_pool::{OpenPool, key_of, parse_name};
use crate::open_pools::OpenPools;
use crate::plan::{Figures, Undo, check_typed, made, planned, usual_room};
use crate::resiliency::resiliency_of;
use crate::spaces::changes::{SpaceChanges, full_name};
use crate::spaces::purge::{Purges, what_is_purged};
use crate::state::{TrashAges, VolumeUses};
use crate::views::Views;
use crate::words::counted;

/// How long an answer waits for the room of what is purged: that of a small space is there with it.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What spaces take on all disks.
async fn footprint_of(spaces: &[Space]) -> Answer<Bytes> {
    let mut total = 0;
    for space in spaces {
        total += space.footprint().await.map_err(|error| fault::space(&error))?.total.0;
    }
    Ok(Bytes(total))
}

fn refused(message: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::BadRequest, format!("{message}; nothing was changed"))
}

impl OpenPool {
    /// How many spaces take room that nobody can use, in the trash or on the way out of it, and what they take.
    pub(crate) async fn trash_tally(&self) -> Answer<(u64, u64)> {
        let all = self.spaces.discarded();
        Ok((all.len() as u64, footprint_of(&all).await?.0))
    }

    /// How room comes back from the trash, if anything is in it.
    pub(crate) fn to_purge(&self) -> Option<String> {
        let count = self.spaces.in_trash().len();
        let spaces = counted(count, "space", "spaces");
        (count > 0).then(|| {
            format!(
                "`dolmen trash purge --all {}` gives back the room of {spaces} in the trash, for good; `dolmen trash list` shows \
                 how much that is",
                self.name()
            )
        })
    }

    /// An error of the engine about the name of a space, with its pool.
    pub(crate) fn of_a_name(&self, error: &SpaceError) -> Option<ErrorBody> {
        let (code, message, name) = match error {
            SpaceError::NameTaken { name } => {
                (ErrorCode::NameTaken, format!("has a space named {name} already"), name.to_string())
            }
            SpaceError::NoSuchSpace { name } => {
                (ErrorCode::NoSuchSpace, format!("has no space named {name}"), name.clone())
            }
            _ => return None,
        };
        Some(ErrorBody::new(code, format!("pool {} {message}", self.name())).on(name))
    }

    /// An error of the engine; where it is one for want of room, with what the trash would give back.
    pub(crate) fn lacks_room(&self, error: &SpaceError) -> ErrorBody {
        if let Some(reported) = self.of_a_name(error) {
            return reported;
        }
        let is_for_room = match error {
            SpaceError::TooLarge { .. } | SpaceError::Size { .. } => true,
            SpaceError::Pool(inner) => matches!(
                inner,
                PoolError::NoSpace { .. } | PoolError::Fragmented { .. } | PoolError::MetadataFull { .. }
            ),
            SpaceError::NoSpaceBelow { .. } | SpaceError::CacheFull { .. } | SpaceError::CacheSize { .. } => {
                true
            }
            _ => false,
        };
        let body = fault::space(error);
        match self.to_purge().filter(|_| is_for_room) {
            None => body,
            Some(purge) => {
                let hint = body.hint.clone().map_or_else(|| purge.clone(), |hint| format!("{hint}; {purge}"));
                body.hint(hint)
            }
        }
    }
}

/// Whether a space that is being purged is meant by a name or a number.
fn is_condemned(pool: &OpenPool, meant: &str) -> bool {
    let is_meant = |space: &Space| space.name().as_str() == meant || space.id().0.to_string() == meant;
    pool.spaces.condemned().iter().any(is_meant)
}

/// The space in the trash that is meant by a name or a number. A name goes first; where several have it, `by_number` says how
/// one of them is meant.
fn trashed_in(pool: &OpenPool, meant: &str, by_number: impl Fn(u64) -> String) -> Answer<Space> {
    let trash = pool.spaces.in_trash();
    let named: Vec<&Space> = trash.iter().filter(|space| space.name().as_str() == meant).collect();
    let object = format!("{}/{meant}", pool.name());
    match named.as_slice() {
        [one] => return Ok((*one).clone()),
        [] => {}
        several => {
            let commands: Vec<String> =
                several.iter().map(|space| format!("`{}`", by_number(space.id().0))).collect();
            let message = format!("{} spaces named {object} are in the trash", several.len());
            let hint = format!(
                "say which by its number: {}; `dolmen trash list` shows when each was deleted",
                commands.join(" or ")
            );
            return Err(refused(message).on(object).hint(hint));
        }
    }
    let numbered = trash.iter().find(|space| space.id().0.to_string() == meant);
    if let Some(space) = numbered {
        return Ok(space.clone());
    }
    let (message, hint) = match is_condemned(pool, meant) {
        true => (
            format!("space {object} is being purged, and cannot be brought back"),
            "`dolmen jobs` shows how far it is",
        ),
        false => (
            format!("no space {meant} is in the trash of pool {}", pool.name()),
            "`dolmen trash list` shows what is there",
        ),
    };
    let error = ErrorBody::new(ErrorCode::NoSuchSpace, format!("{message}; nothing was changed"));
    Err(error.on(object).hint(hint))
}

/// Deletion of spaces, their trash, and its end.
pub(crate) struct Deletions {
    pools: Rc<OpenPools>,
    views: Rc<Views>,
    purges: Rc<Purges>,
    spaces: Rc<SpaceChanges>,
    seams: Seams,
    config: Rc<Config>,
    jobs: Rc<Jobs>,
    trash_ages: Rc<TrashAges>,
    volume_uses: Rc<VolumeUses>,
}

impl Deletions {
    pub(crate) fn new(base: &Base, purges: &Rc<Purges>, spaces: &Rc<SpaceChanges>) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            views: Rc::clone(&base.views),
            purges: Rc::clone(purges),
            spaces: Rc::clone(spaces),
            seams: base.seams.clone(),
            config: Rc::clone(&base.config),
            jobs: Rc::clone(&base.jobs),
            trash_ages: Rc::clone(&base.trash_ages),
            volume_uses: Rc::clone(&base.volume_uses),
        }
    }
}

impl Deletions {
    async fn view_trash(&self, pool: &OpenPool) -> Answer<Vec<TrashedSpace>> {
        let mut spaces = Vec::new();
        for space in pool.spaces.discarded() {
            let spec = space.spec();
            let trashed_s = space.trashed_at();
            let age = self.trash_ages.of(pool.id(), &space);
            let stays = self.config.trash_after.filter(|_| trashed_s.is_some());
            spaces.push(TrashedSpace {
                pool: pool.name(),
                id: space.id().0,
                name: spec.name.to_string(),
                size_bytes: spec.size.0,
                resiliency: resiliency_of(spec.resiliency),
                copies: spec.resiliency.copies(),
                parity: spec.resiliency.parity_columns(),
                footprint_bytes: footprint_of(&[space]).await?.0,
                trashed_s,
                can_be_restored: trashed_s.is_some(),
                stays_s: stays.map(|after| after.saturating_sub(age).as_secs()),
            });
        }
        Ok(spaces)
    }

    pub(crate) async fn trash(&self, pool: String) -> Answer<Trash> {
        let pool = self.pools.pool(&pool)?;
        Ok(Trash { schema: SCHEMA, spaces: self.view_trash(&pool).await?, now_s: seconds_now() })
    }

    pub(crate) async fn all_trash(&self) -> Answer<Trash> {
        let mut spaces = Vec::new();
        for pool in self.pools.open_pools() {
            spaces.extend(self.view_trash(&pool).await?);
        }
        Ok(Trash { schema: SCHEMA, spaces, now_s: seconds_now() })
    }

    /// Refuses a deletion that [`delete_space`](Self::delete_space) would refuse after the space is detached.
    pub(crate) fn check_not_served(&self, pool: &OpenPool, space: &Space) -> Answer<()> {
        self.spaces.check_not_served(pool, space, "deleted")
    }

    /// How long something stays in the trash, in words.
    fn stay_words(&self) -> String {
        match self.config.trash_after {
            None => "until a command purges it".to_owned(),
            Some(after) => format!(
                "for {} in which the daemon runs and its pool is open",
                dolmen_api::duration(after.as_secs())
            ),
        }
    }

    pub(crate) async fn delete_space(
        &self,
        pool: String,
        space: String,
        request: DeleteSpace,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let space = pool.space(&space)?;
        let name = full_name(&pool, &space);
        if request.purge && (!request.dry_run || request.destroy.is_some()) {
            let typed = request.destroy.as_deref();
            // Both the short and the full name say which space is meant.
            let typed =
                typed.map(|typed| if typed == name { space.name().to_string() } else { typed.to_owned() });
            check_typed(typed.as_deref(), space.name().as_str(), "space")?;
        }
        self.volume_uses.check_free(key_of(&pool, &space), &name, "deleted")?;
        self.spaces.check_space_idle(&pool, &space, "deleted").await?;
        match request.purge {
            true => self.delete_for_good(&pool, &space, request.dry_run).await,
            false => self.delete_into_trash(&pool, &space, request.dry_run).await,
        }
    }

    async fn delete_into_trash(&self, pool: &Rc<OpenPool>, space: &Space, dry_run: bool) -> Answer<Change> {
        let (name, id) = (full_name(pool, space), space.id().0);
        let footprint = footprint_of(std::slice::from_ref(space)).await?;
        let steps = vec![
            format!("move {name} into the trash, where it keeps all that it holds {}", self.stay_words()),
            format!("keep {footprint} taken, which `dolmen trash purge {}/{id}` gives back", pool.name()),
        ];
        let plan = pool.plan(Undo::By(format!("dolmen trash restore {}/{id}", pool.name())), steps);
        if dry_run {
            return Ok(planned(plan, format!("space {name} would be moved into the trash")));
        }
        pool.spaces
            .trash()
            .move_to_trash(space, seconds_now())
            .await
            .map_err(|error| fault::space(&error).on(name.as_str()))?;
        tracing::info!(pool = pool.name(), space = %space.name(), id, "a space is in the trash");
        let message = format!(
            "space {name} is in the trash, where it keeps {footprint}; `dolmen trash restore {}/{id}` brings it back",
            pool.name()
        );
        Ok(made(plan, message))
    }

    async fn delete_for_good(&self, pool: &Rc<OpenPool>, space: &Space, dry_run: bool) -> Answer<Change> {
        let name = full_name(pool, space);
        let footprint = footprint_of(std::slice::from_ref(space)).await?;
        let steps = vec![format!("lose everything in {name}"), releases(footprint)];
        let after = pool.room_with_free(pool.free() + footprint.0);
        let plan = Figures::of_room(usual_room(&pool.offers()), after).plan(Undo::ByNothing, steps);
        if dry_run {
            return Ok(planned(plan, format!("space {name} would be deleted")));
        }
        pool.spaces.trash().condemn(space).await.map_err(|error| fault::space(&error))?;
        let job = self.purges.start_purge(pool).await;
        let mut change = made(plan, format!("space {name} is deleted"));
        self.wait_for_room(&mut change, job).await;
        Ok(change)
    }

    /// Returns the space in the trash that is meant by a name or a number.
    pub(crate) fn trashed(&self, pool: &OpenPool, meant: &str) -> Answer<Space> {
        trashed_in(pool, meant, |id| format!("dolmen trash restore {}/{id}", pool.name()))
    }

    pub(crate) async fn restore_space(
        &self,
        pool: String,
        space: String,
        request: RestoreSpace,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let called_so = request.name.as_ref().map(|name| format!(" --as {name}")).unwrap_or_default();
        let by_number = |id| format!("dolmen trash restore {}/{id}{called_so}", pool.name());
        let space = trashed_in(&pool, &space, by_number)?;
        let (old, id) = (full_name(&pool, &space), space.id().0);
        let name = request.name.as_deref().map(parse_name).transpose()?.unwrap_or_else(|| space.name());
        let taken = |error: SpaceError| {
            let is_taken = matches!(error, SpaceError::NameTaken { .. });
            let body = pool.of_a_name(&error).unwrap_or_else(|| fault::space(&error));
            let body = body.on(format!("{}/{name}", pool.name()));
            if !is_taken {
                return body;
            }
            body.hint(format!(
                "restore it under another one: `dolmen trash restore {}/{id} --as NAME`",
                pool.name()
            ))
        };
        pool.spaces.pool().log().check_writable().map_err(|error| fault::pool(&error))?;
        pool.spaces.trash().check_restore(&space, &name).map_err(taken)?;
        let full = format!("{}/{name}", pool.name());
        let called = if full == old { String::new() } else { format!(" as {full}") };
        let steps = vec![format!("take {old} out of the trash{called}, with all that it holds")];
        let plan = pool.plan(Undo::By(format!("dolmen space delete {full}")), steps);
        if request.dry_run {
            return Ok(planned(plan, format!("space {old} would be restored{called}")));
        }
        pool.spaces.trash().restore(&space, Some(name.clone())).await.map_err(taken)?;
        let mut change = made(plan, format!("space {old} is restored{called}"));
        change.space = Some(self.views.view_space(&pool, &space).await?);
        Ok(change)
    }

    pub(crate) async fn purge_trash(&self, pool: String, request: PurgeTrash) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        pool.spaces.pool().log().check_writable().map_err(|error| fault::pool(&error))?;
        let spaces = spaces_to_purge(&pool, &request)?;
        let unfinished = pool.spaces.condemned();
        if spaces.is_empty() && unfinished.is_empty() {
            return Ok(planned(
                pool.plan(Undo::NotNeeded, Vec::new()),
                format!("nothing is in the trash of pool {}", pool.name()),
            ));
        }
        // A dry run wants nothing typed; what is typed all the same is judged as it would be without.
        if !request.dry_run || request.destroy.is_some() {
            check_purge_typed(&pool, &spaces, &request)?;
        }
        let footprint = Bytes(footprint_of(&spaces).await?.0 + footprint_of(&unfinished).await?.0);
        let mut steps: Vec<String> = spaces
            .iter()
            .map(|space| format!("lose everything in {}, number {}", full_name(&pool, space), space.id().0))
            .collect();
        steps.push(releases(footprint));
        let after = pool.room_with_free(pool.free() + footprint.0);
        // What was purged in part is gone already.
        let undo = if spaces.is_empty() { Undo::NotNeeded } else { Undo::ByNothing };
        let plan = Figures::of_room(usual_room(&pool.offers()), after).plan(undo, steps);
        let purged = if spaces.is_empty() { &unfinished } else { &spaces };
        let what = what_is_purged(&pool, purged);
        if request.dry_run {
            return Ok(planned(plan, format!("{what} would be purged")));
        }
        for space in &spaces {
            pool.spaces.trash().condemn(space).await.map_err(|error| fault::space(&error))?;
        }
        let job = self.purges.start_purge(&pool).await;
        let mut change = made(plan, format!("{what} {} gone for good", is_or_are(purged)));
        self.wait_for_room(&mut change, job).await;
        Ok(change)
    }

    /// Waits a moment for the room that a purge gives back, and says whether it is there.
    async fn wait_for_room(&self, change: &mut Change, job: Job) {
        let Some(entry) = self.jobs.find(job.id) else {
            change.job = Some(job);
            return;
        };
        let limit = self.seams.clock.now() + TIMEOUT;
        let _ = within(self.seams.clock.as_ref(), limit, entry.ends()).await;
        if !entry.has_ended() {
            let how = if entry.is_paused() {
                "is paused, and gives its room back when it is resumed"
            } else {
                "gives its room back"
            };
            change.message.push_str(&format!("; job {} {how}", entry.id));
        }
        change.job = Some(entry.view(self.seams.clock.now()));
    }

    /// Counts how long spaces are in the trash, and purges those whose time is over.
    pub(crate) async fn tend_trash(&self, pool: &Rc<OpenPool>) {
        let now = self.seams.clock.now();
        if pool.spaces.pool().state() != PoolState::Writable {
            return self.trash_ages.note_closed(pool.id());
        }
        self.trash_ages.count(pool.id(), &pool.spaces.in_trash(), now);
        self.trash_ages.keep(self.config.trash_after, now).await;
        let Some(after) = self.config.trash_after else { return };
        let is_over = |space: &Space| self.trash_ages.of(pool.id(), space) >= after;
        if !pool.spaces.in_trash().iter().any(is_over) {
            return;
        }
        let _exclusive = pool.mutex.take().await;
        if pool.is_closing.get() || self.pools.is_stopping.get() {
            return;
        }
        let over: Vec<Space> = pool.spaces.in_trash().into_iter().filter(is_over).collect();
        let mut count = 0;
        for space in &over {
            match pool.spaces.trash().condemn(space).await {
                Ok(()) => {
                    count += 1;
                    tracing::info!(pool = pool.name(), space = %space.name(), id = space.id().0,
                        "a space is purged: its time in the trash is over");
                }
                // It is tried again with the next look.
                Err(error) => {
                    tracing::warn!(pool = pool.name(), space = %space.name(), %error, "a space in the trash is not purged");
                }
            }
        }
        if count > 0 {
            self.purges.start_purge(pool).await;
        }
    }
}

fn releases(footprint: Bytes) -> String {
    format!("give {footprint} back to the pool, row by row, as a job that can be paused and stopped")
}

fn is_or_are(spaces: &[Space]) -> &'static str {
    if spaces.len() == 1 { "is" } else { "are" }
}

/// What a space is called where one in the trash may have the name of another.
pub(crate) fn called(pool: &OpenPool, space: &Space) -> String {
    match space.trashed_at() {
        None => full_name(pool, space),
        Some(_) => format!("{} in the trash, number {},", full_name(pool, space), space.id().0),
    }
}

/// How a space and all that it holds is given up for good.
pub(crate) fn to_lose(pool: &OpenPool, space: &Space) -> String {
    let (name, of) = (full_name(pool, space), pool.name());
    match space.trashed_at() {
        None => format!("`dolmen space delete {name} --purge`"),
        Some(_) => format!("`dolmen trash purge {of}/{} --destroy={name}`", space.id().0),
    }
}

/// The spaces that a purge is asked for, each once.
fn spaces_to_purge(pool: &OpenPool, request: &PurgeTrash) -> Answer<Vec<Space>> {
    match (request.all, request.spaces.as_slice()) {
        (true, []) => Ok(pool.spaces.in_trash()),
        (true, _) => Err(refused("all of the trash was asked for, and single spaces as well".to_owned())),
        (false, []) => Err(refused("no space was named".to_owned())
            .hint("name spaces that `dolmen trash list` shows, or say --all")),
        (false, meant) => {
            let mut spaces: Vec<Space> = Vec::new();
            for meant in meant {
                let by_number = |id| match request.spaces.len() {
                    1 => format!("dolmen trash purge {0}/{id} --destroy={0}/{meant}", pool.name()),
                    // Those that are named beside it stay named.
                    _ => format!("{}/{id}", pool.name()),
                };
                match trashed_in(pool, meant, by_number) {
                    Ok(space) if spaces.iter().any(|one| one.id() == space.id()) => {}
                    Ok(space) => spaces.push(space),
                    // It is gone for good already, and its rows go on to be freed.
                    Err(_) if is_condemned(pool, meant) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(spaces)
        }
    }
}

/// Refuses to purge something whose name was not typed: that of one space, or that of the pool. What was purged in part is gone
/// already, and needs none.
fn check_purge_typed(pool: &OpenPool, spaces: &[Space], request: &PurgeTrash) -> Answer<()> {
    let typed = request.destroy.as_deref();
    match spaces {
        [] => Ok(()),
        [one] if !request.all => {
            let full = full_name(pool, one);
            let is_meant = |typed: &str| typed == full;
            let name = one.name();
            let typed = typed.map(|typed| if is_meant(typed) { name.as_str() } else { typed });
            check_typed(typed, name.as_str(), "space")
        }
        _ => check_typed(typed, &pool.name(), "the trash of pool"),
    }
}
