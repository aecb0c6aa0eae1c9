//! Each figure against pools that are really made: what the planner says is usable is accepted to the last row, and
//! one row more is refused. What failures lose is compared with the rows that the pool's map then holds.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "helpers of tests: a panic here is a failed test, and the numbers are small"
)]

use std::collections::BTreeSet;
use std::error::Error;
use std::rc::Rc;

use dolmen_block_io::{BlockDevice, MemoryDevice, Seams};
use dolmen_buffer::ArenaConfig;
use dolmen_plan::{Answer, Basis, Disk, Disks, Layout, Plan, PlanRequest, Unit};
use dolmen_pool::{CreateOptions, MemoryArbiter, create, keys};
use dolmen_sim::{Random, World};
use dolmen_space::{Provisioning, Resiliency, SpaceError, SpaceSpec, Spaces};
use dolmen_units::{Bytes, HostId};

/// Sets of disks that are tried. Without optimization each takes a quarter of a second, and all tests of this crate
/// together are to end within a minute.
const SETS: u64 = if cfg!(debug_assertions) { 60 } else { 1000 };
/// Parts that they are tried in.
const PARTS: usize = 2;
/// Pools that are made in one world.
const SETS_PER_WORLD: u64 = 16;
/// What this version can make.
const LAYOUTS: [(&str, Resiliency); 7] = [
    ("simple", Resiliency::Simple),
    ("span", Resiliency::Span),
    ("mirror:2", Resiliency::Mirror { copies: 2 }),
    ("mirror:3", Resiliency::Mirror { copies: 3 }),
    ("mirror:4", Resiliency::Mirror { copies: 4 }),
    ("parity:1", Resiliency::Parity { parity: 1 }),
    ("parity:2", Resiliency::Parity { parity: 2 }),
];

/// A drawn set: sizes, fault domains (0 for alone) and the length of rows, none for the usual.
#[derive(Debug, Clone)]
struct Drawn {
    sizes: Vec<Bytes>,
    domains: Vec<u32>,
    row: Option<Bytes>,
    /// Which layout is claimed.
    claimed: usize,
}

impl Drawn {
    /// Sizes are alike, of two or three kinds, or all different; ends are ragged by bytes.
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = 1 + random.below(9);
        let row = (random.below(3) > 0).then_some(Bytes::mib(1));
        let largest = if row.is_some() { 320 } else { 3072 };
        let kinds: Vec<u64> = (0..1 + random.below(4)).map(|_| 64 + random.below(largest)).collect();
        let is_free = random.coin();
        let size = |random: &mut Random| {
            let mib = if is_free { 64 + random.below(largest) } else { kinds[random.index(kinds.len())] };
            Bytes((mib << 20) + random.below(3) * random.below(1 << 20))
        };
        let sizes = (0..count).map(|_| size(&mut random)).collect();
        let has_domains = random.below(3) == 0;
        let domains = (0..count).map(|_| if has_domains { random.below(4) as u32 } else { 0 }).collect();
        Self { sizes, domains, row, claimed: random.index(LAYOUTS.len()) }
    }

    fn plan(&self) -> Plan {
        let disks = self.sizes.iter().zip(&self.domains).enumerate().map(|(at, (size, domain))| {
            let domain = (*domain > 0).then(|| format!("d{domain}"));
            Disk::new(format!("{at}"), *size, domain).unwrap()
        });
        let layouts: Vec<Layout> = LAYOUTS.iter().map(|(word, _)| word.parse().unwrap()).collect();
        let usual = PlanRequest::usual(Disks::new(disks.collect()));
        let added = vec![Disk::new("added".to_owned(), Bytes::mib(200), None).unwrap()];
        Plan::make(&PlanRequest { layouts, added, row: self.row, ..usual })
    }

    fn spec(&self, name: &str, rows: u64, resiliency: Resiliency) -> SpaceSpec {
        let row = self.row.unwrap_or(dolmen_space::ROW_BYTES);
        let usual = SpaceSpec::usual(name.parse().unwrap(), Bytes(rows * row.0), resiliency);
        SpaceSpec { row: self.row, provisioning: Provisioning::Fixed, ..usual }
    }
}

async fn pool_of(seams: Seams, drawn: &Drawn) -> Result<Rc<Spaces>, Box<dyn Error>> {
    let devices: Vec<Rc<dyn BlockDevice>> = (0..)
        .zip(&drawn.sizes)
        .map(|(at, size)| MemoryDevice::new(&format!("disk{at}"), *size) as Rc<dyn BlockDevice>)
        .collect();
    let options =
        CreateOptions { name: "tank".parse()?, overwrite: Vec::new(), fault_domains: drawn.domains.clone() };
    let arbiter = MemoryArbiter::new(HostId([7; 16]));
    let opened = create(&seams, arbiter, &devices, &options).await?;
    Ok(Spaces::start(opened).await?)
}

/// Every layout: accepted to the last row, refused with one more.
fn check_accepted(spaces: &Spaces, drawn: &Drawn, plan: &Plan) -> Result<(), String> {
    for ((word, resiliency), answer) in LAYOUTS.iter().zip(&plan.answers) {
        let refused = |rows| spaces.changes().check_create(&drawn.spec("x", rows, *resiliency)).err();
        let Some(room) = &answer.room else {
            match refused(1) {
                Some(SpaceError::TooFewDisks { needed, found, .. })
                    if needed == answer.minimum_domains && found == plan.domain_count as usize => {}
                other => return Err(format!("{word}: {:?}, the pool says {other:?}", answer.problem)),
            }
            continue;
        };
        if let Some(error) = (room.rows > 0).then(|| refused(room.rows)).flatten() {
            return Err(format!("{word}: {} rows are refused: {error}", room.rows));
        }
        if refused(room.rows + 1).is_none() {
            return Err(format!("{word}: more than {} rows are accepted", room.rows));
        }
        if room.total_bytes() != plan.raw_bytes {
            return Err(format!("{word}: {} of {} bytes are listed", room.total_bytes(), plan.raw_bytes));
        }
    }
    Ok(())
}

/// What is lost together: the disks of each column of a row, and how many columns may be.
type Row = (BTreeSet<BTreeSet<usize>>, usize);

/// All rows, as the map has them (`docs/format/space.md`). Without parity each column stands for itself.
async fn rows_of(spaces: &Spaces) -> Result<BTreeSet<Row>, Box<dyn Error>> {
    let mut rows = BTreeSet::new();
    for (_, value) in spaces.pool().map().scan(keys::all(keys::Kind::Row), usize::MAX).await? {
        let parity = usize::from(value[6]);
        let mut columns = vec![BTreeSet::new(); usize::from(value[5]) + parity];
        let mut rest = &value[48..];
        while !rest.is_empty() {
            columns[usize::from(rest[2])].insert(usize::from(u16::from_le_bytes([rest[0], rest[1]])));
            rest = &rest[16 + 12 * usize::from(rest[3])..];
        }
        match parity {
            0 => rows.extend(columns.into_iter().map(|column| (BTreeSet::from([column]), 0))),
            _ => drop(rows.insert((columns.into_iter().collect(), parity))),
        }
    }
    Ok(rows)
}

/// Tries every set of failures against every row.
fn check_losses(rows: &BTreeSet<Row>, drawn: &Drawn, answer: &Answer) -> Result<(), String> {
    let is_lost = |(columns, survived): &Row, failed: &BTreeSet<usize>| {
        columns.iter().filter(|column| column.is_subset(failed)).count() > *survived
    };
    let count = drawn.sizes.len();
    for losses in &answer.losses {
        let mut units: Vec<Vec<usize>> = (0..count).map(|at| vec![at]).collect();
        if losses.unit == Unit::Domains {
            let alone = |at: &usize| drawn.domains[*at] == 0;
            units = (0..count).filter(alone).map(|at| vec![at]).collect();
            let named: BTreeSet<u32> = drawn.domains.iter().copied().filter(|domain| *domain > 0).collect();
            let members = |domain: &u32| (0..count).filter(|at| drawn.domains[*at] == *domain).collect();
            units.extend(named.iter().map(members));
        }
        for row in &losses.rows {
            let (mut sets, mut losing) = (0, 0);
            for mask in 0u32..1 << units.len() {
                if mask.count_ones() == row.failed {
                    let chosen = (0..units.len()).filter(|at| mask & (1 << at) != 0);
                    let failed: BTreeSet<usize> = chosen.flat_map(|at| units[at].iter().copied()).collect();
                    sets += 1;
                    losing += u64::from(rows.iter().any(|row| is_lost(row, &failed)));
                }
            }
            // The rule for larger pools may say more, never less.
            let is_right = match losses.basis {
                Basis::Rows => row.losing == losing,
                Basis::Rule => row.losing >= losing,
            };
            if row.sets != sets || !is_right {
                return Err(format!(
                    "{} {:?}: {row:?}, tried {losing} of {sets}",
                    answer.layout, losses.unit
                ));
            }
        }
    }
    Ok(())
}

/// Claims all that is planned, row by row, and looks at the rows.
async fn claim(spaces: &Rc<Spaces>, drawn: &Drawn, plan: &Plan) -> Result<u64, Box<dyn Error>> {
    let (answer, (_, resiliency)) = (&plan.answers[drawn.claimed], LAYOUTS[drawn.claimed]);
    let Some(room) = answer.room.as_ref().filter(|room| room.rows > 0) else { return Ok(0) };
    spaces.create(drawn.spec("full", room.rows, resiliency)).await?;
    if spaces.create(drawn.spec("more", 1, resiliency)).await.is_ok() {
        return Err(format!("{}: a row more than {} is claimed", answer.layout, room.rows).into());
    }
    check_losses(&rows_of(spaces).await?, drawn, answer)?;
    let findings = spaces.scrubs().check_map().await?;
    if findings.is_empty() { Ok(room.rows) } else { Err(findings.join("; ").into()) }
}

fn run(world: &World, seed: u64) -> Result<u64, Box<dyn Error>> {
    let drawn = Drawn::new(seed);
    let plan = drawn.plan();
    let seams = world.seams();
    let body = async move {
        let spaces = pool_of(seams, &drawn).await?;
        check_accepted(&spaces, &drawn, &plan)?;
        let rows = claim(&spaces, &drawn, &plan).await.map_err(|error| format!("{error}; {drawn:?}"))?;
        spaces.close().await?;
        Ok::<u64, Box<dyn Error>>(rows)
    };
    world.run(body).map_err(|stuck| format!("{stuck:?}"))?
}

fn new_world(seed: u64) -> World {
    let world = World::new(seed);
    world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
    world
}

/// One of [`PARTS`] parts of the sets, so that the parts can run side by side.
fn run_part(part: u64) {
    let sets = std::env::var("DOLMEN_PLAN_SETS").ok().and_then(|text| text.parse().ok()).unwrap_or(SETS);
    let mut world = new_world(part);
    let (mut tried, mut rows, mut failures) = (0, 0, Vec::new());
    for seed in (part..sets).step_by(PARTS) {
        tried += 1;
        // Memory that an earlier pool used is used again, but not for ever.
        if tried % SETS_PER_WORLD == 0 {
            world = new_world(seed);
        }
        match run(&world, seed) {
            Ok(claimed) => rows += claimed,
            Err(error) => failures.push(format!("seed {seed}: {error}")),
        }
    }
    println!("{tried} of {sets} sets of disks (DOLMEN_PLAN_SETS), {rows} rows claimed");
    assert!(failures.is_empty(), "{} of {tried}:\n{}", failures.len(), failures.join("\n"));
}

/// Random disks, fault domains and lengths of rows: all seven layouts are accepted to the row, one of them is claimed to
/// the last row, and every set of failures loses data exactly when the planner says so.
#[test]
fn a_pool_accepts_what_is_planned_row_for_row() {
    run_part(0);
}

/// The same with other sets.
#[test]
fn a_pool_accepts_what_is_planned_row_for_row_second_part() {
    run_part(1);
}

/// Disks so large that their reserve no longer follows their size, and one at which it just does: accepted to the row
/// where every disk is filled by itself, so that a reserve that is a few allocation units off shows as a row.
#[test]
fn a_pool_of_larger_disks_accepts_what_is_planned() {
    let sizes = vec![Bytes::mib(5120), Bytes::mib(6001), Bytes::mib(4200), Bytes::mib(4128)];
    let drawn = Drawn { sizes, domains: vec![0; 4], row: Some(Bytes::mib(1)), claimed: 1 };
    let world = new_world(0);
    let seams = world.seams();
    let body = async move {
        let plan = drawn.plan();
        let spaces = pool_of(seams, &drawn).await?;
        let reserves: Vec<Bytes> =
            spaces.pool().free_space().room().iter().map(|disk| disk.reserve).collect();
        let planned: Vec<Bytes> = plan.disks.iter().map(|disk| Bytes(disk.cut.reserve_bytes)).collect();
        assert_eq!(planned, reserves);
        check_accepted(&spaces, &drawn, &plan)?;
        spaces.close().await?;
        Ok::<(), Box<dyn Error>>(())
    };
    world.run(body).unwrap().unwrap();
}
