//! Exports: a file for the kernel's server and a block for Ganesha.
//!
//! Invariant: no path adds a client, an option, a line or a block. An export without clients is never written: to the kernel's
//! server a path alone means everybody.

use super::{Client, HostName};
use crate::mount_point::MountPoint;
use crate::record::{Access, NetworkGrant};
use dolmen_mutation::mutation;
use std::fmt::Write as _;

/// Options of each client of the kernel's server.
///
/// `no_subtree_check`: the check fails files that are renamed while they are open. So an export of a folder protects the rest of
/// its volume by the rights of files alone.
const OPTIONS: &str = "sync,no_subtree_check,root_squash,sec=sys";

/// Name of the kernel's server in messages.
const KERNEL: &str = "the NFS server of the kernel";

/// An export that cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// A character that the file cannot carry.
    #[error(
        "the path {path:?} of an export has {character:?} in it, which {server} cannot carry; rename the folder"
    )]
    Character {
        /// Path of the export.
        path: String,
        /// First such character.
        character: char,
        /// `the NFS server of the kernel` or `Ganesha`.
        server: &'static str,
    },
    /// A path that is not absolute.
    #[error("the export {path:?} is no absolute path; name it from the root on")]
    NotAbsolute {
        /// Path of the export.
        path: String,
    },
    /// A mount point that `mountpoint=` cannot carry. Without that option, a server that starts before the mount exports what lies
    /// below the mount point.
    #[error(
        "the mount point {path:?} has {character:?} in it, which the option mountpoint= of exports cannot carry; mount the volume at a path without it"
    )]
    MountPoint {
        /// Mount point.
        path: String,
        /// First such character.
        character: char,
    },
    /// A name that the grammar of Ganesha does not take for a host.
    #[error(
        "Ganesha takes {host:?} for no name of a host, because it does not begin with a letter; grant its address"
    )]
    Host {
        /// Name of the host.
        host: String,
    },
}

/// Escapes a path for the file of the kernel's server: what ends or changes a word becomes three octal digits.
fn escape(path: &str) -> String {
    let mut escaped = String::with_capacity(path.len());
    for character in path.chars() {
        if character.is_ascii() && matches!(character, ' ' | '"' | '#' | '\'' | '(' | ')' | '\\') {
            let _ = write!(escaped, "\\{:03o}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

fn check_path(path: &str, server: &'static str) -> Result<(), ExportError> {
    if !path.starts_with('/') {
        return Err(ExportError::NotAbsolute { path: path.chars().take(80).collect() });
    }
    match path.chars().find(|c| c.is_control()) {
        Some(character) => Err(ExportError::Character { path: path.to_owned(), character, server }),
        None => Ok(()),
    }
}

/// Fails unless `mountpoint=` carries a path. The option ends at a comma, the list of options at a parenthesis; `exportfs` keeps the
/// option unescaped in its table, where a blank, a quote or a backslash has a meaning too.
fn check_mount_point(mount_point: &str) -> Result<(), ExportError> {
    let is_special = |c: &char| {
        matches!(c, ',' | '(' | ')' | '"' | '\'' | '#' | '\\') || c.is_whitespace() || c.is_control()
    };
    match mount_point.chars().find(is_special) {
        Some(character) => Err(ExportError::MountPoint { path: mount_point.to_owned(), character }),
        None => Ok(()),
    }
}

/// Text of a file in `/etc/exports.d` for one folder of a volume; `None` if no client was granted anything, and then there is no such
/// file.
///
/// # Errors
/// Fails if the path is not absolute or holds a control character, or if an option cannot carry the mount point.
pub fn exports_file(
    path: &str,
    mount_point: &MountPoint,
    networks: &[NetworkGrant],
) -> Result<Option<String>, ExportError> {
    check_path(path, KERNEL)?;
    // `exportfs` lists a path with blanks behind it up to a column, so one at its end is not known from those.
    if let Some(character) = path.chars().next_back().filter(|c| c.is_whitespace()) {
        return Err(ExportError::Character { path: path.to_owned(), character, server: KERNEL });
    }
    if networks.is_empty() && !mutation!(UngrantedExportWritten) {
        return Ok(None);
    }
    check_mount_point(mount_point.as_str())?;
    let mut text = format!(
        "# Written by Dolmen from the record of the share; changes are lost at its next start.\n{}",
        escape(path)
    );
    for grant in networks {
        let _ = write!(text, " {}({})", grant.client, kernel_options(grant.access, mount_point));
    }
    text.push('\n');
    Ok(Some(text))
}

/// Options of a client of the kernel's server, as `exportfs -o` takes them. The server exports nothing while nothing is mounted on the
/// mount point: after a crash it may start before the mount, and the folder below belongs to another file system.
#[must_use]
pub fn kernel_options(access: Access, mount_point: &MountPoint) -> String {
    let access = match access {
        Access::ReadOnly => "ro",
        Access::ReadWrite => "rw",
    };
    if mutation!(ExportWithoutMount) {
        return format!("{access},{OPTIONS}");
    }
    format!("{access},{OPTIONS},mountpoint={}", mount_point.as_str())
}

/// A client and a folder, as `exportfs` takes them as one argument: an address with colons stands in brackets.
#[must_use]
pub fn exportfs_target(client: &str, path: &str) -> String {
    match client.split_once('/') {
        Some((address, prefix)) if address.contains(':') => format!("[{address}]/{prefix}:{path}"),
        None if client.contains(':') => format!("[{client}]:{path}"),
        Some(_) | None => format!("{client}:{path}"),
    }
}

/// Reads the path back from what [`exports_file`] wrote; `None` from another text.
#[must_use]
pub fn path_of_exports(text: &str) -> Option<String> {
    let line = text.lines().find(|line| !line.starts_with('#'))?;
    let (word, _) = line.split_once(' ')?;
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(8));
        let (high, middle, low) = (digit()?, digit()?, digit()?);
        bytes.push(u8::try_from(high * 64 + middle * 8 + low).ok()?);
    }
    String::from_utf8(bytes).ok().filter(|path| path.starts_with('/'))
}

/// Reads the clients back from what [`exports_file`] wrote; none from another text.
#[must_use]
pub fn clients_of_exports(text: &str) -> Vec<String> {
    let line = text.lines().find(|line| !line.starts_with('#')).unwrap_or_default();
    let words = line.split(' ').skip(1).filter_map(|word| word.split_once('('));
    words.map(|(client, _)| client.to_owned()).collect()
}

/// A value in the configuration of Ganesha: within single quotes nothing has a meaning, within double ones a backslash has.
fn ganesha_text(path: &str) -> Result<String, ExportError> {
    check_path(path, "Ganesha")?;
    if !path.contains('\'') {
        return Ok(format!("'{path}'"));
    }
    match path.chars().find(|c| matches!(c, '"' | '\\')) {
        Some(character) => {
            Err(ExportError::Character { path: path.to_owned(), character, server: "Ganesha" })
        }
        None => Ok(format!("\"{path}\"")),
    }
}

fn ganesha_client(client: &Client) -> Result<String, ExportError> {
    match client {
        Client::Host(host) if !begins_with_a_letter(host) => {
            Err(ExportError::Host { host: host.as_str().to_owned() })
        }
        Client::Host(_) | Client::Address(_) | Client::Network(_) => Ok(client.to_string()),
    }
}

fn begins_with_a_letter(host: &HostName) -> bool {
    host.as_str().starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Export block of Ganesha for one folder, in a file of its own; `None` if no client was granted anything. `number` is given to no
/// other export of the server.
///
/// # Errors
/// Fails if Ganesha cannot carry the path or the name of a host.
pub fn ganesha_export(
    number: std::num::NonZeroU16,
    path: &str,
    networks: &[NetworkGrant],
) -> Result<Option<String>, ExportError> {
    let path = ganesha_text(path)?;
    if networks.is_empty() {
        return Ok(None);
    }
    let mut text = format!(
        "# Written by Dolmen from the record of the share; changes are lost at its next start.\nEXPORT {{\n    \
         Export_Id = {number};\n    Path = {path};\n    Pseudo = {path};\n    Protocols = 4;\n    Access_Type = NONE;\n    \
         Squash = root_squash;\n    SecType = sys;\n    FSAL {{ Name = VFS; }}\n"
    );
    for (access, word) in [(Access::ReadWrite, "RW"), (Access::ReadOnly, "RO")] {
        let granted = networks.iter().filter(|grant| grant.access == access);
        let clients: Vec<String> =
            granted.map(|grant| ganesha_client(&grant.client)).collect::<Result<_, _>>()?;
        if !clients.is_empty() {
            let _ =
                writeln!(text, "    CLIENT {{ Clients = {}; Access_Type = {word}; }}", clients.join(", "));
        }
    }
    text.push_str("}\n");
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::tests::any_client;
    use crate::record::Unknown;
    use proptest::prelude::*;

    fn grant(client: &str, access: Access) -> NetworkGrant {
        NetworkGrant { client: client.parse().unwrap(), access, unknown: Unknown::new() }
    }

    fn srv() -> MountPoint {
        "/srv/v".parse().unwrap()
    }

    #[test]
    fn exportfs_gets_addresses_with_colons_in_brackets() {
        for (client, argument) in [
            ("10.0.0.0/8", "10.0.0.0/8:/a b"),
            ("host.example", "host.example:/a b"),
            ("2001:db8::1", "[2001:db8::1]:/a b"),
            ("2001:db8::/32", "[2001:db8::]/32:/a b"),
        ] {
            assert_eq!(exportfs_target(client, "/a b"), argument);
        }
    }

    /// Reads a line of exports by its grammar: quotes, octal digits, words between spaces.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![Vec::new()];
        let mut is_quoted = false;
        let mut bytes = line.bytes();
        while let Some(byte) = bytes.next() {
            match byte {
                b'#' if !is_quoted => break,
                b'"' => is_quoted = !is_quoted,
                b' ' | b'\t' if !is_quoted => words.push(Vec::new()),
                b'\\' => {
                    let digits: Vec<u8> = bytes.by_ref().take(3).collect();
                    let digits = String::from_utf8(digits).unwrap();
                    words.last_mut().unwrap().push(u8::from_str_radix(&digits, 8).unwrap());
                }
                _ => words.last_mut().unwrap().push(byte),
            }
        }
        words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn an_export_names_its_clients_and_their_rights() {
        let networks = [grant("10.0.0.0/8", Access::ReadWrite), grant("host.example", Access::ReadOnly)];
        let text = exports_file("/srv/v/a b", &srv(), &networks).unwrap().unwrap();
        let line = text.lines().nth(1).unwrap();
        assert_eq!(
            line,
            "/srv/v/a\\040b 10.0.0.0/8(rw,sync,no_subtree_check,root_squash,sec=sys,mountpoint=/srv/v) \
             host.example(ro,sync,no_subtree_check,root_squash,sec=sys,mountpoint=/srv/v)",
            "an export without its mount"
        );
        let block = ganesha_export(7.try_into().unwrap(), "/srv/a b", &networks).unwrap().unwrap();
        for part in [
            "Export_Id = 7;",
            "Path = '/srv/a b';",
            "CLIENT { Clients = 10.0.0.0/8; Access_Type = RW; }",
            "CLIENT { Clients = host.example; Access_Type = RO; }",
            "    Access_Type = NONE;",
        ] {
            assert!(block.contains(part), "{block}");
        }
    }

    #[test]
    fn an_export_without_a_client_is_not_written() {
        assert_eq!(exports_file("/srv/docs", &srv(), &[]), Ok(None), "an export without a client");
        assert_eq!(ganesha_export(1.try_into().unwrap(), "/srv/docs", &[]), Ok(None));
    }

    #[test]
    fn what_a_server_cannot_carry_is_refused() {
        let networks = [grant("3com.example", Access::ReadOnly)];
        for path in ["srv", "", "-ro", "/a\nb", "/a\t", "/a ", "/a/b\u{a0}", "/a\u{3000}"] {
            assert!(exports_file(path, &srv(), &networks).is_err(), "{path:?}");
        }
        for mount_point in ["/a b", "/a,b", "/a)", "/a\"b", "/a\\b", "/a#b"] {
            let error = exports_file("/a", &mount_point.parse().unwrap(), &networks).unwrap_err();
            assert!(matches!(error, ExportError::MountPoint { .. }), "{mount_point}: {error}");
        }
        let ganesha = |path, networks: &[NetworkGrant]| ganesha_export(1.try_into().unwrap(), path, networks);
        assert!(matches!(ganesha("/a", &networks), Err(ExportError::Host { .. })));
        let error = ganesha("/a'b\"c", &[]).unwrap_err();
        assert!(matches!(error, ExportError::Character { character: '"', .. }), "{error}");
        assert!(matches!(ganesha("/a'b\\c", &[]), Err(ExportError::Character { character: '\\', .. })));
    }

    proptest! {
        #[test]
        fn the_path_of_a_file_of_exports_reads_back(path in "/.{0,30}", special in "/[ \"#'()\\\\0-9]{0,12}", text in "(?s).*") {
            for path in [path, special] {
                let Ok(Some(text)) = exports_file(&path, &srv(), &[grant("h", Access::ReadOnly)]) else { continue };
                prop_assert_eq!(path_of_exports(&text), Some(path));
            }
            let _ = path_of_exports(&text);
        }

        #[test]
        fn any_path_and_any_clients_come_back_from_the_file(
            path in "/.{0,20}", special in "/[ #\"'()\\\\\\-*]{0,10}", clients in proptest::collection::vec((any_client(), any::<bool>()), 1..5),
        ) {
            let networks: Vec<_> = clients.iter().map(|(client, write)| NetworkGrant {
                client: client.clone(),
                access: if *write { Access::ReadWrite } else { Access::ReadOnly },
                unknown: Unknown::new(),
            }).collect();
            for path in [path, special] {
                let Ok(Some(text)) = exports_file(&path, &srv(), &networks) else { continue };
                prop_assert_eq!(text.split('\n').count(), 3);
                let clients: Vec<_> = networks.iter().map(|grant| grant.client.to_string()).collect();
                prop_assert_eq!(clients_of_exports(&text), clients);
                let mut found = words(text.lines().nth(1).unwrap());
                prop_assert_eq!(found.remove(0), path);
                let expected: Vec<_> = networks.iter().map(|grant| {
                    let access = if grant.access == Access::ReadWrite { "rw" } else { "ro" };
                    format!("{}({access},{OPTIONS},mountpoint=/srv/v)", grant.client)
                }).collect();
                prop_assert_eq!(found, expected);
            }
        }

        /// The quotes end where the path does, so nothing after them is read as part of a block.
        #[test]
        fn any_path_comes_back_from_the_block(path in "/.{0,20}", special in "/[ #\"'{};=\\\\]{0,10}") {
            for path in [path, special] {
                let Ok(Some(text)) = ganesha_export(1.try_into().unwrap(), &path, &[grant("h", Access::ReadOnly)]) else { continue };
                let value = text.lines().find_map(|line| line.trim_start().strip_prefix("Path = ")).unwrap();
                let quote = value.chars().next().unwrap();
                let (inner, rest) = value[1..].split_once(quote).unwrap();
                prop_assert_eq!((inner, rest), (path.as_str(), ";"));
                prop_assert!(quote == '\'' || !inner.contains('\\'));
                prop_assert_eq!(text.lines().count(), 12);
            }
        }
    }
}
