//! Devices that are to become members: looked at, wiped, and laid out.

use std::rc::Rc;

use dolmen_block_io::{BlockDevice, DeviceError, Durability, Seams, Zoning, flush, write};
use dolmen_disk::{Contents, Extent, METADATA_AT, look, wipe};
use dolmen_future_pool::pooled;
use dolmen_journal::Ring;
use dolmen_store::Area;
use dolmen_units::{Bytes, DISKS_MAX, Epoch};

use crate::error::CreateError;

pub(crate) const MEBIBYTE: u64 = 1 << 20;
/// Length of the checkpoint slots between the beginning of the metadata area and the log.
pub const CHECKPOINT_BYTES: u64 = 64 * 1024;

/// Where log and pages stand on every voter.
#[must_use]
pub fn areas(log: Bytes, pages: Bytes) -> (Ring, Area) {
    let log_at = METADATA_AT + CHECKPOINT_BYTES;
    let ring = Ring { at: log_at, length: log.0 };
    let area = Area { checkpoint_at: METADATA_AT, pages_at: log_at + log.0, pages_length: pages.0 };
    (ring, area)
}

/// The least metadata area of a voter with such a log and such pages.
pub(crate) fn metadata_needed(log: Bytes, pages: Bytes) -> Bytes {
    Bytes(CHECKPOINT_BYTES + log.0 + pages.0)
}

/// Looks at every device, and writes to none.
///
/// # Errors
/// The first reason not to make a pool of them.
#[pooled]
pub async fn check_devices(
    seams: &Seams,
    devices: &[Rc<dyn BlockDevice>],
    overwrite: &[String],
) -> Result<Vec<Extent>, CreateError> {
    if devices.is_empty() {
        return Err(CreateError::NoDisks);
    }
    if devices.len() > DISKS_MAX {
        return Err(CreateError::TooMany { found: devices.len(), limit: DISKS_MAX });
    }
    let mut extents = Vec::with_capacity(devices.len());
    for (index, device) in devices.iter().enumerate() {
        let name = device.name();
        if devices.iter().take(index).any(|other| other.name() == name) {
            return Err(CreateError::Twice { name });
        }
        extents.push(check_device(seams, device.as_ref(), overwrite.contains(&name)).await?);
    }
    Ok(extents)
}

#[pooled]
pub(crate) async fn check_device(
    seams: &Seams,
    device: &dyn BlockDevice,
    overwrite: bool,
) -> Result<Extent, CreateError> {
    let name = device.name();
    if device.geometry().zoning == Zoning::HostManaged {
        return Err(CreateError::Zoned { name });
    }
    let extent = Extent::of(device.geometry().capacity);
    let extent = extent.map_err(|source| CreateError::Extent { name: name.clone(), source })?;
    match look(seams, device).await? {
        _ if overwrite => Ok(extent),
        Contents::Empty => Ok(extent),
        Contents::Foreign(what) => Err(CreateError::Foreign { name, what }),
        Contents::Member { label, .. } => {
            Err(CreateError::Member { name, pool_name: label.pool_name.clone(), pool: label.pool })
        }
        Contents::Unusable(source) => Err(CreateError::Unusable { name, source }),
    }
}

/// Wipes old signatures and zeroes checkpoint slots and log, so that nothing of an earlier owner is taken for ours.
pub(crate) async fn prepare(seams: &Seams, device: &dyn BlockDevice, log: Bytes) -> Result<(), CreateError> {
    let token = Epoch(1);
    wipe(seams, device, token).await?;
    let failed = |source: DeviceError| CreateError::Device { name: device.name(), source };
    let mut buffer = seams.metadata.take(dolmen_buffer::FRAME_BYTES_MAX).await;
    buffer.fill(0);
    let zeros = buffer.freeze();
    let end = METADATA_AT + CHECKPOINT_BYTES + log.0;
    for at in (METADATA_AT..end).step_by(zeros.len()) {
        let length = usize::try_from((end - at).min(MEBIBYTE)).unwrap_or(0);
        write(device, token, at, zeros.slice(0..length), Durability::Cached).await.map_err(failed)?;
    }
    flush(device, token).await.map_err(failed)
}
