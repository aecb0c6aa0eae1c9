//! Arguments of `dolmen history`.

use std::time::Duration;

use clap::Args;
use dolmen_units::Name;

/// What follows the options in the help of `history`.
pub(crate) const HISTORY_HELP: &str = "\
The pool keeps what it, its spaces and its disks did: points of 10 seconds for an hour, of a minute for a day, of 10 minutes for a
week, of an hour for 60 days, and of a day for a year. Each line of the table is about as much time; its percentiles are the worst of
the points in it. Where nothing was recorded, the graphs have a gap.
With -o json the document of the daemon is printed, with all points.

Examples:
  dolmen history tank
  dolmen history tank --space home --last 24h
  dolmen -o json history tank --disk 3 --last 7d";

/// `dolmen history`
#[derive(Debug, Args)]
pub(crate) struct HistoryArguments {
    /// The pool
    #[arg(value_name = "POOL")]
    pub pool: Name,
    /// A space of it instead of the whole pool
    #[arg(long, value_name = "SPACE", conflicts_with = "disk")]
    pub space: Option<Name>,
    /// A disk of it, by its path, its id or its number
    #[arg(long, value_name = "DISK")]
    pub disk: Option<String>,
    /// How far back: a number of seconds, or one with m, h, d or y for minutes, hours, days or years
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = parse_span)]
    pub last: Duration,
}

/// The longest time that history is kept for.
const SPAN_S_MAX: u64 = 366 * 86_400;

/// A text that is no length of time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a time such as 90, 30m, 24h, 7d or 1y, from 10 seconds to a year")]
pub(crate) struct SpanError;

/// Reads a length of time.
fn parse_span(text: &str) -> Result<Duration, SpanError> {
    let (digits, unit_s) = match text.char_indices().next_back() {
        Some((at, 's')) => (text.get(..at), 1),
        Some((at, 'm')) => (text.get(..at), 60),
        Some((at, 'h')) => (text.get(..at), 3600),
        Some((at, 'd')) => (text.get(..at), 86_400),
        Some((at, 'y')) => (text.get(..at), 366 * 86_400),
        _ => (Some(text), 1),
    };
    let digits = digits.filter(|digits| digits.chars().all(|digit| digit.is_ascii_digit()));
    let seconds = digits.and_then(|digits| digits.parse::<u64>().ok()?.checked_mul(unit_s));
    seconds.filter(|seconds| (10..=SPAN_S_MAX).contains(seconds)).map(Duration::from_secs).ok_or(SpanError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_has_a_unit_or_is_in_seconds() {
        for (text, seconds) in
            [("10", 10), ("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 604_800), ("1y", 31_622_400)]
        {
            assert_eq!(parse_span(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "h", "-1h", "1.5h", "9", "2y", "1w", "99999999999999999999d", "3ä"] {
            assert_eq!(parse_span(text), Err(SpanError), "{text}");
        }
    }
}
