//! The labels of an open pool are verified like everything else that has copies: a scrub reads them, and what is damaged is rewritten.
//!
//! Nothing reads a label while a pool is open, so a copy that is damaged meanwhile shows only when the pool is opened again, and
//! then there may be no other. A damaged copy is rewritten by stamps (docs/design/0027): each goes to the other slot of a disk, at
//! both of its ends, so that two of them replace all copies. They keep all rules of stamps, that of pending epochs among them.

use std::rc::Rc;

use dolmen_mutation::mutation;

use crate::disks::discover::lost_labels;
use crate::epochs::labels::DamagedLabels;
use crate::epochs::stamps::Stamps;

impl Stamps {
    /// Reads all copies of the labels of the disks that are present, and rewrites those of a disk that has a damaged one. Returns
    /// the disks that had. The label of another pool or disk stays: whoever wrote it owns the disk now.
    ///
    /// Where something else was written over a label, the disk remembers the place until a person has acknowledged it.
    pub async fn verify_labels(self: &Rc<Self>) -> Vec<DamagedLabels> {
        let mut found = self.labels.damaged_labels(&self.members.disks()).await;
        if found.is_empty() || mutation!(ScrubSkipsLabels) {
            return Vec::new();
        }
        for damaged in &found {
            damaged.disk.labels().note_lost(&lost_labels(&damaged.damage));
        }
        for _slot in 0..2 {
            found.iter().for_each(|damaged| damaged.disk.note_other_write());
            self.stamp().await;
        }
        let disks: Vec<_> = found.iter().map(|damaged| Rc::clone(&damaged.disk)).collect();
        let still = self.labels.damaged_labels(&disks).await;
        for damaged in &mut found {
            damaged.is_mended = !still.iter().any(|still| still.disk.id() == damaged.disk.id());
            let (disk, copies, is_mended) = (damaged.disk.name(), damaged.damage.len(), damaged.is_mended);
            tracing::warn!(pool = %self.identity.name, %disk, copies, is_mended, "copies of a label were damaged");
        }
        found
    }
}
