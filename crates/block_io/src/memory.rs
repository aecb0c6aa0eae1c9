//! A disk in memory, which never fails, and a clock that nothing but its owner moves: for tests of what stands above them,
//! and as the simplest reading of the contracts.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use dolmen_units::{Bytes, Epoch};

use crate::clock::{Clock, Instant};
use crate::completion::{CompletionKey, Completions, Outcome, Payload, Submission};
use crate::device::{Action, BlockDevice, Command, DeviceError, Geometry, IoCounters, Zoning};

const PAGE_BYTES: u64 = 4096;

/// A sparse disk in memory. Every command completes before `submit` returns.
pub struct MemoryDevice {
    name: String,
    geometry: Geometry,
    completions: Rc<Completions>,
    pages: RefCell<BTreeMap<u64, Box<[u8]>>>,
    fence: Cell<Epoch>,
    counters: Cell<IoCounters>,
}

impl MemoryDevice {
    /// A disk of `capacity`, all zeros.
    #[must_use]
    pub fn new(name: &str, capacity: Bytes) -> Rc<Self> {
        let geometry = Geometry {
            capacity,
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            optimal_io_bytes: 0,
            atomic_write_bytes: 4096,
            volatile_cache: false,
            fua: true,
            discard_granularity_bytes: Some(4096),
            thin: false,
            rotational: false,
            zoning: Zoning::None,
            shareable: false,
        };
        Self::with_geometry(name, geometry)
    }

    /// A disk with the geometry given.
    #[must_use]
    pub fn with_geometry(name: &str, geometry: Geometry) -> Rc<Self> {
        Rc::new(Self {
            name: name.to_owned(),
            geometry,
            completions: Completions::new(),
            pages: RefCell::default(),
            fence: Cell::default(),
            counters: Cell::default(),
        })
    }

    /// Copies `bytes` from byte `at` on; a range beyond the end reads as zeros.
    pub fn peek(&self, at: u64, bytes: &mut [u8]) {
        let pages = self.pages.borrow();
        for (address, byte) in (at..).zip(bytes.iter_mut()) {
            let page = pages.get(&(address / PAGE_BYTES));
            let within = usize::try_from(address % PAGE_BYTES).unwrap_or(0);
            *byte = page.and_then(|page| page.get(within)).copied().unwrap_or(0);
        }
    }

    /// Changes bytes behind the engine's back, as rot does.
    pub fn poke(&self, at: u64, bytes: &[u8]) {
        let mut pages = self.pages.borrow_mut();
        let mut at = at;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = usize::try_from(at % PAGE_BYTES).unwrap_or(0);
            let page = pages.entry(at / PAGE_BYTES).or_insert_with(|| vec![0; 4096].into_boxed_slice());
            let length = rest.len().min(page.len() - within);
            let (now, later) = rest.split_at(length);
            if let Some(space) = page.get_mut(within..within + length) {
                space.copy_from_slice(now);
            }
            at += now.len() as u64;
            rest = later;
        }
    }

    fn read(&self, at: u64, into: &mut [u8]) {
        let pages = self.pages.borrow();
        let mut at = at;
        let mut rest = into;
        while !rest.is_empty() {
            let within = usize::try_from(at % PAGE_BYTES).unwrap_or(0);
            let length = rest.len().min(4096 - within);
            let (now, later) = rest.split_at_mut(length);
            match pages.get(&(at / PAGE_BYTES)).and_then(|page| page.get(within..within + length)) {
                Some(from) => now.copy_from_slice(from),
                None => now.fill(0),
            }
            at += length as u64;
            rest = later;
        }
    }

    fn zero(&self, at: u64, length: u64) {
        let zeros = [0; 4096];
        let end = at + length;
        let mut at = at;
        while at < end {
            let part = (PAGE_BYTES - at % PAGE_BYTES).min(end - at);
            if part == PAGE_BYTES {
                self.pages.borrow_mut().remove(&(at / PAGE_BYTES));
            } else {
                let part = usize::try_from(part).unwrap_or(0);
                self.poke(at, zeros.get(..part).unwrap_or_default());
            }
            at += part;
        }
    }

    fn perform(&self, command: Command) -> Outcome {
        let refused = if command.token < self.fence.get() { Some(DeviceError::Fenced) } else { None };
        let result = refused.map_or_else(|| self.geometry.check_action(&command.action), Err);
        let payload = match (command.action, result) {
            (Action::Read { at, mut into }, verdict) => {
                if verdict.is_ok() {
                    self.read(at, &mut into);
                }
                Payload::Buffer(into)
            }
            (Action::Write { at, from, .. }, verdict) => {
                if verdict.is_ok() {
                    self.poke(at, &from);
                }
                Payload::Shared(from)
            }
            (Action::Discard { at, length } | Action::WriteZeroes { at, length }, Ok(())) => {
                self.zero(at, length);
                Payload::None
            }
            (Action::Flush | Action::Discard { .. } | Action::WriteZeroes { .. }, _) => Payload::None,
        };
        Outcome { result, payload }
    }
}

impl BlockDevice for MemoryDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn submit(&self, command: Command) -> Submission {
        IoCounters::note(&self.counters, &command.action);
        let outcome = self.perform(command);
        if outcome.result.is_err() {
            let mut counters = self.counters.get();
            counters.errors += 1;
            self.counters.set(counters);
        }
        self.completions.ready(outcome)
    }

    fn fence(&self, epoch: Epoch) {
        self.fence.set(self.fence.get().max(epoch));
    }

    fn counters(&self) -> IoCounters {
        self.counters.get()
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryDevice({}, {})", self.name, self.geometry.capacity)
    }
}

/// A clock that stands still until a test advances it.
#[derive(Debug)]
pub struct MemoryClock {
    now: Cell<Instant>,
    completions: Rc<Completions>,
    alarms: RefCell<BTreeMap<(Instant, u64), CompletionKey>>,
}

impl MemoryClock {
    /// One that shows the first moment there is.
    #[must_use]
    pub fn new() -> Rc<Self> {
        let completions = Completions::new();
        Rc::new(Self { now: Cell::default(), completions, alarms: RefCell::default() })
    }

    /// Goes on to the next moment for which somebody waits, and wakes one who does; whether there was one.
    pub fn jump(&self) -> bool {
        let Some(((instant, _), key)) = self.alarms.borrow_mut().pop_first() else { return false };
        self.now.set(self.now.get().max(instant));
        self.completions.complete(key, Outcome { result: Ok(()), payload: Payload::None });
        true
    }
}

impl Clock for MemoryClock {
    fn now(&self) -> Instant {
        self.now.get()
    }

    fn wake_at(&self, instant: Instant) -> Submission {
        let (key, submission) = self.completions.begin();
        self.alarms.borrow_mut().insert((instant, key.0), key);
        submission
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;
    use crate::executor::{Executor, Spawner};
    use dolmen_buffer::{Arena, ArenaConfig};

    #[test]
    fn the_memory_device_keeps_the_contract() {
        let arena = Arena::new(ArenaConfig::MODEST);
        let device: Rc<dyn BlockDevice> = MemoryDevice::new("memory", Bytes::mib(4));
        let executor = Executor::new();
        let done = executor.block_on(async move { conformance::all(device.as_ref(), &arena).await });
        assert_eq!(done, Some(()));
    }

    #[test]
    fn the_memory_clock_wakes_in_time_order_and_never_goes_back() {
        let (clock, executor) = (MemoryClock::new(), Executor::new());
        let woken = Rc::new(RefCell::new(Vec::new()));
        for instant in [30, 10, 20, 10] {
            let (clock, woken) = (Rc::clone(&clock), Rc::clone(&woken));
            let sleeper = async move {
                let _ = clock.wake_at(Instant(instant)).await;
                woken.borrow_mut().push((instant, clock.now().0));
            };
            executor.spawn("sleeper", Box::pin(sleeper));
        }
        executor.run_ready(usize::MAX);
        assert!(woken.borrow().is_empty() && clock.now() == Instant(0), "nobody has moved it");
        while clock.jump() {
            executor.run_ready(usize::MAX);
        }
        assert_eq!(*woken.borrow(), [(10, 10), (10, 10), (20, 20), (30, 30)]);
        let late = clock.wake_at(Instant(5));
        assert!(clock.jump() && clock.now() == Instant(30), "a moment that is past");
        assert!(executor.block_on(async move { late.await.result }) == Some(Ok(())));
    }
}
