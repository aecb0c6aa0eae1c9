//! Places of rows as the map has them: a place names a row by its id, and the record of the row names the place.

use dolmen_pool::{Pool, PoolError, keys};
use dolmen_units::{RowId, SpaceId};
use zerocopy::{FromBytes, IntoBytes};

use crate::format::ids::{conversion_shadows_of, is_hidden, shadows_of};
use crate::format::raw::RawPlaceRow;
use crate::table::row::{BadRow, RowPlace, RowRecord};

/// The value of the key of a place.
pub(crate) fn encode_place(row: RowId) -> Vec<u8> {
    let raw = RawPlaceRow { row: row.0.into(), shadow: 0.into(), purpose: 0, reserved: [0; 7] };
    raw.as_bytes().to_vec()
}

/// The row that stands in a place, by the value of its key.
pub(crate) fn parse_place(value: &[u8]) -> Result<RowId, BadRow> {
    let raw = RawPlaceRow::read_from_bytes(value).map_err(|_| BadRow)?;
    let is_spare_zero = raw.shadow.get() == 0 && raw.purpose == 0 && raw.reserved == [0; 7];
    let row = RowId(raw.row.get());
    if is_spare_zero && row != RowId(0) { Ok(row) } else { Err(BadRow) }
}

/// Returns the space, hidden or not, that has a row, and the index of the row there; none where no place names the row.
///
/// # Errors
/// [`PoolError::Corrupt`] for a record that no version writes, and what the map says.
pub(crate) async fn holder_of(pool: &Pool, id: RowId) -> Result<Option<(SpaceId, u64)>, PoolError> {
    let Some(value) = pool.map().get(&keys::row(id)).await? else { return Ok(None) };
    let record = RowRecord::parse(&value).ok().filter(|record| record.id == id);
    let Some(RowRecord { place: RowPlace { space, index }, .. }) = record else {
        let what = format!("an impossible record of {id}");
        return Err(PoolError::Corrupt { name: pool.name().clone(), what });
    };
    let holders = [space, shadows_of(space), conversion_shadows_of(space)];
    for holder in holders.into_iter().take(if is_hidden(space) { 1 } else { 3 }) {
        let place = pool.map().get(&keys::place(holder, index)).await?;
        if place.is_some_and(|place| parse_place(&place) == Ok(id)) {
            return Ok(Some((holder, index)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a place names row 0, a shadow row or a purpose, or has another length: nothing is read of it.
    #[test]
    fn a_place_names_one_row() {
        let sound = encode_place(RowId(9));
        assert_eq!(parse_place(&sound), Ok(RowId(9)));
        for at in 8..24 {
            let mut bytes = sound.clone();
            bytes[at] = 1;
            assert_eq!(parse_place(&bytes), Err(BadRow), "byte {at}");
        }
        assert_eq!(parse_place(&encode_place(RowId(0))), Err(BadRow));
        assert_eq!(parse_place(&sound[..23]), Err(BadRow));
    }
}
