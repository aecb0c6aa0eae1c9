//! Shadow rows: what whole stripes bring over old content of a row with parity goes, stripe by stripe, to a row of the same
//! shape. That of a stream is promoted by one change of the map (docs/design/0007); of single stripes, stripes alternate between
//! the two (docs/design/0026).
//!
//! | what | whose |
//! |---|---|
//! | a block that is cached | the cache's, as ever |
//! | a block of a stripe of which the shadow row has parity | the shadow row's |
//! | everything else | the row's |
//!
//! Invariants:
//! - The first parity block of a stripe of a shadow row is *never* exactly as long as the stripe is the row's.
//! - A row and its shadow row share their locks, and what is cached of them.
//! - A shadow row is promoted when it has every stripe that the row has, a flush has covered them, its tables are on its disks,
//!   and nothing of the row is cached: what the log says of either is of rows that are no more behind that.
//!
//! Left to others: which requests are a stream (`streams`); to which of the two a stripe goes (`slot_switch`); how shadow rows end
//! (`promote`, `drop_shadow`).

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use dolmen_block_io::within;
use dolmen_future_pool::pooled;
use dolmen_pool::{PoolError, Purpose, keys};
use dolmen_units::BLOCK_BYTES;

use crate::cache::space::{Kind, ShadowRows, Space};
use crate::format::error::{SpaceError, UnreadableReason};
use crate::format::ids::{is_hidden, shadows_of};
use crate::format::limits::Limits;
use crate::format::record::BlockState;
use crate::format::spec::{Provisioning, ROW_BYTES, SPACE_BYTES_MAX, SpaceSpec, Standing};
use crate::layout::shape::stripe_at;
use crate::layout::{Shape, Unit};
use crate::resources::locks::Range;
use crate::resources::streams::StreamName;
use crate::table::page::place_in_page;
use crate::table::row::Row;

/// Data of the rows of one space that have shadow rows, at most: as much as two long rows hold, one that a stream fills and one
/// whose shadow row takes its place. In short rows, a stream with many requests under way is in several at once.
const SHADOWS_BYTES_MAX: u64 = 2 * ROW_BYTES.0;
/// Shadow rows that a space may have however long its rows are.
const SHADOWS_USUAL: usize = 2;
/// What more shadow rows than that take is one of so many parts of the free room, at most.
const SHARE_OF_FREE: u64 = 8;
/// A stream gets a shadow row for a row once it is as long as one of so many parts of the row, and while as much of the row is
/// before it: where it ends there, what it left out is copied, and that costs less than the write cache.
const SHARE_OF_ROW: u64 = 3;
/// Of long rows half of that is enough, but no less than this: so much is under way together where few requests are. What is
/// copied costs half as much again as the write cache, at most, and a stream that is so long is rarely over.
const LENGTH_ENOUGH: u64 = 4 * 1024 * 1024;
/// Shorter requests belong to no stream.
const REQUEST_BYTES_MIN: u64 = 64 * 1024;
/// How long the first requests of what may be a stream wait for the others, at most.
const WAIT_MAX: Duration = Duration::from_millis(1);
/// Turns of others that they wait before they ask whether anybody else is under way.
const YIELDS_MAX: usize = 2;
/// Shadow rows that a space may have, at most, for stripes to alternate: rows that have one stay in memory.
const TO_AND_FRO_MAX: u64 = 4096;
/// Shadow rows that are given up at once for want of room: each may have a row to copy.
pub(crate) const FREED_TOGETHER: usize = 16;

/// What is known of the stream that a request belongs to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Followed {
    /// The stream, if it is long enough for shadow rows and rows that the request touches lack them.
    pub(crate) lacks_shadows: Option<StreamName>,
    /// Whether it is longer than the request.
    pub(crate) goes_on: bool,
}

/// Somebody who waits, counted until this is dropped.
struct Waiting<'a>(&'a Cell<u64>);

impl<'a> Waiting<'a> {
    fn new(count: &'a Cell<u64>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Space {
    /// The row that has a stripe: the row itself, or its shadow row.
    pub(crate) async fn stripe_location(&self, row: &Rc<Row>, stripe: u32) -> Result<Rc<Row>, SpaceError> {
        match row.shadow() {
            Some(shadow) if self.parity_of_shadow(&shadow, stripe).await? != BlockState::Never => Ok(shadow),
            Some(_) | None => Ok(Rc::clone(row)),
        }
    }

    /// Where a block is in place, and what it holds there: the row or its shadow row. Both are of one moment, as pages may come
    /// from disks in between.
    pub(crate) async fn main_location(
        &self,
        row: &Rc<Row>,
        (column, stripe): (usize, u32),
    ) -> Result<(Rc<Row>, BlockState), SpaceError> {
        loop {
            let stripe_location = self.stripe_location(row, stripe).await?;
            let state = self.state_of(&stripe_location, (column, stripe)).await?;
            let Some(shadow) = row.shadow().filter(|_| state == BlockState::Never) else {
                return Ok((stripe_location, state));
            };
            let parity = shadow.state_in_memory((row.shape.data_columns(), stripe));
            let is_shadows = parity.is_some_and(|parity| parity != BlockState::Never);
            if parity.is_some() && is_shadows == stripe_location.is_shadow() {
                return Ok((stripe_location, state));
            }
        }
    }

    /// Whether a row has a stripe itself.
    pub(crate) async fn is_in_row(&self, row: &Rc<Row>, stripe: u32) -> Result<bool, SpaceError> {
        Ok(Rc::ptr_eq(&self.stripe_location(row, stripe).await?, row))
    }

    pub(crate) async fn parity_of_shadow(
        &self,
        shadow: &Rc<Row>,
        stripe: u32,
    ) -> Result<BlockState, SpaceError> {
        let (index, entry) = place_in_page(stripe);
        Ok(self.shared.page(shadow, shadow.shape.data_columns(), index).await?.state(entry))
    }

    /// What a block of a stripe is, of which its table says this. Where a shadow row does not know what parity says of the stripe,
    /// nobody knows whose the blocks are that it lacks.
    pub(crate) async fn known_state(
        &self,
        row: &Rc<Row>,
        stripe: u32,
        state: BlockState,
    ) -> Result<BlockState, SpaceError> {
        if state != BlockState::Never || !row.is_shadow() {
            return Ok(state);
        }
        Ok(match self.parity_of_shadow(row, stripe).await? {
            BlockState::Damaged => BlockState::Damaged,
            BlockState::Never | BlockState::Valid(_) => state,
        })
    }

    /// Where the stripe that begins at a byte of a row seems to go in place at once: in the row, where it was never written, or in
    /// its shadow row. `None` where the write cache takes it.
    #[pooled]
    pub(crate) async fn location_of_new(
        &self,
        row: &Rc<Row>,
        within: u64,
    ) -> Result<Option<Rc<Row>>, SpaceError> {
        let block = u32::try_from(within / BLOCK_BYTES).unwrap_or(u32::MAX);
        if row.mappings.newest(block).is_some() {
            return Ok(None);
        }
        let spot = row.shape.locate(block);
        let found = async {
            let stripe_location = self.stripe_location(row, spot.block).await?;
            let is_never =
                self.state_of(&stripe_location, (spot.column, spot.block)).await? == BlockState::Never;
            Ok(match row.shadow() {
                _ if stripe_location.is_shadow() => self.location_after_switch(row, spot.block).await?,
                _ if is_never => Some(stripe_location),
                shadow => shadow,
            })
        };
        match found.await {
            // The write cache takes it without having to know.
            Err(SpaceError::Unreadable { .. }) => Ok(None),
            other => other,
        }
    }

    /// A row, if a stripe of its shadow row may come back to it.
    async fn location_after_switch(&self, row: &Rc<Row>, stripe: u32) -> Result<Option<Rc<Row>>, SpaceError> {
        let parity = (row.shape.data_columns(), stripe);
        let is_free = self.shadows.alternates(row) && self.state_of(row, parity).await? == BlockState::Never;
        Ok(is_free.then(|| Rc::clone(row)))
    }

    /// Notes that whole stripes were brought to a row or its shadow row, from the other one if they went alternately.
    pub(crate) fn note_moved(&self, row: &Rc<Row>, target: &Rc<Row>, lines: u32, has_switched: bool) {
        let is_whole = {
            let live = self.shadows.live.borrow();
            let Some(one) =
                live.get(&row.index).filter(|one| row.shadow().is_some_and(|shadow| shadow.id == one.row.id))
            else {
                return;
            };
            one.used.set(self.shared.pool.seams().clock.now());
            one.taken.set(match (target.is_shadow(), has_switched) {
                (true, _) => one.taken.get().saturating_add(lines),
                (false, true) => one.taken.get().saturating_sub(lines),
                (false, false) => return,
            });
            one.is_whole()
        };
        if has_switched {
            self.shared.count(|counters| counters.stripes_switched += u64::from(lines));
        }
        // The flush and the tables that they wait for are those of all of them.
        let whole = if is_whole { self.shadows.whole() } else { Vec::new() };
        if !whole.is_empty() && whole.len() * 2 >= self.shadows_max(&row.shape) {
            self.promote_soon(&whole);
        }
    }

    /// How many shadow rows there may be of rows like this one: more than two while they take little of what is free beside them.
    fn shadows_max(&self, shape: &Shape) -> usize {
        let most = (SHADOWS_BYTES_MAX / self.row_bytes())
            .min(self.free_bytes() / SHARE_OF_FREE / self.shadow_bytes(shape));
        usize::try_from(most).unwrap_or(usize::MAX).max(SHADOWS_USUAL)
    }

    /// What is free beside the room that is kept.
    fn free_bytes(&self) -> u64 {
        let room = self.shared.pool.free_space().room();
        room.iter().map(|room| room.free.0.saturating_sub(room.reserve.0)).sum()
    }

    /// What a row of a shape takes, but for its tables.
    fn shadow_bytes(&self, shape: &Shape) -> u64 {
        self.row_bytes() / shape.data_columns() as u64 * shape.columns() as u64
    }

    /// Rows whose shadow rows are to be given up because all shadow rows take more than is free beside them.
    pub(crate) fn shadows_too_many(&self) -> Vec<u64> {
        let Some(shape) = self.shadows.live.borrow().values().next().map(|one| one.row.shape) else {
            return Vec::new();
        };
        let allowed = self.shadows_allowed(&shape).max(SHADOWS_USUAL as u64);
        let surplus = (self.shadows.count() as u64).saturating_sub(allowed);
        self.shadows.idlest(usize::try_from(surplus).unwrap_or(usize::MAX).min(FREED_TOGETHER))
    }

    /// Claims a shadow row for a row to which a request brings a whole stripe over old content that belongs to no stream; not where
    /// that is not to be had now. Called without any lock, ticket or room.
    #[pooled]
    pub(crate) async fn provide_slots(&self, index: u64, within: u64, length: u64) -> Result<(), SpaceError> {
        let lacks = async {
            let Some(row) = self.row(index).await?.filter(|row| row.shape.unit() == Unit::Stripe) else {
                return Ok(None);
            };
            if row.shadow().is_some() || is_hidden(self.id()) {
                return Ok(None);
            }
            let (start, stripe) = stripe_at(&row.shape, within);
            let first = if within > start { start + stripe as u64 } else { start };
            let (_, after) = stripe_at(&row.shape, first.min(self.row_bytes() - 1));
            let is_whole = first + after as u64 <= (within + length).min(self.row_bytes());
            Ok((is_whole && self.is_over_old(&row, first).await?).then_some(row))
        };
        let row = match lacks.await {
            Ok(Some(row)) => row,
            // Whoever writes finds it again, if it concerns it.
            Ok(None) | Err(SpaceError::Unreadable { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        match Box::pin(self.claim_slots(&row)).await {
            Err(SpaceError::Unreadable { .. }) => Ok(()),
            other => other,
        }
    }

    #[pooled]
    async fn claim_slots(&self, row: &Rc<Row>) -> Result<(), SpaceError> {
        let clock = &self.shared.pool.seams().clock;
        let lacks_room = || self.shadows.lacks_room_until.get().is_some_and(|until| clock.now() < until);
        if lacks_room() {
            return Ok(());
        }
        let _exclusive = self.shadows.mutex.take().await;
        if row.freed.get() || row.shadow().is_some() || lacks_room() {
            return Ok(());
        }
        // One more takes from what is free, and adds to what they take.
        let is_room = self.shadows.count() as u64 + 2 <= self.shadows_allowed(&row.shape);
        if !is_room {
            self.shadows.note_lack_of_room(clock.now());
            return Ok(());
        }
        if self.claim_shadow_of(row, Kind::ToAndFro).await? {
            // Whatever was written of it by now may not be flushed.
            let lines = Range { first: 0, count: row.shape.column_blocks(row.shape.data_columns()) };
            row.moved.note(lines, self.shared.flush_point(), |point| self.shared.has_covered(point));
        }
        Ok(())
    }

    /// Has stripes of a row alternate that has a shadow row for a stream; returns whether they may. The limit for streams does not
    /// count such a shadow row any more, so it stays a stream's while it is being promoted, and where little is free.
    pub(crate) fn let_alternate(&self, row: &Rc<Row>) -> bool {
        let is_promoted = self.shadows.wanted.borrow().contains(&row.index);
        if is_promoted || self.shadows.count() as u64 > self.shadows_allowed(&row.shape) {
            return false;
        }
        if let Some(one) = self.shadows.live.borrow().get(&row.index)
            && one.kind.replace(Kind::ToAndFro) == Kind::OfStream
        {
            let lines = Range { first: 0, count: row.shape.column_blocks(row.shape.data_columns()) };
            row.moved.note(lines, self.shared.flush_point(), |point| self.shared.has_covered(point));
        }
        true
    }

    /// How many shadow rows may take as much as is free beside them.
    fn shadows_allowed(&self, shape: &Shape) -> u64 {
        let extra = self.free_bytes() / self.shadow_bytes(shape);
        extra.min(TO_AND_FRO_MAX)
    }

    /// A request has come: what is known of its stream. It may wait a moment for that to show. Called without any lock, ticket or room.
    pub(crate) async fn follow(&self, at: u64, length: u64) -> Result<Followed, SpaceError> {
        if length < REQUEST_BYTES_MIN {
            return Ok(Followed::default());
        }
        let stream = self.shadows.streams.note(at, length);
        let lacks_shadows = self.stream_lacks_shadows(at, length, stream).await?;
        let goes_on = self.shadows.streams.of(stream).is_some_and(|(start, end)| end - start > length);
        Ok(Followed { lacks_shadows, goes_on })
    }

    /// The stream, if it is long enough and rows that the request touches lack shadow rows.
    async fn stream_lacks_shadows(
        &self,
        at: u64,
        length: u64,
        stream: StreamName,
    ) -> Result<Option<StreamName>, SpaceError> {
        let (mut from, end) = (at, at + length);
        while from < end {
            let index = from / self.row_bytes();
            if self.lacks_shadow(index, from % self.row_bytes(), stream).await?.is_some() {
                return Ok(self.shows_itself(stream).await.then_some(stream));
            }
            from = (index + 1) * self.row_bytes();
        }
        Ok(None)
    }

    /// The row with this index, if a stream that goes on in it from a byte of it on has use for a shadow row, and there is none; or
    /// one that a stream has filled before, which is to be promoted first.
    #[pooled]
    async fn lacks_shadow(
        &self,
        index: u64,
        within: u64,
        stream: StreamName,
    ) -> Result<Option<Rc<Row>>, SpaceError> {
        if self.shadows.refused.get() == Some(index) {
            return Ok(None);
        }
        let lacks = async {
            let Some(row) = self.row(index).await?.filter(|row| row.shape.unit() == Unit::Stripe) else {
                return Ok(None);
            };
            let has_use = row.shadow().is_none() || self.shadows.is_whole(index);
            if !has_use || !self.is_stripe_over_old(&row, within).await? {
                return Ok(None);
            }
            let is_timed_out = |from| self.row_bytes() - from < self.row_bytes() / SHARE_OF_ROW;
            // Where the stream has come into the row nobody has written yet: all of it waits for the shadow row.
            let (start, _) = self.shadows.streams.of(stream).unwrap_or_default();
            let entry = start.saturating_sub(index * self.row_bytes()).min(within);
            let is_early =
                is_timed_out(within) && !is_timed_out(entry) && self.is_stripe_over_old(&row, entry).await?;
            Ok((is_early || !is_timed_out(within)).then_some(row))
        };
        match lacks.await {
            // Whoever writes finds it again, if it concerns it.
            Err(SpaceError::Unreadable { .. }) => Ok(None),
            other => other,
        }
    }

    /// Whether the first stripe that begins at a byte of a row or behind it, but in the row, is what the write cache would take
    /// and has nothing of yet.
    async fn is_stripe_over_old(&self, row: &Rc<Row>, within: u64) -> Result<bool, SpaceError> {
        let (start, stripe) = stripe_at(&row.shape, within);
        let first = if within > start { start + stripe as u64 } else { start };
        Ok(first < self.row_bytes() && self.is_over_old(row, first).await?)
    }

    /// Whether the stripe that begins at a byte of a row holds something, in place and not in the cache.
    async fn is_over_old(&self, row: &Rc<Row>, within: u64) -> Result<bool, SpaceError> {
        let block = u32::try_from(within / BLOCK_BYTES).unwrap_or(u32::MAX);
        Ok(row.mappings.newest(block).is_none() && self.location_of_new(row, within).await?.is_none())
    }

    /// Whether a request belongs to a stream that is long enough for a shadow row. It waits a moment for others that are under way.
    #[pooled]
    async fn shows_itself(&self, stream: StreamName) -> bool {
        let ShadowRows { streams, waiting, .. } = &self.shadows;
        let share = self.row_bytes() / SHARE_OF_ROW;
        let wanted = share.min(LENGTH_ENOUGH.max(share / 2));
        let is_shown = || streams.of(stream).is_some_and(|(start, end)| end - start >= wanted);
        for _ in 0..YIELDS_MAX {
            if is_shown() {
                return true;
            }
            give_way().await;
        }
        // Where all who are under way wait here, nobody comes.
        let (_waiting, _pause) = (Waiting::new(waiting), self.forming.pause());
        streams.notify.notify_all();
        let shown = streams.notify.wait_for(|| match is_shown() {
            true => Some(true),
            false => (waiting.get() >= self.forming.requests.get()).then_some(false),
        });
        let clock = self.shared.pool.seams().clock.as_ref();
        let shown = within(clock, clock.now() + WAIT_MAX, shown).await;
        shown.unwrap_or_else(is_shown)
    }

    /// A stream goes on in a row, from a byte of it on: claims a shadow row for the row if it lacks one, once there may be one
    /// more; not where that is not to be had now. Called without any lock, ticket or room.
    pub(crate) async fn provide_shadow(
        &self,
        index: u64,
        within: u64,
        stream: StreamName,
    ) -> Result<(), SpaceError> {
        let Some(row) = self.lacks_shadow(index, within, stream).await? else { return Ok(()) };
        // In memory of its own: what it takes would be a part of every write else.
        match Box::pin(self.claim_next(row, within, stream)).await {
            // Whoever writes finds it again, if it concerns it.
            Err(SpaceError::Unreadable { .. }) => Ok(()),
            other => other,
        }
    }

    /// Claims a shadow row for a row, behind the one that it has if that can be promoted now.
    async fn claim_next(&self, mut row: Rc<Row>, within: u64, stream: StreamName) -> Result<(), SpaceError> {
        let index = row.index;
        if row.shadow().is_some() {
            let is_free = self.promote_now(&self.shadows.whole(), index).await;
            if !is_free && self.shadows.is_whole(index) {
                self.shadows.refused.set(Some(index));
                return Ok(());
            }
            let Some(again) = self.lacks_shadow(index, within, stream).await? else { return Ok(()) };
            row = again;
        }
        self.claim_in_order(&row, stream).await
    }

    /// Promotes shadow rows, and waits for one of them; returns whether that is none any more.
    async fn promote_now(&self, rows: &[u64], awaited: u64) -> bool {
        self.promote_soon(rows);
        self.shadows
            .notify
            .wait_for(|| (!self.shadows.wanted.borrow().contains(&awaited)).then_some(()))
            .await;
        !self.shadows.live.borrow().contains_key(&awaited)
    }

    async fn claim_in_order(&self, row: &Rc<Row>, stream: StreamName) -> Result<(), SpaceError> {
        let _exclusive = self.shadows.mutex.take().await;
        if row.freed.get() || row.shadow().is_some() || self.shadows.refused.get() == Some(row.index) {
            return Ok(());
        }
        if !self.has_place(row, stream).await || !self.claim_shadow_of(row, Kind::OfStream).await? {
            self.shadows.refused.set(Some(row.index));
        }
        Ok(())
    }

    /// Whether there are few enough shadow rows for one more, once those that are whole, and one that the same stream has passed,
    /// are none any more.
    #[pooled]
    async fn has_place(&self, row: &Rc<Row>, stream: StreamName) -> bool {
        loop {
            let live = self.shadows.of_streams();
            let max = self.shadows_max(&row.shape);
            if live.len() < max {
                return true;
            }
            let Some((start, _)) = self.shadows.streams.of(stream) else { return false };
            let idle = self.shadows.left_by_streams(self.shared.pool.seams().clock.now());
            self.promote_soon(&idle);
            let is_passed = |index: &&u64| **index >= start / self.row_bytes() && **index < row.index;
            let mut chosen = self.shadows.whole();
            if chosen.is_empty() {
                chosen.extend(live.iter().find(is_passed));
            }
            let Some(first) = chosen.first().copied() else { return false };
            if !self.promote_now(&chosen, first).await && self.shadows.of_streams().len() >= max {
                // It could not be done now.
                return false;
            }
        }
    }

    #[pooled]
    async fn claim_shadow_of(&self, row: &Rc<Row>, kind: Kind) -> Result<bool, SpaceError> {
        let pool = &self.shared.pool;
        let mut is_whole = true;
        row.for_each_slab(|_, slab| is_whole &= slab.readable(pool).is_some());
        if !is_whole || self.shared.is_deferred(row) || !self.may_have_shadows() {
            return Ok(false);
        }
        let Some(hidden) = self.hidden_for_shadows().await? else { return Ok(false) };
        let Some(shadow) = hidden.claim_shadow(row).await? else {
            self.shadows.note_lack_of_room(pool.seams().clock.now());
            return Ok(false);
        };
        tracing::debug!(space = %self.name(), row = row.index, "a row has a shadow row");
        self.shared.count(|counters| counters.shadows_made += 1);
        self.shadows.add(shadow, kind, pool.seams().clock.now());
        Ok(true)
    }

    /// Whether rows may have shadow rows now: not while conversion shadows are made of them, nor do conversion shadows themselves.
    fn may_have_shadows(&self) -> bool {
        self.layout_before().is_none() && !is_hidden(self.id())
    }

    /// The hidden space of shadow rows, made if there is none.
    #[pooled]
    async fn hidden_for_shadows(&self) -> Result<Option<Rc<Space>>, SpaceError> {
        if let Some(hidden) = self.shadows.space() {
            return Ok(Some(hidden));
        }
        let pool = &self.shared.pool;
        let mut change = pool.change(Purpose::Claim).await;
        let may_be = !self.freed.get() && self.may_have_shadows();
        let Some(spaces) = self.list.spaces.borrow().upgrade().filter(|_| may_be) else {
            return Ok(None);
        };
        let id = shadows_of(self.id());
        // Rows of it are where those of its space are, so it has no end of its own.
        let spec = SpaceSpec {
            size: SPACE_BYTES_MAX,
            row: Some(dolmen_units::Bytes(self.row_bytes())),
            provisioning: Provisioning::Thin,
            limits: Limits::default(),
            ..self.spec()
        };
        let layouts = self.layouts.get();
        let hidden = Space::new(Rc::clone(&self.shared), Rc::clone(&self.list), id, spec.clone(), layouts)?;
        change.put(keys::space(id), spec.encode(Standing::Whole, layouts));
        change.commit().await?;
        self.adopt_hidden(&hidden);
        spaces.borrow_mut().insert(id, Rc::clone(&hidden));
        Ok(Some(hidden))
    }

    /// Notes the hidden space of shadow rows.
    pub(crate) fn adopt_hidden(&self, hidden: &Rc<Space>) {
        *self.shadows.space.borrow_mut() = Some(Rc::clone(hidden));
        for (layout, cache) in (0..).zip(&*self.caches.borrow()) {
            if let Some(cache) = cache {
                cache.add_owner(hidden, layout);
            }
        }
    }

    /// Notes the shadow rows that the map has.
    ///
    /// # Errors
    /// [`SpaceError`] when there is one of a row that is not there, or of another shape.
    #[pooled]
    pub(crate) async fn load_shadows(&self, hidden: &Rc<Space>) -> Result<(), SpaceError> {
        let mut found = Vec::new();
        hidden.for_each_record(|index, record| found.push((index, record.clone()))).await?;
        let now = self.shared.pool.seams().clock.now();
        for (index, record) in found {
            let is_beside = |row: &Rc<Row>| *row.shape == record.shape && row.id != record.id;
            let row = self.in_doubt_row(index).await?.filter(is_beside);
            let Some(row) = row else {
                let what =
                    format!("a shadow row of row {index} of space {} that is of no such row", self.name());
                return Err(PoolError::Corrupt { name: self.shared.pool_name().clone(), what }.into());
            };
            let shadow = row.make_shadow(record);
            hidden.rows.borrow_mut().insert(index, Some(Rc::clone(&shadow)));
            self.shared.count(|counters| counters.shadows_found += 1);
            self.shadows.add(shadow, Kind::Found, now);
        }
        *self.shadows.space.borrow_mut() = Some(Rc::clone(hidden));
        Ok(())
    }

    /// The shadow row with this index in a hidden space of shadow rows, once all that the log says of it and of its row was
    /// decided.
    pub(crate) async fn decided_shadow(&self, index: u64) -> Result<Option<Rc<Row>>, SpaceError> {
        let owner = self.in_doubt_row(index).await?.map(|shadow| shadow.owner());
        let spaces = self.list.spaces.borrow().upgrade();
        let owner = owner.zip(spaces).and_then(|(owner, spaces)| spaces.borrow().get(&owner).cloned());
        let row = match owner {
            Some(owner) => Box::pin(owner.row(index)).await?,
            None => None,
        };
        Ok(row.and_then(|row| row.shadow()))
    }

    /// Notes that a row has no shadow row any more.
    pub(crate) fn forget_shadow(&self, row: &Row) {
        row.forget_shadow();
        if let Some(hidden) = self.shadows.space() {
            hidden.rows.borrow_mut().insert(row.index, None);
            self.shared.forget_row(hidden.id(), row.index);
        }
        self.shadows.wanted.borrow_mut().remove(&row.index);
        self.shadows.forget(row.index);
    }

    /// The error for a stripe of which nobody can tell now whose it is.
    pub(crate) fn unknown_stripe(&self, row: &Row, stripe: u32) -> SpaceError {
        self.shared.unreadable(row, 0, stripe as usize, UnreadableReason::Damaged)
    }
}

/// Lets all others have a turn.
async fn give_way() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
