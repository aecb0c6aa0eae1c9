//! What the process does not take over from the daemon that starts it.

use rustix::fs::Mode;

/// Makes the process a usual one: the daemon asks the system for more, and its children inherit that.
///
/// Folders of mount points are for everybody to pass through. Tools may need much memory, which is not taken from others at any
/// price, and they may wait for write-back.
pub fn be_usual() {
    rustix::process::umask(Mode::from_raw_mode(0o022));
    // Without the capability the daemon had none of it either.
    let _ = rustix::process::configure_io_flusher_behavior(false);
    let _ = std::fs::write("/proc/self/oom_score_adj", "0");
}
