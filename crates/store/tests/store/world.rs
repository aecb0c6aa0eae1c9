//! Disks that record their commands and fail when asked to, and a store on them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_block_io::{
    Action, BlockDevice, Command, Completions, DeviceError, Executor, Geometry, IoCounters, MemoryClock,
    MemoryDevice, Outcome, Payload, Seams, Submission, fixed_entropy,
};
use dolmen_buffer::{Arena, ArenaConfig};
use dolmen_store::{Anchor, Area, Key, Opened, PAGE_BYTES, Replica, Store, StoreError, StoreOptions};
use dolmen_units::{Bytes, DiskId, Epoch, PoolId};

pub(crate) const POOL: PoolId = PoolId([0xd0; 16]);
pub(crate) const TOKEN: Epoch = Epoch(1);
pub(crate) const CHECKPOINT_AT: u64 = 0;
pub(crate) const PAGES_AT: u64 = 64 * 1024;
pub(crate) type Content = BTreeMap<Key, Vec<u8>>;

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Write { disk: usize, at: usize, bytes: Vec<u8> },
    Flush { disk: usize },
}

/// A disk whose content is one vector.
pub(crate) struct TestDisk {
    index: usize,
    geometry: Geometry,
    completions: Rc<Completions>,
    pub(crate) image: RefCell<Vec<u8>>,
    pub(crate) events: Rc<RefCell<Vec<Event>>>,
    /// The write or flush, counted from now, that fails, and how; later ones fail as well while `lasting`.
    pub(crate) fail_in: Cell<Option<(u64, DeviceError)>>,
    pub(crate) lasting: Cell<bool>,
    /// Whether reads wait for [`finish_one_read`](Self::finish_one_read).
    pub(crate) slow_reads: Cell<bool>,
    waiting: RefCell<Vec<(dolmen_block_io::CompletionKey, Command)>>,
    pub(crate) reads_fail: Cell<Option<DeviceError>>,
    pub(crate) held: RefCell<Option<Vec<(dolmen_block_io::CompletionKey, Command)>>>,
    counters: Cell<IoCounters>,
}

impl TestDisk {
    pub(crate) fn new(index: usize, image: Vec<u8>, events: &Rc<RefCell<Vec<Event>>>) -> Rc<Self> {
        let geometry = MemoryDevice::new("model", Bytes(image.len() as u64)).geometry();
        Rc::new(Self {
            index,
            geometry,
            completions: Completions::new(),
            image: RefCell::new(image),
            events: Rc::clone(events),
            fail_in: Cell::default(),
            lasting: Cell::default(),
            slow_reads: Cell::default(),
            waiting: RefCell::default(),
            reads_fail: Cell::default(),
            held: RefCell::default(),
            counters: Cell::default(),
        })
    }

    pub(crate) fn flip_bit(&self, at: u64) {
        self.image.borrow_mut()[usize::try_from(at).unwrap()] ^= 0x10;
    }

    fn verdict(&self, action: &Action) -> Result<(), DeviceError> {
        self.geometry.check_action(action)?;
        if let Action::Read { .. } = action {
            return self.reads_fail.get().map_or(Ok(()), Err);
        }
        match self.fail_in.get() {
            Some((0, error)) => {
                if !self.lasting.get() {
                    self.fail_in.set(None);
                }
                Err(error)
            }
            Some((left, error)) => {
                self.fail_in.set(Some((left - 1, error)));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn perform(&self, action: Action) -> Outcome {
        let result = self.verdict(&action);
        let payload = match action {
            Action::Read { at, mut into } => {
                if result.is_ok() {
                    let at = usize::try_from(at).unwrap();
                    let length = into.len();
                    into.copy_from_slice(&self.image.borrow()[at..at + length]);
                }
                Payload::Buffer(into)
            }
            Action::Write { at, from, .. } => {
                if result.is_ok() {
                    let at = usize::try_from(at).unwrap();
                    self.image.borrow_mut()[at..at + from.len()].copy_from_slice(&from);
                    let bytes = from.to_vec();
                    self.events.borrow_mut().push(Event::Write { disk: self.index, at, bytes });
                }
                Payload::Shared(from)
            }
            Action::Flush => {
                if result.is_ok() {
                    self.events.borrow_mut().push(Event::Flush { disk: self.index });
                }
                Payload::None
            }
            Action::Discard { .. } | Action::WriteZeroes { .. } => {
                panic!("the store neither discards nor zeroes")
            }
        };
        Outcome { result, payload }
    }

    /// Lets one of the reads that wait happen.
    pub(crate) fn finish_one_read(&self, pick: usize) {
        let count = self.waiting.borrow().len();
        assert!(count > 0, "nothing can move any more");
        let (key, command) = self.waiting.borrow_mut().remove(pick.min(count - 1));
        let outcome = self.perform(command.action);
        self.completions.complete(key, outcome);
    }

    /// Lets the writes that were held back happen, in order.
    pub(crate) fn release(&self) {
        for (key, command) in self.held.take().unwrap_or_default() {
            let outcome = self.perform(command.action);
            self.completions.complete(key, outcome);
        }
    }
}

impl BlockDevice for TestDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }
    fn name(&self) -> String {
        format!("test disk {}", self.index)
    }
    fn submit(&self, command: Command) -> Submission {
        IoCounters::note(&self.counters, &command.action);
        let reads = matches!(command.action, Action::Read { .. });
        if let (Some(held), false) = (self.held.borrow_mut().as_mut(), reads) {
            let (key, submission) = self.completions.begin();
            held.push((key, command));
            return submission;
        }
        if reads && self.slow_reads.get() {
            let (key, submission) = self.completions.begin();
            self.waiting.borrow_mut().push((key, command));
            return submission;
        }
        let outcome = self.perform(command.action);
        self.completions.ready(outcome)
    }
    fn fence(&self, _epoch: Epoch) {}
    fn counters(&self) -> IoCounters {
        self.counters.get()
    }
}

/// Disks and an executor.
pub(crate) struct World {
    pub(crate) executor: Rc<Executor>,
    pub(crate) seams: Seams,
    pub(crate) area: Area,
    pub(crate) disks: Vec<Rc<TestDisk>>,
    pub(crate) events: Rc<RefCell<Vec<Event>>>,
}

pub(crate) fn disk_id(index: usize) -> DiskId {
    DiskId([u8::try_from(index + 1).unwrap(); 16])
}

pub(crate) fn arena() -> Arena {
    Arena::new(ArenaConfig { small_count: 8, medium_count: 8, large_count: 2 })
}

impl World {
    pub(crate) fn blank(disks: usize, pages: usize) -> Self {
        Self::on((0..disks).map(|_| vec![0; 64 * 1024 + pages * PAGE_BYTES]).collect(), &arena())
    }

    pub(crate) fn on(images: Vec<Vec<u8>>, arena: &Arena) -> Self {
        let executor = Executor::new();
        let pages_length = images[0].len() as u64 - PAGES_AT;
        let area = Area { checkpoint_at: CHECKPOINT_AT, pages_at: PAGES_AT, pages_length };
        let events = Rc::default();
        let disks = images
            .into_iter()
            .enumerate()
            .map(|(index, image)| TestDisk::new(index, image, &events))
            .collect();
        let seams = Seams {
            clock: MemoryClock::new(),
            entropy: fixed_entropy(1),
            spawner: Rc::clone(&executor) as Rc<dyn dolmen_block_io::Spawner>,
            data: arena.clone(),
            metadata: arena.clone(),
        };
        Self { executor, seams, area, disks, events }
    }

    pub(crate) fn replica(&self, index: usize) -> Replica {
        Replica { disk: disk_id(index), device: Rc::clone(&self.disks[index]) as Rc<dyn BlockDevice> }
    }

    pub(crate) fn replicas(&self) -> Vec<Replica> {
        (0..self.disks.len()).map(|index| self.replica(index)).collect()
    }

    pub(crate) fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.executor.block_on(future).expect("nothing waits for ever")
    }

    pub(crate) fn format(&self) {
        let (seams, area, replicas) = (self.seams.clone(), self.area, self.replicas());
        self.run(async move { Store::format(&seams, TOKEN, POOL, area, &replicas, anchor(0)).await })
            .unwrap();
    }

    pub(crate) fn try_open(
        &self,
        members: &[usize],
        cache: usize,
    ) -> Result<(Rc<Store>, Opened), StoreError> {
        let replicas: Vec<Replica> = members.iter().map(|index| self.replica(*index)).collect();
        let (seams, area) = (self.seams.clone(), self.area);
        let options = StoreOptions { cache_pages_max: cache };
        self.run(async move { Store::open(&seams, TOKEN, POOL, area, &replicas, options).await })
    }

    pub(crate) fn open(&self) -> Rc<Store> {
        let all: Vec<usize> = (0..self.disks.len()).collect();
        self.try_open(&all, 64).unwrap().0
    }

    /// Opens, expects a clean check and returns everything.
    pub(crate) fn content(&self, store: &Rc<Store>) -> Result<Content, StoreError> {
        let store = Rc::clone(store);
        self.run(async move { content(&store).await })
    }

    pub(crate) fn checkpoint(&self, store: &Rc<Store>, number: u8) {
        self.try_checkpoint(store, number).unwrap();
    }

    pub(crate) fn try_checkpoint(
        &self,
        store: &Rc<Store>,
        number: u8,
    ) -> Result<(), dolmen_store::CheckpointError> {
        let store = Rc::clone(store);
        self.run(async move { store.checkpoint(anchor(number)).await })
    }

    pub(crate) fn check(&self, store: &Rc<Store>) -> Vec<dolmen_store::Finding> {
        let store = Rc::clone(store);
        self.run(async move {
            store.heals_done().await;
            store.check().await
        })
    }

    pub(crate) fn get(&self, store: &Rc<Store>, key: Key) -> Result<Option<Vec<u8>>, StoreError> {
        let store = Rc::clone(store);
        self.run(async move { store.get(&key).await }).map(|value| value.map(|value| value.to_vec()))
    }

    pub(crate) fn images(&self) -> Vec<Vec<u8>> {
        self.disks.iter().map(|disk| disk.image.borrow().clone()).collect()
    }
}

pub(crate) async fn content(store: &Store) -> Result<Content, StoreError> {
    let mut all = Content::new();
    let mut start = Key::MIN;
    loop {
        let part = store.scan(start..Key::MAX, 97).await?;
        let Some((last, _)) = part.last() else { return Ok(all) };
        start = last.next().unwrap();
        all.extend(part.into_iter().map(|(key, value)| (key, value.to_vec())));
    }
}

pub(crate) fn anchor(number: u8) -> Anchor {
    Anchor([number; 64])
}

/// A key whose order is scattered against its number.
pub(crate) fn key(number: u64) -> Key {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bytes[16..].copy_from_slice(&number.to_be_bytes());
    Key(bytes)
}

/// Keys in the order of their numbers.
pub(crate) fn row(number: u64) -> Key {
    let mut bytes = [0; 24];
    bytes[16..].copy_from_slice(&number.to_be_bytes());
    Key(bytes)
}

/// A value that tells its key and version.
pub(crate) fn value(number: u64, version: u8, length: usize) -> Vec<u8> {
    (0..length).map(|index| version ^ u8::try_from((number as usize + index) % 251).unwrap()).collect()
}
