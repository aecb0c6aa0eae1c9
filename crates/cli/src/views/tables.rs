//! Tables of pools, disks and spaces, which several views show.

use dolmen_api::{BackingState, DiskState, Pool, Space};
use dolmen_units::Bytes;

use crate::terminal::paint::Tone;
use crate::terminal::table::{Align, Cell, Table};
use crate::views::words::{
    count, disk_state_cell, health_cell, limits_in_words, percent, pool_state_cell, provisioning, resiliency,
};

/// Pools, one a line.
pub(crate) fn pool_table(pools: &[&Pool]) -> Table {
    let has_trash = pools.iter().any(|pool| pool.trash_count > 0);
    let mut columns = vec![
        ("POOL", Align::Left),
        ("HEALTH", Align::Left),
        ("STATE", Align::Left),
        ("SIZE", Align::Right),
        ("USED", Align::Right),
        ("FREE", Align::Right),
        ("USE", Align::Right),
        ("DISKS", Align::Left),
        ("SPACES", Align::Right),
    ];
    // What nobody has needs no room on the screen.
    columns.extend(has_trash.then_some(("IN TRASH", Align::Right)));
    let mut table = Table::new(&columns).dropping(&["STATE", "USED"]);
    for pool in pools {
        let mut cells: Vec<Cell> = vec![
            pool.name.as_str().into(),
            health_cell(pool.health),
            pool_state_cell(pool.state),
            Bytes(pool.data_bytes).to_string().into(),
            Bytes(pool.used_bytes).to_string().into(),
            Bytes(pool.free_bytes).to_string().into(),
            percent(pool.used_bytes, pool.data_bytes).into(),
            disks_cell(pool),
            pool.space_count.to_string().into(),
        ];
        cells.extend(has_trash.then(|| Bytes(pool.trash_bytes).to_string().into()));
        table.row(cells);
    }
    table
}

/// How many disks there are, and how many of them are not here.
fn disks_cell(pool: &Pool) -> Cell {
    let absent = pool.disks.iter().filter(|disk| disk.state == DiskState::Absent).count();
    match absent {
        0 => pool.disks.len().to_string().into(),
        absent => Cell::toned(format!("{}, {absent} absent", pool.disks.len()), Tone::Bad),
    }
}

/// Returns the number of errors that a disk made.
pub(crate) fn errors(disk: &dolmen_api::Disk) -> u64 {
    disk.read_errors.saturating_add(disk.write_errors).saturating_add(disk.checksum_errors)
}

/// Disks, one a line, with what they got wrong.
pub(crate) fn disk_table(disks: &[(&Pool, &dolmen_api::Disk)]) -> Table {
    let has_enclosures = disks.iter().any(|(_, disk)| disk.enclosure.is_some());
    let enclosure = has_enclosures.then_some(("IN", Align::Left));
    let columns = [("DISK", Align::Right), ("POOL", Align::Left), ("STATE", Align::Left)];
    let others = [
        ("SIZE", Align::Right),
        ("FREE", Align::Right),
        ("ID", Align::Left),
        ("SCORE", Align::Right),
        ("ERRORS", Align::Left),
        // The longest goes last: where a line is too long for the terminal, the others stand below each other all the same.
        ("PATH", Align::Left),
    ];
    let columns: Vec<(&'static str, Align)> = columns.into_iter().chain(enclosure).chain(others).collect();
    let mut table = Table::new(&columns).dropping(&["ID", "IN"]);
    for (pool, disk) in disks {
        let first = [disk.slot.to_string().into(), pool.name.as_str().into(), disk_state_cell(disk.state)];
        let enclosure = has_enclosures.then(|| disk.enclosure.clone().unwrap_or_default().into());
        let others = [
            Bytes(disk.size_bytes).to_string().into(),
            Bytes(disk.free_bytes).to_string().into(),
            disk.id.chars().take(8).collect::<String>().into(),
            score_cell(disk),
            errors_cell(disk),
            disk_place(disk).into(),
        ];
        table.row(first.into_iter().chain(enclosure).chain(others).collect());
    }
    table
}

/// Where a disk is, or was.
fn disk_place(disk: &dolmen_api::Disk) -> String {
    let was = || disk.last_path.as_ref().map(|path| format!("was {path}"));
    let mut place = disk.path.clone().or_else(was).unwrap_or_default();
    place.extend(disk.bay.iter().map(|bay| format!(" (bay {bay})")));
    if disk.gained_bytes > 0 {
        place.push_str(&format!(" ({} not used)", Bytes(disk.gained_bytes)));
    }
    match disk.backing_state {
        Some(BackingState::Removed) => format!("{place} (removed)"),
        Some(BackingState::CutShort) => format!("{place} (cut short)"),
        Some(BackingState::Unplugged) => format!("{place} (unplugged)"),
        None => place,
    }
}

/// Of disks that are well nothing is said.
fn score_cell(disk: &dolmen_api::Disk) -> Cell {
    let reported = disk.score.filter(|score| *score < 100).map(|score| score.to_string());
    Cell::toned(reported.unwrap_or_default(), Tone::Caution)
}

fn errors_cell(disk: &dolmen_api::Disk) -> Cell {
    let kinds = [
        (disk.read_errors, "read"),
        (disk.write_errors, "write"),
        (disk.checksum_errors, "checksum"),
        (disk.timed_out_reads, "late"),
    ];
    let slower = disk.times_slower.map(|times| format!("{times} times slower"));
    let counted =
        kinds.iter().filter(|(number, _)| *number > 0).map(|(number, kind)| format!("{number} {kind}"));
    let smart = disk.smart.iter().flat_map(|smart| {
        let fails = smart.is_failing().then(|| "says it fails".to_owned());
        let defects = Some(smart.defects()).filter(|defects| *defects > 0);
        fails.into_iter().chain(defects.map(|defects| format!("{defects} bad places")))
    });
    let reported: Vec<String> = counted.chain(slower).chain(smart).collect();
    Cell::toned(reported.join(", "), Tone::Caution)
}

/// Spaces, one a line.
pub(crate) fn space_table(spaces: &[&Space]) -> Table {
    let mut table = Table::new(&[
        ("SPACE", Align::Left),
        ("HEALTH", Align::Left),
        ("SIZE", Align::Right),
        ("CLAIMED", Align::Right),
        ("RESILIENCY", Align::Left),
        ("PROVISIONING", Align::Left),
        ("IN USE AS", Align::Left),
        ("LIMITS", Align::Left),
    ])
    .dropping(&["PROVISIONING", "LIMITS", "HEALTH"]);
    for space in spaces {
        table.row(vec![
            format!("{}/{}", space.pool, space.name).into(),
            health_cell(space.health),
            Bytes(space.size_bytes).to_string().into(),
            Bytes(space.claimed_bytes).to_string().into(),
            resiliency_cell(space),
            provisioning(space.provisioning).into(),
            transports(space).into(),
            space.limits.as_ref().map(limits_in_words).unwrap_or_default().into(),
        ]);
    }
    table
}

/// What a space survives; one that is converted has rows of the layout before.
fn resiliency_cell(space: &Space) -> Cell {
    let now = resiliency(space.resiliency, space.copies, space.parity);
    let Some(former) = space.converted_from else { return now.into() };
    let former = resiliency(former.resiliency, former.copies, former.parity);
    let text = if former == now { format!("{now}, other columns") } else { format!("{former} -> {now}") };
    Cell::toned(text, Tone::Caution)
}

fn transports(space: &Space) -> String {
    let served = space.served_at.as_ref().map(|_| "NBD".to_owned());
    space.attached_at.iter().cloned().chain(served).collect::<Vec<_>>().join(", ")
}

/// The number of disks with its noun.
pub(crate) fn disk_count(number: usize) -> String {
    disk_count_of(u64::try_from(number).unwrap_or(u64::MAX))
}

/// As [`disk_count`], of a number that a document has.
pub(crate) fn disk_count_of(number: u64) -> String {
    count(number, "disk", "disks")
}
