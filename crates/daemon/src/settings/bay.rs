//! Bays that people name, so that whoever stands before the machine finds the disk that is meant (docs/design/0022).

use dolmen_api::{ErrorBody, ErrorCode, SetDisk};
use dolmen_pool::Disk;
use dolmen_units::DiskId;

use crate::answer::Answer;
use crate::open_pool::OpenPool;

const _: () =
    assert!(SetDisk::BAY_BYTES_MAX == dolmen_pool::BAY_BYTES_MAX, "what is taken can be put on record");

impl OpenPool {
    /// What people call the bay of a disk.
    pub(crate) fn bay_of(&self, disk: DiskId) -> Option<String> {
        self.bays.borrow().get(&disk).cloned()
    }

    /// What people call a disk that they may have to take in hand.
    pub(crate) fn called(&self, disk: &Disk) -> String {
        match self.bay_of(disk.id()) {
            Some(bay) => format!("{} (bay {bay})", disk.name()),
            None => disk.name(),
        }
    }

    /// Takes over what is on record. Where it cannot be read, the pool has more to worry about.
    pub(crate) async fn recall_bays(&self) {
        match self.spaces.pool().settings().bays().await {
            Ok(bays) => drop(self.bays.replace(bays)),
            Err(error) => tracing::warn!(pool = self.name(), %error, "the names of bays cannot be read"),
        }
    }
}

pub(super) fn recorded(disk: &Disk, bay: &str, verb: &str) -> String {
    match bay {
        "" => format!("no bay {verb} recorded for {}", disk.name()),
        bay => format!("{} {verb} recorded in bay {bay}", disk.name()),
    }
}

pub(super) fn check(bay: &str) -> Answer<()> {
    let max = SetDisk::BAY_BYTES_MAX;
    if bay.len() <= max && !bay.chars().any(|one| one.is_control() || one == '\'') {
        return Ok(());
    }
    let message = "the name of that bay is too long, or no line of text; nothing was changed";
    Err(ErrorBody::new(ErrorCode::BadName, message)
        .hint(format!("up to {max} bytes, without control characters and single quotes")))
}
