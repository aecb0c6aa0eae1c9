//! A socket of the API, which is made again when somebody has removed it: programs that clean folders of sockets do, and
//! nothing could be asked of the daemon any more.

use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixListener as StdListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{UnixListener, UnixStream};

use crate::api::web_user::WebUser;
use crate::files::make_folder;

/// How often it is looked whether the socket is there.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The pause after a client that could not be taken.
const REST: Duration = Duration::from_secs(1);

/// Users of the system that a socket admits.
enum Access {
    /// The daemon's own, and root.
    Owner,
    /// `dolmen-web` in addition.
    Web(Arc<WebUser>),
}

/// A socket that is there as long as this lives. That of `dolmen-web` is there once the system has its user, and never for a daemon that is not of root.
pub(crate) struct ApiSocket {
    /// None while the system has no such user.
    listener: Option<UnixListener>,
    path: PathBuf,
    access: Access,
    /// Whether the log has that clients cannot be taken, or that the socket cannot be made again.
    is_reported: bool,
}

impl ApiSocket {
    /// Takes clients from a listener, bound to this path.
    pub(crate) fn new(listener: StdListener, path: PathBuf) -> io::Result<Self> {
        let listener = Some(UnixListener::from_std(listener)?);
        Ok(Self { listener, path, access: Access::Owner, is_reported: false })
    }

    /// Takes `dolmen-web` as a client at this path, once the system has its user. A socket of an earlier daemon is replaced: the
    /// lock of its folder is held.
    pub(crate) fn for_web(path: PathBuf, user: Arc<WebUser>) -> Self {
        let is_socket = |found: std::fs::Metadata| found.file_type().is_socket();
        if std::fs::symlink_metadata(&path).is_ok_and(is_socket) {
            let _ = std::fs::remove_file(&path);
        }
        let mut socket = Self { listener: None, path, access: Access::Web(user), is_reported: false };
        socket.put_back();
        socket
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
            match &self.access {
                Access::Owner => UnixListener::bind(&self.path).map(Some).map_err(|error| error.to_string()),
                Access::Web(user) => user.bind(&self.path).map_err(|error| error.to_string()),
            }
        });
        match made {
            Ok(None) => {}
            Ok(Some(listener)) => {
                if self.listener.is_some() {
                    tracing::warn!(path = %self.path.display(), "the socket had been removed, and is there again");
                }
                (self.listener, self.is_reported) = (Some(listener), false);
            }
            Err(error) if !self.is_reported => {
                tracing::error!(path = %self.path.display(), error, "the socket cannot be made; it is tried again");
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
                accepted = accept(self.listener.as_ref()) => accepted,
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
        match &self.listener {
            Some(listener) => listener.local_addr(),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

/// Takes a client; waits for ever without a listener.
async fn accept(listener: Option<&UnixListener>) -> io::Result<(UnixStream, tokio::net::unix::SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}
