//! One life of the daemon: it opens the pool, recovers, serves clients while an operator looks after disks, and closes.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{BlockDevice, Clock, Seams, sleep};
use dolmen_causes::in_one_line;
use dolmen_pool::{
    Arbiter, CreateOptions, MemoryArbiter, OpenMode, OpenOptions, PoolError, create, discover, open,
};
use dolmen_sim::{FaultKind, SimDisk, World};
use dolmen_space::{IncidentKind, Progress, Space, SpaceError, Spaces};
use dolmen_units::DiskSlot;

use super::client::{client, make, read_range};
use super::oracle::Oracle;
use super::setup::{Setup, stream};

/// What outlives the daemon: the world, the oracle, what people know.
pub struct Course {
    pub seed: u64,
    pub world: Rc<World>,
    pub disks: RefCell<Vec<Rc<SimDisk>>>,
    /// Which of them belong to the pool.
    pub members: RefCell<Vec<usize>>,
    pub arbiter: Rc<MemoryArbiter>,
    pub setup: RefCell<Setup>,
    pub redundant: bool,
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
    /// Old and new disk of a replacement that is wanted or under way, and the new disk's slot once it has one.
    pub replacing: Cell<Option<(usize, usize)>>,
    pub operations_left: Cell<u64>,
    pub life_operations: Cell<u64>,
    pub tally: Cell<Tally>,
    /// The pool's number of each disk, once known: the name of one that is away says nothing.
    pub slots: RefCell<std::collections::BTreeMap<usize, DiskSlot>>,
    /// What clients are doing, and what was made of what, for whoever reads a failure.
    pub doing: RefCell<std::collections::BTreeMap<u64, String>>,
    pub made: RefCell<Vec<String>>,
}

/// What happened, for the report.
#[derive(Debug, Default, Clone, Copy)]
pub struct Tally {
    pub operations: u64,
    pub lives: u64,
    pub kills: u64,
    pub power_cuts: u64,
    pub recoveries_cut: u64,
    pub losses: u64,
    pub returned_old: u64,
    pub rejoins: u64,
    pub replacements: u64,
    pub decided: u64,
    pub rewritten: u64,
    pub taken_as_found: u64,
    pub mixtures: u64,
    pub blocks_checked: u64,
    pub resynced_blocks: u64,
    pub healed_blocks: u64,
    pub refused: u64,
    rare: [u64; Rare::ALL.len()],
}

/// States that few lives come through, so that somebody has to see to it that some do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rare {
    /// A recovery was cut short.
    RecoveryCut,
    /// So was the recovery after it.
    RecoveryCutAgain,
    /// The daemon ended while a member was away.
    CrashWithoutADisk,
    /// The pool was opened without a member.
    OpenedWithoutADisk,
    /// The daemon ended while a disk was taken back in.
    RejoinCut,
    /// The daemon ended while stale slabs were refilled.
    ResyncCut,
    /// The daemon ended while a disk was replaced.
    ReplacementCut,
    /// A replacement that the daemon before had begun was brought to its end.
    ReplacementResumed,
    /// Clients went on during a checkpoint.
    CheckpointUnderLoad,
    /// The log had gone round when a pool was closed.
    LogWrapped,
    /// A flush failed because an only copy had left with unflushed blocks, whose claims were said again.
    ClaimsSaidAgain,
    /// Recovery left blocks undecided because their disks were absent.
    Undecided,
    /// Recovery went back to an earlier state of a block.
    Reverted,
    /// Power failed after a flush that had kept nothing.
    LieExposed,
    /// A full pool refused a write.
    NoRoom,
}

impl Rare {
    pub const ALL: [Self; 15] = [
        Self::RecoveryCut,
        Self::RecoveryCutAgain,
        Self::CrashWithoutADisk,
        Self::OpenedWithoutADisk,
        Self::RejoinCut,
        Self::ResyncCut,
        Self::ReplacementCut,
        Self::ReplacementResumed,
        Self::CheckpointUnderLoad,
        Self::LogWrapped,
        Self::ClaimsSaidAgain,
        Self::Undecided,
        Self::Reverted,
        Self::LieExposed,
        Self::NoRoom,
    ];
}

impl Tally {
    pub fn saw(&mut self, state: Rare) {
        self.rare[state as usize] += 1;
    }

    pub fn of(&self, state: Rare) -> u64 {
        self.rare[state as usize]
    }

    pub fn add(&mut self, other: &Self) {
        self.rare.iter_mut().zip(other.rare).for_each(|(mine, more)| *mine += more);
        let fields: [(&mut u64, u64); 17] = [
            (&mut self.operations, other.operations),
            (&mut self.lives, other.lives),
            (&mut self.kills, other.kills),
            (&mut self.power_cuts, other.power_cuts),
            (&mut self.recoveries_cut, other.recoveries_cut),
            (&mut self.losses, other.losses),
            (&mut self.returned_old, other.returned_old),
            (&mut self.rejoins, other.rejoins),
            (&mut self.replacements, other.replacements),
            (&mut self.decided, other.decided),
            (&mut self.rewritten, other.rewritten),
            (&mut self.taken_as_found, other.taken_as_found),
            (&mut self.mixtures, other.mixtures),
            (&mut self.blocks_checked, other.blocks_checked),
            (&mut self.resynced_blocks, other.resynced_blocks),
            (&mut self.healed_blocks, other.healed_blocks),
            (&mut self.refused, other.refused),
        ];
        fields.into_iter().for_each(|(mine, more)| *mine += more);
    }
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

    /// Devices of members that are here.
    fn devices(&self) -> Vec<Rc<dyn BlockDevice>> {
        let disks = self.disks.borrow();
        let here = self.members.borrow().iter().map(|index| Rc::clone(&disks[*index])).collect::<Vec<_>>();
        here.iter().filter(|disk| !disk.is_absent()).map(|disk| disk.attach(&self.world)).collect()
    }
}

/// The place of the operator among those who are doing something.
pub const OPERATOR: u64 = 99;

/// What a life is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Clients work.
    Serve,
    /// Everything is made whole and compared.
    Finish,
    /// Everything is compared once more, as it was closed.
    Compare,
}

/// A daemon that serves.
pub struct Life {
    course: Rc<Course>,
    pub seams: Seams,
    pub clock: Rc<dyn Clock>,
    pub spaces: Rc<Spaces>,
    clients: Cell<usize>,
}

impl Deref for Life {
    type Target = Course;

    fn deref(&self) -> &Course {
        &self.course
    }
}

impl Life {
    /// Takes an operation from what is left.
    pub fn take_operation(&self) -> bool {
        let (left, here) = (self.operations_left.get(), self.life_operations.get());
        if left == 0 || here == 0 || self.failure.borrow().is_some() {
            return false;
        }
        self.operations_left.set(left - 1);
        self.life_operations.set(here - 1);
        self.note(|tally| tally.operations += 1);
        true
    }

    /// The size of a space as far as everybody knows of it.
    pub fn size_of(&self, uid: u64) -> Option<u64> {
        self.oracle.borrow().models.get(&uid).map(|model| model.size)
    }

    /// Keeps what the operator could not do for whoever reads a failure; it is tried again.
    fn trouble(&self, what: String) {
        let lives = self.tally.get().lives;
        self.made.borrow_mut().push(format!("life {lives}: {what}"));
    }

    pub fn client_done(&self) {
        self.clients.set(self.clients.get() - 1);
    }

    /// A space that is there.
    pub fn pick(&self, random: &mut dolmen_sim::Random) -> Option<(u64, Rc<Space>)> {
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

    /// Whether an error of a request is one that may be.
    pub fn accept(&self, error: &SpaceError, uid: u64, at: u64, length: u64) -> Result<(), String> {
        let oracle = self.oracle.borrow();
        let model = oracle.models.get(&uid);
        let leaving = model.is_none_or(|model| model.leaving);
        let single = model.is_some_and(|model| model.copies == 1);
        let fine = match error {
            SpaceError::Pool(PoolError::NoSpace { .. } | PoolError::Fragmented { .. }) => {
                self.note(|tally| tally.saw(Rare::NoRoom));
                true
            }
            SpaceError::NoSpaceBelow { .. } => true,
            SpaceError::Gone { .. } => leaving,
            SpaceError::Unflushed { .. } => single,
            SpaceError::Unreadable { .. } | SpaceError::Unwritable { .. } => {
                single && (self.lost.get() || oracle.may_be_unreadable(uid, at, length))
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
    let life =
        Rc::new(Life { course: Rc::clone(&course), seams, clock, spaces, clients: Cell::new(clients) });
    reconcile(&life).await?;
    learn_slots(&life);
    course.serving.set(true);
    if goal == Goal::Serve {
        serve(&life).await;
    }
    if goal == Goal::Finish {
        make_whole(&life).await?;
    }
    if goal != Goal::Serve {
        compare(&life).await?;
    }
    if life.failure.borrow().is_some() {
        return Ok(());
    }
    let whole = is_whole(&life).await?;
    if whole && life.rolled_back.get() {
        let seen = life.spaces.verify(&Progress::default()).await.map_err(|error| in_one_line(&error))?;
        if life.redundant && !seen.is_sound() {
            return Err(format!("blocks without a good copy: {seen:?}"));
        }
        life.rolled_back.set(false);
    }
    let counters = life.spaces.counters();
    life.note(|tally| {
        tally.resynced_blocks += counters.resynced_blocks;
        tally.healed_blocks += counters.healed_blocks;
    });
    if life.redundant && counters.lost_blocks > 0 {
        return Err(format!(
            "{} blocks were lost although one disk at most was damaged",
            counters.lost_blocks
        ));
    }
    if life.spaces.pool().log_laps() > 0 {
        life.note(|tally| tally.saw(Rare::LogWrapped));
    }
    let began = life.oracle.borrow_mut().flush_begins();
    life.spaces.close().await.map_err(|error| format!("closing: {}", in_one_line(&error)))?;
    life.oracle.borrow_mut().flushed(began, None);
    // A disk may have gone while the pool was being closed, and nobody has noticed.
    life.whole.set(whole && missing_disks(&life).is_empty() && !life.unnoticed.get());
    Ok(())
}

async fn start(course: &Rc<Course>, seams: &Seams) -> Result<Rc<Spaces>, String> {
    let devices = course.devices();
    let arbiter = || Rc::clone(&course.arbiter) as Rc<dyn Arbiter>;
    let opened = if course.created.get() {
        let found = discover(seams, &devices).await;
        let candidates = found.pools.into_values().next().ok_or("no pool was found")?;
        let opened = open(seams, arbiter(), candidates, &OpenOptions { mode: OpenMode::Write }).await;
        opened.map_err(|error| format!("opening: {}", in_one_line(&error)))?
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
    }
    if recovery.out_of_reach > 0 {
        course.note(|tally| tally.saw(Rare::Undecided));
    }
    if recovery.reverted > 0 {
        course.note(|tally| tally.saw(Rare::Reverted));
    }
    course.note(|tally| {
        tally.decided += recovery.decided;
        tally.rewritten += recovery.rewritten;
        tally.taken_as_found += recovery.taken_as_found;
    });
    let mut taken = Vec::new();
    for incident in spaces.incidents() {
        let name =
            spaces.list().into_iter().find(|space| space.id() == incident.space).map(|space| space.name());
        if incident.kind == IncidentKind::TakenAsFound {
            taken.extend(name.map(|name| (name.as_str().to_owned(), incident.at, incident.length.0)));
        } else if course.redundant {
            return Err(format!("recovery lost {incident:?}"));
        }
    }
    course.oracle.borrow_mut().recovered(taken);
    Ok(spaces)
}

/// Ends what was half done when the daemon before died: spaces that were being made, deleted, resized.
async fn reconcile(life: &Rc<Life>) -> Result<(), String> {
    for name in life.making.take() {
        if let Ok(space) = life.spaces.find(&name) {
            life.spaces
                .delete(&space)
                .await
                .map_err(|error| format!("deleting {name}: {}", in_one_line(&error)))?;
        }
    }
    let models: Vec<(u64, String, bool, u64, Option<u64>)> = {
        let oracle = life.oracle.borrow();
        let known = oracle.models.iter();
        known.map(|(uid, m)| (*uid, m.name.clone(), m.leaving, m.size, m.resizing)).collect()
    };
    for (uid, name, leaving, size, resizing) in models {
        match life.spaces.find(&name) {
            Ok(space) if leaving => {
                life.spaces
                    .delete(&space)
                    .await
                    .map_err(|error| format!("deleting {name}: {}", in_one_line(&error)))?;
                life.oracle.borrow_mut().remove(uid);
            }
            Ok(space) => {
                let found = space.size().0;
                if found != size && Some(found) != resizing {
                    return Err(format!("space {name} has {found} bytes instead of {size}"));
                }
                life.oracle.borrow_mut().resized(uid, found);
            }
            Err(_) if leaving => life.oracle.borrow_mut().remove(uid),
            Err(_) => return Err(format!("space {name} is gone")),
        }
    }
    let mut random = stream(life.seed, 2000 + life.tally.get().lives);
    while life.oracle.borrow().models.is_empty() {
        make(life, &mut random).await?;
    }
    Ok(())
}

async fn serve(life: &Rc<Life>) {
    let lives = life.tally.get().lives;
    for number in 0..life.clients.get() as u64 {
        let random = stream(life.seed, 10_000 + lives * 16 + number);
        life.seams.spawner.spawn("client", Box::pin(client(Rc::clone(life), random, number)));
    }
    while life.clients.get() > 0 {
        sleep(life.clock.as_ref(), Duration::from_millis(2)).await;
        if let Err(cause) = tend(life).await {
            life.fail(cause);
        }
    }
}

/// Looks after disks: what came back is taken in and brought up to date, what is to be replaced is replaced.
async fn tend(life: &Rc<Life>) -> Result<(), String> {
    let missing = missing_disks(life);
    let doing = |what: &str| drop(life.doing.borrow_mut().insert(OPERATOR, format!("operator: {what}")));
    doing("rejoin");
    let mut joined = false;
    for index in missing {
        let disk = Rc::clone(&life.disks.borrow()[index]);
        if !disk.is_absent() {
            // It may fail again on the way; then it stays out until the next time.
            match life.spaces.rejoin(disk.attach(&life.world)).await {
                Ok(_) => joined = true,
                Err(error) => {
                    life.trouble(format!("rejoining disk {index}: {}", in_one_line(&error)));
                    if matches!(error, SpaceError::Pool(PoolError::NoSuchDisk { .. })) {
                        give_up(life, index);
                    }
                }
            }
        }
    }
    if joined {
        life.unnoticed.set(false);
        life.note(|tally| tally.rejoins += 1);
    }
    if let Some((old, new)) = life.replacing.get() {
        doing("replace");
        replace(life, old, new).await;
    }
    doing("resync");
    let stale = life.spaces.stale_rows().await.map_err(|error| in_one_line(&error))?;
    if (joined || !stale.is_empty()) && missing_disks(life).is_empty() {
        match life.spaces.resync(&Progress::default()).await {
            Ok(done) if done.waiting == 0 => {}
            Ok(done) => life.trouble(format!("resync: {done:?}")),
            Err(error) => life.trouble(format!("resync: {}", in_one_line(&error))),
        }
    }
    doing("nothing");
    if life.lost.get() && is_whole(life).await? {
        life.lost.set(false);
    }
    Ok(())
}

/// A disk that lied about flushes may have lost all of its labels with its cache. Nobody knows it then, and whoever looks
/// after the pool replaces it, as long as there is a disk for that. One that never lied has no such excuse.
fn give_up(life: &Life, index: usize) {
    let disks = life.disks.borrow();
    let spare = disks.len() - 1;
    let lied = disks[index].fault_counters().of(FaultKind::LyingFlush) > 0;
    if lied && life.replacing.get().is_none() && !life.members.borrow().contains(&spare) {
        life.replacing.set(Some((index, spare)));
    }
}

/// Members whose disks the pool does without.
fn missing_disks(life: &Life) -> Vec<usize> {
    let disks = life.disks.borrow();
    let present = life.spaces.pool().disks().into_iter().filter(|disk| disk.is_present());
    let names: Vec<String> = present.map(|disk| disk.name()).collect();
    let members = life.members.borrow();
    members.iter().copied().filter(|index| !names.iter().any(|name| name == disks[*index].name())).collect()
}

/// Notes which number the pool gave to each disk that is here.
fn learn_slots(life: &Life) {
    let disks = life.disks.borrow();
    for present in life.spaces.pool().disks().into_iter().filter(|disk| disk.is_present()) {
        if let Some(index) = disks.iter().position(|disk| disk.name() == present.name()) {
            life.slots.borrow_mut().insert(index, present.slot());
        }
    }
}

async fn is_whole(life: &Life) -> Result<bool, String> {
    let stale = life.spaces.stale_rows().await.map_err(|error| in_one_line(&error))?;
    let away = life.members.borrow().iter().any(|index| life.disks.borrow()[*index].is_absent());
    Ok(stale.is_empty()
        && !away
        && !life.unnoticed.get()
        && missing_disks(life).is_empty()
        && life.replacing.get().is_none())
}

/// Replaces a disk, or goes on with it after a crash. What fails is tried again later.
async fn replace(life: &Rc<Life>, old: usize, new: usize) {
    let name = |index: usize| life.disks.borrow()[index].name().to_owned();
    learn_slots(life);
    let pool = Rc::clone(life.spaces.pool());
    let slot_of = |index: usize| {
        let slot = life.slots.borrow().get(&index).copied();
        slot.and_then(|slot| pool.disk(slot))
    };
    let Some(old_disk) = slot_of(old) else {
        // It was struck, and the daemon died before anybody was told.
        life.members.borrow_mut().retain(|index| *index != old);
        life.replacing.set(None);
        return;
    };
    if !life.members.borrow().contains(&new) {
        life.members.borrow_mut().push(new);
    }
    let progress = Progress::default();
    match slot_of(new) {
        None => {
            let device = { Rc::clone(&life.disks.borrow()[new]) }.attach(&life.world);
            if let Err(error) = life.spaces.replace(&old_disk, device, &[name(new)], &progress).await {
                life.trouble(format!("replacing disk {old}: {}", in_one_line(&error)));
            }
        }
        Some(new_disk) => {
            life.note(|tally| tally.saw(Rare::ReplacementResumed));
            let (from, to): (DiskSlot, DiskSlot) = (old_disk.slot(), new_disk.slot());
            match life.spaces.move_slabs(from, to, &progress).await {
                Ok(true) => drop(pool.strike(&old_disk).await),
                Ok(false) => life.trouble(format!("slabs stay on disk {old}")),
                Err(error) => life.trouble(format!("moving from disk {old}: {}", in_one_line(&error))),
            }
        }
    }
    learn_slots(life);
    if slot_of(old).is_none() {
        life.members.borrow_mut().retain(|index| *index != old);
        life.replacing.set(None);
        life.note(|tally| tally.replacements += 1);
    }
}

/// Everything is here, nothing is stale, every copy of every block is right.
async fn make_whole(life: &Rc<Life>) -> Result<(), String> {
    for _ in 0..4 {
        tend(life).await?;
        if is_whole(life).await? {
            break;
        }
    }
    if !is_whole(life).await? {
        let stale = life.spaces.stale_rows().await.map_err(|error| in_one_line(&error))?;
        let (missing, replacing) = (missing_disks(life), life.replacing.get());
        return Err(format!(
            "not whole in the end: stale {stale:?}, missing {missing:?}, replacing {replacing:?}"
        ));
    }
    life.spaces.pool().tend_voters().await.map_err(|error| in_one_line(&error))
}

/// Compares every block with the oracle, and checks map and copies.
async fn compare(life: &Rc<Life>) -> Result<(), String> {
    let models: Vec<(u64, String, u64)> = life
        .oracle
        .borrow()
        .models
        .iter()
        .map(|(uid, model)| (*uid, model.name.clone(), model.size))
        .collect();
    for (uid, name, size) in models {
        let space = life.spaces.find(&name).map_err(|error| in_one_line(&error))?;
        let single = life.oracle.borrow().models.get(&uid).is_some_and(|model| model.copies == 1);
        let step = if single { 4096 } else { 256 * 1024 };
        for at in (0..size).step_by(step) {
            read_range(life, uid, &space, at, (size - at).min(step as u64)).await?;
        }
    }
    let findings = life.spaces.check_map().await.map_err(|error| in_one_line(&error))?;
    if !findings.is_empty() {
        return Err(format!("the map: {}", findings.join("; ")));
    }
    let seen = life.spaces.verify(&Progress::default()).await.map_err(|error| in_one_line(&error))?;
    if life.redundant && !seen.is_sound() {
        return Err(format!("blocks without a good copy: {seen:?}"));
    }
    Ok(())
}
