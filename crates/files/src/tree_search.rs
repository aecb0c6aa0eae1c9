//! Items of a tree of btrfs (`BTRFS_IOC_TREE_SEARCH`), and the keys of many (`BTRFS_IOC_TREE_SEARCH_V2`).

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::call::{Request, call};

const SEARCH: Request = Request::both(0x94, 17, 4096);
const RESULT_BYTES: usize = 4096 - 104;
const SEARCH_MANY: Request = Request::both(0x94, 17, 112);
/// Bytes of a result with many items: more than the largest block of metadata, so that each item fits.
const MANY_BYTES: usize = 128 << 10;
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

#[derive(Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct RawSearchMany {
    tree: u64,
    object: [u64; 2],
    offset: [u64; 2],
    transaction: [u64; 2],
    kind: [u32; 2],
    count: u32,
    reserved_1: u32,
    reserved_2: [u64; 4],
    result_bytes: u64,
    result: [u8; MANY_BYTES],
}

const _: () = assert!(size_of::<RawSearchMany>() == 112 + MANY_BYTES);

/// Largest kind of an item.
const KIND_MAX: u32 = 255;

/// Key of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) object: u64,
    pub(crate) kind: u32,
    pub(crate) offset: u64,
}

impl Key {
    fn of(header: &[u8]) -> Option<Self> {
        Some(Self { object: u64_at(header, 8)?, kind: u32_at(header, 24)?, offset: u64_at(header, 16)? })
    }

    /// Returns the lowest key behind this one. An object and a kind that nothing follows have none.
    fn next(self) -> Option<Self> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Self { offset, ..self });
        }
        if self.kind < KIND_MAX {
            return Some(Self { kind: self.kind + 1, offset: 0, ..self });
        }
        let object = self.object.checked_add(1)?;
        Some(Self { object, kind: 0, offset: 0 })
    }
}

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

/// Shows the key of each item of these objects and kinds, in order.
///
/// The kernel compares whole keys, so it also returns other kinds of the objects between the first and the last; they are left out.
pub(crate) fn keys(
    file: &File,
    tree: u64,
    objects: RangeInclusive<u64>,
    kinds: RangeInclusive<u32>,
    mut each: impl FnMut(Key),
) -> io::Result<()> {
    let mut search = Box::new(RawSearchMany::new_zeroed());
    let mut from = Some(Key { object: *objects.start(), kind: *kinds.start(), offset: 0 });
    while let Some(first) = from.filter(|first| objects.contains(&first.object)) {
        search.tree = tree;
        search.object = [first.object, *objects.end()];
        search.kind = [first.kind, *kinds.end()];
        search.offset = [first.offset, u64::MAX];
        search.transaction = [0, u64::MAX];
        search.count = u32::MAX;
        search.result_bytes = MANY_BYTES as u64;
        call(file, SEARCH_MANY, search.as_mut())?;
        let (mut rest, mut last) = (search.result.as_slice(), None);
        for _ in 0..search.count {
            let (Some(key), Some(length)) = (Key::of(rest), u32_at(rest, 28)) else { break };
            if kinds.contains(&key.kind) {
                each(key);
            }
            last = Some(key);
            let end = HEADER_BYTES.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
            rest = rest.get(end..).unwrap_or_default();
        }
        from = last.and_then(Key::next);
    }
    Ok(())
}

/// Returns a number within an item.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_each_other_as_the_kernel_compares_them() {
        let key = |object, kind, offset| Key { object, kind, offset };
        assert_eq!(key(5, 168, 7).next(), Some(key(5, 168, 8)));
        assert_eq!(key(5, 168, u64::MAX).next(), Some(key(5, 169, 0)));
        assert_eq!(key(5, KIND_MAX, u64::MAX).next(), Some(key(6, 0, 0)));
        assert_eq!(key(u64::MAX, KIND_MAX, u64::MAX).next(), None);
    }
}
