//! `dolmen dedup`.

use dolmen_api::{EnableDedup, EstimateDedup, RunDedup, UndoDedup, verb};

use crate::arguments::dedup::{DedupCommand, DedupEnable, ModeWord};
use crate::commands::space::space_words;
use crate::error::CliError;
use crate::session::change::Session;
use crate::session::client::call;
use crate::views::dedup::show_dedup;

/// `dolmen dedup`
pub(crate) fn dedup(session: &mut Session<'_, '_>, command: DedupCommand) -> Result<(), CliError> {
    match command {
        DedupCommand::Estimate(arguments) => {
            let request = EstimateDedup { sample_bytes: arguments.sample.map(|size| size.0), dry_run: false };
            let asked = call::<verb::EstimateDedup>(space_words(&arguments.volume));
            let change = session.change(&asked, &request, arguments.dry.intent())?;
            session.wait_for(&change, &arguments.waiting)
        }
        DedupCommand::Enable(arguments) => {
            let asked = call::<verb::EnableDedup>(space_words(&arguments.volume));
            let intent = arguments.dry.intent();
            session.change(&asked, &policy(arguments), intent).map(drop)
        }
        DedupCommand::Run(arguments) => {
            let request = RunDedup { mode: arguments.mode.map(ModeWord::mode), dry_run: false };
            let asked = call::<verb::RunDedup>(space_words(&arguments.volume));
            let change = session.change(&asked, &request, arguments.dry.intent())?;
            session.wait_for(&change, &arguments.waiting)
        }
        DedupCommand::Status(target) => {
            let document = session.client.look(&call::<verb::ShowDedup>(space_words(&target.space)))?;
            session.show(&document, show_dedup);
            Ok(())
        }
        DedupCommand::Undo(arguments) => {
            let request = UndoDedup { paths: arguments.paths, dry_run: false };
            let asked = call::<verb::UndoDedup>(space_words(&arguments.volume));
            let change = session.change(&asked, &request, arguments.dry.intent())?;
            session.wait_for(&change, &arguments.waiting)
        }
    }
}

/// Returns the request that sets a policy: a list without entries is one that was left out.
fn policy(arguments: DedupEnable) -> EnableDedup {
    let given = |list: Vec<String>| Some(list).filter(|list| !list.is_empty());
    EnableDedup {
        mode: arguments.mode.map(ModeWord::mode),
        min_age_days: arguments.min_age,
        min_file_bytes: arguments.min_size.map(|size| size.0),
        excluded_folders: given(arguments.exclude),
        excluded_names: given(arguments.exclude_name),
        memory_bytes: arguments.memory.map(|size| size.0),
        schedule: arguments.schedule,
        off: arguments.off,
        dry_run: false,
    }
}
