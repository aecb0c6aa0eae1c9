//! Lookup of the place that names a row: log entries and stale keys name rows by id.

use dolmen_pool::{Pool, PoolError, keys};
use dolmen_units::{RowId, SpaceId};

use crate::format::ids::{conversion_shadows_of, is_hidden, shadows_of};
use crate::table::row::{RowPlace, RowRecord, parse_place};

/// Returns the space, hidden or not, that has a row, and the index of the row there; none where no place names the row.
///
/// # Errors
/// [`PoolError::Corrupt`] for a record that no version writes, and the errors of the map.
pub(crate) async fn holder_of(pool: &Pool, id: RowId) -> Result<Option<(SpaceId, u64)>, PoolError> {
    let Some(value) = pool.map().get(&keys::row(id)).await? else { return Ok(None) };
    let record = RowRecord::parse(&value).ok().filter(|record| record.id == id);
    let Some(RowRecord { place: RowPlace { space, index }, .. }) = record else {
        let what = format!("an impossible record of {id}");
        return Err(PoolError::Corrupt { name: pool.name().clone(), what });
    };
    // An exchange moves the id from a hidden place to the visible one: that one is read last.
    let hidden = [shadows_of(space), conversion_shadows_of(space)];
    let hidden = hidden.into_iter().filter(|_| !is_hidden(space));
    for holder in hidden.chain([space]) {
        let place = pool.map().get(&keys::place(holder, index)).await?;
        if place.is_some_and(|place| parse_place(&place) == Ok(id)) {
            return Ok(Some((holder, index)));
        }
    }
    Ok(None)
}
