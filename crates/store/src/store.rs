//! The store in memory, and everything that needs no disk.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::{Rc, Weak};

use dolmen_block_io::Seams;
use dolmen_block_io::ranks::Rank;
use dolmen_block_io::sync::{AsyncMutex, Notify};
use dolmen_units::{DiskId, Epoch, PoolId};

use crate::bitmap::Bitmap;
use crate::block::Checkpoint;
use crate::cache::Cache;
use crate::format::BODY_BYTES;
use crate::key::{Key, Value};
use crate::merge::{finish_pages, last_pages};
use crate::overlay::Overlay;
use crate::page::VALUE_BYTES_MAX;
use crate::replica::{Area, Port, Replica, ReplicaSet};

/// The place of a store's mutex in the order of locks: above those of the pool.
const MUTEX_RANK: Rank = Rank::new(62, "metadata store");
/// The least cache: a path from the root to a leaf, twice.
const CACHE_PAGES_MIN: usize = 16;

/// How a store behaves in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreOptions {
    /// Pages of 16 KiB that the cache may hold; 16 at least.
    pub cache_pages_max: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { cache_pages_max: 4096 }
    }
}

/// What a store holds and has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreStats {
    /// The checkpoint that stands.
    pub sequence: u64,
    /// Keys in the tree, without the overlay.
    pub entries: u64,
    /// Levels of the tree.
    pub height: usize,
    /// Pages in use.
    pub pages_used: u64,
    /// Pages of the area.
    pub pages_total: u64,
    /// Pages in the cache.
    pub cache_pages: usize,
    /// Look-ups of pages that the cache answered.
    pub cache_hits: u64,
    /// Pages read from disks, each replica counted.
    pub page_reads: u64,
    /// Pages written by checkpoints, counted once for all replicas.
    pub page_writes: u64,
    /// Damaged pages rewritten on a replica.
    pub pages_healed: u64,
    /// Damaged pages that could not be rewritten.
    pub heals_failed: u64,
    /// Checkpoints made.
    pub checkpoints: u64,
}

/// Room for checkpoints. While `pages_free` is at least `pages_needed_max`, a checkpoint is made in one go. While it is at
/// least `pages_part`, one that does not fit is made in parts, and goes on for as long as what is put has room in the end:
/// so ordinary claims leave that, and what others may add to the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Pages of the area.
    pub pages_total: u64,
    /// Pages that a checkpoint may write.
    pub pages_free: u64,
    /// Pages that a checkpoint of the changes so far may take, at most.
    pub pages_needed_max: u64,
    /// Pages with which a checkpoint in parts takes some changes at least.
    pub pages_part: u64,
    /// Pages of the tree.
    pub pages_tree: u64,
    /// Pages that the keys and values of the changes so far add to the tree, at most.
    pub pages_new_max: u64,
}

/// What is free, and what must not be touched yet.
pub(crate) struct Space {
    pub(crate) used: Bitmap,
    /// Pages of a checkpoint of which nobody knows whether it would be opened after a crash.
    pub(crate) doubtful: Option<Bitmap>,
    pub(crate) cursor: u64,
    /// The number of the next attempt: the other slot than that of the checkpoint that stands.
    pub(crate) sequence_next: u64,
}

/// The map. Cheap handles are made by sharing the [`Rc`] that [`Store::open`] returns.
pub struct Store {
    pub(crate) me: Weak<Self>,
    pub(crate) seams: Seams,
    pub(crate) pool: PoolId,
    pub(crate) area: Area,
    pub(crate) set: RefCell<ReplicaSet>,
    pub(crate) tree: RefCell<Rc<Checkpoint>>,
    /// Checkpoints that readers may still be in.
    pub(crate) older: RefCell<Vec<Weak<Checkpoint>>>,
    pub(crate) space: RefCell<Space>,
    pub(crate) overlay: RefCell<Overlay>,
    /// Counts the moves of changes between the layers and the tree.
    pub(crate) moves: Cell<u64>,
    pub(crate) cache: RefCell<Cache>,
    pub(crate) counters: Cell<StoreStats>,
    pub(crate) heals_under_way: Cell<u64>,
    /// One checkpoint, copy or check at a time.
    pub(crate) mutex: AsyncMutex,
    pub(crate) notify: Rc<Notify>,
}

/// Keeps a checkpoint's pages from being reused.
pub(crate) struct Pin {
    tree: Option<Rc<Checkpoint>>,
    notify: Rc<Notify>,
}

impl Pin {
    pub(crate) fn tree(&self) -> &Checkpoint {
        match &self.tree {
            Some(tree) => tree,
            None => unreachable!("a pin holds its tree until it is dropped"),
        }
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        Self { tree: self.tree.clone(), notify: Rc::clone(&self.notify) }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.tree = None;
        self.notify.notify_all();
    }
}

impl Store {
    pub(crate) fn assemble(
        seams: Seams,
        port: &Port,
        set: ReplicaSet,
        tree: Checkpoint,
        used: Bitmap,
        options: StoreOptions,
    ) -> Rc<Self> {
        let space = Space { used, doubtful: None, cursor: 0, sequence_next: tree.sequence + 1 };
        Rc::new_cyclic(|me| Self {
            me: me.clone(),
            seams,
            pool: port.pool,
            area: port.area,
            set: RefCell::new(set),
            tree: RefCell::new(Rc::new(tree)),
            older: RefCell::default(),
            space: RefCell::new(space),
            overlay: RefCell::default(),
            moves: Cell::default(),
            cache: RefCell::new(Cache::new(options.cache_pages_max.max(CACHE_PAGES_MIN))),
            counters: Cell::default(),
            heals_under_way: Cell::default(),
            mutex: AsyncMutex::ranked(MUTEX_RANK.single()),
            notify: Rc::new(Notify::new()),
        })
    }

    /// Sets a key's value. In memory only: the caller's log repeats it after a crash, until a checkpoint covers it.
    ///
    /// # Panics
    /// When the value is longer than [`VALUE_BYTES_MAX`].
    pub fn put(&self, key: Key, value: &[u8]) {
        assert!(
            value.len() <= VALUE_BYTES_MAX,
            "a value has at most {VALUE_BYTES_MAX} bytes, not {}",
            value.len()
        );
        self.overlay.borrow_mut().set(key, Some(Value::new(value)));
    }

    /// Removes a key; nothing happens when it is not there. In memory only, as [`put`](Self::put).
    pub fn delete(&self, key: Key) {
        self.overlay.borrow_mut().set(key, None);
    }

    /// Bytes that the changes since the last checkpoint take in memory, about.
    #[must_use]
    pub fn overlay_bytes(&self) -> usize {
        self.overlay.borrow().bytes()
    }

    /// Says who the replicas are from now on, and in whose name they are written. A disk that is new here, or that failed,
    /// counts as stale until [`heal_stale`](Self::heal_stale) or the next checkpoint has brought it up to date; one that
    /// [`copy_to`](Self::copy_to) has filled since the last checkpoint does not. A checkpoint that is being made is
    /// finished on the disks that it began with.
    ///
    /// # Panics
    /// When there is none.
    pub fn set_replicas(&self, token: Epoch, replicas: Vec<Replica>) {
        assert!(!replicas.is_empty(), "a store has a replica");
        self.set.borrow_mut().replace(token, replicas);
    }

    /// Replicas that lack the newest checkpoint, or of which nobody knows.
    #[must_use]
    pub fn stale(&self) -> Vec<DiskId> {
        let sequence = self.tree.borrow().sequence;
        self.set.borrow().stale(sequence).iter().map(|replica| replica.disk).collect()
    }

    /// What the store holds and has done.
    #[must_use]
    pub fn stats(&self) -> StoreStats {
        let (tree, space) = (self.tree.borrow(), self.space.borrow());
        StoreStats {
            sequence: tree.sequence,
            entries: tree.entries,
            height: tree.root.map_or(0, |root| usize::from(root.level) + 1),
            pages_used: space.used.used(),
            pages_total: space.used.pages(),
            cache_pages: self.cache.borrow().len(),
            ..self.counters.get()
        }
    }

    /// Room for the next checkpoint.
    ///
    /// The bound: a change touches one page on each level, and a page that becomes too small takes one neighbour with it;
    /// pages are split so that two hold no less than one could, and new bytes fill new pages to two fifths at least.
    #[must_use]
    pub fn room(&self) -> Room {
        let stats = self.stats();
        let space = self.space.borrow();
        let blocked =
            space.doubtful.as_ref().map_or(0, |doubtful| doubtful.without(&space.used).count() as u64);
        let (changes, bytes) = self.overlay.borrow().load();
        let (changes, bytes, levels) = (changes as u64, bytes as u64, stats.height as u64 + 1);
        let bitmaps = self.tree.borrow().bitmaps.len() as u64;
        let pages_tree = stats.pages_used - bitmaps.min(stats.pages_used);
        let touched = (2 * changes * levels).min(pages_tree);
        let new = bytes.div_ceil(BODY_BYTES as u64) * 5 / 2;
        Room {
            pages_total: stats.pages_total,
            pages_free: stats.pages_total - stats.pages_used - blocked,
            pages_needed_max: touched * 9 / 4
                + new
                + new / 100
                + 2 * levels
                + bitmaps
                + last_pages(levels, bitmaps),
            pages_part: finish_pages(stats.height as u64, bitmaps),
            pages_tree,
            pages_new_max: new + new / 100,
        }
    }

    pub(crate) fn pin(&self) -> Pin {
        Pin { tree: Some(Rc::clone(&self.tree.borrow())), notify: Rc::clone(&self.notify) }
    }

    pub(crate) fn port(&self) -> Port {
        let token = self.set.borrow().token;
        Port { arena: self.seams.metadata.clone(), token, pool: self.pool, area: self.area }
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut StoreStats)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    pub(crate) fn note_move(&self) {
        self.moves.set(self.moves.get() + 1);
    }

    /// Runs `work` as a task of its own and waits for it: dropping the wait leaves the work whole.
    pub(crate) async fn as_task<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        name: &'static str,
        work: impl FnOnce(Rc<Self>) -> F,
    ) -> T {
        let Some(store) = self.me.upgrade() else { unreachable!("a store lives while it is called") };
        let work = work(store);
        let done = Rc::new((Cell::new(None), Notify::new()));
        let into = Rc::clone(&done);
        let task = async move {
            into.0.set(Some(work.await));
            into.1.notify_all();
        };
        self.seams.spawner.spawn(name, Box::pin(task));
        done.1.wait_for(|| done.0.take()).await
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("pool", &self.pool)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}
