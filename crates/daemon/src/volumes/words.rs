//! Values of records as the API names them, and back.

use dolmen_api::{FileSystemKind, VolumePurpose, VolumeState};
use dolmen_volume::file_system::FileSystem;
use dolmen_volume::profile::Purpose;
use dolmen_volume::record;

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
