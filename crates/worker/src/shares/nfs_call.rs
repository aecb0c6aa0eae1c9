//! A small client of NFS 4.0 over TCP: it asks whether a server runs, and whether a path is there (RFC 5531, RFC 7530).

use std::io::{self, Read, Write};
use std::net::TcpStream;

const PROGRAM: u32 = 100_003;
const VERSION: u32 = 4;
const NULL: u32 = 0;
const COMPOUND: u32 = 1;
const PUT_ROOT: u32 = 24;
const LOOKUP: u32 = 15;
/// Bit of a fragment that is the last one of its record.
const LAST: u32 = 1 << 31;
/// Bytes of an answer, at most: it holds a status for each name of a path.
const ANSWER_BYTES_MAX: u32 = 64 * 1024;
/// Identity without rights of its own.
const NOBODY: u32 = 65_534;

/// Status `NFS4_OK`.
const OK: u32 = 0;
/// Status `NFS4ERR_NOENT`.
pub(super) const NO_ENTRY: u32 = 2;
/// Status `NFS4ERR_DELAY`: the client is to ask again later.
pub(super) const DELAY: u32 = 10_008;

/// Answer to a look-up of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// The path is there.
    Path,
    /// A step ended with a status of NFS.
    Status(u32),
}

/// Bytes of a call in the external representation of data.
#[derive(Debug, Default)]
struct Words(Vec<u8>);

impl Words {
    fn number(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn bytes(&mut self, value: &[u8]) {
        self.number(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }
}

/// Answer that is read number by number.
struct Answer<'a>(&'a [u8]);

impl Answer<'_> {
    fn number(&mut self) -> io::Result<u32> {
        let (first, rest) = self.0.split_first_chunk().ok_or_else(|| bad("the answer is too short"))?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*first))
    }

    fn skip_bytes(&mut self) -> io::Result<()> {
        let length = usize::try_from(self.number()?).map_err(io::Error::other)?;
        let padded = length.checked_next_multiple_of(4);
        let rest = padded.and_then(|length| self.0.get(length..));
        self.0 = rest.ok_or_else(|| bad("the answer is too short"))?;
        Ok(())
    }
}

fn bad(finding: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, finding.to_owned())
}

/// Call with its header and the identity of an account without rights.
fn call(id: u32, procedure: u32) -> Words {
    let mut words = Words::default();
    for value in [id, 0, 2, PROGRAM, VERSION, procedure] {
        words.number(value);
    }
    let mut identity = Words::default();
    identity.number(0);
    identity.bytes(b"dolmen");
    for value in [NOBODY, NOBODY, 0] {
        identity.number(value);
    }
    words.number(1);
    words.bytes(&identity.0);
    words.number(0);
    words.number(0);
    words
}

/// Sends a call, and returns what stands behind the header of its answer.
fn exchange(stream: &mut (impl Read + Write), id: u32, call: &Words) -> io::Result<Vec<u8>> {
    let length = u32::try_from(call.0.len()).map_err(io::Error::other)?;
    stream.write_all(&(length | LAST).to_be_bytes())?;
    stream.write_all(&call.0)?;
    let mut answer = Vec::new();
    loop {
        let mut head = [0; 4];
        stream.read_exact(&mut head)?;
        let head = u32::from_be_bytes(head);
        let (start, length) = (answer.len(), head & !LAST);
        let sum = u64::try_from(start).map_err(io::Error::other)? + u64::from(length);
        if sum > u64::from(ANSWER_BYTES_MAX) {
            return Err(bad("the answer is too long"));
        }
        answer.resize(usize::try_from(sum).map_err(io::Error::other)?, 0);
        stream.read_exact(answer.get_mut(start..).unwrap_or_default())?;
        if head & LAST != 0 {
            break;
        }
    }
    body_of(&answer, id).map(<[u8]>::to_vec)
}

/// Returns what stands behind the header of an answer.
fn body_of(answer: &[u8], id: u32) -> io::Result<&[u8]> {
    let mut answer = Answer(answer);
    if answer.number()? != id || answer.number()? != 1 {
        return Err(bad("the answer is to another call"));
    }
    if answer.number()? != 0 {
        return Err(bad("the server refuses calls of this host"));
    }
    answer.number()?;
    answer.skip_bytes()?;
    match answer.number()? {
        0 => Ok(answer.0),
        state => {
            Err(io::Error::other(format!("the server does not serve NFS 4 (state {state} of the call)")))
        }
    }
}

/// Asks a server for nothing: it answers if it serves NFS 4.
pub(super) fn null(stream: &mut TcpStream) -> io::Result<()> {
    exchange(stream, 1, &call(1, NULL)).map(drop)
}

/// Asks for a path from the root of a server on.
pub(super) fn look_up(stream: &mut TcpStream, path: &str) -> io::Result<Found> {
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    let mut words = call(2, COMPOUND);
    words.bytes(b"");
    words.number(0);
    words.number(u32::try_from(names.len() + 1).map_err(io::Error::other)?);
    words.number(PUT_ROOT);
    for name in names {
        words.number(LOOKUP);
        words.bytes(name.as_bytes());
    }
    let body = exchange(stream, 2, &words)?;
    // The status of all steps is that of the last one that was tried.
    match Answer(&body).number()? {
        OK => Ok(Found::Path),
        status => Ok(Found::Status(status)),
    }
}

/// Name of a status of NFS.
pub(super) fn name_of(status: u32) -> String {
    let name = match status {
        1 => "NFS4ERR_PERM",
        NO_ENTRY => "NFS4ERR_NOENT",
        13 => "NFS4ERR_ACCESS",
        DELAY => "NFS4ERR_DELAY",
        10_016 => "NFS4ERR_WRONGSEC",
        10_021 => "NFS4ERR_MINOR_VERS_MISMATCH",
        _ => return format!("status {status} of NFS"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake {
        sent: Vec<u8>,
        answer: io::Cursor<Vec<u8>>,
    }

    impl Read for Fake {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.answer.read(into)
        }
    }

    impl Write for Fake {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            self.sent.write(from)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn answer(fragments: &[&[u32]]) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for (at, words) in fragments.iter().enumerate() {
            let last = if at + 1 == fragments.len() { LAST } else { 0 };
            bytes.extend_from_slice(&((u32::try_from(words.len()).unwrap() * 4) | last).to_be_bytes());
            words.iter().for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
        }
        let mut fake = Fake { sent: Vec::new(), answer: io::Cursor::new(bytes) };
        exchange(&mut fake, 9, &call(9, NULL))
    }

    #[test]
    fn answers_are_read_whole_and_bad_ones_are_refused() {
        assert_eq!(answer(&[&[9, 1, 0, 0, 0, 0]]).unwrap(), b"");
        assert_eq!(answer(&[&[9, 1, 0, 0], &[4, 7, 0, 13]]).unwrap(), 13_u32.to_be_bytes());
        for words in [
            &[8, 1, 0, 0, 0, 0][..],
            &[9, 0, 0, 0, 0, 0],
            &[9, 1, 1, 0],
            &[9, 1, 0, 0, 0, 1],
            &[9, 1],
            &[9, 1, 0, 0, 99, 0],
        ] {
            assert!(answer(&[words]).is_err(), "{words:?}");
        }
        assert!(answer(&[&[0; 20_000]]).is_err());
    }
}
