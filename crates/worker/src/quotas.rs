//! Quotas of folders: projects on XFS and ext4, subvolumes on btrfs.
//!
//! Order of a new quota on XFS and ext4: the limits first, then the project of each file. If the file system does not count
//! projects, the first step fails and nothing was changed. Each step is one that a second order repeats.

use std::fs::File;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;

use dolmen_files::FilesError;
use dolmen_files::handle::{Access, Handle};
use dolmen_files::project_quota::{Limits, project, project_usage, set_limits, set_project};
use dolmen_files::subvolume::{
    count_subvolumes, create_subvolume, limit_subvolume, subvolume, subvolume_usage,
};
use dolmen_files::walk::Walk;
use dolmen_volume::file_system::FileSystem;
use dolmen_volume::mount_point::Folder;
use dolmen_volume::record::QuotaRecord;
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::protocol::long::SkippedFiles;
use crate::protocol::{Failure, FailureCode, Outcome, QuotaUsage, Volume};
use crate::steering::with_causes;

/// Files without their project that are named.
const NAMED_MAX: usize = 8;

fn failure(code: FailureCode, folder: &Folder, finding: &str, hint: &str) -> Failure {
    let message = format!("quota of {:?}: {finding}; nothing was changed", folder.as_str());
    Failure { code, message, hint: hint.to_owned() }
}

/// Words an answer of the kernel.
fn refused(volume: &Volume, folder: &Folder, error: &FilesError) -> Failure {
    let number = error.source.raw_os_error();
    let missing = number.and_then(missing_quota).or(error.is_unsupported().then_some(NO_COUNT));
    let Some(missing) = missing else {
        let message = format!("quota of {:?}: {error}", folder.as_str());
        let hint = "`dmesg` shows what the kernel found; `dolmen volume quota list` shows which bounds hold";
        return Failure { code: FailureCode::Refused, message, hint: hint.to_owned() };
    };
    let hint = match volume.record.file_system {
        FileSystem::Xfs => {
            "boot a kernel with CONFIG_XFS_QUOTA and mount the volume again, or use a volume on btrfs"
        }
        FileSystem::Ext4 => {
            "make the file system with `-O quota,project`, and mount it with prjquota on a kernel with CONFIG_QUOTA"
        }
        FileSystem::Btrfs => "use a kernel that counts subvolumes of btrfs",
    };
    let kind = volume.record.file_system;
    let finding = format!("{kind} counts no folders here: {missing}");
    failure(FailureCode::Unsupported, folder, &finding, hint)
}

/// Finding about a file system that answers that it cannot count.
const NO_COUNT: &str = "the kernel has no quotas for this file system";

/// Returns what is missing where `quotactl` answers with this number; none if nothing is.
fn missing_quota(number: i32) -> Option<&'static str> {
    use rustix::io::Errno;
    let is = |known: Errno| known.raw_os_error() == number;
    match () {
        () if is(Errno::SRCH) => Some("it is mounted without prjquota"),
        () if is(Errno::NOSYS) => Some("the kernel was built without quotas"),
        () if is(Errno::NODEV) || is(Errno::INVAL) => Some(NO_COUNT),
        () => None,
    }
}

/// Opens a folder of the volume; none if its last part is missing.
fn open(root: &File, folder: &Folder) -> Result<Option<File>, Failure> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let path = if folder.is_root() { "." } else { folder.as_str() };
    match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
        Ok(found) => Ok(Some(File::from(found))),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(error) => Err(failure(
            FailureCode::BadPath,
            folder,
            &format!("the folder cannot be opened: {error}"),
            "name a folder of the volume, without symbolic links",
        )),
    }
}

/// Opens the folder above one, and gives the name of that.
fn above(root: &File, folder: &Folder) -> Result<(File, String), Failure> {
    let (above, name) = folder.as_str().rsplit_once('/').unwrap_or(("", folder.as_str()));
    let missing = |above: &str| {
        failure(
            FailureCode::BadPath,
            folder,
            &format!("{above:?} is no folder of the volume"),
            "make it first",
        )
    };
    let parent = above.parse().map_err(|_| missing(above))?;
    Ok((open(root, &parent)?.ok_or_else(|| missing(above))?, name.to_owned()))
}

/// Bounds a folder, which is made where it is missing. Answers with the number that counts it.
pub(crate) fn set(volume: &Volume, root: &File, quota: &QuotaRecord) -> Result<Outcome, Failure> {
    let folder = &quota.folder;
    let words = |error: FilesError| refused(volume, folder, &error);
    let limits = Limits { bytes: quota.limit_bytes, files: quota.limit_files };
    if volume.record.file_system == FileSystem::Btrfs {
        return set_on_btrfs(volume, root, quota);
    }
    let number = quota.project_id.get();
    let there = open(root, folder)?;
    if let Some(there) = &there {
        let other = project(there).map_err(words)?;
        if other != 0 && other != number {
            let finding = format!("the folder belongs to project {other}");
            return Err(failure(FailureCode::ForeignData, folder, &finding, "remove that quota first"));
        }
    }
    set_limits(&volume.device, number, limits).map_err(words)?;
    let found = match there {
        Some(there) => there,
        None => {
            let (above, name) = above(root, folder)?;
            rustix::fs::mkdirat(&above, name.as_str(), Mode::from_raw_mode(0o755)).map_err(|error| {
                failure(FailureCode::BadPath, folder, &format!("it cannot be made: {error}"), "")
            })?;
            open(root, folder)?.ok_or_else(|| failure(FailureCode::BadPath, folder, "it is missing", ""))?
        }
    };
    let skipped = Projects { from: 0, to: number }.change_all(root, &found, folder).map_err(words)?;
    Ok(Outcome::QuotaSet { project_id: quota.project_id, skipped })
}

/// A change of the project of files; those of a third project stay.
#[derive(Debug, Clone, Copy)]
struct Projects {
    from: u32,
    to: u32,
}

impl Projects {
    /// Changes a folder and all below it, folders of a third project excepted. Returns the files and folders that could not be changed:
    /// one of them, such as a file whose inode is damaged, does not keep the others from their bound.
    fn change_all(self, root: &File, found: &File, folder: &Folder) -> Result<SkippedFiles, FilesError> {
        self.change_by(&|handle| handle.open(root, Access::Read), (root, found), folder)
    }

    /// As [`change_all`](Self::change_all), with a way to open a file.
    fn change_by(
        self,
        open: &dyn Fn(&Handle) -> Result<File, FilesError>,
        (root, found): (&File, &File),
        folder: &Folder,
    ) -> Result<SkippedFiles, FilesError> {
        // New files get the project while the old ones are gone over.
        self.change(found)?;
        let mut walk = Walk::new(found, folder.as_str().as_bytes())?;
        let mut skipped = SkippedFiles::default();
        loop {
            let enter = |path: &[u8], _| {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
                let path = std::ffi::OsStr::from_bytes(path);
                let Ok(below) = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) else {
                    return true;
                };
                self.change(&File::from(below)).unwrap_or_else(|error| {
                    note(&mut skipped, path.as_bytes(), &error);
                    true
                })
            };
            let Some(file) = walk.next(enter)? else { break };
            match open(&file.handle).and_then(|file| self.change(&file)) {
                Ok(_) => {}
                Err(error) if error.is_deleted() => {}
                Err(error) => note(&mut skipped, walk.path(), &error),
            }
        }
        Ok(skipped)
    }

    /// Changes a file, and returns `false` if it is of a third project.
    fn change(self, file: &File) -> Result<bool, FilesError> {
        let project = project(file)?;
        if project == self.from {
            set_project(file, self.to)?;
        }
        Ok(project == self.from || project == self.to)
    }
}

/// Notes a file or folder that could not be changed.
fn note(skipped: &mut SkippedFiles, path: &[u8], error: &FilesError) {
    skipped.count = skipped.count.saturating_add(1);
    if skipped.first.len() < NAMED_MAX {
        skipped.first.push(format!("{}: {}", String::from_utf8_lossy(path), with_causes(error)));
    }
}

fn set_on_btrfs(volume: &Volume, root: &File, quota: &QuotaRecord) -> Result<Outcome, Failure> {
    let folder = &quota.folder;
    let words = |error: FilesError| refused(volume, folder, &error);
    if quota.limit_files.is_some() {
        let hint = "give a limit of bytes alone, or use a volume on XFS";
        return Err(failure(
            FailureCode::Unsupported,
            folder,
            "btrfs does not limit the number of files",
            hint,
        ));
    }
    if open(root, folder)?.is_none() {
        let (above, name) = above(root, folder)?;
        create_subvolume(&above, name.as_ref()).map_err(words)?;
    }
    let number = number_of(volume, root, folder)?;
    count_subvolumes(root).map_err(words)?;
    limit_subvolume(root, number.get().into(), quota.limit_bytes).map_err(words)?;
    Ok(Outcome::QuotaSet { project_id: number, skipped: SkippedFiles::default() })
}

/// Returns the number of the subvolume that a folder of btrfs is.
fn number_of(volume: &Volume, root: &File, folder: &Folder) -> Result<NonZeroU32, Failure> {
    let missing = || failure(FailureCode::BadPath, folder, "there is no such folder", "");
    let found = open(root, folder)?.ok_or_else(missing)?;
    let number = subvolume(&found).map_err(|error| refused(volume, folder, &error))?;
    number.and_then(|number| NonZeroU32::new(u32::try_from(number).ok()?)).ok_or_else(|| {
        failure(
            FailureCode::Unsupported,
            folder,
            "btrfs counts subvolumes alone, and this is a folder of another one",
            "move it away, set the quota, which makes a subvolume there, and move its content in",
        )
    })
}

/// Shows what folders hold.
pub(crate) fn list(volume: &Volume, root: &File, quotas: &[QuotaRecord]) -> Result<Outcome, Failure> {
    // btrfs counts at each commit.
    rustix::fs::syncfs(root).map_err(|error| Failure {
        code: FailureCode::Refused,
        message: format!("the file system at {}: {error}", volume.record.mount_point.as_str()),
        hint: String::new(),
    })?;
    let usage = |quota: &QuotaRecord| {
        let words = |error: FilesError| refused(volume, &quota.folder, &error);
        let (folder, project_id) = (quota.folder.clone(), quota.project_id);
        let is_gone = matches!(open(root, &folder), Ok(None));
        if volume.record.file_system == FileSystem::Btrfs {
            let found = subvolume_usage(root, project_id.get().into()).map_err(words)?;
            let (bytes, limit_bytes) = (found.bytes, found.limit_bytes);
            return Ok(QuotaUsage {
                folder,
                project_id,
                bytes,
                files: None,
                limit_bytes,
                limit_files: None,
                is_gone,
            });
        }
        let found = project_usage(&volume.device, project_id.get()).map_err(words)?;
        let (limit_bytes, limit_files) = (found.limits.bytes, found.limits.files);
        let (bytes, files) = (Some(found.bytes), Some(found.files));
        Ok(QuotaUsage { folder, project_id, bytes, files, limit_bytes, limit_files, is_gone })
    };
    Ok(Outcome::Quotas { quotas: quotas.iter().map(usage).collect::<Result<_, _>>()? })
}

/// Takes the bounds off a folder. Its content stays.
pub(crate) fn remove(volume: &Volume, root: &File, quota: &QuotaRecord) -> Result<Outcome, Failure> {
    let folder = &quota.folder;
    let words = |error: FilesError| refused(volume, folder, &error);
    if volume.record.file_system == FileSystem::Btrfs {
        // The number of one that was not seen to be set is not on record.
        let number = match quota.is_pending {
            true => match number_of(volume, root, folder) {
                Ok(number) => number.get(),
                Err(_) => return Ok(Outcome::WasDone),
            },
            false => quota.project_id.get(),
        };
        let found = subvolume_usage(root, number.into()).map_err(words)?;
        if found.limit_bytes.is_none() {
            return Ok(Outcome::WasDone);
        }
        limit_subvolume(root, number.into(), None).map_err(words)?;
        return Ok(Outcome::Done);
    }
    let number = quota.project_id.get();
    set_limits(&volume.device, number, Limits::default()).map_err(words)?;
    // Files below a path that leads to no folder any more keep their project, which has no bound.
    let Ok(Some(found)) = open(root, folder) else { return Ok(Outcome::WasDone) };
    if project(&found).map_err(words)? != number {
        return Ok(Outcome::WasDone);
    }
    // A file that keeps its project has no bound: the project has none.
    Projects { from: number, to: 0 }.change_all(root, &found, folder).map_err(words)?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// An XFS on an image, mounted; none where that cannot be had.
    struct Mounted {
        folder: tempfile::TempDir,
    }

    impl Mounted {
        fn new() -> Option<Self> {
            let folder = tempfile::tempdir().unwrap();
            let (image, mount) = (folder.path().join("image"), folder.path().join("mnt"));
            File::create(&image).unwrap().set_len(320 << 20).unwrap();
            std::fs::create_dir(&mount).unwrap();
            let is_done = |command: &mut Command| command.output().is_ok_and(|ran| ran.status.success());
            let is_mounted = rustix::process::geteuid().is_root()
                && is_done(Command::new("mkfs.xfs").arg("-q").arg(&image))
                && is_done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mount));
            if !is_mounted {
                println!("skipped: that takes root, loop devices and mkfs.xfs");
            }
            is_mounted.then_some(Self { folder })
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.folder.path().join("mnt")).output();
        }
    }

    /// Scenario: one file of a folder cannot be opened. All others get the project of the folder, and that one is named.
    #[test]
    fn one_file_that_cannot_be_changed_does_not_keep_others_from_their_project() {
        let Some(mounted) = Mounted::new() else { return };
        let top = mounted.folder.path().join("mnt");
        let path = |name: &str| top.join(name);
        std::fs::create_dir_all(path("docs/below")).unwrap();
        let names = ["docs/a", "docs/bad", "docs/below/z"];
        names.iter().for_each(|name| std::fs::write(path(name), "x").unwrap());
        let (root, folder) = (File::open(&top).unwrap(), "docs".parse::<Folder>().unwrap());
        let found = open(&root, &folder).unwrap().unwrap();
        let bad = Handle::of_entry(&File::open(path("docs")).unwrap(), "bad".as_ref()).unwrap();
        let open = |handle: &Handle| match *handle == bad {
            true => Err(FilesError { what: "open a file", source: rustix::io::Errno::IO.into() }),
            false => handle.open(&root, Access::Read),
        };
        let projects = Projects { from: 0, to: 7 };
        let skipped = projects.change_by(&open, (&root, &found), &folder).unwrap();
        assert_eq!(skipped.count, 1, "{skipped:?}");
        assert!(skipped.first[0].starts_with("docs/bad: "), "{skipped:?}");
        let projects = names.map(|name| project(&File::open(path(name)).unwrap()).unwrap());
        assert_eq!(projects, [7, 0, 7]);
        assert_eq!(project(&File::open(path("docs/below")).unwrap()).unwrap(), 7);
    }
}
