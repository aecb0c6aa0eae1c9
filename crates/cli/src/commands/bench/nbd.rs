//! A look at an NBD export: whether it answers, how large it is, whether it takes writes, and what stands at its ends.
//!
//! Only what that needs of the protocol (NetworkBlockDevice/nbd, `doc/proto.md`): the fixed newstyle handshake, one
//! export chosen with `NBD_OPT_GO`, reads answered by simple replies. The load itself is sent by `fio`.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use dolmen_api::ExitCode;
use dolmen_nbd::wire::{self, command, info, option, option_reply, transmission};
use dolmen_units::Bytes;

/// How long the server may take for anything.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The port of NBD.
const PORT: u16 = 10809;
/// How much of each end is read.
const END_BYTES: u64 = 1 << 20;
/// One read.
const READ_BYTES: u32 = 128 * 1024;
/// Data of one reply of the handshake, and replies, at most.
const REPLY_BYTES_MAX: u32 = 64 * 1024;
const REPLIES_MAX: usize = 64;

/// Why an export cannot be measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NbdError {
    /// It is no address.
    #[error("{uri} is no address of an NBD export: {why}")]
    Address {
        /// What was given.
        uri: String,
        /// Why not.
        why: &'static str,
    },
    /// Nobody is there.
    #[error("connecting to {uri} failed")]
    Connect {
        /// The address.
        uri: String,
        /// What the system said.
        source: io::Error,
    },
    /// It stopped answering.
    #[error("{doing} {uri} failed")]
    Talk {
        /// What was tried.
        doing: &'static str,
        /// The address.
        uri: String,
        /// What the system said.
        source: io::Error,
    },
    /// It does not speak the protocol.
    #[error("{uri} does not answer as an NBD server: {what}")]
    Protocol {
        /// The address.
        uri: String,
        /// What is odd.
        what: &'static str,
    },
    /// It has no such export, or refuses it.
    #[error("the server at {uri} refuses the export {export:?} (error {code})")]
    Export {
        /// The address.
        uri: String,
        /// The export.
        export: String,
        /// The reply.
        code: u32,
    },
}

impl NbdError {
    /// How the process ends.
    pub(crate) fn exit(&self) -> ExitCode {
        match self {
            Self::Address { .. } | Self::Export { .. } => ExitCode::Usage,
            Self::Connect { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ExitCode::Permission
            }
            Self::Connect { .. } => ExitCode::Busy,
            Self::Talk { .. } | Self::Protocol { .. } => ExitCode::Io,
        }
    }

    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Address { .. } => Some("write nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH"),
            Self::Connect { .. } => Some(
                "start the server, or correct the address; a space is served with `dolmen serve POOL/SPACE`",
            ),
            Self::Export { .. } => {
                Some("correct the name of the export; `nbdinfo --list` shows those of a server")
            }
            Self::Talk { .. } | Self::Protocol { .. } => None,
        }
    }
}

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Server {
    /// Behind a Unix socket, so on this machine.
    Unix(String),
    /// Anywhere.
    Tcp(String, u16),
}

/// An address, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// As it was given.
    pub uri: String,
    /// The server.
    pub server: Server,
    /// The export.
    pub export: String,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.uri)
    }
}

/// What is known of an export.
#[derive(Debug)]
pub(crate) struct Facts {
    /// Its size.
    pub size: Bytes,
    /// Whether it takes no writes.
    pub is_read_only: bool,
    /// Whether it knows how to make writes durable.
    pub can_flush: bool,
    /// Its first bytes.
    pub front: Vec<u8>,
    /// Its last bytes.
    pub tail: Vec<u8>,
}

impl Address {
    /// Takes an address apart (NetworkBlockDevice/nbd, `doc/uri.md`).
    pub(crate) fn parse(uri: &str) -> Result<Self, NbdError> {
        let fail = |why| NbdError::Address { uri: uri.to_owned(), why };
        let (scheme, rest) = uri.split_once("://").ok_or_else(|| fail("no scheme"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decoded(export).ok_or_else(|| fail("the export's name is no text"))?;
        let server = match scheme {
            "nbd" => {
                let (host, port) = host_and_port(authority).ok_or_else(|| fail("the port is no number"))?;
                if host.is_empty() {
                    return Err(fail("no host"));
                }
                Server::Tcp(host, port)
            }
            "nbd+unix" => {
                let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
                let socket = socket.and_then(decoded).filter(|socket| !socket.is_empty());
                Server::Unix(socket.ok_or_else(|| fail("no ?socket=PATH"))?)
            }
            "nbds" | "nbds+unix" => {
                return Err(fail("encrypted exports cannot be looked at before they are overwritten"));
            }
            _ => return Err(fail("the scheme is neither nbd nor nbd+unix")),
        };
        Ok(Self { uri: uri.to_owned(), server, export })
    }

    /// Connects, chooses the export and reads its ends.
    pub(crate) fn look(&self) -> Result<Facts, NbdError> {
        let refused = |source| NbdError::Connect { uri: self.uri.clone(), source };
        match &self.server {
            Server::Unix(path) => {
                let stream = UnixStream::connect(path).map_err(refused)?;
                stream.set_read_timeout(Some(TIMEOUT)).map_err(refused)?;
                stream.set_write_timeout(Some(TIMEOUT)).map_err(refused)?;
                Session { address: self, stream }.look()
            }
            Server::Tcp(host, port) => {
                let places = (host.as_str(), *port).to_socket_addrs().map_err(refused)?;
                let stream = connected(places).map_err(refused)?;
                stream.set_read_timeout(Some(TIMEOUT)).map_err(refused)?;
                stream.set_write_timeout(Some(TIMEOUT)).map_err(refused)?;
                Session { address: self, stream }.look()
            }
        }
    }
}

/// Connects to the first address that answers: a host may have one of IPv6 at which nobody listens.
fn connected(places: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for place in places {
        match TcpStream::connect_timeout(&place, TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn host_and_port(authority: &str) -> Option<(String, u16)> {
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let port = port.strip_prefix(':').map_or(Some(PORT), |port| port.parse().ok())?;
        return Some((host.to_owned(), port));
    }
    match authority.split_once(':') {
        Some((host, port)) => Some((host.to_owned(), port.parse().ok()?)),
        None => Some((authority.to_owned(), PORT)),
    }
}

/// Percent-encoding undone.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (high, low) = (rest.next()?, rest.next()?);
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        bytes.push(digit(high)? * 16 + digit(low)?);
    }
    String::from_utf8(bytes).ok()
}

struct Session<'a, S> {
    address: &'a Address,
    stream: S,
}

impl<S: Read + Write> Session<'_, S> {
    fn look(mut self) -> Result<Facts, NbdError> {
        self.greet()?;
        let (size, flags) = self.choose()?;
        let length = size.0.min(END_BYTES);
        let front = self.read(0, length)?;
        let tail = self.read(size.0 - length, length)?;
        self.leave();
        let has = |flag: u16| flags & transmission::HAS_FLAGS != 0 && flags & flag != 0;
        Ok(Facts {
            size,
            is_read_only: has(transmission::READ_ONLY),
            can_flush: has(transmission::SEND_FLUSH),
            front,
            tail,
        })
    }

    fn fail(&self, doing: &'static str) -> impl Fn(io::Error) -> NbdError + use<S> {
        let uri = self.address.uri.clone();
        move |source| NbdError::Talk { doing, uri: uri.clone(), source }
    }

    fn odd(&self, what: &'static str) -> NbdError {
        NbdError::Protocol { uri: self.address.uri.clone(), what }
    }

    fn take<const N: usize>(&mut self, doing: &'static str) -> Result<[u8; N], NbdError> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).map_err(self.fail(doing))?;
        Ok(bytes)
    }

    fn take_u16(&mut self, doing: &'static str) -> Result<u16, NbdError> {
        Ok(u16::from_be_bytes(self.take(doing)?))
    }

    fn take_u32(&mut self, doing: &'static str) -> Result<u32, NbdError> {
        Ok(u32::from_be_bytes(self.take(doing)?))
    }

    fn take_u64(&mut self, doing: &'static str) -> Result<u64, NbdError> {
        Ok(u64::from_be_bytes(self.take(doing)?))
    }

    fn greet(&mut self) -> Result<(), NbdError> {
        const DOING: &str = "greeting the server at";
        if self.take_u64(DOING)? != wire::MAGIC_SERVER {
            return Err(self.odd("its greeting is another protocol's"));
        }
        if self.take_u64(DOING)? != wire::MAGIC_OPTION {
            return Err(self.odd("its handshake is of an old kind that names no exports"));
        }
        if self.take_u16(DOING)? & wire::FLAG_FIXED_NEWSTYLE == 0 {
            return Err(self.odd("its handshake is of an old kind that answers no options"));
        }
        let flags = u32::from(wire::FLAG_FIXED_NEWSTYLE | wire::FLAG_NO_ZEROES);
        self.stream.write_all(&flags.to_be_bytes()).map_err(self.fail(DOING))
    }

    /// Asks for the export; its size and flags come before the acknowledgement.
    fn choose(&mut self) -> Result<(Bytes, u16), NbdError> {
        const DOING: &str = "asking for the export of";
        let name = self.address.export.as_bytes();
        let Ok(length) = u32::try_from(name.len()) else {
            return Err(self.odd("the export's name is too long"));
        };
        let mut request = Vec::with_capacity(22 + name.len());
        request.extend(wire::MAGIC_OPTION.to_be_bytes());
        request.extend(option::GO.to_be_bytes());
        request.extend((length + 6).to_be_bytes());
        request.extend(length.to_be_bytes());
        request.extend(name);
        request.extend(0u16.to_be_bytes());
        self.stream.write_all(&request).map_err(self.fail(DOING))?;
        let mut found = None;
        for _ in 0..REPLIES_MAX {
            if self.take_u64(DOING)? != wire::MAGIC_OPTION_REPLY {
                return Err(self.odd("its answer to an option is not one"));
            }
            let (_option, kind, length) =
                (self.take_u32(DOING)?, self.take_u32(DOING)?, self.take_u32(DOING)?);
            if length > REPLY_BYTES_MAX {
                return Err(self.odd("its answer to an option is too long"));
            }
            let mut data = vec![0; usize::try_from(length).unwrap_or(0)];
            self.stream.read_exact(&mut data).map_err(self.fail(DOING))?;
            match kind {
                option_reply::ACK => {
                    return found.ok_or_else(|| self.odd("it does not tell the export's size"));
                }
                option_reply::INFO => found = export_info(&data).or(found),
                code if code & option_reply::ERROR != 0 => {
                    let (uri, export) = (self.address.uri.clone(), self.address.export.clone());
                    return Err(NbdError::Export { uri, export, code: code & !option_reply::ERROR });
                }
                _ => {}
            }
        }
        Err(self.odd("its handshake has no end"))
    }

    fn read(&mut self, at: u64, length: u64) -> Result<Vec<u8>, NbdError> {
        const DOING: &str = "reading from";
        let mut bytes = Vec::new();
        let mut done = 0;
        while done < length {
            let piece = u32::try_from(length - done).unwrap_or(u32::MAX).min(READ_BYTES);
            self.ask(command::READ, at + done, piece).map_err(self.fail(DOING))?;
            if self.take_u32(DOING)? != wire::MAGIC_SIMPLE_REPLY {
                return Err(self.odd("its reply to a read is not one"));
            }
            let (error, _cookie) = (self.take_u32(DOING)?, self.take_u64(DOING)?);
            if error != 0 {
                let source = i32::try_from(error)
                    .map_or_else(|_| io::Error::other("unknown"), io::Error::from_raw_os_error);
                return Err(self.fail(DOING)(source));
            }
            let mut data = vec![0; usize::try_from(piece).unwrap_or(0)];
            self.stream.read_exact(&mut data).map_err(self.fail(DOING))?;
            bytes.extend(data);
            done += u64::from(piece);
        }
        Ok(bytes)
    }

    fn ask(&mut self, kind: u16, at: u64, length: u32) -> io::Result<()> {
        let mut request = Vec::with_capacity(28);
        request.extend(wire::MAGIC_REQUEST.to_be_bytes());
        request.extend(0u16.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(0u64.to_be_bytes());
        request.extend(at.to_be_bytes());
        request.extend(length.to_be_bytes());
        self.stream.write_all(&request)
    }

    /// What was wanted is known; a server that is gone by now is no trouble of this look.
    fn leave(&mut self) {
        let _ = self.ask(command::DISC, 0, 0);
    }
}

fn export_info(data: &[u8]) -> Option<(Bytes, u16)> {
    let kind = u16::from_be_bytes(*data.first_chunk()?);
    let size = u64::from_be_bytes(*data.get(2..)?.first_chunk()?);
    let flags = u16::from_be_bytes(*data.get(10..)?.first_chunk()?);
    (kind == info::EXPORT).then_some((Bytes(size), flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        for (uri, server, export) in [
            ("nbd://host", Server::Tcp("host".into(), 10809), ""),
            ("nbd://host:1234/tank/home", Server::Tcp("host".into(), 1234), "tank/home"),
            ("nbd://[::1]:7/x", Server::Tcp("::1".into(), 7), "x"),
            ("nbd+unix:///a%20b?socket=/run/s%2Fock", Server::Unix("/run/s/ock".into()), "a b"),
            ("nbd+unix://?socket=/run/sock", Server::Unix("/run/sock".into()), ""),
        ] {
            let address = Address::parse(uri).unwrap();
            assert_eq!((address.server, address.export.as_str()), (server, export), "{uri}");
        }
        for uri in ["nbd", "nbd://", "nbd://h:x", "nbd+unix:///x", "nbds://h", "http://h", "nbd://h/%zz"] {
            assert!(matches!(Address::parse(uri), Err(NbdError::Address { .. })), "{uri}");
        }
    }

    /// What a server says is played; what is sent to it is thrown away.
    struct Played(io::Cursor<Vec<u8>>);

    impl Read for Played {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.0.read(into)
        }
    }

    impl Write for Played {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn greeting() -> Vec<u8> {
        let mut stated = wire::MAGIC_SERVER.to_be_bytes().to_vec();
        stated.extend(wire::MAGIC_OPTION.to_be_bytes());
        stated.extend(wire::FLAG_FIXED_NEWSTYLE.to_be_bytes());
        stated
    }

    fn reply(kind: u32, data: &[u8]) -> Vec<u8> {
        let mut stated = wire::MAGIC_OPTION_REPLY.to_be_bytes().to_vec();
        stated.extend(option::GO.to_be_bytes());
        stated.extend(kind.to_be_bytes());
        stated.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        stated.extend(data);
        stated
    }

    fn look(stated: Vec<u8>) -> Result<Facts, NbdError> {
        let address = Address::parse("nbd://h/x").unwrap();
        Session { address: &address, stream: Played(io::Cursor::new(stated)) }.look()
    }

    #[test]
    fn size_flags_and_ends_are_read() {
        let mut facts = info::EXPORT.to_be_bytes().to_vec();
        facts.extend(4096u64.to_be_bytes());
        facts.extend((transmission::HAS_FLAGS | transmission::READ_ONLY).to_be_bytes());
        let mut stated =
            [greeting(), reply(option_reply::INFO, &facts), reply(option_reply::ACK, &[])].concat();
        for _ in 0..2 {
            stated.extend(wire::MAGIC_SIMPLE_REPLY.to_be_bytes());
            stated.extend([0; 12]);
            stated.extend([7; 4096]);
        }
        let facts = look(stated).unwrap();
        assert_eq!((facts.size, facts.is_read_only, facts.can_flush), (Bytes(4096), true, false));
        assert_eq!((facts.front, facts.tail), (vec![7; 4096], vec![7; 4096]));
    }

    /// Whatever a server says, it is an error with a name, never a panic and never memory without end.
    #[test]
    fn servers_that_say_nonsense_are_named() {
        let message = |stated: Vec<u8>| look(stated).unwrap_err().to_string();
        assert!(message(b"SSH-2.0-OpenSSH".to_vec()).contains("another protocol's"));
        assert!(message(Vec::new()).starts_with("greeting the server at nbd://h/x failed"));
        let refused = [greeting(), reply(option_reply::ERROR | 6, b"no")].concat();
        assert_eq!(message(refused), "the server at nbd://h/x refuses the export \"x\" (error 6)");
        let unresponsive = [greeting(), reply(option_reply::ACK, &[])].concat();
        assert!(message(unresponsive).contains("does not tell the export's size"));
        let mut long = [greeting(), reply(option_reply::INFO, &[])].concat();
        let length = long.len() - 4;
        long[length..].copy_from_slice(&u32::MAX.to_be_bytes());
        assert!(message(long).contains("too long"));
        let endless = [greeting(), reply(option_reply::INFO, &[0; 3]).repeat(REPLIES_MAX)].concat();
        assert!(message(endless).contains("has no end"));
    }

    /// Of two addresses nobody listens at the first.
    #[test]
    fn each_address_of_a_host_is_tried() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let open = listener.local_addr().unwrap();
        assert_eq!(connected([closed, open].into_iter()).unwrap().peer_addr().unwrap(), open);
        let refused = connected([closed].into_iter()).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(connected(std::iter::empty()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
