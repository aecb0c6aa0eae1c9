//! What a worker does with a request: ask the export, answer the client.

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;

use dolmen_block_io::Durability;
use dolmen_block_io::sync::Notify;
use dolmen_buffer::Arena;
use dolmen_units::BLOCK_BYTES;

use crate::budget::{Budget, Gate};
use crate::connection::{Connection, ConnectionError};
use crate::export::{
    EXTENTS_BYTES_MAX, Export, ExportError, Extents, PIECE_BYTES_MAX, ReadError, Segment, Segments, Width,
    Zeroing,
};
use crate::guard::Watch;
use crate::outbox::Outbox;
use crate::reply::{After, Body, Head, Message, Place, To};
use crate::request::{Agreed, Command, Fragments, RefusedRequest, ReplyForm};
use crate::wire::Errno;
use crate::worker_pool::{Job, Tallies, TallyIndex, WorkerIndex, WorkerPool};

/// What an export is asked to trim, zero or read ahead at a time. Compact requests are hardly longer.
const EFFECT_BYTES_MAX: u64 = 1 << 30;
/// How far an answer to block status looks: as far as a compact request can ask.
const STATUS_BYTES_MAX: u64 = 1 << 32;

/// A connection in its transmission phase, shared by its tasks.
pub(crate) struct Transmission<C, X> {
    pub(crate) connection: Rc<C>,
    pub(crate) export: Rc<X>,
    pub(crate) agreed: Agreed,
    pub(crate) arena: Arena,
    pub(crate) watch: Rc<Watch>,
    pub(crate) outbox: Outbox,
    pub(crate) worker_pool: WorkerPool,
    pub(crate) tallies: Tallies<ExportError>,
    pub(crate) budget: Budget,
    pub(crate) gate: Gate,
    /// Why a reply that had begun could not be finished.
    pub(crate) broken_off: Cell<Option<ReadError>>,
    /// Rung when requests were answered, and when a task ends.
    pub(crate) notify: Notify,
}

/// Returns the first piece of a range, which touches whole blocks of [`PIECE_BYTES_MAX`] at most, so that an export reads them
/// into one buffer. Long ranges are cut where the export is likely to have its own borders.
pub(crate) fn first_piece(range: &Range<u64>) -> Range<u64> {
    let first_block = range.start / BLOCK_BYTES * BLOCK_BYTES;
    if range.end.div_ceil(BLOCK_BYTES) * BLOCK_BYTES - first_block <= PIECE_BYTES_MAX {
        return range.clone();
    }
    let border = (range.start / PIECE_BYTES_MAX + 1) * PIECE_BYTES_MAX;
    range.start..border.min(range.end)
}

/// How many pieces a range is cut into.
pub(crate) fn piece_count(range: &Range<u64>) -> u64 {
    let mut left = range.clone();
    let mut count = 0;
    while !left.is_empty() {
        left.start = first_piece(&left).end;
        count += 1;
    }
    count
}

impl<C: Connection, X: Export> Transmission<C, X> {
    /// A worker's life.
    pub(crate) async fn work(&self, worker: WorkerIndex) {
        let mut segments = Segments::new();
        while let Some(job) = self.worker_pool.next_job(worker).await {
            self.perform(job, &mut segments).await;
            self.worker_pool.rest(worker);
        }
        self.worker_pool.leave();
    }

    async fn perform(&self, job: Job, segments: &mut Segments) {
        let export = &self.export;
        let result = match job.command {
            Command::Read { range, fragments } => {
                return self.read(job.to, range, fragments, segments).await;
            }
            Command::BlockStatus { range, extents_max } => {
                return self.block_status(job.to, range, extents_max).await;
            }
            Command::Write { range, durability } => {
                let Some(payload) = job.payload else { unreachable!("a write has a payload") };
                let result = export.write(range.start, payload, durability).await;
                self.budget.release(range.end - range.start);
                match self.whole_write(job.tally, result) {
                    Some(result) => result,
                    None => return,
                }
            }
            Command::Flush => export.flush().await,
            Command::Trim { range, durability } => {
                self.in_parts(range, durability, |range, durability| export.discard(range, durability)).await
            }
            Command::WriteZeroes { range, holes, zero_mode, durability } => {
                let zero =
                    |range, durability| export.write_zeroes(Zeroing { range, holes, zero_mode, durability });
                self.in_parts(range, durability, zero).await
            }
            Command::Cache { range } => {
                self.in_parts(range, Durability::Cached, |range, _| export.cache(range)).await
            }
            Command::Disconnect => unreachable!("the session itself ends at a disconnect"),
        };
        self.acknowledge(job.to, result, After { requests: 1, ..After::default() });
    }

    /// Has a long range done part by part, so that no request keeps a server from stopping. What is to be durable is
    /// made so by one flush behind the last part.
    async fn in_parts<F: Future<Output = Result<(), ExportError>>>(
        &self,
        range: Range<u64>,
        durability: Durability,
        mut act: impl FnMut(Range<u64>, Durability) -> F,
    ) -> Result<(), ExportError> {
        if range.end - range.start <= EFFECT_BYTES_MAX {
            return act(range, durability).await;
        }
        let mut left = range;
        while !left.is_empty() {
            if self.watch.is_stopping() {
                return Err(ExportError::Stopping);
            }
            let end = left.end.min((left.start / EFFECT_BYTES_MAX + 1) * EFFECT_BYTES_MAX);
            act(left.start..end, Durability::Cached).await?;
            left.start = end;
        }
        match durability {
            Durability::Cached => Ok(()),
            Durability::Durable => self.export.flush().await,
        }
    }

    fn whole_write(
        &self,
        tally: Option<TallyIndex>,
        result: Result<(), ExportError>,
    ) -> Option<Result<(), ExportError>> {
        match tally {
            Some(index) => self.tallies.count(index, result),
            None => Some(result),
        }
    }

    /// Refuses a request that was not performed.
    pub(crate) fn refuse(&self, to: To, refusal: RefusedRequest) {
        let after = After { requests: 1, ..After::default() };
        self.push_error(to, refusal.errno(), refusal.text(), after);
    }

    fn acknowledge(&self, to: To, result: Result<(), ExportError>, after: After) {
        match result {
            Ok(()) => self.push(Message { head: Head::Done { to }, body: Body::None, after }),
            Err(error) => self.push_error(to, error.errno(), error.text(), after),
        }
    }

    fn push_error(&self, to: To, errno: Errno, text: &'static str, after: After) {
        let head = Head::error(to, errno, text);
        self.push(Message { head, body: Body::None, after });
    }

    fn push(&self, message: Message) {
        if self.outbox.failure().is_some() {
            self.release(message.after);
        } else {
            self.outbox.push(message);
        }
    }

    /// Gives free what a message that has left, or never will, stood for.
    pub(crate) fn release(&self, after: After) {
        self.budget.release(after.payload_bytes);
        self.gate.leave(after.holds);
        if after.holds_alone > 0 {
            self.gate.leave_alone();
        }
        if after.requests > 0 {
            self.watch.requests_answered(after.requests);
            self.notify.notify_all();
        }
    }

    async fn block_status(&self, to: To, range: Range<u64>, extents_max: usize) {
        self.budget.acquire(EXTENTS_BYTES_MAX as u64).await;
        let after = After { requests: 1, payload_bytes: EXTENTS_BYTES_MAX as u64, ..After::default() };
        let memory = self.arena.take(EXTENTS_BYTES_MAX).await;
        // The rest is told to whoever asks again.
        let range = range.start..range.end.min(range.start.saturating_add(STATUS_BYTES_MAX));
        let width = if to.form == ReplyForm::Extended { Width::Wide } else { Width::Narrow };
        let mut extents = Extents::new(memory, range.end - range.start, extents_max, width);
        let result = self.export.block_status(range, &mut extents).await;
        if let Err(error) = result {
            return self.acknowledge(to, Err(error), after);
        }
        let Some(bytes) = extents.finish() else { panic!("an export tells at least one extent") };
        let extents_bytes = u32::try_from(bytes.len()).unwrap_or(0);
        self.push(Message { head: Head::Status { to, extents_bytes }, body: Body::Data(bytes), after });
    }

    async fn read(&self, to: To, range: Range<u64>, fragments: Fragments, segments: &mut Segments) {
        let short = range.end - range.start <= PIECE_BYTES_MAX;
        match (self.agreed.form, fragments) {
            (ReplyForm::Structured | ReplyForm::Extended, Fragments::Many) => {
                self.read_in_chunks(to, range, segments).await
            }
            (ReplyForm::Structured | ReplyForm::Extended, Fragments::One) => {
                self.read_in_one_chunk(to, range, segments).await
            }
            (ReplyForm::Simple, _) if short => self.read_simple(to, range, segments).await,
            (ReplyForm::Simple, _) => self.read_stream(to, range, segments).await,
        }
    }

    /// Reads one piece. The budget for its bytes is taken, and not yet given back.
    async fn read_piece(&self, piece: Range<u64>, segments: &mut Segments) -> Result<(), ReadError> {
        let length = piece.end - piece.start;
        assert!(segments.length() == 0, "nothing is left of the last read");
        self.budget.acquire(length).await;
        let result = self.export.read(piece.clone(), segments).await;
        match result {
            Ok(()) => {
                assert!(segments.length() == length, "an export reads all of a range or fails");
                Ok(())
            }
            Err(error) => {
                let at = error.at.clamp(piece.start, piece.end - 1);
                segments.truncate(at - piece.start);
                Err(ReadError { at, ..error })
            }
        }
    }

    async fn read_in_chunks(&self, to: To, range: Range<u64>, segments: &mut Segments) {
        let mut left = range;
        while !left.is_empty() {
            let piece = first_piece(&left);
            left.start = piece.end;
            let payload_bytes = piece.end - piece.start;
            let result = self.read_piece(piece.clone(), segments).await;
            let after = After { payload_bytes, ..After::default() };
            match result {
                Ok(()) if left.is_empty() => {
                    let after = After { requests: 1, ..after };
                    self.push_chunks(to, piece.start, segments, Place::Last, after);
                }
                Ok(()) => self.push_chunks(to, piece.start, segments, Place::Middle, after),
                Err(ReadError { at, error }) => {
                    self.push_chunks(to, piece.start, segments, Place::Middle, After::default());
                    let head = Head::Error { to, errno: error.errno(), text: error.text(), at: Some(at) };
                    let after = After { requests: 1, ..after };
                    return self.push(Message { head, body: Body::None, after });
                }
            }
        }
    }

    /// Pushes a chunk for each run of data and each run of zeros. `place` and `after` belong to the last of them.
    fn push_chunks(&self, to: To, start: u64, segments: &mut Segments, place: Place, after: After) {
        let mut offset = start;
        while segments.length() > 0 {
            let (count, length) = first_run(segments);
            let last = length == segments.length();
            let (place, after) = if last { (place, after) } else { (Place::Middle, After::default()) };
            // A piece has far less than 4 GiB.
            let short = u32::try_from(length).unwrap_or(0);
            if count == 0 {
                let _ = segments.pop();
                let head = Head::Hole { to, offset, length: short, place };
                self.push(Message { head, body: Body::None, after });
            } else {
                self.push_bodies(Head::Data { to, offset, length: short, place }, segments, count, after);
            }
            offset += length;
        }
    }

    /// Pushes the first `count` segments as the payload of one head.
    fn push_bodies(&self, head: Head, segments: &mut Segments, count: usize, after: After) {
        let mut head = Some(head);
        for left in (0..count).rev() {
            let Some(body) = next_body(segments) else { return };
            let after = if left == 0 { after } else { After::default() };
            self.push(Message { head: head.take().unwrap_or(Head::Continued), body, after });
        }
    }

    async fn read_in_one_chunk(&self, to: To, range: Range<u64>, segments: &mut Segments) {
        let length = range.end - range.start;
        let result = self.read_piece(range.clone(), segments).await;
        let after = After { requests: 1, payload_bytes: length, ..After::default() };
        if let Err(ReadError { at, error }) = result {
            segments.truncate(0);
            let head = Head::Error { to, errno: error.errno(), text: error.text(), at: Some(at) };
            return self.push(Message { head, body: Body::None, after });
        }
        let count = segments.iter().count();
        if count == 1 {
            return self.push_chunks(to, range.start, segments, Place::Last, after);
        }
        let length = u32::try_from(length).unwrap_or(0);
        let head = Head::Data { to, offset: range.start, length, place: Place::Last };
        self.push_bodies(head, segments, count, after);
    }

    async fn read_simple(&self, to: To, range: Range<u64>, segments: &mut Segments) {
        self.gate.enter().await;
        let payload_bytes = range.end - range.start;
        let after = After { requests: 1, payload_bytes, holds: 1, ..After::default() };
        if let Err(ReadError { error, .. }) = self.read_piece(range, segments).await {
            segments.truncate(0);
            return self.acknowledge(to, Err(error), after);
        }
        let count = segments.iter().count();
        self.push_bodies(Head::Simple { to, errno: None }, segments, count, after);
    }

    /// Answers a long read by one simple reply that is sent while the rest is still being read. An error after the
    /// first piece cannot be said any more: the protocol has the server close the connection then.
    async fn read_stream(&self, to: To, range: Range<u64>, segments: &mut Segments) {
        self.gate.enter_alone().await;
        let mut left = range;
        let mut head = Some(Head::Simple { to, errno: None });
        while !left.is_empty() {
            let piece = first_piece(&left);
            let payload_bytes = piece.end - piece.start;
            let whole = After { requests: 1, payload_bytes, holds_alone: 1, ..After::default() };
            left.start = piece.end;
            if let Err(failure) = self.read_piece(piece, segments).await {
                segments.truncate(0);
                if head.is_some() {
                    return self.acknowledge(to, Err(failure.error), whole);
                }
                self.broken_off.set(Some(failure));
                self.outbox.abandon(ConnectionError::Closed);
                self.connection.close();
                return self.release(whole);
            }
            while let Some(body) = next_body(segments) {
                let after = match (segments.length(), left.is_empty()) {
                    (0, true) => whole,
                    (0, false) => After { payload_bytes, ..After::default() },
                    _ => After::default(),
                };
                let head = head.take().unwrap_or(Head::Continued);
                self.push_stream(Message { head, body, after });
            }
        }
    }

    fn push_stream(&self, message: Message) {
        if self.outbox.failure().is_some() {
            self.release(message.after);
        } else {
            self.outbox.push_stream(message);
        }
    }
}

/// How many data segments lead, and how long they are together; a count of 0 with the length of leading zeros.
fn first_run(segments: &Segments) -> (usize, u64) {
    let mut run = (0, 0);
    for segment in segments.iter() {
        match segment {
            Segment::Data(bytes) => run = (run.0 + 1, run.1 + bytes.len() as u64),
            Segment::Zeros(length) if run.0 == 0 => return (0, *length),
            Segment::Zeros(_) => break,
        }
    }
    run
}

fn next_body(segments: &mut Segments) -> Option<Body> {
    Some(match segments.pop()? {
        Segment::Data(bytes) => Body::Data(bytes),
        Segment::Zeros(length) => Body::Zeros(length),
    })
}
