//! Streams: requests that go on where others ended, recognised by the order in which they arrive (docs/design/0007).
//!
//! Whoever has many requests under way gives them in about the order of their addresses, and they end in any. So what counts is
//! that they have come, and requests that come before others of lower addresses wait for these here.
//!
//! Left to others: what is done for a stream (`shadow_rows`).

use std::cell::{Cell, RefCell};

use dolmen_block_io::sync::Notify;
use smallvec::SmallVec;

/// Streams of a space that are followed, at most.
const STREAMS_MAX: usize = 8;
/// Requests that may come before the one that a stream goes on with.
const AHEAD_MAX: usize = 32;
/// A stream that so many requests have not gone on with is over.
const FORGOTTEN_AFTER: u64 = 1024;

/// Which stream it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StreamName(u64);

/// Requests that go on where others ended.
#[derive(Debug, Clone)]
struct Stream {
    name: StreamName,
    start: u64,
    end: u64,
    /// What came before its turn: first bytes and ends, in order.
    ahead: SmallVec<[(u64, u64); 8]>,
    /// The number of the last request of it.
    last: u64,
}

impl Stream {
    /// Whether a request goes on with it, or will when others have come. What lies before its end has come: whoever writes there
    /// begins again.
    fn takes(&self, at: u64, end: u64) -> bool {
        let reach = (end - at).saturating_mul(AHEAD_MAX as u64);
        end == self.start || (at >= self.end && at <= self.end.saturating_add(reach))
    }

    fn add(&mut self, at: u64, end: u64) {
        if end == self.start {
            self.start = at;
        } else if at > self.end {
            let after = self.ahead.partition_point(|(other, _)| *other < at);
            if self.ahead.len() < AHEAD_MAX {
                self.ahead.insert(after, (at, end));
            }
        } else {
            self.end = self.end.max(end);
        }
        while let Some((first, end)) = self.ahead.first().copied().filter(|(first, _)| *first <= self.end) {
            debug_assert!(first >= self.start, "what is ahead is behind the start");
            self.end = self.end.max(end);
            self.ahead.remove(0);
        }
    }
}

/// The streams of a space.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: RefCell<SmallVec<[Stream; STREAMS_MAX]>>,
    /// Counts requests.
    count: Cell<u64>,
    /// Rung with each of them.
    pub(crate) notify: Notify,
}

impl Streams {
    /// A request has come; the stream that it belongs to, if only as its first.
    pub(crate) fn note(&self, at: u64, length: u64) -> StreamName {
        let (end, number) = (at.saturating_add(length), self.count.get() + 1);
        self.count.set(number);
        let mut streams = self.streams.borrow_mut();
        streams.retain(|stream| number - stream.last <= FORGOTTEN_AFTER);
        let name = match streams.iter_mut().find(|stream| stream.takes(at, end)) {
            Some(stream) => {
                stream.add(at, end);
                stream.last = number;
                stream.name
            }
            None => {
                let name = StreamName(number);
                let by_age = |nth: &usize| streams.get(*nth).map(|stream| stream.last);
                let oldest = (0..streams.len()).min_by_key(by_age);
                if let Some(oldest) = oldest.filter(|_| streams.len() == STREAMS_MAX) {
                    streams.remove(oldest);
                }
                streams.push(Stream { name, start: at, end, ahead: SmallVec::new(), last: number });
                name
            }
        };
        drop(streams);
        self.notify.notify_all();
        name
    }

    /// From where to where a stream has come, if it is followed still.
    pub(crate) fn of(&self, name: StreamName) -> Option<(u64, u64)> {
        let streams = self.streams.borrow();
        streams.iter().find(|stream| stream.name == name).map(|stream| (stream.start, stream.end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        // Requests of a stream in any order in which each is a few places from its turn: one stream, whole.
        #[test]
        fn a_stream_is_one_in_whatever_order_its_requests_come(
            lengths in proptest::collection::vec(1u64..4, 1..100), keys in proptest::collection::vec(0usize..8, 100)
        ) {
            let mut at = 1000;
            let mut requests: Vec<(usize, u64, u64)> = Vec::new();
            for (nth, length) in lengths.iter().enumerate() {
                requests.push((nth + keys.get(nth).copied().unwrap_or(0), at, *length));
                at += length;
            }
            // The first comes first; all others as they will.
            requests.iter_mut().take(1).for_each(|(key, ..)| *key = 0);
            requests.sort_by_key(|(key, ..)| *key);
            let streams = Streams::default();
            let names: Vec<StreamName> = requests.iter().map(|(_, at, length)| streams.note(*at, *length)).collect();
            prop_assert!(names.iter().all(|name| *name == names[0]));
            prop_assert_eq!(streams.of(names[0]), Some((1000, at)));
        }

        // Requests that are nowhere near each other are no stream, however many there are; nor are those to what has come.
        #[test]
        fn requests_here_and_there_are_no_stream(
            places in proptest::collection::btree_set(0u64..1 << 20, 1..200), again in 0u64..256
        ) {
            let streams = Streams::default();
            (0..256).for_each(|nth| _ = streams.note(nth * 4096, 4096));
            let name = streams.note(again * 4096, 4096);
            prop_assert_eq!(streams.of(name), Some((again * 4096, again * 4096 + 4096)));
            for place in places.iter().rev().step_by(2).chain(places.iter().step_by(2)) {
                let name = streams.note((place + 1) << 21, 4096);
                let (start, end) = streams.of(name).unwrap();
                prop_assert!(end - start <= 4096);
            }
        }
    }

    #[test]
    fn a_stream_that_nobody_goes_on_with_is_over() {
        let streams = Streams::default();
        let names: Vec<StreamName> = (0..64).map(|nth| streams.note(nth * 4096, 4096)).collect();
        assert_eq!(streams.of(names[0]), Some((0, 64 * 4096)));
        // Others come meanwhile, each by itself and all in one place.
        (0..=FORGOTTEN_AFTER).for_each(|_| _ = streams.note(1 << 40, 4096));
        assert_eq!(streams.of(names[0]), None);
    }
}
