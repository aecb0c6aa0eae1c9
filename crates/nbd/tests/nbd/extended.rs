//! Extended headers: what is special about them. What they share with the other forms runs in the tests of those.

use std::rc::Rc;

use dolmen_block_io::Spawner;
use dolmen_nbd::option::{HandshakeError, RefusedOption};
use dolmen_nbd::request::RequestError;
use dolmen_nbd::{Farewell, SessionError};

use crate::client::{
    ACK, BLOCK_STATUS, CACHE, Client, DISC, FAST_ZERO, FLUSH, FUA, NO_HOLE, PAYLOAD_LEN, READ, REQ_ONE,
    Request, TRIM, WRITE, WRITE_ZEROES, context_data, extended_bytes, option_bytes, request_bytes,
};
use crate::export::VAST_BYTES;
use crate::world::World;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const INVALID: u32 = 3;
const EXTENDED_REQUIRED: u32 = 10;

fn request(kind: u16, flags: u16, offset: u64, length: u64) -> Request {
    Request { kind, flags, offset, length }
}

/// Runs the body for a client of `vast` with extended headers.
fn with_vast<F: Future<Output = ()> + 'static>(seed: u64, body: impl FnOnce(Rc<World>, Client) -> F) {
    let world = World::new(seed);
    let mut client = world.client();
    let client = world.run(async move {
        assert_eq!(client.go_extended("vast").await.0, VAST_BYTES);
        client
    });
    world.run(body(Rc::clone(&world), client));
    world.assert_at_rest();
}

#[test]
fn they_are_negotiated_once_with_or_without_structured_replies_and_there_is_no_way_back() {
    let world = World::new(1);
    let (mut client, mut old) = (world.client(), world.client());
    let ending = world.run(async move {
        client.greet(3).await;
        assert_eq!(client.refused(11, b"x").await, INVALID);
        assert_eq!(client.option(8, &[]).await, vec![(ACK, vec![])]);
        assert_eq!(client.option(11, &[]).await, vec![(ACK, vec![])]);
        assert_eq!(client.refused(11, &[]).await, INVALID);
        assert_eq!(client.refused(8, &[]).await, EXTENDED_REQUIRED);
        let contexts = context_data("disk", &["base:allocation"]);
        assert_eq!(client.option(10, &contexts).await.len(), 2);
        let (_, flags) = client.enter("disk").await;
        assert_ne!(flags & 1 << 7, 0, "reads in one chunk are offered");
        assert_eq!(flags & 1 << 12, 0, "a payload with block status is not");
        (client.structured, client.extended) = (true, true);
        assert_eq!(client.read(0, 512).await.error, None);
        assert_eq!(client.leave().await, Ok(Farewell::Left));
        // The old option has no form of answer that fits.
        old.greet(3).await;
        assert_eq!(old.option(11, &[]).await, vec![(ACK, vec![])]);
        old.put(&option_bytes(1, b"disk")).await;
        old.session.ended().await
    });
    let refusal = RefusedOption::NeedsGo;
    assert_eq!(ending, Err(SessionError::Handshake(HandshakeError::NoExport { refusal })));
    world.assert_at_rest();
}

#[test]
fn effects_are_as_long_as_the_export_and_reach_it_in_bounded_parts() {
    // Scenario: trims, zeroes and caches of 9 GiB, of an odd length, and up to the last byte. Expected: parts of at most
    // 1 GiB that make up the range, and for a durable one a flush behind the last instead of one for each.
    with_vast(2, |world, mut client| async move {
        let vast = Rc::clone(&world.server.exports().vast);
        let ranges =
            [(0, 9 * GIB), (3 * GIB - 512, 5 * GIB + 1024), (VAST_BYTES - 7 * GIB - 512, 7 * GIB + 512)];
        for (kind, flags) in [(TRIM, 0), (TRIM, FUA), (WRITE_ZEROES, 0), (WRITE_ZEROES, FUA), (CACHE, 0)] {
            for (offset, length) in ranges {
                let (flushes, cached) = (vast.flushes.get(), vast.cached.get());
                vast.parts.borrow_mut().clear();
                assert_eq!(client.ask(kind, flags, offset, length, &[]).await.error, None, "{kind} {offset}");
                if kind == CACHE {
                    assert_eq!(vast.cached.get() - cached, length);
                    continue;
                }
                let parts = vast.parts.take();
                assert_eq!((parts[0].start, parts.last().unwrap().end), (offset, offset + length));
                assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start), "without gaps");
                assert!(parts.iter().all(|part| part.end - part.start <= GIB), "in bounded parts");
                assert_eq!(vast.flushes.get() - flushes, usize::from(flags == FUA));
            }
        }
        assert_eq!(vast.durable_changes.get(), 0);
        for (kind, error) in [(TRIM, 22), (WRITE_ZEROES, 28), (CACHE, 22), (BLOCK_STATUS, 22)] {
            for (offset, length) in
                [(512, VAST_BYTES), (VAST_BYTES, 512), (512, u64::MAX - 511), (u64::MAX - 511, 512)]
            {
                assert_eq!(
                    client.ask(kind, 0, offset, length, &[]).await.error,
                    Some(error),
                    "{kind} {offset}"
                );
            }
        }
        let fast = client.ask(WRITE_ZEROES, NO_HOLE | FAST_ZERO, 0, 9 * GIB, &[]).await;
        assert_eq!(fast.error, Some(95));
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
}

#[test]
fn a_long_effect_does_not_hold_up_a_stop() {
    // Scenario: 4 TiB are trimmed, 4,096 parts, and the server is told to stop. Expected: the trim is
    // answered with the error for that, and the server stops within its patience.
    with_vast(3, |world, mut client| async move {
        let vast = Rc::clone(&world.server.exports().vast);
        vast.held.set(true);
        client.send(request(TRIM, FUA, 0, 4096 * GIB), &[]).await;
        dolmen_block_io::sleep(world.clock.as_ref(), std::time::Duration::from_millis(1)).await;
        let server = Rc::clone(&world.server);
        world.executor.spawn("stop", Box::pin(async move { server.stop().await }));
        dolmen_block_io::sleep(world.clock.as_ref(), std::time::Duration::from_millis(1)).await;
        vast.held.set(false);
        vast.notify.notify_all();
        assert_eq!(client.reply().await.unwrap().error, Some(108));
        assert_eq!(client.session.ended().await, Ok(Farewell::Stopped));
        assert_eq!(vast.parts.borrow().len(), 1, "what was under way was finished, and no more begun");
    });
}

#[test]
fn block_status_has_wide_extents_and_a_bounded_reach() {
    with_vast(4, |_, mut client| async move {
        for (length, told) in
            [(512, 512), (4 * GIB - 512, 4 * GIB - 512), (9 * GIB, 4 * GIB), (VAST_BYTES, 4 * GIB)]
        {
            let reply = client.ask(BLOCK_STATUS, 0, 0, length, &[]).await;
            assert_eq!(reply.extents, [(told, 3)], "of {length}");
            assert_eq!(client.ask(BLOCK_STATUS, REQ_ONE, 0, length, &[]).await.extents, [(told, 3)]);
        }
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
    let world = World::new(5);
    let mut client = world.client();
    world.run(async move {
        client.go_extended("disk").await;
        for sector in 0..300 {
            client.write(sector * 1024, &[1; 512]).await;
        }
        let reply = client.ask(BLOCK_STATUS, 0, 0, MIB, &[]).await;
        assert_eq!(reply.extents.len(), 240, "half as many as narrow ones");
        assert!(
            reply
                .extents
                .iter()
                .enumerate()
                .all(|(at, extent)| *extent == (512, if at % 2 == 0 { 0 } else { 3 }))
        );
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}

#[test]
fn payloads_are_where_they_belong_or_are_skipped_and_refused() {
    // Scenario: payloads of 1 byte to 64 MiB with every command but write, known or not. Expected: EINVAL for each, the
    // payload is consumed, and the next request is understood.
    with_vast(6, |world, mut client| async move {
        let vast = Rc::clone(&world.server.exports().vast);
        let mut cookie = 1 << 50;
        let payload = vec![0x25; usize::try_from(64 * MIB).unwrap()];
        for kind in [READ, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS, 8, 99] {
            for length in [1, 12, 512, 4096, 64 * MIB] {
                let payload = &payload[..usize::try_from(length).unwrap()];
                cookie += 1;
                let head = extended_bytes(cookie, &request(kind, PAYLOAD_LEN, 0, length));
                let reply = raw(&mut client, &head, payload).await;
                assert_eq!(reply, (cookie, 22), "{kind} {length}");
            }
        }
        assert!(vast.parts.borrow().is_empty() && vast.flushes.get() == 0, "nothing was done");
        assert_eq!(client.ask(TRIM, 0, 0, 512, &[]).await.error, None);
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
}

#[test]
fn a_write_has_its_payload_with_and_without_the_flag() {
    // Scenario: as the protocol has it, and as QEMU's client sends it. Expected: both are written.
    let world = World::new(10);
    let mut client = world.client();
    world.run(async move {
        client.go_extended("disk").await;
        for (at, flags) in [(0, PAYLOAD_LEN), (512, 0), (1024, FUA), (1536, PAYLOAD_LEN | FUA)] {
            let fill = u8::try_from(at / 512 + 1).unwrap();
            let head = extended_bytes(at, &request(WRITE, flags, at, 512));
            client.put(&[&head[..], &[fill; 512]].concat()).await;
            let done = client.take(32).await.unwrap();
            assert_eq!(done[..8], [0x6e, 0x8a, 0x27, 0x8c, 0, 1, 0, 0], "done, and nothing more");
            assert_eq!(client.read(at, 512).await.content, [fill; 512]);
        }
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}

/// Sends bytes and takes one error chunk: cookie and number.
async fn raw(client: &mut Client, head: &[u8], payload: &[u8]) -> (u64, u32) {
    client.put(head).await;
    client.put(payload).await;
    let head = client.take(32).await.expect("an answer");
    assert_eq!(head[..8], [0x6e, 0x8a, 0x27, 0x8c, 0, 1, 0x80, 1]);
    let length = usize::try_from(crate::client::be64(&head[24..])).unwrap();
    let data = client.take(length).await.unwrap();
    (crate::client::be64(&head[8..]), crate::client::be32(&data))
}

#[test]
fn a_payload_above_the_largest_block_ends_the_connection_before_it_is_read() {
    for (kind, length) in [
        (WRITE, 64 * MIB + 512),
        (WRITE, u64::MAX - 511),
        (WRITE, 1 << 32),
        (FLUSH, 64 * MIB + 1),
        (99, 1 << 63),
    ] {
        with_vast(7, |_, mut client| async move {
            let head = extended_bytes(9, &request(kind, PAYLOAD_LEN, 0, length));
            assert_eq!(raw(&mut client, &head, &[]).await, (9, 22));
            assert!(client.take(1).await.is_none());
            let error = RequestError::PayloadTooLong { offset: 0, length };
            assert_eq!(client.session.ended().await, Err(SessionError::Request(error)));
        });
    }
}

#[test]
fn compact_requests_are_out_of_step_where_extended_ones_were_agreed_on_and_the_other_way_round() {
    let (compact, extended) = (0x2560_9513, 0x21e4_1c71);
    with_vast(8, |_, client| async move {
        client.put(&request_bytes(1, &request(READ, 0, 0, 512))).await;
        client.put(&[0; 4]).await;
        let error = RequestError::BadMagic { found: compact, expected: extended };
        assert_eq!(client.session.ended().await, Err(SessionError::Request(error)));
    });
    let world = World::new(9);
    let mut client = world.client();
    let ending = world.run(async move {
        client.go("disk").await;
        client.put(&extended_bytes(1, &request(DISC, 0, 0, 0))).await;
        client.session.ended().await
    });
    let error = RequestError::BadMagic { found: extended, expected: compact };
    assert_eq!(ending, Err(SessionError::Request(error)));
    world.assert_at_rest();
}
