//! The world as its users meet it: through seams, handles and crashes.

mod crashes;
mod faults;
mod recording;
mod worlds;

use std::rc::Rc;

use dolmen_block_io::{BlockDevice, DeviceError, Durability, Seams, flush, read, write};
use dolmen_buffer::ArenaConfig;
use dolmen_units::{Bytes, Epoch};

use crate::{DiskProfile, Image, SimDisk, World};

const TOKEN: Epoch = Epoch(1);
const BLOCK: u64 = 4096;

struct Bench {
    world: World,
    disk: Rc<SimDisk>,
}

impl Bench {
    fn new(seed: u64, profile: DiskProfile) -> Self {
        let world = World::new(seed);
        let arena = ArenaConfig { small_count: 200, medium_count: 4, large_count: 0 };
        world.set_arenas(arena, ArenaConfig { small_count: 1, medium_count: 0, large_count: 0 });
        let disk = world.add_disk("one", profile);
        Self { world, disk }
    }

    fn open(&self) -> (Rc<dyn BlockDevice>, Seams) {
        (self.disk.attach(&self.world), self.world.seams())
    }

    /// Writes blocks full of a byte, one after the other, and flushes if asked.
    fn write_all(&self, blocks: &[(u64, u8)], durability: Durability) {
        let (device, seams) = self.open();
        let blocks = blocks.to_vec();
        let done = self.world.run(async move {
            for (block, byte) in blocks {
                assert_eq!(put(device.as_ref(), &seams, block, byte, durability).await, Ok(()));
            }
        });
        done.unwrap();
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let (device, _) = self.open();
        self.world.run(flush(device.as_ref(), TOKEN)).unwrap()
    }

    /// The bytes of a block through the device.
    fn read(&self, block: u64) -> Result<Vec<u8>, DeviceError> {
        let (device, seams) = self.open();
        let buffer = seams.data.try_take(4096).unwrap();
        let (buffer, result) = self.world.run(read(device.as_ref(), TOKEN, block * BLOCK, buffer)).unwrap();
        result.map(|()| buffer.to_vec())
    }
}

/// Submits at the call, as the function it wraps.
fn put(
    device: &dyn BlockDevice,
    seams: &Seams,
    block: u64,
    byte: u8,
    durability: Durability,
) -> impl Future<Output = Result<(), DeviceError>> + use<> {
    put_many(device, seams, block, &[byte], durability)
}

/// One write of several blocks, each full of its byte.
fn put_many(
    device: &dyn BlockDevice,
    seams: &Seams,
    block: u64,
    bytes: &[u8],
    durability: Durability,
) -> impl Future<Output = Result<(), DeviceError>> + use<> {
    let mut buffer = seams.data.try_take(4096 * bytes.len()).unwrap();
    for (part, byte) in buffer.chunks_mut(4096).zip(bytes) {
        part.fill(*byte);
    }
    write(device, TOKEN, block * BLOCK, buffer.freeze(), durability)
}

/// The byte that fills each of the first sectors of an image; 255 stands for a mixed sector.
fn sectors(image: &Image, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count * 512];
    image.read(0, &mut bytes);
    let of = |sector: &[u8]| if sector.iter().all(|byte| *byte == sector[0]) { sector[0] } else { 255 };
    bytes.chunks(512).map(of).collect()
}

/// The byte that fills each of the first blocks; 255 stands for a mixed block.
fn blocks(image: &Image, count: usize) -> Vec<u8> {
    let of = |block: &[u8]| if block.iter().all(|byte| *byte == block[0]) { block[0] } else { 255 };
    sectors(image, count * 8).chunks(8).map(of).collect()
}

fn profile() -> DiskProfile {
    DiskProfile::new(Bytes::mib(4))
}
