//! Paths of a request that name nothing on their volume.
//!
//! Invariant: a file system that hangs holds one thread, and no request: a look that does not end in time finds nothing missing,
//! and until it ends no other one begins.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use dolmen_block_io::{Seams, within};
use dolmen_block_linux::reply;
use dolmen_volume::mount_point::Folder;

/// Time that a look may take.
const LOOK_LIMIT: Duration = Duration::from_secs(5);
/// Stack of the thread that looks.
const STACK_BYTES: usize = 128 * 1024;

/// The thread that looks, as far as there is one.
#[derive(Debug, Default)]
pub(super) struct PathLooks {
    is_at_work: Arc<AtomicBool>,
}

/// Ends a look, also one that panics.
struct AtWork(Arc<AtomicBool>);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl PathLooks {
    /// Returns the paths that name nothing below a mount point, as far as the file system answers in time.
    pub(super) async fn missing(&self, seams: &Seams, mount_point: &Path, paths: &[Folder]) -> Vec<Folder> {
        if paths.is_empty() || self.is_at_work.swap(true, Ordering::AcqRel) {
            return Vec::new();
        }
        let at_work = AtWork(Arc::clone(&self.is_at_work));
        let (answer, awaited) = reply();
        let (mount_point, paths) = (mount_point.to_owned(), paths.to_vec());
        let looking = move || {
            let missing = paths.into_iter().filter(|path| is_missing(&mount_point.join(path.as_str())));
            answer.send(missing.collect::<Vec<_>>());
            drop(at_work);
        };
        let thread = thread::Builder::new().name("dolmen paths".to_owned()).stack_size(STACK_BYTES);
        if thread.spawn(looking).is_err() {
            return Vec::new();
        }
        let limit = seams.clock.now() + LOOK_LIMIT;
        within(seams.clock.as_ref(), limit, awaited).await.and_then(Result::ok).unwrap_or_default()
    }
}

/// Returns `true` if the file system says that there is nothing; another failure is for the worker to name.
fn is_missing(path: &Path) -> bool {
    path.symlink_metadata()
        .is_err_and(|error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_at_a_path_and_a_path_below_a_file_are_missing() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
        let of = |path: &str| is_missing(&folder.path().join(path));
        assert_eq!(["", "file", "link", "none", "file/below"].map(of), [false, false, false, true, true]);
    }
}
