//! Places of the rows that the log names, looked up once for each row of an opening.

use std::collections::{BTreeMap, BTreeSet};

use dolmen_block_io::sync::join_all;
use dolmen_future_pool::pooled;
use dolmen_pool::RecoveredBlock;
use dolmen_units::{Lsn, RowId, SpaceId};

use crate::format::error::SpaceError;
use crate::format::record::entries;
use crate::table::place::holder_of;
use crate::table::space::Shared;

/// Rows whose places are looked up beside each other.
const LOOKED_UP_TOGETHER: usize = 32;

/// Places of the rows that the log names: the space, hidden or not, and the index there. A row that no place names has none.
pub(crate) struct Holders(BTreeMap<RowId, (SpaceId, u64)>);

impl Holders {
    /// Looks the rows up in the map, a few at a time.
    #[pooled]
    pub(crate) async fn of(shared: &Shared, rows: BTreeSet<RowId>) -> Result<Self, SpaceError> {
        let (mut holders, mut rows) = (BTreeMap::new(), rows.into_iter().peekable());
        while rows.peek().is_some() {
            let some = rows.by_ref().take(LOOKED_UP_TOGETHER);
            let found = join_all(some.map(async |row| (row, holder_of(&shared.pool, row).await)));
            for (row, holder) in found.await {
                holders.extend(holder?.map(|holder| (row, holder)));
            }
        }
        Ok(Self(holders))
    }

    /// Returns the place of a row.
    pub(crate) fn get(&self, row: RowId) -> Option<(SpaceId, u64)> {
        self.0.get(&row).copied()
    }
}

/// Returns the ids of all rows that records name.
///
/// # Errors
/// The LSN of a malformed record.
pub(crate) fn rows_of(blocks: &[RecoveredBlock]) -> Result<BTreeSet<RowId>, Lsn> {
    let mut rows = BTreeSet::new();
    for block in blocks {
        let recorded = block.as_recorded();
        for entry in entries(recorded.body) {
            rows.insert(entry.ok_or(recorded.lsn)?.row());
        }
    }
    Ok(rows)
}
