//! Disks that take part, and those that fail.

use dolmen_pool::Disk;

/// So many errors of reading make a disk one that is asked only where nobody else has what it has.
pub(crate) const FAILING_ERRORS: u64 = 10;

/// Whether a disk takes part. One that failed keeps its seat in a pool that stopped for it, and takes part no more.
pub(crate) fn is_here(disk: &Disk) -> bool {
    disk.is_present() && !disk.absence().has_failed()
}
