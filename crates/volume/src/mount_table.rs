//! The table of mounts of a process, as `/proc/self/mountinfo` has it.
//!
//! The kernel writes space, tab, line feed, backslash and `#` in paths as three octal digits behind a backslash. Paths are bytes:
//! other programs mount what is no UTF-8.

use dolmen_mutation::mutation;

/// A device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// Number of the driver.
    pub major: u32,
    /// Number of the device; of an anonymous one for btrfs.
    pub minor: u32,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Number of the mount.
    pub id: u64,
    /// Number of the mount that it lies on.
    pub parent: u64,
    /// Device of its files, as `stat` shows it.
    pub device: DeviceNumber,
    /// Folder of the file system that is mounted: not `/` for a bind mount or a subvolume.
    pub root: Vec<u8>,
    /// Path that it is mounted on.
    pub path: Vec<u8>,
    /// Options of the mount, separated by commas.
    pub options: Vec<u8>,
    /// Kind of the file system, as the kernel names it.
    pub file_system: Vec<u8>,
    /// What is mounted: the path of a device for a volume.
    pub source: Vec<u8>,
    /// Options of the file system, separated by commas.
    pub super_options: Vec<u8>,
}

impl Mount {
    /// Returns whether the file system of a device is mounted here. btrfs shows an anonymous number, and is known by its source.
    ///
    /// The source of other kinds means nothing: every user may mount by FUSE, and chooses the text.
    #[must_use]
    pub fn is_of(&self, number: DeviceNumber, path: &str) -> bool {
        let names_source = self.file_system == b"btrfs" || mutation!(MountKnownByText);
        self.device == number || names_source && self.source == path.as_bytes()
    }
}

/// A line that is no mount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line} of the mount table is {text:?}, whose {field} is not understood; report it, with the kernel's version"
)]
pub struct MountTableError {
    /// Number of the line, from 1.
    pub line: usize,
    /// Line, cut to 200 characters.
    pub text: String,
    /// Field that is missing or wrong.
    pub field: &'static str,
}

/// All mounts, in the order of the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountTable {
    mounts: Vec<Mount>,
}

impl MountTable {
    /// Reads `/proc/self/mountinfo`.
    ///
    /// # Errors
    /// Fails at the first line that is no mount: a table that is understood in part answers no question.
    pub fn parse(text: &[u8]) -> Result<Self, MountTableError> {
        let lines = text.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
        let mounts = lines.map(|(at, line)| {
            parse_line(line).map_err(|field| MountTableError {
                line: at + 1,
                text: String::from_utf8_lossy(line).chars().take(200).collect(),
                field,
            })
        });
        Ok(Self { mounts: mounts.collect::<Result<_, _>>()? })
    }

    /// All mounts.
    #[must_use]
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// The mount that is seen at a path: the last of those that lie on each other.
    #[must_use]
    pub fn on(&self, path: &str) -> Option<&Mount> {
        self.mounts.iter().rev().find(|mount| mount.path == path.as_bytes())
    }

    /// Mounts below a path, without those on it.
    pub fn below(&self, path: &str) -> impl Iterator<Item = &Mount> {
        let folder = format!("{}/", path.trim_end_matches('/')).into_bytes();
        self.mounts.iter().filter(move |mount| mount.path.starts_with(&folder) && mount.path != folder)
    }

    /// Mounts of a device.
    pub fn of_device(&self, number: DeviceNumber, path: &str) -> impl Iterator<Item = &Mount> {
        let path = path.to_owned();
        self.mounts.iter().filter(move |mount| mount.is_of(number, &path))
    }
}

/// Reads a line; the error names the field that is wrong.
fn parse_line(line: &[u8]) -> Result<Mount, &'static str> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut next = |name| fields.next().filter(|field| !field.is_empty()).ok_or(name);
    let id = number(next("mount id")?).ok_or("mount id")?;
    let parent = number(next("parent id")?).ok_or("parent id")?;
    let device = device_number(next("device number")?).ok_or("device number")?;
    let root = unescape(next("root")?).ok_or("root")?;
    let path = unescape(next("mount point")?).ok_or("mount point")?;
    let options = next("options")?.to_vec();
    while next("separator")? != b"-" {}
    let file_system = next("file system")?.to_vec();
    // An empty source is written as nothing between two spaces.
    let source = unescape(fields.next().ok_or("source")?).ok_or("source")?;
    let super_options = fields.next().ok_or("options of the file system")?.to_vec();
    Ok(Mount { id, parent, device, root, path, options, file_system, source, super_options })
}

fn number<N: std::str::FromStr>(field: &[u8]) -> Option<N> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn device_number(field: &[u8]) -> Option<DeviceNumber> {
    let at = field.iter().position(|byte| *byte == b':')?;
    let (major, minor) = field.split_at_checked(at)?;
    Some(DeviceNumber { major: number(major)?, minor: number(minor.get(1..)?)? })
}

/// Takes the kernel's octal escapes back; `None` if one is cut short or is no byte.
fn unescape(field: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let mut value = 0_u32;
        for _ in 0..3 {
            let digit = rest.next().filter(|digit| (b'0'..=b'7').contains(digit))?;
            value = value * 8 + u32::from(digit - b'0');
        }
        bytes.push(u8::try_from(value).ok()?);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TABLE: &str = "\
22 1 0:21 / / rw,relatime - overlay overlay rw,lowerdir=/a
36 22 7:0 / /srv/a\\040b rw,nosuid,nodev,noatime shared:5 master:3 - xfs /dev/loop0 rw,attr2
37 22 0:55 /sub /srv/docs rw - btrfs /dev/loop1 rw,subvol=/sub
38 36 0:60 / /srv/a\\040b/in\\134ner rw - tmpfs tmpfs rw
39 22 7:3 / /srv/a\\040b rw - ext4 /dev/loop3 rw
40 22 0:61 / /srv/none rw - tmpfs  rw
41 22 0:62 / /mnt/u/x rw - fuse.btrfs /dev/loop1 rw
42 22 0:63 / /mnt/u/y rw - fuse /dev/loop9 rw
";

    #[test]
    fn the_table_tells_what_lies_on_a_path_and_where_a_device_is() {
        let table = MountTable::parse(TABLE.as_bytes()).unwrap();
        assert_eq!(table.mounts().len(), 8);
        assert_eq!(table.on("/srv/a b").unwrap().file_system, b"ext4", "the last one covers the first");
        assert!(table.on("/srv").is_none() && table.on("/srv/a").is_none());
        let below: Vec<_> = table.below("/srv/a b").map(|mount| mount.path.clone()).collect();
        assert_eq!(below, [b"/srv/a b/in\\ner".to_vec()]);
        assert_eq!(table.below("/").count(), 7);
        let device = |major, minor, path| {
            table.of_device(DeviceNumber { major, minor }, path).map(|mount| mount.id).collect::<Vec<_>>()
        };
        assert_eq!(device(7, 0, "/dev/loop0"), [36]);
        assert_eq!(
            device(7, 1, "/dev/loop1"),
            [37],
            "btrfs is not known, or a mount of a user counts as that of a device"
        );
        assert!(device(7, 9, "/dev/loop9").is_empty(), "a mount of a user counts as that of a device");
    }

    #[test]
    fn a_line_that_is_no_mount_is_shown() {
        for (line, field) in [
            ("x 1 0:21 / / rw - a b c", "mount id"),
            ("1 1 021 / / rw - a b c", "device number"),
            ("1 1 0:21 / /a\\04 rw - a b c", "mount point"),
            ("1 1 0:21 / /a\\777 rw - a b c", "mount point"),
            ("1 1 0:21 / / rw shared:1", "separator"),
            ("1 1 0:21 / / rw - a", "source"),
        ] {
            let error = MountTable::parse(format!("{TABLE}{line}\n").as_bytes()).unwrap_err();
            assert_eq!((error.line, error.field, error.text.as_str()), (9, field, line));
        }
    }

    proptest! {
        #[test]
        fn a_path_of_any_bytes_comes_back(path in proptest::collection::vec(1..=255_u8, 1..40)) {
            let escaped: Vec<u8> = path.iter().flat_map(|byte| match byte {
                b' ' | b'\t' | b'\n' | b'\\' | b'#' => format!("\\{byte:03o}").into_bytes(),
                _ => vec![*byte],
            }).collect();
            let line = [b"1 2 3:4 / ".as_slice(), &escaped, b" rw - xfs /dev/x rw\n"].concat();
            let table = MountTable::parse(&line).unwrap();
            prop_assert_eq!(&table.mounts()[0].path, &path);
        }

        #[test]
        fn no_bytes_stop_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = MountTable::parse(&bytes);
        }
    }
}
