//! The handshake, option by option, right and wrong.

use dolmen_nbd::option::{HandshakeError, RefusedOption};
use dolmen_nbd::{Cut, Farewell, HANDSHAKE_BYTES_MAX, OPTIONS_MAX, SessionError, StreamEnd, Timeouts};

use crate::client::{ACK, context_data, counted, info_data, option_bytes};
use crate::export::{DISK_BYTES, SEALED_BYTES, longest_name};
use crate::world::World;

const INFO: u32 = 6;
const GO: u32 = 7;
const UNSUP: u32 = 1;
const POLICY: u32 = 2;
const INVALID: u32 = 3;
const UNKNOWN: u32 = 6;
const SHUTDOWN: u32 = 7;
const TOO_BIG: u32 = 9;

#[test]
fn a_client_that_sets_unknown_flags_is_dropped() {
    let world = World::new(1);
    let mut client = world.client();
    let ending = world.run(async move {
        client.greet(1 << 2).await;
        client.session.ended().await
    });
    let expected = HandshakeError::UnknownFlags { found: 4, offered: 3 };
    assert_eq!(ending, Err(SessionError::Handshake(expected)));
    world.assert_at_rest();
}

#[test]
fn everything_known_of_an_export_is_sent() {
    // INFO with every item, then GO in the same handshake, for both exports.
    let world = World::new(2);
    for (name, size, smallest, flags) in [
        ("disk", DISK_BYTES, 512u32, 0b1101_0110_1101u16 | 1 << 7),
        ("sealed", SEALED_BYTES, 4096, 0b0101_0001_1111 | 1 << 7),
    ] {
        let mut client = world.client();
        world.run(async move {
            client.greet(3).await;
            client.option(8, &[]).await;
            client.structured = true;
            let replies = client.option(INFO, &info_data(name, &[1, 2, 3, 99])).await;
            let items: Vec<&[u8]> =
                replies.iter().filter(|reply| reply.0 == 3).map(|reply| &reply.1[..]).collect();
            let blocks =
                [&[0, 3][..], &smallest.to_be_bytes(), &65536u32.to_be_bytes(), &(64u32 << 20).to_be_bytes()];
            let description = if name == "disk" { "a disk in memory" } else { "" };
            assert_eq!(items[0], [&[0, 0][..], &size.to_be_bytes(), &flags.to_be_bytes()].concat());
            assert_eq!(items[1], blocks.concat());
            assert_eq!(items[2], [&[0, 1], name.as_bytes()].concat());
            assert_eq!(items[3], [&[0, 2], description.as_bytes()].concat());
            assert_eq!((items.len(), replies.last()), (4, Some(&(ACK, vec![]))));
            assert_eq!(client.enter(name).await, (size, flags));
            assert_eq!(client.leave().await, Ok(Farewell::Left));
        });
    }
    world.assert_at_rest();
}

#[test]
fn the_old_option_answers_with_and_without_padding_and_without_chunks() {
    let world = World::new(3);
    let mut padded = world.client();
    let mut bare = world.client();
    world.run(async move {
        let flags = 0b1101_0110_1101;
        assert_eq!(padded.go_simple("").await, (DISK_BYTES, flags));
        bare.greet(3).await;
        bare.put(&option_bytes(1, b"disk")).await;
        let answer = bare.take(10).await.unwrap();
        assert_eq!(answer, [&DISK_BYTES.to_be_bytes()[..], &flags.to_be_bytes()].concat());
        assert_eq!(bare.leave().await, Ok(Farewell::Left));
        assert_eq!(padded.leave().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}

#[test]
fn a_client_without_fixed_newstyle_may_only_name_an_export() {
    let world = World::new(4);
    let (mut good, mut bad) = (world.client(), world.client());
    let ending = world.run(async move {
        good.greet(2).await;
        good.put(&option_bytes(1, b"disk")).await;
        assert!(good.take(10).await.is_some());
        assert_eq!(good.leave().await, Ok(Farewell::Left));
        bad.greet(0).await;
        bad.put(&option_bytes(3, b"")).await;
        bad.session.ended().await
    });
    assert_eq!(ending, Err(SessionError::Handshake(HandshakeError::NotFixed { option: 3 })));
    world.assert_at_rest();
}

#[test]
fn names_of_every_length_are_taken_or_refused_by_their_true_length() {
    // Names of 0, 255, 4096, 4097 and 2^32 - 1 bytes, with every option that carries one.
    let world = World::new(5);
    let mut client = world.client();
    world.run(async move {
        client.greet(3).await;
        client.option(8, &[]).await;
        let long = "x".repeat(255);
        let longer = "n".repeat(4097);
        for option in [INFO, 9, 10] {
            let data =
                |name: &str| if option == INFO { info_data(name, &[]) } else { context_data(name, &[]) };
            assert_eq!(client.option(option, &data("")).await.last().unwrap().0, ACK);
            assert_eq!(client.refused(option, &data(&long)).await, UNKNOWN);
            assert_eq!(client.option(option, &data(&longest_name())).await.last().unwrap().0, ACK);
            assert_eq!(client.refused(option, &data(&longer)).await, INVALID);
            assert_eq!(client.refused(option, &data("a\0b")).await, INVALID);
            assert_eq!(client.refused(option, &[counted(b"\xff\xfe"), vec![0; 4]].concat()).await, INVALID);
            let mut bad = data("disk");
            bad[..4].fill(0xff);
            assert_eq!(client.refused(option, &bad).await, INVALID);
            bad[..4].copy_from_slice(&5u32.to_be_bytes());
            assert_eq!(client.refused(option, &bad).await, INVALID);
            assert_eq!(client.refused(option, &[data("disk"), vec![0]].concat()).await, INVALID);
            assert_eq!(client.refused(option, &[]).await, INVALID);
        }
        assert_eq!(client.refused(INFO, &[counted(b"disk"), vec![0, 2, 0, 1]].concat()).await, INVALID);
        assert_eq!(client.refused(GO, &info_data("secret", &[])).await, POLICY);
        client.enter(&longest_name()).await;
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}

#[test]
fn the_old_option_with_a_name_that_cannot_be_served_closes() {
    let world = World::new(6);
    let cases = [
        (255, Some(255), RefusedOption::UnknownExport),
        (4097, Some(4097), RefusedOption::BadString),
        (65537, None, RefusedOption::TooBig),
        (u32::MAX, None, RefusedOption::TooBig),
    ];
    for (claimed, sent, refusal) in cases {
        let mut client = world.client();
        let ending = world.run(async move {
            client.greet(3).await;
            client.put(&[&b"IHAVEOPT\0\0\0\x01"[..], &claimed.to_be_bytes()].concat()).await;
            client.put(&vec![b'x'; sent.unwrap_or(10)]).await;
            assert!(client.take(1).await.is_none(), "no answer is possible");
            client.session.ended().await
        });
        assert_eq!(ending, Err(SessionError::Handshake(HandshakeError::NoExport { refusal })));
    }
    world.assert_at_rest();
}

#[test]
fn exports_are_listed_and_a_list_takes_no_data() {
    let world = World::new(7);
    let mut client = world.client();
    world.run(async move {
        client.greet(3).await;
        let disk = [&counted(b"disk")[..], b"a disk in memory"].concat();
        let expected = vec![(2, disk), (2, counted(b"sealed")), (ACK, vec![])];
        assert_eq!(client.option(3, &[]).await, expected);
        assert_eq!(client.refused(3, b"x").await, INVALID);
        assert_eq!(client.option(2, &[]).await, vec![(ACK, vec![])]);
        assert_eq!(client.session.ended().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}

#[test]
fn what_is_not_spoken_is_refused_and_the_handshake_goes_on() {
    // TLS, a withdrawn option and unknown ones with and without data.
    let world = World::new(8);
    let mut client = world.client();
    world.run(async move {
        client.greet(3).await;
        assert_eq!(client.refused(5, &[]).await, UNSUP);
        assert_eq!(client.refused(5, b"x").await, INVALID);
        assert_eq!(client.refused(4, b"x").await, UNSUP);
        assert_eq!(client.refused(u32::MAX, &vec![7; 65536]).await, UNSUP);
        assert_eq!(client.refused(77, &vec![7; 65537]).await, TOO_BIG);
        assert_eq!(client.refused(GO, &vec![7; 100_000]).await, TOO_BIG);
        assert_eq!(client.refused(8, b"x").await, INVALID);
        assert_eq!(client.option(8, &[]).await, vec![(ACK, vec![])]);
        client.structured = true;
        assert_eq!(client.refused(8, &[]).await, INVALID);
        client.enter("disk").await;
        assert_eq!(client.read(0, 512).await.error, None);
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}

#[test]
fn a_handshake_is_bounded_in_options_and_bytes() {
    let world = World::new(9);
    let (mut many, mut large, mut huge) = (world.client(), world.client(), world.client());
    world.run(async move {
        many.greet(3).await;
        for _ in 0..OPTIONS_MAX {
            assert_eq!(many.refused(77, &[]).await, UNSUP);
        }
        let expected =
            Err(SessionError::Handshake(HandshakeError::TooManyOptions { options_max: OPTIONS_MAX }));
        assert_eq!(many.session.ended().await, expected);

        large.greet(3).await;
        for _ in 0..HANDSHAKE_BYTES_MAX / 65536 {
            assert_eq!(large.refused(77, &vec![0; 65536]).await, UNSUP);
        }
        assert_eq!(large.refused(77, &[0]).await, TOO_BIG);
        let found = HANDSHAKE_BYTES_MAX + 1;
        let expected = Err(SessionError::Handshake(HandshakeError::TooManyBytes { found }));
        assert_eq!(large.session.ended().await, expected);

        huge.greet(3).await;
        huge.put(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff").await;
        assert_eq!(huge.option_reply(GO).await.unwrap().0, (1 << 31) + TOO_BIG);
        let found = u64::from(u32::MAX);
        let expected = Err(SessionError::Handshake(HandshakeError::TooManyBytes { found }));
        assert_eq!(huge.session.ended().await, expected);
    });
    world.assert_at_rest();
}

#[test]
fn an_option_out_of_step_closes() {
    let world = World::new(10);
    let mut client = world.client();
    let ending = world.run(async move {
        client.greet(3).await;
        client.put(&[0x41; 16]).await;
        client.session.ended().await
    });
    let found = 0x4141_4141_4141_4141;
    assert_eq!(ending, Err(SessionError::Handshake(HandshakeError::BadMagic { found })));
    world.assert_at_rest();
}

#[test]
fn contexts_need_chunks_and_hold_for_the_name_they_were_chosen_for() {
    let world = World::new(11);
    let context = (4, b"\0\0\0\x01base:allocation".to_vec());
    let ack = (ACK, vec![]);
    // The queries of a selection, the name it is made for, and whether it is in force for the export "disk".
    let cases: [(&[&str], &str, bool, bool); 6] = [
        (&["base:allocation"], "disk", true, true),
        (&["x-other:y", "base:allocation"], "disk", true, true),
        (&["base:"], "disk", false, false),
        (&[], "disk", false, false),
        (&["base:allocation:"], "disk", false, false),
        (&["base:allocation"], "sealed", true, false),
    ];
    for (queries, name, told, in_force) in cases {
        let mut client = world.client();
        let (context, ack) = (context.clone(), ack.clone());
        world.run(async move {
            client.greet(3).await;
            assert_eq!(client.refused(9, &context_data("disk", &[])).await, INVALID);
            assert_eq!(client.refused(10, &context_data("disk", &["base:allocation"])).await, INVALID);
            client.option(8, &[]).await;
            client.structured = true;
            for query in [&[][..], &["base:"], &["base:allocation"]] {
                assert_eq!(
                    client.option(9, &context_data("disk", query)).await,
                    vec![context.clone(), ack.clone()]
                );
            }
            assert_eq!(client.option(9, &context_data("disk", &["x:"])).await, vec![ack.clone()]);
            let replies = client.option(10, &context_data(name, queries)).await;
            assert_eq!(replies.len(), 1 + usize::from(told));
            client.enter("disk").await;
            let status = client.ask(crate::client::BLOCK_STATUS, 0, 0, 4096, &[]).await;
            assert_eq!(status.error, (!in_force).then_some(22));
            assert_eq!(client.leave().await, Ok(Farewell::Left));
        });
    }
    world.assert_at_rest();
}

#[test]
fn a_failed_selection_of_contexts_undoes_the_one_before() {
    let world = World::new(12);
    let mut client = world.client();
    world.run(async move {
        client.greet(3).await;
        client.option(8, &[]).await;
        client.structured = true;
        client.option(10, &context_data("disk", &["base:allocation"])).await;
        assert_eq!(client.refused(10, &context_data("nowhere", &["base:allocation"])).await, UNKNOWN);
        let many = vec!["q"; 65];
        assert_eq!(client.refused(10, &context_data("disk", &many)).await, TOO_BIG);
        client.enter("disk").await;
        assert_eq!(client.ask(crate::client::BLOCK_STATUS, 0, 0, 4096, &[]).await.error, Some(22));
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
    world.assert_at_rest();
}

#[test]
fn a_handshake_that_takes_too_long_is_cut_off() {
    // One client says nothing, one stops inside an option, one sends an option now and then.
    let limit = Timeouts::default().handshake;
    let world = World::new(13);
    let (unresponsive, mut halting, slow) = (world.client(), world.client(), world.connect());
    let clock = world.clock.clone();
    let cut = Err(SessionError::Cut(Cut::SlowHandshake { limit }));
    let ended = world.run(async move {
        halting.greet(3).await;
        halting.put(b"IHAVE").await;
        let mut client = crate::client::Client::new(slow);
        client.greet(3).await;
        loop {
            dolmen_block_io::sleep(clock.as_ref(), limit / 5).await;
            if client.option(77, &[]).await.is_empty() {
                break;
            }
        }
        [unresponsive.session.ended().await, halting.session.ended().await, client.session.ended().await]
    });
    assert_eq!(ended, [cut, cut, cut]);
    assert!(world.elapsed() >= limit && world.elapsed() < limit * 2);
    world.assert_at_rest();
}

#[test]
fn a_client_may_vanish_at_any_point_of_the_handshake() {
    let world = World::new(14);
    let mut client = world.client();
    let ending = world.run(async move {
        client.greet(3).await;
        client.hang_up();
        client.session.ended().await
    });
    assert_eq!(ending, Ok(Farewell::Closed));
    let mut client = world.client();
    let ending = world.run(async move {
        client.greet(3).await;
        client.put(&option_bytes(GO, &info_data("disk", &[]))[..20]).await;
        client.hang_up();
        client.session.ended().await
    });
    assert_eq!(ending, Err(SessionError::Receive(StreamEnd::Inside { received: 4, expected: 10 })));
    world.assert_at_rest();
}

#[test]
fn a_stopping_server_refuses_options_but_lets_clients_leave() {
    let world = World::new(15);
    let mut client = world.client();
    world.run({
        let world = std::rc::Rc::clone(&world);
        async move {
            client.greet(3).await;
            client.option(77, &[]).await;
            let stopping = std::rc::Rc::clone(&world.server);
            dolmen_block_io::Spawner::spawn(
                world.executor.as_ref(),
                "stop",
                Box::pin(async move { stopping.stop().await }),
            );
            while world.server.session_count() == 1 && client.option(77, &[]).await != vec![] {
                if client.refused(GO, &info_data("disk", &[])).await == SHUTDOWN {
                    break;
                }
            }
            assert_eq!(client.option(2, &[]).await, vec![(ACK, vec![])]);
            assert_eq!(client.session.ended().await, Ok(Farewell::Left));
            let late = world.connect();
            assert_eq!(late.ended().await, Ok(Farewell::Stopped));
        }
    });
    world.assert_at_rest();
}
