//! Rows become as wide as their pool by themselves: wider behind the adding of disks, and narrower where a disk could not leave
//! otherwise (docs/design/0020).

use std::rc::Rc;

use dolmen_api::{Change, JobState};
use dolmen_causes::in_one_line;
use dolmen_placement::Offer;
use dolmen_space::{ConversionForecast, Resiliency, Space};
use dolmen_units::Bytes;

use crate::answer::Answer;
use crate::base::Base;
use crate::disks::DrainJob;
use crate::fault;
use crate::jobs::{Aim, Jobs};
use crate::open_pool::OpenPool;
use crate::pool_jobs::PoolJobs;
use crate::spaces::{Conversions, ConvertJob};
use crate::words::counted;

/// A space that takes less room once its rows are as wide as the pool.
pub(crate) struct Widening {
    space: Space,
    forecast: ConversionForecast,
}

/// What an addition of disks does to the width of rows.
#[derive(Default)]
pub(crate) struct Widenings {
    /// Spaces whose rows become wider.
    pub(crate) wider: Vec<Widening>,
    /// Spaces with parity whose rows stay as they are, each with the cause: what follows a message.
    pub(crate) kept: String,
}

/// Returns the spaces that leave their width to the pool, and that take less room with these disks beside the others; and why those
/// with parity do not, whose room depends on the width.
pub(crate) async fn widenings(pool: &OpenPool, more: &[Offer]) -> Answer<Widenings> {
    let mut found = Widenings::default();
    for space in pool.spaces.list() {
        let (spec, name) = (space.spec(), format!("{}/{}", pool.name(), space.name()));
        let has_parity =
            matches!(spec.resiliency, Resiliency::Parity { .. }) && space.claimed() > Bytes::ZERO;
        let mut keep = |why: String| {
            if has_parity {
                found.kept.push_str(&format!("; rows of {name} keep their width, because {why}"));
            }
        };
        // One that is being converted has its own end, and whoever chose a width keeps it.
        if let Some(columns) = spec.columns {
            keep(format!(
                "{} were asked for; `dolmen space convert {name} --columns auto` widens them",
                counted(usize::from(columns), "data column", "data columns")
            ));
            continue;
        }
        if space.layout_before().is_some() {
            keep("they are being converted".to_owned());
            continue;
        }
        let forecast = pool
            .spaces
            .conversions()
            .forecast_widening(&space, more)
            .await
            .map_err(|error| fault::space(&error))?;
        if forecast.stuck > 0 {
            keep(format!(
                "there is no room to lay {} again beside the old ones; make room, then `dolmen space convert {name}`",
                counted(forecast.stuck, "row", "rows")
            ));
        } else if forecast.rows == 0 {
            keep("they are as wide as these disks allow".to_owned());
        } else if forecast.claimed >= forecast.freed {
            keep(format!("wider ones would take {} instead of {}", forecast.claimed, forecast.freed));
        } else {
            found.wider.push(Widening { space, forecast });
        }
    }
    Ok(found)
}

impl Widening {
    /// Bytes of data that are moved.
    pub(crate) fn moved(&self) -> u64 {
        self.forecast.rows * self.space.row_bytes()
    }

    fn name(&self, pool: &str) -> String {
        format!("{pool}/{}", self.space.name())
    }

    /// What is done, and how that is left out or ended.
    pub(crate) fn step(&self, pool: &str) -> String {
        let ConversionForecast { rows, claimed, freed, .. } = self.forecast;
        format!(
            "make {} of {} as wide as the pool, so that they take {claimed} and not {freed}, as a job that `dolmen job stop` ends, \
             and that --stays leaves out",
            counted(rows, "row", "rows"),
            self.name(pool)
        )
    }
}

/// Widths of rows, which follow their pool.
pub(crate) struct Widths {
    pool_jobs: Rc<PoolJobs>,
    conversions: Rc<Conversions>,
    jobs: Rc<Jobs>,
}

impl Widths {
    pub(crate) fn new(base: &Base, conversions: &Rc<Conversions>) -> Self {
        Self {
            pool_jobs: Rc::clone(&base.pool_jobs),
            conversions: Rc::clone(conversions),
            jobs: Rc::clone(&base.jobs),
        }
    }
}

impl Widths {
    /// Goes on with spaces that are on their way to another width and to nothing else, where nobody is at it: a removal that made
    /// them narrower was called off. Where a removal is at work still, it ends first.
    pub(crate) async fn finish_widths(&self, pool: &Rc<OpenPool>) {
        for space in pool.spaces.list() {
            let is_width = space.layout_before() == Some(space.spec().layout());
            let is_left = is_width && self.conversions.conversions_of(pool, &space).next().is_none();
            if is_left
                && !self.is_widening_stopped(pool, &space)
                && self.pool_jobs.check_job_room(pool).is_ok()
            {
                self.conversions.start_conversion(pool, &space, None, None).await;
            }
        }
    }

    /// Whether somebody stopped a job that made rows of a space wider, and no removal has touched them since, as far as is on record.
    fn is_widening_stopped(&self, pool: &OpenPool, space: &Space) -> bool {
        let id = space.id();
        let mut jobs = self.jobs.on_record();
        jobs.retain(|entry| {
            let is_of_space = matches!(entry.aim, Aim::Space { id: of, .. } if of == id);
            entry.pool == pool.id() && (entry.is(&DrainJob) || is_of_space)
        });
        let last = jobs.iter().max_by_key(|entry| entry.id);
        last.is_some_and(|last| last.is(&ConvertJob) && last.state() == JobState::CalledOff)
    }

    /// Begins to widen rows behind a change that has added disks. What cannot be begun is said, and stays as it is.
    pub(crate) async fn widen_after(
        &self,
        pool: &Rc<OpenPool>,
        widenings: Vec<Widening>,
        change: &mut Change,
    ) {
        for widening in widenings {
            let (space, name) = (&widening.space, widening.name(&pool.name()));
            let begun = match self.pool_jobs.check_job_room(pool) {
                Ok(()) => {
                    let begun =
                        pool.spaces.conversions().begin_conversion(space, space.spec().layout()).await;
                    begun.map_err(|error| in_one_line(&error))
                }
                Err(error) => Err(error.message),
            };
            match begun {
                Ok(()) => {
                    let job = self.conversions.start_conversion(pool, space, None, None).await;
                    change.message.push_str(&format!("; job {} widens rows of {name}", job.id));
                    change.job.get_or_insert(job);
                }
                Err(why) => change.warnings.push(format!(
                    "rows of {name} stay as wide as they are, because {why}; `dolmen space convert {name}` widens them later"
                )),
            }
        }
    }
}
