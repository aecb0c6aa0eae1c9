//! Reconstruction. A plan says which columns are read and what multiple of each goes into which wanted column; it is
//! made once for a pattern of loss and used for every stripe of it.
//!
//! Each parity column that is read is an equation: it is the sum of known multiples of data columns. Those of data
//! columns that are read too are moved to its other side; what remains is as many equations as there are data columns
//! missing, solved by elimination (Gauss and Jordan). A wanted parity column is encoded from data columns, each missing
//! one replaced by what it was solved to.

use crate::code::Shape;
use crate::error::{BlocksError, PlanError, Role};
use crate::field::{inverse, multiply};
use crate::kernel::{Kernel, Runnable, Start};
use crate::matrix::{PARITY, Row};
use crate::sums::{Lengths, add_up};
use crate::{DATA_COUNT_MAX, PARITY_COUNT_MAX};

const COLUMN_COUNT_MAX: usize = DATA_COUNT_MAX + PARITY_COUNT_MAX;

/// How wanted columns of a stripe follow from others.
#[derive(Debug, Clone)]
pub struct Plan {
    kernel: Runnable,
    /// The columns that are read; the first `source_count` count.
    sources: [usize; DATA_COUNT_MAX],
    source_count: usize,
    /// The columns that are computed, of which there are no more than can be lost; the first `target_count` count.
    targets: [usize; PARITY_COUNT_MAX],
    target_count: usize,
    /// For each target, the factors of the sources.
    rows: [Row; PARITY_COUNT_MAX],
}

impl Plan {
    pub(crate) fn new(
        shape: Shape,
        kernel: Runnable,
        given: &[usize],
        wanted: &[usize],
    ) -> Result<Self, PlanError> {
        check_columns(shape, given, wanted)?;
        let Some(read) = given.get(..shape.data_count) else {
            return Err(PlanError::TooFew { found: given.len(), expected: shape.data_count });
        };
        let data = data_rows(shape, read);
        let mut plan = Self {
            kernel,
            sources: [0; DATA_COUNT_MAX],
            source_count: read.len(),
            targets: [0; PARITY_COUNT_MAX],
            target_count: wanted.len(),
            rows: [[0; DATA_COUNT_MAX]; PARITY_COUNT_MAX],
        };
        for (place, column) in plan.sources.iter_mut().zip(read) {
            *place = *column;
        }
        for ((place, row), column) in plan.targets.iter_mut().zip(&mut plan.rows).zip(wanted) {
            *place = *column;
            *row = match column.checked_sub(shape.data_count) {
                None => data.get(*column).copied().unwrap_or_default(),
                Some(parity) => encoded(parity, &data),
            };
        }
        Ok(plan)
    }

    /// The columns that are read, in the order in which [`reconstruct`](Self::reconstruct) takes them.
    #[must_use]
    pub fn sources(&self) -> &[usize] {
        self.sources.get(..self.source_count).unwrap_or(&[])
    }

    /// The columns that are computed, in the order in which they were wanted.
    #[must_use]
    pub fn targets(&self) -> &[usize] {
        self.targets.get(..self.target_count).unwrap_or(&[])
    }

    /// What computes it.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.kernel.kernel()
    }

    /// Computes the wanted blocks of one stripe.
    ///
    /// `sources` has the block of each of [`sources`](Self::sources), in that order; `None` is one that was never written
    /// and counts as zeros. `targets` has room for each of [`targets`](Self::targets); what it held before does not
    /// matter. Only the caller can tell a source that is wrong: the result is wrong then, too.
    ///
    /// # Errors
    /// When there is not one place for each column, blocks differ in length, or a block is empty.
    pub fn reconstruct(
        &self,
        sources: &[Option<&[u8]>],
        targets: &mut [&mut [u8]],
    ) -> Result<(), BlocksError> {
        let mut lengths = Lengths::default();
        lengths.check_count(Role::Targets, targets.len(), self.target_count)?;
        lengths.check_count(Role::Sources, sources.len(), self.source_count)?;
        for (place, block) in targets.iter().enumerate() {
            lengths.check(Role::Targets, place, Some(block))?;
        }
        for (place, block) in sources.iter().enumerate() {
            lengths.check(Role::Sources, place, *block)?;
        }
        let inputs = sources.iter().enumerate().filter_map(|(place, block)| Some((place, (*block)?)));
        let targets = targets.iter_mut().map(|block| &mut **block).enumerate();
        add_up(self.kernel, &self.rows, inputs, targets, Start::Zeros);
        Ok(())
    }
}

fn check_columns(shape: Shape, given: &[usize], wanted: &[usize]) -> Result<(), PlanError> {
    let column_count = shape.data_count + shape.parity_count;
    let mut named = [false; COLUMN_COUNT_MAX];
    for &column in given.iter().chain(wanted) {
        match named.get_mut(..column_count).and_then(|named| named.get_mut(column)) {
            None => return Err(PlanError::NoSuchColumn { column, column_max: column_count - 1 }),
            Some(true) => return Err(PlanError::NamedTwice { column }),
            Some(named) => *named = true,
        }
    }
    Ok(())
}

/// Every data column as a sum of multiples of the columns that are read.
fn data_rows(shape: Shape, read: &[usize]) -> [Row; DATA_COUNT_MAX] {
    let mut rows = [[0; DATA_COUNT_MAX]; DATA_COUNT_MAX];
    let own = rows.get_mut(..shape.data_count).unwrap_or_default();
    for (place, column) in read.iter().enumerate() {
        if let Some(factor) = own.get_mut(*column).and_then(|row| row.get_mut(place)) {
            *factor = 1;
        }
    }
    let mut equations: [Equation; PARITY_COUNT_MAX] = Default::default();
    let mut count = 0;
    for (place, column) in read.iter().enumerate() {
        let parity = column.checked_sub(shape.data_count).and_then(|row| PARITY.get(row));
        if let Some((parity, equation)) = parity.zip(equations.get_mut(count)) {
            *equation = Equation::of(parity.get(..shape.data_count).unwrap_or(&[]), read, place);
            count += 1;
        }
    }
    let equations = equations.get_mut(..count).unwrap_or_default();
    solve(equations);
    let missing = own.iter_mut().enumerate().filter(|(column, _)| !read.contains(column));
    for ((_, row), equation) in missing.zip(equations) {
        *row = equation.read;
    }
    rows
}

/// A parity column as a sum of multiples of the columns that are read.
fn encoded(parity: usize, data: &[Row; DATA_COUNT_MAX]) -> Row {
    let mut sum = [0; DATA_COUNT_MAX];
    // Behind the code's data columns the rows are zeros.
    for (factor, row) in PARITY.get(parity).into_iter().flatten().zip(data) {
        add_multiple(&mut sum, *factor, row);
    }
    sum
}

/// A sum of multiples of missing data columns that equals a sum of multiples of columns that are read.
#[derive(Clone, Copy, Default)]
struct Equation {
    /// Factors of the missing data columns, in their order.
    missing: [u8; PARITY_COUNT_MAX],
    /// Factors of the columns that are read, in theirs.
    read: Row,
}

impl Equation {
    /// What the parity column at `place` of `read` says, with these factors of the data columns.
    fn of(parity: &[u8], read: &[usize], place: usize) -> Self {
        let mut equation = Self::default();
        let mut missing = equation.missing.iter_mut();
        for (column, factor) in parity.iter().enumerate() {
            let side = match read.iter().position(|other| *other == column) {
                Some(at) => equation.read.get_mut(at),
                None => missing.next(),
            };
            if let Some(side) = side {
                *side = *factor;
            }
        }
        if let Some(own) = equation.read.get_mut(place) {
            *own = 1;
        }
        equation
    }

    fn factor(&self, missing: usize) -> u8 {
        self.missing.get(missing).copied().unwrap_or(0)
    }

    fn add(&mut self, factor: u8, other: &Self) {
        add_multiple(&mut self.missing, factor, &other.missing);
        add_multiple(&mut self.read, factor, &other.read);
    }
}

fn add_multiple<const LEN: usize>(to: &mut [u8; LEN], factor: u8, of: &[u8; LEN]) {
    for (to, of) in to.iter_mut().zip(of) {
        *to ^= multiply(factor, *of);
    }
}

/// Makes equation i say what missing column i is.
///
/// Every square part of the parity matrix is invertible, those in its upper left corner included, so the factor that is
/// divided by is never zero and no equations need to change places.
fn solve(equations: &mut [Equation]) {
    for column in 0..equations.len() {
        let Some(own) = equations.get_mut(column) else { return };
        let pivot = own.factor(column);
        assert!(pivot != 0, "a square part of the parity matrix is not invertible");
        let unscaled = std::mem::take(own);
        own.add(inverse(pivot), &unscaled);
        let own = *own;
        for (row, other) in equations.iter_mut().enumerate() {
            if row != column {
                other.add(other.factor(column), &own);
            }
        }
    }
}
