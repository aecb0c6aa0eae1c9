//! Libraries of images in folders, and on file systems of this kernel, each on a loop device over a file.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation
)]

mod rig;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use dolmen_files::copy::Fallback;
use dolmen_files::extents::extents;
use dolmen_files::images::{
    Clones, Content, Filled, Image, ImageError, ImageFormat, ImageName, Library, Source, recognise,
};

use rig::Mounted;

const MIB: u64 = 1 << 20;

/// A folder as a volume, and one on another file system for sources.
struct Rig {
    volume: tempfile::TempDir,
    other: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        // Sources on a file system of their own are never shared.
        let memory = Path::new("/dev/shm");
        let other = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        Self { volume: tempfile::tempdir().unwrap(), other: other.unwrap() }
    }

    fn library(&self) -> Library {
        Library::of_folder(self.volume.path()).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.volume.path().join(name)
    }

    /// Writes a source: 1 MiB with a pattern, a hole, 1 MiB of zeros, 100 bytes.
    fn source(&self, name: &str) -> PathBuf {
        let path = self.other.path().join(name);
        let file = File::create(&path).unwrap();
        file.write_all_at(&pattern(), 0).unwrap();
        file.write_all_at(&vec![0; MIB as usize], 8 * MIB).unwrap();
        file.write_all_at(&[7; 100], 9 * MIB).unwrap();
        path
    }

    /// Writes a source of these bytes.
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.other.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    fn entries(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(folder)) else { return Vec::new() };
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn pattern() -> Vec<u8> {
    (0..MIB as usize).map(|at| (at / 512 % 251) as u8 + 1).collect()
}

fn name(text: &str) -> ImageName {
    text.parse().unwrap()
}

fn add(library: &Library, source: &Path, text: &str) -> Result<(Image, Filled), ImageError> {
    let source = Source::open(source)?;
    let new = library.begin(&name(text))?;
    let filled = new.fill(&source, &mut |_| {})?;
    Ok((new.finish(source.size_bytes())?, filled))
}

fn clone(library: &Library, image: &str, targets: &[&str], size: Option<u64>) -> Result<Clones, ImageError> {
    let targets: Result<Vec<_>, _> = targets.iter().map(|target| library.target(Path::new(target))).collect();
    library.clone_image(&name(image), &targets?, size, Fallback::CopyBytes, &mut |_| {})
}

#[test]
fn an_image_has_its_name_when_it_is_complete() {
    // Scenario: an image is filled and dropped, another one ends with too few bytes; then one is complete.
    let rig = Rig::new();
    let library = rig.library();
    let source = Source::open(&rig.source("a.img")).unwrap();
    let new = library.begin(&name("a")).unwrap();
    new.fill(&source, &mut |_| {
        assert_eq!(rig.entries("images"), Vec::<String>::new(), "half an image has its name")
    })
    .unwrap();
    drop(new);
    assert_eq!(rig.entries("images"), Vec::<String>::new(), "half an image has its name");
    let new = library.begin(&name("a")).unwrap();
    new.set_size(MIB).unwrap();
    let error = new.finish(source.size_bytes()).unwrap_err();
    assert!(matches!(error, ImageError::Size { found_bytes: MIB, .. }), "{error}");
    assert_eq!(rig.entries("images"), Vec::<String>::new());
    let (image, _) = add(&library, source.path(), "a").unwrap();
    assert_eq!(library.images().unwrap(), std::slice::from_ref(&image));
    assert_eq!((image.size_bytes, rig.entries("images")), (9 * MIB + 100, vec!["a".to_owned()]));
    assert_eq!(
        fs::metadata(rig.path("images/a")).unwrap().permissions().mode() & 0o7777,
        0o400,
        "others may read an image"
    );
    // A name that is taken stays what it is.
    let error = add(&library, &rig.file("other", b"other"), "a").unwrap_err();
    assert!(matches!(error, ImageError::Exists { .. }), "{error}");
    let (first, second) = (library.begin(&name("b")).unwrap(), library.begin(&name("b")).unwrap());
    first.set_size(1).unwrap();
    second.set_size(2).unwrap();
    second.finish(2).unwrap();
    assert!(matches!(first.finish(1).unwrap_err(), ImageError::Exists { .. }));
    assert_eq!(fs::metadata(rig.path("images/b")).unwrap().len(), 2);
}

#[test]
fn holes_and_zeros_are_not_written() {
    let rig = Rig::new();
    let source = rig.source("a.img");
    let mut last = None;
    let opened = Source::open(&source).unwrap();
    let (library, image) = (rig.library(), name("a"));
    let new = library.begin(&image).unwrap();
    let filled = new.fill(&opened, &mut |progress| last = Some(progress)).unwrap();
    let image = new.finish(opened.size_bytes()).unwrap();
    assert_eq!(fs::read(rig.path("images/a")).unwrap(), fs::read(&source).unwrap());
    if let Filled::Written(bytes) = filled {
        assert_eq!(bytes, MIB + 100);
        let last = last.unwrap();
        assert_eq!(last.done_bytes, last.total_bytes);
    }
    assert!(image.room_bytes < 2 * MIB, "{} are taken", image.room_bytes);
}

#[test]
fn a_source_that_changes_is_no_image() {
    // Scenario: a byte of the source is written when the copy has begun; in another run, bytes are appended.
    let rig = Rig::new();
    for (round, at) in [0, 20 * MIB].into_iter().enumerate() {
        let path = rig.source("a.img");
        let source = Source::open(&path).unwrap();
        let library = rig.library();
        let new = library.begin(&name(&round.to_string())).unwrap();
        let write = |_| {
            // The kernel takes times of changes from ticks of its clock.
            std::thread::park_timeout(std::time::Duration::from_millis(20));
            OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[9], at).unwrap();
        };
        let filled = new.fill(&source, &mut { write });
        let Err(error) = filled else {
            assert_eq!(filled.unwrap(), Filled::Shared, "a changed source became an image");
            println!("skipped: this file system shares extents with itself");
            return;
        };
        assert!(matches!(error, ImageError::Changed { .. }), "{error}");
        assert!(error.to_string().contains("changed while it was copied"), "{error}");
        drop(new);
        assert_eq!(rig.entries("images"), Vec::<String>::new());
    }
}

#[test]
fn names_that_lead_elsewhere_or_look_like_options_are_refused() {
    for bad in ["", ".", "..", ".hidden", "-n", "a/b", "/a", "a\nb", "a\0b", "a\u{1b}[2J", &"x".repeat(201)] {
        assert!(bad.parse::<ImageName>().is_err(), "{bad:?} names an image");
    }
    for good in ["debian-12", "Windows Server 2022", "größer", "a..b"] {
        assert_eq!(good.parse::<ImageName>().unwrap().to_string(), good);
    }
    let rig = Rig::new();
    let library = rig.library();
    add(&library, &rig.source("a.img"), "a").unwrap();
    let away = rig.other.path().join("clone");
    for bad in
        ["", ".", "..", "-x", "/", away.to_str().unwrap(), &format!("{}/..", rig.volume.path().display())]
    {
        let error = clone(&library, "a", &["good", bad], None).unwrap_err();
        assert!(matches!(error, ImageError::Outside { .. }), "{bad:?}: {error}");
    }
    assert_eq!(rig.entries("machines"), Vec::<String>::new());
}

#[test]
fn links_lead_no_library_out_of_its_volume() {
    // Scenario: links in the place of an image, of both folders, and of a folder on the way to a clone.
    let rig = Rig::new();
    let library = rig.library();
    let secret = rig.source("secret");
    let (away, text) = (rig.other.path().join("away"), "a");
    fs::create_dir(&away).unwrap();
    add(&library, &secret, text).unwrap();
    symlink(&secret, rig.path("images/link")).unwrap();
    assert_eq!(library.images().unwrap().len(), 1);
    for error in
        [clone(&library, "link", &["x"], None).unwrap_err(), library.delete(&name("link")).unwrap_err()]
    {
        assert!(matches!(error, ImageError::Kind { found: "a symbolic link", .. }), "{error}");
    }
    let error = add(&library, &secret, "link").unwrap_err();
    assert!(matches!(error, ImageError::Exists { .. }), "{error}");
    symlink(&away, rig.path("machines")).unwrap();
    symlink(&away, rig.path("way")).unwrap();
    let error = clone(&library, text, &["x"], None).expect_err("a clone left its volume by a link");
    assert!(error.to_string().contains("behind a symbolic link"), "{error}");
    let below = [PathBuf::from("way/x")];
    let error = library.clone_image(&name(text), &below, None, Fallback::CopyBytes, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("behind a symbolic link"), "{error}");
    fs::rename(rig.path("images"), rig.path("moved")).unwrap();
    symlink(&away, rig.path("images")).unwrap();
    for error in [
        library.images().unwrap_err(),
        library.begin(&name("b")).unwrap_err(),
        library.delete(&name(text)).unwrap_err(),
        library.open(&name(text)).unwrap_err(),
    ] {
        assert!(error.to_string().contains("behind a symbolic link"), "{error}");
    }
    assert_eq!(fs::read_dir(&away).unwrap().count(), 0);
}

#[test]
fn a_clone_is_no_smaller_than_its_image() {
    let rig = Rig::new();
    let library = rig.library();
    let source = rig.source("a.img");
    add(&library, &source, "a").unwrap();
    let size = 9 * MIB + 100;
    let error =
        clone(&library, "a", &["small"], Some(size - 1)).expect_err("a clone lost the end of its image");
    assert!(matches!(error, ImageError::Shrinks { .. }), "{error}");
    fs::create_dir(rig.path("other")).unwrap();
    let path = rig.path("other/two");
    let made = clone(&library, "a", &["one", path.to_str().unwrap()], Some(64 * MIB)).unwrap();
    assert_eq!((made.paths.len(), made.size_bytes, made.stopped_by.is_none()), (2, 64 * MIB, true));
    let mut expected = fs::read(&source).unwrap();
    expected.resize(64 * MIB as usize, 0);
    for path in ["machines/one", "other/two"].map(|name| rig.path(name)) {
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.permissions().mode() & 0o7777, found.nlink()), (0o600, 1));
        assert!(fs::read(&path).unwrap() == expected, "a clone is not its image");
    }
    // One taken name keeps all clones of a command from being made.
    let error = clone(&library, "a", &["three", "one"], None).unwrap_err();
    assert!(matches!(error, ImageError::Exists { .. }), "{error}");
    let error = clone(&library, "a", &["three", "three"], None).unwrap_err();
    assert!(matches!(error, ImageError::NamedTwice { .. }), "{error}");
    let error = clone(&library, "absent", &["three"], None).unwrap_err();
    assert!(matches!(error, ImageError::Missing { .. }), "{error}");
    assert_eq!(rig.entries("machines"), ["one"]);
    // A clone is written without its image, and stays when that is deleted.
    OpenOptions::new()
        .write(true)
        .open(rig.path("machines/one"))
        .unwrap()
        .write_all_at(&[1; 4096], 0)
        .unwrap();
    assert!(fs::read(rig.path("images/a")).unwrap() == fs::read(&source).unwrap());
    library.delete(&name("a")).unwrap();
    assert!(matches!(library.delete(&name("a")).unwrap_err(), ImageError::Missing { .. }));
    assert_eq!(fs::metadata(rig.path("machines/one")).unwrap().len(), 64 * MIB);
}

/// Puts a big-endian number into a header.
fn put(bytes: &mut [u8], at: usize, number: u64, length: usize) {
    bytes[at..at + length].copy_from_slice(&number.to_be_bytes()[8 - length..]);
}

fn qcow2(change: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    bytes[..4].copy_from_slice(b"QFI\xfb");
    put(&mut bytes, 4, 3, 4);
    put(&mut bytes, 24, 10 * MIB, 8);
    put(&mut bytes, 100, 104, 4);
    change(&mut bytes);
    bytes
}

fn vmdk(description: &str, sectors: u64) -> Vec<u8> {
    let mut bytes = vec![0; 8192];
    bytes[..4].copy_from_slice(b"KDMV");
    bytes[12..20].copy_from_slice(&sectors.to_le_bytes());
    bytes[28..36].copy_from_slice(&1u64.to_le_bytes());
    bytes[36..44].copy_from_slice(&2u64.to_le_bytes());
    bytes[512..512 + description.len()].copy_from_slice(description.as_bytes());
    bytes
}

#[test]
fn an_image_that_names_another_file_is_refused() {
    let rig = Rig::new();
    let backed = qcow2(|bytes| {
        put(bytes, 8, 1024, 8);
        put(bytes, 16, 11, 4);
        bytes[1024..1035].copy_from_slice(b"/etc/shadow");
    });
    let split = qcow2(|bytes| {
        put(bytes, 72, 4, 8);
        put(bytes, 104, 0x1234, 4);
        put(bytes, 108, 3, 4);
        put(bytes, 120, 0x4441_5441, 4);
        put(bytes, 124, 8, 4);
        bytes[128..136].copy_from_slice(b"data.raw");
    });
    let child = vmdk("# Disk DescriptorFile\nparentCID=12345678\nparentFileNameHint=\"base.vmdk\"\n", 100);
    let mut difference = vec![0; 4096];
    difference[..8].copy_from_slice(b"conectix");
    put(&mut difference, 60, 4, 4);
    for (bytes, needs) in [
        (&backed, Some("/etc/shadow")),
        (&split, Some("data.raw")),
        (&child, Some("base.vmdk")),
        (&vmdk("RW 1 FLAT \"/etc/shadow\" 0\n", 0), None),
        (&difference, None),
    ] {
        let path = rig.file("image", bytes);
        let content = Source::open(&path).unwrap().content();
        let Err(ImageError::NotWhole { needs: found, .. }) = &content else {
            panic!("an image that names {needs:?} is {content:?}");
        };
        assert_eq!(found.as_deref(), needs);
        assert!(content.unwrap_err().to_string().contains(needs.unwrap_or("does not name")));
    }
}

#[test]
fn formats_are_recognised_by_their_first_bytes() {
    let rig = Rig::new();
    let whole = |format, disk_bytes| Content::Image { format, disk_bytes };
    let mut vdi = vec![0; 1024];
    vdi[64..68].copy_from_slice(&0xbeda_107fu32.to_le_bytes());
    vdi[0x170..0x178].copy_from_slice(&MIB.to_le_bytes());
    let mut torn = vdi.clone();
    torn[0x178..0x17c].copy_from_slice(&(1u32 << 20).to_le_bytes());
    torn[0x184..0x188].copy_from_slice(&3u32.to_le_bytes());
    let mut headed = vec![0; 2048];
    headed[..8].copy_from_slice(b"conectix");
    let mut fixed = vec![1; 2048];
    fixed[1536..1544].copy_from_slice(b"conectix");
    put(&mut fixed, 1536 + 60, 2, 4);
    for (bytes, expected) in [
        (qcow2(|_| ()), whole(ImageFormat::Qcow2, Some(10 * MIB))),
        (vmdk("parentCID=ffffffff\n", 100), whole(ImageFormat::Vmdk, Some(51_200))),
        (b"vhdxfile".to_vec(), whole(ImageFormat::Vhdx, None)),
        (vdi, whole(ImageFormat::Vdi, Some(MIB))),
        (fixed, whole(ImageFormat::Vhd, None)),
        (torn, Content::Other { kind: "a VDI whose end is missing" }),
        (headed, Content::Other { kind: "a VHD whose end is missing" }),
        (qcow2(|bytes| put(bytes, 32, 2, 4)), Content::Encrypted { format: ImageFormat::Qcow2 }),
        (b"\x1f\x8b\x08".to_vec(), Content::Other { kind: "compressed by gzip" }),
        (b"QFI".to_vec(), Content::Raw),
        (pattern(), Content::Raw),
        // Headers that end early, and places past the end of every file.
        (b"QFI\xfb\0\0\0\x03".to_vec(), Content::Encrypted { format: ImageFormat::Qcow2 }),
        (b"KDMV".to_vec(), Content::NotWhole { format: ImageFormat::Vmdk, needs: None }),
        (
            qcow2(|bytes| put(bytes, 8, u64::MAX, 8)),
            Content::NotWhole { format: ImageFormat::Qcow2, needs: None },
        ),
    ] {
        let path = rig.file("image", &bytes);
        let found = recognise(&File::open(&path).unwrap(), bytes.len() as u64).unwrap();
        assert_eq!(found, expected, "{:?}", &bytes[..3]);
    }
    let error = Source::open(&rig.file("nothing", b"")).unwrap_err();
    assert!(matches!(error, ImageError::Empty { .. }), "{error}");
    let error = Source::open(rig.other.path()).unwrap_err();
    assert!(error.to_string().contains("is a folder, expected a file or a block device"), "{error}");
}

#[test]
fn a_folder_without_its_volume_is_no_library() {
    let folder = tempfile::tempdir().unwrap();
    let error = Library::of_volume(folder.path()).expect_err("a folder took the place of its volume");
    assert!(matches!(error, ImageError::NotMounted { .. }), "{error}");
    assert!(Library::of_volume(Path::new("/proc")).is_ok());
}

#[test]
fn clones_on_xfs_and_btrfs_share_the_extents_of_their_image() {
    for make in [&["mkfs.xfs", "-q", "-m", "reflink=1"][..], &["mkfs.btrfs", "-q"]] {
        let Some(mounted) = Mounted::new(make, 400 * MIB) else { continue };
        let library = Library::of_volume(&mounted.root()).unwrap();
        let rig = Rig::new();
        let source = mounted.root().join("source");
        fs::copy(rig.source("a.img"), &source).unwrap();
        let (image, filled) = add(&library, &source, "a").unwrap();
        assert_eq!((filled, image.size_bytes), (Filled::Shared, 9 * MIB + 100));
        let (_, filled) = add(&library, &rig.source("a.img"), "b").unwrap();
        assert_eq!(filled, Filled::Written(MIB + 100));
        let free = library.free_bytes().unwrap();
        let names: Vec<String> = (0..20).map(|number| format!("m{number}")).collect();
        let targets: Vec<PathBuf> =
            names.iter().map(|name| library.target(Path::new(name)).unwrap()).collect();
        let made =
            library.clone_image(&name("b"), &targets, Some(32 * MIB), Fallback::Refuse, &mut |_| {}).unwrap();
        assert_eq!((made.paths.len(), made.copied_bytes), (20, 0));
        let taken = free.saturating_sub(library.free_bytes().unwrap());
        assert!(taken < 5 * MIB, "{make:?}: {taken} bytes are taken by 20 clones");
        for path in &made.paths {
            let (mut found, mut expected) = (Vec::new(), Vec::new());
            extents(&File::open(path).unwrap(), 0, u64::MAX, &mut found).unwrap();
            extents(&File::open(library.path_of(&name("b"))).unwrap(), 0, u64::MAX, &mut expected).unwrap();
            assert_eq!(found[0].physical, expected[0].physical);
            assert_eq!(fs::metadata(path).unwrap().len(), 32 * MIB);
        }
    }
}

#[test]
fn a_full_volume_keeps_nothing_of_an_image() {
    // Scenario: ext4 of 16 MiB gets an image of 32 MiB of data, then clones that it cannot share.
    let Some(mounted) = Mounted::new(&["mkfs.ext4", "-q"], 16 * MIB) else { return };
    let library = Library::of_volume(&mounted.root()).unwrap();
    let rig = Rig::new();
    let large = rig.other.path().join("large");
    let mut file = File::create(&large).unwrap();
    for _ in 0..32 {
        file.write_all(&pattern()).unwrap();
    }
    let before = library.free_bytes().unwrap();
    let error = add(&library, &large, "large").unwrap_err();
    let ImageError::Full { missing_bytes, free_bytes, .. } = error else { panic!("{error}") };
    assert!(before.abs_diff(free_bytes) < MIB, "{free_bytes} of {before} are said to be free");
    assert!((16 * MIB..=32 * MIB).contains(&missing_bytes), "{missing_bytes}");
    assert_eq!(library.images().unwrap(), []);
    assert!(before - library.free_bytes().unwrap() < MIB, "something is left");
    // It would fit, and leave nothing to the machines beside it.
    let all = rig.other.path().join("all");
    let mut file = File::create(&all).unwrap();
    for _ in 0..(before - 128 * 1024) / 4096 {
        file.write_all(&[7; 4096]).unwrap();
    }
    let error = add(&library, &all, "all").expect_err("an image took the last room");
    assert!(matches!(error, ImageError::Full { missing_bytes, .. } if missing_bytes < MIB), "{error}");
    add(&library, &rig.source("small"), "small").unwrap();
    let target = [library.target(Path::new("x")).unwrap()];
    let refused = library.clone_image(&name("small"), &target, None, Fallback::Refuse, &mut |_| {});
    let error = refused.unwrap_err();
    assert!(error.to_string().contains("it lies on ext4 at"), "{error}");
    let targets: Vec<PathBuf> =
        (0..40).map(|number| library.target(Path::new(&format!("m{number}"))).unwrap()).collect();
    let error =
        library.clone_image(&name("small"), &targets, None, Fallback::CopyBytes, &mut |_| {}).unwrap_err();
    assert!(matches!(error, ImageError::Full { .. }), "{error}");
    assert_eq!(fs::read_dir(mounted.root().join("machines")).unwrap().count(), 0);
}
