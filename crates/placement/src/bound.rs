//! What a set of disks can hold: the exact maximum, fractional rows allowed.
//!
//! # Mirrors of automatic width
//! Write x for the allocation units of all columns, one copy of each. A group holds no allocation unit of a column twice, so it
//! holds at most min(F, x) of them, F being its room; all groups together must hold c·x. Hence Σ min(F, x) ≥ c·x is necessary. It
//! is sufficient: lay a tape of length c·x around c turns of a drum of circumference x, each group taking a stretch of min(F, x);
//! no stretch overlaps itself, and every point of the drum is covered c times (McNaughton's wrap-around rule of 1959, for machines
//! and jobs). Rows of one column do that, and a wider row is several rows of one column, so no width beats them. As Σ min(F, x) is
//! the least of j·x + tail(j) over j, with tail(j) the room of all but the j largest groups, the largest x is **min over j < c of
//! tail(j) ÷ (c − j)**.
//!
//! # A fixed width
//! In n rows the slabs of a set A of disks are at most n·rank(A), where rank(A) is the largest part of one row
//! that A can hold; the rest must fit the other disks: n·T ≤ n·rank(A) + room(not A) for every A, with T the
//! allocation units of a row. The sets of disks and columns that can be matched form a gammoid, so rank is a sum of
//! matroid ranks (one for the allocation units that all slabs have, one for those that long slabs have beyond), hence
//! submodular, and by Edmonds' theorem on polymatroid intersection (1970) the condition is sufficient: every point of
//! n times the base polytope is a sum of rows. Each rank is the lesser of "all slabs" and Σ min(disks of A in
//! the group, slabs that a group may hold), which leaves four cases to minimise, each separable by group.
//!
//! # Parity of automatic width
//! A row of k data columns takes thickness s from k + m groups. Let X be the thickness of all rows together and
//! G(X) = Σ min(F, X). All slabs hold at most G(X), of which m·X is parity. Rows may be mixed so that the mean
//! width lies anywhere between the least and the most, and by the theorem of Gale and Ryser (1957) such a mixture
//! fits whenever its widest part does: two adjacent widths whose mean is H(X) ÷ X, with H(X) the lesser of G(X) and
//! the widest, never cross G, because G is concave with whole slopes. So the maximum is that of **H(X) − m·X
//! where H(X) ≥ (least + m)·X**. Where columns are uneven, least and most are data per parity in allocation units rather
//! than column counts, and the figure is an upper bound that is met within the unevenness.

use dolmen_units::Bytes;

use crate::field::{Field, Group};
use crate::request::{Request, Resiliency, Width};
use crate::shape::Shape;
use crate::{DUAL_PARITY_DATA_COLUMNS_MAX, PARITY_MAX};

/// Fractions are kept to a 1024th of an allocation unit or of a row.
pub(crate) const FINE: u128 = 1024;

/// Groups that may matter as "largest": one more than the widest row has slabs in different groups.
const LARGEST_MAX: usize = 16;
const _: () = assert!(
    (DUAL_PARITY_DATA_COLUMNS_MAX + PARITY_MAX) as usize + 1 < LARGEST_MAX,
    "a set of groups as large as the widest row must be told from the rest"
);

/// The most that a set of disks can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Allocation units of data columns, one copy of each, with what their slabs need beside the data.
    pub column_units: u64,
    /// Data in so many allocation units, at the least overhead of the permitted widths.
    pub data: Bytes,
}

/// Which of the three arguments above applies.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rule {
    Mirror { copies: u32 },
    Fixed(Shape),
    Parity { parity: u32, least: Ratio, most: Ratio },
}

/// Allocation units of data columns for each allocation unit of one parity column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    data: u128,
    parity: u128,
}

impl Ratio {
    fn of(shape: &Shape) -> Self {
        Self { data: u128::from(shape.data_units()), parity: u128::from(shape.long_units) }
    }

    fn is_below(self, other: Self) -> bool {
        self.data * other.parity < other.data * self.parity
    }
}

/// What the groups can still hold, in 1024ths of an allocation unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Promise {
    /// Allocation units of data columns.
    pub(crate) columns: u128,
    /// What one group holds of them at most: a group with more room than this has room that nothing can use.
    pub(crate) level: u128,
}

impl Rule {
    pub(crate) fn new(request: &Request, shapes: &[Shape], narrowest: Shape) -> Self {
        match (request.resiliency(), request.width()) {
            (Resiliency::Span, _) | (_, Width::Columns(_)) => Self::Fixed(narrowest),
            (Resiliency::Striped { copies }, Width::Auto) => Self::Mirror { copies },
            (Resiliency::Parity { parity }, Width::Auto) => {
                let mut least = Ratio::of(&narrowest);
                let mut most = least;
                for ratio in shapes.iter().map(Ratio::of) {
                    least = if ratio.is_below(least) { ratio } else { least };
                    most = if most.is_below(ratio) { ratio } else { most };
                }
                Self::Parity { parity, least, most }
            }
        }
    }

    /// What groups with so much room can hold.
    pub(crate) fn promise(&self, room: impl Iterator<Item = u64>) -> Option<Promise> {
        match self {
            Self::Mirror { copies } => Some(Tails::new(room, *copies).mirror(*copies)),
            Self::Parity { parity, least, most } => {
                Some(Tails::new(room, u32::MAX).parity(*parity, *least, *most))
            }
            Self::Fixed(_) => None,
        }
    }

    /// The bound of a field.
    pub(crate) fn bound(&self, field: &Field, request: &Request, shapes: &[Shape]) -> Bound {
        let row = u128::from(request.row().0);
        let (columns, data) = match self {
            Self::Fixed(shape) => {
                let rows = fixed_rows(field, shape);
                (rows * u128::from(shape.data_units()), rows * row)
            }
            Self::Mirror { .. } | Self::Parity { .. } => {
                let columns =
                    self.promise(field.groups.iter().map(|group| group.free)).map_or(0, |p| p.columns);
                let least = shapes.iter().map(Shape::data_units).min().unwrap_or(1);
                (columns, columns * row / u128::from(least.max(1)))
            }
        };
        Bound { column_units: narrow(columns / FINE), data: Bytes(narrow(data / FINE)) }
    }
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// The room of all groups but the largest, for each number of largest ones.
struct Tails {
    without: [u128; LARGEST_MAX],
}

impl Tails {
    /// Sets apart up to `apart` of the largest. Tails beyond are of no use to the caller, and cost time.
    fn new(room: impl Iterator<Item = u64>, apart: u32) -> Self {
        let mut largest = [0u64; LARGEST_MAX];
        let apart = usize::try_from(apart).unwrap_or(LARGEST_MAX).min(LARGEST_MAX);
        let mut total = 0u128;
        for mut free in room {
            total += u128::from(free);
            if largest.get(apart - 1).is_some_and(|least| free <= *least) {
                continue;
            }
            for place in largest.iter_mut().take(apart) {
                if free > *place {
                    std::mem::swap(place, &mut free);
                }
            }
        }
        let mut without = [0u128; LARGEST_MAX];
        for (tail, large) in without.iter_mut().zip(largest) {
            *tail = total * FINE;
            total -= u128::from(large);
        }
        Self { without }
    }

    fn mirror(&self, copies: u32) -> Promise {
        let columns = self.reach(u128::from(copies), 1);
        Promise { columns, level: columns }
    }

    /// The largest X with Σ min(F, X) ≥ (slabs ÷ unit)·X.
    fn reach(&self, slabs: u128, unit: u128) -> u128 {
        (0u128..)
            .zip(self.without)
            .take_while(|(j, _)| j * unit < slabs)
            .map(|(j, tail)| tail * unit / (slabs - j * unit))
            .min()
            .unwrap_or(0)
    }

    /// Σ min(F, X), for an X that fewer than [`LARGEST_MAX`] groups exceed.
    fn held(&self, thickness: u128) -> u128 {
        (0u128..).zip(self.without).map(|(j, tail)| j * thickness + tail).min().unwrap_or(0)
    }

    fn parity(&self, parity: u32, least: Ratio, most: Ratio) -> Promise {
        let parity = u128::from(parity);
        let reach = |ratio: Ratio| self.reach(ratio.data + parity * ratio.parity, ratio.parity);
        // Beyond the room of the largest group but `parity`, more thickness adds no more data than parity.
        let mut largest = (0u128..).zip(self.without.iter().zip(self.without.iter().skip(1)));
        let flat = largest.find(|(j, _)| *j == parity).map_or(0, |(_, (with, without))| with - without);
        let level = reach(most).max(reach(least).min(flat));
        let widest = (most.data + parity * most.parity) * level / most.parity.max(1);
        let columns = self.held(level).min(widest).saturating_sub(parity * level);
        Promise { columns, level }
    }
}

/// The rows of one shape that a field can hold, in 1024ths of a row. Each step takes the set of disks that fails
/// worst and allows it as many rows as it can hold, which is Dinkelbach's method (1967): the count falls at each step
/// and a handful of steps end it.
pub(crate) fn fixed_rows(field: &Field, shape: &Shape) -> u128 {
    let groups: Vec<Vec<u64>> = field.groups.iter().map(|group| members(group, shape)).collect();
    let room: u128 = groups.iter().flatten().map(|free| u128::from(*free)).sum();
    let row = Row::of(shape);
    let mut rows = room * FINE / row.total().max(1);
    loop {
        let cut = row.least_cut(rows, &groups);
        if cut.holds(rows) >= rows * row.total() {
            return rows;
        }
        rows = cut.outside / (row.total() - cut.rank);
    }
}

/// The room of a group's disks, largest first; a group that holds one slab of a row is as good as one disk.
fn members(group: &Group, shape: &Shape) -> Vec<u64> {
    if shape.group_max() == 1 {
        return vec![group.free];
    }
    let mut free: Vec<u64> = group.bins.iter().map(|bin| bin.free).collect();
    free.sort_unstable_by_key(|free| std::cmp::Reverse(*free));
    free
}

/// A row as layers: what all columns have, and what the long ones have beyond.
struct Row {
    copies: u128,
    layers: [Layer; 2],
}

struct Layer {
    columns: u128,
    units: u128,
}

impl Row {
    fn of(shape: &Shape) -> Self {
        let all = Layer { columns: u128::from(shape.columns()), units: u128::from(shape.short_units) };
        let long = Layer {
            columns: u128::from(shape.long_columns + shape.parity),
            units: u128::from(shape.long_units - shape.short_units),
        };
        Self { copies: u128::from(shape.copies), layers: [all, long] }
    }

    fn total(&self) -> u128 {
        self.copies * self.layers.iter().map(|layer| layer.columns * layer.units).sum::<u128>()
    }

    /// The set of disks that holds least, in the three cases that say anything.
    fn least_cut(&self, rows: u128, groups: &[Vec<u64>]) -> Cut {
        let [all, long] = &self.layers;
        let whole = |layer: &Layer| self.copies * layer.columns * layer.units;
        let both = Cut::least(rows, &[all, long], groups, 0);
        if long.units == 0 || long.columns == all.columns {
            // Even rows are one layer, and the cases with one of two say nothing more.
            return both;
        }
        let rest =
            [Cut::least(rows, &[all], groups, whole(long)), Cut::least(rows, &[long], groups, whole(all))];
        rest.into_iter()
            .fold(both, |least, cut| if cut.holds(rows) < least.holds(rows) { cut } else { least })
    }
}

/// A set of disks A as a limit: in n rows it and the rest hold at most `outside` + n·`rank`.
#[derive(Debug, Clone, Copy)]
struct Cut {
    /// Room of the disks that are not in A, in 1024ths of an allocation unit.
    outside: u128,
    /// Allocation units of one row that A can hold.
    rank: u128,
}

impl Cut {
    fn holds(self, rows: u128) -> u128 {
        self.outside + rows * self.rank
    }

    /// The least of all sets, where the rank of `layers` grows with A beside what is `given`. In each group the
    /// best A of a given size takes the largest disks.
    fn least(rows: u128, layers: &[&Layer], groups: &[Vec<u64>], given: u128) -> Self {
        let rank =
            |disks: u128| layers.iter().map(|layer| layer.columns.min(disks) * layer.units).sum::<u128>();
        let mut least = Self { outside: 0, rank: given };
        for group in groups {
            let mut outside: u128 = group.iter().map(|free| u128::from(*free) * FINE).sum();
            let mut part = Self { outside, rank: 0 };
            for (disks, free) in (1u128..).zip(group) {
                outside -= u128::from(*free) * FINE;
                let larger = Self { outside, rank: rank(disks) };
                part = if larger.holds(rows) < part.holds(rows) { larger } else { part };
            }
            least = Self { outside: least.outside + part.outside, rank: least.rank + part.rank };
        }
        least
    }
}
