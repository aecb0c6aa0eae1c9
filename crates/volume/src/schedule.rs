//! Times at which something is done to a volume, as people write them: `daily 03:00`, `weekly sunday 02:00`, `hourly`, `never`.
//!
//! Times of day are those of the host. The caller gives the distance from UTC, so nothing here reads a clock.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const MINUTES_PER_HOUR: i64 = 60;
const MINUTES_PER_DAY: i64 = 24 * MINUTES_PER_HOUR;
const MINUTES_PER_WEEK: i64 = 7 * MINUTES_PER_DAY;
/// Day 0 of Unix time was a Thursday: so many days after a Monday.
const FIRST_WEEKDAY: i64 = 3;

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Weekday {
    /// The first day.
    Monday,
    /// The second day.
    Tuesday,
    /// The third day.
    Wednesday,
    /// The fourth day.
    Thursday,
    /// The fifth day.
    Friday,
    /// The sixth day.
    Saturday,
    /// The seventh day.
    Sunday,
}

impl Weekday {
    /// All, from Monday on.
    pub const ALL: [Self; 7] = [
        Self::Monday,
        Self::Tuesday,
        Self::Wednesday,
        Self::Thursday,
        Self::Friday,
        Self::Saturday,
        Self::Sunday,
    ];

    /// Name in schedules.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Monday => "monday",
            Self::Tuesday => "tuesday",
            Self::Wednesday => "wednesday",
            Self::Thursday => "thursday",
            Self::Friday => "friday",
            Self::Saturday => "saturday",
            Self::Sunday => "sunday",
        }
    }

    /// Days after Monday.
    const fn days(self) -> i64 {
        match self {
            Self::Monday => 0,
            Self::Tuesday => 1,
            Self::Wednesday => 2,
            Self::Thursday => 3,
            Self::Friday => 4,
            Self::Saturday => 5,
            Self::Sunday => 6,
        }
    }
}

/// A time of day, in whole minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay {
    hour: u8,
    minute: u8,
}

impl TimeOfDay {
    /// Makes a time of day; `None` if there is none such.
    #[must_use]
    pub fn new(hour: u8, minute: u8) -> Option<Self> {
        (hour < 24 && minute < 60).then_some(Self { hour, minute })
    }

    fn minutes(self) -> i64 {
        i64::from(self.hour) * MINUTES_PER_HOUR + i64::from(self.minute)
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.hour, self.minute)
    }
}

/// When something is done again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Schedule {
    /// Only when it is asked for.
    #[default]
    Never,
    /// At each full hour.
    Hourly,
    /// Each day.
    Daily(TimeOfDay),
    /// One day of each week.
    Weekly(Weekday, TimeOfDay),
}

/// A text that is no schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseScheduleError {
    /// Not one of the four forms.
    #[error("{text:?} is no schedule; write never, hourly, 'daily 03:00' or 'weekly sunday 02:00'")]
    Form {
        /// Text that was given, cut to 80 characters.
        text: String,
    },
    /// A day that no week has.
    #[error("{found:?} in the schedule {text:?} is no day of the week; write monday to sunday in full")]
    Weekday {
        /// Text that was given, cut to 80 characters.
        text: String,
        /// Word in the place of the day.
        found: String,
    },
    /// A time that no day has.
    #[error("{found:?} in the schedule {text:?} is no time of day; write 00:00 to 23:59")]
    Time {
        /// Text that was given, cut to 80 characters.
        text: String,
        /// Word in the place of the time.
        found: String,
    },
}

/// A time zone's distance from UTC that none has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a time zone is {found} minutes from UTC; expected -1440 to 1440")]
pub struct OffsetError {
    /// Distance that was given.
    pub found: i32,
}

impl Schedule {
    /// Minute of Unix time at which it is next due, strictly after `after`; `None` for [`Schedule::Never`].
    ///
    /// `offset` is the distance of the local time from UTC in minutes, positive to the east. A caller asks again when
    /// the distance changes, so that a change of clocks neither repeats nor skips a time of the following day.
    ///
    /// # Errors
    /// Fails if the offset is longer than a day.
    pub fn next(self, after: i64, offset: i32) -> Result<Option<i64>, OffsetError> {
        if i64::from(offset.unsigned_abs()) > MINUTES_PER_DAY {
            return Err(OffsetError { found: offset });
        }
        let (period, phase) = match self {
            Self::Never => return Ok(None),
            Self::Hourly => (MINUTES_PER_HOUR, 0),
            Self::Daily(time) => (MINUTES_PER_DAY, time.minutes()),
            Self::Weekly(day, time) => {
                let days = (day.days() - FIRST_WEEKDAY).rem_euclid(7);
                (MINUTES_PER_WEEK, days * MINUTES_PER_DAY + time.minutes())
            }
        };
        let behind = |minute: i64| {
            (i128::from(minute) + i128::from(offset) - i128::from(phase)).rem_euclid(period.into())
        };
        let wait = i64::try_from(i128::from(period) - behind(after)).unwrap_or(period);
        Ok(after.checked_add(wait))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("never"),
            Self::Hourly => f.write_str("hourly"),
            Self::Daily(time) => write!(f, "daily {time}"),
            Self::Weekly(day, time) => write!(f, "weekly {} {time}", day.name()),
        }
    }
}

impl FromStr for Schedule {
    type Err = ParseScheduleError;

    fn from_str(text: &str) -> Result<Self, ParseScheduleError> {
        let shown = || text.chars().take(80).collect::<String>();
        let time = |word: &str| {
            let digits = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
            word.split_once(':')
                .filter(|(hour, minute)| digits(hour) && digits(minute))
                .and_then(|(hour, minute)| TimeOfDay::new(hour.parse().ok()?, minute.parse().ok()?))
                .ok_or_else(|| ParseScheduleError::Time {
                    text: shown(),
                    found: word.chars().take(80).collect(),
                })
        };
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        match words.as_slice() {
            ["never"] => Ok(Self::Never),
            ["hourly"] => Ok(Self::Hourly),
            ["daily", at] => Ok(Self::Daily(time(at)?)),
            ["weekly", name, at] => {
                let day = Weekday::ALL.into_iter().find(|day| day.name() == *name).ok_or_else(|| {
                    ParseScheduleError::Weekday { text: shown(), found: name.chars().take(80).collect() }
                })?;
                Ok(Self::Weekly(day, time(at)?))
            }
            _ => Err(ParseScheduleError::Form { text: shown() }),
        }
    }
}

impl From<Schedule> for String {
    fn from(schedule: Schedule) -> Self {
        schedule.to_string()
    }
}

impl TryFrom<String> for Schedule {
    type Error = ParseScheduleError;

    fn try_from(text: String) -> Result<Self, ParseScheduleError> {
        text.parse()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_schedule() -> impl Strategy<Value = Schedule> {
        (0..4_u8, 0..7_usize, 0..24_u8, 0..60_u8).prop_map(|(kind, day, hour, minute)| {
            let time = TimeOfDay::new(hour, minute).unwrap();
            match kind {
                0 => Schedule::Never,
                1 => Schedule::Hourly,
                2 => Schedule::Daily(time),
                _ => Schedule::Weekly(Weekday::ALL[day], time),
            }
        })
    }

    /// 29 November 2026, 21:40 UTC, a Sunday.
    const SUNDAY_EVENING: i64 = 29_933_140;

    #[test]
    fn the_next_time_is_that_of_the_local_clock() {
        let next = |text: &str, offset| {
            text.parse::<Schedule>()
                .unwrap()
                .next(SUNDAY_EVENING, offset)
                .unwrap()
                .map(|at| at - SUNDAY_EVENING)
        };
        assert_eq!(next("never", 0), None);
        assert_eq!(next("hourly", 0), Some(20));
        assert_eq!(next("hourly", 30), Some(50));
        assert_eq!(next("daily 22:00", 0), Some(20));
        assert_eq!(next("daily 21:40", 0), Some(1440));
        assert_eq!(next("daily 22:00", 60), Some(1400), "it is 22:40 there");
        assert_eq!(next("weekly sunday 22:00", 0), Some(20));
        assert_eq!(next("weekly monday 00:00", 0), Some(140));
        assert_eq!(next("weekly monday 00:00", 180), Some(7 * 1440 - 40), "it is Monday, 00:40, there");
        assert_eq!(next("weekly sunday 21:00", 0), Some(7 * 1440 - 40));
        assert!(Schedule::Hourly.next(0, 1441).is_err());
        assert_eq!(Schedule::Hourly.next(i64::MAX, 0), Ok(None));
    }

    #[test]
    fn text_that_is_no_schedule_is_refused() {
        for text in [
            "",
            "daily",
            "daily 24:00",
            "daily 3:00",
            "daily 03:60",
            "daily +3:00",
            "weekly 03:00",
            "weekly sun 03:00",
            "hourly 5",
            "Never",
            "weekly sunday 03:00 x",
        ] {
            assert!(text.parse::<Schedule>().is_err(), "{text:?}");
        }
        let error = "weekly sun 03:00".parse::<Schedule>().unwrap_err();
        assert!(error.to_string().contains("\"sun\"") && error.to_string().contains("in full"), "{error}");
    }

    proptest! {
        #[test]
        fn a_schedule_reads_back_as_it_was_written(schedule in any_schedule()) {
            prop_assert_eq!(schedule.to_string().parse(), Ok(schedule));
        }

        #[test]
        fn the_next_time_comes_after_and_none_lies_between(
            schedule in any_schedule(), after in -100_000_000..100_000_000_i64, step in 0..20_000_i64, offset in -720..840_i32,
        ) {
            let Some(due) = schedule.next(after, offset).unwrap() else { return Ok(()) };
            prop_assert!(due > after && due - after <= MINUTES_PER_WEEK);
            let between = after + step.min(due - 1 - after);
            prop_assert_eq!(schedule.next(between, offset).unwrap(), Some(due));
        }

        #[test]
        fn no_text_and_no_time_stops_it(text in ".*", after: i64, offset: i32) {
            if let Ok(schedule) = text.parse::<Schedule>() {
                let _ = schedule.next(after, offset);
            }
            let _ = Schedule::Hourly.next(after, offset);
        }
    }
}
