//! A disk stays away, and the others could not do without it, because of one space: what it has of others is rebuilt there
//! (docs/design/0015).
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;

use dolmen_pool::ExcludeReason;
use dolmen_space::{Emptied, Progress, Resiliency, Space, Spaces};
use dolmen_units::Bytes;

use crate::harness::slow_disks::{Slow, extra, pause, text};
use crate::harness::{Bench, Lab, Outcome};

const KINDS: [(&str, Resiliency); 3] = [
    ("mirror", Resiliency::Mirror { copies: 2 }),
    ("parity", Resiliency::Parity { parity: 1 }),
    ("single", Resiliency::Simple),
];
const LENGTH: usize = 6 << 20;
const PIECE: usize = 512 << 10;

/// A space of each kind on three disks, each of which has a part of each.
async fn fill(lab: &Lab) -> Result<(Rc<Spaces>, Vec<Space>), Box<dyn Error>> {
    let spaces = lab.create().await?;
    let mut made = Vec::new();
    for (name, resiliency) in KINDS {
        let space = lab.space(&spaces, name, Bytes::mib(12), resiliency).await?;
        for at in (0..LENGTH).step_by(PIECE) {
            lab.write(&space, at as u64, PIECE, 1).await?;
        }
        made.push(space);
    }
    spaces.flush().await?;
    Ok((spaces, made))
}

/// The mirror holds what was written last, block by block.
async fn expect_mirror(lab: &Lab, mirror: &Space) -> Outcome {
    lab.expect(mirror, 0, 4096, 2).await?;
    lab.expect(mirror, 4096, LENGTH - 4096, 1).await?;
    lab.expect(mirror, 8 << 20, 4096, 3).await
}

/// Scenario: the mirror has its redundancy back while clients write, although rows of parity need all three disks, and those of the
/// single copy are nowhere else. Then one of the others leaves too.
#[test]
fn what_has_a_place_elsewhere_does_not_wait_for_what_has_none() {
    let bench = Bench::with_profile(6400, 3, || Slow::BRIEFLY.profile());
    let verified = bench.run(async move |lab| {
        let (spaces, made) = fill(&lab).await?;
        let pool = spaces.pool();
        let freed = pool.members().find_disk("disk2")?;
        pool.exclude(freed.slot(), ExcludeReason::Asked).await?;
        let meant = spaces.moves().rebuildable(&freed, &[]).await?;
        let is_meant: Vec<bool> = made.iter().map(|space| meant.contains(&space.id())).collect();
        assert_eq!(is_meant, [true, false, false]);
        let progress = Progress::default();
        let rebuild = async {
            let rebuilt = spaces.moves().rebuild_without(&freed, &meant, || true, &progress).await;
            if rebuilt.map_err(text)? == Emptied::All { Ok(()) } else { Err("something is left".to_owned()) }
        };
        let write = async {
            lab.write(&made[0], 0, 4096, 2).await.map_err(text)?;
            lab.write(&made[0], 8 << 20, 4096, 3).await.map_err(text)
        };
        extra(vec![Box::pin(rebuild), Box::pin(write)]).await?;
        assert!(progress.done.get() > 0 && spaces.moves().rebuildable(&freed, &[]).await?.is_empty());
        assert!(pool.members().is_member(&freed) && pool.members().is_active(&freed));
        let has_nothing: Vec<bool> =
            made.iter().map(|space| spaces.moves().has_nothing_on(&freed, space.id())).collect();
        assert_eq!(has_nothing, [true, false, false]);
        assert_eq!(spaces.moves().forecast_removal(freed.slot()).await?.stuck.len(), 1);
        spaces.flush().await?;
        pool.exclude(pool.members().find_disk("disk0")?.slot(), ExcludeReason::Asked).await?;
        expect_mirror(&lab, &made[0]).await?;
        assert!(spaces.moves().has_nothing_on(&freed, made[0].id()));
        Ok(spaces.close().await?)
    });
    verified.unwrap();
}

/// Scenario: the disk is back somewhere on the way. It goes on with what it still has, lacks nothing once it was brought up to date, and
/// the map is sound.
#[test]
fn a_disk_that_is_back_while_some_is_rebuilt_is_a_member_as_before() {
    let mut ends = [0, 0];
    for offset in 0..24 {
        let bench = Rc::new(Bench::with_profile(6500 + offset, 3, || Slow::WRITES.profile()));
        let inside = Rc::clone(&bench);
        let was_over = Rc::new(Cell::new(false));
        let reported = Rc::clone(&was_over);
        let verified = bench.run(async move |lab| {
            let (spaces, made) = fill(&lab).await?;
            let freed = spaces.pool().members().find_disk("disk2")?;
            inside.disks[2].vanish();
            lab.write(&made[0], 0, 4096, 2).await?;
            spaces.flush().await?;
            let meant = spaces.moves().rebuildable(&freed, &[]).await?;
            let (progress, is_over) = (Progress::default(), Cell::new(false));
            let rebuild = async {
                spaces.moves().rebuild_without(&freed, &meant, || true, &progress).await.map_err(text)?;
                is_over.set(true);
                Ok(())
            };
            let come_back = async {
                pause(&lab, 50 * offset).await;
                reported.set(is_over.get());
                inside.disks[2].come_back();
                spaces.members().rejoin(inside.disks[2].attach(&inside.world)).await.map_err(text)?;
                lab.write(&made[0], 8 << 20, 4096, 3).await.map_err(text)
            };
            extra(vec![Box::pin(rebuild), Box::pin(come_back)]).await?;
            spaces.members().resync(&Progress::default()).await?;
            expect_mirror(&lab, &made[0]).await?;
            for space in &made[1..] {
                lab.expect(space, 0, LENGTH, 1).await?;
            }
            drop(made);
            lab.check_and_close(spaces).await
        });
        verified.unwrap_or_else(|error| panic!("after {offset}: {error}"));
        ends[usize::from(was_over.get())] += 1;
    }
    assert!(ends[0] > 3 && ends[1] > 0, "it was to be back in the midst of it, and behind it: {ends:?}");
}
