//! Copies of files and trees that share the extents of their sources.
//!
//! A copy is made under a name of its own beside its target. It is written to disk (`syncfs`) and then renamed to its final
//! name, which replaces nothing. So the final name has all of the copy or none of it, whatever ends the process or the machine.
//! A process that is killed leaves the other name; [`TEMPORARY`] is its beginning.
//!
//! Kept: content, holes, mode, owner, times, extended attributes, access lists, hard links within one source, symbolic links,
//! special files. Every name is opened within its folder and through no symbolic link.

pub(crate) mod content;
mod count;
mod error;
mod metadata;
pub(crate) mod place;
mod tree;

pub use error::CopyError;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::{Path, PathBuf};

use dolmen_mutation::mutation;
use rustix::fs::{AtFlags, RenameFlags};

use place::Place;
use tree::Tree;

/// Beginning of the names under which copies are made.
pub const TEMPORARY: &str = ".dolmen-copy-";

/// Means for a file whose extents cannot be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// The copy fails, and nothing of it stays.
    Refuse,
    /// The bytes of the file are copied; holes stay holes.
    CopyBytes,
}

/// Content of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// Number of folders.
    pub folders: u64,
    /// Number of files, each hard link counted once.
    pub files: u64,
    /// Number of further names of files that have several.
    pub hard_links: u64,
    /// Number of symbolic links.
    pub symbolic_links: u64,
    /// Number of pipes, sockets and devices.
    pub special_files: u64,
    /// Bytes of files that share the extents of their sources, holes included.
    pub shared_bytes: u64,
    /// Number of files whose bytes were copied.
    pub copied_files: u64,
    /// Bytes that were copied.
    pub copied_bytes: u64,
    /// Properties that the target did not take, each with its path: at most [`UNKEPT_MAX`].
    pub unkept: Vec<String>,
    /// Number of properties that the target did not take.
    pub unkept_count: u64,
}

/// Number of properties that a copy names.
pub const UNKEPT_MAX: usize = 20;

impl Copied {
    /// Names properties by the final path of the copy.
    fn name_final(&mut self, temporary: &Path, target: &Path) {
        let (from, to) = (temporary.display().to_string(), target.display().to_string());
        for text in &mut self.unkept {
            *text = text.replacen(&from, &to, 1);
        }
    }

    fn note_unkept(&mut self, path: &Path, property: &str, why: &dyn std::fmt::Display) {
        self.unkept_count += 1;
        if self.unkept.len() < UNKEPT_MAX {
            self.unkept.push(format!("{}: {property}: {why}", path.display()));
        }
    }
}

/// Content of a copy that would be made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Planned {
    /// Number of folders.
    pub folders: u64,
    /// Number of files, each name counted.
    pub files: u64,
    /// Number of symbolic links and special files.
    pub others: u64,
    /// Bytes of files, holes included.
    pub bytes: u64,
    /// Bytes of files on another device than the target: their extents cannot be shared, unless the device is a subvolume.
    pub other_device_bytes: u64,
}

/// Looks at what [`copy`] would do, and changes nothing.
///
/// # Errors
/// [`CopyError`], for the reasons that are seen before a copy begins.
pub fn plan(source: &Path, target: &Path) -> Result<Planned, CopyError> {
    let (from, to) = free_target(source, target)?;
    let device = rustix::fs::fstat(&to.folder).map_err(CopyError::at("look at", &to.path))?.st_dev;
    let mut planned = Planned::default();
    count::count(&Place::top(&from.folder, &from.path), from.name(), device, &mut planned)?;
    Ok(planned)
}

/// Finds both ends of a copy; fails if the target has its name, or lies within the source.
fn free_target(source: &Path, target: &Path) -> Result<(Named, Named), CopyError> {
    let from = Named::of(source)?;
    let to = Named::of(target)?;
    from.require_outside(&to)?;
    match rustix::fs::statat(&to.folder, to.name(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Err(CopyError::Exists { path: target.to_owned() }),
        Err(rustix::io::Errno::NOENT) => Ok((from, to)),
        Err(error) => Err(CopyError::at("look at", target)(error)),
    }
}

/// Copies a file or a tree to a name that is free.
///
/// # Errors
/// [`CopyError`]; nothing is left of the copy then.
pub fn copy(source: &Path, target: &Path, fallback: Fallback) -> Result<Copied, CopyError> {
    let (from, to) = free_target(source, target)?;
    let made = Made::of(&to)?;
    let tree = Tree::new(to.folder.try_clone().map_err(CopyError::io("open", &to.path))?, fallback);
    let beside = Place::top(&to.folder, &to.path);
    let mut copied = tree.copy(&Place::top(&from.folder, &from.path), from.name(), &beside, &made.name)?;
    rustix::fs::syncfs(&to.folder).map_err(CopyError::at("write to disk", &to.path))?;
    rustix::fs::renameat_with(&to.folder, &made.name, &to.folder, to.name(), RenameFlags::NOREPLACE)
        .map_err(|error| match error {
            rustix::io::Errno::EXIST => CopyError::Exists { path: target.to_owned() },
            error => CopyError::at("rename the copy to", target)(error),
        })?;
    to.folder.sync_all().map_err(CopyError::io("write to disk", &to.path))?;
    copied.name_final(&made.path, target);
    Ok(copied)
}

/// A path as an open folder and a name in it.
struct Named {
    folder: File,
    /// Path of the folder.
    path: PathBuf,
    name: OsString,
}

impl Named {
    fn of(path: &Path) -> Result<Self, CopyError> {
        // `.`, `..` and `/` name no entry of a folder; what they lead to has a name.
        let named = match path.file_name() {
            Some(_) => path.to_owned(),
            None => path.canonicalize().map_err(CopyError::io("find", path))?,
        };
        let (Some(name), Some(parent)) = (named.file_name(), named.parent()) else {
            return Err(CopyError::Root { path: path.to_owned() });
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let parent = parent.canonicalize().map_err(CopyError::io("find", parent))?;
        let folder = File::open(&parent).map_err(CopyError::io("open", &parent))?;
        Ok(Self { folder, path: parent, name: name.to_owned() })
    }

    fn name(&self) -> &OsStr {
        &self.name
    }

    /// Fails if a target lies within this source: the copy would copy itself.
    fn require_outside(&self, target: &Self) -> Result<(), CopyError> {
        let whole = self.path.join(&self.name);
        if target.path.starts_with(&whole) {
            return Err(CopyError::Inside {
                source_path: whole,
                target_path: target.path.join(&target.name),
            });
        }
        Ok(())
    }
}

/// The name under which a copy is made. What has it is deleted when this is dropped; a copy that was renamed has it no more.
struct Made {
    name: OsString,
    path: PathBuf,
}

impl Made {
    fn of(target: &Named) -> Result<Self, CopyError> {
        if mutation!(CopyUnderFinalName) {
            let name = target.name.clone();
            return Ok(Self { path: target.path.join(&name), name });
        }
        // A name that a killed copy left is passed over.
        for number in 0..=u16::MAX {
            let name = OsString::from(format!("{TEMPORARY}{}-{number}", std::process::id()));
            let path = target.path.join(&name);
            match rustix::fs::statat(&target.folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(rustix::io::Errno::NOENT) => return Ok(Self { name, path }),
                Ok(_) => {}
                Err(error) => return Err(CopyError::at("look at", &path)(error)),
            }
        }
        Err(CopyError::at("make a copy in", &target.path)(rustix::io::Errno::EXIST))
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // What cannot be deleted keeps a name that says where it is from.
        if let Ok(found) = std::fs::symlink_metadata(&self.path) {
            let _ = if found.is_dir() {
                std::fs::remove_dir_all(&self.path)
            } else {
                std::fs::remove_file(&self.path)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_that_was_not_kept_is_named_by_the_final_path() {
        let mut copied = Copied::default();
        for number in 0..=UNKEPT_MAX {
            copied.note_unkept(
                &Path::new("/srv/.dolmen-copy-7-0").join(number.to_string()),
                "owner",
                &"refused",
            );
        }
        copied.name_final(Path::new("/srv/.dolmen-copy-7-0"), Path::new("new"));
        assert_eq!(copied.unkept.first().map(String::as_str), Some("new/0: owner: refused"));
        assert_eq!((copied.unkept.len(), copied.unkept_count), (UNKEPT_MAX, 21));
    }
}
