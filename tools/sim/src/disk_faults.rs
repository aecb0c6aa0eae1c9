//! What befalls a whole disk: its process dies, power fails, it is reset, goes away, and comes back.

use std::rc::Rc;

use dolmen_block_io::{DeviceError, Outcome, Payload};

use crate::agenda::EventAction;
use crate::crash::{Content, Fate, PendingWrite, WriteCache};
use crate::disk::{DelayedWrite, Flight, SimDisk, Work};
use crate::fault::FaultKind;
use crate::image::Image;

impl SimDisk {
    /// Lost, landed or torn, by a draw.
    pub(crate) fn draw_fate(&self, content: &Content) -> Fate {
        Fate::drawn(content.unit_count(self.atomic_bytes()), &mut self.faults.random.borrow_mut())
    }

    /// Ends all commands under way, in the order they were submitted, and closes the handles if asked.
    fn take_down_flights(&self) -> Vec<Flight> {
        let mut state = self.state.borrow_mut();
        let mut flights: Vec<Flight> = state.flights.iter_mut().filter_map(Option::take).collect();
        flights.sort_by_key(|flight| flight.number);
        state.flights.clear();
        state.free.clear();
        state.under_way = 0;
        state.writes_under_way = 0;
        flights
    }

    /// Handles stay open until their process dies; those that nobody holds any more count as closed.
    fn forget_unused_ports(&self) {
        self.state.borrow_mut().ports.retain(|port| Rc::strong_count(port) > 1);
    }

    pub(crate) fn close_ports(&self) {
        for port in self.state.borrow_mut().ports.drain(..) {
            port.open.set(false);
        }
    }

    fn refuse(&self, flight: Flight, error: DeviceError) {
        let payload = match flight.work {
            Work::Refused(outcome) => outcome.payload,
            Work::Read { into, .. } => Payload::Buffer(into),
            Work::Write { from: Some(from), .. } => Payload::Shared(from),
            Work::Write { from: None, .. } | Work::Flush { .. } => Payload::None,
        };
        self.answer(&flight.port, flight.key, flight.number, Outcome { result: Err(error), payload });
    }

    /// The process died: what completed stays, each write under way lands, is lost, or lands after the next attach.
    pub(crate) fn process_died(&self) {
        self.close_ports();
        for flight in self.take_down_flights() {
            if let Work::Write { content, .. } = &flight.work {
                if self.faults.fires(FaultKind::DelayedWrite) {
                    let delayed = DelayedWrite { token: flight.token, content: Rc::clone(content) };
                    self.state.borrow_mut().delayed.insert(flight.number, delayed);
                } else if self.faults.coin() {
                    self.take_effect(content, false);
                }
            }
            self.refuse(flight, DeviceError::Detached);
        }
    }

    /// Waits for the last command of dead processes, as whoever wants a lock does that these commands hold: what they left
    /// under way lands now, in an order that chance draws.
    pub fn outlast_the_dead(&self) {
        let mut numbers: Vec<u64> = self.state.borrow().delayed.keys().copied().collect();
        while !numbers.is_empty() {
            let next = self.faults.random.borrow_mut().index(numbers.len());
            self.land_delayed(numbers.swap_remove(next));
        }
    }

    /// Power fails at this disk: `choose` decides on each write that was not durable, those without an answer last.
    pub(crate) fn lose_power(&self, choose: &mut dyn FnMut(&PendingWrite) -> Fate) {
        self.close_ports();
        let flights = self.take_down_flights();
        let mut chosen = |content: &Content, completed| {
            let fate = choose(&self.describe(content, completed));
            if matches!(fate, Fate::Torn(_)) {
                self.faults.count(FaultKind::TornWrite);
            }
            fate
        };
        let mut state = self.state.borrow_mut();
        let state_now = &mut *state;
        state_now.cache.cut(self.atomic_bytes(), |content| chosen(content, true));
        for flight in &flights {
            if let Work::Write { content, .. } = &flight.work {
                let fate = chosen(content, false);
                content.apply(&mut state_now.cache.durable, fate, self.atomic_bytes());
            }
        }
        state_now.truth = state_now.cache.durable.clone();
        state_now.delayed.clear();
        state_now.cache_lost = false;
        drop(state);
        for flight in flights {
            self.refuse(flight, DeviceError::Detached);
        }
        self.note_fault(FaultKind::PowerCut, 0);
    }

    /// The cache loses what chance takes; reads show it at once. Of a write that is still under way nothing is lost: when it
    /// is answered as done, all of it is there.
    pub(crate) fn lose_cache(&self) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        for flight in state.flights.iter().flatten() {
            if let Work::Write { early, .. } = &flight.work {
                state.cache.make_certain(early);
            }
        }
        state.cache.cut(self.atomic_bytes(), |content| self.draw_fate(content));
        state.truth = state.cache.durable.clone();
    }

    /// Writes under way land, are lost or are torn, by a draw; every command under way is answered with `error`.
    fn end_flights(&self, error: DeviceError) {
        for flight in self.take_down_flights() {
            if let Work::Write { content, .. } = &flight.work {
                let fate = self.draw_fate(content);
                self.take_effect(&Rc::new(content.narrowed(fate, self.atomic_bytes())), false);
            }
            self.refuse(flight, error);
        }
    }

    /// Resets the disk: commands under way and the next flush are answered
    /// [`CacheLost`](DeviceError::CacheLost), cached writes may be gone, and no delayed write lands any more.
    pub fn reset(&self) {
        self.end_flights(DeviceError::CacheLost);
        self.lose_cache();
        let mut state = self.state.borrow_mut();
        state.delayed.clear();
        state.cache_lost = true;
        drop(state);
        self.note_fault(FaultKind::Reset, 0);
    }

    /// Takes the disk away, power and all: its handles answer [`Detached`](DeviceError::Detached) for ever.
    pub fn vanish(&self) {
        self.close_ports();
        self.end_flights(DeviceError::Detached);
        self.lose_cache();
        let mut state = self.state.borrow_mut();
        state.delayed.clear();
        state.absent = true;
        state.absences += 1;
        let absence = state.absences;
        drop(state);
        self.note_fault(FaultKind::Vanished, 0);
        if let Some(after) = self.profile.absence {
            self.agenda.plan(after, EventAction::ComeBack { disk: self.index.0, absence });
        }
    }

    /// Whether the disk is away.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.state.borrow().absent
    }

    /// Brings the disk back, to be attached again; by its rate as it was at an earlier flush.
    pub fn come_back(&self) {
        if !std::mem::take(&mut self.state.borrow_mut().absent) {
            return;
        }
        self.note_fault(FaultKind::CameBack, 0);
        if self.faults.fires(FaultKind::ReturnedOld) {
            let count = self.state.borrow().earlier.len();
            let flushes_ago = self.faults.random.borrow_mut().index(count);
            self.return_to(flushes_ago);
        }
    }

    pub(crate) fn come_back_from(&self, absence: u64) {
        if self.state.borrow().absences == absence {
            self.come_back();
        }
    }

    /// Puts the disk back to what it was at the last good flush, or so many before it. Whether it remembered.
    ///
    /// # Panics
    /// When the disk is attached: a running process cannot see its disk change.
    pub fn return_to(&self, flushes_ago: usize) -> bool {
        self.forget_unused_ports();
        let mut state = self.state.borrow_mut();
        assert!(state.ports.is_empty(), "a disk in use cannot return to an earlier image");
        let keep = state.earlier.len().saturating_sub(flushes_ago);
        let Some(image) = keep.checked_sub(1).and_then(|newest| state.earlier.get(newest)).cloned() else {
            return false;
        };
        state.earlier.truncate(keep);
        state.truth = image.clone();
        state.cache = WriteCache::new(image);
        state.damage.clear();
        state.delayed.clear();
        drop(state);
        self.note_fault(FaultKind::ReturnedOld, 0);
        true
    }

    /// Replaces all that the disk holds, as a person does who puts an image on it. Damage is gone afterwards.
    ///
    /// # Panics
    /// When the disk is attached.
    pub fn replace_content(&self, image: Image) {
        self.forget_unused_ports();
        let mut state = self.state.borrow_mut();
        assert!(state.ports.is_empty(), "the content of a disk in use is not replaced");
        state.truth = image.clone();
        state.cache = WriteCache::new(image);
        state.damage.clear();
        state.delayed.clear();
    }
}
