//! Handles of the spaces of a pool: what the daemon and its tools ask of them, by subject.

use crate::policy::pool_spaces::PoolSpaces;

/// Changes of spaces: makes, resizes, renames and deletes them, and reserves room for them.
#[derive(Clone, Copy)]
pub struct Changes<'a> {
    pub(crate) spaces: &'a PoolSpaces,
}

impl<'a> Changes<'a> {
    /// Returns the handle for the spaces of a pool.
    pub(crate) fn of(spaces: &'a PoolSpaces) -> Self {
        Self { spaces }
    }
}

/// Conversions of spaces to other layouts.
#[derive(Clone, Copy)]
pub struct Conversions<'a> {
    pub(crate) spaces: &'a PoolSpaces,
}

impl<'a> Conversions<'a> {
    /// Returns the handle for the spaces of a pool.
    pub(crate) fn of(spaces: &'a PoolSpaces) -> Self {
        Self { spaces }
    }
}

/// Moves of slabs: removal, replacement, emptying of disks, and rebalance.
#[derive(Clone, Copy)]
pub struct Moves<'a> {
    pub(crate) spaces: &'a PoolSpaces,
}

impl<'a> Moves<'a> {
    /// Returns the handle for the spaces of a pool.
    pub(crate) fn of(spaces: &'a PoolSpaces) -> Self {
        Self { spaces }
    }
}

/// Write caches of the spaces: makes, resizes, destages and deletes them.
#[derive(Clone, Copy)]
pub struct Caches<'a> {
    pub(crate) spaces: &'a PoolSpaces,
}

impl<'a> Caches<'a> {
    /// Returns the handle for the spaces of a pool.
    pub(crate) fn of(spaces: &'a PoolSpaces) -> Self {
        Self { spaces }
    }
}

/// Deleted spaces: keeps, restores and purges them.
#[derive(Clone, Copy)]
pub struct Trash<'a> {
    pub(crate) spaces: &'a PoolSpaces,
}

impl<'a> Trash<'a> {
    /// Returns the handle for the spaces of a pool.
    pub(crate) fn of(spaces: &'a PoolSpaces) -> Self {
        Self { spaces }
    }
}

/// Scrub and verification of the spaces.
#[derive(Clone, Copy)]
pub struct Scrubs<'a> {
    pub(crate) spaces: &'a PoolSpaces,
}

impl<'a> Scrubs<'a> {
    /// Returns the handle for the spaces of a pool.
    pub(crate) fn of(spaces: &'a PoolSpaces) -> Self {
        Self { spaces }
    }
}

/// Member disks as the rows see them: adds them, brings them up to date, and declares rows lost.
#[derive(Clone, Copy)]
pub struct Members<'a> {
    pub(crate) spaces: &'a PoolSpaces,
}

impl<'a> Members<'a> {
    /// Returns the handle for the spaces of a pool.
    pub(crate) fn of(spaces: &'a PoolSpaces) -> Self {
        Self { spaces }
    }
}
