//! Policy of a run: which files take part, and how much memory and how large calls it may use.

/// Files that take no part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exclusion {
    /// A folder, from the root of the volume on, with all below it.
    Folder(String),
    /// A pattern of the last part of a path: `*` is any number of bytes, `?` is one.
    Name(String),
}

impl Exclusion {
    /// Returns `true` if a path from the root of the volume on is excluded.
    #[must_use]
    pub fn covers(&self, path: &[u8]) -> bool {
        match self {
            Self::Folder(folder) => {
                let folder = folder.trim_matches('/').as_bytes();
                path.strip_prefix(folder).is_some_and(|rest| folder.is_empty() || rest.first() == Some(&b'/'))
            }
            Self::Name(pattern) => {
                let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
                matches_pattern(pattern.as_bytes(), name)
            }
        }
    }
}

/// Compares with one place to return to: a later `*` makes an earlier one needless, so the time is bounded by the product.
fn matches_pattern(pattern: &[u8], name: &[u8]) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    let mut back: Option<(&[u8], &[u8])> = None;
    loop {
        match (pattern.split_first(), name.split_first()) {
            (Some((b'*', rest)), _) => {
                back = Some((rest, name));
                pattern = rest;
                continue;
            }
            (Some((wanted, rest)), Some((found, following))) if *wanted == b'?' || wanted == found => {
                (pattern, name) = (rest, following);
                continue;
            }
            (None, None) => return true,
            _ => {}
        }
        match back.and_then(|(after, from)| Some((after, from.split_first()?.1))) {
            Some((after, from)) => {
                (pattern, name) = (after, from);
                back = Some((after, from));
            }
            None => return false,
        }
    }
}

/// Memory that a run needs at least.
pub const MEMORY_MIN: usize = 1 << 20;
/// Bytes of one request to share where clients are busy.
pub const BACKGROUND_CALL_BYTES: u64 = 1 << 20;
/// Bytes of one request to share where throughput counts.
pub const THROUGHPUT_CALL_BYTES: u64 = 16 << 20;

/// Settings of a run of deduplication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Present time, in nanoseconds since 1970.
    pub now_ns: i64,
    /// Age of the content that a file must have.
    pub age_min_ns: i64,
    /// Size that a file must have.
    pub size_min: u64,
    /// Files that take no part.
    pub excluded: Vec<Exclusion>,
    /// Memory for buffers of sorts and merges; raised to [`MEMORY_MIN`].
    pub memory_bytes: usize,
    /// Bytes of one request to share; at most [`THROUGHPUT_CALL_BYTES`].
    pub call_bytes: u64,
}

impl Policy {
    /// Returns the settings for the background at a time: files of three days and 32 KiB, 64 MiB of memory.
    #[must_use]
    pub const fn background(now_ns: i64) -> Self {
        Self {
            now_ns,
            age_min_ns: 3 * 86_400 * 1_000_000_000,
            size_min: 32 << 10,
            excluded: Vec::new(),
            memory_bytes: 64 << 20,
            call_bytes: BACKGROUND_CALL_BYTES,
        }
    }

    pub(crate) fn call_bytes(&self) -> u64 {
        self.call_bytes.clamp(64 << 10, THROUGHPUT_CALL_BYTES)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.memory_bytes.max(MEMORY_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: patterns with stars and marks meet names; folders meet paths that begin like them. Expected: whole parts match.
    #[test]
    fn exclusions_match_whole_names_and_whole_folders() {
        let name = |pattern: &str, path: &str| Exclusion::Name(pattern.into()).covers(path.as_bytes());
        assert!(name("*.tmp", "a/b.tmp") && name("*", "x") && name("a?c", "abc") && name("*a*b", "xaybab"));
        assert!(!name("*.tmp", "a.tmp/b") && !name("a?c", "ac") && !name("", "x") && !name("*a*b", "xaybac"));
        let folder = |folder: &str, path: &str| Exclusion::Folder(folder.into()).covers(path.as_bytes());
        assert!(folder("/a/b/", "a/b/c") && folder("a", "a/b/c") && folder("/", "x"));
        assert!(!folder("a/b", "a/bc/d") && !folder("a/b", "x/a/b/c"));
    }
}
