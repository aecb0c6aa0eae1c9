//! A mounted file system takes all of its device into use.

use std::ffi::OsStr;

use dolmen_volume::file_system::FileSystem;

use crate::mount::require_mounted;
use crate::protocol::{Failure, Outcome, Volume};
use crate::tool;

/// Lets a mounted file system use all of its device; one that does so already stays as it is.
pub(crate) fn grow(volume: &Volume) -> Result<Outcome, Failure> {
    require_mounted(volume)?;
    let (at, device) = (OsStr::new(volume.record.mount_point.as_str()), volume.device.as_os_str());
    let arguments: &[&OsStr] = match volume.record.file_system {
        FileSystem::Xfs => &["-d".as_ref(), at],
        FileSystem::Btrfs => &["filesystem".as_ref(), "resize".as_ref(), "max".as_ref(), at],
        FileSystem::Ext4 => &[device],
    };
    let program = match volume.record.file_system {
        FileSystem::Xfs => "xfs_growfs",
        FileSystem::Btrfs => "btrfs",
        FileSystem::Ext4 => "resize2fs",
    };
    tool::succeed(program, arguments)?;
    Ok(Outcome::Done)
}
