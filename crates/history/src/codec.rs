//! Numbers and points as bytes: small numbers take one byte, what does not change takes none.

use crate::latencies::Latencies;
use crate::point::{Gauge, Object, Point, Requests, Span};

/// What a point has, in its first byte.
const READS: u8 = 1;
const WRITES: u8 = 2;
const ROOM: u8 = 4;
const TIMES: u8 = 8;
const FOLDED: u8 = 16;
const KNOWN: u8 = 31;

pub(crate) fn put(into: &mut Vec<u8>, mut number: u64) {
    loop {
        let low = u8::try_from(number & 0x7F).unwrap_or(0);
        number >>= 7;
        if number == 0 {
            into.push(low);
            return;
        }
        into.push(low | 0x80);
    }
}

/// Bytes that are left to be read. Every answer is `None` where they end, or make no sense.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7F);
            if part << shift >> shift != part {
                return None;
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.fixed().map(u64::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.fixed().map(u32::from_le_bytes)
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(crate) fn object(&mut self) -> Option<Object> {
        let kind = self.byte()?;
        let id = self.u64()?;
        match (kind, id) {
            (1, 0) => Some(Object::Pool),
            (2, id) => Some(Object::Space(id)),
            (3, id) => Some(Object::Disk(id)),
            _ => None,
        }
    }
}

pub(crate) fn put_object(into: &mut Vec<u8>, object: Object) {
    let (kind, id) = match object {
        Object::Pool => (1, 0),
        Object::Space(id) => (2, id),
        Object::Disk(id) => (3, id),
    };
    into.push(kind);
    into.extend(id.to_le_bytes());
}

/// What of a point repeats most often: the room, as the last point of the same object had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Room {
    used: u64,
    waiting: u64,
    size: u64,
}

impl Room {
    /// That behind a point.
    pub(crate) fn after(point: &Point) -> Self {
        Self { used: point.used.most, waiting: point.waiting.most, size: point.size_kib }
    }

    /// Whether a point has this room throughout.
    fn is_of(self, point: &Point) -> bool {
        let gauge = |kib: u64| Gauge { least: kib, sum: kib.saturating_mul(point.samples), most: kib };
        (point.used, point.waiting, point.size_kib) == (gauge(self.used), gauge(self.waiting), self.size)
    }
}

fn put_span(into: &mut Vec<u8>, span: Span) {
    put(into, span.least);
    put(into, span.most.saturating_sub(span.least));
}

fn put_requests(into: &mut Vec<u8>, requests: &Requests, is_folded: bool) {
    put(into, requests.count);
    put(into, requests.bytes);
    put(into, requests.total_us);
    if is_folded {
        put_span(into, requests.per_s);
        put_span(into, requests.bytes_per_s);
    }
    let latencies = requests.latencies.stored();
    put(into, latencies.len() as u64);
    let mut last = 0;
    for (bucket, count) in latencies {
        into.push(bucket - last);
        put(into, *count);
        last = *bucket;
    }
}

fn put_gauge(into: &mut Vec<u8>, gauge: Gauge, is_folded: bool) {
    put(into, gauge.least);
    if is_folded {
        put(into, gauge.most.saturating_sub(gauge.least));
        put(into, gauge.sum);
    }
}

/// Writes a point behind one of the same object with this room.
pub(crate) fn put_point(into: &mut Vec<u8>, point: &Point, before: Room) {
    let is_folded = point.samples != 1;
    let has_times = (point.errors, point.busy_ms, point.queue_ms) != (0, 0, 0);
    let flag = |is: bool, flag: u8| if is { flag } else { 0 };
    into.push(
        flag(!point.reads.is_none(), READS)
            | flag(!point.writes.is_none(), WRITES)
            | flag(!before.is_of(point), ROOM)
            | flag(has_times, TIMES)
            | flag(is_folded, FOLDED),
    );
    if is_folded {
        put(into, point.samples);
    }
    put(into, point.seconds);
    for requests in [&point.reads, &point.writes].into_iter().filter(|requests| !requests.is_none()) {
        put_requests(into, requests, is_folded);
    }
    if !before.is_of(point) {
        put_gauge(into, point.used, is_folded);
        put_gauge(into, point.waiting, is_folded);
        put(into, point.size_kib);
    }
    if has_times {
        [point.errors, point.busy_ms, point.queue_ms].into_iter().for_each(|number| put(into, number));
    }
}

impl Reader<'_> {
    fn span(&mut self) -> Option<Span> {
        let least = self.number()?;
        Some(Span { least, most: least.checked_add(self.number()?)? })
    }

    fn requests(&mut self, seconds: u64, is_folded: bool) -> Option<Requests> {
        let (count, bytes, total_us) = (self.number()?, self.number()?, self.number()?);
        let spans = if is_folded { Some((self.span()?, self.span()?)) } else { None };
        let (length, mut last, mut counts) = (self.number()?, 0_u8, Vec::new());
        for _ in 0..length {
            last = last.checked_add(self.byte()?)?;
            counts.push((last, self.number()?));
        }
        let mut found = Requests::sampled(seconds, count, bytes, total_us, Latencies::of_stored(counts)?);
        if let Some((per_s, bytes_per_s)) = spans {
            (found.per_s, found.bytes_per_s) = (per_s, bytes_per_s);
        }
        Some(found)
    }

    fn gauge(&mut self, is_folded: bool) -> Option<Gauge> {
        let least = self.number()?;
        if !is_folded {
            return Some(Gauge::sampled(least));
        }
        let most = least.checked_add(self.number()?)?;
        Some(Gauge { least, most, sum: self.number()? })
    }

    /// Reads a point behind one of the same object with this room.
    pub(crate) fn point(&mut self, before: Room) -> Option<Point> {
        let flags = self.byte().filter(|flags| flags & !KNOWN == 0)?;
        let has = |flag: u8| flags & flag != 0;
        let is_folded = has(FOLDED);
        let samples = if is_folded { self.number()? } else { 1 };
        let seconds = self.number()?;
        let none = Requests::default();
        let reads = if has(READS) { self.requests(seconds, is_folded)? } else { none.clone() };
        let writes = if has(WRITES) { self.requests(seconds, is_folded)? } else { none };
        let same = |kib: u64| Gauge { least: kib, sum: kib.saturating_mul(samples), most: kib };
        let (used, waiting, size_kib) = if has(ROOM) {
            (self.gauge(is_folded)?, self.gauge(is_folded)?, self.number()?)
        } else {
            (same(before.used), same(before.waiting), before.size)
        };
        let (errors, busy_ms, queue_ms) =
            if has(TIMES) { (self.number()?, self.number()?, self.number()?) } else { (0, 0, 0) };
        Some(Point { samples, seconds, reads, writes, errors, busy_ms, queue_ms, used, waiting, size_kib })
    }
}
