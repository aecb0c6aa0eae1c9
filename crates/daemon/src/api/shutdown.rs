//! The end: what is under way is finished, nothing is detached by force, pools are closed clean.

use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{Change, Shutdown};
use dolmen_block_io::Clock;

use crate::answer::Answer;
use crate::attach::Transports;
use crate::attaching::{Leave, SpaceAttachments};
use crate::base::Base;
use crate::benchmarks::Benchmarks;
use crate::exports::NbdServer;
use crate::jobs::Jobs;
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::plan::{Figures, Undo, made, planned, usual_room};
use crate::pools::Recordings;
use crate::records::Records;
use crate::spaces::NetworkListeners;
use crate::state::{Events, Members, TrashAges};
use crate::volumes::{Closing, Volumes};
use crate::words::clients_of;

/// How long the end waits for the row that a job works on; a disk that hangs must not keep the daemon.
const JOBS_REST_MAX: Duration = Duration::from_secs(10);

/// The end of the daemon.
pub(crate) struct Stopping {
    pools: Rc<OpenPools>,
    records: Rc<Records>,
    attachments: Rc<SpaceAttachments>,
    network: Rc<NetworkListeners>,
    volumes: Rc<Volumes>,
    benchmarks: Rc<Benchmarks>,
    recordings: Rc<Recordings>,
    jobs: Rc<Jobs>,
    events: Rc<Events>,
    trash_ages: Rc<TrashAges>,
    members: Rc<Members>,
    nbd: Rc<NbdServer>,
    transports: Rc<Transports>,
    clock: Rc<dyn Clock>,
}

impl Stopping {
    pub(crate) fn new(
        base: &Base,
        attachments: &Rc<SpaceAttachments>,
        network: &Rc<NetworkListeners>,
        volumes: &Rc<Volumes>,
        benchmarks: &Rc<Benchmarks>,
        recordings: &Rc<Recordings>,
    ) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            records: Rc::clone(&base.records),
            attachments: Rc::clone(attachments),
            network: Rc::clone(network),
            volumes: Rc::clone(volumes),
            benchmarks: Rc::clone(benchmarks),
            recordings: Rc::clone(recordings),
            jobs: Rc::clone(&base.jobs),
            events: Rc::clone(&base.events),
            trash_ages: Rc::clone(&base.trash_ages),
            members: Rc::clone(&base.members),
            nbd: Rc::clone(&base.nbd),
            transports: Rc::clone(&base.transports),
            clock: Rc::clone(&base.seams.clock),
        }
    }
}

impl Stopping {
    /// Ends everything, or says what stands in the way. Once it has succeeded, no pool is open.
    pub(crate) async fn shutdown(&self, request: Shutdown) -> Answer<Change> {
        let _changes = self.pools.changes.take().await;
        self.pools.check_running()?;
        if !request.dry_run {
            // It holds its devices, which would keep the daemon for as long as it measures.
            self.benchmarks.end().await;
        }
        let pools = self.pools.open_pools();
        if request.hand_over {
            return self.shutdown_unmounted(request, pools, Closing::default()).await;
        }
        let closing = self.volumes.closing(&pools).await?;
        // What else would keep the daemon running does so before a volume is unmounted.
        self.attachments.check_nothing_used(Leave::Nothing, &closing.spaces).await?;
        if !request.dry_run {
            self.volumes.close(&pools).await?;
        }
        let ended = self.shutdown_unmounted(request, pools.clone(), closing).await;
        if ended.is_err() && !request.dry_run {
            self.volumes.reopened(&pools).await;
        }
        ended
    }

    /// Ends everything once no volume is mounted, or all are left to the next daemon.
    async fn shutdown_unmounted(
        &self,
        request: Shutdown,
        pools: Vec<Rc<OpenPool>>,
        closing: Closing,
    ) -> Answer<Change> {
        let leave = if request.hand_over { Leave::ForTheNext } else { Leave::Nothing };
        // A plan is made while they are mounted still.
        let still_mounted = if request.dry_run { closing.spaces.as_slice() } else { &[] };
        self.attachments.check_nothing_used(leave, still_mounted).await?;
        self.attachments.check_all_flushable(leave).await?;
        let mut steps = vec!["finish what clients have asked for".to_owned()];
        steps.extend(closing.steps);
        let served = self.nbd.list();
        let cut_off = served.iter().filter(|served| served.client_count() > 0).map(|served| {
            let who = clients_of(served.client_count());
            format!("cut off {who} of {} over NBD, which may connect again to the next daemon", served.name)
        });
        steps.extend(cut_off);
        steps.extend(pools.iter().map(|pool| format!("close pool {}", pool.name())));
        let all = self.transports.all();
        let (lasting, mortal): (Vec<_>, Vec<_>) = all.iter().partition(|one| one.survives_daemon());
        let waiting: Vec<String> = lasting.iter().map(|one| one.device().display().to_string()).collect();
        steps.extend(mortal.iter().map(|one| format!("detach {}, which ends with the daemon", one.name())));
        let not_kept = lasting.iter().filter(|_| !request.hand_over);
        steps.extend(not_kept.map(|one| format!("detach {}, which is not in use", one.name())));
        let waits = (request.hand_over && !waiting.is_empty()).then(|| {
            format!(
                "keep {} for the next daemon: until it runs their I/O waits, and with it whoever asks for loop devices, as `losetup -a` does",
                waiting.join(", ")
            )
        });
        steps.extend(waits.clone());
        let room = pools.iter().map(|pool| usual_room(&pool.offers())).sum();
        let plan = Figures::of_room(room, room).plan(Undo::By("dolmen daemon".to_owned()), steps);
        if request.dry_run {
            return Ok(planned(plan, "the daemon would end"));
        }
        self.pools.is_stopping.set(true);
        let _note = self.pools.note("ending".to_owned());
        for pool in &pools {
            pool.is_closing.set(true);
            pool.spaces.changes().lift_limits();
            self.jobs.let_go(pool.id());
            pool.spaces.end_jobs();
            self.records.remember(pool).await;
        }
        let mut change = made(plan, "the daemon has closed its pools and ends");
        change.warnings.extend(waits);
        self.nbd.server().stop().await;
        self.network.end_listeners().await;
        change.warnings.extend(self.attachments.let_go_of_attachments(leave).await);
        for pool in pools {
            // A job that is under way goes on with the next daemon, from a row that is whole. It may need the pool to end.
            self.jobs.rest(pool.id(), self.clock.as_ref(), JOBS_REST_MAX).await;
            let _exclusive = pool.mutex.take().await;
            self.recordings.finish(&pool).await;
            if let Err(error) = pool.spaces.close().await {
                tracing::error!(pool = pool.name(), %error, "the pool was not closed clean; the next start recovers it");
                change.warnings.push(format!("pool {} was not closed clean: {error}", pool.name()));
            }
            self.records.keep_history(&pool).await;
            self.members.release_all_of(pool.id());
            self.pools.open.borrow_mut().remove(&pool.id());
        }
        self.trash_ages.write().await;
        self.events.report_end().await;
        // Nobody is to find a listener behind which nobody answers.
        let _ = std::fs::remove_file(&self.nbd.socket);
        Ok(change)
    }
}
