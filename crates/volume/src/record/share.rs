//! The record of a share: a folder of a volume that servers offer to clients.

use super::{Unknown, value_of_the_map};
use crate::mount_point::Folder;
use crate::nfs::Client;
use crate::samba::{AccountName, ShareName};
use serde::{Deserialize, Serialize};

/// A protocol that offers a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// SMB, by Samba.
    Smb,
    /// NFS, by the kernel or by Ganesha.
    Nfs,
}

/// State of a share that people asked for last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DesiredShare {
    /// Servers offer it while its volume is mounted.
    Served,
    /// No server offers it.
    Off,
}

/// Whether clients of SMB have to encrypt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encryption {
    /// Clients without encryption are refused.
    #[default]
    Required,
    /// Clients that can encrypt do so.
    Desired,
}

impl Encryption {
    /// Returns the value of Samba's parameter.
    #[must_use]
    pub const fn parameter(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::Desired => "desired",
        }
    }

    /// Returns whether a record without the field means this.
    #[must_use]
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// Rights on a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Access {
    /// Reading alone.
    #[serde(rename = "read-only")]
    ReadOnly,
    /// Reading and writing.
    #[serde(rename = "read-write")]
    ReadWrite,
}

/// Kind of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccountKind {
    /// One user.
    User,
    /// All members of a group.
    Group,
}

/// Rights of one account, over SMB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountGrant {
    /// User or group.
    pub to: AccountKind,
    /// Name of the account, with its domain if there is one.
    pub name: AccountName,
    /// Its rights.
    pub access: Access,
    /// Fields of later builds.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Rights of one host or network, over NFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkGrant {
    /// Host or network.
    pub client: Client,
    /// Its rights.
    pub access: Access,
    /// Fields of later builds.
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A share. Without a grant of a protocol no client of that protocol gets in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareRecord {
    /// Name that clients see.
    pub name: ShareName,
    /// Folder that it offers.
    #[serde(default)]
    pub folder: Folder,
    /// Protocols that offer it.
    pub protocols: Vec<Protocol>,
    /// State that people asked for last.
    pub desired: DesiredShare,
    /// Rights of users and groups, over SMB.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accounts: Vec<AccountGrant>,
    /// Whether clients of SMB have to encrypt.
    #[serde(default, skip_serializing_if = "Encryption::is_usual")]
    pub encryption: Encryption,
    /// Rights of hosts and networks, over NFS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkGrant>,
    /// Fields of later builds.
    #[serde(flatten)]
    pub unknown: Unknown,
}

value_of_the_map!(ShareRecord, "share");
