//! Notifications for ntfy: title, message, priority and tags, as its JSON has them. The sender adds the topic.

use serde::Serialize;

use crate::evidence::one_line;
use crate::notification::{Kind, Notification};
use crate::severity::Severity;

/// Bytes of a message, at most: servers make an attachment of a longer one.
pub const MESSAGE_BYTES_MAX: usize = 4000;

/// A notification for ntfy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ntfy {
    /// One line.
    pub title: String,
    /// The text.
    pub message: String,
    /// 1 to 5, of which 3 is usual.
    pub priority: u8,
    /// Tags, the first of which is shown as a symbol.
    pub tags: Vec<&'static str>,
}

/// Returns a notification for ntfy.
#[must_use]
pub fn ntfy(notification: &Notification) -> Ntfy {
    let (priority, symbol) = match (notification.kind, notification.severity) {
        (Kind::Heartbeat, _) => (1, "green_heart"),
        (Kind::Test, _) => (3, "test_tube"),
        (Kind::Closed, _) => (3, "white_check_mark"),
        (_, Severity::Critical) => (5, "rotating_light"),
        (_, Severity::Warning) => (4, "warning"),
        (_, Severity::Notice) => (2, "information_source"),
    };
    let body = &notification.body;
    let message = match body.len() > MESSAGE_BYTES_MAX {
        true => {
            let end = body.floor_char_boundary(MESSAGE_BYTES_MAX - '…'.len_utf8());
            format!("{}…", body.get(..end).unwrap_or_default())
        }
        false => body.clone(),
    };
    let tags = vec![symbol, notification.severity.word(), notification.kind.word()];
    Ntfy { title: one_line(&notification.subject), message, priority, tags }
}
