//! What kind of load is laid on a target.

use dolmen_units::{Bytes, SECTOR_BYTES};

/// Outstanding I/Os of one worker, at most.
pub const OUTSTANDING_MAX: u32 = 4096;
/// Workers on one target, at most.
pub const WORKERS_MAX: u32 = 256;
/// The largest I/O.
pub const BLOCK_BYTES_MAX: u64 = 64 << 20;
/// Bytes of all I/Os that are under way at one time, at most: the generator keeps memory for each.
pub const UNDER_WAY_BYTES_MAX: u64 = 4 << 30;
/// Loads of one profile, at most.
pub const LOADS_MAX: usize = 128;

/// Where the next I/O goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Anywhere, each block as likely as any other.
    Random,
    /// Behind the last one.
    Sequential,
}

/// One load of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Load {
    /// I/Os that each worker keeps under way.
    pub outstanding: u32,
    /// The length of the file that is read or written once, where that is what is varied.
    pub file: Option<Bytes>,
}

/// What is varied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loads {
    /// I/Os that each worker keeps under way, for a time.
    Outstanding(Vec<u32>),
    /// Lengths of a file that is read or written once from its beginning to its end.
    Files {
        /// The lengths.
        sizes: Vec<Bytes>,
        /// I/Os under way.
        outstanding: u32,
    },
}

/// A kind of load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// What it is called on the command line and in documents.
    pub name: String,
    /// What it stands for, for people.
    pub title: String,
    /// The size of each I/O.
    pub block: Bytes,
    /// Where I/Os go.
    pub pattern: Pattern,
    /// The share of reads.
    pub reads_percent: u8,
    /// Those who make I/Os at the same time, each on a part of the target of its own.
    pub workers: u32,
    /// What is varied.
    pub loads: Loads,
}

/// A profile that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// No name, or one that cannot be typed.
    #[error("{found:?} is no name of a profile; use up to 40 letters, digits, '-' and '_'")]
    Name {
        /// What was given.
        found: String,
    },
    /// An I/O that no device takes.
    #[error("a block of {found}; it is a multiple of 512 bytes, at most {}", Bytes(BLOCK_BYTES_MAX))]
    Block {
        /// What was given.
        found: Bytes,
    },
    /// More than everything.
    #[error("{found} % reads; it is 0 to 100")]
    Reads {
        /// What was given.
        found: u64,
    },
    /// Nobody, or too many.
    #[error("{found} workers; it is 1 to {WORKERS_MAX}")]
    Workers {
        /// What was given.
        found: u64,
    },
    /// Nothing under way, or too much.
    #[error("{found} outstanding I/Os; it is 1 to {OUTSTANDING_MAX}")]
    Outstanding {
        /// What was given.
        found: u64,
    },
    /// More than the memory of the generator should be asked for.
    #[error("I/Os of {found} in all under way at one time; it is at most {}", Bytes(UNDER_WAY_BYTES_MAX))]
    UnderWay {
        /// What was given.
        found: Bytes,
    },
    /// A file that one block does not fit into.
    #[error("a file of {found} holds no block of {block}")]
    File {
        /// What was given.
        found: Bytes,
        /// The block.
        block: Bytes,
    },
    /// None, or too many of them.
    #[error("{found} loads; a profile has 1 to {LOADS_MAX}, each another")]
    Loads {
        /// How many.
        found: usize,
    },
    /// The same one twice.
    #[error("the load {found} is listed twice")]
    Twice {
        /// Which.
        found: String,
    },
    /// A file is read or written from one end to the other.
    #[error("files are sequential, either all reads or all writes, by one worker")]
    FileMixed,
}

impl Profile {
    /// Whether it changes what it runs on.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.reads_percent < 100
    }

    /// Its loads, in order.
    #[must_use]
    pub fn loads(&self) -> Vec<Load> {
        match &self.loads {
            Loads::Outstanding(list) => {
                list.iter().map(|outstanding| Load { outstanding: *outstanding, file: None }).collect()
            }
            Loads::Files { sizes, outstanding } => {
                let load = |size: &Bytes| Load { outstanding: *outstanding, file: Some(*size) };
                sizes.iter().map(load).collect()
            }
        }
    }

    /// The least room that it needs on a target.
    #[must_use]
    pub fn room(&self) -> Bytes {
        match &self.loads {
            Loads::Outstanding(_) => Bytes(self.block.0.saturating_mul(u64::from(self.workers))),
            Loads::Files { sizes, .. } => sizes.iter().copied().max().unwrap_or(self.block),
        }
    }

    /// What is done, in few words, such as `random, 67 % reads, 8 KiB`.
    #[must_use]
    pub fn summary(&self) -> String {
        let pattern = match self.pattern {
            Pattern::Random => "random",
            Pattern::Sequential => "sequential",
        };
        let what = match self.reads_percent {
            100 => "reads".to_owned(),
            0 => "writes".to_owned(),
            reads => format!("{reads} % reads"),
        };
        let workers = if self.workers == 1 { String::new() } else { format!(", {} workers", self.workers) };
        let files = match &self.loads {
            Loads::Outstanding(_) => String::new(),
            Loads::Files { outstanding, .. } => format!(", {outstanding} outstanding, whole files"),
        };
        format!("{pattern}, {what}, {}{workers}{files}", self.block)
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// When it does not, with the first thing that is wrong.
    pub fn check(&self) -> Result<(), ProfileError> {
        check_name(&self.name)?;
        if self.block == Bytes::ZERO
            || self.block.0 > BLOCK_BYTES_MAX
            || !self.block.0.is_multiple_of(SECTOR_BYTES)
        {
            return Err(ProfileError::Block { found: self.block });
        }
        if self.reads_percent > 100 {
            return Err(ProfileError::Reads { found: self.reads_percent.into() });
        }
        if !(1..=WORKERS_MAX).contains(&self.workers) {
            return Err(ProfileError::Workers { found: self.workers.into() });
        }
        self.check_loads()
    }

    // No product overflows: 4096 I/Os of 64 MiB by 256 workers are 2^46 bytes.
    fn check_loads(&self) -> Result<(), ProfileError> {
        let loads = self.loads();
        if !(1..=LOADS_MAX).contains(&loads.len()) {
            return Err(ProfileError::Loads { found: loads.len() });
        }
        for (at, load) in loads.iter().enumerate() {
            if !(1..=OUTSTANDING_MAX).contains(&load.outstanding) {
                return Err(ProfileError::Outstanding { found: load.outstanding.into() });
            }
            let found = u64::from(load.outstanding) * u64::from(self.workers) * self.block.0;
            if found > UNDER_WAY_BYTES_MAX {
                return Err(ProfileError::UnderWay { found: Bytes(found) });
            }
            if let Some(found) = load.file.filter(|file| *file < self.block) {
                return Err(ProfileError::File { found, block: self.block });
            }
            if loads.iter().take(at).any(|earlier| earlier == load) {
                return Err(ProfileError::Twice { found: load.to_string() });
            }
        }
        let is_whole = matches!(self.loads, Loads::Files { .. });
        let is_one_way = matches!(self.reads_percent, 0 | 100);
        if is_whole && !(is_one_way && self.pattern == Pattern::Sequential && self.workers == 1) {
            return Err(ProfileError::FileMixed);
        }
        Ok(())
    }
}

impl std::fmt::Display for Load {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.file {
            Some(file) => write!(f, "{file}"),
            None => write!(f, "{}", self.outstanding),
        }
    }
}

fn check_name(name: &str) -> Result<(), ProfileError> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if (1..=40).contains(&name.len()) && name.chars().all(is_fine) {
        return Ok(());
    }
    Err(ProfileError::Name { found: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Profile {
        Profile {
            name: "mail".to_owned(),
            title: "Mail".to_owned(),
            block: Bytes(8192),
            pattern: Pattern::Random,
            reads_percent: 60,
            workers: 2,
            loads: Loads::Outstanding(vec![1, 8]),
        }
    }

    /// Each mistake is named; nothing that is wrong reaches a target.
    #[test]
    fn nonsense_is_refused() {
        assert_eq!(sample().check(), Ok(()));
        assert_eq!(sample().summary(), "random, 60 % reads, 8 KiB, 2 workers");
        let files = |sizes: Vec<Bytes>| Loads::Files { sizes, outstanding: 8 };
        let wrong: [(Profile, &str); 11] = [
            (Profile { block: Bytes::mib(64), workers: 64, ..sample() }, "I/Os of 32 GiB in all under way"),
            (Profile { name: "a b".to_owned(), ..sample() }, "no name of a profile"),
            (Profile { block: Bytes::ZERO, ..sample() }, "a block of 0 B"),
            (Profile { block: Bytes(1000), ..sample() }, "multiple of 512"),
            (Profile { reads_percent: 101, ..sample() }, "101 % reads"),
            (Profile { workers: 0, ..sample() }, "0 workers"),
            (Profile { loads: Loads::Outstanding(vec![]), ..sample() }, "0 loads"),
            (Profile { loads: Loads::Outstanding(vec![0]), ..sample() }, "0 outstanding"),
            (Profile { loads: Loads::Outstanding(vec![8, 8]), ..sample() }, "8 is listed twice"),
            (Profile { loads: files(vec![Bytes(512)]), ..sample() }, "holds no block"),
            (Profile { loads: files(vec![Bytes::mib(1)]), ..sample() }, "files are sequential"),
        ];
        for (profile, needle) in wrong {
            let error = profile.check().unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
    }
}
