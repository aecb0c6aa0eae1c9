//! Lengths of time, as both sides say them to people.

use crate::job::Eta;

/// A length of time: two units at most, because nobody needs the seconds of a day.
#[must_use]
pub fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |large: u64, large_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {large_unit}"),
        small => format!("{large} {large_unit} {small} {small_unit}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => pair(minutes, "min", seconds % 60, "s"),
        3600..86_400 => pair(hours, "h", minutes % 60, "min"),
        _ => pair(days, "d", hours % 24, "h"),
    }
}

impl Eta {
    /// The range, as short as it can be said.
    #[must_use]
    pub fn words(self) -> String {
        let (earliest, latest) = (duration(self.earliest_s), duration(self.latest_s.max(self.earliest_s)));
        if self.latest_s <= 1 {
            return "at most 1 s".to_owned();
        }
        if earliest == latest { earliest } else { format!("{earliest} to {latest}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_have_two_units_at_most() {
        for (seconds, text) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3599, "59 min 59 s"),
            (3600, "1 h"),
            (7320, "2 h 2 min"),
            (90_000, "1 d 1 h"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
