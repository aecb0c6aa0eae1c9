//! Arguments of `dolmen iostat` and `dolmen top`.

use std::time::Duration;

use clap::Args;

use crate::arguments::values::parse_seconds;

/// What follows the options in the help of `iostat`.
pub(crate) const IOSTAT_HELP: &str = "\
The first report is about all that came since an object is counted: since its pool was opened, a disk joined, a space was made.
Each later one is about the time since the one before it. Without INTERVAL there is one report, without COUNT there is no end.
A percentile is a time that so many of a hundred requests did not exceed; it is at most a sixteenth too long.
With -o json each report is a document on a line of its own, with more percentiles.
Figures of spaces are what clients ask and get, those of disks what the engine asks of them for clients, jobs and itself.

Examples:
  dolmen iostat
  dolmen iostat tank 2
  dolmen iostat tank/home 1 60
  dolmen -o json iostat tank/0 tank/1 10";

/// `dolmen iostat`
#[derive(Debug, Args)]
#[command(override_usage = "dolmen iostat [OPTIONS] [POOL|SPACE|DISK]... [INTERVAL [COUNT]]")]
pub(crate) struct IostatArguments {
    /// Pools, POOL/SPACE, or disks by path, id or POOL/NUMBER, all of them when left out; then the seconds between two reports,
    /// and how many reports
    // Numbers below nothing are read as well, so that they are refused as what they are meant to be.
    #[arg(value_name = "POOL|SPACE|DISK", allow_negative_numbers = true)]
    pub words: Vec<String>,
}

/// `dolmen top`
#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// Pools, POOL/SPACE, or disks by path, id or POOL/NUMBER; all of them when left out
    #[arg(value_name = "POOL|SPACE|DISK")]
    pub objects: Vec<String>,
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = parse_seconds)]
    pub every: Duration,
}

/// Numbers that say nothing about reports.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReportsError {
    /// No interval.
    #[error("an interval is a number of seconds from 1 to 86400, not {found}")]
    Interval {
        /// What was given.
        found: String,
    },
    /// No count.
    #[error("a number of reports is 1 at least, not {found}")]
    Count {
        /// What was given.
        found: String,
    },
    /// More numbers than there is to say.
    #[error(
        "{found} numbers after the objects; there are two at most, the seconds between two reports and how many"
    )]
    TooMany {
        /// How many there are.
        found: usize,
    },
}

/// What reports are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reports {
    /// Objects that they are about; all where there are none.
    pub objects: Vec<String>,
    /// The time between two.
    pub every: Option<Duration>,
    /// How many; without an end where there is an interval alone.
    pub count: Option<u64>,
}

impl IostatArguments {
    /// Reads the words: numbers at their end are interval and count.
    pub(crate) fn reports(&self) -> Result<Reports, ReportsError> {
        let is_digit = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-');
        let is_number = |word: &&String| word.chars().all(is_digit);
        let numbers = self.words.iter().rev().take_while(is_number).count();
        let (objects, numbers) = self.words.split_at(self.words.len() - numbers);
        let (interval, count) = match numbers {
            [] => (None, None),
            [interval] => (Some(interval), None),
            [interval, count] => (Some(interval), Some(count)),
            more => return Err(ReportsError::TooMany { found: more.len() }),
        };
        let every = interval
            .map(|found| parse_seconds(found).map_err(|_| ReportsError::Interval { found: found.clone() }));
        let count = count.map(|found| {
            let count = found.parse().ok().filter(|count| *count > 0);
            count.ok_or_else(|| ReportsError::Count { found: found.clone() })
        });
        Ok(Reports { objects: objects.to_vec(), every: every.transpose()?, count: count.transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Reports, ReportsError> {
        IostatArguments { words: line.split_whitespace().map(str::to_owned).collect() }.reports()
    }

    #[test]
    fn numbers_at_the_end_are_interval_and_count() {
        let reports = |objects: &[&str], every: Option<u64>, count| Reports {
            objects: objects.iter().map(|object| (*object).to_owned()).collect(),
            every: every.map(Duration::from_secs),
            count,
        };
        assert_eq!(read(""), Ok(reports(&[], None, None)));
        assert_eq!(read("2"), Ok(reports(&[], Some(2), None)));
        assert_eq!(read("tank tank/0 2 10"), Ok(reports(&["tank", "tank/0"], Some(2), Some(10))));
        assert_eq!(read("7 tank"), Ok(reports(&["7", "tank"], None, None)), "only at the end");
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        for line in ["tank 0", "tank -1", "1.5", "tank 86401"] {
            assert!(matches!(read(line), Err(ReportsError::Interval { .. })), "{line}");
        }
        for line in ["tank 1 0", "1 -3", "tank 1 2.5"] {
            assert!(matches!(read(line), Err(ReportsError::Count { .. })), "{line}");
        }
        assert_eq!(read("tank 1 2 3"), Err(ReportsError::TooMany { found: 3 }));
    }
}
