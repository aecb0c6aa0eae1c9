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
use toml::Spanned;
use toml::de::{DeTable, DeValue};

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
    #[error(
        "this is not written as TOML is ({what}); a line is [[profile]], a field such as reads = 60, or a comment behind #"
    )]
    Form {
        /// What the reader of the form says.
        what: String,
    },
    /// Something beside profiles.
    #[error(
        "{found:?} stands outside of every profile; a file has nothing but profiles, and each begins with [[profile]]"
    )]
    Outside {
        /// What was given.
        found: String,
    },
    /// A field that there is not.
    #[error(
        "there is no field {found:?}; a profile has name, title, block, pattern, reads, workers, and outstanding or files"
    )]
    Unknown {
        /// What was given.
        found: String,
    },
    /// A field that has to be there.
    #[error("the profile has no {field}; it needs name, block, pattern, reads, and outstanding or files")]
    Missing {
        /// Which.
        field: &'static str,
    },
    /// A field of another kind.
    #[error("{field} is {found}; it is {wanted}")]
    Kind {
        /// Which.
        field: String,
        /// What was given.
        found: String,
        /// What can be given.
        wanted: &'static str,
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

#[derive(Default)]
struct Entry {
    name: Option<Spanned<String>>,
    title: Option<Spanned<String>>,
    block: Option<Spanned<String>>,
    pattern: Option<Spanned<String>>,
    reads: Option<Spanned<u64>>,
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
    let read = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        fail(at, FileFault::Form { what: error.message().replace('\n', " ") })
    })?;
    let tables = tables_of(read.get_ref()).map_err(|(at, fault)| fail(at, fault))?;
    if tables.is_empty() {
        return Err(fail(0, FileFault::Empty));
    }
    if tables.len() > PROFILES_MAX {
        return Err(fail(0, FileFault::TooMany { found: tables.len() }));
    }
    let mut profiles: Vec<Profile> = Vec::new();
    for (whole, table) in tables {
        let profile = entry_of(table).and_then(|entry| profile_of(&entry, &whole));
        let profile = profile.map_err(|(at, fault)| fail(at, fault))?;
        if profiles.iter().any(|other| other.name == profile.name) {
            return Err(fail(whole.start, FileFault::Twice { found: profile.name }));
        }
        profiles.push(profile);
    }
    Ok(profiles)
}

/// The tables of the profiles, and where each stands.
fn tables_of<'a, 'i>(read: &'a DeTable<'i>) -> Result<Vec<(Range<usize>, &'a DeTable<'i>)>, Fault> {
    let mut tables = Vec::new();
    for (key, value) in read.iter() {
        let outside = || (key.span().start, FileFault::Outside { found: key.get_ref().to_string() });
        let DeValue::Array(array) = value.get_ref() else { return Err(outside()) };
        for one in array.iter() {
            match one.get_ref() {
                DeValue::Table(table) if key.get_ref() == "profile" => tables.push((one.span(), table)),
                _ => return Err(outside()),
            }
        }
    }
    Ok(tables)
}

fn entry_of(table: &DeTable<'_>) -> Result<Entry, Fault> {
    let mut entry = Entry::default();
    for (key, value) in table.iter() {
        let field = Field { name: key.get_ref(), value };
        match &**key.get_ref() {
            "name" => entry.name = Some(field.text("a name in quotes, such as \"mail\"")?),
            "title" => entry.title = Some(field.text("a text in quotes, such as \"Mail store\"")?),
            "block" => entry.block = Some(field.text("a size in quotes, such as \"8K\"")?),
            "pattern" => entry.pattern = Some(field.text("\"random\" or \"sequential\"")?),
            "reads" => {
                entry.reads = Some(field.number("a whole number, 0 to 100, of reads in a hundred I/Os")?)
            }
            "workers" => entry.workers = Some(field.number("a whole number, 1 or more")?),
            "outstanding" => {
                entry.outstanding = Some(field.numbers("a list of whole numbers, such as [1, 8, 64]")?)
            }
            "files" => {
                entry.files = Some(field.texts("a list of sizes in quotes, such as [\"128M\", \"1G\"]")?)
            }
            found => return Err((key.span().start, FileFault::Unknown { found: found.to_owned() })),
        }
    }
    Ok(entry)
}

/// A field of a profile, as it was written.
struct Field<'a, 'i> {
    name: &'a str,
    value: &'a Spanned<DeValue<'i>>,
}

impl Field<'_, '_> {
    fn text(&self, wanted: &'static str) -> Result<Spanned<String>, Fault> {
        let found = text_of(self.value).ok_or_else(|| self.fault(self.value, wanted))?;
        Ok(Spanned::new(self.value.span(), found))
    }

    fn number(&self, wanted: &'static str) -> Result<Spanned<u64>, Fault> {
        let found = number_of(self.value).ok_or_else(|| self.fault(self.value, wanted))?;
        Ok(Spanned::new(self.value.span(), found))
    }

    fn texts(&self, wanted: &'static str) -> Result<Spanned<Vec<String>>, Fault> {
        self.list(text_of, wanted)
    }

    fn numbers(&self, wanted: &'static str) -> Result<Spanned<Vec<u64>>, Fault> {
        self.list(number_of, wanted)
    }

    fn list<T>(
        &self,
        of: impl Fn(&Spanned<DeValue<'_>>) -> Option<T>,
        wanted: &'static str,
    ) -> Result<Spanned<Vec<T>>, Fault> {
        let DeValue::Array(array) = self.value.get_ref() else { return Err(self.fault(self.value, wanted)) };
        let found: Result<Vec<T>, Fault> =
            array.iter().map(|one| of(one).ok_or_else(|| self.fault(one, wanted))).collect();
        Ok(Spanned::new(self.value.span(), found?))
    }

    fn fault(&self, value: &Spanned<DeValue<'_>>, wanted: &'static str) -> Fault {
        let found = match value.get_ref() {
            DeValue::String(text) => format!("{text:?}"),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(word) => word.to_string(),
            DeValue::Datetime(date) => date.to_string(),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        };
        (value.span().start, FileFault::Kind { field: self.name.to_owned(), found, wanted })
    }
}

fn text_of(value: &Spanned<DeValue<'_>>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    }
}

fn number_of(value: &Spanned<DeValue<'_>>) -> Option<u64> {
    match value.get_ref() {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
        _ => None,
    }
}

fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

type Fault = (usize, FileFault);

/// A field that every profile has.
fn needed<'a, T>(
    field: &'a Option<Spanned<T>>,
    name: &'static str,
    whole: &Range<usize>,
) -> Result<&'a Spanned<T>, Fault> {
    field.as_ref().ok_or((whole.start, FileFault::Missing { field: name }))
}

fn profile_of(entry: &Entry, whole: &Range<usize>) -> Result<Profile, Fault> {
    let name = needed(&entry.name, "name", whole)?.get_ref().clone();
    let block = needed(&entry.block, "block", whole)?;
    let pattern = needed(&entry.pattern, "pattern", whole)?;
    let reads = needed(&entry.reads, "reads", whole)?;
    let pattern = match pattern.get_ref().as_str() {
        "random" => Pattern::Random,
        "sequential" => Pattern::Sequential,
        found => return Err((pattern.span().start, FileFault::Pattern { found: found.to_owned() })),
    };
    let nonsense = |at: usize, fault| (at, FileFault::Nonsense { name: name.clone(), fault });
    let (reads_at, reads) = (reads.span().start, *reads.get_ref());
    let reads_percent =
        u8::try_from(reads).map_err(|_| nonsense(reads_at, ProfileError::Reads { found: reads }))?;
    let workers = match &entry.workers {
        None => 1,
        Some(found) => u32::try_from(*found.get_ref())
            .map_err(|_| nonsense(found.span().start, ProfileError::Workers { found: *found.get_ref() }))?,
    };
    let profile = Profile {
        title: entry.title.as_ref().map_or_else(|| name.clone(), |title| title.get_ref().clone()),
        block: size(block.get_ref(), block.span().start)?,
        pattern,
        reads_percent,
        workers,
        loads: loads_of(entry, &name, whole)?,
        name: name.clone(),
    };
    profile.check().map_err(|fault| nonsense(place_of(entry, whole, &fault), fault))?;
    Ok(profile)
}

fn size(text: &str, at: usize) -> Result<Bytes, Fault> {
    text.parse().map_err(|error: ParseBytesError| (at, error.into()))
}

fn loads_of(entry: &Entry, name: &str, whole: &Range<usize>) -> Result<Loads, Fault> {
    let either = |found| (whole.start, FileFault::Loads { name: name.to_owned(), found });
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

fn start_of<T>(field: &Option<Spanned<T>>, whole: &Range<usize>) -> usize {
    field.as_ref().map_or(whole.start, |field| field.span().start)
}

/// Where the field stands that a fault is about.
fn place_of(entry: &Entry, whole: &Range<usize>, fault: &ProfileError) -> usize {
    let loads = || {
        let outstanding = entry.outstanding.as_ref().map(|list| list.span().start);
        outstanding.or_else(|| entry.files.as_ref().map(|list| list.span().start)).unwrap_or(whole.start)
    };
    match fault {
        ProfileError::Name { .. } => start_of(&entry.name, whole),
        ProfileError::Block { .. } => start_of(&entry.block, whole),
        ProfileError::Reads { .. } => start_of(&entry.reads, whole),
        ProfileError::Workers { .. } => start_of(&entry.workers, whole),
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
            ("reads = 60", "reads = -1", 7, "reads is -1; it is a whole number, 0 to 100"),
            ("reads = 60", "reads = 1.5", 7, "reads is 1.5; it is a whole number"),
            ("reads = 60", "reads = \"60\"", 7, "reads is \"60\"; it is a whole number"),
            ("reads = 60", "", 2, "the profile has no reads; it needs name, block"),
            ("[1, 8, 64]", "[1, true]", 9, "outstanding is true; it is a list of whole numbers, such as [1"),
            ("[1, 8, 64]", "8", 9, "outstanding is 8; it is a list of whole numbers"),
            ("\"8K\"", "8192", 5, "block is 8192; it is a size in quotes, such as \"8K\""),
            ("\"random\"", "[]", 6, "pattern is a list; it is \"random\" or \"sequential\""),
            ("[[profile]]", "size = 3\n[[profile]]", 2, "\"size\" stands outside of every profile"),
            ("[[profile]]", "[[profiles]]", 2, "\"profiles\" stands outside of every profile"),
            ("name = \"mail\"", "name = \"mail", 3, "this is not written as TOML is ("),
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
            (
                "title = \"Mail store\"",
                "titel = \"Mail\"",
                4,
                "there is no field \"titel\"; a profile has name, title, block",
            ),
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
