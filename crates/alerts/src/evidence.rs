//! Evidence: findings as alerts keep them.
//!
//! Codes are words here, because the saved state of one build is read by others that have other codes. Texts are one line of bounded
//! length, whatever the names in them hold.

use dolmen_api::{Explanation, Finding, FindingCode, Object};
use serde::{Deserialize, Serialize};

use crate::severity::Severity;

/// Code of the condition that the daemon does not answer.
pub const UNANSWERED_CODE: &str = "daemon_unanswered";
/// Code of the condition that there are more alerts than are kept one by one.
pub const FURTHER_CODE: &str = "further_findings";
/// Bytes of a text, at most.
pub const TEXT_BYTES_MAX: usize = 400;

/// A finding, or what a caller saw.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// How near it is to the cause: 0 is the cause itself.
    pub distance: u8,
    /// Word of its code.
    pub code: String,
    /// Its object.
    pub object: Object,
    /// Its severity.
    pub severity: Severity,
    /// It, in words.
    pub text: String,
    /// Its amount, for what can become more.
    pub amount: u64,
}

impl Evidence {
    pub(crate) fn of(finding: &Finding, distance: u8) -> Self {
        Self {
            distance,
            code: finding.code.word().to_owned(),
            object: finding.object.clone(),
            severity: finding.health.into(),
            text: one_line(&finding.text),
            amount: finding.amount,
        }
    }

    /// Returns what it is about, as one word: two looks find the same cause where it is the same.
    pub(crate) fn identity(&self) -> String {
        format!("{} {}", self.code, one_line(&self.object.to_string()))
    }

    /// Returns the explanation of its code, if this build knows it.
    pub(crate) fn explanation(&self) -> Option<Explanation> {
        match self.code.as_str() {
            UNANSWERED_CODE => Some(Explanation {
                means: "The daemon does not answer requests.",
                by_itself: "The service manager restarts a daemon that ended. Attached spaces wait for the next daemon.",
                to_do: "`systemctl status dolmend` shows whether it runs, `journalctl -u dolmend` why it ended.",
            }),
            FURTHER_CODE => Some(Explanation {
                means: "There are more alerts than are reported one by one.",
                by_itself: "They are reported one by one when others have closed.",
                to_do: "`dolmen status` shows all of them.",
            }),
            code => {
                let found = FindingCode::ALL.iter().find(|one| one.word() == code);
                found.map(|code| code.explanation())
            }
        }
    }
}

/// Returns a text as one line of bounded length: control characters and line separators become spaces.
pub(crate) fn one_line(text: &str) -> String {
    cut_line(text, TEXT_BYTES_MAX)
}

/// Returns a text as one line of at most so many bytes.
pub(crate) fn cut_line(text: &str, bytes_max: usize) -> String {
    let is_break = |c: char| c.is_control() || c == '\u{2028}' || c == '\u{2029}';
    let line: String = text.chars().map(|c| if is_break(c) { ' ' } else { c }).collect();
    if line.len() <= bytes_max {
        return line;
    }
    let end = line.floor_char_boundary(bytes_max.saturating_sub('…'.len_utf8()));
    format!("{}…", line.get(..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_line_of_bounded_length() {
        assert_eq!(one_line("a\r\nb\tc\u{2028}d"), "a  b c d");
        let long = one_line(&"ä".repeat(1000));
        assert!(long.len() <= TEXT_BYTES_MAX && long.ends_with('…'), "{}", long.len());
    }
}
