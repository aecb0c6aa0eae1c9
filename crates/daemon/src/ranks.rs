//! Ranks of the daemon's locks, which it holds while the engine takes its own: all of them stand below those.

use dolmen_block_io::ranks::Rank;

pub(crate) const CHANGES: Rank = Rank::new(2, "changes of the set of pools");
pub(crate) const VOLUME: Rank = Rank::new(3, "changes of a volume");
pub(crate) const POOL: Rank = Rank::new(4, "changes of a pool");
pub(crate) const RECORDING: Rank = Rank::new(5, "recording of the history of a pool");
pub(crate) const HISTORY_READS: Rank = Rank::new(9, "questions about history");
pub(crate) const SLAB_MAPS: Rank = Rank::new(1, "walks for the slab map of a pool");
pub(crate) const TRANSPORTS: Rank = Rank::new(6, "start of transports");
pub(crate) const QUOTAS: Rank = Rank::new(7, "changes of the quotas of a volume");
pub(crate) const SHARES: Rank = Rank::new(8, "changes of the shares of a volume");
