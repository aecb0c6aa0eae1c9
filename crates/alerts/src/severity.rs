//! Severity of an alert.

use dolmen_api::Health;
use serde::{Deserialize, Serialize};

/// Severity of a finding or an alert. Ordered: the worst of several is their maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A hint. It is evidence of an alert, and opens none unless the policy says so.
    Notice,
    /// Somebody should look: redundancy is reduced, or room ends.
    Warning,
    /// Data is lost or out of reach, a pool is closed or has stopped, or the daemon does not answer.
    Critical,
}

impl Severity {
    /// All of them, least first.
    pub const ALL: [Self; 3] = [Self::Notice, Self::Warning, Self::Critical];

    /// Returns its word in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

impl From<Health> for Severity {
    fn from(health: Health) -> Self {
        match health {
            Health::Healthy => Self::Notice,
            Health::Warning => Self::Warning,
            Health::Unhealthy => Self::Critical,
        }
    }
}
