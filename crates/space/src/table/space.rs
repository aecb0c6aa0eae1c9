//! A space in memory: its rows, its write caches and its shadow rows.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::Meter;
use dolmen_block_io::sync::{AsyncMutex, Notify};
use dolmen_block_io::{DeviceError, Instant};
use dolmen_future_pool::pooled;
use dolmen_mutation::mutation;
use dolmen_placement::Request;
use dolmen_pool::Claim;
use dolmen_pool::{LocalFuture, keys};
use dolmen_units::ALLOCATION_UNIT_BYTES;
use dolmen_units::BLOCK_BYTES;
use dolmen_units::Bytes;
use dolmen_units::Name;
use dolmen_units::RowId;
use dolmen_units::{DiskId, DiskSlot, Epoch, SpaceId};
use smallvec::SmallVec;

use crate::format::error::SpaceError;
use crate::format::ids::{is_hidden, seen_as};
use crate::format::layouts::{Layout, Layouts};
use crate::format::record::{BlockState, Mapping};
use crate::format::resiliency::{Integrity, Resiliency};
use crate::format::spec::{Footprint, Provisioning, SpaceSpec, Standing};
use crate::layout::Spread;
use crate::resources::clients::Clients;
use crate::resources::events::{DataLossEvent, DataLossKind};
use crate::resources::failed_reads::{FailedRead, FailedReads};
use crate::resources::flow::Flow;
use crate::resources::forming::Forming;
use crate::resources::locks::Range;
use crate::resources::minimum_rate::{MinimumRates, Terms};
use crate::resources::progress::Closing;
use crate::resources::ranks;
use crate::resources::ranks::Visibility;
use crate::resources::share::Share;
use crate::resources::streams::Streams;
use crate::resources::throttle::Throttle;
use crate::resources::tickets::{FlushPoint, Held};
use crate::table::candidates::Unfound;
use crate::table::drain_settings::WriteCacheDrain;
use crate::table::gathering::Gathering;
use crate::table::kept::Kept;
use crate::table::pages::TableStore;
use crate::table::redo::Redo;
use crate::table::reserve::Reserve;
use crate::table::row::{BlocksOfRows, Row, RowLaid, RowPlace, RowRecord, parse_place};
use crate::table::row_store::RowStore;

/// List of the spaces of a pool, for a space that needs room or time of others.
#[derive(Default)]
pub(crate) struct SpaceList {
    /// The spaces, once all of them have been loaded.
    pub(crate) spaces: RefCell<Weak<AllSpaces>>,
    /// Minimum rates of spaces, which the others leave to them.
    pub(crate) minimum_rates: MinimumRates,
}

/// All spaces of a pool, the hidden ones among them.
pub(crate) type AllSpaces = RefCell<BTreeMap<SpaceId, Rc<SpaceRows>>>;

/// A space: addresses of its own, laid on the disks of a pool.
pub struct SpaceRows {
    pub(crate) shared: Rc<Shared>,
    pub(crate) list: Rc<SpaceList>,
    pub(crate) id: SpaceId,
    pub(crate) spec: RefCell<SpaceSpec>,
    pub(crate) request: Cell<Request>,
    /// Which layouts its rows have: that of its spec, and while it is converted the one before.
    pub(crate) layouts: Cell<Layouts>,
    pub(crate) row_bytes: u64,
    /// Rows that were looked up; `None` for those that do not exist.
    pub(crate) rows: RefCell<BTreeMap<u64, Option<Rc<Row>>>>,
    pub(crate) claim_mutex: AsyncMutex,
    /// How often rows were dropped from memory.
    pub(crate) drops: Cell<u64>,
    /// Allocation units of each disk that the space has, kept for spans, which fill one disk after another.
    pub(crate) own: RefCell<BTreeMap<DiskSlot, u64>>,
    pub(crate) row_count: Cell<u64>,
    /// Whether it is being deleted, or about to be: nobody may use it, and nobody finds it.
    pub(crate) freed: Cell<bool>,
    /// Whether the map says that it is deleted: nothing brings it back, and its rows are to be freed.
    pub(crate) condemned: Cell<bool>,
    /// Since when it is in the trash, in seconds since 1970: it keeps all that it has, and nobody may use it.
    pub(crate) trashed: Cell<Option<u64>>,
    /// Taken by what changes its size or name, from reading what it is to committing what it is then.
    pub(crate) spec_mutex: AsyncMutex,
    /// Acknowledged blocks that no flush had covered were lost with a disk, and no flush has told so yet.
    pub(crate) lost_unflushed: Cell<bool>,
    /// The write caches of rows of its layouts, by their numbers, where they have one.
    pub(crate) caches: RefCell<[Option<Rc<Cache>>; 2]>,
    /// Held while conversion shadows are made of its rows.
    pub(crate) conversion_mutex: AsyncMutex,
    /// The hidden space that conversion shadow rows are in, while there may be any.
    pub(crate) conversion_shadows: RefCell<Option<Rc<SpaceRows>>>,
    /// Stripes that form from requests under way together.
    pub(crate) forming: Forming,
    /// Rows that are about to take the place of its own.
    pub(crate) shadows: ShadowRows,
    /// What is reserved for it.
    pub(crate) reserve: Reserve,
    /// What it may have, and is to get.
    pub(crate) terms: Rc<Terms>,
    /// Ranges that clients could not read.
    pub(crate) failed_reads: FailedReads,
    /// The space itself, for what goes on behind those who asked for it.
    pub(crate) this: Weak<Self>,
}

/// Returns the ranges of a space that clients could not read, in order of their places.
#[must_use]
pub fn failed_reads(space: &SpaceRows) -> Vec<FailedRead> {
    space.failed_reads.ranges()
}

/// How long a shadow row waits for its stream to go on before it is promoted.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(60);

/// How long it does where another stream wants one.
pub(crate) const WANTED_AFTER: Duration = Duration::from_secs(1);

/// How long a shadow row of which stripes alternate stays when nobody writes any: what it was claimed for may go on.
pub(crate) const TO_AND_FRO_IDLE_AFTER: Duration = Duration::from_secs(600);

/// When a row asks again for a shadow row that there was no room for.
pub(crate) const ASKED_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What is known of a shadow row while it is one.
pub(crate) struct Live {
    pub(crate) row: Rc<Row>,
    pub(crate) kind: Cell<Kind>,
    /// Stripes that it has, as far as they came since it is known.
    pub(crate) taken: Cell<u32>,
    pub(crate) used: Cell<Instant>,
}

impl Live {
    /// How long it may be idle.
    pub(crate) fn idle_after(&self) -> Duration {
        match self.kind.get() {
            Kind::OfStream | Kind::Found => IDLE_AFTER,
            Kind::ToAndFro => TO_AND_FRO_IDLE_AFTER,
        }
    }

    /// Whether streams have brought as many stripes as it has.
    pub(crate) fn is_whole(&self) -> bool {
        self.taken.get() >= self.row.shape.column_blocks(self.row.shape.data_columns())
    }
}

/// What a shadow row is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A stream, behind which it is promoted.
    OfStream,
    /// Alternating stripes between it and the row (docs/design/0026).
    ToAndFro,
    /// It was there when the pool was opened: stripes come to it, and may go back where nothing is in the way.
    Found,
}

/// The shadow rows of the rows of a space.
pub(crate) struct ShadowRows {
    /// The hidden space that they are in, once there is one.
    pub(crate) space: RefCell<Option<Rc<SpaceRows>>>,
    pub(crate) live: RefCell<BTreeMap<u64, Live>>,
    pub(crate) streams: Streams,
    /// Requests that wait for a stream to show itself.
    pub(crate) waiting: Cell<u64>,
    /// Held while one is claimed.
    pub(crate) mutex: AsyncMutex,
    /// Held while some end.
    pub(crate) ending_mutex: AsyncMutex,
    /// The row for which there was none the last time.
    pub(crate) refused: Cell<Option<u64>>,
    /// Until then nobody asks for one for single stripes: there was no room.
    pub(crate) lacks_room_until: Cell<Option<Instant>>,
    /// Rows whose shadow rows are to take their places, and whether somebody is at it.
    pub(crate) wanted: RefCell<BTreeSet<u64>>,
    pub(crate) is_running: Cell<bool>,
    /// Set when the pool is about to be closed: none is promoted any more.
    pub(crate) is_ending: Cell<bool>,
    /// Rung when one has, or could not.
    pub(crate) notify: Notify,
}

impl Default for ShadowRows {
    fn default() -> Self {
        let (space, live, streams, waiting, refused, lacks_room_until) = Default::default();
        let (wanted, is_running, is_ending, notify) = Default::default();
        let (mutex, ending_mutex) = (ranks::shadow_claim(), ranks::shadow_end());
        Self {
            space,
            live,
            streams,
            waiting,
            mutex,
            ending_mutex,
            refused,
            lacks_room_until,
            wanted,
            is_running,
            is_ending,
            notify,
        }
    }
}

impl ShadowRows {
    /// The hidden space.
    pub(crate) fn space(&self) -> Option<Rc<SpaceRows>> {
        self.space.borrow().clone()
    }

    /// Notes that there is no hidden space any more.
    pub(crate) fn forget_space(&self) {
        self.space.borrow_mut().take();
    }

    /// Notes that a shadow row is none any more.
    pub(crate) fn forget(&self, index: u64) {
        self.live.borrow_mut().remove(&index);
        self.refused.set(None);
        self.notify.notify_all();
    }

    /// Rows whose shadow rows nobody has used for as long as they may be idle.
    pub(crate) fn idle(&self, now: Instant) -> Vec<u64> {
        let live = self.live.borrow();
        let idle = live.iter().filter(|(_, one)| now.since(one.used.get()) >= one.idle_after());
        idle.map(|(index, _)| *index).collect()
    }

    /// Rows whose shadow rows streams have left.
    pub(crate) fn left_by_streams(&self, now: Instant) -> Vec<u64> {
        let live = self.live.borrow();
        let is_left =
            |one: &Live| one.kind.get() == Kind::OfStream && now.since(one.used.get()) >= WANTED_AFTER;
        live.iter().filter(|(_, one)| is_left(one)).map(|(index, _)| *index).collect()
    }

    /// The rows whose shadow rows nobody has used for longest, so many at most.
    pub(crate) fn idlest(&self, count: usize) -> Vec<u64> {
        let live = self.live.borrow();
        let mut rows: Vec<(Instant, u64)> =
            live.iter().map(|(index, one)| (one.used.get(), *index)).collect();
        rows.sort_unstable();
        rows.into_iter().take(count).map(|(_, index)| index).collect()
    }

    /// Notes that none can be had for single stripes now.
    pub(crate) fn note_lack_of_room(&self, now: Instant) {
        self.lacks_room_until.set(Some(now + ASKED_AGAIN_AFTER));
    }

    /// Whether stripes of a row may come back from its shadow row.
    pub(crate) fn alternates(&self, row: &Row) -> bool {
        self.live.borrow().get(&row.index).is_some_and(|one| one.kind.get() != Kind::OfStream)
    }

    /// Waits until the claim under way has ended. One that begins later sees that the space is gone.
    pub(crate) async fn claims_end(&self) {
        drop(self.mutex.take().await);
    }

    /// Promotes no shadow row from now on, and waits for the promotion under way. They stay shadow rows.
    pub(crate) async fn end(&self) {
        self.is_ending.set(true);
        self.notify.notify_all();
        self.notify.wait_for(|| (!self.is_running.get()).then_some(())).await;
    }

    /// Whether streams have filled the shadow row of a row.
    pub(crate) fn is_whole(&self, index: u64) -> bool {
        self.live.borrow().get(&index).is_some_and(Live::is_whole)
    }

    /// Rows whose shadow rows streams have filled.
    pub(crate) fn whole(&self) -> Vec<u64> {
        self.live.borrow().iter().filter(|(_, one)| one.is_whole()).map(|(index, _)| *index).collect()
    }

    /// Rows that have shadow rows of streams.
    pub(crate) fn of_streams(&self) -> Vec<u64> {
        let live = self.live.borrow();
        live.iter().filter(|(_, one)| one.kind.get() == Kind::OfStream).map(|(index, _)| *index).collect()
    }

    /// How many shadow rows there are.
    pub(crate) fn count(&self) -> usize {
        self.live.borrow().len()
    }

    /// Notes of those of these rows that have shadow rows still that these could not take their places now.
    pub(crate) fn put_off(&self, rows: &[u64], now: Instant) {
        let live = self.live.borrow();
        rows.iter().filter_map(|index| live.get(index)).for_each(|one| one.used.set(now));
    }

    pub(crate) fn add(&self, row: Rc<Row>, kind: Kind, now: Instant) {
        let index = row.index;
        let one = Live { row, kind: Cell::new(kind), taken: Cell::new(0), used: Cell::new(now) };
        self.live.borrow_mut().insert(index, one);
    }
}

/// What a cache row is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// It can be filled.
    Free,
    /// It is being filled.
    Open,
    /// It is full, and some of it lives.
    Full,
    /// Nothing of it has lived since a moment. Once a flush has covered that, it can be discarded.
    Drained(FlushPoint),
    /// It was discarded before a moment. Once a flush has covered that, it can be filled again.
    Discarded(FlushPoint),
    /// It is empty, is never filled again, and goes as soon as that is durable.
    Leaving,
}

/// A cache row.
pub(crate) struct Segment {
    pub(crate) row: Rc<Row>,
    pub(crate) state: State,
    /// Blocks of it, from the first on, that may have been written since it was discarded.
    pub(crate) filled: u32,
    /// Blocks that hold the only newest version of something.
    pub(crate) live: u32,
    /// Whose blocks were written to it, in order: rows, and blocks of them that follow each other.
    pub(crate) contents: Vec<(Rc<Row>, Range)>,
    /// Whether it is to go: it counts for nobody who looks for room, and is filled only where no other row can be.
    pub(crate) is_retiring: bool,
}

impl Segment {
    pub(crate) fn new(row: Rc<Row>, state: State) -> Self {
        Self { row, state, filled: 0, live: 0, contents: Vec::new(), is_retiring: false }
    }
}

/// The write cache for spaces of one redundancy.
pub(crate) struct Cache {
    pub(crate) space: Rc<SpaceRows>,
    pub(crate) segments: RefCell<Vec<Segment>>,
    /// The segment of each row.
    pub(crate) segment_of_row: RefCell<BTreeMap<RowId, usize>>,
    /// Full ones, oldest first, but for those that are to go: they come before.
    pub(crate) full: RefCell<VecDeque<usize>>,
    /// The one that is being filled by writes, and the one with parity that is being put in place.
    pub(crate) open: [Cell<Option<usize>>; 2],
    /// Blocks promised to writes that are about to begin, and versions promised to these and to discards.
    pub(crate) reserved: Cell<u64>,
    pub(crate) promised: Cell<u64>,
    /// Versions in memory.
    pub(crate) versions: Cell<u64>,
    /// The strict spaces that it is for, those with parity among them.
    pub(crate) owners: RefCell<BTreeMap<SpaceId, Weak<SpaceRows>>>,
    /// Rows with blocks in the cache.
    pub(crate) rows: RefCell<BTreeMap<(SpaceId, u64), Rc<Row>>>,
    /// Stripes that may be half in place, for want of columns.
    pub(crate) unfinished: RefCell<Vec<Redo>>,
    /// Stripes that are recorded and not in place yet, but for those that were abandoned meanwhile.
    pub(crate) recorded: RefCell<Vec<Redo>>,
    /// What the log has to say of versions that came to nothing, before their places are filled again; with their checksums.
    pub(crate) declared_lost: RefCell<Vec<(Mapping, u32)>>,
    pub(crate) notify: Notify,
    /// Held while stripes are put in place, and while a checkpoint relogs what is cached.
    pub(crate) mutex: AsyncMutex,
    pub(crate) is_running: Cell<bool>,
    /// Rung to end a pause of that.
    pub(crate) hurry: Rc<Notify>,
    pub(crate) drain: Cell<WriteCacheDrain>,
    pub(crate) waiting: Cell<u64>,
    pub(crate) gathering: Gathering,
    pub(crate) kept: Kept,
    /// How many tries to empty it have begun.
    pub(crate) tries: Cell<u64>,
    /// Why the last of them came to nothing, and which it was.
    pub(crate) stuck: RefCell<Option<(u64, SpaceError)>>,
    /// Disks on which what was put in place in this round found no room below; and what that is to whoever waits.
    pub(crate) backing_full: RefCell<BTreeSet<DiskSlot>>,
    /// Whether stripes were left in this round until rows have the copies that they lack.
    pub(crate) waits_for_copies: Cell<bool>,
    /// Rows that could not be brought to other disks under this epoch, by their numbers.
    pub(crate) not_brought: RefCell<(Epoch, BTreeSet<u64>)>,
    /// Since when some row lacks copies that it could have.
    pub(crate) lacks_since: Cell<Option<Instant>>,
    pub(crate) lacks_room: RefCell<Option<SpaceError>>,
    /// Whether it came to nothing while others were about to write what they had reserved: that may be what can be put in place.
    pub(crate) waits_for_others: Cell<bool>,
    /// Held while its size is changed.
    pub(crate) size_mutex: AsyncMutex,
    /// Whether it is being deleted.
    pub(crate) is_deleting: Cell<bool>,
    /// What was cached since the pool was opened, and what was put in place.
    pub(crate) filled: Flow,
    pub(crate) destaged: Flow,
}

/// What decides blocks in doubt, keeps the log short and gives jobs their memory, for all spaces of a pool.
pub(crate) struct Shared {
    /// The rows, on which all of this works.
    pub(crate) rows: RowStore,
    /// What upper layers do for those below them.
    pub(crate) upper: &'static dyn UpperLayers,
    /// What was just found to have no good copy, unless a write cache has it.
    pub(crate) unfound: RefCell<Vec<Unfound>>,
    /// Who may have been told of writes before the pool was opened.
    pub(crate) clients: Cell<Clients>,
    /// Spaces that have nothing on members that are away, as they were looked at when a disk had left for the last time (its
    /// seating), and that have claimed nothing there since.
    pub(crate) nothing_on: RefCell<BTreeMap<DiskId, (u64, BTreeSet<SpaceId>)>>,
    /// How often something was claimed on a member that is away.
    pub(crate) claims_on_absent: Cell<u64>,
    pub(crate) resolve_mutex: AsyncMutex,
    /// The row that is being decided, and whether blocks of it were left in doubt again meanwhile.
    pub(crate) deciding: Cell<Option<((SpaceId, u64), bool)>>,
    /// Held while decisions are made durable, for all that were taken before.
    pub(crate) durability_mutex: AsyncMutex,
    /// Held by write-backs from the moment on that they look at what is in doubt and at what pages say, and while slabs get the
    /// places of lost ones: what a write-back relogs and writes is of the slabs that a row had then.
    pub(crate) write_back_mutex: AsyncMutex,
    /// Held while slabs are filled until they are trusted: who fills one begins with zeros where its tables are.
    pub(crate) refill_mutex: AsyncMutex,
    /// The same for looks at the copies of blocks that are decided.
    pub(crate) looks: Share,
    /// The same for stripes with parity that are put in place: on the way, blocks may have to be decided.
    pub(crate) lines: Share,
    /// How hard jobs work while clients do.
    pub(crate) throttle: Throttle,
    /// A part of the medium frames, for parity of fresh stripes.
    pub(crate) stripes: Share,
    /// Another part of them, for runs that are copied to slabs.
    pub(crate) refills: Share,
    /// A part of the large frames, for pieces that are copied to conversion shadows.
    pub(crate) conversion_shadows: Share,
    pub(crate) closing: Closing,
    /// Write caches.
    pub(crate) caches: RefCell<Vec<Weak<Cache>>>,
}

impl SpaceRows {
    /// What is reserved for it.
    #[must_use]
    pub fn reserve(&self) -> Bytes {
        self.reserve.bytes.get()
    }

    /// Whether people made it, and may use it.
    pub(crate) fn is_in_use(&self) -> bool {
        !is_hidden(self.id()) && self.check_stays().is_ok()
    }

    /// Since when it is in the trash, in seconds since 1970 by the clock of the host that put it there. None as soon as
    /// somebody deletes it for good, and again where that could not be done.
    #[must_use]
    pub fn trashed_at(&self) -> Option<u64> {
        self.trashed.get().filter(|_| !self.freed.get())
    }

    /// Notes that the map says that it is deleted.
    pub(crate) fn note_condemned(&self) {
        self.freed.set(true);
        self.condemned.set(true);
        self.trashed.set(None);
    }

    pub(crate) fn new(
        shared: Rc<Shared>,
        list: Rc<SpaceList>,
        id: SpaceId,
        spec: SpaceSpec,
        layouts: Layouts,
    ) -> Result<Rc<Self>, SpaceError> {
        let request = spec.check()?;
        let row_bytes = spec.row_bytes().0;
        shared.note_name(id, spec.name.clone());
        let clock = &shared.pool.seams().clock;
        let terms = Rc::new(Terms::new(id, Meter::new(Rc::clone(clock))));
        terms.set(spec.limits, clock.now());
        let visibility = if is_hidden(id) { Visibility::Hidden } else { Visibility::User };
        Ok(Rc::new_cyclic(|this| Self {
            shared,
            list,
            id,
            spec: RefCell::new(spec),
            request: Cell::new(request),
            layouts: Cell::new(layouts),
            row_bytes,
            rows: RefCell::default(),
            claim_mutex: ranks::claim(),
            drops: Cell::default(),
            own: RefCell::default(),
            row_count: Cell::new(0),
            freed: Cell::new(false),
            condemned: Cell::new(false),
            trashed: Cell::new(None),
            spec_mutex: ranks::spec(id, visibility),
            lost_unflushed: Cell::new(false),
            caches: RefCell::default(),
            conversion_mutex: ranks::conversion(id, visibility),
            conversion_shadows: RefCell::default(),
            forming: Forming::default(),
            shadows: ShadowRows::default(),
            reserve: Reserve::default(),
            terms,
            failed_reads: FailedReads::default(),
            this: Weak::clone(this),
        }))
    }

    /// Its number in the pool.
    #[must_use]
    pub fn id(&self) -> SpaceId {
        self.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> Name {
        // Shadow rows and conversion shadows are of a space that people see.
        match seen_as(self.id) == self.id {
            true => self.spec.borrow().name.clone(),
            false => self.shared.name_of(self.id),
        }
    }

    /// What it is.
    #[must_use]
    pub fn spec(&self) -> SpaceSpec {
        self.spec.borrow().clone()
    }

    /// The value of its key, with what it is to be.
    pub(crate) fn encode(&self, spec: &SpaceSpec, standing: Standing) -> Vec<u8> {
        spec.encode(standing, self.layouts.get())
    }

    /// What those of its rows have that are not laid as it says now, while there may be any.
    #[must_use]
    pub fn layout_before(&self) -> Option<Layout> {
        self.layouts.get().before
    }

    /// How its rows of a layout survive the loss of disks.
    pub(crate) fn resiliency_of(&self, layout: u8) -> Resiliency {
        let layouts = self.layouts.get();
        match layouts.before.filter(|_| layout != layouts.now) {
            Some(before) => before.resiliency,
            None => self.spec.borrow().resiliency,
        }
    }

    /// How flushed content of its rows of a layout is written over.
    pub(crate) fn integrity_of(&self, layout: u8) -> Integrity {
        let layouts = self.layouts.get();
        match layouts.before.filter(|_| layout != layouts.now) {
            Some(before) => before.integrity,
            None => self.spec.borrow().integrity,
        }
    }

    /// How it lays its rows of a layout.
    pub(crate) fn laid_of(&self, layout: u8) -> RowLaid {
        RowLaid { layout, resiliency: self.resiliency_of(layout), integrity: self.integrity_of(layout) }
    }

    /// The place of its row with this index, as records have it.
    pub(crate) fn place_of(&self, index: u64) -> RowPlace {
        RowPlace { space: seen_as(self.id), index }
    }

    /// The write caches that its rows need, by the number of their layout.
    pub(crate) fn write_caches(&self) -> impl Iterator<Item = (u8, u8)> + use<> {
        let layouts = self.layouts.get();
        let now = self.spec.borrow().write_cache().map(|redundancy| (layouts.now, redundancy));
        let before = layouts.before.and_then(Layout::write_cache);
        now.into_iter().chain(before.map(|redundancy| (1 - layouts.now, redundancy)))
    }

    /// The write cache of a row, if what is written over it goes through one.
    pub(crate) fn cache_of(&self, row: &Row) -> Option<Rc<Cache>> {
        self.caches.borrow().get(usize::from(row.laid().layout)).cloned().flatten()
    }

    /// The write caches of its rows, each once.
    pub(crate) fn caches(&self) -> SmallVec<[Rc<Cache>; 2]> {
        let mut caches: SmallVec<[Rc<Cache>; 2]> = self.caches.borrow().iter().flatten().cloned().collect();
        caches.dedup_by(|one, other| Rc::ptr_eq(one, other));
        caches
    }

    /// Its size.
    #[must_use]
    pub fn size(&self) -> Bytes {
        self.spec.borrow().size
    }

    /// Bytes of its rows.
    #[must_use]
    pub fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// Room that its rows could hold: what a thin space has claimed.
    #[must_use]
    pub fn claimed(&self) -> Bytes {
        Bytes(self.row_count.get() * self.row_bytes)
    }

    /// Refuses what is asked of a space that is being deleted, or is in the trash.
    pub(crate) fn check_stays(&self) -> Result<(), SpaceError> {
        match (self.freed.get(), self.trashed.get()) {
            (true, _) => Err(SpaceError::Deleted { name: self.name() }),
            (false, Some(_)) => Err(SpaceError::Trashed { name: self.name() }),
            (false, None) => Ok(()),
        }
    }

    /// Checks a range against the size. It may begin and end at any byte.
    pub(crate) fn check_range(&self, at: u64, length: u64) -> Result<(), SpaceError> {
        self.check_stays()?;
        self.check_bounds(at, length)
    }

    /// The same, also of a space that nobody may use.
    pub(crate) fn check_bounds(&self, at: u64, length: u64) -> Result<(), SpaceError> {
        let spec = self.spec.borrow();
        if at.checked_add(length).is_some_and(|end| end <= spec.size.0) {
            return Ok(());
        }
        Err(SpaceError::Range { name: spec.name.clone(), at, length: Bytes(length), size: spec.size })
    }

    /// The row with this index, if it exists, whatever the log says of it.
    pub(crate) async fn in_doubt_row(&self, index: u64) -> Result<Option<Rc<Row>>, SpaceError> {
        let record = loop {
            if let Some(row) = self.rows.borrow().get(&index) {
                if let Some(row) = row {
                    row.used.set(true);
                }
                return Ok(row.clone());
            }
            let drops = self.drops.get();
            let found = self.record_at(index).await;
            // What somebody else made of the row meanwhile is in memory, unless it was dropped again.
            if self.drops.get() == drops {
                break found?;
            }
        };
        // Somebody else may have looked it up, or claimed it, meanwhile.
        let mut rows = self.rows.borrow_mut();
        let row = rows.entry(index).or_insert_with(|| record.map(|record| Row::new(self.id, index, record)));
        let row = row.clone();
        if rows.len() > ROWS_MAX {
            let before = rows.len();
            let dropped = drop_idle(&mut rows, |index| self.reserve.doubt(index));
            if rows.len() < before {
                self.drops.set(self.drops.get() + 1);
            }
            self.shared.page_count.set(self.shared.page_count.get().saturating_sub(dropped));
        }
        Ok(row)
    }

    /// What the map says of the row with this index, if it exists.
    async fn record_at(&self, index: u64) -> Result<Option<RowRecord>, SpaceError> {
        let mut named = None;
        loop {
            let Some(place) = self.shared.pool.map().get(&keys::place(self.id, index)).await? else {
                return Ok(None);
            };
            let id = parse_place(&place).map_err(|_| self.impossible_row(index))?;
            if let Some(value) = self.shared.pool.map().get(&keys::row(id)).await? {
                return self.parse_row(index, id, &value).map(Some);
            }
            // Another row may have come into the place between the two looks; one that names no row twice is damage.
            if named.replace(id) == Some(id) {
                return Err(self.impossible_row(index));
            }
        }
    }

    fn impossible_row(&self, index: u64) -> SpaceError {
        let what = format!("an impossible row {index} of space {}", self.name());
        dolmen_pool::PoolError::Corrupt { name: self.shared.pool_name().clone(), what }.into()
    }

    fn parse_row(&self, index: u64, id: RowId, value: &[u8]) -> Result<RowRecord, SpaceError> {
        let record = RowRecord::parse(value).ok();
        let is_here = |record: &RowRecord| {
            let is_named = record.id == id && record.place == self.place_of(index);
            is_named && record.bytes() == Bytes(self.row_bytes)
        };
        let may_be = |record: &RowRecord| {
            is_here(record) && (self.is_on_disks(record) || mutation!(SlabBeyondItsDisk))
        };
        record.filter(may_be).ok_or_else(|| self.impossible_row(index))
    }

    /// Whether the slabs of a row end where their disks do, as far as these are here.
    fn is_on_disks(&self, record: &RowRecord) -> bool {
        record.columns.iter().flatten().all(|slab| {
            let extent = self.shared.pool.disk(slab.disk).and_then(|disk| disk.extent());
            let units = extent.map_or(u64::MAX, |extent| extent.unit_count());
            slab.runs.iter().all(|run| run.first.saturating_add(run.count) <= units)
        })
    }

    /// How many allocation units its slabs take, by the bytes of data in them.
    pub(crate) fn slab_units(&self) -> impl Fn(Bytes) -> u64 + Copy + use<> {
        let spec = self.spec.borrow();
        spec.resiliency.slab_units(spec.interleave)
    }

    pub(crate) fn note_own(&self, claims: &[Claim]) {
        let mut own = self.own.borrow_mut();
        for claim in claims {
            *own.entry(claim.slot).or_insert(0) += claim.runs.iter().map(|run| run.count).sum::<u64>();
        }
    }

    /// A span fills the disk that it has most on; what it has is counted once.
    pub(crate) async fn load_own(&self) -> Result<(), SpaceError> {
        if self.spec.borrow().resiliency.layout().spread() != Spread::DiskByDisk
            || !self.own.borrow().is_empty()
        {
            return Ok(());
        }
        let mut own: BTreeMap<DiskSlot, u64> = BTreeMap::new();
        self.for_each_record(|_, record| {
            for slab in record.columns.iter().flatten() {
                *own.entry(slab.disk).or_insert(0) += slab.runs.iter().map(|run| run.count).sum::<u64>();
            }
        })
        .await?;
        *self.own.borrow_mut() = own;
        Ok(())
    }

    /// What a row had that is free counts no more.
    pub(crate) fn forget_own(&self, record: &RowRecord) {
        let mut own = self.own.borrow_mut();
        for slab in record.columns.iter().flatten() {
            if let Some(units) = own.get_mut(&slab.disk) {
                *units = units.saturating_sub(slab.runs.iter().map(|run| run.count).sum());
            }
        }
    }

    /// Calls back for every row that exists, in order, as the metadata has it.
    pub(crate) async fn for_each_record(
        &self,
        mut action: impl FnMut(u64, &RowRecord),
    ) -> Result<(), SpaceError> {
        const STEP: usize = 256;
        let mut from = Some(0);
        while let Some(first) = from {
            from = self.for_next_records(first, STEP, &mut action).await?;
        }
        Ok(())
    }

    /// Calls back for the next rows that exist from an index on, in order, so many at most. Returns the index to go on from;
    /// `None` where there is none behind them.
    pub(crate) async fn for_next_records(
        &self,
        from: u64,
        max: usize,
        action: &mut impl FnMut(u64, &RowRecord),
    ) -> Result<Option<u64>, SpaceError> {
        let found = self.shared.pool.map().scan(keys::places(self.id, from..u64::MAX), max).await?;
        let (count, mut next) = (found.len(), from);
        for (key, _) in found {
            let (_, _, index) = keys::parts(&key);
            // One that was freed since is none any more.
            if let Some(record) = self.record_at(index).await? {
                action(index, &record);
            }
            next = index + 1;
        }
        Ok((count == max).then_some(next))
    }

    /// Drops idle table pages of its rows.
    pub(crate) fn trim_pages(&self) {
        let rows: Vec<Rc<Row>> = self.rows.borrow().values().flatten().cloned().collect();
        TableStore::of(&self.shared).trim_pages(rows.iter());
    }

    /// Whether its rows are claimed when first written.
    #[must_use]
    pub fn is_thin(&self) -> bool {
        self.spec.borrow().provisioning == Provisioning::Thin
    }

    /// What its rows take on all disks.
    ///
    /// # Errors
    /// When the metadata cannot be read.
    #[pooled]
    pub async fn footprint(&self) -> Result<Footprint, SpaceError> {
        let (mut units, mut blocks, mut rows) = (0, 0, 0);
        self.for_each_record(|_, record| {
            rows += 1;
            for (column, slabs) in record.columns.iter().enumerate() {
                blocks += slabs.len() as u64 * u64::from(record.shape.column_blocks(column));
                units += slabs.iter().flat_map(|slab| &slab.runs).map(|run| run.count).sum::<u64>();
            }
        })
        .await?;
        // Rows that are about to take the place of its own are further copies of them.
        let conversion_shadows = self.conversion_shadows.borrow().clone();
        for hidden in self.shadows.space().into_iter().chain(conversion_shadows) {
            let add = |_: u64, record: &RowRecord| {
                let columns = (0..record.shape.columns()).map(|column| record.shape.column_blocks(column));
                blocks += columns.map(u64::from).sum::<u64>();
                let slabs = record.columns.iter().flatten().flat_map(|slab| &slab.runs);
                units += slabs.map(|run| run.count).sum::<u64>();
            };
            hidden.for_each_record(add).await?;
        }
        let of_blocks = Bytes(blocks * BLOCK_BYTES);
        Ok(Footprint {
            total: Bytes(units * ALLOCATION_UNIT_BYTES),
            redundancy: of_blocks.saturating_sub(Bytes(rows * self.row_bytes)),
        })
    }

    /// Notes what has come of a block, for people to read.
    pub(crate) fn note(&self, row: &Row, row_block: u32, kind: DataLossKind) {
        let at = row.index * self.row_bytes() + u64::from(row_block) * BLOCK_BYTES;
        self.shared.note_data_loss(DataLossEvent { space: self.id(), at, length: Bytes(BLOCK_BYTES), kind });
    }

    /// Whether something that is written to it goes to a write cache first.
    pub(crate) fn has_cache(&self) -> bool {
        self.caches.borrow().iter().any(Option::is_some)
    }
}

/// Rows of one space that are kept in memory before idle ones are dropped.
pub(crate) const ROWS_MAX: usize = 8 * 1024;

/// Drops rows that nobody uses, each of which is told; how many pages went with them.
pub(crate) fn drop_idle(rows: &mut BTreeMap<u64, Option<Rc<Row>>>, mut dropped: impl FnMut(u64)) -> usize {
    let mut pages = 0;
    rows.retain(|index, row| match row {
        None => false,
        Some(row) => {
            let has_more = !row.mappings.is_empty() || row.shadow().is_some();
            let is_needed = row.dirty.get() || !row.is_formatted() || has_more;
            let busy = Rc::strong_count(row) > 1 || is_needed;
            let keep = busy || row.used.replace(false);
            if !keep {
                pages += row.pages().len();
                dropped(*index);
            }
            keep
        }
    });
    pages
}

/// A write that failed on some copies, for what decides between its old and its new content.
pub(crate) struct FailedWrite<'a> {
    /// States of its blocks, by column and block.
    pub(crate) blocks: &'a [(usize, u32, BlockState)],
    /// Disks that failed it, and how.
    pub(crate) failed: &'a [(DiskSlot, DeviceError)],
    /// The ticket under which it was recorded.
    pub(crate) held: &'a Held,
}

/// Work of upper layers that lower ones start: decisions about blocks in doubt, and jobs in the background.
pub(crate) trait UpperLayers {
    /// Keeps what the log says of blocks, and logs it again, so that no flush counts them in.
    fn defer<'a>(&self, shared: &'a Shared, blocks: BlocksOfRows) -> LocalFuture<'a, Result<(), SpaceError>>;
    /// Defers those blocks of ranges of a row that are out of reach. The caller holds their lock and their ticket.
    fn defer_absent<'a>(
        &self,
        shared: &'a Shared,
        row: &'a Rc<Row>,
        ranges: Vec<(usize, Range)>,
    ) -> LocalFuture<'a, Result<(), SpaceError>>;
    /// Brings a failed write to its old content or to its new one.
    fn resolve_failed_write<'a>(
        &self,
        space: &'a SpaceRows,
        row: &'a Rc<Row>,
        write: FailedWrite<'a>,
    ) -> LocalFuture<'a, Result<(), SpaceError>>;
    /// Destages a write cache until it has room.
    fn destage(&self, cache: Weak<Cache>) -> LocalFuture<'static, ()>;
    /// Promotes the shadow rows of a space that are wanted.
    fn promote(&self, space: Weak<SpaceRows>) -> LocalFuture<'static, ()>;
}
