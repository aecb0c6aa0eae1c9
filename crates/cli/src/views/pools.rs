//! Pools and disks as people see them.

use std::collections::BTreeMap;

use dolmen_api::{
    Device, DeviceState, Devices, Disk, FillState, Pool, PoolDocument, Pools, Spaces, WriteCache, duration,
};
use dolmen_units::Bytes;

use crate::terminal::out::Out;
use crate::terminal::paint::Tone;
use crate::terminal::table::{Align, Cell, Table};
use crate::views::tables::{disk_count, disk_count_of, disk_table, pool_table, space_table};
use crate::views::words::{count, date, health, health_tone, pool_state_cell};

/// What is kept for the repair of lost disks, if anything is.
fn facts_of_kept_room(pool: &Pool) -> Option<Vec<Cell>> {
    if pool.keep_room_for == 0 {
        return None;
    }
    let of = match pool.has_room_for < pool.keep_room_for {
        true => format!(", and there is room for {}", pool.has_room_for),
        false => String::new(),
    };
    let text = format!("to repair the loss of {}{of}", disk_count(pool.keep_room_for as usize));
    Some(vec!["room kept".into(), text.into()])
}

/// Shows all pools.
pub(crate) fn show_pools(pools: &Pools, out: &mut Out<'_>) {
    if pools.pools.is_empty() {
        out.line("no pools; make one with: dolmen pool create NAME DISK...");
        return;
    }
    out.table(0, &pool_table(&pools.pools.iter().collect::<Vec<_>>()));
}

/// Shows which pools the disks belong to that are no part of these, and how they come to be open.
pub(crate) fn show_other_pools(devices: &Devices, open: &[Pool], out: &mut Out<'_>) {
    let mut others: BTreeMap<&str, (usize, Option<u64>)> = BTreeMap::new();
    for device in
        devices.devices.iter().filter(|device| device.state == DeviceState::Member && !device.has_left)
    {
        let Some(name) = device.pool.as_deref() else { continue };
        if !open.iter().any(|pool| pool.name == name) {
            let (here, members) = others.entry(name).or_default();
            *here += 1;
            *members = (*members).max(device.pool_disk_count);
        }
    }
    for (name, (here, members)) in others {
        let disks = match members {
            Some(members) if members != here as u64 => format!("{here} of its {}", disk_count_of(members)),
            _ => disk_count(here),
        };
        out.line(format_args!(
            "pool {name} is on {disks} here and not open; to open it: dolmen pool import --pool {name}",
        ));
    }
}

/// Shows a pool with its disks and spaces.
pub(crate) fn show_pool(document: &PoolDocument, spaces: &Spaces, out: &mut Out<'_>) {
    let (pool, paint) = (&document.pool, out.paint_results);
    out.line(format_args!(
        "pool {}: {}",
        pool.name,
        paint.tone(health(pool.health), health_tone(pool.health))
    ));
    for reason in &pool.why {
        out.labelled("  why    ", reason);
    }
    let mut facts = Table::facts();
    facts.row(vec!["id".into(), pool.id.as_str().into()]);
    facts.row(vec!["state".into(), pool_state_cell(pool.state)]);
    if let Some(cause) = &pool.state_cause {
        facts.row(vec!["because".into(), cause.as_str().into()]);
    }
    facts.row(vec!["epoch".into(), pool.epoch.as_str().into()]);
    facts.row(vec![
        "size".into(),
        format!("{} on {}", Bytes(pool.data_bytes), disk_count(pool.disks.len())).into(),
    ]);
    facts.row(vec!["used".into(), Bytes(pool.used_bytes).to_string().into()]);
    facts.row(vec!["free".into(), Bytes(pool.free_bytes).to_string().into()]);
    fill_of(pool).into_iter().for_each(|text| facts.row(vec!["full".into(), text.into()]));
    if let Some(problem) = &pool.history_problem {
        facts.row(vec!["history".into(), format!("not recorded: {problem}").into()]);
    }
    if let Some(seconds) = pool.repair_after_s {
        let text = match seconds {
            0 => "never; `dolmen pool set --repair-after` changes that".to_owned(),
            seconds => format!("when it was away for {}", duration(seconds)),
        };
        facts.row(vec!["rebuilt without an absent disk".into(), text.into()]);
    }
    facts_of_kept_room(pool).into_iter().for_each(|row| facts.row(row));
    for cache in &pool.write_caches {
        let (size, waiting) = (Bytes(cache.size_bytes), Bytes(cache.waiting_bytes));
        let lost = match cache.survives {
            0 => "no disk".to_owned(),
            count => disk_count(count.into()),
        };
        let whose = format!("{size} for spaces that survive the loss of {lost}");
        facts.row(vec![
            "write cache".into(),
            format!("{whose}; {waiting} of it wait to be put in place").into(),
        ]);
        let disks: Vec<String> = cache.disks.iter().map(ToString::to_string).collect();
        let flow = |bytes: u64, rate: u64| {
            format!("{} since the pool was opened, lately {} a second", Bytes(bytes), Bytes(rate))
        };
        for (name, value) in [
            (
                "  on disks",
                format!("{}; {} of it", disks.join(", "), count(cache.copies.into(), "copy", "copies")),
            ),
            ("  emptied", drain_of(cache)),
            ("  written to it", flow(cache.filled_bytes, cache.filled_bytes_per_s)),
            ("  put in place", flow(cache.destaged_bytes, cache.destaged_bytes_per_s)),
        ] {
            facts.row(vec![name.into(), value.into()]);
        }
    }
    out.facts(2, &facts);
    let disks: Vec<(&Pool, &Disk)> = pool.disks.iter().map(|disk| (pool, disk)).collect();
    for table in [disk_table(&disks), space_table(&spaces.spaces.iter().collect::<Vec<_>>())] {
        if !table.is_empty() {
            out.line("");
            out.table(0, &table);
        }
    }
}

/// Tells when a pool is full, as far as its history says.
fn fill_of(pool: &Pool) -> Option<String> {
    let fill = pool.fill.as_ref()?;
    let day = |at_s: u64| date(at_s).chars().take(10).collect::<String>();
    Some(match (fill.state, fill.full_at_s, fill.earliest_s) {
        (FillState::Unknown, ..) => "unknown: it has less than two days of history".to_owned(),
        (FillState::Filling, Some(full_at_s), Some(earliest_s)) => {
            let latest = fill.latest_s.map_or_else(|| "never".to_owned(), day);
            format!("about {}, from {} to {latest}", day(full_at_s), day(earliest_s))
        }
        (FillState::Filling | FillState::Steady, ..) => "not at the rate of the last four weeks".to_owned(),
    })
}

/// From how much on a write cache is emptied, and how fast.
fn drain_of(cache: &WriteCache) -> String {
    let rate = match cache.drain_bytes_per_s_max {
        0 => "as fast as the disks take it".to_owned(),
        rate => format!("with {} a second at most", Bytes(rate)),
    };
    format!("from {} % on, {rate}", cache.fill_percent)
}

/// Shows the disks of pools.
pub(crate) fn show_disks<'a>(pools: impl Iterator<Item = &'a Pool>, out: &mut Out<'_>) {
    let disks: Vec<(&Pool, &Disk)> =
        pools.flat_map(|pool| pool.disks.iter().map(move |disk| (pool, disk))).collect();
    if disks.is_empty() {
        return out.line("no disks");
    }
    out.table(0, &disk_table(&disks));
}

/// Shows devices that belong to no open pool.
pub(crate) fn show_devices(devices: &Devices, out: &mut Out<'_>) {
    let mut table = Table::new(&[
        ("OTHER DEVICE", Align::Left),
        ("SIZE", Align::Right),
        ("STATE", Align::Left),
        ("WHAT", Align::Left),
    ]);
    for device in &devices.devices {
        table.row(vec![
            device.path.as_str().into(),
            device.size_bytes.map(|size| Bytes(size).to_string()).unwrap_or_default().into(),
            match device.has_left {
                true => "left a pool".into(),
                false => device_state_cell(device.state),
            },
            device_content(device).into(),
        ]);
    }
    if !table.is_empty() {
        out.line("");
        out.table(0, &table);
    }
}

fn device_content(device: &Device) -> String {
    match &device.pool {
        Some(pool) if !device.what.contains(pool.as_str()) => format!("{} (pool {pool})", device.what),
        _ => device.what.clone(),
    }
}

fn device_state_cell(state: DeviceState) -> Cell {
    match state {
        DeviceState::Empty => Cell::toned("empty", Tone::Good),
        DeviceState::Foreign => "holds data".into(),
        DeviceState::Member => "of a pool".into(),
        DeviceState::Unusable => Cell::toned("damaged", Tone::Caution),
        DeviceState::InUse => "in use".into(),
        DeviceState::Unfit => "unfit".into(),
    }
}
