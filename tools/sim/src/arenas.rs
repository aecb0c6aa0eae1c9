//! Arenas that processes leave to later ones, also of other worlds: to clear new ones takes longer than most lives.

use std::cell::RefCell;

use dolmen_block_io::Seams;
use dolmen_buffer::{Arena, ArenaConfig};

/// The sizes of the arenas of a process: data and metadata.
pub(crate) type Sizes = (ArenaConfig, ArenaConfig);

/// How many pairs are kept.
const KEPT_MAX: usize = 4;

thread_local! {
    static LEFT_BYTES: RefCell<Vec<(Sizes, Arena, Arena)>> = const { RefCell::new(Vec::new()) };
}

/// Arenas of these sizes; what their frames hold is whatever was left in them.
pub(crate) fn take(sizes: Sizes) -> (Arena, Arena) {
    let left = LEFT_BYTES.with_borrow_mut(|left| {
        let index = left.iter().position(|(kept, ..)| *kept == sizes)?;
        Some(left.swap_remove(index))
    });
    left.map_or_else(|| (Arena::new(sizes.0), Arena::new(sizes.1)), |(_, data, metadata)| (data, metadata))
}

/// Keeps the arenas of a process that is dead, unless somebody still holds memory of theirs.
pub(crate) fn leave(dead: Option<(Sizes, Seams)>) {
    let Some((sizes, seams)) = dead else { return };
    if seams.data.lent_count() + seams.metadata.lent_count() > 0 {
        return;
    }
    LEFT_BYTES.with_borrow_mut(|left| {
        if left.len() == KEPT_MAX {
            left.remove(0);
        }
        left.push((sizes, seams.data, seams.metadata));
    });
}
