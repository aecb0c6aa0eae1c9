//! Exports of the kernel's server: a file for its next start, and `exportfs` for now.
//!
//! `exportfs` gets each client of the share by name. Its option for all files (`-ra`) would take away what others exported by
//! hand or for a cluster.

use std::fs;
use std::path::{Path, PathBuf};

use dolmen_mutation::mutation;
use dolmen_volume::mount_point::MountPoint;
use dolmen_volume::nfs::{
    ExportError, ListedExport, clients_of_exports, exportfs_target, exports_file, kernel_options,
    parse_exportfs, path_of_exports,
};
use dolmen_volume::record::{NetworkGrant, Protocol};
use dolmen_volume::share_mark::ShareMark;

use super::command;
use super::order::ListedShare;
use super::own_file;
use crate::protocol::{Failure, FailureCode};

/// Number of the threads of the server; absent or 0 where it does not run.
const THREADS: &str = "/proc/fs/nfsd/threads";

pub(super) fn refused(error: &ExportError) -> Failure {
    Failure { code: FailureCode::BadPath, message: error.to_string(), hint: String::new() }
}

fn file_of(mark: ShareMark, exports_dir: &Path) -> PathBuf {
    exports_dir.join(mark.file_name("exports"))
}

/// Exports of the server, those of others too.
fn listed() -> Result<Vec<ListedExport>, Failure> {
    let ran = command::succeed("exportfs", &["-v"])?;
    parse_exportfs(&ran.output).map_err(|error| Failure {
        code: FailureCode::Refused,
        message: error.to_string(),
        hint: String::new(),
    })
}

/// Ends the exports of a path to clients that `stays` does not name. The path is the share's alone.
fn unexport(path: &str, listed: &[ListedExport], stays: impl Fn(&str) -> bool) -> Result<bool, Failure> {
    let mut is_changed = false;
    for export in listed.iter().filter(|export| export.path == path && !stays(&export.client)) {
        command::succeed("exportfs", &["-u", &exportfs_target(&export.client, path)])?;
        is_changed = true;
    }
    Ok(is_changed)
}

/// Exports the folder of a share, and returns whether anything was changed.
pub(super) fn put(
    mark: ShareMark,
    (mount_point, path): (&MountPoint, &str),
    networks: &[NetworkGrant],
    exports_dir: &Path,
    notes: &mut Vec<String>,
) -> Result<bool, Failure> {
    let Some(wanted) = exports_file(path, mount_point, networks).map_err(|error| refused(&error))? else {
        notes.push("no host was granted the share over NFS, so there is no export".to_owned());
        return remove(mark, exports_dir, notes);
    };
    let file = file_of(mark, exports_dir);
    let existing = own_file::read(&file)?;
    let before = listed()?;
    let old_path = existing.as_deref().and_then(path_of_exports);
    let mut is_changed = false;
    if old_path.as_deref() != Some(path) {
        if before.iter().any(|export| export.path == path) {
            return Err(Failure {
                code: FailureCode::ForeignData,
                message: format!("{path} is exported already, and not by this share; it is left as it is"),
                hint: "end the other export; `exportfs -v` lists it".to_owned(),
            });
        }
        if let Some(old_path) = &old_path {
            is_changed |= unexport(old_path, &before, |_| false)?;
        }
    }
    if existing.as_deref() != Some(&wanted) {
        // The folder is absent until the first file of exports is made.
        let _ = fs::create_dir(exports_dir);
        let by = exports_dir.join(format!(".{}.new", mark.file_name("exports")));
        own_file::replace(&file, &by, &wanted)?;
        is_changed = true;
    }
    let granted = |client: &str| networks.iter().any(|grant| grant.client.to_string() == client);
    is_changed |= unexport(path, &before, granted)?;
    for grant in networks {
        let target = exportfs_target(&grant.client.to_string(), path);
        let options = kernel_options(grant.access, mount_point);
        let ran = command::succeed("exportfs", &["-o", &options, &target])?;
        if !ran.errors.trim().is_empty() {
            notes.push(ran.shown());
        }
    }
    let after = listed()?;
    is_changed |= after != before;
    let is_listed = |client: &str| after.iter().any(|export| export.path == path && export.client == client);
    if let Some(grant) = networks.iter().find(|grant| !is_listed(&grant.client.to_string())) {
        let message = format!("exportfs took {path} for {}, and does not list it", grant.client);
        return Err(Failure { code: FailureCode::Refused, message, hint: "see `exportfs -v`".to_owned() });
    }
    let threads = fs::read_to_string(THREADS).ok().and_then(|text| text.trim().parse::<u32>().ok());
    if threads.unwrap_or(0) == 0 {
        notes.push(
            "the NFS server of the kernel does not run; `systemctl start nfs-server` starts it".to_owned(),
        );
    }
    Ok(is_changed)
}

/// Ends the exports of a share, and returns whether there was one. The file goes last, so that a second try knows the path.
pub(super) fn remove(mark: ShareMark, exports_dir: &Path, _notes: &mut [String]) -> Result<bool, Failure> {
    let file = file_of(mark, exports_dir);
    let Some(text) = own_file::read(&file)? else { return Ok(false) };
    if let Some(path) = path_of_exports(&text) {
        unexport(&path, &listed()?, |_| false)?;
        // The list may show a path otherwise than it was given, so the clients that the file names are ended by name too.
        for client in clients_of_exports(&text) {
            // One that has ended is an error here; what counts is the list.
            command::run("exportfs", &["-u", &exportfs_target(&client, &path)])?;
        }
        require_ended(&path, &listed()?)?;
    }
    own_file::delete(&file)?;
    Ok(true)
}

/// Fails if a path is still exported, as far as a list shows that: it shows no blanks at the end of a path.
fn require_ended(path: &str, listed: &[ListedExport]) -> Result<(), Failure> {
    let is_it = |export: &&ListedExport| match mutation!(ExportLeft) {
        true => export.path == path,
        false => export.path.trim_end() == path.trim_end(),
    };
    let Some(left) = listed.iter().find(is_it) else { return Ok(()) };
    let message = format!("{path} is still exported to {} after `exportfs -u`", left.client);
    let hint = "`exportfs -v` lists it; end it with `exportfs -u`, and ask again".to_owned();
    Err(Failure { code: FailureCode::Refused, message, hint })
}

/// Lists exports, those of others too.
pub(super) fn list(exports_dir: &Path) -> Result<Vec<ListedShare>, Failure> {
    if !command::is_installed("exportfs") {
        return Ok(Vec::new());
    }
    let mut own = Vec::new();
    for (path, mark) in own_file::files(exports_dir, ".exports")? {
        let Some(mark) = mark else { continue };
        if let Some(folder) = own_file::read(&path)?.as_deref().and_then(path_of_exports) {
            own.push((folder, mark));
        }
    }
    let exports = listed()?;
    let mark_of = |path: &str| own.iter().find(|(folder, _)| folder == path).map(|(_, mark)| *mark);
    // A file that exportfs did not take opens nothing.
    let waiting = own.iter().filter(|(folder, _)| !exports.iter().any(|export| export.path == *folder));
    let waiting = waiting.map(|(folder, mark)| ListedShare {
        protocol: Protocol::Nfs,
        name: String::new(),
        path: folder.clone(),
        mark: Some(*mark),
        is_available: false,
    });
    let offered = exports.iter().map(|export| ListedShare {
        protocol: Protocol::Nfs,
        name: export.client.clone(),
        path: export.path.clone(),
        mark: mark_of(&export.path),
        is_available: true,
    });
    Ok(offered.chain(waiting).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a folder whose name ends with a blank, which the list shows without; its neighbour; nothing.
    #[test]
    fn an_export_that_is_left_is_found_whatever_ends_its_path() {
        let left = |path: &str| {
            let printed = format!("{path}      \t10.0.0.0/8(sync,rw)\n");
            require_ended("/srv/v/docs ", &parse_exportfs(&printed).unwrap())
        };
        let refused = left("/srv/v/docs").expect_err("an export was left");
        assert!(refused.message.contains("10.0.0.0/8"), "{refused}");
        assert_eq!(left("/srv/v/doc"), Ok(()));
        assert_eq!(require_ended("/srv/v/docs ", &[]), Ok(()));
    }
}
