//! When a pool is going to be full, as far as its history says.

const DAY_S: u64 = 86_400;
/// What is shorter says nothing of a rate.
const SPAN_MIN_S: u64 = 2 * DAY_S;
/// What is older says nothing of today.
const SPAN_MAX_S: u64 = 28 * DAY_S;
/// Rates by which the range is found, at most.
const PARTS_MAX: u64 = 14;
const PARTS_MIN: u64 = 4;
/// A pool that is full later than this is not filling.
const FULL_WITHIN_S: f64 = 10.0 * 365.0 * 86_400.0;

/// Room that was used at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// Seconds since 1970.
    pub at_s: u64,
    /// Room that was used; in any unit, the same everywhere.
    pub used: u64,
}

/// When it is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// History is shorter than two days.
    Unknown,
    /// It does not fill, or not within ten years.
    Steady,
    /// It fills: after so many seconds at the mean rate, and at the rates that lie two standard errors above and below.
    After {
        /// At the mean rate.
        mean_s: u64,
        /// At the higher rate.
        earliest_s: u64,
        /// At the lower rate, if it fills at that.
        latest_s: Option<u64>,
    },
}

/// Tells when `left` more is used, by the uses of the last four weeks, in order of time.
#[must_use]
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // an estimate, of bounded values
pub fn forecast(uses: &[Use], left: u64, now_s: u64) -> Fill {
    let is_recent = |one: &&Use| one.at_s <= now_s && one.at_s + SPAN_MAX_S >= now_s;
    let uses: Vec<Use> = uses.iter().filter(is_recent).copied().collect();
    let (Some(first), Some(last)) = (uses.first().copied(), uses.last().copied()) else {
        return Fill::Unknown;
    };
    let span_s = last.at_s.saturating_sub(first.at_s);
    if span_s < SPAN_MIN_S {
        return Fill::Unknown;
    }
    let parts = (span_s / DAY_S).clamp(PARTS_MIN, PARTS_MAX);
    let at = |time_s: u64| {
        let before = uses.iter().take_while(|one| one.at_s <= time_s).last();
        before.map_or(first.used as f64, |one| one.used as f64)
    };
    let edges: Vec<f64> = (0..=parts).map(|part| at(first.at_s + span_s * part / parts)).collect();
    let part_s = span_s as f64 / parts as f64;
    let rates: Vec<f64> =
        edges.iter().zip(edges.iter().skip(1)).map(|(one, next)| (next - one) / part_s).collect();
    let count = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let error = 2.0 * (variance / count).sqrt();
    let after = |rate: f64| {
        let seconds = left as f64 / rate;
        (rate > 0.0 && seconds < FULL_WITHIN_S).then_some(seconds as u64)
    };
    match (after(mean), after(mean + error)) {
        (Some(mean_s), Some(earliest_s)) => Fill::After { mean_s, earliest_s, latest_s: after(mean - error) },
        _ => Fill::Steady,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(hours: u64, used: impl Fn(u64) -> u64) -> (Vec<Use>, u64) {
        let begin_s = 1_700_000_000;
        let all = (0..=hours).map(|hour| Use { at_s: begin_s + hour * 3600, used: used(hour) });
        (all.collect(), begin_s + hours * 3600)
    }

    /// A pool grows by 24 a day, evenly: the date is exact, and the range is narrow.
    #[test]
    fn an_even_rate_gives_a_narrow_range() {
        let (uses, now_s) = uses(10 * 24, |hour| 1000 + hour);
        let Fill::After { mean_s, earliest_s, latest_s } = forecast(&uses, 240, now_s) else { panic!() };
        assert!(mean_s.abs_diff(10 * DAY_S) < 3600, "{mean_s}");
        assert!(mean_s - earliest_s < 3600 && latest_s.unwrap() - mean_s < 3600);
    }

    /// Days of much and days of little growth: the range is wide, and holds the date.
    #[test]
    fn an_uneven_rate_gives_a_wide_range() {
        let (uses, now_s) = uses(14 * 24, |hour| 1000 + hour / 48 * 48 + (hour / 24 % 2) * 40);
        let Fill::After { mean_s, earliest_s, latest_s } = forecast(&uses, 480, now_s) else { panic!() };
        assert!(earliest_s + DAY_S < mean_s, "{earliest_s} {mean_s}");
        assert!(latest_s.is_none_or(|latest_s| latest_s > mean_s + DAY_S));
    }

    /// Too little history, a pool that shrinks, one that stands still, and one that is full in a hundred years.
    #[test]
    fn what_is_not_known_or_does_not_fill_has_no_date() {
        let (short, now_s) = uses(47, |hour| hour);
        assert_eq!(forecast(&short, 10, now_s), Fill::Unknown);
        assert_eq!(forecast(&[], 10, now_s), Fill::Unknown);
        let (long, now_s) = uses(200, |_| 5);
        assert_eq!(forecast(&long, 10, now_s), Fill::Steady);
        assert_eq!(forecast(&long, 10, now_s + 40 * DAY_S), Fill::Unknown, "what is old says nothing");
        let (shrinking, now_s) = uses(200, |hour| 1000 - hour);
        assert_eq!(forecast(&shrinking, 10, now_s), Fill::Steady);
        let (slow, now_s) = uses(24 * 20, |hour| hour);
        assert_eq!(forecast(&slow, 24 * 365 * 100, now_s), Fill::Steady);
        assert_eq!(forecast(&slow, 0, now_s), Fill::After { mean_s: 0, earliest_s: 0, latest_s: Some(0) });
    }
}
