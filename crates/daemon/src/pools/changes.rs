//! Pools: made, exported, destroyed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;

use dolmen_api::{
    AddDisks, Change, CreatePool, Destroy, ErrorBody, ErrorCode, EventCode, ImportMode, PoolDocument, SCHEMA,
    Simple,
};
use dolmen_block_io::BlockDevice;
use dolmen_pool::{
    Candidate, CreateOptions, Disk, DiskCounters, PoolError, PoolState, Role, check_devices, create_as,
    discover,
};
use dolmen_space::{Clients, DataLossEvent, RebalanceForecast, Space};
use dolmen_units::{Bytes, DiskId, Epoch, PoolId};

use crate::answer::Answer;
use crate::disks::allocate_metadata;
use crate::engine::{ClosedPool, Engine, OpenPool, parse_name};
use crate::fault;
use crate::health::{errors_text, lost_labels_text, slow_disks, unseen_errors, without_labels};
use crate::jobs::{JobView, Kind as _};
use crate::plan::{Figures, Undo, check_typed, made, offer_of, planned, usual_room};
use crate::pools::rebalance::{forecast, steps_after};
use crate::pools::resync::ResyncJob;
use crate::pools::widening::{Widening, Widenings, widenings};
use crate::settings::{Domains, check_count};
use crate::spaces::ConvertJob;
use crate::state::{Remembered, is_unreadable};
use crate::words::{clients_of, counted};

/// What is said of jobs of a pool that was exported.
const EXPORTED: &str = "its pool was exported; what the pool needs goes on where it is opened next";

/// Paths of disks, and those of them that may be overwritten, as the engine calls them.
pub(crate) struct NamedDisks {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) overwrite: Vec<String>,
}

impl NamedDisks {
    pub(crate) fn steps(&self, verb: &str) -> Vec<String> {
        let step = |path: &PathBuf| {
            let name = path.display().to_string();
            let loss = if self.overwrite.contains(&name) { ", destroying what it holds" } else { "" };
            format!("{verb} {name}{loss}")
        };
        self.paths.iter().map(step).collect()
    }
}

impl Engine {
    pub(crate) fn named_disks(&self, disks: &[String], destroy: &[String]) -> Answer<NamedDisks> {
        if let Some(stranger) = destroy.iter().find(|name| !disks.contains(name)) {
            let message =
                format!("{stranger} may be destroyed, but is not among the disks named; nothing was changed");
            return Err(ErrorBody::new(ErrorCode::BadRequest, message).on(stranger.as_str()));
        }
        let paths = disks.iter().map(|path| self.canonical(path)).collect::<Answer<Vec<_>>>()?;
        let overwrite = destroy.iter().map(|path| self.canonical(path)).collect::<Answer<Vec<_>>>()?;
        Ok(NamedDisks { paths, overwrite: overwrite.iter().map(|path| path.display().to_string()).collect() })
    }

    pub(crate) async fn create_pool(self: Rc<Self>, request: CreatePool) -> Answer<Change> {
        let _changes = self.changes.take().await;
        self.check_running()?;
        let name = parse_name(&request.name)?;
        self.check_pool_name(name.as_str())?;
        self.check_pool_count(name.as_str())?;
        if request.fault_domains.len() > request.disks.len() {
            let message = "there are more fault domains than disks; nothing was changed";
            return Err(ErrorBody::new(ErrorCode::BadRequest, message).on(name.as_str()));
        }
        check_count(request.enclosures.len(), request.fault_domains.len(), request.disks.len())
            .map_err(|error| error.on(name.as_str()))?;
        let Domains { numbers, named } = Domains::of(&request.enclosures, None)?;
        let fault_domains = if numbers.is_empty() { request.fault_domains } else { numbers };
        let disks = self.named_disks(&request.disks, &request.destroy)?;
        let id = PoolId(self.seams.entropy.next_id());
        let devices = self.open_all(&disks.paths, id)?;
        let checked = check_devices(&self.seams, &devices, &disks.overwrite).await;
        let extents = checked.map_err(|error| fault::create(&error))?;
        let domain = |slot: u16| fault_domains.get(usize::from(slot)).copied().unwrap_or(0);
        let offers: Vec<_> =
            (0u16..).zip(&extents).map(|(slot, extent)| offer_of(slot, extent, domain(slot))).collect();
        let mut steps = disks.steps("claim");
        steps.push(format!("make pool {name}"));
        let undo = Undo::unless_destroying(&disks.overwrite, format!("dolmen pool destroy {name}"));
        let plan = Figures::of_room(0, usual_room(&offers)).plan(undo, steps);
        if request.dry_run {
            return Ok(planned(plan, format!("pool {name} would be made of {}", disks_of(devices.len()))));
        }
        allocate_metadata(&disks.paths, &extents)?;
        let options = CreateOptions { name: name.clone(), overwrite: disks.overwrite, fault_domains };
        self.note_making(id, name.as_str(), &disks.paths).await?;
        self.events.note_making(id);
        let opened = create_as(&self.seams, Rc::clone(&self.arbiter), &devices, &options, id).await;
        let opened = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let found = discover(&self.seams, &devices).await;
                self.unmake(id, found.pools.get(&id).map_or(&[], Vec::as_slice)).await;
                return Err(fault::create(&error));
            }
        };
        let pool = self.adopt(opened, ImportMode::Write, Clients::Ended).await?;
        self.remember(&pool).await;
        let mut change = made(plan, format!("pool {name} is made of {}", disks_of(devices.len())));
        if !named.is_empty()
            && let Err(error) = pool.spaces.pool().name_domains(&named).await
        {
            change.warnings.push(format!(
                "its disks are kept apart by enclosures, whose names are not on record: {error}; \
                 `dolmen disk set {name} DISK --enclosure NAME` says them again"
            ));
        }
        change.pool = Some(self.view_pool(&pool).await?);
        Ok(change)
    }

    /// Puts on record that a pool is being made, before anything of it is written: half a pool is nobody's wish.
    async fn note_making(&self, id: PoolId, name: &str, paths: &[PathBuf]) -> Answer<()> {
        let mut making = Remembered::new(id, name, ImportMode::Write, paths.to_vec());
        making.is_being_made = true;
        self.ledger.put(id, &making).await.map_err(|error| {
            let message =
                format!("pool {name} cannot be put on record as being made: {error}; nothing was changed");
            ErrorBody::new(ErrorCode::Io, message).on(name)
        })
    }

    /// Wipes the labels of a pool that was begun and does not have all of them, and forgets it. One that has them is a pool,
    /// whatever failed after that, and stays.
    pub(crate) async fn unmake(&self, id: PoolId, labels: &[Candidate]) {
        if !is_unmade(labels) {
            let forgotten = self.ledger.remove(id).await;
            forgotten.err().iter().for_each(|error| tracing::warn!(%error, "a pool stays on record"));
            return;
        }
        let devices: Vec<_> = labels.iter().map(|candidate| Rc::clone(&candidate.device)).collect();
        for warning in self.wipe_and_forget(id, &devices).await {
            tracing::warn!(warning, "what was begun of a pool could not be wiped");
        }
    }

    fn check_pool_name(&self, name: &str) -> Answer<()> {
        let is_open = self.pools.borrow().values().any(|pool| pool.name() == name);
        let is_known = self.closed.borrow().values().any(|closed| closed.remembered.name == name);
        if is_open || is_known {
            let message = format!("there is a pool named {name} already; nothing was changed");
            return Err(ErrorBody::new(ErrorCode::NameTaken, message)
                .on(name)
                .hint("`dolmen pool list` shows it; a new one needs another name"));
        }
        Ok(())
    }

    pub(crate) async fn pools(self: Rc<Self>) -> Answer<dolmen_api::Pools> {
        let mut pools = Vec::new();
        for pool in self.open_pools() {
            pools.push(self.view_pool(&pool).await?);
        }
        pools.extend(self.view_closed());
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(dolmen_api::Pools { schema: SCHEMA, pools })
    }

    pub(crate) async fn show_pool(self: Rc<Self>, name: String) -> Answer<PoolDocument> {
        let closed = self.view_closed().into_iter().find(|pool| pool.name == name);
        let pool = match (self.pool(&name), closed) {
            (Ok(pool), _) => self.view_pool(&pool).await?,
            (Err(_), Some(closed)) => closed,
            (Err(error), None) => return Err(error),
        };
        Ok(PoolDocument { schema: SCHEMA, pool })
    }

    /// Refuses to close a pool that somebody uses, and says who.
    pub(crate) async fn check_unused(&self, pool: &OpenPool, doing: &str) -> Answer<()> {
        let name = pool.name();
        let mut users = Vec::new();
        for served in self.nbd.list().iter().filter(|served| served.pool == pool.id()) {
            let clients = served.lasting_clients(self.seams.clock.as_ref()).await;
            if clients > 0 {
                users.push(format!("space {} has {}", served.name, clients_of(clients)));
            }
        }
        users.extend(self.attached_of(pool).await?);
        for job in self.jobs.of_pool(pool.id(), self.seams.clock.now()) {
            users.push(format!("job {} works on {}", job.id, job.subject));
        }
        if users.is_empty() {
            return Ok(());
        }
        let message = format!(
            "pool {name} cannot be {doing} while it is in use: {}; nothing was changed",
            users.join("; ")
        );
        let mut hint =
            "detach and disconnect them, wait for the jobs or pause them, then try again".to_owned();
        for attached in self.transports.of_pool(pool.id()) {
            hint.push_str(&format!("; {}", self.to_detach(pool, &attached)));
        }
        Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint))
    }

    /// Refuses to destroy what is served, also while no client is connected: a machine that is off may have its disk there.
    fn check_unserved(&self, pool: &OpenPool) -> Answer<()> {
        let served = self.nbd.list();
        let names: Vec<&str> = served
            .iter()
            .filter(|served| served.pool == pool.id())
            .map(|served| served.name.as_str())
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        let message = format!(
            "pool {} cannot be destroyed while {} {} served over NBD; nothing was changed",
            pool.name(),
            names.join(", "),
            if names.len() == 1 { "is" } else { "are" }
        );
        let hint = names.iter().map(|name| format!("`dolmen unserve {name}`")).collect::<Vec<_>>().join(", ");
        Err(ErrorBody::new(ErrorCode::Busy, message).on(pool.name()).hint(hint))
    }

    /// Takes a pool out of the list. Requests for it fail from now on.
    fn retire(&self, pool: &OpenPool) {
        pool.is_closing.set(true);
        self.events.note_leaving(pool.id());
        self.jobs.let_go(pool.id());
        self.trash_ages.note_closed(pool.id());
        for served in self.nbd.list().iter().filter(|served| served.pool == pool.id()) {
            self.nbd.remove(&served.name);
        }
        self.close_unused_listeners();
        self.pools.borrow_mut().remove(&pool.id());
    }

    pub(crate) async fn export_pool(self: Rc<Self>, name: String, request: Simple) -> Answer<Change> {
        let _changes = self.changes.take().await;
        self.check_running()?;
        if let Some(forgotten) = self.forget_closed(&name, &request).await? {
            return Ok(forgotten);
        }
        let pool = self.pool_to_change(&name)?;
        let _exclusive = self.lock_for_change(&pool).await?;
        self.check_unused(&pool, "exported").await?;
        let before = usual_room(&pool.offers());
        let steps = vec![
            "write everything back".to_owned(),
            format!("give pool {name} up, so that any host may open it"),
        ];
        let undo = Undo::By(format!("dolmen pool import --pool {name}"));
        let plan = Figures::of_room(before, 0).plan(undo, steps);
        if request.dry_run {
            return Ok(planned(plan, format!("pool {name} would be exported")));
        }
        let remembered = self.remembered(&pool);
        self.retire(&pool);
        let exported = match pool.mode {
            ImportMode::Read => pool.spaces.close().await,
            ImportMode::Write | ImportMode::Confirmed => pool.spaces.export().await,
        };
        self.members.release_all_of(pool.id());
        if let Err(error) = exported {
            // It was closed on the way, and its disks say which step was reached. It stays on record, so that the status tells
            // of it and the next daemon opens it.
            let cause = fault::space(&error);
            let hint = format!(
                "it is closed, and still on record here: attach its disks, `dolmen pool import --pool {name}`, then export it again; or, \
                 if it is gone for good, `dolmen pool export {name}` has it forgotten"
            );
            self.closed.borrow_mut().insert(pool.id(), ClosedPool { remembered, cause: cause.clone() });
            return Err(cause.hint(hint));
        }
        self.jobs.end_those_of(pool.id(), EXPORTED).await;
        self.histories.remove(pool.id()).await;
        let forgotten = self.ledger.remove(pool.id()).await;
        let text = format!("pool {name} was exported");
        self.events.report_unknown(pool.id(), &name, EventCode::PoolExported, text).await;
        let mut change = made(plan, format!("pool {name} is exported; its disks can be moved"));
        change.warnings.extend(forgotten.err().map(|error| format!("it is still on record here: {error}")));
        Ok(change)
    }

    pub(crate) async fn destroy_pool(self: Rc<Self>, name: String, request: Destroy) -> Answer<Change> {
        let _changes = self.changes.take().await;
        let pool = self.pool_to_change(&name)?;
        let _exclusive = self.lock_for_change(&pool).await?;
        check_not_read_only(&pool)?;
        if !request.dry_run || request.destroy.is_some() {
            check_typed(request.destroy.as_deref(), &name, "pool")?;
        }
        self.check_unused(&pool, "destroyed").await?;
        self.check_unserved(&pool)?;
        let disks = pool.spaces.pool().disks();
        // What is in the trash goes as well.
        let count = pool.spaces.kept().len();
        let mut steps = vec![format!("lose {} and what is in it", counted(count, "space", "spaces"))];
        steps.extend(disks.iter().map(|disk| format!("wipe the labels of {}", disk.name())));
        let before = usual_room(&pool.offers());
        let plan = Figures::of_room(before, 0).plan(Undo::ByNothing, steps);
        if request.dry_run {
            return Ok(planned(
                plan,
                format!("pool {name} would be destroyed, with {}", counted(count, "space", "spaces")),
            ));
        }
        // Before the first label goes: half a pool is nobody's wish, so the next daemon ends what this one begins.
        let mut leaving = self.remembered(&pool);
        leaving.is_being_destroyed = true;
        // Absent ones keep their labels, whoever ends it.
        leaving.paths =
            disks.iter().filter_map(|disk| disk.device()).map(|device| device.name().into()).collect();
        self.ledger.put(pool.id(), &leaving).await.map_err(|error| {
            let message = format!(
                "pool {name} cannot be put on record as being destroyed: {error}; nothing was changed"
            );
            ErrorBody::new(ErrorCode::Io, message).on(name.as_str())
        })?;
        self.retire(&pool);
        let devices: Vec<_> = disks.iter().filter_map(|disk| disk.device()).collect();
        let mut warnings = Vec::new();
        warnings.extend(pool.spaces.close().await.err().map(|error| error.to_string()));
        warnings.extend(self.wipe_and_forget(pool.id(), &devices).await);
        self.members.release_all_of(pool.id());
        let absent = disks.iter().filter(|disk| disk.device().is_none());
        warnings.extend(absent.map(|disk| format!("{} is absent and keeps its labels", disk.name())));
        let text = format!("pool {name} was destroyed, with {}", counted(count, "space", "spaces"));
        self.events.report_unknown(pool.id(), &name, EventCode::PoolDestroyed, text).await;
        let mut change = made(plan, format!("pool {name} is destroyed"));
        change.warnings = warnings;
        Ok(change)
    }

    /// Wipes the labels of a pool's disks and forgets the pool; returns what could not be done.
    pub(crate) async fn wipe_and_forget(&self, id: PoolId, devices: &[Rc<dyn BlockDevice>]) -> Vec<String> {
        let mut warnings = Vec::new();
        for device in devices {
            let wiped = dolmen_disk::wipe(&self.seams, device.as_ref(), Epoch(u64::MAX)).await;
            warnings.extend(wiped.err().map(|error| fault_text(&error)));
        }
        self.jobs.end_those_of(id, "its pool was destroyed").await;
        self.histories.remove(id).await;
        self.trash_ages.forget(id);
        warnings.extend(self.arbiter.withdraw(id).await.err().map(|error| error.to_string()));
        warnings.extend(self.ledger.remove(id).await.err().map(|error| error.to_string()));
        warnings
    }

    /// Stops waiting for a pool that should be open here and is not, such as one whose disks are gone for good.
    async fn forget_closed(&self, name: &str, request: &Simple) -> Answer<Option<Change>> {
        if self.pool(name).is_ok() {
            return Ok(None);
        }
        let named =
            self.closed.borrow().iter().find(|(_, closed)| closed.remembered.name == name).map(|(id, _)| *id);
        let Some(id) = named else { return Ok(None) };
        if let Some(attached) = self.transports.of_pool(id).first() {
            let message = format!(
                "pool {name} cannot be forgotten while {} is attached at {}; nothing was changed",
                attached.name(),
                attached.link().display()
            );
            let hint = format!("{} detaches it, also while its pool is not open", attached.transport_of());
            return Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(hint));
        }
        let steps = vec![format!("wait no more for pool {name}; its disks stay as they are")];
        let undo = Undo::By(format!("dolmen pool import --pool {name}"));
        let plan = Figures::of_room(0, 0).plan(undo, steps);
        if request.dry_run {
            return Ok(Some(planned(
                plan,
                format!("pool {name}, which is not open, would be forgotten here"),
            )));
        }
        self.ledger.remove(id).await.map_err(|error| {
            let message = format!("pool {name} is still on record here: {error}");
            ErrorBody::new(ErrorCode::Io, message).on(name)
        })?;
        self.jobs.end_those_of(id, "its pool was forgotten here").await;
        self.histories.remove(id).await;
        self.closed.borrow_mut().remove(&id);
        let text = format!("pool {name}, which was not open, is forgotten here");
        self.events.report_unknown(id, name, EventCode::PoolExported, text).await;
        Ok(Some(made(
            plan,
            format!("pool {name}, which was not open, is forgotten here; its disks stay as they are"),
        )))
    }

    pub(crate) async fn add_disks(self: Rc<Self>, name: String, request: AddDisks) -> Answer<Change> {
        let pool = self.pool_to_change(&name)?;
        let _exclusive = self.lock_for_change(&pool).await?;
        let disks = self.named_disks(&request.disks, &request.destroy)?;
        let devices = self.open_all(&disks.paths, pool.id())?;
        let extents = self.check_for(&pool, &devices, &disks.overwrite).await?;
        let mut offers = pool.offers();
        let before = usual_room(&offers);
        let next = pool.spaces.pool().disks().iter().map(|disk| disk.slot().0 + 1).max().unwrap_or(0);
        check_count(request.enclosures.len(), 0, request.disks.len())?;
        let domains = Domains::of(&request.enclosures, Some(pool.spaces.pool()))?;
        let joining: Vec<_> = (next..)
            .zip(&extents)
            .enumerate()
            .map(|(index, (slot, extent))| offer_of(slot, extent, domains.number(index)))
            .collect();
        let (following, Widenings { wider, kept }) = match request.stays || request.spare {
            true => (RebalanceForecast::default(), Widenings::default()),
            false => (forecast(&pool, &joining).await?, widenings(&pool, &joining).await?),
        };
        if !request.spare {
            offers.extend(joining);
        }
        let undo = disks.paths.iter().map(|path| format!("dolmen pool remove {name} {}", path.display()));
        let undo = Undo::unless_destroying(&disks.overwrite, undo.collect::<Vec<_>>().join("; "));
        let moved = following.moved.0 + wider.iter().map(Widening::moved).sum::<u64>();
        let figures = Figures { before, after: usual_room(&offers), moved };
        let mut steps = disks.steps("add");
        steps.extend(wider.iter().map(|one| one.step(&name)));
        steps.extend(steps_after(&name, &following));
        if request.spare {
            steps.push("keep them empty until a disk is lost, as spares".to_owned());
        }
        let plan = figures.plan(undo, steps);
        if request.dry_run {
            return Ok(planned(
                plan,
                format!("{} would be added to pool {name}{kept}", disks_of(devices.len())),
            ));
        }
        allocate_metadata(&disks.paths, &extents)?;
        if !domains.named.is_empty() {
            let named = pool.spaces.pool().name_domains(&domains.named).await;
            named.map_err(|error| fault::pool(&error).on(name.as_str()))?;
        }
        for (index, device) in devices.into_iter().enumerate() {
            let added = pool.spaces.add_in(device, &disks.overwrite, domains.number(index)).await;
            self.remember(&pool).await;
            let disk = added.map_err(|error| but_stays(fault::space(&error), &disks.paths, index))?;
            if request.spare {
                let set = pool.spaces.pool().set_role(&disk, Some(Role::Spare)).await;
                set.map_err(|error| {
                    but_takes_data(
                        fault::pool(&error),
                        &name,
                        &disk,
                        disks.paths.get(index + 1..).unwrap_or_default(),
                    )
                })?;
            }
        }
        let tended = pool.spaces.pool().tend_voters().await;
        let were = if extents.len() == 1 { "was" } else { "were" };
        let mut change = made(plan, format!("{} {were} added to pool {name}", disks_of(extents.len())));
        change.warnings.extend(tended.err().map(|error| error.to_string()));
        self.rebalance_after(&pool, wider, &following, &mut change).await;
        change.message.push_str(&kept);
        change.pool = Some(self.view_pool(&pool).await?);
        Ok(change)
    }

    /// Begins the jobs that follow disks that were added. What is widened goes to the emptiest disks, and leaves less to be evened out.
    async fn rebalance_after(
        &self,
        pool: &Rc<OpenPool>,
        wider: Vec<Widening>,
        following: &RebalanceForecast,
        change: &mut Change,
    ) {
        let jobs = || self.jobs.of_pool(pool.id(), self.seams.clock.now()).into_iter();
        let known: Vec<u64> = jobs().map(|job| job.id).collect();
        self.widen_after(pool, wider, change).await;
        let first = change.job.as_ref().map(|job| job.id);
        let is_further = |job: &JobView| {
            job.kind.word() == ConvertJob.word() && Some(job.id) != first && !known.contains(&job.id)
        };
        change.further_jobs = jobs().filter(is_further).map(|view| view.job).collect();
        if !following.is_even() {
            self.rebalance_after_adding(pool, change).await;
        }
    }

    /// Ends the warnings about errors of disks, and about what was accepted unverified after a crash, that somebody has seen.
    /// What was counted stays; what was lost stays as long as it cannot be read.
    pub(crate) async fn acknowledge(self: Rc<Self>, name: String, request: Simple) -> Answer<Change> {
        let pool = self.pool_to_change(&name)?;
        let unseen = unseen_errors(&pool);
        let reported =
            |(disk, errors): &(Rc<Disk>, DiskCounters)| format!("{}: {}", disk.name(), errors_text(errors));
        let mut reported: Vec<String> = unseen.iter().map(reported).collect();
        let (lost, taken): (Vec<_>, Vec<_>) =
            pool.data_loss_events().into_iter().partition(|one| is_unreadable(one.kind));
        reported.extend(taken_text(&pool, &taken));
        let marked = without_labels(&pool);
        reported.extend(marked.iter().map(|disk| lost_labels_text(disk)));
        let slow = slow_disks(&pool);
        reported.extend(
            slow.iter().map(|(disk, slow)| format!("{}: {} times as slow", disk.name(), slow.times())),
        );
        let defects = pool.unseen_defects();
        reported.extend(defects.iter().map(|defects| {
            format!("{}: {}", defects.disk.name(), counted(defects.unseen, "bad place", "bad places"))
        }));
        let is_nothing = defects.is_empty()
            && unseen.is_empty()
            && taken.is_empty()
            && marked.is_empty()
            && slow.is_empty();
        let mut steps: Vec<String> =
            reported.iter().map(|reported| format!("warn no more of {reported}")).collect();
        if !lost.is_empty() {
            let places = counted(lost.len(), "place", "places");
            steps.push(format!(
                "read again what was lost in {places}, and list no more what can be read by now"
            ));
        }
        let plan = pool.plan(Undo::NotNeeded, steps);
        let reported = reported.join("; ");
        if request.dry_run && !is_nothing {
            return Ok(planned(plan, format!("of pool {name} would be acknowledged: {reported}")));
        }
        let readable = if request.dry_run { Bytes::ZERO } else { pool.look_again().await };
        let restored = (readable.0 > 0).then(|| format!("{readable} that were lost can be read by now"));
        if is_nothing {
            let nothing = format!("no disk of pool {name} had errors that nobody has acknowledged");
            let Some(restored) = restored else { return Ok(planned(plan, nothing)) };
            self.keep_history(&pool).await;
            return Ok(made(plan, format!("of pool {name}, {restored}")));
        }
        let seen = unseen.iter().map(|(disk, _)| (disk.id(), disk.counters()));
        pool.history.acknowledged.borrow_mut().extend(seen);
        pool.acknowledge_taken(&taken);
        marked.iter().for_each(|disk| disk.forget_lost_labels());
        pool.latencies.forget();
        pool.acknowledge_defects(&defects);
        tracing::info!(pool = name, reported, "errors and damage were acknowledged");
        let stay = if unseen.is_empty() { "" } else { "; errors of disks stay in `dolmen disk list`" };
        let mut message = format!("of pool {name} are acknowledged: {reported}{stay}");
        message.extend(restored.iter().map(|restored| format!("; {restored}")));
        let mut change = made(plan, message);
        let recorded = self.record_history(&pool).await;
        change.warnings.extend(
            recorded
                .err()
                .map(|error| format!("that is not on record, and the next daemon warns again: {error}")),
        );
        Ok(change)
    }

    pub(crate) async fn resync(self: Rc<Self>, name: String, request: Simple) -> Answer<Change> {
        let pool = self.pool_to_change(&name)?;
        self.check_job_room(&pool)?;
        let stale = pool.spaces.stale_rows().await.map_err(|error| fault::space(&error))?.len();
        let rows = counted(stale, "row", "rows");
        let plan = pool.plan(Undo::NotNeeded, vec![format!("bring {rows} up to date")]);
        let is_stale = pool.spaces.is_stale().await.map_err(|error| fault::space(&error))?;
        if request.dry_run || !is_stale {
            return Ok(planned(plan, format!("{rows} of pool {name} to be brought up to date")));
        }
        if self.jobs.is_taken(pool.id(), &ResyncJob, None) {
            return Ok(planned(
                plan,
                format!("{rows} of pool {name} are being brought up to date already, or that is paused"),
            ));
        }
        let job = self.start_resync(&pool).await;
        let mut change = made(plan, format!("pool {name} is being brought up to date, job {}", job.id));
        change.job = Some(job);
        Ok(change)
    }
}

/// What was accepted unverified, for each space.
fn taken_text(pool: &OpenPool, taken: &[DataLossEvent]) -> Vec<String> {
    let of_space = |space: &Rc<Space>| {
        let places = taken.iter().filter(|one| one.space == space.id()).count();
        let places = counted(places, "place", "places");
        (!places.starts_with("0 ")).then(|| {
            format!("{places} of space {}/{} accepted unverified after a crash", pool.name(), space.name())
        })
    };
    pool.spaces.list().iter().filter_map(of_space).collect()
}

/// Why a disk was not added, with what is to be known of those before it, which were.
fn but_stays(error: ErrorBody, paths: &[PathBuf], index: usize) -> ErrorBody {
    let (before, rest) = paths.split_at_checked(index).unwrap_or_default();
    if before.is_empty() {
        return error;
    }
    let message = format!("{}; in the pool since just now: {}", error.message, shown(before));
    let hint = hint_with_next(
        &error,
        &format!("add the rest with the same options when that is mended: {}", shown(rest)),
    );
    ErrorBody { message, ..error }.hint(hint)
}

/// Why a disk that was added is no spare, with those behind it, which were not added.
fn but_takes_data(error: ErrorBody, pool: &str, disk: &Disk, rest: &[PathBuf]) -> ErrorBody {
    let message = format!("{}; {} was added, and takes data", error.message, disk.name());
    let mut advice = format!("`dolmen disk set {pool} {} --spare` makes it a spare", disk.slot().0);
    if !rest.is_empty() {
        advice.push_str(&format!(", then add the rest with the same options: {}", shown(rest)));
    }
    let hint = hint_with_next(&error, &advice);
    ErrorBody { message, ..error }.on(disk.name()).hint(hint)
}

/// What an error advises by itself, and what comes behind that.
fn hint_with_next(error: &ErrorBody, advice: &str) -> String {
    error.hint.as_ref().map_or_else(|| advice.to_owned(), |hint| format!("{hint}; {advice}"))
}

fn shown(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ")
}

fn disks_of(count: usize) -> String {
    counted(count, "disk", "disks")
}

/// Whether these are labels of a pool that never was: some are lacking, and it was never opened.
pub(crate) fn is_unmade(labels: &[Candidate]) -> bool {
    let disks: BTreeSet<DiskId> = labels.iter().map(|candidate| candidate.label.disk).collect();
    labels.iter().all(|candidate| {
        let label = &candidate.label;
        let was_opened = label.base.epoch.number() > Epoch(1) || label.pending.is_some();
        !was_opened && label.base.members.len() > disks.len()
    })
}

/// Refuses to destroy what was opened for reading only: others may have a claim on it.
fn check_not_read_only(pool: &OpenPool) -> Answer<()> {
    match pool.spaces.pool().state() {
        PoolState::Writable | PoolState::Latched(_) => Ok(()),
        PoolState::ReadOnly(_) => Err(fault::pool(&PoolError::ReadOnly { name: parse_name(&pool.name())? })),
    }
}

fn fault_text(error: &dolmen_disk::LabelIoError) -> String {
    format!("{error}: {}", error.source)
}
