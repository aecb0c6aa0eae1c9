//! Small writes that wait for others, to share one record.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use dolmen_block_io::sync::Notify;
use dolmen_buffer::Shared as Bytes_;
use dolmen_units::Lsn;
use smallvec::SmallVec;

use crate::format::error::SpaceError;
use crate::format::record::{BlockState, Mapping};

/// A part of a write, with its place in the cache.
pub(crate) struct Piece {
    pub(crate) at: usize,
    pub(crate) block: u32,
    pub(crate) data: Bytes_,
    pub(crate) mapping: Mapping,
    pub(crate) reported: Rc<SharedOutcome>,
}

/// What has become of a piece, for whoever waits for it.
#[derive(Default)]
pub(crate) struct SharedOutcome {
    pub(crate) outcome: RefCell<Option<Result<Wrote, SpaceError>>>,
    pub(crate) notify: Notify,
}

impl SharedOutcome {
    pub(crate) fn report(&self, outcome: Result<Wrote, SpaceError>) {
        *self.outcome.borrow_mut() = Some(outcome);
        self.notify.notify_all();
    }
}

/// Pieces that wait to be written.
#[derive(Default)]
pub(crate) struct Gathering {
    pub(crate) waiting: RefCell<VecDeque<Piece>>,
    pub(crate) is_running: Cell<bool>,
}

impl Gathering {
    /// The first of those that wait, with those behind it that follow it in the cache, as many as make up a group.
    pub(crate) fn next(&self) -> SmallVec<[Piece; 16]> {
        let mut waiting = self.waiting.borrow_mut();
        let mut group: SmallVec<[Piece; 16]> = SmallVec::new();
        let mut bytes = 0;
        while let Some(piece) = waiting.front() {
            let follows = group
                .last()
                .is_none_or(|last| last.at == piece.at && last.block + last.mapping.count == piece.block);
            if !follows || (!group.is_empty() && bytes + piece.data.len() > GROUP_BYTES_MAX) {
                break;
            }
            bytes += piece.data.len();
            group.extend(waiting.pop_front());
        }
        group
    }
}

/// Bytes of a group, at most: a frame. What is longer by itself goes by itself.
pub(crate) const GROUP_BYTES_MAX: usize = 64 * 1024;

/// What became of a write of blocks that lie in one piece.
pub(crate) struct Wrote {
    /// Its record.
    pub(crate) lsn: Lsn,
    /// What its blocks are now.
    pub(crate) states: States,
}

/// States of blocks that are written together. More than 128 KiB of them spill to the heap: each part of a write has a list.
pub(crate) type States = SmallVec<[BlockState; 32]>;
