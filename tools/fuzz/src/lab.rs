//! A simulated host with disks, on which targets open pools.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

use dolmen_block_io::{BlockDevice, Durability, Seams};
use dolmen_buffer::ArenaConfig;
use dolmen_disk::Extent;
use dolmen_pool::{Arbiter, CreateOptions, MemoryArbiter, OpenMode, OpenOptions, create, discover, open};
use dolmen_sim::{DiskProfile, Image, SimDisk, World};
use dolmen_space::{Segment, Space, SpaceError, Spaces};
use dolmen_units::{Bytes, EpochId, HostId, PoolId};

use crate::content::{self, BLOCK, Read, Tag};

/// The host of all pools.
pub(crate) const HOST: HostId = HostId([7; 16]);
/// Bytes of a disk: the least that a pool needs.
pub(crate) const DISK: Bytes = Bytes::mib(64);

/// A disk that is a file, as the daemon makes one.
fn file(capacity: Bytes) -> DiskProfile {
    let extent = Extent::of(capacity).expect("the capacity is that of a disk");
    DiskProfile::new(capacity).thin_within(extent.data_start..extent.data_end)
}

/// A world, its disks, and what the host has on record.
pub(crate) struct Lab {
    pub(crate) world: World,
    pub(crate) disks: Vec<Rc<SimDisk>>,
    pub(crate) arbiter: Rc<MemoryArbiter>,
}

/// A process in a lab.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) seams: Seams,
    pub(crate) devices: Vec<Rc<dyn BlockDevice>>,
    pub(crate) arbiter: Rc<MemoryArbiter>,
}

/// An error of whatever operation, for those who only tell it.
pub(crate) type Failure = Box<dyn std::error::Error>;

impl Lab {
    /// Disks with these images.
    pub(crate) fn new(seed: u64, images: impl IntoIterator<Item = Image>) -> Self {
        let world = World::new(seed);
        world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
        let disks = images.into_iter().enumerate();
        let disks =
            disks.map(|(number, image)| world.add_disk_with(&format!("disk{number}"), file(DISK), image));
        Self { disks: disks.collect(), world, arbiter: MemoryArbiter::new(HOST) }
    }

    /// The host has this on record.
    pub(crate) fn on_record(self, named: Option<(PoolId, EpochId)>) -> Self {
        if let Some((pool, epoch)) = named {
            // It takes effect at the call; the future has nothing left to do.
            drop(self.arbiter.record(pool, epoch.into()));
        }
        self
    }

    /// A process with those disks that are meant.
    pub(crate) fn bench(&self, is_here: impl Fn(usize) -> bool) -> Bench {
        let here = self.disks.iter().enumerate().filter(|(number, _)| is_here(*number));
        let devices = here.map(|(_, disk)| disk.attach(&self.world)).collect();
        Bench { seams: self.world.seams(), devices, arbiter: Rc::clone(&self.arbiter) }
    }

    /// Runs a process with all disks to its end, which comes within the world's limit of steps.
    pub(crate) fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        body: impl FnOnce(Bench) -> F,
    ) -> T {
        let run = self.world.run(body(self.bench(|_| true)));
        run.unwrap_or_else(|stuck| panic!("the engine does not come to an end: {stuck}"))
    }

    /// What the disks hold now.
    pub(crate) fn images(&self) -> Vec<Image> {
        self.disks.iter().map(|disk| disk.truth()).collect()
    }
}

impl Bench {
    fn arbiter(&self) -> Rc<dyn Arbiter> {
        Rc::clone(&self.arbiter) as Rc<dyn Arbiter>
    }

    /// Makes a pool of all devices.
    pub(crate) async fn create(&self) -> Result<Rc<Spaces>, Failure> {
        let options =
            CreateOptions { name: "tank".parse()?, overwrite: Vec::new(), fault_domains: Vec::new() };
        let opened = create(&self.seams, self.arbiter(), &self.devices, &options).await?;
        Ok(Spaces::start(opened).await?)
    }

    /// Opens the pools that are on the devices, the first that can be.
    pub(crate) async fn open(&self, mode: OpenMode) -> Result<Rc<Spaces>, Failure> {
        let found = discover(&self.seams, &self.devices).await;
        let mut refused: Failure = "no pool was found".into();
        for candidates in found.pools.into_values() {
            match open(&self.seams, self.arbiter(), candidates, &OpenOptions { mode }).await {
                Ok(opened) => return Ok(Spaces::start(opened).await?),
                Err(error) => refused = error.into(),
            }
        }
        Err(refused)
    }

    /// Writes blocks of one fill.
    pub(crate) async fn write(
        &self,
        space: &Space,
        tag: Tag,
        count: u32,
        durability: Durability,
    ) -> Result<(), SpaceError> {
        let mut buffer = self.seams.data.take(count as usize * BLOCK).await;
        for (block, bytes) in (tag.block..).zip(buffer.chunks_mut(BLOCK)) {
            content::fill(Tag { block, ..tag }, bytes);
        }
        space.write(u64::from(tag.block) * BLOCK as u64, &buffer.freeze(), durability).await
    }
}

/// Reads a range, block by block where it cannot be read as a whole.
pub(crate) async fn read_blocks(space: &Space, first: u32, count: u32) -> Vec<Result<Read, SpaceError>> {
    let at = u64::from(first) * BLOCK as u64;
    if let Ok(segments) = space.read(at, count as usize * BLOCK).await {
        let mut bytes = Vec::with_capacity(count as usize * BLOCK);
        for segment in segments {
            match segment {
                Segment::Zeros(length) => bytes.resize(bytes.len() + length, 0),
                Segment::Data(data) => bytes.extend_from_slice(&data),
            }
        }
        return bytes.chunks(BLOCK).map(|block| Ok(content::read(block))).collect();
    }
    let mut read = Vec::new();
    for block in 0..u64::from(count) {
        let of = space.read(at + block * BLOCK as u64, BLOCK).await;
        read.push(of.map(|segments| {
            let zeros = [0; BLOCK];
            match segments.into_iter().next() {
                Some(Segment::Data(data)) => content::read(&data),
                _ => content::read(&zeros),
            }
        }));
    }
    read
}

/// Something that is made once for a thread: images are shared within one.
pub(crate) struct Once<T: 'static>(RefCell<Option<Rc<T>>>);

impl<T> Once<T> {
    pub(crate) const fn new() -> Self {
        Self(RefCell::new(None))
    }

    pub(crate) fn get(&self, make: impl FnOnce() -> T) -> Rc<T> {
        let there = self.0.borrow().clone();
        there.unwrap_or_else(|| {
            let made = Rc::new(make());
            self.0.replace(Some(Rc::clone(&made)));
            made
        })
    }
}
