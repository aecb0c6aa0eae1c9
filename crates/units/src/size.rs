//! Byte counts: parsed from what people type, printed as people read.

use std::fmt;
use std::ops::{Add, Sub};
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

/// A text that names no number of bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseBytesError {
    /// Not a number, a fraction finer than a byte, or an unknown suffix.
    #[error(
        "{text:?} is not a size; write a whole number of bytes or a number with K, M, G, T, P (powers of 1024) or kB, MB, GB, TB, PB (powers of 1000), such as 64M or 1.5T"
    )]
    Malformed {
        /// What was given.
        text: String,
    },
    /// More than 2⁶³ − 1 bytes.
    #[error("{text:?} is more than the largest size, 8 EiB")]
    TooLarge {
        /// What was given.
        text: String,
    },
}

impl Bytes {
    /// None.
    pub const ZERO: Self = Self(0);
    /// The largest size that is accepted from a person: what a signed 64-bit file offset can address.
    pub const MAX: Self = Self(i64::MAX as u64);

    /// So many KiB.
    #[must_use]
    pub const fn kib(count: u64) -> Self {
        Self(count * 1024)
    }

    /// So many MiB.
    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count * 1024 * 1024)
    }

    /// So many GiB.
    #[must_use]
    pub const fn gib(count: u64) -> Self {
        Self(count * 1024 * 1024 * 1024)
    }

    /// The largest multiple of `unit` that is not above this.
    #[must_use]
    pub const fn align_down(self, unit: u64) -> Self {
        Self(self.0 - self.0 % unit)
    }

    /// The smallest multiple of `unit` that is not below this; saturates at the largest multiple.
    #[must_use]
    pub const fn align_up(self, unit: u64) -> Self {
        match self.0.checked_next_multiple_of(unit) {
            Some(value) => Self(value),
            None => Self(u64::MAX - u64::MAX % unit),
        }
    }

    /// The difference, or zero.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

/// Binary units with at most three significant digits: `512 B`, `1.50 GiB`, `64 MiB`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut hundredths = u128::from(self.0) * 100;
        let mut name = "B";
        for unit in UNITS {
            if hundredths < 1024 * 100 {
                break;
            }
            hundredths /= 1024;
            name = unit;
        }
        let whole = hundredths / 100;
        let part = hundredths % 100;
        let text = match (whole, part) {
            (_, 0) => format!("{whole} {name}"),
            (100.., _) => format!("{whole} {name}"),
            (10..=99, _) => format!("{whole}.{} {name}", part / 10),
            _ => format!("{whole}.{part:02} {name}"),
        };
        f.pad(&text)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.0)
    }
}

/// The number of bytes that a suffix stands for.
fn scale(suffix: &str) -> Option<u64> {
    let powers = |base: u64, letter: char| {
        "kmgtpe"
            .find(letter.to_ascii_lowercase())
            .and_then(|at| base.checked_pow(u32::try_from(at).ok()? + 1))
    };
    let mut letters = suffix.chars();
    match (letters.next(), letters.as_str()) {
        (None, _) => Some(1),
        (Some('B' | 'b'), "") => Some(1),
        (Some(letter), "" | "iB" | "ib" | "IB" | "i") => powers(1024, letter),
        (Some(letter), "B" | "b") => powers(1000, letter),
        _ => None,
    }
}

impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, ParseBytesError> {
        let malformed = || ParseBytesError::Malformed { text: text.to_owned() };
        let too_large = || ParseBytesError::TooLarge { text: text.to_owned() };
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, suffix) = trimmed.split_at(split);
        let unit = u128::from(scale(suffix.trim()).ok_or_else(malformed)?);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.contains('.') || fraction.len() > 9 {
            return Err(malformed());
        }
        let whole: u128 = whole.parse().map_err(|_| too_large())?;
        let tenths = 10u128.pow(u32::try_from(fraction.len()).map_err(|_| malformed())?);
        let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| malformed())? };
        if unit == 1 && part != 0 {
            return Err(malformed());
        }
        let total = whole
            .checked_mul(unit)
            .and_then(|w| w.checked_add(part * unit / tenths))
            .ok_or_else(too_large)?;
        u64::try_from(total).ok().filter(|v| *v <= Self::MAX.0).map(Self).ok_or_else(too_large)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, value) in [
            ("0", 0),
            ("512", 512),
            ("64K", 65536),
            ("64KiB", 65536),
            ("1.5G", 1_610_612_736),
            ("2TB", 2_000_000_000_000),
            (" 1 T ", 1 << 40),
            ("10b", 10),
        ] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(value)), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_size_is_refused() {
        for text in ["", "-1", "G", "1.2.3M", "1X", "0x10", "1.5", "١", "1 0"] {
            assert!(matches!(text.parse::<Bytes>(), Err(ParseBytesError::Malformed { .. })), "{text}");
        }
        for text in ["9E", "99999999999999999999999999999999999999999", "8E"] {
            assert!(matches!(text.parse::<Bytes>(), Err(ParseBytesError::TooLarge { .. })), "{text}");
        }
    }

    #[test]
    fn sizes_are_printed_with_three_digits() {
        for (value, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1 << 30, "1 GiB"),
            (1_610_612_736, "1.50 GiB"),
            (12_884_901_888 + 200_000_000, "12.1 GiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(Bytes(value).to_string(), text);
        }
    }
}
