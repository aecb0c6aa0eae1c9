//! Any structure of a disk, as a tree of names and values that is printed as text or JSON.
//!
//! Nothing here decides anything, and nothing is believed: a structure with a wrong checksum is shown as far as it goes, and says
//! so. No bytes make it fail.

use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Seams};
use dolmen_causes::in_one_line;
use dolmen_disk::{Contents, Generation, Label, METADATA_AT, look};
use dolmen_epoch::{EpochRecord, Owner};
use dolmen_future_pool::pooled;
use dolmen_journal::format::{Batch, BatchError, Expected};
use dolmen_pool::{LogNeed, areas, decode_edits, keys};
use dolmen_space::salvage::{self, BlockEntry, FoundSlab, MappedRow, RowLayout, SlabHeader, TablePage};
use dolmen_space::{Progress, SpaceSpec};
use dolmen_store::{
    CHECKPOINT_BLOCK_BYTES, CheckpointBlock, Key, MapPage, PAGE_BYTES, PageContent, PageName,
};
use dolmen_units::{BLOCK_BYTES, Bytes, SpaceId};
use serde_json::{Map, Value, json};

use crate::error::RescueError;
use crate::gather::{gather, look_at, read_bytes};
use crate::open::{is_whole, open_map};
use crate::slabs::survey;

const BLOCK: usize = 4096;
/// Bytes of the places at which a label may stand.
const LABEL_BYTES: usize = 64 * 1024;
/// Addresses of labels at the front.
const FRONT: [u64; 2] = [64 * 1024, 128 * 1024];
/// Bytes of an unknown value that are shown.
const SHOWN_BYTES: usize = 64;

const _: () = assert!(BLOCK as u64 == BLOCK_BYTES, "a block is a block, in memory and on disks");

/// What to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Labels: each slot at both ends.
    Labels,
    /// Checkpoint blocks: both slots.
    Checkpoints,
    /// Batches in the log, and what they say.
    Log,
    /// What the log says of the write cache.
    Cache,
    /// The map: all keys and values.
    Map,
    /// Spaces of the map.
    Spaces,
    /// Rows of the map, of one space or of all.
    Rows(Option<SpaceId>),
    /// Headers of slabs, found by reading the whole disk.
    Slabs,
    /// Whatever stands at an address.
    At(u64),
}

/// Shows what stands on devices. Those that make a pool together are taken together where a map is shown.
///
/// # Errors
/// Where the map that is asked for cannot be opened. Anything else that cannot be read is shown as that.
#[pooled]
pub async fn dump(
    seams: &Seams,
    devices: &[Rc<dyn BlockDevice>],
    what: What,
    checkpoint: Option<u64>,
    progress: &Progress,
) -> Result<Value, RescueError> {
    if matches!(what, What::Map | What::Spaces | What::Rows(_)) {
        return map(seams, devices, what, checkpoint).await;
    }
    let mut shown = Vec::new();
    for device in devices {
        let of = match what {
            What::Labels => labels(seams, device).await,
            What::Checkpoints => checkpoint_blocks(seams, device).await,
            What::Log => log(seams, device, |_| true).await,
            What::Cache => log(seams, device, |entry| !is_of_table(entry)).await,
            What::Slabs => {
                let found = survey(seams, device, progress).await;
                Value::Array(found.headers.iter().map(|(at, header)| slab(*at, header)).collect())
            }
            What::At(at) => at_address(seams, device, at).await,
            What::Map | What::Spaces | What::Rows(_) => Value::Null,
        };
        shown.push(json!({ "device": device.name(), "bytes": device.geometry().capacity.0, "holds": of }));
    }
    Ok(Value::Array(shown))
}

async fn at_address(seams: &Seams, device: &Rc<dyn BlockDevice>, at: u64) -> Value {
    let at = Bytes(at).align_down(BLOCK_BYTES).0;
    let capacity = device.geometry().capacity.0;
    let longest = [256 * 1024, LABEL_BYTES, PAGE_BYTES, BLOCK];
    let fits = longest
        .into_iter()
        .filter(|length| at.checked_add(*length as u64).is_some_and(|end| end <= capacity));
    for length in fits {
        if let Some(bytes) = read_bytes(seams, device.as_ref(), at, length).await {
            return show(&bytes, at);
        }
    }
    json!({ "at": at, "error": "it cannot be read, or lies behind the end" })
}

/// Shows what stands in bytes that were read from address `at`: what it is told by how it begins.
#[must_use]
pub fn show(bytes: &[u8], at: u64) -> Value {
    let block = bytes.get(..BLOCK).unwrap_or(bytes);
    if let Some(header) = SlabHeader::is_likely(block).then(|| SlabHeader::parse(block)) {
        return header.map_or_else(
            || json!({ "is": "slab header", "at": at, "error": "its checksum is wrong, or it makes no sense" }),
            |header| slab(at, &header),
        );
    }
    if let Some(page) = TablePage::parse(block) {
        return table(at, &page);
    }
    if CheckpointBlock::is_likely(block) {
        return checkpoint(at, block);
    }
    if MapPage::is_likely(bytes) {
        return page(at, bytes);
    }
    match Label::parse(bytes, at) {
        Ok(of) => return label(at, &of),
        Err(dolmen_disk::LabelError::Absent) => {}
        Err(error) => return json!({ "is": "label", "at": at, "error": in_one_line(&error) }),
    }
    if let Some(of) = batch_anywhere(bytes, at) {
        return of;
    }
    let zeros = block.iter().all(|byte| *byte == 0);
    let head = hex(block.get(..SHOWN_BYTES).unwrap_or(block));
    json!({ "is": if zeros { "zeros" } else { "nothing known" }, "at": at, "begins": head })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

// Labels and epochs.

async fn labels(seams: &Seams, device: &Rc<dyn BlockDevice>) -> Value {
    let capacity = device.geometry().capacity;
    let back = Bytes(capacity.0).align_down(1 << 20).0.saturating_sub(1 << 20);
    let mut shown = Vec::new();
    for at in FRONT.into_iter().chain([back, back + LABEL_BYTES as u64]) {
        shown.push(match read_bytes(seams, device.as_ref(), at, LABEL_BYTES).await {
            Some(bytes) => match Label::parse(&bytes, at) {
                Ok(of) => label(at, &of),
                Err(error) => json!({ "is": "label", "at": at, "error": in_one_line(&error) }),
            },
            None => json!({ "at": at, "error": "it cannot be read, or lies behind the end" }),
        });
    }
    Value::Array(shown)
}

fn label(at: u64, of: &Label) -> Value {
    json!({
        "is": "label",
        "at": at,
        "pool": of.pool.to_string(),
        "pool_name": of.pool_name.as_str(),
        "disk": of.disk.to_string(),
        "sequence": of.sequence,
        "heartbeat": of.heartbeat,
        "capacity": of.extent.capacity.0,
        "metadata_length": of.extent.metadata.0,
        "data_start": of.extent.data_start,
        "data_end": of.extent.data_end,
        "log_length": of.log.0,
        "pages_length": of.pages.0,
        "base": generation(&of.base),
        "pending": of.pending.as_ref().map(generation),
    })
}

fn generation(of: &Generation) -> Value {
    let members = of.members.iter().map(|member| {
        json!({
            "slot": member.slot.0,
            "disk": member.disk.to_string(),
            "capacity": member.capacity.0,
            "state": format!("{:?}", member.state).to_lowercase(),
            "fault_domain": member.fault_domain,
            "left": member.left.0,
            "successor": member.successor.map(|slot| slot.0),
            "sequence": member.sequence,
        })
    });
    json!({ "epoch": epoch(&of.epoch), "members": members.collect::<Vec<_>>() })
}

fn epoch(of: &EpochRecord) -> Value {
    let owner = match of.owner() {
        Owner::Host(host) => host.to_string(),
        Owner::Exported => "nobody (exported)".to_owned(),
    };
    let spans = of.spans().iter();
    json!({
        "id": of.id().to_string(),
        "predecessor": of.predecessor().to_string(),
        "owner": owner,
        "voters": of.voters().iter().map(ToString::to_string).collect::<Vec<_>>(),
        "fork": of.fork().map(|fork| json!({ "forced": fork.forced.to_string(), "root": fork.root.0 })),
        "spans": spans.map(|span| json!({ "epoch": span.epoch.to_string(), "first": span.first.0 })).collect::<Vec<_>>(),
    })
}

// Checkpoints and pages.

async fn checkpoint_blocks(seams: &Seams, device: &Rc<dyn BlockDevice>) -> Value {
    let mut shown = Vec::new();
    for slot in 0..2 {
        let at = METADATA_AT + slot * CHECKPOINT_BLOCK_BYTES as u64;
        shown.push(match read_bytes(seams, device.as_ref(), at, CHECKPOINT_BLOCK_BYTES).await {
            Some(bytes) if bytes.iter().all(|byte| *byte == 0) => json!({ "at": at, "is": "zeros" }),
            Some(bytes) => checkpoint(at, &bytes),
            None => json!({ "at": at, "error": "it cannot be read, or lies behind the end" }),
        });
    }
    Value::Array(shown)
}

fn checkpoint(at: u64, bytes: &[u8]) -> Value {
    let of = match CheckpointBlock::parse(bytes) {
        Ok(of) => of,
        Err(defect) => return json!({ "is": "checkpoint", "at": at, "error": defect.to_string() }),
    };
    let need = LogNeed::from_anchor(of.anchor);
    json!({
        "is": "checkpoint",
        "at": at,
        "written_for": of.at,
        "pool": of.pool.to_string(),
        "disk": of.disk.to_string(),
        "sequence": of.sequence,
        "pages_at": of.area.pages_at,
        "pages_length": of.area.pages_length,
        "root": of.root.map(|(root, level)| json!({ "level": level, "page": name(root) })),
        "entries": of.entries,
        "used_pages": of.used_pages,
        "bitmaps": of.bitmaps.iter().copied().map(name).collect::<Vec<_>>(),
        "log_from_lsn": need.from.lsn.0,
        "log_from_position": need.from.position,
        "changes_from_lsn": need.applied.0,
    })
}

fn name(of: PageName) -> Value {
    json!({ "page": of.page, "sequence": of.sequence, "checksum": format!("{:016x}", of.checksum) })
}

fn page(at: u64, bytes: &[u8]) -> Value {
    let of = match MapPage::parse(bytes) {
        Ok(of) => of,
        Err(defect) => return json!({ "is": "map page", "at": at, "error": defect.to_string() }),
    };
    let content = match &of.content {
        PageContent::Leaf(entries) => json!({
            "kind": "leaf",
            "entries": entries.iter().map(|(key, value)| entry(key, value)).collect::<Vec<_>>(),
        }),
        PageContent::Inner(children) => json!({
            "kind": "inner",
            "children": children.iter().map(|(key, child)| json!({ "first": key_of(key), "child": name(*child) })).collect::<Vec<_>>(),
        }),
        PageContent::Bitmap { index, used } => {
            json!({ "kind": "bitmap", "index": index, "used_pages": used })
        }
    };
    json!({
        "is": "map page", "at": at, "pool": of.pool.to_string(), "name": name(of.name), "level": of.level, "content": content,
    })
}

// The map.

#[pooled]
async fn map(
    seams: &Seams,
    devices: &[Rc<dyn BlockDevice>],
    what: What,
    wanted: Option<u64>,
) -> Result<Value, RescueError> {
    let looked = look_at(seams, devices).await;
    let mut gathered = gather(seams, &looked, None).await?;
    if let Some(sequence) = wanted {
        let at = is_whole(seams, gathered, sequence).await;
        gathered = at.map_err(|why| RescueError::Layout(why.into()))?.1;
    }
    let torn = |source| RescueError::Map { sequence: wanted.unwrap_or(0), source: Box::new(source) };
    let Some((store, _)) = open_map(seams, &gathered).await.map_err(torn)? else { return Ok(Value::Null) };
    let mut shown = Vec::new();
    let mut from = Key::MIN;
    loop {
        let found = store.scan(from..Key::MAX, 1024).await.map_err(torn)?;
        for (key, value) in &found {
            let is_space = keys::all(keys::Kind::Space).contains(key);
            let is_row = keys::all(keys::Kind::Row).contains(key);
            let of_row = || MappedRow::parse(value).map(|row| row.space);
            let is_meant = match what {
                What::Spaces => is_space,
                What::Rows(of) => is_row && of.is_none_or(|of| Some(of) == of_row()),
                _ => true,
            };
            if is_meant {
                shown.push(entry(key, value));
            }
        }
        match found.last().and_then(|(key, _)| key.next()) {
            Some(next) => from = next,
            None => return Ok(Value::Array(shown)),
        }
    }
}

fn key_of(key: &Key) -> Value {
    let (a, b, c) = keys::parts(key);
    let kind = key.0.first().copied().unwrap_or(0);
    let what = match kind {
        1 => "counter",
        2 => "free",
        3 => "free_total",
        4 => "space",
        5 => "place",
        6 => "row",
        7 => "stale",
        8 => "attribute",
        _ => return json!({ "kind": kind, "bytes": hex(&key.0) }),
    };
    json!({ "kind": what, "a": a, "b": b, "c": c })
}

fn entry(key: &Key, value: &[u8]) -> Value {
    let kind = key.0.first().copied().unwrap_or(0);
    let number = || value.try_into().ok().map(u64::from_le_bytes);
    let shown = match kind {
        1..=3 => number().map(|number| json!(number)),
        4 => salvage::parse_space(value).map(|spec| space(&spec)),
        5 => salvage::parse_place(value).map(|row| json!({ "row": row.0 })),
        6 => MappedRow::parse(value).map(|of| mapped_row(&of)),
        _ => None,
    };
    let shown = shown.unwrap_or_else(|| json!(hex(value.get(..SHOWN_BYTES).unwrap_or(value))));
    json!({ "key": key_of(key), "bytes": value.len(), "value": shown })
}

fn space(of: &SpaceSpec) -> Value {
    json!({
        "name": of.name.as_str(),
        "size": of.size.0,
        "resiliency": of.resiliency.to_string(),
        "columns": of.columns,
        "interleave": of.interleave.0,
        "row": of.row_bytes().0,
        "provisioning": format!("{:?}", of.provisioning).to_lowercase(),
        "integrity": format!("{:?}", of.integrity).to_lowercase(),
        "sector": of.sector.0,
    })
}

fn mapped_row(of: &MappedRow) -> Value {
    let one = |slab: &FoundSlab| {
        json!({
            "disk": slab.disk.0,
            "column": slab.column,
            "stale_since": slab.stale.map(|epoch| epoch.0),
            "runs": slab.runs.iter().map(|run| json!({ "first": run.first, "count": run.count })).collect::<Vec<_>>(),
        })
    };
    json!({
        "row": of.id.0,
        "space": of.space.0,
        "index": of.index,
        "blocks": of.shape.row.0 / 4096,
        "formatted": of.is_formatted,
        "resiliency": of.resiliency.to_string(),
        "integrity": format!("{:?}", of.integrity).to_lowercase(),
        "round": u8::from(of.layout == RowLayout::Other),
        "columns": of.shape.columns,
        "parity": of.shape.parity,
        "interleave": of.shape.interleave.0,
        "slabs": of.slabs.iter().map(one).collect::<Vec<_>>(),
    })
}

// Slabs and tables.

fn slab(at: u64, of: &SlabHeader) -> Value {
    json!({
        "is": "slab header",
        "at": at,
        "pool": of.pool.to_string(),
        "disk": of.disk.to_string(),
        "space": of.space.0,
        "row_index": of.row_index,
        "row": of.row.0,
        "epoch": of.epoch.0,
        "row_length": of.shape.row.0,
        "interleave": of.shape.interleave.0,
        "column": of.column,
        "columns": of.shape.columns,
        "parity": of.shape.parity,
        "runs": of.runs.iter().map(|run| json!({ "first": run.first, "count": run.count })).collect::<Vec<_>>(),
    })
}

fn table(at: u64, of: &TablePage) -> Value {
    let mut entries = Vec::new();
    for (block, (state, checksum, stamp)) in of.entries.iter().enumerate().filter(|(_, entry)| entry.0 != 0) {
        let state = match state {
            1 => json!("valid"),
            2 => json!("damaged"),
            other => json!(other),
        };
        entries.push(json!({
            "entry": block, "state": state, "checksum": format!("{checksum:08x}"), "stamp": stamp,
        }));
    }
    json!({
        "is": "table page",
        "at": at,
        "is_sound": of.is_sound,
        "pool": of.pool.to_string(),
        "row": of.row.0,
        "column": of.column,
        "index": of.index,
        "generation": of.generation,
        "never_written": of.entries.iter().filter(|entry| entry.0 == 0).count(),
        "entries": entries,
    })
}

// The log.

/// A batch in bytes that were read from address `at`, of whatever pool and ring.
fn batch_anywhere(bytes: &[u8], at: u64) -> Option<Value> {
    Some(match Batch::parse_alone(bytes, at) {
        Ok(of) => batch(&of, at, &|_| true),
        Err(BatchError::Magic) => return None,
        Err(error) => json!({ "is": "batch", "at": at, "error": error.to_string() }),
    })
}

async fn log(seams: &Seams, device: &Rc<dyn BlockDevice>, is_meant: impl Fn(&BlockEntry) -> bool) -> Value {
    let label = match look(seams, device.as_ref()).await {
        Ok(Contents::Member { label, .. }) => label,
        Ok(_) => return json!({ "error": "it has no label that says where its log is; show it by --at" }),
        Err(error) => return json!({ "error": in_one_line(&error) }),
    };
    let (ring, _) = areas(label.log, label.pages);
    let mut bytes = Vec::new();
    let mut unreadable = 0u64;
    for at in (ring.at..ring.at.saturating_add(ring.length)).step_by(LABEL_BYTES) {
        match read_bytes(seams, device.as_ref(), at, LABEL_BYTES).await {
            Some(read) => bytes.extend(read),
            None => {
                unreadable += LABEL_BYTES as u64;
                bytes.resize(bytes.len() + LABEL_BYTES, 0);
            }
        }
    }
    let mut batches = Vec::new();
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        let address = ring.at + done as u64;
        match Batch::parse(rest, &Expected { pool: label.pool, ring, address }) {
            Ok(of) => {
                done += of.header.length as usize;
                batches.push((of.header.lsn, batch(&of, address, &is_meant)));
            }
            Err(_) => done += BLOCK,
        }
    }
    batches.sort_by_key(|(lsn, _)| *lsn);
    let batches: Vec<Value> = batches.into_iter().map(|(_, batch)| batch).collect();
    json!({ "ring_at": ring.at, "ring_length": ring.length, "unreadable_bytes": unreadable, "batches": batches })
}

fn batch(of: &Batch, at: u64, is_meant: &dyn Fn(&BlockEntry) -> bool) -> Value {
    let records = of.records().map(|record| match record.kind {
        0 => json!({ "kind": "holes", "bytes": record.body.len() }),
        1 => json!({ "kind": "change", "edits": edits(record.body) }),
        2 => {
            let (entries, is_whole) = salvage::block_entries(record.body);
            let entries: Vec<Value> =
                entries.iter().filter(|entry| is_meant(entry)).map(block_entry).collect();
            json!({ "kind": "blocks", "is_whole": is_whole, "entries": entries })
        }
        3 => json!({ "kind": "opened" }),
        other => json!({ "kind": other, "bytes": record.body.len() }),
    });
    json!({
        "is": "batch",
        "at": at,
        "lsn": of.header.lsn.0,
        "epoch": of.header.epoch.to_string(),
        "position": of.header.position,
        "length": of.header.length,
        "settled": of.header.durable_mark.0,
        "durable_before": of.header.durable_before.0,
        "records": records.collect::<Vec<_>>(),
    })
}

fn edits(body: &[u8]) -> Value {
    let Some(edits) = decode_edits(body) else { return json!({ "error": "lengths make no sense" }) };
    let one = |(key, value): (Key, Option<Vec<u8>>)| match value {
        Some(value) => entry(&key, &value),
        None => json!({ "key": key_of(&key), "value": "removed" }),
    };
    edits.into_iter().map(one).collect()
}

/// Whether an entry is about a table, and not about the write cache.
fn is_of_table(entry: &BlockEntry) -> bool {
    matches!(entry.what, "valid" | "never_written" | "damaged")
}

fn block_entry(of: &BlockEntry) -> Value {
    json!({
        "what": of.what,
        "row": of.row.0,
        "owner": of.owner.map(|owner| owner.0),
        "column": of.column,
        "first": of.first,
        "count": of.count,
        "intent": of.intent,
        "generation": of.generation,
        "stamp": of.stamp,
    })
}

// Text.

/// The tree as text: a line for each value, indented.
#[must_use]
pub fn text(of: &Value) -> String {
    let mut lines = String::new();
    write(of, 0, &mut lines);
    lines
}

fn write(of: &Value, depth: usize, into: &mut String) {
    match of {
        Value::Object(fields) => write_fields(fields, depth, into),
        Value::Array(items) => {
            for item in items {
                match flat(item) {
                    Some(line) => push(into, depth, &format!("- {line}")),
                    None => {
                        push(into, depth, "-");
                        write(item, depth + 1, into);
                    }
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => push(into, depth, &scalar(of)),
    }
}

fn write_fields(fields: &Map<String, Value>, depth: usize, into: &mut String) {
    for (name, value) in fields {
        let name = name.replace('_', " ");
        match value {
            Value::Array(items) if items.is_empty() => push(into, depth, &format!("{name}: none")),
            Value::Object(_) | Value::Array(_) => match flat(value) {
                Some(line) => push(into, depth, &format!("{name}: {line}")),
                None => {
                    push(into, depth, &format!("{name}:"));
                    write(value, depth + 1, into);
                }
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                push(into, depth, &format!("{name}: {}", scalar(value)));
            }
        }
    }
}

/// A value in one line, if all that it has are plain values and it is short.
fn flat(of: &Value) -> Option<String> {
    let is_plain = |value: &Value| !matches!(value, Value::Object(_) | Value::Array(_));
    let line = match of {
        Value::Object(fields) if fields.values().all(is_plain) => {
            let one =
                |(name, value): (&String, &Value)| format!("{} {}", name.replace('_', " "), scalar(value));
            fields.iter().map(one).collect::<Vec<_>>().join(", ")
        }
        Value::Array(items) if !items.is_empty() && items.iter().all(is_plain) => {
            items.iter().map(scalar).collect::<Vec<_>>().join(", ")
        }
        Value::Object(_) | Value::Array(_) => return None,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => scalar(of),
    };
    (line.len() <= 160).then_some(line)
}

fn scalar(of: &Value) -> String {
    match of {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(_) | Value::Object(_) | Value::Array(_) => of.to_string(),
    }
}

fn push(into: &mut String, depth: usize, line: &str) {
    (0..depth).for_each(|_| into.push_str("  "));
    into.push_str(line);
    into.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAGICS: [&[u8]; 7] =
        [b"DOLMENLB", b"DOLMENCP", b"DOLMENPG", b"DOLMNLOG", b"DOLMENSL", b"DTAB", b""];

    proptest! {
        // Whatever stands on a disk is shown, also if it begins as a structure does; and as text.
        #[test]
        fn any_bytes_can_be_shown(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..20_000),
            magic in 0usize..MAGICS.len(),
            at in any::<u64>(),
        ) {
            for (to, from) in bytes.iter_mut().zip(MAGICS[magic]) {
                *to = *from;
            }
            let shown = show(&bytes, at);
            prop_assert!(!text(&shown).is_empty());
        }

        #[test]
        fn any_value_of_a_map_can_be_shown(
            key in any::<[u8; 24]>(),
            kind in 0u8..9,
            value in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let mut key = Key(key);
            key.0[0] = kind;
            prop_assert!(!text(&entry(&key, &value)).is_empty());
        }
    }

    #[test]
    fn a_tree_as_text_has_a_line_for_each_value() {
        let tree = json!({ "is": "x", "list_of": [{ "a": 1, "b": null }], "none": [], "deep": { "c": [{ "d": [1, 2] }] } });
        assert_eq!(
            text(&tree),
            "deep:\n  c:\n    -\n      d: 1, 2\nis: x\nlist of:\n  - a 1, b none\nnone: none\n"
        );
    }
}
