//! Kinds of places where the daemon looks for disks.
//!
//! A kind is one file that implements [`DeviceProvider`], and one line of the table in `providers`. [`Places`] gathers what they
//! find, each disk once.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::path::{Path, PathBuf};

use dolmen_block_linux::{DeviceStacks, name_of, path_of};

use crate::disks::below::space_in;
use crate::state::{Identity, identity};

/// Entries of a folder that are looked at, at most.
pub(super) const ENTRIES_MAX: usize = 4096;

/// A kind of place where disks are.
///
/// A provider adds paths and opens nothing: whether something is a disk, and whose, is judged later. It never follows a path
/// that [`Places::is_on_space`] names, because reading there could wait for the thread that looks.
pub(super) trait DeviceProvider: Sync {
    /// Returns whether a path is a place of this kind. The first of the table that takes a path adds it.
    fn takes(&self, path: &Path, status: &Metadata) -> bool;

    /// Adds the disks of such a place.
    fn add(&self, path: &Path, status: &Metadata, places: &mut Places<'_>);

    /// Adds disks of the system that no setting names. Most kinds find none by themselves.
    fn scan(&self, _places: &mut Places<'_>) {}
}

/// Paths of disks that were found, each disk once.
pub(super) struct Places<'a> {
    stacks: &'a DeviceStacks<'a>,
    providers: &'static [&'static dyn DeviceProvider],
    seen: BTreeSet<Identity>,
    found: Vec<PathBuf>,
}

impl<'a> Places<'a> {
    pub(super) fn new(
        stacks: &'a DeviceStacks<'a>,
        providers: &'static [&'static dyn DeviceProvider],
    ) -> Self {
        Self { stacks, providers, seen: BTreeSet::new(), found: Vec::new() }
    }

    /// Whether a path is, or lies on, an attached space: reading it would wait for this very thread, or for a daemon that
    /// may be gone.
    pub(super) fn is_on_space(&self, path: &Path) -> bool {
        space_in(self.stacks, path).is_some()
    }

    /// Adds what a path leads to, by the first kind that takes it.
    pub(super) fn add(&mut self, path: &Path) {
        if self.is_on_space(path) {
            tracing::debug!(path = %path.display(), "lies on a space; not looked at");
            return;
        }
        let path = &*path_of(path);
        let Ok(status) = fs::metadata(path) else { return };
        if let Some(provider) = self.providers.iter().find(|provider| provider.takes(path, &status)) {
            provider.add(path, &status, self);
        }
    }

    /// Adds disks of the system that no setting names.
    pub(super) fn scan(&mut self) {
        for provider in self.providers {
            provider.scan(self);
        }
    }

    /// Notes a disk, unless it is there by another path.
    pub(super) fn note(&mut self, path: &Path) {
        let (Some(identity), Ok(path)) = (identity(path), fs::canonicalize(path)) else { return };
        if self.seen.insert(identity) {
            // Names are text; what opens a device knows what they stand for.
            self.found.push(PathBuf::from(name_of(&path)));
        }
    }

    /// Returns what was found.
    pub(super) fn into_found(self) -> Vec<PathBuf> {
        self.found
    }
}
