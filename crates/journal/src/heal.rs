//! Making copies equal: every copy to the union after a crash, a new voter to the others while the log runs.

use dolmen_block_io::sync::join_all;
use dolmen_block_io::{self as block_io, DeviceError, Durability, Seams};
use dolmen_buffer::{FRAME_BYTES_MAX, Shared};
use dolmen_future_pool::pooled;
use dolmen_units::{DiskId, Epoch, Lsn};

use crate::format::{self, BatchHeader};
use crate::recover::{Recovered, Sighting};
use crate::ring::Ring;
use crate::state::Live;
use crate::{CopyFailure, LogCopy, list};

/// What healing wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Healed {
    /// Batches that some copy lacked, counted once for each copy.
    pub batches: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Copies that could not be brought to the union. The others were.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the log could not be completed on every disk: {}; leave these disks out and recover again",
    list(failures)
)]
pub struct HealError {
    /// Which ones, and why.
    pub failures: Vec<CopyFailure>,
}

/// Why a new copy could not be given the live log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The new copy failed.
    #[error("the log could not be copied to disk {disk}: {error}")]
    Target {
        /// Which disk.
        disk: DiskId,
        /// Why.
        #[source]
        error: DeviceError,
    },
    /// No copy gave a live batch as it was written.
    #[error("{lsn} can be read from no copy of the log, so disk {disk} cannot be given it")]
    Source {
        /// Which batch.
        lsn: Lsn,
        /// The disk that was to have it.
        disk: DiskId,
    },
}

impl Recovered {
    /// Writes to each copy the batches that it lacks and flushes it, all copies side by side. Afterwards every batch
    /// of the union is durable on every copy, byte for byte the same.
    ///
    /// # Errors
    /// The copies that failed. Nothing may be served from the recovered log with one of them as a voter.
    #[pooled]
    pub async fn heal(&self) -> Result<Healed, HealError> {
        let results =
            join_all(self.copies.iter().zip(0..).map(|(copy, number)| self.heal_copy(copy, number))).await;
        let mut healed = Healed::default();
        let mut failures = Vec::new();
        for (result, copy) in results.into_iter().zip(&self.copies) {
            match result {
                Ok(part) => {
                    healed.batches += part.batches;
                    healed.bytes += part.bytes;
                }
                Err(error) => failures.push(CopyFailure { disk: copy.disk, error }),
            }
        }
        if failures.is_empty() { Ok(healed) } else { Err(HealError { failures }) }
    }

    #[pooled]
    async fn heal_copy(&self, copy: &LogCopy, number: u32) -> Result<Healed, DeviceError> {
        let lacked = |sighting: &&Sighting| sighting.present & (1 << number) == 0;
        let lacking: Vec<&Sighting> = self.batches.iter().filter(lacked).collect();
        let mut healed = Healed::default();
        for group in groups(self.ring, &lacking, |sighting| {
            (sighting.batch.header.position, u64::from(sighting.batch.header.length))
        }) {
            let length: usize = group.iter().map(|sighting| sighting.batch.bytes().len()).sum();
            let Some(first) = group.first() else { continue };
            let mut buffer = self.seams.metadata.take(length).await;
            let mut rest: &mut [u8] = &mut buffer;
            for sighting in group {
                let (now, later) = rest.split_at_mut(sighting.batch.bytes().len());
                now.copy_from_slice(sighting.batch.bytes());
                rest = later;
            }
            let at = self.ring.address(first.batch.header.position);
            let device = copy.device.as_ref();
            block_io::write(device, self.token, at, buffer.freeze(), Durability::Cached).await?;
            healed.batches += group.len() as u64;
            healed.bytes += length as u64;
        }
        block_io::flush(copy.device.as_ref(), self.token).await?;
        Ok(healed)
    }
}

/// Cuts batches, given in order, into runs that stand one behind the other on disk and fit into one buffer.
fn groups<T>(ring: Ring, batches: &[T], place: impl Fn(&T) -> (u64, u64)) -> Vec<&[T]> {
    let mut groups = Vec::new();
    let (mut start, mut end, mut expected, mut length) = (0, 0, None, 0);
    for batch in batches {
        let (position, batch_length) = place(batch);
        let joins = expected == Some(position)
            && !position.is_multiple_of(ring.length)
            && length + batch_length <= FRAME_BYTES_MAX as u64;
        if !joins && end > start {
            groups.extend(batches.get(start..end));
            start = end;
            length = 0;
        }
        end += 1;
        length += batch_length;
        expected = Some(position + batch_length);
    }
    if end > start {
        groups.extend(batches.get(start..end));
    }
    groups
}

/// A copy of the live log onto one disk.
pub(crate) struct Transfer<'a> {
    pub(crate) seams: &'a Seams,
    pub(crate) token: Epoch,
    pub(crate) ring: Ring,
    pub(crate) sources: Vec<LogCopy>,
    pub(crate) target: &'a LogCopy,
}

impl Transfer<'_> {
    /// Copies `live`, then `under_way`, which no disk may have yet, then flushes.
    #[pooled]
    pub(crate) async fn run(&self, live: &[Live], under_way: Option<(u64, Shared)>) -> Result<(), CopyError> {
        for group in groups(self.ring, live, |live| (live.position, u64::from(live.length))) {
            if self.copy(group).await? {
                continue;
            }
            // Some batch of the group is bad on every copy that could be asked for the whole group; different
            // batches may be good on different copies.
            for single in group.windows(1) {
                if !self.copy(single).await? {
                    let lsn = single.first().map_or(Lsn(0), |live| live.lsn);
                    return Err(CopyError::Source { lsn, disk: self.target.disk });
                }
            }
        }
        let device = self.target.device.as_ref();
        if let Some((position, bytes)) = under_way {
            let at = self.ring.address(position);
            self.done(block_io::write(device, self.token, at, bytes, Durability::Cached).await)?;
        }
        self.done(block_io::flush(device, self.token).await)
    }

    fn done(&self, result: Result<(), DeviceError>) -> Result<(), CopyError> {
        result.map_err(|error| CopyError::Target { disk: self.target.disk, error })
    }

    /// Copies a group from the first source that gives all of it as it was written; says whether there was one.
    #[pooled]
    async fn copy(&self, group: &[Live]) -> Result<bool, CopyError> {
        let Some(first) = group.first() else { return Ok(true) };
        let at = self.ring.address(first.position);
        let length: usize = group.iter().map(|live| format::size(live.length)).sum();
        for source in &self.sources {
            let into = self.seams.metadata.take(length).await;
            let (mut buffer, result) = block_io::read(source.device.as_ref(), self.token, at, into).await;
            if result.is_err() || !are_as_written(&mut buffer, group) {
                continue;
            }
            let device = self.target.device.as_ref();
            self.done(block_io::write(device, self.token, at, buffer.freeze(), Durability::Cached).await)?;
            return Ok(true);
        }
        Ok(false)
    }
}

/// Whether each batch in `bytes` carries the checksum that it was written with, and matches it.
fn are_as_written(bytes: &mut [u8], group: &[Live]) -> bool {
    let mut rest = bytes;
    for live in group {
        let Some((now, later)) = rest.split_at_mut_checked(format::size(live.length)) else { return false };
        let stored = BatchHeader::stored_checksum(now);
        if stored != Some(live.checksum) || format::checksum(now) != live.checksum {
            return false;
        }
        rest = later;
    }
    true
}
