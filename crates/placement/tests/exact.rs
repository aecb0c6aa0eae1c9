//! The bound and the placer against solvers that share nothing with them: an exhaustive search over small sets,
//! the cuts of every set of disks, and a linear program.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "helpers of tests: a panic here is a failed test, and the numbers are small"
)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::*;
use dolmen_placement::{Offer, Placer, Resiliency, Width};
use dolmen_units::ALLOCATION_UNIT_BYTES;

/// What a solver has to know of the disks: domain and room of each.
type State = Vec<(u32, u64)>;

/// Every way to give one row's slabs to disks, by backtracking over (column, copy) in order.
fn transports(
    state: &State,
    slabs: &[(u32, u64)],
    apart_by_column: bool,
    taken: &mut Vec<usize>,
    out: &mut BTreeSet<State>,
) {
    let Some((column, units)) = slabs.get(taken.len()) else {
        let mut next = state.clone();
        for (disk, (_, units)) in taken.iter().zip(slabs) {
            next[*disk].1 -= units;
        }
        next.sort_unstable();
        out.insert(next);
        return;
    };
    for disk in 0..state.len() {
        let clash = taken.iter().zip(slabs).any(|(other, (c, _))| {
            *other == disk || state[*other].0 == state[disk].0 && (!apart_by_column || c == column)
        });
        if state[disk].1 >= *units && !clash {
            taken.push(disk);
            transports(state, slabs, apart_by_column, taken, out);
            taken.pop();
        }
    }
}

/// The most rows that any sequence of choices reaches.
fn most_rows(
    state: &State,
    kinds: &[Vec<(u32, u64)>],
    by_column: bool,
    known: &mut BTreeMap<State, u64>,
) -> u64 {
    if let Some(rows) = known.get(state) {
        return *rows;
    }
    let mut next = BTreeSet::new();
    for slabs in kinds {
        transports(state, slabs, by_column, &mut Vec::new(), &mut next);
    }
    let rows = next.iter().map(|state| 1 + most_rows(state, kinds, by_column, known)).max().unwrap_or(0);
    known.insert(state.clone(), rows);
    rows
}

fn offers_of(state: &State) -> Vec<Offer> {
    in_domains(&state.iter().map(|(domain, free)| (*free, *domain)).collect::<Vec<_>>())
}

/// One row of `units` allocation units as (column, allocation units of the slab).
fn row_of(resiliency: Resiliency, columns: u32, units: u64) -> Vec<(u32, u64)> {
    let slab = units / u64::from(columns);
    match resiliency {
        Resiliency::Striped { copies } => {
            (0..columns).flat_map(|column| (0..copies).map(move |_| (column, slab))).collect()
        }
        Resiliency::Parity { parity } => (0..columns + parity).map(|column| (column, slab)).collect(),
        Resiliency::Span => vec![(0, units)],
    }
}

/// Sets of a few slabs each, small enough to try everything. A fixed width on disks that are their own domains
/// reaches the optimum; domains and free widths cost one row at most, and seldom.
#[test]
fn small_sets_reach_what_trying_everything_reaches() {
    let kinds: [(Resiliency, &[u32]); 7] = [
        (SIMPLE, &[2]),
        (MIRROR2, &[1]),
        (MIRROR2, &[2]),
        (MIRROR3, &[1]),
        (PARITY, &[2]),
        (DUAL, &[2]),
        (MIRROR2, &[1, 2]),
    ];
    let (mut sets, mut short) = (0, 0);
    for seed in 0..400 {
        let mut draw = Draw(seed);
        let (resiliency, widths) = kinds[draw.below(kinds.len() as u64) as usize];
        let nested = draw.below(3) == 0;
        let count = 3 + draw.below(3) as u32;
        let unit = if widths.len() > 1 { 1 } else { 2 / u64::from(widths[0]) };
        let mut state: State = (0..count)
            .map(|disk| (if nested { draw.below(3) as u32 } else { disk }, unit * (1 + draw.below(6))))
            .collect();
        state.sort_unstable();
        let domains: BTreeSet<u32> = state.iter().map(|(domain, _)| *domain).collect();
        let apart = resiliency != SIMPLE && domains.len() as u32 >= resiliency.minimum_disks();
        if nested && !apart {
            continue;
        }
        let rows: Vec<_> = widths.iter().map(|columns| row_of(resiliency, *columns, 2)).collect();
        let by_column = matches!(resiliency, Resiliency::Striped { .. });
        let exact = most_rows(&state, &rows, by_column, &mut BTreeMap::new());
        let width = if widths.len() > 1 { Width::Auto } else { Width::Columns(widths[0]) };
        let placer = small(resiliency, width, 2);
        let mut offers = offers_of(&state);
        let bound = placer.bound(&offers).data.0 / (2 * ALLOCATION_UNIT_BYTES);
        let placed = fill(&placer, &mut offers).len() as u64;
        let name = format!("seed {seed}: {resiliency:?} {widths:?} {state:?}");
        assert!(exact <= bound, "{name}: {exact} rows exist, but the bound is {bound}");
        assert!(placed <= exact, "{name}: {placed} placed, {exact} exist");
        sets += 1;
        short += exact - placed;
        if !nested && widths.len() == 1 {
            assert_eq!(placed, exact, "{name}");
        }
        assert!(placed + 1 >= exact, "{name}: {placed} placed, {exact} exist");
    }
    assert!(sets > 250 && short * 20 <= sets, "{short} rows short on {sets} sets");
}

/// The most that the disks of `inside` can hold of one row: slabs are given out longest first, each by an
/// augmenting path through domains, which hold a column once and no more slabs than they have disks.
fn rank(state: &State, inside: usize, slabs: &[(u32, u64)]) -> u64 {
    let mut disks: BTreeMap<u32, usize> = BTreeMap::new();
    let held = state.iter().enumerate().filter(|(disk, _)| inside & (1 << disk) != 0);
    held.for_each(|(_, (domain, _))| *disks.entry(*domain).or_default() += 1);
    let mut columns: BTreeMap<u32, BTreeSet<u32>> =
        disks.keys().map(|domain| (*domain, BTreeSet::new())).collect();
    let mut order = slabs.to_vec();
    order.sort_by_key(|(_, units)| std::cmp::Reverse(*units));
    let given =
        order.into_iter().filter(|(column, _)| augment(*column, &disks, &mut columns, &mut BTreeSet::new()));
    given.map(|(_, units)| units).sum()
}

/// Gives a copy of `column` to a domain, moving other columns out of the way.
fn augment(
    column: u32,
    disks: &BTreeMap<u32, usize>,
    columns: &mut BTreeMap<u32, BTreeSet<u32>>,
    seen: &mut BTreeSet<u32>,
) -> bool {
    for (domain, room) in disks {
        if columns[domain].contains(&column) || !seen.insert(*domain) {
            continue;
        }
        if columns[domain].len() < *room {
            return columns.get_mut(domain).unwrap().insert(column);
        }
        for moved in columns[domain].clone() {
            if augment(moved, disks, columns, seen) {
                let here = columns.get_mut(domain).unwrap();
                return here.remove(&moved) && here.insert(column);
            }
        }
    }
    false
}

/// Rows of a fixed shape, fractions allowed, as the least cut over every set of disks.
fn cut_bound(state: &State, slabs: &[(u32, u64)], rank: impl Fn(usize) -> u64) -> f64 {
    let total: u64 = slabs.iter().map(|(_, units)| units).sum();
    (0..1usize << state.len())
        .filter_map(|inside| {
            let outside: u64 = (0..state.len()).filter(|d| inside & (1 << d) == 0).map(|d| state[d].1).sum();
            let missing = total - rank(inside);
            (missing > 0).then(|| outside as f64 / missing as f64)
        })
        .fold(f64::MAX, f64::min)
}

/// Disks of at least `rows` rows each, the largest up to twenty times the smallest.
fn draw_disks(draw: &mut Draw, count: u64, domains: u64, row: u64) -> State {
    let ratio = 1 + draw.below(20);
    let smallest = (1000 + draw.below(500)) * row;
    let room = |draw: &mut Draw| smallest + draw.below(smallest * (ratio - 1) + 1) + draw.below(row);
    (0..count)
        .map(|disk| (if domains == 0 { disk as u32 } else { draw.below(domains) as u32 }, room(draw)))
        .collect()
}

fn domains_of(state: &State, inside: usize) -> u64 {
    let held = state.iter().enumerate().filter(|(disk, _)| inside & (1 << disk) != 0);
    u64::from(held.fold(0u64, |mask, (_, (domain, _))| mask | 1 << domain).count_ones())
}

/// The bound equals the exact one, and the placer reaches 99.5 % of it and never more.
fn compare(name: &str, placer: &Placer, offers: &[Offer], exact_rows: f64, row_units: u64) {
    let row = (row_units * ALLOCATION_UNIT_BYTES) as f64;
    let bound = placer.bound(offers).data.0 as f64 / row;
    assert!((bound / exact_rows - 1.0).abs() < 1e-6, "{name}: bound {bound}, exact {exact_rows}");
    let placed = placer.usable(offers).rows as f64;
    assert!(placed <= exact_rows + 1e-6, "{name}: {placed} rows, but only {exact_rows} fit");
    assert!(placed >= exact_rows * 0.995, "{name}: {placed} of {exact_rows} rows");
}

/// Mirrors of automatic width, 1 to 4 copies, on a thousand sets. The cut of one-column rows is exact for them.
#[test]
fn mirrors_of_any_disks_reach_the_exact_bound() {
    compare_mirrors(0..500);
}

/// The other five hundred, beside the first on another core.
#[test]
fn mirrors_of_any_other_disks_reach_the_exact_bound() {
    compare_mirrors(500..1000);
}

fn compare_mirrors(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut draw = Draw(seed);
        let copies = 1 + draw.below(4) as u32;
        let count = u64::from(copies).max(2) + draw.below(13 - u64::from(copies).max(2));
        let domains = [0, 0, u64::from(copies) + draw.below(4)][draw.below(3) as usize];
        let mut state = draw_disks(&mut draw, count, domains, 840);
        if copies == 1 || domains_of(&state, usize::MAX) < u64::from(copies) {
            state.iter_mut().zip(0..).for_each(|(disk, index)| disk.0 = index);
        }
        let resiliency = Resiliency::Striped { copies };
        let slabs = row_of(resiliency, 1, 840);
        let exact =
            cut_bound(&state, &slabs, |inside| 840 * domains_of(&state, inside).min(u64::from(copies)));
        let name = format!("seed {seed}: {copies} copies {state:?}");
        compare(&name, &small(resiliency, Width::Auto, 840), &offers_of(&state), exact, 840);
    }
}

/// Fixed widths, uneven columns included, with random domains.
#[test]
fn fixed_widths_of_any_disks_reach_the_exact_bound() {
    for seed in 0..300 {
        let mut draw = Draw(seed);
        let (resiliency, columns) = [
            (SIMPLE, 2),
            (SIMPLE, 3),
            (MIRROR2, 2),
            (MIRROR2, 3),
            (MIRROR3, 2),
            (PARITY, 2),
            (PARITY, 3),
            (DUAL, 3),
        ][draw.below(8) as usize];
        let copies = if let Resiliency::Striped { copies } = resiliency { copies } else { 1 };
        let slab_count = u64::from(columns * copies + u32::from(copies == 1) * resiliency.survives());
        let count = slab_count + draw.below(8 - slab_count);
        let mut state = draw_disks(&mut draw, count, 0, 256);
        if copies > 1 && draw.below(2) == 0 {
            let domains = u64::from(copies) + draw.below(2);
            state.iter_mut().for_each(|disk| disk.0 = draw.below(domains) as u32);
        }
        let held = |inside: usize| -> u64 {
            let count = |domain| {
                state.iter().zip(0..).filter(|(d, i)| d.0 == domain && inside & (1 << i) != 0).count() as u64
            };
            (0..12).map(|domain| count(domain).min(u64::from(columns))).sum()
        };
        if copies > 1 && (held(usize::MAX) < slab_count || domains_of(&state, usize::MAX) < u64::from(copies))
        {
            continue;
        }
        let units =
            |column: u32| 256 / u64::from(columns) + u64::from(u64::from(column) < 256 % u64::from(columns));
        let mut slabs: Vec<(u32, u64)> =
            (0..columns).flat_map(|column| (0..copies).map(move |_| (column, units(column)))).collect();
        if let Resiliency::Parity { parity } = resiliency {
            slabs.extend((0..parity).map(|index| (columns + index, units(0))));
        }
        let exact = cut_bound(&state, &slabs, |inside| rank(&state, inside, &slabs));
        let name = format!("seed {seed}: {resiliency:?} × {columns} {state:?}");
        compare(&name, &small(resiliency, Width::Columns(columns), 256), &offers_of(&state), exact, 256);
    }
}

/// Maximises `gain`·v under `lines`·v ≤ `limits` (none negative) and v ≥ 0: the simplex method on a full tableau.
/// Limits are shifted a little apart, so that no step stands still and the method ends.
fn simplex(gain: &[f64], lines: &[Vec<f64>], limits: &[f64]) -> f64 {
    let (n, m) = (gain.len(), lines.len());
    let width = n + m + 1;
    let mut table: Vec<Vec<f64>> = Vec::new();
    for (at, (line, limit)) in lines.iter().zip(limits).enumerate() {
        let mut full = line.clone();
        full.extend((0..m).map(|slack| f64::from(u8::from(slack == at))));
        full.push(limit + 1e-7 * (at + 1) as f64);
        table.push(full);
    }
    let mut last: Vec<f64> = gain.iter().map(|g| -g).collect();
    last.resize(width, 0.0);
    loop {
        let enter = (0..width - 1).min_by(|a, b| last[*a].total_cmp(&last[*b])).unwrap();
        if last[enter] > -1e-9 {
            return last[width - 1];
        }
        let leave = (0..m)
            .filter(|at| table[*at][enter] > 1e-9)
            .min_by(|a, b| {
                let ratio = |at: usize| table[at][width - 1] / table[at][enter];
                ratio(*a).total_cmp(&ratio(*b))
            })
            .expect("room is finite");
        let scale = table[leave][enter];
        let pivot: Vec<f64> = table[leave].iter().map(|v| v / scale).collect();
        let clear = |line: &mut Vec<f64>| {
            let factor = line[enter];
            if factor != 0.0 {
                line.iter_mut().zip(&pivot).for_each(|(value, p)| *value -= factor * p);
            }
        };
        table.iter_mut().for_each(clear);
        clear(&mut last);
        table[leave] = pivot;
    }
}

/// Parity rows of any mixture of widths: thickness per width, and how much of each a domain holds.
fn parity_program(rooms: &[u64], parity: u32, row: u64) -> f64 {
    let domains = rooms.len();
    let widths: Vec<u32> = (2..=(domains as u32 - parity).min(if parity == 1 { 8 } else { 12 })).collect();
    let count = widths.len() * (1 + domains);
    let held = |width: usize, domain: usize| widths.len() + width * domains + domain;
    let (mut lines, mut limits) = (Vec::new(), Vec::new());
    for (width, columns) in widths.iter().enumerate() {
        let mut whole = vec![0.0; count];
        whole[width] = f64::from(columns + parity);
        for domain in 0..domains {
            whole[held(width, domain)] = -1.0;
            let mut once = vec![0.0; count];
            once[held(width, domain)] = 1.0;
            once[width] = -1.0;
            lines.push(once);
            limits.push(0.0);
        }
        lines.push(whole);
        limits.push(0.0);
    }
    for (domain, room) in rooms.iter().enumerate() {
        let mut line = vec![0.0; count];
        (0..widths.len()).for_each(|width| line[held(width, domain)] = 1.0);
        lines.push(line);
        limits.push(*room as f64 / row as f64);
    }
    let mut gain: Vec<f64> = widths.iter().map(|columns| f64::from(*columns)).collect();
    gain.resize(count, 0.0);
    simplex(&gain, &lines, &limits)
}

/// Parity of automatic width, where rows of different widths share the disks.
#[test]
fn parity_of_any_disks_reaches_the_exact_bound() {
    for seed in 0..120 {
        let mut draw = Draw(seed);
        let parity = 1 + draw.below(2) as u32;
        let count = u64::from(parity) + 2 + draw.below(5);
        let mut state = draw_disks(&mut draw, count, 0, 840);
        if draw.below(3) == 0 && count > u64::from(parity) + 2 {
            state[0].0 = 1;
        }
        let mut rooms: BTreeMap<u32, u64> = BTreeMap::new();
        state.iter().for_each(|(domain, room)| *rooms.entry(*domain).or_default() += room);
        let exact = parity_program(&rooms.into_values().collect::<Vec<_>>(), parity, 840);
        let name = format!("seed {seed}: parity {parity} {state:?}");
        let placer = small(Resiliency::Parity { parity }, Width::Auto, 840);
        compare(&name, &placer, &offers_of(&state), exact, 840);
    }
}
