//! Pools: made, exported, destroyed.

use std::path::PathBuf;
use std::rc::Rc;

use dolmen_api::{
    AddDisks, Change, CreatePool, ErrorBody, ErrorCode, ImportMode, PoolDocument, SCHEMA, Simple,
};
use dolmen_block_io::Seams;
use dolmen_pool::{Arbiter, CreateOptions, Disk, DiskCounters, Role, check_devices, create_as, discover};
use dolmen_space::{Clients, DataLossEvent, RebalanceForecast, Space};
use dolmen_units::{Bytes, PoolId};

use crate::answer::Answer;
use crate::base::Base;
use crate::disks::{Devices, acknowledge_defects, allocate_metadata, unseen_defects_of};
use crate::fault;
use crate::health::{errors_text, lost_labels_text, slow_disks, unseen_errors, without_labels};
use crate::jobs::{JobView, Jobs, Kind as _};
use crate::open_pool::{OpenPool, parse_name};
use crate::open_pools::OpenPools;
use crate::plan::{Figures, Undo, made, offer_of, planned, usual_room};
use crate::pool_jobs::PoolJobs;
use crate::pools::ends::PoolEnds;
use crate::pools::opening::Opening;
use crate::pools::rebalance::{Rebalances, forecast, steps_after};
use crate::pools::resync::{ResyncJob, Resyncs};
use crate::pools::widening::{Widening, Widenings, Widths, widenings};
use crate::records::Records;
use crate::settings::{Domains, check_count};
use crate::spaces::ConvertJob;
use crate::state::{Events, Ledger, Remembered, is_unreadable};
use crate::views::Views;
use crate::words::counted;

/// Pools: made, shown, and widened.
pub(crate) struct PoolChanges {
    pools: Rc<OpenPools>,
    records: Rc<Records>,
    pool_jobs: Rc<PoolJobs>,
    views: Rc<Views>,
    devices: Rc<Devices>,
    widths: Rc<Widths>,
    resyncs: Rc<Resyncs>,
    rebalances: Rc<Rebalances>,
    pool_ends: Rc<PoolEnds>,
    opening: Rc<Opening>,
    seams: Seams,
    arbiter: Rc<dyn Arbiter>,
    ledger: Rc<Ledger>,
    jobs: Rc<Jobs>,
    events: Rc<Events>,
}

impl PoolChanges {
    pub(crate) fn new(
        base: &Base,
        devices: &Rc<Devices>,
        widths: &Rc<Widths>,
        resyncs: &Rc<Resyncs>,
        rebalances: &Rc<Rebalances>,
        pool_ends: &Rc<PoolEnds>,
        opening: &Rc<Opening>,
    ) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            records: Rc::clone(&base.records),
            pool_jobs: Rc::clone(&base.pool_jobs),
            views: Rc::clone(&base.views),
            devices: Rc::clone(devices),
            widths: Rc::clone(widths),
            resyncs: Rc::clone(resyncs),
            rebalances: Rc::clone(rebalances),
            pool_ends: Rc::clone(pool_ends),
            opening: Rc::clone(opening),
            seams: base.seams.clone(),
            arbiter: Rc::clone(&base.arbiter),
            ledger: Rc::clone(&base.ledger),
            jobs: Rc::clone(&base.jobs),
            events: Rc::clone(&base.events),
        }
    }
}

impl PoolChanges {
    pub(crate) async fn create_pool(&self, request: CreatePool) -> Answer<Change> {
        let _changes = self.pools.changes.take().await;
        self.pools.check_running()?;
        let name = parse_name(&request.name)?;
        self.check_pool_name(name.as_str())?;
        self.pools.check_pool_count(name.as_str())?;
        if request.fault_domains.len() > request.disks.len() {
            let message = "there are more fault domains than disks; nothing was changed";
            return Err(ErrorBody::new(ErrorCode::BadRequest, message).on(name.as_str()));
        }
        check_count(request.enclosures.len(), request.fault_domains.len(), request.disks.len())
            .map_err(|error| error.on(name.as_str()))?;
        let Domains { numbers, named } = Domains::of(&request.enclosures, None)?;
        let fault_domains = if numbers.is_empty() { request.fault_domains } else { numbers };
        let disks = self.devices.named_disks(&request.disks, &request.destroy, &request.seen).await?;
        let id = PoolId(self.seams.entropy.next_id());
        let devices = self.devices.open_all(&disks.paths, id)?;
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
                self.pool_ends.unmake(id, found.pools.get(&id).map_or(&[], Vec::as_slice)).await;
                return Err(fault::create(&error));
            }
        };
        let pool = self.opening.adopt(opened, ImportMode::Write, Clients::Ended).await?;
        self.records.remember(&pool).await;
        let mut change = made(plan, format!("pool {name} is made of {}", disks_of(devices.len())));
        if !named.is_empty()
            && let Err(error) = pool.spaces.pool().settings().name_domains(&named).await
        {
            change.warnings.push(format!(
                "its disks are kept apart by enclosures, whose names are not on record: {error}; \
                 `dolmen disk set {name} DISK --enclosure NAME` says them again"
            ));
        }
        change.pool = Some(self.views.view_pool(&pool).await?);
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

    fn check_pool_name(&self, name: &str) -> Answer<()> {
        let is_open = self.pools.open.borrow().values().any(|pool| pool.name() == name);
        let is_known = self.pools.closed.borrow().values().any(|closed| closed.remembered.name == name);
        if is_open || is_known {
            let message = format!("there is a pool named {name} already; nothing was changed");
            return Err(ErrorBody::new(ErrorCode::NameTaken, message)
                .on(name)
                .hint("`dolmen pool list` shows it; a new one needs another name"));
        }
        Ok(())
    }

    pub(crate) async fn pools(&self) -> Answer<dolmen_api::Pools> {
        let mut pools = Vec::new();
        for pool in self.pools.open_pools() {
            pools.push(self.views.view_pool(&pool).await?);
        }
        pools.extend(self.views.view_closed());
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(dolmen_api::Pools { schema: SCHEMA, pools })
    }

    pub(crate) async fn show_pool(&self, name: String) -> Answer<PoolDocument> {
        let closed = self.views.view_closed().into_iter().find(|pool| pool.name == name);
        let pool = match (self.pools.pool(&name), closed) {
            (Ok(pool), _) => self.views.view_pool(&pool).await?,
            (Err(_), Some(closed)) => closed,
            (Err(error), None) => return Err(error),
        };
        Ok(PoolDocument { schema: SCHEMA, pool })
    }

    pub(crate) async fn add_disks(&self, name: String, request: AddDisks) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let disks = self.devices.named_disks(&request.disks, &request.destroy, &request.seen).await?;
        let devices = self.devices.open_all(&disks.paths, pool.id())?;
        let extents = self.devices.check_for(&pool, &devices, &disks.overwrite).await?;
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
            let named = pool.spaces.pool().settings().name_domains(&domains.named).await;
            named.map_err(|error| fault::pool(&error).on(name.as_str()))?;
        }
        for (index, device) in devices.into_iter().enumerate() {
            let added = pool.spaces.members().add_in(device, &disks.overwrite, domains.number(index)).await;
            self.records.remember(&pool).await;
            let disk = added.map_err(|error| but_stays(fault::space(&error), &disks.paths, index))?;
            if request.spare {
                let set = pool.spaces.pool().membership().set_role(&disk, Some(Role::Spare)).await;
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
        let tended = pool.spaces.pool().voter_tender().tend().await;
        let were = if extents.len() == 1 { "was" } else { "were" };
        let mut change = made(plan, format!("{} {were} added to pool {name}", disks_of(extents.len())));
        change.warnings.extend(tended.err().map(|error| error.to_string()));
        self.rebalance_after(&pool, wider, &following, &mut change).await;
        change.message.push_str(&kept);
        change.pool = Some(self.views.view_pool(&pool).await?);
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
        self.widths.widen_after(pool, wider, change).await;
        let first = change.job.as_ref().map(|job| job.id);
        let is_further = |job: &JobView| {
            job.kind.word() == ConvertJob.word() && Some(job.id) != first && !known.contains(&job.id)
        };
        change.further_jobs = jobs().filter(is_further).map(|view| view.job).collect();
        if !following.is_even() {
            self.rebalances.rebalance_after_adding(pool, change).await;
        }
    }

    /// Ends the warnings about errors of disks, and about what was accepted unverified after a crash, that somebody has seen.
    /// What was counted stays; what was lost stays as long as it cannot be read.
    pub(crate) async fn acknowledge(&self, name: String, request: Simple) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
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
        let defects = unseen_defects_of(&pool);
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
            let nothing = format!("no disk of pool {name} had errors that are not acknowledged");
            let Some(restored) = restored else { return Ok(planned(plan, nothing)) };
            self.records.keep_history(&pool).await;
            return Ok(made(plan, format!("of pool {name}, {restored}")));
        }
        let seen = unseen.iter().map(|(disk, _)| (disk.id(), disk.counters()));
        pool.history.acknowledged.borrow_mut().extend(seen);
        pool.acknowledge_taken(&taken);
        marked.iter().for_each(|disk| disk.labels().forget_lost());
        pool.latencies.forget();
        acknowledge_defects(&pool, &defects);
        tracing::info!(pool = name, reported, "errors and damage were acknowledged");
        let stay = if unseen.is_empty() { "" } else { "; errors of disks stay in `dolmen disk list`" };
        let mut message = format!("of pool {name} are acknowledged: {reported}{stay}");
        message.extend(restored.iter().map(|restored| format!("; {restored}")));
        let mut change = made(plan, message);
        let recorded = self.records.record_history(&pool).await;
        change.warnings.extend(
            recorded
                .err()
                .map(|error| format!("that is not on record, and the next daemon warns again: {error}")),
        );
        Ok(change)
    }

    pub(crate) async fn resync(&self, name: String, request: Simple) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        self.pool_jobs.check_job_room(&pool)?;
        let stale = pool.spaces.members().stale_rows().await.map_err(|error| fault::space(&error))?.len();
        let rows = counted(stale, "row", "rows");
        let plan = pool.plan(Undo::NotNeeded, vec![format!("bring {rows} up to date")]);
        let is_stale = pool.spaces.members().is_stale().await.map_err(|error| fault::space(&error))?;
        if request.dry_run || !is_stale {
            return Ok(planned(plan, format!("{rows} of pool {name} to be brought up to date")));
        }
        if self.jobs.is_taken(pool.id(), &ResyncJob, None) {
            return Ok(planned(
                plan,
                format!("{rows} of pool {name} are being brought up to date already, or that is paused"),
            ));
        }
        let job = self.resyncs.start_resync(&pool).await;
        let mut change = made(plan, format!("pool {name} is being brought up to date, job {}", job.id));
        change.job = Some(job);
        Ok(change)
    }
}

/// What was accepted unverified, for each space.
fn taken_text(pool: &OpenPool, taken: &[DataLossEvent]) -> Vec<String> {
    let of_space = |space: &Space| {
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
