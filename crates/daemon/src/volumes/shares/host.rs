//! Servers of this host, as the worker is given them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dolmen_worker::shares::order::{Ganesha, NfsServer, Servers};

use crate::volumes::host::has_nfs_server;

/// Folders of the programs of servers.
const PATH: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Folder of files of exports of the kernel's server.
const EXPORTS: &str = "/etc/exports.d";
/// Configuration of Ganesha.
const GANESHA_CONF: &str = "/etc/ganesha/ganesha.conf";
/// Folder of Dolmen's blocks, which that configuration has to read by `%dir`.
const GANESHA_BLOCKS: &str = "/etc/ganesha/dolmen";
/// File with the id of the process of Ganesha.
const GANESHA_PID: &str = "/run/ganesha/ganesha.pid";

fn is_installed(program: &str) -> bool {
    PATH.iter().any(|folder| Path::new(folder).join(program).is_file())
}

/// What a host has for NFS.
#[derive(Debug, Clone, Copy)]
struct NfsParts {
    /// Whether the tools of the kernel's server are installed.
    exportfs: bool,
    /// Whether the kernel has or can load its server.
    nfsd: bool,
    /// Whether Ganesha is installed, with its configuration.
    ganesha: bool,
}

impl NfsParts {
    fn of_host() -> Self {
        Self {
            exportfs: is_installed("exportfs"),
            nfsd: has_nfs_server(),
            ganesha: is_installed("ganesha.nfsd") && Path::new(GANESHA_CONF).exists(),
        }
    }

    /// Returns the server for NFS: that of the kernel where there is one with its tools, else Ganesha.
    fn server(self) -> Option<NfsServer> {
        if self.exportfs && self.nfsd {
            return Some(NfsServer::Kernel { exports_dir: PathBuf::from(EXPORTS) });
        }
        self.ganesha.then(|| {
            NfsServer::Ganesha(Ganesha {
                ganesha_conf: PathBuf::from(GANESHA_CONF),
                blocks_dir: PathBuf::from(GANESHA_BLOCKS),
                pid_file: PathBuf::from(GANESHA_PID),
            })
        })
    }

    /// Returns what is missing for NFS, and the packages that have it.
    fn missing(self) -> (String, &'static str) {
        let kernel = match (self.nfsd, self.exportfs) {
            (false, _) => "its kernel has no NFS server (nfsd)",
            (true, false) => "exportfs, which the NFS server of the kernel needs, is not installed",
            (true, true) => "its settings name no server for NFS",
        };
        let hint = match self.nfsd {
            true => {
                "install nfs-kernel-server (nfs-utils on some distributions), or nfs-ganesha and nfs-ganesha-vfs"
            }
            false => "install nfs-ganesha and nfs-ganesha-vfs, or boot a kernel with CONFIG_NFSD",
        };
        (format!("{kernel}, and there is no Ganesha with {GANESHA_CONF}"), hint)
    }
}

/// Returns what this host lacks to offer anything over NFS, with the packages that have it. For a thread that may wait.
pub(super) fn missing_for_nfs() -> (String, &'static str) {
    NfsParts::of_host().missing()
}

/// Returns the servers that a file of settings names, or else those that this host has. For a thread that may wait.
pub(super) fn servers(lock: &Path, settings: Option<&Path>) -> io::Result<Servers> {
    let Some(path) = settings else {
        // All other fields have the usual values of the protocol.
        let usual = serde_json::json!({ "lock": lock });
        let servers: Servers = serde_json::from_value(usual).map_err(io::Error::other)?;
        return Ok(Servers { nfs: NfsParts::of_host().server(), ..servers });
    };
    let failed = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
    let mut servers: Servers = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    if servers.lock.as_os_str().is_empty() {
        lock.clone_into(&mut servers.lock);
    }
    Ok(servers)
}

/// Returns whether a server may have shares at all. For a thread that may wait.
pub(super) fn is_any(servers: &Servers) -> bool {
    servers.nfs.is_some() || servers.smb_conf.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: no file of settings, one that names Samba, one that is no JSON.
    #[test]
    fn servers_are_those_of_the_settings_or_the_usual_ones() {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join("lock");
        let usual = servers(&lock, None).unwrap();
        assert_eq!((usual.lock.as_path(), usual.smb_port), (lock.as_path(), 445));
        let path = folder.path().join("servers.json");
        let text = serde_json::json!({"smb_conf": "/x/smb.conf", "smb_port": 4450}).to_string();
        fs::write(&path, text).unwrap();
        let named = servers(&lock, Some(&path)).unwrap();
        assert_eq!((named.smb_conf.as_path(), named.smb_port), (Path::new("/x/smb.conf"), 4450));
        assert_eq!(named.lock, lock, "settings without a lock get that of the daemon");
        for (text, place, finding) in [
            ("no JSON", "line 1 column 2", "expected"),
            ("{\n\"smb_port\": \"many\"}", "line 2 column 18", "expected u16"),
            ("{\"samba\": 1}", "line 1 column 8", "unknown field `samba`, expected one of `lock`"),
        ] {
            fs::write(&path, text).unwrap();
            let error = servers(&lock, Some(&path)).unwrap_err().to_string();
            assert!(
                error.contains("servers.json") && error.contains(place) && error.contains(finding),
                "{error}"
            );
        }
    }

    /// Scenario: each combination of the kernel's server, its tools and Ganesha. A server is chosen where one can run, and what is
    /// missing is named otherwise.
    #[test]
    fn a_server_for_nfs_is_one_that_can_run() {
        for exportfs in [false, true] {
            for nfsd in [false, true] {
                for ganesha in [false, true] {
                    let parts = NfsParts { exportfs, nfsd, ganesha };
                    match parts.server() {
                        Some(NfsServer::Kernel { .. }) => assert!(exportfs && nfsd, "{parts:?}"),
                        Some(NfsServer::Ganesha(_)) => assert!(ganesha && !(exportfs && nfsd), "{parts:?}"),
                        None => assert!(!(ganesha || exportfs && nfsd), "{parts:?}"),
                    }
                }
            }
        }
        let missing = |exportfs, nfsd| NfsParts { exportfs, nfsd, ganesha: false }.missing();
        let (finding, hint) = missing(true, false);
        assert!(finding.contains("kernel has no NFS server") && hint.contains("nfs-ganesha"), "{finding}");
        let (finding, hint) = missing(false, true);
        assert!(finding.contains("exportfs") && hint.contains("nfs-kernel-server"), "{finding}");
    }
}
