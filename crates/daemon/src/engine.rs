//! The services of the engine's thread, and the order in which they are made.
//!
//! Everything in here runs on one thread. Requests are tasks of their own, so a long one keeps no other waiting; what
//! changes the set of pools takes [`OpenPools::changes`], what changes one pool takes that pool's mutex.
//!
//! Invariant: nothing here waits for the thread of the API, or for any client. Files of the daemon's own are written by
//! the file worker's thread and awaited.
//!
//! Invariant: a service reaches those that its constructor names, and no other. Only requests and the start of the daemon reach
//! the engine.
//!
//! [`OpenPools::changes`]: crate::open_pools::OpenPools::changes

use std::rc::Rc;

use crate::api::{EventWatch, Explainer, JobControl, Reports, Stopping};
use crate::attaching::{KernelTransports, SpaceAttachments};
use crate::base::Base;
use crate::benchmarks::Benchmarks;
use crate::disks::{Devices, Drains, Locator, Membership, Rebuilds, Replacements};
use crate::health::Diagnosis;
use crate::job_table::{JobServices, JobWorkers};
use crate::pools::{
    Arrivals, Opening, PoolChanges, PoolEnds, Rebalances, Recordings, Resyncs, Tending, Widths,
};
use crate::settings::Settings;
use crate::spaces::{Conversions, Deletions, NetworkListeners, Purges, Scrubs, SpaceChanges, WriteCaches};
use crate::volumes::VolumeServices;

/// Services of spaces.
pub(crate) struct SpaceServices {
    pub(crate) kernel: Rc<KernelTransports>,
    pub(crate) attachments: Rc<SpaceAttachments>,
    pub(crate) network: Rc<NetworkListeners>,
    pub(crate) changes: Rc<SpaceChanges>,
    pub(crate) purges: Rc<Purges>,
    pub(crate) deletions: Rc<Deletions>,
    pub(crate) scrubs: Rc<Scrubs>,
    pub(crate) conversions: Rc<Conversions>,
    pub(crate) write_caches: Rc<WriteCaches>,
    pub(crate) volumes: VolumeServices,
    pub(crate) benchmarks: Rc<Benchmarks>,
}

impl SpaceServices {
    fn new(base: &Base) -> Self {
        let kernel = Rc::new(KernelTransports::new(base));
        let attachments = Rc::new(SpaceAttachments::new(base, &kernel));
        let network = Rc::new(NetworkListeners::new(base));
        let changes = Rc::new(SpaceChanges::new(base, &attachments, &network));
        let purges = Rc::new(Purges::new(base));
        let deletions = Rc::new(Deletions::new(base, &purges, &changes));
        Self {
            benchmarks: Rc::new(Benchmarks::new(base)),
            volumes: VolumeServices::new(base, &attachments, &changes, &deletions),
            deletions,
            scrubs: Rc::new(Scrubs::new(base)),
            conversions: Rc::new(Conversions::new(base)),
            write_caches: Rc::new(WriteCaches::new(base)),
            kernel,
            attachments,
            network,
            changes,
            purges,
        }
    }
}

/// Services of disks, and of rows that follow them.
pub(crate) struct DiskServices {
    pub(crate) devices: Rc<Devices>,
    pub(crate) widths: Rc<Widths>,
    pub(crate) resyncs: Rc<Resyncs>,
    pub(crate) rebalances: Rc<Rebalances>,
    pub(crate) replacements: Rc<Replacements>,
    pub(crate) drains: Rc<Drains>,
    pub(crate) rebuilds: Rc<Rebuilds>,
    pub(crate) membership: Rc<Membership>,
    pub(crate) locator: Rc<Locator>,
}

impl DiskServices {
    fn new(base: &Base, spaces: &SpaceServices) -> Self {
        let devices = Rc::new(Devices::new(base));
        let widths = Rc::new(Widths::new(base, &spaces.conversions));
        let resyncs = Rc::new(Resyncs::new(base));
        let replacements = Rc::new(Replacements::new(base, &devices));
        let drains = Rc::new(Drains::new(base, &devices, &widths, &replacements));
        let membership = Membership::new(base, &devices, &spaces.scrubs, &resyncs, &replacements, &drains);
        Self {
            rebalances: Rc::new(Rebalances::new(base)),
            rebuilds: Rc::new(Rebuilds::new(base, &drains)),
            membership: Rc::new(membership),
            locator: Rc::new(Locator::new(base)),
            devices,
            widths,
            resyncs,
            replacements,
            drains,
        }
    }
}

/// Services of whole pools.
pub(crate) struct PoolServices {
    pub(crate) settings: Rc<Settings>,
    pub(crate) job_control: Rc<JobControl>,
    pub(crate) ends: Rc<PoolEnds>,
    pub(crate) recordings: Rc<Recordings>,
    pub(crate) opening: Rc<Opening>,
    pub(crate) changes: Rc<PoolChanges>,
    pub(crate) arrivals: Rc<Arrivals>,
}

impl PoolServices {
    fn new(base: &Base, spaces: &SpaceServices, disks: &DiskServices) -> Self {
        let services = JobServices {
            resyncs: Rc::clone(&disks.resyncs),
            replacements: Rc::clone(&disks.replacements),
            drains: Rc::clone(&disks.drains),
            scrubs: Rc::clone(&spaces.scrubs),
            write_caches: Rc::clone(&spaces.write_caches),
            rebalances: Rc::clone(&disks.rebalances),
            conversions: Rc::clone(&spaces.conversions),
            purges: Rc::clone(&spaces.purges),
            rebuilds: Rc::clone(&disks.rebuilds),
            volumes: Rc::clone(&spaces.volumes.all),
            volume_checks: Rc::clone(&spaces.volumes.checks),
            volume_growth: Rc::clone(&spaces.volumes.growth),
            dedups: Rc::clone(&spaces.volumes.dedups),
            benchmarks: Rc::clone(&spaces.benchmarks),
            #[cfg(test)]
            pool_jobs: Rc::clone(&base.pool_jobs),
        };
        let job_control = Rc::new(JobControl::new(base, &Rc::new(JobWorkers::new(&services))));
        let (devices, widths) = (&disks.devices, &disks.widths);
        let tending = Rc::new(Tending::new(base, &services, &spaces.deletions, widths, &job_control));
        let recordings = Rc::new(Recordings::new(base));
        let ends =
            PoolEnds::new(base, &spaces.attachments, &spaces.network, &spaces.volumes.all, &recordings);
        let ends = Rc::new(ends);
        let opening =
            Opening::new(base, devices, &spaces.kernel, &spaces.network, &job_control, &ends, &tending);
        let opening = Rc::new(opening);
        let changes =
            PoolChanges::new(base, devices, widths, &disks.resyncs, &disks.rebalances, &ends, &opening);
        let arrivals = Rc::new(Arrivals::new(base, devices, &disks.membership, &opening));
        let (settings, changes) = (Rc::new(Settings::new(base)), Rc::new(changes));
        Self { settings, changes, job_control, ends, recordings, opening, arrivals }
    }
}

/// The engine.
pub(crate) struct Engine {
    pub(crate) base: Base,
    pub(crate) spaces: SpaceServices,
    pub(crate) disks: DiskServices,
    pub(crate) pools: PoolServices,
    pub(crate) diagnosis: Rc<Diagnosis>,
    pub(crate) reports: Rc<Reports>,
    pub(crate) events: Rc<EventWatch>,
    pub(crate) explainer: Rc<Explainer>,
    pub(crate) stopping: Rc<Stopping>,
}

impl Engine {
    pub(crate) fn new(base: Base) -> Rc<Self> {
        let spaces = SpaceServices::new(&base);
        let disks = DiskServices::new(&base, &spaces);
        let pools = PoolServices::new(&base, &spaces, &disks);
        let diagnosis = Rc::new(Diagnosis::new(&base, &spaces.network, &spaces.volumes.watch));
        Rc::new(Self {
            reports: Rc::new(Reports::new(&base)),
            events: Rc::new(EventWatch::new(&base, &diagnosis)),
            explainer: Rc::new(Explainer::new(&base, &spaces.volumes.damage)),
            stopping: Rc::new(Stopping::new(
                &base,
                &spaces.attachments,
                &spaces.network,
                &spaces.volumes.all,
                &spaces.benchmarks,
                &pools.recordings,
            )),
            diagnosis,
            base,
            spaces,
            disks,
            pools,
        })
    }
}
