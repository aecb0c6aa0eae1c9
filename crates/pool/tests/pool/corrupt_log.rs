//! A log that rots while the pool is open.
#![allow(clippy::unwrap_used)]

use std::rc::Rc;

use dolmen_block_io::BlockDevice;
use dolmen_buffer::ArenaConfig;
use dolmen_disk::METADATA_AT;
use dolmen_journal::Wait;
use dolmen_pool::{CreateOptions, MemoryArbiter, PoolError, PoolState, create};
use dolmen_sim::{DiskProfile, World};
use dolmen_units::{BLOCK_BYTES, Bytes, HostId};

/// Blocks of the metadata area that rot: the checkpoint slots, which nobody reads now, and the beginning of the log.
const CORRUPT: std::ops::Range<u64> = 0..256;

/// What is recorded of blocks is read again while the pool is open. Where the only copy of it has rotted, that is said, and
/// nothing is written any more: silence would be taken for flushed.
#[test]
fn a_record_that_rotted_on_its_only_copy_stops_the_pool() {
    for is_corrupt in [false, true] {
        let world = World::new(1);
        world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
        let disk = world.add_disk("disk", DiskProfile::new(Bytes::mib(64)));
        let attached: Rc<dyn BlockDevice> = disk.attach(&world);
        let seams = world.seams();
        let outcome = world.run(async move {
            let options = CreateOptions {
                name: "tank".parse().unwrap(),
                overwrite: Vec::new(),
                fault_domains: Vec::new(),
            };
            let arbiter = MemoryArbiter::new(HostId([1; 16]));
            let pool = create(&seams, arbiter, &[attached], &options).await.unwrap().pool;
            for number in 0..8u8 {
                pool.log().append_blocks(&[number; 64], Wait::Durable).await.unwrap();
            }
            if is_corrupt {
                CORRUPT.for_each(|block| disk.rot(METADATA_AT + block * BLOCK_BYTES + 100, 3));
            }
            let mut seen = 0;
            let visited = pool
                .log()
                .recorded_blocks(|_| {
                    seen += 1;
                    Ok(())
                })
                .await;
            match is_corrupt {
                false => assert!(visited.is_ok() && seen == 8, "{visited:?}, {seen} records"),
                true => {
                    assert!(
                        matches!(visited, Err(PoolError::LogCorrupt { .. })),
                        "{visited:?}, {seen} records"
                    );
                    assert!(matches!(pool.state(), PoolState::Latched(_)));
                }
            }
        });
        outcome.unwrap();
    }
}
