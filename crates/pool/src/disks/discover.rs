//! Discovery: which pools are on a set of devices. Only looks.

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{BlockDevice, Seams};
use dolmen_disk::{Contents, Label, LabelError, LabelIoError, look};
use dolmen_epoch::Owner;
use dolmen_future_pool::pooled;
use dolmen_units::{HostId, Name, PoolId};

/// A device that says it belongs to a pool.
#[derive(Clone)]
pub struct Candidate {
    /// The device.
    pub device: Rc<dyn BlockDevice>,
    /// What it says.
    pub label: Label,
    /// Where a label stood that something else was written over.
    pub lost_labels: Vec<u64>,
}

/// Where labels stood that something else was written over, of all that is the matter with a device's labels.
pub(crate) fn lost_labels(damage: &[LabelError]) -> Vec<u64> {
    let place = |error: &LabelError| if let LabelError::Lost { at } = error { Some(*at) } else { None };
    damage.iter().filter_map(place).collect()
}

/// Which host a pool belongs to, by the newest label of these: none behind an export, or where there is no label.
#[must_use]
pub fn owner_of(candidates: &[Candidate]) -> Option<HostId> {
    let newest =
        candidates.iter().map(|candidate| &candidate.label.base.epoch).max_by_key(|epoch| epoch.number())?;
    match newest.owner() {
        Owner::Host(host) => Some(host),
        Owner::Exported => None,
    }
}

/// Returns the name of a pool, by the label of a voter of the newest epoch here. A disk that was absent when the pool was renamed
/// has the name of before. Where no voter is here, another disk that knows that epoch counts.
#[must_use]
pub fn name_of(candidates: &[Candidate]) -> Option<&Name> {
    let newest = candidates.iter().max_by_key(|candidate| {
        let epoch = &candidate.label.base.epoch;
        (epoch.number(), epoch.voters().contains(&candidate.label.disk))
    });
    newest.map(|candidate| &candidate.label.pool_name)
}

/// What was found on a set of devices.
#[derive(Default)]
pub struct Found {
    /// Pools, each with the devices that belong to it.
    pub pools: BTreeMap<PoolId, Vec<Candidate>>,
    /// Devices with labels that cannot be used, and why.
    pub unusable: Vec<(String, LabelError)>,
    /// Devices that could not be read.
    pub unreadable: Vec<LabelIoError>,
}

/// Looks at all devices at once: one after another, hundreds of disks that seek would take many seconds.
#[pooled]
pub async fn discover(seams: &Seams, devices: &[Rc<dyn BlockDevice>]) -> Found {
    let mut found = Found::default();
    let looks = join_all(devices.iter().map(|device| look(seams, device.as_ref()))).await;
    for (device, looked) in devices.iter().zip(looks) {
        match looked {
            Ok(Contents::Member { label, damage, .. }) => {
                let lost_labels = lost_labels(&damage);
                for error in damage {
                    tracing::warn!(disk = %device.name(), %error, "a copy of the label is damaged");
                }
                let candidate = Candidate { device: Rc::clone(device), label: *label, lost_labels };
                found.pools.entry(candidate.label.pool).or_default().push(candidate);
            }
            Ok(Contents::Unusable(error)) => found.unusable.push((device.name(), error)),
            Ok(Contents::Empty | Contents::Foreign(_)) => {}
            Err(error) => found.unreadable.push(error),
        }
    }
    found
}
