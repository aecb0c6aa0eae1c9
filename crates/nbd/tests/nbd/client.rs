//! A client that believes nothing: it reads the server's stream by the protocol's document alone, with numbers of its
//! own, and panics at whatever a server must not send.

use std::collections::BTreeMap;

use crate::world::{Ending, Session};

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISC: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const CACHE: u16 = 5;
pub(crate) const WRITE_ZEROES: u16 = 6;
pub(crate) const BLOCK_STATUS: u16 = 7;

pub(crate) const FUA: u16 = 1;
pub(crate) const NO_HOLE: u16 = 2;
pub(crate) const DF: u16 = 4;
pub(crate) const REQ_ONE: u16 = 8;
pub(crate) const FAST_ZERO: u16 = 16;
/// Extended requests alone.
pub(crate) const PAYLOAD_LEN: u16 = 32;

pub(crate) const ACK: u32 = 1;

/// A request that was sent and not yet answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

#[derive(Debug)]
struct Pending {
    request: Request,
    reply: Reply,
    content_chunks: usize,
    covered: Vec<(u64, u64)>,
}

/// A whole reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) cookie: u64,
    pub(crate) error: Option<u32>,
    pub(crate) error_at: Option<u64>,
    pub(crate) text: String,
    /// The content of a read, where it was told.
    pub(crate) content: Vec<u8>,
    pub(crate) covered_bytes: u64,
    pub(crate) holes: usize,
    pub(crate) chunks: usize,
    pub(crate) extents: Vec<(u64, u32)>,
}

/// A client at any stage.
pub(crate) struct Client {
    pub(crate) session: Session,
    pub(crate) structured: bool,
    pub(crate) extended: bool,
    pub(crate) no_zeroes: bool,
    pending: BTreeMap<u64, Pending>,
    next_cookie: u64,
}

pub(crate) fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

pub(crate) fn be64(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes[..8].try_into().unwrap())
}

fn be16(bytes: &[u8]) -> u16 {
    u16::from_be_bytes(bytes[..2].try_into().unwrap())
}

pub(crate) fn counted(name: &[u8]) -> Vec<u8> {
    [&u32::try_from(name.len()).unwrap().to_be_bytes()[..], name].concat()
}

/// The data of an information option.
pub(crate) fn info_data(name: &str, items: &[u16]) -> Vec<u8> {
    let mut data = counted(name.as_bytes());
    data.extend(u16::try_from(items.len()).unwrap().to_be_bytes());
    items.iter().for_each(|item| data.extend(item.to_be_bytes()));
    data
}

/// The data of a context option.
pub(crate) fn context_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = counted(name.as_bytes());
    data.extend(u32::try_from(queries.len()).unwrap().to_be_bytes());
    queries.iter().for_each(|query| data.extend(counted(query.as_bytes())));
    data
}

pub(crate) fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let head = [&b"IHAVEOPT"[..], &option.to_be_bytes()].concat();
    [&head[..], &u32::try_from(data.len()).unwrap().to_be_bytes(), data].concat()
}

pub(crate) fn request_bytes(cookie: u64, request: &Request) -> Vec<u8> {
    let mut bytes = vec![0x25, 0x60, 0x95, 0x13];
    bytes.extend(request.flags.to_be_bytes());
    bytes.extend(request.kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(request.offset.to_be_bytes());
    bytes.extend(u32::try_from(request.length).unwrap().to_be_bytes());
    bytes
}

/// The same with extended headers. Nothing is added: a write has a payload only if its flags say so.
pub(crate) fn extended_bytes(cookie: u64, request: &Request) -> Vec<u8> {
    let mut bytes = vec![0x21, 0xe4, 0x1c, 0x71];
    bytes.extend(request.flags.to_be_bytes());
    bytes.extend(request.kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(request.offset.to_be_bytes());
    bytes.extend(request.length.to_be_bytes());
    bytes
}

impl Client {
    pub(crate) fn new(session: Session) -> Self {
        Self {
            session,
            structured: false,
            extended: false,
            no_zeroes: true,
            pending: BTreeMap::new(),
            next_cookie: 1 << 40,
        }
    }

    /// `None` at the end of the stream.
    pub(crate) async fn take(&self, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        let mut filled = 0;
        while filled < count {
            let came = self.session.connection.to_client.read(&mut bytes[filled..], 1).await;
            if came == 0 {
                return None;
            }
            filled += came;
        }
        Some(bytes)
    }

    pub(crate) async fn put(&self, bytes: &[u8]) -> bool {
        self.session.connection.to_server.write(bytes).await
    }

    /// The client's side of the stream ends; the server can still send.
    pub(crate) fn hang_up(&self) {
        self.session.connection.to_server.close();
    }

    pub(crate) async fn greet(&mut self, flags: u32) {
        let greeting = self.take(18).await.unwrap();
        assert_eq!(greeting, b"NBDMAGICIHAVEOPT\0\x03");
        self.no_zeroes = flags & 2 != 0;
        self.put(&flags.to_be_bytes()).await;
    }

    /// One reply to an option: its type and data.
    pub(crate) async fn option_reply(&self, option: u32) -> Option<(u32, Vec<u8>)> {
        let head = self.take(20).await?;
        assert_eq!(be64(&head), 0x0003_e889_0455_65a9);
        assert_eq!(be32(&head[8..]), option, "the reply names the option that it answers");
        let data = self.take(usize::try_from(be32(&head[16..])).unwrap()).await?;
        let reply_type = be32(&head[12..]);
        if reply_type >= 1 << 31 {
            assert!(
                std::str::from_utf8(&data).is_ok() && data.len() <= 4096,
                "errors carry a text for people"
            );
        }
        Some((reply_type, data))
    }

    /// Sends an option and takes all its replies; the last is an acknowledgement or an error.
    pub(crate) async fn option(&self, option: u32, data: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.put(&option_bytes(option, data)).await;
        self.option_replies(option).await
    }

    pub(crate) async fn option_replies(&self, option: u32) -> Vec<(u32, Vec<u8>)> {
        let mut replies = Vec::new();
        while let Some((reply_type, data)) = self.option_reply(option).await {
            replies.push((reply_type, data));
            if reply_type == ACK || reply_type >= 1 << 31 {
                break;
            }
        }
        replies
    }

    /// The number of the error that answers an option.
    pub(crate) async fn refused(&self, option: u32, data: &[u8]) -> u32 {
        let replies = self.option(option, data).await;
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies[0].0.checked_sub(1 << 31).unwrap_or_else(|| panic!("option {option} was accepted"))
    }

    /// Through the handshake with all that is offered. Returns size and flags.
    pub(crate) async fn go(&mut self, name: &str) -> (u64, u16) {
        self.greet(3).await;
        assert_eq!(self.option(8, &[]).await, vec![(ACK, vec![])]);
        self.structured = true;
        let contexts = self.option(10, &context_data(name, &["base:allocation"])).await;
        assert_eq!(contexts, vec![(4, b"\0\0\0\x01base:allocation".to_vec()), (ACK, vec![])]);
        self.enter(name).await
    }

    /// As [`go`](Self::go), with extended headers.
    pub(crate) async fn go_extended(&mut self, name: &str) -> (u64, u16) {
        self.greet(3).await;
        assert_eq!(self.option(11, &[]).await, vec![(ACK, vec![])]);
        (self.structured, self.extended) = (true, true);
        let contexts = self.option(10, &context_data(name, &["base:allocation"])).await;
        assert_eq!(contexts, vec![(4, b"\0\0\0\x01base:allocation".to_vec()), (ACK, vec![])]);
        self.enter(name).await
    }

    /// Chooses an export. Returns size and flags.
    pub(crate) async fn enter(&mut self, name: &str) -> (u64, u16) {
        let replies = self.option(7, &info_data(name, &[3])).await;
        assert_eq!(replies.last(), Some(&(ACK, vec![])));
        let export = replies.iter().find(|(reply, data)| *reply == 3 && data[..2] == [0, 0]).unwrap();
        assert_eq!(export.1.len(), 12);
        (be64(&export.1[2..]), be16(&export.1[10..]))
    }

    /// As [`go`](Self::go), the plain old way.
    pub(crate) async fn go_simple(&mut self, name: &str) -> (u64, u16) {
        self.greet(1).await;
        self.put(&option_bytes(1, name.as_bytes())).await;
        let answer = self.take(10 + 124).await.unwrap();
        assert!(answer[10..].iter().all(|byte| *byte == 0));
        (be64(&answer), be16(&answer[8..]))
    }

    /// Notes a request that is about to be sent, and returns its bytes.
    pub(crate) fn begin(&mut self, request: Request) -> (u64, Vec<u8>) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let bytes = self.head(cookie, &request);
        let whole = usize::try_from(request.length.min(1 << 26)).unwrap();
        let content = if request.kind == READ { vec![0xee; whole] } else { vec![] };
        let reply = Reply { cookie, content, ..Reply::default() };
        let pending = Pending { request, reply, content_chunks: 0, covered: Vec::new() };
        self.pending.insert(cookie, pending);
        (cookie, bytes)
    }

    /// A request in the form agreed on.
    pub(crate) fn head(&self, cookie: u64, request: &Request) -> Vec<u8> {
        match (self.extended, request.kind) {
            (false, _) => request_bytes(cookie, request),
            (true, WRITE) => {
                extended_bytes(cookie, &Request { flags: request.flags | PAYLOAD_LEN, ..request.clone() })
            }
            (true, _) => extended_bytes(cookie, request),
        }
    }

    pub(crate) async fn send(&mut self, request: Request, payload: &[u8]) -> u64 {
        let (cookie, bytes) = self.begin(request);
        self.put(&bytes).await;
        self.put(payload).await;
        cookie
    }

    /// Sends one request and takes its reply.
    pub(crate) async fn ask(
        &mut self,
        kind: u16,
        flags: u16,
        offset: u64,
        length: u64,
        payload: &[u8],
    ) -> Reply {
        let cookie = self.send(Request { kind, flags, offset, length }, payload).await;
        let reply = self.reply().await.expect("an answer");
        assert_eq!(reply.cookie, cookie);
        reply
    }

    pub(crate) async fn read(&mut self, offset: u64, length: u64) -> Reply {
        self.ask(READ, 0, offset, length, &[]).await
    }

    pub(crate) async fn write(&mut self, offset: u64, payload: &[u8]) -> Reply {
        self.ask(WRITE, 0, offset, payload.len() as u64, payload).await
    }

    pub(crate) async fn leave(&mut self) -> Ending {
        self.put(&self.head(0, &Request { kind: DISC, flags: 0, offset: 0, length: 0 })).await;
        assert!(self.reply().await.is_none(), "a disconnect is not answered");
        assert!(self.pending.is_empty(), "everything was answered: {:?}", self.pending.keys());
        self.session.ended().await
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// The next reply that is complete; `None` at the end of the stream, which may be inside a message.
    pub(crate) async fn reply(&mut self) -> Option<Reply> {
        loop {
            let magic = be32(&self.take(4).await?);
            let done = match magic {
                0x6744_6698 => self.simple_reply().await?,
                0x668e_33ef if !self.extended => self.chunk(16).await?,
                0x6e8a_278c if self.extended => self.chunk(28).await?,
                _ => panic!("{magic:#x} begins no message"),
            };
            if let Some(cookie) = done {
                let pending = self.pending.remove(&cookie).unwrap();
                return Some(self.finished(pending));
            }
        }
    }

    async fn simple_reply(&mut self) -> Option<Option<u64>> {
        let head = self.take(12).await?;
        let (error, cookie) = (be32(&head), be64(&head[4..]));
        let structured = self.structured;
        assert!(!self.extended, "simple replies are no extended ones");
        let pending = self.pending.get(&cookie).unwrap_or_else(|| panic!("{cookie} was not asked"));
        let (kind, length) = (pending.request.kind, usize::try_from(pending.request.length).unwrap());
        assert!(!(structured && matches!(kind, READ | BLOCK_STATUS)), "this wants a structured reply");
        assert_eq!(pending.reply.chunks, 0, "one reply per request");
        let content = if kind == READ && error == 0 { Some(self.take(length).await?) } else { None };
        let pending = self.pending.get_mut(&cookie).unwrap();
        pending.reply.error = (error != 0).then_some(error);
        if let Some(content) = content {
            pending.reply.content = content;
            pending.covered.push((pending.request.offset, length as u64));
        }
        Some(Some(cookie))
    }

    /// One chunk, whose head has so many bytes behind its magic.
    async fn chunk(&mut self, head_bytes: usize) -> Option<Option<u64>> {
        assert!(self.structured, "chunks were not negotiated");
        let head = self.take(head_bytes).await?;
        let (flags, kind, cookie) = (be16(&head), be16(&head[2..]), be64(&head[4..]));
        let length = if self.extended { be64(&head[20..]) } else { u64::from(be32(&head[12..])) };
        assert!(flags <= 1 && length <= (64 << 20) + 8, "{flags:#x} {length}");
        let data = self.take(usize::try_from(length).unwrap()).await?;
        let pending = self.pending.get_mut(&cookie).unwrap_or_else(|| panic!("{cookie} was not asked"));
        if self.extended {
            assert_eq!(
                be64(&head[12..]),
                pending.request.offset,
                "a reply repeats the offset of its request"
            );
        }
        pending.reply.chunks += 1;
        match kind {
            0 => assert!(length == 0 && flags == 1),
            1 => {
                assert!(length >= 9);
                pending.content(be64(&data), &data[8..]);
            }
            2 => {
                assert_eq!(length, 12);
                pending.reply.holes += 1;
                pending.content(be64(&data), &vec![0; be32(&data[8..]) as usize]);
            }
            5 if !self.extended => pending.extents(&data),
            6 if self.extended => pending.wide_extents(&data),
            0x8001 | 0x8002 => pending.error(kind, &data),
            _ => panic!("chunk type {kind:#x} is unknown"),
        }
        Some((flags == 1).then_some(cookie))
    }

    fn finished(&self, mut pending: Pending) -> Reply {
        let Request { kind, length, .. } = pending.request;
        pending.reply.covered_bytes = pending.covered.iter().map(|(_, length)| length).sum();
        let complete = pending.reply.covered_bytes == length;
        assert!(
            pending.reply.error.is_some() || kind != READ || complete,
            "success without all of the content"
        );
        assert!(pending.reply.error.is_some() || kind != BLOCK_STATUS || !pending.reply.extents.is_empty());
        pending.reply
    }
}

impl Pending {
    fn content(&mut self, offset: u64, bytes: &[u8]) {
        let Request { kind, flags, offset: start, length } = self.request;
        let end = start + length;
        let length = bytes.len() as u64;
        assert!(
            kind == READ && length > 0 && offset >= start && offset + length <= end,
            "content where asked for"
        );
        for (other, size) in &self.covered {
            assert!(offset + length <= *other || other + size <= offset, "content chunks do not overlap");
        }
        self.content_chunks += 1;
        assert!(flags & DF == 0 || self.content_chunks == 1, "one chunk was asked for");
        self.covered.push((offset, length));
        let at = usize::try_from(offset - start).unwrap();
        self.reply.content[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn extents(&mut self, data: &[u8]) {
        assert!(self.request.kind == BLOCK_STATUS && self.reply.extents.is_empty());
        assert!(data.len() >= 12 && (data.len() - 4).is_multiple_of(8) && be32(data) == 1);
        let extent = |extent: &[u8]| (u64::from(be32(extent)), be32(&extent[4..]));
        self.reply.extents = data[4..].chunks(8).map(extent).collect();
        self.check_extents();
    }

    fn wide_extents(&mut self, data: &[u8]) {
        assert!(self.request.kind == BLOCK_STATUS && self.reply.extents.is_empty());
        assert!(data.len() >= 24 && (data.len() - 8).is_multiple_of(16) && be32(data) == 1);
        assert_eq!(be32(&data[4..]) as usize, (data.len() - 8) / 16, "the count is that of the extents");
        let extent = |extent: &[u8]| (be64(extent), u32::try_from(be64(&extent[8..])).unwrap());
        self.reply.extents = data[8..].chunks(16).map(extent).collect();
        self.check_extents();
    }

    fn check_extents(&self) {
        let extents = &self.reply.extents;
        assert!(extents.iter().all(|(length, flags)| *length > 0 && *flags <= 3));
        assert!(extents.windows(2).all(|pair| pair[0].1 != pair[1].1), "neighbours differ");
        let sum: u64 = extents.iter().map(|(length, _)| *length).sum();
        assert!(sum <= self.request.length, "no more than was asked for");
        assert!(self.request.flags & REQ_ONE == 0 || extents.len() == 1);
    }

    fn error(&mut self, kind: u16, data: &[u8]) {
        let (error, text) = (be32(data), usize::from(be16(&data[4..])));
        assert!(error != 0 && [1, 5, 22, 28, 75, 95, 108].contains(&error));
        let tail = if kind == 0x8002 { 8 } else { 0 };
        assert_eq!(data.len(), 6 + text + tail);
        assert!(self.reply.error.is_none(), "one error per reply");
        self.reply.text = String::from_utf8(data[6..6 + text].to_vec()).unwrap();
        self.reply.error = Some(error);
        if tail > 0 {
            let at = be64(&data[6 + text..]);
            let Request { offset, length, .. } = self.request;
            assert!((offset..offset + length).contains(&at), "the place of the error is in the range");
            self.reply.error_at = Some(at);
        }
    }
}
