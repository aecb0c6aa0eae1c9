//! What is the matter with pools, disks and spaces: the one judgement that the status, the events and `why` tell.

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_api::{Finding, FindingCode, Health, Object};
use dolmen_block_io::sync::yield_now;
use dolmen_mutation::mutation;
use dolmen_pool::{Disk, DiskCounters, PoolState};
use dolmen_space::{DataLossKind, Space, failed_reads};
use dolmen_units::{Bytes, SpaceId};

use crate::disks::smart_findings;
use crate::finding::found;
use crate::health::growth::growth_findings;
use crate::open_pool::OpenPool;
use crate::plan::{Offered, room_for};
use crate::settings::{filling_findings, lacks_reserve, look_at_filling, room_used, rows_share};
use crate::state::{Backing, FAILING_ERRORS, Slow, is_here};
use crate::words::counted;

/// Ranges of lost data that are named one by one.
const PLACES_MAX: usize = 3;
/// A pool is nearly full for a thin space when what it can still take is below this part of what it has.
const NEAR_PARTS: u64 = 10;

pub(crate) fn absent_names(open: &OpenPool) -> Vec<String> {
    let disks = open.spaces.pool().disks();
    disks.iter().filter(|disk| !is_here(disk)).map(|disk| open.called(disk)).collect()
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
    let transports: Vec<String> = absent
        .map(|disk| format!("attach {} and `dolmen disk online {name} {}`", disk.name(), disk.slot().0))
        .collect();
    if transports.is_empty() { format!("bring the disks of pool {name} back") } else { transports.join(", ") }
}

/// Whether a disk may have a part of a space: of one that is being replaced, or of which some was rebuilt, it is known which spaces
/// it has parts of.
pub(crate) fn may_have_part(open: &OpenPool, disk: &Disk, space: &Space) -> bool {
    if !disk.is_present() && open.spaces.moves().has_nothing_on(disk, space.id()) {
        return false;
    }
    let left = open.spaces.left_on(disk.id());
    left.is_none_or(|left| left.iter().any(|other| other.id() == space.id()))
}

/// Absent disks that may have a part of a space.
pub(crate) fn absent_with(open: &OpenPool, space: &Space) -> usize {
    let disks = open.spaces.pool().disks();
    let absent = disks.iter().filter(|disk| !disk.is_present());
    absent.filter(|disk| may_have_part(open, disk, space)).count()
}

/// Whether a disk that takes part may have data of a space that no other disk has.
fn may_be_alone_on(open: &OpenPool, disk: &Disk, space: &Space) -> bool {
    let redundancy = usize::from(space.spec().resiliency.redundancy());
    space.claimed().0 > 0 && may_have_part(open, disk, space) && absent_with(open, space) + 1 > redundancy
}

/// Returns names of spaces of which an absent disk may have data that no disk that is here can give.
pub(crate) fn out_of_reach_with(open: &OpenPool, disk: &Disk) -> Vec<String> {
    let is_out = |space: &&Space| {
        let redundancy = usize::from(space.spec().resiliency.redundancy());
        space.claimed().0 > 0 && may_have_part(open, disk, space) && absent_with(open, space) > redundancy
    };
    let spaces = open.spaces.list();
    spaces.iter().filter(is_out).map(|space| format!("{}/{}", open.name(), space.name())).collect()
}

/// Returns the names of spaces, without those that were deleted for good: a job frees their rows, and nothing waits for them.
fn names_of_kept(open: &OpenPool, spaces: &[Space]) -> Option<String> {
    let condemned = open.spaces.condemned();
    let is_kept = |space: &&Space| !condemned.iter().any(|one| one.id() == space.id());
    let names = spaces.iter().filter(is_kept).map(|space| format!("{}/{}", open.name(), space.name()));
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns names of spaces of which a disk that takes part may have data that no other disk has.
pub(crate) fn only_on(open: &OpenPool, disk: &Disk) -> Vec<String> {
    let spaces = open.spaces.list();
    let alone = spaces.iter().filter(|space| may_be_alone_on(open, disk, space));
    alone.map(|space| format!("{}/{}", open.name(), space.name())).collect()
}

/// Returns the disk whose file was cut, and which may have had data of a space that no other disk has.
fn cut_with_data_of(open: &OpenPool, space: &Space) -> Option<Rc<Disk>> {
    let is_cut = |disk: &Rc<Disk>| matches!(open.backing_state_of(disk), Some(Backing::CutTo(_)));
    let disks = open.spaces.pool().disks();
    disks.into_iter().find(|disk| is_cut(disk) && may_be_alone_on(open, disk, space))
}

/// Replacements of absent disks that wait for what these alone have, and the spaces that it is part of.
pub(crate) fn waiting_replacements(open: &OpenPool) -> Vec<(Rc<Disk>, Rc<Disk>, String)> {
    let waits = |(old, new): (Rc<Disk>, Rc<Disk>)| {
        let left = open.spaces.left_on(old.id()).filter(|left| !left.is_empty() && !old.is_present())?;
        Some((old, new, names_of_kept(open, &left)?))
    };
    open.spaces.pool().members().replacements().into_iter().filter_map(waits).collect()
}

/// Disks that are to leave, and of which a removal has left something; the spaces that it is part of.
pub(crate) fn waiting_removals(open: &OpenPool) -> Vec<(Rc<Disk>, String)> {
    let waits = |disk: Rc<Disk>| {
        let left = open.spaces.left_on(disk.id()).filter(|left| !left.is_empty())?;
        Some((disk, names_of_kept(open, &left)?))
    };
    open.spaces.moves().drains().into_iter().chain(open.spaces.moves().to_empty()).filter_map(waits).collect()
}

/// How a space is, and why.
pub(crate) async fn space_health(open: &OpenPool, space: &Space, offered: &Offered) -> (Health, Vec<String>) {
    if matches!(open.spaces.pool().state(), PoolState::Latched(_)) {
        // Why is said of the pool.
        return (Health::Unhealthy, Vec::new());
    }
    let short = short_of_room(open, space, offered).await;
    summed(open, &space_findings(open, space, short))
}

/// What is the matter with a space, which may be short of room. Of a pool that has stopped, that is said of the pool.
fn space_findings(open: &OpenPool, space: &Space, short: Option<Finding>) -> Vec<Finding> {
    if matches!(open.spaces.pool().state(), PoolState::Latched(_)) {
        return Vec::new();
    }
    let object = Object::space(open.name(), space.name().to_string());
    let mut findings = Vec::new();
    findings.extend(reduced(open, space, &object));
    findings.extend(damaged(open, space, &object));
    findings.extend(lacks_reserve(open, space));
    findings.extend(short);
    findings
}

/// Returns the finding that a space survives fewer losses than it was made to; none in a pool that has stopped.
pub(crate) fn reduction_of(open: &OpenPool, space: &Space) -> Option<Finding> {
    match open.spaces.pool().state() {
        PoolState::Latched(_) => None,
        PoolState::Writable | PoolState::ReadOnly(_) => {
            reduced(open, space, &Object::space(open.name(), space.name().to_string()))
        }
    }
}

/// That a space survives fewer losses than it was made to, or has met one too many.
fn reduced(open: &OpenPool, space: &Space, object: &Object) -> Option<Finding> {
    let absent = absent_with(open, space);
    let redundancy = usize::from(space.spec().resiliency.redundancy());
    if absent == 0 || space.claimed().0 == 0 {
        return None;
    }
    let (code, health, text) = match redundancy.checked_sub(absent) {
        None => (
            FindingCode::SpaceOutOfReach,
            Health::Unhealthy,
            format!(
                "parts of space {object} may be out of reach: {} absent, it survives {redundancy}",
                counted(absent, "disk is", "disks are")
            ),
        ),
        Some(left) => (
            FindingCode::SpaceDegraded,
            Health::Warning,
            format!(
                "space {object} is degraded: it survives the loss of {} instead of {redundancy}",
                counted(left, "more disk", "more disks")
            ),
        ),
    };
    Some(found(code, health, object.clone(), text))
}

/// Ranges of a space that were damaged.
fn damaged(open: &OpenPool, space: &Space, object: &Object) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut data_loss_events = open.data_loss_events();
    data_loss_events.sort_by_key(|one| one.at);
    let of_kind =
        |kind| data_loss_events.iter().filter(move |one| one.space == space.id() && one.kind == kind);
    let is_lost = |kind| matches!(kind, DataLossKind::Lost | DataLossKind::TableLost);
    let of_space = data_loss_events.iter().filter(|one| one.space == space.id());
    let all_lost = of_space.filter(|one| is_lost(one.kind));
    let lost: Vec<String> =
        all_lost.clone().take(PLACES_MAX).map(|one| format!("{} at byte {}", one.length, one.at)).collect();
    let mut note = |code, health, amount, text| {
        findings.push(Finding { code, health, object: object.clone(), text, amount });
    };
    if !lost.is_empty() {
        let (count, bytes) = (all_lost.clone().count(), all_lost.map(|one| one.length.0).sum());
        let text = format!("space {object} has lost data in {count} places, first: {}", lost.join(", "));
        note(FindingCode::SpaceDataLost, Health::Unhealthy, bytes, text);
    }
    if let Some(disk) = cut_with_data_of(open, space) {
        let text = format!(
            "space {object} may have lost data: the file of {} was cut, and no other disk has what it had",
            disk.name()
        );
        note(FindingCode::SpaceDataLost, Health::Unhealthy, 0, text);
    }
    let failed = failed_reads(space);
    if let Some(first) = failed.first() {
        let bytes = failed.iter().map(|one| one.length.0).sum();
        let text = format!(
            "{} of space {object} cannot be read, in {}, the first at byte {}: {}",
            Bytes(bytes),
            counted(failed.len(), "place", "places"),
            first.at,
            first.why
        );
        note(FindingCode::SpaceDataLost, Health::Unhealthy, bytes, text);
    }
    let bytes = |kind| of_kind(kind).map(|one| one.length.0).sum();
    let taken = of_kind(DataLossKind::AcceptedUnverified).count();
    if taken > 0 {
        let text = format!(
            "in {taken} places of space {object}, what was being written at a crash was accepted unverified"
        );
        note(
            FindingCode::SpaceAcceptedUnverified,
            Health::Warning,
            bytes(DataLossKind::AcceptedUnverified),
            text,
        );
    }
    // Once they are all back, whoever reads such a block finds out.
    let corrupt = of_kind(DataLossKind::CorruptHere).count();
    if corrupt > 0 && absent_with(open, space) > 0 {
        let text = format!(
            "in {corrupt} places of space {object} no copy that is here is good; the disks that are absent may have one"
        );
        note(FindingCode::SpaceCorruptHere, Health::Warning, bytes(DataLossKind::CorruptHere), text);
    }
    findings
}

/// That a thin space has met the end of its pool, or soon will.
pub(crate) async fn short_of_room(open: &OpenPool, space: &Space, offered: &Offered) -> Option<Finding> {
    let (spec, pool) = (space.spec(), open.name());
    let unclaimed = spec.size.0.saturating_sub(space.claimed().0);
    if unclaimed == 0 || open.spaces.pool().state() != PoolState::Writable {
        return None;
    }
    let usable = Bytes(room_for(&spec, offered).await.0 + space.blank_bytes().0);
    if usable.0 >= unclaimed {
        return None;
    }
    let name = Object::space(pool.as_str(), spec.name.to_string());
    let short = |code, text| Some(found(code, Health::Warning, name.clone(), text));
    if open.lacks_disks_for(space, offered).await {
        let text = format!(
            "thin space {name} needs more disks than pool {pool} has in use: what was never written cannot be written until \
             the absent ones are back or replaced, or others are added; all else can"
        );
        return short(FindingCode::SpaceLacksDisks, text);
    }
    if usable.0 < space.row_bytes() {
        let text = format!(
            "thin space {name} has met the end of pool {pool}: writes to what was never written fail now, and a file system \
             there can lose files that it has not flushed; all else can be read and written"
        );
        return short(FindingCode::SpaceFull, text);
    }
    let is_near = usable.0 < space.claimed().0 / NEAR_PARTS;
    if !is_near {
        return None;
    }
    let text = format!(
        "thin space {name} can take {usable} more before pool {pool} is full, of {} that it may ask for",
        Bytes(unclaimed)
    );
    short(FindingCode::SpaceNearlyFull, text)
}

/// Disks that are here with errors that nobody has acknowledged, and those errors.
pub(crate) fn unseen_errors(open: &OpenPool) -> Vec<(Rc<Disk>, DiskCounters)> {
    let unseen = |disk: Rc<Disk>| {
        let errors = unseen_errors_of(open, &disk);
        (errors != DiskCounters::default()).then_some((disk, errors))
    };
    let disks = open.spaces.pool().disks();
    disks.into_iter().filter(|disk| disk.is_present()).filter_map(unseen).collect()
}

impl OpenPool {
    /// Whether a disk says that it fails, or had so many errors that nobody has acknowledged: others are asked in its place.
    pub(crate) fn is_failing(&self, disk: &Disk) -> bool {
        let errors = unseen_errors_of(self, disk);
        errors.read_errors.saturating_add(errors.checksum_errors) >= FAILING_ERRORS
            || self.smarts.is_failing(disk.id())
    }

    /// How many errors a disk had that nobody has acknowledged. That there is no room below is none of its own.
    pub(crate) fn errors_of(&self, disk: &Disk) -> u64 {
        let errors = unseen_errors_of(self, disk);
        let of_writes = errors.write_errors.saturating_sub(errors.backing_full_writes);
        errors.read_errors.saturating_add(errors.checksum_errors).saturating_add(of_writes)
    }
}

fn unseen_errors_of(pool: &OpenPool, disk: &Disk) -> DiskCounters {
    let acknowledged = pool.history.acknowledged.borrow();
    let (all, seen) = (disk.counters(), acknowledged.get(&disk.id()).copied().unwrap_or_default());
    DiskCounters {
        read_errors: all.read_errors.saturating_sub(seen.read_errors),
        write_errors: all.write_errors.saturating_sub(seen.write_errors),
        backing_full_writes: all.backing_full_writes.saturating_sub(seen.backing_full_writes),
        checksum_errors: all.checksum_errors.saturating_sub(seen.checksum_errors),
        ..DiskCounters::default()
    }
}

/// The errors of a disk in words.
pub(crate) fn errors_text(errors: &DiskCounters) -> String {
    let backing_full = match errors.backing_full_writes {
        0 => "",
        some if some == errors.write_errors => " for lack of room below",
        _ => " (some for lack of room below)",
    };
    format!(
        "{}, {}{backing_full}, {}",
        counted(errors.read_errors, "failed read", "failed reads"),
        counted(errors.write_errors, "failed write", "failed writes"),
        counted(errors.checksum_errors, "damaged block", "damaged blocks")
    )
}

/// Whether nothing is the matter with a disk but that what it lies on is full.
pub(crate) fn is_only_backing_full(errors: &DiskCounters) -> bool {
    let of_writes = errors.backing_full_writes > 0 && errors.backing_full_writes == errors.write_errors;
    of_writes && errors.read_errors == 0 && errors.checksum_errors == 0
}

/// That a loss which a space survives takes the metadata with it, because disks are too small to carry it.
fn few_voters(open: &OpenPool) -> Option<Finding> {
    let pool = open.spaces.pool();
    let small: Vec<String> = pool.voter_tender().too_small_to_vote().iter().map(|disk| disk.name()).collect();
    let voters = pool.members().voters().len();
    let redundancy = open.spaces.kept().iter().map(|space| space.spec().resiliency.redundancy()).max();
    let survived = usize::from(redundancy.unwrap_or(0)).max(1);
    if small.is_empty() || voters > survived {
        return None;
    }
    let text = format!(
        "the metadata of pool {} is on {voters} {} only, and to lose {} is to lose the pool: {} {} too small to carry it, \
         which takes an area of {}, a thousandth of a disk",
        open.name(),
        if voters == 1 { "disk" } else { "disks" },
        if voters == 1 { "it" } else { "them all" },
        small.join(", "),
        if small.len() == 1 { "is" } else { "are" },
        pool.identity().voter_metadata_min(),
    );
    Some(found(FindingCode::MetadataOnFewDisks, Health::Warning, Object::pool(open.name()), text))
}

/// The worst of findings, and what they say. Disks that are absent are named together.
pub(crate) fn summed(open: &OpenPool, findings: &[Finding]) -> (Health, Vec<String>) {
    let health = findings.iter().map(|one| one.health).max().unwrap_or(Health::Healthy);
    let absent = absent_names(open);
    let mut why = Vec::new();
    for one in findings {
        let is_of_several = one.code == FindingCode::DiskAbsent && absent.len() > 1;
        let text = if is_of_several {
            format!("{} of pool {} are absent", absent.join(", "), open.name())
        } else {
            one.text.clone()
        };
        if !is_of_several || !why.contains(&text) {
            why.push(text);
        }
    }
    (health, why)
}

/// What is the matter with a pool and its spaces.
pub(crate) async fn pool_findings(open: &OpenPool) -> Vec<Finding> {
    let short = all_short_of_room(open).await;
    findings_with(open, &short).await
}

/// Spaces that are short of room.
async fn all_short_of_room(open: &OpenPool) -> BTreeMap<SpaceId, Finding> {
    let (offered, mut short) = (open.offered(), BTreeMap::new());
    for space in open.spaces.list() {
        yield_now().await;
        let found = short_of_room(open, &space, &offered).await;
        short.extend(found.map(|found| (space.id(), found)));
    }
    short
}

/// What is the matter with a pool, for those who look each second.
pub(crate) async fn findings_at_a_glance(open: &OpenPool) -> Vec<Finding> {
    look_at_filling(open).await;
    pool_findings(open).await
}

async fn findings_with(open: &OpenPool, short: &BTreeMap<SpaceId, Finding>) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(not_writable(open));
    findings.extend(of_disks(open));
    findings.extend(after(open).await);
    findings.extend(few_voters(open));
    findings.extend(room_used(open));
    findings.extend(rows_share(open));
    findings.extend(filling_findings(open));
    findings.extend(waiting(open));
    // What is worst comes first: a screen has room for a few lines.
    let mut worst = Vec::new();
    for space in open.spaces.list() {
        yield_now().await;
        let of_space = space_findings(open, &space, short.get(&space.id()).cloned());
        let is_worst = of_space.iter().any(|one| one.health == Health::Unhealthy);
        if is_worst { &mut worst } else { &mut findings }.extend(of_space);
    }
    worst.extend(findings);
    worst
}

/// That a pool takes no writes.
fn not_writable(open: &OpenPool) -> Option<Finding> {
    let name = open.name();
    let (code, health, text) = match open.spaces.pool().state() {
        PoolState::Writable => return None,
        PoolState::ReadOnly(cause) => {
            (FindingCode::PoolReadOnly, Health::Warning, format!("pool {name} is open read-only: {cause}"))
        }
        PoolState::Latched(cause) => {
            (FindingCode::PoolStopped, Health::Unhealthy, format!("pool {name} has stopped: {cause}"))
        }
    };
    Some(found(code, health, Object::pool(name), text))
}

/// What is the matter with disks.
fn of_disks(open: &OpenPool) -> Vec<Finding> {
    let name = open.name();
    let disks = open.spaces.pool().disks();
    let object = |disk: &Disk| Object::disk(name.as_str(), disk.slot().0);
    let mut findings = Vec::new();
    let is_reported =
        |disk: &Disk| !is_here(disk) && (disk.absence().has_failed() || !mutation!(AbsentUnreported));
    for disk in disks.iter().filter(|disk| is_reported(disk)) {
        let text = format!("{} of pool {name} is absent", open.called(disk));
        findings.push(found(FindingCode::DiskAbsent, Health::Warning, object(disk), text));
    }
    for disk in disks.iter().filter(|disk| !disk.is_present()) {
        let cut = || open.cut_of_absent(disk).map(|cut| cut.to_string());
        let Some(cause) = disk.absence().unfit().or_else(cut) else { continue };
        let text = format!("{} cannot be used: {cause}", disk.name());
        findings.push(found(FindingCode::DiskUnfit, Health::Warning, object(disk), text));
    }
    findings.extend(open.backing_state_findings());
    findings.extend(growth_findings(open));
    findings.extend(smart_findings(open));
    for (disk, errors) in unseen_errors(open) {
        let code = if is_only_backing_full(&errors) {
            FindingCode::DiskBackingFull
        } else {
            FindingCode::DiskErrors
        };
        let text = format!("{} had {}", open.called(&disk), errors_text(&errors));
        let amount = errors.read_errors.saturating_add(errors.write_errors);
        let amount = amount.saturating_add(errors.checksum_errors);
        let object = object(&disk);
        findings.push(Finding { code, health: Health::Warning, object, text, amount });
    }
    for (disk, slow) in slow_disks(open) {
        let times = slow.times();
        let text = format!(
            "{} is {times} times as slow as the other disks of pool {name}: {:.1} ms instead of {:.1} ms on average",
            open.called(&disk),
            milliseconds(slow.took_us),
            milliseconds(slow.others_us)
        );
        findings.push(found(FindingCode::DiskSlow, Health::Warning, object(&disk), text));
    }
    for disk in without_labels(open) {
        let text = format!(
            "{} when it was taken in: something else was written over that, and perhaps over what else is on the disk",
            lost_labels_text(&disk)
        );
        findings.push(found(FindingCode::DiskLabelsLost, Health::Warning, object(&disk), text));
    }
    findings
}

#[allow(clippy::cast_precision_loss)] // for people
fn milliseconds(us: u64) -> f64 {
    us as f64 / 1e3
}

/// Disks that are here, and much slower than the others.
pub(crate) fn slow_disks(open: &OpenPool) -> Vec<(Rc<Disk>, Slow)> {
    let disks = open.spaces.pool().disks();
    let here = disks.into_iter().filter(|disk| disk.is_present());
    here.filter_map(|disk| open.latencies.slow(disk.id()).map(|slow| (disk, slow))).collect()
}

/// Disks that are here, and were taken in when one of their labels was gone.
pub(crate) fn without_labels(open: &OpenPool) -> Vec<Rc<Disk>> {
    let disks = open.spaces.pool().disks();
    disks.into_iter().filter(|disk| disk.is_present() && !disk.labels().lost().is_empty()).collect()
}

/// Which labels of a disk were gone, in words.
pub(crate) fn lost_labels_text(disk: &Disk) -> String {
    let places = disk.labels().lost();
    let at: Vec<String> = places.iter().map(u64::to_string).collect();
    let (labels, bytes, were) =
        if places.len() == 1 { ("label", "byte", "was") } else { ("labels", "bytes", "were") };
    format!("the {labels} of {} at {bytes} {} {were} gone", disk.name(), at.join(" and "))
}

/// That rows are not on all of their disks.
async fn after(open: &OpenPool) -> Option<Finding> {
    let short = open.spaces.members().short_rows().await.ok().filter(|short| *short > 0)?;
    let name = open.name();
    let are = if short == 1 { "is not on all its" } else { "are not on all their" };
    let text = format!("{} of pool {name} {are} disks yet", counted(short, "row", "rows"));
    Some(found(FindingCode::RowsStale, Health::Warning, Object::pool(name), text))
}

/// Replacements and removals that wait for somebody.
fn waiting(open: &OpenPool) -> Vec<Finding> {
    let name = open.name();
    let mut findings = Vec::new();
    for (old, new, spaces) in waiting_replacements(open) {
        let who = match open.spaces.pool().members().is_declared_lost(&old) {
            true => "another disk that is away may have",
            false => "the old one alone holds",
        };
        let text = format!(
            "{} is being replaced by {}, which has all but the parts of {spaces} that {who}",
            old.name(),
            new.name()
        );
        let object = Object::disk(name.as_str(), old.slot().0);
        findings.push(found(FindingCode::ReplacementWaits, Health::Healthy, object, text));
    }
    for (disk, spaces) in waiting_removals(open) {
        let does = match open.spaces.pool().members().is_drained(&disk) {
            true => "leave",
            false => "be emptied in",
        };
        let text = format!(
            "{} cannot {does} pool {name}: rows of {spaces} have a part there that no other disk took",
            disk.name()
        );
        let object = Object::disk(name.as_str(), disk.slot().0);
        findings.push(found(FindingCode::RemovalWaits, Health::Warning, object, text));
    }
    findings
}
