//! Figures of pools.

use std::rc::Rc;

use dolmen_api::{Counters, Df, DiskRoom, DiskTally, Exports, Fits, PoolTally, SCHEMA, SpaceTally};
use dolmen_block_io::{Instant, Seams};
use dolmen_block_linux::Handle;
use dolmen_placement::Offer;
use dolmen_space::{Integrity, Resiliency};

use crate::answer::Answer;
use crate::api::recent_slab_maps::RecentSlabMaps;
use crate::base::Base;
use crate::exports::NbdServer;
use crate::fault;
use crate::health::absent_names;
use crate::open_pool::OpenPool;
use crate::open_pools::OpenPools;
use crate::plan::{usable, usable_fixed};
use crate::pools::HistoryReads;
use crate::resiliency::resiliency_of;
use crate::rooms::fillings_here;
use crate::settings::kept_bytes;
use crate::views::Views;

/// Figures of pools.
pub(crate) struct Reports {
    pub(super) pools: Rc<OpenPools>,
    views: Rc<Views>,
    handle: Handle,
    pub(super) seams: Seams,
    nbd: Rc<NbdServer>,
    pub(super) began: Instant,
    pub(super) history_reads: Rc<HistoryReads>,
    pub(super) slab_maps: RecentSlabMaps,
}

impl Reports {
    pub(crate) fn new(base: &Base) -> Self {
        Self {
            pools: Rc::clone(&base.pools),
            views: Rc::clone(&base.views),
            handle: base.handle.clone(),
            seams: base.seams.clone(),
            nbd: Rc::clone(&base.nbd),
            began: base.began,
            history_reads: Rc::clone(&base.history_reads),
            slab_maps: RecentSlabMaps::default(),
        }
    }
}

impl Reports {
    pub(crate) async fn exports(&self) -> Answer<Exports> {
        let exports = self.nbd.list().iter().map(|served| self.views.view_export(served)).collect();
        Ok(Exports { schema: SCHEMA, exports })
    }

    pub(crate) async fn df(&self, name: String) -> Answer<Df> {
        let open = self.pools.pool(&name)?;
        let pool = open.spaces.pool();
        let (mut claimed, mut redundancy, mut promised) = (0, 0, 0);
        for space in open.spaces.list() {
            let bytes = space.claimed().0;
            claimed += bytes;
            redundancy += space.footprint().await.map_err(|error| fault::space(&error))?.redundancy.0;
            promised += space.size().0.saturating_sub(bytes);
        }
        let caches = open.spaces.caches().write_caches().await.map_err(|error| fault::space(&error))?;
        let write_cache: u64 = caches.iter().map(|cache| cache.footprint.total.0).sum();
        let (_, trash) = open.trash_tally().await?;
        let present: Vec<_> = pool.disks().into_iter().filter(|disk| disk.is_present()).collect();
        let rooms = pool.free_space().room();
        let room_of = |disk: &dolmen_pool::Disk| rooms.iter().find(|room| room.slot == disk.slot()).copied();
        let mut disks = Vec::new();
        let (mut raw, mut metadata, mut tail) = (0, 0, 0);
        for disk in &present {
            let (Some(extent), Some(room)) = (disk.extent(), room_of(disk)) else { continue };
            let raw_bytes = disk.geometry().map_or(extent.capacity.0, |geometry| geometry.capacity.0);
            let data_end = extent.data_start + room.data.0;
            raw += raw_bytes;
            metadata += extent.data_start;
            tail += raw_bytes.saturating_sub(data_end);
            disks.push(DiskRoom {
                slot: disk.slot().0,
                name: disk.name(),
                raw_bytes,
                data_bytes: room.data.0,
                free_bytes: room.free.0,
                reserve_bytes: room.reserve.0,
            });
        }
        let data: u64 = disks.iter().map(|disk| disk.data_bytes).sum();
        let free: u64 = disks.iter().map(|disk| disk.free_bytes).sum();
        let used = data.saturating_sub(free);
        Ok(Df {
            schema: SCHEMA,
            pool: name,
            raw_bytes: raw,
            metadata_bytes: metadata,
            tail_bytes: tail,
            data_bytes: data,
            used_bytes: used,
            claimed_bytes: claimed,
            redundancy_bytes: redundancy,
            write_cache_bytes: write_cache,
            trash_bytes: trash,
            tables_bytes: used.saturating_sub(claimed + redundancy + write_cache + trash),
            free_bytes: free,
            reserve_bytes: disks.iter().map(|disk| disk.reserve_bytes.min(disk.free_bytes)).sum(),
            kept_bytes: kept_bytes(&open).0,
            promised_bytes: promised,
            fits: self.fits(&open).await,
            disks,
            absent_disks: absent_names(&open),
        })
    }

    async fn fits(&self, open: &OpenPool) -> Vec<Fits> {
        let levels = [
            Resiliency::Simple,
            Resiliency::Span,
            Resiliency::Mirror { copies: 2 },
            Resiliency::Mirror { copies: 3 },
            Resiliency::Mirror { copies: 4 },
            Resiliency::Parity { parity: 1 },
            Resiliency::Parity { parity: 2 },
        ];
        let mut fits = Vec::new();
        for resiliency in levels {
            let write_cache = Integrity::usual(resiliency).write_cache(resiliency);
            // What cannot be made has no room: for want of disks, of fault domains, or of room for its write cache.
            let can_be_made = open.can_make(resiliency);
            let offers = open.spaces.changes().offers_with_cache(write_cache).ok().filter(|_| can_be_made);
            let offers: Rc<[Offer]> = offers.unwrap_or_default().into();
            fits.push(Fits {
                resiliency: resiliency_of(resiliency),
                copies: resiliency.copies(),
                parity: resiliency.parity_columns(),
                survives: resiliency.redundancy(),
                usable_bytes: usable(&offers, resiliency).await.0,
                usable_fixed_bytes: Some(usable_fixed(&offers, resiliency).await.0),
            });
        }
        fits
    }

    pub(crate) async fn counters(&self) -> Answer<Counters> {
        let counted = self.handle.counters();
        Ok(Counters {
            schema: SCHEMA,
            driver: self.handle.driver_name().to_owned(),
            messages: counted.messages,
            unparks: counted.unparks,
            polls: counted.polls,
            fillings: fillings_here(),
            pools: self.pools.open_pools().iter().map(|pool| tally(pool)).collect(),
        })
    }
}

fn tally(open: &OpenPool) -> PoolTally {
    let spaces = open.spaces.counters();
    let disk = |disk: &Rc<dolmen_pool::Disk>| {
        let io = disk.device().map(|device| device.counters()).unwrap_or_default();
        DiskTally {
            slot: disk.slot().0,
            name: disk.name(),
            reads: io.reads,
            read_bytes: io.read_bytes,
            writes: io.writes,
            write_bytes: io.write_bytes,
            flushes: io.flushes,
            durable_writes: io.durable_writes,
            discards: io.discards,
            errors: io.errors,
        }
    };
    PoolTally {
        pool: open.name(),
        spaces: SpaceTally {
            fresh_writes: spaces.fresh_writes,
            rewrites: spaces.rewrites,
            overwrites: spaces.overwrites,
            flushes: spaces.flushes,
            shared_flushes: spaces.shared_flushes,
            page_reads: spaces.page_reads,
            page_writes: spaces.page_writes,
            checksum_errors: spaces.checksum_errors,
            healed_blocks: spaces.healed_blocks,
            accepted_unverified_blocks: spaces.accepted_unverified,
            lost_blocks: spaces.lost_blocks,
            resynced_blocks: spaces.resynced_blocks,
        },
        disks: open.spaces.pool().disks().iter().map(disk).collect(),
    }
}
