//! The record of a share: a folder of a volume that servers offer to clients.

use super::{Unknown, host_id, value_of_the_map};
use crate::mount_point::Folder;
use crate::nfs::Client;
use crate::samba::{AccountName, ShareName};
use dolmen_mutation::mutation;
use dolmen_units::HostId;
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
    /// Bytes that backups of Macs may take, over SMB; none if Time Machine is not offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_machine_bytes: Option<u64>,
    /// Rights of hosts and networks, over NFS.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<NetworkGrant>,
    /// Host that gave the rights over NFS, or accepted them. On another host, the same addresses belong to other machines.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "host_id")]
    pub granted_by: Option<HostId>,
    /// Fields of later builds.
    #[serde(flatten)]
    pub unknown: Unknown,
}

value_of_the_map!(ShareRecord, "share");

impl ShareRecord {
    /// Returns whether the rights over NFS wait until people accept them, because another host gave them.
    #[must_use]
    pub fn is_held(&self, host: HostId) -> bool {
        !self.networks.is_empty() && self.granted_by != Some(host)
    }

    /// Returns the record as servers of a host may offer it: without rights over NFS that are held.
    #[must_use]
    pub fn offered_by(&self, host: HostId) -> Self {
        let mut offered = self.clone();
        if self.is_held(host) && !mutation!(ForeignGrantServed) {
            offered.networks.clear();
        }
        offered
    }

    /// Notes that the rights over NFS are those of a host.
    pub fn accept(&mut self, host: HostId) {
        self.granted_by = Some(host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a record of an earlier build, of this host, of another one, and one without rights over NFS.
    #[test]
    fn rights_over_nfs_that_another_host_gave_are_held() {
        let (here, elsewhere) = (HostId([1; 16]), HostId([2; 16]));
        let text = br#"{"version":1,"name":"docs","protocols":["nfs"],"desired":"served",
                       "networks":[{"client":"10.0.0.0/8","access":"read-only"}]}"#;
        let mut record = ShareRecord::decode(text).unwrap();
        assert!(record.is_held(here), "the host of an earlier build is not known");
        record.accept(elsewhere);
        let read = ShareRecord::decode(&record.encode().unwrap()).unwrap();
        assert_eq!(read, record);
        assert_eq!(read.offered_by(here).networks, [], "a right of another host is offered");
        assert_eq!(read.offered_by(elsewhere), read);
        record.accept(here);
        assert_eq!((record.is_held(here), record.offered_by(here)), (false, record.clone()));
        record.networks.clear();
        record.granted_by = None;
        assert!(!record.is_held(here), "no right is held");
    }
}
