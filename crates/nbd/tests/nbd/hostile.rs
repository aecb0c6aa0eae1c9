//! Clients that send anything, stop anywhere, and vanish at any moment.

use std::rc::Rc;

use dolmen_buffer::ArenaConfig;
use dolmen_nbd::option::{Request as OptionRequest, Wanted};
use dolmen_nbd::{Limits, PIECE_BYTES_MAX};
use proptest::prelude::*;

use crate::client::{
    BLOCK_STATUS, CACHE, DISC, FLUSH, PAYLOAD_LEN, READ, Request, TRIM, WRITE, WRITE_ZEROES, context_data,
    extended_bytes, info_data, option_bytes, request_bytes,
};
use crate::world::World;

const SMALL: ArenaConfig = ArenaConfig { small_count: 16, medium_count: 4, large_count: 2 };

/// How many rounds the random tests make; `DOLMEN_FUZZ_ROUNDS` sets it.
pub(crate) fn rounds() -> u32 {
    std::env::var("DOLMEN_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(400)
}

fn world(seed: u64) -> Rc<World> {
    World::with_arena(seed, Limits { payload_bytes_max: PIECE_BYTES_MAX, ..Limits::default() }, SMALL)
}

/// How a recorded session goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Simple,
    Structured,
    Extended,
}

const FORMS: [Form; 3] = [Form::Simple, Form::Structured, Form::Extended];

/// A whole good session, as the client sends it.
fn recorded(form: Form) -> Vec<u8> {
    let mut bytes = 3u32.to_be_bytes().to_vec();
    bytes.extend(option_bytes(3, &[]));
    if form != Form::Simple {
        bytes.extend(option_bytes(if form == Form::Extended { 11 } else { 8 }, &[]));
        bytes.extend(option_bytes(10, &context_data("disk", &["base:allocation"])));
    }
    bytes.extend(option_bytes(7, &info_data("disk", &[1, 2, 3])));
    let requests = [
        (WRITE, 0, 512, 512),
        (READ, 0, 0, 2048),
        (WRITE, 1, 1024, 512),
        (BLOCK_STATUS, 0, 0, 65536),
        (FLUSH, 0, 0, 0),
        (WRITE_ZEROES, 2, 0, 512),
        (READ, 0, 0, 3 << 20),
        (TRIM, 0, 0, 512),
        (CACHE, 0, 0, 512),
        (77, 0, 0, 512),
        (WRITE, 0, 100, 300),
        (DISC, 0, 0, 0),
    ];
    for ((kind, flags, offset, length), cookie) in requests.into_iter().zip(1..) {
        let has_payload = kind == WRITE || form == Form::Extended && kind == 77;
        let request = Request { kind, flags, offset, length };
        if form == Form::Extended {
            let flags = if has_payload { flags | PAYLOAD_LEN } else { flags };
            bytes.extend(extended_bytes(cookie, &Request { flags, ..request }));
        } else {
            bytes.extend(request_bytes(cookie, &request));
        }
        if has_payload {
            bytes.extend(vec![7; usize::try_from(length).unwrap()]);
        }
    }
    bytes
}

fn form_of(seed: u32) -> Form {
    FORMS[usize::try_from(seed).unwrap() % FORMS.len()]
}

/// How a client goes.
#[derive(Debug, Clone, Copy)]
enum Exit {
    /// It sends no more, and takes what comes.
    HangUp,
    /// It is gone at once.
    Vanish,
    /// It stays, sends no more and takes nothing, also when the server stops.
    Stay,
}

/// Sends the bytes and goes. The session must end, with everything that was lent back in its place.
fn play(world: &Rc<World>, bytes: Vec<u8>, exit: Exit, sends_max: usize) {
    let client = world.client();
    client.session.connection.sends_max.set(sends_max);
    let server = Rc::clone(&world.server);
    world.run(async move {
        let connection = Rc::clone(&client.session.connection);
        let reader = async {
            if !matches!(exit, Exit::Stay) {
                let mut bytes = vec![0; 65536];
                while connection.to_client.read(&mut bytes, 1).await > 0 {}
            }
        };
        let writer = async {
            connection.to_server.write(&bytes).await;
            match exit {
                Exit::HangUp => connection.to_server.close(),
                Exit::Vanish => {
                    connection.to_server.close();
                    connection.to_client.close();
                }
                Exit::Stay => server.stop().await,
            }
        };
        both(reader, writer).await;
        let _ = client.session.ended().await;
    });
    world.assert_at_rest();
}

async fn both(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let mut done = (false, false);
    std::future::poll_fn(|cx| {
        done.0 = done.0 || a.as_mut().poll(cx).is_ready();
        done.1 = done.1 || b.as_mut().poll(cx).is_ready();
        if done.0 && done.1 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[test]
fn a_stream_cut_after_any_byte_ends_the_session_and_leaves_nothing() {
    for form in FORMS {
        let bytes = recorded(form);
        let world = world(1);
        for cut in 0..bytes.len() {
            let exit = if cut % 2 == 0 { Exit::HangUp } else { Exit::Vanish };
            play(&world, bytes[..cut].to_vec(), exit, usize::MAX);
        }
        for cut in (0..bytes.len()).step_by(37) {
            play(&self::world(2), bytes[..cut].to_vec(), Exit::Stay, usize::MAX);
        }
    }
}

#[test]
fn a_connection_that_breaks_at_any_send_ends_the_session_and_leaves_nothing() {
    for form in FORMS {
        for sends_max in 0..40 {
            play(&world(u64::try_from(sends_max).unwrap()), recorded(form), Exit::HangUp, sends_max);
        }
    }
}

#[test]
fn random_bytes_in_the_handshake_and_in_transmission_end_the_session() {
    for seed in 0..rounds() {
        let world = world(seed.into());
        let mut bytes: Vec<u8> = if seed % 2 == 0 { vec![0, 0, 0, 3] } else { recorded(form_of(seed / 2)) };
        bytes.truncate(bytes.len() - bytes.len() / 3);
        for _ in 0..world.dice.roll(3000) {
            bytes.push(u8::try_from(world.dice.roll(256)).unwrap());
        }
        play(&world, bytes, Exit::HangUp, usize::MAX);
    }
}

#[test]
fn a_good_session_with_a_few_bytes_changed_ends() {
    // Bits flipped, bytes set to extremes, stretches doubled or left out.
    for seed in 0..rounds() {
        let world = world(seed.into());
        let mut bytes = recorded(form_of(seed));
        for _ in 0..=world.dice.roll(4) {
            let at = world.dice.roll(bytes.len());
            let end = (at + world.dice.roll(40)).min(bytes.len());
            match world.dice.roll(4) {
                0 => bytes[at] ^= 1 << world.dice.roll(8),
                1 => bytes[at] = 0xff,
                2 => drop(bytes.drain(at..end)),
                _ => {
                    let doubled = bytes[at..end].to_vec();
                    bytes.splice(at..at, doubled);
                }
            }
        }
        play(&world, bytes, Exit::HangUp, usize::MAX);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    // Whatever the data of an option is: what is understood obeys the bounds, and the rest is refused.
    #[test]
    fn options_are_read_within_their_data(option in 0u32..14, data in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(
            OptionRequest::ExportName { name }
            | OptionRequest::Info { name, .. }
            | OptionRequest::Go { name, .. }
            | OptionRequest::ListContexts { name, .. }
            | OptionRequest::SetContexts { name, .. },
        ) = OptionRequest::parse(option, &data)
        {
            prop_assert!(name.len() <= data.len() && !name.contains('\0'));
        }
    }

    // What a client writes is what is read, and no proper beginning or extension of it is.
    #[test]
    fn options_are_read_as_they_were_written(
        name in "[^\0]{0,40}",
        items in proptest::collection::vec(0u16..6, 0..5),
        queries in proptest::collection::vec("(base:|base:allocation|x-y:z|)", 0..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let wanted = Wanted { name: items.contains(&1), description: items.contains(&2) };
        let data = info_data(&name, &items);
        prop_assert_eq!(OptionRequest::parse(6, &data), Ok(OptionRequest::Info { name: &name, wanted }));
        prop_assert!(OptionRequest::parse(6, &data[..cut.index(data.len())]).is_err());
        prop_assert!(OptionRequest::parse(6, &[&data[..], &[0]].concat()).is_err());
        let queries: Vec<&str> = queries.iter().map(String::as_str).collect();
        let data = context_data(&name, &queries);
        let exact = queries.contains(&"base:allocation");
        let listed = exact || queries.is_empty() || queries.contains(&"base:");
        let (set, list) = (OptionRequest::parse(10, &data), OptionRequest::parse(9, &data));
        prop_assert_eq!(set, Ok(OptionRequest::SetContexts { name: &name, allocation: exact }));
        prop_assert_eq!(list, Ok(OptionRequest::ListContexts { name: &name, allocation: listed }));
        prop_assert!(OptionRequest::parse(10, &data[..cut.index(data.len())]).is_err());
    }
}
