//! Files of Dolmen in folders of servers: written whole, known by their name and first line.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use dolmen_mutation::mutation;
use dolmen_volume::share_mark::ShareMark;

use crate::protocol::{Failure, FailureCode};

/// First words of each file of Dolmen.
const HEAD: &str = "# Written by Dolmen";

fn failed(code: FailureCode, path: &Path, finding: &dyn std::fmt::Display, hint: &str) -> Failure {
    Failure { code, message: format!("{}: {finding}", path.display()), hint: hint.to_owned() }
}

/// Returns the content of a file of Dolmen; `None` if there is none.
///
/// # Errors
/// [`FailureCode::ForeignData`] if something else has its name.
pub(super) fn read(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) if text.starts_with(HEAD) || mutation!(ForeignFileReplaced) => Ok(Some(text)),
        Ok(_) => Err(failed(
            FailureCode::ForeignData,
            path,
            &"it has the name of a file of Dolmen, and does not begin as one; it is left as it is",
            "move it away",
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(FailureCode::BadPath, path, &error, "")),
    }
}

/// Replaces a file by a whole one. It is written at `by` first, which no server reads and which lies on the same file system.
pub(super) fn replace(path: &Path, by: &Path, text: &str) -> Result<(), Failure> {
    let written = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(by)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(by, path)?;
        sync_folder(path)
    };
    written()
        .map_err(|error| failed(FailureCode::BadPath, path, &error, "make its folder, or see its rights"))
}

/// Deletes a file.
pub(super) fn delete(path: &Path) -> Result<(), Failure> {
    let deleted = fs::remove_file(path).and_then(|()| sync_folder(path));
    deleted.map_err(|error| failed(FailureCode::BadPath, path, &error, ""))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// Returns the files of a folder whose names end in a suffix, in their order, with the mark in each name.
pub(super) fn files(folder: &Path, suffix: &str) -> Result<Vec<(PathBuf, Option<ShareMark>)>, Failure> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(FailureCode::BadPath, folder, &error, "")),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| failed(FailureCode::BadPath, folder, &error, ""))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(suffix) && path.is_file() {
            found.push((path, mark_of(&name, suffix)));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the mark in the name of a file, if [`ShareMark::file_name`] made it.
pub(super) fn mark_of(name: &str, suffix: &str) -> Option<ShareMark> {
    let inner = name.strip_prefix("dolmen-")?.strip_suffix(suffix)?;
    let (rest, share) = inner.rsplit_once('-')?;
    let (pool, space) = rest.rsplit_once('-')?;
    ShareMark::try_from(format!("{pool}/{space}/{share}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_its_name_and_its_head() {
        let folder = tempfile::tempdir().unwrap();
        let mark =
            ShareMark { pool: "01020304-0506-0708-090a-0b0c0d0e0f10".parse().unwrap(), space: 2, share: 3 };
        let name = mark.file_name("exports");
        assert_eq!(mark_of(&name, ".exports"), Some(mark));
        assert_eq!(mark_of("dolmen-1-2-3.exports", ".exports"), None);
        let (path, by) = (folder.path().join(&name), folder.path().join("new"));
        assert_eq!(read(&path).unwrap(), None);
        replace(&path, &by, "# Written by Dolmen from a test\n").unwrap();
        assert!(read(&path).unwrap().is_some() && !by.exists());
        fs::write(folder.path().join("local.exports"), "/srv *(ro)\n").unwrap();
        let marks: Vec<_> =
            files(folder.path(), ".exports").unwrap().into_iter().map(|(_, mark)| mark).collect();
        assert_eq!(marks, [Some(mark), None]);
        fs::write(&path, "/srv *(ro)\n").unwrap();
        let code = read(&path).map_err(|failure| failure.code);
        assert_eq!(code, Err(FailureCode::ForeignData), "a file of others was taken for its own");
        delete(&path).unwrap();
        assert_eq!(read(&path).unwrap(), None);
    }
}
