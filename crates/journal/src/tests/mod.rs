//! The log on disks that can be held, cut off and damaged.

mod crash;
mod disk;
mod reading;
mod running;

use std::future::Future;
use std::rc::Rc;

use dolmen_block_io::{Executor, MemoryClock, Seams, Spawner, fixed_entropy};
use dolmen_buffer::{Arena, ArenaConfig};
use dolmen_units::{DiskId, Epoch, EpochId, Lsn, PoolId};

use crate::{Log, LogCopy, Owner, Place, Recovered, Ring, Start, recover};
use disk::TestDisk;

const POOL: PoolId = PoolId([7; 16]);
/// The smallest ring, so that it is gone round often.
const RING: Ring = Ring { at: 8192, length: 65536 };
const DISK_BYTES: u64 = 128 * 1024;

fn epoch(number: u64) -> EpochId {
    EpochId { number: Epoch(number), nonce: number * 1001 }
}

fn owner(number: u64, first: u64) -> Owner {
    Owner { epoch: epoch(number), first: Lsn(first) }
}

/// Disks and what runs on them.
struct World {
    executor: Rc<Executor>,
    seams: Seams,
    disks: Vec<Rc<TestDisk>>,
}

impl World {
    fn new(copies: u8) -> Self {
        let executor = Executor::new();
        let spawner: Rc<dyn Spawner> = Rc::clone(&executor) as _;
        let arena = Arena::new(ArenaConfig { small_count: 8, medium_count: 8, large_count: 6 });
        let clock = MemoryClock::new();
        let seams = Seams { clock, entropy: fixed_entropy(1), spawner, data: arena.clone(), metadata: arena };
        Self { executor, seams, disks: (0..copies).map(|number| TestDisk::new(number, DISK_BYTES)).collect() }
    }

    fn copy(&self, number: usize) -> LogCopy {
        let disk = DiskId([u8::try_from(number).unwrap() + 1; 16]);
        LogCopy { disk, device: Rc::clone(&self.disks[number]) as _ }
    }

    fn copies(&self, numbers: &[usize]) -> Vec<LogCopy> {
        numbers.iter().map(|number| self.copy(*number)).collect()
    }

    fn all(&self) -> Vec<LogCopy> {
        (0..self.disks.len()).map(|number| self.copy(number)).collect()
    }

    fn start(&self, number: u64, copies: Vec<LogCopy>, from: Start<'_>) -> Rc<Log> {
        Log::start(self.seams.clone(), Epoch(number), POOL, RING, copies, epoch(number), from)
    }

    fn fresh(&self) -> Rc<Log> {
        self.start(1, self.all(), Start::Fresh(Place::FIRST))
    }

    /// Runs to the end what can run.
    fn run_until_idle(&self) {
        while self.executor.run_one(|_| 0) {}
    }

    fn block_on<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.executor.block_on(future).expect("nothing in the future waits for a held disk")
    }

    fn recover(&self, copies: &[usize], tail: Place, spans: &[Owner]) -> Recovered {
        let (seams, copies, spans) = (self.seams.clone(), self.copies(copies), spans.to_vec());
        self.block_on(async move { recover(&seams, Epoch(99), POOL, RING, &copies, tail, &spans).await })
            .expect("the copies can be read")
    }

    fn heal(&self, recovered: Recovered) -> Recovered {
        self.block_on(async move {
            assert!(recovered.heal().await.is_ok());
            recovered
        })
    }
}

/// Record bodies of what was recovered, with their LSNs.
fn contents(recovered: &Recovered) -> Vec<(Lsn, u8, Vec<u8>)> {
    recovered.records().map(|(lsn, record)| (lsn, record.kind, record.body.to_vec())).collect()
}
