//! What repeated measurements say, and what they do not.
//!
//! The median stands for a point, the range for its spread: few rounds allow no more, and neither assumes how
//! measurements are distributed.
//!
//! Two targets are compared by the ratios within rounds, because what they share (other programs, heat, a cloud's other
//! guests) then cancels. Of *n* independent ratios, all lie on one side of their true median with probability
//! 2^(1 − *n*); so the range from the least to the largest holds the true median with probability 1 − 2^(1 − *n*), for
//! any distribution. From five rounds on that is 93.75 %, and only then is a verdict given. Of many verdicts some are false
//! all the same, and how many are to be expected is said beside them.

use serde::Serialize;

/// Rounds from which on two targets are judged: 1 − 2^(1 − 5) is 93.75 %.
pub const ROUNDS_FOR_VERDICT: usize = 5;
/// A range within so many per cent of 1 means that two targets are equal.
pub const EQUAL_PERCENT: f64 = 5.0;
/// A point whose rounds lie further apart than so many per cent of their median is marked.
pub const NOISY_PERCENT: f64 = 20.0;

/// Rounds of one figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// The middle one.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// How far apart they lie, in per cent of the median; none with one round.
    pub spread_percent: Option<f64>,
}

/// How the machine's noise compares to what was to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every round has it faster, and the middle one by more than a few per cent.
    Faster,
    /// Every round has it slower, and the middle one by more than a few per cent.
    Slower,
    /// Every round has the two within a few per cent.
    Equal,
    /// Rounds contradict each other, or differ by more than what they show: the machine is too noisy to tell.
    TooNoisy,
    /// Fewer rounds than a verdict needs.
    TooFewRounds,
    /// The two were flushed so differently that they did not carry the same load.
    OtherFlushes,
}

/// One target against another, round by round.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// The middle ratio.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The largest.
    pub most: f64,
    /// How many rounds there are a ratio of.
    pub rounds: usize,
    /// What that says.
    pub verdict: Verdict,
}

impl Summary {
    /// Sums up; nothing without a measurement.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let (least, most) = (*sorted.first()?, *sorted.last()?);
        let median = median_of(&sorted)?;
        let is_repeated = sorted.len() > 1 && median > 0.0;
        let spread_percent = is_repeated.then(|| (most - least) / median * 100.0);
        Some(Self { median, least, most, spread_percent })
    }

    /// Whether its rounds lie too far apart to trust the median to the digit.
    #[must_use]
    pub fn is_noisy(&self) -> bool {
        self.spread_percent.is_some_and(|spread| spread > NOISY_PERCENT)
    }
}

impl Ratio {
    /// Compares; nothing without ratios. A round in which nothing was moved has none, and counts for no verdict.
    #[must_use]
    pub fn of(ratios: &[f64]) -> Option<Self> {
        let finite = sorted(ratios);
        let summary = Summary::of(&finite)?;
        let Summary { median, least, most, .. } = summary;
        let margin = EQUAL_PERCENT / 100.0;
        let rounds = finite.len();
        let verdict = if rounds < ROUNDS_FOR_VERDICT {
            Verdict::TooFewRounds
        } else if least >= 1.0 - margin && most <= 1.0 + margin {
            Verdict::Equal
        } else if least > 1.0 && median > 1.0 + margin {
            Verdict::Faster
        } else if most < 1.0 && median < 1.0 - margin {
            Verdict::Slower
        } else {
            Verdict::TooNoisy
        };
        Some(Self { median, least, most, rounds, verdict })
    }

    /// With which probability the range misses the true median, so that what stands on it is false.
    #[must_use]
    pub fn chance_of_error(&self) -> f64 {
        let halvings = i32::try_from(self.rounds.saturating_sub(1)).unwrap_or(i32::MAX);
        0.5f64.powi(halvings)
    }
}

/// The place of the knee: where power, which is throughput divided by latency, is greatest (L. Kleinrock, "Power and
/// deterministic rules of thumb for probabilistic problems in computer communications", ICC 1979). Nothing when that is
/// the last point, since then the curve was not followed far enough, and nothing for less than three points.
#[must_use]
pub(crate) fn knee(points: &[(f64, f64)]) -> Option<usize> {
    if points.len() < 3 {
        return None;
    }
    let power = |(throughput, latency): &(f64, f64)| throughput / latency.max(f64::MIN_POSITIVE);
    let mut best = None;
    for (at, point) in points.iter().enumerate() {
        if best.is_none_or(|(_, most)| power(point) > most) {
            best = Some((at, power(point)));
        }
    }
    best.map(|(at, _)| at).filter(|at| at + 1 < points.len())
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn median_of(sorted: &[f64]) -> Option<f64> {
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::float_cmp)] // small whole numbers and halves are exact
    fn the_median_is_the_point_and_the_range_its_spread() {
        let summary = Summary::of(&[300.0, 100.0, 200.0]).unwrap();
        assert_eq!((summary.median, summary.least, summary.most), (200.0, 100.0, 300.0));
        assert_eq!(summary.spread_percent, Some(100.0));
        assert!(summary.is_noisy());
        assert_eq!(Summary::of(&[1.0, 2.0]).unwrap().median, 1.5);
        let once = Summary::of(&[7.0]).unwrap();
        assert_eq!(once.spread_percent, None);
        assert!(!once.is_noisy());
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN]), None);
    }

    /// A verdict needs every round on its side, and enough of them.
    #[test]
    fn rounds_that_contradict_each_other_give_no_verdict() {
        let verdict = |ratios: &[f64]| Ratio::of(ratios).unwrap().verdict;
        assert_eq!(verdict(&[2.0, 2.1, 1.9, 2.0]), Verdict::TooFewRounds);
        assert_eq!(verdict(&[2.0, 2.1, 1.9, 2.0, 1.1]), Verdict::Faster);
        assert_eq!(verdict(&[0.5, 0.6, 0.7, 0.8, 0.99]), Verdict::Slower);
        assert_eq!(verdict(&[1.02, 0.99, 1.0, 1.04, 0.96]), Verdict::Equal);
        assert_eq!(verdict(&[2.0, 2.1, 1.9, 2.0, 0.9]), Verdict::TooNoisy);
    }

    /// All on one side by a hair's breadth is what a coin does now and then; that is not called faster.
    #[test]
    fn a_verdict_needs_more_than_a_few_per_cent() {
        let verdict = |ratios: &[f64]| Ratio::of(ratios).unwrap().verdict;
        assert_eq!(verdict(&[1.01, 1.02, 1.03, 1.04, 1.08]), Verdict::TooNoisy);
        assert_eq!(verdict(&[0.99, 0.98, 0.97, 0.96, 0.92]), Verdict::TooNoisy);
        assert_eq!(verdict(&[1.01, 1.02, 1.06, 1.07, 1.08]), Verdict::Faster);
    }

    /// A round in which a target moved nothing gives no ratio; four that are left are too few.
    #[test]
    #[allow(clippy::float_cmp)] // powers of two are exact
    fn rounds_without_a_ratio_do_not_count() {
        for gap in [f64::NAN, f64::INFINITY] {
            let ratio = Ratio::of(&[2.0, 2.1, gap, 1.9, 2.0]).unwrap();
            assert_eq!((ratio.rounds, ratio.verdict), (4, Verdict::TooFewRounds));
        }
        assert_eq!(Ratio::of(&[2.0; 5]).unwrap().chance_of_error(), 0.0625);
        assert_eq!(Ratio::of(&[f64::NAN]), None);
    }

    /// With one server at full speed from c I/Os on, throughput is N / (N + c - 1) of the most, and power is greatest
    /// at c - 1: three times the servers, three times the knee.
    #[test]
    fn the_knee_of_a_saturating_curve_is_where_its_servers_are_busy() {
        let curve = |servers: f64| -> Vec<(f64, f64)> {
            let depths = (1..=32).map(|step| f64::from(step) * 8.0);
            depths.map(|n| (800.0 * n / (n + servers), (n + servers) / 800.0)).collect()
        };
        assert_eq!(knee(&curve(16.0)), Some(1), "16 outstanding");
        assert_eq!(knee(&curve(48.0)), Some(5), "48 outstanding");
        assert_eq!(knee(&curve(10_000.0)), None, "still rising at the end");
        assert_eq!(knee(&[(1.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(knee(&[(100.0, 1.0), (100.0, 3.0), (100.0, 8.0)]), Some(0), "full from the beginning");
    }
}
