//! One place for `ioctl`: requests with a structure that the kernel reads and fills.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Direction bit of a request whose structure the kernel reads.
const READS: u32 = 1;
/// Direction bit of a request whose structure the kernel fills.
const FILLS: u32 = 2;

/// A request of `ioctl` with a structure of a fixed length; what follows the structure is counted within it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request(u32);

impl Request {
    /// Returns a request whose structure of `length` bytes the kernel reads.
    pub(crate) const fn reads(group: u8, number: u8, length: u32) -> Self {
        Self::new(READS, group, number, length)
    }

    /// Returns a request whose structure the kernel fills.
    pub(crate) const fn fills(group: u8, number: u8, length: u32) -> Self {
        Self::new(FILLS, group, number, length)
    }

    /// Returns a request whose structure the kernel reads and fills.
    pub(crate) const fn both(group: u8, number: u8, length: u32) -> Self {
        Self::new(READS | FILLS, group, number, length)
    }

    /// Returns a request without a structure.
    pub(crate) const fn plain(group: u8, number: u8) -> Self {
        Self::new(0, group, number, 0)
    }

    const fn new(direction: u32, group: u8, number: u8, length: u32) -> Self {
        Self(direction << 30 | length << 16 | (group as u32) << 8 | number as u32)
    }

    /// Returns the number of the request, as headers of the kernel have it.
    #[cfg(test)]
    pub(crate) const fn number(self) -> u32 {
        self.0
    }
}

/// Sends a request with a structure of plain numbers that is as long as the request says, or longer where its head counts what
/// follows. Returns what the kernel returned.
pub(crate) fn call<T: FromBytes + IntoBytes + Immutable + ?Sized>(
    file: impl AsFd,
    request: Request,
    argument: &mut T,
) -> io::Result<i32> {
    debug_assert!(argument.as_bytes().len() >= (request.0 >> 16 & 0x3fff) as usize);
    let pointer = argument.as_mut_bytes().as_mut_ptr();
    // SAFETY: the pointer is to as many bytes as the request, or the count in its head, tells the kernel; any bytes are a value
    // of `T`, and the borrow lives for the call.
    let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::c_ulong::from(request.0), pointer) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Sends a request whose argument is a number. Returns what the kernel returned.
pub(crate) fn call_with(file: impl AsFd, request: Request, argument: u32) -> io::Result<i32> {
    // SAFETY: such a request takes no pointer, so the kernel reads and fills no memory of this process.
    let result = unsafe { libc::ioctl(file.as_fd().as_raw_fd(), libc::c_ulong::from(request.0), argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_numbers_of_the_kernel() {
        // As linux/fs.h, linux/fiemap.h, linux/fsmap.h and xfs_fs.h give them.
        assert_eq!(Request::both(0x94, 54, 24).number(), 0xc018_9436);
        assert_eq!(Request::both(0x94, 27, 1024).number(), 0xc400_941b);
        assert_eq!(Request::plain(0x94, 28).number(), 0x941c);
        assert_eq!(Request::both(0x94, 32, 1024).number(), 0xc400_9420);
        assert_eq!(Request::reads(0x94, 33, 4).number(), 0x4004_9421);
        assert_eq!(Request::fills(0x94, 34, 1024).number(), 0x8400_9422);
        assert_eq!(Request::both(0x94, 17, 112).number(), 0xc070_9411);
        assert_eq!(Request::reads(0x94, 13, 32).number(), 0x4020_940d);
        assert_eq!(Request::both(b'f', 11, 32).number(), 0xc020_660b);
        assert_eq!(Request::both(b'X', 121, 24).number(), 0xc018_5879);
        assert_eq!(Request::both(b'X', 59, 192).number(), 0xc0c0_583b);
        assert_eq!(Request::fills(b'X', 126, 256).number(), 0x8100_587e);
        assert_eq!(Request::fills(b'X', 127, 64).number(), 0x8040_587f);
    }
}
