//! "Am I fine?": how pools and spaces are, why, what is being done, and what a person should do.

use std::rc::Rc;

use dolmen_api::{
    API_VERSION, ErrorBody, ErrorCode, Finding, FindingCode, Health, JobState, Object, SCHEMA, Version,
};
use dolmen_block_io::Instant;
use dolmen_block_io::sync::yield_now;
use dolmen_pool::{Disk, PoolState};
use dolmen_space::{DataLossKind, Space, failed_reads};

use crate::advice::Advice;
use crate::disks::{Standing, outlook_of_failing, smart_advice, standing};
use crate::fault;
use crate::finding::found;
use crate::health::findings::{
    is_only_backing_full, out_of_reach_with, short_of_room, slow_disks, to_attach_absent, unseen_errors,
    waiting_removals, waiting_replacements, without_labels,
};
use crate::health::growth::growth_advice;
use crate::jobs::{Entry, JobView};
use crate::open_pool::{ClosedPool, OpenPool};
use crate::settings::{apart_advice, reserve_advice, room_advice};
use crate::state::Slow;

pub(crate) fn doing(job: &JobView) -> String {
    let percent = job.done_percent().unwrap_or_default();
    let mut state =
        if job.state == JobState::Waiting { "waiting".to_owned() } else { format!("{percent} %") };
    state.extend(job.eta.map(|eta| format!(", {} left", eta.words())));
    format!("{} {} (job {}, {state})", job.kind.doing(), job.subject, job.id)
}

/// How a job that stands goes on.
pub(crate) fn to_resume(entry: &Entry) -> Option<String> {
    let is_paused = entry.state() == JobState::Paused;
    is_paused.then(|| format!("`dolmen job resume {}`: {} is paused", entry.id, entry.what()))
}

/// What to do about disks that are here and had errors.
fn for_disks_with_errors(open: &OpenPool, jobs: &[JobView]) -> Vec<Advice> {
    let (name, mut todo) = (open.name(), Vec::new());
    let (backing_full, failing): (Vec<_>, Vec<_>) =
        unseen_errors(open).into_iter().partition(|(_, errors)| is_only_backing_full(errors));
    for (disk, _) in &backing_full {
        let text = format!(
            "free some room where {} lies, in its file system or thin pool: the disk itself is sound; `dolmen pool acknowledge {name}` \
             ends this warning until there are more errors",
            disk.name()
        );
        todo.push(Advice::for_disk(open, FindingCode::DiskBackingFull, disk, text));
    }
    let (unhealthy, suspect): (Vec<_>, Vec<_>) =
        failing.into_iter().partition(|(disk, _)| open.is_failing(disk));
    for (disk, _) in &unhealthy {
        todo.push(Advice::for_disk(open, FindingCode::DiskErrors, disk, for_failing(open, disk, jobs)));
    }
    let names: Vec<String> = suspect.iter().map(|(disk, _)| open.called(disk)).collect();
    if !names.is_empty() {
        let text = format!(
            "`dolmen scrub {name}` to see whether all is sound; replace {} if it happens again; `dolmen pool acknowledge {name}` \
             ends this warning until there are more errors",
            names.join(" or ")
        );
        let about = |disk: &Disk| (FindingCode::DiskErrors, Object::disk(name.as_str(), disk.slot().0));
        todo.push(Advice { about: suspect.iter().map(|(disk, _)| about(disk)).collect(), text });
    }
    todo
}

/// What to do about a disk that is failing, and what is being done.
fn for_failing(open: &OpenPool, disk: &Disk, jobs: &[JobView]) -> String {
    let (name, slot) = (open.name(), disk.slot().0);
    let outlook = outlook_of_failing(open, disk, jobs).map(|text| format!("{text}; ")).unwrap_or_default();
    // The only disk of a pool cannot leave it.
    let removal = match open.spaces.pool().disks().len() {
        0 | 1 => String::new(),
        _ => format!(", and `dolmen pool remove {name} {slot}` does without it"),
    };
    format!(
        "{outlook}`dolmen disk replace {name} {slot} NEW` puts another in the place of {}{removal}; `dolmen pool acknowledge {name}` ends this warning and has it used as before, until there are more errors",
        open.called(disk)
    )
}

/// What to do about disks that are much slower than the others.
fn for_slow_disks(open: &OpenPool) -> Vec<Advice> {
    let name = open.name();
    let advice = |(disk, _): (Rc<Disk>, Slow)| {
        let slot = disk.slot().0;
        let text = format!(
            "find out what keeps {} busy beside the pool; new rows go to others meanwhile; if nothing does, `dolmen disk replace {name} {slot} NEW` or \
             `dolmen pool remove {name} {slot}`",
            open.called(&disk)
        );
        Advice::for_disk(open, FindingCode::DiskSlow, &disk, text)
    };
    slow_disks(open).into_iter().map(advice).collect()
}

/// What to do about disks that were taken in without one of their labels.
fn for_disks_without_labels(open: &OpenPool, jobs: &[JobView]) -> Vec<Advice> {
    let name = open.name();
    let scrub = jobs.iter().find(|job| job.kind.verifies_all());
    let verify = match scrub {
        Some(job) => format!("wait for job {}, which verifies all that it holds", job.id),
        None => {
            format!("see in `dolmen jobs` what the scrub said, or `dolmen scrub {name}` to verify it again")
        }
    };
    let advice = |disk: Rc<Disk>| {
        let text = format!(
            "find out what wrote to {}, and {verify}; `dolmen pool acknowledge {name}` ends this warning",
            disk.name()
        );
        Advice::for_disk(open, FindingCode::DiskLabelsLost, &disk, text)
    };
    without_labels(open).into_iter().map(advice).collect()
}

/// What to do about ranges that were damaged.
fn for_damage(open: &OpenPool) -> Vec<Advice> {
    let (name, data_loss_events) = (open.name(), open.data_loss_events());
    let has =
        |space: &Space, kind| data_loss_events.iter().any(|one| one.space == space.id() && one.kind == kind);
    let mut todo = Vec::new();
    for space in open.spaces.list() {
        let object = Object::space(name.as_str(), space.name().to_string());
        if has(&space, DataLossKind::Lost) || has(&space, DataLossKind::TableLost) {
            let text = format!(
                "see in `dolmen why {name}/{}` which files are hit, and restore them from a backup; without a volume, write the lost \
                 ranges again, which `dolmen scrub {name}` lists; then `dolmen pool acknowledge {name}` sees that they can be read",
                space.name()
            );
            todo.push(Advice::new(FindingCode::SpaceDataLost, object.clone(), text));
        }
        if !failed_reads(&space).is_empty() {
            let text = format!(
                "`dolmen disk list {name}` shows the disks that fail, and `dolmen why {name}/{}` the files that cannot be read; \
                 restore these from a backup, and `dolmen pool acknowledge {name}` reads them again",
                space.name()
            );
            todo.push(Advice::new(FindingCode::SpaceDataLost, object.clone(), text));
        }
        if has(&space, DataLossKind::AcceptedUnverified) {
            let text = format!(
                "see whether what is in {name}/{} is sound, with the check of its file system for instance; `dolmen pool \
                 acknowledge {name}` ends this warning",
                space.name()
            );
            todo.push(Advice::new(FindingCode::SpaceAcceptedUnverified, object, text));
        }
    }
    todo
}

/// Returns how an absent disk comes back, in words.
fn to_bring_back(open: &OpenPool, disk: &Disk) -> String {
    let (called, online) =
        (open.called(disk), format!("`dolmen disk online {} {}`", open.name(), disk.slot().0));
    match standing(open, disk) {
        Standing::Awaited => {
            format!("attach {called}, which is then taken in by itself, or by {online}")
        }
        Standing::LeftToCommands | Standing::TakesPart => format!("attach {called} and {online}"),
    }
}

/// What to do about a disk that is absent.
fn for_absent(open: &OpenPool, disk: &Disk, now: Instant) -> String {
    let (name, slot) = (open.name(), disk.slot().0);
    let waiting = waiting_replacements(open).into_iter().find(|(old, ..)| old.slot() == disk.slot());
    if let Some((old, new, spaces)) = waiting {
        return format!(
            "attach {} and `dolmen disk online {name} {slot}`; or, if it is lost, give up what it alone had, `dolmen disk forget {name} {slot} \
             --accept-data-loss`, or delete {spaces} for good; its replacement by {} then goes on by itself",
            old.name(),
            new.name()
        );
    }
    let replacements = open.spaces.pool().members().replacements();
    let begun = replacements.into_iter().find(|(old, new)| old.slot() == disk.slot() && new.is_present());
    let spare = open.spare_for(disk);
    let new = begun.map(|(_, new)| new).or_else(|| spare.clone());
    let new = new.map_or_else(|| "NEW".to_owned(), |new| new.name());
    let outlook = open.absences.outlook(open.spaces.pool(), disk, spare.as_deref(), now);
    let outlook = outlook.map(|text| format!("; {text}")).unwrap_or_default();
    if open.cut_of_absent(disk).is_some() {
        return format!(
            "`dolmen disk replace {name} {slot} {new}`, which makes what {} had again from the other disks{outlook}",
            open.called(disk)
        );
    }
    if is_only_backing_full(&disk.counters()) {
        return format!(
            "free some room where {} lies, in its file system or thin pool, then `dolmen disk online {name} {slot}`: the disk itself is sound",
            open.called(disk)
        );
    }
    let alone = out_of_reach_with(open, disk);
    if !alone.is_empty() {
        return format!(
            "{0}: {1} may have data there that no other disk has; if it is gone for good, `dolmen disk forget {name} {slot} \
             --accept-data-loss` gives that up; `dolmen disk replace {name} {slot} {new}` restores all else, and waits for \
             that{outlook}",
            to_bring_back(open, disk),
            alone.join(", ")
        );
    }
    format!(
        "{0}, or `dolmen disk replace {name} {slot} {new}`, or, if it is gone for good, `dolmen disk forget {name} \
         {slot}`{outlook}",
        to_bring_back(open, disk)
    )
}

/// What somebody should do about a pool, its disks and its spaces.
pub(crate) async fn advice(open: &OpenPool, jobs: &[JobView], now: Instant) -> Vec<Advice> {
    let name = open.name();
    let mut todo = Vec::new();
    let pool = Object::pool(name.as_str());
    match open.spaces.pool().state() {
        PoolState::Writable => {}
        PoolState::ReadOnly(_) => {
            let text = format!("to write to pool {name}: {}", fault::to_write(&name));
            todo.push(Advice::new(FindingCode::PoolReadOnly, pool, text));
        }
        PoolState::Latched(_) => {
            // All else is about a pool that goes on.
            return vec![Advice::new(FindingCode::PoolStopped, pool, to_attach_absent(open))];
        }
    }
    let is_replacing = jobs.iter().any(|job| job.kind.takes_disk_out());
    let is_missed = |disk: &&Rc<Disk>| {
        !disk.is_present() && !is_replacing && !open.spaces.pool().members().is_declared_lost(disk)
    };
    for disk in open.spaces.pool().disks().iter().filter(is_missed) {
        todo.push(Advice::for_disk(open, FindingCode::DiskAbsent, disk, for_absent(open, disk, now)));
    }
    for (disk, spaces) in waiting_removals(open) {
        let (does, back) = match open.spaces.pool().members().is_drained(&disk) {
            true => ("leave", format!("dolmen pool remove {name} {} --cancel", disk.slot().0)),
            false => ("be emptied", format!("dolmen disk set {name} {} --member", disk.slot().0)),
        };
        let abandon =
            |disk: &Disk| format!("`dolmen disk forget {name} {} --accept-data-loss`", disk.slot().0);
        let disks = open.spaces.pool().disks();
        let may_come_back =
            |other: &&Rc<Disk>| !other.is_present() && !open.spaces.pool().members().is_declared_lost(other);
        let others: Vec<String> = disks
            .iter()
            .filter(may_come_back)
            .filter(|other| other.id() != disk.id())
            .map(|other| format!("attach {}, or {} if it is lost", other.name(), abandon(other)))
            .collect();
        let is_ghost = may_come_back(&&disk);
        let mut transports = vec![match is_ghost {
            true => format!("add a disk to pool {name}, {} if it is lost", abandon(&disk)),
            false => format!("add a disk to pool {name}"),
        }];
        if !disk.is_present() {
            transports.extend(others);
        }
        let text = format!(
            "{}, or delete {spaces} for good, so that {} can {does}; or keep it: `{back}`",
            transports.join(", "),
            disk.name()
        );
        todo.push(Advice::for_disk(open, FindingCode::RemovalWaits, &disk, text));
    }
    todo.extend(open.backing_state_advice());
    todo.extend(growth_advice(open));
    todo.extend(smart_advice(open, jobs));
    todo.extend(for_disks_with_errors(open, jobs));
    todo.extend(for_slow_disks(open));
    todo.extend(for_disks_without_labels(open, jobs));
    todo.extend(for_room(open).await);
    todo.extend(room_advice(open));
    todo.extend(reserve_advice(open));
    todo.extend(apart_advice(open));
    todo.extend(for_damage(open));
    todo
}

/// What to do about spaces that have met the end of their pool, or soon will.
async fn for_room(open: &OpenPool) -> Option<Advice> {
    let (offered, mut short) = (open.offered(), Vec::new());
    for space in open.spaces.list() {
        yield_now().await;
        let found = short_of_room(open, &space, &offered).await;
        short.extend(found.filter(|found| found.code != FindingCode::SpaceLacksDisks));
    }
    if short.is_empty() {
        return None;
    }
    let text = match open.to_purge() {
        None => format!(
            "add a disk to pool {}, or purge a space, or delete files and give their room back with `fstrim MOUNT`; `dolmen df` shows \
             what fits",
            open.name()
        ),
        Some(purge) => format!(
            "{purge}; or add a disk to pool {}, or delete files and give their room back with `fstrim MOUNT`",
            open.name()
        ),
    };
    Some(Advice { about: short.into_iter().map(|one| (one.code, one.object)).collect(), text })
}

/// That a pool that should be open is not.
pub(crate) fn not_open(closed: &ClosedPool) -> Finding {
    let name = closed.remembered.name.as_str();
    let text = format!("pool {name} is not open: {}", closed.cause);
    found(FindingCode::PoolNotOpen, Health::Unhealthy, Object::pool(name), text)
}

/// How a pool that should be open comes to be.
pub(crate) fn to_open(pool: &str, cause: &ErrorBody) -> String {
    let import = format!("`dolmen pool import --pool {pool}`");
    match cause.code {
        // A copy of a disk: which one has to go is known.
        ErrorCode::UnfitDevice | ErrorCode::NeedsConfirmation if cause.hint.is_some() => {
            cause.hint.clone().unwrap_or_default()
        }
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

/// Who answers.
pub(crate) fn version() -> Version {
    Version { schema: SCHEMA, daemon: env!("CARGO_PKG_VERSION").to_owned(), api: API_VERSION }
}
