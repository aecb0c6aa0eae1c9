//! Notifications: what is sent, with its text.

use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::evidence::Evidence;
use crate::severity::Severity;

/// Kind of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// An alert opened.
    Opened,
    /// An alert is more severe.
    Raised,
    /// An alert is less severe.
    Lowered,
    /// There is more of the same.
    Grown,
    /// An alert is still open.
    Reminder,
    /// An alert closed: the all-clear.
    Closed,
    /// The sign that notifications arrive.
    Heartbeat,
    /// A test that somebody asked for.
    Test,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Opened,
        Self::Raised,
        Self::Lowered,
        Self::Grown,
        Self::Reminder,
        Self::Closed,
        Self::Heartbeat,
        Self::Test,
    ];

    /// Returns its word in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Raised => "raised",
            Self::Lowered => "lowered",
            Self::Grown => "grown",
            Self::Reminder => "reminder",
            Self::Closed => "closed",
            Self::Heartbeat => "heartbeat",
            Self::Test => "test",
        }
    }

    /// Whether it is sent until it arrives; others are replaced by a newer one of their alert.
    pub(crate) const fn is_kept(self) -> bool {
        matches!(self, Self::Opened | Self::Closed)
    }
}

/// The alert of a notification, as it was then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlertContent {
    /// Number of the alert.
    pub id: u64,
    /// Its cause.
    pub cause: Cause,
    /// When its condition was seen first, in seconds since 1970.
    pub since_s: u64,
    /// Its evidence, nearest to the cause first.
    pub evidence: Vec<Evidence>,
    /// Pieces of evidence that are not listed.
    pub left_out: usize,
}

/// A notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Notification {
    /// Its number. None is given twice; a sender that gets one twice drops the second.
    pub id: u64,
    /// The channel that it goes to.
    pub channel: String,
    /// Its kind.
    pub kind: Kind,
    /// Severity of its alert.
    pub severity: Severity,
    /// Name of the host.
    pub host: String,
    /// When it was made, in seconds since 1970.
    pub at_s: u64,
    /// Its subject, one line.
    pub subject: String,
    /// Its text: sentences, evidence, and what to do.
    pub body: String,
    /// Commands that the text names.
    pub commands: Vec<String>,
    /// Its alert; none for a heartbeat and a test.
    pub alert: Option<AlertContent>,
}
