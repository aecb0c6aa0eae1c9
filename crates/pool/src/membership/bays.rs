//! What people call the bays of disks; it stands in the map, and decides nothing.
//!
//! A record names its disk beside the slot: the number of a disk that has left is given to a later one, which is in another bay.

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_future_pool::pooled;
use dolmen_units::{DISKS_MAX, DiskId};

use crate::disks::disk::Disk;
use crate::error::PoolError;
use crate::keys;
use crate::membership::settings::PoolSettings;
use crate::metadata::map::Purpose;

/// The number of the setting, in its key of the map.
const BAY: u64 = 1;
/// The longest name of a bay, in bytes.
pub const BAY_BYTES_MAX: usize = 64;

/// The disk and its bay, as they stand there; nothing of what makes no sense, or names another disk.
fn parse(value: &[u8]) -> Option<(DiskId, String)> {
    let (id, bay) = value.split_first_chunk::<16>()?;
    let is_fit = !bay.is_empty() && bay.len() <= BAY_BYTES_MAX;
    let bay = std::str::from_utf8(bay).ok().filter(|_| is_fit)?;
    (!bay.chars().any(char::is_control)).then(|| (DiskId(*id), bay.to_owned()))
}

impl PoolSettings {
    /// The bays of the members that have one.
    ///
    /// # Errors
    /// [`PoolError`] when the map cannot be read.
    #[pooled]
    pub async fn bays(&self) -> Result<BTreeMap<DiskId, String>, PoolError> {
        let found = self.map.scan(keys::disk_settings(BAY), DISKS_MAX).await?;
        let named = found.iter().filter_map(|(_, value)| parse(value));
        let is_member = |id: &DiskId| self.members.disks().iter().any(|disk| disk.id() == *id);
        Ok(named.filter(|(id, _)| is_member(id)).collect())
    }

    /// Names the bay of a disk, in one line of text; an empty name is none.
    ///
    /// # Errors
    /// What the pool says when it cannot be written.
    #[pooled]
    pub async fn set_bay(self: &Rc<Self>, disk: &Disk, bay: &str) -> Result<(), PoolError> {
        let key = keys::disk_setting(BAY, disk.slot());
        let mut change = self.changes.begin(Purpose::Release).await;
        if bay.is_empty() {
            change.delete(key);
        } else {
            change.put(key, [disk.id().0.as_slice(), bay.as_bytes()].concat());
        }
        change.commit().await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_bay_reads_back_and_nonsense_is_none() {
        let record = |bay: &[u8]| [&[7; 16], bay].concat();
        assert_eq!(parse(&record("r 3 ü".as_bytes())), Some((DiskId([7; 16]), "r 3 ü".to_owned())));
        let long = [b'x'; BAY_BYTES_MAX + 1];
        for bad in [&b""[..], b"\xff", b"a\nb", &long] {
            assert_eq!(parse(&record(bad)), None, "{bad:?}");
        }
        assert_eq!(parse(&[7; 15]), None);
    }
}
