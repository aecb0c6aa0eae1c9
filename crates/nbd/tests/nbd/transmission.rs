//! Commands, one by one, in all forms of requests and replies.

use std::rc::Rc;

use dolmen_block_io::Spawner;
use dolmen_buffer::ArenaConfig;
use dolmen_nbd::request::RequestError;
use dolmen_nbd::{
    EXTENTS_MAX, ExportError, Farewell, IN_FLIGHT_MAX, Limits, PIECE_BYTES_MAX, ReadError, SessionError,
};

use crate::client::{
    BLOCK_STATUS, CACHE, Client, DF, FAST_ZERO, FLUSH, FUA, NO_HOLE, READ, REQ_ONE, Request, TRIM, WRITE,
    WRITE_ZEROES,
};
use crate::export::{DISK_BYTES, UNIT};
use crate::world::World;

const MIB: u64 = 1 << 20;

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    let round: Vec<u8> = (0..253).map(|index| seed.wrapping_add(index)).collect();
    round.iter().copied().cycle().take(253 * 4).collect::<Vec<u8>>().repeat(len / 1012 + 1)[..len].to_vec()
}

/// Runs the same body over simple and structured replies, and over extended headers.
fn in_all_forms<F: Future<Output = ()> + 'static>(seed: u64, body: impl Fn(Rc<World>, Client) -> F) {
    for form in 0..3 {
        let world = World::new(seed);
        let mut client = world.client();
        let client = world.run(async move {
            match form {
                0 => client.go_simple("disk").await,
                1 => client.go("disk").await,
                _ => client.go_extended("disk").await,
            };
            client
        });
        world.run(body(Rc::clone(&world), client));
        world.assert_at_rest();
    }
}

#[test]
fn written_is_read_back_and_flushed() {
    in_all_forms(1, |world, mut client| async move {
        let disk = Rc::clone(&world.server.exports().disk);
        for (offset, len) in [(0, 512), (512, 4096), (1 << 20, 65536), (3 << 20, 1 << 20), (512, 100 * 512)] {
            let bytes = pattern(len, 7);
            assert_eq!(client.write(offset, &bytes).await.error, None);
            assert_eq!(client.read(offset, len as u64).await.content, bytes);
        }
        assert_eq!(disk.durable_changes.get(), 0);
        assert_eq!(client.ask(WRITE, FUA, 0, 512, &[1; 512]).await.error, None);
        assert_eq!(client.ask(TRIM, FUA, 0, 512, &[]).await.error, None);
        assert_eq!(client.ask(WRITE_ZEROES, FUA, 0, 512, &[]).await.error, None);
        assert_eq!(disk.durable_changes.get(), 3);
        assert_eq!(client.ask(FLUSH, 0, 0, 0, &[]).await.error, None);
        assert_eq!(client.ask(CACHE, 0, 0, 64 * MIB / 2, &[]).await.error, None);
        assert_eq!((disk.flushes.get(), disk.cached.get()), (1, 32 << 20));
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
}

#[test]
fn a_request_of_64_mib_passes_through_an_arena_of_4() {
    // Aligned and not, written and read back; the arena has four frames of 1 MiB.
    in_all_forms(2, |world, mut client| async move {
        for offset in [0, 512, 4095] {
            let bytes = pattern(64 << 20, 3);
            assert_eq!(client.write(offset, &bytes).await.error, None);
            assert!(client.read(offset, 64 * MIB).await.content == bytes, "64 MiB at {offset} read back");
        }
        assert!(world.arena.lent_count() <= 3, "two frames of the connection and the zeros");
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
}

#[test]
fn many_long_simple_reads_at_once_neither_mix_nor_starve_each_other() {
    // Long reads, which go out while they are read, between short ones, writes and flushes, in an arena that a few of
    // them fill.
    let config = ArenaConfig { small_count: 8, medium_count: 2, large_count: 3 };
    for seed in 0..10 {
        let world = World::with_arena(
            seed,
            Limits { payload_bytes_max: PIECE_BYTES_MAX, ..Limits::default() },
            config,
        );
        let mut client = world.client();
        let executor = Rc::clone(&world.executor);
        world.run(async move {
            client.go_simple("disk").await;
            let bytes = pattern(4 << 20, 9);
            assert_eq!(client.write(512, &bytes).await.error, None);
            let mut wanted = std::collections::BTreeMap::new();
            let mut all = Vec::new();
            for number in 0..40u64 {
                let (kind, offset, length) = match number % 5 {
                    0 => (READ, 512, 4 * MIB - 1024),
                    1 => (READ, 1024 + number * 512, 2 * MIB),
                    2 => (READ, 512 * number, 65536),
                    3 => (FLUSH, 0, 0),
                    _ => (WRITE, 20 << 20, MIB / 2),
                };
                let payload = if kind == WRITE { vec![1; usize::try_from(length).unwrap()] } else { vec![] };
                let (cookie, head) = client.begin(Request { kind, flags: 0, offset, length });
                all.extend([head, payload].concat());
                wanted.insert(cookie, (kind, offset, length));
            }
            let to_server = Rc::clone(&client.session.connection.to_server);
            executor.spawn("requests", Box::pin(async move { assert!(to_server.write(&all).await) }));
            while !wanted.is_empty() {
                let reply = client.reply().await.unwrap();
                let (kind, offset, length) = wanted.remove(&reply.cookie).unwrap();
                assert_eq!(reply.error, None);
                if kind == READ && offset >= 512 {
                    let from = usize::try_from(offset - 512).unwrap();
                    assert!(
                        reply.content == bytes[from..from + usize::try_from(length).unwrap()],
                        "{length} bytes at {offset}"
                    );
                }
            }
            assert_eq!(client.leave().await, Ok(Farewell::Left));
        });
        world.assert_at_rest();
    }
}

#[test]
fn a_stream_of_writes_copies_nothing_and_a_deep_queue_of_reads_saves_receives() {
    let world = World::new(3);
    let mut client = world.client();
    let (arena, connection) = (world.arena.clone(), Rc::clone(&client.session.connection));
    world.run(async move {
        client.go("disk").await;
        client.write(0, &[1; 4096]).await;
        let copied = arena.counters().copied_bytes;
        for number in 1..50 {
            client
                .send(Request { kind: WRITE, flags: 0, offset: number * 4096, length: 4096 }, &[2; 4096])
                .await;
        }
        for _ in 1..50 {
            assert_eq!(client.reply().await.unwrap().error, None);
        }
        assert_eq!(arena.counters().copied_bytes, copied);
        // After a read, some of the next write's payload may have come with the heads: a bounded and counted copy.
        client.send(Request { kind: READ, flags: 0, offset: 0, length: 512 }, &[]).await;
        client.send(Request { kind: WRITE, flags: 0, offset: 0, length: 4096 }, &[3; 4096]).await;
        client.reply().await.unwrap();
        client.reply().await.unwrap();
        assert!(arena.counters().copied_bytes - copied <= 420);
        let receives = connection.receives.get();
        for _ in 0..100 {
            client.send(Request { kind: READ, flags: 0, offset: 0, length: 512 }, &[]).await;
        }
        for _ in 0..100 {
            client.reply().await.unwrap();
        }
        assert!(
            connection.receives.get() - receives < 90,
            "{} receives",
            connection.receives.get() - receives
        );
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}

#[test]
fn holes_are_sent_as_holes_and_neighbouring_data_as_one_chunk() {
    let world = World::new(4);
    let mut client = world.client();
    world.run(async move {
        client.go("disk").await;
        client.write(65536, &pattern(300_032, 1)).await;
        let reply = client.read(0, MIB).await;
        assert_eq!((reply.holes, reply.chunks), (2, 3));
        assert!(reply.content[..65536].iter().all(|byte| *byte == 0));
        assert!(reply.content[65536..365_568] == pattern(300_032, 1));
        let reply = client.ask(READ, DF, 0, MIB, &[]).await;
        assert_eq!((reply.holes, reply.chunks), (0, 1));
        assert!(reply.content[65536..365_568] == pattern(300_032, 1));
        let reply = client.ask(READ, DF, 8 << 20, MIB, &[]).await;
        assert_eq!((reply.holes, reply.chunks), (1, 1));
        let reply = client.ask(READ, DF, 0, MIB + 512, &[]).await;
        assert_eq!((reply.error, reply.chunks), (Some(75), 1));
        let reply = client.read(8 << 20, 3 * MIB).await;
        assert_eq!((reply.error, reply.holes), (None, 3));
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}

#[test]
fn a_bad_sector_is_named_and_what_lies_before_it_is_sent() {
    let world = World::new(5);
    let disk = Rc::clone(&world.server.exports().disk);
    let mut client = world.client();
    world.run(async move {
        client.go("disk").await;
        client.write(0, &pattern(2 << 20, 1)).await;
        disk.bad.borrow_mut().insert((MIB + 65536) / UNIT);
        let reply = client.read(512, 2 * MIB - 512).await;
        assert_eq!((reply.error, reply.error_at), (Some(5), Some(MIB + 65536)));
        assert!(reply.text.contains("could not be read"));
        assert!(reply.covered_bytes >= MIB - 512 && reply.covered_bytes <= MIB + 65536);
        assert!(reply.content[..(1 << 20) - 512] == pattern(2 << 20, 1)[512..(1 << 20)]);
        let reply = client.ask(READ, DF, MIB, MIB, &[]).await;
        assert_eq!((reply.error, reply.covered_bytes), (Some(5), 0));
        assert_eq!(client.read(0, MIB).await.error, None);
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}

#[test]
fn a_bad_sector_fails_a_simple_read_and_breaks_off_one_that_has_begun() {
    let world = World::new(6);
    let disk = Rc::clone(&world.server.exports().disk);
    disk.bad.borrow_mut().insert(0);
    disk.bad.borrow_mut().insert(5 * MIB / UNIT);
    let (mut client, mut other) = (world.client(), world.client());
    world.run(async move {
        client.go_simple("disk").await;
        other.go_simple("disk").await;
        assert_eq!(client.read(0, MIB).await.error, Some(5));
        assert_eq!(client.read(0, 4 * MIB).await.error, Some(5));
        assert_eq!(client.read(512, 4 * MIB).await.error, None);
        client.send(Request { kind: READ, flags: 0, offset: 3 << 20, length: 4 * MIB }, &[]).await;
        client.send(Request { kind: FLUSH, flags: 0, offset: 0, length: 0 }, &[]).await;
        while let Some(reply) = client.reply().await {
            assert_eq!(reply.covered_bytes, 0, "the flush may still be answered, the read may not");
        }
        let cause = ReadError { at: 5 << 20, error: ExportError::Failed };
        assert_eq!(client.session.ended().await, Err(SessionError::BrokenOff(cause)));
        assert_eq!(other.read(512, 512).await.error, None);
        assert_eq!(other.leave().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}

#[test]
fn wrong_requests_are_answered_and_the_next_one_is_understood() {
    in_all_forms(7, |_, mut client| async move {
        let end = DISK_BYTES;
        let zeros = vec![0; 65 << 20];
        // Kind, flags, offset, length, error.
        let cases = [
            (READ, 0, end, 512, 22),
            (READ, 0, 0, 0, 22),
            (READ, 0, end - 1, 2, 22),
            (READ, 0, 0, 65 * MIB, 22),
            (READ, NO_HOLE, 0, 512, 22),
            (WRITE, 0, end - 512, 1024, 28),
            (WRITE, 0, u64::MAX - 511, 512, 28),
            (WRITE, 0, 0, 0, 22),
            (WRITE, 0, end - 1, 2, 28),
            (WRITE, 0, 0, 65 * MIB, 22),
            (WRITE, DF, 0, 512, 22),
            (WRITE, 1 << 9, 0, 4096, 22),
            (FLUSH, 0, 512, 0, 22),
            (TRIM, 0, end, 512, 22),
            (TRIM, FAST_ZERO, 0, 512, 22),
            (WRITE_ZEROES, 0, end, 512, 28),
            (CACHE, 0, end - 1, 2, 22),
            (BLOCK_STATUS, DF, 0, 512, 22),
            (8, 0, 0, 512, 22),
            (1000, 0, 0, 512, 22),
        ];
        for (kind, flags, offset, length, mut error) in cases {
            if client.extended && length == 65 * MIB {
                if kind == WRITE {
                    // This ends the connection, in a test of its own.
                    continue;
                }
                error = 75;
            }
            let payload = if kind == WRITE { &zeros[..usize::try_from(length).unwrap()] } else { &[] };
            let reply = client.ask(kind, flags, offset, length, payload).await;
            assert_eq!(reply.error, Some(error), "{kind} {flags} {offset} {length}");
            assert_eq!(reply.text.is_empty(), !client.structured, "chunks say why");
        }
        assert_eq!(client.write(0, &[5; 512]).await.error, None);
        assert_eq!(client.read(0, 512).await.content, [5; 512]);
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
}

#[test]
fn a_payload_too_long_to_skip_is_answered_and_closes() {
    in_all_forms(8, |_, mut client| async move {
        let length = 128 * MIB + 512;
        client.send(Request { kind: WRITE, flags: 0, offset: 0, length }, &[]).await;
        assert_eq!(client.reply().await.unwrap().error, Some(22));
        assert!(client.reply().await.is_none());
        let error = RequestError::PayloadTooLong { offset: 0, length };
        assert_eq!(client.session.ended().await, Err(SessionError::Request(error)));
    });
}

#[test]
fn a_request_out_of_step_closes_after_what_came_before_is_answered() {
    in_all_forms(9, |world, mut client| async move {
        let disk = &world.server.exports().disk;
        disk.held.set(true);
        client.send(Request { kind: WRITE, flags: 0, offset: 0, length: 512 }, &[9; 512]).await;
        client.put(&[0x42; 32]).await;
        disk.held.set(false);
        disk.notify.notify_all();
        assert_eq!(client.reply().await.unwrap().error, None);
        assert!(client.reply().await.is_none());
        let expected = if client.extended { 0x21e4_1c71 } else { 0x2560_9513 };
        let error = RequestError::BadMagic { found: 0x4242_4242, expected };
        assert_eq!(client.session.ended().await, Err(SessionError::Request(error)));
        assert_eq!(disk.content.borrow()[..512], [9; 512]);
    });
}

#[test]
fn errors_of_the_export_have_their_numbers() {
    in_all_forms(10, |world, mut client| async move {
        let disk = &world.server.exports().disk;
        for (error, number) in [
            (ExportError::Failed, 5),
            (ExportError::NoSpace, 28),
            (ExportError::ReadOnly, 1),
            (ExportError::OutOfRange, 22),
            (ExportError::Stopping, 108),
        ] {
            for (kind, length) in
                [(WRITE, 512u64), (WRITE, 3 * MIB), (TRIM, 512), (WRITE_ZEROES, 512), (FLUSH, 0)]
            {
                disk.fails.set(Some(error));
                let payload = if kind == WRITE { vec![1; usize::try_from(length).unwrap()] } else { vec![] };
                let reply = client.ask(kind, 0, 0, length, &payload).await;
                assert_eq!(reply.error, Some(number), "{kind} {error:?}");
            }
        }
        assert_eq!(client.ask(WRITE_ZEROES, NO_HOLE | FAST_ZERO, 0, 512, &[]).await.error, Some(95));
        assert_eq!(client.ask(WRITE_ZEROES, FAST_ZERO, 0, 512, &[]).await.error, None);
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
}

#[test]
fn a_read_only_export_reads_and_refuses_changes() {
    let world = World::new(11);
    let mut client = world.client();
    world.run(async move {
        client.go("sealed").await;
        for kind in [WRITE, TRIM, WRITE_ZEROES] {
            let payload = if kind == WRITE { vec![1; 4096] } else { vec![] };
            assert_eq!(client.ask(kind, 0, 0, 4096, &payload).await.error, Some(1));
        }
        assert_eq!(client.ask(WRITE, 0, 0, 64 * MIB, &vec![0; 64 << 20]).await.error, Some(1));
        assert_eq!(client.read(1, 511).await.content, [0; 511]);
        assert_eq!(client.read(4096, 4096).await.content, [0; 4096]);
        assert_eq!(client.ask(FLUSH, 0, 0, 0, &[]).await.error, None);
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}

#[test]
fn block_status_sends_extents_up_to_its_bound() {
    let world = World::new(12);
    let mut client = world.client();
    world.run(async move {
        client.go("disk").await;
        client.write(4096, &[1; 8192]).await;
        client.ask(WRITE_ZEROES, NO_HOLE, 12288, 4096, &[]).await;
        let reply = client.ask(BLOCK_STATUS, 0, 0, 65536, &[]).await;
        assert_eq!(reply.extents, [(4096, 3), (12288, 0), (49152, 3)]);
        let reply = client.ask(BLOCK_STATUS, REQ_ONE, 4608, 65536, &[]).await;
        assert_eq!(reply.extents, [(11776, 0)]);
        let reply = client.ask(BLOCK_STATUS, REQ_ONE, 1 << 20, 512, &[]).await;
        assert_eq!(reply.extents, [(512, 3)]);
        for sector in 0..600 {
            client.write(sector * 1024, &[1; 512]).await;
        }
        let reply = client.ask(BLOCK_STATUS, 0, 0, MIB, &[]).await;
        assert_eq!(reply.extents.len(), EXTENTS_MAX);
        assert!(client.ask(BLOCK_STATUS, 0, DISK_BYTES - 512, 1024, &[]).await.error == Some(22));
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}

#[test]
fn requests_run_side_by_side_up_to_the_bound_and_not_beyond() {
    // The export holds everything; the client sends far more than may be in flight.
    in_all_forms(13, |world, mut client| async move {
        let disk = Rc::clone(&world.server.exports().disk);
        disk.held.set(true);
        for number in 0..IN_FLIGHT_MAX as u64 * 3 {
            client.send(Request { kind: READ, flags: 0, offset: number * 512, length: 512 }, &[]).await;
        }
        for _ in 0..20 {
            dolmen_block_io::sleep(world.clock.as_ref(), std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(disk.under_way.get(), IN_FLIGHT_MAX);
        disk.held.set(false);
        disk.notify.notify_all();
        while client.pending_count() > 0 {
            assert_eq!(client.reply().await.unwrap().error, None);
        }
        assert_eq!(disk.under_way_most.get(), IN_FLIGHT_MAX);
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
}

#[test]
fn a_disconnect_waits_for_what_was_asked_before() {
    in_all_forms(14, |world, mut client| async move {
        let disk = Rc::clone(&world.server.exports().disk);
        for number in 0..20u64 {
            client
                .send(Request { kind: WRITE, flags: 0, offset: number * 512, length: 512 }, &[8; 512])
                .await;
        }
        let request = Request { kind: crate::client::DISC, flags: 0, offset: 0, length: 0 };
        client.put(&client.head(0, &request)).await;
        for _ in 0..20 {
            assert_eq!(client.reply().await.unwrap().error, None);
        }
        assert!(client.reply().await.is_none());
        assert_eq!(client.session.ended().await, Ok(Farewell::Left));
        assert!(disk.content.borrow()[..20 * 512].iter().all(|byte| *byte == 8));
    });
}

#[test]
fn what_one_connection_was_acknowledged_another_reads() {
    let world = World::new(15);
    let (mut a, mut b) = (world.client(), world.client());
    world.run(async move {
        a.go("disk").await;
        b.go_simple("").await;
        for round in 1..20u8 {
            assert_eq!(a.write(0, &[round; 4096]).await.error, None);
            assert_eq!(b.read(0, 4096).await.content, [round; 4096]);
            assert_eq!(b.ask(FLUSH, 0, 0, 0, &[]).await.error, None);
        }
        assert_eq!(a.leave().await, Ok(Farewell::Left));
        assert_eq!(b.leave().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}
