//! Authorities that servers of notifications are checked by.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

/// Files in which systems keep the authorities that they trust; the first that is there is used.
const SYSTEM_FILES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Authorities, as certificates.
#[derive(Clone, Default)]
pub(crate) struct Trust {
    roots: Arc<Vec<CertificateDer<'static>>>,
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} authorities", self.roots.len())
    }
}

impl Trust {
    /// Reads the authorities of a file, or those of the system: there may be none, and then no server is trusted.
    pub(super) fn of(path: Option<&Path>) -> Result<Self, String> {
        let found = path.or_else(|| SYSTEM_FILES.iter().map(Path::new).find(|path| path.exists()));
        let Some(found) = found else { return Ok(Self::default()) };
        let read: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(found).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let roots = read.map_err(|error| format!("{} cannot be read: {error}", found.display()))?;
        if roots.is_empty() {
            return Err(format!("{} holds no certificate", found.display()));
        }
        Ok(Self { roots: Arc::new(roots) })
    }

    /// Returns the certificates of the authorities.
    pub(super) fn roots(&self) -> &[CertificateDer<'static>] {
        &self.roots
    }

    /// Returns the settings of TLS for a client.
    pub(super) fn client(&self) -> Result<ClientConfig, rustls::Error> {
        let mut roots = RootCertStore::empty();
        // Authorities that rustls does not understand are not trusted; the others are.
        roots.add_parsable_certificates(self.roots.iter().cloned());
        let versions = [&rustls::version::TLS13, &rustls::version::TLS12];
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&versions)?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}
