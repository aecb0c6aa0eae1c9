//! Servers of this host, as the worker is given them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dolmen_worker::shares::order::{Ganesha, NfsServer, Servers};

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

/// Returns the server for NFS: that of the kernel where its tools are installed, else Ganesha.
fn nfs() -> Option<NfsServer> {
    if is_installed("exportfs") {
        return Some(NfsServer::Kernel { exports_dir: PathBuf::from(EXPORTS) });
    }
    (is_installed("ganesha.nfsd") && Path::new(GANESHA_CONF).exists()).then(|| {
        NfsServer::Ganesha(Ganesha {
            ganesha_conf: PathBuf::from(GANESHA_CONF),
            blocks_dir: PathBuf::from(GANESHA_BLOCKS),
            pid_file: PathBuf::from(GANESHA_PID),
        })
    })
}

/// Returns the servers that a file of settings names, or else those that this host has. For a thread that may wait.
pub(super) fn servers(lock: &Path, settings: Option<&Path>) -> io::Result<Servers> {
    let Some(path) = settings else {
        // All other fields have the usual values of the protocol.
        let usual = serde_json::json!({ "lock": lock });
        let servers: Servers = serde_json::from_value(usual).map_err(io::Error::other)?;
        return Ok(Servers { nfs: nfs(), ..servers });
    };
    let failed = |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
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
        let text = serde_json::json!({"lock": lock, "smb_conf": "/x/smb.conf", "smb_port": 4450}).to_string();
        fs::write(&path, text).unwrap();
        let named = servers(&lock, Some(&path)).unwrap();
        assert_eq!((named.smb_conf.as_path(), named.smb_port), (Path::new("/x/smb.conf"), 4450));
        fs::write(&path, "no JSON").unwrap();
        let error = servers(&lock, Some(&path)).unwrap_err().to_string();
        assert!(error.contains("servers.json"), "{error}");
    }
}
