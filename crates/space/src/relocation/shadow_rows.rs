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
//!   and nothing of the row is cached. The log still has entries of the shadow row then, whose id the new row keeps; they agree with
//!   its tables. Those of the row it replaces name no row any more.
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

use crate::format::error::SpaceError;
use crate::format::ids::{is_hidden, shadows_of};
use crate::format::limits::Limits;
use crate::format::record::BlockState;
use crate::format::spec::{Provisioning, SPACE_BYTES_MAX, SpaceSpec, Standing};
use crate::layout::Unit;
use crate::layout::shape::stripe_at;
use crate::relocation::allocator::Allocator;
use crate::relocation::shadow_watch::ShadowWatch;
use crate::resolution::decided_rows::DecidedRows;
use crate::resources::locks::Range;
use crate::resources::streams::StreamName;
use crate::row_io::copies::RowCopies;
use crate::row_io::flusher::Flusher;
use crate::row_io::stripe_places::StripePlaces;
use crate::table::row::Row;
use crate::table::space::{Kind, ShadowRows, SpaceRows};

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

/// Shadow rows that a space gets for streams and alternating stripes.
#[derive(Clone, Copy)]
pub(crate) struct ShadowClaims<'a> {
    space: &'a SpaceRows,
}

impl<'a> ShadowClaims<'a> {
    /// Returns the service for a space.
    pub(crate) fn of(space: &'a SpaceRows) -> Self {
        Self { space }
    }
}

impl ShadowClaims<'_> {
    /// Where the stripe that begins at a byte of a row seems to go in place at once: in the row, where it was never written, or in
    /// its shadow row. `None` where the write cache takes it.
    #[pooled]
    pub(crate) async fn location_of_new(
        self,
        row: &Rc<Row>,
        within: u64,
    ) -> Result<Option<Rc<Row>>, SpaceError> {
        let block = u32::try_from(within / BLOCK_BYTES).unwrap_or(u32::MAX);
        if row.mappings.newest(block).is_some() {
            return Ok(None);
        }
        let spot = row.shape.locate(block);
        let found = async {
            let stripe_location = StripePlaces::of(self.space).stripe_location(row, spot.block).await?;
            let is_never =
                RowCopies::of(self.space).state_of(&stripe_location, (spot.column, spot.block)).await?
                    == BlockState::Never;
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
    async fn location_after_switch(self, row: &Rc<Row>, stripe: u32) -> Result<Option<Rc<Row>>, SpaceError> {
        let parity = (row.shape.data_columns(), stripe);
        let is_free = self.space.shadows.alternates(row)
            && RowCopies::of(self.space).state_of(row, parity).await? == BlockState::Never;
        Ok(is_free.then(|| Rc::clone(row)))
    }

    /// Claims a shadow row for a row to which a request brings a whole stripe over old content that belongs to no stream; not where
    /// that is not to be had now. Called without any lock, ticket or room.
    #[pooled]
    pub(crate) async fn provide_slots(self, index: u64, within: u64, length: u64) -> Result<(), SpaceError> {
        let lacks = async {
            let Some(row) =
                DecidedRows::of(self.space).row(index).await?.filter(|row| row.shape.unit() == Unit::Stripe)
            else {
                return Ok(None);
            };
            if row.shadow().is_some() || is_hidden(self.space.id()) {
                return Ok(None);
            }
            let (start, stripe) = stripe_at(&row.shape, within);
            let first = if within > start { start + stripe as u64 } else { start };
            let (_, after) = stripe_at(&row.shape, first.min(self.space.row_bytes() - 1));
            let is_whole = first + after as u64 <= (within + length).min(self.space.row_bytes());
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
    async fn claim_slots(self, row: &Rc<Row>) -> Result<(), SpaceError> {
        let clock = &self.space.shared.pool.seams().clock;
        let lacks_room =
            || self.space.shadows.lacks_room_until.get().is_some_and(|until| clock.now() < until);
        if lacks_room() {
            return Ok(());
        }
        let _exclusive = self.space.shadows.mutex.take().await;
        if row.freed.get() || row.shadow().is_some() || lacks_room() {
            return Ok(());
        }
        // One more takes from what is free, and adds to what they take.
        let is_room =
            self.space.shadows.count() as u64 + 2 <= ShadowWatch::of(self.space).shadows_allowed(&row.shape);
        if !is_room {
            self.space.shadows.note_lack_of_room(clock.now());
            return Ok(());
        }
        if self.claim_shadow_of(row, Kind::ToAndFro).await? {
            // Whatever was written of it by now may not be flushed.
            let lines = Range { first: 0, count: row.shape.column_blocks(row.shape.data_columns()) };
            row.moved.note(lines, Flusher::of(&self.space.shared).flush_point(), |point| {
                Flusher::of(&self.space.shared).has_covered(point)
            });
        }
        Ok(())
    }

    /// Has stripes of a row alternate that has a shadow row for a stream; returns whether they may. The limit for streams does not
    /// count such a shadow row any more, so it stays a stream's while it is being promoted, and where little is free.
    pub(crate) fn let_alternate(self, row: &Rc<Row>) -> bool {
        let is_promoted = self.space.shadows.wanted.borrow().contains(&row.index);
        if is_promoted
            || self.space.shadows.count() as u64 > ShadowWatch::of(self.space).shadows_allowed(&row.shape)
        {
            return false;
        }
        if let Some(one) = self.space.shadows.live.borrow().get(&row.index)
            && one.kind.replace(Kind::ToAndFro) == Kind::OfStream
        {
            let lines = Range { first: 0, count: row.shape.column_blocks(row.shape.data_columns()) };
            row.moved.note(lines, Flusher::of(&self.space.shared).flush_point(), |point| {
                Flusher::of(&self.space.shared).has_covered(point)
            });
        }
        true
    }

    /// A request has come: what is known of its stream. It may wait a moment for that to show. Called without any lock, ticket or room.
    pub(crate) async fn follow(self, at: u64, length: u64) -> Result<Followed, SpaceError> {
        if length < REQUEST_BYTES_MIN {
            return Ok(Followed::default());
        }
        let stream = self.space.shadows.streams.note(at, length);
        let lacks_shadows = self.stream_lacks_shadows(at, length, stream).await?;
        let goes_on = self.space.shadows.streams.of(stream).is_some_and(|(start, end)| end - start > length);
        Ok(Followed { lacks_shadows, goes_on })
    }

    /// The stream, if it is long enough and rows that the request touches lack shadow rows.
    async fn stream_lacks_shadows(
        self,
        at: u64,
        length: u64,
        stream: StreamName,
    ) -> Result<Option<StreamName>, SpaceError> {
        let (mut from, end) = (at, at + length);
        while from < end {
            let index = from / self.space.row_bytes();
            if self.lacks_shadow(index, from % self.space.row_bytes(), stream).await?.is_some() {
                return Ok(self.shows_itself(stream).await.then_some(stream));
            }
            from = (index + 1) * self.space.row_bytes();
        }
        Ok(None)
    }

    /// The row with this index, if a stream that goes on in it from a byte of it on has use for a shadow row, and there is none; or
    /// one that a stream has filled before, which is to be promoted first.
    #[pooled]
    async fn lacks_shadow(
        self,
        index: u64,
        within: u64,
        stream: StreamName,
    ) -> Result<Option<Rc<Row>>, SpaceError> {
        if self.space.shadows.refused.get() == Some(index) {
            return Ok(None);
        }
        let lacks = async {
            let Some(row) =
                DecidedRows::of(self.space).row(index).await?.filter(|row| row.shape.unit() == Unit::Stripe)
            else {
                return Ok(None);
            };
            let has_use = row.shadow().is_none() || self.space.shadows.is_whole(index);
            if !has_use || !self.is_stripe_over_old(&row, within).await? {
                return Ok(None);
            }
            let is_timed_out = |from| self.space.row_bytes() - from < self.space.row_bytes() / SHARE_OF_ROW;
            // Where the stream has come into the row nobody has written yet: all of it waits for the shadow row.
            let (start, _) = self.space.shadows.streams.of(stream).unwrap_or_default();
            let entry = start.saturating_sub(index * self.space.row_bytes()).min(within);
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
    async fn is_stripe_over_old(self, row: &Rc<Row>, within: u64) -> Result<bool, SpaceError> {
        let (start, stripe) = stripe_at(&row.shape, within);
        let first = if within > start { start + stripe as u64 } else { start };
        Ok(first < self.space.row_bytes() && self.is_over_old(row, first).await?)
    }

    /// Whether the stripe that begins at a byte of a row holds something, in place and not in the cache.
    async fn is_over_old(self, row: &Rc<Row>, within: u64) -> Result<bool, SpaceError> {
        let block = u32::try_from(within / BLOCK_BYTES).unwrap_or(u32::MAX);
        Ok(row.mappings.newest(block).is_none() && self.location_of_new(row, within).await?.is_none())
    }

    /// Whether a request belongs to a stream that is long enough for a shadow row. It waits a moment for others that are under way.
    #[pooled]
    async fn shows_itself(self, stream: StreamName) -> bool {
        let ShadowRows { streams, waiting, .. } = &self.space.shadows;
        let share = self.space.row_bytes() / SHARE_OF_ROW;
        let wanted = share.min(LENGTH_ENOUGH.max(share / 2));
        let is_shown = || streams.of(stream).is_some_and(|(start, end)| end - start >= wanted);
        for _ in 0..YIELDS_MAX {
            if is_shown() {
                return true;
            }
            give_way().await;
        }
        // Where all who are under way wait here, nobody comes.
        let (_waiting, _pause) = (Waiting::new(waiting), self.space.forming.pause());
        streams.notify.notify_all();
        let shown = streams.notify.wait_for(|| match is_shown() {
            true => Some(true),
            false => (waiting.get() >= self.space.forming.requests.get()).then_some(false),
        });
        let clock = self.space.shared.pool.seams().clock.as_ref();
        let shown = within(clock, clock.now() + WAIT_MAX, shown).await;
        shown.unwrap_or_else(is_shown)
    }

    /// A stream goes on in a row, from a byte of it on: claims a shadow row for the row if it lacks one, once there may be one
    /// more; not where that is not to be had now. Called without any lock, ticket or room.
    pub(crate) async fn provide_shadow(
        self,
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
    async fn claim_next(self, mut row: Rc<Row>, within: u64, stream: StreamName) -> Result<(), SpaceError> {
        let index = row.index;
        if row.shadow().is_some() {
            let is_free = self.promote_now(&self.space.shadows.whole(), index).await;
            if !is_free && self.space.shadows.is_whole(index) {
                self.space.shadows.refused.set(Some(index));
                return Ok(());
            }
            let Some(again) = self.lacks_shadow(index, within, stream).await? else { return Ok(()) };
            row = again;
        }
        self.claim_in_order(&row, stream).await
    }

    /// Promotes shadow rows, and waits for one of them; returns whether that is none any more.
    async fn promote_now(self, rows: &[u64], awaited: u64) -> bool {
        ShadowWatch::of(self.space).promote_soon(rows);
        self.space
            .shadows
            .notify
            .wait_for(|| (!self.space.shadows.wanted.borrow().contains(&awaited)).then_some(()))
            .await;
        !self.space.shadows.live.borrow().contains_key(&awaited)
    }

    async fn claim_in_order(self, row: &Rc<Row>, stream: StreamName) -> Result<(), SpaceError> {
        let _exclusive = self.space.shadows.mutex.take().await;
        if row.freed.get() || row.shadow().is_some() || self.space.shadows.refused.get() == Some(row.index) {
            return Ok(());
        }
        if !self.has_place(row, stream).await || !self.claim_shadow_of(row, Kind::OfStream).await? {
            self.space.shadows.refused.set(Some(row.index));
        }
        Ok(())
    }

    /// Whether there are few enough shadow rows for one more, once those that are whole, and one that the same stream has passed,
    /// are none any more.
    #[pooled]
    async fn has_place(self, row: &Rc<Row>, stream: StreamName) -> bool {
        loop {
            let live = self.space.shadows.of_streams();
            let max = ShadowWatch::of(self.space).shadows_max(&row.shape);
            if live.len() < max {
                return true;
            }
            let Some((start, _)) = self.space.shadows.streams.of(stream) else { return false };
            let idle = self.space.shadows.left_by_streams(self.space.shared.pool.seams().clock.now());
            ShadowWatch::of(self.space).promote_soon(&idle);
            let is_passed = |index: &&u64| **index >= start / self.space.row_bytes() && **index < row.index;
            let mut chosen = self.space.shadows.whole();
            if chosen.is_empty() {
                chosen.extend(live.iter().find(is_passed));
            }
            let Some(first) = chosen.first().copied() else { return false };
            if !self.promote_now(&chosen, first).await && self.space.shadows.of_streams().len() >= max {
                // It could not be done now.
                return false;
            }
        }
    }

    #[pooled]
    async fn claim_shadow_of(self, row: &Rc<Row>, kind: Kind) -> Result<bool, SpaceError> {
        let pool = &self.space.shared.pool;
        let mut is_whole = true;
        row.for_each_slab(|_, slab| is_whole &= slab.readable(pool).is_some());
        if !is_whole || self.space.shared.is_deferred(row) || !self.may_have_shadows() {
            return Ok(false);
        }
        let Some(hidden) = self.hidden_for_shadows().await? else { return Ok(false) };
        let Some(shadow) = Allocator::of(&hidden).claim_shadow(row).await? else {
            self.space.shadows.note_lack_of_room(pool.seams().clock.now());
            return Ok(false);
        };
        tracing::debug!(space = %self.space.name(), row = row.index, "a row has a shadow row");
        self.space.shared.count(|counters| counters.shadows_made += 1);
        self.space.shadows.add(shadow, kind, pool.seams().clock.now());
        Ok(true)
    }

    /// Whether rows may have shadow rows now: not while conversion shadows are made of them, nor do conversion shadows themselves.
    fn may_have_shadows(self) -> bool {
        self.space.layout_before().is_none() && !is_hidden(self.space.id())
    }

    /// The hidden space of shadow rows, made if there is none.
    #[pooled]
    async fn hidden_for_shadows(self) -> Result<Option<Rc<SpaceRows>>, SpaceError> {
        if let Some(hidden) = self.space.shadows.space() {
            return Ok(Some(hidden));
        }
        let pool = &self.space.shared.pool;
        let mut change = pool.change(Purpose::Claim).await;
        let may_be = !self.space.freed.get() && self.may_have_shadows();
        let Some(spaces) = self.space.list.spaces.borrow().upgrade().filter(|_| may_be) else {
            return Ok(None);
        };
        let id = shadows_of(self.space.id());
        // Rows of it are where those of its space are, so it has no end of its own.
        let spec = SpaceSpec {
            size: SPACE_BYTES_MAX,
            row: Some(dolmen_units::Bytes(self.space.row_bytes())),
            provisioning: Provisioning::Thin,
            limits: Limits::default(),
            ..self.space.spec()
        };
        let layouts = self.space.layouts.get();
        let hidden = SpaceRows::new(
            Rc::clone(&self.space.shared),
            Rc::clone(&self.space.list),
            id,
            spec.clone(),
            layouts,
        )?;
        change.put(keys::space(id), spec.encode(Standing::Whole, layouts));
        change.commit().await?;
        self.adopt_hidden(&hidden);
        spaces.borrow_mut().insert(id, Rc::clone(&hidden));
        Ok(Some(hidden))
    }

    /// Notes the hidden space of shadow rows.
    pub(crate) fn adopt_hidden(self, hidden: &Rc<SpaceRows>) {
        *self.space.shadows.space.borrow_mut() = Some(Rc::clone(hidden));
        for (layout, cache) in (0..).zip(&*self.space.caches.borrow()) {
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
    pub(crate) async fn load_shadows(self, hidden: &Rc<SpaceRows>) -> Result<(), SpaceError> {
        let mut found = Vec::new();
        hidden.for_each_record(|index, record| found.push((index, record.clone()))).await?;
        let now = self.space.shared.pool.seams().clock.now();
        for (index, record) in found {
            let is_beside = |row: &Rc<Row>| *row.shape == record.shape && row.id != record.id;
            let row = self.space.in_doubt_row(index).await?.filter(is_beside);
            let Some(row) = row else {
                let what = format!(
                    "a shadow row of row {index} of space {} that is of no such row",
                    self.space.name()
                );
                return Err(PoolError::Corrupt { name: self.space.shared.pool_name().clone(), what }.into());
            };
            let shadow = row.make_shadow(record);
            hidden.rows.borrow_mut().insert(index, Some(Rc::clone(&shadow)));
            self.space.shared.count(|counters| counters.shadows_found += 1);
            self.space.shadows.add(shadow, Kind::Found, now);
        }
        *self.space.shadows.space.borrow_mut() = Some(Rc::clone(hidden));
        Ok(())
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
