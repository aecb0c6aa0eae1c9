//! What is asked for: a resiliency, a width and the two lengths that shape a row.

use dolmen_units::{BLOCK_BYTES, Bytes};

use crate::{
    COPIES_MAX, DATA_COLUMNS_MAX, DUAL_PARITY_DATA_COLUMNS_MAX, PARITY_DATA_COLUMNS_MIN, PARITY_MAX,
    PARITY_OVERHEAD_PERCENT_MAX, ROW_BYTES_MAX, STRIPED_OVERHEAD_PERCENT_MAX,
};

/// How a row survives the loss of disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resiliency {
    /// One column on one disk; disks are filled one after another. Survives nothing.
    Span,
    /// Columns side by side, each on `copies` disks. One copy is `simple`, more are a mirror.
    Striped {
        /// Replicas of each column.
        copies: u32,
    },
    /// Data columns and parity columns over them.
    Parity {
        /// Parity columns: 1 or 2.
        parity: u32,
    },
}

impl Resiliency {
    /// Disks (or fault domains) that may be lost at once without losing a byte.
    #[must_use]
    pub const fn survives(self) -> u32 {
        match self {
            Self::Span => 0,
            Self::Striped { copies } => copies.saturating_sub(1),
            Self::Parity { parity } => parity,
        }
    }

    /// Disks without which no row can be placed.
    #[must_use]
    pub const fn minimum_disks(self) -> u32 {
        match self {
            Self::Span => 1,
            Self::Striped { copies } => copies,
            Self::Parity { parity } => PARITY_DATA_COLUMNS_MIN + parity,
        }
    }

    /// The fewest data columns that a row may have.
    pub(crate) const fn data_columns_min(self) -> u32 {
        match self {
            Self::Span | Self::Striped { .. } => 1,
            Self::Parity { .. } => PARITY_DATA_COLUMNS_MIN,
        }
    }

    /// The most data columns that a row may have.
    pub(crate) const fn data_columns_max(self) -> u32 {
        match self {
            Self::Span => 1,
            Self::Striped { .. } | Self::Parity { parity: 0 | 1 } => DATA_COLUMNS_MAX,
            Self::Parity { .. } => DUAL_PARITY_DATA_COLUMNS_MAX,
        }
    }

    /// Hundredths of its slabs that a row of automatic width may need beside data and redundancy.
    pub(crate) const fn overhead_percent_max(self) -> u64 {
        match self {
            Self::Span | Self::Striped { .. } => STRIPED_OVERHEAD_PERCENT_MAX,
            Self::Parity { .. } => PARITY_OVERHEAD_PERCENT_MAX,
        }
    }
}

/// How many data columns a row has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// As many as the disks allow without wasting room, chosen for each row, and none so wide that what stands in its
    /// slabs beside the data would be more than a small part of them.
    Auto,
    /// Always so many.
    Columns(u32),
}

/// A request that no set of disks could serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The number of copies is out of range.
    #[error(
        "a striped row was asked for with {found} copies, but it keeps 1 to {max}; choose a number of copies in that range"
    )]
    Copies {
        /// What was asked for.
        found: u32,
        /// The most there may be.
        max: u32,
    },
    /// The number of parity columns is out of range.
    #[error(
        "a parity row was asked for with {found} parity columns, but it has 1 to {max}; choose single or dual parity"
    )]
    Parity {
        /// What was asked for.
        found: u32,
        /// The most there may be.
        max: u32,
    },
    /// The number of data columns is out of range for the resiliency and the number of interleaves.
    #[error(
        "a row was asked for with {found} data columns, but it may have {min} to {max} here; choose a number in that range or leave the width to the pool"
    )]
    Columns {
        /// What was asked for.
        found: u32,
        /// The fewest.
        min: u32,
        /// The most.
        max: u32,
    },
    /// A row holds fewer interleaves than the resiliency needs data columns.
    #[error(
        "a row of {row} holds {interleaves} of the interleaves of {interleave}, and {min} are needed, one for each data column; choose a longer row or a shorter interleave"
    )]
    ShortRow {
        /// Its length.
        row: Bytes,
        /// Bytes written to one column before the next.
        interleave: Bytes,
        /// How many of them it holds.
        interleaves: u64,
        /// The fewest data columns.
        min: u32,
    },
    /// The row length is zero or too long.
    #[error(
        "a row length of {found} was asked for, but a row has at least one interleave and at most {max}; 64 MiB is usual"
    )]
    Row {
        /// What was asked for.
        found: Bytes,
        /// The longest.
        max: Bytes,
    },
    /// The interleave is zero, no whole number of blocks, or does not divide the row.
    #[error(
        "an interleave of {found} was asked for in rows of {row}, but an interleave is a multiple of {block} that divides the row; 256 KiB is usual"
    )]
    Interleave {
        /// What was asked for.
        found: Bytes,
        /// The row that it has to divide.
        row: Bytes,
        /// What it has to be a multiple of.
        block: Bytes,
    },
}

/// A checked request. All rows of one request have the same length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    resiliency: Resiliency,
    width: Width,
    row: Bytes,
    interleave: Bytes,
}

impl Request {
    /// Rows of 64 MiB with 256 KiB (striped) or 64 KiB (parity) to an interleave and automatic width.
    ///
    /// # Errors
    /// As [`Request::new`].
    pub fn usual(resiliency: Resiliency) -> Result<Self, RequestError> {
        let interleave = match resiliency {
            Resiliency::Span | Resiliency::Striped { .. } => Bytes::kib(256),
            Resiliency::Parity { .. } => Bytes::kib(64),
        };
        Self::new(resiliency, Width::Auto, Bytes::mib(64), interleave)
    }

    /// Checks a request against the limits of the crate.
    ///
    /// # Errors
    /// [`RequestError`] names the first field that is out of range.
    pub fn new(
        resiliency: Resiliency,
        width: Width,
        row: Bytes,
        interleave: Bytes,
    ) -> Result<Self, RequestError> {
        check_redundancy(resiliency)?;
        if row == Bytes::ZERO || row.0 > ROW_BYTES_MAX {
            return Err(RequestError::Row { found: row, max: Bytes(ROW_BYTES_MAX) });
        }
        if interleave == Bytes::ZERO
            || !interleave.0.is_multiple_of(BLOCK_BYTES)
            || !row.0.is_multiple_of(interleave.0)
        {
            return Err(RequestError::Interleave { found: interleave, row, block: Bytes(BLOCK_BYTES) });
        }
        let request = Self { resiliency, width, row, interleave };
        let (min, max) = (resiliency.data_columns_min(), request.data_columns_max());
        if max < min {
            return Err(RequestError::ShortRow { row, interleave, interleaves: request.interleaves(), min });
        }
        let found = match width {
            Width::Auto => min,
            Width::Columns(columns) => columns,
        };
        if found < min || found > max {
            return Err(RequestError::Columns { found, min, max });
        }
        Ok(request)
    }

    /// How the rows survive the loss of disks.
    #[must_use]
    pub const fn resiliency(&self) -> Resiliency {
        self.resiliency
    }

    /// How many data columns the rows have.
    #[must_use]
    pub const fn width(&self) -> Width {
        self.width
    }

    /// The length of a row.
    #[must_use]
    pub const fn row(&self) -> Bytes {
        self.row
    }

    /// Bytes written to one column before the next.
    #[must_use]
    pub const fn interleave(&self) -> Bytes {
        self.interleave
    }

    /// Interleaves in a row.
    pub(crate) const fn interleaves(&self) -> u64 {
        self.row.0 / self.interleave.0
    }

    /// The most data columns of a row: a column without an interleave would be an empty slab.
    fn data_columns_max(&self) -> u32 {
        let interleaves = u32::try_from(self.interleaves()).unwrap_or(u32::MAX);
        self.resiliency.data_columns_max().min(interleaves)
    }

    /// The widths that may be used, narrowest first.
    pub(crate) fn widths(&self) -> std::ops::RangeInclusive<u32> {
        match self.width {
            Width::Auto => self.resiliency.data_columns_min()..=self.data_columns_max(),
            Width::Columns(columns) => columns..=columns,
        }
    }
}

fn check_redundancy(resiliency: Resiliency) -> Result<(), RequestError> {
    match resiliency {
        Resiliency::Striped { copies } if copies == 0 || copies > COPIES_MAX => {
            Err(RequestError::Copies { found: copies, max: COPIES_MAX })
        }
        Resiliency::Parity { parity } if parity == 0 || parity > PARITY_MAX => {
            Err(RequestError::Parity { found: parity, max: PARITY_MAX })
        }
        Resiliency::Span | Resiliency::Striped { .. } | Resiliency::Parity { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_resiliency_needs_the_published_number_of_disks_and_no_more() {
        for (resiliency, minimum, survives) in [
            (Resiliency::Span, 1, 0),
            (Resiliency::Striped { copies: 1 }, 1, 0),
            (Resiliency::Striped { copies: 2 }, 2, 1),
            (Resiliency::Striped { copies: 3 }, 3, 2),
            (Resiliency::Striped { copies: 4 }, 4, 3),
            (Resiliency::Parity { parity: 1 }, 3, 1),
            (Resiliency::Parity { parity: 2 }, 4, 2),
        ] {
            assert_eq!(resiliency.minimum_disks(), minimum, "{resiliency:?}");
            assert_eq!(resiliency.survives(), survives, "{resiliency:?}");
        }
    }

    #[test]
    fn what_no_set_of_disks_could_serve_is_refused_by_field() {
        let new = |resiliency, width, row, interleave| {
            Request::new(resiliency, width, Bytes(row), Bytes(interleave))
        };
        let mirror = Resiliency::Striped { copies: 2 };
        let refused = |result: Result<Request, RequestError>| result.unwrap_err();
        for copies in [0, 5] {
            let result = new(Resiliency::Striped { copies }, Width::Auto, 1 << 26, 1 << 18);
            assert!(matches!(refused(result), RequestError::Copies { found, max: 4 } if found == copies));
        }
        for parity in [0, 3] {
            let result = new(Resiliency::Parity { parity }, Width::Auto, 1 << 26, 1 << 16);
            assert!(matches!(refused(result), RequestError::Parity { found, max: 2 } if found == parity));
        }
        for (resiliency, columns, max) in [
            (mirror, 9, 8),
            (mirror, 0, 8),
            (Resiliency::Parity { parity: 2 }, 13, 12),
            (Resiliency::Span, 2, 1),
        ] {
            let result = new(resiliency, Width::Columns(columns), 1 << 26, 1 << 16);
            assert!(matches!(refused(result), RequestError::Columns { max: m, .. } if m == max));
        }
        assert!(matches!(
            refused(new(mirror, Width::Columns(3), 1 << 17, 1 << 16)),
            RequestError::Columns { max: 2, .. }
        ));
        let parity = Resiliency::Parity { parity: 1 };
        for width in [Width::Auto, Width::Columns(2)] {
            let short = refused(new(parity, width, 1 << 20, 1 << 20));
            assert!(matches!(short, RequestError::ShortRow { interleaves: 1, min: 2, .. }), "{short}");
        }
        for row in [0, (1 << 30) + (1 << 16)] {
            assert!(matches!(refused(new(mirror, Width::Auto, row, 1 << 16)), RequestError::Row { .. }));
        }
        for interleave in [0, 512, 3 << 16] {
            let result = new(mirror, Width::Auto, 1 << 26, interleave);
            assert!(matches!(refused(result), RequestError::Interleave { .. }));
        }
        assert_eq!(Request::usual(mirror).unwrap().interleaves(), 256);
    }
}
