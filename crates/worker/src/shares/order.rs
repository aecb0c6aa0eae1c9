//! Orders about shares, and their answers.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use dolmen_volume::file_system::FileSystem;
use dolmen_volume::mount_point::MountPoint;
use dolmen_volume::record::{Protocol, ShareRecord};
use dolmen_volume::share_mark::ShareMark;
use serde::{Deserialize, Serialize};

/// Lets the servers offer what a record says: all of it, or nothing if its desired state is off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PutShare {
    /// Volume of the share.
    pub volume: SharedVolume,
    /// Identity of the share.
    pub mark: ShareMark,
    /// Record of the share.
    pub record: ShareRecord,
    /// Servers of this host.
    pub servers: Servers,
}

/// Takes a share off the servers, by its identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveShare {
    /// Identity of the share.
    pub mark: ShareMark,
    /// Servers of this host.
    pub servers: Servers,
}

/// Looks as a client whether servers offer a share, or lists the clients that use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LookAtShare {
    /// Volume of the share.
    pub volume: SharedVolume,
    /// Identity of the share.
    pub mark: ShareMark,
    /// Record of the share.
    pub record: ShareRecord,
    /// Servers of this host.
    pub servers: Servers,
}

/// Volume of a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedVolume {
    /// `POOL/NAME`, for people.
    pub name: String,
    /// Place that it is mounted on.
    pub mount_point: MountPoint,
    /// Its file system.
    pub file_system: FileSystem,
    /// Device that has to be mounted there. Without it the folder itself is shared, whatever it lies on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<PathBuf>,
}

/// Servers of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Servers {
    /// File that workers lock while they change a server: one for each host. The daemon names one in settings that have none.
    #[serde(default)]
    pub lock: PathBuf,
    /// Configuration of Samba, as an absolute path.
    #[serde(default = "usual_smb_conf")]
    pub smb_conf: PathBuf,
    /// Server for NFS; `None` if there is none.
    #[serde(default)]
    pub nfs: Option<NfsServer>,
    /// Address at which a probe reaches the servers.
    #[serde(default = "usual_address")]
    pub address: IpAddr,
    /// Port of Samba.
    #[serde(default = "usual_smb_port")]
    pub smb_port: u16,
    /// Port of the server for NFS.
    #[serde(default = "usual_nfs_port")]
    pub nfs_port: u16,
}

/// A server for NFS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum NfsServer {
    /// That of the kernel.
    Kernel {
        /// Folder of files of exports: `/etc/exports.d`, which `exportfs` alone knows.
        exports_dir: PathBuf,
    },
    /// Ganesha.
    Ganesha(Ganesha),
}

/// Files of Ganesha.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ganesha {
    /// Its configuration: read, never written.
    pub ganesha_conf: PathBuf,
    /// Folder of blocks, which the configuration reads by `%dir`. A new block is written beside the folder first.
    pub blocks_dir: PathBuf,
    /// File with the id of its process.
    pub pid_file: PathBuf,
}

fn usual_smb_conf() -> PathBuf {
    PathBuf::from("/etc/samba/smb.conf")
}

const fn usual_address() -> IpAddr {
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

const fn usual_smb_port() -> u16 {
    445
}

const fn usual_nfs_port() -> u16 {
    2049
}

/// A share that a server is configured to offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedShare {
    /// Protocol.
    pub protocol: Protocol,
    /// Name of the section for SMB; file or client for NFS.
    pub name: String,
    /// Folder on this host; empty if the configuration names none.
    pub path: String,
    /// Identity of the share; `None` if Dolmen did not write it.
    pub mark: Option<ShareMark>,
    /// Whether the server lets clients in.
    pub is_available: bool,
}

/// Finding of a probe about one protocol.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// Protocol.
    pub protocol: Protocol,
    /// State.
    #[serde(flatten)]
    pub state: ProbeState,
}

/// State of a share, as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ProbeState {
    /// The server lists it.
    Up,
    /// The server answers, and this host was granted too little to see the share.
    Answers {
        /// Answer of the server.
        finding: String,
    },
    /// A step failed.
    Down {
        /// First step that failed.
        step: ProbeStep,
        /// Finding of the step.
        finding: String,
    },
}

/// Steps of a probe, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeStep {
    /// The configuration has the share, and lets clients in.
    Configuration,
    /// The server takes a connection.
    Connection,
    /// The server speaks the protocol.
    Protocol,
    /// The server lists the share.
    Listing,
}

/// A client that uses a share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Protocol.
    pub protocol: Protocol,
    /// Account.
    pub user: String,
    /// Address or name of the client.
    pub client: String,
    /// Version of the protocol, as the server names it.
    pub dialect: String,
    /// Cipher of the connection; `None` if it is not encrypted.
    pub cipher: Option<String>,
    /// Beginning, as the server writes it.
    pub since: String,
    /// Files of the share that the client's session has open.
    pub open_files: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Operation;

    #[test]
    fn orders_read_back_and_unknown_fields_are_refused() {
        let servers = serde_json::json!({"lock": "/run/dolmen/servers.lock", "nfs": {"by": "kernel", "exports_dir": "/etc/exports.d"}});
        let volume =
            serde_json::json!({"name": "tank/home", "mount_point": "/srv/home", "file_system": "xfs"});
        let record = serde_json::json!({"name": "docs", "protocols": ["smb", "nfs"], "desired": "served"});
        let mark = "01020304-0506-0708-090a-0b0c0d0e0f10/2/3";
        for name in ["share_put", "share_remove", "share_list", "share_probe", "share_sessions"] {
            let mut order = serde_json::json!({"do": name, "servers": servers});
            if name != "share_list" {
                order["mark"] = mark.into();
            }
            if name != "share_list" && name != "share_remove" {
                order["volume"] = volume.clone();
                order["record"] = record.clone();
            }
            let read: Operation = serde_json::from_value(order.clone()).unwrap();
            let text = serde_json::to_string(&read).unwrap();
            assert_eq!(serde_json::from_str::<Operation>(&text).unwrap(), read, "{text}");
            order["more"] = true.into();
            assert!(serde_json::from_value::<Operation>(order).is_err(), "{name}");
        }
        let servers: Servers = serde_json::from_value(servers).unwrap();
        assert_eq!(
            (servers.smb_port, servers.nfs_port, servers.address.to_string().as_str()),
            (445, 2049, "127.0.0.1")
        );
    }
}
