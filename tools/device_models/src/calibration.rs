//! The models beside measurements that others published. No parameter was made from one of them, but for the schedulers
//! of disks: a row whose figure hangs on the scheduler says so, and gives the figure with the other one.
//!
//! `docs/device_models.md` holds the table that [`table`] makes, and says of each source who measured what and how.

use std::fmt;

use crate::catalogue::{self, Kind, Model};
use crate::error::{ParameterError, UnknownModel};
use crate::figures::other;
use crate::link::{Direction, Message, SendError};
use crate::load::{Load, run};
use crate::request::SubmitError;
use crate::time::{Time, mul_div};

/// How far a model may be from a measurement, in thousandths of it.
pub const ALLOWED_PER_MILLE: u64 = 150;
/// What every figure is drawn from.
const SEED: u64 = 1;
const MILLISECOND_NS: u64 = 1_000_000;

/// Who published a measurement. The document lists them by the same names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Chung, Gray, Horst and Worthington 2000.
    Chung2000,
    /// The validation traces of `DiskSim` 4.0, 1998 to 2008.
    DiskSim,
    /// Shimpi, `AnandTech`, 2014.
    AnandTech2014,
    /// Myce.
    Myce,
    /// Tallis, `AnandTech`, 2017.
    AnandTech2017,
    /// The SSD Review.
    SsdReview,
    /// Potter's thesis.
    Potter,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chung2000 => "Chung 2000",
            Self::DiskSim => "DiskSim",
            Self::AnandTech2014 => "AnandTech 2014",
            Self::Myce => "Myce",
            Self::AnandTech2017 => "AnandTech 2017",
            Self::SsdReview => "SSD Review",
            Self::Potter => "Potter",
        })
    }
}

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// Random reads in a second.
    Reads {
        /// How long each is, in bytes.
        length: u64,
        /// How many were outstanding.
        depth: usize,
    },
    /// Random writes in a second.
    Writes {
        /// How long each is, in bytes.
        length: u64,
        /// How many were outstanding.
        depth: usize,
    },
    /// From sending to receiving one message, in nanoseconds.
    Message {
        /// How long it is, in bytes.
        bytes: u64,
    },
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reads { length, depth } => write!(f, "random read {} KiB, depth {depth}", length / 1024),
            Self::Writes { length, depth } => write!(f, "random write {} KiB, depth {depth}", length / 1024),
            Self::Message { bytes } => write!(f, "message of {bytes} bytes"),
        }
    }
}

/// Whether a model meets a measurement, as the document says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is within [`ALLOWED_PER_MILLE`].
    Meets,
    /// It is not; the document says what is known of the reason.
    Misses,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Meets => "meets",
            Self::Misses => "**misses**",
        })
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// The model, by its name in the catalogue.
    pub model: &'static str,
    /// What was measured.
    pub measured: Measured,
    /// What was published: commands in a second, or nanoseconds.
    pub published: u64,
    /// By whom.
    pub source: Source,
    /// Whether the model is known to meet it.
    pub verdict: Verdict,
}

const fn reads(
    model: &'static str,
    length: u64,
    depth: usize,
    published: u64,
    source: Source,
    verdict: Verdict,
) -> Cell {
    Cell { model, measured: Measured::Reads { length, depth }, published, source, verdict }
}

const fn writes(
    model: &'static str,
    length: u64,
    depth: usize,
    published: u64,
    source: Source,
    verdict: Verdict,
) -> Cell {
    Cell { model, measured: Measured::Writes { length, depth }, published, source, verdict }
}

const fn message(bytes: u64, published: u64, verdict: Verdict) -> Cell {
    let measured = Measured::Message { bytes };
    Cell { model: "rdma-100g", measured, published, source: Source::Potter, verdict }
}

/// All measurements that were found.
pub const CELLS: [Cell; 21] = [
    reads("atlas-10k", 8_192, 1, 105, Source::Chung2000, Verdict::Meets),
    writes("atlas-10k", 8_192, 1, 105, Source::Chung2000, Verdict::Meets),
    // "1.1 IOs per revolution" at 10,000 revolutions a minute.
    reads("atlas-10k", 8_192, 32, 183, Source::Chung2000, Verdict::Meets),
    reads("atlas-10k", 4_096, 1, 107, Source::DiskSim, Verdict::Meets),
    reads("cheetah-9lp", 4_096, 1, 106, Source::DiskSim, Verdict::Meets),
    reads("ultrastar-18es", 4_096, 1, 80, Source::DiskSim, Verdict::Meets),
    reads("fireball-lct08", 8_192, 1, 66, Source::Chung2000, Verdict::Meets),
    reads("fireball-lct08", 8_192, 32, 100, Source::Chung2000, Verdict::Meets),
    writes("fireball-lct08", 8_192, 1, 92, Source::Chung2000, Verdict::Misses),
    reads("intel-s3700", 4_096, 1, 6_600, Source::AnandTech2014, Verdict::Misses),
    reads("intel-s3700", 4_096, 8, 58_400, Source::AnandTech2014, Verdict::Meets),
    writes("micron-5100max", 8_192, 32, 40_000, Source::SsdReview, Verdict::Meets),
    reads("intel-p3700", 4_096, 1, 8_900, Source::AnandTech2014, Verdict::Meets),
    reads("intel-p3700", 4_096, 8, 77_000, Source::AnandTech2014, Verdict::Meets),
    reads("intel-p3700", 4_096, 32, 270_000, Source::Myce, Verdict::Meets),
    reads("intel-p3700", 4_096, 1, 12_800, Source::AnandTech2017, Verdict::Misses),
    reads("intel-p3700", 4_096, 16, 167_200, Source::AnandTech2017, Verdict::Misses),
    message(32, 830, Verdict::Misses),
    message(1_024, 1_610, Verdict::Meets),
    message(4_096, 2_280, Verdict::Meets),
    message(32_768, 4_570, Verdict::Meets),
];

/// Why a figure could not be made. None of these happens with the catalogue and the cells as they are.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// A cell names no model.
    #[error(transparent)]
    Unknown(#[from] UnknownModel),
    /// A model is made of nonsense.
    #[error("model {model} cannot be made")]
    Parameter {
        /// The model.
        model: &'static str,
        /// What is wrong.
        #[source]
        source: ParameterError,
    },
    /// A figure of a rotating disk was asked of something else.
    #[error("model {model} is no rotating disk")]
    NoDisk {
        /// The model.
        model: &'static str,
    },
    /// A figure of a solid-state disk was asked of something else.
    #[error("model {model} is no solid-state disk")]
    NoFlash {
        /// The model.
        model: &'static str,
    },
    /// A load does not fit its device.
    #[error("the load of a cell does not fit its device")]
    Submit(#[from] SubmitError),
    /// A message was not taken.
    #[error("the link took no message")]
    Send(#[from] SendError),
}

impl Cell {
    /// What the model gives where the measurement was made.
    ///
    /// # Errors
    /// When the cell does not fit the catalogue.
    pub fn modelled(&self) -> Result<u64, CalibrationError> {
        match self.measured {
            Measured::Reads { .. } | Measured::Writes { .. } => {
                self.per_second(*catalogue::device(self.model)?)
            }
            Measured::Message { bytes } => self.message_ns(bytes),
        }
    }

    /// What the model would give with the other scheduler; nothing for what is no rotating disk.
    ///
    /// # Errors
    /// When the cell does not fit the catalogue.
    pub fn with_other_scheduler(&self) -> Result<Option<u64>, CalibrationError> {
        if let Measured::Message { .. } = self.measured {
            return Ok(None);
        }
        let model = *catalogue::device(self.model)?;
        match model.kind {
            Kind::Disk(disk) => {
                let kind = Kind::Disk(disk.with_scheduler(other(disk.scheduler)));
                self.per_second(Model { kind, ..model }).map(Some)
            }
            Kind::Flash(_) => Ok(None),
        }
    }

    /// Commands in a second; messages are none.
    fn per_second(&self, model: Model) -> Result<u64, CalibrationError> {
        let (length, depth, reads) = match self.measured {
            Measured::Reads { length, depth } => (length, depth, 1_000),
            Measured::Writes { length, depth } => (length, depth, 0),
            Measured::Message { .. } => return Ok(0),
        };
        let made = |source| CalibrationError::Parameter { model: self.model, source };
        let mut device = model.build(SEED).map_err(made)?;
        let load = Load::random(model.capacity_bytes(), length, reads, depth);
        let load = match model.kind {
            Kind::Disk(_) => load.lasting(20_000 * MILLISECOND_NS, 600_000 * MILLISECOND_NS),
            Kind::Flash(_) => load.lasting(500 * MILLISECOND_NS, 200 * MILLISECOND_NS),
        };
        Ok(run(&mut *device, &load, Time::ZERO, SEED)?.per_second())
    }

    fn message_ns(&self, bytes: u64) -> Result<u64, CalibrationError> {
        let model = catalogue::link(self.model)?;
        let made = |source| CalibrationError::Parameter { model: self.model, source };
        let mut link = model.build().map_err(made)?;
        link.send(Time::ZERO, Message { direction: Direction::There, bytes })?;
        Ok(link.next_event().unwrap_or_default().ns())
    }

    /// How far a figure is from the published one, in thousandths of that.
    #[must_use]
    pub fn deviation_per_mille(&self, modelled: u64) -> u64 {
        mul_div(modelled.abs_diff(self.published), 1_000, self.published)
    }

    /// The same with its sign, for the document.
    fn off(&self, modelled: u64) -> String {
        let off = self.deviation_per_mille(modelled);
        let sign = if modelled < self.published { '-' } else { '+' };
        format!("{sign}{}.{} %", off / 10, off % 10)
    }

    /// What a figure of the model says.
    #[must_use]
    pub fn verdict(&self, modelled: u64) -> Verdict {
        if self.deviation_per_mille(modelled) <= ALLOWED_PER_MILLE { Verdict::Meets } else { Verdict::Misses }
    }
}

/// A cell, and what its model gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The measurement.
    pub cell: Cell,
    /// Commands in a second, or nanoseconds.
    pub modelled: u64,
    /// The same with the other scheduler, for rotating disks.
    pub other_scheduler: Option<u64>,
}

impl Row {
    /// What the figure is with the other scheduler, where that makes a difference. The schedulers of these disks were
    /// chosen by measurements, so such a row does not judge the model independently of what it was fitted to.
    #[must_use]
    pub fn hangs_on_scheduler(&self) -> Option<u64> {
        self.other_scheduler.filter(|figure| *figure != self.modelled)
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cell, modelled, .. } = self;
        let Cell { model, measured, published, source, .. } = cell;
        let unit = match measured {
            Measured::Reads { .. } | Measured::Writes { .. } => "IO/s",
            Measured::Message { .. } => "ns",
        };
        write!(
            f,
            "| `{model}` | {measured} | {published} {unit} | {modelled} {unit} | {} |",
            cell.off(*modelled)
        )?;
        write!(f, " {}", cell.verdict(*modelled))?;
        match self.hangs_on_scheduler() {
            Some(figure) => write!(f, ", not independent | {figure} {unit}, {}", cell.off(figure))?,
            None => f.write_str(" |")?,
        }
        write!(f, " | {source} |")
    }
}

/// All cells, and what the models give for them.
///
/// # Errors
/// When a cell does not fit the catalogue.
pub fn rows() -> Result<Vec<Row>, CalibrationError> {
    let row = |cell: &Cell| {
        Ok(Row { cell: *cell, modelled: cell.modelled()?, other_scheduler: cell.with_other_scheduler()? })
    };
    CELLS.iter().map(row).collect()
}

/// The table of the document.
#[must_use]
pub fn table(rows: &[Row]) -> String {
    let head = "| model | what | published | model gives | deviation | | with the other scheduler | source |\n\
                |---|---|---:|---:|---:|---|---:|---|\n";
    rows.iter().fold(head.to_owned(), |text, row| format!("{text}{row}\n"))
}
