//! What is there is evened out over the disks: planned, begun, gone on with, called off (docs/design/0012).

use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, Simple};
use dolmen_block_io::Seams;
use dolmen_placement::Offer;
use dolmen_pool::{Disk, LocalFuture};
use dolmen_space::{JobShare, RebalanceForecast};

use crate::answer::Answer;
use crate::base::Base;
use crate::fault;
use crate::job::{Ending, Job, JobWorker};
use crate::jobs::{Aim, Course, Entry, Jobs, Kind, Outcome, Rank, Start, share};
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::plan::{Figures, Undo, made, planned, usual_room};
use crate::pool_jobs::PoolJobs;
use crate::words::counted;

/// Difference between the fullest and the emptiest disk from which on a rebalance says what keeps it.
const UNEVEN_PERCENT: u64 = 5;

/// Moves slabs from full disks to emptier ones.
pub(crate) struct RebalanceJob;

impl Kind for RebalanceJob {
    fn word(&self) -> &'static str {
        "rebalance"
    }

    fn doing(&self) -> &'static str {
        "evening out"
    }

    fn rank(&self) -> Option<Rank> {
        Some(Rank::Spread)
    }

    fn usual_share(&self) -> JobShare {
        share::PATIENT
    }

    fn fills_slabs(&self) -> bool {
        true
    }

    fn is_about(&self, aim: Aim) -> bool {
        aim == Aim::Pool
    }
}

impl Job for RebalanceJob {}

impl JobWorker for Rebalances {
    fn resume<'a>(self: Rc<Self>, pool: &'a Rc<OpenPool>, entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            self.start_rebalance(pool, Some(Rc::clone(entry))).await;
        })
    }

    fn ending(&self, entry: &Entry) -> Ending {
        let undo = Undo::By(format!("dolmen pool rebalance {}", entry.pool_name));
        Ending { step: "what was moved stays where it is", undo }
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move { self.pool_jobs.stop_asked(self.as_ref(), entry, request).await })
    }
}

/// Rebalances.
pub(crate) struct Rebalances {
    pools: Rc<OpenPools>,
    pool_jobs: Rc<PoolJobs>,
    seams: Seams,
    jobs: Rc<Jobs>,
}

impl Rebalances {
    pub(crate) fn new(base: &Base) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            pool_jobs: Rc::clone(&base.pool_jobs),
            seams: base.seams.clone(),
            jobs: Rc::clone(&base.jobs),
        }
    }
}

impl Rebalances {
    /// Moves slabs from full disks to emptier ones.
    pub(crate) async fn rebalance(&self, name: String, request: Simple) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        self.pool_jobs.check_job_room(&pool)?;
        pool.spaces.pool().log().check_writable().map_err(|error| fault::pool(&error))?;
        if let Some(entry) = self.rebalance_of(&pool) {
            return Err(is_at_it(&name, &entry));
        }
        let forecast = forecast(&pool, &[]).await?;
        let room = usual_room(&pool.offers());
        let figures = Figures { before: room, after: room, moved: forecast.moved.0 };
        let plan = figures.plan(Undo::NotNeeded, steps_of(&forecast));
        if forecast.is_even() {
            let why = uneven_by(&pool).unwrap_or_default();
            return Ok(planned(plan, format!("pool {name} is as even already as rows and disks allow{why}")));
        }
        if request.dry_run {
            return Ok(planned(plan, format!("pool {name} would be evened out")));
        }
        let job = self.start_rebalance(&pool, None).await;
        let mut change = made(plan, format!("pool {name} is being evened out, job {}", job.id));
        change.job = Some(job);
        Ok(change)
    }

    /// The rebalance of a pool that has not ended, and is not about to.
    fn rebalance_of(&self, pool: &OpenPool) -> Option<Rc<Entry>> {
        let unfinished = self.jobs.unfinished_of(pool.id());
        unfinished.into_iter().find(|entry| entry.is(&RebalanceJob) && !entry.is_to_stop())
    }

    /// Begins a rebalance behind a change that has added disks, unless one is there that fills them, too.
    pub(crate) async fn rebalance_after_adding(&self, pool: &Rc<OpenPool>, change: &mut Change) {
        let job = match (self.rebalance_of(pool), self.pool_jobs.check_job_room(pool)) {
            (Some(entry), _) => {
                if entry.is_paused() {
                    change.warnings.push(format!(
                        "{} is paused: rows that are there stay where they are until `dolmen job resume {}`",
                        entry.what(),
                        entry.id
                    ));
                }
                entry.view(self.seams.clock.now())
            }
            (None, Ok(())) => self.start_rebalance(pool, None).await,
            (None, Err(error)) => {
                return change.warnings.push(format!(
                    "rows that are there stay where they are, because {}; `dolmen pool rebalance {}` evens them out later",
                    error.message,
                    pool.name()
                ));
            }
        };
        change.message.push_str(&format!("; job {} evens out what is there", job.id));
        match change.job {
            Some(_) => change.further_jobs.push(job),
            None => change.job = Some(job),
        }
    }

    /// The job that evens everything out, or goes on with that.
    pub(crate) async fn start_rebalance(
        &self,
        pool: &Rc<OpenPool>,
        again: Option<Rc<Entry>>,
    ) -> dolmen_api::Job {
        let owner = Rc::clone(pool);
        let subject = format!("pool {}", pool.name());
        let start = Start { kind: &RebalanceJob, subject, aim: Aim::Pool, again };
        self.pool_jobs
            .start_job(pool, start, move |course| async move { even_out(&owner, &course).await })
            .await
    }
}

/// What a rebalance has to do, also with disks that may join.
pub(crate) async fn forecast(pool: &OpenPool, more: &[Offer]) -> Answer<RebalanceForecast> {
    pool.spaces.moves().forecast_rebalance(more).await.map_err(|error| fault::space(&error))
}

fn steps_of(forecast: &RebalanceForecast) -> Vec<String> {
    let mut steps = Vec::new();
    if forecast.rows > 0 {
        let rows = counted(forecast.rows, "row", "rows");
        steps.push(format!("move {} of {rows} to emptier disks; clients go on meanwhile", forecast.moved));
    }
    if forecast.surplus > 0 {
        let rows = counted(forecast.surplus, "row", "rows");
        steps.push(format!("give up a slab too many of {rows}"));
    }
    steps
}

/// What is done behind the adding of disks, and how that is called off.
pub(crate) fn steps_after(pool: &str, forecast: &RebalanceForecast) -> Vec<String> {
    let mut steps = steps_of(forecast);
    if let Some(last) = steps.last_mut() {
        last.push_str(&format!(
            ", as a job that `dolmen pool rebalance {pool} --cancel` calls off, and that --stays leaves out"
        ));
    }
    steps
}

/// Refuses a second rebalance.
fn is_at_it(pool: &str, entry: &Entry) -> ErrorBody {
    let (what, id) = (entry.what(), entry.id);
    let (state, hint) = match entry.is_paused() {
        true => ("is paused", format!("`dolmen job resume {id}` goes on with it")),
        false => ("is there already", format!("`dolmen jobs {id}` shows how far it is")),
    };
    let message = format!("{what} {state}; nothing was changed");
    ErrorBody::new(ErrorCode::Busy, message)
        .on(pool)
        .hint(format!("{hint}; `dolmen pool rebalance {pool} --cancel` calls it off"))
}

pub(crate) async fn even_out(pool: &OpenPool, course: &Course) -> Answer<Outcome> {
    let (spaces, progress) = (&pool.spaces, &course.progress);
    loop {
        let attachments = spaces.pool().members().attachments();
        let before = forecast(pool, &[]).await?;
        course.bytes_max.set(progress.bytes.get() + before.moved.0);
        let is_even = spaces.moves().rebalance(progress).await.map_err(|error| fault::space(&error))?;
        pool.count_badly_laid().await;
        let after = let_go_first(pool, course).await;
        if progress.is_to_stop() && (after != SlotResult::Kept || !is_even) {
            let stays = "it was called off; what was moved stays where it is";
            return Ok(Outcome::CalledOff(stays.to_owned()));
        }
        match after {
            // A disk that came or went meanwhile is reckoned with as well.
            SlotResult::Kept if is_even || attachments == spaces.pool().members().attachments() => {
                return evened(pool, is_even).await.map(Outcome::Done);
            }
            SlotResult::Kept | SlotResult::Back => {}
            SlotResult::Ended => {
                let off = "what was moved stays where it is".to_owned();
                return Ok(Outcome::Put { off, waits_for: "the pool to be opened again".to_owned() });
            }
        }
    }
}

/// What became of the turn of a job that asked whether anybody goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotResult {
    /// Nobody did.
    Kept,
    /// Somebody did, and is done.
    Back,
    /// It is to end, or its spaces close.
    Ended,
}

/// Lets what is more urgent be done before the end: what a disk that is about to leave has was left alone, and makes the others
/// uneven when it comes there.
async fn let_go_first(pool: &OpenPool, course: &Course) -> SlotResult {
    let mut result = SlotResult::Kept;
    loop {
        pool.job_slot.nobody_comes().await;
        if !course.yields() {
            return result;
        }
        result = SlotResult::Back;
        if !pool.spaces.moves().wait_while_held(&course.progress).await {
            return SlotResult::Ended;
        }
    }
}

/// Returns what keeps disks unevenly full behind a rebalance, where they are.
fn uneven_by(pool: &OpenPool) -> Option<String> {
    let room = pool.spaces.pool().free_space().room();
    let disks = pool.spaces.pool().disks();
    let percent = |disk: &Rc<Disk>| {
        let free = room.iter().find(|room| room.slot == disk.slot())?.free.0;
        let size = disk.data_bytes().0.max(1);
        Some((size.saturating_sub(free).saturating_mul(100) / size, disk.name()))
    };
    let takes = |disk: &&Rc<Disk>| disk.is_present() && pool.spaces.pool().members().takes_rows(disk);
    let full: Vec<(u64, String)> = disks.iter().filter(takes).filter_map(percent).collect();
    let (least, most) = (full.iter().min()?, full.iter().max()?);
    (most.0 - least.0 >= UNEVEN_PERCENT).then(|| {
        format!(
            ": {} is {} % full and {} {} %, because the parts of a row have one length and lie on different disks, so that smaller \
             disks fill first",
            least.1, least.0, most.1, most.0
        )
    })
}

/// What a rebalance has come to, in words.
async fn evened(pool: &OpenPool, is_even: bool) -> Answer<String> {
    let mut text = "everything is as even as rows and disks allow".to_owned();
    text.push_str(&uneven_by(pool).unwrap_or_default());
    if !is_even {
        let left = forecast(pool, &[]).await?;
        text = format!(
            "what could be moved was; {} could lie on emptier disks, which did not take them, and {} a slab too many; \
             `dolmen pool rebalance {}` tries again",
            counted(left.rows, "row", "rows"),
            counted(left.surplus, "row has", "rows have"),
            pool.name()
        );
    }
    let disks = pool.spaces.pool().disks();
    let absent: Vec<String> =
        disks.iter().filter(|disk| !disk.is_present()).map(|disk| disk.name()).collect();
    if !absent.is_empty() {
        text.push_str(&format!("; rows with a part on {} stay where they are", absent.join(" or ")));
    }
    Ok(text)
}
