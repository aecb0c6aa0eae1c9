//! NBD: clients of the server, as lists of options and requests and as any bytes.
//!
//! Oracle: a second reader of the client's bytes says what each message is answered with, by the protocol's document: options in
//! their order with all their data, requests in any order among those that are apart, from an array in memory. The server says that
//! and nothing else, ends when it should, and in the end the export holds what the array does, and nothing is lent still.
//! Bytes that a fuzzer made are cut into messages by the same reader; what the server makes of them has to be the same.

mod handshake;
mod server;
mod transmission;

use std::collections::BTreeMap;

use crate::Reached;
use crate::script::Script;
use handshake::{Form, GREETING, Handshake, Stage, expect_sent};
use server::{DISK_BYTES, NAME, SECRET, SECTOR, Session};
use transmission::{
    DISCONNECT, Expected, Model, PAYLOAD, PAYLOAD_BYTES_MAX, Replies, Request, WRITE, is_as_expected,
};

/// Requests that are sent without waiting for an answer, at most.
const BURST_MAX: usize = 12;
/// Bytes that a script may send as a payload.
const WRITTEN_MAX: u64 = 64 << 10;

/// A client, and what it has to be told.
struct Client {
    session: Session,
    handshake: Handshake,
    model: Model,
    asked: u64,
    /// The client said something that ends its connection.
    is_over: bool,
}

impl Client {
    fn new() -> Self {
        let session = Session::new();
        assert_eq!(session.send(&[]), GREETING, "the server greets");
        let (handshake, model) = (Handshake::new(), Model::new(Form::Simple, false));
        Self { session, handshake, model, asked: 0, is_over: false }
    }

    /// Sends what is a message of the handshake, and holds the answer against what it should be.
    fn shake(&mut self, message: &[u8]) {
        let option = message.get(8..12).map(|number| u32::from_be_bytes(number.try_into().unwrap()));
        let Some((_, expected)) = self.handshake.take(message) else { panic!("a message is whole") };
        let sent = self.session.send(message);
        expect_sent(&sent, option, &expected);
        match self.handshake.stage {
            Stage::Transmission => self.model = Model::new(self.handshake.form, self.handshake.has_status),
            Stage::Over => self.is_over = true,
            Stage::Flags | Stage::Options => {}
        }
        assert_eq!(self.session.is_closed(), self.is_over, "behind option {option:?}");
    }

    /// Sends requests that are apart, and holds the answers against what they should be.
    fn ask(&mut self, burst: &[(Request, Vec<u8>)]) {
        let form = self.model.form;
        let (mut bytes, mut expected) = (Vec::new(), BTreeMap::new());
        for (request, payload) in burst {
            bytes.extend(request.bytes(form));
            bytes.extend(payload);
            if request.kind == DISCONNECT {
                self.is_over = true;
                break;
            }
            let answer = self.model.apply(request, payload);
            expected.insert(request.cookie, (*request, answer));
        }
        let sent = self.session.send(&bytes);
        let mut replies = Replies::new(&sent, form);
        let mut answered = BTreeMap::new();
        while let Some((cookie, found)) =
            replies.next(|cookie| expected.get(&cookie).map(|(request, _)| *request))
        {
            let (request, answer) = &expected[&cookie];
            assert!(
                is_as_expected(&found, answer),
                "{request:?} is answered {} instead of {}",
                brief(&found),
                brief(answer)
            );
            assert!(answered.insert(cookie, ()).is_none(), "{request:?} is answered twice");
        }
        assert_eq!(answered.len(), expected.len(), "every request is answered");
        assert_eq!(self.session.is_closed(), self.is_over, "behind {burst:?}");
    }

    /// Sends what is no message, or not all of one: there is no reply, but for a request that is refused before all of its
    /// payload came.
    fn leave_off(&mut self, rest: &[u8]) {
        let sent = self.session.send(rest);
        let form = self.model.form;
        let request = match self.handshake.stage {
            Stage::Transmission => {
                Request::parse(rest, form).and_then(Result::ok).map(|(request, _)| request)
            }
            Stage::Flags | Stage::Options | Stage::Over => None,
        };
        let mut replies = Replies::new(&sent, form);
        let asked = |cookie| request.filter(|request| request.cookie == cookie);
        while let Some((_, found)) = replies.next(asked) {
            let refusal = request.and_then(|request| self.model.error(&request)).map(Expected::Error);
            assert_eq!(Some(found), refusal, "half of {request:?} is answered");
        }
    }

    fn end(self) {
        let disk = std::rc::Rc::clone(&self.session.disk);
        let last = self.session.end();
        assert!(last.is_empty(), "the server says more than it should: {last:02x?}");
        assert!(*disk.content.borrow() == self.model.content, "the export holds what the array does");
        assert!(*disk.allocated.borrow() == self.model.allocated, "what is allocated");
    }
}

/// An answer in few words.
fn brief(answer: &Expected) -> String {
    match answer {
        Expected::Content(bytes) => format!("{} bytes that begin with {:02x?}", bytes.len(), bytes.get(..8)),
        Expected::Error(_) | Expected::Done | Expected::States(_) => format!("{answer:?}"),
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    [&b"IHAVEOPT"[..], &number.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
}

fn counted(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text].concat()
}

fn name(script: &mut Script<'_>) -> Vec<u8> {
    let choice = script.byte();
    match choice % 16 {
        0..=7 => NAME.as_bytes().to_vec(),
        8 | 9 => Vec::new(),
        10 => SECRET.as_bytes().to_vec(),
        11 => vec![b'n'; 4096],
        12 => vec![b'n'; 4097],
        13 => vec![b'd', 0],
        14 => vec![0xff, 0xfe],
        _ => b"other".to_vec(),
    }
}

/// An option, right or wrong.
fn drawn_option(script: &mut Script<'_>) -> Vec<u8> {
    let number = [7, 8, 11, 10, 9, 6, 3, 1, 2, 5, 4, 0][script.index(12)];
    let mut data = match number {
        1 => name(script),
        6 | 7 => {
            let mut data = counted(&name(script));
            let items = script.below(5) as u16;
            data.extend(items.to_be_bytes());
            (0..items).for_each(|_| data.extend((u16::from(script.byte()) % 6).to_be_bytes()));
            data
        }
        9 | 10 => {
            let mut data = counted(&name(script));
            let count = if script.seldom() { script.edge() as u32 % 70 } else { script.below(4) as u32 };
            data.extend(count.to_be_bytes());
            let queries = [&b"base:allocation"[..], b"base:", b"x:y", b""];
            (0..count).for_each(|_| data.extend(counted(queries[script.index(4)])));
            data
        }
        _ => Vec::new(),
    };
    if script.seldom() {
        match script.byte() % 4 {
            0 => data.truncate(script.index(data.len() + 1)),
            1 => data.push(0),
            2 => data.resize((64 << 10) + usize::from(script.byte()), 7),
            _ => {
                let at = script.index(data.len() + 1);
                data.iter_mut().skip(at).take(1).for_each(|byte| *byte = script.byte());
            }
        }
    }
    option(number, &data)
}

/// A request, right or wrong, that does not end the connection; its payload.
fn drawn_request(script: &mut Script<'_>, form: Form, cookie: u64) -> (Request, Vec<u8>) {
    let kind = [1, 0, 0, 1, 7, 6, 4, 3, 5, 6, 1, 8][script.index(12)];
    let flags = [0, 0, 0, 0, 1, 2, 4, 8, 16, 18, 3, 0x8000][script.index(12)];
    // Any byte, or a sector.
    let unit = if script.byte().is_multiple_of(2) { 1 } else { SECTOR };
    let offset = if script.seldom() { script.edge() } else { script.below(DISK_BYTES) / unit * unit };
    let length = if script.seldom() { script.edge() } else { unit + script.below(40 * SECTOR) / unit * unit };
    let mut request = Request { kind, flags, cookie, offset, length };
    if kind == 3 && !script.seldom() {
        (request.offset, request.length) = (0, 0);
    }
    match form {
        Form::Extended if kind == WRITE && !script.seldom() => request.flags |= PAYLOAD,
        Form::Extended => {}
        Form::Simple | Form::Structured => request.length = u64::from(request.length as u32),
    }
    if request.payload(form) > 0 {
        request.length %= WRITTEN_MAX + 1;
    }
    let fill = script.byte();
    let payload = (0..request.payload(form)).map(|at| fill.wrapping_add((at / SECTOR) as u8)).collect();
    (request, payload)
}

/// Options and requests that the script draws.
fn actions(script: &mut Script<'_>) -> Reached {
    let mut client = Client::new();
    let flags = if script.seldom() { script.edge() as u32 } else { 3 };
    client.shake(&flags.to_be_bytes());
    while client.handshake.stage == Stage::Options {
        let message = if script.is_over() { option(2, &[]) } else { drawn_option(script) };
        client.shake(&message);
    }
    let mut burst: Vec<(Request, Vec<u8>)> = Vec::new();
    while !client.is_over && !script.is_over() {
        client.asked += 1;
        let (request, payload) = drawn_request(script, client.model.form, client.asked << 32 | 7);
        let is_apart = burst.iter().all(|(other, _)| request.is_apart(other));
        if !is_apart || burst.len() == BURST_MAX {
            client.ask(&std::mem::take(&mut burst));
        }
        burst.push((request, payload));
    }
    let reached = if client.asked > 0 { Reached::Held } else { Reached::Refused };
    if !client.is_over && client.handshake.stage == Stage::Transmission {
        if script.seldom() {
            burst.push((Request { kind: DISCONNECT, flags: 0, cookie: 1, offset: 0, length: 0 }, Vec::new()));
        }
        client.ask(&burst);
    }
    client.end();
    reached
}

/// Any bytes: cut into messages by the second reader, as far as they are some.
fn any_bytes(mut stream: &[u8]) -> Reached {
    let mut client = Client::new();
    while matches!(client.handshake.stage, Stage::Flags | Stage::Options) {
        let Some((length, _)) = client.handshake.clone().take(stream) else { break };
        client.shake(&stream[..length.min(stream.len())]);
        stream = &stream[length.min(stream.len())..];
    }
    let mut reached = Reached::Refused;
    while client.handshake.stage == Stage::Transmission && !client.is_over {
        let form = client.model.form;
        let Some(Ok((request, head))) = Request::parse(stream, form) else { break };
        let payload = request.payload(form);
        // Payloads that are longer than what is skipped end the connection, and longer ones than were sent wait for more.
        let Some(payload) = stream.get(head..head + payload.min(PAYLOAD_BYTES_MAX + 1) as usize) else {
            break;
        };
        client.ask(&[(request, payload.to_vec())]);
        stream = &stream[head + payload.len()..];
        reached = Reached::Held;
    }
    if !client.is_over {
        client.leave_off(stream);
    }
    client.end();
    reached
}

/// One input.
pub(crate) fn run(input: &[u8]) -> Reached {
    let mut script = Script::new(input);
    let kind = script.byte();
    if kind & 1 == 0 { actions(&mut script) } else { any_bytes(script.rest()) }
}

/// Inputs to begin with.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let requests: Vec<u8> = (0..60).map(|at: u8| at.wrapping_mul(29)).collect();
    for form in [&[][..], &[1][..], &[2][..]] {
        // No flags that are unknown, a form, contexts, and GO.
        let form: Vec<u8> = form.iter().flat_map(|option| [*option, 0]).collect();
        seeds.push([&[0, 0][..], &form, &[3, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0], &requests].concat());
    }
    for form in [Form::Simple, Form::Structured, Form::Extended] {
        let mut bytes = vec![1, 0, 0, 0, 3];
        match form {
            Form::Simple => {}
            Form::Structured => bytes.extend(option(8, &[])),
            Form::Extended => bytes.extend(option(11, &[])),
        }
        bytes.extend(option(3, &[]));
        bytes.extend(option(7, &[&counted(NAME.as_bytes())[..], &[0, 1, 0, 3]].concat()));
        for (kind, offset, length) in
            [(0, 0, 512), (3, 0, 0), (4, 512, 1024), (6, 0, 512), (0, 0, 2048), (2, 0, 0)]
        {
            let request = Request { kind, flags: 0, cookie: offset + 9, offset, length };
            bytes.extend(request.bytes(form));
        }
        seeds.push(bytes);
    }
    seeds
}
