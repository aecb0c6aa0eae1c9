//! A page: verified when it is parsed, so that everything later may rely on its order and its bounds.
//!
//! A leaf is a table of offsets (16 bits each, from the start of the page), then the entries: a key, then its value up
//! to the next entry. An inner page is an array of children.

use dolmen_buffer::is_zeros;
use dolmen_checksum::crc64;
use dolmen_units::PoolId;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

use crate::error::Defect;
use crate::format::{
    BODY_BYTES, CHECKED_FROM, FORMAT_VERSION, HEADER_BYTES, KEY_BYTES, KIND_BITMAP, KIND_INNER, KIND_LEAF,
    PAGE_BYTES, PAGE_MAGIC, RawChild, RawPageHeader, RawPointer,
};
use crate::key::Key;

/// The longest value.
pub const VALUE_BYTES_MAX: usize = 3072;
/// What a leaf's entry takes beside its value.
pub(crate) const ENTRY_EXTRA_BYTES: usize = KEY_BYTES + size_of::<U16>();
/// What a child takes.
pub(crate) const CHILD_BYTES: usize = size_of::<RawChild>();
/// Levels of a tree, leaves included. Pages are at least a third full, so a tree of the largest area is far lower; the
/// limit bounds the walk over pages that somebody forged.
pub(crate) const LEVELS_MAX: usize = 8;

const _: () = assert!(PAGE_BYTES <= u16::MAX as usize, "an offset in a page fits 16 bits");
const _: () =
    assert!(4 * (VALUE_BYTES_MAX + ENTRY_EXTRA_BYTES) <= BODY_BYTES, "pages can be split near their middle");
const _: () = assert!(
    (BODY_BYTES / CHILD_BYTES / 3).pow(4) as u64 > crate::format::PAGES_MAX,
    "five levels and the leaves hold the largest area"
);

/// A page's name in its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub(crate) page: u64,
    pub(crate) sequence: u64,
    pub(crate) checksum: u64,
}

impl Pointer {
    pub(crate) fn from_raw(raw: &RawPointer) -> Self {
        Self { page: raw.page.get(), sequence: raw.sequence.get(), checksum: raw.checksum.get() }
    }

    pub(crate) fn to_raw(self) -> RawPointer {
        RawPointer { page: self.page.into(), sequence: self.sequence.into(), checksum: self.checksum.into() }
    }
}

/// A page's place in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Child {
    /// The first key below it.
    pub(crate) key: Key,
    pub(crate) at: Pointer,
}

impl Child {
    pub(crate) fn from_raw(raw: &RawChild) -> Self {
        Self { key: Key(raw.key), at: Pointer::from_raw(&raw.target) }
    }

    pub(crate) fn to_raw(self) -> RawChild {
        RawChild { key: self.key.0, target: self.at.to_raw() }
    }
}

/// What a page is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Part of the tree; level 0 are the leaves.
    Tree { level: u8 },
    /// Bits of used pages.
    Bitmap { index: u16 },
}

impl Shape {
    fn kind(self) -> u8 {
        match self {
            Self::Tree { level: 0 } => KIND_LEAF,
            Self::Tree { .. } => KIND_INNER,
            Self::Bitmap { .. } => KIND_BITMAP,
        }
    }

    fn level(self) -> u8 {
        match self {
            Self::Tree { level } => level,
            Self::Bitmap { .. } => 0,
        }
    }
}

/// What a page must be to count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expect {
    pub(crate) pool: PoolId,
    pub(crate) at: Pointer,
    pub(crate) shape: Shape,
    /// The first key, where the parent names one.
    pub(crate) key: Option<Key>,
}

/// A sound page.
#[derive(Debug)]
pub(crate) struct Page {
    bytes: Box<[u8]>,
    at: Pointer,
    shape: Shape,
    count: usize,
    used: usize,
}

/// The content of a page that has no number yet.
#[derive(Debug)]
pub(crate) struct UnplacedPage {
    bytes: Vec<u8>,
    shape: Shape,
    count: usize,
}

impl UnplacedPage {
    /// A leaf of ascending entries that fit.
    pub(crate) fn leaf<'a>(entries: impl Iterator<Item = (Key, &'a [u8])> + Clone) -> Self {
        let count = entries.clone().count();
        let mut bytes = vec![0; HEADER_BYTES];
        let mut offset = HEADER_BYTES + count * size_of::<U16>();
        for (_, value) in entries.clone() {
            bytes.extend(narrow(offset).as_bytes());
            offset += KEY_BYTES + value.len();
        }
        for (key, value) in entries {
            bytes.extend(key.0);
            bytes.extend(value);
        }
        Self { bytes, shape: Shape::Tree { level: 0 }, count }
    }

    /// An inner page of ascending children that fit.
    pub(crate) fn inner(level: u8, children: impl Iterator<Item = Child>) -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        children.for_each(|child| bytes.extend(child.to_raw().as_bytes()));
        let count = (bytes.len() - HEADER_BYTES) / CHILD_BYTES;
        Self { bytes, shape: Shape::Tree { level }, count }
    }

    /// A page of bits.
    pub(crate) fn bitmap(index: u16, bits: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend(bits);
        Self { bytes, shape: Shape::Bitmap { index }, count: usize::from(index) }
    }

    /// The page, with its place and its checksum.
    pub(crate) fn seal(mut self, pool: PoolId, page: u64, sequence: u64) -> Page {
        let used = self.bytes.len() - HEADER_BYTES;
        assert!(used <= BODY_BYTES, "a page's content fits it");
        self.bytes.resize(PAGE_BYTES, 0);
        let mut header = RawPageHeader {
            magic: PAGE_MAGIC,
            checksum: 0.into(),
            version: FORMAT_VERSION.into(),
            kind: self.shape.kind(),
            level: self.shape.level(),
            count: narrow(self.count),
            pool: pool.0,
            page: page.into(),
            sequence: sequence.into(),
            used: u32::try_from(used).unwrap_or(u32::MAX).into(),
            reserved: [0; 4],
        };
        let written = header.write_to_prefix(&mut self.bytes).is_ok();
        let checksum = crc64(self.bytes.get(CHECKED_FROM..).unwrap_or_default());
        header.checksum = checksum.into();
        let again = header.write_to_prefix(&mut self.bytes).is_ok();
        assert!(written && again, "a page has room for its header");
        let at = Pointer { page, sequence, checksum };
        Page { bytes: self.bytes.into_boxed_slice(), at, shape: self.shape, count: self.count, used }
    }
}

fn narrow(number: usize) -> U16 {
    let Ok(number) = u16::try_from(number) else { panic!("{number} is no offset or count of a page") };
    number.into()
}

impl Page {
    /// Trusts nothing: every field, the order of the keys and the unused bytes are checked.
    pub(crate) fn parse(bytes: &[u8], expect: &Expect) -> Result<Self, Defect> {
        let (header, _) = RawPageHeader::ref_from_prefix(bytes).map_err(|_| Defect::Magic)?;
        check_header(header, bytes, expect)?;
        let used = usize::try_from(header.used.get()).unwrap_or(usize::MAX);
        let count = usize::from(header.count.get());
        if bytes.len() != PAGE_BYTES || used > BODY_BYTES {
            return Err(Defect::Entries { entry: 0 });
        }
        let rest = bytes.get(HEADER_BYTES + used..).unwrap_or_default();
        if header.reserved != [0; 4] || !is_zeros(rest) {
            return Err(Defect::Reserved);
        }
        let page = Self { bytes: Box::from(bytes), at: expect.at, shape: expect.shape, count, used };
        match expect.shape {
            Shape::Tree { level: 0 } => page.check_entries()?,
            Shape::Tree { .. } => page.check_children()?,
            Shape::Bitmap { index } if usize::from(index) == count => {}
            Shape::Bitmap { .. } => return Err(Defect::Entries { entry: count }),
        }
        match expect.key {
            Some(key) if page.first_key() != Some(key) => Err(Defect::Order { entry: 0 }),
            Some(_) | None => Ok(page),
        }
    }

    fn check_entries(&self) -> Result<(), Defect> {
        let offsets = self.offsets();
        let mut expected = HEADER_BYTES + self.count * size_of::<U16>();
        let end = HEADER_BYTES + self.used;
        if self.count == 0 || offsets.len() != self.count {
            return Err(Defect::Entries { entry: 0 });
        }
        for (entry, offset) in offsets.iter().enumerate() {
            let next = offsets.get(entry + 1).map_or(end, |next| usize::from(next.get()));
            let start = usize::from(offset.get());
            let length = next.checked_sub(start + KEY_BYTES);
            if start != expected || length.is_none_or(|length| length > VALUE_BYTES_MAX) || next > end {
                return Err(Defect::Entries { entry });
            }
            expected = next;
        }
        self.check_order()
    }

    fn check_children(&self) -> Result<(), Defect> {
        if self.count == 0 || self.used != self.count * CHILD_BYTES {
            return Err(Defect::Entries { entry: self.count });
        }
        self.check_order()
    }

    fn check_order(&self) -> Result<(), Defect> {
        let mut before = None;
        for entry in 0..self.count {
            let key = self.key(entry);
            if key.is_none() || key <= before {
                return Err(Defect::Order { entry });
            }
            before = key;
        }
        Ok(())
    }

    pub(crate) fn at(&self) -> Pointer {
        self.at
    }

    pub(crate) fn level(&self) -> u8 {
        self.shape.level()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn body(&self) -> &[u8] {
        self.bytes.get(HEADER_BYTES..HEADER_BYTES + self.used).unwrap_or_default()
    }

    /// Entries or children.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    fn offsets(&self) -> &[U16] {
        let table = self.body().get(..self.count * size_of::<U16>());
        table.and_then(|table| <[U16]>::ref_from_bytes(table).ok()).unwrap_or_default()
    }

    fn children(&self) -> &[RawChild] {
        <[RawChild]>::ref_from_bytes(self.body()).unwrap_or_default()
    }

    /// An entry of a leaf.
    pub(crate) fn entry(&self, index: usize) -> Option<(Key, &[u8])> {
        let offsets = self.offsets();
        let start = usize::from(offsets.get(index)?.get());
        let end = offsets.get(index + 1).map_or(HEADER_BYTES + self.used, |next| usize::from(next.get()));
        let (key, value) = self.bytes.get(start..end)?.split_first_chunk::<KEY_BYTES>()?;
        Some((Key(*key), value))
    }

    /// A child of an inner page.
    pub(crate) fn child(&self, index: usize) -> Option<Child> {
        self.children().get(index).map(Child::from_raw)
    }

    fn key(&self, index: usize) -> Option<Key> {
        match self.shape {
            Shape::Tree { level: 0 } => self.entry(index).map(|(key, _)| key),
            Shape::Tree { .. } => self.children().get(index).map(|child| Key(child.key)),
            Shape::Bitmap { .. } => None,
        }
    }

    pub(crate) fn first_key(&self) -> Option<Key> {
        self.key(0)
    }

    pub(crate) fn last_key(&self) -> Option<Key> {
        self.key(self.count.checked_sub(1)?)
    }

    /// How many entries or children have a key below `key`.
    pub(crate) fn rank(&self, key: &Key) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle).is_some_and(|at| at < *key) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The child under which `key` would be; the first one for a key before all.
    pub(crate) fn child_for(&self, key: &Key) -> usize {
        let rank = self.rank(key);
        if self.key(rank) == Some(*key) { rank } else { rank.saturating_sub(1) }
    }
}

fn check_header(header: &RawPageHeader, bytes: &[u8], expect: &Expect) -> Result<(), Defect> {
    if header.magic != PAGE_MAGIC {
        return Err(Defect::Magic);
    }
    let found = crc64(bytes.get(CHECKED_FROM..).unwrap_or_default());
    let said = header.checksum.get();
    if found != said {
        return Err(Defect::Checksum { found, expected: said });
    }
    if header.version.get() != FORMAT_VERSION {
        return Err(Defect::Version { found: header.version.get(), supported: FORMAT_VERSION });
    }
    if header.pool != expect.pool.0 {
        return Err(Defect::Pool { found: PoolId(header.pool) });
    }
    if header.page.get() != expect.at.page {
        return Err(Defect::Place { found: header.page.get(), expected: expect.at.page });
    }
    if header.sequence.get() != expect.at.sequence {
        return Err(Defect::Sequence { found: header.sequence.get(), expected: expect.at.sequence });
    }
    if said != expect.at.checksum {
        return Err(Defect::NotNamed { found: said, expected: expect.at.checksum });
    }
    if (header.kind, header.level) != (expect.shape.kind(), expect.shape.level()) {
        return Err(Defect::Shape {
            found_kind: header.kind,
            found_level: header.level,
            expected_kind: expect.shape.kind(),
            expected_level: expect.shape.level(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const POOL: PoolId = PoolId([9; 16]);

    fn expect(page: &Page) -> Expect {
        Expect { pool: POOL, at: page.at(), shape: page.shape, key: page.first_key() }
    }

    fn sealed(bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        let checksum = crc64(&bytes[CHECKED_FROM..]);
        bytes[8..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn pages_that_no_parent_names_are_distinguished() {
        let page = UnplacedPage::leaf([(Key([3; 24]), &b"x"[..])].into_iter()).seal(POOL, 5, 7);
        let good = expect(&page);
        let decide = |expect: Expect| Page::parse(page.bytes(), &expect).unwrap_err();
        assert!(matches!(decide(Expect { pool: PoolId([1; 16]), ..good }), Defect::Pool { .. }));
        let at = |change: fn(&mut Pointer)| {
            let mut other = good;
            change(&mut other.at);
            other
        };
        assert!(matches!(decide(at(|at| at.page = 6)), Defect::Place { found: 5, expected: 6 }));
        assert!(matches!(decide(at(|at| at.sequence = 6)), Defect::Sequence { found: 7, expected: 6 }));
        assert!(matches!(decide(at(|at| at.checksum = 6)), Defect::NotNamed { expected: 6, .. }));
        let shape = Shape::Tree { level: 1 };
        assert!(matches!(decide(Expect { shape, ..good }), Defect::Shape { found_level: 0, .. }));
        assert!(matches!(decide(Expect { key: Some(Key::MIN), ..good }), Defect::Order { entry: 0 }));
    }

    /// Each byte behind the entries is set, with a checksum that is right.
    #[test]
    fn what_is_to_be_zero_is_zero_or_no_page() {
        let page = UnplacedPage::leaf([(Key([3; 24]), &b"x"[..])].into_iter()).seal(POOL, 5, 7);
        for at in HEADER_BYTES + page.used..PAGE_BYTES {
            let mut bad = page.bytes().to_vec();
            bad[at] = 1;
            let bad = sealed(&bad);
            let mut expected = expect(&page);
            expected.at.checksum = crc64(&bad[CHECKED_FROM..]);
            assert!(matches!(Page::parse(&bad, &expected), Err(Defect::Reserved)), "at {at}");
        }
    }

    proptest! {
        #[test]
        fn a_leaf_reads_back_and_no_flipped_bit_is_believed(
            entries in proptest::collection::btree_map(any::<[u8; 24]>(), proptest::collection::vec(any::<u8>(), 0..100), 1..60),
            bit in 0usize..PAGE_BYTES * 8,
        ) {
            let entries: BTreeMap<Key, Vec<u8>> = entries.into_iter().map(|(key, value)| (Key(key), value)).collect();
            let page = UnplacedPage::leaf(entries.iter().map(|(key, value)| (*key, value.as_slice()))).seal(POOL, 5, 7);
            let again = Page::parse(page.bytes(), &expect(&page)).unwrap();
            for (index, (key, value)) in entries.iter().enumerate() {
                prop_assert_eq!(again.entry(index), Some((*key, value.as_slice())));
                prop_assert_eq!(again.rank(key), index);
            }
            let mut bad = page.bytes().to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Page::parse(&bad, &expect(&page)).is_err());
        }

        // Somebody who forges pages computes checksums too: any bytes, sealed again, give a page or an error, and what
        // gives a page can be searched.
        #[test]
        fn forged_pages_are_refused_or_harmless(
            at in 0usize..400, bytes in proptest::collection::vec(any::<u8>(), 1..32), level in 0u8..2,
        ) {
            let unplaced = if level == 0 {
                UnplacedPage::leaf((0..20u8).map(|n| (Key([n; 24]), &[1, 2, 3][..])))
            } else {
                UnplacedPage::inner(1, (0..20u8).map(|n| Child { key: Key([n; 24]), at: Pointer { page: 1, sequence: 2, checksum: 3 } }))
            };
            let page = unplaced.seal(POOL, 5, 7);
            let mut forged = page.bytes().to_vec();
            forged[16 + at..16 + at + bytes.len()].copy_from_slice(&bytes);
            let forged = sealed(&forged);
            let mut expected = expect(&page);
            expected.at.checksum = crc64(&forged[CHECKED_FROM..]);
            expected.key = None;
            if let Ok(page) = Page::parse(&forged, &expected) {
                let index = page.child_for(&Key([7; 24]));
                prop_assert!(index < page.count());
                prop_assert!(page.entry(index).is_some() || page.child(index).is_some());
            }
        }
    }
}
