//! The labels of an open pool are verified like everything else that has copies: a scrub reads them, and what is damaged is rewritten.
//!
//! Nothing reads a label while a pool is open, so a copy that is damaged meanwhile shows only when the pool is opened again, and
//! then there may be no other. A damaged copy is rewritten by stamps (docs/design/0027): each goes to the other slot of a disk, at
//! both of its ends, so that two of them replace all copies. They keep all rules of stamps, that of pending epochs among them.

use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_disk::{Contents, LabelError, look};
use dolmen_mutation::mutation;

use crate::discover::lost_labels;
use crate::disk::Disk;
use crate::pool::Pool;

/// A disk with copies of its label that were damaged.
#[derive(Debug)]
pub struct DamagedLabels {
    /// The disk.
    pub disk: Rc<Disk>,
    /// What was found, one for each copy; empty where no copy was found at all.
    pub damage: Vec<LabelError>,
    /// Whether all copies have been rewritten.
    pub is_mended: bool,
}

impl Pool {
    /// Reads all copies of the labels of the disks that are present, and rewrites those of a disk that has a damaged one. Returns
    /// the disks that had. The label of another pool or disk stays: whoever wrote it owns the disk now.
    ///
    /// Where something else was written over a label, the disk remembers the place until a person has acknowledged it.
    pub async fn verify_labels(self: &Rc<Self>) -> Vec<DamagedLabels> {
        let mut found = self.damaged_labels(&self.disks()).await;
        if found.is_empty() || mutation!(ScrubSkipsLabels) {
            return Vec::new();
        }
        for damaged in &found {
            damaged.disk.note_lost_labels(&lost_labels(&damaged.damage));
        }
        for _slot in 0..2 {
            found.iter().for_each(|damaged| damaged.disk.note_other_write());
            self.stamp().await;
        }
        let disks: Vec<_> = found.iter().map(|damaged| Rc::clone(&damaged.disk)).collect();
        let still = self.damaged_labels(&disks).await;
        for damaged in &mut found {
            damaged.is_mended = !still.iter().any(|still| still.disk.id() == damaged.disk.id());
            let (disk, copies, is_mended) = (damaged.disk.name(), damaged.damage.len(), damaged.is_mended);
            tracing::warn!(pool = %self.name, %disk, copies, is_mended, "copies of a label were damaged");
        }
        found
    }

    /// Returns which of the disks have a damaged copy. A copy that is written at the same time may look damaged.
    async fn damaged_labels(&self, disks: &[Rc<Disk>]) -> Vec<DamagedLabels> {
        let look_at = async |disk: &Rc<Disk>| {
            let device = disk.device()?;
            let damage = match look(&self.seams, device.as_ref()).await {
                Ok(Contents::Member { label, damage, .. }) if label.disk == disk.id() => damage,
                Ok(Contents::Unusable(error)) => return Some((Rc::clone(disk), vec![error])),
                Ok(Contents::Empty | Contents::Foreign(_)) => return Some((Rc::clone(disk), Vec::new())),
                Ok(Contents::Member { .. }) => return None,
                Err(error) => {
                    tracing::warn!(pool = %self.name, disk = %disk.name(), %error, "the labels of a disk cannot be read");
                    return None;
                }
            };
            (!damage.is_empty()).then(|| (Rc::clone(disk), damage))
        };
        let looked = join_all(disks.iter().map(look_at)).await;
        let damaged = |(disk, damage)| DamagedLabels { disk, damage, is_mended: false };
        looked.into_iter().flatten().map(damaged).collect()
    }
}
