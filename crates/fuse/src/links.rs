//! The stable names of attached spaces.

use std::fs;
use std::io;
use std::path::Path;

/// Makes `link` lead to `target`, at once: whoever looks sees the old target or the new one.
///
/// # Errors
/// What the system says.
pub fn link(link: &Path, target: &Path) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|found| found == target) {
        return Ok(());
    }
    if let Some(folder) = link.parent() {
        fs::create_dir_all(folder)?;
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
