//! The pools that are forged: small ones, as an engine left them that was closed, killed, or had lost sight of a disk.

use std::rc::Rc;

use dolmen_block_io::Durability::Cached;
use dolmen_pool::{Arbiter, OpenMode};
use dolmen_sim::Image;
use dolmen_space::{Attribute, Integrity, Progress, Provisioning, Resiliency, Space, SpaceSpec, Spaces};
use dolmen_store::Key;
use dolmen_units::{Bytes, EpochId, PoolId};

use crate::content::Tag;
use crate::image::forge::{Structure, structures_of};
use crate::image::verdict::has_twins;
use crate::lab::{Bench, Failure, Lab, Once};

/// Blocks of each space: four rows.
pub(crate) const BLOCKS: u32 = 1024;
/// Rows as short as they may be, so that small disks hold many.
const ROW: Bytes = Bytes::mib(1);
/// Values of the map that are taken along, at most.
const ENTRIES_MAX: usize = 400;

/// A pool that was left.
#[derive(Clone)]
pub(crate) struct Base {
    pub(crate) images: Vec<Image>,
    /// What its host has on record.
    pub(crate) named: Option<(PoolId, EpochId)>,
    /// What stands on its disks.
    pub(crate) structures: Vec<Structure>,
    /// What stands on its map.
    pub(crate) entries: Vec<(Key, Vec<u8>)>,
}

/// The spaces of a base, in the order of their numbers from 1 on.
fn specs() -> Vec<SpaceSpec> {
    let size = Bytes(u64::from(BLOCKS) * 4096);
    let spec = |name: &str, resiliency| {
        let mut spec = SpaceSpec::usual(name.parse().expect("a name"), size, resiliency);
        spec.row = Some(ROW);
        spec.interleave = Bytes::kib(64);
        spec
    };
    let mut strict = spec("strict", Resiliency::Mirror { copies: 2 });
    strict.integrity = Integrity::Strict;
    let mut fixed = spec("fixed", Resiliency::Simple);
    fixed.provisioning = Provisioning::Fixed;
    let parity = spec("parity", Resiliency::Parity { parity: 1 });
    vec![spec("mirror", Resiliency::Mirror { copies: 2 }), parity, strict, fixed]
}

/// Writes to all spaces: fresh, again, flushed and not, and discards.
async fn live(bench: &Bench, spaces: &Spaces, all: &[Space], fill: u16) -> Result<(), Failure> {
    for (space, number) in all.iter().zip(1..) {
        let tag = |block, fill| Tag { space: number, block, fill };
        bench.write(space, tag(0, fill), 40, Cached).await?;
        bench.write(space, tag(250, fill), 12, Cached).await?;
        bench.write(space, tag(600, fill), 3, Cached).await?;
        spaces.flush().await?;
        bench.write(space, tag(5, fill + 1), 9, Cached).await?;
        space.discard(30 * 4096, 6 * 4096).await?;
        bench.write(space, tag(700, fill + 1), 1, Cached).await?;
    }
    Ok(())
}

async fn begin(bench: &Bench) -> Result<(Rc<Spaces>, Vec<Space>), Failure> {
    let spaces = bench.create().await?;
    let mut all = Vec::new();
    for (spec, kind) in specs().into_iter().zip(1..) {
        let attribute = |number| Attribute { kind, number, value: vec![kind; 20] };
        all.push(spaces.create_with(spec, vec![attribute(0), attribute(1)]).await?);
    }
    live(bench, &spaces, &all, 1).await?;
    spaces.flush().await?;
    Ok((spaces, all))
}

/// How a pool was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It was closed.
    Closed,
    /// Its engine died, with much in the log.
    Killed,
    /// The engine died behind a time without one of the disks, and with a space in the trash.
    Away,
}

async fn runs(bench: Bench, end: End) -> Result<Vec<(Key, Vec<u8>)>, Failure> {
    let (spaces, all) = begin(&bench).await?;
    if end == End::Away {
        spaces.caches().destage().await?;
        let old = spaces.create(SpaceSpec { name: "old".parse()?, ..specs().swap_remove(0) }).await?;
        bench.write(&old, Tag { space: 9, block: 0, fill: 1 }, 4, Cached).await?;
        spaces.trash().move_to_trash(&old, 77).await?;
    }
    let entries = spaces.pool().map().scan(Key([0; 24])..Key([255; 24]), ENTRIES_MAX).await?;
    if end == End::Closed {
        spaces.close().await?;
    } else {
        live(&bench, &spaces, &all, 5).await?;
    }
    Ok(entries)
}

fn make(end: End) -> Base {
    let lab = Lab::new(11, vec![Image::new(); 3]);
    let mut entries = lab.run(|bench| async move { runs(bench, end).await.expect("a pool is made") });
    lab.world.kill();
    if end == End::Away {
        let bench = lab.bench(|disk| disk != 2);
        let without = async move {
            let spaces = bench.open(OpenMode::Write).await?;
            let all: Vec<Space> =
                ["mirror", "parity", "strict"].iter().filter_map(|name| spaces.find(name).ok()).collect();
            live(&bench, &spaces, &all, 9).await?;
            let entries = spaces.pool().map().scan(Key([0; 24])..Key([255; 24]), ENTRIES_MAX).await?;
            Ok::<_, Failure>(entries)
        };
        entries = lab.world.run(without).expect("it ends").expect("a pool goes on with two of three disks");
        lab.world.kill();
    }
    let found = lab.run(|bench| async move {
        let spaces = bench.open(OpenMode::Read).await.expect("a base is a pool");
        let verified = spaces.scrubs().verify(&Progress::default()).await.expect("a base can be read");
        assert!(verified.lost.is_empty(), "{verified:?}");
        assert!(!has_twins(&spaces).await, "nothing would be demanded of what is written");
        let pool = spaces.pool().id();
        bench.arbiter.named(pool).await.ok().flatten().map(|record| (pool, record.epoch))
    });
    let images = lab.images();
    Base { structures: structures_of(&images), images, named: found, entries }
}

/// All bases.
pub(crate) fn bases() -> Rc<Vec<Base>> {
    thread_local!(static BASES: Once<Vec<Base>> = const { Once::new() });
    BASES.with(|bases| bases.get(|| [End::Killed, End::Closed, End::Away].map(make).to_vec()))
}
