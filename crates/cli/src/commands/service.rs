//! `dolmen service`: the files by which systemd starts the daemon, and mounts volumes.
//!
//! | file | content |
//! |---|---|
//! | `/etc/systemd/system/dolmend.service` | the daemon |
//! | `/etc/systemd/system/multi-user.target.wants/dolmend.service` | a link to it: every boot starts it |
//! | `/sbin/mount.dolmen` | the helper of mount(8) for mount units, which asks the daemon for the mount |
//! | `/etc/systemd/system/*.mount` | mount units of volumes, which the daemon writes |
//!
//! Invariant: a file without the mark of Dolmen is neither overwritten nor removed. Where a package of the system has brought the
//! service, its files are left to the package.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use dolmen_api::{ExitCode, SCHEMA, SOCKET_NAME, SOCKET_PATH, STATE_FOLDER};
use dolmen_volume::unit::{MARK, SERVICE, UnitError, WANTS_FOLDER, service_unit};
use serde::Serialize;

use crate::arguments::common::{Format, Intent};
use crate::arguments::daemon::DaemonArguments;
use crate::arguments::service::{Place, ServiceCommand, ServiceInstall};
use crate::commands::daemon::{USUAL_FOLDERS, find_program, words};
use crate::error::{CliError, Failure};
use crate::terminal::out::Out;

/// Folder of units that belong to the host.
const UNITS: &str = "/etc/systemd/system";
/// Link by which every boot starts the daemon.
const BOOT_LINK: &str = "/etc/systemd/system/multi-user.target.wants/dolmend.service";
/// Helper of mount(8).
const HELPER: &str = "/sbin/mount.dolmen";
/// Units that a package of the system may have brought; on older systems `/lib` is a folder of its own.
const PACKAGED: [&str; 2] =
    ["/usr/lib/systemd/system/dolmend.service", "/lib/systemd/system/dolmend.service"];
/// Folder that exists where systemd runs.
const SYSTEMD: &str = "/run/systemd/system";

/// A file of the service that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FilesError {
    /// A file of another origin has its name.
    #[error("{} exists, and Dolmen did not write it; nothing was changed", path.display())]
    Foreign {
        /// Path.
        path: PathBuf,
    },
    /// A package brought the service.
    #[error("a package of the system has installed the service as {}; nothing was changed", path.display())]
    Packaged {
        /// Unit of the package.
        path: PathBuf,
    },
    /// A value does not fit into the unit.
    #[error("the unit of the daemon cannot be written: {0}; nothing was changed")]
    Unit(#[from] UnitError),
    /// A path is no text.
    #[error("the unit of the daemon cannot hold {}, which is not UTF-8; nothing was changed", word.display())]
    Text {
        /// Word.
        word: OsString,
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
    /// systemd does not read its units again.
    #[error("the files are changed, and `systemctl daemon-reload` failed: {0}")]
    Reload(String),
}

impl FilesError {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { doing, path, source }
    }
}

impl Failure for FilesError {
    fn exit(&self) -> ExitCode {
        match self {
            Self::Foreign { .. } | Self::Packaged { .. } => ExitCode::Busy,
            Self::Unit(_) | Self::Text { .. } => ExitCode::Usage,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ExitCode::Permission
            }
            Self::Io { .. } | Self::Reload(_) => ExitCode::Io,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Foreign { path } => Some(format!("move {} away, and ask for it again", path.display())),
            Self::Packaged { .. } => Some(
                "put settings into /etc/default/dolmen; `systemctl disable --now dolmend.service` stops the service"
                    .to_owned(),
            ),
            Self::Reload(_) => Some("run `systemctl daemon-reload`".to_owned()),
            Self::Unit(_) | Self::Text { .. } | Self::Io { .. } => None,
        }
    }
}

/// A file of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ServiceFile {
    path: PathBuf,
    text: String,
    mode: u32,
}

/// What is at the path of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Found {
    Absent,
    Installed,
    Foreign,
}

/// The result for programs.
#[derive(Debug, Serialize)]
struct ServiceDocument {
    schema: u32,
    files: Vec<(PathBuf, Found)>,
    is_changed: bool,
}

/// Carries out a command that needs no daemon.
pub(crate) fn run(
    command: &ServiceCommand,
    socket: Option<&Path>,
    format: Format,
    out: &mut Out<'_>,
) -> Result<ExitCode, CliError> {
    match command {
        ServiceCommand::Install(arguments) => install(arguments, socket, format, out)?,
        ServiceCommand::Remove(arguments) => remove(&arguments.place, arguments.dry.intent(), format, out)?,
        ServiceCommand::Show(arguments) => show(&arguments.place, format, out)?,
        ServiceCommand::Mount(_) => unreachable!("a mount asks the daemon"),
    }
    Ok(ExitCode::Ok)
}

fn install(
    arguments: &ServiceInstall,
    socket: Option<&Path>,
    format: Format,
    out: &mut Out<'_>,
) -> Result<(), CliError> {
    check_not_packaged(&arguments.place)?;
    let own = std::env::current_exe().map_err(FilesError::io("finding", Path::new("dolmen")))?;
    let daemon = find_program(Some(&own), &USUAL_FOLDERS.map(Path::new))?;
    let daemon_arguments = rooted(&arguments.daemon)?;
    let socket = socket_of(&daemon_arguments, socket)?;
    let mut settings = words(&daemon_arguments, Some(&socket));
    settings.extend(["--units".into(), UNITS.into()]);
    let programs = Programs { own: own.into(), daemon: daemon.into(), socket: socket.into() };
    let files = files_of(&arguments.place, programs, settings)?;
    for file in &files {
        if found(&file.path)? == Found::Foreign {
            return Err(FilesError::Foreign { path: file.path.clone() }.into());
        }
    }
    let link = below(&arguments.place.root, BOOT_LINK);
    if arguments.dry.intent() == Intent::DryRun {
        if format == Format::Text {
            out.line("dry run, nothing was changed; these files would be written:");
            for file in &files {
                out.line(format_args!("\n{}\n", file.path.display()));
                out.show(&file.text);
            }
            out.line(format_args!("\n{} -> ../{SERVICE}", link.display()));
            return Ok(());
        }
        return tell(states(&arguments.place)?, false, out);
    }
    let mut is_changed = false;
    for file in &files {
        is_changed |= write(file)?;
    }
    is_changed |= enable(&link)?;
    reload(&arguments.place, is_changed)?;
    if format == Format::Json {
        return tell(states(&arguments.place)?, is_changed, out);
    }
    out.line(if is_changed {
        "the service is installed, and every boot starts it; to start it now: systemctl start dolmend.service"
    } else {
        "the service is installed already; nothing was changed"
    });
    Ok(())
}

fn remove(place: &Place, intent: Intent, format: Format, out: &mut Out<'_>) -> Result<(), CliError> {
    check_not_packaged(place)?;
    let ours: Vec<PathBuf> =
        states(place)?.into_iter().filter(|(_, found)| *found == Found::Installed).map(|one| one.0).collect();
    let is_changed = intent == Intent::Act && !ours.is_empty();
    if is_changed {
        let links = below(&place.root, UNITS).join(WANTS_FOLDER);
        for path in &ours {
            let link = path.file_name().map(|name| links.join(name));
            for path in link.iter().chain([path]) {
                remove_file(path)?;
            }
        }
        // A link of the host keeps it.
        let _ = fs::remove_dir(&links);
        reload(place, true)?;
    }
    if format == Format::Json {
        return tell(states(place)?, is_changed, out);
    }
    match (ours.is_empty(), intent) {
        (true, _) => out.line("the service is not installed; nothing was changed"),
        (false, Intent::Act) => {
            out.line("the service is removed; a daemon that runs goes on, and `dolmen stop` ends it");
        }
        (false, Intent::DryRun) => out.line("dry run, nothing was changed; these files would be removed:"),
    }
    if intent == Intent::DryRun {
        ours.iter().for_each(|path| out.line(format_args!("  {}", path.display())));
    }
    Ok(())
}

fn show(place: &Place, format: Format, out: &mut Out<'_>) -> Result<(), CliError> {
    let states = states(place)?;
    if format == Format::Json {
        return tell(states, false, out);
    }
    for (path, found) in &states {
        let word = match found {
            Found::Absent => "absent",
            Found::Installed => "installed",
            Found::Foreign => "of another origin",
        };
        out.line(format_args!("{}: {word}", path.display()));
    }
    let unit = below(&place.root, UNITS).join(SERVICE);
    if let Ok(text) = fs::read_to_string(unit) {
        out.line("");
        out.show(&text);
    }
    Ok(())
}

fn tell(files: Vec<(PathBuf, Found)>, is_changed: bool, out: &mut Out<'_>) -> Result<(), CliError> {
    let document = ServiceDocument { schema: SCHEMA, files, is_changed };
    let text = serde_json::to_string(&document);
    out.line(text.map_err(|source| CliError::Request { asked: "the service".to_owned(), source })?);
    Ok(())
}

/// Returns settings whose paths hold in every working folder.
fn rooted(arguments: &DaemonArguments) -> Result<DaemonArguments, FilesError> {
    let root = |path: &PathBuf| std::path::absolute(path).map_err(FilesError::io("naming", path));
    let root_any = |path: &Option<PathBuf>| path.as_ref().map(root).transpose();
    Ok(DaemonArguments {
        state: root(&arguments.state)?,
        run: root_any(&arguments.run)?,
        look_in: arguments.look_in.iter().map(root).collect::<Result<_, _>>()?,
        named_only: arguments.named_only,
        trash_after: arguments.trash_after,
        smartctl: root_any(&arguments.smartctl)?,
        links: root_any(&arguments.links)?,
    })
}

/// Returns the socket of a daemon with these settings, as the daemon itself chooses it.
fn socket_of(arguments: &DaemonArguments, socket: Option<&Path>) -> Result<PathBuf, FilesError> {
    if let Some(socket) = socket {
        return std::path::absolute(socket).map_err(FilesError::io("naming", socket));
    }
    Ok(match &arguments.run {
        Some(run) => run.join(SOCKET_NAME),
        None if arguments.state == Path::new(STATE_FOLDER) => PathBuf::from(SOCKET_PATH),
        None => arguments.state.join("run").join(SOCKET_NAME),
    })
}

/// Programs and the socket between them.
struct Programs {
    own: OsString,
    daemon: OsString,
    socket: OsString,
}

/// Returns the files that an installation writes.
fn files_of(
    place: &Place,
    programs: Programs,
    settings: Vec<OsString>,
) -> Result<[ServiceFile; 2], FilesError> {
    let text = |word: OsString| word.into_string().map_err(|word| FilesError::Text { word });
    let settings = settings.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let unit = service_unit(&text(programs.daemon)?, &settings)?;
    let (own, socket) = (text(programs.own)?, text(programs.socket)?);
    // The check of a program's path is the same for both.
    service_unit(&own, &[])?;
    // mount(8) adds options, which the record of the volume decides.
    let socket = format!("'{}'", socket.replace('\'', r"'\''"));
    let helper = format!(
        "#!/bin/sh\n{MARK}: mount(8) runs it for mount units of volumes.\nexec {own} --socket {socket} service mount -- \"$1\" \"$2\"\n"
    );
    Ok([
        ServiceFile { path: below(&place.root, HELPER), text: helper, mode: 0o755 },
        ServiceFile { path: below(&place.root, UNITS).join(SERVICE), text: unit, mode: 0o644 },
    ])
}

/// Refuses where a package of the system has brought the service: its files belong to the package.
fn check_not_packaged(place: &Place) -> Result<(), FilesError> {
    let mut units = PACKAGED.iter().map(|unit| below(&place.root, unit));
    units.find(|unit| unit.exists()).map_or(Ok(()), |path| Err(FilesError::Packaged { path }))
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// Returns what is at a path: a link is of another origin.
fn found(path: &Path) -> Result<Found, FilesError> {
    let kind = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Absent),
        Err(error) => return Err(FilesError::io("reading", path)(error)),
    };
    if !kind.is_file() {
        return Ok(Found::Foreign);
    }
    let text = fs::read(path).map_err(FilesError::io("reading", path))?;
    let has_mark = String::from_utf8_lossy(&text).lines().take(2).any(|line| line.starts_with(MARK));
    Ok(if has_mark { Found::Installed } else { Found::Foreign })
}

/// Returns the files of the service: those of an installation, and the mount units of volumes.
fn states(place: &Place) -> Result<Vec<(PathBuf, Found)>, FilesError> {
    let folder = below(&place.root, UNITS);
    let link = below(&place.root, BOOT_LINK);
    let link_found = match fs::read_link(&link) {
        Ok(target) if target.file_name() == Some(SERVICE.as_ref()) => Found::Installed,
        Ok(_) => Found::Foreign,
        Err(_) => Found::Absent,
    };
    let mut states = Vec::new();
    for path in [below(&place.root, HELPER), folder.join(SERVICE)] {
        let is = found(&path)?;
        states.push((path, is));
    }
    states.push((link, link_found));
    let mut mounts = Vec::new();
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|kind| kind == "mount") && found(&path)? == Found::Installed {
            mounts.push((path, Found::Installed));
        }
    }
    mounts.sort_by(|one, other| one.0.cmp(&other.0));
    states.extend(mounts);
    Ok(states)
}

/// Writes a file so that a crash leaves the old or the new one; returns whether it differed.
fn write(file: &ServiceFile) -> Result<bool, FilesError> {
    if fs::read_to_string(&file.path).is_ok_and(|text| text == file.text) {
        return Ok(false);
    }
    let folder = file.path.parent().unwrap_or(Path::new("/"));
    let written = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut fresh = tempfile::NamedTempFile::new_in(folder)?;
        fresh.write_all(file.text.as_bytes())?;
        fresh.as_file().set_permissions(fs::Permissions::from_mode(file.mode))?;
        fresh.as_file().sync_all()?;
        fresh.persist(&file.path).map_err(|error| error.error)?;
        fs::File::open(folder)?.sync_all()
    };
    written().map_err(FilesError::io("writing", &file.path))?;
    Ok(true)
}

/// Makes the link by which every boot starts the daemon; returns whether it was absent.
fn enable(link: &Path) -> Result<bool, FilesError> {
    if fs::symlink_metadata(link).is_ok() {
        return Ok(false);
    }
    let folder = link.parent().unwrap_or(Path::new("/"));
    let made = fs::create_dir_all(folder)
        .and_then(|()| symlink(Path::new("..").join(SERVICE), link))
        .and_then(|()| fs::File::open(folder)?.sync_all());
    made.map_err(FilesError::io("linking", link))?;
    Ok(true)
}

fn remove_file(path: &Path) -> Result<(), FilesError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FilesError::io("removing", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Lets systemd read its units again, where it runs and its files were changed.
fn reload(place: &Place, is_changed: bool) -> Result<(), FilesError> {
    if !is_changed || place.root != Path::new("/") || !Path::new(SYSTEMD).is_dir() {
        return Ok(());
    }
    let ran = Command::new("systemctl").arg("daemon-reload").output();
    let ran = ran.map_err(|error| FilesError::Reload(error.to_string()))?;
    if ran.status.success() {
        return Ok(());
    }
    Err(FilesError::Reload(String::from_utf8_lossy(&ran.stderr).trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(root: &Path) -> Place {
        Place { root: root.to_path_buf() }
    }

    fn files(root: &Path, settings: &[&str]) -> Result<[ServiceFile; 2], FilesError> {
        let settings = settings.iter().map(OsString::from).collect();
        let programs = Programs {
            own: "/usr/local/bin/dolmen".into(),
            daemon: "/usr/local/bin/dolmend".into(),
            socket: "/run/it's here".into(),
        };
        files_of(&place(root), programs, settings)
    }

    #[test]
    fn the_helper_of_mount_asks_for_the_volume_and_drops_options() {
        let [helper, unit] = files(Path::new("/"), &["--state", "/var/lib/dolmen"]).unwrap();
        assert_eq!((helper.path.to_str(), helper.mode), (Some("/sbin/mount.dolmen"), 0o755));
        let last = helper.text.lines().last().unwrap();
        assert_eq!(
            last,
            r#"exec /usr/local/bin/dolmen --socket '/run/it'\''s here' service mount -- "$1" "$2""#
        );
        assert_eq!(unit.path.to_str(), Some("/etc/systemd/system/dolmend.service"));
        assert!(unit.text.contains(r#"ExecStart=/usr/local/bin/dolmend "--state" "/var/lib/dolmen""#));
    }

    /// Scenario: install twice, remove beside a mount unit of Dolmen and one of the host. Only what has the mark goes.
    #[test]
    fn an_installation_is_idempotent_and_its_removal_leaves_other_files() {
        let root = tempfile::tempdir().unwrap();
        let (root, link) = (root.path(), below(root.path(), BOOT_LINK));
        let files = files(root, &[]).unwrap();
        let install = || {
            let written = files.iter().filter(|file| write(file).unwrap()).count();
            (written, enable(&link).unwrap())
        };
        assert_eq!((install(), install()), ((2, true), (0, false)));
        let units = below(root, UNITS);
        fs::write(units.join("srv-v.mount"), format!("{MARK} for a volume\n")).unwrap();
        fs::write(units.join("home.mount"), "[Mount]\n").unwrap();
        fs::create_dir(units.join(WANTS_FOLDER)).unwrap();
        symlink("../srv-v.mount", units.join(WANTS_FOLDER).join("srv-v.mount")).unwrap();
        let found: Vec<Found> = states(&place(root)).unwrap().into_iter().map(|(_, found)| found).collect();
        assert_eq!(found, [Found::Installed; 4]);
        Out::with_process_streams(|out| {
            remove(&place(root), Intent::DryRun, Format::Json, out).unwrap();
            assert!(link.exists());
            remove(&place(root), Intent::Act, Format::Json, out).unwrap();
        });
        assert!(!units.join(SERVICE).exists() && !units.join(WANTS_FOLDER).exists());
        assert!(fs::symlink_metadata(&link).is_err());
        assert_eq!(fs::read_to_string(units.join("home.mount")).unwrap(), "[Mount]\n");
    }

    /// Scenario: a package has brought the unit. Neither an installation nor a removal changes a file, and both name the unit.
    #[test]
    fn the_service_of_a_package_is_left_to_the_package() {
        let root = tempfile::tempdir().unwrap();
        let unit = below(root.path(), PACKAGED[0]);
        fs::create_dir_all(unit.parent().unwrap()).unwrap();
        fs::write(&unit, "[Service]\n").unwrap();
        let mount = below(root.path(), UNITS).join("srv-v.mount");
        fs::create_dir_all(mount.parent().unwrap()).unwrap();
        fs::write(&mount, format!("{MARK} for a volume\n")).unwrap();
        let words = ["dolmen", "service", "install", "--root", root.path().to_str().unwrap()];
        let arguments = crate::arguments::parse::parse(words.map(str::to_owned)).unwrap();
        let Some(crate::arguments::Command::Service(ServiceCommand::Install(install_arguments))) =
            &arguments.command
        else {
            unreachable!()
        };
        Out::with_process_streams(|out| {
            let refusals = [
                install(install_arguments, None, Format::Json, out).unwrap_err(),
                remove(&place(root.path()), Intent::Act, Format::Json, out).unwrap_err(),
            ];
            for refusal in refusals {
                assert!(refusal.to_string().contains("usr/lib/systemd/system/dolmend.service"), "{refusal}");
            }
        });
        assert!(mount.exists() && !below(root.path(), HELPER).exists());
    }

    #[test]
    fn the_helper_asks_the_socket_of_the_daemon() {
        let socket = |line: &str, given: Option<&str>| {
            let words = ["dolmen", "daemon"].into_iter().chain(line.split_whitespace());
            let arguments = crate::arguments::parse::parse(words).unwrap();
            let Some(crate::arguments::Command::Daemon(daemon)) = &arguments.command else { unreachable!() };
            socket_of(daemon, given.map(Path::new)).unwrap()
        };
        for (line, given, expected) in [
            ("", None, SOCKET_PATH),
            ("--state /s", None, "/s/run/dolmen.sock"),
            ("--state /s --run /r", None, "/r/dolmen.sock"),
            ("--run /r", Some("/api"), "/api"),
        ] {
            assert_eq!(socket(line, given), Path::new(expected), "{line}");
        }
    }

    #[test]
    fn a_file_of_another_origin_is_found_out() {
        let root = tempfile::tempdir().unwrap();
        let [helper, _] = files(root.path(), &[]).unwrap();
        fs::create_dir_all(helper.path.parent().unwrap()).unwrap();
        assert_eq!(found(&helper.path).unwrap(), Found::Absent);
        fs::write(&helper.path, "#!/bin/sh\n").unwrap();
        assert_eq!(found(&helper.path).unwrap(), Found::Foreign);
        fs::remove_file(&helper.path).unwrap();
        symlink("/bin/true", &helper.path).unwrap();
        assert_eq!(found(&helper.path).unwrap(), Found::Foreign);
    }
}
