//! Commands about shares, as texts name them. Names of shares and folders may hold any character, and may come from another host.

use dolmen_api::shell_word;
use dolmen_volume::record::{Access, AccountGrant, AccountKind, NetworkGrant, Protocol, ShareRecord};

use crate::plan::Undo;

/// Returns a command about a share: `dolmen share VERB OPTIONS VOLUME SHARE ACCOUNTS`, as a shell reads it.
pub(super) fn share_command(
    verb: &str,
    options: &[String],
    volume: &str,
    share: &str,
    accounts: &[String],
) -> String {
    let names: Vec<&str> = [volume, share].into_iter().chain(accounts.iter().map(String::as_str)).collect();
    // A name that begins with a dash would be read as an option.
    let end_of_options = names.iter().any(|name| name.starts_with('-')).then_some("--");
    let words = ["dolmen", "share", verb].into_iter().chain(options.iter().map(String::as_str));
    let words: Vec<_> = words.chain(end_of_options).chain(names).map(shell_word).collect();
    words.join(" ")
}

/// Returns the command that creates a share.
pub(super) fn create_command(volume: &str, record: &ShareRecord) -> String {
    let mut options = Vec::new();
    if !record.folder.is_root() {
        options.push(format!("--path={}", record.folder.as_str()));
    }
    let option = if record.protocols.contains(&Protocol::Smb) { "--smb" } else { "--name" };
    options.push(format!("{option}={}", record.name.as_str()));
    if !record.encryption.is_usual() {
        options.push("--unencrypted".to_owned());
    }
    options.extend(record.time_machine_bytes.map(|bytes| format!("--time-machine={bytes}")));
    options.extend(record.accounts.iter().map(|one| format!("--grant={}", granted_account(one))));
    options.extend(record.networks.iter().map(granted_network));
    let words = ["dolmen", "share", "create"].into_iter().chain(options.iter().map(String::as_str));
    let words: Vec<_> = words.chain([volume]).map(shell_word).collect();
    words.join(" ")
}

/// Returns the command that takes the rights over NFS off a share.
pub(super) fn revoke_networks_command(volume: &str, record: &ShareRecord) -> String {
    let options: Vec<String> = record.networks.iter().map(revoked_network).collect();
    share_command("revoke", &options, volume, record.name.as_str(), &[])
}

/// Returns the commands that restore the rights of before.
pub(super) fn undo_of(before: &ShareRecord, after: &ShareRecord, volume: &str) -> Undo {
    let is_new =
        |one: &&AccountGrant| !before.accounts.iter().any(|old| (old.to, &old.name) == (one.to, &one.name));
    let revoked: Vec<String> = after.accounts.iter().filter(is_new).map(account_word).collect();
    // Accepted rights are taken off again like new ones.
    let is_accepted = before.granted_by != after.granted_by;
    let is_new =
        |one: &&NetworkGrant| is_accepted || !before.networks.iter().any(|old| old.client == one.client);
    let revoked_networks: Vec<String> = after.networks.iter().filter(is_new).map(revoked_network).collect();
    let lost = before.accounts.iter().filter(|one| !after.accounts.contains(one));
    let granted: Vec<String> = lost.map(granted_account).collect();
    let lost = before.networks.iter().filter(|one| !after.networks.contains(one));
    let granted_networks: Vec<String> = lost.map(granted_network).collect();
    let share = before.name.as_str();
    let command = |verb: &str, options: &[String], accounts: &[String]| {
        let is_needed = !(options.is_empty() && accounts.is_empty());
        is_needed.then(|| share_command(verb, options, volume, share, accounts))
    };
    let commands =
        [command("revoke", &revoked_networks, &revoked), command("grant", &granted_networks, &granted)];
    let commands: Vec<String> = commands.into_iter().flatten().collect();
    if commands.is_empty() { Undo::NotNeeded } else { Undo::By(commands.join(" && ")) }
}

/// Returns an account as the command line writes it.
fn account_word(grant: &AccountGrant) -> String {
    let group = if grant.to == AccountKind::Group { "@" } else { "" };
    format!("{group}{}", grant.name.as_str())
}

fn granted_account(grant: &AccountGrant) -> String {
    format!("{}:{}", account_word(grant), right_word(grant.access))
}

fn granted_network(grant: &NetworkGrant) -> String {
    format!("--nfs={}:{}", grant.client, right_word(grant.access))
}

fn revoked_network(grant: &NetworkGrant) -> String {
    format!("--nfs={}", grant.client)
}

fn right_word(access: Access) -> &'static str {
    match access {
        Access::ReadOnly => "ro",
        Access::ReadWrite => "rw",
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::share_command;

    /// Scenario: a shell reads commands about shares whose names hold what shells obey. It finds the names as they are.
    #[test]
    fn a_shell_reads_a_name_as_it_is() {
        for name in
            ["docs", "a b", "it's", "$(id)", "`id`", "a;b", "-x", "~", "a\\b", "#x", "q\"x", "\u{fc}", "x\ny"]
        {
            let command = share_command("delete", &["--nfs=10.0.0.0/8".to_owned()], "tank/v", name, &[]);
            let read = format!("set -- {command}; printf '%s\\0' \"$@\"");
            let read = Command::new("sh").arg("-c").arg(read).output().unwrap().stdout;
            let mut expected = vec!["dolmen", "share", "delete", "--nfs=10.0.0.0/8"];
            expected.extend(name.starts_with('-').then_some("--"));
            expected.extend(["tank/v", name, ""]);
            assert_eq!(
                String::from_utf8(read).unwrap().split('\0').collect::<Vec<_>>(),
                expected,
                "{command}"
            );
        }
    }
}
