//! `dolmen share files`: files for the servers of a host, which people put in place.
//!
//! Invariants:
//! - Dolmen writes nothing outside the folder that was named, and over no file.
//! - Lines for Samba are written only where `testparm`, if it is installed, understands them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dolmen_api::{ExitCode, SCHEMA, Shares, verb};
use dolmen_volume::samba::{
    Configuration, DomainError, DomainMember, ShareName, TIME_MACHINES_MAX, Workgroup, avahi_service,
    complaints, quiet_server, wsdd_unit,
};
use serde::Serialize;

use crate::arguments::common::Format;
use crate::arguments::share::ShareFiles;
use crate::error::{CliError, Failure};
use crate::session::change::Session;
use crate::session::client::call;
use crate::terminal::out::Out;

/// Checks configurations of Samba.
const TESTPARM: &str = "testparm";
/// Name of a group of hosts that has no domain.
const USUAL_WORKGROUP: &str = "WORKGROUP";
/// Characters of the notes of `testparm` that an error shows, at most.
const SHOWN_MAX: usize = 600;

/// Why no file was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShareFilesError {
    /// A name is none.
    #[error("{0}; nothing was written")]
    Name(#[from] DomainError),
    /// A file is there.
    #[error("{} exists already; nothing was written", path.display())]
    Exists {
        /// Path.
        path: PathBuf,
    },
    /// Samba understands something else.
    #[error(
        "Samba of this host does not understand the lines for its configuration: {finding}; nothing was written"
    )]
    NotUnderstood {
        /// What it says.
        finding: String,
    },
    /// The system refuses.
    #[error("{doing} {}", path.display())]
    Io {
        /// Operation.
        doing: &'static str,
        /// Path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl Failure for ShareFilesError {
    fn exit(&self) -> ExitCode {
        match self {
            Self::Name(_) => ExitCode::Usage,
            Self::Exists { .. } => ExitCode::Busy,
            Self::NotUnderstood { .. } => ExitCode::Config,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ExitCode::Permission
            }
            Self::Io { .. } => ExitCode::Io,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Exists { .. } => Some("name an empty folder, or move the file away".to_owned()),
            Self::NotUnderstood { .. } => Some("install a later Samba, or report it".to_owned()),
            Self::Name(_) | Self::Io { .. } => None,
        }
    }
}

/// A file that was written.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Written {
    path: PathBuf,
    /// What people do with it.
    place: &'static str,
    #[serde(skip)]
    text: String,
}

/// The result for programs.
#[derive(Debug, Serialize)]
struct FilesDocument {
    schema: u32,
    files: Vec<Written>,
    /// Whether `testparm` has read the lines for Samba; absent where there are none.
    is_checked: Option<bool>,
}

/// Carries the command out.
pub(crate) fn share_files(session: &mut Session<'_, '_>, arguments: &ShareFiles) -> Result<(), CliError> {
    let member = member_of(arguments)?;
    let time_machines = match arguments.discovery {
        true => time_machines(&session.client.look(&call::<verb::ListAllShares>([]))?.value),
        false => Vec::new(),
    };
    let files = files_of(arguments, member.as_ref(), &time_machines)?;
    let is_checked = checked(member.as_ref(), arguments.discovery)?;
    write(&arguments.folder, &files)?;
    let document = FilesDocument { schema: SCHEMA, files, is_checked };
    match session.format {
        Format::Json => {
            let text = serde_json::to_string(&document).unwrap_or_default();
            session.out.line(text);
        }
        Format::Text => show(&document, session.out),
    }
    Ok(())
}

fn show(document: &FilesDocument, out: &mut Out<'_>) {
    for file in &document.files {
        out.line(format_args!("{}: {}", file.path.display(), file.place));
    }
    if document.is_checked == Some(false) {
        out.print("warning: testparm is not installed here, so the lines for Samba were not checked");
    }
    out.print("warning: clients of Windows and macOS were not tested with these files");
}

fn member_of(arguments: &ShareFiles) -> Result<Option<DomainMember>, ShareFilesError> {
    let Some(realm) = &arguments.realm else { return Ok(None) };
    let realm: dolmen_volume::samba::Realm = realm.parse()?;
    let workgroup = match &arguments.workgroup {
        Some(name) => name.parse()?,
        None => realm.usual_workgroup()?,
    };
    Ok(Some(DomainMember { realm, workgroup }))
}

/// Returns the names of shares that Time Machine may use.
fn time_machines(shares: &Shares) -> Vec<ShareName> {
    let offered =
        shares.shares.iter().filter(|share| share.is_to_be_served && share.time_machine_bytes.is_some());
    let names = offered.filter_map(|share| share.name.as_deref()?.parse().ok());
    names.take(TIME_MACHINES_MAX).collect()
}

fn files_of(
    arguments: &ShareFiles,
    member: Option<&DomainMember>,
    time_machines: &[ShareName],
) -> Result<Vec<Written>, ShareFilesError> {
    let at = |name: &str| arguments.folder.join(name);
    let mut files = Vec::new();
    if let Some(member) = member {
        let place =
            "include it at the end of [global] in smb.conf, install winbind, and join by `net ads join`";
        files.push(Written { path: at("dolmen-domain.conf"), place, text: member.configuration() });
    }
    if arguments.discovery {
        let workgroup: Workgroup = match (member, &arguments.workgroup) {
            (Some(member), _) => member.workgroup.clone(),
            (None, Some(name)) => name.parse()?,
            (None, None) => USUAL_WORKGROUP.parse()?,
        };
        let place = "include it at the end of [global] in smb.conf";
        files.push(Written { path: at("dolmen-discovery.conf"), place, text: quiet_server() });
        let place = "copy it to /etc/avahi/services, and install avahi-daemon";
        let text = avahi_service(time_machines);
        files.push(Written { path: at("dolmen-shares.service"), place, text });
        let place = "copy it to /etc/systemd/system, install wsdd, and `systemctl enable --now dolmen-wsdd`";
        let text = wsdd_unit(&workgroup, member.is_some());
        files.push(Written { path: at("dolmen-wsdd.service"), place, text });
    }
    Ok(files)
}

/// Has `testparm` read the lines for Samba. Returns whether it did; `None` where there are no lines.
fn checked(member: Option<&DomainMember>, discovery: bool) -> Result<Option<bool>, ShareFilesError> {
    let texts: Vec<String> =
        member.map(DomainMember::configuration).into_iter().chain(discovery.then(quiet_server)).collect();
    if texts.is_empty() {
        return Ok(None);
    }
    let named = tempfile::NamedTempFile::new().and_then(|mut file| {
        file.write_all(texts.concat().as_bytes())?;
        Ok(file)
    });
    let file = named.map_err(|source| io_error("writing", Path::new("a temporary file"), source))?;
    let ran =
        Command::new(TESTPARM).arg("-s").arg(file.path()).env("LC_ALL", "C").stdin(Stdio::null()).output();
    let ran = match ran {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(false)),
        other => other.map_err(|source| io_error("running", Path::new(TESTPARM), source))?,
    };
    let notes = String::from_utf8_lossy(&ran.stderr);
    let not_understood = |finding: String| ShareFilesError::NotUnderstood { finding };
    if !ran.status.success() {
        let notes: String = notes.chars().take(SHOWN_MAX).collect();
        return Err(not_understood(format!("{TESTPARM} ended with {}: {notes:?}", ran.status)));
    }
    if let Some(complaint) = complaints(&notes).first() {
        return Err(not_understood((*complaint).to_owned()));
    }
    let tested = Configuration::parse(&String::from_utf8_lossy(&ran.stdout));
    let tested = tested.map_err(|error| not_understood(error.to_string()))?;
    match member.map(|member| member.faults(&tested)).unwrap_or_default().first() {
        Some(fault) => Err(not_understood(fault.clone())),
        None => Ok(Some(true)),
    }
}

fn io_error(doing: &'static str, path: &Path, source: io::Error) -> ShareFilesError {
    ShareFilesError::Io { doing, path: path.to_owned(), source }
}

/// Writes the files, none over one that is there.
fn write(folder: &Path, files: &[Written]) -> Result<(), ShareFilesError> {
    if let Some(file) = files.iter().find(|file| file.path.symlink_metadata().is_ok()) {
        return Err(ShareFilesError::Exists { path: file.path.clone() });
    }
    fs::create_dir_all(folder).map_err(|source| io_error("making", folder, source))?;
    for file in files {
        let written =
            File::create_new(&file.path).and_then(|mut opened| opened.write_all(file.text.as_bytes()));
        written.map_err(|source| io_error("writing", &file.path, source))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(folder: &Path, discovery: bool) -> ShareFiles {
        let realm = Some("ad.example.com".to_owned());
        ShareFiles { folder: folder.to_owned(), realm, workgroup: None, discovery }
    }

    /// Scenario: files of a domain with discovery are written twice. The second time nothing is, since they are there.
    #[test]
    fn a_file_that_is_there_is_not_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let asked = arguments(&folder.path().join("new"), true);
        let member = member_of(&asked).unwrap();
        let names = ["Backups".parse().unwrap()];
        let files = files_of(&asked, member.as_ref(), &names).unwrap();
        assert_eq!(files.len(), 4);
        write(&asked.folder, &files).unwrap();
        let text = fs::read_to_string(asked.folder.join("dolmen-shares.service")).unwrap();
        assert!(text.contains("adVN=Backups"), "{text}");
        fs::remove_file(&files[0].path).unwrap();
        let refused = write(&asked.folder, &files).unwrap_err();
        assert!(matches!(refused, ShareFilesError::Exists { .. }), "{refused}");
        assert!(!files[0].path.exists(), "a refused command has written a file");
    }

    /// Scenario: `testparm` of this host reads the lines for a domain.
    #[test]
    fn samba_of_this_host_understands_the_lines_for_a_domain() {
        let member = member_of(&arguments(Path::new("/x"), true)).unwrap().unwrap();
        match checked(Some(&member), true).unwrap() {
            Some(true) => {}
            other => println!("skipped: testparm is not installed ({other:?})"),
        }
        assert_eq!(checked(None, false).unwrap(), None);
    }
}
