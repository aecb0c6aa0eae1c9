//! Disks, partitions and files as [`BlockDevice`].

use std::cell::Cell;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{
    Action, BlockDevice, Command, DeviceError, Durability, Geometry, IoCounters, Submission,
};
use dolmen_units::{Bytes, Epoch};

use crate::geometry::{Kind, block_length, length};
use crate::open::{OpenError, OpenOptions, open};
use crate::path_name::name_of;
use crate::reactor::OpenFile;
use crate::runtime::Handle;
use crate::work::{RangeMethod, Work};

/// How long a command may take before it is answered with [`DeviceError::TimedOut`], unless the options say otherwise:
/// the kernel itself gives a disk this long before it resets it.
pub const COMMAND_LIMIT: Duration = Duration::from_secs(30);

/// Whether commands that change anything are passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    ReadOnly,
    ReadWrite,
}

/// A disk, partition or file.
///
/// The lock on it (see [`OpenOptions`]) lives as long as the kernel holds a command for it, even when this object and
/// the process are gone. So whoever gets the lock next knows that no write of the last owner can still arrive.
pub struct LinuxDevice {
    file: Rc<OpenFile>,
    path: PathBuf,
    kind: Kind,
    access: Access,
    geometry: Cell<Geometry>,
    limit: Cell<Duration>,
    fence: Cell<Epoch>,
}

/// What [`open`] has found out about a device.
pub(crate) struct Opened {
    pub(crate) file: Rc<OpenFile>,
    pub(crate) kind: Kind,
    pub(crate) access: Access,
    pub(crate) geometry: Geometry,
}

impl LinuxDevice {
    /// Opens and locks what is at `path`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(handle: &Handle, path: &Path, options: OpenOptions) -> Result<Rc<Self>, OpenError> {
        let opened = open(handle, path, options)?;
        Ok(Self::assemble(path, opened, options.command_limit))
    }

    pub(crate) fn assemble(path: &Path, opened: Opened, limit: Duration) -> Rc<Self> {
        let Opened { file, kind, access, geometry } = opened;
        let (path, geometry) = (path.to_path_buf(), Cell::new(geometry));
        let (limit, fence) = (Cell::new(limit), Cell::default());
        Rc::new(Self { file, path, kind, access, geometry, limit, fence })
    }

    /// Changes how long later commands may take.
    pub fn set_command_limit(&self, limit: Duration) {
        self.limit.set(limit);
    }

    /// Commands that the kernel still holds, among them those that were answered with [`DeviceError::TimedOut`] and may
    /// yet take effect.
    #[must_use]
    pub fn outstanding_count(&self) -> usize {
        self.file.outstanding_count()
    }

    /// The path that it was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn verdict(&self, command: &Command) -> Result<(), DeviceError> {
        if command.token < self.fence.get() {
            return Err(DeviceError::Fenced);
        }
        let changes = match &command.action {
            Action::Read { .. } | Action::Flush => false,
            Action::Write { .. } | Action::Discard { .. } | Action::WriteZeroes { .. } => true,
        };
        if changes && self.access == Access::ReadOnly {
            return Err(DeviceError::ReadOnly);
        }
        if matches!(command.action, Action::Discard { .. })
            && self.geometry.get().discard_granularity_bytes.is_none()
        {
            return Err(DeviceError::Unsupported);
        }
        if promises_durability(&command.action) && self.is_cut_short() {
            return Err(DeviceError::Detached);
        }
        self.geometry.get().check_action(&command.action)
    }

    /// Somebody has cut the file that is this disk. Later writes would make it longer again, with holes where content
    /// was, and nothing but the checksum of each block would ever notice.
    fn is_cut_short(&self) -> bool {
        self.kind == Kind::File
            && length(self.file.fd()).is_some_and(|found| found < self.geometry.get().capacity)
    }

    fn work(&self, action: Action) -> Work {
        match action {
            Action::Read { at, into } => Work::Read { at, into },
            Action::Write { at, from, durability } => Work::Write { at, from, durability },
            Action::Flush => Work::Flush,
            Action::Discard { at, length } => {
                let method = match self.kind {
                    Kind::File => RangeMethod::Punch,
                    Kind::Block(_) => RangeMethod::Discard,
                };
                Work::Range { at, length, method }
            }
            Action::WriteZeroes { at, length } => Work::Range { at, length, method: RangeMethod::Zero },
        }
    }
}

/// Whether the answer to it says that something is safe. These are few enough to ask the system for the file before.
fn promises_durability(action: &Action) -> bool {
    match action {
        Action::Flush => true,
        Action::Write { durability, .. } => *durability == Durability::Durable,
        Action::Read { .. } | Action::Discard { .. } | Action::WriteZeroes { .. } => false,
    }
}

impl BlockDevice for LinuxDevice {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    fn size_now(&self) -> Bytes {
        let geometry = self.geometry.get();
        let found = match self.kind {
            Kind::File => length(self.file.fd()),
            Kind::Block(_) => block_length(self.file.fd()),
        };
        let unit = u64::from(geometry.logical_block_bytes);
        found.map_or(geometry.capacity, |found| found.align_down(unit))
    }

    fn extend(&self) {
        let mut geometry = self.geometry.get();
        geometry.capacity = geometry.capacity.max(self.size_now());
        self.geometry.set(geometry);
    }

    fn name(&self) -> String {
        name_of(&self.path)
    }

    fn submit(&self, command: Command) -> Submission {
        IoCounters::note(self.file.counters(), &command.action);
        let verdict = self.verdict(&command);
        let limit = self.limit.get();
        let limit = command.within.map_or(limit, |within| within.min(limit));
        let work = self.work(command.action);
        match verdict {
            Ok(()) => self.file.reactor().command(&self.file, work, limit),
            Err(error) => {
                let mut counters = self.file.counters().get();
                counters.errors += 1;
                self.file.counters().set(counters);
                self.file.reactor().refuse(error, work)
            }
        }
    }

    fn fence(&self, epoch: Epoch) {
        self.fence.set(self.fence.get().max(epoch));
    }

    fn counters(&self) -> IoCounters {
        self.file.counters().get()
    }
}

impl fmt::Debug for LinuxDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinuxDevice({}, {})", self.path.display(), self.geometry.get().capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DriverChoice, Runtime, RuntimeConfig};
    use dolmen_block_io::{Payload, Zoning, read, sleep};
    use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, mkfifoat};
    use std::io::Write;
    use std::os::fd::OwnedFd;

    fn runtime(close_limit: Duration) -> Runtime {
        let driver = DriverChoice::Automatic;
        Runtime::new(RuntimeConfig { driver, close_limit, ..RuntimeConfig::MODEST }).unwrap()
    }

    /// A disk that answers a read only when the test writes to the other end: a pipe.
    fn hanging_disk(handle: &Handle, limit: Duration) -> (Rc<LinuxDevice>, std::io::PipeWriter) {
        let (reader, writer) = std::io::pipe().unwrap();
        (disk_on(handle, reader.into(), limit), writer)
    }

    fn disk_on(handle: &Handle, fd: OwnedFd, limit: Duration) -> Rc<LinuxDevice> {
        let geometry = Geometry {
            capacity: Bytes(1 << 20),
            logical_block_bytes: 512,
            physical_block_bytes: 512,
            optimal_io_bytes: 0,
            atomic_write_bytes: 512,
            volatile_cache: true,
            fua: false,
            discard_granularity_bytes: None,
            thin: true,
            rotational: false,
            zoning: Zoning::None,
            shareable: false,
        };
        let file = OpenFile::new(&handle.reactor, fd, 512, None, None);
        let opened = Opened { file, kind: Kind::File, access: Access::ReadWrite, geometry };
        LinuxDevice::assemble(Path::new("hanging"), opened, limit)
    }

    #[test]
    fn a_late_answer_touches_only_memory_that_the_driver_kept() {
        // Scenario: a disk hangs past the limit, the caller gets a time-out and fills the buffer it got back; then the
        // disk answers. The caller's bytes stay as they were, and the kernel's buffer returns to the arena.
        let runtime = runtime(Duration::from_secs(5));
        if runtime.handle().driver_name() != "io_uring" {
            println!("skipped: a pipe can stand for a hanging disk only with io_uring");
            return;
        }
        let handle = runtime.handle();
        runtime.run(async move {
            let seams = handle.seams();
            let (disk, mut writer) = hanging_disk(&handle, Duration::from_millis(30));
            let began = seams.clock.now();
            let buffer = seams.data.try_take(4096).unwrap();
            let (mut buffer, result) = read(disk.as_ref(), Epoch(1), 0, buffer).await;
            assert_eq!(result, Err(DeviceError::TimedOut));
            let waited = seams.clock.now().since(began);
            assert!(waited >= Duration::from_millis(30) && waited < Duration::from_secs(5), "{waited:?}");
            assert_eq!((disk.outstanding_count(), seams.data.lent_count()), (1, 2));
            buffer.fill(7);
            writer.write_all(&[9; 4096]).unwrap();
            while disk.outstanding_count() > 0 {
                sleep(seams.clock.as_ref(), Duration::from_millis(1)).await;
            }
            assert!(buffer.iter().all(|byte| *byte == 7));
            assert_eq!((seams.data.lent_count(), disk.counters().errors), (1, 1));
        });
    }

    #[test]
    fn memory_that_the_kernel_never_returns_is_not_freed() {
        // Scenario: the runtime ends while a disk hangs. It ends within its limit, and the buffer stays lent for ever.
        let runtime = runtime(Duration::from_millis(50));
        if runtime.handle().driver_name() != "io_uring" {
            println!("skipped: a pipe can stand for a hanging disk only with io_uring");
            return;
        }
        let arena = runtime.seams().data;
        let (disk, mut writer) = hanging_disk(&runtime.handle(), COMMAND_LIMIT);
        let action = Action::Read { at: 0, into: arena.try_take(4096).unwrap() };
        drop(disk.submit(Command { token: Epoch(1), within: None, action }));
        let seams = runtime.seams();
        runtime.run(async move { sleep(seams.clock.as_ref(), Duration::from_millis(5)).await });
        drop((disk, runtime));
        assert_eq!(arena.lent_count(), 1);
        writer.write_all(&[9; 4096]).unwrap();
        assert_eq!(arena.lent_count(), 1);
    }

    #[test]
    fn the_lock_is_held_until_the_kernel_has_answered_the_last_command() {
        // Scenario: an owner drops its disk while a command hangs. Nobody else gets the lock before the disk answers.
        let runtime = runtime(Duration::from_secs(5));
        if runtime.handle().driver_name() != "io_uring" {
            println!("skipped: a pipe can stand for a hanging disk only with io_uring");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        mkfifoat(CWD, &path, Mode::RUSR | Mode::WUSR).unwrap();
        let open = || rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let (ours, theirs) = (open(), open());
        flock(&ours, FlockOperation::NonBlockingLockExclusive).unwrap();
        let disk = disk_on(&runtime.handle(), ours, COMMAND_LIMIT);
        let seams = runtime.seams();
        runtime.run(async move {
            let action = Action::Read { at: 0, into: seams.data.try_take(512).unwrap() };
            drop(disk.submit(Command { token: Epoch(1), within: None, action }));
            drop(disk);
            sleep(seams.clock.as_ref(), Duration::from_millis(5)).await;
            assert!(flock(&theirs, FlockOperation::NonBlockingLockExclusive).is_err());
            assert_eq!(rustix::io::write(&theirs, &[1; 512]), Ok(512));
            while seams.data.lent_count() > 0 {
                sleep(seams.clock.as_ref(), Duration::from_millis(1)).await;
            }
            assert_eq!(flock(&theirs, FlockOperation::NonBlockingLockExclusive), Ok(()));
        });
    }

    #[test]
    fn a_disk_whose_runtime_has_ended_is_detached() {
        let runtime = runtime(Duration::from_millis(50));
        let (disk, _writer) = hanging_disk(&runtime.handle(), COMMAND_LIMIT);
        let arena = runtime.seams().data;
        drop(runtime);
        let action = Action::Read { at: 0, into: arena.try_take(4096).unwrap() };
        let submission = disk.submit(Command { token: Epoch(1), within: None, action });
        let outcome = dolmen_block_io::Executor::new().block_on(submission).unwrap();
        assert_eq!(outcome.result, Err(DeviceError::Detached));
        assert!(matches!(outcome.payload, Payload::Buffer(_)));
    }
}
