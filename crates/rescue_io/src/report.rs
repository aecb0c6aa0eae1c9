//! What was found and what came out, for people and for programs.

use std::fmt::Write;

use dolmen_rescue::{BadRange, CheckpointScan, DeviceScan, FoundSpace, PoolScan, Rescued, ScanReport};
use dolmen_units::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use crate::args::ExportArguments;
use crate::error::ToolError;

/// Of which moment something is, and what has to be known of it.
pub(crate) fn point_in_time(rescued: &Rescued) -> String {
    let mut text = format!("pool {}, as of {}", rescued.name, rescued.point_in_time);
    for note in &rescued.notes {
        let _ = write!(text, "\n  note: {}", note.0);
    }
    text
}

/// Whether there is nothing to rescue: all pools open, all of their members are here, and no label is damaged.
pub(crate) fn is_whole(scanned: &ScanReport) -> bool {
    let is_sound = |device: &DeviceScan| device.holds == "member" && device.damage.is_empty();
    let opens = |pool: &PoolScan| {
        pool.unopenable.is_none() && pool.members.iter().all(|member| member.device.is_some())
    };
    scanned.devices.iter().all(is_sound) && scanned.pools.iter().all(opens)
}

/// What a scan found, for people.
pub(crate) fn scan(scanned: &ScanReport) -> String {
    let mut text = String::new();
    for device in &scanned.devices {
        device_lines(device, &mut text);
    }
    for pool in &scanned.pools {
        pool_lines(pool, &mut text);
    }
    if scanned.pools.is_empty() {
        text.push_str("no label of a pool was found; --whole looks for slabs, and list --from-slabs shows what they give\n");
    }
    text
}

fn device_lines(device: &DeviceScan, text: &mut String) {
    let what = match device.holds {
        "member" => "a member of a pool",
        "labels_unusable" => "labels that cannot be used",
        "foreign" => "something else",
        "unreadable" => "nothing that can be read",
        _ => "nothing",
    };
    let detail = if device.detail.is_empty() { String::new() } else { format!(": {}", device.detail) };
    let _ = writeln!(text, "{} ({}) holds {what}{detail}", device.name, Bytes(device.bytes));
    for damage in &device.damage {
        let _ = writeln!(text, "  {damage}");
    }
    for slabs in &device.slabs {
        let purpose = match slabs.purpose {
            "shadow_rows" => ", shadow rows",
            "conversion_shadows" => ", conversion shadows of rows",
            "write_cache" => ", a write cache",
            _ => "",
        };
        let _ = writeln!(
            text,
            "  {} slabs of {} rows of space {}{purpose}, pool {}, disk {}, newest of epoch {}",
            slabs.count, slabs.rows, slabs.space, slabs.pool, slabs.disk, slabs.newest_epoch
        );
    }
    if device.unreadable_bytes > 0 {
        let _ = writeln!(text, "  {} of it cannot be read", Bytes(device.unreadable_bytes));
    }
}

fn pool_lines(pool: &PoolScan, text: &mut String) {
    let _ = writeln!(text, "pool {} ({}), epoch {}, of host {}", pool.name, pool.id, pool.epoch, pool.owner);
    for member in &pool.members {
        let device = member.device.as_deref().unwrap_or("missing");
        let votes = if member.votes { ", has the map" } else { "" };
        let left = member.left.map_or_else(String::new, |epoch| format!(", away since epoch {epoch}"));
        let _ = writeln!(
            text,
            "  disk {} ({}, {}): {device}{votes}{left}",
            member.slot,
            member.disk,
            Bytes(member.bytes)
        );
    }
    for checkpoint in &pool.checkpoints {
        checkpoint_line(checkpoint, text);
    }
    for space in &pool.spaces {
        let _ = writeln!(
            text,
            "  space {} ({}): {}, {}, {} rows",
            space.name,
            space.id,
            Bytes(space.bytes),
            space.resiliency,
            space.rows
        );
    }
    if let Some(why) = &pool.unopenable {
        let _ = writeln!(text, "  it does not open: {why}");
    }
    for note in &pool.notes {
        let _ = writeln!(text, "  note: {note}");
    }
}

fn checkpoint_line(of: &CheckpointScan, text: &mut String) {
    let map = match &of.why_not {
        None => "its map is whole".to_owned(),
        Some(why) => format!("its map is not whole ({why})"),
    };
    let log = of.log.as_ref().map_or_else(String::new, |log| {
        let state = match log.damage.first() {
            None => "is all there: it gives the present".to_owned(),
            Some(first) => format!("is not all there ({first})"),
        };
        format!("; the log from lsn {} on {state}", log.from)
    });
    let disks = if of.disks == 1 { "disk" } else { "disks" };
    let _ = writeln!(
        text,
        "  checkpoint {} on {} {disks}, {} keys: {map}{log}",
        of.sequence, of.disks, of.entries
    );
}

/// The spaces that can be had, for people.
pub(crate) fn list(rescued: &Rescued, spaces: &[FoundSpace]) -> String {
    let mut text = point_in_time(rescued);
    text.push('\n');
    for space in spaces {
        let made_up =
            if space.is_nameless { " (name, size and resiliency are told from its rows)" } else { "" };
        let trashed = if space.trashed_at.is_some() { ", in the trash" } else { "" };
        let _ = writeln!(
            text,
            "{} ({}): {}, {}, {} rows{trashed}{made_up}",
            space.name, space.id.0, space.size, space.resiliency, space.rows
        );
    }
    if spaces.is_empty() {
        text.push_str("no spaces\n");
    }
    text
}

#[derive(Debug, Serialize)]
struct PointInTimeDocument<'a> {
    pool: &'a str,
    point_in_time: &'static str,
    checkpoint: Option<u64>,
    notes: Vec<&'a str>,
}

fn point_in_time_document(rescued: &Rescued) -> PointInTimeDocument<'_> {
    PointInTimeDocument {
        pool: &rescued.name,
        point_in_time: rescued.point_in_time.name(),
        checkpoint: rescued.point_in_time.checkpoint(),
        notes: rescued.notes.iter().map(|note| note.0.as_str()).collect(),
    }
}

/// The same for programs.
pub(crate) fn list_document(rescued: &Rescued, spaces: &[FoundSpace]) -> Value {
    let space = |space: &FoundSpace| {
        json!({
            "id": space.id.0,
            "name": space.name,
            "bytes": space.size.0,
            "resiliency": space.resiliency.to_string(),
            "rows": space.rows,
            "is_nameless": space.is_nameless,
            "trashed_at": space.trashed_at,
        })
    };
    json!({ "of": point_in_time_document(rescued), "spaces": spaces.iter().map(space).collect::<Vec<_>>() })
}

fn range_document(range: &BadRange) -> Value {
    json!({ "at": range.at, "bytes": range.length.0, "kind": range.kind.name(), "is_missing": range.kind.is_missing() })
}

/// The list of bad ranges as a file: what it is of in lines that begin with #, then a line for each range that people can read
/// and programs too.
pub(crate) fn bad_ranges(rescued: &Rescued, space: &str, size: Bytes, bad: &[BadRange]) -> String {
    let mut text =
        format!("# space {space} of {} bytes, {}\n", size.0, point_in_time(rescued).replace('\n', "\n#"));
    text.push_str("# first byte, bytes, what, why\n");
    for range in bad {
        let _ = writeln!(text, "{} {} {} # {}", range.at, range.length.0, range.kind.name(), range.kind);
    }
    if bad.is_empty() {
        text.push_str("# nothing is bad\n");
    }
    text
}

/// What came out, for programs.
pub(crate) fn export_document(
    rescued: &Rescued,
    arguments: &ExportArguments,
    size: Bytes,
    bad: &[BadRange],
) -> Result<String, ToolError> {
    let document = json!({
        "of": point_in_time_document(rescued),
        "space": arguments.space,
        "bytes": size.0,
        "to": arguments.to.display().to_string(),
        "is_whole": bad.is_empty(),
        "bad_ranges": bad.iter().map(range_document).collect::<Vec<_>>(),
    });
    Ok(serde_json::to_string(&document)?)
}

/// Ranges that are listed one by one; more are in the list.
const REPORTED: usize = 10;

/// What came out, for people.
pub(crate) fn export(
    size: Bytes,
    bad: &[BadRange],
    arguments: &ExportArguments,
    list: &std::path::Path,
) -> String {
    let to = arguments.to.display();
    if bad.is_empty() {
        return format!("{size} written to {to}: all of it\n");
    }
    let sum = |is_missing: bool| {
        let ranges = bad.iter().filter(|range| range.kind.is_missing() == is_missing);
        Bytes(ranges.map(|range| range.length.0).sum())
    };
    let holes = if arguments.zero_bad { "zeros" } else { "holes of the file, which read as zeros" };
    let mut text = format!("{size} written to {to}, not all of it\n");
    if sum(true) > Bytes::ZERO {
        let _ = writeln!(text, "  {} are missing, and are {holes}", sum(true));
    }
    if sum(false) > Bytes::ZERO {
        let _ = writeln!(
            text,
            "  {} are doubtful: they may be older than what was there, or zeros for something else",
            sum(false)
        );
    }
    for range in bad.iter().take(REPORTED) {
        let _ = writeln!(text, "  {} from byte {} on: {}", range.length, range.at, range.kind);
    }
    if bad.len() > REPORTED {
        let _ = writeln!(text, "  and {} more ranges", bad.len() - REPORTED);
    }
    let _ = writeln!(text, "  all ranges are in {}", list.display());
    text
}
