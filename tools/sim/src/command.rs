//! What commands do to a modelled disk.
//!
//! A command takes effect when it completes, or, where another command of the same range completes before it, in part
//! at that moment: so commands under way at the same time mix in units of the disk's atomic write, and yet each read
//! sees what earlier reads saw. A part that took effect early may be lost with power until the command is answered; what
//! was asked to be durable is so in all of its parts from then on.

use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{Action, Command, DeviceError, Durability, Outcome, Payload, Submission};
use dolmen_buffer::Arena;
use dolmen_units::BLOCK_BYTES;

use crate::agenda::EventAction;
use crate::crash::{Content, Fate, Tear};
use crate::disk::{DelayedWrite, Flight, Port, SimDisk, SlowPeriod, State, Work};
use crate::fault::FaultKind;
use crate::image::{Piece, SECTOR, pieces_of, zero_pieces};
use crate::profile::{FenceScope, Request};
use crate::trace::{CommandKind, TraceEvent, mix_bytes};

/// The system's number for an input or output error.
const EIO: i32 = 5;
const MEDIUM: DeviceError = DeviceError::Medium { errno: EIO };
/// How much longer slow commands take: from the first to the second.
const SLOW_FACTORS: (u64, u64) = (10, 1000);
/// How long a disk is slow at most, in commands that take as long as its slow ones do.
const PERIOD_COMMANDS_MAX: u64 = 32;
/// What such a command takes while a disk is not slow, about.
const USUAL: Duration = Duration::from_micros(60);

impl SimDisk {
    pub(crate) fn begin(&self, port: &Rc<Port>, command: Command) -> Submission {
        let (key, submission) = port.completions.begin();
        let request = self.request(&command.action);
        self.trace_submission(&command.action, request);
        if port.open.get() && self.faults.fires(FaultKind::Vanished) {
            self.vanish();
        }
        if !port.open.get() {
            let number = self.state.borrow().next_number;
            self.answer(port, key, number, refusal(command.action, DeviceError::Detached));
            return submission;
        }
        if self.faults.fires(FaultKind::Reset) {
            self.reset();
        }
        let (token, within) = (command.token, command.within);
        let work = match self.verdict(port, &command) {
            Ok(()) => self.work(command.action),
            Err(error) => Work::Refused(refusal(command.action, error)),
        };
        let hung = self.faults.fires(FaultKind::Hung);
        let flight = Flight { number: 0, port: Rc::clone(port), key, token, work, hung };
        let (slot, number) = self.take_off(flight);
        let after = self.time_of(request, hung);
        self.plan_answer((slot, number), after, within);
        submission
    }

    fn request(&self, action: &Action) -> Request {
        let (kind, at, length) = match action {
            Action::Read { at, into } => (CommandKind::Read, *at, into.len() as u64),
            Action::Write { at, from, durability } => {
                let durable = *durability == Durability::Durable;
                let kind = if durable { CommandKind::DurableWrite } else { CommandKind::Write };
                (kind, *at, from.len() as u64)
            }
            Action::Flush => (CommandKind::Flush, 0, 0),
            Action::Discard { at, length } => (CommandKind::Discard, *at, *length),
            Action::WriteZeroes { at, length } => (CommandKind::WriteZeroes, *at, *length),
        };
        let state = self.state.borrow();
        let (previous_end, under_way) = (state.previous_end, state.under_way);
        Request { now: self.agenda.now(), kind, at, length, previous_end, under_way }
    }

    fn trace_submission(&self, action: &Action, request: Request) {
        let Request { kind, at, length, .. } = request;
        let content = if let Action::Write { from, .. } = action { mix_bytes(from) } else { 0 };
        self.trace
            .note(self.agenda.now(), TraceEvent::Submitted { disk: self.index, kind, at, length, content });
    }

    fn verdict(&self, port: &Port, command: &Command) -> Result<(), DeviceError> {
        let fence = match self.profile.fence_scope {
            FenceScope::Handle => port.fence.get(),
            FenceScope::Disk => self.state.borrow().fence,
        };
        if command.token < fence {
            return Err(DeviceError::Fenced);
        }
        if matches!(command.action, Action::Discard { .. })
            && self.profile.geometry.discard_granularity_bytes.is_none()
        {
            return Err(DeviceError::Unsupported);
        }
        self.profile.geometry.check_action(&command.action)
    }

    fn work(&self, action: Action) -> Work {
        let write = |at, length, pieces, from, certain| Work::Write {
            content: Rc::new(Content { at, length, pieces }),
            from,
            certain,
            early: Vec::new(),
        };
        match action {
            Action::Read { at, into } => Work::Read { at, into },
            Action::Write { at, from, durability } => {
                let certain = durability == Durability::Durable;
                write(at, from.len() as u64, pieces_of(at, &from), Some(from), certain)
            }
            Action::WriteZeroes { at, length } => write(at, length, zero_pieces(at, length), None, false),
            Action::Discard { at, length } => write(at, length, self.forgotten(at, length), None, false),
            Action::Flush => Work::Flush { mark: self.state.borrow().cache.mark() },
        }
    }

    /// What a discard makes zeros: any of the whole allocation units in its range, as the disk likes.
    fn forgotten(&self, at: u64, length: u64) -> Vec<Piece> {
        let unit = u64::from(self.profile.geometry.discard_granularity_bytes.unwrap_or(1)).max(1);
        let (first, end) = (at.div_ceil(unit), (at + length) / unit);
        let keep_all = self.speeds.borrow_mut().coin();
        let units = (first..end).filter(|_| !keep_all);
        units.flat_map(|index| zero_pieces(index * unit, unit)).collect()
    }

    /// Takes the command on; its slot and number.
    fn take_off(&self, mut flight: Flight) -> (usize, u64) {
        let mut state = self.state.borrow_mut();
        let number = state.next_number;
        state.next_number += 1;
        state.under_way += 1;
        flight.number = number;
        if let Some(recording) = &*self.recording.borrow() {
            match &flight.work {
                Work::Write { content, certain, .. } => {
                    let certain = *certain || !self.profile.geometry.volatile_cache;
                    recording.write_begun(self.index, number, content, certain);
                }
                Work::Flush { .. } => recording.flush_begun(self.index, number),
                Work::Read { .. } | Work::Refused(_) => {}
            }
        }
        if let Work::Write { content, .. } = &flight.work {
            state.writes_under_way += 1;
            state.previous_end = content.at + content.length;
        }
        let slot = state.free.pop().unwrap_or_else(|| {
            state.flights.push(None);
            state.flights.len() - 1
        });
        if let Some(place) = state.flights.get_mut(slot) {
            *place = Some(flight);
        }
        (slot, number)
    }

    /// A command completes, or is answered as timed out: a read that takes longer than whoever asks waits, and one that hangs. A
    /// disk that is only slow answers its writes, however late.
    fn plan_answer(&self, (slot, number): (usize, u64), after: Option<Duration>, within: Option<Duration>) {
        let disk = self.index.0;
        let limit = match after {
            Some(after) => within.filter(|within| *within < after),
            None => within.into_iter().chain(self.profile.hang_limit).min(),
        };
        match (limit, after) {
            (Some(limit), _) => self.agenda.plan(limit, EventAction::TimeOut { disk, slot, number }),
            (None, Some(after)) => self.agenda.plan(after, EventAction::Complete { disk, slot, number }),
            (None, None) => {}
        }
    }

    /// How long a command takes; `None` for ever.
    fn time_of(&self, request: Request, hung: bool) -> Option<Duration> {
        if hung {
            self.note_fault(FaultKind::Hung, request.at);
            return None;
        }
        let mut after = self.profile.latency.latency(request, &mut self.speeds.borrow_mut());
        let flush_too = request.kind == CommandKind::DurableWrite && !self.profile.geometry.fua;
        if flush_too {
            let flush = Request { kind: CommandKind::Flush, at: 0, length: 0, ..request };
            after += self.profile.latency.latency(flush, &mut self.speeds.borrow_mut());
        }
        let mut times = self.slowness(request);
        if self.faults.fires(FaultKind::Slow) {
            self.note_fault(FaultKind::Slow, request.at);
            let factor = SLOW_FACTORS.0 + self.faults.below(SLOW_FACTORS.1 - SLOW_FACTORS.0 + 1);
            times = times.max(u32::try_from(factor).unwrap_or(1));
        }
        Some(after.saturating_mul(times))
    }

    /// How many times as long a command takes because the disk is slow for a while.
    fn slowness(&self, request: Request) -> u32 {
        let now = self.agenda.now();
        let is_over = self.state.borrow().period.until <= now;
        if is_over && self.faults.fires(FaultKind::SlowPeriod) {
            self.note_fault(FaultKind::SlowPeriod, request.at);
            let period = self.drawn_period();
            self.state.borrow_mut().period = period;
        }
        let period = self.state.borrow().period;
        let is_slow = match request.kind {
            CommandKind::Read => period.reads,
            CommandKind::Flush => period.flushes,
            CommandKind::DurableWrite => period.writes || period.flushes,
            CommandKind::Write | CommandKind::Discard | CommandKind::WriteZeroes => period.writes,
        };
        if is_slow && now < period.until { period.factor } else { 1 }
    }

    /// A stretch that begins now. Short ones of high factors and of low ones are about as likely.
    fn drawn_period(&self) -> SlowPeriod {
        let power = 1 + self.faults.below(2);
        let factor = (1 + self.faults.below(10)) * 10u64.pow(u32::try_from(power).unwrap_or(1));
        let factor = u32::try_from(factor).unwrap_or(u32::MAX);
        let commands = 1 + u32::try_from(self.faults.below(PERIOD_COMMANDS_MAX)).unwrap_or(0);
        let which = 1 + self.faults.below(7);
        SlowPeriod {
            until: self.agenda.now() + USUAL.saturating_mul(factor).saturating_mul(commands),
            factor,
            reads: which & 1 != 0,
            writes: which & 2 != 0,
            flushes: which & 4 != 0,
        }
    }

    /// The command of a slot, unless it was ended by something else meanwhile.
    pub(crate) fn land(&self, slot: usize, number: u64) -> Option<Flight> {
        let mut state = self.state.borrow_mut();
        let place = state.flights.get_mut(slot)?;
        if place.as_ref().is_none_or(|flight| flight.number != number) {
            return None;
        }
        let flight = place.take()?;
        state.free.push(slot);
        state.under_way -= 1;
        state.writes_under_way -= usize::from(matches!(flight.work, Work::Write { .. }));
        Some(flight)
    }

    pub(crate) fn complete(&self, slot: usize, number: u64) {
        let Some(flight) = self.land(slot, number) else { return };
        self.note_order(number);
        let outcome = match flight.work {
            Work::Refused(outcome) => outcome,
            Work::Read { at, mut into } => {
                let result = self.read(at, &mut into);
                Outcome { result, payload: Payload::Buffer(into) }
            }
            Work::Write { content, from, certain, early } => {
                let result = self.write(&content, certain);
                if certain && result.is_ok() {
                    self.state.borrow_mut().cache.make_certain(&early);
                }
                self.record_write_end(number, result);
                Outcome { result, payload: from.map_or(Payload::None, Payload::Shared) }
            }
            Work::Flush { mark } => {
                let result = self.flush(mark);
                if let Some(recording) = self.recording.borrow().as_ref().filter(|_| result.is_ok()) {
                    recording.flush_done(self.index, number);
                }
                Outcome { result, payload: Payload::None }
            }
        };
        self.answer(&flight.port, flight.key, number, outcome);
    }

    fn record_write_end(&self, number: u64, result: Result<(), DeviceError>) {
        if let Some(recording) = self.recording.borrow().as_ref().filter(|_| result.is_ok()) {
            recording.write_done(self.index, number);
        }
    }

    pub(crate) fn answer(
        &self,
        port: &Port,
        key: dolmen_block_io::CompletionKey,
        command: u64,
        outcome: Outcome,
    ) {
        let good = outcome.result.is_ok();
        if !good {
            let mut counters = port.counters.get();
            counters.errors += 1;
            port.counters.set(counters);
        }
        self.trace.note(self.agenda.now(), TraceEvent::Completed { disk: self.index, command, good });
        port.completions.complete(key, outcome);
    }

    fn note_order(&self, number: u64) {
        let mut state = self.state.borrow_mut();
        let overtaken = number < state.newest_completed;
        state.newest_completed = state.newest_completed.max(number);
        drop(state);
        if overtaken {
            self.faults.count(FaultKind::Reordering);
        }
    }

    /// A hung command is answered as timed out; a write may take effect later.
    pub(crate) fn time_out(&self, slot: usize, number: u64) {
        let Some(flight) = self.land(slot, number) else { return };
        let payload = match flight.work {
            Work::Refused(outcome) => outcome.payload,
            // The disk may write to that one still.
            Work::Read { into, .. } => Payload::Buffer(Arena::made(into.len())),
            Work::Flush { .. } => Payload::None,
            Work::Write { content, from, .. } => {
                if self.faults.coin() {
                    let delayed = DelayedWrite { token: flight.token, content };
                    self.state.borrow_mut().delayed.insert(number, delayed);
                    self.plan_delayed(number);
                }
                from.map_or(Payload::None, Payload::Shared)
            }
        };
        let outcome = Outcome { result: Err(DeviceError::TimedOut), payload };
        self.answer(&flight.port, flight.key, number, outcome);
    }

    /// Answers hung commands after all, in the time that others take.
    pub fn release_hung(&self) {
        let mut state = self.state.borrow_mut();
        let mut released = Vec::new();
        for (slot, flight) in state.flights.iter_mut().enumerate() {
            if let Some(flight) = flight.as_mut().filter(|flight| flight.hung) {
                flight.hung = false;
                released.push((slot, flight.number));
            }
        }
        drop(state);
        for (slot, number) in released {
            let after = Duration::from_nanos(self.speeds.borrow_mut().below(100_000));
            self.agenda.plan(after, EventAction::Complete { disk: self.index.0, slot, number });
        }
    }

    fn sector_within(&self, at: u64, length: u64) -> u64 {
        at + self.faults.below(length / SECTOR as u64) * SECTOR as u64
    }

    /// Another place where `length` bytes fit, not touching those at `at`; `None` when there is none.
    fn elsewhere(&self, at: u64, length: u64) -> Option<u64> {
        let unit = u64::from(self.profile.geometry.logical_block_bytes);
        let places = (self.profile.geometry.capacity.0.checked_sub(length)?) / unit + 1;
        let other = self.faults.below(places) * unit;
        (other + length <= at || other >= at + length).then_some(other)
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let length = into.len() as u64;
        if self.faults.fires(FaultKind::BitRot) {
            let sector = self.sector_within(at, length);
            if self.may_damage(sector..sector + SECTOR as u64) {
                self.rot(
                    sector + self.faults.below(SECTOR as u64),
                    u8::try_from(self.faults.below(8)).unwrap_or(0),
                );
            }
        }
        if self.faults.fires(FaultKind::LatentError) {
            let sector = self.sector_within(at, length);
            if self.may_damage(sector..sector + SECTOR as u64) {
                self.make_unreadable(sector);
            }
        }
        let mut from = at;
        if self.faults.fires(FaultKind::MisdirectedRead)
            && let Some(other) = self.elsewhere(at, length)
            && self.may_damage(at..at + length)
        {
            self.note_fault(FaultKind::MisdirectedRead, at);
            from = other;
        }
        self.land_in_part(from, length);
        if self.state.borrow().show(from, into) { Ok(()) } else { Err(MEDIUM) }
    }

    fn write(&self, content: &Rc<Content>, certain: bool) -> Result<(), DeviceError> {
        let (at, length) = (content.at, content.length);
        if self.needs_room(content) && self.faults.fires(FaultKind::NoSpace) {
            self.note_fault(FaultKind::NoSpace, at);
            return Err(DeviceError::NoSpace);
        }
        self.land_in_part(at, length);
        if self.faults.fires(FaultKind::WriteError) {
            self.note_fault(FaultKind::WriteError, at);
            let fate = self.draw_fate(content);
            self.take_effect(&Rc::new(content.narrowed(fate, self.atomic_bytes())), false);
            return Err(MEDIUM);
        }
        let kinds = [FaultKind::LostWrite, FaultKind::TornWrite, FaultKind::MisdirectedWrite];
        let fired = kinds.into_iter().find(|kind| self.faults.fires(*kind));
        match fired {
            Some(kind) if self.may_damage(at..at + length) => self.write_badly(kind, content, certain),
            _ => self.take_effect(content, certain),
        }
        Ok(())
    }

    fn needs_room(&self, content: &Content) -> bool {
        let state = self.state.borrow();
        let is_new = |page: u64| state.truth.page(page).is_none();
        let is_thin = |page: u64| self.profile.thin.contains(&(page * BLOCK_BYTES));
        content
            .pieces
            .iter()
            .any(|piece| piece.content.is_some() && is_thin(piece.page) && is_new(piece.page))
    }

    /// The truth changes as it should; what reads show does not, or only in part, or elsewhere.
    fn write_badly(&self, kind: FaultKind, content: &Rc<Content>, certain: bool) {
        let fate = match kind {
            FaultKind::TornWrite => {
                let units = content.unit_count(self.atomic_bytes());
                if units < 2 {
                    return self.take_effect(content, certain);
                }
                Fate::Torn(Tear::First(1 + self.faults.below(units - 1)))
            }
            _ => Fate::Lost,
        };
        let before = self.state.borrow().shown_under(content);
        self.take_effect(content, certain);
        let mut state = self.state.borrow_mut();
        let landing = content.landing(fate, self.atomic_bytes());
        for ((piece, landed), old) in landing.zip(&before) {
            state.damage.show(piece.page, piece.sectors & !landed, old.as_ref());
        }
        drop(state);
        if kind == FaultKind::MisdirectedWrite {
            self.hit_elsewhere(content);
        }
        self.note_fault(kind, content.at);
    }

    /// What was written shows at another address, when that one may be damaged too.
    fn hit_elsewhere(&self, content: &Content) {
        let Some(other) = self.elsewhere(content.at, content.length) else { return };
        if !self.may_damage(other..other + content.length) {
            return;
        }
        let Ok(length) = usize::try_from(content.length) else { return };
        let mut bytes = vec![0; length];
        let mut state = self.state.borrow_mut();
        state.truth.read(content.at, &mut bytes);
        for piece in pieces_of(other, &bytes) {
            state.damage.show(piece.page, piece.sectors, piece.content.as_ref());
        }
    }

    /// The write is seen by every later read and waits in the cache to become durable.
    pub(crate) fn take_effect(&self, content: &Rc<Content>, certain: bool) {
        let certain = certain || !self.profile.geometry.volatile_cache;
        let mut stale = Vec::new();
        if !self.state.borrow().damage.is_empty() {
            stale = self.draw_stale(content);
        }
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        for piece in &content.pieces {
            state.truth.apply(piece, piece.sectors);
            if !state.damage.is_empty() {
                state.damage.overwrite(piece);
            }
        }
        for (page, sectors, old) in stale {
            state.damage.show(page, sectors, old.as_ref());
        }
        state.cache.hold(Rc::clone(content), certain);
    }

    /// Sectors that could not be read and will show their old content in spite of being written.
    fn draw_stale(&self, content: &Content) -> Vec<(u64, u8, Option<crate::image::Page>)> {
        let mut stale = Vec::new();
        for piece in &content.pieces {
            let cleared = self.state.borrow().damage.sectors(piece.page).0 & piece.sectors;
            if cleared == 0 || !self.faults.fires(FaultKind::StaleAfterError) {
                continue;
            }
            let at = piece.page * BLOCK_BYTES;
            if self.may_damage(at..at + BLOCK_BYTES) {
                let state = self.state.borrow();
                stale.push((
                    piece.page,
                    cleared,
                    state.damage.shown(piece.page, state.truth.page(piece.page)),
                ));
                drop(state);
                self.note_fault(FaultKind::StaleAfterError, at);
            }
        }
        stale
    }

    /// Writes under way that touch the range take effect there now, unit by unit as drawn. Not while a recorder runs,
    /// whose replay knows whole writes only.
    fn land_in_part(&self, at: u64, length: u64) {
        if self.state.borrow().writes_under_way == 0 || self.recording.borrow().is_some() {
            return;
        }
        let mut parts = Vec::new();
        for (slot, flight) in self.state.borrow_mut().flights.iter_mut().enumerate() {
            let Some(Work::Write { content, .. }) = flight.as_mut().map(|flight| &mut flight.work) else {
                continue;
            };
            if content.at >= at + length || content.at + content.length <= at || content.pieces.is_empty() {
                continue;
            }
            let fate = Fate::Torn(Tear::Drawn(self.speeds.borrow_mut().next_u64()));
            let (now, later) = content.split(fate, self.atomic_bytes());
            *content = Rc::new(later);
            parts.push((slot, Rc::new(now)));
        }
        for (slot, content) in parts.iter().filter(|(_, content)| !content.pieces.is_empty()) {
            let mut state = self.state.borrow_mut();
            let held = state.cache.mark();
            if let Some(Some(Flight { work: Work::Write { early, .. }, .. })) = state.flights.get_mut(*slot) {
                early.push(held);
            }
            drop(state);
            self.take_effect(content, false);
        }
    }

    fn flush(&self, mark: u64) -> Result<(), DeviceError> {
        if std::mem::take(&mut self.state.borrow_mut().cache_lost) {
            return Err(DeviceError::CacheLost);
        }
        if self.faults.fires(FaultKind::DroppedFlush) {
            self.note_fault(FaultKind::DroppedFlush, 0);
            return Ok(());
        }
        if self.faults.fires(FaultKind::FlushError) {
            self.note_fault(FaultKind::FlushError, 0);
            self.lose_cache();
            return Err(MEDIUM);
        }
        let mut state = self.state.borrow_mut();
        state.cache.flush_to(mark);
        self.remember(&mut state);
        Ok(())
    }

    fn remember(&self, state: &mut State) {
        if self.profile.flushes_remembered > 0 {
            if state.earlier.len() >= self.profile.flushes_remembered {
                state.earlier.pop_front();
            }
            state.earlier.push_back(state.cache.durable.clone());
        }
    }

    /// A write that survived its issuer takes effect, unless it is fenced.
    pub(crate) fn land_delayed(&self, number: u64) {
        let Some(delayed) = self.state.borrow_mut().delayed.remove(&number) else { return };
        let at = delayed.content.at;
        let fenced =
            self.profile.fence_scope == FenceScope::Disk && delayed.token < self.state.borrow().fence;
        if fenced {
            self.note_fault(FaultKind::FencedDelayedWrite, at);
            return;
        }
        self.take_effect(&delayed.content, false);
        self.faults.count(FaultKind::DelayedWrite);
        self.trace.note(self.agenda.now(), TraceEvent::LandedDelayed { disk: self.index, at });
    }
}

fn refusal(action: Action, error: DeviceError) -> Outcome {
    let payload = match action {
        Action::Read { into, .. } => Payload::Buffer(into),
        Action::Write { from, .. } => Payload::Shared(from),
        Action::Flush | Action::Discard { .. } | Action::WriteZeroes { .. } => Payload::None,
    };
    Outcome { result: Err(error), payload }
}
