//! Walking through a plan with a generator of load.

use dolmen_units::Bytes;

use crate::fio::{self, FioError, Measured};
use crate::job::{self, Fill, JobError, fill_job, step_job};
use crate::plan::{Plan, Step};

/// Targets are filled in this many pieces at most, so that progress is seen and a signal is heeded.
const FILL_PIECES: u64 = 32;
/// A piece is not smaller than this.
const FILL_BYTES_MIN: u64 = 64 << 20;

/// A job for the generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order<'a> {
    /// The text of its job file.
    pub job: &'a str,
    /// The name of a log that it writes into its folder, to be handed back.
    pub log: Option<&'static str>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// What it printed.
    pub text: String,
    /// The log that was asked for.
    pub log: String,
}

/// Why a job came to no end of its own.
#[derive(Debug, thiserror::Error)]
pub enum Halt<E> {
    /// Somebody wants it to stop.
    #[error("interrupted")]
    Interrupted,
    /// It could not be run.
    #[error(transparent)]
    Failed(E),
    /// What it answered gives no figures.
    #[error("measuring {target} failed")]
    Answer {
        /// On which target.
        target: String,
        /// Why.
        source: FioError,
    },
    /// It cannot be asked for.
    #[error(transparent)]
    Job(#[from] JobError),
}

/// Makes load. The one that ships starts `fio`; that of the tests hands out what `fio` once answered.
pub trait Generator {
    /// Why it cannot.
    type Error: std::error::Error;

    /// Runs a job to its end. After a request to stop it ends the job and returns [`Halt::Interrupted`]; what the job
    /// printed by then is worth nothing.
    ///
    /// # Errors
    /// When there is no answer.
    fn run(&mut self, order: &Order<'_>) -> Result<Answer, Halt<Self::Error>>;

    /// The share of all processors, in per cent, that others use while no job runs; nothing where that is unknown.
    fn idle_percent(&mut self) -> Option<f64>;
}

/// What is under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event<'a> {
    /// A target is written once.
    Filling {
        /// Which.
        target: usize,
        /// What is written of it.
        done: Bytes,
        /// Of so much.
        total: Bytes,
    },
    /// A step begins.
    Step {
        /// Which.
        step: &'a Step,
        /// How many are done.
        done: usize,
        /// Of so many.
        total: usize,
        /// What the steps that are done were expected to take.
        spent_ms: u64,
        /// What the others are expected to take.
        left_ms: u64,
    },
    /// A step has been measured.
    Measured {
        /// Which.
        step: &'a Step,
        /// What came out.
        measured: &'a Measured,
    },
}

/// What was measured, until the end or until it was stopped.
#[derive(Debug)]
pub struct Outcome<E> {
    /// Steps that were measured, in the order in which they were.
    pub runs: Vec<(Step, Measured)>,
    /// What others used while nothing ran, by round.
    pub idle: Vec<Option<f64>>,
    /// Why it ended early, if it did.
    pub halted: Option<Halt<E>>,
}

/// Fills the targets that are listed, then measures each step of the plan.
pub fn measure<G: Generator>(
    plan: &Plan,
    fill: &[usize],
    generator: &mut G,
    reported: &mut dyn FnMut(Event<'_>),
) -> Outcome<G::Error> {
    let mut outcome = Outcome { runs: Vec::new(), idle: Vec::new(), halted: None };
    outcome.halted = walk(plan, fill, generator, reported, &mut outcome.runs, &mut outcome.idle).err();
    outcome
}

fn walk<G: Generator>(
    plan: &Plan,
    fill: &[usize],
    generator: &mut G,
    reported: &mut dyn FnMut(Event<'_>),
    runs: &mut Vec<(Step, Measured)>,
    idle: &mut Vec<Option<f64>>,
) -> Result<(), Halt<G::Error>> {
    for target in fill {
        fill_target(plan, *target, generator, reported)?;
    }
    let steps = plan.steps();
    let total_ms: u64 = steps.iter().map(|step| plan.expected_ms(step)).sum();
    let mut spent_ms = 0;
    for (done, step) in steps.iter().enumerate() {
        if usize::try_from(step.round).is_ok_and(|round| round == idle.len()) {
            idle.push(generator.idle_percent());
        }
        let left_ms = total_ms - spent_ms;
        reported(Event::Step { step, done, total: steps.len(), spent_ms, left_ms });
        let measured = measure_step(plan, step, generator)?;
        reported(Event::Measured { step, measured: &measured });
        runs.push((*step, measured));
        spent_ms += plan.expected_ms(step);
    }
    Ok(())
}

fn measure_step<G: Generator>(
    plan: &Plan,
    step: &Step,
    generator: &mut G,
) -> Result<Measured, Halt<G::Error>> {
    let job = step_job(plan, step)?;
    let answer = generator.run(&Order { job: &job, log: Some(job::BANDWIDTH_LOG) })?;
    let measured = fio::read(&answer.text, &answer.log, job::interval_ms(&plan.settings, &step.load));
    measured.map_err(|source| Halt::Answer { target: name_of(plan, step.target), source })
}

fn fill_target<G: Generator>(
    plan: &Plan,
    at: usize,
    generator: &mut G,
    reported: &mut dyn FnMut(Event<'_>),
) -> Result<(), Halt<G::Error>> {
    let Some(target) = plan.targets.get(at) else { return Ok(()) };
    let total = target.working_set;
    let piece = Bytes((total.0 / FILL_PIECES).max(FILL_BYTES_MIN)).align_up(1 << 20);
    let mut done = Bytes::ZERO;
    while done < total {
        reported(Event::Filling { target: at, done, total });
        let length = Bytes(piece.0.min(total.0 - done.0));
        let job = fill_job(plan, target, Fill { at: done, length })?;
        let answer = generator.run(&Order { job: &job, log: None })?;
        fio::check_fill(&answer.text)
            .map_err(|source| Halt::Answer { target: target.name.clone(), source })?;
        done = Bytes(done.0 + length.0);
    }
    Ok(())
}

fn name_of(plan: &Plan, target: usize) -> String {
    plan.targets.get(target).map(|target| target.name.clone()).unwrap_or_default()
}
