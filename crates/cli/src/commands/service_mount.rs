//! `dolmen service mount`: what mount(8) runs for a mount unit, or for a line of `/etc/fstab`.
//!
//! The daemon mounts its volumes by itself; this waits for it, and asks for the mount where that failed or was taken back.
//!
//! Invariant: a volume that people unmounted stays unmounted, and what requires it does not start.

use dolmen_api::{ErrorCode, ExitCode, MountState, MountVolume, Volume, verb};
use dolmen_mutation::mutation;
use dolmen_volume::unit::{MOUNT_SECONDS, SOURCE_PREFIX};

use crate::arguments::common::Intent;
use crate::arguments::service::ServiceMount;
use crate::arguments::values::{ParseSpaceNameError, SpaceName};
use crate::commands::space::space_words;
use crate::error::{CliError, Failure};
use crate::session::change::Session;
use crate::session::client::call;

/// Seconds before the limit of a mount unit at which this ends, so that its message is in the log.
const MARGIN_SECONDS: u32 = 10;

/// A volume that is not mounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MountError {
    /// The source names no volume.
    #[error("the source {found:?} names no volume: {why}; expected {SOURCE_PREFIX}POOL/SPACE")]
    Source {
        /// Source.
        found: String,
        /// Reason.
        why: ParseSpaceNameError,
    },
    /// It was unmounted on request.
    #[error("volume {volume} is to be unmounted, as its record says; nothing was mounted")]
    Unwanted {
        /// Volume.
        volume: String,
    },
    /// It belongs elsewhere.
    #[error(
        "volume {volume} belongs at {expected:?}, and the mount unit is for {found:?}; nothing was mounted"
    )]
    Elsewhere {
        /// Volume.
        volume: String,
        /// Its mount point.
        expected: String,
        /// Mount point of the unit.
        found: String,
    },
    /// It is still not mounted.
    #[error("volume {volume} is not mounted after {} seconds; the daemon goes on with it", MOUNT_SECONDS - MARGIN_SECONDS)]
    Late {
        /// Volume.
        volume: String,
    },
}

impl Failure for MountError {
    fn exit(&self) -> ExitCode {
        match self {
            Self::Source { .. } => ExitCode::Usage,
            Self::Unwanted { .. } | Self::Elsewhere { .. } => ExitCode::Config,
            Self::Late { .. } => ExitCode::Busy,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Source { .. } => None,
            Self::Unwanted { volume } => Some(format!("`dolmen volume mount {volume}`")),
            Self::Elsewhere { .. } => {
                Some("`systemctl daemon-reload`, which reads new mount units".to_owned())
            }
            Self::Late { volume } => Some(format!("`dolmen volume show {volume}`")),
        }
    }
}

/// Next step toward a mounted volume.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    Done,
    Wait,
    Ask,
    Refuse(MountError),
}

/// Carries the command out.
pub(crate) fn mount(session: &mut Session<'_, '_>, arguments: &ServiceMount) -> Result<(), CliError> {
    let source = &arguments.source;
    let name = source.strip_prefix(SOURCE_PREFIX).unwrap_or(source);
    let name: SpaceName = name.parse().map_err(|why| MountError::Source { found: source.clone(), why })?;
    let limit = u128::from(MOUNT_SECONDS - MARGIN_SECONDS) * 1000;
    for _ in 0..=limit / session.poll_interval.pause.as_millis().max(1) {
        let shown = session.client.look(&call::<verb::ShowVolume>(space_words(&name)))?;
        match next(&shown.value.volume, &arguments.folder) {
            Next::Done => return Ok(()),
            Next::Refuse(error) => return Err(error.into()),
            Next::Ask => {
                let asked = call::<verb::MountVolume>(space_words(&name));
                let request = MountVolume { mount_point: None, dry_run: false };
                match session.client.change(&asked, &request, arguments.dry.intent()) {
                    // A step that another request began ends first.
                    Err(CliError::Daemon { body }) if body.code == ErrorCode::Busy => {}
                    Err(error) => return Err(error),
                    Ok(_) if arguments.dry.intent() == Intent::DryRun => return Ok(()),
                    Ok(_) => continue,
                }
            }
            Next::Wait => {}
        }
        session.poll_interval.wait();
    }
    Err(MountError::Late { volume: name.to_string() }.into())
}

fn next(volume: &Volume, folder: &str) -> Next {
    let name = || format!("{}/{}", volume.pool, volume.name);
    let at = volume.mounted_at.as_deref().or(volume.mount_point.as_deref()).unwrap_or_default();
    if at != folder {
        let (expected, found) = (at.to_owned(), folder.to_owned());
        return Next::Refuse(MountError::Elsewhere { volume: name(), expected, found });
    }
    match volume.mount_state {
        MountState::Mounted => Next::Done,
        MountState::Making | MountState::Mounting | MountState::Unmounting => Next::Wait,
        MountState::Unmounted if volume.is_to_be_mounted || mutation!(UnwantedVolumeMounted) => Next::Ask,
        MountState::Unmounted => Next::Refuse(MountError::Unwanted { volume: name() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::fake::{Fake, NOBODY, answer, obey};

    fn volume(state: &str, is_wanted: bool) -> serde_json::Value {
        json!({
            "pool": "tank", "name": "v", "health": "healthy", "why": [], "state": "ready", "size_bytes": 1, "claimed_bytes": 0,
            "mount_point": "/srv/v", "mount_state": state, "is_to_be_mounted": is_wanted,
            "mounted_at": if state == "mounted" { json!("/srv/v") } else { json!(null) },
        })
    }

    #[test]
    fn a_mount_unit_waits_for_the_daemon_and_mounts_nothing_that_people_unmounted() {
        let next = |state, is_wanted, folder| {
            next(&serde_json::from_value(volume(state, is_wanted)).unwrap(), folder)
        };
        for state in ["making", "mounting", "unmounting"] {
            assert_eq!(next(state, true, "/srv/v"), Next::Wait, "{state}");
        }
        assert_eq!(next("mounted", true, "/srv/v"), Next::Done);
        assert_eq!(next("unmounted", true, "/srv/v"), Next::Ask);
        let unwanted = next("unmounted", false, "/srv/v");
        assert!(
            matches!(unwanted, Next::Refuse(MountError::Unwanted { .. })),
            "an unwanted volume is mounted"
        );
        for state in ["mounted", "unmounted"] {
            assert!(
                matches!(next(state, true, "/srv/w"), Next::Refuse(MountError::Elsewhere { .. })),
                "{state}"
            );
        }
    }

    /// Scenario: a volume is mounted already; another source names nothing. Nothing is changed.
    #[test]
    fn what_is_mounted_is_asked_for_once() {
        let fake = Fake::play(|line, body| match line {
            "GET /v1/pools/tank/volumes/v" => {
                answer(200, &json!({"schema": 1, "volume": volume("mounted", true)}))
            }
            _ => obey(body),
        });
        let ended = fake.run("service mount dolmen:tank/v /srv/v", &NOBODY);
        assert_eq!((ended.code, fake.acts().len()), (ExitCode::Ok, 0), "{}", ended.messages);
        assert_eq!(fake.run("service mount dolmen:tank /srv/v", &NOBODY).code, ExitCode::Usage);
        let ended = fake.run("service mount dolmen:tank/v /srv/w", &NOBODY);
        assert_eq!((ended.code, fake.acts().len()), (ExitCode::Config, 0), "{}", ended.messages);
    }
}
