//! Virtual time: nanoseconds since a model was made.

use std::fmt;

/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// A point in virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Time {
    ns: u64,
}

impl Time {
    /// When a model begins.
    pub const ZERO: Self = Self { ns: 0 };

    /// So many nanoseconds after the beginning.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Self { ns }
    }

    /// Nanoseconds since the beginning.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.ns
    }

    /// So much later. The end of time is not passed.
    #[must_use]
    pub const fn after(self, span_ns: u64) -> Self {
        Self { ns: self.ns.saturating_add(span_ns) }
    }

    /// So much earlier. The beginning is not passed.
    #[must_use]
    pub const fn before(self, span_ns: u64) -> Self {
        Self { ns: self.ns.saturating_sub(span_ns) }
    }

    /// Nanoseconds since `earlier`; none if that lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.ns.saturating_sub(earlier.ns)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} s", self.ns / SECOND_NS, self.ns % SECOND_NS / 1_000)
    }
}

/// `a * b / c` without overflow on the way; a divisor of 0 counts as 1.
#[must_use]
pub(crate) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    let product = u128::from(a) * u128::from(b) / u128::from(c.max(1));
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// How long so many bytes take at a rate.
#[must_use]
pub(crate) fn span_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    mul_div(bytes, SECOND_NS, bytes_per_second)
}

/// A count as a number to calculate with.
#[must_use]
pub(crate) fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_round_down_and_do_not_overflow() {
        assert_eq!(span_ns(4096, 1_000_000_000), 4096);
        assert_eq!(mul_div(u64::MAX, u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(mul_div(u64::MAX, 2, 1), u64::MAX);
        assert_eq!(Time::from_ns(5).since(Time::from_ns(9)), 0);
    }
}
