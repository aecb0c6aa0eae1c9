//! What `docs/device_models.md` says of the models outside its table of measurements: the schedulers and what decided
//! them, and the sentences that carry a figure.

use crate::array::{Array, ArrayCache, LINGER_NS, Level};
use crate::calibration::CalibrationError;
use crate::catalogue::{self, Kind, controller};
use crate::device::Device;
use crate::disk::{AGING_TURNS, Disk, DiskParameters, JOINED_BYTES_MAX, Scheduler};
use crate::load::{Load, run};
use crate::time::{SECOND_NS, Time, wide};

/// What every figure of one device is drawn from.
const SEED: u64 = 1;
/// What the figures of arrays are drawn from.
const ARRAY_SEED: u64 = 11;

/// What decided how a disk of the catalogue chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    /// The published figure at depth 32 of this very disk.
    ItsMeasurement,
    /// The scheduler of `atlas-10k`, a disk of the same years.
    ByAtlas,
    /// Measurements of disks with the same interface that their publishers do not name.
    UnnamedDisks,
    /// Nothing but its year.
    ItsYear,
}

impl Decided {
    const fn words(self) -> &'static str {
        match self {
            Self::ItsMeasurement => "its own published figure at depth 32",
            Self::ByAtlas => "taken from `atlas-10k`, a disk of the same years",
            Self::UnnamedDisks => "figures of SATA disks that are not named (below)",
            Self::ItsYear => "assumed of a SAS disk of its year; no measurement",
        }
    }
}

/// What decided the scheduler of each disk.
pub const DECIDED: [(&str, Decided); 8] = [
    ("cheetah-15k5", Decided::ItsYear),
    ("savvio-10k1", Decided::ItsYear),
    ("atlas-10k", Decided::ItsMeasurement),
    ("cheetah-9lp", Decided::ByAtlas),
    ("ultrastar-18es", Decided::ByAtlas),
    ("constellation-7k2", Decided::ItsYear),
    ("fireball-lct08", Decided::ItsMeasurement),
    ("travelstar-5k320", Decided::UnnamedDisks),
];

/// The scheduler that could have been chosen instead.
#[must_use]
pub const fn other(scheduler: Scheduler) -> Scheduler {
    match scheduler {
        Scheduler::Elevator => Scheduler::ShortestAccess,
        Scheduler::ShortestAccess | Scheduler::InOrder => Scheduler::Elevator,
    }
}

const fn scheduler_words(scheduler: Scheduler) -> &'static str {
    match scheduler {
        Scheduler::InOrder => "order of arrival",
        Scheduler::Elevator => "elevator",
        Scheduler::ShortestAccess => "shortest access",
    }
}

/// The parameters of a disk of the catalogue.
fn disk(name: &'static str) -> Result<DiskParameters, CalibrationError> {
    match catalogue::device(name)?.kind {
        Kind::Disk(parameters) => Ok(parameters),
        Kind::Flash(_) => Err(CalibrationError::NoDisk { model: name }),
    }
}

/// Random commands of 8 KiB over a whole disk, in a second.
fn rate(
    name: &'static str,
    parameters: DiskParameters,
    reads: u64,
    depth: usize,
) -> Result<u64, CalibrationError> {
    let made = |source| CalibrationError::Parameter { model: name, source };
    let mut device = Disk::new(parameters, SEED).map_err(made)?;
    let load = Load::random(parameters.capacity_bytes, 8_192, reads, depth);
    Ok(run(&mut device, &load.lasting(20 * SECOND_NS, 600 * SECOND_NS), Time::ZERO, SEED)?.per_second())
}

/// The table of schedulers: what decided each, and random reads with it and with the other.
///
/// # Errors
/// When [`DECIDED`] does not fit the catalogue.
pub fn schedulers() -> Result<String, CalibrationError> {
    let head = "| disk | chooses by | what decided it | depth 32 | the other way, depth 32 |\n|---|---|---|---:|---:|\n";
    DECIDED.iter().try_fold(head.to_owned(), |text, (name, decided)| {
        let parameters = disk(name)?;
        let with = rate(name, parameters, 1_000, 32)?;
        let without = rate(name, parameters.with_scheduler(other(parameters.scheduler)), 1_000, 32)?;
        let (chooses, why) = (scheduler_words(parameters.scheduler), decided.words());
        Ok(format!("{text}| `{name}` | {chooses} | {why} | {with} IO/s | {without} IO/s |\n"))
    })
}

/// All sentences of the document that carry a figure of a model and stand outside the tables.
///
/// # Errors
/// When a sentence does not fit the catalogue.
pub fn sentences() -> Result<Vec<String>, CalibrationError> {
    Ok(vec![
        fifteen_thousand_turns()?,
        unnamed_disks()?,
        sheets_random_writes()?,
        short_choice()?,
        stripes_and_spans()?,
        in_all_models(),
    ])
}

fn fifteen_thousand_turns() -> Result<String, CalibrationError> {
    let name = "cheetah-15k5";
    let parameters = disk(name)?;
    let (one, many) = (rate(name, parameters, 1_000, 1)?, rate(name, parameters, 1_000, 32)?);
    Ok(format!("`{name}` gives {one} random reads of 8 KiB a second at depth 1 and {many} at depth 32."))
}

/// Both schedulers where two measurements of disks without a name were made, on the model that turns as fast.
fn unnamed_disks() -> Result<String, CalibrationError> {
    let name = "constellation-7k2";
    let with = |scheduler, depth| rate(name, disk(name)?.with_scheduler(scheduler), 1_000, depth);
    let (four, thirteen) = (with(Scheduler::Elevator, 4)?, with(Scheduler::Elevator, 13)?);
    let (short_four, short_thirteen) =
        (with(Scheduler::ShortestAccess, 4)?, with(Scheduler::ShortestAccess, 13)?);
    let one = with(Scheduler::Elevator, 1)?.max(1);
    let gain = with(Scheduler::Elevator, 32)? * 100 / one;
    let short_gain = with(Scheduler::ShortestAccess, 32)? * 100 / one;
    Ok(format!(
        "With 4 and 13 outstanding, `{name}`, which turns as fast, gives {four} and {thirteen} by elevator, \
         {short_four} and {short_thirteen} by shortest access; at depth 32 it gives {gain} % and {short_gain} % of depth 1."
    ))
}

fn sheets_random_writes() -> Result<String, CalibrationError> {
    let steady = |name| -> Result<(u64, u64), CalibrationError> {
        let model = catalogue::device(name)?;
        let reported = match model.kind {
            Kind::Flash(parameters) => parameters.random_writes_per_second,
            Kind::Disk(_) => return Err(CalibrationError::NoFlash { model: name }),
        };
        let made = |source| CalibrationError::Parameter { model: name, source };
        let mut device = model.build(SEED).map_err(made)?;
        let load = Load::random(model.capacity_bytes(), 4_096, 0, 32).lasting(SECOND_NS, SECOND_NS);
        Ok((run(&mut *device, &load, Time::ZERO, SEED)?.per_second(), reported))
    };
    let ((first, first_reported), (second, second_reported)) =
        (steady("intel-s3700")?, steady("intel-p3700")?);
    Ok(format!("The models give back {first} for {first_reported} and {second} for {second_reported}."))
}

fn short_choice() -> Result<String, CalibrationError> {
    let name = "fireball-lct08";
    let rate = rate(name, DiskParameters { queue_depth: 7, ..disk(name)? }, 0, 1)?;
    Ok(format!("with a choice among 7 it would give {rate}"))
}

/// Depths of a sweep over volumes.
pub const SWEPT: [usize; 16] = [8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128];

/// Random reads over volumes at growing depth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// Commands in a second at each depth of [`SWEPT`].
    pub rates: Vec<u64>,
    /// The most of them.
    pub most: u64,
    /// The first depth at which 95 % of the most is reached.
    pub knee: usize,
}

/// Random reads of 64 KiB over all of so many volumes. An older array hands each disk five commands at a time; three
/// disks make a volume.
///
/// # Errors
/// When the parameters make no array.
pub fn sweep(volumes: u64) -> Result<Sweep, CalibrationError> {
    let name = "cheetah-15k5";
    let disk = DiskParameters { queue_depth: 5, ..disk(name)? };
    let bytes = volumes * 3 * (disk.capacity_bytes / 65_536 * 65_536);
    let made = |source| CalibrationError::Parameter { model: name, source };
    let at = |depth: &usize| {
        let member = |seed| Disk::new(disk, seed).map(|made| Box::new(made) as Box<dyn Device>);
        let members = (0..volumes * 3).map(member).collect::<Result<_, _>>().map_err(made)?;
        let stripe = controller(Level::Stripe, ArrayCache::WriteThrough);
        let mut array = Array::new(stripe, members).map_err(made)?;
        let load = Load::random(bytes, 65_536, 1_000, *depth).lasting(5 * SECOND_NS, 10 * SECOND_NS);
        Ok(run(&mut array, &load, Time::ZERO, ARRAY_SEED)?.per_second())
    };
    let rates = SWEPT.iter().map(at).collect::<Result<Vec<u64>, CalibrationError>>()?;
    let most = rates.iter().copied().max().unwrap_or_default();
    let knee =
        SWEPT.iter().zip(&rates).find(|(_, rate)| **rate * 100 >= most * 95).map_or(0, |(depth, _)| *depth);
    Ok(Sweep { rates, most, knee })
}

/// One number in another, to one place.
fn ratio(whole: u64, part: u64) -> String {
    let tenths = (whole * 10 + part / 2) / part.max(1);
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn stripes_and_spans() -> Result<String, CalibrationError> {
    let (span, stripe) = (sweep(1)?, sweep(3)?);
    let (rates, knees) = (ratio(stripe.most, span.most), ratio(wide(stripe.knee), wide(span.knee)));
    Ok(format!(
        "a span whose file fills its first volume comes to {} commands a second with its knee (95 % of the most) at {} \
         outstanding; a stripe over the three volumes to {} with its knee at {}. The rates are as {rates} to 1, the knees \
         as {knees} to 1.",
        span.most, span.knee, stripe.most, stripe.knee,
    ))
}

/// What no source tells and no parameter holds.
fn in_all_models() -> String {
    format!(
        "A disk takes a command next that was passed over for {AGING_TURNS} turns for each place of its queue; its \
         write cache joins writes into runs of up to {} KiB; a controller waits up to {} ms for a row to become whole.",
        JOINED_BYTES_MAX >> 10,
        LINGER_NS / 1_000_000,
    )
}
