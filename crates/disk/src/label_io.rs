//! Labels on devices: looking, writing, wiping.

use std::time::Duration;

use dolmen_block_io::{BlockDevice, DeviceError, Durability, Seams, flush, read, within, write};
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_units::{Bytes, Epoch};

use crate::extent::{BACK_SEARCH_BYTES, Extent, FRONT_AT, METADATA_AT, SLOT_BYTES, back_at};
use crate::foreign::{Foreign, PROBE_BYTES, signature_of};
use crate::label::{Label, LabelError};

const MEBIBYTE: u64 = 1 << 20;

/// What a device holds.
#[derive(Debug)]
pub enum Contents {
    /// Zeros wherever somebody would have left a mark.
    Empty,
    /// Data of somebody else.
    Foreign(Foreign),
    /// A member of a pool. `copies` of `expected` labels were sound.
    Member {
        /// The newest sound label.
        label: Box<Label>,
        /// Sound copies of it.
        copies: usize,
        /// What was wrong with the others, if anything.
        damage: Vec<LabelError>,
    },
    /// Labels were there, and none of them can be used.
    Unusable(LabelError),
}

/// A label that could not be read from or written to its device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{doing} of {device} at byte {at} failed")]
pub struct LabelIoError {
    /// Which device.
    pub device: String,
    /// What was tried.
    pub doing: &'static str,
    /// Where.
    pub at: u64,
    /// Why it failed.
    pub source: DeviceError,
}

fn failure(
    device: &dyn BlockDevice,
    doing: &'static str,
    at: u64,
) -> impl FnOnce(DeviceError) -> LabelIoError {
    let device = device.name();
    move |source| LabelIoError { device, doing, at, source }
}

async fn read_bytes(
    seams: &Seams,
    device: &dyn BlockDevice,
    at: u64,
    length: u64,
) -> Result<Vec<u8>, LabelIoError> {
    let length = usize::try_from(length).unwrap_or(0);
    let buffer = seams.metadata.take(length).await;
    // Reading is never fenced: a label is looked at before anybody knows an epoch.
    let (buffer, result) = read(device, Epoch(u64::MAX), at, buffer).await;
    result.map_err(failure(device, "reading the label", at))?;
    Ok(buffer.to_vec())
}

/// How long a device may take to say what it holds: the slowest disks need half of it to start spinning.
pub const LOOK_TIMEOUT: Duration = Duration::from_secs(40);

/// Finds out what a device holds, without writing to it.
///
/// # Errors
/// When not even one end of the device can be read, or it does not answer for [`LOOK_TIMEOUT`].
#[pooled]
pub async fn look(seams: &Seams, device: &dyn BlockDevice) -> Result<Contents, LabelIoError> {
    let end = seams.clock.now() + LOOK_TIMEOUT;
    match within(&*seams.clock, end, look_closely(seams, device)).await {
        Some(looked) => looked,
        None => Err(failure(device, "looking for a label", 0)(DeviceError::TimedOut)),
    }
}

#[pooled]
async fn look_closely(seams: &Seams, device: &dyn BlockDevice) -> Result<Contents, LabelIoError> {
    // A device of an odd number of 512-byte sectors: the last half block is nobody's.
    let capacity = device.geometry().capacity.align_down(4096);
    if capacity == Bytes::ZERO {
        // Shorter than a block, which is the least that can be read: there is no place for anything of anybody.
        return Ok(Contents::Empty);
    }
    if capacity.0 < METADATA_AT + BACK_SEARCH_BYTES {
        return look_at_all(seams, device, capacity).await;
    }
    let mut found = Found::default();
    let mut first_error = None;
    let back = back_at(capacity);
    for slot in [0, SLOT_BYTES] {
        let ends = [FRONT_AT + slot, back + slot];
        let mut is = [LabelArea::Something; 2];
        for (is, at) in is.iter_mut().zip(ends) {
            match found.slot(seams, device, at).await {
                Ok(found) => *is = found,
                Err(error) => drop(first_error.get_or_insert(error)),
            }
        }
        let [front, after] = is;
        for ((is, other), at) in [(front, after), (after, front)].into_iter().zip(ends) {
            found.lost.extend(is.is_lost_by_its_pair(other).map(|unless_newest| (at, unless_newest)));
        }
    }
    if found.newest.is_none() {
        // A device that lost or gained megabytes has its back labels elsewhere, and a front that nobody can read.
        let start = Bytes(capacity.0 - BACK_SEARCH_BYTES).align_up(MEBIBYTE).0;
        let borders = (start / MEBIBYTE..back / MEBIBYTE)
            .flat_map(|border| [border * MEBIBYTE, border * MEBIBYTE + SLOT_BYTES]);
        for at in borders {
            let _ = found.slot(seams, device, at).await;
        }
    }
    found.look_where_it_ended(seams, device, back).await;
    if let Some(label) = found.newest {
        let copies = found.copies;
        // Of a device that lost or gained megabytes, the labels at the end lie elsewhere, and none is lost.
        let is_as_long = label.extent.capacity.0.abs_diff(capacity.0) < MEBIBYTE;
        let mut damage = found.damage;
        let newest = Some(label.sequence);
        let lost = found.lost.into_iter().filter(|(_, cut_short)| is_as_long && *cut_short != newest);
        damage.extend(lost.map(|(at, _)| LabelError::Lost { at }));
        return Ok(Contents::Member { label: Box::new(label), copies, damage });
    }
    // A label of another version says more than one that is damaged: what to do about the disk.
    let is_of_another =
        |error: &LabelError| matches!(error, LabelError::Version { .. } | LabelError::OldFormat { .. });
    let mut damage = found.damage;
    damage.sort_by_key(|error| !is_of_another(error));
    if let Some(error) = damage.into_iter().next() {
        return Ok(Contents::Unusable(error));
    }
    if let Some(error) = first_error {
        return Err(error);
    }
    let front = read_bytes(seams, device, 0, PROBE_BYTES).await?;
    let tail_at = capacity.0 - PROBE_BYTES;
    let tail = read_bytes(seams, device, tail_at, PROBE_BYTES).await?;
    Ok(signature_of(&front, &tail, capacity).map_or(Contents::Empty, Contents::Foreign))
}

/// Reads every byte of a device that is too small to be a member: what its ends show has a name, and a first mebibyte
/// of zeros says nothing of what follows.
#[pooled]
async fn look_at_all(
    seams: &Seams,
    device: &dyn BlockDevice,
    capacity: Bytes,
) -> Result<Contents, LabelIoError> {
    let length = capacity.0.min(PROBE_BYTES);
    let front = read_bytes(seams, device, 0, length).await?;
    let tail = read_bytes(seams, device, capacity.0 - length, length).await?;
    if let Some(known @ Foreign::Known { .. }) = signature_of(&front, &tail, capacity) {
        return Ok(Contents::Foreign(known));
    }
    let mut at = 0;
    while at < capacity.0 {
        let piece = read_bytes(seams, device, at, PROBE_BYTES.min(capacity.0 - at)).await?;
        if let Some(index) = piece.iter().position(|byte| *byte != 0) {
            return Ok(Contents::Foreign(Foreign::Unknown { at: at + index as u64 }));
        }
        at += piece.len() as u64;
    }
    Ok(Contents::Empty)
}

#[derive(Default)]
struct Found {
    newest: Option<Label>,
    copies: usize,
    damage: Vec<LabelError>,
    /// Places where nothing stands that looks like a label, and one was; unless the label of this number is the newest.
    lost: Vec<(u64, Option<u64>)>,
}

/// What stands where a label may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LabelArea {
    /// The label of this number.
    Label(u64),
    /// What looks like one, or cannot be read.
    Something,
    /// Zeros.
    Zeros,
    /// Something else.
    Other,
}

impl LabelArea {
    /// Whether a label was here, by what stands at the other end: both are written at once, so where one is there, the other was.
    /// What is zeros may never have been written, if whoever wrote the newest label was cut short: it is lost unless the label of
    /// that number is the newest.
    fn is_lost_by_its_pair(self, other: Self) -> Option<Option<u64>> {
        match (self, other) {
            (Self::Zeros, Self::Label(sequence)) => Some(Some(sequence)),
            (Self::Zeros, Self::Something) | (Self::Other, Self::Label(_) | Self::Something) => Some(None),
            (Self::Zeros | Self::Other, Self::Zeros | Self::Other)
            | (Self::Label(_) | Self::Something, _) => None,
        }
    }
}

impl Found {
    /// What stands there.
    async fn slot(
        &mut self,
        seams: &Seams,
        device: &dyn BlockDevice,
        at: u64,
    ) -> Result<LabelArea, LabelIoError> {
        let bytes = read_bytes(seams, device, at, SLOT_BYTES).await?;
        match Label::parse(&bytes, at) {
            Ok(label) => {
                let sequence = label.sequence;
                self.take(label);
                Ok(LabelArea::Label(sequence))
            }
            Err(LabelError::Absent) if bytes.iter().all(|byte| *byte == 0) => Ok(LabelArea::Zeros),
            Err(LabelError::Absent) => Ok(LabelArea::Other),
            Err(error) => {
                self.damage.push(error);
                Ok(LabelArea::Something)
            }
        }
    }

    /// Looks where the labels at the end of a device are that has grown since they were written. A label in front that was torn
    /// leaves the one before it there, and the newest at that place.
    async fn look_where_it_ended(&mut self, seams: &Seams, device: &dyn BlockDevice, looked_at: u64) {
        let Some((disk, back)) =
            self.newest.as_ref().map(|label| (label.disk, back_at(label.extent.capacity)))
        else {
            return;
        };
        if back >= looked_at || mutation!(OldEndNotLookedAt) {
            return;
        }
        for at in [back, back + SLOT_BYTES] {
            let Ok(bytes) = read_bytes(seams, device, at, SLOT_BYTES).await else { continue };
            match Label::parse(&bytes, at) {
                Ok(label) if label.disk == disk => self.take(label),
                Ok(_) | Err(LabelError::Absent) => {}
                Err(error) => self.damage.push(error),
            }
        }
    }

    fn take(&mut self, label: Label) {
        match self.newest.as_ref().map(|newest| newest.sequence.cmp(&label.sequence)) {
            Some(std::cmp::Ordering::Greater) => {}
            Some(std::cmp::Ordering::Equal) => self.copies += 1,
            Some(std::cmp::Ordering::Less) | None => {
                self.newest = Some(label);
                self.copies = 1;
            }
        }
    }
}

/// Writes a label to its slot at both ends, and makes it durable. The caller has counted `sequence` up.
///
/// # Errors
/// When either end fails: a disk that cannot keep its label is not to be trusted with data.
#[pooled]
pub async fn write_label(
    seams: &Seams,
    device: &dyn BlockDevice,
    token: Epoch,
    label: &Label,
) -> Result<(), LabelIoError> {
    write_both_ends(seams, device, token, label, Durability::Cached).await?;
    let at = FRONT_AT + slot_of(label);
    flush(device, token).await.map_err(failure(device, "flushing the label", at))
}

/// Writes a label as [`write_label`] does, durably by itself: what else rests in the device's cache may stay there. For one
/// that says of epochs what the one before it says.
///
/// # Errors
/// As there.
#[pooled]
pub async fn renew_label(
    seams: &Seams,
    device: &dyn BlockDevice,
    token: Epoch,
    label: &Label,
) -> Result<(), LabelIoError> {
    write_both_ends(seams, device, token, label, Durability::Durable).await
}

/// Writes zeros where the labels at the end of a device of this cut stand, and makes them durable: for a device that has grown,
/// before a label says so, and where its end was, afterwards.
///
/// # Errors
/// When the device cannot be written there.
#[pooled]
pub async fn clear_back_labels(
    seams: &Seams,
    device: &dyn BlockDevice,
    token: Epoch,
    extent: &Extent,
) -> Result<(), LabelIoError> {
    let back = back_at(extent.capacity);
    for at in [back, back + SLOT_BYTES] {
        let mut buffer = seams.metadata.take(usize::try_from(SLOT_BYTES).unwrap_or(0)).await;
        buffer.fill(0);
        let written = write(device, token, at, buffer.freeze(), Durability::Cached).await;
        written.map_err(failure(device, "clearing the place of a label", at))?;
    }
    flush(device, token).await.map_err(failure(device, "flushing the place of a label", back))
}

/// The slot at either end in which a label stands.
fn slot_of(label: &Label) -> u64 {
    (label.sequence % 2) * SLOT_BYTES
}

async fn write_both_ends(
    seams: &Seams,
    device: &dyn BlockDevice,
    token: Epoch,
    label: &Label,
    durability: Durability,
) -> Result<(), LabelIoError> {
    let slot = slot_of(label);
    for at in [FRONT_AT + slot, back_at(label.extent.capacity) + slot] {
        let bytes = label.encode(at);
        let end = device.geometry().capacity.0;
        if at + bytes.len() as u64 > end {
            // The device lost its last megabytes since it was claimed: the front labels have to do.
            continue;
        }
        let mut buffer = seams.metadata.take(bytes.len()).await;
        buffer.copy_in(&bytes);
        let written = write(device, token, at, buffer.freeze(), durability).await;
        written.map_err(failure(device, "writing the label", at))?;
    }
    Ok(())
}

/// Overwrites with zeros what is in front of the metadata and the last megabytes: every signature of whoever had the
/// device before, and every older label.
///
/// # Errors
/// When the device cannot be written.
#[pooled]
pub async fn wipe(seams: &Seams, device: &dyn BlockDevice, token: Epoch) -> Result<(), LabelIoError> {
    let capacity = device.geometry().capacity;
    let tail = Bytes(capacity.0.saturating_sub(2 * MEBIBYTE)).align_down(MEBIBYTE).0;
    let mut buffer = seams.metadata.take(64 * 1024).await;
    buffer.fill(0);
    let zeros = buffer.freeze();
    let step = zeros.len() as u64;
    let front = (0..METADATA_AT).step_by(zeros.len());
    let back = (tail..capacity.0).step_by(zeros.len());
    for at in front.chain(back) {
        let logical = u64::from(device.geometry().logical_block_bytes);
        let length = Bytes(step.min(capacity.0 - at)).align_down(logical).0;
        if length == 0 {
            continue;
        }
        let part = zeros.slice(0..usize::try_from(length).unwrap_or(0));
        write(device, token, at, part, Durability::Cached).await.map_err(failure(device, "wiping", at))?;
    }
    flush(device, token).await.map_err(failure(device, "flushing after wiping", 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever writes the newest label may be cut short between the ends. What stood there before it is lost, and so is what has
    /// something else in its place.
    #[test]
    fn a_label_that_was_never_written_is_none_that_was_lost() {
        let newest = 7;
        let is_lost = |is: LabelArea, other: LabelArea| {
            is.is_lost_by_its_pair(other).is_some_and(|unless_newest| unless_newest != Some(newest))
        };
        assert!(!is_lost(LabelArea::Zeros, LabelArea::Label(newest)), "cut short");
        assert!(is_lost(LabelArea::Zeros, LabelArea::Label(newest - 1)), "that one was written at both ends");
        assert!(is_lost(LabelArea::Other, LabelArea::Label(newest)), "somebody has written there");
        assert!(
            is_lost(LabelArea::Zeros, LabelArea::Something)
                && is_lost(LabelArea::Other, LabelArea::Something)
        );
        assert!(!is_lost(LabelArea::Zeros, LabelArea::Zeros) && !is_lost(LabelArea::Other, LabelArea::Zeros));
        assert!(
            !is_lost(LabelArea::Label(newest), LabelArea::Zeros)
                && !is_lost(LabelArea::Something, LabelArea::Other)
        );
    }
}
