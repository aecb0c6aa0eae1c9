//! Where on a network a space is served.

use std::net::SocketAddr;

use dolmen_api::{ErrorBody, ErrorCode, ServeNetwork, TlsFiles};
use serde::{Deserialize, Serialize};

use crate::answer::Answer;

/// Where on a network a space is served, and to whom. Of the keys there are the paths alone, also on record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Network {
    pub(crate) listen: SocketAddr,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) allow: Vec<String>,
}

impl Network {
    pub(crate) fn parse(request: ServeNetwork) -> Answer<Self> {
        let ServeNetwork { listen, tls, allow } = request;
        match listen.parse() {
            Ok(listen) => Ok(Self { listen, tls, allow }),
            Err(_) => {
                let message = format!("{listen:?} is no address and port; nothing was changed");
                Err(ErrorBody::new(ErrorCode::BadRequest, message)
                    .hint("such as 10.0.0.1:10809 or [fd00::1]:10809"))
            }
        }
    }
}

impl Network {
    /// The options of `dolmen serve` that ask for it, each behind a space.
    pub(crate) fn options(&self) -> String {
        let mut options = format!(" --listen {}", self.listen);
        if let Some(TlsFiles { certificate, key, client_ca }) = &self.tls {
            for (option, file) in [("tls-cert", certificate), ("tls-key", key), ("client-ca", client_ca)] {
                options.push_str(&format!(" --{option} {}", file.display()));
            }
        }
        self.allow.iter().for_each(|name| options.push_str(&format!(" --allow {name}")));
        options
    }
}
