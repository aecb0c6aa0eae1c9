//! The stable names of attached spaces.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Whoever may look into `/dev` sees which spaces are attached; who may use them, their devices say.
const FOLDER_MODE: u32 = 0o755;

/// Makes `link` lead to `target`, at once: whoever looks sees the old target or the new one.
///
/// # Errors
/// What the system says.
pub fn link(link: &Path, target: &Path) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|found| found == target) {
        return Ok(());
    }
    if let Some(folder) = link.parent() {
        make_folders(folder)?;
    }
    let mut name = link.file_name().unwrap_or_default().to_owned();
    // No space's name ends in a tilde.
    name.push("~");
    let new = link.with_file_name(name);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(target, &new)?;
    fs::rename(&new, link)
}

/// Makes a folder and those above it that are missing, open to all whatever the daemon keeps to itself otherwise.
fn make_folders(folder: &Path) -> io::Result<()> {
    let missing: Vec<PathBuf> =
        folder.ancestors().take_while(|folder| !folder.exists()).map(Path::to_path_buf).collect();
    fs::create_dir_all(folder)?;
    missing.iter().try_for_each(|made| fs::set_permissions(made, fs::Permissions::from_mode(FOLDER_MODE)))
}

/// Removes a link that leads to `target`, and its folder if that is empty then. Another link is left alone.
pub fn unlink(link: &Path, target: &Path) {
    if fs::read_link(link).is_ok_and(|found| found == target) {
        // A link that stays behind is corrected by the next attachment of that name.
        let _ = fs::remove_file(link);
    }
    if let Some(folder) = link.parent() {
        // It is not empty as long as other spaces of the pool are attached.
        let _ = fs::remove_dir(folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_links_are_open_to_all() {
        // Scenario: a link is made below folders that are missing, by a process that keeps to itself what it makes. They are open to
        // all; the one that was there is left as it was.
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let before = mode(folder.path());
        let made = folder.path().join("dolmen/tank");
        let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let linked = link(&made.join("space"), Path::new("/dev/null"));
        rustix::process::umask(old);
        linked.unwrap();
        assert_eq!((mode(&made), mode(&folder.path().join("dolmen"))), (0o755, 0o755));
        assert_eq!(mode(folder.path()), before);
    }
}
