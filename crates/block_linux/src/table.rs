//! The entries of requests under way, each with the memory, the file and the waiter of one request.

use std::rc::Rc;
use std::task::Waker;

use dolmen_block_io::{CompletionKey, Instant};

use crate::driver::RequestKey;
use crate::reactor::OpenFile;
use crate::work::Work;

/// The receiver of the answer.
pub(crate) enum Waiter {
    Device(CompletionKey),
    Future(Option<Waker>),
    /// Nobody any more.
    Abandoned,
}

pub(crate) struct Operation {
    pub(crate) file: Rc<OpenFile>,
    pub(crate) work: Work,
    pub(crate) done: usize,
    pub(crate) again: u32,
    pub(crate) deadline: Option<Instant>,
    pub(crate) waiter: Waiter,
}

pub(crate) enum State {
    Free,
    UnderWay(Operation),
    Done(Work, i32),
}

pub(crate) struct Entry {
    generation: u32,
    pub(crate) state: State,
}

/// What is left to do for a finished request once the table is not borrowed any more.
pub(crate) struct Finished {
    pub(crate) file: Rc<OpenFile>,
    pub(crate) waker: Option<Waker>,
    /// The command of a disk to complete, if somebody waits, and what it carried.
    pub(crate) reported: Option<(Option<CompletionKey>, Work)>,
}

#[derive(Default)]
pub(crate) struct Table {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl Table {
    pub(crate) fn insert(&mut self, state: State) -> RequestKey {
        let index = self.free.pop().unwrap_or_else(|| {
            let Ok(index) = u32::try_from(self.entries.len()) else { panic!("too many requests under way") };
            self.entries.push(Entry { generation: 0, state: State::Free });
            index
        });
        let Some(entry) = self.entries.get_mut(index as usize) else {
            panic!("an index of the table is in it")
        };
        // Never zero: the driver has user data of its own below the first generation.
        entry.generation = entry.generation.wrapping_add(1).max(1);
        entry.state = state;
        RequestKey(u64::from(entry.generation) << 32 | u64::from(index))
    }

    pub(crate) fn entry(&mut self, key: RequestKey) -> &mut Entry {
        let index = usize::try_from(key.0 & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        let Some(entry) = self.entries.get_mut(index) else { panic!("a key names an entry of the table") };
        assert!(u64::from(entry.generation) == key.0 >> 32, "a request is answered once");
        entry
    }

    pub(crate) fn operation(&mut self, key: RequestKey) -> &mut Operation {
        let State::UnderWay(operation) = &mut self.entry(key).state else {
            panic!("a request is answered once")
        };
        operation
    }

    /// Empties an entry.
    pub(crate) fn take(&mut self, key: RequestKey) -> State {
        let state = std::mem::replace(&mut self.entry(key).state, State::Free);
        let Ok(index) = u32::try_from(key.0 & u64::from(u32::MAX)) else { panic!("half a key fits 32 bits") };
        self.free.push(index);
        state
    }

    /// Ends a request; its entry stays for a future that waits for it.
    pub(crate) fn finish(&mut self, key: RequestKey, last: i32) -> Finished {
        let State::UnderWay(operation) = self.take(key) else { panic!("a request is answered once") };
        operation.file.note_answer();
        let Operation { file, work, waiter, .. } = operation;
        match waiter {
            Waiter::Future(waker) => {
                self.free.pop();
                self.entry(key).state = State::Done(work, last);
                Finished { file, waker, reported: None }
            }
            Waiter::Device(device) => Finished { file, waker: None, reported: Some((Some(device), work)) },
            Waiter::Abandoned => Finished { file, waker: None, reported: Some((None, work)) },
        }
    }

    pub(crate) fn under_way(&self) -> impl Iterator<Item = (RequestKey, &Operation)> {
        self.entries.iter().zip(0u64..).filter_map(|(entry, index)| match &entry.state {
            State::UnderWay(operation) => {
                Some((RequestKey(u64::from(entry.generation) << 32 | index), operation))
            }
            State::Free | State::Done(..) => None,
        })
    }
}
