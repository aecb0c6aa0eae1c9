//! Slab maps of pools, as documents.

use std::rc::Rc;

use dolmen_api::{
    DiskSlabs, ErrorBody, ErrorCode, SCHEMA, SlabCell, SlabMap, SlabMapQuery, SlabOwner, SlabPurpose,
    SlabShare,
};
use dolmen_space::CellCount;
use dolmen_units::ALLOCATION_UNIT_BYTES;

use crate::answer::Answer;
use crate::api::reports::Reports;
use crate::fault;
use crate::open_pool::OpenPool;

impl Reports {
    pub(crate) async fn slab_map(&self, pool: String, query: SlabMapQuery) -> Answer<SlabMap> {
        let open = self.pools.pool(&pool)?;
        let asked = query.cells.unwrap_or(SlabMapQuery::CELLS_USUAL);
        let cells = CellCount::new(asked).ok_or_else(|| {
            let message =
                format!("{asked} cells a disk were asked for, and a slab map has 1 to {}", CellCount::MAX);
            ErrorBody::new(ErrorCode::BadRequest, message)
                .on(pool.as_str())
                .hint("ask for as many as a screen shows")
        })?;
        let maps = &self.slab_maps;
        let _waiting = maps.wait().map_err(|error| error.on(pool.as_str()))?;
        let _turn = maps.mutex.take().await;
        let clock = &self.seams.clock;
        if let Some(found) = maps.find(open.id(), cells, clock.now()) {
            return Ok(found);
        }
        let began = clock.now();
        let map = open.spaces.moves().slab_map(cells).await.map_err(|error| fault::space(&error))?;
        let map = Rc::new(shown(&open, pool, &map));
        maps.keep((open.id(), cells), (began, clock.now()), &map);
        Ok(SlabMap::clone(&map))
    }
}

fn shown(open: &OpenPool, pool: String, map: &dolmen_space::SlabMap) -> SlabMap {
    let caches = map.owners.iter().filter(|owner| is_cache(owner)).count();
    SlabMap {
        schema: SCHEMA,
        pool,
        age_s: 0,
        unit_bytes: ALLOCATION_UNIT_BYTES,
        owners: map.owners.iter().map(|owner| shown_owner(owner, caches)).collect(),
        disks: map.disks.iter().filter_map(|disk| shown_disk(open, disk)).collect(),
    }
}

const fn is_cache(owner: &dolmen_space::SlabOwner) -> bool {
    matches!(owner.purpose, dolmen_space::SlabPurpose::WriteCache { .. })
}

fn shown_owner(owner: &dolmen_space::SlabOwner, caches: usize) -> SlabOwner {
    use dolmen_space::SlabPurpose as Purpose;
    let space = &owner.space;
    let (purpose, name) = match owner.purpose {
        Purpose::Space => (SlabPurpose::Space, space.to_string()),
        Purpose::Trash => (SlabPurpose::Trash, format!("{space} in the trash")),
        Purpose::Deleted => (SlabPurpose::Deleted, format!("{space}, being deleted")),
        // Several are told apart by the spaces that they are for.
        Purpose::WriteCache { survives } if caches > 1 => {
            (SlabPurpose::WriteCache, format!("write cache, survives {survives}"))
        }
        Purpose::WriteCache { .. } => (SlabPurpose::WriteCache, "write cache".to_owned()),
        Purpose::ShadowRows => (SlabPurpose::Shadow, format!("{space}, rows being replaced")),
        Purpose::ConversionShadows => (SlabPurpose::Conversion, format!("{space}, rows being converted")),
    };
    SlabOwner {
        purpose,
        space: (!is_cache(owner)).then(|| space.to_string()),
        name,
        used_bytes: owner.units.saturating_mul(ALLOCATION_UNIT_BYTES),
        stale_bytes: owner.stale_units.saturating_mul(ALLOCATION_UNIT_BYTES),
    }
}

/// Shows a disk, unless it has left meanwhile.
fn shown_disk(open: &OpenPool, cells: &dolmen_space::DiskCells) -> Option<DiskSlabs> {
    let disk = open.spaces.pool().disk(cells.slot)?;
    Some(DiskSlabs {
        slot: cells.slot.0,
        name: disk.name(),
        is_absent: !disk.is_present(),
        units: cells.units,
        free_units: cells.cells.iter().map(|cell| cell.free_units).sum(),
        stale_units: cells.cells.iter().map(|cell| cell.stale_units).sum(),
        cells: cells.cells.iter().map(shown_cell).collect(),
    })
}

fn shown_cell(cell: &dolmen_space::SlabCell) -> SlabCell {
    let share = |share: &dolmen_space::CellShare| SlabShare {
        owner: u32::try_from(share.owner).unwrap_or(u32::MAX),
        units: share.units,
    };
    SlabCell {
        units: cell.units,
        free_units: cell.free_units,
        stale_units: cell.stale_units,
        owners: cell.owners.iter().map(share).collect(),
        other_units: cell.other_units,
    }
}
