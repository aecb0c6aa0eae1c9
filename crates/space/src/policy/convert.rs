//! A space is converted while it is used: its rows move, one for one, to rows of another layout (docs/design/0020).
//!
//! 1. A *conversion shadow* of each row of a lot is claimed in a hidden space, and what the row holds is copied to it, verified,
//!    while clients go on; what they change is noted (`moving`).
//! 2. What is cached of the conversion shadows is put in place, and a checkpoint flushes them and writes their tables.
//! 3. The rows are held: who would change them waits. What was changed meanwhile is copied again, as in 1 and 2.
//! 4. Under the lock of each row, if all of that still holds: one change of the map, in which the conversion shadow is the row.
//!
//! Invariants:
//! - The hidden space is unfinished for as long as it is there: an opening deletes it, and every row is what it was.
//!
//! Left to others: which layouts there are (`layouts`); conversion shadows themselves, copied to and made rows
//! (`conversion_shadow`); thin and fixed (`provision`).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use dolmen_causes::in_one_line;
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_placement::{Code, Offer, Placement, Placer};
use dolmen_pool::{PoolError, Purpose, keys};
use dolmen_units::{ALLOCATION_UNIT_BYTES, Bytes, DiskSlot};

use crate::format::error::SpaceError;
use crate::format::ids::conversion_shadows_of;
use crate::format::layouts::{Layout, Layouts};
use crate::format::limits::Limits;
use crate::format::spec::{Provisioning, SPACE_BYTES_MAX, SpaceSpec, Standing};
use crate::policy::conversion_shadow::{ConversionCopy, ConversionShadow};
use crate::policy::handles::{Caches, Changes, Conversions};
use crate::relocation::allocator::Allocator;
use crate::relocation::destage_stripes::Destage;
use crate::relocation::unused_rows::UnusedRows;
use crate::resolution::decided_rows::DecidedRows;
use crate::resources::locks::Range;
use crate::resources::progress::Progress;
use crate::row_io::flusher::Flusher;
use crate::table::moving::Watch;
use crate::table::row::{Row, RowRecord};
use crate::table::space::SpaceRows;

/// Rows of which conversion shadows are made together, at most, and the bytes of them: one checkpoint does for all, and clients who
/// write to them wait for what is left of it.
const LOT_ROWS: usize = 16;
const LOT_BYTES: u64 = 128 << 20;
/// How often a row is tried.
const PASSES_MAX: u32 = 3;
/// Rows that are only said to have the other layout, in one change.
const RECORDED_TOGETHER: usize = 128;

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

/// What came of a lot.
struct Lot {
    /// Rows with which it is done.
    done: u64,
    /// Those that stay as they are for now.
    left: Vec<u64>,
}

impl Conversions<'_> {
    /// What it would take to lay the rows of a space otherwise.
    ///
    /// # Errors
    /// [`SpaceError`] when the layout cannot be, or the metadata cannot be read.
    #[pooled]
    pub async fn forecast_conversion(
        self,
        space: &SpaceRows,
        to: Layout,
    ) -> Result<ConversionForecast, SpaceError> {
        self.forecast_with(space, to, &[]).await
    }

    /// What it would take to lay the rows of a space as it is laid, and as wide as the pool is with disks that may join.
    ///
    /// # Errors
    /// As [`forecast_conversion`](Self::forecast_conversion).
    #[pooled]
    pub async fn forecast_widening(
        self,
        space: &SpaceRows,
        more: &[Offer],
    ) -> Result<ConversionForecast, SpaceError> {
        self.forecast_with(space, space.spec().layout(), more).await
    }

    /// What it would take to lay the rows of a space that have a part on a disk again, without it and as wide as the pool is then.
    ///
    /// # Errors
    /// As [`forecast_conversion`](Self::forecast_conversion).
    #[pooled]
    pub async fn forecast_narrowing(
        self,
        space: &SpaceRows,
        without: DiskSlot,
    ) -> Result<ConversionForecast, SpaceError> {
        let mut offers = self.spaces.pool().free_space().offers(Purpose::Move);
        offers.retain(|offer| offer.slot != without);
        self.forecast_narrowing_to(space, without, &mut offers).await
    }

    /// The same where disks have such room; it is what they have behind it then.
    ///
    /// # Errors
    /// As [`forecast_conversion`](Self::forecast_conversion).
    #[pooled]
    pub async fn forecast_narrowing_to(
        self,
        space: &SpaceRows,
        without: DiskSlot,
        offers: &mut [Offer],
    ) -> Result<ConversionForecast, SpaceError> {
        let mut claims = self.spaces.pool().free_space().offers(Purpose::Claim);
        claims.retain(|offer| offer.slot != without);
        let placer = placer_of(&space.spec())?.no_wider_than_claims(&claims);
        let (rotation, mut forecast) =
            (self.spaces.pool().free_space().next_in_order(), ConversionForecast::default());
        space
            .for_each_record(|index, record| {
                if !record.columns.iter().flatten().any(|slab| slab.disk == without) {
                    forecast.kept += 1;
                    return;
                }
                // The old row is given back when the new one has its place.
                match placer.place(offers, rotation + index) {
                    Ok(placed) => {
                        forecast.rows += 1;
                        forecast.claimed.0 += take(offers, &placed);
                        forecast.freed.0 += release(offers, record);
                    }
                    Err(_) => forecast.stuck += 1,
                }
            })
            .await?;
        Ok(forecast)
    }

    #[pooled]
    async fn forecast_with(
        self,
        space: &SpaceRows,
        to: Layout,
        more: &[Offer],
    ) -> Result<ConversionForecast, SpaceError> {
        let spec = laid(space, to);
        let placer = placer_of(&spec)?;
        let mut offers = Changes::of(self.spaces).offers_with_cache(spec.write_cache())?;
        offers.extend_from_slice(more);
        let (rotation, number, leaving) = (
            self.spaces.pool().free_space().next_in_order(),
            RowLayouts::of(space).number_of(to),
            self.leaving_slots(),
        );
        let mut forecast = ConversionForecast::default();
        space
            .for_each_record(|index, record| {
                if Some(record.laid.layout) == number {
                    forecast.kept += 1;
                    return;
                }
                let old = release(&mut offers, record);
                let placed = placer.place(&offers, rotation + index);
                let before = RowLayouts::of(space).layout_of(record.laid.layout);
                match placed {
                    Ok(placed) if !is_as_wanted(record, (before, to), &placed, &leaving) => {
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
    #[pooled]
    pub async fn check_conversion(
        self,
        space: &SpaceRows,
        to: Layout,
    ) -> Result<ConversionForecast, SpaceError> {
        space.check_stays()?;
        let spec = laid(space, to);
        Changes::of(self.spaces).check_disks(&spec)?;
        if let Some(before) = space.layout_before().filter(|_| RowLayouts::of(space).number_of(to).is_none())
        {
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
    #[pooled]
    pub async fn begin_conversion(self, space: &Rc<SpaceRows>, to: Layout) -> Result<(), SpaceError> {
        self.check_conversion(space, to).await?;
        // Conversion shadows of the layout that it had until now are none of the next.
        let _conversion_shadows = space.conversion_mutex.take().await;
        let _exclusive = space.spec_mutex.take().await;
        let (spec, before) = (laid(space, to), space.layouts.get());
        if before.before.is_some() && RowLayouts::of(space).number_of(to) == Some(before.now) {
            return Ok(());
        }
        let request = spec.check()?;
        let layouts = Layouts { now: 1 - before.now, before: Some(space.spec().layout()) };
        // Until it is known that somebody needs the cache, nobody may find that it is not needed.
        let cache_mutex = match spec.write_cache() {
            Some(redundancy) => Some(Caches::of(self.spaces).make_cache(redundancy).await?),
            None => None,
        };
        let committed = async {
            let mut change = self.spaces.pool().change(Purpose::Release).await;
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
            Caches::of(self.spaces).give_caches(space);
        }
        drop(cache_mutex);
        if let (Err(_), Some(redundancy)) = (&committed, spec.write_cache()) {
            // Where that fails, the next opening does it.
            let _ = Caches::of(self.spaces).drop_cache(redundancy).await;
        }
        committed
    }

    /// Moves the rows of a space that are not laid as it says, until none is left or it is stopped; whether none is. Redundancy
    /// is never lower on the way; killed, it goes on when called again. Held and stopped between lots of rows.
    ///
    /// # Errors
    /// [`SpaceError`]; each row is as it was, or as it is to be.
    #[pooled]
    pub async fn convert(self, space: &Rc<SpaceRows>, progress: &Progress) -> Result<bool, SpaceError> {
        if space.layout_before().is_none() {
            return Ok(true);
        }
        Caches::of(self.spaces).finish_stripes().await?;
        let converted = self.convert_rows(space, progress).await;
        self.drop_conversion_shadows(space).await?;
        Ok(converted? && self.end_conversion(space).await?)
    }

    #[pooled]
    async fn convert_rows(self, space: &Rc<SpaceRows>, progress: &Progress) -> Result<bool, SpaceError> {
        // A claim that began before it was to be converted may have been laid as before.
        Allocator::of(space).claims_end().await;
        let (mut left, mut passes) = (BTreeSet::new(), 1);
        loop {
            let mut rows = RowLayouts::of(space).rows_laid_before().await?;
            rows.retain(|index| !left.contains(index));
            if rows.is_empty() && !left.is_empty() && passes < PASSES_MAX {
                // What came between may be over: a shadow row that took a row's place, a disk that left.
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
                if !progress.may_go_on(&self.spaces.shared.closing).await || space.check_stays().is_err() {
                    return Ok(false);
                }
                let (lot, after) = waiting.split_at(together.clamp(1, LOT_ROWS).min(waiting.len()));
                let moved = self.convert_lot(space, lot, progress).await?;
                progress.done.set(progress.done.get() + moved.done + moved.left.len() as u64);
                left.extend(moved.left);
                waiting = after;
            }
        }
    }

    /// Moves some rows.
    #[pooled]
    async fn convert_lot(
        self,
        space: &Rc<SpaceRows>,
        rows: &[u64],
        progress: &Progress,
    ) -> Result<Lot, SpaceError> {
        let _exclusive = space.conversion_mutex.take().await;
        let conversion_shadows = self.conversion_shadows_for(space).await?;
        ConversionCopy::of(&conversion_shadows).free_all_rows().await?;
        let mut lot = Lot { done: 0, left: Vec::new() };
        let (mut conversion_shadow, mut kept) = (Vec::new(), Vec::new());
        let mut lacks_room = None;
        for index in rows {
            match self.begin_conversion_shadow(space, &conversion_shadows, *index).await {
                Ok(Begun::ConversionShadow(one)) => conversion_shadow.push(one),
                Ok(Begun::AsWanted(row)) => kept.push(row),
                Ok(Begun::Missing) => lot.done += 1,
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
        RowLayouts::of(space).record_laid(&kept).await?;
        if conversion_shadow.is_empty() {
            return lacks_room.filter(|_| lot.done == 0 && lot.left.is_empty()).map_or(Ok(lot), Err);
        }
        let all =
            conversion_shadow.iter().map(|one| vec![Range { first: 0, count: one.row.shape.row_blocks() }]);
        ConversionCopy::of(space)
            .copy_to_conversion_shadows(&conversion_shadows, &conversion_shadow, all.collect(), progress)
            .await?;
        self.destage_conversion_shadows(&conversion_shadow).await?;
        for one in conversion_shadow.iter().filter(|one| !one.is_left.get()) {
            one.watch.hold().await;
        }
        if !mutation!(ConversionShadowMissesWrites) {
            let touched: Vec<Vec<Range>> =
                conversion_shadow.iter().map(|one| one.watch.take_touched()).collect();
            if touched.iter().any(|ranges| !ranges.is_empty()) {
                ConversionCopy::of(space)
                    .copy_to_conversion_shadows(&conversion_shadows, &conversion_shadow, touched, progress)
                    .await?;
                self.destage_conversion_shadows(&conversion_shadow).await?;
            }
        }
        for one in conversion_shadow {
            let index = one.row.index;
            match ConversionCopy::of(space).change_to_conversion_shadow(&conversion_shadows, &one).await {
                Ok(true) => lot.done += 1,
                Ok(false) => lot.left.push(index),
                Err(error @ SpaceError::Unreadable { .. }) => {
                    tracing::debug!(space = %space.name(), row = index, error = %in_one_line(&error), "a row cannot be converted now");
                    lot.left.push(index);
                }
                Err(error) => return Err(error),
            }
        }
        ConversionCopy::of(&conversion_shadows).free_all_rows().await?;
        Ok(lot)
    }

    /// Disks that are to hold nothing, and have no other in their place.
    fn leaving_slots(self) -> Vec<DiskSlot> {
        let disks = self.spaces.pool().disks().into_iter();
        disks
            .filter(|disk| self.spaces.pool().members().is_to_be_empty(disk))
            .map(|disk| disk.slot())
            .collect()
    }

    /// Claims a conversion shadow for a row, if it needs one.
    #[pooled]
    async fn begin_conversion_shadow(
        self,
        space: &Rc<SpaceRows>,
        conversion_shadows: &Rc<SpaceRows>,
        index: u64,
    ) -> Result<Begun, SpaceError> {
        if space.is_thin()
            && let Some(row) = DecidedRows::of(space).row(index).await?
        {
            UnusedRows::of(space).free_if_known_unused(&row).await?;
        }
        let now = space.layouts.get().now;
        let Some(row) = DecidedRows::of(space).row(index).await?.filter(|row| row.laid().layout != now)
        else {
            return Ok(Begun::Missing);
        };
        let (before, to) =
            (RowLayouts::of(space).layout_of(row.laid().layout), RowLayouts::of(space).layout_of(now));
        // A shadow row has the number of its row for as long as there is one: such a row moves, and with it what its shadow row
        // holds.
        if is_like(before, to) && row.shadow().is_none() {
            let mut offers = self.spaces.pool().free_space().offers(Purpose::Move);
            let record = row.record();
            release(&mut offers, &record);
            let claims = self.spaces.pool().free_space().offers(Purpose::Claim);
            let placer = placer_of(&space.spec())?.no_wider_than_claims(&claims);
            let placed = placer.place(&offers, self.spaces.pool().free_space().next_in_order());
            let leaving = self.leaving_slots();
            if placed.is_ok_and(|placed| is_as_wanted(&record, (before, to), &placed, &leaving)) {
                return Ok(Begun::AsWanted(row));
            }
        }
        let conversion_shadow = Allocator::of(conversion_shadows).claim_beyond(index).await?;
        let watch = Watch::of(&row);
        Ok(Begun::ConversionShadow(ConversionShadow {
            row,
            conversion_shadow,
            watch,
            is_left: Cell::new(false),
        }))
    }

    /// Puts what is cached of conversion shadows in place, and has a checkpoint flush them and write their tables.
    #[pooled]
    async fn destage_conversion_shadows(
        self,
        conversion_shadow: &[ConversionShadow],
    ) -> Result<(), SpaceError> {
        for one in conversion_shadow.iter().filter(|one| !one.is_left.get()) {
            let space = self.spaces.spaces.borrow().get(&one.conversion_shadow.space).cloned();
            let cache = space.and_then(|space| space.cache_of(&one.conversion_shadow));
            let Some(cache) = cache.filter(|_| !mutation!(ConversionShadowWhileCached)) else { continue };
            match Destage::of(&cache).empty_row(&one.conversion_shadow).await {
                Ok(()) => {}
                Err(error) if error.may_pass() => one.is_left.set(true),
                Err(error) => return Err(error),
            }
        }
        if mutation!(ConversionShadowBeforeTables) {
            return Flusher::of(&self.spaces.shared).force_flush().await;
        }
        if !mutation!(ConversionShadowBeforeFlush) {
            self.spaces.pool().checkpoint().await?;
        }
        Ok(())
    }

    /// The hidden space of conversion shadows, made if there is none. The caller has the turn of conversion shadows.
    #[pooled]
    async fn conversion_shadows_for(self, space: &Rc<SpaceRows>) -> Result<Rc<SpaceRows>, SpaceError> {
        let conversion_shadows = space.conversion_shadows.borrow().clone();
        match conversion_shadows {
            Some(conversion_shadows) if conversion_shadows.layouts.get().now == space.layouts.get().now => {
                return Ok(conversion_shadows);
            }
            // It was turned round.
            Some(conversion_shadows) => self.delete_conversion_shadows(space, &conversion_shadows).await?,
            None => {}
        }
        let id = conversion_shadows_of(space.id());
        // Rows of it are where those of its space are, so it has no end of its own.
        let provisioning = Provisioning::Thin;
        let limits = Limits::default();
        let spec =
            SpaceSpec { size: SPACE_BYTES_MAX, provisioning, limits, ..laid(space, space.spec().layout()) };
        let layouts = Layouts { now: space.layouts.get().now, before: None };
        let conversion_shadows = SpaceRows::new(
            Rc::clone(&self.spaces.shared),
            Rc::clone(&self.spaces.list),
            id,
            spec.clone(),
            layouts,
        )?;
        let mut change = self.spaces.pool().change(Purpose::Release).await;
        space.check_stays()?;
        change.put(keys::space(id), spec.encode(Standing::Unfinished, layouts));
        change.commit().await?;
        Caches::of(self.spaces).give_caches(&conversion_shadows);
        self.spaces.spaces.borrow_mut().insert(id, Rc::clone(&conversion_shadows));
        *space.conversion_shadows.borrow_mut() = Some(Rc::clone(&conversion_shadows));
        Ok(conversion_shadows)
    }

    /// Deletes the hidden space of conversion shadows.
    pub(crate) async fn drop_conversion_shadows(self, space: &SpaceRows) -> Result<(), SpaceError> {
        let _exclusive = space.conversion_mutex.take().await;
        let conversion_shadows = space.conversion_shadows.borrow().clone();
        match conversion_shadows {
            Some(conversion_shadows) => self.delete_conversion_shadows(space, &conversion_shadows).await,
            None => Ok(()),
        }
    }

    async fn delete_conversion_shadows(
        self,
        space: &SpaceRows,
        conversion_shadows: &Rc<SpaceRows>,
    ) -> Result<(), SpaceError> {
        Changes::of(self.spaces).delete(conversion_shadows).await?;
        conversion_shadows.caches().iter().for_each(|cache| cache.forget_owner(conversion_shadows.id()));
        space.conversion_shadows.borrow_mut().take();
        Ok(())
    }

    /// Notes that no row of a space is laid as before, if that is so; whether it is. What only such rows needed goes.
    #[pooled]
    async fn end_conversion(self, space: &Rc<SpaceRows>) -> Result<bool, SpaceError> {
        let mutex = space.spec_mutex.take().await;
        let layouts = space.layouts.get();
        let Some(before) = layouts.before else { return Ok(true) };
        if !RowLayouts::of(space).rows_laid_before().await?.is_empty() {
            return Ok(false);
        }
        let mut change = self.spaces.pool().change(Purpose::Release).await;
        space.check_stays()?;
        let ended = Layouts { before: None, ..layouts };
        change.put(keys::space(space.id()), space.spec().encode(Standing::Whole, ended));
        // Shadow rows of rows that no longer exist. Where it was turned round, rows that never moved may have theirs still.
        let shadows = space.shadows.space().filter(|shadows| shadows.layouts.get().now != layouts.now);
        if let Some(shadows) = &shadows
            && !self.spaces.pool().map().scan(keys::places(shadows.id(), 0..u64::MAX), 1).await?.is_empty()
        {
            return Ok(false);
        }
        if let Some(shadows) = &shadows {
            change.delete(keys::space(shadows.id()));
            change.delete(keys::row_count(shadows.id()));
        }
        change.commit().await?;
        space.layouts.set(ended);
        if let Some(shadows) = shadows {
            shadows.caches().iter().for_each(|cache| cache.forget_owner(shadows.id()));
            self.spaces.spaces.borrow_mut().remove(&shadows.id());
            space.shadows.forget_space();
        }
        let of_before = usize::from(1 - layouts.now);
        let old = space.caches.borrow_mut().get_mut(of_before).and_then(Option::take);
        if let Some(old) = old.filter(|old| !space.caches().iter().any(|cache| Rc::ptr_eq(cache, old))) {
            old.forget_owner(space.id());
        }
        drop(mutex);
        if let Some(redundancy) = before.write_cache() {
            Caches::of(self.spaces).drop_cache(redundancy).await?;
        }
        Ok(true)
    }
}

/// What came of the beginning of a conversion shadow.
enum Begun {
    ConversionShadow(ConversionShadow),
    /// The row is laid as wanted, but for saying so.
    AsWanted(Rc<Row>),
    /// There is no such row.
    Missing,
}

/// Layouts that rows of a space have on record.
#[derive(Clone, Copy)]
pub(crate) struct RowLayouts<'a> {
    space: &'a SpaceRows,
}

impl<'a> RowLayouts<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl RowLayouts<'_> {
    /// What the layout with a number is.
    fn layout_of(self, number: u8) -> Layout {
        let layouts = self.space.layouts.get();
        match layouts.before.filter(|_| number != layouts.now) {
            Some(before) => before,
            None => self.space.spec.borrow().layout(),
        }
    }

    /// The number that rows of a layout have, while the space is converted from or to it.
    fn number_of(self, layout: Layout) -> Option<u8> {
        let layouts = self.space.layouts.get();
        let before = layouts.before?;
        if self.space.spec.borrow().layout() == layout {
            return Some(layouts.now);
        }
        (before == layout).then_some(1 - layouts.now)
    }

    /// Rows that are not laid as the space says.
    async fn rows_laid_before(self) -> Result<Vec<u64>, SpaceError> {
        let (now, mut rows) = (self.space.layouts.get().now, Vec::new());
        self.space
            .for_each_record(|index, record| {
                if record.laid.layout != now {
                    rows.push(index);
                }
            })
            .await?;
        Ok(rows)
    }

    /// Says of rows that they are laid as the space says.
    async fn record_laid(self, rows: &[Rc<Row>]) -> Result<(), SpaceError> {
        for some in rows.chunks(RECORDED_TOGETHER) {
            let mut change = self.space.shared.pool.change(Purpose::Release).await;
            let mut reported = Vec::with_capacity(some.len());
            for row in some.iter().filter(|row| !row.freed.get() && row.shadow().is_none()) {
                let laid = self.space.laid_of(self.space.layouts.get().now);
                let record = RowRecord { laid, ..row.record() };
                change.put(keys::row(row.id), record.encode());
                reported.push((row, record));
            }
            change.commit().await?;
            reported.into_iter().for_each(|(row, record)| row.adopt(record));
        }
        Ok(())
    }
}

/// A space with its rows laid otherwise, and as long as they are.
pub(crate) fn laid(space: &SpaceRows, to: Layout) -> SpaceSpec {
    // The length of rows was fixed when the space was made, whatever another layout would ask for.
    SpaceSpec { row: Some(Bytes(space.row_bytes())), ..space.spec().laid(to) }
}

fn placer_of(spec: &SpaceSpec) -> Result<Placer, SpaceError> {
    let units = spec.resiliency.slab_units(spec.interleave);
    Ok(Placer::new(spec.check()?, units))
}

/// Whether rows of two layouts differ in their width alone.
fn is_like(one: Layout, other: Layout) -> bool {
    (one.resiliency, one.interleave, one.integrity) == (other.resiliency, other.interleave, other.integrity)
}

/// Whether a row is laid as one that is placed now would be, or wider where nobody has said how wide it is to be, and none of its disks
/// is to hold nothing: it could not leave that one, with as many columns as there are disks.
fn is_as_wanted(
    record: &RowRecord,
    (before, to): (Layout, Layout),
    placed: &Placement,
    leaving: &[DiskSlot],
) -> bool {
    let data = match placed.code {
        Code::Striped { .. } => placed.columns,
        Code::Parity { data, .. } => data,
    } as usize;
    let has = record.shape.data_columns();
    let stays = || !record.columns.iter().flatten().any(|slab| leaving.contains(&slab.disk));
    is_like(before, to) && (has == data || (to.columns.is_none() && has > data && stays()))
}

/// Reckons with what the slabs of a row take as free; how many bytes that is.
fn release(offers: &mut [Offer], record: &RowRecord) -> u64 {
    change_room(offers, record, u64::saturating_add)
}

/// Reckons with it as taken again.
fn take_again(offers: &mut [Offer], record: &RowRecord) {
    change_room(offers, record, u64::saturating_sub);
}

fn change_room(offers: &mut [Offer], record: &RowRecord, change: impl Fn(u64, u64) -> u64) -> u64 {
    let mut all = 0;
    for slab in record.columns.iter().flatten() {
        let units = slab.runs.iter().map(|run| run.count).sum::<u64>();
        all += units * ALLOCATION_UNIT_BYTES;
        let offer = offers.iter_mut().find(|offer| offer.slot == slab.disk);
        offer.into_iter().for_each(|offer| offer.free_units = change(offer.free_units, units));
    }
    all
}

/// Reckons with a row that is placed; how many bytes it takes.
fn take(offers: &mut [Offer], placed: &Placement) -> u64 {
    let mut all = 0;
    for slab in &placed.slabs {
        all += slab.units * ALLOCATION_UNIT_BYTES;
        let offer = offers.iter_mut().find(|offer| offer.slot == slab.slot);
        offer.into_iter().for_each(|offer| offer.free_units = offer.free_units.saturating_sub(slab.units));
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
mod tests {
    use dolmen_space::Space;
    use dolmen_space::Spaces;
    use std::error::Error;

    use dolmen_block_io::ranks::scoped;
    use dolmen_pool::ExcludeReason;

    use super::*;
    use crate::format::resiliency::Resiliency;
    use crate::harness::{Bench, Lab, ROW};
    use crate::relocation::exchange::Exchanges;

    /// Makes a space of a mirror of two, and a conversion shadow of its first row with three copies, ready to be promoted.
    async fn ready_shadow(
        lab: &Lab,
        spaces: &Rc<Spaces>,
    ) -> Result<(Space, Rc<SpaceRows>, ConversionShadow), Box<dyn Error>> {
        let mirror = Resiliency::Mirror { copies: 2 };
        let space = lab.space(spaces, "data", Bytes::mib(8), mirror).await?;
        lab.write(&space, 0, 256 << 10, 1).await?;
        spaces.flush().await?;
        let to = Layout { resiliency: Resiliency::Mirror { copies: 3 }, ..space.spec().layout() };
        spaces.conversions().begin_conversion(&space, to).await?;
        let shadows = spaces.conversions().conversion_shadows_for(&space).await?;
        let begun = spaces.conversions().begin_conversion_shadow(&space, &shadows, 0).await?;
        let Begun::ConversionShadow(one) = begun else { return Err("the row is to move".into()) };
        let one = [one];
        let all = Range { first: 0, count: one[0].row.shape.row_blocks() };
        ConversionCopy::of(&space)
            .copy_to_conversion_shadows(&shadows, &one, vec![vec![all]], &Progress::default())
            .await?;
        spaces.conversions().destage_conversion_shadows(&one).await?;
        let [one] = one;
        Ok((space, shadows, one))
    }

    /// Scenario: a conversion shadow is ready, and a disk that it lies on is excluded. It is not promoted: the row keeps its copies.
    #[test]
    fn a_conversion_shadow_that_lacks_a_disk_is_not_promoted() {
        let bench = Rc::new(Bench::new(56, 4, Bytes::mib(128)));
        let outside = Rc::clone(&bench);
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let (space, shadows, one) = ready_shadow(&lab, &spaces).await?;
                let record = one.conversion_shadow.record();
                let away = record.columns.iter().flatten().map(|slab| slab.disk).next_back();
                let away = away.ok_or("the shadow has slabs")?;
                spaces.pool().exclude(away, ExcludeReason::Asked).await?;
                let is_promoted =
                    ConversionCopy::of(&space).change_to_conversion_shadow(&shadows, &one).await?;
                assert!(!is_promoted, "a conversion shadow was promoted and lacks a disk");
                drop((shadows, one));
                spaces.members().rejoin(outside.disks[usize::from(away.0)].attach(&outside.world)).await?;
                spaces.members().resync(&Progress::default()).await?;
                assert!(spaces.conversions().convert(&space, &Progress::default()).await?);
                lab.expect(&space, 0, 256 << 10, 1).await?;
                drop(space);
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }

    /// Scenario: a conversion shadow is ready. A scrub holds its lock: it is not promoted meanwhile. Then it is, and a free that has
    /// looked it up before frees nothing: its allocation units are those of the row in its place.
    #[test]
    fn freeing_a_shadow_while_it_is_promoted_frees_nothing() {
        let bench = Bench::new(55, 4, Bytes::mib(128));
        bench
            .run(async move |lab| {
                let spaces = lab.create().await?;
                let (space, shadows, one) = ready_shadow(&lab, &spaces).await?;
                let shadow = Rc::clone(&one.conversion_shadow);
                // A scrub is another task: what it holds does not count for this one.
                let scrub = scoped(shadow.locks.lock(Range { first: 3, count: 1 })).await;
                let is_promoted =
                    ConversionCopy::of(&space).change_to_conversion_shadow(&shadows, &one).await?;
                assert!(!is_promoted, "a conversion shadow was promoted while its lock was held");
                drop(scrub);
                assert!(ConversionCopy::of(&space).change_to_conversion_shadow(&shadows, &one).await?);
                Exchanges::of(&shadows).free_row(&shadow).await?;
                // A map that lost units of a row does not always load: an error says the same as a finding.
                let findings = spaces.scrubs().check_map().await;
                assert!(
                    findings.as_ref().is_ok_and(Vec::is_empty),
                    "the free took what the row has: {findings:?}"
                );
                lab.expect(&space, 0, 256 << 10, 1).await?;
                lab.expect(&space, 256 << 10, (ROW.0 - (256 << 10)) as usize, 0).await?;
                drop((space, shadows, shadow, one));
                let space = spaces.find("data")?;
                assert!(spaces.conversions().convert(&space, &Progress::default()).await?);
                lab.check_and_close(spaces).await
            })
            .unwrap();
    }
}
