//! What a load is laid on, and which caches stand in front of it.

use dolmen_units::Bytes;
use serde::Serialize;

/// How many times a cache the working set has to be before most I/Os miss it.
pub const WORKING_SET_FACTOR: u64 = 4;

/// How I/Os reach a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// Past the page cache of this machine (`O_DIRECT`).
    Direct,
    /// Through it.
    Buffered,
    /// As requests to an NBD server.
    Nbd,
}

/// Where `fio` finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetPath {
    /// A device or a file.
    File {
        /// Its absolute path.
        path: String,
    },
    /// An export.
    Nbd {
        /// Its address.
        uri: String,
    },
}

/// What is known of the size of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheSize {
    /// So much.
    Known(Bytes),
    /// Nothing.
    Unknown,
    /// The whole target is memory.
    Everything,
}

/// A cache that an I/O may be answered from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// What it is, such as `the page cache of this machine`.
    pub what: String,
    /// How large.
    pub size: CacheSize,
}

/// What a load is laid on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// As it was named.
    pub name: String,
    /// What it is, for people.
    pub what: String,
    /// Where `fio` finds it.
    pub path: TargetPath,
    /// How I/Os reach it.
    pub access: Path,
    /// The part that is used, from its beginning.
    pub working_set: Bytes,
    /// I/Os past the page cache are whole multiples of this.
    pub unit: Bytes,
    /// Caches in front of it.
    pub caches: Vec<Cache>,
    /// Whether all of that part is written once before it is measured.
    pub is_filled: bool,
}

impl Target {
    /// What is to be known of figures on it: what the working set says against each cache, and whether there is
    /// anything to read.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.caches.iter().map(|cache| self.note(cache)).collect();
        if !self.is_filled {
            notes.push("it is not written before it is measured: what was never written is read from nowhere, which looks fast".to_owned());
        }
        notes
    }

    /// Whether each known cache is small against the working set, and none is all of the target.
    #[must_use]
    pub fn outgrows_caches(&self) -> bool {
        self.caches.iter().all(|cache| match cache.size {
            CacheSize::Known(size) => self.outgrows(size),
            CacheSize::Unknown => true,
            CacheSize::Everything => false,
        })
    }

    fn outgrows(&self, cache: Bytes) -> bool {
        self.working_set.0 / WORKING_SET_FACTOR >= cache.0
    }

    fn note(&self, cache: &Cache) -> String {
        let (what, set) = (&cache.what, self.working_set);
        match cache.size {
            CacheSize::Known(size) if self.outgrows(size) => {
                format!("the working set of {set} is at least {WORKING_SET_FACTOR} times {what} ({size})")
            }
            CacheSize::Known(size) => format!(
                "the working set of {set} is less than {WORKING_SET_FACTOR} times {what} ({size}): figures may be those of the cache; --size {} would be enough",
                Bytes(size.0.saturating_mul(WORKING_SET_FACTOR)).0
            ),
            CacheSize::Unknown => format!(
                "{what} has a size that nobody tells: whether the working set of {set} is {WORKING_SET_FACTOR} times as large is not known"
            ),
            CacheSize::Everything => format!("{what}: figures are those of memory, whatever the working set"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(working_set: Bytes, size: CacheSize) -> Target {
        Target {
            name: "/x".to_owned(),
            what: "a file".to_owned(),
            path: TargetPath::File { path: "/x".to_owned() },
            access: Path::Buffered,
            working_set,
            unit: Bytes(512),
            caches: vec![Cache { what: "the page cache".to_owned(), size }],
            is_filled: true,
        }
    }

    /// A working set that fits a cache is never passed over in silence.
    #[test]
    fn the_working_set_is_held_against_each_cache() {
        for (set, size, outgrows, needle) in [
            (32, CacheSize::Known(Bytes::gib(8)), true, "is at least 4 times the page cache (8 GiB)"),
            (31, CacheSize::Known(Bytes::gib(8)), false, "--size 34359738368 would be enough"),
            (1, CacheSize::Unknown, true, "is not known"),
            (1, CacheSize::Everything, false, "figures are those of memory"),
        ] {
            let target = target(Bytes::gib(set), size);
            assert_eq!(target.outgrows_caches(), outgrows);
            assert_eq!(target.notes().len(), 1);
            assert!(target.notes()[0].contains(needle), "{:?}", target.notes());
        }
    }

    #[test]
    fn what_was_never_written_is_named() {
        let target = Target { is_filled: false, ..target(Bytes::gib(1), CacheSize::Unknown) };
        assert!(target.notes()[1].contains("read from nowhere"));
    }
}
