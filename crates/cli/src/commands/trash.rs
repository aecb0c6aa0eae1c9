//! `dolmen trash`.

use dolmen_api::{PurgeTrash, RestoreSpace, verb};
use dolmen_units::Name;

use crate::arguments::trash::{TrashCommand, TrashPurge, TrashRestore};
use crate::commands::space::{space_words, wait_for_room};
use crate::confirm::Danger;
use crate::error::CliError;
use crate::session::change::Session;
use crate::session::client::call;
use crate::views::trash::show_trash;

/// `dolmen trash`
pub(crate) fn trash(session: &mut Session<'_, '_>, command: TrashCommand) -> Result<(), CliError> {
    match command {
        TrashCommand::List(filter) => {
            let document = match &filter.pool {
                Some(pool) => session.client.look(&call::<verb::ListTrash>([pool.as_str()]))?,
                None => session.client.look(&call::<verb::ListAllTrash>([]))?,
            };
            session.show(&document, show_trash);
            Ok(())
        }
        TrashCommand::Restore(arguments) => trash_restore(session, &arguments),
        TrashCommand::Purge(arguments) => trash_purge(session, &arguments),
    }
}

fn trash_restore(session: &mut Session<'_, '_>, arguments: &TrashRestore) -> Result<(), CliError> {
    let request = RestoreSpace { name: arguments.name.as_ref().map(ToString::to_string), dry_run: false };
    let asked = call::<verb::RestoreSpace>(space_words(&arguments.space));
    session.change(&asked, &request, arguments.dry.intent()).map(drop)
}

fn trash_purge(session: &mut Session<'_, '_>, arguments: &TrashPurge) -> Result<(), CliError> {
    let pool = match (&arguments.all, arguments.spaces.as_slice()) {
        (Some(pool), _) => pool,
        (None, []) => unreachable!("the command line asks for one of both"),
        (None, [first, others @ ..]) => {
            if let Some(other) = others.iter().find(|other| other.pool != first.pool) {
                return Err(CliError::SeveralPools { one: first.pool.clone(), other: other.pool.clone() });
            }
            &first.pool
        }
    };
    let spaces: Vec<String> = arguments.spaces.iter().map(|one| one.space.to_string()).collect();
    let whole = format!("the trash of pool {pool}");
    let one = match (arguments.all.is_some(), spaces.as_slice()) {
        (false, [meant]) => Some(in_trash(session, pool, meant)?),
        _ => None,
    };
    let danger = match &one {
        Some(one) => Danger { object: &one.object, name: &one.full, alias: Some(&one.name) },
        None => Danger { object: &whole, name: pool.as_str(), alias: None },
    };
    let asked = call::<verb::PurgeTrash>([pool.as_str()]);
    let given = arguments.consent.destroy.as_deref();
    let request = |destroy| PurgeTrash {
        spaces: spaces.clone(),
        all: arguments.all.is_some(),
        destroy,
        dry_run: false,
    };
    let change = session.destroy(&asked, &danger, given, request, arguments.dry.intent())?;
    wait_for_room(session, &change, &arguments.waiting)
}

/// A space in the trash, in words.
struct InTrash {
    object: String,
    full: String,
    name: String,
}

/// The space in the trash that is meant by a name or a number, a name first, as the daemon finds it; it refuses what is not there.
fn in_trash(session: &Session<'_, '_>, pool: &Name, meant: &str) -> Result<InTrash, CliError> {
    let trash = session.client.look(&call::<verb::ListTrash>([pool.as_str()]))?;
    let here = || trash.value.spaces.iter().filter(|space| space.can_be_restored);
    let found = here().find(|space| space.name == meant);
    let found = found.or_else(|| here().find(|space| space.id.to_string() == meant));
    let name = found.map_or(meant, |space| space.name.as_str()).to_owned();
    let full = format!("{pool}/{name}");
    let number = found.map(|space| format!(" (number {})", space.id)).unwrap_or_default();
    Ok(InTrash { object: format!("space {full}{number} in the trash"), full, name })
}
