//! Content of one file: shared with its source, or copied without its holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::FilesError;
use crate::call::{Request, call};
use crate::share::clone_range;

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;
const GET_FLAGS: Request = Request::fills(b'f', 1, 8);
const SET_FLAGS: Request = Request::reads(b'f', 2, 8);
/// Flag of a file of btrfs that is overwritten in place, without checksums: it shares extents with its like alone.
const NO_COPY_ON_WRITE: u64 = 0x0080_0000;

/// Lets `target` share all extents of `source`.
pub(crate) fn share_all(source: &File, target: &File) -> Result<(), FilesError> {
    let mut flags = 0u64;
    if call(source, GET_FLAGS, &mut flags).is_ok() && flags & NO_COPY_ON_WRITE != 0 {
        // Where this fails, the call below says what it leads to.
        let _ = call(target, SET_FLAGS, &mut (flags & NO_COPY_ON_WRITE));
    }
    // No length stands for everything up to the end.
    clone_range(source, 0, target, 0, 0)
}

/// Returns whether an error says that these two files cannot share extents, and not that sharing them failed.
pub(crate) fn cannot_share(error: &FilesError) -> bool {
    let code = error.source.raw_os_error();
    error.is_unsupported()
        || [Errno::XDEV, Errno::INVAL].iter().any(|errno| code == Some(errno.raw_os_error()))
}

/// Copies the bytes of a file and leaves its holes out. Returns how many bytes were copied.
pub(super) fn copy_bytes(source: &File, target: &File) -> io::Result<u64> {
    let mut buffer = vec![0; PIECE_BYTES];
    let (mut at, mut copied) = (0, 0);
    while let Some((start, end)) = next_data(source, at)? {
        let mut place = start;
        while place < end {
            let wanted = usize::try_from(end - place).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let piece = buffer.get_mut(..wanted).unwrap_or_default();
            let read = source.read_at(piece, place)?;
            if read == 0 {
                break;
            }
            target.write_all_at(piece.get(..read).unwrap_or_default(), place)?;
            let read = u64::try_from(read).map_err(io::Error::other)?;
            place += read;
            copied += read;
        }
        at = end;
    }
    // Holes at the end have no bytes, and count for the length.
    let length = source.metadata()?.len();
    if target.metadata()?.len() < length {
        target.set_len(length)?;
    }
    Ok(copied)
}

/// Returns the next run of data from a place on; `None` if only a hole follows.
fn next_data(source: &File, from: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match rustix::fs::seek(source, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(source, SeekFrom::Hole(start))?;
    // A file that became shorter meanwhile has its end there.
    Ok((end > start).then_some((start, end)))
}
