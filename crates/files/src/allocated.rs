//! What lies in a range of addresses of btrfs, whoever owns it (`BTRFS_IOC_TREE_SEARCH_V2`).

use std::fs::File;
use std::ops::Range;

use crate::FilesError;
use crate::call::{Request, call};
use crate::tree_search::{Key, keys};

const FILE_SYSTEM: Request = Request::fills(0x94, 31, 1024);
/// Tree of extents, and items of an extent and of a block of metadata.
const EXTENT_TREE: u64 = 2;
const EXTENT_ITEM: u32 = 168;
const METADATA_ITEM: u32 = 169;

/// Returns the bytes of a block of metadata of the btrfs that `file` is on.
///
/// # Errors
/// [`FilesError`]; other file systems do not have the call.
pub fn node_bytes(file: &File) -> Result<u64, FilesError> {
    let mut raw = [0u64; 128];
    call(file, FILE_SYSTEM, &mut raw).map_err(FilesError::of("show its sizes"))?;
    let [_, _, _, _, sizes, ..] = raw;
    Ok(sizes & u64::from(u32::MAX))
}

/// Shows the extents that begin in a range of addresses, in their order. What is in memory and not written is not shown.
///
/// # Errors
/// [`FilesError`]; it takes the super-user.
pub fn allocated(
    file: &File,
    range: Range<u64>,
    node_bytes: u64,
    mut each: impl FnMut(Range<u64>),
) -> Result<(), FilesError> {
    let Some(last) = range.end.checked_sub(1).filter(|last| *last >= range.start) else { return Ok(()) };
    keys(file, EXTENT_TREE, range.start..=last, EXTENT_ITEM..=METADATA_ITEM, |key| {
        if let Some(length) = length_of(key, node_bytes) {
            each(key.object..key.object.saturating_add(length));
        }
    })
    .map_err(FilesError::of("show its extents"))
}

/// Returns the bytes of an extent; none if the item is another one.
fn length_of(key: Key, node_bytes: u64) -> Option<u64> {
    match key.kind {
        EXTENT_ITEM => Some(key.offset),
        METADATA_ITEM => Some(node_bytes),
        _ => None,
    }
}
