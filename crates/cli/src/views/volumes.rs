//! Volumes as people see them.

use dolmen_api::{
    CheckKind, CheckResult, FileSystemKind, MountState, Volume, VolumeCheck, VolumeDocument, VolumePurpose,
    VolumeState, Volumes,
};
use dolmen_units::Bytes;

use crate::terminal::out::Out;
use crate::terminal::table::{Align, Table};
use crate::views::jobs::ago;
use crate::views::words::{health, health_tone, percent};

/// Shows volumes.
pub(crate) fn show_volumes(volumes: &Volumes, out: &mut Out<'_>) {
    if volumes.volumes.is_empty() {
        return out.line("no volumes; make one with: dolmen volume create POOL/NAME --size SIZE --for files");
    }
    let mut table = Table::new(&[
        ("VOLUME", Align::Left),
        ("FILE SYSTEM", Align::Left),
        ("SIZE", Align::Right),
        ("STATE", Align::Left),
        ("MOUNTED AT", Align::Left),
        ("WHY", Align::Sentence),
    ])
    .dropping(&["FILE SYSTEM", "MOUNTED AT", "STATE"]);
    for volume in &volumes.volumes {
        table.row(vec![
            format!("{}/{}", volume.pool, volume.name).into(),
            volume.file_system.map(file_system).unwrap_or_default().into(),
            Bytes(volume.size_bytes).to_string().into(),
            state(volume).into(),
            place(volume).into(),
            volume.why.join("; ").into(),
        ]);
    }
    out.table(0, &table);
}

/// Shows a volume.
pub(crate) fn show_volume(document: &VolumeDocument, out: &mut Out<'_>) {
    let (volume, paint) = (&document.volume, out.paint_results);
    let word = paint.tone(health(volume.health), health_tone(volume.health));
    out.line(format_args!("volume {}/{}: {word}", volume.pool, volume.name));
    for reason in &volume.why {
        out.labelled("  why            ", reason);
    }
    let claimed = format!(
        "{}, {} of its size",
        Bytes(volume.claimed_bytes),
        percent(volume.claimed_bytes, volume.size_bytes)
    );
    let free = match (volume.free_bytes, volume.total_bytes) {
        (Some(free), Some(total)) => format!("{} of {}", Bytes(free), Bytes(total)),
        (Some(_), None) | (None, _) => String::new(),
    };
    let inodes = match (volume.free_inodes, volume.inodes) {
        (Some(free), Some(all)) => format!("{free} of {all} free"),
        (Some(_), None) | (None, _) => String::new(),
    };
    let full = volume.days_until_full.map(|days| match days {
        1 => "in about 1 day at the rate of the last week".to_owned(),
        days => format!("in about {days} days at the rate of the last week"),
    });
    let worker = volume.worker.as_ref().map(|worker| {
        format!("{}, process {}, {} seconds so far", worker.operation, worker.pid, worker.elapsed_s)
    });
    let wanted = if volume.is_to_be_mounted { "mounted" } else { "unmounted" };
    let mut facts = Table::facts();
    for (name, value) in [
        ("state", state(volume).to_owned()),
        ("file system", volume.file_system.map(file_system).unwrap_or_default().to_owned()),
        ("uuid", volume.uuid.clone().unwrap_or_default()),
        ("label", volume.label.clone().unwrap_or_default()),
        ("made for", volume.purpose.map(purpose).unwrap_or_default().to_owned()),
        ("oldest kernel", volume.oldest_kernel.clone().unwrap_or_default()),
        ("size", Bytes(volume.size_bytes).to_string()),
        ("claimed", claimed),
        ("free", free),
        ("inodes", inodes),
        ("full", full.unwrap_or_default()),
        ("is to be", wanted.to_owned()),
        ("mount point", volume.mount_point.clone().unwrap_or_default()),
        ("mounted at", place(volume)),
        ("mount options", volume.mount_options.join(",")),
        ("mkfs options", volume.mkfs_options.join(" ")),
        ("device", volume.device.clone().unwrap_or_else(|| "not attached".to_owned())),
        ("at work", worker.unwrap_or_default()),
    ]
    .into_iter()
    .filter(|(_, value)| !value.is_empty())
    {
        facts.row(vec![name.into(), value.into()]);
    }
    out.facts(2, &facts);
}

/// Shows what the last check of a volume found.
pub(crate) fn show_volume_check(name: &str, check: &VolumeCheck, out: &mut Out<'_>) {
    let done = match check.kind {
        CheckKind::Check => "check",
        CheckKind::Repair => "repair",
        CheckKind::Scrub => "scrub",
    };
    let result = match check.result {
        CheckResult::Clean => "clean",
        CheckResult::Damaged => "damaged",
        CheckResult::LogNotReplayed => "not known, since its log was not replayed",
        CheckResult::Failed => "not known, since the check did not run to its end",
    };
    let ended = format!("{done} by job {}, ended {}", check.job, ago(check.now_s, check.ended_s));
    out.line(format_args!("volume {name}: {result} ({ended})"));
    for finding in &check.findings {
        let place = match (&finding.path, finding.inode) {
            (Some(path), _) => format!("{path}: "),
            (None, Some(_)) | (None, None) => String::new(),
        };
        out.labelled("  ", &format!("{place}{}", finding.text));
    }
    if check.omitted > 0 {
        out.line(format_args!("  {} more", check.omitted));
    }
    out.line(format_args!("all that the tools wrote: {}", check.file));
}

fn file_system(kind: FileSystemKind) -> &'static str {
    match kind {
        FileSystemKind::Xfs => "xfs",
        FileSystemKind::Btrfs => "btrfs",
        FileSystemKind::Ext4 => "ext4",
    }
}

fn purpose(purpose: VolumePurpose) -> &'static str {
    match purpose {
        VolumePurpose::Files => "files",
        VolumePurpose::Documents => "documents",
        VolumePurpose::Vms => "vms",
        VolumePurpose::Database => "database",
        VolumePurpose::Backup => "backup",
    }
}

fn state(volume: &Volume) -> &'static str {
    match volume.state {
        VolumeState::Making => "being made",
        VolumeState::Ready => "ready",
        VolumeState::Foreign => "adopted",
        VolumeState::Deleting => "being deleted",
        VolumeState::NotUnderstood => "not understood",
    }
}

/// Returns the place of a mounted volume, or else the state of its mount.
fn place(volume: &Volume) -> String {
    let state = match volume.mount_state {
        MountState::Making if volume.is_held => "held",
        MountState::Making => "not made yet",
        MountState::Mounting => "being mounted",
        MountState::Unmounting => "being unmounted",
        MountState::Mounted | MountState::Unmounted if volume.is_held => "held",
        MountState::Mounted | MountState::Unmounted => "not mounted",
    };
    volume.mounted_at.clone().unwrap_or_else(|| state.to_owned())
}
