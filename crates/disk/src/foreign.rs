//! Signatures of others: what a device holds before we would overwrite it.
//!
//! The magic numbers are those that `libblkid` and the projects themselves document. The list need not be complete: a
//! device whose first or last mebibyte is not all zeros is refused as well, only less precisely.

use std::fmt;

use dolmen_units::Bytes;

/// How much of each end is looked at: up to here reach all signatures below.
pub(crate) const PROBE_BYTES: u64 = 1 << 20;

/// Somebody else's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Foreign {
    /// A known format.
    Known {
        /// What it is, as a person calls it.
        what: &'static str,
    },
    /// Bytes that are not zero.
    Unknown {
        /// Where the first of them is.
        at: u64,
    },
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known { what } => write!(f, "{what}"),
            Self::Unknown { at } => write!(f, "data of an unknown kind (first at byte {at})"),
        }
    }
}

struct Signature {
    what: &'static str,
    at: usize,
    magic: &'static [u8],
}

const fn known(what: &'static str, at: usize, magic: &'static [u8]) -> Signature {
    Signature { what, at, magic }
}

/// Formats that are recognised by bytes at a fixed place from the start.
const FRONT: &[Signature] = &[
    known("an XFS file system", 0, b"XFSB"),
    known("a LUKS encrypted volume", 0, b"LUKS\xba\xbe"),
    known("a btrfs file system", 0x10040, b"_BHRfS_M"),
    known("an ext2/ext3/ext4 file system", 0x438, b"\x53\xef"),
    known("swap space", 4086, b"SWAPSPACE2"),
    known("an LVM physical volume", 512, b"LABELONE"),
    known("an LVM physical volume", 0, b"LABELONE"),
    known("a member of a Linux software RAID", 0, b"\xfc\x4e\x2b\xa9"),
    known("a member of a Linux software RAID", 4096, b"\xfc\x4e\x2b\xa9"),
    known("a GUID partition table", 512, b"EFI PART"),
    known("a GUID partition table", 4096, b"EFI PART"),
    known("an NTFS file system", 3, b"NTFS    "),
    known("an exFAT file system", 3, b"EXFAT   "),
    known("a FAT file system", 82, b"FAT32   "),
    known("a FAT file system", 54, b"FAT1"),
    known("an f2fs file system", 1024, b"\x10\x20\xf5\xf2"),
    known("a bcachefs or bcache device", 4120, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca"),
    known("a bcachefs device", 4120, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9"),
    known("a Ceph BlueStore device", 0, b"bluestore block device"),
    known("an ISO 9660 image", 32769, b"CD001"),
    known("a squashfs image", 0, b"hsqs"),
    known("an EROFS image", 1024, b"\xe2\xe1\xf5\xe0"),
    known("a ReiserFS file system", 0x10034, b"ReIsEr"),
    known("a JFS file system", 0x8000, b"JFS1"),
    known("a qcow2 image", 0, b"QFI\xfb"),
    known("a VMDK image", 0, b"KDMV"),
    known("a VHDX image", 0, b"vhdxfile"),
    known("a VDI image", 0x40, b"\x7f\x10\xda\xbe"),
    known("a gzip archive", 0, b"\x1f\x8b\x08"),
    known("an xz archive", 0, b"\xfd7zXZ\0"),
    known("a zip archive", 0, b"PK\x03\x04"),
    known("an ELF program", 0, b"\x7fELF"),
    known("a tar archive", 257, b"ustar"),
    known("a Windows Storage Spaces disk", 4096, b"SPACEDB "),
];

/// A ZFS uberblock is one of many at the end of the first label.
const ZFS_UBERBLOCK: [u8; 8] = 0x00ba_b10c_u64.to_le_bytes();

/// What the first and last mebibyte of a device of this size show, if anything.
#[must_use]
pub fn signature_of(front: &[u8], tail: &[u8], capacity: Bytes) -> Option<Foreign> {
    let holds =
        |bytes: &[u8], at: usize, magic: &[u8]| bytes.get(at..).is_some_and(|rest| rest.starts_with(magic));
    if let Some(signature) = FRONT.iter().find(|signature| holds(front, signature.at, signature.magic)) {
        return Some(Foreign::Known { what: signature.what });
    }
    let zfs = (128 * 1024..256 * 1024).step_by(1024).any(|at| holds(front, at, &ZFS_UBERBLOCK));
    if zfs {
        return Some(Foreign::Known { what: "a member of a ZFS pool" });
    }
    if tail_at(tail, capacity, raid_end(capacity)).is_some_and(|rest| rest.starts_with(b"\xfc\x4e\x2b\xa9")) {
        return Some(Foreign::Known { what: "a member of a Linux software RAID (superblock at the end)" });
    }
    if holds(front, 510, b"\x55\xaa")
        && front.get(446..510).is_some_and(|table| table.iter().any(|byte| *byte != 0))
    {
        return Some(Foreign::Known { what: "an MBR partition table" });
    }
    if tail.len() >= 512 && holds(tail, tail.len() - 512, b"EFI PART") {
        return Some(Foreign::Known { what: "the backup of a GUID partition table" });
    }
    let unknown = |bytes: &[u8], start: u64| {
        bytes.iter().position(|byte| *byte != 0).map(|index| Foreign::Unknown { at: start + index as u64 })
    };
    unknown(front, 0).or_else(|| unknown(tail, capacity.0.saturating_sub(tail.len() as u64)))
}

/// Where version 0.90 and 1.0 of md's superblock stands: 64 KiB aligned, 64 to 128 KiB from the end.
fn raid_end(capacity: Bytes) -> u64 {
    capacity.align_down(64 * 1024).0.saturating_sub(64 * 1024)
}

fn tail_at(tail: &[u8], capacity: Bytes, at: u64) -> Option<&[u8]> {
    let start = capacity.0.checked_sub(tail.len() as u64)?;
    tail.get(usize::try_from(at.checked_sub(start)?).ok()?..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_known_signature_is_named() {
        for signature in FRONT {
            let mut front = vec![0; 1 << 20];
            front[signature.at..signature.at + signature.magic.len()].copy_from_slice(signature.magic);
            let found = signature_of(&front, &[0; 4096], Bytes::gib(1));
            assert_eq!(found, Some(Foreign::Known { what: signature.what }));
        }
    }

    #[test]
    fn zeros_are_nobodys_and_anything_else_is_somebodys() {
        let zeros = vec![0; 1 << 20];
        assert_eq!(signature_of(&zeros, &zeros, Bytes::gib(1)), None);
        let mut tail = zeros.clone();
        tail[77] = 1;
        let at = (1 << 30) - (1 << 20) + 77;
        assert_eq!(signature_of(&zeros, &tail, Bytes::gib(1)), Some(Foreign::Unknown { at }));
    }
}
