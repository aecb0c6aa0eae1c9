//! Volumes: mounts and room of file systems.

use dolmen_api::{MountState, Volumes};

use crate::daemon::health_number;
use crate::family::Family;
use crate::text::Text;

const DAY_S: u64 = 24 * 3600;

pub(crate) fn put(text: &mut Text, volumes: &Volumes) {
    for volume in &volumes.volumes {
        let at = [volume.pool.as_str(), volume.name.as_str()];
        text.put(Family::VolumeHealth, &at, health_number(volume.health));
        text.put(Family::VolumeMounted, &at, volume.mount_state == MountState::Mounted);
        text.put(Family::VolumeWanted, &at, volume.is_to_be_mounted);
        let until_full = volume.days_until_full.map(|days| days.saturating_mul(DAY_S));
        for (family, count) in [
            (Family::VolumeSizeBytes, volume.total_bytes),
            (Family::VolumeFreeBytes, volume.free_bytes),
            (Family::VolumeInodes, volume.inodes),
            (Family::VolumeFreeInodes, volume.free_inodes),
            (Family::VolumeUntilFull, until_full),
        ] {
            text.put_some(family, &at, count);
        }
    }
}
