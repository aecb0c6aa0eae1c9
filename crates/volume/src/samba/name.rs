//! Names that Samba can carry: of shares, of users and of groups.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Bytes of the name of a share, at most: what clients of Windows show.
const SHARE_NAME_BYTES_MAX: usize = 80;
/// Bytes of the name of an account, at most, with its domain.
const ACCOUNT_NAME_BYTES_MAX: usize = 256;
/// Characters that Samba refuses in names of shares, and those that end the name of a section or begin a substitution.
const NOT_IN_SHARES: &str = "<>*?|/\\+=;:\",%[]";
/// Sections with a meaning of their own, in lower case.
const RESERVED: [&str; 6] = ["global", "homes", "printers", "print$", "ipc$", "admin$"];

/// A text that cannot be such a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// No character.
    #[error("the name of {of} has at least one character")]
    Empty {
        /// `a share` or `an account`.
        of: &'static str,
    },
    /// Too many bytes.
    #[error("the name {text:?} of {of} has {found} bytes, at most {most} are allowed; shorten it")]
    TooLong {
        /// `a share` or `an account`.
        of: &'static str,
        /// Text that was given, cut to 80 characters.
        text: String,
        /// Its bytes.
        found: usize,
        /// Bytes that are allowed.
        most: usize,
    },
    /// A character that the configuration of Samba cannot carry there.
    #[error(
        "the name {text:?} of {of} has {character:?} in it, which Samba cannot carry there; choose another"
    )]
    Character {
        /// `a share` or `an account`.
        of: &'static str,
        /// Text that was given, cut to 80 characters.
        text: String,
        /// First such character.
        character: char,
    },
    /// A space at an end, which Samba drops.
    #[error("the name {text:?} of {of} begins or ends with a space; leave it out")]
    OuterSpace {
        /// `a share` or `an account`.
        of: &'static str,
        /// Text that was given.
        text: String,
    },
    /// A section that means something else.
    #[error("the name {text:?} means something else to Samba; choose another name for the share")]
    Reserved {
        /// Text that was given.
        text: String,
    },
}

fn check(text: &str, of: &'static str, most: usize, refused: impl Fn(char) -> bool) -> Result<(), NameError> {
    let shown = || text.chars().take(80).collect();
    if text.is_empty() {
        return Err(NameError::Empty { of });
    }
    if let Some(character) = text.chars().find(|c| c.is_control() || refused(*c)) {
        return Err(NameError::Character { of, text: shown(), character });
    }
    if text.len() > most {
        return Err(NameError::TooLong { of, text: shown(), found: text.len(), most });
    }
    if text.trim() != text {
        return Err(NameError::OuterSpace { of, text: shown() });
    }
    Ok(())
}

/// The name of a share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ShareName(String);

impl ShareName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a section of Samba has this name: upper and lower case are one there.
    #[must_use]
    pub fn names_section(&self, section: &str) -> bool {
        self.0.to_lowercase() == section.to_lowercase()
    }
}

impl FromStr for ShareName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        check(text, "a share", SHARE_NAME_BYTES_MAX, |c| NOT_IN_SHARES.contains(c))?;
        if RESERVED.contains(&text.to_lowercase().as_str()) {
            return Err(NameError::Reserved { text: text.to_owned() });
        }
        Ok(Self(text.to_owned()))
    }
}

/// The name of a user or a group, with its domain if there is one: `alice`, `EXAMPLE\Domain Users`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AccountName(String);

impl AccountName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for AccountName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let of = "an account";
        check(text, of, ACCOUNT_NAME_BYTES_MAX, |c| matches!(c, '"' | '%'))?;
        // In front of a name these ask for a group or a netgroup.
        match text.chars().next().filter(|c| matches!(c, '@' | '+' | '&')) {
            Some(character) => Err(NameError::Character { of, text: text.to_owned(), character }),
            None => Ok(Self(text.to_owned())),
        }
    }
}

macro_rules! text_of_a_name {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }
    };
}

text_of_a_name!(ShareName);
text_of_a_name!(AccountName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_samba_cannot_carry_are_refused_with_their_character() {
        for text in ["docs", "docs of all", "Größe", "hidden$", "a#b", "-x", &"x".repeat(80)] {
            assert!(text.parse::<ShareName>().is_ok(), "{text:?}");
        }
        for text in [
            "",
            " a",
            "a ",
            "global",
            "GLOBAL",
            "Homes",
            "IPC$",
            "a/b",
            "a%u",
            "a]",
            "[a",
            "a\nb",
            "a=b",
            "a\"",
            &"x".repeat(81),
        ] {
            assert!(text.parse::<ShareName>().is_err(), "{text:?}");
        }
        let error = "a%u".parse::<ShareName>().unwrap_err();
        assert!(error.to_string().contains("'%'"), "{error}");
        for text in ["alice", "EXAMPLE\\Domain Users", "a,b", "o'neil", "x@y"] {
            assert!(text.parse::<AccountName>().is_ok(), "{text:?}");
        }
        for text in ["", "@staff", "+staff", "&x", "a\"b", "%u", "a\n", " a"] {
            assert!(text.parse::<AccountName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn names_of_sections_are_compared_without_case() {
        let name: ShareName = "Docs".parse().unwrap();
        assert!(name.names_section("docs") && name.names_section("DOCS") && !name.names_section("doc"));
    }
}
