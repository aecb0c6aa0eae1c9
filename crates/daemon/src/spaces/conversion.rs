//! Spaces get other layouts, or all of their rows at once, while they are used: planned, begun, gone on with
//! (docs/design/0020).

use std::rc::Rc;

use dolmen_api::{Change, ConvertSpace, ErrorBody, ErrorCode, JobState, Plan, ResiliencyKind, Simple};
use dolmen_pool::{LocalFuture, PoolError};
use dolmen_space::{
    ConversionForecast, Integrity, JobShare, Layout, Provisioning, Resiliency, Space, SpaceError, SpaceSpec,
};
use dolmen_units::Bytes;

use crate::answer::Answer;
use crate::base::Base;
use crate::fault;
use crate::job::{Ending, Job, JobWorker, Standing};
use crate::jobs::{Aim, Course, Entry, Jobs, Kind, Outcome, Rank, Start, share};
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::plan::{Figures, Undo, made, planned, usual_room};
use crate::pool_jobs::PoolJobs;
use crate::resiliency::resiliency_of;
use crate::views::Views;
use crate::words::counted;

/// Moves the rows of a space to another layout.
pub(crate) struct ConvertJob;

impl Kind for ConvertJob {
    fn word(&self) -> &'static str {
        "convert"
    }

    fn doing(&self) -> &'static str {
        "converting"
    }

    fn rank(&self) -> Option<Rank> {
        Some(Rank::Asked)
    }

    fn usual_share(&self) -> JobShare {
        share::PATIENT
    }

    fn is_about(&self, aim: Aim) -> bool {
        matches!(aim, Aim::Space { .. })
    }
}

impl Job for ConvertJob {
    fn standing<'a>(&'a self, pool: &'a OpenPool, entry: &'a Entry) -> LocalFuture<'a, Standing> {
        let is_lost = matches!(entry.aim, Aim::Space { id, .. } if pool.spaces.get(id).is_none());
        Box::pin(async move {
            match is_lost {
                true => Standing::Ended(JobState::CalledOff, "its space is there no more"),
                false => Standing::GoesOn,
            }
        })
    }
}

impl JobWorker for Conversions {
    fn resume<'a>(self: Rc<Self>, pool: &'a Rc<OpenPool>, entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            self.go_on_converting(pool, entry).await;
        })
    }

    fn ending(&self, entry: &Entry) -> Ending {
        let undo = self.undo_of_conversion(entry);
        Ending { step: "rows that were moved stay as they are, and so do the others", undo }
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move { self.pool_jobs.stop_asked(self.as_ref(), entry, request).await })
    }
}

/// What a space is to be.
struct ConversionRequest {
    layout: Layout,
    /// Another provisioning than it has.
    provisioning: Option<Provisioning>,
}

/// Conversions of spaces.
pub(crate) struct Conversions {
    pools: Rc<OpenPools>,
    pool_jobs: Rc<PoolJobs>,
    views: Rc<Views>,
    jobs: Rc<Jobs>,
}

impl Conversions {
    pub(crate) fn new(base: &Base) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            pool_jobs: Rc::clone(&base.pool_jobs),
            views: Rc::clone(&base.views),
            jobs: Rc::clone(&base.jobs),
        }
    }
}

impl Conversions {
    /// Converts a space, or goes on with that, or turns it round.
    pub(crate) async fn convert_space(
        &self,
        pool: String,
        space: String,
        request: ConvertSpace,
    ) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&pool)?;
        let _exclusive = self.pools.lock_for_change(&pool).await?;
        let space = pool.space(&space)?;
        let name = full_name(&pool, &space);
        self.pool_jobs.check_job_room(&pool)?;
        if let Some(entry) = self.conversion_of(&pool, &space) {
            return Err(is_at_it(&name, &entry));
        }
        let wanted = request_of(&space, &request).map_err(|error| error.on(name.as_str()))?;
        let stated = |error| fault::space(&error).on(name.as_str());
        let forecast =
            pool.spaces.conversions().check_conversion(&space, wanted.layout).await.map_err(stated)?;
        if wanted.provisioning == Some(Provisioning::Fixed) {
            pool.spaces.changes().check_fixed(&space).map_err(stated)?;
        }
        let is_under_way = space.layout_before().is_some();
        let is_laid_so = forecast.rows == 0 && !is_under_way && wanted.layout == space.spec().layout();
        if is_laid_so && wanted.provisioning.is_none() {
            let plan = pool.plan(Undo::NotNeeded, Vec::new());
            let words = words_of(wanted.layout);
            return Ok(planned(plan, format!("{name} is {words} already, as wide as the pool allows")));
        }
        let plan = plan_of(&pool, &space, &wanted, &forecast).await?;
        let words = aim_in_words(wanted.layout, wanted.provisioning, is_laid_so);
        if request.dry_run {
            return Ok(planned(plan, format!("{name} would become {words}")));
        }
        pool.spaces.conversions().begin_conversion(&space, wanted.layout).await.map_err(stated)?;
        self.end_what_was_put_off(&pool, &space);
        let job = self.start_conversion(&pool, &space, wanted.provisioning, None).await;
        let mut change = made(plan, format!("{name} becomes {words}, job {}", job.id));
        change.job = Some(job);
        change.space = Some(self.views.view_space(&pool, &space).await?);
        Ok(change)
    }

    /// Conversions of a space that have not ended.
    pub(crate) fn conversions_of(
        &self,
        pool: &OpenPool,
        space: &Space,
    ) -> impl Iterator<Item = Rc<Entry>> + use<> {
        let id = space.id();
        let is_of = move |entry: &Rc<Entry>| matches!(entry.aim, Aim::Space { id: of, .. } if of == id);
        self.jobs.unfinished_of(pool.id()).into_iter().filter(is_of)
    }

    /// The one that goes on, or will, and is not about to end.
    fn conversion_of(&self, pool: &OpenPool, space: &Space) -> Option<Rc<Entry>> {
        self.conversions_of(pool, space).find(|entry| entry.is_taken() && !entry.is_to_stop())
    }

    /// Ends one that was put off: another goes on with it.
    fn end_what_was_put_off(&self, pool: &OpenPool, space: &Space) {
        for entry in self.conversions_of(pool, space).filter(|entry| !entry.is_taken()) {
            entry.end(JobState::CalledOff, "another job goes on with it".to_owned());
        }
    }

    /// A conversion that was put off.
    pub(crate) fn conversion_put_off(&self, pool: &OpenPool) -> Option<Rc<Entry>> {
        let is_put_off = |entry: &Rc<Entry>| matches!(entry.aim, Aim::Space { .. }) && !entry.is_taken();
        self.jobs.unfinished_of(pool.id()).into_iter().find(is_put_off)
    }

    /// The job that converts a space, or goes on with that.
    pub(crate) async fn start_conversion(
        &self,
        pool: &Rc<OpenPool>,
        space: &Space,
        provisioning: Option<Provisioning>,
        again: Option<Rc<Entry>>,
    ) -> dolmen_api::Job {
        let (owner, converted) = (Rc::clone(pool), space.clone());
        let layout = space.spec().layout();
        let is_laid_so = space.layout_before().is_none_or(|before| before == layout);
        let words = aim_in_words(layout, provisioning, is_laid_so);
        let subject = format!("space {} to {words}", full_name(pool, space));
        let aim = Aim::Space { id: space.id(), provisioning };
        let start = Start { kind: &ConvertJob, subject, aim, again };
        self.pool_jobs
            .start_job(pool, start, move |course: Rc<Course>| async move {
                convert(&owner, &converted, provisioning, &course).await
            })
            .await
    }

    /// How a conversion that is stopped goes on.
    fn undo_of_conversion(&self, entry: &Entry) -> Undo {
        let (Aim::Space { id, .. }, Some(pool)) = (entry.aim, self.pools.open_pool_of(entry.pool)) else {
            return Undo::NotNeeded;
        };
        let space = pool.spaces.get(id);
        space.map_or(Undo::NotNeeded, |space| {
            Undo::By(format!("dolmen space convert {}, which goes on with it", full_name(&pool, &space)))
        })
    }

    /// Goes on with a conversion that is on record, if its space is there.
    pub(crate) async fn go_on_converting(&self, pool: &Rc<OpenPool>, entry: &Rc<Entry>) {
        let Aim::Space { id, provisioning } = entry.aim else { return };
        if let Some(space) = pool.spaces.get(id) {
            self.start_conversion(pool, &space, provisioning, Some(Rc::clone(entry))).await;
        }
    }
}

async fn convert(
    pool: &OpenPool,
    space: &Space,
    provisioning: Option<Provisioning>,
    course: &Course,
) -> Answer<Outcome> {
    let (spaces, progress, name) = (&pool.spaces, &course.progress, full_name(pool, space));
    let (to, stated) = (space.spec().layout(), |error| fault::space(&error));
    let forecast = spaces.conversions().forecast_conversion(space, to).await.map_err(stated)?;
    course.bytes_max.set(progress.bytes.get() + forecast.rows * space.row_bytes());
    let before = spaces.counters().converted_rows;
    let is_done = async {
        if provisioning == Some(Provisioning::Thin)
            && !spaces.changes().provision(space, Provisioning::Thin, progress).await?
        {
            return Ok(false);
        }
        if !spaces.conversions().convert(space, progress).await? {
            return Ok(false);
        }
        match provisioning {
            Some(Provisioning::Fixed) => {
                spaces.changes().provision(space, Provisioning::Fixed, progress).await
            }
            Some(Provisioning::Thin) | None => Ok(true),
        }
    };
    let is_done = is_done.await;
    if spaces.get(space.id()).is_none() {
        return Ok(Outcome::CalledOff(format!("{name} was deleted")));
    }
    let is_done = match is_done {
        // Those that are here may be too few for a row.
        Err(SpaceError::Pool(PoolError::NoSpace { .. })) if has_absent(pool) => Ok(false),
        other => other,
    };
    if is_done.map_err(stated)? {
        let rows = counted(spaces.counters().converted_rows - before, "row was", "rows were");
        let (words, how) = (words_of(to), provisioned(space));
        return Ok(Outcome::Done(format!("{name} is {words}, {how}; {rows} moved")));
    }
    if progress.is_to_stop() {
        let again = format!(
            "`dolmen space convert {name}` goes on, and `{}` goes back",
            command_back(&name, space, provisioning)
        );
        return Ok(Outcome::CalledOff(format!("rows that were moved stay as they are; {again}")));
    }
    let off = "rows that can be read in full were moved; others wait".to_owned();
    let waits_for =
        "disks that are absent, or for what cannot be read of them to be written again".to_owned();
    Ok(Outcome::Put { off, waits_for })
}

fn has_absent(pool: &OpenPool) -> bool {
    pool.spaces.pool().disks().iter().any(|disk| !disk.is_present())
}

/// What a request asks for. What it does not name stays as it is, as far as it fits.
fn request_of(space: &Space, request: &ConvertSpace) -> Answer<ConversionRequest> {
    let spec = space.spec();
    let bad = |message: String, hint: &str| {
        let message = format!("{message}; nothing was changed");
        Err(ErrorBody::new(ErrorCode::BadRequest, message).hint(hint.to_owned()))
    };
    let kind = request.resiliency.unwrap_or(resiliency_of(spec.resiliency));
    if request.copies.is_some() && kind != ResiliencyKind::Mirror {
        return bad("only a mirror has several copies".to_owned(), "choose mirror, or leave the copies out");
    }
    if request.parity.is_some() && kind != ResiliencyKind::Parity {
        return bad(
            "only a space with parity has parity columns".to_owned(),
            "choose parity, or leave them out",
        );
    }
    let resiliency = match (kind, spec.resiliency) {
        (ResiliencyKind::Simple, _) => Resiliency::Simple,
        (ResiliencyKind::Span, _) => Resiliency::Span,
        (ResiliencyKind::Mirror, Resiliency::Mirror { copies }) => {
            Resiliency::Mirror { copies: request.copies.unwrap_or(copies) }
        }
        (ResiliencyKind::Mirror, _) => Resiliency::Mirror { copies: request.copies.unwrap_or(2) },
        (ResiliencyKind::Parity, now) => {
            let parity = request.parity.unwrap_or(now.parity_columns().max(1));
            if !(1..=2).contains(&parity) {
                return bad(format!("a space has 1 or 2 parities, not {parity}"), "choose 1 or 2");
            }
            Resiliency::Parity { parity }
        }
    };
    let is_other_kind = kind != resiliency_of(spec.resiliency);
    let usual = SpaceSpec::usual(spec.name.clone(), spec.size, resiliency);
    let interleave = match request.interleave_bytes {
        Some(bytes) => Bytes(bytes),
        None if is_other_kind => Bytes(usual.interleave.0.min(space.row_bytes())),
        None => spec.interleave,
    };
    let columns = match request.columns {
        Some(0) => None,
        Some(columns) => Some(columns),
        None if is_other_kind => None,
        None => spec.columns,
    };
    let integrity = match (request.integrity, resiliency) {
        (Some(dolmen_api::Integrity::Relaxed), _) => Integrity::Relaxed,
        (Some(dolmen_api::Integrity::Strict), _) => Integrity::Strict,
        (None, resiliency) if is_other_kind => Integrity::usual(resiliency),
        (None, _) => spec.integrity,
    };
    let provisioning = request.provisioning.map(|provisioning| match provisioning {
        dolmen_api::Provisioning::Thin => Provisioning::Thin,
        dolmen_api::Provisioning::Fixed => Provisioning::Fixed,
    });
    Ok(ConversionRequest {
        layout: Layout { resiliency, columns, interleave, integrity },
        provisioning: provisioning.filter(|provisioning| *provisioning != spec.provisioning),
    })
}

async fn plan_of(
    pool: &OpenPool,
    space: &Space,
    wanted: &ConversionRequest,
    forecast: &ConversionForecast,
) -> Answer<Plan> {
    let name = full_name(pool, space);
    let mut steps = Vec::new();
    let spec = space.spec().laid(wanted.layout);
    let cache = pool
        .spaces
        .caches()
        .new_write_cache(&spec)
        .map(|size| size.0 * u64::from(spec.resiliency.redundancy() + 1));
    if let Some(bytes) = cache {
        steps.push(format!("make the write cache that it needs, {} on all disks", Bytes(bytes)));
    }
    if forecast.rows > 0 {
        let rows = counted(forecast.rows, "row", "rows");
        steps.push(format!(
            "move {rows} of {name} to {}; they take {} then, and {} now; clients go on meanwhile",
            words_of(wanted.layout),
            forecast.claimed,
            forecast.freed
        ));
    }
    if forecast.rows == 0 && space.spec().layout() != wanted.layout {
        steps.push(format!(
            "lay rows that {name} gets from now on as {}; it has none that would move",
            words_of(wanted.layout)
        ));
    }
    let row = space.row_bytes();
    let rows_missing = space.size().0.div_ceil(row).saturating_sub(space.claimed().0 / row);
    let mut missing = 0;
    match wanted.provisioning {
        Some(Provisioning::Fixed) if rows_missing > 0 => {
            let of_rows = SpaceSpec { size: Bytes(rows_missing * row), row: Some(Bytes(row)), ..spec.clone() };
            missing = pool.full_size(&of_rows)?;
            let (rows, takes) = (counted(rows_missing, "row", "rows"), Bytes(missing));
            steps.push(format!("claim {rows} of {name} that it has not written; they take {takes}"));
        }
        Some(Provisioning::Fixed) => steps.push(format!("keep all rows of {name}, which it has by now")),
        Some(Provisioning::Thin) => steps.push(format!(
            "give back rows of {name} that hold nothing; how many those are is found out on the way, so that more may be usable \
             afterwards than is reported here"
        )),
        None => {}
    }
    let before = usual_room(&pool.offers());
    let free = pool.free() + forecast.freed.0;
    let claimed = forecast.claimed.0 + cache.unwrap_or(0) + missing;
    let after = pool.room_with_free(free.saturating_sub(claimed));
    let figures = Figures { before, after, moved: forecast.rows * space.row_bytes() };
    Ok(figures.plan(Undo::By(command_back(&name, space, wanted.provisioning)), steps))
}

/// What turns a conversion round, which gives the space such a provisioning if it is another than it had.
fn command_back(name: &str, space: &Space, provisioning: Option<Provisioning>) -> String {
    let provisioning = match provisioning {
        Some(Provisioning::Thin) => " --provisioning fixed",
        Some(Provisioning::Fixed) => " --provisioning thin",
        None => "",
    };
    let layout = space.layout_before().unwrap_or_else(|| space.spec().layout());
    let kind = match layout.resiliency {
        Resiliency::Simple => "simple".to_owned(),
        Resiliency::Span => "span".to_owned(),
        Resiliency::Mirror { copies } => format!("mirror --copies {copies}"),
        Resiliency::Parity { parity } => format!("parity --parity {parity}"),
    };
    let columns = layout.columns.map_or("auto".to_owned(), |columns| columns.to_string());
    let integrity = match layout.integrity {
        Integrity::Relaxed => "relaxed",
        Integrity::Strict => "strict",
    };
    format!(
        "dolmen space convert {name} --resiliency {kind} --columns {columns} --interleave {} --integrity {integrity}{provisioning}",
        layout.interleave.0
    )
}

pub(crate) fn words_of(layout: Layout) -> String {
    let columns = layout.columns.map_or(String::new(), |columns| format!(" with {columns} data columns"));
    let strict = match (layout.integrity, layout.resiliency) {
        (Integrity::Relaxed, _) | (_, Resiliency::Parity { .. }) => "",
        (Integrity::Strict, _) => "strict ",
    };
    format!("{strict}{}{columns}", layout.resiliency)
}

/// What a space becomes: only what is another than it was.
fn aim_in_words(layout: Layout, provisioning: Option<Provisioning>, is_laid_so: bool) -> String {
    let provisioning = provisioning.map(|provisioning| match provisioning {
        Provisioning::Thin => "thin",
        Provisioning::Fixed => "fixed",
    });
    match provisioning {
        Some(word) if is_laid_so => word.to_owned(),
        Some(word) => format!("{}, {word}", words_of(layout)),
        None => words_of(layout),
    }
}

fn provisioned(space: &Space) -> &'static str {
    if space.is_thin() { "thin" } else { "fixed" }
}

pub(crate) fn full_name(pool: &OpenPool, space: &Space) -> String {
    format!("{}/{}", pool.name(), space.name())
}

fn is_at_it(name: &str, entry: &Entry) -> ErrorBody {
    let id = entry.id;
    let message = format!("{} is at {name} already; nothing was changed", entry.what());
    ErrorBody::new(ErrorCode::Busy, message).on(name).hint(format!(
        "`dolmen jobs {id}` shows how far it is; `dolmen job stop {id}` ends it, and then it goes on or back"
    ))
}
