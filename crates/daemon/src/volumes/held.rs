//! Volumes that are held: another host chose where they are mounted (docs/design/0035, *Pools of other hosts*).
//!
//! Invariant: a volume that is held is neither made nor mounted, and has no unit of systemd.

use dolmen_api::{ErrorBody, ErrorCode, shell_word};
use dolmen_volume::record::{VolumeRecord, VolumeState};

use crate::answer::Answer;
use crate::volumes::service::Volumes;
use crate::volumes::volume::Volume;

/// Returns why a volume is held, and the command that accepts its mount point.
pub(super) fn held_text(name: &str, record: &VolumeRecord) -> String {
    let by = record
        .placed_by
        .map_or_else(|| "a host that is not on record".to_owned(), |host| format!("host {}", host.short()));
    let (at, volume) = (record.mount_point.as_str(), shell_word(name));
    let accept = format!("dolmen volume mount --mount {} {volume}", shell_word(at));
    match record.state {
        VolumeState::Making => format!(
            "volume {name} is held: {by} began to make it for {at}; `{accept}` makes and mounts it here, \
             `dolmen volume delete {volume}` deletes it"
        ),
        VolumeState::Ready | VolumeState::Foreign | VolumeState::Deleting => format!(
            "volume {name} is held: {by} chose its mount point {at}, which may be another folder here; `{accept}` accepts it, and \
             another path chooses another"
        ),
    }
}

/// Returns whether a volume waits until people accept its mount point. One that is being deleted waits for nothing.
pub(super) fn is_held(volumes: &Volumes, record: &VolumeRecord) -> bool {
    record.state != VolumeState::Deleting && record.is_held(volumes.shares.host)
}

/// Refuses to make or mount a volume that is held.
pub(super) fn check_not_held(volumes: &Volumes, volume: &Volume) -> Answer<()> {
    if !is_held(volumes, &volume.record) {
        return Ok(());
    }
    let message = format!("{}; nothing was changed", held_text(&volume.name, &volume.record));
    let hint = "look at the place first: programs may obey what is in it";
    Err(ErrorBody::new(ErrorCode::NeedsConfirmation, message).on(&volume.name).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a place with characters that a shell obeys, chosen by another host. The command gives the place back as it is.
    #[test]
    fn the_command_that_accepts_names_the_place() {
        let record = |state: &str, at: &str| -> VolumeRecord {
            let record = serde_json::json!({
                "state": state, "desired": "mounted", "file_system": "xfs", "mount_point": at,
                "uuid": "6f8e2c1a-0b7d-4a55-9a1e-52d0a3c4b5e6", "placed_by": "2".repeat(32),
            });
            serde_json::from_value(record).unwrap()
        };
        let text = held_text("tank/v", &record("ready", "/srv/a b"));
        assert!(text.contains("`dolmen volume mount --mount '/srv/a b' tank/v`"), "{text}");
        let text = held_text("tank/v", &record("making", "/srv/v"));
        assert!(text.contains("dolmen volume delete tank/v") && text.contains("host 2222"), "{text}");
    }
}
