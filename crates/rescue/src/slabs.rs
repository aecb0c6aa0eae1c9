//! Reading a whole disk for what stands on it by itself: headers of slabs, and pages of maps that name spaces.
//!
//! A header may stand anywhere, so every block is looked at. Content of spaces may look like one: an image of a disk that lies
//! in a space. Such a header is at another address than the one that it is for (`crate::rebuild`).

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_block_io::{BlockDevice, DeviceError, Seams, read};
use dolmen_future_pool::pooled;
use dolmen_pool::keys;
use dolmen_space::salvage::{self, SlabHeader};
use dolmen_space::{Progress, SpaceSpec};
use dolmen_store::{MapPage, PAGE_BYTES, PageContent};
use dolmen_units::{BLOCK_BYTES, Bytes, Epoch, PoolId, SpaceId};

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 1 << 20;
const BLOCK: usize = 4096;

const _: () = assert!(BLOCK as u64 == BLOCK_BYTES, "a block is a block, in memory and on disks");
const _: () = assert!(PIECE_BYTES.is_multiple_of(PAGE_BYTES as u64), "no page of a map lies in two pieces");

/// How much of the disks is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Labels, checkpoints, the map and the log.
    Metadata,
    /// Every block as well, for the headers of slabs.
    WholeDisks,
}

/// What stands on a disk by itself.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Headers of slabs, with their addresses.
    pub(crate) headers: Vec<(u64, SlabHeader)>,
    /// Spaces that pages of maps name, by pool; each with the checkpoint of its page.
    pub(crate) spaces: BTreeMap<(PoolId, SpaceId), (u64, SpaceSpec)>,
    /// Bytes that the disk did not give.
    pub(crate) unreadable: u64,
}

/// Reads a whole disk.
#[pooled]
pub(crate) async fn survey(seams: &Seams, device: &Rc<dyn BlockDevice>, progress: &Progress) -> Survey {
    let mut found = Survey::default();
    let capacity = Bytes(device.geometry().capacity.0).align_down(BLOCK_BYTES).0;
    let mut at = 0;
    let mut under_way = None;
    // The next piece is read while this one is looked at.
    loop {
        let next = (at < capacity).then(|| PIECE_BYTES.min(capacity - at));
        let reading = match next {
            Some(length) => {
                let buffer = seams.data.take(usize::try_from(length).unwrap_or(BLOCK)).await;
                Some((at, length, read(device.as_ref(), Epoch(u64::MAX), at, buffer)))
            }
            None => None,
        };
        at += next.unwrap_or(0);
        let before = under_way;
        under_way = reading;
        let Some((from, length, answer)) = before else {
            if under_way.is_none() {
                return found;
            }
            continue;
        };
        let (buffer, result) = answer.await;
        match result {
            Ok(()) => found.look(from, &buffer),
            Err(DeviceError::Detached) => {
                found.unreadable += capacity - from;
                return found;
            }
            Err(_) => {
                drop(buffer);
                found.look_block_by_block(seams, device, from, length).await;
            }
        }
        progress.bytes.set(progress.bytes.get() + length);
    }
}

impl Survey {
    async fn look_block_by_block(
        &mut self,
        seams: &Seams,
        device: &Rc<dyn BlockDevice>,
        from: u64,
        length: u64,
    ) {
        for at in (from..from + length).step_by(BLOCK) {
            let buffer = seams.metadata.take(BLOCK).await;
            let (buffer, result) = read(device.as_ref(), Epoch(u64::MAX), at, buffer).await;
            match result {
                Ok(()) => self.look(at, &buffer),
                Err(_) => self.unreadable += BLOCK_BYTES,
            }
        }
    }

    fn look(&mut self, from: u64, bytes: &[u8]) {
        for (block, index) in bytes.chunks_exact(BLOCK).zip(0u64..) {
            if SlabHeader::is_likely(block)
                && let Some(header) = SlabHeader::parse(block)
            {
                self.headers.push((from + index * BLOCK_BYTES, header));
            } else if MapPage::is_likely(block) {
                let start = usize::try_from(index).unwrap_or(0) * BLOCK;
                self.note_spaces(bytes.get(start..).unwrap_or_default());
            }
        }
    }

    /// Notes the spaces that a page of a map names.
    fn note_spaces(&mut self, bytes: &[u8]) {
        let Ok(page) = MapPage::parse(bytes) else { return };
        let PageContent::Leaf(entries) = page.content else { return };
        for (key, value) in entries {
            let (_, id, _) = keys::parts(&key);
            let Some(spec) = salvage::parse_space(&value) else { continue };
            if !keys::all(keys::Kind::Space).contains(&key) {
                continue;
            }
            let newest =
                self.spaces.entry((page.pool, SpaceId(id))).or_insert((page.name.sequence, spec.clone()));
            if newest.0 < page.name.sequence {
                *newest = (page.name.sequence, spec);
            }
        }
    }
}
