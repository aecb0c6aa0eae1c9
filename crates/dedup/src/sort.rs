//! External sort: records of a fixed size fill a buffer, are sorted in place and written as a run; runs are merged 64 at a time.
//!
//! Invariant: a sorter holds one buffer, and a merge one buffer for each of at most [`MERGE_MAX`] runs. No call allocates for
//! a record. Records are written in the byte order of the machine: no other machine reads them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::seam::{Scratch, ScratchError};

/// Runs that one merge reads.
pub(crate) const MERGE_MAX: usize = 64;
/// Bytes of a run that a merge holds, at least.
const READ_MIN: usize = 4096;

/// A value of fixed size whose bytes are the value.
pub(crate) trait Record: Copy + Ord + FromBytes + IntoBytes + Immutable + KnownLayout {}
impl<T: Copy + Ord + FromBytes + IntoBytes + Immutable + KnownLayout> Record for T {}

/// Bytes of memory for the buffers of sorters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffers {
    /// Bytes of a sorter.
    pub(crate) sort: usize,
    /// Bytes of all readers of a merge together.
    pub(crate) merge: usize,
}

impl Buffers {
    /// Divides the memory of a run: two sorters and two merges are in use at once.
    pub(crate) const fn of(memory_bytes: usize) -> Self {
        Self { sort: memory_bytes / 4, merge: memory_bytes / 8 }
    }

    fn records<R>(bytes: usize) -> usize {
        (bytes / size_of::<R>()).max(16)
    }

    fn read_records<R>(self) -> usize {
        Self::records::<R>((self.merge / (MERGE_MAX + 1)).max(READ_MIN))
    }
}

/// A sorted sequence in scratch.
pub(crate) struct Run<S: Scratch> {
    file: S::File,
    bytes: u64,
}

impl<S: Scratch> Run<S> {
    pub(crate) fn into_file(self) -> S::File {
        self.file
    }
}

/// Writer of records to a scratch file.
pub(crate) struct Writer<S: Scratch, R> {
    file: S::File,
    bytes: u64,
    buffer: Vec<R>,
}

impl<S: Scratch, R: Record> Writer<S, R> {
    pub(crate) fn new(scratch: &mut S, buffers: Buffers) -> Result<Self, ScratchError> {
        let buffer = Vec::with_capacity(buffers.read_records::<R>());
        Ok(Self { file: scratch.create()?, bytes: 0, buffer })
    }

    pub(crate) fn push(&mut self, scratch: &mut S, record: R) -> Result<(), ScratchError> {
        if self.buffer.len() == self.buffer.capacity() {
            self.flush(scratch)?;
        }
        self.buffer.push(record);
        Ok(())
    }

    fn flush(&mut self, scratch: &mut S) -> Result<(), ScratchError> {
        let bytes = self.buffer.as_bytes();
        scratch.append(&mut self.file, bytes)?;
        self.bytes = self.bytes.saturating_add(length_of(bytes));
        self.buffer.clear();
        Ok(())
    }

    pub(crate) fn finish(mut self, scratch: &mut S) -> Result<Run<S>, ScratchError> {
        self.flush(scratch)?;
        Ok(Run { file: self.file, bytes: self.bytes })
    }
}

/// Returns the length of a slice as the offsets of files are counted.
pub(crate) fn length_of<T>(slice: &[T]) -> u64 {
    u64::try_from(slice.len()).unwrap_or(u64::MAX)
}

/// Reader of the records of a run, in order.
pub(crate) struct Reader<S: Scratch, R> {
    run: Run<S>,
    offset: u64,
    buffer: Vec<R>,
    next: usize,
    filled: usize,
}

impl<S: Scratch, R: Record> Reader<S, R> {
    pub(crate) fn new(run: Run<S>, buffers: Buffers) -> Self {
        let buffer = vec![R::new_zeroed(); buffers.read_records::<R>()];
        Self { run, offset: 0, buffer, next: 0, filled: 0 }
    }

    /// Returns a reader of a whole file whose length is not known: it ends with the last whole record.
    pub(crate) fn of_file(file: S::File, buffers: Buffers) -> Self {
        Self::new(Run { file, bytes: u64::MAX }, buffers)
    }

    pub(crate) fn next(&mut self, scratch: &mut S) -> Result<Option<R>, ScratchError> {
        if self.next == self.filled {
            self.fill(scratch)?;
        }
        let record = if self.next < self.filled { self.buffer.get(self.next).copied() } else { None };
        self.next = self.next.saturating_add(usize::from(record.is_some()));
        Ok(record)
    }

    fn fill(&mut self, scratch: &mut S) -> Result<(), ScratchError> {
        let rest = usize::try_from(self.run.bytes.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let bytes = self.buffer.as_mut_bytes();
        let wanted = rest.min(bytes.len());
        let read = match bytes.get_mut(..wanted) {
            Some(into) if wanted > 0 => scratch.read(&self.run.file, self.offset, into)?,
            _ => 0,
        };
        self.filled = read.min(wanted) / size_of::<R>();
        self.next = 0;
        self.offset = self.offset.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        Ok(())
    }
}

/// Collector of records in any order.
pub(crate) struct Sorter<S: Scratch, R> {
    buffer: Vec<R>,
    buffers: Buffers,
    /// Runs, the shortest last but one level at a time: each level holds fewer than [`MERGE_MAX`].
    levels: Vec<Vec<Run<S>>>,
    records: u64,
}

impl<S: Scratch, R: Record> Sorter<S, R> {
    pub(crate) fn new(buffers: Buffers) -> Self {
        let buffer = Vec::with_capacity(Buffers::records::<R>(buffers.sort));
        Self { buffer, buffers, levels: Vec::new(), records: 0 }
    }

    /// Returns the number of records so far.
    pub(crate) const fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn push(&mut self, scratch: &mut S, record: R) -> Result<(), ScratchError> {
        if self.buffer.len() == self.buffer.capacity() {
            self.spill(scratch)?;
        }
        self.buffer.push(record);
        self.records = self.records.saturating_add(1);
        Ok(())
    }

    fn spill(&mut self, scratch: &mut S) -> Result<(), ScratchError> {
        self.buffer.sort_unstable();
        let mut file = scratch.create()?;
        let bytes = self.buffer.as_bytes();
        scratch.append(&mut file, bytes)?;
        let mut run = Run { file, bytes: length_of(bytes) };
        self.buffer.clear();
        for level in &mut self.levels {
            level.push(run);
            if level.len() < MERGE_MAX {
                return Ok(());
            }
            run = merged::<S, R>(scratch, std::mem::take(level), self.buffers)?;
        }
        self.levels.push(vec![run]);
        Ok(())
    }

    /// Returns the records in order. What fitted the buffer never touches scratch.
    pub(crate) fn finish(mut self, scratch: &mut S) -> Result<Sorted<S, R>, ScratchError> {
        if self.levels.is_empty() {
            self.buffer.sort_unstable();
            return Ok(Sorted::Memory(self.buffer.into_iter()));
        }
        if !self.buffer.is_empty() {
            self.spill(scratch)?;
        }
        self.buffer = Vec::new();
        let mut runs: Vec<Run<S>> = self.levels.into_iter().flatten().collect();
        while runs.len() > MERGE_MAX {
            let rest = runs.split_off(MERGE_MAX);
            let run = merged::<S, R>(scratch, runs, self.buffers)?;
            runs = rest;
            runs.push(run);
        }
        Ok(Sorted::Merge(Merge::new(scratch, runs, self.buffers)?))
    }
}

fn merged<S: Scratch, R: Record>(
    scratch: &mut S,
    runs: Vec<Run<S>>,
    buffers: Buffers,
) -> Result<Run<S>, ScratchError> {
    let mut merge = Merge::<S, R>::new(scratch, runs, buffers)?;
    let mut writer = Writer::new(scratch, buffers)?;
    while let Some(record) = merge.next(scratch)? {
        writer.push(scratch, record)?;
    }
    writer.finish(scratch)
}

/// Merge of at most [`MERGE_MAX`] runs.
pub(crate) struct Merge<S: Scratch, R> {
    readers: Vec<Reader<S, R>>,
    heads: BinaryHeap<Reverse<(R, usize)>>,
}

impl<S: Scratch, R: Record> Merge<S, R> {
    fn new(scratch: &mut S, runs: Vec<Run<S>>, buffers: Buffers) -> Result<Self, ScratchError> {
        let mut readers: Vec<Reader<S, R>> = runs.into_iter().map(|run| Reader::new(run, buffers)).collect();
        let mut heads = BinaryHeap::with_capacity(readers.len());
        for (at, reader) in readers.iter_mut().enumerate() {
            if let Some(record) = reader.next(scratch)? {
                heads.push(Reverse((record, at)));
            }
        }
        Ok(Self { readers, heads })
    }

    fn next(&mut self, scratch: &mut S) -> Result<Option<R>, ScratchError> {
        let Some(mut head) = self.heads.peek_mut() else { return Ok(None) };
        let Reverse((record, at)) = *head;
        let following = match self.readers.get_mut(at) {
            Some(reader) => reader.next(scratch)?,
            None => None,
        };
        match following {
            Some(following) => *head = Reverse((following, at)),
            None => drop(PeekMut::pop(head)),
        }
        Ok(Some(record))
    }
}

/// Records in order.
pub(crate) enum Sorted<S: Scratch, R> {
    /// All of them fitted the buffer.
    Memory(std::vec::IntoIter<R>),
    /// They are in runs.
    Merge(Merge<S, R>),
}

impl<S: Scratch, R: Record> Sorted<S, R> {
    pub(crate) fn next(&mut self, scratch: &mut S) -> Result<Option<R>, ScratchError> {
        match self {
            Self::Memory(records) => Ok(records.next()),
            Self::Merge(merge) => merge.next(scratch),
        }
    }
}
