//! Table pages that one slab alone has, and whose disk says that it wrote them and did not: nothing else would tell that what it
//! has instead is of the past.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use dolmen_pool::ExcludeReason;
use dolmen_sim::{
    CommandKind, DiskIndex, DiskProfile, FaultKind, FaultRates, LatencyModel, Random, Rate, Request, SimDisk,
    SimpleLatency,
};
use dolmen_space::{Progress, Resiliency, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::slow_disks::{CAPACITY, Slow, extra, pause, text};
use crate::harness::{Bench, Lab, Outcome, ROW, file};

/// Where the data of a disk begins.
const DATA_AT: u64 = 9 << 20;

/// A checkpoint of which a disk writes nothing behind its metadata, whatever it says. Everything else was flushed before, so that
/// this is tables alone.
async fn lose_tables(spaces: &Spaces, disk: &SimDisk) -> Outcome {
    spaces.flush().await?;
    let lost = || disk.fault_counters().of(FaultKind::LostWrite);
    let before = lost();
    disk.set_rates(FaultRates::NONE.with(FaultKind::LostWrite, Rate::one_in(1)));
    spaces.pool().checkpoint().await?;
    disk.set_rates(FaultRates::NONE);
    assert!(lost() > before, "a table was to be lost");
    Ok(())
}

fn bench(copies: usize) -> Rc<Bench> {
    bench_where(0, copies, || file(CAPACITY))
}

/// A bench with one disk that may do other than it says.
fn bench_where(liar: usize, disks: usize, profile: impl Fn() -> DiskProfile) -> Rc<Bench> {
    let bench = Bench::with_profile(5, disks, profile);
    bench.world.set_damage_policy(Rc::new(move |disk: DiskIndex, range: Range<u64>| {
        disk.0 == liar && range.start >= DATA_AT
    }));
    Rc::new(bench)
}

/// Content over older content, each with its table on the disk: the first half of a mebibyte, and then as much again.
async fn fill(lab: &Lab, spaces: &Spaces, space: &dolmen_space::Space) -> Outcome {
    for content in [1, 2] {
        lab.write(space, 0, 512 << 10, content).await?;
        spaces.flush().await?;
        spaces.pool().checkpoint().await?;
    }
    lab.write(space, 256 << 10, 512 << 10, 3).await
}

/// A space of one copy. What the log has is kept as long as the table is not there, and relogged by the next daemon; the
/// checkpoint behind that brings it to the disk.
#[test]
fn an_only_table_that_its_disk_lost_is_written_again() {
    for goes_on in [false, true] {
        let bench = bench(1);
        let inside = Rc::clone(&bench);
        let served = bench.run(async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(2), Resiliency::Simple).await?;
            fill(&lab, &spaces, &space).await?;
            lose_tables(&spaces, &inside.disks[0]).await?;
            if goes_on {
                drop(space);
                return lab.check_and_close(spaces).await;
            }
            lab.hold((spaces, space));
            Ok(())
        });
        served.unwrap();
        bench.world.kill();
        let found = bench.is_complete_alone(0, &[(0, 256 << 10, 2), (256 << 10, 512 << 10, 3)]);
        found.unwrap_or_else(|error| panic!("with another checkpoint: {goes_on}; {error}"));
    }
}

/// Scenario: a table is written back while the other column of its row is away, which comes to nothing. The next write-back gives it the
/// same number, and its disk writes nothing of that: what it has instead is told by what it says.
#[test]
fn a_table_of_a_write_back_that_came_to_nothing_is_not_taken_for_the_next() {
    let bench = bench(2);
    let inside = Rc::clone(&bench);
    let served = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(2), Resiliency::Simple);
        (spec.row, spec.columns, spec.interleave) = (Some(ROW), Some(2), Bytes::kib(512));
        let space = spaces.create(spec).await?;
        lab.write(&space, 0, 1 << 20, 1).await?;
        spaces.flush().await?;
        let other = spaces.pool().members().find_disk("disk1")?;
        spaces.pool().exclude(other.slot(), ExcludeReason::Asked).await?;
        let pages = || spaces.counters().page_writes;
        let before = pages();
        spaces.pool().checkpoint().await?;
        assert!(pages() > before, "no table was written");
        spaces.members().rejoin(inside.disks[1].attach(&inside.world)).await?;
        spaces.members().resync(&Progress::default()).await?;
        lab.write(&space, 0, 1 << 20, 2).await?;
        lose_tables(&spaces, &inside.disks[0]).await?;
        lab.hold((spaces, space));
        Ok(())
    });
    served.unwrap();
    bench.world.kill();
    let found = bench.run(async move |lab| {
        let spaces = lab.open().await?;
        let space = spaces.find("data")?;
        lab.expect(&space, 0, 1 << 20, 2).await?;
        drop(space);
        lab.check_and_close(spaces).await
    });
    found.unwrap();
}

/// The copy that is left of a mirror loses one while the other is away. Who comes back gets what was written meanwhile.
#[test]
fn a_table_that_the_last_copy_lost_is_not_given_to_the_others() {
    let bench = bench(2);
    let inside = Rc::clone(&bench);
    let served = bench.run(async move |lab| {
        let spaces = lab.create().await?;
        let mirror = Resiliency::Mirror { copies: 2 };
        let space = lab.space(&spaces, "data", Bytes::mib(2), mirror).await?;
        lab.write(&space, 0, 512 << 10, 7).await?;
        spaces.flush().await?;
        inside.disks[1].vanish();
        fill(&lab, &spaces, &space).await?;
        lose_tables(&spaces, &inside.disks[0]).await?;
        drop(space);
        spaces.close().await?;
        Ok(())
    });
    served.unwrap();
    bench.disks[1].come_back();
    let back = Rc::clone(&bench);
    let resynced = bench.run_in(bench.lab_with(|disk| disk == 0), async move |lab| {
        let spaces = lab.open().await?;
        spaces.members().rejoin(back.disks[1].attach(&back.world)).await?;
        spaces.members().resync(&Progress::default()).await?;
        lab.check_and_close(spaces).await
    });
    resynced.unwrap();
    bench.is_complete_alone(1, &[(0, 256 << 10, 2), (256 << 10, 512 << 10, 3)]).unwrap();
}

/// A disk gives all that it has to another. Wherever that stands, a client writes, and the new disk loses the tables of it: as long
/// as the old one has them too, nobody misses them. It is dropped when the new one has them.
#[test]
fn a_table_that_the_new_disk_lost_is_kept_on_the_old_one() {
    let mut lost = [0, 0];
    for offset in 0..40 {
        let bench = bench_where(1, 2, || Slow::WRITES.profile());
        let inside = Rc::clone(&bench);
        let spare = bench.disks[1].attach(&bench.world);
        let was_over = Rc::new(Cell::new(false));
        let reported = Rc::clone(&was_over);
        let replaced = bench.run_in(bench.lab_with(|disk| disk == 0), async move |lab| {
            let spaces = lab.create().await?;
            let space = lab.space(&spaces, "data", Bytes::mib(2), Resiliency::Simple).await?;
            fill(&lab, &spaces, &space).await?;
            let old = spaces.pool().members().find_disk("disk0")?;
            let new = spaces.pool().membership().add_instead_of(&old, spare, &[]).await?;
            let (progress, is_over) = (Progress::default(), Cell::new(false));
            let replace = async {
                let all = spaces.moves().finish_replacing(&old, &new, &progress).await.map_err(text)?;
                is_over.set(true);
                if all { Ok(()) } else { Err("something is left".to_owned()) }
            };
            let write = async {
                pause(&lab, 25 * offset).await;
                progress.hold();
                pause(&lab, 1000).await;
                reported.set(is_over.get());
                lab.write(&space, 320 << 10, 64 << 10, 4).await.map_err(text)?;
                lose_tables(&spaces, &inside.disks[1]).await.map_err(text)?;
                progress.release();
                Ok(())
            };
            extra(vec![Box::pin(replace), Box::pin(write)]).await?;
            // A check would find it, and so would a scrub.
            lab.hold((spaces, space));
            Ok(())
        });
        replaced.unwrap_or_else(|error| panic!("after {offset}: {error}"));
        bench.world.kill();
        let ranges = [(0, 256 << 10, 2), (256 << 10, 64 << 10, 3), (320 << 10, 64 << 10, 4)];
        let found = bench.is_complete_alone(1, &ranges);
        found.unwrap_or_else(|error| panic!("after {offset}, over: {}; {error}", was_over.get()));
        lost[usize::from(was_over.get())] += bench.disks[1].fault_counters().of(FaultKind::LostWrite);
    }
    assert!(
        lost.iter().all(|lost| *lost > 5),
        "tables were to be lost during moves, and behind them: {lost:?}"
    );
}

/// A disk that takes its time to read a table, once that is said.
struct SlowTables(Rc<Cell<Duration>>);

impl LatencyModel for SlowTables {
    fn latency(&self, request: Request, random: &mut Random) -> Duration {
        let is_table = request.kind == CommandKind::Read && request.at >= DATA_AT && request.length == 4096;
        SimpleLatency::FAST.latency(request, random) + if is_table { self.0.get() } else { Duration::ZERO }
    }
}

/// Before a row leaves a disk its tables are read back. Who writes to it meanwhile waits for none of these reads.
#[test]
fn nobody_waits_while_tables_are_read_back() {
    const READ: Duration = Duration::from_secs(1);
    let takes = Rc::new(Cell::new(Duration::ZERO));
    let profile = || DiskProfile { latency: Rc::new(SlowTables(Rc::clone(&takes))), ..file(CAPACITY) };
    let bench = bench_where(1, 2, profile);
    let spare = bench.disks[1].attach(&bench.world);
    let replaced = bench.run_in(bench.lab_with(|disk| disk == 0), async move |lab| {
        let spaces = lab.create().await?;
        let space = lab.space(&spaces, "data", Bytes::mib(1), Resiliency::Simple).await?;
        fill(&lab, &spaces, &space).await?;
        spaces.flush().await?;
        let old = spaces.pool().members().find_disk("disk0")?;
        let new = spaces.pool().membership().add_instead_of(&old, spare, &[]).await?;
        takes.set(READ);
        let (clock, begun) = (lab.seams.clock.as_ref(), lab.seams.clock.now());
        let (is_over, longest) = (Cell::new(false), Cell::new(Duration::ZERO));
        let replace = async {
            let is_whole =
                spaces.moves().finish_replacing(&old, &new, &Progress::default()).await.map_err(text)?;
            is_over.set(true);
            if is_whole { Ok(()) } else { Err("something is left".to_owned()) }
        };
        let write = async {
            for block in (0..1 << 20).step_by(4096).cycle().take_while(|_| !is_over.get()) {
                let asked = clock.now();
                lab.write(&space, block, 4096, 4).await.map_err(text)?;
                longest.set(longest.get().max(clock.now().since(asked)));
                pause(&lab, 7).await;
            }
            Ok(())
        };
        extra(vec![Box::pin(replace), Box::pin(write)]).await?;
        takes.set(Duration::ZERO);
        let took = clock.now().since(begun);
        assert!(took > READ, "no table was read in {took:?}");
        assert!(longest.get() < READ / 4, "a write took {:?}", longest.get());
        drop(space);
        lab.check_and_close(spaces).await
    });
    replaced.unwrap();
}
