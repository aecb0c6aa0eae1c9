//! What the system's error numbers mean for a disk.

use dolmen_block_io::DeviceError;

/// The meaning of an error number that a disk or the file system under it answered.
pub(crate) fn device_error(errno: i32) -> DeviceError {
    match errno {
        libc::ENOSPC | libc::EDQUOT => DeviceError::NoSpace,
        libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM | libc::ESHUTDOWN | libc::ESTALE | libc::ECANCELED => {
            DeviceError::Detached
        }
        libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADF => DeviceError::ReadOnly,
        libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => DeviceError::Unsupported,
        libc::ETIMEDOUT => DeviceError::TimedOut,
        libc::EINVAL => DeviceError::Misaligned,
        libc::EFBIG => DeviceError::OutOfRange,
        // EIO, ENODATA (a read that can never succeed), EILSEQ and EBADMSG (an integrity check of the block layer),
        // EREMOTEIO (a target that timed out), and whatever a driver makes up: the address failed, others may work.
        errno => DeviceError::Medium { errno },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_are_classified_by_what_the_engine_does() {
        assert_eq!(device_error(libc::ENOSPC), DeviceError::NoSpace);
        assert_eq!(device_error(libc::EIO), DeviceError::Medium { errno: libc::EIO });
        assert_eq!(device_error(libc::ENODATA), DeviceError::Medium { errno: libc::ENODATA });
        assert_eq!(device_error(libc::EILSEQ), DeviceError::Medium { errno: libc::EILSEQ });
        assert_eq!(device_error(libc::ENODEV), DeviceError::Detached);
        assert_eq!(device_error(libc::EROFS), DeviceError::ReadOnly);
        assert_eq!(device_error(libc::EOPNOTSUPP), DeviceError::Unsupported);
    }
}
