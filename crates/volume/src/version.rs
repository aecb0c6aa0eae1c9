//! Version numbers of tools and kernels: two or three numbers, compared in order.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A version of a tool or of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number; zero if the text has two.
    pub patch: u32,
}

/// A text that is no version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no version; write two or three numbers with dots between them, such as 6.1 or 5.15.3")]
pub struct ParseVersionError {
    /// Text that was given, cut to 80 characters.
    pub text: String,
}

impl Version {
    /// Makes a version of two numbers, the third being zero.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor, patch: 0 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        if self.patch != 0 {
            write!(f, ".{}", self.patch)?;
        }
        Ok(())
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl TryFrom<String> for Version {
    type Error = ParseVersionError;

    fn try_from(text: String) -> Result<Self, ParseVersionError> {
        text.parse()
    }
}

/// Reads `6.1`, `6.1.192` and what distributions append: `6.12.117+deb13-amd64`, `1.48-WIP`, `6.8-rc1`.
impl FromStr for Version {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, ParseVersionError> {
        let error = || ParseVersionError { text: text.chars().take(80).collect() };
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (numbers, suffix) = text.split_at(end);
        if !suffix.is_empty() && !suffix.starts_with(['-', '+', '~', '_']) {
            return Err(error());
        }
        let mut parts = numbers.split('.');
        let mut next = || parts.next().map(|part| part.parse::<u32>().map_err(|_| error()));
        let major = next().ok_or_else(error)??;
        let minor = next().ok_or_else(error)??;
        let patch = next().unwrap_or(Ok(0))?;
        while let Some(number) = next() {
            number?;
        }
        Ok(Self { major, minor, patch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_of_distributions_are_read() {
        for (text, version) in [
            ("6.1", (6, 1, 0)),
            ("6.1.192", (6, 1, 192)),
            ("6.12.117+deb13-amd64", (6, 12, 117)),
            ("1.48-WIP", (1, 48, 0)),
            ("6.8-rc1", (6, 8, 0)),
            ("6.6.87.2-microsoft-standard-WSL2", (6, 6, 87)),
        ] {
            let (major, minor, patch) = version;
            assert_eq!(text.parse(), Ok(Version { major, minor, patch }), "{text}");
        }
        for text in ["", "6", "v6.1", "6.", ".6", "6.1x", "6.99999999999", "6..1", "6.1 ", "+6.1"] {
            assert!(text.parse::<Version>().is_err(), "{text}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(Version::new(6, 10) > Version::new(6, 9));
        assert!(Version::new(7, 0) > Version { major: 6, minor: 19, patch: 9 });
    }

    proptest! {
        #[test]
        fn a_version_reads_back_as_it_was_written(major: u32, minor: u32, patch: u32) {
            let version = Version { major, minor, patch };
            prop_assert_eq!(version.to_string().parse(), Ok(version));
        }

        #[test]
        fn no_text_stops_the_parser(text in ".*") {
            let _ = text.parse::<Version>();
        }
    }
}
