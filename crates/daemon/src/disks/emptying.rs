//! Failing disks are emptied by themselves, where the others have room (docs/design/0022). They stay in their pool: whether one is
//! replaced, removed or used on, a person decides.
//!
//! Invariant: what somebody stopped, or what left something, is not begun again before the disk has had as many errors again.

use std::rc::Rc;
use std::time::Duration;

use dolmen_api::{Change, Simple};
use dolmen_mutation::mutation;
use dolmen_pool::{Disk, LocalFuture, PoolState};
use dolmen_space::{Emptied, Progress};
use dolmen_units::DiskId;

use crate::answer::Answer;
use crate::disks::absent::Rebuilds;
use crate::disks::empty_job::EmptyJob;
use crate::fault;
use crate::job::{Ending, JobWorker};
use crate::jobs::{Aim, Entry, Outcome, Start};
use crate::open_pool::OpenPool;
use crate::plan::Undo;
use crate::state::is_here;
use crate::words::counted;

/// How soon, and how seldom, it is looked again whether what a failing disk has fits on the others.
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(600);

impl JobWorker for Rebuilds {
    fn resume<'a>(self: Rc<Self>, pool: &'a Rc<OpenPool>, entry: &'a Rc<Entry>) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            if let Aim::Disk(failing) = entry.aim {
                self.go_on_emptying(pool, failing, entry).await;
            }
        })
    }

    fn ending(&self, entry: &Entry) -> Ending {
        let step = match self.is_of_absent(entry) {
            true => {
                "what was rebuilt stays where it is, and nothing more is rebuilt by itself before the disk has been back"
            }
            false => {
                "what was moved stays where it is, and it is not begun again before more happens; `dolmen pool remove` empties \
                 the disk nevertheless, and takes it out"
            }
        };
        Ending { step, undo: Undo::NotNeeded }
    }

    fn note_stop<'a>(&'a self, entry: &'a Entry) -> LocalFuture<'a, ()> {
        Box::pin(self.hold_off_emptying(entry))
    }

    fn stop<'a>(self: Rc<Self>, entry: &'a Rc<Entry>, request: Simple) -> LocalFuture<'a, Answer<Change>> {
        Box::pin(async move { self.pool_jobs.stop_asked(self.as_ref(), entry, request).await })
    }
}

impl OpenPool {
    /// Whether a disk is here, failing, and a member like others.
    pub(crate) fn is_to_be_empty(&self, disk: &Disk) -> bool {
        is_here(disk) && self.is_failing(disk) && self.spaces.pool().members().is_active(disk)
    }
}

/// Disks that should hold nothing, as long as others have room.
fn to_be_empty(pool: &OpenPool) -> Vec<Rc<Disk>> {
    let mut disks = pool.spaces.pool().disks();
    disks.retain(|disk| pool.is_to_be_empty(disk));
    disks
}

impl Rebuilds {
    /// Begins to empty the first failing disk for which that is possible; whether there was one. A pool is emptied of one after
    /// another.
    pub(crate) async fn empty_if_failing(&self, pool: &Rc<OpenPool>) -> bool {
        let failing = to_be_empty(pool);
        pool.emptyings.forget_all_but(&failing);
        if mutation!(FailingDiskKeepsAll) || self.jobs.is_at_work(pool.id(), &EmptyJob) {
            return false;
        }
        let now = self.seams.clock.now();
        let (next, pause) = pool.emptyings.next.get();
        if now < next || pool.spaces.pool().state() != PoolState::Writable {
            return false;
        }
        let mut has_refused = false;
        for disk in failing {
            // What is paused of one disk keeps no other from being emptied.
            let is_taken = || self.jobs.is_taken(pool.id(), &EmptyJob, Some(Aim::Disk(disk.id())));
            let is_held_off = pool.emptyings.is_held_off(disk.id(), pool.errors_of(&disk));
            if is_held_off || is_taken() || pool.bytes_on(&disk) == 0 {
                continue;
            }
            let fits = self.check_that_it_fits(pool, &disk).await;
            // Somebody may have resumed one meanwhile.
            if is_taken() || self.jobs.is_at_work(pool.id(), &EmptyJob) {
                return false;
            }
            match fits {
                Ok(()) => {
                    pool.emptyings.retry();
                    tracing::warn!(disk = disk.name(), "a disk is failing; what it has goes to the others");
                    self.start_emptying(pool, disk, None).await;
                    return true;
                }
                Err(why) => {
                    has_refused = true;
                    pool.emptyings.refused.borrow_mut().insert(disk.id(), why);
                }
            }
        }
        let pause = if has_refused { (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX) } else { Duration::ZERO };
        pool.emptyings.next.set((now + pause, pause));
        false
    }

    /// Whether all that a disk has would find a place on others, beside what they keep for repair; why not, in words.
    async fn check_that_it_fits(&self, pool: &OpenPool, disk: &Disk) -> Result<(), String> {
        self.pool_jobs.check_job_room(pool).map_err(|error| error.message)?;
        let forecast = pool.spaces.moves().forecast_emptying(disk.slot()).await;
        let forecast = forecast.map_err(|error| error.to_string())?;
        if forecast.stuck.is_empty() {
            return Ok(());
        }
        let stuck: Vec<String> = forecast
            .stuck
            .values()
            .map(|stuck| format!("{} of {}", counted(stuck.rows, "row", "rows"), stuck.name))
            .collect();
        Err(format!("{} fit on no other disk, for want of room or of disks", stuck.join(", ")))
    }

    /// Goes on with an emptying that the daemon before had begun.
    pub(crate) async fn go_on_emptying(&self, pool: &Rc<OpenPool>, failing: DiskId, again: &Rc<Entry>) {
        let disk = to_be_empty(pool).into_iter().find(|disk| disk.id() == failing);
        let inner = pool.spaces.pool();
        let is_away =
            |disk: &Rc<Disk>| disk.id() == failing && !is_here(disk) && inner.members().is_active(disk);
        // Of one that is well by now, or none of the pool, whoever looks at jobs ends it.
        if let Some(disk) = disk {
            self.start_emptying(pool, disk, Some(Rc::clone(again))).await;
        } else if let Some(disk) = inner.disks().into_iter().find(is_away) {
            self.go_on_rebuilding(pool, &disk, again).await;
        }
    }

    async fn start_emptying(&self, pool: &Rc<OpenPool>, disk: Rc<Disk>, again: Option<Rc<Entry>>) {
        let start = Start { kind: &EmptyJob, subject: disk.name(), aim: Aim::Disk(disk.id()), again };
        let owner = Rc::clone(pool);
        self.pool_jobs
            .start_job(pool, start, move |course| async move {
                course.bytes_max.set(owner.bytes_on(&disk));
                empty(&owner, &disk, &course.progress).await
            })
            .await;
    }

    /// Whether a job is about a disk that is away.
    fn is_of_absent(&self, entry: &Entry) -> bool {
        let pool = self.pools.open.borrow().get(&entry.pool).cloned();
        let is_meant = |disk: &Rc<Disk>| entry.aim == Aim::Disk(disk.id()) && !is_here(disk);
        pool.is_some_and(|pool| pool.spaces.pool().disks().iter().any(is_meant))
    }

    /// Whoever stops the emptying of a disk wants it to stay as it is, also over restarts.
    pub(crate) async fn hold_off_emptying(&self, entry: &Entry) {
        let pool = self.pools.open.borrow().get(&entry.pool).cloned();
        let (Aim::Disk(id), Some(pool)) = (entry.aim, pool) else { return };
        let disk = pool.spaces.pool().disks().into_iter().find(|disk| disk.id() == id);
        match disk {
            Some(disk) if is_here(&disk) => pool.emptyings.hold_off(id, pool.errors_of(&disk)),
            Some(_) => pool.absences.note_stopped(id),
            None => return,
        }
        self.records.keep_history(&pool).await;
    }
}

async fn empty(pool: &OpenPool, disk: &Rc<Disk>, progress: &Progress) -> Answer<Outcome> {
    let name = disk.name();
    let is_wanted = || pool.is_to_be_empty(disk) && !progress.is_to_stop();
    let emptied = pool.spaces.moves().empty_disk(disk, is_wanted, progress).await;
    let has_failed = matches!(emptied, Ok(Emptied::AllBut(_)) | Err(_));
    if has_failed && pool.is_to_be_empty(disk) && !pool.is_closing.get() {
        pool.emptyings.hold_off(disk.id(), pool.errors_of(disk));
    }
    Ok(match emptied.map_err(|error| fault::space(&error))? {
        Emptied::All => Outcome::Done(format!("{name} holds nothing any more; it stays in the pool")),
        Emptied::AllBut(left) => {
            let left: Vec<String> = left.iter().map(ToString::to_string).collect();
            Outcome::Done(format!(
                "what could be moved off {name} was; rows of {} have a part left there, which no other disk took, or which could not be \
                 made again",
                left.join(", ")
            ))
        }
        Emptied::CutShort => {
            Outcome::CalledOff(format!("{name} is not emptied any more; what was moved stays where it is"))
        }
    })
}
