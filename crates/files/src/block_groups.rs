//! Where the block groups of btrfs lie on its devices.
//!
//! Maps of extents on btrfs give addresses of its own. A block group is a range of these, and one or more ranges of devices.

use std::fs::File;

use crate::FilesError;
use crate::tree_search::{Items, items, u64_at};

/// Tree, object and item of the mapping of addresses.
const MAPPING_TREE: u64 = 3;
const MAPPING_OBJECT: u64 = 256;
const MAPPING_ITEM: u32 = 228;
/// Bytes of a mapping before its places, and of a place.
const MAPPING_BYTES: usize = 48;
const PLACE_BYTES: usize = 32;

const DATA: u64 = 1;
const METADATA: u64 = 1 << 2;
/// Profiles that divide a group among devices: RAID 0, 10, 5 and 6.
const DIVIDED: u64 = 1 << 3 | 1 << 6 | 1 << 7 | 1 << 8;

/// A block group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockGroup {
    /// First address of btrfs.
    pub logical: u64,
    /// Bytes.
    pub length: u64,
    /// Whether it holds content of files; else metadata.
    pub is_data: bool,
    /// Whether it holds both.
    pub is_mixed: bool,
    /// Whether each place holds all of it, byte for byte.
    pub is_whole: bool,
    /// Number of the device and first byte there, for each copy.
    pub places: Vec<(u64, u64)>,
}

/// Appends the block groups of the btrfs that `file` is on, in the order of their addresses.
///
/// # Errors
/// [`FilesError`]; other file systems do not have the call, and it takes the super-user.
pub fn block_groups(file: &File, into: &mut Vec<BlockGroup>) -> Result<(), FilesError> {
    let mappings =
        Items { tree: MAPPING_TREE, object: MAPPING_OBJECT, kind: MAPPING_ITEM, offsets: 0..=u64::MAX };
    items(file, mappings, |logical, item| into.extend(group(logical, item)))
        .map_err(FilesError::of("show its block groups"))
}

/// Reads a mapping; one that is too short for its places is left out.
fn group(logical: u64, item: &[u8]) -> Option<BlockGroup> {
    let kind = u64_at(item, 24)?;
    let count = usize::from(u16::from_le_bytes(*item.get(44..)?.first_chunk()?));
    let place = |at: usize| {
        let place = item.get(MAPPING_BYTES + at * PLACE_BYTES..)?;
        Some((u64_at(place, 0)?, u64_at(place, 8)?))
    };
    Some(BlockGroup {
        logical,
        length: u64_at(item, 0)?,
        is_data: kind & DATA != 0,
        is_mixed: kind & (DATA | METADATA) == DATA | METADATA,
        is_whole: kind & DIVIDED == 0,
        places: (0..count).map(place).collect::<Option<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_that_is_too_short_is_left_out() {
        let mut item = vec![0; MAPPING_BYTES + 2 * PLACE_BYTES];
        item[0] = 9;
        item[24] = 1 | 1 << 5;
        item[44] = 2;
        item[MAPPING_BYTES] = 1;
        item[MAPPING_BYTES + 8] = 7;
        let found = group(5, &item).unwrap();
        assert_eq!((found.logical, found.length, found.is_data, found.is_whole), (5, 9, true, true));
        assert_eq!(found.places, [(1, 7), (0, 0)]);
        assert!(!found.is_mixed);
        for length in 0..item.len() - 16 {
            assert_eq!(group(5, &item[..length]), None, "{length}");
        }
        item[24] |= 1 << 2;
        let found = group(5, &item).unwrap();
        assert!(found.is_data && found.is_mixed);
    }
}
