//! What a space is to be, checked before anything is made.

use dolmen_mutation::mutation;
use dolmen_placement::{Request, RequestError, Width};
use dolmen_units::{BLOCK_BYTES, Bytes, Name};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::format::error::SpaceError;
use crate::format::layouts::{Layout, Layouts};
use crate::format::limits::Limits;
use crate::format::raw::{INTERLEAVE_BYTES, INTERLEAVE_RANGE, RECORD_VERSION, RawSpace};
use crate::format::resiliency::{Integrity, MIRROR_COPIES, Resiliency};

/// Length of a row of a fixed space when nobody says otherwise, and the longest that a thin one gets by itself.
pub const ROW_BYTES: Bytes = Bytes::mib(64);
/// Length of a row of a thin space when nobody says otherwise, up to 2 TiB. File systems begin every few gigabytes with
/// metadata, ext4 every 2 GiB, and each such place claims a row: rows of 8 MiB keep that below half a percent.
pub const THIN_ROW_BYTES: Bytes = Bytes::mib(8);
/// The same with more than one parity: the tables of short slabs, of which each column has one more, would take more than two
/// per cent.
pub const THIN_DUAL_PARITY_ROW_BYTES: Bytes = Bytes::mib(32);
/// Rows of a thin space before they become longer, so that the map stays small.
pub const THIN_ROWS_MAX: u64 = 1 << 18;
/// Length of a row of a space above [`LARGE_SPACE_BYTES`].
pub const LARGE_ROW_BYTES: Bytes = Bytes::mib(256);
/// From here on rows are longer, so that the map stays small.
pub const LARGE_SPACE_BYTES: Bytes = Bytes::gib(64 * 1024);
/// The same with parity: a whole stripe, which is written once, is short enough for files to bring it.
pub const PARITY_INTERLEAVE_BYTES: Bytes = Bytes::kib(64);
/// The shortest row: for small pools, and tests.
pub const ROW_BYTES_MIN: Bytes = Bytes::mib(1);
/// The largest space.
pub const SPACE_BYTES_MAX: Bytes = Bytes::gib(4 * 1024 * 1024);

/// Disks that a space may lose, at most.
pub(crate) const REDUNDANCY_MAX: u8 = 3;

/// Whether rows are claimed when they are first written, or all at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provisioning {
    /// When first written.
    Thin,
    /// All when the space is made.
    Fixed,
}

/// What a space is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceSpec {
    /// Its name.
    pub name: Name,
    /// Its size, a multiple of 4 KiB.
    pub size: Bytes,
    /// How it survives the loss of disks.
    pub resiliency: Resiliency,
    /// Data columns, or automatic.
    pub columns: Option<u8>,
    /// Bytes written to one column before the next.
    pub interleave: Bytes,
    /// Bytes of a row, or by the size.
    pub row: Option<Bytes>,
    /// Thin or fixed.
    pub provisioning: Provisioning,
    /// Relaxed or strict.
    pub integrity: Integrity,
    /// Logical sector that devices of this space present, 512 or 4096. The engine serves ranges of any alignment.
    pub sector: Bytes,
    /// What it may have of its pool's disks, and what it is to get.
    pub limits: Limits,
}

/// Whether a space is one that may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It may.
    Whole,
    /// It is being deleted, or made with all of its rows: when that is cut short, nothing is left of it.
    Unfinished,
    /// It is in the trash since then, in seconds since 1970: whole, and not to be used before it is restored.
    Trashed { at_s: u64 },
}

impl SpaceSpec {
    /// A thin space with everything else as usual.
    #[must_use]
    pub fn usual(name: Name, size: Bytes, resiliency: Resiliency) -> Self {
        let interleave = match resiliency {
            Resiliency::Parity { .. } => PARITY_INTERLEAVE_BYTES,
            Resiliency::Simple | Resiliency::Span | Resiliency::Mirror { .. } => INTERLEAVE_BYTES,
        };
        Self {
            name,
            size,
            resiliency,
            columns: None,
            interleave,
            row: None,
            provisioning: Provisioning::Thin,
            integrity: Integrity::usual(resiliency),
            sector: Bytes(BLOCK_BYTES),
            limits: Limits::default(),
        }
    }

    /// The redundancy of the write cache that it needs, if it needs one.
    #[must_use]
    pub fn write_cache(&self) -> Option<u8> {
        self.integrity.write_cache(self.resiliency)
    }

    /// Length of its rows.
    #[must_use]
    pub fn row_bytes(&self) -> Bytes {
        self.row.unwrap_or_else(|| self.usual_row())
    }

    /// Length of its rows when nobody says otherwise: docs/design/0001 gives the reasons.
    fn usual_row(&self) -> Bytes {
        let longest = if self.size > LARGE_SPACE_BYTES { LARGE_ROW_BYTES } else { ROW_BYTES };
        match self.provisioning {
            Provisioning::Fixed => longest,
            Provisioning::Thin => {
                let shared = Bytes(self.size.0.div_ceil(THIN_ROWS_MAX).next_power_of_two());
                let shortest = match self.resiliency.parity_columns() {
                    0 | 1 => THIN_ROW_BYTES,
                    _ => THIN_DUAL_PARITY_ROW_BYTES,
                };
                shared.clamp(shortest, longest)
            }
        }
    }

    /// Fault domains that its rows want, of which rows of its resiliency have so many at least.
    #[must_use]
    pub fn domains_needed(&self, minimum: u32) -> u32 {
        match (self.columns.map(u32::from), self.resiliency) {
            (None, _) => minimum,
            (Some(columns), Resiliency::Parity { parity }) => columns + u32::from(parity),
            (Some(columns), _) => minimum * columns,
        }
    }

    /// Checks it against the limits.
    ///
    /// # Errors
    /// [`SpaceError`] names the first thing that cannot be.
    pub fn check(&self) -> Result<Request, SpaceError> {
        let size = |why| SpaceError::Size { found: self.size, why };
        if self.size == Bytes::ZERO {
            return Err(size("it holds nothing"));
        }
        if self.size > SPACE_BYTES_MAX {
            return Err(size("the largest space has 4 PiB"));
        }
        if !self.size.0.is_multiple_of(BLOCK_BYTES) {
            return Err(size("the size of a space is a multiple of 4 KiB"));
        }
        if !matches!(self.sector.0, 512 | 4096) {
            return Err(SpaceError::Unsupported {
                what: "this sector size",
                instead: "choose 512 or 4096 bytes",
            });
        }
        let (min, max) = INTERLEAVE_RANGE;
        let row = self.row_bytes();
        let divides = row.0.is_multiple_of(self.interleave.0.max(1));
        if self.interleave < min || self.interleave > max || !self.interleave.0.is_power_of_two() || !divides
        {
            return Err(SpaceError::Interleave { found: self.interleave, row });
        }
        if self.row_bytes() < ROW_BYTES_MIN {
            return Err(RequestError::Row { found: self.row_bytes(), max: Bytes::gib(1) }.into());
        }
        if let (Resiliency::Parity { .. }, Integrity::Relaxed) = (self.resiliency, self.integrity) {
            let instead = "leave that out; no block with parity is overwritten before its new content is safe, so it is strict";
            return Err(SpaceError::Unsupported { what: "a relaxed space with parity", instead });
        }
        if let Resiliency::Mirror { copies } = self.resiliency
            && !MIRROR_COPIES.contains(&copies)
        {
            return Err(RequestError::Copies {
                found: u32::from(copies),
                max: u32::from(*MIRROR_COPIES.end()),
            }
            .into());
        }
        self.limits.check(&self.name)?;
        let width = self.columns.map_or(Width::Auto, |columns| Width::Columns(u32::from(columns)));
        Ok(Request::new(self.resiliency.code(), width, self.row_bytes(), self.interleave)?)
    }

    /// The value of the space's key.
    pub(crate) fn encode(&self, standing: Standing, layouts: Layouts) -> Vec<u8> {
        let mut raw = RawSpace::new_zeroed();
        raw.standing = match standing {
            Standing::Whole => 0,
            Standing::Unfinished => 1,
            Standing::Trashed { .. } => 2,
        };
        if let Standing::Trashed { at_s } = standing {
            raw.trashed_at = at_s.into();
        }
        raw.version = RECORD_VERSION.into();
        raw.resiliency = self.resiliency.number();
        raw.copies = self.resiliency.copies();
        raw.parity = self.resiliency.parity_columns();
        raw.columns = self.columns.unwrap_or(0);
        raw.provisioning = if self.provisioning == Provisioning::Thin { 1 } else { 2 };
        raw.integrity = self.integrity.number();
        raw.sector_shift = if self.sector.0 == 512 { 9 } else { 12 };
        raw.size = self.size.0.into();
        raw.row_length = self.row_bytes().0.into();
        raw.interleave = u32::try_from(self.interleave.0).unwrap_or(0).into();
        layouts.write(&mut raw);
        [raw.iops_max, raw.iops_min, raw.rate_max, raw.rate_min] = self.limits.raw().map(Into::into);
        for (to, from) in raw.name.iter_mut().zip(self.name.as_str().bytes()) {
            *to = from;
        }
        raw.as_bytes().to_vec()
    }

    /// The space in the value of its key; `None` for what no version writes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, Standing, Layouts)> {
        let raw = RawSpace::ref_from_bytes(bytes).ok()?;
        if raw.version.get() != RECORD_VERSION || raw.reserved != [0; 2] || raw.reserved_after != 0 {
            return None;
        }
        let layouts = Layouts::read(raw)?;
        let standing = match (raw.standing, raw.trashed_at.get()) {
            (0, 0) => Standing::Whole,
            (1, 0) => Standing::Unfinished,
            (2, at_s) => Standing::Trashed { at_s },
            _ => return None,
        };
        let resiliency = Resiliency::of((raw.resiliency, raw.copies, raw.parity))?;
        let name: Vec<u8> = raw.name.iter().copied().take_while(|byte| *byte != 0).collect();
        let spec = Self {
            name: String::from_utf8(name).ok()?.parse().ok()?,
            size: Bytes(raw.size.get()),
            resiliency,
            columns: (raw.columns != 0).then_some(raw.columns),
            interleave: Bytes(u64::from(raw.interleave.get())),
            row: Some(Bytes(raw.row_length.get())),
            provisioning: match raw.provisioning {
                1 => Provisioning::Thin,
                2 => Provisioning::Fixed,
                _ => return None,
            },
            integrity: Integrity::of(raw.integrity)?,
            sector: Bytes(match raw.sector_shift {
                9 => 512,
                12 => 4096,
                _ => return None,
            }),
            limits: Limits::from_raw(
                [raw.iops_max, raw.iops_min, raw.rate_max, raw.rate_min].map(|limit| limit.get()),
            ),
        };
        spec.check().is_ok().then_some((spec, standing, layouts))
    }
}

/// What the hidden space of a cache is, in a pool of this capacity, when nobody chose its size.
pub(crate) fn cache_spec(redundancy: u8, pool: Bytes) -> SpaceSpec {
    let copies = if mutation!(CacheOfOneCopy) { 1 } else { redundancy + 1 };
    let resiliency = if copies == 1 { Resiliency::Simple } else { Resiliency::Mirror { copies } };
    let usual = (pool.0 / POOL_SHARE).clamp(SIZE_RANGE.0.0, SIZE_RANGE.1.0);
    let size = usual.min(largest(pool, copies).0);
    let row = if size >= ROWS_USUAL_MIN * THIN_ROW_BYTES.0 { THIN_ROW_BYTES } else { ROW_BYTES_MIN };
    let name = format!("write-cache-{redundancy}");
    let name = name.parse().unwrap_or_else(|error| panic!("{name} is a name: {error}"));
    let rows = (size / row.0).max(ROWS_USUAL_MIN);
    let mut spec = SpaceSpec::usual(name, Bytes(rows * row.0), resiliency);
    spec.row = Some(row);
    spec.columns = Some(1);
    spec.provisioning = Provisioning::Fixed;
    spec
}

/// What a space takes on the disks of its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Footprint {
    /// All of its slabs.
    pub total: Bytes,
    /// Of them, further copies and parity.
    pub redundancy: Bytes,
}

/// The part of a pool that a cache is, unless that is out of its bounds.
pub(crate) const POOL_SHARE: u64 = 1000;

/// Rows of a cache that nobody chose the size of, at least: those kept back, and some to be filled and emptied beside them.
pub(crate) const ROWS_USUAL_MIN: u64 = 8;

/// The bounds of a cache that nobody chose the size of, for each copy: the largest log names no more blocks of one.
pub(crate) const SIZE_RANGE: (Bytes, Bytes) = (Bytes::mib(256), Bytes::mib(512));

/// The largest that a cache with so many copies may be, for each copy.
pub(crate) fn largest(pool: Bytes, copies: u8) -> Bytes {
    Bytes(pool.0 / POOL_SHARE_MAX / u64::from(copies))
}

/// The part of a pool that all copies may take.
pub(crate) const POOL_SHARE_MAX: u64 = 16;

impl SpaceSpec {
    /// How its rows are laid.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout {
            resiliency: self.resiliency,
            columns: self.columns,
            interleave: self.interleave,
            integrity: self.integrity,
        }
    }

    /// The same space with its rows laid otherwise.
    #[must_use]
    pub fn laid(&self, layout: Layout) -> Self {
        let Layout { resiliency, columns, interleave, integrity } = layout;
        Self { resiliency, columns, interleave, integrity, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_thin_spaces_are_short_until_there_are_too_many() {
        let row = |gib: u64, provisioning| {
            let mut spec = SpaceSpec::usual("data".parse().unwrap(), Bytes::gib(gib), Resiliency::Simple);
            spec.provisioning = provisioning;
            spec.row_bytes()
        };
        let tib = 1024;
        for (gib, mib) in [
            (1, 8),
            (tib, 8),
            (2 * tib, 8),
            (2 * tib + 1, 16),
            (4 * tib, 16),
            (5 * tib, 32),
            (16 * tib, 64),
            (64 * tib, 64),
            (64 * tib + 1, 256),
            (4096 * tib, 256),
        ] {
            assert_eq!(row(gib, Provisioning::Thin), Bytes::mib(mib), "{gib} GiB");
        }
        for (gib, mib) in [(1, 64), (64 * tib, 64), (64 * tib + 1, 256)] {
            assert_eq!(row(gib, Provisioning::Fixed), Bytes::mib(mib), "{gib} GiB");
        }
    }

    #[test]
    fn limits_are_kept_where_the_record_has_room_for_them() {
        let mut spec = SpaceSpec::usual("data".parse().unwrap(), Bytes::gib(1), Resiliency::Simple);
        spec.limits = Limits {
            iops_max: Some(0x0403_0201),
            iops_min: Some(5),
            rate_max: Some(Bytes::kib(7)),
            rate_min: Some(Bytes::kib(6)),
        };
        let bytes = spec.encode(Standing::Whole, Layouts::default());
        assert_eq!(bytes[40..56], [1, 2, 3, 4, 5, 0, 0, 0, 7, 0, 0, 0, 6, 0, 0, 0]);
        assert_eq!(SpaceSpec::parse(&bytes).unwrap().0.limits, spec.limits);
        let mut crossed = bytes.clone();
        crossed[52] = 8;
        assert!(SpaceSpec::parse(&crossed).is_none(), "a minimum above the maximum was never written");
    }

    #[test]
    fn a_row_length_that_was_given_is_kept() {
        let mut spec = SpaceSpec::usual("data".parse().unwrap(), Bytes::gib(1), Resiliency::Simple);
        spec.row = Some(Bytes::mib(2));
        assert_eq!(spec.row_bytes(), Bytes::mib(2));
        for standing in [Standing::Whole, Standing::Unfinished, Standing::Trashed { at_s: 1_700_000_000 }] {
            let (read, found, _) = SpaceSpec::parse(&spec.encode(standing, Layouts::default())).unwrap();
            assert_eq!((read.row, found), (Some(Bytes::mib(2)), standing));
        }
        // One that is not in the trash has come into it at no time.
        let mut odd = spec.encode(Standing::Whole, Layouts::default());
        odd[32] = 1;
        assert!(SpaceSpec::parse(&odd).is_none());
    }
}
