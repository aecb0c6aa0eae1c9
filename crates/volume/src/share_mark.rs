//! The mark by which Dolmen knows what it wrote into the configuration of a server.

use dolmen_units::PoolId;
use std::fmt;

/// Text in front of a mark.
const BEGIN: &str = "[dolmen ";

/// Identity of a share: pool, space and number of its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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
        }
    }
}
