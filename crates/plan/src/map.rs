//! Whether the pool's map has room for so many rows on the disks that carry it.
//!
//! The map lies on up to four disks, the largest first and no two of one fault domain while there are others; the
//! smallest of them bounds it. A row's entry has a key, a head and a slab for each copy or column with its run. Pages of
//! the tree are half full after rows were added in order, and a checkpoint writes a changed page beside the old one, so
//! that an entry takes up to four times its bytes. Which disks are fast, and so carry the map before larger ones, is not
//! known here.

use dolmen_units::Bytes;

use crate::disks::{Disk, Disks};

/// Disks that carry the map.
const VOTERS: usize = 4;
/// What an entry takes beside its slabs, and for each of them (`docs/format/space.md`, `docs/format/store.md`).
const ENTRY_BYTES: u64 = 48;
const SLAB_BYTES: u64 = 28;
/// Half full pages, twice.
const SPREAD: u64 = 4;
/// In front of the metadata area, of the log, and the bounds of the log's length (`docs/format/label.md`).
const MEBIBYTE: u64 = 1 << 20;
const LABELS_BYTES: u64 = MEBIBYTE;
const CHECKPOINT_BYTES: u64 = 64 * 1024;
const LOG_BYTES: (u64, u64) = (2 << 20, 64 << 20);

/// What to know before so many rows of so many slabs are claimed; `None` where the map has room for them.
pub(crate) fn warning(disks: &Disks, rows: u64, slabs: u64) -> Option<String> {
    let smallest = smallest_voter(disks)?;
    let metadata = smallest.cut.metadata_bytes - LABELS_BYTES;
    let log = Bytes(metadata / 4).align_down(MEBIBYTE).0.clamp(LOG_BYTES.0, LOG_BYTES.1);
    let room = Bytes(metadata.saturating_sub(CHECKPOINT_BYTES + log)).align_down(MEBIBYTE).0;
    let needed = rows.saturating_mul(SPREAD * (ENTRY_BYTES + SLAB_BYTES * slabs));
    (needed > room).then(|| {
        format!(
            "the map of {rows} rows may need {}, and {}, the smallest disk that carries it, has {} for it: claims may stop before the disks are full; a larger disk in its place would do",
            Bytes(needed),
            smallest.name,
            Bytes(room)
        )
    })
}

fn smallest_voter(disks: &Disks) -> Option<&Disk> {
    let list = disks.list();
    let mut order: Vec<usize> = (0..list.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(list.get(*at).map_or(0, |disk| disk.size_bytes)));
    let groups = disks.by_domain();
    let mates = |at: usize| groups.iter().find(|members| members.contains(&at)).cloned().unwrap_or_default();
    let mut chosen: Vec<usize> = Vec::new();
    for is_alone_wanted in [true, false] {
        for at in &order {
            let shares = mates(*at).iter().any(|mate| chosen.contains(mate));
            if chosen.len() < VOTERS && !chosen.contains(at) && !(is_alone_wanted && shares) {
                chosen.push(*at);
            }
        }
    }
    chosen.into_iter().filter_map(|at| list.get(at)).min_by_key(|disk| disk.size_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks(sizes: &[u64]) -> Disks {
        let disk = |(at, size): (usize, &u64)| Disk::new(format!("d{at}"), Bytes(*size), None).unwrap();
        Disks::new(sizes.iter().enumerate().map(disk).collect())
    }

    /// A real pool of 64 MiB and two disks of 8 GiB holds the map of 7469 mirror rows, and with 16 GiB it does not hold
    /// that of 15172. A fifth disk, however small, carries no map.
    #[test]
    fn a_tiny_disk_that_carries_the_map_is_named() {
        let gib = 1 << 30;
        assert_eq!(warning(&disks(&[64 << 20, 8 * gib, 8 * gib]), 7469, 2), None);
        let found = warning(&disks(&[64 << 20, 16 * gib, 16 * gib]), 15_172, 2).unwrap();
        assert!(found.contains("and d0, the smallest disk that carries it, has 5 MiB for it"), "{found}");
        let large = 8_000 * gib;
        assert_eq!(warning(&disks(&[64 << 20, large, large, large, large]), 100_000, 2), None);
        assert_eq!(warning(&disks(&[large; 4]), 260_000, 2), None);
    }
}
