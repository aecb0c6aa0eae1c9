//! "Am I fine?": how pools and spaces are, why, what is being done, and what a person should do.

use std::rc::Rc;

use dolmen_api::{
    API_VERSION, ErrorBody, ErrorCode, Health, Job, JobKind, JobState, SCHEMA, Status, Version,
};
use dolmen_block_io::Moment;
use dolmen_pool::{Disk, DiskCounters, PoolState};
use dolmen_space::{IncidentKind, Space};
use dolmen_units::Bytes;

use crate::caller::Answer;
use crate::engine::{Engine, OpenPool};
use crate::fault;
use crate::jobs::Entry;
use crate::words::counted;

/// Ranges of lost data that are named one by one.
const PLACES_MAX: usize = 3;
/// A pool is nearly full for a thin space when what it can still take is below this part of what it has.
const NEAR_PARTS: u64 = 10;

/// Whether a disk takes part. One that failed keeps its seat in a pool that stopped for it, and takes part no more.
pub(crate) fn is_here(disk: &Disk) -> bool {
    disk.is_present() && !disk.has_failed()
}

pub(crate) fn absent_names(open: &OpenPool) -> Vec<String> {
    let disks = open.spaces.pool().disks();
    disks.iter().filter(|disk| !is_here(disk)).map(|disk| disk.name()).collect()
}

/// How absent disks come back, in words.
pub(crate) fn to_attach_absent(open: &OpenPool) -> String {
    let name = open.name();
    if matches!(open.spaces.pool().state(), PoolState::Latched(_)) {
        return format!(
            "see to the disks of pool {name}, which are away or failed; then `dolmen stop --hand-over`, and start the daemon again"
        );
    }
    let disks = open.spaces.pool().disks();
    let absent = disks.iter().filter(|disk| !disk.is_present());
    let ways: Vec<String> = absent
        .map(|disk| format!("attach {} and `dolmen disk online {name} {}`", disk.name(), disk.slot().0))
        .collect();
    if ways.is_empty() { format!("bring the disks of pool {name} back") } else { ways.join(", ") }
}

/// Absent disks that may have a part of a space: of one that is being replaced it is known which spaces it has parts of.
pub(crate) fn absent_with(open: &OpenPool, space: &Space) -> usize {
    let may_have = |disk: &Rc<Disk>| {
        let left = open.spaces.left_on(disk.id());
        left.is_none_or(|left| left.iter().any(|other| other.id() == space.id()))
    };
    let disks = open.spaces.pool().disks();
    disks.iter().filter(|disk| !disk.is_present()).filter(|disk| may_have(disk)).count()
}

/// Replacements of absent disks that wait for what these alone have, and the spaces that it is part of.
fn waiting_replacements(open: &OpenPool) -> Vec<(Rc<Disk>, Rc<Disk>, String)> {
    let waits = |(old, new): (Rc<Disk>, Rc<Disk>)| {
        let left = open.spaces.left_on(old.id()).filter(|left| !left.is_empty() && !old.is_present())?;
        let names: Vec<String> =
            left.iter().map(|space| format!("{}/{}", open.name(), space.name())).collect();
        Some((old, new, names.join(", ")))
    };
    open.spaces.pool().replacements().into_iter().filter_map(waits).collect()
}

/// Disks that are to leave, and of which a removal has left something; the spaces that it is part of.
fn waiting_removals(open: &OpenPool) -> Vec<(Rc<Disk>, String)> {
    let waits = |disk: Rc<Disk>| {
        let left = open.spaces.left_on(disk.id()).filter(|left| !left.is_empty())?;
        let names: Vec<String> =
            left.iter().map(|space| format!("{}/{}", open.name(), space.name())).collect();
        Some((disk, names.join(", ")))
    };
    open.spaces.drains().into_iter().filter_map(waits).collect()
}

/// How a space is, and why.
pub(crate) fn space_health(open: &OpenPool, space: &Space) -> (Health, Vec<String>) {
    let mut health = Health::Healthy;
    let mut why = Vec::new();
    if matches!(open.spaces.pool().state(), PoolState::Latched(_)) {
        // Why is said of the pool.
        return (Health::Unhealthy, Vec::new());
    }
    let absent = absent_with(open, space);
    let redundancy = usize::from(space.spec().resiliency.redundancy());
    let name = format!("{}/{}", open.name(), space.name());
    if absent > redundancy && space.claimed().0 > 0 {
        health = Health::Unhealthy;
        why.push(format!(
            "parts of space {name} may be out of reach: {absent} disks are absent, it survives {redundancy}"
        ));
    } else if absent > 0 && space.claimed().0 > 0 {
        health = Health::Warning;
        why.push(format!(
            "space {name} survives the loss of {} instead of {redundancy}",
            counted(redundancy - absent, "more disk", "more disks")
        ));
    }
    let incidents = open.incidents();
    let of_kind = |kind| incidents.iter().filter(move |one| one.space == space.id() && one.kind == kind);
    let is_lost = |kind| matches!(kind, IncidentKind::Lost | IncidentKind::TableLost);
    let of_space = incidents.iter().filter(|one| one.space == space.id());
    let all_lost = of_space.filter(|one| is_lost(one.kind));
    let lost: Vec<String> =
        all_lost.clone().take(PLACES_MAX).map(|one| format!("{} at byte {}", one.length, one.at)).collect();
    if !lost.is_empty() {
        health = Health::Unhealthy;
        let count = all_lost.count();
        why.push(format!("space {name} has lost data in {count} places, first: {}", lost.join(", ")));
    }
    let taken = of_kind(IncidentKind::TakenAsFound).count();
    if taken > 0 {
        health = health.max(Health::Warning);
        why.push(format!(
            "in {taken} places of space {name}, what was being written at a crash was taken as it was found"
        ));
    }
    // Once they are all back, whoever reads such a block finds out.
    let rotten = of_kind(IncidentKind::RottenHere).count();
    if rotten > 0 && absent > 0 {
        health = health.max(Health::Warning);
        why.push(format!(
            "in {rotten} places of space {name} no copy that is here is good; the disks that are absent may have one"
        ));
    }
    if let Some(short) = short_of_room(open, space) {
        health = health.max(Health::Warning);
        why.push(short);
    }
    (health, why)
}

/// That a thin space has met the end of its pool, or soon will.
fn short_of_room(open: &OpenPool, space: &Space) -> Option<String> {
    let (spec, pool) = (space.spec(), open.name());
    let unclaimed = spec.size.0.saturating_sub(space.claimed().0);
    let usable = open.room_for(&spec);
    if unclaimed == 0 || usable.0 >= unclaimed || open.spaces.pool().state() != PoolState::Writable {
        return None;
    }
    let name = format!("{pool}/{}", spec.name);
    if open.lacks_disks_for(space) {
        return Some(format!(
            "thin space {name} needs more disks than pool {pool} has in use: what was never written cannot be written until \
             the absent ones are back or replaced, or others are added; all else can"
        ));
    }
    if usable.0 < space.row_bytes() {
        return Some(format!(
            "thin space {name} has met the end of pool {pool}: what was never written cannot be written now, all else can"
        ));
    }
    let is_near = usable.0 < space.claimed().0 / NEAR_PARTS;
    is_near.then(|| {
        format!(
            "thin space {name} can take {usable} more before pool {pool} is full, of {} that it may ask for",
            Bytes(unclaimed)
        )
    })
}

/// Disks that are here with errors that nobody has acknowledged, and those errors.
pub(crate) fn unseen_errors(open: &OpenPool) -> Vec<(Rc<Disk>, DiskCounters)> {
    let acknowledged = open.history.acknowledged.borrow();
    let unseen = |disk: Rc<Disk>| {
        let (all, seen) = (disk.counters(), acknowledged.get(&disk.id()).copied().unwrap_or_default());
        let errors = DiskCounters {
            read_errors: all.read_errors.saturating_sub(seen.read_errors),
            write_errors: all.write_errors.saturating_sub(seen.write_errors),
            crowded_writes: all.crowded_writes.saturating_sub(seen.crowded_writes),
            checksum_errors: all.checksum_errors.saturating_sub(seen.checksum_errors),
            ..DiskCounters::default()
        };
        (errors != DiskCounters::default()).then_some((disk, errors))
    };
    let disks = open.spaces.pool().disks();
    disks.into_iter().filter(|disk| disk.is_present()).filter_map(unseen).collect()
}

/// The errors of a disk in words.
pub(crate) fn errors_text(errors: &DiskCounters) -> String {
    let crowded = match errors.crowded_writes {
        0 => "",
        some if some == errors.write_errors => " for lack of room below",
        _ => " (some for lack of room below)",
    };
    format!(
        "{}, {}{crowded}, {}",
        counted(errors.read_errors, "failed read", "failed reads"),
        counted(errors.write_errors, "failed write", "failed writes"),
        counted(errors.checksum_errors, "damaged block", "damaged blocks")
    )
}

/// Whether nothing is the matter with a disk but that what it lies on is full.
fn is_only_crowded(errors: &DiskCounters) -> bool {
    let of_writes = errors.crowded_writes > 0 && errors.crowded_writes == errors.write_errors;
    of_writes && errors.read_errors == 0 && errors.checksum_errors == 0
}

/// That a loss which a space survives takes the metadata with it, because disks are too small to carry it.
fn few_voters(open: &OpenPool) -> Option<String> {
    let pool = open.spaces.pool();
    let small: Vec<String> = pool.too_small_to_vote().iter().map(|disk| disk.name()).collect();
    let voters = pool.voters().len();
    let redundancy = open.spaces.list().iter().map(|space| space.spec().resiliency.redundancy()).max();
    let survived = usize::from(redundancy.unwrap_or(0)).max(1);
    if small.is_empty() || voters > survived {
        return None;
    }
    Some(format!(
        "the metadata of pool {} is on {voters} {} only, and to lose {} is to lose the pool: {} {} too small to carry it, \
         which takes an area of {}, a thousandth of a disk",
        open.name(),
        if voters == 1 { "disk" } else { "disks" },
        if voters == 1 { "it" } else { "them all" },
        small.join(", "),
        if small.len() == 1 { "is" } else { "are" },
        pool.voter_metadata_min(),
    ))
}

/// How a pool with its spaces is, and why.
pub(crate) async fn pool_health(open: &OpenPool) -> (Health, Vec<String>) {
    let pool = open.spaces.pool();
    let name = open.name();
    let mut health = Health::Healthy;
    let mut why = Vec::new();
    match pool.state() {
        PoolState::Writable => {}
        PoolState::ReadOnly(cause) => {
            health = Health::Warning;
            why.push(format!("pool {name} is open read-only: {cause}"));
        }
        PoolState::Latched(cause) => {
            health = Health::Unhealthy;
            why.push(format!("pool {name} has stopped: {cause}"));
        }
    }
    let absent = absent_names(open);
    if !absent.is_empty() {
        health = health.max(Health::Warning);
        why.push(format!(
            "{} of pool {name} {} absent",
            absent.join(", "),
            if absent.len() == 1 { "is" } else { "are" }
        ));
    }
    for disk in pool.disks().iter().filter(|disk| !disk.is_present()) {
        why.extend(disk.unfit().map(|cause| format!("{} cannot be used: {cause}", disk.name())));
    }
    for (plight, _) in open.plights_in_words() {
        health = health.max(Health::Warning);
        why.push(plight);
    }
    for (disk, errors) in unseen_errors(open) {
        health = health.max(Health::Warning);
        why.push(format!("{} had {}", disk.name(), errors_text(&errors)));
    }
    if let Ok(short) = open.spaces.short_rows().await
        && short > 0
    {
        health = health.max(Health::Warning);
        let are = if short == 1 { "is not on all its" } else { "are not on all their" };
        why.push(format!("{} of pool {name} {are} disks yet", counted(short, "row", "rows")));
    }
    if let Some(few) = few_voters(open) {
        health = health.max(Health::Warning);
        why.push(few);
    }
    for (old, new, spaces) in waiting_replacements(open) {
        why.push(format!(
            "{} is being replaced by {}, which has all but the parts of {spaces} that the old one alone holds",
            old.name(),
            new.name()
        ));
    }
    for (disk, spaces) in waiting_removals(open) {
        health = health.max(Health::Warning);
        why.push(format!(
            "{} cannot leave pool {name}: rows of {spaces} have a part there that no other disk took",
            disk.name()
        ));
    }
    // What is worst comes first: a screen has room for a few lines.
    let mut worst = Vec::new();
    for space in open.spaces.list() {
        let (of_space, reasons) = space_health(open, &space);
        health = health.max(of_space);
        if of_space == Health::Unhealthy { &mut worst } else { &mut why }.extend(reasons);
    }
    worst.extend(why);
    (health, worst)
}

fn doing(job: &Job) -> String {
    let verb = match job.kind {
        JobKind::Resync => "bringing up to date",
        JobKind::Replace => "replacing",
        JobKind::Drain => "removing",
        JobKind::Scrub => "verifying",
        JobKind::WriteCache => "changing the size of",
        JobKind::Rebalance => "evening out",
    };
    let percent = (job.rows_done * 100).checked_div(job.rows_total).unwrap_or(0);
    let state = if job.state == JobState::Waiting { "waiting".to_owned() } else { format!("{percent} %") };
    format!("{verb} {} (job {}, {state})", job.subject, job.id)
}

/// How a job that stands goes on.
fn to_resume(entry: &Entry) -> Option<String> {
    let is_paused = entry.state() == JobState::Paused;
    is_paused.then(|| format!("`dolmen job resume {}`: {} is paused", entry.id, entry.what()))
}

/// What to do about disks that are here and had errors.
fn for_disks_with_errors(open: &OpenPool) -> Vec<String> {
    let (name, mut todo) = (open.name(), Vec::new());
    let (crowded, sick): (Vec<_>, Vec<_>) =
        unseen_errors(open).into_iter().partition(|(_, errors)| is_only_crowded(errors));
    for (disk, _) in &crowded {
        todo.push(format!(
            "free some room where {} lies, in its file system or thin pool: the disk itself is sound; `dolmen pool acknowledge {name}` \
             ends this warning until there are more errors",
            disk.name()
        ));
    }
    let sick: Vec<String> = sick.iter().map(|(disk, _)| disk.name()).collect();
    if !sick.is_empty() {
        todo.push(format!(
            "`dolmen scrub {name}` to see whether all is sound; replace {} if it happens again; `dolmen pool acknowledge {name}` \
             ends this warning until there are more errors",
            sick.join(" or ")
        ));
    }
    todo
}

/// What to do about ranges that were damaged.
fn for_damage(open: &OpenPool) -> Vec<String> {
    let (name, incidents) = (open.name(), open.incidents());
    let has = |space: &Space, kind| incidents.iter().any(|one| one.space == space.id() && one.kind == kind);
    let mut todo = Vec::new();
    for space in open.spaces.list() {
        if has(&space, IncidentKind::Lost) || has(&space, IncidentKind::TableLost) {
            todo.push(format!(
                "restore the lost ranges of {name}/{} from a backup by writing them again; `dolmen pool acknowledge {name}` or a \
                 scrub then sees that they can be read",
                space.name()
            ));
        }
        if has(&space, IncidentKind::TakenAsFound) {
            todo.push(format!(
                "see whether what is in {name}/{} is sound, with the check of its file system for instance; `dolmen pool \
                 acknowledge {name}` ends this warning",
                space.name()
            ));
        }
    }
    todo
}

fn todo(open: &OpenPool, jobs: &[Job], now: Moment) -> Vec<String> {
    let name = open.name();
    let mut todo = Vec::new();
    match open.spaces.pool().state() {
        PoolState::Writable => {}
        PoolState::ReadOnly(_) => todo.push(format!("to write to pool {name}: {}", fault::to_write(&name))),
        PoolState::Latched(_) => {
            // All else is about a pool that goes on.
            return vec![to_attach_absent(open)];
        }
    }
    let is_replacing = jobs.iter().any(|job| matches!(job.kind, JobKind::Replace | JobKind::Drain));
    for disk in open.spaces.pool().disks().iter().filter(|disk| !disk.is_present() && !is_replacing) {
        let slot = disk.slot().0;
        let waiting = waiting_replacements(open).into_iter().find(|(old, ..)| old.slot() == disk.slot());
        if let Some((old, new, spaces)) = waiting {
            todo.push(format!(
                "attach {} and `dolmen disk online {name} {slot}`, or delete {spaces}; its replacement by {} then goes on by itself",
                old.name(),
                new.name()
            ));
            continue;
        }
        let begun = open
            .spaces
            .pool()
            .replacements()
            .into_iter()
            .find(|(old, new)| old.slot() == disk.slot() && new.is_present());
        let new = begun.map_or_else(|| "NEW".to_owned(), |(_, new)| new.name());
        if is_only_crowded(&disk.counters()) {
            todo.push(format!(
                "free some room where {} lies, in its file system or thin pool, then `dolmen disk online {name} {slot}`: the disk itself is sound",
                disk.name()
            ));
            continue;
        }
        let outlook = open
            .absences
            .outlook(open.spaces.pool(), disk, now)
            .map(|text| format!("; {text}"))
            .unwrap_or_default();
        todo.push(format!(
            "attach {0} and `dolmen disk online {name} {slot}`, or `dolmen disk replace {name} {slot} {new}`{outlook}",
            disk.name()
        ));
    }
    for (disk, spaces) in waiting_removals(open) {
        todo.push(format!(
            "add a disk to pool {name}, or delete {spaces}, so that {} can leave; or keep it: `dolmen pool remove {name} {} --cancel`",
            disk.name(),
            disk.slot().0
        ));
    }
    todo.extend(open.plights_in_words().into_iter().map(|(_, todo)| todo));
    todo.extend(for_disks_with_errors(open));
    let is_short = |space: &Rc<Space>| !open.lacks_disks_for(space) && short_of_room(open, space).is_some();
    if open.spaces.list().iter().any(is_short) {
        todo.push(format!(
            "add a disk to pool {name}, or delete or trim something; `dolmen df` shows what fits"
        ));
    }
    todo.extend(for_damage(open));
    todo
}

/// How a pool that should be open comes to be.
fn to_open(pool: &str, cause: &ErrorBody) -> String {
    let import = format!("`dolmen pool import --pool {pool}`");
    match cause.code {
        // A copy of a disk: which one has to go is known.
        ErrorCode::UnfitDevice if cause.hint.is_some() => cause.hint.clone().unwrap_or_default(),
        ErrorCode::DeviceInUse => format!("end what has the disks of pool {pool} in use, then {import}"),
        ErrorCode::ReadOnly => format!(
            "attach the disks of pool {pool} that are missing, or take away those of the other side, then {import}; with \
             --read-only to look at it as it is, or with --confirmed, which risks what is said above"
        ),
        _ => format!(
            "attach the disks of pool {pool}, then {import}; or, if it is gone for good, `dolmen pool export {pool}` has it forgotten"
        ),
    }
}

impl Engine {
    pub(crate) async fn status(self: Rc<Self>) -> Answer<Status> {
        let now = self.seams.clock.now();
        let (mut pools, mut spaces) = (Vec::new(), Vec::new());
        let mut going_on: Vec<String> = self.doing.borrow().clone();
        let mut to_do = Vec::new();
        for open in self.open_pools() {
            let jobs = self.jobs.of_pool(open.id(), now);
            going_on.extend(jobs.iter().map(doing));
            to_do.extend(todo(&open, &jobs, now));
            to_do.extend(self.jobs.unfinished_of(open.id()).iter().filter_map(|job| to_resume(job)));
            pools.push(self.view_pool(&open).await?);
            spaces.extend(self.view_spaces(&open).await?);
        }
        to_do.extend(
            self.closed.borrow().values().map(|closed| to_open(&closed.remembered.name, &closed.cause)),
        );
        pools.extend(self.view_closed());
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        let besides = self.besides();
        let of_these = if besides.is_empty() { Health::Healthy } else { Health::Warning };
        let health = pools.iter().map(|pool| pool.health).max().unwrap_or(Health::Healthy).max(of_these);
        let mut why: Vec<String> = pools.iter().flat_map(|pool| pool.why.clone()).collect();
        for (reasons, advice) in besides {
            why.extend(reasons);
            to_do.extend(advice);
        }
        Ok(Status {
            schema: SCHEMA,
            health,
            summary: summary(health, pools.len(), spaces.len(), why.len()),
            why,
            doing: going_on,
            todo: to_do,
            version: version(),
            uptime_s: now.since(self.began).as_secs(),
            pid: std::process::id(),
            pools,
            spaces,
        })
    }
}

impl Engine {
    /// What is the matter with anything but pools that are open, and what to do about it.
    fn besides(&self) -> Vec<(Vec<String>, Vec<String>)> {
        let is_open = |pool| self.pools.borrow().contains_key(&pool);
        let shown = self.ways.all();
        let waiting: Vec<_> = shown.iter().filter(|one| !is_open(one.space().pool)).collect();
        let attached = (
            waiting.iter().map(|one| one.waits_text()).collect(),
            waiting.iter().map(|one| one.to_go_on()).collect(),
        );
        let advice = |reasons: &[String], advice: &str| match reasons {
            [] => Vec::new(),
            _ => vec![advice.to_owned()],
        };
        let ended = self.ended_with_daemon();
        let doors = self.door_problems();
        let mend = "mend what is said of the address or its files; it is tried again every few seconds";
        let certificates = self.certificate_warnings();
        let renew = "put new files in the place of those that are named; they are read again by themselves";
        let (mend, renew) = (advice(&doors, mend), advice(&certificates, renew));
        let all = [attached, ended, (doors, mend), (certificates, renew)];
        all.into_iter().filter(|(reasons, _)| !reasons.is_empty()).collect()
    }
}

impl Engine {
    /// Spaces that were attached in the way that ends with the daemon, and did.
    fn ended_with_daemon(&self) -> (Vec<String>, Vec<String>) {
        let pools = self.pools.borrow();
        let mut ended = self.ways.ended();
        // One that was deleted is nobody's concern; of a pool that is not open nobody knows.
        ended.retain(|(key, _)| pools.get(&key.pool).is_none_or(|pool| pool.spaces.get(key.space).is_some()));
        let was = |name: &str| {
            format!(
                "space {name} was attached by io_uring (loop-uring), which ended with the daemon before: it is not attached any more"
            )
        };
        let advice = |name: &str| {
            format!(
                "attach it again: `dolmen space attach {name}`; `dolmen space detach {name}` says that it is not to be"
            )
        };
        ended.into_iter().map(|(_, name)| (was(&name), advice(&name))).unzip()
    }
}

fn summary(health: Health, pools: usize, spaces: usize, reasons: usize) -> String {
    let all = format!("{} with {}", counted(pools, "pool", "pools"), counted(spaces, "space", "spaces"));
    match health {
        Health::Healthy if pools == 0 => "healthy: there is no pool yet".to_owned(),
        Health::Healthy => format!("healthy: {all}, everything is as it should be"),
        Health::Warning => {
            format!("warning: {all}; nothing is lost, but there {} to look at", plural(reasons))
        }
        Health::Unhealthy => format!("unhealthy: {all}; data or a whole pool is out of reach or lost"),
    }
}

fn plural(reasons: usize) -> String {
    if reasons == 1 { "is 1 thing".to_owned() } else { format!("are {reasons} things") }
}

/// Who answers.
pub(crate) fn version() -> Version {
    Version { schema: SCHEMA, daemon: env!("CARGO_PKG_VERSION").to_owned(), api: API_VERSION }
}
