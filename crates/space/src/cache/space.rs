//! A space in memory: its rows, its write caches and its shadow rows.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

use dolmen_block_io::Instant;
use dolmen_block_io::sync::{AsyncMutex, Notify};
use dolmen_placement::Request;
use dolmen_units::{DiskId, DiskSlot, Epoch, SpaceId};

use crate::cache::drain_settings::WriteCacheDrain;
use crate::cache::gathering::Gathering;
use crate::cache::kept::Kept;
use crate::cache::redo::Redo;
use crate::format::error::SpaceError;
use crate::format::layouts::Layouts;
use crate::format::record::Mapping;
use crate::format::spec::SpaceSpec;
use crate::resources::clients::Clients;
use crate::resources::failed_reads::{FailedRead, FailedReads};
use crate::resources::flow::Flow;
use crate::resources::forming::Forming;
use crate::resources::locks::Range;
use crate::resources::minimum_rate::{MinimumRates, Terms};
use crate::resources::progress::Closing;
use crate::resources::ranks;
use crate::resources::share::Share;
use crate::resources::streams::Streams;
use crate::resources::throttle::Throttle;
use crate::resources::tickets::FlushPoint;
use crate::table::candidates::Unfound;
use crate::table::reserve::Reserve;
use crate::table::row::Row;
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
pub(crate) type AllSpaces = RefCell<BTreeMap<SpaceId, Rc<Space>>>;

/// A space: addresses of its own, laid on the disks of a pool.
pub struct Space {
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
    pub(crate) conversion_shadows: RefCell<Option<Rc<Space>>>,
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
pub fn failed_reads(space: &Space) -> Vec<FailedRead> {
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
    pub(crate) space: RefCell<Option<Rc<Space>>>,
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
    pub(crate) fn space(&self) -> Option<Rc<Space>> {
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
    pub(crate) space: Rc<Space>,
    pub(crate) segments: RefCell<Vec<Segment>>,
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
    pub(crate) owners: RefCell<BTreeMap<SpaceId, Weak<Space>>>,
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
