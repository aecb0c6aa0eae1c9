//! Looks as a client whether the servers offer a share.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use dolmen_mutation::mutation;
use dolmen_volume::record::Protocol;
use dolmen_volume::samba::{listed_shares, sections_of};
use rustix::time::Timespec;

use super::command;
use super::folder::{UNCHANGED, shared_folder};
use super::nfs_call::{self, DELAY, Found, NO_ENTRY};
use super::order::{LookAtShare, NfsServer, ProbeState, ProbeStep, Probed};
use super::samba::Samba;
use super::{ganesha, kernel, lock, remove_both};
use crate::protocol::{Failure, FailureCode, Outcome};

/// Time for a connection and for each answer.
const LIMIT: Duration = Duration::from_secs(5);
/// Look-ups of an export, and the pause between two: two seconds together. Ganesha answers while it still reads a change.
const LOOK_UPS_MAX: u32 = 20;
const LOOK_UP_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Effect of a failed look at the folder of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// Clients would get something else: the servers give the share up.
    TakenOff,
    /// Nothing is known of the folder: the servers go on.
    Kept,
}

fn effect_of(failure: &Failure) -> Effect {
    match failure.code {
        FailureCode::BadPath | FailureCode::InUse => Effect::TakenOff,
        FailureCode::Busy
        | FailureCode::ForeignData
        | FailureCode::MissingTool
        | FailureCode::Refused
        | FailureCode::ServerSettings
        | FailureCode::NoAccount
        | FailureCode::BadOrder
        | FailureCode::Unsupported
        | FailureCode::NoRoom => Effect::Kept,
    }
}

/// Probes each protocol of a share. A share whose folder lies behind a symbolic link by now, or is absent, is taken off.
pub(crate) fn probe(order: &LookAtShare) -> Result<Outcome, Failure> {
    if let Err(failure) = shared_folder(&order.volume, &order.record)
        && !mutation!(SharedFolderSeenOnce)
    {
        return match effect_of(&failure) {
            Effect::TakenOff => taken_off(order, &failure),
            Effect::Kept => Ok(not_looked_at(order, &failure)),
        };
    }
    let mut protocols = Vec::new();
    for protocol in &order.record.protocols {
        let state = match protocol {
            Protocol::Smb => smb(order)?,
            Protocol::Nfs => nfs(order)?,
        };
        protocols.push(Probed { protocol: *protocol, state });
    }
    Ok(Outcome::Probed { protocols, is_taken_off: false })
}

/// Answers that the folder of a share could not be looked at.
fn not_looked_at(order: &LookAtShare, failure: &Failure) -> Outcome {
    let why = failure.message.trim_end_matches(UNCHANGED);
    let finding = format!("{why}; the servers go on to offer it, and the next look tells more");
    let state = down(ProbeStep::Configuration, finding);
    let of = |protocol: &Protocol| Probed { protocol: *protocol, state: state.clone() };
    Outcome::Probed { protocols: order.record.protocols.iter().map(of).collect(), is_taken_off: false }
}

/// Takes a share off: clients of a share above it may have put a link in the place of a folder, which the servers follow.
fn taken_off(order: &LookAtShare, failure: &Failure) -> Result<Outcome, Failure> {
    let _lock = lock(&order.servers)?;
    remove_both(order.mark, &order.servers)?;
    let why = failure.message.trim_end_matches(UNCHANGED);
    let finding =
        format!("{why}; the servers do not offer it any more, and offer it again when the folder is there");
    let state = down(ProbeStep::Configuration, finding);
    let of = |protocol: &Protocol| Probed { protocol: *protocol, state: state.clone() };
    Ok(Outcome::Probed { protocols: order.record.protocols.iter().map(of).collect(), is_taken_off: true })
}

fn down(step: ProbeStep, finding: impl ToString) -> ProbeState {
    ProbeState::Down { step, finding: finding.to_string() }
}

fn connected(order: &LookAtShare, port: u16) -> io::Result<TcpStream> {
    let address = SocketAddr::new(order.servers.address, port);
    let stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
}

fn smb(order: &LookAtShare) -> Result<ProbeState, Failure> {
    let (servers, name) = (&order.servers, &order.record.name);
    let samba = Samba::of(servers)?;
    let registry = samba.registry()?;
    let own = sections_of(&registry, order.mark).into_iter().find(|section| name.names_section(section));
    let Some(section) = own.and_then(|section| registry.section(&section).cloned()) else {
        return Ok(down(
            ProbeStep::Configuration,
            format!("the registry has no section [{name}] of this share"),
        ));
    };
    if section.value("available") != Some("yes") {
        return Ok(down(
            ProbeStep::Configuration,
            format!("[{name}] lets no client in: no account was granted it"),
        ));
    }
    if let Err(error) = connected(order, servers.smb_port) {
        return Ok(down(
            ProbeStep::Connection,
            format!("{} port {}: {error}", servers.address, servers.smb_port),
        ));
    }
    let (port, address) = (servers.smb_port.to_string(), servers.address.to_string());
    let list = ["-m", "SMB3", "-g", "-p", &port, "-I", &address, "-L", "localhost"];
    let anonymous: Vec<&str> = list.iter().copied().chain(["-N"]).collect();
    let mut ran = samba.run("smbclient", &anonymous)?;
    if !ran.is_success() {
        // A server that lists nothing to strangers may list it to the account of this host in its domain.
        let machine: Vec<&str> = list.iter().copied().chain(["-P"]).collect();
        let second = samba.run("smbclient", &machine)?;
        if !second.is_success() {
            return Ok(down(ProbeStep::Protocol, ran.shown()));
        }
        ran = second;
    }
    // Every server lists the channel of its services.
    if !ran.output.lines().any(|line| line.starts_with("IPC|")) {
        return Ok(down(ProbeStep::Listing, format!("smbclient printed no list of shares: {}", ran.shown())));
    }
    let names = listed_shares(&ran.output);
    if names.iter().any(|listed| name.names_section(listed)) {
        return Ok(ProbeState::Up);
    }
    Ok(down(ProbeStep::Listing, format!("Samba lists {names:?}, and not {name}")))
}

fn nfs(order: &LookAtShare) -> Result<ProbeState, Failure> {
    let servers = &order.servers;
    let listed = match &servers.nfs {
        None => return Ok(down(ProbeStep::Configuration, "this host has no server for NFS")),
        Some(NfsServer::Kernel { exports_dir }) if command::is_installed("exportfs") => {
            kernel::list(exports_dir)?
        }
        Some(NfsServer::Kernel { .. }) => {
            return Ok(down(ProbeStep::Configuration, "exportfs is not installed"));
        }
        Some(NfsServer::Ganesha(ganesha)) => ganesha::list(ganesha)?,
    };
    let own = listed.iter().find(|share| share.mark == Some(order.mark) && share.is_available);
    let Some(own) = own else {
        return Ok(down(ProbeStep::Configuration, "the server has no export of this share"));
    };
    let mut stream = match connected(order, servers.nfs_port) {
        Ok(stream) => stream,
        Err(error) => {
            let finding = format!("{} port {}: {error}", servers.address, servers.nfs_port);
            return Ok(down(ProbeStep::Connection, finding));
        }
    };
    if let Err(error) = nfs_call::null(&mut stream) {
        return Ok(down(ProbeStep::Protocol, error));
    }
    // A server hides exports from hosts without a grant.
    let is_granted = order.record.networks.iter().any(|grant| grant.client.covers(servers.address));
    let found = look_up(is_granted, || nfs_call::look_up(&mut stream, &own.path));
    let finding = match found {
        Ok(Found::Path) => return Ok(ProbeState::Up),
        Ok(Found::Status(status)) => format!("{}: {}", own.path, nfs_call::name_of(status)),
        Err(error) => return Ok(down(ProbeStep::Protocol, error)),
    };
    if is_granted {
        return Ok(down(ProbeStep::Listing, finding));
    }
    Ok(ProbeState::Answers { finding: format!("{finding}; this host was not granted the share") })
}

/// Looks an export up, again while its server asks to wait, or may not have read the export yet.
fn look_up(is_granted: bool, mut look: impl FnMut() -> io::Result<Found>) -> io::Result<Found> {
    let mut found = look()?;
    for _ in 1..LOOK_UPS_MAX {
        let is_passing = match found {
            Found::Path => false,
            Found::Status(status) => status == DELAY || status == NO_ENTRY && is_granted,
        };
        if !is_passing {
            break;
        }
        // A signal ends the pause early, which costs one look-up.
        let _ = rustix::thread::nanosleep(&LOOK_UP_PAUSE);
        found = look()?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked_up(is_granted: bool, answers: &[Found]) -> (Found, usize) {
        let mut looks = 0;
        let found = look_up(is_granted, || {
            looks += 1;
            Ok(answers[(looks - 1).min(answers.len() - 1)])
        });
        (found.unwrap(), looks)
    }

    /// Scenario: the server asks to wait, has not read the export yet, or refuses this host. An export without a grant for this host
    /// stays hidden, so nothing waits for it.
    #[test]
    fn a_server_that_still_reads_a_change_is_asked_again() {
        let [delay, absent, refused] = [DELAY, NO_ENTRY, 13].map(Found::Status);
        assert_eq!(looked_up(false, &[delay, Found::Path]), (Found::Path, 2));
        assert_eq!(looked_up(true, &[absent, delay, Found::Path]), (Found::Path, 3));
        assert_eq!(looked_up(false, &[absent, Found::Path]), (absent, 1));
        assert_eq!(looked_up(true, &[refused, Found::Path]), (refused, 1));
        assert_eq!(looked_up(true, &[absent]), (absent, 20));
    }

    /// Scenario: the folder is behind a link, absent, or a file; its volume is not mounted; no descriptor is free, or the disk fails.
    #[test]
    fn a_share_is_taken_off_when_its_folder_is_known_to_be_another_one() {
        use rustix::io::Errno;
        let effect = |errno| effect_of(&super::super::folder::not_there("/srv/home/docs", errno));
        for errno in [Errno::LOOP, Errno::NOENT, Errno::NOTDIR] {
            assert_eq!(effect(errno), Effect::TakenOff, "{errno}");
        }
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO, Errno::ACCESS, Errno::INTR] {
            assert_eq!(effect(errno), Effect::Kept, "{errno}");
        }
    }

    #[test]
    fn a_share_whose_folder_became_a_link_is_taken_off() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::os::unix::fs::symlink("/etc", root.join("docs")).unwrap();
        let order = serde_json::json!({
            "volume": {"name": "tank/home", "mount_point": root, "file_system": "xfs"},
            "mark": "01020304-0506-0708-090a-0b0c0d0e0f10/2/3",
            "record": {"name": "docs", "folder": "docs", "protocols": ["smb"], "desired": "served"},
            "servers": {"lock": root.join("lock"), "smb_conf": root.join("absent")},
        });
        let order: LookAtShare = serde_json::from_value(order).unwrap();
        let found = format!("{:?}", probe(&order));
        assert!(
            found.contains("symbolic link") && found.contains("any more"),
            "a link was not seen: {found}"
        );
    }
}
