//! What was asked of spaces and disks, as documents (docs/design/0017).

use std::rc::Rc;

use dolmen_api::{DiskFigures, IoFigures, LatencyBucket, Load, SCHEMA, SpaceFigures};
use dolmen_block_io::Instant;

use crate::answer::Answer;
use crate::api::reports::Reports;
use crate::open_pool::OpenPool;

impl Reports {
    pub(crate) async fn figures(&self) -> Answer<dolmen_api::Figures> {
        let mut pools = self.pools.open_pools();
        pools.sort_by_key(|pool| pool.name());
        let spaces = pools.iter().flat_map(|pool| self.space_figures(pool)).collect();
        let disks = pools.iter().flat_map(|pool| self.disk_figures(pool)).collect();
        Ok(dolmen_api::Figures {
            schema: SCHEMA,
            // Moments count from the start of the machine, in nanoseconds.
            run: format!("{}-{}", std::process::id(), self.began.0),
            at_us: self.us_at(self.seams.clock.now()),
            spaces,
            disks,
        })
    }

    fn space_figures(&self, pool: &OpenPool) -> Vec<SpaceFigures> {
        let mut spaces = pool.spaces.list();
        spaces.sort_by_key(|space| space.name());
        let of = |space: &dolmen_space::Space| SpaceFigures {
            pool: pool.name(),
            name: space.name().to_string(),
            load: self.load(&space.figures()),
        };
        spaces.iter().map(of).collect()
    }

    fn disk_figures(&self, pool: &OpenPool) -> Vec<DiskFigures> {
        let disks = pool.spaces.pool().disks();
        let of = |disk: &Rc<dolmen_pool::Disk>| {
            let meter = disk.device()?.meter()?;
            Some(DiskFigures {
                pool: pool.name(),
                slot: disk.slot().0,
                id: disk.id().to_string(),
                name: disk.name(),
                load: self.load(&meter.look()),
            })
        };
        disks.iter().filter_map(of).collect()
    }

    fn us_at(&self, instant: Instant) -> u64 {
        u64::try_from(instant.since(self.began).as_micros()).unwrap_or(u64::MAX)
    }

    fn load(&self, figures: &dolmen_block_io::Figures) -> Load {
        Load {
            since_us: self.us_at(figures.since),
            under_way: figures.under_way,
            queue_us: u64::try_from(figures.queue.as_micros()).unwrap_or(u64::MAX),
            busy_us: u64::try_from(figures.busy.as_micros()).unwrap_or(u64::MAX),
            errors: figures.errors,
            reads: io_figures(&figures.reads),
            writes: io_figures(&figures.writes),
            discards: io_figures(&figures.discards),
            flushes: io_figures(&figures.flushes),
        }
    }
}

fn io_figures(figures: &dolmen_block_io::IoFigures) -> IoFigures {
    let bucket = |(up_to_us, count)| LatencyBucket { up_to_us, count };
    IoFigures {
        count: figures.latency.count(),
        bytes: figures.bytes,
        total_us: figures.latency.total_us(),
        latency: figures.latency.counts().map(bucket).collect(),
    }
}
