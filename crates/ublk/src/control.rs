//! Commands to `/dev/ublk-control`, each over a ring of its own: they are rare, and nothing is left behind.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::wire::{ControlCommand, DeviceInfo, Parameters, control, feature};

const CONTROL: &str = "/dev/ublk-control";
const MODULE: &str = "ublk_drv";
/// Where systems keep the program that loads modules; nothing else is searched.
const MODPROBE: [&str; 3] = ["/usr/sbin/modprobe", "/sbin/modprobe", "/usr/bin/modprobe"];

/// Why spaces cannot be attached as ublk devices on this host, now.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The kernel has no ublk, or its module could not be loaded.
    #[error("this kernel has no ublk ({CONTROL} is not there, and {module})")]
    Absent {
        /// What came of loading the module.
        module: String,
    },
    /// Only root may.
    #[error("opening {CONTROL}: {source}")]
    NotPermitted {
        /// What the system said.
        source: io::Error,
    },
    /// The kernel does not grant io_uring, or not with commands in it.
    #[error("ublk needs io_uring, which this kernel refuses: {source}")]
    NoRing {
        /// What the system said.
        source: io::Error,
    },
    /// The kernel's ublk is too old.
    #[error("this kernel's ublk is too old: it lacks {missing}")]
    Lacks {
        /// What it lacks.
        missing: String,
    },
    /// It did not answer.
    #[error("asking {CONTROL} what it can: {source}")]
    Failed {
        /// What the system said.
        source: io::Error,
    },
}

/// A ring whose entries have room for the driver's commands.
type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// The driver.
#[derive(Debug)]
pub(crate) struct Control {
    file: OwnedFd,
    features: u64,
}

/// A device's number: N of `/dev/ublkbN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) u32);

impl Number {
    pub(crate) fn device(self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkb{}", self.0))
    }

    pub(crate) fn channel(self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkc{}", self.0))
    }

    pub(crate) fn is_taken(self) -> bool {
        self.channel().exists() || Path::new("/sys/class/ublk-char").join(format!("ublkc{}", self.0)).exists()
    }

    fn sysfs(self, attribute: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/ublkb{}/{attribute}", self.0))
    }

    pub(crate) fn set(self, attribute: &str, value: u64) {
        if let Err(error) = fs::write(self.sysfs(attribute), value.to_string()) {
            tracing::debug!(device = self.0, attribute, value, %error, "setting up a ublk device: left at its default");
        }
    }
}

fn refused(error: Errno) -> Unusable {
    match error {
        Errno::PERM | Errno::ACCESS => Unusable::NotPermitted { source: error.into() },
        Errno::NOENT | Errno::NODEV | Errno::NXIO => {
            Unusable::Absent { module: format!("the module {MODULE} did not make it") }
        }
        _ => Unusable::Failed { source: error.into() },
    }
}

fn open() -> Result<OwnedFd, Errno> {
    rustix::fs::open(CONTROL, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
}

/// Has the module loaded, if this process may; what came of it, in words.
fn load_module() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err(format!("only root loads the module {MODULE}"));
    }
    let Some(program) = MODPROBE.iter().find(|path| Path::new(path).exists()) else {
        return Err(format!("there is no modprobe to load the module {MODULE}"));
    };
    let mut command = Command::new(program);
    command.args(["-q", MODULE]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => {
            tracing::info!(module = MODULE, "loaded the module, to attach spaces with it");
            Ok(())
        }
        Ok(_) => Err(format!("the module {MODULE} cannot be loaded")),
        Err(error) => Err(format!("{program} did not start: {error}")),
    }
}

impl Control {
    /// The driver, loaded if it was not and may be.
    pub(crate) fn open() -> Result<Self, Unusable> {
        let file = match open() {
            Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => {
                load_module().map_err(|module| Unusable::Absent { module })?;
                open()
            }
            other => other,
        };
        Self::with_file(file.map_err(refused)?)
    }

    /// The driver, if it is there: nothing is loaded for it.
    pub(crate) fn open_loaded() -> Result<Self, Unusable> {
        Self::with_file(open().map_err(refused)?)
    }

    fn with_file(file: OwnedFd) -> Result<Self, Unusable> {
        let ring = Ring::builder().build(1).map_err(|source| Unusable::NoRing { source })?;
        let mut driver = Self { file, features: 0 };
        let mut features = 0u64;
        let asked = ControlCommand { device: u32::MAX, queue: u16::MAX, ..ControlCommand::default() };
        match driver.run(ring, control::GET_FEATURES, asked.with(&mut features)) {
            Ok(_) => {}
            // Before the numbering of ioctls (6.4) and before this command (6.5).
            Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS) => {}
            Err(error) => return Err(Unusable::Failed { source: error.into() }),
        }
        driver.features = features;
        let missing = feature::NEEDED & !features;
        if missing != 0 {
            return Err(Unusable::Lacks { missing: names_of(missing) });
        }
        Ok(driver)
    }

    /// Runs one command to its end. What the command points to is borrowed by it until then.
    fn run(&self, mut ring: Ring, number: u32, command: Pointing<'_>) -> Result<i32, Errno> {
        let mut bytes = [0u8; 80];
        bytes.iter_mut().zip(command.command.as_bytes()).for_each(|(to, from)| *to = *from);
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), number).cmd(bytes).build();
        // SAFETY: what the command points to is exclusively borrowed by `command`, which lives until this returns, and
        // this does not return before the kernel is done with it.
        let pushed = unsafe { ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "an empty ring has room for one command");
        loop {
            match ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                // Nothing was submitted: the kernel has seen neither the command nor what it points to.
                Err(error) if !ring.submission().is_empty() => {
                    return Err(Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)));
                }
                Err(_) => {}
            }
            if let Some(done) = ring.completion().next() {
                let result = done.result();
                return if result < 0 { Err(Errno::from_raw_os_error(-result)) } else { Ok(result) };
            }
        }
    }

    fn command(&self, number: u32, command: Pointing<'_>) -> Result<i32, Errno> {
        let ring = Ring::builder().build(1);
        let ring =
            ring.map_err(|error| Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))?;
        self.run(ring, number, command)
    }

    fn on_device(&self, number: u32, device: Number, data: u64) -> Result<(), Errno> {
        let command = ControlCommand { data, ..ControlCommand::of(device) };
        self.command(number, Pointing::nowhere(command)).map(|_| ())
    }

    /// Whether a device can learn that its space has another size.
    pub(crate) fn can_resize(&self) -> bool {
        self.features & feature::UPDATE_SIZE != 0
    }

    /// Whether the kernel looks for partitions without keeping whoever starts the device waiting for it.
    pub(crate) fn scans_apart(&self) -> bool {
        self.features & feature::NO_AUTO_PART_SCAN != 0
    }

    /// What the kernel knows of a device, `None` when there is none.
    pub(crate) fn info(&self, device: Number) -> Result<Option<DeviceInfo>, Errno> {
        let mut info = DeviceInfo::default();
        match self.command(control::GET_DEV_INFO, ControlCommand::of(device).with(&mut info)) {
            Ok(_) => Ok(Some(info)),
            Err(Errno::NODEV | Errno::NXIO) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a device that is dead yet; [`Errno::EXIST`] when the number is taken.
    pub(crate) fn add(&self, mut info: DeviceInfo) -> Result<(), Errno> {
        let command = ControlCommand { queue: u16::MAX, ..ControlCommand::of(Number(info.device)) };
        self.command(control::ADD_DEV, command.with(&mut info)).map(|_| ())
    }

    pub(crate) fn set_parameters(&self, device: Number, mut parameters: Parameters) -> Result<(), Errno> {
        self.command(control::SET_PARAMS, ControlCommand::of(device).with(&mut parameters)).map(|_| ())
    }

    /// Shows the device, once its queue waits for requests. Blocks until it does.
    pub(crate) fn start(&self, device: Number) -> Result<(), Errno> {
        self.on_device(control::START_DEV, device, pid())
    }

    pub(crate) fn stop(&self, device: Number) -> Result<(), Errno> {
        self.on_device(control::STOP_DEV, device, 0)
    }

    /// Deletes a device that is dead. Its number is free when nobody has the device or its channel open any more, which
    /// is not waited for; kernels before 6.7 wait.
    pub(crate) fn delete(&self, device: Number) -> Result<(), Errno> {
        let deleted = match self.on_device(control::DEL_DEV_ASYNC, device, 0) {
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL) => {
                self.on_device(control::DEL_DEV, device, 0)
            }
            other => other,
        };
        match deleted {
            Err(Errno::NODEV | Errno::NXIO) => Ok(()),
            other => other,
        }
    }

    pub(crate) fn begin_recovery(&self, device: Number) -> Result<(), Errno> {
        self.on_device(control::START_USER_RECOVERY, device, 0)
    }

    /// Lets requests flow again, once the queue waits for them. Blocks until it does.
    pub(crate) fn end_recovery(&self, device: Number) -> Result<(), Errno> {
        self.on_device(control::END_USER_RECOVERY, device, pid())
    }

    pub(crate) fn resize(&self, device: Number, sectors: u64) -> Result<(), Errno> {
        self.on_device(control::UPDATE_SIZE, device, sectors)
    }
}

fn pid() -> u64 {
    u64::from(std::process::id())
}

fn names_of(features: u64) -> String {
    let known = [
        (feature::USER_RECOVERY, "USER_RECOVERY (Linux 6.1)"),
        (feature::USER_RECOVERY_REISSUE, "USER_RECOVERY_REISSUE (6.1)"),
        (feature::CMD_IOCTL_ENCODE, "CMD_IOCTL_ENCODE (6.4)"),
        (feature::USER_COPY, "USER_COPY (6.5)"),
    ];
    let names = known.iter().filter(|(bit, _)| features & bit != 0).map(|(_, name)| *name);
    names.collect::<Vec<_>>().join(", ")
}

impl ControlCommand {
    fn of(device: Number) -> Self {
        Self { device: device.0, queue: u16::MAX, ..Self::default() }
    }

    /// The command with what the kernel reads or writes beside it.
    fn with<T: IntoBytes + FromBytes + Immutable>(mut self, extra: &mut T) -> Pointing<'_> {
        self.len = u16::try_from(size_of::<T>()).unwrap_or(0);
        self.address = (&raw mut *extra).expose_provenance() as u64;
        Pointing { command: self, _extra: std::marker::PhantomData }
    }
}

/// A command, and the hold on what it points to.
struct Pointing<'a> {
    command: ControlCommand,
    _extra: std::marker::PhantomData<&'a mut ()>,
}

impl Pointing<'_> {
    fn nowhere(command: ControlCommand) -> Self {
        Self { command, _extra: std::marker::PhantomData }
    }
}

/// The upper half of what the devices of every daemon carry: "DLMN".
pub(crate) const MARK_OF_OURS: u64 = 0x444c_4d4e;

/// Whether a block device shows a space that a daemon of Dolmen, this one or another, attached here as a ublk device.
/// Known also of those whose daemon is gone. The module is not loaded for it.
#[must_use]
pub fn is_attached_space(path: &Path) -> bool {
    let Some(number) = number_of(path) else { return false };
    // Where nobody can be asked, it counts as one: reading another's space may wait without end.
    let Ok(driver) = Control::open_loaded() else { return true };
    driver.info(number).is_ok_and(|info| info.is_some_and(|info| info.mark >> 32 == MARK_OF_OURS))
}

/// The number of a ublk device, or of the device that a partition is on.
pub(crate) fn number_of(path: &Path) -> Option<Number> {
    let path = fs::canonicalize(path).ok()?;
    if path.parent() != Some(Path::new("/dev")) {
        return None;
    }
    // A partition's name begins with its disk's.
    let digits = path.file_name()?.to_str()?.strip_prefix("ublkb")?.split('p').next()?;
    digits.parse().ok().map(Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_old_driver_lacks_is_named() {
        assert_eq!(names_of(feature::USER_COPY), "USER_COPY (6.5)");
        assert_eq!(
            names_of(feature::NEEDED),
            "USER_RECOVERY (Linux 6.1), USER_RECOVERY_REISSUE (6.1), CMD_IOCTL_ENCODE (6.4), USER_COPY (6.5)"
        );
    }

    #[test]
    fn nothing_but_a_ublk_device_is_asked_about() {
        for path in ["/dev/null", "/dev/loop0", "/nowhere", "/dev/ublkbx", "/"] {
            assert!(!is_attached_space(Path::new(path)), "{path}");
        }
        // A file that has the name of a device.
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ublkb0");
        fs::write(&file, "").expect("a file");
        assert!(!is_attached_space(&file));
        assert_eq!(number_of(&file), None);
    }
}
