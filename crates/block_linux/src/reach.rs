//! Whether another machine may reach a disk: by what its driver and its file system are (docs/design/0009). Nothing else
//! tells, so what is not known to be this machine's alone counts as shared.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::geometry::{DeviceNumber, attribute, queue_owner};

/// File systems that one machine mounts at a time, by the number that `statfs` gives.
const LOCAL_FILE_SYSTEMS: [u32; 16] = [
    0x0000_EF53, // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683E, // btrfs
    0xF2F5_2010, // F2FS
    0x2FC1_2FC1, // ZFS
    0xCA45_1A4E, // bcachefs
    0x3153_464A, // JFS
    0x5265_4973, // ReiserFS
    0x0000_4D44, // FAT
    0x2011_BAB0, // exFAT
    0x7366_746E, // NTFS
    0x0000_3434, // NILFS
    0x0102_1994, // tmpfs
    0x8584_58F6, // ramfs
    0x794C_7630, // overlay, whose upper layer is never on a network
    0x9584_58F6, // hugetlbfs
];
/// Layers of block devices that are looked through, at most.
const LAYERS_MAX: usize = 8;

/// Whether another machine may reach an open file.
pub(crate) fn of_file(fd: impl AsFd) -> bool {
    !rustix::fs::fstatfs(fd).is_ok_and(|status| is_local(status.f_type))
}

/// Whether another machine may reach a block device.
pub(crate) fn of_block(number: DeviceNumber) -> bool {
    let Ok(folder) = fs::canonicalize(queue_owner(number)) else { return true };
    of_folder(&folder, LAYERS_MAX)
}

/// The same of a device by its folder in sysfs.
fn of_folder(folder: &Path, layers: usize) -> bool {
    if layers == 0 {
        return true;
    }
    let path = folder.to_string_lossy();
    if let Some(file) = attribute(&folder.join("loop/backing_file")) {
        return !rustix::fs::statfs(file.as_str()).is_ok_and(|status| is_local(status.f_type));
    }
    let below = slaves(folder);
    if !below.is_empty() {
        return below.iter().any(|device| of_folder(device, layers - 1));
    }
    !is_own_bus(&path, || attribute(&folder.join("device/transport")))
}

/// The devices that a device lies on.
fn slaves(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder.join("slaves")) else { return Vec::new() };
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    // A partition's queue is its disk's.
    paths
        .filter_map(|path| fs::canonicalize(path).ok())
        .map(|path| {
            if path.join("partition").exists() {
                path.parent().map_or(path.clone(), Path::to_path_buf)
            } else {
                path
            }
        })
        .collect()
}

/// Whether a device, by the path of its folder in sysfs, is on a bus that ends in this machine.
fn is_own_bus(path: &str, transport: impl Fn() -> Option<String>) -> bool {
    let mut parts = path.split('/').peekable();
    let mut is_own = false;
    while let Some(part) = parts.next() {
        let is_numbered = |prefix: &str| {
            let digits = part.strip_prefix(prefix);
            digits.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        };
        is_own |= is_numbered("ata") || is_numbered("usb") || is_numbered("mmc");
        is_own |= part == "virtual"
            && parts.clone().any(|name| name.starts_with("zram") || name.starts_with("ram"));
        if is_numbered("nvme") {
            // A path of a device with several is by its subsystem, which does not say how it is reached.
            is_own |= transport().as_deref() == Some("pcie");
        }
    }
    is_own
}

fn is_local(number: rustix::fs::FsWord) -> bool {
    // Of 32 bits, which some systems keep in a longer, signed word.
    let [a, b, c, d, ..] = number.to_le_bytes();
    LOCAL_FILE_SYSTEMS.contains(&u32::from_le_bytes([a, b, c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buses_that_end_in_this_machine_are_known_and_no_others() {
        let pcie = || Some("pcie".to_owned());
        let nothing = || None;
        let pci = "/sys/devices/pci0000:00";
        assert!(is_own_bus(&format!("{pci}/0000:00:17.0/ata3/host2/target2:0:0/2:0:0:0/block/sda"), nothing));
        assert!(is_own_bus(
            &format!("{pci}/0000:00:14.0/usb2/2-1/2-1:1.0/host6/target6:0:0/6:0:0:0/block/sdb"),
            nothing
        ));
        assert!(is_own_bus(&format!("{pci}/0000:00:1d.0/0000:01:00.0/nvme/nvme0/nvme0n1"), pcie));
        assert!(is_own_bus("/sys/devices/virtual/block/zram0", nothing));
        let tcp = || Some("tcp".to_owned());
        assert!(!is_own_bus("/sys/devices/virtual/nvme-fabrics/ctl/nvme1/nvme1n1", tcp));
        assert!(!is_own_bus("/sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1", nothing));
        assert!(!is_own_bus(&format!("{pci}/0000:00:02.0/virtio1/block/vda"), nothing));
        assert!(!is_own_bus("/sys/devices/platform/host3/session1/target3:0:0/3:0:0:1/block/sdc", nothing));
        assert!(!is_own_bus(
            &format!("{pci}/0000:00:01.0/host0/port-0:0/end_device-0:0/target0:0:0/0:0:0:0/block/sdd"),
            nothing
        ));
        assert!(!is_own_bus("/sys/devices/virtual/block/nbd0", nothing));
    }

    #[test]
    fn files_are_shared_where_their_file_system_may_be() {
        // FUSE, NFS, SMB, 9p, Ceph.
        for number in [0x6573_5546u32, 0x6969, 0xFF53_4D42, 0x0102_1997, 0x00C3_6400] {
            assert!(!LOCAL_FILE_SYSTEMS.contains(&number), "{number:x}");
        }
        let proc = fs::File::open("/proc/self/stat").unwrap();
        assert!(of_file(&proc), "proc is no file system that this list knows");
    }
}
