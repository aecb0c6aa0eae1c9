//! Disks that are read, and never written.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use dolmen_block_io::BlockDevice;
use dolmen_block_linux::{Handle, LinuxDevice, OpenError, OpenOptions};

/// Disks that were opened, and what whoever reads them has to know.
pub(crate) struct Disks {
    pub(crate) devices: Vec<Rc<dyn BlockDevice>>,
    pub(crate) warnings: Vec<String>,
}

/// Opens disks for reading. One that a daemon has open is read all the same: what is read of it at different moments may not
/// belong together, and checksums find some of that.
pub(crate) fn open_all(handle: &Handle, paths: &[PathBuf]) -> Result<Disks, OpenError> {
    let mut disks = Disks { devices: Vec::new(), warnings: Vec::new() };
    for path in paths {
        let device = open(handle, path, &mut disks.warnings)?;
        disks.devices.push(device);
    }
    Ok(disks)
}

fn open(handle: &Handle, path: &Path, warnings: &mut Vec<String>) -> Result<Rc<LinuxDevice>, OpenError> {
    let exclusive = OpenOptions { read_only: true, ..OpenOptions::default() };
    match LinuxDevice::open(handle, path, exclusive) {
        Err(error @ (OpenError::Locked { .. } | OpenError::InUse { .. })) => {
            warnings.push(format!(
                "{error}: it is read while it is in use, and what changes meanwhile may come out damaged; better end what uses it first"
            ));
            LinuxDevice::open(handle, path, OpenOptions { exclusive: false, ..exclusive })
        }
        opened => opened,
    }
}
