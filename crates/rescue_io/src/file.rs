//! The file that a space is written to: sparse, new, and never one that was there.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use dolmen_space::{Segment, Segments};

use crate::error::ToolError;

/// Bytes of zeros that are written at once.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Where a space goes.
pub(crate) enum Target<'a> {
    /// A file with holes where there are zeros.
    File(Box<File>, PathBuf),
    /// A stream, which has no holes.
    Stream(&'a mut dyn Write, u64),
}

impl<'a> Target<'a> {
    /// Makes the file; `-` is the stream.
    pub(crate) fn new(path: &Path, stream: &'a mut dyn Write) -> Result<Self, ToolError> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stream(stream, 0));
        }
        create_new(path).map(|file| Self::File(Box::new(file), path.to_path_buf()))
    }

    /// Writes what stands from byte `at` on.
    pub(crate) fn put(&mut self, at: u64, segments: &Segments) -> Result<(), ToolError> {
        let mut at = at;
        for segment in segments {
            if let Segment::Data(data) = segment {
                self.put_bytes(at, data)?;
            }
            at += segment.len() as u64;
        }
        Ok(())
    }

    /// Writes zeros, also where a hole would do.
    pub(crate) fn put_zeros(&mut self, at: u64, length: u64) -> Result<(), ToolError> {
        let mut done = 0;
        while done < length {
            let piece = usize::try_from(length - done).unwrap_or(usize::MAX).min(ZEROS.len());
            self.put_bytes(at + done, ZEROS.get(..piece).unwrap_or_default())?;
            done += piece as u64;
        }
        Ok(())
    }

    fn put_bytes(&mut self, at: u64, bytes: &[u8]) -> Result<(), ToolError> {
        match self {
            Self::File(file, path) => {
                let written = file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(bytes));
                written.map_err(|source| ToolError::Write { path: path.clone(), source })
            }
            Self::Stream(stream, done) => {
                fill(stream, done, at)?;
                stream.write_all(bytes)?;
                *done += bytes.len() as u64;
                Ok(())
            }
        }
    }

    /// Gives it its length, and makes it durable.
    pub(crate) fn end(&mut self, length: u64) -> Result<(), ToolError> {
        match self {
            Self::File(file, path) => {
                let ended = file.set_len(length).and_then(|()| file.sync_all());
                ended.map_err(|source| ToolError::Write { path: path.clone(), source })
            }
            Self::Stream(stream, done) => {
                fill(stream, done, length)?;
                Ok(stream.flush()?)
            }
        }
    }
}

/// Writes zeros up to a byte.
fn fill(stream: &mut dyn Write, done: &mut u64, to: u64) -> io::Result<()> {
    while *done < to {
        let piece = usize::try_from(to - *done).unwrap_or(usize::MAX).min(ZEROS.len());
        stream.write_all(ZEROS.get(..piece).unwrap_or_default())?;
        *done += piece as u64;
    }
    Ok(())
}

/// Makes a file that is not there.
pub(crate) fn create_new(path: &Path) -> Result<File, ToolError> {
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    made.map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => ToolError::Exists { path: path.to_path_buf() },
        _ => ToolError::Write { path: path.to_path_buf(), source },
    })
}
