//! Copies of trees on the file systems of this kernel, each on a loop device over a file.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing)]

mod rig;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use dolmen_files::copy::{Copied, CopyError, Fallback, Planned, TEMPORARY, copy, plan};
use dolmen_files::extents::extents;
use rustix::fs::{FileType, Mode, Timespec, Timestamps, XattrFlags};

use rig::Mounted;

const MIB: u64 = 1 << 20;

fn set_times(path: &Path) {
    let time = |tv_sec| Timespec { tv_sec, tv_nsec: 123_456_789 };
    let times = Timestamps { last_access: time(1_000_000_000), last_modification: time(1_100_000_000) };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
}

/// A tree with one of everything that a copy has to keep.
fn make_tree(root: &Path) {
    let inner = root.join("inner folder");
    fs::create_dir_all(&inner).unwrap();
    let sparse = OpenOptions::new().write(true).create_new(true).open(inner.join("sparse")).unwrap();
    sparse.write_all_at(&[7; 100_000], 8 * MIB).unwrap();
    sparse.set_len(32 * MIB).unwrap();
    fs::write(inner.join("first"), b"one file, two names").unwrap();
    fs::hard_link(inner.join("first"), root.join("second")).unwrap();
    fs::write(root.join("empty"), b"").unwrap();
    symlink("inner folder/first", root.join("link")).unwrap();
    symlink("/nowhere", root.join("dangling")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o640), 0)
        .unwrap();
    let first = File::open(inner.join("first")).unwrap();
    rustix::fs::fsetxattr(&first, c"user.colour", b"blue\0green", XattrFlags::empty()).unwrap();
    // Version 2, then entries of tag, rights and id: owner rw, user 1234 rw, group r, mask rw, others none.
    let mut list = vec![2_u8, 0, 0, 0];
    for (tag, rights, id) in
        [(1_u16, 6_u16, u32::MAX), (2, 6, 1234), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)]
    {
        list.extend(tag.to_le_bytes().iter().chain(&rights.to_le_bytes()).chain(&id.to_le_bytes()));
    }
    rustix::fs::fsetxattr(&first, c"system.posix_acl_access", &list, XattrFlags::empty()).unwrap();
    std::os::unix::fs::chown(root.join("empty"), Some(1234), Some(4321)).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o6751)).unwrap();
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o1550)).unwrap();
    for name in
        ["inner folder/sparse", "inner folder/first", "inner folder", "empty", "link", "dangling", "pipe", ""]
    {
        set_times(&root.join(name));
    }
}

/// What a copy has to keep of an entry, with its path below the root.
fn entries(root: &Path, below: &str, into: &mut Vec<String>) {
    let path = root.join(below);
    let found = fs::symlink_metadata(&path).unwrap();
    let kind = found.file_type();
    let content = if kind.is_file() {
        let file = File::open(&path).unwrap();
        let attribute = |name: &std::ffi::CStr| {
            let mut value = vec![0; 256];
            rustix::fs::fgetxattr(&file, name, &mut value[..]).map(|length| value[..length].to_vec())
        };
        let digest: u64 =
            fs::read(&path).unwrap().iter().fold(0, |sum, byte| sum * 31 % 1_000_003 + u64::from(*byte));
        format!("{digest} {:?} {:?}", attribute(c"user.colour"), attribute(c"system.posix_acl_access"))
    } else if kind.is_symlink() {
        format!("{:?}", fs::read_link(&path).unwrap())
    } else {
        format!("pipe {}", kind.is_fifo())
    };
    let length = if kind.is_dir() { 0 } else { found.len() };
    into.push(format!(
        "{below} {:o} {}:{} {length} {}.{} links {} {content}",
        found.mode(),
        found.uid(),
        found.gid(),
        found.mtime(),
        found.mtime_nsec(),
        if kind.is_dir() { 0 } else { found.nlink() }
    ));
    if kind.is_dir() {
        let mut names: Vec<_> =
            fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        for name in names {
            entries(root, format!("{below}/{}", name.to_str().unwrap()).trim_start_matches('/'), into);
        }
    }
}

fn all_of(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    entries(root, "", &mut found);
    found
}

fn is_shared(path: &Path) -> bool {
    let mut found = Vec::new();
    extents(&File::open(path).unwrap(), 0, u64::MAX >> 1, &mut found).unwrap();
    !found.is_empty() && found.iter().all(|extent| extent.is_shared() || !extent.has_place())
}

fn is_clean(folder: &Path) -> bool {
    !fs::read_dir(folder)
        .unwrap()
        .any(|entry| entry.unwrap().file_name().to_str().unwrap().starts_with(TEMPORARY))
}

fn a_tree_is_shared(make: &[&str]) {
    let Some(mounted) = Mounted::new(make, 400 * MIB) else { return };
    let (source, target) = (mounted.path("source"), mounted.path("copy"));
    fs::create_dir(&source).unwrap();
    make_tree(&source);
    let planned = plan(&source, &target).unwrap();
    assert_eq!((planned.folders, planned.files, planned.others, planned.other_device_bytes), (2, 4, 3, 0));
    assert!(!target.exists());
    let before = all_of(&source);
    let copied = copy(&source, &target, Fallback::Refuse).unwrap();
    let bytes = 32 * MIB + 19;
    assert_eq!(
        copied,
        Copied {
            folders: 2,
            files: 3,
            hard_links: 1,
            symbolic_links: 2,
            special_files: 1,
            shared_bytes: bytes,
            ..Copied::default()
        }
    );
    assert_eq!(all_of(&target), before);
    assert!(is_shared(&target.join("inner folder/sparse")));
    assert_eq!(
        fs::metadata(target.join("second")).unwrap().ino(),
        fs::metadata(target.join("inner folder/first")).unwrap().ino()
    );
    assert!(is_clean(&mounted.path("")));
    // Each side is its own from then on.
    fs::write(target.join("inner folder/first"), "changed").unwrap();
    assert_eq!(all_of(&source), before);
    for (one, name) in [("inner folder/sparse", "file"), ("link", "symbolic"), ("pipe", "other pipe")] {
        copy(&source.join(one), &mounted.path(name), Fallback::Refuse).unwrap();
    }
    assert!(
        fs::symlink_metadata(mounted.path("symbolic")).unwrap().is_symlink()
            && is_shared(&mounted.path("file"))
    );
}

#[test]
fn a_tree_on_xfs_is_shared_with_all_its_properties() {
    a_tree_is_shared(&["mkfs.xfs", "-q", "-m", "reflink=1"]);
}

#[test]
fn a_tree_on_btrfs_is_shared_with_all_its_properties() {
    a_tree_is_shared(&["mkfs.btrfs", "-q"]);
}

#[test]
fn another_file_system_is_named_or_gets_the_bytes_without_the_holes() {
    let (Some(one), Some(other)) =
        (Mounted::new(&["mkfs.xfs", "-q"], 400 * MIB), Mounted::new(&["mkfs.ext4", "-q"], 400 * MIB))
    else {
        return;
    };
    let (source, target) = (one.path("source"), other.path("copy"));
    fs::create_dir(&source).unwrap();
    make_tree(&source);
    let Planned { other_device_bytes, bytes, .. } = plan(&source, &target).unwrap();
    assert_eq!(other_device_bytes, bytes);
    let refused = copy(&source, &target, Fallback::Refuse).unwrap_err();
    assert!(matches!(refused, CopyError::NotShared { .. }), "{refused}");
    let text = refused.to_string();
    for part in
        [format!("XFS at {}", one.path("").display()), format!("ext4 at {}", other.path("").display())]
    {
        assert!(text.contains(part.trim_end_matches('/')), "{text}");
    }
    assert!(!target.exists() && is_clean(&other.path("")));
    let copied = copy(&source, &target, Fallback::CopyBytes).unwrap();
    assert_eq!((copied.shared_bytes, copied.copied_files, copied.unkept_count), (0, 3, 0), "{copied:?}");
    assert!((100_019..1_000_000).contains(&copied.copied_bytes), "{copied:?}");
    assert_eq!(all_of(&target), all_of(&source));
    assert!(fs::metadata(target.join("inner folder/sparse")).unwrap().blocks() * 512 < MIB);
    let mut names = vec![0; 4096];
    let first = File::open(target.join("second")).unwrap();
    let length = rustix::fs::flistxattr(&first, &mut names[..]).unwrap();
    assert!(!String::from_utf8_lossy(&names[..length]).contains("SGI"), "XFS's own form of an access list");
    // Within ext4, which shares nothing.
    let again = copy(&target.join("second"), &other.path("again"), Fallback::Refuse).unwrap_err();
    assert!(matches!(again, CopyError::NotShared { .. }), "{again}");
}

#[test]
fn a_name_that_is_taken_a_copy_within_itself_and_a_missing_source_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir_all(path("source/below")).unwrap();
    fs::write(path("taken"), "mine").unwrap();
    symlink("nowhere", path("link")).unwrap();
    for name in ["taken", "link"] {
        let refused = copy(&path("source"), &path(name), Fallback::CopyBytes).unwrap_err();
        assert!(matches!(refused, CopyError::Exists { .. }), "{refused}");
    }
    for name in ["source/copy", "source/below/copy"] {
        let refused = copy(&path("source"), &path(name), Fallback::CopyBytes).unwrap_err();
        assert!(matches!(refused, CopyError::Inside { .. }), "{refused}");
    }
    assert!(
        copy(&path("absent"), &path("copy"), Fallback::CopyBytes).unwrap_err().to_string().contains("absent")
    );
    assert!(matches!(copy(Path::new("/"), &path("copy"), Fallback::CopyBytes), Err(CopyError::Root { .. })));
    assert_eq!(fs::read_to_string(path("taken")).unwrap(), "mine");
    assert!(is_clean(folder.path()));
}
