//! `dolmen disk`.

use std::path::PathBuf;

use dolmen_api::{
    DiskRole, ForgetDisk, LocateDisk, OnlineDisk, ReplaceDisk, SetDisk, SetDiskRole, SetEnclosure, Simple,
    verb,
};
use dolmen_units::Name;

use crate::arguments::common::{Format, PoolFilter};
use crate::arguments::disk::{DiskCommand, DiskForget, DiskOnline, DiskReplace, DiskRetire, DiskSet};
use crate::confirm::Danger;
use crate::error::CliError;
use crate::session::change::{ChangeSequence, Session};
use crate::session::client::call;
use crate::session::disks::{Disks, absolute};
use crate::views::pools::{show_devices, show_disks};

/// `dolmen disk`
pub(crate) fn disk(session: &mut Session<'_, '_>, command: DiskCommand) -> Result<(), CliError> {
    match command {
        DiskCommand::List(filter) => disk_list(session, &filter),
        DiskCommand::Replace(arguments) => disk_replace(session, &arguments),
        DiskCommand::Online(arguments) => disk_online(session, &arguments),
        DiskCommand::Set(arguments) => disk_set(session, &arguments),
        DiskCommand::Retire(arguments) => disk_retire(session, &arguments),
        DiskCommand::Forget(arguments) => disk_forget(session, &arguments),
        DiskCommand::Offline(arguments) => {
            let word = disk_word(&arguments.disk);
            let asked = call::<verb::OfflineDisk>([arguments.pool.as_str(), &word]);
            session.change(&asked, &Simple::default(), arguments.dry.intent()).map(drop)
        }
        DiskCommand::Grow(arguments) => {
            let word = disk_word(&arguments.disk);
            let asked = call::<verb::GrowDisk>([arguments.pool.as_str(), &word]);
            session.change(&asked, &Simple::default(), arguments.dry.intent()).map(drop)
        }
        DiskCommand::Locate(arguments) => {
            let word = disk_word(&arguments.disk);
            let asked = call::<verb::LocateDisk>([arguments.pool.as_str(), &word]);
            let request = LocateDisk { off: arguments.off, seconds: arguments.seconds, dry_run: false };
            session.change(&asked, &request, arguments.dry.intent()).map(drop)
        }
    }
}

fn disk_list(session: &mut Session<'_, '_>, filter: &PoolFilter) -> Result<(), CliError> {
    if let Some(pool) = &filter.pool {
        if session.format == Format::Json {
            let document = session.client.look(&call::<verb::ListDisks>([pool.as_str()]))?;
            session.show(&document, |_, _| {});
            return Ok(());
        }
        let document = session.client.look(&call::<verb::ShowPool>([pool.as_str()]))?;
        show_disks(std::iter::once(&document.value.pool), session.out);
        return Ok(());
    }
    let pools = session.client.look(&call::<verb::ListPools>([]))?;
    let devices = session.client.look(&call::<verb::ListDevices>([]))?;
    session.show(&pools, |pools, out| show_disks(pools.pools.iter(), out));
    session.show(&devices, show_devices);
    Ok(())
}

/// Returns the word for a disk that the daemon understands: a path is meant from here, not from the daemon's working folder.
pub(crate) fn disk_word(disk: &str) -> String {
    let is_relative_path = disk.contains('/') && !disk.starts_with('/');
    let absolute = is_relative_path.then(|| absolute(&disk.into()).ok()).flatten();
    absolute.unwrap_or_else(|| disk.to_owned())
}

fn disk_replace(session: &mut Session<'_, '_>, arguments: &DiskReplace) -> Result<(), CliError> {
    let word = disk_word(&arguments.old);
    let disk = [arguments.pool.as_str(), &word];
    let change = if arguments.cancel {
        let asked = call::<verb::CancelReplace>(disk);
        session.change(&asked, &Simple::default(), arguments.dry.intent())?
    } else {
        let disks = Disks::read(arguments.new.as_slice(), &arguments.consent.destroy)?;
        let with = disks.absolute.concat();
        let request = |destroy: &[String]| ReplaceDisk {
            with: with.clone(),
            destroy: destroy.to_vec(),
            seen: Vec::new(),
            dry_run: false,
        };
        session.take_in(&call::<verb::ReplaceDisk>(disk), &disks, request, arguments.dry.intent())?
    };
    session.wait_for(&change, &arguments.waiting)
}

fn disk_online(session: &mut Session<'_, '_>, arguments: &DiskOnline) -> Result<(), CliError> {
    let path = arguments.path.as_ref().map(absolute).transpose()?;
    let accept_old_content = arguments.accept_old_content;
    let request = OnlineDisk { path, accept_old_content, dry_run: false };
    let asked = call::<verb::OnlineDisk>([arguments.pool.as_str(), &disk_word(&arguments.disk)]);
    let change = session.change(&asked, &request, arguments.dry.intent())?;
    session.wait_for(&change, &arguments.waiting)
}

/// `dolmen disk set`
fn disk_set(session: &mut Session<'_, '_>, arguments: &DiskSet) -> Result<(), CliError> {
    let word = disk_word(&arguments.disk);
    let disk = [arguments.pool.as_str(), &word];
    let enclosure = (arguments.enclosure.is_some() || arguments.alone).then(|| {
        let name = arguments.enclosure.as_ref().map(ToString::to_string);
        SetEnclosure { name, dry_run: false }
    });
    let bay = arguments.bay.as_ref().map(|bay| SetDisk { bay: bay.clone(), dry_run: false });
    let role = match (arguments.spare, arguments.member) {
        (true, _) => Some(DiskRole::Spare),
        (false, true) => Some(DiskRole::Member),
        (false, false) => None,
    };
    let role = role.map(|role| SetDiskRole { role, dry_run: false });
    let changes = ChangeSequence::default()
        .then::<verb::SetEnclosure>(disk, enclosure)?
        .then::<verb::SetDisk>(disk, bay)?
        .then::<verb::SetDiskRole>(disk, role)?;
    let last = session.change_in_sequence(&changes, arguments.dry.intent())?;
    last.map_or(Ok(()), |change| session.wait_for(&change, &arguments.waiting))
}

/// Disks, and what each is in: DISK@NAME, unless that is what a disk is called, or what all of them are in.
pub(crate) fn in_enclosures(disks: &[PathBuf], all: Option<&Name>) -> (Vec<PathBuf>, Vec<String>) {
    let of_all = all.map(ToString::to_string).unwrap_or_default();
    let one = |disk: &PathBuf| {
        let typed = disk.to_str().filter(|_| !disk.exists());
        match typed.and_then(|text| text.rsplit_once('@')) {
            Some((path, name)) if name.parse::<Name>().is_ok() && !path.is_empty() => {
                (PathBuf::from(path), name.to_owned())
            }
            _ => (disk.clone(), of_all.clone()),
        }
    };
    let (paths, enclosures): (Vec<PathBuf>, Vec<String>) = disks.iter().map(one).unzip();
    match enclosures.iter().all(String::is_empty) {
        true => (paths, Vec::new()),
        false => (paths, enclosures),
    }
}

/// `dolmen disk retire`
fn disk_retire(session: &mut Session<'_, '_>, arguments: &DiskRetire) -> Result<(), CliError> {
    let role = if arguments.cancel { DiskRole::Member } else { DiskRole::Retired };
    let asked = call::<verb::SetDiskRole>([arguments.pool.as_str(), &disk_word(&arguments.disk)]);
    let request = SetDiskRole { role, dry_run: false };
    let change = session.change(&asked, &request, arguments.dry.intent())?;
    session.wait_for(&change, &arguments.waiting)
}

/// `dolmen disk forget`
fn disk_forget(session: &mut Session<'_, '_>, arguments: &DiskForget) -> Result<(), CliError> {
    let asked = call::<verb::ForgetDisk>([arguments.pool.as_str(), &disk_word(&arguments.disk)]);
    let intent = arguments.dry.intent();
    if !arguments.accept_data_loss {
        let change = session.change(&asked, &ForgetDisk::default(), intent)?;
        return session.wait_for(&change, &arguments.waiting);
    }
    let object = format!("pool {} that disk {} alone had", arguments.pool, arguments.disk);
    let danger = Danger { object: &object, name: arguments.pool.as_str(), alias: None };
    let request = |destroy| ForgetDisk { accept_data_loss: true, destroy, dry_run: false };
    let given = arguments.consent.destroy.as_deref();
    let change = session.destroy(&asked, &danger, given, request, intent)?;
    session.wait_for(&change, &arguments.waiting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_in_the_enclosure_given_with_its_path() {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        let shelf: Name = "shelf".parse().unwrap();
        let (disks, enclosures) = in_enclosures(&paths(&["/no/a@one", "/no/b", "/no/c@"]), None);
        assert_eq!(disks, paths(&["/no/a", "/no/b", "/no/c@"]));
        assert_eq!(enclosures, ["one", "", ""]);
        assert_eq!(in_enclosures(&paths(&["/no/a@one", "/no/b"]), Some(&shelf)).1, ["one", "shelf"]);
        assert!(in_enclosures(&paths(&["/no/a", "/no/b@c@"]), None).1.is_empty());
        let folder = std::env::temp_dir().join(format!("dolmen@x{}", std::process::id()));
        std::fs::write(&folder, b"").unwrap();
        let (disks, enclosures) = in_enclosures(std::slice::from_ref(&folder), None);
        std::fs::remove_file(&folder).unwrap();
        assert!(disks == [folder] && enclosures.is_empty(), "a disk that is called so is that disk");
    }
}
