//! Policy: delays, reminders, retries, channels. It is a setting of the caller, and no part of the saved state.

use crate::severity::Severity;

/// Attempts of one notification, at most.
pub const ATTEMPTS_MAX: u32 = 40;
/// Channels, at most.
pub const CHANNELS_MAX: usize = 16;

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 60 * MINUTE_S;
const DAY_S: u64 = 24 * HOUR_S;

/// How long a condition holds before an alert opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenAfter {
    /// Of a notice.
    pub notice_s: u64,
    /// Of a warning.
    pub warning_s: u64,
    /// Of what is critical.
    pub critical_s: u64,
}

/// Policy of alerts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Name of the host in texts.
    pub host: String,
    /// Names of the channels, each of which gets every notification. The caller maps them to senders.
    pub channels: Vec<String>,
    /// The least severity that opens an alert.
    pub least: Severity,
    /// How long a condition holds before its alert opens, and a new severity before it is reported.
    pub open_after: OpenAfter,
    /// How long a condition is absent before its alert closes. It doubles with each time that the alert opened within a day.
    pub close_after_s: u64,
    /// The longest that it becomes by doubling.
    pub close_after_max_s: u64,
    /// How long the daemon does not answer before that is an alert.
    pub unanswered_after_s: u64,
    /// The time between two reports of growth: more objects, or twice the amount. A higher severity does not wait for it.
    pub growth_pause_s: u64,
    /// The time until the first reminder, which doubles with each; none for no reminders.
    pub remind_after_s: Option<u64>,
    /// The longest time between reminders.
    pub remind_after_max_s: u64,
    /// The second of the day (UTC) from which on a heartbeat is sent; none for no heartbeats.
    pub heartbeat_at_s: Option<u64>,
    /// The pause after the first failed attempt to send, which doubles with each.
    pub retry_after_s: u64,
    /// The longest pause between attempts.
    pub retry_after_max_s: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            channels: Vec::new(),
            least: Severity::Warning,
            open_after: OpenAfter { notice_s: 10 * MINUTE_S, warning_s: MINUTE_S, critical_s: 15 },
            close_after_s: 2 * MINUTE_S,
            close_after_max_s: HOUR_S,
            unanswered_after_s: MINUTE_S,
            growth_pause_s: 10 * MINUTE_S,
            remind_after_s: Some(4 * HOUR_S),
            remind_after_max_s: DAY_S,
            heartbeat_at_s: None,
            retry_after_s: 30,
            retry_after_max_s: HOUR_S,
        }
    }
}

impl Policy {
    /// Returns how long a condition of this severity holds before it is reported.
    pub(crate) const fn open_after(&self, severity: Severity) -> u64 {
        match severity {
            Severity::Notice => self.open_after.notice_s,
            Severity::Warning => self.open_after.warning_s,
            Severity::Critical => self.open_after.critical_s,
        }
    }

    /// Returns how long a condition is absent before its alert closes, where it opened so often within a day.
    pub(crate) fn close_after(&self, openings: usize) -> u64 {
        let doublings = u32::try_from(openings.saturating_sub(1)).unwrap_or(u32::MAX);
        doubled(self.close_after_s, doublings, self.close_after_max_s)
    }

    /// Returns the pause until the next reminder after so many.
    pub(crate) fn remind_after(&self, reminders: u32) -> Option<u64> {
        self.remind_after_s.map(|first| doubled(first, reminders, self.remind_after_max_s))
    }

    /// Returns the pause after so many failed attempts.
    pub(crate) fn retry_after(&self, attempts: u32) -> u64 {
        doubled(self.retry_after_s.max(1), attempts.saturating_sub(1), self.retry_after_max_s.max(1))
    }

    /// Returns the channels, as many as are allowed.
    pub(crate) fn channels(&self) -> impl Iterator<Item = &String> {
        self.channels.iter().take(CHANNELS_MAX)
    }
}

/// Returns a time after so many doublings, at most `most` and at least itself.
fn doubled(first: u64, doublings: u32, most: u64) -> u64 {
    let factor = 1u64.checked_shl(doublings).unwrap_or(u64::MAX);
    first.saturating_mul(factor).min(most).max(first.min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_most() {
        let policy = Policy { retry_after_s: 30, retry_after_max_s: 100, ..Policy::default() };
        assert_eq!([0, 1, 2, 3, 99].map(|attempts| policy.retry_after(attempts)), [30, 30, 60, 100, 100]);
        let policy = Policy { close_after_s: 120, close_after_max_s: 3600, ..policy };
        assert_eq!(
            [0, 1, 2, 6, 500].map(|openings| policy.close_after(openings)),
            [120, 120, 240, 3600, 3600]
        );
        assert_eq!(Policy { remind_after_s: None, ..policy }.remind_after(3), None);
    }
}
