//! The user of the system that `dolmen-web` runs as, and the socket on which it reaches the API.
//!
//! The folder of the sockets stays closed to all others: its group becomes that of the user, which may pass through it, and list
//! nothing. The other sockets there are their owner's alone, by their modes.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::sync::OnceLock;

use dolmen_api::CallerRole;
use tokio::net::UnixListener;

/// File with the users of the system. Users of a directory service run no `dolmen-web`.
const USERS_FILE: &str = "/etc/passwd";
/// Mode of the folder: its owner's, and passable for its group.
const FOLDER_MODE: u32 = 0o710;
/// Mode of the socket: of its owner and its group.
const SOCKET_MODE: u32 = 0o660;
/// Bits of a folder's mode that concern others than its owner.
const OTHERS: u32 = 0o077;
/// Bit of a mode that lets all users pass through a folder.
const ALL_PASS: u32 = 0o001;

/// The user, who may be added to the system while the daemon runs.
#[derive(Debug)]
pub(crate) struct WebUser {
    name: String,
    role_max: CallerRole,
    /// Known since the socket was made.
    uid: OnceLock<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ids {
    uid: u32,
    gid: u32,
}

impl WebUser {
    pub(crate) fn new(name: String, role_max: CallerRole) -> Self {
        Self { name, role_max, uid: OnceLock::new() }
    }

    /// Returns whether a process of this user is `dolmen-web`.
    pub(crate) fn is(&self, uid: u32) -> bool {
        self.uid.get() == Some(&uid)
    }

    /// Returns the highest role of its requests.
    pub(crate) fn role_max(&self) -> CallerRole {
        self.role_max
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Makes its socket; none while the system has no such user.
    pub(crate) fn bind(&self, path: &Path) -> io::Result<Option<UnixListener>> {
        // A daemon of another user cannot give a socket away.
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let Some(ids) = ids_of(&std::fs::read_to_string(USERS_FILE)?, &self.name) else { return Ok(None) };
        // Root needs no socket of its own, and would make every process of root one of the console.
        if ids.uid == 0 {
            let message = format!("user {} is root; name another user with --web-user", self.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        if let Some(folder) = path.parent() {
            open_folder(folder, ids.gid)?;
        }
        let listener = UnixListener::bind(path)?;
        let opened = chown(path, None, Some(ids.gid))
            .and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)));
        if let Err(error) = opened {
            let _ = std::fs::remove_file(path);
            return Err(error);
        }
        let _ = self.uid.set(ids.uid);
        Ok(Some(listener))
    }
}

/// Lets a group pass through a folder that is its owner's alone. What somebody else has set stays.
fn open_folder(folder: &Path, gid: u32) -> io::Result<()> {
    let found = std::fs::metadata(folder)?;
    let is_open =
        found.mode() & ALL_PASS != 0 || (found.gid() == gid && found.mode() & FOLDER_MODE == FOLDER_MODE);
    if is_open {
        return Ok(());
    }
    if found.mode() & OTHERS != 0 {
        let message = format!(
            "folder {} has mode {:o} and group {}; expected group {gid}, or mode 0700",
            folder.display(),
            found.mode() & 0o7777,
            found.gid()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    chown(folder, None, Some(gid))?;
    std::fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE))
}

/// Returns the numbers of a user and of its group.
fn ids_of(users: &str, name: &str) -> Option<Ids> {
    let mut lines = users.lines().map(|line| line.split(':'));
    let mut fields = lines.find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
    let uid = fields.nth(1)?.parse().ok()?;
    Some(Ids { uid, gid: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\ndolmen-web2:x:7:8::/:\nbroken\ndolmen-web:x:998:997::/:/x\n";
        assert_eq!(ids_of(users, "dolmen-web"), Some(Ids { uid: 998, gid: 997 }));
        assert_eq!(ids_of(users, "dolmen"), None);
        assert_eq!(ids_of(users, "broken"), None);
    }

    /// Scenario: the folder is its owner's alone, then it is open to the group, then another mode is set. It is opened once, and the
    /// other mode stays.
    #[test]
    fn a_folder_is_opened_to_the_group_and_no_further() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let mode = || std::fs::metadata(path).unwrap().mode() & 0o7777;
        let gid = std::fs::metadata(path).unwrap().gid();
        std::fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
        for _ in 0..2 {
            open_folder(path, gid).unwrap();
            assert_eq!(mode(), FOLDER_MODE);
        }
        std::fs::set_permissions(path, Permissions::from_mode(0o740)).unwrap();
        open_folder(path, gid).unwrap_err();
        assert_eq!(mode(), 0o740);
    }
}
