//! Formats of images of disks, by their first bytes.
//!
//! An image may name other files: a backing file, a parent, a file with its data. Their names are chosen by the author of the image,
//! and the program that converts it runs with the rights of its user. So an image that names another file is refused here, before
//! any program opens it.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use dolmen_mutation::mutation;

/// Bytes of a file in which its format is recognised.
const HEAD_BYTES: usize = 4096;
/// Bytes of a name in a header, at most: qcow2 allows 1023.
const NAME_BYTES_MAX: u64 = 1023;
/// Bytes of the description in a VMDK that are read, at most.
const DESCRIPTION_BYTES_MAX: u64 = 64 * 1024;
/// Extensions of a header of qcow2 that are looked at, at most.
const EXTENSIONS_MAX: usize = 64;
/// Size of a sector in headers.
const SECTOR_BYTES: u64 = 512;

/// Format of an image that is converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// QEMU, from version 2 on.
    Qcow2,
    /// VMware: one file that holds its description.
    Vmdk,
    /// Virtual PC and Hyper-V.
    Vhd,
    /// Hyper-V.
    Vhdx,
    /// VirtualBox.
    Vdi,
}

impl ImageFormat {
    /// Returns the name that QEMU has for it.
    #[must_use]
    pub fn driver(self) -> &'static str {
        match self {
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
            Self::Vhd => "vpc",
            Self::Vhdx => "vhdx",
            Self::Vdi => "vdi",
        }
    }
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "VMDK",
            Self::Vhd => "VHD",
            Self::Vhdx => "VHDX",
            Self::Vdi => "VDI",
        })
    }
}

/// Content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Bytes of a disk, one after another.
    Raw,
    /// An image that stands alone.
    Image {
        /// Its format.
        format: ImageFormat,
        /// Bytes of its disk, where the header says so in one field.
        disk_bytes: Option<u64>,
    },
    /// An image that takes data from another file.
    NotWhole {
        /// Its format.
        format: ImageFormat,
        /// Name of the other file.
        needs: Option<String>,
    },
    /// An encrypted image.
    Encrypted {
        /// Its format.
        format: ImageFormat,
    },
    /// Another known kind, which is no image of a disk.
    Other {
        /// Kind, with an article.
        kind: &'static str,
    },
}

/// First bytes of files that are no images of a disk, or not in one file.
const OTHERS: [(&[u8], &str); 7] = [
    (b"\x1f\x8b\x08", "compressed by gzip"),
    (b"\xfd7zXZ\0", "compressed by xz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"BZh", "compressed by bzip2"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"COWD", "a VMDK of an old ESX, in several files"),
    (b"# Disk DescriptorFile", "the description of a VMDK whose data lie in other files"),
];

/// Recognises the content of a file of `size_bytes`.
///
/// # Errors
/// Errors of reading it.
pub fn recognise(file: &File, size_bytes: u64) -> io::Result<Content> {
    let head = read(file, 0, HEAD_BYTES)?;
    if let Some((_, kind)) = OTHERS.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Ok(Content::Other { kind });
    }
    if head.starts_with(b"QFI\xfb") {
        return qcow(file, &head);
    }
    if head.starts_with(b"KDMV") {
        return vmdk(file, &head);
    }
    if head.starts_with(b"vhdxfile") {
        // QEMU refuses one that has a parent.
        return Ok(Content::Image { format: ImageFormat::Vhdx, disk_bytes: None });
    }
    if little(&head, 64, 4) == Some(0xbeda_107f) {
        return Ok(vdi(&head, size_bytes));
    }
    // A VHD ends with its description; one of fixed size has no other.
    let tail = read(file, size_bytes.saturating_sub(SECTOR_BYTES), 512)?;
    let is_complete = tail.starts_with(b"conectix");
    match (head.starts_with(b"conectix"), is_complete) {
        (true, false) if !is_difference(&head) => Ok(Content::Other { kind: "a VHD whose end is missing" }),
        (true, _) => Ok(vhd(&head)),
        (false, true) => Ok(vhd(&tail)),
        (false, false) => Ok(Content::Raw),
    }
}

fn qcow(file: &File, head: &[u8]) -> io::Result<Content> {
    let format = ImageFormat::Qcow2;
    let version = big(head, 4, 4).unwrap_or(0);
    if version < 2 {
        return Ok(Content::Other { kind: "an image of QEMU in its first format, qcow" });
    }
    let backing = (big(head, 8, 8).unwrap_or(0), big(head, 16, 4).unwrap_or(0));
    if backing.0 != 0 && !mutation!(BackingFileOpened) {
        return Ok(Content::NotWhole { format, needs: name_at(file, backing.0, backing.1)? });
    }
    if big(head, 32, 4) != Some(0) {
        return Ok(Content::Encrypted { format });
    }
    let features = if version >= 3 { big(head, 72, 8).unwrap_or(0) } else { 0 };
    if features & 1 << 2 != 0 {
        return Ok(Content::NotWhole { format, needs: data_file(file, head)? });
    }
    Ok(Content::Image { format, disk_bytes: big(head, 24, 8) })
}

/// Returns the name of the data file in the extensions of a header of qcow2.
fn data_file(file: &File, head: &[u8]) -> io::Result<Option<String>> {
    const NAME: u64 = 0x4441_5441;
    let mut at = big(head, 100, 4).unwrap_or(0);
    for _ in 0..EXTENSIONS_MAX {
        let extension = read(file, at, 8)?;
        let (Some(kind), Some(length)) = (big(&extension, 0, 4), big(&extension, 4, 4)) else { break };
        match kind {
            0 => break,
            NAME => return name_at(file, at.saturating_add(8), length),
            _ => at = at.saturating_add(8).saturating_add(length.next_multiple_of(8)),
        }
    }
    Ok(None)
}

fn vmdk(file: &File, head: &[u8]) -> io::Result<Content> {
    let format = ImageFormat::Vmdk;
    let field = |at| little(head, at, 8).unwrap_or(0);
    let (sectors, begin, length) = (field(12), field(28), field(36));
    let length = length.saturating_mul(SECTOR_BYTES).min(DESCRIPTION_BYTES_MAX);
    let text = match begin {
        0 => Vec::new(),
        _ => read(file, begin.saturating_mul(SECTOR_BYTES), usize::try_from(length).unwrap_or(0))?,
    };
    let text = String::from_utf8_lossy(&text);
    let value = |key: &str| {
        text.lines().find_map(|line| {
            let (found, value) = line.split_once('=')?;
            found.trim().eq_ignore_ascii_case(key).then(|| value.trim().trim_matches('"').to_owned())
        })
    };
    let has_parent = value("parentCID").is_some_and(|parent| !parent.eq_ignore_ascii_case("ffffffff"));
    // Without a size of its own, the header stands in front of a description of other files.
    if has_parent || sectors == 0 {
        return Ok(Content::NotWhole { format, needs: value("parentFileNameHint") });
    }
    Ok(Content::Image { format, disk_bytes: sectors.checked_mul(SECTOR_BYTES) })
}

fn vdi(head: &[u8], size_bytes: u64) -> Content {
    const DIFFERENCE: u64 = 4;
    let format = ImageFormat::Vdi;
    let field = |at| little(head, at, 4).unwrap_or(0);
    let end = field(0x184).saturating_mul(field(0x178)).saturating_add(field(0x158));
    match field(0x4c) {
        DIFFERENCE => Content::NotWhole { format, needs: None },
        // What is missing would read as zeros.
        _ if end > size_bytes => Content::Other { kind: "a VDI whose end is missing" },
        _ => Content::Image { format, disk_bytes: little(head, 0x170, 8) },
    }
}

fn vhd(description: &[u8]) -> Content {
    let format = ImageFormat::Vhd;
    if is_difference(description) {
        return Content::NotWhole { format, needs: None };
    }
    // Two fields say the size, and which of both holds depends on the program that wrote them.
    Content::Image { format, disk_bytes: None }
}

/// Returns whether a VHD has a parent.
fn is_difference(description: &[u8]) -> bool {
    big(description, 60, 4) == Some(4)
}

/// Reads up to so many bytes; fewer at the end of the file.
fn read(file: &File, at: u64, wanted: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; wanted];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let place = u64::try_from(filled).ok().and_then(|filled| at.checked_add(filled));
        // A place past every file has no bytes.
        let Some(place) = place.filter(|place| i64::try_from(*place).is_ok()) else { break };
        match file.read_at(rest, place) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn name_at(file: &File, at: u64, length: u64) -> io::Result<Option<String>> {
    let bytes = read(file, at, usize::try_from(length.min(NAME_BYTES_MAX)).unwrap_or(0))?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|name| !name.is_empty()))
}

fn field(bytes: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(length)?)
}

fn big(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    Some(field(bytes, at, length)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn little(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    Some(field(bytes, at, length)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}
