//! Ranks of the pool's locks. Those of spaces stand around them, those of the metadata store and the log above.

use dolmen_block_io::ranks::Rank;

pub(crate) const CHECKPOINT: Rank = Rank::new(38, "checkpoint");
pub(crate) const STAMP: Rank = Rank::new(39, "stamp of the members");
pub(crate) const COMMIT: Rank = Rank::new(58, "commit");
pub(crate) const EPOCH: Rank = Rank::new(60, "epoch");
pub(crate) const LABEL: Rank = Rank::new(66, "label of a disk");
