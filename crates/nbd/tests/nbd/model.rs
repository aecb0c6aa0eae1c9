//! Random requests, right and wrong, many at a time, against a model that is a vector of bytes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use dolmen_block_io::Spawner;
use dolmen_block_io::sync::Notify;
use dolmen_buffer::ArenaConfig;
use dolmen_nbd::{Farewell, Limits, PIECE_BYTES_MAX};
use proptest::prelude::*;

use crate::client::{
    BLOCK_STATUS, CACHE, Client, DF, FAST_ZERO, FLUSH, FUA, NO_HOLE, PAYLOAD_LEN, READ, REQ_ONE, Reply,
    Request, TRIM, WRITE, WRITE_ZEROES,
};
use crate::export::{DISK_BYTES, UNIT, sectors, whole_sectors};
use crate::world::{Pipe, World};

/// The bytes that the requests fall on, so that they meet.
const ARENA_BYTES: u64 = 4 << 20;

/// A disk as a person would describe it.
struct Model {
    content: Vec<u8>,
    allocated: Vec<bool>,
    bad: Vec<u64>,
    form: Form,
}

/// How a client asks and is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Simple,
    Structured,
    Extended,
}

/// What a request must be answered with.
#[derive(Debug, PartialEq)]
enum Expected {
    Error(u32),
    Done,
    Content(Vec<u8>),
    Broken {
        at: u64,
        before: Vec<u8>,
    },
    /// How long each stretch is, and whether it has data.
    States(Vec<(u64, bool)>),
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap()
}

impl Model {
    fn error(&self, request: &Request) -> Option<u32> {
        let Request { kind, flags, offset, length } = *request;
        // The client itself sets it on writes; on anything else it would be followed by what is no payload.
        let flags = if self.form == Form::Extended { flags & !PAYLOAD_LEN } else { flags };
        let allowed = match kind {
            READ if self.form != Form::Simple => FUA | DF,
            WRITE_ZEROES => FUA | NO_HOLE | FAST_ZERO,
            BLOCK_STATUS => FUA | REQ_ONE,
            READ | WRITE | FLUSH | TRIM | CACHE => FUA,
            _ => return Some(22),
        };
        if flags & !allowed != 0
            || (kind != FLUSH && length == 0)
            || (kind == FLUSH && (offset > 0 || length > 0))
        {
            return Some(22);
        }
        if matches!(kind, READ | WRITE) && length > 64 << 20 {
            return Some(if kind == READ && self.form == Form::Extended { 75 } else { 22 });
        }
        if u128::from(offset) + u128::from(length) > u128::from(DISK_BYTES) {
            return Some(if matches!(kind, WRITE | WRITE_ZEROES) { 28 } else { 22 });
        }
        match kind {
            READ if flags & DF != 0 && length > 1 << 20 => Some(75),
            WRITE_ZEROES if flags & NO_HOLE != 0 && flags & FAST_ZERO != 0 => Some(95),
            BLOCK_STATUS if self.form == Form::Simple => Some(22),
            _ => None,
        }
    }

    fn apply(&mut self, request: &Request, payload: &[u8]) -> Expected {
        if let Some(error) = self.error(request) {
            return Expected::Error(error);
        }
        let (start, end) = (request.offset, request.offset.saturating_add(request.length));
        let bytes = index(start)..index(end);
        let (touched, whole) = (sectors(&(start..end)), whole_sectors(&(start..end)));
        match request.kind {
            READ => match self.bad.iter().filter(|sector| touched.contains(&index(**sector))).min() {
                None => Expected::Content(self.content[bytes].to_vec()),
                Some(sector) => {
                    let at = (sector * UNIT).max(start);
                    Expected::Broken { at, before: self.content[index(start)..index(at)].to_vec() }
                }
            },
            WRITE => {
                self.content[bytes].copy_from_slice(payload);
                self.allocated[touched].fill(true);
                Expected::Done
            }
            TRIM | WRITE_ZEROES => {
                self.content[bytes].fill(0);
                let is_allocated = request.flags & NO_HOLE != 0;
                self.allocated[if is_allocated { touched } else { whole }].fill(is_allocated);
                Expected::Done
            }
            BLOCK_STATUS => {
                let of_sector = |sector: usize| {
                    let sector_start = sector as u64 * UNIT;
                    let length = (sector_start + UNIT).min(end) - sector_start.max(start);
                    (length, self.allocated[sector])
                };
                Expected::States(joined(touched.map(of_sector), end - start))
            }
            _ => Expected::Done,
        }
    }
}

/// Stretches of so many bytes in all, neighbours of one state joined.
fn joined(stretches: impl Iterator<Item = (u64, bool)>, mut left: u64) -> Vec<(u64, bool)> {
    let mut joined: Vec<(u64, bool)> = Vec::new();
    for (length, state) in stretches {
        let length = length.min(left);
        left -= length;
        match joined.last_mut().filter(|(_, before)| *before == state) {
            Some((sum, _)) => *sum += length,
            None if length > 0 => joined.push((length, state)),
            None => {}
        }
    }
    joined
}

fn assert_answer(request: &Request, reply: &Reply, expected: &Expected) {
    match expected {
        Expected::Error(error) => assert_eq!(reply.error, Some(*error), "{request:?}"),
        Expected::Done => assert_eq!(reply.error, None, "{request:?}"),
        Expected::Content(content) => {
            assert_eq!(reply.error, None, "{request:?}");
            assert!(reply.content == *content, "{request:?} has the content of the model");
        }
        Expected::Broken { at, before } => {
            assert_eq!((reply.error, reply.error_at), (Some(5), Some(*at)), "{request:?}");
            let told = index(reply.covered_bytes).min(before.len());
            assert!(reply.content[..told] == before[..told], "{request:?} has the content before the damage");
        }
        Expected::States(states) => {
            let length = reply.extents.iter().map(|(length, _)| length).sum();
            let found = joined(reply.extents.iter().map(|(length, flags)| (*length, *flags == 0)), length);
            assert_eq!(reply.error, None, "{request:?}");
            assert_eq!(found, joined(states.iter().copied(), length), "{request:?}");
        }
    }
}

/// Sends what is queued, beside the task that takes replies: a client that does one after the other may wait for a
/// server that waits for it.
#[derive(Default)]
struct Queue {
    bytes: RefCell<Vec<u8>>,
    done: Cell<bool>,
    notify: Notify,
}

impl Queue {
    fn start(world: &World, pipe: Rc<Pipe>) -> Rc<Self> {
        let queue = Rc::new(Self::default());
        let shared = Rc::clone(&queue);
        world.executor.spawn(
            "requests",
            Box::pin(async move {
                loop {
                    shared
                        .notify
                        .wait_for(|| (shared.done.get() || !shared.bytes.borrow().is_empty()).then_some(()))
                        .await;
                    let bytes = shared.bytes.take();
                    if bytes.is_empty() {
                        return;
                    }
                    assert!(pipe.write(&bytes).await);
                }
            }),
        );
        queue
    }

    fn push(&self, bytes: &[u8]) {
        self.bytes.borrow_mut().extend(bytes);
        self.notify.notify_all();
    }

    fn finish(&self) {
        self.done.set(true);
        self.notify.notify_all();
    }
}

/// Whether two requests may meet without one being able to change what the other finds.
fn independent(a: &Request, b: &Request) -> bool {
    let reads = |request: &Request| matches!(request.kind, READ | BLOCK_STATUS | CACHE);
    // Whether a sector has room is told of all of it.
    let start = |request: &Request| request.offset / UNIT * UNIT;
    let end =
        |request: &Request| request.offset.saturating_add(request.length).div_ceil(UNIT).saturating_mul(UNIT);
    (reads(a) && reads(b)) || end(a) <= start(b) || end(b) <= start(a)
}

async fn drive(world: Rc<World>, mut client: Client, requests: Vec<Request>, mut model: Model) {
    let queue = Queue::start(&world, Rc::clone(&client.session.connection.to_server));
    let mut waiting: BTreeMap<u64, (Request, Expected)> = BTreeMap::new();
    let take = async |client: &mut Client, waiting: &mut BTreeMap<u64, (Request, Expected)>| {
        let reply = client.reply().await.expect("an answer");
        let (request, expected) = waiting.remove(&reply.cookie).unwrap();
        assert_answer(&request, &reply, &expected);
    };
    for request in requests {
        while waiting.values().any(|(other, _)| !independent(other, &request)) {
            take(&mut client, &mut waiting).await;
        }
        let fill = u8::try_from(request.offset / UNIT % 255).unwrap() + 1;
        let payload = if request.kind == WRITE { vec![fill; index(request.length)] } else { vec![] };
        let expected = model.apply(&request, &payload);
        let (cookie, head) = client.begin(request.clone());
        queue.push(&head);
        queue.push(&payload);
        waiting.insert(cookie, (request, expected));
    }
    while !waiting.is_empty() {
        take(&mut client, &mut waiting).await;
    }
    queue.finish();
    assert_eq!(client.leave().await, Ok(Farewell::Left));
    assert!(
        *world.server.exports().disk.content.borrow() == model.content,
        "the disk has the content of the model"
    );
}

fn request() -> impl Strategy<Value = Request> {
    let kind = prop_oneof![
        6 => Just(READ), 6 => Just(WRITE), 1 => Just(FLUSH), 2 => Just(TRIM), 1 => Just(CACHE), 2 => Just(WRITE_ZEROES),
        2 => Just(BLOCK_STATUS), 1 => 8u16..12,
    ];
    let flags = prop_oneof![6 => Just(0u16), 2 => Just(FUA), 1 => Just(DF), 1 => Just(REQ_ONE),
        1 => Just(NO_HOLE), 1 => Just(FAST_ZERO), 1 => Just(NO_HOLE | FAST_ZERO), 1 => any::<u16>()];
    let sectors = ARENA_BYTES / UNIT;
    let offset = prop_oneof![
        10 => (0..sectors).prop_map(|sector| sector * UNIT),
        10 => 0..ARENA_BYTES,
        1 => any::<u64>(),
        1 => (0..4u64).prop_map(|sector| DISK_BYTES - sector * UNIT),
        1 => (0..4u64).prop_map(|sector| u64::MAX - UNIT + 1 - sector * UNIT),
    ];
    let length = prop_oneof![
        6 => (1..64u64).prop_map(|sectors| sectors * 512),
        6 => 1..20_000u64,
        2 => (1..8192u64).prop_map(|sectors| sectors * 512),
        1 => 1..ARENA_BYTES,
        1 => Just(0), 1 => Just(64 << 20), 1 => Just((64 << 20) + 1), 1 => any::<u64>(),
        1 => (0..4u64).prop_map(|sector| u64::MAX - UNIT + 1 - sector * UNIT),
    ];
    (kind, flags, offset, length).prop_map(|(kind, flags, offset, length)| {
        // A flag that says "a payload follows" is no matter of drawing: what follows would be taken for it.
        let flags = flags & !PAYLOAD_LEN;
        let bare = kind == FLUSH && flags & 1 == 0;
        if bare {
            Request { kind, flags, offset: 0, length: 0 }
        } else {
            Request { kind, flags, offset, length }
        }
    })
}

/// The request as it can be said in this form, without ending the connection.
fn fitted(mut request: Request, form: Form) -> Request {
    let longest = match (request.kind, form) {
        // A longer payload ends the connection, which has a test of its own.
        (WRITE, Form::Extended) => 64 << 20,
        (WRITE, Form::Simple | Form::Structured) => (64 << 20) + 1,
        (_, Form::Extended) => u64::MAX,
        (_, Form::Simple | Form::Structured) => u64::from(u32::MAX),
    };
    request.length = request.length.min(longest);
    request
}

fn run(seed: u64, form: Form, requests: Vec<Request>, bad: Vec<u64>, payload_bytes_max: u64) {
    let config = ArenaConfig { small_count: 8, medium_count: 4, large_count: 3 };
    let world = World::with_arena(seed, Limits { payload_bytes_max, ..Limits::default() }, config);
    let requests: Vec<Request> = requests.into_iter().map(|request| fitted(request, form)).collect();
    let bad = if form == Form::Simple { vec![] } else { bad };
    world.server.exports().disk.bad.borrow_mut().extend(&bad);
    let mut client = world.client();
    let inner = Rc::clone(&world);
    world.run(async move {
        match form {
            Form::Simple => client.go_simple("disk").await,
            Form::Structured => client.go("disk").await,
            Form::Extended => client.go_extended("disk").await,
        };
        let (content, allocated) = (vec![0; index(DISK_BYTES)], vec![false; index(DISK_BYTES / UNIT)]);
        drive(inner, client, requests, Model { content, allocated, bad, form }).await;
    });
    world.assert_at_rest();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: crate::hostile::rounds() / 25, max_shrink_iters: 200, ..ProptestConfig::default() })]

    // Right and wrong requests, as many under way as do not depend on each other, in a small arena and in any order
    // of tasks: each is answered as the model says, by bytes that the strict client accepts, and nothing is left over.
    #[test]
    fn requests_are_answered_as_by_a_vector_of_bytes(
        seed in any::<u64>(),
        form in prop_oneof![Just(Form::Simple), Just(Form::Structured), Just(Form::Extended)],
        requests in proptest::collection::vec(request(), 1..50),
        bad in proptest::collection::vec(0..ARENA_BYTES / UNIT, 0..3),
        pieces in 1..5u64,
    ) {
        run(seed, form, requests, bad, pieces * PIECE_BYTES_MAX);
    }
}
