//! A disk shows where it is: by the light of its place in an enclosure, where there is one, and else by reads in bursts, a second on
//! and a second off, by which the light blinks that shows its activity (docs/design/0022).
//!
//! Invariants:
//! - It ends by itself: with its time, the disk, the pool or the daemon. A light that a daemon left on is put out with `--off`.
//! - The reads are few, and what becomes of them says nothing of the disk.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{Change, ErrorBody, ErrorCode, LocateDisk, duration};
use dolmen_block_io::{Instant, Seams, read, sleep};
use dolmen_pool::Disk;
use dolmen_units::{BLOCK_BYTES, Epoch};

use crate::answer::Answer;
use crate::base::Base;
use crate::config::Config;
use crate::disks::find::find_disk;
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::plan::{Undo, made, planned};
use crate::state::{Locates, is_block_device};

/// How long reads go on, and how long they pause.
const BURST: Duration = Duration::from_secs(1);
/// How far apart they are in a burst: a light shows it, and a disk that seeks has most of its time left.
const READ_EVERY: Duration = Duration::from_millis(25);
/// Far apart on the disk, so that it does not answer from its memory.
const STRIDE: u64 = 7_919;

/// Lights of disks.
pub(crate) struct Locator {
    pools: Rc<OpenPools>,
    seams: Seams,
    config: Rc<Config>,
    locates: Rc<Locates>,
}

impl Locator {
    pub(crate) fn new(base: &Base) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            seams: base.seams.clone(),
            config: Rc::clone(&base.config),
            locates: Rc::clone(&base.locates),
        }
    }
}

impl Locator {
    /// Has a disk show where it is, or ends that.
    pub(crate) async fn locate_disk(
        self: &Rc<Self>,
        name: String,
        what: String,
        request: LocateDisk,
    ) -> Answer<Change> {
        self.pools.check_running()?;
        let pool = self.pools.pool(&name)?;
        let disk = find_disk(&pool, &what)?;
        let seconds = request.seconds.unwrap_or(LocateDisk::SECONDS_USUAL);
        if !(1..=LocateDisk::SECONDS_MAX).contains(&seconds) {
            let message = format!("{seconds} seconds are none or too many; nothing was changed");
            let hint = format!("from 1 to {} seconds", LocateDisk::SECONDS_MAX);
            return Err(ErrorBody::new(ErrorCode::BadRequest, message).on(what).hint(hint));
        }
        let called = pool.called(&disk);
        if !disk.is_present() && !request.off {
            let message = format!("{called} is absent, and cannot show where it is; nothing was changed");
            return Err(ErrorBody::new(ErrorCode::NoSuchDevice, message)
                .on(what)
                .hint("the others can: one place after another shows which one is left"));
        }
        let light = self.locates.light_of(PathBuf::from(disk.name()), self.config.sys.clone()).await;
        if request.off {
            return self.end_locate(&pool, &disk, light, request.dry_run).await;
        }
        let time = duration(seconds);
        let is_file = !is_block_device(Path::new(&disk.name()));
        let step = match &light {
            Some(_) => format!("put on the light of the place of {called} for {time}"),
            None => format!(
                "read {called} in bursts, a second on and a second off, for {time}, {}",
                if is_file {
                    "which shows on the light of the disk that the file lies on, if it has one"
                } else {
                    "so that its light blinks"
                }
            ),
        };
        let undo = Undo::By(format!("dolmen disk locate {name} {} --off", disk.slot().0));
        let plan = pool.plan(undo, vec![step]);
        if request.dry_run {
            return Ok(planned(plan, format!("{called} would show where it is for {time}")));
        }
        let mut warnings = Vec::new();
        let mut lit = None;
        if let Some(light) = light {
            match self.locates.set(light.clone(), "1").await {
                Ok(()) => lit = Some(light),
                Err(error) => warnings.push(format!(
                    "the light of its place could not be put on: {error}; it is read in bursts instead"
                )),
            }
        }
        let how = match (&lit, is_file) {
            (Some(_), _) => "the light of its place is on",
            (None, false) => "the light of the disk itself blinks",
            (None, true) => {
                "it is a file, which has no light of its own, and is read in bursts, which shows on the light of the disk that it \
                 lies on, if that has one"
            }
        };
        self.show(&pool, &disk, Duration::from_secs(seconds), lit);
        let mut change = made(plan, format!("{called} shows where it is for {time}: {how}"));
        change.warnings = warnings;
        Ok(change)
    }

    async fn end_locate(
        &self,
        pool: &OpenPool,
        disk: &Disk,
        light: Option<PathBuf>,
        dry_run: bool,
    ) -> Answer<Change> {
        let called = pool.called(disk);
        let plan = pool.plan(Undo::NotNeeded, vec![format!("have {called} show no more where it is")]);
        if dry_run {
            return Ok(planned(plan, format!("{called} would show no more where it is")));
        }
        let was_shown = self.locates.end(disk.id());
        if let Some(light) = &light {
            // Also one that a daemon before has left on.
            self.locates.set(light.clone(), "0").await.map_err(|error| {
                let message = format!("the light of the place of {called} could not be put out: {error}");
                ErrorBody::new(ErrorCode::Io, message).on(disk.name())
            })?;
        }
        match was_shown || light.is_some() {
            true => Ok(made(plan, format!("{called} shows no more where it is"))),
            false => Ok(planned(plan, format!("{called} does not show where it is"))),
        }
    }

    /// Goes on until it is over.
    fn show(self: &Rc<Self>, pool: &OpenPool, disk: &Rc<Disk>, lasts: Duration, light: Option<PathBuf>) {
        let is_over = self.locates.begin(disk.id());
        let end = self.seams.clock.now() + lasts;
        let called = pool.called(disk);
        tracing::info!(disk = called, ?lasts, "a disk shows where it is");
        let (service, disk) = (Rc::downgrade(self), Rc::clone(disk));
        let (seams, id) = (self.seams.clone(), disk.id());
        let task = async move {
            let goes_on = || !is_over.get() && disk.is_present() && service.strong_count() > 0;
            while goes_on() && seams.clock.now() < end {
                let burst = seams.clock.now();
                match light {
                    Some(_) => sleep(seams.clock.as_ref(), BURST).await,
                    None => {
                        while goes_on() && seams.clock.now().since(burst) < BURST {
                            read_somewhere(&seams, &disk, seams.clock.now()).await;
                            sleep(seams.clock.as_ref(), READ_EVERY).await;
                        }
                        sleep(seams.clock.as_ref(), BURST).await;
                    }
                }
            }
            let Some(service) = service.upgrade() else { return };
            // Whoever has ended it, or begun it again, has seen to the light.
            if is_over.get() {
                return;
            }
            service.locates.end(id);
            if let Some(light) = light
                && let Err(error) = service.locates.set(light, "0").await
            {
                tracing::warn!(disk = called, %error, "the light of a disk's place could not be put out");
            }
        };
        self.seams.spawner.spawn("locate", Box::pin(task));
    }
}

/// Reads a block far from the one before.
async fn read_somewhere(seams: &dolmen_block_io::Seams, disk: &Disk, now: Instant) {
    let (Some(device), Ok(bytes)) = (disk.device(), usize::try_from(BLOCK_BYTES)) else { return };
    let blocks = (device.geometry().capacity.0 / BLOCK_BYTES).max(1);
    // Where there is no memory to spare, clients have work for the disk, and its light shows that.
    let Some(buffer) = seams.data.try_take(bytes) else { return };
    let at = now.0 / 1_000_000 * STRIDE % blocks * BLOCK_BYTES;
    let _ = read(device.as_ref(), Epoch(u64::MAX), at, buffer).await;
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::state::light_of;

    /// Scenario: a disk in an enclosure, a partition of it, a disk beside it, and a file that is called as the disk is on a system
    /// that has one of that name.
    #[test]
    fn a_light_is_that_of_the_whole_disk_and_of_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let (sys, dev) = (folder.path().join("sys"), folder.path().join("dev"));
        let place = sys.join("devices/sdx/device/enclosure_device:Slot 3");
        [
            &place,
            &sys.join("devices/sdx/sdx1"),
            &sys.join("devices/sdy/device"),
            &sys.join("class/block"),
            &dev,
        ]
        .into_iter()
        .for_each(|path| fs::create_dir_all(path).unwrap());
        fs::write(place.join("locate"), "0").unwrap();
        fs::write(sys.join("devices/sdx/sdx1/partition"), "1").unwrap();
        for (name, to) in [("sdx", "sdx"), ("sdx1", "sdx/sdx1"), ("sdy", "sdy")] {
            symlink(sys.join("devices").join(to), sys.join("class/block").join(name)).unwrap();
            fs::write(dev.join(name), "").unwrap();
        }
        let found = |name: &str| light_of(&dev.join(name), &sys).map(|path| fs::canonicalize(path).unwrap());
        let light = Some(place.join("locate"));
        assert_eq!((found("sdx"), found("sdx1"), found("sdy")), (light.clone(), light, None));
        assert_eq!(light_of(&dev.join("sdx"), Path::new("/sys")), None, "a file is no disk");
        assert_eq!(light_of(&dev.join("gone"), &sys), None);
    }
}
