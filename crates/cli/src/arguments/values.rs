//! What people write on the command line, checked before anything is asked of anybody.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use dolmen_api::SetRepairAfter;
use dolmen_units::{BLOCK_BYTES, Bytes, Name, ParseBytesError, ParseNameError};

/// Seconds that a command waits for an answer, at most.
const TIMEOUT_S_MAX: u32 = 86_400;

/// A space with its pool, written `POOL/SPACE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SpaceName {
    /// The pool.
    pub pool: Name,
    /// The space.
    pub space: Name,
}

impl fmt::Display for SpaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.space)
    }
}

/// A text that names no space.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParseSpaceNameError {
    /// No slash in it.
    #[error("a space is named with its pool, as POOL/SPACE")]
    NoPool,
    /// The pool's name cannot be one.
    #[error("the pool before the slash: {0}")]
    Pool(ParseNameError),
    /// The space's name cannot be one.
    #[error("the space behind the slash: {0}")]
    Space(ParseNameError),
}

impl FromStr for SpaceName {
    type Err = ParseSpaceNameError;

    fn from_str(text: &str) -> Result<Self, ParseSpaceNameError> {
        let (pool, space) = text.split_once('/').ok_or(ParseSpaceNameError::NoPool)?;
        Ok(Self {
            pool: pool.parse().map_err(ParseSpaceNameError::Pool)?,
            space: space.parse().map_err(ParseSpaceNameError::Space)?,
        })
    }
}

/// A size that nothing can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SizeError {
    /// Not a number of bytes.
    #[error(transparent)]
    Bytes(#[from] ParseBytesError),
    /// More than any space.
    #[error("{found} is more than the largest space, 4 PiB")]
    TooLarge {
        /// What was given.
        found: String,
    },
    /// Nothing.
    #[error("a size of 0 holds nothing; write one such as 64M or 1.5T")]
    Zero,
    /// Not whole blocks.
    #[error("{found} bytes are not a multiple of 4 KiB; the next one is {next} bytes")]
    Unaligned {
        /// What was given.
        found: u64,
        /// What would do.
        next: u64,
    },
}

/// A size that is not nothing.
pub(crate) fn parse_size(text: &str) -> Result<Bytes, SizeError> {
    let size: Bytes = text.parse()?;
    if size == Bytes::ZERO { Err(SizeError::Zero) } else { Ok(size) }
}

/// Percents of a write cache from which on it can be emptied.
const FILL_RANGE: RangeInclusive<u8> = 5..=90;

/// Text that is no part of a write cache from which on it can be emptied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a write cache can be emptied from {} to {} percent on; write one such as 25 or 25%", FILL_RANGE.start(), FILL_RANGE.end())]
pub(crate) struct FillError;

/// A part of a write cache, in percent.
pub(crate) fn parse_fill(text: &str) -> Result<u8, FillError> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse().map_err(|_| FillError)?;
    if FILL_RANGE.contains(&percent) { Ok(percent) } else { Err(FillError) }
}

/// No percents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("up to four percents from 1 to 99, separated by commas, or never")]
pub(crate) struct AlertAtError;

/// Percents at which a pool warns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AlertAt(pub Vec<u8>);

impl FromStr for AlertAt {
    type Err = AlertAtError;

    fn from_str(text: &str) -> Result<Self, AlertAtError> {
        if text == "never" {
            return Ok(Self(Vec::new()));
        }
        let one = |text: &str| text.trim().trim_end_matches('%').parse().map_err(|_| AlertAtError);
        let percents: Vec<u8> = text.split(',').map(one).collect::<Result<_, _>>()?;
        let is_allowed = percents.len() <= 4 && percents.iter().all(|percent| (1..=99).contains(percent));
        if is_allowed { Ok(Self(percents)) } else { Err(AlertAtError) }
    }
}

/// A size a second; `None` for no limit, which is written `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate(pub Option<Bytes>);

impl FromStr for Rate {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        if text == "max" { Ok(Self(None)) } else { parse_size(text).map(|rate| Self(Some(rate))) }
    }
}

/// The most of a limit of a space: I/Os, or KiB, in a second.
const LIMIT_MAX: u64 = u32::MAX as u64;

/// A text that is no limit of I/Os in a second.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a limit of I/Os in a second is a number from 1 to {LIMIT_MAX}, such as 500, or none")]
pub(crate) struct IopsLimitError;

/// I/Os in a second; 0 for no limit, which is written `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IopsLimit(pub u64);

impl FromStr for IopsLimit {
    type Err = IopsLimitError;

    fn from_str(text: &str) -> Result<Self, IopsLimitError> {
        if text == "none" {
            return Ok(Self(0));
        }
        let limit = text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
        limit.map(Self).ok_or(IopsLimitError)
    }
}

/// A text that is no limit of bytes in a second.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RateLimitError {
    /// Not a number of bytes.
    #[error("{source}; a limit of bytes in a second is a size such as 50M, or none")]
    Bytes {
        /// What is wrong with it.
        source: ParseBytesError,
    },
    /// Nothing.
    #[error("nothing would be read or written with a limit of 0; none takes a limit away")]
    Zero,
    /// Not whole KiB.
    #[error("{found} bytes in a second are not whole KiB; the next limit is {next} bytes")]
    Unaligned {
        /// What was given.
        found: u64,
        /// What would do.
        next: u64,
    },
    /// More than a limit can say.
    #[error("{found} is more than a limit of bytes in a second can be, {}", Bytes::kib(LIMIT_MAX))]
    TooMuch {
        /// What was given.
        found: Bytes,
    },
}

/// Bytes in a second; 0 for no limit, which is written `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimit(pub u64);

impl FromStr for RateLimit {
    type Err = RateLimitError;

    fn from_str(text: &str) -> Result<Self, RateLimitError> {
        if text == "none" {
            return Ok(Self(0));
        }
        let rate: Bytes = text.parse().map_err(|source| RateLimitError::Bytes { source })?;
        if rate == Bytes::ZERO {
            return Err(RateLimitError::Zero);
        }
        if rate > Bytes::kib(LIMIT_MAX) {
            return Err(RateLimitError::TooMuch { found: rate });
        }
        if !rate.0.is_multiple_of(1024) {
            return Err(RateLimitError::Unaligned { found: rate.0, next: rate.align_up(1024).0 });
        }
        Ok(Self(rate.0))
    }
}

/// A text that is no reserve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReserveError {
    /// Not a number of bytes.
    #[error("{source}; a reserve is a size such as 20G, or none")]
    Bytes {
        /// What is wrong with it.
        source: ParseBytesError,
    },
    /// Nothing.
    #[error("a reserve of 0 reserves nothing; none takes a reserve away")]
    Zero,
}

/// Bytes that are reserved for a space; 0 for none, which is written `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reserve(pub u64);

impl FromStr for Reserve {
    type Err = ReserveError;

    fn from_str(text: &str) -> Result<Self, ReserveError> {
        match text {
            "none" => Ok(Self(0)),
            size => match size.parse().map_err(|source| ReserveError::Bytes { source })? {
                Bytes::ZERO => Err(ReserveError::Zero),
                Bytes(bytes) => Ok(Self(bytes)),
            },
        }
    }
}

/// The longest latency limit of a job.
const LATENCY_LIMIT_MAX: Duration = Duration::from_secs(60);

/// A text that is no latency limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a latency limit is a time from 1ms to {}s, such as 50ms or 2s, or none", LATENCY_LIMIT_MAX.as_secs())]
pub(crate) struct LatencyLimitError;

/// How long requests of clients may take, in whole milliseconds; `None` for no limit, which is written `none`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LatencyLimit(pub Option<Duration>);

impl LatencyLimit {
    /// As documents say it: milliseconds, 0 for no limit.
    pub(crate) fn ms(self) -> u64 {
        self.0.map_or(0, |limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX))
    }
}

impl FromStr for LatencyLimit {
    type Err = LatencyLimitError;

    fn from_str(text: &str) -> Result<Self, LatencyLimitError> {
        if text == "none" {
            return Ok(Self(None));
        }
        let (number, unit_ms) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
            (Some(number), _) => (number, 1),
            (None, Some(number)) => (number, 1000),
            (None, None) => return Err(LatencyLimitError),
        };
        let count: u64 = number.trim_end().parse().map_err(|_| LatencyLimitError)?;
        let limit = Duration::from_millis(count.saturating_mul(unit_ms));
        if limit.is_zero() || limit > LATENCY_LIMIT_MAX {
            Err(LatencyLimitError)
        } else {
            Ok(Self(Some(limit)))
        }
    }
}

/// A text that is no time for which a disk may be absent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a time from 1s to 365d, such as 90s, 30m, 2h or 7d, or never")]
pub(crate) struct RepairAfterError;

/// How long a disk may be absent, in seconds; 0 for ever, which is written `never`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RepairAfter(pub u64);

impl FromStr for RepairAfter {
    type Err = RepairAfterError;

    fn from_str(text: &str) -> Result<Self, RepairAfterError> {
        if text == "never" {
            return Ok(Self(0));
        }
        let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
        let in_unit = |(unit, seconds)| text.strip_suffix(unit).map(|number| (number, seconds));
        let (number, unit) = units.into_iter().find_map(in_unit).ok_or(RepairAfterError)?;
        let count: u64 = number.trim_end().parse().map_err(|_| RepairAfterError)?;
        let seconds = count.saturating_mul(unit);
        let is_allowed = (1..=SetRepairAfter::SECONDS_MAX).contains(&seconds);
        if is_allowed { Ok(Self(seconds)) } else { Err(RepairAfterError) }
    }
}

/// A size that a space can have. One with a unit, such as 3.7G or 10GB, is rounded up to whole blocks; a number of bytes is meant.
pub(crate) fn parse_space_size(text: &str) -> Result<Bytes, SizeError> {
    let size = match parse_size(text) {
        Err(SizeError::Bytes(ParseBytesError::TooLarge { text })) => {
            return Err(SizeError::TooLarge { found: format!("{text:?}") });
        }
        parsed => parsed?,
    };
    let has_unit = !text.bytes().all(|letter| letter.is_ascii_digit());
    let size = if has_unit { size.align_up(BLOCK_BYTES) } else { size };
    if !size.0.is_multiple_of(BLOCK_BYTES) {
        return Err(SizeError::Unaligned { found: size.0, next: size.align_up(BLOCK_BYTES).0 });
    }
    Ok(size)
}

/// A text that is no time to wait.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a number of seconds from 1 to {TIMEOUT_S_MAX}")]
pub(crate) struct SecondsError;

/// A time to wait.
pub(crate) fn parse_seconds(text: &str) -> Result<Duration, SecondsError> {
    let seconds = text.parse().ok().filter(|seconds| (1..=TIMEOUT_S_MAX).contains(seconds));
    seconds.map(|seconds: u32| Duration::from_secs(u64::from(seconds))).ok_or(SecondsError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_space_is_named_with_its_pool() {
        assert_eq!("tank/x".parse::<SpaceName>().unwrap().to_string(), "tank/x");
        assert_eq!("tank".parse::<SpaceName>(), Err(ParseSpaceNameError::NoPool));
        assert!(matches!("/x".parse::<SpaceName>(), Err(ParseSpaceNameError::Pool(_))));
        for text in ["tank/", "tank/a/b", "tank/-x", "tank/\u{7}"] {
            assert!(matches!(text.parse::<SpaceName>(), Err(ParseSpaceNameError::Space(_))), "{text:?}");
        }
    }

    #[test]
    fn sizes_of_spaces_are_whole_blocks_and_not_nothing() {
        assert_eq!(parse_space_size("1.5G"), Ok(Bytes(3 << 29)));
        assert_eq!(parse_space_size("3.7G"), Ok(Bytes(3_972_845_568)));
        assert_eq!(parse_space_size("10GB"), Ok(Bytes(10_000_003_072)));
        for text in ["0", "0K", "0.0G"] {
            assert_eq!(parse_space_size(text), Err(SizeError::Zero), "{text}");
        }
        assert_eq!(parse_space_size("4097"), Err(SizeError::Unaligned { found: 4097, next: 8192 }));
        assert!(matches!(parse_space_size("9E"), Err(SizeError::TooLarge { .. })));
        for text in ["-1", "", "ten"] {
            assert!(matches!(parse_space_size(text), Err(SizeError::Bytes(_))), "{text}");
        }
    }

    #[test]
    fn times_of_absence_have_a_unit_or_are_none() {
        for (text, seconds) in [("1s", 1), ("30m", 1800), ("2 h", 7200), ("365d", 31_536_000), ("never", 0)] {
            assert_eq!(text.parse(), Ok(RepairAfter(seconds)), "{text}");
        }
        for text in ["", "0", "0s", "30", "366d", "-1s", "1.5h", "m", "99999999999999999999d", "soon"] {
            assert_eq!(text.parse::<RepairAfter>(), Err(RepairAfterError), "{text}");
        }
    }

    #[test]
    fn latency_limits_are_times_with_a_unit_or_none() {
        for (text, ms) in
            [("1ms", 1), ("50ms", 50), ("50 ms", 50), ("2s", 2000), ("60s", 60_000), ("none", 0)]
        {
            assert_eq!(text.parse::<LatencyLimit>().unwrap().ms(), ms, "{text}");
        }
        for text in [
            "",
            "50",
            "ms",
            "s",
            "0",
            "0ms",
            "-1ms",
            "1.5s",
            "60001ms",
            "61s",
            "1min",
            "99999999999999999999s",
            "max",
        ] {
            assert_eq!(text.parse::<LatencyLimit>(), Err(LatencyLimitError), "{text}");
        }
    }

    #[test]
    fn limits_are_numbers_or_none() {
        for (text, limit) in [("1", 1), ("4294967295", LIMIT_MAX), ("none", 0)] {
            assert_eq!(text.parse(), Ok(IopsLimit(limit)), "{text}");
        }
        for text in ["", "0", "-1", "1.5", "1K", "4294967296", "max", "500/s"] {
            assert_eq!(text.parse::<IopsLimit>(), Err(IopsLimitError), "{text}");
        }
        for (text, limit) in [("1K", 1024), ("50M", 50 << 20), ("none", 0)] {
            assert_eq!(text.parse(), Ok(RateLimit(limit)), "{text}");
        }
        assert_eq!("0".parse::<RateLimit>(), Err(RateLimitError::Zero));
        assert_eq!("1500".parse::<RateLimit>(), Err(RateLimitError::Unaligned { found: 1500, next: 2048 }));
        assert!(matches!("5T".parse::<RateLimit>(), Err(RateLimitError::TooMuch { .. })));
        for text in ["-1M", "50MB/s", "fast"] {
            assert!(matches!(text.parse::<RateLimit>(), Err(RateLimitError::Bytes { .. })), "{text}");
        }
    }

    #[test]
    fn times_to_wait_are_bounded() {
        assert_eq!(parse_seconds("120"), Ok(Duration::from_secs(120)));
        for text in ["0", "-1", "1.5", "86401", "x"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
    }
}
