//! A volume of an open pool.

use std::path::PathBuf;
use std::rc::Rc;

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_attach::SpaceKey;
use dolmen_space::Space;
use dolmen_volume::record::{VolumeRecord, VolumeState};
use dolmen_worker::protocol;

use crate::answer::Answer;
use crate::open_pool::OpenPool;
use crate::volumes::records;

/// A volume of an open pool, with its record as it was read.
pub(super) struct Volume {
    pub(super) pool: Rc<OpenPool>,
    pub(super) space: Space,
    pub(super) key: SpaceKey,
    /// `POOL/NAME`.
    pub(super) name: String,
    pub(super) record: VolumeRecord,
}

impl Volume {
    /// Returns it as an order names it. The device is attached by this daemon now, so that its incarnation is the one meant.
    pub(super) fn for_worker(&self, device: PathBuf) -> protocol::Volume {
        let incarnation = dolmen_worker::incarnation_of(&device);
        protocol::Volume { device, incarnation, record: self.record.clone() }
    }

    /// Writes its record.
    pub(super) async fn put(&self) -> Answer<()> {
        records::put(&self.space, &self.record, &self.name).await
    }

    /// Refuses a change of one that is not made yet, or is being deleted.
    pub(super) fn check_whole(&self) -> Answer<()> {
        match self.record.state {
            VolumeState::Ready | VolumeState::Foreign => Ok(()),
            VolumeState::Deleting => Err(is_leaving(&self.name)),
            VolumeState::Making => {
                let name = &self.name;
                let message = format!("volume {name} is not made yet; nothing was changed");
                let hint = format!(
                    "`dolmen volume mount {name}` makes it, `dolmen volume delete {name}` deletes it"
                );
                Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint))
            }
        }
    }
}

/// Returns the refusal of a change of a volume that is being deleted.
pub(super) fn is_leaving(name: &str) -> ErrorBody {
    let message = format!("volume {name} is being deleted; nothing was changed");
    ErrorBody::new(ErrorCode::Busy, message).on(name).hint("`dolmen trash list` shows it when it is deleted")
}
