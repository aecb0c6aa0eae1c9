//! The planner against solvers that share nothing with it: a maximum flow, and trying every set and every row.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "helpers of tests: a panic here is a failed test, and the numbers are small"
)]

use std::collections::VecDeque;

use dolmen_placement::{Offer, Placer, Request, Resiliency, Width};
use dolmen_plan::{Basis, Code, Disk, Disks, Layout, Losses, Plan, PlanRequest, Unit};
use dolmen_sim::Random;
use dolmen_units::{Bytes, DiskSlot};

/// A block, the unit in which slabs are claimed (docs/design/0001).
const ALLOCATION_UNIT: u64 = 4096;
/// Row of a fixed space, and bytes written to one of its columns before the next where parity protects.
const ROW: u64 = 64 << 20;
const INTERLEAVE: u64 = 64 << 10;

/// A network; the maximum flow is found along shortest paths (Edmonds and Karp, 1972).
struct Network {
    /// Edge by edge: to, room left; an edge's twin is its number with the last bit flipped.
    edges: Vec<(usize, u64)>,
    from: Vec<Vec<usize>>,
}

impl Network {
    fn new(nodes: usize) -> Self {
        Self { edges: Vec::new(), from: vec![Vec::new(); nodes] }
    }

    fn edge(&mut self, from: usize, to: usize, room: u64) {
        self.from[from].push(self.edges.len());
        self.edges.push((to, room));
        self.from[to].push(self.edges.len());
        self.edges.push((from, 0));
    }

    fn flow(&mut self, source: usize, sink: usize) -> u64 {
        let mut total = 0;
        loop {
            let mut by = vec![None; self.from.len()];
            let mut open = VecDeque::from([source]);
            while let Some(node) = open.pop_front() {
                for edge in &self.from[node] {
                    let (to, room) = self.edges[*edge];
                    if room > 0 && to != source && by[to].is_none() {
                        by[to] = Some(*edge);
                        open.push_back(to);
                    }
                }
            }
            if by[sink].is_none() {
                return total;
            }
            let mut path = Vec::new();
            let mut node = sink;
            while node != source {
                let edge = by[node].unwrap();
                path.push(edge);
                node = self.edges[edge ^ 1].0;
            }
            let more = path.iter().map(|edge| self.edges[*edge].1).min().unwrap();
            for edge in path {
                self.edges[edge].1 -= more;
                self.edges[edge ^ 1].1 += more;
            }
            total += more;
        }
    }
}

/// Whether so many rows of `width` slabs, no two of a row in one domain, fit disks that hold so many slabs each.
fn rows_fit(rows: usize, width: u64, domains: &[Vec<u64>]) -> bool {
    let disks: usize = domains.iter().map(Vec::len).sum();
    let (source, sink) = (0, 1);
    let (row_at, domain_at) = (2, 2 + rows);
    let mut network = Network::new(2 + rows + domains.len() + disks);
    let mut disk_at = domain_at + domains.len();
    for row in 0..rows {
        network.edge(source, row_at + row, width);
        (0..domains.len()).for_each(|domain| network.edge(row_at + row, domain_at + domain, 1));
    }
    for (domain, slabs) in domains.iter().enumerate() {
        for slabs in slabs {
            network.edge(domain_at + domain, disk_at, u64::MAX / 4);
            network.edge(disk_at, sink, *slabs);
            disk_at += 1;
        }
    }
    network.flow(source, sink) == rows as u64 * width
}

fn most_rows(width: u64, domains: &[Vec<u64>]) -> u64 {
    (1..).find(|rows| !rows_fit(*rows, width, domains)).unwrap() as u64 - 1
}

/// Disks of a plan; those of domain 0 stand alone.
fn disks(sizes: &[(u64, u32)]) -> Disks {
    let disk = |(at, (size, domain)): (usize, &(u64, u32))| {
        let domain = (*domain > 0).then(|| domain.to_string());
        Disk::new(format!("{at}"), Bytes(*size), domain).unwrap()
    };
    Disks::new(sizes.iter().enumerate().map(disk).collect())
}

fn plan(sizes: &[(u64, u32)], layout: Layout) -> Plan {
    Plan::make(&PlanRequest { layouts: vec![layout], ..PlanRequest::usual(disks(sizes)) })
}

/// Bytes that new slabs may take, by domain, from what the documents say of a disk.
fn by_domain(plan: &Plan) -> Vec<Vec<u64>> {
    let mut named: Vec<(Option<String>, Vec<u64>)> = Vec::new();
    for disk in &plan.disks {
        let free = disk.cut.data_bytes - disk.cut.reserve_bytes;
        match named.iter_mut().find(|(name, _)| name.is_some() && *name == disk.domain) {
            Some((_, members)) => members.push(free),
            None => named.push((disk.domain.clone(), vec![free])),
        }
    }
    named.into_iter().map(|(_, members)| members).collect()
}

/// Bytes of a slab: data, tables, each with two slots of 4 KiB for 504 blocks, and a header (docs/format/space.md). With parity
/// there is a table more for each parity column, and each has room for a column that is an interleave longer.
fn slab(data: u64, parity: u32) -> u64 {
    assert!(data.is_multiple_of(ALLOCATION_UNIT), "columns are whole blocks");
    let longest = if parity == 0 { data } else { data + INTERLEAVE };
    data + u64::from(parity + 1) * longest.div_ceil(504 * 4096) * 8192 + 4096
}

fn request(code: Resiliency, row: u64, interleave: u64) -> Request {
    Request::new(code, Width::Auto, Bytes(row), Bytes(interleave)).unwrap()
}

/// What disks that stand alone offer.
fn offers(plan: &Plan) -> Vec<Offer> {
    let free = by_domain(plan);
    (0..).zip(free).map(|(slot, free)| Offer::alone(DiskSlot(slot), free[0] / ALLOCATION_UNIT)).collect()
}

/// Places rows until there are so many, or no more fit; the disks of each, as a mask.
fn lay(offers: &mut [Offer], placer: &Placer, turn: u64, most: usize) -> Vec<u32> {
    let mut rows = Vec::new();
    while rows.len() < most
        && let Ok(row) = placer.place(offers, turn + rows.len() as u64)
    {
        row.slabs.iter().for_each(|slab| offers[usize::from(slab.slot.0)].free_units -= slab.units);
        rows.push(row.slabs.iter().map(|slab| 1 << slab.slot.0).sum());
    }
    rows
}

/// Bytes of a row of the write cache, and how many rows it has, as docs/design/0004 says: a thousandth of the pool, 256 MiB to
/// 4 GiB, in all no more than a sixteenth; rows of 8 MiB, or of 1 MiB where there would be fewer than eight of those.
fn write_cache(plan: &Plan, parity: u32) -> (u64, usize) {
    const MIB: u64 = 1 << 20;
    let pool: u64 = plan.disks.iter().map(|disk| disk.cut.data_bytes).sum();
    let size = (pool / 1000).clamp(256 * MIB, 4096 * MIB).min(pool / 16 / u64::from(parity + 1));
    let row = if size < 64 * MIB { MIB } else { 8 * MIB };
    (row, (size / row).max(8) as usize)
}

fn drawn(random: &mut Random, count: u64, mib: u64, domains: u64) -> Vec<(u64, u32)> {
    let is_split = random.coin();
    let domain = |random: &mut Random| if is_split { 1 + random.below(domains) as u32 } else { 0 };
    (0..count).map(|_| ((96 + random.below(mib)) << 20, domain(random))).collect()
}

/// Codes of a fixed width: exactly the rows of the maximum flow, for disks in domains and alone.
#[test]
fn fixed_codes_reach_the_maximum_flow() {
    let mut compared = 0;
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let count = 4 + random.below(5);
        let sizes = drawn(&mut random, count, 900, 6);
        let (data, parity) = (2 + random.below(3) as u32, 1 + random.below(3) as u32);
        let plan = plan(&sizes, Layout::Plain(Code::Wide { data, parity }));
        let answer = &plan.answers[0];
        let long = (ROW / INTERLEAVE).div_ceil(u64::from(data)) * INTERLEAVE;
        let slabs: Vec<Vec<u64>> = by_domain(&plan)
            .iter()
            .map(|disks| disks.iter().map(|free| free / slab(long, parity)).collect())
            .collect();
        let exact = most_rows(u64::from(data + parity), &slabs);
        match &answer.room {
            Some(room) => {
                assert_eq!(room.rows, exact, "seed {seed}: {data}+{parity} on {sizes:?}");
                assert_eq!(room.total_bytes(), plan.raw_bytes, "seed {seed}");
                compared += 1;
            }
            None => assert_eq!(exact, 0, "seed {seed}: {:?}", answer.problem),
        }
    }
    assert!(compared > 25, "only {compared} sets had enough domains");
}

/// Copies over nodes that hold copies themselves: the flow over what each node holds alone.
#[test]
fn nested_layouts_reach_the_maximum_flow() {
    let mut compared = 0;
    for seed in 100..140 {
        let mut random = Random::new(seed);
        let sizes: Vec<(u64, u32)> =
            (0..10).map(|_| ((96 + random.below(900)) << 20, 1 + random.below(4) as u32)).collect();
        let inner = [Code::Simple, Code::Mirror { copies: 2 }, Code::Parity { parity: 1 }][random.index(3)];
        let copies = 2 + random.below(2) as u32;
        let found = plan(&sizes, Layout::Nested { copies, inner });
        let Some(room) = &found.answers[0].room else { continue };
        let within = |node: u32| {
            let own: Vec<(u64, u32)> =
                sizes.iter().filter(|(_, domain)| *domain == node).map(|(size, _)| (*size, 0)).collect();
            if own.is_empty() {
                return vec![0];
            }
            let alone = plan(&own, Layout::Plain(inner));
            if let Code::Parity { parity } = inner {
                // Rows alone: nobody has said yet what the write cache of a nested layout would be.
                let placer =
                    Placer::new(request(Resiliency::Parity { parity }, ROW, INTERLEAVE), move |data| {
                        slab(data.0, parity) / ALLOCATION_UNIT
                    });
                return vec![placer.usable(&offers(&alone)).rows];
            }
            vec![alone.answers[0].room.as_ref().map_or(0, |room| room.rows)]
        };
        let nodes: Vec<Vec<u64>> = (1..=4).map(within).collect();
        assert_eq!(
            room.rows,
            most_rows(u64::from(copies), &nodes),
            "seed {seed}: {copies} of {inner} on {sizes:?}"
        );
        assert_eq!(room.total_bytes(), found.raw_bytes, "seed {seed}");
        compared += 1;
    }
    assert!(compared > 20, "only {compared} sets had enough nodes");
}

/// Mirrors of automatic width on disks of hundreds of gigabytes: within the most that flows, and 99.5 % of it.
#[test]
fn mirrors_fill_the_maximum_flow() {
    for seed in 200..240 {
        let mut random = Random::new(seed);
        let copies = 2 + random.below(3) as u32;
        let count = u64::from(copies) + random.below(7);
        let sizes: Vec<(u64, u32)> = drawn(&mut random, count, 40, 7)
            .into_iter()
            .map(|(size, domain)| (size / (96 << 20) * 400_000_000_000 + size * 999, domain))
            .collect();
        let plan = plan(&sizes, Layout::Plain(Code::Mirror { copies }));
        let Some(room) = &plan.answers[0].room else { continue };
        let free: Vec<u64> =
            by_domain(&plan).iter().map(|disks| disks.iter().sum::<u64>() / ALLOCATION_UNIT).collect();
        let flows = |units: u64| {
            let mut network = Network::new(2 + free.len());
            for (domain, free) in free.iter().enumerate() {
                network.edge(0, 2 + domain, *free);
                network.edge(2 + domain, 1, units);
            }
            network.flow(0, 1) >= units * u64::from(copies)
        };
        let (mut low, mut high) = (0, free.iter().sum::<u64>());
        while low < high {
            let middle = (low + high).div_ceil(2);
            if flows(middle) { low = middle } else { high = middle - 1 }
        }
        let filled = (room.usable_bytes + room.redundancy_bytes + room.tables_bytes)
            / u64::from(copies)
            / ALLOCATION_UNIT;
        assert!(filled <= low, "seed {seed}: {filled} of {low}, {sizes:?}");
        assert!(filled * 1000 >= low * 995, "seed {seed}: {filled} of {low}, {sizes:?}");
    }
}

/// Whether losing these disks loses some row that the layout could lay: all rows are tried.
fn loses(layout: Layout, domains: &[Vec<usize>], failed: u32) -> bool {
    let is_lost = |disk: &usize| failed & (1 << disk) != 0;
    match layout {
        Layout::Plain(Code::Simple | Code::Span) => domains.iter().flatten().any(is_lost),
        Layout::Plain(code) => {
            let width = code.domains_min() as usize;
            rows_of(domains, width)
                .iter()
                .any(|row| row.iter().filter(|disk| is_lost(disk)).count() > code.redundancy() as usize)
        }
        Layout::Mixed { .. } => {
            loses(Layout::Plain(Code::Mirror { copies: 3 }), domains, failed)
                || loses(Layout::Plain(Code::Parity { parity: 2 }), domains, failed)
        }
        Layout::Nested { copies, inner } => {
            let nodes: Vec<Vec<usize>> = (0..domains.len()).map(|node| vec![node]).collect();
            let is_node_lost = |node: &usize| {
                let alone: Vec<Vec<usize>> = domains[*node].iter().map(|disk| vec![*disk]).collect();
                loses(Layout::Plain(inner), &alone, failed)
            };
            rows_of(&nodes, copies as usize).iter().any(|row| row.iter().all(is_node_lost))
        }
    }
}

/// Every way to take `width` disks of different domains.
fn rows_of(domains: &[Vec<usize>], width: usize) -> Vec<Vec<usize>> {
    if width == 0 {
        return vec![Vec::new()];
    }
    let mut rows = Vec::new();
    for (at, members) in domains.iter().enumerate() {
        for rest in rows_of(&domains[at + 1..], width - 1) {
            rows.extend(
                members.iter().map(|disk| std::iter::once(*disk).chain(rest.iter().copied()).collect()),
            );
        }
    }
    rows
}

fn check_losses(losses: &Losses, layout: Layout, domains: &[Vec<usize>], name: &str) {
    let count: usize = domains.iter().map(Vec::len).sum();
    let units: Vec<u32> = match losses.unit {
        Unit::Disks => (0..count).map(|disk| 1 << disk).collect(),
        Unit::Domains => domains.iter().map(|members| members.iter().map(|disk| 1 << disk).sum()).collect(),
    };
    for row in &losses.rows {
        let sets = (0u32..1 << units.len()).filter(|set| set.count_ones() == row.failed);
        let failed =
            sets.map(|set| (0..units.len()).filter(|at| set & (1 << at) != 0).map(|at| units[at]).sum());
        let failed: Vec<u32> = failed.collect();
        let losing = failed.iter().filter(|failed| loses(layout, domains, **failed)).count();
        assert_eq!((row.sets, row.losing), (failed.len() as u64, losing as u64), "{name}: {row:?}");
    }
    let mask = |names: &[String]| -> u32 {
        let unit = |name: &String| match losses.unit {
            Unit::Disks => name.parse().unwrap(),
            Unit::Domains => name.parse::<usize>().unwrap() - 1,
        };
        names.iter().map(|name| units[unit(name)]).sum()
    };
    assert!(losses.first_losing.is_empty() || loses(layout, domains, mask(&losses.first_losing)), "{name}");
    assert!(
        losses.first_survived.is_empty() || !loses(layout, domains, mask(&losses.first_survived)),
        "{name}"
    );
}

/// Large disks in domains of one to four: the exact counts are those of trying every set against every row.
#[test]
fn shares_of_failure_sets_are_those_of_trying_all() {
    let layouts = [
        "simple",
        "mirror:2",
        "mirror:3",
        "parity",
        "parity:2",
        "3+1",
        "mixed",
        "mirror:2/parity",
        "mirror:2/mirror:2",
    ];
    for (seed, layout) in (300..).zip(layouts.iter().cycle().take(36)) {
        let mut random = Random::new(seed);
        let layout: Layout = layout.parse().unwrap();
        let within = layout.disks_min_within() as usize;
        let count = layout.domains_min() as usize + random.index(2);
        let members: Vec<usize> = (0..count).map(|_| (within + random.index(2)).min(4)).collect();
        let mut sizes = Vec::new();
        let mut domains = Vec::new();
        for (domain, members) in (1..).zip(&members) {
            domains.push((sizes.len()..sizes.len() + members).collect::<Vec<_>>());
            sizes.extend(std::iter::repeat_n((400_000_000_000, domain), *members));
        }
        let plan = plan(&sizes, layout);
        for losses in &plan.answers[0].losses {
            assert_eq!(losses.basis, Basis::Rule);
            check_losses(losses, layout, &domains, &format!("seed {seed}: {layout} on {members:?}"));
        }
    }
}

/// Small sets under parity: the counts are those of trying every set against the very rows that placement lays.
#[test]
fn shares_by_rows_are_those_of_the_rows() {
    for seed in 500..530 {
        let mut random = Random::new(seed);
        let parity = 1 + random.below(2) as u32;
        let count = 4 + random.below(7);
        let sizes: Vec<(u64, u32)> = (0..count).map(|_| ((96 + random.below(400)) << 20, 0)).collect();
        let found = plan(&sizes, Layout::Plain(Code::Parity { parity }));
        let mut offers = offers(&found);
        let (cache_row, cache_rows) = write_cache(&found, parity);
        let mirror = Request::new(
            Resiliency::Striped { copies: parity + 1 },
            Width::Columns(1),
            Bytes(cache_row),
            Bytes::kib(256),
        );
        let placer = Placer::new(mirror.unwrap(), |data| slab(data.0, 0) / ALLOCATION_UNIT);
        let cache = lay(&mut offers, &placer, 0, cache_rows);
        assert_eq!(cache.len(), cache_rows, "seed {seed}");
        let request = request(Resiliency::Parity { parity }, ROW, INTERLEAVE);
        let placer = Placer::new(request, move |data| slab(data.0, parity) / ALLOCATION_UNIT);
        let mut rows = lay(&mut offers, &placer, cache_rows as u64, usize::MAX);
        let answer = &found.answers[0];
        assert_eq!(answer.room.as_ref().unwrap().rows, rows.len() as u64, "seed {seed}");
        assert_eq!(answer.losses[0].basis, Basis::Rows);
        rows.extend(cache);
        for of in &answer.losses[0].rows {
            let sets = (0u32..1 << count).filter(|set| set.count_ones() == of.failed);
            let losing = sets.filter(|set| rows.iter().any(|row| (row & set).count_ones() > parity)).count();
            assert_eq!(of.losing, losing as u64, "seed {seed}: {of:?}, {sizes:?}");
        }
    }
}

/// What can be restored after any loss is what the others give by themselves, whichever disk or domain it is.
#[test]
fn room_to_heal_is_that_of_the_worst_loss() {
    for seed in 400..424 {
        let mut random = Random::new(seed);
        let sizes = drawn(&mut random, 7, 700, 5);
        for layout in ["mirror:2", "mirror:3", "parity", "mixed"] {
            let layout: Layout = layout.parse().unwrap();
            let usable = |sizes: &[(u64, u32)]| {
                plan(sizes, layout).answers[0].room.as_ref().map_or(0, |room| room.usable_bytes)
            };
            let answer = plan(&sizes, layout).answers.remove(0);
            let rest = |lost: usize| {
                let kept = sizes.iter().enumerate().filter(|(at, _)| *at != lost);
                kept.map(|(_, size)| *size).collect::<Vec<_>>()
            };
            let disk = (0..sizes.len()).map(|lost| usable(&rest(lost))).min().unwrap().min(usable(&sizes));
            assert_eq!(answer.heals_disk_bytes, Some(disk), "seed {seed}: {layout} on {sizes:?}");
            let named = (1..=5).filter(|domain| sizes.iter().any(|(_, other)| other == domain));
            let without = |domain: u32| -> Vec<(u64, u32)> {
                sizes.iter().filter(|(_, other)| *other != domain).copied().collect()
            };
            if let Some(heals) = answer.heals_domain_bytes {
                let domain = named.map(|domain| usable(&without(domain))).min().unwrap().min(usable(&sizes));
                assert_eq!(heals, domain, "seed {seed}: {layout} on {sizes:?}");
            }
        }
    }
}
