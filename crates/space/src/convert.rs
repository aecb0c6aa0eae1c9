//! A space is converted while it is used: its rows move, one for one, to rows of another layout (docs/design/0020).
//!
//! 1. A *draft* of each row of a lot is claimed in a hidden space, and what the row holds is copied to it, verified, while clients
//!    go on; what they change is noted (`moving`).
//! 2. What is cached of the drafts is put in place, and a checkpoint flushes them and writes their tables.
//! 3. The rows are held: who would change them waits. What was changed meanwhile is copied again, as in 1 and 2.
//! 4. Under the lock of each row, if all of that still holds: one change of the map, in which the draft is the row.
//!
//! Invariants:
//! - The hidden space is unfinished for as long as it is there: an opening deletes it, and every row is what it was.
//! - A draft takes its row's place only with everything that the row holds, on all of its disks, flushed, its tables as well.
//! - What nobody can read is damaged in the draft, too: no checksum is made of what was not verified.
//!
//! Left to others: which layouts there are (`layouts`); writing to drafts, which are rows like any (`write`, `stripe`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_block_io::sync::join_all;
use dolmen_causes::in_one_line;
use dolmen_disk::FEATURE_LAYOUTS;
use dolmen_placement::{Code, Offer, Placement, Placer};
use dolmen_planted::{Bug, is_planted};
use dolmen_pool::{PoolError, Purpose, keys};
use dolmen_units::{BLOCK_BYTES, Bytes, GRAIN_BYTES};
use smallvec::SmallVec;

use crate::cache::drafts_of;
use crate::error::{SpaceError, UnreadableReason};
use crate::layout::{BLOCK, Shape, slab_grains};
use crate::layouts::{Layout, Layouts};
use crate::limits::Limits;
use crate::locks::Range;
use crate::moving::Watch;
use crate::progress::Progress;
use crate::read::{READ_BYTES_MAX, Segment, Segments};
use crate::record::BlockState;
use crate::resync::hull;
use crate::row::{Row, RowRecord};
use crate::shared::{place_in_page, push_stretch};
use crate::space::Space;
use crate::spaces::Spaces;
use crate::spec::{Provisioning, SPACE_BYTES_MAX, SpaceSpec, Standing};
use crate::stripe::stripe_at;

/// Rows of which drafts are made together, at most, and the bytes of them: one checkpoint does for all, and clients who write to
/// them wait for what is left of it.
const LOT_ROWS: usize = 16;
const LOT_BYTES: u64 = 128 << 20;
/// Pieces that are copied beside each other, at most.
const PIECES_AT_A_TIME: usize = 4;
/// Large frames of metadata memory that copying a piece takes: it is read into one, and put together in another.
const FRAMES_OF_PIECE: u64 = 2;
/// How often a row is tried.
const PASSES_MAX: u32 = 3;
/// Rows that are only said to have the other layout, in one change.
const TOLD_TOGETHER: usize = 128;

/// What a conversion has to do, with what is free now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConversionForecast {
    /// Rows that move.
    pub rows: u64,
    /// Rows that are laid as wanted already.
    pub kept: u64,
    /// Bytes that rows which move take behind it.
    pub claimed: Bytes,
    /// Bytes that they take now.
    pub freed: Bytes,
    /// Rows for which there is no room.
    pub stuck: u64,
}

/// A row, what is about to take its place, and what is known of it meanwhile.
struct Drafted {
    row: Rc<Row>,
    draft: Rc<Row>,
    watch: Watch,
    /// Something stands in the way: it stays as it is for now.
    is_left: Cell<bool>,
}

/// What a block of a row is, for its draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Nothing,
    Data,
    Lost,
}

/// What came of a lot.
struct Lot {
    /// Rows with which it is done.
    done: u64,
    /// Those that stay as they are for now.
    left: Vec<u64>,
}

impl Spaces {
    /// What it would take to lay the rows of a space otherwise.
    ///
    /// # Errors
    /// [`SpaceError`] when the layout cannot be, or the metadata cannot be read.
    pub async fn forecast_conversion(
        &self,
        space: &Space,
        to: Layout,
    ) -> Result<ConversionForecast, SpaceError> {
        let spec = laid(space, to);
        let placer = placer_of(&spec)?;
        let mut offers = self.offers_beside(spec.write_cache())?;
        let (turn, number) = (self.pool().next_turn(), space.number_of(to));
        let mut forecast = ConversionForecast::default();
        space
            .for_each_record(|index, record| {
                if Some(record.layout) == number {
                    forecast.kept += 1;
                    return;
                }
                let old = give_back(&mut offers, record);
                let placed = placer.place(&offers, turn + index);
                let before = space.layout_of(record.layout);
                match placed {
                    Ok(placed) if !is_as_wanted(record, before, to, &placed) => {
                        forecast.rows += 1;
                        forecast.freed.0 += old;
                        forecast.claimed.0 += take(&mut offers, &placed);
                    }
                    Err(_) if !is_like(before, to) => forecast.stuck += 1,
                    // It stays where it is.
                    Ok(_) | Err(_) => {
                        forecast.kept += 1;
                        take_again(&mut offers, record);
                    }
                }
            })
            .await?;
        Ok(forecast)
    }

    /// Whether a space can be converted, and what that takes; nothing is changed.
    ///
    /// # Errors
    /// The first reason why not.
    pub async fn check_conversion(
        &self,
        space: &Space,
        to: Layout,
    ) -> Result<ConversionForecast, SpaceError> {
        space.check_stays()?;
        let spec = laid(space, to);
        self.check_disks(&spec)?;
        if let Some(before) = space.layout_before().filter(|_| space.number_of(to).is_none()) {
            return Err(SpaceError::Converting {
                name: space.name(),
                from: before.resiliency.to_string(),
                to: space.spec().resiliency.to_string(),
            });
        }
        let forecast = self.forecast_conversion(space, to).await?;
        if forecast.stuck > 0 {
            let rows = forecast.rows + forecast.kept + forecast.stuck;
            return Err(SpaceError::NoRoomToConvert { name: space.name(), stuck: forecast.stuck, rows });
        }
        Ok(forecast)
    }

    /// Has what is claimed for a space be laid otherwise from now on, and what it has be [converted](Self::convert). Of one that
    /// is under way, the layout before turns it round.
    ///
    /// # Errors
    /// As [`check_conversion`](Self::check_conversion), or what the pool says; nothing has changed then.
    pub async fn begin_conversion(&self, space: &Rc<Space>, to: Layout) -> Result<(), SpaceError> {
        self.check_conversion(space, to).await?;
        // Drafts of the layout that it had until now are none of the next.
        let _drafts = space.draft_turn.take().await;
        let _turn = space.spec_turn.take().await;
        let (spec, before) = (laid(space, to), space.layouts.get());
        if before.before.is_some() && space.number_of(to) == Some(before.now) {
            return Ok(());
        }
        let request = spec.check()?;
        self.pool().require_features(FEATURE_LAYOUTS).await?;
        let layouts = Layouts { now: 1 - before.now, before: Some(space.spec().layout()) };
        // Until it is known that somebody needs the cache, nobody may find that it is not needed.
        let cache_turn = match spec.write_cache() {
            Some(redundancy) => Some(self.make_cache(redundancy).await?),
            None => None,
        };
        let committed = async {
            let mut change = self.pool().change(Purpose::Release).await;
            space.check_stays()?;
            change.put(keys::space(space.id()), spec.encode(Standing::Whole, layouts));
            change.commit().await?;
            Ok(())
        };
        let committed = committed.await;
        if committed.is_ok() {
            space.layouts.set(layouts);
            space.request.set(request);
            *space.spec.borrow_mut() = spec.clone();
            self.give_caches(space);
        }
        drop(cache_turn);
        if let (Err(_), Some(redundancy)) = (&committed, spec.write_cache()) {
            // Where that fails, the next opening does it.
            let _ = self.drop_cache(redundancy).await;
        }
        committed
    }

    /// Moves the rows of a space that are not laid as it says, until none is left or it is stopped; whether none is. Redundancy
    /// is never lower on the way; killed, it goes on when called again. Held and stopped between lots of rows.
    ///
    /// # Errors
    /// [`SpaceError`]; each row is as it was, or as it is to be.
    pub async fn convert(&self, space: &Rc<Space>, progress: &Progress) -> Result<bool, SpaceError> {
        if space.layout_before().is_none() {
            return Ok(true);
        }
        self.finish_lines().await?;
        let converted = self.convert_rows(space, progress).await;
        self.drop_drafts(space).await?;
        Ok(converted? && self.end_conversion(space).await?)
    }

    async fn convert_rows(&self, space: &Rc<Space>, progress: &Progress) -> Result<bool, SpaceError> {
        // A claim that began before it was to be converted may have been laid as before.
        space.claims_end().await;
        let (mut left, mut passes) = (BTreeSet::new(), 1);
        loop {
            let mut rows = space.rows_laid_before().await?;
            rows.retain(|index| !left.contains(index));
            if rows.is_empty() && !left.is_empty() && passes < PASSES_MAX {
                // What came between may be over: an heir that took a row's place, a disk that left.
                passes += 1;
                left.clear();
                continue;
            }
            if rows.is_empty() {
                return Ok(left.is_empty());
            }
            progress.total.set(progress.done.get() + rows.len() as u64);
            let together = usize::try_from(LOT_BYTES / space.row_bytes()).unwrap_or(LOT_ROWS);
            let mut waiting = rows.as_slice();
            while !waiting.is_empty() {
                if !progress.may_go_on(&self.shared.closing).await || space.check_stays().is_err() {
                    return Ok(false);
                }
                let (lot, behind) = waiting.split_at(together.clamp(1, LOT_ROWS).min(waiting.len()));
                let moved = self.convert_lot(space, lot, progress).await?;
                progress.done.set(progress.done.get() + moved.done + moved.left.len() as u64);
                left.extend(moved.left);
                waiting = behind;
            }
        }
    }

    /// Moves some rows.
    async fn convert_lot(
        &self,
        space: &Rc<Space>,
        rows: &[u64],
        progress: &Progress,
    ) -> Result<Lot, SpaceError> {
        let _turn = space.draft_turn.take().await;
        let drafts = self.drafts_for(space).await?;
        drafts.free_all_rows().await?;
        let mut lot = Lot { done: 0, left: Vec::new() };
        let (mut drafted, mut kept) = (Vec::new(), Vec::new());
        let mut lacks_room = None;
        for index in rows {
            match self.begin_draft(space, &drafts, *index).await {
                Ok(Begun::Drafted(one)) => drafted.push(one),
                Ok(Begun::AsWanted(row)) => kept.push(row),
                Ok(Begun::Gone) => lot.done += 1,
                Err(SpaceError::Unreadable { .. }) => lot.left.push(*index),
                // Those that have some make room for the others.
                Err(
                    error @ (SpaceError::Pool(PoolError::NoSpace { .. }) | SpaceError::NoSpaceBelow { .. }),
                ) => {
                    lacks_room = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        lot.done += kept.len() as u64;
        space.tell_laid(&kept).await?;
        if drafted.is_empty() {
            return lacks_room.filter(|_| lot.done == 0 && lot.left.is_empty()).map_or(Ok(lot), Err);
        }
        let all = drafted.iter().map(|one| vec![Range { first: 0, count: one.row.shape.row_blocks() }]);
        space.copy(&drafts, &drafted, all.collect(), progress).await?;
        self.settle_drafts(&drafted).await?;
        for one in drafted.iter().filter(|one| !one.is_left.get()) {
            one.watch.hold().await;
        }
        if !is_planted(Bug::DraftMissesWrites) {
            let touched: Vec<Vec<Range>> = drafted.iter().map(|one| one.watch.take_touched()).collect();
            if touched.iter().any(|ranges| !ranges.is_empty()) {
                space.copy(&drafts, &drafted, touched, progress).await?;
                self.settle_drafts(&drafted).await?;
            }
        }
        for one in drafted {
            let index = one.row.index;
            match space.change_to_draft(&drafts, &one).await {
                Ok(true) => lot.done += 1,
                Ok(false) => lot.left.push(index),
                Err(error @ SpaceError::Unreadable { .. }) => {
                    tracing::debug!(space = %space.name(), row = index, error = %in_one_line(&error), "a row cannot be converted now");
                    lot.left.push(index);
                }
                Err(error) => return Err(error),
            }
        }
        drafts.free_all_rows().await?;
        Ok(lot)
    }

    /// Claims a draft for a row, if it needs one.
    async fn begin_draft(
        &self,
        space: &Rc<Space>,
        drafts: &Rc<Space>,
        index: u64,
    ) -> Result<Begun, SpaceError> {
        if space.is_thin()
            && let Some(row) = space.row(index).await?
        {
            space.free_if_known_unused(&row).await?;
        }
        let now = space.layouts.get().now;
        let Some(row) = space.row(index).await?.filter(|row| row.layout() != now) else {
            return Ok(Begun::Gone);
        };
        let (before, to) = (space.layout_of(row.layout()), space.layout_of(now));
        // An heir has the number of its row for as long as there is one: such a row moves, and with it what its heir holds.
        if is_like(before, to) && row.heir().is_none() {
            let mut offers = self.pool().offers(Purpose::Move);
            let record = row.record();
            give_back(&mut offers, &record);
            let placed = placer_of(&space.spec())?.place(&offers, self.pool().next_turn());
            if placed.is_ok_and(|placed| is_as_wanted(&record, before, to, &placed)) {
                return Ok(Begun::AsWanted(row));
            }
        }
        let draft = drafts.claim_behind(index).await?;
        let watch = row.watch();
        Ok(Begun::Drafted(Drafted { row, draft, watch, is_left: Cell::new(false) }))
    }

    /// Puts what is cached of drafts in place, and has a checkpoint flush them and write their tables.
    async fn settle_drafts(&self, drafted: &[Drafted]) -> Result<(), SpaceError> {
        for one in drafted.iter().filter(|one| !one.is_left.get()) {
            let space = self.spaces.borrow().get(&one.draft.space).cloned();
            let cache = space.and_then(|space| space.cache_of(&one.draft));
            let Some(cache) = cache.filter(|_| !is_planted(Bug::DraftWhileCached)) else { continue };
            match cache.empty_row(&one.draft).await {
                Ok(()) => {}
                Err(error) if error.may_pass() => one.is_left.set(true),
                Err(error) => return Err(error),
            }
        }
        if is_planted(Bug::DraftBeforeTables) {
            return self.shared.force_flush().await;
        }
        if !is_planted(Bug::DraftBeforeFlush) {
            self.pool().checkpoint().await?;
        }
        Ok(())
    }

    /// The hidden space of drafts, made if there is none. The caller has the turn of drafts.
    async fn drafts_for(&self, space: &Rc<Space>) -> Result<Rc<Space>, SpaceError> {
        let drafts = space.drafts.borrow().clone();
        match drafts {
            Some(drafts) if drafts.layouts.get().now == space.layouts.get().now => return Ok(drafts),
            // It was turned round.
            Some(drafts) => self.delete_drafts(space, &drafts).await?,
            None => {}
        }
        let id = drafts_of(space.id());
        // Rows of it are where those of its space are, so it has no end of its own.
        let provisioning = Provisioning::Thin;
        let limits = Limits::default();
        let spec =
            SpaceSpec { size: SPACE_BYTES_MAX, provisioning, limits, ..laid(space, space.spec().layout()) };
        let layouts = Layouts { now: space.layouts.get().now, before: None };
        let drafts = Space::new(Rc::clone(&self.shared), id, spec.clone(), layouts)?;
        let mut change = self.pool().change(Purpose::Release).await;
        space.check_stays()?;
        change.put(keys::space(id), spec.encode(Standing::Unfinished, layouts));
        change.commit().await?;
        self.give_caches(&drafts);
        self.spaces.borrow_mut().insert(id, Rc::clone(&drafts));
        *space.drafts.borrow_mut() = Some(Rc::clone(&drafts));
        Ok(drafts)
    }

    /// Deletes the hidden space of drafts.
    pub(crate) async fn drop_drafts(&self, space: &Space) -> Result<(), SpaceError> {
        let _turn = space.draft_turn.take().await;
        let drafts = space.drafts.borrow().clone();
        match drafts {
            Some(drafts) => self.delete_drafts(space, &drafts).await,
            None => Ok(()),
        }
    }

    async fn delete_drafts(&self, space: &Space, drafts: &Rc<Space>) -> Result<(), SpaceError> {
        self.delete(drafts).await?;
        drafts.caches().iter().for_each(|cache| cache.forget_owner(drafts.id()));
        space.drafts.borrow_mut().take();
        Ok(())
    }

    /// Notes that no row of a space is laid as before, if that is so; whether it is. What only such rows needed goes.
    async fn end_conversion(&self, space: &Rc<Space>) -> Result<bool, SpaceError> {
        let turn = space.spec_turn.take().await;
        let layouts = space.layouts.get();
        let Some(before) = layouts.before else { return Ok(true) };
        if !space.rows_laid_before().await?.is_empty() {
            return Ok(false);
        }
        let mut change = self.pool().change(Purpose::Release).await;
        space.check_stays()?;
        let ended = Layouts { before: None, ..layouts };
        change.put(keys::space(space.id()), space.spec().encode(Standing::Whole, ended));
        // Heirs of rows that are none any more. Where it was turned round, rows that never moved may have theirs still.
        let heirs = space.heirs.space().filter(|heirs| heirs.layouts.get().now != layouts.now);
        if let Some(heirs) = &heirs
            && !self.pool().scan(keys::rows(heirs.id(), 0..u64::MAX), 1).await?.is_empty()
        {
            return Ok(false);
        }
        if let Some(heirs) = &heirs {
            change.delete(keys::space(heirs.id()));
            change.delete(keys::row_count(heirs.id()));
        }
        change.commit().await?;
        space.layouts.set(ended);
        if let Some(heirs) = heirs {
            heirs.caches().iter().for_each(|cache| cache.forget_owner(heirs.id()));
            self.spaces.borrow_mut().remove(&heirs.id());
            space.heirs.forget_space();
        }
        let of_before = usize::from(1 - layouts.now);
        let old = space.caches.borrow_mut().get_mut(of_before).and_then(Option::take);
        if let Some(old) = old.filter(|old| !space.caches().iter().any(|cache| Rc::ptr_eq(cache, old))) {
            old.forget_owner(space.id());
        }
        drop(turn);
        if let Some(redundancy) = before.write_cache() {
            self.drop_cache(redundancy).await?;
        }
        Ok(true)
    }

    /// Has a space take its rows when they are first written, or all of them at once: the missing ones are claimed, or those that
    /// hold nothing given back, until it is stopped; whether all of that is done.
    ///
    /// # Errors
    /// [`SpaceError::TooLarge`] where a fixed one does not fit, or what the pool says.
    pub async fn provision(
        &self,
        space: &Rc<Space>,
        to: Provisioning,
        progress: &Progress,
    ) -> Result<bool, SpaceError> {
        if to == Provisioning::Fixed {
            self.check_fixed(space)?;
        }
        let rows = space.size().0.div_ceil(space.row_bytes());
        progress.total.set(progress.done.get() + rows);
        if to == Provisioning::Thin {
            self.put_provisioning(space, to).await?;
        }
        for index in 0..rows {
            if !progress.may_go_on(&self.shared.closing).await || space.check_stays().is_err() {
                return Ok(false);
            }
            match to {
                Provisioning::Fixed => {
                    self.shared.gate().await?;
                    space.row_for_write(index).await?;
                }
                Provisioning::Thin => match space.row(index).await {
                    Ok(Some(row)) => space.free_if_known_unused(&row).await?,
                    // Nobody can tell now: it stays.
                    Ok(None) | Err(SpaceError::Unreadable { .. }) => {}
                    Err(error) => return Err(error),
                },
            }
            progress.done.set(progress.done.get() + 1);
        }
        if to == Provisioning::Fixed {
            self.put_provisioning(space, to).await?;
            // Some may have been given back meanwhile, or come with another size.
            space.claim_all().await?;
        }
        Ok(true)
    }

    /// Whether a space could be fixed with what is free now.
    ///
    /// # Errors
    /// [`SpaceError::TooLarge`] with the largest size that it could have.
    pub fn check_fixed(&self, space: &Space) -> Result<(), SpaceError> {
        let (spec, row) = (laid(space, space.spec().layout()), space.row_bytes());
        let (has, needs) = (space.row_count.get(), spec.size.0.div_ceil(row));
        let most = has + self.rows_that_fit(&spec)?;
        if needs <= most {
            return Ok(());
        }
        Err(SpaceError::TooLarge { name: spec.name.clone(), wanted: spec.size, most: Bytes(most * row) })
    }

    async fn put_provisioning(
        &self,
        space: &Rc<Space>,
        provisioning: Provisioning,
    ) -> Result<(), SpaceError> {
        let _turn = space.spec_turn.take().await;
        let spec = SpaceSpec { provisioning, ..laid(space, space.spec().layout()) };
        self.put_spec(space, spec).await
    }
}

/// What came of the beginning of a draft.
enum Begun {
    Drafted(Drafted),
    /// The row is laid as wanted, but for saying so.
    AsWanted(Rc<Row>),
    /// There is no such row.
    Gone,
}

impl Space {
    /// What the layout with a number is.
    fn layout_of(&self, number: u8) -> Layout {
        let layouts = self.layouts.get();
        match layouts.before.filter(|_| number != layouts.now) {
            Some(before) => before,
            None => self.spec.borrow().layout(),
        }
    }

    /// The number that rows of a layout have, while the space is converted from or to it.
    fn number_of(&self, layout: Layout) -> Option<u8> {
        let layouts = self.layouts.get();
        let before = layouts.before?;
        if self.spec.borrow().layout() == layout {
            return Some(layouts.now);
        }
        (before == layout).then_some(1 - layouts.now)
    }

    /// Rows that are not laid as the space says.
    async fn rows_laid_before(&self) -> Result<Vec<u64>, SpaceError> {
        let (now, mut rows) = (self.layouts.get().now, Vec::new());
        self.for_each_record(|index, record| {
            if record.layout != now {
                rows.push(index);
            }
        })
        .await?;
        Ok(rows)
    }

    /// Says of rows that they are laid as the space says.
    async fn tell_laid(&self, rows: &[Rc<Row>]) -> Result<(), SpaceError> {
        for some in rows.chunks(TOLD_TOGETHER) {
            let mut change = self.shared.pool.change(Purpose::Release).await;
            let mut told = Vec::with_capacity(some.len());
            for row in some.iter().filter(|row| !row.gone.get() && row.heir().is_none()) {
                let record = RowRecord { layout: self.layouts.get().now, ..row.record() };
                change.put(keys::row(self.id(), row.index), record.encode());
                told.push((row, record));
            }
            change.commit().await?;
            told.into_iter().for_each(|(row, record)| row.adopt(record));
        }
        Ok(())
    }

    /// Frees all rows that there are.
    async fn free_all_rows(&self) -> Result<(), SpaceError> {
        let mut rows = Vec::new();
        self.for_each_record(|index, _| rows.push(index)).await?;
        self.free_rows(&rows).await
    }

    /// Copies ranges of rows to their drafts, several beside each other. Rows of which something cannot be read now are left.
    async fn copy(
        &self,
        drafts: &Space,
        drafted: &[Drafted],
        ranges: Vec<Vec<Range>>,
        progress: &Progress,
    ) -> Result<(), SpaceError> {
        let of_rows = drafted.iter().zip(ranges);
        let pieces = of_rows.flat_map(|(one, ranges)| {
            ranges
                .into_iter()
                .flat_map(|range| pieces_of(&one.draft.shape, range))
                .map(move |piece| (one, piece))
        });
        let pieces = RefCell::new(pieces);
        let work = async |_: usize| {
            loop {
                let next = pieces.borrow_mut().next();
                let Some((one, piece)) = next else { return Ok(()) };
                if one.is_left.get() {
                    continue;
                }
                let clock = &self.shared.pool.seams().clock;
                let began = clock.now();
                match self.copy_piece(drafts, one, piece).await {
                    Ok(()) => {}
                    Err(error) if error.may_pass() => one.is_left.set(true),
                    Err(error) => return Err(error),
                }
                progress.bytes.set(progress.bytes.get() + u64::from(piece.count) * BLOCK_BYTES);
                self.shared.pace.rest(clock.as_ref(), began).await;
            }
        };
        let ended = join_all((0..PIECES_AT_A_TIME).map(work)).await;
        ended.into_iter().collect()
    }

    async fn copy_piece(&self, drafts: &Space, one: &Drafted, piece: Range) -> Result<(), SpaceError> {
        let _memory = self.shared.drafts.take(FRAMES_OF_PIECE).await;
        // Whoever noted a block before is done with it then.
        drop(one.row.locks.lock(piece).await);
        let mut whole = self.shared.pool.seams().metadata.take(piece.count as usize * BLOCK).await;
        let mut holds: SmallVec<[Holds; 256]> = SmallVec::new();
        match self.read_for_job(one.row.index, piece).await {
            Ok(segments) => note_segments(&segments, &mut whole, &mut holds),
            Err(SpaceError::Unreadable { .. }) => {
                for (block, into) in (piece.first..).zip(whole.chunks_exact_mut(BLOCK)) {
                    match self.read_for_job(one.row.index, Range { first: block, count: 1 }).await {
                        Ok(segments) => note_segments(&segments, into, &mut holds),
                        Err(SpaceError::Unreadable { why, .. }) if why.is_final() => {
                            match is_planted(Bug::DraftOfDamage) {
                                true => holds.push(Holds::Data),
                                false => holds.push(Holds::Lost),
                            }
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(error) => return Err(error),
        }
        let whole = whole.freeze();
        let mut at = 0;
        for alike in holds.chunk_by(PartialEq::eq) {
            let first = piece.first + u32::try_from(at).unwrap_or(u32::MAX);
            let content = whole.slice(at * BLOCK..(at + alike.len()) * BLOCK);
            at += alike.len();
            let within = u64::from(first) * BLOCK_BYTES;
            match alike.first() {
                Some(Holds::Data) => drafts.store_in_draft(one.draft.index, within, content).await?,
                Some(Holds::Nothing) => {
                    let start = one.draft.index * self.row_bytes() + within;
                    drafts.discard(start, content.len() as u64).await?;
                }
                Some(Holds::Lost) => {
                    for block in (first..).take(alike.len()) {
                        drafts.lose_block(&one.draft, block).await?;
                    }
                }
                None => {}
            }
        }
        Ok(())
    }

    /// Says of a block of a draft that what it is to hold is lost. With parity, nobody knows then what the parity of its line is of.
    async fn lose_block(&self, row: &Rc<Row>, block: u32) -> Result<(), SpaceError> {
        let range = Range { first: block, count: 1 };
        let columns = row.shape.parity_columns() + 1;
        let _log_room = self.shared.room_for(u32::try_from(columns).unwrap_or(1)).await?;
        let spot = row.shape.locate(block);
        let line = Range { first: spot.block, count: 1 };
        let _guard = row.locks.lock(if row.has_parity() { hull(row, 0, line) } else { range }).await;
        if row.mappings.newest(block).is_some() {
            // It was there when it was read first: another draft begins without it.
            return Err(self.shared.unreadable(
                row,
                spot.column,
                spot.block as usize,
                UnreadableReason::Absent,
            ));
        }
        let held = self.shared.tickets.begin();
        let (stamp, now) = (self.shared.stamp(), self.shared.now(&held));
        let of_parity = row.shape.data_columns()..row.shape.columns();
        for column in [spot.column].into_iter().chain(of_parity) {
            let (index, entry) = place_in_page(spot.block);
            let page = self.shared.page(row, column, index).await?;
            if column != spot.column && page.state(entry) == BlockState::Never {
                continue;
            }
            let mut body: SmallVec<[u8; 256]> = SmallVec::new();
            let stretch = self.shared.stretch(row, column, line, stamp);
            push_stretch(&mut body, stretch, &[BlockState::Damaged], page.durable_generation());
            self.shared.record(&body, dolmen_journal::Wait::Written).await?;
            page.set(entry, BlockState::Damaged, stamp, now);
            self.shared.note_unsettled(held.ticket(), row, column, line);
        }
        self.shared.note_dirty(row);
        Ok(())
    }

    /// Whether a draft can take the place of its row now. The caller holds the lock of all of the row.
    fn is_draft_ready(&self, drafts: &Space, one: &Drafted) -> bool {
        let Drafted { row, draft, watch, is_left } = one;
        let known = self.rows.borrow().get(&row.index).cloned().flatten();
        let is_there = known.is_some_and(|known| Rc::ptr_eq(&known, row)) && !row.gone.get();
        if is_left.get() || !is_there || self.gone.get() || self.shared.is_unresolved(row) {
            return false;
        }
        if row.layout() == draft.layout() || draft.layout() != self.layouts.get().now {
            return false;
        }
        let is_changed = !watch.is_untouched() && !is_planted(Bug::DraftMissesWrites);
        let cache = drafts.cache_of(draft);
        let is_cached =
            !draft.mappings.is_empty() || cache.is_some_and(|cache| cache.has_unfinished_beside(draft));
        if is_changed || (is_cached && !is_planted(Bug::DraftWhileCached)) {
            return false;
        }
        let mut is_whole = true;
        draft.for_each_slab(|_, slab| is_whole &= slab.readable(&self.shared.pool).is_some());
        let is_unflushed = || {
            self.shared.is_unresolved(draft)
                || self.shared.is_unflushed_away(draft)
                || !self.shared.unsettled_of(draft).is_empty()
        };
        is_whole && (is_planted(Bug::DraftBeforeFlush) || !is_unflushed()) && are_tables_written(draft)
    }

    /// The draft of a row takes its place, if nothing has come between; whether it did.
    async fn change_to_draft(&self, drafts: &Space, one: &Drafted) -> Result<bool, SpaceError> {
        let Drafted { row, draft, .. } = one;
        let _guard = row.locks.lock(Range { first: 0, count: row.shape.row_blocks() }).await;
        // A write-back that is under way may have taken pages since.
        let _tables = self.shared.table_turn.take().await;
        let mut change = self.shared.pool.change(Purpose::Release).await;
        if !self.is_draft_ready(drafts, one) {
            return Ok(false);
        }
        let (old, record) = (row.record(), draft.record());
        for slab in old.columns.iter().flatten() {
            change.release(slab.disk, &slab.runs);
            change.delete(keys::stale(slab.disk, self.id(), row.index));
        }
        let heir = row.heir();
        if let Some(heir) = &heir {
            self.release_heir(&mut change, heir).await?;
        }
        change.delete(keys::row(drafts.id(), row.index));
        let count = change.add(keys::row_count(drafts.id()), -1).await?;
        change.put(keys::row(self.id(), row.index), record.encode());
        let set_gone = |is_gone| {
            [Some(row), Some(draft), heir.as_ref()]
                .into_iter()
                .flatten()
                .for_each(|row| row.gone.set(is_gone));
        };
        // Whoever waits for the row's lock must look it up again.
        set_gone(true);
        if let Err(error) = change.commit().await {
            set_gone(false);
            return Err(error.into());
        }
        drafts.row_count.set(count);
        drafts.rows.borrow_mut().insert(row.index, None);
        let new = draft.in_place_of(row, record);
        self.rows.borrow_mut().insert(row.index, Some(Rc::clone(&new)));
        if let Some(heir) = &heir {
            self.shared.forget_pages(heir);
            self.forget_heir(row);
        }
        self.shared.forget_pages(row);
        if let Some(cache) = self.cache_of(row) {
            cache.forget_row(row);
        }
        self.shared.forget_row(self.id(), row.index);
        // Counted anew when it is asked for.
        self.own.borrow_mut().clear();
        self.shared.count(|counters| counters.converted_rows += 1);
        tracing::debug!(space = %self.name(), row = row.index, "a row has another layout");
        self.shared.write_headers(&new, |_| true).await?;
        Ok(true)
    }
}

/// Whether the tables of a draft are on its disks; there are none where it holds nothing.
fn are_tables_written(draft: &Row) -> bool {
    if is_planted(Bug::DraftBeforeFlush) || is_planted(Bug::DraftBeforeTables) {
        return true;
    }
    let mut are_settled = !draft.dirty.get();
    for (_, _, page) in draft.pages() {
        are_settled &= page.is_settled() && (draft.is_formatted() || page.used_count() == 0);
    }
    are_settled
}

/// A space with its rows laid otherwise, and as long as they are.
fn laid(space: &Space, to: Layout) -> SpaceSpec {
    // The length of rows was fixed when the space was made, whatever another layout would ask for.
    SpaceSpec { row: Some(Bytes(space.row_bytes())), ..space.spec().laid(to) }
}

fn placer_of(spec: &SpaceSpec) -> Result<Placer, SpaceError> {
    let grains = slab_grains(spec.interleave, u32::from(spec.resiliency.parity_columns()));
    Ok(Placer::new(spec.check()?, grains))
}

/// Whether rows of two layouts differ in their width alone.
fn is_like(one: Layout, other: Layout) -> bool {
    (one.resiliency, one.interleave, one.integrity) == (other.resiliency, other.interleave, other.integrity)
}

/// Whether a row is laid as one that is placed now would be, or wider where nobody has said how wide it is to be.
fn is_as_wanted(record: &RowRecord, before: Layout, to: Layout, placed: &Placement) -> bool {
    let data = match placed.code {
        Code::Striped { .. } => placed.columns,
        Code::Parity { data, .. } => data,
    } as usize;
    let has = record.shape.data_columns();
    is_like(before, to) && (has == data || (to.columns.is_none() && has > data))
}

/// Reckons with what the slabs of a row take as free; how many bytes that is.
fn give_back(offers: &mut [Offer], record: &RowRecord) -> u64 {
    change_room(offers, record, u64::saturating_add)
}

/// Reckons with it as taken again.
fn take_again(offers: &mut [Offer], record: &RowRecord) {
    change_room(offers, record, u64::saturating_sub);
}

fn change_room(offers: &mut [Offer], record: &RowRecord, change: impl Fn(u64, u64) -> u64) -> u64 {
    let mut all = 0;
    for slab in record.columns.iter().flatten() {
        let grains = slab.runs.iter().map(|run| run.count).sum::<u64>();
        all += grains * GRAIN_BYTES;
        let offer = offers.iter_mut().find(|offer| offer.slot == slab.disk);
        offer.into_iter().for_each(|offer| offer.free_grains = change(offer.free_grains, grains));
    }
    all
}

/// Reckons with a row that is placed; how many bytes it takes.
fn take(offers: &mut [Offer], placed: &Placement) -> u64 {
    let mut all = 0;
    for slab in &placed.slabs {
        all += slab.grains * GRAIN_BYTES;
        let offer = offers.iter_mut().find(|offer| offer.slot == slab.slot);
        offer.into_iter().for_each(|offer| offer.free_grains = offer.free_grains.saturating_sub(slab.grains));
    }
    all
}

/// Cuts a range of a row into pieces that are copied one by one: where the draft has parity, into whole stripes as far as they fit
/// the memory for a piece.
fn pieces_of(shape: &Shape, range: Range) -> impl Iterator<Item = Range> + use<> {
    let blocks = |bytes: usize| u32::try_from(bytes / BLOCK).unwrap_or(u32::MAX);
    let (_, stripe) = stripe_at(shape, 0);
    let most = match READ_BYTES_MAX / stripe {
        0 => READ_BYTES_MAX,
        stripes => stripes * stripe,
    };
    let (most, end) = (blocks(most), range.first + range.count);
    let mut first = range.first;
    std::iter::from_fn(move || {
        (first < end).then(|| {
            // Up to where the next whole piece begins.
            let count = (most - first % most).min(end - first);
            let piece = Range { first, count };
            first += count;
            piece
        })
    })
}

/// Notes what was read, block by block.
fn note_segments(segments: &Segments, into: &mut [u8], holds: &mut SmallVec<[Holds; 256]>) {
    let mut at = 0;
    for segment in segments {
        let (kind, place) = (segment, into.get_mut(at..at + segment.len()));
        at += segment.len();
        match (kind, place) {
            (Segment::Data(data), Some(place)) => {
                place.copy_from_slice(data);
                holds.extend(std::iter::repeat_n(Holds::Data, segment.len() / BLOCK));
            }
            (Segment::Zeros(length), _) => holds.extend(std::iter::repeat_n(Holds::Nothing, length / BLOCK)),
            (Segment::Data(_), None) => {}
        }
    }
}
