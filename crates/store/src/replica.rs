//! The disks that hold the store, and commands to several of them at once.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{BlockDevice, DeviceError, Durability, flush, read, read_within, write};
use dolmen_buffer::{Arena, Buffer, Shared};
use dolmen_future_pool::pooled;
use dolmen_units::{DiskId, Epoch, PoolId};
use zerocopy::IntoBytes;

use crate::block::{BlockPlace, Checkpoint};
use crate::error::{Answer, Defect, Failure, Fault, Step};
use crate::format::{BLOCK_BYTES, PAGE_BYTES, PAGES_MAX};
use crate::page::{Expect, Page};

/// Pages that are read from one disk, or written to each, at a time.
pub(crate) const GROUP_PAGES_MAX: usize = 16;
/// Pages that a checkpoint gathers before it writes them: one large buffer.
pub(crate) const BATCH_PAGES_MAX: usize = 64;

const _: () =
    assert!(BATCH_PAGES_MAX * PAGE_BYTES <= dolmen_buffer::FRAME_BYTES_MAX, "a batch is one buffer");
const _: () = assert!(GROUP_PAGES_MAX <= BATCH_PAGES_MAX, "a group is copied as one batch");

/// Where a store lies on each of its disks; the same on all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Address of the 64 KiB that hold the two checkpoint slots, in bytes.
    pub checkpoint_at: u64,
    /// Address of the pages, in bytes.
    pub pages_at: u64,
    /// Length of the pages, in bytes.
    pub pages_length: u64,
}

impl Area {
    /// Pages that the area holds.
    pub(crate) fn pages(&self) -> u64 {
        (self.pages_length / PAGE_BYTES as u64).min(PAGES_MAX)
    }

    fn page_at(&self, page: u64) -> u64 {
        self.pages_at.saturating_add(page.saturating_mul(PAGE_BYTES as u64))
    }
}

/// A disk that holds the store whole.
#[derive(Clone)]
pub struct Replica {
    /// Its identity.
    pub disk: DiskId,
    /// The way to it.
    pub device: Rc<dyn BlockDevice>,
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Replica({} as {})", self.disk, self.device.name())
    }
}

/// The replicas of a store, and what is known of each.
pub(crate) struct ReplicaSet {
    pub(crate) token: Epoch,
    pub(crate) list: Vec<Replica>,
    /// The checkpoint that a disk is known to hold whole.
    known: BTreeMap<DiskId, u64>,
    /// Disks whose last command has an unknown outcome, or that are gone: they are not written until the caller has
    /// said who the replicas are.
    failed: BTreeMap<DiskId, Failure>,
}

impl ReplicaSet {
    pub(crate) fn new(token: Epoch, list: Vec<Replica>) -> Self {
        Self { token, list, known: BTreeMap::new(), failed: BTreeMap::new() }
    }

    pub(crate) fn replace(&mut self, token: Epoch, list: Vec<Replica>) {
        // A failed disk that is given again may have lost anything since its last good flush.
        for disk in std::mem::take(&mut self.failed).into_keys() {
            self.known.remove(&disk);
        }
        self.token = token;
        self.list = list;
    }

    pub(crate) fn learn(&mut self, disk: DiskId, sequence: u64) {
        self.known.insert(disk, sequence);
    }

    pub(crate) fn forget(&mut self, disk: DiskId) {
        self.known.remove(&disk);
    }

    pub(crate) fn is_current(&self, disk: DiskId, sequence: u64) -> bool {
        self.known.get(&disk) == Some(&sequence)
    }

    pub(crate) fn stale(&self, sequence: u64) -> Vec<Replica> {
        self.list.iter().filter(|replica| !self.is_current(replica.disk, sequence)).cloned().collect()
    }

    /// Remembers failures after which a command may still take effect, or none will.
    pub(crate) fn note(&mut self, failures: &[Failure]) {
        for failure in failures {
            match failure.source {
                DeviceError::TimedOut
                | DeviceError::Detached
                | DeviceError::Fenced
                | DeviceError::CacheLost => {
                    self.failed.insert(failure.disk, *failure);
                }
                DeviceError::Medium { .. }
                | DeviceError::NoSpace
                | DeviceError::ReadOnly
                | DeviceError::OutOfRange
                | DeviceError::Misaligned
                | DeviceError::Unsupported => {}
            }
        }
    }

    pub(crate) fn failures(&self) -> Vec<Failure> {
        self.list.iter().filter_map(|replica| self.failed.get(&replica.disk)).copied().collect()
    }

    /// In the order in which a page is best read: those that surely have it first, spread by `page`.
    pub(crate) fn for_reading(&self, page: u64, sequence: u64) -> Vec<Replica> {
        let start = usize::try_from(page % (self.list.len() as u64).max(1)).unwrap_or(0);
        let turned = || self.list.iter().skip(start).chain(self.list.iter().take(start));
        let good = |replica: &&Replica| {
            self.is_current(replica.disk, sequence) && !self.failed.contains_key(&replica.disk)
        };
        turned().filter(good).chain(turned().filter(|replica| !good(replica))).cloned().collect()
    }
}

/// How commands reach disks: in whose name, with whose memory, and where things lie.
#[derive(Clone)]
pub(crate) struct Port {
    pub(crate) arena: Arena,
    pub(crate) token: Epoch,
    pub(crate) pool: PoolId,
    pub(crate) area: Area,
}

impl Port {
    fn place(&self, disk: DiskId, slot: u64) -> BlockPlace {
        BlockPlace { pool: self.pool, disk, area: self.area, slot }
    }

    /// Reads a slot's block; `None` when it was never written.
    pub(crate) async fn read_block(&self, replica: &Replica, slot: u64) -> Result<Option<Checkpoint>, Fault> {
        let place = self.place(replica.disk, slot);
        let into = self.arena.take(BLOCK_BYTES).await;
        let (bytes, result) = read(replica.device.as_ref(), self.token, place.at(), into).await;
        let fault = |answer| Fault { disk: replica.disk, answer };
        result.map_err(|error| fault(Answer::Device(error)))?;
        Checkpoint::parse(&bytes, &place).map_err(|defect| fault(Answer::Defect(defect)))
    }

    /// Reads pages of one disk, all at a time, and waits for each no longer than `within`, if that is limited.
    #[pooled]
    pub(crate) async fn read_pages(
        &self,
        replica: &Replica,
        pages: &[Expect],
        within: Option<Duration>,
    ) -> Vec<Result<Page, Fault>> {
        assert!(pages.len() <= GROUP_PAGES_MAX, "a group is bounded");
        let mut waiting = Vec::with_capacity(pages.len());
        if !pages.is_empty() {
            let mut rest = Some(self.arena.take(pages.len() * PAGE_BYTES).await);
            for expect in pages {
                let Some(mut into) = rest.take() else { break };
                rest = (into.len() > PAGE_BYTES).then(|| into.split_off(PAGE_BYTES));
                let at = self.area.page_at(expect.at.page);
                let reading = read_within(replica.device.as_ref(), self.token, (at, within), into);
                waiting.push((expect, reading));
            }
        }
        let mut results = Vec::with_capacity(waiting.len());
        for (expect, waiting) in waiting {
            let (bytes, result) = waiting.await;
            results.push(self.decide(replica.disk, expect, &bytes, result));
        }
        results
    }

    fn decide(
        &self,
        disk: DiskId,
        expect: &Expect,
        bytes: &Buffer,
        result: Result<(), DeviceError>,
    ) -> Result<Page, Fault> {
        let fault = |answer| Fault { disk, answer };
        result.map_err(|error| fault(Answer::Device(error)))?;
        if expect.at.page >= self.area.pages() {
            let defect = Defect::Place { found: expect.at.page, expected: self.area.pages() };
            return Err(fault(Answer::Defect(defect)));
        }
        Page::parse(bytes, expect).map_err(|defect| fault(Answer::Defect(defect)))
    }

    /// Writes pages to all of `to` and waits for all of them, so that no write is under way when this returns.
    #[pooled]
    pub(crate) async fn write_pages(&self, to: &[Replica], pages: &[Rc<Page>]) -> Vec<Failure> {
        let mut failures = Vec::new();
        for batch in pages.chunks(BATCH_PAGES_MAX) {
            let mut buffer = self.arena.take(batch.len() * PAGE_BYTES).await;
            for (to, page) in buffer.chunks_mut(PAGE_BYTES).zip(batch) {
                to.copy_from_slice(page.bytes());
            }
            failures.extend(self.write_runs(to, &buffer.freeze(), batch).await);
        }
        failures
    }

    async fn write_runs(&self, to: &[Replica], bytes: &Shared, batch: &[Rc<Page>]) -> Vec<Failure> {
        let mut waiting = Vec::new();
        let mut start = 0;
        for run in batch.chunk_by(|a, b| a.at().page + 1 == b.at().page) {
            let end = start + run.len() * PAGE_BYTES;
            let at = self.area.page_at(run.first().map_or(0, |page| page.at().page));
            for replica in to {
                let part = bytes.slice(start..end);
                let done = write(replica.device.as_ref(), self.token, at, part, Durability::Cached);
                waiting.push((replica.disk, done));
            }
            start = end;
        }
        gather(waiting, Step::Pages).await
    }

    /// Makes what was written durable on all of `to`.
    pub(crate) async fn flush_all(&self, to: &[Replica], step: Step) -> Vec<Failure> {
        let start = |replica: &Replica| (replica.disk, flush(replica.device.as_ref(), self.token));
        gather(to.iter().map(start).collect(), step).await
    }

    /// Writes the checkpoint block to its slot on all of `to`.
    #[pooled]
    pub(crate) async fn write_block(&self, to: &[Replica], checkpoint: &Checkpoint) -> Vec<Failure> {
        let mut failures = Vec::new();
        for (replica, mut bytes) in self.block_buffers(to).await {
            let place = self.place(replica.disk, checkpoint.slot());
            bytes.copy_in(checkpoint.encode(&place).as_bytes());
            let at = place.at();
            failures.push((replica.disk, at, bytes.freeze(), replica));
        }
        let start = |(disk, at, bytes, replica): (DiskId, u64, Shared, &Replica)| {
            (disk, write(replica.device.as_ref(), self.token, at, bytes, Durability::Cached))
        };
        gather(failures.into_iter().map(start).collect(), Step::Block).await
    }

    /// Makes a slot read as never written on all of `to`, durably.
    #[pooled]
    pub(crate) async fn erase_slot(&self, to: &[Replica], slot: u64) -> Vec<Failure> {
        let mut zeros = self.arena.take(BLOCK_BYTES).await;
        zeros.fill(0);
        let zeros = zeros.freeze();
        let start = |replica: &Replica| {
            let at = self.place(replica.disk, slot).at();
            (replica.disk, write(replica.device.as_ref(), self.token, at, zeros.clone(), Durability::Cached))
        };
        let failures = gather(to.iter().map(start).collect(), Step::Erase).await;
        if failures.is_empty() { self.flush_all(to, Step::Erase).await } else { failures }
    }

    /// A block's buffer for each replica, cut from one, because a task must not hold some and wait for more.
    async fn block_buffers<'a>(&self, to: &'a [Replica]) -> Vec<(&'a Replica, Buffer)> {
        let mut buffers = Vec::with_capacity(to.len());
        let mut rest = None;
        if !to.is_empty() {
            rest = Some(self.arena.take(to.len() * BLOCK_BYTES).await);
        }
        for replica in to {
            let Some(mut buffer) = rest.take() else { break };
            rest = (buffer.len() > BLOCK_BYTES).then(|| buffer.split_off(BLOCK_BYTES));
            buffers.push((replica, buffer));
        }
        buffers
    }
}

async fn gather(
    waiting: Vec<(DiskId, impl Future<Output = Result<(), DeviceError>>)>,
    step: Step,
) -> Vec<Failure> {
    let mut failures: Vec<Failure> = Vec::new();
    for (disk, done) in waiting {
        if let Err(source) = done.await
            && !failures.iter().any(|failure| failure.disk == disk)
        {
            failures.push(Failure { disk, step, source });
        }
    }
    failures
}
