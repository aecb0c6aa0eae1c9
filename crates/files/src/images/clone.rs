//! Clones of an image.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Component, Path, PathBuf};

use dolmen_mutation::mutation;
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;

use super::error::ImageError;
use super::source::{Source, Watch};
use super::{Image, ImageName, Library, MACHINES, copy_bytes, link, sync, unnamed};
use crate::copy::Fallback;
use crate::copy::content::{cannot_share, share_all};
use crate::copy::place::file_system_of;

/// Clones that were made by one call.
#[derive(Debug, Default)]
pub struct Clones {
    /// Paths of the clones.
    pub paths: Vec<PathBuf>,
    /// Bytes of each.
    pub size_bytes: u64,
    /// Bytes that were copied for all of them, because they could not be shared.
    pub copied_bytes: u64,
    /// Error that kept the others from being made.
    pub stopped_by: Option<ImageError>,
}

/// Place of a clone.
struct Target<'a> {
    folder: File,
    folder_path: PathBuf,
    name: &'a Path,
    path: PathBuf,
}

/// What happens where the folder of clones is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// It is made.
    Made,
    /// Its clones are left out: their names are free.
    LeftOut,
}

impl Library {
    /// Finds a clone by what its user wrote: a name beside other clones, or a path on the volume.
    ///
    /// Returns the path beneath the root of the volume.
    ///
    /// # Errors
    /// [`ImageError::Outside`] for a path that is not on the volume.
    pub fn target(&self, written: &Path) -> Result<PathBuf, ImageError> {
        let outside = || ImageError::Outside { path: written.to_owned(), root: self.path.clone() };
        let is_name =
            written.components().count() == 1 && !written.as_os_str().as_encoded_bytes().contains(&b'/');
        if is_name {
            let name: Option<ImageName> = written.to_str().and_then(|name| name.parse().ok());
            return name.map(|name| Path::new(MACHINES).join(name)).ok_or_else(outside);
        }
        let (Some(Component::Normal(name)), Some(parent)) =
            (written.components().next_back(), written.parent())
        else {
            return Err(outside());
        };
        let root = self.path.canonicalize().map_err(ImageError::io("find", &self.path))?;
        let parent = parent.canonicalize().map_err(ImageError::io("find", parent))?;
        parent.strip_prefix(&root).map(|below| below.join(name)).map_err(|_| outside())
    }

    /// Clones an image to paths beneath the root of the volume. `size_bytes` grows the clones.
    ///
    /// All clones are made without names and written to disk; then they get their names, one after another. So an error before
    /// leaves none, and [`Clones::stopped_by`] has one that came between the names.
    ///
    /// # Errors
    /// [`ImageError`]; no clone was made then.
    pub fn clone_image(
        &self,
        name: &ImageName,
        targets: &[PathBuf],
        size_bytes: Option<u64>,
        fallback: Fallback,
        watch: &mut Watch<'_>,
    ) -> Result<Clones, ImageError> {
        let source = self.open(name)?;
        let asked_bytes = self.clone_size(name, source.size_bytes(), size_bytes)?;
        let targets = self.free_targets(targets, Missing::Made)?;
        let mut clones = Clones { size_bytes: asked_bytes, ..Clones::default() };
        let mut files = Vec::new();
        for target in &targets {
            let file = unnamed(&target.folder, &target.path)?;
            clones.copied_bytes += self.fill_clone(&source, target, &file, fallback, watch)?;
            file.set_len(asked_bytes).map_err(ImageError::io("set the size of", &target.path))?;
            rustix::fs::fchmod(&file, Mode::RUSR | Mode::WUSR)
                .map_err(ImageError::at("protect", &target.path))?;
            files.push(file);
        }
        // The first one writes the log of the file system; the others find theirs written.
        for (file, target) in files.iter().zip(&targets) {
            sync(self, file, &target.path)?;
        }
        for (file, target) in files.iter().zip(&targets) {
            match link(file, &target.folder, target.name, &target.path) {
                Ok(()) => clones.paths.push(target.path.clone()),
                Err(error) => {
                    clones.stopped_by = Some(error);
                    break;
                }
            }
        }
        let mut synced = BTreeSet::new();
        for target in targets.iter().filter(|target| synced.insert(&target.folder_path)) {
            target.folder.sync_all().map_err(ImageError::io("write to disk", &target.folder_path))?;
        }
        Ok(clones)
    }

    /// Looks at what [`Self::clone_image`] would do, and changes nothing.
    ///
    /// # Errors
    /// [`ImageError`], for the reasons that are seen before a clone is made.
    pub fn require_clones(
        &self,
        image: &Image,
        targets: &[PathBuf],
        size_bytes: Option<u64>,
    ) -> Result<(), ImageError> {
        self.clone_size(&image.name, image.size_bytes, size_bytes)?;
        self.free_targets(targets, Missing::LeftOut).map(drop)
    }

    fn clone_size(&self, name: &ImageName, image_bytes: u64, asked: Option<u64>) -> Result<u64, ImageError> {
        let asked_bytes = asked.unwrap_or(image_bytes);
        if asked_bytes < image_bytes && !mutation!(CloneShrunk) {
            return Err(ImageError::Shrinks { path: self.path_of(name), image_bytes, asked_bytes });
        }
        Ok(asked_bytes)
    }

    /// Opens the folders of clones; fails if a name is taken.
    fn free_targets<'a>(
        &self,
        targets: &'a [PathBuf],
        missing: Missing,
    ) -> Result<Vec<Target<'a>>, ImageError> {
        let mut named = BTreeSet::new();
        let mut free = Vec::new();
        for below in targets {
            let path = self.path.join(below);
            let (Some(name), Some(parent)) = (below.file_name(), below.parent()) else {
                return Err(ImageError::Outside { path, root: self.path.clone() });
            };
            if !named.insert(below) {
                return Err(ImageError::NamedTwice { path });
            }
            let folder = match (parent == Path::new(MACHINES), missing) {
                (true, Missing::Made) => self.made_folder(MACHINES)?,
                (true, Missing::LeftOut) => match self.folder(parent) {
                    Err(ImageError::Missing { .. }) => continue,
                    found => found?,
                },
                (false, _) => self.folder(parent)?,
            };
            match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => {}
                Ok(_) => return Err(ImageError::Exists { path }),
                Err(error) => return Err(ImageError::at("look at", &path)(error)),
            }
            free.push(Target { folder, folder_path: self.path.join(parent), name: Path::new(name), path });
        }
        Ok(free)
    }

    /// Fills one clone. Returns how many bytes were copied.
    fn fill_clone(
        &self,
        source: &Source,
        target: &Target<'_>,
        file: &File,
        fallback: Fallback,
        watch: &mut Watch<'_>,
    ) -> Result<u64, ImageError> {
        match share_all(source.file(), file) {
            Ok(()) => Ok(0),
            Err(error) if !cannot_share(&error) => Err(self.write_error(file, &target.path, error.source, 0)),
            Err(error) if fallback == Fallback::Refuse => Err(ImageError::NotShared {
                path: source.path().to_owned(),
                source_system: file_system_of(source.path()),
                target_system: file_system_of(&target.folder_path),
                why: error.source,
            }),
            Err(_) => copy_bytes(self, source, file, &target.path, watch),
        }
    }
}
