//! Load that a process causes.
#![allow(unsafe_code)]

use std::io;

/// `IOPRIO_WHO_PROCESS`: one thread.
const THREAD: libc::c_int = 1;
/// Class of I/O that is served when no other class wants the device.
const IDLE: libc::c_int = 3 << 13;

/// Gives the I/O of this thread, and of those that it starts, the idle class. Schedulers without classes ignore it.
///
/// # Errors
/// The kernel's answer.
pub fn set_idle_io() -> io::Result<()> {
    // SAFETY: the call takes numbers alone; 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_set, THREAD, 0 as libc::c_int, IDLE) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
