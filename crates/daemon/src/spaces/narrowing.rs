//! Rows that a disk cannot leave as they are become narrower (docs/design/0020).

use std::collections::BTreeMap;

use dolmen_api::{ErrorBody, ErrorCode};
use dolmen_placement::Offer;
use dolmen_pool::{Disk, PoolError};
use dolmen_space::{ConversionForecast, Progress, RemovalForecast, Space, SpaceError};

use crate::answer::Answer;
use crate::fault;
use crate::open_pool::OpenPool;
use crate::words::counted;

/// How often rows are looked for that a disk cannot leave.
pub(crate) const PASSES: usize = 4;

/// What it takes to lay rows again that a disk cannot leave as they are.
#[derive(Default)]
pub(crate) struct Narrowings {
    pub(crate) spaces: Vec<(Space, ConversionForecast)>,
    /// What the other disks have to offer once everything has left the disk.
    pub(crate) left: Vec<Offer>,
}

/// Spaces with rows that a disk cannot leave as they are, and that can be laid without it: all of those that leave their width to
/// the pool, one after another, in what the rows that can leave have left. Where some cannot, the disk has to stay.
pub(crate) async fn narrowings(
    pool: &OpenPool,
    disk: &Disk,
    forecast: &RemovalForecast,
) -> Answer<Narrowings> {
    let left = forecast.left.iter().filter(|offer| offer.slot != disk.slot()).copied().collect();
    let mut found = Narrowings { spaces: Vec::new(), left };
    let spaces = pool.spaces.kept();
    for id in forecast.stuck.keys() {
        let space = spaces.iter().find(|space| space.id() == *id && space.trashed_at().is_none());
        let Some(space) = space.filter(|space| may_be_narrowed(space)) else {
            return Err(has_no_room(pool, disk, forecast));
        };
        let narrowed =
            pool.spaces.conversions().forecast_narrowing_to(space, disk.slot(), &mut found.left).await;
        let narrowed = narrowed.map_err(|error| fault::space(&error))?;
        if narrowed.stuck > 0 {
            return Err(has_no_room(pool, disk, forecast));
        }
        found.spaces.push((space.clone(), narrowed));
    }
    Ok(found)
}

/// Lays rows that a disk cannot leave as they are without it, as long as there are some for which that helps, and it is wanted. What
/// has no room now stays as it is, and is tried again with the disk.
pub(crate) async fn narrow(
    pool: &OpenPool,
    disk: &Disk,
    progress: &Progress,
    is_wanted: impl Fn() -> bool,
) -> Result<(), SpaceError> {
    let mut before = BTreeMap::new();
    // One that was on its way to be wider has rows of both widths behind the first pass.
    for _ in 0..PASSES {
        let stuck = pool.spaces.moves().forecast_removal(disk.slot()).await?.stuck;
        for space in pool.spaces.list() {
            let rows = stuck.get(&space.id());
            // Where the pass before changed nothing, the next one does not either.
            if rows.is_none() || rows == before.get(&space.id()) || !may_be_narrowed(&space) {
                continue;
            }
            let forecast = pool.spaces.conversions().forecast_narrowing(&space, disk.slot()).await?;
            if forecast.rows == 0 || forecast.stuck > 0 {
                continue;
            }
            match lay_again(pool, &space, progress).await {
                // Rows that can leave as they are do, and make room perhaps.
                Ok(())
                | Err(SpaceError::Pool(PoolError::NoSpace { .. }) | SpaceError::NoSpaceBelow { .. }) => {}
                Err(error) => return Err(error),
            }
            if !is_wanted() {
                return Ok(());
            }
        }
        if stuck.is_empty() || stuck == before {
            break;
        }
        before = stuck;
    }
    Ok(())
}

/// Whether a space leaves its width to the pool, and is on its way to no other layout: whoever stopped that decides on it.
pub(crate) fn may_be_narrowed(space: &Space) -> bool {
    space.spec().columns.is_none()
        && space.layout_before().is_none_or(|before| before == space.spec().layout())
}

/// Has the rows of a space be as wide as its pool is now, as far as they can be.
pub(crate) async fn lay_again(pool: &OpenPool, space: &Space, progress: &Progress) -> Result<(), SpaceError> {
    if space.layout_before().is_none() {
        pool.spaces.conversions().begin_conversion(space, space.spec().layout()).await?;
    }
    pool.spaces.conversions().convert(space, progress).await.map(drop)
}

/// Parts of rows on a disk that no other disk can take.
pub(crate) fn has_no_room(pool: &OpenPool, disk: &Disk, forecast: &RemovalForecast) -> ErrorBody {
    let name = disk.name();
    let stuck: Vec<String> = forecast
        .stuck
        .values()
        .map(|stuck| format!("{} of {}", counted(stuck.rows, "row", "rows"), stuck.name))
        .collect();
    let message = format!(
        "{} have a part on {name} that no other disk can take: too few disks, or too little room on them; nothing was changed",
        stuck.join(", ")
    );
    ErrorBody::new(ErrorCode::NoSpace, message).hint(format!(
        "add a disk first, replace {name} by another with `dolmen disk replace`, purge or trim something, or, where rows are as wide as there are disks, make them narrower with `dolmen space convert {}/SPACE --columns N`",
        pool.name()
    ))
}
