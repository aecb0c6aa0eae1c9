//! Scrubs: asked for, joined, resumed after a restart, and what they have found (docs/design/0011).
//!
//! Invariant: the findings of a job are those of all rows before the checkpoint of its scrub, over restarts as well.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use dolmen_api::{Change, ErrorBody, ErrorCode, JobState, Simple};
use dolmen_block_io::Seams;
use dolmen_pool::{DamagedLabels, LocalFuture};
use dolmen_space::{JobShare, Scrub, ScrubPlace, ScrubPosition, SpaceRange, Verification};
use dolmen_units::{Bytes, Name, SpaceId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::answer::Answer;
use crate::base::Base;
use crate::fault;
use crate::health::absent_names;
use crate::job::{Ending, Job, JobWorker};
use crate::jobs::{
    Aim, Course, Entry, Jobs, Kind, OWN_TEXT_MAX, Outcome, OwnState, Rank, Start, TEXT_BYTES_MAX, kept, share,
};
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::plan::{Undo, made, planned};
use crate::pool_jobs::PoolJobs;
use crate::words::counted;

/// Ranges that a scrub names, of each kind.
const RANGES_NAMED: usize = 20;
/// Ranges of lost blocks that a scrub remembers: one more than it names, so that it can say that there are more.
const LOST_MAX: usize = RANGES_NAMED + 1;
/// Spaces of which a scrub counts what is out of reach; a sum is kept for all others together.
const OUT_OF_REACH_MAX: usize = 64;
/// Absent disks that a scrub names; it counts the others.
const ABSENT_NAMED_MAX: usize = 8;
/// Text of what a scrub has found in the record of jobs, at most.
const SCRUB_TEXT_MAX: usize =
    1024 + (LOST_MAX + OUT_OF_REACH_MAX) * 256 + ABSENT_NAMED_MAX * 6 * TEXT_BYTES_MAX;
const _: () = assert!(SCRUB_TEXT_MAX <= OWN_TEXT_MAX, "the record of a scrub fits that of jobs");
/// Name under which the sum of further spaces is kept; no space can have it.
const OTHER_SPACES: &str = "…";
/// Note of a scrub that was cut short and went on.
const RESUMED: &str = "; resumed where it was interrupted";

/// Reads and verifies everything.
pub(crate) struct ScrubJob;

impl Kind for ScrubJob {
    fn word(&self) -> &'static str {
        "scrub"
    }

    fn doing(&self) -> &'static str {
        "verifying"
    }

    fn rank(&self) -> Option<Rank> {
        Some(Rank::Background)
    }

    fn usual_share(&self) -> JobShare {
        share::PATIENT
    }

    fn verifies_all(&self) -> bool {
        true
    }

    fn own_state(&self) -> Option<Rc<dyn OwnState>> {
        Some(Rc::new(ScrubState::default()))
    }

    fn recalled_state(&self, recorded: &Value) -> Option<Rc<dyn OwnState>> {
        let recorded: RecordedScrub = serde_json::from_value(recorded.clone()).ok()?;
        Some(Rc::new(recorded.resume()))
    }

    fn is_about(&self, aim: Aim) -> bool {
        aim == Aim::Pool
    }
}

impl Job for ScrubJob {}

impl JobWorker for Scrubs {
    fn resume<'a>(self: Rc<Self>, pool: &'a Rc<OpenPool>, entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            match self.scrub_of(pool).filter(|other| other.id < entry.id) {
                Some(other) => {
                    entry.end(JobState::CalledOff, format!("job {} verifies the same", other.id));
                }
                None => drop(self.start_scrub(pool, Some(Rc::clone(entry))).await),
            }
        })
    }

    fn ending(&self, entry: &Entry) -> Ending {
        let undo = Undo::By(format!("dolmen scrub {}, which begins again", entry.pool_name));
        Ending { step: "what it has healed stays healed", undo }
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move { self.pool_jobs.stop_asked(self.as_ref(), entry, request).await })
    }
}

/// State of a scrub in addition to its progress.
#[derive(Default)]
pub(crate) struct ScrubState {
    /// Its position.
    scrub: Scrub,
    /// What it has found before that.
    found: RefCell<ScrubFindings>,
    /// Whether it has read everything, and only has to report that: it cannot be joined.
    is_ending: Cell<bool>,
}

impl ScrubState {
    fn at(position: ScrubPosition, found: ScrubFindings) -> Self {
        Self { scrub: Scrub::at(position), found: RefCell::new(found), is_ending: Cell::default() }
    }
}

impl OwnState for ScrubState {
    fn checkpoints(&self) -> u64 {
        self.scrub.checkpoints()
    }

    fn recorded(&self) -> Value {
        serde_json::to_value(RecordedScrub::of(self)).unwrap_or(Value::Null)
    }

    fn resumed(&self) -> Rc<dyn OwnState> {
        Rc::new(Self::at(self.scrub.checkpoint(), self.found.borrow().clone()))
    }
}

/// A range of a space that no copy can give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LostRange {
    space: String,
    at: u64,
    length: u64,
}

/// Sum of ranges of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Sum {
    bytes: u64,
    pieces: u64,
}

/// Findings of a scrub so far. Bounded, whatever it finds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct ScrubFindings {
    blocks: u64,
    /// Copies of blocks that were bad, and are good now.
    healed: u64,
    /// Headers of slabs that were wrong, and how many of them still are.
    headers: u64,
    headers_unhealed: u64,
    lost: Vec<LostRange>,
    /// Of each space. What lies behind the end of a space, in its last row, does not count.
    out_of_reach: BTreeMap<String, Sum>,
    /// Disks that were absent for a part of it, at most [`ABSENT_NAMED_MAX`], and whether there were more.
    absent: BTreeSet<String>,
    more_absent: bool,
}

/// Position and findings of a scrub, as they are on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct RecordedScrub {
    next: (u64, u64),
    last: Option<(u64, u64)>,
    another: Option<(u64, u64)>,
    found: ScrubFindings,
}

impl RecordedScrub {
    fn of(state: &ScrubState) -> Self {
        let ScrubPosition { next, last, another } = state.scrub.checkpoint();
        let pair = |place: ScrubPlace| (place.space.0, place.row);
        let found = state.found.borrow().clone();
        Self { next: pair(next), last: last.map(pair), another: another.map(pair), found }
    }

    /// Returns the state of a scrub that resumes there.
    fn resume(self) -> ScrubState {
        let place = |(space, row)| ScrubPlace { space: SpaceId(space), row };
        let (next, last, another) = (place(self.next), self.last.map(place), self.another.map(place));
        ScrubState::at(ScrubPosition { next, last, another }, self.found)
    }
}

impl ScrubFindings {
    fn add(&mut self, seen: &Verification, sizes: &BTreeMap<Name, Bytes>) {
        self.blocks += seen.blocks;
        self.healed += seen.healed;
        self.headers += seen.header_count;
        self.headers_unhealed += seen.headers_unhealed;
        for range in &seen.lost {
            self.add_lost(range);
        }
        for range in &seen.out_of_reach {
            let size = sizes.get(&range.space).map_or(u64::MAX, |size| size.0);
            let length = range.length.0.min(size.saturating_sub(range.at));
            if length > 0 {
                self.add_out_of_reach(range.space.as_str(), length);
            }
        }
    }

    fn add_lost(&mut self, range: &SpaceRange) {
        let follows =
            |last: &&mut LostRange| last.at + last.length == range.at && last.space == range.space.as_str();
        if let Some(last) = self.lost.last_mut().filter(follows) {
            last.length += range.length.0;
        } else if self.lost.len() < LOST_MAX {
            let space = range.space.as_str().to_owned();
            self.lost.push(LostRange { space, at: range.at, length: range.length.0 });
        }
    }

    fn add_out_of_reach(&mut self, space: &str, length: u64) {
        let is_known = self.out_of_reach.contains_key(space) || self.out_of_reach.len() < OUT_OF_REACH_MAX;
        let key = if is_known { space } else { OTHER_SPACES };
        let sum = self.out_of_reach.entry(key.to_owned()).or_default();
        (sum.bytes, sum.pieces) = (sum.bytes + length, sum.pieces + 1);
    }

    fn add_absent(&mut self, names: Vec<String>) {
        for name in names.iter().map(|name| kept(name)) {
            if self.absent.len() < ABSENT_NAMED_MAX {
                self.absent.insert(name);
            } else {
                self.more_absent |= !self.absent.contains(&name);
            }
        }
    }

    /// What a scrub says when it has ended.
    fn reported(&self) -> Answer<String> {
        let blocks = counted(self.blocks, "block", "blocks");
        let copies = match self.healed {
            0 => String::new(),
            1 => ", 1 copy of a block healed".to_owned(),
            healed => format!(", {healed} copies of blocks healed"),
        };
        let verified = format!("{blocks} verified{copies}{}", self.headers_text());
        if self.lost.is_empty() && self.out_of_reach.is_empty() {
            return Ok(if self.healed == 0 && self.headers == 0 {
                format!("{verified}, all sound")
            } else {
                format!("{verified}; all sound now")
            });
        }
        let range = |range: &LostRange| {
            format!("{} of space {} from byte {} on", Bytes(range.length), range.space, range.at)
        };
        let places: Vec<String> = self.lost.iter().take(RANGES_NAMED).map(range).collect();
        let more = if self.lost.len() > RANGES_NAMED { ", and more" } else { "" };
        let lost = (!places.is_empty()).then(|| format!("lost: {}{more}", places.join(", ")));
        let sums = self.sums();
        let away = (!sums.is_empty()).then(|| format!("out of reach: {}", sums.join(", ")));
        let message =
            format!("{verified}; {}", [lost, away].into_iter().flatten().collect::<Vec<_>>().join("; "));
        let hint = if self.lost.is_empty() {
            "bring the disks that are missing back"
        } else {
            "restore what is lost from a backup"
        };
        Err(ErrorBody::new(ErrorCode::Io, message).hint(hint))
    }

    /// How much of each space is out of reach, and in how many pieces: a disk that is missing has one in every stripe.
    fn sums(&self) -> Vec<String> {
        let reported = |(space, sum): (&String, &Sum)| {
            let space =
                if space == OTHER_SPACES { "other spaces".to_owned() } else { format!("space {space}") };
            format!("{} of {space}, in {}", Bytes(sum.bytes), counted(sum.pieces, "piece", "pieces"))
        };
        self.out_of_reach.iter().map(reported).collect()
    }

    /// Headers of slabs that were not what they should be.
    fn headers_text(&self) -> String {
        if self.headers == 0 {
            return String::new();
        }
        let headers = counted(self.headers, "header of a slab", "headers of slabs");
        let fate = if self.headers_unhealed == 0 { "rewritten" } else { "found wrong" };
        format!(", {headers} {fate}")
    }

    /// Disks of which a scrub did not see what they have, because they were absent.
    fn not_verified(&self) -> String {
        let names: Vec<&str> = self.absent.iter().map(String::as_str).collect();
        let more = if self.more_absent { " and others" } else { "" };
        match names.as_slice() {
            [] => String::new(),
            [one] => format!("; what {one} has was not verified: it is absent"),
            several => format!("; what {}{more} have was not verified: they are absent", several.join(", ")),
        }
    }
}

/// Scrubs.
pub(crate) struct Scrubs {
    pools: Rc<OpenPools>,
    pool_jobs: Rc<PoolJobs>,
    seams: Seams,
    jobs: Rc<Jobs>,
}

impl Scrubs {
    pub(crate) fn new(base: &Base) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            pool_jobs: Rc::clone(&base.pool_jobs),
            seams: base.seams.clone(),
            jobs: Rc::clone(&base.jobs),
        }
    }
}

impl Scrubs {
    /// Begins a scrub of a pool, or joins the one that is under way.
    pub(crate) async fn scrub(&self, name: String, request: Simple) -> Answer<Change> {
        let pool = self.pools.pool_to_change(&name)?;
        if let Some(entry) = self.scrub_of(&pool) {
            return self.join_scrub(&name, &entry);
        }
        self.pool_jobs.check_job_room(&pool)?;
        let plan = pool.plan(
            Undo::NotNeeded,
            vec![format!("read and verify everything in pool {name}, and heal what can be healed")],
        );
        if request.dry_run {
            return Ok(planned(plan, format!("pool {name} would be scrubbed")));
        }
        let job = self.start_scrub(&pool, None).await;
        let mut change = made(plan, format!("pool {name} is being scrubbed, job {}", job.id));
        change.job = Some(job);
        Ok(change)
    }

    /// Returns the scrub of a pool that has not ended, and is not about to.
    pub(crate) fn scrub_of(&self, pool: &OpenPool) -> Option<Rc<Entry>> {
        let unfinished = self.jobs.unfinished_of(pool.id());
        let is_joinable = |entry: &Rc<Entry>| {
            !entry.is_to_stop() && state_of(entry.course()).is_none_or(|state| !state.is_ending.get())
        };
        unfinished.into_iter().find(|entry| entry.is(&ScrubJob) && is_joinable(entry))
    }

    /// Joins a scrub that runs or waits; refuses where a person has paused it.
    fn join_scrub(&self, name: &str, entry: &Entry) -> Answer<Change> {
        let (what, id) = (entry.what(), entry.id);
        if entry.is_paused() {
            let message = format!("{what} is paused; nothing was changed");
            return Err(ErrorBody::new(ErrorCode::Busy, message).on(name).hint(format!(
                "`dolmen job resume {id}` resumes it where it was paused; `dolmen job stop {id}` ends it, and then another can begin"
            )));
        }
        let view = entry.view(self.seams.clock.now());
        let far = match view.rows_done {
            0 => String::new(),
            done => format!(
                "; {done} of {} are verified, and are not read again",
                counted(view.rows_total, "row", "rows")
            ),
        };
        Ok(self.pool_jobs.unchanged(
            entry,
            format!("pool {name} is being scrubbed already, by job {id}, which this request joins{far}"),
        ))
    }

    /// Has everything of a pool verified from now on: by the scrub that is under way, which reads again what it has read before, or
    /// by another one.
    pub(crate) async fn verify_all(&self, pool: &Rc<OpenPool>) -> dolmen_api::Job {
        let Some(entry) = self.scrub_of(pool) else { return self.start_scrub(pool, None).await };
        if let Some(state) = state_of(entry.course()) {
            state.scrub.read_all_again();
        }
        self.jobs.keep().await;
        entry.view(self.seams.clock.now())
    }

    /// The job that verifies everything, or resumes that under its number.
    pub(crate) async fn start_scrub(&self, pool: &Rc<OpenPool>, again: Option<Rc<Entry>>) -> dolmen_api::Job {
        let scrubbed = Rc::clone(pool);
        let is_resumed = again.is_some();
        let subject = format!("pool {}", pool.name());
        let start = Start { kind: &ScrubJob, subject, aim: Aim::Pool, again };
        let job = self.pool_jobs.start_job(pool, start, move |course| async move {
            scrub(&scrubbed, &course, if is_resumed { RESUMED } else { "" }).await
        });
        job.await
    }
}

/// Returns what a job keeps as a scrub.
fn state_of(course: &Course) -> Option<&ScrubState> {
    course.own()
}

async fn scrub(pool: &OpenPool, course: &Course, note: &str) -> Answer<Outcome> {
    let (spaces, begun) = (&pool.spaces, ScrubState::default());
    let state = state_of(course).unwrap_or(&begun);
    state.found.borrow_mut().add_absent(absent_names(pool));
    course.bytes_max.set(spaces.kept().iter().map(|space| space.claimed().0).sum());
    let note_seen = |seen: Verification| {
        // One in the trash may have the name of another: the larger size is what both may have lost.
        let mut kept = spaces.kept();
        kept.sort_by_key(|space| space.size());
        let sizes = kept.iter().map(|space| (space.name(), space.size())).collect();
        let mut found = state.found.borrow_mut();
        found.add(&seen, &sizes);
        // What came back meanwhile was not read from its beginning, and what left not to its end.
        found.add_absent(absent_names(pool));
    };
    let labels = noted(&spaces.pool().stamps().verify_labels().await);
    let is_at_end = loop {
        let is_at_end = spaces.scrubs().scrub(&state.scrub, &course.progress, note_seen).await;
        let is_at_end = is_at_end.map_err(|error| fault::space(&error))?;
        pool.look_again().await;
        // While it looked, everything may have been asked for again. From here on nothing waits until the job has its outcome.
        if !is_at_end || state.scrub.is_complete() {
            break is_at_end;
        }
    };
    state.is_ending.set(true);
    let found = state.found.borrow().clone();
    let notes = format!("{labels}{}{note}", found.not_verified());
    if !is_at_end {
        let reported = found.reported().unwrap_or_else(|error| error.message);
        return Ok(Outcome::CalledOff(format!("by then {reported}{notes}")));
    }
    match found.reported() {
        Ok(reported) => Ok(Outcome::Done(format!("{reported}{notes}"))),
        Err(mut error) => {
            error.message.push_str(&notes);
            Err(error)
        }
    }
}

/// Says of which disks copies of the label were damaged; empty where none was.
fn noted(damaged: &[DamagedLabels]) -> String {
    let names = |is_mended: bool| -> String {
        let of = damaged.iter().filter(|damaged| damaged.is_mended == is_mended);
        of.map(|damaged| damaged.disk.name()).collect::<Vec<_>>().join(", ")
    };
    let (mended, left) = (names(true), names(false));
    let mended = if mended.is_empty() {
        String::new()
    } else {
        format!("; copies of the labels of {mended} were damaged, and are rewritten")
    };
    if left.is_empty() {
        return mended;
    }
    format!("{mended}; copies of the labels of {left} are damaged and cannot be rewritten: replace the disk")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    /// Headers of slabs that a scrub found wrong are told beside what it has healed; content that cannot be read comes behind.
    #[test]
    fn a_scrub_reports_headers_that_were_wrong() {
        let reported = |header_count, headers_unhealed, healed| {
            let seen =
                Verification { blocks: 5, header_count, headers_unhealed, healed, ..Verification::default() };
            let mut found = ScrubFindings::default();
            found.add(&seen, &BTreeMap::new());
            found.reported().unwrap()
        };
        assert_eq!(reported(0, 0, 0), "5 blocks verified, all sound");
        assert_eq!(reported(1, 0, 0), "5 blocks verified, 1 header of a slab rewritten; all sound now");
        assert_eq!(
            reported(2, 1, 1),
            "5 blocks verified, 1 copy of a block healed, 2 headers of slabs found wrong; all sound now"
        );
    }

    #[test]
    fn what_a_scrub_cannot_reach_is_a_sum_for_each_space_and_ends_with_it() {
        let range = |space: &str, at, length| SpaceRange { space: name(space), at, length: Bytes(length) };
        let sizes = [(name("a"), Bytes(20480)), (name("b"), Bytes(4096))].into();
        let sums = |out_of_reach: Vec<SpaceRange>| {
            let mut found = ScrubFindings::default();
            found.add(&Verification { out_of_reach, ..Verification::default() }, &sizes);
            found.sums()
        };
        let ranges =
            [range("b", 0, 4096), range("a", 8192, 4096), range("a", 0, 4096), range("a", 16384, 8192)];
        let expected = ["12 KiB of space a, in 3 pieces", "4 KiB of space b, in 1 piece"];
        assert_eq!(sums(ranges.into()), expected);
        assert!(sums(vec![range("a", 20480, 4096)]).is_empty());
    }

    /// Scenario: a scrub finds more than it remembers, in more spaces than it counts, with more disks absent than it names. What it
    /// keeps is bounded, fits the record, and says that there is more.
    #[test]
    fn findings_are_bounded_and_fit_the_record() {
        let long = "n".repeat(50);
        let ranges = |count: u64| {
            let range = |index: u64| {
                let space = name(&format!("{long}{index}"));
                SpaceRange { space, at: u64::MAX - 8192 * (index + 1), length: Bytes(4096) }
            };
            (0..count).map(range).collect::<Vec<_>>()
        };
        let seen = Verification { lost: ranges(200), out_of_reach: ranges(200), ..Verification::default() };
        let course = ScrubState::default();
        course.found.borrow_mut().add(&seen, &BTreeMap::new());
        course
            .found
            .borrow_mut()
            .add_absent((0..40).map(|disk| format!("{disk}{}", "\u{1}".repeat(600))).collect());
        let recorded = RecordedScrub::of(&course);
        let text = serde_json::to_string(&recorded).unwrap();
        assert!(text.len() <= SCRUB_TEXT_MAX, "{} bytes", text.len());
        let found = serde_json::from_str::<RecordedScrub>(&text).unwrap().resume().found.into_inner();
        assert_eq!(found, *course.found.borrow());
        let reported = found.reported().unwrap_err().message;
        assert!(reported.contains(", and more; out of reach: "), "{reported}");
        assert!(reported.contains("544 KiB of other spaces, in 136 pieces"), "{reported}");
        assert!(found.not_verified().contains(" and others have"), "{}", found.not_verified());
    }

    /// Scenario: a record is written and read back in each lap. The scrub resumes at the same place, with what it has found.
    #[test]
    fn a_recorded_scrub_resumes_where_it_was() {
        let place = |space, row| ScrubPlace { space: SpaceId(space), row };
        for position in [
            ScrubPosition::default(),
            ScrubPosition { next: place(3, 9), last: None, another: None },
            ScrubPosition { next: place(3, 9), last: None, another: Some(place(2, 1)) },
            ScrubPosition { next: place(1, 0), last: Some(place(2, 1)), another: None },
        ] {
            let course = ScrubState::at(position, ScrubFindings::default());
            course.found.borrow_mut().blocks = 7;
            let text = serde_json::to_string(&RecordedScrub::of(&course)).unwrap();
            let resumed = serde_json::from_str::<RecordedScrub>(&text).unwrap().resume();
            assert_eq!((resumed.scrub.checkpoint(), resumed.found.borrow().blocks), (position, 7));
        }
    }
}
