//! The free room of a mounted file system, and its trim, when what was freed is free.

use std::fs::File;

use dolmen_files::FilesError;
use dolmen_mutation::mutation;

/// Equal looks at the free room that end a wait, looks at most, and the time between two.
const EQUAL_LOOKS: u32 = 3;
const LOOKS_MAX: u32 = 10;
const LOOK: std::time::Duration = std::time::Duration::from_millis(100);

/// Returns the free bytes of a file system, when what is in memory is written.
pub(crate) fn free_bytes(root: &File) -> Result<u64, FilesError> {
    rustix::fs::syncfs(root)
        .map_err(|error| FilesError { what: "write what is in memory", source: error.into() })?;
    Ok(dolmen_files::volume::usage(root)?.free)
}

/// Waits until the file system has freed what files without a name held, a second at most; returns its free bytes.
///
/// XFS frees such blocks after the last close has returned, and `syncfs` does not wait for that. Until then they count as used
/// and as shared. A look at the free bytes makes it begin.
pub(crate) fn free_at_rest(root: &File) -> Result<u64, FilesError> {
    let (mut free, mut equal) = (0, 0);
    for _ in 0..LOOKS_MAX {
        let now = dolmen_files::volume::usage(root)?.free;
        equal = if now == free { equal + 1 } else { 0 };
        free = now;
        if equal == EQUAL_LOOKS {
            break;
        }
        std::thread::park_timeout(LOOK);
    }
    free_bytes(root)
}

/// Trims when the file system has freed what packs and files left, and has it in its log: XFS passes over the rest. Returns the
/// bytes that were discarded.
pub(crate) fn trim_at_rest(root: &File, minimum: u64) -> Result<u64, FilesError> {
    trim_of(&mut || free_at_rest(root), &mut || dolmen_files::volume::trim(root, 0, u64::MAX, minimum))
}

/// Trims by `trim` when the free bytes that `look` finds stay the same.
///
/// A pool without room refuses what is in memory. The trim makes that room, so a second one follows what can be written then.
fn trim_of(
    look: &mut dyn FnMut() -> Result<u64, FilesError>,
    trim: &mut dyn FnMut() -> Result<u64, FilesError>,
) -> Result<u64, FilesError> {
    let room = settles(look)?;
    let discarded = trim()?;
    if room == Room::Enough {
        return Ok(discarded);
    }
    settles(look)?;
    Ok(discarded.max(trim()?))
}

/// Whether the pool had room for what was in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Enough,
    Short,
}

/// Waits until the free bytes of a file system stay the same, with what is in memory written where there is room.
fn settles(look: &mut dyn FnMut() -> Result<u64, FilesError>) -> Result<Room, FilesError> {
    let mut free = None;
    for _ in 0..LOOKS_MAX {
        let now = match look() {
            Ok(now) => Some(now),
            Err(error) if error.is_full() && !mutation!(TrimNeedsRoom) => return Ok(Room::Short),
            Err(error) => return Err(error),
        };
        if now == free {
            break;
        }
        free = now;
    }
    Ok(Room::Enough)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// A file system whose memory cannot be written before a trim, if its pool is full.
    struct Model {
        is_full: Cell<bool>,
        steps: RefCell<Vec<&'static str>>,
    }

    impl Model {
        fn of(is_full: bool) -> Self {
            Self { is_full: Cell::new(is_full), steps: RefCell::default() }
        }

        fn trimmed(&self) -> Result<u64, FilesError> {
            let look = &mut || {
                self.steps.borrow_mut().push("look");
                match self.is_full.get() {
                    true => Err(FilesError {
                        what: "write what is in memory",
                        source: rustix::io::Errno::NOSPC.into(),
                    }),
                    false => Ok(7),
                }
            };
            let trim = &mut || {
                self.steps.borrow_mut().push("trim");
                let was_full = self.is_full.replace(false);
                Ok(if was_full { 5 } else { 3 })
            };
            trim_of(look, trim)
        }
    }

    /// Scenario: a pool with room, and one whose room ends before what is in memory is written. The second is trimmed before and
    /// after that is written, and is not refused the trim that would make its room.
    #[test]
    fn a_full_pool_is_trimmed_before_what_is_in_memory_is_written() {
        let roomy = Model::of(false);
        assert_eq!(roomy.trimmed().unwrap(), 3);
        assert_eq!(*roomy.steps.borrow(), ["look", "look", "trim"]);
        let full = Model::of(true);
        assert_eq!(full.trimmed().expect("a full pool refused the trim that makes room"), 5);
        assert_eq!(*full.steps.borrow(), ["look", "trim", "look", "look", "trim"]);
    }
}
