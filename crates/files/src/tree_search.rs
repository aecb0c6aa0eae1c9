//! Items of a tree of btrfs (`BTRFS_IOC_TREE_SEARCH`).

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::call::{Request, call};

const SEARCH: Request = Request::both(0x94, 17, 4096);
const RESULT_BYTES: usize = 4096 - 104;
/// Bytes before each item of a result.
const HEADER_BYTES: usize = 32;

#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawSearch {
    tree: u64,
    object: [u64; 2],
    offset: [u64; 2],
    transaction: [u64; 2],
    kind: [u32; 2],
    count: u32,
    reserved_1: u32,
    reserved_2: [u64; 4],
    result: [u8; RESULT_BYTES],
}

const _: () = assert!(size_of::<RawSearch>() == 4096);

/// Items of one object and of one kind.
#[derive(Debug, Clone)]
pub(crate) struct Items {
    pub(crate) tree: u64,
    pub(crate) object: u64,
    pub(crate) kind: u32,
    pub(crate) offsets: RangeInclusive<u64>,
}

/// Shows the offset and the bytes of each item, in order.
pub(crate) fn items(file: &File, items: Items, mut each: impl FnMut(u64, &[u8])) -> io::Result<()> {
    let mut search = Box::new(RawSearch::new_zeroed());
    search.tree = items.tree;
    search.object = [items.object; 2];
    search.kind = [items.kind; 2];
    search.transaction = [0, u64::MAX];
    search.offset = [*items.offsets.start(), *items.offsets.end()];
    loop {
        search.count = u32::MAX;
        call(file, SEARCH, search.as_mut())?;
        let (mut rest, mut last) = (search.result.as_slice(), None);
        for _ in 0..search.count {
            let (Some(offset), Some(length)) = (u64_at(rest, 16), u32_at(rest, 28)) else { break };
            let end = HEADER_BYTES.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
            let Some(item) = rest.get(HEADER_BYTES..end) else { break };
            each(offset, item);
            last = Some(offset);
            rest = rest.get(end..).unwrap_or_default();
        }
        match last.and_then(|last| last.checked_add(1)).filter(|next| next <= items.offsets.end()) {
            Some(next) => search.offset = [next, *items.offsets.end()],
            None => return Ok(()),
        }
    }
}

/// Returns a number within an item.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
