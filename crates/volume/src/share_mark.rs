//! The mark by which Dolmen knows what it wrote into the configuration of a server.

use dolmen_units::PoolId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Text in front of a mark.
const BEGIN: &str = "[dolmen ";

/// Identity of a share: pool, space and number of its record. In JSON a text, `POOL/SPACE/SHARE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ShareMark {
    /// Pool of the volume.
    pub pool: PoolId,
    /// Number of its space.
    pub space: u64,
    /// Number of the record of the share.
    pub share: u32,
}

impl ShareMark {
    /// Reads the mark at the end of a comment; `None` if there is none.
    #[must_use]
    pub fn at_end_of(comment: &str) -> Option<Self> {
        let (_, mark) = comment.strip_suffix(']')?.rsplit_once(BEGIN)?;
        let mut parts = mark.split('/');
        let mut next = || parts.next();
        let (pool, space, share) = (next()?.parse().ok()?, next()?.parse().ok()?, next()?.parse().ok()?);
        let read = Self { pool, space, share };
        // Other spellings of the same numbers were written by somebody else.
        (format!("{BEGIN}{mark}]") == read.to_string()).then_some(read)
    }

    /// Name of a file for the share: the same on each host, and a name of no other share.
    #[must_use]
    pub fn file_name(&self, suffix: &str) -> String {
        format!("dolmen-{}-{}-{}.{suffix}", self.pool, self.space, self.share)
    }
}

/// A text that is no identity of a share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no identity of a share; it is the id of a pool, the number of a space and that of a share, with slashes between"
)]
pub struct ShareMarkError {
    /// Text that was given, cut to 80 characters.
    pub text: String,
}

impl From<ShareMark> for String {
    fn from(mark: ShareMark) -> Self {
        format!("{}/{}/{}", mark.pool, mark.space, mark.share)
    }
}

impl TryFrom<String> for ShareMark {
    type Error = ShareMarkError;

    fn try_from(text: String) -> Result<Self, ShareMarkError> {
        Self::at_end_of(&format!("{BEGIN}{text}]"))
            .ok_or_else(|| ShareMarkError { text: text.chars().take(80).collect() })
    }
}

impl fmt::Display for ShareMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BEGIN}{}/{}/{}]", self.pool, self.space, self.share)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn any_mark() -> impl Strategy<Value = ShareMark> {
        (any::<[u8; 16]>(), any::<u64>(), any::<u32>()).prop_map(|(pool, space, share)| ShareMark {
            pool: PoolId(pool),
            space,
            share,
        })
    }

    #[test]
    fn a_comment_without_a_whole_mark_has_none() {
        let mark = ShareMark { pool: PoolId([1; 16]), space: 2, share: 3 };
        let text = mark.to_string();
        assert_eq!(ShareMark::at_end_of(&format!("docs {text}")), Some(mark));
        for comment in [
            String::new(),
            "[dolmen ]".to_owned(),
            format!("{text} by hand"),
            text.replace("/2/", "/02/"),
            text.replace("/2/", "/+2/"),
            text.replace("/3]", "/3/4]"),
            text.replace("dolmen", "Dolmen"),
            text.replace('-', ""),
        ] {
            assert_eq!(ShareMark::at_end_of(&comment), None, "{comment}");
        }
    }

    proptest! {
        #[test]
        fn a_mark_at_the_end_of_any_text_reads_back(mark in any_mark(), text in ".*") {
            prop_assert_eq!(ShareMark::at_end_of(&format!("{text}{mark}")), Some(mark));
            prop_assert_eq!(ShareMark::try_from(String::from(mark)), Ok(mark));
            let other = ShareMark::try_from(text);
            prop_assert!(other.is_err() || other == Ok(mark), "{other:?}");
        }
    }
}
