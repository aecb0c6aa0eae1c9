//! Values of records as the API names them, and back.

use dolmen_api::{DedupMode, FileSystemKind, VolumePurpose, VolumeState};
use dolmen_volume::file_system::FileSystem;
use dolmen_volume::profile::Purpose;
use dolmen_volume::record::{self, DeduplicationMode};
use dolmen_worker::protocol::long::Step;

pub(super) fn kind_of(file_system: FileSystem) -> FileSystemKind {
    match file_system {
        FileSystem::Xfs => FileSystemKind::Xfs,
        FileSystem::Btrfs => FileSystemKind::Btrfs,
        FileSystem::Ext4 => FileSystemKind::Ext4,
    }
}

pub(super) fn file_system_of(kind: FileSystemKind) -> FileSystem {
    match kind {
        FileSystemKind::Xfs => FileSystem::Xfs,
        FileSystemKind::Btrfs => FileSystem::Btrfs,
        FileSystemKind::Ext4 => FileSystem::Ext4,
    }
}

pub(super) fn purpose_of(purpose: VolumePurpose) -> Purpose {
    match purpose {
        VolumePurpose::Files => Purpose::Files,
        VolumePurpose::Documents => Purpose::Documents,
        VolumePurpose::Vms => Purpose::Vms,
        VolumePurpose::Database => Purpose::Database,
        VolumePurpose::Backup => Purpose::Backup,
    }
}

pub(super) fn shown_purpose(purpose: Purpose) -> VolumePurpose {
    match purpose {
        Purpose::Files => VolumePurpose::Files,
        Purpose::Documents => VolumePurpose::Documents,
        Purpose::Vms => VolumePurpose::Vms,
        Purpose::Database => VolumePurpose::Database,
        Purpose::Backup => VolumePurpose::Backup,
    }
}

pub(super) fn shown_state(state: record::VolumeState) -> VolumeState {
    match state {
        record::VolumeState::Making => VolumeState::Making,
        record::VolumeState::Ready => VolumeState::Ready,
        record::VolumeState::Foreign => VolumeState::Foreign,
        record::VolumeState::Deleting => VolumeState::Deleting,
    }
}

pub(super) fn shown_mode(mode: DeduplicationMode) -> DedupMode {
    match mode {
        DeduplicationMode::Background => DedupMode::Background,
        DeduplicationMode::Throughput => DedupMode::Throughput,
    }
}

pub(super) fn mode_of(mode: DedupMode) -> DeduplicationMode {
    match mode {
        DedupMode::Background => DeduplicationMode::Background,
        DedupMode::Throughput => DeduplicationMode::Throughput,
    }
}

/// Returns a step of a long operation in a word.
pub(super) fn step_word(step: Step) -> &'static str {
    match step {
        Step::Scan => "scan",
        Step::Hash => "hash",
        Step::Plan => "plan",
        Step::Share => "share",
        Step::Map => "map",
        Step::Compact => "compact",
        Step::Undo => "undo",
        Step::Estimate => "estimate",
    }
}

/// Returns a part in millionths as percent with one digit behind the point.
pub(super) fn percent_words(ppm: u32) -> String {
    let tenths = (u64::from(ppm) + 500) / 1000;
    format!("{}.{} %", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_rounded_to_tenths_of_percent() {
        let words = [0, 499, 500, 234_567, 999_999, 1_000_000].map(percent_words);
        assert_eq!(words, ["0.0 %", "0.0 %", "0.1 %", "23.5 %", "100.0 %", "100.0 %"]);
    }
}
