//! Stopping a server, and clients that do not behave when it does.

use std::rc::Rc;
use std::time::Duration;

use dolmen_block_io::{Spawner, sleep};
use dolmen_nbd::option::{ClientFlags, RefusedOption};
use dolmen_nbd::{Cut, Entrance, Farewell, IN_FLIGHT_MAX, Limits, REFUSED_MAX, SessionError, Timeouts};

use crate::client::{Client, DISC, FLUSH, READ, Request, WRITE, info_data, option_bytes, request_bytes};
use crate::world::World;

fn stop_in_background(world: &Rc<World>) {
    let server = Rc::clone(&world.server);
    world.executor.spawn("stop", Box::pin(async move { server.stop().await }));
}

#[test]
fn requests_under_way_finish_later_ones_are_refused_and_a_client_that_stays_is_cut_off() {
    let world = World::new(1);
    let timeouts = Timeouts::default();
    let mut client = world.client();
    world.run({
        let world = Rc::clone(&world);
        async move {
            client.go("disk").await;
            let disk = Rc::clone(&world.server.exports().disk);
            disk.held.set(true);
            let first =
                client.send(Request { kind: WRITE, flags: 0, offset: 0, length: 512 }, &[7; 512]).await;
            sleep(world.clock.as_ref(), Duration::from_millis(1)).await;
            stop_in_background(&world);
            sleep(world.clock.as_ref(), Duration::from_millis(1)).await;
            for kind in [READ, WRITE] {
                let payload = if kind == WRITE { vec![1; 512] } else { vec![] };
                let late = client.send(Request { kind, flags: 0, offset: 512, length: 512 }, &payload).await;
                let reply = client.reply().await.unwrap();
                assert_eq!((reply.cookie, reply.error), (late, Some(108)));
            }
            disk.held.set(false);
            disk.notify.notify_all();
            let reply = client.reply().await.unwrap();
            assert_eq!((reply.cookie, reply.error), (first, None));
            assert_eq!(disk.content.borrow()[..1024], [[7; 512], [0; 512]].concat());
            // It keeps asking for as long as it is let.
            loop {
                sleep(world.clock.as_ref(), timeouts.stop_quiet / 2).await;
                client.send(Request { kind: FLUSH, flags: 0, offset: 0, length: 0 }, &[]).await;
                match client.reply().await {
                    Some(reply) => assert_eq!(reply.error, Some(108)),
                    None => break,
                }
            }
            assert_eq!(client.session.ended().await, Ok(Farewell::Stopped));
        }
    });
    assert!(world.elapsed() >= timeouts.stop && world.elapsed() < timeouts.stop + Duration::from_secs(1));
    world.assert_at_rest();
}

#[test]
fn quiet_clients_do_not_hold_up_a_stop() {
    let world = World::new(2);
    let mut clients: Vec<_> = (0..5).map(|_| world.client()).collect();
    let server = Rc::clone(&world.server);
    world.run(async move {
        for client in &mut clients {
            client.go("disk").await;
            client.write(0, &[1; 512]).await;
        }
        server.stop().await;
        // Once the server has stopped, no session holds the export any more.
        assert_eq!(Rc::strong_count(&server.exports().disk), 1);
        for client in &clients {
            assert_eq!(client.session.ended().await, Ok(Farewell::Stopped));
        }
    });
    assert!(world.elapsed() < Duration::from_secs(1));
    world.assert_at_rest();
}

#[test]
fn a_client_that_never_takes_its_replies_is_cut_off_and_holds_a_bounded_amount() {
    // It asks for far more than the pipe holds and reads nothing.
    let limit = Timeouts::default().send;
    for structured in [true, false] {
        let world = World::new(3);
        let mut client = world.client();
        let ending = world.run(async move {
            if structured {
                client.go("disk").await;
            } else {
                client.go_simple("disk").await;
            }
            client.write(0, &vec![1; 1 << 20]).await;
            for _ in 0..200 {
                client.send(Request { kind: READ, flags: 0, offset: 0, length: 1 << 20 }, &[]).await;
            }
            client.session.ended().await
        });
        assert_eq!(ending, Err(SessionError::Cut(Cut::DeafClient { limit })));
        world.assert_at_rest();
    }
}

#[test]
fn answers_that_are_not_taken_are_not_piled_up() {
    // Flushes carry no payload, so only their number bounds them: what the pipe holds, and what may be in flight.
    let world = World::new(8);
    let mut client = world.client();
    let (disk, clock) = (Rc::clone(&world.server.exports().disk), Rc::clone(&world.clock));
    let executor = Rc::clone(&world.executor);
    world.run(async move {
        client.go_simple("disk").await;
        let requests: Vec<u8> = (0..20_000u64)
            .flat_map(|cookie| {
                request_bytes(cookie, &Request { kind: FLUSH, flags: 0, offset: 0, length: 0 })
            })
            .collect();
        let to_server = Rc::clone(&client.session.connection.to_server);
        executor.spawn(
            "requests",
            Box::pin(async move { assert!(!to_server.write(&requests).await, "it is never all taken") }),
        );
        sleep(clock.as_ref(), Duration::from_secs(1)).await;
        let taken = disk.flushes.get();
        let most = crate::world::PIPE_BYTES_MAX / 16 + IN_FLIGHT_MAX;
        assert!(taken > 1000 && taken <= most, "{taken} flushes were taken, at most {most} may be");
        assert!(matches!(client.session.ended().await, Err(SessionError::Cut(Cut::DeafClient { .. }))));
    });
    world.assert_at_rest();
}

#[test]
fn a_client_that_begins_a_write_and_goes_to_sleep_is_cut_off() {
    // It sends the request and half of the payload; another client is served meanwhile.
    let limit = Timeouts::default().payload;
    let world = World::new(7);
    let (mut sleeper, mut other) = (world.client(), world.client());
    let ending = world.run(async move {
        sleeper.go("disk").await;
        other.go("disk").await;
        sleeper.send(Request { kind: WRITE, flags: 0, offset: 0, length: 1 << 20 }, &[1; 1 << 19]).await;
        assert_eq!(other.write(0, &[2; 512]).await.error, None);
        let ending = sleeper.session.ended().await;
        assert_eq!(other.read(0, 512).await.content, [2; 512]);
        assert_eq!(other.leave().await, Ok(Farewell::Left));
        ending
    });
    assert_eq!(ending, Err(SessionError::Cut(Cut::SlowPayload { limit })));
    world.assert_at_rest();
}

#[test]
fn a_stop_is_not_held_up_by_a_client_that_takes_nothing() {
    let world = World::new(4);
    let mut client = world.client();
    let server = Rc::clone(&world.server);
    world.run(async move {
        client.go("disk").await;
        client.write(0, &vec![1; 1 << 20]).await;
        for _ in 0..20 {
            client.send(Request { kind: READ, flags: 0, offset: 0, length: 1 << 20 }, &[]).await;
        }
        server.stop().await;
        assert_eq!(client.session.ended().await, Ok(Farewell::Stopped));
    });
    assert!(world.elapsed() <= Timeouts::default().stop + Duration::from_secs(1));
    world.assert_at_rest();
}

#[test]
fn connections_over_the_limit_are_refused_with_a_reason_and_the_others_go_on() {
    // Scenario: three connections of three; others that say nothing, and two that ask, one of them behind TLS. Expected:
    // each of those is refused with a sentence that names the limit, whatever it asks for, and those inside go on.
    let world = World::with_limits(5, Limits { connections_max: 3, ..Limits::default() });
    let mut clients: Vec<_> = (0..3).map(|_| world.client()).collect();
    let connect = Rc::clone(&world);
    world.run(async move {
        for client in &mut clients {
            client.go("disk").await;
        }
        let full = Err(SessionError::Refused(RefusedOption::Full { connections_max: 3 }));
        for _ in 0..100 {
            assert_eq!(connect.connect().ended().await, full);
        }
        let flags = ClientFlags { fixed_newstyle: true, no_zeroes: true };
        for entrance in [Entrance::Greeting, Entrance::AfterTls(flags)] {
            let mut late = Client::new(connect.connect_at(entrance));
            if entrance == Entrance::Greeting {
                late.greet(3).await;
            }
            for (option, data) in [(5, vec![]), (6, info_data("disk", &[])), (3, vec![]), (77, vec![1; 9])] {
                let replies = late.option(option, &data).await;
                assert_eq!((replies.len(), replies[0].0), (1, (1 << 31) + 2), "refused by policy");
                let text = String::from_utf8_lossy(&replies[0].1).into_owned();
                assert!(text.contains("has 3 connections already"), "{text}");
            }
            late.put(&option_bytes(2, &[])).await;
            assert_eq!(late.option_reply(2).await, Some((1, vec![])));
            assert_eq!(late.session.ended().await, full);
        }
        for client in &mut clients {
            assert_eq!(client.read(0, 512).await.error, None);
            assert_eq!(client.leave().await, Ok(Farewell::Left));
        }
        let mut client = connect.client();
        client.go("disk").await;
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}

#[test]
fn ten_thousand_half_open_handshakes_hold_a_bounded_amount_and_are_cleared_away() {
    let world = World::new(6);
    let sessions: Vec<_> = (0..10_000).map(|_| world.connect()).collect();
    world.release();
    assert!(world.server.session_count() <= Limits::default().connections_max);
    let connections_max = Limits::default().connections_max + REFUSED_MAX;
    assert!(world.arena.lent_count() <= 2 * connections_max + 1);
    let mut ended = world.run(async move {
        let mut endings = Vec::new();
        for session in &sessions {
            endings.push(session.ended().await);
        }
        endings
    });
    ended.retain(|ending| !matches!(ending, Err(SessionError::Refused(_))));
    let limit = Timeouts::default().handshake;
    assert!(!ended.is_empty());
    assert!(ended.iter().all(|ending| *ending == Err(SessionError::Cut(Cut::SlowHandshake { limit }))));
    let mut client = world.client();
    world.run(async move {
        client.go("disk").await;
        client.put(&request_bytes(0, &Request { kind: DISC, flags: 0, offset: 0, length: 0 })).await;
        assert_eq!(client.session.ended().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}
