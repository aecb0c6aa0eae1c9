//! Jobs that are held, released and stopped (docs/design/0011).
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dolmen_block_io::sync::{Either, Notify, either};
use dolmen_pool::{Disk, ExcludeReason};
use dolmen_space::{Progress, Resiliency, Space, SpaceError, SpaceSpec, Spaces};
use dolmen_units::Bytes;

use crate::harness::slow_disks::{Slow, extra, pause, text};
use crate::harness::{Bench, Lab, Outcome, ROW};

/// More on each of four disks than is moved in one lot.
const ROWS: u64 = 80;
/// What is written of each row.
const PIECE: usize = 32 << 10;
/// When a job is held, in milliseconds behind its beginning.
const HOLD_TIMES: [u64; 7] = [0, 2, 10, 25, 50, 100, 300];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Resync,
    Replace,
    Drain,
    Verify,
    Rebalance,
    Shrink,
}

const KINDS: [Kind; 6] =
    [Kind::Resync, Kind::Replace, Kind::Drain, Kind::Verify, Kind::Rebalance, Kind::Shrink];

/// A pool with something to do, and what the job is about.
struct Scene {
    lab: Lab,
    spaces: Rc<Spaces>,
    space: Space,
    kind: Kind,
    disks: RefCell<Vec<Rc<Disk>>>,
    progress: Progress,
    has_ended: Cell<bool>,
    notify: Notify,
}

impl Scene {
    async fn set(lab: &Lab, kind: Kind) -> Result<Self, Box<dyn std::error::Error>> {
        let four = Lab { devices: lab.devices[..4].to_vec(), ..lab.clone() };
        let spaces = four.create().await?;
        let resiliency = match kind {
            Kind::Shrink => Resiliency::Parity { parity: 1 },
            _ => Resiliency::Mirror { copies: 2 },
        };
        let mut spec = SpaceSpec::usual("data".parse()?, Bytes::mib(ROWS), resiliency);
        (spec.row, spec.interleave) = (Some(ROW), Bytes::kib(64));
        let space = spaces.create(spec).await?;
        let scene = Self {
            lab: lab.clone(),
            spaces,
            space,
            kind,
            disks: RefCell::default(),
            progress: Progress::default(),
            has_ended: Cell::new(false),
            notify: Notify::new(),
        };
        scene.prepare().await?;
        Ok(scene)
    }

    async fn fill(&self, fill: u8) -> Outcome {
        for row in 0..ROWS {
            self.lab.write(&self.space, row << 20, PIECE, fill).await?;
        }
        Ok(self.spaces.flush().await?)
    }

    async fn prepare(&self) -> Outcome {
        let pool = self.spaces.pool();
        let disk = pool.members().find_disk("disk1")?;
        self.fill(1).await?;
        match self.kind {
            Kind::Resync => {
                // The way to it that there was before is fenced.
                let device = Rc::clone(&self.lab.devices[5]);
                pool.exclude(disk.slot(), ExcludeReason::Asked).await?;
                self.fill(2).await?;
                self.spaces.members().rejoin(device).await?;
            }
            Kind::Replace => {
                let new =
                    pool.membership().add_instead_of(&disk, Rc::clone(&self.lab.devices[4]), &[]).await?;
                self.disks.borrow_mut().extend([disk, new]);
            }
            Kind::Drain => {
                pool.membership().retire(&disk).await?;
                self.disks.borrow_mut().push(disk);
            }
            Kind::Rebalance => {
                self.spaces.members().add(Rc::clone(&self.lab.devices[4]), &[]).await?;
            }
            Kind::Verify | Kind::Shrink => {}
        }
        Ok(())
    }

    /// Works until it is done, or has to end; whether it is done.
    async fn work(&self) -> Result<bool, SpaceError> {
        let (spaces, progress) = (&self.spaces, &self.progress);
        let disks = self.disks.borrow().clone();
        let done = match self.kind {
            Kind::Resync => {
                spaces.members().resync(progress).await.map(|_| ()).map(|()| !progress.is_to_stop())
            }
            Kind::Replace => spaces.moves().move_slabs(disks[0].slot(), disks[1].slot(), progress).await,
            Kind::Drain => spaces.moves().drain_disk(&disks[0], progress).await,
            Kind::Verify => spaces.scrubs().verify(progress).await.map(|seen| seen.is_sound()),
            Kind::Rebalance => spaces.moves().rebalance(progress).await,
            Kind::Shrink => match spaces.caches().resize_write_cache(1, Bytes::mib(4), progress).await {
                Err(SpaceError::CalledOff { .. }) => Ok(false),
                resized => resized.map(|_| true),
            },
        };
        self.has_ended.set(true);
        self.notify.notify_all();
        done
    }

    /// Waits until it stands; not where it ends before.
    async fn halted(&self) -> bool {
        let ended = self.notify.wait_for(|| self.has_ended.get().then_some(()));
        matches!(either(self.progress.halted(), ended).await, Either::First(()))
    }

    /// Writes to all disks so far, and their bytes.
    fn written(&self) -> (u64, u64) {
        let counters = self.lab.devices.iter().map(|device| device.counters());
        counters.fold((0, 0), |(writes, bytes), one| (writes + one.writes, bytes + one.write_bytes))
    }

    async fn expect(&self, space: &Space, fill: u8) -> Outcome {
        for row in 0..ROWS {
            self.lab.expect(space, row << 20, PIECE, fill).await?;
        }
        Ok(())
    }
}

/// All disks, and behind them another way to the second one.
fn lab(bench: &Bench) -> Lab {
    let mut lab = bench.lab();
    lab.devices.push(bench.disks[1].attach(&bench.world));
    lab
}

fn bench(seed: u64) -> Bench {
    Bench::with_profile(seed, 5, || Slow::BRIEFLY.profile())
}

/// Scenario: each kind of job is held at some moment, for half an hour in which nobody else does anything, and then while clients
/// write to every row. Nothing is written while nobody else does, it goes on behind its release, and everything is there.
#[test]
fn what_is_held_writes_nothing_and_goes_on_when_it_is_released() {
    for kind in KINDS {
        let held = Rc::new(Cell::new(0));
        for instant in HOLD_TIMES {
            let count = Rc::clone(&held);
            let bench = bench(7000 + instant);
            let verified = bench.run_in(lab(&bench), async move |lab| {
                let scene = Scene::set(&lab, kind).await?;
                let work = async {
                    assert!(scene.work().await.map_err(text)?, "it is not done");
                    Ok(())
                };
                let hold = async {
                    pause(&lab, instant).await;
                    scene.progress.hold();
                    if !scene.halted().await {
                        return Ok(());
                    }
                    // What was begun beside it, such as a checkpoint, ends.
                    pause(&lab, 60_000).await;
                    let (done, before) = (scene.progress.done.get(), scene.written());
                    pause(&lab, 1_800_000).await;
                    assert_eq!((scene.progress.done.get(), scene.written()), (done, before));
                    scene.fill(3).await.map_err(text)?;
                    assert_eq!(scene.progress.done.get(), done);
                    scene.progress.release();
                    count.set(count.get() + 1);
                    Ok(())
                };
                extra(vec![Box::pin(work), Box::pin(hold)]).await?;
                scene.fill(3).await?;
                scene.expect(&scene.space, 3).await?;
                let Scene { spaces, space, .. } = scene;
                drop(space);
                lab.check_and_close(spaces).await
            });
            verified.unwrap_or_else(|error| panic!("{kind:?} at {instant} ms: {error}"));
        }
        assert!(held.get() >= 2, "{kind:?} was held {} times", held.get());
    }
}

/// Scenario: a job that is held is stopped, or the spaces are closed; in the same instant it ends, and says that it is not done.
/// The next opening finds everything, and the job can be done then.
#[test]
fn what_is_held_ends_at_once_when_it_is_stopped_or_the_spaces_close() {
    for kind in KINDS {
        for (instant, closes) in
            HOLD_TIMES.into_iter().flat_map(|instant| [(instant, false), (instant, true)])
        {
            let bench = bench(7500 + instant);
            let verified = bench.run_in(lab(&bench), async move |lab| {
                let scene = Scene::set(&lab, kind).await?;
                let ended_at = Cell::new(None);
                let work = async {
                    let done = scene.work().await.map_err(text)?;
                    ended_at.set(Some((done, lab.seams.clock.now())));
                    Ok(())
                };
                let hold = async {
                    pause(&lab, instant).await;
                    scene.progress.hold();
                    if !scene.halted().await {
                        return Ok(());
                    }
                    let asked_at = lab.seams.clock.now();
                    if closes {
                        scene.spaces.close().await.map_err(text)?;
                    } else {
                        scene.progress.stop();
                        pause(&lab, 1000).await;
                    }
                    let is_resync_closed = kind == Kind::Resync && closes;
                    let (done, at) = ended_at.get().unwrap();
                    assert!(at == asked_at && (!done || is_resync_closed), "{done}, {at:?}");
                    Ok(())
                };
                extra(vec![Box::pin(work), Box::pin(hold)]).await?;
                if !closes {
                    scene.spaces.close().await?;
                }
                Ok(())
            });
            verified.unwrap_or_else(|error| panic!("{kind:?} at {instant} ms, {closes}: {error}"));
            let verified = bench.run(async move |lab| {
                let spaces = lab.open().await?;
                let space = spaces.find("data")?;
                for row in 0..ROWS {
                    let fill = if kind == Kind::Resync { 2 } else { 1 };
                    lab.expect(&space, row << 20, PIECE, fill).await?;
                }
                let progress = Progress::default();
                let pool = spaces.pool();
                for (old, new) in pool.members().replacements() {
                    assert!(spaces.moves().finish_replacing(&old, &new, &progress).await?);
                }
                for disk in spaces.moves().drains() {
                    assert!(spaces.moves().drain_disk(&disk, &progress).await?);
                    pool.membership().evict(&disk).await?;
                }
                spaces.members().resync(&progress).await?;
                drop(space);
                lab.check_and_close(spaces).await
            });
            verified.unwrap_or_else(|error| panic!("{kind:?} at {instant} ms, {closes}, again: {error}"));
        }
    }
}
