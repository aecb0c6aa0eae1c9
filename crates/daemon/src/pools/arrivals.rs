//! Disks that appear while the daemon runs: members that were absent are taken back in, and pools that a start could not open for
//! lack of disks are opened ([docs/design/0037](../../../docs/design/0037-disks-that-return.md)).
//!
//! The watcher's thread looks at names and numbers every two seconds, and only while something is awaited. Labels are read when
//! two looks in a row have seen the same disks, and others than before.
//!
//! Invariant: nothing is opened and nothing taken in but by the functions behind a start, `dolmen pool import` and `dolmen disk
//! online`, under the same locks.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{ErrorBody, ErrorCode, EventCode, Object};
use dolmen_block_io::{Instant, Seams, sleep};
use dolmen_disk::Label;
use dolmen_pool::{Candidate, Disk};
use dolmen_units::{DiskId, PoolId};

use crate::attach::Transports;
use crate::base::Base;
use crate::config::{Config, Returned};
use crate::disks::{
    Appeared, Arrival, Devices, Membership, PlacesToWatch, awaited, comes_and_goes, connected_absent,
    decide_on_arrival, has_left, is_copied, is_copy_of, is_on_space, note_connections, note_ended,
    note_return,
};
use crate::io_worker::IoWorker;
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::pools::opening::Opening;
use crate::state::{Connection, Events, Members, change};

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Time for which labels are read again after disks have appeared: one may answer late, or be in use by another process.
const READ_AGAIN_FOR: Duration = Duration::from_secs(60);
/// Longest pause between two tries to take in a disk that was left out.
const TRY_AT_LEAST_EVERY: Duration = Duration::from_secs(600);
/// Time for which a pool waits for the rest of its disks before it is opened degraded.
const WAIT_FOR_THE_REST: Duration = Duration::from_secs(10);
/// Tries after which a disk that another process uses is reported.
const SILENT_TRIES_MAX: u32 = 3;

/// Disks of open pools, and pools, that are awaited.
type Awaited = (BTreeSet<(PoolId, DiskId)>, BTreeSet<PoolId>);

/// Schedule by which labels are read.
struct Schedule {
    seen: Option<(Appeared, Awaited)>,
    changed: Instant,
    next: Instant,
    pause: Duration,
}

impl Schedule {
    const fn new() -> Self {
        Self { seen: None, changed: Instant(0), next: Instant(0), pause: LOOK_EVERY }
    }

    /// Returns whether labels are to be read now. Where something `failed`, it is tried again with pauses that double.
    fn is_due(&mut self, now: Instant, seen: (Appeared, Awaited), failed: bool) -> bool {
        if self.seen.as_ref() != Some(&seen) {
            *self = Self { seen: Some(seen), changed: now, next: now, pause: LOOK_EVERY };
            return false;
        }
        if now < self.next || !failed && now.since(self.changed) > READ_AGAIN_FOR {
            return false;
        }
        self.next = now + self.pause;
        self.pause = (self.pause * 2).min(TRY_AT_LEAST_EVERY);
        true
    }
}

/// Report of a device that is left out.
#[derive(Debug, Default)]
struct LeftOut {
    text: String,
    tries: u32,
}

/// Looks for disks that appear.
pub(crate) struct Arrivals {
    pools: Rc<OpenPools>,
    devices: Rc<Devices>,
    membership: Rc<Membership>,
    opening: Rc<Opening>,
    members: Rc<Members>,
    transports: Rc<Transports>,
    events: Rc<Events>,
    config: Rc<Config>,
    seams: Seams,
    watcher: Rc<IoWorker>,
    /// Reports by object and path.
    left_out: RefCell<BTreeMap<(String, String), LeftOut>>,
}

impl Arrivals {
    pub(crate) fn new(
        base: &Base,
        devices: &Rc<Devices>,
        membership: &Rc<Membership>,
        opening: &Rc<Opening>,
    ) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            devices: Rc::clone(devices),
            membership: Rc::clone(membership),
            opening: Rc::clone(opening),
            members: Rc::clone(&base.members),
            transports: Rc::clone(&base.transports),
            events: Rc::clone(&base.events),
            config: Rc::clone(&base.config),
            seams: base.seams.clone(),
            watcher: Rc::clone(&base.watcher),
            left_out: RefCell::default(),
        }
    }

    /// Looks for as long as the daemon runs, unless a setting says otherwise.
    pub(crate) fn keep_looking(self: &Rc<Self>) {
        if self.config.returned == Returned::Left {
            return;
        }
        let (service, clock) = (Rc::downgrade(self), Rc::clone(&self.seams.clock));
        let looking = async move {
            let mut schedule = Schedule::new();
            loop {
                sleep(clock.as_ref(), LOOK_EVERY).await;
                let Some(service) = service.upgrade() else { return };
                if service.pools.is_stopping.get() {
                    return;
                }
                service.look(&mut schedule).await;
            }
        };
        self.seams.spawner.spawn("disks that appear", Box::pin(looking));
    }

    async fn look(&self, schedule: &mut Schedule) {
        self.pools.open_pools().iter().for_each(|pool| note_connections(pool, &self.members));
        let connected: Vec<_> = self
            .pools
            .open_pools()
            .iter()
            .flat_map(|pool| connected_absent(pool).into_iter().map(|one| (pool.id(), one)))
            .collect();
        if connected.is_empty() && self.is_nothing_awaited() {
            self.left_out.borrow_mut().clear();
            *schedule = Schedule::new();
            return;
        }
        let places = self.places();
        let looked = self.watcher.run(move || {
            // Nothing that lies on a space is touched.
            let has_ended = |(_, (_, path, connection)): &(PoolId, (DiskId, PathBuf, Connection))| {
                !is_on_space(path) && connection.has_ended(path)
            };
            let ended: Vec<_> = connected.into_iter().filter(has_ended).collect();
            Ok((places.look()?, ended))
        });
        // Where it is unknown, nothing has appeared.
        let Ok((appeared, ended)) = looked.await else { return };
        for (pool, (disk, _, connection)) in ended {
            if let Some(pool) = self.pools.open_pool_of(pool) {
                note_ended(&pool, disk, connection);
            }
        }
        let (awaited, now) = (self.awaited(), self.seams.clock.now());
        let failed = !self.left_out.borrow().is_empty();
        let is_awaited = !(awaited.0.is_empty() && awaited.1.is_empty());
        if schedule.is_due(now, (appeared, awaited), failed) && is_awaited {
            self.read_labels(now.since(schedule.changed)).await;
        }
    }

    fn is_nothing_awaited(&self) -> bool {
        let (disks, pools) = self.awaited();
        disks.is_empty() && pools.is_empty()
    }

    fn awaited(&self) -> Awaited {
        let open = self.pools.open_pools();
        let of = |pool: &Rc<OpenPool>| {
            let id = pool.id();
            awaited(pool).into_iter().map(move |disk| (id, disk.id())).collect::<Vec<_>>()
        };
        let closed = self.pools.closed.borrow();
        let closed = closed.iter().filter(|(_, closed)| closed.opens_by_itself()).map(|(id, _)| *id);
        (open.iter().flat_map(of).collect(), closed.collect())
    }

    /// Returns where disks are looked for: where those that are awaited were, and where a start looks.
    fn hints(&self) -> Vec<PathBuf> {
        let open = self.pools.open_pools();
        let awaiting = open.iter().filter(|pool| !awaited(pool).is_empty());
        let names =
            awaiting.flat_map(|pool| pool.spaces.pool().disks()).map(|disk| PathBuf::from(disk.name()));
        let mut hints: Vec<PathBuf> = names.filter(|path| path.is_absolute()).collect();
        let closed = self.pools.closed.borrow();
        let closed = closed.values().filter(|closed| closed.opens_by_itself());
        hints.extend(closed.flat_map(|closed| closed.remembered.paths.clone()));
        hints
    }

    fn places(&self) -> PlacesToWatch {
        let attached = self.transports.all();
        PlacesToWatch {
            hints: self.hints(),
            look_in: self.config.look_in.clone(),
            scan: self.config.scan,
            attached: attached.iter().map(|one| one.device().to_path_buf()).collect(),
            held: self.members.identities(),
        }
    }

    /// Reads the labels of what is there, some time after it has appeared, and does what follows.
    async fn read_labels(&self, after: Duration) {
        let Ok(found) = self.devices.look_at(&self.devices.places(&self.hints())).await else { return };
        // None of the devices stays open: taking one in opens it exclusively.
        let found = found.pools.into_values().flatten().map(Labelled::of);
        let is_free = |one: &Labelled| self.devices.pool_with(&one.path).is_none();
        let found: Vec<Labelled> = found.filter(is_free).collect();
        self.forget_vanished(&found);
        for pool in self.pools.open_pools() {
            self.sort_out(&pool, &of_pool(&found, pool.id())).await;
        }
        let closed = self.awaited().1;
        for id in closed {
            let disks = of_pool(&found, id);
            if !disks.is_empty() && (is_complete(&disks) || after >= WAIT_FOR_THE_REST) {
                self.open(id).await;
            }
        }
    }

    /// Takes in awaited disks of a pool, and reports those that are left out.
    async fn sort_out(&self, pool: &Rc<OpenPool>, found: &[&Labelled]) {
        let mut by_disk: BTreeMap<DiskId, Vec<&Labelled>> = BTreeMap::new();
        for one in found {
            by_disk.entry(one.label.disk).or_default().push(one);
        }
        let expected = awaited(pool);
        for (id, devices) in by_disk {
            let Some(first) = devices.first() else { continue };
            let path = first.path.as_path();
            let members = pool.spaces.pool().disks();
            match (expected.iter().find(|disk| disk.id() == id), members.iter().find(|disk| disk.id() == id))
            {
                (Some(disk), _) => self.arrived(pool, disk, &devices).await,
                (None, Some(disk)) if disk.is_present() => {
                    self.leave_out(
                        Object::disk(pool.name(), disk.slot().0),
                        path,
                        &is_copy_of(pool, disk, path),
                    );
                }
                (None, None) if pool.spaces.pool().members().is_former_member(&first.label) => {
                    self.leave_out(Object::pool(pool.name()), path, &has_left(pool, path));
                }
                // It waits for a command, or is of a line that went on apart.
                (None, Some(_) | None) => {}
            }
        }
    }

    async fn arrived(&self, pool: &Rc<OpenPool>, disk: &Rc<Disk>, devices: &[&Labelled]) {
        let (object, now) = (Object::disk(pool.name(), disk.slot().0), self.seams.clock.now());
        let Some(path) = devices.first().map(|one| one.path.as_path()) else { return };
        match decide_on_arrival(pool, disk.id(), devices.len(), now) {
            Arrival::Copies => self.leave_out(
                object,
                path,
                &is_copied(pool, disk, devices.iter().map(|one| one.path.as_path())),
            ),
            Arrival::Flapping => self.leave_out(object, path, &comes_and_goes(pool, disk, path)),
            Arrival::TakeIn => match self.membership.take_back(pool.id(), disk.id(), path).await {
                Ok(Some(taken)) => {
                    note_return(pool, disk.id(), now);
                    let text = format!("{}: it came back, and what it missed is copied to it", taken.message);
                    tracing::info!(pool = pool.name(), "{text}");
                    self.events.report(change(EventCode::DiskOnline, object, text));
                }
                Ok(None) => {}
                Err(error) => self.leave_out(object, path, &error),
            },
        }
    }

    async fn open(&self, id: PoolId) {
        let named = self.pools.closed.borrow().get(&id).map(|closed| closed.remembered.name.clone());
        let Some(name) = named else { return };
        // The watch of events reports a pool that is open.
        if let Err(error) = self.opening.open_late(id).await {
            self.leave_out(Object::pool(name.as_str()), Path::new(&name), &error);
        }
    }

    /// Reports why a disk or a pool that is here is not used: once for each reason. A reason that may pass by itself is reported
    /// after a few tries.
    fn leave_out(&self, object: Object, path: &Path, why: &ErrorBody) {
        if why.code == ErrorCode::Stopping {
            return;
        }
        let mut left_out = self.left_out.borrow_mut();
        let known = left_out.entry((object.to_string(), path.display().to_string())).or_default();
        known.tries = known.tries.saturating_add(1);
        let may_pass = matches!(why.code, ErrorCode::DeviceInUse | ErrorCode::Busy | ErrorCode::Io);
        if known.text == why.message || may_pass && known.tries < SILENT_TRIES_MAX {
            return;
        }
        known.text.clone_from(&why.message);
        let is_pool = object.kind == dolmen_api::ObjectKind::Pool;
        let code = if is_pool { EventCode::PoolLeftClosed } else { EventCode::DiskLeftOut };
        let hint = why.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
        let text = format!("{}{hint}", why.message.trim_end_matches("; nothing was changed"));
        tracing::warn!(%object, "{text}");
        self.events.report(change(code, object, text));
    }

    /// Forgets what was reported of devices that are here no more, so that it is reported when they come again.
    fn forget_vanished(&self, found: &[Labelled]) {
        let here: BTreeSet<String> = found.iter().map(|one| one.path.display().to_string()).collect();
        let closed = self.pools.closed.borrow();
        let is_closed = |name: &str| closed.values().any(|closed| closed.remembered.name == name);
        self.left_out.borrow_mut().retain(|(_, path), _| here.contains(path) || is_closed(path));
    }
}

/// Label of the device at a path, which is not open.
struct Labelled {
    path: PathBuf,
    label: Label,
}

impl Labelled {
    fn of(candidate: Candidate) -> Self {
        Self { path: PathBuf::from(candidate.device.name()), label: candidate.label }
    }
}

fn of_pool(found: &[Labelled], pool: PoolId) -> Vec<&Labelled> {
    found.iter().filter(|one| one.label.pool == pool).collect()
}

/// Returns whether a device of each member of a pool is here, by the label that counts most of them.
fn is_complete(found: &[&Labelled]) -> bool {
    let disks: BTreeSet<DiskId> = found.iter().map(|one| one.label.disk).collect();
    let members = found.iter().map(|one| one.label.base.members.len()).max();
    members.is_some_and(|members| disks.len() >= members)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: disks appear, and stay. Labels are read at the next look, more and more seldom for a minute, and then no more; where
    /// something could not be taken in, they are read every ten minutes at least.
    #[test]
    fn labels_are_read_when_what_is_seen_stays() {
        let second = |s: u64| Instant(0) + Duration::from_secs(s);
        let awaited = |pool: u8| (BTreeSet::new(), BTreeSet::from([PoolId([pool; 16])]));
        let mut schedule = Schedule::new();
        let mut due = |seconds: std::ops::Range<u64>, pool, failed| {
            let look = |s: &u64| schedule.is_due(second(*s), (Appeared::default(), awaited(pool)), failed);
            seconds.step_by(2).filter(look).collect::<Vec<u64>>()
        };
        assert_eq!(due(10..600, 1, false), [12, 14, 18, 26, 42]);
        assert_eq!(due(600..640, 2, false), [602, 604, 608, 616, 632]);
        let seldom = due(640..8000, 2, true);
        assert!(seldom.windows(2).all(|pair| pair[1] - pair[0] <= 600), "{seldom:?}");
        assert!(seldom.last().is_some_and(|last| 8000 - last <= 600), "{seldom:?}");
        assert!(seldom.len() < 20, "{seldom:?}");
    }
}
