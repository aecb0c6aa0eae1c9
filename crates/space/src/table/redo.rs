//! Redos: stripes that are recorded in the log before they are put in place.

use std::rc::Rc;

use dolmen_units::{BLOCK_BYTES, Lsn};

use crate::format::record::{BlockState, Place, RedoBlock, RedoHead};
use crate::table::row::Row;

/// A stripe that is being put in place, or that was when something came between: what all of its changed blocks will be.
#[derive(Debug, Clone)]
pub(crate) struct Redo {
    pub(crate) row: Rc<Row>,
    pub(crate) stripe: u32,
    /// In the order of columns.
    pub(crate) blocks: Vec<RedoBlock>,
    /// The versions of data blocks that end with it, by block of the row.
    pub(crate) ends: Vec<(u32, Lsn)>,
    /// The record that said so last.
    pub(crate) relogged: Lsn,
    /// Whether it keeps all of its content in the cache, or only that of parity, because what is cached of data lives anyway
    /// while it is put in place.
    pub(crate) owns_all: bool,
}

impl Redo {
    /// What its record says first.
    pub(crate) fn head(&self) -> RedoHead {
        let owner = self.row.partner().filter(|_| self.row.is_shadow()).map(|owner| owner.id);
        RedoHead { row: self.row.id, owner, stripe: self.stripe, covered: false, void: false }
    }

    /// Whether it is this stripe.
    pub(crate) fn is_of(&self, row: &Row, stripe: u32) -> bool {
        self.row.id == row.id && self.stripe == stripe
    }

    /// Bytes of data that it puts in place.
    pub(crate) fn content_bytes(&self) -> u64 {
        let data = self.row.shape.data_columns();
        let is_data = |block: &&RedoBlock| block.column < data && matches!(block.state, BlockState::Valid(_));
        self.blocks.iter().filter(is_data).count() as u64 * BLOCK_BYTES
    }

    /// Blocks of the cache that are there for it alone.
    pub(crate) fn own_places(&self) -> impl Iterator<Item = Place> + '_ {
        let data = self.row.shape.data_columns();
        let own = self.blocks.iter().filter(move |block| self.owns_all || block.column >= data);
        own.filter(|block| matches!(block.state, BlockState::Valid(_))).map(|block| block.place)
    }
}
