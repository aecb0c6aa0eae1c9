//! Which medium a path leads to: one disk by two cables, one file by two loop devices, or a disk and its partition are one.
//!
//! A pool that had one medium twice would count copies on it twice. A second path tells itself by what the medium says of itself,
//! not by its name: the file that a loop device shows, and the worldwide name of a disk. Serial numbers that are no worldwide names
//! do not count: cheap bridges give one number to all disks behind them. Some give a placeholder in the form of a worldwide name, which
//! does not count either. Two paths to one disk agree on its size as well.
//!
//! Nothing is opened and nothing is written: all of it is read from sysfs.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use dolmen_units::SECTOR_BYTES;
use rustix::fs::{major, minor};

/// Folders of block devices in sysfs, by number.
const BLOCK_NUMBERS: &str = "/sys/dev/block";
/// Loop devices over loop devices that are looked through, at most.
const LAYERS_MAX: usize = 8;
/// Beginnings of names that are given to one disk in the world.
const WORLDWIDE: [&str; 3] = ["naa.", "eui.", "uuid."];
/// Fewest digits of a worldwide name that are not filler.
const DIGITS_MIN: usize = 3;

/// What holds the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Base {
    /// A block device, by its number.
    Device(u64),
    /// A disk that reports a worldwide name, whatever its number here, and its size in sectors.
    Disk { name: String, sectors: Option<u64> },
    /// A file, by its file system and inode.
    File { device: u64, inode: u64 },
    /// A file that cannot be looked at, by what the kernel calls it.
    Hidden(String),
}

/// A range of what holds the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Medium {
    base: Base,
    first: u64,
    end: u64,
}

impl Medium {
    /// Returns what a path leads to; none where nothing is there that could be a disk.
    pub(crate) fn at(path: &Path) -> Option<Self> {
        Self::of(path, LAYERS_MAX)
    }

    /// Whether bytes of one are bytes of the other.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.base == other.base && self.first < other.end && other.first < self.end
    }

    fn of(path: &Path, layers: usize) -> Option<Self> {
        let status = fs::metadata(path).ok()?;
        if status.is_file() {
            let base = Base::File { device: status.dev(), inode: status.ino() };
            return Some(Self { base, first: 0, end: u64::MAX });
        }
        if !status.file_type().is_block_device() {
            return None;
        }
        let number = status.rdev();
        let named = Path::new(BLOCK_NUMBERS).join(format!("{}:{}", major(number), minor(number)));
        let folder = fs::canonicalize(named).ok();
        Some(folder.map_or(Self::whole(Base::Device(number)), |folder| of_device(&folder, number, layers)))
    }

    fn whole(base: Base) -> Self {
        Self { base, first: 0, end: u64::MAX }
    }

    /// A part of it.
    fn part(self, first: u64, length: Option<u64>) -> Self {
        let first = self.first.saturating_add(first);
        let end = length.map_or(self.end, |length| first.saturating_add(length).min(self.end));
        Self { base: self.base, first, end }
    }
}

/// What a block device is, by its folder in sysfs.
fn of_device(folder: &Path, number: u64, layers: usize) -> Medium {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|text| text.trim_end().to_owned());
    let figure = |name: &str| read(name).and_then(|text| text.trim().parse::<u64>().ok());
    if let (Some(_), Some(start), Some(disk)) = (read("partition"), figure("start"), folder.parent()) {
        let length = figure("size").map(|sectors| sectors.saturating_mul(SECTOR_BYTES));
        let whole = of_device(disk, number_of(disk).unwrap_or(number), layers);
        return whole.part(start.saturating_mul(SECTOR_BYTES), length);
    }
    if let Some(file) = read("loop/backing_file") {
        let below = layers.checked_sub(1).and_then(|layers| Medium::of(&PathBuf::from(&file), layers));
        let limit = figure("loop/sizelimit").filter(|limit| *limit > 0);
        let below = below.unwrap_or(Medium::whole(Base::Hidden(file)));
        return below.part(figure("loop/offset").unwrap_or(0), limit);
    }
    let name = read("wwid").or_else(|| read("device/wwid"));
    let worldwide = name.filter(|name| is_worldwide(name));
    let disk = |name| Base::Disk { name, sectors: figure("size") };
    Medium::whole(worldwide.map_or(Base::Device(number), disk))
}

/// Returns whether a name is given to one disk in the world: by its form, and not a placeholder of a cheap bridge or controller, such
/// as zeros with a one at the end, or digits that count up.
fn is_worldwide(name: &str) -> bool {
    let Some(digits) = WORLDWIDE.iter().find_map(|begin| name.strip_prefix(begin)) else { return false };
    let digits: Vec<char> = digits.chars().filter(char::is_ascii_hexdigit).collect();
    // The first digit of an NAA name is its format.
    let own = digits.get(usize::from(name.starts_with("naa."))..).unwrap_or_default();
    let differ = |filler: char| own.iter().filter(|digit| digit.to_ascii_lowercase() != filler).count();
    let counts_up = own.iter().collect::<String>().contains("123456789");
    differ('0') >= DIGITS_MIN && differ('f') >= DIGITS_MIN && !counts_up
}

/// The number of a device, by its folder in sysfs.
fn number_of(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as sysfs has it.
    fn folder(at: &Path, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = at.join(name);
        for (file, text) in files {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        folder
    }

    /// Scenario: two cables lead to one disk, and a third to another; a bridge gives both of its disks one serial number. The paths of
    /// one disk overlap, those of different disks do not.
    #[test]
    fn two_paths_of_a_disk_with_a_worldwide_name_are_one() {
        let sys = tempfile::tempdir().unwrap();
        let disk = |name: &str, number, file: &str, wwid: &str| {
            of_device(&folder(sys.path(), name, &[(file, wwid)]), number, LAYERS_MAX)
        };
        let (a, again) = (
            disk("sda", 1, "device/wwid", "naa.5000c500a1b2c3d4"),
            disk("sdb", 2, "device/wwid", "naa.5000c500a1b2c3d4"),
        );
        let other = disk("sdc", 3, "device/wwid", "naa.5000c500a1b2c3d5");
        let (flash, too) = (
            disk("nvme0n1", 4, "wwid", "eui.002538b471b00a01"),
            disk("nvme1n1", 5, "wwid", "eui.002538b471b00a01"),
        );
        let serial = "t10.USB     Bridge  0123456789";
        let (one, two) = (disk("sdd", 6, "device/wwid", serial), disk("sde", 7, "device/wwid", serial));
        let nameless = of_device(&sys.path().join("vda"), 8, LAYERS_MAX);
        assert!(a.overlaps(&again) && flash.overlaps(&too) && nameless.overlaps(&nameless));
        assert!(![&other, &flash, &one, &nameless].iter().any(|medium| medium.overlaps(&a)));
        assert!(!one.overlaps(&two));
    }

    /// Scenario: bridges report placeholders as worldwide names of their disks, and two disks of different sizes report one name. All of
    /// them are different disks.
    #[test]
    fn a_placeholder_is_no_worldwide_name() {
        let sys = tempfile::tempdir().unwrap();
        let disk = |name: &str, number, wwid: &str, sectors: &str| {
            let files = [("device/wwid", wwid), ("size", sectors)];
            of_device(&folder(sys.path(), name, &files), number, LAYERS_MAX)
        };
        for wwid in [
            "naa.5000000000000001",
            "naa.0000000000000000",
            "eui.0000000000000000",
            "eui.0100000000000000",
            "naa.ffffffffffffffff",
            "naa.5012345678900000",
            "uuid.00000000-0000-0000-0000-000000000000",
        ] {
            let (one, two) = (disk("sda", 1, wwid, "2048"), disk("sdb", 2, wwid, "2048"));
            assert!(!one.overlaps(&two), "{wwid}");
        }
        let sized = |name, number, sectors| disk(name, number, "naa.5000c500a1b2c3d4", sectors);
        assert!(sized("sdc", 3, "2048").overlaps(&sized("sdd", 4, "2048")));
        assert!(!sized("sdc", 3, "2048").overlaps(&sized("sdd", 4, "4096")));
    }

    /// Scenario: partitions of a disk by both of its paths, and loop devices over parts of a file, which overlap or do not.
    #[test]
    fn parts_are_one_where_they_have_bytes_in_common() {
        let sys = tempfile::tempdir().unwrap();
        let (first, second) = (sys.path().join("sda"), sys.path().join("sdb"));
        for disk in [&first, &second] {
            let name = disk.file_name().unwrap().to_str().unwrap();
            folder(sys.path(), name, &[("device/wwid", "naa.5000c500a1b2c3d4"), ("dev", "8:0")]);
        }
        let part = |disk: &Path, name: &str, start: &str, size: &str| {
            of_device(
                &folder(disk, name, &[("partition", "1"), ("start", start), ("size", size)]),
                9,
                LAYERS_MAX,
            )
        };
        let (one, two) = (part(&first, "sda1", "2048", "2048"), part(&first, "sda2", "4096", "2048"));
        assert!(!one.overlaps(&two));
        assert!(one.overlaps(&part(&second, "sdb1", "2048", "2048")));
        assert!(one.overlaps(&of_device(&second, 1, LAYERS_MAX)));

        let file = sys.path().join("file");
        fs::write(&file, "").unwrap();
        let shown = |name: &str, offset: &str, limit: &str| {
            let text = file.to_str().unwrap();
            let files = [("loop/backing_file", text), ("loop/offset", offset), ("loop/sizelimit", limit)];
            of_device(&folder(sys.path(), name, &files), 7, LAYERS_MAX)
        };
        let (all, begin, end) =
            (shown("loop0", "0", "0"), shown("loop1", "0", "4096"), shown("loop2", "4096", "0"));
        assert!(all.overlaps(&begin) && all.overlaps(&end) && !begin.overlaps(&end));
        assert!(all.overlaps(&Medium::at(&file).unwrap()));
        fs::hard_link(&file, sys.path().join("link")).unwrap();
        assert!(end.overlaps(&Medium::at(&sys.path().join("link")).unwrap()));
        assert_eq!(Medium::at(sys.path()), None);
        fs::remove_file(&file).unwrap();
        assert!(shown("loop3", "0", "0").overlaps(&shown("loop4", "0", "0")));
    }
}
