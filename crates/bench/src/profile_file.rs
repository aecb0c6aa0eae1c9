//! Profiles that people bring along, in a file. Each mistake is named with its line.
//!
//! ```toml
//! [[profile]]
//! name = "mail"
//! title = "Mail store"
//! block = "8K"
//! pattern = "random"
//! reads = 60
//! workers = 2
//! outstanding = [1, 8, 64]
//! ```
//! `files = ["128M", "1G"]` in the place of `outstanding` writes or reads whole files.

use std::ops::Range;

use dolmen_units::{Bytes, ParseBytesError};
use serde::Deserialize;
use toml::Spanned;

use crate::profile::{Loads, Pattern, Profile, ProfileError};

/// Profiles in one file, at most.
const PROFILES_MAX: usize = 64;
/// I/Os under way where a profile of whole files does not say.
const FILES_OUTSTANDING: u32 = 8;

/// A file that lists no profiles that can be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {fault}")]
pub struct FileError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub fault: FileFault,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileFault {
    /// It does not follow the form.
    #[error("{what}")]
    Form {
        /// What the reader of the form says.
        what: String,
    },
    /// No profile in it.
    #[error("no profile; each begins with [[profile]]")]
    Empty,
    /// Too many of them.
    #[error("{found} profiles; a file has at most {PROFILES_MAX}")]
    TooMany {
        /// How many.
        found: usize,
    },
    /// A size that is none.
    #[error(transparent)]
    Size(#[from] ParseBytesError),
    /// A pattern that is none.
    #[error("the pattern {found:?}; it is random or sequential")]
    Pattern {
        /// What was given.
        found: String,
    },
    /// Both ways to vary the load, or none.
    #[error("profile {name:?} has {found}; it has either outstanding = [1, 8] or files = [\"128M\"]")]
    Loads {
        /// Of which profile.
        name: String,
        /// What was given.
        found: &'static str,
    },
    /// The name of another one.
    #[error("the name {found:?} is taken by another profile of this file")]
    Twice {
        /// The name.
        found: String,
    },
    /// It makes no sense.
    #[error("profile {name:?}: {fault}")]
    Nonsense {
        /// Which.
        name: String,
        /// Why.
        fault: ProfileError,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    profile: Vec<Spanned<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Spanned<String>,
    title: Option<String>,
    block: Spanned<String>,
    pattern: Spanned<String>,
    reads: Spanned<u64>,
    workers: Option<Spanned<u64>>,
    outstanding: Option<Spanned<Vec<u64>>>,
    files: Option<Spanned<Vec<String>>>,
}

/// Reads the profiles in the text of a file.
///
/// # Errors
/// At the first mistake, with its line.
pub fn read_profiles(file: &str, text: &str) -> Result<Vec<Profile>, FileError> {
    let fail =
        |at: usize, fault: FileFault| FileError { file: file.to_owned(), line: line_at(text, at), fault };
    let read: File = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        fail(at, FileFault::Form { what: error.message().replace('\n', " ") })
    })?;
    if read.profile.is_empty() {
        return Err(fail(0, FileFault::Empty));
    }
    if read.profile.len() > PROFILES_MAX {
        return Err(fail(0, FileFault::TooMany { found: read.profile.len() }));
    }
    let mut profiles: Vec<Profile> = Vec::new();
    for entry in read.profile {
        let whole = entry.span();
        let profile = profile_of(entry.into_inner(), &whole).map_err(|(at, fault)| fail(at, fault))?;
        if profiles.iter().any(|other| other.name == profile.name) {
            return Err(fail(whole.start, FileFault::Twice { found: profile.name }));
        }
        profiles.push(profile);
    }
    Ok(profiles)
}

fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

type Fault = (usize, FileFault);

fn profile_of(entry: Entry, whole: &Range<usize>) -> Result<Profile, Fault> {
    let name = entry.name.get_ref().clone();
    let pattern = match entry.pattern.get_ref().as_str() {
        "random" => Pattern::Random,
        "sequential" => Pattern::Sequential,
        found => return Err((entry.pattern.span().start, FileFault::Pattern { found: found.to_owned() })),
    };
    let nonsense = |at: usize, fault| (at, FileFault::Nonsense { name: name.clone(), fault });
    let (reads_at, reads) = (entry.reads.span().start, *entry.reads.get_ref());
    let reads_percent =
        u8::try_from(reads).map_err(|_| nonsense(reads_at, ProfileError::Reads { found: reads }))?;
    let workers = match &entry.workers {
        None => 1,
        Some(found) => u32::try_from(*found.get_ref())
            .map_err(|_| nonsense(found.span().start, ProfileError::Workers { found: *found.get_ref() }))?,
    };
    let profile = Profile {
        title: entry.title.clone().unwrap_or_else(|| name.clone()),
        block: size(entry.block.get_ref(), entry.block.span().start)?,
        pattern,
        reads_percent,
        workers,
        loads: loads_of(&entry, whole)?,
        name: name.clone(),
    };
    profile.check().map_err(|fault| nonsense(place_of(&entry, whole, &fault), fault))?;
    Ok(profile)
}

fn size(text: &str, at: usize) -> Result<Bytes, Fault> {
    text.parse().map_err(|error: ParseBytesError| (at, error.into()))
}

fn loads_of(entry: &Entry, whole: &Range<usize>) -> Result<Loads, Fault> {
    let either = |found| (whole.start, FileFault::Loads { name: entry.name.get_ref().clone(), found });
    match (&entry.outstanding, &entry.files) {
        (Some(list), None) => {
            Ok(Loads::Outstanding(list.get_ref().iter().map(|one| counted(*one)).collect()))
        }
        (None, Some(files)) => {
            let at = files.span().start;
            let sizes: Result<Vec<Bytes>, Fault> =
                files.get_ref().iter().map(|text| size(text, at)).collect();
            Ok(Loads::Files { sizes: sizes?, outstanding: FILES_OUTSTANDING })
        }
        (Some(_), Some(_)) => Err(either("both outstanding and files")),
        (None, None) => Err(either("neither outstanding nor files")),
    }
}

/// Numbers beyond all bounds are kept beyond them, for the check to name.
fn counted(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Where the field stands that a fault is about.
fn place_of(entry: &Entry, whole: &Range<usize>, fault: &ProfileError) -> usize {
    let loads = || {
        let outstanding = entry.outstanding.as_ref().map(|list| list.span().start);
        outstanding.or_else(|| entry.files.as_ref().map(|list| list.span().start)).unwrap_or(whole.start)
    };
    match fault {
        ProfileError::Name { .. } => entry.name.span().start,
        ProfileError::Block { .. } => entry.block.span().start,
        ProfileError::Reads { .. } => entry.reads.span().start,
        ProfileError::Workers { .. } => {
            entry.workers.as_ref().map_or(whole.start, |workers| workers.span().start)
        }
        ProfileError::Outstanding { .. }
        | ProfileError::UnderWay { .. }
        | ProfileError::File { .. }
        | ProfileError::Loads { .. }
        | ProfileError::Twice { .. }
        | ProfileError::FileMixed => loads(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
# what our mail server does
[[profile]]
name = \"mail\"
title = \"Mail store\"
block = \"8K\"
pattern = \"random\"
reads = 60
workers = 2
outstanding = [1, 8, 64]

[[profile]]
name = \"backup\"
block = \"1M\"
pattern = \"sequential\"
reads = 0
files = [\"128M\", \"1G\"]
";

    #[test]
    fn profiles_are_read() {
        let profiles = read_profiles("own.toml", GOOD).unwrap();
        assert_eq!(profiles[0].summary(), "random, 60 % reads, 8 KiB, 2 workers");
        assert_eq!((profiles[0].title.as_str(), profiles[1].title.as_str()), ("Mail store", "backup"));
        assert_eq!(profiles[1].loads()[1].file, Some(Bytes::gib(1)));
    }

    /// Each mistake is named with file and line, so that nobody has to search for it.
    #[test]
    fn nonsense_is_named_with_its_line() {
        for (from, to, place, needle) in [
            ("reads = 60", "reads = 160", 7, "profile \"mail\": 160 % reads; it is 0 to 100"),
            ("reads = 60", "reads = 999", 7, "999 % reads"),
            ("reads = 60", "reads = -1", 7, "invalid value"),
            ("workers = 2", "workers = 0", 8, "0 workers"),
            ("[1, 8, 64]", "[1, 0]", 9, "0 outstanding I/Os"),
            ("[1, 8, 64]", "[99999999999]", 9, "4294967295 outstanding I/Os"),
            ("[1, 8, 64]", "[]", 9, "0 loads"),
            ("\"8K\"", "\"8Q\"", 5, "\"8Q\" is not a size"),
            ("\"8K\"", "\"100\"", 5, "multiple of 512"),
            ("\"random\"", "\"zigzag\"", 6, "the pattern \"zigzag\""),
            ("\"mail\"", "\"\"", 3, "no name of a profile"),
            ("\"backup\"", "\"mail\"", 11, "taken by another profile"),
            ("outstanding = [1, 8, 64]", "", 2, "neither outstanding nor files"),
            ("outstanding = [1, 8, 64]", "outstanding = [1]\nfiles = [\"1G\"]", 2, "both outstanding"),
            ("title = \"Mail store\"", "titel = \"Mail\"", 4, "unknown field `titel`"),
            ("[1, 8, 64]", "[1, 8", 9, ""),
        ] {
            let text = GOOD.replacen(from, to, 1);
            let error = read_profiles("own.toml", &text).unwrap_err();
            assert!(error.to_string().contains(needle), "{to}: {error}");
            if needle.is_empty() {
                assert!(error.line >= place, "{to}: {error}");
            } else {
                assert_eq!(error.line, place, "{to}: {error}");
            }
        }
        let empty = read_profiles("own.toml", "# nothing\n").unwrap_err();
        assert_eq!(empty.to_string(), "own.toml:1: no profile; each begins with [[profile]]");
    }
}
