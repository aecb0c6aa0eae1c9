//! The drivers of recovery: rows that the log names are decided, a few at a time, then a checkpoint makes that durable.

use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_future_pool::pooled;
use dolmen_pool::RecoveredBlock;
use dolmen_units::{BLOCK_BYTES, RowId, SpaceId};

use crate::format::error::SpaceError;
use crate::format::ids::seen_as;
use crate::layout::Unit;
use crate::resolution::holders::{Holders, rows_of};
use crate::resolution::in_flight::{Source, decide_sources, decide_stripes, log_moved};
use crate::resolution::mention::Mentions;
use crate::resolution::reach::Deferral;
use crate::resolution::recovery::{
    Below, DECIDED_TOGETHER, OpenBlock, Recovery, mark_absences, minimum_generations, note_all_unfound,
    note_bases, note_deferred, page_in_reach,
};
use crate::resolution::replay::{CacheReplay, Cached};
use crate::row_io::flusher::Flusher;
use crate::table::candidates::{Candidate, RowCandidates};
use crate::table::page::place_in_page;
use crate::table::row::Row;
use crate::table::space::{Shared, SpaceRows};

/// Applies and decides all that the log says of blocks, then makes it durable by a checkpoint, which needs no room in the
/// log. Until that stands, nothing may be served: a crash in between repeats it all from the log.
#[pooled]
pub(crate) async fn recover(
    shared: &Rc<Shared>,
    spaces: &BTreeMap<SpaceId, Rc<SpaceRows>>,
    blocks: Vec<RecoveredBlock>,
) -> Result<Recovery, SpaceError> {
    let mut recovery = Recovery::default();
    let named = rows_of(&blocks).map_err(|lsn| shared.malformed(lsn))?;
    let holders = Holders::of(shared, named).await?;
    let blocks_of = |row: RowId| {
        let space = holders.get(row).and_then(|(space, _)| spaces.get(&space));
        space.map_or(0, |space| space.row_bytes() / BLOCK_BYTES)
    };
    let cached = Cached::of(&blocks, blocks_of).map_err(|lsn| shared.malformed(lsn))?;
    let mentions = Mentions::of(blocks).map_err(|lsn| shared.malformed(lsn))?;
    let (rows, freed) = decide_rows(shared, spaces, (&holders, mentions), &mut recovery).await?;
    let cached = cached.load(shared, spaces, &holders).await?;
    note_all_unfound(shared, |row| spaces.get(&row.space)?.cache_of(row), &mut recovery);
    // A disk that failed while copies were made alike has missed what rows before it were given.
    rows.iter().for_each(|row| mark_absences(shared, row));
    if !shared.may_write() {
        // Looked at without changing anything: decisions hold in memory, for as long as the pool is looked at.
        freed.iter().for_each(|source| source.is_deleting(shared));
        return Ok(recovery);
    }
    // The log keeps what it says of stripes that are in their other slots, and their tables wait, until those say so.
    freed.iter().for_each(|source| source.keep(shared));
    let owner: Rc<dyn dolmen_pool::TableOwner> = Rc::clone(shared) as _;
    shared.pool.log().set_table_owner(Rc::downgrade(&owner));
    // Also where nothing was to be decided: each opening leaves an extent of the log to its epoch, and labels have room for
    // so many of them.
    drop(shared.tickets.begin());
    shared.recovering.set(true);
    let written = shared.pool.checkpoint().await;
    shared.recovering.set(false);
    written?;
    // Not before tables say where these stripes are, and which slabs lack that: the next opening may find fewer copies there, and
    // take them for what they were.
    log_moved(shared, &freed).await?;
    if !rows.is_empty() || !cached.is_empty() {
        // What had to be carried over because its disks are absent, settled or not, is relogged behind the tail.
        Flusher::of(shared).force_flush().await?;
    }
    for cache in shared.caches() {
        CacheReplay::of(&cache).find_room_left().await?;
    }
    Ok(recovery)
}

/// Applies and decides what the log says of rows, a few at a time; those rows, and stripes that are in their other slots.
#[pooled]
pub(crate) async fn decide_rows(
    shared: &Rc<Shared>,
    spaces: &BTreeMap<SpaceId, Rc<SpaceRows>>,
    (holders, mentions): (&Holders, Mentions),
    recovery: &mut Recovery,
) -> Result<(Vec<Rc<Row>>, Vec<Source>), SpaceError> {
    let (mut rows, mut next) = (Vec::new(), 0);
    let mut sources: BTreeMap<(SpaceId, u64), Vec<Source>> = BTreeMap::new();
    let mentions = &mentions;
    loop {
        let together = mentions.rows_from(next);
        let Some((_, last)) = together.last() else { break };
        next = last.end;
        // What is said of a row that no place names is dead.
        let known = together.into_iter().filter_map(|(id, of_row)| {
            let (space, index) = holders.get(id)?;
            Some((spaces.get(&space)?, index, id, of_row))
        });
        let decided = join_all(known.map(|(space, index, id, of_row)| async move {
            let Some(row) = space.in_doubt_row(index).await?.filter(|row| row.id == id) else {
                return Ok(None);
            };
            // What is said of a shadow row is said of the space whose content it holds.
            let space = spaces.get(&row.owner()).unwrap_or(space);
            let mut part = Recovery { rows: 1, ..Recovery::default() };
            let candidates = mentions.candidates(of_row, |column| row.shape.blocks_of(column));
            let (left, of_row) =
                recover_row(shared, space, &row, candidates, Below::Memory, &mut part).await?;
            Ok::<_, SpaceError>(Some((row, left, of_row, part)))
        }));
        for decided in decided.await {
            let Some((row, left, of_row, part)) = decided? else { continue };
            recovery.add(part);
            if part.went_back > 0 {
                Deferral::of(shared).note_reverted(spaces.get(&row.owner()));
            }
            note_deferred(shared, (row.space, row.index), left);
            if !of_row.is_empty() {
                sources.insert((row.space, row.index), of_row);
            }
            rows.push(row);
        }
    }
    // Behind all targets, which are of other rows.
    let mut freed = Vec::new();
    for (key, of_row) in sources {
        let mut left = RowCandidates::new();
        let Some(space) = spaces.get(&seen_as(key.0)) else { continue };
        freed.extend(decide_sources(shared, space, of_row, &mut left, recovery).await?);
        note_deferred(shared, key, left);
    }
    Ok((rows, freed))
}

/// Applies and decides what the log says of one row; what could not be decided because disks are absent, and stripes that are
/// decided behind the row beside it.
#[pooled]
pub(crate) async fn recover_row(
    shared: &Shared,
    space: &SpaceRows,
    row: &Rc<Row>,
    candidates: RowCandidates,
    below: Below,
    recovery: &mut Recovery,
) -> Result<(RowCandidates, Vec<Source>), SpaceError> {
    let mut left = RowCandidates::new();
    if below == Below::Memory {
        // While the pool is open this is committed before.
        mark_absences(shared, row);
    }
    let held = shared.tickets.begin();
    let minimum_rates = minimum_generations(&candidates);
    let (mut open, mut out_of_reach) = (Vec::new(), None);
    for ((column, block), candidates) in candidates {
        if column >= row.shape.columns() || block >= row.shape.column_blocks(column) {
            continue;
        }
        let (index, entry) = place_in_page(block);
        let minimum = minimum_rates.get(&(column, index)).copied().unwrap_or_default();
        // One that nobody can tell stays nowhere: it is looked up once for all of its blocks.
        let page = match out_of_reach == Some((column, index)) {
            true => None,
            false => page_in_reach(shared, row, (column, index), minimum).await?,
        };
        let Some(page) = page else {
            out_of_reach = Some((column, index));
            recovery.out_of_reach += 1;
            left.insert((column, block), candidates);
            continue;
        };
        if let Some(durable) = candidates.iter().find(|candidate| candidate.durable) {
            page.set(entry, durable.state, durable.stamp, shared.now(&held));
        }
        if candidates.iter().any(Candidate::is_in_doubt) {
            open.push(OpenBlock { column, block, page, candidates, base: None });
        }
    }
    note_bases(shared, row, &mut open, below).await;
    if row.shape.unit() == Unit::Stripe {
        let sources = decide_stripes(shared, space, row, open, &held, &mut left, recovery).await?;
        shared.note_dirty(row);
        return Ok((left, sources));
    }
    for together in open.chunks(DECIDED_TOGETHER) {
        let decided = join_all(together.iter().map(|open| open.decide(shared, space, row)));
        for (open, decided) in together.iter().zip(decided.await) {
            let (decided, part) = decided?;
            recovery.add(part);
            match decided {
                Some(decided) => open.is(decided, shared, row, &held),
                None => {
                    recovery.out_of_reach += 1;
                    left.insert((open.column, open.block), open.candidates.clone());
                }
            }
        }
    }
    shared.note_dirty(row);
    Ok((left, Vec::new()))
}
