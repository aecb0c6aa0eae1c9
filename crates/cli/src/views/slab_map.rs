//! The slab map of a pool: a line of cells for each disk, and what its letters mean.

use std::cmp::Reverse;

use dolmen_api::{DiskSlabs, SlabCell, SlabMap, SlabOwner};
use dolmen_units::Bytes;

use crate::terminal::out::Out;
use crate::terminal::paint::{Paint, Tone};
use crate::terminal::table::{Align, Cell, Table};
use crate::views::words::{count, percent};

/// Letters of owners, the largest first.
const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXY";
/// Letter of all owners that have none of their own.
const OTHERS: char = 'Z';
/// Stands for a cell that no slab lies in.
const FREE: char = '.';
/// Stands for a cell with a slab that misses something.
const STALE: char = '*';
/// Columns before the cells of a disk.
pub(crate) const LABEL_COLUMNS: usize = 7;

/// Owners of a map in the order of their letters.
struct Legend<'a> {
    /// Each with its place in the list of owners.
    owners: Vec<(usize, &'a SlabOwner)>,
}

impl<'a> Legend<'a> {
    fn of(map: &'a SlabMap) -> Self {
        let mut owners: Vec<_> = map.owners.iter().enumerate().collect();
        owners.sort_by_key(|(_, owner)| Reverse(owner.used_bytes));
        Self { owners }
    }

    /// The letter of an owner, with its number; none where it is one of the others.
    fn letter(&self, owner: u32) -> Option<(u8, char)> {
        let place = usize::try_from(owner).ok()?;
        let nth = self.owners.iter().position(|(at, _)| *at == place)?;
        Some((u8::try_from(nth).ok()?, LETTERS.chars().nth(nth)?))
    }

    /// The character of a cell, and how it looks.
    fn cell(&self, cell: &SlabCell) -> (char, Tone) {
        let mut best: Option<((u8, char), u64)> = None;
        let mut others = cell.other_units;
        for share in &cell.owners {
            match self.letter(share.owner) {
                Some(letter) if best.is_none_or(|(_, units)| share.units > units) => {
                    best = Some((letter, share.units));
                }
                Some(_) => {}
                None => others += share.units,
            }
        }
        let used: u64 = cell.owners.iter().map(|share| share.units).sum::<u64>() + cell.other_units;
        if cell.stale_units > 0 {
            return (STALE, Tone::Caution);
        }
        if used == 0 {
            return (FREE, Tone::Plain);
        }
        let (letter, tone) = match best {
            Some(((nth, letter), units)) if units >= others => (letter, Tone::Owner(nth)),
            Some(_) | None => (OTHERS, Tone::Plain),
        };
        let is_half_full = used.saturating_mul(2) >= cell.units;
        (if is_half_full { letter } else { letter.to_ascii_lowercase() }, tone)
    }

    /// The cells of a disk as a line. Neighbours of one colour are painted together.
    fn line(&self, disk: &DiskSlabs, paint: Paint) -> String {
        let (mut line, mut run, mut tone) = (String::new(), String::new(), Tone::Plain);
        for (letter, next) in disk.cells.iter().map(|cell| self.cell(cell)) {
            if next != tone {
                line.push_str(&paint.tone(&run, tone));
                run.clear();
                tone = next;
            }
            run.push(letter);
        }
        line.push_str(&paint.tone(&run, tone));
        line
    }

    /// Whether a cell of a map has a character.
    fn has(&self, map: &SlabMap, letter: char) -> bool {
        let mut cells = map.disks.iter().flat_map(|disk| &disk.cells);
        cells.any(|cell| self.cell(cell).0.eq_ignore_ascii_case(&letter))
    }

    fn table(&self, map: &SlabMap) -> Table {
        let mut table = Table::new(&[
            ("CELL", Align::Left),
            ("WHAT", Align::Left),
            ("USED", Align::Right),
            ("STALE", Align::Right),
        ]);
        let bytes = |bytes: u64| if bytes > 0 { Bytes(bytes).to_string() } else { String::new() };
        let (mut used, mut stale, mut others) = (0u64, 0u64, 0);
        for (place, owner) in &self.owners {
            let letter = u32::try_from(*place).ok().and_then(|place| self.letter(place));
            let Some((nth, letter)) = letter else {
                used = used.saturating_add(owner.used_bytes);
                stale = stale.saturating_add(owner.stale_bytes);
                others += 1;
                continue;
            };
            let letter = Cell::toned(letter, Tone::Owner(nth));
            let name = owner.name.as_str().into();
            table.row(vec![letter, name, bytes(owner.used_bytes).into(), bytes(owner.stale_bytes).into()]);
        }
        if others > 0 || self.has(map, OTHERS) {
            let what =
                if others > 0 { count(others, "other", "others") } else { "several small ones".to_owned() };
            table.row(vec![OTHERS.into(), what.into(), bytes(used).into(), bytes(stale).into()]);
        }
        table.row(vec![FREE.into(), "free".into(), "".into(), "".into()]);
        if self.has(map, STALE) {
            let what = "has slabs that are being filled, or wait for a resync";
            table.row(vec![Cell::toned(STALE, Tone::Caution), what.into(), "".into(), "".into()]);
        }
        table
    }
}

/// Shows where on each disk slabs lie.
pub(crate) fn show_slab_map(map: &SlabMap, out: &mut Out<'_>) {
    let (legend, paint) = (Legend::of(map), out.paint_results);
    out.line(format_args!("pool {}", map.pool));
    for disk in &map.disks {
        out.line(format_args!("{:>5}  {}", disk.slot, legend.line(disk, paint)));
    }
    out.line("");
    out.table(2, &legend.table(map));
    out.line("  a small letter: less than half of the cell is used\n");
    out.table(2, &disks_table(map));
}

fn disks_table(map: &SlabMap) -> Table {
    let mut table = Table::new(&[
        ("DISK", Align::Right),
        ("A CELL", Align::Right),
        ("DATA", Align::Right),
        ("FREE", Align::Right),
        ("USE", Align::Right),
        ("STALE", Align::Right),
        ("PATH", Align::Left),
    ]);
    for disk in &map.disks {
        let bytes = |units: u64| Bytes(units.saturating_mul(map.unit_bytes));
        let stale = if disk.stale_units > 0 { bytes(disk.stale_units).to_string() } else { String::new() };
        let name = if disk.is_absent { format!("{} (absent)", disk.name) } else { disk.name.clone() };
        table.row(vec![
            disk.slot.to_string().into(),
            bytes(disk.units.checked_div(disk.cells.len() as u64).unwrap_or(0)).to_string().into(),
            bytes(disk.units).to_string().into(),
            bytes(disk.free_units).to_string().into(),
            percent(disk.units.saturating_sub(disk.free_units), disk.units).into(),
            stale.into(),
            name.into(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use dolmen_api::{SlabPurpose, SlabShare};

    use super::*;

    fn owner(name: &str, used_bytes: u64) -> SlabOwner {
        let (purpose, space) = (SlabPurpose::Space, Some(name.to_owned()));
        SlabOwner { purpose, space, name: name.to_owned(), used_bytes, stale_bytes: 0 }
    }

    fn cell(owners: &[(u32, u64)], other_units: u64, stale_units: u64) -> SlabCell {
        let owners: Vec<SlabShare> =
            owners.iter().map(|(owner, units)| SlabShare { owner: *owner, units: *units }).collect();
        let used: u64 = owners.iter().map(|share| share.units).sum::<u64>() + other_units;
        SlabCell { units: 100, free_units: 100 - used, stale_units, owners, other_units }
    }

    /// Scenario: thirty spaces, the last one the largest. It is A, and those beyond the letters are Z, as are small ones that have more of a
    /// cell together than its largest.
    #[test]
    fn a_cell_has_the_letter_of_its_largest_owner_small_where_it_is_less_than_half_full() {
        let owners = (0..30).map(|nth| owner(&format!("s{nth}"), nth * 4096)).collect();
        let map = SlabMap {
            schema: 1,
            pool: "tank".to_owned(),
            age_s: 0,
            unit_bytes: 4096,
            owners,
            disks: Vec::new(),
        };
        let legend = Legend::of(&map);
        let shown = |owners: &[(u32, u64)], others, stale| legend.cell(&cell(owners, others, stale)).0;
        assert_eq!(shown(&[(29, 50)], 0, 0), 'A');
        assert_eq!(shown(&[(28, 49)], 0, 0), 'b');
        assert_eq!(shown(&[(0, 90)], 0, 0), 'Z');
        assert_eq!(shown(&[(29, 20), (28, 18)], 40, 0), 'Z');
        assert_eq!(shown(&[(0, 20), (29, 19)], 0, 0), 'z');
        assert_eq!(shown(&[(29, 50)], 0, 1), '*');
        assert_eq!(shown(&[], 0, 0), '.');
    }

    #[test]
    fn neighbours_of_one_colour_are_painted_together() {
        let owners = vec![owner("a", 9), owner("b", 5)];
        let cells = [0, 0, 1, 1].map(|nth| cell(&[(nth, 100)], 0, 0)).to_vec();
        let (free_units, stale_units, units) = (0, 0, 400);
        let disk = DiskSlabs {
            slot: 0,
            name: "/a".to_owned(),
            is_absent: false,
            units,
            free_units,
            stale_units,
            cells,
        };
        let map = SlabMap {
            schema: 1,
            pool: "tank".to_owned(),
            age_s: 0,
            unit_bytes: 1,
            owners,
            disks: Vec::new(),
        };
        let line = |paint| Legend::of(&map).line(&disk, paint);
        assert_eq!(line(Paint::Never), "AABB");
        assert_eq!(line(Paint::Always), "\x1b[34mAA\x1b[0m\x1b[35mBB\x1b[0m");
    }
}
