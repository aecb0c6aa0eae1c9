//! Pools exported, destroyed, and forgotten.

use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_api::{Change, Destroy, ErrorBody, ErrorCode, EventCode, ImportMode, Simple};
use dolmen_attach::SpaceKey;
use dolmen_block_io::{BlockDevice, Seams};
use dolmen_pool::{Arbiter, Candidate, PoolError, PoolState};
use dolmen_units::{DiskId, Epoch, PoolId};

use crate::answer::Answer;
use crate::attach::Transports;
use crate::attaching::SpaceAttachments;
use crate::base::Base;
use crate::exports::NbdServer;
use crate::fault;
use crate::jobs::Jobs;
use crate::open_pool::{ClosedBy, ClosedPool, OpenPool, parse_name};
use crate::open_pools::OpenPools;
use crate::plan::{Figures, Undo, check_typed, made, planned, usual_room};
use crate::pools::recording::Recordings;
use crate::records::Records;
use crate::spaces::NetworkListeners;
use crate::state::{Events, Histories, Ledger, Members, TrashAges};
use crate::volumes::{Closing, Volumes};
use crate::words::{clients_of, counted};

/// Pools exported, destroyed, and forgotten.
pub(crate) struct PoolEnds {
    pools: Rc<OpenPools>,
    records: Rc<Records>,
    attachments: Rc<SpaceAttachments>,
    network: Rc<NetworkListeners>,
    pub(super) volumes: Rc<Volumes>,
    pub(super) recordings: Rc<Recordings>,
    seams: Seams,
    arbiter: Rc<dyn Arbiter>,
    ledger: Rc<Ledger>,
    histories: Rc<Histories>,
    jobs: Rc<Jobs>,
    events: Rc<Events>,
    trash_ages: Rc<TrashAges>,
    members: Rc<Members>,
    nbd: Rc<NbdServer>,
    transports: Rc<Transports>,
}

impl PoolEnds {
    pub(crate) fn new(
        base: &Base,
        attachments: &Rc<SpaceAttachments>,
        network: &Rc<NetworkListeners>,
        volumes: &Rc<Volumes>,
        recordings: &Rc<Recordings>,
    ) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            records: Rc::clone(&base.records),
            attachments: Rc::clone(attachments),
            network: Rc::clone(network),
            volumes: Rc::clone(volumes),
            recordings: Rc::clone(recordings),
            seams: base.seams.clone(),
            arbiter: Rc::clone(&base.arbiter),
            ledger: Rc::clone(&base.ledger),
            histories: Rc::clone(&base.histories),
            jobs: Rc::clone(&base.jobs),
            events: Rc::clone(&base.events),
            trash_ages: Rc::clone(&base.trash_ages),
            members: Rc::clone(&base.members),
            nbd: Rc::clone(&base.nbd),
            transports: Rc::clone(&base.transports),
        }
    }
}

impl PoolEnds {
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

    /// Refuses to close a pool that is used, apart from these attached spaces, and says by whom.
    pub(crate) async fn check_unused(&self, pool: &OpenPool, doing: &str, except: &[SpaceKey]) -> Answer<()> {
        let name = pool.name();
        let mut users = Vec::new();
        for served in self.nbd.list().iter().filter(|served| served.pool == pool.id()) {
            let clients = served.lasting_clients(self.seams.clock.as_ref()).await;
            if clients > 0 {
                users.push(format!("space {} has {}", served.name, clients_of(clients)));
            }
        }
        users.extend(self.attachments.attached_of(pool, except).await?);
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
            "unmount, detach and disconnect them, wait for the jobs or pause them, then try again".to_owned();
        for attached in self.transports.of_pool(pool.id()) {
            hint.push_str(&format!("; {}", self.attachments.to_detach(pool, &attached)));
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
        self.network.close_unused_listeners();
        self.pools.open.borrow_mut().remove(&pool.id());
    }

    pub(crate) async fn export_pool(&self, name: String, request: Simple) -> Answer<Change> {
        let _changes = self.pools.changes.take().await;
        self.pools.check_running()?;
        if let Some(forgotten) = self.forget_closed(&name, &request).await? {
            return Ok(forgotten);
        }
        let pool = self.pools.pool_to_change(&name)?;
        let pools = [Rc::clone(&pool)];
        let closing = self.volumes.closing(&pools).await?;
        // What else would refuse the export does so before a volume is unmounted.
        self.check_unused(&pool, "exported", &closing.spaces).await?;
        if request.dry_run {
            return self.export_unmounted(&name, &pool, closing, request).await;
        }
        self.volumes.close(&pools).await?;
        let exported = self.export_unmounted(&name, &pool, closing, request).await;
        if exported.is_err() && !pool.is_closing.get() {
            self.volumes.reopened(&pools).await;
        } else {
            self.volumes.forget_pool(pool.id()).await;
        }
        exported
    }

    /// Exports a pool whose volumes are unmounted, or plans that.
    async fn export_unmounted(
        &self,
        name: &str,
        pool: &Rc<OpenPool>,
        closing: Closing,
        request: Simple,
    ) -> Answer<Change> {
        let _exclusive = self.pools.lock_for_change(pool).await?;
        if !request.dry_run {
            self.check_unused(pool, "exported", &[]).await?;
        }
        let before = usual_room(&pool.offers());
        let last = [
            "write everything back".to_owned(),
            format!("give pool {name} up, so that any host may open it"),
        ];
        let steps = closing.steps.into_iter().chain(last).collect();
        let undo = Undo::By(format!("dolmen pool import --pool {name}"));
        let plan = Figures::of_room(before, 0).plan(undo, steps);
        if request.dry_run {
            return Ok(planned(plan, format!("pool {name} would be exported")));
        }
        let remembered = self.records.remembered(pool);
        self.retire(pool);
        self.recordings.finish(pool).await;
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
            self.pools
                .closed
                .borrow_mut()
                .insert(pool.id(), ClosedPool { remembered, cause: cause.clone(), by: ClosedBy::Export });
            return Err(cause.hint(hint));
        }
        self.jobs.end_those_of(pool.id(), EXPORTED).await;
        self.histories.remove(pool.id()).await;
        let forgotten = self.ledger.remove(pool.id()).await;
        let text = format!("pool {name} was exported");
        self.events.report_unknown(pool.id(), name, EventCode::PoolExported, text).await;
        let mut change = made(plan, format!("pool {name} is exported; its disks can be moved"));
        change.warnings.extend(forgotten.err().map(|error| format!("it is still on record here: {error}")));
        Ok(change)
    }

    pub(crate) async fn destroy_pool(&self, name: String, request: Destroy) -> Answer<Change> {
        let _changes = self.pools.changes.take().await;
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        check_not_read_only(&pool)?;
        if !request.dry_run || request.destroy.is_some() {
            check_typed(request.destroy.as_deref(), &name, "pool")?;
        }
        self.check_unused(&pool, "destroyed", &[]).await?;
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
        let mut leaving = self.records.remembered(&pool);
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
        self.volumes.forget_pool(id).await;
        self.trash_ages.forget(id);
        warnings.extend(self.arbiter.withdraw(id).await.err().map(|error| error.to_string()));
        warnings.extend(self.ledger.remove(id).await.err().map(|error| error.to_string()));
        warnings
    }

    /// Stops waiting for a pool that should be open here and is not, such as one whose disks are gone for good.
    async fn forget_closed(&self, name: &str, request: &Simple) -> Answer<Option<Change>> {
        if self.pools.pool(name).is_ok() {
            return Ok(None);
        }
        let named = self
            .pools
            .closed
            .borrow()
            .iter()
            .find(|(_, closed)| closed.remembered.name == name)
            .map(|(id, _)| *id);
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
        self.volumes.forget_pool(id).await;
        self.pools.closed.borrow_mut().remove(&id);
        let text = format!("pool {name}, which was not open, is forgotten here");
        self.events.report_unknown(id, name, EventCode::PoolExported, text).await;
        Ok(Some(made(
            plan,
            format!("pool {name}, which was not open, is forgotten here; its disks stay as they are"),
        )))
    }
}

/// What is said of jobs of a pool that was exported.
const EXPORTED: &str = "its pool was exported; what the pool needs goes on where it is opened next";

/// Whether these are labels of a pool that never was: some are lacking, and it was never opened.
pub(crate) fn is_unmade(labels: &[Candidate]) -> bool {
    let disks: BTreeSet<DiskId> = labels.iter().map(|candidate| candidate.label.disk).collect();
    labels.iter().all(|candidate| {
        let label = &candidate.label;
        let was_opened = label.base.epoch.number() > Epoch(1) || label.pending.is_some();
        !was_opened && label.base.members.len() > disks.len()
    })
}

fn fault_text(error: &dolmen_disk::LabelIoError) -> String {
    format!("{error}: {}", error.source)
}

/// Refuses to destroy what was opened for reading only: others may have a claim on it.
pub(super) fn check_not_read_only(pool: &OpenPool) -> Answer<()> {
    match pool.spaces.pool().state() {
        PoolState::Writable | PoolState::Latched(_) => Ok(()),
        PoolState::ReadOnly(_) => Err(fault::pool(&PoolError::ReadOnly { name: parse_name(&pool.name())? })),
    }
}
