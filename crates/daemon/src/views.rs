//! The state of pools and spaces, as the API shows it.

use std::rc::Rc;

use dolmen_api::{
    Disk, DiskState, Export, Finding, FormerLayout, Health, NetworkExport, Pool, PoolState, SpaceLimits,
};
use dolmen_block_io::sync::yield_now;
use dolmen_disk::MemberState;
use dolmen_pool::{PoolState as State, Role};
use dolmen_space::{Layout, Limits, Provisioning, Space, WriteCache};
use dolmen_units::Bytes;

use crate::answer::Answer;
use crate::attach::Transports;
use crate::disks::score_of;
use crate::exports::{Listeners, NbdServer, Served};
use crate::fault;
use crate::health::{not_open, pool_findings, space_health, summed};
use crate::open_pool::{OpenPool, key_of};
use crate::open_pools::OpenPools;
use crate::plan::Offered;
use crate::resiliency::{integrity_of, resiliency_of};
use crate::settings::fill_of;
use crate::state::{Backing, Slow, is_here};

/// What rows have that have not been moved yet.
fn former(layout: Layout) -> FormerLayout {
    FormerLayout {
        resiliency: resiliency_of(layout.resiliency),
        copies: layout.resiliency.copies(),
        parity: layout.resiliency.parity_columns(),
        columns: layout.columns,
        interleave_bytes: layout.interleave.0,
        integrity: integrity_of(layout.integrity),
    }
}

/// Pools and spaces as the API shows them.
pub(crate) struct Views {
    pub(crate) pools: Rc<OpenPools>,
    pub(crate) nbd: Rc<NbdServer>,
    pub(crate) listeners: Rc<Listeners>,
    pub(crate) transports: Rc<Transports>,
}

impl Views {
    pub(crate) fn view_disks(&self, open: &OpenPool) -> Vec<Disk> {
        let pool = open.spaces.pool();
        let voters = pool.members().voters();
        let room = pool.free_space().room();
        let view = |disk: &Rc<dolmen_pool::Disk>| {
            let counters = disk.counters();
            let here = is_here(disk);
            let free = room.iter().find(|room| room.slot == disk.slot()).map_or(0, |room| room.free.0);
            let retired = disk.member().state == MemberState::Retired;
            let role = pool.members().role_of(disk);
            Disk {
                slot: disk.slot().0,
                id: disk.id().to_string(),
                path: here.then(|| disk.name()),
                last_path: Some(disk.name()).filter(|name| !here && name.starts_with('/')),
                state: match (here, retired) {
                    (false, _) => DiskState::Absent,
                    (true, true) => DiskState::Retired,
                    (true, false) if role.is_some() && pool.free_space().holds_rows(disk) => {
                        DiskState::Retired
                    }
                    (true, false) => match role {
                        None => DiskState::Present,
                        Some(Role::Spare) => DiskState::Spare,
                        Some(Role::Idle) => DiskState::Idle,
                    },
                },
                backing_state: open.backing_state_of(disk).map(Backing::kind),
                size_bytes: disk.size().capacity().0,
                gained_bytes: disk.size().gained().0,
                data_bytes: disk.data_bytes().0,
                free_bytes: if here { free } else { 0 },
                fault_domain: disk.member().fault_domain,
                enclosure: pool
                    .settings()
                    .domain_name(disk.member().fault_domain)
                    .map(|name| name.to_string()),
                is_voter: voters.contains(&disk.id()),
                read_errors: counters.read_errors,
                write_errors: counters.write_errors,
                checksum_errors: counters.checksum_errors,
                timed_out_reads: counters.timed_out_reads,
                times_slower: open.latencies.slow(disk.id()).map(Slow::times),
                score: here.then(|| score_of(open, disk)),
                bay: open.bay_of(disk.id()),
                smart: open.smarts.of(disk.id()).filter(|_| here),
                smart_silence: open.smarts.silence_of(disk.id()).filter(|_| here),
            }
        };
        pool.disks().iter().map(view).collect()
    }

    pub(crate) async fn view_pool(&self, open: &OpenPool) -> Answer<Pool> {
        self.view_pool_with(open, &pool_findings(open).await).await
    }

    /// Returns the view of a pool with these findings.
    pub(crate) async fn view_pool_with(&self, open: &OpenPool, findings: &[Finding]) -> Answer<Pool> {
        let pool = open.spaces.pool();
        let disks = self.view_disks(open);
        let (health, why) = summed(open, findings);
        let (state, state_cause) = match pool.state() {
            State::Writable => (PoolState::Writable, None),
            State::ReadOnly(cause) => (PoolState::ReadOnly, Some(cause)),
            State::Latched(cause) => (PoolState::Stopped, Some(cause)),
        };
        let write_caches = open.spaces.caches().write_caches().await.map_err(|error| fault::space(&error))?;
        // A pool is shown whatever its map holds there.
        let repair_after = pool.settings().repair_after().await.ok();
        let (trash_count, trash_bytes) = open.trash_tally().await?;
        let data_bytes: u64 = disks.iter().map(|disk| disk.data_bytes).sum();
        let free_bytes: u64 = disks.iter().map(|disk| disk.free_bytes).sum();
        Ok(Pool {
            name: open.name(),
            id: open.id().to_string(),
            health,
            why,
            state,
            state_cause,
            epoch: pool.epoch().to_string(),
            data_bytes,
            used_bytes: data_bytes.saturating_sub(free_bytes),
            free_bytes,
            space_count: open.spaces.list().len() as u64,
            trash_count,
            trash_bytes,
            keep_room_for: pool.free_space().keeps_room_for(),
            has_room_for: open.has_room_for(),
            repair_after_s: repair_after.map(|after| after.map_or(0, |after| after.as_secs())),
            write_caches: write_caches.iter().map(view_write_cache).collect(),
            fill: Some(fill_of(open)),
            history_problem: open.recording.problem.borrow().clone(),
            disks,
        })
    }

    /// Pools that should be open and are not.
    pub(crate) fn view_closed(&self) -> Vec<Pool> {
        let closed = self.pools.closed.borrow();
        let view = |(id, closed): (&dolmen_units::PoolId, &crate::open_pool::ClosedPool)| Pool {
            name: closed.remembered.name.clone(),
            id: id.to_string(),
            health: Health::Unhealthy,
            why: vec![not_open(closed).text],
            state: PoolState::Closed,
            state_cause: Some(closed.cause.to_string()),
            epoch: String::new(),
            data_bytes: 0,
            used_bytes: 0,
            free_bytes: 0,
            space_count: 0,
            trash_count: 0,
            trash_bytes: 0,
            keep_room_for: 0,
            has_room_for: 0,
            repair_after_s: None,
            write_caches: Vec::new(),
            fill: None,
            history_problem: None,
            disks: Vec::new(),
        };
        closed.iter().map(view).collect()
    }

    pub(crate) async fn view_spaces(&self, open: &OpenPool) -> Answer<Vec<dolmen_api::Space>> {
        let (offered, mut spaces) = (open.offered(), Vec::new());
        for space in open.spaces.list() {
            yield_now().await;
            spaces.push(self.view_space_on(open, &space, &offered).await?);
        }
        spaces.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(spaces)
    }

    pub(crate) async fn view_space(&self, open: &OpenPool, space: &Space) -> Answer<dolmen_api::Space> {
        self.view_space_on(open, space, &open.offered()).await
    }

    async fn view_space_on(
        &self,
        open: &OpenPool,
        space: &Space,
        offered: &Offered,
    ) -> Answer<dolmen_api::Space> {
        let spec = space.spec();
        let footprint = space.footprint().await.map_err(|error| fault::space(&error))?;
        let (health, why) = space_health(open, space, offered).await;
        let export = self.nbd.find(open.id(), space.id()).map(|served| self.view_export(&served));
        Ok(dolmen_api::Space {
            pool: open.name(),
            name: spec.name.to_string(),
            health,
            why,
            size_bytes: spec.size.0,
            resiliency: resiliency_of(spec.resiliency),
            copies: spec.resiliency.copies(),
            parity: spec.resiliency.parity_columns(),
            columns: spec.columns,
            interleave_bytes: spec.interleave.0,
            row_bytes: space.row_bytes(),
            provisioning: match spec.provisioning {
                Provisioning::Thin => dolmen_api::Provisioning::Thin,
                Provisioning::Fixed => dolmen_api::Provisioning::Fixed,
            },
            integrity: integrity_of(spec.integrity),
            converted_from: space.layout_before().map(former),
            sector_bytes: spec.sector.0,
            limits: view_limits(spec.limits),
            claimed_bytes: space.claimed().0,
            footprint_bytes: footprint.total.0,
            reserve_bytes: space.reserve().0,
            reserve_unused_bytes: space.blank_bytes().0.min(space.reserve().0),
            attached_at: self.attached_at(open, space),
            served_at: export.as_ref().map(|export| export.uri.clone()),
            network_at: export.and_then(|export| export.network).map(|network| network.uri),
        })
    }

    pub(crate) fn view_export(&self, served: &Served) -> Export {
        let (pool, space) = served.name.split_once('/').unwrap_or(("", served.name.as_str()));
        let socket = self.nbd.socket.display().to_string();
        Export {
            pool: pool.to_owned(),
            space: space.to_owned(),
            name: served.name.clone(),
            uri: format!("nbd+unix:///{}?socket={}", served.name, percent(&socket)),
            socket,
            is_read_only: served.access == dolmen_nbd::Access::ReadOnly,
            client_count: served.client_count(),
            network: self.view_network(served),
        }
    }

    /// The listener of a space, as people see it.
    pub(crate) fn view_network(&self, served: &Served) -> Option<NetworkExport> {
        let network = served.network.borrow();
        let network = network.as_ref()?;
        let at = network.listen;
        let is_tls = network.tls.is_some();
        let scheme = if is_tls { "nbds" } else { "nbd" };
        let host = if at.ip().is_unspecified() { host_name() } else { None };
        let authority = host.map_or_else(|| at.to_string(), |host| format!("{host}:{}", at.port()));
        Some(NetworkExport {
            listen: at.to_string(),
            uri: format!("{scheme}://{authority}/{}", served.name),
            is_tls,
            allow: network.allow.clone(),
            problem: self.listeners.problems.borrow().get(&at).cloned(),
        })
    }

    pub(crate) fn attached_at(&self, pool: &OpenPool, space: &Space) -> Option<String> {
        self.transports.find(key_of(pool, space)).map(|one| one.link().display().to_string())
    }
}

/// A path as it stands in the query of an address.
fn percent(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'.' | b'-' | b'_' | b'~');
        match plain {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// What others may call this machine.
fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_str().ok()?.to_owned();
    (!name.is_empty()).then_some(name)
}

fn view_write_cache(cache: &WriteCache) -> dolmen_api::WriteCache {
    dolmen_api::WriteCache {
        survives: cache.redundancy,
        size_bytes: cache.size.0,
        waiting_bytes: cache.waiting.0,
        footprint_bytes: cache.footprint.total.0,
        copies: cache.redundancy + 1,
        disks: cache.disks.iter().map(|slot| slot.0).collect(),
        fill_percent: cache.drain.fill,
        drain_bytes_per_s_max: cache.drain.rate.map_or(0, |rate| rate.0),
        filled_bytes: cache.filled.bytes,
        filled_bytes_per_s: cache.filled.bytes_per_second,
        destaged_bytes: cache.destaged.bytes,
        destaged_bytes_per_s: cache.destaged.bytes_per_second,
    }
}

/// As documents have them; nothing where there are none.
fn view_limits(limits: Limits) -> Option<SpaceLimits> {
    let bytes = |rate: Option<Bytes>| rate.map(|rate| rate.0);
    let view = SpaceLimits {
        iops_max: limits.iops_max,
        iops_min: limits.iops_min,
        bytes_per_s_max: bytes(limits.rate_max),
        bytes_per_s_min: bytes(limits.rate_min),
    };
    Some(view).filter(|_| !limits.is_none())
}
