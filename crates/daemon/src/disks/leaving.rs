//! What a disk has to be before it leaves, and what that takes.

use std::rc::Rc;

use dolmen_api::{ErrorBody, ErrorCode, shell_word};
use dolmen_placement::Offer;
use dolmen_pool::{Disk, Role};
use dolmen_space::{ConversionForecast, RemovalForecast, Space};

use crate::answer::Answer;
use crate::open_pool::OpenPool;
use crate::plan::{Figures, Undo, usual_room};
use crate::spaces::{Narrowings, called, has_no_room};
use crate::words::counted;

/// Nothing else is being made of a disk.
pub(crate) fn check_that_it_is_alone(pool: &OpenPool, disk: &Disk) -> Answer<()> {
    let replacements = pool.spaces.pool().members().replacements();
    if let Some((old, new)) = replacements.iter().find(|(old, new)| [old.id(), new.id()].contains(&disk.id()))
    {
        let message = format!("{} is being replaced by {}; nothing was changed", old.name(), new.name());
        return Err(ErrorBody::new(ErrorCode::Busy, message).hint(format!(
            "let that end, or call it off: `dolmen disk replace {} {} --cancel`",
            pool.name(),
            old.slot().0
        )));
    }
    Ok(())
}

/// Nothing is begun that cannot end: there are other disks, and nothing that only an absent one has.
pub(crate) fn check_that_it_may_leave(pool: &OpenPool, disk: &Disk) -> Answer<()> {
    check_that_it_is_alone(pool, disk)?;
    let name = disk.name();
    if pool.spaces.pool().disks().len() < 2 {
        let message = format!("{name} is the only disk of the pool; nothing was changed");
        return Err(ErrorBody::new(ErrorCode::Busy, message).hint(format!(
            "`dolmen pool destroy {}` gives the disk back with all that is on it gone",
            pool.name()
        )));
    }
    if !disk.is_present() {
        let single = pool.spaces.kept();
        let single = single.iter().filter(|space| {
            let has_none = pool.spaces.moves().has_nothing_on(disk, space.id());
            space.spec().resiliency.redundancy() == 0 && space.claimed().0 > 0 && !has_none
        });
        let names: Vec<String> = single.map(|space| called(pool, space)).collect();
        if !names.is_empty() {
            let message = format!(
                "{name} is absent, and {} {} no other copy of what it may hold; nothing was changed",
                names.join(", "),
                if names.len() == 1 { "has" } else { "have" }
            );
            return Err(ErrorBody::new(ErrorCode::NoSuchDevice, message).hint(format!(
                "attach {name} and `dolmen disk online` it first, or delete these spaces if it is lost for good"
            )));
        }
    }
    Ok(())
}

/// What a disk has finds a place on the others, as it is.
pub(crate) fn check_that_it_fits(pool: &OpenPool, disk: &Disk, forecast: &RemovalForecast) -> Answer<()> {
    if forecast.stuck.is_empty() { Ok(()) } else { Err(has_no_room(pool, disk, forecast)) }
}

pub(crate) fn undo_of_removing(pool: &OpenPool, disk: &Disk) -> Undo {
    if !disk.is_present() {
        return Undo::By(format!(
            "dolmen pool remove {} {} --cancel, until it has ended",
            pool.name(),
            disk.slot().0
        ));
    }
    let (pool, slot, name) = (pool.name(), disk.slot().0, disk.name());
    let name = shell_word(&name);
    Undo::By(format!(
        "dolmen pool remove {pool} {slot} --cancel, or, when it has ended, dolmen pool add {pool} {name}"
    ))
}

pub(crate) fn steps_of_removing(
    pool: &OpenPool,
    disk: &Disk,
    forecast: &RemovalForecast,
    narrower: &Narrowings,
) -> Vec<String> {
    let mut steps = vec![steps_of_moving(pool, disk, forecast)];
    steps.extend(narrower.spaces.iter().map(|(space, of)| narrowing_step(pool, space, of)));
    steps.push(format!("evict {} from the pool", disk.name()));
    steps
}

/// What a pool has to offer before and behind the removal of a disk.
pub(crate) fn figures_of_removing(
    pool: &OpenPool,
    forecast: &RemovalForecast,
    narrower: &Narrowings,
) -> Figures {
    let laid_again = |(space, of): &(Space, ConversionForecast)| of.rows * space.row_bytes();
    let moved = forecast.moved.0 + narrower.spaces.iter().map(laid_again).sum::<u64>();
    Figures { before: usual_room(&pool.offers()), after: usual_room(&narrower.left), moved }
}

/// How what a disk has comes to the others.
pub(crate) fn steps_of_moving(pool: &OpenPool, disk: &Disk, forecast: &RemovalForecast) -> String {
    let (name, rows, moved) = (disk.name(), counted(forecast.rows, "row", "rows"), forecast.moved);
    match disk.is_present() {
        true => format!("move what {name} has of {rows}, {moved}, to the other disks of {}", pool.name()),
        false => format!("rebuild on other disks what {name} had of {rows}, {moved}"),
    }
}

pub(crate) fn narrowing_step(pool: &OpenPool, space: &Space, of: &ConversionForecast) -> String {
    format!(
        "make {} of {}/{} narrower, as wide as the disks that stay; they take {} then, and {} now; clients go on meanwhile",
        counted(of.rows, "row", "rows"),
        pool.name(),
        space.name(),
        of.claimed,
        of.freed
    )
}

pub(crate) fn role_in_words(role: Option<Role>) -> &'static str {
    match role {
        None => "takes data",
        Some(Role::Spare) => "is a spare, which takes the place of a disk that is lost",
        Some(Role::Idle) => "is retired: it holds nothing, and stays a member",
    }
}

/// Returns what a spare will offer once it takes rows.
pub(crate) fn offer_of_spare(pool: &OpenPool, spare: Option<&Rc<Disk>>) -> Vec<Offer> {
    spare.and_then(|spare| pool.spaces.pool().free_space().offer_as_member(spare)).into_iter().collect()
}
