//! A disk that remembers what is not flushed, can hold completions back, fail, and lose power.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dolmen_block_io::{
    Action, BlockDevice, Command, CompletionKey, Completions, DeviceError, Durability, Geometry, IoCounters,
    Outcome, Payload, Submission, Zoning,
};
use dolmen_units::{Bytes, Epoch};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    InFlight(Durability),
    Cached,
    Durable,
}

struct Written {
    at: usize,
    bytes: Vec<u8>,
    rest: Rest,
}

struct Held {
    key: CompletionKey,
    write: usize,
    payload: Payload,
}

/// What may be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cut {
    /// Power: any part of what was not flushed.
    Power,
    /// The process: any part of what was not complete.
    Process,
}

pub(super) struct TestDisk {
    name: String,
    completions: Rc<Completions>,
    /// What the medium holds for certain.
    base: RefCell<Vec<u8>>,
    /// What was written since, in order.
    written: RefCell<Vec<Written>>,
    held: RefCell<Vec<Held>>,
    pub(super) holding: Cell<bool>,
    pub(super) failing: Cell<Option<DeviceError>>,
    /// Blocks that the medium does not give.
    pub(super) unreadable: RefCell<Vec<u64>>,
    counters: Cell<IoCounters>,
}

impl TestDisk {
    pub(super) fn new(number: u8, bytes: u64) -> Rc<Self> {
        Rc::new(Self {
            name: format!("disk {number}"),
            completions: Completions::new(),
            base: RefCell::new(vec![0; usize::try_from(bytes).unwrap()]),
            written: RefCell::default(),
            held: RefCell::default(),
            holding: Cell::new(false),
            failing: Cell::new(None),
            unreadable: RefCell::default(),
            counters: Cell::default(),
        })
    }

    pub(super) fn content(&self) -> Vec<u8> {
        let mut content = self.base.borrow().clone();
        for write in self.written.borrow().iter() {
            content[write.at..write.at + write.bytes.len()].copy_from_slice(&write.bytes);
        }
        content
    }

    /// Changes the medium behind everybody's back.
    pub(super) fn damage(&self, change: impl FnOnce(&mut [u8])) {
        let mut content = self.content();
        self.written.borrow_mut().clear();
        change(&mut content);
        *self.base.borrow_mut() = content;
    }

    pub(super) fn held_count(&self) -> usize {
        self.held.borrow().len()
    }

    /// Completes one command that was held back.
    pub(super) fn release(&self, index: usize) {
        let held = self.held.borrow_mut().remove(index);
        let result = self.finish(held.write);
        self.completions.complete(held.key, Outcome { result, payload: held.payload });
    }

    pub(super) fn release_all(&self) {
        while self.held_count() > 0 {
            self.release(0);
        }
    }

    fn finish(&self, write: usize) -> Result<(), DeviceError> {
        if let Some(error) = self.failing.get() {
            return Err(error);
        }
        let mut written = self.written.borrow_mut();
        let Some(write) = written.get_mut(write) else { return Ok(()) };
        write.rest = match write.rest {
            Rest::InFlight(Durability::Durable) => Rest::Durable,
            _ => Rest::Cached,
        };
        Ok(())
    }

    /// What a flush does to the writes that are complete.
    pub(super) fn make_durable(&self) {
        for write in self.written.borrow_mut().iter_mut().filter(|write| write.rest == Rest::Cached) {
            write.rest = Rest::Durable;
        }
    }

    /// Keeps what must be kept, and of the rest those blocks that `keep` wants.
    pub(super) fn cut(&self, cut: Cut, mut keep: impl FnMut() -> bool) {
        for held in self.held.borrow_mut().drain(..) {
            self.completions
                .complete(held.key, Outcome { result: Err(DeviceError::Detached), payload: held.payload });
        }
        let mut base = self.base.borrow_mut();
        for write in self.written.borrow_mut().drain(..) {
            let certain = match write.rest {
                Rest::Durable => true,
                Rest::Cached => cut == Cut::Process,
                Rest::InFlight(_) => false,
            };
            for (at, block) in (write.at..).step_by(4096).zip(write.bytes.chunks(4096)) {
                if certain || keep() {
                    base[at..at + block.len()].copy_from_slice(block);
                }
            }
        }
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let end = at + into.len() as u64;
        if self.unreadable.borrow().iter().any(|block| (at..end).contains(block)) {
            return Err(DeviceError::Medium { errno: 5 });
        }
        let at = usize::try_from(at).unwrap();
        into.copy_from_slice(&self.content()[at..at + into.len()]);
        Ok(())
    }
}

impl BlockDevice for TestDisk {
    fn geometry(&self) -> Geometry {
        Geometry {
            capacity: Bytes(self.base.borrow().len() as u64),
            logical_block_bytes: 4096,
            physical_block_bytes: 4096,
            optimal_io_bytes: 0,
            atomic_write_bytes: 4096,
            volatile_cache: true,
            fua: true,
            discard_granularity_bytes: None,
            thin: false,
            rotational: false,
            zoning: Zoning::None,
            shareable: false,
        }
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn submit(&self, command: Command) -> Submission {
        IoCounters::note(&self.counters, &command.action);
        if let Err(error) = self.geometry().check_action(&command.action) {
            panic!("{}: {error} in {:?}", self.name, command.action);
        }
        match command.action {
            Action::Read { at, mut into } => {
                let gone = self.failing.get().filter(|error| *error == DeviceError::Detached);
                let result = gone.map_or_else(|| self.read(at, &mut into), Err);
                self.completions.ready(Outcome { result, payload: Payload::Buffer(into) })
            }
            Action::Write { at, from, durability } => {
                let at = usize::try_from(at).unwrap();
                let mut written = self.written.borrow_mut();
                written.push(Written { at, bytes: from.to_vec(), rest: Rest::InFlight(durability) });
                let write = written.len() - 1;
                drop(written);
                let payload = Payload::Shared(from);
                if self.holding.get() {
                    let (key, submission) = self.completions.begin();
                    self.held.borrow_mut().push(Held { key, write, payload });
                    return submission;
                }
                self.unreadable.borrow_mut().clear();
                let result = self.finish(write);
                self.completions.ready(Outcome { result, payload })
            }
            Action::Flush => {
                let result = self.failing.get().map_or(Ok(()), Err);
                if result.is_ok() {
                    self.make_durable();
                }
                self.completions.ready(Outcome { result, payload: Payload::None })
            }
            Action::Discard { .. } | Action::WriteZeroes { .. } => self
                .completions
                .ready(Outcome { result: Err(DeviceError::Unsupported), payload: Payload::None }),
        }
    }

    fn fence(&self, _: Epoch) {}

    fn counters(&self) -> IoCounters {
        self.counters.get()
    }
}
