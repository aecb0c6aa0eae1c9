//! Which failures lose data: the exact share of all sets of k disks, or k fault domains, whose loss does.
//!
//! # By rows
//! Where a set of disks is small enough for its rows to be placed one by one, the rows of a pool filled to the brim are
//! known. Each gives its *fatal* sets: all copies of one column, or one slab more than there is parity. A set of disks
//! loses data exactly when it holds a fatal set. Sets are counted by choosing disks in order; as soon as a fatal set is
//! complete, whatever is added is lost too, and a binomial coefficient counts it.
//!
//! # By rule
//! In a larger pool so many rows are spread, in an order that is drawn again for each, that every set of disks which may
//! share a row is taken to share one. Then data is lost exactly when more than *r* fault domains have lost more than *t*
//! disks each (t = 0, but for nested layouts), and the sets are the coefficients of a product of one polynomial for each
//! domain, in a variable for disks and one for lost domains. Where disks of different sizes keep some of them from ever
//! meeting in a row, fewer sets lose data than the rule says, never more.

use dolmen_placement::{Code as RowCode, Placement};
use serde::Serialize;

use crate::capacity::Room;
use crate::disks::Disks;
use crate::layout::{Code, Layout};

/// Failures at once that are looked at, at most: binomial coefficients of 240 disks fit 64 bits with room to spare.
const FAILED_MAX: usize = 8;
/// How many failures beyond what is always survived are looked at.
const BEYOND: u32 = 2;
/// Steps of counting by rows, for all k together, before the count is given up.
const STEPS_MAX: u64 = 4_000_000;
/// Fatal sets of one row, at most: three of fourteen slabs are 364.
const ROW_SETS_MAX: usize = 1024;

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Single disks.
    Disks,
    /// Whole fault domains.
    Domains,
}

/// What the counts stand on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The rows of a full pool.
    Rows,
    /// The rule that all disks which may share a row do.
    Rule,
}

/// The sets of so many failures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LossRow {
    /// Failures at once.
    pub failed: u32,
    /// All sets of so many.
    pub sets: u64,
    /// Those of them that lose data.
    pub losing: u64,
}

/// What is lost by failures of one unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// What fails.
    pub unit: Unit,
    /// What the counts stand on.
    pub basis: Basis,
    /// So many at once are survived, whichever they are.
    pub always_survived: u32,
    /// From one failure on.
    pub rows: Vec<LossRow>,
    /// The first smallest set that loses data, by name; empty where none does.
    pub first_losing: Vec<String>,
    /// The first set of the same size that does not; empty where all do.
    pub first_survived: Vec<String>,
}

/// What is lost when disks fail, and when whole fault domains do, if any has several disks.
pub(crate) fn losses(layout: Layout, disks: &Disks, room: &Room, rows: Option<&[Placement]>) -> Vec<Losses> {
    let mut units = vec![Unit::Disks];
    if !disks.are_alone() {
        units.push(Unit::Domains);
    }
    let count = |unit| {
        let field = Field::new(disks, unit);
        let by_rows = rows.and_then(|rows| ByRows::new(&field, rows).count(layout, unit));
        by_rows.unwrap_or_else(|| ByRule::new(layout, disks, room, unit).count(&field, layout, unit))
    };
    units.into_iter().map(count).collect()
}

/// What can fail, by name.
struct Field {
    names: Vec<String>,
    /// Which of them each disk goes with.
    unit_of: Vec<usize>,
}

impl Field {
    fn new(disks: &Disks, unit: Unit) -> Self {
        let list = disks.list();
        match unit {
            Unit::Disks => Self {
                names: list.iter().map(|disk| disk.name.clone()).collect(),
                unit_of: (0..list.len()).collect(),
            },
            Unit::Domains => {
                let groups = disks.by_domain();
                let name = |members: &Vec<usize>| {
                    let first = members.first().and_then(|at| list.get(*at));
                    first.map_or_else(String::new, |disk| {
                        disk.domain.clone().unwrap_or_else(|| disk.name.clone())
                    })
                };
                let holder = |at: usize| groups.iter().position(|members| members.contains(&at)).unwrap_or(0);
                Self {
                    names: groups.iter().map(name).collect(),
                    unit_of: (0..list.len()).map(holder).collect(),
                }
            }
        }
    }

    fn named(&self, set: &[usize]) -> Vec<String> {
        set.iter().filter_map(|at| self.names.get(*at).cloned()).collect()
    }
}

fn failed_max(layout: Layout, unit: Unit, count: usize) -> usize {
    let survived = match unit {
        Unit::Disks => layout.survives_disks(),
        Unit::Domains => layout.survives_domains(),
    };
    usize::try_from(survived + 1 + BEYOND).unwrap_or(FAILED_MAX).min(FAILED_MAX).min(count)
}

/// n over k; k is at most [`FAILED_MAX`] and n at most 240, so 64 bits hold it.
fn binomial(n: usize, k: usize) -> u64 {
    if k > n {
        return 0;
    }
    (0..k).fold(1u64, |product, at| {
        let (up, down) = (u64::try_from(n - at).unwrap_or(0), u64::try_from(at + 1).unwrap_or(1));
        product * up / down
    })
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Counting by the rows of a full pool.
struct ByRows<'a> {
    field: &'a Field,
    /// Fatal sets, ascending, by their last member.
    ending_at: Vec<Vec<Vec<usize>>>,
}

impl<'a> ByRows<'a> {
    fn new(field: &'a Field, rows: &[Placement]) -> Self {
        let mut sets: Vec<Vec<usize>> = rows.iter().flat_map(|row| fatal_sets(row, field)).collect();
        sets.sort_unstable();
        sets.dedup();
        let mut ending_at = vec![Vec::new(); field.names.len()];
        for set in sets {
            if let Some(list) = set.last().and_then(|last| ending_at.get_mut(*last)) {
                list.push(set);
            }
        }
        Self { field, ending_at }
    }

    fn count(&self, layout: Layout, unit: Unit) -> Option<Losses> {
        let total = self.field.names.len();
        let mut steps = 0;
        let (mut rows, mut first_losing, mut first_survived) = (Vec::new(), Vec::new(), Vec::new());
        for failed in 1..=failed_max(layout, unit, total) {
            let mut walk =
                Walk { failed, chosen: Vec::new(), losing: 0, losing_set: None, survived_set: None };
            self.walk(&mut walk, 0, &mut steps)?;
            let sets = binomial(total, failed);
            if first_losing.is_empty() && walk.losing > 0 {
                first_losing = self.field.named(&walk.losing_set.unwrap_or_default());
                first_survived = self.field.named(&walk.survived_set.unwrap_or_default());
            }
            rows.push(LossRow { failed: narrow(failed), sets, losing: walk.losing });
        }
        let always = rows.iter().take_while(|row| row.losing == 0).count();
        let basis = Basis::Rows;
        Some(Losses { unit, basis, always_survived: narrow(always), rows, first_losing, first_survived })
    }

    /// Adds members from `from` on; `None` when it takes too long.
    fn walk(&self, walk: &mut Walk, from: usize, steps: &mut u64) -> Option<()> {
        let total = self.ending_at.len();
        if walk.chosen.len() == walk.failed {
            walk.survived_set.get_or_insert_with(|| walk.chosen.clone());
            return Some(());
        }
        let open = walk.failed - walk.chosen.len() - 1;
        for next in from..total.saturating_sub(open) {
            *steps += 1;
            if *steps > STEPS_MAX {
                return None;
            }
            walk.chosen.push(next);
            let ends = self.ending_at.get(next).into_iter().flatten();
            let is_lost = ends.into_iter().any(|set| set.iter().all(|member| walk.chosen.contains(member)));
            if is_lost {
                walk.losing += binomial(total - next - 1, open);
                let rest = next + 1..=next + open;
                walk.losing_set.get_or_insert_with(|| walk.chosen.iter().copied().chain(rest).collect());
            } else {
                self.walk(walk, next + 1, steps)?;
            }
            walk.chosen.pop();
        }
        Some(())
    }
}

struct Walk {
    failed: usize,
    chosen: Vec<usize>,
    losing: u64,
    losing_set: Option<Vec<usize>>,
    survived_set: Option<Vec<usize>>,
}

/// The sets of units whose loss loses some of a row.
fn fatal_sets(row: &Placement, field: &Field) -> Vec<Vec<usize>> {
    let unit = |slot: dolmen_units::DiskSlot| field.unit_of.get(usize::from(slot.0)).copied();
    let set = |mut units: Vec<usize>| {
        units.sort_unstable();
        units.dedup();
        units
    };
    match row.code {
        RowCode::Striped { .. } => {
            let column = |column: u32| {
                let copies = row.slabs.iter().filter(|slab| slab.column == column);
                set(copies.filter_map(|slab| unit(slab.slot)).collect())
            };
            (0..row.columns).map(column).collect()
        }
        RowCode::Parity { parity, .. } => {
            let units = set(row.slabs.iter().filter_map(|slab| unit(slab.slot)).collect());
            let size = usize::try_from(parity + 1).unwrap_or(usize::MAX);
            let mut sets = Vec::new();
            choose(&units, size, &mut Vec::new(), &mut sets);
            sets
        }
    }
}

/// All sets of `size` members, ascending.
fn choose(from: &[usize], size: usize, chosen: &mut Vec<usize>, sets: &mut Vec<Vec<usize>>) {
    if chosen.len() == size {
        assert!(sets.len() < ROW_SETS_MAX, "no row has so many slabs");
        sets.push(chosen.clone());
        return;
    }
    for (at, member) in from.iter().enumerate() {
        chosen.push(*member);
        choose(from.get(at + 1..).unwrap_or_default(), size, chosen, sets);
        chosen.pop();
    }
}

/// Counting by the rule: more than `domains_survived` groups with more than `within` lost each.
struct ByRule {
    /// For each group, the units that hold anything.
    groups: Vec<Vec<usize>>,
    domains_survived: usize,
    within: usize,
}

impl ByRule {
    fn new(layout: Layout, disks: &Disks, room: &Room, unit: Unit) -> Self {
        let holds = |at: &usize| {
            let disk = disks.list().get(*at);
            disk.zip(room.stranded.get(*at)).is_some_and(|(disk, left)| *left < disk.claimable_bytes())
        };
        let by_domain: Vec<Vec<usize>> = disks
            .by_domain()
            .into_iter()
            .map(|members| members.into_iter().filter(holds).collect())
            .collect();
        let each_alone = matches!(layout, Layout::Plain(Code::Simple | Code::Span));
        let groups = match unit {
            Unit::Disks if each_alone => by_domain.iter().flatten().map(|at| vec![*at]).collect(),
            Unit::Disks => by_domain,
            Unit::Domains => {
                let holding = by_domain.iter().enumerate().filter(|(_, members)| !members.is_empty());
                holding.map(|(at, _)| vec![at]).collect()
            }
        };
        let within = match (layout, unit) {
            (Layout::Nested { inner, .. }, Unit::Disks) => inner.redundancy(),
            _ => 0,
        };
        let wide = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        Self { groups, domains_survived: wide(layout.survives_domains()), within: wide(within) }
    }

    fn count(&self, field: &Field, layout: Layout, unit: Unit) -> Losses {
        let total = field.names.len();
        let row = |failed: usize| LossRow {
            failed: narrow(failed),
            sets: binomial(total, failed),
            losing: self.losing(failed, total),
        };
        let mut rows: Vec<LossRow> = Vec::new();
        for failed in 1..=total.min(FAILED_MAX) {
            let enough = failed > failed_max(layout, unit, total) && rows.iter().any(|row| row.losing > 0);
            if enough {
                break;
            }
            rows.push(row(failed));
        }
        let always = rows.iter().take_while(|row| row.losing == 0).count();
        let (first_losing, first_survived) = match rows.get(always) {
            Some(first) => (self.smallest(), self.survivor(first, total)),
            None => (Vec::new(), Vec::new()),
        };
        Losses {
            unit,
            basis: Basis::Rule,
            always_survived: narrow(always),
            rows,
            first_losing: field.named(&first_losing),
            first_survived: field.named(&first_survived),
        }
    }

    /// Sets of `failed` units that lose data: all of them, less those with at most `domains_survived` lost groups.
    fn losing(&self, failed: usize, total: usize) -> u64 {
        let holding: usize = self.groups.iter().map(Vec::len).sum();
        // ways[lost][chosen], lost counted up to one more than is survived.
        let top = self.domains_survived + 1;
        let mut transports = vec![vec![0u64; failed + 1]; top + 1];
        if let Some(none) = transports.first_mut().and_then(|row| row.first_mut()) {
            *none = 1;
        }
        for group in &self.groups {
            transports = self.with_group(&transports, group.len(), failed);
        }
        let lost = transports.last().map(Vec::as_slice).unwrap_or_default();
        let idle = total - holding;
        lost.iter().enumerate().map(|(chosen, transports)| transports * binomial(idle, failed - chosen)).sum()
    }

    fn with_group(&self, transports: &[Vec<u64>], size: usize, failed: usize) -> Vec<Vec<u64>> {
        let top = self.domains_survived + 1;
        let mut next = vec![vec![0u64; failed + 1]; top + 1];
        for (lost, row) in transports.iter().enumerate() {
            for (chosen, count) in row.iter().enumerate().filter(|(_, count)| **count > 0) {
                for more in 0..=size.min(failed - chosen) {
                    let lost = (lost + usize::from(more > self.within)).min(top);
                    if let Some(cell) = next.get_mut(lost).and_then(|row| row.get_mut(chosen + more)) {
                        *cell += count * binomial(size, more);
                    }
                }
            }
        }
        next
    }

    /// The first smallest set that loses data: just enough of each of the first groups that can be lost.
    fn smallest(&self) -> Vec<usize> {
        let groups = self.groups.iter().filter(|group| group.len() > self.within);
        groups
            .take(self.domains_survived + 1)
            .flat_map(|group| group.iter().take(self.within + 1))
            .copied()
            .collect()
    }

    /// A set of as many that does not: as many as possible of few groups, or units that hold nothing.
    fn survivor(&self, row: &LossRow, total: usize) -> Vec<usize> {
        let wanted = usize::try_from(row.failed).unwrap_or(0);
        if row.losing == row.sets {
            return Vec::new();
        }
        let idle = (0..total).filter(|at| !self.groups.iter().flatten().any(|other| other == at));
        let mut by_size: Vec<&Vec<usize>> = self.groups.iter().collect();
        by_size.sort_by_key(|group| std::cmp::Reverse(group.len()));
        let whole = by_size.iter().take(self.domains_survived).flat_map(|group| group.iter().copied());
        let spared = by_size.iter().skip(self.domains_survived);
        let within = spared.flat_map(|group| group.iter().take(self.within).copied());
        let mut set: Vec<usize> = whole.chain(within).chain(idle).take(wanted).collect();
        set.sort_unstable();
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binomials_are_exact_for_the_largest_pool() {
        assert_eq!(binomial(5, 2), 10);
        assert_eq!(binomial(3, 4), 0);
        assert_eq!(binomial(240, 3), 2_275_280);
        assert_eq!(binomial(240, 8), 242_641_770_336_810);
    }
}
