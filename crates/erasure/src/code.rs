//! The code of a shape: encoding a stripe, and carrying changes into its parity.

use crate::error::{BlocksError, CodeError, PlanError, Role};
use crate::kernel::{Kernel, Runnable, Start};
use crate::matrix::{PARITY, Row};
use crate::plan::Plan;
use crate::sums::{Lengths, SOURCES_MAX, add_up};
use crate::{DATA_COUNT_MAX, PARITY_COUNT_MAX};

/// How many changes go through parity in one pass: each may bring an old and a new block.
const CHANGES_PER_PASS: usize = SOURCES_MAX / 2;

/// How many columns a code has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Data columns, 1 to [`DATA_COUNT_MAX`].
    pub data_count: usize,
    /// Parity columns, 1 to [`PARITY_COUNT_MAX`]: how many lost columns are survived.
    pub parity_count: usize,
}

/// A data block that changes.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The number of its data column.
    pub column: usize,
    /// What parity was made of; `None` for a block that was never written, or only zeros.
    pub old: Option<&'a [u8]>,
    /// What parity is to be made of; `None` for zeros, as after a discard.
    pub new: Option<&'a [u8]>,
}

/// An erasure code of one shape, with the kernel that computes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    shape: Shape,
    kernel: Runnable,
}

impl Code {
    /// The code of a shape, computed by the fastest kernel that this processor can run.
    ///
    /// # Errors
    /// When a count is zero or above its limit.
    pub fn new(shape: Shape) -> Result<Self, CodeError> {
        Self::with_kernel(shape, Kernel::fastest())
    }

    /// The same with a kernel of the caller's choice, for comparisons: the bytes are the same with each.
    ///
    /// # Errors
    /// When a count is zero or above its limit, or the processor lacks what the kernel is made of.
    pub fn with_kernel(shape: Shape, kernel: Kernel) -> Result<Self, CodeError> {
        let Shape { data_count, parity_count } = shape;
        if !(1..=DATA_COUNT_MAX).contains(&data_count) {
            return Err(CodeError::DataCount { found: data_count });
        }
        if !(1..=PARITY_COUNT_MAX).contains(&parity_count) {
            return Err(CodeError::ParityCount { found: parity_count });
        }
        let kernel = Runnable::new(kernel).ok_or(CodeError::Kernel { kernel })?;
        Ok(Self { shape, kernel })
    }

    /// How many columns it has.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// What computes it.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.kernel.kernel()
    }

    /// What each data column is multiplied with before it is added to a parity column, in the order of data columns;
    /// `None` for a parity column that the code does not have. These are part of what a reader of the disks must know.
    #[must_use]
    pub fn factors(&self, parity_column: usize) -> Option<&'static [u8]> {
        self.rows().get(parity_column)?.get(..self.shape.data_count)
    }

    fn rows(&self) -> &'static [Row] {
        PARITY.get(..self.shape.parity_count).unwrap_or(&[])
    }

    /// Computes parity of all data blocks of a stripe.
    ///
    /// `data` has a place for each data column, in order; `None` is a block that was never written and counts as
    /// zeros. `parity` has a place for each parity column, in order; what is behind `None` is not computed. What the
    /// parity blocks held before does not matter.
    ///
    /// # Errors
    /// When there is not one place for each column, blocks differ in length, or a block is empty.
    pub fn encode(
        &self,
        data: &[Option<&[u8]>],
        parity: &mut [Option<&mut [u8]>],
    ) -> Result<(), BlocksError> {
        let mut lengths = Lengths::default();
        self.check_parity(parity, &mut lengths)?;
        lengths.check_count(Role::Data, data.len(), self.shape.data_count)?;
        for (place, block) in data.iter().enumerate() {
            lengths.check(Role::Data, place, *block)?;
        }
        let inputs = data.iter().enumerate().filter_map(|(column, block)| Some((column, (*block)?)));
        add_up(self.kernel, self.rows(), inputs, present(parity), Start::Zeros);
        Ok(())
    }

    /// Carries changes of data blocks into parity that was computed of what they were: each parity block is read and
    /// written once, other data blocks are not needed.
    ///
    /// `parity` has a place for each parity column, in order; what is behind `None` is left alone. Parity that was
    /// never written is zeros, as that of data which was never written; the caller fills it.
    ///
    /// # Errors
    /// When there is not one place for each parity column, a change names no data column or one that another change
    /// names, blocks differ in length, or a block is empty.
    pub fn update(
        &self,
        changes: &[Change<'_>],
        parity: &mut [Option<&mut [u8]>],
    ) -> Result<(), BlocksError> {
        let mut lengths = Lengths::default();
        self.check_parity(parity, &mut lengths)?;
        let mut named = [false; DATA_COUNT_MAX];
        let data_count = self.shape.data_count;
        for (place, change) in changes.iter().enumerate() {
            let column = change.column;
            match named.get_mut(..data_count).and_then(|named| named.get_mut(column)) {
                None => return Err(BlocksError::NoSuchColumn { column, data_count }),
                Some(true) => return Err(BlocksError::ChangedTwice { column }),
                Some(named) => *named = true,
            }
            lengths.check(Role::Changes, place, change.old)?;
            lengths.check(Role::Changes, place, change.new)?;
        }
        for changes in changes.chunks(CHANGES_PER_PASS) {
            // The old block leaves the sum by being added once more.
            let inputs = changes.iter().flat_map(|change| {
                [change.old, change.new].into_iter().flatten().map(|block| (change.column, block))
            });
            add_up(self.kernel, self.rows(), inputs, present(parity), Start::Kept);
        }
        Ok(())
    }

    /// Prepares the computation of the columns in `wanted` from those in `given`. Of those given, the first
    /// `data_count` are read, in this order: so what is cheap to read stands in front.
    ///
    /// # Errors
    /// When fewer columns are given than there are data columns, a column does not exist, or one is named twice.
    pub fn plan(&self, given: &[usize], wanted: &[usize]) -> Result<Plan, PlanError> {
        Plan::new(self.shape, self.kernel, given, wanted)
    }

    fn check_parity(&self, parity: &[Option<&mut [u8]>], lengths: &mut Lengths) -> Result<(), BlocksError> {
        lengths.check_count(Role::Parity, parity.len(), self.shape.parity_count)?;
        for (place, block) in parity.iter().enumerate() {
            lengths.check(Role::Parity, place, block.as_deref())?;
        }
        Ok(())
    }
}

/// The parity blocks that are there, with their numbers.
fn present<'a>(parity: &'a mut [Option<&mut [u8]>]) -> impl Iterator<Item = (usize, &'a mut [u8])> {
    parity.iter_mut().enumerate().filter_map(|(row, block)| Some((row, block.as_deref_mut()?)))
}
