//! Disks of the row at a place of a space: for people who ask which disk lost what.

use std::collections::BTreeSet;

use dolmen_units::DiskSlot;

use crate::format::error::SpaceError;
use crate::table::space::SpaceRows;

/// Returns the disks of the row at a byte of a space, in the order of their slots; none where nothing was written.
///
/// # Errors
/// [`SpaceError::Pool`] when the map cannot be read.
pub async fn disks_at(space: &SpaceRows, at: u64) -> Result<Vec<DiskSlot>, SpaceError> {
    space.check_stays()?;
    let index = at.checked_div(space.row_bytes()).unwrap_or(0);
    let Some(row) = space.in_doubt_row(index).await? else { return Ok(Vec::new()) };
    let disks: BTreeSet<DiskSlot> = row.record().columns.iter().flatten().map(|slab| slab.disk).collect();
    Ok(disks.into_iter().collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::rc::Rc;

    use dolmen_units::Bytes;

    use super::*;
    use crate::harness::{Bench, ROW};

    /// Scenario: a row with a shadow row, and a place behind all that was written.
    #[test]
    fn the_disks_of_a_row_are_found_and_an_unwritten_place_has_none() {
        let bench = Rc::new(Bench::new(53, 6, Bytes::mib(128)));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let space = lab.with_shadow(&spaces, ROW.0 / 2).await?;
                let first = disks_at(&space, ROW.0 - 1).await?;
                assert!(first.len() > 1, "{first:?}");
                assert_eq!(first, disks_at(&space, 0).await?);
                assert!(disks_at(&space, ROW.0 * 1000).await?.is_empty());
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}
