//! The engine under measurement: a pool on the files, and a space on it, put together as the daemon does.

use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Durability};
use dolmen_block_linux::{Handle, LinuxDevice};
use dolmen_buffer::Shared;
use dolmen_pool::{Arbiter, CreateOptions, MemoryArbiter, OpenMode, OpenOptions, create, discover, open};
use dolmen_space::{Progress, Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::{Bytes, Name};

use crate::case::{BASE_BYTES, Layout};
use crate::disks::Disks;
use crate::drive::Target;
use crate::error::BenchError;
use crate::tally::Tally;

/// The name of the space that is overwritten and read.
pub(crate) const BASE: &str = "base";
/// The name of the space that is written for the first time, again in each round.
pub(crate) const FRESH: &str = "fresh";

/// A pool that is open.
pub(crate) struct OpenPool {
    pub(crate) spaces: Rc<Spaces>,
    devices: Rc<[Rc<LinuxDevice>]>,
    layout: Layout,
}

/// A space as a target.
pub(crate) struct SpaceTarget {
    spaces: Rc<Spaces>,
    space: Space,
    devices: Rc<[Rc<LinuxDevice>]>,
    layout: Layout,
}

fn named(name: &'static str) -> Name {
    let Ok(name) = name.parse() else { panic!("{name} is a name") };
    name
}

fn seen(devices: &[Rc<LinuxDevice>]) -> Vec<Rc<dyn BlockDevice>> {
    devices.iter().map(|device| Rc::<LinuxDevice>::clone(device) as Rc<dyn BlockDevice>).collect()
}

impl OpenPool {
    /// Makes a pool of all disks, whatever they hold.
    pub(crate) async fn create(
        handle: &Handle,
        disks: &Disks,
        arbiter: Rc<MemoryArbiter>,
        layout: Layout,
    ) -> Result<Self, BenchError> {
        let devices: Rc<[_]> = disks.open(handle)?.into();
        if devices.len() < layout.copies() {
            let (layout, needed, found) = (layout.name(), layout.copies(), devices.len());
            return Err(BenchError::TooFewDisks { layout, needed, found });
        }
        let overwrite = devices.iter().map(|device| device.name()).collect();
        let options = CreateOptions { name: named("bench"), overwrite, fault_domains: Vec::new() };
        let arbiter: Rc<dyn Arbiter> = arbiter;
        let opened = create(&handle.seams(), arbiter, &seen(&devices), &options).await?;
        let spaces = Spaces::start(opened).await.map_err(|source| refused(layout, source))?;
        Ok(Self { spaces, devices, layout })
    }

    /// Opens the pool that was closed.
    pub(crate) async fn open(
        handle: &Handle,
        disks: &Disks,
        arbiter: Rc<MemoryArbiter>,
        layout: Layout,
    ) -> Result<Self, BenchError> {
        let devices: Rc<[_]> = disks.open(handle)?.into();
        let seams = handle.seams();
        let found = discover(&seams, &seen(&devices)).await;
        let candidates = found.pools.into_values().next().ok_or(BenchError::Vanished)?;
        let arbiter: Rc<dyn Arbiter> = arbiter;
        let opened = open(&seams, arbiter, candidates, &OpenOptions { mode: OpenMode::Write }).await?;
        let spaces = Spaces::start(opened).await.map_err(|source| refused(layout, source))?;
        Ok(Self { spaces, devices, layout })
    }

    /// A space that is there.
    pub(crate) fn space(&self, name: &'static str) -> Result<SpaceTarget, BenchError> {
        let space = self.spaces.find(name).map_err(|source| refused(self.layout, source))?;
        Ok(self.target(space))
    }

    /// Makes a space in which nothing was written; one of that name goes first.
    pub(crate) async fn new_space(&self, name: &'static str, bytes: u64) -> Result<SpaceTarget, BenchError> {
        if let Ok(old) = self.spaces.find(name) {
            self.spaces.changes().delete(&old).await.map_err(|source| refused(self.layout, source))?;
        }
        let spec = SpaceSpec::usual(named(name), Bytes(bytes), self.layout.resiliency());
        let space = self.spaces.create(spec).await.map_err(|source| refused(self.layout, source))?;
        Ok(self.target(space))
    }

    fn target(&self, space: Space) -> SpaceTarget {
        let (spaces, devices) = (Rc::clone(&self.spaces), Rc::clone(&self.devices));
        SpaceTarget { spaces, space, devices, layout: self.layout }
    }

    /// Makes the range that is overwritten and read, written and flushed, tables on their disks.
    pub(crate) async fn prepare(&self, payload: &Shared) -> Result<(), BenchError> {
        let base = self.new_space(BASE, BASE_BYTES).await?;
        for at in (0..BASE_BYTES).step_by(payload.len()) {
            base.write(at, payload).await?;
        }
        base.flush().await
    }

    /// Verifies every block and the map.
    pub(crate) async fn check(&self) -> Result<(), BenchError> {
        let failed = |source| refused(self.layout, source);
        let findings = self.spaces.scrubs().check_map().await.map_err(failed)?;
        let seen = self.spaces.scrubs().verify(&Progress::default()).await.map_err(failed)?;
        let mut found = findings;
        found.extend(seen.unreadable().map(ToString::to_string));
        if found.is_empty() {
            return Ok(());
        }
        Err(BenchError::Check { layout: self.layout.name(), found: found.join("; ") })
    }

    pub(crate) async fn close(self) -> Result<(), BenchError> {
        self.spaces.close().await.map_err(|source| refused(self.layout, source))?;
        Ok(())
    }
}

fn refused(layout: Layout, source: SpaceError) -> BenchError {
    BenchError::Space { layout: layout.name(), source }
}

impl SpaceTarget {
    fn checked<T>(&self, result: Result<T, SpaceError>) -> Result<(), BenchError> {
        result.map(drop).map_err(|source| refused(self.layout, source))
    }
}

impl Target for SpaceTarget {
    async fn write(&self, at: u64, data: &Shared) -> Result<(), BenchError> {
        self.checked(self.space.write(at, data, Durability::Cached).await)
    }

    async fn read(&self, at: u64, length: usize) -> Result<(), BenchError> {
        self.checked(self.space.read(at, length).await)
    }

    async fn flush(&self) -> Result<(), BenchError> {
        self.checked(self.spaces.flush().await)
    }

    fn count(&self, tally: Tally) -> Tally {
        let tally = self.devices.iter().fold(tally, |tally, device| tally.with_disk(device.counters()));
        tally.with_spaces(self.spaces.counters())
    }
}
