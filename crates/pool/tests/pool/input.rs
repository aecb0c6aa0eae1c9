//! Whatever is handed to `open` and `create` instead of the disks of one pool: each gets its typed error, and no device
//! is changed.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::rc::Rc;

use dolmen_block_io::{
    Action, BlockDevice, Command, Completions, DeviceError, Geometry, IoCounters, Outcome, Payload,
    Submission, Zoning,
};
use dolmen_buffer::ArenaConfig;
use dolmen_checksum::crc64;
use dolmen_disk::{Contents, ExtentError, FORMAT_VERSION, LabelError, look, write_label};
use dolmen_pool::{
    Arbiter, CreateError, CreateOptions, MemoryArbiter, OpenError, OpenMode, OpenOptions, check_devices,
    create, discover, open,
};
use dolmen_sim::{DiskProfile, FaultKind, Image, SimDisk, World};
use dolmen_units::{Bytes, Epoch, HostId};

const CAPACITY: Bytes = Bytes::mib(64);
const ARENAS: ArenaConfig = ArenaConfig { small_count: 256, medium_count: 16, large_count: 6 };
const SLOT: u64 = 64 * 1024;
/// The four label slots of a disk of [`CAPACITY`].
const LABELS: [u64; 4] = [SLOT, 2 * SLOT, 63 << 20, (63 << 20) + SLOT];

/// Disks with what a pool left on them, and the host that made it.
struct Pool {
    images: Vec<Image>,
    arbiter: Rc<MemoryArbiter>,
}

fn world() -> World {
    let world = World::new(1);
    world.set_arenas(ARENAS, ARENAS);
    world
}

fn pool(seed: u8, count: usize) -> Pool {
    let world = World::new(u64::from(seed));
    world.set_arenas(ARENAS, ARENAS);
    let disks: Vec<_> = (0..count)
        .map(|number| world.add_disk(&format!("disk{number}"), DiskProfile::new(CAPACITY)))
        .collect();
    let devices: Vec<_> = disks.iter().map(|disk| disk.attach(&world)).collect();
    let arbiter = MemoryArbiter::new(HostId([1; 16]));
    let (seams, host) = (world.seams(), Rc::clone(&arbiter) as Rc<dyn Arbiter>);
    world
        .run(async move {
            let options = CreateOptions {
                name: "tank".parse().unwrap(),
                overwrite: Vec::new(),
                fault_domains: Vec::new(),
            };
            create(&seams, host, &devices, &options).await.unwrap().pool.close().await.unwrap();
        })
        .unwrap();
    Pool { images: disks.iter().map(|disk| disk.durable()).collect(), arbiter }
}

/// What became of an opening.
type Ending = Result<(), OpenError>;

/// Opens what is on devices made of images, in a mode, and expects that nothing was written unless it opened for writing.
fn open_images(
    arbiter: &Rc<MemoryArbiter>,
    images: &[(Image, Bytes)],
    mode: OpenMode,
    wrap: impl Fn(Rc<dyn BlockDevice>) -> Rc<dyn BlockDevice>,
) -> (Ending, Vec<LabelError>) {
    let world = world();
    let disks: Vec<Rc<SimDisk>> = images
        .iter()
        .enumerate()
        .map(|(number, (image, size))| {
            world.add_disk_with(&format!("disk{number}"), DiskProfile::new(*size), image.clone())
        })
        .collect();
    let devices: Vec<_> = disks.iter().map(|disk| wrap(disk.attach(&world))).collect();
    let (seams, host) = (world.seams(), arbiter.snapshot() as Rc<dyn Arbiter>);
    let (ending, unusable) = world
        .run(async move {
            let found = discover(&seams, &devices).await;
            let unusable = found.unusable.into_iter().map(|(_, error)| error).collect();
            let candidates = found.pools.into_values().flatten().collect();
            (open(&seams, host, candidates, &OpenOptions { mode }).await.map(drop), unusable)
        })
        .unwrap();
    if ending.is_err() || mode == OpenMode::Read {
        for (disk, (image, size)) in disks.iter().zip(images) {
            assert_eq!(image.first_difference(&disk.truth(), size.0), None, "{} was changed", disk.name());
        }
    }
    (ending, unusable)
}

fn open_as(arbiter: &Rc<MemoryArbiter>, images: &[(Image, Bytes)], mode: OpenMode) -> Ending {
    open_images(arbiter, images, mode, |device| device).0
}

fn whole(pool: &Pool) -> Vec<(Image, Bytes)> {
    pool.images.iter().map(|image| (image.clone(), CAPACITY)).collect()
}

/// A bit turns in one copy of the newest label, or in every other than one: the disk is known by what is left.
#[test]
fn a_pool_opens_with_one_sound_label_per_disk() {
    let pool = pool(1, 3);
    for at in LABELS {
        let mut images = whole(&pool);
        images.iter_mut().for_each(|(image, _)| image.flip_bit(at + 100, 3));
        open_as(&pool.arbiter, &images, OpenMode::Write).unwrap();
    }
}

/// A bit turns in every copy of a disk's label: that disk is named as unusable, and the others are judged without it.
#[test]
fn a_disk_without_any_sound_label_is_named() {
    let pool = pool(1, 3);
    let mut images = whole(&pool);
    LABELS.iter().for_each(|at| images[1].0.flip_bit(at + 4000, 1));
    let (ending, unusable) = open_images(&pool.arbiter, &images, OpenMode::Write, |device| device);
    ending.unwrap();
    assert!(matches!(unusable.as_slice(), [LabelError::Checksum { .. }]), "{unusable:?}");
    LABELS.iter().for_each(|at| images.iter_mut().for_each(|(image, _)| image.flip_bit(at + 4001, 1)));
    let (ending, unusable) = open_images(&pool.arbiter, &images, OpenMode::Write, |device| device);
    assert!(matches!(ending, Err(OpenError::NoDisks)), "{ending:?}");
    assert_eq!(unusable.len(), 3);
}

/// All labels say that a later version wrote them: each disk is named with that version and with what to do, and nothing is
/// changed, neither by looking nor by an attempt to make a new pool of the disks.
#[test]
fn disks_of_a_later_version_are_refused_by_name() {
    let pool = pool(3, 2);
    let mut images = whole(&pool);
    // The version stands behind the magic.
    LABELS.iter().for_each(|at| images.iter_mut().for_each(|(image, _)| image.flip_bit(at + 8, 3)));
    let later = FORMAT_VERSION + 8;
    let (ending, unusable) = open_images(&pool.arbiter, &images, OpenMode::Write, |device| device);
    assert!(matches!(ending, Err(OpenError::NoDisks)), "{ending:?}");
    assert_eq!(unusable, vec![LabelError::Version { found: later }; 2]);
    let text = unusable[0].to_string();
    assert!(text.contains(&format!("version {later}")) && text.contains("use a newer dolmen"), "{text}");
    let refused = refusal(&images, |number| format!("disk{number}"), Zoning::None);
    assert!(
        matches!(refused, CreateError::Unusable { source: LabelError::Version { found }, .. } if found == later),
        "{refused:?}"
    );
}

/// Gives every label of a disk another version, and the checksum that fits it.
fn set_version(image: &mut Image, version: u32) {
    for at in LABELS {
        let mut head = [0; 16];
        image.read(at, &mut head);
        let length = u32::from_le_bytes(head[12..16].try_into().unwrap()) as usize;
        let mut label = vec![0; length];
        image.read(at, &mut label);
        if label.is_empty() {
            continue;
        }
        label[8..12].copy_from_slice(&version.to_le_bytes());
        label[4088..4096].fill(0);
        let checksum = crc64(&label);
        label[4088..4096].copy_from_slice(&checksum.to_le_bytes());
        image.write(at, &label);
    }
}

/// All labels are sound and of an older format, or those of one disk are: each such disk is refused with the name of its pool,
/// and nothing is changed, neither by an opening in any mode nor by an attempt to make a new pool of the disks.
#[test]
fn disks_of_an_older_format_are_refused_by_name_and_stay_as_they_are() {
    let pool = pool(3, 2);
    for version in 1..FORMAT_VERSION {
        let mut images = whole(&pool);
        images.iter_mut().for_each(|(image, _)| set_version(image, version));
        for mode in [OpenMode::Write, OpenMode::Confirmed, OpenMode::Read] {
            let (ending, unusable) = open_images(&pool.arbiter, &images, mode, |device| device);
            assert!(
                matches!(ending, Err(OpenError::NoDisks)),
                "a pool of format {version} was opened: {ending:?}"
            );
            let known = FORMAT_VERSION;
            let expected = LabelError::OldFormat { pool_name: "tank".parse().ok(), found: version, known };
            assert_eq!(unusable, vec![expected; 2], "format {version} is not refused by name");
        }
        let refused = refusal(&images, |number| format!("disk{number}"), Zoning::None);
        let CreateError::Unusable { source, .. } = refused else { panic!("{refused:?}") };
        let text = source.to_string();
        let says = format!(
            "pool tank, which has format {version}; this build reads format {FORMAT_VERSION}; nothing was changed"
        );
        assert!(text.contains(&says), "{text}");
    }
    let mut images = whole(&pool);
    set_version(&mut images[1].0, 2);
    let (ending, unusable) = open_images(&pool.arbiter, &images, OpenMode::Write, |device| device);
    ending.unwrap();
    assert!(matches!(unusable.as_slice(), [LabelError::OldFormat { .. }]), "{unusable:?}");
}

/// Any one bit of the labels of one disk turns: the pool opens all the same, for no bit is believed unverified.
#[test]
fn no_single_bit_of_a_label_stops_a_pool() {
    let pool = pool(2, 2);
    for bit in (0..8 * 4096).step_by(1021) {
        let mut images = whole(&pool);
        LABELS.iter().for_each(|at| images[0].0.flip_bit(at + bit / 8, (bit % 8) as u8));
        open_as(&pool.arbiter, &images, OpenMode::Write).unwrap();
    }
}

/// An image that lost a few megabytes opens; one that lost allocation units is left out, and refused where nothing opens without
/// it.
#[test]
fn an_image_cut_short_is_left_out() {
    let pool = pool(1, 3);
    let mut images = whole(&pool);
    images[2].1 = Bytes::mib(60);
    open_as(&pool.arbiter, &images, OpenMode::Write).unwrap();
    images[2].1 = Bytes::mib(40);
    open_as(&pool.arbiter, &images, OpenMode::Read).unwrap();
    open_as(&pool.arbiter, &images, OpenMode::Write).unwrap();
    for mode in [OpenMode::Write, OpenMode::Read, OpenMode::Confirmed] {
        let ending = open_as(&pool.arbiter, &images[2..], mode);
        let Err(OpenError::Extent { source: ExtentError::CutShort { found, .. }, .. }) = ending else {
            panic!("{ending:?}")
        };
        assert_eq!(found, Bytes::mib(40));
    }
}

/// A disk and its copy are both here: neither is used.
#[test]
fn a_disk_and_its_copy_are_refused_as_indistinguishable() {
    let pool = pool(1, 3);
    let mut images = whole(&pool);
    images.push(images[0].clone());
    let ending = open_as(&pool.arbiter, &images, OpenMode::Write);
    let Err(OpenError::Duplicate { first, second, .. }) = ending else { panic!("{ending:?}") };
    assert_eq!((first.as_str(), second.as_str()), ("disk0", "disk3"));
}

/// Disks of two pools are handed over as one.
#[test]
fn disks_of_two_pools_are_not_mixed() {
    let (one, other) = (pool(1, 2), pool(2, 2));
    let images = [whole(&one), whole(&other)].concat();
    for mode in [OpenMode::Write, OpenMode::Read, OpenMode::Confirmed] {
        let ending = open_as(&one.arbiter, &images, mode);
        assert!(matches!(ending, Err(OpenError::TwoPools { .. })), "{ending:?}");
    }
}

/// Nothing, and disks without any label.
#[test]
fn empty_disks_are_no_pool() {
    let pool = pool(1, 1);
    let ending = open_as(&pool.arbiter, &[(Image::new(), CAPACITY)], OpenMode::Write);
    assert!(matches!(ending, Err(OpenError::NoDisks)), "{ending:?}");
}

/// A read-only import changes nothing, with all disks and with one.
#[test]
fn a_read_only_opening_writes_nothing() {
    let pool = pool(1, 3);
    let images = whole(&pool);
    open_as(&pool.arbiter, &images, OpenMode::Read).unwrap();
    open_as(&pool.arbiter, &images[1..2], OpenMode::Read).unwrap();
    let stranger = MemoryArbiter::new(HostId([9; 16]));
    open_as(&stranger, &images[..1], OpenMode::Read).unwrap();
    let ending = open_as(&stranger, &images[..1], OpenMode::Write);
    assert!(matches!(ending, Err(OpenError::ReadOnly { .. })), "{ending:?}");
}

/// A device that refuses whatever changes it, as one that is locked by a switch does; or one with other geometry.
struct Altered {
    inner: Rc<dyn BlockDevice>,
    is_read_only: bool,
    geometry: Geometry,
}

impl BlockDevice for Altered {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn submit(&self, command: Command) -> Submission {
        let payload = match command.action {
            Action::Write { from, .. } if self.is_read_only => Payload::Shared(from),
            Action::Discard { .. } | Action::WriteZeroes { .. } if self.is_read_only => Payload::None,
            action => return self.inner.submit(Command { action, ..command }),
        };
        Completions::new().ready(Outcome { result: Err(DeviceError::ReadOnly), payload })
    }

    fn fence(&self, epoch: Epoch) {
        self.inner.fence(epoch);
    }

    fn counters(&self) -> IoCounters {
        self.inner.counters()
    }
}

/// All devices refuse writes: the pool opens for reading, and for writing not at all.
#[test]
fn devices_that_are_read_only_open_for_reading() {
    let pool = pool(1, 3);
    let locked = |inner: Rc<dyn BlockDevice>| {
        let geometry = inner.geometry();
        Rc::new(Altered { inner, is_read_only: true, geometry }) as Rc<dyn BlockDevice>
    };
    open_images(&pool.arbiter, &whole(&pool), OpenMode::Read, locked).0.unwrap();
    let ending = open_images(&pool.arbiter, &whole(&pool), OpenMode::Write, locked).0;
    assert!(matches!(ending, Err(OpenError::NoMetadata { .. })), "{ending:?}");
}

/// A device that does not answer is passed over after a while, and the pool is found on the others.
#[test]
fn a_device_that_hangs_is_not_waited_for_for_ever() {
    let pool = pool(1, 3);
    let world = world();
    let add = |(number, image): (usize, &Image)| {
        world.add_disk_with(&format!("disk{number}"), DiskProfile::new(CAPACITY), image.clone())
    };
    let disks: Vec<_> = pool.images.iter().enumerate().map(add).collect();
    disks[1].arm(FaultKind::Hung);
    let devices: Vec<_> = disks.iter().map(|disk| disk.attach(&world)).collect();
    let seams = world.seams();
    let found = world.run(async move { discover(&seams, &devices).await }).unwrap();
    assert_eq!(found.pools.values().map(Vec::len).collect::<Vec<_>>(), [2]);
    let unreadable: Vec<_> =
        found.unreadable.iter().map(|error| (error.device.as_str(), error.source)).collect();
    assert_eq!(unreadable, [("disk1", DeviceError::TimedOut)]);
}

/// Checks devices for a new pool; that none of them was written.
fn refusal(images: &[(Image, Bytes)], name: impl Fn(usize) -> String, zoning: Zoning) -> CreateError {
    let world = world();
    let add = |(number, (image, size)): (usize, &(Image, Bytes))| {
        world.add_disk_with(&name(number), DiskProfile::new(*size), image.clone())
    };
    let disks: Vec<_> = images.iter().enumerate().map(add).collect();
    let altered = |disk: &Rc<SimDisk>| {
        let inner = disk.attach(&world);
        let geometry = Geometry { zoning, ..inner.geometry() };
        Rc::new(Altered { inner, is_read_only: false, geometry }) as Rc<dyn BlockDevice>
    };
    let devices: Vec<_> = disks.iter().map(altered).collect();
    let seams = world.seams();
    let host = MemoryArbiter::new(HostId([1; 16]));
    let error = world
        .run(async move {
            let checked = check_devices(&seams, &devices, &[]).await.map(drop).err();
            let options = CreateOptions {
                name: "tank".parse().unwrap(),
                overwrite: Vec::new(),
                fault_domains: Vec::new(),
            };
            let error = create(&seams, host, &devices, &options).await.map(drop).unwrap_err();
            assert_eq!(checked.map(|checked| checked.to_string()), Some(error.to_string()));
            error
        })
        .unwrap();
    for (disk, (image, size)) in disks.iter().zip(images) {
        assert_eq!(image.first_difference(&disk.truth(), size.0), None, "{} was changed", disk.name());
    }
    error
}

/// Whatever makes a device unfit for a new pool is found before any device is written.
#[test]
fn unfit_devices_are_refused_before_any_is_written() {
    let blank = || (Image::new(), CAPACITY);
    let numbered = |number: usize| format!("disk{number}");
    let small = refusal(&[blank(), (Image::new(), Bytes::mib(63))], numbered, Zoning::None);
    assert!(
        matches!(&small, CreateError::Extent { name, source: ExtentError::TooSmall { .. } } if name == "disk1"),
        "{small:?}"
    );
    let tiny = refusal(&[(Image::new(), Bytes::kib(4))], numbered, Zoning::None);
    assert!(matches!(tiny, CreateError::Extent { .. }), "{tiny:?}");
    let twice = refusal(&[blank(), blank()], |_| "same".to_owned(), Zoning::None);
    assert!(matches!(twice, CreateError::Twice { .. }), "{twice:?}");
    let zoned = refusal(&[blank()], numbered, Zoning::HostManaged);
    assert!(matches!(zoned, CreateError::Zoned { .. }), "{zoned:?}");
    let mut ext4 = Image::new();
    ext4.write(1024 + 0x38, &[0x53, 0xef]);
    let foreign = refusal(&[blank(), (ext4, CAPACITY)], numbered, Zoning::None);
    assert!(matches!(&foreign, CreateError::Foreign { name, .. } if name == "disk1"), "{foreign:?}");
    let taken = pool(1, 2);
    let member = refusal(&[blank(), whole(&taken)[0].clone()], numbered, Zoning::None);
    assert!(matches!(&member, CreateError::Member { name, .. } if name == "disk1"), "{member:?}");
    let mut damaged = whole(&taken)[1].clone();
    LABELS.iter().for_each(|at| damaged.0.flip_bit(at + 512, 1));
    let unusable = refusal(&[blank(), damaged], numbered, Zoning::None);
    assert!(matches!(&unusable, CreateError::Unusable { name, .. } if name == "disk1"), "{unusable:?}");
    let none = refusal(&[], numbered, Zoning::None);
    assert!(matches!(none, CreateError::NoDisks), "{none:?}");
}

/// One of three voters has a metadata area that ends before log and pages do, as a disk that an older version let vote: it is
/// a member and no voter from the next opening on, whatever its log holds; alone it is not written, and can be looked at.
#[test]
fn a_voter_whose_metadata_area_is_too_small_loses_its_vote() {
    let world = world();
    let disks: Vec<_> = (0..3)
        .map(|number| world.add_disk(&format!("disk{number}"), DiskProfile::new(Bytes::gib(16))))
        .collect();
    let attach = |from: usize| -> Vec<Rc<dyn BlockDevice>> {
        disks[from..].iter().map(|disk| disk.attach(&world)).collect()
    };
    let arbiter = MemoryArbiter::new(HostId([1; 16]));
    let host = || Rc::clone(&arbiter) as Rc<dyn Arbiter>;
    let (seams, devices, first) = (world.seams(), attach(0), host());
    world
        .run(async move {
            let name = "tank".parse().unwrap();
            let options = CreateOptions { name, overwrite: Vec::new(), fault_domains: Vec::new() };
            let pool = create(&seams, first, &devices, &options).await.unwrap().pool;
            assert_eq!(pool.members().voters().len(), 3);
            pool.close().await.unwrap();
            let Ok(Contents::Member { mut label, .. }) = look(&seams, devices[2].as_ref()).await else {
                panic!("a member")
            };
            label.sequence += 1;
            label.extent.metadata = Bytes::mib(8);
            write_label(&seams, devices[2].as_ref(), Epoch(1 << 20), &label).await.unwrap();
        })
        .unwrap();
    let (seams, all, alone, host) = (world.seams(), attach(0), attach(2), host());
    world
        .run(async move {
            let open_as = async |devices: &[Rc<dyn BlockDevice>], mode| {
                let candidates = discover(&seams, devices).await.pools.into_values().flatten().collect();
                open(&seams, Rc::clone(&host), candidates, &OpenOptions { mode }).await
            };
            let refused = open_as(&alone, OpenMode::Confirmed).await.map(drop);
            assert!(matches!(refused, Err(OpenError::SmallVoter { .. })), "{refused:?}");
            open_as(&alone, OpenMode::Read).await.unwrap();
            for _ in 0..2 {
                let pool = open_as(&all, OpenMode::Write).await.unwrap().pool;
                let small = pool.members().find_disk("disk2").unwrap();
                assert!(small.is_present() && !pool.members().voters().contains(&small.id()));
                pool.voter_tender().tend().await.unwrap();
                assert_eq!(pool.members().voters().len(), 2);
                pool.close().await.unwrap();
            }
        })
        .unwrap();
}

/// One small fast disk beside three large slow ones does not decide how long the map is; where there are two others only, it
/// votes all the same, and fast disks that are large enough vote before slow ones.
#[test]
fn a_small_fast_disk_does_not_decide_the_length_of_the_map() {
    let voters_of = |sizes: &[(u64, bool)]| {
        let world = world();
        let disks = sizes.iter().map(|(gib, rotational)| {
            let mut profile = DiskProfile::new(Bytes::gib(*gib));
            profile.geometry.rotational = *rotational;
            world.add_disk(&format!("disk of {gib}"), profile)
        });
        let devices: Vec<_> = disks.map(|disk| disk.attach(&world)).collect();
        let host = MemoryArbiter::new(HostId([1; 16])) as Rc<dyn Arbiter>;
        let seams = world.seams();
        world
            .run(async move {
                let name = "tank".parse().unwrap();
                let fault_domains = (1..).take(devices.len()).collect();
                let options = CreateOptions { name, overwrite: Vec::new(), fault_domains };
                let pool = create(&seams, host, &devices, &options).await.unwrap().pool;
                let voters: Vec<u16> = pool
                    .disks()
                    .iter()
                    .filter(|disk| pool.members().voters().contains(&disk.id()))
                    .map(|disk| disk.slot().0)
                    .collect();
                (voters, pool.identity().metadata_bytes().1)
            })
            .unwrap()
    };
    let (voters, pages) = voters_of(&[(32, false), (8000, true), (8001, true), (8002, true)]);
    assert_eq!(voters, [1, 2, 3]);
    assert!(pages > Bytes::gib(7), "{pages}");
    let (voters, _) = voters_of(&[(32, false), (8000, true), (8001, true)]);
    assert_eq!(voters, [0, 1, 2]);
    let (voters, _) =
        voters_of(&[(8000, true), (8001, true), (500, false), (501, false), (502, false), (503, false)]);
    assert_eq!(voters, [2, 3, 4, 5]);
}
