//! The contracts of [`Export`] and [`Connection`] as suites that every implementor runs.
//!
//! Every check panics with what it saw.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::task::Poll;

use dolmen_block_io::Durability;
use dolmen_buffer::{Arena, Buffer, Shared};

use crate::connection::{Connection, Receive};
use crate::export::{
    Access, BlockState, EXTENTS_BYTES_MAX, Export, Extents, Holes, PIECE_BYTES_MAX, Segment, Segments, Width,
    ZeroMode, Zeroing,
};

/// Checks an export that takes changes and has at least 4 MiB; its content is overwritten. `peer` is the same export,
/// opened for another connection.
///
/// # Panics
/// When the export breaks its contract.
pub async fn export<X: Export>(export: &X, peer: &X, arena: &Arena) {
    export.profile().assert_valid();
    assert_eq!(export.profile().access, Access::ReadWrite, "the suite writes");
    assert!(export.profile().size.0 >= 4 * PIECE_BYTES_MAX, "the suite needs 4 MiB");
    let lent_before = arena.lent_count();
    written_is_read_back(export, peer, arena).await;
    a_change_touches_only_its_own_range(export, peer, arena).await;
    zeroed_and_discarded_ranges_are_reported_truly(export, arena).await;
    let unit = u64::from(export.profile().block_bytes_min);
    assert_eq!(export.cache(0..unit).await, Ok(()), "reading ahead may do nothing, but does not fail");
    assert_eq!(arena.lent_count(), lent_before, "an export gives every buffer back");
}

fn usize_of(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

async fn filled(arena: &Arena, length: u64, byte: u8) -> Shared {
    let mut buffer = arena.take(usize_of(length)).await;
    buffer.fill(byte);
    buffer.freeze()
}

async fn expect<X: Export>(export: &X, range: Range<u64>, byte: u8) {
    let mut segments = Segments::new();
    assert_eq!(export.read(range.clone(), &mut segments).await, Ok(()), "reading {range:?}");
    assert_eq!(segments.length(), range.end - range.start, "a read is as long as its range");
    let right = segments.iter().all(|segment| match segment {
        Segment::Data(bytes) => bytes.iter().all(|found| *found == byte),
        Segment::Zeros(length) => byte == 0 && *length > 0,
    });
    assert!(right, "{range:?} reads as {byte:#x}");
}

async fn written_is_read_back<X: Export>(export: &X, peer: &X, arena: &Arena) {
    let unit = u64::from(export.profile().block_bytes_min);
    for (at, length, byte) in [(0, unit, 1), (unit, 65536, 2), (PIECE_BYTES_MAX - unit, PIECE_BYTES_MAX, 3)] {
        let from = filled(arena, length, byte).await;
        assert_eq!(export.write(at, from, Durability::Cached).await, Ok(()));
        expect(export, at..at + length, byte).await;
        expect(peer, at..at + length, byte).await;
        assert_eq!(peer.flush().await, Ok(()), "a flush covers what others wrote");
    }
    let durable = filled(arena, unit, 4).await;
    assert_eq!(export.write(0, durable, Durability::Durable).await, Ok(()));
    expect(peer, 0..unit, 4).await;
}

async fn a_change_touches_only_its_own_range<X: Export>(export: &X, peer: &X, arena: &Arena) {
    let unit = u64::from(export.profile().block_bytes_min);
    let ranges = [4 * unit..5 * unit, 4 * unit + 7..5 * unit, 4 * unit..5 * unit - 1, unit + 1..8 * unit - 1];
    for (round, range) in (0..4).flat_map(|round| ranges.clone().map(|range| (round, range))) {
        assert_eq!(export.write(0, filled(arena, 9 * unit, 7).await, Durability::Cached).await, Ok(()));
        let length = range.end - range.start;
        let (changed, byte) = match round {
            0 => {
                let from = filled(arena, length, 8).await;
                (export.write(range.start, from, Durability::Cached).await, Some(8))
            }
            1 => (export.discard(range.clone(), Durability::Durable).await, None),
            2 => (export.write_zeroes(zeroing(range.clone(), Holes::Allowed)).await, Some(0)),
            _ => (export.write_zeroes(zeroing(range.clone(), Holes::Forbidden)).await, Some(0)),
        };
        assert_eq!(changed, Ok(()));
        expect(peer, 0..range.start, 7).await;
        expect(peer, range.end..9 * unit, 7).await;
        if let Some(byte) = byte {
            expect(peer, range, byte).await;
        }
    }
}

fn zeroing(range: Range<u64>, holes: Holes) -> Zeroing {
    Zeroing { range, holes, zero_mode: ZeroMode::Any, durability: Durability::Cached }
}

async fn zeroed_and_discarded_ranges_are_reported_truly<X: Export>(export: &X, arena: &Arena) {
    let (first, second) = (0..PIECE_BYTES_MAX, PIECE_BYTES_MAX..2 * PIECE_BYTES_MAX);
    for holes in [Holes::Allowed, Holes::Forbidden] {
        assert_eq!(
            export.write(0, filled(arena, PIECE_BYTES_MAX, 9).await, Durability::Cached).await,
            Ok(())
        );
        assert_eq!(export.write_zeroes(zeroing(second.clone(), holes)).await, Ok(()));
        expect(export, first.clone(), 9).await;
        expect(export, second.clone(), 0).await;
        let told = state_at(export, arena, second.clone()).await;
        assert!(
            holes == Holes::Allowed || told != BlockState::Hole,
            "what must not become a hole is told as none"
        );
        assert_eq!(state_at(export, arena, first.clone()).await, BlockState::Data, "content is told as data");
    }
}

/// The state of the first extent of a range, which must not reach beyond what it says.
async fn state_at<X: Export>(export: &X, arena: &Arena, range: Range<u64>) -> BlockState {
    let memory = arena.take(EXTENTS_BYTES_MAX).await;
    let mut extents = Extents::new(memory, range.end - range.start, 1, Width::Wide);
    assert_eq!(export.block_status(range, &mut extents).await, Ok(()));
    let Some(state) = extents.first_state() else { panic!("an export tells at least one extent") };
    state
}

/// Checks the two ends of one stream, which are closed afterwards.
///
/// # Panics
/// When the connection breaks its contract.
pub async fn connection<A: Connection, B: Connection>(a: &A, b: &B, arena: &Arena) {
    parts_arrive_in_order(a, b, arena).await;
    parts_arrive_in_order(b, a, arena).await;
    a_receive_brings_as_much_as_asked(a, b, arena).await;
    long_transfers_run_both_ways_at_once(a, b, arena).await;
    closing_ends_what_is_pending(a, b, arena).await;
}

async fn send<C: Connection>(connection: &C, parts: Vec<Shared>) {
    let (_, result) = connection.send(parts).await;
    assert_eq!(result, Ok(()), "sending to a peer that listens");
}

async fn receive<C: Connection>(
    connection: &C,
    into: Buffer,
    range: Range<usize>,
    least: usize,
) -> (Buffer, usize) {
    let (buffer, result) = connection.receive(Receive { into, range, least }).await;
    let Ok(count) = result else { panic!("receiving from a peer that sends: {result:?}") };
    (buffer, count)
}

async fn parts_arrive_in_order<A: Connection, B: Connection>(from: &A, to: &B, arena: &Arena) {
    let parts =
        vec![filled(arena, 10, 1).await, filled(arena, 1, 2).await.slice(0..1), filled(arena, 500, 3).await];
    send(from, parts).await;
    let mut into = arena.take(600).await;
    into.fill(9);
    let (into, count) = receive(to, into, 50..561, 511).await;
    assert_eq!(count, 511, "the range is filled, and no more");
    let expected = [(0..50, 9), (50..60, 1), (60..61, 2), (61..561, 3), (561..600, 9)];
    for (range, byte) in expected {
        let right = into.get(range.clone()).unwrap_or_default().iter().all(|found| *found == byte);
        assert!(right, "bytes {range:?} are {byte}");
    }
}

async fn a_receive_brings_as_much_as_asked<A: Connection, B: Connection>(a: &A, b: &B, arena: &Arena) {
    let first = receive(b, arena.take(64).await, 0..64, 20);
    let both = async {
        send(a, vec![filled(arena, 12, 5).await]).await;
        send(a, vec![filled(arena, 12, 5).await]).await;
    };
    let ((buffer, count), ()) = join(first, both).await;
    assert!((20..=24).contains(&count), "at least what was asked for, at most what was sent, not {count}");
    if count < 24 {
        let (_, rest) = receive(b, buffer, 0..24 - count, 24 - count).await;
        assert_eq!(rest, 24 - count);
    }
}

async fn long_transfers_run_both_ways_at_once<A: Connection, B: Connection>(a: &A, b: &B, arena: &Arena) {
    let whole = usize_of(PIECE_BYTES_MAX);
    let (to_b, to_a) = (filled(arena, PIECE_BYTES_MAX, 6).await, filled(arena, PIECE_BYTES_MAX, 7).await);
    let (at_a, at_b) = (arena.take(whole).await, arena.take(whole).await);
    let sends = join(send(a, vec![to_b]), send(b, vec![to_a]));
    let receives = join(receive(a, at_a, 0..whole, whole), receive(b, at_b, 0..whole, whole));
    let (_, ((at_a, _), (at_b, _))) = join(sends, receives).await;
    assert!(at_a.iter().all(|byte| *byte == 7) && at_b.iter().all(|byte| *byte == 6), "a MiB each way");
}

async fn closing_ends_what_is_pending<A: Connection, B: Connection>(a: &A, b: &B, arena: &Arena) {
    send(a, vec![filled(arena, 3, 8).await]).await;
    let pending = a.receive(Receive { into: arena.take(16).await, range: 0..16, least: 16 });
    let ((_, result), ()) = join(pending, async { a.close() }).await;
    assert!(!matches!(result, Ok(16)), "nothing was sent: {result:?}");
    let (buffer, result) = b.receive(Receive { into: arena.take(16).await, range: 0..16, least: 16 }).await;
    assert_eq!((result, buffer.first()), (Ok(3), Some(&8)), "what was sent before closing is delivered");
    let (_, result) = a.send(vec![filled(arena, 1, 1).await]).await;
    assert!(result.is_err(), "nothing is sent after closing");
    b.close();
}

/// Both at once.
async fn join<S, T>(a: impl Future<Output = S>, b: impl Future<Output = T>) -> (S, T) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    poll_fn(|cx| {
        if of_a.is_none() {
            of_a = ready(a.as_mut().poll(cx));
        }
        if of_b.is_none() {
            of_b = ready(b.as_mut().poll(cx));
        }
        match (of_a.take(), of_b.take()) {
            (Some(value_a), Some(value_b)) => Poll::Ready((value_a, value_b)),
            (value_a, value_b) => {
                (of_a, of_b) = (value_a, value_b);
                Poll::Pending
            }
        }
    })
    .await
}

fn ready<T>(poll: Poll<T>) -> Option<T> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
