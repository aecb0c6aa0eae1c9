//! Shares: folders of volumes that servers of this host offer over SMB and NFS.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::status::Health;

/// Protocol of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShareProtocol {
    /// SMB, by Samba.
    Smb,
    /// NFS, by the kernel or by Ganesha.
    Nfs,
}

/// Rights on a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShareAccess {
    /// Reading alone.
    ReadOnly,
    /// Reading and writing.
    ReadWrite,
}

/// Kind of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShareAccountKind {
    /// One user.
    User,
    /// All members of a group.
    Group,
}

/// Account without its rights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareAccount {
    /// User or group.
    pub to: ShareAccountKind,
    /// Its name.
    pub name: String,
}

/// Rights of an account, over SMB.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareAccountGrant {
    /// User or group.
    pub to: ShareAccountKind,
    /// Its name.
    pub name: String,
    /// Its rights.
    pub access: ShareAccess,
}

/// Rights of a host or network, over NFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareNetworkGrant {
    /// Full name, address or network. Short names are refused: search domains choose their hosts.
    pub client: String,
    /// Its rights.
    pub access: ShareAccess,
}

/// State of a share over one protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShareState {
    /// No probe has ended yet.
    Unknown,
    /// A client on this host sees it.
    Up,
    /// The server answers; this host was granted too little to see the share.
    Answers,
    /// A step failed.
    Down,
    /// The volume is not mounted, so no server offers the share.
    Off,
}

/// Step of a share that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ShareStep {
    /// The change of the server.
    Change,
    /// The look at the server.
    Probe,
    /// The configuration has the share, and lets clients in.
    Configuration,
    /// The server takes a connection.
    Connection,
    /// The server speaks the protocol.
    Protocol,
    /// The server lists the share.
    Listing,
}

/// A share over one protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OfferedShare {
    /// Protocol.
    pub protocol: ShareProtocol,
    /// State.
    pub state: ShareState,
    /// Step that failed, if it is down.
    #[serde(default)]
    pub step: Option<ShareStep>,
    /// Finding of the last look, in words.
    #[serde(default)]
    pub finding: Option<String>,
}

/// A share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Share {
    /// Pool of its volume.
    pub pool: String,
    /// Name of its volume.
    pub volume: String,
    /// Number of its record; no other share of the volume gets it.
    pub number: u64,
    /// Name that clients see; absent if its record is not understood, as all below that comes from the record.
    #[serde(default)]
    pub name: Option<String>,
    /// Health.
    pub health: Health,
    /// Reasons, if it is not healthy.
    pub why: Vec<String>,
    /// Folder in the volume; empty for all of it.
    #[serde(default)]
    pub folder: String,
    /// Folder on this host.
    #[serde(default)]
    pub path: Option<String>,
    /// Whether servers are to offer it while its volume is mounted.
    #[serde(default)]
    pub is_to_be_served: bool,
    /// Its protocols, with what a client sees.
    #[serde(default)]
    pub protocols: Vec<OfferedShare>,
    /// Rights of accounts, over SMB.
    #[serde(default)]
    pub accounts: Vec<ShareAccountGrant>,
    /// Rights of hosts and networks, over NFS.
    #[serde(default)]
    pub networks: Vec<ShareNetworkGrant>,
    /// Whether clients of SMB have to encrypt.
    #[serde(default)]
    pub is_encryption_required: bool,
    /// Bytes that backups of Macs may take, over SMB; absent if Time Machine is not offered.
    #[serde(default)]
    pub time_machine_bytes: Option<u64>,
    /// Whether its rights over NFS wait until they are accepted, since another host gave them.
    #[serde(default)]
    pub is_held: bool,
}

/// Shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shares {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// By pool, volume and name.
    pub shares: Vec<Share>,
}

/// One share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShareDocument {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// The share.
    pub share: Share,
}

/// A client that uses a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShareSession {
    /// Protocol.
    pub protocol: ShareProtocol,
    /// Account.
    pub user: String,
    /// Address or name of the client.
    pub client: String,
    /// Version of the protocol, as the server names it.
    pub dialect: String,
    /// Cipher of the connection; absent if it is not encrypted.
    #[serde(default)]
    pub cipher: Option<String>,
    /// Beginning, as the server writes it.
    pub since: String,
    /// Files of the share that the session has open.
    pub open_files: u32,
}

/// Clients of a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShareSessions {
    /// [`SCHEMA`](crate::SCHEMA).
    pub schema: u32,
    /// One for each connection.
    pub sessions: Vec<ShareSession>,
    /// Sentences about servers that do not list their clients.
    pub unavailable: Vec<String>,
}

/// Shares a folder of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateShare {
    /// Name that clients see.
    pub name: String,
    /// Folder in the volume; all of it when left out.
    #[serde(default)]
    pub folder: Option<String>,
    /// Protocols that are to offer it.
    pub protocols: Vec<ShareProtocol>,
    /// Rights of accounts, over SMB.
    #[serde(default)]
    pub accounts: Vec<ShareAccountGrant>,
    /// Rights of hosts and networks, over NFS.
    #[serde(default)]
    pub networks: Vec<ShareNetworkGrant>,
    /// Let clients of SMB in that do not encrypt.
    #[serde(default)]
    pub is_encryption_optional: bool,
    /// Offer Time Machine over SMB, with this bound in bytes for all backups of Macs.
    #[serde(default)]
    pub time_machine_bytes: Option<u64>,
    /// Return only the plan.
    #[serde(default)]
    pub dry_run: bool,
}

/// Grants rights on a share, or changes them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantShare {
    /// Rights of accounts, over SMB.
    #[serde(default)]
    pub accounts: Vec<ShareAccountGrant>,
    /// Rights of hosts and networks, over NFS.
    #[serde(default)]
    pub networks: Vec<ShareNetworkGrant>,
    /// Return only the plan.
    #[serde(default)]
    pub dry_run: bool,
}

/// Revokes rights on a share.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeShare {
    /// Accounts that lose their rights.
    #[serde(default)]
    pub accounts: Vec<ShareAccount>,
    /// Hosts and networks that lose their rights.
    #[serde(default)]
    pub clients: Vec<String>,
    /// Return only the plan.
    #[serde(default)]
    pub dry_run: bool,
}
