//! Stripes of which parts wait for the rest, and what becomes of them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use dolmen_block_io::sync::Notify;
use dolmen_buffer::Shared as Bytes_;
use smallvec::{SmallVec, smallvec};

use crate::format::error::SpaceError;

/// Parts of so many equal ones, and smaller ones, do not wait: what is under way would not make up a stripe.
pub(crate) const PARTS_MAX: usize = 16;

/// Content in one or more pieces, one after another.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pieces(SmallVec<[(usize, Bytes_); 4]>);

impl Pieces {
    /// Content in one piece.
    pub(crate) fn one(content: &Bytes_) -> Self {
        Self(smallvec![(0, content.clone())])
    }

    /// Bytes of all pieces.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|(_, piece)| piece.len()).sum()
    }

    /// What lies in one piece from a byte on, so many bytes at most.
    pub(crate) fn at(&self, from: usize, most: usize) -> Bytes_ {
        let after = self.0.partition_point(|(offset, _)| *offset <= from);
        let (offset, piece) = after.checked_sub(1).and_then(|last| self.0.get(last)).unwrap_or_else(|| {
            panic!("content has no byte {from}");
        });
        let skipped = from - offset;
        piece.slice(skipped..piece.len().min(skipped + most))
    }

    /// So many bytes of it from one on.
    pub(crate) fn part(&self, from: usize, length: usize) -> Self {
        let (mut pieces, mut done) = (Self::default(), 0);
        while done < length {
            let piece = self.at(from + done, length - done);
            pieces.0.push((done, piece.clone()));
            done += piece.len();
        }
        pieces
    }

    /// Adds a piece; not where another one is.
    pub(crate) fn add(&mut self, offset: usize, piece: &Bytes_) -> bool {
        let after = self.0.partition_point(|(other, _)| *other < offset);
        let before = after.checked_sub(1).and_then(|last| self.0.get(last));
        let is_free = before.is_none_or(|(other, piece)| other + piece.len() <= offset)
            && self.0.get(after).is_none_or(|(other, _)| offset + piece.len() <= *other);
        if is_free {
            self.0.insert(after, (offset, piece.clone()));
        }
        is_free
    }
}

/// What became of a stripe, for those who wait for it.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Written(Result<(), SpaceError>),
    /// Nobody brought the rest, or it could not go in place.
    GoOnAlone,
}

#[derive(Default)]
pub(crate) struct SharedOutcome {
    pub(crate) outcome: RefCell<Option<Outcome>>,
    pub(crate) notify: Notify,
}

impl SharedOutcome {
    pub(crate) fn report(&self, outcome: Outcome) {
        self.outcome.borrow_mut().get_or_insert(outcome);
        self.notify.notify_all();
    }
}

/// Tells those who wait to go on alone if whoever writes for them comes to no end.
pub(crate) struct Teller(pub(crate) Rc<SharedOutcome>);

impl Drop for Teller {
    fn drop(&mut self) {
        self.0.report(Outcome::GoOnAlone);
    }
}

/// A stripe of which parts are there.
pub(crate) struct Stripe {
    /// The row, and the first byte in it.
    pub(crate) place: (u64, u64),
    pub(crate) pieces: Pieces,
    pub(crate) reported: Rc<SharedOutcome>,
}

/// The stripes of a space that are forming.
#[derive(Default)]
pub(crate) struct Forming {
    pub(crate) stripes: RefCell<Vec<Stripe>>,
    /// Requests under way.
    pub(crate) requests: Cell<u64>,
    /// Parts of requests under way that do not wait here.
    pub(crate) active: Cell<u64>,
    /// Parts that wait until they may write at all.
    pub(crate) held_up: Cell<u64>,
}

impl Forming {
    /// A request begins.
    pub(crate) fn request(&self) -> Request<'_> {
        self.requests.set(self.requests.get() + 1);
        Request(self)
    }

    /// A part of one begins.
    pub(crate) fn begin(&self) -> Active<'_> {
        self.active.set(self.active.get() + 1);
        Active(self)
    }

    /// A part that is under way waits until it may write, until this is dropped.
    pub(crate) fn hold_up(&self) -> HeldUp<'_> {
        self.held_up.set(self.held_up.get() + 1);
        HeldUp(self)
    }

    /// A part that is under way waits for something that others bring, until this is dropped.
    pub(crate) fn pause(&self) -> impl Drop + '_ {
        self.rest();
        Resting(self)
    }

    /// One of those under way ends or waits. If it was the last, nobody brings what the others wait for.
    pub(crate) fn rest(&self) {
        self.active.set(self.active.get() - 1);
        if self.active.get() == 0 {
            self.stripes.take().into_iter().for_each(|stripe| stripe.reported.report(Outcome::GoOnAlone));
        }
    }

    /// Adds a part to its stripe, which has so many bytes; the stripe, if it is whole now, or who tells what becomes of it.
    /// `None` where somebody else brings the same bytes.
    pub(crate) fn add(
        &self,
        place: (u64, u64),
        length: usize,
        (offset, content): (usize, &Bytes_),
    ) -> Option<Result<Stripe, Rc<SharedOutcome>>> {
        let mut stripes = self.stripes.borrow_mut();
        let Some(nth) = stripes.iter().position(|stripe| stripe.place == place) else {
            let mut pieces = Pieces::default();
            pieces.add(offset, content);
            let reported = Rc::new(SharedOutcome::default());
            stripes.push(Stripe { place, pieces, reported: Rc::clone(&reported) });
            return Some(Err(reported));
        };
        let stripe = stripes.get_mut(nth)?;
        if !stripe.pieces.add(offset, content) {
            return None;
        }
        if stripe.pieces.len() < length {
            return Some(Err(Rc::clone(&stripe.reported)));
        }
        Some(Ok(stripes.swap_remove(nth)))
    }

    /// Abandons a stripe that a task waits for; not where it is being written.
    pub(crate) fn abandon(&self, reported: &Rc<SharedOutcome>) {
        let mut stripes = self.stripes.borrow_mut();
        if let Some(nth) = stripes.iter().position(|stripe| Rc::ptr_eq(&stripe.reported, reported)) {
            stripes.swap_remove(nth).reported.report(Outcome::GoOnAlone);
        }
    }
}

/// A part of a request that is under way.
pub(crate) struct Active<'a>(&'a Forming);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.rest();
    }
}

/// A request that is under way.
pub(crate) struct Request<'a>(&'a Forming);

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.0.requests.set(self.0.requests.get() - 1);
    }
}

/// A part that waits; it goes on when this is dropped.
pub(crate) struct Resting<'a>(&'a Forming);

impl Drop for Resting<'_> {
    fn drop(&mut self) {
        self.0.active.set(self.0.active.get() + 1);
    }
}

/// A part that waits until it may write at all.
pub(crate) struct HeldUp<'a>(&'a Forming);

impl Drop for HeldUp<'_> {
    fn drop(&mut self) {
        self.0.held_up.set(self.0.held_up.get() - 1);
    }
}
