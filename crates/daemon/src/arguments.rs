//! The command line of the daemon's program, `dolmend`.
//!
//! Folders and sockets that are not named follow from those that are, so that a second daemon needs one setting, not three. All
//! paths are made absolute: what the daemon reports has to hold in the working folders of others as well.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dolmen_api::{CallerRole, ExitCode, RUN_FOLDER, SOCKET_NAME, STATE_FOLDER};

use crate::config::{Config, Scan};

/// Text that `dolmend --help` prints.
pub const HELP: &str = "The daemon of Dolmen, which `dolmen daemon` and the system's unit start.

Settings, each with a value:
  --state FOLDER         where it keeps what it has to remember; usually /var/lib/dolmen
  --run FOLDER           where its sockets and locks are; usually /run/dolmen, or the folder `run` in another --state
  --socket PATH          where the command line talks to it; usually dolmen.sock in --run
  --look-in PATH         a file, or a folder of files, to look at for disks; may be given several times
  --links FOLDER         where attached spaces get their links; usually /dev/dolmen
  --sys FOLDER           where the kernel shows its devices; usually /sys
  --units FOLDER         where it writes a mount unit of systemd for each volume; none are written without it
  --web-user NAME        the user of the system that dolmen-web runs as; usually dolmen-web
  --web-role-max ROLE    the highest role of its requests: viewer, operator, or usually admin
  --smartctl PROGRAM     the program that reads the SMART values of disks
  --trash-after-s N      seconds that deleted spaces are kept; 0 is for ever
Without a value:
  --named-only           look at no disks but those that a setting or a request names
In the environment:
  DOLMEN_LOG             what is logged, such as debug; usually info
  DOLMEN_SERVERS         a JSON file about the servers for SMB and NFS, which the guide page on shares describes
  DOLMEN_COMMAND         the command line, which runs benchmarks; usually dolmen beside this one, or of the system
  DOLMEN_WORKER          the program that works on volumes; usually dolmen-worker beside this one
";

/// Settings that take a value.
const WITH_VALUE: [&str; 11] = [
    "--state",
    "--run",
    "--socket",
    "--look-in",
    "--links",
    "--sys",
    "--units",
    "--smartctl",
    "--trash-after-s",
    "--web-user",
    "--web-role-max",
];

/// A command line of `dolmend` that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// There is no such setting.
    #[error(
        "{} is no setting of dolmend; expected one of {}, --named-only",
        found.display(),
        WITH_VALUE.join(", ")
    )]
    Unknown {
        /// The word.
        found: OsString,
    },
    /// A value is missing.
    #[error("{setting} needs a value, and is the last word of the command line")]
    NoValue {
        /// The setting.
        setting: &'static str,
    },
    /// A number was expected.
    #[error("--trash-after-s is {}; expected a number of seconds, or 0 for ever", found.display())]
    Seconds {
        /// The value.
        found: OsString,
    },
    /// A name of a user was expected.
    #[error("--web-user is {:?}; expected the name of a user of the system", found.display().to_string())]
    WebUser {
        /// The value.
        found: OsString,
    },
    /// A role was expected.
    #[error("--web-role-max is {}; expected viewer, operator or admin", found.display())]
    Role {
        /// The value.
        found: OsString,
    },
    /// A path cannot be made absolute.
    #[error("{setting} is {:?}, which cannot be used as a path", found.display().to_string())]
    Path {
        /// The setting.
        setting: &'static str,
        /// The value.
        found: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl SettingError {
    /// Returns the status with which the process ends.
    #[must_use]
    pub const fn exit(&self) -> ExitCode {
        ExitCode::Usage
    }
}

/// Reads the words behind the name of the program.
///
/// # Errors
/// [`SettingError`]: the word that cannot be used, and what was expected.
pub fn read_settings(words: impl IntoIterator<Item = OsString>) -> Result<Config, SettingError> {
    let mut config = Config::usual();
    let (mut run, mut socket) = (None, None);
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "--named-only" {
            config.scan = Scan::NamedOnly;
            continue;
        }
        let (name, attached) = split(&word);
        let known = WITH_VALUE.into_iter().find(|setting| name == OsStr::new(setting));
        let setting = known.ok_or_else(|| SettingError::Unknown { found: name.to_os_string() })?;
        let value = attached.or_else(|| words.next()).ok_or(SettingError::NoValue { setting })?;
        match setting {
            "--trash-after-s" => config.trash_after = trash_after(value)?,
            "--web-user" => config.web_user = web_user(value)?,
            "--web-role-max" => config.web_role_max = role(value)?,
            "--state" => config.state = rooted(setting, value)?,
            "--run" => run = Some(rooted(setting, value)?),
            "--socket" => socket = Some(rooted(setting, value)?),
            "--look-in" => config.look_in.push(rooted(setting, value)?),
            "--links" => config.links = rooted(setting, value)?,
            "--units" => config.units = Some(rooted(setting, value)?),
            "--sys" => config.sys = rooted(setting, value)?,
            _ => config.smartctl = Some(rooted(setting, value)?),
        }
    }
    config.run = run.unwrap_or_else(|| usual_run(&config.state));
    config.socket = socket.unwrap_or_else(|| config.run.join(SOCKET_NAME));
    Ok(config)
}

/// Splits `--setting=value`.
fn split(word: &OsStr) -> (&OsStr, Option<OsString>) {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=');
    match at.and_then(|at| Some((bytes.get(..at)?, bytes.get(at.saturating_add(1)..)?))) {
        Some((name, value)) => (OsStr::from_bytes(name), Some(OsString::from_vec(value.to_vec()))),
        None => (word, None),
    }
}

fn web_user(value: OsString) -> Result<String, SettingError> {
    let name = value.to_str().filter(|name| !name.is_empty() && !name.contains([':', '\n']));
    let name = name.map(str::to_owned);
    name.ok_or(SettingError::WebUser { found: value })
}

fn role(value: OsString) -> Result<CallerRole, SettingError> {
    let role = value.to_str().and_then(CallerRole::of_word);
    role.ok_or(SettingError::Role { found: value })
}

fn trash_after(value: OsString) -> Result<Option<Duration>, SettingError> {
    let seconds = value.to_str().and_then(|text| text.parse().ok());
    let seconds = seconds.ok_or(SettingError::Seconds { found: value })?;
    Ok(Some(Duration::from_secs(seconds)).filter(|after| !after.is_zero()))
}

fn rooted(setting: &'static str, value: OsString) -> Result<PathBuf, SettingError> {
    std::path::absolute(&value).map_err(|source| SettingError::Path { setting, found: value.into(), source })
}

fn usual_run(state: &Path) -> PathBuf {
    if state == Path::new(STATE_FOLDER) { PathBuf::from(RUN_FOLDER) } else { state.join("run") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Config, SettingError> {
        read_settings(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn folders_and_socket_follow_from_each_other() {
        for (line, state, run, socket) in [
            ("", "/var/lib/dolmen", "/run/dolmen", "/run/dolmen/dolmen.sock"),
            ("--state /s", "/s", "/s/run", "/s/run/dolmen.sock"),
            ("--state=/s", "/s", "/s/run", "/s/run/dolmen.sock"),
            ("--run /r", "/var/lib/dolmen", "/r", "/r/dolmen.sock"),
            ("--socket /api --state /s", "/s", "/s/run", "/api"),
        ] {
            let config = read(line).unwrap();
            let found = (config.state.to_str(), config.run.to_str(), config.socket.to_str());
            assert_eq!(found, (Some(state), Some(run), Some(socket)), "{line}");
        }
    }

    #[test]
    fn relative_paths_are_made_absolute() {
        let here = std::env::current_dir().unwrap();
        let config = read("--state s --look-in a --look-in=/b --links l --smartctl c").unwrap();
        assert_eq!((config.state, config.run), (here.join("s"), here.join("s/run")));
        assert_eq!(config.look_in, [here.join("a"), PathBuf::from("/b")]);
        assert_eq!((config.links, config.smartctl), (here.join("l"), Some(here.join("c"))));
        assert_eq!(read("--units u").unwrap().units, Some(here.join("u")));
    }

    /// Scenario: words that no setting has, values that are missing or wrong, and bytes that are no text. Each is refused by name.
    #[test]
    fn a_bad_setting_is_refused_by_name() {
        for (line, message) in [
            ("--stat /s", "--stat is no setting of dolmend; expected one of --state, "),
            ("here", "here is no setting"),
            ("--run", "--run needs a value"),
            ("--trash-after-s soon", "--trash-after-s is soon; expected a number of seconds"),
            ("--web-role-max root", "--web-role-max is root; expected viewer, operator or admin"),
            ("--web-user=a:b", "--web-user is \"a:b\"; expected the name of a user"),
            ("--trash-after-s -1", "--trash-after-s is -1; expected"),
            ("--state=", "--state is \"\", which cannot be used as a path"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.to_string().starts_with(message), "{line}: {error}");
            assert_eq!(error.exit(), ExitCode::Usage);
        }
        let bytes = OsString::from_vec(b"--\xff".to_vec());
        assert!(matches!(read_settings([bytes]), Err(SettingError::Unknown { .. })));
        let path = OsString::from_vec(b"/\xff".to_vec());
        assert_eq!(read_settings(["--state".into(), path.clone()]).unwrap().state, PathBuf::from(path));
    }

    #[test]
    fn trash_is_kept_for_seven_days_or_as_the_setting_says() {
        for (line, seconds) in
            [("", Some(7 * 86_400)), ("--trash-after-s 5", Some(5)), ("--trash-after-s 0", None)]
        {
            assert_eq!(read(line).unwrap().trash_after, seconds.map(Duration::from_secs), "{line}");
        }
    }
}
