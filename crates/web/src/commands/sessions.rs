//! `dolmen-web session`.

use super::{Host, date, print_table};
use crate::arguments::SessionCommand;
use crate::error::WebError;

pub(super) fn execute(host: &Host, command: SessionCommand) -> Result<(), WebError> {
    match command {
        SessionCommand::List => {
            let accounts = host.read()?;
            let rows = accounts.sessions.iter();
            let rows: Vec<_> = rows
                .map(|session| {
                    let (user, address) = (session.user.clone(), session.address.clone());
                    [session.id.clone(), user, address, date(session.created_s), date(session.seen_s)]
                })
                .collect();
            print_table(["SESSION", "USER", "ADDRESS", "SIGNED IN", "SEEN"], &rows);
            Ok(())
        }
        SessionCommand::End { id } => {
            let what = format!("end session {id}");
            host.update(what, |accounts| Ok(accounts.end_session(&id)?))
        }
    }
}
