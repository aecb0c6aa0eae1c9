//! How long the arm moves: a curve through the three seeks that a data sheet tells.
//!
//! A short seek is all acceleration, so its time grows with the root of the distance; a long one coasts, so its time
//! grows with the distance itself (Ruemmler and Wilkes, "An Introduction to Disk Drive Modeling", IEEE Computer 27(3),
//! 1994). With `x` the part of the whole stroke, `seek(x) = a + b * sqrt(x) + c * x`. Over pairs of places drawn at
//! random the density of `x` is `2 (1 - x)`, so the mean of `sqrt(x)` is 8/15 and that of `x` is 1/3; the single track,
//! the mean and the full stroke then fix `a`, `b` and `c`.

use super::parameters::Seeks;
use crate::error::{ParameterError, within};
use crate::time::mul_div;

/// Longest seek that is accepted, in nanoseconds.
const SEEK_NS_MAX: u64 = 1_000_000_000;
/// Fixed point of distances.
const ONE: u64 = 1 << 32;
/// The root of [`ONE`].
const ROOT_ONE: u64 = 1 << 16;

/// The curve of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeekCurve {
    base_ns: u64,
    root_ns: u64,
    stroke_ns: u64,
    tracks: u64,
}

impl SeekCurve {
    /// The curve through three seeks on a disk of so many tracks. `fields` names the three in messages.
    pub(crate) fn new(seeks: Seeks, fields: [&'static str; 3], tracks: u64) -> Result<Self, ParameterError> {
        let [single, average, full] = fields;
        within(single, seeks.single_ns, 0, SEEK_NS_MAX)?;
        within(average, seeks.average_ns, seeks.single_ns, SEEK_NS_MAX)?;
        within(full, seeks.full_ns, seeks.average_ns, SEEK_NS_MAX)?;
        let stroke = seeks.full_ns - seeks.single_ns;
        let mean = seeks.average_ns - seeks.single_ns;
        // b = 5 (mean - stroke / 3) and c = stroke - b. A longer seek is never shorter while b <= 2 stroke.
        let root = mean.saturating_mul(5).checked_sub(stroke.saturating_mul(5) / 3);
        let Some(root_ns) = root.filter(|root_ns| *root_ns <= stroke.saturating_mul(2)) else {
            let least = seeks.single_ns + stroke / 3;
            let most = seeks.single_ns + mul_div(stroke, 11, 15);
            return Err(ParameterError::new(
                average,
                seeks.average_ns,
                format!("between the other two seeks it must lie from {least} to {most}"),
            ));
        };
        Ok(Self { base_ns: seeks.single_ns, root_ns, stroke_ns: stroke, tracks: tracks.max(1) })
    }

    /// The seek over so many tracks. Staying costs nothing.
    pub(crate) fn seek_ns(&self, tracks: u64) -> u64 {
        if tracks == 0 {
            return 0;
        }
        let part = mul_div(tracks, ONE, self.tracks);
        let root = part.isqrt();
        let risen_ns = mul_div(self.root_ns, root, ROOT_ONE) + mul_div(self.stroke_ns, part, ONE);
        self.base_ns + risen_ns.saturating_sub(mul_div(self.root_ns, part, ONE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const FIELDS: [&str; 3] = ["single_ns", "average_ns", "full_ns"];
    const SEEKS: Seeks = Seeks { single_ns: 200_000, average_ns: 4_000_000, full_ns: 8_100_000 };

    #[test]
    fn the_curve_passes_through_what_the_data_sheet_reports() {
        // Seeks between places drawn at random have the mean of the data sheet, and the two ends are met.
        let tracks = 200_000;
        let curve = SeekCurve::new(SEEKS, FIELDS, tracks).unwrap();
        let mut random = Random::new(1);
        let draws = 200_000;
        let total: u64 =
            (0..draws).map(|_| curve.seek_ns(random.below(tracks).abs_diff(random.below(tracks)))).sum();
        let mean = total / draws;
        assert!(mean.abs_diff(4_000_000) < 20_000, "mean {mean}");
        assert!(curve.seek_ns(tracks).abs_diff(8_100_000) < 10);
        assert!(curve.seek_ns(1) < 250_000);
        assert_eq!(curve.seek_ns(0), 0);
    }

    #[test]
    fn longer_seeks_take_longer() {
        let curve = SeekCurve::new(SEEKS, FIELDS, 1_000).unwrap();
        assert!((1..1_000).all(|tracks| curve.seek_ns(tracks) <= curve.seek_ns(tracks + 1)));
    }

    #[test]
    fn seeks_that_no_arm_has_are_named() {
        let wrong = Seeks { average_ns: 7_900_000, ..SEEKS };
        let error = SeekCurve::new(wrong, FIELDS, 1_000).unwrap_err();
        assert_eq!(error.field, "average_ns");
        assert!(error.to_string().contains("7900000"), "{error}");
        let wrong = Seeks { full_ns: 3_000_000, ..SEEKS };
        assert_eq!(SeekCurve::new(wrong, FIELDS, 1_000).unwrap_err().field, "full_ns");
    }
}
