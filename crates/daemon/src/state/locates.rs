//! Disks that show where they are.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use dolmen_units::DiskId;

use crate::io_worker::IoWorker;

/// Which disks show where they are.
pub(crate) struct Locates {
    /// Asks the kernel for lights, which may take its time.
    pub(crate) file_worker: IoWorker,
    /// Each with what ends it.
    pub(crate) shown: RefCell<BTreeMap<DiskId, Rc<Cell<bool>>>>,
}

impl Locates {
    pub(crate) fn new(file_worker: IoWorker) -> Self {
        Self { file_worker, shown: RefCell::default() }
    }

    /// Ends what a disk shows; whether it did.
    pub(crate) fn end(&self, disk: DiskId) -> bool {
        let ended = self.shown.borrow_mut().remove(&disk);
        ended.is_some_and(|is_over| !is_over.replace(true))
    }

    pub(crate) fn begin(&self, disk: DiskId) -> Rc<Cell<bool>> {
        self.end(disk);
        let is_over = Rc::new(Cell::new(false));
        self.shown.borrow_mut().insert(disk, Rc::clone(&is_over));
        is_over
    }

    pub(crate) async fn light_of(&self, path: PathBuf, sys: PathBuf) -> Option<PathBuf> {
        self.file_worker.run(move || Ok(light_of(&path, &sys))).await.ok().flatten()
    }

    pub(crate) async fn set(&self, light: PathBuf, state: &'static str) -> std::io::Result<()> {
        self.file_worker.run(move || fs::write(light, state)).await
    }
}

pub(crate) fn is_block_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.file_type().is_block_device())
}

/// The file that puts the light of a disk's place on and out.
pub(crate) fn light_of(path: &Path, sys: &Path) -> Option<PathBuf> {
    let real = path.canonicalize().ok()?;
    let is_device = is_block_device(&real);
    // A file may be called as a disk is. In a folder that stands for the kernel's, everything is what it is called.
    if !is_device && sys == Path::new(crate::config::SYS_FOLDER) {
        return None;
    }
    let entry = sys.join("class/block").join(real.file_name()?);
    let whole = match entry.join("partition").exists() {
        true => entry.canonicalize().ok()?.parent()?.to_path_buf(),
        false => entry,
    };
    let places = fs::read_dir(whole.join("device")).ok()?.flatten();
    let mut lights = places
        .filter(|place| place.file_name().to_string_lossy().starts_with("enclosure_device:"))
        .map(|place| place.path().join("locate"));
    lights.find(|light| light.exists())
}
