//! Heirs of rows: what whole stripes bring over old content of a row with parity goes, line by line, to a row of the same shape. That of a
//! stream takes the row's place by one change of the map (docs/design/0007); of single stripes, lines go to and fro between the
//! two (docs/design/0026).
//!
//! | what | whose |
//! |---|---|
//! | a block that is cached | the cache's, as ever |
//! | a block of a line of which the heir has parity | the heir's |
//! | everything else | the row's |
//!
//! Invariants:
//! - The first parity block of a line of an heir is *never* exactly as long as the line is the row's.
//! - A row and its heir share their locks, and what is cached of them.
//! - An heir takes the row's place when it has every line that the row has, a flush has covered them, its tables are on its disks,
//!   and nothing of the row is cached: what the log says of either is of rows that are no more behind that.
//!
//! Left to others: which requests are a stream (`streams`); to which of the two a line goes (`flips`); how heirs end (`take_over`,
//! `give_back`).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use dolmen_block_io::sync::{Notify, Turn};
use dolmen_block_io::{Moment, within};
use dolmen_disk::{FEATURE_HEIRS, FEATURE_SLOTS};
use dolmen_future_pool::pooled;
use dolmen_pool::{PoolError, Purpose, keys};
use dolmen_units::BLOCK_BYTES;

use crate::cache::{heirs_of, is_hidden};
use crate::error::{SpaceError, UnreadableReason};
use crate::layout::Shape;
use crate::limits::Limits;
use crate::locks::Range;
use crate::record::BlockState;
use crate::row::Row;
use crate::shared::place_in_page;
use crate::space::Space;
use crate::spec::{Provisioning, ROW_BYTES, SPACE_BYTES_MAX, SpaceSpec, Standing};
use crate::streams::{StreamName, Streams};
use crate::stripe::stripe_at;

/// Data of the rows of one space that have heirs, at most: as much as two long rows hold, one that a stream fills and one whose
/// heir takes its place. In short rows, a stream with many requests under way is in several at once.
const HEIRS_BYTES_MAX: u64 = 2 * ROW_BYTES.0;
/// Heirs that a space may have however long its rows are.
const HEIRS_USUAL: usize = 2;
/// What more heirs than that take is one of so many parts of the free room, at most.
const SHARE_OF_FREE: u64 = 8;
/// A stream gets an heir for a row once it is as long as one of so many parts of the row, and while as much of the row is before
/// it: where it ends there, what it left out is copied, and that costs less than the write cache.
const SHARE_OF_ROW: u64 = 3;
/// Of long rows half of that is enough, but no less than this: so much is under way together where few requests are. What is
/// copied costs half as much again as the write cache, at most, and a stream that is so long is rarely over.
const LENGTH_ENOUGH: u64 = 4 * 1024 * 1024;
/// Shorter requests belong to no stream.
const REQUEST_BYTES_MIN: u64 = 64 * 1024;
/// How long the first requests of what may be a stream wait for the others, at most.
const PATIENCE: Duration = Duration::from_millis(1);
/// Turns of others that they wait before they ask whether anybody else is under way.
const TURNS: usize = 2;
/// How long an heir waits for its stream to go on before it takes the row's place.
const IDLE_AFTER: Duration = Duration::from_secs(60);
/// How long it does where another stream wants one.
const WANTED_AFTER: Duration = Duration::from_secs(1);
/// How long an heir of which lines go to and fro stays when nobody writes any: what it was claimed for may go on.
const TO_AND_FRO_IDLE_AFTER: Duration = Duration::from_secs(600);
/// Heirs that a space may have, at most, for lines to go to and fro: rows that have one stay in memory.
const TO_AND_FRO_MAX: u64 = 4096;
/// When a row asks again for an heir that there was no room for.
const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Heirs that are given up at once for want of room: each may have a row to copy.
pub(crate) const GIVEN_UP_TOGETHER: usize = 16;

/// What is known of an heir while it is one.
struct Live {
    row: Rc<Row>,
    kind: Cell<Kind>,
    /// Lines that it has, as far as they came since it is known.
    taken: Cell<u32>,
    used: Cell<Moment>,
}

/// What an heir is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A stream, behind which it takes the row's place.
    OfStream,
    /// Lines that go to and fro between it and the row (docs/design/0026).
    ToAndFro,
    /// It was there when the pool was opened: lines come to it, and may go back where nothing is in the way.
    Found,
}

impl Live {
    /// How long it may be idle.
    fn idle_after(&self) -> Duration {
        match self.kind.get() {
            Kind::OfStream | Kind::Found => IDLE_AFTER,
            Kind::ToAndFro => TO_AND_FRO_IDLE_AFTER,
        }
    }

    /// Whether streams have brought as many lines as it has.
    fn is_whole(&self) -> bool {
        self.taken.get() >= self.row.shape.column_blocks(self.row.shape.data_columns())
    }
}

/// What is known of the stream that a request belongs to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Followed {
    /// The stream, if it is long enough for heirs and rows that the request touches lack them.
    pub(crate) lacks_heirs: Option<StreamName>,
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

/// The heirs of the rows of a space.
#[derive(Default)]
pub(crate) struct Heirs {
    /// The hidden space that they are in, once there is one.
    space: RefCell<Option<Rc<Space>>>,
    live: RefCell<BTreeMap<u64, Live>>,
    streams: Streams,
    /// Requests that wait for a stream to show itself.
    waiting: Cell<u64>,
    /// Held while one is claimed.
    turn: Turn,
    /// Held while some end.
    pub(crate) ending_turn: Turn,
    /// The row for which there was none the last time.
    refused: Cell<Option<u64>>,
    /// Until then nobody asks for one for single stripes: there was no room.
    lacks_room_until: Cell<Option<Moment>>,
    /// Rows whose heirs are to take their places, and whether somebody is at it.
    pub(crate) wanted: RefCell<BTreeSet<u64>>,
    pub(crate) is_running: Cell<bool>,
    /// Set when the pool is about to be closed: none takes its row's place any more.
    pub(crate) is_ending: Cell<bool>,
    /// Rung when one has, or could not.
    pub(crate) bell: Notify,
}

impl Heirs {
    /// The hidden space.
    pub(crate) fn space(&self) -> Option<Rc<Space>> {
        self.space.borrow().clone()
    }

    /// Notes that there is no hidden space any more.
    pub(crate) fn forget_space(&self) {
        self.space.borrow_mut().take();
    }

    /// Notes that an heir is none any more.
    fn forget(&self, index: u64) {
        self.live.borrow_mut().remove(&index);
        self.refused.set(None);
        self.bell.notify_all();
    }

    /// Rows whose heirs nobody has used for as long as they may be idle.
    pub(crate) fn idle(&self, now: Moment) -> Vec<u64> {
        let live = self.live.borrow();
        let idle = live.iter().filter(|(_, one)| now.since(one.used.get()) >= one.idle_after());
        idle.map(|(index, _)| *index).collect()
    }

    /// Rows whose heirs streams have left.
    fn left_by_streams(&self, now: Moment) -> Vec<u64> {
        let live = self.live.borrow();
        let is_left =
            |one: &Live| one.kind.get() == Kind::OfStream && now.since(one.used.get()) >= WANTED_AFTER;
        live.iter().filter(|(_, one)| is_left(one)).map(|(index, _)| *index).collect()
    }

    /// The rows whose heirs nobody has used for longest, so many at most.
    pub(crate) fn idlest(&self, count: usize) -> Vec<u64> {
        let live = self.live.borrow();
        let mut rows: Vec<(Moment, u64)> = live.iter().map(|(index, one)| (one.used.get(), *index)).collect();
        rows.sort_unstable();
        rows.into_iter().take(count).map(|(_, index)| index).collect()
    }

    /// Notes that none can be had for single stripes now.
    pub(crate) fn note_lack_of_room(&self, now: Moment) {
        self.lacks_room_until.set(Some(now + ASKED_AGAIN_AFTER));
    }

    /// Whether lines of a row may come back from its heir.
    pub(crate) fn goes_to_and_fro(&self, row: &Row) -> bool {
        self.live.borrow().get(&row.index).is_some_and(|one| one.kind.get() != Kind::OfStream)
    }

    /// Waits until the claim under way has ended. One that begins later sees that the space is gone.
    pub(crate) async fn claims_end(&self) {
        drop(self.turn.take().await);
    }

    /// Has no heir take its row's place from now on, and waits for the one that is at it. They stay heirs.
    pub(crate) async fn end(&self) {
        self.is_ending.set(true);
        self.bell.notify_all();
        self.bell.wait_for(|| (!self.is_running.get()).then_some(())).await;
    }

    /// Whether streams have filled the heir of a row.
    fn is_whole(&self, index: u64) -> bool {
        self.live.borrow().get(&index).is_some_and(Live::is_whole)
    }

    /// Rows whose heirs streams have filled.
    fn whole(&self) -> Vec<u64> {
        self.live.borrow().iter().filter(|(_, one)| one.is_whole()).map(|(index, _)| *index).collect()
    }

    /// Rows that have heirs of streams.
    fn of_streams(&self) -> Vec<u64> {
        let live = self.live.borrow();
        live.iter().filter(|(_, one)| one.kind.get() == Kind::OfStream).map(|(index, _)| *index).collect()
    }

    /// How many heirs there are.
    pub(crate) fn count(&self) -> usize {
        self.live.borrow().len()
    }

    /// Notes of those of these rows that have heirs still that these could not take their places now.
    pub(crate) fn put_off(&self, rows: &[u64], now: Moment) {
        let live = self.live.borrow();
        rows.iter().filter_map(|index| live.get(index)).for_each(|one| one.used.set(now));
    }

    fn add(&self, row: Rc<Row>, kind: Kind, now: Moment) {
        let index = row.index;
        let one = Live { row, kind: Cell::new(kind), taken: Cell::new(0), used: Cell::new(now) };
        self.live.borrow_mut().insert(index, one);
    }
}

impl Space {
    /// The row that has a line: the row itself, or its heir.
    pub(crate) async fn home(&self, row: &Rc<Row>, line: u32) -> Result<Rc<Row>, SpaceError> {
        match row.heir() {
            Some(heir) if self.parity_of_heir(&heir, line).await? != BlockState::Never => Ok(heir),
            Some(_) | None => Ok(Rc::clone(row)),
        }
    }

    /// Where a block is in place, and what it holds there: the row or its heir. Both are of one moment, as pages may come from
    /// disks in between.
    pub(crate) async fn in_place(
        &self,
        row: &Rc<Row>,
        (column, line): (usize, u32),
    ) -> Result<(Rc<Row>, BlockState), SpaceError> {
        loop {
            let home = self.home(row, line).await?;
            let state = self.state_of(&home, (column, line)).await?;
            let Some(heir) = row.heir().filter(|_| state == BlockState::Never) else {
                return Ok((home, state));
            };
            let parity = heir.state_in_memory((row.shape.data_columns(), line));
            let is_heirs = parity.is_some_and(|parity| parity != BlockState::Never);
            if parity.is_some() && is_heirs == home.is_heir() {
                return Ok((home, state));
            }
        }
    }

    /// Whether a row has a line itself.
    pub(crate) async fn is_at_home(&self, row: &Rc<Row>, line: u32) -> Result<bool, SpaceError> {
        Ok(Rc::ptr_eq(&self.home(row, line).await?, row))
    }

    pub(crate) async fn parity_of_heir(&self, heir: &Rc<Row>, line: u32) -> Result<BlockState, SpaceError> {
        let (index, entry) = place_in_page(line);
        Ok(self.shared.page(heir, heir.shape.data_columns(), index).await?.state(entry))
    }

    /// What a block of a line is, of which its table says this. Where an heir does not know what parity says of the line, nobody
    /// knows whose the blocks are that it lacks.
    pub(crate) async fn known_state(
        &self,
        row: &Rc<Row>,
        line: u32,
        state: BlockState,
    ) -> Result<BlockState, SpaceError> {
        if state != BlockState::Never || !row.is_heir() {
            return Ok(state);
        }
        Ok(match self.parity_of_heir(row, line).await? {
            BlockState::Damaged => BlockState::Damaged,
            BlockState::Never | BlockState::Valid(_) => state,
        })
    }

    /// Where the stripe that begins at a byte of a row seems to go in place at once: in the row, where it was never written, or in
    /// its heir. `None` where the write cache takes it.
    #[pooled]
    pub(crate) async fn home_of_new(
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
            let home = self.home(row, spot.block).await?;
            let is_never = self.state_of(&home, (spot.column, spot.block)).await? == BlockState::Never;
            Ok(match row.heir() {
                _ if home.is_heir() => self.home_behind_flip(row, spot.block).await?,
                _ if is_never => Some(home),
                heir => heir,
            })
        };
        match found.await {
            // The write cache takes it without having to know.
            Err(SpaceError::Unreadable { .. }) => Ok(None),
            other => other,
        }
    }

    /// A row, if a line of its heir may come back to it.
    async fn home_behind_flip(&self, row: &Rc<Row>, line: u32) -> Result<Option<Rc<Row>>, SpaceError> {
        let parity = (row.shape.data_columns(), line);
        let is_free =
            self.heirs.goes_to_and_fro(row) && self.state_of(row, parity).await? == BlockState::Never;
        Ok(is_free.then(|| Rc::clone(row)))
    }

    /// Notes that whole lines were brought to a row or its heir, from the other one if they went to and fro.
    pub(crate) fn note_moved(&self, row: &Rc<Row>, target: &Rc<Row>, lines: u32, has_flipped: bool) {
        let is_whole = {
            let live = self.heirs.live.borrow();
            let Some(one) =
                live.get(&row.index).filter(|one| row.heir().is_some_and(|heir| heir.id == one.row.id))
            else {
                return;
            };
            one.used.set(self.shared.pool.seams().clock.now());
            one.taken.set(match (target.is_heir(), has_flipped) {
                (true, _) => one.taken.get().saturating_add(lines),
                (false, true) => one.taken.get().saturating_sub(lines),
                (false, false) => return,
            });
            one.is_whole()
        };
        if has_flipped {
            self.shared.count(|counters| counters.lines_flipped += u64::from(lines));
        }
        // The flush and the tables that they wait for are those of all of them.
        let whole = if is_whole { self.heirs.whole() } else { Vec::new() };
        if !whole.is_empty() && whole.len() * 2 >= self.heirs_max(&row.shape) {
            self.take_over_soon(&whole);
        }
    }

    /// How many heirs there may be of rows like this one: more than two while they take little of what is free beside them.
    fn heirs_max(&self, shape: &Shape) -> usize {
        let most = (HEIRS_BYTES_MAX / self.row_bytes())
            .min(self.free_bytes() / SHARE_OF_FREE / self.heir_bytes(shape));
        usize::try_from(most).unwrap_or(usize::MAX).max(HEIRS_USUAL)
    }

    /// What is free beside the room that is kept.
    fn free_bytes(&self) -> u64 {
        let room = self.shared.pool.room();
        room.iter().map(|room| room.free.0.saturating_sub(room.reserve.0)).sum()
    }

    /// What a row of a shape takes, but for its tables.
    fn heir_bytes(&self, shape: &Shape) -> u64 {
        self.row_bytes() / shape.data_columns() as u64 * shape.columns() as u64
    }

    /// Rows whose heirs are to be given up because all heirs take more than is free beside them.
    pub(crate) fn heirs_too_many(&self) -> Vec<u64> {
        let Some(shape) = self.heirs.live.borrow().values().next().map(|one| one.row.shape) else {
            return Vec::new();
        };
        let allowed = self.heirs_allowed(&shape).max(HEIRS_USUAL as u64);
        let surplus = (self.heirs.count() as u64).saturating_sub(allowed);
        self.heirs.idlest(usize::try_from(surplus).unwrap_or(usize::MAX).min(GIVEN_UP_TOGETHER))
    }

    /// Claims an heir for a row to which a request brings a whole stripe over old content that belongs to no stream; not where
    /// that is not to be had now. Called without any lock, ticket or room.
    #[pooled]
    pub(crate) async fn provide_slots(&self, index: u64, within: u64, length: u64) -> Result<(), SpaceError> {
        let lacks = async {
            let Some(row) = self.row(index).await?.filter(|row| row.has_parity()) else { return Ok(None) };
            if row.heir().is_some() || is_hidden(self.id()) {
                return Ok(None);
            }
            let (start, stripe) = stripe_at(&row.shape, within);
            let first = if within > start { start + stripe as u64 } else { start };
            let (_, behind) = stripe_at(&row.shape, first.min(self.row_bytes() - 1));
            let is_whole = first + behind as u64 <= (within + length).min(self.row_bytes());
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
        let lacks_room = || self.heirs.lacks_room_until.get().is_some_and(|until| clock.now() < until);
        if lacks_room() {
            return Ok(());
        }
        let _turn = self.heirs.turn.take().await;
        if row.gone.get() || row.heir().is_some() || lacks_room() {
            return Ok(());
        }
        // One more takes from what is free, and adds to what they take.
        let is_room = self.heirs.count() as u64 + 2 <= self.heirs_allowed(&row.shape);
        if !is_room {
            self.heirs.note_lack_of_room(clock.now());
            return Ok(());
        }
        if self.claim_heir_of(row, Kind::ToAndFro).await? {
            // Whatever was written of it by now may not be flushed.
            let lines = Range { first: 0, count: row.shape.column_blocks(row.shape.data_columns()) };
            row.moved.note(lines, &self.shared);
        }
        Ok(())
    }

    /// Has lines of a row go to and fro that has an heir for a stream; whether they may.
    pub(crate) async fn let_go_to_and_fro(&self, row: &Rc<Row>) -> Result<bool, SpaceError> {
        if !self.may_go_to_and_fro().await? {
            return Ok(false);
        }
        if let Some(one) = self.heirs.live.borrow().get(&row.index)
            && one.kind.replace(Kind::ToAndFro) == Kind::OfStream
        {
            let lines = Range { first: 0, count: row.shape.column_blocks(row.shape.data_columns()) };
            row.moved.note(lines, &self.shared);
        }
        Ok(true)
    }

    /// How many heirs may take as much as is free beside them.
    fn heirs_allowed(&self, shape: &Shape) -> u64 {
        let beside = self.free_bytes() / self.heir_bytes(shape);
        beside.min(TO_AND_FRO_MAX)
    }

    /// A request has come: what is known of its stream. It may wait a moment for that to show. Called without any lock, ticket or room.
    pub(crate) async fn follow(&self, at: u64, length: u64) -> Result<Followed, SpaceError> {
        if length < REQUEST_BYTES_MIN {
            return Ok(Followed::default());
        }
        let stream = self.heirs.streams.note(at, length);
        let lacks_heirs = self.stream_lacks_heirs(at, length, stream).await?;
        let goes_on = self.heirs.streams.of(stream).is_some_and(|(start, end)| end - start > length);
        Ok(Followed { lacks_heirs, goes_on })
    }

    /// The stream, if it is long enough and rows that the request touches lack heirs.
    async fn stream_lacks_heirs(
        &self,
        at: u64,
        length: u64,
        stream: StreamName,
    ) -> Result<Option<StreamName>, SpaceError> {
        let (mut from, end) = (at, at + length);
        while from < end {
            let index = from / self.row_bytes();
            if self.lacks_heir(index, from % self.row_bytes(), stream).await?.is_some() {
                return Ok(self.shows_itself(stream).await.then_some(stream));
            }
            from = (index + 1) * self.row_bytes();
        }
        Ok(None)
    }

    /// The row with this index, if a stream that goes on in it from a byte of it on has use for an heir, and there is none; or
    /// one that a stream has filled before, which is to take the row's place first.
    #[pooled]
    async fn lacks_heir(
        &self,
        index: u64,
        within: u64,
        stream: StreamName,
    ) -> Result<Option<Rc<Row>>, SpaceError> {
        if self.heirs.refused.get() == Some(index) {
            return Ok(None);
        }
        let lacks = async {
            let Some(row) = self.row(index).await?.filter(|row| row.has_parity()) else { return Ok(None) };
            let has_use = row.heir().is_none() || self.heirs.is_whole(index);
            if !has_use || !self.is_stripe_over_old(&row, within).await? {
                return Ok(None);
            }
            let is_late = |from| self.row_bytes() - from < self.row_bytes() / SHARE_OF_ROW;
            // Where the stream has come into the row nobody has written yet: all of it waits for the heir.
            let (start, _) = self.heirs.streams.of(stream).unwrap_or_default();
            let entry = start.saturating_sub(index * self.row_bytes()).min(within);
            let is_early = is_late(within) && !is_late(entry) && self.is_stripe_over_old(&row, entry).await?;
            Ok((is_early || !is_late(within)).then_some(row))
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
        Ok(row.mappings.newest(block).is_none() && self.home_of_new(row, within).await?.is_none())
    }

    /// Whether a request belongs to a stream that is long enough for an heir. It waits a moment for others that are under way.
    #[pooled]
    async fn shows_itself(&self, stream: StreamName) -> bool {
        let Heirs { streams, waiting, .. } = &self.heirs;
        let share = self.row_bytes() / SHARE_OF_ROW;
        let wanted = share.min(LENGTH_ENOUGH.max(share / 2));
        let is_shown = || streams.of(stream).is_some_and(|(start, end)| end - start >= wanted);
        for _ in 0..TURNS {
            if is_shown() {
                return true;
            }
            give_way().await;
        }
        // Where all who are under way wait here, nobody comes.
        let (_waiting, _pause) = (Waiting::new(waiting), self.forming.pause());
        streams.bell.notify_all();
        let shown = streams.bell.wait_for(|| match is_shown() {
            true => Some(true),
            false => (waiting.get() >= self.forming.requests.get()).then_some(false),
        });
        let clock = self.shared.pool.seams().clock.as_ref();
        let shown = within(clock, clock.now() + PATIENCE, shown).await;
        shown.unwrap_or_else(is_shown)
    }

    /// A stream goes on in a row, from a byte of it on: claims an heir for the row if it lacks one, once there may be one more; not
    /// where that is not to be had now. Called without any lock, ticket or room.
    pub(crate) async fn provide_heir(
        &self,
        index: u64,
        within: u64,
        stream: StreamName,
    ) -> Result<(), SpaceError> {
        let Some(row) = self.lacks_heir(index, within, stream).await? else { return Ok(()) };
        // In memory of its own: what it takes would be a part of every write else.
        match Box::pin(self.claim_next(row, within, stream)).await {
            // Whoever writes finds it again, if it concerns it.
            Err(SpaceError::Unreadable { .. }) => Ok(()),
            other => other,
        }
    }

    /// Claims an heir for a row, behind the one that it has if that can take the row's place now.
    async fn claim_next(&self, mut row: Rc<Row>, within: u64, stream: StreamName) -> Result<(), SpaceError> {
        let index = row.index;
        if row.heir().is_some() {
            let is_free = self.take_over_now(&self.heirs.whole(), index).await;
            if !is_free && self.heirs.is_whole(index) {
                self.heirs.refused.set(Some(index));
                return Ok(());
            }
            let Some(again) = self.lacks_heir(index, within, stream).await? else { return Ok(()) };
            row = again;
        }
        self.claim_in_turn(&row, stream).await
    }

    /// Has heirs take the places of their rows, and waits for one of them; whether that is none any more.
    async fn take_over_now(&self, rows: &[u64], awaited: u64) -> bool {
        self.take_over_soon(rows);
        self.heirs.bell.wait_for(|| (!self.heirs.wanted.borrow().contains(&awaited)).then_some(())).await;
        !self.heirs.live.borrow().contains_key(&awaited)
    }

    async fn claim_in_turn(&self, row: &Rc<Row>, stream: StreamName) -> Result<(), SpaceError> {
        let _turn = self.heirs.turn.take().await;
        if row.gone.get() || row.heir().is_some() || self.heirs.refused.get() == Some(row.index) {
            return Ok(());
        }
        if !self.has_place(row, stream).await || !self.claim_heir_of(row, Kind::OfStream).await? {
            self.heirs.refused.set(Some(row.index));
        }
        Ok(())
    }

    /// Whether there are few enough heirs for one more, once those that are whole, and one that the same stream has passed, are
    /// none any more.
    #[pooled]
    async fn has_place(&self, row: &Rc<Row>, stream: StreamName) -> bool {
        loop {
            let live = self.heirs.of_streams();
            let max = self.heirs_max(&row.shape);
            if live.len() < max {
                return true;
            }
            let Some((start, _)) = self.heirs.streams.of(stream) else { return false };
            let idle = self.heirs.left_by_streams(self.shared.pool.seams().clock.now());
            self.take_over_soon(&idle);
            let is_passed = |index: &&u64| **index >= start / self.row_bytes() && **index < row.index;
            let mut chosen = self.heirs.whole();
            if chosen.is_empty() {
                chosen.extend(live.iter().find(is_passed));
            }
            let Some(first) = chosen.first().copied() else { return false };
            if !self.take_over_now(&chosen, first).await && self.heirs.of_streams().len() >= max {
                // It could not be done now.
                return false;
            }
        }
    }

    #[pooled]
    async fn claim_heir_of(&self, row: &Rc<Row>, kind: Kind) -> Result<bool, SpaceError> {
        let pool = &self.shared.pool;
        let mut is_whole = true;
        row.for_each_slab(|_, slab| is_whole &= slab.readable(pool).is_some());
        if !is_whole || self.shared.is_unresolved(row) || !self.may_have_heirs() {
            return Ok(false);
        }
        if kind == Kind::ToAndFro && !self.may_go_to_and_fro().await? {
            return Ok(false);
        }
        let Some(hidden) = self.hidden_for_heirs().await? else { return Ok(false) };
        let Some(heir) = hidden.claim_heir(row).await? else {
            self.heirs.note_lack_of_room(pool.seams().clock.now());
            return Ok(false);
        };
        tracing::debug!(space = %self.name(), row = row.index, "a row has an heir");
        self.shared.count(|counters| counters.heirs_made += 1);
        self.heirs.add(heir, kind, pool.seams().clock.now());
        Ok(true)
    }

    /// Whether rows may have heirs now: not while drafts are made of them, nor do drafts themselves.
    fn may_have_heirs(&self) -> bool {
        self.layout_before().is_none() && !is_hidden(self.id())
    }

    /// The hidden space of heirs, made if there is none; not where the pool cannot say now that there is one.
    #[pooled]
    async fn hidden_for_heirs(&self) -> Result<Option<Rc<Space>>, SpaceError> {
        if let Some(hidden) = self.heirs.space() {
            return Ok(Some(hidden));
        }
        if !self.may_use(FEATURE_HEIRS).await? {
            return Ok(None);
        }
        let pool = &self.shared.pool;
        let mut change = pool.change(Purpose::Claim).await;
        let may_be = !self.gone.get() && self.may_have_heirs();
        let Some(spaces) = self.shared.spaces.borrow().upgrade().filter(|_| may_be) else {
            return Ok(None);
        };
        let id = heirs_of(self.id());
        // Rows of it are where those of its space are, so it has no end of its own.
        let spec = SpaceSpec {
            size: SPACE_BYTES_MAX,
            row: Some(dolmen_units::Bytes(self.row_bytes())),
            provisioning: Provisioning::Thin,
            limits: Limits::default(),
            ..self.spec()
        };
        let layouts = self.layouts.get();
        let hidden = Space::new(Rc::clone(&self.shared), id, spec.clone(), layouts)?;
        change.put(keys::space(id), spec.encode(Standing::Whole, layouts));
        change.commit().await?;
        self.adopt_hidden(&hidden);
        spaces.borrow_mut().insert(id, Rc::clone(&hidden));
        Ok(Some(hidden))
    }

    /// Whether labels say that lines may go to and fro.
    async fn may_go_to_and_fro(&self) -> Result<bool, SpaceError> {
        self.may_use(FEATURE_HEIRS | FEATURE_SLOTS).await
    }

    /// Whether all labels name features of the format; not where the pool cannot say so now.
    #[pooled]
    async fn may_use(&self, features: u64) -> Result<bool, SpaceError> {
        let before = self.shared.stamp();
        match self.shared.pool.require_features(features).await {
            // The next flush behind a change of the epoch says again all that none has covered: it comes while that is little.
            Ok(()) if self.shared.stamp() != before => self.shared.force_flush().await?,
            Ok(()) => {}
            Err(PoolError::Epoch { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Notes the hidden space of heirs.
    pub(crate) fn adopt_hidden(&self, hidden: &Rc<Space>) {
        *self.heirs.space.borrow_mut() = Some(Rc::clone(hidden));
        for (layout, cache) in (0..).zip(&*self.caches.borrow()) {
            if let Some(cache) = cache {
                cache.add_owner(hidden, layout);
            }
        }
    }

    /// Notes the heirs that the map has.
    ///
    /// # Errors
    /// [`SpaceError`] when there is one of a row that is not there, or of another shape.
    #[pooled]
    pub(crate) async fn load_heirs(&self, hidden: &Rc<Space>) -> Result<(), SpaceError> {
        let mut found = Vec::new();
        hidden.for_each_record(|index, record| found.push((index, record.clone()))).await?;
        let now = self.shared.pool.seams().clock.now();
        let may_go = self.shared.pool.features() & FEATURE_SLOTS != 0;
        let kind = if may_go { Kind::Found } else { Kind::OfStream };
        for (index, record) in found {
            let row = self.undecided_row(index).await?.filter(|row| row.shape == record.shape);
            let Some(row) = row else {
                let what = format!("an heir of row {index} of space {} that is of no such row", self.name());
                return Err(PoolError::Corrupt { name: self.shared.pool_name().clone(), what }.into());
            };
            let heir = row.make_heir(record);
            hidden.rows.borrow_mut().insert(index, Some(Rc::clone(&heir)));
            self.shared.count(|counters| counters.heirs_found += 1);
            self.heirs.add(heir, kind, now);
        }
        *self.heirs.space.borrow_mut() = Some(Rc::clone(hidden));
        Ok(())
    }

    /// The heir with this index in a hidden space of heirs, once all that the log says of it and of its row was decided.
    pub(crate) async fn decided_heir(&self, index: u64) -> Result<Option<Rc<Row>>, SpaceError> {
        let owner = self.undecided_row(index).await?.map(|heir| heir.owner());
        let spaces = self.shared.spaces.borrow().upgrade();
        let owner = owner.zip(spaces).and_then(|(owner, spaces)| spaces.borrow().get(&owner).cloned());
        let row = match owner {
            Some(owner) => Box::pin(owner.row(index)).await?,
            None => None,
        };
        Ok(row.and_then(|row| row.heir()))
    }

    /// Notes that a row has no heir any more.
    pub(crate) fn forget_heir(&self, row: &Row) {
        row.forget_heir();
        if let Some(hidden) = self.heirs.space() {
            hidden.rows.borrow_mut().insert(row.index, None);
            hidden.row_count.set(hidden.row_count.get().saturating_sub(1));
            self.shared.forget_row(hidden.id(), row.index);
        }
        self.heirs.wanted.borrow_mut().remove(&row.index);
        self.heirs.forget(row.index);
    }

    /// The error for a line of which nobody can tell now whose it is.
    pub(crate) fn unknown_line(&self, row: &Row, line: u32) -> SpaceError {
        self.shared.unreadable(row, 0, line as usize, UnreadableReason::Damaged)
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
