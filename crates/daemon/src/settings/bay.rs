//! Bays that people name, so that whoever stands before the machine finds the disk that is meant (docs/design/0022).

use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, SetDisk};
use dolmen_pool::Disk;
use dolmen_units::DiskId;

use crate::answer::Answer;
use crate::disks::find_disk;
use crate::fault;
use crate::open_pool::OpenPool;
use crate::plan::{Undo, made, planned};
use crate::settings::service::Settings;

const _: () =
    assert!(SetDisk::BAY_BYTES_MAX == dolmen_pool::BAY_BYTES_MAX, "what is taken can be put on record");

impl OpenPool {
    /// What people call the bay of a disk.
    pub(crate) fn bay_of(&self, disk: DiskId) -> Option<String> {
        self.bays.borrow().get(&disk).cloned()
    }

    /// What people call a disk that they may have to take in hand.
    pub(crate) fn called(&self, disk: &Disk) -> String {
        match self.bay_of(disk.id()) {
            Some(bay) => format!("{} (bay {bay})", disk.name()),
            None => disk.name(),
        }
    }

    /// Takes over what is on record. Where it cannot be read, the pool has more to worry about.
    pub(crate) async fn recall_bays(&self) {
        match self.spaces.pool().bays().await {
            Ok(bays) => drop(self.bays.replace(bays)),
            Err(error) => tracing::warn!(pool = self.name(), %error, "the names of bays cannot be read"),
        }
    }
}

impl Settings {
    /// Names the bay of a disk.
    pub(crate) async fn set_disk(&self, name: String, what: String, request: SetDisk) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let disk = find_disk(&pool, &what)?;
        pool.spaces.pool().check_writable().map_err(|error| fault::pool(&error))?;
        let bay = request.bay.trim();
        check(bay).map_err(|error| error.on(what.as_str()))?;
        let before = pool.bay_of(disk.id());
        let same_bay = |other: &&Rc<Disk>| {
            other.id() != disk.id() && !bay.is_empty() && pool.bay_of(other.id()).as_deref() == Some(bay)
        };
        let disks = pool.spaces.pool().disks();
        if let Some(other) = disks.iter().find(same_bay) {
            let (other, slot) = (other.name(), other.slot().0);
            let message = format!("bay {bay} is that of {other} already; nothing was changed");
            return Err(ErrorBody::new(ErrorCode::NameTaken, message).on(what).hint(format!(
                "name another one, or take it from {other} first: `dolmen disk set {name} {slot} --bay ''`"
            )));
        }
        if before.as_deref().unwrap_or_default() == bay {
            let text = format!("{} is there already", called_by(&disk, bay));
            return Ok(planned(pool.plan(Undo::NotNeeded, Vec::new()), text));
        }
        let (old, slot) = (before.as_deref().unwrap_or_default(), disk.slot().0);
        let undo = Undo::By(format!("dolmen disk set {name} {slot} --bay '{old}'"));
        let step = match bay {
            "" => format!("forget in which bay {} is", disk.name()),
            bay => format!("note that {} is in bay {bay}", disk.name()),
        };
        let plan = pool.plan(undo, vec![step]);
        if request.dry_run {
            return Ok(planned(plan, format!("{} would be noted", called_by(&disk, bay))));
        }
        let set = pool.spaces.pool().set_bay(&disk, bay).await;
        set.map_err(|error| fault::pool(&error).on(disk.name()))?;
        match bay {
            "" => drop(pool.bays.borrow_mut().remove(&disk.id())),
            bay => drop(pool.bays.borrow_mut().insert(disk.id(), bay.to_owned())),
        }
        Ok(made(plan, format!("{} is noted", called_by(&disk, bay))))
    }
}

fn called_by(disk: &Disk, bay: &str) -> String {
    match bay {
        "" => format!("{} in no bay that has a name", disk.name()),
        bay => format!("{} in bay {bay}", disk.name()),
    }
}

fn check(bay: &str) -> Answer<()> {
    let max = SetDisk::BAY_BYTES_MAX;
    if bay.len() <= max && !bay.chars().any(|one| one.is_control() || one == '\'') {
        return Ok(());
    }
    let message = "the name of that bay is too long, or no line of text; nothing was changed";
    Err(ErrorBody::new(ErrorCode::BadName, message)
        .hint(format!("up to {max} bytes, without control characters and single quotes")))
}
