//! Requests about benchmarks, and their job.

use std::cell::RefCell;
use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dolmen_api::{
    BenchSpace, BenchmarkGroup, BenchmarkProfile, BenchmarkReport, BenchmarkSummary, BenchmarkWork, Change,
    ErrorBody, ErrorCode, JobState, SCHEMA, Simple, duration,
};
use dolmen_bench::{GROUPS, Profile, profiles_named};
use dolmen_block_io::sync::{Either, Notify, either};
use dolmen_block_io::{Seams, sleep, within};
use dolmen_pool::LocalFuture;
use dolmen_space::Space;

use crate::answer::Answer;
use crate::base::Base;
use crate::benchmarks::process::{Program, Rehearsed, Running, aside};
use crate::benchmarks::reports;
use crate::exports::NbdServer;
use crate::job::{Ending, Job, JobWorker, Standing};
use crate::jobs::{Aim, Course, Entry, Jobs, Kind, Outcome, Rank, Start};
use crate::open_pool::{OpenPool, key_of};
use crate::open_pools::OpenPools;
use crate::plan::{Undo, check_typed, made, planned};
use crate::pool_jobs::PoolJobs;
use crate::spaces::full_name;
use crate::state::VolumeUses;
use crate::volumes::check_carries_none;
use crate::words::{clients_of, counted};

/// Profiles where a request names none.
const USUAL: &str = "load";
/// Profiles and groups that a request names, at most.
const NAMES_MAX: usize = 32;
/// Loads in place of those of a profile, at most.
const OUTSTANDING_MAX: usize = 64;
/// How often a benchmark under way is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the end of the daemon waits for a benchmark, which waits five seconds for fio.
const END_LIMIT: Duration = Duration::from_secs(8);

/// Measures spaces.
pub(crate) struct BenchJob;

impl Kind for BenchJob {
    fn word(&self) -> &'static str {
        "bench"
    }

    fn verb(&self) -> &'static str {
        "measure"
    }

    fn doing(&self) -> &'static str {
        "measuring"
    }

    /// It takes no slot: it is a client of its spaces, and other jobs belong to what is measured.
    fn rank(&self) -> Option<Rank> {
        None
    }

    fn is_about(&self, aim: Aim) -> bool {
        matches!(aim, Aim::Space { provisioning: None, .. })
    }
}

/// Result of a benchmark that another daemon began.
const CUT_SHORT: &str = "the daemon ended meanwhile, and with it the benchmark; there is no report";

impl Job for BenchJob {
    fn standing<'a>(&'a self, _pool: &'a OpenPool, _entry: &'a Entry) -> LocalFuture<'a, Standing> {
        Box::pin(async { Standing::Ended(JobState::Failed, CUT_SHORT) })
    }
}

/// Spaces that are measured.
struct Targets {
    pool: Rc<OpenPool>,
    spaces: Vec<(Rc<OpenPool>, Space)>,
}

impl Targets {
    fn names(&self) -> Vec<String> {
        self.spaces.iter().map(|(pool, space)| full_name(pool, space)).collect()
    }

    fn aim(&self) -> Option<Aim> {
        self.spaces.first().map(|(_, space)| Aim::Space { id: space.id(), provisioning: None })
    }

    fn is_closing(&self) -> bool {
        self.spaces.iter().any(|(pool, _)| pool.is_closing.get())
    }
}

/// Benchmark under way.
#[derive(Clone)]
struct UnderWay {
    running: Arc<Running>,
    total: u64,
}

/// Registration of the benchmark under way. It ends with its job, also with one that never begins to work.
struct Registered(Rc<Benchmarks>);

impl Registered {
    fn new(benchmarks: &Rc<Benchmarks>, under_way: UnderWay) -> Self {
        benchmarks.under_way.replace(Some(under_way));
        Self(Rc::clone(benchmarks))
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.0.under_way.replace(None);
        self.0.listed.replace(None);
        self.0.ended.notify_all();
    }
}

/// Benchmarks of spaces.
pub(crate) struct Benchmarks {
    pools: Rc<OpenPools>,
    seams: Seams,
    jobs: Rc<Jobs>,
    pool_jobs: Rc<PoolJobs>,
    nbd: Rc<NbdServer>,
    volume_uses: Rc<VolumeUses>,
    program: Program,
    folder: PathBuf,
    under_way: RefCell<Option<UnderWay>>,
    ended: Notify,
    /// Reports as they were listed last; none where that has to be done again.
    listed: RefCell<Option<Vec<BenchmarkSummary>>>,
}

impl JobWorker for Benchmarks {
    fn resume<'a>(self: Rc<Self>, _pool: &'a Rc<OpenPool>, entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        entry.end(JobState::Failed, CUT_SHORT.to_owned());
        Box::pin(async {})
    }

    fn ending(&self, _entry: &Entry) -> Ending {
        Ending { step: "fio ends, and what was measured is kept as a report", undo: Undo::NotNeeded }
    }

    fn note_stop<'a>(&'a self, _entry: &'a Entry) -> LocalFuture<'a, ()> {
        Box::pin(async { self.ask_to_end() })
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move { self.pool_jobs.stop_asked(self.as_ref(), entry, request).await })
    }
}

impl Benchmarks {
    pub(crate) fn new(base: &Base) -> Self {
        let config = &base.config;
        Self {
            pools: Rc::clone(&base.pools),
            seams: base.seams.clone(),
            jobs: Rc::clone(&base.jobs),
            pool_jobs: Rc::clone(&base.pool_jobs),
            nbd: Rc::clone(&base.nbd),
            volume_uses: Rc::clone(&base.volume_uses),
            program: Program { path: config.command.clone(), socket: config.socket.clone() },
            folder: config.benchmarks_folder(),
            under_way: RefCell::default(),
            ended: Notify::new(),
            listed: RefCell::default(),
        }
    }

    /// Begins a benchmark, or plans it.
    pub(crate) async fn bench_space(
        self: &Rc<Self>,
        pool: String,
        space: String,
        request: BenchSpace,
    ) -> Answer<Change> {
        let targets = self.targets(&pool, &space, request.against.as_deref())?;
        let names = targets.names();
        let profiles = profiles_of(&request)?;
        let writes = profiles.iter().any(Profile::writes);
        if writes {
            self.check_writable(&targets, &request).await?;
        }
        self.check_alone()?;
        self.pool_jobs.check_job_room(&targets.pool)?;
        let words = words_of(&request, &names);
        let rehearsed = self.program.rehearse(words.clone()).await?;
        // Others may have gone on meanwhile.
        let targets = self.targets(&pool, &space, request.against.as_deref())?;
        self.check_alone()?;
        let Some(aim) = targets.aim() else {
            return Err(ErrorBody::new(ErrorCode::Internal, "a benchmark without a space was planned"));
        };
        let undo = if writes { Undo::ByNothing } else { Undo::NotNeeded };
        let plan = targets.pool.plan(undo, steps_of(&names, writes, rehearsed));
        let subject = names.join(" and ");
        if request.dry_run {
            return Ok(planned(plan, format!("{subject} would be measured")));
        }
        let start = Start { kind: &BenchJob, subject: subject.clone(), aim, again: None };
        let under_way = UnderWay { running: Arc::default(), total: rehearsed.measurements };
        let registered = Registered::new(self, under_way.clone());
        let pool = Rc::clone(&targets.pool);
        let work = move |course| async move {
            registered.0.measure(&targets, words, writes, &under_way, course).await
        };
        let job = self.pool_jobs.start_job(&pool, start, work).await;
        let mut change = made(plan, format!("{subject} is being measured, job {}", job.id));
        change.job = Some(job);
        Ok(change)
    }

    /// Lists profiles, the benchmark under way, and the reports.
    pub(crate) async fn list(&self) -> Answer<dolmen_api::Benchmarks> {
        let group = |group: &dolmen_bench::Group| BenchmarkGroup {
            name: group.name.to_owned(),
            title: group.title.to_owned(),
        };
        let profiles = GROUPS.iter().flat_map(|group| {
            group.profiles().into_iter().map(|profile| BenchmarkProfile {
                summary: profile.summary(),
                group: Some(group.name.to_owned()),
                name: profile.name,
                title: profile.title,
                reads_percent: profile.reads_percent,
            })
        });
        let profiles = profiles.collect();
        let groups = GROUPS.iter().map(group).collect();
        Ok(dolmen_api::Benchmarks {
            schema: SCHEMA,
            groups,
            profiles,
            work: self.work(),
            reports: self.reports().await?,
        })
    }

    /// Shows the report of a job.
    pub(crate) async fn show(&self, job: u64) -> Answer<BenchmarkReport> {
        let folder = self.folder.clone();
        let found = aside(move || reports::read(&folder, job)).await;
        found.map_err(|error| unreadable(&error))?.ok_or_else(|| {
            let message =
                format!("there is no report of a benchmark of job {job}, or it is forgotten already");
            ErrorBody::new(ErrorCode::NoSuchJob, message)
                .on(job.to_string())
                .hint("`dolmen bench --reports` shows all reports")
        })
    }

    /// Ends the benchmark under way for the end of the daemon, and waits for that.
    pub(crate) async fn end(&self) {
        self.ask_to_end();
        let is_over = || self.under_way.borrow().is_none().then_some(());
        let clock = self.seams.clock.as_ref();
        if within(clock, clock.now() + END_LIMIT, self.ended.wait_for(is_over)).await.is_none() {
            tracing::warn!("a benchmark does not end; the kernel ends it with the daemon");
        }
    }

    fn ask_to_end(&self) {
        if let Some(under_way) = self.under_way.borrow().as_ref() {
            under_way.running.end();
        }
    }

    fn work(&self) -> Option<BenchmarkWork> {
        let under_way = self.under_way.borrow().clone()?;
        let entry =
            self.jobs.unfinished().into_iter().find(|entry| entry.is(&BenchJob) && entry.is_in_hand())?;
        let step = under_way.running.step();
        Some(BenchmarkWork {
            job: entry.id,
            done: step.as_ref().map_or(0, |step| step.done),
            left_s: step.as_ref().and_then(|step| step.left_s),
            step: step.map(|step| step.step),
            total: under_way.total,
        })
    }

    async fn reports(&self) -> Answer<Vec<BenchmarkSummary>> {
        if let Some(listed) = self.listed.borrow().clone() {
            return Ok(listed);
        }
        let folder = self.folder.clone();
        let listed = aside(move || reports::list(&folder)).await.map_err(|error| unreadable(&error))?;
        // One that ends meanwhile has made this old already.
        if self.under_way.borrow().is_none() {
            self.listed.replace(Some(listed.clone()));
        }
        Ok(listed)
    }

    fn targets(&self, pool: &str, space: &str, against: Option<&str>) -> Answer<Targets> {
        let pool = self.pools.pool_to_change(pool)?;
        let mut spaces = vec![(Rc::clone(&pool), pool.space(space)?)];
        if let Some(against) = against {
            let Some((pool, space)) = against.split_once('/') else {
                let message =
                    format!("{against:?} is no space: POOL/SPACE was expected; nothing was changed");
                return Err(ErrorBody::new(ErrorCode::BadRequest, message).on(against));
            };
            let pool = self.pools.pool_to_change(pool)?;
            let space = pool.space(space)?;
            spaces.push((pool, space));
        }
        Ok(Targets { pool, spaces })
    }

    /// Refuses to overwrite what is in use, and what was not confirmed.
    async fn check_writable(&self, targets: &Targets, request: &BenchSpace) -> Answer<()> {
        for (pool, space) in &targets.spaces {
            let name = full_name(pool, space);
            if !request.dry_run || !request.destroy.is_empty() {
                let is_named = request.destroy.contains(&name);
                let other = request.destroy.first().map(String::as_str);
                check_typed(if is_named { Some(name.as_str()) } else { other }, &name, "space")?;
            }
            self.volume_uses.check_free(key_of(pool, space), &name, "overwritten")?;
            check_carries_none(space, &name).await?;
            let clients = match self.nbd.find(pool.id(), space.id()) {
                Some(served) => served.lasting_clients(self.seams.clock.as_ref()).await,
                None => 0,
            };
            if clients > 0 {
                let by = clients_of(clients);
                let message = format!(
                    "space {name} cannot be overwritten while it is open by {by}; nothing was changed"
                );
                return Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint("disconnect them first"));
            }
        }
        Ok(())
    }

    /// Refuses a second benchmark: each would measure the other.
    fn check_alone(&self) -> Answer<()> {
        if self.under_way.borrow().is_none() {
            return Ok(());
        }
        let by =
            self.work().map_or_else(|| "another benchmark".to_owned(), |work| format!("job {}", work.job));
        let message =
            format!("{by} measures already, and two at a time would measure each other; nothing was begun");
        Err(ErrorBody::new(ErrorCode::Busy, message)
            .hint("wait until it has ended, or end it with `dolmen job stop`"))
    }

    /// Runs the command to its end, and keeps its report.
    async fn measure(
        &self,
        targets: &Targets,
        mut words: Vec<String>,
        writes: bool,
        under_way: &UnderWay,
        course: Rc<Course>,
    ) -> Answer<Outcome> {
        let names = targets.names();
        if writes {
            words.extend(names.iter().map(|name| format!("--destroy={name}")));
        }
        words.extend(["--steps".to_owned(), format!("--json={}", reports::new_file(&self.folder).display())]);
        let (program, folder, running) =
            (self.program.clone(), self.folder.clone(), Arc::clone(&under_way.running));
        let mut ended = pin!(aside(move || {
            reports::begin(&folder)?;
            program.run(&words, &reports::new_folder(&folder), &running)
        }));
        course.progress.total.set(under_way.total);
        let clock = self.seams.clock.as_ref();
        let status = loop {
            match either(ended.as_mut(), sleep(clock, LOOK_EVERY)).await {
                Either::First(status) => break status,
                Either::Second(()) => {
                    let step = under_way.running.step();
                    course.progress.done.set(step.map_or(0, |step| step.done));
                    if course.progress.is_to_stop() || targets.is_closing() {
                        under_way.running.end();
                    }
                }
            }
        };
        let status = status.map_err(|error| {
            ErrorBody::new(
                ErrorCode::Io,
                format!("the benchmark of {} was not run: {error}", names.join(" and ")),
            )
        })?;
        let job = self.job_of(targets);
        let folder = self.folder.clone();
        let kept = aside(move || reports::keep(&folder, job)).await;
        let kept = kept.map_err(|error| {
            ErrorBody::new(ErrorCode::Io, format!("the report of the benchmark cannot be kept: {error}"))
        })?;
        let report = match kept {
            Some(points) => format!("{} are in its report", counted(points, "point", "points")),
            None => "nothing was measured".to_owned(),
        };
        if status.success() {
            course.progress.done.set(under_way.total);
            return Ok(Outcome::Done(report));
        }
        if under_way.running.is_to_end() {
            return Ok(Outcome::CalledOff(format!("it was ended before it was done; {report}")));
        }
        let (why, hint) = under_way.running.failure(status);
        let error = ErrorBody::new(ErrorCode::Io, format!("{why}; {report}"));
        Err(hint.into_iter().fold(error, ErrorBody::hint))
    }

    /// Returns the number of the job that measures.
    fn job_of(&self, targets: &Targets) -> u64 {
        let entries = self.jobs.unfinished_of(targets.pool.id());
        let entry = entries.iter().find(|entry| entry.is(&BenchJob) && entry.is_in_hand());
        entry.map_or(0, |entry| entry.id)
    }
}

fn unreadable(error: &io::Error) -> ErrorBody {
    ErrorBody::new(ErrorCode::Io, format!("reports of benchmarks cannot be read: {error}"))
}

/// Returns the profiles of a request.
fn profiles_of(request: &BenchSpace) -> Answer<Vec<Profile>> {
    for (what, found, most) in [
        ("profiles", request.profiles.len(), NAMES_MAX),
        ("numbers of outstanding I/Os", request.outstanding.len(), OUTSTANDING_MAX),
    ] {
        if found > most {
            let message =
                format!("{found} {what} are given, and {most} are measured at once; nothing was changed");
            return Err(ErrorBody::new(ErrorCode::BadRequest, message));
        }
    }
    let usual = [USUAL.to_owned()];
    let names = if request.profiles.is_empty() { usual.as_slice() } else { &request.profiles };
    let mut profiles = Vec::new();
    for name in names {
        let named = profiles_named(name, &[]).map_err(|error| {
            ErrorBody::new(ErrorCode::BadRequest, format!("{error}; nothing was changed"))
                .on(name.chars().take(80).collect::<String>())
        })?;
        profiles.extend(named);
    }
    Ok(profiles)
}

/// Returns the words of the command, without consent. Names are those of spaces and profiles that there are.
fn words_of(request: &BenchSpace, names: &[String]) -> Vec<String> {
    let mut words = vec!["bench".to_owned()];
    words.extend(names.iter().cloned());
    words.extend(request.profiles.iter().map(|name| format!("--profile={name}")));
    words.extend(request.size_bytes.map(|size| format!("--size={size}")));
    words.extend(request.rounds.map(|rounds| format!("--rounds={rounds}")));
    words.extend(request.runtime_s.map(|seconds| format!("--runtime={seconds}")));
    if !request.outstanding.is_empty() {
        let list: Vec<String> = request.outstanding.iter().map(u32::to_string).collect();
        words.push(format!("--outstanding={}", list.join(",")));
    }
    words
}

fn steps_of(names: &[String], writes: bool, rehearsed: Rehearsed) -> Vec<String> {
    let mut steps = Vec::new();
    if writes {
        steps.extend(names.iter().map(|name| format!("overwrite space {name}: what it holds is lost")));
    }
    steps.push(format!(
        "{} in {} with fio, about {}{}",
        counted(rehearsed.measurements, "measurement", "measurements"),
        counted(rehearsed.rounds, "round", "rounds"),
        duration(rehearsed.expected_s),
        if writes { ", after each space was written once" } else { "" },
    ));
    steps
}
