//! Users and groups of a share, which the system or its directory has to know.

use dolmen_volume::record::{AccountGrant, AccountKind};

use super::command;
use crate::protocol::{Failure, FailureCode};

/// Fails unless each account of a share is one of the system: an unknown name would be granted to the first who gets it later.
pub(super) fn require(accounts: &[AccountGrant]) -> Result<(), Failure> {
    for grant in accounts {
        let (database, kind) = match grant.to {
            AccountKind::User => ("passwd", "user"),
            AccountKind::Group => ("group", "group"),
        };
        let name = grant.name.as_str();
        let found = command::run("getent", &[database, "--", name])?;
        // A name of digits is looked up as a number too, and finds an account of another name.
        let is_it = |line: &str| line.split(':').next().is_some_and(|found| found.eq_ignore_ascii_case(name));
        if !found.is_success() || !found.output.lines().any(is_it) {
            return Err(Failure {
                code: FailureCode::NoAccount,
                message: format!("{kind} {name:?} is not known to this host; no server was changed"),
                hint: format!("make the account, or grant another one; `getent {database}` lists them"),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_account_is_refused() {
        let grant = |to: &str, name: &str| -> AccountGrant {
            serde_json::from_value(serde_json::json!({"to": to, "name": name, "access": "read-only"}))
                .unwrap()
        };
        require(&[grant("user", "root"), grant("group", "root")]).unwrap();
        for (to, name) in
            [("user", "no-such-user"), ("group", "no-such-group"), ("user", "0"), ("user", "-x")]
        {
            let refused = require(&[grant("user", "root"), grant(to, name)]).unwrap_err();
            assert_eq!(refused.code, FailureCode::NoAccount, "{name}");
            assert!(refused.message.contains(name), "{refused}");
        }
    }
}
