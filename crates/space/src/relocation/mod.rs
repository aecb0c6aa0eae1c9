//! Another row in the place of a row, and another slab in the place of a slab.

pub(crate) mod allocator;
pub(crate) mod blanks;
pub(crate) mod destage_stripes;
pub(crate) mod drop_shadow;
pub(crate) mod exchange;
pub(crate) mod obstacles;
pub(crate) mod promote;
pub(crate) mod refill;
pub(crate) mod resync;
pub(crate) mod row_verify;
pub(crate) mod shadow_rows;
pub(crate) mod shadow_stripes;
pub(crate) mod shadow_watch;
pub(crate) mod slab_moves;
pub(crate) mod slot_switch;
pub(crate) mod unused_rows;
