//! The contract of disks, sockets, time and mailboxes, on each driver that this system grants.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, clippy::indexing_slicing)]

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{
    BlockDevice, DeviceError, Durability, Executor, Seams, conformance, flush, read, sleep, within, write,
    write_zeroes,
};
use dolmen_block_linux::{
    BlockAtomicity, DriverChoice, Family, Handle, Holder, LinuxDevice, Listener, OpenError, OpenOptions,
    Runtime, RuntimeConfig, Socket, SocketError, Use, in_use,
};
use dolmen_buffer::{Arena, Shared};
use dolmen_units::Epoch;
use rustix::fs::{CWD, FileType, Mode};
use tempfile::TempDir;

const TOKEN: Epoch = Epoch(1);
const MIB: u64 = 1 << 20;

fn runtime(driver: DriverChoice) -> Option<Runtime> {
    match Runtime::new(RuntimeConfig { driver, ..RuntimeConfig::MODEST }) {
        Ok(runtime) => Some(runtime),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

fn each_driver(test: impl Fn(&Runtime)) {
    for driver in [DriverChoice::Uring, DriverChoice::Threads] {
        if let Some(runtime) = runtime(driver) {
            test(&runtime);
        }
    }
}

fn disk_file(folder: &Path, bytes: u64) -> PathBuf {
    let path = folder.join("disk");
    File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

/// A folder on a real file system, where direct I/O works.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a tool of the system; its output when it succeeded.
fn tool(name: &str, arguments: &[&str]) -> Option<String> {
    let output = Process::new(name).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A loop device, detached in the end.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn new(file: &Path) -> Option<Self> {
        if !is_root() {
            println!("skipped: loop devices need root");
            return None;
        }
        let device = tool("losetup", &["--find", "--show", "--direct-io=on", file.to_str().unwrap()]);
        if device.is_none() {
            println!("skipped: no loop device to be had");
        }
        device.map(|path| Self(path.into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        tool("losetup", &["--detach", self.0.to_str().unwrap()]);
    }
}

/// A mount, taken down in the end.
struct Mount(PathBuf);

impl Mount {
    fn new(arguments: &[&str], at: &Path) -> Option<Self> {
        let arguments: Vec<_> = arguments.iter().copied().chain([at.to_str().unwrap()]).collect();
        if !is_root() || tool("mount", &arguments).is_none() {
            println!("skipped: mounting needs root and the right to mount");
            return None;
        }
        Some(Self(at.to_path_buf()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        tool("umount", &[self.0.to_str().unwrap()]);
    }
}

fn open(handle: &Handle, path: &Path) -> Rc<LinuxDevice> {
    LinuxDevice::open(handle, path, OpenOptions::default()).unwrap()
}

fn filled(arena: &Arena, len: usize, byte: u8) -> Shared {
    let mut buffer = arena.try_take(len).unwrap();
    buffer.fill(byte);
    buffer.freeze()
}

#[test]
fn a_file_keeps_the_contract_of_a_disk() {
    each_driver(|runtime| {
        let folder = folder();
        let device = open(&runtime.handle(), &disk_file(folder.path(), 4 * MIB));
        let arena = runtime.seams().data;
        let tested = Rc::clone(&device);
        runtime.run(async move { conformance::all(tested.as_ref(), &arena).await });
        let counters = runtime.counters().driver;
        assert_eq!(counters.submissions, counters.completions, "every request was answered");
        assert_eq!(device.outstanding_count(), 0);
    });
}

#[test]
fn a_file_without_direct_io_keeps_the_contract_of_a_disk() {
    // Scenario: a file system without direct I/O, or with one that only looks like it: the page cache serves.
    each_driver(|runtime| {
        let Ok(folder) = tempfile::tempdir_in("/dev/shm") else { return println!("skipped: no /dev/shm") };
        let device = open(&runtime.handle(), &disk_file(folder.path(), 4 * MIB));
        let arena = runtime.seams().data;
        runtime.run(async move { conformance::all(device.as_ref(), &arena).await });
    });
}

#[test]
fn a_block_device_keeps_the_contract_of_a_disk() {
    each_driver(|runtime| {
        let folder = folder();
        let Some(disk) = LoopDevice::new(&disk_file(folder.path(), 4 * MIB)) else { return };
        let device = open(&runtime.handle(), &disk.0);
        let geometry = device.geometry();
        assert_eq!(geometry.capacity.0, 4 * MIB);
        assert!(geometry.logical_block_bytes >= 512 && geometry.volatile_cache, "{geometry:?}");
        assert!(geometry.atomic_write_bytes >= geometry.logical_block_bytes, "{geometry:?}");
        assert!(
            geometry.discard_granularity_bytes.is_some(),
            "a loop device on this file can punch holes: {geometry:?}"
        );
        let arena = runtime.seams().data;
        let tested = Rc::clone(&device);
        runtime.run(async move {
            assert_eq!(write_zeroes(tested.as_ref(), TOKEN, 0, MIB).await, Ok(()));
            assert_eq!(dolmen_block_io::discard(tested.as_ref(), TOKEN, 0, MIB).await, Ok(()));
            conformance::all(tested.as_ref(), &arena).await;
        });
    });
}

#[test]
fn a_second_owner_is_refused_until_the_first_has_closed() {
    each_driver(|runtime| {
        let folder = folder();
        let path = disk_file(folder.path(), MIB);
        let first = open(&runtime.handle(), &path);
        let second = LinuxDevice::open(&runtime.handle(), &path, OpenOptions::default());
        let message = second.unwrap_err().to_string();
        assert!(message.contains("in use by "), "{message}");
        let reader_options = OpenOptions { exclusive: false, read_only: true, ..OpenOptions::default() };
        assert!(LinuxDevice::open(&runtime.handle(), &path, reader_options).is_ok());
        drop(first);
        assert!(LinuxDevice::open(&runtime.handle(), &path, OpenOptions::default()).is_ok());
    });
}

#[test]
fn a_device_that_was_opened_by_another_name_is_held_by_somebody_unseen() {
    // Scenario: a container has a node of its own for a device that another one has open. Neither the table of locks nor a
    // mark can tell; that the kernel refuses it, and no lock is held by this node, has to be enough.
    let folder = folder();
    let Some(disk) = LoopDevice::new(&disk_file(folder.path(), 4 * MIB)) else { return };
    let number = std::fs::metadata(&disk.0).unwrap().rdev();
    let node = folder.path().join("node");
    rustix::fs::mknodat(CWD, &node, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, number).unwrap();
    let runtime = runtime(DriverChoice::Automatic).unwrap();
    let first = open(&runtime.handle(), &disk.0);
    let open_again = || LinuxDevice::open(&runtime.handle(), &node, OpenOptions::default());
    let second = open_again();
    assert!(matches!(second, Err(OpenError::Locked { by: Some(Holder::Unseen), .. })), "{second:?}");
    drop(first);
    assert!(open_again().is_ok());
}

#[test]
fn what_cannot_be_a_disk_is_refused_by_name() {
    each_driver(|runtime| {
        let folder = folder();
        let handle = runtime.handle();
        let try_open = |path: &Path| LinuxDevice::open(&handle, path, OpenOptions::default()).map(|_| ());
        assert!(matches!(try_open(folder.path()), Err(OpenError::NotADisk { .. })));
        assert!(matches!(try_open(&folder.path().join("none")), Err(OpenError::NotFound { .. })));
        assert!(matches!(try_open(Path::new("/dev/null")), Err(OpenError::NotADisk { .. })));
    });
}

#[test]
fn a_disk_opened_read_only_is_not_changed() {
    each_driver(|runtime| {
        let folder = folder();
        let path = disk_file(folder.path(), MIB);
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let device = LinuxDevice::open(&runtime.handle(), &path, options).unwrap();
        let arena = runtime.seams().data;
        runtime.run(async move {
            let from = filled(&arena, 4096, 1);
            let result = write(device.as_ref(), TOKEN, 0, from, Durability::Cached).await;
            assert_eq!(result, Err(DeviceError::ReadOnly));
            assert_eq!(write_zeroes(device.as_ref(), TOKEN, 0, 4096).await, Err(DeviceError::ReadOnly));
            assert_eq!(device.counters().errors, 2);
        });
    });
}

#[test]
fn a_file_promises_a_block_or_what_was_configured() {
    each_driver(|runtime| {
        let folder = folder();
        let path = disk_file(folder.path(), MIB + 100);
        let promised = |atomicity| {
            let options = OpenOptions { atomicity, ..OpenOptions::default() };
            LinuxDevice::open(&runtime.handle(), &path, options).unwrap().geometry()
        };
        assert_eq!(promised(BlockAtomicity::Usual).atomic_write_bytes, 4096);
        assert_eq!(promised(BlockAtomicity::Reported).atomic_write_bytes, 512);
        assert_eq!(promised(BlockAtomicity::Usual).capacity.0, MIB, "a torn last sector is not used");
    });
}

#[test]
fn a_full_file_system_differs_from_a_broken_disk() {
    // Scenario: a sparse file of 8 MiB on a file system of 1 MiB.
    each_driver(|runtime| {
        let folder = folder();
        let Some(mount) = Mount::new(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"], folder.path()) else {
            return;
        };
        let device = open(&runtime.handle(), &disk_file(&mount.0, 8 * MIB));
        let arena = runtime.seams().data;
        let result = runtime.run(async move {
            let mut last = Ok(());
            for block in 0..8 {
                let from = filled(&arena, 1 << 20, 1);
                last = write(device.as_ref(), TOKEN, block * MIB, from, Durability::Cached).await;
            }
            last
        });
        assert_eq!(result, Err(DeviceError::NoSpace));
    });
}

#[test]
fn a_file_that_shrank_fails_the_read_and_does_not_hang() {
    each_driver(|runtime| {
        let folder = folder();
        let path = disk_file(folder.path(), 2 * MIB);
        let device = open(&runtime.handle(), &path);
        File::options().write(true).open(&path).unwrap().set_len(MIB + 4096).unwrap();
        let arena = runtime.seams().data;
        runtime.run(async move {
            let (_, result) = read(device.as_ref(), TOKEN, MIB, arena.try_take(65536).unwrap()).await;
            assert!(matches!(result, Err(DeviceError::Medium { .. })), "{result:?}");
        });
    });
}

#[test]
fn a_truncated_file_is_detached_before_it_promises_anything() {
    // Scenario: a file is emptied under the daemon. A cached write goes through and makes it longer again; the flush and
    // the durable write behind it say that the disk is gone, instead of calling safe what stands between holes.
    each_driver(|runtime| {
        let folder = folder();
        let path = disk_file(folder.path(), 2 * MIB);
        let device = open(&runtime.handle(), &path);
        let arena = runtime.seams().data;
        runtime.run(async move {
            assert_eq!(flush(device.as_ref(), TOKEN).await, Ok(()));
            File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
            let cached =
                write(device.as_ref(), TOKEN, MIB, filled(&arena, 4096, 1), Durability::Cached).await;
            assert_eq!(cached, Ok(()));
            assert_eq!(flush(device.as_ref(), TOKEN).await, Err(DeviceError::Detached));
            let durable =
                write(device.as_ref(), TOKEN, 0, filled(&arena, 4096, 1), Durability::Durable).await;
            assert_eq!(durable, Err(DeviceError::Detached));
        });
    });
}

#[test]
fn a_mounted_disk_is_named_with_its_mount_point_and_not_opened() {
    let Some(runtime) = runtime(DriverChoice::Automatic) else { return };
    let folder = folder();
    let file = disk_file(folder.path(), 8 * MIB);
    let Some(disk) = LoopDevice::new(&file) else { return };
    assert_eq!(in_use(&disk.0).unwrap(), None);
    let name = disk.0.file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(in_use(&file).unwrap().unwrap().by, vec![Use::Loop { device: name.clone() }]);
    // The same file by a second name, and by that alone.
    let second = folder.path().join("second");
    std::fs::hard_link(&file, &second).unwrap();
    assert_eq!(in_use(&second).unwrap().unwrap().by, vec![Use::Loop { device: name.clone() }]);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(in_use(&second).unwrap().unwrap().by, vec![Use::Loop { device: name }]);
    if tool("mkfs.ext4", &["-q", disk.0.to_str().unwrap()]).is_none() {
        return println!("skipped: no mkfs.ext4");
    }
    let at = folder.path().join("a mount");
    std::fs::create_dir(&at).unwrap();
    let Some(mount) = Mount::new(&[disk.0.to_str().unwrap()], &at) else { return };
    assert_eq!(in_use(&disk.0).unwrap().unwrap().by, vec![Use::Mounted { at: mount.0.clone() }]);
    match LinuxDevice::open(&runtime.handle(), &disk.0, OpenOptions::default()) {
        Err(error @ OpenError::InUse { .. }) => assert!(error.to_string().contains("a mount"), "{error}"),
        other => panic!("a mounted disk is not opened: {other:?}"),
    }
}

#[test]
fn alarms_ring_in_order_and_never_early() {
    each_driver(|runtime| {
        let seams = runtime.seams();
        let order = Rc::new(std::cell::RefCell::new(Vec::new()));
        for wait in [30u64, 10, 20] {
            let (seams, order) = (runtime.seams(), Rc::clone(&order));
            let spawner = runtime.seams().spawner;
            spawner.spawn(
                "alarm",
                Box::pin(async move {
                    let began = seams.clock.now();
                    sleep(seams.clock.as_ref(), Duration::from_millis(wait)).await;
                    assert!(seams.clock.now().since(began) >= Duration::from_millis(wait));
                    order.borrow_mut().push(wait);
                }),
            );
        }
        runtime.run(async move { sleep(seams.clock.as_ref(), Duration::from_millis(60)).await });
        assert_eq!(*order.borrow(), vec![10, 20, 30]);
    });
}

#[test]
fn identities_differ() {
    let Some(runtime) = runtime(DriverChoice::Automatic) else { return };
    let entropy = runtime.seams().entropy;
    assert_ne!(entropy.next_id(), entropy.next_id());
}

#[test]
fn four_threads_ask_and_each_gets_its_own_answers() {
    // Scenario: four threads ask 500 questions each, one after the other; every answer is to its own question.
    const ASKED: u64 = 500;
    each_driver(|runtime| {
        let (mailbox, mut inbox) = runtime.handle().mailbox::<(u64, dolmen_block_linux::Reply<u64>)>();
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let mailbox = mailbox.clone();
                let ask = move || {
                    for number in 0..ASKED {
                        let question = thread * ASKED + number;
                        let answer = mailbox.ask(|reply| (question, reply)).unwrap().wait();
                        assert_eq!(answer, Ok(question + 1));
                    }
                };
                std::thread::Builder::new().spawn(ask).unwrap()
            })
            .collect();
        drop(mailbox);
        let served = runtime.run(async move {
            let mut served = 0;
            while let Some((question, reply)) = inbox.receive().await {
                reply.send(question + 1);
                served += 1;
            }
            served
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(served, 4 * ASKED);
        let counters = runtime.counters();
        assert_eq!(counters.messages, served);
        assert!(counters.unparks <= counters.messages + 1, "{counters:?}");
    });
}

#[test]
fn a_question_that_nobody_will_answer_ends() {
    let Some(runtime) = runtime(DriverChoice::Automatic) else { return };
    let (mailbox, inbox) = runtime.handle().mailbox();
    let awaited = mailbox.ask::<()>(|reply| reply).unwrap();
    let awaited = awaited.wait_at_most(Duration::from_millis(5)).unwrap_err();
    drop(inbox);
    assert_eq!(awaited.wait(), Err(dolmen_block_linux::NoReply));
    assert!(mailbox.ask::<()>(|reply| reply).is_err());
}

async fn echo(socket: Socket, seams: Seams) -> Result<(), SocketError> {
    loop {
        let buffer = seams.data.take(65536).await;
        let (mut buffer, result) = socket.receive(buffer).await;
        match result? {
            0 => return Ok(()),
            count => buffer.truncate(count),
        }
        let whole = buffer.freeze();
        let middle = whole.len().div_ceil(2);
        let mut pieces = vec![whole.slice(0..middle)];
        if middle < whole.len() {
            pieces.push(whole.slice(middle..whole.len()));
        }
        socket.send(&pieces).await?;
    }
}

#[test]
fn a_socket_returns_every_byte_in_order() {
    // Scenario: a client sends 3 MiB over a Unix socket while it reads what comes back.
    each_driver(|runtime| {
        let folder = folder();
        let path = folder.path().join("socket");
        let handle = runtime.handle();
        let listener = Listener::bind_unix(&handle, &path).unwrap();
        let client =
            std::thread::Builder::new().spawn(move || talk(UnixStream::connect(path).unwrap())).unwrap();
        let seams = runtime.seams();
        let arena = seams.data.clone();
        let family = runtime.run(async move {
            let socket = listener.accept().await.unwrap();
            let family = socket.family();
            assert_eq!(echo(socket, seams).await, Ok(()));
            family
        });
        client.join().unwrap();
        assert_eq!((family, arena.lent_count()), (Family::Unix, 0));
    });
}

fn talk(mut stream: UnixStream) {
    let sent: Vec<u8> = (0..3u32 << 20).map(|index| u8::try_from(index * 7 % 253).unwrap()).collect();
    let (mut writer, copy) = (stream.try_clone().unwrap(), sent.clone());
    let feeder = std::thread::Builder::new().spawn(move || {
        writer.write_all(&copy).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    feeder.unwrap().join().unwrap();
    assert!(sent == received, "{} bytes came back of {}", received.len(), sent.len());
}

#[test]
fn tcp_carries_more_pieces_than_one_send_takes() {
    each_driver(|runtime| {
        let handle = runtime.handle();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Listener::from_tcp(&handle, listener);
        let client = std::thread::Builder::new().spawn(move || {
            let mut received = Vec::new();
            std::net::TcpStream::connect(address).unwrap().read_to_end(&mut received).unwrap();
            received
        });
        let arena = runtime.seams().data;
        runtime.run(async move {
            let socket = listener.accept().await.unwrap();
            let pieces: Vec<_> = (0..50).map(|byte| filled(&arena, 4096, byte)).collect();
            assert_eq!(socket.send(&pieces).await, Ok(()));
        });
        let received = client.unwrap().join().unwrap();
        assert_eq!(received.len(), 50 * 4096);
        assert!(received.chunks(4096).zip(0..).all(|(chunk, byte)| chunk.iter().all(|b| *b == byte)));
    });
}

#[test]
fn a_receive_that_is_dropped_gives_its_buffer_back_and_blocks_nobody() {
    // Scenario: a receive and an accept wait for a client that never comes, and are dropped. Their memory returns, and
    // a later client is accepted and heard.
    each_driver(|runtime| {
        let folder = folder();
        let path = folder.path().join("socket");
        let handle = runtime.handle();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let listener = Listener::bind_unix(&handle, &path).unwrap();
        let seams = runtime.seams();
        runtime.run(async move {
            let socket = Socket::from_unix(&handle, ours);
            let soon = seams.clock.now() + Duration::from_millis(5);
            let waiting = socket.receive(seams.data.try_take(4096).unwrap());
            assert!(within(seams.clock.as_ref(), soon, waiting).await.is_none());
            assert!(within(seams.clock.as_ref(), soon, listener.accept()).await.is_none());
            while socket.outstanding_count() > 0 {
                sleep(seams.clock.as_ref(), Duration::from_millis(1)).await;
            }
            assert_eq!(seams.data.lent_count(), 0);
            theirs.write_all(b"heard").unwrap();
            drop(theirs);
            let mut buffer = seams.data.try_take(4096).unwrap();
            buffer.fill(0);
            let (buffer, result) = socket.receive_all(buffer).await;
            assert_eq!((result, &buffer[..5]), (Ok(5), &b"heard"[..]));
            let client = UnixStream::connect(path).unwrap();
            assert!(listener.accept().await.is_ok());
            drop(client);
        });
    });
}

#[test]
fn shutdown_ends_a_receive_and_a_broken_stream_is_reported() {
    each_driver(|runtime| {
        let handle = runtime.handle();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let seams = runtime.seams();
        runtime.run(async move {
            let socket = Socket::from_unix(&handle, ours);
            let waiting = socket.receive(seams.data.try_take(4096).unwrap());
            socket.shutdown(Shutdown::Read);
            assert_eq!(waiting.await.1, Ok(0));
            drop(theirs);
            let piece = filled(&seams.data, 4096, 1);
            assert_eq!(socket.send(&[piece]).await, Err(SocketError::Closed));
        });
    });
}

#[test]
fn a_runtime_ends_at_once_while_sockets_wait() {
    each_driver(|runtime_of_choice| {
        let driver = match runtime_of_choice.handle().driver_name() {
            "threads" => DriverChoice::Threads,
            _ => DriverChoice::Uring,
        };
        let Some(runtime) = runtime(driver) else { return };
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let seams = runtime.seams();
        let socket = Socket::from_unix(&runtime.handle(), ours);
        let into = seams.data.try_take(4096).unwrap();
        let kept = socket.receive(into);
        let into = seams.data.try_take(4096).unwrap();
        seams.spawner.spawn("waits", Box::pin(async move { drop(socket.receive(into).await) }));
        let clock = Rc::clone(&seams.clock);
        runtime.run(async move { sleep(clock.as_ref(), Duration::from_millis(5)).await });
        let began = seams.clock.now();
        drop(runtime);
        assert!(seams.clock.now().since(began) < Duration::from_secs(2));
        let (buffer, result) = Executor::new().block_on(kept).unwrap();
        assert_eq!((buffer.len(), result), (4096, Err(SocketError::Stopped)));
        drop(buffer);
        assert_eq!(seams.data.lent_count(), 0);
    });
}

#[test]
fn what_was_written_is_in_the_file() {
    // Scenario: a durable write, then the file read by other means: neither offset nor content is off.
    each_driver(|runtime| {
        let folder = folder();
        let path = disk_file(folder.path(), MIB);
        let device = open(&runtime.handle(), &path);
        let arena = runtime.seams().data;
        runtime.run(async move {
            let from = filled(&arena, 4096, 42);
            assert_eq!(write(device.as_ref(), TOKEN, 8192, from, Durability::Durable).await, Ok(()));
            assert_eq!(flush(device.as_ref(), TOKEN).await, Ok(()));
        });
        let bytes = std::fs::read(&path).unwrap();
        let expected = |index: usize| if (8192..12288).contains(&index) { 42 } else { 0 };
        assert!(bytes.iter().enumerate().all(|(index, byte)| *byte == expected(index)));
    });
}

#[test]
fn a_receive_into_a_part_touches_no_other_byte() {
    // Scenario: a client sends 8 bytes, then 8 more; a receive of at least 10 into the middle of a buffer.
    each_driver(|runtime| {
        let handle = runtime.handle();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let seams = runtime.seams();
        runtime.run(async move {
            let socket = Socket::from_unix(&handle, ours);
            let mut buffer = seams.data.try_take(64).unwrap();
            buffer.fill(1);
            theirs.write_all(&[2; 8]).unwrap();
            let waiting = socket.receive_part(buffer, 16..48, 10);
            sleep(seams.clock.as_ref(), Duration::from_millis(5)).await;
            theirs.write_all(&[3; 8]).unwrap();
            let (buffer, result) = waiting.await;
            assert_eq!(result, Ok(16));
            let expected: Vec<u8> = [[1; 16].as_slice(), &[2; 8], &[3; 8], &[1; 32]].concat();
            assert_eq!(*buffer, *expected);
        });
    });
}
