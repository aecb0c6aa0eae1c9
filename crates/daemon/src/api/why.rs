//! Why something is as it is: what `findings` says of it, with what that comes from, down to what a person can change.

use std::rc::Rc;

use dolmen_api::{Cause, ErrorBody, ErrorCode, Finding, FindingCode, Health, JobState, Object, SCHEMA, Why};
use dolmen_block_io::Seams;
use dolmen_pool::Disk;
use dolmen_space::Space;

use crate::advice::Advice;
use crate::answer::Answer;
use crate::base::Base;
use crate::disks::find_disk;
use crate::health::{advice, doing, errors_text, may_have_part, not_open, pool_findings, to_open, to_resume};
use crate::jobs::{Entry, JobView, Jobs, seconds_now};
use crate::open_pool::{ClosedPool, OpenPool};
use crate::open_pools::OpenPools;
use crate::state::{Events, is_here};
use crate::volumes::Damage;

/// What is known of a pool when it is asked why.
struct Scene<'a> {
    explainer: &'a Explainer,
    open: &'a OpenPool,
    findings: Vec<Finding>,
    advice: Vec<Advice>,
    jobs: Vec<JobView>,
}

/// A cause that comes from nothing else.
fn fact(text: String) -> Cause {
    Cause { text, code: None, since_s: None, todo: Vec::new(), causes: Vec::new() }
}

impl<'a> Scene<'a> {
    async fn of(explainer: &'a Explainer, open: &'a OpenPool) -> Self {
        let now = explainer.seams.clock.now();
        let jobs = explainer.jobs.of_pool(open.id(), now);
        let (findings, advice) = (pool_findings(open).await, advice(open, &jobs, now).await);
        Self { explainer, open, findings, advice, jobs }
    }

    fn cause(&self, finding: &Finding) -> Cause {
        let todo = self.advice.iter().filter(|one| one.is_for(finding)).map(|one| one.text.clone());
        Cause {
            text: finding.text.clone(),
            code: Some(finding.code),
            since_s: self.explainer.events.since(finding),
            todo: todo.collect(),
            causes: self.after(finding),
        }
    }

    /// What a finding comes from. Only what lies nearer to a disk or a job, so that there is an end.
    fn after(&self, finding: &Finding) -> Vec<Cause> {
        match finding.code {
            FindingCode::SpaceDegraded
            | FindingCode::SpaceOutOfReach
            | FindingCode::SpaceCorruptHere
            | FindingCode::SpaceLacksDisks => self.absent(|disk| self.matters_to(disk, &finding.object)),
            FindingCode::RowsStale => self.mending(),
            FindingCode::DiskAbsent => self.cause_of_absence(&finding.object),
            FindingCode::PoolStopped => self.absent(|_| true),
            FindingCode::PoolReadOnly
            | FindingCode::PoolNotOpen
            | FindingCode::DiskUnfit
            | FindingCode::DiskFileRemoved
            | FindingCode::DiskCutShort
            | FindingCode::DiskUnplugged
            | FindingCode::DiskGrown
            | FindingCode::DiskErrors
            | FindingCode::DiskSlow
            | FindingCode::DiskFailing
            | FindingCode::DiskDefects
            | FindingCode::DiskBackingFull
            | FindingCode::DiskLabelsLost
            | FindingCode::MetadataOnFewDisks
            | FindingCode::ReplacementWaits
            | FindingCode::RemovalWaits
            | FindingCode::SpaceDataLost
            | FindingCode::SpaceAcceptedUnverified
            | FindingCode::RoomForRepairUsed
            | FindingCode::PoolNearlyFull
            | FindingCode::PoolFilling
            | FindingCode::RowsShareEnclosure
            | FindingCode::SpaceLacksReserve
            | FindingCode::SpaceFull
            | FindingCode::SpaceNearlyFull
            | FindingCode::AttachedWaits
            | FindingCode::VolumeNotMounted
            | FindingCode::VolumeNotUnderstood
            | FindingCode::VolumeSlow
            | FindingCode::VolumeNearlyFull
            | FindingCode::VolumeFilling
            | FindingCode::VolumeInodesNearlyUsed
            | FindingCode::VolumeErrors
            | FindingCode::ShareDown
            | FindingCode::AttachmentEnded
            | FindingCode::ListenerClosed
            | FindingCode::CertificateTrouble => Vec::new(),
        }
    }

    /// Whether an absent disk may have a part of a space.
    fn matters_to(&self, disk: &Disk, space: &Object) -> bool {
        let spaces = self.open.spaces.list();
        let found = spaces.iter().find(|one| one.name().to_string() == space.name);
        found.is_none_or(|space| may_have_part(self.open, disk, space))
    }

    fn disk(&self, object: &Object) -> Option<Rc<Disk>> {
        let disks = self.open.spaces.pool().disks();
        disks.into_iter().find(|disk| disk.slot().0.to_string() == object.name)
    }

    /// Disks that are absent, of those that are meant.
    fn absent(&self, is_meant: impl Fn(&Disk) -> bool) -> Vec<Cause> {
        let absent = self.findings.iter().filter(|one| one.code == FindingCode::DiskAbsent);
        let meant = absent.filter(|one| self.disk(&one.object).is_some_and(|disk| is_meant(&disk)));
        meant.map(|one| self.cause(one)).collect()
    }

    /// What restores redundancy now, or stands; and disks that it needs.
    fn mending(&self) -> Vec<Cause> {
        let mut causes: Vec<Cause> = self.jobs.iter().map(|job| fact(doing(job))).collect();
        for job in self.explainer.jobs.unfinished_of(self.open.id()) {
            let Some(todo) = to_resume(&job) else { continue };
            causes.push(Cause { todo: vec![todo], ..fact(format!("{} is paused", job.what())) });
        }
        causes.extend(self.absent(|_| true));
        causes
    }

    /// What is known of how a disk came to be absent.
    fn cause_of_absence(&self, object: &Object) -> Vec<Cause> {
        let unfit =
            self.findings.iter().find(|one| one.code == FindingCode::DiskUnfit && one.object == *object);
        let mut causes: Vec<Cause> = unfit.map(|one| self.cause(one)).into_iter().collect();
        let Some(disk) = self.disk(object) else { return causes };
        let (name, absences) = (disk.name(), &self.open.absences);
        if absences.is_let_go(disk.id()) {
            causes.push(fact("it was taken offline with `dolmen disk offline`".to_owned()));
        }
        if absences.is_flapping(disk.id()) {
            causes.push(fact("it came and went several times within minutes, and is left out".to_owned()));
        }
        let errors = disk.counters();
        if errors.read_errors + errors.write_errors > 0 {
            causes.push(fact(format!("it had {}", errors_text(&errors))));
        }
        match absences.is_something_at_its_path(disk.id()) {
            Some(true) => {
                causes.push(fact(format!("something is at {name}, and the pool does not use it yet")))
            }
            Some(false) => causes.push(fact(format!("there is nothing at {name} any more"))),
            None => {}
        }
        causes
    }

    /// Findings that are meant; what is told as a cause of another one is not told again.
    fn causes(&self, is_meant: impl Fn(&Finding) -> bool) -> Vec<Cause> {
        let causes: Vec<Cause> =
            self.findings.iter().filter(|one| is_meant(one)).map(|one| self.cause(one)).collect();
        let mut below = Vec::new();
        causes.iter().for_each(|cause| texts_below(cause, &mut below));
        causes.into_iter().filter(|cause| !below.contains(&cause.text)).collect()
    }

    fn health(&self, is_meant: impl Fn(&Finding) -> bool) -> Health {
        let meant = self.findings.iter().filter(|one| is_meant(one));
        meant.map(|one| one.health).max().unwrap_or(Health::Healthy)
    }

    /// What is the matter with this, and with the pool where that has stopped.
    fn why(&self, object: Object, state: String) -> Why {
        let is_meant = |one: &Finding| {
            let is_pool = object.kind == dolmen_api::ObjectKind::Pool;
            is_pool || one.object == object || one.code == FindingCode::PoolStopped
        };
        Why {
            schema: SCHEMA,
            state,
            health: self.health(is_meant),
            causes: self.causes(is_meant),
            doing: self.jobs.iter().map(doing).collect(),
            now_s: seconds_now(),
            object,
        }
    }
}

fn texts_below(cause: &Cause, texts: &mut Vec<String>) {
    for below in &cause.causes {
        texts.push(below.text.clone());
        texts_below(below, texts);
    }
}

fn health_word(health: Health) -> &'static str {
    match health {
        Health::Healthy => "is healthy",
        Health::Warning => "has something to look at",
        Health::Unhealthy => "is unhealthy",
    }
}

/// Why a pool that should be open is not.
fn why_not_open(closed: &ClosedPool) -> Why {
    let (finding, name) = (not_open(closed), closed.remembered.name.as_str());
    let mut causes: Vec<Cause> = Vec::new();
    // Each cause is why the one before is, and what to do stands with the first of all.
    let todo = vec![to_open(name, &closed.cause)];
    for text in closed.cause.causes.iter().rev() {
        let todo = if causes.is_empty() { todo.clone() } else { Vec::new() };
        causes = vec![Cause { todo, causes, ..fact(text.clone()) }];
    }
    let todo = if causes.is_empty() { todo } else { Vec::new() };
    let cause = Cause { todo, causes, ..fact(closed.cause.message.clone()) };
    Why {
        schema: SCHEMA,
        object: finding.object,
        state: format!("pool {name} is not open"),
        health: finding.health,
        causes: vec![Cause { code: Some(finding.code), ..cause }],
        doing: Vec::new(),
        now_s: seconds_now(),
    }
}

/// What an object is called, as far as that leads to one.
enum Meant {
    Pool(Rc<OpenPool>),
    Space(Rc<OpenPool>, Space),
    Disk(Rc<OpenPool>, Rc<Disk>),
    Job(Rc<Entry>),
}

/// Explanations of objects.
pub(crate) struct Explainer {
    pools: Rc<OpenPools>,
    seams: Seams,
    jobs: Rc<Jobs>,
    events: Rc<Events>,
    damage: Rc<Damage>,
}

impl Explainer {
    pub(crate) fn new(base: &Base, damage: &Rc<Damage>) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            seams: base.seams.clone(),
            jobs: Rc::clone(&base.jobs),
            events: Rc::clone(&base.events),
            damage: Rc::clone(damage),
        }
    }
}

impl Explainer {
    fn meant(&self, name: &str) -> Option<Meant> {
        let pools = self.pools.open_pools();
        if let Some(pool) = pools.iter().find(|pool| pool.name() == name) {
            return Some(Meant::Pool(Rc::clone(pool)));
        }
        if let Some(job) = name.parse().ok().and_then(|id| self.jobs.find(id)) {
            return Some(Meant::Job(job));
        }
        let (pool_name, rest) = name.split_once('/').unwrap_or(("", name));
        let of_pool = pools.iter().find(|pool| !pool_name.is_empty() && pool.name() == pool_name);
        if let Some(pool) = of_pool {
            if let Some(space) = pool.spaces.list().into_iter().find(|space| space.name().to_string() == rest)
            {
                return Some(Meant::Space(Rc::clone(pool), space));
            }
            let disk = find_disk(pool, rest).ok()?;
            return Some(Meant::Disk(Rc::clone(pool), disk));
        }
        pools.iter().find_map(|pool| {
            let disk = find_disk(pool, name).ok()?;
            Some(Meant::Disk(Rc::clone(pool), disk))
        })
    }

    /// Why a pool, a disk, a space or a job is as it is.
    pub(crate) async fn why(&self, name: String) -> Answer<Why> {
        if let Some(meant) = self.meant(&name) {
            return Ok(match meant {
                Meant::Pool(open) => {
                    let scene = Scene::of(self, &open).await;
                    let state = format!("pool {} {}", open.name(), health_word(scene.health(|_| true)));
                    scene.why(Object::pool(open.name()), state)
                }
                Meant::Space(open, space) => {
                    let scene = Scene::of(self, &open).await;
                    let object = Object::space(open.name(), space.name().to_string());
                    let health = scene.health(|one| one.object == object);
                    let state = format!("space {object} {}", health_word(health));
                    let mut why = scene.why(object, state);
                    self.name_files(&open, &space, &mut why).await;
                    why
                }
                Meant::Disk(open, disk) => {
                    let scene = Scene::of(self, &open).await;
                    let is = if is_here(&disk) { "takes part" } else { "is absent" };
                    let state =
                        format!("{}, disk {} of pool {}, {is}", disk.name(), disk.slot().0, open.name());
                    scene.why(Object::disk(open.name(), disk.slot().0), state)
                }
                Meant::Job(job) => self.why_job(&job).await,
            });
        }
        let closed = self.pools.closed.borrow();
        if let Some(closed) = closed.values().find(|closed| closed.remembered.name == name) {
            return Ok(why_not_open(closed));
        }
        let message = format!("{name:.200} is no pool, disk, space or job here");
        Err(ErrorBody::new(ErrorCode::NoSuchObject, message).on(name.chars().take(200).collect::<String>()).hint(
            "give a pool, POOL/SPACE, a disk by path, POOL/NUMBER or id, or the number of a job; `dolmen`, `dolmen disk list` and `dolmen \
             jobs` show them",
        ))
    }

    /// Names the files of the volume on a space below the first cause that says that data was lost.
    async fn name_files(&self, open: &Rc<OpenPool>, space: &Space, why: &mut Why) {
        let files: Vec<Cause> = self.damage.names(open, space).await.into_iter().map(fact).collect();
        if files.is_empty() {
            return;
        }
        let is_loss = |cause: &&mut Cause| {
            matches!(cause.code, Some(FindingCode::SpaceDataLost | FindingCode::SpaceCorruptHere))
        };
        match why.causes.iter_mut().find(is_loss) {
            Some(cause) => cause.causes.extend(files),
            None => why.causes.extend(files),
        }
    }

    async fn why_job(&self, job: &Entry) -> Why {
        let view = job.shown(self.seams.clock.now());
        let (state, health) = match view.state {
            JobState::Waiting => ("waits", Health::Healthy),
            JobState::Running => ("is running", Health::Healthy),
            JobState::Paused => ("is paused", Health::Healthy),
            JobState::Done => ("is done", Health::Healthy),
            JobState::CalledOff => ("was called off", Health::Healthy),
            JobState::Failed => ("has failed", Health::Warning),
        };
        let result = view.result.as_ref().filter(|_| job.has_ended());
        let state = result.map_or_else(|| state.to_owned(), |result| format!("{state}: {result}"));
        let pool = self.pools.open.borrow().get(&job.pool).cloned();
        let mut causes: Vec<Cause> = Vec::new();
        if let Some(todo) = to_resume(job) {
            causes.push(Cause { todo: vec![todo], ..fact("it was paused by a command".to_owned()) });
        }
        if let Some(waits_for) = &view.waits_for {
            let mut cause = fact(format!("what is left of it waits for {waits_for}"));
            if let Some(open) = &pool {
                cause.causes = Scene::of(self, open).await.absent(|_| true);
            }
            causes.push(cause);
        } else if view.state == JobState::Waiting {
            let others = self.jobs.of_pool(job.pool, self.seams.clock.now());
            let running =
                others.iter().filter(|other| other.state == JobState::Running && other.id != job.id);
            causes.extend(running.map(|other| fact(format!("another job has the slot: {}", doing(other)))));
        }
        let running = (view.state == JobState::Running).then(|| doing(&view));
        Why {
            schema: SCHEMA,
            object: Object::job(view.pool.as_str(), view.id),
            state: format!("{} of pool {} {state}", job.what(), view.pool),
            health,
            causes,
            doing: running.into_iter().collect(),
            now_s: seconds_now(),
        }
    }
}
