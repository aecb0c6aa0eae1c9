//! `dolmen-web user`.

use super::password::read_password;
use super::{Host, date, print_line, print_table};
use crate::accounts::{PasswordHash, Rule, check_name};
use crate::arguments::UserCommand;
use crate::clock;
use crate::error::WebError;

pub(super) fn execute(host: &Host, command: UserCommand) -> Result<(), WebError> {
    match command {
        UserCommand::List => {
            let accounts = host.read()?;
            let rows = accounts.users.iter();
            let rows: Vec<_> = rows
                .map(|user| [user.name.clone(), user.role.0.word().to_owned(), date(user.created_s)])
                .collect();
            print_table(["USER", "ROLE", "ADDED"], &rows);
            Ok(())
        }
        UserCommand::Add { name, role } => {
            check_name(&name)?;
            let password = PasswordHash::of(&read_password(&name)?)?;
            let what = format!("add user {name} as {}", role.role().word());
            host.update(what, |accounts| {
                Ok(accounts.add_user(&name, password, role.role(), clock::now().wall_s)?)
            })
        }
        UserCommand::Role { name, role } => {
            let what = format!("role of user {name}: {}", role.role().word());
            let ended = host.update(what, |accounts| Ok(accounts.set_role(&name, role.role())?))?;
            print_ended(&ended);
            Ok(())
        }
        UserCommand::Password { name } => {
            // Whoever types a password in vain learns of it before.
            if host.read()?.user(&name).is_none() {
                return Err(Rule::Unknown { what: "user", name }.into());
            }
            let password = PasswordHash::of(&read_password(&name)?)?;
            let what = format!("password of user {name}");
            host.update(what, |accounts| Ok(accounts.set_password(&name, password)?))
        }
        UserCommand::Remove { name } => {
            let what = format!("remove user {name}");
            let ended = host.update(what, |accounts| Ok(accounts.remove_user(&name)?))?;
            print_ended(&ended);
            Ok(())
        }
    }
}

/// Prints which tokens have ended with the rights of the user who made them.
fn print_ended(tokens: &[String]) {
    tokens.iter().for_each(|token| print_line(&format!("token {token} has ended")));
}
