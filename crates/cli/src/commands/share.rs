//! `dolmen share`.

use dolmen_api::{CreateShare, GrantShare, RevokeShare, ShareProtocol, Simple, verb};
use dolmen_units::Bytes;

use crate::arguments::quota::folder_word;
use crate::arguments::share::{ShareCommand, ShareCreate, ShareTarget};
use crate::commands::share_files::share_files;
use crate::commands::space::space_words;
use crate::error::CliError;
use crate::session::change::Session;
use crate::session::client::call;
use crate::views::shares::{show_sessions, show_share, show_shares};

/// Returns the words for a share in the path of a request.
fn share_words(target: &ShareTarget) -> [&str; 3] {
    [target.volume.pool.as_str(), target.volume.space.as_str(), &target.share]
}

/// `dolmen share`
pub(crate) fn share(session: &mut Session<'_, '_>, command: ShareCommand) -> Result<(), CliError> {
    match command {
        ShareCommand::Create(arguments) => share_create(session, arguments),
        ShareCommand::List(filter) => {
            let document = match &filter.volume {
                Some(volume) => session.client.look(&call::<verb::ListShares>(space_words(volume)))?,
                None => session.client.look(&call::<verb::ListAllShares>([]))?,
            };
            session.show(&document, show_shares);
            Ok(())
        }
        ShareCommand::Show(target) => {
            let document = session.client.look(&call::<verb::ShowShare>(share_words(&target)))?;
            session.show(&document, show_share);
            Ok(())
        }
        ShareCommand::Grant(arguments) => {
            let request = GrantShare {
                accounts: arguments.accounts.into_iter().map(|grant| grant.0).collect(),
                networks: arguments.nfs.into_iter().map(|grant| grant.0).collect(),
                dry_run: false,
            };
            let asked = call::<verb::GrantShare>(share_words(&arguments.target));
            session.change(&asked, &request, arguments.dry.intent()).map(drop)
        }
        ShareCommand::Accept(arguments) => {
            let asked = call::<verb::AcceptShare>(share_words(&arguments.target));
            session.change(&asked, &Simple::default(), arguments.dry.intent()).map(drop)
        }
        ShareCommand::Revoke(arguments) => {
            let request = RevokeShare {
                accounts: arguments.accounts.into_iter().map(|account| account.0).collect(),
                clients: arguments.nfs,
                dry_run: false,
            };
            let asked = call::<verb::RevokeShare>(share_words(&arguments.target));
            session.change(&asked, &request, arguments.dry.intent()).map(drop)
        }
        ShareCommand::Sessions(target) => {
            let document = session.client.look(&call::<verb::ListShareSessions>(share_words(&target)))?;
            session.show(&document, show_sessions);
            Ok(())
        }
        ShareCommand::Files(arguments) => share_files(session, &arguments),
        ShareCommand::Delete(arguments) => {
            let asked = call::<verb::DeleteShare>(share_words(&arguments.target));
            session.change(&asked, &Simple::default(), arguments.dry.intent()).map(drop)
        }
    }
}

fn share_create(session: &mut Session<'_, '_>, arguments: ShareCreate) -> Result<(), CliError> {
    let folder = arguments.path.as_deref().map(folder_word).filter(|folder| !folder.is_empty());
    let last = folder.as_deref().and_then(|folder| folder.rsplit('/').next());
    let usual = last.unwrap_or(arguments.volume.space.as_str()).to_owned();
    let protocols = [
        arguments.smb.is_some().then_some(ShareProtocol::Smb),
        (!arguments.nfs.is_empty()).then_some(ShareProtocol::Nfs),
    ];
    let request = CreateShare {
        name: arguments.smb.or(arguments.name).unwrap_or(usual),
        folder,
        protocols: protocols.into_iter().flatten().collect(),
        accounts: arguments.grant.into_iter().map(|grant| grant.0).collect(),
        networks: arguments.nfs.into_iter().map(|grant| grant.0).collect(),
        is_encryption_optional: arguments.unencrypted,
        time_machine_bytes: arguments.time_machine.map(|Bytes(bytes)| bytes),
        dry_run: false,
    };
    let asked = call::<verb::CreateShare>(space_words(&arguments.volume));
    session.change(&asked, &request, arguments.dry.intent()).map(drop)
}
