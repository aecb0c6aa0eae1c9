//! A disk that counts what it is asked for by what lies there: labels, log, map, and slabs with data and tables.

use std::cell::Cell;
use std::rc::Rc;

use dolmen_block_io::{Action, BlockDevice, Command, Durability, Geometry, IoCounters, Submission};
use dolmen_disk::{Extent, METADATA_AT};
use dolmen_pool::CHECKPOINT_BYTES;
use dolmen_units::{Bytes, Epoch};
use serde::Serialize;

use crate::tally::counts;

/// What was asked of disks, by what lies there. Flushes are of whole disks and stand by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Asked {
    pub(crate) labels: Commands,
    pub(crate) log: Commands,
    pub(crate) map: Commands,
    /// Data, the write cache and tables.
    pub(crate) slabs: Commands,
    pub(crate) flushes: u64,
}

counts! {
    /// Commands that name a range, and their bytes.
    pub(crate) struct Commands {
        reads,
        writes,
        durable_writes,
        read_bytes,
        write_bytes,
    }
}

impl Commands {
    fn note(&mut self, action: &Action) {
        match action {
            Action::Read { into, .. } => {
                self.reads += 1;
                self.read_bytes += into.len() as u64;
            }
            Action::Write { from, durability, .. } => {
                self.writes += 1;
                self.write_bytes += from.len() as u64;
                self.durable_writes += u64::from(*durability == Durability::Durable);
            }
            Action::Flush | Action::Discard { .. } | Action::WriteZeroes { .. } => {}
        }
    }
}

impl Asked {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            labels: self.labels.plus(other.labels),
            log: self.log.plus(other.log),
            map: self.map.plus(other.map),
            slabs: self.slabs.plus(other.slabs),
            flushes: self.flushes + other.flushes,
        }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            labels: self.labels.since(earlier.labels),
            log: self.log.since(earlier.log),
            map: self.map.since(earlier.map),
            slabs: self.slabs.since(earlier.slabs),
            flushes: self.flushes.saturating_sub(earlier.flushes),
        }
    }

    /// All of it, but for flushes.
    pub(crate) fn all(&self) -> Commands {
        self.labels.plus(self.log).plus(self.map).plus(self.slabs)
    }

    /// Everything that a disk was asked for: reads, writes and flushes.
    pub(crate) fn commands(&self) -> u64 {
        let all = self.all();
        all.reads + all.writes + self.flushes
    }
}

/// A disk that is watched.
pub(crate) struct Watched {
    device: Rc<dyn BlockDevice>,
    /// The cut that a pool gives it.
    extent: Extent,
    /// Behind the log.
    log_end: Cell<u64>,
    asked: Cell<Asked>,
}

impl Watched {
    /// Watches a device, unless it is too small for a pool.
    pub(crate) fn new(device: Rc<dyn BlockDevice>) -> Option<Rc<Self>> {
        let extent = Extent::of(device.geometry().capacity).ok()?;
        let log_end = Cell::new(extent.data_start);
        Some(Rc::new(Self { device, extent, log_end, asked: Cell::default() }))
    }

    /// Tells how long the log is: until then what belongs to the map counts as the log's.
    pub(crate) fn set_log(&self, log: Bytes) {
        self.log_end.set(METADATA_AT + CHECKPOINT_BYTES + log.0);
    }

    pub(crate) fn asked(&self) -> Asked {
        self.asked.get()
    }

    fn note(&self, action: &Action) {
        let mut asked = self.asked.get();
        match action {
            Action::Flush => asked.flushes += 1,
            Action::Read { at, .. } | Action::Write { at, .. } => self.area(&mut asked, *at).note(action),
            Action::Discard { .. } | Action::WriteZeroes { .. } => {}
        }
        self.asked.set(asked);
    }

    fn area<'a>(&self, asked: &'a mut Asked, at: u64) -> &'a mut Commands {
        if at < METADATA_AT || at >= self.extent.data_end {
            return &mut asked.labels;
        }
        if at >= self.extent.data_start {
            return &mut asked.slabs;
        }
        let is_log = at >= METADATA_AT + CHECKPOINT_BYTES && at < self.log_end.get();
        if is_log { &mut asked.log } else { &mut asked.map }
    }
}

impl BlockDevice for Watched {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn name(&self) -> String {
        self.device.name()
    }

    fn submit(&self, command: Command) -> Submission {
        self.note(&command.action);
        self.device.submit(command)
    }

    fn fence(&self, epoch: Epoch) {
        self.device.fence(epoch);
    }

    fn counters(&self) -> IoCounters {
        self.device.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dolmen_block_io::{Executor, MemoryDevice, conformance};
    use dolmen_buffer::{Arena, ArenaConfig};

    #[test]
    fn a_watched_device_keeps_the_contract() {
        let arena = Arena::new(ArenaConfig::MODEST);
        let device = Watched::new(MemoryDevice::new("watched", Bytes::mib(64))).unwrap();
        let done = Executor::new().block_on(async move { conformance::all(device.as_ref(), &arena).await });
        assert_eq!(done, Some(()));
    }

    #[test]
    fn what_is_asked_is_counted_where_it_lies() {
        // Scenario: a write to each area, the log of 4 MiB long. Each is counted there, and nowhere else.
        let device = MemoryDevice::new("watched", Bytes::gib(8));
        let watched = Watched::new(device).unwrap();
        watched.set_log(Bytes::mib(4));
        let extent = watched.extent;
        let log_at = METADATA_AT + CHECKPOINT_BYTES;
        let places = [0, METADATA_AT, log_at, log_at + (4 << 20), extent.data_start, extent.data_end];
        let arena = Arena::new(ArenaConfig::MODEST);
        for at in places {
            let payload = arena.try_take(4096).unwrap().freeze();
            let action = Action::Write { at, from: payload, durability: Durability::Durable };
            drop(watched.submit(Command { token: Epoch(1), within: None, action }));
        }
        drop(watched.submit(Command { token: Epoch(1), within: None, action: Action::Flush }));
        let asked = watched.asked();
        let writes = [asked.labels, asked.map, asked.log, asked.slabs].map(|area| area.writes);
        assert_eq!(writes, [2, 2, 1, 1]);
        assert_eq!((asked.commands(), asked.all().write_bytes), (7, 6 * 4096));
        assert_eq!(asked.since(asked), Asked::default());
    }
}
