//! A finding: one breach of a rule, said so that the reader knows where it is and what to do.

use std::fmt;

/// One breach of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    /// The file, relative to the root of the checkout.
    pub path: String,
    /// The line, from 1; 0 where the file as a whole is meant.
    pub line: usize,
    /// What was found, against what the rule expects.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

impl Finding {
    /// A finding at a line of a file.
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Line 0 would send an editor nowhere; the first line stands for the whole file.
        write!(f, "{}:{}: {}; {}", self.path, self.line.max(1), self.what, self.advice)
    }
}
