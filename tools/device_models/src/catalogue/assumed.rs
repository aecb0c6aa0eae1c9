//! Which parameters of each model no source tells. What `docs/device_models.md` does not name as read or quoted counts as
//! assumed, also where it is likely right.

use super::{DEVICES, Kind, LINKS, Model, controller};
use crate::array::{ArrayCache, ArrayParameters, Level};
use crate::disk::{DiskParameters, WriteCache};
use crate::flash::{FlashParameters, WriteBuffer};
use crate::link::LinkParameters;

pub(super) const CHEETAH_15K5: &[&str] =
    &["zones", "heads", "skew_ns", "command_ns", "segment_bytes", "queue_depth", "write_cache"];
pub(super) const SAVVIO_10K1: &[&str] =
    &["zones", "skew_ns", "buffer_bytes", "segment_bytes", "queue_depth", "write_cache"];
pub(super) const ATLAS_10K: &[&str] = &[
    "zones",
    "heads",
    "skew_ns",
    "read_seeks.single_ns",
    "read_seeks.full_ns",
    "write_seeks.single_ns",
    "write_seeks.full_ns",
    "command_ns",
    "buffer_bytes",
    "segment_bytes",
    "queue_depth",
];
pub(super) const CHEETAH_9LP: &[&str] = &[
    "outer_track_bytes",
    "inner_track_bytes",
    "zones",
    "skew_ns",
    "read_seeks.single_ns",
    "read_seeks.full_ns",
    "write_seeks.single_ns",
    "write_seeks.full_ns",
    "command_ns",
    "buffer_bytes",
    "segment_bytes",
    "queue_depth",
    "write_cache",
];
pub(super) const ULTRASTAR_18ES: &[&str] = &[
    "zones",
    "heads",
    "skew_ns",
    "write_seeks.single_ns",
    "write_seeks.average_ns",
    "write_seeks.full_ns",
    "command_ns",
    "buffer_bytes",
    "segment_bytes",
    "queue_depth",
    "write_cache",
];
pub(super) const CONSTELLATION_7K2: &[&str] =
    &["zones", "skew_ns", "command_ns", "buffer_bytes", "segment_bytes", "queue_depth", "write_cache"];
pub(super) const FIREBALL_LCT08: &[&str] = &[
    "outer_track_bytes",
    "inner_track_bytes",
    "zones",
    "heads",
    "skew_ns",
    "write_seeks.single_ns",
    "write_seeks.average_ns",
    "write_seeks.full_ns",
    "command_ns",
    "segment_bytes",
    "queue_depth",
];
pub(super) const TRAVELSTAR_5K320: &[&str] = &[
    "zones",
    "heads",
    "skew_ns",
    "command_ns",
    "buffer_bytes",
    "segment_bytes",
    "queue_depth",
    "write_cache",
];
pub(super) const INTEL_S3700: &[&str] =
    &["interface_bytes_per_second", "queue_depth", "writes_per_second", "dies", "buffer_bytes", "buffer"];
pub(super) const SAMSUNG_850PRO: &[&str] = &[
    "interface_bytes_per_second",
    "queue_depth",
    "channels",
    "channel_bytes_per_second",
    "dies",
    "page_bytes",
    "page_read_ns",
    "page_program_ns",
    "random_writes_per_second",
    "buffer_bytes",
    "buffer",
];
pub(super) const MICRON_5100MAX: &[&str] = &[
    "interface_bytes_per_second",
    "queue_depth",
    "read_overhead_ns",
    "write_overhead_ns",
    "writes_per_second",
    "channels",
    "channel_bytes_per_second",
    "dies",
    "page_bytes",
    "page_read_ns",
    "page_program_ns",
    "buffer_bytes",
    "buffer",
];
pub(super) const INTEL_P3700: &[&str] =
    &["queue_depth", "writes_per_second", "dies", "buffer_bytes", "buffer"];
pub(super) const ETHERNET: &[&str] = &["latency_ns", "send_ns", "receive_ns", "bus_bytes_per_second"];
pub(super) const RDMA_100G: &[&str] = &["frame_overhead_bytes", "send_ns", "receive_ns"];
const CONTROLLER: &[&str] =
    &["interleave_bytes", "command_ns", "bus_bytes_per_second", "cache_bytes", "rows_per_member"];

/// A parameter's name and value, as the document shows them.
type Shown = (&'static str, String);

/// The tables of what every model is made of; what is assumed stands in bold type.
#[must_use]
pub fn tables() -> String {
    let device = |wanted: fn(&Kind) -> Option<Vec<Shown>>| {
        let column = |model: &Model| wanted(&model.kind).map(|shown| (model.name, shown, model.assumed));
        table(&DEVICES.iter().filter_map(column).collect::<Vec<_>>())
    };
    let disks = device(|kind| match kind {
        Kind::Disk(parameters) => Some(disk(parameters)),
        Kind::Flash(_) => None,
    });
    let solid = device(|kind| match kind {
        Kind::Disk(_) => None,
        Kind::Flash(parameters) => Some(flash(parameters)),
    });
    let links = table(
        &LINKS.iter().map(|model| (model.name, link(&model.parameters), model.assumed)).collect::<Vec<_>>(),
    );
    let arrays = array(&controller(Level::Stripe, ArrayCache::WriteBack));
    format!("{disks}\n{solid}\n{links}\n{}", table(&[("controller", arrays, CONTROLLER)]))
}

/// One column for each model, one line for each parameter.
fn table(columns: &[(&str, Vec<Shown>, &[&str])]) -> String {
    let heads: String = columns.iter().map(|(model, ..)| format!(" `{model}` |")).collect();
    let mut text = format!("| |{heads}\n|---|{}\n", "---:|".repeat(columns.len()));
    let fields = columns.first().into_iter().flat_map(|(_, shown, _)| shown);
    for (line, (field, _)) in fields.enumerate() {
        text.push_str(&format!("| `{field}` |"));
        for (_, shown, assumed) in columns {
            let value = shown.get(line).map_or("", |(_, value)| value.as_str());
            let bold = if assumed.contains(field) { "**" } else { "" };
            text.push_str(&format!(" {bold}{value}{bold} |"));
        }
        text.push('\n');
    }
    text
}

fn time(ns: u64) -> String {
    if ns.is_multiple_of(1_000) { format!("{} µs", ns / 1_000) } else { format!("{ns} ns") }
}

fn bytes(count: u64) -> String {
    match count {
        u64::MAX => "all".to_owned(),
        count if count > 0 && count.is_multiple_of(1 << 20) => format!("{} MiB", count >> 20),
        count if count > 0 && count.is_multiple_of(1 << 10) => format!("{} KiB", count >> 10),
        count => format!("{count} B"),
    }
}

fn rate(bytes_per_second: u64) -> String {
    format!("{} MB/s", bytes_per_second / 1_000_000)
}

/// Takes the parameters apart by name, so that a new one cannot be left out. The scheduler has a table of its own.
fn disk(parameters: &DiskParameters) -> Vec<Shown> {
    let DiskParameters {
        capacity_bytes,
        revolutions_per_minute,
        outer_track_bytes,
        inner_track_bytes,
        zones,
        heads,
        skew_ns,
        read_seeks,
        write_seeks,
        command_ns,
        interface_bytes_per_second,
        buffer_bytes,
        segment_bytes,
        queue_depth,
        scheduler: _,
        write_cache,
    } = *parameters;
    let cache = match write_cache {
        WriteCache::Off => "off",
        WriteCache::On => "on",
    };
    vec![
        ("capacity_bytes", capacity_bytes.to_string()),
        ("revolutions_per_minute", revolutions_per_minute.to_string()),
        ("outer_track_bytes", outer_track_bytes.to_string()),
        ("inner_track_bytes", inner_track_bytes.to_string()),
        ("zones", zones.to_string()),
        ("heads", heads.to_string()),
        ("skew_ns", time(skew_ns)),
        ("read_seeks.single_ns", time(read_seeks.single_ns)),
        ("read_seeks.average_ns", time(read_seeks.average_ns)),
        ("read_seeks.full_ns", time(read_seeks.full_ns)),
        ("write_seeks.single_ns", time(write_seeks.single_ns)),
        ("write_seeks.average_ns", time(write_seeks.average_ns)),
        ("write_seeks.full_ns", time(write_seeks.full_ns)),
        ("command_ns", time(command_ns)),
        ("interface_bytes_per_second", rate(interface_bytes_per_second)),
        ("buffer_bytes", bytes(buffer_bytes)),
        ("segment_bytes", bytes(segment_bytes)),
        ("queue_depth", queue_depth.to_string()),
        ("write_cache", cache.to_owned()),
    ]
}

fn flash(parameters: &FlashParameters) -> Vec<Shown> {
    let FlashParameters {
        capacity_bytes,
        interface_bytes_per_second,
        queue_depth,
        read_overhead_ns,
        write_overhead_ns,
        reads_per_second,
        writes_per_second,
        channels,
        channel_bytes_per_second,
        dies,
        page_bytes,
        page_read_ns,
        page_program_ns,
        program_bytes_per_second,
        random_writes_per_second,
        buffer_bytes,
        buffer,
    } = *parameters;
    let kept = match buffer {
        WriteBuffer::Volatile => "volatile",
        WriteBuffer::Protected => "protected",
    };
    vec![
        ("capacity_bytes", capacity_bytes.to_string()),
        ("interface_bytes_per_second", rate(interface_bytes_per_second)),
        ("queue_depth", queue_depth.to_string()),
        ("read_overhead_ns", time(read_overhead_ns)),
        ("write_overhead_ns", time(write_overhead_ns)),
        ("reads_per_second", reads_per_second.to_string()),
        ("writes_per_second", writes_per_second.to_string()),
        ("channels", channels.to_string()),
        ("channel_bytes_per_second", rate(channel_bytes_per_second)),
        ("dies", dies.to_string()),
        ("page_bytes", bytes(page_bytes)),
        ("page_read_ns", time(page_read_ns)),
        ("page_program_ns", time(page_program_ns)),
        ("program_bytes_per_second", rate(program_bytes_per_second)),
        ("random_writes_per_second", random_writes_per_second.to_string()),
        ("buffer_bytes", bytes(buffer_bytes)),
        ("buffer", kept.to_owned()),
    ]
}

fn link(parameters: &LinkParameters) -> Vec<Shown> {
    let LinkParameters {
        bits_per_second,
        frame_payload_bytes,
        frame_overhead_bytes,
        latency_ns,
        send_ns,
        receive_ns,
        fetch_ns,
        inline_bytes,
        bus_bytes_per_second,
    } = *parameters;
    vec![
        ("bits_per_second", format!("{} Gb/s", bits_per_second / 1_000_000_000)),
        ("frame_payload_bytes", format!("{frame_payload_bytes} B")),
        ("frame_overhead_bytes", format!("{frame_overhead_bytes} B")),
        ("latency_ns", time(latency_ns)),
        ("send_ns", time(send_ns)),
        ("receive_ns", time(receive_ns)),
        ("fetch_ns", time(fetch_ns)),
        ("inline_bytes", bytes(inline_bytes)),
        ("bus_bytes_per_second", rate(bus_bytes_per_second)),
    ]
}

/// Level and cache are the caller's.
fn array(parameters: &ArrayParameters) -> Vec<Shown> {
    let ArrayParameters {
        level: _,
        interleave_bytes,
        command_ns,
        bus_bytes_per_second,
        cache: _,
        cache_bytes,
        rows_per_member,
    } = *parameters;
    vec![
        ("interleave_bytes", bytes(interleave_bytes)),
        ("command_ns", time(command_ns)),
        ("bus_bytes_per_second", rate(bus_bytes_per_second)),
        ("cache_bytes", bytes(cache_bytes)),
        ("rows_per_member", rows_per_member.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_assumed_is_a_parameter() {
        // A name that is misspelt would leave its figure looking as if a sheet told it.
        let known = |shown: Vec<Shown>, assumed: &[&str], model: &str| {
            for name in assumed {
                assert!(shown.iter().any(|(field, _)| field == name), "{model}: {name}");
            }
        };
        for model in &DEVICES {
            let shown = match &model.kind {
                Kind::Disk(parameters) => disk(parameters),
                Kind::Flash(parameters) => flash(parameters),
            };
            known(shown, model.assumed, model.name);
        }
        for model in &LINKS {
            known(link(&model.parameters), model.assumed, model.name);
        }
        known(array(&controller(Level::Stripe, ArrayCache::WriteBack)), CONTROLLER, "controller");
    }
}
