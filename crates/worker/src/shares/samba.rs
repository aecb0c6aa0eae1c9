//! Sections of Samba's registry, written by `net conf`, and the clients of a share.

use std::path::{Path, PathBuf};

use dolmen_volume::record::{AccountKind, Protocol};
use dolmen_volume::samba::{Configuration, Section, SectionError, ShareName, SmbShare};
use dolmen_volume::samba::{delete_command, sections_of, server_faults};
use dolmen_volume::share_mark::ShareMark;
use dolmen_volume::tool_versions::{self, Tool};
use serde_json::Value;

use super::command::{self, Ran};
use super::order::{ListedShare, LookAtShare, PutShare, Servers, Session};
use crate::protocol::{Failure, FailureCode, Outcome};

/// Samba with one configuration.
pub(super) struct Samba<'a> {
    path: &'a Path,
}

fn failed(code: FailureCode, message: String, hint: impl Into<String>) -> Failure {
    Failure { code, message, hint: hint.into() }
}

impl<'a> Samba<'a> {
    /// Samba, whose configuration is an absolute path: its helpers run in another folder.
    pub(super) fn of(servers: &'a Servers) -> Result<Self, Failure> {
        let path = servers.smb_conf.as_path();
        if path.is_absolute() {
            return Ok(Self { path });
        }
        let message = format!("the configuration {} of Samba is no absolute path", path.display());
        Err(failed(FailureCode::BadPath, message, "name it from the root on"))
    }

    /// Runs a program of Samba with this configuration.
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> Result<Ran, Failure> {
        command::run(program, &self.arguments(arguments)?)
    }

    fn succeed(&self, program: &str, arguments: &[&str]) -> Result<Ran, Failure> {
        command::succeed(program, &self.arguments(arguments)?)
    }

    fn arguments<'b>(&'b self, arguments: &[&'b str]) -> Result<Vec<&'b str>, Failure> {
        let path = self.path.to_str().ok_or_else(|| {
            let message = format!("the configuration {} of Samba is not UTF-8", self.path.display());
            failed(FailureCode::BadPath, message, "choose another path")
        })?;
        Ok(["-s", path].into_iter().chain(arguments.iter().copied()).collect())
    }

    /// Whole configuration, as Samba understands it.
    pub(super) fn tested(&self) -> Result<Configuration, Failure> {
        let path = self.path.to_string_lossy();
        let ran = command::succeed("testparm", &["-s", &*path])?;
        parsed(&ran.output)
    }

    /// Sections of the registry.
    pub(super) fn registry(&self) -> Result<Configuration, Failure> {
        parsed(&self.succeed("net", &["conf", "list"])?.output)
    }

    /// Carries out a command of crate `volume`.
    fn carry_out(&self, words: &[String]) -> Result<(), Failure> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.split_first() {
            Some((program, arguments)) => self.succeed(program, arguments).map(drop),
            None => Ok(()),
        }
    }

    /// Lets the server read its configuration again, and end the connections to some sections. Clients that were let in by
    /// grants of before ask again.
    fn reload(&self, closed: &[String], notes: &mut Vec<String>) -> Result<(), Failure> {
        let ran = self.run("smbcontrol", &["--", "smbd", "reload-config"])?;
        if !ran.is_success() {
            notes.push(format!(
                "smbd was not reached, so it reads the change when it starts: {}",
                ran.shown()
            ));
            return Ok(());
        }
        for name in closed {
            let ran = self.run("smbcontrol", &["--", "smbd", "close-share", name])?;
            if !ran.is_success() {
                notes.push(format!("connections to [{name}] were not ended: {}", ran.shown()));
            }
        }
        Ok(())
    }
}

fn parsed(text: &str) -> Result<Configuration, Failure> {
    Configuration::parse(text).map_err(|error| failed(FailureCode::Refused, error.to_string(), ""))
}

fn refused(error: &SectionError) -> Failure {
    let code = match error {
        SectionError::Foreign { .. } => FailureCode::ForeignData,
        SectionError::Value { .. } => FailureCode::BadPath,
        SectionError::TooOld { .. } => FailureCode::MissingTool,
    };
    failed(code, error.to_string(), "")
}

/// Fails unless the settings of the server are safe for shares.
fn require_sound(samba: &Samba<'_>, whole: &Configuration) -> Result<(), Failure> {
    let faults: Vec<String> = server_faults(whole).iter().map(ToString::to_string).collect();
    if faults.is_empty() {
        return Ok(());
    }
    let path = samba.path.display();
    let message = format!("{path}: {}; no share was changed", faults.join("; "));
    let hint = format!("change {path}, and see `testparm -s {path}`");
    Err(failed(FailureCode::ServerSettings, message, hint))
}

/// Fails unless Samba has the modules of a section: without one of them, clients cannot connect.
fn require_modules(section: &Section) -> Result<(), Failure> {
    let built = command::succeed("smbd", &["-b"])?;
    let Some(folder) = module_folder(&built.output) else {
        let message = format!("smbd -b names no folder of modules: {}", built.shown());
        return Err(failed(FailureCode::Refused, message, "report it"));
    };
    let has = |module: &&str| folder.join(format!("{module}.so")).is_file();
    match section.value("vfs objects").unwrap_or_default().split_whitespace().find(|module| !has(module)) {
        None => Ok(()),
        Some(module) => {
            let message = format!("Samba has no module {module}, without which no client could connect");
            Err(failed(FailureCode::MissingTool, message, "install samba-vfs-modules"))
        }
    }
}

/// Returns the folder of modules for shares in what `smbd -b` printed.
fn module_folder(built: &str) -> Option<PathBuf> {
    let folder = built.lines().find_map(|line| line.trim().strip_prefix("MODULESDIR:"))?;
    Some(Path::new(folder.trim()).join("vfs"))
}

/// Puts the section of a share, and returns whether anything was changed.
pub(super) fn put(order: &PutShare, path: &str, notes: &mut Vec<String>) -> Result<bool, Failure> {
    let PutShare { volume, mark, record, servers } = order;
    let samba = Samba::of(servers)?;
    let printed = command::succeed("smbd", &["-V"])?.output;
    let version = tool_versions::parse(Tool::Smbd, &printed)
        .map_err(|error| failed(FailureCode::MissingTool, error.to_string(), ""))?;
    let whole = samba.tested()?;
    require_sound(&samba, &whole)?;
    let registry = samba.registry()?;
    let name = &record.name;
    if whole.section(name.as_str()).is_some() && registry.section(name.as_str()).is_none() {
        return Err(refused(&SectionError::Foreign { name: name.to_string() }));
    }
    let share = SmbShare {
        name,
        volume: &volume.name,
        path,
        accounts: &record.accounts,
        encryption: record.encryption,
        time_machine_bytes: record.time_machine_bytes,
        file_system: volume.file_system,
        samba: version,
        mark: *mark,
    };
    require_modules(&share.section().map_err(|error| refused(&error))?)?;
    let commands = share.commands(&registry).map_err(|error| refused(&error))?;
    let is_other = |section: &String| !name.names_section(section);
    let renamed: Vec<String> = sections_of(&registry, *mark).into_iter().filter(is_other).collect();
    delete(&samba, &registry, *mark, &renamed)?;
    for words in &commands {
        samba.carry_out(words)?;
    }
    let is_changed = !commands.is_empty() || !renamed.is_empty();
    let mut closed = renamed;
    if !commands.is_empty() && registry.section(name.as_str()).is_some() {
        closed.push(name.to_string());
    }
    if is_changed {
        samba.reload(&closed, notes)?;
    }
    require_served(&samba, &share)?;
    note_passwords(&samba, order, notes)?;
    Ok(is_changed)
}

/// Fails unless Samba understands the section as it was written; it is closed then.
fn require_served(samba: &Samba<'_>, share: &SmbShare<'_>) -> Result<(), Failure> {
    let left = share.commands(&samba.registry()?).map_err(|error| refused(&error))?;
    let whole = samba.tested()?;
    let section = whole.section(share.name.as_str());
    if left.is_empty() && section.and_then(|section| section.value("path")) == Some(share.path) {
        return Ok(());
    }
    samba.succeed("net", &["conf", "setparm", "--", share.name.as_str(), "available", "no"])?;
    let message = format!("Samba does not have [{}] as it was written: {section:?}", share.name);
    Err(failed(FailureCode::Refused, message, "the share is closed; report this"))
}

/// Notes users without a password in a server that keeps passwords itself.
fn note_passwords(samba: &Samba<'_>, order: &PutShare, notes: &mut Vec<String>) -> Result<(), Failure> {
    let users = order.record.accounts.iter().filter(|grant| grant.to == AccountKind::User);
    // Accounts of a domain have their password there.
    for name in users.map(|grant| grant.name.as_str()).filter(|name| !name.contains('\\')) {
        if !samba.run("pdbedit", &["-L", "-u", name])?.is_success() {
            notes.push(format!("user {name} has no password in Samba; `smbpasswd -a {name}` sets one"));
        }
    }
    Ok(())
}

/// Deletes sections, each if it has the mark.
fn delete(
    samba: &Samba<'_>,
    registry: &Configuration,
    mark: ShareMark,
    names: &[String],
) -> Result<(), Failure> {
    let (known, other): (Vec<_>, Vec<_>) = names.iter().partition(|name| name.parse::<ShareName>().is_ok());
    for name in known {
        let Ok(name) = name.parse::<ShareName>() else { continue };
        if let Some(words) = delete_command(registry, &name, mark).map_err(|error| refused(&error))? {
            samba.carry_out(&words)?;
        }
    }
    require_none(&other)
}

/// Fails if sections with the mark of a share have names that no share has: a share is off when all of them are gone.
fn require_none(names: &[&String]) -> Result<(), Failure> {
    let Some(name) = names.first() else { return Ok(()) };
    let message = format!(
        "section [{name}] of the registry has the mark of this share, and a name that none has; it stays"
    );
    Err(failed(FailureCode::Refused, message, "`net conf delshare` with its name deletes it"))
}

/// Takes the sections of a share away, and returns whether there was one.
pub(super) fn remove(mark: ShareMark, servers: &Servers, notes: &mut Vec<String>) -> Result<bool, Failure> {
    if !command::is_installed("net") || !servers.smb_conf.exists() {
        return Ok(false);
    }
    let samba = Samba::of(servers)?;
    let registry = samba.registry()?;
    let names = sections_of(&registry, mark);
    delete(&samba, &registry, mark, &names)?;
    if !names.is_empty() {
        samba.reload(&names, notes)?;
    }
    Ok(!names.is_empty())
}

/// Lists the sections that are shares, those of others too.
pub(super) fn list(servers: &Servers) -> Result<Vec<ListedShare>, Failure> {
    if !command::is_installed("net") || !servers.smb_conf.exists() {
        return Ok(Vec::new());
    }
    let samba = Samba::of(servers)?;
    let (whole, registry) = (samba.tested()?, samba.registry()?);
    // What the registry has is listed also where smb.conf does not read it yet.
    let unread = registry.sections().iter().filter(|section| whole.section(&section.name).is_none());
    let is_share = |name: &str| !name.eq_ignore_ascii_case("global");
    let sections = whole.sections().iter().chain(unread).filter(|section| is_share(&section.name));
    let listed = sections.map(|section| ListedShare {
        protocol: Protocol::Smb,
        name: section.name.clone(),
        path: section.value("path").unwrap_or_default().to_owned(),
        mark: section.value("comment").and_then(ShareMark::at_end_of),
        is_available: !section.value("available").is_some_and(|value| value.eq_ignore_ascii_case("no")),
    });
    Ok(listed.collect())
}

/// Lists the clients that use a share.
pub(crate) fn sessions(order: &LookAtShare) -> Result<Outcome, Failure> {
    let mut unavailable = Vec::new();
    let mut sessions = Vec::new();
    for protocol in &order.record.protocols {
        match protocol {
            Protocol::Smb => sessions.extend(smb_sessions(order)?),
            Protocol::Nfs => {
                unavailable.push(
                    "servers for NFS tie no client to one export; their clients are not listed".to_owned(),
                );
            }
        }
    }
    Ok(Outcome::Sessions { sessions, unavailable })
}

fn smb_sessions(order: &LookAtShare) -> Result<Vec<Session>, Failure> {
    let samba = Samba::of(&order.servers)?;
    let ran = samba.succeed("smbstatus", &["--json"])?;
    let status: Value = serde_json::from_str(&ran.output).map_err(|error| {
        let message = format!("smbstatus --json printed no JSON: {error}: {}", ran.shown());
        failed(FailureCode::Refused, message, "sessions need Samba 4.17 or later, built with JSON")
    })?;
    let path = PathBuf::from(order.volume.mount_point.join(&order.record.folder));
    sessions_in(&status, &order.record.name, &path).ok_or_else(|| {
        let message = format!("smbstatus --json has no list of sessions and connections: {}", ran.shown());
        failed(FailureCode::Refused, message, "report it")
    })
}

/// Reads the clients of a section from what `smbstatus --json` printed; `None` if it lacks one of its lists. That of open files is
/// absent where no client was ever connected.
fn sessions_in(status: &Value, name: &ShareName, path: &Path) -> Option<Vec<Session>> {
    if !["sessions", "tcons"].iter().all(|key| status.get(key).is_some_and(Value::is_object)) {
        return None;
    }
    let members =
        |key: &str| status.get(key).and_then(Value::as_object).into_iter().flatten().map(|(_, value)| value);
    let text =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_here = |file: &&Value| Path::new(&text(file, "service_path")) == path;
    let opens = |server: &Value| {
        let own = |open: &&Value| open.get("server_id").and_then(|id| id.get("pid")) == server.get("pid");
        let lists = members("open_files").filter(is_here).filter_map(|file| file.get("opens")?.as_object());
        lists.flatten().map(|(_, open)| open).filter(own).count()
    };
    let connections = members("tcons").filter(|tcon| name.names_section(&text(tcon, "service")));
    let sessions = connections.map(|tcon| {
        let id = text(tcon, "session_id");
        let session = members("sessions").find(|session| text(session, "session_id") == id);
        let session = session.unwrap_or(&Value::Null);
        let cipher = tcon.get("encryption").map(|found| text(found, "cipher"));
        Session {
            protocol: Protocol::Smb,
            user: text(session, "username"),
            client: text(tcon, "machine"),
            dialect: text(session, "session_dialect"),
            cipher: cipher.filter(|cipher| !cipher.is_empty() && cipher != "-"),
            since: text(tcon, "connected_at"),
            open_files: tcon
                .get("server_id")
                .map_or(0, |server| u32::try_from(opens(server)).unwrap_or(u32::MAX)),
        }
    });
    Some(sessions.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_section_whose_name_no_share_has_is_named() {
        let section = "a/b".to_owned();
        assert!(section.parse::<ShareName>().is_err());
        let failed = require_none(&[&section]).unwrap_err();
        assert!(failed.message.contains("[a/b]"), "{failed}");
        assert_eq!(require_none(&[]), Ok(()));
    }

    #[test]
    fn clients_of_one_section_are_read_with_their_ciphers() {
        let status = serde_json::json!({
            "sessions": {"7": {"session_id": "7", "username": "alice", "session_dialect": "SMB3_11"}},
            "tcons": {
                "1": {"service": "Docs", "session_id": "7", "machine": "10.0.0.9", "connected_at": "2026-11-30T01:07:10",
                      "server_id": {"pid": "44"}, "encryption": {"cipher": "AES-128-GCM", "degree": "full"}},
                "2": {"service": "IPC$", "session_id": "7", "machine": "10.0.0.9", "server_id": {"pid": "44"}},
                "3": {"service": "docs", "session_id": "8", "machine": "10.0.0.8", "encryption": {"cipher": "-"}},
            },
            "open_files": {
                "/srv/docs/a": {"service_path": "/srv/docs", "opens": {"1": {"server_id": {"pid": "44"}}, "2": {"server_id": {"pid": "45"}}}},
                "/srv/x/a": {"service_path": "/srv/x", "opens": {"1": {"server_id": {"pid": "44"}}}},
            },
        });
        let found = sessions_in(&status, &"docs".parse().unwrap(), Path::new("/srv/docs")).unwrap();
        assert_eq!(found.len(), 2);
        let alice = &found[0];
        assert_eq!((alice.user.as_str(), alice.client.as_str(), alice.open_files), ("alice", "10.0.0.9", 1));
        assert_eq!((alice.dialect.as_str(), alice.cipher.as_deref()), ("SMB3_11", Some("AES-128-GCM")));
        assert_eq!((found[1].user.as_str(), found[1].cipher.as_deref()), ("", None));
        assert_eq!(sessions_in(&Value::Null, &"docs".parse().unwrap(), Path::new("/srv/docs")), None);
    }

    /// Scenario: one client was connected when `smbstatus` of each distribution was asked.
    #[test]
    fn what_samba_of_each_distribution_prints_is_read() {
        for text in [
            include_str!("../../tests/transcripts/smbstatus-4.17.12.txt"),
            include_str!("../../tests/transcripts/smbstatus-4.22.11.txt"),
            include_str!("../../tests/transcripts/smbstatus-4.25.1.txt"),
        ] {
            let status = serde_json::from_str(text).unwrap();
            let found = sessions_in(&status, &"docs".parse().unwrap(), Path::new("/mnt")).unwrap();
            assert_eq!(found.len(), 1, "{text}");
            let one = &found[0];
            assert_eq!(
                (one.user.as_str(), one.client.as_str(), one.dialect.as_str()),
                ("games", "127.0.0.1", "SMB3_11")
            );
            assert!(one.cipher.is_some() && one.since.starts_with("2026-"), "{one:?}");
        }
        let never_used = serde_json::json!({"sessions": {}, "tcons": {}});
        assert_eq!(sessions_in(&never_used, &"docs".parse().unwrap(), Path::new("/mnt")), Some(vec![]));
        for text in [
            include_str!("../../tests/transcripts/smbd-4.17.12-build.txt"),
            include_str!("../../tests/transcripts/smbd-4.22.11-build.txt"),
            include_str!("../../tests/transcripts/smbd-4.25.1-build.txt"),
        ] {
            assert_eq!(module_folder(text).unwrap(), Path::new("/usr/lib/x86_64-linux-gnu/samba/vfs"));
        }
        assert_eq!(module_folder("Build environment:\n"), None);
    }
}
