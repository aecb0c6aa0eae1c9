//! The state of a write cache in memory: its segments, what is live in them, and its locks.

use std::cell::Cell;
use std::cell::RefCell;
use std::rc::Rc;

use dolmen_block_io::sync::Notify;
use dolmen_future_pool::pooled;
use dolmen_units::BLOCK_BYTES;
use dolmen_units::SpaceId;

use crate::format::error::SpaceError;
use crate::format::record::Place;
use crate::layout::BLOCK;
use crate::resources::flow::Flow;
use crate::resources::ranks;
use crate::resources::tickets::FlushPoint;
use crate::table::drain_settings::WriteCacheDrain;
use crate::table::gathering::Gathering;
use crate::table::kept::Kept;
use crate::table::row::Row;
use crate::table::space::{Cache, Segment, Shared, SpaceRows, State};

impl Cache {
    /// The cache in the rows of a space, once these were recovered. What they hold is noted afterwards.
    #[pooled]
    pub(crate) async fn start(space: Rc<SpaceRows>) -> Result<Rc<Self>, SpaceError> {
        let count = space.size().0 / space.row_bytes();
        // As much memory as there is for small pieces of metadata, beside that.
        let kept = space.shared.pool.seams().metadata.frame_count(BLOCK);
        let of_row = u32::try_from(space.row_bytes() / BLOCK_BYTES).unwrap_or(u32::MAX);
        let drain = WriteCacheDrain::read(&space.shared.pool, space.id()).await?;
        let mut segments = Vec::new();
        for index in 0..count {
            let Some(row) = space.in_doubt_row(index).await? else { continue };
            segments.push(Segment::new(row, State::Drained(FlushPoint::default())));
        }
        let mutex = ranks::cache(space.id());
        let this = Rc::new(Self {
            space,
            segments: RefCell::new(segments),
            segment_of_row: RefCell::default(),
            full: RefCell::default(),
            open: Default::default(),
            reserved: Cell::new(0),
            promised: Cell::new(0),
            versions: Cell::new(0),
            owners: RefCell::default(),
            rows: RefCell::default(),
            unfinished: RefCell::default(),
            recorded: RefCell::default(),
            declared_lost: RefCell::default(),
            notify: Notify::new(),
            mutex,
            is_running: Cell::new(false),
            hurry: Rc::default(),
            drain: Cell::new(drain),
            waiting: Cell::new(0),
            gathering: Gathering::default(),
            kept: Kept::new(kept, of_row),
            tries: Cell::new(0),
            stuck: RefCell::default(),
            backing_full: RefCell::default(),
            waits_for_copies: Cell::new(false),
            not_brought: RefCell::default(),
            lacks_since: Cell::new(None),
            lacks_room: RefCell::default(),
            waits_for_others: Cell::new(false),
            size_mutex: ranks::cache_size(),
            is_deleting: Cell::new(false),
            filled: Flow::default(),
            destaged: Flow::default(),
        });
        this.note_segments();
        Ok(this)
    }

    /// Returns the segment in which a place is.
    pub(crate) fn segment_of(&self, place: Place) -> Option<usize> {
        self.segment_of_row.borrow().get(&place.row).copied()
    }

    /// Returns the row of the cache in which a place is; none where the cache has no such row any more.
    pub(crate) fn row_of(&self, place: Place) -> Option<Rc<Row>> {
        self.row_at(self.segment_of(place)?)
    }

    /// Notes which segment each row is, once segments came or went.
    pub(crate) fn note_segments(&self) {
        let segments = self.segments.borrow();
        let by_row = segments.iter().enumerate().map(|(at, segment)| (segment.row.id, at));
        *self.segment_of_row.borrow_mut() = by_row.collect();
    }

    /// The space that its rows are of.
    pub(crate) fn space(&self) -> &Rc<SpaceRows> {
        &self.space
    }

    /// Notes a space that it is for, for rows of one of its layouts.
    pub(crate) fn add_owner(self: &Rc<Self>, space: &Rc<SpaceRows>, layout: u8) {
        self.owners.borrow_mut().insert(space.id(), Rc::downgrade(space));
        if let Some(cache) = space.caches.borrow_mut().get_mut(usize::from(layout)) {
            *cache = Some(Rc::clone(self));
        }
    }

    /// Notes that a space has no rows any more that it is for.
    pub(crate) fn forget_owner(&self, space: SpaceId) {
        self.owners.borrow_mut().remove(&space);
    }

    /// The space that it is for and that has this number.
    pub(crate) fn owner(&self, id: SpaceId) -> Option<Rc<SpaceRows>> {
        self.owners.borrow().get(&id)?.upgrade()
    }

    pub(crate) fn shared(&self) -> &Rc<Shared> {
        &self.space.shared
    }

    /// The row of the cache that has this number among them.
    pub(crate) fn row_at(&self, at: usize) -> Option<Rc<Row>> {
        self.segments.borrow().get(at).map(|segment| Rc::clone(&segment.row))
    }
}
