//! Notes to the supervisor that started the daemon, by the protocol of sd_notify(3): one datagram to a socket that the environment
//! names.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Setting in the environment that names the socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// The supervisor, if one waits for notes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Supervisor {
    socket: Option<OsString>,
}

impl Supervisor {
    /// Returns the supervisor that the environment names.
    pub(crate) fn of_environment() -> Self {
        Self { socket: env::var_os(SOCKET).filter(|socket| !socket.is_empty()) }
    }

    /// Returns whether a supervisor waits for notes. It has decided on a stop before it asks for one.
    pub(crate) fn is_present(&self) -> bool {
        self.socket.is_some()
    }

    /// Notes that the daemon answers, and has opened its pools.
    pub(crate) fn note_ready(&self) {
        self.note("READY=1\nSTATUS=the daemon is running");
    }

    /// Notes that the daemon ends.
    pub(crate) fn note_stopping(&self) {
        self.note("STOPPING=1\nSTATUS=the daemon unmounts volumes and closes pools");
    }

    /// Notes what keeps the daemon from its end.
    pub(crate) fn note_refusal(&self, reason: &str) {
        let line: String = reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        self.note(&format!("STATUS=it cannot end yet: {line}"));
    }

    fn note(&self, text: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = send(socket, text) {
            tracing::warn!(%error, socket = %socket.display(), "the supervisor could not be notified");
        }
    }
}

fn send(socket: &OsStr, text: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    // A supervisor that reads nothing keeps no thread of the daemon.
    sender.set_nonblocking(true)?;
    sender.send_to_addr(text.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_one_datagram_to_a_path_or_an_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let abstract_name = format!("dolmen-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let (by_path, by_name) =
            (UnixDatagram::bind(&path).unwrap(), UnixDatagram::bind_addr(&address).unwrap());
        for (socket, name) in
            [(by_path, path.into_os_string()), (by_name, format!("@{abstract_name}").into())]
        {
            let supervisor = Supervisor { socket: Some(name) };
            supervisor.note_ready();
            supervisor.note_refusal("in use\nREADY=1");
            let mut note = [0; 200];
            let length = socket.recv(&mut note).unwrap();
            assert_eq!(&note[..length], b"READY=1\nSTATUS=the daemon is running");
            let length = socket.recv(&mut note).unwrap();
            assert_eq!(&note[..length], b"STATUS=it cannot end yet: in use READY=1");
        }
    }

    #[test]
    fn without_a_socket_or_a_reader_nothing_is_sent() {
        Supervisor::default().note_ready();
        let folder = tempfile::tempdir().unwrap();
        Supervisor { socket: Some(folder.path().join("absent").into_os_string()) }.note_stopping();
    }
}
