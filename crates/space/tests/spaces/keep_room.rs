//! Room that is kept for repair (docs/design/0023): writes stop before it, and a lost disk is rebuilt into it.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use dolmen_pool::{ExcludeReason, PoolError};
use dolmen_space::{Progress, Resiliency, Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::{Bench, Lab, ROW};

const KINDS: [Resiliency; 3] =
    [Resiliency::Mirror { copies: 2 }, Resiliency::Mirror { copies: 3 }, Resiliency::Parity { parity: 1 }];

type Failed = Box<dyn std::error::Error>;

async fn thin(spaces: &Spaces, resiliency: Resiliency) -> Result<Space, Failed> {
    let mut spec = SpaceSpec::usual("data".parse()?, Bytes::gib(1), resiliency);
    (spec.row, spec.interleave) = (Some(ROW), Bytes::kib(64));
    Ok(spaces.create(spec).await?)
}

/// Writes a block to each row until the pool takes none; how many it took.
async fn fill(lab: &Lab, space: &Space, from: u64) -> Result<u64, Failed> {
    for row in from.. {
        match lab.write(space, row << 20, 4096, 1).await {
            Ok(()) => {}
            Err(error) => match error.downcast::<SpaceError>().map(|error| *error) {
                Ok(SpaceError::Pool(PoolError::NoSpace { .. })) => return Ok(row),
                Ok(error) => return Err(error.into()),
                Err(error) => return Err(error),
            },
        }
    }
    Ok(0)
}

/// Scenario: a pool keeps room for the loss of a disk, and thin spaces are written until it is full. It holds as many rows as was
/// said before; whichever disk is lost then, all that it had is rebuilt on the others, writes never stop for it, and the pool
/// says that the room is used. The setting is there with the next opening.
#[test]
fn a_full_pool_that_keeps_room_heals_without_a_new_disk() {
    for kind in KINDS {
        for lost in ["disk0", "disk3"] {
            let bench = Bench::new(9100, 6, Bytes::mib(96));
            let verified = bench.run(async move |lab| {
                let spaces = lab.create().await?;
                spaces.pool().settings().set_keep_room_for(1).await?;
                spaces.close().await?;
                let spaces = lab.open().await?;
                let pool = spaces.pool();
                assert_eq!(pool.free_space().keeps_room_for(), 1, "it is on record");
                let space = thin(&spaces, kind).await?;
                let rows = fill(&lab, &space, 0).await?;
                assert!(rows > 50, "{rows}");
                assert_eq!(pool.free_space().kept_room().losses, 1, "claims have taken what is kept");
                for disk in pool.disks() {
                    let forecast = spaces.moves().forecast_removal(disk.slot()).await?;
                    assert!(forecast.rows > 0 && forecast.stuck.is_empty(), "{forecast:?}");
                }
                let disk = pool.members().find_disk(lost)?;
                pool.exclude(disk.slot(), ExcludeReason::Asked).await?;
                pool.membership().retire(&disk).await?;
                assert!(
                    spaces.moves().drain_disk(&disk, &Progress::default()).await?,
                    "all of it has a place"
                );
                pool.membership().evict(&disk).await?;
                crate::harness::check(&spaces).await?;
                let kept = pool.free_space().kept_room();
                assert_eq!((kept.wanted, kept.losses), (1, 0), "the room is used");
                let more = fill(&lab, &space, rows).await?;
                assert!(more > rows, "a loss does not stop writes");
                for row in 0..more {
                    lab.expect(&space, row << 20, 4096, 1).await?;
                }
                crate::harness::check(&spaces).await?;
                Ok(spaces.close().await?)
            });
            verified.unwrap_or_else(|error| panic!("{kind:?}, {lost}: {error}"));
        }
    }
}
