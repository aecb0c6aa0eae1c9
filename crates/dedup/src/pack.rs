//! Pack: an unnamed copy of ranges of files, and the requests that point the files to it.
//!
//! Order, for each pack:
//! 1. room is reserved, and looked at: the caller may refuse where it lies;
//! 2. ranges are copied into it;
//! 3. it is synced; a power cut before that frees it, because it has no name;
//! 4. each owner of each range is asked to share it, after a comparison by the file system;
//! 5. it is dropped, and what no file owns is freed.
//!
//! The last part of a file shares a part of a block only if it ends the pack, too. So ranges that end in a part of a block
//! come last, from the end of the pack on, and the pack is cut to the end of each.

use dolmen_mutation::mutation;

use crate::seam::{FileError, Files, ShareRange, Shared};

/// A range of a file, and its place in the pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Move {
    /// Number of the file.
    pub(crate) file: u32,
    /// Number of the row that it is moved out of.
    pub(crate) row: u32,
    /// First byte in the file.
    pub(crate) logical: u64,
    /// Length in bytes, up to the end of the file.
    pub(crate) bytes: u64,
    /// First byte in the pack.
    pub(crate) offset: u64,
    /// Bytes at the end of the range that no range before it has copied into the pack.
    pub(crate) fresh: u64,
}

impl Move {
    pub(crate) const fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    /// Returns the place in the order of requests.
    pub(crate) const fn order(&self, block_bytes: u64) -> (bool, std::cmp::Reverse<u64>, u32, u64) {
        let is_tail = self.is_tail(block_bytes);
        (is_tail, std::cmp::Reverse(if is_tail { self.end() } else { 0 }), self.file, self.logical)
    }

    const fn is_tail(&self, block_bytes: u64) -> bool {
        block_bytes > 0 && !self.bytes.is_multiple_of(block_bytes)
    }
}

/// A pack with content.
pub(crate) struct Pack<H> {
    handle: H,
    bytes: u64,
}

impl<H> Pack<H> {
    /// Returns a pack without content.
    pub(crate) const fn new(handle: H) -> Self {
        Self::of(handle, 0)
    }

    /// Returns a pack that has a length already.
    pub(crate) const fn of(handle: H, bytes: u64) -> Self {
        Self { handle, bytes }
    }

    /// Copies what a range adds, and returns the bytes.
    pub(crate) fn fill<F: Files<Handle = H>>(
        &mut self,
        files: &mut F,
        source: &H,
        range: &Move,
    ) -> Result<u64, FileError> {
        let mut skip = range.bytes.saturating_sub(range.fresh);
        while skip < range.bytes {
            let part = ShareRange {
                source_offset: range.logical.saturating_add(skip),
                target_offset: range.offset.saturating_add(skip),
                length: range.bytes.saturating_sub(skip),
            };
            let copied = files.copy(source, &self.handle, part)?;
            if copied == 0 {
                break;
            }
            skip = skip.saturating_add(copied);
        }
        self.bytes = self.bytes.max(range.offset.saturating_add(skip));
        Ok(skip.saturating_sub(range.bytes.saturating_sub(range.fresh)))
    }

    /// Returns when the content is durable.
    pub(crate) fn seal<F: Files<Handle = H>>(&self, files: &mut F) -> Result<(), FileError> {
        if mutation!(PackUnsynced) { Ok(()) } else { files.sync(&self.handle) }
    }

    /// Points a range of a file to the pack, and returns `true` if all of it moved; ranges come in their order.
    pub(crate) fn point<F: Files<Handle = H>>(
        &mut self,
        files: &mut F,
        target: &H,
        range: &Move,
        call_bytes: u64,
    ) -> Result<bool, FileError> {
        if range.is_tail(files.block_bytes()) && range.end() < self.bytes && !mutation!(TailSharedMidFile) {
            files.cut(&self.handle, range.end())?;
            self.bytes = range.end();
        }
        let mut done: u64 = 0;
        while done < range.bytes {
            let part = ShareRange {
                source_offset: range.offset.saturating_add(done),
                target_offset: range.logical.saturating_add(done),
                length: range.bytes.saturating_sub(done).min(call_bytes),
            };
            match files.share(&self.handle, target, part)? {
                Shared::Bytes(bytes) if bytes > 0 => done = done.saturating_add(bytes),
                Shared::Bytes(_) | Shared::Differs | Shared::Changed => return Ok(false),
            }
        }
        Ok(true)
    }
}
