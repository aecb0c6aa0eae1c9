//! What a disk holds: a sparse image whose copies share everything until one of them is written.
//!
//! Pages of 4 KiB hang in a tree of fan-out 16. A copy of an image is one count more on its root, so that a crash test
//! can open thousands of states of one disk, and a disk can remember what it was at earlier flushes; the first write to
//! a page after a copy renews the few nodes above it.

use std::cell::OnceCell;
use std::fmt;
use std::rc::Rc;

use dolmen_buffer::is_zeros;
use dolmen_units::{BLOCK_BYTES, SECTOR_BYTES};

/// The bytes of a page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// The bytes of a sector: the finest unit that a disk writes or loses.
pub(crate) const SECTOR: usize = 512;
/// All sectors of a page.
pub(crate) const ALL_SECTORS: u8 = 0xff;
const FANOUT: usize = 16;
const FANOUT_BITS: u32 = 4;

const _: () = assert!(PAGE_BYTES as u64 == BLOCK_BYTES && SECTOR as u64 == SECTOR_BYTES, "pages are blocks");
const _: () =
    assert!(PAGE_BYTES / SECTOR == u8::BITS as usize, "a byte has one bit for each sector of a page");
const _: () = assert!(1 << FANOUT_BITS == FANOUT, "the bits of one level index its children");

/// The bytes of one page, shared by all who hold the same content.
pub(crate) type Page = Rc<[u8]>;

#[derive(Clone)]
enum Node {
    Inner([Option<Rc<Node>>; FANOUT]),
    Leaf([Option<Page>; FANOUT]),
}

/// A sparse image of a disk. Zeros where nothing was written. Cloning costs nothing.
#[derive(Clone, Default)]
pub struct Image {
    root: Option<Rc<Node>>,
    /// Levels of inner nodes above the leaves.
    height: u32,
}

/// Some sectors of one page, and what is to stand there. `None` is zeros.
#[derive(Clone)]
pub(crate) struct Piece {
    pub(crate) page: u64,
    pub(crate) sectors: u8,
    pub(crate) content: Option<Page>,
}

impl Image {
    /// Nothing but zeros.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn page(&self, page: u64) -> Option<&Page> {
        if page >> (FANOUT_BITS * self.height) >= FANOUT as u64 {
            return None;
        }
        let mut node = self.root.as_ref()?;
        let mut level = self.height;
        loop {
            let child = slot(page, level);
            match &**node {
                Node::Inner(children) => node = children.get(child)?.as_ref()?,
                Node::Leaf(pages) => return pages.get(child)?.as_ref(),
            }
            level = level.saturating_sub(1);
        }
    }

    pub(crate) fn set_page(&mut self, page: u64, content: Option<Page>) {
        if content.is_none() && self.page(page).is_none() {
            return;
        }
        while page >> (FANOUT_BITS * self.height) >= FANOUT as u64 {
            if let Some(root) = self.root.take() {
                let mut children: [Option<Rc<Node>>; FANOUT] = Default::default();
                if let Some(first) = children.first_mut() {
                    *first = Some(root);
                }
                self.root = Some(Rc::new(Node::Inner(children)));
            }
            self.height += 1;
        }
        let mut level = self.height;
        let mut node = self.root.get_or_insert_with(|| Rc::new(Node::empty(level)));
        loop {
            let child = slot(page, level);
            match Rc::make_mut(node) {
                Node::Leaf(pages) => {
                    if let Some(place) = pages.get_mut(child) {
                        *place = content;
                    }
                    return;
                }
                Node::Inner(children) => {
                    level -= 1;
                    let Some(place) = children.get_mut(child) else { return };
                    node = place.get_or_insert_with(|| Rc::new(Node::empty(level)));
                }
            }
        }
    }

    /// Writes those sectors of a piece that `sectors` names too.
    pub(crate) fn apply(&mut self, piece: &Piece, sectors: u8) {
        let sectors = piece.sectors & sectors;
        match sectors {
            0 => {}
            ALL_SECTORS => self.set_page(piece.page, piece.content.clone()),
            _ => {
                let old = self.page(piece.page);
                let mixed = mix_page(old, piece.content.as_ref(), sectors);
                self.set_page(piece.page, Some(mixed));
            }
        }
    }

    /// Copies what stands from byte `at` on.
    pub fn read(&self, at: u64, into: &mut [u8]) {
        for (page, within, part) in parts_mut(at, into) {
            match self.page(page).and_then(|from| from.get(within..within + part.len())) {
                Some(from) => part.copy_from_slice(from),
                None => part.fill(0),
            }
        }
    }

    /// Replaces what stands from byte `at` on.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        let mut at = at;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = within_page(at);
            let (now, later) = rest.split_at(rest.len().min(PAGE_BYTES - within));
            let page = at / BLOCK_BYTES;
            let mut content = vec![0; PAGE_BYTES];
            self.read(page * BLOCK_BYTES, &mut content);
            if let Some(to) = content.get_mut(within..within + now.len()) {
                to.copy_from_slice(now);
            }
            self.set_page(page, Some(Rc::from(content)));
            at += now.len() as u64;
            rest = later;
        }
    }

    /// Turns one bit around, as rot does. `bit` counts within the byte, modulo 8.
    pub fn flip_bit(&mut self, at: u64, bit: u8) {
        let mut byte = [0];
        self.read(at, &mut byte);
        self.write(at, &byte.map(|byte| byte ^ (1 << (bit % 8))));
    }

    /// The first page, by number, on which two images differ; equal pages may be stored or absent.
    #[must_use]
    pub fn first_difference(&self, other: &Self, capacity_bytes: u64) -> Option<u64> {
        (0..capacity_bytes.div_ceil(BLOCK_BYTES)).find(|page| {
            let (one, two) = (self.page(*page), other.page(*page));
            match (one, two) {
                (None, None) => false,
                (Some(one), Some(two)) => !Rc::ptr_eq(one, two) && one != two,
                (Some(page), None) | (None, Some(page)) => !is_zeros(&page[..]),
            }
        })
    }

    /// Whether two images hold the same; quick for those that share most of what they have. One that stores zeros where the other
    /// stores nothing counts as different.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        self.height == other.height && Node::are_equal(self.root.as_ref(), other.root.as_ref())
    }
}

impl Node {
    fn are_equal(one: Option<&Rc<Self>>, two: Option<&Rc<Self>>) -> bool {
        let (one, two) = match (one, two) {
            (None, None) => return true,
            (Some(one), Some(two)) if Rc::ptr_eq(one, two) => return true,
            (Some(one), Some(two)) => (&**one, &**two),
            _ => return false,
        };
        match (one, two) {
            (Self::Leaf(one), Self::Leaf(two)) => one == two,
            (Self::Inner(one), Self::Inner(two)) => {
                one.iter().zip(two.iter()).all(|(one, two)| Self::are_equal(one.as_ref(), two.as_ref()))
            }
            (Self::Leaf(_), Self::Inner(_)) | (Self::Inner(_), Self::Leaf(_)) => false,
        }
    }

    fn empty(level: u32) -> Self {
        if level == 0 { Self::Leaf(Default::default()) } else { Self::Inner(Default::default()) }
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("height", &self.height).finish_non_exhaustive()
    }
}

fn slot(page: u64, level: u32) -> usize {
    usize::try_from((page >> (FANOUT_BITS * level)) & (FANOUT as u64 - 1)).unwrap_or(0)
}

fn within_page(at: u64) -> usize {
    usize::try_from(at % BLOCK_BYTES).unwrap_or(0)
}

/// The sectors that `length` bytes from `within` on touch in their page.
pub(crate) fn sector_mask(within: usize, length: usize) -> u8 {
    if length >= PAGE_BYTES {
        return ALL_SECTORS;
    }
    let (first, end) = (within / SECTOR, (within + length).div_ceil(SECTOR));
    (first..end.min(8)).fold(0, |mask, sector| mask | 1 << sector)
}

/// A page with `sectors` from `new` and the others from `old`; `None` is zeros.
pub(crate) fn mix_page(old: Option<&Page>, new: Option<&Page>, sectors: u8) -> Page {
    let mut content = old.map_or_else(|| vec![0; PAGE_BYTES], |page| page.to_vec());
    for (sector, part) in
        content.chunks_mut(SECTOR).enumerate().filter(|(sector, _)| sectors & (1 << sector) != 0)
    {
        match new.and_then(|page| page.get(sector * SECTOR..sector * SECTOR + part.len())) {
            Some(from) => part.copy_from_slice(from),
            None => part.fill(0),
        }
    }
    Rc::from(content)
}

/// The pages that a range touches: number, first byte within, length.
pub(crate) fn spans(at: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = at + length;
    let mut at = at;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let within = within_page(at);
        let part = usize::try_from(end - at).unwrap_or(usize::MAX).min(PAGE_BYTES - within);
        let page = at / BLOCK_BYTES;
        at += part as u64;
        Some((page, within, part))
    })
}

/// The parts of `bytes` that fall on each page, beginning at byte `at` of the disk.
pub(crate) fn parts_mut(at: u64, bytes: &mut [u8]) -> impl Iterator<Item = (u64, usize, &mut [u8])> {
    let mut at = at;
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let within = within_page(at);
        let all = std::mem::take(&mut rest);
        let (now, later) = all.split_at_mut(all.len().min(PAGE_BYTES - within));
        rest = later;
        let page = at / BLOCK_BYTES;
        at += now.len() as u64;
        Some((page, within, now))
    })
}

/// Cuts the bytes of a write into pieces.
pub(crate) fn pieces_of(at: u64, bytes: &[u8]) -> Vec<Piece> {
    let mut pieces = Vec::with_capacity(bytes.len() / PAGE_BYTES + 1);
    let mut rest = bytes;
    // Zeros that were written have room on a disk that takes it late, unlike those that never were; but they need no memory
    // each. A pool of 240 disks is created with 15 GiB of them.
    let zeros: OnceCell<Page> = OnceCell::new();
    for (page, within, length) in spans(at, bytes.len() as u64) {
        let (now, later) = rest.split_at(length);
        rest = later;
        let content: Page = if length == PAGE_BYTES && is_zeros(now) {
            Rc::clone(zeros.get_or_init(|| Rc::from(now)))
        } else if length == PAGE_BYTES {
            Rc::from(now)
        } else {
            let mut whole = vec![0; PAGE_BYTES];
            if let Some(to) = whole.get_mut(within..within + length) {
                to.copy_from_slice(now);
            }
            Rc::from(whole)
        };
        pieces.push(Piece { page, sectors: sector_mask(within, length), content: Some(content) });
    }
    pieces
}

/// Pieces that make a range zeros.
pub(crate) fn zero_pieces(at: u64, length: u64) -> Vec<Piece> {
    spans(at, length)
        .map(|(page, within, length)| Piece { page, sectors: sector_mask(within, length), content: None })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Writes of any place and length, a copy taken half-way: both images read as plain byte arrays would.
        #[test]
        fn an_image_and_its_copy_read_as_two_arrays(
            writes in proptest::collection::vec((0usize..300_000, 1usize..9000, any::<u8>()), 2..12)
        ) {
            let (mut image, mut model) = (Image::new(), vec![0u8; 320_000]);
            let mut copy = None;
            for (index, (at, length, byte)) in writes.iter().enumerate() {
                if index == writes.len() / 2 {
                    copy = Some((image.clone(), model.clone()));
                }
                image.write(*at as u64, &vec![*byte; *length]);
                model[*at..at + length].fill(*byte);
            }
            for (image, model) in copy.into_iter().chain([(image, model)]) {
                let mut all = vec![1; model.len()];
                image.read(0, &mut all);
                prop_assert!(all == model);
            }
        }
    }

    #[test]
    fn pages_far_apart_share_one_tree() {
        let mut image = Image::new();
        for at in [0, 1 << 20, 1 << 33, 1 << 44] {
            image.write(at, &[7]);
        }
        for at in [0, 1 << 20, 1 << 33, 1 << 44] {
            let mut byte = [0];
            image.read(at, &mut byte);
            assert_eq!(byte, [7], "{at}");
        }
        let mut byte = [1];
        image.read(1 << 50, &mut byte);
        assert_eq!(byte, [0]);
    }

    #[test]
    fn a_part_of_a_page_leaves_the_rest() {
        let mut image = Image::new();
        image.write(0, &[1; PAGE_BYTES]);
        for piece in pieces_of(1024, &[2; 1024]) {
            assert_eq!(piece.sectors, 0b1100);
            image.apply(&piece, 0b0100);
        }
        let mut all = [0; PAGE_BYTES];
        image.read(0, &mut all);
        assert!(all[1024..1536].iter().all(|byte| *byte == 2));
        assert_eq!(all.iter().filter(|byte| **byte == 1).count(), PAGE_BYTES - SECTOR);
    }

    #[test]
    fn images_are_compared_by_content() {
        let (mut one, mut two) = (Image::new(), Image::new());
        one.write(9000, &[0; 10]);
        assert_eq!(one.first_difference(&two, 1 << 20), None);
        two.flip_bit(9001, 3);
        assert_eq!(one.first_difference(&two, 1 << 20), Some(2));
    }
}
