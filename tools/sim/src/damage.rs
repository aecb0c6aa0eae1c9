//! Faults of content, as an overlay on reads.
//!
//! The image of a disk always holds what a faultless disk would. Rot, lost and misdirected writes and unreadable sectors
//! stand beside it, by sector, until the sector is written again; so an oracle can compare with the truth at any time.

use std::collections::BTreeMap;

use crate::image::{ALL_SECTORS, PAGE_BYTES, Page, Piece, SECTOR, mix_page, sector_mask};

struct Mark {
    /// Sectors that cannot be read.
    unreadable: u8,
    /// Sectors that read as they stand in `shown`.
    wrong: u8,
    shown: Option<Page>,
}

/// The overlay of one disk.
#[derive(Default)]
pub(crate) struct Damage {
    marks: BTreeMap<u64, Mark>,
}

impl Damage {
    pub(crate) fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Sectors of a page that do not read as they should: unreadable ones, and those with other content.
    pub(crate) fn sectors(&self, page: u64) -> (u8, u8) {
        self.marks.get(&page).map_or((0, 0), |mark| (mark.unreadable, mark.wrong))
    }

    /// Pages with damage, in order.
    pub(crate) fn pages(&self) -> impl Iterator<Item = u64> + '_ {
        self.marks.keys().copied()
    }

    /// What the medium shows of a page of which `truth` is true. Unreadable sectors show what stood there.
    pub(crate) fn shown(&self, page: u64, truth: Option<&Page>) -> Option<Page> {
        match self.marks.get(&page) {
            Some(mark) if mark.wrong != 0 => Some(mix_page(truth, mark.shown.as_ref(), mark.wrong)),
            _ => truth.cloned(),
        }
    }

    /// The sectors read as they stand in `content` from now on.
    pub(crate) fn show(&mut self, page: u64, sectors: u8, content: Option<&Page>) {
        if sectors == 0 {
            return;
        }
        let mark = self.marks.entry(page).or_insert(Mark { unreadable: 0, wrong: 0, shown: None });
        mark.shown = Some(mix_page(mark.shown.as_ref(), content, sectors));
        mark.wrong |= sectors;
        mark.unreadable &= !sectors;
    }

    /// The sectors cannot be read from now on.
    pub(crate) fn make_unreadable(&mut self, page: u64, sectors: u8) {
        let mark = self.marks.entry(page).or_insert(Mark { unreadable: 0, wrong: 0, shown: None });
        mark.unreadable |= sectors;
    }

    /// A write covered the piece's sectors: they read as they should again.
    pub(crate) fn overwrite(&mut self, piece: &Piece) {
        if let Some(mark) = self.marks.get_mut(&piece.page) {
            mark.unreadable &= !piece.sectors;
            mark.wrong &= !piece.sectors;
            if mark.unreadable | mark.wrong == 0 {
                self.marks.remove(&piece.page);
            }
        }
    }

    /// Everything is as it should be.
    pub(crate) fn clear(&mut self) {
        self.marks.clear();
    }

    /// Lays the overlay over what was read of a part of one page; whether all of it could be read.
    pub(crate) fn lay_over(&self, page: u64, within: usize, part: &mut [u8]) -> bool {
        let Some(mark) = self.marks.get(&page) else { return true };
        let touched = sector_mask(within, part.len());
        if let Some(shown) = mark.shown.as_ref().filter(|_| mark.wrong & touched != 0) {
            for (offset, byte) in part.iter_mut().enumerate() {
                let place = within + offset;
                if mark.wrong & (1 << (place / SECTOR)) != 0 {
                    *byte = shown.get(place).copied().unwrap_or(*byte);
                }
            }
        }
        mark.unreadable & touched == 0
    }
}

const _: () = assert!(ALL_SECTORS as usize + 1 == 1 << (PAGE_BYTES / SECTOR), "one bit for each sector");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::pieces_of;

    #[test]
    fn damage_lies_on_its_sectors_until_they_are_written() {
        let mut damage = Damage::default();
        let page: Page = std::rc::Rc::from(vec![9; PAGE_BYTES]);
        damage.show(3, 0b10, Some(&page));
        damage.make_unreadable(3, 0b100);
        let mut part = [1; PAGE_BYTES];
        assert!(!damage.lay_over(3, 0, &mut part));
        assert_eq!(part.iter().filter(|byte| **byte == 9).count(), SECTOR);
        assert!(damage.lay_over(3, 0, &mut [0; 1024]));
        assert!(damage.lay_over(2, 0, &mut part));
        damage.overwrite(&pieces_of(3 * 4096 + 512, &[0; 512])[0]);
        assert_eq!(damage.sectors(3), (0b100, 0));
        damage.overwrite(&pieces_of(3 * 4096, &[0; 4096])[0]);
        assert!(damage.is_empty());
    }
}
