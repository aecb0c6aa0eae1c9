//! `dolmen share` and its commands.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use dolmen_api::{ShareAccess, ShareAccount, ShareAccountGrant, ShareAccountKind, ShareNetworkGrant};
use dolmen_units::Bytes;

use crate::arguments::common::DryRun;
use crate::arguments::values::{SpaceName, parse_size};

/// `dolmen share …`
#[derive(Debug, Subcommand)]
pub(crate) enum ShareCommand {
    /// Share a folder of a volume over SMB, NFS or both
    Create(ShareCreate),
    /// List shares, with what a client sees of them
    List(ShareFilter),
    /// Show a share, after a new look at its servers
    Show(ShareTarget),
    /// Grant rights on a share, or change them
    Grant(ShareGrant),
    /// Accept the rights over NFS that another host gave, after an import
    Accept(ShareAccept),
    /// Revoke rights on a share
    Revoke(ShareRevoke),
    /// List the clients that use a share
    Sessions(ShareTarget),
    /// Delete a share; its folder stays
    Delete(ShareDelete),
    /// Write files for the servers of this host: a domain, and discovery of shares
    Files(ShareFiles),
}

/// `dolmen share files`
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("wanted").required(true).multiple(true).args(["realm", "discovery"])))]
pub(crate) struct ShareFiles {
    /// The folder that they are written to; nothing else is changed
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Lines by which Samba becomes a member of this domain
    #[arg(long, value_name = "EXAMPLE.COM")]
    pub realm: Option<String>,
    /// The short name of the domain, or of the group of hosts; usually the first part of the realm
    #[arg(long, value_name = "NAME")]
    pub workgroup: Option<String>,
    /// Files by which Macs and Windows find the shares
    #[arg(long)]
    pub discovery: bool,
}

/// Shares of one volume, or all.
#[derive(Debug, Args)]
pub(crate) struct ShareFilter {
    /// The volume; all of them when left out
    #[arg(value_name = "POOL/SPACE")]
    pub volume: Option<SpaceName>,
}

/// A share.
#[derive(Debug, Args)]
pub(crate) struct ShareTarget {
    /// The volume, by the name of its space
    #[arg(value_name = "POOL/SPACE")]
    pub volume: SpaceName,
    /// The share, by the name that clients see
    #[arg(value_name = "SHARE")]
    pub share: String,
}

/// `dolmen share create`
#[derive(Debug, Args)]
pub(crate) struct ShareCreate {
    /// The volume, by the name of its space
    #[arg(value_name = "POOL/SPACE")]
    pub volume: SpaceName,
    /// The folder in the volume, such as docs/2026; usually all of it
    #[arg(long, value_name = "FOLDER")]
    pub path: Option<String>,
    /// Offer it over SMB under this name
    #[arg(long, value_name = "NAME")]
    pub smb: Option<String>,
    /// Offer it over NFS to an address, a network or a full host name, with :ro or :rw; may be repeated
    #[arg(long, value_name = "NETWORK:rw")]
    pub nfs: Vec<NetworkGrantWord>,
    /// Grant a user, or a group with @ in front, rights over SMB: :ro or :rw; may be repeated
    #[arg(long, value_name = "USER:rw")]
    pub grant: Vec<AccountGrantWord>,
    /// Its name if it is not offered over SMB; usually that of the folder or the volume
    #[arg(long, value_name = "NAME", conflicts_with = "smb")]
    pub name: Option<String>,
    /// Let clients of SMB in that do not encrypt
    #[arg(long, requires = "smb")]
    pub unencrypted: bool,
    /// Offer it to Time Machine of Macs, with this bound for all backups
    #[arg(long, value_name = "SIZE", requires = "smb", value_parser = parse_size, allow_hyphen_values = true)]
    pub time_machine: Option<Bytes>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen share grant`
#[derive(Debug, Args)]
pub(crate) struct ShareGrant {
    /// The share.
    #[command(flatten)]
    pub target: ShareTarget,
    /// Users, or groups with @ in front, each with :ro or :rw, over SMB
    #[arg(value_name = "USER:rw", required_unless_present = "nfs")]
    pub accounts: Vec<AccountGrantWord>,
    /// An address, a network or a full host name with :ro or :rw, over NFS; may be repeated
    #[arg(long, value_name = "NETWORK:rw")]
    pub nfs: Vec<NetworkGrantWord>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen share accept`
#[derive(Debug, Args)]
pub(crate) struct ShareAccept {
    /// The share.
    #[command(flatten)]
    pub target: ShareTarget,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen share revoke`
#[derive(Debug, Args)]
pub(crate) struct ShareRevoke {
    /// The share.
    #[command(flatten)]
    pub target: ShareTarget,
    /// Users, or groups with @ in front, over SMB
    #[arg(value_name = "USER", required_unless_present = "nfs")]
    pub accounts: Vec<AccountWord>,
    /// A host or network, over NFS; may be repeated
    #[arg(long, value_name = "NETWORK")]
    pub nfs: Vec<String>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// `dolmen share delete`
#[derive(Debug, Args)]
pub(crate) struct ShareDelete {
    /// The share.
    #[command(flatten)]
    pub target: ShareTarget,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

/// A text without a right at its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("append :ro for reading, or :rw for reading and writing, to a name")]
pub(crate) struct GrantError;

/// Reads a name with `:ro` or `:rw` behind it.
fn parse_right(text: &str) -> Result<(&str, ShareAccess), GrantError> {
    let split = text.strip_suffix(":ro").map(|name| (name, ShareAccess::ReadOnly));
    let split = split.or_else(|| text.strip_suffix(":rw").map(|name| (name, ShareAccess::ReadWrite)));
    split.filter(|(name, _)| !name.is_empty()).ok_or(GrantError)
}

/// A user, or a group with `@` in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccountWord(pub ShareAccount);

impl FromStr for AccountWord {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (to, name) = match text.strip_prefix('@') {
            Some(name) => (ShareAccountKind::Group, name),
            None => (ShareAccountKind::User, text),
        };
        Ok(Self(ShareAccount { to, name: name.to_owned() }))
    }
}

/// An account with its rights, such as `alice:rw` or `@staff:ro`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AccountGrantWord(pub ShareAccountGrant);

impl FromStr for AccountGrantWord {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, GrantError> {
        let (name, access) = parse_right(text)?;
        let Ok(AccountWord(account)) = name.parse::<AccountWord>();
        Ok(Self(ShareAccountGrant { to: account.to, name: account.name, access }))
    }
}

/// A host or network with its rights, such as `10.0.0.0/8:rw`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetworkGrantWord(pub ShareNetworkGrant);

impl FromStr for NetworkGrantWord {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, GrantError> {
        let (client, access) = parse_right(text)?;
        Ok(Self(ShareNetworkGrant { client: client.to_owned(), access }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_a_name_and_a_right() {
        for (text, to, name, access) in [
            ("alice:rw", ShareAccountKind::User, "alice", ShareAccess::ReadWrite),
            ("@staff:ro", ShareAccountKind::Group, "staff", ShareAccess::ReadOnly),
            ("EXAMPLE\\bob:ro", ShareAccountKind::User, "EXAMPLE\\bob", ShareAccess::ReadOnly),
        ] {
            let AccountGrantWord(grant) = text.parse().unwrap();
            assert_eq!((grant.to, grant.name.as_str(), grant.access), (to, name, access), "{text}");
        }
        let NetworkGrantWord(network) = "2001:db8::/32:rw".parse().unwrap();
        assert_eq!((network.client.as_str(), network.access), ("2001:db8::/32", ShareAccess::ReadWrite));
        for text in ["alice", "alice:wr", ":rw", ""] {
            assert_eq!(text.parse::<AccountGrantWord>(), Err(GrantError), "{text}");
        }
    }
}
