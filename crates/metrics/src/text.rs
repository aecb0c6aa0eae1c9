//! Samples of families, and their text in the format 0.0.4.
//!
//! Samples are kept by family and label values, so that the text groups each family below its `# TYPE` line and has no sample twice,
//! in whatever order they come.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

use crate::family::Family;
use crate::histogram::Folded;
use crate::{LABEL_BYTES_MAX, SERIES_MAX};

/// A number of a sample. Only whole numbers are computed with, so a sum never falls by rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Number {
    /// A count.
    Whole(u64),
    /// A count that may be negative.
    Signed(i64),
    /// Microseconds, written as seconds.
    Micros(u64),
    /// A part of a whole, written as a number from 0 to 1 where it is not more than the whole.
    Ratio { part: u64, of: u64 },
}

impl From<u64> for Number {
    fn from(count: u64) -> Self {
        Self::Whole(count)
    }
}

impl From<usize> for Number {
    fn from(count: usize) -> Self {
        Self::Whole(u64::try_from(count).unwrap_or(u64::MAX))
    }
}

impl From<bool> for Number {
    fn from(is: bool) -> Self {
        Self::Whole(u64::from(is))
    }
}

/// Writes millionths as a decimal number without trailing zeros.
fn write_millionths(f: &mut impl Write, millionths: u128) -> fmt::Result {
    let (whole, rest) = (millionths / 1_000_000, millionths % 1_000_000);
    if rest == 0 {
        return write!(f, "{whole}");
    }
    let digits = format!("{rest:06}");
    write!(f, "{whole}.{}", digits.trim_end_matches('0'))
}

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Whole(count) => write!(f, "{count}"),
            Self::Signed(count) => write!(f, "{count}"),
            Self::Micros(us) => write_millionths(f, u128::from(us)),
            Self::Ratio { part, of } => {
                write_millionths(f, (u128::from(part) * 1_000_000).checked_div(u128::from(of)).unwrap_or(0))
            }
        }
    }
}

/// What a label set has.
#[derive(Debug)]
enum Sample {
    Number(Number),
    Histogram(Folded),
}

/// The samples of an exposition.
#[derive(Debug, Default)]
pub(crate) struct Text {
    families: BTreeMap<Family, BTreeMap<Vec<String>, Sample>>,
    left_out: u64,
}

impl Text {
    /// Adds a number. `labels` are the values of the labels of the family, in its order.
    pub(crate) fn put(&mut self, family: Family, labels: &[&str], number: impl Into<Number>) {
        self.add(family, labels, Sample::Number(number.into()));
    }

    /// Adds a number where there is one.
    pub(crate) fn put_some(&mut self, family: Family, labels: &[&str], number: Option<impl Into<Number>>) {
        if let Some(number) = number {
            self.put(family, labels, number);
        }
    }

    /// Adds a histogram.
    pub(crate) fn put_histogram(&mut self, family: Family, labels: &[&str], histogram: Folded) {
        self.add(family, labels, Sample::Histogram(histogram));
    }

    fn add(&mut self, family: Family, labels: &[&str], sample: Sample) {
        assert_eq!(labels.len(), family.labels().len(), "{} has other labels", family.name());
        let labels: Vec<String> = labels.iter().map(|value| as_label(value)).collect();
        let samples = self.families.entry(family).or_default();
        if samples.len() >= SERIES_MAX || samples.contains_key(&labels) {
            self.left_out += 1;
            return;
        }
        samples.insert(labels, sample);
    }

    /// Returns the text.
    pub(crate) fn finish(mut self) -> String {
        let left_out = self.left_out;
        self.put(Family::SeriesLeftOut, &[], left_out);
        let mut out = String::new();
        for (family, samples) in &self.families {
            let (name, kind) = (family.name(), family.kind().word());
            // Writing to a text cannot fail.
            let _ = writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", escaped_help(family.help()));
            for (values, sample) in samples {
                let labels = labels_text(family.labels(), values);
                match sample {
                    Sample::Number(number) => {
                        let _ = writeln!(out, "{name}{} {number}", braced(&labels, ""));
                    }
                    Sample::Histogram(histogram) => write_histogram(&mut out, name, &labels, histogram),
                }
            }
        }
        out
    }
}

fn write_histogram(out: &mut String, name: &str, labels: &str, histogram: &Folded) {
    for (bound_us, count) in histogram.buckets() {
        let le = format!("le=\"{}\"", Number::Micros(bound_us));
        let _ = writeln!(out, "{name}_bucket{} {count}", braced(labels, &le));
    }
    let count = histogram.count();
    let _ = writeln!(out, "{name}_bucket{} {count}", braced(labels, "le=\"+Inf\""));
    let _ = writeln!(out, "{name}_sum{} {}", braced(labels, ""), Number::Micros(histogram.total_us()));
    let _ = writeln!(out, "{name}_count{} {count}", braced(labels, ""));
}

/// The start of a label value that is short enough. Parsers that end lines at a carriage return would read a part of the value as a
/// line of its own, so a space replaces it; that comes before series are compared, as two names may be one then.
fn as_label(value: &str) -> String {
    value.get(..value.floor_char_boundary(LABEL_BYTES_MAX)).unwrap_or(value).replace('\r', " ")
}

fn labels_text(names: &[&str], values: &[String]) -> String {
    let label = |(name, value): (&&str, &String)| format!("{name}=\"{}\"", escaped_value(value));
    names.iter().zip(values).map(label).collect::<Vec<_>>().join(",")
}

fn braced(labels: &str, more: &str) -> String {
    match (labels.is_empty(), more.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!("{{{labels}}}"),
        (true, false) => format!("{{{more}}}"),
        (false, false) => format!("{{{labels},{more}}}"),
    }
}

/// Returns a label value as the format escapes it.
fn escaped_value(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn escaped_help(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_decimals() {
        for (number, text) in [
            (Number::Whole(u64::MAX), "18446744073709551615"),
            (Number::Signed(-4), "-4"),
            (Number::Micros(0), "0"),
            (Number::Micros(1), "0.000001"),
            (Number::Micros(2_500), "0.0025"),
            (Number::Micros(3_000_000), "3"),
            (Number::Micros(u64::MAX), "18446744073709.551615"),
            (Number::Ratio { part: 1, of: 3 }, "0.333333"),
            (Number::Ratio { part: 104, of: 100 }, "1.04"),
            (Number::Ratio { part: 5, of: 0 }, "0"),
        ] {
            assert_eq!(number.to_string(), text);
        }
    }

    #[test]
    fn a_label_value_is_escaped_and_cut_between_characters() {
        assert_eq!(escaped_value(&as_label("a\"b\\c\nd\re")), "a\\\"b\\\\c\\nd e");
        let long = "ä".repeat(LABEL_BYTES_MAX);
        assert_eq!(as_label(&long).len(), LABEL_BYTES_MAX);
        assert_eq!(as_label(&format!("x{long}")).len(), LABEL_BYTES_MAX - 1);
    }

    /// Scenario: two pools whose names differ in what replaces a carriage return. They have one series.
    #[test]
    fn names_that_are_written_the_same_have_one_series() {
        let mut text = Text::default();
        for name in ["a b", "a\rb"] {
            text.put(Family::SpaceSizeBytes, &["tank", name], 1u64);
        }
        let text = text.finish();
        assert_eq!(text.matches("space=\"a b\"").count(), 1, "{text}");
    }

    /// Scenario: more spaces than a family may have series. The rest is left out, and counted.
    #[test]
    fn series_above_the_bound_are_left_out_and_counted() {
        let mut text = Text::default();
        for number in 0..SERIES_MAX + 3 {
            text.put(Family::SpaceSizeBytes, &["tank", &number.to_string()], 1u64);
        }
        let text = text.finish();
        let of_spaces = text.lines().filter(|line| line.starts_with("dolmen_space_size_bytes{")).count();
        assert_eq!(of_spaces, SERIES_MAX);
        assert!(text.contains("\ndolmen_series_left_out 3\n"), "{text}");
    }
}
