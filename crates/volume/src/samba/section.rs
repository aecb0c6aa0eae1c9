//! The section of a share in Samba's registry: its parameters, and the commands that bring it there, change it and take it away.
//!
//! Each command sets one parameter and takes effect at once, so their order is a decision:
//! - the mark comes first: a section that a kill left half made is known as ours;
//! - `available = no` comes before all that grants, and `available = yes` is the last: no client gets in through a section that is
//!   half made or half changed;
//! - a section without this share's mark is neither changed nor deleted.

use super::{Configuration, Section, ShareName};
use crate::file_system::FileSystem;
use crate::record::{Access, AccountGrant, AccountKind, Encryption};
use crate::share_mark::ShareMark;
use crate::version::Version;
use dolmen_mutation::mutation;

/// Oldest Samba whose parameters are used.
pub const SAMBA_MIN: Version = Version::new(4, 15);
/// First Samba whose module `btrfs` offers clones of files on every file system that has them.
const CLONES_EVERYWHERE: Version = Version::new(4, 22);

/// A share as Samba offers it.
#[derive(Debug, Clone, Copy)]
pub struct SmbShare<'a> {
    /// Name that clients see.
    pub name: &'a ShareName,
    /// Name of the volume, for people.
    pub volume: &'a str,
    /// Folder on this host.
    pub path: &'a str,
    /// Users and groups with their rights.
    pub accounts: &'a [AccountGrant],
    /// Whether clients without encryption are refused.
    pub encryption: Encryption,
    /// Bytes that backups of Macs may take; none if Time Machine is not offered.
    pub time_machine_bytes: Option<u64>,
    /// File system of the volume.
    pub file_system: FileSystem,
    /// Samba of this host.
    pub samba: Version,
    /// Mark of the share.
    pub mark: ShareMark,
}

/// A section that cannot be written or deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SectionError {
    /// The section belongs to somebody else.
    #[error(
        "Samba has a section [{name}] that is not this share's; it is left as it is: rename the share, or remove the section with 'net conf delshare'"
    )]
    Foreign {
        /// Name of the section.
        name: String,
    },
    /// A value that the configuration of Samba would change.
    #[error(
        "{parameter} {value:?} has {character:?} at a place where Samba changes its meaning; rename the folder or the volume"
    )]
    Value {
        /// Parameter that would have it.
        parameter: &'static str,
        /// Value.
        value: String,
        /// First such character.
        character: char,
    },
    /// Samba is too old.
    #[error("shares need Samba {SAMBA_MIN} or later, and {found} is installed; install a later one")]
    TooOld {
        /// Version that is there.
        found: Version,
    },
}

/// Checks a value that Samba takes as a text: it substitutes `%`, drops outer spaces and quotes, and takes `\` for `/`.
fn check_value(parameter: &'static str, value: &str) -> Result<(), SectionError> {
    let inner = value.chars().find(|c| c.is_control() || matches!(c, '%' | '"' | '\\'));
    let outer =
        || [value.chars().next(), value.chars().last()].into_iter().flatten().find(|c| c.is_whitespace());
    match inner.or_else(outer) {
        Some(character) => Err(SectionError::Value { parameter, value: value.to_owned(), character }),
        None => Ok(()),
    }
}

/// A list of users and groups; quotes keep spaces and commas within a name.
fn account_list<'a>(accounts: impl Iterator<Item = &'a AccountGrant>) -> String {
    let names = accounts.map(|grant| match grant.to {
        AccountKind::User => format!("\"{}\"", grant.name),
        AccountKind::Group => format!("\"@{}\"", grant.name),
    });
    names.collect::<Vec<_>>().join(", ")
}

impl SmbShare<'_> {
    /// The section of the share. Without accounts it is not available: Samba takes an empty list of users for everybody.
    ///
    /// # Errors
    /// Fails if Samba is too old, or would change the path.
    pub fn section(&self) -> Result<Section, SectionError> {
        if self.samba < SAMBA_MIN {
            return Err(SectionError::TooOld { found: self.samba });
        }
        let comment = format!("Volume {} {}", self.volume, self.mark);
        check_value("comment", &comment)?;
        check_value("path", self.path)?;
        let is_granted = !self.accounts.is_empty() || mutation!(UngrantedShareAvailable);
        let mut parameters = vec![
            ("comment", comment),
            ("available", if is_granted { "yes" } else { "no" }.to_owned()),
            ("path", self.path.to_owned()),
            ("guest ok", "no".to_owned()),
            ("read only", "yes".to_owned()),
            ("server smb encrypt", self.encryption.parameter().to_owned()),
            ("wide links", "no".to_owned()),
        ];
        if !self.accounts.is_empty() {
            parameters.push(("valid users", account_list(self.accounts.iter())));
            let writers = self.accounts.iter().filter(|grant| grant.access == Access::ReadWrite);
            parameters.push(("write list", account_list(writers)));
        }
        let clones = match self.file_system {
            FileSystem::Btrfs => true,
            FileSystem::Xfs => self.samba >= CLONES_EVERYWHERE,
            FileSystem::Ext4 => false,
        };
        // The first module is called first: what Macs ask for becomes streams, and rights are decided above the module that shares
        // extents.
        let macs = self.time_machine_bytes.is_some().then_some(["fruit", "streams_xattr"]);
        let modules = macs.into_iter().flatten().chain(["acl_xattr"]).chain(clones.then_some("btrfs"));
        parameters.push(("vfs objects", modules.collect::<Vec<_>>().join(" ")));
        if let Some(bytes) = self.time_machine_bytes {
            parameters.push(("fruit:metadata", "stream".to_owned()));
            parameters.push(("fruit:time machine", "yes".to_owned()));
            parameters.push(("fruit:time machine max size", bytes.to_string()));
        }
        let parameters = parameters.into_iter().filter(|(_, value)| !value.is_empty());
        Ok(Section {
            name: self.name.to_string(),
            parameters: parameters.map(|(name, value)| (name.to_owned(), value)).collect(),
        })
    }

    /// Commands that bring the registry from what it has to the section of the share; none if it is there.
    ///
    /// # Errors
    /// Fails if a section of this name is not this share's, or the section cannot be written.
    pub fn commands(&self, registry: &Configuration) -> Result<Vec<Vec<String>>, SectionError> {
        let wanted = self.section()?;
        let none = Section::default();
        let existing = match registry.section(&wanted.name) {
            Some(section) if !is_marked(section, self.mark) => {
                return Err(SectionError::Foreign { name: section.name.clone() });
            }
            Some(section) => section,
            None => &none,
        };
        let is_gate = |name: &str| name == "available";
        let changes: Vec<(&str, &str)> = wanted
            .parameters
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .filter(|(name, value)| !is_gate(name) && existing.value(name) != Some(value))
            .collect();
        let is_surplus = |name: &str| !is_gate(name) && wanted.value(name).is_none();
        let surplus: Vec<&str> = existing
            .parameters
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| is_surplus(name))
            .collect();
        let gate = wanted.value("available").unwrap_or("no");
        let is_open = existing.value("available").is_some_and(|value| value == "yes");
        let mut commands = Vec::new();
        let mut set = |name: &str, value: &str| {
            commands.push(net_conf("setparm", &[&wanted.name, name, value]));
        };
        let is_changed = !changes.is_empty() || !surplus.is_empty();
        if let Some((name, value)) = changes.first().filter(|(name, _)| *name == "comment") {
            set(name, value);
        }
        if is_changed || (gate == "no" && is_open) {
            set("available", "no");
        }
        for (name, value) in changes.iter().filter(|(name, _)| *name != "comment") {
            set(name, value);
        }
        commands.extend(surplus.iter().map(|name| net_conf("delparm", &[&wanted.name, name])));
        if gate == "yes" && (is_changed || !is_open) {
            let open = net_conf("setparm", &[&wanted.name, "available", "yes"]);
            let at = if mutation!(ShareOpenBeforeGrants) { commands.len().min(1) } else { commands.len() };
            commands.insert(at, open);
        }
        Ok(commands)
    }
}

/// Command that takes the section of a share away; `None` if there is none.
///
/// # Errors
/// Fails if the section of this name is not this share's.
pub fn delete_command(
    registry: &Configuration,
    name: &ShareName,
    mark: ShareMark,
) -> Result<Option<Vec<String>>, SectionError> {
    match registry.section(name.as_str()) {
        None => Ok(None),
        Some(section) if is_marked(section, mark) => Ok(Some(net_conf("delshare", &[&section.name]))),
        Some(section) => Err(SectionError::Foreign { name: section.name.clone() }),
    }
}

/// Names of the sections that have the mark of a share: one, or two while a change of its name is under way.
#[must_use]
pub fn sections_of(registry: &Configuration, mark: ShareMark) -> Vec<String> {
    let marked = registry.sections().iter().filter(|section| is_marked(section, mark));
    marked.map(|section| section.name.clone()).collect()
}

/// Whether a section is this share's.
fn is_marked(section: &Section, mark: ShareMark) -> bool {
    let found = section.value("comment").and_then(ShareMark::at_end_of);
    found == Some(mark) || mutation!(ForeignSectionDeleted)
}

/// Arguments of `net conf`; those behind `--` are never options.
fn net_conf(verb: &str, arguments: &[&str]) -> Vec<String> {
    ["net", "conf", verb, "--"].iter().chain(arguments).map(|argument| (*argument).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Unknown;
    use crate::share_mark::tests::any_mark;
    use dolmen_units::PoolId;
    use proptest::prelude::*;

    const MARK: ShareMark = ShareMark { pool: PoolId([1; 16]), space: 2, share: 3 };

    fn grant(to: AccountKind, name: &str, access: Access) -> AccountGrant {
        AccountGrant { to, name: name.parse().unwrap(), access, unknown: Unknown::new() }
    }

    fn share<'a>(name: &'a ShareName, path: &'a str, accounts: &'a [AccountGrant]) -> SmbShare<'a> {
        let samba = Version::new(4, 22);
        SmbShare {
            name,
            volume: "tank/home",
            path,
            accounts,
            encryption: Encryption::Required,
            time_machine_bytes: None,
            file_system: FileSystem::Xfs,
            samba,
            mark: MARK,
        }
    }

    /// The registry as `net conf` leaves it after some commands.
    fn apply(registry: &Configuration, commands: &[Vec<String>]) -> Configuration {
        let mut sections = registry.sections().to_vec();
        for command in commands {
            let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
            let (verb, name) = (arguments[2], arguments[4]);
            assert_eq!((arguments[0], arguments[1], arguments[3]), ("net", "conf", "--"));
            let at = sections.iter().position(|section| section.name == name).unwrap_or_else(|| {
                assert_eq!(verb, "setparm", "{name} is absent");
                sections.push(Section { name: name.to_owned(), parameters: vec![] });
                sections.len() - 1
            });
            match verb {
                "delshare" => drop(sections.remove(at)),
                "delparm" => sections[at].parameters.retain(|(parameter, _)| parameter != arguments[5]),
                "setparm" => {
                    sections[at].parameters.retain(|(parameter, _)| parameter != arguments[5]);
                    sections[at].parameters.push((arguments[5].to_owned(), arguments[6].to_owned()));
                }
                other => panic!("{other}"),
            }
        }
        Configuration::parse(&print(&sections)).unwrap()
    }

    /// As `net conf list` prints sections.
    fn print(sections: &[Section]) -> String {
        let section = |section: &Section| {
            let lines = section.parameters.iter().map(|(name, value)| format!("\t{name} = {value}\n"));
            format!("[{}]\n{}\n", section.name, lines.collect::<String>())
        };
        sections.iter().map(section).collect()
    }

    #[test]
    fn a_section_asks_for_encryption_and_a_granted_account() {
        let name = "docs".parse().unwrap();
        let accounts = [
            grant(AccountKind::User, "alice smith", Access::ReadWrite),
            grant(AccountKind::Group, "EXAMPLE\\Domain Users", Access::ReadOnly),
        ];
        let section = share(&name, "/srv/home/docs", &accounts).section().unwrap();
        let value = |parameter| section.value(parameter).unwrap();
        assert_eq!(value("valid users"), "\"alice smith\", \"@EXAMPLE\\Domain Users\"");
        assert_eq!(value("write list"), "\"alice smith\"");
        assert_eq!((value("read only"), value("guest ok")), ("yes", "no"));
        assert_eq!((value("server smb encrypt"), value("available")), ("required", "yes"));
        assert_eq!((value("vfs objects"), value("wide links")), ("acl_xattr btrfs", "no"));
        let vfs = |file_system, samba| {
            let share = SmbShare { file_system, samba, ..share(&name, "/srv/docs", &accounts) };
            share.section().unwrap().value("vfs objects").map(str::to_owned)
        };
        assert_eq!(vfs(FileSystem::Xfs, Version::new(4, 17)).as_deref(), Some("acl_xattr"));
        assert_eq!(vfs(FileSystem::Btrfs, Version::new(4, 17)).as_deref(), Some("acl_xattr btrfs"));
        assert_eq!(vfs(FileSystem::Ext4, Version::new(4, 22)).as_deref(), Some("acl_xattr"));
        let plain = SmbShare { encryption: Encryption::Desired, ..share(&name, "/srv/docs", &accounts) };
        assert_eq!(plain.section().unwrap().value("server smb encrypt"), Some("desired"));
        let old = SmbShare { samba: Version::new(4, 13), ..share(&name, "/srv/docs", &accounts) };
        assert_eq!(old.section(), Err(SectionError::TooOld { found: Version::new(4, 13) }));
    }

    /// Scenario: a share gets Time Machine, and loses it. Its modules and bound come, in the order of their calls, and go.
    #[test]
    fn time_machine_has_its_modules_and_its_bound() {
        let name = "docs".parse().unwrap();
        let accounts = [grant(AccountKind::User, "alice", Access::ReadWrite)];
        let plain = share(&name, "/srv/docs", &accounts);
        let backups = SmbShare { time_machine_bytes: Some(1 << 40), ..plain };
        let section = backups.section().unwrap();
        assert_eq!(section.value("vfs objects"), Some("fruit streams_xattr acl_xattr btrfs"));
        assert_eq!(section.value("fruit:time machine max size"), Some("1099511627776"));
        let registry =
            apply(&Configuration::default(), &backups.commands(&Configuration::default()).unwrap());
        assert_eq!(registry.section("docs").unwrap().value("fruit:time machine"), Some("yes"));
        assert_eq!(backups.commands(&registry), Ok(vec![]));
        let registry = apply(&registry, &plain.commands(&registry).unwrap());
        let left = &registry.section("docs").unwrap().parameters;
        assert!(!left.iter().any(|(name, _)| name.starts_with("fruit:")), "{left:?}");
    }

    /// Samba takes an absent list of users for everybody.
    #[test]
    fn a_share_without_a_grant_is_not_available() {
        let name = "docs".parse().unwrap();
        let section = share(&name, "/srv/docs", &[]).section().unwrap();
        assert_eq!(section.value("available"), Some("no"), "a share without a grant");
        let registry = apply(
            &Configuration::default(),
            &share(&name, "/srv/docs", &[]).commands(&Configuration::default()).unwrap(),
        );
        assert_eq!(registry.section("docs").unwrap().value("available"), Some("no"));
    }

    /// A section of somebody else, of another share, and of a share of another pool: neither changed nor deleted.
    #[test]
    fn a_section_without_the_mark_is_neither_changed_nor_deleted() {
        let name: ShareName = "docs".parse().unwrap();
        let accounts = [grant(AccountKind::User, "alice", Access::ReadWrite)];
        let others = [
            ShareMark { share: 4, ..MARK },
            ShareMark { space: 5, ..MARK },
            ShareMark { pool: PoolId([2; 16]), ..MARK },
        ];
        let comments =
            others.iter().map(ShareMark::to_string).chain(["by hand".to_owned(), format!("{MARK} by hand")]);
        for comment in comments.map(Some).chain([None]) {
            let parameters = comment.iter().map(|comment| ("comment".to_owned(), comment.clone())).collect();
            let registry =
                Configuration::parse(&print(&[Section { name: "Docs".to_owned(), parameters }])).unwrap();
            let foreign = SectionError::Foreign { name: "Docs".to_owned() };
            let deleted = delete_command(&registry, &name, MARK);
            assert_eq!(deleted, Err(foreign.clone()), "a section with comment {comment:?} was deleted");
            assert_eq!(share(&name, "/srv/docs", &accounts).commands(&registry), Err(foreign));
        }
    }

    #[test]
    fn a_path_that_samba_changes_is_refused() {
        let name = "docs".parse().unwrap();
        for (path, character) in
            [("/srv/%U", '%'), ("/srv/a\"", '"'), ("/srv/a ", ' '), ("/srv/a\\b", '\\'), ("/a\n", '\n')]
        {
            let error = share(&name, path, &[]).section().unwrap_err();
            assert_eq!(error, SectionError::Value { parameter: "path", value: path.to_owned(), character });
        }
    }

    proptest! {
        /// From any state of its own section, also one that a kill left, the commands lead to the wanted one, and a second run has
        /// none. In between the section is known as ours, and available only with the old parameters or with the new ones.
        #[test]
        fn a_killed_change_ends_as_wanted_and_never_opens_a_half_made_section(
            mark in any_mark(), first in "[A-Za-z ]{1,8}", second in "[^\"%\\\\\\s\\p{C}/]{1,8}", names in proptest::collection::vec(("[^\"%@+&\\s\\p{C}]{1,8}", any::<bool>(), any::<bool>()), 0..4),
            kept: proptest::sample::Index, killed: proptest::sample::Index, by_hand: bool,
        ) {
            let accounts: Vec<_> = names.iter().map(|(name, group, write)| grant(
                if *group { AccountKind::Group } else { AccountKind::User }, name,
                if *write { Access::ReadWrite } else { Access::ReadOnly },
            )).collect();
            let name: ShareName = "docs".parse().unwrap();
            let first = format!("/srv/{}x", first.trim());
            let old = SmbShare { mark, ..share(&name, &first, &accounts[..kept.index(accounts.len() + 1)]) };
            let second = format!("/srv/{second}");
            let new = SmbShare { mark, ..share(&name, &second, &accounts) };
            let mut registry = apply(&Configuration::default(), &old.commands(&Configuration::default()).unwrap());
            if by_hand {
                registry = apply(&registry, &[net_conf("setparm", &["docs", "admin users", "mallory"])]);
            }
            let before = registry.section("docs").unwrap().clone();
            let commands = new.commands(&registry).unwrap();
            let after = new.section().unwrap();
            for end in 0..=commands.len() {
                let between = apply(&registry, &commands[..end]);
                let section = between.section("docs").unwrap();
                prop_assert!(is_marked(section, mark));
                if section.value("available") == Some("yes") {
                    let sorted = |section: &Section| { let mut list = section.parameters.clone(); list.sort(); list };
                    let is_whole = sorted(section) == sorted(&before) || sorted(section) == sorted(&after);
                    prop_assert!(is_whole, "available while half made: {:?}", section);
                }
            }
            let killed = apply(&registry, &commands[..killed.index(commands.len() + 1)]);
            let ended = apply(&killed, &new.commands(&killed).unwrap());
            let mut found = ended.section("docs").unwrap().clone();
            found.parameters.sort();
            let mut expected = after;
            expected.parameters.sort();
            prop_assert_eq!(found, expected);
            prop_assert_eq!(new.commands(&ended).unwrap(), Vec::<Vec<String>>::new());
            prop_assert_eq!(apply(&ended, &[delete_command(&ended, &name, mark).unwrap().unwrap()]), Configuration::default());
        }

        /// Any share that is accepted reads back from the registry as it was: no name, path or account adds a section or a parameter.
        #[test]
        fn no_text_adds_a_section_or_a_parameter(name in ".{1,20}", path in "/.{1,20}", account in ".{1,20}", group: bool) {
            let (Ok(name), Ok(account)) = (name.parse::<ShareName>(), account.parse()) else { return Ok(()) };
            let to = if group { AccountKind::Group } else { AccountKind::User };
            let accounts = [AccountGrant { to, name: account, access: Access::ReadWrite, unknown: Unknown::new() }];
            let Ok(section) = share(&name, &path, &accounts).section() else { return Ok(()) };
            let read = Configuration::parse(&print(std::slice::from_ref(&section))).unwrap();
            prop_assert_eq!(read.sections(), &[section]);
        }
    }
}
