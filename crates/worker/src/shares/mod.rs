//! Shares on the servers of this host: Samba, and NFS by the kernel or by Ganesha.
//!
//! | module | content |
//! |---|---|
//! | [`order`] | orders and answers |
//! | `command` | programs with a limit of time, their output apart from their errors |
//! | `folder`, `accounts` | what a share names on this host: its folder, users and groups |
//! | `rights` | rights of the folder itself, which servers cannot exceed |
//! | `samba` | sections of the registry |
//! | `kernel`, `ganesha`, `own_file` | files of exports |
//! | `probe`, `nfs_call` | a client that looks whether a server offers a share |
//!
//! Invariants:
//! - A section or a file without the mark of the share is neither changed nor deleted.
//! - A worker that dies at any step leaves no share open wider than before or than its record says; the next order ends it.
//! - Workers change the servers of a host one at a time.

mod accounts;
mod command;
mod folder;
mod ganesha;
mod kernel;
mod nfs_call;
pub mod order;
mod own_file;
mod probe;
mod rights;
mod samba;

use std::fs::{File, OpenOptions};

use dolmen_volume::record::{DesiredShare, NetworkGrant, Protocol};
use dolmen_volume::share_mark::ShareMark;
use rustix::fs::FlockOperation;
use rustix::io::FdFlags;
use rustix::time::Timespec;

use crate::protocol::{Failure, FailureCode, Outcome};
use order::{ListedShare, NfsServer, PutShare, RemoveShare, Servers};

pub(crate) use probe::probe;
pub(crate) use samba::sessions;

/// Tries to get the lock of the servers, and the pause between two: ten seconds together.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Lets the servers offer what a record says, and nothing else of this share.
pub(crate) fn put(order: &PutShare) -> Result<Outcome, Failure> {
    let PutShare { volume, mark, record, servers } = order;
    let offers = |protocol| record.desired == DesiredShare::Served && record.protocols.contains(&protocol);
    let _lock = lock(servers)?;
    let mut notes = Vec::new();
    let mut is_changed = false;
    if !offers(Protocol::Smb) && !offers(Protocol::Nfs) {
        return remove_both(*mark, servers);
    }
    let path = folder::shared_folder(volume, record)?;
    if offers(Protocol::Smb) {
        accounts::require(&record.accounts)?;
        is_changed |= samba::put(order, &path, &mut notes)?;
        rights::note_refused(&record.accounts, &path, &mut notes)?;
    } else {
        is_changed |= samba::remove(*mark, servers, &mut notes)?;
    }
    if offers(Protocol::Nfs) {
        is_changed |= put_export(order, &path, &mut notes)?;
    } else {
        is_changed |= remove_export(*mark, servers, &mut notes)?;
    }
    Ok(Outcome::Shared { is_changed, notes })
}

/// Takes a share off the servers.
pub(crate) fn remove(order: &RemoveShare) -> Result<Outcome, Failure> {
    let _lock = lock(&order.servers)?;
    remove_both(order.mark, &order.servers)
}

fn remove_both(mark: ShareMark, servers: &Servers) -> Result<Outcome, Failure> {
    let mut notes = Vec::new();
    // Both are tried: what one server refuses does not keep the other one open.
    let by_samba = samba::remove(mark, servers, &mut notes);
    let by_nfs = remove_export(mark, servers, &mut notes);
    Ok(Outcome::Shared { is_changed: by_samba? | by_nfs?, notes })
}

/// Lists what the servers are configured to offer.
pub(crate) fn list(servers: &Servers) -> Result<Outcome, Failure> {
    let mut shares: Vec<ListedShare> = samba::list(servers)?;
    match &servers.nfs {
        None => {}
        Some(NfsServer::Kernel { exports_dir }) => shares.extend(kernel::list(exports_dir)?),
        Some(NfsServer::Ganesha(ganesha)) => shares.extend(ganesha::list(ganesha)?),
    }
    Ok(Outcome::Shares { shares })
}

fn put_export(order: &PutShare, path: &str, notes: &mut Vec<String>) -> Result<bool, Failure> {
    let PutShare { volume, mark, record, servers } = order;
    let networks: &[NetworkGrant] = &record.networks;
    match &servers.nfs {
        None => Err(Failure {
            code: FailureCode::MissingTool,
            message: format!("share {}: this host has no server for NFS; no export was made", record.name),
            hint: "install nfs-kernel-server or nfs-ganesha, or leave NFS out of the share".to_owned(),
        }),
        Some(NfsServer::Kernel { exports_dir }) => {
            kernel::put(*mark, (&volume.mount_point, path), networks, exports_dir, notes)
        }
        Some(NfsServer::Ganesha(ganesha)) => ganesha::put(*mark, path, networks, ganesha, notes),
    }
}

fn remove_export(mark: ShareMark, servers: &Servers, notes: &mut Vec<String>) -> Result<bool, Failure> {
    match &servers.nfs {
        None => Ok(false),
        Some(NfsServer::Kernel { exports_dir }) => kernel::remove(mark, exports_dir, notes),
        Some(NfsServer::Ganesha(ganesha)) => ganesha::remove(mark, ganesha, notes),
    }
}

/// Locks the configuration of the servers for as long as the file lives, or a program that was started meanwhile: a program of a
/// worker that is killed still changes the server, and the next worker has to wait for its end.
fn lock(servers: &Servers) -> Result<File, Failure> {
    let path = &servers.lock;
    let failed = |code, error: &dyn std::fmt::Display, hint: &str| Failure {
        code,
        message: format!(
            "lock {} of the servers cannot be had: {error}; no share was changed",
            path.display()
        ),
        hint: hint.to_owned(),
    };
    let opened = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = opened.map_err(|error| failed(FailureCode::BadPath, &error, ""))?;
    let mut tries = LOCK_TRIES;
    while let Err(error) = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if tries == 0 {
            return Err(failed(FailureCode::Busy, &error, "another worker changes shares; ask again"));
        }
        tries -= 1;
        // A signal ends the pause early, which costs one try.
        let _ = rustix::thread::nanosleep(&LOCK_PAUSE);
    }
    rustix::io::fcntl_setfd(&file, FdFlags::empty())
        .map_err(|error| failed(FailureCode::Refused, &error, ""))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_program_of_a_killed_worker_keeps_the_next_one_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let servers: Servers = serde_json::from_value(serde_json::json!({"lock": path})).unwrap();
        let first = lock(&servers).unwrap();
        let mut program = Command::new("sleep").arg("0.5").spawn().unwrap();
        drop(first);
        let other = File::open(&path).unwrap();
        let busy = rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(busy, Err(rustix::io::Errno::WOULDBLOCK), "a program works, and the lock is free");
        let second = lock(&servers).unwrap();
        assert!(program.wait().unwrap().success());
        drop(second);
    }
}
