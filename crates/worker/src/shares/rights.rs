//! Rights of a shared folder itself. A server gives no right that the file system refuses: the root of a new volume belongs to root, so
//! an account that was granted writing could not write.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use dolmen_volume::record::{Access, AccountGrant, AccountKind};

use super::command;
use crate::protocol::Failure;

/// Name of the access list of a folder.
const ACCESS_LIST: &str = "system.posix_acl_access";
/// Name of the rights that Windows has given. Samba obeys them before those of the file system.
const WINDOWS_RIGHTS: &str = "security.NTACL";
/// Bytes of an access list that are read, at most: some thousand entries.
const LIST_BYTES_MAX: usize = 64 << 10;
/// Version of access lists, and the tags of their entries.
const LIST_VERSION: u32 = 2;
const NAMED_USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const NAMED_GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
/// Rights to make files in a folder: writing and searching.
const MAKES_FILES: u32 = 3;

/// An entry of an access list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: u16,
    rights: u32,
    id: u32,
}

/// Owners and rights of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Folder {
    owner: u32,
    group: u32,
    mode: u32,
    list: Vec<Entry>,
}

/// An account as the file system knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Account {
    /// None for a group.
    user: Option<u32>,
    groups: Vec<u32>,
}

/// Reads an access list; none if this is not one.
fn entries(bytes: &[u8]) -> Option<Vec<Entry>> {
    let (version, rest) = bytes.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != LIST_VERSION || !rest.len().is_multiple_of(8) {
        return None;
    }
    let entry = |bytes: &[u8]| match *bytes {
        [tag_low, tag_high, rights_low, rights_high, a, b, c, d] => Some(Entry {
            tag: u16::from_le_bytes([tag_low, tag_high]),
            rights: u16::from_le_bytes([rights_low, rights_high]).into(),
            id: u32::from_le_bytes([a, b, c, d]),
        }),
        _ => None,
    };
    rest.chunks_exact(8).map(entry).collect()
}

impl Folder {
    /// Returns whether an account may make files in the folder, as the kernel decides it.
    fn lets_write(&self, account: &Account) -> bool {
        let is_enough = |rights: u32| rights & MAKES_FILES == MAKES_FILES;
        match account.user {
            Some(0) => return true,
            Some(user) if user == self.owner => return is_enough(self.mode >> 6),
            Some(_) | None => {}
        }
        let mask = self.list.iter().find(|entry| entry.tag == MASK).map_or(7, |entry| entry.rights);
        let named = |entry: &&Entry| entry.tag == NAMED_USER && account.user == Some(entry.id);
        if let Some(entry) = self.list.iter().find(named) {
            return is_enough(entry.rights & mask);
        }
        // With a list, the bits of the group in the mode are the mask.
        let owning =
            self.list.iter().find(|entry| entry.tag == OWNING_GROUP).map_or(self.mode >> 3, |e| e.rights);
        let of_group = account.groups.contains(&self.group).then_some(owning);
        let of_list =
            self.list.iter().filter(|entry| entry.tag == NAMED_GROUP && account.groups.contains(&entry.id));
        let mut of_groups = of_group.into_iter().chain(of_list.map(|entry| entry.rights)).peekable();
        if of_groups.peek().is_some() {
            return of_groups.any(|rights| is_enough(rights & mask));
        }
        is_enough(self.mode)
    }
}

/// Looks an account up; none if the system does not say its numbers.
fn account_of(grant: &AccountGrant) -> Result<Option<Account>, Failure> {
    let name = grant.name.as_str();
    let numbers = |program: &str, arguments: &[&str]| -> Result<Option<String>, Failure> {
        let ran = command::run(program, arguments)?;
        Ok(ran.is_success().then_some(ran.output))
    };
    let list = |text: &str| text.split_whitespace().map(str::parse).collect::<Result<Vec<u32>, _>>().ok();
    Ok(match grant.to {
        AccountKind::User => {
            let user = numbers("id", &["-u", "--", name])?.and_then(|text| text.trim().parse().ok());
            let groups = numbers("id", &["-G", "--", name])?.and_then(|text| list(&text));
            user.zip(groups).map(|(user, groups)| Account { user: Some(user), groups })
        }
        AccountKind::Group => {
            let line = numbers("getent", &["group", "--", name])?;
            let number = line.and_then(|line| line.split(':').nth(2)?.trim().parse().ok());
            number.map(|group| Account { user: None, groups: vec![group] })
        }
    })
}

/// Looks at a folder; none where Windows has given its rights, or they cannot be read.
fn folder_of(path: &Path) -> Option<Folder> {
    let mut bytes = vec![0; LIST_BYTES_MAX];
    if rustix::fs::getxattr(path, WINDOWS_RIGHTS, bytes.as_mut_slice()).is_ok() {
        return None;
    }
    let found = fs::symlink_metadata(path).ok()?;
    let list = match rustix::fs::getxattr(path, ACCESS_LIST, bytes.as_mut_slice()) {
        Ok(length) => entries(bytes.get(..length)?)?,
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Vec::new(),
        Err(_) => return None,
    };
    Some(Folder { owner: found.uid(), group: found.gid(), mode: found.mode(), list })
}

/// Returns a word as a shell reads it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Notes accounts that were granted writing and that the folder does not let write, with the command that lets them.
pub(super) fn note_refused(
    grants: &[AccountGrant],
    path: &str,
    notes: &mut Vec<String>,
) -> Result<(), Failure> {
    let mut writers = grants.iter().filter(|grant| grant.access == Access::ReadWrite).peekable();
    if writers.peek().is_none() {
        return Ok(());
    }
    let Some(folder) = folder_of(Path::new(path)) else { return Ok(()) };
    for grant in writers {
        let Some(account) = account_of(grant)? else { continue };
        if folder.lets_write(&account) {
            continue;
        }
        let (kind, letter, id) = match grant.to {
            AccountKind::User => ("user", 'u', account.user),
            AccountKind::Group => ("group", 'g', account.groups.first().copied()),
        };
        let entry = id.map(|id| format!("{letter}:{id}:rwx")).unwrap_or_default();
        notes.push(format!(
            "{kind} {} cannot write: the folder {path} does not let it, and a share gives no more than its folder; \
             `setfacl -m {entry} -m d:{entry} -- {}` lets it (package acl)",
            grant.name,
            quoted(path)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: u32 = 1000;
    const STAFF: u32 = 50;

    fn folder(owner: u32, group: u32, mode: u32, list: &[(u16, u32, u32)]) -> Folder {
        let entry = |(tag, rights, id): &(u16, u32, u32)| Entry { tag: *tag, rights: *rights, id: *id };
        Folder { owner, group, mode, list: list.iter().map(entry).collect() }
    }

    /// Scenario: a user in a group, and the group, against owners, modes and access lists.
    #[test]
    fn a_folder_lets_write_whom_the_kernel_lets() {
        let alice = Account { user: Some(ALICE), groups: vec![100, STAFF] };
        let staff = Account { user: None, groups: vec![STAFF] };
        let mask = |rights| (MASK, rights, u32::MAX);
        for (found, lets_alice, lets_staff) in [
            (folder(0, 0, 0o755, &[]), false, false),
            (folder(ALICE, 0, 0o755, &[]), true, false),
            (folder(ALICE, STAFF, 0o575, &[]), false, true),
            (folder(0, STAFF, 0o2775, &[]), true, true),
            (folder(0, STAFF, 0o757, &[]), false, false),
            (folder(0, 0, 0o757, &[]), true, true),
            (folder(0, 0, 0o756, &[]), false, false),
            (folder(0, 0, 0o775, &[(NAMED_USER, 7, ALICE), (OWNING_GROUP, 5, 0), mask(7)]), true, false),
            (folder(0, 0, 0o755, &[(NAMED_USER, 7, ALICE), (OWNING_GROUP, 5, 0), mask(5)]), false, false),
            (folder(0, 0, 0o775, &[(NAMED_USER, 7, 1001), (OWNING_GROUP, 5, 0), mask(7)]), false, false),
            (folder(0, 0, 0o775, &[(OWNING_GROUP, 5, 0), (NAMED_GROUP, 7, STAFF), mask(7)]), true, true),
            (folder(0, STAFF, 0o775, &[(OWNING_GROUP, 5, 0), mask(7)]), false, false),
        ] {
            let lets = (found.lets_write(&alice), found.lets_write(&staff));
            assert_eq!(lets, (lets_alice, lets_staff), "{found:?}");
            assert!(found.lets_write(&Account { user: Some(0), groups: vec![0] }));
        }
    }

    #[test]
    fn an_access_list_is_read_or_refused() {
        let bytes =
            [&2_u32.to_le_bytes()[..], &[2, 0, 7, 0, 0xe8, 3, 0, 0], &[0x10, 0, 5, 0, 255, 255, 255, 255]]
                .concat();
        let expected =
            [Entry { tag: NAMED_USER, rights: 7, id: ALICE }, Entry { tag: MASK, rights: 5, id: u32::MAX }];
        assert_eq!(entries(&bytes).unwrap(), expected);
        for bad in [&bytes[..3], &bytes[..11], &[3, 0, 0, 0]] {
            assert_eq!(entries(bad), None, "{bad:?}");
        }
    }

    /// Scenario: a folder of whoever runs the test, as the root of a new volume is; then one that everybody may write in.
    #[test]
    fn an_account_that_cannot_write_is_noted_with_the_command_that_lets_it() {
        let grant = |to: &str, name: &str, access: &str| -> AccountGrant {
            serde_json::from_value(serde_json::json!({"to": to, "name": name, "access": access})).unwrap()
        };
        let notes = |grants: &[AccountGrant], path: &Path| {
            let mut notes = Vec::new();
            note_refused(grants, path.to_str().unwrap(), &mut notes).unwrap();
            notes
        };
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("it's");
        fs::create_dir(&path).unwrap();
        let set =
            |mode| fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        set(0o755);
        let writers = [grant("user", "daemon", "read-write"), grant("group", "daemon", "read-write")];
        let found = notes(&writers, &path);
        let command =
            |entry: &str| format!("setfacl -m {entry} -m d:{entry} -- '{}", parent.path().display());
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains(&command("u:1:rwx")) && found[0].contains(r"it'\''s'"), "{}", found[0]);
        assert!(found[1].contains(&command("g:1:rwx")), "{}", found[1]);
        assert_eq!(notes(&[grant("user", "daemon", "read-only")], &path), [""; 0]);
        set(0o777);
        assert_eq!(notes(&writers, &path), [""; 0]);
    }
}
