//! Notes to the supervisor that started the process, by the protocol of sd_notify(3).

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Setting in the environment that names the socket.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Sends a note, where a supervisor waits for notes.
pub(super) fn note(text: &str) {
    let socket: Option<OsString> = env::var_os(SOCKET).filter(|socket| !socket.is_empty());
    let Some(socket) = socket else { return };
    if let Err(error) = send(&socket, text) {
        tracing::warn!(%error, socket = %socket.display(), "the supervisor could not be notified");
    }
}

fn send(socket: &OsStr, text: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let sender = UnixDatagram::unbound()?;
    sender.set_nonblocking(true)?;
    sender.send_to_addr(text.as_bytes(), &address).map(drop)
}
