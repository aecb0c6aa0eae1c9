//! What a path leads to.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use dolmen_block_linux::path_of;

/// See [`identity`].
pub(crate) type Identity = (bool, u64, u64);

/// What tells one device from another: the number of a block device, the file system and inode of a file.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::FileTypeExt;
    let status = fs::metadata(path_of(path)).ok()?;
    let block = status.file_type().is_block_device();
    Some(if block { (true, status.rdev(), 0) } else { (false, status.dev(), status.ino()) })
}

/// Whether it is a file that nobody may write to, root included.
pub(crate) fn is_immutable(path: &Path) -> bool {
    let flags = fs::File::open(path_of(path)).ok().and_then(|file| rustix::fs::ioctl_getflags(&file).ok());
    flags.is_some_and(|flags| flags.contains(rustix::fs::IFlags::IMMUTABLE))
}
