//! Members that take no rows: spares, and disks that stay empty (docs/design/0023).
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use dolmen_pool::{ExcludeReason, Role};
use dolmen_space::{Progress, Resiliency, SpaceSpec};
use dolmen_units::Bytes;

use crate::harness::{Bench, ROW};

/// Scenario: a disk of a pool that is written to becomes a spare. What it has goes to the others, nothing new comes to it, over
/// an opening too, and a pool that keeps room has it there; a disk is lost, the spare takes rows, and all is redundant again.
#[test]
fn a_spare_holds_nothing_until_it_takes_the_place_of_a_lost_disk() {
    for kind in [Resiliency::Mirror { copies: 2 }, Resiliency::Parity { parity: 1 }] {
        let bench = Bench::new(9200, 5, Bytes::mib(96));
        let verified = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(64), kind);
            (spec.row, spec.interleave, spec.columns) =
                (Some(ROW), Bytes::kib(64), Some(kind.parity_columns() + 1));
            let space = spaces.create(spec).await?;
            for row in 0..12 {
                lab.write(&space, row << 20, 64 << 10, 1).await?;
            }
            let pool = spaces.pool();
            let spare = pool.members().find_disk("disk4")?;
            assert!(pool.free_space().holds_rows(&spare));
            pool.membership().set_role(&spare, Some(Role::Spare)).await?;
            assert_eq!(spaces.moves().to_empty().len(), 1);
            assert!(spaces.moves().drain_disk(&spare, &Progress::default()).await?);
            for row in 12..24 {
                lab.write(&space, row << 20, 64 << 10, 1).await?;
            }
            assert!(
                !pool.free_space().holds_rows(&spare) && spaces.moves().to_empty().is_empty(),
                "it is empty, and stays so"
            );
            assert!(pool.members().is_member(&spare));
            lab.check_and_close(spaces).await?;
            let spaces = lab.open().await?;
            let pool = spaces.pool();
            let spare = pool.members().find_disk("disk4")?;
            assert_eq!(pool.members().role_of(&spare), Some(Role::Spare), "it is on record");
            pool.settings().set_keep_room_for(1).await?;
            assert_eq!(pool.free_space().kept_room().losses, 1);
            let space = spaces.find("data")?;
            for row in 24..32 {
                lab.write(&space, row << 20, 64 << 10, 1).await?;
            }
            assert!(!pool.free_space().holds_rows(&spare));
            let lost = pool.members().find_disk("disk1")?;
            pool.exclude(lost.slot(), ExcludeReason::Asked).await?;
            pool.membership().set_role(&spare, None).await?;
            pool.membership().retire(&lost).await?;
            assert!(spaces.moves().drain_disk(&lost, &Progress::default()).await?);
            pool.membership().evict(&lost).await?;
            assert!(pool.free_space().holds_rows(&spare));
            let other = pool.members().find_disk("disk2")?;
            pool.exclude(other.slot(), ExcludeReason::Asked).await?;
            for row in 0..32 {
                lab.expect(&space, row << 20, 64 << 10, 1).await?;
            }
            Ok(spaces.close().await?)
        });
        verified.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// Scenario: a disk that is to stay empty dies before anything was moved off it, and the pool is opened without it. It is not taken
/// for empty: what it had is made again on the others, and then it is.
#[test]
fn a_disk_that_dies_while_it_is_emptied_is_not_taken_for_empty() {
    let bench = Bench::new(9201, 5, Bytes::mib(96));
    let made = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let space = lab.space(&spaces, "data", Bytes::mib(32), Resiliency::Mirror { copies: 2 }).await?;
        for row in 0..16 {
            lab.write(&space, row << 20, 64 << 10, 1).await?;
        }
        let disk = spaces.pool().members().find_disk("disk4")?;
        spaces.pool().membership().set_role(&disk, Some(Role::Idle)).await?;
        assert_eq!(spaces.moves().to_empty().len(), 1);
        Ok(spaces.close().await?)
    });
    made.unwrap();
    let verified = bench.run_in(bench.lab_with(|disk| disk != 4), async move |lab| {
        let spaces = lab.open().await?;
        let pool = spaces.pool();
        let left = spaces.moves().to_empty();
        let [disk] = left.as_slice() else { panic!("it holds something") };
        assert!(!disk.is_present() && pool.free_space().holds_rows(disk));
        assert!(spaces.moves().drain_disk(disk, &Progress::default()).await?, "the others have room");
        assert!(
            !pool.free_space().holds_rows(disk)
                && spaces.moves().to_empty().is_empty()
                && pool.members().is_member(disk)
        );
        let other = pool.members().find_disk("disk1")?;
        pool.exclude(other.slot(), ExcludeReason::Asked).await?;
        let space = spaces.find("data")?;
        for row in 0..16 {
            lab.expect(&space, row << 20, 64 << 10, 1).await?;
        }
        Ok(spaces.close().await?)
    });
    verified.unwrap();
}
