//! Where reports and pages go, of whichever command: to files of text, to files that are still to be made, and to pipes. Never to a device, to a file that
//! may be a disk, to a target of the same run or to the file of another report: writing a report empties what it is written
//! to.

use std::ffi::OsString;
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use dolmen_api::ExitCode;
use dolmen_block_linux::in_use;
use rustix::fs::Access;

use crate::error::Failure;

/// Bytes at the beginning of a file that tell whether it is text.
const TEXT_BYTES: u64 = 4096;
/// `/dev/null` (Documentation/admin-guide/devices.txt).
const NULL: (u32, u32) = (1, 3);

/// Why a report is not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    /// It cannot be.
    #[error("writing {} failed", path.display())]
    Unwritable {
        /// Where to.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It would destroy something.
    #[error("the report for {} would be written over {what}; nothing was written", path.display())]
    Over {
        /// Where to.
        path: PathBuf,
        /// What is there.
        what: String,
    },
}

impl Failure for ReportError {
    fn exit(&self) -> ExitCode {
        match self {
            Self::Unwritable { .. } => ExitCode::Io,
            Self::Over { .. } => ExitCode::Usage,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Unwritable { .. } => None,
            Self::Over { .. } => Some("name a file of its own for each report".to_owned()),
        }
    }
}

/// What a path leads to, whatever it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Something that is there, by the numbers of its file system and of itself.
    There { device: u64, inode: u64 },
    /// Nothing yet, by the folder that it would stand in and its name.
    Missing { device: u64, inode: u64, name: OsString },
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        match fs::metadata(path) {
            Ok(status) => Ok(Self::There { device: status.dev(), inode: status.ino() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let name = path.file_name().ok_or(error)?.to_owned();
                let folder = fs::metadata(folder_of(path))?;
                Ok(Self::Missing { device: folder.dev(), inode: folder.ino(), name })
            }
            Err(error) => Err(error),
        }
    }
}

/// What a report would be written to.
enum Kind {
    /// A file, which is emptied.
    File,
    /// Nothing yet.
    Missing,
    /// Something that only passes bytes on.
    Stream,
}

/// The files of the reports, in the order in which they are written.
pub(crate) struct Reports<'a> {
    /// Those that bytes stay in.
    files: Vec<(&'a Path, Place)>,
}

impl<'a> Reports<'a> {
    /// Tries whether each report can be written, so that an hour is not spent for one that cannot be. Nothing is changed;
    /// a file that is missing is made and removed again, or only asked for.
    pub(crate) fn check(paths: &[&'a Path], rehearsal: Rehearsal) -> Result<Self, ReportError> {
        let mut files: Vec<(&Path, Place)> = Vec::new();
        for path in paths {
            let failed = |source| ReportError::Unwritable { path: path.to_path_buf(), source };
            match kind_of(path)? {
                Kind::Stream => continue,
                Kind::File => drop(OpenOptions::new().write(true).open(path).map_err(failed)?),
                Kind::Missing => rehearsal.make(path).map_err(failed)?,
            }
            let place = Place::of(path).map_err(failed)?;
            if let Some((first, _)) = files.iter().find(|(_, earlier)| *earlier == place) {
                let what = format!("the report in {}", first.display());
                return Err(ReportError::Over { path: path.to_path_buf(), what });
            }
            files.push((path, place));
        }
        Ok(Self { files })
    }

    /// The report that would be written over what is at a path, if one would.
    pub(crate) fn over(&self, path: &Path) -> io::Result<Option<&'a Path>> {
        let place = Place::of(path)?;
        Ok(self.files.iter().find(|(_, file)| *file == place).map(|(path, _)| *path))
    }
}

/// How it is tried whether a file can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rehearsal {
    /// By making it, and removing it again.
    Make,
    /// By asking for the rights in its folder.
    Ask,
}

impl Rehearsal {
    fn make(self, path: &Path) -> io::Result<()> {
        match self {
            // Only what this made is removed: it fails where something came to be in the meantime.
            Self::Make => {
                drop(OpenOptions::new().write(true).create_new(true).open(path)?);
                fs::remove_file(path)
            }
            Self::Ask => Ok(rustix::fs::access(folder_of(path), Access::WRITE_OK | Access::EXEC_OK)?),
        }
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn kind_of(path: &Path) -> Result<Kind, ReportError> {
    let failed = |source| ReportError::Unwritable { path: path.to_path_buf(), source };
    let refused = |what: &str| ReportError::Over { path: path.to_path_buf(), what: what.to_owned() };
    let status = match fs::metadata(path) {
        Ok(status) => status,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return if fs::symlink_metadata(path).is_ok() {
                Err(refused("a link that leads to nothing"))
            } else {
                Ok(Kind::Missing)
            };
        }
        Err(error) => return Err(failed(error)),
    };
    let kind = status.file_type();
    if kind.is_file() {
        return match in_use(path).map_err(failed)? {
            Some(by) => Err(refused(&format!("a file that is in use: {by}"))),
            None if !begins_as_text(path).map_err(failed)? => {
                Err(refused("a file that is no text, and may be a disk"))
            }
            None => Ok(Kind::File),
        };
    }
    if kind.is_fifo() || (kind.is_char_device() && passes_on(status.rdev())) {
        return Ok(Kind::Stream);
    }
    Err(refused(word_of(kind)))
}

/// Whether a file is empty or begins as reports do: with text. Disks and images of file systems do not; their first sectors
/// have zeros.
fn begins_as_text(path: &Path) -> io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(TEXT_BYTES).read_to_end(&mut head)?;
    let is_utf8 = std::str::from_utf8(&head).map_or_else(|error| error.error_len().is_none(), |_| true);
    Ok(is_utf8 && !head.contains(&0))
}

/// Whether a character device is the null device, or the terminal that results or messages go to.
fn passes_on(number: u64) -> bool {
    let is_same =
        |status: rustix::io::Result<rustix::fs::Stat>| status.is_ok_and(|status| status.st_rdev == number);
    (rustix::fs::major(number), rustix::fs::minor(number)) == NULL
        || is_same(rustix::fs::fstat(io::stdout()))
        || is_same(rustix::fs::fstat(io::stderr()))
}

fn word_of(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a folder"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// Whether a path, such as `/dev/stdout`, leads to where results go.
pub(crate) fn leads_to_results(path: &Path) -> bool {
    let Ok(results) = rustix::fs::fstat(io::stdout()) else { return false };
    fs::metadata(path).is_ok_and(|status| (status.dev(), status.ino()) == (results.st_dev, results.st_ino))
}

/// The paths of all reports that were asked for.
pub(crate) fn paths_of<'a>(asked: &[&'a Option<PathBuf>]) -> Vec<&'a Path> {
    asked.iter().filter_map(|path| path.as_deref()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A dangling link, a device and a socket are refused and left as they were; nothing is made in a rehearsal that asks.
    #[test]
    fn only_files_and_pipes_take_reports() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::os::unix::fs::symlink(at("nothing"), at("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        for rehearsal in [Rehearsal::Make, Rehearsal::Ask] {
            for (path, needle) in
                [(at("link"), "leads to nothing"), (at("socket"), "a socket"), (at("."), "a folder")]
            {
                let error = Reports::check(&[&path], rehearsal).err().unwrap().to_string();
                assert!(error.contains(needle), "{error}");
            }
            assert!(Reports::check(&[Path::new("/dev/zero")], rehearsal).is_err());
            assert!(Reports::check(&[Path::new("/dev/null"), Path::new("/dev/null")], rehearsal).is_ok());
            assert!(Reports::check(&[&at("new"), &at("other")], rehearsal).is_ok());
            assert!(Reports::check(&[&at("new"), &at("./new")], rehearsal).is_err());
            assert!(at("link").is_symlink() && !at("new").exists() && !at("nothing").exists());
        }
    }

    /// What is no text is no earlier report; text and nothing at all may be.
    #[test]
    fn a_file_that_may_be_a_disk_takes_no_report() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let cut = "é".repeat(usize::try_from(TEXT_BYTES).unwrap());
        for (content, is_taken) in [
            (b"".as_slice(), true),
            (b"{\n", true),
            (&cut.as_bytes()[1..], false),
            (&[b"x".as_slice(), cut.as_bytes()].concat(), true),
            (&[0; 512], false),
            (b"text\0text", false),
        ] {
            fs::write(&path, content).unwrap();
            assert_eq!(Reports::check(&[&path], Rehearsal::Make).is_ok(), is_taken, "{content:?}");
            assert_eq!(fs::read(&path).unwrap(), content);
        }
    }

    /// A file is the same by whatever name: by a link, by a second name of its own.
    #[test]
    fn two_reports_never_share_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("a"), "kept").unwrap();
        fs::hard_link(at("a"), at("b")).unwrap();
        std::os::unix::fs::symlink(at("a"), at("c")).unwrap();
        for second in ["a", "b", "c"] {
            let error = Reports::check(&[&at("a"), &at(second)], Rehearsal::Make).err().unwrap();
            assert!(error.to_string().contains("would be written over the report in"), "{error}");
        }
        assert_eq!(fs::read_to_string(at("a")).unwrap(), "kept");
    }
}
