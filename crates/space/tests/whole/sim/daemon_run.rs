//! One life of the daemon: it opens the pool, recovers, serves clients while an operator looks after disks, and closes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::{BlockDevice, Clock, Instant, Seams, sleep};
use dolmen_causes::in_one_line;
use dolmen_disk::MemberState;
use dolmen_pool::{
    Arbiter, CreateOptions, Disk, MemoryArbiter, OpenMode, OpenOptions, Opened, Pool, PoolError, create,
    discover, open,
};
use dolmen_sim::{Random, SimDisk, World};
use dolmen_space::{DataLossEvent, DataLossKind, Integrity, Progress, Space, SpaceError, SpaceRange, Spaces};
use dolmen_units::DiskId;

use super::by_layout::{LayoutKind, Ledger};
use super::client::{client, make, purge, read_range};
use super::operator::{is_whole, learn_members, make_whole, missing_disks, rejoin_disks, take_in, tend};
use super::oracle::Oracle;
use super::removal::{Removals, remover};
use super::settings::{Reserved, verify_reserves};
use super::setup::{CONTENT, DAMAGING, LEAVING, Setup, stream};
use super::tally::{Rare, Tally, Work};
use super::unrest::unrest;

/// What survives the daemon: the world, the oracle, what people know.
pub struct Course {
    pub seed: u64,
    pub world: Rc<World>,
    pub disks: RefCell<Vec<Rc<SimDisk>>>,
    /// Which of them belong to the pool.
    pub members: RefCell<Vec<usize>>,
    pub arbiter: Rc<MemoryArbiter>,
    pub setup: RefCell<Setup>,
    pub redundant: bool,
    /// Whether somebody stirs: see [`unrest`](super::unrest).
    pub unrest: bool,
    /// Whether two disks may be away at once: then nothing else fails.
    pub pairs: bool,
    /// Whether one disk suffers at a time, or whoever took its place.
    pub one_suffers: bool,
    /// Whether spaces of one copy may lose what the disk that suffers has of them: no read may bring anything else.
    pub frail: bool,
    /// Whether a lost disk was declared lost, with what spaces of one copy had on it alone.
    pub declared_lost: Cell<bool>,
    /// How often the disk that suffers failed so that the pool does without it, as far as the oracle knows.
    pub failed: Cell<u64>,
    pub oracle: RefCell<Oracle>,
    /// Names of spaces that somebody is making.
    pub making: RefCell<Vec<String>>,
    pub failure: RefCell<Option<String>>,
    pub created: Cell<bool>,
    pub serving: Cell<bool>,
    /// A disk is or was away and not everything is as it was before.
    pub lost: Cell<bool>,
    /// The daemon that lives now may not know yet that a disk went away: its handle is dead.
    pub unnoticed: Cell<bool>,
    /// A disk came back as it was some flushes before: until every block was verified, it is as good as damaged.
    pub rolled_back: Cell<bool>,
    /// All members were here and nothing was stale when the pool was last closed.
    pub whole: Cell<bool>,
    /// More disks are or were away at once than some space has copies to spare, and not everything is as it was before:
    /// what only they have is out of reach, and what no flush had covered may have gone back in time.
    pub hard: Cell<bool>,
    /// One of those lost its cache.
    pub cache_lost: Cell<bool>,
    /// Replacements that somebody asked for and that have not begun: the old disk and the new one.
    pub wanted: RefCell<Vec<(usize, usize)>>,
    /// Members whose replacement has begun.
    pub leaving: RefCell<BTreeSet<usize>>,
    /// Who was to take the place of whom.
    pub shadows: RefCell<BTreeMap<usize, usize>>,
    /// Disks that leave without another in their place, and disks that are added.
    pub removals: RefCell<Removals>,
    /// Whether there are any.
    pub removes: bool,
    /// Whether spaces are converted.
    pub converts: bool,
    pub evens: bool,
    /// Whether people set things: see [`tend_settings`](super::settings::tend_settings).
    pub settings: bool,
    /// What is reserved for spaces, by their numbers.
    pub reserves: RefCell<BTreeMap<u64, Reserved>>,
    /// How many spaces become smaller now.
    pub shrinking: Cell<u64>,
    /// Disks that were in no pool yet.
    pub spares: RefCell<Vec<usize>>,
    /// Disks that nobody takes in for now, although they are there.
    pub barred: RefCell<BTreeSet<usize>>,
    /// Disks whose replacement some daemon was at.
    pub replaced: RefCell<BTreeSet<DiskId>>,
    /// The disk that suffers.
    pub victim: Rc<Cell<usize>>,
    /// What is under way by now, by the order in which it began, and how much ever began.
    pub at_work: RefCell<BTreeMap<u64, Work>>,
    pub works: Cell<u64>,
    /// What was under way when a disk left.
    pub left_during: RefCell<BTreeMap<usize, BTreeMap<u64, Work>>>,
    /// Disks that left in this life, whether or not the pool knows of it, and were not taken back in.
    pub absent: RefCell<BTreeSet<usize>>,
    /// Checkpoints within which a disk was taken in, and how many of them have ended.
    pub back_within: RefCell<BTreeSet<u64>>,
    pub ripe: Cell<u64>,
    /// How often disks left, and which was the last.
    pub departures: Cell<u64>,
    pub last_lost: Cell<Option<usize>>,
    /// When each disk was taken back in.
    pub back_at: RefCell<BTreeMap<usize, Instant>>,
    pub operations_left: Cell<u64>,
    pub run_operations: Cell<u64>,
    pub tally: Cell<Tally>,
    pub faults: RefCell<Ledger>,
    /// The identity of each disk in the pool, once known.
    pub ids: RefCell<BTreeMap<usize, DiskId>>,
    /// The pool of the daemon that lives now.
    pub pool: RefCell<Weak<Pool>>,
    /// That daemon, and how often it has said that it accepted a block unverified, as far as anybody has listened.
    pub daemon: RefCell<Weak<Spaces>>,
    pub heard: Cell<u64>,
    /// What clients are doing, and what was made of what, for whoever reads a failure.
    pub doing: RefCell<BTreeMap<u64, String>>,
    pub made: RefCell<Vec<String>>,
}

impl Course {
    pub fn fail(&self, cause: String) {
        let mut failure = self.failure.borrow_mut();
        if failure.is_none() {
            *failure = Some(cause);
        }
    }

    pub fn note(&self, change: impl FnOnce(&mut Tally)) {
        let mut tally = self.tally.get();
        change(&mut tally);
        self.tally.set(tally);
    }

    /// Devices of members that are here, and of those that somebody may have begun to make members.
    fn devices(&self) -> Vec<Rc<dyn BlockDevice>> {
        let mut indices: BTreeSet<usize> = self.members.borrow().iter().copied().collect();
        indices.extend(self.wanted.borrow().iter().map(|(_, new)| *new));
        indices.extend(self.removals.borrow().added.iter().copied());
        indices.retain(|index| !self.barred.borrow().contains(index));
        let disks = self.disks.borrow();
        let here = indices.iter().map(|index| &disks[*index]).filter(|disk| !disk.is_absent());
        here.map(|disk| disk.attach(&self.world)).collect()
    }

    /// Whether a disk is being replaced, or is to be.
    pub fn is_leaving(&self, index: usize) -> bool {
        self.leaving.borrow().contains(&index) || self.wanted.borrow().iter().any(|(old, _)| *old == index)
    }

    /// Notes something for whoever reads a failure.
    pub fn log_note(&self, what: impl Into<String>) {
        let tally = self.tally.get();
        let (step, run, operation) = (self.world.step_count(), tally.runs, tally.operations);
        let stripe = format!("step {step} (life {run}, operation {operation}): {}", what.into());
        self.made.borrow_mut().push(stripe);
    }

    /// Does something that counts as under way meanwhile.
    pub async fn during<T>(&self, work: Work, task: impl Future<Output = T>) -> T {
        let number = self.works.get();
        self.works.set(number + 1);
        self.at_work.borrow_mut().insert(number, work);
        let done = task.await;
        self.at_work.borrow_mut().remove(&number);
        if self.back_within.borrow_mut().remove(&number) {
            self.ripe.set(self.ripe.get() + 1);
        }
        done
    }

    /// Whether something is under way that somebody has begun.
    pub fn is_at_work(&self) -> bool {
        !self.at_work.borrow().is_empty()
    }

    /// Notes that a disk leaves.
    pub fn leaves(&self, index: usize) {
        let now = self.at_work.borrow().clone();
        let is_at = |work: Work| now.values().any(|other| *other == work);
        let (checkpoint, rejoin) = (is_at(Work::Checkpoint), is_at(Work::Rejoin));
        let (removal, is_removed) = (is_at(Work::Removal), self.is_removed(index));
        let back_at = self.back_at.borrow().get(&index).copied();
        self.log_note(format!("disk {index} leaves while {now:?} are under way"));
        let is_soon = back_at.is_some_and(|at| self.world.now().0 < at.0 + 20_000_000);
        self.note(|tally| {
            let met = [
                (Rare::DetachedInCheckpoint, checkpoint),
                (Rare::DetachedInRejoin, rejoin),
                (Rare::DetachedAgainAtOnce, is_soon),
                (Rare::LeavingDetached, removal && is_removed),
                (Rare::DetachedInRemoval, removal && !is_removed),
                (Rare::DetachedInConversion, is_at(Work::Conversion)),
                (Rare::DetachedInRebalance, is_at(Work::Rebalance)),
            ];
            met.iter().filter(|(_, is)| *is).for_each(|(state, _)| tally.saw(*state));
        });
        self.left_during.borrow_mut().insert(index, now);
        // Others may miss what it has, also those that are back.
        if self.lost.get() && (self.pairs || !self.redundant) {
            self.hard.set(true);
            self.note(|tally| tally.saw(Rare::TooManyAway));
            if self.cache_lost.get() {
                // It may have the only copy of what the one before it lost with its cache.
                self.oracle.borrow_mut().disk_lost(u8::MAX);
            }
        }
        self.lost.set(true);
        self.whole.set(false);
        self.absent.borrow_mut().insert(index);
        self.last_lost.set(Some(index));
        self.departures.set(self.departures.get() + 1);
    }

    /// Whether a disk alone has log and map: others were here, and have not been given them again yet, or are about to leave.
    pub fn votes_alone(&self, index: usize) -> bool {
        let Some(pool) = self.pool.borrow().upgrade() else { return false };
        let (ids, absent, disks) = (self.ids.borrow(), self.absent.borrow(), pool.disks());
        let is_retired = |disk: &Rc<Disk>| disk.member().state == MemberState::Retired;
        let leaves = |id: &DiskId| disks.iter().any(|disk| disk.id() == *id && is_retired(disk));
        let stays = |id: &DiskId| {
            !leaves(id) && !absent.iter().chain([&index]).any(|other| ids.get(other) == Some(id))
        };
        !pool.members().voters().iter().any(stays)
    }

    /// Notes that the disk that has just left lost its power, and with it what no flush had covered.
    pub fn lost_with_cache(&self) {
        self.unnoticed.set(true);
        self.cache_lost.set(true);
        let copies_max = if self.hard.get() { u8::MAX } else { 1 };
        self.oracle.borrow_mut().disk_lost(copies_max);
        self.note(|tally| tally.losses += 1);
    }

    /// Notes what the disk that suffers has failed at, before anybody judges what came of it: where spaces have one copy, what no
    /// flush had covered may be gone with it.
    pub fn notice(&self) {
        if self.redundant {
            return;
        }
        let faults = self.world.fault_counters();
        let failed = LEAVING.iter().map(|kind| faults.of(*kind)).sum();
        if self.failed.replace(failed) < failed {
            self.leaves(self.victim.get());
            self.lost_with_cache();
        }
    }

    /// Whether spaces of one copy may have lost something for good.
    fn is_damaged(&self) -> bool {
        let faults = self.world.fault_counters();
        self.frail && CONTENT.iter().any(|kind| faults.of(*kind) > 0)
    }

    /// Whether a disk has damaged a copy of what other disks have too.
    fn is_copy_damaged(&self) -> bool {
        let faults = self.world.fault_counters();
        self.redundant && DAMAGING.iter().any(|kind| faults.of(*kind) > 0)
    }

    /// Tells the oracle what disks have damaged so far.
    fn note_damage(&self, oracle: &mut Oracle) {
        (oracle.damaged, oracle.copy_damaged) = (self.is_damaged(), self.is_copy_damaged());
    }

    /// Passes on what the daemon that lives now says that it accepted unverified: of what was on a disk that went away that is
    /// decided while clients are served, and the next daemon does not know.
    pub fn hear(&self) {
        let Some(spaces) = self.daemon.borrow().upgrade() else { return };
        // What was said before and nothing since excuses nothing.
        let relogged = spaces.counters().accepted_unverified;
        if self.heard.replace(relogged) < relogged {
            let mut oracle = self.oracle.borrow_mut();
            self.note_damage(&mut oracle);
            oracle.reported(&accepted_unverified(&spaces));
        }
    }

    /// Notes that a disk was taken back in.
    pub fn is_back(&self, index: usize) {
        let now = self.at_work.borrow().clone();
        let before = self.left_during.borrow_mut().remove(&index).unwrap_or_default();
        let within =
            |work: Work| now.iter().any(|(number, other)| *other == work && before.contains_key(number));
        let met = [
            (Rare::BackInCheckpoint, now.values().any(|work| *work == Work::Checkpoint)),
            (Rare::FlappedInResync, within(Work::Resync)),
            (Rare::FlappedInReplacement, within(Work::Replacement)),
            (Rare::FlappedInRemoval, within(Work::Removal)),
            (Rare::ReplacedCameBack, self.is_leaving(index)),
        ];
        self.absent.borrow_mut().remove(&index);
        self.log_note(format!("disk {index} is taken in while {now:?} are under way"));
        self.note(|tally| met.iter().filter(|(_, is)| *is).for_each(|(state, _)| tally.saw(*state)));
        let checkpoints = now.iter().filter(|(_, work)| **work == Work::Checkpoint);
        self.back_within.borrow_mut().extend(checkpoints.map(|(number, _)| *number));
        self.back_at.borrow_mut().insert(index, self.world.now());
    }
}

/// The place of the operator among those who are doing something.
pub const OPERATOR: u64 = 99;
/// The place of whoever takes disks back in.
pub const REJOIN_TASK: u64 = 98;

/// What a life is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Clients work.
    Serve,
    /// Everything is made whole.
    Mend,
    /// What was made whole is compared without one of the disks.
    Without,
    /// Everything is made whole and compared.
    Finish,
    /// Everything is compared once more, as it was closed.
    Compare,
}

/// A daemon that serves.
pub struct DaemonRun {
    course: Rc<Course>,
    pub seams: Seams,
    pub clock: Rc<dyn Clock>,
    pub spaces: Rc<Spaces>,
    clients: Cell<usize>,
    helpers: Cell<usize>,
    /// A disk was taken in since the operator looked.
    pub joined: Cell<bool>,
}

impl Deref for DaemonRun {
    type Target = Course;

    fn deref(&self) -> &Course {
        &self.course
    }
}

impl DaemonRun {
    /// Takes an operation from what is left.
    pub fn take_operation(&self) -> bool {
        let (left, here) = (self.operations_left.get(), self.run_operations.get());
        if left == 0 || here == 0 || self.failure.borrow().is_some() {
            return false;
        }
        self.operations_left.set(left - 1);
        self.run_operations.set(here - 1);
        self.note(|tally| tally.operations += 1);
        self.faults.borrow_mut().count(self.world.fault_counters(), LayoutKind::all_of(&self.spaces));
        true
    }

    /// The size of a space as far as everybody knows of it.
    pub fn size_of(&self, uid: u64) -> Option<u64> {
        self.oracle.borrow().models.get(&uid).map(|model| model.size)
    }

    /// Keeps what the operator could not do for whoever reads a failure; it is tried again.
    pub fn trouble(&self, what: String) {
        self.log_note(what);
    }

    pub fn client_done(&self) {
        self.clients.set(self.clients.get() - 1);
    }

    pub fn helper_done(&self) {
        self.helpers.set(self.helpers.get() - 1);
    }

    /// Whether clients are at work.
    pub fn is_served(&self) -> bool {
        self.clients.get() > 0 && self.failure.borrow().is_none()
    }

    /// A space that is there.
    pub fn pick(&self, random: &mut dolmen_sim::Random) -> Option<(u64, Space)> {
        let oracle = self.oracle.borrow();
        let there: Vec<(u64, &str)> = oracle
            .models
            .iter()
            .filter(|(_, model)| !model.leaving)
            .map(|(uid, model)| (*uid, model.name.as_str()))
            .collect();
        let (uid, name) = there.get(random.index(there.len().max(1)))?;
        self.spaces.find(name).ok().map(|space| (*uid, space))
    }

    /// Whether a disk that is here again may lack what was written while it was away: what waits for that is not put in place.
    fn are_disks_stale(&self) -> bool {
        let is_catching_up = |work: &Work| matches!(work, Work::Rejoin | Work::Resync);
        self.joined.get() || self.course.at_work.borrow().values().any(is_catching_up)
    }

    /// Whether an error of a request that began at some time is one that may be.
    pub fn accept(
        &self,
        error: &SpaceError,
        since: Instant,
        (uid, at, length): (u64, u64, u64),
    ) -> Result<(), String> {
        self.notice();
        let oracle = self.oracle.borrow();
        let model = oracle.models.get(&uid);
        let leaving = model.is_none_or(|model| model.leaving);
        let was_trashed = model.and_then(|model| model.restored).is_some_and(|restored| restored >= since);
        let single = self.hard.get() || model.is_some_and(|model| model.copies == 1);
        let fine = match error {
            SpaceError::Pool(PoolError::NoSpace { .. } | PoolError::Fragmented { .. }) => {
                self.note(|tally| tally.saw(Rare::NoRoom));
                true
            }
            SpaceError::NoSpaceBelow { .. } => true,
            SpaceError::CacheFull { .. } => {
                // Who only fails reads is still a member as far as the pool knows.
                let is_unresponsive = single && self.unnoticed.get();
                self.hard.get()
                    || is_unresponsive
                    || !super::operator::missing_disks(self).is_empty()
                    || self.are_disks_stale()
            }
            SpaceError::Deleted { .. } => leaving,
            // It may have been there when this was asked, and have hung until it was not.
            SpaceError::Trashed { .. } => leaving || was_trashed,
            // It was made smaller in between.
            SpaceError::Range { .. } => model.is_none_or(|model| at + length > model.size),
            SpaceError::Unflushed { .. } => single,
            SpaceError::Unreadable { .. } | SpaceError::Unwritable { .. } => {
                let may_be_lost = self.lost.get() || self.declared_lost.get() || self.is_damaged();
                single && (may_be_lost || oracle.may_be_unreadable(uid, at, length))
            }
            _ => false,
        };
        self.note(|tally| tally.refused += 1);
        if fine {
            Ok(())
        } else {
            Err(format!("{}; {}", in_one_line(error), oracle.describe(uid, at, length)))
        }
    }
}

/// Runs one life to its end.
pub async fn live(course: Rc<Course>, goal: Goal) -> Result<(), String> {
    let seams = course.world.seams();
    let spaces = start(&course, &seams).await?;
    let clock = Rc::clone(&seams.clock);
    let clients = course.setup.borrow().clients;
    let (clients, helpers) = (Cell::new(clients), Cell::new(0));
    let joined = Cell::new(true);
    let run =
        Rc::new(DaemonRun { course: Rc::clone(&course), seams, clock, spaces, clients, helpers, joined });
    run.pool.replace(Rc::downgrade(run.spaces.pool()));
    run.daemon.replace(Rc::downgrade(&run.spaces));
    learn_members(&run);
    reconcile(&run).await?;
    course.serving.set(true);
    if goal == Goal::Serve {
        serve(&run).await;
    }
    if matches!(goal, Goal::Mend | Goal::Finish) {
        make_whole(&run).await?;
    }
    if !matches!(goal, Goal::Serve | Goal::Mend) {
        compare(&run).await?;
    }
    if run.failure.borrow().is_some() {
        return Ok(());
    }
    let whole = is_whole(&run).await?;
    if whole && run.rolled_back.get() {
        let seen =
            run.spaces.scrubs().verify(&Progress::default()).await.map_err(|error| in_one_line(&error))?;
        if run.redundant && !seen.is_sound() {
            return Err(format!("blocks without a good copy: {seen:?}"));
        }
        run.rolled_back.set(false);
    }
    let counters = run.spaces.counters();
    run.note(|tally| {
        tally.resynced_blocks += counters.resynced_blocks;
        tally.healed_blocks += counters.healed_blocks;
        let of_shadows = [
            (Rare::ShadowMade, counters.shadows_made),
            (Rare::ShadowPromoted, counters.shadows_promoted),
            (Rare::ShadowStripesCopied, counters.shadow_stripes_copied),
        ];
        of_shadows.iter().filter(|(_, count)| *count > 0).for_each(|(rare, _)| tally.saw(*rare));
    });
    if run.redundant && counters.lost_blocks > 0 {
        return Err(format!(
            "{} blocks were lost although one disk at most was damaged",
            counters.lost_blocks
        ));
    }
    if run.spaces.pool().log().laps() > 0 {
        run.note(|tally| tally.saw(Rare::LogWrapped));
    }
    let began = run.oracle.borrow_mut().flush_begins();
    run.spaces.close().await.map_err(|error| format!("closing: {}", in_one_line(&error)))?;
    let waiting = in_doubt(&run.spaces).await?;
    run.oracle.borrow_mut().flushed(began, None, &waiting);
    run.hear();
    // A disk may have gone while the pool was being closed, and nobody has noticed.
    run.whole.set(whole && missing_disks(&run).is_empty() && !run.unnoticed.get());
    Ok(())
}

async fn start(course: &Rc<Course>, seams: &Seams) -> Result<Rc<Spaces>, String> {
    let mut devices = course.devices();
    let arbiter = || Rc::clone(&course.arbiter) as Rc<dyn Arbiter>;
    let opened = if course.created.get() {
        let mut opened = open_pool(seams, arbiter(), &devices).await;
        if opened.is_err() && !course.barred.borrow().is_empty() {
            // The others may be too few, or too old. Then whoever was kept out is let in.
            course.barred.borrow_mut().clear();
            devices = course.devices();
            opened = open_pool(seams, arbiter(), &devices).await;
        }
        opened?
    } else {
        let name = "tank".parse().map_err(|error| format!("{error}"))?;
        let options = CreateOptions { name, overwrite: Vec::new(), fault_domains: Vec::new() };
        let made = create(seams, arbiter(), &devices, &options).await;
        made.map_err(|error| format!("making the pool: {}", in_one_line(&error)))?
    };
    let spaces =
        Spaces::start(opened).await.map_err(|error| format!("recovering: {}", in_one_line(&error)))?;
    course.created.set(true);
    let recovery = spaces.recovery();
    if course.members.borrow().len() > devices.len() {
        course.note(|tally| tally.saw(Rare::OpenedWithoutADisk));
        course.oracle.borrow_mut().decides_later();
    }
    if spaces.counters().shadows_found > 0 {
        course.note(|tally| tally.saw(Rare::OpenedWithShadow));
    }
    if recovery.out_of_reach > 0 {
        course.note(|tally| tally.saw(Rare::InDoubt));
    }
    if recovery.whole_stripes > 0 {
        course.note(|tally| tally.saw(Rare::StripeKept));
    }
    if recovery.reverted_stripes > 0 {
        course.note(|tally| tally.saw(Rare::StripeReverted));
    }
    if recovery.reverted > 0 {
        course.note(|tally| tally.saw(Rare::Reverted));
    }
    course.note(|tally| {
        tally.decided += recovery.decided;
        tally.rewritten += recovery.rewritten;
        tally.accepted_unverified += recovery.accepted_unverified;
    });
    for data_loss in spaces.data_loss_events() {
        let space = spaces.kept().into_iter().find(|space| space.id() == data_loss.space);
        if data_loss.kind == DataLossKind::AcceptedUnverified {
            let is_strict = |space: &Space| {
                let before = space.layout_before().map(|before| before.integrity);
                [Some(space.spec().integrity), before]
                    .into_iter()
                    .flatten()
                    .all(|one| one == Integrity::Strict)
            };
            if space.as_ref().is_some_and(is_strict) {
                return Err(format!("of a strict space, recovery took {data_loss:?}"));
            }
        } else if course.redundant && !(course.hard.get() && data_loss.kind == DataLossKind::CorruptHere) {
            return Err(format!("recovery lost {data_loss:?}"));
        }
    }
    let waiting = in_doubt(&spaces).await?;
    course.heard.set(spaces.counters().accepted_unverified);
    let mut oracle = course.oracle.borrow_mut();
    course.note_damage(&mut oracle);
    oracle.recovered(&accepted_unverified(&spaces), &waiting);
    drop(oracle);
    Ok(spaces)
}

/// What the daemon says that it accepted unverified.
fn accepted_unverified(spaces: &Spaces) -> Vec<SpaceRange> {
    let kept = spaces.kept();
    let taken = spaces
        .data_loss_events()
        .into_iter()
        .filter(|data_loss| data_loss.kind == DataLossKind::AcceptedUnverified);
    let range_of = |data_loss: DataLossEvent| {
        let space = kept.iter().find(|space| space.id() == data_loss.space)?;
        Some(SpaceRange { space: space.name(), at: data_loss.at, length: data_loss.length })
    };
    taken.filter_map(range_of).collect()
}

/// What nobody can tell before disks are back.
async fn in_doubt(spaces: &Spaces) -> Result<Vec<SpaceRange>, String> {
    let found = spaces.scrubs().in_doubt().await;
    found.map_err(|error| format!("looking for what waits for disks: {}", in_one_line(&error)))
}

async fn open_pool(
    seams: &Seams,
    arbiter: Rc<dyn Arbiter>,
    devices: &[Rc<dyn BlockDevice>],
) -> Result<Opened, String> {
    let found = discover(seams, devices).await;
    let candidates = found.pools.into_values().next().ok_or("no pool was found")?;
    let opened = open(seams, arbiter, candidates, &OpenOptions { mode: OpenMode::Write }).await;
    opened.map_err(|error| format!("opening: {}", in_one_line(&error)))
}

/// Ends what was half done when the daemon before died: spaces that were being made, deleted, resized.
async fn reconcile(run: &Rc<DaemonRun>) -> Result<(), String> {
    for name in run.making.take() {
        if let Ok(space) = run.spaces.find(&name) {
            run.spaces
                .changes()
                .delete(&space)
                .await
                .map_err(|error| format!("deleting {name}: {}", in_one_line(&error)))?;
        }
    }
    let models: Vec<(u64, String, bool, u64, Option<u64>)> = {
        let oracle = run.oracle.borrow();
        let known = oracle.models.iter();
        known.map(|(uid, m)| (*uid, m.name.clone(), m.leaving, m.size, m.resizing)).collect()
    };
    for (uid, name, leaving, size, resizing) in models {
        match run.spaces.find(&name) {
            Ok(space) if leaving => {
                run.spaces
                    .changes()
                    .delete(&space)
                    .await
                    .map_err(|error| format!("deleting {name}: {}", in_one_line(&error)))?;
                run.oracle.borrow_mut().remove(uid);
            }
            Ok(space) => {
                let found = space.size().0;
                if found != size && Some(found) != resizing {
                    return Err(format!("space {name} has {found} bytes instead of {size}"));
                }
                run.oracle.borrow_mut().resized(uid, found);
            }
            Err(_) if leaving => {
                match run.spaces.in_trash().into_iter().find(|space| space.name().as_str() == name) {
                    Some(space) => {
                        let restored = run.spaces.trash().restore(&space, None).await;
                        restored.map_err(|error| format!("restoring {name}: {}", in_one_line(&error)))?;
                        let mut oracle = run.oracle.borrow_mut();
                        oracle.models.get_mut(&uid).into_iter().for_each(|model| model.leaving = false);
                        run.note(|tally| tally.saw(Rare::FoundInTrash));
                    }
                    None => run.oracle.borrow_mut().remove(uid),
                }
            }
            Err(_) => return Err(format!("space {name} is gone")),
        }
    }
    // Whatever was becoming smaller when the daemon ended is that by now.
    run.shrinking.set(0);
    verify_reserves(run)?;
    let mut random = stream(run.seed, 2000 + run.tally.get().runs);
    while run.oracle.borrow().models.is_empty() {
        make(run, &mut random).await?;
    }
    Ok(())
}

async fn serve(run: &Rc<DaemonRun>) {
    let runs = run.tally.get().runs;
    for number in 0..run.clients.get() as u64 {
        let random = stream(run.seed, 10_000 + runs * 16 + number);
        run.seams.spawner.spawn("client", Box::pin(client(Rc::clone(run), random, number)));
    }
    let helper = |number: u64| stream(run.seed, 20_000 + runs * 16 + number);
    if !run.spaces.condemned().is_empty() {
        run.helpers.set(run.helpers.get() + 1);
        run.seams.spawner.spawn("purge", Box::pin(purge(Rc::clone(run))));
    }
    let ushered = helper(0).below(3) > 0;
    if ushered {
        run.helpers.set(run.helpers.get() + 1);
        run.seams.spawner.spawn("rejoin disks", Box::pin(rejoin_disks(Rc::clone(run), helper(1))));
    }
    if !run.barred.borrow().is_empty() {
        run.helpers.set(run.helpers.get() + 1);
        run.seams.spawner.spawn("plug", Box::pin(let_in(Rc::clone(run), helper(3))));
    }
    if run.unrest && runs > 1 {
        run.helpers.set(run.helpers.get() + 1);
        run.seams.spawner.spawn("unrest", Box::pin(unrest(Rc::clone(run), helper(2))));
    }
    if run.removes && runs > 1 {
        run.helpers.set(run.helpers.get() + 1);
        run.seams.spawner.spawn("remover", Box::pin(remover(Rc::clone(run), helper(4))));
    }
    while run.clients.get() > 0 || run.helpers.get() > 0 {
        sleep(run.clock.as_ref(), Duration::from_millis(2)).await;
        if !ushered {
            take_in(run).await;
        }
        if let Err(cause) = tend(run).await {
            run.fail(cause);
        }
    }
}

/// After a while, whoever was kept out may come in.
async fn let_in(run: Rc<DaemonRun>, mut random: Random) {
    let longest_us = 1000 << random.below(8);
    sleep(run.clock.as_ref(), Duration::from_micros(random.below(longest_us))).await;
    run.barred.borrow_mut().clear();
    run.helper_done();
}

/// Compares every block with the oracle, and checks map and copies.
async fn compare(run: &Rc<DaemonRun>) -> Result<(), String> {
    let models: Vec<(u64, String, u64)> = run
        .oracle
        .borrow()
        .models
        .iter()
        .map(|(uid, model)| (*uid, model.name.clone(), model.size))
        .collect();
    for (uid, name, size) in models {
        let space = run.spaces.find(&name).map_err(|error| in_one_line(&error))?;
        let single = run.oracle.borrow().models.get(&uid).is_some_and(|model| model.copies == 1);
        let step = if single { 4096 } else { 256 * 1024 };
        for at in (0..size).step_by(step) {
            read_range(run, uid, &space, at, (size - at).min(step as u64)).await?;
        }
    }
    let findings = run.spaces.scrubs().check_map().await.map_err(|error| in_one_line(&error))?;
    if !findings.is_empty() {
        return Err(format!("the map: {}", findings.join("; ")));
    }
    let seen = run.spaces.scrubs().verify(&Progress::default()).await.map_err(|error| in_one_line(&error))?;
    if run.redundant && !seen.is_sound() {
        return Err(format!("blocks without a good copy: {seen:?}"));
    }
    Ok(())
}
