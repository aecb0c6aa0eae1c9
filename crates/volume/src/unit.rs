//! Units of systemd by which other units order themselves behind a volume.
//!
//! For each volume there is a service, which ends its start when the volume is mounted, and a target that requires it. Both are
//! products of the record and are written again at each start. The mount needs neither.
//!
//! Invariant: no name, path or argument adds a line, a key or a specifier to a unit, and each argument of the service arrives as
//! it was given.

use crate::mount_point::MountPoint;
use std::fmt::Write as _;

/// Bytes of the name of a unit, at most: the bound of systemd.
const UNIT_NAME_BYTES_MAX: usize = 255;
/// Seconds that a volume may take to be mounted before units that require it fail.
const WAIT_SECONDS: u32 = 900;

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
    /// A zero byte, which no argument of a process can hold.
    #[error("the argument {argument:?} of the unit of volume {volume:?} has a zero byte in it; leave it out")]
    ZeroByte {
        /// Name of the volume.
        volume: String,
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

/// A unit: the name of its file and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Name of the file below `/run/systemd/system`.
    pub name: String,
    /// Content of the file.
    pub text: String,
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

/// Name of a unit of a volume; `kind` is `service` or `target`.
fn unit_name(volume: &str, kind: &str) -> Result<String, UnitError> {
    let name = format!("dolmen-volume@{}.{kind}", escape(volume));
    if name.len() > UNIT_NAME_BYTES_MAX {
        return Err(UnitError::NameTooLong { volume: volume.to_owned(), found: name.len() });
    }
    Ok(name)
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

/// Makes the units of a volume: the service, then the target.
///
/// `program` with `arguments` ends with 0 when the volume is mounted, and with another code when it will not be.
///
/// # Errors
/// Fails if a name is too long, an argument holds a zero byte, or the program has an odd path.
pub fn units(
    volume: &str,
    mount_point: &MountPoint,
    program: &str,
    arguments: &[&str],
) -> Result<[Unit; 2], UnitError> {
    if !is_plain_program(program) {
        return Err(UnitError::Program { found: program.chars().take(80).collect() });
    }
    if let Some(argument) = arguments.iter().find(|argument| argument.contains('\0')) {
        let argument = argument.chars().take(80).collect();
        return Err(UnitError::ZeroByte { volume: volume.to_owned(), argument });
    }
    let service = unit_name(volume, "service")?;
    let target = unit_name(volume, "target")?;
    let what = format!("{} on {}", shown_text(volume), shown_text(mount_point.as_str()));
    let command: Vec<String> = arguments.iter().map(|argument| quoted_argument(argument)).collect();
    let head = "# Written by Dolmen from the record of the volume; changes are lost at its next start.";
    let service_text = format!(
        "{head}\n[Unit]\nDescription=Mount of the Dolmen volume {what}\nWants=dolmend.service\nAfter=dolmend.service\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\nTimeoutStartSec={WAIT_SECONDS}\nExecStart={program} {}\n",
        command.join(" ")
    );
    let target_text =
        format!("{head}\n[Unit]\nDescription=Dolmen volume {what}\nRequires={service}\nAfter={service}\n");
    Ok([Unit { name: service, text: service_text }, Unit { name: target, text: target_text }])
}

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

    #[test]
    fn a_target_requires_the_service_that_waits_for_the_mount() {
        let home = "/srv/my-home".parse().unwrap();
        let [service, target] =
            units("tank/my-home", &home, "/usr/bin/dolmen", &["volume", "wait", "tank/my-home"]).unwrap();
        assert_eq!(service.name, "dolmen-volume@tank-my\\x2dhome.service");
        assert_eq!(target.name, "dolmen-volume@tank-my\\x2dhome.target");
        let value =
            |unit: &Unit, key: &str| keys(&unit.text).into_iter().find(|(name, _)| name == key).unwrap().1;
        assert_eq!(value(&service, "ExecStart"), r#"/usr/bin/dolmen "volume" "wait" "tank/my-home""#);
        assert_eq!(value(&target, "Requires"), service.name);
        assert_eq!(value(&target, "Description"), r#"Dolmen volume "tank/my-home" on "/srv/my-home""#);
        assert_eq!(escape_path(&home), "srv-my\\x2dhome");
    }

    #[test]
    fn what_no_unit_can_carry_is_refused() {
        let home = "/srv/home".parse().unwrap();
        let long = format!("tank/{}", "-".repeat(63));
        let error = units(&long, &home, "/usr/bin/dolmen", &[]).unwrap_err();
        assert!(matches!(error, UnitError::NameTooLong { found, .. } if found > 255), "{error}");
        assert!(matches!(units("a", &home, "/bin/x", &["a\0"]), Err(UnitError::ZeroByte { .. })));
        for program in ["dolmen", "/opt/my tools/dolmen", "/a%b", "-/bin/x", "/bin/", ""] {
            assert!(matches!(units("a", &home, program, &[]), Err(UnitError::Program { .. })), "{program}");
        }
    }

    proptest! {
        /// Whatever the volume, its place and the arguments are called: the keys are the same, and each argument comes back.
        #[test]
        fn no_text_adds_a_line_or_a_key_and_each_argument_comes_back(
            volume in "(?s)[^\0]{0,12}", path in "/[^/.\\p{Cc}]{1,20}", odd in proptest::collection::vec("(?s)[^\0]{0,12}", 0..4),
            special in proptest::collection::vec("[%$\"'\\\\; \n\t=@-]{0,6}", 0..4),
        ) {
            let given: Vec<&str> = odd.iter().chain(&special).map(String::as_str).collect();
            let units = units(&volume, &path.parse().unwrap(), "/usr/bin/dolmen", &given).unwrap();
            let names = |unit: &Unit| keys(&unit.text).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
            prop_assert_eq!(
                names(&units[0]),
                ["[Unit]", "Description", "Wants", "After", "[Service]", "Type", "RemainAfterExit", "TimeoutStartSec", "ExecStart"]
            );
            prop_assert_eq!(names(&units[1]), ["[Unit]", "Description", "Requires", "After"]);
            let command = keys(&units[0].text).pop().unwrap().1;
            let mut expected = vec![b"/usr/bin/dolmen".to_vec()];
            expected.extend(given.iter().map(|argument| argument.as_bytes().to_vec()));
            let found = arguments(command.strip_suffix(' ').filter(|_| given.is_empty()).unwrap_or(&command));
            prop_assert_eq!(found, expected);
            for unit in &units {
                let description = &keys(&unit.text)[1].1;
                prop_assert!(!description.replace("%%", "").contains('%'), "{}", description);
                prop_assert!(unit.name.bytes().all(|b| b.is_ascii_alphanumeric() || b":-_.\\@".contains(&b)), "{}", unit.name);
            }
        }
    }
}
