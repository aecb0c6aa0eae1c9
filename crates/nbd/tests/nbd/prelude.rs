//! What is said before TLS, and what of it is left behind it.

use dolmen_nbd::option::{ClientFlags, HandshakeError, RefusedOption};
use dolmen_nbd::{
    Entrance, Farewell, PRELUDE_BYTES_MAX, PRELUDE_OPTIONS_MAX, Prelude, PreludeStep, SessionError,
};
use proptest::prelude::*;

use crate::client::{ACK, Client, be32, be64, context_data, info_data, option_bytes};
use crate::world::World;

const TLS_REQUIRED: u32 = (1 << 31) + 5;
const INVALID: u32 = (1 << 31) + 3;
const FLAGS: ClientFlags = ClientFlags { fixed_newstyle: true, no_zeroes: true };

type Taken = (usize, Result<PreludeStep, HandshakeError>, Vec<(u32, u32)>);

/// Gives the bytes to a prelude in parts of at most `part`. Returns what was taken, how it ended, and the replies as
/// option and type.
fn send(bytes: &[u8], part: usize) -> Taken {
    let mut prelude = Prelude::before_tls();
    let (mut replies, mut taken) = (Vec::new(), 0);
    let mut end = Ok(PreludeStep::More);
    for piece in bytes.chunks(part.max(1)) {
        match prelude.take(piece, &mut replies) {
            Ok((count, step)) => {
                taken += count;
                end = Ok(step);
                if step != PreludeStep::More {
                    break;
                }
                assert_eq!(count, piece.len(), "what goes on has taken all");
            }
            Err(error) => {
                // How much was taken means nothing then: the connection is closed.
                (taken, end) = (0, Err(error));
                break;
            }
        }
    }
    (taken, end, parsed(&replies))
}

fn parsed(replies: &[u8]) -> Vec<(u32, u32)> {
    let (mut rest, mut found) = (replies, Vec::new());
    while !rest.is_empty() {
        assert_eq!(be64(rest), 0x0003_e889_0455_65a9);
        found.push((be32(&rest[8..]), be32(&rest[12..])));
        rest = &rest[20 + be32(&rest[16..]) as usize..];
    }
    found
}

fn reported(options: &[(u32, &[u8])]) -> Vec<u8> {
    let mut bytes = 3u32.to_be_bytes().to_vec();
    options.iter().for_each(|(option, data)| bytes.extend(option_bytes(*option, data)));
    bytes
}

#[test]
fn every_option_but_starttls_and_abort_needs_tls_first() {
    // Scenario: each option of the protocol and two that do not exist, with good data, then STARTTLS with data, then
    // STARTTLS. Expected: the error that the protocol names for each, and TLS from the first byte behind the last.
    let (info, contexts) = (info_data("disk", &[3]), context_data("disk", &["base:allocation"]));
    let options: [(u32, &[u8]); 10] = [
        (3, &[]),
        (4, b"peek"),
        (6, &info),
        (7, &info),
        (8, &[]),
        (9, &contexts),
        (10, &contexts),
        (11, &[]),
        (99, &[0; 300]),
        (u32::MAX, &[]),
    ];
    let mut bytes = reported(&options);
    bytes.extend(option_bytes(5, b"x"));
    bytes.extend(option_bytes(5, &[]));
    let whole = bytes.len();
    // What somebody between has put behind it in the clear.
    bytes.extend(option_bytes(8, &[]));
    let mut expected: Vec<(u32, u32)> = options.iter().map(|(option, _)| (*option, TLS_REQUIRED)).collect();
    expected.extend([(5, INVALID), (5, ACK)]);
    for part in [1, 3, 16, 1000, 10_000] {
        let (taken, end, replies) = send(&bytes, part);
        assert_eq!(end, Ok(PreludeStep::StartTls(FLAGS)));
        assert_eq!((taken, &replies), (whole, &expected), "in parts of {part}");
    }
    let (_, end, replies) = send(&reported(&[(2, &[])]), 7);
    assert_eq!((end, replies), (Ok(PreludeStep::Left), vec![(2, ACK)]));
}

#[test]
fn what_cannot_be_answered_ends_the_connection() {
    let refusal = RefusedOption::TlsRequired;
    let no_export = Err(HandshakeError::NoExport { refusal });
    assert_eq!(send(&reported(&[(1, b"disk")]), 5).1, no_export);
    // A client without answers to options operates without TLS, so it is not served at all.
    let old = [&2u32.to_be_bytes()[..], &option_bytes(5, &[])].concat();
    assert_eq!(send(&old, 5).1, Err(HandshakeError::NotFixed { option: 5 }));
    let unknown = HandshakeError::UnknownFlags { found: 7, offered: 3 };
    assert_eq!(send(&7u32.to_be_bytes(), 1).1, Err(unknown));
    // TLS without having asked for it, as a browser would.
    let hello = [&3u32.to_be_bytes()[..], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdefgh"].concat();
    assert!(matches!(send(&hello, 4).1, Err(HandshakeError::BadMagic { .. })));
}

#[test]
fn a_client_that_talks_and_talks_is_ended_within_the_bounds() {
    let many: Vec<(u32, &[u8])> = vec![(3, &[]); PRELUDE_OPTIONS_MAX + 1];
    let (_, end, replies) = send(&reported(&many), 64);
    assert_eq!(end, Err(HandshakeError::TooManyOptions { options_max: PRELUDE_OPTIONS_MAX }));
    assert_eq!(replies.len(), PRELUDE_OPTIONS_MAX);
    // The length is enough: nobody waits for 4 GiB.
    let mut bad = reported(&[(7, &[])]);
    let at = bad.len() - 4;
    bad[at..].fill(0xff);
    let (_, end, replies) = send(&bad, 64);
    let found = 16 + u64::from(u32::MAX);
    assert!(found > PRELUDE_BYTES_MAX);
    assert_eq!((end, replies), (Err(HandshakeError::PreludeTooLong { found }), vec![(7, TLS_REQUIRED)]));
}

#[test]
fn nothing_agreed_before_tls_holds_after_it() {
    // Scenario: structured replies and a context before STARTTLS, as an attacker between would put them there; TLS; the
    // client goes on as if alone. Expected: simple replies, no context, and a second STARTTLS is invalid.
    let contexts = context_data("disk", &["base:allocation"]);
    let (_, end, _) = send(&reported(&[(8, &[]), (10, &contexts), (5, &[])]), 9);
    let Ok(PreludeStep::StartTls(flags)) = end else { panic!("{end:?}") };
    let world = World::new(1);
    let mut client = Client::new(world.connect_at(Entrance::AfterTls(flags)));
    world.run(async move {
        assert_eq!(client.refused(5, &[]).await, 3);
        assert_eq!(client.refused(10, &contexts).await, 3, "contexts need structured replies");
        let (_, flags) = client.enter("disk").await;
        assert_eq!(flags & 1 << 7, 0, "no reads in one chunk are offered without structured replies");
        assert_eq!(client.read(0, 512).await.error, None);
        assert_eq!(client.leave().await, Ok(Farewell::Left));
    });
    // The other flag goes with it: without padding only where that was asked for.
    let old = ClientFlags { fixed_newstyle: true, no_zeroes: false };
    let client = Client::new(world.connect_at(Entrance::AfterTls(old)));
    world.run(async move {
        client.put(&option_bytes(1, b"disk")).await;
        assert_eq!(client.take(10 + 124).await.unwrap()[10..], [0; 124]);
        client.hang_up();
        let ending = client.session.ended().await;
        assert!(matches!(ending, Ok(Farewell::Closed) | Err(SessionError::Send(_))), "{ending:?}");
    });
    world.assert_at_rest();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    // However a stream is cut into parts, it is understood alike; and whatever it holds, nothing but STARTTLS, ABORT and
    // bytes that end the connection lead anywhere.
    #[test]
    fn a_prelude_is_the_same_however_it_arrives(
        options in proptest::collection::vec((0u32..13, proptest::collection::vec(any::<u8>(), 0..40)), 0..6),
        noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        part in 1usize..60,
    ) {
        let options: Vec<(u32, &[u8])> = options.iter().map(|(option, data)| (*option, &data[..])).collect();
        let mut bytes = reported(&options);
        for (at, byte) in noise {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let whole = send(&bytes, bytes.len());
        prop_assert_eq!(&send(&bytes, part), &whole);
        let granted = whole.2.iter().filter(|(_, reply)| *reply == ACK).count();
        let ends = matches!(whole.1, Ok(PreludeStep::StartTls(_) | PreludeStep::Left));
        prop_assert_eq!(granted, usize::from(ends), "an acknowledgement ends the prelude");
        prop_assert!(whole.2.iter().all(|(_, reply)| [ACK, TLS_REQUIRED, INVALID].contains(reply)));
    }
}
