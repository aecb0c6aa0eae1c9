//! Pools with every kind of damage that a check names, on modelled disks; no check changes a byte.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::cell::Cell;
use std::rc::Rc;

use dolmen_block_io::{
    Action, BlockDevice, Command, Completions, DeviceError, Durability, Geometry, IoCounters, MemoryDevice,
    Outcome, Payload, Seams, Submission,
};
use dolmen_buffer::ArenaConfig;
use dolmen_check::{CheckError, CheckOptions, Depth, Finding, FindingKind, Report, check};
use dolmen_pool::{Arbiter, CreateOptions, MemoryArbiter, OpenMode, OpenOptions, create, discover, open};
use dolmen_sim::World;
use dolmen_space::{Progress, Resiliency, SpaceSpec, Spaces};
use dolmen_units::{Bytes, Epoch, HostId};

const DISK: Bytes = Bytes::mib(96);
/// What the spaces hold; looked for on the disks in order to damage it.
const MARK: [u8; 16] = *b"marked by a test";

#[derive(Clone, Copy, PartialEq)]
enum End {
    Closed,
    /// Left as a crash leaves it.
    Torn,
}

struct Bench {
    world: World,
    disks: Vec<Rc<MemoryDevice>>,
}

impl Bench {
    /// Disks that hold nothing.
    fn empty(disks: usize) -> Self {
        let bench = Self {
            world: World::new(7),
            disks: (0..disks).map(|at| MemoryDevice::new(&format!("disk{at}"), DISK)).collect(),
        };
        bench.world.set_arenas(ArenaConfig::MODEST, ArenaConfig::MODEST);
        bench
    }

    /// A pool of disks with one mirror space, which holds a mark in each of its first blocks.
    fn new(disks: usize, resiliency: Resiliency, end: End) -> Self {
        let bench = Self::empty(disks);
        let (seams, devices) = (bench.world.seams(), bench.devices());
        bench.world.run(fill(seams, devices, resiliency, end)).unwrap();
        bench
    }

    fn devices(&self) -> Vec<Rc<dyn BlockDevice>> {
        self.disks.iter().map(|disk| Rc::clone(disk) as Rc<dyn BlockDevice>).collect()
    }

    fn check(&self, devices: Vec<Rc<dyn BlockDevice>>) -> Result<Report, CheckError> {
        let before: Vec<u64> = self.disks.iter().map(|disk| writes(disk)).collect();
        let options = CheckOptions { depth: Depth::Content };
        let seams = self.world.seams();
        let report =
            self.world.run(async move { check(seams, devices, options, Rc::default()).await }).unwrap();
        assert_eq!(self.disks.iter().map(|disk| writes(disk)).collect::<Vec<_>>(), before, "a check wrote");
        report
    }

    fn numbers(&self) -> Vec<u16> {
        let report = self.check(self.devices()).unwrap();
        report.findings.iter().map(|finding| finding.kind.number()).collect()
    }

    /// Where the mark stands on a disk.
    fn marks(&self, disk: usize) -> Vec<u64> {
        blocks(&self.disks[disk], DISK, |head| *head == MARK)
    }
}

/// The addresses of blocks that begin like this.
fn blocks(disk: &MemoryDevice, length: Bytes, is_wanted: impl Fn(&[u8; 16]) -> bool) -> Vec<u64> {
    let mut head = [0; 16];
    let mut found = Vec::new();
    for at in (0..length.0).step_by(4096) {
        disk.peek(at, &mut head);
        if is_wanted(&head) {
            found.push(at);
        }
    }
    found
}

fn is_used(head: &[u8; 16]) -> bool {
    *head != [0; 16]
}

fn writes(disk: &MemoryDevice) -> u64 {
    let counters = disk.counters();
    counters.writes + counters.discards + counters.flushes
}

async fn fill(seams: Seams, devices: Vec<Rc<dyn BlockDevice>>, resiliency: Resiliency, end: End) {
    let arbiter: Rc<dyn Arbiter> = MemoryArbiter::new(HostId([1; 16]));
    let options =
        CreateOptions { name: "tank".parse().unwrap(), overwrite: Vec::new(), fault_domains: Vec::new() };
    let spaces = Spaces::start(create(&seams, arbiter, &devices, &options).await.unwrap()).await.unwrap();
    let mut spec = SpaceSpec::usual("data".parse().unwrap(), Bytes::mib(16), resiliency);
    spec.row = Some(Bytes::mib(1));
    let space = spaces.create(spec).await.unwrap();
    for at in 0..8 {
        let mut buffer = seams.data.take(4096).await;
        buffer.fill(at);
        buffer[..16].copy_from_slice(&MARK);
        space.write(u64::from(at) * 4096, &buffer.freeze(), Durability::Cached).await.unwrap();
        // Without a flush after the last of them, a crash leaves writes for recovery to decide.
        if at < 6 {
            spaces.flush().await.unwrap();
        }
    }
    if end == End::Closed {
        spaces.close().await.unwrap();
    }
}

#[test]
fn a_sound_pool_has_no_findings_closed_or_not() {
    for end in [End::Closed, End::Torn] {
        for resiliency in
            [Resiliency::Simple, Resiliency::Mirror { copies: 2 }, Resiliency::Mirror { copies: 3 }]
        {
            let bench = Bench::new(3, resiliency, end);
            let report = bench.check(bench.devices()).unwrap();
            assert!(report.is_clean(), "{report:?}");
            let pool = &report.pools[0];
            assert_eq!((pool.disk_count, pool.space_count, pool.verified), (3, 1, Bytes(8 * 4096)));
            assert_eq!(pool.replayed_count > 0, end == End::Torn);
        }
    }
}

/// What lies in a write cache is named by the log of a closed pool too.
#[test]
fn a_pool_that_was_closed_with_blocks_in_its_write_cache_was_closed() {
    for end in [End::Closed, End::Torn] {
        let bench = Bench::new(4, Resiliency::Parity { parity: 1 }, end);
        let report = bench.check(bench.devices()).unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(report.pools[0].replayed_count > 0, end == End::Torn);
    }
}

/// One flipped bit in one copy: the disk is named, nothing is lost.
#[test]
fn a_damaged_copy_is_found_and_named() {
    let bench = Bench::new(3, Resiliency::Mirror { copies: 3 }, End::Closed);
    let at = bench.marks(1)[0];
    bench.disks[1].poke(at, b"M");
    let report = bench.check(bench.devices()).unwrap();
    let kinds: Vec<_> = report.findings.iter().map(|finding| &finding.kind).collect();
    let expected = FindingKind::Damaged { disk: "disk1".to_owned(), blocks: 1, errors: 0 };
    assert_eq!(kinds, [&expected]);
    // Nothing was healed on the disk: the next check finds the same.
    assert_eq!(bench.numbers(), [302]);
}

/// A bit turns in the header of each slab in turn: the disk, the row and the column are named, and nothing is lost.
#[test]
fn a_damaged_header_of_a_slab_is_found_and_named() {
    for resiliency in [Resiliency::Mirror { copies: 2 }, Resiliency::Parity { parity: 1 }] {
        let bench = Bench::new(3, resiliency, End::Closed);
        let mut named = 0;
        for disk in 0..3 {
            for at in blocks(&bench.disks[disk], DISK, |head| head.starts_with(b"DOLMENSL")) {
                let mut byte = [0];
                bench.disks[disk].peek(at + 60, &mut byte);
                bench.disks[disk].poke(at + 60, &[byte[0] ^ 4]);
                let report = bench.check(bench.devices()).unwrap();
                let kinds: Vec<_> = report.findings.iter().map(|finding| &finding.kind).collect();
                let name = format!("disk{disk}");
                let is_named = matches!(kinds[..], [
                    FindingKind::Damaged { disk: damaged, blocks: 1, errors: 0 },
                    FindingKind::HeaderWrong { disk: of_header, cause, .. },
                ] if *damaged == name && *of_header == name && cause.contains("checksum"));
                assert!(is_named, "{report:?}");
                bench.disks[disk].poke(at + 60, &byte);
                named += 1;
            }
        }
        assert!(named > 1, "{resiliency:?}");
        assert_eq!(bench.numbers(), [0; 0]);
    }
}

/// The same blocks damaged on every disk: the range is named to the byte.
#[test]
fn content_that_no_copy_gives_is_listed_by_range() {
    let bench = Bench::new(2, Resiliency::Mirror { copies: 2 }, End::Closed);
    for disk in 0..2 {
        for at in &bench.marks(disk)[2..4] {
            bench.disks[disk].poke(*at, b"M");
        }
    }
    let report = bench.check(bench.devices()).unwrap();
    let lost = FindingKind::Lost { space: "data".parse().unwrap(), at: 8192, length: Bytes(8192) };
    assert!(report.findings.iter().any(|finding| finding.kind == lost), "{report:?}");
}

#[test]
fn a_missing_disk_is_a_finding_and_the_rest_is_checked() {
    let kinds = [
        Resiliency::Mirror { copies: 2 },
        Resiliency::Mirror { copies: 3 },
        Resiliency::Parity { parity: 1 },
    ];
    for (end, resiliency) in
        [End::Closed, End::Torn].into_iter().flat_map(|end| kinds.map(|kind| (end, kind)))
    {
        let bench = Bench::new(3, resiliency, end);
        for missing in 0..3 {
            let devices = bench.devices().into_iter().enumerate().filter(|(at, _)| *at != missing);
            let report = bench.check(devices.map(|(_, device)| device).collect()).unwrap();
            let numbers: Vec<u16> = report.findings.iter().map(|finding| finding.kind.number()).collect();
            // That it missed writes, nobody can know of a disk that is only not given.
            assert_eq!(numbers, [105], "{resiliency:?} {report:?}");
            assert!(report.pools[0].verified >= Bytes(8 * 4096));
        }
    }
}

/// A part of a pool without redundancy is checked: what is on the disk that was not given is out of reach, and not lost.
#[test]
fn what_a_missing_disk_alone_holds_is_out_of_reach_and_the_rest_is_checked() {
    for end in [End::Closed, End::Torn] {
        let bench = Bench::new(3, Resiliency::Simple, end);
        let (mut verified, mut out_of_reach) = (Bytes::ZERO, 0);
        for missing in 0..3 {
            let devices = bench.devices().into_iter().enumerate().filter(|(at, _)| *at != missing);
            let report = bench.check(devices.map(|(_, device)| device).collect()).unwrap();
            let kinds = report.findings.iter().map(|finding| finding.kind.number());
            out_of_reach += kinds.clone().filter(|number| *number == 306).count();
            assert!(kinds.clone().all(|number| [105, 306].contains(&number)), "{report:?}");
            verified = verified + report.pools[0].verified;
        }
        assert!(out_of_reach > 0);
        assert_eq!(verified, Bytes(2 * 8 * 4096), "each block lies on one disk, which was given twice");
    }
}

/// A simple space over all disks whose last row goes on behind its end, written everywhere, without one of the disks: one
/// finding, whose sum is what the other disks do not give.
#[test]
fn what_is_out_of_reach_is_a_sum_for_each_space_and_ends_with_it() {
    let bench = Bench::empty(3);
    let size = Bytes::kib(1024 + 512);
    let (seams, devices) = (bench.world.seams(), bench.devices());
    bench.world.run(async move { fill_two(seams, devices, size).await }).unwrap();
    let mut out_of_reach = Bytes::ZERO;
    for missing in 0..3 {
        let devices = bench.devices().into_iter().enumerate().filter(|(at, _)| *at != missing);
        let report = bench.check(devices.map(|(_, device)| device).collect()).unwrap();
        let mut spaces = Vec::new();
        for finding in &report.findings {
            if let FindingKind::OutOfReach { space, length, pieces, at, end } = &finding.kind {
                assert!(*pieces > 1 && at + length.0 < *end && *end <= size.0, "{report:?}");
                out_of_reach = out_of_reach + *length;
                spaces.push(space.to_string());
            }
        }
        assert_eq!(spaces, ["data", "more"], "{report:?}");
        assert_eq!(report.findings.len(), 3, "{report:?}");
    }
    assert_eq!(
        out_of_reach,
        Bytes(2 * size.0),
        "each block of both spaces lies on one disk, which was missing once"
    );
}

/// A pool of disks with two simple spaces of this size, full of bytes.
async fn fill_two(seams: Seams, devices: Vec<Rc<dyn BlockDevice>>, size: Bytes) {
    let arbiter: Rc<dyn Arbiter> = MemoryArbiter::new(HostId([1; 16]));
    let options =
        CreateOptions { name: "tank".parse().unwrap(), overwrite: Vec::new(), fault_domains: Vec::new() };
    let spaces = Spaces::start(create(&seams, arbiter, &devices, &options).await.unwrap()).await.unwrap();
    for name in ["data", "more"] {
        let mut spec = SpaceSpec::usual(name.parse().unwrap(), size, Resiliency::Simple);
        (spec.row, spec.columns, spec.interleave) = (Some(Bytes::mib(1)), Some(3), Bytes::kib(16));
        let space = spaces.create(spec).await.unwrap();
        for at in (0..size.0).step_by(4096) {
            let mut buffer = seams.data.take(4096).await;
            buffer.fill(7);
            space.write(at, &buffer.freeze(), Durability::Cached).await.unwrap();
        }
    }
    spaces.close().await.unwrap();
}

/// A disk that missed writes before the pool was used last has done so, whether it is given now or not.
#[test]
fn a_disk_that_missed_writes_is_named_with_or_without_its_slabs() {
    let bench = Bench::new(3, Resiliency::Mirror { copies: 3 }, End::Closed);
    let (seams, devices) = (bench.world.seams(), bench.devices());
    bench.world.run(write_without_the_first(seams, devices)).unwrap();
    assert_eq!(bench.numbers(), [301]);
    let report = bench.check(bench.devices().into_iter().skip(1).collect()).unwrap();
    let kinds: Vec<_> = report.findings.iter().map(|finding| &finding.kind).collect();
    assert!(matches!(kinds[..], [FindingKind::Missing { .. }, FindingKind::Stale { rows: 1 }]), "{report:?}");
}

/// Opens the pool without its first disk, and writes over a block.
async fn write_without_the_first(seams: Seams, devices: Vec<Rc<dyn BlockDevice>>) {
    let found = discover(&seams, &devices[1..]).await;
    let candidates = found.pools.into_values().next().unwrap();
    let options = OpenOptions { mode: OpenMode::Confirmed };
    let opened = open(&seams, MemoryArbiter::new(HostId([1; 16])), candidates, &options).await.unwrap();
    let spaces = Spaces::start(opened).await.unwrap();
    let mut buffer = seams.data.take(4096).await;
    buffer.fill(9);
    let space = spaces.find("data").unwrap();
    space.write(0, &buffer.freeze(), Durability::Cached).await.unwrap();
    spaces.close().await.unwrap();
}

/// A disk that answers no more from some command on.
struct Leaving {
    device: Rc<MemoryDevice>,
    commands_left: Cell<u64>,
}

impl BlockDevice for Leaving {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn name(&self) -> String {
        self.device.name()
    }

    fn submit(&self, command: Command) -> Submission {
        if let Some(left) = self.commands_left.get().checked_sub(1) {
            self.commands_left.set(left);
            return self.device.submit(command);
        }
        let payload = match command.action {
            Action::Read { into, .. } => Payload::Buffer(into),
            Action::Write { from, .. } => Payload::Shared(from),
            _ => Payload::None,
        };
        Completions::new().ready(Outcome { result: Err(DeviceError::Detached), payload })
    }

    fn fence(&self, epoch: Epoch) {
        self.device.fence(epoch);
    }

    fn counters(&self) -> IoCounters {
        self.device.counters()
    }
}

/// A disk leaves in the middle of a check, at any of its commands: what it holds is not called lost.
#[test]
fn a_disk_that_leaves_during_a_check_loses_nothing() {
    for resiliency in [Resiliency::Simple, Resiliency::Mirror { copies: 2 }] {
        for disk in 0..3 {
            for commands in 0.. {
                let bench = Bench::new(3, resiliency, End::Closed);
                let leaving = Rc::new(Leaving {
                    device: Rc::clone(&bench.disks[disk]),
                    commands_left: Cell::new(commands),
                });
                let mut devices = bench.devices();
                devices[disk] = Rc::clone(&leaving) as Rc<dyn BlockDevice>;
                let Ok(report) = bench.check(devices) else { continue };
                let lost = |finding: &Finding| [303, 304].contains(&finding.kind.number());
                assert!(!report.findings.iter().any(lost), "disk {disk} after {commands}: {report:?}");
                if leaving.commands_left.get() > 0 {
                    break;
                }
            }
        }
    }
}

#[test]
fn damaged_labels_are_findings() {
    let bench = Bench::new(2, Resiliency::Mirror { copies: 2 }, End::Closed);
    let label = blocks(&bench.disks[0], Bytes::mib(4), is_used)[0];
    bench.disks[0].poke(label + 200, &[0xff; 8]);
    assert_eq!(bench.numbers(), [101]);
    // One that something else was written over, its magic included, and one that was zeroed.
    for byte in [0xa5, 0] {
        let bench = Bench::new(2, Resiliency::Mirror { copies: 2 }, End::Closed);
        bench.disks[0].poke(label, &[byte; 4096]);
        assert_eq!(bench.numbers(), [101], "{byte}");
    }
}

/// An image that was cut short, an empty device, a foreign one, and no pool at all.
#[test]
fn an_unsound_member_is_reported_as_such() {
    let bench = Bench::new(2, Resiliency::Mirror { copies: 2 }, End::Closed);
    let empty = MemoryDevice::new("empty", DISK) as Rc<dyn BlockDevice>;
    let report = bench.check(bench.devices().into_iter().chain([Rc::clone(&empty)]).collect()).unwrap();
    assert_eq!(report.findings[0].kind.number(), 104);
    assert_eq!(bench.check(vec![empty]), Err(CheckError::NoPool { count: 1 }));
    let short = MemoryDevice::new("short", Bytes::mib(48));
    let mut block = [0; 4096];
    for at in blocks(&bench.disks[0], Bytes::mib(48), is_used) {
        bench.disks[0].peek(at, &mut block);
        short.poke(at, &block);
    }
    let report = bench.check(vec![short]).unwrap();
    assert!(report.findings.iter().any(|finding| finding.kind.number() == 201), "{report:?}");
}

/// Bytes anywhere in the metadata flipped: a check may find less or more, but it ends and changes nothing.
#[test]
fn a_check_survives_any_content_of_the_metadata() {
    let sound = Bench::new(1, Resiliency::Simple, End::Closed);
    let used = blocks(&sound.disks[0], Bytes::mib(16), is_used);
    for (attempt, at) in used.iter().enumerate().step_by(used.len().div_ceil(16)) {
        let bench = Bench::new(1, Resiliency::Simple, End::Closed);
        bench.disks[0].poke(at + (attempt as u64 * 37) % 4000, &[0x5a; 4]);
        // That it ends, and that the disk is as before, is asserted by the bench itself.
        drop(bench.check(bench.devices()));
    }
}

#[test]
fn progress_reaches_its_end() {
    let bench = Bench::new(2, Resiliency::Mirror { copies: 2 }, End::Closed);
    let (progress, options) = (Rc::new(Progress::default()), CheckOptions { depth: Depth::Content });
    let (seams, devices, shared) = (bench.world.seams(), bench.devices(), Rc::clone(&progress));
    bench.world.run(async move { check(seams, devices, options, shared).await }).unwrap().unwrap();
    assert_eq!(progress.done.get(), progress.total.get());
    assert_eq!(progress.bytes.get(), 8 * 4096);
}
