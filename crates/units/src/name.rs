//! Names of pools and spaces: short, and the same in a path, a URI, a shell and a table.

use std::fmt;
use std::str::FromStr;

/// Bytes of a name, at most.
pub const NAME_BYTES_MAX: usize = 63;

/// A name of a pool or a space: 1 to 63 of `a–z A–Z 0–9 _ . -`, the first one a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// A text that cannot be a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseNameError {
    /// Nothing.
    #[error("a name has at least one character")]
    Empty,
    /// More than 63 bytes.
    #[error("the name {text:?} has {found} characters, more than {NAME_BYTES_MAX}")]
    TooLong {
        /// What was given.
        text: String,
        /// Its length in bytes.
        found: usize,
    },
    /// A character that may stand in a name, and not at its beginning.
    #[error("the name {text:?} begins with {character:?}; begin with a letter or digit")]
    First {
        /// What was given.
        text: String,
        /// Its first character.
        character: char,
    },
    /// A character that would need quoting somewhere.
    #[error(
        "the name {text:?} has {character:?} in it; use letters, digits, '_', '.', '-', and begin with a letter or digit"
    )]
    Character {
        /// What was given.
        text: String,
        /// The first offending character.
        character: char,
    },
}

impl Name {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, ParseNameError> {
        let first = text.chars().next().ok_or(ParseNameError::Empty)?;
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if allowed(first) && !first.is_ascii_alphanumeric() {
            return Err(ParseNameError::First { text: text.chars().take(80).collect(), character: first });
        }
        if let Some(character) = text.chars().find(|c| !allowed(*c)) {
            return Err(ParseNameError::Character { text: text.chars().take(80).collect(), character });
        }
        if text.len() > NAME_BYTES_MAX {
            return Err(ParseNameError::TooLong { text: text.chars().take(80).collect(), found: text.len() });
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for text in ["tank", "a", "0", "a.b-c_D", &"x".repeat(63)] {
            assert_eq!(text.parse::<Name>().unwrap().as_str(), text);
        }
        for text in ["-n", "_x", ".."] {
            let reported = text.parse::<Name>().unwrap_err().to_string();
            assert!(
                reported.ends_with("begin with a letter or digit") && !reported.contains("use letters"),
                "{reported}"
            );
        }
        for text in ["", ".", "..", "-n", "_x", "a/b", "a b", "ä", "a\0", "a\n", &"x".repeat(64)] {
            assert!(text.parse::<Name>().is_err(), "{text:?}");
        }
    }
}
