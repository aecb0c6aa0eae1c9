//! Which pages are in use.

use dolmen_mutation::mutation;

use crate::format::BODY_BYTES;

const WORD_BITS: u64 = 64;
const CHUNK_WORDS: usize = BODY_BYTES / 8;

/// A bit for each page of an area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    pages: u64,
    set: u64,
}

fn place(page: u64) -> (usize, u64) {
    (usize::try_from(page / WORD_BITS).unwrap_or(usize::MAX), 1 << (page % WORD_BITS))
}

impl Bitmap {
    /// No page in use.
    pub(crate) fn new(pages: u64) -> Self {
        let words = usize::try_from(pages.div_ceil(WORD_BITS)).unwrap_or(0);
        Self { words: vec![0; words], pages, set: 0 }
    }

    /// Whether a page is in use; a page outside the area is.
    pub(crate) fn contains(&self, page: u64) -> bool {
        let (word, bit) = place(page);
        page >= self.pages || self.words.get(word).is_none_or(|word| word & bit != 0)
    }

    /// Marks a page as used; whether it was free.
    pub(crate) fn insert(&mut self, page: u64) -> bool {
        if self.contains(page) {
            return false;
        }
        let (word, bit) = place(page);
        if let Some(word) = self.words.get_mut(word) {
            *word |= bit;
        }
        self.set += 1;
        true
    }

    /// Marks a page as free; whether it was used.
    pub(crate) fn remove(&mut self, page: u64) -> bool {
        if page >= self.pages || !self.contains(page) {
            return false;
        }
        let (word, bit) = place(page);
        if let Some(word) = self.words.get_mut(word) {
            *word &= !bit;
        }
        self.set -= 1;
        true
    }

    /// Adds all pages of another bitmap of the same area.
    pub(crate) fn union(&mut self, other: &Self) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
        self.recount();
    }

    /// Pages in use.
    pub(crate) fn used(&self) -> u64 {
        self.set
    }

    /// Pages of the area.
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// The first free page from `from` on, then from the beginning.
    pub(crate) fn next_free(&self, from: u64) -> Option<u64> {
        if self.set >= self.pages {
            return None;
        }
        let from = if from >= self.pages { 0 } else { from };
        self.free_in(from, self.pages).or_else(|| self.free_in(0, from))
    }

    fn free_in(&self, from: u64, end: u64) -> Option<u64> {
        let mut page = from;
        while page < end {
            let (word, _) = place(page);
            let word = *self.words.get(word)?;
            let within = page % WORD_BITS;
            let free = !word >> within;
            if free != 0 {
                let found = page + u64::from(free.trailing_zeros());
                return (found < end).then_some(found);
            }
            page += WORD_BITS - within;
        }
        None
    }

    /// Used pages that are not in `other`.
    pub(crate) fn without<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = u64> + 'a {
        let words = (0u64..).zip(self.words.iter().zip(&other.words));
        words.filter(|(_, (a, b))| *a & !*b != 0).flat_map(|(index, (a, b))| {
            let left = a & !b;
            (0..WORD_BITS).filter(move |bit| left & (1 << bit) != 0).map(move |bit| index * WORD_BITS + bit)
        })
    }

    /// The bytes of bitmap page `index`.
    pub(crate) fn chunk(&self, index: usize) -> Vec<u8> {
        let start = index * CHUNK_WORDS;
        self.words.iter().skip(start).take(CHUNK_WORDS).flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Takes over the bytes of bitmap page `index`; whether they are as long as they must be, with no bit behind the
    /// end.
    pub(crate) fn load_chunk(&mut self, index: usize, bytes: &[u8]) -> bool {
        let words = self.words.iter_mut().skip(index * CHUNK_WORDS).take(CHUNK_WORDS);
        if words.len() * 8 != bytes.len() {
            return false;
        }
        for (word, bytes) in words.zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        self.recount();
        let tail = self.pages % WORD_BITS;
        tail == 0 || self.words.last().is_none_or(|last| last >> tail == 0)
    }

    fn recount(&mut self) {
        self.set = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
    }
}

/// Pages that a checkpoint takes and frees, beside what stays untouched under it.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// Pages that must not be written: in use by what may be opened after a crash, or taken already.
    blocked: Bitmap,
    /// Pages in use once this checkpoint counts.
    next: Bitmap,
    cursor: u64,
}

impl Allocation {
    /// Over the pages in use by the checkpoint that stands, and by one of which it is unknown whether it stands.
    pub(crate) fn new(base: &Bitmap, doubtful: Option<&Bitmap>, cursor: u64) -> Self {
        let mut blocked = base.clone();
        if let Some(doubtful) = doubtful {
            blocked.union(doubtful);
        }
        Self { blocked, next: base.clone(), cursor }
    }

    /// A free page, or `None` when the area is full.
    pub(crate) fn take(&mut self) -> Option<u64> {
        let page = self.blocked.next_free(self.cursor)?;
        self.blocked.insert(page);
        self.next.insert(page);
        self.cursor = page + 1;
        Some(page)
    }

    /// Pages that can still be taken.
    pub(crate) fn left(&self) -> u64 {
        self.blocked.pages() - self.blocked.used()
    }

    /// Frees a page; whether it was in use. It is not taken again by this checkpoint.
    pub(crate) fn release(&mut self, page: u64) -> bool {
        if mutation!(PageReusedEarly) {
            self.blocked.remove(page);
        }
        self.next.remove(page)
    }

    /// Where the next search begins.
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Pages in use once this checkpoint counts.
    pub(crate) fn next(&self) -> &Bitmap {
        &self.next
    }

    /// As [`next`](Self::next), at the end.
    pub(crate) fn into_next(self) -> Bitmap {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        // Against a set of numbers: every page is taken once, never one that is blocked, and a full area says so.
        #[test]
        fn pages_are_taken_once_and_all_of_them(pages in 1u64..300, used in proptest::collection::btree_set(0u64..300, 0..200), cursor in 0u64..400) {
            let used: BTreeSet<u64> = used.into_iter().filter(|page| *page < pages).collect();
            let mut base = Bitmap::new(pages);
            used.iter().for_each(|page| prop_assert_none(base.insert(*page)));
            let mut allocation = Allocation::new(&base, None, cursor);
            // What a checkpoint frees is still needed by the one before it.
            used.iter().step_by(2).for_each(|page| assert!(allocation.release(*page)));
            let mut taken = BTreeSet::new();
            while let Some(page) = allocation.take() {
                prop_assert!(page < pages && !used.contains(&page) && taken.insert(page));
            }
            prop_assert_eq!(taken.len() + used.len(), usize::try_from(pages).unwrap());
            let mut copy = Bitmap::new(pages);
            prop_assert!(copy.load_chunk(0, &base.chunk(0)));
            prop_assert_eq!(&copy, &base);
            let new: Vec<u64> = allocation.next().without(&base).collect();
            prop_assert_eq!(new, taken.into_iter().collect::<Vec<_>>());
        }
    }

    fn prop_assert_none(inserted: bool) {
        assert!(inserted);
    }

    #[test]
    fn bits_after_the_end_are_refused() {
        let mut bitmap = Bitmap::new(3);
        assert!(!bitmap.load_chunk(0, &[8, 0, 0, 0, 0, 0, 0, 0]));
        assert!(bitmap.load_chunk(0, &[7, 0, 0, 0, 0, 0, 0, 0]));
        assert!(!bitmap.load_chunk(0, &[0; 16]));
        assert_eq!(bitmap.next_free(0), None);
    }
}
