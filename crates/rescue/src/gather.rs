//! Which devices are of which pool: by their labels, and of those without any by what else stands on them.

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Seams, read};
use dolmen_causes::in_one_line;
use dolmen_disk::{Contents, Extent, Label, METADATA_AT, look};
use dolmen_epoch::EpochRecord;
use dolmen_future_pool::pooled;
use dolmen_pool::Candidate;
use dolmen_store::{CHECKPOINT_BLOCK_BYTES, CheckpointBlock};
use dolmen_units::{DiskId, Epoch, PoolId};

use crate::error::RescueError;

/// Something that holds for all of an answer, and that whoever reads it has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note(pub String);

/// What a device holds, as far as its ends tell.
pub(crate) struct Looked {
    pub(crate) device: Rc<dyn BlockDevice>,
    pub(crate) contents: Result<Contents, String>,
}

impl Looked {
    /// Its label, if it has a sound one.
    pub(crate) fn label(&self) -> Option<&Label> {
        match &self.contents {
            Ok(Contents::Member { label, .. }) => Some(label),
            Ok(Contents::Empty | Contents::Foreign(_) | Contents::Unusable(_)) | Err(_) => None,
        }
    }
}

/// Looks at the labels of all devices.
pub(crate) async fn look_at(seams: &Seams, devices: &[Rc<dyn BlockDevice>]) -> Vec<Looked> {
    let mut looked = Vec::with_capacity(devices.len());
    for device in devices {
        let contents = look(seams, device.as_ref()).await.map_err(|error| in_one_line(&error));
        looked.push(Looked { device: Rc::clone(device), contents });
    }
    looked
}

/// The pool that is meant, of those that are there. `wanted` is a name or an id.
pub(crate) fn choose(
    pools: &BTreeMap<PoolId, Option<String>>,
    wanted: Option<&str>,
) -> Result<Option<PoolId>, RescueError> {
    let Some(wanted) = wanted else {
        let several = || pools.iter().map(|(id, name)| (*id, name.clone())).collect();
        return match pools.len() {
            0 | 1 => Ok(pools.keys().next().copied()),
            _ => Err(RescueError::SeveralPools { pools: several() }),
        };
    };
    let is_meant = |(id, name): &(&PoolId, &Option<String>)| {
        name.as_deref() == Some(wanted) || id.to_string() == wanted || id.short() == wanted
    };
    let mut found = pools.iter().filter(is_meant);
    match (found.next(), found.next()) {
        (None, _) => Err(RescueError::NoSuchPool { wanted: wanted.to_owned() }),
        (Some((id, _)), None) => Ok(Some(*id)),
        (Some(first), Some(second)) => {
            let pools = [first, second].map(|(id, name)| (*id, name.clone())).to_vec();
            Err(RescueError::SeveralPools { pools })
        }
    }
}

/// The pools that labels name.
pub(crate) fn pools_of(looked: &[Looked]) -> BTreeMap<PoolId, Option<String>> {
    let labels = looked.iter().filter_map(Looked::label);
    labels.map(|label| (label.pool, Some(label.pool_name.to_string()))).collect()
}

/// The disks of a pool, and the epoch that counts.
pub(crate) struct Gathered {
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) notes: Vec<Note>,
}

impl Gathered {
    /// The newest epoch that any label calls one that was in force.
    pub(crate) fn newest(&self) -> Option<&EpochRecord> {
        let epochs = self.candidates.iter().map(|candidate| &candidate.label.base.epoch);
        epochs.max_by_key(|epoch| epoch.id())
    }

    /// Voters of that epoch that know it: on these are map and log.
    pub(crate) fn sources(&self) -> Vec<&Candidate> {
        let Some(newest) = self.newest() else { return Vec::new() };
        let knows = |candidate: &&Candidate| {
            candidate.label.base.epoch.id() == newest.id() && newest.voters().contains(&candidate.label.disk)
        };
        self.candidates.iter().filter(knows).collect()
    }
}

/// The disks of one pool among those looked at: those with labels, and those that are members by what else they hold.
#[pooled]
pub(crate) async fn gather(
    seams: &Seams,
    looked: &[Looked],
    wanted: Option<&str>,
) -> Result<Gathered, RescueError> {
    let none = || RescueError::Nothing {
        count: looked.len(),
        what: "a label of a pool that can be used",
        advice: "name all disks of the pool, or try --from-slabs",
    };
    let pool = choose(&pools_of(looked), wanted)?.ok_or_else(none)?;
    let labelled =
        looked.iter().filter_map(|one| Some((one, one.label().filter(|label| label.pool == pool)?)));
    let mut gathered = Gathered { candidates: Vec::new(), notes: Vec::new() };
    for (one, label) in labelled {
        let device = Rc::clone(&one.device);
        if let Some(other) = gathered.candidates.iter().find(|other| other.label.disk == label.disk) {
            let (first, second) = (other.device.name(), device.name());
            return Err(RescueError::Twice { first, second, disk: label.disk.to_string() });
        }
        gathered.candidates.push(Candidate { device, label: label.clone(), lost_labels: Vec::new() });
    }
    for one in looked.iter().filter(|one| one.label().is_none()) {
        adopt(seams, one, pool, &mut gathered).await;
    }
    Ok(gathered)
}

/// Takes a disk without a label for the member that its checkpoint block names, if the newest label at hand lists that one as
/// taking part. What it would have missed otherwise would stand in its place as if it were new.
#[pooled]
async fn adopt(seams: &Seams, one: &Looked, pool: PoolId, gathered: &mut Gathered) {
    let Some(disk) = disk_of_checkpoint(seams, one.device.as_ref(), pool).await else { return };
    let name = one.device.name();
    if gathered.candidates.iter().any(|candidate| candidate.label.disk == disk) {
        gathered
            .notes
            .push(Note(format!("{name} has no label, and is a copy of another disk here; it is left out")));
        return;
    }
    let newest = gathered.candidates.iter().max_by_key(|candidate| candidate.label.base.epoch.id());
    let Some(newest) = newest.map(|candidate| candidate.label.clone()) else { return };
    let member = newest.base.members.iter().find(|member| member.disk == disk);
    let extent = member.and_then(|member| Extent::of(member.capacity).ok());
    let (Some(member), Some(extent)) = (member, extent) else { return };
    let fits = extent.fits(one.device.geometry().capacity).is_ok();
    if member.left != Epoch(0) || !fits {
        gathered.notes.push(Note(format!(
            "{name} has no label that can be used; by its checkpoint it is {} ({disk}), which had left or is longer; it is left out",
            member.slot
        )));
        return;
    }
    gathered.notes.push(Note(format!(
        "{name} has no label that can be used; by its checkpoint it is {} ({disk}), and is taken for that",
        member.slot
    )));
    // How old it is, nothing tells: the label that would have is gone.
    let sequence = member.sequence.max(newest.sequence);
    let label = Label { disk, extent, sequence, pending: None, ..newest };
    gathered.candidates.push(Candidate { device: Rc::clone(&one.device), label, lost_labels: Vec::new() });
}

/// The disk that the checkpoint blocks of a device name.
async fn disk_of_checkpoint(seams: &Seams, device: &dyn BlockDevice, pool: PoolId) -> Option<DiskId> {
    for slot in 0..2 {
        let at = METADATA_AT + slot * CHECKPOINT_BLOCK_BYTES as u64;
        let Some(bytes) = read_bytes(seams, device, at, CHECKPOINT_BLOCK_BYTES).await else { continue };
        match CheckpointBlock::parse(&bytes) {
            Ok(block) if block.pool == pool && block.at == at => return Some(block.disk),
            Ok(_) | Err(_) => {}
        }
    }
    None
}

/// Bytes of a device; `None` where it does not give them.
pub(crate) async fn read_bytes(
    seams: &Seams,
    device: &dyn BlockDevice,
    at: u64,
    length: usize,
) -> Option<Vec<u8>> {
    let end = at.checked_add(length as u64)?;
    if length == 0 || end > device.geometry().capacity.0 {
        return None;
    }
    let buffer = seams.metadata.take(length).await;
    let (buffer, result) = read(device, Epoch(u64::MAX), at, buffer).await;
    result.ok()?;
    Some(buffer.to_vec())
}
