//! The calls against the file systems of this kernel, each on a loop device over a file.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

mod rig;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use dolmen_files::extents::{Extent, extents};
use dolmen_files::handle::{Access, Handle};
use dolmen_files::inodes::inodes;
use dolmen_files::project_quota::{project, set_project};
use dolmen_files::share::{Shared, clone_range, share};
use dolmen_files::space_map::{Owner, space_map};
use dolmen_files::volume::{Frozen, trim, usage, xfs_geometry};
use dolmen_files::walk::Walk;

use rig::Mounted;

const MIB: u64 = 1 << 20;

/// A file system that a test works on.
struct Volume(Mounted);

impl Volume {
    fn new(make: &[&str]) -> Option<Self> {
        Mounted::new(make, 400 * MIB).map(Self)
    }

    fn xfs() -> Option<Self> {
        Self::new(&["mkfs.xfs", "-q", "-m", "reflink=1,rmapbt=1"])
    }

    fn btrfs() -> Option<Self> {
        Self::new(&["mkfs.btrfs", "-q"])
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn root(&self) -> File {
        File::open(self.path("")).unwrap()
    }

    /// Writes a file with a byte pattern, and opens it.
    fn file(&self, name: &str, bytes: usize, pattern: u8) -> File {
        let content: Vec<u8> = (0..bytes).map(|at| (at / 4096) as u8 ^ pattern).collect();
        let options = || OpenOptions::new().read(true).write(true).create_new(true).clone();
        let mut file = options().open(self.path(name)).unwrap();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        file
    }
}

fn map_of(file: &File) -> Vec<Extent> {
    let mut found = Vec::new();
    extents(file, 0, u64::MAX, &mut found).unwrap();
    found
}

fn equal_ranges_are_shared_and_others_stay(volume: &Volume) {
    // Scenario: two files of 1 MiB with equal bytes, and a third that differs in all of them.
    let (one, two, other) = (
        volume.file("one", MIB as usize, 1),
        volume.file("two", MIB as usize, 1),
        volume.file("other", MIB as usize, 2),
    );
    assert_ne!(map_of(&one)[0].physical, map_of(&two)[0].physical);
    assert_eq!(share(&one, 0, &two, 0, MIB).unwrap(), Shared::Bytes(MIB));
    two.sync_all().unwrap();
    assert_eq!(map_of(&one)[0].physical, map_of(&two)[0].physical);
    assert!(map_of(&two).iter().all(|extent| extent.is_shared() && extent.has_place()));
    assert_eq!(share(&one, 0, &other, 0, MIB).unwrap(), Shared::Differs);
    assert!(map_of(&other).iter().all(|extent| !extent.is_shared()));
    let error = share(&one, 1, &two, 0, 4096).unwrap_err();
    assert!(error.to_string().contains("share a range of two files"), "{error}");
    let target = volume.file("target", MIB as usize, 3);
    clone_range(&one, 0, &target, 0, MIB).unwrap();
    assert_eq!(fs::read(volume.path("target")).unwrap(), fs::read(volume.path("one")).unwrap());
}

#[test]
fn xfs_shares_equal_ranges_and_others_stay() {
    let Some(volume) = Volume::xfs() else { return };
    equal_ranges_are_shared_and_others_stay(&volume);
}

#[test]
fn btrfs_shares_equal_ranges_and_others_stay() {
    let Some(volume) = Volume::btrfs() else { return };
    equal_ranges_are_shared_and_others_stay(&volume);
}

#[test]
fn a_map_names_holes_and_more_extents_than_one_call_gives() {
    // Scenario: every second block of a file is written, 300 of them.
    let Some(volume) = Volume::xfs() else { return };
    let file = volume.file("holes", 0, 0);
    for block in 0..300u64 {
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 4096], block * 8192).unwrap();
    }
    // What XFS reserved between them is unwritten.
    let written =
        |found: Vec<Extent>| found.into_iter().filter(|one| !one.is_unwritten()).collect::<Vec<_>>();
    let found = written(map_of(&file));
    assert_eq!(found.len(), 300);
    assert!(
        found.iter().zip(0..).all(|(extent, block)| (extent.logical, extent.length) == (block * 8192, 4096))
    );
    let mut some = Vec::new();
    extents(&file, 100 * 8192, 8192 * 3, &mut some).unwrap();
    assert_eq!(written(some), found[100..103]);
}

#[test]
fn a_handle_finds_its_file_under_another_name_and_never_a_successor() {
    let Some(volume) = Volume::xfs() else { return };
    let file = volume.file("first", 4096, 1);
    let (number, root) = (file.metadata().unwrap().ino(), volume.root());
    let handle = Handle::of_entry(&root, "first".as_ref()).unwrap();
    let mut listed = None;
    inodes(&root, |inode| {
        if inode.number == number {
            listed = Some(inode);
        }
        true
    })
    .unwrap();
    let listed = listed.unwrap();
    assert!(listed.is_file() && listed.size == 4096 && listed.links == 1 && !listed.is_sick);
    assert_eq!(
        listed.changed,
        i128::from(file.metadata().unwrap().ctime()) * 1_000_000_000
            + i128::from(file.metadata().unwrap().ctime_nsec())
    );
    fs::rename(volume.path("first"), volume.path("second")).unwrap();
    for handle in [handle, Handle::of_xfs(number, listed.generation)] {
        assert_eq!(handle.open(&root, Access::Read).unwrap().metadata().unwrap().ino(), number);
    }
    drop(file);
    fs::remove_file(volume.path("second")).unwrap();
    // The next file usually gets the same inode.
    let next = volume.file("third", 4096, 1);
    println!("inode {number}, then {}", next.metadata().unwrap().ino());
    assert!(handle.open(&root, Access::ReadWrite).unwrap_err().is_deleted());
}

#[test]
fn inodes_are_listed_once_each_beyond_one_call() {
    let Some(volume) = Volume::xfs() else { return };
    for number in 0..1000 {
        fs::write(volume.path(&format!("f{number}")), b"x").unwrap();
    }
    volume.root().sync_all().unwrap();
    let mut numbers = Vec::new();
    inodes(&volume.root(), |inode| {
        numbers.extend(inode.is_file().then_some(inode.number));
        true
    })
    .unwrap();
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!((all, numbers.len()), (1000, 1000));
}

#[test]
fn the_owner_of_each_extent_is_named_and_free_room_is_counted() {
    let Some(volume) = Volume::xfs() else { return };
    let file = volume.file("owned", 3 * MIB as usize, 1);
    let inode = file.metadata().unwrap().ino();
    let root = volume.root();
    for extent in map_of(&file) {
        let mut owners = Vec::new();
        space_map(&root, extent.physical, extent.physical + extent.length, |used| {
            owners.push(used.owner);
            true
        })
        .unwrap();
        assert!(
            owners.iter().all(|owner| matches!(owner, Owner::File { inode: found, .. } if *found == inode)),
            "{owners:?}"
        );
        assert!(!owners.is_empty());
    }
    let (mut free, mut kinds, mut end) = (0, 0, 0);
    space_map(&root, 0, u64::MAX, |used| {
        free += if used.owner == Owner::Free { used.length } else { 0 };
        kinds += u32::from(matches!(used.owner, Owner::Metadata(_)));
        assert!(used.physical >= end, "in order");
        end = used.physical + used.length;
        true
    })
    .unwrap();
    let geometry = xfs_geometry(&root).unwrap();
    assert!(geometry.has_reflink && geometry.has_reverse_map && geometry.sick == 0);
    assert_eq!(end, geometry.data_blocks * u64::from(geometry.block_bytes));
    assert!(
        kinds > 0 && free.abs_diff(usage(&root).unwrap().free) < 32 * MIB,
        "{kinds} {free} {:?}",
        usage(&root)
    );
}

#[test]
fn calls_that_btrfs_lacks_are_unsupported() {
    let Some(volume) = Volume::btrfs() else { return };
    assert!(space_map(&volume.root(), 0, u64::MAX, |_| true).unwrap_err().is_unsupported());
    assert!(inodes(&volume.root(), |_| true).unwrap_err().is_unsupported());
    assert!(xfs_geometry(&volume.root()).unwrap_err().is_unsupported());
}

#[test]
fn free_room_is_discarded_and_the_image_shrinks() {
    let Some(volume) = Volume::xfs() else { return };
    let image = volume.0.image();
    drop(volume.file("big", 100 * MIB as usize, 1));
    let before = image.metadata().unwrap().blocks() * 512;
    fs::remove_file(volume.path("big")).unwrap();
    // XFS frees the blocks of a removed file behind the call, and passes over what its log does not have yet.
    let shrinks = || {
        rustix::fs::syncfs(volume.root()).unwrap();
        assert!(trim(&volume.root(), 0, u64::MAX, 0).unwrap() >= 100 * MIB);
        image.metadata().unwrap().blocks() * 512 + 90 * MIB < before
    };
    assert!((0..100).any(|_| shrinks() || Command::new("sleep").arg("0.1").status().is_err()));
}

#[test]
fn free_ranges_that_are_equally_long_are_all_discarded() {
    // Scenario: files of 64 KiB fill a volume, and every other one is removed. Expected: the image gives back the room of all.
    const FILE: usize = 1 << 16;
    let Some(volume) = Volume::xfs() else { return };
    let image = volume.0.image();
    let is_written = |number: &u32| fs::write(volume.path(&number.to_string()), [7; FILE]).is_ok();
    let count = (0..10_000).take_while(is_written).last().unwrap();
    rustix::fs::syncfs(volume.root()).unwrap();
    let held = || image.metadata().unwrap().blocks() * 512;
    let (before, removed) = (held(), (0..count).step_by(2));
    let freed = removed.len() as u64 * FILE as u64;
    removed.for_each(|number| fs::remove_file(volume.path(&number.to_string())).unwrap());
    let gives_back = || {
        rustix::fs::syncfs(volume.root()).unwrap();
        trim(&volume.root(), 0, u64::MAX, 0).unwrap();
        // What the file system writes meanwhile takes some.
        held() + freed / 100 * 98 <= before
    };
    let found = (0..50).any(|_| gives_back() || Command::new("sleep").arg("0.1").status().is_err());
    assert!(found, "{} of {freed} bytes came back", before - held());
}

#[test]
fn a_frozen_file_system_is_thawed_when_the_hold_ends() {
    let Some(volume) = Volume::xfs() else { return };
    let root = volume.root();
    let held = Frozen::new(&root).unwrap();
    assert!(Frozen::new(&root).is_err());
    drop(held);
    fs::write(volume.path("after"), b"x").unwrap();
}

fn a_walk_finds_each_file_once_by_path_and_handle(volume: &Volume) {
    // Scenario: 300 files in one folder, folders in depth between them, a symbolic link, a folder that is not entered.
    for folder in ["many", "many/deep/deeper/deepest", "left", "empty"] {
        fs::create_dir_all(volume.path(folder)).unwrap();
    }
    let mut expected = Vec::new();
    for number in 0..300 {
        expected.push(format!("many/f{number}"));
    }
    expected.extend(["many/deep/deeper/deepest/last", "many/deep/first", "top"].map(str::to_owned));
    expected.iter().for_each(|name| fs::write(volume.path(name), name).unwrap());
    fs::write(volume.path("left/out"), "out").unwrap();
    std::os::unix::fs::symlink("top", volume.path("link")).unwrap();
    let root = volume.root();
    let form = Handle::of_entry(&root, ".".as_ref()).unwrap();
    let mut walk = Walk::new(&root, b"").unwrap();
    let mut found = Vec::new();
    while let Some(file) = walk.next(|folder, _| folder != b"left/").unwrap() {
        let path = String::from_utf8(walk.path().to_vec()).unwrap();
        let (inode, generation) = file.handle.identity().unwrap();
        assert_eq!(form.sibling(inode, generation), Some(file.handle));
        let mut content = String::new();
        let mut opened = form.sibling(inode, generation).unwrap().open(&root, Access::Read).unwrap();
        std::io::Read::read_to_string(&mut opened, &mut content).unwrap();
        assert_eq!((inode, content.as_str()), (file.inode, path.as_str()));
        found.push(path);
    }
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    let mut below = Walk::new(&File::open(volume.path("many/deep")).unwrap(), b"many/deep").unwrap();
    let mut found = Vec::new();
    while below.next(|_, _| true).unwrap().is_some() {
        found.push(String::from_utf8(below.path().to_vec()).unwrap());
    }
    found.sort();
    assert_eq!(found, ["many/deep/deeper/deepest/last", "many/deep/first"]);
}

#[test]
fn a_walk_of_xfs_finds_each_file_once_by_path_and_handle() {
    let Some(volume) = Volume::xfs() else { return };
    a_walk_finds_each_file_once_by_path_and_handle(&volume);
}

#[test]
fn a_walk_of_btrfs_finds_each_file_once_and_no_subvolume() {
    let Some(volume) = Volume::btrfs() else { return };
    let made = Command::new("btrfs").args(["subvolume", "create"]).arg(volume.path("sub")).output().unwrap();
    assert!(made.status.success());
    fs::write(volume.path("sub/out"), "out").unwrap();
    let mut walk = Walk::new(&volume.root(), b"").unwrap().with_subvolumes().unwrap();
    assert!(walk.next(|_, _| true).unwrap().is_some() && walk.path() == b"sub/out");
    a_walk_finds_each_file_once_by_path_and_handle(&volume);
}

#[test]
fn a_walk_of_ext4_finds_each_file_once_by_path_and_handle() {
    let Some(volume) = Volume::new(&["mkfs.ext4", "-q", "-F"]) else { return };
    a_walk_finds_each_file_once_by_path_and_handle(&volume);
}

#[test]
fn new_files_have_the_project_of_their_folder_until_it_has_none() {
    let Some(volume) = Volume::xfs() else { return };
    fs::create_dir(volume.path("docs")).unwrap();
    let folder = File::open(volume.path("docs")).unwrap();
    assert!(set_project(&folder, 7).unwrap() && !set_project(&folder, 7).unwrap());
    assert_eq!(project(&volume.file("docs/new", 10, 1)).unwrap(), 7);
    assert!(set_project(&folder, 0).unwrap());
    assert_eq!(project(&volume.file("docs/newer", 10, 1)).unwrap(), 0);
    assert_eq!(project(&File::open(volume.path("docs/new")).unwrap()).unwrap(), 7);
}
