//! The socket of the API, which is made again when somebody has removed it: programs that clean folders of sockets do, and
//! nothing could be asked of the daemon any more.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::path::PathBuf;
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{UnixListener, UnixStream};

use crate::files::make_folder;

/// How often it is looked whether the socket is there.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The pause after a client that could not be taken.
const REST: Duration = Duration::from_secs(1);

/// A socket that is there as long as this lives.
pub(crate) struct ApiSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Whether the log has that clients cannot be taken, or that the socket cannot be made again.
    is_reported: bool,
}

impl ApiSocket {
    /// Takes clients from a listener, bound to this path.
    pub(crate) fn new(listener: StdListener, path: PathBuf) -> io::Result<Self> {
        Ok(Self { listener: UnixListener::from_std(listener)?, path, is_reported: false })
    }

    /// Makes the socket again if there is nothing at its path; what somebody else has put there stays.
    fn put_back(&mut self) {
        let is_gone = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        if !std::fs::symlink_metadata(&self.path).is_err_and(is_gone) {
            return;
        }
        let folder = self.path.parent().map_or(Ok(()), make_folder);
        let made = folder.map_err(|error| error.to_string()).and_then(|()| {
            // The one before goes with its clients answered: whoever has connected is served on.
            UnixListener::bind(&self.path).map_err(|error| error.to_string())
        });
        match made {
            Ok(listener) => {
                tracing::warn!(path = %self.path.display(), "the socket had been removed, and is there again");
                (self.listener, self.is_reported) = (listener, false);
            }
            Err(error) if !self.is_reported => {
                tracing::error!(path = %self.path.display(), error, "the socket was removed, and cannot be made again");
                self.is_reported = true;
            }
            Err(_) => {}
        }
    }
}

impl Listener for ApiSocket {
    type Io = UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = tokio::time::sleep(LOOK_EVERY) => {
                    self.put_back();
                    continue;
                }
            };
            match accepted {
                Ok(client) => {
                    self.is_reported = false;
                    return client;
                }
                Err(error) => {
                    if !self.is_reported {
                        tracing::warn!(%error, "a client of the API could not be taken; it is tried again");
                        self.is_reported = true;
                    }
                    tokio::time::sleep(REST).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
