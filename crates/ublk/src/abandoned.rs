//! Devices of daemons that do not come back: known by what they carry, and taken away by hand.
//!
//! No record is asked: that of the daemon may be lost. A daemon that comes back after all finds its device gone, and
//! forgets it.

use std::path::{Path, PathBuf};

use dolmen_attach::{Holder, holders, unlink};
use rustix::io::Errno;

use crate::control::{Control, MARK_OF_OURS, Number, Unusable, number_of};
use crate::devices::DeviceError;
use crate::wire::{DeviceInfo, State};

/// Why a device is not taken away.
#[derive(Debug, thiserror::Error)]
pub enum ClearError {
    /// It is no ublk device, or there is none of that number.
    #[error("{} is no ublk device", path.display())]
    NoDevice {
        /// What was named.
        path: PathBuf,
    },
    /// It shows no space of Dolmen.
    #[error("{} shows no space that was attached here; it was left alone", device.display())]
    NotOurs {
        /// The device.
        device: PathBuf,
    },
    /// Somebody serves it.
    #[error("{} is served by process {pid}; it was left alone", device.display())]
    Served {
        /// The device.
        device: PathBuf,
        /// Who serves it.
        pid: i32,
    },
    /// The driver cannot be asked.
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// A step failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// A device of an attached space that nobody serves. Its requests wait.
#[derive(Debug)]
pub struct Abandoned {
    control: Control,
    number: Number,
    mark: u64,
    /// How it was named: perhaps by the link of its space.
    named: PathBuf,
}

impl Abandoned {
    /// Looks at a device, named by its path or a link to it. Nothing is changed, and nothing read from it.
    ///
    /// # Errors
    /// [`ClearError`], when it is not such a device.
    pub fn find(path: &Path) -> Result<Self, ClearError> {
        let number = number_of(path).ok_or_else(|| ClearError::NoDevice { path: path.to_owned() })?;
        let control = Control::open_loaded()?;
        let mark = check(&control, number)?.mark;
        Ok(Self { control, number, mark, named: path.to_owned() })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> PathBuf {
        self.number.device()
    }

    /// Who uses it, and whose requests will fail.
    #[must_use]
    pub fn holders(&self) -> Vec<Holder> {
        holders(&self.device())
    }

    /// Takes it away: what waits fails, and whoever uses it has a disk that was pulled. Content that was not written yet is
    /// lost. It is gone when the last of them has let go. The link that it was named by goes with it.
    ///
    /// # Errors
    /// [`ClearError`]. A device that is served again by now is left alone.
    pub fn clear(self) -> Result<(), ClearError> {
        let failed = |doing, error: Errno| DeviceError { doing, device: self.device(), source: error.into() };
        let now = check(&self.control, self.number)?;
        if now.mark != self.mark {
            return Err(ClearError::NotOurs { device: self.device() });
        }
        if now.state() != State::Dead {
            self.control.stop(self.number).map_err(|error| failed("stopping", error))?;
        }
        self.control.delete(self.number).map_err(|error| failed("deleting", error))?;
        unlink(&self.named, &self.device());
        Ok(())
    }
}

/// The device of that number, if it is ours and nobody serves it.
fn check(control: &Control, number: Number) -> Result<DeviceInfo, ClearError> {
    let device = || number.device();
    let info = control
        .info(number)
        .map_err(|error| DeviceError { doing: "looking at", device: device(), source: error.into() })?
        .ok_or_else(|| ClearError::NoDevice { path: device() })?;
    if info.mark >> 32 != MARK_OF_OURS {
        return Err(ClearError::NotOurs { device: device() });
    }
    match info.state() {
        State::Dead | State::Quiesced => Ok(info),
        State::Live | State::Other(_) => Err(ClearError::Served { device: device(), pid: info.server_pid }),
    }
}
