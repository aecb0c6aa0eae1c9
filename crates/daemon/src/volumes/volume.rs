//! A volume of an open pool.

use std::path::PathBuf;
use std::rc::Rc;

use dolmen_attach::SpaceKey;
use dolmen_space::Space;
use dolmen_volume::record::VolumeRecord;
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
}
