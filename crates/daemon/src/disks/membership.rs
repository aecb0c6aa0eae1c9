//! Disks of a pool: shown, replaced, taken back in.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use dolmen_api::{
    Change, DeviceState, Disks, ErrorBody, ErrorCode, Job, JobState, OnlineDisk, Plan, ReplaceDisk, SCHEMA,
    shell_word,
};
use dolmen_block_io::BlockDevice;
use dolmen_block_linux::path_of;
use dolmen_mutation::mutation;
use dolmen_pool::{Disk, PoolError, PoolState, StrayReason, keys};
use dolmen_space::salvage::MappedRow;
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskId, PoolId, RowId};

use crate::answer::Answer;
use crate::base::Base;
use crate::disks::devices::{Devices, allocate_metadata};
use crate::disks::find::find_disk;
use crate::disks::left_out::check_as_left;
use crate::disks::removal::{Drains, SpareToCall, remove_with};
use crate::disks::replace_job::ReplaceJob;
use crate::disks::replacement::Replacements;
use crate::disks::standing::{awaited, forget_returns, note_connections};
use crate::fault;
use crate::health::lost_labels_text;
use crate::jobs::Jobs;
use crate::open_pool::{OpenPool, parse_name};
use crate::open_pools::OpenPools;
use crate::plan::{Figures, Undo, made, offer_of, planned, usual_room};
use crate::pool_jobs::PoolJobs;
use crate::pools::Resyncs;
use crate::records::Records;
use crate::spaces::Scrubs;
use crate::state::Members;
use crate::views::Views;
use crate::words::counted;

/// What the label at a path says of a pool.
enum At {
    Member(Rc<Disk>, PathBuf),
    /// It was a disk of the pool, and has left it.
    Former(PathBuf),
    Nothing,
}

/// Consent to what a disk holds that is taken back in.
enum Consent<'a> {
    /// What a command says of it.
    Asked(&'a OnlineDisk),
    /// No command was given: the disk has to be as it left.
    NotGiven,
}

/// Returns the spare that is named as the replacement of a disk.
fn find_spare(pool: &OpenPool, what: &str, old: &Disk) -> Option<Rc<Disk>> {
    let named = find_disk(pool, what).ok().filter(|named| named.id() != old.id())?;
    pool.spares().into_iter().find(|spare| spare.id() == named.id())
}

/// Members of pools: replaced, taken offline, and taken back.
pub(crate) struct Membership {
    pub(super) pools: Rc<OpenPools>,
    records: Rc<Records>,
    pool_jobs: Rc<PoolJobs>,
    pub(super) views: Rc<Views>,
    devices: Rc<Devices>,
    scrubs: Rc<Scrubs>,
    resyncs: Rc<Resyncs>,
    replacements: Rc<Replacements>,
    drains: Rc<Drains>,
    jobs: Rc<Jobs>,
    pub(super) members: Rc<Members>,
}

impl Membership {
    pub(crate) fn new(
        base: &Base,
        devices: &Rc<Devices>,
        scrubs: &Rc<Scrubs>,
        resyncs: &Rc<Resyncs>,
        replacements: &Rc<Replacements>,
        drains: &Rc<Drains>,
    ) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            records: Rc::clone(&base.records),
            pool_jobs: Rc::clone(&base.pool_jobs),
            views: Rc::clone(&base.views),
            devices: Rc::clone(devices),
            scrubs: Rc::clone(scrubs),
            resyncs: Rc::clone(resyncs),
            replacements: Rc::clone(replacements),
            drains: Rc::clone(drains),
            jobs: Rc::clone(&base.jobs),
            members: Rc::clone(&base.members),
        }
    }
}

impl Membership {
    pub(crate) async fn disks(&self, name: String) -> Answer<Disks> {
        let pool = self.pools.pool(&name)?;
        Ok(Disks { schema: SCHEMA, disks: self.views.view_disks(&pool) })
    }

    pub(crate) async fn replace_disk(
        &self,
        name: String,
        what: String,
        request: ReplaceDisk,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        self.pool_jobs.check_job_room(&pool)?;
        let old = find_disk(&pool, &what)?;
        // One whose new disk is gone may be begun again with another.
        let part_of = |(one, other): &(Rc<Disk>, Rc<Disk>)| {
            other.is_present() && [one.slot(), other.slot()].contains(&old.slot())
        };
        let begun = pool.spaces.pool().members().replacements().into_iter().find(part_of);
        if let Some((one, other)) = begun {
            let is_taken = self.jobs.is_taken(pool.id(), &ReplaceJob, None);
            if one.slot() == old.slot() && !is_taken {
                if !find_disk(&pool, &request.with).is_ok_and(|named| named.slot() == other.slot()) {
                    return Err(replaced_by_another(&name, &old, &other, &request.with).on(what));
                }
                // Its job ended because of something that may be over.
                return Ok(self.go_on_with(&pool, one, other, request.dry_run).await);
            }
            let message = format!("{} is part of a replacement already; nothing was changed", old.name());
            return Err(ErrorBody::new(ErrorCode::Busy, message)
                .on(what)
                .hint("`dolmen jobs` shows how far it is"));
        }
        if let Some(spare) = find_spare(&pool, &request.with, &old) {
            return remove_with(&self.drains, &pool, old, what, SpareToCall::This(spare), request.dry_run)
                .await;
        }
        let disks = self
            .devices
            .named_disks(std::slice::from_ref(&request.with), &request.destroy, &request.seen)
            .await?;
        let devices = self.devices.open_all(&disks.paths, pool.id())?;
        let extents = self.devices.check_for(&pool, &devices, &disks.overwrite).await?;
        let mut steps = disks.steps("add");
        let moved = pool.bytes_on(&old);
        let room = Bytes(extents.iter().map(|extent| extent.unit_count() * ALLOCATION_UNIT_BYTES).sum());
        if moved > room.0 {
            return Err(too_small(&old, Bytes(moved), &request.with, room));
        }
        steps.extend(steps_of_leaving(&pool, &old, &request.with));
        let before = pool.offers();
        let mut after: Vec<_> = before.iter().filter(|offer| offer.slot != old.slot()).copied().collect();
        let next = pool.spaces.pool().disks().iter().map(|disk| disk.slot().0 + 1).max().unwrap_or(0);
        after.extend((next..).zip(&extents).map(|(slot, extent)| {
            let mut offer = offer_of(slot, extent, old.member().fault_domain);
            offer.free_units = offer.free_units.saturating_sub(moved.div_ceil(ALLOCATION_UNIT_BYTES));
            offer
        }));
        let undo = undo_of_replacing(&pool, &old, &request.with, &disks.overwrite);
        let figures = Figures { before: usual_room(&before), after: usual_room(&after), moved };
        let plan = figures.plan(undo, steps);
        if request.dry_run {
            return Ok(planned(plan, format!("{} would be replaced by {}", old.name(), request.with)));
        }
        allocate_metadata(&disks.paths, &extents)?;
        let Some(device) = devices.into_iter().next() else {
            return Err(ErrorBody::new(ErrorCode::BadRequest, "no disk was named"));
        };
        let job = self.begin_replace(&pool, &old, device, &disks.overwrite).await?;
        let mut change = made(plan, format!("{} is being replaced by {}", old.name(), request.with));
        change.job = job;
        Ok(change)
    }

    /// Begins the job of a replacement once more.
    async fn go_on_with(&self, pool: &Rc<OpenPool>, old: Rc<Disk>, new: Rc<Disk>, dry_run: bool) -> Change {
        let room = usual_room(&pool.offers());
        let undo = undo_of_replacing(pool, &old, &new.name(), &[]);
        let figures = Figures { before: room, after: room, moved: pool.bytes_on(&old) };
        let plan = figures.plan(undo, steps_of_leaving(pool, &old, &new.name()));
        let message = format!("{} goes on being replaced by {}", old.name(), new.name());
        if dry_run {
            return planned(plan, message);
        }
        let mut change = made(plan, message);
        change.job = Some(self.replacements.start_replacing(pool, old, new).await);
        change
    }

    /// Takes the new disk in. The epoch that does so says what it is for, so what follows goes on with whoever opens the
    /// pool next when this daemon ends.
    async fn begin_replace(
        &self,
        pool: &Rc<OpenPool>,
        old: &Rc<Disk>,
        device: Rc<dyn BlockDevice>,
        overwrite: &[String],
    ) -> Answer<Option<dolmen_api::Job>> {
        let inner = pool.spaces.pool();
        let _coming = pool.job_slot.announce();
        let added = inner.membership().add_instead_of(old, device, overwrite).await;
        let new = added.map_err(|error| fault::pool(&error))?;
        self.records.remember(pool).await;
        Ok(Some(self.replacements.start_replacing(pool, Rc::clone(old), new).await))
    }

    /// Takes a disk that was away back in, and brings it up to date.
    pub(crate) async fn online_disk(
        &self,
        name: String,
        what: String,
        request: OnlineDisk,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        self.pool_jobs.check_job_room(&pool)?;
        let (disk, found_at) = match find_disk(&pool, &what) {
            Ok(disk) => (disk, None),
            Err(error) => match self.disk_at(&pool, &what).await {
                At::Member(disk, at) => (disk, Some(at)),
                At::Former(at) => return Err(has_left(&pool, &at).on(what)),
                At::Nothing => return Err(error),
            },
        };
        if let PoolState::Latched(cause) = pool.spaces.pool().state() {
            return Err(stopped(&pool, cause));
        }
        if disk.is_present() {
            let text = format!("{} takes part already", disk.name());
            return Ok(planned(pool.plan(Undo::NotNeeded, vec![format!("leave it: {text}")]), text));
        }
        let path = match (&request.path, found_at) {
            (Some(path), _) => self.devices.canonical(path)?,
            (None, Some(path)) => path,
            (None, None) => self.find_absent(&pool, &disk).await?,
        };
        let change = self.rejoin(&pool, &disk, &path, Consent::Asked(&request)).await?;
        if !request.dry_run {
            forget_returns(&pool, disk.id());
        }
        Ok(change)
    }

    /// Takes a disk that came back in, by the path where it is now; `None` where it is awaited no more.
    pub(crate) async fn take_back(&self, id: PoolId, disk: DiskId, path: &Path) -> Answer<Option<Change>> {
        let Some(pool) = self.pools.open_pool_of(id) else { return Ok(None) };
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        // A command may have taken it in, offline or out meanwhile.
        let Some(disk) = awaited(&pool).into_iter().find(|one| one.id() == disk) else { return Ok(None) };
        self.rejoin(&pool, &disk, path, Consent::NotGiven).await.map(Some)
    }

    /// Takes in the absent disk that is at a path, and brings it up to date. The caller has the turn to change the pool.
    async fn rejoin(
        &self,
        pool: &Rc<OpenPool>,
        disk: &Rc<Disk>,
        path: &Path,
        consent: Consent<'_>,
    ) -> Answer<Change> {
        self.pool_jobs.check_job_room(pool)?;
        let device = self.devices.open_for_pool(path, pool.id())?;
        let absent = match pool.spaces.pool().membership().absent_member(device.as_ref()).await {
            Ok(absent) if absent.disk.id() == disk.id() => absent,
            Ok(_) | Err(PoolError::NoSuchDisk { .. }) => return Err(not_the_disk(path, disk)),
            Err(error) => return Err(not_taken_back(pool, disk, &error)),
        };
        let request = match consent {
            Consent::Asked(request) => request,
            Consent::NotGiven => {
                let lost = self.devices.lost_labels_of(&device).await;
                check_as_left(pool, &absent, lost, path)?;
                &OnlineDisk::default()
            }
        };
        let old = absent.old;
        let mut plan = plan_of_return(pool, disk, old.as_ref()).await?;
        let as_old = old_content_alone_on(pool, disk, old.as_ref()).await?;
        plan.steps.extend(as_old.clone());
        if request.dry_run {
            return Ok(planned(plan, format!("{} would take part again", path.display())));
        }
        check_consent_to_old(&pool.name(), disk, as_old.as_deref(), request)?;
        let known_lost = disk.labels().lost();
        disk.labels().forget_lost();
        let rejoined = pool.spaces.members().rejoin(device).await;
        let has_lost_labels = !disk.labels().lost().is_empty();
        disk.labels().note_lost(&known_lost);
        rejoined.map_err(|error| fault::space(&error))?;
        note_connections(pool, &self.members);
        self.records.remember(pool).await;
        let job = self.resyncs.resync_if_needed(pool).await;
        self.replacements.go_on_replacing(pool).await;
        self.drains.go_on_draining(pool).await;
        let mut change = made(plan, format!("{} takes part again", path.display()));
        change.job = job;
        change.warnings.extend(as_old);
        if has_lost_labels {
            // Its new labels do not say it any more.
            self.records.keep_history(pool).await;
            let scrub = self.scrubs.verify_all(pool).await;
            change.warnings.push(format!(
                "{}: something else was written over that, and perhaps over what else is on the disk; all of pool {} is \
                 verified {}",
                lost_labels_text(disk),
                pool.name(),
                when_verified(&scrub)
            ));
            change.job.get_or_insert(scrub);
        }
        change.pool = Some(self.views.view_pool(pool).await?);
        Ok(change)
    }

    /// The member whose label is at a path. One that was absent when the pool was opened is known by its identity alone.
    async fn disk_at(&self, pool: &OpenPool, what: &str) -> At {
        let Ok(path) = self.devices.canonical(what) else { return At::Nothing };
        let Ok(found) = self.devices.look_at(std::slice::from_ref(&path)).await else { return At::Nothing };
        let first = found.pools.get(&pool.id()).and_then(|found| found.first());
        let Some(label) = first.map(|found| &found.label) else { return At::Nothing };
        let inner = pool.spaces.pool();
        match inner.disks().into_iter().find(|disk| disk.id() == label.disk) {
            Some(disk) => At::Member(disk, path),
            None if inner.members().is_former_member(label) => At::Former(path),
            None => At::Nothing,
        }
    }

    async fn find_absent(&self, pool: &OpenPool, disk: &Disk) -> Answer<PathBuf> {
        let hints: Vec<PathBuf> =
            pool.spaces.pool().disks().iter().map(|disk| PathBuf::from(disk.name())).collect();
        let found = self.devices.look_at(&self.devices.places(&hints)).await?;
        let candidates = found.pools.get(&pool.id()).map_or(&[][..], Vec::as_slice);
        let at = candidates.iter().find(|candidate| candidate.label.disk == disk.id());
        match at {
            Some(candidate) => Ok(PathBuf::from(candidate.device.name())),
            None => Err(self.not_found(pool, disk).await),
        }
    }

    /// That an absent disk is nowhere, and what is in its place.
    async fn not_found(&self, pool: &OpenPool, disk: &Disk) -> ErrorBody {
        let (name, path) = (disk.name(), PathBuf::from(disk.name()));
        let error = |message: String| ErrorBody::new(ErrorCode::NoSuchDevice, message).on(name.clone());
        if let Err(on_space) = self.devices.check_below(&path) {
            return on_space;
        }
        if !path.is_absolute() || !path_of(&path).exists() {
            return error(format!("{name} was not found anywhere"))
                .hint("attach it, or name the path where it is now");
        }
        let there = self.devices.describe(&path).await;
        let is_what = match there.state {
            DeviceState::Empty => "it has no label, and holds nothing that is known".to_owned(),
            DeviceState::Foreign => format!("it holds {}", there.what),
            DeviceState::Member if there.has_left => format!("what is there {}", there.what),
            DeviceState::Member => format!("it is another one, {}", there.what),
            DeviceState::InUse | DeviceState::Unfit | DeviceState::Unusable => there.what,
        };
        let message = format!(
            "{name} is there, and is not disk {} of pool {} any more: {is_what}",
            disk.slot().0,
            pool.name()
        );
        error(message).hint(format!(
            "name the path where the disk is now, if it is elsewhere, or replace it: `dolmen disk replace {} {} NEW`",
            pool.name(),
            disk.slot().0
        ))
    }
}

/// That nothing is taken in by a pool that has stopped.
pub(crate) fn stopped(pool: &OpenPool, cause: String) -> ErrorBody {
    let name = pool.name();
    let error = match parse_name(&name) {
        Ok(name) => fault::pool(&PoolError::Latched { name, cause }),
        Err(error) => error,
    };
    error.on(name)
}

impl OpenPool {
    /// Bytes of slabs on a disk; for one that is absent, what its size says it may hold at most.
    pub(crate) fn bytes_on(&self, disk: &Disk) -> u64 {
        let room = self.spaces.pool().free_space().room().into_iter().find(|room| room.slot == disk.slot());
        match room {
            Some(room) if disk.is_present() => room.data.0.saturating_sub(room.free.0),
            Some(room) => {
                let extent = disk.size().extent();
                extent
                    .map_or(0, |extent| extent.unit_count() * ALLOCATION_UNIT_BYTES)
                    .saturating_sub(room.free.0)
            }
            None => 0,
        }
    }
}

/// Returns what to say of the spaces of which an old disk alone has content; none where there is no such space.
async fn old_content_alone_on(
    pool: &OpenPool,
    disk: &Disk,
    old: Option<&StrayReason>,
) -> Answer<Option<String>> {
    if old.is_none() {
        return Ok(None);
    }
    let alone = pool.spaces.members().alone_on(disk.slot()).await.map_err(|error| fault::space(&error))?;
    let names: Vec<String> = alone.iter().map(ToString::to_string).collect();
    let text =
        || format!("what no other disk here has of {} is as old as {} is", names.join(", "), disk.name());
    Ok((!names.is_empty()).then(text))
}

/// Refuses to take back a disk without consent to the old content that it alone holds.
fn check_consent_to_old(pool: &str, disk: &Disk, as_old: Option<&str>, request: &OnlineDisk) -> Answer<()> {
    let Some(as_old) = as_old.filter(|_| !request.accept_old_content) else { return Ok(()) };
    if mutation!(OldContentUnasked) {
        return Ok(());
    }
    let message = format!("{as_old}, which misses what was written since; nothing was changed");
    let slot = disk.slot().0;
    let hint = format!(
        "attach the disk that holds what is newer, or restore that from a backup afterwards; \
         `dolmen disk online {pool} {slot} --accept-old-content` takes the disk back with the old content"
    );
    Err(ErrorBody::new(ErrorCode::NeedsConfirmation, message).on(format!("{pool}/{slot}")).hint(hint))
}

/// What follows when a disk that was away is taken back in.
/// Of a disk that is as it was before, all that it has is copied.
async fn plan_of_return(open: &OpenPool, disk: &Disk, old: Option<&StrayReason>) -> Answer<Plan> {
    let pool = open.spaces.pool();
    let missed = pool.map().scan(keys::stale_on(disk.slot()), usize::MAX).await;
    let missed = missed.map_err(|error| fault::pool(&error))?;
    let mut bytes = 0;
    for (key, _) in &missed {
        let row = pool.map().get(&keys::row(RowId(keys::parts(key).1))).await;
        let row = row.map_err(|error| fault::pool(&error))?.and_then(|value| MappedRow::parse(&value));
        bytes += row.map_or(0, |row| row.shape.row.0);
    }
    // No more than there is room for on it, however long its rows are.
    let capacity = disk.size().extent().map_or(0, |extent| extent.unit_count() * ALLOCATION_UNIT_BYTES);
    let room = pool.free_space().room().into_iter().find(|room| room.slot == disk.slot());
    let used = capacity.saturating_sub(room.map_or(0, |room| room.free.0));
    let moved = if old.is_some() { used } else { bytes.min(capacity) };
    let copy = match (old, missed.len()) {
        (Some(why), _) => format!("copy all that lies on it, {} at most: {why}", Bytes(moved)),
        (None, 0) => "copy what it missed".to_owned(),
        (None, rows) => {
            format!("copy what it missed of {}, {} at most", counted(rows, "row", "rows"), Bytes(moved))
        }
    };
    let mut steps = vec![format!("take {} back in", disk.name()), copy];
    let begun = pool.members().replacements().into_iter();
    let is_part = |one: &Disk| one.id() == disk.id();
    steps.extend(
        begun
            .filter(|(old, new)| is_part(old) || is_part(new))
            .map(|(old, new)| format!("go on with the replacement of {} by {}", old.name(), new.name())),
    );
    let room = usual_room(&open.offers());
    let undo = Undo::By(format!("dolmen disk offline {} {}", pool.name(), disk.slot().0));
    Ok(Figures { before: room, after: room, moved }.plan(undo, steps))
}

/// Nothing leads out of a replacement whose disk has too little room, so none is begun.
fn too_small(old: &Disk, held: Bytes, with: &str, room: Bytes) -> ErrorBody {
    let (name, holds) = (old.name(), if old.is_present() { "holds" } else { "may hold" });
    let message = format!("{name} {holds} {held}, and {with} has room for {room}; nothing was changed");
    ErrorBody::new(ErrorCode::UnfitDevice, message)
        .on(with)
        .hint("name a larger one, or delete or shrink spaces first")
}

/// Why an absent disk is not taken back in, although it is here.
fn not_taken_back(pool: &OpenPool, disk: &Disk, why: &PoolError) -> ErrorBody {
    let error = fault::pool(why).on(disk.name());
    match why {
        PoolError::Stray { why: StrayReason::CutShort { .. }, .. } => {
            let (name, slot) = (pool.name(), disk.slot().0);
            error.hint(format!("replace it: `dolmen disk replace {name} {slot} NEW`"))
        }
        _ => error,
    }
}

/// Returns when a scrub verifies a pool: one that a person has paused stays so.
fn when_verified(scrub: &Job) -> String {
    if scrub.state != JobState::Paused {
        return format!("by job {}, behind what brings the disk up to date", scrub.id);
    }
    let id = scrub.id;
    format!("by job {id}, which is paused and verifies nothing before `dolmen job resume {id}` resumes it")
}

/// That a disk has left the pool: nothing takes it back in with what it holds.
pub(crate) fn has_left(pool: &OpenPool, path: &Path) -> ErrorBody {
    let (name, path) = (pool.name(), path.display());
    let message = format!(
        "{path} was a disk of pool {name} and has left it, so it cannot take part again; what it holds is out of date, and the \
         pool goes on without it; nothing was changed"
    );
    let path = path.to_string();
    let path = shell_word(&path);
    let hint = format!(
        "`dolmen pool add {name} {path} --destroy={path}` takes it in as a new disk, and loses what it holds"
    );
    ErrorBody::new(ErrorCode::NoSuchDisk, message).hint(hint)
}

fn not_the_disk(path: &Path, disk: &Disk) -> ErrorBody {
    let message = format!("{} is not {}; nothing was changed", path.display(), disk.name());
    ErrorBody::new(ErrorCode::UnfitDevice, message)
        .on(path.display().to_string())
        .hint("to put another disk in its place, use `dolmen disk replace`")
}

/// How a replacement is taken back: nothing brings a disk back that is not here, or what the other one held.
fn undo_of_replacing(pool: &OpenPool, old: &Disk, with: &str, destroyed: &[String]) -> Undo {
    if !old.is_present() {
        return Undo::ByNothing;
    }
    let (pool, slot, old) = (pool.name(), old.slot().0, old.name());
    let command = format!(
        "dolmen disk replace {pool} {slot} --cancel, or, when it has ended, dolmen disk replace {pool} {with} {old}"
    );
    Undo::unless_destroying(destroyed, command)
}

/// What happens to a disk that another replaces.
fn steps_of_leaving(pool: &OpenPool, old: &Disk, new: &str) -> Vec<String> {
    let (old_name, evict) = (old.name(), format!("evict {} from the pool", old.name()));
    if old.is_present() {
        return vec![format!("move everything that is left on {old_name} to {new}"), evict];
    }
    let mut steps = vec![format!("rebuild on {new}, from other copies, what {old_name} held")];
    let spaces = pool.spaces.kept();
    // With parity no disk holds anything alone: it is reckoned from the other columns.
    let single =
        spaces.iter().filter(|space| space.spec().resiliency.redundancy() == 0 && space.claimed().0 > 0);
    let names: Vec<String> = single.map(|space| space.name().to_string()).collect();
    if names.is_empty() {
        steps.push(evict);
    } else {
        steps.push(format!(
            "what {old_name} alone holds of {} waits for {old_name} to come back; {evict} when nothing waits",
            names.join(", ")
        ));
    }
    steps
}

/// Refuses to replace a disk by another one than the disk that it is being replaced by.
fn replaced_by_another(pool: &str, old: &Disk, new: &Disk, asked: &str) -> ErrorBody {
    let (old_name, new_name) = (old.name(), new.name());
    let message =
        format!("{old_name} is being replaced by {new_name} already, not by {asked}; nothing was changed");
    let hint = format!(
        "name {new_name} to go on with that replacement, or call it off: `dolmen disk replace {pool} {} --cancel`",
        old.slot().0
    );
    ErrorBody::new(ErrorCode::Busy, message).hint(hint)
}
