//! `dolmen volume quota`.

use dolmen_api::{RemoveQuota, SetQuota, verb};

use crate::arguments::quota::{QuotaCommand, folder_word};
use crate::commands::space::space_words;
use crate::error::CliError;
use crate::session::change::Session;
use crate::session::client::call;
use crate::views::quotas::show_quotas;

/// `dolmen volume quota`
pub(crate) fn quota(session: &mut Session<'_, '_>, command: &QuotaCommand) -> Result<(), CliError> {
    match command {
        QuotaCommand::Set(arguments) => {
            let request = SetQuota {
                folder: folder_word(&arguments.folder),
                limit_bytes: arguments.size.0,
                limit_files: arguments.files,
                dry_run: false,
            };
            let asked = call::<verb::SetQuota>(space_words(&arguments.volume));
            session.change(&asked, &request, arguments.dry.intent()).map(drop)
        }
        QuotaCommand::List(target) => {
            let document = session.client.look(&call::<verb::ListQuotas>(space_words(&target.space)))?;
            session.show(&document, show_quotas);
            Ok(())
        }
        QuotaCommand::Remove(arguments) => {
            let request = RemoveQuota { folder: folder_word(&arguments.folder), dry_run: false };
            let asked = call::<verb::RemoveQuota>(space_words(&arguments.volume));
            session.change(&asked, &request, arguments.dry.intent()).map(drop)
        }
    }
}
