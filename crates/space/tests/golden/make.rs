//! How golden images are made: one life of a pool that comes through everything the format has, stopped at three places.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::error::Error;
use std::rc::Rc;
use std::sync::OnceLock;

use dolmen_block_io::Durability;
use dolmen_block_io::sync::join_all;
use dolmen_pool::Arbiter;
use dolmen_sim::{DiskProfile, Ran, StopAt, World};
use dolmen_space::{
    Integrity, Progress, Provisioning, Resiliency, Space, SpaceSpec, Spaces, WriteCacheDrain,
};
use dolmen_units::{Bytes, EpochId, HostId, PoolId};

use super::content::{Content, SpaceContent, attributes_of, fill_blocks, kind_of};
use super::{BLOCK, Disk, Golden, stored};
use crate::harness::{Bench, Lab, Outcome};

/// Sizes of the disks in MiB.
const DISKS: [u64; 6] = [64, 80, 96, 112, 128, 160];
const SEED: u64 = 1;
const HOST: HostId = HostId([7; 16]);
/// Changes of disks after which power fails, in the midst of writes to all spaces.
const CUT_AFTER: u64 = 90;
/// The disk that is away from the second image on.
const AWAY: usize = 3;

/// A space to be made: name, resiliency, MiB, MiB of a row, KiB of an interleave, provisioning, bytes of a sector.
type Plan = (&'static str, Resiliency, u64, u64, u64, Provisioning, u64);

/// Pools that are kept together: what is on them, and which of their spaces come through what.
pub struct Set {
    /// What the names of their files begin with.
    pub name: &'static str,
    plans: &'static [Plan],
    /// How spaces without parity are written over.
    integrity: Integrity,
    /// Those that are written while a disk is away: they have more copies than one, or parity.
    redundant: &'static [&'static str],
    /// Those whose blocks are in write caches, of which there are so many.
    cached: &'static [&'static str],
    cache_count: usize,
    /// The disk that misses writes in the first image.
    after: usize,
    /// When write caches are emptied, where that is not as usual.
    drain: Option<WriteCacheDrain>,
    /// Those over whose first row streams go.
    streams: &'static [&'static str],
    /// Those of which single stripes go to shadow rows and back, and the blocks of a stripe.
    slots: &'static [(&'static str, u64)],
    /// What was made in this run.
    made: OnceLock<StoredSet>,
}

/// The images of a set as they are stored.
pub struct StoredSet {
    /// All disks of all images.
    pub images: Vec<u8>,
    /// What the spaces of each image hold, by its name.
    pub contents: Vec<(&'static str, String)>,
}

impl Set {
    /// How many rows have shadow rows.
    fn shadows(&self) -> u64 {
        (self.streams.len() + self.slots.len()) as u64
    }

    /// Its images as they are stored: made once in each run.
    pub fn stored(&'static self) -> &'static StoredSet {
        self.made.get_or_init(|| {
            let made = make(self);
            let disks: Vec<(&str, &[Disk])> =
                made.iter().map(|(name, golden)| (*name, &*golden.disks)).collect();
            let contents = made.iter().map(|(name, golden)| (*name, golden.content.to_text())).collect();
            StoredSet { images: stored::pack(&disks), contents }
        })
    }

    /// Its images, with their names.
    pub fn images(&'static self) -> Vec<(String, Golden)> {
        let StoredSet { images, contents } = self.stored();
        let with_content = |((name, disks), (of, content)): ((String, Vec<Disk>), &(&str, String))| {
            assert_eq!(name, *of, "images and contents are in one order");
            (format!("{}-{name}", self.name), Golden { disks, content: Content::parse(content) })
        };
        stored::unpack(images).into_iter().zip(contents).map(with_content).collect()
    }
}

/// Spaces of every resiliency.
pub static EVERY_KIND: Set = Set {
    name: "3",
    plans: &PLANS,
    integrity: Integrity::Relaxed,
    redundant: &["two", "three", "four", "parity", "dual", "fixed", "firm"],
    cached: &["parity", "dual", "firm"],
    cache_count: 2,
    after: 1,
    drain: None,
    streams: &[],
    slots: &[],
    made: OnceLock::new(),
};

/// Strict spaces without parity; and settings of write caches.
pub static STRICT: Set = Set {
    name: "3-strict",
    plans: &STRICT_PLANS,
    integrity: Integrity::Strict,
    redundant: &["two", "three", "four", "fixed"],
    cached: &["simple", "span", "two", "three", "four", "fixed"],
    cache_count: 4,
    after: 2,
    drain: Some(WriteCacheDrain { fill: 60, rate: Some(Bytes::mib(200)) }),
    streams: &[],
    slots: &[],
    made: OnceLock::new(),
};

/// Streams over rows with parity, whose shadow rows are there in all images.
pub static SHADOWS: Set = Set {
    name: "3-stream",
    plans: &SHADOWS_PLANS,
    integrity: Integrity::Relaxed,
    redundant: &["two", "parity", "twin", "firm"],
    cached: &["parity", "twin", "firm"],
    cache_count: 2,
    after: 4,
    drain: None,
    streams: &["parity", "twin", "firm"],
    slots: &[],
    made: OnceLock::new(),
};

/// Single stripes over rows with parity: lines lie in rows and shadow rows, and are on their way alternately.
pub static SLOTS: Set = Set {
    name: "3-slots",
    plans: &SHADOWS_PLANS,
    integrity: Integrity::Relaxed,
    redundant: &["two", "parity", "twin", "firm"],
    cached: &["parity", "twin", "firm"],
    cache_count: 2,
    after: 5,
    drain: None,
    streams: &[],
    slots: &[("parity", 20), ("twin", 32), ("firm", 40)],
    made: OnceLock::new(),
};

const SHADOWS_PLANS: [Plan; 4] = [
    ("two", Resiliency::Mirror { copies: 2 }, 4, 1, 64, Provisioning::Thin, 512),
    ("parity", Resiliency::Parity { parity: 1 }, 4, 1, 16, Provisioning::Thin, 4096),
    ("twin", Resiliency::Parity { parity: 2 }, 4, 1, 32, Provisioning::Thin, 4096),
    ("firm", Resiliency::Parity { parity: 1 }, 2, 1, 32, Provisioning::Fixed, 512),
];

const STRICT_PLANS: [Plan; 6] = [
    ("simple", Resiliency::Simple, 4, 1, 64, Provisioning::Thin, 4096),
    ("span", Resiliency::Span, 8, 4, 64, Provisioning::Thin, 4096),
    ("two", Resiliency::Mirror { copies: 2 }, 4, 1, 64, Provisioning::Thin, 512),
    ("three", Resiliency::Mirror { copies: 3 }, 4, 1, 16, Provisioning::Thin, 4096),
    ("four", Resiliency::Mirror { copies: 4 }, 4, 1, 256, Provisioning::Thin, 4096),
    ("fixed", Resiliency::Mirror { copies: 2 }, 2, 1, 64, Provisioning::Fixed, 4096),
];

const PLANS: [Plan; 9] = [
    ("simple", Resiliency::Simple, 4, 1, 64, Provisioning::Thin, 4096),
    ("span", Resiliency::Span, 8, 4, 64, Provisioning::Thin, 4096),
    ("two", Resiliency::Mirror { copies: 2 }, 4, 1, 64, Provisioning::Thin, 512),
    ("three", Resiliency::Mirror { copies: 3 }, 4, 1, 16, Provisioning::Thin, 4096),
    ("four", Resiliency::Mirror { copies: 4 }, 4, 1, 256, Provisioning::Thin, 4096),
    ("parity", Resiliency::Parity { parity: 1 }, 4, 1, 16, Provisioning::Thin, 4096),
    ("dual", Resiliency::Parity { parity: 2 }, 16, 8, 64, Provisioning::Thin, 4096),
    ("fixed", Resiliency::Mirror { copies: 2 }, 2, 1, 64, Provisioning::Fixed, 4096),
    ("firm", Resiliency::Parity { parity: 1 }, 2, 1, 32, Provisioning::Fixed, 512),
];

/// Whole stripes that nothing was written to: first block and count.
const FRESH: [(&str, u64, u64); 3] = [("parity", 808, 40), ("dual", 2560, 64), ("firm", 456, 40)];

/// Whole stripes, blocks in later pages of a table, and a row that comes and goes.
const FAR: [(&str, u64, u64); 7] = [
    ("span", 1022, 6),
    ("span", 504, 8),
    ("dual", 2040, 16),
    ("dual", 512, 64),
    ("parity", 512, 40),
    ("firm", 384, 40),
    ("two", 520, 3),
];

/// What is written, kept in mind.
#[derive(Clone)]
struct Maker {
    set: &'static Set,
    bench: Rc<Bench>,
    pool: Rc<Cell<PoolId>>,
    spaces: Rc<RefCell<BTreeMap<&'static str, SpaceContent>>>,
    fill: Rc<Cell<u16>>,
}

/// The images of a set, with their names.
pub fn make(set: &'static Set) -> Vec<(&'static str, Golden)> {
    let world = World::new(SEED);
    let arenas = dolmen_buffer::ArenaConfig::MODEST;
    world.set_arenas(arenas, arenas);
    let disks = DISKS.iter().enumerate();
    let disks = disks
        .map(|(number, mib)| world.add_disk(&format!("disk{number}"), DiskProfile::new(Bytes::mib(*mib))));
    let disks = disks.collect();
    let bench = Rc::new(Bench { world, disks, arbiter: dolmen_pool::MemoryArbiter::new(HOST) });
    let maker = Maker { set, bench, pool: Rc::default(), spaces: Rc::default(), fill: Rc::default() };
    let closed = maker.clone();
    maker.bench.run(async move |lab| closed.until_closed(lab).await).unwrap();
    maker.bench.world.kill();
    let closed = maker.golden();
    let killed = maker.clone();
    maker.bench.run(async move |lab| killed.until_killed(lab).await).unwrap();
    maker.bench.world.kill();
    maker.agree();
    let killed = maker.golden();
    maker.bench.disks[AWAY].come_back();
    let ready = Rc::new(RefCell::new(None));
    let (cut, findings) = (maker.clone(), Rc::clone(&ready));
    maker
        .bench
        .run(async move |lab| {
            *findings.borrow_mut() = Some((cut.until_cut(&lab).await?, lab));
            Ok(())
        })
        .unwrap();
    let (spaces, lab) = ready.take().unwrap();
    let cut = maker.clone();
    let storm = async move { cut.storm(&lab, &spaces).await.map_err(|error| error.to_string()) };
    let ran = maker.bench.world.run_to(StopAt::Commands(CUT_AFTER), storm).unwrap();
    assert_eq!(ran, Ran::Stopped, "power fails in the midst of writes");
    maker.bench.world.power_cut();
    vec![("closed", closed), ("killed", killed), ("cut", maker.golden())]
}

impl Maker {
    fn golden(&self) -> Golden {
        let disks = self.bench.disks.iter();
        let disks =
            disks.map(|disk| Disk { capacity: disk.profile().geometry.capacity.0, image: disk.truth() });
        let pool = self.pool.get();
        let mut spaces: Vec<SpaceContent> = self.spaces.borrow().values().cloned().collect();
        spaces.sort_by_key(|space| space.number);
        let content = Content { pool, host: HOST, epoch: self.named(pool), spaces };
        Golden { disks: disks.collect(), content }
    }

    fn named(&self, pool: PoolId) -> EpochId {
        let arbiter = Rc::clone(&self.bench.arbiter);
        self.bench.world.run(async move { arbiter.named(pool).await }).unwrap().unwrap().unwrap().epoch
    }

    async fn space(&self, spaces: &Spaces, number: u8, plan: Plan) -> Outcome {
        let (name, resiliency, mib, row, interleave, provisioning, sector) = plan;
        let mut spec = SpaceSpec::usual(name.parse()?, Bytes::mib(mib), resiliency);
        spec.row = Some(Bytes::mib(row));
        spec.interleave = Bytes::kib(interleave);
        spec.provisioning = provisioning;
        spec.sector = Bytes(sector);
        if !matches!(resiliency, Resiliency::Parity { .. }) {
            spec.integrity = self.set.integrity;
        }
        let kind = kind_of(&spec);
        spaces.create_with(spec, attributes_of(number, name)).await?;
        let content =
            SpaceContent { number, name: name.to_owned(), kind, size: mib << 20, blocks: BTreeMap::new() };
        self.spaces.borrow_mut().insert(name, content);
        Ok(())
    }

    /// Blocks may hold this from now on, too.
    fn note(&self, name: &'static str, first: u64, count: u64, fill: u16) -> u8 {
        let mut spaces = self.spaces.borrow_mut();
        let space = spaces.get_mut(name).unwrap();
        for block in first..first + count {
            space.blocks.entry(block).or_insert_with(|| vec![0]).push(fill);
        }
        space.number
    }

    /// Everything that was written counts: blocks hold what came last.
    fn agree(&self) {
        for space in self.spaces.borrow_mut().values_mut() {
            space.blocks.values_mut().for_each(|fills| *fills = vec![*fills.last().unwrap()]);
        }
    }

    async fn put(&self, lab: &Lab, spaces: &Spaces, name: &'static str, first: u64, count: u64) -> Outcome {
        self.fill.set(self.fill.get() + 1);
        let fill = self.fill.get();
        let number = self.note(name, first, count, fill);
        let space = spaces.find(name)?;
        let mut buffer = lab.seams.data.take(count as usize * BLOCK).await;
        fill_blocks(number, first, fill, &mut buffer);
        Ok(space.write(first * BLOCK as u64, &buffer.freeze(), Durability::Cached).await?)
    }

    async fn discard(&self, spaces: &Spaces, name: &'static str, first: u64, count: u64) -> Outcome {
        self.note(name, first, count, 0);
        let space = spaces.find(name)?;
        Ok(space.discard(first * BLOCK as u64, count * BLOCK as u64).await?)
    }

    async fn flush(&self, spaces: &Spaces) -> Outcome {
        spaces.flush().await?;
        self.agree();
        Ok(())
    }

    /// What every space comes through: written and flushed, written over, discarded, written again.
    async fn all_classes(&self, lab: &Lab, spaces: &Spaces, name: &'static str) -> Outcome {
        self.put(lab, spaces, name, 0, 20).await?;
        self.put(lab, spaces, name, 250, 12).await?;
        self.flush(spaces).await?;
        self.put(lab, spaces, name, 3, 5).await?;
        self.put(lab, spaces, name, 30, 4).await?;
        self.put(lab, spaces, name, 31, 1).await?;
        self.discard(spaces, name, 10, 4).await?;
        self.flush(spaces).await?;
        self.put(lab, spaces, name, 11, 1).await
    }

    /// The first image: a pool that was closed, with a disk that misses something.
    async fn until_closed(&self, lab: Lab) -> Outcome {
        let spaces = lab.create().await?;
        self.pool.set(spaces.pool().id());
        self.a_space_that_goes(&lab, &spaces).await?;
        for (index, plan) in self.set.plans.iter().enumerate() {
            self.space(&spaces, index as u8 + 1, *plan).await?;
            self.all_classes(&lab, &spaces, plan.0).await?;
        }
        if let Some(drain) = self.set.drain {
            for cache in spaces.caches().write_caches().await? {
                spaces.caches().set_write_cache_drain(cache.redundancy, drain).await?;
            }
        }
        self.flush(&spaces).await?;
        spaces.caches().destage().await?;
        self.far_blocks(&lab, &spaces).await?;
        self.flush(&spaces).await?;
        spaces.pool().checkpoint().await?;
        self.stream(&lab, &spaces, 0, 96).await?;
        self.stripes(&lab, &spaces, &[(2, 3)]).await?;
        self.stripes(&lab, &spaces, &[(2, 1), (3, 1)]).await?;
        self.stripes(&lab, &spaces, &[(2, 1)]).await?;
        assert_eq!(spaces.counters().shadows_made, self.set.shadows(), "each has a shadow row");
        self.bench.disks[self.set.after].vanish();
        for &name in self.set.redundant {
            self.put(&lab, &spaces, name, 1, 3).await?;
        }
        self.flush(&spaces).await?;
        spaces.caches().destage().await?;
        self.bench.disks[self.set.after].come_back();
        spaces.members().rejoin(self.bench.disks[self.set.after].attach(&self.bench.world)).await?;
        assert!(!spaces.members().stale_rows().await?.is_empty(), "something is stale");
        for &name in self.set.cached {
            self.put(&lab, &spaces, name, 14, 3).await?;
            self.discard(&spaces, name, 253, 2).await?;
        }
        self.flush(&spaces).await?;
        let caches = spaces.caches().write_caches().await?;
        assert!(
            caches.len() == self.set.cache_count && caches.iter().all(|cache| cache.waiting.0 > 0),
            "something is cached"
        );
        spaces.close().await?;
        Ok(())
    }

    /// Its slabs hold what belongs to nobody, for the next owners.
    async fn a_space_that_goes(&self, lab: &Lab, spaces: &Rc<Spaces>) -> Outcome {
        let plan = ("gone", Resiliency::Mirror { copies: 2 }, 4, 1, 64, Provisioning::Thin, 4096);
        self.space(spaces, 200, plan).await?;
        for row in 0..4 {
            self.put(lab, spaces, "gone", row * 256, 24).await?;
        }
        self.flush(spaces).await?;
        let freed: Space = spaces.find("gone")?;
        spaces.changes().delete(&freed).await?;
        self.spaces.borrow_mut().remove("gone");
        self.flush(spaces).await
    }

    /// Brings whole stripes over what the first rows of some spaces hold.
    async fn stream(&self, lab: &Lab, spaces: &Spaces, first: u64, count: u64) -> Outcome {
        for &name in self.set.streams {
            self.put(lab, spaces, name, first, count).await?;
        }
        self.flush(spaces).await
    }

    /// Writes whole stripes, the first and how many, of spaces of which they alternate.
    async fn stripes(&self, lab: &Lab, spaces: &Spaces, stripes: &[(u64, u64)]) -> Outcome {
        for &(name, stripe) in self.set.slots {
            for (first, count) in stripes {
                self.put(lab, spaces, name, first * stripe, count * stripe).await?;
            }
        }
        self.flush(spaces).await
    }

    async fn far_blocks(&self, lab: &Lab, spaces: &Rc<Spaces>) -> Outcome {
        let is_there = |name: &str| self.set.plans.iter().any(|(other, ..)| *other == name);
        for (name, first, count) in FAR.into_iter().filter(|(name, ..)| is_there(name)) {
            self.put(lab, spaces, name, first, count).await?;
        }
        self.flush(spaces).await?;
        self.discard(spaces, "two", 512, 256).await?;
        self.flush(spaces).await
    }

    /// The second image: a disk has left for good, and the daemon dies with much in its log and nothing under way.
    async fn until_killed(&self, lab: Lab) -> Outcome {
        let spaces = lab.open().await?;
        assert_eq!(spaces.counters().shadows_found, self.set.shadows(), "each has a shadow row");
        self.flush(&spaces).await?;
        spaces.pool().checkpoint().await?;
        self.stream(&lab, &spaces, 96, 48).await?;
        self.stripes(&lab, &spaces, &[(4, 1), (3, 1)]).await?;
        for &(name, ..) in self.set.plans {
            self.put(&lab, &spaces, name, 40, 6).await?;
        }
        self.flush(&spaces).await?;
        for &(name, ..) in self.set.plans {
            self.put(&lab, &spaces, name, 41, 2).await?;
            self.put(&lab, &spaces, name, 5, 1).await?;
        }
        self.flush(&spaces).await?;
        self.bench.disks[AWAY].vanish();
        for &name in self.set.redundant {
            self.put(&lab, &spaces, name, 44, 4).await?;
            self.put(&lab, &spaces, name, 300, 2).await?;
            self.discard(&spaces, name, 32, 1).await?;
        }
        self.flush(&spaces).await?;
        for &name in self.set.redundant {
            self.put(&lab, &spaces, name, 45, 1).await?;
            self.put(&lab, &spaces, name, 60, 2).await?;
        }
        for &(name, stripe) in self.set.slots {
            self.put(&lab, &spaces, name, 4 * stripe, stripe).await?;
        }
        assert!(
            self.set.slots.is_empty() || spaces.counters().stripes_switched > 0,
            "lines have gone alternately"
        );
        Ok(())
    }

    /// The third image: both disks got what they had missed, and power fails.
    async fn until_cut(&self, lab: &Lab) -> Result<Rc<Spaces>, Box<dyn Error>> {
        let spaces = lab.open().await?;
        assert_eq!(spaces.counters().shadows_found, self.set.shadows(), "each has a shadow row");
        spaces.members().resync(&Progress::default()).await?;
        self.flush(&spaces).await?;
        spaces.caches().destage().await?;
        for &(name, ..) in self.set.plans {
            self.put(lab, &spaces, name, 70, 4).await?;
        }
        self.flush(&spaces).await?;
        Ok(spaces)
    }

    /// Writes to all spaces at once, until power fails. Of those with parity, first to whole stripes that were never written.
    async fn storm(&self, lab: &Lab, spaces: &Rc<Spaces>) -> Outcome {
        let storms = self.set.plans.iter().map(async |&(name, ..)| {
            for (_, first, count) in FRESH.into_iter().filter(|(of, ..)| *of == name) {
                self.put(lab, spaces, name, first, count).await?;
            }
            for (_, stripe) in self.set.slots.iter().filter(|(of, _)| *of == name) {
                self.put(lab, spaces, name, 3 * stripe, *stripe).await?;
                self.put(lab, spaces, name, 2 * stripe, *stripe).await?;
            }
            if self.set.streams.contains(&name) {
                self.put(lab, spaces, name, 144, 40).await?;
            }
            self.put(lab, spaces, name, 71, 2).await?;
            self.put(lab, spaces, name, 80, 3).await?;
            self.put(lab, spaces, name, 81, 1).await?;
            self.discard(spaces, name, 4, 1).await?;
            self.put(lab, spaces, name, 0, 24).await?;
            self.put(lab, spaces, name, 72, 20).await
        });
        join_all(storms).await.into_iter().collect()
    }
}
