//! A disk that can be written to without being changed.
//!
//! Writes are kept in memory, in pages of one block with a mark for each sector that was written; reads fetch the disk's
//! content and lay the written sectors over it. The disk below is only ever asked to read.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{
    Action, BlockDevice, Command, Completions, DeviceError, Geometry, IoCounters, Outcome, Payload, Spawner,
    Submission,
};
use dolmen_units::{BLOCK_BYTES, Bytes, Epoch, SECTOR_BYTES};

/// Bytes of written content that one disk keeps, at most; what recovery writes is far below it.
pub const OVERLAY_BYTES_MAX: Bytes = Bytes::mib(256);

const BLOCK: usize = 4096;
const SECTOR: usize = 512;
const _: () =
    assert!(BLOCK as u64 == BLOCK_BYTES && SECTOR as u64 == SECTOR_BYTES, "the units of the product");
const _: () = assert!(BLOCK / SECTOR <= 8, "a byte has a mark for each sector of a page");

/// One block's worth of written sectors.
struct Page {
    bytes: Box<[u8; BLOCK]>,
    /// Bit *n* is set when sector *n* was written.
    written: u8,
}

/// What was written, by block.
#[derive(Default)]
struct Pages(BTreeMap<u64, Page>);

/// A disk whose writes stay in memory.
pub struct Overlay {
    below: Rc<dyn BlockDevice>,
    spawner: Rc<dyn Spawner>,
    completions: Rc<Completions>,
    pages: Rc<RefCell<Pages>>,
    fence: Cell<Epoch>,
    counters: Cell<IoCounters>,
}

impl Overlay {
    /// Puts a disk behind an overlay.
    #[must_use]
    pub fn new(below: Rc<dyn BlockDevice>, spawner: Rc<dyn Spawner>) -> Rc<Self> {
        Rc::new(Self {
            below,
            spawner,
            completions: Completions::new(),
            pages: Rc::default(),
            fence: Cell::default(),
            counters: Cell::default(),
        })
    }

    fn verdict(&self, command: &Command) -> Result<(), DeviceError> {
        if command.token < self.fence.get() {
            return Err(DeviceError::Fenced);
        }
        self.below.geometry().check_action(&command.action)
    }

    fn read(&self, action: Action, within: Option<Duration>) -> Submission {
        let Action::Read { at, .. } = action else { unreachable!("only reads reach the disk below") };
        let (key, submission) = self.completions.begin();
        let below = self.below.submit(Command { token: Epoch(u64::MAX), within, action });
        let (pages, completions) = (Rc::clone(&self.pages), Rc::clone(&self.completions));
        // A task of its own, because a command takes effect whether or not its submission is polled.
        self.spawner.spawn(
            "overlaid read",
            Box::pin(async move {
                let mut outcome = below.await;
                if let Payload::Buffer(buffer) = &mut outcome.payload {
                    let covered = pages.borrow().lay_over(at, buffer);
                    // What was written here is readable here, whatever the medium below says.
                    if covered {
                        outcome.result = Ok(());
                    }
                }
                completions.complete(key, outcome);
            }),
        );
        submission
    }
}

impl BlockDevice for Overlay {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn name(&self) -> String {
        self.below.name()
    }

    fn submit(&self, command: Command) -> Submission {
        IoCounters::note(&self.counters, &command.action);
        let verdict = self.verdict(&command);
        let within = command.within;
        let (result, payload) = match (command.action, verdict) {
            (action @ Action::Read { .. }, Ok(())) => return self.read(action, within),
            (Action::Read { into, .. }, refused) => (refused, Payload::Buffer(into)),
            (Action::Write { at, from, .. }, verdict) => {
                (verdict.and_then(|()| self.pages.borrow_mut().put(at, &from)), Payload::Shared(from))
            }
            (Action::WriteZeroes { at, length }, Ok(())) => {
                (self.pages.borrow_mut().put_zeros(at, length), Payload::None)
            }
            // What a discarded range reads as is undefined: as before will do.
            (Action::Flush | Action::Discard { .. } | Action::WriteZeroes { .. }, verdict) => {
                (verdict, Payload::None)
            }
        };
        self.completions.ready(Outcome { result, payload })
    }

    fn fence(&self, epoch: Epoch) {
        self.fence.set(self.fence.get().max(epoch));
    }

    fn counters(&self) -> IoCounters {
        self.counters.get()
    }
}

impl Pages {
    /// Keeps what was written.
    fn put(&mut self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        for (sector, from) in (at / SECTOR_BYTES..).zip(bytes.chunks(SECTOR)) {
            let to = self.sector_mut(sector)?;
            for (to, from) in to.iter_mut().zip(from) {
                *to = *from;
            }
        }
        Ok(())
    }

    fn put_zeros(&mut self, at: u64, length: u64) -> Result<(), DeviceError> {
        for sector in at / SECTOR_BYTES..(at + length) / SECTOR_BYTES {
            self.sector_mut(sector)?.fill(0);
        }
        Ok(())
    }

    /// The bytes of a sector, which count as written from now on.
    fn sector_mut(&mut self, sector: u64) -> Result<&mut [u8], DeviceError> {
        let (block, within) = place(sector);
        let kept = Bytes(self.0.len() as u64 * BLOCK_BYTES);
        if kept >= OVERLAY_BYTES_MAX && !self.0.contains_key(&block) {
            return Err(DeviceError::NoSpace);
        }
        let page = self.0.entry(block).or_insert_with(|| Page { bytes: Box::new([0; BLOCK]), written: 0 });
        page.written |= 1 << within;
        Ok(page.bytes.get_mut(within * SECTOR..(within + 1) * SECTOR).unwrap_or_default())
    }

    /// Lays what was written over what was read. Whether that covers all of it.
    fn lay_over(&self, at: u64, buffer: &mut [u8]) -> bool {
        let mut covered = true;
        for (sector, to) in (at / SECTOR_BYTES..).zip(buffer.chunks_mut(SECTOR)) {
            let (block, within) = place(sector);
            let page = self.0.get(&block).filter(|page| page.written & (1 << within) != 0);
            match page.and_then(|page| page.bytes.get(within * SECTOR..(within + 1) * SECTOR)) {
                Some(from) => to.copy_from_slice(from),
                None => covered = false,
            }
        }
        covered
    }
}

/// The block of a sector, and the sector's place in it.
fn place(sector: u64) -> (u64, usize) {
    let per_block = BLOCK_BYTES / SECTOR_BYTES;
    (sector / per_block, usize::try_from(sector % per_block).unwrap_or(0))
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Overlay({}, {} blocks written)", self.below.name(), self.pages.borrow().0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dolmen_block_io::{MemoryDevice, conformance};
    use dolmen_sim::World;

    /// The overlay behaves like a disk, and the disk below has not one byte changed by all that the suite does.
    #[test]
    fn an_overlay_keeps_the_contract_and_the_disk_below() {
        let world = World::new(1);
        let seams = world.seams();
        let below = MemoryDevice::new("below", Bytes::mib(4));
        below.poke(8192, b"mark");
        let before = content(&below);
        let overlay: Rc<dyn BlockDevice> = Overlay::new(below.clone(), seams.spawner.clone());
        world.run(async move { conformance::all(overlay.as_ref(), &seams.data).await }).unwrap();
        assert!(content(&below) == before, "the disk below has changed");
        assert_eq!(below.counters().writes + below.counters().discards + below.counters().flushes, 0);
    }

    /// The beginning of each block, which is enough to see that none was written.
    fn content(device: &MemoryDevice) -> Vec<[u8; 16]> {
        let head = |at| {
            let mut bytes = [0; 16];
            device.peek(at, &mut bytes);
            bytes
        };
        (0..4 << 20).step_by(4096).map(head).collect()
    }

    #[test]
    fn memory_is_bounded() {
        let mut pages = Pages::default();
        let full = OVERLAY_BYTES_MAX.0;
        let blocks = (0..full / BLOCK_BYTES).map(|block| block * BLOCK_BYTES);
        assert_eq!(blocks.map(|at| pages.put_zeros(at, SECTOR_BYTES)).find(Result::is_err), None);
        assert_eq!(pages.put_zeros(full, SECTOR_BYTES), Err(DeviceError::NoSpace));
        assert_eq!(pages.put_zeros(4096, SECTOR_BYTES), Ok(()));
    }
}
