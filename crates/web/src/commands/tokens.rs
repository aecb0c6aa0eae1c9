//! `dolmen-web token`.

use super::{HOST_USER, Host, date, print_line, print_table};
use crate::arguments::TokenCommand;
use crate::clock;
use crate::error::WebError;

pub(super) fn execute(host: &Host, command: TokenCommand) -> Result<(), WebError> {
    match command {
        TokenCommand::List => {
            let accounts = host.read()?;
            let rows = accounts.tokens.iter();
            let rows: Vec<_> = rows
                .map(|token| {
                    let role = token.role.0.word().to_owned();
                    [token.name.clone(), role, date(token.expires_s), token.created_by.clone()]
                })
                .collect();
            print_table(["TOKEN", "ROLE", "EXPIRES", "BY"], &rows);
            Ok(())
        }
        TokenCommand::Create { name, role, days } => {
            let what = format!("add token {name} as {} for {days} days", role.role().word());
            let secret = host.update(what, |accounts| {
                accounts.add_token(&name, role.role(), days, HOST_USER, clock::now().wall_s)
            })?;
            print_line(&secret);
            Ok(())
        }
        TokenCommand::Remove { name } => {
            let what = format!("remove token {name}");
            host.update(what, |accounts| Ok(accounts.remove_token(&name)?))
        }
    }
}
