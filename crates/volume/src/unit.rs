//! Units of systemd: the service of the daemon, and a mount unit for each volume (docs/design/0035, *At boot*).
//!
//! A mount unit stands at the mount point of its volume, so `RequiresMountsFor=` of any other unit finds it. Its helper of mount(8)
//! asks the daemon for the mount. The mount itself needs no unit: a unit only orders others.
//!
//! Invariants:
//! - No name, path or argument adds a line, a key or a specifier to a unit, and each value comes back as it was given.
//! - A file without the mark of Dolmen is neither overwritten nor removed.

use crate::mount_point::MountPoint;
use dolmen_mutation::mutation;
use std::fmt::Write as _;

/// Name of the daemon's service.
pub const SERVICE: &str = "dolmend.service";
/// Folder beside the units, with links to those that the start of the daemon brings about.
pub const WANTS_FOLDER: &str = "dolmend.service.wants";
/// Type of file system in mount units: mount(8) runs `mount.dolmen`.
pub const MOUNT_TYPE: &str = "dolmen";
/// Begin of the source in mount units. With it, the source is neither a path nor a device that systemd would wait for.
pub const SOURCE_PREFIX: &str = "dolmen:";
/// Begin of the first line of every file that Dolmen writes for systemd.
pub const MARK: &str = "# Written by Dolmen";
/// Seconds after which a volume that is not mounted no longer holds up the boot.
pub const MOUNT_SECONDS: u32 = 90;

/// Bytes of the name of a unit, at most: the bound of systemd.
const UNIT_NAME_BYTES_MAX: usize = 255;

/// A volume that cannot have units.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The name of a unit would be too long.
    #[error(
        "the unit of volume {volume:?} would have a name of {found} bytes, at most {UNIT_NAME_BYTES_MAX} are allowed; give pool or volume a shorter name, or one with fewer hyphens"
    )]
    NameTooLong {
        /// Name of the volume.
        volume: String,
        /// Bytes of the name of its unit.
        found: usize,
    },
    /// The name or the mount point ends with a character that systemd would drop, or join with the next line.
    #[error(
        "{text:?} of volume {volume:?} ends with {found:?}, which no unit can hold; choose another name or mount point"
    )]
    End {
        /// Name of the volume.
        volume: String,
        /// Name or mount point.
        text: String,
        /// Last character.
        found: char,
    },
    /// A zero byte, which no argument of a process can hold.
    #[error("the argument {argument:?} of the service has a zero byte in it; leave it out")]
    ZeroByte {
        /// Argument.
        argument: String,
    },
    /// The program of the service.
    #[error(
        "the program {found:?} of a unit is no absolute path of letters, digits, '/', '.', '_' and '-'; install it elsewhere"
    )]
    Program {
        /// Path that was given.
        found: String,
    },
}

/// A mount unit: the name of its file and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Name of the file.
    pub name: String,
    /// Content of the file.
    pub text: String,
    /// Whether the start of the daemon brings it about.
    pub boot: Boot,
}

/// Part of a mount unit in the boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boot {
    /// The boot mounts it, and goes on without it after [`MOUNT_SECONDS`].
    Mounted,
    /// Only units that require it ask for it, and fail.
    Left,
}

/// A file in the folder of units: its name, its first line and what it mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundFile {
    /// Name.
    pub name: String,
    /// First line, without its end.
    pub first_line: String,
    /// Value of `What=`, as it is written; empty without one.
    pub source: String,
}

/// Changes of the folder of units.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Units to write, where their text differs.
    pub write: Vec<Unit>,
    /// Files to remove, with their links.
    pub remove: Vec<String>,
    /// Names of units whose files are of another origin, and stay.
    pub foreign: Vec<String>,
}

/// Escapes a text for the name of a unit, as `systemd-escape` does.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'/' => escaped.push('-'),
            b'.' if at == 0 => escaped.push_str("\\x2e"),
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b':' | b'_' | b'.' => escaped.push(char::from(byte)),
            _ => {
                let _ = write!(escaped, "\\x{byte:02x}");
            }
        }
    }
    escaped
}

/// Escapes a path for the name of a unit, as `systemd-escape --path` does.
#[must_use]
pub fn escape_path(path: &MountPoint) -> String {
    escape(path.as_str().trim_start_matches('/'))
}

/// A text within the value of a key: specifiers and control characters are shown, and the closing quote keeps a backslash from
/// joining the next line.
fn shown_text(text: &str) -> String {
    let mut shown = String::from("\"");
    for character in text.chars() {
        match character {
            '%' => shown.push_str("%%"),
            _ if character.is_control() => shown.extend(character.escape_default()),
            _ => shown.push(character),
        }
    }
    shown.push('"');
    shown
}

/// A whole value of a key that is read as it stands, but for specifiers.
fn value_text(text: &str) -> String {
    text.replace('%', "%%")
}

/// An argument of a command: quoted, with the escapes of systemd.
fn quoted_argument(argument: &str) -> String {
    let mut quoted = String::from("\"");
    for character in argument.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '%' => quoted.push_str("%%"),
            '$' => quoted.push_str("$$"),
            _ if character.is_control() => {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    let _ = write!(quoted, "\\x{byte:02x}");
                }
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

fn is_plain_program(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    path.starts_with('/') && !path.ends_with('/') && path.chars().all(plain)
}

/// Returns the first line of the units of volumes of a pool; `pool` is its id as text.
fn pool_mark(pool: &str) -> String {
    format!("{MARK} for a volume of pool {pool}; changes are lost")
}

/// Makes the mount unit of a volume; `pool` is the id of its pool as text, `volume` is `POOL/NAME`.
///
/// # Errors
/// Fails if the name would be too long, or name or path end with a blank or a backslash.
pub fn mount_unit(pool: &str, volume: &str, mount_point: &MountPoint, boot: Boot) -> Result<Unit, UnitError> {
    let name = format!("{}.mount", escape_path(mount_point));
    if name.len() > UNIT_NAME_BYTES_MAX {
        return Err(UnitError::NameTooLong { volume: volume.to_owned(), found: name.len() });
    }
    let path = mount_point.as_str();
    for text in [volume, path] {
        if let Some(found) = text.chars().next_back().filter(|last| *last == '\\' || last.is_whitespace()) {
            return Err(UnitError::End { volume: volume.to_owned(), text: text.to_owned(), found });
        }
    }
    let mark = pool_mark(pool);
    let what = format!("{} on {}", shown_text(volume), shown_text(path));
    let (source, place) = (source_of(volume), value_text(path));
    let text = format!(
        "{mark}\n[Unit]\nDescription=Dolmen volume {what}\nDefaultDependencies=no\nRequires={SERVICE}\nAfter={SERVICE}\n\
         Conflicts=umount.target\nBefore=umount.target remote-fs.target\n\n\
         [Mount]\nWhat={source}\nWhere={place}\nType={MOUNT_TYPE}\nTimeoutSec={MOUNT_SECONDS}\n"
    );
    Ok(Unit { name, text, boot })
}

/// Returns the value of `What=` for a volume.
fn source_of(volume: &str) -> String {
    value_text(&format!("{SOURCE_PREFIX}{volume}"))
}

/// Returns what makes the files of a folder those of the volumes of a pool. `unread` are volumes, as `POOL/NAME`, whose records are not
/// known: their files stay.
#[must_use]
pub fn changes(pool: &str, found: &[FoundFile], wanted: &[Unit], unread: &[String]) -> Changes {
    let mark = pool_mark(pool);
    let mut changes = Changes::default();
    for unit in wanted {
        let there = found.iter().find(|file| file.name == unit.name);
        let is_foreign = there.is_some_and(|file| !file.first_line.starts_with(MARK));
        if is_foreign && !mutation!(ForeignUnitOverwritten) {
            changes.foreign.push(unit.name.clone());
        } else {
            changes.write.push(unit.clone());
        }
    }
    let is_unread = |file: &FoundFile| unread.iter().any(|volume| file.source == source_of(volume));
    let is_stale = |file: &&FoundFile| {
        file.first_line == mark && wanted.iter().all(|unit| unit.name != file.name) && !is_unread(file)
    };
    changes.remove = found.iter().filter(is_stale).map(|file| file.name.clone()).collect();
    changes
}

/// Makes the service of the daemon, which runs `program` with `arguments`.
///
/// # Errors
/// Fails if an argument holds a zero byte, or the program has an odd path.
pub fn service_unit(program: &str, arguments: &[&str]) -> Result<String, UnitError> {
    if !is_plain_program(program) {
        return Err(UnitError::Program { found: program.chars().take(80).collect() });
    }
    if let Some(argument) = arguments.iter().find(|argument| argument.contains('\0')) {
        return Err(UnitError::ZeroByte { argument: argument.chars().take(80).collect() });
    }
    let words = arguments.iter().map(|argument| format!(" {}", quoted_argument(argument)));
    let command: String = std::iter::once(program.to_owned()).chain(words).collect();
    Ok(SERVICE_TEXT.replace("COMMAND", &command))
}

/// The service of the daemon; `COMMAND` stands for its command. Each line that is not plain has its reason above it.
const SERVICE_TEXT: &str = "# Written by Dolmen: dolmen service install writes it again, dolmen service remove removes it.
[Unit]
Description=Dolmen storage daemon
# Pools open once, at the start: the kernel has found the disks by then.
Wants=systemd-udev-settle.service
After=systemd-udev-settle.service local-fs.target
Before=remote-fs.target
# I/O to attached spaces waits for the next daemon, so systemd never gives up.
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart=COMMAND
# The start opens the pools; one with an absent disk opens degraded, and one that does not open holds nothing up.
TimeoutStartSec=5min
# The stop unmounts volumes, writes back and closes pools.
TimeoutStopSec=5min
Restart=on-failure
RestartSec=2
# A helper process holds attached spaces while the daemon is away; ending it would fail their I/O.
KillMode=process
# Workers run in control groups beside that of the daemon, each with a bound of memory. systemd before 254 does not know the second
# line, and workers have a bound of addresses there.
Delegate=yes
DelegateSubgroup=daemon
# No sandbox: in a mount namespace of its own, the daemon's mounts would be visible to no other process.

[Install]
WantedBy=multi-user.target
";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Keys and values of a unit, read by the rules of `systemd.syntax`: a backslash at the end joins the next line.
    fn keys(text: &str) -> Vec<(String, String)> {
        let joined = text.replace("\\\n", " ");
        let lines = joined
            .lines()
            .map(str::trim_start)
            .filter(|line| !line.is_empty() && !line.starts_with(['#', ';']));
        let entries = lines.map(|line| match line.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => (line.to_owned(), String::new()),
        });
        entries.collect()
    }

    /// Splits a command as systemd does: quotes, C escapes, specifiers, variables.
    fn arguments(command: &str) -> Vec<Vec<u8>> {
        let mut words = Vec::new();
        let mut characters = command.chars().peekable();
        while characters.peek().is_some() {
            while characters.next_if(|c| *c == ' ').is_some() {}
            let is_quoted = characters.next_if_eq(&'"').is_some();
            let mut word = Vec::new();
            let mut bytes = [0; 4];
            loop {
                match characters.next() {
                    None => break,
                    Some('"') if is_quoted => break,
                    Some(' ') if !is_quoted => break,
                    Some('\\') => match characters.next().unwrap() {
                        'x' => {
                            let digits: String = characters.by_ref().take(2).collect();
                            word.push(u8::from_str_radix(&digits, 16).unwrap());
                        }
                        escaped @ ('"' | '\\') => word.push(u8::try_from(escaped).unwrap()),
                        other => panic!("escape {other}"),
                    },
                    Some(twice @ ('%' | '$')) => {
                        assert_eq!(characters.next(), Some(twice));
                        word.push(u8::try_from(twice).unwrap());
                    }
                    Some(other) => word.extend(other.encode_utf8(&mut bytes).bytes()),
                }
            }
            words.push(word);
        }
        words
    }

    fn volume(name: &str, path: &str) -> Unit {
        mount_unit("0f", name, &path.parse().unwrap(), Boot::Mounted).unwrap()
    }

    fn value<'a>(keys: &'a [(String, String)], key: &str) -> &'a str {
        &keys.iter().find(|(name, _)| name == key).unwrap().1
    }

    #[test]
    fn a_mount_unit_is_named_after_its_mount_point() {
        let unit = volume("tank/my-home", "/srv/my-home");
        assert_eq!(unit.name, "srv-my\\x2dhome.mount");
        let expected = r#"# Written by Dolmen for a volume of pool 0f; changes are lost
[Unit]
Description=Dolmen volume "tank/my-home" on "/srv/my-home"
DefaultDependencies=no
Requires=dolmend.service
After=dolmend.service
Conflicts=umount.target
Before=umount.target remote-fs.target

[Mount]
What=dolmen:tank/my-home
Where=/srv/my-home
Type=dolmen
TimeoutSec=90
"#;
        assert_eq!(unit.text, expected);
    }

    /// Scenario: the unit that the package ships, beside the one that `dolmen service install` writes. All facts but the command and
    /// the file of settings are the same.
    #[test]
    fn the_unit_of_the_package_has_the_same_facts() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/dolmend.service");
        let packaged = std::fs::read_to_string(path).unwrap();
        let written = service_unit("/usr/sbin/dolmend", &[]).unwrap();
        let facts = |text: &str| {
            let own = ["ExecStart", "EnvironmentFile", "Documentation"];
            keys(text).into_iter().filter(|(key, _)| !own.contains(&key.as_str())).collect::<Vec<_>>()
        };
        assert_eq!(facts(&packaged), facts(&written));
        let packaged_keys = keys(&packaged);
        let command = value(&packaged_keys, "ExecStart");
        assert!(command.starts_with("/usr/sbin/dolmend --units /etc/systemd/system"), "{command}");
        // A package of the system brings it: `dolmen service remove` must not take it for its own.
        assert!(!packaged.starts_with(MARK));
    }

    #[test]
    fn the_service_runs_the_daemon_with_its_settings() {
        let text = service_unit("/usr/local/bin/dolmend", &["--units", "/etc/systemd/system"]).unwrap();
        let keys = keys(&text);
        assert_eq!(value(&keys, "ExecStart"), r#"/usr/local/bin/dolmend "--units" "/etc/systemd/system""#);
        for (key, expected) in [
            ("Type", "notify"),
            ("KillMode", "process"),
            ("Restart", "on-failure"),
            ("Delegate", "yes"),
            // The group in which the daemon looks for itself; beside it workers have bounds.
            ("DelegateSubgroup", "daemon"),
            ("Before", "remote-fs.target"),
            ("WantedBy", "multi-user.target"),
        ] {
            assert_eq!(value(&keys, key), expected);
        }
        assert!(keys.iter().all(|(key, _)| !key.starts_with("Private") && !key.starts_with("Protect")));
        assert!(text.starts_with(MARK));
    }

    #[test]
    fn what_no_unit_can_carry_is_refused() {
        let long = format!("/srv/{}", "-".repeat(63));
        let error = mount_unit("0f", "tank/v", &long.parse().unwrap(), Boot::Left).unwrap_err();
        assert!(matches!(error, UnitError::NameTooLong { found, .. } if found > 255), "{error}");
        for path in ["/srv/a\\", "/srv/a ", "/srv/a\u{a0}"] {
            let error = mount_unit("0f", "tank/v", &path.parse().unwrap(), Boot::Left).unwrap_err();
            assert!(matches!(error, UnitError::End { .. }), "{error}");
        }
        assert!(matches!(service_unit("/bin/x", &["a\0"]), Err(UnitError::ZeroByte { .. })));
        for program in ["dolmen", "/opt/my tools/dolmen", "/a%b", "-/bin/x", "/bin/", ""] {
            assert!(matches!(service_unit(program, &[]), Err(UnitError::Program { .. })), "{program}");
        }
    }

    /// Scenario: one unit is new, one is there, one is stale, one is of another pool, and one has the place of a unit of another
    /// origin.
    #[test]
    fn units_of_another_origin_or_pool_stay() {
        let file = |name: &str, first_line: &str| FoundFile {
            name: name.to_owned(),
            first_line: first_line.to_owned(),
            source: "dolmen:tank/gone".to_owned(),
        };
        let found = [
            file("srv-old.mount", &pool_mark("0f")),
            file("srv-stale.mount", &pool_mark("0f")),
            file("srv-other.mount", &pool_mark("1e")),
            file("srv-foreign.mount", "[Unit]"),
            file("home.mount", "# Written by hand"),
        ];
        let wanted = ["/srv/old", "/srv/new", "/srv/foreign"].map(|path| volume("tank/v", path));
        let kept = changes("0f", &found, &wanted, &["tank/gone".to_owned()]);
        assert_eq!(kept.remove, [""; 0], "a unit whose record is not known was removed");
        let found = changes("0f", &found, &wanted, &["tank/other".to_owned()]);
        let names: Vec<&str> = found.write.iter().map(|unit| unit.name.as_str()).collect();
        assert_eq!(found.foreign, ["srv-foreign.mount"], "a foreign unit was overwritten");
        assert_eq!(names, ["srv-old.mount", "srv-new.mount"]);
        assert_eq!(found.remove, ["srv-stale.mount"]);
    }

    proptest! {
        /// Whatever the volume and its place are called: the keys are the same, and each value comes back.
        #[test]
        fn no_text_adds_a_line_or_a_key_to_a_mount_unit(
            name in "[^\\p{Cc}/]{1,12}", path in "/[^/.\\p{Cc}]{1,20}", special in "[%$\"'\\\\; =@-]{0,6}",
        ) {
            let (name, path) = (format!("tank/{name}"), format!("{path}{special}"));
            let Ok(unit) = mount_unit("0f", &name, &path.parse().unwrap(), Boot::Mounted) else {
                let is_end = |last: char| last == '\\' || last.is_whitespace();
                prop_assert!(path.ends_with(is_end) || name.ends_with(is_end));
                return Ok(());
            };
            let keys = keys(&unit.text);
            let names: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
            prop_assert_eq!(names, [
                "[Unit]", "Description", "DefaultDependencies", "Requires", "After", "Conflicts", "Before", "[Mount]", "What",
                "Where", "Type", "TimeoutSec"
            ]);
            prop_assert_eq!(value(&keys, "Where").replace("%%", "%"), path);
            prop_assert!(!value(&keys, "Where").replace("%%", "").contains('%'));
            prop_assert!(!value(&keys, "What").replace("%%", "").contains('%'));
            prop_assert!(!value(&keys, "Description").replace("%%", "").contains('%'));
            prop_assert!(unit.name.bytes().all(|b| b.is_ascii_alphanumeric() || b":-_.\\@".contains(&b)), "{}", unit.name);
        }

        /// Whatever the arguments are: the keys are the same, and each argument comes back.
        #[test]
        fn no_argument_adds_a_line_or_a_key_to_the_service(
            odd in proptest::collection::vec("(?s)[^\0]{0,12}", 0..4),
            special in proptest::collection::vec("[%$\"'\\\\; \n\t=@-]{0,6}", 0..4),
        ) {
            let given: Vec<&str> = odd.iter().chain(&special).map(String::as_str).collect();
            let text = service_unit("/usr/bin/dolmend", &given).unwrap();
            let plain = service_unit("/usr/bin/dolmend", &[]).unwrap();
            let names = |text: &str| keys(text).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
            prop_assert_eq!(names(&text), names(&plain));
            let mut expected = vec![b"/usr/bin/dolmend".to_vec()];
            expected.extend(given.iter().map(|argument| argument.as_bytes().to_vec()));
            prop_assert_eq!(arguments(value(&keys(&text), "ExecStart")), expected);
        }
    }
}
