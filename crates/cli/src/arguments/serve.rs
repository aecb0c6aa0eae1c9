//! Arguments of `dolmen serve`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;

use crate::arguments::common::DryRun;
use crate::arguments::values::SpaceName;

/// The port of NBD.
const PORT: u16 = 10809;

/// What follows the options in the help.
pub(crate) const SERVE_HELP: &str = "\
Without --listen, the space is served on the Unix socket of the daemon, to whoever may use that.
With it, on that address as well: on loopback to every process of this machine, elsewhere with TLS 1.3 alone, to clients
with a certificate that the authority in --client-ca has signed. The files are checked now, read by the daemon, and
read again when they change. The key must not be readable by others.

Examples:
  dolmen serve tank/home
  dolmen serve tank/home --listen 127.0.0.1
  dolmen serve tank/home --listen 10.0.0.1:10809 --tls-cert server.pem --tls-key server.key --client-ca clients.pem
  dolmen serve tank/vm7 --listen 10.0.0.1 --tls-cert server.pem --tls-key server.key --client-ca clients.pem --allow host7.example";

/// `dolmen serve`
#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    /// The space
    #[arg(value_name = "POOL/SPACE")]
    pub space: SpaceName,
    /// Take no changes from clients
    #[arg(long)]
    pub read_only: bool,
    /// Serve on this address as well; the port is 10809 when left out
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = parse_listen)]
    pub listen: Option<SocketAddr>,
    /// The server's certificate, followed by those between it and its authority (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_key", "client_ca"])]
    pub tls_cert: Option<PathBuf>,
    /// The key of the server's certificate (PEM, not encrypted)
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_cert", "client_ca"])]
    pub tls_key: Option<PathBuf>,
    /// The authorities that sign the certificates of clients (PEM)
    #[arg(long, value_name = "FILE", requires_all = ["listen", "tls_cert", "tls_key"])]
    pub client_ca: Option<PathBuf>,
    /// Let only certificates with this name in: the subject's common name, or a DNS name; can be repeated
    #[arg(long, value_name = "NAME", requires = "client_ca")]
    pub allow: Vec<String>,
    /// Whether to do it.
    #[command(flatten)]
    pub dry: DryRun,
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().map(|address| SocketAddr::new(address, PORT));
    address.or_else(|_| text.parse()).map_err(|_| {
        "expected an address of this machine as a number, and a port, such as 10.0.0.1:10809 or [fd00::1]:10809"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_usual_port_unless_another_is_given() {
        for (text, expected) in [
            ("127.0.0.1", Some("127.0.0.1:10809")),
            ("10.0.0.1:7", Some("10.0.0.1:7")),
            ("::1", Some("[::1]:10809")),
            ("[::1]", Some("[::1]:10809")),
            ("[fd00::1]:9", Some("[fd00::1]:9")),
            ("localhost", None),
            ("10.0.0.1:", None),
            ("10.0.0.1:70000", None),
            ("", None),
        ] {
            let found = parse_listen(text).ok().map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn the_files_of_tls_go_together() {
        let line = |rest: &str| {
            let words = format!("dolmen serve tank/x {rest}");
            crate::arguments::parse::parse(words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        assert!(line("--listen 10.0.0.1 --tls-cert a --tls-key b --client-ca c --allow d --allow e").is_ok());
        for wrong in [
            "--tls-cert a --tls-key b --client-ca c",
            "--listen 10.0.0.1 --tls-cert a",
            "--listen 10.0.0.1 --tls-cert a --tls-key b",
            "--listen 127.0.0.1 --allow d",
            "--listen here",
        ] {
            assert!(line(wrong).is_err(), "{wrong}");
        }
    }
}
