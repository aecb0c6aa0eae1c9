//! Patterns of silences: text in which `*` stands for any characters.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Bytes of a pattern, at most.
pub const PATTERN_BYTES_MAX: usize = 256;

/// A pattern. `*` stands for any characters, everything else for itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(String);

/// A pattern that is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PatternError {
    /// It is empty, and would match nothing.
    #[error("the pattern is empty; `*` matches everything")]
    Empty,
    /// It is too long.
    #[error("the pattern has {found} bytes, and may have {PATTERN_BYTES_MAX}; use `*` for a part of it")]
    Long {
        /// Its bytes.
        found: usize,
    },
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        match text.len() {
            0 => Err(PatternError::Empty),
            found if found > PATTERN_BYTES_MAX => Err(PatternError::Long { found }),
            _ => Ok(Self(text)),
        }
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.0
    }
}

impl Pattern {
    /// Returns the pattern of a text.
    ///
    /// # Errors
    /// The text is empty or too long.
    pub fn new(text: impl Into<String>) -> Result<Self, PatternError> {
        Self::try_from(text.into())
    }

    /// Returns its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a text matches. Each part between stars is looked for from where the part before it ended, so the time is the product of
    /// the two lengths at most.
    #[must_use]
    pub fn matches(&self, text: &str) -> bool {
        let Some((first, rest)) = self.0.split_once('*') else { return self.0 == text };
        let Some(mut text) = text.strip_prefix(first) else { return false };
        let mut parts = rest.split('*').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                return text.ends_with(part);
            }
            let Some((_, after)) = text.split_once(part) else { return false };
            text = after;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_characters() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "disk 3 of tank", true),
            ("disk *", "disk 3 of tank", true),
            ("disk_*", "disk_absent", true),
            ("disk_*", "space_degraded", false),
            ("*tank*", "tank/home", true),
            ("tank/*", "tank", false),
            ("tank/home", "tank/home", true),
            ("tank/home", "tank/home2", false),
            ("a*a", "a", false),
            ("a*b*c", "a--b--c", true),
            ("a*b*c", "a--c--b", false),
            ("**x", "xx", true),
            ("?", "a", false),
        ] {
            assert_eq!(Pattern::new(pattern).unwrap().matches(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn an_empty_or_long_pattern_is_refused() {
        assert_eq!(Pattern::new(""), Err(PatternError::Empty));
        let found = PATTERN_BYTES_MAX + 1;
        assert_eq!(Pattern::new("x".repeat(found)), Err(PatternError::Long { found }));
        assert!(serde_json::from_str::<Pattern>("\"\"").is_err());
    }
}
