//! The index: what a run has hashed, so that the next one reads changed files alone.
//!
//! It is a cache. A torn, wrong or absent index costs reading, or a request that the file system refuses after comparing.
//! Lines of 32 bytes, in the order of inodes: a line for a file, then its pieces, then a void line if reading it failed. The
//! files are numbered from 0. A second kept file has a bit for each number: the run was about to share pieces of that file, so
//! the places of its pieces are to be mapped again. A third one is empty, or has a byte: an undo moved pieces of files whose
//! state stayed the same, so the places of all files are to be mapped again.

use dolmen_mutation::mutation;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::piece::{Piece, Place};
use crate::run::RunError;
use crate::seam::{FileId, FileInfo, Scratch, ScratchError};
use crate::sort::{Buffers, Reader, Run, Writer};

const INDEX: &str = "index";
const TOUCHED: &str = "touched";
const MOVED: &str = "moved";
const UNDOS: &str = "undos";
/// First line; its last number is the version of the format.
const HEAD: Line = Line([0x006e_656d_6c6f_6400, 0x7865_646e_6900, 0, 1]);
const FILE: u64 = 1;
const PIECE: u64 = 2;
const VOID: u64 = 3;

/// A line of the index.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
struct Line([u64; 4]);

/// State of a file, as it is sorted and kept.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub(crate) struct Entry {
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) changed_ns: i64,
    pub(crate) generation: u32,
    reserved: u32,
}

impl Entry {
    pub(crate) const fn of(info: &FileInfo) -> Self {
        let FileInfo { id: FileId { inode, generation }, size, changed_ns, .. } = *info;
        Self { inode, size, changed_ns, generation, reserved: 0 }
    }

    pub(crate) const fn id(&self) -> FileId {
        FileId { inode: self.inode, generation: self.generation }
    }

    fn line(&self) -> Line {
        Line([
            self.inode,
            self.size,
            self.changed_ns.cast_unsigned(),
            u64::from(self.generation) << 32 | FILE,
        ])
    }
}

/// States of the files of a run, by number.
pub(crate) struct Table<S: Scratch> {
    file: S::File,
}

impl<S: Scratch> Table<S> {
    pub(crate) fn new(run: Run<S>) -> Self {
        Self { file: run.into_file() }
    }

    /// Returns the state of a file, or nothing for a number that no file has.
    pub(crate) fn get(&self, scratch: &mut S, number: u32) -> Result<Option<Entry>, ScratchError> {
        let mut bytes = [0; size_of::<Entry>()];
        let read = scratch.read(&self.file, u64::from(number).saturating_mul(32), &mut bytes)?;
        Ok(if read == bytes.len() { Entry::read_from_bytes(&bytes).ok() } else { None })
    }
}
const _: () = assert!(size_of::<Entry>() == 32);

/// One bit for each file.
pub(crate) struct Bits(Vec<u8>);

impl Bits {
    pub(crate) fn zeros(files: u32) -> Self {
        Self(vec![0; usize::try_from(files / 8).unwrap_or(0).saturating_add(1)])
    }

    pub(crate) fn set(&mut self, number: u32) {
        if let Some(byte) = self.0.get_mut(usize::try_from(number / 8).unwrap_or(usize::MAX)) {
            *byte |= 1 << (number % 8);
        }
    }

    fn get(&self, number: u32) -> bool {
        let byte = self.0.get(usize::try_from(number / 8).unwrap_or(usize::MAX));
        byte.is_some_and(|byte| byte & 1 << (number % 8) != 0)
    }

    pub(crate) fn keep<S: Scratch>(&self, scratch: &mut S) -> Result<(), ScratchError> {
        let mut file = scratch.create()?;
        scratch.append(&mut file, &self.0)?;
        scratch.keep(file, TOUCHED)
    }

    fn kept<S: Scratch>(scratch: &mut S) -> Result<Self, ScratchError> {
        let mut bytes = Vec::new();
        if let Some(file) = scratch.kept(TOUCHED)? {
            let mut part = [0; 4096];
            loop {
                let offset = crate::sort::length_of(&bytes);
                let read = scratch.read(&file, offset, &mut part)?;
                bytes.extend_from_slice(part.get(..read).unwrap_or(&[]));
                if read < part.len() || bytes.len() > 1 << 29 {
                    break;
                }
            }
        }
        Ok(Self(bytes))
    }
}

/// Makes the next run map all files again, because places change and the state of their files does not.
///
/// An undo calls it before its first copy. A run that ends early leaves the mark in force.
///
/// # Errors
/// The scratch folder cannot be written.
pub fn mark_moved<S: Scratch>(scratch: &mut S) -> Result<(), ScratchError> {
    if mutation!(UndoneStaysIndexed) { Ok(()) } else { keep_moved(scratch, &[1]) }
}

/// Makes the next run map all files again if the volume has seen other undos than the index: a host that had the volume meanwhile
/// marks its own scratch folder alone. `undos` is the number of undos of the volume so far.
///
/// A run calls it before it reads its index.
///
/// # Errors
/// The scratch folder cannot be read or written.
pub fn follow_undos<S: Scratch>(scratch: &mut S, undos: u64) -> Result<(), ScratchError> {
    let mut known = [0; 8];
    if let Some(file) = scratch.kept(UNDOS)? {
        // One that is shorter counts with zeros.
        scratch.read(&file, 0, &mut known)?;
    }
    if u64::from_le_bytes(known) == undos {
        return Ok(());
    }
    // The mark comes first: a kill in between marks again.
    mark_moved(scratch)?;
    let mut file = scratch.create()?;
    scratch.append(&mut file, &undos.to_le_bytes())?;
    scratch.keep(file, UNDOS)
}

fn keep_moved<S: Scratch>(scratch: &mut S, bytes: &[u8]) -> Result<(), ScratchError> {
    let mut file = scratch.create()?;
    scratch.append(&mut file, bytes)?;
    scratch.keep(file, MOVED)
}

/// Returns `true` if all files are to be mapped again.
fn is_moved<S: Scratch>(scratch: &mut S) -> Result<bool, ScratchError> {
    match scratch.kept(MOVED)? {
        Some(file) => Ok(scratch.read(&file, 0, &mut [0])? > 0),
        None => Ok(false),
    }
}

/// Answer of the former index about a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// The pieces follow; they have to be mapped again if `touched`.
    Unchanged { touched: bool },
    /// The file is new or changed.
    Unknown,
}

/// The index of the former run, read in the order of inodes.
pub(crate) struct Former<S: Scratch> {
    reader: Option<Reader<S, Line>>,
    ahead: Option<Line>,
    number: u32,
    touched: Bits,
    moved: bool,
}

impl<S: Scratch> Former<S> {
    pub(crate) fn open(scratch: &mut S, buffers: Buffers) -> Result<Self, ScratchError> {
        let (touched, moved) = (Bits::kept(scratch)?, is_moved(scratch)?);
        let mut reader = scratch.kept(INDEX)?.map(|file| Reader::of_file(file, buffers));
        let mut ahead = None;
        if let Some(lines) = &mut reader {
            if lines.next(scratch)? == Some(HEAD) {
                ahead = lines.next(scratch)?;
            } else {
                reader = None;
            }
        }
        Ok(Self { reader, ahead, number: 0, touched, moved })
    }

    fn advance(&mut self, scratch: &mut S) -> Result<(), ScratchError> {
        self.ahead = match &mut self.reader {
            Some(reader) => reader.next(scratch)?,
            None => None,
        };
        Ok(())
    }

    /// Goes on to a file; files are asked for in the order of inodes.
    pub(crate) fn seek(&mut self, scratch: &mut S, entry: &Entry) -> Result<Known, ScratchError> {
        while let Some(Line([inode, _, _, kind])) = self.ahead {
            if kind & 0xffff_ffff == FILE {
                if inode > entry.inode {
                    break;
                }
                let (number, line) = (self.number, self.ahead);
                self.number = number.saturating_add(1);
                if line == Some(entry.line()) {
                    self.advance(scratch)?;
                    return Ok(Known::Unchanged { touched: self.moved || self.touched.get(number) });
                }
            }
            self.advance(scratch)?;
        }
        Ok(Known::Unknown)
    }

    /// Returns the next piece of the file that [`Former::seek`] found.
    pub(crate) fn piece(&mut self, scratch: &mut S, file: u32) -> Result<Option<Piece>, ScratchError> {
        let Some(Line([low, high, place, kind])) = self.ahead else { return Ok(None) };
        if kind & 0xffff_ffff != PIECE {
            return Ok(None);
        }
        self.advance(scratch)?;
        let block = u32::try_from(kind >> 32).unwrap_or(0);
        let hash = u128::from(high) << 64 | u128::from(low);
        Ok(Some(Piece { hash, place: Place(place), file, block }))
    }

    /// Returns `true` if reading the file had failed after the pieces that were returned.
    pub(crate) fn is_void(&self) -> bool {
        self.ahead.is_some_and(|Line([_, _, _, kind])| kind == VOID)
    }
}

/// The index of this run.
pub(crate) struct Index<S: Scratch> {
    writer: Writer<S, Line>,
}

impl<S: Scratch> Index<S> {
    pub(crate) fn create(scratch: &mut S, buffers: Buffers) -> Result<Self, ScratchError> {
        let mut writer = Writer::new(scratch, buffers)?;
        writer.push(scratch, HEAD)?;
        Ok(Self { writer })
    }

    pub(crate) fn file(&mut self, scratch: &mut S, entry: &Entry) -> Result<(), ScratchError> {
        self.writer.push(scratch, entry.line())
    }

    pub(crate) fn piece(&mut self, scratch: &mut S, piece: &Piece) -> Result<(), ScratchError> {
        let low = u64::try_from(piece.hash & u128::from(u64::MAX)).unwrap_or(0);
        let high = u64::try_from(piece.hash >> 64).unwrap_or(0);
        self.writer.push(scratch, Line([low, high, piece.place.0, u64::from(piece.block) << 32 | PIECE]))
    }

    pub(crate) fn void(&mut self, scratch: &mut S) -> Result<(), ScratchError> {
        self.writer.push(scratch, Line([0, 0, 0, VOID]))
    }

    /// Keeps the index. The bits of the former index go first: with the new one they would name other files. The mark of an undo
    /// goes last: the new index has the places from after it.
    pub(crate) fn keep(self, scratch: &mut S) -> Result<(), RunError> {
        let run = self.writer.finish(scratch)?;
        Bits(Vec::new()).keep(scratch)?;
        scratch.keep(run.into_file(), INDEX)?;
        if is_moved(scratch)? {
            keep_moved(scratch, &[])?;
        }
        Ok(())
    }
}
